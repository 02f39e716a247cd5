"""Cells of a batch that hold no token."""

from course.checkup.advice.rule import Advice
from course.checkup.facts import Facts
from course.checkup.phases import BACKWARD, FORWARD
from course.checkup.predict import bound

NAME = "padding"
PART = "05/3"
PLANTED = ("padding",)
ORDER = "this changes the order of the samples, so shuffle the batches"
CELLS_MIN = 1.15  # times the cells that sorting in the window seen would leave


def check(facts: Facts) -> Advice | None:
    """Advise batches of similar lengths."""
    cells = facts.padding
    if cells is None or cells.waste <= CELLS_MIN * cells.bucketed:
        return None
    computing = facts.phases.share(FORWARD, BACKWARD)
    gain = bound(computing * (1 - cells.bucketed / cells.waste))
    numbers = f"{cells.waste:.2f} cells per token, {cells.bucketed:.2f} if those seen were sorted"
    text = f"batch sequences of similar length: {numbers} ({ORDER})"
    return Advice(NAME, text, PART, bound(computing), "", gain)
