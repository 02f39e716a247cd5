"""Probe of exercise best_thresholds."""

import torch

from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.values import type_word


def _fourth_power(length: int) -> int:
    return length**4


@exercise()
def best_thresholds(answer: Answer, device: torch.device, seed: int) -> Facts:
    """The thresholds of least cost; the lengths are such that no others cost as little."""
    rng = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, 2000, (60 + seed % 9,), generator=rng)
    thresholds = answer(lengths, 3)
    yield "returns a list of whole numbers", [type_word(t) for t in thresholds]
    yield "one threshold per group", len(thresholds)
    is_ascending = sorted(thresholds) == list(thresholds)
    ends_with_longest = thresholds[-1] == int(lengths.max())
    yield "ascending, the last one the longest length", (is_ascending, ends_with_longest)
    yield "each is a length that occurs", {*thresholds} <= {*lengths.tolist()}
    yield "one group", list(answer(lengths, 1))
    yield "two groups", list(answer(lengths, 2))
    yield "three groups", list(thresholds)
    yield "eight groups", list(answer(lengths, 8))
    far = 100 + seed % 50
    often = torch.tensor([1] * 50 + [5] * 40 + [9, far, far + 1])
    yield "lengths that occur often weigh more", list(answer(often, 3))
    yield "another cost, another optimum", list(answer(lengths, 8, _fourth_power))
    few = torch.tensor([5, 60, 70, 100])
    yield "a cost that grows fast moves the threshold", list(answer(few, 2, _fourth_power))
    # added one at a time, each the best then, these would be others
    unordered = torch.tensor([26, 3, 33, 17, 27, 25, 32])
    yield "lengths may come in any order", list(answer(unordered, 3))
    three_lengths = list(answer(torch.tensor([4, 2, 2, 7]), 9))
    yield "more groups than lengths: a threshold per length", three_lengths
