"""Probe of exercise ShardSampler."""

import itertools

import torch
from torch.utils.data import DataLoader, DistributedSampler, Sampler

from course.checks.engine import exercise
from course.checks.probing.errors import outcome


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


@exercise(forbids=("torch.utils.data.DistributedSampler",), isolated=True)
def ShardSampler(answer, device, seed):
    """The index lists of all ranks, side by side."""
    ranks = 3 + seed % 2
    even, uneven = 3 * ranks, 3 * ranks + 1
    sampler = answer(even, ranks, 0)
    yield "is a torch Sampler", isinstance(sampler, Sampler)
    yield "is not torch's DistributedSampler, but written by hand", not isinstance(sampler, DistributedSampler)
    yield "gives indices of type int", sorted({type(i).__name__ for i in _indices(sampler)})
    yield f"shuffle=False: {even} items on {ranks} ranks", _shards(answer, even, ranks, shuffle=False)
    yield "its length is the number of indices of a rank", _lengths(answer, even, ranks)
    shards = _shards(answer, even, ranks)
    yield "shuffled: every item comes once in an epoch", sorted(sum(shards.values(), [])) == list(range(even))
    yield "shuffled: the indices in epoch 0", shards
    yield "an iteration more in the same epoch gives the same order", _indices(sampler) == _indices(sampler)
    later = _shards(answer, even, ranks, epoch=2 + seed % 5)
    yield "set_epoch gives another order", later != shards
    yield "shuffled: the indices in a later epoch", later
    yield "set_epoch(0) gives the first order again", _shards(answer, even, ranks, epoch=0) == shards
    other = 7 + seed
    yield "another seed gives other indices", _shards(answer, even, ranks, seed=other)
    yield "another seed in a later epoch", _shards(answer, even, ranks, epoch=3, seed=other)

    yield f"{uneven} items on {ranks} ranks: the lengths", _lengths(answer, uneven, ranks)
    yield (
        f"{uneven} items on {ranks} ranks: what is missing is repeated from the start",
        _shards(answer, uneven, ranks, shuffle=False),
    )
    yield "the same shuffled: the start of the permutation is repeated", _shards(answer, uneven, ranks)
    yield f"{uneven} items with drop_last: the lengths", _lengths(answer, uneven, ranks, drop_last=True)
    yield f"{uneven} items with drop_last", _shards(answer, uneven, ranks, shuffle=False, drop_last=True)
    yield "the same shuffled: the end of the permutation is left out", _shards(answer, uneven, ranks, drop_last=True)
    yield "drop_last drops nothing where all ranks have equally many", _shards(answer, even, ranks, drop_last=True)
    yield "2 items on 5 ranks: they are repeated several times", _shards(answer, 2, 5, shuffle=False)
    yield "2 items on 5 ranks with drop_last: none is left", _shards(answer, 2, 5, drop_last=True)
    yield "no items: all lists are empty", [_lengths(answer, 0, 2), _shards(answer, 0, 2)]

    torch.manual_seed(seed + 1)  # the engine seeds with 0
    before = torch.get_rng_state()
    yield "does not depend on torch's global random numbers", _shards(answer, even, ranks) == shards
    yield "leaves torch's global random numbers alone", torch.equal(before, torch.get_rng_state())
    loader = DataLoader(range(uneven), batch_size=2, sampler=answer(uneven, ranks, 1))
    batches = [batch.tolist() for batch in itertools.islice(loader, 100)]
    yield "in a DataLoader: the number of batches, and what is in them", [len(loader), batches]
    made = {rank: outcome(lambda rank=rank: type(answer(even, ranks, rank)).__name__)[0] for rank in (-1, ranks)}
    yield "a rank that does not exist raises ValueError", {f"rank {rank} of {ranks}": made[rank] for rank in made}
    cases = itertools.product((1, 5, 8, 11), (1, 2, 4), (False, True), (False, True))
    yield "all else as DistributedSampler has it; first difference", _first_difference(answer, cases, epoch=seed % 4)


def _first_difference(answer, cases, epoch):
    """A line on the first case in which a rank's indices are not those of torch's sampler, or "none"."""
    for n_items, world_size, shuffle, drop_last in cases:
        for rank in range(world_size):
            ours = answer(n_items, world_size, rank, shuffle=shuffle, drop_last=drop_last)
            theirs = DistributedSampler(range(n_items), world_size, rank, shuffle=shuffle, drop_last=drop_last)
            for sampler in (ours, theirs):
                sampler.set_epoch(epoch)
            if _indices(ours) != list(theirs) or len(ours) != len(theirs):
                return f"{n_items} items, rank {rank} of {world_size}, {shuffle=}, {drop_last=}, {epoch=}"
    return "none"
