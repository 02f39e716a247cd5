"""Python files that a learner hands in next to a notebook: a folder -> cells that write them in
the jail, before the notebook's own.

So an answer may say `from helpers import ...`, and the person who grades reads the file at the top
of the notebook. Nothing is imported here.
"""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from nbformat import NotebookNode
from nbformat.v4 import new_code_cell

from instructor.grading.limits import CourseGrading
from instructor.grading.rebuild import EXTRA, Unreadable, read_submission

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,60}\.py")
MOST = 20  # files of a folder


def names_among(names: Iterable[str]) -> list[str]:
    """The names of files that can be imported, sorted, as many as count."""
    return sorted(filter(NAME.fullmatch, names))[:MOST]


def contents(folder: Path, limits: CourseGrading) -> Iterator[tuple[str, str]]:
    """Yield (name, text) of the Python files in `folder`.

    Links, pipes, binary files and those longer than a cell may be are left out.
    """
    try:
        names = names_among(path.name for path in folder.iterdir())
    except OSError:  # no such folder
        return
    for name in names:
        try:
            data = read_submission(folder / name, limits.notebook_bytes)
            text = data.decode("utf-8")
        except (Unreadable, UnicodeDecodeError):
            continue
        if len(text) <= limits.cell_characters:
            yield name, text


def cells_of_modules(notebook: Path, limits: CourseGrading) -> list[NotebookNode]:
    """Cells that write the Python files next to a submitted `notebook` where its cells run."""
    cells: list[NotebookNode] = []
    for name, text in contents(notebook.parent, limits):
        source = f"%%writefile {name}\n{text}"
        cells.append(new_code_cell(source, id=f"{EXTRA}-file-{len(cells):02d}"))
    return cells
