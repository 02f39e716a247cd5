"""Probe of exercise accumulate."""

import contextlib

import torch
from torch.nn import functional as F

from course.checks.data_parallel.networks import classifier, micro_batches
from course.engine.exercise import Answer, Facts, exercise


class _Notes:
    """What a loop does with a model and an optimizer, written down as it happens."""

    def __init__(self, model, optimizer):
        self.events, self.gradients, self.forward, self.backward, self.inside = (
            [],
            [],
            [],
            [],
            False,
        )
        self.parameters = list(model.parameters())
        model.register_forward_hook(self._forward)
        optimizer.register_step_pre_hook(self._step)

    def _forward(self, module, inputs, output):
        self.events.append("forward")
        self.forward.append(self.inside)
        output.register_hook(self._backward)

    def _backward(self, gradient):
        self.events.append("backward")
        self.backward.append(self.inside)

    def _step(self, optimizer, *_):
        self.events.append("step")
        self.gradients.append(
            [torch.zeros_like(p) if p.grad is None else p.grad.clone() for p in self.parameters]
        )

    @contextlib.contextmanager
    def no_sync(self):
        before, self.inside = self.inside, True
        try:
            yield
        finally:
            self.inside = before


def _far_off(outputs, targets):
    return (outputs.sum(1) - targets).square().mean()


@exercise()
def accumulate(answer: Answer, device: torch.device, seed: int) -> Facts:
    """The loop event by event: which passes run, inside no_sync or not, and what each update steps
    with.
    """
    rng = torch.Generator().manual_seed(seed)
    size = 3 + seed % 2

    def noted(sizes, every, loss_fn=F.cross_entropy, stale=False):
        model = classifier(seed).to(device)
        batches = micro_batches(rng, sizes, device)
        if stale:
            F.cross_entropy(model(batches[0][0]), batches[0][1]).backward()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.4)
        notes = _Notes(model, optimizer)
        return answer(model, batches, loss_fn, optimizer, every, notes.no_sync), notes

    updates, notes = noted([size] * 6, 3)
    yield "returns the number of updates", updates
    yield "six micro-batches, an update after every third", _passes_before_steps(notes)
    yield "the gradient of the first update is the mean over its samples", notes.gradients[:1]
    yield "so is that of the second", notes.gradients[1:]
    yield "a micro-batch goes backward before the next goes forward", notes.events
    yield "which forward passes are inside no_sync()", notes.forward
    yield "which backward passes are inside no_sync()", notes.backward
    yield "the weights at the end", notes.parameters
    updates, notes = noted([size, 1, 2 * size, 2], 2)
    yield "micro-batches of different sizes: every sample weighs the same", notes.gradients
    updates, notes = noted([size] * 8, 3)
    yield "eight micro-batches, the last group is short: updates", updates
    yield "the short group ends with its own update", _passes_before_steps(notes)
    yield "its gradient is the mean over its samples", notes.gradients
    yield "its last micro-batch is outside no_sync()", [notes.forward, notes.backward]
    _, notes = noted([size, size], 2, stale=True)
    yield "gradients that lay there at the start do not count", notes.gradients
    updates, notes = noted([size, 2], 5)
    yield "an epoch shorter than a group", [updates, notes.events, notes.gradients]
    _, notes = noted([size, 2], 2, _far_off)
    yield "another loss function", notes.gradients
    yield "an epoch without micro-batches", noted([], 3)[0]


def _passes_before_steps(notes):
    """How many backward passes had run at each step of the optimizer."""
    return [
        notes.events[:i].count("backward")
        for i, event in enumerate(notes.events)
        if event == "step"
    ]
