"""Known mistakes of exercise flatten_batch, and right answers in other styles."""

import torch

from course.checks.engine import alternative, mistake


@mistake(
    "flatten_batch",
    "The offsets lack the 0 at the beginning. There are n + 1: where each sequence begins, and the end.",
)
def without_the_first(x, mask):
    return x[mask], mask.sum(1).cumsum(0)


@mistake("flatten_batch", "The offsets lack the end. There are n + 1: where each sequence begins, and the end.")
def without_the_end(x, mask):
    ends = mask.sum(1).cumsum(0)
    return x[mask], ends - mask.sum(1)


@mistake("flatten_batch", "These are lengths, not offsets. Add them up.")
def lengths_instead(x, mask):
    return x[mask], torch.nn.functional.pad(mask.sum(1), (1, 0))


@mistake("flatten_batch", "The padding is still among the tokens. Keep those where the mask is True.")
def padding_kept(x, mask):
    return x.flatten(0, 1), torch.nn.functional.pad(mask.sum(1).cumsum(0), (1, 0))


@mistake("flatten_batch", "x != 0 is no mask: a token may be 0, and padding may be anything. Use x[mask].")
def what_is_not_zero(x, mask):
    return x[x != 0], torch.nn.functional.pad(mask.sum(1).cumsum(0), (1, 0))


@mistake("flatten_batch", "The tokens are read column by column. Read row by row: one sequence after the other.")
def column_by_column(x, mask):
    return x.transpose(0, 1)[mask.T], torch.nn.functional.pad(mask.sum(1).cumsum(0), (1, 0))


@mistake(
    "flatten_batch", "The mask is added up over the sequences. A length counts the True of a row: sum over dimension 1."
)
def columns_counted(x, mask):
    return x[mask], torch.nn.functional.pad(mask.sum(0).cumsum(0), (1, 0))


@mistake("flatten_batch", "These are the n lengths. Offsets are n + 1: where each sequence begins, and the end.")
def plain_lengths(x, mask):
    return x[mask], mask.sum(1)


@mistake("flatten_batch", "The padding is kept and the tokens are dropped. The mask is True at tokens.")
def mask_turned_round(x, mask):
    return x[~mask], torch.nn.functional.pad(mask.sum(1).cumsum(0), (1, 0))


@alternative("flatten_batch")
def sequence_by_sequence(x, mask):
    lengths = mask.sum(1).tolist()
    values = torch.cat([row[:length] for row, length in zip(x, lengths, strict=True)])
    offsets = [0]
    for length in lengths:
        offsets.append(offsets[-1] + length)
    return values, torch.tensor(offsets, device=x.device)


@alternative("flatten_batch")
def by_places(x, mask):
    values = x.flatten(0, 1)[mask.flatten().nonzero().squeeze(1)]
    offsets = torch.zeros(len(mask) + 1, dtype=torch.int64, device=x.device)
    offsets[1:] = mask.sum(1).cumsum(0)
    return values, offsets
