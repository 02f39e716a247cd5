"""A submission -> *the released notebook with the learner's sources in it*. Reads JSON, executes
nothing.

Whatever else a submission carries (metadata, tags, edited, moved, repeated or missing cells,
outputs, attachments) is
dropped: of a submitted notebook only the text of solution cells and of code cells that the learner
added comes through.
"""

import json
import os
import stat
from pathlib import Path

from nbformat.v4 import new_code_cell

from course.notebook.cells import grade_id

LARGEST = (
    20_000_000  # bytes of a submitted notebook; what JSON makes of them may take 25 times as many
)
CELL = 200_000  # characters of one cell
MOST, ADDED = 200, 2_000_000  # cells that a learner added, characters in all of them
EXTRA = "extra"  # how their ids start


class Unreadable(Exception):
    """A submission that is no notebook; the message is a plain reason for the learner."""


class Missing(Unreadable):
    """There is no such file; the message is a plain reason for the learner."""


def read_submission(path: Path) -> bytes:
    """The bytes of a submitted file.

    Raises: Missing if there is none, Unreadable if it is no ordinary file, too large, or not to be
    read.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:  # a folder gives EISDIR
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise Unreadable(f"{Path(path).name} is not an ordinary file.")
            if status.st_size > LARGEST:
                raise Unreadable(
                    f"{Path(path).name} has {status.st_size:,} bytes; at most {LARGEST:,} are read."
                )
            return file.read(LARGEST + 1)
    except FileNotFoundError:
        raise Missing(f"there is no file {Path(path).name} in the submission.") from None
    except OSError as error:  # a symbolic link gives ELOOP
        raise Unreadable(
            f"{Path(path).name} cannot be read ({error.strerror}); links are not followed."
        ) from None


def learners_cells(data: bytes) -> list[tuple]:
    """[(grade id or None, cell id, kind, source, tags)] of the notebook in `data`, in order, as far
    as they are cells.

    Raises: Unreadable if `data` is no notebook at all.
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
        if not isinstance(cell, dict):
            continue
        source = cell.get("source", "")
        if isinstance(source, list) and all(isinstance(line, str) for line in source):
            source = "".join(source)
        if not isinstance(source, str) or len(source) > CELL:
            continue
        metadata = cell.get("metadata") if isinstance(cell.get("metadata"), dict) else {}
        nbgrader = metadata.get("nbgrader") if isinstance(metadata.get("nbgrader"), dict) else {}
        name, tags = nbgrader.get("grade_id"), metadata.get("tags")
        name, cell_id, kind = (
            text if isinstance(text, str) else None
            for text in (name, cell.get("id"), cell.get("cell_type"))
        )
        usable.append(
            (name, cell_id, kind, _storable(source), tags if isinstance(tags, list) else [])
        )
    return usable


def _storable(text):
    """`text` without halves of surrogate pairs, which no file in UTF-8 can hold."""
    return text.encode("utf-8", "replace").decode()


def rebuild(release, cells):
    """A copy of the notebook `release` with the learner's sources, taken from `cells` as
    `learners_cells` gives them.

    A solution cell that comes several times counts once, the first time that it was edited; one
    that is missing is empty, so that an answer in a cell of the learner's own stands. Those cells
    follow the graded cell that they followed; their ids start with EXTRA.
    """
    ours = {grade_id(cell): cell for cell in release.cells if grade_id(cell)}
    given_ids = {cell.id for cell in release.cells}
    given = {cell.source.strip() for cell in release.cells}
    answers, extra, last = {}, {}, None
    for name, cell_id, kind, source, tags in cells:
        if name in ours:
            last = name
            if (
                ours[name].metadata.nbgrader.solution
                and answers.get(name, ours[name].source) == ours[name].source
            ):
                answers[name] = source
        elif (
            kind == "code"
            and cell_id not in given_ids
            and source.strip() not in given
            and "experiment" not in tags
        ):
            extra.setdefault(last, []).append(source)
    rebuilt = type(release)(release)
    rebuilt.cells, count, characters = [], 0, 0

    def add(sources):
        nonlocal count, characters
        for source in sources:
            characters += len(source)
            if count < MOST and characters <= ADDED:
                rebuilt.cells.append(new_code_cell(source, id=f"{EXTRA}-{count:03d}"))
            count += 1

    add(extra.pop(None, []))
    for cell in release.cells:
        copied = type(cell)(cell)
        if cell.metadata.get("nbgrader", {}).get("solution"):
            copied.source = answers.get(grade_id(cell), "")
        rebuilt.cells.append(copied)
        add(extra.pop(grade_id(cell), []) if grade_id(cell) else [])
    return rebuilt
