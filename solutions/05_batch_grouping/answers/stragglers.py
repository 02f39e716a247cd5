"""Known mistakes of exercise stragglers, and right answers in other styles."""

from course.checks.engine import alternative, mistake


@mistake(
    "stragglers",
    "The mean of the steps' shares counts a short step as much as a long one. Divide sums over all steps.",
)
def mean_of_shares(cells):
    cells = cells.double()
    return float((1 - cells.mean(1) / cells.amax(1)).mean())


@mistake("stragglers", "That is the share of working time. Waiting is the rest.")
def working_share(cells):
    return float(cells.sum() / (cells.shape[1] * cells.amax(1).sum()))


@mistake(
    "stragglers",
    "Ranks are compared over the whole epoch. They wait in every step: take the longest of each step.",
)
def totals_of_the_ranks(cells):
    totals = cells.sum(0).double()
    return float(1 - totals.mean() / totals.max())


@mistake("stragglers", "Steps and ranks have changed places: the longest is taken over the steps of a rank.")
def longest_step_of_a_rank(cells):
    longest = cells.amax(0).sum()
    return float(1 - cells.sum() / (cells.shape[0] * longest))


@mistake(
    "stragglers",
    "Only the difference of the longest and the shortest rank counts as waiting. Those between wait, too.",
)
def longest_minus_shortest(cells):
    waiting = (cells.amax(1) - cells.amin(1)).sum()
    return float(waiting / (cells.shape[1] * cells.amax(1).sum()))


@mistake(
    "stragglers",
    "The mean rank sets the pace here, so nobody waits. A step lasts as long as its slowest rank.",
)
def mean_for_longest(cells):
    return 1 - float(cells.sum() / (cells.shape[1] * cells.double().mean(1).sum()))


@mistake(
    "stragglers",
    "Working time of all ranks is compared with the time of one. Total time is ranks × the sum of the steps' longest.",
)
def ranks_forgotten(cells):
    return 1 - float(cells.sum() / cells.amax(1).sum())


@mistake(
    "stragglers",
    "Waiting of all ranks is divided by the time of one. Total time is ranks × the sum of the steps' longest.",
)
def waiting_over_one_rank(cells):
    return float((cells.amax(1, keepdim=True) - cells).sum() / cells.amax(1).sum())


@mistake("stragglers", "Waiting is divided by working time. The share is waiting over total time: both together.")
def waiting_over_working(cells):
    return float((cells.amax(1, keepdim=True) - cells).sum() / cells.sum())


@mistake("stragglers", "The longest of all steps is taken for each step. Ranks wait for the longest of their own step.")
def longest_of_all(cells):
    return 1 - float(cells.sum() / (cells.numel() * cells.max()))


@mistake("stragglers", "These are per cent. The share is a number from 0 to 1.")
def per_cent(cells):
    return 100 * (1 - float(cells.sum() / (cells.shape[1] * cells.amax(1).sum())))


@mistake("stragglers", "That is the waiting time, in cells. Divide it by the total time.")
def waiting_time(cells):
    return float((cells.amax(1, keepdim=True) - cells).sum())


@alternative("stragglers")
def waiting_added_up(cells):
    longest = cells.max(dim=1, keepdim=True).values
    return ((longest - cells).sum() / longest.expand_as(cells).sum()).item()


@alternative("stragglers")
def plain_python(cells):
    rows = cells.tolist()
    total = sum(max(row) * len(row) for row in rows)
    return sum(max(row) - own for row in rows for own in row) / total
