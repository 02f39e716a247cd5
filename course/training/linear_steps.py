"""Steps of SGD on a linear regression that a notebook compares with the learner's own.

The names are those of the steps in the tables and figures of unit 04/4.
"""

from collections.abc import Callable

import torch
from torch import Tensor

NEW_TENSORS = "new tensors"
OWN_BUFFERS = "own buffers"
IN_PLACE = "in place"
TWO_PASSES = "two passes"
COMPILED = "torch.compile"

Step = Callable[[Tensor, Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]


def step_in_own_buffers(mean: Tensor, std: Tensor, lr: float, rows: int) -> Step:
    """A step (x, y, w, b) -> (w, b) that needs no new memory and leaves x as it is.

    Both results that are as large as x go into buffers, which are made here. The arithmetic and the
    passes over memory are those of a step that makes a new tensor for each result.

    Args:
        mean, std: float32 (D,), of the columns of x.
        lr: the learning rate.
        rows: the most rows that a batch has.
    """
    centred = mean.new_zeros(rows, len(mean))
    normalised = torch.zeros_like(centred)

    def step(x: Tensor, y: Tensor, w: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        n = len(x)
        torch.sub(x, mean, out=centred[:n])
        z = torch.div(centred[:n], std, out=normalised[:n])
        residual = z @ w + b - y
        return w - lr * (z.T @ residual) / n, b - lr * residual.mean()

    return step
