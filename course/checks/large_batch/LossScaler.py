"""Probe of exercise LossScaler."""

import torch

from course.checks.engine import exercise
from course.checks.large_batch.shared import _CountingSGD, _each


class _NoStep(torch.optim.Optimizer):
    """An optimizer whose step does nothing, for counting thousands of them."""

    def step(self, closure=None):
        return None


@exercise(forbids=("torch.amp.GradScaler",))
def LossScaler(answer, device, seed):
    """The life of a dynamic loss scale."""
    rng = torch.Generator().manual_seed(seed)
    start = 2.0 ** (6 + seed % 5)
    weights = [torch.randn(2 + seed % 4, 3, generator=rng).to(device) for _ in range(3)]
    gradients = [torch.randn(w.shape, generator=rng).to(device) for w in weights]

    def scale_of(scaler):
        return float(scaler.scale(torch.ones((), device=device)))

    def fresh(**settings):
        """(scaler, parameters, optimizer in two groups)"""
        params = [torch.nn.Parameter(w.clone()) for w in weights]
        optimizer = _CountingSGD([{"params": params[:2]}, {"params": params[2:], "lr": 0.5}], lr=0.1, momentum=0.9)
        return answer(**({"init_scale": start} | settings)), params, optimizer

    def backward(scaler, params, bad=None, at=-1):
        """Gradients as a backward pass of the scaled loss leaves them; `bad` stands in one value of parameter `at`."""
        for p, g in zip(params, gradients, strict=True):
            p.grad = scaler.scale(g).detach().clone()
        if bad is not None:
            params[at].grad[-1, -1] = bad

    def run(steps, **settings):
        """What step returned and the scale after each update, for a row of good (1) and bad (0) steps."""
        scaler, params, optimizer = fresh(**settings)
        seen = {}
        for i, good in enumerate(steps, 1):
            backward(scaler, params, None if good else float("inf"))
            stepped = scaler.step(optimizer)
            scaler.update()
            seen |= {f"round {i}: stepped": stepped, f"round {i}: scale": scale_of(scaler)}
        return seen

    def again(scaler, optimizer):
        try:
            scaler.unscale_(optimizer)
        except RuntimeError:  # as torch.amp.GradScaler does
            pass

    loss = torch.tensor(1.25 + seed % 3, device=device)
    x = gradients[0].clone().requires_grad_()
    scaler = answer(init_scale=start)
    scaled = scaler.scale(loss)
    yield "scale returns the loss times the scale", scaled
    yield "the first scale is 2**16 unless told otherwise", scale_of(answer())
    (slope,) = torch.autograd.grad(scaler.scale((x**2).sum()), x)
    yield "the scaled loss has scaled gradients", slope

    def each(params, gradients=False):
        """The parameters, or their gradients, under names."""
        if gradients:
            return _each("gradient", [p.grad for p in params])
        return _each("parameter", [p.detach() for p in params])

    scaler, params, optimizer = fresh()
    backward(scaler, params)
    given = [p.grad for p in params]
    scaler.unscale_(optimizer)
    yield "unscale_ divides every gradient by the scale", each(params, gradients=True)
    yield "in place: p.grad is still the same tensor", all(p.grad is g for p, g in zip(params, given, strict=True))
    again(scaler, optimizer)
    yield "a second unscale_ does not divide again", each(params, gradients=True)
    stepped = scaler.step(optimizer)
    yield "step after unscale_ does not divide again", each(params)
    yield "step returns True when it stepped", stepped
    yield "step calls optimizer.step once", optimizer.steps
    scaler.update()
    backward(scaler, params)
    scaler.step(optimizer)
    yield "step without unscale_ divides first, also in the next round", each(params)
    yield "and so leaves true gradients behind", each(params, gradients=True)
    scaler, params, optimizer = fresh()
    backward(scaler, params)
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(params, 0.5)
    scaler.step(optimizer)
    yield "clipping between unscale_ and step sees true gradients", each(params)
    scaler, params, optimizer = fresh()
    backward(scaler, params)
    params[1].grad = None
    stepped = scaler.step(optimizer)
    yield "a parameter without a gradient is no obstacle", {"stepped": stepped} | each(params)

    for text, bad, at in (
        ("an inf skips the step", float("inf"), 0),
        ("a -inf skips the step", -float("inf"), 1),
        ("a nan skips the step", float("nan"), 0),
        ("an inf in the last value of the last group skips the step", float("inf"), -1),
    ):
        scaler, params, optimizer = fresh()
        backward(scaler, params, bad, at)
        stepped = scaler.step(optimizer)
        yield f"{text}: it returns False", stepped
        yield f"{text}: optimizer.step is not called", optimizer.steps
    for text, hide in (
        ("an overflow stays noted when clipping hides it", lambda g: g.nan_to_num_(0.0, 1.0, -1.0)),
        ("clipping alone makes no overflow", lambda g: g.clamp_(-0.5, 0.5)),
    ):
        scaler, params, optimizer = fresh()
        backward(scaler, params, float("inf") if "hides" in text else None)
        scaler.unscale_(optimizer)
        for p in params:
            hide(p.grad)
        yield text, scaler.step(optimizer)
    yield "a bad step halves the scale, a good one follows", run([1, 0, 1, 0, 0, 1])
    yield "the scale doubles after growth_interval good steps", run([1, 1, 1, 1, 1, 1, 1], growth_interval=3)
    yield "a bad step sets the count of good ones back", run([1, 1, 0, 1, 1, 1, 1, 0, 1, 1, 1], growth_interval=3)
    yield "the scale may fall below 1", run([0] * 9, init_scale=16.0)
    yield "the scale may rise above 2**16", run([1] * 3, init_scale=2.0**16, growth_interval=1)
    yield "growth_interval=1", run([1, 1, 0, 1], growth_interval=1)
    yield "growth and backoff of your choice", run([1, 1, 0, 1, 1, 0], growth=4.0, backoff=0.125, growth_interval=2)
    scaler, params, optimizer = fresh()
    backward(scaler, params, float("inf"))
    scaler.unscale_(optimizer)
    scaler.step(optimizer)
    scaler.update()
    backward(scaler, params)
    scaler.unscale_(optimizer)
    yield "after a bad step gradients are unscaled again", each(params, gradients=True)

    param = torch.nn.Parameter(torch.zeros(1, device=device))
    param.grad = torch.ones_like(param)
    scaler, optimizer, scales = answer(init_scale=8.0), _NoStep([param], {}), {}
    for i in range(1, 2002):
        scaler.step(optimizer)
        scaler.update()
        if i in (1999, 2000, 2001):
            scales[f"scale after {i} rounds"] = scale_of(scaler)
    yield "growth_interval is 2000 unless told otherwise", scales
