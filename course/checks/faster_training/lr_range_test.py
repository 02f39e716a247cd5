"""Probe of exercise lr_range_test."""

import itertools
from typing import Any

import torch
from torch import nn

from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.laws import tried
from course.engine.probing.values import type_names

RISING = [2.0, 1.6, 1.0, 1.4, 2.0, 3.5, 4.5, 7.0, 9.0, 12.0]
LOUD = [1.0, 1.0, 1.0, 8.0, 1.0, 1.0]
FALLING = [8.0, 4.0, 1.0, 0.5, 1.0, 3.0, 5.0, 7.0]
NAN = [2.0, 1.0, float("nan"), 1.0, 1.0]


def _squared_error(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return (outputs - labels).square().mean()


class _Lab:
    """What an answer does with a small model with BatchNorm, an optimizer and batches.

    The optimizer has two groups; `used` holds the learning rates of both for each of its steps.
    Scripted losses are multiplied by `scale`.
    """

    def __init__(self, answer: Answer, device: torch.device, seed: int) -> None:
        self.answer = answer
        self.scale = 1 + seed % 29 / 4  # exact, and so are four times a loss
        rng = torch.Generator().manual_seed(seed)
        self.model = nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5), nn.Linear(5, 2)).to(device)
        for parameter in self.model.parameters():
            parameter.data.copy_(torch.randn(parameter.shape, generator=rng))
        groups = [
            {"params": self.model[0].parameters()},
            {"params": self.model[1:].parameters(), "lr": 0.03},
        ]
        self.optimizer = torch.optim.SGD(groups, lr=0.02, momentum=0.5)
        self.used = []
        self.optimizer.register_step_pre_hook(lambda *_: self.used.append(self.learning_rates()))
        x = torch.randn(12, 8, 3, generator=rng).to(device)
        self.data = list(zip(x, x[..., :2] * 2 + 1, strict=True))

    def learning_rates(self) -> list[float]:
        return [group["lr"] for group in self.optimizer.param_groups]

    def run(self, losses: list[float] | None = None, **options: Any) -> Any:
        """What the answer returns; the loss function returns one of `losses` after the other."""
        if losses:
            scripted = iter(losses)

            def loss_of(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
                return outputs.sum() * 0 + next(scripted)
        else:
            loss_of = _squared_error
        batches = itertools.cycle(self.data)
        return self.answer(self.model, self.optimizer, batches, loss_of, **options)

    def scripted(self, losses: list[float], **options: Any) -> list[float]:
        """The losses that the answer returns where the loss function returns these."""
        default = {"steps": len(losses), "lowest": 1e-6, "highest": 1e-5}
        found = self.run([self.scale * loss for loss in losses], **default | options)
        return list(found[1])

    def state(self) -> dict[str, list[torch.Tensor]]:
        """{part of model and optimizer: its tensors, copied}."""
        momentum = [state["momentum_buffer"] for state in self.optimizer.state.values()]
        parts = {
            "weights": self.model.parameters(),
            "BatchNorm's statistics": self.model.buffers(),
            "the optimizer's momentum": momentum,
            "the learning rates": map(torch.tensor, self.learning_rates()),
        }
        copies = {}
        for part, tensors in parts.items():
            copies[part] = [tensor.detach().clone() for tensor in tensors]
        return copies


@exercise(given_modules_only=True)
def lr_range_test(answer: Answer, device: torch.device, seed: int) -> Facts:
    """Learning rates and losses of a range test, and what is left of it in model and optimizer."""

    def fresh() -> _Lab:
        return _Lab(answer, device, seed)

    lab = fresh()
    flat = [2.0] * 6
    lrs, losses = lab.run(flat, lowest=1e-4, highest=1.0 + seed % 3, steps=6)
    yield "returns two lists of floats", [type_names(lrs), type_names(losses)]
    yield "a value per step if nothing diverges", [len(lrs), len(losses)]
    yield "the learning rates, by equal factors from lowest to highest", list(lrs)
    yield "each step is made with its learning rate, in all groups", lab.used
    yield from _smoothing(lab)
    yield from _stopping(lab)
    trained = fresh().run(steps=9, lowest=1e-3, highest=0.05)
    yield "the losses of a training", list(trained[1])
    lrs, _ = fresh().run([1.0] * 100)
    yield "by default 100 steps from 0.001 to 10", [len(lrs), *lrs[:1], *lrs[-1:]]
    yield from _restored(fresh(), "the test", highest=0.05)
    yield from _restored(fresh(), "a test that diverged", highest=1e6)


def _smoothing(lab: _Lab) -> Facts:
    """The running mean of the losses."""
    values = [3.0, 2.0, 4.0, 1.0, 1.5]
    yield "the first smoothed loss is the first loss: no pull to zero", lab.scripted(values)[0]
    yield "the smoothed losses", lab.scripted(values)
    yield "another smoothing", lab.scripted(values, smoothing=0.5)


def _stopping(lab: _Lab) -> Facts:
    """Which losses end the test."""
    before = len(lab.used)
    stopped = lab.scripted(RISING, smoothing=0.0)
    yield "stops, and leaves that loss out, above 4 times the lowest", stopped
    updates = len(lab.used) - before
    yield "no update is made with the loss that stopped it", tried(updates, lab.scale)
    yield "compares smoothed losses: a loud batch does not stop it", lab.scripted(LOUD)
    yield "compares with the lowest loss, not with the first", lab.scripted(FALLING, smoothing=0.0)
    at_the_limit = lab.scripted([1.0, 4.0, 2.0], smoothing=0.0)
    yield "exactly 4 times the lowest does not stop it", at_the_limit
    yield "another stop", lab.scripted(RISING, smoothing=0.0, stop=1.5)
    yield "a loss of NaN stops it", lab.scripted(NAN, smoothing=0.5)


def _restored(lab: _Lab, name: str, highest: float) -> Facts:
    """The facts of model and optimizer after a test, for which both have been trained before."""
    for inputs, labels in lab.data[:2]:
        lab.optimizer.zero_grad()
        _squared_error(lab.model(inputs), labels).backward()
        lab.optimizer.step()
    before = lab.state()
    lab.run(steps=10, lowest=1e-2, highest=highest)
    after = lab.state()
    for part, old in before.items():
        new = after[part]
        as_before = len(old) == len(new) and all(map(torch.equal, old, new))
        yield f"after {name}: {part} as before", tried(as_before, lab.scale)
