"""A record file: rows of equal size on the disk, opened without being read.

The first 4,096 bytes are a header in JSON. Row i begins at byte 4096 + i * stride: its values x,
its value y, and zeros up to the stride, all little-endian float32. A row of up to 4,096 bytes has
the next power of two as its stride, so that none lies in two memory pages; a longer one takes whole
memory pages.
"""

import json
import mmap
import os
import sys
from pathlib import Path
from typing import BinaryIO

import numpy as np
import torch

from course.datasets.regression import Regression

HEADER = 4096  # bytes before the first row, and bytes of a memory page
CHUNK = 1 << 24  # bytes of rows that are written at a time
FORMAT = "course-records-1"
# Python has it from 3.13 on. Without it, Linux may refuse a private mapping larger than memory.
NORESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000 if sys.platform == "linux" else 0)


def row_stride(columns: int) -> int:
    """Bytes from one row to the next, for `columns` values x and one value y."""
    row = 4 * (columns + 1)
    if row <= HEADER:
        return 1 << (row - 1).bit_length()
    return -(-row // HEADER) * HEADER


def write_records(path: Path | str, source: Regression) -> Path:
    """Write the record file of `source`, whole or not at all; return its path.

    A file that is there is replaced when the new one is whole. `source` has rows, columns, seed,
    and x and y to slice.
    """
    path = Path(path)
    stride = row_stride(source.columns)
    header = {"format": FORMAT, "rows": source.rows, "columns": source.columns, "stride": stride}
    header |= {"dtype": "float32", "seed": source.seed}
    temporary = path.with_name(f".{path.name}.{os.getpid()}")  # same folder: a rename is enough
    try:
        with open(temporary, "wb") as file:
            file.write(json.dumps(header).encode().ljust(HEADER - 1) + b"\n")
            _write_rows(file, source, stride)
            file.flush()
            os.fsync(file.fileno())  # else a power cut could leave the name without the rows
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    return path


def _write_rows(file: BinaryIO, source: Regression, stride: int) -> None:
    """Append all rows of `source`, CHUNK bytes or one row at a time."""
    step = max(1, CHUNK // stride)
    for start in range(0, source.rows, step):
        end = min(start + step, source.rows)
        values = np.zeros((end - start, stride // 4), "<f4")
        values[:, : source.columns] = source.x[start:end]
        values[:, source.columns] = source.y[start:end]
        file.write(values)


class Records:
    """A record file as tensors, mapped and not read.

    Args:
        path: of the file.

    `rows`, `columns` and `seed` are ints. `table` is a float32 tensor (rows, stride // 4) on the
    mapped file; `x` (rows, columns) and `y` (rows,) are views of it. Writing into them does not
    change the file.

    Raises: FileNotFoundError if there is no file; ValueError if it is not a whole record file.
    """

    def __init__(self, path: Path | str):
        with open(path, "rb") as file:
            header = _checked_header(path, file)
            mapping = mmap.mmap(file.fileno(), 0, flags=mmap.MAP_PRIVATE | NORESERVE)
        self.rows = header["rows"]
        self.columns = header["columns"]
        self.seed = header["seed"]
        floats = torch.frombuffer(mapping, dtype=torch.float32, offset=HEADER)
        self.table = floats.view(self.rows, -1)
        self.x = self.table[:, : self.columns]
        self.y = self.table[:, self.columns]

    def __len__(self) -> int:
        """The number of rows."""
        return self.rows


def _checked_header(path: Path | str, file: BinaryIO) -> dict:
    """The header of a file whose length fits it.

    Raises: ValueError that says what is wrong.
    """
    try:
        header = json.loads(file.read(HEADER))
        stride = row_stride(header["columns"])
        whole = HEADER + header["rows"] * stride
        expected = {"format": FORMAT, "dtype": "float32", "stride": stride}
        wrong = {key: header[key] for key in expected if header[key] != expected[key]}
        header["seed"]  # noqa: B018  (a KeyError if there is none)
    except KeyError as error:
        raise ValueError(f"the header of {path} has no key {error}.") from None
    except (ValueError, TypeError):  # not JSON, or not in braces
        raise ValueError(f"{path} is not a record file: its header is not JSON.") from None
    if wrong:
        raise ValueError(f"the header of {path} says {wrong}; expected {expected}.")
    size = os.fstat(file.fileno()).st_size
    if size != whole:
        raise ValueError(f"{path} has {size} bytes, its header asks for {whole}; write it again.")
    return header
