"""Probe of exercise LossScaler."""

import contextlib
from collections.abc import Callable
from typing import Any

import torch

from course.checks.large_batch.spies import CountingSGD
from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.values import numbered

INF = float("inf")
NAN = float("nan")


class _Setting:
    """A scaler, and two groups of parameters with gradients as after a scaled backward pass."""

    def __init__(
        self,
        answer: Answer,
        device: torch.device,
        seed: int,
        bad: float | None = None,
        at: int = -1,
        **settings: Any,
    ) -> None:
        rng = torch.Generator().manual_seed(seed)
        weights, self.gradients = torch.randn(2, 3, 2 + seed % 4, 3, generator=rng).to(device)
        self.params = [torch.nn.Parameter(weight.clone()) for weight in weights]
        groups = [{"params": self.params[:2]}, {"params": self.params[2:], "lr": 0.5}]
        self.optimizer = CountingSGD(groups, lr=0.1, momentum=0.9)
        self.scaler = answer(**({"init_scale": 2.0 ** (6 + seed % 5)} | settings))
        self.backward(bad, at)

    def backward(self, bad: float | None = None, at: int = -1) -> None:
        """Set the gradients; `bad` replaces one value of parameter `at`."""
        scaled = self.scaler.scale(self.gradients).detach()
        for param, gradient in zip(self.params, scaled, strict=True):
            param.grad = gradient.clone()
        if bad is not None:
            self.params[at].grad[-1, -1] = bad

    def step(self) -> Any:
        return self.scaler.step(self.optimizer)

    def scale_of(self) -> float:
        return float(self.scaler.scale(torch.ones_like(self.gradients[0, 0, 0])))

    def life(self, steps: list[int]) -> dict[str, Any]:
        """What step returned and the scale after each update, for good (1) and bad (0) steps."""
        seen = {}
        for i, good in enumerate(steps, 1):
            self.backward(None if good else INF)
            seen[f"round {i}: stepped"] = self.step()
            self.scaler.update()
            seen[f"round {i}: scale"] = self.scale_of()
        return seen

    def parameters(self) -> dict[str, torch.Tensor]:
        return numbered("parameter", [p.detach() for p in self.params])

    def gradients_now(self) -> dict[str, torch.Tensor]:
        return numbered("gradient", [p.grad for p in self.params])


@exercise(forbids=("torch.amp.GradScaler",))
def LossScaler(answer: Answer, device: torch.device, seed: int) -> Facts:
    """The life of a dynamic loss scale."""

    def fresh(*bad: Any, **settings: Any) -> _Setting:
        return _Setting(answer, device, seed, *bad, **settings)

    yield from _scaling(answer, fresh(), seed)
    yield from _unscaling(fresh())
    run = fresh()
    run.scaler.unscale_(run.optimizer)
    torch.nn.utils.clip_grad_norm_(run.params, 0.5)
    run.step()
    yield "clipping between unscale_ and step sees true gradients", run.parameters()
    run = fresh()
    run.params[1].grad = None
    yield "a parameter without a gradient is skipped", {"stepped": run.step()} | run.parameters()
    yield from _overflow(fresh)
    yield from _changing_scale(fresh)


def _scaling(answer: Answer, run: _Setting, seed: int) -> Facts:
    """What `scale` makes of a loss and of its gradients."""
    loss = torch.tensor(1.25 + seed % 3, device=run.gradients.device)
    yield "scale returns the loss times the scale", run.scaler.scale(loss)
    yield "the first scale is 2**16 unless told otherwise", answer().scale(loss)
    x = run.gradients[0].clone().requires_grad_()
    (slope,) = torch.autograd.grad(run.scaler.scale((x**2).sum()), x)
    yield "the scaled loss has scaled gradients", slope


def _unscaling(run: _Setting) -> Facts:
    """What `unscale_` and `step` make of scaled gradients, and that they divide only once."""
    given = [p.grad for p in run.params]
    run.scaler.unscale_(run.optimizer)
    yield "unscale_ divides every gradient by the scale", run.gradients_now()
    same_tensors = [p.grad is g for p, g in zip(run.params, given, strict=True)]
    yield "in place: p.grad is still the same tensor", same_tensors
    with contextlib.suppress(RuntimeError):  # as torch.amp.GradScaler raises
        run.scaler.unscale_(run.optimizer)
    yield "a second unscale_ does not divide again", run.gradients_now()
    stepped = run.step()
    yield "step after unscale_ does not divide again", run.parameters()
    yield "step returns True and has called optimizer.step once", [stepped, run.optimizer.steps]
    run.scaler.update()
    run.backward()
    run.step()
    yield "step without unscale_ divides first, also in the next round", run.parameters()


def _overflow(fresh: Callable[..., _Setting]) -> Facts:
    """A value that is not finite, in any group, keeps the optimizer from its step."""
    where = "an inf in the last value of the last group"
    for text, *bad in (("an inf", INF, 0), ("a nan", NAN, 0), (where, INF, -1)):
        run = fresh(*bad)
        returned = run.step()
        counted = {"step returned": returned, "calls of optimizer.step": run.optimizer.steps}
        yield f"{text} skips the step", counted
    run = fresh(INF)
    run.scaler.unscale_(run.optimizer)
    run.params[-1].grad.clamp_(-1, 1)
    yield "an overflow stays noted when clipping hides it", run.step()
    run = fresh(INF, 0)
    run.scaler.unscale_(run.optimizer)
    others = list(run.gradients_now().items())[1:]
    yield "an inf in the first gradient: unscale_ divides the others, too", dict(others)


def _changing_scale(fresh: Callable[..., _Setting]) -> Facts:
    """How the scale falls after bad steps and grows after good ones."""
    yield "a bad step halves the scale, a good one follows", fresh().life([1, 0, 1, 0, 0, 1])
    yield "three bad steps from scale 2: it falls below 1", fresh(init_scale=2.0).life([0, 0, 0])
    growing = fresh(growth_interval=3).life([1] * 7)
    yield "the scale doubles after growth_interval good steps", growing
    interrupted = fresh(growth_interval=3).life([1, 1, 0, 1, 1, 1, 1, 0, 1, 1, 1])
    yield "a bad step sets the count of good ones back", interrupted
    other = fresh(growth=4.0, backoff=0.125, growth_interval=2)
    yield "growth and backoff of your choice", other.life([1, 1, 0, 1, 1, 0])
    yield "growth_interval is 2000 unless told otherwise", _default_growth(fresh())


def _default_growth(run: _Setting) -> dict[str, float]:
    """The scale after 1999, 2000 and 2001 good steps."""
    run.optimizer.zero_grad()
    run.params[0].grad = torch.zeros_like(run.params[0])
    run.optimizer.step = lambda: None  # it takes most of the time
    scales = {}
    for rounds in range(1, 2002):
        run.step()
        run.scaler.update()
        if rounds >= 1999:
            scales[f"scale after {rounds} rounds"] = run.scale_of()
    return scales
