"""Probe of exercise batch_bias."""

import itertools
import statistics

import torch

from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.errors import error_name


@exercise()
def batch_bias(answer: Answer, device: torch.device, seed: int) -> Facts:
    """Values and orders small enough to count, then those that lose digits."""
    rng = torch.Generator().manual_seed(seed)

    def bias(values, order, batch):
        return answer(torch.as_tensor(values).to(device), torch.as_tensor(order).to(device), batch)

    small = [0.0, 0.0, 1.0, 1.0]
    result = bias(small, [0, 1, 2, 3], 2)
    yield "returns a float", "float" if isinstance(result, float) else type(result).__name__
    yield (
        "values 0 0 1 1 in batches of two, V = 1/4, V0 = 1/4 / 2 * 2/3",
        bias(small, [0, 1, 2, 3], 2),
    )
    yield "the order 0 2 1 3 makes batches that are alike", bias(small, [0, 2, 1, 3], 2)
    values = torch.rand(5, generator=rng)
    orders = list(itertools.permutations(range(5)))
    yield "batches of one row are as good as random, always", bias(values, orders[seed % 120], 1)
    yield (
        "the mean over all 120 orders of 5 rows",
        statistics.mean(bias(values, order, 2) for order in orders),
    )

    batch, n_batches = 4 + seed % 3, 6
    n = batch * n_batches
    values = torch.randn(n, generator=rng)
    order = torch.randperm(n, generator=rng)
    yield "random values in random order", bias(values, order, batch)
    yield (
        "sorted values in the order of the file",
        bias(values.sort().values, torch.arange(n), batch),
    )
    values = torch.cat([values, 3 + torch.rand(batch - 1, generator=rng)])
    order = torch.randperm(len(values), generator=rng)
    yield "the rows after the last full batch: in m and s² only", bias(values, order, batch)
    yield (
        "one full batch, and some rows more",
        bias(values[: batch + 2], order[order < batch + 2], batch),
    )

    # Squares of such times are multiples of 512 in float64; the variance of numbers below 40 is at
    # most 400.
    times = 1_600_000_000 + torch.randint(40, (n,), generator=rng)
    order = torch.randperm(n, generator=rng)
    yield "Unix times, whole numbers, counted in float64", bias(times, order, batch)
    yield (
        "float16 values, whose sum is beyond float16",
        bias(times.sub(1_600_000_000).mul(1250).half(), order, batch),
    )
    yield (
        "a batch larger than the file raises ValueError",
        error_name(lambda: bias(times, order, n + 1)),
    )
    yield "one batch of all rows raises ValueError", error_name(lambda: bias(times, order, n))
    yield (
        "values that are all 2 raise ValueError",
        error_name(lambda: bias([2.0] * n, order, batch)),
    )
    sevenths = [torch.full((n,), x / 7, dtype=torch.float64) for x in range(30)]
    same = {error_name(lambda values=values: bias(values, order, batch)) for values in sevenths}
    yield "and so do values that are all 1/7, or 2/7, or 3/7 and so on", sorted(same)
