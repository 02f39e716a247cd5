"""Every exercise of every unit, for tests that go over all of them."""

import importlib

from course.authoring.build import units
from course.checks.engine import Exercise

EXERCISES = [
    exercise
    for unit in units()
    for exercise in vars(importlib.import_module(f"course.checks.{unit[3:]}")).values()
    if isinstance(exercise, Exercise)
]
