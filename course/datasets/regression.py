"""Data for a linear regression at any size: seed -> *prepare* -> X and y.

X and y are read like NumPy arrays, but are not in memory.

The data of FFCV's guide to large-scale linear regression (Leclerc et al. 2023): independent
variables uniform in [0, 1), true weights and intercept likewise, y = X w + b + normal noise. All of
it is drawn from the seed, chunk by chunk. Only y is stored: X is drawn where it is sliced, so the
record file that unit 04 makes of it is the only copy on the disk.
"""

import functools
import math
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from course.datasets import data_folder
from course.errors import CourseError
from course.system.files import atomic_write

# rename it when the numbers drawn change, and y is made again
FOLDER = "{rows}x{columns}-seed{seed}-drawn"
CHUNK_VALUES = 1 << 22  # drawn at a time: 16 MB
NOISE = 1.0  # standard deviation of the noise in y
RECORDS = "records"  # the record file that unit 04 writes next to y
SAID_FROM_BYTES = 10**9  # from which on a notebook says what it writes
FREE_SHARE = 0.2  # of the free disk that stays free
ROWS_STEP = 1000  # if there is no room for all rows, a multiple of this is made
ADVICE = (
    "Make room or get write permission there, choose another folder (COURSE_DATA), "
    "or ask for fewer rows."
)


@dataclass(frozen=True)
class Regression:
    """A regression problem in a folder.

    Its arrays are not in memory, so it is cheap to send to another process.
    """

    folder: Path
    rows: int
    columns: int
    seed: int
    b: float  # the true intercept

    @property
    def x(self) -> "DrawnRows":
        """float32 (rows, columns), a DrawnRows."""
        return DrawnRows(self.rows, self.columns, self.seed)

    @property
    def y(self) -> np.ndarray:
        """float32 array (rows,), read-only and memory-mapped."""
        return np.load(self.folder / "y.npy", mmap_mode="r")

    @property
    def w(self) -> np.ndarray:
        """float32 array (columns,), the true weights."""
        return _truth(self.columns, self.seed)[0]


class DrawnRows:
    """X of a regression problem: slices and single rows are drawn from the seed.

    `x[a:b]` is a float32 array (b - a, columns), `x[i]` one of (columns,).
    """

    dtype = np.dtype(np.float32)

    def __init__(self, rows: int, columns: int, seed: int):
        self.shape = (rows, columns)
        self.seed = seed

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, index: int | slice) -> np.ndarray:
        rows, columns = self.shape
        if not isinstance(index, slice):
            row = range(rows)[index]
            return self[row : row + 1][0]
        first, last, step = index.indices(rows)
        if step != 1:
            raise CourseError(
                f"asked for X with step {step}, but X is drawn in runs of rows; slice it as x[a:b]."
            )
        values = np.empty((max(0, last - first), columns), np.float32)
        chunk_rows = _chunk_rows(columns)
        for number in range(first // chunk_rows, -(-last // chunk_rows)):
            begin = number * chunk_rows  # the first row of the chunk
            drawn = _drawn(self.seed, number, min(chunk_rows, rows - begin), columns)
            start = max(first, begin)
            end = min(last, begin + chunk_rows)
            values[start - first : end - first] = drawn[start - begin : end - begin]
        return values

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return self[:].astype(dtype or self.dtype, copy=False)


@functools.lru_cache(maxsize=1)
def _drawn(seed, number, rows, columns):
    """The first `rows` rows of chunk `number` of X.

    The last one drawn is kept: 16 MB, or a row if that is more.
    """
    return _stream(seed, 1 + number).random((rows, columns), dtype=np.float32)


def _stream(seed, number):
    """The generator of the truth (number 0), or of a chunk of rows and its noise (from 1)."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=(number,))))


def _truth(columns, seed):
    """(w, b): the true weights, float32 (columns,), and the intercept."""
    rng = _stream(seed, 0)
    return rng.random(columns, dtype=np.float32), float(rng.random(dtype=np.float32))


def prepare(rows: int, columns: int, seed: int = 0, data: str | Path | None = None) -> Regression:
    """The Regression of `rows` by `columns`, or of fewer rows if the disk is too small.

    Says before anything is written how much it will be in the end, if that is more than a gigabyte,
    the record file of unit 04 included; it is also the peak, because nothing is stored twice. A
    fifth of the free disk stays free.

    Args:
        data: the data folder; default COURSE_DATA, else `data/` next to the package.

    X, w and b are bit-identical on every machine, y is except for rounding. Making y shows a
    progress bar.

    Raises: CourseError for an impossible size, or a disk that has no room for a thousand rows or
        cannot be written.
    """
    if rows < 1 or columns < 1 or seed < 0:
        wanted = f"{rows} rows, {columns} columns and seed {seed}"
        raise CourseError(
            f"asked for {wanted}; there must be at least 1 row and 1 column, and no seed below 0."
        )
    parent = data_folder(data) / "regression"
    if not (_folder(parent, rows, columns, seed) / RECORDS).exists():
        rows = _rows_that_fit(parent, rows, columns, seed)
    w, b = _truth(columns, seed)
    made = Regression(_folder(parent, rows, columns, seed), rows, columns, seed, b)
    if not _is_whole(made):
        y = _labels(rows, columns, seed, w, b)
        with atomic_write(made.folder / "y.npy", ADVICE) as out:
            np.save(out, y)
    return made


def _folder(parent, rows, columns, seed):
    return parent / FOLDER.format(rows=rows, columns=columns, seed=seed)


def _is_whole(made):
    """True if y is stored, one number per row."""
    try:
        return made.y.shape == (made.rows,)
    except (OSError, EOFError, ValueError):  # none, not .npy, or shorter than its header says
        return False


def _labels(rows, columns, seed, w, b):
    """y: float32 (rows,)."""
    y = np.empty(rows, np.float32)
    chunk_rows = _chunk_rows(columns)
    x_bytes = 4 * rows * columns
    with tqdm(total=x_bytes, file=sys.stdout, unit="B", unit_scale=True, leave=False) as bar:
        for number, first in enumerate(range(0, rows, chunk_rows)):
            rng = _stream(seed, 1 + number)
            part = y[first : first + chunk_rows]
            x = rng.random((len(part), columns), dtype=np.float32)
            noise = NOISE * rng.standard_normal(len(part), dtype=np.float32)
            part[:] = x @ w + np.float32(b) + noise
            bar.update(x.nbytes)
    return y


def _chunk_rows(columns):
    """Rows drawn at a time."""
    return max(1, CHUNK_VALUES // columns)


def _rows_that_fit(parent, rows, columns, seed):
    """`rows`, or fewer, as the disk has room; prints what will be written.  Raises: CourseError."""
    parent = parent.absolute()
    there = next(folder for folder in (parent, *parent.parents) if folder.exists())
    free = shutil.disk_usage(there).free
    usable = (1 - FREE_SHARE) * free
    free_gb = free / 1e9
    peak = record_bytes(rows, columns)
    if peak <= usable:
        if peak > SAID_FROM_BYTES:
            size = f"one file of {peak / 1e9:.1f} GB, nothing twice"
            print(f"{parent} gets {size}; {free_gb:.1f} GB are free.")
        return rows
    step_bytes = record_bytes(ROWS_STEP, columns)
    fewer = math.floor(usable / step_bytes) * ROWS_STEP
    for made in _rows_made(parent, columns, seed):
        if made < rows:
            fewer = max(fewer, made)
    if fewer < min(rows, ROWS_STEP):
        raise CourseError(
            f"{ROWS_STEP:,} rows take {step_bytes / 1e9:.2f} GB in {parent}, "
            f"where {free_gb:.2f} GB are free. {ADVICE}"
        )
    taken = f"{rows:,} rows take {peak / 1e9:.1f} GB"
    print(f"{taken}, {free_gb:.1f} GB are free: here are {fewer:,} rows.")
    return fewer


def _rows_made(parent, columns, seed):
    """The numbers of rows for which `parent` has a record file."""
    pattern = FOLDER.format(rows="*", columns=columns, seed=seed)
    records = parent.glob(f"{pattern}/{RECORDS}")
    return [int(path.parent.name.split("x")[0]) for path in records]


def record_bytes(rows: int, columns: int) -> int:
    """Bytes that a regression problem takes in the end: its record file, and y."""
    row = 4 * (columns + 1)
    if row < 4096:
        record = 2 ** math.ceil(math.log2(row))
    else:
        record = math.ceil(row / 4096) * 4096
    return 4096 + rows * (record + 4)
