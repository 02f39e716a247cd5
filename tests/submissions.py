"""Submissions for tests of grading: notebooks of a unit with some answers, looked up by exercise."""

import contextlib
import ctypes
import functools
import os
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import nbformat

from course.notebook.cells import grade_id
from course.notebook.registry import parts, solutions_folder
from course.notebook.solutions import exercise_parts
from course.system.files import write_text
from instructor.authoring import masters
from instructor.grading import gradebook, pending_results
from instructor.grading.results import Graded, Mark, PartResult
from instructor.jail.memory import descendants

UNIT = "03_large_batch"
SUBREAPER = 36  # of prctl
DUE = datetime(2026, 3, 1, 12, tzinfo=UTC)


def part_of(exercise, unit=UNIT):
    """The name of the part that asks `exercise`."""
    return exercise_parts(unit)[exercise].stem


@functools.cache
def source(part, unit=UNIT):
    return masters.source_notebook(unit, part)


def sources(unit=UNIT):
    """{part: its source notebook}."""
    return {part: source(part, unit) for part in parts(unit)}


@functools.cache
def _release_and_solved(part, unit):
    return masters.release_notebook(source(part, unit)), masters.solved_notebook(source(part, unit))


def release(part, unit=UNIT):
    """A released notebook that may be changed."""
    return nbformat.from_dict(_release_and_solved(part, unit)[0])


def solved(part, unit=UNIT):
    """A solved notebook that may be changed."""
    return nbformat.from_dict(_release_and_solved(part, unit)[1])


def answered(part, names, unit=UNIT):
    """The released notebook of a part with the reference's answers to the exercises `names`."""
    nb = release(part, unit)
    for cell, right in zip(nb.cells, solved(part, unit).cells, strict=True):
        if grade_id(cell) in names:
            cell.source = right.source
    return nb


def hand_in(inbox, learner, *names, unit=UNIT):
    """Put the parts that ask the exercises `names` into the inbox, with the reference's answers to these alone."""
    for part in {part_of(name, unit) for name in names}:
        write_text(inbox / learner / unit / f"{part}.ipynb", masters.text_of(answered(part, names, unit)))


def grade_cells(notebook):
    return [cell for cell in notebook.cells if cell.metadata.get("nbgrader", {}).get("grade")]


def graded(learner="ann", share=lambda number: 1, text=None, note="", fingerprint="f", received=DUE):
    """A Graded by hand: test number i of a part gets `share(i)` of its points, free-text answers are `text`."""
    results = []
    for part in parts(UNIT):
        nb, marks = release(part), []
        for cell in grade_cells(nb):
            if cell.cell_type == "markdown":
                cell.source = text or cell.source
            else:
                points = cell.metadata.nbgrader.points
                marks.append(Mark(grade_id(cell), points * share(len(marks)), points, f"report {len(marks)}"))
        results.append(PartResult(part, marks, note, nb))
    return Graded(learner, UNIT, results, received, fingerprint)


def alternatives_source(exercise):
    """The file of an exercise's mistakes and alternatives as a learner may have it in a cell."""
    text = (solutions_folder() / exercise.unit / "answers" / f"{exercise.name}.py").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if not line.startswith("from course.engine.known_answers import")]
    marks = "alternative = lambda f: f\nmistake = lambda advice: lambda f: f\n"
    return marks + "\n".join(lines)


def command(*arguments):
    """The words that start `course grade` in a process of its own."""
    return [sys.executable, "-m", "course.cli", "grade", *map(str, arguments)]


def children(pid):
    return [int(number) for number in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def wait_until(true, seconds=300):
    deadline = time.monotonic() + seconds
    while not (value := true()):
        assert time.monotonic() < deadline, "it did not come in time"
        time.sleep(0.05)
    return value


@contextlib.contextmanager
def orphans_adopted():
    """In the block, orphans of any depth become children of this process.

    Yields a function that returns the numbers of processes that came since and do not end within some seconds.
    """
    libc = ctypes.CDLL(None)
    libc.prctl(SUBREAPER, 1, 0, 0, 0)
    mine = {*descendants([os.getpid()])}

    def remaining(seconds=10):
        deadline = time.monotonic() + seconds
        while (left := {*descendants([os.getpid()])} - mine) and time.monotonic() < deadline:
            for number in left:
                with contextlib.suppress(ChildProcessError):  # a grandchild
                    os.waitpid(number, os.WNOHANG)
            time.sleep(0.05)
        return left

    yield remaining
    libc.prctl(SUBREAPER, 0, 0, 0, 0)


def content(folder):
    """Everything in a folder with its times and rights."""
    return {
        path: (path.lstat().st_mode, path.lstat().st_mtime_ns, path.is_file() and path.read_bytes())
        for path in [folder, *folder.rglob("*")]
    }


def enter(course, *them):
    """Enter these Graded into the gradebook of `course`; return how many were new."""
    folder = course / "pending"
    folder.mkdir(exist_ok=True)
    for one in them:
        pending_results.save(folder, one)
    return gradebook.merge(folder.iterdir(), course)


def with_text():
    """The name of the part that asks a text, which a teacher grades by hand."""
    return next(p for p, nb in sources().items() if any(c.cell_type == "markdown" for c in grade_cells(nb)))
