"""Probe of exercise break_even."""

from course.checks.engine import exercise
from course.checks.probing.values import number_kind


@exercise()
def break_even(answer, device, seed):
    """Steps until compile time is paid back."""
    n = 40 + seed % 50
    found = answer(float(n), 0.75, 0.5)
    yield "returns a number", number_kind(found)
    yield "each step saves a quarter of a second", found
    yield "part of a step is a step: rounded up", answer(n + 0.1875, 0.75, 0.5)
    yield "a whole step that is exactly enough", answer(3.0, 2.0, 0.5)
    yield "less than one step", answer(0.25, 3.0, 1.0)
    yield "as fast as before: never, which is infinity", answer(4.0, 0.5, 0.5)
    yield "slower than before: never, which is infinity", answer(4.0, 0.5, 0.75)
    yield "nothing to pay back", answer(0.0, 0.5, 0.25)
