"""Known mistakes of exercise best_cuts, and right answers in other styles."""

from course.checks.engine import alternative, mistake


def _cuts(m, groups, weight, search):
    """A right table whose rows `search(before, group, m, weight)` fills: (row, choice)."""
    row, choices = [0.0] + [weight(0, j) for j in range(1, m + 1)], []
    for group in range(2, groups + 1):
        row, choice = search(row, group, m, weight)
        choices.append(choice)
    cuts = [m]
    for choice in reversed(choices):
        cuts.append(choice[cuts[-1]])
    return cuts[::-1]


def _halving(before, group, m, weight, pick=min, down=0, up=0, left=True, right=True, end=1):
    row, choice = [float("inf")] * (m + 1), [0] * (m + 1)

    def solve(low, high, first, last):
        if low > high:
            return
        j = (low + high) // 2
        tried = [(before[i] + weight(i, j), i) for i in range(first, max(first, min(last, j - 1)) + end) if i < j]
        row[j], choice[j] = pick(tried, default=(float("inf"), first))
        solve(low, j - 1, first, choice[j] - down if left else m)
        solve(j + 1, high, choice[j] + up if right else group - 1, last)

    solve(group, m, group - 1, m - 1)
    return row, choice


@mistake(
    "best_cuts",
    "Every i is tried for every j: m² calls per line. The best i never falls as j grows: pass that on as a bound.",
)
def every_pair(m, groups, weight):
    def search(before, group, m, weight):
        row, choice = [float("inf")] * (m + 1), [0] * (m + 1)
        for j in range(group, m + 1):
            row[j], choice[j] = min((before[i] + weight(i, j), i) for i in range(group - 1, j))
        return row, choice

    return _cuts(m, groups, weight, search)


@mistake(
    "best_cuts",
    "The runs are cut one at a time, each the best then, and never moved. That is not the best of all.",
)
def greedy(m, groups, weight):
    ends = [m]
    for _ in range(groups - 1):
        tried = []
        for new in range(1, m):
            if new not in ends:
                cut = sorted([*ends, new])
                tried.append((sum(weight(i, j) for i, j in zip([0, *cut], cut, strict=False)), cut))
        ends = min(tried)[1]
    return ends


def _halved(**options):
    return lambda *args: _halving(*args, **options)


@mistake(
    "best_cuts",
    "Only one of the two bounds is passed on. The middle's i bounds the left half from above and the right half from "
    "below: use both.",
)
def bound_from_below_alone(m, groups, weight):
    return _cuts(m, groups, weight, _halved(left=False))


@mistake(
    "best_cuts",
    "The right half begins one i too late: its best i may equal that of the middle. Pass choice[j], not choice[j] + 1.",
)
def one_too_late(m, groups, weight):
    return _cuts(m, groups, weight, _halved(up=1))


@mistake(
    "best_cuts",
    "The left half ends one i too early: its best i may equal that of the middle. Pass choice[j], not choice[j] - 1, "
    "and try that i, too: range(first, last + 1).",
)
def one_too_early(m, groups, weight):
    return _cuts(m, groups, weight, _halved(down=1))


@mistake("best_cuts", "range() leaves out its end, so the last i is never tried: range(first, min(last, j - 1) + 1).")
def last_cut_never_tried(m, groups, weight):
    return _cuts(m, groups, weight, _halved(end=0))


@mistake(
    "best_cuts",
    "Each run is weighed without its last item. weight(i, j) is that of the items i to j - 1: pass j, not j - 1.",
)
def last_item_left_out(m, groups, weight):
    def search(before, group, m, weight):
        return _halving(before, group, m, lambda i, j: weight(i, j - 1) if j - 1 > i else 0.0)

    return _cuts(m, groups, weight, search)


@mistake("best_cuts", "These are the beginnings of the runs. Return where they end: the last one is m.")
def beginnings(m, groups, weight):
    cuts = _cuts(m, groups, weight, _halving)
    return [0, *cuts[:-1]]


@mistake("best_cuts", "The cuts of greatest weight are returned. Take the least: min, not max.")
def greatest(m, groups, weight):
    return _cuts(m, groups, weight, lambda *args: _halving(*args, pick=max))


@alternative("best_cuts")
def by_recursion(m, groups, weight):
    return _cuts(m, groups, weight, _halving)


@alternative("best_cuts")
def shortest_of_both_bounds(m, groups, weight):
    def search(before, group, m, weight):
        row, choice = [float("inf")] * (m + 1), [group - 1] * (m + 1)
        step = 1
        while 2 * step <= m:
            step *= 2
        done = {0: group - 1, m + 1: m - 1}
        while step:
            for j in range(step, m + 1, 2 * step):
                if j >= group:
                    low, high = max(done.get(j - step, group - 1), group - 1), min(done.get(j + step, m - 1), j - 1)
                    row[j], choice[j] = min((before[i] + weight(i, j), i) for i in range(low, high + 1))
                    done[j] = choice[j]
            step //= 2
        return row, choice

    return _cuts(m, groups, weight, search)


@mistake(
    "best_cuts",
    "Places of the line stay empty: fill calls itself for both halves, and a range of one place is filled, too.",
)
def left_half_alone(m, groups, weight):
    def search(before, group, m, weight):
        row, choice = [float("inf")] * (m + 1), [0] * (m + 1)
        high = m
        while high >= group:
            j = (group + high) // 2
            row[j], choice[j] = min((before[i] + weight(i, j), i) for i in range(group - 1, j))
            high = j - 1
        return row, choice

    return _cuts(m, groups, weight, search)
