"""Every exercise of every unit, for tests that go over all of them."""

import importlib

from course.checks.engine import Exercise
from course.units import units

EXERCISES = [
    exercise
    for unit in units()
    for exercise in vars(importlib.import_module(f"course.checks.{unit[3:]}")).values()
    if isinstance(exercise, Exercise)
]
