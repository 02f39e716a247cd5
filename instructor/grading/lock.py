"""One grader at a time works on a course folder."""

import contextlib
import fcntl
from collections.abc import Iterator
from pathlib import Path

from course.errors import CourseError


@contextlib.contextmanager
def only_one(folder: Path) -> Iterator[None]:
    """Inside the block no other grader works on this course folder.

    Raises: CourseError if one does.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "lock"
    with open(path, "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise CourseError(
                f"another grader is at work on this course (it holds {path}); wait for it."
            ) from None
        yield
