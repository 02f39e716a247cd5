"""Known mistakes of exercise find_thresholds, and right answers in other styles."""

import random

import torch

from course.engine.known_answers import alternative
from course.training import grouping

MISTAKES = {
    "never_moved": (
        "Your trials stop where they were drawn: a neighbour still costs less. Move until none does.",
        ("            thresholds = moved\n", "            break\n"),
    ),
    "moved_once": (
        "Each trial moves once at most, and a neighbour may still cost less. Repeat until none does.",
        ("            thresholds = moved\n", "            thresholds = moved\n            break\n"),
    ),
    "uphill": (
        "Your search moves to the most expensive neighbour. Take the cheapest: min, not max.",
        ("moved = min(", "moved = max("),
        ("if cost(moved) >= cost(thresholds)", "if cost(moved) <= cost(thresholds)"),
        ("return min(found", "return max(found"),
    ),
    "last_trial": (
        "You return the last trial. Return the cheapest of all: min(found, key=cost).",
        ("min(found, key=cost)", "found[-1]"),
    ),
    "one_trial": (
        "Your search ends after one trial. Run `num_trials`, and keep the cheapest.",
        ("range(num_trials)", "range(1)"),
    ),
    "trials_ignored": (
        "You run more trials than asked, because you ignore `num_trials`. Run that many.",
        ("range(num_trials)", "range(300)"),
    ),
    "own_random_numbers": (
        "You ignore `generator`, so no result can be repeated. Pass it to torch.randperm.",
        (", generator=generator)", ")"),
    ),
    "seeded_inside": (
        "Every trial starts at the same thresholds, whatever the generator. Draw from `generator`.",
        (", generator=generator)", ", generator=torch.Generator().manual_seed(0))"),
    ),
    "starts_among_the_shorter": (
        "Trials start among the shorter lengths only. Draw from all below the longest: randperm(len(occurring) - 1).",
        (
            "len(occurring) - 1, generator",
            "min(len(occurring) - 1, max(k - 1, len(occurring) // 2)), generator",
        ),
    ),
    "starts_side_by_side": (
        "Each trial starts at neighbouring lengths. Draw k - 1 of all places: randperm(len(occurring) - 1)[: k - 1].",
        (
            "        drawn = torch.randperm(len(occurring) - 1, generator=generator)[: k - 1]",
            "        first = torch.randint(max(1, len(occurring) - k + 1), (), generator=generator)\n"
            "        drawn = torch.arange(len(occurring) - 1)[first : first + k - 1]",
        ),
    ),
    "without_the_longest": (
        "The longest length is missing, so its sequences are in no group. Append occurring[-1].",
        ("return min(found, key=cost)", "return min(found, key=cost)[:-1]"),
    ),
    "one_group_too_many": (
        "There is one threshold too many: k groups have k - 1 below the longest length.",
        ("[: k - 1]", "[:k]"),
    ),
    "cost_ignored": (
        "You minimise cells and ignore `cost_fn`. Compare by cost(thresholds).",
        (
            "    found = []",
            "    cost = grouping.cost_of_groups(lengths, lambda length: length)\n    found = []",
        ),
    ),
    "drawn_from_the_shortest": (
        "Every trial starts at the shortest lengths, so all end in the same place. Draw the start.",
        (
            "torch.randperm(len(occurring) - 1, generator=generator)",
            "torch.arange(len(occurring) - 1)",
        ),
    ),
}


@alternative
def first_better_neighbour(
    lengths, k, num_trials=10, cost_fn=lambda length: length, generator=None
):
    occurring = lengths.unique().tolist()
    cost = grouping.cost_of_groups(lengths, cost_fn)
    best, least = None, float("inf")
    for _ in range(num_trials):
        places = torch.randperm(len(occurring) - 1, generator=generator)[: k - 1].sort().values
        now = [occurring[place] for place in places.tolist()] + occurring[-1:]
        better = now
        while better is not None:
            now = better
            better = next(
                (t for t in grouping.neighbours(now, occurring) if cost(t) < cost(now)), None
            )
        if cost(now) < least:
            best, least = now, cost(now)
    return best


@alternative
def with_pythons_random(lengths, k, num_trials=10, cost_fn=lambda length: length, generator=None):
    *below, longest = sorted({*lengths.tolist()})
    counts = [(length, int((lengths == length).sum())) for length in [*below, longest]]
    rng = random.Random(int(torch.randint(2**31, (), generator=generator)))

    def cost(limits):
        return sum(n * cost_fn(next(t for t in limits if t >= length)) for length, n in counts)

    def climb(limits):
        while True:
            options = grouping.neighbours(limits, [*below, longest])
            lower = [option for option in options if cost(option) < cost(limits)]
            if not lower:
                return limits
            limits = rng.choice(lower)

    starts = [sorted(rng.sample(below, min(k - 1, len(below)))) for _ in range(num_trials)]
    return min((climb([*start, longest]) for start in starts), key=cost)
