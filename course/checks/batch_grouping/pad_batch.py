"""Probe of exercise pad_batch."""

import torch

from course.checks.batch_grouping.ragged import (
    batch,
    loops_over_sequences,
    operations,
    some_lengths,
)
from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.laws import tried
from course.engine.probing.values import type_word


@exercise()
def pad_batch(answer: Answer, device: torch.device, seed: int) -> Facts:
    """Flat sequences as a rectangle of tokens and a mask."""
    rng = torch.Generator().manual_seed(seed)
    values, lengths = batch(rng, some_lengths(rng), device=device)
    result = answer(values, lengths)
    returned = f"one {type_word(result)}"
    if isinstance(result, (tuple, list)):
        returned = [type_word(part) for part in result]
    yield "returns (x, mask)", returned
    x, mask = result
    yield "x has a row per sequence and a column per token of the longest", x.shape
    yield "so has the mask", mask.shape
    yield "dtype of x, that of the tokens", x.dtype
    yield "dtype of the mask", mask.dtype
    yield "the mask is True where a sequence has a token", mask
    yield "where the mask is True, the tokens of all sequences are in order", x[mask]
    yield "padding is 0, where the mask is False", x
    even, three = batch(rng, [3, 3, 3], device=device)
    yield "sequences of equal length", dict(zip(("x", "mask"), answer(even, three), strict=True))
    one, single = batch(rng, [4 + seed % 3], device=device)
    yield "a single sequence", answer(one, single)[0]
    yield "tokens of value 0 are tokens like others", answer(torch.zeros_like(values), lengths)[1]
    few = operations(answer, [2, 3] * 3)
    many = operations(answer, [2, 3] * 36)
    as_few = many <= few + 2
    yield "twelve times the sequences take no more operations", tried(as_few, values)
    no_loop = not loops_over_sequences(answer)
    yield "no Python loop over the sequences", tried(no_loop, values)
