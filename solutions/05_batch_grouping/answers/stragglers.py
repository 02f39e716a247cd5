"""Known mistakes of exercise stragglers, and right answers in other styles."""

from course.checks.engine import alternative, mistake


@mistake(
    "stragglers",
    "The mean of the steps' shares counts a short step as much as a long one. Divide sums over all steps.",
)
def mean_of_shares(tokens):
    tokens = tokens.double()
    return float((1 - tokens.mean(1) / tokens.amax(1)).mean())


@mistake("stragglers", "That is the share of working time. Waiting is the rest.")
def working_share(tokens):
    return float(tokens.sum() / (tokens.shape[1] * tokens.amax(1).sum()))


@mistake(
    "stragglers",
    "Ranks are compared over the whole epoch. They wait in every step: take the longest of each step.",
)
def totals_of_the_ranks(tokens):
    totals = tokens.sum(0).double()
    return float(1 - totals.mean() / totals.max())


@mistake("stragglers", "Steps and ranks have changed places: the longest is taken over the steps of a rank.")
def longest_step_of_a_rank(tokens):
    longest = tokens.amax(0).sum()
    return float(1 - tokens.sum() / (tokens.shape[0] * longest))


@mistake(
    "stragglers",
    "Only the difference of the longest and the shortest rank counts as waiting. Those between wait, too.",
)
def longest_minus_shortest(tokens):
    waiting = (tokens.amax(1) - tokens.amin(1)).sum()
    return float(waiting / (tokens.shape[1] * tokens.amax(1).sum()))


@alternative("stragglers")
def waiting_added_up(tokens):
    longest = tokens.max(dim=1, keepdim=True).values
    return ((longest - tokens).sum() / longest.expand_as(tokens).sum()).item()


@alternative("stragglers")
def plain_python(tokens):
    rows = tokens.tolist()
    total = sum(max(row) * len(row) for row in rows)
    return sum(max(row) - own for row in rows for own in row) / total
