"""Answers that a class's release gives because they are not asked: course/given/<unit>/<part>.py -> *given* -> solved.

There are no such files where the masters are.  publish/given.py writes them.
"""

import functools
import importlib
from pathlib import Path

from course.checks.expected import load_definitions

FOLDER = Path(__file__).parents[1] / "given"


def load_given(exercise, solved):
    """The given answer to `exercise`, or None if there is none.

    Args:
        solved: what finds the answers, perhaps the learner's, that the given one uses.
    """
    module = _scripts(exercise.unit).get(exercise.name)
    if module is None:
        return None
    checks = importlib.import_module(f"course.checks.{exercise.unit[3:]}")
    for name in module.NEEDS[exercise.name]:
        setattr(module, name, solved(getattr(checks, name)))
    return getattr(module, exercise.name)


@functools.cache
def _scripts(unit):
    """{exercise: module that defines the given answer to it}."""
    modules = [load_definitions(path) for path in sorted((FOLDER / unit).glob("*.py"))]
    return {name: module for module in modules for name in module.NEEDS}
