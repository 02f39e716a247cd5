"""A model that torch.compile compiles again and again."""

from course.checkup.advice.rule import Advice
from course.checkup.facts import Facts
from course.checkup.phases import BACKWARD, FORWARD
from course.checkup.predict import bound

NAME = "recompiles"
PART = "06/3"
PLANTED = ("recompiled",)
TIMES_MIN = 2  # the first time, torch makes sizes dynamic


def check(facts: Facts) -> Advice | None:
    """Advise dynamic sizes, and say why it was compiled again."""
    often = {at: n for at, n in facts.habits.recompiles.items() if n >= TIMES_MIN}
    if not often:
        return None
    at = max(often, key=lambda line: often[line])
    most = bound(facts.phases.share(FORWARD, BACKWARD))
    text = f"torch.compile(dynamic=True), or few sizes: compiled {often[at]} times again, {at}"
    return Advice(NAME, text, PART, most, "", 1.0, fault=True)
