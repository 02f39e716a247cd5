"""Probe of exercise accumulated."""

from typing import Any, NamedTuple

import torch
from torch import nn

from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.tensors import kind


class Scores(nn.Module):
    """Logits of four classes; notes every forward pass (its rows) and every backward pass."""

    def __init__(self, rng: torch.Generator, device: torch.device) -> None:
        super().__init__()
        self.map = nn.Linear(6, 4, device=device)
        for parameter in self.parameters():
            parameter.data.copy_(torch.randn(parameter.shape, generator=rng))
        self.passes = []
        self.seen = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The logits (rows, 4) of x (rows, 6), while notes are taken."""
        self.passes.append(f"forward of {len(x)}")
        self.seen.append(x.detach().clone())
        out = self.map(x)
        out.register_hook(lambda grad: self.passes.append("backward"))
        return out

    def grads(self) -> dict[str, torch.Tensor | None]:
        """{parameter: its gradient}."""
        return {name: p.grad for name, p in self.named_parameters()}


class _Run(NamedTuple):
    """What the answer returned, and the model."""

    loss: Any
    model: Scores


@exercise()
def accumulated(answer: Answer, device: torch.device, seed: int) -> Facts:
    """The gradient of a large batch, computed from small ones."""

    def run(n: int, micro: int) -> _Run:
        """The answer on a batch of n rows, in micro-batches of `micro`."""
        rng = torch.Generator().manual_seed(seed)
        model = Scores(rng, device)
        images = torch.randn(n, 6, generator=rng).to(device)
        labels = torch.randint(4, (n,), generator=rng).to(device)
        return _Run(answer(model, images, labels, micro), model)

    micro = 5 + seed % 3
    loss, model = run(3 * micro, micro)
    yield "returns a detached scalar", [kind(loss), getattr(loss, "requires_grad", None)]
    yield "three equal micro-batches: passes", list(model.passes)
    yield "every row goes through the model, in order", torch.cat(model.seen)
    yield "three equal micro-batches: the loss", loss
    yield "three equal micro-batches: the gradients", model.grads()
    loss, model = run(3 * micro + 1, micro)
    yield "a last micro-batch of one row: passes", list(model.passes)
    yield "a last micro-batch of one row: the loss", loss
    yield "a last micro-batch of one row: the gradients", model.grads()
    loss, model = run(micro - 1, micro)
    yield "a batch smaller than a micro-batch: passes", list(model.passes)
    yield "a batch smaller than a micro-batch: loss and gradients", {"loss": loss} | model.grads()
    loss, model = run(3, 1)
    yield "micro-batches of one row: loss and gradients", {"loss": loss} | model.grads()
