"""Own code that takes long each so many steps."""

from course.checkup.advice.rule import Advice
from course.checkup.facts import Facts
from course.checkup.phases import CODE
from course.checkup.predict import bound

NAME = "now and then"
PART = "06/1"
PLANTED = ("each_third_step",)


def check(facts: Facts) -> Advice | None:
    """Advise to do it less often."""
    rare = facts.rare
    if not rare.times:
        return None
    lines = facts.lines.get(CODE, [])
    at = f", mostly at {lines[0].line}" if lines else ""
    most = bound(rare.share)
    takes = f"each {rare.every} steps your own code is slow{at}, {rare.share:.0%} of all time"
    text = f"{takes}: log, plot or save less often, or less of it"
    return Advice(NAME, text, PART, most, "", most)
