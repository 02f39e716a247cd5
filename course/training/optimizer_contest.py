"""Trainings for a contest of optimizers: *a learning rate and a seed -> HR@10*.

`tuned.tuned` chooses the learning rate of each, and compares them seed by seed.
"""

from collections.abc import Callable, Iterable

import torch
from torch import nn

from course.training.recommender import Experiment, final_scores
from course.training.recommender_loop import Schedule

Ramp = Callable[..., float]  # (step, steps_per_epoch, lr, warmup_epochs) -> learning rate


def constant_lr(lr: float) -> Schedule:
    """The schedule with `lr` at every step."""
    return lambda step, steps_per_epoch: lr


def ramp_and_decay(
    ramp: Ramp, epochs: float, ramp_epochs: float = 1
) -> Callable[[float], Schedule]:
    """peak -> a schedule of `epochs` epochs: a ramp over the first, times quadratic decay."""

    def of_peak(peak: float) -> Schedule:
        def schedule(step: int, steps_per_epoch: int) -> float:
            left = 1 - step / (epochs * steps_per_epoch)
            return ramp(step, steps_per_epoch, peak, ramp_epochs) * left**2

        return schedule

    return of_peak


def scheduled_lrs(scheduler: torch.optim.lr_scheduler.LRScheduler, steps: int) -> list[float]:
    """The learning rates that a scheduler of torch sets for the first `steps` updates.

    Args:
        scheduler: of an optimizer with one parameter group; it and its optimizer make the steps.
    """
    lrs = []
    for _ in range(steps):
        lrs += scheduler.get_last_lr()
        scheduler.optimizer.step()
        scheduler.step()
    return lrs


def scored(
    experiment: Experiment,
    make_optimizer: Callable[[Iterable[nn.Parameter], float], torch.optim.Optimizer],
    batch: int,
    schedule_of: Callable[[float], Schedule],
) -> Callable[[float, int], float]:
    """(learning rate, seed) -> HR@10 at the end of a fresh training, 0 if it diverged.

    Args:
        make_optimizer: (parameters, learning rate) -> optimizer.
        schedule_of: learning rate -> schedule.
    """

    def train(lr: float, seed: int) -> float:
        history = experiment.train_fresh(
            lambda parameters: make_optimizer(parameters, lr),
            batch,
            seed,
            schedule=schedule_of(lr),
            evaluate_every=experiment.epochs,
        )
        return final_scores([history])[0]

    return train
