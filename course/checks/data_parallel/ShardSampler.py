"""Probe of exercise ShardSampler."""

import functools
import itertools

import torch
from torch.utils.data import Sampler

from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.errors import error_name


def _indices(sampler, most=1000):
    """What a sampler gives, or the first `most` of it."""
    return list(itertools.islice(sampler, most))


def _shards(answer, n_items, world_size, epoch=None, **settings):
    """{rank: its indices}; `epoch` is set where it is given."""
    shards = {}
    for rank in range(world_size):
        sampler = answer(n_items, world_size, rank, **settings)
        if epoch is not None:
            sampler.set_epoch(epoch)
        shards[f"rank {rank}"] = _indices(sampler)
    return shards


def _lengths(answer, n_items, world_size, **settings):
    return [len(answer(n_items, world_size, rank, **settings)) for rank in range(world_size)]


@exercise(forbids=("torch.utils.data.DistributedSampler",))
def ShardSampler(answer: Answer, device: torch.device, seed: int) -> Facts:
    """The index lists of all ranks, side by side."""
    shards, lengths = functools.partial(_shards, answer), functools.partial(_lengths, answer)
    ranks = 3 + seed % 2
    even, uneven = 3 * ranks, 3 * ranks + 1
    sampler = answer(even, ranks, 0)
    yield "is a torch Sampler", isinstance(sampler, Sampler)
    yield "gives indices of type int", sorted({type(i).__name__ for i in _indices(sampler)})
    yield f"shuffle=False: {even} items on {ranks} ranks", shards(even, ranks, shuffle=False)
    yield "its length is the number of indices of a rank", lengths(even, ranks)
    first = shards(even, ranks)
    yield (
        "shuffled: every item comes once in an epoch",
        sorted(sum(first.values(), [])) == list(range(even)),
    )
    yield "shuffled: the indices in epoch 0", first
    again = _indices(sampler) == _indices(sampler)
    yield "an iteration more in the same epoch gives the same order", again
    later = shards(even, ranks, epoch=2 + seed % 5)
    yield "set_epoch gives another order", later != first
    yield "shuffled: the indices in a later epoch", later
    yield "set_epoch(0) gives the first order again", shards(even, ranks, epoch=0) == first
    other = 7 + seed
    yield "another seed gives other indices", shards(even, ranks, seed=other)
    yield "another seed in a later epoch", shards(even, ranks, epoch=3, seed=other)

    yield f"{uneven} items on {ranks} ranks: the lengths", lengths(uneven, ranks)
    yield (
        f"{uneven} items on {ranks} ranks: what is missing is repeated from the start",
        shards(uneven, ranks, shuffle=False),
    )
    yield "the same shuffled: the start of the permutation is repeated", shards(uneven, ranks)
    yield f"{uneven} items with drop_last: the lengths", lengths(uneven, ranks, drop_last=True)
    yield f"{uneven} items with drop_last", shards(uneven, ranks, shuffle=False, drop_last=True)
    yield (
        "the same shuffled: the end of the permutation is left out",
        shards(uneven, ranks, drop_last=True),
    )
    yield "2 items on 5 ranks: they are repeated several times", shards(2, 5, shuffle=False)
    yield "2 items on 5 ranks with drop_last: none is left", shards(2, 5, drop_last=True)
    yield "no items: all lists are empty", [lengths(0, 2), shards(0, 2)]

    torch.manual_seed(seed + 1)  # the engine seeds with 0
    before = torch.get_rng_state()
    yield "does not depend on torch's global random numbers", shards(even, ranks) == first
    yield "leaves torch's global random numbers alone", torch.equal(before, torch.get_rng_state())
    errors = {
        f"rank {rank} of {ranks}": error_name(answer, even, ranks, rank) for rank in (-1, ranks)
    }
    yield "a rank that does not exist raises ValueError", errors
