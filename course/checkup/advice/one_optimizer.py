"""An optimizer, or a step, per parameter."""

from course.checkup.advice.rule import Advice
from course.checkup.facts import MANY_OPTIMIZERS, ONE_OPTIMIZER, Facts
from course.checkup.phases import OPTIMIZER
from course.checkup.predict import bound

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
    most = bound(facts.phases.share(OPTIMIZER))
    gain = trial.whole if trial.was_measured else most
    text = f"one optimizer for all {tensors} parameters (now {steps} steps per batch)"
    return Advice(NAME, text, PART, most, trial.text, gain, fault=gain > 1)
