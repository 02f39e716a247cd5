"""One module per data set: prepared files -> tensors.  Where the real data is missing, a stand-in is made and kept."""

import os
import zipfile
import zlib
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from pathlib import Path

import numpy as np

from course.errors import CourseError
from course.system.files import atomic_write

ADVICE = "Make room or get write permission there, or choose another folder (COURSE_DATA, or --data for a script)."


def data_folder(folder: str | os.PathLike | None = None) -> Path:
    """The Path of the data folder: `folder`, else COURSE_DATA, else `data/` beside the package."""
    return Path(folder or os.environ.get("COURSE_DATA") or Path(__file__).parents[2] / "data")


def check_name(kind: str, name: str, names) -> None:
    """Raise a CourseError with the choices and the nearest of them unless `name` is one of `names`."""
    if name not in names:
        near = get_close_matches(str(name), names, n=1)
        meant = f" did you mean {near[0]}?" if near else ""
        raise CourseError(f"no {kind} set is called {name!r};{meant} There are {', '.join(names)}.")


def save_arrays(path: Path, **arrays) -> None:
    """Write `arrays` to the .npz file `path`; if that fails, `path` keeps its content.

    Raises: CourseError if the disk is full or the folder cannot be written.
    """
    with atomic_write(path, ADVICE) as out:
        np.savez(out, **arrays)


def read_arrays(path: Path, fields: Sequence[str], remedy: str) -> dict[str, np.ndarray]:
    """The arrays `fields` of the .npz file `path`.  Raises: CourseError that ends with `remedy` if it is damaged."""
    try:
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as stored:
            return {field: stored[field] for field in fields}
    except (OSError, ValueError, LookupError, EOFError, TypeError, zipfile.BadZipFile, zlib.error) as error:
        raise damaged(path, str(error).partition("\n")[0] or type(error).__name__, remedy) from None


def damaged(path: Path, reason: object, remedy: str) -> CourseError:
    """The error that says why the prepared file `path` cannot be used, and what to do."""
    return CourseError(f"{path} is damaged ({reason}); {remedy}")


def standin(path: Path, fields: Sequence[str], make: Callable[[], dict]) -> dict[str, np.ndarray]:
    """The arrays `fields` in the file `path`; if it is missing or damaged, `make()` returns them and they are kept."""
    try:
        return read_arrays(path, fields, "")
    except CourseError:
        arrays = make()
        save_arrays(path, **arrays)
        return arrays
