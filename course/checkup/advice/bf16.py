"""Forward and backward in bfloat16."""

from course.checkup.advice.rule import Advice
from course.checkup.facts import BF16, Facts
from course.checkup.phases import BACKWARD, FORWARD
from course.checkup.predict import bound

NAME = BF16
PART = "06/3"
PLANTED = ("half_precision",)


def check(facts: Facts) -> Advice | None:
    """Advise autocast, if it was tried and helped."""
    trial = facts.trials.get(BF16)
    if not trial.helped:
        return None
    most = bound(facts.phases.share(FORWARD, BACKWARD))
    return Advice(NAME, "torch.autocast with bfloat16", PART, most, trial.text, trial.whole)
