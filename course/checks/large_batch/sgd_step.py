"""Probe of exercise sgd_step."""

from typing import Any

import torch

from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.laws import tried

Tensors = list[torch.Tensor]


class _Lists:
    """Parameters, gradients and velocities of some shapes, and what an answer makes of them."""

    def __init__(self, answer: Answer, device: torch.device, seed: int) -> None:
        self.answer = answer
        self.device = device
        self.rng = torch.Generator().manual_seed(seed)
        self.shapes = [(3 + seed % 3, 4), (5,), (), (2, 1, 3)]

    def tensors(self, dtype: torch.dtype = torch.float32) -> Tensors:
        made = []
        for shape in self.shapes:
            values = torch.randn(shape, generator=self.rng, dtype=torch.float64)
            made.append(values.to(self.device, dtype))
        return made

    def zeros(self, dtype: torch.dtype = torch.float32) -> Tensors:
        return [tensor.zero_() for tensor in self.tensors(dtype)]

    def after(self, lr: float, **options: Any) -> tuple[Tensors, Tensors]:
        """(parameters, velocities) after one step."""
        params = self.tensors()
        grads = self.tensors()
        velocities = self.tensors()
        self.answer(list(params), list(grads), list(velocities), lr, **options)
        return params, velocities


@exercise(changes_inputs=True)
def sgd_step(answer: Answer, device: torch.device, seed: int) -> Facts:
    """SGD with momentum and weight decay, in place."""
    lists = _Lists(answer, device, seed)
    yield from _in_place(answer, lists)
    yield from _autograd(answer, lists)
    yield from _one_step(lists)
    yield from _several_steps(answer, lists)
    params = lists.tensors()
    views = [param.view(-1) for param in params]
    answer(params, lists.tensors(), lists.tensors(), 0.1)
    yield "the memory of a parameter is written, not replaced", [view.view(-1) for view in views]


def _in_place(answer: Answer, lists: _Lists) -> Facts:
    """Which of the tensors that are given change."""
    params = lists.tensors()
    grads = lists.tensors()
    velocities = lists.zeros()
    start = [param.clone() for param in params]
    kept = [grad.clone() for grad in grads]
    result = answer(
        list(params), list(grads), list(velocities), 0.1, momentum=0.9, weight_decay=0.25
    )
    changed = all(not torch.equal(p, s) for p, s in zip(params, start, strict=True))
    yield "the parameter tensors themselves change", changed
    yield "returns nothing: the tensors are the result", type(result).__name__
    yield "the gradients stay as they were", tried(all(map(torch.equal, grads, kept)), kept)


def _autograd(answer: Answer, lists: _Lists) -> Facts:
    """Parameters that require a gradient."""
    params = [param.requires_grad_() for param in lists.tensors()]
    grads = lists.tensors()
    velocities = lists.tensors()
    answer(list(params), list(grads), list(velocities), 0.1, momentum=0.9, weight_decay=0.25)
    leaves = all(p.is_leaf and p.requires_grad for p in params)
    yield "parameters that require a gradient are moved too, and stay leaves", leaves
    no_history = not any(v.requires_grad for v in velocities)
    yield "the velocities carry no autograd history", tried(no_history, grads)


def _one_step(lists: _Lists) -> Facts:
    """One step with several settings."""
    params, velocities = lists.after(0.2, momentum=0.0)
    yield "without momentum: the velocity is the gradient", velocities
    yield "without momentum: the parameters", params
    params, velocities = lists.after(0.3, momentum=0.7)
    yield "with momentum 0.7: the velocities", velocities
    yield "with momentum 0.7: the parameters", params
    params, velocities = lists.after(0.05, momentum=0.0, weight_decay=0.5)
    yield "with weight decay: the parameters", params
    yield "with weight decay: the velocities", velocities
    params, _ = lists.after(0.3)
    yield "by default momentum is 0.9 and there is no weight decay", params


def _several_steps(answer: Answer, lists: _Lists) -> Facts:
    """Five steps in float64."""
    params = lists.tensors(torch.float64)
    velocities = lists.zeros(torch.float64)
    options = dict(momentum=0.8, weight_decay=0.1)
    for lr in (0.1, 0.1, 0.4, 0.05, 0.2):
        grads = lists.tensors(torch.float64)
        answer(list(params), grads, list(velocities), lr, **options)
    yield "five steps in float64 with a learning rate that changes", params
