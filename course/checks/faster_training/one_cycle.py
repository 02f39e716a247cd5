"""Probe of exercise one_cycle."""

import torch

from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.errors import error_name
from course.engine.probing.values import numbered


@exercise(forbids=("torch.optim.lr_scheduler",))
def one_cycle(answer: Answer, device: torch.device, seed: int) -> Facts:
    """Three straight lines of learning rate and momentum."""
    epochs, per_epoch, max_lr = 4, 10 * (1 + seed % 3), 0.5 + seed % 5
    total = epochs * per_epoch
    half = total * 9 // 20  # whole

    def values(steps, which, *length, **options):
        return numbered(
            "after steps",
            [answer(s, *(length or (epochs, per_epoch, max_lr)), **options)[which] for s in steps],
        )

    first = answer(0, epochs, per_epoch, max_lr)
    yield (
        "returns a tuple of learning rate and momentum",
        [type(first).__name__, *(type(v).__name__ for v in first)],
    )
    yield "the learning rate of step 0 is max_lr / start", first[0]
    of_first_epoch = {answer(s, epochs, per_epoch, max_lr)[0] for s in range(per_epoch)}
    yield "the learning rate changes at each step, not once per epoch", len(of_first_epoch)
    yield "the learning rate at the top, step h - 1", answer(half - 1, epochs, per_epoch, max_lr)[0]
    yield "the way up", values(range(half), 0)
    yield (
        "back at max_lr / start in step 2h - 2",
        answer(2 * half - 2, epochs, per_epoch, max_lr)[0],
    )
    yield "the way down", values(range(half, 2 * half - 1), 0)
    yield (
        "the last step is several orders lower",
        1e6 * answer(total - 1, epochs, per_epoch, max_lr)[0],
    )
    yield "the last line", values(range(2 * half - 1, total), 0)
    yield "momentum of step 0", first[1]
    yield "momentum at the top", answer(half - 1, epochs, per_epoch, max_lr)[1]
    yield "all momenta", values(range(total), 1)
    odd = (3, 11 + 2 * (seed % 4), 1.0)
    yield "points that lie between two steps: learning rates", values(range(3 * odd[1]), 0, *odd)
    yield "points that lie between two steps: momenta", values(range(3 * odd[1]), 1, *odd)
    options = dict(cycle=0.6, start=4.0, final=50.0, momenta=(0.5, 0.8))
    yield "another cycle, start, final: learning rates", values(range(total), 0, **options)
    yield "another cycle and other momenta: momenta", values(range(total), 1, **options)
    yield "the step after the last raises", error_name(answer, total, epochs, per_epoch, max_lr)
    yield "a step of -1 raises", error_name(answer, -1, epochs, per_epoch, max_lr)
