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

from course.engine.known_answers import alternative

NORESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000 if sys.platform == "linux" else 0)
MISTAKES = {
    "ReadIntoMemory": (
        "The rows are read into memory, where a large file has no room. Map the file with mmap.mmap.",
        ("mmap.mmap(file.fileno(), 0, flags=mmap.MAP_PRIVATE | NORESERVE)", "np.fromfile(path, np.uint8)"),
    ),
    "WritesIntoTheFile": (
        "Writing to a tensor changes the file, because the mapping is shared. Use mmap.MAP_PRIVATE.",
        ('"rb"', '"rb+"'),
        ("mmap.MAP_PRIVATE", "mmap.MAP_SHARED"),
    ),
    "OnlyToRead": (
        "The mapping may only be read, so writing into a tensor ends the process. Leave out prot, or let it be both.",
        ("| NORESERVE)", "| NORESERVE, prot=mmap.PROT_READ)"),
    ),
    "PaddingInX": (
        "x is all of the row but its last value: y and zeros are in it. Take the first D columns of table.",
        ("[:, : self.columns]", "[:, :-1]"),
    ),
    "LastOfTheRow": (
        "y is taken from the end of the row, where there may be zeros. It is column D of table.",
        ("[:, self.columns]", "[:, -1]"),
    ),
    "ContiguousX": (
        "x is made contiguous, which copies all of it. A view of table is enough.",
        ("[:, : self.columns]", "[:, : self.columns].contiguous()"),
    ),
}
FIELDS = ("format", "rows", "columns", "stride", "dtype", "seed")


def _stride(columns):
    return next((2**k for k in range(3, 13) if 2**k > 4 * columns), 4096 * (columns // 1024 + 1))


def _complain(path, condition, *words):
    if not condition:
        raise ValueError(" ".join(map(str, ("cannot read", path, *words))))


@alternative
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
            for key in FIELDS:
                _complain(path, key in header, "without", key)
            self.__dict__.update({key: header[key] for key in ("rows", "columns", "seed")})
            stride = _stride(self.columns)
            asked = dict(format="course-records-1", dtype="float32", stride=stride)
            for key in asked:
                _complain(path, header[key] == asked[key], key, header[key])
            _complain(path, length == 4096 + self.rows * stride, length, 4096 + self.rows * stride)
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
    with contextlib.suppress(ValueError, RecursionError):
        head = json.loads(head)
    if not isinstance(head, dict):
        raise ValueError(f"{path}: not a record file")
    lacking = set(FIELDS) - head.keys()
    if lacking:
        raise ValueError(f"{path}: header lacks {', '.join(sorted(lacking))}")
    stride = _stride(head["columns"])
    if (head["format"], head["dtype"], head["stride"]) != ("course-records-1", "float32", stride):
        raise ValueError(f"{path}: cannot read format {head['format']}, dtype {head['dtype']}, stride {head['stride']}")
    if found - 4096 != stride * head["rows"]:
        raise ValueError(f"{path}: found {found:,} bytes instead of {stride * head['rows'] + 4096:,}")
    return head


@alternative
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
