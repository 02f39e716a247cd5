"""Probe of exercise BucketBatchSampler."""

import torch

from course.checks.engine import exercise


def _epoch(answer, *args, epoch=0, **kwargs):
    """The batches of an epoch, as lists of Python numbers."""
    sampler = answer(*args, **kwargs)
    sampler.set_epoch(epoch)
    return [[int(i) for i in batch] for batch in sampler]


def _waste(lengths, batches):
    cells = sum(len(batch) * max(int(lengths[i]) for i in batch) for batch in batches)
    return cells / sum(int(lengths[i]) for batch in batches for i in batch)


def _flat(batches):
    return sorted(i for batch in batches for i in batch)


def _ranks(answer, lengths, batch_size, world_size):
    """What is true of the batches of all ranks together."""
    parts = [_epoch(answer, lengths, batch_size, 3, rank=rank, world_size=world_size) for rank in range(world_size)]
    batches = [tuple(batch) for part in parts for batch in part]
    whole = -(-len(lengths) // batch_size)
    yield f"{world_size} ranks, {whole} batches: every rank has as many batches", [len(part) for part in parts]
    yield f"{world_size} ranks, {whole} batches: together every index", sorted({i for b in batches for i in b})
    yield f"{world_size} ranks, {whole} batches: no batch more often than needed", len({*batches})


@exercise()
def BucketBatchSampler(answer, device, seed):
    """Batches of similar length: laws that hold however the random numbers are used."""
    rng = torch.Generator().manual_seed(seed)
    lengths = torch.randperm(200, generator=rng)[: 60 + seed % 3] + 1  # all different
    n = len(lengths)
    batches = _epoch(answer, lengths, 8, 3)
    yield "every index once per epoch", _flat(batches)
    yield "batches have batch_size indices, one may have fewer", sorted(map(len, batches))
    yield "len() is the number of batches", len(answer(lengths, 8, 3))
    yield "len() of one rank of three", len(answer(lengths, 8, 3, rank=1, world_size=3))
    yield "without set_epoch it is epoch 0", [list(map(int, b)) for b in answer(lengths, 8, 3)] == batches
    yield "the same epoch gives the same batches again", _epoch(answer, lengths, 8, 3) == batches
    yield "another epoch gives other batches", _epoch(answer, lengths, 8, 3, epoch=1) != batches
    yield "another seed gives other batches", _epoch(answer, lengths, 8, 3, seed=5) != batches
    everything = _epoch(answer, lengths[:56], 8, 100)
    yield (
        "one window over all: each batch is a run of the sorted lengths",
        sorted(sorted(int(lengths[i]) for i in batch) for batch in everything),
    )
    longest = [max(int(lengths[i]) for i in batch) for batch in everything]
    yield "the batches of a window are shuffled", longest not in (sorted(longest), sorted(longest, reverse=True))
    many = torch.randint(1, 1000, (4096,), generator=rng)
    waste = [_waste(many, _epoch(answer, many, 16, window)) for window in (1, 4, 64)]
    yield "a window of one batch wastes like a shuffled order", 1.7 < waste[0] < 2.1
    yield "larger windows waste less", waste[0] > waste[1] + 0.2 > waste[2] + 0.2
    ascending = _epoch(answer, torch.arange(1, 65), 4, 4)
    runs = [list(range(first, first + 4)) for first in range(0, 64, 4)]
    yield "windows are cut from a shuffled order", sorted(map(sorted, ascending)) != runs
    before = torch.get_rng_state()
    _epoch(answer, lengths, 8, 3)
    yield "torch's global random numbers stay as they were", bool(torch.equal(before, torch.get_rng_state()))
    yield from _ranks(answer, lengths[: n - n % 8], 8, 2)
    yield from _ranks(answer, lengths[:40], 8, 3)
    yield from _ranks(answer, lengths[:5], 8, 3)
