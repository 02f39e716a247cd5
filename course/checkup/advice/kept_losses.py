"""Losses that are kept with their graphs."""

from course.checkup.advice.rule import Advice
from course.checkup.facts import Facts

NAME = "kept_losses"
PART = "06/1"
PLANTED = ("kept_losses",)
KEPT_MIN = 0.8  # share of the graphs; some live longer until Python collects them


def check(facts: Facts) -> Advice | None:
    """Advise to keep numbers instead."""
    if facts.kept_losses <= KEPT_MIN:
        return None
    text = (
        "keep loss.detach() or loss.item(): "
        "the losses keep their graphs, so memory grows with each step"
    )
    return Advice(NAME, text, PART, 1.0, fault=True)
