"""Probe of exercise polynomial_decay."""

import torch

from course.checks.large_batch.schedules import learning_rates
from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.values import number_kind


@exercise()
def polynomial_decay(answer: Answer, device: torch.device, seed: int) -> Facts:
    """The learning rate at the start, on the way, at the end and after it."""
    steps = 8 + seed % 9
    lr = 0.35 + (seed % 113) / 10

    def rates(first: int = 0, end: int = 3 * steps, **power: float) -> dict[str, float]:
        return learning_rates(answer, range(first, end), steps, lr, **power)

    first = answer(0, steps, lr)
    yield "returns a number, no tensor", number_kind(first)
    yield "step 0 has the full learning rate", first
    yield "half-way, with power 2", answer(steps, 2 * steps, lr)
    yield "every step of the schedule, with power 2", rates(end=steps)
    yield "max_steps has the learning rate 0", answer(steps, steps, lr)
    seen = list(rates().values())
    never_rises = all(a >= b for a, b in zip(seen[:-1], seen[1:], strict=True))
    yield "the learning rate never rises again", never_rises
    yield "after the end the learning rate is 0", rates(steps)
    yield "and exactly 0", all(rate == 0 for rate in rates(steps).values())
    yield "power 1: a straight line, then 0", rates(power=1)
    yield "power 3: never below 0", rates(power=3)
    yield "power 0.5", rates(power=0.5)
    yield "a schedule of one step", learning_rates(answer, range(3), 1, lr)
