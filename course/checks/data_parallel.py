"""Probes of unit 02_data_parallel: what must hold for an answer to each exercise."""

import collections
import contextlib
import copy
import functools
import io
import itertools
import math
import os
import re
import socket
import tempfile
import threading
import time
import warnings
from datetime import timedelta
from types import SimpleNamespace
from unittest import mock

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import distributed_c10d as c10d
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, Sampler, TensorDataset

from course import distributed
from course.checks import ddp_run
from course.checks.compare import differs, plain
from course.checks.engine import exercise
from course.distributed import Transfers, counted, run_ranks, wire_bytes

UNIT = "02_data_parallel"
READY_MADE = ("torch.nn.DataParallel", "torch.nn.parallel")
COLLECTIVES = tuple(
    f"torch.distributed.{name}"
    for name in "broadcast reduce all_reduce gather all_gather scatter reduce_scatter all_to_all".split()
)


MEET = 2  # seconds in which replicas that run at the same time have found each other


def _ways(messages):
    """The way of each message, in words."""
    return [f"place {source} to place {target}" for source, target, _ in messages]


def _sizes(messages):
    return [size for _, _, size in messages]


class _Stamping(Transfers):
    """Adds 1 more than the place it goes to, to all that passes: what has not passed can be told from what has."""

    def send(self, tensors, source, target):
        return [copied + 1 + target for copied in super().send(tensors, source, target)]


class _Cutting(Transfers):
    """Takes the history off all that passes: autograd ends at the border of a device."""

    def send(self, tensors, source, target):
        sent = zip(tensors, super().send(tensors, source, target), strict=True)
        return [copied.detach().requires_grad_(tensor.requires_grad) for tensor, copied in sent]


class _Layers(nn.Module):
    """Two layers with one weight, a frozen parameter, and two buffers, one of which every call changes; row by row."""

    def __init__(self):
        super().__init__()
        self.inner, self.outer = nn.Linear(4, 4), nn.Linear(4, 4)
        self.outer.weight = self.inner.weight
        self.scale = nn.Parameter(torch.rand(4) + 0.5, requires_grad=False)
        self.register_buffer("shift", torch.randn(4), persistent=False)
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
        self.power = 2

    def forward(self, x):
        self.calls += 1
        return self.outer(torch.tanh(self.inner(x) * self.scale + self.shift) ** self.power)


def _module(device, seed):
    """A float64 module with a submodule in eval mode, which would be noticed in train mode."""
    torch.manual_seed(seed)
    module = nn.Sequential(_Layers(), nn.Dropout(0.5), nn.Linear(4, 3)).double().to(device)
    module[1].eval()
    return module


def _bytes(module):
    """Bytes of all parameters and buffers, each once."""
    return sum(tensor.nbytes for tensor in (*module.parameters(), *module.buffers()))


def _at(module, name):
    """What stands in `module` under a dotted name."""
    return functools.reduce(getattr, name.split("."), module)


def _state(module):
    """Whether a module is still what it was: its tensors themselves, their values and gradients."""
    tensors = [*module.named_parameters(), *module.named_buffers()]
    return [(name, id(t), t.detach().clone(), None if t.grad is None else t.grad.clone()) for name, t in tensors]


def _same_state(module, before):
    now = _state(module)
    return [n[:2] for n in now] == [b[:2] for b in before] and all(
        torch.equal(n[2], b[2]) and (n[3] is b[3] is None or torch.equal(n[3], b[3]))
        for n, b in zip(now, before, strict=True)
    )


def _alone(module, batch, loss):
    """(outputs, gradients by name) of a copy of `module` that gets the batch in one piece."""
    module = copy.deepcopy(module)
    module.zero_grad()
    outputs = module(batch)
    loss(outputs).backward()
    return outputs.detach(), {n: p.grad for n, p in module.named_parameters() if p.requires_grad}


def _gradients(module):
    """{name: gradient} of what is not frozen; a string where there is none."""
    named = [(name, p.grad) for name, p in module.named_parameters() if p.requires_grad]
    return {name: "no gradient" if grad is None else grad for name, grad in named}


def _equal(seen, alone):
    """True if two tensors, or dicts of tensors, are the same but for rounding."""
    if isinstance(alone, dict):
        return seen.keys() == alone.keys() and all(_equal(seen[name], alone[name]) for name in alone)
    return isinstance(seen, torch.Tensor) and seen.shape == alone.shape and torch.allclose(seen, alone)


def _raised(call):
    """The exception that `call()` raises, or None."""
    try:
        call()
    except Exception as error:
        return error


@exercise(UNIT, forbids=READY_MADE)
def scatter(answer, device, seed):
    """Batches cut and sent, on one device that plays several."""
    rng = torch.Generator().manual_seed(seed)
    n = 3 + seed % 2

    def rows(length, *shape):
        return torch.randn(length, *shape, generator=rng, dtype=torch.float64).to(device)

    def cut(batch, kind=Transfers):
        transfers = kind([device] * n)
        return answer(batch, transfers), transfers

    batch = rows(2 * n, 3)
    parts, transfers = cut(batch)
    yield "returns a list", type(parts).__name__
    yield "one part a device", len(parts)
    yield "each part of a tensor is a tensor", [type(part).__name__ for part in parts]
    yield "the rows of each part", [part.shape[0] for part in parts]
    yield "the values of the parts", parts
    yield "one message a part, from place 0", sorted(_ways(transfers.log))
    yield "bytes of each message", sorted(_sizes(transfers.log))
    yield "the part of place k is sent to place k", cut(batch, _Stamping)[0]
    uneven = rows(3 * n - 1)
    yield "a length that is no multiple: rows of each part", [len(part) for part in cut(uneven)[0]]
    for length, text in ((n - 1, "fewer rows than devices"), (n + 1, "one row more than devices")):
        batch = rows(length, 2)
        parts, transfers = cut(batch)
        yield f"{text}: rows of each part", [len(part) for part in parts]
        yield f"{text}: messages", sorted(_ways(transfers.log))
    pairs = [(part, piece) for b in (batch, uneven) for part, piece in zip(cut(b)[0], b.chunk(n), strict=False)]
    yield "equal to torch.chunk", all(_equal(part, piece) for part, piece in pairs)

    images, labels = rows(2 * n - 1, 2, 2), torch.arange(2 * n - 1, device=device)
    parts, transfers = cut((images, labels))
    yield "a tuple of tensors gives tuples", [type(part).__name__ for part in parts]
    yield "a tuple of tensors: the parts", parts
    yield "a tuple of tensors: still one message a part", sorted(_ways(transfers.log))
    yield "a tuple of tensors: bytes of each message", sorted(_sizes(transfers.log))
    parts, _ = cut([images, labels])
    yield "a list of tensors gives lists", parts
    parts, _ = cut({"labels": labels, "images": images})
    yield "a dict of tensors gives dicts", parts
    nested = {"pair": (labels, [images, "name"]), "rate": 0.5, "mask": None}
    parts, transfers = cut(nested)
    yield "a nested batch, with a number, a string and None", parts
    yield "a nested batch: still one message a part", sorted(_ways(transfers.log))
    yield "a nested batch: what is sent is what stands in the parts", cut(nested, _Stamping)[0]
    tag = object()
    parts, _ = cut((labels, tag))
    yield "what is no tensor stands in every part as it is", all(part[1] is tag for part in parts)
    batch = rows(2 * n, 2).requires_grad_()
    sum((k + 1) * part.sum() for k, part in enumerate(cut(batch)[0])).backward()
    yield "gradients flow back to the batch", batch.grad
    parts, transfers = cut(rows(3, 2), lambda devices: Transfers(devices[:1]))
    yield "a single device", [[len(part) for part in parts], _ways(transfers.log)]


@exercise(UNIT, forbids=READY_MADE)
def replicate(answer, device, seed):
    """Copies of a module with tied, frozen and changing tensors."""
    n = 2 + seed % 2
    warnings.filterwarnings("ignore", "The .grad attribute")  # an answer may put copies into the module
    module = _module(device, seed)
    module[2].weight.grad = torch.ones_like(module[2].weight)
    x = torch.randn(3, 4, dtype=torch.float64).to(device)
    expected, _ = _alone(module, x, torch.sum)
    before, modes = _state(module), [m.training for m in module.modules()]
    names = {name: p.requires_grad for name, p in module.named_parameters(remove_duplicate=False)}
    buffers = [name for name, _ in module.named_buffers()]

    transfers = Transfers([device] * n)
    replicas = answer(module, transfers)
    yield "returns a list", type(replicas).__name__
    yield "one replica a device", len(replicas)
    yield "a replica is of the module's class", [type(replica).__name__ for replica in replicas]
    yield "each replica is an object of its own", len({id(r) for r in (module, *replicas)}) == n + 1
    pieces = [id(m) for r in (module, *replicas) for m in r.modules()]
    yield "so is each submodule", len(set(pieces)) == len(pieces)
    yield "parameters have the values of the module", [{k: _at(r, k) for k in names} for r in replicas]
    yield "buffers have the values of the module", [{k: _at(r, k) for k in buffers} for r in replicas]
    owned = [{_at(r, k).data_ptr() for k in (*names, *buffers)} for r in (module, *replicas)]
    yield (
        "no replica shares memory with another or the module",
        not any(owned[i] & owned[j] for i in range(n + 1) for j in range(i)),
    )
    yield "frozen or not, each as in the module", [{k: _at(r, k).requires_grad for k in names} for r in replicas]
    leaves = [name for name, trained in names.items() if trained and any(_at(r, name).is_leaf for r in replicas)]
    yield "the parameters that are leaves, and should not be", leaves
    yield (
        "every submodule keeps its mode, train or eval",
        [[m.training for m in r.modules()] for r in replicas] == [modes] * n,
    )
    yield "tied parameters are one", all(_at(r, "0.inner.weight") is _at(r, "0.outer.weight") for r in replicas)
    yield "one message a replica, from place 0", sorted(_ways(transfers.log))
    yield "each message has all parameters and buffers, each once", _sizes(transfers.log) == [_bytes(module)] * n

    outputs = [replica(x) for replica in replicas]
    yield "the outputs of the replicas", outputs
    yield "equal to those of the module", all(_equal(output, expected) for output in outputs)
    yield "a buffer that one changes changes in it alone", [int(_at(r, "0.calls")) for r in (module, *replicas)]
    yield "the module keeps its parameters, buffers and grad", _same_state(module, before)
    grad = torch.autograd.grad(
        outputs[-1].sum(), [p for p in module.parameters() if p.requires_grad], retain_graph=True
    )
    yield "gradients of the last replica, for the module's parameters", list(grad)
    module.zero_grad()
    sum((k + 1) * output.sum() for k, output in enumerate(outputs)).backward()
    yield "gradients of all replicas add up in the module", _gradients(module)
    many = n * (n + 1) // 2
    _, alone = _alone(module, x, lambda outputs: many * outputs.sum())
    yield "equal to those of the module alone", _equal(_gradients(module), alone)

    with torch.no_grad():
        stamped = answer(module, _Stamping([device] * n))
    yield (
        "what is sent is what stands in the replica",
        [{k: _at(r, k) for k in ("2.bias", "0.scale", "0.calls")} for r in stamped],
    )
    yield (
        "under torch.no_grad nothing needs a gradient",
        not any(_at(r, k).requires_grad for r in stamped for k in names),
    )
    transfers = Transfers([device] * 4)
    yield "n = 2 of four devices: two replicas", len(answer(module, transfers, 2))
    yield "n = 2 of four devices: messages", sorted(_ways(transfers.log))
    module = nn.Sequential(nn.Flatten()).eval()
    transfers = Transfers([device] * n)
    found = [type(r[0]).__name__ for r in answer(module, transfers)]
    yield "a module without parameters", found
    yield "a module without parameters: messages", sorted(transfers.log)


class _Meeting:
    """Functions of one argument that know whether all of them run at the same time, and end last first."""

    def __init__(self, n):
        self.barrier, self.met = threading.Barrier(n), []
        self.ended = [threading.Event() for _ in range(n)]
        self.replicas = [functools.partial(self._run, place) for place in range(n)]

    def _run(self, place, part):
        try:
            self.barrier.wait(MEET)
            met = True
            if place + 1 < len(self.ended):
                met = self.ended[place + 1].wait(MEET)
                time.sleep(0.01)  # the other is on its way out
        except threading.BrokenBarrierError:
            met = False
        self.met.append(met)
        self.ended[place].set()
        return part


def _new_threads(before):
    """How many threads there are that were not there before; one that is about to end is waited for."""
    until = time.monotonic() + 1
    while (new := len(set(threading.enumerate()) - before)) and time.monotonic() < until:
        time.sleep(0.01)
    return new


@exercise(UNIT, forbids=READY_MADE)
def parallel_apply(answer, device, seed):
    """Replicas that watch each other, look at their thread's modes, and fail."""
    n = 3 + seed % 2
    rng = torch.Generator().manual_seed(seed)
    parts = [torch.randn(k + 1, 4, generator=rng).to(device) for k in range(n)]
    modules = [copy.deepcopy(_module(device, seed + k)).float() for k in range(n)]
    threads = set(threading.enumerate())

    outputs = answer(modules, parts)
    yield "returns a list", type(outputs).__name__
    yield "one output a replica", len(outputs)
    yield "the outputs", outputs
    alone = [module(part) for module, part in zip(modules, parts, strict=True)]
    yield "equal to those of the replicas one by one", all(map(_equal, outputs, alone))
    yield "each replica is called once", [int(module[0].calls) for module in modules] == [2] * n
    meeting = _Meeting(n)
    outputs = answer(meeting.replicas, list(range(n)))
    yield "all replicas run at the same time", all(meeting.met)
    yield "outputs are in the order of the replicas, whoever ends first", outputs
    yield "no thread is left", _new_threads(threads)
    pair = (parts[0], {"mask": None})
    yield "a part that is a tuple is one argument", answer([lambda part: part is pair] * 2, [pair, pair])
    yield "a single replica", answer([lambda part: part + 1], [seed])

    def weights():
        return [module[2].weight for module in modules]

    sum((k + 1) * output.sum() for k, output in enumerate(answer(modules, parts))).backward()
    yield "gradients flow back to the replicas", [weight.grad for weight in weights()]
    with torch.no_grad():
        outputs = answer(modules, parts)
    yield "under torch.no_grad no output needs a gradient", [output.requires_grad for output in outputs]
    for dtype in (torch.bfloat16, torch.float16):
        with torch.autocast(device.type, dtype=dtype):
            outputs = answer(modules, parts)
        yield f"under autocast with {dtype}", [output.dtype for output in outputs]
    with torch.no_grad(), torch.autocast(device.type, dtype=torch.bfloat16):
        outputs = answer(modules, parts)
    yield "under both", [f"{output.dtype}, needs a gradient: {output.requires_grad}" for output in outputs]
    if device.type == "cuda":
        with torch.autocast("cpu", dtype=torch.bfloat16):
            outputs = answer([copy.deepcopy(module).cpu() for module in modules], [part.cpu() for part in parts])
        yield "under autocast of the CPU", [output.dtype for output in outputs]
    yield "the caller's own modes stay", torch.is_grad_enabled() and not torch.is_autocast_enabled(device.type)

    ended = []

    def fails(part):
        raise KeyError(f"no column {part}")

    def lasts(part):
        time.sleep(0.1)
        ended.append(part)
        return part

    error = _raised(lambda: answer([str, fails, lasts], [0, "a", 2]))
    left = len(ended)
    yield "an exception of a replica comes out, with its type", type(error).__name__
    yield "it still has its own message", "no column a" in str(error)
    said = " ".join([str(error), *getattr(error, "__notes__", [])])
    yield "its message or a note says: place 1", "place 1" in said
    yield "when it comes out, the other replicas have ended", left

    def fails_late(part):
        time.sleep(0.1)
        raise ValueError("late")

    error = _raised(lambda: answer([lambda part: part, fails_late, fails], [0, 1, 2]))
    yield "of several exceptions, that of the lowest place comes out", type(error).__name__
    yield "no thread is left after an exception", _new_threads(threads)
    yield "fewer parts than replicas raise ValueError", type(_raised(lambda: answer(modules, parts[:-1]))).__name__


@exercise(UNIT, forbids=READY_MADE)
def gather(answer, device, seed):
    """Outputs of several lengths, and losses."""
    rng = torch.Generator().manual_seed(seed)
    n = 3 + seed % 2

    def outputs_of(*shapes):
        return [torch.randn(shape, generator=rng, dtype=torch.float64).to(device).requires_grad_() for shape in shapes]

    outputs = outputs_of(*[(2, 3)] * (n - 1), (1, 3))
    transfers = Transfers([device] * n)
    whole = answer(outputs, transfers)
    yield "returns a tensor", type(whole).__name__
    yield "the shape of the whole", tuple(whole.shape)
    yield "its values", whole
    yield "one message an output, to place 0", sorted(_ways(transfers.log))
    yield "bytes of each message", sorted(_sizes(transfers.log))
    yield "what was sent is what is put together", answer(outputs, _Stamping([device] * n))
    (whole * torch.arange(len(whole), device=device)[:, None]).sum().backward()
    yield "gradients flow back to the outputs", [output.grad for output in outputs]
    outputs = outputs_of(*[()] * n)
    transfers = Transfers([device] * n)
    whole = answer(outputs, transfers)
    yield "outputs without dimensions become a vector", whole
    yield "outputs without dimensions: messages", sorted(_ways(transfers.log))
    (whole * torch.arange(n, device=device)).sum().backward()
    yield "outputs without dimensions: gradients", torch.stack([output.grad for output in outputs])
    outputs = outputs_of((2,), (3,))
    transfers = Transfers([device] * n)
    yield "vectors, fewer than devices", answer(outputs, transfers)
    yield "vectors, fewer than devices: messages", sorted(_ways(transfers.log))
    yield "a single output", answer(outputs_of((2, 2, 2)), Transfers([device] * n))
    yield "a single output without dimensions", answer(outputs_of(()), Transfers([device]))


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


@exercise(UNIT, forbids=READY_MADE)
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


@exercise(UNIT, forbids=READY_MADE)
def data_parallel_gradients(answer, device, seed):
    """A step by hand, against autograd on the whole batch."""
    n = 3 + seed % 2
    module = _module(device, seed)
    module[2].weight.grad = torch.ones_like(module[2].weight)
    before = _state(module)
    calls = []

    def case(length, loss=F.mse_loss):
        """A batch, its targets, and loss and gradients of the module alone."""
        batch = torch.randn(length, 4, dtype=torch.float64).to(device)
        targets = torch.randn(length, 3, dtype=torch.float64).to(device)
        targets = targets.argmax(1) if loss is F.cross_entropy else targets
        losses = []
        _, gradients = _alone(module, batch, lambda outputs: losses.append(loss(outputs, targets)) or losses[0])
        return batch, targets, losses[0].detach(), gradients

    def counted(outputs, targets):
        calls.append([list(outputs.shape), list(targets.shape)])
        return F.mse_loss(outputs, targets)

    batch, targets, *alone = case(2 * n)
    transfers = Transfers([device] * n)
    found = answer(module, batch, targets, counted, transfers)
    yield "returns a pair", [type(found).__name__, len(found)]
    loss, gradients = found
    yield "a tensor and a dict", [type(loss).__name__, type(gradients).__name__]
    yield "a gradient for each parameter that is not frozen", sorted(gradients)
    gradients = {name: gradients[name] for name in sorted(gradients)}
    yield "the loss", loss
    yield "the gradients", gradients
    yield "equal to autograd on the whole batch", _equal(loss, alone[0]) and _equal(gradients, alone[1])
    yield "neither has a history", [loss.requires_grad, any(g.requires_grad for g in gradients.values())]
    yield "loss_fn is called once, on all rows", calls
    for length, text in ((3 * n - 1, "a short last part"), (n - 1, "fewer rows than devices")):
        batch, targets, *alone = case(length)
        loss, gradients = answer(module, batch, targets, F.mse_loss, Transfers([device] * n))
        yield f"{text}: the loss", loss
        yield f"{text}: the gradients", {name: gradients[name] for name in sorted(gradients)}
        yield f"{text}: equal to autograd", _equal(loss, alone[0]) and _equal(gradients, alone[1])
    batch, targets, *alone = case(2 * n, F.cross_entropy)
    loss, gradients = answer(module, batch, targets, F.cross_entropy, Transfers([device] * n))
    yield "another loss, labels for targets", _equal(loss, alone[0]) and _equal(gradients, alone[1])

    yield "the number of messages, five a device", len(transfers.log)
    steps = [transfers.log[k : k + n] for k in range(0, len(transfers.log), n)]
    names = ("batch", "module", "outputs", "gradients of the outputs", "gradients of the parameters")
    for name, step in zip(names, steps, strict=False):
        yield f"messages of step {names.index(name) + 1}, {name}", _ways(step)
        yield f"bytes of step {names.index(name) + 1}, {name}", _sizes(step)
    trained = sum(gradient.nbytes for gradient in gradients.values())
    rows = 2 * 8  # two float64 rows a device
    right = [n * [b] for b in (4 * rows, _bytes(module), 3 * rows, 3 * rows, trained)]
    yield "these are the bytes of parts, module and gradients", list(map(_sizes, steps)) == right
    transfers = Transfers([device] * n)
    answer(module, batch[: n - 1], targets[: n - 1], F.cross_entropy, transfers)
    yield "fewer rows than devices: messages", _ways(transfers.log)
    yield "the module keeps its parameters, buffers and grad", _same_state(module, before)
    loss, gradients = answer(module, batch, targets, F.cross_entropy, _Cutting([device] * n))
    yield "no graph of autograd crosses: the loss", loss
    yield "no graph of autograd crosses: the gradients", {name: gradients[name] for name in sorted(gradients)}
    loss, gradients = answer(module, batch, targets, F.cross_entropy, _Stamping([device] * n))
    yield "what was sent is what is used: the loss", loss
    yield "what was sent is what is used: the gradients", {name: gradients[name] for name in sorted(gradients)}
    loss, gradients = answer(module, batch, targets, F.cross_entropy, Transfers([device]))
    yield "a single device", _equal(loss, alone[0]) and _equal(gradients, alone[1])


def _counted_step(n, weight, rows):
    """The counts of a step, taken from messages that are really sent: a bias-free layer on `rows` rows a device."""
    transfers = Transfers(["cpu"] * n)
    batch, outputs = torch.zeros(n * rows, weight.shape[1]), torch.zeros(n * rows, weight.shape[0])
    found = {}
    for way, out, back in (("forward", (batch, [weight] * n), outputs), ("backward", (outputs,), [weight] * n)):
        transfers.log.clear()
        pieces = [t.chunk(n) if isinstance(t, torch.Tensor) else t for t in (*out, back)]
        for place in range(n):
            for step in pieces[:-1]:
                transfers.send([step[place]], 0, place)
            transfers.send([pieces[-1][place]], place, 0)
        crossing = transfers.crossing
        found |= {f"{way}_messages": len(transfers.log), f"{way}_crossing": len(crossing)}
        found[f"{way}_bytes"] = sum(_sizes(crossing))
    return found


@exercise(UNIT, apart=True)
def data_parallel_messages(answer, device, seed):
    """The counts, against messages that are sent."""
    n = 3 + seed % 3
    counts = answer(n, 1000 + seed, 12 * n, 20 * n)
    yield "returns a dict", type(counts).__name__
    yield "its keys", sorted(counts)
    yield "its values are int", sorted({type(value).__name__ for value in counts.values()})
    yield "messages of the forward", counts["forward_messages"]
    yield "those of the forward that leave their device", counts["forward_crossing"]
    yield "bytes that cross in the forward", counts["forward_bytes"]
    yield "messages of the backward", counts["backward_messages"]
    yield "those of the backward that leave their device", counts["backward_crossing"]
    yield "bytes that cross in the backward", counts["backward_bytes"]
    weight = torch.zeros(5, 3 + seed % 4)
    for devices in (n, 2, 8):
        args = weight.nbytes, devices * 2 * weight.shape[1] * 4, devices * 2 * weight.shape[0] * 4
        yield f"{devices} devices, as messages are counted", answer(devices, *args) == _counted_step(devices, weight, 2)
    yield "a single device: nothing crosses", answer(1, 40, 24, 8)
    yield "large numbers stay exact", answer(8, 10**17 + 1, 8 * (10**17 + 3), 8)


HANG = 8  # seconds after which ranks that wait for each other are ended


class _Wire:
    """Stands before a process group: `log` holds (send or recv, the other rank or None for any, bytes), in order."""

    def __init__(self, group):
        self.group, self.log, self.works = group, [], []

    def __getattr__(self, name):
        return getattr(self.group, name)

    def send(self, tensors, to, tag):
        return self._noted("send", to, tensors, self.group.send, tensors, to, tag)

    def recv(self, tensors, source, tag):
        return self._noted("recv", source, tensors, self.group.recv, tensors, source, tag)

    def recv_anysource(self, tensors, tag):
        return self._noted("recv", None, tensors, self.group.recv_anysource, tensors, tag)

    def _noted(self, kind, other, tensors, operation, *args):
        rank, n = self.group.rank(), self.group.size()
        if other is not None and (other == rank or not 0 <= other < n):  # gloo would wait for ever
            way = "sends to" if kind == "send" else "receives from"
            raise ValueError(f"rank {rank} {way} rank {other}, of ranks 0 to {n - 1}. Count modulo the world size.")
        self.log.append((kind, other, sum(t.nbytes for t in tensors)))
        self.works.append(operation(*args))  # kept: a request that is forgotten may lose its message
        return self.works[-1]


def _calls(rank, world_size, answer, cases):
    """What `answer` did in this rank, case by case."""
    calls = []
    for case, (tensors, view, args) in cases.items():
        try:
            calls.append(_call(answer, tensors[rank].clone(), view, args))
        except Exception as error:
            if error.args:
                error.args = (f"{error} (in the case {case})",)
            raise
    return calls


def _call(answer, whole, view, args):
    with distributed.counted() as traffic:
        counting = dist.group.WORLD
        counting.inner = wire = _Wire(counting.inner)
        answer(view(whole), *args)
    dist.barrier()  # a rank that waits here has returned from your function
    operations = {operation for operation, _ in traffic}
    forgotten = sum(not work.is_completed() for work in wire.works)  # with gloo it is wait that completes a work
    return SimpleNamespace(whole=whole, log=wire.log, operations=operations, forgotten=forgotten)


def _on_ranks(answer, world_size, cases):
    """{case: what the call did in each rank}, a list.  A case is (a tensor for each rank, view, further arguments)."""
    answers = distributed.run_ranks(_calls, world_size, answer, cases, backend="gloo", timeout=HANG)  # [rank][case]
    return dict(zip(cases, zip(*answers, strict=True), strict=True))


def _itself(tensor):
    return tensor


def _rooted(answer, seed, word, sizes=(2, 3, 4)):
    """For each number of ranks: it, and what `answer(tensor, root)` did; up to 4 ranks each is the root once."""
    rng = torch.Generator().manual_seed(seed)
    for n in sizes:
        roots = range(n) if n <= 4 else [seed % n]
        cases = {f"{word}={root}": (torch.randn(n, 3 + seed % 5, generator=rng), root) for root in roots}
        root = (seed + 1) % n
        cases[f"{word}={root}, int32, two rows"] = (
            torch.randint(1000, (n, 2, 4), generator=rng, dtype=torch.int32),
            root,
        )
        cases = {case: (tensors, _itself, (root,)) for case, (tensors, root) in cases.items()}
        yield n, [root for *_, (root,) in cases.values()], _on_ranks(answer, n, cases)


def _sent(*calls):
    """The messages that some ranks send, in words."""
    sizes = [size for call in calls for kind, _, size in call.log if kind == "send"]
    return f"{len(sizes)} messages, {sum(sizes)} bytes"


def _manners(n, did):
    """The facts on messages that every collective has."""
    calls = [call for calls in did.values() for call in calls]
    yield f"{n} ranks: only send and recv are used", sorted(set().union(*(call.operations for call in calls)))
    yield f"{n} ranks: every isend and irecv is waited for", not any(call.forgotten for call in calls)


def _rounds(calls):
    """Rounds in which the messages go if a rank has one message at a time, in the order of its code."""
    left, clock = [list(call.log) for call in calls], [0] * len(calls)
    while any(left):
        first = [log[0] if log else ("", None, 0) for log in left]
        ready = [
            (sender, receiver)
            for sender, (kind, receiver, _) in enumerate(first)
            if kind == "send" and first[receiver][0] == "recv" and first[receiver][1] in (sender, None)
        ]
        if not ready:
            return "they do not fit together"
        pair = min(ready, key=lambda pair: max(clock[rank] for rank in pair))
        now = 1 + max(clock[rank] for rank in pair)
        for rank in pair:
            clock[rank] = now
            left[rank].pop(0)
    return max(clock)


def _longest_way(calls):
    """The most messages that come one after the other because each starts where the one before ended."""
    edges = {(rank, to) for rank, call in enumerate(calls) for kind, to, _ in call.log if kind == "send"}
    reached, length = {to for _, to in edges}, 0
    while reached and length <= len(calls):  # messages in a circle have no end
        reached, length = {to for rank, to in edges if rank in reached}, length + 1
    return length


def _tree(n, did):
    """The facts on messages that both trees have."""
    yield from _manners(n, did)
    yield (
        f"{n} ranks: one message less than there are ranks, each the whole tensor",
        {case: _sent(*calls) for case, calls in did.items()},
    )
    depth = (n - 1).bit_length()
    busiest = max(len(call.log) for calls in did.values() for call in calls)
    yield f"{n} ranks: no rank has a part in more than {depth} of the messages", busiest <= depth
    longest = max(map(_longest_way, did.values()))
    yield f"{n} ranks: no way along the messages is longer than {depth}", longest <= depth
    yield f"{n} ranks: how many rounds it takes", {case: _rounds(calls) for case, calls in did.items()}


def _held(did):
    return {f"{case}, rank {rank}": call.whole for case, calls in did.items() for rank, call in enumerate(calls)}


def _at_dst(roots, did):
    return {case: calls[root].whole for root, (case, calls) in zip(roots, did.items(), strict=True)}


def _elsewhere(roots, did):
    return {
        f"{case}, rank {rank}": call.whole
        for root, (case, calls) in zip(roots, did.items(), strict=True)
        for rank, call in enumerate(calls)
        if rank != root
    }


@exercise(UNIT, changes_inputs=True, forbids=COLLECTIVES)
def broadcast_naive(answer, device, seed):
    """The same values everywhere, by messages of the source."""
    for n, _, did in _rooted(answer, seed, "src"):
        yield f"{n} ranks: afterwards every rank holds the values of src", _held(did)
        yield from _manners(n, did)
        yield (
            f"{n} ranks: src sends to every other rank, and nobody else sends",
            {f"{case}, rank {rank}": _sent(call) for case, calls in did.items() for rank, call in enumerate(calls)},
        )


@exercise(UNIT, changes_inputs=True, forbids=COLLECTIVES)
def reduce_naive(answer, device, seed):
    """The sum in one rank, by one message of every other."""
    for n, roots, did in _rooted(answer, seed, "dst"):
        yield f"{n} ranks: afterwards dst holds the sum", _at_dst(roots, did)
        yield f"{n} ranks: every other rank keeps its own values", _elsewhere(roots, did)
        yield from _manners(n, did)
        yield (
            f"{n} ranks: every rank but dst sends its tensor, once",
            {f"{case}, rank {rank}": _sent(call) for case, calls in did.items() for rank, call in enumerate(calls)},
        )
        yield f"{n} ranks: each message goes straight to dst", all(_straight(roots, did))


def _straight(roots, did):
    """For every message that is sent, whether it goes to the root."""
    for root, calls in zip(roots, did.values(), strict=True):
        yield from (to == root for call in calls for kind, to, _ in call.log if kind == "send")


@exercise(UNIT, changes_inputs=True, forbids=COLLECTIVES)
def broadcast_tree(answer, device, seed):
    """The same values everywhere, in few rounds."""
    for n, _, did in _rooted(answer, seed, "src", (2, 3, 4, 7)):
        yield f"{n} ranks: afterwards every rank holds the values of src", _held(did)
        yield from _tree(n, did)


@exercise(UNIT, changes_inputs=True, forbids=COLLECTIVES)
def reduce_tree(answer, device, seed):
    """The sum in one rank, in few rounds."""
    for n, roots, did in _rooted(answer, seed, "dst", (2, 3, 4, 7)):
        yield f"{n} ranks: afterwards dst holds the sum", _at_dst(roots, did)
        yield f"{n} ranks: every other rank keeps its own values", _elsewhere(roots, did)
        yield from _tree(n, did)


def _transposed(tensor):
    return tensor.t()


def _every_other(tensor):
    return tensor[..., ::2]


@exercise(UNIT, changes_inputs=True, forbids=COLLECTIVES)
def ring_all_reduce(answer, device, seed):
    """Sums on a ring: values, then messages and bytes; lengths and layouts one after the other."""
    rng = torch.Generator().manual_seed(seed)

    def case(*shape, dtype=torch.float32, view=_itself):
        values = torch.randn(n, *shape, generator=rng)
        whole = dtype in (torch.int32, torch.bfloat16)  # sums of small whole numbers do not depend on the order
        return ((10 * values).round() if whole else values).to(dtype), view, ()

    def values(*names):
        return {f"{name}, rank {r}": call.whole for name in names for r, call in enumerate(did[name])}

    even = 12 * (1 + seed % 3)
    for n in (2, 3, 4):
        shapes = {
            "shape (2, 3, 4)": case(2, 3, 4),
            "int32": case(even, dtype=torch.int32),
        }
        layouts = {
            "a transposed tensor": case(3, 4, view=_transposed),
            "every other number": case(2 * even, view=_every_other),
            "every other column": case(3, 8, view=_every_other),
        }
        lengths = {}
        if n > 2:  # two ranks go first: a mix-up of pieces shows in their values, where more ranks would break off
            shapes |= {str(dtype)[6:]: case(even, dtype=dtype) for dtype in (torch.float64, torch.bfloat16)}
            lengths = {f"length {k}": case(k) for k in (even + 1, even - 1, 2, 1)} | {"shape ()": case()}
        first = f"length {even}"
        did = _on_ranks(answer, n, {first: case(even)} | shapes | layouts | lengths)
        calls = did[first]
        sends = [[(to, size) for kind, to, size in call.log if kind == "send"] for call in calls]
        yield f"{n} ranks: every rank holds the sum, {even} numbers", values(first)
        yield from _manners(n, did)
        yield f"{n} ranks: messages that each rank sends", {f"rank {r}": len(sent) for r, sent in enumerate(sends)}
        yield (
            f"{n} ranks: each rank sends to the next one and to nobody else",
            {
                f"rank {r}": " and ".join(f"rank {to}" for to in sorted({to for to, _ in sent}))
                for r, sent in enumerate(sends)
            },
        )
        yield (
            f"{n} ranks: bytes that each rank sends",
            {f"rank {r}": sum(size for _, size in sent) for r, sent in enumerate(sends)},
        )
        if lengths:
            yield f"{n} ranks: lengths that {n} does not divide", values(*lengths)
            k = even + 1
            sizes = [size for call in did[f"length {k}"] for kind, _, size in call.log if kind == "send"]
            yield f"{n} ranks: bytes that all ranks send, {k} numbers", sum(sizes)
            yield f"{n} ranks: bytes of the largest message, {k} numbers", max(sizes, default=0)
        yield f"{n} ranks: other shapes and dtypes", values(*shapes)
        yield f"{n} ranks: tensors that are not contiguous, and what lies between", values(*layouts)
        same = [
            torch.equal(_shown(name, call.whole), _shown(name, calls[0].whole))
            for name, calls in did.items()
            for call in calls
        ]
        yield f"{n} ranks: all hold the same sum to the last bit", all(same)
    n = 1
    did = _on_ranks(answer, n, {"alone": case(5)})
    yield "1 rank: its values stay, and nothing is sent", [values("alone"), _sent(*did["alone"])]


def _shown(name, whole):
    """The part of a rank's memory that the answer was given."""
    return _every_other(whole) if "every other" in name else whole


@exercise(UNIT, apart=True)
def ring_bytes(answer, device, seed):
    """Bytes that each rank sends in a ring."""
    k = 3 + seed % 4
    even, odd = answer(12 * k, 4, 4), answer(12 * k + 2, 4, 4)
    yield "is a list with one number for each rank", [type(even).__name__, len(even)]
    yield "4 ranks, a length that 4 divides", even
    yield "2 ranks: each sends half of the tensor, twice", answer(10 * k, 8, 2)
    yield "3 ranks", answer(9 * k, 2, 3)
    yield "the numbers are whole numbers, of type int", sorted({type(x).__name__ for x in [*even, *odd]})
    yield f"4 ranks, {12 * k + 2} elements: the bytes of all ranks together", sum(odd)
    yield f"4 ranks, {12 * k + 2} elements: the bytes of each rank", odd
    yield (
        "other lengths that do not divide",
        {f"{n} elements, {ranks} ranks": answer(n, 4, ranks) for n, ranks in ((2 * k + 1, 2), (7 * k + 3, 7), (29, 5))},
    )
    yield "fewer elements than ranks", {f"{n} elements, 8 ranks": answer(n, 2, 8) for n in (k, 1, 0)}
    yield "1 rank sends nothing", answer(k, 4, 1)


@exercise(UNIT, apart=True)
def all_reduce_seconds(answer, device, seed):
    """Predicted seconds of three algorithms."""
    latency, bandwidth = (3 + seed % 7) * 1e-3, 1e9 * (1 + seed % 3)
    yield "is a dict with the three algorithms", sorted(answer(1000, 4, latency, bandwidth))

    def one(name, *cases):
        return {f"{n:,} bytes, {ranks} ranks": answer(n, ranks, latency, bandwidth)[name] for n, ranks in cases}

    for name in ("naive", "tree", "ring"):
        free = answer(1_000_000, 4, 0.0, bandwidth)[name]
        yield f"{name}: seconds that the bytes take, without latency", free
        yield f"{name}: seconds that the latency takes, with an empty tensor", answer(0, 4, latency, 1e9)[name]
        cases = [(n, ranks) for n in (4_000_000, 100_000_000) for ranks in (2, 8)]
        yield f"{name}: powers of two", one(name, *cases)
        yield f"{name}: other numbers of ranks", one(name, (4_000_000, 3), (4_000_000, 5 + seed % 3), (4_000_000, 100))
    fastest = {}
    for n in (100, 1_000_000_000):
        seconds = answer(n, 16, latency, bandwidth)
        fastest[f"{n:,} bytes"] = min(seconds, key=seconds.get)
    yield "the fastest of the three on 16 ranks", fastest
    yield "1 rank: nothing to wait for", answer(1000, 1, latency, bandwidth)


PATIENCE = 3.0  # seconds in which one rank hopes for a sign of life of another
STEPS = 5


class _Net(nn.Module):
    """A small float64 model with all that a wrapper must send: weights, a scalar, frozen parameters, buffers."""

    def __init__(self, seed):
        super().__init__()
        torch.manual_seed(seed)
        self.conv = nn.Conv1d(1, 3, 3, padding=1)
        self.scale = nn.Parameter(torch.randn(()))
        self.frozen = nn.Linear(18, 18).requires_grad_(False)
        self.head = nn.Linear(18, 2)
        self.register_buffer("shift", torch.randn(18))
        self.register_buffer("version", torch.tensor(seed))
        self.register_buffer("table", torch.randn(2), persistent=False)
        self.double()

    def forward(self, inputs, gain=1.0):  # inputs: (n, 6)
        hidden = torch.tanh(self.conv(inputs.unsqueeze(1)).flatten(1) + self.shift)
        return gain * self.head(torch.tanh(self.frozen(hidden * self.scale))) + self.table


class _Tied(nn.Module):
    """Two layers that share their weight."""

    def __init__(self, seed):
        super().__init__()
        torch.manual_seed(seed)
        self.encoder, self.decoder = nn.Linear(6, 6).double(), nn.Linear(6, 6).double()
        self.decoder.weight = self.encoder.weight

    def forward(self, inputs):
        return self.decoder(torch.tanh(self.encoder(inputs)))


class _Branches(nn.Module):
    """Layers of one size, of which each call uses those it names, in the order in which it names them."""

    def __init__(self, seed):
        super().__init__()
        torch.manual_seed(seed)
        self.layers = nn.ModuleDict({name: nn.Linear(6, 6).double() for name in "abcd"})

    def forward(self, inputs, names):
        for name in names:
            inputs = torch.tanh(self.layers[name](inputs))
        return inputs


LAYER_BYTES = (36 + 6) * 8  # of one layer of _Branches


def _batches(rank, world_size, seed, outputs=2):
    """STEPS batches (inputs, targets), whole, and those parts of them that belong to the rank."""
    rng = torch.Generator().manual_seed(seed)
    whole = [
        tuple(torch.randn(4 * world_size, n, generator=rng, dtype=torch.float64) for n in (6, outputs))
        for _ in range(STEPS)
    ]
    return whole, [tuple(part.chunk(world_size)[rank] for part in batch) for batch in whole]


def _backward(model, batch, *args):
    """None; the loss of a batch, backward, and whatever the wrapper wants to be called then."""
    F.mse_loss(model(batch[0], *args), batch[1]).backward()
    getattr(model, "average_gradients", lambda: None)()


def _trained(model, module, batches, set_to_none=True):
    """The parameters of `module` in one vector after SGD with momentum on `model`, which is it or wraps it."""
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)
    for batch in batches:
        optimizer.zero_grad(set_to_none=set_to_none)
        _backward(model, batch)
        optimizer.step()
    return _vector(module.parameters())


def _vector(tensors):
    return torch.cat([t.detach().flatten().double() for t in tensors])


def _trainable_gradients(module):
    """{name: gradient or None} of the trainable parameters."""
    return {name: p.grad for name, p in module.named_parameters() if p.requires_grad}


def _copied(gradients):
    return {name: None if g is None else g.clone() for name, g in gradients.items()}


def _close(seen, expected):
    return torch.allclose(seen, expected, rtol=1e-9, atol=1e-12)


def _ids(tensors):
    return [id(t) for t in tensors]


def _together(answers):
    """(fact, {rank: what came of it there}) for each fact; `answers` are the dicts of the ranks."""
    for fact in answers[0]:
        yield fact, {f"rank {rank}": facts[fact] for rank, facts in enumerate(answers)}


def _same_bits(answers, fact):
    return all(torch.equal(facts[fact], answers[0][fact]) for facts in answers)


def _made(rank, world_size, answer, seed):
    """Facts of a rank about a wrapper that has just been made; the ranks' modules differ before."""
    module, right, (batch, *_) = _Net(seed + rank), _Net(seed), _batches(rank, world_size, seed)[1]
    before = _ids(itertools.chain(module.parameters(), module.buffers()))
    with counted() as traffic:
        model = answer(module)
        facts = {
            "is an nn.Module": isinstance(model, nn.Module),
            "module is the module that was given": model.module is module,
            "its parameters are those of the module": _ids(model.parameters()) == _ids(module.parameters()),
            "they are the same objects as before": before
            == _ids(itertools.chain(module.parameters(), module.buffers())),
            "has the trainable parameters of rank 0": _vector(p for p in module.parameters() if p.requires_grad),
            "has the frozen parameters of rank 0": _vector(module.frozen.parameters()),
            "has the buffers of rank 0": _vector([module.shift, module.version]),
            "has the buffers of rank 0 that are not persistent": module.table,
        }
        sent = len(traffic)
        facts["hands its arguments on to the module"] = _close(model(batch[0], gain=3.0), right(batch[0], gain=3.0))
        facts["a forward pass sends nothing"] = len(traffic) - sent
    return facts


def _training(rank, world_size, answer, seed):
    """Facts of a rank about gradients and weights in training."""
    whole, mine = _batches(rank, world_size, seed)
    module, start = _Net(seed + rank), _Net(seed)
    with counted() as traffic:
        model = answer(module)
        sent = len(traffic)
        _backward(model, mine[0])
        calls = [operation for operation, _ in traffic[sent:]]
        sizes = sorted(size for _, size in traffic[sent:])
    facts = {
        "the gradients after one backward": _copied(_trainable_gradients(module)),
        "a frozen parameter has no gradient": [p.grad for p in module.frozen.parameters()] == [None, None],
        "what one step sends": collections.Counter(calls),
        "the bytes of these calls": sizes,
    }
    module.zero_grad()
    facts["the weights after 5 SGD steps"] = _trained(model, module, mine)
    alone, torchs = copy.deepcopy(start), copy.deepcopy(start)
    alone_trained = _trained(alone, alone, whole)
    torchs_trained = _trained(DistributedDataParallel(torchs), torchs, mine)
    facts["one process with the whole batch gets the same"] = _close(_vector(module.parameters()), alone_trained)
    facts["torch's DistributedDataParallel gets the same"] = _close(_vector(module.parameters()), torchs_trained)

    module = _Net(seed + rank)
    seen = _trained(answer(module), module, mine, set_to_none=False)
    facts["a second model, with zero_grad(set_to_none=False)"] = seen
    module = _Net(seed + rank)
    model = answer(module)
    _backward(model, mine[0])
    _backward(model, mine[1])
    facts["a second backward adds its average to the first"] = _trainable_gradients(module)
    return facts


def _odd_models(rank, world_size, answer, seed):
    """Facts of a rank about tied parameters and about those that not every rank uses."""
    facts = {}
    _, (batch, again, *_) = _batches(rank, world_size, seed, outputs=6)
    with counted() as traffic:
        module = _Tied(seed + rank)
        model = answer(module)
        sent = len(traffic)
        _backward(model, batch)
        facts["the gradients where two layers share a weight"] = _trainable_gradients(module)
        facts["bytes sent: a shared weight travels once"] = sum(size for _, size in traffic[sent:])

    module = _Branches(seed + rank)
    model = answer(module)
    _backward(model, batch, ("a", "bc"[rank % 2]))
    seen = _copied(_trainable_gradients(module))
    kinds = {name[7]: [] for name in seen}
    for name, gradient in seen.items():
        kinds[name[7]].append(gradient)
    facts["a gradient that every rank has is averaged"] = kinds["a"]
    facts["a gradient that a rank lacks counts as zeros"] = kinds["b"] + kinds["c"]
    facts["a gradient that no rank has is zeros"] = kinds["d"]
    module.zero_grad()
    _backward(model, again, ("a", "cb"[rank % 2]))
    facts["the same after zero_grad, the other way round"] = _trainable_gradients(module)
    return facts


def _in_turn(rank, world_size, groups, answer, seed):
    """The facts of several groups of facts, found by one rank in one life."""
    facts = {}
    for group in groups:
        facts |= group(rank, world_size, answer, seed)
    return facts


def _wrapped(answer, seed, *groups):
    """The facts that hold for both wrappers, and those of `groups`, which two ranks find."""
    for some in ((_made,), (_training,), (_odd_models, *groups)):
        answers = run_ranks(_in_turn, 2, some, answer, seed, backend="gloo", timeout=HANG)
        yield from _together(answers)
        if _training in some:
            yield "ranks agree to the last bit", _same_bits(answers, "the weights after 5 SGD steps")
    answers = run_ranks(_training, 3, answer, seed + 1, backend="gloo", timeout=HANG)
    for fact, value in _together(answers):
        yield f"3 ranks: {fact}", value
    yield "3 ranks agree to the last bit", _same_bits(answers, "the weights after 5 SGD steps")


def _frozen_later(rank, world_size, answer, seed):
    """Facts of a rank about several backward passes before one average, and parameters frozen in between."""
    whole, mine = _batches(rank, world_size, seed)
    module, alone = _Net(seed + rank), _Net(seed)
    model = answer(module)
    for batch, both in zip(mine[:2], whole[:2], strict=True):
        F.mse_loss(model(batch[0]), batch[1]).backward()
        _backward(alone, both)
    model.average_gradients()
    facts = {"two backward passes, then one average": _trainable_gradients(module)}
    pairs = zip(_trainable_gradients(module).values(), _trainable_gradients(alone).values(), strict=True)
    facts["one process with the whole batches gets the same"] = all(itertools.starmap(_close, pairs))
    module.zero_grad()
    module.head.requires_grad_(False)
    _backward(model, mine[0])
    facts["what is frozen later has no gradient either"] = [p.grad is None for p in module.head.parameters()]
    return facts


@exercise(UNIT, forbids=("torch.nn.parallel.DistributedDataParallel",))
def NaiveDDP(answer, device, seed):
    """Two and three ranks with models that differ until they are wrapped."""
    yield from _wrapped(answer, seed, _frozen_later)


@exercise(UNIT, apart=True)
def plan_buckets(answer, device, seed):
    """Sizes worked by hand, then drawn ones."""
    buckets = answer([4, 4, 4, 4], 8)
    yield "returns a list of lists of int", [type(buckets).__name__, sorted({type(b).__name__ for b in buckets})]
    yield "each parameter is in one bucket", sorted(itertools.chain(*buckets))
    yield "the last parameter is first", [buckets[0][0], buckets[-1][-1]]
    yield "a bucket of exactly cap bytes", buckets
    yield "one byte more than cap opens a new bucket", answer([4, 5], 8)
    yield "a bucket is not looked at again", answer([1, 6, 3], 8)
    yield "a large parameter is alone: behind it", answer([2, 2, 20, 2, 2], 8)
    yield "a large parameter is alone: first and last", answer([20, 2, 2, 20], 8)
    yield "large parameters in a row", answer([9, 20, 9], 8)
    yield "parameters of one byte", answer([1, 1, 1], 2)
    yield "one parameter", answer([3], 8)
    yield "no parameters", answer([], 8)
    rng = torch.Generator().manual_seed(seed)
    sizes = torch.randint(1, 30, (40 + seed % 7,), generator=rng).tolist()
    given = list(sizes)
    yield "drawn sizes", answer(given, 40 + seed % 5)
    yield "leaves sizes as they are", given == sizes


def _overlap(rank, world_size, answer, seed):
    """Facts of a rank about what is sent when."""
    facts = {}
    _, (batch, *_) = _batches(rank, world_size, seed, outputs=6)
    module, seen = _Branches(seed), {}
    with counted() as traffic:

        def note(layer):  # before the hooks of the answer, which are registered later
            seen.setdefault(layer, traffic.calls("all_reduce"))

        for name, parameter in module.named_parameters():
            parameter.register_post_accumulate_grad_hook(lambda p, layer=name[7]: note(layer))
        _backward(answer(module, bucket_bytes=LAYER_BYTES), batch, "abcd")
        facts["all-reduces started before the gradient of each layer"] = seen

        module = _Net(seed)
        model, sent = answer(module), len(traffic)
        model(batch[0]).sum().backward()
        facts["bytes of each bucket, in order"] = [size for _, size in traffic[sent:]]
        module = nn.Sequential(*(nn.Linear(300, 300) for _ in range(3)))
        model, sent = answer.answer(module), len(traffic)
        model(torch.ones(1, 300)).sum().backward()
        facts["bytes of each bucket at the default, 1 MiB"] = [size for _, size in traffic[sent:]]

    module = _Branches(seed + rank)
    _backward(answer(module, bucket_bytes=LAYER_BYTES), batch, "abcd" if rank == 0 else "dbca")
    facts["layers come in another order on each rank"] = _trainable_gradients(module)

    module, store = _Branches(seed + rank), c10d._get_default_store()
    model, early = answer(module, bucket_bytes=LAYER_BYTES), True
    if rank == 0:
        module.layers["a"].bias.register_post_accumulate_grad_hook(lambda p: store.set("first layer", "done"))
    else:
        try:
            store.wait(["first layer"], timedelta(seconds=PATIENCE))
        except RuntimeError:  # it came too late
            early = False
        time.sleep(0.1)
    _backward(model, batch, "abcd")
    facts["rank 0 computes its last gradient while rank 1 sleeps"] = early
    facts["then its backward waits for rank 1"] = _copied(_trainable_gradients(module))

    modules = [_Branches(seed + rank), _Branches(seed + rank + 9)]
    models = [answer(module, bucket_bytes=LAYER_BYTES) for module in modules]
    (models[0](batch[0], "ab") + models[1](batch[0], "cd")).square().sum().backward()
    facts["two wrappers in one backward"] = [_trainable_gradients(module) for module in modules]
    return facts


def _unsent(rank, world_size, answer, seed):
    """Facts of a rank about no_sync."""
    whole, (batch, again, *_) = _batches(rank, world_size, seed)
    facts, alone, module = {}, _Net(seed), _Net(seed + rank)
    with counted() as traffic:
        model = answer(module)
        sent = len(traffic)
        with model.no_sync():
            _backward(model, batch)
        facts["no_sync: calls of a backward inside"] = len(traffic) - sent
        facts["no_sync: the rank's own gradients pile up"] = _copied(_trainable_gradients(module))
        with model.no_sync():
            ahead = F.mse_loss(model(again[0]), again[1])
        ahead.backward()
        facts["the next backward: its calls"] = len(traffic) - sent
        facts["the next backward sends the sum"] = _copied(_trainable_gradients(module))
        _backward(alone, whole[0])
        _backward(alone, whole[1])
        pairs = zip(_trainable_gradients(module).values(), _trainable_gradients(alone).values(), strict=True)
        facts["one process with the whole batches gets the same"] = all(itertools.starmap(_close, pairs))

        module.zero_grad(set_to_none=False)
        sent = len(traffic)
        behind = F.mse_loss(model(batch[0]), batch[1])
        with model.no_sync():
            with model.no_sync():
                _backward(model, again)
            behind.backward()
        facts["nested no_sync, forward outside: calls"] = len(traffic) - sent
        with contextlib.suppress(ZeroDivisionError), model.no_sync():
            _backward(model, again)
            raise ZeroDivisionError
        facts["no_sync left by an exception: calls inside"] = len(traffic) - sent
        _backward(model, batch)
        facts["no_sync left by an exception: calls after it"] = len(traffic) - sent
        facts["all four backward passes add up"] = _trainable_gradients(module)
    return facts


class _Capped:
    """Makes wrappers with small buckets, so that even the small models of a check have several."""

    def __init__(self, answer):
        self.answer = answer

    def __call__(self, module, bucket_bytes=200):
        return self.answer(module, bucket_bytes=bucket_bytes)


@exercise(UNIT, forbids=("torch.nn.parallel.DistributedDataParallel",))
def OverlappedDDP(answer, device, seed):
    """As for the naive version, with buckets of few bytes; then the order of events, and no_sync."""
    yield from _wrapped(_Capped(answer), seed, _overlap)
    yield from _together(run_ranks(_unsent, 2, _Capped(answer), seed, backend="gloo", timeout=HANG))


def _hooked(rank, world_size, answer, seed):
    """Facts of a rank about a hook on every trainable parameter."""
    whole, mine = _batches(rank, world_size, seed)

    def ready():
        module = _Net(seed)
        for p in module.parameters():
            if p.requires_grad:
                p.register_post_accumulate_grad_hook(answer)
        return module

    module = ready()
    with counted() as traffic:
        _backward(module, mine[0])
    first = _copied(_trainable_gradients(module))
    torch.optim.SGD(module.parameters(), lr=0.1).step()
    before = _vector(module.parameters())
    _backward(module, mine[1])
    facts = {
        "backward leaves the weights as they are": torch.equal(_vector(module.parameters()), before),
        "the gradients after one backward": first,
        "what one backward sends": collections.Counter(operation for operation, _ in traffic),
        "a second backward adds its average to the first": _trainable_gradients(module),
    }
    module, alone = ready(), _Net(seed)
    facts["the weights after 5 SGD steps"] = _trained(module, module, mine)
    expected = _trained(alone, alone, whole)
    facts["one process with the whole batch gets the same"] = _close(_vector(module.parameters()), expected)
    return facts


@exercise(UNIT, changes_inputs=True)
def average_hook(answer, device, seed):
    """Hooks on equal replicas, two and three of them."""
    for world_size in (2, 3):
        answers = run_ranks(_hooked, world_size, answer, seed, backend="gloo", timeout=HANG)
        for fact, value in _together(answers):
            yield f"{world_size} ranks: {fact}", value
        yield f"{world_size} ranks agree to the last bit", _same_bits(answers, "the weights after 5 SGD steps")


TIMEOUT = 8  # seconds for all ranks of a call


def _outcome(call):
    """(what `call()` returns, ""), or the name of the type of the exception that it raises, and its message."""
    try:
        return call(), ""
    except Exception as error:
        return type(error).__name__, str(error)


def _indices(sampler, most=1000):
    """What a sampler gives, or the first `most` of it."""
    return list(itertools.islice(sampler, most))


def _shards(answer, n_items, world_size, epoch=None, **settings):
    """{rank: its indices}; `epoch` is set where it is given."""
    shards = {}
    for rank in range(world_size):
        sampler = answer(n_items, world_size, rank, **settings)
        if epoch is not None:
            sampler.set_epoch(epoch)
        shards[f"rank {rank}"] = _indices(sampler)
    return shards


def _lengths(answer, n_items, world_size, **settings):
    return [len(answer(n_items, world_size, rank, **settings)) for rank in range(world_size)]


@exercise(UNIT, forbids=("torch.utils.data.DistributedSampler",))
def ShardSampler(answer, device, seed):
    """The index lists of all ranks, side by side."""
    ranks = 3 + seed % 2
    even, uneven = 3 * ranks, 3 * ranks + 1
    sampler = answer(even, ranks, 0)
    yield "is a torch Sampler", isinstance(sampler, Sampler)
    yield "is not torch's DistributedSampler, but written by hand", not isinstance(sampler, DistributedSampler)
    yield "gives indices of type int", sorted({type(i).__name__ for i in _indices(sampler)})
    yield f"shuffle=False: {even} items on {ranks} ranks", _shards(answer, even, ranks, shuffle=False)
    yield "its length is the number of indices of a rank", _lengths(answer, even, ranks)
    shards = _shards(answer, even, ranks)
    yield "shuffled: every item comes once in an epoch", sorted(sum(shards.values(), [])) == list(range(even))
    yield "shuffled: the indices in epoch 0", shards
    yield "an iteration more in the same epoch gives the same order", _indices(sampler) == _indices(sampler)
    later = _shards(answer, even, ranks, epoch=2 + seed % 5)
    yield "set_epoch gives another order", later != shards
    yield "shuffled: the indices in a later epoch", later
    yield "set_epoch(0) gives the first order again", _shards(answer, even, ranks, epoch=0) == shards
    other = 7 + seed
    yield "another seed gives other indices", _shards(answer, even, ranks, seed=other)
    yield "another seed in a later epoch", _shards(answer, even, ranks, epoch=3, seed=other)

    yield f"{uneven} items on {ranks} ranks: the lengths", _lengths(answer, uneven, ranks)
    yield (
        f"{uneven} items on {ranks} ranks: what is missing is repeated from the start",
        _shards(answer, uneven, ranks, shuffle=False),
    )
    yield "the same shuffled: the start of the permutation is repeated", _shards(answer, uneven, ranks)
    yield f"{uneven} items with drop_last: the lengths", _lengths(answer, uneven, ranks, drop_last=True)
    yield f"{uneven} items with drop_last", _shards(answer, uneven, ranks, shuffle=False, drop_last=True)
    yield "the same shuffled: the end of the permutation is left out", _shards(answer, uneven, ranks, drop_last=True)
    yield "drop_last drops nothing where all ranks have equally many", _shards(answer, even, ranks, drop_last=True)
    yield "2 items on 5 ranks: they are repeated several times", _shards(answer, 2, 5, shuffle=False)
    yield "2 items on 5 ranks with drop_last: none is left", _shards(answer, 2, 5, drop_last=True)
    yield "no items: all lists are empty", [_lengths(answer, 0, 2), _shards(answer, 0, 2)]

    torch.manual_seed(seed + 1)  # the engine seeds with 0
    before = torch.get_rng_state()
    yield "does not depend on torch's global random numbers", _shards(answer, even, ranks) == shards
    yield "leaves torch's global random numbers alone", torch.equal(before, torch.get_rng_state())
    loader = DataLoader(range(uneven), batch_size=2, sampler=answer(uneven, ranks, 1))
    batches = [batch.tolist() for batch in itertools.islice(loader, 100)]
    yield "in a DataLoader: the number of batches, and what is in them", [len(loader), batches]
    made = {rank: _outcome(lambda rank=rank: type(answer(even, ranks, rank)).__name__)[0] for rank in (-1, ranks)}
    yield "a rank that does not exist raises ValueError", {f"rank {rank} of {ranks}": made[rank] for rank in made}
    cases = itertools.product((1, 5, 8, 11), (1, 2, 4), (False, True), (False, True))
    yield "all else as DistributedSampler has it; first difference", _first_difference(answer, cases, epoch=seed % 4)


def _first_difference(answer, cases, epoch):
    """A line on the first case in which a rank's indices are not those of torch's sampler, or "none"."""
    for n_items, world_size, shuffle, drop_last in cases:
        for rank in range(world_size):
            ours = answer(n_items, world_size, rank, shuffle=shuffle, drop_last=drop_last)
            theirs = DistributedSampler(range(n_items), world_size, rank, shuffle=shuffle, drop_last=drop_last)
            for sampler in (ours, theirs):
                sampler.set_epoch(epoch)
            if _indices(ours) != list(theirs) or len(ours) != len(theirs):
                return f"{n_items} items, rank {rank} of {world_size}, {shuffle=}, {drop_last=}, {epoch=}"
    return "none"


def _in_rank(rank, world_size, answer, inputs):
    """Of each call with one of `inputs`: [what came back, operations asked of the group, bytes sent]."""
    found = []
    for of_ranks in inputs:
        with counted() as traffic:
            before = wire_bytes()
            result = answer(*of_ranks[rank])
            sent = 0 if before is None else wire_bytes() - before
        found.append([plain(result), traffic.calls(), sent])
    return found


def _by_rank(answer, *inputs):
    """For each of `inputs`, itself a list of the arguments of each rank: the list of what `_in_rank` found."""
    found = run_ranks(_in_rank, len(inputs[0]), answer, inputs, backend="gloo", timeout=TIMEOUT)
    return list(zip(*found, strict=True))


def _named(values):
    return {f"rank {rank}": value for rank, value in enumerate(values)}


def _kind(value):
    """What a value is, without its numbers."""
    if isinstance(value, torch.Tensor):
        return f"a {str(value.dtype)[6:]} tensor of shape {tuple(value.shape)}"
    return type(value).__name__


def _kinds(result):
    pair = isinstance(result, (list, tuple)) and len(result) == 2
    return [_kind(value) for value in result] if pair else f"not a pair: {_kind(result)}"


@exercise(UNIT)
def global_moments(answer, device, seed):
    """Shards of one size, of different sizes, as images, far from 0, and empty: moments on two or three ranks."""
    rng = torch.Generator().manual_seed(seed)
    channels = 2 + seed % 3

    def shards(*sizes, image=(), mean=0.0, apart=1.0, dtype=torch.float32):
        """[(x,) of each rank]: the means of the ranks lie `apart`, in steps of their numbers."""
        drawn = [torch.randn(n, channels, *image, generator=rng, dtype=torch.float64) for n in sizes]
        return [((x * (1 + rank) + mean + apart * rank).to(dtype),) for rank, x in enumerate(drawn)]

    def facts(text, found):
        yield f"{text}: the mean", _named(result[0] for result, _, _ in found)
        yield f"{text}: the variance", _named(result[1] for result, _, _ in found)

    (found,) = _by_rank(answer, shards(6, 6))
    yield "returns a pair of tensors (C,) on each rank", _named(_kinds(result) for result, _, _ in found)
    yield from facts("equal shards", found)
    yield "asks the group for 2 operations or fewer", all(calls <= 2 for _, calls, _ in found)
    many = [(torch.randn(4000 + rank, channels, generator=rng),) for rank in range(3)]
    far = [(1e4 + torch.randn(n, channels, generator=rng),) for n in (300, 500, 200)]
    uneven, wide, many, moved = _by_rank(answer, shards(9, 2, 5), shards(4, 1, 3, dtype=torch.float64), many, far)
    yield from facts("shards of different sizes", uneven)
    yield from facts("in float64", wide)
    samples = 4000 * channels * 4  # bytes of what a rank has
    yield "what it sends does not grow with the number of samples", all(sent < samples / 2 for _, _, sent in many)
    (found,) = _by_rank(answer, shards(3, 1, image=(2, 4)))
    yield from facts("images (n, C, H, W)", found)

    exact = torch.cat([x for (x,) in far]).double()
    for place, (name, limit) in enumerate({"mean": 1e-2, "variance": 1e-3}.items()):
        right = (exact.mean(0), exact.var(0, correction=0))[place]
        worst = max((result[place] - right).abs().max() for result, _, _ in moved)
        yield f"a mean of 1e4 in float32: the {name} is right to {limit:g}", bool(worst < limit)

    rows, images = _by_rank(answer, shards(4, 0, 3), shards(0, 2, 1, image=(3, 1)))
    yield from facts("a rank without samples", rows)
    yield from facts("a rank without images", images)


@exercise(UNIT, apart=True)
def shard_scale(answer, device, seed):
    """The factors of shards, and the gradient that comes of them; the ranks take turns, no process is started."""
    rng = torch.Generator().manual_seed(seed)
    size = 5 + seed % 7
    yield "returns a float", type(answer(size, 4 * size, 4)).__name__
    yield "4 ranks with equally many samples: the factor of each", answer(size, 4 * size, 4)
    sizes = [size, 2, 1, 2 * size]
    yield (
        f"ranks with {', '.join(map(str, sizes))} samples",
        _named(answer(n, sum(sizes), len(sizes)) for n in sizes),
    )
    yield "a rank without samples", answer(0, size, 3)
    yield "the only rank", answer(size, size, 1)
    yield "counts of tokens", answer(3_000_000 + seed, 10_000_000, 8)

    x = torch.randn(sum(sizes), 3, generator=rng, dtype=torch.float64).to(device)
    weight = nn.Parameter(torch.randn(3, generator=rng, dtype=torch.float64).to(device))
    ends = list(itertools.accumulate(sizes))
    losses = [
        answer(n, len(x), 4) * (x[end - n : end] @ weight).square().mean() for n, end in zip(sizes, ends, strict=True)
    ]
    by_ddp = torch.stack([torch.autograd.grad(loss, weight)[0] for loss in losses]).mean(0)
    yield "the mean of the ranks' gradients is that of all samples", by_ddp


@exercise(UNIT)
def weighted_mean(answer, device, seed):
    """Means of two and three ranks, with equal weights, others, and none."""
    rng = torch.Generator().manual_seed(seed)

    def parts(*weights, empty=()):
        """[(value, weight) of each rank]; the ranks in `empty` have no samples, so nan for a mean."""
        values = torch.rand(len(weights), generator=rng)
        values[list(empty)] = math.nan
        return list(zip(values, weights, strict=True))

    def results(found):
        return _named(result for result, _, _ in found)

    large = 2**24  # the last count after which float32 leaves some out
    many = [(torch.tensor(1.0), 1), (torch.tensor(0.0), large)]
    equal, uneven, many = _by_rank(answer, parts(8, 8), parts(3 + seed % 4, 40), many)
    yield "returns a float on each rank", _named(type(result).__name__ for result, _, _ in equal)
    yield "equal weights", results(equal)
    yield "asks the group for 2 operations or fewer", all(calls <= 2 for _, calls, _ in equal)
    yield "other weights", results(uneven)
    three, fractions = _by_rank(answer, parts(1, 5, 30 + seed % 3), parts(0.25, 0.5, 1.5))
    yield "three ranks", results(three)
    yield "weights that are no whole numbers", results(fractions)
    zero, nothing = _by_rank(answer, parts(4, 0, 2), parts(5, 0, 3, empty=[1]))
    yield "a weight of 0", results(zero)
    yield "a weight of 0 and the value nan, the mean of no samples", results(nothing)
    if any(result != result for result, _, _ in nothing):
        return  # nan alone decides what is said, whether the sums are float32 or float64
    exact = all(abs(result * (large + 1) - 1) < 1e-9 for result, _, _ in many)
    yield "counts above 16,777,216 are not rounded", exact
    (found,) = _by_rank(answer, parts(0, 0, empty=[0, 1]))
    yield "all weights are 0: nan", results(found)


@exercise(UNIT)
def device_of(answer, device, seed):
    """Devices of machines with no, one and several GPUs."""
    count = 2 + seed % 5
    kind = type(answer(0, 1))
    yield "returns a torch.device", f"{kind.__module__}.{kind.__qualname__}"
    yield "the first process, one GPU", answer(0, 1)
    yield f"each of {count} processes, {count} GPUs", [answer(rank, count) for rank in range(count)]
    yield "fewer processes than GPUs", answer(1, 8)
    yield "no GPU: the CPU", answer(0, 0)
    yield "no GPU, and many processes", [answer(rank, 0) for rank in (1, count, 40)]
    for rank, text in ((count, "one process too many"), (count + 6, "many processes too many")):
        result, message = _outcome(lambda rank=rank: answer(rank, count))
        yield f"{text}: ValueError", result
        yield f"{text}: the message holds both numbers", {str(rank), str(count)} <= set(re.findall(r"\d+", message))


DDP_TRUE = "ACDEIKM"
DDP_TOPICS = {
    "A": "what wrapping a model sends",
    "B": "who divides the batch",
    "C": "when gradients are exchanged",
    "D": "what is in p.grad",
    "E": "the state of the optimizers",
    "F": "whose loss it is",
    "G": "the statistics of BatchNorm",
    "H": "a barrier before the batch",
    "I": "a barrier after the download",
    "J": "who shuffles",
    "K": "what padding does to an accuracy",
    "L": "one batch fewer on one rank",
    "M": "what torchrun sets",
    "N": "what MASTER_ADDR is for",
}


@exercise(UNIT, apart=True)
def ddp_facts(answer, device, seed):
    """The verdicts one by one, up to the first that is wrong: that one alone decides what is said about it."""
    verdicts = answer()
    yield "returns a dictionary", "dict" if isinstance(verdicts, dict) else type(verdicts).__name__
    yield "with the letters A to N", sorted(map(str, verdicts))
    yield "each has True or False", {letter: type(verdicts[letter]).__name__ for letter in DDP_TOPICS}
    for letter, topic in DDP_TOPICS.items():
        yield f"{letter}: {topic}", verdicts[letter]
        if verdicts[letter] != (letter in DDP_TRUE):
            return


@exercise(UNIT, seconds=60)
def train_ddp(answer, device, seed):
    """Lives of one training in two ranks; only an answer that is right in them is run by torchrun, which takes longer.

    Always on the CPU.
    """
    ranks = ddp_run.lives(answer, seed)
    for fact, seen, right in _facts_of_lives(ranks, seed):
        yield fact, seen
        if differs(plain(seen), right):
            return
    outcome, saved = ddp_run.under_torchrun(answer, seed)
    yield "torchrun: how the ranks ended", outcome
    whole = ranks[0]["whole"]["saved"]
    same = isinstance(saved, dict) and _same_weights(saved["model"], whole["model"], exact=False)
    yield "torchrun: the same weights as in the ranks above", same


def _facts_of_lives(ranks, seed):
    """(fact, what was seen, what is right) of each life; stops nowhere: the caller stops at the first difference."""
    plain_run = [rank["plain"] for rank in ranks]
    n = len(ddp_run.data(seed)[0])
    per_epoch = -(-n // ddp_run.BATCH)
    total = per_epoch * ddp_run.EPOCHS
    share = [4, 4, n // 2 - 8] * ddp_run.EPOCHS
    losses = [rank["losses"] for rank in plain_run]
    kinds = [type(value).__name__ for value in losses[0]] if isinstance(losses[0], list) else "no list"
    yield "returns a float for each epoch", kinds, ["float"] * ddp_run.EPOCHS
    sizes = [[len(samples) for samples in rank["steps"]] for rank in plain_run]
    yield "samples that each rank takes in each step", sizes, [share] * ddp_run.WORLD
    steps = [sum(parts, []) for parts in zip(*(rank["steps"] for rank in plain_run), strict=True)]
    epochs = [sum(steps[i : i + per_epoch], []) for i in range(0, total, per_epoch)]
    yield "an epoch visits each sample once", [sorted(e) == list(range(n)) for e in epochs], [True] * ddp_run.EPOCHS
    yield "every epoch has another order", len(set(map(tuple, epochs))), ddp_run.EPOCHS
    expected, weights, momenta = _one_process(steps, seed)
    means = [expected[i : i + per_epoch] for i in range(0, total, per_epoch)]
    means = [sum(loss * size for loss, size in mean) / n for mean in means]
    yield "the losses are means over all ranks, as of one process on whole batches", _near(losses[0], means), True
    yield "every rank returns the same losses", losses[1] == losses[0], True

    yield "files that rank 0 leaves", plain_run[0]["files"], [ddp_run.CHECKPOINT]
    yield "files that rank 1 leaves", plain_run[1]["files"], []
    saved = plain_run[0]["saved"]
    keys = sorted(map(str, saved)) if isinstance(saved, dict) else saved
    yield "what the checkpoint holds", keys, ["model", "optimizer", "step"]
    yield "its step", saved["step"], total
    yield "its model has the names of the model itself", list(saved["model"]), list(weights)
    yield "its weights are those of one process on whole batches", _same_weights(saved["model"], weights, False), True
    state = saved["optimizer"].get("state", {}) if isinstance(saved["optimizer"], dict) else {}
    buffers = [entry.get("momentum_buffer") for entry in state.values() if isinstance(entry, dict)]
    found = len(buffers) == len(momenta) and all(isinstance(buffer, torch.Tensor) for buffer in buffers)
    found = found and all(torch.allclose(b, m, 1e-4, 1e-5) for b, m in zip(buffers, momenta, strict=True))
    yield "its optimizer has the momentum of each weight", found, True
    ends = [per_epoch * (e + 1) for e in range(ddp_run.EPOCHS)]
    yield "steps after which rank 0 has saved, save_every=1000", plain_run[0]["saves"], ends
    replaced = plain_run[0]["replaced"]
    yield "a new checkpoint is another file, put in the place of the old one", replaced, True
    reports = [rank["reports"] for rank in plain_run]
    yield "epochs that each rank reports", [[e for e, _ in r] for r in reports], [list(range(ddp_run.EPOCHS)), []]
    yield "the losses that it reports", _near([loss for _, loss in reports[0]], means), True
    yield "the process group is gone at the end", any(rank["group left"] for rank in plain_run), False

    other = sum((sum(parts, []) for parts in zip(*(rank["other seed"]["steps"] for rank in ranks), strict=True)), [])
    yield "another seed, another order", other[:n] != epochs[0], True
    kept = [torch.stack([mask[:2] for mask in rank["whole"]["kept"]]) for rank in ranks]  # (steps, 2, features)
    yield "dropout differs from rank to rank", not torch.equal(*kept), True
    patterns = {tuple(k.flatten().tolist()) for k in kept[0]}  # of ten bits: two may be equal by chance
    yield "dropout differs from step to step", len(patterns) > total - 3, True
    saves = sorted({*range(2, total + 1, 2), *ends})
    yield "steps after which rank 0 has saved, save_every=2", ranks[0]["whole"]["saves"], saves

    cut = [rank["cut"] for rank in ranks]
    yield "an error in a step is raised to the caller", [life["raised"] for life in cut], ["Cut"] * ddp_run.WORLD
    yield "the process group is gone after an error", any(life["group left"] for life in cut), False
    yield "files after an error", cut[0]["files"], [ddp_run.CHECKPOINT]
    resumed = [rank["resumed"] for rank in ranks]
    again = [rank["whole"]["steps"][4:] for rank in ranks]  # five steps were done, four were saved
    yield "steps that a second life trains", [len(life["steps"]) for life in resumed], [total - 4] * ddp_run.WORLD
    yield "it trains the samples that were left", [life["steps"] for life in resumed] == again, True
    yield "epochs that it reports", [epoch for epoch, _ in resumed[0]["reports"]], [1, 2]
    same = _same_weights(resumed[0]["saved"]["model"], ranks[0]["whole"]["saved"]["model"], exact=True)
    yield "it ends with the very weights of a training that was never stopped", same, True
    finished = [[rank["finished"]["losses"], len(rank["finished"]["steps"])] for rank in ranks]
    yield "a third life has nothing left to train", finished, [[[], 0]] * ddp_run.WORLD
    yield "files that are left", ranks[0]["finished"]["files"], [ddp_run.CHECKPOINT]


def _one_process(steps, seed):
    """([(loss, samples)] of each step, weights, momenta) of a training on whole batches, without torch.distributed."""
    images, labels = ddp_run.data(seed)
    watch = ddp_run.Watch(ddp_run.Path("nowhere", "nothing"), len(images))
    torch.manual_seed(seed)
    model = ddp_run.Spy(False, watch)
    weights = list(model.parameters())
    momenta, losses = [torch.zeros_like(w) for w in weights], []
    for samples in steps:
        loss = F.cross_entropy(model(images[samples]), labels[samples])
        losses.append((loss.item(), len(samples)))
        with torch.no_grad():
            for weight, momentum, grad in zip(weights, momenta, torch.autograd.grad(loss, weights), strict=True):
                momentum.mul_(0.9).add_(grad)
                weight.sub_(0.2 * momentum)
    return losses, model.state_dict(), momenta


def _near(seen, expected):
    """True for two lists of the same numbers, but for rounding."""
    return len(seen) == len(expected) and all(abs(s - e) < 1e-4 for s, e in zip(seen, expected, strict=True))


def _same_weights(seen, expected, exact):
    """True for two states of one model; with `exact` to the bit."""
    if seen.keys() != expected.keys():
        return False
    return all(
        torch.equal(seen[k], v) if exact else torch.allclose(seen[k], v, 1e-4, 1e-5) for k, v in expected.items()
    )


def _raised_type(call):
    """The name of the type of the exception that `call()` raises."""
    try:
        call()
    except Exception as error:
        return type(error).__name__
    return "nothing"


def _type_names(values):
    """The names of the types in a list, each once; of anything else its own."""
    return sorted({type(v).__name__ for v in values}) if isinstance(values, list) else type(values).__name__


@exercise(UNIT, apart=True)
def rank_environment(answer, device, seed):
    """A table of variables, and two processes that meet with them."""
    nodes, per_node, port = 3 + seed % 3, 4 + seed % 2, 29500 + seed % 400
    first = answer(0, 0, nodes, per_node, "10.0.0.7", port)
    yield "returns a dict", type(first).__name__
    yield "the names of the variables", sorted(map(str, first))
    yield "all names and values are str", _type_names([*first.keys(), *first.values()])
    yield "the first process of the first node", first
    yield "another process of the first node", answer(0, 2, nodes, per_node, "10.0.0.7", port)
    yield "the first process of another node", answer(2, 0, nodes, per_node, "10.0.0.7", port)
    yield "any other process", answer(nodes - 1, 1, nodes, per_node, "gpu-3.example.org", port + 1)
    pairs = [(node, local) for node in range(nodes) for local in range(per_node)]
    ranks = [str(answer(*pair, nodes, per_node, "a", port).get("RANK")) for pair in pairs]
    yield "the ranks of all processes, node by node", ranks
    yield "one process on one node", answer(0, 0, 1, 1, "localhost", port)
    before = dict(os.environ)
    answer(0, 0, 2, 2, "localhost", port)
    yield "the environment of the caller stays as it is", dict(os.environ) == before
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    given = [answer(node, 0, 2, 1, "127.0.0.1", port) for node in range(2)]
    can_meet = [
        {"RANK": str(i), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)} for i in (0, 1)
    ]
    if any(need.items() - theirs.items() for need, theirs in zip(can_meet, given, strict=True)):
        yield "two nodes of one process each meet and add 1 and 2", "they would wait for ever"
    else:
        try:
            sums = run_ranks(_meet, 2, given, backend="gloo", timeout=HANG)
        except RuntimeError:  # a busy machine, or another process was at the port: once more
            sums = run_ranks(_meet, 2, given, backend="gloo", timeout=HANG)
        yield "two nodes of one process each meet and add 1 and 2", sums


def _meet(rank, world_size, given):
    """The sum over all ranks of rank + 1, in a process group of what the environment says alone."""
    dist.destroy_process_group()
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE"):
        del os.environ[name]
    os.environ.update(given[rank])
    dist.init_process_group("gloo", init_method="env://", timeout=timedelta(seconds=HANG))
    total = torch.tensor([rank + 1])
    dist.all_reduce(total)
    return total.item()


@exercise(UNIT, apart=True)
def update_plan(answer, device, seed):
    """Plans of short epochs."""
    n, every = 8 + seed % 5, 3 + seed % 2
    plan = answer(n, every)
    yield "returns a list of bool", [type(plan).__name__, *_type_names(list(plan))]
    yield "has one entry for each micro-batch", len(plan)
    yield "the first group of micro-batches", list(plan)[:every]
    yield "an epoch of whole groups", answer(3 * every, every)
    yield "an epoch whose last group is short by one", answer(3 * every - 1, every)
    yield "an epoch whose last group is one micro-batch", answer(2 * every + 1, every)
    yield "an update after every micro-batch", answer(4, 1)
    yield "an epoch shorter than a group", answer(every - 1, every)
    yield "one micro-batch", answer(1, every)
    yield "an epoch without micro-batches", answer(0, every)


class _Notes:
    """What a loop does with a model and an optimizer, written down as it happens: `events`, `gradients`, `quiet`."""

    def __init__(self, model, optimizer):
        self.events, self.gradients, self.forward, self.backward, self.inside = [], [], [], [], False
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
        self.gradients.append([torch.zeros_like(p) if p.grad is None else p.grad.clone() for p in self.parameters])

    @contextlib.contextmanager
    def no_sync(self):
        before, self.inside = self.inside, True
        try:
            yield
        finally:
            self.inside = before


def _micro_batches(rng, sizes, device):
    return [
        (torch.randn(n, 4, generator=rng).to(device), torch.randint(3, (n,), generator=rng).to(device)) for n in sizes
    ]


def _classifier(seed):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))


def _weights(model):
    return [p.detach().cpu().clone() for p in model.parameters()]


def _all_close(these, those):
    return all(torch.allclose(a, b, rtol=1e-4, atol=1e-5) for a, b in zip(these, those, strict=True))


def _whole_batches(model, batches, every, lr):
    """The weights after one update on each `every` micro-batches, joined: plain SGD, written out."""
    for start in range(0, len(batches), every):
        inputs, targets = (torch.cat(part) for part in zip(*batches[start : start + every], strict=True))
        gradients = torch.autograd.grad(F.cross_entropy(model(inputs), targets), list(model.parameters()))
        with torch.no_grad():
            for p, gradient in zip(model.parameters(), gradients, strict=True):
                p -= lr * gradient
    return _weights(model)


@exercise(UNIT)
def accumulate(answer, device, seed):
    """The loop on one process, event by event, then in two ranks of DDP with its messages counted."""
    rng = torch.Generator().manual_seed(seed)
    lr, size = 0.4, 3 + seed % 2

    def noted(sizes, every, loss_fn=F.cross_entropy, stale=False):
        model = _classifier(seed).to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr)
        batches = _micro_batches(rng, sizes, device)
        if stale:
            F.cross_entropy(model(batches[0][0]), batches[0][1]).backward()
        start, notes = copy.deepcopy(model), _Notes(model, optimizer)
        updates = answer(model, batches, loss_fn, optimizer, every, notes.no_sync)
        same = _all_close(_weights(model), _whole_batches(start, batches, every, lr))
        return updates, notes, same

    updates, notes, same = noted([size] * 6, 3)
    yield "returns the number of updates", updates
    yield "six micro-batches, an update after every third", _passes_before_steps(notes)
    yield "the gradient of the first update is the mean over its samples", notes.gradients[:1]
    yield "so is that of the second", notes.gradients[1:]
    yield "a micro-batch goes backward before the next goes forward", notes.events
    yield "which forward passes are inside of no_sync()", notes.forward
    yield "which backward passes are inside of no_sync()", notes.backward
    yield "the weights are those of one step a group on all its samples", same
    updates, notes, same = noted([size, 1, 2 * size, 2], 2)
    yield "micro-batches of different sizes: every sample weighs the same", notes.gradients
    yield "with them: the weights are those of whole batches", same
    updates, notes, same = noted([size] * 8, 3)
    yield "eight micro-batches, the last group is short: updates", updates
    yield "the short group has an update of its own", _passes_before_steps(notes)
    yield "its gradient is the mean over its samples", notes.gradients
    yield "its last micro-batch is outside of no_sync()", [notes.forward, notes.backward]
    yield "the number of updates, again on other sizes", noted([2, size, 1, 1, 3], 4)[0]
    _, notes, _ = noted([size, size], 2, stale=True)
    yield "gradients that lay there at the start do not count", notes.gradients
    _, notes, _ = noted([size, 2], 1)
    yield "every=1 is the plain loop", [notes.events, notes.gradients, notes.forward]
    updates, notes, _ = noted([size, 2], 5)
    yield "an epoch shorter than a group", [updates, notes.events, notes.gradients]
    _, notes, _ = noted([size, 2], 2, lambda outputs, targets: (outputs.sum(1) - targets).square().mean())
    yield "another loss function", notes.gradients
    yield "an epoch without micro-batches", noted([], 3)[0]

    sizes = [size, 2, size, 1, 2]
    data = [_micro_batches(rng, sizes, "cpu") for _ in range(2)]
    ranks = run_ranks(_accumulate_in_rank, 2, answer, data, lr, seed, backend="gloo", timeout=HANG)
    yield "two ranks of DDP: updates of each", [updates for updates, _, _ in ranks]
    yield "two ranks: all_reduces of each, one an update", [sent for _, sent, _ in ranks]
    joined = [tuple(map(torch.cat, zip(*pair, strict=True))) for pair in zip(*data, strict=True)]
    whole = _whole_batches(_classifier(seed), joined, 2, lr)
    yield "two ranks: the weights are those of one process on all samples", [_all_close(w, whole) for _, _, w in ranks]


def _passes_before_steps(notes):
    """How many backward passes had run at each step of the optimizer."""
    return [notes.events[:i].count("backward") for i, event in enumerate(notes.events) if event == "step"]


def _accumulate_in_rank(rank, world_size, answer, data, lr, seed):
    with counted() as traffic:
        model = DistributedDataParallel(_classifier(seed))
        optimizer = torch.optim.SGD(model.parameters(), lr)
        before = traffic.calls("all_reduce")
        updates = answer(model, data[rank], F.cross_entropy, optimizer, 2, model.no_sync)
        return updates, traffic.calls("all_reduce") - before, _weights(model)


@exercise(UNIT, needs="pytorch_lightning", seconds=60)
def lightning_fit(answer, device, seed):
    """Two ranks that train with Lightning, and the same training as a plain loop with DDP."""
    ranks = run_ranks(_lightning_in_rank, 2, answer, 0.5, 2 + seed % 2, seed, backend="gloo", timeout=15)
    yield "returns a list of floats, on each rank", [rank["kinds"] for rank in ranks]
    yield "one loss for each step of the rank, through all epochs", [rank["steps"] for rank in ranks]
    yield "nothing is printed", not any(rank["printed"] for rank in ranks)
    yield "no file is left in the current folder", [rank["files"] for rank in ranks]
    yield "the losses of each rank in the first epoch", [rank["losses"][: rank["in_epoch"]] for rank in ranks]
    yield "the losses in later epochs", [rank["losses"][rank["in_epoch"] :] for rank in ranks]
    yield "both ranks end with the same weights", _all_close(ranks[0]["weights"], ranks[1]["weights"])
    yield "the weights", ranks[0]["weights"]
    yield "the losses are those of a plain loop with DDP", [rank["same losses"] for rank in ranks]
    yield "and so are the weights", [rank["same weights"] for rank in ranks]


def _lightning_in_rank(rank, world_size, answer, lr, epochs, seed):
    """What came of the answer on this rank, and whether a plain loop gives the same."""
    rng = torch.Generator().manual_seed(seed)
    data = TensorDataset(*_micro_batches(rng, [21 + seed % 3], "cpu")[0])
    model = _classifier(seed)
    plain = copy.deepcopy(model)
    losses = _plain_loop(plain, data, lr, epochs)
    torch.manual_seed(rank)  # a loader that is left with its own sampler shuffles otherwise on every rank
    loader = DataLoader(data, batch_size=4, shuffle=True)
    printed = io.StringIO()
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(printed), _tempting_gpus():
        os.chdir(folder)
        try:
            theirs = answer(model, loader, lr, epochs)
            files = sorted(os.listdir(folder))
        finally:
            os.chdir("/")
    seen = [float(loss) for loss in theirs] if isinstance(theirs, (list, tuple)) else []
    return {
        "kinds": _type_names(theirs),
        "steps": len(seen),
        "in_epoch": len(losses) // epochs,
        "printed": printed.getvalue(),
        "files": files,
        "losses": seen,
        "weights": _weights(model),
        "same losses": len(seen) == len(losses) and _all_close([torch.tensor(seen)], [torch.tensor(losses)]),
        "same weights": _all_close(_weights(model), _weights(plain)),
    }


@contextlib.contextmanager
def _tempting_gpus():
    """Inside the block there seem to be GPUs, and who wants to compute on one is told: the same on every machine."""
    no = RuntimeError("the Trainer takes a GPU where there is one; it should compute on the CPU: accelerator='cpu'.")
    with mock.patch("torch.cuda.device_count", return_value=2), mock.patch("torch.cuda._lazy_init", side_effect=no):
        yield


def _plain_loop(model, data, lr, epochs):
    """The losses of this rank; trains `model` with torch alone."""
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=4, sampler=sampler)
    ddp, losses = DistributedDataParallel(model), []
    optimizer = torch.optim.SGD(ddp.parameters(), lr)
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        for inputs, labels in loader:
            loss = F.cross_entropy(ddp(inputs), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses


@exercise(UNIT, apart=True)
def efficiency(answer, device, seed):
    """Tables of times, some of them ideal."""
    rng = torch.Generator().manual_seed(seed)
    ranks = [1, 2, 4, 8 + seed % 5]
    ideal = 60.0 / torch.tensor(ranks)
    strong = answer(ranks, ideal)
    yield "returns a tensor", type(strong).__name__
    yield "one value for each measurement", strong.shape
    yield "float64", strong.dtype
    yield "strong scaling, ideal times: 1 everywhere", strong
    yield "strong scaling, times that do not change", answer(ranks, torch.full((4,), 60.0))
    times = ideal + 30 * torch.rand(4, generator=rng)
    yield "strong scaling, times as they are measured", answer(ranks, times)
    yield "weak=False says the same", answer(ranks, times, weak=False)
    yield "weak scaling, times that do not change: 1 everywhere", answer(ranks, torch.full((4,), 60.0), weak=True)
    grown = 40 + 30 * torch.rand(4, generator=rng)
    yield "weak scaling, times as they are measured", answer(ranks, grown, weak=True)
    mixed = [ranks[i] for i in (2, 0, 3, 1)]
    yield "ranks in another order", answer(mixed, times)
    yield "ranks in another order, weak scaling", answer(mixed, grown, weak=True)
    yield "values above 1 stay", answer([1, 2], torch.tensor([10.0, 4.0]))
    yield "values above 1 stay, weak scaling", answer([1, 2], torch.tensor([10.0, 8.0]), weak=True)
    yield "float64 times keep their precision", answer([1, 3], torch.tensor([1.0, 0.7], dtype=torch.float64))
    yield "one measurement", answer([1], torch.tensor([3.0]))
    yield "no measurement on one rank", _raised_type(lambda: answer([2, 4], torch.tensor([3.0, 2.0])))


@exercise(UNIT, apart=True)
def fit_serial_share(answer, device, seed):
    """Times on the curve, beside it, and so that the best line leaves [0, 1]."""
    rng = torch.Generator().manual_seed(seed)
    ranks = [1, 2, 3, 4, 6, 8 + seed % 5]
    x = 1 / torch.tensor(ranks, dtype=torch.float64)
    t1, share = 50.0 + seed % 17, 0.15 + 0.1 * (seed % 3)

    def fitted(ranks, seconds):
        return torch.tensor(answer(ranks, seconds), dtype=torch.float64)

    exact = t1 * (share + (1 - share) * x)
    found = answer(ranks, exact)
    yield "returns two Python floats", [type(found).__name__, len(found), *_type_names(list(found))]
    yield "times exactly on the curve", fitted(ranks, exact)
    yield "times in another order", fitted(ranks[::-1], exact.flip(0))
    noisy = exact * (1 + 0.03 * torch.randn(len(ranks), generator=rng))
    yield "noisy times", fitted(ranks, noisy)
    yield "no measurement on one rank", fitted(ranks[1:], noisy[1:])
    yield "two measurements", fitted([2, 8], torch.tensor([30.0, 12.0], dtype=torch.float64))
    yield "a number of ranks measured twice", fitted([1, 2, 2, 4], noisy[[0, 1, 2, 3]])
    yield "float32 times, computed in float64", fitted(ranks, noisy.float())
    tilted = t1 * (x - 0.04 + 0.01 * torch.rand(len(ranks), generator=rng))
    yield "better than ideal: s is 0", fitted(ranks, tilted)[1]
    yield "better than ideal: its t1", fitted(ranks, tilted)
    slower = t1 * (1.5 - 0.4 * x + 0.05 * torch.rand(len(ranks), generator=rng))
    yield "slower with more ranks: s is 1", fitted(ranks, slower)[1]
    yield "slower with more ranks: its t1", fitted(ranks, slower)
    yield "a hundred times slower with more ranks", fitted([1, 2, 4, 8], torch.tensor([1.0, 4.0, 20.0, 100.0]))
    yield "times that do not change", fitted([1, 2, 4], torch.tensor([7.0, 7.0, 7.0]))
    yield "ideal times", fitted([1, 2, 4], torch.tensor([8.0, 4.0, 2.0]))
