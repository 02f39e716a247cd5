"""Probe of exercise reduce_naive."""

import torch

from course.checks.data_parallel.messages import (
    COLLECTIVES,
    Calls,
    calls_with_root,
    held_by_others,
    held_by_root,
    operations_and_requests,
    sent_by_rank,
)
from course.engine.exercise import Answer, Facts, exercise


@exercise(changes_inputs=True, forbids=COLLECTIVES)
def reduce_naive(answer: Answer, device: torch.device, seed: int) -> Facts:
    """The sum in one rank, by one message of every other."""
    for n, roots, did in calls_with_root(answer, seed, "dst"):
        yield f"{n} ranks: afterwards dst holds the sum", held_by_root(roots, did)
        yield f"{n} ranks: every other rank keeps its own values", held_by_others(roots, did)
        yield from operations_and_requests(n, did)
        yield f"{n} ranks: every rank but dst sends its tensor, once", sent_by_rank(did)
        straight = _all_go_straight(roots, did)
        yield f"{n} ranks: each message goes straight to dst", straight


def _all_go_straight(roots: list[int], did: Calls) -> bool:
    """True if every message that is sent goes to the root of its case."""
    for root, calls in zip(roots, did.values(), strict=True):
        for call in calls:
            if set(call.receivers) - {root}:
                return False
    return True
