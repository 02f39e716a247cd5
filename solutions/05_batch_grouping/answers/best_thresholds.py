"""Known mistakes of exercise best_thresholds, and right answers in other styles."""

import functools
import itertools

import numpy
import torch

from course.engine.known_answers import alternative, mistake

MISTAKES = {
    "each_length_once": (
        "Each different length counts once. A length that 50 sequences have weighs 50 times as much.",
        ("(upto[j] - upto[i])", "(j - i)"),
    ),
    "cost_ignored": (
        "You minimise cells and ignore `cost`. Use costs[j - 1].",
        ("costs[j - 1]", "lengths[j - 1]"),
    ),
    "cost_of_the_shortest": (
        "Each group costs as much as its shortest length. Its sequences are padded to its longest: costs[j - 1].",
        ("costs[j - 1]", "costs[i]"),
    ),
    "cost_of_the_next": (
        "Each group costs as much as the first length behind it. Its own longest length costs costs[j - 1].",
        ("costs[j - 1]", "costs[min(j, m - 1)]"),
    ),
    "two_nearest_i": (
        "Only the two nearest i are tried, so later groups hold two lengths at most. Try every i from 0 to j - 1.",
        ("range(j)", "range(max(0, j - 2), j)"),
    ),
    "all_sequences_so_far": (
        "The last group counts all of the first j lengths. Those before it have their own groups: upto[j] - upto[i].",
        ("(upto[j] - upto[i])", "upto[j]"),
    ),
    "greatest": (
        "You take the greatest cost. Take the least: min, not max.",
        ("(upto[j] - upto[i])", "(upto[i] - upto[j])"),
    ),
    "one_group_too_few": (
        "One threshold is missing: with k thresholds below the longest length there are k + 1 groups.",
        ("min(groups, m)", "min(max(1, groups - 1), m)"),
    ),
    "without_the_longest": (
        "The last threshold, the longest length, is left out: the longest sequences would be in no group.",
        ("[::-1]", "[:0:-1]"),
    ),
    "choice_of_zero": (
        "Every threshold is the longest length, because choice[m] is 0. Set choice[j] with least[j], for every j.",
        ("least[j], choice[j] = min(tried)", "least[j] = min(tried)[0]"),
    ),
    "before_ignored": (
        "All groups but the first hold one length, as if those before cost nothing. Add before[i]; try all i below j.",
        ("before[i] + ", ""),
    ),
}


@mistake("These are quantiles: groups of equal size. Groups of least cost have different sizes.")
def quantiles(lengths, groups, cost=lambda length: length):
    ordered = lengths.sort().values
    places = [-(-len(ordered) * (g + 1) // groups) - 1 for g in range(groups)]
    return sorted({int(ordered[p]) for p in places})


@mistake("Lengths are cut into ranges of equal width. Ranges of least cost have different widths.")
def equal_ranges(lengths, groups, cost=lambda length: length):
    borders = torch.linspace(0, float(lengths.max()), groups + 1)[1:]
    found = {
        int(lengths[lengths <= b + 0.01].max())
        for b in borders.tolist()
        if bool((lengths <= b + 0.01).any())
    }
    return sorted(found)


@mistake(
    "You add one threshold after the other and never move it again. The best single steps are not the best set."
)
def greedy(lengths, groups, cost=lambda length: length):
    occurring = lengths.unique().tolist()

    def total(limits):
        which = torch.bucketize(lengths, torch.tensor(limits))
        runs = [lengths[which == g] for g in range(len(limits))]
        return sum(len(r) * cost(int(r.max())) for r in runs if len(r))

    chosen = [occurring[-1]]
    while len(chosen) < min(groups, len(occurring)):
        chosen = min((sorted({*chosen, t}) for t in occurring if t not in chosen), key=total)
    return chosen


@alternative
def remembered_recursion(lengths, groups, cost=lambda length: length):
    occurring, counts = (part.tolist() for part in lengths.unique(return_counts=True))
    upto = list(itertools.accumulate(counts, initial=0))

    @functools.cache
    def best(j, g):
        if g == 1:
            return upto[j] * cost(occurring[j - 1]), (occurring[j - 1],)
        last = cost(occurring[j - 1])
        tried = (
            (before + (upto[j] - upto[i]) * last, limits)
            for i in range(g - 1, j)
            for before, limits in [best(i, g - 1)]
        )
        total, limits = min(tried)
        return total, (*limits, occurring[j - 1])

    return list(best(len(occurring), min(groups, len(occurring)))[1])


@alternative
def with_numpy(lengths, groups, cost=lambda length: length):
    occurring, counts = numpy.unique(lengths.numpy(), return_counts=True)
    m, upto = len(occurring), numpy.concatenate([[0], counts.cumsum()])
    costs = numpy.array([cost(int(length)) for length in occurring], dtype=float)
    runs = (upto[None, 1:] - upto[:-1, None]) * costs[None]  # row i, column j - 1
    runs = numpy.where(numpy.arange(m)[:, None] <= numpy.arange(m)[None], runs, numpy.inf)
    least, choices = runs[0], []
    for _ in range(1, min(groups, m)):
        before = numpy.concatenate([[numpy.inf], least[:-1]])
        tried = before[:, None] + runs
        choices.append(tried.argmin(0))
        least = tried.min(0)
    found, j = [int(occurring[-1])], m - 1
    for choice in reversed(choices):
        j = int(choice[j]) - 1
        found.append(int(occurring[j]))
    return found[::-1]


@mistake(
    "The groups have equally many sequences, which does not minimise the cost. Try every cut position."
)
def equally_many(lengths, groups, cost=lambda length: length):
    return sorted({int(part.max()) for part in lengths.sort().values.chunk(groups)})
