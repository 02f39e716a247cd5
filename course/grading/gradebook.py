"""Results of grading -> nbgrader's own records: gradebook.db, autograded/, feedback/.

    prepare(unit)                 # once a batch: the unit's cells, as `nbgrader generate_assignment` enters them
    save(shard, graded)           # by each worker, a submission at a time, into a file of its own
    merge([shard, ...])           # by one process: shards -> gradebook, then the shards are gone
    records()                     # what was entered: resume and analysis read it
    feedback(unit)                # nbgrader's pages

A shard is an SQLite file with a whole result in one row, so that a process killed at any moment leaves whole
submissions or none.  What nbgrader has no place for (fingerprint, note, reports, mistakes) stands in a table of our own
in gradebook.db and is written in the same transaction as the scores.  The rules are those of `nbgrader autograde`
(preprocessors/saveautogrades.py, latesubmissions.py): a new automatic score replaces the old one; scores, extra credit
and comments given by hand stay, and a cell with a score by hand asks to be looked at again.
"""

import contextlib
import json
import os
import re
import sqlite3
import sys
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import nbformat
from nbformat.v4 import new_code_cell, new_output
from nbgrader import preprocessors as nbg
from nbgrader import utils
from nbgrader.api import Comment, Grade, Gradebook, GradeCell, MissingEntry, SolutionCell
from nbgrader.apps import NbGrader
from nbgrader.converters import Autograde, GenerateFeedback
from nbgrader.coursedir import CourseDirectory
from sqlalchemy import text
from traitlets.config import Application

from course.errors import CourseError
from course.files import whole_folder
from course.grading.safe import safe_markdown, safe_output, safe_text
from course.publish.build import RELEASE_STEPS, ROOT, grade_id, source_notebook

TABLE = "CREATE TABLE IF NOT EXISTS course_graded (learner TEXT, unit TEXT, {} TEXT, PRIMARY KEY (learner, unit))"
NOTE_CELL = "grader-note"


@dataclass
class Mark:
    """One grade cell of a submission."""

    cell: str  # its grade id, "lars-hidden"
    score: float
    points: float
    report: str  # what feedback shows: no expected value, no seed
    mistake: str | None = None  # name of the known mistake recognised


@dataclass
class Graded:
    """One submission and what came of grading it."""

    learner: str
    unit: str
    marks: list
    notebook: nbformat.NotebookNode | None  # the release with the learner's sources and outputs; None in `records`
    received: datetime  # in UTC, by the inbox
    fingerprint: str  # of the submitted file and the checks: the same needs no new grading
    note: str = ""  # plain reason if it could not be read, hung, died
    seconds: float = 0.0


def check_learner(learner):
    """None.  Raises: CourseError if nbgrader cannot take a folder of this name for a learner."""
    if learner.startswith(".") or learner != learner.strip() or not 0 < len(learner) <= 128:
        fault = "starts with a dot, starts or ends with a space, or has more than 128 characters"
    elif re.search(r"[*?\[/]", learner) or not learner.isprintable():
        fault = "holds one of * ? [ / or a character that cannot be printed"
    else:
        return
    raise CourseError(f"the learner's folder {learner!r} {fault}, which nbgrader cannot take. Rename it.")


def prepare(unit, root=ROOT, source=None):
    """None; the gradebook of the course folder `root` knows `unit` and its cells, as generate_assignment enters them.

    Args:
        source: the unit's source notebook, where somebody has it.

    Raises: CourseError if cells came or went since submissions of the unit were entered.
    """
    config, directory = _course(root)
    nb, resources = nbformat.from_dict(source or source_notebook(unit)), {}
    for step in RELEASE_STEPS[: RELEASE_STEPS.index(nbg.ClearHiddenTests)]:
        nb, resources = step().preprocess(nb, resources)
    with _book(directory) as book:
        book.update_or_create_assignment(unit)
    resources["nbgrader"] = {"notebook": unit, "assignment": unit, "db_url": directory.db_url}
    try:
        nbg.SaveCells(config=config).preprocess(nb, resources)
    except RuntimeError as error:
        raise CourseError(
            f"{error} in {directory.db_url}. Start a new gradebook, or go back to the old unit."
        ) from None


def finished(graded):
    """The notebook of `graded` as nbgrader, a teacher and the learner may see it; the one given is not changed.

    Every grade cell holds its report as output, such that nbgrader's own rule (utils.determine_grade) reads the
    score from it; one without a mark scores 0.  Other outputs are what `safe_output` keeps.

    Raises: ValueError for a mark without its cell, or a score out of range: a bug of the caller.
    """
    marks = {mark.cell: mark for mark in graded.marks}
    nb = nbformat.from_dict(graded.notebook)
    for cell in nb.cells:
        cell.pop("attachments", None)
        if cell.cell_type == "code":
            if utils.is_grade(cell) and not utils.is_solution(cell):
                missing = Mark(grade_id(cell), 0, 0, f"not graded. {graded.note}")
                mark = marks.pop(grade_id(cell), missing)
                cell.outputs = _report_outputs(mark, cell.metadata.nbgrader.points)
            else:
                cell.outputs = [kept for output in cell.outputs if (kept := safe_output(output))]
    if marks:
        raise ValueError(f"{graded.unit} has no grade cell {', '.join(marks)}")
    if graded.note:
        told = new_output("stream", name="stdout", text=safe_text(graded.note))
        nb.cells.insert(0, new_code_cell("# A note from the grader", id=NOTE_CELL, outputs=[told]))
    nb = nbformat.reads(_text(nb), as_version=4)
    nbformat.validate(nb)
    return nb


def _report_outputs(mark, points):
    report = safe_text(mark.report)
    if not 0 <= mark.score <= points:
        raise ValueError(f"{mark.cell}: a score of {mark.score} with {points} points")
    if mark.score == 0:
        first, *_ = report.splitlines() or [""]
        return [new_output("error", ename="CheckFailed", evalue=first, traceback=report.splitlines())]
    told = [new_output("stream", name="stdout", text=report + "\n")]
    if mark.score < points:
        told.append(new_output("execute_result", {"text/plain": repr(float(mark.score))}, execution_count=1))
    return told


def _text(nb):
    """The notebook as a file's text; half a surrogate pair, which no file can hold, becomes a question mark."""
    return nbformat.writes(nb).encode("utf-8", "replace").decode()


def save(shard, graded):
    """None; the file `shard` holds `graded`, instead of what it held of this submission.  One process a shard.

    Raises: CourseError if the file cannot be written; ValueError as `finished`.
    """
    notebook = _text(finished(graded))
    Path(shard).parent.mkdir(parents=True, exist_ok=True)
    with _opened(shard) as db:
        row = graded.learner, graded.unit, _record(graded), notebook
        db.execute("REPLACE INTO course_graded VALUES (?, ?, ?, ?)", row)


@contextlib.contextmanager
def _opened(shard):
    """A connection to the SQLite file, and one transaction on it."""
    try:
        with contextlib.closing(sqlite3.connect(shard)) as db, db:
            db.execute(TABLE.format("record TEXT, notebook"))
            yield db
    except sqlite3.Error as error:
        advice = "Make room; if the file is damaged remove it, and what it held is graded again."
        raise CourseError(f"could not read or write the shard {shard}: {error}. {advice}") from None


def results(shard):
    """Yields each Graded in `shard`, one in memory at a time."""
    with _opened(shard) as db:
        for record, nb in db.execute("SELECT record, notebook FROM course_graded ORDER BY unit, learner"):
            yield replace(_graded(record), notebook=nbformat.reads(nb, as_version=4))


def _record(graded):
    """All of `graded` but its notebook, as JSON."""
    fields = asdict(replace(graded, notebook=None)) | {"received": graded.received.isoformat()}
    return json.dumps(fields, sort_keys=True)


def _graded(record):
    fields = json.loads(record)
    marks = [Mark(**mark) for mark in fields["marks"]]
    return Graded(**fields | {"marks": marks, "received": datetime.fromisoformat(fields["received"])})


def merge(shards, root=ROOT):
    """The number of submissions entered from `shards` into the gradebook of `root` and its autograded/.

    Entering again what is there changes nothing, so a merge that was interrupted is simply repeated; shards are removed
    once they are in.  Scores follow the rules above; late penalties are those of the configured plugin.

    Raises: CourseError if a unit was not prepared, or a shard cannot be read.
    """
    config, directory = _course(root)
    late = nbg.AssignLatePenalties(config=config)
    late.init_plugin()
    autograde, entered = Autograde(coursedir=directory, config=config), 0
    with _book(directory) as book:
        with _transaction(book):
            book.db.execute(text(TABLE.format("record")))
        for shard in map(Path, shards):
            for graded in results(shard):
                with _transaction(book):
                    if _row(book, graded) != _record(graded):
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
    asked = text("SELECT record FROM course_graded WHERE learner = :learner AND unit = :unit")
    return book.db.execute(asked, {"learner": graded.learner, "unit": graded.unit}).scalar()


def _place(graded, directory, autograde):
    """None; autograded/<learner>/<unit> holds the notebook and the time, as `nbgrader autograde` leaves them."""
    with whole_folder(directory.format_path(directory.autograded_directory, graded.learner, graded.unit)) as folder:
        (folder / f"{graded.unit}.ipynb").write_text(_text(graded.notebook), encoding="utf-8")
        (folder / "timestamp.txt").write_text(f"{graded.received.astimezone(UTC):%Y-%m-%d %H:%M:%S.%f %Z}")
    autograde.set_permissions(graded.unit, graded.learner)


def _enter(book, graded, late):
    """None; the gradebook holds the scores of `graded`, its penalty by the plugin `late`, and its record."""
    book.update_or_create_student(graded.learner)
    try:
        with book.db.no_autoflush:  # nbgrader fills in a new submission before it adds it to the session
            submission = book.update_or_create_submission(graded.unit, graded.learner, timestamp=graded.received)
        notebook = book.find_submission_notebook(graded.unit, graded.unit, graded.learner)
        grades = _by_cell(book, GradeCell, Grade, notebook)
        comments = _by_cell(book, SolutionCell, Comment, notebook)
        for cell in graded.notebook.cells:
            if utils.is_grade(cell):
                grade = grades[grade_id(cell)]
                grade.auto_score, _ = utils.determine_grade(cell)
                grade.needs_manual_grade = grade.manual_score is not None or grade.auto_score is None
            if utils.is_solution(cell):
                same = cell.metadata.nbgrader.get("checksum") == utils.compute_checksum(cell)
                comments[grade_id(cell)].auto_comment = "No response." if same else None
    except (MissingEntry, KeyError) as error:
        raise CourseError(
            f"the gradebook does not know the cells of {graded.unit} ({error}); prepare it first."
        ) from None
    book.db.flush()
    book.db.refresh(notebook, ["score"])
    notebook.late_submission_penalty = None
    if submission.total_seconds_late > 0:
        penalty = late.late_submission_penalty(graded.learner, notebook.score, submission.total_seconds_late)
        if penalty is not None:
            notebook.late_submission_penalty = min(max(penalty, 0), notebook.score)
    key = {"learner": graded.learner, "unit": graded.unit}
    book.db.execute(text("DELETE FROM course_graded WHERE learner = :learner AND unit = :unit"), key)
    book.db.execute(text("INSERT INTO course_graded VALUES (:learner, :unit, :r)"), key | {"r": _record(graded)})


def _by_cell(book, cell_kind, kind, notebook):
    """{name of cell: its Grade or Comment} of a submitted notebook."""
    found = book.db.query(cell_kind.name, kind).join(kind, kind.cell_id == cell_kind.id)
    return dict(found.filter(kind.notebook_id == notebook.id).all())


def records(root=ROOT):
    """What was entered: a list of Graded without notebooks, by unit and learner.

    A submission that was removed from the gradebook since, or whose autograded notebook was, is not among them.
    """
    _, directory = _course(root)
    with _book(directory) as book:
        with _transaction(book):
            book.db.execute(text(TABLE.format("record")))
            rows = book.db.execute(text("SELECT record FROM course_graded ORDER BY unit, learner")).scalars().all()
            known = {(s.student_id, a.name) for a in book.assignments for s in a.submissions}
    return [
        graded
        for graded in map(_graded, rows)
        if (graded.learner, graded.unit) in known
        and Path(
            directory.format_path(directory.autograded_directory, graded.learner, graded.unit), f"{graded.unit}.ipynb"
        ).is_file()
    ]


def feedback(unit, root=ROOT):
    """None; feedback/<learner>/<unit>/<unit>.html of every learner, by nbgrader, with nothing in it that could run.

    Raises: CourseError with the end of nbgrader's log if a page could not be made; the others are there.
    """
    config, directory = _course(root)
    config.HTMLExporter.sanitize_html = True
    config.HTMLExporter.filters = {"markdown2html": safe_markdown}
    directory.assignment_id = unit
    done = utils.capture_log(GenerateFeedback(coursedir=directory, config=config, force=True))
    if not done["success"]:
        tail = "\n  ".join(done.get("log", done["error"]).splitlines()[-8:])
        raise CourseError(f"nbgrader could not make all feedback of {unit}; the end of its log:\n  {tail}")


def _course(root):
    """(nbgrader's configuration, its CourseDirectory) for the course folder `root`.

    The configuration is that of `root`, then of the repository, then of this user and machine, as nbgrader reads it.
    """
    app = NbGrader(raise_config_file_errors=True)
    places = [str(Path(root).resolve()), str(ROOT), *app.config_file_paths]
    Application.load_config_file(app, "nbgrader_config", path=places)
    return app.config, CourseDirectory(config=app.config, root=places[0])


def _book(directory):
    """nbgrader's Gradebook of a course; a new one asks `alembic`, which lies beside this Python, for its version."""
    beside = str(Path(sys.executable).parent)
    if beside not in os.environ.get("PATH", "").split(os.pathsep):
        os.environ["PATH"] = os.pathsep.join((beside, os.environ.get("PATH", "")))
    return Gradebook(directory.db_url, directory.course_id)
