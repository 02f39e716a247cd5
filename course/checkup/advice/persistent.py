"""Workers that start again in each epoch."""

from course.checkup.advice.rule import Advice, start_up_share
from course.checkup.facts import Facts
from course.checkup.predict import bound

NAME = "persistent"
PART = "01/8"
PLANTED = ("short_epochs",)
KEEP = "workers then keep their copy of the dataset, and see no change that you make to yours"
STARTS_MIN = 3  # fewer say little about how long a start takes


def check(facts: Facts) -> Advice | None:
    """Advise persistent workers, by the time that the starts took."""
    now = facts.loader
    if now is None or not now.workers or now.persistent or now.starts < STARTS_MIN:
        return None
    gain = bound(start_up_share(facts))
    text = f"each of {now.starts} starts took {now.start_seconds:.2f} s ({KEEP})"
    return Advice(NAME, f"persistent_workers=True: {text}", PART, gain, "", gain)
