"""Probe of exercise LossScaler."""

import torch

from course.checks.engine import exercise
from course.checks.large_batch.spies import CountingSGD
from course.checks.probing.values import numbered

INF = float("inf")


class _NoStep(torch.optim.Optimizer):
    """An optimizer whose step does nothing, for counting thousands of them."""

    def step(self, closure=None):
        return None


class _Setting:
    """Scalers, parameters and gradients that all scenarios start from."""

    def __init__(self, answer, device, seed):
        rng = torch.Generator().manual_seed(seed)
        self.answer, self.device, self.start = answer, device, 2.0 ** (6 + seed % 5)
        self.weights = [torch.randn(2 + seed % 4, 3, generator=rng).to(device) for _ in range(3)]
        self.gradients = [torch.randn(w.shape, generator=rng).to(device) for w in self.weights]
        self.sizes = [g.numel() for g in self.gradients]

    def fresh(self, **settings):
        """(scaler, parameters, optimizer in two groups)"""
        params = [torch.nn.Parameter(w.clone()) for w in self.weights]
        optimizer = CountingSGD([{"params": params[:2]}, {"params": params[2:], "lr": 0.5}], lr=0.1, momentum=0.9)
        return self.answer(**({"init_scale": self.start} | settings)), params, optimizer

    def backward(self, scaler, params, bad=None, at=-1):
        """Set gradients as a backward pass of the scaled loss does; `bad` replaces one value of parameter `at`."""
        together = scaler.scale(torch.cat([g.flatten() for g in self.gradients])).detach().split(self.sizes)
        for p, g in zip(params, together, strict=True):
            p.grad = g.view_as(p).clone()
        if bad is not None:
            params[at].grad[-1, -1] = bad

    def after_backward(self, bad=None, at=-1):
        """What `fresh` makes, with gradients."""
        scaler, params, optimizer = self.fresh()
        self.backward(scaler, params, bad, at)
        return scaler, params, optimizer

    def scale_of(self, scaler):
        return float(scaler.scale(torch.ones((), device=self.device)))

    def life(self, steps, **settings):
        """What step returned and the scale after each update, for a row of good (1) and bad (0) steps."""
        scaler, params, optimizer = self.fresh(**settings)
        seen, step, update = {}, scaler.step, scaler.update
        for i, good in enumerate(steps, 1):
            self.backward(scaler, params, None if good else INF)
            stepped = step(optimizer)
            update()
            seen |= {f"round {i}: stepped": stepped, f"round {i}: scale": self.scale_of(scaler)}
        return seen


def _parameters(params):
    return numbered("parameter", [p.detach() for p in params])


def _gradients(params):
    return numbered("gradient", [p.grad for p in params])


@exercise(forbids=("torch.amp.GradScaler",))
def LossScaler(answer, device, seed):
    """The life of a dynamic loss scale."""
    setting = _Setting(answer, device, seed)
    yield from _scaling(setting, seed)
    yield from _unscaling(setting)
    yield from _steps_between(setting)
    yield from _overflows(setting)
    yield from _growth_and_backoff(setting)
    yield from _unscaling_after_overflow(setting)
    yield from _default_interval(setting)


def _scaling(setting, seed):
    loss = torch.tensor(1.25 + seed % 3, device=setting.device)
    x = setting.gradients[0].clone().requires_grad_()
    scaler = setting.answer(init_scale=setting.start)
    yield "scale returns the loss times the scale", scaler.scale(loss)
    yield "the first scale is 2**16 unless told otherwise", setting.scale_of(setting.answer())
    (slope,) = torch.autograd.grad(scaler.scale((x**2).sum()), x)
    yield "the scaled loss has scaled gradients", slope


def _unscaling(setting):
    scaler, params, optimizer = setting.after_backward()
    given = [p.grad for p in params]
    scaler.unscale_(optimizer)
    yield "unscale_ divides every gradient by the scale", _gradients(params)
    yield "in place: p.grad is still the same tensor", all(p.grad is g for p, g in zip(params, given, strict=True))
    try:
        scaler.unscale_(optimizer)
    except RuntimeError:  # as torch.amp.GradScaler does
        pass
    yield "a second unscale_ does not divide again", _gradients(params)
    stepped = scaler.step(optimizer)
    yield "step after unscale_ does not divide again", _parameters(params)
    yield "step returns True when it stepped", stepped
    yield "step calls optimizer.step once", optimizer.steps
    scaler.update()
    setting.backward(scaler, params)
    scaler.step(optimizer)
    yield "step without unscale_ divides first, also in the next round", _parameters(params)
    yield "and so leaves true gradients behind", _gradients(params)


def _steps_between(setting):
    scaler, params, optimizer = setting.after_backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(params, 0.5)
    scaler.step(optimizer)
    yield "clipping between unscale_ and step sees true gradients", _parameters(params)
    scaler, params, optimizer = setting.after_backward()
    params[1].grad = None
    stepped = scaler.step(optimizer)
    yield "a parameter without a gradient is no obstacle", {"stepped": stepped} | _parameters(params)


def _overflows(setting):
    for text, bad, at in (
        ("an inf skips the step", INF, 0),
        ("a -inf skips the step", -INF, 1),
        ("a nan skips the step", float("nan"), 0),
        ("an inf in the last value of the last group skips the step", INF, -1),
    ):
        scaler, params, optimizer = setting.after_backward(bad, at)
        stepped = scaler.step(optimizer)
        yield f"{text}: it returns False", stepped
        yield f"{text}: optimizer.step is not called", optimizer.steps
    for text, bad, clip in (
        ("an overflow stays noted when clipping hides it", INF, lambda g: g.nan_to_num_(0.0, 1.0, -1.0)),
        ("clipping alone makes no overflow", None, lambda g: g.clamp_(-0.5, 0.5)),
    ):
        scaler, params, optimizer = setting.after_backward(bad)
        scaler.unscale_(optimizer)
        for p in params:
            clip(p.grad)
        yield text, scaler.step(optimizer)


def _growth_and_backoff(setting):
    life = setting.life
    yield "a bad step halves the scale, a good one follows", life([1, 0, 1, 0, 0, 1])
    yield "the scale doubles after growth_interval good steps", life([1, 1, 1, 1, 1, 1, 1], growth_interval=3)
    yield "a bad step sets the count of good ones back", life([1, 1, 0, 1, 1, 1, 1, 0, 1, 1, 1], growth_interval=3)
    yield "the scale may fall below 1", life([0] * 9, init_scale=16.0)
    yield "the scale may rise above 2**16", life([1] * 3, init_scale=2.0**16, growth_interval=1)
    yield "growth_interval=1", life([1, 1, 0, 1], growth_interval=1)
    yield "growth and backoff of your choice", life([1, 1, 0, 1, 1, 0], growth=4.0, backoff=0.125, growth_interval=2)


def _unscaling_after_overflow(setting):
    scaler, params, optimizer = setting.after_backward(INF)
    scaler.unscale_(optimizer)
    scaler.step(optimizer)
    scaler.update()
    setting.backward(scaler, params)
    scaler.unscale_(optimizer)
    yield "after a bad step gradients are unscaled again", _gradients(params)


def _default_interval(setting):
    scaler, scales = setting.answer(init_scale=8.0), {}
    for before, rounds in ((0, 1999), (1999, 1), (2000, 1)):
        _good_rounds(scaler, rounds, setting.device)
        scales[f"scale after {before + rounds} rounds"] = setting.scale_of(scaler)
    yield "growth_interval is 2000 unless told otherwise", scales


def _good_rounds(scaler, rounds, device):
    param = torch.nn.Parameter(torch.zeros(1, device=device))
    param.grad = torch.ones_like(param)
    optimizer = _NoStep([param], {})
    for _ in range(rounds):
        scaler.step(optimizer)
        scaler.update()
