"""Measure how far one update moves each tensor: *a step -> update-to-weight ratios*.

A ratio of 1 means that the update is as long as the weights themselves.
"""

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor, nn


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


def extremes(runs: Sequence[Mapping[str, float]], kind: str) -> tuple[Tensor, Tensor]:
    """(largest, smallest) update-to-weight ratio of each run, two tensors (runs,).

    Args:
        runs: {name of a parameter: its ratio} of each run.
        kind: only parameters whose name contains it count, e.g. "weight".
    """
    largest = []
    smallest = []
    for ratios in runs:
        of_kind = [ratio for name, ratio in ratios.items() if kind in name]
        largest.append(max(of_kind))
        smallest.append(min(of_kind))
    return torch.tensor(largest), torch.tensor(smallest)
