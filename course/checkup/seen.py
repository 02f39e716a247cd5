"""What the hooks write down while a training runs; summary.py makes plain facts of it."""

import collections
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.optim import Optimizer
from torch.utils.data import DataLoader

from course.checkup.failures import Failures


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
    alone: int = 0  # steps since the leader's last one
    alone_since: int = 0  # how many steps the leader had taken then


@dataclass
class SeenLoader:
    """A DataLoader, and how many steps used a batch of it."""

    loader: DataLoader
    steps: int = 0


@dataclass
class Seen:
    """Everything that is not a time; ids are those of the objects while they are watched."""

    # by id, that the script calls; it may throw them away
    models: weakref.WeakValueDictionary[int, torch.nn.Module] = field(
        default_factory=weakref.WeakValueDictionary
    )
    calls: dict[int, Call] = field(default_factory=dict)  # the last ones of the last step
    optimizers: dict[int, SeenOptimizer] = field(default_factory=dict)
    leader: weakref.ref[Optimizer] | None = None  # the first optimizer: its steps end a step
    leader_steps: int = 0
    loaders: dict[int, SeenLoader] = field(default_factory=dict)
    batch: Any = None  # the last one
    # (phase, line) -> forward passes in eval mode that record a graph
    graphs: collections.Counter[tuple[str, str]] = field(default_factory=collections.Counter)
    backwards: int = 0
    ends_by_backward: bool = False  # no optimizer of torch.optim steps: backward ends a step
    zeroed: int = 0  # calls of zero_grad that fill gradients with zeros
    processes: int = 0  # that the script starts, without the workers of loaders
    compiled: bool = False  # torch.compile was called
    gpu_util: float | None = None  # of the steps that were timed, if the GPU tells
    failures: Failures = field(default_factory=Failures)  # of our own looks

    def note_model(self, module: torch.nn.Module) -> None:
        """Note a module that the script calls."""
        self.models[id(module)] = module

    def parameters(self) -> Iterator[torch.Tensor]:
        """The parameters of all optimizers."""
        for seen in self.optimizers.values():
            for group in seen.optimizer.param_groups:
                yield from group["params"]

    def train_loader(self) -> DataLoader | None:
        """The DataLoader whose batches most steps used."""
        by_use = sorted(self.loaders.values(), key=lambda seen: seen.steps)
        return by_use[-1].loader if by_use else None
