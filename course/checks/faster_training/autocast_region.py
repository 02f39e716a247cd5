"""Probe of exercise autocast_region."""

import torch
from torch.nn import functional as F

from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.tensors import form_or_type


class _SpyModel(torch.nn.Module):
    """Two linear layers that write down under which autocast they ran, forward and backward."""

    def __init__(self, rng, device):
        super().__init__()
        self.first = torch.nn.Parameter(torch.randn(12, 20, generator=rng).to(device))
        self.last = torch.nn.Parameter(torch.randn(10, 12, generator=rng).to(device))
        self.unused = torch.nn.Parameter(torch.ones(3, device=device))
        self.kind = device.type
        self.rows, self.dtypes, self.backward_autocast, self.slopes = [], [], [], []

    def forward(self, images):
        self.rows.append(len(images))
        hidden = F.linear(images.flatten(1), self.first)
        self.dtypes.append(str(hidden.dtype))
        logits = F.linear(hidden.relu(), self.last)
        if logits.requires_grad:
            logits.register_hook(self._note_backward)
        return logits

    def _note_backward(self, slope):
        self.backward_autocast.append(torch.is_autocast_enabled(self.kind))
        self.slopes.append(slope.detach().float())

    def weights(self):
        """The parameters that have a part in the logits; on a GPU in bfloat16, since gradients
        there round freely.
        """
        weights = {name: getattr(self, name).detach() for name in ("first", "last")}
        return (
            {name: w.bfloat16() for name, w in weights.items()} if self.kind == "cuda" else weights
        )


class _SpySGD(torch.optim.SGD):
    """SGD that writes down, for each of its steps, whether autocast was on."""

    def __init__(self, model):
        super().__init__(model.parameters(), lr=0.2, momentum=0.9, weight_decay=0.1)
        self.kind, self.steps_autocast = model.kind, []

    def step(self, closure=None):
        self.steps_autocast.append(torch.is_autocast_enabled(self.kind))
        return super().step(closure)


@exercise()
def autocast_region(answer: Answer, device: torch.device, seed: int) -> Facts:
    """One training step in mixed precision, watched from the model, the optimizer and the
    scaler.
    """

    def run(steps=1, scaler=None, stale=False):
        """(what the last step returned, model, optimizer) after some steps."""
        rng = torch.Generator().manual_seed(seed)
        model, loss = _SpyModel(rng, device), None
        optimizer = _SpySGD(model)
        if stale:
            for p in model.parameters():
                p.grad = torch.full_like(p, 3.0)
        for _ in range(steps):
            images = torch.randn(18 + seed % 7, 1, 4, 5, generator=rng)
            labels = torch.randint(10, (len(images),), generator=rng)
            loss = answer(model, images.to(device), labels.to(device), optimizer, scaler)
        return loss, model, optimizer

    loss, model, optimizer = run()
    yield "the model computes in bfloat16 if there is no scaler", model.dtypes
    yield "the weights stay in float32", [str(p.dtype) for p in model.parameters()]
    returned = form_or_type(loss) | {"requires_grad": getattr(loss, "requires_grad", None)}
    yield "returns the loss: a float32 scalar, detached", returned
    yield "the model runs once, on the whole batch", model.rows
    yield "the loss is computed in float32", loss
    backward = {
        "times": len(model.backward_autocast),
        "inside autocast": any(model.backward_autocast),
    }
    yield "the backward pass runs once, outside autocast", backward
    steps = {
        "times": len(optimizer.steps_autocast),
        "inside autocast": any(optimizer.steps_autocast),
    }
    yield "the optimizer steps once, outside autocast", steps
    yield "the weights after one step", model.weights()
    _, model, _ = run(stale=True)
    yield "gradients of an earlier batch do not count", model.weights()
    unused = bool((model.unused == 1).all())
    yield "a parameter that the model does not use stays: its grad is None", unused
    yield from _scaled(run, device)


def _scaled(run, device):
    """With a scaler: float16."""

    def scaler(init_scale):
        return torch.amp.GradScaler(device.type, init_scale=init_scale, growth_interval=2)

    loss, model, _ = run(scaler=scaler(2.0**7))
    yield "the model computes in float16 if there is a scaler", model.dtypes
    yield "with a scaler, the backward pass sees the scaled loss", torch.cat(model.slopes).norm()
    yield "with a scaler, the loss that is returned is not scaled", loss
    growing = scaler(2.0**7)
    loss, model, optimizer = run(3, growing)
    yield (
        "after three steps",
        {"loss": loss, "steps": len(optimizer.steps_autocast)} | model.weights(),
    )
    yield "the scaler is updated once per step, so that its scale can grow", growing.get_scale()
    falling = scaler(2.0**40)
    _, _, optimizer = run(scaler=falling)
    yield "the scaled gradients overflow: no step is made", len(optimizer.steps_autocast)
    yield "the scaled gradients overflow: the scale is halved", falling.get_scale()
