"""Weights that all CPUs draw alike, so that recorded facts are right on each of them."""

import torch
from torch import nn


def same_on_every_cpu(module: nn.Module) -> None:
    """Round the weights and buffers of `module` to multiples of 1/256.

    The float32 numbers that layers begin with end in other digits on a CPU with other vectors
    (ATEN_CPU_CAPABILITY), which facts in float64 would show.
    """
    with torch.no_grad():
        for tensor in [*module.parameters(), *module.buffers()]:
            if tensor.is_floating_point():
                tensor.copy_((256 * tensor).round() / 256)
