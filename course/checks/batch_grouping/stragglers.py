"""Probe of exercise stragglers."""

import torch

from course.checks.engine import exercise


@exercise(isolated=True)
def stragglers(answer, device, seed):
    """The share of all ranks' time that is spent waiting."""
    rng = torch.Generator().manual_seed(seed)
    tokens = torch.randint(50, 400, (7 + seed % 3, 4), generator=rng)
    yield "returns a Python float", type(answer(tokens)).__name__
    yield "four ranks", answer(tokens)
    yield "equal ranks do not wait", answer(torch.full((5, 3), 20))
    yield "one rank works, one waits", answer(torch.tensor([[100, 0]]))
    yield "it differs from step to step who waits", answer(torch.tensor([[10, 30], [30, 10]]))
    yield "long steps weigh more", answer(torch.tensor([[1000, 500], [1, 1]]))
    yield "a single rank never waits", answer(tokens[:, :1])
