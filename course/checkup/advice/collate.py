"""A collate_fn that takes most of the time of an item."""

from course.checkup.advice.rule import Advice, part_of_item
from course.checkup.facts import Facts
from course.checkup.predict import bound_of_data

NAME = "collate"
PART = "01/8"
PLANTED = ("slow_collate",)


def check(facts: Facts) -> Advice | None:
    """Advise a cheaper collate_fn, if it is the script's own."""
    part = part_of_item(facts, "collate")
    if not part or not facts.trials.items.own_collate:
        return None
    text = f"make collate_fn cheaper: it takes {part:.0%} of the time of an item"
    gain = bound_of_data(facts, part)
    return Advice(NAME, text, PART, gain, "", gain)
