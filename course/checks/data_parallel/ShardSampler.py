"""Probe of exercise ShardSampler."""

import functools
import itertools
from collections.abc import Callable
from typing import Any

import torch
from torch.utils.data import Sampler

from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.errors import error_name
from course.engine.probing.laws import tried
from course.engine.probing.values import type_names

INDICES_MAX = 1000  # read from a sampler that may have no end


def _indices(sampler: Sampler) -> list[int]:
    return list(itertools.islice(sampler, INDICES_MAX))


def _shards(
    answer: Answer, n_items: int, world_size: int, epoch: int | None = None, **settings: Any
) -> dict[str, list[int]]:
    """{rank: its indices}; `epoch` is set where it is given."""
    shards = {}
    for rank in range(world_size):
        sampler = answer(n_items, world_size, rank, **settings)
        if epoch is not None:
            sampler.set_epoch(epoch)
        shards[f"rank {rank}"] = _indices(sampler)
    return shards


def _lengths(answer: Answer, n_items: int, world_size: int, **settings: Any) -> list[int]:
    return [len(answer(n_items, world_size, rank, **settings)) for rank in range(world_size)]


@exercise(forbids=("torch.utils.data.DistributedSampler",))
def ShardSampler(answer: Answer, device: torch.device, seed: int) -> Facts:
    """The index lists of all ranks, side by side."""
    shards = functools.partial(_shards, answer)
    lengths = functools.partial(_lengths, answer)
    ranks = 3 + seed % 2
    items = 3 * ranks  # the ranks share them evenly
    sampler = answer(items, ranks, 0)
    yield "is a torch Sampler", isinstance(sampler, Sampler)
    yield "gives indices of type int", type_names(_indices(sampler))
    yield f"shuffle=False: {items} items on {ranks} ranks", shards(items, ranks, shuffle=False)
    yield "its length is the number of indices of a rank", lengths(items, ranks)

    first = shards(items, ranks)
    all_indices = list(itertools.chain.from_iterable(first.values()))
    is_permutation = sorted(all_indices) == list(range(items))
    yield "shuffled: every item comes once in an epoch", is_permutation
    yield "shuffled: the indices in epoch 0", first
    again = _indices(sampler) == _indices(sampler)
    epoch = 2 + seed % 5
    yield "an iteration more in the same epoch gives the same order", tried(again, epoch)
    later = shards(items, ranks, epoch=epoch)
    yield "set_epoch gives another order", later != first
    yield "shuffled: the indices in a later epoch", later
    yield "set_epoch(0) gives the first order again", shards(items, ranks, epoch=0) == first
    other = 7 + seed
    yield "another seed gives other indices", shards(items, ranks, seed=other)
    yield "another seed in a later epoch", shards(items, ranks, epoch=3, seed=other)

    yield from _uneven(shards, lengths, 3 * ranks + 1, ranks)
    repeated = tried(shards(2, 5, shuffle=False), epoch)
    yield "2 items on 5 ranks: they are repeated several times", repeated
    yield "2 items on 5 ranks with drop_last: none is left", shards(2, 5, drop_last=True)
    yield "no items: all lists are empty", [lengths(0, 2), shards(0, 2)]

    torch.manual_seed(seed + 1)  # the engine seeds with 0
    before = torch.get_rng_state()
    yield "does not depend on torch's global random numbers", shards(items, ranks) == first
    is_same = torch.equal(before, torch.get_rng_state())
    yield "leaves torch's global random numbers alone", tried(is_same, epoch)
    errors = {}
    for rank in (-1, ranks):
        errors[f"rank {rank} of {ranks}"] = error_name(answer, items, ranks, rank)
    yield "a rank that does not exist raises ValueError", errors


def _uneven(
    shards: Callable[..., dict[str, list[int]]],
    lengths: Callable[..., list[int]],
    items: int,
    ranks: int,
) -> Facts:
    """Return the facts if the number of ranks does not divide the number of items."""
    yield f"{items} items on {ranks} ranks: the lengths", lengths(items, ranks)
    padded = shards(items, ranks, shuffle=False)
    yield f"{items} items on {ranks} ranks: what is missing is repeated from the start", padded
    yield "the same shuffled: the start of the permutation is repeated", shards(items, ranks)
    yield f"{items} items with drop_last: the lengths", lengths(items, ranks, drop_last=True)
    yield f"{items} items with drop_last", shards(items, ranks, shuffle=False, drop_last=True)
    cut = shards(items, ranks, drop_last=True)
    yield "the same shuffled: the end of the permutation is left out", cut
