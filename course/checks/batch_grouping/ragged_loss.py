"""Probe of exercise ragged_loss."""

import torch

from course.checks.engine import exercise


@exercise()
def ragged_loss(answer, device, seed):
    """What to call backward on, so that the mean over the ranks is the mean over all samples."""
    rng = torch.Generator().manual_seed(seed)
    losses = torch.rand(6 + seed % 4, generator=rng).to(device)
    yield "returns one number, as a tensor", answer(losses, len(losses), 1).shape
    yield "one rank with everything: the mean", answer(losses, len(losses), 1)
    yield "two ranks with as many samples each", answer(losses, 2 * len(losses), 2)
    yield "a rank with few of many samples", answer(losses[:2], 40, 4)
    parts = losses.split([1, 2, len(losses) - 3])
    mean = sum(answer(part, len(losses), 3) for part in parts) / 3
    yield "the mean over three ranks of unlike sizes", mean
    leaf = torch.ones(4, device=device, requires_grad=True)
    answer(leaf * torch.arange(4.0, device=device), 8, 2).backward()
    yield "its gradient", leaf.grad
    empty = torch.zeros(0, device=device, requires_grad=True)
    answer(empty, 8, 2).backward()
    yield "backward works on a rank without samples", empty.grad.shape
    yield "a rank without samples adds nothing", answer(losses[:0], 8, 2)
