"""Probe of exercise timed_training."""

import torch
from torch import nn

from course.checks.engine import exercise

SECONDS = (0.0, 3.0, 3.5, 10.0, 10.25, 20.0, 22.0, 30.0)  # what the clock of the probe says, call by call


class _Watched(nn.Module):
    """A line through the origin that notes each forward pass, and its weight at that time."""

    def __init__(self, note, start):
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([start]))
        self.note, self.weights, self.gradients = note, [], []

    def forward(self, x):
        self.note("forward")
        self.weights.append(self.weight.item())
        self.gradients.append(self.weight.grad is not None and bool(self.weight.grad.any()))
        return x * self.weight


@exercise()
def timed_training(answer, device, seed):
    """Epochs of a training, timed with a clock and a synchronisation that note when they are called."""
    start = 0.5 + seed % 4
    x = torch.tensor([1.0, 2.0], device=device)
    batches = [(x, 3 * x), (2 * x, 6 * x)]

    def run(epochs):
        events, times = [], iter(SECONDS)

        def note(event):
            events.append(event)

        def clock():
            note("clock")
            return next(times)

        model = _Watched(note, start).to(device)
        seconds = answer(model, batches, 0.01, epochs, lambda: note("synchronize"), clock)
        return model, events, seconds

    model, events, seconds = run(2)
    listed = isinstance(seconds, (list, tuple))
    kinds = [type(s).__name__ for s in seconds] if listed else f"one {type(seconds).__name__}"
    yield "returns a list of seconds, one per timed epoch", kinds
    yield "one warm-up epoch and the timed ones", events.count("forward")
    yield "every batch changes the weight of `model`", len({round(w, 6) for w in model.weights})
    yield "no gradient is left over from the batch before", any(model.gradients[1:])
    yield "the weight at each forward pass is that of SGD on the mean squared error", torch.tensor(model.weights)
    yield "two readings of the clock per timed epoch", events.count("clock")
    yield "the clock is read around each timed epoch, after synchronize()", events
    yield "the seconds of each epoch", list(seconds)
    yield "one epoch", list(run(1)[2])
