"""Probe of exercise shows_frozen_bias."""

import torch

from course.checks.engine import exercise


def _optimizer_class(factor):
    """An optimizer class with w -= lr * factor(w, g, step) * g, step counted from 1; takes params and lr only."""

    class Optimizer(torch.optim.Optimizer):
        def __init__(self, params, lr):
            super().__init__(params, {"lr": lr})
            self.steps = 0

        @torch.no_grad()
        def step(self, closure=None):
            loss = None
            if closure is not None:
                with torch.enable_grad():
                    loss = closure()
            self.steps += 1
            for group in self.param_groups:
                for w in group["params"]:
                    if w.grad is not None:
                        w -= group["lr"] * factor(w, w.grad, self.steps) * w.grad
            return loss

    return Optimizer


@exercise()
def shows_frozen_bias(answer, device, seed):
    """The learner's experiment, tried on optimizers that we know."""
    trust = 10.0 ** -(2 + seed % 3)

    def ratio(w, g):
        return trust * w.norm() / g.norm()

    verdict = answer(torch.optim.SGD)
    yield "returns a bool", type(verdict).__name__
    yield "plain SGD moves a bias", verdict
    yield "nothing ever moves: it shows", answer(_optimizer_class(lambda w, g, step: 0.0))
    yield "LARS without a guard: a bias of zeros is frozen", answer(_optimizer_class(lambda w, g, step: ratio(w, g)))
    yield (
        "the same with weight decay in the ratio",
        answer(_optimizer_class(lambda w, g, step: trust * w.norm() / (g.norm() + 0.1 * w.norm()))),
    )
    guarded = _optimizer_class(lambda w, g, step: ratio(w, g) if w.any() else 1.0)
    yield "LARS with a guard moves it", answer(guarded)
    yield "what freezes only matrices is innocent", answer(_optimizer_class(lambda w, g, step: float(w.ndim < 2)))
    yield "what freezes only 1-D parameters is guilty", answer(_optimizer_class(lambda w, g, step: float(w.ndim != 1)))
    yield (
        "what freezes only parameters other than zero is innocent",
        answer(_optimizer_class(lambda w, g, step: float(not w.any()))),
    )
    first = _optimizer_class(lambda w, g, step: (torch.arange(w.numel(), device=w.device) == 0).reshape(w.shape) * 1.0)
    yield "what moves one element of the bias moves", answer(first)
    yield "what moves by a millionth moves", answer(_optimizer_class(lambda w, g, step: 1e-6))
    yield (
        "what begins with three steps at learning rate 0 moves later",
        answer(_optimizer_class(lambda w, g, step: float(step > 3))),
    )
    yield "what moves at every fifth step only moves", answer(_optimizer_class(lambda w, g, step: float(step % 5 == 0)))
    yield "Adam moves a bias", answer(torch.optim.Adam)
