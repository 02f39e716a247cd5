"""What a rule is, and what rules share.

A rule is a module of this package. A gain is how many times as fast the training gets: tried if it
could be tried, else predicted by a formula, else the bound of the time that is concerned.
"""

from dataclasses import dataclass
from typing import Protocol

from course.checkup.facts import Facts
from course.checkup.phases import CODE, DATA

DATA_WAITS_MIN = 0.2  # share of a step; if less waits for data, a faster loader gains little
ITEM_PART_MIN = 0.6  # share of an item's time; below it, no one function is the one to change

NO_GAIN_MAX = 1.005  # is printed as 1.00x or 1.01x: what is less is told in words
# what the gain of an advice is
TRIED = "tried"
PREDICTED = "predicted"
BOUND = "a bound"  # if what is advised took no time
NO_GAIN = "no gain"


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

    @property
    def basis(self) -> str:
        """Where the gain comes from: TRIED, PREDICTED, BOUND, or NO_GAIN if there is none."""
        if self.tried:
            return TRIED
        if self.gain <= NO_GAIN_MAX:
            return NO_GAIN
        return PREDICTED if self.gain < self.bound else BOUND


class Rule(Protocol):
    """What each module of this package has."""

    NAME: str
    PART: str  # of the course that teaches what it advises: "01/4"
    PLANTED: tuple[str, ...]  # scripts in tests/planted that it must find

    def check(self, facts: Facts) -> Advice | None:
        """The advice, or None if there is nothing to say."""


def share_of_lines(facts: Facts, lines: set[str]) -> float:
    """The share of a step that these lines of the script's own code take."""
    part = sum(share for line, share in facts.lines.get(CODE, []) if line in lines)
    return facts.phases.share(CODE) * part


def start_up_share(facts: Facts) -> float:
    """The share of an epoch that goes by before its first batch, without loading that."""
    now = facts.loader
    if now is None or not now.starts:
        return 0.0
    costs = facts.trials.costs
    data = facts.phases.get(DATA)
    loading = data.seconds if data else 0.0
    if costs:
        loading = max(loading, costs.batch)
    epoch = now.steps_per_start * facts.seconds.median + now.start_seconds
    return max(0.0, now.start_seconds - loading) / max(1e-9, epoch)


def part_of_item(facts: Facts, name: str) -> float:
    """The share of an item's time that a function takes, if it is the one to change, else 0."""
    items = facts.trials.items
    if items is None or facts.phases.share(DATA) <= DATA_WAITS_MIN:
        return 0.0
    part = items.share(name)
    return part if part > ITEM_PART_MIN else 0.0
