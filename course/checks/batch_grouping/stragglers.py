"""Probe of exercise stragglers."""

import torch

from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.values import type_word


@exercise()
def stragglers(answer: Answer, device: torch.device, seed: int) -> Facts:
    """The share of all ranks' time that is spent waiting."""
    rng = torch.Generator().manual_seed(seed)
    cells = torch.randint(50, 400, (7 + seed % 3, 4), generator=rng)
    yield "returns a Python float", type_word(answer(cells))
    yield "one step of two ranks, 100 and 60 cells", answer(torch.tensor([[100, 60]]))
    yield "one step of three ranks, 100, 60 and 20 cells", answer(torch.tensor([[100, 60, 20]]))
    yield "equal ranks do not wait", answer(torch.full((5, 3), 20))
    yield "two steps, 10 and 30 cells, then 30 and 10", answer(torch.tensor([[10, 30], [30, 10]]))
    long_and_short = answer(torch.tensor([[1000, 500], [1, 1]]))
    yield "a long step and a short one, 1,000 and 500 cells, then 1 and 1", long_and_short
    yield "several steps of four ranks", answer(cells)
    yield "a single rank never waits", answer(cells[:, :1])
