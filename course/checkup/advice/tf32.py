"""Matrices in float32 on a GPU that may not use TF32 for them."""

from course.checkup.advice.rule import Advice
from course.checkup.facts import TF32, Facts
from course.checkup.predict import bound_of_way

NAME = TF32
PART = "06/3"
PLANTED = ("no_tf32",)


def check(facts: Facts) -> Advice | None:
    """Advise TF32, if it was tried and helped."""
    trial = facts.trials.get(TF32)
    if not trial.helped or not facts.habits.float32_matmul:
        return None
    most = bound_of_way(TF32, facts)
    text = 'torch.set_float32_matmul_precision("high"): products of matrices in TF32'
    return Advice(NAME, text, PART, most, trial.text, trial.whole, later=True)
