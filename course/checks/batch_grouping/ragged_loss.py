"""Probe of exercise ragged_loss."""

import torch

from course.engine.exercise import Answer, Facts, exercise


@exercise()
def ragged_loss(answer: Answer, device: torch.device, seed: int) -> Facts:
    """What to call backward on, so that the mean over the ranks is the mean over all samples."""
    rng = torch.Generator().manual_seed(seed)
    losses = torch.rand(6 + seed % 4, generator=rng).to(device)
    n = len(losses)
    one = torch.full((1,), 6.0, device=device)
    yield "returns a tensor, not a number", type(answer(losses, n, 1)).__name__
    yield "shape: no dimension", answer(losses, n, 1).shape
    yield "one rank with every sample: their mean", answer(losses, n, 1)
    of_two = answer(losses, 2 * n, 2)
    yield "two ranks with as many samples each: the mean of this rank's losses", of_two
    of_four = answer(one, 12, 4)
    yield "this rank has one sample of loss 6, three other ranks have the other 11", of_four
    parts = losses.split([1, 2, n - 3])
    mean = sum(answer(part, n, 3) for part in parts) / 3
    yield "three ranks of unequal sizes: the average of their losses", mean
    leaf = torch.ones(4, device=device, requires_grad=True)
    answer(leaf * torch.arange(4.0, device=device), 8, 2).backward()
    yield "its gradient", leaf.grad
    yield "a rank without samples returns 0", answer(losses[:0], 8, 2)
    empty = torch.zeros(0, device=device, requires_grad=True)
    answer(empty, 8, 2).backward()
    yield "backward works on a rank without samples", empty.grad.shape
