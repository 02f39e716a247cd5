"""Probe of exercise pair_mask."""

import torch

from course.engine.exercise import Answer, Facts, exercise


@exercise()
def pair_mask(answer: Answer, device: torch.device, seed: int) -> Facts:
    """Which cells of padded grids exist."""
    rng = torch.Generator().manual_seed(seed)
    heights = torch.randint(1, 6, (5 + seed % 3,), generator=rng).to(device)
    widths = torch.randint(1, 8, (len(heights),), generator=rng).to(device)
    # a grid that fills all
    heights[0] = 6
    widths[0] = 8
    found = answer(heights, widths)
    form = (tuple(found.shape), str(found.dtype))
    yield "shape (n, largest height, largest width) and dtype", form
    yield "how many cells of each grid are real", found.sum((1, 2))
    yield "the mask", found
    yield "one grid", answer(heights[1:2], widths[1:2])
    yield "a grid of height 0 has no cell", answer(torch.tensor([0, 2], device=device), widths[:2])
