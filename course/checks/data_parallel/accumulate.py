"""Probe of exercise accumulate."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from course.checks.data_parallel.networks import classifier, micro_batches
from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.laws import tried

Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


class _Notes:
    """What a loop does with a model and an optimizer, written down as it happens.

    `events` the words forward, backward and step in order; `forward` and `backward` whether each of
    these passes was inside no_sync(); `gradients` those of each update.
    """

    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        self.events = []
        self.gradients = []
        self.forward = []
        self.backward = []
        self.inside = False
        self.parameters = list(model.parameters())
        model.register_forward_hook(self._forward)
        optimizer.register_step_pre_hook(self._step)

    def _forward(self, module: nn.Module, inputs: tuple, output: torch.Tensor) -> None:
        self.events.append("forward")
        self.forward.append(self.inside)
        output.register_hook(self._backward)

    def _backward(self, gradient: torch.Tensor) -> None:
        self.events.append("backward")
        self.backward.append(self.inside)

    def _step(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        self.events.append("step")
        gradients = []
        for p in self.parameters:
            gradients.append(torch.zeros_like(p) if p.grad is None else p.grad.clone())
        self.gradients.append(gradients)

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """As DDP's: passes inside the block are noted as such."""
        before = self.inside
        self.inside = True
        try:
            yield
        finally:
            self.inside = before

    def passes_before_steps(self) -> list[int]:
        """How many backward passes had run at each step of the optimizer."""
        passes = 0
        at_steps = []
        for event in self.events:
            if event == "backward":
                passes += 1
            elif event == "step":
                at_steps.append(passes)
        return at_steps


def _squared_error_of_sums(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return (outputs.sum(1) - targets).square().mean()


@exercise()
def accumulate(answer: Answer, device: torch.device, seed: int) -> Facts:
    """The loop event by event: passes, inside no_sync or not, and the gradients of each update."""
    rng = torch.Generator().manual_seed(seed)
    size = 3 + seed % 5

    def noted(
        sizes: Sequence[int], every: int, loss_fn: Loss = F.cross_entropy, stale: bool = False
    ) -> tuple[int, _Notes]:
        """The number of updates that the answer returns, and the notes on what it did."""
        model = classifier(seed).to(device)
        batches = micro_batches(rng, sizes, device)
        if stale:
            inputs, labels = batches[0]
            F.cross_entropy(model(inputs), labels).backward()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.4)
        notes = _Notes(model, optimizer)
        return answer(model, batches, loss_fn, optimizer, every, notes.no_sync), notes

    updates, notes = noted([size] * 6, 3)
    yield "returns the number of updates", updates
    yield "six micro-batches, an update after every third", notes.passes_before_steps()
    yield "the gradient of the first update is the mean over its samples", notes.gradients[:1]
    yield "so is that of the second", notes.gradients[1:]
    yield "a micro-batch goes backward before the next goes forward", notes.events
    yield "which forward passes are inside no_sync()", tried(notes.forward, size)
    yield "which backward passes are inside no_sync()", tried(notes.backward, size)
    yield "the weights at the end", notes.parameters

    updates, notes = noted([size, 1, 2 * size, 2], 2)
    yield "micro-batches of different sizes: every sample weighs the same", notes.gradients

    updates, notes = noted([size] * 8, 3)
    yield "eight micro-batches, the last group is short: updates", updates
    yield "the short group ends with its own update", notes.passes_before_steps()
    yield "its gradient is the mean over its samples", notes.gradients
    passes = tried([notes.forward, notes.backward], size)
    yield "its last micro-batch is outside no_sync()", passes

    _, notes = noted([size, size], 2, stale=True)
    yield "gradients that lay there at the start do not count", notes.gradients
    updates, notes = noted([size, 2], 5)
    yield "an epoch shorter than a group", [updates, notes.events, notes.gradients]
    _, notes = noted([size, 2], 2, _squared_error_of_sums)
    yield "another loss function", notes.gradients
    updates, _ = noted([], 3)
    yield "an epoch without micro-batches", updates
