"""Scores from gradebook.db in the forms that learning platforms take.

    export("moodle", root)       # build/grading/export/moodle.csv

moodle: a table for Grades > Import > CSV file. canvas: one for Grades > Import. gradescope: a
results.json per submission, as an autograder of Gradescope writes it. Scores are nbgrader's: those
given by hand count, and late penalties are subtracted.
"""

import csv
import io
import json
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from course.errors import CourseError
from course.notebook.registry import units
from course.system.files import write_text
from course.system.folders import ROOT
from instructor.grading.analysis import harmless
from instructor.grading.gradebook import records, totals
from instructor.grading.results import Graded


class Total(NamedTuple):
    """What one learner has in one unit."""

    learner: str
    unit: str
    score: float  # after the penalty for being late
    points: float
    ungraded: int  # cells that a person still has to look at


def export(form: str, root: Path = ROOT, only: Iterable[str] = ()) -> str:
    """Write the scores of a course folder in a form of FORMS; return what was written, as text.

    Args:
        only: these units; all that were graded if there is none.

    Raises: CourseError if nothing was graded.
    """
    wanted = {*only}
    found = [Total(*row) for row in totals(root) if not wanted or row[1] in wanted]
    if not found:
        raise CourseError(
            f"{root} has no scores of {', '.join(sorted(wanted)) or 'any unit'}; grade an inbox "
            "first: course grade INBOX"
        )
    folder = Path(root) / "build" / "grading" / "export"
    said = FORMS[form](found, folder, root)
    if waiting := sum(total.ungraded for total in found):
        said += (
            f"\n{waiting} answers still wait for a person (Formgrader > Manual Grading); they "
            "count as 0."
        )
    return said


def _moodle(found: list[Total], folder: Path, root: Path) -> str:
    """A row per learner; Moodle asks which column is what."""
    names = _units_in(found)
    rows = [["username", *names]]
    for learner, scores in _by_learner(found).items():
        rows.append([harmless(learner), *(_shown(scores.get(name)) for name in names)])
    return _write_table(rows, folder / "moodle.csv", "map username, then each unit to its item")


def _canvas(found: list[Total], folder: Path, root: Path) -> str:
    """Canvas' own columns; its second row says how many points there are."""
    names = _units_in(found)
    most = {total.unit: total.points for total in found}
    own = ["Student", "ID", "SIS User ID", "SIS Login ID", "Section"]
    rows = [
        [*own, *names],
        ["    Points Possible", "", "", "", "", *(f"{most[n]:g}" for n in names)],
    ]
    for learner, scores in _by_learner(found).items():
        name = harmless(learner)
        rows.append([name, "", "", name, "", *(_shown(scores.get(unit)) for unit in names)])
    return _write_table(rows, folder / "canvas.csv", "SIS Login ID is the name of the folder")


def _gradescope(found: list[Total], folder: Path, root: Path) -> str:
    """One results.json per submission, with a test per grade cell and its report."""
    graded = {(one.learner, one.unit): one for one in records(root)}
    for total in found:
        one = graded.get((total.learner, total.unit))
        content = {"score": total.score, "tests": _tests(one) if one else []}
        path = folder / "gradescope" / total.learner / total.unit / "results.json"
        write_text(path, json.dumps(content, indent=1))
    return f"{len(found)} files {folder / 'gradescope'}/LEARNER/UNIT/results.json"


def _tests(graded: Graded) -> list[dict[str, object]]:
    tests: list[dict[str, object]] = []
    for part in graded.parts:
        for mark in part.marks:
            tests.append(
                {
                    "name": f"{part.part}: {mark.cell}",
                    "score": mark.score,
                    "max_score": mark.points,
                    "output": mark.report,
                    "visibility": "visible",
                }
            )
    return tests


FORMS = {"moodle": _moodle, "canvas": _canvas, "gradescope": _gradescope}


def _units_in(found: Iterable[Total]) -> list[str]:
    """The units that were graded, in the order of the course."""
    graded = {total.unit for total in found}
    return [unit for unit in units() if unit in graded] + sorted(graded - {*units()})


def _by_learner(found: Iterable[Total]) -> dict[str, dict[str, Total]]:
    """{learner: {unit: Total}}, by name."""
    table: dict[str, dict[str, Total]] = {}
    for total in sorted(found):
        table.setdefault(total.learner, {})[total.unit] = total
    return table


def _shown(total: Total | None) -> str:
    """A score; nothing where a learner handed in nothing."""
    return "" if total is None else f"{total.score:g}"


def _write_table(rows: list[list[str]], path: Path, advice: str) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    write_text(path, text.getvalue())
    return f"{path}: {advice}."
