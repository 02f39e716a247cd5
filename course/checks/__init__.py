"""How each answer is checked: a package per unit, in it a module per exercise.

`exercise(unit, name)` gives the check of one. The engine that runs them is in course/engine/.
"""

import importlib
import importlib.util
from typing import TYPE_CHECKING

from course.errors import CourseError
from course.notebook.registry import near, package_of

if TYPE_CHECKING:  # the engine imports torch
    from course.engine.exercise import Exercise


def exercise(unit: str, name: str) -> "Exercise":
    """The check of an exercise; what its task says about it is in its `facts`.

    Raises: CourseError with the near misses if the unit has no such check.
    """
    package = importlib.import_module(f"{__name__}.{package_of(unit)}")
    if name not in package.__all__:
        raise CourseError(f"{unit} has no exercise {name!r}; {near(name, package.__all__)}")
    return getattr(package, name)


def exercises(unit: str) -> list["Exercise"]:
    """The checks of all exercises of `unit`; none if it has no package here."""
    package = f"{__name__}.{package_of(unit)}"
    if importlib.util.find_spec(package) is None:
        return []
    names = importlib.import_module(package).__all__
    return [exercise(unit, name) for name in names]
