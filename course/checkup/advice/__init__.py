"""From facts to advice: what to change first.

A module per rule. Each has its NAME, the PART of the course that teaches what it advises, the
scripts in tests/planted that it must find, its thresholds, and `check(facts)`.
"""

from dataclasses import replace

from course.checkup.advice import (
    anomaly,
    barrier,
    bf16,
    channels_last,
    collate,
    compiled,
    data_bound,
    distributions,
    epoch_start,
    evaluation,
    float64,
    fused,
    graph_breaks,
    graphs,
    growth,
    item,
    kept_losses,
    larger_batch,
    late_rank,
    loops,
    now_and_then,
    one_optimizer,
    own_code,
    padding,
    persistent,
    pin_memory,
    read,
    recompiles,
    reductions,
    syncs,
    tf32,
    threads,
    transform,
    workers,
    zeroed,
)
from course.checkup.advice.rule import BOUND, Rule
from course.checkup.advice.rule import Advice as Advice
from course.checkup.facts import Facts
from course.checkup.failures import Failures

GAIN_MIN = 1.05  # times as fast; less is not worth a line in the report

# The first comes first among equal gains.
RULES: tuple[Rule, ...] = (
    workers,
    transform,
    item,
    read,
    collate,
    persistent,
    epoch_start,
    pin_memory,
    data_bound,
    evaluation,
    now_and_then,
    syncs,
    distributions,
    loops,
    own_code,
    graphs,
    anomaly,
    kept_losses,
    growth,
    padding,
    barrier,
    late_rank,
    reductions,
    threads,
    one_optimizer,
    float64,
    recompiles,
    graph_breaks,
    bf16,
    tf32,
    channels_last,
    fused,
    compiled,
    larger_batch,
    zeroed,
)


def advise(facts: Facts, failures: Failures | None = None) -> list[Advice]:
    """The lines of the table, the largest gain first; what is less certain comes last.

    Args:
        failures: notes the rules that fail (default: nobody reads them).
    """
    look = (failures if failures is not None else Failures()).look
    found = []
    for rule in RULES:
        advice = look(f"the rule on {rule.NAME}", rule.check, facts)
        if advice and (advice.fault or advice.gain >= GAIN_MIN):
            found.append(at_most_its_bound(without_watching(advice, facts)))
    return sorted(found, key=lambda advice: (advice.later, -advice.gain))


def without_watching(advice: Advice, facts: Facts) -> Advice:
    """The advice with a bound for the script alone: watching takes a part of what is left."""
    left = 1 / advice.bound - (facts.own_cost or 0.0)
    most = max(advice.bound, 1 / max(1e-3, left))
    if advice.basis == BOUND:
        return replace(advice, bound=most, gain=most)
    return replace(advice, bound=most)


def at_most_its_bound(advice: Advice) -> Advice:
    """The advice with a gain up to its bound: of the interval of a trial, only that part can be.

    A trial whose whole interval lies above its bound is not trusted and advises nothing.
    """
    if advice.bound <= 1 or advice.gain <= advice.bound:
        return advice
    return replace(advice, gain=advice.bound)
