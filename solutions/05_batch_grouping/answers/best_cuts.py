"""Known mistakes of exercise best_cuts, and right answers in other styles."""

from course.checks.known_answers import alternative, mistake

MISTAKES = {
    "every_pair": (
        "Every i is tried for every j: m² calls per line. The best i never falls as j grows: pass that on as a bound.",
        ("range(first, min(last, j - 1) + 1)", "range(group - 1, j)"),
    ),
    "bound_from_below_alone": (
        "Only one bound is passed on. The middle's i bounds the left half from above, the right from below: use both.",
        ("first, choice[j])", "first, last)"),
    ),
    "one_too_late": (
        "The right half begins one i too late: its best i may equal the middle's. Pass choice[j], not choice[j] + 1.",
        ("high, choice[j]", "high, choice[j] + 1"),
        ("min(last, j - 1)", "max(first, min(last, j - 1))"),
    ),
    "one_too_late_until_none_is_left": (
        "min() finds nothing to try: the right half begins one i too late. Its best i may equal the middle's: pass "
        "choice[j], not choice[j] + 1.",
        ("high, choice[j]", "high, choice[j] + 1"),
    ),
    "one_too_early": (
        "The left half ends one i too early: its best i may equal the middle's. Pass choice[j] and try that i, too.",
        ("first, choice[j])", "first, choice[j] - 1)"),
        ("min(last, j - 1)", "max(first, min(last, j - 1))"),
    ),
    "last_cut_never_tried": (
        "range() leaves out its end, so the last i is never tried: range(first, min(last, j - 1) + 1).",
        ("min((", "min([("),
        ("range(first, min(last, j - 1) + 1))", 'range(first, min(last, j - 1))], default=(float("inf"), first))'),
    ),
    "last_item_left_out": (
        "Each group leaves out its last length. group_cost(i, j) covers lengths i to j - 1: pass j, not j - 1.",
        ("group_cost(i, j), i)", "(group_cost(i, j - 1) if i < j - 1 else 0.0), i)"),
    ),
    "beginnings": (
        "These are the beginnings of the groups. Return where they end: the last one is m.",
        ("cuts[::-1]", "[0, *cuts[:0:-1]]"),
    ),
    "greatest": (
        "The cuts of greatest cost are returned. Take the least: min, not max.",
        ("= min((", "= max(("),
    ),
    "left_half_alone": (
        "Some entries of `least` are never set. Recurse into both halves; a range of one entry must be filled as well.",
        ("            fill(j + 1, high, choice[j], last)\n", ""),
    ),
}


@mistake("The groups are cut one at a time, each the best then, and never moved. That is not the best of all.")
def greedy(m, groups, group_cost):
    ends = [m]
    for _ in range(groups - 1):
        tried = []
        for new in range(1, m):
            if new not in ends:
                cut = sorted([*ends, new])
                tried.append((sum(group_cost(i, j) for i, j in zip([0, *cut], cut, strict=False)), cut))
        ends = min(tried)[1]
    return ends


def _cuts(m, groups, group_cost, line):
    """The cuts, given line(before, group): least costs and choices for one group more."""
    least, choices = [0.0] + [group_cost(0, j) for j in range(1, m + 1)], []
    for group in range(2, groups + 1):
        least, choice = line(least, group)
        choices.append(choice)
    cuts = [m]
    for choice in reversed(choices):
        cuts.append(choice[cuts[-1]])
    return cuts[::-1]


@alternative
def with_a_stack(m, groups, group_cost):
    def line(before, group):
        least, choice = [float("inf")] * (m + 1), [0] * (m + 1)
        stack = [(group, m, group - 1, m - 1)]
        while stack:
            low, high, first, last = stack.pop()
            if low <= high:
                j = (low + high) // 2
                tried = range(first, min(last, j - 1) + 1)
                least[j], choice[j] = min((before[i] + group_cost(i, j), i) for i in tried)
                stack += [(low, j - 1, first, choice[j]), (j + 1, high, choice[j], last)]
        return least, choice

    return _cuts(m, groups, group_cost, line)


@alternative
def shortest_of_both_bounds(m, groups, group_cost):
    def line(before, group):
        least, choice = [float("inf")] * (m + 1), [group - 1] * (m + 1)
        done = {0: group - 1, m + 1: m - 1}
        step = 2 ** (m.bit_length() - 1)
        while step:
            for j in range(step, m + 1, 2 * step):
                if j >= group:
                    low, high = max(done.get(j - step, group - 1), group - 1), min(done.get(j + step, m - 1), j - 1)
                    least[j], choice[j] = min((before[i] + group_cost(i, j), i) for i in range(low, high + 1))
                    done[j] = choice[j]
            step //= 2
        return least, choice

    return _cuts(m, groups, group_cost, line)
