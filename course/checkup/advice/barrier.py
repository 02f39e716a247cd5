"""A barrier in the loop."""

from course.checkup.advice.rule import Advice
from course.checkup.facts import Facts
from course.checkup.phases import COMMUNICATION
from course.checkup.predict import bound

NAME = "barrier"
PART = "02/5"
PLANTED = ("barrier",)
PER_STEP_MIN = 0.9  # one in each step; the counted steps may begin or end between two


def check(facts: Facts) -> Advice | None:
    """Advise to leave it out."""
    for call, line, n in facts.collectives:
        if call == "barrier" and n >= PER_STEP_MIN:
            why = "all-reduces make ranks wait for each other already"
            text = f"remove the barrier at {line} ({n:.3g} per step): {why}"
            gain = bound(facts.phases.share(COMMUNICATION))
            return Advice(NAME, text, PART, gain, "", gain, fault=True)
    return None
