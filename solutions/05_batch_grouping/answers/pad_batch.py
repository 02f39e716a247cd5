"""Known mistakes of exercise pad_batch, and right answers in other styles."""

import torch

from course.engine.known_answers import alternative, mistake

MISTAKES = {
    "mask_from_the_tokens": (
        "The mask is made from the tokens (x != 0), but 0 is a token, too. Make the mask from the lengths.",
        ("return x, mask", "return x, x != 0"),
    ),
    "padded_on_the_left": (
        "The tokens are at the end of each row, the padding at its beginning. Pad on the right.",
        ("< lengths[:, None]", ">= int(lengths.max()) - lengths[:, None]"),
    ),
    "mask_of_the_padding": (
        "The mask is inverted: it is True at the padding. It must be True at tokens.",
        ("return x, mask", "return x, ~mask"),
    ),
    "last_token_lost": (
        "The last token of each sequence is cut off: column p holds a token if p < length, not p + 1 < length.",
        (
            "return x, mask",
            "mask[range(len(mask)), lengths - 1] = False\n    return x * mask, mask",
        ),
    ),
    "transposed": (
        "x and mask are transposed: a row per token of the longest sequence. Make a row per sequence.",
        ("return x, mask", "return x.T, mask.T"),
    ),
    "mask_of_numbers": (
        "The mask holds numbers (0 and 1). It must be bool: a comparison gives bool.",
        ("return x, mask", "return x, mask.long()"),
    ),
    "filled_column_by_column": (
        "The tokens are spread over the cells column by column. Fill the rectangle row by row.",
        ("x[mask] =", "x.T[mask.T] ="),
    ),
    "tokens_run_on": (
        "The tokens run on from row to row, without padding between. Let the mask say where they go: x[mask].",
        ("x[mask] =", "x.view(-1)[: len(values)] ="),
    ),
    "swapped": (
        "x and mask have changed places. Return (x, mask).",
        ("return x, mask", "return mask, x"),
    ),
    "one_column_too_many": (
        "There is one column too many: make columns 0 to longest - 1.",
        ("int(lengths.max())", "int(lengths.max()) + 1"),
    ),
}


@mistake("The padding holds tokens of the next sequences. Set x to 0 where the mask is False.")
def next_tokens_in_the_padding(values, lengths):
    places = torch.arange(int(lengths.max()), device=values.device)
    starts = lengths.cumsum(0) - lengths
    return values[(starts[:, None] + places).clamp(max=len(values) - 1)], places < lengths[:, None]


@alternative
def gathered(values, lengths):
    places = torch.arange(int(lengths.max()), device=values.device)
    starts = lengths.cumsum(0) - lengths
    mask = places < lengths[:, None]
    return values[(starts[:, None] + places).clamp(max=len(values) - 1)].where(mask, 0), mask


@mistake(
    "There is a loop over the sequences: operations grow with their number. Compare columns with lengths."
)
def sequence_by_sequence(values, lengths):
    pieces = values.split(lengths.tolist())
    ones = [torch.ones_like(piece, dtype=torch.bool) for piece in pieces]
    pad = torch.nn.utils.rnn.pad_sequence
    return pad(list(pieces), batch_first=True), pad(ones, batch_first=True)


@mistake(
    "`split` and `pad_sequence` loop over the sequences for you. Fill all rows in one call, by the mask."
)
def split_and_pad_sequence(values, lengths):
    x = torch.nn.utils.rnn.pad_sequence(values.split(lengths.tolist()), batch_first=True)
    return x, torch.arange(x.shape[1], device=values.device) < lengths[:, None]


@alternative
def masked_scatter(values, lengths):
    row = torch.arange(int(lengths.max()), device=values.device)
    mask = row.expand(len(lengths), -1) < lengths.unsqueeze(1)
    return torch.zeros_like(mask, dtype=values.dtype).masked_scatter(mask, values), mask


@mistake(
    "There is a Python loop, if only over lists. Compare columns with lengths, for all sequences in one call."
)
def loops_over_lists(values, lengths):
    tokens, counts = values.tolist(), lengths.tolist()
    rows, masks, first = [], [], 0
    for count in counts:
        padding = max(counts) - count
        rows.append(tokens[first : first + count] + [0] * padding)
        masks.append([True] * count + [False] * padding)
        first += count
    return torch.tensor(rows, device=values.device), torch.tensor(masks, device=values.device)
