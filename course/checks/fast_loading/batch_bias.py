"""Probe of exercise batch_bias."""

import itertools
import statistics
from collections.abc import Sequence

import torch

from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.errors import error_name


@exercise()
def batch_bias(answer: Answer, device: torch.device, seed: int) -> Facts:
    """Values and orders small enough to count, then those that lose digits."""
    rng = torch.Generator().manual_seed(seed)

    def bias(
        values: Sequence[float] | torch.Tensor, order: Sequence[int] | torch.Tensor, batch: int
    ) -> float:
        return answer(torch.as_tensor(values).to(device), torch.as_tensor(order).to(device), batch)

    small = [0.0, 0.0, 1.0, 1.0]
    result = bias(small, [0, 1, 2, 3], 2)
    yield "returns a float", "float" if isinstance(result, float) else type(result).__name__
    again = bias(small, [0, 1, 2, 3], 2)
    yield "values 0 0 1 1 in batches of two, V = 1/4, V0 = 1/4 / 2 * 2/3", again
    yield "the order 0 2 1 3 makes batches that are alike", bias(small, [0, 2, 1, 3], 2)
    values = torch.rand(5, generator=rng)
    orders = list(itertools.permutations(range(5)))
    yield "batches of one row are as good as random, always", bias(values, orders[seed % 120], 1)
    mean = statistics.mean(bias(values, order, 2) for order in orders)
    yield "the mean over all 120 orders of 5 rows", mean

    batch = 4 + seed % 3
    n = 6 * batch
    values = torch.randn(n, generator=rng)
    order = torch.randperm(n, generator=rng)
    yield "random values in random order", bias(values, order, batch)
    sorted_bias = bias(values.sort().values, torch.arange(n), batch)
    yield "sorted values in the order of the file", sorted_bias
    values = torch.cat([values, 3 + torch.rand(batch - 1, generator=rng)])
    order = torch.randperm(len(values), generator=rng)
    yield "the rows after the last full batch: in m and s² only", bias(values, order, batch)
    rows = batch + 2
    yield "one full batch, and some rows more", bias(values[:rows], order[order < rows], batch)

    # Squares of such times are multiples of 512 in float64, and the times are multiples of 128 in
    # float32: too coarse for numbers below 400, but not so coarse that all of them are equal.
    times = 1_600_000_000 + torch.randint(400, (n,), generator=rng)
    order = torch.randperm(n, generator=rng)
    yield "Unix times, whole numbers, counted in float64", bias(times, order, batch)
    large = times.sub(1_600_000_000).mul(125).half()
    yield "float16 values, whose sum is beyond float16", bias(large, order, batch)
    error = error_name(bias, times, order, n + 1)
    yield "a batch larger than the file raises ValueError", error
    yield "one batch of all rows raises ValueError", error_name(bias, times, order, n)
    error = error_name(bias, [2.0] * n, order, batch)
    yield "values that are all 2 raise ValueError", error
    errors = set()
    for sevenths in range(30):
        values = torch.full((n,), sevenths / 7, dtype=torch.float64)
        errors.add(error_name(bias, values, order, batch))
    yield "and so do values that are all 1/7, or 2/7, or 3/7 and so on", sorted(errors)
