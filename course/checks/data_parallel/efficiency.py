"""Probe of exercise efficiency."""

import torch

from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.errors import error_name
from course.engine.probing.laws import tried


@exercise()
def efficiency(answer: Answer, device: torch.device, seed: int) -> Facts:
    """Tables of times, some of them ideal."""
    rng = torch.Generator().manual_seed(seed)
    ranks = [1, 2, 4, 8 + seed % 5]
    ideal = 60.0 / torch.tensor(ranks)
    strong = answer(ranks, ideal)
    yield "returns a tensor", type(strong).__name__
    yield "one value for each measurement", strong.shape
    yield "float64", strong.dtype
    yield "strong scaling, ideal times: 1 everywhere", strong
    yield "strong scaling, times that do not change", answer(ranks, torch.full((4,), 60.0))
    times = ideal + 30 * torch.rand(4, generator=rng)
    yield "strong scaling, times as they are measured", answer(ranks, times)
    weak = answer(ranks, torch.full((4,), 60.0), weak=True)
    yield "weak scaling, times that do not change: 1 everywhere", weak
    grown = 40 + 30 * torch.rand(4, generator=rng)
    yield "weak scaling, times as they are measured", answer(ranks, grown, weak=True)
    mixed = [ranks[2], ranks[0], ranks[3], ranks[1]]
    yield "ranks in another order", answer(mixed, times)
    yield "values above 1 stay", answer([1, 2], torch.tensor([10.0, 4.0]))
    precise = torch.tensor([1.0, 0.7], dtype=torch.float64)
    yield "float64 times keep their precision", answer([1, 3], precise)
    yield "one measurement", answer([1], torch.tensor([3.0]))
    without_one_rank = error_name(answer, [2, 4], torch.tensor([3.0, 2.0]))
    yield "no measurement on one rank", tried(without_one_rank, ranks)
