"""Evaluation that takes a large part of all the time."""

from course.checkup.advice.rule import Advice
from course.checkup.facts import Facts
from course.checkup.phases import EVALUATION
from course.checkup.predict import bound

NAME = "evaluation"
PART = "06/1"
PLANTED = ("often_evaluated",)
SHARE_MIN = 0.25  # of all the time


def check(facts: Facts) -> Advice | None:
    """Advise to evaluate less; where it records graphs, the rule on graphs speaks first."""
    evaluation = facts.evaluation
    every_step = facts.phases.share(EVALUATION) > 0  # a teacher, which is a part of training
    if evaluation.share < SHARE_MIN or evaluation.graphs or every_step:
        return None
    lines = facts.lines.get(EVALUATION, [])
    at = f" at {lines[0].line}" if lines else ""
    most = bound(evaluation.share)
    if evaluation.in_train_mode:
        takes = f"forward passes without gradients{at} take {evaluation.share:.0%} of all the time"
        text = f"{takes}: make fewer, in larger batches (of environments, if they act in one)"
    else:
        takes = f"evaluation{at} takes {evaluation.share:.0%} of all the time"
        text = f"{takes}: evaluate less often, on fewer samples or in larger batches"
    return Advice(NAME, text, PART, most, "", most)
