"""What the script's own code does now and then: logging, a checkpoint, a table of metrics.

Such a step is far longer than others, and it comes again after as many steps. What is longer
without a rhythm is a disturbance of the machine.
"""

import statistics
from collections.abc import Sequence

from course.checkup.facts import Rare
from course.checkup.phases import CODE, FREE, LOOKED, TIMED, Step

LONG = 1.5  # times the median of all steps
TIMES_MIN = 4  # fewer may be chance
LONG_MIN = 0.8  # share of the steps in the rhythm that are long
OTHERS_MAX = 0.4  # share of the others that are: more is a noisy machine
CODE_PART_MIN = 0.6  # share of what is longer that is the script's own code

Numbered = tuple[int, Step]  # a step and its number


def rare(steps: Sequence[Step]) -> Rare:
    """What comes again after a number of steps and takes long; Rare() if nothing does."""
    watched = []
    for number, step in enumerate(steps):
        if step.kind in (TIMED, FREE, LOOKED) and not step.evaluated and not step.started:
            watched.append((number, step))
    if not watched:
        return Rare()
    usual = statistics.median(step.seconds for _, step in watched)
    for every in range(2, len(watched) // TIMES_MIN + 1):
        for first in range(every):
            of_rhythm = _in_rhythm(watched, every, first, LONG * usual)
            if of_rhythm and _is_code(of_rhythm, [step for _, step in watched]):
                others = [step for number, step in watched if number % every != first]
                return Rare(_share(of_rhythm, others, every), len(of_rhythm), every)
    return Rare()


def _share(long: list[Step], others: list[Step], every: int) -> float:
    """The share of all time by which each `every`th step is longer, without the watching of it."""
    free_long = [step for step in long if step.kind == FREE] or long
    free_others = [step for step in others if step.kind == FREE] or others
    usual = statistics.median(step.seconds for step in free_others)
    extra = statistics.median(step.seconds for step in free_long) - usual
    return extra / (extra + every * usual)


def _in_rhythm(watched: list[Numbered], every: int, first: int, long: float) -> list[Step]:
    """The long steps among each `every`th from `first` on; [] if it is not they that are long."""
    inside = [step for number, step in watched if number % every == first]
    outside = [step for number, step in watched if number % every != first]
    long_inside = [step for step in inside if step.seconds > long]
    long_outside = [step for step in outside if step.seconds > long]
    if len(long_inside) < TIMES_MIN or len(long_inside) < LONG_MIN * len(inside):
        return []
    return long_inside if len(long_outside) <= OTHERS_MAX * len(outside) else []


def _is_code(long: list[Step], watched: list[Step]) -> bool:
    """Whether the script's own code is what is longer in most of them."""
    cut = [step for step in watched if step.pieces]
    long_and_cut = [step for step in long if step.pieces]
    if not long_and_cut:
        return False
    usual_code = statistics.median(_code_seconds(step) for step in cut)
    usual = statistics.median(step.seconds for step in cut)
    parts = []
    for step in long_and_cut:
        parts.append((_code_seconds(step) - usual_code) / max(1e-9, step.seconds - usual))
    return statistics.median(parts) >= CODE_PART_MIN


def _code_seconds(step: Step) -> float:
    return sum(piece.end - piece.start for piece in step.pieces if piece.phase == CODE)
