"""Data for a linear regression at any size: seed -> *load* -> X, y on disk, read as NumPy arrays without loading them.

The data of FFCV's guide to large-scale linear regression (Leclerc et al. 2023): independent variables uniform in
[0, 1), true weights and intercept likewise, y = X w + b + normal noise.  All of it is drawn from the seed, chunk by
chunk, so making 40 GB takes no more memory than making 4 MB.
"""

import json
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tqdm import tqdm

from course.datasets import data_folder
from course.errors import CourseError
from course.files import atomic_folder

VERSION = 1  # of the generator: change it when the numbers drawn change, and stored data is made again
CHUNK = 1 << 22  # values drawn at a time: 16 MB
NOISE = 1.0  # standard deviation of the noise in y
HEADER, FILES = "header.json", ("x.npy", "y.npy", "w.npy")
ADVICE = "Make room or get write permission there, choose another folder (COURSE_DATA), or ask for fewer rows."


@dataclass(frozen=True)
class Regression:
    """A regression problem in a folder.  The arrays stay on disk, so it is cheap to send to another process."""

    folder: Path
    rows: int
    columns: int
    seed: int
    b: float  # the true intercept

    @property
    def x(self):
        """float32 array (rows, columns), read-only and memory-mapped."""
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


def load(rows: int, columns: int, seed: int = 0, data: str | Path | None = None) -> Regression:
    """The Regression of `rows` by `columns` for `seed`, made if it does not exist yet.

    Args:
        data: the data folder; default COURSE_DATA, else `data/` beside the package.

    X, w and b are bit-identical on every machine, y is except for rounding.  Making them shows a progress bar and takes
    about 60 MB of memory at any size.
    Raises: CourseError for an impossible size, damaged files, or a disk that is too small.
    """
    if rows < 1 or columns < 1 or seed < 0:
        asked = f"{rows} rows, {columns} columns and seed {seed}"
        raise CourseError(f"asked for {asked}; there must be at least 1 row and 1 column, and no seed below 0.")
    folder = data_folder(data) / "regression" / f"{rows}x{columns}-seed{seed}"
    stored = _stored(folder, rows, columns, seed)
    if stored is None:
        _check_room(folder, 4 * rows * (columns + 1))
        with atomic_folder(folder, ADVICE, keep=lambda: _stored(folder, rows, columns, seed) is not None) as new:
            _make(new, rows, columns, seed)
        stored = _stored(folder, rows, columns, seed)
    return stored


def _stored(folder, rows, columns, seed):
    """The Regression in `folder`; None if there is none, or if an older generator made it."""
    try:
        header = json.loads((folder / HEADER).read_text())
        if header["version"] != VERSION:
            return None
        found = Regression(folder, rows, columns, seed, header["b"])
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


def _check_room(folder, nbytes):
    """Raise a CourseError unless the disk of `folder` has room for `nbytes`."""
    there = next(parent for parent in folder.absolute().parents if parent.exists())
    free = shutil.disk_usage(there).free
    if free < nbytes:
        raise CourseError(f"{folder} takes {nbytes / 1e9:.1f} GB, {free / 1e9:.1f} GB are free. {ADVICE}")


def _make(folder, rows, columns, seed):
    """Draw the problem and write its files into `folder`."""
    truth, *streams = np.random.SeedSequence(seed).spawn(1 + -(-rows // _chunk(columns)))
    rng = np.random.Generator(np.random.PCG64(truth))
    w, b = rng.random(columns, dtype=np.float32), float(rng.random(dtype=np.float32))
    np.save(folder / "w.npy", w)
    header = {"rows": rows, "columns": columns, "dtype": "float32", "seed": seed, "noise": NOISE, "b": b}
    (folder / HEADER).write_text(json.dumps(header | {"version": VERSION}) + "\n")
    # written, not mapped, so that a full disk is an error that can be caught, not a SIGBUS that ends the process
    with (
        _npy(folder / "x.npy", (rows, columns)) as x,
        _npy(folder / "y.npy", (rows,)) as y,
        tqdm(
            total=4 * rows * columns, file=sys.stdout, unit="B", unit_scale=True, leave=False, desc="regression"
        ) as bar,
    ):
        for stream in streams:
            rng = np.random.Generator(np.random.PCG64(stream))
            values = rng.random((min(_chunk(columns), rows), columns), dtype=np.float32)
            noise = NOISE * rng.standard_normal(len(values), dtype=np.float32)
            x.write(values), y.write(values @ w + np.float32(b) + noise)
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
