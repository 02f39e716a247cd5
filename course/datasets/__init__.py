"""One module per data set: prepared files -> tensors.

Where the real data is missing, a stand-in is made and kept.
"""

from collections.abc import Iterable
from difflib import get_close_matches

from course.errors import CourseError
from course.system.folders import data_folder as data_folder

ADVICE = (
    "Make room or get write permission there, "
    "or choose another folder (COURSE_DATA, or --data for a script)."
)

_LOADED: dict[str, None] = {}  # descriptions, in order


def note_loaded(name: str, real: bool) -> None:
    """Note that the set `name` was loaded, so that claims can say what they were measured on."""
    _LOADED[f"{name} ({'real' if real else 'stand-in'})"] = None


def loaded() -> str:
    """The sets that this process has loaded, such as "ml-100k (real)"."""
    return ", ".join(_LOADED)


def check_name(kind: str, name: str, names: Iterable[str]) -> None:
    """Raise a CourseError, with the choices and the nearest, unless `name` is one of `names`."""
    if name in names:
        return
    near = get_close_matches(str(name), names, n=1)
    meant = f" did you mean {near[0]}?" if near else ""
    raise CourseError(f"no {kind} set is called {name!r};{meant} There are {', '.join(names)}.")
