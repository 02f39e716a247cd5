"""Probe of exercise broadcast_naive."""

import torch

from course.checks.data_parallel.messages import (
    COLLECTIVES,
    calls_with_root,
    held,
    operations_and_requests,
    sent_by_rank,
)
from course.engine.exercise import Answer, Facts, exercise


@exercise(changes_inputs=True, forbids=COLLECTIVES)
def broadcast_naive(answer: Answer, device: torch.device, seed: int) -> Facts:
    """The same values everywhere, by messages of the source."""
    for n, _, did in calls_with_root(answer, seed, "src"):
        yield f"{n} ranks: afterwards every rank holds the values of src", held(did)
        yield from operations_and_requests(n, did)
        yield f"{n} ranks: src sends to every other rank, and nobody else sends", sent_by_rank(did)
