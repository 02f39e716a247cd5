"""Probe of exercise route_tokens."""

import torch
from torch import Tensor

from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.tensors import kind


def _scores(device: torch.device, seed: int, tokens: int, experts: int) -> Tensor:
    rng = torch.Generator().manual_seed(seed)
    return torch.randn(tokens, experts, generator=rng).to(device)


@exercise()
def route_tokens(answer: Answer, device: torch.device, seed: int) -> Facts:
    """The slot of each token, -1 for those that are dropped."""
    few = _scores(device, seed, 6, 3)
    roomy = answer(few, 6)
    yield "returns a tensor, a whole number per token", kind(roomy)
    yield "there is room for all", roomy
    yield "one place per expert", answer(few, 1)
    for experts, capacity in ((4, 5), (2 + seed % 4, 3), (5, 2)):
        scores = _scores(device, seed + experts, 24, experts)
        slots = answer(scores, capacity)
        setting = f"24 tokens, {experts} experts with {capacity} places"
        yield setting, slots
        yield f"{setting}: how many tokens are dropped", int((slots == -1).sum())
    crowded = _scores(device, seed + 9, 9, 4)
    crowded[:, seed % 4] += 10
    yield "all tokens want the same expert", answer(crowded, 4)
    yield "only negative scores", answer(few - 10, 2)
    yield "one expert", answer(_scores(device, seed, 5, 1), 3)
