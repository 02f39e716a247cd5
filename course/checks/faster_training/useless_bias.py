"""Probe of exercise useless_bias."""

import copy

import torch
from torch import nn

from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.laws import tried


def _trained(model: nn.Module, rng: torch.Generator, device: torch.device) -> nn.Module:
    """`model` on `device`, with weights and running statistics unlike those of a fresh one."""
    for module in model.modules():
        if isinstance(module, (nn.BatchNorm1d, nn.BatchNorm2d)):
            module.running_mean.copy_(torch.randn(module.num_features, generator=rng))
            module.running_var.copy_(0.5 + torch.rand(module.num_features, generator=rng))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=rng) / 2)
    return model.to(device)


def _nested() -> nn.Sequential:
    """Two blocks in one another: five layers with a bias, of which a BatchNorm follows three.

    Leaky: where a ReLU gives 0 for all images, the outputs do not show what is before it.
    """
    block = nn.Sequential(
        nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.LeakyReLU(), nn.Conv2d(4, 3, 3), nn.LeakyReLU()
    )
    head = nn.Sequential(
        nn.Flatten(), nn.Linear(48, 6), nn.BatchNorm1d(6), nn.LeakyReLU(), nn.Linear(6, 5)
    )
    return nn.Sequential(block, nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3), nn.LeakyReLU(), head)


def _others() -> nn.Sequential:
    """Layers whose bias must stay: something lies between, or the norm is another one."""
    return nn.Sequential(
        nn.Conv2d(2, 4, 3),
        nn.ReLU(),
        nn.BatchNorm2d(4),
        nn.Conv2d(4, 4, 1),
        nn.GroupNorm(2, 4),
        nn.Conv2d(4, 4, 1, bias=False),
        nn.BatchNorm2d(4),
        nn.Flatten(),
        nn.Linear(144, 5),
        nn.LayerNorm(5),
        nn.Linear(5, 5),
    )


class _SideBySide(nn.Module):
    """A convolution and a BatchNorm that are neighbours as attributes, and take the same images."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 2, 1)
        self.norm = nn.BatchNorm2d(2)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.conv(images) + self.norm(images)


def _names(model: nn.Module) -> list[str]:
    return [name for name, _ in model.named_parameters()]


def _gone(model: nn.Module, lean: nn.Module) -> list[str]:
    """Parameters of `model` that `lean` has not."""
    return sorted({*_names(model)} - {*_names(lean)})


@exercise(given_modules_only=True)
def useless_bias(answer: Answer, device: torch.device, seed: int) -> Facts:
    """A copy of a model without the biases that come right before a BatchNorm."""
    rng = torch.Generator().manual_seed(seed)
    model = _trained(_nested(), rng, device)
    images = torch.randn(6 + seed % 3, 2, 8, 8, generator=rng).to(device)
    yield from _the_copy(answer, model, images)
    others = _trained(_others(), rng, device)
    stays = _gone(others, answer(others))
    fact = "a bias stays before ReLU, GroupNorm, LayerNorm, and at the end"
    yield fact, tried(stays, len(images))
    neighbours = _trained(_SideBySide(), rng, device)
    stays = _gone(neighbours, answer(neighbours))
    fact = "a bias stays in a convolution that is in no nn.Sequential"
    yield fact, tried(stays, len(images))
    single = _trained(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)), rng, device)
    yield "a Linear before a BatchNorm1d", _gone(single, answer(single))


def _the_copy(answer: Answer, model: nn.Module, images: torch.Tensor) -> Facts:
    """What the copy computes, and that the model stays as it was."""
    before = copy.deepcopy(model.state_dict())
    names = _names(model)
    lean = answer(model)
    yield "returns a model", isinstance(lean, nn.Module)
    are_kept = _names(model) == names
    yield "the model that was given keeps all its parameters", tried(are_kept, len(images))
    yield "the parameters that are gone", sorted({*names} - {*_names(lean)})
    with torch.no_grad():
        yield "evaluation mode: the copy computes the same", lean.eval()(images)
        yield "training mode: the copy computes the same", lean.train()(images)
    lean(images).square().sum().backward()
    grads = {name: p.grad for name, p in sorted(lean.named_parameters())}
    yield "training mode: the gradients of what is left", grads
    for parameter in lean.parameters():
        parameter.data.zero_()
    same = all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    yield "the model that was given keeps its values, whatever becomes of the copy", same
