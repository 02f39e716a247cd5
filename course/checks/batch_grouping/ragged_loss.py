"""Probe of exercise ragged_loss."""

import torch

from course.engine.exercise import Answer, Facts, exercise


@exercise()
def ragged_loss(answer: Answer, device: torch.device, seed: int) -> Facts:
    """What to call backward on, so that the mean over the ranks is the mean over all tokens."""
    rng = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, 7, (4 + seed % 3,), generator=rng)
    lengths[1] = 7
    mask = (torch.arange(7) < lengths[:, None]).to(device)
    losses = torch.rand(mask.shape, generator=rng).to(device)
    n = int(lengths.sum())
    yield "returns a tensor, not a number", type(answer(losses, mask, n, 1)).__name__
    yield "shape: no dimension", answer(losses, mask, n, 1).shape
    yield "one rank, one micro-batch: the mean over its tokens", answer(losses, mask, n, 1)
    full = torch.ones_like(mask[:, :1])
    without = answer(losses[:, :1], full, len(losses), 1)
    yield "a batch without padding", without
    yield "the batch has a quarter of the tokens of one rank's step", answer(losses, mask, 4 * n, 1)
    yield (
        "two ranks with as many tokens each: the mean of this rank's",
        answer(losses, mask, 2 * n, 2),
    )
    parts = zip(losses.split([1, len(losses) - 1]), mask.split([1, len(losses) - 1]), strict=True)
    added = sum(answer(*part, n, 1) for part in parts)
    yield "two micro-batches of unequal sizes: the sum of their losses", added
    leaf = torch.ones_like(losses, requires_grad=True)
    answer(leaf * losses, mask, 3 * n, 2).backward()
    yield "its gradient", leaf.grad
    yield "a micro-batch without tokens returns 0", answer(losses, mask & False, n, 2)
    shape = (0, 3 + seed % 5)
    empty = torch.zeros(shape, device=device, requires_grad=True)
    answer(empty, torch.zeros(shape, dtype=torch.bool, device=device), n, 2).backward()
    yield "backward works on a rank without sequences", empty.grad.shape
