"""Probe of exercise Records."""

import faulthandler
import os
import re
import tempfile
import warnings
from pathlib import Path

import numpy as np
import torch

from course.checks.fast_loading.record_files import PAGE, STRIDES, header, make_records
from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.errors import error_name, raised


def _can_be_written(tensor):
    """True if the tensor can be written to; tried in a child process, because a read-only mapping
    kills it.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Python warns of a fork beside threads
        child = os.fork()
    if child == 0:
        try:
            faulthandler.disable()
            tensor.fill_(-7.0)
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitpid(child, 0)[1] == 0


class _File:
    """A record file of which the probe writes one version after the other.

    `fields` is the right header of a file with 6 rows of `stride` bytes, which has `whole` bytes.
    """

    rows = 6

    def __init__(self, answer, path, seed):
        self.answer, self.path, self.seed, self.columns = answer, path, seed, 4 + seed % 3
        self.rng = torch.Generator().manual_seed(seed)
        self.fields = header(self.rows, self.columns, seed)
        self.stride = self.fields["stride"]
        self.whole = PAGE + self.rows * self.stride

    def made(self, rows, columns):
        """Write a file of random rows; return what it holds."""
        table = torch.zeros(rows, STRIDES[columns] // 4)
        table[:, : columns + 1] = torch.rand(rows, columns + 1, generator=self.rng)
        make_records(self.path, header(rows, columns, self.seed), table.numpy())
        return table

    def write_at(self, place, values):
        """Write float32 `values` at a byte of the file."""
        with open(self.path, "rb+") as file:
            file.seek(place)
            file.write(np.asarray(values, "<f4").tobytes())

    def refused(self, length=None, says=(), lacks=None, **other):
        """What is raised where the header lacks a key or has `other` values."""
        fields = {key: value for key, value in (self.fields | other).items() if key != lacks}
        make_records(self.path, fields, length=self.whole if length is None else length)
        return self.refusal(*says)

    def refusal(self, *words):
        """What opening the file raises, and which of the words and the path its message lacks."""
        error = raised(self.answer, self.path)
        if not isinstance(error, ValueError):
            return type(error).__name__ if error else "no exception"
        message = re.sub(r"(?<=\d)[,_](?=\d{3})", "", str(error))
        lacks = [repr(word) for word in map(str, words) if word not in message]
        lacks += ["the path"] * (str(self.path) not in message)
        return f"a ValueError without {', '.join(lacks)}" if lacks else "a ValueError that says it"


@exercise(returns_no_number=True, calls_no_method=True)
def Records(answer: Answer, device: torch.device, seed: int) -> Facts:
    """Files of a few rows, one of 64 GB, and files that are no whole record files."""
    with tempfile.TemporaryDirectory() as temporary:
        file = _File(answer, Path(temporary).resolve() / "linear.rec", seed)
        if not (yield from _views_of_the_mapping(file)):
            return  # it would copy from 64 GB, below
        yield from _other_sizes(file)
        yield from _foreign_files(file)
        yield from _wrong_headers(file)
        yield from _wrong_lengths(file)


def _views_of_the_mapping(file):
    """Facts of a small file; returns whether nothing is copied."""
    file.made(5 + file.seed % 4, file.columns)
    content = file.path.read_bytes()
    records = file.answer(file.path)
    sizes = {
        "rows": records.rows,
        "columns": records.columns,
        "seed": records.seed,
        "len()": len(records),
    }
    yield "rows, columns, seed and len()", sizes
    tensors = {"table": records.table, "x": records.x, "y": records.y}
    kinds = {name: f"{type(tensor).__name__} of {tensor.dtype}" for name, tensor in tensors.items()}
    yield "table, x and y are tensors", kinds
    yield "their shape", {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    yield "table, as it is in the file", records.table
    yield "x", records.x
    yield "y", records.y
    starts = {
        name: tensor.data_ptr() - records.table.data_ptr() for name, tensor in tensors.items()
    }
    inside = {name: 0 <= start < records.table.nbytes for name, start in starts.items()}
    yield "x and y are views of table", inside
    file.write_at(PAGE, [-3])
    mapped = records.table[0, 0].item() == -3
    yield "nothing is copied: what is in the file now is in x", mapped
    if not mapped or not all(inside.values()):
        return False
    file.path.write_bytes(content)
    yield "can be written into", _can_be_written(records.table)
    yield "the file does not change by it", file.path.read_bytes() == content
    return True


def _other_sizes(file):
    refusals = {}
    for columns in (1, 3, 1023, 1024, 3071):
        table, records = file.made(1, columns), file.answer(str(file.path))
        right = torch.equal(records.x, table[:, :columns]) and torch.equal(
            records.y, table[:, columns]
        )
        refusals[f"{columns} columns"] = [tuple(records.table.shape), right]
    yield "one row, path as str: the shape of table, and whether x and y are right", refusals
    rows = 2**24
    # 64 GB of nothing
    make_records(file.path, header(rows, 1000, file.seed), length=PAGE + rows * 4096)
    file.write_at(PAGE + (rows - 1) * 4096, np.arange(1001))
    records = file.answer(file.path)
    last = [records.x[-1, -1].item(), records.y[-1].item(), records.y[-2].item()]
    yield "a file of 64 GB: len() and its last row", [len(records), *last]


def _foreign_files(file):
    file.path.unlink()
    yield "no file: FileNotFoundError", error_name(file.answer, file.path, none="NoneType")
    refusals = {}
    for text, head in {
        "nothing": b"",
        "a JPEG file": b"\xff\xd8\xff\xe0\x00\x10JFIF" + bytes(range(256)) * 40,
        "a list in JSON": b'["course-records-1", 6, 5]'.ljust(PAGE),
    }.items():
        make_records(file.path, None, head=head)
        refusals[text] = file.refusal()
    yield "a foreign file: ValueError with the path", refusals


def _wrong_headers(file):
    refused, stride = file.refused, file.stride
    lacking = {key: refused(lacks=key, says=[key]) for key in file.fields}
    yield "a header that lacks a key: the message says which", lacking
    others = {"format": "course-records-2", "dtype": "float64"}
    refusals = {key: refused(says=[key, value], **{key: value}) for key, value in others.items()}
    yield "another format or dtype: key and value in the message", refusals
    long = refused(PAGE + file.rows * 2 * stride, ["stride", 2 * stride], stride=2 * stride)
    yield "another stride than that of its columns: likewise", long


def _wrong_lengths(file):
    whole, stride = file.whole, file.stride
    lengths = {
        "the last row is missing": whole - stride,
        "the last byte is missing": whole - 1,
        "half of the header is missing": PAGE // 2,
        "one row too many": whole + stride,
    }
    refusals = {text: file.refused(length, [length, whole]) for text, length in lengths.items()}
    yield "another length than the header says: both in the message", refusals
