"""Probe of exercise pieces_to_read."""

import torch

from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.values import type_names


@exercise()
def pieces_to_read(answer: Answer, device: torch.device, seed: int) -> Facts:
    """The pieces of old shards that each new rank reads."""
    first = answer(12, 2, 3, 1)
    yield "returns a list of tuples", type_names(first)
    yield "12 numbers, from 2 ranks to 3, rank 1", list(map(tuple, first))
    cases = [
        (24, 2, 4),
        (24 + 12 * (seed % 5), 6, 4),
        (24, 3, 3),
        (30 + seed % 7, 4, 1),
        (31 + seed % 11, 3, 7),
        (50 + seed % 13, 7, 3),
        (9 + seed % 3, 8, 5),
        (3, 2, 5 + seed % 3),
    ]
    for numbers, old, new in cases:
        pieces = {}
        for rank in range(new):
            pieces[f"rank {rank}"] = list(map(tuple, answer(numbers, old, new, rank)))
        yield f"{numbers} numbers, from {old} ranks to {new}", pieces
