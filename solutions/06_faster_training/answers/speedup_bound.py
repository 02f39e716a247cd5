"""Known mistakes of exercise speedup_bound, and right answers in other styles."""

import math

from course.checks.engine import alternative, mistake


def _refuse(share, factor):
    if not 0 <= share <= 1 or factor <= 0:
        raise ValueError("a share from 0 to 1 and a factor above 0")


def _inverse(time):
    return 1 / time if time > 0 else math.inf


@mistake(
    "speedup_bound",
    "The factors are averaged by their shares. Times add up, speed-ups do not: 1 / (1 - share + share / factor).",
)
def mean_of_the_factors(share, factor):
    _refuse(share, factor)
    return 1 - share + share * factor, _inverse(1 - share)


@mistake("speedup_bound", "This is the new time, not the speed-up. Divide 1 by it.")
def times_instead_of_speedups(share, factor):
    _refuse(share, factor)
    return 1 - share + share / factor, 1 - share


@mistake("speedup_bound", "The roles are swapped: `share` is what gets faster, 1 - share is what stays.")
def the_other_share(share, factor):
    _refuse(share, factor)
    return _inverse(share + (1 - share) / factor), _inverse(share)


@mistake("speedup_bound", "The best is reached with an infinite factor: 1 / (1 - share), not the share's factor.")
def best_is_the_factor(share, factor):
    _refuse(share, factor)
    return _inverse(1 - share + share / factor), float(factor)


@mistake(
    "speedup_bound", "Nothing is left to bound it where the share is 1: return math.inf there, do not divide by 0."
)
def divides_by_zero(share, factor):
    _refuse(share, factor)
    return 1 / (1 - share + share / factor), 1 / (1 - share)


@mistake("speedup_bound", "A share or a factor that makes no sense passes. Raise ValueError.")
def anything_passes(share, factor):
    return _inverse(1 - share + (share / factor if factor else math.inf)), _inverse(1 - share)


@mistake("speedup_bound", "A factor of 0 or less passes. Raise ValueError for it, as for a share outside 0 to 1.")
def any_factor_passes(share, factor):
    _refuse(share, 1)
    return _inverse(1 - share + (share / factor if factor else math.inf)), _inverse(1 - share)


@mistake(
    "speedup_bound", "You refuse a factor below 1. It is allowed: the phase gets slower. Raise only for 0 and below."
)
def slower_is_refused(share, factor):
    _refuse(share, factor)
    if factor < 1:
        raise ValueError("factor below 1")
    return _inverse(1 - share + share / factor), _inverse(1 - share)


@mistake("speedup_bound", "A factor below 1 is cut off at 1. A part that gets slower makes the whole slower, too.")
def slower_is_ignored(share, factor):
    _refuse(share, factor)
    return max(1.0, _inverse(1 - share + share / factor)), _inverse(1 - share)


@alternative("speedup_bound")
def best_by_an_infinite_factor(share, factor):
    if share < 0 or share > 1:
        raise ValueError("share")
    if factor <= 0:
        raise ValueError("factor")

    def overall(k):
        time = (1 - share) + share / k
        return math.inf if time == 0 else 1 / time

    return overall(factor), overall(math.inf)


@alternative("speedup_bound")
def cases_first(share, factor):
    _refuse(share, factor)
    if share == 1:
        return float(factor), math.inf
    rest = 1 - share
    return 1 / (rest + share / factor), 1 / rest


@mistake("speedup_bound", "The rest of the time is left out, which stays as it was: add 1 - share to the new time.")
def rest_left_out(share, factor):
    _refuse(share, factor)
    return _inverse(share / factor), _inverse(1 - share)


@mistake("speedup_bound", "The best speed-up leaves the time that the change does not concern: 1 / (1 - share).")
def best_of_the_share(share, factor):
    _refuse(share, factor)
    return _inverse(1 - share + share / factor), _inverse(share)
