"""A rank that the others wait for."""

from course.checkup.advice.rule import Advice
from course.checkup.facts import Facts
from course.checkup.phases import CODE
from course.checkup.predict import bound

NAME = "skew"
PART = "02/5"
PLANTED = ("late_rank", "late_backward")
LATE_MIN = 0.1  # share of a step that one rank may take longer than another without a line


def check(facts: Facts) -> Advice | None:
    """Advise to look at the phase, and the line, in which it is late."""
    skew = facts.skew
    if skew is None or not skew.is_proven or skew.late <= LATE_MIN * facts.seconds.median:
        return None
    gain = bound(skew.late / facts.seconds.median)
    where = "its own code" if skew.phase == CODE else f"its phase {skew.phase}"
    at = f" at {skew.line}" if skew.line else ""
    longer = f"{1000 * skew.late:.3g} ms per step longer than elsewhere"
    text = f"all wait for rank {skew.rank}: {where}{at} takes {longer}"
    return Advice(NAME, text, PART, gain, "", gain)
