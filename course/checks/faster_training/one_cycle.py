"""Probe of exercise one_cycle."""

from collections.abc import Iterable
from typing import Any

import torch

from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.errors import error_name
from course.engine.probing.laws import tried
from course.engine.probing.values import numbered, type_word

LEARNING_RATE, MOMENTUM = 0, 1  # places in what the answer returns


@exercise(forbids=("torch.optim.lr_scheduler",))
def one_cycle(answer: Answer, device: torch.device, seed: int) -> Facts:
    """Three straight lines of learning rate and momentum."""
    epochs = 4
    per_epoch = 10 * (1 + seed % 3)
    max_lr = 0.5 + seed % 5
    total = epochs * per_epoch
    half = total * 9 // 20  # whole
    schedule = (epochs, per_epoch, max_lr)

    def values(
        steps: Iterable[int], which: int, schedule: tuple = schedule, **options: Any
    ) -> dict[str, float]:
        """The learning rates or momenta of several steps."""
        found = [answer(step, *schedule, **options)[which] for step in steps]
        return numbered("after steps", found)

    first = answer(0, *schedule)
    types = [type_word(first), *(type_word(value) for value in first)]
    yield "returns a tuple of learning rate and momentum", types
    yield "the learning rate of step 0 is max_lr / start", first[LEARNING_RATE]
    of_first_epoch = {answer(step, *schedule)[LEARNING_RATE] for step in range(per_epoch)}
    yield "the learning rate changes at each step, not once per epoch", len(of_first_epoch)
    top = answer(half - 1, *schedule)[LEARNING_RATE]
    yield "the learning rate at the top, step h - 1", top
    yield "the way up", values(range(half), LEARNING_RATE)
    back = answer(2 * half - 2, *schedule)[LEARNING_RATE]
    yield "back at max_lr / start in step 2h - 2", back
    yield "the way down", values(range(half, 2 * half - 1), LEARNING_RATE)
    last = answer(total - 1, *schedule)[LEARNING_RATE]
    yield "the last step is several orders lower", 1e6 * last
    yield "the last line", values(range(2 * half - 1, total), LEARNING_RATE)
    yield "momentum of step 0", first[MOMENTUM]
    yield "momentum at the top", answer(half - 1, *schedule)[MOMENTUM]
    yield "all momenta", values(range(total), MOMENTUM)
    odd = (3, 11 + 2 * (seed % 4), 1.0)
    odd_steps = range(3 * odd[1])
    rates = values(odd_steps, LEARNING_RATE, odd)
    yield "points that lie between two steps: learning rates", rates
    yield "points that lie between two steps: momenta", values(odd_steps, MOMENTUM, odd)
    options = dict(cycle=0.6, start=4.0, final=50.0, momenta=(0.5, 0.8))
    rates = values(range(total), LEARNING_RATE, **options)
    yield "another cycle, start, final: learning rates", rates
    momenta = values(range(total), MOMENTUM, **options)
    yield "another cycle and other momenta: momenta", momenta
    yield "the step after the last raises", tried(error_name(answer, total, *schedule), total)
    yield "a step of -1 raises", tried(error_name(answer, -1, *schedule), total)
