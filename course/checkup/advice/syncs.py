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
ASKING_MIN = 0.03  # share of a step; without a GPU nothing is waited for, and less costs nothing
LINES_SHOWN = 2


def frequent(facts: Facts) -> list[Calls]:
    """The calls that come often enough to cost time."""
    least = PER_STEP_MIN_CUDA if facts.cuda else PER_STEP_MIN
    return [call for call in facts.syncs if call.per_step >= least]


def costs_time(facts: Facts) -> bool:
    """Whether asking for values takes time: a GPU is waited for; else the calls are short."""
    return bool(frequent(facts)) and (facts.cuda or _share_of_asking(facts) > ASKING_MIN)


def check(facts: Facts) -> Advice | None:
    """Advise to ask once, at the end, for what is asked for in each step."""
    if not costs_time(facts):
        return None
    calls = frequent(facts)
    in_lines = facts.phases.share(CODE) * _share_of_lines(facts)
    concerned = max(in_lines, _share_of_asking(facts))  # the lines may not have been looked at
    where = ", ".join(f"{n:.3g} x {call} at {line}" for call, line, n in calls[:LINES_SHOWN])
    text = f"ask for values once, at the end: per step {where}"
    gain = bound(concerned)
    return Advice(NAME, text, PART, gain, gain=gain, fault=True)


def _share_of_asking(facts: Facts) -> float:
    """The share of a step in the calls that ask, at most that of the script's own code."""
    asking = facts.sync_seconds / facts.seconds.median if facts.seconds.median else 0.0
    return min(facts.phases.share(CODE), asking)


def _share_of_lines(facts: Facts) -> float:
    """The share of the script's own time in lines that ask; with a GPU, in any line that was seen.

    Such a line may wait for what other lines have asked of the GPU.
    """
    looked_at = facts.lines.get(CODE, [])
    if not looked_at:
        return 1.0
    asking = {call.line for call in frequent(facts)}
    return min(1.0, sum(share for line, share in looked_at if facts.cuda or line in asking))
