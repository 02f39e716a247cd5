"""Argument checks of torch.distributions."""

from course.checkup.advice.rule import Advice
from course.checkup.facts import Facts
from course.checkup.formats import duration
from course.checkup.phases import CODE, FORWARD
from course.checkup.predict import bound

NAME = "distributions"
PART = "06/1"
PLANTED = ("argument_checks",)
SHARE_MIN = 0.05  # of a step


def check(facts: Facts) -> Advice | None:
    """Advise to switch them off once the script is right."""
    seconds = facts.habits.distributions
    share = min(seconds / max(1e-9, facts.seconds.median), facts.phases.share(CODE, FORWARD))
    if share < SHARE_MIN:
        return None
    text = (
        "torch.distributions.Distribution.set_default_validate_args(False): "
        f"checks of arguments take {duration(seconds)} per step"
    )
    most = bound(share)
    return Advice(NAME, text, PART, most, "", most)
