"""Probe of exercise where_time_goes."""

import torch

from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.values import number_kind, type_word

PHASES = ("data", "transfer", "forward", "backward", "optimizer")
TWO_PHASES = ("data", "forward")


@exercise()
def where_time_goes(answer: Answer, device: torch.device, seed: int) -> Facts:
    """Shares of phases in lists of events that were made up."""
    late = 1000 * (1 + seed % 5)  # µs: a profile's clock does not begin at 0
    two = [("data", late, late + 30), ("forward", late + 30, late + 100)]
    result = answer(two, TWO_PHASES)
    yield "returns a dict", type_word(result)
    yield "its keys are the phases and 'other'", sorted(result)
    yield "its values are numbers", sorted(set(map(number_kind, result.values())))
    yield "two phases, one after the other", result
    again = [("data", late + 100, late + 120), ("forward", late + 120, late + 150 + seed % 97)]
    yield "a phase that runs twice", answer(two + again, TWO_PHASES)
    inside = [("aten::conv2d", late + 31, late + 90), ("aten::relu", late + 90, late + 99)]
    shares = answer(two + inside, TWO_PHASES)
    yield "operations inside a phase do not count a second time", shares
    yield from _other(answer, late, seed % 97)
    yield "all five phases are there, 0 for one that never ran", answer(again, PHASES)
    yield "events in another order", answer((two + again + inside)[::-1], TWO_PHASES)
    swapped = [("forward", late, late + 40), ("backward", late + 50, late + 150 + seed % 97)]
    shares = answer(swapped, ("forward", "backward"))
    yield "phases that are not in the order of the alphabet", shares
    yield "phases in another order", answer(two + again, ("forward", "data"))
    fractions = [("data", 0.25, 0.5), ("forward", 0.5, 2.75)]
    yield "times that are not whole numbers", answer(fractions, TWO_PHASES)


def _other(answer: Answer, late: int, more: int) -> Facts:
    """Time that belongs to no phase; the second of two phases takes `more` µs more."""
    disjoint = [("data", late, late + 10), ("forward", late + 20, late + 40)]
    yield "time between two phases is other", answer(disjoint, TWO_PHASES)
    printing = ("print", late + 10, late + 60)
    busy = [("data", late, late + 10), printing, ("forward", late + 60, late + 100)]
    yield "so is an event that does not belong to a phase", answer(busy, TWO_PHASES)
    end = late + 100 + more
    two = [("data", late, late + 30), ("forward", late + 30, end)]
    around = [("start-up", late - 500, late - 2), *two, ("saving", end + 50, end + 800)]
    shares = answer(around, TWO_PHASES)
    yield "what runs before the first phase and after the last does not count", shares
