"""Probe of exercise reduce_tree."""

import torch

from course.checks.data_parallel.messages import (
    COLLECTIVES,
    calls_with_root,
    held_by_others,
    held_by_root,
    tree_messages,
)
from course.engine.exercise import Answer, Facts, exercise


@exercise(changes_inputs=True, forbids=COLLECTIVES)
def reduce_tree(answer: Answer, device: torch.device, seed: int) -> Facts:
    """The sum in one rank, in few rounds."""
    for n, roots, did in calls_with_root(answer, seed, "dst", (2, 3, 4, 7)):
        yield f"{n} ranks: afterwards dst holds the sum", held_by_root(roots, did)
        yield f"{n} ranks: every other rank keeps its own values", held_by_others(roots, did)
        yield from tree_messages(n, did)
