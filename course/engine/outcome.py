"""What a probe found about an answer, its Outcome, and how two Outcomes compare, fact by fact."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from course.engine.compare import difference, differs
from course.engine.difference import Difference
from course.engine.stops import Raised, Stop


@dataclass
class Outcome:
    """What a probe found about one answer: its facts in order, and what ended it, if anything did.

    Attributes:
        printed: what the answer printed, as far as a report shows it.
        refused: why there was nothing to look at: no function, no class.
        is_cut: whether the probe was stopped at the first fact that differed from another Outcome.
    """

    facts: dict[str, Any] = field(default_factory=dict)
    raised: Raised | None = None
    printed: str = ""
    refused: str | None = None
    is_cut: bool = False

    @property
    def is_not_written(self) -> bool:
        """Whether the answer is still a stub, as far as the probe came."""
        return self.raised is not None and self.raised.stop is Stop.NOT_WRITTEN

    def same(self, other: "Outcome") -> bool:
        """Whether both hold the same facts, and were ended by the same exception or by none."""
        return Comparison(self, other).is_same()

    def begins(self, other: "Outcome") -> bool:
        """Whether `other` holds all facts of this Outcome, with equal values."""
        return all(
            fact in other.facts and not differs(value, other.facts[fact])
            for fact, value in self.facts.items()
        )


class Comparison:
    """How the facts of one Outcome differ from those of another, each compared once, when asked."""

    def __init__(self, seen: Outcome, expected: Outcome) -> None:
        self.seen = seen
        self.expected = expected
        self._differences: dict[str, Difference | None] = {}

    def difference(self, fact: str) -> Difference | None:
        """How the values of a fact that both hold differ; None if they do not."""
        if fact not in self._differences:
            found = difference(self.seen.facts[fact], self.expected.facts[fact])
            self._differences[fact] = found
        return self._differences[fact]

    def wrong_facts(self) -> Iterator[str]:
        """Yield the facts that both hold and that differ, in the order of `seen`."""
        for fact in self.seen.facts:
            if fact in self.expected.facts and self.difference(fact):
                yield fact

    def is_undecided(self) -> bool:
        """Whether other work kept the processors busy before any fact was wrong."""
        raised = self.seen.raised
        return raised is not None and raised.stop is Stop.BUSY and not any(self.wrong_facts())

    def is_right(self) -> bool:
        """Whether `seen` holds all that is expected, and nothing ended it."""
        if self.seen.raised:
            return False
        return all(
            fact in self.seen.facts and not self.difference(fact) for fact in self.expected.facts
        )

    def is_same(self) -> bool:
        """Whether both hold the same facts, and were ended by the same exception or by none.

        Messages count as the same if they are alike without names and numbers, or if the course
        wrote one of them.
        """
        if not _are_ended_alike(self.seen.raised, self.expected.raised):
            return False
        if len(self.seen.facts) != len(self.expected.facts):
            return False
        return all(
            fact in self.expected.facts and not self.difference(fact) for fact in self.seen.facts
        )


def _are_ended_alike(one: Raised | None, other: Raised | None) -> bool:
    if one is None or other is None:
        return one is other
    messages = (one.comparable_message, other.comparable_message)
    return one.kind == other.kind and (messages[0] == messages[1] or "" in messages)
