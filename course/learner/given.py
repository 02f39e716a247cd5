"""Answers that a class's release gives: course/given/<unit>/<part>.py -> *given* -> solved.

They are what is not asked, and what is asked as an extra and used by the core.

There are no such files where the masters are.  instructor/release/given.py writes them.
"""

import functools
from collections.abc import Callable
from typing import Any

from course.learner.protocols import Exercise
from course.notebook.solutions import load_definitions
from course.system.folders import ROOT

FOLDER = ROOT / "course" / "given"


def load_given(exercise: Exercise, solved: Callable[[Exercise], Any], asked: bool = False) -> Any:
    """The given answer to `exercise`, or None if there is none.

    Args:
        asked: whether to look among the exercises that the class is asked, instead of those that it
            is not.
        solved: what finds the answers, perhaps the learner's, that the given one uses.
    """
    module = _scripts(exercise.unit).get(exercise.name)
    if module is None or (exercise.name in module.ASKED) != asked:
        return None
    for name in module.NEEDS[exercise.name]:
        setattr(module, name, solved(exercise.sibling(name)))
    return getattr(module, exercise.name)


@functools.cache
def _scripts(unit):
    """{exercise: module that defines the given answer to it}."""
    module_of = {}
    for path in sorted((FOLDER / unit).glob("*.py")):
        module = load_definitions(path)
        module_of |= dict.fromkeys(module.NEEDS, module)
    return module_of
