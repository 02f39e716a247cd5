"""Probe of exercise LARS."""

import copy

import torch

from course.checks.engine import exercise
from course.checks.probing.values import numbered

PLAIN = dict(lr=0.7, momentum=0.0, trust=0.2)
RULES = dict(lr=0.3, momentum=0.8, weight_decay=0.2, trust=0.2)


def _set(optimizer, settings):
    optimizer.param_groups[0].update(settings)


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
        """How far each weight moved, after one step for each list of gradients (None: no gradient)."""
        params = [torch.nn.Parameter(w.clone()) for w in weights]
        given = params if groups is None else [{"params": [p], **g} for p, g in zip(params, groups, strict=True)]
        optimizer = self.answer(given, **settings)
        for i, step_gradients in enumerate(gradients):
            if learning_rates:
                _set(optimizer, {"lr": learning_rates[i]})
            for p, g in zip(params, step_gradients, strict=True):
                p.grad = None if g is None else g.clone()
            optimizer.step()
        ways = [p.detach() - w for p, w in zip(params, weights, strict=True)]
        return numbered("parameter", ways) if len(ways) > 1 else ways[0]


@exercise()
def LARS(answer, device, seed):
    """Layer-wise learning rates, one fact per rule of the convention."""
    setting = _Setting(answer, device, seed)
    optimizer = answer([torch.nn.Parameter(setting.matrix.clone())], lr=0.1)
    yield "LARS(params, lr=0.1) is a torch.optim.Optimizer", isinstance(optimizer, torch.optim.Optimizer)
    yield from _layers(setting)
    yield from _momentum_and_decay(setting)
    small = [setting.random(setting.columns), setting.random()]
    small_steps = [[setting.random(setting.columns), setting.random()] for _ in range(3)]
    yield from _groups(setting, small, small_steps)
    yield from _missing_gradients(setting)
    yield from _zeros(setting)
    yield from _side_effects(setting, small)


def _layers(setting):
    rows, columns, random = setting.rows, setting.columns, setting.random
    yield (
        "a matrix after one step, no momentum, no weight decay",
        setting.moved([setting.matrix], setting.steps[:1], **PLAIN),
    )
    pair, kernel = [setting.matrix, random(columns, rows, size=0.05)], random(2, 3, rows)
    pair_steps = [[random(rows, columns, size=0.01), random(columns, rows, size=9.0)]]
    yield "two matrices after one step: each has a learning rate of its own", setting.moved(pair, pair_steps, **PLAIN)
    yield "a tensor of three dimensions counts as one layer", setting.moved([kernel], [[random(2, 3, rows)]], **PLAIN)


def _momentum_and_decay(setting):
    steps, plain = setting.steps, PLAIN
    changing = dict(lr=0.7, momentum=0.8, trust=0.2)

    def moved(*args, **settings):
        return setting.moved([setting.matrix], *args, **settings)

    yield "weight decay, one step", moved(steps[:1], weight_decay=0.3, **plain)
    yield "momentum 0.8, one step", moved(steps[:1], **changing)
    yield "momentum 0.8, four steps", moved(steps, **changing)
    yield "momentum and weight decay, four steps", moved(steps, weight_decay=0.3, **changing)
    yield "a learning rate that is set before each step, no momentum", moved(steps, (0.1, 0.4, 0.2, 0.8), **plain)
    yield (
        "with momentum, the velocity keeps the learning rate of its own time",
        moved(steps, (0.1, 0.9, 0.3, 0.0), **changing),
    )
    yield "momentum 0.9, weight decay 0 and trust 0.001 unless told otherwise", moved(steps, lr=200.0)


def _groups(setting, small, small_steps):
    """What holds for 1-D parameters, given in `small`, and for settings of parameter groups."""
    moved = setting.moved
    yield "bias, scale and scalar: momentum SGD without weight decay", moved(small, small_steps, **RULES)
    yield "exclude_1d=False: the trust ratio for these too", moved(small, small_steps, exclude_1d=False, **RULES)
    groups = [{}, {"lr": 0.9, "momentum": 0.0}, {"weight_decay": 0.4, "trust": 0.05}, {"exclude_1d": False}]
    four = [setting.matrix] * 3 + small[:1]
    four_steps = [[g] * 3 + [s[0]] for [g], s in zip(setting.steps, small_steps, strict=False)]
    yield "each parameter group has settings of its own", moved(four, four_steps, groups=groups, **RULES)


def _missing_gradients(setting):
    matrix, steps = setting.matrix, setting.steps
    absent = [[None, g[0], None] for g in steps[:2]]
    yield "a parameter without a gradient stays, the others move", setting.moved([matrix] * 3, absent, **RULES)
    late = [[None], steps[0], [None], steps[1]]
    yield "without a gradient the velocity waits as well", setting.moved([matrix], late, **RULES)


def _zeros(setting):
    moved, matrix, steps = setting.moved, setting.matrix, setting.steps
    zeros = torch.zeros_like(matrix)
    yield "a matrix of zeros moves by lr times its gradient", moved([zeros], steps[:1], weight_decay=0.3, **PLAIN)
    yield "a matrix of zeros, four steps", moved([zeros], steps, **RULES)
    yield "a gradient of zeros does no harm", moved([matrix], [[zeros]], **PLAIN)
    yield "a gradient of zeros: weight decay with trust ratio 1", moved([matrix], [[zeros], *steps], **RULES)
    yield "a matrix and a gradient of zeros: nothing moves", moved([zeros], [[zeros]], **PLAIN)


def _side_effects(setting, small):
    """Gradients, changing settings, closures and saved states."""
    matrix, steps = setting.matrix, setting.steps
    w = torch.nn.Parameter(matrix.clone())
    w.grad = steps[0][0].clone()
    optimizer = setting.answer([w], **RULES)
    returned = optimizer.step()
    yield "the gradients are left as they were", w.grad
    for text, params, settings in (
        ("those of 1-D parameters too", small, RULES),
        ("also without weight decay", [matrix], PLAIN),
    ):
        params = [torch.nn.Parameter(p.clone()) for p in params]
        for p in params:
            p.grad = torch.ones_like(p)
        setting.answer(params, **settings).step()
        yield f"the gradients are left as they were, {text}", [p.grad for p in params]
    yield "settings that change between steps", _moved_by_changing_settings(setting)
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
    yield "a run goes on from a state_dict as if nothing had happened", bool(torch.isclose(w, copied).all())


def _moved_by_changing_settings(setting):
    p = torch.nn.Parameter(setting.matrix.clone())
    optimizer = setting.answer([p], **RULES)
    for trust, momentum in ((0.2, 0.8), (0.05, 0.5), (0.3, 0.1)):
        _set(optimizer, {"trust": trust, "momentum": momentum})
        p.grad = setting.steps[1][0].clone()
        optimizer.step()
    return p.detach() - setting.matrix
