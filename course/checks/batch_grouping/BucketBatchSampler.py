"""Probe of exercise BucketBatchSampler."""

import itertools
from collections import Counter
from collections.abc import Iterable

import torch

from course.engine.exercise import Answer, Facts, exercise

Batches = list[list[int]]


def _batches(sampler: Iterable) -> Batches:
    """The batches of an epoch as lists of Python numbers."""
    return [list(map(int, batch)) for batch in sampler]


def _epoch(sampler: Iterable, number: int = 0) -> Batches:
    """The batches of epoch `number`."""
    sampler.set_epoch(number)
    return _batches(sampler)


def _lengths_of(lengths: torch.Tensor, batch: list[int]) -> list[int]:
    """The lengths of the sequences in a batch, ascending."""
    return sorted(lengths[batch].tolist())


def _waste(lengths: torch.Tensor, batches: Batches) -> float:
    """Cells of the padded batches per real token."""
    cells = 0
    tokens = 0
    for batch in batches:
        in_batch = _lengths_of(lengths, batch)
        cells += len(batch) * max(in_batch)
        tokens += sum(in_batch)
    return cells / tokens


@exercise()
def BucketBatchSampler(answer: Answer, device: torch.device, seed: int) -> Facts:
    """Batches of similar length: laws that hold however the random numbers are used."""
    rng = torch.Generator().manual_seed(seed)
    lengths = torch.randperm(200, generator=rng)[: 60 + seed % 3] + 1
    sampler = answer(lengths, 8, 3)
    batches = _epoch(sampler)
    yield from _one_epoch(sampler, batches, len(lengths))
    yield from _windows(answer, lengths)
    yield from _amount_of_padding(answer, rng)
    yield "without set_epoch it is epoch 0", _batches(answer(lengths, 8, 3)) == batches
    yield from _other_epochs(answer, lengths, sampler, batches)
    before = torch.get_rng_state()
    _epoch(answer(lengths, 8, 3))
    untouched = bool(torch.equal(before, torch.get_rng_state()))
    yield "torch's global random numbers stay as they were", untouched


def _one_epoch(sampler: Iterable, batches: Batches, n_sequences: int) -> Facts:
    """Which indices one epoch gives."""
    given = list(itertools.chain.from_iterable(batches))
    yield "indices that never come in an epoch", sorted({*range(n_sequences)} - {*given})
    repeated = [i for i, times in Counter(given).items() if times > 1]
    yield "indices that come more than once in an epoch", sorted(repeated)
    yield "batches have batch_size indices, one may have fewer", sorted(map(len, batches))
    yield "each batch is a list", sorted({type(batch).__name__ for batch in sampler})
    yield "len() is the number of batches", len(sampler)


def _windows(answer: Answer, lengths: torch.Tensor) -> Facts:
    """What is sorted and what is shuffled."""
    one_window = answer(lengths[:56], 8, 100)
    everything = _epoch(one_window)
    by_batch = [_lengths_of(lengths, batch) for batch in everything]
    fact = "lengths in each batch, one window over all: runs of the sorted lengths"
    yield fact, sorted(by_batch)
    longest = list(map(max, by_batch))
    is_shuffled = longest not in (sorted(longest), sorted(longest, reverse=True))
    yield "the batches of a window are shuffled", is_shuffled
    ranks = [longest.index(length) for length in sorted(longest)]
    longest_next = list(map(max, (_lengths_of(lengths, b) for b in _epoch(one_window, 1))))
    ranks_next = [longest_next.index(length) for length in sorted(longest_next)]
    yield "another epoch shuffles the batches in another order", ranks_next != ranks
    ascending = _epoch(answer(torch.arange(1, 65), 4, 4))
    runs = [list(range(first, first + 4)) for first in range(0, 64, 4)]
    yield "the set is shuffled before windows are cut", sorted(map(sorted, ascending)) != runs
    in_windows = _epoch(answer(torch.arange(1, 257), 4, 8))
    pieces = [in_windows[first : first + 8] for first in range(0, len(in_windows), 8)]
    yield "the batches of all windows are shuffled together", not all(map(_are_runs, pieces))


def _are_runs(batches: Batches) -> bool:
    """Whether no two batches overlap in what they hold, as those of one sorted window."""
    ascending = sorted(map(sorted, batches))
    return all(one[-1] < other[0] for one, other in itertools.pairwise(ascending))


def _amount_of_padding(answer: Answer, rng: torch.Generator) -> Facts:
    """How much less padding larger windows need."""
    many = torch.randint(1, 1000, (4096,), generator=rng)
    waste_1 = _waste(many, _epoch(answer(many, 16, 1)))
    waste_4 = _waste(many, _epoch(answer(many, 16, 4)))
    waste_64 = _waste(many, _epoch(answer(many, 16, 64)))
    yield "a window of one batch wastes as much as random batches", 1.7 < waste_1 < 2.1
    yield "windows of 4 batches waste less than windows of 1", waste_4 < waste_1 - 0.2
    yield "windows of 64 batches waste less than windows of 4", waste_64 < waste_4 - 0.2


def _other_epochs(
    answer: Answer, lengths: torch.Tensor, sampler: Iterable, batches: Batches
) -> Facts:
    """The same epoch again, another epoch, another seed."""
    yield "an epoch that is iterated again gives the same batches", _batches(sampler) == batches
    other = _epoch(sampler, 1)
    yield "another epoch gives other batches", other != batches
    regrouped = {*map(frozenset, other)} != {*map(frozenset, batches)}
    yield "another epoch puts other sequences together", regrouped
    yield "epoch 1 gives the same in a new sampler", _epoch(answer(lengths, 8, 3), 1) == other
    yield "another seed gives other batches", _epoch(answer(lengths, 8, 3, seed=5)) != batches
