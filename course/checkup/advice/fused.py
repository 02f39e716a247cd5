"""An optimizer that updates all weights in one kernel."""

from course.checkup.advice.rule import Advice
from course.checkup.facts import FUSED, Facts
from course.checkup.predict import bound_of_way

NAME = FUSED
PART = "06/3"
PLANTED = ("unfused",)


def check(facts: Facts) -> Advice | None:
    """Advise the fused optimizer, if it was tried and helped."""
    trial = facts.trials.get(FUSED)
    if not trial.helped:
        return None
    most = bound_of_way(FUSED, facts)
    return Advice(NAME, "the optimizer with fused=True", PART, most, trial.text, trial.whole)
