"""Probe of exercise outer_step."""

import torch

from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.values import type_word

NUMBERS = 4


@exercise()
def outer_step(answer: Answer, device: torch.device, seed: int) -> Facts:
    """Weights and velocity after outer steps of several ranks."""
    rng = torch.Generator().manual_seed(seed)

    def drawn(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=rng, dtype=torch.float64).to(device)

    start = drawn(NUMBERS)
    ends = start + 0.1 * drawn(3, NUMBERS)
    still = torch.zeros_like(start)
    found = answer(start, ends, still, 1.0, 0.0)
    yield "returns a tuple", type_word(found)
    yield "of the shapes of weights and velocity", [each.shape for each in found]
    yield "learning rate 1, without momentum: weights", found[0]
    yield "learning rate 1, without momentum: velocity", found[1]
    lr = 0.3 + 0.1 * (seed % 5)
    momentum = 0.5 + 0.1 * (seed % 4)
    yield "one rank", answer(start, ends[:1], still, lr, 0.0)[0]
    yield "a smaller learning rate", answer(start, ends, still, lr, 0.0)[0]
    weights, velocity = answer(start, ends, still, lr, momentum)
    yield "momentum, first step: weights", weights
    yield "momentum, first step: velocity", velocity
    weights, velocity = answer(weights, weights + 0.1 * drawn(2, NUMBERS), velocity, lr, momentum)
    yield "momentum, second step: weights", weights
    yield "momentum, second step: velocity", velocity
    weights, velocity = answer(start, ends[:2], drawn(NUMBERS), lr, 0.9)
    yield "any velocity before: weights", weights
    yield "any velocity before: velocity", velocity
