"""Probe of exercise speedup_bound."""

import math

import torch

from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.errors import error_name
from course.engine.probing.laws import tried
from course.engine.probing.values import number_kind, type_word


@exercise()
def speedup_bound(answer: Answer, device: torch.device, seed: int) -> Facts:
    """Overall speed-ups from a share and a factor."""
    factor = 2.0 + (seed % 89) / 4
    result = answer(0.5, factor)
    yield "returns a tuple of two numbers", [type_word(result), *map(number_kind, result)]
    yield "half of the time, faster by a factor", tuple(result)
    yield "a tenth of the time, ten times as fast", tuple(answer(0.1, 10))
    yield "nine tenths of the time, ten times as fast", tuple(answer(0.9, 10))
    yield "a share of 0 changes nothing", tuple(answer(0.0, factor))
    yield "all of the time: the factor itself, and no bound", tuple(answer(1.0, factor))
    yield "an infinite factor reaches the bound", tuple(answer(0.25, math.inf))
    yield "what gets slower", tuple(answer(0.2, 1 / (2 + seed % 5)))
    for share in (-0.1, 1.5):
        yield (
            f"a share of {share} raises ValueError",
            tried(error_name(answer, share, factor), factor),
        )
    for wrong in (0, -2.0):
        yield (
            f"a factor of {wrong} raises ValueError",
            tried(error_name(answer, 0.5, wrong), factor),
        )
