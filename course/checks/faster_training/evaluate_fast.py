"""Probe of exercise evaluate_fast."""

import weakref

import torch
from torch import nn

from course.engine.exercise import Answer, Facts, exercise

VALUES = set(
    "item tolist cpu numpy __bool__ __float__ __int__ __index__ __array__ __format__ __repr__".split()
)


def _noting(asked):
    """A class of logits that append to `asked` which of VALUES are asked of them, or of what is
    computed from them.
    """

    class Logits(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            name = getattr(func, "__name__", "")
            if name in VALUES or (
                name == "to" and "cpu" in map(str, args) and args[0].device.type != "cpu"
            ):
                asked.append(name)
            return super().__torch_function__(func, types, args, kwargs or {})

    return Logits


class _Watched(nn.Module):
    """Logits are the inputs, except for noise in train mode; notes how it is called."""

    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(4, affine=False)
        self.drop = nn.Dropout(0.5)
        self.seen = {"training": [], "grad": [], "inference": [], "alive": []}
        self.asked, self._outputs = [], []
        self.logits = _noting(self.asked)

    def forward(self, x):
        self.seen["training"].append(self.training or self.drop.training)
        self.seen["grad"].append(torch.is_grad_enabled())
        self.seen["inference"].append(torch.is_inference_mode_enabled())
        self.seen["alive"].append(sum(output() is not None for output in self._outputs))
        self.norm(x)
        logits = self.drop(x * 3).as_subclass(self.logits)
        self._outputs.append(weakref.ref(logits))
        return logits


def _plain(found):
    """What the answer returned; a tensor no longer notes what is asked of it, as a comparison
    does.
    """
    return found.as_subclass(torch.Tensor) if isinstance(found, torch.Tensor) else found


def _modes(model):
    return {"the model": model.training, "its dropout layer": model.drop.training}


def _batches(rng, sizes, wrong=0.25):
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
    yield (
        "returns a Python float",
        "a tensor" if isinstance(found, torch.Tensor) else type(found).__name__,
    )
    yield "batches of equal size", _plain(found)
    # a last batch that is all right: its mean is above that of the others, so a mean of means is
    # another number
    uneven = [*_batches(rng, [16, 16], wrong=0.5), *_batches(rng, [3 + seed % 4], wrong=0)]
    yield "the last batch is smaller", _plain(answer(model, uneven, device))
    model.train()
    model.norm.reset_running_stats()
    for noted in model.seen.values():
        noted.clear()
    model.asked.clear()
    answer(model, equal, device)
    yield "in eval mode, although the model trains", model.seen["training"]
    yield "running means of BatchNorm stay as they were", model.norm.running_mean
    yield "autograd records nothing: is_grad_enabled() in each forward pass", model.seen["grad"]
    yield "in inference mode", model.seen["inference"]
    yield "one forward pass per batch", len(model.seen["training"])
    asked = len(model.asked)
    answer(model, 2 * equal, device)
    yield (
        "waits for the device that are added when there are twice as many batches",
        len(model.asked) - 2 * asked,
    )
    yield "outputs of earlier batches are not kept", max(model.seen["alive"]) <= 1
    yield "afterwards the model and its parts train again", _modes(model)
    model.eval()
    answer(model, equal, device)
    yield "a model in eval mode stays in it", _modes(model)
    yield "batches that can be gone through only once", _plain(answer(model, iter(uneven), device))
    yield "inference mode is off again", torch.is_inference_mode_enabled()
