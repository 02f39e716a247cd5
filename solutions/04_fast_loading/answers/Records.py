"""Known mistakes of exercise Records, and right answers in other styles."""

import contextlib
import ctypes
import json
import mmap
import os
import sys
from pathlib import Path

import numpy as np
import torch

from course.checks.engine import alternative, mistake

NORESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000 if sys.platform == "linux" else 0)


def _stride(columns):
    row = 4 * (columns + 1)
    return 1 << (row - 1).bit_length() if row <= 4096 else -(-row // 4096) * 4096


class _Reader:
    """A right reader in pieces, so that each mistake can spoil one of them."""

    def __init__(self, path):
        self.path, self.size = path, os.path.getsize(path)
        header = self.header()
        self.check(header)
        self.rows, self.columns, self.seed = header["rows"], header["columns"], header["seed"]
        self.table = self.mapped().view(self.rows, -1)
        self.x, self.y = self.parts()

    def header(self):
        with open(self.path, "rb") as file:
            head = file.read(4096)
        try:
            header = json.loads(head)
        except (ValueError, RecursionError):
            raise ValueError(f"{self.path} is no record file") from None
        if not isinstance(header, dict):
            raise ValueError(f"{self.path} is no record file")
        self.newline = head.endswith(b"\n")
        return header

    def check(self, header):
        for key in ("format", "rows", "columns", "stride", "dtype", "seed"):
            if key not in header:
                raise ValueError(f"{self.path}: {key} is missing")
        for key in ("rows", "columns", "seed", "stride"):
            if type(header[key]) is not int:
                raise ValueError(f"{self.path}: {key} {header[key]}")
        if header["rows"] < 1 or header["columns"] < 1 or header["seed"] < 0:
            raise ValueError(f"{self.path}: nothing in it")
        self.check_format(header)
        if header["dtype"] != "float32" or header["stride"] != _stride(header["columns"]):
            raise ValueError(f"{self.path}: dtype {header['dtype']}, stride {header['stride']}")
        self.check_length(4096 + header["rows"] * header["stride"])
        if not self.newline:
            raise ValueError(f"{self.path}: the header does not end with a newline")

    def check_format(self, header):
        if header["format"] != "course-records-1":
            raise ValueError(f"{self.path}: format {header['format']}")

    def check_length(self, asked):
        if self.size != asked:
            raise ValueError(f"{self.path}: {self.size} bytes, expected {asked}")

    def mapped(self):
        with open(self.path, "rb") as file:
            way = {"flags": mmap.MAP_PRIVATE | NORESERVE, "prot": mmap.PROT_READ | mmap.PROT_WRITE}
            return torch.frombuffer(mmap.mmap(file.fileno(), 0, **way), dtype=torch.float32, offset=4096)

    def parts(self):
        return self.table[:, : self.columns], self.table[:, self.columns]

    def __len__(self):
        return self.rows


@mistake("Records", "The rows are read into memory, where a large file has no room. Map the file with mmap.mmap.")
class ReadIntoMemory(_Reader):
    def mapped(self):
        return torch.from_numpy(np.fromfile(self.path, np.float32, offset=4096))


@mistake(
    "Records",
    "Who writes into a tensor changes the file: the mapping is shared. Take mmap.MAP_PRIVATE.",
)
class WritesIntoTheFile(_Reader):
    def mapped(self):
        with open(self.path, "rb+") as file:
            mapping = mmap.mmap(file.fileno(), 0, flags=mmap.MAP_SHARED | NORESERVE)
        return torch.frombuffer(mapping, dtype=torch.float32, offset=4096)


@mistake(
    "Records",
    "The mapping may only be read, so writing into a tensor ends the process. Leave out prot, or let it be both.",
)
class OnlyToRead(_Reader):
    def mapped(self):
        with open(self.path, "rb") as file:
            mapping = mmap.mmap(file.fileno(), 0, flags=mmap.MAP_PRIVATE | NORESERVE, prot=mmap.PROT_READ)
        address = np.frombuffer(mapping, np.float32, offset=4096)
        self.mapping = mapping
        return torch.from_dlpack(_Unflagged(address))


class _Unflagged:
    """An array that does not say that it is read-only, as torch.from_numpy takes it, without the warning."""

    def __init__(self, array):
        self.array = array

    def __dlpack_device__(self):
        return 1, 0

    def __dlpack__(self, **_):
        fields = dict(self.array.__array_interface__, data=(self.array.ctypes.data, False))
        return np.asarray(type("Fields", (), {"__array_interface__": fields})()).__dlpack__()


@mistake("Records", "x is all of the row but its last value: y and zeros are in it. Take the first D columns of table.")
class PaddingInX(_Reader):
    def parts(self):
        return self.table[:, :-1], self.table[:, self.columns]


@mistake("Records", "y is taken from the end of the row, where zeros may stand. It is column D of table.")
class LastOfTheRow(_Reader):
    def parts(self):
        return self.table[:, : self.columns], self.table[:, -1]


@mistake("Records", "x is made contiguous, which copies all of it. A view of table is enough.")
class ContiguousX(_Reader):
    def parts(self):
        return self.table[:, : self.columns].contiguous(), self.table[:, self.columns]


@mistake("Records", "A file that is longer than its header says is taken. Compare the lengths with !=.")
class LongerIsFine(_Reader):
    def check_length(self, asked):
        if self.size < asked:
            raise ValueError(f"{self.path}: {self.size} bytes, expected {asked}")

    def mapped(self):
        return super().mapped()[: self.rows * _stride(self.columns) // 4]

    def __init__(self, path):
        with open(path, "rb") as file:  # `mapped` needs them before the table is there
            with_head = file.read(4096)
        try:
            self.rows, self.columns = (json.loads(with_head)[key] for key in ("rows", "columns"))
        except (ValueError, KeyError, TypeError):
            self.rows = self.columns = 0
        super().__init__(path)


@mistake("Records", "A file of another format is read as if it were this one. Compare format with course-records-1.")
class AnyFormat(_Reader):
    def check_format(self, header):
        pass


@mistake(
    "Records",
    "What is no JSON gives the error of json.loads, which does not say of which file. Catch it, and name the path.",
)
class NamelessError(_Reader):
    def header(self):
        with open(self.path, "rb") as file:
            head = file.read(4096)
        header = json.loads(head)
        if not isinstance(header, dict):
            raise ValueError(f"{self.path} is no record file")
        self.newline = head.endswith(b"\n")
        return header


@mistake("Records", "A key that the header lacks gives a KeyError. Make a ValueError of it, with the path and the key.")
class KeyErrorComesOut(_Reader):
    def check(self, header):
        for key in ("format", "rows", "columns", "stride", "dtype", "seed"):
            header[key]
        super().check(header)


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


def _complain(path, condition, *words):
    if not condition:
        raise ValueError(" ".join(map(str, ("cannot read", path, *words))))


@alternative("Records")
class ArrayOnTheMapping:
    def __init__(self, path):
        self.file = Path(path)
        with self.file.open("rb") as file:
            content = file.read(4096)
            length = file.seek(0, os.SEEK_END)
            try:
                header = json.loads(content.decode("ascii"))
            except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
                raise ValueError(f"{path}: {error}") from error
            _complain(path, isinstance(header, dict), "no object")
            for key, kind in FIELDS.items():
                _complain(path, key in header, "without", key)
                _complain(path, type(header[key]) is kind, key, header[key])
            self.__dict__.update({key: header[key] for key in ("rows", "columns", "seed")})
            _complain(path, self.rows > 0 and self.columns > 0, "rows, columns", self.rows, self.columns)
            _complain(path, self.seed >= 0, "seed", self.seed)
            stride = the_first_of_all_that_divide(self.columns)
            asked = dict(format="course-records-1", dtype="float32", stride=stride)
            for key in asked:
                _complain(path, header[key] == asked[key], key, header[key])
            _complain(path, length == 4096 + self.rows * stride, length, 4096 + self.rows * stride)
            _complain(path, content[-1:] == b"\n", "no newline after the header")
            protection = mmap.PROT_WRITE | mmap.PROT_READ
            buffer = mmap.mmap(file.fileno(), length, mmap.MAP_PRIVATE | NORESERVE, protection)
        array = np.ndarray((self.rows, stride // 4), np.float32, buffer, 4096)
        self.table, self.x, self.y = map(torch.from_numpy, (array, array[:, : self.columns], array[:, self.columns]))

    def __len__(self):
        return len(self.table)


def _described(path):
    """The header of the file, if the file is what it says."""
    with open(path, "rb") as file:
        head = file.read(4096)
    found = os.stat(path).st_size
    last = head[4095:]
    with contextlib.suppress(ValueError, RecursionError):
        head = json.loads(head)
    if not isinstance(head, dict):
        raise ValueError(f"{path}: not a record file")
    lacking = FIELDS.keys() - head.keys()
    if lacking:
        raise ValueError(f"{path}: header lacks {', '.join(sorted(lacking))}")
    strange = [key for key in FIELDS if type(head[key]) is not FIELDS[key]]
    if strange or min(head["rows"], head["columns"], head["seed"] + 1) < 1:
        raise ValueError(f"{path}: strange header {head}")
    stride = doubled_until_it_fits(head["columns"])
    if (head["format"], head["dtype"], head["stride"]) != ("course-records-1", "float32", stride):
        raise ValueError(f"{path}: cannot read format {head['format']}, dtype {head['dtype']}, stride {head['stride']}")
    if found - 4096 != stride * head["rows"]:
        raise ValueError(f"{path}: found {found:,} bytes instead of {stride * head['rows'] + 4096:,}")
    if last != b"\n":
        raise ValueError(f"{path}: the header ends with {last!r}")
    return head


@alternative("Records")
class PropertiesOfATable:
    seed = property(lambda self: self._head["seed"])
    rows = property(lambda self: self.table.shape[0])
    columns = property(lambda self: self._head["columns"])
    x = property(lambda self: self.table.narrow(1, 0, self.columns))
    y = property(lambda self: self.table.select(1, self.columns))

    def __init__(self, path):
        self._head = _described(path)
        with open(path, "r+b") as file:
            options = {"flags": NORESERVE | mmap.MAP_PRIVATE}
            self._memory = mmap.mmap(file.fileno(), 0, **options)
        values = (ctypes.c_float * (len(self._memory) // 4)).from_buffer(self._memory)
        shape = self._head["rows"], self._head["stride"] // 4
        self.table = torch.frombuffer(values, dtype=torch.float32)[1024:].unflatten(0, shape)

    def __len__(self):
        return self.rows
