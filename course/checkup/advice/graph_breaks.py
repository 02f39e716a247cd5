"""Lines at which the graph of a compiled model ends and Python continues."""

from course.checkup.advice.rule import Advice
from course.checkup.facts import Facts
from course.checkup.phases import BACKWARD, FORWARD
from course.checkup.predict import bound

NAME = "graph breaks"
PART = "06/3"
PLANTED = ("broken_graph",)
LINES_SHOWN = 3


def check(facts: Facts) -> Advice | None:
    """Advise to take what cannot be compiled out of the model."""
    breaks = facts.habits.breaks
    if not breaks:
        return None
    where = ", ".join(breaks[:LINES_SHOWN])
    text = f"take what cannot be compiled out of the model: its graph ends at {where}"
    most = bound(facts.phases.share(FORWARD, BACKWARD))
    return Advice(NAME, text, PART, most, "", 1.0, fault=True)
