"""Batches so small that a step costs about the same with four times as many samples."""

from course.checkup.advice.rule import Advice
from course.checkup.facts import BATCH_TIMES, LARGER_BATCH, Facts
from course.checkup.predict import bound_of_way

NAME = "batch"
PART = "03/2"
PLANTED = ("tiny_batches",)
PER_SAMPLE_MIN = 2.5  # times faster per sample that the step must be, else it computes already
WHOLE_MIN = 1.5  # times faster that training must get: another batch needs another learning rate


def check(facts: Facts) -> Advice | None:
    """Advise a larger batch, with a word on the learning rate."""
    trial = facts.trials.get(LARGER_BATCH)
    if not trial.helped or trial.step < PER_SAMPLE_MIN or trial.whole < WHOLE_MIN:
        return None
    longer = f"{BATCH_TIMES / trial.step:.2f} times the step"
    text = f"a larger batch: four times the samples, {longer} (mind the learning rate)"
    most = bound_of_way(LARGER_BATCH, facts)
    return Advice(NAME, text, PART, most, trial.text, trial.whole, later=True)
