"""Probe of exercise shard_batches."""

import torch

from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.values import type_word


def _ranks(answer: Answer, n: int, world_size: int) -> Facts:
    """What each rank gets of n batches, and laws that all right ways to deal out share."""
    setting = f"{n} batches, {world_size} ranks"
    batches = [[10 * i, 10 * i + 1] for i in range(n)]
    given = []
    counts = []
    for rank in range(world_size):
        of_rank = list(map(tuple, answer(batches, rank, world_size)))
        given += of_rank
        counts.append(len(of_rank))
    yield f"{setting}: how many batches each rank gets", counts
    missing = [batch for batch in batches if tuple(batch) not in given]
    yield f"{setting}: batches that no rank gets", missing
    yield f"{setting}: how many are given twice", len(given) - len({*given})


@exercise()
def shard_batches(answer: Answer, device: torch.device, seed: int) -> Facts:
    """Equally many batches for every rank."""
    yield "returns a list", type_word(answer([[0], [1]], 0, 2))
    yield "one rank gets all batches", sorted(answer([[0, 1], [2], [3]], 0, 1))
    yield from _ranks(answer, 6 + seed % 11 * 2, 2)
    yield from _ranks(answer, 7 + seed % 13 * 4, 4)
    yield from _ranks(answer, 5, 3)
    yield from _ranks(answer, 1, 4)
    yield from _ranks(answer, 2 + seed % 2, 7 + seed % 3)
    batches = [[seed % 50], [1], [2]]
    answer(batches, 0, 2)
    yield "the list that you are given stays as it was", batches
