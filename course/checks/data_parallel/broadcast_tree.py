"""Probe of exercise broadcast_tree."""

import torch

from course.checks.data_parallel.messages import COLLECTIVES, calls_with_root, held, tree_messages
from course.engine.exercise import Answer, Facts, exercise


@exercise(changes_inputs=True, forbids=COLLECTIVES)
def broadcast_tree(answer: Answer, device: torch.device, seed: int) -> Facts:
    """The same values everywhere, in few rounds."""
    for n, _, did in calls_with_root(answer, seed, "src", (2, 3, 4, 7)):
        yield f"{n} ranks: afterwards every rank holds the values of src", held(did)
        yield from tree_messages(n, did)
