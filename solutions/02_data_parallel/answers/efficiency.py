"""Known mistakes of exercise efficiency, and right answers in other styles."""

import numpy as np
import torch

from course.checks.engine import alternative, mistake


def efficiencies(ranks, seconds, weak, first=None, strong=None, power=1):
    """The right formula, with one idea to get wrong each."""
    n, seconds = torch.tensor(ranks), seconds.double()
    alone = seconds[ranks.index(1)] if first is None else first(seconds)
    speedup = (alone / seconds) ** power
    return speedup if weak else strong(speedup, n) if strong else speedup / n


@mistake("efficiency", "This is the speed-up. Strong scaling divides it by the number of ranks.")
def speedup_alone(ranks, seconds, weak=False):
    return efficiencies(ranks, seconds, True)


@mistake("efficiency", "Weak scaling is divided by the number of ranks too. There the ideal time is t1 itself.")
def always_strong(ranks, seconds, weak=False):
    return efficiencies(ranks, seconds, False)


@mistake("efficiency", "t1 is taken from the first place of the list. Look for the measurement on one rank.")
def first_in_the_list(ranks, seconds, weak=False):
    ranks.index(1)
    return efficiencies(ranks, seconds, weak, first=lambda seconds: seconds[0])


@mistake("efficiency", "t1 is the first of the list, whoever that is. Look for one rank; without it: ValueError.")
def whatever_comes_first(ranks, seconds, weak=False):
    speedup = seconds.double()[0] / seconds.double()
    return speedup if weak else speedup / torch.tensor(ranks)


@mistake("efficiency", "The fraction is upside down: more time gives more efficiency. Divide t1 by the seconds.")
def ratio_upside_down(ranks, seconds, weak=False):
    return efficiencies(ranks, seconds, weak, power=-1, strong=lambda slowdown, n: slowdown * n)


@mistake("efficiency", "Values above 1 are cut off. They happen, and are worth a look: leave them.")
def cut_off(ranks, seconds, weak=False):
    return efficiencies(ranks, seconds, weak).clamp(max=1)


@mistake("efficiency", "The result has the precision of the seconds. Take seconds.double() first.")
def single_precision(ranks, seconds, weak=False):
    return efficiencies(ranks, seconds, weak).to(seconds.dtype)


@mistake("efficiency", "Without a measurement on one rank another one stands in for it. Raise a ValueError.")
def fewest_ranks(ranks, seconds, weak=False):
    return efficiencies(ranks, seconds, weak, first=lambda seconds: seconds[ranks.index(min(ranks))])


@alternative("efficiency")
def one_at_a_time(ranks, seconds, weak=False):
    times = dict(zip(ranks, seconds.tolist(), strict=True))
    if 1 not in times:
        raise ValueError("measure on one rank first")
    return torch.tensor([times[1] / (t * (1 if weak else n)) for n, t in times.items()], dtype=torch.float64)


@alternative("efficiency")
def share_of_the_ideal_time(ranks, seconds, weak=False):
    n = np.array(ranks)
    measured = seconds.numpy().astype(np.float64)
    (alone,) = measured[n == 1]  # not one value: ValueError
    ideal = np.full(len(n), alone) / (1 if weak else n)
    return torch.from_numpy(ideal / measured)
