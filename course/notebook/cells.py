"""Read the cells of masters and notebooks: what each is for, and its text.

A master is a percent script: a line `# %%` begins each cell and names its marks, e.g.
`solution="gather"`. A notebook has the same marks as nbgrader's metadata. Everything that only
reads cells reads them here; jupytext is needed only where a master becomes a notebook.
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from course.errors import CourseError

VISIBLE = "-visible"  # ends the id of a grade cell that learners see
HIDDEN = "-hidden"  # ends the id of one that they do not see
# mark of a master -> nbgrader's flags; the value of the mark is nbgrader's grade_id
FLAGS = {
    "locked": {"grade": False, "solution": False, "locked": True},
    "solution": {"grade": False, "solution": True, "locked": False},
    "test": {"grade": True, "solution": False, "locked": True},
    "answer": {"grade": True, "solution": True, "locked": False},
}
SETUP = "setup"  # the id of the locked cell that imports
EXPERIMENT = "experiment"  # the tag of a cell that measures, which graders skip
_HEAD = "# %%"
_MARK = re.compile(r'(\w+)="([^"]*)"')
_TAGS = re.compile(r"\btags=(\[[^\]]*\])")
_POINTS = re.compile(r"\bpoints=(\d+)")


@dataclass(frozen=True)
class Cell:
    """A cell of a master or a notebook."""

    kind: str  # "markdown" or "code"
    marks: dict[str, str]  # in the words of a master, e.g. {"solution": "gather"}
    source: str
    tags: tuple[str, ...] = ()
    points: int = 0  # of a grade cell or a free text
    id: str = ""  # of a notebook's cell
    line: int = 0  # of its "# %%" in a master, from 1
    outputs: tuple[dict[str, Any], ...] = ()  # of an executed notebook, as nbformat has them
    seconds: float = 0  # that the cell took when its notebook was executed

    @property
    def grade_id(self) -> str | None:
        """The cell's nbgrader id, if it has one."""
        for mark in FLAGS:
            if mark in self.marks:
                return self.marks[mark]
        return None

    @property
    def is_graded(self) -> bool:
        """Whether it gives points: a test, or a free text."""
        return "test" in self.marks or "answer" in self.marks

    @property
    def takes_answer(self) -> bool:
        """Whether the learner writes in it: an exercise, or a free text."""
        return "solution" in self.marks or "answer" in self.marks

    @property
    def exercise(self) -> str | None:
        """The exercise that the cell answers, checks or gives solved, if any."""
        if "test" in self.marks:
            return self.marks["test"].removesuffix(VISIBLE).removesuffix(HIDDEN)
        return self.marks.get("solution") or self.marks.get("given")

    @property
    def role(self) -> str:
        """What the cell is for.

        "answer", "check" (a test that learners see), "hidden" (another test, or a free text),
        "given" (locked, or an answer that is given) or "other".
        """
        if "solution" in self.marks:
            return "answer"
        if self.marks.get("test", "").endswith(VISIBLE):
            return "check"
        if self.is_graded:
            return "hidden"
        return "given" if self.marks else "other"


def read_cells(path: Path) -> list[Cell]:
    """The cells of the master or notebook at `path`.  Raises: CourseError if it is neither."""
    try:
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".ipynb":
            return cells_of(json.loads(text))
        return script_cells(text)
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise CourseError(
            f"{path} is not a notebook of the course that can be read ({error})."
        ) from None


def cells_of(notebook: Mapping[str, Any]) -> list[Cell]:
    """The cells of a notebook that is in memory, as JSON or as a NotebookNode.

    Where a tool dropped the metadata of a cell, as some editors do, its id says what it is.
    """
    cells = [_notebook_cell(cell) for cell in notebook["cells"]]
    ids = {cell.id for cell in cells}
    named = []
    for cell in cells:
        marks = cell.marks or _marks_by_id(cell.id, ids)
        named.append(replace(cell, marks=marks))
    return named


def script_cells(text: str) -> list[Cell]:
    """The cells of a master with this `text`."""
    lines = text.split("\n")
    starts = [number for number, line in enumerate(lines) if line.startswith(_HEAD)]
    cells = []
    for start, end in pairwise([*starts, len(lines)]):
        cells.append(_script_cell(lines[start], lines[start + 1 : end], start + 1))
    return cells


def grade_id(cell: Mapping[str, Any]) -> str | None:
    """The nbgrader id of a cell of a notebook in memory, if it has one."""
    return cell["metadata"].get("nbgrader", {}).get("grade_id")


def solution_cell(cells: Iterable[Cell], exercise: str) -> Cell:
    """The cell of `cells` that is the solution of `exercise`.  Raises: LookupError if none is."""
    for cell in cells:
        if cell.marks.get("solution") == exercise:
            return cell
    raise LookupError(f"no cell is the solution of {exercise}")


def _script_cell(head, body, line):
    source = "\n".join(body).strip("\n")
    is_text = "[markdown]" in head
    if is_text:
        source = re.sub("^# ?", "", source, flags=re.M)
    tags = _TAGS.search(head)
    points = _POINTS.search(head)
    return Cell(
        kind="markdown" if is_text else "code",
        marks=dict(_MARK.findall(head)),
        source=source,
        tags=tuple(json.loads(tags[1])) if tags else (),
        points=int(points[1]) if points else 0,
        line=line,
    )


def _notebook_cell(cell):
    metadata = cell.get("metadata", {})
    return Cell(
        kind=cell["cell_type"],
        marks=_marks(metadata),
        source="".join(cell["source"]),
        tags=tuple(metadata.get("tags", ())),
        points=metadata.get("nbgrader", {}).get("points", 0),
        id=cell.get("id", ""),
        outputs=tuple(cell.get("outputs", ())),
        seconds=metadata.get("seconds", 0),
    )


def _marks_by_id(name, ids):
    """The marks of the cell `name`: the id of an exercise's cell is its nbgrader id."""
    if name.endswith((VISIBLE, HIDDEN)):
        return {"test": name}
    if name + VISIBLE in ids:
        return {"solution": name}
    return {"locked": name} if name == SETUP else {}


def _marks(metadata):
    """The marks of a notebook's cell; "given" names an exercise that is given solved."""
    given = metadata.get("course", {}).get("given")
    if given:
        return {"given": given}
    flags = metadata.get("nbgrader", {})
    if "grade_id" not in flags:
        return {}
    is_graded = bool(flags.get("grade"))
    is_solution = bool(flags.get("solution"))
    for mark, ours in FLAGS.items():
        if (ours["grade"], ours["solution"]) == (is_graded, is_solution):
            return {mark: flags["grade_id"]}
    return {}
