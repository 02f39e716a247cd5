"""Known mistakes of exercise grouping_cost, and right answers in other styles."""

import bisect

import torch

from course.checks.engine import alternative, mistake


def _groups(lengths, thresholds):
    which = torch.bucketize(lengths, torch.tensor(thresholds))
    return [lengths[which == g] for g in range(len(thresholds)) if bool((which == g).any())]


@mistake("grouping_cost", "Each group costs its threshold. It is padded to its own longest sequence only.")
def threshold_instead_of_the_longest(lengths, thresholds, cost=lambda length: length):
    which = torch.bucketize(lengths, torch.tensor(thresholds))
    return sum(int((which == g).sum()) * cost(limit) for g, limit in enumerate(thresholds))


@mistake(
    "grouping_cost",
    "That is the cost without any padding. Each sequence costs as much as the longest of its group.",
)
def without_padding(lengths, thresholds, cost=lambda length: length):
    return sum(cost(length) for length in lengths.tolist())


@mistake("grouping_cost", "`cost` is ignored: cells are counted whatever it says.")
def cost_ignored(lengths, thresholds, cost=None):
    return sum(len(group) * int(group.max()) for group in _groups(lengths, thresholds))


@mistake(
    "grouping_cost",
    "The cost is taken of all cells of a group together. It belongs to one sequence: count × cost(longest).",
)
def cost_of_the_whole_group(lengths, thresholds, cost=lambda length: length):
    return sum(cost(len(group) * int(group.max())) for group in _groups(lengths, thresholds))


@mistake("grouping_cost", "Each group counts once, however many sequences it has. Multiply by their number.")
def one_per_group(lengths, thresholds, cost=lambda length: length):
    return sum(cost(int(group.max())) for group in _groups(lengths, thresholds))


@alternative("grouping_cost")
def plain_python(lengths, thresholds, cost=lambda length: length):
    groups = {}
    for length in lengths.tolist():
        groups.setdefault(bisect.bisect_left(thresholds, length), []).append(length)
    return float(sum(len(group) * cost(max(group)) for group in groups.values()))


@alternative("grouping_cost")
def by_masks(lengths, thresholds, cost=lambda length: length):
    total, low = 0, 0
    for high in thresholds:
        inside = (lengths > low) & (lengths <= high)
        if inside.any():
            total += inside.sum().item() * cost(lengths[inside].max().item())
        low = high
    return total


@mistake("grouping_cost", "The cost is taken of the tokens of a group. Every sequence costs like its group's longest.")
def cost_of_the_tokens(lengths, thresholds, cost=lambda length: length):
    return sum(cost(int(group.sum())) for group in _groups(lengths, thresholds))


@mistake("grouping_cost", "This is a tensor. Turn the longest length into an int before `cost` gets it: int(...max()).")
def tensor_instead_of_number(lengths, thresholds, cost=lambda length: length):
    return sum(len(group) * cost(group.max()) for group in _groups(lengths, thresholds))
