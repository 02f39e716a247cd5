"""Probe of exercise Records."""

import faulthandler
import os
import re
import tempfile
import warnings
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from course.checks.fast_loading.record_files import PAGE_BYTES, STRIDES, header, make_records
from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.errors import error_name, raised


def _can_be_written(tensor: torch.Tensor) -> bool:
    """True if the tensor can be written to.

    Tried in a child process, because a read-only mapping kills it.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Python warns of a fork while threads run
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

    def __init__(self, answer: Answer, path: Path, seed: int) -> None:
        self.answer = answer
        self.path = path
        self.seed = seed
        self.columns = 4 + seed % 3
        self.rng = torch.Generator().manual_seed(seed)
        self.fields = header(self.rows, self.columns, seed)
        self.stride = self.fields["stride"]
        self.whole = PAGE_BYTES + self.rows * self.stride

    def made(self, rows: int, columns: int) -> torch.Tensor:
        """Write a file of random rows; return what it holds."""
        table = torch.zeros(rows, STRIDES[columns] // 4)
        table[:, : columns + 1] = torch.rand(rows, columns + 1, generator=self.rng)
        make_records(self.path, header(rows, columns, self.seed), table.numpy())
        return table

    def write_at(self, offset: int, values: Sequence[float] | np.ndarray) -> None:
        """Write float32 `values` from this byte of the file on."""
        with open(self.path, "rb+") as file:
            file.seek(offset)
            file.write(np.asarray(values, "<f4").tobytes())

    def refused(
        self,
        length: int | None = None,
        says: Sequence[Any] = (),
        lacks: str | None = None,
        **other: Any,
    ) -> str:
        """What is raised where the header lacks a key or has `other` values; see `refusal`."""
        fields = self.fields | other
        fields.pop(lacks, None)
        make_records(self.path, fields, length=self.whole if length is None else length)
        return self.refusal(*says)

    def refusal(self, *words: Any) -> str:
        """What opening the file raises, and which of the words and the path its message lacks."""
        error = raised(self.answer, self.path)
        if error is None:
            return "no exception"
        if not isinstance(error, ValueError):
            return type(error).__name__
        message = re.sub(r"(?<=\d)[,_](?=\d{3})", "", str(error))
        lacks = [repr(word) for word in map(str, words) if word not in message]
        if str(self.path) not in message:
            lacks.append("the path")
        return f"a ValueError without {', '.join(lacks)}" if lacks else "a ValueError that says it"


@exercise(returns_no_number=True, calls_no_method=True)
def Records(answer: Answer, device: torch.device, seed: int) -> Facts:
    """Facts of files of a few rows, of one of 64 GB, and of incomplete or foreign files."""
    with tempfile.TemporaryDirectory() as temporary:
        file = _File(answer, Path(temporary).resolve() / "linear.rec", seed)
        is_mapped = yield from _views_of_the_mapping(file)
        if not is_mapped:
            return  # it would copy from 64 GB, below
        yield from _other_sizes(file)
        yield from _foreign_files(file)
        yield from _wrong_headers(file)
        yield from _wrong_lengths(file)


def _views_of_the_mapping(file: _File) -> Generator[tuple[str, object], None, bool]:
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
    kinds = {}
    for name, tensor in tensors.items():
        kinds[name] = f"{type(tensor).__name__} of {tensor.dtype}"
    yield "table, x and y are tensors", kinds
    yield "their shape", {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    yield "table, as it is in the file", records.table
    yield "x", records.x
    yield "y", records.y
    inside = {}
    for name, tensor in tensors.items():
        start = tensor.data_ptr() - records.table.data_ptr()
        inside[name] = 0 <= start < records.table.nbytes
    yield "x and y are views of table", inside
    file.write_at(PAGE_BYTES, [-3])
    is_mapped = records.table[0, 0].item() == -3
    yield "nothing is copied: what is in the file now is in x", is_mapped
    if not is_mapped or not all(inside.values()):
        return False
    file.path.write_bytes(content)
    yield "can be written into", _can_be_written(records.table)
    yield "the file does not change by it", file.path.read_bytes() == content
    return True


def _other_sizes(file: _File) -> Facts:
    found = {}
    for columns in (1, 3, 1023, 1024, 3071):
        table = file.made(1, columns)
        records = file.answer(str(file.path))
        x_is_right = torch.equal(records.x, table[:, :columns])
        is_right = x_is_right and torch.equal(records.y, table[:, columns])
        found[f"{columns} columns"] = [tuple(records.table.shape), is_right]
    yield "one row, path as str: the shape of table, and whether x and y are right", found
    rows = 2**24
    # 64 GB of nothing
    make_records(file.path, header(rows, 1000, file.seed), length=PAGE_BYTES + rows * 4096)
    file.write_at(PAGE_BYTES + (rows - 1) * 4096, np.arange(1001))
    records = file.answer(file.path)
    last = [records.x[-1, -1].item(), records.y[-1].item(), records.y[-2].item()]
    yield "a file of 64 GB: len() and its last row", [len(records), *last]


def _foreign_files(file: _File) -> Facts:
    file.path.unlink()
    yield "no file: FileNotFoundError", error_name(file.answer, file.path, none="NoneType")
    contents = {
        "nothing": b"",
        "a JPEG file": b"\xff\xd8\xff\xe0\x00\x10JFIF" + bytes(range(256)) * 40,
        "a list in JSON": b'["course-records-1", 6, 5]'.ljust(PAGE_BYTES),
    }
    refusals = {}
    for text, head in contents.items():
        make_records(file.path, None, head=head)
        refusals[text] = file.refusal()
    yield "a foreign file: ValueError with the path", refusals


def _wrong_headers(file: _File) -> Facts:
    lacking = {key: file.refused(lacks=key, says=[key]) for key in file.fields}
    yield "a header that lacks a key: the message says which", lacking
    refusals = {
        "format": file.refused(says=["format", "course-records-2"], format="course-records-2"),
        "dtype": file.refused(says=["dtype", "float64"], dtype="float64"),
    }
    yield "another format or dtype: key and value in the message", refusals
    double = 2 * file.stride
    length = PAGE_BYTES + file.rows * double
    refusal = file.refused(length, says=["stride", double], stride=double)
    yield "another stride than that of its columns: likewise", refusal


def _wrong_lengths(file: _File) -> Facts:
    lengths = {
        "the last row is missing": file.whole - file.stride,
        "the last byte is missing": file.whole - 1,
        "half of the header is missing": PAGE_BYTES // 2,
        "one row too many": file.whole + file.stride,
    }
    refusals = {}
    for text, length in lengths.items():
        refusals[text] = file.refused(length, says=[length, file.whole])
    yield "another length than the header says: both in the message", refusals
