"""Known mistakes of exercise group_by_length, and right answers in other styles."""

import bisect

import torch

from course.checks.engine import alternative, mistake


def _refuse(lengths, thresholds):
    if sorted({*thresholds}) != list(thresholds) or int(lengths.max()) > thresholds[-1]:
        raise ValueError("thresholds")


def _between(lengths, thresholds, lowest=0):
    borders = [lowest, *thresholds]
    pairs = zip(borders, borders[1:], strict=False)
    return [((lengths > low) & (lengths <= high)).nonzero().squeeze(1) for low, high in pairs]


@mistake(
    "group_by_length",
    "A length equal to a threshold goes into the next group. A threshold belongs to its own group: <=.",
)
def border_goes_up(lengths, thresholds):
    _refuse(lengths, thresholds)
    which = torch.bucketize(lengths, torch.tensor(thresholds, device=lengths.device), right=True)
    which = which.clamp(max=len(thresholds) - 1)
    return [(which == g).nonzero().squeeze(1) for g in range(len(thresholds))]


@mistake("group_by_length", "Each group holds all rows up to its threshold, those of the groups before it included.")
def everything_below(lengths, thresholds):
    _refuse(lengths, thresholds)
    return [(lengths <= limit).nonzero().squeeze(1) for limit in thresholds]


@mistake("group_by_length", "Empty groups are left out, so that groups and thresholds no longer belong together.")
def empty_groups_left_out(lengths, thresholds):
    _refuse(lengths, thresholds)
    return [rows for rows in _between(lengths, thresholds) if len(rows)]


@mistake("group_by_length", "Rows are sorted by their length. Inside a group they keep the order of the batch.")
def sorted_by_length(lengths, thresholds):
    _refuse(lengths, thresholds)
    order = lengths.argsort(stable=True)
    return [order[(lengths[order] > low) & (lengths[order] <= high)]
            for low, high in zip([0, *thresholds], thresholds, strict=False)]  # fmt: skip


@mistake(
    "group_by_length",
    "These are the lengths of the rows. Return the numbers of the rows: their places in the batch.",
)
def lengths_instead_of_rows(lengths, thresholds):
    _refuse(lengths, thresholds)
    return [lengths[rows] for rows in _between(lengths, thresholds)]


@mistake("group_by_length", "A sequence longer than the last threshold is dropped without a word. Raise ValueError.")
def too_long_ones_dropped(lengths, thresholds):
    if sorted({*thresholds}) != list(thresholds):
        raise ValueError
    return _between(lengths, thresholds)


@mistake(
    "group_by_length",
    "Thresholds that do not ascend pass. Some group is then empty by mistake: raise ValueError.",
)
def any_order_passes(lengths, thresholds):
    if int(lengths.max()) > max(thresholds):
        raise ValueError
    return _between(lengths, thresholds)


@alternative("group_by_length")
def by_comparison(lengths, thresholds):
    if any(b <= a for a, b in zip(thresholds, thresholds[1:], strict=False)) or bool((lengths > thresholds[-1]).any()):
        raise ValueError(thresholds)
    groups, low = [], 0
    for high in thresholds:
        groups.append(torch.where((lengths > low) & (lengths <= high))[0])
        low = high
    return groups


@alternative("group_by_length")
def one_by_one(lengths, thresholds):
    if list(thresholds) != sorted(set(thresholds)):
        raise ValueError("not ascending")
    groups = [[] for _ in thresholds]
    for row, length in enumerate(lengths.tolist()):
        place = bisect.bisect_left(thresholds, length)
        if place == len(groups):
            raise ValueError("too long")
        groups[place].append(row)
    return [torch.tensor(group, dtype=torch.int64, device=lengths.device) for group in groups]
