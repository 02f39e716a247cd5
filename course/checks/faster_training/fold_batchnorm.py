"""Probe of exercise fold_batchnorm."""

import torch
from torch import nn
from torch.nn import functional as F

from course.checks.engine import exercise


def _pair(rng, device, bias=True, variance=1.0, **options):
    """A convolution and its BatchNorm in evaluation mode, with statistics as after some training."""
    conv = nn.Conv2d(options.pop("inputs", 3), 6, 3, bias=bias, **options)
    norm = nn.BatchNorm2d(6).eval()
    with torch.no_grad():
        for tensor in (*conv.parameters(), *norm.parameters(), norm.running_mean):
            tensor.copy_(torch.randn(tensor.shape, generator=rng))
        norm.running_var.copy_(variance * (0.5 + torch.rand(6, generator=rng)))
    return conv.to(device), norm.to(device)


def _folded(answer, conv, norm, images):
    """What the folded convolution computes."""
    weight, bias = answer(conv, norm)
    return F.conv2d(images, weight, bias, conv.stride, conv.padding, conv.dilation, conv.groups).detach()


@exercise(forbids=("torch.nn.utils.fusion", "torch.nn.utils.fuse_conv_bn_eval", "torch.nn.utils.fuse_conv_bn_weights"))
def fold_batchnorm(answer, device, seed):
    """Weight and bias of one convolution in place of a convolution and its BatchNorm."""
    rng = torch.Generator().manual_seed(seed)
    images = torch.randn(2, 3, 6 + seed % 3, 7, generator=rng).to(device)
    conv, norm = _pair(rng, device)
    found = answer(conv, norm)
    shapes = [tuple(value.shape) for value in found] if isinstance(found, tuple) else type(found).__name__
    yield "returns a tuple (weight, bias) of these shapes", shapes
    again, its_norm = _pair(rng, device)
    state = [tensor.clone() for tensor in (*again.state_dict().values(), *its_norm.state_dict().values())]
    answer(again, its_norm)[0].detach().zero_()
    after = (*again.state_dict().values(), *its_norm.state_dict().values())
    yield "both layers stay as they were", all(torch.equal(a, b) for a, b in zip(state, after, strict=True))
    yield "the folded convolution computes the same as both", _folded(answer, conv, norm, images)
    yield "the weight is scaled channel by channel of the output", found[0]
    yield "nothing is left for autograd", [value.requires_grad for value in found]
    bare, its_norm = _pair(rng, device, bias=False)
    yield "a convolution without a bias", _folded(answer, bare, its_norm, images)
    wide, its_norm = _pair(rng, device, stride=2, padding=1)
    yield "a convolution with stride and padding", _folded(answer, wide, its_norm, images)
    flat, its_norm = (layer.double() for layer in _pair(rng, device, variance=1e-6))  # which multiplies by hundreds
    yield "channels that hardly vary: eps counts", _folded(answer, flat, its_norm, images.double())
    yield "weight and bias lie where the layers do", [value.device.type for value in found]
