"""Measure how far one update moves each tensor: *a step -> update-to-weight ratios*.

A ratio of 1 means that the update is as long as the weights themselves.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from torch import nn


def update_ratios(model: nn.Module, step: Callable[[], object]) -> dict[str, float]:
    """{name: norm of the update / norm of the weights before it} of the parameters of `model`.

    Args:
        step: makes one update of `model`. A tensor of zeros that moves has the ratio infinity, one
            that stays NaN.
    """
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    step()
    ratios = {}
    for name, p in model.named_parameters():
        ratios[name] = ((p.detach() - before[name]).norm() / before[name].norm()).item()
    return ratios


class Extremes(NamedTuple):
    """The largest and the smallest of some update-to-weight ratios."""

    largest: float
    smallest: float

    @property
    def spread(self) -> float:
        """The largest over the smallest."""
        return self.largest / self.smallest


def extremes(updates: Sequence[Mapping[str, float]]) -> Extremes:
    """The Extremes over all parameters of some updates, each {name of a parameter: its ratio}."""
    ratios = [ratio for update in updates for ratio in update.values()]
    return Extremes(max(ratios), min(ratios))
