"""Probe of exercise adamw_step."""

from typing import Any, NamedTuple

import torch

from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.laws import tried

Tensors = list[torch.Tensor]


class _After(NamedTuple):
    """Parameters and running means (of gradients, of their squares) after some steps."""

    params: Tensors
    means: Tensors
    squares: Tensors


class _Lists:
    """Parameters, gradients and running means of some shapes, and what an answer makes of them."""

    def __init__(self, answer: Answer, device: torch.device, seed: int) -> None:
        self.answer = answer
        self.device = device
        self.rng = torch.Generator().manual_seed(seed)
        self.shapes = [(3 + seed % 3, 4), (5,), (), (2, 1, 3)]

    def tensors(self, size: float = 1.0) -> Tensors:
        made = []
        for shape in self.shapes:
            made.append((torch.randn(shape, generator=self.rng) * size).to(self.device))
        return made

    def zeros(self) -> Tensors:
        return [torch.zeros(shape, device=self.device) for shape in self.shapes]

    def after(self, steps: int, lr: float, size: float = 1.0, **options: Any) -> _After:
        """The lists after so many steps with new gradients."""
        params = self.tensors()
        means = self.zeros()
        squares = self.zeros()
        for step in range(1, steps + 1):
            self.answer(params, self.tensors(size), means, squares, step, lr, **options)
        return _After(params, means, squares)


@exercise(changes_inputs=True, forbids=("torch.optim",))
def adamw_step(answer: Answer, device: torch.device, seed: int) -> Facts:
    """Adam with decoupled decay and with L2, in place."""
    lists = _Lists(answer, device, seed)
    yield from _in_place(answer, lists)
    yield from _no_decay(lists)
    yield from _decay(lists)
    yield from _small_gradients_and_defaults(lists)
    yield from _autograd(answer, lists)


def _in_place(answer: Answer, lists: _Lists) -> Facts:
    """Which of the tensors that are given change."""
    params = lists.tensors()
    grads = lists.tensors()
    means = lists.zeros()
    squares = lists.zeros()
    start = [p.clone() for p in params]
    kept = [g.clone() for g in grads]
    for decoupled in (True, False):
        given = (list(params), list(grads), list(means), list(squares))
        answer(*given, 1, 0.1, weight_decay=0.5, decoupled=decoupled)
    changed = [not torch.equal(p, s) for p, s in zip(params, start, strict=True)]
    yield "the parameter tensors themselves change", changed
    written = all(bool(t.any()) for t in (*means, *squares))
    yield "so do means and squares", tried(written, kept)
    yield "the gradients stay as they were", tried(all(map(torch.equal, grads, kept)), kept)


def _no_decay(lists: _Lists) -> Facts:
    """Adam alone."""
    params, _, _ = lists.after(1, 0.1, weight_decay=0.0)
    yield "no decay, one step: about lr against the sign of the gradient", params
    _, means, squares = lists.after(1, 0.1, weight_decay=0.0)
    yield "no decay, one step: means and squares", (means, squares)
    yield "no decay, four steps", lists.after(4, 0.1, weight_decay=0.0).params


def _decay(lists: _Lists) -> Facts:
    """Both kinds of weight decay."""
    _, means, squares = lists.after(3, 0.1, weight_decay=0.5)
    yield "AdamW: the decay is in neither mean nor square", (means, squares)
    yield "AdamW, four steps", lists.after(4, 0.3, weight_decay=0.5).params
    _, means, squares = lists.after(1, 0.1, weight_decay=0.5, decoupled=False)
    yield "Adam with L2, one step: mean and square hold the decay", [means, squares]
    params, _, _ = lists.after(4, 0.1, weight_decay=0.5, decoupled=False)
    yield "Adam with L2, four steps", params
    for name, decoupled in (("AdamW", True), ("Adam with L2", False)):
        params, _, _ = lists.after(2, 0.1, size=0.0, weight_decay=0.5, decoupled=decoupled)
        yield f"gradients of zero: {name}", params


def _small_gradients_and_defaults(lists: _Lists) -> Facts:
    """Where eps counts, and settings that are left out."""
    params, _, _ = lists.after(2, 0.1, size=1e-8, weight_decay=0.0)
    yield "tiny gradients: eps is added outside the root", params
    yield "other betas and eps", lists.after(3, 0.1, betas=(0.5, 0.8), eps=0.1).params
    yield "by default betas 0.9 and 0.999, decay 0.01, decoupled", tuple(lists.after(3, 0.5))
    yield "by default eps is 1e-8", lists.after(1, 0.1, size=1e-8).params


def _autograd(answer: Answer, lists: _Lists) -> Facts:
    """Parameters that require a gradient."""
    leaves = [p.requires_grad_() for p in lists.tensors()]
    means = lists.zeros()
    squares = lists.zeros()
    answer(leaves, lists.tensors(), means, squares, 1, 0.1)
    are_leaves = [p.is_leaf and p.requires_grad for p in leaves]
    yield "parameters that require a gradient are moved and stay leaves", are_leaves
    have_history = any(t.requires_grad for t in (*means, *squares))
    yield "means and squares carry no autograd history", have_history
