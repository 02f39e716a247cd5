"""Probe of exercise sweep."""

import math

import torch

from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.values import number_kind, numbered


class Training:
    """A training whose score falls with the distance from the best place of a grid.

    Places count from `start`, in steps of `factor`. Above `edge` it diverges: its score is NaN.
    `top` is the score of the best place.
    """

    def __init__(
        self, start: float, factor: float, peak: int, edge: int = 99, top: float = 0.7
    ) -> None:
        self.start = start
        self.factor = factor
        self.peak = peak
        self.edge = edge
        self.top = top
        self.tried = []  # places, in order

    def place(self, lr: float) -> int:
        """The place of `lr` on the grid."""
        return round(math.log(lr / self.start) / math.log(self.factor))

    def score(self, place: int) -> float:
        """The score of a place, minus infinity where the training diverges."""
        return -math.inf if place > self.edge else self.top - 0.01 * (place - self.peak) ** 2

    def __call__(self, lr: float) -> float:
        place = self.place(lr)
        self.tried.append(place)
        return math.nan if place > self.edge else self.score(place)

    @property
    def has_both_neighbours(self) -> bool:
        return {self.peak - 1, self.peak, self.peak + 1} <= set(self.tried)

    @property
    def has_twins(self) -> bool:
        """Was a place trained more than once?"""
        return len(self.tried) > len(set(self.tried))

    @property
    def stays_near_the_best(self) -> bool:
        """Was each place after the first a neighbour of the best before it?"""
        for runs in range(1, len(self.tried)):
            best = max(self.tried[:runs], key=self.score)
            if abs(self.tried[runs] - best) > 1:
                return False
        return True


@exercise()
def sweep(answer: Answer, device: torch.device, seed: int) -> Facts:
    """Steps on a grid until the best learning rate lies between two that are worse."""
    start = 0.01 * (1 + seed % 83)
    factor = 2.0 + seed % 3

    def found(training, most=50):
        """The place of the learning rate that `answer` returns."""
        return training.place(answer(training, training.start, training.factor, most))

    yield "returns a number, no tensor", number_kind(answer(Training(0.5, 4.0, 0), 0.5))
    here = Training(start, factor, 0)
    yield "the first learning rate is the best", found(here)
    yield "then three runs are enough", len(here.tried)
    above = Training(start, factor, 2 + seed % 2)
    yield "the best is higher", found(above)
    below = Training(start, factor, -3)
    yield "the best is lower", found(below)
    ends = above.has_both_neighbours and below.has_both_neighbours
    yield "both neighbours of the best were tried", ends
    inexact = _start_that_drifts(seed, 5.0)
    inexact_above = Training(inexact, 5.0, 1)
    inexact_below = Training(inexact, 5.0, -1)
    found(inexact_above)
    found(inexact_below)
    all_of_them = (above, below, inexact_above, inexact_below)
    twins = any(training.has_twins for training in all_of_them)
    yield "no learning rate is trained twice", not twins
    few = len(above.tried) <= above.peak + 3 and len(below.tried) <= 3 + 3
    yield "it stops then", few
    near = above.stays_near_the_best and below.stays_near_the_best
    yield "each run is next to the best so far", near
    yield from _diverging(start, factor, found)
    yield from _limited(start, factor, found)
    yield "by default it moves in steps of 4", _default_step(answer)
    many = Training(1.0, 4.0, 30)
    answer(many, 1.0)
    yield "by default at most 9 runs", len(many.tried)


def _diverging(start, factor, found) -> Facts:
    """Trainings that diverge, with scores above 0 and, as minus a loss, below."""
    losses = {"top": -2.0}
    edge = Training(start, factor, 3, edge=1)
    of_losses = Training(start, factor, 3, edge=1, **losses)
    places = {"scores above 0": found(edge), "scores below 0": found(of_losses)}
    yield "the neighbour above diverges: NaN is worse than any number", places
    falling = Training(start, factor, -2, edge=0)
    of_losses = Training(start, factor, -2, edge=0, **losses)
    places = {"scores above 0": found(falling), "scores below 0": found(of_losses)}
    yield "the first one above diverges, and lower ones are better", places


def _limited(start, factor, found) -> Facts:
    """The best is too far away for the runs that are allowed, an odd or an even number."""
    runs = []
    best_of_tried = True
    for most in range(1, 7):
        far = Training(start, factor, 40)
        place = found(far, most=most)
        runs.append(len(far.tried))
        best_of_tried = best_of_tried and place == max(far.tried)
    yield "at most `most` runs", numbered("most", runs)
    yield "then it returns the best that it tried", best_of_tried


def _start_that_drifts(seed: int, factor: float) -> float:
    """A learning rate that times and divided by `factor` does not give again."""
    start = 0.01
    for hundredths in range(1 + seed % 83, 200):
        start = hundredths / 100
        if start * factor / factor != start and start / factor * factor != start:
            return start
    return start


def _default_step(answer) -> float:
    tried = []

    def score(lr):
        tried.append(lr)
        return -abs(math.log(lr))

    answer(score, 1.0)
    return max(tried)
