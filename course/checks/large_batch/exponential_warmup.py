"""Probe of exercise exponential_warmup."""

import torch

from course.checks.large_batch.schedules import learning_rates
from course.engine.exercise import Answer, Facts, exercise


@exercise()
def exponential_warmup(answer: Answer, device: torch.device, seed: int) -> Facts:
    """An exponential ramp over a fraction of an epoch."""
    lr = 0.6 + (seed % 29) / 4
    epoch = 40 + 10 * (seed % 4)  # a warm-up of 4 to 7 whole steps
    length = epoch // 10
    yield "step 0 has the learning rate start * lr", answer(0, epoch, lr, 0.1, 0.01)
    halfway = answer(epoch, epoch, lr, 2, 0.01)
    yield "halfway the learning rate is 0.1 lr, the geometric mean of both ends", halfway
    yield "all steps of the ramp", learning_rates(answer, range(length), epoch, lr, 0.1, 0.01)
    yield "the step after the ramp has the learning rate lr", answer(length, epoch, lr, 0.1, 0.01)
    later = (length + 1, 3 * epoch)
    afterwards = learning_rates(answer, later, epoch, lr, 0.1, 0.01)
    yield "the learning rate stays lr afterwards", afterwards
    yield "another start", learning_rates(answer, range(length), epoch, lr, 0.1, 0.3)
    long_ramp = learning_rates(answer, range(0, 3 * epoch, 7), epoch, lr, 2.5, 0.01)
    yield "a ramp of several epochs", long_ramp
    yield "a ramp of 4.5 steps", learning_rates(answer, range(7), 9, lr, 0.5, 0.01)
    yield "a ramp of less than one step", learning_rates(answer, range(3), 3, lr, 0.1, 0.01)
    yield "no warm-up: lr from step 0 on", learning_rates(answer, range(3), epoch, lr, 0, 0.01)
    default = learning_rates(answer, range(length + 2), epoch, lr)
    yield "by default from 0.01 lr over a tenth of an epoch", default
