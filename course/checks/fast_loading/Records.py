"""Probe of exercise Records."""

import contextlib
import faulthandler
import json
import os
import re
import tempfile
import warnings
from pathlib import Path

import numpy as np
import torch

from course.checks.engine import exercise
from course.checks.fast_loading.record_files import PAGE, STRIDES, header, make_records
from course.checks.probing.counting import read_so_far
from course.checks.probing.errors import raised, type_name


def _sharing(tensor):
    """What Linux notes of the mapping that a tensor lies in, a set of two-letter flags; None where it does not tell."""
    with contextlib.suppress(OSError), open("/proc/self/smaps") as lines:
        inside = False
        for line in lines:
            if region := re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line):
                inside = int(region[1], 16) <= tensor.data_ptr() < int(region[2], 16)
            elif inside and line.startswith("VmFlags:"):
                return set(line.split()[1:])


def _can_be_written(tensor):
    """True if the tensor keeps what is written into it; tried in a child, which a mapping to read only would end."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Python warns of a fork beside threads
        child = os.fork()
    if child == 0:
        try:
            faulthandler.disable()
            tensor.view(-1)[:1].fill_(-7.0)
            os._exit(0 if tensor.view(-1)[:1].item() == -7.0 else 1)
        finally:
            os._exit(1)
    return os.waitpid(child, 0)[1] == 0


def _says(error, path, *words):
    """What exception it is, and which of the words and the path its message lacks."""
    message = re.sub(r"(?<=\d)[,_](?=\d{3})", "", str(error))
    lacks = [
        *[repr(word) for word in map(str, words) if word not in message],
        *["the path"] * (str(path) not in str(error)),
    ]
    if not isinstance(error, ValueError):
        return type(error).__name__ if error else "no exception"
    return f"a ValueError without {', '.join(lacks)}" if lacks else "a ValueError that says it"


@exercise(measured=True)
def Records(answer, device, seed):
    """Files of a few rows, one that no memory holds, and every kind of file that is no whole record file."""
    with tempfile.TemporaryDirectory() as temporary:
        yield from _facts_of_records(answer, Path(temporary).resolve() / "linear.rec", seed)


def _facts_of_records(answer, path, seed):
    rng = torch.Generator().manual_seed(seed)

    def made(rows, columns, **other):
        """A file of random rows; what it holds."""
        table = torch.zeros(rows, STRIDES[columns] // 4)
        table[:, : columns + 1] = torch.rand(rows, columns + 1, generator=rng)
        make_records(path, header(rows, columns, seed, **other), table.numpy())
        return table

    rows, columns = 5 + seed % 4, 4 + seed % 3
    made(rows, columns)
    content = path.read_bytes()
    records = answer(path)
    sizes = {"rows": records.rows, "columns": records.columns, "seed": records.seed, "len()": len(records)}
    yield "rows, columns, seed and len()", sizes
    tensors = {"table": records.table, "x": records.x, "y": records.y}
    yield "table, x and y are tensors", {name: type(tensor).__name__ for name, tensor in tensors.items()}
    yield "their dtype", {name: str(tensor.dtype) for name, tensor in tensors.items()}
    yield "their shape", {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    yield "table, as it is in the file", records.table
    yield "x", records.x
    yield "y", records.y
    starts = {name: tensor.data_ptr() - records.table.data_ptr() for name, tensor in tensors.items()}
    inside = {name: 0 <= start < records.table.nbytes for name, start in starts.items()}
    yield "x and y are views of table", inside
    yield "where they begin, in bytes", {name: start if inside[name] else "elsewhere" for name, start in starts.items()}
    yield "from row to row, in values", {name: tensor.stride(0) for name, tensor in tensors.items()}

    with open(path, "rb+") as file:
        file.seek(PAGE)
        file.write(np.float32(-3).tobytes())
    mapped = records.table[0, 0].item() == -3
    yield "nothing is copied: what is in the file now is in x", mapped
    if not mapped or not all(inside.values()):  # it would copy from 64 GB, below
        return
    path.write_bytes(content)
    yield "can be written into", {name: _can_be_written(tensor[:1].flatten()) for name, tensor in tensors.items()}
    yield "the file does not change by it", path.read_bytes() == content
    flags = _sharing(records.table)
    yield "on Linux: mapped with MAP_NORESERVE", flags is None or "nr" in flags

    shapes, values = {}, {}
    for columns in (1, 3, 1023, 1024, 3071):
        table, records = made(1, columns), answer(str(path))
        shapes[f"{columns} columns"] = tuple(records.table.shape)
        right = torch.equal(records.x, table[:, :columns]) and torch.equal(records.y, table[:, columns])
        values[f"{columns} columns"] = right
    yield "one row, path as str: the shape of table", shapes
    yield "one row: x and y", values

    rows = 2**24
    make_records(path, header(rows, 1000, seed), length=PAGE + rows * 4096)  # 64 GB of nothing
    with open(path, "rb+") as file:
        file.seek(PAGE + (rows - 1) * 4096)
        file.write(np.arange(1001, dtype="<f4").tobytes())
    before = read_so_far()
    records = answer(path)
    yield (
        "a file of 64 GB: opening it reads less than a megabyte",
        before is None or read_so_far()[0] - before[0] < 2**20,
    )
    yield "a file of 64 GB: len()", len(records)
    yield "a file of 64 GB: its last row", [records.x[-1, -1].item(), records.y[-1].item(), records.y[-2].item()]
    del records, tensors

    path.unlink()
    yield "no file: FileNotFoundError", type_name(raised(lambda: answer(path)), "NoneType")

    columns = 4 + seed % 3
    rows, stride = 6, STRIDES[columns]
    whole = PAGE + rows * stride

    messages = {}

    def refusal(head, length=None):
        make_records(path, None, head=head, length=length)
        return _says(raised(lambda: answer(path)), path)

    def refused(length=whole, says=(), lacks=None, **other):
        fields = header(rows, columns, seed) | other
        make_records(path, {key: value for key, value in fields.items() if key != lacks}, length=length)
        error = raised(lambda: answer(path))
        messages[lacks] = str(error)
        return _says(error, path, *says)

    foreign = {
        "nothing": b"",
        "a JPEG file": b"\xff\xd8\xff\xe0\x00\x10JFIF" + bytes(range(256)) * 40,
        "a web page": b"<html>Not found</html>".ljust(9000),
        "a list in JSON": b'["course-records-1", 6, 5]'.ljust(PAGE),
        "a number in JSON": b"6".ljust(PAGE),
        "4096 brackets": b"[" * PAGE,
    }
    yield "a foreign file: ValueError with the path", {text: refusal(head) for text, head in foreign.items()}
    keys = header(rows, columns, seed)
    yield "a header that lacks a key: the message says which", {key: refused(lacks=key, says=[key]) for key in keys}
    yield "each of these messages is another one", len({messages[key] for key in keys})
    head = json.dumps(keys).encode().ljust(PAGE)
    yield "a header without the newline at its end: ValueError with the path", refusal(head, whole)
    others = {"format": "course-records-2", "dtype": "float64"}
    found = {key: refused(says=[key, value], **{key: value}) for key, value in others.items()}
    yield "another format or dtype: key and value in the message", found
    long = refused(PAGE + rows * 2 * stride, ["stride", 2 * stride], stride=2 * stride)
    yield "another stride than that of its columns: likewise", long
    lengths = {
        "the last row is missing": whole - stride,
        "the last byte is missing": whole - 1,
        "all rows are missing": PAGE,
        "half of the header is missing": PAGE // 2,
        "one byte too many": whole + 1,
        "one row too many": whole + stride,
    }
    found = {text: refused(length, [length, whole]) for text, length in lengths.items()}
    yield "another length than the header says: both in the message", found
    found = {
        "0 rows": refused(PAGE, rows=0),
        "-1 rows": refused(PAGE - stride, rows=-1),
        "0 columns": refused(PAGE + rows * 4, columns=0, stride=4),
        f"{rows}.0 rows": refused(rows=float(rows)),
        f"'{rows}' rows": refused(rows=str(rows)),
        "null columns": refused(columns=None),
        "the seed 'none'": refused(seed="none"),
        "the seed -5": refused(seed=-5),
        f"the stride {stride}.0": refused(stride=float(stride)),
        "true rows": refused(PAGE + stride, rows=True),
        "the seed true": refused(seed=True),
    }
    yield "sizes that make no sense: ValueError with the path", found
    made(rows, columns)
    yield "a whole file is taken", len(answer(path))
