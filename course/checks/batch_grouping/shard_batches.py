"""Probe of exercise shard_batches."""

import torch

from course.engine.exercise import Answer, Facts, exercise


def _ranks(answer, n, world_size):
    """What each rank gets of n batches, and laws that all right ways to deal out share."""
    batches = [[10 * i, 10 * i + 1] for i in range(n)]
    ranks = [
        [tuple(batch) for batch in answer(batches, rank, world_size)] for rank in range(world_size)
    ]
    given = [batch for rank in ranks for batch in rank]
    yield (
        f"{n} batches, {world_size} ranks: how many batches each rank gets",
        [len(rank) for rank in ranks],
    )
    missing = [batch for batch in batches if tuple(batch) not in given]
    yield f"{n} batches, {world_size} ranks: batches that no rank gets", missing
    yield f"{n} batches, {world_size} ranks: how many are given twice", len(given) - len({*given})


@exercise()
def shard_batches(answer: Answer, device: torch.device, seed: int) -> Facts:
    """Equally many batches for every rank."""
    yield "returns a list", type(answer([[0], [1]], 0, 2)).__name__
    yield "one rank gets all batches", sorted(answer([[0, 1], [2], [3]], 0, 1))
    yield from _ranks(answer, 6 + seed % 11 * 2, 2)
    yield from _ranks(answer, 7 + seed % 13 * 4, 4)
    yield from _ranks(answer, 5, 3)
    batches = [[0], [1], [2]]
    answer(batches, 0, 2)
    yield "the list that you are given stays as it was", batches
