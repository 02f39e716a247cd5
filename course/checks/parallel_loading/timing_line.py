"""Probe of exercise timing_line."""

import torch

from course.checks.engine import exercise


@exercise(isolated=True)
def timing_line(answer, device, seed):
    """The line for calm, scattered, single and fast passes."""
    rng = torch.Generator().manual_seed(seed)
    n, size = 50 + seed % 9, 16 + seed % 4
    equal = torch.full((4,), 2.5, dtype=torch.float64)
    yield "returns a string", type(answer(equal, n, size)).__name__
    yield "four passes that took equally long", answer(equal, n, size)
    seconds = 3 + torch.rand(5, generator=rng, dtype=torch.float64)
    line = answer(seconds, n, size)
    yield "five passes: the mean", line.partition(" ")[0]
    yield "five passes: the sample standard deviation, divided by n - 1", line.partition("±")[2].split(" ")[:2]
    yield "five passes: the whole line", line
    wide = torch.tensor([0.5, 4.0, 1.0], dtype=torch.float64)
    yield "the rate is that of the mean seconds", answer(wide, n, size)
    yield "thousands have a comma in the rate, and none in the batches", answer(wide / 64, 1000 + n, 512)
    yield "a slow loader: the rate has no decimals", answer(100 * seconds, n, size)
    yield "two passes", answer(seconds[:2], n, size)
    yield "a single pass has no spread", answer(seconds[:1], n, size)
