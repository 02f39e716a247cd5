"""Probe of exercise shard_scale."""

import torch
from torch import nn

from course.checks.data_parallel.ranks import each_rank
from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.values import type_word


@exercise()
def shard_scale(answer: Answer, device: torch.device, seed: int) -> Facts:
    """The factors of shards, and the gradient that they give; ranks take turns in this process."""
    rng = torch.Generator().manual_seed(seed)
    size = 5 + seed % 7
    yield "returns a float", type_word(answer(size, 4 * size, 4))
    yield "4 ranks with equally many samples: the factor of each", answer(size, 4 * size, 4)
    sizes = [size, 2, 1, 2 * size]
    factors = each_rank(answer(n, sum(sizes), len(sizes)) for n in sizes)
    yield f"ranks with {', '.join(map(str, sizes))} samples", factors
    yield "a rank without samples", answer(0, size, 3)
    yield "the only rank", answer(size, size, 1)
    yield "counts of tokens", answer(3_000_000 + seed, 10_000_000, 8)

    x = torch.randn(sum(sizes), 3, generator=rng, dtype=torch.float64).to(device)
    weight = nn.Parameter(torch.randn(3, generator=rng, dtype=torch.float64).to(device))
    gradients = []
    for shard in x.split(sizes):
        loss = answer(len(shard), len(x), 4) * (shard @ weight).square().mean()
        (gradient,) = torch.autograd.grad(loss, weight)
        gradients.append(gradient)
    by_ddp = torch.stack(gradients).mean(0)
    yield "the mean of the ranks' gradients is that of all samples", by_ddp
