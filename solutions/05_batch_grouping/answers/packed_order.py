"""Known mistakes of exercise packed_order, and right answers in other styles."""

import torch

from course.checks.engine import alternative, mistake


def _packed(values, lengths, descending=True, stable=True, by_step=True):
    order = lengths.argsort(descending=descending, stable=stable)
    starts, step = (lengths.cumsum(0) - lengths)[order], torch.arange(int(lengths.max()), device=values.device)
    if not by_step:
        mask = step < lengths[order][:, None]
        return values[(starts[:, None] + step)[mask]], mask.sum(0)
    mask = step[:, None] < lengths[order]
    return values[(starts + step[:, None])[mask]], mask.sum(1)


@mistake("packed_order", "The tokens stand sequence by sequence. In a packed sequence they stand step by step.")
def sequence_by_sequence(values, lengths):
    return _packed(values, lengths, by_step=False)


@mistake(
    "packed_order",
    "The shortest sequence comes first. The longest does, so that those that end drop out at the back.",
)
def shortest_first(values, lengths):
    return _packed(values, lengths, descending=False)


@mistake(
    "packed_order",
    "The places are computed from the sorted lengths, but `values` are in the order of the batch. Compute the starts "
    "first, then sort them, too.",
)
def starts_of_the_sorted(values, lengths):
    lengths = lengths.sort(descending=True, stable=True).values
    return _packed(values, lengths)


@mistake("packed_order", "The sequences stand in the order of the batch. Sort them by falling length first.")
def order_of_the_batch(values, lengths):
    starts, step = lengths.cumsum(0) - lengths, torch.arange(int(lengths.max()), device=values.device)
    mask = step[:, None] < lengths
    return values[(starts + step[:, None])[mask]], mask.sum(1)


@mistake(
    "packed_order",
    "batch_sizes holds the lengths of the sequences. It says how many sequences are still going at each step.",
)
def lengths_as_batch_sizes(values, lengths):
    return _packed(values, lengths)[0], lengths.sort(descending=True).values


@mistake("packed_order", "Sequences of equal length change their order. Sort stably.")
def equal_ones_turned_round(values, lengths):
    order = lengths.flip(0).argsort(descending=True, stable=True)
    order = len(lengths) - 1 - order
    starts, step = (lengths.cumsum(0) - lengths)[order], torch.arange(int(lengths.max()), device=values.device)
    mask = step[:, None] < lengths[order]
    return values[(starts + step[:, None])[mask]], mask.sum(1)


@mistake(
    "packed_order",
    "The sequences stand one after the other, with their lengths. Go column by column: first all first tokens.",
)
def sorted_sequences(values, lengths):
    order = lengths.argsort(descending=True, stable=True)
    parts = values.split(lengths.tolist())
    return torch.cat([parts[i] for i in order.tolist()]), lengths[order]


@mistake("packed_order", "The padding is still there. Sequences that have ended drop out.")
def padding_kept(values, lengths):
    order = lengths.argsort(descending=True, stable=True)
    parts = values.split(lengths.tolist())
    x = torch.nn.utils.rnn.pad_sequence([parts[i] for i in order.tolist()])
    return x.flatten(), _packed(values, lengths)[1]


@mistake("packed_order", "batch_sizes counts a sequence once more after it has ended: compare length > t, t from 0.")
def one_step_too_long(values, lengths):
    step = torch.arange(int(lengths.max()), device=values.device)
    return _packed(values, lengths)[0], (lengths >= step[:, None]).sum(1)


@mistake("packed_order", "batch_sizes is added up. It says how many sequences have a token at each place.")
def added_up(values, lengths):
    data, batch_sizes = _packed(values, lengths)
    return data, batch_sizes.cumsum(0)


@alternative("packed_order")
def plain_python(values, lengths):
    pieces = sorted(values.split(lengths.tolist()), key=len, reverse=True)
    steps = [[piece[t] for piece in pieces if len(piece) > t] for t in range(len(pieces[0]))]
    data = torch.stack([token for step in steps for token in step])
    return data, torch.tensor([len(step) for step in steps], device=values.device)


@alternative("packed_order")
def sorted_by_step_then_length(values, lengths):
    total = len(values)
    owner = torch.arange(len(lengths), device=values.device).repeat_interleave(lengths)
    step = torch.arange(total, device=values.device) - (lengths.cumsum(0) - lengths)[owner]
    rank = torch.empty_like(lengths)
    rank[lengths.argsort(descending=True, stable=True)] = torch.arange(len(lengths), device=values.device)
    return values[(step * len(lengths) + rank[owner]).argsort()], torch.bincount(step)
