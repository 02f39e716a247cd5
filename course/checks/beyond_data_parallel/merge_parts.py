"""Probe of exercise merge_parts."""

import torch

from course.engine.exercise import Answer, Facts, exercise
from course.parallel.context import Part, attention_part, causal_parts, random_head, stacked

DIM = 4


def _of_splits(device: torch.device, seed: int, sizes: tuple[int, ...], scale: float) -> list[Part]:
    """The parts of ranks that hold so many keys each, all of which every query sees."""
    keys = sum(sizes)
    q, k, v = [each.to(device) for each in random_head(keys, DIM, seed, scale)]
    parts = []
    for of_k, of_v in zip(k.split(sizes), v.split(sizes), strict=True):
        is_seen = torch.ones(keys, len(of_k), dtype=torch.bool, device=device)
        parts.append(attention_part(q, of_k, of_v, is_seen))
    return parts


@exercise()
def merge_parts(answer: Answer, device: torch.device, seed: int) -> Facts:
    """Attention of all keys, from parts of several ranks."""
    halves = _of_splits(device, seed, (5, 5), 1)
    merged = answer(*stacked(halves))
    yield "returns a row per query", merged.shape
    yield "two ranks with half of the keys each", merged
    yield "one rank with all keys", answer(*stacked(_of_splits(device, seed + 1, (6,), 1)))
    numerators, denominators, maxima = stacked(halves)
    ones = denominators[..., None].expand_as(numerators)
    yield "values of 1 alone: how far their mean is from 1", answer(ones, denominators, maxima) - 1
    yield "one key per rank", answer(*stacked(_of_splits(device, seed + 2, (1, 1, 1), 1)))
    unequal = _of_splits(device, seed + 3, (1, 7, 3, 2 + seed % 4), 2)
    yield "four ranks with unequal shares", answer(*stacked(unequal))
    yield "the same ranks, the last one first", answer(*stacked(unequal[::-1]))
    numerators, denominators, maxima = stacked(unequal)
    yield "the same, all scores lower by 5,000", answer(numerators, denominators, maxima - 5000)
    large = _of_splits(device, seed + 4, (4, 3, 5), 3000)
    yield "scores of thousands", answer(*stacked(large))
    head = random_head(8, DIM, seed + 5)
    shares = torch.arange(8).split([3, 0, 4, 1])
    parts = [Part(*[each.to(device) for each in part]) for part in causal_parts(head, shares)]
    yield "causal, so early queries see no key of some ranks", answer(*stacked(parts))
    yield "only ranks whose keys no early query sees", answer(*stacked(parts[1:3]))
