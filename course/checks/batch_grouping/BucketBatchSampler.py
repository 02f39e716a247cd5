"""Probe of exercise BucketBatchSampler."""

import torch

from course.engine.exercise import Answer, Facts, exercise


def _batches(sampler):
    """The batches of an epoch as lists of Python numbers."""
    return [[int(i) for i in batch] for batch in sampler]


def _epoch(sampler, number=0):
    """The batches of epoch `number`."""
    sampler.set_epoch(number)
    return _batches(sampler)


def _waste(lengths, batches):
    cells = sum(len(batch) * max(int(lengths[i]) for i in batch) for batch in batches)
    return cells / sum(int(lengths[i]) for batch in batches for i in batch)


@exercise()
def BucketBatchSampler(answer: Answer, device: torch.device, seed: int) -> Facts:
    """Batches of similar length: laws that hold however the random numbers are used."""
    rng = torch.Generator().manual_seed(seed)
    lengths = torch.randperm(200, generator=rng)[: 60 + seed % 3] + 1

    sampler = answer(lengths, 8, 3)
    batches = _epoch(sampler)
    given = [i for batch in batches for i in batch]
    yield "indices that never come in an epoch", sorted({*range(len(lengths))} - {*given})
    yield (
        "indices that come more than once in an epoch",
        sorted({i for i in given if given.count(i) > 1}),
    )
    yield "batches have batch_size indices, one may have fewer", sorted(map(len, batches))
    yield "each batch is a list", sorted({type(batch).__name__ for batch in sampler})
    yield "len() is the number of batches", len(sampler)
    everything = _epoch(answer(lengths[:56], 8, 100))
    yield (
        "lengths in each batch, one window over all: runs of the sorted lengths",
        sorted(sorted(int(lengths[i]) for i in batch) for batch in everything),
    )
    longest = [max(int(lengths[i]) for i in batch) for batch in everything]
    yield (
        "the batches of a window are shuffled",
        longest not in (sorted(longest), sorted(longest, reverse=True)),
    )
    ascending = _epoch(answer(torch.arange(1, 65), 4, 4))
    runs = [list(range(first, first + 4)) for first in range(0, 64, 4)]
    yield "the set is shuffled before windows are cut", sorted(map(sorted, ascending)) != runs
    many = torch.randint(1, 1000, (4096,), generator=rng)
    waste = [_waste(many, _epoch(answer(many, 16, window))) for window in (1, 4, 64)]
    yield "a window of one batch wastes as much as random batches", 1.7 < waste[0] < 2.1
    yield "windows of 4 batches waste less than windows of 1", waste[1] < waste[0] - 0.2
    yield "windows of 64 batches waste less than windows of 4", waste[2] < waste[1] - 0.2
    yield "without set_epoch it is epoch 0", _batches(answer(lengths, 8, 3)) == batches
    yield "an epoch that is iterated again gives the same batches", _batches(sampler) == batches
    other = _epoch(sampler, 1)
    yield "another epoch gives other batches", other != batches
    yield (
        "another epoch puts other sequences together",
        {*map(frozenset, other)} != {*map(frozenset, batches)},
    )
    yield "epoch 1 gives the same in a new sampler", _epoch(answer(lengths, 8, 3), 1) == other
    yield "another seed gives other batches", _epoch(answer(lengths, 8, 3, seed=5)) != batches
    before = torch.get_rng_state()
    _epoch(answer(lengths, 8, 3))
    yield (
        "torch's global random numbers stay as they were",
        bool(torch.equal(before, torch.get_rng_state())),
    )
