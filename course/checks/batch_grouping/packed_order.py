"""Probe of exercise packed_order."""

import torch

from course.checks.batch_grouping.ragged import batch, some_lengths
from course.checks.engine import exercise


@exercise(
    forbids=(
        "torch.nn.utils.rnn.pack_padded_sequence",
        "torch.nn.utils.rnn.pack_sequence",
        "torch.nn.utils.rnn.PackedSequence",
    )
)
def packed_order(answer, device, seed):
    """Tokens step by step, longest sequence first."""
    rng = torch.Generator().manual_seed(seed)
    values, lengths = batch(rng, some_lengths(rng, 6 + seed % 4), vocabulary=1000, device=device)
    data, batch_sizes = answer(torch.tensor([1, 2, 3, 4, 5, 6], device=device), lengths.new_tensor([1, 3, 2]))
    yield "tokens 1 | 2 3 4 | 5 6: the data", data
    yield "tokens 1 | 2 3 4 | 5 6: batch_sizes", batch_sizes
    data, batch_sizes = answer(values, lengths)
    yield "as many tokens as before", data.shape
    yield "how many sequences are still going at each step", batch_sizes
    yield "the first step: one token of each, of the longest sequence first", data[: len(lengths)]
    yield "all tokens", data
    yield (
        "sequences of equal length keep their order",
        list(answer(torch.arange(6, device=device), lengths.new_full((3,), 2))),
    )
    yield "one sequence", list(answer(values[:3], lengths.new_tensor([3])))
