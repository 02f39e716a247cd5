"""Whether the largest part of the time is explained: only then may a report say "no fault"."""

from course.checkup.advice.rule import start_up_share
from course.checkup.facts import NUM_WORKERS, Facts
from course.checkup.phases import (
    BACKWARD,
    CODE,
    DATA,
    EVALUATION,
    FORWARD,
    OPTIMIZER,
)
from course.checkup.predict import PHASES_OF_WAYS

COMPUTING = "forward and backward"
STARTS = "what the loader does before the first batch of an epoch"
RARE = "your own code, now and then,"
NAMES = {
    DATA: "waiting for data",
    CODE: "your own code",
    OPTIMIZER: "the optimizer",
    EVALUATION: "evaluation",
}


def parts(facts: Facts) -> dict[str, float]:
    """{what takes time: its share of all the time}."""
    shares = {
        STARTS: start_up_share(facts),
        RARE: facts.rare.share,
        NAMES[EVALUATION]: facts.evaluation.share,
    }
    of_steps = max(0.0, 1 - sum(shares.values()))
    shares[COMPUTING] = of_steps * facts.phases.share(FORWARD, BACKWARD)
    for name in facts.phases:
        if name not in (FORWARD, BACKWARD, EVALUATION):
            shares[NAMES.get(name, name)] = of_steps * facts.phases.share(name)
    return shares


def unexplained(facts: Facts) -> str:
    """A sentence on the largest part if nothing was tried on it; "" if it is explained."""
    shares = parts(facts)
    largest = max(shares, key=lambda name: shares[name])
    if _was_tried(largest, facts):
        return ""
    phase = next((phase for phase, name in NAMES.items() if name == largest), "")
    lines = facts.lines.get(phase, [])
    at = f", mostly at {lines[0].line}" if lines else ""
    takes = f"{largest} takes {shares[largest]:.0%} of the time{at}"
    return f"But the largest part is not explained: {takes}, and nothing was tried on it."


def _was_tried(part: str, facts: Facts) -> bool:
    """Whether something was tried, or measured, that would make this part shorter."""
    measured = [name for name, trial in facts.trials.by_name.items() if trial.was_measured]
    if part == NAMES[DATA]:
        return any(name.startswith(NUM_WORKERS) for name in measured)
    phases = {COMPUTING: (FORWARD, BACKWARD), NAMES[OPTIMIZER]: (OPTIMIZER,)}.get(part, ())
    for name in measured:
        if set(phases) & set(PHASES_OF_WAYS.get(name, ())):
            return True
    return False
