"""Probe of exercise group_by_length."""

from typing import Any

import torch

from course.engine.exercise import Answer, Facts, exercise


def _kind(group: Any) -> tuple[str, int] | str:
    """(dtype, dimensions) of a tensor, the type's name of anything else."""
    if isinstance(group, torch.Tensor):
        return str(group.dtype), group.dim()
    return type(group).__name__


@exercise()
def group_by_length(answer: Answer, device: torch.device, seed: int) -> Facts:
    """Sequences of a batch by the first threshold that is not below their length."""
    rng = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, 30, (21 + seed % 5,), generator=rng)
    lengths[3] = 30
    lengths = lengths.to(device)
    limits = [4, 11 + seed % 3, 30]
    groups = answer(lengths, limits)
    yield "returns one group per threshold", len(groups)
    yield "each group is an int64 tensor of one dimension", list(map(_kind, groups))
    yield "every sequence is in exactly one group", torch.cat(list(groups)).sort().values
    yield "the groups", list(groups)
    edge = torch.tensor([4, 5, 4, 12, 5], device=device).roll(seed % 5)
    yield "a length equal to a threshold belongs to that group", list(answer(edge, [4, 12]))
    yield "sequences keep the order of the batch", list(answer(edge, [12]))
    yield "a group of a single sequence", list(answer(edge, [4, 5, 12]))
    yield "a group may be empty", list(answer(edge, [2, 4, 12]))
