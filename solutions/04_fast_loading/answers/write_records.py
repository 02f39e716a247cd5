"""Known mistakes of exercise write_records, and right answers in other styles."""

import contextlib
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch

from course import distributed
from course.checks.engine import alternative, mistake
from course.distributed import run_ranks


def _stride(columns):
    row = 4 * (columns + 1)
    return 1 << (row - 1).bit_length() if row <= 4096 else -(-row // 4096) * 4096


def _range(rows, rank, writers):
    return rows * rank // writers, rows * (rank + 1) // writers


def _float_rows(x, y, stride):
    rows = np.zeros((len(x), stride // 4), np.float32)
    rows[:, : x.shape[1]], rows[:, x.shape[1]] = x, y
    return rows.tobytes()


def _header(source, stride, **other):
    fields = {"format": "course-records-1", "rows": source.rows, "columns": source.columns, "stride": stride}
    return json.dumps(fields | {"dtype": "float32", "seed": source.seed} | other).encode().ljust(4095) + b"\n"


def _write_ranges(name, source, writers, chunk=1 << 24, part=_range, packed=_float_rows, timeout=3600):
    """The header and the rows, right in pieces, so that each mistake can spoil one of them."""
    stride = _stride(source.columns)

    def write(rank, world_size):
        first, last = part(source.rows, rank, world_size)
        step = max(1, chunk // stride)
        with open(name, "rb+") as file:
            for start in range(first, last, step):
                end = min(start + step, last)
                file.seek(4096 + start * stride)
                file.write(packed(source.x[start:end], source.y[start:end], stride))

    with open(name, "wb") as file:
        file.write(_header(source, stride))
        file.truncate(4096 + source.rows * stride)
    run_ranks(write, writers, backend="gloo", timeout=timeout)


def _into_place(name, path):
    with open(name, "rb") as file:
        os.fsync(file.fileno())
    os.replace(name, path)


def _hidden(path):
    return path.with_name(f".{path.name}-{os.getpid()}")


def _written(path, source, writers, **spoiled):
    path = Path(path)
    hidden = _hidden(path)
    try:
        _write_ranges(hidden, source, writers, **spoiled)
        _into_place(hidden, path)
    finally:
        hidden.unlink(missing_ok=True)
    return path


@mistake(
    "write_records",
    "The temporary file has one name in all processes: two that write one path write into one file. Put the process "
    "id into its name.",
)
def one_name_for_all_processes(path, source, writers=2):
    path = Path(path)
    half = path.parent / f".{path.name}.half"
    try:
        _write_ranges(half, source, writers)
        _into_place(half, path)
    finally:
        half.unlink(missing_ok=True)
    return path


@mistake(
    "write_records",
    "The rows are written into `path` itself, where a reader finds half a file. Write a temporary one, then rename it.",
)
def straight_into_the_path(path, source, writers=2):
    _write_ranges(path, source, writers)
    with open(path, "rb") as file:
        os.fsync(file.fileno())
    return Path(path)


@mistake(
    "write_records",
    "The temporary file lies in another folder, maybe on another disk, and is copied. Make it in the folder of `path`.",
)
def from_another_folder(path, source, writers=2):
    with tempfile.TemporaryDirectory() as folder:
        name = Path(folder, ".records")
        _write_ranges(name, source, writers)
        with open(name, "rb") as file:
            os.fsync(file.fileno())
        shutil.copyfile(name, path)
    return Path(path)


@mistake(
    "write_records",
    "After an error the temporary file stays. Remove it in a `finally`, which runs in any case.",
)
def removed_never(path, source, writers=2):
    path = Path(path)
    hidden = _hidden(path)
    _write_ranges(hidden, source, writers)
    _into_place(hidden, path)
    return path


@mistake(
    "write_records",
    "When os.fsync fails, the temporary file stays. Let the `try` go on to the end of os.replace.",
)
def removed_when_writers_fail(path, source, writers=2):
    path = Path(path)
    hidden = _hidden(path)
    try:
        _write_ranges(hidden, source, writers)
    except BaseException:
        hidden.unlink()
        raise
    _into_place(hidden, path)
    return path


@mistake(
    "write_records",
    "Ctrl-C leaves the temporary file: KeyboardInterrupt is no Exception. Remove the file in a `finally`.",
)
def removed_after_an_exception(path, source, writers=2):
    path = Path(path)
    hidden = _hidden(path)
    try:
        _write_ranges(hidden, source, writers)
        _into_place(hidden, path)
    except Exception:
        hidden.unlink()
        raise
    return path


@mistake(
    "write_records",
    "The file gets its name while rows of it are not on the disk yet. Call os.fsync before os.replace.",
)
def never_synced(path, source, writers=2):
    path = Path(path)
    hidden = _hidden(path)
    try:
        _write_ranges(hidden, source, writers)
        os.replace(hidden, path)
    finally:
        hidden.unlink(missing_ok=True)
    return path


@mistake(
    "write_records",
    "The old file is removed before the new one is written, and is lost if that fails. os.replace replaces it.",
)
def the_old_one_goes_first(path, source, writers=2):
    Path(path).unlink(missing_ok=True)
    return _written(path, source, writers)


@mistake(
    "write_records",
    "Each writer takes rows // writers rows, and the rows that are left over are written by nobody. "
    "Let the borders be rows * rank // writers.",
)
def the_rest_is_forgotten(path, source, writers=2):
    return _written(path, source, writers, part=lambda rows, r, n: (rows // n * r, rows // n * (r + 1)))


@mistake("write_records", "A writer takes all of its rows in one slice. Go over them in chunks of at most 16 MB.")
def a_range_at_once(path, source, writers=2):
    return _written(path, source, writers, chunk=1 << 60)


@mistake(
    "write_records",
    "run_ranks has its usual limit of a minute, which a large file takes longer than. Give it an hour: timeout=3600.",
)
def a_minute(path, source, writers=2):
    return _written(path, source, writers, timeout=60)


class _Sent:
    def __init__(self, source):
        self.rows, self.columns, self.seed, self.x, self.y = (
            source.rows,
            source.columns,
            source.seed,
            source.x,
            source.y,
        )


@mistake(
    "write_records",
    "x and y are taken out of the source in your own process, so all of their values are sent to each writer. "
    "Let the ranks take the source along, and slice source.x there.",
)
def sends_the_arrays(path, source, writers=2):
    return _written(path, _Sent(source), writers)


@mistake(
    "write_records",
    "The values go into the file in the type of the source: 8 bytes each where that is float64. Convert to float32.",
)
def the_type_of_the_source(path, source, writers=2):
    def packed(x, y, stride):
        rows = np.zeros((len(x), stride // 4), np.result_type(x, y))
        rows[:, : x.shape[1]], rows[:, x.shape[1]] = x, y
        return rows.tobytes()

    return _written(path, source, writers, packed=packed)


@mistake(
    "write_records",
    "The rows stand close together, without the zeros up to the stride. Row i begins at byte 4096 + i * stride.",
)
def rows_without_padding(path, source, writers=2):
    def packed(x, y, stride):
        return np.column_stack([x, y]).astype(np.float32).tobytes()

    return _written(path, source, writers, packed=packed)


@mistake("write_records", "Your own process writes all rows. Give the writing of a range to run_ranks.")
def all_alone(path, source, writers=2):
    path, stride = Path(path), _stride(source.columns)
    hidden = _hidden(path)
    step = max(1, (1 << 24) // stride)
    try:
        with open(hidden, "wb") as file:
            file.write(_header(source, stride))
            file.truncate(4096 + source.rows * stride)
            for start in range(0, source.rows, step):
                chunk = slice(start, min(start + step, source.rows))
                file.write(_float_rows(source.x[chunk], source.y[chunk], stride))
        _into_place(hidden, path)
    finally:
        hidden.unlink(missing_ok=True)
    return path


FIELDS = {"format": str, "rows": int, "columns": int, "stride": int, "dtype": str, "seed": int}


def doubled_until_it_fits(columns):
    if columns <= 0:
        raise ValueError(columns)
    stride = 8
    while stride < 4096 and stride < 4 * columns + 4:
        stride *= 2
    return stride if stride >= 4 * columns + 4 else 4096 * ((4 * columns + 4 + 4095) // 4096)


def the_first_of_all_that_divide(columns):
    if not columns >= 1:
        raise ValueError("a row needs a column")
    values = columns + 1
    powers = (2**k for k in range(1, 11))
    return 4 * next((power for power in powers if power >= values), values + -values % 1024)


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


@alternative("write_records")
def every_other_chunk(path, source, writers=2):
    stride = the_first_of_all_that_divide(source.columns)
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
        self.stride = doubled_until_it_fits(source.columns)

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


@alternative("write_records")
def through_a_mapping(path, source, writers=2):
    path = Path(path).absolute()
    hidden = path.parent / f".half-{os.getpid()}"
    job = _Job(source, hidden)
    fields = ["course-records-1", source.rows, source.columns, job.stride, "float32", source.seed]
    try:
        hidden.write_bytes(json.dumps(dict(zip(FIELDS, fields, strict=True))).encode("ascii"))
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
