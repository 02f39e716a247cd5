"""Known mistakes of exercise grouping_cost, and right answers in other styles."""

import bisect

from course.checks.known_answers import alternative

MISTAKES = {
    "threshold_instead_of_the_longest": (
        "Each group costs its threshold. It is padded to its own longest sequence only.",
        ("int(group.max())", "min(t for t in thresholds if t >= group.max())"),
    ),
    "without_padding": (
        "That is the cost without any padding. Each sequence costs as much as the longest of its group.",
        ("len(group) * cost(int(group.max())) for group in groups", "cost(length) for length in lengths.tolist()"),
    ),
    "cost_ignored": (
        "`cost` is ignored: cells are counted whatever it says.",
        ("cost(int(group.max()))", "int(group.max())"),
    ),
    "cost_of_the_whole_group": (
        "The cost is taken of all cells of a group together. It belongs to one sequence: count × cost(longest).",
        ("len(group) * cost(int(group.max()))", "cost(len(group) * int(group.max()))"),
    ),
    "one_per_group": (
        "Each group counts once, however many sequences it has. Multiply by their number.",
        ("len(group) * ", ""),
    ),
    "cost_of_the_tokens": (
        "The cost is taken of the tokens of a group. Every sequence costs like its group's longest.",
        ("len(group) * cost(int(group.max()))", "cost(int(group.sum()))"),
    ),
    "tensor_instead_of_number": (
        "This is a tensor. Turn the longest length into an int before `cost` gets it: int(...max()).",
        ("int(group.max())", "group.max()"),
    ),
}


@alternative
def plain_python(lengths, thresholds, cost=lambda length: length):
    groups = {}
    for length in lengths.tolist():
        groups.setdefault(bisect.bisect_left(thresholds, length), []).append(length)
    return float(sum(len(group) * cost(max(group)) for group in groups.values()))


@alternative
def by_masks(lengths, thresholds, cost=lambda length: length):
    total, low = 0, 0
    for high in thresholds:
        inside = (lengths > low) & (lengths <= high)
        if inside.any():
            total += inside.sum().item() * cost(lengths[inside].max().item())
        low = high
    return total
