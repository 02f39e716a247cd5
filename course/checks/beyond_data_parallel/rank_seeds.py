"""Probe of exercise rank_seeds."""

import torch

from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.laws import tried
from course.engine.probing.values import type_names

WIDE = 128  # more tensor ranks than a machine has; 10 * data_rank or 100 * data_rank meets another
# a multiple of 1,000, 10,000 and powers of 2, which seeds that are cut to a range have in common
FAR = 2**16 * 10**4
PURPOSES = ("whole parameters", "split parameters", "whole dropout", "split dropout")


@exercise()
def rank_seeds(answer: Answer, device: torch.device, seed: int) -> Facts:
    """Which ranks get equal seeds, in grids of ranks of several sizes."""
    found = answer(seed, 0, 0, 2)
    yield "is a dict with four keys", sorted(found)
    yield "its values are ints", type_names(list(found.values()))
    sizes = ((2, 2), (1, 4), (3 + seed % 3, 2), (2, 3 + seed % 4), (2, WIDE + seed % 5))
    for purpose in PURPOSES:
        for data_size, tensor_size in sizes:
            seeds = _grid(answer, purpose, seed, data_size, tensor_size)
            fact = f"{purpose}: which of {data_size} x {tensor_size} ranks have equal seeds"
            yield fact, _numbered_groups(seeds)
        size = 2 + seed % 5
        of_zero = _numbered_groups(_grid(answer, purpose, 0, 2, size))
        yield f"{purpose}: the same of 2 x {size} ranks if the run's seed is 0", of_zero
    trainings = [seed, seed + 1, seed + 50, seed + FAR]
    for purpose in PURPOSES:
        seeds = [answer(one, 1, 1, 2)[purpose] for one in trainings]
        fact = f"{purpose}: different seeds of four trainings"
        yield fact, tried(len(set(seeds)), trainings)
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
