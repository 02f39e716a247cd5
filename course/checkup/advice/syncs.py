"""Values of tensors that the script asks for, so that it waits for each."""

from course.checkup.advice.rule import Advice
from course.checkup.facts import Calls, Facts
from course.checkup.phases import CODE
from course.checkup.predict import bound

NAME = "syncs"
PART = "06/1"
PLANTED = ("syncs",)
PER_STEP_MIN = 3.0  # a loss and an accuracy per step are usual
PER_STEP_MIN_CUDA = 0.5  # each makes the processor wait for the GPU
CODE_MIN = 0.05  # share of a step; if the script's own code takes less, asking costs nothing
LINES_SHOWN = 2


def frequent(facts: Facts) -> list[Calls]:
    """The calls that come often enough to cost time."""
    least = PER_STEP_MIN_CUDA if facts.cuda else PER_STEP_MIN
    return [call for call in facts.syncs if call.per_step >= least]


def check(facts: Facts) -> Advice | None:
    """Advise to ask once, at the end, for what is asked for in each step."""
    calls = frequent(facts)
    own_code = facts.phases.share(CODE)
    if not calls or (own_code <= CODE_MIN and not facts.cuda):
        return None
    seen_in_lines = sum(share for _, share in facts.lines.get(CODE, []))
    concerned = own_code * min(1.0, seen_in_lines or 1.0)
    where = ", ".join(f"{n:.3g} x {call} at {line}" for call, line, n in calls[:LINES_SHOWN])
    text = f"ask for values once, at the end: per step {where}"
    return Advice(NAME, text, PART, bound(concerned), gain=bound(concerned))
