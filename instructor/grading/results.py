"""What comes of grading, as plain dataclasses: nothing of nbgrader, SQLAlchemy or torch in them.

    Submission -> submission.grade -> Graded, one PartResult per notebook, one Mark per grade cell

Pending results and the gradebook keep a Graded as JSON (`to_json`), which leaves out the notebooks.
"""

import json
from collections.abc import Generator
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple


@dataclass(frozen=True)
class Submission:
    """What one learner handed in of one unit, as it lies in the inbox."""

    learner: str
    unit: str
    files: dict[str, Path]  # part -> where its notebook should lie, for every part of the unit
    received: datetime  # in UTC
    is_told: bool = False  # whether a person said when; else the time is that of a folder

    def __hash__(self) -> int:
        return hash((self.learner, self.unit))


class Attempt(NamedTuple):
    """A submission that was worked on, and why it has no result, or None."""

    submission: Submission
    failure: str | None


Attempts = Generator[Attempt, None, None]  # closed early, what still runs is ended


@dataclass
class Mark:
    """One grade cell of a submission."""

    cell: str  # its grade id, "lars-hidden"
    score: float
    points: float
    report: str  # what feedback shows: no expected value, no seed
    mistake: str | None = None  # name of the known mistake recognised

    @property
    def exercise(self) -> str:
        """The exercise that the cell belongs to."""
        return self.cell.removesuffix("-visible").removesuffix("-hidden")


@dataclass
class PartResult:
    """One part, which is one notebook, of a submission."""

    part: str
    marks: list[Mark]
    note: str = ""  # plain reason if it is missing, could not be read, hung, died
    # nbformat's: the release with the learner's sources and outputs; None where only scores count
    notebook: Any = None


@dataclass
class Graded:
    """One submission and what came of grading it."""

    learner: str
    unit: str
    parts: list[PartResult]
    received: datetime  # in UTC, by the inbox
    fingerprint: str  # of the submitted files and the checks: the same needs no new grading
    seconds: float = field(default=0.0, compare=False)

    @property
    def marks(self) -> list[Mark]:
        """The marks of all parts, in order."""
        marks = []
        for part in self.parts:
            marks += part.marks
        return marks

    @property
    def note(self) -> str:
        """The notes of all parts, each with the names of the parts that have it, or ""."""
        parts_of: dict[str, list[str]] = {}
        for part in self.parts:
            if part.note:
                parts_of.setdefault(part.note, []).append(part.part)
        return " ".join(f"{', '.join(names)}: {note}" for note, names in parts_of.items())

    def to_json(self) -> str:
        """Everything but the notebooks."""
        parts = []
        for part in self.parts:
            marks = [asdict(mark) for mark in part.marks]
            parts.append({"part": part.part, "marks": marks, "note": part.note})
        fields = {
            "learner": self.learner,
            "unit": self.unit,
            "parts": parts,
            "received": self.received.isoformat(),
            "fingerprint": self.fingerprint,
            "seconds": self.seconds,
        }
        return json.dumps(fields, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> "Graded":
        """The Graded that `to_json` was called on, without notebooks."""
        fields = json.loads(text)
        parts = []
        for part in fields["parts"]:
            marks = [Mark(**mark) for mark in part["marks"]]
            parts.append(PartResult(part["part"], marks, part["note"]))
        received = datetime.fromisoformat(fields["received"])
        return cls(**fields | {"parts": parts, "received": received})
