"""Time between torch's phases that is not spent on asking for values."""

from course.checkup.advice import distributions, loops, now_and_then, syncs
from course.checkup.advice.rule import Advice
from course.checkup.facts import Facts
from course.checkup.phases import CODE
from course.checkup.predict import bound

NAME = "code"
PART = "06/1"
PLANTED = ("own_code",)
CODE_MIN = 0.25  # share of a step that the script's own code may take without a line


def check(facts: Facts) -> Advice | None:
    """Advise to look at the line that takes most of it."""
    own_code = facts.phases.share(CODE)
    lines = facts.lines.get(CODE, [])
    if own_code <= CODE_MIN or not lines:
        return None
    if any(rule.check(facts) for rule in (syncs, loops, distributions, now_and_then)):
        return None
    line, part = lines[0]
    takes = f"your own code takes {own_code:.0%} of a step, {part:.0%} of that in this line"
    most = bound(own_code * part)
    return Advice(NAME, f"look at {line}: {takes}", PART, most, "", most, later=True)
