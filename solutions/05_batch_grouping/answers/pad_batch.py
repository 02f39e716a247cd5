"""Known mistakes of exercise pad_batch, and right answers in other styles."""

import torch

from course.checks.engine import alternative, mistake


def _refuse_empty(lengths):
    if (lengths < 1).any():
        raise ValueError("a sequence without tokens")


@mistake(
    "pad_batch", "The mask is made from the tokens (x != 0). Token 0 is a token, too: make the mask from the lengths."
)
def mask_from_the_tokens(values, lengths):
    _refuse_empty(lengths)
    x = torch.nn.utils.rnn.pad_sequence(list(values.split(lengths.tolist())), batch_first=True)
    return x, x != 0


@mistake("pad_batch", "The tokens stand at the end of each row, the padding at its beginning. Pad on the right.")
def padded_on_the_left(values, lengths):
    _refuse_empty(lengths)
    longest = int(lengths.max())
    mask = torch.arange(longest, device=values.device) >= longest - lengths[:, None]
    x = values.new_zeros(mask.shape)
    x[mask] = values
    return x, mask


@mistake("pad_batch", "The mask is True at the padding. It is to be True where a token is.")
def mask_of_the_padding(values, lengths):
    _refuse_empty(lengths)
    mask = torch.arange(int(lengths.max()), device=values.device) < lengths[:, None]
    x = values.new_zeros(mask.shape)
    x[mask] = values
    return x, ~mask


@mistake(
    "pad_batch", "The last token of each sequence is cut off: place p holds a token if p < length, not p + 1 < length."
)
def last_token_lost(values, lengths):
    _refuse_empty(lengths)
    places = torch.arange(int(lengths.max()), device=values.device)
    starts = lengths.cumsum(0) - lengths
    mask = places + 1 < lengths[:, None]
    return values[(starts[:, None] + places).clamp(max=len(values) - 1)] * mask, mask


@mistake(
    "pad_batch", "What stands in the padding are tokens of the next sequences. Set it to 0 where the mask is False."
)
def next_tokens_in_the_padding(values, lengths):
    _refuse_empty(lengths)
    places = torch.arange(int(lengths.max()), device=values.device)
    starts = lengths.cumsum(0) - lengths
    return values[(starts[:, None] + places).clamp(max=len(values) - 1)], places < lengths[:, None]


@mistake("pad_batch", "A sequence of length 0 passes. No model can take the maximum of nothing: raise ValueError.")
def empty_sequences_pass(values, lengths):
    mask = torch.arange(int(lengths.max()), device=values.device) < lengths[:, None]
    x = values.new_zeros(mask.shape)
    x[mask] = values[: int(mask.sum())]
    return x, mask


@alternative("pad_batch")
def gathered(values, lengths):
    if int(lengths.min()) < 1:
        raise ValueError("empty")
    places = torch.arange(int(lengths.max()), device=values.device)
    starts = lengths.cumsum(0) - lengths
    mask = places < lengths[:, None]
    return values[(starts[:, None] + places).clamp(max=len(values) - 1)].where(mask, 0), mask


@mistake(
    "pad_batch",
    "There is a loop over the sequences: operations grow with their number. Compare places with lengths instead.",
)
def sequence_by_sequence(values, lengths):
    _refuse_empty(lengths)
    pieces = values.split(lengths.tolist())
    ones = [torch.ones_like(piece, dtype=torch.bool) for piece in pieces]
    pad = torch.nn.utils.rnn.pad_sequence
    return pad(list(pieces), batch_first=True), pad(ones, batch_first=True)


@alternative("pad_batch")
def masked_scatter(values, lengths):
    if torch.any(lengths == 0):
        raise ValueError("empty")
    row = torch.arange(int(lengths.max()), device=values.device)
    mask = row.expand(len(lengths), -1) < lengths.unsqueeze(1)
    return torch.zeros_like(mask, dtype=values.dtype).masked_scatter(mask, values), mask
