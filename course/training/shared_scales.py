"""Adam whose scales are shared: *how many learning rates does a network need?*

Adam divides each coordinate of the gradient by the root of its mean square. Here a tensor, or the
whole model, can share one mean square. Nothing else changes.
"""

from collections.abc import Iterable

import torch
from torch import nn

# a scale for each of these
COORDINATE = "coordinate"
TENSOR = "tensor"
MODEL = "model"


class SharedScaleAdam(torch.optim.Optimizer):
    """Adam with one scale per COORDINATE, which is torch's Adam, per TENSOR or per MODEL."""

    def __init__(
        self,
        params: Iterable[nn.Parameter],
        lr: float,
        scale: str,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
    ):
        super().__init__(params, dict(lr=lr, scale=scale, betas=betas, eps=eps))

    @torch.no_grad()
    def step(self) -> None:
        """Move every parameter that has a gradient; a MODEL is the parameters of a group."""
        for group in self.param_groups:
            params = [p for p in group["params"] if p.grad is not None]
            squares = [p.grad.square() for p in params]
            if group["scale"] == TENSOR:
                squares = [square.mean() for square in squares]
            elif group["scale"] == MODEL:
                mean = torch.cat([square.flatten() for square in squares]).mean()
                squares = [mean] * len(params)
            for p, square in zip(params, squares, strict=True):
                self._move(p, square, group)

    def _move(self, p, square, group):
        """Change `p` by one step, given its mean square gradient, of any shape that broadcasts."""
        state = self.state[p]
        if not state:
            state["step"] = 0
            state["mean"] = torch.zeros_like(p)
            state["square"] = torch.zeros_like(square)
        state["step"] += 1
        of_mean, of_square = group["betas"]
        mean = state["mean"].lerp_(p.grad, 1 - of_mean)
        square = state["square"].lerp_(square, 1 - of_square)
        mean = mean / (1 - of_mean ** state["step"])
        square = square / (1 - of_square ** state["step"])
        p.sub_(group["lr"] * mean / (square.sqrt() + group["eps"]))
