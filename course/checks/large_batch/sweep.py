"""Probe of exercise sweep."""

import math

import torch

from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.values import number_kind


class Training:
    """A training whose score falls with the distance from the best place of a grid.

    Places count from `start`, in steps of `factor`. Above `edge` it diverges: its score is NaN.
    """

    def __init__(self, start: float, factor: float, peak: int, edge: int = 99) -> None:
        self.start = start
        self.factor = factor
        self.peak = peak
        self.edge = edge
        self.tried = []  # places, in order

    def place(self, lr: float) -> int:
        """The place of `lr` on the grid."""
        return round(math.log(lr / self.start) / math.log(self.factor))

    def __call__(self, lr: float) -> float:
        place = self.place(lr)
        self.tried.append(place)
        if place > self.edge:
            return math.nan
        return 0.7 - 0.01 * (place - self.peak) ** 2

    @property
    def has_both_neighbours(self) -> bool:
        return {self.peak - 1, self.peak, self.peak + 1} <= set(self.tried)


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
    runs = (*above.tried, None, *below.tried)
    yield (
        "no learning rate is trained twice",
        len(runs) == len({*above.tried}) + 1 + len({*below.tried}),
    )
    few = len(above.tried) <= above.peak + 3 and len(below.tried) <= 3 + 3
    yield "it stops then", few
    edge = Training(start, factor, 3, edge=1)
    yield "the neighbour above diverges: NaN is worse than any number", found(edge)
    falling = Training(start, factor, -2, edge=0)
    yield "the first one above diverges, and lower ones are better", found(falling)
    far = Training(start, factor, 40)
    place = found(far, most=5)
    yield "at most `most` runs", len(far.tried)
    yield "then it returns the best that it tried", place == max(far.tried)
    yield "by default it moves in steps of 4", _default_step(answer)
    many = Training(1.0, 4.0, 30)
    answer(many, 1.0)
    yield "by default at most 9 runs", len(many.tried)


def _default_step(answer) -> float:
    tried = []

    def score(lr):
        tried.append(lr)
        return -abs(math.log(lr))

    answer(score, 1.0)
    return max(tried)
