"""A submission -> *the released notebook with the learner's sources in it*.

Reads JSON, executes nothing. Whatever else a submission carries (metadata, tags, edited, moved,
repeated or missing cells, outputs, attachments) is dropped: of a submitted notebook only the text
of solution cells and of code cells that the learner added comes through.
"""

import json
import os
import stat
from pathlib import Path
from typing import Any, NamedTuple

from nbformat import NotebookNode
from nbformat.v4 import new_code_cell

from course.notebook.cells import grade_id
from instructor.grading.limits import DEFAULTS, CourseGrading

EXTRA = "extra"  # how the ids of cells start that a learner added


class Unreadable(Exception):
    """A submission that is not a notebook; the message is a plain reason for the learner."""


class Missing(Unreadable):
    """There is no such file; the message is a plain reason for the learner."""


class SubmittedCell(NamedTuple):
    """What may count of a submitted cell."""

    grade_id: str | None
    cell_id: str | None
    kind: str | None  # "code", "markdown", ...
    source: str
    tags: list[Any]


def read_submission(path: Path, bytes_max: int = DEFAULTS.notebook_bytes) -> bytes:
    """The bytes of a submitted file.

    Raises: Missing if there is none, Unreadable if it is not an ordinary file, has more than
    `bytes_max`, or cannot be read.
    """
    name = Path(path).name
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:  # a folder gives EISDIR
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise Unreadable(f"{name} is not an ordinary file.")
            if status.st_size > bytes_max:
                raise Unreadable(
                    f"{name} has {status.st_size:,} bytes; at most {bytes_max:,} are read."
                )
            return file.read(bytes_max + 1)
    except FileNotFoundError:
        raise Missing(f"there is no file {name} in the submission.") from None
    except OSError as error:  # a symbolic link gives ELOOP
        raise Unreadable(
            f"{name} cannot be read ({error.strerror}); links are not followed."
        ) from None


def learners_cells(
    data: bytes, characters_max: int = DEFAULTS.cell_characters
) -> list[SubmittedCell]:
    """The cells of the notebook in `data`, in order, as far as they are cells.

    One with more characters than `characters_max` is left out.
    Raises: Unreadable if `data` is not a notebook at all.
    """
    try:
        notebook = json.loads(data.decode("utf-8-sig"))
        cells = notebook["cells"] if isinstance(notebook, dict) else None
    except (ValueError, KeyError, RecursionError):
        cells = None
    if not isinstance(cells, list):
        raise Unreadable("the file is not a notebook: it holds no JSON with a list of cells.")
    usable = []
    for cell in cells:
        source = _source_of(cell)
        if source is not None and len(source) <= characters_max:
            usable.append(_submitted_cell(cell, source))
    return usable


def _source_of(cell: Any) -> str | None:
    """Return the text of a cell; None if `cell` is not a cell with a text."""
    if not isinstance(cell, dict):
        return None
    source = cell.get("source", "")
    if isinstance(source, list) and all(isinstance(line, str) for line in source):
        source = "".join(source)
    return source if isinstance(source, str) else None


def _submitted_cell(cell: dict[str, Any], source: str) -> SubmittedCell:
    metadata = _dict_in(cell, "metadata")
    name = _dict_in(metadata, "nbgrader").get("grade_id")
    tags = metadata.get("tags")
    return SubmittedCell(
        grade_id=_text_or_none(name),
        cell_id=_text_or_none(cell.get("id")),
        kind=_text_or_none(cell.get("cell_type")),
        source=_storable(source),
        tags=tags if isinstance(tags, list) else [],
    )


def _dict_in(fields: dict[str, Any], name: str) -> dict[str, Any]:
    value = fields.get(name)
    return value if isinstance(value, dict) else {}


def _text_or_none(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _storable(text: str) -> str:
    """`text` without halves of surrogate pairs, which no file in UTF-8 can hold."""
    return text.encode("utf-8", "replace").decode()


def rebuild(
    release: NotebookNode, cells: list[SubmittedCell], limits: CourseGrading = DEFAULTS
) -> NotebookNode:
    """A copy of the notebook `release` with the learner's sources, taken from `cells`.

    A solution cell that comes several times counts once, the first time that it was edited; one
    that is missing is empty, so that an answer in a cell of the learner's own stands. Those cells
    follow the graded cell that they followed; their ids start with EXTRA.
    """
    answers, added = _sort(release, cells)
    rebuilt = type(release)(release)
    rebuilt.cells = []
    new_cells = _NewCells(limits)
    rebuilt.cells += new_cells.of(added.get(None, []))
    for cell in release.cells:
        copied = type(cell)(cell)
        if cell.metadata.get("nbgrader", {}).get("solution"):
            copied.source = answers.get(grade_id(cell), "")
        rebuilt.cells.append(copied)
        if grade_id(cell):
            rebuilt.cells += new_cells.of(added.pop(grade_id(cell), []))
    return rebuilt


def _sort(
    release: NotebookNode, cells: list[SubmittedCell]
) -> tuple[dict[str | None, str], dict[str | None, list[str]]]:
    """({grade id: source} of solution cells, {the grade id before: sources} of added cells)."""
    ours = {grade_id(cell): cell for cell in release.cells if grade_id(cell)}
    given_ids = {cell.id for cell in release.cells}
    given_sources = {cell.source.strip() for cell in release.cells}
    answers: dict[str | None, str] = {}
    added: dict[str | None, list[str]] = {}
    last = None
    for cell in cells:
        if cell.grade_id in ours:
            last = cell.grade_id
            stub = ours[last]
            if stub.metadata.nbgrader.solution and answers.get(last, stub.source) == stub.source:
                answers[last] = cell.source
            continue
        is_given = cell.cell_id in given_ids or cell.source.strip() in given_sources
        if cell.kind == "code" and not is_given and "experiment" not in cell.tags:
            added.setdefault(last, []).append(cell.source)
    return answers, added


class _NewCells:
    """Makes cells of sources that a learner added, as many as may count."""

    def __init__(self, limits: CourseGrading) -> None:
        self.limits = limits
        self.count = 0
        self.characters = 0

    def of(self, sources: list[str]) -> list[NotebookNode]:
        """The cells of `sources`, without those that are too many."""
        made = []
        for source in sources:
            self.characters += len(source)
            fits = self.characters <= self.limits.added_characters
            if fits and self.count < self.limits.added_cells:
                made.append(new_code_cell(source, id=f"{EXTRA}-{self.count:03d}"))
            self.count += 1
        return made
