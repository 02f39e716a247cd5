"""Probe of exercise plan_buckets."""

import itertools

import torch

from course.checks.engine import exercise


@exercise(isolated=True)
def plan_buckets(answer, device, seed):
    """Sizes worked by hand, then drawn ones."""
    buckets = answer([4, 4, 4, 4], 8)
    yield "returns a list of lists of int", [type(buckets).__name__, sorted({type(b).__name__ for b in buckets})]
    yield "each parameter is in one bucket", sorted(itertools.chain(*buckets))
    yield "the last parameter is first", [buckets[0][0], buckets[-1][-1]]
    yield "a bucket of exactly cap bytes", buckets
    yield "one byte more than cap opens a new bucket", answer([4, 5], 8)
    yield "a bucket is not looked at again", answer([1, 6, 3], 8)
    yield "a large parameter is alone: behind it", answer([2, 2, 20, 2, 2], 8)
    yield "a large parameter is alone: first and last", answer([20, 2, 2, 20], 8)
    yield "large parameters in a row", answer([9, 20, 9], 8)
    yield "parameters of one byte", answer([1, 1, 1], 2)
    yield "one parameter", answer([3], 8)
    yield "no parameters", answer([], 8)
    rng = torch.Generator().manual_seed(seed)
    sizes = torch.randint(1, 30, (40 + seed % 7,), generator=rng).tolist()
    given = list(sizes)
    yield "drawn sizes", answer(given, 40 + seed % 5)
    yield "leaves sizes as they are", given == sizes
