"""Results of grading -> SQLite files of our own, one per worker, until one process enters them into the gradebook.

    save(shard, graded)           # by each worker, a submission at a time
    results(shard)                # by whoever merges

A whole result is one row, so that a process killed at any moment leaves whole submissions or none.
"""

import contextlib
import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import nbformat

from course.errors import CourseError
from course.grading.feedback import finished, notebook_text
from course.grading.results import Graded

TABLE = """CREATE TABLE IF NOT EXISTS course_results
           (learner TEXT, unit TEXT, record TEXT, notebooks TEXT, PRIMARY KEY (learner, unit))"""


def save(shard: Path, graded: Graded) -> None:
    """Put `graded` into the file `shard`, instead of what it held of this submission.  One process per shard.

    Raises: CourseError if the file cannot be written; ValueError as `finished`.
    """
    notebooks = {result.part: notebook_text(finished(graded.unit, result)) for result in graded.parts}
    Path(shard).parent.mkdir(parents=True, exist_ok=True)
    with opened(shard) as db:
        row = graded.learner, graded.unit, graded.to_json(), json.dumps(notebooks)
        db.execute("REPLACE INTO course_results VALUES (?, ?, ?, ?)", row)


def results(shard: Path) -> Iterator[Graded]:
    """Yield each Graded in `shard`, one in memory at a time."""
    with opened(shard) as db:
        for record, texts in db.execute("SELECT record, notebooks FROM course_results ORDER BY unit, learner"):
            graded, notebooks = Graded.from_json(record), json.loads(texts)
            for result in graded.parts:
                result.notebook = nbformat.reads(notebooks[result.part], as_version=4)
            yield graded


def count(shard: Path) -> int:
    """The number of submissions in a shard that another process may be writing to."""
    with contextlib.closing(sqlite3.connect(f"file:{shard}?mode=ro", uri=True)) as db:
        with contextlib.suppress(sqlite3.Error):  # it has no table yet
            return db.execute("SELECT COUNT(*) FROM course_results").fetchone()[0]
    return 0


@contextlib.contextmanager
def opened(shard: Path) -> Iterator[sqlite3.Connection]:
    """A connection to the SQLite file, and one transaction on it."""
    try:
        with contextlib.closing(sqlite3.connect(shard)) as db, db:
            db.execute(TABLE)
            yield db
    except sqlite3.Error as error:
        advice = "Make room; if the file is damaged remove it, and what it held is graded again."
        raise CourseError(f"could not read or write the shard {shard}: {error}. {advice}") from None
