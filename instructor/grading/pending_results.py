"""Results of grading -> files, one per submission, until one process enters them into the
gradebook.

    save(folder, graded)             # by a worker, or a task on another machine
    load(path_of(folder, graded))    # by the process that merges

A file is there whole or not at all, so a process that is killed at any moment leaves whole
submissions or none.
"""

import hashlib
import json
from pathlib import Path

import nbformat

from course.errors import CourseError
from course.system.files import atomic_write
from instructor.grading.feedback import finished, notebook_text
from instructor.grading.results import Graded, Submission


def path_of(folder: Path, one: Submission | Graded) -> Path:
    """The file in `folder` that holds the result of a submission."""
    digest = hashlib.sha256(f"{one.unit}/{one.learner}".encode()).hexdigest()
    return folder / f"{digest[:20]}.json"


def save(folder: Path, graded: Graded) -> None:
    """Write `graded` into its file in `folder`.

    Raises: CourseError if it cannot be written or there is no such folder; ValueError as
    `finished`.
    """
    if not folder.is_dir():
        raise CourseError("the grader that wanted it is gone.")
    notebooks = {}
    for result in graded.parts:
        notebooks[result.part] = notebook_text(finished(graded.unit, result))
    with atomic_write(path_of(folder, graded)) as file:
        file.write(json.dumps({"record": graded.to_json(), "notebooks": notebooks}).encode())


def load(path: Path) -> Graded:
    """The Graded in a file that `save` wrote.  Raises: CourseError if it is damaged."""
    try:
        entry = json.loads(path.read_bytes())
        graded = Graded.from_json(entry["record"])
        for result in graded.parts:
            result.notebook = nbformat.reads(entry["notebooks"][result.part], as_version=4)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CourseError(
            f"could not read {path}: {error}. Remove it; what it held is graded again."
        ) from None
    return graded
