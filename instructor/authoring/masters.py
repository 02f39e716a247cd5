"""Make notebooks of a master: nbgrader's source, the learner's release, what a learner hands in.

A master, solutions/<unit>/<part>.py, is a percent script; a cell's part in grading is a short mark
on its line:

    # %% locked="setup"                        code that the learner must not edit
    # %% solution="LARS"                       an exercise, named like its probe in course/checks
    # %% test="LARS-visible" points=2          a grade cell; "LARS-hidden" holds the hidden seeds
    # %% [markdown] answer="essay" points=4    a text that is graded by hand
    # %% tags=["experiment"]                   a measurement: no graded cell depends on it

Two builds of one master give the same bytes. What a master must not look like is in lint.py.
"""

import ast
import re
from collections.abc import Collection
from pathlib import Path

import jupytext
import nbformat
from nbformat import NotebookNode
from nbgrader import preprocessors as nbg

from course.errors import CourseError
from course.learner.copies import digest
from course.notebook.cells import FLAGS, VISIBLE, cells_of, grade_id
from course.notebook.outline import outline
from course.notebook.registry import parts, solutions_folder
from course.text import counted
from instructor.authoring.lint import forbidden, lint_marks, lint_part

CHECK_TAGS = (
    "nbval-check-output",  # a right answer's report is the same everywhere
    "raises-exception",  # Jupyter's Run All continues after a check that fails, with the reference
)
EXTRA = "*Extra: skip it if you like. The core does not need it.*"
GIVEN = (
    "> **Given here.** You are not asked to solve this exercise: the code below it is one right "
    "answer."
)
NOT_ASKED = "> **Not asked here.** Think about it, or discuss it; nothing is handed in."
SOLUTION_MARKERS = re.compile(r"^[ \t]*### (BEGIN|END) SOLUTION[^\n]*\n", re.M)
_HINTS = re.compile(r"\n*<details>.*?</details>", re.S)
_METADATA = {
    "kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
# nbgrader's own steps of generate_assignment, less those that need a gradebook or add a header, and
# less the first check of metadata, which takes as long as all others
RELEASE_STEPS = (
    nbg.LockCells,
    nbg.ClearSolutions,
    nbg.ClearOutput,
    nbg.ComputeChecksums,
    nbg.ClearHiddenTests,
    nbg.ClearMarkScheme,
    nbg.ComputeChecksums,
    nbg.CheckCellMetadata,
)


def source_notebook(unit: str, part: str, asked: Collection[str] | None = None) -> NotebookNode:
    """nbgrader's source version of a part, with solutions and hidden tests, without outputs.

    Args:
        asked: names of exercises and free texts; all others are solved in it, as given code
            (default: all asked).

    Raises: CourseError that lists every fault `lint` refuses, and for an unknown unit or part.
    """
    if part not in parts(unit):
        raise CourseError(f"{unit} has no part {part!r}; its parts are {', '.join(parts(unit))}.")
    nb = _read_master(solutions_folder() / unit / f"{part}.py")
    name = f"{unit}/{part}.py"
    faults = []
    for number, cell in enumerate(nb.cells):
        faults += lint_marks(number, cell.metadata)
    refuse(name, faults)
    for number, cell in enumerate(nb.cells):
        _enter_marks(number, cell)
    refuse(name, lint_part(unit, part, cells_of(nb), forbidden(unit)))
    if asked is not None:
        nb.cells = _with_given(nb.cells, asked)
    _mark_extra_sections(nb)
    built_from = f"solutions/{name}"
    comment = f"<!-- Built from {built_from}: edit that file, not this one. -->"
    nb.cells[0].source = f"{comment}\n\n{nb.cells[0].source}"
    ours = {"built_from": built_from, "unit": unit, "part": part}
    nb.metadata = nbformat.from_dict(_METADATA | {"course": ours})
    # by it `write_release` knows an edited notebook
    nb.metadata.course["sources"] = digest(release_notebook(nb))
    nbformat.validate(nb)
    return nb


def release_notebook(source: NotebookNode) -> NotebookNode:
    """What the learner gets of a source notebook.

    It has stubs for solutions, no hidden test and no marking scheme.
    """
    nb = nbformat.from_dict(source)
    resources = {}
    for step in RELEASE_STEPS:
        nb, resources = step().preprocess(nb, resources)
    return nb


def solved_notebook(source: NotebookNode) -> NotebookNode:
    """What a learner hands in who has solved everything.

    That is the release with the reference in its solution cells.
    """
    nb = release_notebook(source)
    for cell, solved in zip(nb.cells, source.cells, strict=True):
        if solved.metadata.get("nbgrader", {}).get("solution"):
            cell.source = solved.source
    return nb


def text_of(nb: NotebookNode) -> str:
    """The text of a notebook file."""
    return nbformat.writes(nb) + "\n"


def refuse(name: str, faults: list[str]) -> None:
    """Raise a CourseError that lists the `faults` of a unit or a master, if there are any."""
    if faults:
        raise CourseError(f"{name} has {counted(len(faults), 'fault')}:\n  " + "\n  ".join(faults))


def _read_master(path: Path) -> NotebookNode:
    try:
        nb = jupytext.read(path, fmt="py:percent")
        ast.parse(path.read_text(encoding="utf-8"))
        return nb
    except (UnicodeDecodeError, SyntaxError, nbformat.ValidationError) as error:
        reason = str(error).splitlines()[0]
        raise CourseError(f"{path.name} is not a percent script in UTF-8: {reason}") from None


def _enter_marks(number, cell):
    """Turn the marks of a master's cell into nbgrader's metadata."""
    marks = cell.pop("metadata")
    if marks.get("test", "").endswith(VISIBLE):
        marks.setdefault("tags", CHECK_TAGS)
    cell.metadata = nbformat.from_dict({"tags": marks["tags"]} if "tags" in marks else {})
    for role in FLAGS.keys() & marks.keys():
        theirs = {"schema_version": 3, "task": False, "grade_id": marks[role], **FLAGS[role]}
        if "points" in marks:
            theirs["points"] = marks["points"]
        cell.metadata.nbgrader = theirs
    cell.id = grade_id(cell) or f"cell-{number:03d}"


def _mark_extra_sections(nb):
    """Say it below the heading of each section that is extra, or whose exercises all are."""
    by_id = {cell.id: cell for cell in nb.cells}
    for section in outline(cells_of(nb))[1:]:
        if section.is_extra:
            text = section.cells[0].source
            heading, line_break, below = text.partition("\n")
            marked = f"{heading}\n\n{EXTRA}{line_break}{below}"
            cell = by_id[section.cells[0].id]
            cell.source = cell.source.replace(text, marked)


def _with_given(cells, asked):
    """`cells` of a source notebook, in which what is not in `asked` is solved.

    The text of such a task stays, with a line that says so; its grade cells are gone. A free text
    that is not asked is only its question.
    """
    kept = []
    for cell, known in zip(cells, cells_of({"cells": cells}), strict=True):
        is_free_text = "answer" in known.marks
        name = known.marks["answer"] if is_free_text else known.exercise
        if name is None or name in asked:
            kept.append(cell)
        elif is_free_text:
            _say_below_heading(kept, NOT_ASKED)
        elif known.role == "answer":
            _say_below_heading(kept, GIVEN)
            cell.source = SOLUTION_MARKERS.sub("", cell.source + "\n").rstrip("\n")
            cell.metadata.nbgrader.update(FLAGS["locked"])
            cell.metadata.course = {"given": name}
            kept.append(cell)
    return kept


def _say_below_heading(cells, line):
    """Put `line` below the last heading of the text that `cells` end with, without its hints."""
    if cells and cells[-1].cell_type == "markdown":
        start, mark, task = _HINTS.sub("", cells[-1].source).rpartition("\n### ")
        heading, _, text = task.partition("\n")
        cells[-1].source = f"{start}{mark}{heading}\n\n{line}\n{text}"
