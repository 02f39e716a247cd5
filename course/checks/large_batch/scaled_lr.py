"""Probe of exercise scaled_lr."""

import torch

from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.values import number_kind


@exercise()
def scaled_lr(answer: Answer, device: torch.device, seed: int) -> Facts:
    """The linear scaling rule."""
    lr = 0.005 * (1 + seed % 211)
    base = 64 * (8 + seed % 17)
    yield "returns a number, no tensor", number_kind(answer(lr, base, 2 * base))
    yield "the small batch keeps its learning rate", answer(lr, base, base)
    yield "a batch 16 times as large", answer(lr, base, 16 * base)
    yield "a batch 192 times as large", answer(lr, base, 192 * base)
    yield "a batch half as large", answer(lr, base, base // 2)
    yield "a batch that is not a whole multiple", answer(lr, base, base + base // 3)
    yield "four micro-steps to one update", answer(lr, base, base, accumulation=4)
    yield "three ranks", answer(lr, base, base, ranks=3)
    yield "all together", answer(lr, base, base // 4, accumulation=6, ranks=5)
