"""Models that compute in float64."""

from course.checkup.advice.rule import Advice
from course.checkup.facts import FLOAT32, Facts
from course.checkup.predict import bound_of_way

NAME = FLOAT32
PART = "06/3"
PLANTED = ("float64",)


def check(facts: Facts) -> Advice | None:
    """Advise float32, if it was tried and helped."""
    trial = facts.trials.get(FLOAT32)
    if not trial.helped:
        return None
    most = bound_of_way(FLOAT32, facts)
    text = "float32 for the model and its data, now float64, if its precision is enough"
    return Advice(NAME, text, PART, most, trial.text, trial.whole)
