"""What learner/ asks of an exercise and of a verdict; engine/, a level above, makes both."""

from typing import Any, Protocol


class Verdict(Protocol):
    """What a check has found about an answer."""

    correct: bool
    begun: bool  # False while the cell holds what the learner was given
    mistake: str | None  # the known one
    reason: str  # why it is not correct


class Exercise(Protocol):
    """An exercise, which can check answers."""

    unit: str
    name: str

    def judge(self, answer: Any, *, diagnose: bool = True) -> Verdict:
        """The Verdict of the visible check on `answer`."""

    def reference(self) -> Any:
        """The reference answer."""

    def sibling(self, name: str) -> "Exercise":
        """Another exercise of its unit."""
