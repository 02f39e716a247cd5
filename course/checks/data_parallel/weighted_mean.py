"""Probe of exercise weighted_mean."""

import math

import torch

from course.checks.data_parallel.ranks import each_rank, results_in_ranks
from course.checks.engine import exercise


@exercise()
def weighted_mean(answer, device, seed):
    """Means of two and three ranks, with equal weights, others, and none."""
    rng = torch.Generator().manual_seed(seed)

    def parts(*weights, empty=()):
        """[(value, weight) of each rank]; the ranks in `empty` have no samples, so nan for a mean."""
        values = torch.rand(len(weights), generator=rng)
        values[list(empty)] = math.nan
        return list(zip(values, weights, strict=True))

    def results(ranks):
        return each_rank(result for result, _, _ in ranks)

    large = 2**24  # the last count after which float32 leaves some out
    many = [(torch.tensor(1.0), 1), (torch.tensor(0.0), large)]
    equal, uneven, many = results_in_ranks(answer, parts(8, 8), parts(3 + seed % 4, 40), many)
    yield "returns a float on each rank", each_rank(type(result).__name__ for result, _, _ in equal)
    yield "equal weights", results(equal)
    yield "asks the group for 2 operations or fewer", all(calls <= 2 for _, calls, _ in equal)
    yield "other weights", results(uneven)
    three, fractions = results_in_ranks(answer, parts(1, 5, 30 + seed % 3), parts(0.25, 0.5, 1.5))
    yield "three ranks", results(three)
    yield "weights that are not whole numbers", results(fractions)
    zero, nothing = results_in_ranks(answer, parts(4, 0, 2), parts(5, 0, 3, empty=[1]))
    yield "a weight of 0", results(zero)
    yield "a weight of 0 and the value nan, the mean of no samples", results(nothing)
    if any(result != result for result, _, _ in nothing):
        return  # nan alone decides what is said, whether the sums are float32 or float64
    exact = all(abs(result * (large + 1) - 1) < 1e-9 for result, _, _ in many)
    yield "counts above 16,777,216 are not rounded", exact
    (found,) = results_in_ranks(answer, parts(0, 0, empty=[0, 1]))
    yield "all weights are 0: nan", results(found)
