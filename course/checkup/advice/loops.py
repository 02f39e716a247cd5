"""A loop that changes one parameter after the other."""

from course.checkup.advice.rule import Advice, share_of_lines
from course.checkup.facts import Calls, Facts
from course.checkup.phases import CODE
from course.checkup.predict import bound

NAME = "loops"
PART = "06/3"
PLANTED = ("moving_average",)
CALLS_MIN = 8  # per step; fewer take no time
CODE_MIN = 0.02  # share of a step
TENSORS_MIN = 0.5  # calls per parameter; fewer come from no loop over them


def frequent(facts: Facts) -> list[Calls]:
    """The calls that come about once per parameter."""
    least = max(CALLS_MIN, TENSORS_MIN * facts.optimizers.tensors)
    return [call for call in facts.habits.loops if call.per_step >= least]


def check(facts: Facts) -> Advice | None:
    """Advise one call for all of them."""
    calls = frequent(facts)
    if not calls or facts.phases.share(CODE) < CODE_MIN:
        return None
    lines = set()
    for call in calls:
        lines |= {call.line, *facts.habits.loop_lines.get(call.line, [])}
    of_lines = share_of_lines(facts, lines)
    of_calls = facts.habits.looping / max(1e-9, facts.seconds.median)
    most = bound(min(facts.phases.share(CODE), max(of_lines, of_calls)))
    first = calls[0]
    text = (
        f"one torch._foreach_ call for all parameters, as in torch.optim.swa_utils: "
        f"{first.per_step:.3g} x {first.name} at {first.line} per step"
    )
    return Advice(NAME, text, PART, most, "", most, fault=True)
