"""Probe of exercise channels_last."""

import torch
from torch import nn

from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.laws import tried
from course.engine.probing.values import type_word


class _Contiguous(nn.Module):
    """Copies into the usual layout, as a `.contiguous()` in somebody's forward does."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return images.contiguous()


class _Turned(nn.Module):
    """Exchanges height and width, which leaves neither of the two layouts."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return images.transpose(2, 3)


class _First(nn.Module):
    """Notes how often it runs, in which mode, and in which layout its images come."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = []
        self.modes = []

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        self.modes.append(self.training)
        self.seen.append(_is_channels_last(images))
        return images


def _is_channels_last(tensor: torch.Tensor) -> bool:
    return tensor.is_contiguous(memory_format=torch.channels_last)


def _network(rng: torch.Generator, device: torch.device, more: int) -> nn.Sequential:
    """Seven leaf layers with images as outputs, and `more`, in two blocks.

    The layers of its head do not return images.
    """
    block = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), _Contiguous(), nn.MaxPool2d(2)
    )
    head = nn.Conv2d(4, 5, 2), nn.ReLU(), nn.Flatten(), nn.Linear(20, 3)
    model = nn.Sequential(_First(), *(nn.Tanh() for _ in range(more)), block, *head)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=rng))
    return model.eval().to(device)


def _number_of_hooks(model: nn.Module) -> int:
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules())


@exercise()
def channels_last(answer: Answer, device: torch.device, seed: int) -> Facts:
    """Which layers of a converted model give images with the channels last."""
    rng = torch.Generator().manual_seed(seed)
    model = _network(rng, device, more=seed % 7)
    images = torch.randn(2 + seed % 3, 3, 8, 8, generator=rng).to(device)
    strides = images.stride()
    found = answer(model, images)
    yield "returns a dict", type_word(found)
    first = model[0].seen
    yield "the layers whose outputs are images, in the order in which they ran", list(found)
    yield "the model that was given runs once", len(first)
    yield "the images were converted before the first layer", bool(first) and first[-1]
    weights = {}
    for name, parameter in model.named_parameters():
        if parameter.ndim == 4:
            weights[name] = _is_channels_last(parameter)
    yield "the model's weights were converted", weights
    yield "True where the output has its channels last", found
    yield "the values are Python bools", sorted({type_word(value) for value in found.values()})
    yield "no hook is left on the model", tried(_number_of_hooks(model), len(model))
    yield "the images that were given keep their strides", images.stride() == strides
    more = [nn.Tanh() for _ in range(seed % 7)]
    pooled = nn.Sequential(_First(), *more, nn.MaxPool2d(2), _Turned(), _Contiguous()).to(device)
    yield "neither layout where height and width changed places", answer(pooled, images)
    modes = [*pooled[0].modes, pooled.training]
    yield "a model in training mode runs in that, and stays in it", tried(modes, len(pooled))
