"""Probe of exercise NoiseMeter."""

from typing import Any

import torch

from course.engine.exercise import Answer, Facts, exercise


def _stacked(norms: list[Any]) -> torch.Tensor | str:
    """The norms as one tensor, or in words what the list holds instead of tensors."""
    if not norms:
        return "an empty list"
    if not all(isinstance(norm, torch.Tensor) for norm in norms):
        return f"a list of {type(norms[0]).__name__}"
    return torch.stack(norms)


class _Training:
    """Two groups of parameters, one of them without a gradient, and a meter that watches them."""

    def __init__(self, answer: Answer, device: torch.device, seed: int, pieces: int) -> None:
        self.rng = torch.Generator().manual_seed(seed)
        self.params = [torch.nn.Parameter(self.drawn(2, 3).to(device)) for _ in range(3)]
        self.params.append(torch.nn.Parameter(self.drawn(4).to(device)))
        self.unused = self.params[1]
        groups = [{"params": self.params[:2]}, {"params": self.params[2:], **self.second_group()}]
        self.optimizer = self.make_optimizer(groups)
        self.meter = answer(self.optimizer, pieces)

    def second_group(self) -> dict[str, Any]:
        return {"lr": 0.5}

    def make_optimizer(self, groups: list[dict[str, Any]]) -> torch.optim.Optimizer:
        return torch.optim.SGD(groups, lr=0.1, momentum=0.9)

    def drawn(self, *shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=self.rng)

    def backward(self, *, watched: bool = True, zero_row: bool = False) -> None:
        """New gradients for all parameters but one, then the call of the meter."""
        for param in self.params:
            if param is self.unused:
                continue
            new = self.drawn(*param.shape).to(param.device)
            if param.grad is None:
                param.grad = new
            else:  # in place, as autograd adds to it
                param.grad.copy_(new)
        if zero_row:  # as of an embedding that no batch has used
            self.params[0].grad[0] = 0
        if watched:
            self.meter.after_backward()

    def seen(self) -> dict[str, Any]:
        """What the meter holds, stacked."""
        return {"small": _stacked(self.meter.small), "large": _stacked(self.meter.large)}


class _WithAdam(_Training):
    """The same with Adam, whose groups differ in betas and eps."""

    def second_group(self) -> dict[str, Any]:
        return {"betas": (0.9, 0.8), "eps": 0.01}

    def make_optimizer(self, groups: list[dict[str, Any]]) -> torch.optim.Optimizer:
        return torch.optim.Adam(groups, lr=0.1, betas=(0.9, 0.95))


@exercise()
def NoiseMeter(answer: Answer, device: torch.device, seed: int) -> Facts:
    """The norms of micro-batches and of batches, under SGD and in the units of Adam."""
    pieces = 3 + seed % 3
    yield from _updates_of_sgd(answer, device, seed, pieces)
    yield from _units_of_adam(answer, device, seed, pieces)


def _updates_of_sgd(answer: Answer, device: torch.device, seed: int, pieces: int) -> Facts:
    """Which backward passes count, and that all groups do."""
    run = _Training(answer, device, seed, pieces)
    run.backward(watched=False)
    before = [None if p.grad is None else p.grad.clone() for p in run.params]
    yield "norm() is the norm of all gradients of all groups", run.meter.norm()
    pairs = zip(before, (p.grad for p in run.params), strict=True)
    same = all(was is now or torch.equal(was, now) for was, now in pairs)
    yield "norm() leaves the gradients as they are", same
    for _ in range(pieces - 1):
        run.backward()
    counts = (len(run.meter.small), len(run.meter.large))
    yield "before the last piece of an update nothing is appended", counts
    run.backward()
    yield "one update: the first piece's norm and the batch's", run.seen()
    for _ in range(2 * pieces):
        run.backward()
    yield "three updates", run.seen()
    run.backward()
    yield "an update that has begun does not count yet", run.seen()
    alone = _Training(answer, device, seed, 1)
    alone.backward()
    alone.backward()
    yield "one piece per update: both norms are the same", alone.seen()


def _units_of_adam(answer: Answer, device: torch.device, seed: int, pieces: int) -> Facts:
    """The norm in the units of Adam, with two groups, after one update and after four."""
    run = _WithAdam(answer, device, seed, pieces)
    run.backward(watched=False, zero_row=True)
    yield "Adam before its first update: the plain norm", run.meter.norm()
    run.optimizer.step()
    run.backward(watched=False, zero_row=True)
    yield "Adam after one update, in which a row of gradients was all 0", run.meter.norm()
    for _ in range(3):
        run.optimizer.step()
        run.backward(watched=False)
    yield "Adam after four updates, groups with other betas and eps", run.meter.norm()
    for _ in range(pieces):
        run.backward()
    yield "Adam: both norms of an update", run.seen()
