"""Probe of exercise best_cuts."""

import math

import torch

from course.checks.engine import exercise


class _GroupCost:
    """Cost of the lengths i to j - 1 as one group: their number times the largest; counts its calls."""

    def __init__(self, sizes, power=1.0):
        self.largest, self.calls = [s**power for s in sizes], 0

    def __call__(self, i, j):
        if not 0 <= i < j <= len(self.largest):
            raise ValueError(f"group_cost({i}, {j}) was called; with {len(self.largest)} lengths, 0 <= i < j holds")
        self.calls += 1
        return (j - i) * self.largest[j - 1]


def _cut(answer, groups, sizes, power=1.0):
    """(the cuts of `sizes` into groups, how often their cost was asked for)."""
    group_cost = _GroupCost(sizes, power)
    return answer(len(sizes), groups, group_cost), group_cost.calls


@exercise()
def best_cuts(answer, device, seed):
    """Where to cut, and how often the cost was asked for."""
    rng = torch.Generator().manual_seed(seed)
    sizes = torch.randint(1, 10**6, (40 + seed % 7,), generator=rng).sort().values.tolist()

    def cuts(groups, *given):
        return list(_cut(answer, groups, *given)[0])

    result, _ = _cut(answer, 3, sizes)
    yield "returns a list of whole numbers", [type(cut).__name__ for cut in result]
    yield "the last one is the number of lengths", result[-1]
    yield "ascending", sorted({*result}) == list(result)
    yield "one group", cuts(1, sizes)
    yield "two groups", cuts(2, sizes)
    yield "three groups", list(result)
    yield "seven groups", cuts(7, sizes)
    yield "another cost", cuts(4, sizes, 1.9)
    yield "cuts that are best one at a time need not be best together", cuts(3, [3, 17, 25, 26, 27, 32, 33])
    yield "two lengths, two groups", cuts(2, [1, 5])
    many = torch.randint(1, 10**9, (600,), generator=rng).sort().values.tolist()
    result, calls = _cut(answer, 4, many)
    yield "600 lengths, four groups", list(result)
    yield "does not try every i for every j", calls < 3 * 600 * 599 // 3
    allowed = 4 * 600 * (math.log2(600) + 2)
    yield "calls group_cost at most groups · m · (log2 m + 2) times", calls <= allowed
