"""Probe of exercise padding_waste."""

import torch

from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.values import type_word


@exercise()
def padding_waste(answer: Answer, device: torch.device, seed: int) -> Facts:
    """Padded tokens per real token, over an epoch."""
    rng = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, 40, (23 + seed % 4,), generator=rng)
    waste = answer(lengths, 5)
    yield "returns a Python float", type_word(waste)
    yield "batches in the order of the set, the last one shorter", waste
    last_is_long = answer(torch.tensor([1, 1, 1, 1, 9]), 4)
    yield "the last batch is padded to its own longest, over its own rows", last_is_long
    order = torch.randperm(len(lengths), generator=rng)
    yield "batches in another order", answer(lengths, 5, order)
    yield "sorted by length", answer(lengths, 5, lengths.argsort())
    yield "batches of one waste nothing", answer(lengths, 1)
    yield "a batch larger than the set", answer(lengths, 1000)
    yield "sequences of equal length waste nothing", answer(torch.full((8,), 3), 4)
    yield "it is one ratio of sums, not a mean of ratios", answer(torch.tensor([1, 2, 100, 100]), 2)
