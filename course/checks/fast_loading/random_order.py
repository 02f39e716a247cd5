"""Probe of exercise random_order."""

import torch

from course.checks.fast_loading.orders import (
    account,
    follows_the_file,
    form,
    pairs_with_one_order,
    related,
)
from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.laws import tried
from course.engine.probing.randomness import random_state


@exercise()
def random_order(answer: Answer, device: torch.device, seed: int) -> Facts:
    """The orders of all ranks, several seeds and epochs."""
    ranks = 3 + seed % 2
    rows = (300 + seed % 50) * ranks + 1 + seed % 2
    before = random_state()
    order = answer(rows, seed, 3)
    untouched = before == random_state()
    yield "returns an int64 tensor with one axis, on the CPU", form(order)
    yield "every row comes once", account(rows, order)
    yield "the same call again gives the same order", torch.equal(order, answer(rows, seed, 3))
    yield "the order is not that of the file, or near it", not follows_the_file(order.tolist())
    yield from _other_epochs_and_seeds(answer, rows, seed, order)
    yield from _ranks(answer, rows, ranks, seed, order)
    yield "a file of one row", answer(1, seed, 0)
    yield "the global random numbers stay as they were", tried(untouched, rows)


def _other_epochs_and_seeds(answer: Answer, rows: int, seed: int, order: torch.Tensor) -> Facts:
    later = answer(rows, seed, 4)
    other = answer(rows, seed + 1, 3)
    yield "another epoch has another order", tried(not torch.equal(order, later), rows)
    yield "another seed has another order", not torch.equal(order, other)
    epochs_are_related = related(order.tolist(), later.tolist())
    fact = "no epoch's order is made from that of another"
    yield fact, tried(not epochs_are_related, rows)
    seeds_are_related = related(order.tolist(), other.tolist())
    yield "no seed's order is made from that of another", not seeds_are_related
    pairs = pairs_with_one_order(answer, 40)
    yield "two pairs (seed, epoch) with the same order", tried(pairs, rows)


def _ranks(answer: Answer, rows: int, ranks: int, seed: int, order: torch.Tensor) -> Facts:
    """The facts of several ranks; `order` is that of a single one."""
    parts = _parts(answer, rows, ranks, seed)
    yield f"{rows} rows on {ranks} ranks: every row is on one rank", account(rows, *parts)
    yield f"{rows} rows on {ranks} ranks: the number of each rank", [len(part) for part in parts]
    spread = all(part.min() < rows / 5 and part.max() > 4 * rows / 5 for part in parts)
    yield "the rows of a rank come from the whole file", tried(spread, rows)
    moved = True
    for part, later in zip(parts, _parts(answer, rows, ranks, seed, epoch=4), strict=True):
        moved = moved and set(part.tolist()) != set(later.tolist())
    yield "in another epoch a rank has other rows", tried(moved, rows)
    strided = True
    for rank, part in enumerate(parts):
        strided = strided and torch.equal(part, order[rank::ranks])
    fact = "rank r has the places r, r + world_size, ... of the order of all"
    yield fact, tried(strided, rows)
    many = ranks + 2
    yield f"2 rows on {many} ranks: every row once", account(2, *_parts(answer, 2, many, seed))
    few = {}
    for rank, part in enumerate(_parts(answer, 2, many, seed)):
        few[f"rank {rank}"] = f"{len(part)}, {part.dtype}"
    yield f"2 rows on {many} ranks: the number of each rank, and the dtype", few


def _parts(
    answer: Answer, rows: int, world_size: int, seed: int, epoch: int = 3
) -> list[torch.Tensor]:
    """The rows of each rank."""
    parts = []
    for rank in range(world_size):
        parts.append(answer(rows, seed, epoch, rank=rank, world_size=world_size))
    return parts
