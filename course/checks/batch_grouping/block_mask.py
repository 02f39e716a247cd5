"""Probe of exercise block_mask."""

import torch

from course.engine.exercise import Answer, Facts, exercise


@exercise()
def block_mask(answer: Answer, device: torch.device, seed: int) -> Facts:
    """Which token of a flat batch may look at which."""
    rng = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, 6, (5 + seed % 3,), generator=rng).to(device)
    lengths[-1] = lengths[0]  # two sequences of one length, at every seed
    found = answer(lengths)
    yield "shape and dtype", (tuple(found.shape), str(found.dtype))
    yield "lengths 1 and 2, as 0 and 1", answer(lengths.new_tensor([1, 2])).int()
    yield "how many tokens each token sees", found.sum(1)
    yield "the mask", found
    yield "one sequence sees all of itself", answer(lengths[:1])
    small_causal = answer(lengths.new_tensor([1, 2]), causal=True)
    yield "lengths 1 and 2, causal, as 0 and 1", small_causal.int()
    yield "causal: no token looks ahead", answer(lengths, causal=True)
    yield "sequences of one token", answer(torch.ones(3, dtype=torch.int64, device=device))
