"""Data for a linear regression at any size: seed -> *load* -> X, y on disk, read as NumPy arrays without loading them.

The data of FFCV's guide to large-scale linear regression (Leclerc et al. 2023): independent variables uniform in
[0, 1), true weights and intercept likewise, y = X w + b + normal noise.  All of it is drawn from the seed, chunk by
chunk, so making 40 GB takes no more memory than making 4 MB.

`load` stores X.  `prepare`, which the notebooks call, does not: X is drawn where it is sliced, so that the record file
which unit 04 makes of it is the only copy on the disk.
"""

import contextlib
import functools
import json
import math
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tqdm import tqdm

from course.datasets import data_folder
from course.errors import CourseError
from course.system.files import atomic_folder

VERSION = 1  # of the generator: change it when the numbers drawn change, and stored data is made again
CHUNK = 1 << 22  # values drawn at a time: 16 MB
NOISE = 1.0  # standard deviation of the noise in y
HEADER, FILES = "header.json", ("x.npy", "y.npy", "w.npy")
RECORDS = "records"  # the record file that unit 04 writes beside these
TOLD, KEPT_FREE = 10**9, 0.2  # bytes from which on a notebook says what it writes; share of the disk that it leaves
ADVICE = "Make room or get write permission there, choose another folder (COURSE_DATA), or ask for fewer rows."


@dataclass(frozen=True)
class Regression:
    """A regression problem in a folder.  The arrays stay on disk, so it is cheap to send to another process."""

    folder: Path
    rows: int
    columns: int
    seed: int
    b: float  # the true intercept
    drawn: bool = False  # X is not stored, but drawn where it is sliced

    @property
    def x(self):
        """float32 array (rows, columns), read-only and memory-mapped; a DrawnRows where X is not stored."""
        if self.drawn:
            return DrawnRows(self.rows, self.columns, self.seed)
        return np.load(self.folder / "x.npy", mmap_mode="r")

    @property
    def y(self):
        """float32 array (rows,), read-only and memory-mapped."""
        return np.load(self.folder / "y.npy", mmap_mode="r")

    @property
    def w(self):
        """float32 array (columns,), the true weights."""
        return np.load(self.folder / "w.npy")

    @property
    def nbytes(self):
        """Bytes of X and y."""
        return 4 * self.rows * (self.columns + 1)


class DrawnRows:
    """X of a regression problem that is stored nowhere: slices and single rows are drawn from the seed.

    `x[a:b]` is a float32 array (b - a, columns), `x[i]` one of (columns,); what is drawn equals what `load` stores.
    """

    dtype = np.dtype(np.float32)

    def __init__(self, rows: int, columns: int, seed: int):
        self.shape, self.seed = (rows, columns), seed

    def __len__(self):
        return self.shape[0]

    def __getitem__(self, index):
        rows, columns = self.shape
        if not isinstance(index, slice):
            place = range(rows)[index]
            return self[place : place + 1][0]
        first, last, step = index.indices(rows)
        if step != 1:
            raise CourseError(f"asked for every row number {step} of X; it is drawn in runs: slice it as x[a:b].")
        values, chunk = np.empty((max(0, last - first), columns), np.float32), _chunk(columns)
        for number in range(first // chunk, -(-last // chunk)):
            start, end = max(first, number * chunk), min(last, (number + 1) * chunk)
            drawn = _drawn(self.seed, number, min(chunk, rows - number * chunk), columns)
            values[start - first : end - first] = drawn[start - number * chunk : end - number * chunk]
        return values

    def __array__(self, dtype=None, copy=None):
        return self[:].astype(dtype or self.dtype, copy=False)


@functools.lru_cache(maxsize=1)
def _drawn(seed, number, rows, columns):
    """The first `rows` rows of chunk `number` of X; the last one drawn is kept, 16 MB, or a row if that is more."""
    return np.random.Generator(np.random.PCG64(_stream(seed, 1 + number))).random((rows, columns), dtype=np.float32)


def _stream(seed, number):
    """The seed of what is drawn for the truth (number 0), and for each chunk of rows."""
    return np.random.SeedSequence(seed, spawn_key=(number,))


def prepare(rows: int, columns: int, seed: int = 0, data: str | Path | None = None) -> Regression:
    """The Regression of `rows` by `columns` with X drawn, or of fewer rows where the disk has no room for its file.

    Says before anything is written how much it will be in the end, if that is more than a gigabyte, the record file of
    unit 04 included; it is also the peak, for nothing is stored twice.  A fifth of the free disk stays free.

    Args:
        data: as in `load`.

    Raises: CourseError as `load` does, and if the disk has no room for a thousand rows.
    """
    parent = data_folder(data) / "regression"
    folder = _folder(parent, rows, columns, seed)
    if not (folder / RECORDS).exists():
        rows = _rows_that_fit(parent, rows, columns, seed)
    return load(rows, columns, seed, data, drawn=True)


def _rows_that_fit(parent, rows, columns, seed):
    """`rows`, or fewer, as the disk has room; prints what will be written.  Raises: CourseError."""
    parent = parent.absolute()
    free = shutil.disk_usage(next(there for there in (parent, *parent.parents) if there.exists())).free
    peak = record_bytes(rows, columns)
    if peak <= (1 - KEPT_FREE) * free:
        if peak > TOLD:
            print(f"{parent} gets one file of {peak / 1e9:.1f} GB, nothing twice; {free / 1e9:.1f} GB are free.")
        return rows
    named = [path.parent.name for path in parent.glob(f"*x{columns}-seed{seed}-drawn/{RECORDS}")]
    made = max((n for n in (int(name.split("x")[0]) for name in named) if n < rows), default=0)
    most = math.floor((1 - KEPT_FREE) * free / record_bytes(1000, columns)) * 1000
    if max(most, made) < min(rows, 1000):
        raise CourseError(f"1,000 rows take {record_bytes(1000, columns) / 1e9:.2f} GB in {parent}, where "
                          f"{free / 1e9:.2f} GB are free. {ADVICE}")  # fmt: skip
    fewer = max(made, most)
    more = "" if made >= most else f", {record_bytes(fewer, columns) / 1e9:.1f} GB"
    print(f"{rows:,} rows take {peak / 1e9:.1f} GB, {free / 1e9:.1f} GB are free: here are {fewer:,} rows{more}.")
    return fewer


def load(rows: int, columns: int, seed: int = 0, data: str | Path | None = None, drawn: bool = False) -> Regression:
    """The Regression of `rows` by `columns` for `seed`, made if it does not exist yet.

    Args:
        data: the data folder; default COURSE_DATA, else `data/` beside the package.
        drawn: X is not stored, but drawn where it is sliced.

    X, w and b are bit-identical on every machine, y is except for rounding.  Making them shows a progress bar and takes
    about 60 MB of memory at any size.
    Raises: CourseError for an impossible size, damaged files, or a disk that is too small.
    """
    if rows < 1 or columns < 1 or seed < 0:
        asked = f"{rows} rows, {columns} columns and seed {seed}"
        raise CourseError(f"asked for {asked}; there must be at least 1 row and 1 column, and no seed below 0.")
    folder = _folder(data_folder(data) / "regression", rows, columns, seed, drawn)
    stored = _stored(folder, rows, columns, seed, drawn)
    if stored is None:
        _check_room(folder, 4 * rows * (1 if drawn else columns + 1))
        with atomic_folder(folder, ADVICE, keep=lambda: _stored(folder, rows, columns, seed, drawn) is not None) as new:
            _make(new, rows, columns, seed, drawn)
        stored = _stored(folder, rows, columns, seed, drawn)
    return stored


def _folder(parent, rows, columns, seed, drawn=True):
    return parent / f"{rows}x{columns}-seed{seed}{'-drawn' * drawn}"


def _stored(folder, rows, columns, seed, drawn):
    """The Regression in `folder`; None if there is none, or if an older generator made it."""
    try:
        header = json.loads((folder / HEADER).read_text())
        if header["version"] != VERSION:
            return None
        found = Regression(folder, rows, columns, seed, header["b"], drawn)
        shapes = found.x.shape, found.y.shape, found.w.shape
    except FileNotFoundError:
        if not folder.exists():
            return None
        shapes = "a file is missing"
    except (OSError, EOFError, ValueError, KeyError, TypeError):  # not JSON, not .npy, or shorter than its header says
        shapes = "a file cannot be read"
    if shapes != ((rows, columns), (rows,), (columns,)):
        what = shapes if isinstance(shapes, str) else f"X, y and w have the shapes {shapes}"
        raise CourseError(f"{folder} is damaged: {what}. Remove that folder; it is made again.")
    return found


def record_bytes(rows: int, columns: int) -> int:
    """Bytes that a regression problem takes in the end: its record file, and y and w."""
    row = 4 * (columns + 1)
    place = 2 ** math.ceil(math.log2(row)) if row < 4096 else math.ceil(row / 4096) * 4096
    return 4096 + rows * (place + 4) + 4 * columns


def _check_room(folder, nbytes):
    """Raise a CourseError unless the disk of `folder` has room for `nbytes`."""
    there = next(parent for parent in folder.absolute().parents if parent.exists())
    free = shutil.disk_usage(there).free
    if free < nbytes:
        raise CourseError(f"{folder} takes {nbytes / 1e9:.1f} GB, {free / 1e9:.1f} GB are free. {ADVICE}")


def _make(folder, rows, columns, seed, drawn):
    """Draw the problem and write its files into `folder`, X only if it is not to be drawn."""
    streams = [_stream(seed, 1 + number) for number in range(-(-rows // _chunk(columns)))]
    rng = np.random.Generator(np.random.PCG64(_stream(seed, 0)))
    w, b = rng.random(columns, dtype=np.float32), float(rng.random(dtype=np.float32))
    np.save(folder / "w.npy", w)
    header = {"rows": rows, "columns": columns, "dtype": "float32", "seed": seed, "noise": NOISE, "b": b}
    (folder / HEADER).write_text(json.dumps(header | {"version": VERSION}) + "\n")
    # written, not mapped, so that a full disk is an error that can be caught, not a SIGBUS that ends the process
    with (
        contextlib.nullcontext() if drawn else _npy(folder / "x.npy", (rows, columns)) as x,
        _npy(folder / "y.npy", (rows,)) as y,
        tqdm(
            total=4 * rows * columns, file=sys.stdout, unit="B", unit_scale=True, leave=False, desc="regression"
        ) as bar,
    ):
        for stream in streams:
            rng = np.random.Generator(np.random.PCG64(stream))
            values = rng.random((min(_chunk(columns), rows), columns), dtype=np.float32)
            noise = NOISE * rng.standard_normal(len(values), dtype=np.float32)
            if not drawn:
                x.write(values)
            y.write(values @ w + np.float32(b) + noise)
            rows -= len(values)
            bar.update(values.nbytes)


def _npy(path, shape):
    """Open a file in NumPy's format for a float32 array of `shape`, positioned where its values begin."""
    file = open(path, "wb")
    np.lib.format.write_array_header_1_0(file, {"descr": "<f4", "fortran_order": False, "shape": shape})
    return file


def _chunk(columns):
    """Rows drawn at a time."""
    return max(1, CHUNK // columns)
