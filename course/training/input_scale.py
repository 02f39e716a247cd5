"""Short trainings on raw or normalised pixels, with a norm or without: *losses by seed and step*.

Used by unit 06, part 1. Each setting is judged at the best of its learning rates.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from course.training.models import FashionCNN

BATCH_SIZE = 32
MOMENTUM = 0.9
LAST = 5  # the last fifth of the steps says where a training ended


def losses(
    pixels: Tensor,
    labels: Tensor,
    norm: str | None,
    lr: float,
    steps: int,
    seed: int,
    device: torch.device,
) -> Tensor:
    """The loss of each step of FashionCNN, trained by SGD: float32 (steps,), infinite for NaN.

    Args:
        pixels: float32 (n, 1, 28, 28).
        labels: int64 (n,).
        norm: of FashionCNN.
        seed: sets the initial weights and draws the batches.
    """
    torch.manual_seed(seed)
    model = FashionCNN(norm=norm).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=MOMENTUM)
    rng = torch.Generator().manual_seed(seed)
    found = []
    for _ in range(steps):
        rows = torch.randint(len(pixels), (BATCH_SIZE,), generator=rng)
        loss = F.cross_entropy(model(pixels[rows].to(device)), labels[rows].to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append(loss.detach())
    return torch.stack(found).cpu().nan_to_num(nan=math.inf)


def best_losses(
    pixels: Tensor,
    labels: Tensor,
    norm: str | None,
    lrs: Sequence[float],
    *,
    steps: int,
    seeds: int,
    device: torch.device,
) -> tuple[float, Tensor]:
    """The learning rate of `lrs` that ends with the least mean loss, and its losses.

    Returns: (learning rate, float32 (seeds, steps)).
    """
    found = {}
    for lr in lrs:
        runs = [losses(pixels, labels, norm, lr, steps, seed, device) for seed in range(seeds)]
        found[lr] = torch.stack(runs)
    best = min(found, key=lambda lr: last_losses(found[lr]).mean())
    return best, found[best]


def last_losses(runs: Tensor) -> Tensor:
    """The mean loss of each run in the last fifth of its steps: (seeds, steps) -> (seeds,)."""
    n_steps = runs.shape[1]
    return runs[:, -max(1, n_steps // LAST) :].mean(1)
