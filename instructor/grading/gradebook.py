"""Results of grading -> nbgrader's own records: gradebook.db, autograded/. No other module knows
its tables.

    prepare(unit, root, sources)   # once per batch: the cells of all parts
    merge([path, ...])             # by one process: pending results -> gradebook
    records()                      # what was entered: resume and analysis read it

A unit is an assignment, a part is a notebook of it. What nbgrader has no place for (fingerprint,
notes, reports, mistakes) stands in a table of our own in gradebook.db and is written in the same
transaction as the scores. The rules are those of `nbgrader autograde`
(preprocessors/saveautogrades.py, latesubmissions.py): a new automatic score replaces the old one;
scores, extra credit and comments given by hand stay, and a cell with a score by hand asks to be
looked at again.
"""

import contextlib
import os
import sqlite3
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode
from nbgrader import preprocessors as nbg
from nbgrader import utils
from nbgrader.api import Comment, Grade, Gradebook, GradeCell, MissingEntry, SolutionCell
from nbgrader.converters import Autograde
from nbgrader.coursedir import CourseDirectory
from sqlalchemy import text
from sqlalchemy.exc import OperationalError

from course.errors import CourseError
from course.notebook.cells import grade_id
from course.notebook.registry import parts
from course.system.files import atomic_folder, write_text
from course.system.folders import ROOT
from instructor.authoring.masters import RELEASE_STEPS, source_notebook
from instructor.grading.exchange import TIME_FILE, time_text
from instructor.grading.feedback import notebook_text
from instructor.grading.folders import course_folders
from instructor.grading.pending_results import load
from instructor.grading.results import Graded, PartResult
from instructor.grading.sanitize import safe_text

TABLE = """CREATE TABLE IF NOT EXISTS course_results
           (learner TEXT, unit TEXT, record TEXT, PRIMARY KEY (learner, unit))"""
SELECT = "SELECT record FROM course_results WHERE learner = :learner AND unit = :unit"
SELECT_ALL = "SELECT record FROM course_results ORDER BY unit, learner"
DELETE = "DELETE FROM course_results WHERE learner = :learner AND unit = :unit"
ASKED_TABLE = "CREATE TABLE IF NOT EXISTS course_asked (unit TEXT PRIMARY KEY, words TEXT)"
ASKED_SELECT = "SELECT words FROM course_asked WHERE unit = :unit"
ASKED_INSERT = "INSERT OR REPLACE INTO course_asked VALUES (:unit, :words)"
ALL = "all exercises, without --release or --ask"
WAIT_SECONDS = 60  # for another program that holds the gradebook
INSERT = "INSERT INTO course_results VALUES (:learner, :unit, :record)"


def prepare(
    unit: str,
    root: Path = ROOT,
    sources: Mapping[str, NotebookNode] | None = None,
    asked: str = ALL,
) -> None:
    """Make the gradebook of the course folder `root` know `unit` and its cells.

    As `nbgrader generate_assignment` enters them; formgrader gets the source notebooks that it
    looks for.

    Args:
        sources: {part: source notebook}, where somebody has them.
        asked: how the command said which exercises count, e.g. "--release class".

    Raises: CourseError if parts or cells came or went since submissions of the unit were entered,
    or if another program holds the gradebook.
    """
    config, directory = course_folders(root)
    if not sources:
        sources = {part: source_notebook(unit, part) for part in parts(unit)}
    advice = _advice(_asked_before(directory, unit), asked)
    with _book(directory) as book:
        assignment = book.update_or_create_assignment(unit)
        gone = sorted({notebook.name for notebook in assignment.notebooks} - {*sources})
        if gone and assignment.submissions:
            raise CourseError(
                f"{directory.db_url} holds submissions of {unit} with other parts "
                f"({', '.join(gone)}). {advice}"
            )
        for name in gone:
            book.remove_notebook(name, unit)
    for part, source in sources.items():
        notebook = nbformat.from_dict(source)
        resources: dict[str, Any] = {}
        for step in RELEASE_STEPS[: RELEASE_STEPS.index(nbg.ClearHiddenTests)]:
            notebook, resources = step().preprocess(notebook, resources)
        resources["nbgrader"] = {"notebook": part, "assignment": unit, "db_url": _url(directory)}
        try:
            nbg.SaveCells(config=config).preprocess(notebook, resources)
        except RuntimeError as error:
            raise CourseError(f"{error} in {directory.db_url}. {advice}") from None
        except OperationalError as error:
            raise _held(directory, error) from None
        _write_source(directory, unit, part, source)
    with _book(directory) as book, _transaction(book):
        book.db.execute(text(ASKED_INSERT), {"unit": unit, "words": asked})


def _write_source(directory: CourseDirectory, unit: str, part: str, source: NotebookNode) -> None:
    """Write the source notebook of a part where there is none: formgrader lists no unit without."""
    folder = directory.source_directory
    path = Path(directory.format_path(folder, ".", unit)) / f"{part}.ipynb"
    if not path.exists():
        write_text(path, notebook_text(source))


def _asked_before(directory: CourseDirectory, unit: str) -> str | None:
    """How the command said it when this unit was last prepared; None if it never was."""
    with _book(directory) as book, _transaction(book):
        book.db.execute(text(ASKED_TABLE))
        words: str | None = book.db.execute(text(ASKED_SELECT), {"unit": unit}).scalar()
    return words


def _advice(before: str | None, now: str) -> str:
    """What to do if a gradebook holds submissions of other cells. Never: give up its scores."""
    if before is not None and before != now:
        return f"They were graded with {before}; say so again."
    return (
        "The unit has changed since: grade with the version of the course that they were graded "
        "with, or name another folder with --course."
    )


def merge(pending: Iterable[Path], root: Path = ROOT) -> int:
    """Enter pending results into the gradebook of `root` and its autograded/.

    Entering again what is there changes nothing, so a merge that was interrupted is simply
    repeated; files are removed once they are in. Scores follow the rules above; late penalties are
    those of the configured plugin.

    Returns: how many were new.
    Raises: CourseError if a unit was not prepared, or a file cannot be read.
    """
    config, directory = course_folders(root)
    late = nbg.AssignLatePenalties(config=config)
    late.init_plugin()
    autograde = Autograde(coursedir=directory, config=config)
    entered = 0
    with _book(directory) as book:
        with _transaction(book):
            book.db.execute(text(TABLE))
        for path in map(Path, pending):
            graded = load(path)
            with _transaction(book):
                if _record(book, graded) != graded.to_json():
                    _write_notebooks(graded, directory, autograde)
                    _enter(book, graded, late.plugin_inst)
                    entered += 1
            path.unlink()
    return entered


@contextlib.contextmanager
def _transaction(book: Gradebook) -> Iterator[None]:
    """One transaction of the gradebook, whatever nbgrader's own functions commit in between."""
    book.db.remove()
    with book.engine.begin() as connection:
        book.db.configure(bind=connection, join_transaction_mode="rollback_only")
        yield
        book.db.flush()
        book.db.remove()


def _record(book: Gradebook, graded: Graded) -> str | None:
    """The record of this submission in the gradebook, or None."""
    key = {"learner": graded.learner, "unit": graded.unit}
    record: str | None = book.db.execute(text(SELECT), key).scalar()
    return record


def _autograded(directory: CourseDirectory, graded: Graded) -> Path:
    """The folder of a submission's autograded notebooks."""
    folder = directory.autograded_directory
    return Path(directory.format_path(folder, graded.learner, graded.unit))


def _write_notebooks(graded: Graded, directory: CourseDirectory, autograde: Autograde) -> None:
    """Write the notebooks and the time, as `nbgrader autograde` leaves them."""
    with atomic_folder(_autograded(directory, graded)) as folder:
        for result in graded.parts:
            notebook = notebook_text(result.notebook)
            (folder / f"{result.part}.ipynb").write_text(notebook, encoding="utf-8")
        (folder / TIME_FILE).write_text(time_text(graded.received))
    autograde.set_permissions(graded.unit, graded.learner)


def _enter(book: Gradebook, graded: Graded, late: Any) -> None:
    """Enter the scores of `graded`, its penalty by the plugin `late`, and its record."""
    book.update_or_create_student(graded.learner)
    try:
        # nbgrader fills in a new submission before it adds it to the session
        with book.db.no_autoflush:
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
            f"the gradebook does not know the cells of {graded.unit} ({error}); run `course build` "
            "first."
        ) from None
    key = {"learner": graded.learner, "unit": graded.unit}
    book.db.execute(text(DELETE), key)
    book.db.execute(text(INSERT), key | {"record": graded.to_json()})


def _enter_part(book: Gradebook, result: PartResult, notebook: Any) -> None:
    """Enter the scores and comments of one part into the submitted notebook `notebook`."""
    grades = _by_cell(book, GradeCell, Grade, notebook)
    comments = _by_cell(book, SolutionCell, Comment, notebook)
    for cell in result.notebook.cells:
        if utils.is_grade(cell):
            grade = grades[str(grade_id(cell))]
            grade.auto_score, _ = utils.determine_grade(cell)
            grade.needs_manual_grade = grade.manual_score is not None or grade.auto_score is None
        if utils.is_solution(cell):
            is_untouched = cell.metadata.nbgrader.get("checksum") == utils.compute_checksum(cell)
            comments[str(grade_id(cell))].auto_comment = "No response." if is_untouched else None


def _penalty(learner: str, notebook: Any, submission: Any, late: Any) -> float | None:
    """The points that a late notebook loses, or None if it loses none."""
    seconds = submission.total_seconds_late
    if seconds <= 0:
        return None
    penalty: float | None = late.late_submission_penalty(learner, notebook.score, seconds)
    return None if penalty is None else min(max(penalty, 0), notebook.score)


def _by_cell(book: Gradebook, cell_kind: Any, kind: Any, notebook: Any) -> dict[str, Any]:
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
            rows = book.db.execute(text(SELECT_ALL)).scalars().all()
            known = set()
            for assignment in book.assignments:
                for submission in assignment.submissions:
                    known.add((submission.student_id, assignment.name))
    there = []
    for row in rows:
        graded = Graded.from_json(row)
        if (graded.learner, graded.unit) in known and _has_notebooks(directory, graded):
            there.append(graded)
    return there


def _has_notebooks(directory: CourseDirectory, graded: Graded) -> bool:
    folder = _autograded(directory, graded)
    return all((folder / f"{result.part}.ipynb").is_file() for result in graded.parts)


def scores(unit: str, root: Path = ROOT) -> dict[str, dict[str, tuple[float, float]]]:
    """{learner: {grade cell: (score, points)}} of all parts of `unit`.

    Cells are in the order of the notebooks; those that a person grades are left out until somebody
    has.
    """
    table = {}
    with Gradebook(f"sqlite:///{Path(root) / 'gradebook.db'}") as book:
        for submission in book.assignment_submissions(unit):
            cells = {}
            for notebook in sorted(submission.notebooks, key=lambda notebook: notebook.name):
                for grade in notebook.grades:
                    if not grade.needs_manual_grade:
                        cells[grade.name] = (grade.score, grade.max_score)
            table[submission.student.id] = cells
    return table


def totals(root: Path = ROOT) -> list[tuple[str, str, float, float, int]]:
    """(learner, unit, score less penalty, points, cells to look at) of each submission."""
    _, directory = course_folders(root)
    rows = []
    with _book(directory) as book:
        for assignment in book.assignments:
            for submission in assignment.submissions:
                waiting = 0
                for notebook in submission.notebooks:
                    waiting += sum(grade.needs_manual_grade for grade in notebook.grades)
                score = max(0.0, submission.score - (submission.late_submission_penalty or 0))
                rows.append(
                    (submission.student_id, assignment.name, score, submission.max_score, waiting)
                )
    return rows


@contextlib.contextmanager
def _book(directory: CourseDirectory) -> Iterator[Gradebook]:
    """nbgrader's Gradebook of a course, once no other program holds it.

    A new one asks `alembic`, which is in the folder of this Python, for its version.

    Raises: CourseError if another program holds it for longer than WAIT_SECONDS.
    """
    beside = str(Path(sys.executable).parent)
    if beside not in os.environ.get("PATH", "").split(os.pathsep):
        os.environ["PATH"] = os.pathsep.join((beside, os.environ.get("PATH", "")))
    try:
        _wait_until_free(directory)
        with Gradebook(_url(directory), directory.course_id) as book:
            yield book
    except OperationalError as error:
        raise _held(directory, error) from None


def _url(directory: CourseDirectory) -> str:
    """The database's address, with the seconds that SQLite waits for a lock."""
    is_file = _file(directory) is not None
    return f"{directory.db_url}?timeout={WAIT_SECONDS:g}" if is_file else directory.db_url


def _file(directory: CourseDirectory) -> Path | None:
    """The file of an SQLite database; None for a database of another kind."""
    kind, _, path = directory.db_url.partition(":///")
    return Path(path) if kind == "sqlite" else None


def _wait_until_free(directory: CourseDirectory) -> None:
    """Return once the gradebook can be written; say who holds it if that is not now."""
    path = _file(directory)
    if path is None or not path.exists():
        return
    for seconds in (0, WAIT_SECONDS):
        with contextlib.closing(sqlite3.connect(path, timeout=seconds)) as database:
            try:
                database.execute("BEGIN IMMEDIATE")
                return
            except sqlite3.OperationalError as error:
                if seconds or "locked" not in str(error):
                    raise OperationalError("BEGIN IMMEDIATE", None, error) from None
        print(f"waiting up to {WAIT_SECONDS:g} s for {path}, which {_holders(path)} holds")


def _held(directory: CourseDirectory, error: OperationalError) -> Exception:
    """What to raise for a database that could not be used."""
    path = _file(directory)
    if path is None or "locked" not in str(error):
        return error
    return CourseError(
        f"{path} is held by {_holders(path)}, so nothing was entered. Close that program, then "
        "run the same command: it continues where it was."
    )


def _holders(path: Path) -> str:
    """The other processes that have a file open, as far as this user can see (Linux)."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            files = {os.path.realpath(file) for file in (process / "fd").iterdir()}
            if str(path.resolve()) in files and int(process.name) != os.getpid():
                words = (process / "cmdline").read_bytes().split(b"\0")
                name = " ".join(word.decode("utf-8", "replace") for word in words[:3] if word)
                found.append(f"{name} (process {process.name})")
    return safe_text(", ".join(found)) or "another program"
