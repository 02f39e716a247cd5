"""Accumulation in which each backward pass exchanges gradients."""

from course.checkup.advice.rule import Advice
from course.checkup.facts import Facts
from course.checkup.phases import BACKWARD
from course.checkup.predict import bound

NAME = "no_sync"
PART = "02/5"
PLANTED = ("accumulation",)
PER_STEP_MIN = 1.5  # of each; with fewer, nothing is accumulated


def check(facts: Facts) -> Advice | None:
    """Advise no_sync for all but the last backward pass of a step."""
    reductions = facts.habits.reductions
    if reductions < PER_STEP_MIN or facts.backwards < PER_STEP_MIN:
        return None
    most = bound(facts.phases.share(BACKWARD) * (1 - 1 / reductions))
    text = f"model.no_sync() for all but the last of {reductions:.3g} backward passes per step"
    return Advice(NAME, f"{text}: each exchanges all gradients", PART, most, "", 1.0, fault=True)
