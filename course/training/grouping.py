"""Batch grouping as it is published, to be beaten in unit 05; bytes for backward; refusals.

`grouped_sample_by_sample` is our reconstruction, in a few lines, of what asym
(github.com/daeseoklee/asym) does: every sample is padded, masked and put back by itself.
`thresholds_by_chance` is a random search. `check_lengths` and `check_thresholds` refuse what the
exercises of the unit refuse.
"""

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise

import torch
from torch import Tensor
from torch.nn import functional as F

from course.errors import CourseError


def check_lengths(lengths: Tensor, **at_least_one: int) -> None:
    """Raise CourseError unless there is a sequence and each has a token.

    Args:
        lengths: int64 (n,), tokens per sequence.
        at_least_one: numbers that must be 1 or more, e.g. batch_size=4; the message has the name.
    """
    if not len(lengths):
        raise CourseError("sequences were expected, found none; leave empty batches out.")
    if int(lengths.min()) < 1:
        first = int((lengths < 1).nonzero()[0])
        n = int(lengths[first])
        raise CourseError(
            f"sequence {first} has length {n}; each needs at least one token. Leave it out."
        )
    for name, number in at_least_one.items():
        if number < 1:
            raise CourseError(f"{name} is {number}; it must be at least 1.")


def check_thresholds(lengths: Tensor, thresholds: Sequence[int]) -> None:
    """Raise CourseError unless `lengths` are fit and `thresholds` ascend and reach the longest."""
    check_lengths(lengths)
    if not len(thresholds):
        raise CourseError("`thresholds` is empty; for a single group pass [longest length].")
    if any(low >= high for low, high in pairwise(thresholds)):
        raise CourseError(
            f"thresholds must ascend, found {list(thresholds)}; sort them and drop duplicates."
        )
    longest = int(lengths.max())
    if longest > thresholds[-1]:
        raise CourseError(
            f"the last threshold is {thresholds[-1]}, the longest sequence has {longest} tokens; "
            "end the thresholds with the longest length."
        )


def bytes_for_backward(call: Callable[[], object], known: Iterable[Tensor] = ()) -> int:
    """Bytes of the storages that autograd saves while `call()` runs, without those of `known`."""
    storages = {}  # by address; kept alive, so that no other storage gets the address

    def pack(tensor):
        plain = tensor.values().detach() if tensor.is_nested else tensor
        storage = plain.untyped_storage()
        storages[storage.data_ptr()] = storage
        return tensor.detach()

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        call()
    for tensor in known:
        storages.pop(tensor.untyped_storage().data_ptr(), None)
    return sum(storage.nbytes() for storage in storages.values())


def grouped_sample_by_sample(
    module: Callable[[Tensor, Tensor], Tensor], samples: Sequence[Tensor], thresholds: Sequence[int]
) -> Tensor:
    """What `module` gives for each of `samples`, group by group, with a loop over samples.

    Args:
        module: called with a padded batch (n, longest) and its mask; gives a tensor with a row per
            sample.
        samples: int64 tensors, one per sequence.
        thresholds: ascending; sample i is in the first group whose threshold is not below its
            length.

    Raises: CourseError if the thresholds do not ascend or do not reach the longest sample.
    """
    check_thresholds(torch.tensor([len(sample) for sample in samples]), thresholds)
    groups = [[] for _ in thresholds]
    for i, sample in enumerate(samples):
        group = next(g for g, limit in enumerate(thresholds) if len(sample) <= limit)
        groups[group].append(i)
    outputs = [None] * len(samples)
    for members in groups:
        if not members:
            continue
        longest = max(len(samples[i]) for i in members)
        padded = []
        masks = []
        for i in members:
            sample = samples[i]
            padded.append(F.pad(sample, (0, longest - len(sample))))
            masks.append(torch.arange(longest, device=sample.device) < len(sample))
        of_group = module(torch.stack(padded), torch.stack(masks))
        for i, output in zip(members, of_group, strict=True):
            outputs[i] = output
    return torch.stack(outputs)


def thresholds_by_chance(
    lengths: Tensor, groups: int, trials: int = 100, seed: int = 0
) -> list[int]:
    """Ascending thresholds with few cells, the last one the longest length, by a random search.

    Each trial draws thresholds among the lengths that occur, then moves one at a time to a
    neighbouring length as long as that lowers the number of cells. A hill climb of ours, on counts
    of lengths; asym equalises the costs of neighbouring groups instead.

    Raises: CourseError if there is no length, or `groups` or `trials` is below 1.
    """
    check_lengths(lengths, groups=groups, trials=trials)
    unique, counts = lengths.unique(return_counts=True)
    occurring = unique.tolist()
    last = len(occurring) - 1
    sums = [0, *counts.cumsum(0).tolist()]  # sums[i]: sequences that are shorter than occurring[i]

    def cells(places):
        """Cells of the groups that end at these places in `occurring`."""
        total = 0
        begin = 0
        for place in places:
            total += (sums[place + 1] - sums[begin]) * occurring[place]
            begin = place + 1
        return total

    rng = random.Random(seed)
    found = []
    for _ in range(trials):
        drawn = rng.sample(range(last), min(groups, last + 1) - 1)
        places = [*sorted(drawn), last]
        best = min(_moves(places), key=cells, default=places)
        while cells(best) < cells(places):
            places = best
            best = min(_moves(places), key=cells, default=places)
        found.append(places)
    return [occurring[place] for place in min(found, key=cells)]


def _moves(places: list[int]) -> Iterator[list[int]]:
    """Yield `places` with one of them, not the last, one step further down or up."""
    last = places[-1]
    for g, place in enumerate(places[:-1]):
        for moved in (place - 1, place + 1):
            if 0 <= moved < last and moved not in places:
                yield [*places[:g], moved, *places[g + 1 :]]
