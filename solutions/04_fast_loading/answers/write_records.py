"""Known mistakes of exercise write_records, and right answers in other styles."""

import contextlib
import json
import os
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch

from course.engine.known_answers import alternative
from course.parallel import distributed

MISTAKES = {
    "the_rest_is_forgotten": (
        "Each writer takes rows // writers rows, and the rows that are left over are written by nobody. Let the "
        "borders be rows * rank // writers.",
        ("source.rows * r // world_size", "source.rows // world_size * r"),
    ),
    "every_rank_writes_all": (
        "Every rank writes all rows. Rank r of n takes those from rows * r // n up to rows * (r + 1) // n.",
        ("for r in (rank, rank + 1)", "for r in (0, world_size)"),
    ),
    "a_range_at_once": (
        "A writer takes all of its rows in one slice. Go over them in chunks of at most 16 MB.",
        ("CHUNK // stride", "last - first"),
    ),
    "sends_the_arrays": (
        "x and y are taken out of the source in your own process, so all of their values are sent to each writer. Let "
        "the ranks take the source along, and slice source.x there.",
        ("    def write_range", "    x, y = source.x, source.y\n\n    def write_range"),
        ("source.x[chunk], source.y[chunk]", "x[chunk], y[chunk]"),
    ),
    "the_type_of_the_source": (
        "The values go into the file in the type of the source: 8 bytes each where that is float64. Convert to "
        "float32.",
        ('"<f4"', "np.result_type(source.x[chunk], source.y[chunk])"),
    ),
    "rows_without_padding": (
        "The rows are close together, without the zeros up to the stride. Row i begins at byte 4096 + i * stride.",
        ("file.write(values)", "file.write(values[:, : columns + 1].tobytes())"),
    ),
}


def _stride(columns):
    return next((2**k for k in range(3, 13) if 2**k > 4 * columns), 4096 * (columns // 1024 + 1))


def _write_share(rank, world_size, name, source, stride):
    """Rank `rank` takes every world_size-th chunk."""
    at_once = max(min((1 << 22) // stride, source.rows // world_size), 1)
    starts = range(rank * at_once, source.rows, world_size * at_once)
    row = np.dtype({"names": ["x", "y"], "formats": [("<f4", source.columns), "<f4"], "itemsize": stride,
                    "offsets": [0, 4 * source.columns]})  # fmt: skip
    descriptor = os.open(name, os.O_WRONLY)
    try:
        for start in starts:
            x = source.x[start : start + at_once]
            rows = np.zeros(len(x), row)
            rows["x"] = x
            rows["y"] = source.y[start : start + at_once]
            content = rows.tobytes()
            assert os.pwrite(descriptor, content, 4096 + start * stride) == len(content)
    finally:
        os.close(descriptor)


@alternative
def every_other_chunk(path, source, writers=2):
    stride = _stride(source.columns)
    head = dict(stride=stride, seed=source.seed, rows=source.rows, columns=source.columns, dtype="float32")
    descriptor, name = tempfile.mkstemp(prefix=".", dir=Path(path).parent)
    with contextlib.ExitStack() as undo:
        undo.callback(os.unlink, name)
        undo.callback(os.close, descriptor)
        os.write(
            descriptor, f"{json.dumps(head | {'format': 'course-records-1'}, separators=(',', ':')):4095}\n".encode()
        )
        os.ftruncate(descriptor, 4096 + source.rows * stride)
        distributed.run_ranks(_write_share, writers, name, source, stride, backend="gloo", timeout=86400)
        os.fsync(descriptor)
        os.rename(name, path)
        undo.pop_all()
        os.close(descriptor)
    return Path(path)


class _Job:
    def __init__(self, source, hidden):
        self.source, self.hidden = source, str(hidden)
        self.stride = _stride(source.columns)

    def __call__(self, rank, world_size):
        mine = np.array_split(np.arange(self.source.rows), world_size)[rank].tolist()
        shape = self.source.rows, self.stride // 4
        file = np.memmap(self.hidden, np.float32, "r+", offset=4096, shape=shape)
        d, n = self.source.columns, max(1, 2**22 // (self.source.columns + 1))
        while mine:
            now, mine = mine[:n], mine[n:]
            x = torch.from_numpy(self.source.x[now[0] : now[-1] + 1]).float()
            y = torch.from_numpy(self.source.y[now[0] : now[-1] + 1]).float()
            file[now[0] : now[-1] + 1, : d + 1] = torch.cat([x, y[:, None]], 1).numpy()


@alternative
def through_a_mapping(path, source, writers=2):
    path = Path(path).absolute()
    hidden = path.parent / f".half-{os.getpid()}"
    job = _Job(source, hidden)
    fields = {"format": "course-records-1", "rows": source.rows, "columns": source.columns}
    fields |= {"stride": job.stride, "dtype": "float32", "seed": source.seed}
    try:
        hidden.write_bytes(json.dumps(fields).encode("ascii"))
        with hidden.open("ab", buffering=0) as file:
            file.write(b" " * (4095 - file.tell()) + b"\n")
            os.posix_fallocate(file.fileno(), 0, 4096 + source.rows * job.stride) if sys.platform == "linux" else None
            file.truncate(4096 + source.rows * job.stride)
            distributed.run_ranks(job, writers, backend="gloo", timeout=7200.0)
            os.fsync(file)
    except BaseException:
        hidden.unlink(missing_ok=True)
        raise
    try:
        hidden.replace(path)
    except OSError:
        hidden.unlink()
        raise
    return path
