"""Known mistakes of exercise segment_max, and right answers in other styles."""

import math

import torch

from course.engine.known_answers import alternative, mistake

MISTAKES = {
    "started_from_zero": (
        "The maxima start from 0, which wins where all tokens are negative. Start from minus infinity.",
        ("-math.inf", "0.0"),
    ),
    "started_from_zeros_of_float32": (
        "The maxima start from 0 in float32: torch.zeros. Start from minus infinity in their dtype: values.new_full.",
        ("-math.inf, dtype=values.dtype", "0.0"),
    ),
    "started_from_minus_a_hundred": (
        "The maxima start from a number that tokens may fall below. Start from minus infinity.",
        ("-math.inf", "-100.0"),
    ),
    "sums": (
        "Sums are taken, not maxima.",
        ("-math.inf", "0.0"),
        ('"amax"', '"sum"'),
    ),
    "index_of_one_column": (
        "The index has one column, so only the first feature is reduced. Expand it to all features.",
        (".expand_as(values)", ""),
    ),
    "index_of_one_dimension": (
        "The index has one dimension, the values have two. Give it one for each value: owner[:, None], expanded to the "
        "values' shape.",
        ("owner[:, None].expand_as(values)", "owner"),
    ),
    "means": (
        "Means are taken, not maxima.",
        ('"amax"', '"mean", include_self=False'),
    ),
    "detached": (
        "The maxima are detached from the values, so no gradient flows back.",
        ("(values), values", "(values), values.detach()"),
        ('"amax")', '"amax").requires_grad_()'),
    ),
    "detached_without_a_graph": (
        "The maxima are detached from the values, so no gradient flows back.",
        ("(values), values", "(values), values.detach()"),
    ),
}


@mistake(
    "A rectangle is made after all: it is as large as the padded batch. Use the sequences' numbers as an index."
)
def padded_after_all(values, lengths):
    mask = torch.arange(int(lengths.max()), device=values.device) < lengths[:, None]
    x = values.new_full((*mask.shape, values.shape[1]), -math.inf)
    return x.masked_scatter(mask[..., None].expand_as(x), values).amax(1)


@mistake(
    "A rectangle is made after all, and its padding of 0 wins where all tokens of a sequence are negative."
)
def padded_with_zeros(values, lengths):
    mask = torch.arange(int(lengths.max()), device=values.device) < lengths[:, None]
    x = values.new_zeros(*mask.shape, values.shape[1])
    return x.masked_scatter(mask[..., None].expand_as(x), values).amax(1)


@mistake(
    "`pad_sequence` makes a rectangle after all, and its padding of 0 wins where all tokens are negative."
)
def pad_sequence(values, lengths):
    parts = list(values.split(lengths.tolist()))
    return torch.nn.utils.rnn.pad_sequence(parts, batch_first=True).amax(1)


@mistake("`pad_sequence` makes a rectangle after all. Use the sequences' numbers as an index.")
def pad_sequence_with_infinity(values, lengths):
    parts = list(values.split(lengths.tolist()))
    return torch.nn.utils.rnn.pad_sequence(parts, batch_first=True, padding_value=-math.inf).amax(1)


@mistake("The maximum runs on from one sequence into the next. Start again with each sequence.")
def running_maximum(values, lengths):
    return values.cummax(0).values[lengths.cumsum(0) - 1]


@mistake("There is a loop over the sequences. Reduce all of them in one operation.")
def loop_over_sequences(values, lengths):
    return torch.stack([part.amax(0) for part in values.split(lengths.tolist())])


@mistake("One maximum is taken over all features of a sequence. Each feature has its own.")
def over_features_too(values, lengths):
    owner = torch.arange(len(lengths), device=values.device).repeat_interleave(lengths)
    lowest = values.new_full((len(lengths),), -math.inf)
    maxima = lowest.scatter_reduce(0, owner, values.amax(1), "amax")
    return maxima[:, None].expand(-1, values.shape[1])


@alternative
def segment_reduce(values, lengths):
    return torch.segment_reduce(values, "max", lengths=lengths)


@alternative
def without_the_start(values, lengths):
    owner = torch.arange(len(lengths), device=values.device).repeat_interleave(lengths)
    start = values.new_zeros(len(lengths), values.shape[1])
    return start.scatter_reduce(
        0, owner[:, None].expand_as(values), values, "amax", include_self=False
    )


@alternative
def by_a_repeated_index(values, lengths):
    owner = torch.arange(len(lengths), device=values.device).repeat_interleave(lengths)
    index = owner.unsqueeze(1).repeat(1, values.shape[1])
    lowest = values.new_full((len(lengths), values.shape[1]), -math.inf)
    return lowest.scatter_reduce(0, index, values, "amax")


@alternative
def last_of_the_sorted(values, lengths):
    owner = torch.arange(len(lengths), device=values.device).repeat_interleave(lengths)
    order = values.detach().argsort(dim=0)
    order = order.gather(0, owner[order].argsort(dim=0, stable=True))
    return values.gather(0, order[lengths.cumsum(0) - 1])
