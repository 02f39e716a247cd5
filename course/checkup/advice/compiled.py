"""A model that torch.compile makes faster."""

from course.checkup.advice.rule import Advice
from course.checkup.facts import COMPILE, Facts
from course.checkup.phases import BACKWARD, FORWARD
from course.checkup.predict import bound

NAME = COMPILE
PART = "06/3"
PLANTED = ("small_kernels",)


def check(facts: Facts) -> Advice | None:
    """Advise torch.compile, if it was tried and helped."""
    trial = facts.trials.get(COMPILE)
    if not trial.helped:
        return None
    most = bound(facts.phases.share(FORWARD, BACKWARD))
    return Advice(NAME, "torch.compile of the model", PART, most, trial.text, trial.whole)
