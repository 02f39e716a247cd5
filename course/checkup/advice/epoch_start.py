"""What a loader without workers does before the first batch of each epoch."""

from course.checkup.advice.rule import Advice, start_up_share
from course.checkup.facts import Facts
from course.checkup.formats import duration
from course.checkup.predict import bound

NAME = "epoch_start"
PART = "01/8"
PLANTED = ("slow_start",)
STARTS_MIN = 2


def check(facts: Facts) -> Advice | None:
    """Advise to do it once."""
    now = facts.loader
    if now is None or now.workers or now.starts < STARTS_MIN:
        return None
    gain = bound(start_up_share(facts))
    takes = f"the first batch of each of {now.starts} epochs takes {duration(now.start_seconds)}"
    text = f"{takes}: draw the order, and open the data, once or in smaller parts"
    return Advice(NAME, text, PART, gain, "", gain)
