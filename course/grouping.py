"""Batch grouping as it is published: one sample at a time, thresholds by chance.  Given to be beaten in unit 05.

Our reconstruction of what asym (github.com/daeseoklee/asym) does, in a few lines: every sample is padded, masked and
put back by itself, so the Python interpreter sets the pace; thresholds start from random ones and are moved as long as
that helps.
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


def thresholds_by_chance(
    lengths: Tensor, groups: int, grouping_cost: Callable[[Tensor, list[int]], float], trials: int = 100, seed: int = 0
) -> list[int]:
    """Ascending thresholds, the last one the longest length: the cheapest that a random search finds.

    Each trial draws thresholds among the lengths that occur, then moves one at a time to a neighbouring length as long
    as that lowers the cost.

    Args:
        grouping_cost: (lengths, thresholds) -> what they cost.
    """
    occurring = lengths.unique().tolist()
    rng, best, lowest = random.Random(seed), [occurring[-1]], float("inf")
    for _ in range(trials):
        places = sorted(rng.sample(range(len(occurring) - 1), min(groups, len(occurring)) - 1))
        cost = grouping_cost(lengths, [occurring[p] for p in places] + occurring[-1:])
        for _ in range(10):  # rounds of small moves
            moved = [
                sorted({*places[:g], place + step, *places[g + 1 :]})
                for g, place in enumerate(places)
                for step in (-1, 1)
                if 0 <= place + step < len(occurring) - 1
            ]
            tried = [(grouping_cost(lengths, [occurring[p] for p in m] + occurring[-1:]), m) for m in moved]
            if not tried or min(tried)[0] >= cost:
                break
            cost, places = min(tried)
        if cost < lowest:
            best, lowest = [occurring[p] for p in places] + occurring[-1:], cost
    return best
