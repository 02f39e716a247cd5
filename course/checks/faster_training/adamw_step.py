"""Probe of exercise adamw_step."""

import torch

from course.engine.exercise import Answer, Facts, exercise


class _Lists:
    """Parameters, gradients and running means of some shapes, and what an answer makes of them."""

    def __init__(self, answer, device, seed):
        self.answer, self.device, self.rng = answer, device, torch.Generator().manual_seed(seed)
        self.shapes = [(3 + seed % 3, 4), (5,), (), (2, 1, 3)]

    def tensors(self, size=1.0):
        return [
            (torch.randn(shape, generator=self.rng) * size).to(self.device) for shape in self.shapes
        ]

    def zeros(self):
        return [torch.zeros(shape, device=self.device) for shape in self.shapes]

    def after(self, steps, lr, size=1.0, **options):
        """(params, means, squares) after so many steps with new gradients."""
        params, means, squares = self.tensors(), self.zeros(), self.zeros()
        for step in range(1, steps + 1):
            self.answer(params, self.tensors(size), means, squares, step, lr, **options)
        return params, means, squares


@exercise(changes_inputs=True, forbids=("torch.optim",))
def adamw_step(answer: Answer, device: torch.device, seed: int) -> Facts:
    """Adam with decoupled decay and with L2, in place."""
    lists = _Lists(answer, device, seed)
    params, grads, means, squares = lists.tensors(), lists.tensors(), lists.zeros(), lists.zeros()
    start, kept = [p.clone() for p in params], [g.clone() for g in grads]
    for decoupled in (True, False):
        answer(
            list(params),
            list(grads),
            list(means),
            list(squares),
            1,
            0.1,
            weight_decay=0.5,
            decoupled=decoupled,
        )
    yield (
        "the parameter tensors themselves change",
        [not torch.equal(p, s) for p, s in zip(params, start, strict=True)],
    )
    yield "so do means and squares", [bool(t.any()) for t in (*means, *squares)]
    yield (
        "the gradients stay as they were",
        [torch.equal(g, k) for g, k in zip(grads, kept, strict=True)],
    )
    yield (
        "no decay, one step: about lr against the sign of the gradient",
        lists.after(1, 0.1, weight_decay=0.0)[0],
    )
    yield "no decay, one step: means and squares", lists.after(1, 0.1, weight_decay=0.0)[1:]
    yield "no decay, four steps", lists.after(4, 0.1, weight_decay=0.0)[0]
    yield (
        "AdamW: the decay is in neither mean nor square",
        lists.after(3, 0.1, weight_decay=0.5)[1:],
    )
    yield "AdamW, four steps", lists.after(4, 0.3, weight_decay=0.5)[0]
    _, *means = lists.after(1, 0.1, weight_decay=0.5, decoupled=False)
    yield "Adam with L2, one step: mean and square hold the decay", means
    yield "Adam with L2, four steps", lists.after(4, 0.1, weight_decay=0.5, decoupled=False)[0]
    for name, decoupled in (("AdamW", True), ("Adam with L2", False)):
        yield (
            f"gradients of zero: {name}",
            lists.after(2, 0.1, size=0.0, weight_decay=0.5, decoupled=decoupled)[0],
        )
    yield (
        "tiny gradients: eps is added outside the root",
        lists.after(2, 0.1, size=1e-8, weight_decay=0.0)[0],
    )
    yield "other betas and eps", lists.after(3, 0.1, betas=(0.5, 0.8), eps=0.1)[0]
    yield "by default betas 0.9 and 0.999, decay 0.01, decoupled", lists.after(3, 0.5)
    yield "by default eps is 1e-8", lists.after(1, 0.1, size=1e-8)[0]
    leaves = [p.requires_grad_() for p in lists.tensors()]
    means, squares = lists.zeros(), lists.zeros()
    answer(leaves, lists.tensors(), means, squares, 1, 0.1)
    leaf = [p.is_leaf and p.requires_grad for p in leaves]
    yield "parameters that require a gradient are moved and stay leaves", leaf
    yield (
        "means and squares carry no autograd history",
        any(t.requires_grad for t in (*means, *squares)),
    )
