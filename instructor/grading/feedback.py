"""What learners and teachers see of a graded submission: the notebook with its reports, and
nbgrader's feedback pages.

    finished(unit, part_result)       # a notebook whose grade cells show their reports, from which
                                      # nbgrader reads scores
    write_pages(unit, root, workers)  # feedback/<learner>/<unit>/<part>.html, in which nothing runs
"""

import glob
import multiprocessing
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

import nbformat
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_output
from nbgrader import utils
from nbgrader.converters import GenerateFeedback
from tqdm import tqdm

from course.errors import CourseError
from course.notebook.cells import grade_id
from course.system.folders import ROOT
from instructor.grading import BAR
from instructor.grading.folders import course_folders
from instructor.grading.results import Mark, PartResult
from instructor.grading.sanitize import FILTERS, safe_output, safe_text

NOTE_CELL = "grader-note"
LOG_LINES = 8  # the last of nbgrader's log, that an error repeats


def finished(unit: str, result: PartResult) -> NotebookNode:
    """The notebook of `result` as nbgrader, a teacher and the learner may see it.

    The one given is not changed. Every grade cell holds its report as output, such that nbgrader's
    own rule (utils.determine_grade) reads the score from it; one without a mark scores 0. Other
    outputs are what `safe_output` keeps.

    Raises: ValueError for a mark without its cell, or a score out of range: a bug of the caller.
    """
    marks = {mark.cell: mark for mark in result.marks}
    notebook = nbformat.from_dict(result.notebook)
    for cell in notebook.cells:
        cell.pop("attachments", None)
        if cell.cell_type != "code":
            continue
        if utils.is_grade(cell) and not utils.is_solution(cell):
            name = str(grade_id(cell))
            missing = Mark(name, 0, 0, f"not graded. {result.note}")
            mark = marks.pop(name, missing)
            cell.outputs = _report_outputs(mark, cell.metadata.nbgrader.points)
        else:
            cell.outputs = _safe_outputs(cell.outputs)
    if marks:
        raise ValueError(f"{unit}/{result.part} has no grade cell {', '.join(marks)}")
    if result.note:
        note = new_output("stream", name="stdout", text=safe_text(result.note))
        cell = new_code_cell("# A note from the grader", id=NOTE_CELL, outputs=[note])
        notebook.cells.insert(0, cell)
    notebook = nbformat.reads(notebook_text(notebook), as_version=4)
    nbformat.validate(notebook)
    return notebook


def _safe_outputs(outputs: Sequence[NotebookNode]) -> list[NotebookNode]:
    safe = [safe_output(output) for output in outputs]
    return [output for output in safe if output]


def _report_outputs(mark: Mark, points: float) -> list[NotebookNode]:
    report = safe_text(mark.report)
    if not 0 <= mark.score <= points:
        raise ValueError(f"{mark.cell}: a score of {mark.score} with {points} points")
    if mark.score == 0:
        lines = report.splitlines()
        first = lines[0] if lines else ""
        return [new_output("error", ename="CheckFailed", evalue=first, traceback=lines)]
    shown = [new_output("stream", name="stdout", text=report + "\n")]
    if mark.score < points:
        score = {"text/plain": repr(float(mark.score))}
        shown.append(new_output("execute_result", score, execution_count=1))
    return shown


def notebook_text(notebook: NotebookNode) -> str:
    """The notebook as a file's text.

    Half a surrogate pair, which no file can hold, becomes a question mark.
    """
    text: str = nbformat.writes(notebook)
    return text.encode("utf-8", "replace").decode()


def write_pages(unit: str, root: Path = ROOT, workers: int = 1) -> None:
    """Write feedback/<learner>/<unit>/<part>.html of every learner, by nbgrader.

    Nothing in the pages could run. As many processes as `workers` make them, each those of one
    learner after the other.

    Raises: CourseError with the end of nbgrader's log if some learner's pages could not be made;
    the others' are there.
    """
    _, directory = course_folders(root)
    folders = glob.glob(directory.format_path(directory.autograded_directory, "*", unit))
    logs = {}
    with ProcessPoolExecutor(workers, multiprocessing.get_context("fork")) as pool:
        jobs = {}
        for folder in folders:
            learner = Path(folder).parent.name
            jobs[pool.submit(_write_pages_of, learner, unit, root)] = learner
        done = as_completed(jobs)
        for job in tqdm(done, f"feedback {unit}", len(jobs), file=sys.stdout, bar_format=BAR):
            if log := job.result():
                logs[jobs[job]] = log
    if logs:
        first = min(logs)
        tail = "\n  ".join(logs[first].splitlines()[-LOG_LINES:])
        raise CourseError(
            f"nbgrader could not make the feedback of {unit} for {', '.join(sorted(logs))}; the "
            f"end of its log for {first}:\n  {tail}"
        )


def _write_pages_of(learner: str, unit: str, root: Path) -> str:
    """What nbgrader logged if it could not make this learner's pages, or ""."""
    config, directory = course_folders(root)
    config.HTMLExporter.sanitize_html = True
    config.HTMLExporter.filters = FILTERS
    directory.assignment_id = unit
    directory.student_id = glob.escape(learner)
    done = utils.capture_log(GenerateFeedback(coursedir=directory, config=config, force=True))
    if done["success"]:
        return ""
    return str(done.get("log", done["error"]))
