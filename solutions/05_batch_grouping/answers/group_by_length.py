"""Known mistakes of exercise group_by_length, and right answers in other styles."""

import bisect

import torch

from course.checks.engine import alternative, mistake


def _between(lengths, thresholds, lowest=0):
    borders = [lowest, *thresholds]
    pairs = zip(borders, borders[1:], strict=False)
    return [((lengths > low) & (lengths <= high)).nonzero().squeeze(1) for low, high in pairs]


@mistake(
    "group_by_length",
    "A length equal to a threshold goes into the next group. It belongs to the group of its threshold: <=.",
)
def border_goes_up(lengths, thresholds):
    which = torch.bucketize(lengths, torch.tensor(thresholds, device=lengths.device), right=True)
    which = which.clamp(max=len(thresholds) - 1)
    return [(which == g).nonzero().squeeze(1) for g in range(len(thresholds))]


@mistake(
    "group_by_length", "Each group holds all sequences up to its threshold, those of the groups before it included."
)
def everything_below(lengths, thresholds):
    return [(lengths <= limit).nonzero().squeeze(1) for limit in thresholds]


@mistake("group_by_length", "Empty groups are left out, so that groups and thresholds no longer belong together.")
def empty_groups_left_out(lengths, thresholds):
    return [rows for rows in _between(lengths, thresholds) if len(rows)]


@mistake("group_by_length", "Sequences are sorted by length. Inside a group they keep the order of the batch.")
def sorted_by_length(lengths, thresholds):
    order = lengths.argsort(stable=True)
    return [order[(lengths[order] > low) & (lengths[order] <= high)]
            for low, high in zip([0, *thresholds], thresholds, strict=False)]  # fmt: skip


@mistake(
    "group_by_length",
    "These are the lengths of the sequences. Return their indices: which sequences of the batch they are.",
)
def lengths_instead_of_rows(lengths, thresholds):
    return [lengths[rows] for rows in _between(lengths, thresholds)]


@mistake(
    "group_by_length",
    "A length equal to a threshold goes into the next group, or into none if it is the last. Leave out right=True, and "
    "compare with <=: a threshold is the longest length of its own group.",
)
def border_goes_up_or_out(lengths, thresholds):
    which = torch.bucketize(lengths, torch.tensor(thresholds, device=lengths.device), right=True)
    return [(which == g).nonzero().squeeze(1) for g in range(len(thresholds))]


@mistake(
    "group_by_length",
    "A length equal to a threshold goes into two groups, its own and the next. The next one begins above it: low < "
    "length <= high.",
)
def border_in_both(lengths, thresholds):
    lows = [0, *thresholds]
    pairs = zip(lows, thresholds, strict=False)
    return [((lengths >= low) & (lengths <= high)).nonzero().squeeze(1) for low, high in pairs]


@mistake(
    "group_by_length",
    "These are bool masks. Return the indices of the sequences: mask.nonzero().squeeze(1).",
)
def masks_instead_of_indices(lengths, thresholds):
    lows = [0, *thresholds]
    return [(lengths > low) & (lengths <= high) for low, high in zip(lows, thresholds, strict=False)]


@mistake(
    "group_by_length",
    "nonzero() gives a column, (k, 1). One dimension is asked for: .squeeze(1) or .flatten().",
)
def columns_of_indices(lengths, thresholds):
    lows = [0, *thresholds]
    return [((lengths > low) & (lengths <= high)).nonzero() for low, high in zip(lows, thresholds, strict=False)]


@alternative("group_by_length")
def by_comparison(lengths, thresholds):
    groups, low = [], 0
    for high in thresholds:
        groups.append(torch.where((lengths > low) & (lengths <= high))[0])
        low = high
    return groups


@alternative("group_by_length")
def one_by_one(lengths, thresholds):
    groups = [[] for _ in thresholds]
    for row, length in enumerate(lengths.tolist()):
        place = bisect.bisect_left(thresholds, length)
        groups[place].append(row)
    return [torch.tensor(group, dtype=torch.int64, device=lengths.device) for group in groups]


@mistake(
    "group_by_length",
    "squeeze() without a dimension turns a group of one sequence into a number. Use squeeze(1) or flatten().",
)
def squeezed_too_far(lengths, thresholds):
    which = torch.bucketize(lengths, torch.tensor(thresholds, device=lengths.device))
    return [(which == g).nonzero().squeeze() for g in range(len(thresholds))]


@mistake("group_by_length", "There is one group too many, for lengths above the last threshold. There are none.")
def one_group_too_many(lengths, thresholds):
    which = torch.bucketize(lengths, torch.tensor(thresholds, device=lengths.device))
    return [(which == g).nonzero().squeeze(1) for g in range(len(thresholds) + 1)]
