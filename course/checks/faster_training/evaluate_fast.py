"""Probe of exercise evaluate_fast."""

import weakref
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.laws import tried
from course.engine.probing.values import type_word

# methods that need the values of a tensor, so that they wait for the device
VALUES = {
    "item",
    "tolist",
    "cpu",
    "numpy",
    "__bool__",
    "__float__",
    "__int__",
    "__index__",
    "__array__",
    "__format__",
    "__repr__",
}


def _noting(asked: list[str]) -> type[torch.Tensor]:
    """A class of logits that append to `asked` which of VALUES are asked of them.

    Tensors computed from them do so too.
    """

    class Logits(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            name = getattr(func, "__name__", "")
            moves = name == "to" and "cpu" in map(str, args) and args[0].device.type != "cpu"
            if name in VALUES or moves:
                asked.append(name)
            return super().__torch_function__(func, types, args, kwargs or {})

    return Logits


class _Watched(nn.Module):
    """Logits are the inputs, except for noise in train mode; notes how it is called."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(4, affine=False)
        self.drop = nn.Dropout(0.5)
        self.seen = {"training": [], "grad": [], "inference": [], "alive": []}
        self.asked = []
        self.logits = _noting(self.asked)
        self._outputs = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen["training"].append(self.training or self.drop.training)
        self.seen["grad"].append(torch.is_grad_enabled())
        self.seen["inference"].append(torch.is_inference_mode_enabled())
        self.seen["alive"].append(sum(output() is not None for output in self._outputs))
        self.norm(x)
        logits = self.drop(x * 3).as_subclass(self.logits)
        self._outputs.append(weakref.ref(logits))
        return logits

    def forget(self) -> None:
        """Drop the notes and the running means."""
        self.norm.reset_running_stats()
        for noted in self.seen.values():
            noted.clear()
        self.asked.clear()


def _plain(found: Any) -> Any:
    """What the answer returned; a tensor no longer notes what a comparison asks of it."""
    return found.as_subclass(torch.Tensor) if isinstance(found, torch.Tensor) else found


def _modes(model: _Watched) -> dict[str, bool]:
    return {"the model": model.training, "its dropout layer": model.drop.training}


def _batches(
    rng: torch.Generator, sizes: list[int], wrong: float = 0.25
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Batches of (inputs, labels), of which about the share `wrong` is classified wrong."""
    for n in sizes:
        x = torch.randn(n, 4, generator=rng)
        is_wrong = torch.rand(n, generator=rng) < wrong
        yield x, torch.where(is_wrong, (x.argmax(1) + 1) % 4, x.argmax(1))


@exercise()
def evaluate_fast(answer: Answer, device: torch.device, seed: int) -> Facts:
    """Accuracy of a model that notes how it is called."""
    rng = torch.Generator().manual_seed(seed)
    equal = list(_batches(rng, [8] * (3 + seed % 3)))
    model = _Watched().to(device)
    model.eval()
    found = answer(model, equal, device)
    returned = "a tensor" if isinstance(found, torch.Tensor) else type_word(found)
    yield "returns a Python float", returned
    yield "batches of equal size", _plain(found)
    # a last batch that is all right: its mean is above that of the others, so a mean of means is
    # another number
    uneven = [*_batches(rng, [16, 16], wrong=0.5), *_batches(rng, [3 + seed % 4], wrong=0)]
    yield "the last batch is smaller", _plain(answer(model, uneven, device))
    yield from _how_it_is_called(answer, model, equal, device)
    yield "afterwards the model and its parts train again", tried(_modes(model), len(equal))
    model.eval()
    answer(model, equal, device)
    yield "a model in eval mode stays in it", tried(_modes(model), len(equal))
    yield "batches that can be gone through only once", _plain(answer(model, iter(uneven), device))
    yield "inference mode is off again", torch.is_inference_mode_enabled()


def _how_it_is_called(
    answer: Answer, model: _Watched, batches: list[tuple], device: torch.device
) -> Facts:
    """In which modes a model runs that trains, how often, and what is asked of its outputs."""
    model.train()
    model.forget()
    answer(model, batches, device)
    yield "in eval mode, although the model trains", model.seen["training"]
    yield "running means of BatchNorm stay as they were", model.norm.running_mean
    yield "autograd records nothing: is_grad_enabled() in each forward pass", model.seen["grad"]
    yield "in inference mode", model.seen["inference"]
    yield "one forward pass per batch", len(model.seen["training"])
    asked = len(model.asked)
    answer(model, 2 * batches, device)
    added = len(model.asked) - 2 * asked
    fact = "waits for the device that are added when there are twice as many batches"
    yield fact, tried(added, len(batches))
    is_lean = max(model.seen["alive"]) <= 1
    yield "outputs of earlier batches are not kept", tried(is_lean, len(batches))
