"""Probe of exercise data_parallel."""

import threading

import torch
from torch import nn

from course.checks.data_parallel.shared import (
    READY_MADE,
    _alone,
    _bytes,
    _equal,
    _gradients,
    _Meeting,
    _module,
    _new_threads,
    _same_state,
    _sizes,
    _Stamping,
    _state,
    _ways,
)
from course.checks.engine import exercise
from course.distributed import Transfers


class _Pair(nn.Module):
    """Takes a dict with two tensors and an exponent."""

    def __init__(self):
        super().__init__()
        self.left, self.right = nn.Linear(4, 2), nn.Linear(3, 2, bias=False)

    def forward(self, batch):
        return self.left(batch["x"]) * self.right(batch["more"][0]) ** batch["power"]


class _Loss(nn.Module):
    """A module that computes its loss itself."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 1)

    def forward(self, x):
        return self.inner(x).square().mean()


@exercise(forbids=READY_MADE)
def data_parallel(answer, device, seed):
    """A module on parts of a batch, against the module alone."""
    n = 3 + seed % 2
    module = _module(device, seed)
    size = _bytes(module)
    before = _state(module)
    threads = set(threading.enumerate())

    def rows(length, width=4):
        return torch.randn(length, width, dtype=torch.float64).to(device)

    def loss(outputs):
        return (outputs.square() * torch.linspace(1, 2, len(outputs), device=device)[:, None]).mean()

    for length, text in ((2 * n, "equal parts"), (3 * n - 1, "a short last part"), (n - 1, "fewer rows than devices")):
        batch, transfers = rows(length), Transfers([device] * n)
        expected, alone = _alone(module, batch, loss)
        module.zero_grad()
        outputs = answer(module, batch, transfers)
        yield f"{text}: the outputs", outputs
        yield f"{text}: the outputs equal those of the module alone", _equal(outputs, expected)
        yield f"{text}: the module keeps its parameters, buffers and grad", _same_state(module, before)
        if length > n:
            loss(outputs).backward()
            yield f"{text}: the gradients", _gradients(module)
            yield f"{text}: the gradients equal those of the module alone", _equal(_gradients(module), alone)
        places = [len(piece) for piece in batch.chunk(n)]
        yield f"{text}: messages", sorted(_ways(transfers.log))
        parts = [(0, k, rows * batch[0].nbytes) for k, rows in enumerate(places)]
        back = [(k, 0, rows * outputs[0].nbytes) for k, rows in enumerate(places)]
        expected = sorted([*parts, *[(0, k, size) for k in range(len(places))], *back])
        yield f"{text}: bytes of the messages, sorted by their way", _sizes(sorted(transfers.log))
        yield f"{text}: these are those of parts, module and outputs", sorted(transfers.log) == expected
        module.zero_grad()

    batch = {"x": rows(2 * n), "more": (rows(2 * n, 3), "name"), "power": 2}
    torch.manual_seed(seed)
    pair, transfers = _Pair().double().to(device), Transfers([device] * n)
    outputs = answer(pair, batch, transfers)
    yield "a batch that is a dict", outputs
    yield "a batch that is a dict: equal to the module alone", _equal(outputs, pair(batch))
    yield "a batch that is a dict: messages", sorted(_ways(transfers.log))
    with torch.no_grad():
        yield "under torch.no_grad the outputs need no gradient", not answer(pair, batch, transfers).requires_grad
    batch, inner = rows(2 * n), _Loss().double().to(device)
    losses = answer(inner, batch, Transfers([device] * n))
    yield "a module that returns a loss: one a part", losses
    yield "equal to the losses of the parts alone", _equal(losses, torch.stack([inner(b) for b in batch.chunk(n)]))
    transfers = Transfers([device])
    yield "a single device", answer(module, batch, transfers)
    yield "a single device: messages", _ways(transfers.log)
    meeting = _Meeting(n)

    class Meets(nn.Module):
        def forward(self, part):
            return meeting.replicas[int(part[0])](part)

    yield "what was sent is what is used, at every step", answer(module, batch, _Stamping([device] * n))
    answer(Meets(), torch.arange(n, device=device), Transfers([device] * n))
    yield "the replicas run at the same time", all(meeting.met)
    yield "no thread is left", _new_threads(threads)
