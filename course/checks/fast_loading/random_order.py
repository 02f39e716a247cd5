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
from course.engine.probing.randomness import random_state


@exercise()
def random_order(answer: Answer, device: torch.device, seed: int) -> Facts:
    """The orders of all ranks, several seeds and epochs."""
    ranks = 3 + seed % 2
    rows = (300 + seed % 50) * ranks + 1 + seed % 2

    def shares(rows, world_size, epoch=3):
        return [
            answer(rows, seed, epoch, rank=rank, world_size=world_size)
            for rank in range(world_size)
        ]

    before = random_state()
    order = answer(rows, seed, 3)
    untouched = before == random_state()
    yield "returns an int64 tensor with one axis, on the CPU", form(order)
    yield "every row comes once", account(rows, order)
    yield "the same call again gives the same order", torch.equal(order, answer(rows, seed, 3))
    yield "the order is not that of the file, or near it", not follows_the_file(order.tolist())
    later, other = answer(rows, seed, 4), answer(rows, seed + 1, 3)
    yield "another epoch has another order", not torch.equal(order, later)
    yield "another seed has another order", not torch.equal(order, other)
    yield (
        "no epoch's order is made from that of another",
        not related(order.tolist(), later.tolist()),
    )
    yield (
        "no seed's order is made from that of another",
        not related(order.tolist(), other.tolist()),
    )
    yield "two pairs (seed, epoch) with the same order", pairs_with_one_order(answer, 40)

    parts = shares(rows, ranks)
    yield f"{rows} rows on {ranks} ranks: every row is on one rank", account(rows, *parts)
    yield f"{rows} rows on {ranks} ranks: the number of each rank", [len(part) for part in parts]
    spread = all(part.min() < rows / 5 and part.max() > 4 * rows / 5 for part in parts)
    yield "the rows of a rank come from the whole file", spread
    moved = all(
        set(a.tolist()) != set(b.tolist())
        for a, b in zip(parts, shares(rows, ranks, epoch=4), strict=True)
    )
    yield "in another epoch a rank has other rows", moved
    places = [order[rank::ranks] for rank in range(ranks)]
    strided = all(map(torch.equal, parts, places))
    yield "rank r has the places r, r + world_size, ... of the order of all", strided
    yield f"2 rows on {ranks + 2} ranks: every row once", account(2, *shares(2, ranks + 2))
    few = {f"rank {rank}": f"{len(x)}, {x.dtype}" for rank, x in enumerate(shares(2, ranks + 2))}
    yield f"2 rows on {ranks + 2} ranks: the number of each rank, and the dtype", few
    yield "a file of one row", answer(1, seed, 0)
    yield "the global random numbers stay as they were", untouched
