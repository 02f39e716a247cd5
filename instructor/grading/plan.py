"""What is needed to grade submissions of one unit: released notebooks, grade cells and their seeds,
right facts.

    plan = Plan("03_large_batch");  plan.parts["2_bigger_batch"].checks["scaled_lr-hidden"]

Built once per batch. What the checks expect is filled in by batch.find_right_answers, or asked for
here.
"""

import ast
import hashlib
from collections import Counter
from collections.abc import Set
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from course import checks
from course.engine.exercise import Exercise
from course.errors import CourseError
from course.notebook.cells import grade_id
from course.notebook.registry import parts, solutions_folder
from course.system.folders import ROOT
from instructor.authoring.masters import release_notebook, source_notebook
from instructor.grading.rebuild import Unreadable, read_submission
from instructor.grading.seeds import DRAWS, drawn_seed
from instructor.jail.forbidden import source_files
from instructor.jail.reference import right_answer, unpacked


@dataclass(frozen=True)
class Check:
    """One grade cell: which exercise, which name holds the answer, which inputs."""

    cell: str
    exercise: Exercise
    answer: str
    seed: int
    points: float
    draw: int = 0  # how often another seed was drawn, since one of our own right answers failed

    @property
    def is_visible(self) -> bool:
        """Whether learners see the cell."""
        return self.cell.endswith("-visible")


class PartPlan:
    """One part of a unit: source, release, and {grade id: Check} in the order of the notebook.

    Args:
        draws: {"unit cell": draw} of the cells whose seed stays as it is, see seeds.py.
    """

    def __init__(
        self,
        unit: str,
        part: str,
        source,
        device: torch.device,
        draws: dict[str, int],
        secret: str | None,
    ):
        self.unit, self.part, self.device, self.source, self.secret = (
            unit,
            part,
            device,
            source,
            secret,
        )
        self.release, self.right, self.settled, self.failed = (
            release_notebook(source),
            {},
            draws,
            Counter(),
        )
        self.checks = {
            check.cell: check for check in map(self._check, filter(_is_check, source.cells))
        }
        self.covered = tuple(
            source_files({path for c in self.checks.values() for path in c.exercise.forbids})
        )

    @property
    def asks(self) -> bool:
        """Whether any of its cells is graded, by a check or by hand: a part of a smaller release
        may ask nothing.
        """
        return any(cell.metadata.get("nbgrader", {}).get("grade") for cell in self.source.cells)

    def _check(self, cell):
        call = ast.parse(cell.source).body[0].value
        exercise = checks.exercise(self.unit, call.func.attr)
        name, draw = grade_id(cell), self.settled.get(f"{self.unit} {grade_id(cell)}", 0)
        seed = next((ast.literal_eval(k.value) for k in call.keywords if k.arg == "seed"), 0)
        seed = drawn_seed(self.secret, self.unit, name, draw) if self.secret else seed
        points = cell.metadata.nbgrader.points
        return Check(name, exercise, call.args[0].id, seed, points, draw)

    @property
    def draws(self) -> dict[str, int]:
        """{"unit cell": draw} of the cells of which is known what they expect."""
        return {f"{self.unit} {cell}": self.checks[cell].draw for cell in self.right}

    def find_out(self, cell: str) -> dict:
        """{"is_class": whether the answer is to be a class, "expected": the facts of a right one}
        of a grade cell.
        """
        while cell not in self.right:
            check = self.checks[cell]
            self.accept(cell, right_answer(check.exercise, self.device, check.seed))
        right = self.right[cell]
        right["expected"] = unpacked(right["expected"])
        return right

    def accept(self, cell: str, right: dict) -> bool:
        """Store the facts that a grade cell expects; False if they must be computed again, with
        another seed unless the batch has settled on this one.
        """
        check, is_settled = self.checks[cell], f"{self.unit} {cell}" in self.settled
        fails = "error" in right or not (is_settled or right.get("is_fair", True))
        if self.secret and fails and self.failed[cell] < DRAWS:
            self.failed[cell] += 1
            if not is_settled:
                seed = drawn_seed(self.secret, self.unit, cell, check.draw + 1)
                self.checks[cell] = replace(check, seed=seed, draw=check.draw + 1)
            return False
        if "error" in right:
            raise CourseError(f"{self.unit}, {cell} cannot be checked: {right['error']}")
        self.right[cell] = right
        return True


class Plan:
    """All parts of a unit, {part: PartPlan}.

    Args:
        asked: {part: names of the exercises that were asked}, of a release that asks fewer; None
            stands for all.
        secret: what the seeds of all grade cells, the visible ones too, are drawn from (seeds.py);
            None stands for those that stand in the cells, which a learner may know.
        draws: {"unit cell": draw} of the cells whose seed a batch has settled on.
    """

    def __init__(
        self,
        unit: str,
        device: str = "cpu",
        asked: dict[str, Set[str]] | None = None,
        secret: str | None = None,
        draws: dict[str, int] | None = None,
    ):
        self.unit, self.device, self.asked = unit, torch.device(device), asked
        names = parts(unit) if asked is None else sorted(asked)
        sources = {part: _source(unit, part, asked) for part in names}
        how = self.device, draws or {}, secret
        self.parts = {part: PartPlan(unit, part, source, *how) for part, source in sources.items()}
        files = sorted(
            [*(solutions_folder() / unit).rglob("*.py"), *(ROOT / "course").glob("*.py")]
        )
        for folder in ("course/checks", "course/engine", "instructor/grading", "instructor/jail"):
            files += sorted((ROOT / folder).rglob("*.py"))
        self.digest = hashlib.sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()

    @property
    def sources(self) -> dict:
        """{part: its source notebook}."""
        return {name: part.source for name, part in self.parts.items()}

    def fingerprint(self, files: dict[str, Path]) -> str:
        """A text that changes with the submitted `files`, {part: path}, and all that decides about
        their points.
        """
        asked = (
            "all"
            if self.asked is None
            else [[part, sorted(names)] for part, names in sorted(self.asked.items())]
        )
        digest = hashlib.sha256(f"{self.digest} {self.device} {asked}".encode())
        for part, path in sorted(files.items()):
            try:
                data = read_submission(path)
            except Unreadable as error:
                data = str(error).encode()
            digest.update(f"\0{part} {len(data)}\0".encode() + data)
        return digest.hexdigest()


def _source(unit, part, asked):
    return (
        source_notebook(unit, part)
        if asked is None
        else source_notebook(unit, part, asked=asked[part])
    )


def _is_check(cell):
    marks = cell.metadata.get("nbgrader", {})
    return marks.get("grade") and marks.get("locked")
