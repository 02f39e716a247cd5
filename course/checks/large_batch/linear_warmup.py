"""Probe of exercise linear_warmup."""

import torch

from course.checks.large_batch.schedules import learning_rates
from course.engine.exercise import Answer, Facts, exercise


@exercise()
def linear_warmup(answer: Answer, device: torch.device, seed: int) -> Facts:
    """A linear ramp from the small batch's learning rate."""
    base = 0.1 * (1 + seed % 7)
    epoch = 6 + seed % 11
    lr = base * (8 + seed % 13)
    yield "step 0 has the learning rate of the small batch", answer(0, epoch, base, lr, 3)
    yield "halfway the learning rate is midway between both", answer(2 * epoch, epoch, base, lr, 4)
    yield "all steps of the ramp", learning_rates(answer, range(3 * epoch), epoch, base, lr, 3)
    yield "the step after the ramp has the learning rate lr", answer(3 * epoch, epoch, base, lr, 3)
    later = (3 * epoch + 1, 9 * epoch)
    yield "the learning rate stays lr afterwards", learning_rates(answer, later, epoch, base, lr, 3)
    yield "a ramp of 4.5 steps", learning_rates(answer, range(7), 9, base, lr, 0.5)
    yield "a ramp of less than one step", learning_rates(answer, range(3), 3, base, lr, 0.1)
    yield "no warm-up: lr from step 0 on", learning_rates(answer, range(3), epoch, base, lr, 0)
    default = learning_rates(answer, range(0, 6 * epoch, 5), epoch, base, lr)
    yield "by default over five epochs", default
