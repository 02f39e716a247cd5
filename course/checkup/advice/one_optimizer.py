"""An optimizer, or a step, per parameter."""

from course.checkup.advice.rule import Advice
from course.checkup.facts import MANY_OPTIMIZERS, ONE_OPTIMIZER, Facts
from course.checkup.predict import bound_of_way

NAME = "optimizers"
PART = "06/3"
PLANTED = ("per_parameter",)
TENSORS_PER_STEP_MAX = 2  # an optimizer for more parameters than that has a reason


def check(facts: Facts) -> Advice | None:
    """Advise one optimizer for all parameters."""
    steps = facts.optimizers.steps
    tensors = facts.optimizers.tensors
    if steps < MANY_OPTIMIZERS or steps < tensors / TENSORS_PER_STEP_MAX:
        return None
    trial = facts.trials.get(ONE_OPTIMIZER)
    most = bound_of_way(ONE_OPTIMIZER, facts)
    gain = most
    if trial.was_measured:
        gain = trial.whole if trial.helped else 1.0
    text = f"one optimizer for all {tensors} parameters (now {steps} steps per batch)"
    return Advice(NAME, text, PART, most, trial.text, gain, fault=gain > 1)
