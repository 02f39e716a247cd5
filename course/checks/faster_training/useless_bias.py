"""Probe of exercise useless_bias."""

import copy

import torch
from torch import nn

from course.engine.exercise import Answer, Facts, exercise


def _trained(model, rng, device):
    """`model` on `device`, with biases, running means and running variances that are not those of a
    fresh one.
    """
    for module in model.modules():
        if isinstance(module, (nn.BatchNorm1d, nn.BatchNorm2d)):
            module.running_mean.copy_(torch.randn(module.num_features, generator=rng))
            module.running_var.copy_(0.5 + torch.rand(module.num_features, generator=rng))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=rng) / 2)
    return model.to(device)


def _nested():
    """Two blocks in one another: five layers with a bias, of which three are followed by a
    BatchNorm.

    Leaky: where a ReLU gives 0 for all images, the outputs do not show what is before it.
    """
    block = nn.Sequential(
        nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.LeakyReLU(), nn.Conv2d(4, 3, 3), nn.LeakyReLU()
    )
    head = nn.Sequential(
        nn.Flatten(), nn.Linear(48, 6), nn.BatchNorm1d(6), nn.LeakyReLU(), nn.Linear(6, 5)
    )
    return nn.Sequential(block, nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3), nn.LeakyReLU(), head)


def _others():
    """Layers whose bias must stay: something lies between, or the norm is another one."""
    return nn.Sequential(
        nn.Conv2d(2, 4, 3), nn.ReLU(), nn.BatchNorm2d(4),
        nn.Conv2d(4, 4, 1), nn.GroupNorm(2, 4),
        nn.Conv2d(4, 4, 1, bias=False), nn.BatchNorm2d(4),
        nn.Flatten(), nn.Linear(144, 5), nn.LayerNorm(5), nn.Linear(5, 5),
    )  # fmt: skip


def _names(model):
    return [name for name, _ in model.named_parameters()]


def _gone(answer, model):
    """Parameters missing from the answer's model."""
    lean = answer(model)
    return sorted({*_names(model)} - {*_names(lean)})


class _SideBySide(nn.Module):
    """A convolution and a BatchNorm that are neighbours as attributes, and take the same images."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(2, 2, 1), nn.BatchNorm2d(2)

    def forward(self, images):
        return self.conv(images) + self.norm(images)


@exercise(given_modules_only=True)
def useless_bias(answer: Answer, device: torch.device, seed: int) -> Facts:
    """A copy of a model without the biases that come right before a BatchNorm."""
    rng = torch.Generator().manual_seed(seed)
    model = _trained(_nested(), rng, device)
    images = torch.randn(6 + seed % 3, 2, 8, 8, generator=rng).to(device)
    before, names = copy.deepcopy(model.state_dict()), _names(model)
    lean = answer(model)
    yield "returns a model", isinstance(lean, nn.Module)
    yield "the model that was given keeps all its parameters", _names(model) == names
    yield "the parameters that are gone", sorted({*names} - {*_names(lean)})
    with torch.no_grad():
        yield "evaluation mode: the copy computes the same", lean.eval()(images)
        yield "training mode: the copy computes the same", lean.train()(images)
    lean(images).square().sum().backward()
    yield (
        "training mode: the gradients of what is left",
        {n: p.grad for n, p in sorted(lean.named_parameters())},
    )
    for parameter in lean.parameters():
        parameter.data.zero_()
    same = all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    yield "the model that was given keeps its values, whatever becomes of the copy", same
    others = _trained(_others(), rng, device)
    yield "a bias stays before ReLU, GroupNorm, LayerNorm, and at the end", _gone(answer, others)
    neighbours = _trained(_SideBySide(), rng, device)
    yield "a bias stays in a convolution that is in no nn.Sequential", _gone(answer, neighbours)
    single = _trained(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)), rng, device)
    yield "a Linear before a BatchNorm1d", _gone(answer, single)
