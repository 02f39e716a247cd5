"""Probe of exercise update_plan."""

from course.checks.engine import exercise
from course.checks.probing.values import type_names


@exercise(isolated=True)
def update_plan(answer, device, seed):
    """Plans of short epochs."""
    n, every = 8 + seed % 5, 3 + seed % 2
    plan = answer(n, every)
    yield "returns a list of bool", [type(plan).__name__, *type_names(list(plan))]
    yield "has one entry for each micro-batch", len(plan)
    yield "the first group of micro-batches", list(plan)[:every]
    yield "an epoch of whole groups", answer(3 * every, every)
    yield "an epoch whose last group is short by one", answer(3 * every - 1, every)
    yield "an epoch whose last group is one micro-batch", answer(2 * every + 1, every)
    yield "an update after every micro-batch", answer(4, 1)
    yield "an epoch shorter than a group", answer(every - 1, every)
    yield "one micro-batch", answer(1, every)
    yield "an epoch without micro-batches", answer(0, every)
