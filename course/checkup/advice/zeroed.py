"""Gradients that are filled with zeros, where they could be dropped."""

from course.checkup.advice.rule import Advice
from course.checkup.facts import Facts
from course.checkup.phases import OPTIMIZER
from course.checkup.predict import bound

NAME = "zeroed"
PART = "06/1"
PLANTED = ("zeroed",)
PER_STEP_MIN = 0.5  # calls; fewer do not come from the training loop


def check(facts: Facts) -> Advice | None:
    """Advise zero_grad() as it is by default."""
    if facts.zeroed <= PER_STEP_MIN:
        return None
    text = "zero_grad() without set_to_none=False"
    return Advice(NAME, text, PART, bound(facts.phases.share(OPTIMIZER)), fault=True)
