"""Probe of exercise autocast_region."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch.nn import functional as F

from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.laws import tried
from course.engine.probing.tensors import form_or_type


class _SpyModel(torch.nn.Module):
    """Two linear layers that write down under which autocast they ran, forward and backward."""

    def __init__(self, rng: torch.Generator, device: torch.device) -> None:
        super().__init__()
        self.first = torch.nn.Parameter(torch.randn(12, 20, generator=rng).to(device))
        self.last = torch.nn.Parameter(torch.randn(10, 12, generator=rng).to(device))
        self.unused = torch.nn.Parameter(torch.ones(3, device=device))
        self.kind = device.type
        self.rows = []
        self.dtypes = []
        self.backward_autocast = []
        self.slopes = []

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        self.rows.append(len(images))
        hidden = F.linear(images.flatten(1), self.first)
        self.dtypes.append(str(hidden.dtype))
        logits = F.linear(hidden.relu(), self.last)
        if logits.requires_grad:
            logits.register_hook(self._note_backward)
        return logits

    def _note_backward(self, slope: torch.Tensor) -> None:
        self.backward_autocast.append(torch.is_autocast_enabled(self.kind))
        self.slopes.append(slope.detach().float())

    def weights(self) -> dict[str, torch.Tensor]:
        """The parameters that have a part in the logits.

        On a GPU in bfloat16, since gradients there round freely.
        """
        weights = {"first": self.first.detach(), "last": self.last.detach()}
        if self.kind == "cuda":
            return {name: weight.bfloat16() for name, weight in weights.items()}
        return weights


class _SpySGD(torch.optim.SGD):
    """SGD that writes down, for each of its steps, whether autocast was on."""

    def __init__(self, model: _SpyModel) -> None:
        super().__init__(model.parameters(), lr=0.2, momentum=0.9, weight_decay=0.1)
        self.kind = model.kind
        self.steps_autocast = []

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        self.steps_autocast.append(torch.is_autocast_enabled(self.kind))
        return super().step(closure)


class _Run(NamedTuple):
    """What some steps left; `loss` is what the last one returned."""

    loss: Any
    model: _SpyModel
    optimizer: _SpySGD


@exercise()
def autocast_region(answer: Answer, device: torch.device, seed: int) -> Facts:
    """A step in mixed precision, watched from the model, the optimizer and the scaler."""

    def run(
        steps: int = 1, scaler: torch.amp.GradScaler | None = None, stale: bool = False
    ) -> _Run:
        """The model and optimizer after some steps."""
        rng = torch.Generator().manual_seed(seed)
        model = _SpyModel(rng, device)
        optimizer = _SpySGD(model)
        if stale:
            for parameter in model.parameters():
                parameter.grad = torch.full_like(parameter, 3.0)
        loss = None
        for _ in range(steps):
            images = torch.randn(18 + seed % 7, 1, 4, 5, generator=rng)
            labels = torch.randint(10, (len(images),), generator=rng)
            loss = answer(model, images.to(device), labels.to(device), optimizer, scaler)
        return _Run(loss, model, optimizer)

    n_images = 18 + seed % 7
    yield from _without_scaler(run, n_images)
    yield from _with_scaler(run, device, n_images)


def _times(autocast: list[bool]) -> dict[str, Any]:
    """How often something ran, and whether ever inside autocast."""
    return {"times": len(autocast), "inside autocast": any(autocast)}


def _without_scaler(run: Callable[..., _Run], n_images: int) -> Facts:
    """In bfloat16."""
    loss, model, optimizer = run()
    yield "the model computes in bfloat16 if there is no scaler", model.dtypes
    yield "the weights stay in float32", [str(p.dtype) for p in model.parameters()]
    returned = form_or_type(loss) | {"requires_grad": getattr(loss, "requires_grad", None)}
    yield "returns the loss: a float32 scalar, detached", tried(returned, n_images)
    yield "the model runs once, on the whole batch", model.rows
    yield "the loss is computed in float32", loss
    backward = _times(model.backward_autocast)
    yield "the backward pass runs once, outside autocast", tried(backward, n_images)
    steps = _times(optimizer.steps_autocast)
    yield "the optimizer steps once, outside autocast", tried(steps, n_images)
    yield "the weights after one step", model.weights()
    _, model, _ = run(stale=True)
    yield "gradients of an earlier batch do not count", model.weights()
    unused = bool((model.unused == 1).all())
    fact = "a parameter that the model does not use stays: its grad is None"
    yield fact, tried(unused, n_images)


def _with_scaler(run: Callable[..., _Run], device: torch.device, n_images: int) -> Facts:
    """In float16."""

    def scaler(init_scale: float) -> torch.amp.GradScaler:
        return torch.amp.GradScaler(device.type, init_scale=init_scale, growth_interval=2)

    loss, model, _ = run(scaler=scaler(2.0**7))
    yield "the model computes in float16 if there is a scaler", model.dtypes
    yield "with a scaler, the backward pass sees the scaled loss", torch.cat(model.slopes).norm()
    yield "with a scaler, the loss that is returned is not scaled", loss
    growing = scaler(2.0**7)
    loss, model, optimizer = run(3, growing)
    three = {"loss": loss, "steps": len(optimizer.steps_autocast)} | model.weights()
    yield "after three steps", three
    yield "the scaler is updated once per step, so that its scale can grow", growing.get_scale()
    falling = scaler(2.0**40)
    _, _, optimizer = run(scaler=falling)
    steps = len(optimizer.steps_autocast)
    yield "the scaled gradients overflow: no step is made", tried(steps, n_images)
    yield "the scaled gradients overflow: the scale is halved", falling.get_scale()
