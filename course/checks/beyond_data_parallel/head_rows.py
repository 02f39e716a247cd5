"""Probe of exercise head_rows."""

import torch
from torch.nn import functional as F

from course.checks.data_parallel.ranks import each_rank
from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.values import type_names


@exercise(tolerates=("device",))
def head_rows(answer: Answer, device: torch.device, seed: int) -> Facts:
    """The rows of each rank, and the attention of its heads."""
    dim = 4 * (2 + seed % 3)
    yield "is a list of ints", [type(answer(4, 2, 0, 2)).__name__, type_names(answer(4, 2, 0, 2))]
    yield "the example", answer(4, n_heads=2, rank=1, world_size=2)
    for n_heads, n in ((4, 2), (4, 4), (2, 2), (4, 1)):
        rows = each_rank(list(answer(dim, n_heads, rank, n)) for rank in range(n))
        yield f"dim {dim}, {n_heads} heads on {n} ranks", rows
    every = []
    for rank in range(4):
        every += answer(dim, 4, rank, 4)
    yield "all ranks together keep each row once", sorted(every)
    yield "attention of the heads of each rank", _attended(answer, dim, seed)
    yield "a large model", [sum(answer(1024, 16, rank, 8)) for rank in range(8)]


def _attended(answer: Answer, dim: int, seed: int) -> dict[str, torch.Tensor]:
    """What the two heads of each of two ranks return."""
    rng = torch.Generator().manual_seed(seed)
    weight = torch.randn(3 * dim, dim, generator=rng, dtype=torch.float64)
    x = torch.randn(5, dim, generator=rng, dtype=torch.float64)
    attended = []
    for rank in range(2):
        rows = [int(row) for row in answer(dim, 4, rank, 2)]
        q, k, v = (x @ weight[rows].T).unflatten(-1, (3, 2, -1)).movedim(-3, 0).transpose(-3, -2)
        attended.append(F.scaled_dot_product_attention(q, k, v))
    return each_rank(attended)
