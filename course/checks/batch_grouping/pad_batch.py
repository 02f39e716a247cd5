"""Probe of exercise pad_batch."""

import torch

from course.checks.batch_grouping.ragged import batch, operations, raised, some_lengths
from course.checks.engine import exercise


@exercise()
def pad_batch(answer, device, seed):
    """Flat sequences as a rectangle of tokens and a mask."""
    rng = torch.Generator().manual_seed(seed)
    values, lengths = batch(rng, some_lengths(rng), device=device)
    found = answer(values, lengths)
    yield "returns two tensors", [type(part).__name__ for part in found]
    x, mask = found
    yield "both have a row per sequence and a column per token of the longest", (tuple(x.shape), tuple(mask.shape))
    yield "dtypes of tokens and mask", (x.dtype, mask.dtype)
    yield "the mask is True where a sequence has a token", mask
    yield "tokens stand in their sequence's row, in order", x.masked_fill(~mask, 0)
    yield "padding is 0", x
    even, three = batch(rng, [3, 3, 3], device=device)
    yield "sequences of equal length", dict(zip(("x", "mask"), answer(even, three), strict=True))
    one, single = batch(rng, [4 + seed % 3], device=device)
    yield "a single sequence", answer(one, single)[0]
    yield "tokens of value 0 are tokens like others", answer(torch.zeros_like(values), lengths)[1]
    few, many = (operations(answer, [2, 3] * n) for n in (3, 36))
    yield "twelve times the sequences take no more operations", many <= few + 2
    zero = lengths.clone()
    zero[1] = 0
    yield "a length of 0 raises ValueError", raised(lambda: answer(values, zero))
