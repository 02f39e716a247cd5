"""Known mistakes of exercise fold_batchnorm, and right answers in other styles."""

import torch

from course.checks.known_answers import alternative

MISTAKES = {
    "by_the_variance": (
        "The weight was divided by the variance. BatchNorm divides by its square root.",
        ("torch.sqrt", ""),
    ),
    "without_eps": (
        "eps is missing under the root: a channel that hardly varies is scaled far too much.",
        (" + norm.eps", ""),
    ),
    "eps_outside_the_root": (
        "eps was added to the root. It belongs under it: sqrt(var + eps).",
        ("torch.sqrt(norm.running_var + norm.eps)", "(torch.sqrt(norm.running_var) + norm.eps)"),
    ),
    "own_bias_forgotten": (
        "The convolution's own bias was forgotten: it passes through BatchNorm as the products do.",
        ("(bias - norm.running_mean)", "-norm.running_mean"),
    ),
    "own_bias_not_scaled": (
        "The convolution's bias was not scaled. BatchNorm multiplies all that it gets.",
        ("(bias - norm.running_mean)", "bias - norm.running_mean"),
    ),
    "mean_not_scaled": (
        "The running mean was subtracted and not scaled. It is subtracted before BatchNorm divides.",
        ("(bias - norm.running_mean) * scale", "bias * scale - norm.running_mean"),
    ),
    "not_affine": (
        "BatchNorm's own weight or bias is missing: after it has normalised, it multiplies by `weight` and adds "
        "`bias`.",
        ("norm.weight /", "1 /"),
        ("norm.bias.detach() + ", ""),
    ),
    "needs_a_bias": (
        "A convolution without a bias ends in an error. Take 0 for a bias that is None.",
        ("0 if conv.bias is None else ", ""),
    ),
    "with_a_graph": (
        "What is returned still has a graph. Folding is for inference: detach, or use no_grad.",
        ("conv.weight.detach()", "conv.weight"),
        ("norm.bias.detach()", "norm.bias"),
    ),
    "changes_the_layer": (
        "The weight of the given convolution was changed. Return new tensors.",
        ("detach() * scale[:, None, None, None]", "detach().mul_(scale[:, None, None, None])"),
    ),
}


@alternative
@torch.no_grad()
def under_no_grad(conv, norm):
    deviation = (norm.running_var + norm.eps).sqrt()
    weight = torch.einsum("o,oihw->oihw", norm.weight / deviation, conv.weight)
    shift = -norm.running_mean if conv.bias is None else conv.bias - norm.running_mean
    return weight, norm.bias + norm.weight * shift / deviation


@alternative
def in_double_precision(conv, norm):
    def wide(tensor):
        return torch.zeros((), dtype=torch.float64) if tensor is None else tensor.detach().double()

    slope = wide(norm.weight) * (wide(norm.running_var) + norm.eps).rsqrt()
    shift = (wide(conv.bias).to(slope.device) - wide(norm.running_mean)) * slope + wide(norm.bias)
    weight = (wide(conv.weight).flatten(1) * slope[:, None]).view_as(conv.weight)
    return weight.to(conv.weight.dtype), shift.to(conv.weight.dtype)
