"""What is needed to grade submissions of one unit: released notebooks, grade cells with their seeds, right facts.

    plan = Plan("03_large_batch");  plan.parts["2_bigger_batch"].checks["scaled_lr-hidden"]

Built once per batch.  What the checks expect is filled in by batch.find_right_answers, or asked for here.
"""

import ast
import hashlib
import importlib
from collections.abc import Set
from dataclasses import dataclass
from pathlib import Path

import torch

from course.checks.engine import Exercise
from course.checks.expected import solutions_folder
from course.grading.rebuild import Unreadable, read_submission
from course.publish.build import grade_id, release_notebook, source_notebook
from course.units import parts

COURSE = Path(__file__).parents[1]


@dataclass(frozen=True)
class Check:
    """One grade cell: which exercise, which name holds the answer, which inputs."""

    cell: str
    exercise: Exercise
    answer: str
    seed: int
    points: float


class PartPlan:
    """One part of a unit: source, release, and {grade id: Check} in the order of the notebook."""

    def __init__(self, unit: str, part: str, device: torch.device, source):
        self.unit, self.part, self.device, self.source = unit, part, device, source
        self.release, self.right = release_notebook(source), {}
        self.checks = {check.cell: check for check in map(self._check, filter(_is_check, source.cells))}

    @property
    def asks(self) -> bool:
        """Whether any of its cells is graded, by a check or by hand: a part of a smaller release may ask nothing."""
        return any(cell.metadata.get("nbgrader", {}).get("grade") for cell in self.source.cells)

    def _check(self, cell):
        call = ast.parse(cell.source).body[0].value
        module = importlib.import_module(f"course.checks.{self.unit[3:]}")
        seed = next((ast.literal_eval(k.value) for k in call.keywords if k.arg == "seed"), 0)
        points = cell.metadata.nbgrader.points
        return Check(grade_id(cell), getattr(module, call.func.attr), call.args[0].id, seed, points)

    def find_out(self, cell: str) -> dict:
        """{"is_class": whether the answer is to be a class, "expected": the facts of a right one} of a grade cell."""
        if cell not in self.right:
            exercise, seed = self.checks[cell].exercise, self.checks[cell].seed
            expected = exercise.expected(self.device, seed).facts
            self.right[cell] = {"is_class": exercise.asks_for_class(self.device, seed), "expected": expected}
        return self.right[cell]


class Plan:
    """All parts of a unit, {part: PartPlan}.

    Args:
        asked: {part: names of the exercises that were asked}, of a release that asks fewer; None stands for all.
    """

    def __init__(self, unit: str, device: str = "cpu", asked: dict[str, Set[str]] | None = None):
        self.unit, self.device, self.asked = unit, torch.device(device), asked
        names = parts(unit) if asked is None else sorted(asked)
        sources = {part: _source(unit, part, asked) for part in names}
        self.parts = {part: PartPlan(unit, part, self.device, source) for part, source in sources.items()}
        files = sorted([*(solutions_folder() / unit).rglob("*.py"), *COURSE.glob("*.py")])
        files += sorted([*COURSE.glob("checks/**/*.py"), *COURSE.glob("grading/**/*.py")])
        self.digest = hashlib.sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()

    @property
    def sources(self) -> dict:
        """{part: its source notebook}."""
        return {name: part.source for name, part in self.parts.items()}

    def fingerprint(self, files: dict[str, Path]) -> str:
        """A text that changes with the submitted `files`, {part: path}, and all that decides about their points."""
        asked = "all" if self.asked is None else [[part, sorted(names)] for part, names in sorted(self.asked.items())]
        found = hashlib.sha256(f"{self.digest} {self.device} {asked}".encode())
        for part, path in sorted(files.items()):
            try:
                data = read_submission(path)
            except Unreadable as error:
                data = str(error).encode()
            found.update(f"\0{part} {len(data)}\0".encode() + data)
        return found.hexdigest()


def _source(unit, part, asked):
    return source_notebook(unit, part) if asked is None else source_notebook(unit, part, asked=asked[part])


def _is_check(cell):
    marks = cell.metadata.get("nbgrader", {})
    return marks.get("grade") and marks.get("locked")
