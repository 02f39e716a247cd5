"""Probe of exercise LARS."""

import copy

import torch

from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.values import numbered

PLAIN = dict(lr=0.7, momentum=0.0, trust=0.2)
CHANGING = dict(lr=0.7, momentum=0.8, trust=0.2)
RULES = dict(lr=0.3, momentum=0.8, weight_decay=0.2, trust=0.2)


class _Setting:
    """A matrix and its gradients, and what an answer makes of such tensors."""

    def __init__(self, answer, device, seed):
        self.answer, self.device = answer, device
        self.rng = torch.Generator().manual_seed(seed)
        self.rows, self.columns = 4 + seed % 3, 3 + seed % 4
        self.matrix = self.random(self.rows, self.columns, size=2.0)
        self.steps = [[self.random(self.rows, self.columns, size=0.3)] for _ in range(4)]

    def random(self, *shape, size=1.0):
        return (torch.randn(shape, generator=self.rng) * size).to(self.device)

    def moved(self, weights, gradients, learning_rates=(), groups=None, **settings):
        """How far each weight moved, after one step for each list of gradients (None: no
        gradient).
        """
        params = [torch.nn.Parameter(w.clone()) for w in weights]
        given = (
            params
            if groups is None
            else [{"params": [p], **g} for p, g in zip(params, groups, strict=True)]
        )
        optimizer = self.answer(given, **settings)
        for i, step_gradients in enumerate(gradients):
            if learning_rates:
                optimizer.param_groups[0]["lr"] = learning_rates[i]
            for p, g in zip(params, step_gradients, strict=True):
                p.grad = None if g is None else g.clone()
            optimizer.step()
        ways = [p.detach() - w for p, w in zip(params, weights, strict=True)]
        return numbered("parameter", ways) if len(ways) > 1 else ways[0]


@exercise()
def LARS(answer: Answer, device: torch.device, seed: int) -> Facts:
    """Layer-wise learning rates, one fact per rule of the convention."""
    setting = _Setting(answer, device, seed)
    optimizer = answer([torch.nn.Parameter(setting.matrix.clone())], lr=0.1)
    yield (
        "LARS(params, lr=0.1) is a torch.optim.Optimizer",
        isinstance(optimizer, torch.optim.Optimizer),
    )
    yield from _matrices(setting)
    yield from _groups(setting)
    yield from _absent_and_zero(setting)
    yield from _side_effects(setting)


def _matrices(setting):
    rows, columns, random = setting.rows, setting.columns, setting.random
    matrix, steps = [setting.matrix], setting.steps
    yield (
        "a matrix after one step, no momentum, no weight decay",
        setting.moved(matrix, steps[:1], **PLAIN),
    )
    pair, kernel = [setting.matrix, random(columns, rows, size=0.05)], random(2, 3, rows)
    pair_steps = [[random(rows, columns, size=0.01), random(columns, rows, size=9.0)]]
    yield (
        "two matrices after one step: each has its own learning rate",
        setting.moved(pair, pair_steps, **PLAIN),
    )
    yield (
        "a tensor of three dimensions counts as one layer",
        setting.moved([kernel], [[random(2, 3, rows)]], **PLAIN),
    )
    yield "weight decay, one step", setting.moved(matrix, steps[:1], weight_decay=0.3, **PLAIN)
    yield "momentum 0.8, four steps", setting.moved(matrix, steps, **CHANGING)
    yield (
        "momentum and weight decay, four steps",
        setting.moved(matrix, steps, weight_decay=0.3, **CHANGING),
    )
    own_time = setting.moved(matrix, steps, (0.1, 0.9, 0.3, 0.0), **CHANGING)
    yield "with momentum, the velocity keeps the learning rate of its own time", own_time
    default = setting.moved(matrix, steps, lr=200.0)
    yield "momentum 0.9, weight decay 0 and trust 0.001 unless told otherwise", default


def _groups(setting):
    """What holds for 1-D parameters, and for settings of parameter groups."""
    moved, small = setting.moved, [setting.random(setting.columns), setting.random()]
    small_steps = [[setting.random(setting.columns), setting.random()] for _ in range(3)]
    yield (
        "bias, scale and scalar: momentum SGD without weight decay",
        moved(small, small_steps, **RULES),
    )
    yield (
        "exclude_1d=False: the trust ratio for these too",
        moved(small, small_steps, exclude_1d=False, **RULES),
    )
    groups = [
        {},
        {"lr": 0.9, "momentum": 0.0},
        {"weight_decay": 0.4, "trust": 0.05},
        {"exclude_1d": False},
    ]
    four = [setting.matrix] * 3 + small[:1]
    four_steps = [[g] * 3 + [s[0]] for [g], s in zip(setting.steps, small_steps, strict=False)]
    yield (
        "each parameter group has its own settings",
        moved(four, four_steps, groups=groups, **RULES),
    )


def _absent_and_zero(setting):
    """Parameters without a gradient, and norms of zero."""
    moved, matrix, steps = setting.moved, setting.matrix, setting.steps
    zeros, late = (
        torch.zeros_like(matrix),
        [[None, *steps[3]], [*steps[0], None], [None, None], [*steps[1], None]],
    )
    yield (
        "without a gradient a parameter stays, and its velocity waits",
        moved([matrix] * 2, late, **RULES),
    )
    yield (
        "a matrix of zeros moves by lr times its gradient",
        moved([zeros], steps[:1], weight_decay=0.3, **PLAIN),
    )
    yield "a gradient of zeros does no harm", moved([matrix], [[zeros]], **PLAIN)
    yield (
        "a gradient of zeros: weight decay with trust ratio 1",
        moved([matrix], [[zeros], *steps], **RULES),
    )


def _side_effects(setting):
    """Gradients, closures and saved states."""
    matrix, steps = setting.matrix, setting.steps
    w = torch.nn.Parameter(matrix.clone())
    w.grad = steps[0][0].clone()
    optimizer = setting.answer([w], **RULES)
    returned = optimizer.step()
    yield "the gradients are left as they were", w.grad
    yield "step() returns None", returned

    def closure():
        optimizer.zero_grad()
        loss = (w * steps[1][0]).sum()
        loss.backward()
        return loss

    yield "step(closure) returns the loss and computes gradients", optimizer.step(closure)
    yield "after step(closure)", w.detach() - matrix
    saved, copied = copy.deepcopy(optimizer.state_dict()), torch.nn.Parameter(w.detach().clone())
    resumed = setting.answer([copied], lr=0.1)
    resumed.load_state_dict(saved)
    for p, o in ((w, optimizer), (copied, resumed)):
        p.grad = steps[2][0].clone()
        o.step()
    yield (
        "a run resumes from a state_dict as if nothing had happened",
        bool(torch.isclose(w, copied).all()),
    )
