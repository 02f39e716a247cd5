"""Known mistakes of exercise stragglers, and right answers in other styles."""

from course.engine.known_answers import alternative

MISTAKES = {
    "mean_of_shares": (
        "The mean of the steps' shares counts a short step as much as a long one. Divide sums over all steps.",
        (
            "float(cells.sum() / (cells.shape[1] * longest))",
            "float((cells.double().mean(1) / cells.amax(1)).mean())",
        ),
    ),
    "working_share": (
        "That is the share of working time. Waiting is the rest.",
        ("1 - float", "float"),
    ),
    "totals_of_the_ranks": (
        "Ranks are compared over the whole epoch. They wait in every step: take the longest of each step.",
        ("amax(1).sum()", "sum(0).max()"),
    ),
    "longest_step_of_a_rank": (
        "Steps and ranks have changed places: the longest is taken over the steps of a rank.",
        ("amax(1)", "amax(0)"),
        ("shape[1]", "shape[0]"),
    ),
    "longest_minus_shortest": (
        "Only the difference of the longest and the shortest rank counts as waiting. Those between wait, too.",
        ("1 - float(cells.sum()", "float((cells.amax(1) - cells.amin(1)).sum()"),
    ),
    "mean_for_longest": (
        "The mean rank sets the pace here, so nobody waits. A step lasts as long as its slowest rank.",
        ("amax(1)", "double().mean(1)"),
    ),
    "ranks_forgotten": (
        "Working time of all ranks is compared with the time of one. Total time is ranks × the sum of longest steps.",
        ("cells.shape[1] * ", ""),
    ),
    "waiting_over_one_rank": (
        "Waiting of all ranks is divided by the time of one. Total time is ranks × the sum of the steps' longest.",
        ("1 - float(cells.sum()", "float((cells.shape[1] * longest - cells.sum())"),
        ("/ (cells.shape[1] * longest)", "/ longest"),
    ),
    "waiting_over_working": (
        "Waiting is divided by working time. The share is waiting over total time: both together.",
        ("1 - float(cells.sum()", "float((cells.shape[1] * longest - cells.sum())"),
        ("/ (cells.shape[1] * longest)", "/ cells.sum()"),
    ),
    "longest_of_all": (
        "The longest of all steps is taken for each step. Ranks wait for the longest of their own step.",
        ("cells.amax(1).sum()", "len(cells) * cells.max()"),
    ),
    "per_cent": (
        "These are per cent. The share is a number from 0 to 1.",
        ("1 - float(", "100 - 100 * float("),
    ),
    "waiting_time": (
        "That is the waiting time, in cells. Divide it by the total time.",
        (
            "1 - float(cells.sum() / (cells.shape[1] * longest))",
            "float(cells.shape[1] * longest - cells.sum())",
        ),
    ),
}


@alternative
def waiting_added_up(cells):
    longest = cells.max(dim=1, keepdim=True).values
    return ((longest - cells).sum() / longest.expand_as(cells).sum()).item()


@alternative
def plain_python(cells):
    rows = cells.tolist()
    total = sum(max(row) * len(row) for row in rows)
    return sum(max(row) - own for row in rows for own in row) / total
