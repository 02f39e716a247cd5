"""Probe of exercise shows_frozen_bias."""

from collections.abc import Callable
from functools import partial

import torch

from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.order import asked_in_any_order

Factor = Callable[[torch.Tensor, torch.Tensor, int], torch.Tensor | float]


def _optimizer_class(factor: Factor) -> type[torch.optim.Optimizer]:
    """An optimizer class that takes params and lr only.

    Its update is w -= lr * factor(w, g, step) * g, with step counted from 1.
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


def _first_element_only(w: torch.Tensor, g: torch.Tensor, step: int) -> torch.Tensor:
    return w.new_ones(w.numel()).cumsum(0).view_as(w) == 1


@exercise(same_facts_at_all_seeds=True)
def shows_frozen_bias(answer: Answer, device: torch.device, seed: int) -> Facts:
    """The learner's experiment, tried on optimizers that we know."""
    trust = 10.0 ** -(2 + seed % 3)

    def ratio(w: torch.Tensor, g: torch.Tensor, step: int) -> torch.Tensor:
        return trust * w.norm() / g.norm()

    def ratio_with_decay(w: torch.Tensor, g: torch.Tensor, step: int) -> torch.Tensor:
        return trust * w.norm() / (g.norm() + 0.1 * w.norm())

    def guarded_ratio(w: torch.Tensor, g: torch.Tensor, step: int) -> torch.Tensor | float:
        return ratio(w, g, step) if w.any() else 1.0

    verdict = answer(torch.optim.SGD)
    yield "returns a bool", type(verdict).__name__
    yield "plain SGD moves a bias", verdict
    factors = {
        "nothing ever moves: it shows": lambda w, g, step: 0.0,
        "LARS without a guard: a bias of zeros is frozen": ratio,
        "the same with weight decay in the ratio": ratio_with_decay,
        "LARS with a guard moves it": guarded_ratio,
        "what freezes only matrices is innocent": lambda w, g, step: w.ndim < 2,
        "what freezes only 1-D parameters is guilty": lambda w, g, step: w.ndim != 1,
        "what freezes only float32 is guilty": lambda w, g, step: w.dtype != torch.float32,
        "what freezes only parameters other than zero is innocent": lambda w, g, step: not w.any(),
        "what moves one element of the bias moves": _first_element_only,
        "what moves by 1e-12 moves": lambda w, g, step: 1e-12,
        "what begins with three steps at learning rate 0 moves later": lambda w, g, step: step > 3,
        "what moves at every fifth step only moves": lambda w, g, step: step % 5 == 0,
        "what moves at the tenth step only moves": lambda w, g, step: step == 10,
        "what moves after the tenth step only is frozen": lambda w, g, step: step > 10,
    }
    questions = {}
    for fact, factor in factors.items():
        questions[fact] = partial(answer, _optimizer_class(factor))
    questions |= {"Adam moves a bias": partial(answer, torch.optim.Adam)}
    yield from asked_in_any_order(seed, questions)
