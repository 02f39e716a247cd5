"""Probe of exercise zigzag."""

import torch

from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.tensors import kind


@exercise(tolerates=("device",))
def zigzag(answer: Answer, device: torch.device, seed: int) -> Facts:
    """The positions of each rank, in order."""
    first = answer(0, 2, 8)
    yield "returns a tensor of whole numbers", kind(first)
    yield "rank 0 of 2, 8 tokens", first.cpu()
    ranks = 3 + seed % 4
    tokens = 2 * ranks * (2 + seed % 3)
    for rank in range(ranks):
        yield f"rank {rank} of {ranks}, {tokens} tokens", answer(rank, ranks, tokens).cpu()
    yield "one rank", answer(0, 1, 6 + 2 * (seed % 5)).cpu()
    yield "chunks of one token", [answer(rank, 4, 8).cpu() for rank in range(4)]
