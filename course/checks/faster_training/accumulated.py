"""Probe of exercise accumulated."""

import torch
from torch import nn

from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.tensors import kind


class Scores(nn.Module):
    """Logits of four classes, and a note of every forward pass (its rows) and of every backward
    pass.
    """

    def __init__(self, rng, device):
        super().__init__()
        self.map = nn.Linear(6, 4, device=device)
        for parameter in self.parameters():
            parameter.data.copy_(torch.randn(parameter.shape, generator=rng))
        self.passes, self.seen = [], []

    def forward(self, x):
        self.passes.append(f"forward of {len(x)}")
        self.seen.append(x.detach().clone())
        out = self.map(x)
        out.register_hook(lambda grad: self.passes.append("backward"))
        return out


@exercise()
def accumulated(answer: Answer, device: torch.device, seed: int) -> Facts:
    """The gradient of a large batch, computed from small ones."""

    def run(n, micro):
        """(what the answer returns, the model)."""
        rng = torch.Generator().manual_seed(seed)
        model = Scores(rng, device)
        images, labels = torch.randn(n, 6, generator=rng), torch.randint(4, (n,), generator=rng)
        return answer(model, images.to(device), labels.to(device), micro), model

    def grads(model):
        return {name: p.grad for name, p in model.named_parameters()}

    micro = 5 + seed % 3
    loss, model = run(3 * micro, micro)
    yield "returns a detached scalar", [kind(loss), getattr(loss, "requires_grad", None)]
    yield "three equal micro-batches: passes", list(model.passes)
    yield "every row goes through the model, in order", torch.cat(model.seen)
    yield "three equal micro-batches: the loss", loss
    yield "three equal micro-batches: the gradients", grads(model)
    loss, model = run(3 * micro + 1, micro)
    yield "a last micro-batch of one row: passes", list(model.passes)
    yield "a last micro-batch of one row: the loss", loss
    yield "a last micro-batch of one row: the gradients", grads(model)
    loss, model = run(micro - 1, micro)
    yield "a batch smaller than a micro-batch: passes", list(model.passes)
    yield "a batch smaller than a micro-batch: loss and gradients", {"loss": loss} | grads(model)
    loss, model = run(3, 1)
    yield "micro-batches of one row: loss and gradients", {"loss": loss} | grads(model)
