"""A submission -> *the released notebook with the learner's sources in it*.

Reads JSON, executes nothing. Metadata, tags, outputs and attachments of a submission are dropped;
what the learner wrote comes through, in whatever cell it stands: in the cell of the answer, in a
copy or the other half of it, in cells of the learner's own, or in a cell that was given. Locked
cells are put back; the learner's version of one that is not a grade cell follows it.
"""

import json
import os
import stat
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell

from course.notebook.cells import EXPERIMENT, grade_id
from instructor.grading.limits import DEFAULTS, CourseGrading

EXTRA = "extra"  # how the ids of cells start that a learner added
GIVEN_EDITED = "# The locked cell above was put back; this is your version of it.\n"
KIND_BYTES = 100  # at the start of a file, by which one sees what it is
OWN_TEXT = "*In a cell of your own:*\n\n"


class Unreadable(Exception):
    """A submission that is not a notebook; the message is a plain reason for the learner."""


class Missing(Unreadable):
    """There is no such file; the message is a plain reason for the learner."""


class Own(NamedTuple):
    """What a learner wrote outside the cells for answers."""

    kind: str  # "code" or "markdown"
    source: str


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
        raise Unreadable(f"the file is not a notebook: {_what_it_is(data)}.")
    usable = []
    for cell in cells:
        source = _source_of(cell)
        if source is not None and len(source) <= characters_max:
            usable.append(_submitted_cell(cell, source))
    return usable


def _what_it_is(data: bytes) -> str:
    """What a file is that holds no list of cells, for a person who can hand in another."""
    start = data[:KIND_BYTES].lstrip(b"\xef\xbb\xbf \t\r\n")
    lines = data.split(b"\n")
    for number, line in enumerate(lines, 1):
        if line.startswith((b"<<<<<<<", b">>>>>>>")):
            return (
                f"line {number} holds a merge marker of git. Resolve the conflict, open the "
                "notebook in Jupyter and save it"
            )
    if not start:
        return "it is empty"
    if start[:1] == b"<":
        return "it is a web page (HTML). Download the notebook itself, not the page that shows it"
    if start.startswith(b"PK"):
        return "it is a zip archive. Unpack it, and hand in what it holds"
    if start.startswith(b"%PDF"):
        return "it is a PDF. Hand in the notebook that it was made from"
    if start[:1] != b"{":
        return "it holds no JSON with a list of cells, but other text"
    return "it holds no JSON with a list of cells; it was perhaps cut off when it was copied"


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

    What runs from top to bottom in the submission runs here in the same order. The first edited
    cell of an answer is the answer's; further ones (a half that was split off, a copy) and cells of
    the learner's own follow the cell of `release` that they followed, and their ids start with
    EXTRA. A solution cell that is missing is empty, so that an answer in an own cell stands. Texts
    below a free text become its end, so that nobody takes it for unanswered.
    """
    found = _Sorter(release)
    for cell in cells:
        found.take(cell)
    rebuilt = type(release)(release)
    new_cells = _NewCells(limits)
    rebuilt.cells = new_cells.of(found.added[None])
    for cell in release.cells:
        copied = type(cell)(cell)
        below = found.added[cell.id]
        if _is_free_text(cell):
            copied.source, below = _with_text_below(found.answers.get(cell.id, ""), below, cell)
        elif _takes_answer(cell):
            copied.source = found.answers.get(cell.id, "")
        else:
            copied.source = found.edited.get(cell.id, cell.source)
        rebuilt.cells.append(copied)
        rebuilt.cells += new_cells.of(below)
    return rebuilt


class _Sorter:
    """Sorts the cells of a submission by the cell of the release that they are, or follow."""

    def __init__(self, release: NotebookNode) -> None:
        self.by_id = {cell.id: cell for cell in release.cells}
        self.by_grade_id = {grade_id(cell): cell for cell in release.cells if grade_id(cell)}
        self.given_sources = {cell.source.strip() for cell in release.cells}
        # id of a cell in the release -> its source in the submission
        self.answers: dict[str, str] = {}
        self.edited: dict[str, str] = {}  # of given cells that are not locked
        # id of a cell in the release, None for the start -> sources that follow it
        self.added: defaultdict[str | None, list[Own]] = defaultdict(list)
        self.last: str | None = None  # the latest cell of the release that was met

    def take(self, cell: SubmittedCell) -> None:
        """Sort in the next cell of the submission."""
        ours = self._released(cell)
        if ours is None:
            if cell.source.strip() not in self.given_sources and EXPERIMENT not in cell.tags:
                self._add(cell.kind, cell.source)
            return
        self.last = ours.id
        if _takes_answer(ours):
            self._take_answer(ours, cell)
        elif not grade_id(ours) or not ours.metadata.nbgrader.grade:
            self._take_given(ours, cell)

    def _released(self, cell: SubmittedCell) -> NotebookNode | None:
        """The cell of the release that `cell` is, or is a copy of, if any.

        Where a tool dropped the metadata, the id of the cell tells.
        """
        ours = self.by_grade_id.get(cell.grade_id) or self.by_id.get(cell.cell_id)
        return ours if ours is not None and ours.cell_type == cell.kind else None

    def _take_answer(self, ours: NotebookNode, cell: SubmittedCell) -> None:
        """An untouched copy of the stub counts only where nothing else was written."""
        so_far = self.answers.get(ours.id, ours.source)
        if so_far == ours.source:
            self.answers[ours.id] = cell.source
        elif cell.source != ours.source:
            self._add(cell.kind, cell.source)

    def _take_given(self, ours: NotebookNode, cell: SubmittedCell) -> None:
        """A locked cell is put back, so the learner's version follows it."""
        if cell.source.strip() in self.given_sources:
            return
        if grade_id(ours):
            self._add(cell.kind, GIVEN_EDITED + cell.source)
        else:
            self.edited.setdefault(ours.id, cell.source)

    def _add(self, kind: str | None, source: str) -> None:
        if kind in ("code", "markdown") and source.strip():
            self.added[self.last].append(Own(kind, source))


def _takes_answer(cell: NotebookNode) -> bool:
    return bool(cell.metadata.get("nbgrader", {}).get("solution"))


def _is_free_text(cell: NotebookNode) -> bool:
    return _takes_answer(cell) and cell.cell_type == "markdown"


def _with_text_below(text: str, below: list[Own], stub: NotebookNode) -> tuple[str, list[Own]]:
    """A free text with the learner's texts below it, and what else stands there."""
    texts = [] if text == stub.source else [text]
    texts += [own.source for own in below if own.kind == "markdown"]
    others = [own for own in below if own.kind != "markdown"]
    return "\n\n".join(filter(str.strip, texts)) or text, others


class _NewCells:
    """Makes cells of sources that a learner added, as many as may count."""

    def __init__(self, limits: CourseGrading) -> None:
        self.limits = limits
        self.count = 0
        self.characters = 0

    def of(self, sources: list[Own]) -> list[NotebookNode]:
        """The cells of `sources`, without those that are too many."""
        made = []
        for own in sources:
            self.characters += len(own.source)
            fits = self.characters <= self.limits.added_characters
            if fits and self.count < self.limits.added_cells:
                name = f"{EXTRA}-{self.count:03d}"
                if own.kind == "code":
                    made.append(new_code_cell(own.source, id=name))
                else:
                    made.append(new_markdown_cell(OWN_TEXT + own.source, id=name))
            self.count += 1
        return made
