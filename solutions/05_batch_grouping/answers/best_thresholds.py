"""Known mistakes of exercise best_thresholds, and right answers in other styles."""

import functools
import itertools

import numpy
import torch

from course.checks.engine import alternative, mistake


def _table(lengths, groups, per_sequence, weigh=None, nearest=0):
    """A right search, parts of which mistakes replace: cost of a length, weight of a run; how many i are tried."""
    occurring, counts = lengths.unique(return_counts=True)
    occurring, upto = occurring.tolist(), [0, *counts.cumsum(0).tolist()]
    weigh = weigh or (lambda i, j: (upto[j] - upto[i]) * per_sequence(occurring[j - 1]))
    m = len(occurring)
    least, choices = [0.0] + [float("inf")] * m, []
    for _ in range(min(groups, m)):
        row, choice = [float("inf")] * (m + 1), [0] * (m + 1)
        for j in range(1, m + 1):
            row[j], choice[j] = min((least[i] + weigh(i, j), i) for i in range(max(0, nearest and j - nearest), j))
        least = row
        choices.append(choice)
    found, j = [], m
    for choice in reversed(choices):
        found.append(occurring[j - 1])
        j = choice[j]
    return found[::-1]


@mistake(
    "best_thresholds",
    "Each different length counts once. A length that 50 sequences have weighs 50 times as much.",
)
def each_length_once(lengths, groups, cost=lambda length: length):
    return _table(lengths.unique(), groups, cost)


@mistake("best_thresholds", "`cost` is ignored: the cells are made least, whatever it says. Use costs[j - 1].")
def cost_ignored(lengths, groups, cost=None):
    return _table(lengths, groups, lambda length: length)


@mistake("best_thresholds", "These are quantiles: groups of equal size. Groups of least cost have different sizes.")
def quantiles(lengths, groups, cost=lambda length: length):
    ordered = lengths.sort().values
    places = [-(-len(ordered) * (g + 1) // groups) - 1 for g in range(groups)]
    return sorted({int(ordered[p]) for p in places})


@mistake("best_thresholds", "Lengths are cut into ranges of equal width. Ranges of least cost have different widths.")
def equal_ranges(lengths, groups, cost=lambda length: length):
    borders = torch.linspace(0, float(lengths.max()), groups + 1)[1:]
    found = {int(lengths[lengths <= b + 0.01].max()) for b in borders.tolist() if bool((lengths <= b + 0.01).any())}
    return sorted(found)


@mistake(
    "best_thresholds",
    "Thresholds are added one at a time, each the best then, and never moved again: not the best together.",
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


def _weighing(lengths, cost, weigh):
    """The least thresholds for a weight of a run that is given the different lengths and their running counts."""
    occurring, counts = lengths.unique(return_counts=True)
    upto = [0, *counts.cumsum(0).tolist()]
    return lambda groups: _table(lengths, groups, cost, lambda i, j: weigh(occurring.tolist(), upto, i, j))


@mistake(
    "best_thresholds",
    "Each group costs as much as its shortest length. Its sequences are padded to its longest: costs[j - 1].",
)
def cost_of_the_shortest(lengths, groups, cost=lambda length: length):
    return _weighing(lengths, cost, lambda u, upto, i, j: (upto[j] - upto[i]) * cost(u[i]))(groups)


@mistake(
    "best_thresholds",
    "Each group costs as much as the first length behind it. uⱼ is lengths[j - 1], its cost costs[j - 1].",
)
def cost_of_the_next(lengths, groups, cost=lambda length: length):
    search = _weighing(lengths, cost, lambda u, upto, i, j: (upto[j] - upto[i]) * cost(u[min(j, len(u) - 1)]))
    return search(groups)


@mistake(
    "best_thresholds",
    "Only the two nearest i are tried, so each group but the first holds two lengths at most. Try every i from 0 to "
    "j - 1.",
)
def two_nearest_i(lengths, groups, cost=lambda length: length):
    return _table(lengths, groups, cost, nearest=2)


@mistake(
    "best_thresholds",
    "The last group counts all sequences up to uⱼ. Those before it have their own groups: upto[j] - upto[i].",
)
def all_sequences_so_far(lengths, groups, cost=lambda length: length):
    return _weighing(lengths, cost, lambda u, upto, i, j: upto[j] * cost(u[j - 1]))(groups)


@mistake("best_thresholds", "The greatest cost is looked for. Take the least: min, not max.")
def greatest(lengths, groups, cost=lambda length: length):
    return _weighing(lengths, cost, lambda u, upto, i, j: -(upto[j] - upto[i]) * cost(u[j - 1]))(groups)


@mistake(
    "best_thresholds",
    "One threshold is missing: with k thresholds below the longest length there are k + 1 groups.",
)
def one_group_too_few(lengths, groups, cost=lambda length: length):
    return _table(lengths, max(1, groups - 1), cost)


@mistake(
    "best_thresholds",
    "The last threshold, the longest length, is left out: the longest sequences would be in no group.",
)
def without_the_longest(lengths, groups, cost=lambda length: length):
    return _table(lengths, groups, cost)[:-1]


@alternative("best_thresholds")
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


@alternative("best_thresholds")
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
    "best_thresholds",
    "Every threshold is the longest length, because choice[m] is 0. Fill all j with range(1, m + 1), read `before`, "
    "not `least`, and set choice[j] together with least[j].",
)
def choice_of_zero(lengths, groups, cost=lambda length: length):
    cost(int(lengths.max()))
    return [int(lengths.max())] * min(groups, len(lengths.unique()))


@mistake(
    "best_thresholds",
    "Each group but the first holds a single length, as if what lies before it cost nothing. Add before[i], the least "
    "cost of the first i lengths, and try every i from 0 to j - 1.",
)
def before_ignored(lengths, groups, cost=lambda length: length):
    occurring, counts = lengths.unique(return_counts=True)
    occurring, upto = occurring.tolist(), [0, *counts.cumsum(0).tolist()]
    found, j = [], len(occurring)
    for _ in range(min(groups, len(occurring))):
        found.append(occurring[j - 1])
        j = min(((upto[j] - upto[i]) * cost(occurring[j - 1]), i) for i in range(j))[1] if j else 0
    return found[::-1]


@mistake("best_thresholds", "The groups have equally many sequences, which is not least in cost. Try where to cut.")
def equally_many(lengths, groups, cost=lambda length: length):
    return sorted({int(part.max()) for part in lengths.sort().values.chunk(groups)})
