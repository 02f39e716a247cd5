"""What a rule is, and what rules share.

A rule is a module of this package. A gain is how many times as fast the training gets: tried if it
could be tried, else predicted, else the bound of the time that is concerned.
"""

from dataclasses import dataclass
from typing import Protocol

from course.checkup.facts import Facts
from course.checkup.phases import DATA

DATA_WAITS_MIN = 0.2  # share of a step; if less waits for data, a faster loader gains little
ITEM_PART_MIN = 0.6  # share of an item's time; below it, no one function is the one to change


@dataclass(frozen=True)
class Advice:
    """One line of the table."""

    name: str  # of the rule
    text: str
    part: str  # of the course that teaches it
    bound: float  # at most so many times as fast
    tried: str = ""  # what was measured here
    gain: float = 1.0  # what is expected; decides the order
    fault: bool = False  # worth a line even without a gain in time
    later: bool = False  # it changes how it trains, or only points at a line: it comes last


class Rule(Protocol):
    """What each module of this package has."""

    NAME: str
    PART: str  # of the course that teaches what it advises: "01/4"
    PLANTED: tuple[str, ...]  # scripts in tests/planted that it must find

    def check(self, facts: Facts) -> Advice | None:
        """The advice, or None if there is nothing to say."""


def part_of_item(facts: Facts, name: str) -> float:
    """The share of an item's time that a function takes, if it is the one to change, else 0."""
    items = facts.trials.items
    if items is None or facts.phases.share(DATA) <= DATA_WAITS_MIN:
        return 0.0
    part = items.share(name)
    return part if part > ITEM_PART_MIN else 0.0
