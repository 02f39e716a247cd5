"""A model that torch.compile makes faster."""

from course.checkup.advice.rule import Advice
from course.checkup.facts import COMPILE, Facts
from course.checkup.predict import bound_of_way

NAME = COMPILE
PART = "06/3"
PLANTED = ("small_kernels",)


def check(facts: Facts) -> Advice | None:
    """Advise torch.compile, if it was tried and helped."""
    trial = facts.trials.get(COMPILE)
    if not trial.helped:
        return None
    most = bound_of_way(COMPILE, facts)
    return Advice(NAME, "torch.compile of the model", PART, most, trial.text, trial.whole)
