"""Batch grouping as it is published: one sample at a time, thresholds by chance.  Given to be beaten in unit 05.

The first function is our reconstruction, in a few lines, of what asym (github.com/daeseoklee/asym) does: every sample
is padded, masked and put back by itself, so the Python interpreter sets the pace.  The second is a random search.
"""

import random
from collections.abc import Callable, Sequence

import torch
from torch import Tensor


def grouped_sample_by_sample(
    module: Callable[[Tensor, Tensor], Tensor], samples: Sequence[Tensor], thresholds: Sequence[int]
) -> Tensor:
    """What `module` gives for each of `samples`, computed group by group, with a loop over samples at every step.

    Args:
        module: called with a padded batch (n, longest) and its mask; gives a tensor with a row per sample.
        samples: int64 tensors, one per sequence.
        thresholds: ascending; sample i is in the first group whose threshold is not below its length.
    """
    groups = [[] for _ in thresholds]
    for i, sample in enumerate(samples):
        groups[next(g for g, limit in enumerate(thresholds) if len(sample) <= limit)].append(i)
    outputs = [None] * len(samples)
    for members in filter(None, groups):
        longest = max(len(samples[i]) for i in members)
        padded = [torch.nn.functional.pad(samples[i], (0, longest - len(samples[i]))) for i in members]
        masks = [torch.arange(longest, device=samples[i].device) < len(samples[i]) for i in members]
        for i, output in zip(members, module(torch.stack(padded), torch.stack(masks)), strict=True):
            outputs[i] = output
    return torch.stack(outputs)


def thresholds_by_chance(lengths: Tensor, groups: int, trials: int = 100, seed: int = 0) -> list[int]:
    """Ascending thresholds of few padded tokens, the last one the longest length, as a random search finds them.

    Each trial draws thresholds among the lengths that occur, then moves one at a time to a neighbouring length as long
    as that lowers the number of padded tokens.  A hill climb of ours, on counts of lengths; asym equalises the costs of
    neighbouring groups instead.
    """
    occurring, counts = lengths.unique(return_counts=True)
    sums = [0, *counts.cumsum(0).tolist()]
    occurring = occurring.tolist()
    last, rng, found = len(occurring) - 1, random.Random(seed), []

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
        found.append(places)
    return [occurring[place] for place in min(found, key=cost)]
