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
from course.checks.probing.errors import error_name, raised


def _sharing(tensor):
    """The two-letter flags that Linux shows for the mapping a tensor lies in, a set; None elsewhere."""
    with contextlib.suppress(OSError), open("/proc/self/smaps") as lines:
        inside = False
        for line in lines:
            if region := re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line):
                inside = int(region[1], 16) <= tensor.data_ptr() < int(region[2], 16)
            elif inside and line.startswith("VmFlags:"):
                return set(line.split()[1:])


def _can_be_written(tensor):
    """True if the tensor can be written to; tried in a child process, because a read-only mapping kills it."""
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
    """Which exception it is, and which of `words` and of the path its message lacks."""
    message = re.sub(r"(?<=\d)[,_](?=\d{3})", "", str(error))
    lacks = [
        *[repr(word) for word in map(str, words) if word not in message],
        *["the path"] * (str(path) not in str(error)),
    ]
    if not isinstance(error, ValueError):
        return type(error).__name__ if error else "no exception"
    return f"a ValueError without {', '.join(lacks)}" if lacks else "a ValueError that says it"


class _File:
    """A record file of which the probe writes one version after the other."""

    def __init__(self, answer, path, seed):
        self.answer, self.path, self.seed = answer, path, seed
        self.rng = torch.Generator().manual_seed(seed)

    def made(self, rows, columns):
        """Write a file of random rows; returns what it holds."""
        table = torch.zeros(rows, STRIDES[columns] // 4)
        table[:, : columns + 1] = torch.rand(rows, columns + 1, generator=self.rng)
        make_records(self.path, header(rows, columns, self.seed), table.numpy())
        return table

    def write_at(self, place, values):
        """Write float32 `values` at a byte of the file."""
        with open(self.path, "rb+") as file:
            file.seek(place)
            file.write(np.asarray(values, "<f4").tobytes())

    def refusal(self, *words):
        """What opening the file raises, and which of the words and the path its message lacks."""
        return _says(raised(self.answer, self.path), self.path, *words)


class _Header:
    """Headers of a file of 6 rows, each wrong in one thing; the length is right unless given."""

    rows = 6

    def __init__(self, file):
        self.file, self.columns, self.messages = file, 4 + file.seed % 3, {}
        self.stride = STRIDES[self.columns]
        self.whole = PAGE + self.rows * self.stride
        self.fields = header(self.rows, self.columns, file.seed)

    def refused(self, length=None, says=(), lacks=None, **other):
        """What is raised where the header lacks a key or has `other` values."""
        fields = {key: value for key, value in (self.fields | other).items() if key != lacks}
        make_records(self.file.path, fields, length=self.whole if length is None else length)
        error = raised(self.file.answer, self.file.path)
        self.messages[lacks] = str(error)
        return _says(error, self.file.path, *says)


@exercise()
def Records(answer, device, seed):
    """Files of a few rows, one of 64 GB, and files that are no whole record files."""
    with tempfile.TemporaryDirectory() as temporary:
        file = _File(answer, Path(temporary).resolve() / "linear.rec", seed)
        if not (yield from _views_of_the_mapping(file)):
            return  # it would copy from 64 GB, below
        yield from _one_row(file)
        yield from _larger_than_memory(file)
        wrong = _Header(file)
        yield from _foreign_files(file)
        yield from _wrong_headers(file, wrong)
        yield from _wrong_lengths(wrong)
        yield from _wrong_sizes(wrong)


def _views_of_the_mapping(file):
    """Facts of a small file; returns whether nothing is copied."""
    file.made(5 + file.seed % 4, 4 + file.seed % 3)
    content = file.path.read_bytes()
    records = file.answer(file.path)
    sizes = {"rows": records.rows, "columns": records.columns, "seed": records.seed, "len()": len(records)}
    yield "rows, columns, seed and len()", sizes
    tensors = {"table": records.table, "x": records.x, "y": records.y}
    yield from _what_they_hold(records, tensors)
    starts = {name: tensor.data_ptr() - records.table.data_ptr() for name, tensor in tensors.items()}
    inside = {name: 0 <= start < records.table.nbytes for name, start in starts.items()}
    yield "x and y are views of table", inside
    yield "where they begin, in bytes", {name: start if inside[name] else "elsewhere" for name, start in starts.items()}
    yield "from row to row, in values", {name: tensor.stride(0) for name, tensor in tensors.items()}
    file.write_at(PAGE, [-3])
    mapped = records.table[0, 0].item() == -3
    yield "nothing is copied: what is in the file now is in x", mapped
    if not mapped or not all(inside.values()):
        return False
    file.path.write_bytes(content)
    yield "can be written into", {name: _can_be_written(tensor[:1].flatten()) for name, tensor in tensors.items()}
    yield "the file does not change by it", file.path.read_bytes() == content
    flags = _sharing(records.table)
    yield "on Linux: mapped with MAP_NORESERVE", flags is None or "nr" in flags
    return True


def _what_they_hold(records, tensors):
    kinds = {name: f"{type(tensor).__name__} of {tensor.dtype}" for name, tensor in tensors.items()}
    yield "table, x and y are tensors", kinds
    yield "their shape", {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    yield "table, as it is in the file", records.table
    yield "x", records.x
    yield "y", records.y


def _one_row(file):
    found = {}
    for columns in (1, 3, 1023, 1024, 3071):
        table, records = file.made(1, columns), file.answer(str(file.path))
        right = torch.equal(records.x, table[:, :columns]) and torch.equal(records.y, table[:, columns])
        found[f"{columns} columns"] = [tuple(records.table.shape), right]
    yield "one row, path as str: the shape of table, and whether x and y are right", found


def _larger_than_memory(file):
    rows = 2**24
    make_records(file.path, header(rows, 1000, file.seed), length=PAGE + rows * 4096)  # 64 GB of nothing
    file.write_at(PAGE + (rows - 1) * 4096, np.arange(1001))
    before = read_so_far()
    records = file.answer(file.path)
    after = read_so_far()
    yield "a file of 64 GB: opening it reads less than a megabyte", before is None or after[0] - before[0] < 2**20
    last = [records.x[-1, -1].item(), records.y[-1].item(), records.y[-2].item()]
    yield "a file of 64 GB: len() and its last row", [len(records), *last]


def _foreign_files(file):
    file.path.unlink()
    yield "no file: FileNotFoundError", error_name(file.answer, file.path, none="NoneType")
    found = {}
    for text, head in {
        "nothing": b"",
        "a JPEG file": b"\xff\xd8\xff\xe0\x00\x10JFIF" + bytes(range(256)) * 40,
        "a web page": b"<html>Not found</html>".ljust(9000),
        "a list in JSON": b'["course-records-1", 6, 5]'.ljust(PAGE),
        "a number in JSON": b"6".ljust(PAGE),
    }.items():
        make_records(file.path, None, head=head)
        found[text] = file.refusal()
    yield "a foreign file: ValueError with the path", found


def _wrong_headers(file, wrong):
    refused, keys, stride = wrong.refused, wrong.fields, wrong.stride
    yield "a header that lacks a key: the message says which", {key: refused(lacks=key, says=[key]) for key in keys}
    yield "each of these messages is another one", len({wrong.messages[key] for key in keys})
    make_records(file.path, None, head=json.dumps(keys).encode().ljust(PAGE), length=wrong.whole)
    yield "a header without the newline at its end: ValueError with the path", file.refusal()
    others = {"format": "course-records-2", "dtype": "float64"}
    found = {key: refused(says=[key, value], **{key: value}) for key, value in others.items()}
    yield "another format or dtype: key and value in the message", found
    long = refused(PAGE + wrong.rows * 2 * stride, ["stride", 2 * stride], stride=2 * stride)
    yield "another stride than that of its columns: likewise", long


def _wrong_lengths(wrong):
    lengths = {
        "the last row is missing": wrong.whole - wrong.stride,
        "the last byte is missing": wrong.whole - 1,
        "all rows are missing": PAGE,
        "half of the header is missing": PAGE // 2,
        "one byte too many": wrong.whole + 1,
        "one row too many": wrong.whole + wrong.stride,
    }
    found = {text: wrong.refused(length, [length, wrong.whole]) for text, length in lengths.items()}
    yield "another length than the header says: both in the message", found


def _wrong_sizes(wrong):
    refused, rows, stride = wrong.refused, wrong.rows, wrong.stride
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
