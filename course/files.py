"""Write a file or a folder whole or not at all.  Knows nothing of what is in it."""

import contextlib
import errno
import os
import tempfile
from pathlib import Path

from course.errors import CourseError


@contextlib.contextmanager
def whole_file(path, advice="Make room or get write permission there."):
    """An open binary file: `path` holds what was written to it once the block ends well, and until then what it held.

    Folders are made.  Raises: CourseError with `advice` if the disk is full or the place cannot be written.
    """
    path = Path(path)
    half_made = path.with_name(f".{path.name}.{os.getpid()}")  # same folder, so that the last step is a rename
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with open(half_made, "wb") as out:
                yield out
            os.replace(half_made, path)
        finally:
            with contextlib.suppress(OSError):
                half_made.unlink()
    except OSError as error:
        raise CourseError(f"could not write {path}: {error.strerror or error}. {advice}") from None


@contextlib.contextmanager
def whole_folder(path, advice="Make room or get write permission there.", keep=lambda: False):
    """An empty folder to fill: it becomes `path` once the block ends well, and until then `path` is what it was.

    Args:
        keep: asked at the end if `path` exists; True if that one, made meanwhile by another process, should stay.

    Folders above it are made.  Raises: CourseError as `whole_file`.
    """
    path = Path(path).resolve()  # a link stays, what it leads to is replaced
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{path.name}.", dir=path.parent) as beside:  # on the same disk
            new = Path(beside) / "new"
            new.mkdir()
            yield new
            _put_in_place(new, path, keep)
    except OSError as error:
        raise CourseError(f"could not write {path}: {error.strerror or error}. {advice}") from None


def _put_in_place(new, path, keep):
    """None; the folder `new` is now `path`, unless `keep()`; what `path` was lies beside `new`."""
    taken = (errno.ENOTEMPTY, errno.EEXIST)
    while True:  # again if another process comes between two steps
        try:
            os.rename(new, path)
            return
        except OSError as error:
            if error.errno not in taken:
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
            if not isinstance(error, OSError) or error.errno not in (*taken, errno.ENOENT):
                raise


def write_text(path, text):
    """None; `path` holds `text` in UTF-8.  Raises: CourseError as `whole_file`."""
    with whole_file(path) as out:
        out.write(text.encode())
