"""What the hooks write down while a training runs; summary.py makes plain facts of it."""

import collections
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.optim import Optimizer
from torch.utils.data import DataLoader


@dataclass
class Call:
    """One call of a module, so that it can be run again."""

    module: torch.nn.Module
    args: tuple
    kwargs: dict[str, Any]
    # index among the output's tensors -> gradient
    gradients: dict[int, torch.Tensor] = field(default_factory=dict)
    autocast: torch.dtype | None = None  # in which the script called it


@dataclass
class SeenOptimizer:
    """An optimizer that steps."""

    optimizer: Optimizer
    steps_now: int = 0  # in the step of the training that runs
    steps_max: int = 0  # in one step of the training


@dataclass
class SeenLoader:
    """A DataLoader, and how many steps used a batch of it."""

    loader: DataLoader
    steps: int = 0


@dataclass
class Seen:
    """Everything that is not a time; ids are those of the objects while they are watched."""

    models: dict[int, torch.nn.Module] = field(default_factory=dict)  # that the script calls
    calls: dict[int, Call] = field(default_factory=dict)  # the last one of each model
    optimizers: dict[int, SeenOptimizer] = field(default_factory=dict)
    leader: weakref.ref[Optimizer] | None = None  # the first optimizer: its steps end a step
    loaders: dict[int, SeenLoader] = field(default_factory=dict)
    batch: Any = None  # the last one
    # line -> forward passes that evaluate and record a graph
    graphs: collections.Counter[str] = field(default_factory=collections.Counter)
    forwards: int = 0  # that train
    backwards: int = 0
    zeroed: int = 0  # calls of zero_grad that fill gradients with zeros
    processes: int = 0  # that the script starts, without the workers of loaders
    compiled: bool = False  # torch.compile was called

    def parameters(self) -> Iterator[torch.Tensor]:
        """The parameters of all optimizers."""
        for seen in self.optimizers.values():
            for group in seen.optimizer.param_groups:
                yield from group["params"]

    def train_loader(self) -> DataLoader | None:
        """The DataLoader whose batches most steps used."""
        by_use = sorted(self.loaders.values(), key=lambda seen: seen.steps)
        return by_use[-1].loader if by_use else None
