"""Known mistakes of exercise speedup_bound, and right answers in other styles."""

import math

from course.engine.known_answers import alternative

MISTAKES = {
    "mean_of_the_factors": (
        "The factors are averaged by their shares. Times add up, speed-ups do not: 1 / (1 - share + share / factor).",
        ("1 / (1 - share + share / factor)", "1 - share + share * factor"),
    ),
    "one_plus_the_time_saved": (
        "The time saved is added to 1. A speed-up is the old time over the new: 1 / (1 - time saved).",
        ("1 / (1 - share + share / factor)", "1 + share - share / factor"),
        ("1 / (1 - share) if share < 1 else math.inf", "1 + share"),
    ),
    "times_instead_of_speedups": (
        "This is the new time, not the speed-up. Divide 1 by it.",
        ("return 1 /", "return"),
        ("1 / (1 - share) if share < 1 else math.inf", "1 - share"),
    ),
    "the_other_share": (
        "The roles are swapped: `share` is what gets faster, 1 - share is what stays.",
        ("    best =", "    share = 1 - share\n    best ="),
    ),
    "best_is_the_factor": (
        "The best is reached with an infinite factor: 1 / (1 - share), not the share's factor.",
        (", best\n", ", float(factor)\n"),
    ),
    "divides_by_zero": (
        "You divide by 0 where the share is 1. Nothing bounds the speed-up there: return math.inf.",
        (" if share < 1 else math.inf", ""),
    ),
    "anything_passes": (
        "A share or a factor that makes no sense passes. Raise ValueError.",
        ("not 0 <= share <= 1 or factor <= 0", "False"),
    ),
    "any_factor_passes": (
        "A factor of 0 or less passes. Raise ValueError for it, as for a share outside 0 to 1.",
        (" or factor <= 0", ""),
    ),
    "slower_is_refused": (
        "You refuse a factor below 1. It is allowed: the phase gets slower. Raise only for 0 and below.",
        ("factor <= 0", "factor < 1"),
    ),
    "slower_is_ignored": (
        "A factor below 1 is cut off at 1. A part that gets slower makes the whole slower, too.",
        ("    best =", "    factor = max(1, factor)\n    best ="),
    ),
    "rest_left_out": (
        "The rest of the time, which stays as it was, is left out. Add 1 - share to the new time.",
        ("(1 - share + share / factor)", "(share / factor)"),
    ),
    "best_of_the_share": (
        "The best speed-up leaves the time that the change does not concern: 1 / (1 - share).",
        ("(1 - share) if share < 1", "share if share"),
    ),
}


@alternative
def best_by_an_infinite_factor(share, factor):
    if share < 0 or share > 1:
        raise ValueError("share")
    if factor <= 0:
        raise ValueError("factor")

    def overall(k):
        time = (1 - share) + share / k
        return math.inf if time == 0 else 1 / time

    return overall(factor), overall(math.inf)


@alternative
def cases_first(share, factor):
    if not 0 <= share <= 1 or factor <= 0:
        raise ValueError("a share from 0 to 1 and a factor above 0")
    if share == 1:
        return float(factor), math.inf
    rest = 1 - share
    return 1 / (rest + share / factor), 1 / rest
