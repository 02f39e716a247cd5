"""Probe of exercise group_by_length."""

import torch

from course.checks.batch_grouping.ragged import raised
from course.checks.engine import exercise


@exercise(isolated=True)
def group_by_length(answer, device, seed):
    """Rows of a batch by the first threshold that is not below their length."""
    rng = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, 30, (21 + seed % 5,), generator=rng)
    lengths[3] = 30
    lengths = lengths.to(device)
    limits = [4, 11 + seed % 3, 30]
    groups = answer(lengths, limits)
    yield "returns one group per threshold", len(groups)
    yield "each group is an int64 tensor of row numbers", [(str(g.dtype), g.dim()) for g in groups]
    yield "every row is in exactly one group", torch.cat(list(groups)).sort().values
    yield "the groups", list(groups)
    edge = torch.tensor([4, 5, 4, 12, 5], device=device)
    yield "a length equal to a threshold belongs to that group", list(answer(edge, [4, 12]))
    yield "rows keep the order of the batch", list(answer(edge, [12]))
    yield "a group may be empty", list(answer(edge, [2, 12]))
    yield "a threshold above the longest length is no error", list(answer(edge, [4, 100]))
    yield "a length above the last threshold raises ValueError", raised(lambda: answer(edge, [4, 11]))
    yield (
        "thresholds that do not ascend raise ValueError",
        [
            raised(lambda: answer(edge, [12, 4, 12])),
            raised(lambda: answer(edge, [4, 4, 12])),
            raised(lambda: answer(edge, [12, 4])),
        ],
    )
