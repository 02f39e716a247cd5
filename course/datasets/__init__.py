"""One module a data set: prepared files -> tensors.  Where the real data is missing, an embedded stand-in is made."""

import os
from difflib import get_close_matches
from pathlib import Path

from course.errors import CourseError


def data_folder(folder=None):
    """The Path of the data folder: `folder`, else COURSE_DATA, else `data/` beside the package."""
    return Path(folder or os.environ.get("COURSE_DATA") or Path(__file__).parents[2] / "data")


def check_name(kind, name, names):
    """None if `name` is one of `names`.  Raises: CourseError with the choices and the nearest of them."""
    if name not in names:
        near = get_close_matches(str(name), names, n=1)
        meant = f" did you mean {near[0]}?" if near else ""
        raise CourseError(f"no {kind} set is called {name!r};{meant} There are {', '.join(names)}.")
