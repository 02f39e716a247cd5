"""Write a file whole or not at all.  Knows nothing of what is in it."""

import contextlib
import os
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


def write_text(path, text):
    """None; `path` holds `text` in UTF-8.  Raises: CourseError as `whole_file`."""
    with whole_file(path) as out:
        out.write(text.encode())
