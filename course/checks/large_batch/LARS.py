"""Probe of exercise LARS."""

import copy

import torch

from course.checks.engine import exercise
from course.checks.large_batch.shared import _each


@exercise()
def LARS(answer, device, seed):
    """Layer-wise rates, one fact for each rule of the convention."""
    rng = torch.Generator().manual_seed(seed)
    rows, columns = 4 + seed % 3, 3 + seed % 4

    def random(*shape, size=1.0):
        return (torch.randn(shape, generator=rng) * size).to(device)

    def moved(weights, gradients, rates=(), groups=None, **settings):
        """How far each weight moved, after one step for each list of gradients (None: no gradient)."""
        params = [torch.nn.Parameter(w.clone()) for w in weights]
        given = params if groups is None else [{"params": [p], **g} for p, g in zip(params, groups, strict=True)]
        optimizer = answer(given, **settings)
        for i, step_gradients in enumerate(gradients):
            if rates:
                optimizer.param_groups[0]["lr"] = rates[i]
            for p, g in zip(params, step_gradients, strict=True):
                p.grad = None if g is None else g.clone()
            optimizer.step()
        ways = [p.detach() - w for p, w in zip(params, weights, strict=True)]
        return _each("parameter", ways) if len(ways) > 1 else ways[0]

    matrix = random(rows, columns, size=2.0)
    steps = [[random(rows, columns, size=0.3)] for _ in range(4)]
    plain = dict(lr=0.7, momentum=0.0, trust=0.2)
    optimizer = answer([torch.nn.Parameter(matrix.clone())], lr=0.1)
    yield "LARS(params, lr=0.1) is a torch.optim.Optimizer", isinstance(optimizer, torch.optim.Optimizer)
    yield "a matrix after one step, no momentum, no weight decay", moved([matrix], steps[:1], **plain)
    pair, kernel = [matrix, random(columns, rows, size=0.05)], random(2, 3, rows)
    pair_steps = [[random(rows, columns, size=0.01), random(columns, rows, size=9.0)]]
    yield "two matrices after one step: each has a rate of its own", moved(pair, pair_steps, **plain)
    yield "a tensor of three dimensions counts as one layer", moved([kernel], [[random(2, 3, rows)]], **plain)
    yield "weight decay, one step", moved([matrix], steps[:1], weight_decay=0.3, **plain)
    yield "momentum 0.8, one step", moved([matrix], steps[:1], lr=0.7, momentum=0.8, trust=0.2)
    yield "momentum 0.8, four steps", moved([matrix], steps, lr=0.7, momentum=0.8, trust=0.2)
    yield (
        "momentum and weight decay, four steps",
        moved([matrix], steps, lr=0.7, momentum=0.8, weight_decay=0.3, trust=0.2),
    )
    yield "a rate that is set before each step, no momentum", moved([matrix], steps, (0.1, 0.4, 0.2, 0.8), **plain)
    changing = dict(lr=0.7, momentum=0.8, trust=0.2)
    yield (
        "with momentum, the velocity keeps the rate of its own time",
        moved([matrix], steps, (0.1, 0.9, 0.3, 0.0), **changing),
    )
    yield "momentum 0.9, weight decay 0 and trust 0.001 unless told otherwise", moved([matrix], steps, lr=200.0)

    small = [random(columns), random()]
    small_steps = [[random(columns), random()] for _ in range(3)]
    rules = dict(lr=0.3, momentum=0.8, weight_decay=0.2, trust=0.2)
    yield "bias, scale and scalar: momentum SGD without weight decay", moved(small, small_steps, **rules)
    yield "exclude_1d=False: the trust ratio for these too", moved(small, small_steps, exclude_1d=False, **rules)
    groups = [{}, {"lr": 0.9, "momentum": 0.0}, {"weight_decay": 0.4, "trust": 0.05}, {"exclude_1d": False}]
    four, four_steps = [matrix] * 3 + small[:1], [[g] * 3 + [s[0]] for [g], s in zip(steps, small_steps, strict=False)]
    yield "each parameter group has settings of its own", moved(four, four_steps, groups=groups, **rules)
    absent = [[None, g[0], None] for g in steps[:2]]
    yield "a parameter without a gradient stays, the others move", moved([matrix] * 3, absent, **rules)
    late = [[None], steps[0], [None], steps[1]]
    yield "without a gradient the velocity waits as well", moved([matrix], late, **rules)

    zeros = torch.zeros(rows, columns, device=device)
    yield "a matrix of zeros moves by lr times its gradient", moved([zeros], steps[:1], weight_decay=0.3, **plain)
    yield "a matrix of zeros, four steps", moved([zeros], steps, **rules)
    yield "a gradient of zeros does no harm", moved([matrix], [[zeros]], **plain)
    yield "a gradient of zeros: weight decay at local rate 1", moved([matrix], [[zeros], *steps], **rules)
    yield "a matrix and a gradient of zeros: nothing moves", moved([zeros], [[zeros]], **plain)

    w = torch.nn.Parameter(matrix.clone())
    w.grad = steps[0][0].clone()
    optimizer = answer([w], **rules)
    returned = optimizer.step()
    yield "the gradients are left as they were", w.grad
    for text, params, settings in (
        ("those of 1-D parameters too", small, rules),
        ("also without weight decay", [matrix], plain),
    ):
        params = [torch.nn.Parameter(p.clone()) for p in params]
        for p in params:
            p.grad = torch.ones_like(p)
        answer(params, **settings).step()
        yield f"the gradients are left as they were, {text}", [p.grad for p in params]
    optimizer2 = answer([torch.nn.Parameter(matrix.clone())], **rules)
    (p,), group = optimizer2.param_groups[0]["params"], optimizer2.param_groups[0]
    for trust, momentum in ((0.2, 0.8), (0.05, 0.5), (0.3, 0.1)):
        group.update(trust=trust, momentum=momentum)
        p.grad = steps[1][0].clone()
        optimizer2.step()
    yield "settings that change between steps", p.detach() - matrix
    yield "step() returns None", returned

    def closure():
        optimizer.zero_grad()
        loss = (w * steps[1][0]).sum()
        loss.backward()
        return loss

    yield "step(closure) returns the loss and computes gradients", optimizer.step(closure)
    yield "after step(closure)", w.detach() - matrix
    saved, copied = copy.deepcopy(optimizer.state_dict()), torch.nn.Parameter(w.detach().clone())
    resumed = answer([copied], lr=0.1)
    resumed.load_state_dict(saved)
    for p, o in ((w, optimizer), (copied, resumed)):
        p.grad = steps[2][0].clone()
        o.step()
    yield "a run goes on from a state_dict as if nothing had happened", bool(torch.isclose(w, copied).all())
