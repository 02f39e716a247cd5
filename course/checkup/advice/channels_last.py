"""Convolutions on images whose channels lie side by side."""

from course.checkup.advice.rule import Advice
from course.checkup.facts import CHANNELS_LAST, Facts
from course.checkup.predict import bound_of_way

NAME = CHANNELS_LAST
PART = "06/3"
PLANTED = ("channels_first",)


def check(facts: Facts) -> Advice | None:
    """Advise channels_last, if it was tried and helped."""
    trial = facts.trials.get(CHANNELS_LAST)
    if not trial.helped:
        return None
    most = bound_of_way(CHANNELS_LAST, facts)
    return Advice(NAME, "model and images in channels_last", PART, most, trial.text, trial.whole)
