"""Probe of exercise data_parallel_gradients."""

import torch
from torch.nn import functional as F

from course.checks.data_parallel.shared import (
    READY_MADE,
    _alone,
    _bytes,
    _equal,
    _module,
    _same_state,
    _sizes,
    _Stamping,
    _state,
    _ways,
)
from course.checks.engine import exercise
from course.distributed import Transfers


class _Cutting(Transfers):
    """Takes the history off all that passes: autograd ends at the border of a device."""

    def send(self, tensors, source, target):
        sent = zip(tensors, super().send(tensors, source, target), strict=True)
        return [copied.detach().requires_grad_(tensor.requires_grad) for tensor, copied in sent]


@exercise(forbids=READY_MADE)
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
