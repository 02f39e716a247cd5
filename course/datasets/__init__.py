"""One module per data set: prepared files -> tensors.  Where the real data is missing, a stand-in is made and kept."""

import os
from difflib import get_close_matches
from pathlib import Path

from course.errors import CourseError

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
