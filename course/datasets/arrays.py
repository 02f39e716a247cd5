"""Arrays in .npz files: written whole or not at all, made where they are missing.

Whatever damage is found in a file is one sentence.
"""

import zipfile
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from course.datasets import ADVICE
from course.errors import CourseError
from course.system.files import atomic_write

# what numpy and zipfile raise for a file that is missing, cut short, or of another kind
UNREADABLE = (
    OSError,
    ValueError,
    LookupError,
    EOFError,
    TypeError,
    zipfile.BadZipFile,
    zlib.error,
)


def save_arrays(path: Path, **arrays: np.ndarray) -> None:
    """Write `arrays` to the .npz file `path`; if that fails, `path` keeps its content.

    Raises: CourseError if the disk is full or the folder cannot be written.
    """
    # not np.savez, which closes the file too late in numpy 2.0
    with atomic_write(path, ADVICE) as out, zipfile.ZipFile(out, "w") as file:
        for name, array in arrays.items():
            with file.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asarray(array), allow_pickle=False)


def read_arrays(path: Path, fields: Sequence[str], remedy: str) -> dict[str, np.ndarray]:
    """The arrays `fields` of the .npz file `path`.

    Raises: CourseError that ends with `remedy` if it is damaged.
    """
    try:
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as stored:
            return {field: stored[field] for field in fields}
    except UNREADABLE as error:
        first_line = str(error).partition("\n")[0]
        raise damaged(path, first_line or type(error).__name__, remedy) from None


def damaged(path: Path, reason: object, remedy: str) -> CourseError:
    """The error that says why the prepared file `path` cannot be used, and what to do."""
    return CourseError(f"{path} is damaged ({reason}); {remedy}")


def standin(
    path: Path, fields: Sequence[str], make: Callable[[], dict[str, np.ndarray]]
) -> dict[str, np.ndarray]:
    """The arrays `fields` in the file `path`.

    If it is missing or damaged, `make()` returns them, and they are written to it.
    """
    try:
        return read_arrays(path, fields, "")
    except CourseError:
        arrays = make()
        save_arrays(path, **arrays)
        return arrays
