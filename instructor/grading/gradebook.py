"""Results of grading -> nbgrader's own records: gradebook.db, autograded/. No other module knows
its tables.

    prepare(unit, root, sources)  # once per batch: the cells of all parts, as `nbgrader
    generate_assignment` does merge([shard, ...])           # by one process: shards -> gradebook,
    then the shards are gone records()                     # what was entered: resume and analysis
    read it

A unit is an assignment, a part is a notebook of it. What nbgrader has no place for (fingerprint,
notes, reports, mistakes) stands in a table of our own in gradebook.db and is written in the same
transaction as the scores. The rules are those of `nbgrader autograde`
(preprocessors/saveautogrades.py, latesubmissions.py): a new automatic score replaces the old one;
scores, extra credit and comments given by hand stay, and a cell with a score by hand asks to be
looked at again.
"""

import contextlib
import os
import sys
from collections.abc import Iterable
from datetime import UTC
from pathlib import Path

import nbformat
from nbgrader import preprocessors as nbg
from nbgrader import utils
from nbgrader.api import Comment, Grade, Gradebook, GradeCell, MissingEntry, SolutionCell
from nbgrader.converters import Autograde
from sqlalchemy import text

from course.errors import CourseError
from course.notebook.cells import grade_id
from course.notebook.registry import parts
from course.system.files import atomic_folder
from course.system.folders import ROOT
from instructor.authoring.masters import RELEASE_STEPS, source_notebook
from instructor.grading.feedback import notebook_text
from instructor.grading.folders import course_folders
from instructor.grading.results import Graded
from instructor.grading.shards import load

TABLE = """CREATE TABLE IF NOT EXISTS course_results
           (learner TEXT, unit TEXT, record TEXT, PRIMARY KEY (learner, unit))"""


def prepare(unit: str, root: Path = ROOT, sources: dict | None = None) -> None:
    """Make the gradebook of the course folder `root` know `unit` and its cells, as
    generate_assignment enters them.

    Args:
        sources: {part: source notebook}, where somebody has them.

    Raises: CourseError if parts or cells came or went since submissions of the unit were entered.
    """
    config, directory = course_folders(root)
    sources = sources or {part: source_notebook(unit, part) for part in parts(unit)}
    advice = "Start a new gradebook, or go back to the old unit."
    with _book(directory) as book:
        assignment = book.update_or_create_assignment(unit)
        gone = sorted({notebook.name for notebook in assignment.notebooks} - {*sources})
        if gone and assignment.submissions:
            raise CourseError(
                f"{directory.db_url} holds submissions of {unit} with other parts ({', '.join(gone)}). {advice}"
            )
        for name in gone:
            book.remove_notebook(name, unit)
    for part, source in sources.items():
        nb, resources = nbformat.from_dict(source), {}
        for step in RELEASE_STEPS[: RELEASE_STEPS.index(nbg.ClearHiddenTests)]:
            nb, resources = step().preprocess(nb, resources)
        resources["nbgrader"] = {"notebook": part, "assignment": unit, "db_url": directory.db_url}
        try:
            nbg.SaveCells(config=config).preprocess(nb, resources)
        except RuntimeError as error:
            raise CourseError(f"{error} in {directory.db_url}. {advice}") from None


def merge(shards: Iterable[Path], root: Path = ROOT) -> int:
    """Enter the submissions in `shards` into the gradebook of `root` and its autograded/; return
    how many were new.

    Entering again what is there changes nothing, so a merge that was interrupted is simply
    repeated; shards are removed once they are in. Scores follow the rules above; late penalties are
    those of the configured plugin.

    Raises: CourseError if a unit was not prepared, or a shard cannot be read.
    """
    config, directory = course_folders(root)
    late = nbg.AssignLatePenalties(config=config)
    late.init_plugin()
    autograde, entered = Autograde(coursedir=directory, config=config), 0
    with _book(directory) as book:
        with _transaction(book):
            book.db.execute(text(TABLE))
        for shard in map(Path, shards):
            graded = load(shard)
            with _transaction(book):
                if _row(book, graded) != graded.to_json():
                    _place(graded, directory, autograde)
                    _enter(book, graded, late.plugin_inst)
                    entered += 1
            shard.unlink()
    return entered


@contextlib.contextmanager
def _transaction(book):
    """One transaction of the gradebook, whatever nbgrader's own functions commit in between."""
    book.db.remove()
    with book.engine.begin() as connection:
        book.db.configure(bind=connection, join_transaction_mode="rollback_only")
        yield
        book.db.flush()
        book.db.remove()


def _row(book, graded):
    """The record of this submission in the gradebook, or None."""
    query = text("SELECT record FROM course_results WHERE learner = :learner AND unit = :unit")
    return book.db.execute(query, {"learner": graded.learner, "unit": graded.unit}).scalar()


def _place(graded, directory, autograde):
    """Write the notebooks and the time to autograded/<learner>/<unit>, as `nbgrader autograde`
    leaves them.
    """
    with atomic_folder(
        directory.format_path(directory.autograded_directory, graded.learner, graded.unit)
    ) as folder:
        for result in graded.parts:
            (folder / f"{result.part}.ipynb").write_text(
                notebook_text(result.notebook), encoding="utf-8"
            )
        (folder / "timestamp.txt").write_text(
            f"{graded.received.astimezone(UTC):%Y-%m-%d %H:%M:%S.%f %Z}"
        )
    autograde.set_permissions(graded.unit, graded.learner)


def _enter(book, graded, late):
    """Enter the scores of `graded`, its penalty by the plugin `late`, and its record."""
    book.update_or_create_student(graded.learner)
    try:
        with (
            book.db.no_autoflush
        ):  # nbgrader fills in a new submission before it adds it to the session
            submission = book.update_or_create_submission(
                graded.unit, graded.learner, timestamp=graded.received
            )
        for result in graded.parts:
            notebook = book.find_submission_notebook(result.part, graded.unit, graded.learner)
            _enter_part(book, result, notebook)
            book.db.flush()
            book.db.refresh(notebook, ["score"])
            notebook.late_submission_penalty = _penalty(graded.learner, notebook, submission, late)
    except (MissingEntry, KeyError) as error:
        raise CourseError(
            f"the gradebook does not know the cells of {graded.unit} ({error}); run `course build` first."
        ) from None
    key = {"learner": graded.learner, "unit": graded.unit}
    book.db.execute(
        text("DELETE FROM course_results WHERE learner = :learner AND unit = :unit"), key
    )
    book.db.execute(
        text("INSERT INTO course_results VALUES (:learner, :unit, :r)"),
        key | {"r": graded.to_json()},
    )


def _enter_part(book, result, notebook):
    """Enter the scores and comments of one part into the submitted notebook `notebook`."""
    grades = _by_cell(book, GradeCell, Grade, notebook)
    comments = _by_cell(book, SolutionCell, Comment, notebook)
    for cell in result.notebook.cells:
        if utils.is_grade(cell):
            grade = grades[grade_id(cell)]
            grade.auto_score, _ = utils.determine_grade(cell)
            grade.needs_manual_grade = grade.manual_score is not None or grade.auto_score is None
        if utils.is_solution(cell):
            same = cell.metadata.nbgrader.get("checksum") == utils.compute_checksum(cell)
            comments[grade_id(cell)].auto_comment = "No response." if same else None


def _penalty(learner, notebook, submission, late):
    """The points that a late notebook loses, or None if it loses none."""
    seconds = submission.total_seconds_late
    penalty = (
        late.late_submission_penalty(learner, notebook.score, seconds) if seconds > 0 else None
    )
    return None if penalty is None else min(max(penalty, 0), notebook.score)


def _by_cell(book, cell_kind, kind, notebook):
    """{name of cell: its Grade or Comment} of a submitted notebook."""
    rows = book.db.query(cell_kind.name, kind).join(kind, kind.cell_id == cell_kind.id)
    return dict(rows.filter(kind.notebook_id == notebook.id).all())


def records(root: Path = ROOT) -> list[Graded]:
    """What was entered, without notebooks, by unit and learner.

    A submission that was removed from the gradebook since, or an autograded notebook of which was,
    is not among them.
    """
    _, directory = course_folders(root)
    with _book(directory) as book:
        with _transaction(book):
            book.db.execute(text(TABLE))
            rows = (
                book.db.execute(text("SELECT record FROM course_results ORDER BY unit, learner"))
                .scalars()
                .all()
            )
            known = {(s.student_id, a.name) for a in book.assignments for s in a.submissions}

    def is_there(graded):
        folder = Path(
            directory.format_path(directory.autograded_directory, graded.learner, graded.unit)
        )
        return all((folder / f"{result.part}.ipynb").is_file() for result in graded.parts)

    of_book = map(Graded.from_json, rows)
    return [
        graded for graded in of_book if (graded.learner, graded.unit) in known and is_there(graded)
    ]


def scores(unit: str, root: Path = ROOT) -> dict[str, dict[str, tuple[float, float]]]:
    """{learner: {grade cell: (score, points)}} of all parts of `unit`, cells in the order of the
    notebooks.

    Cells that a person grades are left out until somebody has.
    """
    table = {}
    with Gradebook(f"sqlite:///{Path(root) / 'gradebook.db'}") as book:
        for submission in book.assignment_submissions(unit):
            notebooks = sorted(submission.notebooks, key=lambda notebook: notebook.name)
            grades = [
                grade
                for notebook in notebooks
                for grade in notebook.grades
                if not grade.needs_manual_grade
            ]
            table[submission.student.id] = {
                grade.name: (grade.score, grade.max_score) for grade in grades
            }
    return table


def _book(directory):
    """nbgrader's Gradebook of a course; a new one asks `alembic`, which lies beside this Python,
    for its version.
    """
    beside = str(Path(sys.executable).parent)
    if beside not in os.environ.get("PATH", "").split(os.pathsep):
        os.environ["PATH"] = os.pathsep.join((beside, os.environ.get("PATH", "")))
    return Gradebook(directory.db_url, directory.course_id)
