"""A transform that takes most of the time of an item."""

from course.checkup.advice.rule import Advice, part_of_item
from course.checkup.facts import Facts
from course.checkup.predict import bound_of_data

NAME = "transform"
PART = "01/7"
PLANTED = ("slow_transform",)
BUSY_MIN = 0.6  # share of the time; a transform that computes for less mostly waits


def check(facts: Facts) -> Advice | None:
    """Advise a cheaper transform, if it computes and does not wait."""
    part = part_of_item(facts, "transform")
    if not part or facts.trials.items.busy <= BUSY_MIN:
        return None
    text = "make the transform cheaper, or compute it once"
    gain = bound_of_data(facts, part)
    return Advice(NAME, f"{text}: it takes {part:.0%} of the time of an item", PART, gain, "", gain)
