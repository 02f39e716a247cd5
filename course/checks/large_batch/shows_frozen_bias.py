"""Probe of exercise shows_frozen_bias."""

from functools import partial

import torch

from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.order import asked_in_any_order


def _optimizer_class(factor):
    """An optimizer class with w -= lr * factor(w, g, step) * g, step counted from 1; takes params
    and lr only.
    """

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


@exercise(same_facts_at_all_seeds=True)
def shows_frozen_bias(answer: Answer, device: torch.device, seed: int) -> Facts:
    """The learner's experiment, tried on optimizers that we know."""
    trust = 10.0 ** -(2 + seed % 3)

    def ratio(w, g):
        return trust * w.norm() / g.norm()

    verdict = answer(torch.optim.SGD)
    yield "returns a bool", type(verdict).__name__
    yield "plain SGD moves a bias", verdict
    kinds = {
        "nothing ever moves: it shows": lambda w, g, step: 0.0,
        "LARS without a guard: a bias of zeros is frozen": lambda w, g, step: ratio(w, g),
        "the same with weight decay in the ratio": lambda w, g, step: (
            trust * w.norm() / (g.norm() + 0.1 * w.norm())
        ),
        "LARS with a guard moves it": lambda w, g, step: ratio(w, g) if w.any() else 1.0,
        "what freezes only matrices is innocent": lambda w, g, step: float(w.ndim < 2),
        "what freezes only 1-D parameters is guilty": lambda w, g, step: float(w.ndim != 1),
        "what freezes only parameters other than zero is innocent": lambda w, g, step: float(
            not w.any()
        ),
        "what moves one element of the bias moves": lambda w, g, step: (
            w.new_ones(w.numel()).cumsum(0).view_as(w) == 1
        ),
        "what moves by 1e-12 moves": lambda w, g, step: 1e-12,
        "what begins with three steps at learning rate 0 moves later": lambda w, g, step: float(
            step > 3
        ),
        "what moves at every fifth step only moves": lambda w, g, step: float(step % 5 == 0),
    }
    questions = {fact: partial(answer, _optimizer_class(factor)) for fact, factor in kinds.items()}
    yield from asked_in_any_order(
        seed, questions | {"Adam moves a bias": lambda: answer(torch.optim.Adam)}
    )
