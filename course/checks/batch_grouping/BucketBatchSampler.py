"""Probe of exercise BucketBatchSampler."""

import builtins
import contextlib
import itertools
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any
from unittest import mock

import torch

from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.laws import tried
from course.engine.probing.values import type_word

Batches = list[list[int]]


def _batches(sampler: Iterable) -> Batches:
    """The batches of an epoch as lists of Python numbers."""
    return [list(map(int, batch)) for batch in sampler]


def _epoch(sampler: Iterable, number: int = 0) -> Batches:
    """The batches of epoch `number`."""
    sampler.set_epoch(number)
    return _batches(sampler)


@contextlib.contextmanager
def _hashes_of_another_process() -> Iterator[None]:
    """Inside the block `hash` gives other numbers for texts, as in each new process of Python."""
    of_this_process = builtins.hash

    def hash_there(value: Any) -> int:
        number = of_this_process(value)
        return number ^ 0x5DEECE66D if _holds_text(value) else number

    with mock.patch.object(builtins, "hash", hash_there):
        yield


def _holds_text(value: Any) -> bool:
    """Whether the hash of `value` depends on that of a text."""
    if isinstance(value, (tuple, frozenset)):
        return any(map(_holds_text, value))
    return isinstance(value, (str, bytes))


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
    lengths = torch.randperm(200, generator=rng)[: 60 + 7 * (seed % 3)] + 1
    few = lengths[:4].tolist()
    sampler = answer(lengths, 8, 3)
    batches = _epoch(sampler)
    yield from _one_epoch(sampler, batches, lengths)
    yield from _windows(answer, lengths)
    yield from _amount_of_padding(answer, rng)
    is_first = _batches(answer(lengths, 8, 3)) == batches
    yield "without set_epoch it is epoch 0", tried(is_first, few)
    yield from _other_epochs(answer, lengths, sampler, batches)
    before = torch.get_rng_state()
    _epoch(answer(lengths, 8, 3))
    untouched = bool(torch.equal(before, torch.get_rng_state()))
    yield "torch's global random numbers stay as they were", tried(untouched, few)


def _one_epoch(sampler: Iterable, batches: Batches, lengths: torch.Tensor) -> Facts:
    """Which indices one epoch gives."""
    given = list(itertools.chain.from_iterable(batches))
    yield "indices that never come in an epoch", sorted({*range(len(lengths))} - {*given})
    repeated = [i for i, times in Counter(given).items() if times > 1]
    yield "indices that come more than once in an epoch", sorted(repeated)
    yield "batches have batch_size indices, one may have fewer", sorted(map(len, batches))
    types = sorted({type_word(batch) for batch in sampler})
    yield "each batch is a list", tried(types, lengths[:4].tolist())
    yield "len() is the number of batches", len(sampler)


def _windows(answer: Answer, lengths: torch.Tensor) -> Facts:
    """What is sorted and what is shuffled."""
    one_window = answer(lengths[:56], 8, 100)
    few = lengths[:4].tolist()
    everything = _epoch(one_window)
    by_batch = [_lengths_of(lengths, batch) for batch in everything]
    fact = "lengths in each batch, one window over all: runs of the sorted lengths"
    yield fact, sorted(by_batch)
    longest = list(map(max, by_batch))
    is_shuffled = longest not in (sorted(longest), sorted(longest, reverse=True))
    yield "the batches of a window are shuffled", tried(is_shuffled, few)
    ranks = [longest.index(length) for length in sorted(longest)]
    longest_next = list(map(max, (_lengths_of(lengths, b) for b in _epoch(one_window, 1))))
    ranks_next = [longest_next.index(length) for length in sorted(longest_next)]
    is_other = ranks_next != ranks
    yield "another epoch shuffles the batches in another order", tried(is_other, few)
    ascending = _epoch(answer(torch.arange(1, 65), 4, 4))
    runs = [list(range(first, first + 4)) for first in range(0, 64, 4)]
    is_mixed = sorted(map(sorted, ascending)) != runs
    yield "the set is shuffled before windows are cut", tried(is_mixed, few)
    in_windows = _epoch(answer(torch.arange(1, 257), 4, 8))
    pieces = [in_windows[first : first + 8] for first in range(0, len(in_windows), 8)]
    is_mixed = not all(map(_are_runs, pieces))
    yield "the batches of all windows are shuffled together", tried(is_mixed, few)


def _are_runs(batches: Batches) -> bool:
    """Whether no two batches overlap in what they hold, as those of one sorted window."""
    ascending = sorted(map(sorted, batches))
    return all(one[-1] < other[0] for one, other in itertools.pairwise(ascending))


def _amount_of_padding(answer: Answer, rng: torch.Generator) -> Facts:
    """How much less padding larger windows need."""
    many = torch.randint(1, 1000, (4096,), generator=rng)
    few = many[:4].tolist()
    waste_1 = _waste(many, _epoch(answer(many, 16, 1)))
    waste_4 = _waste(many, _epoch(answer(many, 16, 4)))
    waste_64 = _waste(many, _epoch(answer(many, 16, 64)))
    as_random = 1.7 < waste_1 < 2.1
    yield "a window of one batch wastes as much as random batches", tried(as_random, few)
    is_less = waste_4 < waste_1 - 0.2
    yield "windows of 4 batches waste less than windows of 1", tried(is_less, few)
    is_less = waste_64 < waste_4 - 0.2
    yield "windows of 64 batches waste less than windows of 4", tried(is_less, few)


def _other_epochs(
    answer: Answer, lengths: torch.Tensor, sampler: Iterable, batches: Batches
) -> Facts:
    """The same epoch again, another epoch, another seed."""
    few = lengths[:4].tolist()
    is_same = _batches(sampler) == batches
    yield "an epoch that is iterated again gives the same batches", tried(is_same, few)
    other = _epoch(sampler, 1)
    yield "another epoch gives other batches", tried(other != batches, few)
    regrouped = {*map(frozenset, other)} != {*map(frozenset, batches)}
    yield "another epoch puts other sequences together", tried(regrouped, few)
    is_same = _epoch(answer(lengths, 8, 3), 1) == other
    yield "epoch 1 gives the same in a new sampler", tried(is_same, few)
    with _hashes_of_another_process():
        is_same = _epoch(answer(lengths, 8, 3)) == batches
    yield "another process gives the same batches", tried(is_same, few)
    is_other = _epoch(answer(lengths, 8, 3, seed=5)) != batches
    yield "another seed gives other batches", tried(is_other, few)
