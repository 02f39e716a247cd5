"""Write a file or a folder completely or not at all, whatever it contains."""

import contextlib
import errno
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from course.errors import CourseError

ADVICE = "Make room or get write permission there."


@contextlib.contextmanager
def atomic_write(path: str | os.PathLike, advice: str = ADVICE) -> Iterator[BinaryIO]:
    """Open a binary file that replaces `path` when the block ends without an error; until then
    `path` is untouched.

    Missing folders are made.
    Raises: CourseError with `advice` if the disk is full or the folder cannot be written.
    """
    path = Path(path)
    # same folder, so that the last step is a rename
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with open(partial, "wb") as out:
                yield out
            os.replace(partial, path)
        finally:
            with contextlib.suppress(OSError):
                partial.unlink()
    except OSError as error:
        raise CourseError(f"could not write {path}: {error.strerror or error}. {advice}") from None


@contextlib.contextmanager
def atomic_folder(
    path: str | os.PathLike, advice: str = ADVICE, keep: Callable[[], bool] = lambda: False
) -> Iterator[Path]:
    """Make an empty folder that replaces `path` when the block ends without an error; until then
    `path` is untouched.

    Args:
        keep: called at the end if `path` exists; returns True if the existing folder, which another
            process may have made meanwhile, should stay.

    Missing parent folders are made.  Raises: CourseError as `atomic_write` does.
    """
    path = Path(path).resolve()  # a symbolic link stays; the folder that it points to is replaced
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(
            prefix=f".{path.name}.", dir=path.parent
        ) as beside:  # on the same disk
            new = Path(beside) / "new"
            new.mkdir()
            yield new
            _put_in_place(new, path, keep)
    except OSError as error:
        raise CourseError(f"could not write {path}: {error.strerror or error}. {advice}") from None


def _put_in_place(new, path, keep):
    """Rename the folder `new` to `path`, unless `keep()`.

    Move the folder that was there into the parent folder of `new`.
    """
    occupied = (errno.ENOTEMPTY, errno.EEXIST)
    while True:  # again if another process comes between two steps
        try:
            os.rename(new, path)
            return
        except OSError as error:
            if error.errno not in occupied:
                raise
        if keep():
            return
        old = Path(tempfile.mkdtemp(dir=new.parent))
        try:
            os.rename(path, old)
            os.rename(new, path)
            return
        except BaseException as error:
            if not path.exists():
                os.rename(old, path)
            if not isinstance(error, OSError) or error.errno not in (*occupied, errno.ENOENT):
                raise


def write_text(path: str | os.PathLike, text: str) -> None:
    """Write `text` to `path` in UTF-8.  Raises: CourseError as `atomic_write` does."""
    with atomic_write(path) as out:
        out.write(text.encode())
