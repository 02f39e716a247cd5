"""Probe of exercise pair_mask."""

import torch

from course.checks.engine import exercise


@exercise(isolated=True)
def pair_mask(answer, device, seed):
    """Where both of two ragged dimensions have an entry."""
    rng = torch.Generator().manual_seed(seed)
    rows = torch.randint(1, 6, (5 + seed % 3,), generator=rng).to(device)
    columns = torch.randint(1, 8, (len(rows),), generator=rng).to(device)
    found = answer(rows, columns)
    yield "shape and dtype", (tuple(found.shape), str(found.dtype))
    yield "entries per sample", found.sum((1, 2))
    yield "the mask", found
    yield "one sample", answer(rows[:1], columns[:1])
    yield "no entry in one dimension, none at all", answer(torch.tensor([0, 2], device=device), columns[:2])
