"""Known mistakes of exercise segment_max, and right answers in other styles."""

import math

import torch

from course.checks.engine import alternative, mistake


def _owner(lengths):
    return torch.arange(len(lengths), device=lengths.device).repeat_interleave(lengths)


@mistake("segment_max", "The maxima start from 0, which wins where all tokens are negative. Start from minus infinity.")
def started_from_zero(values, lengths):
    index = _owner(lengths)[:, None].expand_as(values)
    return values.new_zeros(len(lengths), values.shape[1]).scatter_reduce(0, index, values, "amax")


@mistake(
    "segment_max",
    "The maxima start from 0 (torch.zeros), which wins where all tokens are negative, in float32, whatever dtype the "
    "tokens have. Start from minus infinity in their dtype: values.new_full.",
)
def started_from_zeros_of_float32(values, lengths):
    index = _owner(lengths)[:, None].expand_as(values)
    zeros = torch.zeros(len(lengths), values.shape[1], device=values.device)
    return zeros.scatter_reduce(0, index, values, "amax")


@mistake("segment_max", "The maxima start from a number that tokens may fall below. Start from minus infinity.")
def started_from_minus_a_hundred(values, lengths):
    lowest = torch.full((len(lengths), values.shape[1]), -100.0, dtype=values.dtype, device=values.device)
    return lowest.scatter_reduce(0, _owner(lengths)[:, None].expand_as(values), values, "amax")


@mistake("segment_max", "Sums are taken, not maxima.")
def sums(values, lengths):
    return values.new_zeros(len(lengths), values.shape[1]).index_add(0, _owner(lengths), values)


@mistake(
    "segment_max",
    "A rectangle is made after all: it is as large as the padded batch. Use the sequences' numbers as an index.",
)
def padded_after_all(values, lengths):
    mask = torch.arange(int(lengths.max()), device=values.device) < lengths[:, None]
    x = values.new_full((*mask.shape, values.shape[1]), -math.inf)
    return x.masked_scatter(mask[..., None].expand_as(x), values).amax(1)


@mistake(
    "segment_max",
    "A rectangle is made after all, and its padding of 0 wins where all tokens of a sequence are negative.",
)
def padded_with_zeros(values, lengths):
    mask = torch.arange(int(lengths.max()), device=values.device) < lengths[:, None]
    x = values.new_zeros(*mask.shape, values.shape[1])
    return x.masked_scatter(mask[..., None].expand_as(x), values).amax(1)


@mistake(
    "segment_max",
    "`pad_sequence` makes a rectangle after all, and its padding of 0 wins where all tokens are negative.",
)
def pad_sequence(values, lengths):
    parts = list(values.split(lengths.tolist()))
    return torch.nn.utils.rnn.pad_sequence(parts, batch_first=True).amax(1)


@mistake("segment_max", "`pad_sequence` makes a rectangle after all. Use the sequences' numbers as an index.")
def pad_sequence_with_infinity(values, lengths):
    parts = list(values.split(lengths.tolist()))
    return torch.nn.utils.rnn.pad_sequence(parts, batch_first=True, padding_value=-math.inf).amax(1)


@mistake("segment_max", "The index has one column, so only the first feature is reduced. Expand it to all features.")
def index_of_one_column(values, lengths):
    lowest = values.new_full((len(lengths), values.shape[1]), -math.inf)
    return lowest.scatter_reduce(0, _owner(lengths)[:, None], values, "amax")


@mistake("segment_max", "Means are taken, not maxima.")
def means(values, lengths):
    index = _owner(lengths)[:, None].expand_as(values)
    start = values.new_zeros(len(lengths), values.shape[1])
    return start.scatter_reduce(0, index, values, "mean", include_self=False)


@mistake("segment_max", "The maximum runs on from one sequence into the next. It begins anew with each sequence.")
def running_maximum(values, lengths):
    return values.cummax(0).values[lengths.cumsum(0) - 1]


@mistake("segment_max", "There is a loop over the sequences. Reduce all of them in one operation.")
def loop_over_sequences(values, lengths):
    return torch.stack([part.amax(0) for part in values.split(lengths.tolist())])


@mistake("segment_max", "The maxima are detached from the values, so no gradient flows back.")
def detached(values, lengths):
    index = _owner(lengths)[:, None].expand_as(values)
    lowest = values.new_full((len(lengths), values.shape[1]), -math.inf)
    return lowest.scatter_reduce(0, index, values.detach(), "amax").requires_grad_()


@alternative("segment_max")
def segment_reduce(values, lengths):
    return torch.segment_reduce(values, "max", lengths=lengths)


@alternative("segment_max")
def without_the_start(values, lengths):
    index = _owner(lengths)[:, None].expand_as(values)
    start = values.new_zeros(len(lengths), values.shape[1])
    return start.scatter_reduce(0, index, values, "amax", include_self=False)
