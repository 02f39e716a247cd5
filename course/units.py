"""Which units and parts there are: read from the masters where they are, else from the learners' notebooks."""

from pathlib import Path

from course.checks.expected import has_solutions, solutions_folder
from course.errors import CourseError

ROOT = Path(__file__).parents[1]


def _folder_and_suffix():
    return (solutions_folder(), ".py") if has_solutions() else (ROOT / "notebooks", ".ipynb")


def units():
    """The names of all units, in order.  Raises: CourseError if there are none."""
    folder, suffix = _folder_and_suffix()
    found = sorted({path.parent.name for path in folder.glob(f"[0-9][0-9]_*/[0-9]_*{suffix}")})
    if not found:
        raise CourseError(
            f"looked for units in {folder}, found none; set COURSE_SOLUTIONS to the folder of the masters."
        )
    return found


def parts(unit):
    """The names of the parts of `unit`, in order.  Raises: CourseError if there is no such unit."""
    folder, suffix = _folder_and_suffix()
    found = sorted(path.stem for path in (folder / unit).glob(f"[0-9]_*{suffix}"))
    if not found:
        raise CourseError(f"no unit is called {unit!r}; the units are {', '.join(units())}.")
    return found
