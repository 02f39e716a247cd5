"""Reading that takes most of the time of an item."""

from course.checkup.advice import item
from course.checkup.advice.rule import Advice, part_of_item
from course.checkup.facts import Facts
from course.checkup.predict import bound_of_data

NAME = "read"
PART = "04/1"
PLANTED = ("slow_reads",)


def check(facts: Facts) -> Advice | None:
    """Advise faster reads, where reading can be told from a transform."""
    part = part_of_item(facts, "read")
    if not part:
        return None
    items = facts.trials.items
    if items is None or item.check(facts):
        return None
    at = f" at {items.line}" if items.line else ""
    text = f"read items faster: it takes {part:.0%} of the time of an item{at}"
    gain = bound_of_data(facts, part)
    return Advice(NAME, text, PART, gain, "", gain)
