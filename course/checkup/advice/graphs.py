"""Evaluation that records graphs."""

from course.checkup.advice.rule import Advice
from course.checkup.facts import INFERENCE_MODE, Facts
from course.checkup.predict import bound

NAME = "graphs"
PART = "06/1"
PLANTED = ("graphs",)


def check(facts: Facts) -> Advice | None:
    """Advise inference_mode in the lines that evaluate."""
    evaluation = facts.evaluation
    if not evaluation.graphs:
        return None
    trial = facts.trials.get(INFERENCE_MODE)
    gain = bound(evaluation.share * (1 - 1 / trial.step)) if trial.helped else 1.0
    where = ", ".join(evaluation.graphs)
    text = f"evaluate in torch.inference_mode(): {where} records graphs that nobody uses"
    most = bound(evaluation.share)
    return Advice(NAME, text, PART, most, trial.text, max(1.0, gain), fault=True)
