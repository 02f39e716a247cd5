"""Masters -> notebooks: solutions/<unit>/<part>.py -> nbgrader's source and the learner's release
version.

A master is a percent script; a cell's part in grading is a short mark on its line:

    # %% locked="setup"                        code that the learner must not edit
    # %% solution="LARS"                       an exercise, named like its probe in course/checks
    # %% test="LARS-visible" points=2          a grade cell; "LARS-hidden" holds the hidden seeds
    # %% [markdown] answer="essay" points=4    a text that is graded by hand
    # %% tags=["experiment"]                   a measurement: no graded cell depends on it

Two builds of one master give the same bytes. An edited learner's notebook is never overwritten.
What a master must not look like is in lint.py, how it is run in execute.py.
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
from course.learner.copies import digest, is_edited, write_notebook
from course.notebook.registry import all_units, parts, solutions_folder
from course.system.files import write_text
from course.system.folders import ROOT
from course.text import counted
from instructor.authoring.given import give
from instructor.authoring.lint import forbidden, grade_id, lint_marks, lint_part
from instructor.authoring.prose import EXTRA as MARK_OF_EXTRA
from instructor.authoring.prose import measured

HEADING_OR_KIND = re.compile(r"^(?:## .+|\*\*Points\*\* .*\*\*(?P<kind>Core|Extra)\*\*.*)$", re.M)
CHECK_TAGS = (
    "nbval-check-output",  # a right answer's report is the same everywhere
    "raises-exception",  # Jupyter's Run All continues after a check that fails, with the reference
)
EXTRA = "*Extra: skip it if you like. The core does not need it.*"

ROLES = {
    "locked": {"locked": True},
    "solution": {"solution": True},
    "test": {"grade": True, "locked": True},
    "answer": {"grade": True, "solution": True},
}
METADATA = {
    "kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
# nbgrader's own steps of generate_assignment, less those that need a gradebook or add a header, and
# less the first check of metadata, which takes as long as all others
RELEASE_STEPS = (nbg.LockCells, nbg.ClearSolutions, nbg.ClearOutput, nbg.ComputeChecksums,
                 nbg.ClearHiddenTests, nbg.ClearMarkScheme, nbg.ComputeChecksums, nbg.CheckCellMetadata)  # fmt: skip


def source_notebook(unit: str, part: str, asked: Collection[str] | None = None) -> NotebookNode:
    """nbgrader's source version of a part: a notebook with solutions and hidden tests, without
    outputs.

    Args:
        asked: names of exercises and free texts; all others are solved in it, as given code
            (default: all asked).

    Raises: CourseError that lists every fault `lint` refuses, and for an unknown unit or part.
    """
    if part not in parts(unit):
        raise CourseError(f"{unit} has no part {part!r}; its parts are {', '.join(parts(unit))}.")
    nb = _read_master(solutions_folder() / unit / f"{part}.py")
    name = f"{unit}/{part}.py"
    refuse(
        name,
        [
            fault
            for number, cell in enumerate(nb.cells)
            for fault in lint_marks(number, cell.metadata)
        ],
    )
    for number, cell in enumerate(nb.cells):
        _enter_marks(number, cell)
    refuse(name, lint_part(unit, part, nb, forbidden(unit)))
    nb = nb if asked is None else give(nb, asked)
    _mark_extra_sections(nb)
    built_from = f"solutions/{name}"
    nb.cells[0].source = (
        f"<!-- Built from {built_from}: edit that file, not this one. -->\n\n" + nb.cells[0].source
    )
    nb.metadata = nbformat.from_dict(
        METADATA | {"course": {"built_from": built_from, "unit": unit, "part": part}}
    )
    # by it `write_release` knows an edited notebook
    nb.metadata.course["sources"] = digest(release_notebook(nb))
    nbformat.validate(nb)
    return nb


def _read_master(path):
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
    if marks.get("test", "").endswith("-visible"):
        marks.setdefault("tags", CHECK_TAGS)
    cell.metadata = nbformat.from_dict({"tags": marks["tags"]} if "tags" in marks else {})
    for role in ROLES.keys() & marks.keys():
        cell.metadata.nbgrader = {"schema_version": 3, "grade": False, "solution": False, "locked": False,
                                  "task": False, "grade_id": marks[role], **ROLES[role]}  # fmt: skip
        if "points" in marks:
            cell.metadata.nbgrader["points"] = marks["points"]
    cell.id = grade_id(cell) or f"cell-{number:03d}"


def _mark_extra_sections(nb):
    """Say it below the heading of each section that is extra, or whose exercises all are."""
    kinds = set()
    for cell in reversed([cell for cell in nb.cells if cell.cell_type == "markdown"]):
        for match in reversed([*HEADING_OR_KIND.finditer(cell.source)]):
            if match["kind"]:
                kinds.add(match["kind"])
                continue
            if kinds == {"Extra"} or match[0].endswith(MARK_OF_EXTRA):
                cell.source = f"{cell.source[: match.end()]}\n\n{EXTRA}{cell.source[match.end() :]}"
            kinds = set()


def refuse(name: str, faults: list[str]) -> None:
    """Raise a CourseError that lists the `faults` of a unit or a master, if there are any."""
    if faults:
        raise CourseError(f"{name} has {counted(len(faults), 'fault')}:\n  " + "\n  ".join(faults))


def release_notebook(source: NotebookNode) -> NotebookNode:
    """What the learner gets of a source notebook: stubs for solutions, no hidden test, no marking
    scheme.
    """
    nb, resources = nbformat.from_dict(source), {}
    for step in RELEASE_STEPS:
        nb, resources = step().preprocess(nb, resources)
    return nb


def solved_notebook(source: NotebookNode) -> NotebookNode:
    """What a learner would hand in who has solved everything: the release with the reference in its
    solution cells.
    """
    nb = release_notebook(source)
    for cell, solved in zip(nb.cells, source.cells, strict=True):
        if solved.metadata.get("nbgrader", {}).get("solution"):
            cell.source = solved.source
    return nb


def text_of(nb: NotebookNode) -> str:
    """The bytes of a notebook file."""
    return nbformat.writes(nb) + "\n"


def write_release(path: Path, nb: NotebookNode) -> str:
    """Write the learner's notebook `nb` to `path`, unless the one that lies there was edited; see
    `write_notebook`.
    """
    return write_notebook(path, text_of(nb))


def build(unit: str, part: str, root: Path = ROOT) -> tuple[NotebookNode, str]:
    """Write source and release of a part below `root`; returns the source notebook and a line on
    what was done.
    """
    nb = source_notebook(unit, part)
    source = root / "build" / "source" / unit / f"{part}.ipynb"
    if not source.exists() or source.read_text(encoding="utf-8") != text_of(nb):
        write_text(source, text_of(nb))
    release = root / "notebooks" / unit / f"{part}.ipynb"
    done = write_release(release, release_notebook(nb))
    advice = (
        " (it has your edits or results; rename it to get the new version)"
        if done == "kept"
        else ""
    )
    length = measured(nb, solutions_folder() / unit / f"{part}.ipynb")
    return nb, f"{release.relative_to(root)}: {done}{advice} ({length})"


def remove_gone(unit: str, root: Path = ROOT) -> list[str]:
    """Remove notebooks below `root` whose part is gone, as long as nobody has worked in them;
    returns their names.

    nbgrader would take such a source notebook for a part of the assignment.
    """
    gone = []
    for folder in ("build/source", "notebooks"):
        for path in sorted((root / folder / unit).glob("[0-9]_*.ipynb")):
            if path.stem not in parts(unit) and (folder == "build/source" or not is_edited(path)):
                path.unlink()
                gone.append(path.relative_to(root).as_posix())
    return gone


def contents() -> str:
    """notebooks/README.md: every part with its question and minutes."""
    lines = [
        "<!-- Built from the masters by `course build`: edit those. -->\n",
        "# All parts\n",
        "A part is one notebook. The core of a unit fills a session of up to two hours. Extra exercises go further,",
        "and the core does not need them; a part with – for the core has only extra exercises. The minutes include",
        "reading, for somebody new to the topic. `solutions/` holds every part solved, with its outputs.\n",
        "| part | question | minutes, core | in all |",
        "|---|---|---|---|",
    ]
    for unit in all_units():
        lines.append(
            f"| **{unit.name[:2]} {unit.title}** | | **{unit.core_minutes}** | **{unit.all_minutes}** |"
        )
        for part in unit.parts:
            link = f"[{part.number} {part.title}]({unit.name}/{part.name}.ipynb)"
            lines.append(
                f"| {link} | {part.question} | {part.core_minutes or '–'} | {part.all_minutes} |"
            )
    return "\n".join([*lines, ""])


def write_contents(root: Path = ROOT) -> None:
    """Write the list of all parts below `root`."""
    write_text(root / "notebooks" / "README.md", contents())
