"""Probe of exercise rank_seeds."""

import torch

from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.values import type_names

PURPOSES = ("whole parameters", "split parameters", "whole dropout", "split dropout")


@exercise()
def rank_seeds(answer: Answer, device: torch.device, seed: int) -> Facts:
    """Which ranks get equal seeds, in grids of ranks of several sizes."""
    found = answer(seed, 0, 0, 2)
    yield "is a dict with four keys", sorted(found)
    yield "its values are ints", type_names(list(found.values()))
    sizes = ((2, 2), (1, 4), (3 + seed % 3, 2), (2, 3 + seed % 4))
    for purpose in PURPOSES:
        for data_size, tensor_size in sizes:
            seeds = _grid(answer, purpose, seed, data_size, tensor_size)
            fact = f"{purpose}: which of {data_size} x {tensor_size} ranks have equal seeds"
            yield fact, _numbered_groups(seeds)
    for purpose in PURPOSES:
        seeds = [answer(one, 1, 1, 2)[purpose] for one in (seed, seed + 1, seed + 50)]
        yield f"{purpose}: different seeds of three trainings", len(set(seeds))
    same = [answer(seed, 1, 1, 2), answer(seed, 1, 1, 2)]
    yield "a call with equal arguments gives equal seeds", same[0] == same[1]


def _grid(
    answer: Answer, purpose: str, seed: int, data_size: int, tensor_size: int
) -> list[list[int]]:
    """[data rank][tensor rank]: the seed for `purpose`."""
    rows = []
    for data_rank in range(data_size):
        row = []
        for tensor_rank in range(tensor_size):
            row.append(answer(seed, data_rank, tensor_rank, tensor_size)[purpose])
        rows.append(row)
    return rows


def _numbered_groups(rows: list[list[int]]) -> dict[str, list[int]]:
    """`rows` with the k-th different number replaced by k, so that only equality shows."""
    number_of: dict[int, int] = {}
    groups = {}
    for data_rank, row in enumerate(rows):
        numbers = []
        for seed in row:
            numbers.append(number_of.setdefault(seed, len(number_of)))
        groups[f"data rank {data_rank}"] = numbers
    return groups
