"""A process that grows with each step."""

from course.checkup.advice import kept_losses
from course.checkup.advice.rule import Advice
from course.checkup.facts import Facts
from course.checkup.formats import size

NAME = "growth"
PART = "06/1"
PLANTED = ("growing",)
BYTES_MIN = 200_000  # per step; less may be the allocator


def check(facts: Facts) -> Advice | None:
    """Advise to look for what is kept."""
    if facts.habits.growth < BYTES_MIN or kept_losses.check(facts):
        return None
    text = f"the process grows by {size(facts.habits.growth)} per step: keep numbers, not tensors"
    return Advice(NAME, text, PART, 1.0, fault=True)
