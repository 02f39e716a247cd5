"""Known mistakes of exercise group_by_length, and right answers in other styles."""

import bisect

import torch

from course.engine.known_answers import alternative

MISTAKES = {
    "border_goes_up": (
        "A length equal to a threshold goes into the next group. It belongs to the group of its threshold: <=.",
        (
            "device=lengths.device))",
            "device=lengths.device), right=True).clamp(max=len(thresholds) - 1)",
        ),
    ),
    "everything_below": (
        "Each group holds all sequences up to its threshold, those of the groups before it included.",
        ("which == group", "which <= group"),
    ),
    "empty_groups_left_out": (
        "Empty groups are left out, so that groups and thresholds no longer belong together.",
        ("range(len(thresholds))", "which.unique().tolist()"),
    ),
    "sorted_by_length": (
        "Sequences are sorted by length. Inside a group they keep the order of the batch.",
        (".squeeze(1)", ".squeeze(1)[lengths[which == group].argsort(stable=True)]"),
    ),
    "lengths_instead_of_rows": (
        "These are the lengths of the sequences. Return their indices: which sequences of the batch they are.",
        ("(which == group).nonzero().squeeze(1)", "lengths[which == group]"),
    ),
    "border_goes_up_or_out": (
        "A length equal to a threshold goes into the next group, or into none after the last. Leave out right=True.",
        ("device=lengths.device))", "device=lengths.device), right=True)"),
    ),
    "border_in_both": (
        "A length equal to a threshold is in two groups. The next one begins above it: low < length <= high.",
        ("(which == group)", "((which == group) | (lengths == [0, *thresholds][group]))"),
    ),
    "masks_instead_of_indices": (
        "These are bool masks. Return the indices of the sequences: mask.nonzero().squeeze(1).",
        (".nonzero().squeeze(1)", ""),
    ),
    "columns_of_indices": (
        "nonzero() gives a column, (k, 1). Return one dimension: .squeeze(1) or .flatten().",
        (".squeeze(1)", ""),
    ),
    "squeezed_too_far": (
        "squeeze() without a dimension turns a group of one sequence into a number. Use squeeze(1) or flatten().",
        ("squeeze(1)", "squeeze()"),
    ),
    "one_group_too_many": (
        "There is one group too many, for lengths above the last threshold. There are none.",
        ("len(thresholds))", "len(thresholds) + 1)"),
    ),
}


@alternative
def by_comparison(lengths, thresholds):
    groups, low = [], 0
    for high in thresholds:
        groups.append(torch.where((lengths > low) & (lengths <= high))[0])
        low = high
    return groups


@alternative
def one_by_one(lengths, thresholds):
    groups = [[] for _ in thresholds]
    for row, length in enumerate(lengths.tolist()):
        place = bisect.bisect_left(thresholds, length)
        groups[place].append(row)
    return [torch.tensor(group, dtype=torch.int64, device=lengths.device) for group in groups]
