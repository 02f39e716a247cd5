"""Probe of exercise lr_range_test."""

import itertools

import torch
from torch import nn

from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.values import type_names

RISING = [2.0, 1.6, 1.0, 1.4, 2.0, 3.5, 4.5, 7.0, 9.0, 12.0]
LOUD = [1.0, 1.0, 1.0, 8.0, 1.0, 1.0]
FALLING = [8.0, 4.0, 1.0, 0.5, 1.0, 3.0, 5.0, 7.0]
NAN = [2.0, 1.0, float("nan"), 1.0, 1.0]


class _Lab:
    """A small model with BatchNorm, its optimizer in two groups, and batches; and what an answer
    does with them.
    """

    def __init__(self, answer, device, seed):
        self.answer = answer
        rng = torch.Generator().manual_seed(seed)
        self.model = nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5), nn.Linear(5, 2)).to(device)
        for parameter in self.model.parameters():
            parameter.data.copy_(torch.randn(parameter.shape, generator=rng))
        groups = [
            {"params": self.model[0].parameters()},
            {"params": self.model[1:].parameters(), "lr": 0.03},
        ]
        self.optimizer, self.used = torch.optim.SGD(groups, lr=0.02, momentum=0.5), []
        self.optimizer.register_step_pre_hook(lambda *_: self.used.append(self.learning_rates()))
        x = torch.randn(12, 8, 3, generator=rng).to(device)
        self.data = list(zip(x, x[..., :2] * 2 + 1, strict=True))

    def learning_rates(self):
        return [group["lr"] for group in self.optimizer.param_groups]

    def run(self, losses=None, **options):
        """What the answer returns; with `losses` given, the loss function returns these, one after
        the other.
        """
        scripted = iter(losses or ())

        def loss_of(outputs, labels):
            return (
                outputs.sum() * 0 + next(scripted) if losses else (outputs - labels).square().mean()
            )

        return self.answer(
            self.model, self.optimizer, itertools.cycle(self.data), loss_of, **options
        )

    def scripted(self, losses, **options):
        return list(
            self.run(losses, **{"steps": len(losses), "lowest": 1e-6, "highest": 1e-5} | options)[1]
        )

    def state(self):
        """{part of model and optimizer: its tensors, copied}."""
        parts = {
            "weights": self.model.parameters(),
            "BatchNorm's statistics": self.model.buffers(),
            "the optimizer's momentum": [
                state["momentum_buffer"] for state in self.optimizer.state.values()
            ],
            "the learning rates": map(torch.tensor, self.learning_rates()),
        }
        return {
            part: [tensor.detach().clone() for tensor in tensors] for part, tensors in parts.items()
        }


@exercise(given_modules_only=True)
def lr_range_test(answer: Answer, device: torch.device, seed: int) -> Facts:
    """Learning rates and losses of a range test, and what is left of it in model and optimizer."""

    def fresh():
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
    yield "the losses of a training", list(fresh().run(steps=9, lowest=1e-3, highest=0.05)[1])
    lrs, _ = fresh().run([1.0] * 100)
    yield "by default 100 steps from 0.001 to 10", [len(lrs), *lrs[:1], *lrs[-1:]]
    for name, highest in (("the test", 0.05), ("a test that diverged", 1e6)):
        yield from _restored(fresh(), name, highest)


def _smoothing(lab):
    values = [3.0, 2.0, 4.0, 1.0, 1.5]
    yield "the first smoothed loss is the first loss: no pull to zero", lab.scripted(values)[0]
    yield "the smoothed losses", lab.scripted(values)
    yield "another smoothing", lab.scripted(values, smoothing=0.5)


def _stopping(lab):
    before = len(lab.used)
    yield (
        "stops, and leaves that loss out, above 4 times the lowest",
        lab.scripted(RISING, smoothing=0.0),
    )
    yield "no update is made with the loss that stopped it", len(lab.used) - before
    yield "compares smoothed losses: a loud batch does not stop it", lab.scripted(LOUD)
    yield "compares with the lowest loss, not with the first", lab.scripted(FALLING, smoothing=0.0)
    yield (
        "exactly 4 times the lowest does not stop it",
        lab.scripted([1.0, 4.0, 2.0], smoothing=0.0),
    )
    yield "another stop", lab.scripted(RISING, smoothing=0.0, stop=1.5)
    yield "a loss of NaN stops it", lab.scripted(NAN, smoothing=0.5)


def _restored(lab, name, highest):
    """The facts of model and optimizer after a test, for which both have been trained before."""
    for inputs, labels in lab.data[:2]:
        lab.optimizer.zero_grad()
        (lab.model(inputs) - labels).square().mean().backward()
        lab.optimizer.step()
    before = lab.state()
    lab.run(steps=10, lowest=1e-2, highest=highest)
    for (part, old), new in zip(before.items(), lab.state().values(), strict=True):
        yield (
            f"after {name}: {part} as before",
            len(old) == len(new) and all(map(torch.equal, old, new)),
        )
