"""Batch grouping as it is published, to be beaten in unit 05, bytes for backward, and the refusals
of its stubs.

`grouped_sample_by_sample` is our reconstruction, in a few lines, of what asym
(github.com/daeseoklee/asym) does: every sample is padded, masked and put back by itself.
`thresholds_by_chance` is a random search.
"""

import random
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

import torch
from torch import Tensor

from course.errors import CourseError


def check_lengths(lengths: Tensor, **at_least_one: int) -> None:
    """Raise CourseError unless there is a sequence, each has a token, and each number in
    `at_least_one` is 1 or more.

    Args:
        lengths: int64 (n,), tokens per sequence.
        at_least_one: e.g. batch_size=4; the message has the name.
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
    """Raise CourseError unless `lengths` are fit and `thresholds` ascend and reach the longest of
    them.
    """
    check_lengths(lengths)
    if not len(thresholds):
        raise CourseError("`thresholds` is empty; for a single group pass [longest length].")
    if any(low >= high for low, high in pairwise(thresholds)):
        raise CourseError(
            f"thresholds must ascend, found {list(thresholds)}; sort them and drop duplicates."
        )
    if int(lengths.max()) > thresholds[-1]:
        raise CourseError(
            f"the last threshold is {thresholds[-1]}, the longest sequence has {int(lengths.max())} tokens; "
            "end the thresholds with the longest length."
        )


def bytes_for_backward(call: Callable[[], object], known: Iterable[Tensor] = ()) -> int:
    """Bytes of the storages that autograd saves while `call()` runs, without those of the tensors
    in `known`.
    """
    storages = {}

    def pack(tensor):
        storage = (tensor.values().detach() if tensor.is_nested else tensor).untyped_storage()
        storages[storage.data_ptr()] = (
            storage  # kept alive, so that no other storage gets its address
        )
        return tensor.detach()

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        call()
    left_out = {tensor.untyped_storage().data_ptr() for tensor in known}
    return sum(storage.nbytes() for address, storage in storages.items() if address not in left_out)


def grouped_sample_by_sample(
    module: Callable[[Tensor, Tensor], Tensor], samples: Sequence[Tensor], thresholds: Sequence[int]
) -> Tensor:
    """What `module` gives for each of `samples`, computed group by group, with a loop over samples
    at every step.

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
        groups[next(g for g, limit in enumerate(thresholds) if len(sample) <= limit)].append(i)
    outputs = [None] * len(samples)
    for members in filter(None, groups):
        longest = max(len(samples[i]) for i in members)
        padded = [
            torch.nn.functional.pad(samples[i], (0, longest - len(samples[i]))) for i in members
        ]
        masks = [torch.arange(longest, device=samples[i].device) < len(samples[i]) for i in members]
        for i, output in zip(members, module(torch.stack(padded), torch.stack(masks)), strict=True):
            outputs[i] = output
    return torch.stack(outputs)


def thresholds_by_chance(
    lengths: Tensor, groups: int, trials: int = 100, seed: int = 0
) -> list[int]:
    """Ascending thresholds with few cells, the last one the longest length, as a random search
    finds them.

    Each trial draws thresholds among the lengths that occur, then moves one at a time to a
    neighbouring length as long as that lowers the number of cells. A hill climb of ours, on counts
    of lengths; asym equalises the costs of neighbouring groups instead.

    Raises: CourseError if there is no length, or `groups` or `trials` is below 1.
    """
    check_lengths(lengths, groups=groups, trials=trials)
    occurring, counts = lengths.unique(return_counts=True)
    sums = [0, *counts.cumsum(0).tolist()]
    occurring = occurring.tolist()
    last, rng, costs = len(occurring) - 1, random.Random(seed), []

    def cost(places):
        ends = [0, *(place + 1 for place in places)]
        pairs = zip(ends, ends[1:], strict=False)
        return sum((sums[high] - sums[low]) * occurring[high - 1] for low, high in pairs)

    for _ in range(trials):
        places = sorted(rng.sample(range(last), min(groups, last + 1) - 1)) + [last]
        while True:
            moves = (
                [*places[:g], place + step, *places[g + 1 :]]
                for g, place in enumerate(places[:-1])
                for step in (-1, 1)
                if 0 <= place + step < last and place + step not in places
            )
            best = min(moves, key=cost, default=places)
            if cost(best) >= cost(places):
                break
            places = best
        costs.append(places)
    return [occurring[place] for place in min(costs, key=cost)]
