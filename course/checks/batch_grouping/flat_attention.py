"""Probe of exercise flat_attention."""

import torch

from course.engine.exercise import Answer, Facts, exercise


@exercise()
def flat_attention(answer: Answer, device: torch.device, seed: int) -> Facts:
    """Attention inside each sequence of a flat batch."""
    rng = torch.Generator().manual_seed(seed)
    lengths = torch.tensor([3, 1, 5 + seed % 3, 2], device=device)
    shape = (int(lengths.sum()), 2, 4)  # tokens, heads, features
    q, k, v = (torch.randn(shape, generator=rng).to(device) for _ in range(3))
    found = answer(q, k, v, lengths)
    yield "shape", found.shape
    of_ones = answer(q, k, torch.ones_like(v), lengths)
    yield "values that are all 1 give 1: the weights of a token add up to 1", of_ones
    yield "a sequence of one token gives its own value", found[3] - v[3]
    changed = torch.cat([v[:4], v[4:] + 5])
    of_changed = answer(q, k, changed, lengths)
    yield "values of other sequences change nothing", of_changed[:4] - found[:4]
    yield "what attention gives", found
    alone = slice(4, 4 + int(lengths[2]))
    yield "a sequence of its own gives the same", answer(q[alone], k[alone], v[alone], lengths[2:3])
    leaves = [part.clone().requires_grad_() for part in (q, k, v)]
    # of a mean: the gradient of a sum adds terms of 30 to 0, and their rounding is more than 1e-6
    answer(*leaves, lengths).square().mean().backward()
    yield "gradients", [leaf.grad for leaf in leaves]
    # to three digits: float32 rounds scores of 500 by 3e-5, and each weight changes by as much of
    # itself
    yield "large scores", answer(10 * q, 10 * k, v, lengths).half()
