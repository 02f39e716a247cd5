"""Which rank the others wait for: each measures its own time per step, then all exchange it.

A rank's own time is all but communication, which ends when the slowest rank has arrived, and but
waiting for a core that other programs have, where Linux tells it. Ranks are compared step by step,
so what slows down the whole machine for a while meets all of them alike.
"""

import math
import statistics
from dataclasses import dataclass

import torch.distributed as dist

from course.checkup.facts import LineShare, Skew
from course.checkup.phases import BACKWARD, COMMUNICATION, CUT
from course.checkup.watch import Watch

CHANCE_MAX = 0.005  # that a rank which is late in half of the steps seems late in nearly all


@dataclass(frozen=True)
class RankTimes:
    """What one rank tells the others."""

    steps: dict[int, dict[str, float]]  # number of the step -> phase -> seconds
    lines: dict[str, str]  # phase -> its most frequent line
    queued: dict[int, float]  # number of the step -> seconds outside communication without a core
    is_clear: bool  # backward ends with the last gradient, and waits for no other rank


def skew(watch: Watch, lines: dict[str, list[LineShare]]) -> Skew | None:
    """How the ranks differ in their own time; None unless several were watched.

    A collective: every rank calls it, after the same step.
    """
    schedule = watch.schedule
    if schedule.ranks == 1 or not schedule.ended or not dist.is_initialized():
        return None
    ranks: list = [None] * schedule.ranks
    dist.all_gather_object(ranks, _times(watch, lines))
    return compared(ranks, dist.get_rank())


def _times(watch: Watch, lines: dict[str, list[LineShare]]) -> RankTimes:
    steps = {}
    queued = {}
    for number, step in enumerate(watch.steps):
        if step.kind in CUT:
            by_phase: dict[str, float] = {}
            for name, start, end in step.pieces:
                by_phase[name] = by_phase.get(name, 0.0) + end - start
            steps[number] = by_phase
            queued[number] = step.queued
    frequent = {name: found[0].line for name, found in lines.items() if found}
    return RankTimes(steps, frequent, queued, watch.hooks.readiness.unclear == 0)


def compared(ranks: list[RankTimes], this_rank: int) -> Skew | None:
    """The Skew of ranks that were timed in the same steps; None without such steps.

    The late rank is the one with the largest median of its own time. It is late by the median, over
    the steps, of how much longer it takes than the median of the others.
    """
    numbers = sorted(set.intersection(*[set(one.steps) for one in ranks]))
    if not numbers:
        return None
    is_clear = all(one.is_clear for one in ranks)
    waiting = {COMMUNICATION} if is_clear else {COMMUNICATION, BACKWARD}
    own = [[_without(one.steps[number], waiting) for number in numbers] for one in ranks]
    totals = []
    for one, steps in zip(ranks, own, strict=True):
        queued = [one.queued[number] if is_clear else 0.0 for number in numbers]
        spent = [sum(by_phase.values()) for by_phase in steps]
        totals.append([a - b for a, b in zip(spent, queued, strict=True)])
    seconds = [statistics.median(each) for each in totals]
    rank = seconds.index(max(seconds))
    late = _more_than_others(totals, rank)
    phase = _where(own, rank)
    return Skew(
        seconds=seconds,
        late=statistics.median(late),
        low=lower_end(late),
        rank=rank,
        phase=phase,
        waits=seconds[rank] - seconds[this_rank],
        line=ranks[rank].lines.get(phase, ""),
    )


def _without(by_phase: dict[str, float], waiting: set[str]) -> dict[str, float]:
    return {name: spent for name, spent in by_phase.items() if name not in waiting}


def _more_than_others(of_ranks: list[list[float]], rank: int) -> list[float]:
    """How much more a rank has than the median of the others, step by step."""
    others = [each for number, each in enumerate(of_ranks) if number != rank]
    differences = []
    for value, *rest in zip(of_ranks[rank], *others, strict=True):
        differences.append(value - statistics.median(rest))
    return differences


def _where(own: list[list[dict[str, float]]], rank: int) -> str:
    """The phase in which a rank loses most against the others."""
    lost = {}
    for phase in {name for by_phase in own[rank] for name in by_phase}:
        spent = [[by_phase.get(phase, 0.0) for by_phase in steps] for steps in own]
        lost[phase] = statistics.median(_more_than_others(spent, rank))
    return max(lost, key=lost.get)


def lower_end(values: list[float]) -> float:
    """The lower end of an interval of the median; for few values at most 0, which proves nothing.

    The k-th smallest of n values lies above the median with the probability that at most k - 1 of
    n coins show heads; k is the largest for which that is at most CHANCE_MAX.
    """
    n = len(values)
    k = 0
    chance = 0.0
    while True:
        chance += math.comb(n, k) / 2**n
        if chance > CHANCE_MAX:
            break
        k += 1
    return sorted(values)[k - 1] if k else min(0.0, *values)
