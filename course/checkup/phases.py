"""Kinds of steps, the phases of a step, and a Step that was seen."""

from dataclasses import dataclass, field

WARM, TIMED, FREE, LOOKED, COUNTED = "warm", "timed", "free", "looked", "counted"
CODE = "code"  # the phase of all that is between the others: the script itself
DATA, START, TRANSFER, FORWARD, BACKWARD = "data", "loader start", "transfer", "forward", "backward"
OPTIMIZER, EVALUATION, COMMUNICATION = "optimizer", "evaluation", "communication"
PHASES = DATA, TRANSFER, FORWARD, BACKWARD, OPTIMIZER, COMMUNICATION, CODE


@dataclass
class Step:
    """One step: its kind, its seconds, and, if it was timed, its pieces (phase, start, end) in
    their order.
    """

    kind: str
    seconds: float = 0.0
    pieces: list = field(default_factory=list)
    evaluated: float = 0.0  # seconds in forward passes that evaluate
    started: float = 0.0  # seconds of starting a loader and waiting for its first batch
