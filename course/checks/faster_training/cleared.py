"""Probe of exercise cleared."""

from functools import partial

import torch

from course.checks.engine import exercise
from course.checks.probing.order import asked_in_any_order

SGD, Adam, AdamW, RMSprop = torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.RMSprop


class _Drift(torch.optim.Optimizer):
    """An optimizer for the probe alone: from its second step on it also moves what has no gradient."""

    def __init__(self, parameters):
        super().__init__(parameters, {})
        self.steps = 0

    @torch.no_grad()
    def step(self):
        self.steps += 1
        for parameter in self.param_groups[0]["params"]:
            if self.steps > 1 and parameter.grad is None:
                parameter.add_(1.0)


@exercise()
def cleared(answer, device, seed):
    """Which optimizers move a parameter whose gradient was cleared."""
    lr = 0.05 * (1 + seed % 4)
    found = answer(lambda parameters: SGD(parameters, lr=lr))
    yield "returns a dict with 'zero' and 'none'", sorted(found)
    yield "plain SGD", found
    kinds = {
        "SGD with momentum": lambda parameters: SGD(parameters, lr=lr, momentum=0.9),
        "SGD with weight decay": lambda parameters: SGD(parameters, lr=lr, weight_decay=0.1),
        "Adam": lambda parameters: Adam(parameters, lr=lr),
        "AdamW without momentum": lambda parameters: AdamW(parameters, lr=lr, betas=(0.0, 0.9)),
        "RMSprop": lambda parameters: RMSprop(parameters, lr=lr),
        "one that moves only what has no gradient": _Drift,
    }
    yield from asked_in_any_order(seed, {fact: partial(answer, make) for fact, make in kinds.items()})
    made = []

    def make(parameters):
        made.append(list(parameters))
        return SGD(made[-1], lr=lr, momentum=0.9)

    answer(make)
    yield "the optimizer gets at least one parameter", all(made) and bool(made)
    yield "a separate optimizer for each case", len(made) > 1
