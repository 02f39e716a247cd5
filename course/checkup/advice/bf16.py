"""Forward and backward in bfloat16."""

from course.checkup.advice.rule import Advice
from course.checkup.facts import BF16, Facts
from course.checkup.predict import bound_of_way

NAME = BF16
PART = "06/3"
PLANTED = ("half_precision",)


def check(facts: Facts) -> Advice | None:
    """Advise autocast, if it was tried and helped."""
    trial = facts.trials.get(BF16)
    if not trial.helped:
        return None
    most = bound_of_way(BF16, facts)
    text = "torch.autocast with bfloat16"
    return Advice(NAME, text, PART, most, trial.text, trial.whole, later=True)
