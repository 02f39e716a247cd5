"""Kinds of steps, the phases of a step, and a Step that was seen."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

WARM = "warm"  # one of the first, which are slower than others
TIMED = "timed"  # cut into phases
FREE = "free"  # nothing is attached to it but a clock
LOOKED = "looked"  # a thread looks which line runs
COUNTED = "counted"  # values that the script asks for, collectives and gradients are looked at
CUT = (TIMED, LOOKED)  # kinds of steps whose pieces are kept

DATA = "data"
TRANSFER = "transfer"
FORWARD = "forward"
BACKWARD = "backward"
OPTIMIZER = "optimizer"
COMMUNICATION = "communication"
CODE = "code"  # all that is between the others: the script itself
PHASES = (DATA, TRANSFER, FORWARD, BACKWARD, OPTIMIZER, COMMUNICATION, CODE)
EVALUATION = "evaluation"  # a forward pass that does not train; see passes.py


class Piece(NamedTuple):
    """A stretch of a step that belongs to one phase."""

    phase: str
    start: Any  # seconds; an event in the queue of the GPU until the step has ended
    end: Any


@dataclass
class Step:
    """One step of the training."""

    kind: str
    seconds: float = 0.0
    pieces: list[Piece] = field(default_factory=list)  # in their order, if it was timed
    evaluated: float = 0.0  # seconds in forward passes that evaluate
    passes: dict[str, float] = field(default_factory=dict)  # kind of pass -> seconds, see passes.py
    queued: float = 0.0  # seconds outside communication that it waited for a core, if ranks train
    started: float = 0.0  # seconds of starting a loader and waiting for its first batch
