"""The norm of a gradient in the optimizer's units, for the gradient noise scale.

Adam divides each coordinate of the gradient by the root of its mean square, sqrt(v). That is plain
gradient descent on the weights w * v ** (1/4), whose gradient is g / v ** (1/4). So a noise scale
that shall say something about Adam is measured on these. McCandlish et al. 2018, arXiv:1812.06162,
take the plain norm; unit 03 tests which of the two predicts the critical batch.
"""

import torch
from torch import Tensor
from torch.optim import Optimizer


def in_units_of(optimizer: Optimizer) -> list[Tensor]:
    """The gradients of `optimizer`, each divided by v ** (1/4) if it keeps such a mean square v.

    Flat float32 tensors, without parameters that have no gradient.
    """
    found = []
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if parameter.grad is not None:
                found.append(_scaled(parameter, optimizer, group))
    return found


def _scaled(parameter: Tensor, optimizer: Optimizer, group: dict) -> Tensor:
    gradient = parameter.grad.detach().flatten().float()
    state = optimizer.state.get(parameter, {})
    mean_square = state.get("exp_avg_sq")
    if mean_square is None or mean_square.shape != parameter.shape:
        return gradient
    # `step` may be a tensor: a float of it would make the host wait
    unbiased = mean_square.flatten() / (1 - group["betas"][1] ** state["step"])
    return gradient / (unbiased.sqrt() + group["eps"]).sqrt()


def gradient_norm(optimizer: Optimizer) -> Tensor:
    """The norm of the gradient in the optimizer's units, a float32 tensor of shape ()."""
    return torch.cat(in_units_of(optimizer)).norm()
