"""What is needed to grade submissions of one unit: released notebooks, grade cells and their seeds,
right facts.

    plan = Plan("03_large_batch")
    plan.parts["2_the_map"].checks["scaled_lr-hidden"]

Built once per batch. What the checks expect is filled in by right_answers.find_right_answers, or
asked for here.
"""

import ast
import hashlib
from collections import Counter
from collections.abc import Mapping, Set
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from nbformat import NotebookNode

from course import checks
from course.engine.exercise import Exercise
from course.errors import CourseError
from course.notebook.cells import grade_id
from course.notebook.registry import parts, solutions_folder
from course.system.folders import ROOT
from instructor.authoring.masters import release_notebook, source_notebook
from instructor.grading.limits import DEFAULTS, SEED_DRAWS, CourseGrading
from instructor.grading.own_modules import contents
from instructor.grading.rebuild import Unreadable, read_submission
from instructor.grading.seeds import drawn_seed
from instructor.jail.forbidden import source_files
from instructor.jail.reference import right_answer, unpacked

GRADING_CODE = ("course/checks", "course/engine", "instructor/grading", "instructor/jail")


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
        secret: what the seeds are drawn from; None stands for those that stand in the cells.
    """

    def __init__(
        self,
        unit: str,
        part: str,
        source: NotebookNode,
        device: torch.device,
        draws: Mapping[str, int],
        secret: str | None,
    ) -> None:
        self.unit = unit
        self.part = part
        self.source = source
        self.device = device
        self.settled = draws
        self.secret = secret
        self.release = release_notebook(source)
        self.right: dict[str, dict[str, Any]] = {}  # grade id -> what a right answer gives
        self.failed: Counter[str] = Counter()  # grade id -> how often that could not be used
        checks = [self._check(cell) for cell in source.cells if _is_check(cell)]
        self.checks = {check.cell: check for check in checks}
        self.covered = tuple(source_files(self._forbidden()))

    @property
    def asks(self) -> bool:
        """Whether any of its cells is graded, by a check or by hand.

        A part of a smaller release may ask nothing.
        """
        return any(cell.metadata.get("nbgrader", {}).get("grade") for cell in self.source.cells)

    def _forbidden(self) -> set[str]:
        """The dotted paths that any of its tasks forbids."""
        paths: set[str] = set()
        for check in self.checks.values():
            paths.update(check.exercise.forbids)
        return paths

    def _check(self, cell: NotebookNode) -> Check:
        """The Check of a grade cell, `check.scaled_lr(scaled_lr, seed=3)`."""
        call = ast.parse(cell.source).body[0].value  # type: ignore[attr-defined]  # the lint holds it
        name = str(grade_id(cell))
        draw = self.settled.get(self._key(name), 0)
        if self.secret:
            seed = drawn_seed(self.secret, self.unit, name, draw)
        else:
            seed = _seed_in(call)
        return Check(
            cell=name,
            exercise=checks.exercise(self.unit, call.func.attr),
            answer=call.args[0].id,
            seed=seed,
            points=cell.metadata.nbgrader.points,
            draw=draw,
        )

    def _key(self, cell: str) -> str:
        """The name of a grade cell among those of all units."""
        return f"{self.unit} {cell}"

    @property
    def draws(self) -> dict[str, int]:
        """{"unit cell": draw} of the cells of which is known what they expect."""
        return {self._key(cell): self.checks[cell].draw for cell in self.right}

    def find_out(self, cell: str) -> dict[str, Any]:
        """What a right answer gives in a grade cell.

        Returns: {"is_class": whether the answer is to be a class, "expected": the facts}.
        """
        while cell not in self.right:
            check = self.checks[cell]
            self.accept(cell, right_answer(check.exercise, self.device, check.seed))
        right = self.right[cell]
        right["expected"] = unpacked(right["expected"])
        return right

    def accept(self, cell: str, right: dict[str, Any]) -> bool:
        """Store what a right answer gives in a grade cell; False if it must be computed again.

        Then with another seed, unless the batch has settled on this one.
        Raises: CourseError if the reference failed with as many seeds as are tried.
        """
        is_settled = self._key(cell) in self.settled
        has_failed = "error" in right
        is_unfair = not is_settled and not right.get("is_fair", True)
        if self.secret and (has_failed or is_unfair) and self.failed[cell] < SEED_DRAWS:
            self.failed[cell] += 1
            if not is_settled:
                self._draw_again(cell, self.secret)
            return False
        if has_failed:
            raise CourseError(f"{self.unit}, {cell} cannot be checked: {right['error']}")
        self.right[cell] = right
        return True

    def _draw_again(self, cell: str, secret: str) -> None:
        check = self.checks[cell]
        draw = check.draw + 1
        seed = drawn_seed(secret, self.unit, cell, draw)
        self.checks[cell] = replace(check, seed=seed, draw=draw)


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
        asked: Mapping[str, Set[str]] | None = None,
        secret: str | None = None,
        draws: Mapping[str, int] | None = None,
    ) -> None:
        self.unit = unit
        self.device = torch.device(device)
        self.asked = asked
        self.parts: dict[str, PartPlan] = {}
        for part in parts(unit) if asked is None else sorted(asked):
            source = _source(unit, part, asked)
            self.parts[part] = PartPlan(unit, part, source, self.device, draws or {}, secret)
        texts = (file.read_bytes() for file in _code_that_decides(unit))
        self.digest = hashlib.sha256(b"\0".join(texts)).hexdigest()

    @property
    def sources(self) -> dict[str, NotebookNode]:
        """{part: its source notebook}."""
        return {name: part.source for name, part in self.parts.items()}

    def fingerprint(self, files: Mapping[str, Path], limits: CourseGrading = DEFAULTS) -> str:
        """A text that changes with submitted files and with all that decides about their points.

        Args:
            files: {part: path} of a submission.
            limits: what is read of them, and of Python files next to them.
        """
        digest = hashlib.sha256(f"{self.digest} {self.device} {self._shown_asked()}".encode())
        for part, path in sorted(files.items()):
            try:
                data = read_submission(path, limits.notebook_bytes)
            except Unreadable as error:
                data = str(error).encode()
            digest.update(f"\0{part} {len(data)}\0".encode() + data)
        for folder in sorted({path.parent for path in files.values()}):
            for name, text in contents(folder, limits):
                digest.update(f"\0{name} {len(text)}\0{text}".encode())
        return digest.hexdigest()

    def _shown_asked(self) -> str:
        if self.asked is None:
            return "all"
        return str([[part, sorted(names)] for part, names in sorted(self.asked.items())])


def _code_that_decides(unit: str) -> list[Path]:
    """The files that decide about points."""
    files = sorted([*(solutions_folder() / unit).rglob("*.py"), *(ROOT / "course").glob("*.py")])
    for folder in GRADING_CODE:
        files += sorted((ROOT / folder).rglob("*.py"))
    return files


def _seed_in(call: Any) -> int:
    """The seed that a call names, else that of the visible check."""
    for keyword in call.keywords:
        if keyword.arg == "seed":
            return int(ast.literal_eval(keyword.value))
    return 0


def _source(unit: str, part: str, asked: Mapping[str, Set[str]] | None) -> NotebookNode:
    if asked is None:
        return source_notebook(unit, part)
    return source_notebook(unit, part, asked=asked[part])


def _is_check(cell: NotebookNode) -> bool:
    marks = cell.metadata.get("nbgrader", {})
    return bool(marks.get("grade") and marks.get("locked"))
