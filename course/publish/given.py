"""Exercises that a class is not asked: in its notebooks they stand solved, as given code.

Their task text stays, with a line that says so; their grade cells are gone.  A free text that is not asked is only
its question.  Which exercises are asked is decided in asked.py.
"""

import re
from collections.abc import Collection

from nbformat import NotebookNode

GIVEN = "> **Given here.** You are not asked to solve this exercise: the code below it is one right answer."
GIVEN_TEXT = "> **Not asked here.** Think about it, or discuss it; nothing is handed in."
MARKERS = re.compile(r"^[ \t]*### (BEGIN|END) SOLUTION[^\n]*\n", re.M)
HINTS = re.compile(r"\n*<details>.*?</details>", re.S)


def give(nb: NotebookNode, asked: Collection[str]) -> NotebookNode:
    """`nb`, a source notebook, in which what is not in `asked` stands solved."""
    kept = []
    for cell in nb.cells:
        marks = cell.metadata.get("nbgrader", {})
        name = marks.get("grade_id", "")
        exercise = name.removesuffix("-visible").removesuffix("-hidden")
        if not (marks.get("grade") or marks.get("solution")) or exercise in asked:
            kept.append(cell)
        elif marks.get("grade"):  # a test, or a free text
            if marks.get("solution"):
                _say(kept, GIVEN_TEXT)
        else:
            _say(kept, GIVEN)
            cell.source = MARKERS.sub("", cell.source + "\n").rstrip("\n")
            cell.metadata.nbgrader = marks | {"solution": False, "locked": True}
            cell.metadata.course = {"given": name}
            kept.append(cell)
    nb.cells = kept
    return nb


def _say(cells, line):
    """Put `line` below the heading of the text that `cells` end with, which needs no hints any more."""
    if cells and cells[-1].cell_type == "markdown":
        start, mark, task = HINTS.sub("", cells[-1].source).rpartition("\n### ")
        heading, _, text = task.partition("\n")
        cells[-1].source = f"{start}{mark}{heading}\n\n{line}\n{text}"
