"""Known mistakes of exercise flatten_batch, and right answers in other styles."""

import torch

from course.engine.known_answers import alternative

MISTAKES = {
    "without_the_first": (
        "The offsets lack the 0 at the beginning. There are n + 1: where each sequence begins, and the end.",
        ("F.pad(mask.sum(1).cumsum(0), (1, 0))", "mask.sum(1).cumsum(0)"),
    ),
    "without_the_end": (
        "The offsets lack the end. There are n + 1: where each sequence begins, and the end.",
        ("(1, 0))", "(1, 0))[:-1]"),
    ),
    "lengths_instead": (
        "These are lengths, not offsets. Add them up.",
        (".cumsum(0)", ""),
    ),
    "padding_kept": (
        "The padding is still among the tokens. Keep those where the mask is True.",
        ("x[mask]", "x.flatten(0, 1)"),
    ),
    "what_is_not_zero": (
        "x != 0 is not the mask: a token may be 0, and padding may be anything. Use x[mask].",
        ("x[mask]", "x[x != 0]"),
    ),
    "column_by_column": (
        "The tokens are read column by column. Read row by row: one sequence after the other.",
        ("x[mask]", "x.transpose(0, 1)[mask.T]"),
    ),
    "columns_counted": (
        "The mask is added up over the sequences. A length counts the True of a row: sum over dimension 1.",
        ("sum(1)", "sum(0)"),
    ),
    "plain_lengths": (
        "These are the n lengths. Offsets are n + 1: where each sequence begins, and the end.",
        ("F.pad(mask.sum(1).cumsum(0), (1, 0))", "mask.sum(1)"),
    ),
    "mask_turned_round": (
        "The padding is kept and the tokens are dropped. The mask is True at tokens.",
        ("x[mask]", "x[~mask]"),
    ),
}


@alternative
def sequence_by_sequence(x, mask):
    lengths = mask.sum(1).tolist()
    values = torch.cat([row[:length] for row, length in zip(x, lengths, strict=True)])
    offsets = [0]
    for length in lengths:
        offsets.append(offsets[-1] + length)
    return values, torch.tensor(offsets, device=x.device)


@alternative
def by_places(x, mask):
    values = x.flatten(0, 1)[mask.flatten().nonzero().squeeze(1)]
    offsets = torch.zeros(len(mask) + 1, dtype=torch.int64, device=x.device)
    offsets[1:] = mask.sum(1).cumsum(0)
    return values, offsets
