"""Probe of exercise best_cuts."""

import math

import torch

from course.checks.engine import exercise


class _Weight:
    """Weight of the items i to j - 1 as one run: their number times the largest; counts its calls."""

    def __init__(self, sizes, power=1.0):
        self.largest, self.calls = [s**power for s in sizes], 0

    def __call__(self, i, j):
        if not 0 <= i < j <= len(self.largest):
            raise ValueError(f"weight({i}, {j}) was asked for; a run of {len(self.largest)} items has 0 <= i < j")
        self.calls += 1
        return (j - i) * self.largest[j - 1]


@exercise()
def best_cuts(answer, device, seed):
    """Where to cut, and how often the weight was asked for."""
    rng = torch.Generator().manual_seed(seed)
    sizes = torch.randint(1, 10**6, (40 + seed % 7,), generator=rng).sort().values.tolist()
    found = answer(len(sizes), 3, _Weight(sizes))
    yield "returns a list of whole numbers", [type(cut).__name__ for cut in found]
    yield "the last one is the number of items", found[-1]
    yield "ascending", sorted({*found}) == list(found)
    yield "one group", list(answer(len(sizes), 1, _Weight(sizes)))
    yield "two groups", list(answer(len(sizes), 2, _Weight(sizes)))
    yield "three groups", list(found)
    yield "seven groups", list(answer(len(sizes), 7, _Weight(sizes)))
    yield "another weight", list(answer(len(sizes), 4, _Weight(sizes, 1.9)))
    yield (
        "cuts that are best one at a time need not be best together",
        list(answer(7, 3, _Weight([3, 17, 25, 26, 27, 32, 33]))),
    )
    yield "two items, two groups", list(answer(2, 2, _Weight([1, 5])))
    many = torch.randint(1, 10**9, (600,), generator=rng).sort().values.tolist()
    weight = _Weight(many)
    yield "600 items, four groups", list(answer(600, 4, weight))
    yield "does not try every i for every j", weight.calls < 3 * 600 * 599 // 3
    allowed = 4 * 600 * (math.log2(600) + 2)
    yield "asks for the weight at most groups · m · (log2 m + 2) times", weight.calls <= allowed
