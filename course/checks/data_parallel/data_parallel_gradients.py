"""Probe of exercise data_parallel_gradients."""

import torch
from torch.nn import functional as F

from course.checks.data_parallel.devices import (
    READY_MADE,
    StampingTransfers,
    message_sizes,
    module_bytes,
    module_state,
    nearly_equal,
    odd_module,
    on_one_device,
    same_state,
    ways,
)
from course.checks.engine import exercise
from course.distributed import Transfers


class _Cutting(Transfers):
    """Takes the history off all that passes: autograd ends at the border of a device."""

    def send(self, tensors, source, target):
        sent = zip(tensors, super().send(tensors, source, target), strict=True)
        return [copied.detach().requires_grad_(tensor.requires_grad) for tensor, copied in sent]


STEPS = ("batch", "module", "outputs", "gradients of the outputs", "gradients of the parameters")


class _Case:
    """A batch, its targets, and loss and gradients of the module alone."""

    def __init__(self, module, device, length, loss=F.mse_loss):
        self.batch = torch.randn(length, 4, dtype=torch.float64).to(device)
        targets = torch.randn(length, 3, dtype=torch.float64).to(device)
        self.targets = targets.argmax(1) if loss is F.cross_entropy else targets
        losses = []
        _, self.gradients = on_one_device(
            module, self.batch, lambda outputs: losses.append(loss(outputs, self.targets)) or losses[0]
        )
        self.loss = losses[0].detach()

    def same(self, loss, gradients):
        return nearly_equal(loss, self.loss) and nearly_equal(gradients, self.gradients)


@exercise(forbids=READY_MADE)
def data_parallel_gradients(answer, device, seed):
    """A step by hand, against autograd on the whole batch."""
    n = 3 + seed % 2
    module = odd_module(device, seed)
    module[2].weight.grad = torch.ones_like(module[2].weight)
    before = module_state(module)
    transfers = Transfers([device] * n)
    yield from _first_step(answer, module, _Case(module, device, 2 * n), transfers)
    for length, text in ((3 * n - 1, "a short last part"), (n - 1, "fewer rows than devices")):
        case = _Case(module, device, length)
        loss, gradients = answer(module, case.batch, case.targets, F.mse_loss, Transfers([device] * n))
        yield f"{text}: the loss", loss
        yield f"{text}: the gradients", _by_name(gradients)
        yield f"{text}: equal to autograd", case.same(loss, gradients)
    case = _Case(module, device, 2 * n, F.cross_entropy)
    loss, gradients = answer(module, case.batch, case.targets, F.cross_entropy, Transfers([device] * n))
    yield "another loss, labels for targets", case.same(loss, gradients)
    yield from _messages(module, transfers.log, n, trained=sum(gradient.nbytes for gradient in gradients.values()))
    transfers = Transfers([device] * n)
    answer(module, case.batch[: n - 1], case.targets[: n - 1], F.cross_entropy, transfers)
    yield "fewer rows than devices: messages", ways(transfers.log)
    yield "the module keeps its parameters, buffers and grad", same_state(module, before)
    for text, kind in (
        ("no graph of autograd crosses", _Cutting),
        ("what was sent is what is used", StampingTransfers),
    ):
        loss, gradients = answer(module, case.batch, case.targets, F.cross_entropy, kind([device] * n))
        yield f"{text}: the loss", loss
        yield f"{text}: the gradients", _by_name(gradients)
    loss, gradients = answer(module, case.batch, case.targets, F.cross_entropy, Transfers([device]))
    yield "a single device", case.same(loss, gradients)


def _by_name(gradients):
    return {name: gradients[name] for name in sorted(gradients)}


def _first_step(answer, module, case, transfers):
    """What comes back from a step whose loss function notes its calls."""
    calls = []

    def noting(outputs, targets):
        calls.append([list(outputs.shape), list(targets.shape)])
        return F.mse_loss(outputs, targets)

    found = answer(module, case.batch, case.targets, noting, transfers)
    yield "returns a pair", [type(found).__name__, len(found)]
    loss, gradients = found
    yield "a tensor and a dict", [type(loss).__name__, type(gradients).__name__]
    yield "a gradient for each parameter that is not frozen", sorted(gradients)
    gradients = _by_name(gradients)
    yield "the loss", loss
    yield "the gradients", gradients
    yield "equal to autograd on the whole batch", case.same(loss, gradients)
    yield "neither has a history", [loss.requires_grad, any(g.requires_grad for g in gradients.values())]
    yield "loss_fn is called once, on all rows", calls


def _messages(module, log, n, trained):
    """Ways and bytes of the five steps; `trained` is the bytes of all gradients."""
    yield "the number of messages, five a device", len(log)
    steps = [log[k : k + n] for k in range(0, len(log), n)]
    for number, (name, step) in enumerate(zip(STEPS, steps, strict=False), 1):
        yield f"messages of step {number}, {name}", ways(step)
        yield f"bytes of step {number}, {name}", message_sizes(step)
    rows = 2 * 8  # two float64 rows per device
    right = [n * [b] for b in (4 * rows, module_bytes(module), 3 * rows, 3 * rows, trained)]
    yield "these are the bytes of parts, module and gradients", list(map(message_sizes, steps)) == right
