"""Known mistakes of exercise fold_batchnorm, and right answers in other styles."""

import torch

from course.checks.engine import alternative, mistake


def _scale(norm, eps=True):
    return (norm.weight / torch.sqrt(norm.running_var + norm.eps * eps)).detach()


def _bias(conv, norm):
    return torch.zeros_like(norm.running_mean) if conv.bias is None else conv.bias.detach()


def _weight(conv, scale):
    return conv.weight.detach() * scale[:, None, None, None]


@mistake("fold_batchnorm", "The weight was divided by the variance. BatchNorm divides by its square root.")
def by_the_variance(conv, norm):
    scale = (norm.weight / (norm.running_var + norm.eps)).detach()
    return _weight(conv, scale), norm.bias.detach() + (_bias(conv, norm) - norm.running_mean) * scale


@mistake("fold_batchnorm", "eps is missing under the root: a channel that hardly varies is scaled far too much.")
def without_eps(conv, norm):
    scale = _scale(norm, eps=False)
    return _weight(conv, scale), norm.bias.detach() + (_bias(conv, norm) - norm.running_mean) * scale


@mistake("fold_batchnorm", "eps was added to the root. It belongs under it: sqrt(var + eps).")
def eps_outside_the_root(conv, norm):
    scale = (norm.weight / (torch.sqrt(norm.running_var) + norm.eps)).detach()
    return _weight(conv, scale), norm.bias.detach() + (_bias(conv, norm) - norm.running_mean) * scale


@mistake("fold_batchnorm", "The convolution's own bias was forgotten: it passes through BatchNorm as the products do.")
def own_bias_forgotten(conv, norm):
    scale = _scale(norm)
    return _weight(conv, scale), norm.bias.detach() - norm.running_mean * scale


@mistake("fold_batchnorm", "The convolution's bias was not scaled. BatchNorm multiplies all that it gets.")
def own_bias_not_scaled(conv, norm):
    scale = _scale(norm)
    return _weight(conv, scale), norm.bias.detach() - norm.running_mean * scale + _bias(conv, norm)


@mistake("fold_batchnorm", "The running mean was subtracted and not scaled. It is subtracted before BatchNorm divides.")
def mean_not_scaled(conv, norm):
    scale = _scale(norm)
    return _weight(conv, scale), norm.bias.detach() + _bias(conv, norm) * scale - norm.running_mean


@mistake(
    "fold_batchnorm",
    "BatchNorm's own weight or bias is missing: after it has normalised, it multiplies by `weight` and adds `bias`.",
)
def not_affine(conv, norm):
    scale = 1 / torch.sqrt(norm.running_var + norm.eps)
    return _weight(conv, scale), (_bias(conv, norm) - norm.running_mean) * scale


@mistake("fold_batchnorm", "A convolution without a bias ends in an error. Take 0 for a bias that is None.")
def needs_a_bias(conv, norm):
    scale = _scale(norm)
    return _weight(conv, scale), norm.bias.detach() + (conv.bias.detach() - norm.running_mean) * scale


@mistake("fold_batchnorm", "What is returned still has a graph. Folding is for inference: detach, or use no_grad.")
def with_a_graph(conv, norm):
    scale = norm.weight / torch.sqrt(norm.running_var + norm.eps)
    bias = 0 if conv.bias is None else conv.bias
    return conv.weight * scale.view(-1, 1, 1, 1), norm.bias + (bias - norm.running_mean) * scale


@mistake("fold_batchnorm", "The weight of the given convolution was changed. Return new tensors.")
def changes_the_layer(conv, norm):
    scale = _scale(norm)
    bias = norm.bias.detach() + (_bias(conv, norm) - norm.running_mean) * scale
    with torch.no_grad():
        conv.weight.mul_(scale.view(-1, 1, 1, 1))
    return conv.weight.detach(), bias


@alternative("fold_batchnorm")
@torch.no_grad()
def under_no_grad(conv, norm):
    deviation = (norm.running_var + norm.eps).sqrt()
    weight = torch.einsum("o,oihw->oihw", norm.weight / deviation, conv.weight)
    shift = -norm.running_mean if conv.bias is None else conv.bias - norm.running_mean
    return weight, norm.bias + norm.weight * shift / deviation


@alternative("fold_batchnorm")
def in_double_precision(conv, norm):
    def wide(tensor):
        return torch.zeros((), dtype=torch.float64) if tensor is None else tensor.detach().double()

    slope = wide(norm.weight) * (wide(norm.running_var) + norm.eps).rsqrt()
    shift = (wide(conv.bias).to(slope.device) - wide(norm.running_mean)) * slope + wide(norm.bias)
    weight = (wide(conv.weight).flatten(1) * slope[:, None]).view_as(conv.weight)
    return weight.to(conv.weight.dtype), shift.to(conv.weight.dtype)
