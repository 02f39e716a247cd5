"""What learners and teachers see of a graded submission: the notebook with its reports, and
nbgrader's feedback pages.

finished(unit, part_result)      # a notebook whose grade cells show their reports and from which
nbgrader reads scores write_pages(unit, root, workers) # feedback/<learner>/<unit>/<part>.html, with
nothing in it that could run
"""

import glob
import multiprocessing
import sys
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

import nbformat
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


def finished(unit: str, result: PartResult):
    """The notebook of `result` as nbgrader, a teacher and the learner may see it; the one given is
    not changed.

    Every grade cell holds its report as output, such that nbgrader's own rule
    (utils.determine_grade) reads the score from it; one without a mark scores 0. Other outputs are
    what `safe_output` keeps.

    Raises: ValueError for a mark without its cell, or a score out of range: a bug of the caller.
    """
    marks = {mark.cell: mark for mark in result.marks}
    nb = nbformat.from_dict(result.notebook)
    for cell in nb.cells:
        cell.pop("attachments", None)
        if cell.cell_type == "code":
            if utils.is_grade(cell) and not utils.is_solution(cell):
                missing = Mark(grade_id(cell), 0, 0, f"not graded. {result.note}")
                mark = marks.pop(grade_id(cell), missing)
                cell.outputs = _report_outputs(mark, cell.metadata.nbgrader.points)
            else:
                cell.outputs = [safe for output in cell.outputs if (safe := safe_output(output))]
    if marks:
        raise ValueError(f"{unit}/{result.part} has no grade cell {', '.join(marks)}")
    if result.note:
        said = new_output("stream", name="stdout", text=safe_text(result.note))
        nb.cells.insert(0, new_code_cell("# A note from the grader", id=NOTE_CELL, outputs=[said]))
    nb = nbformat.reads(notebook_text(nb), as_version=4)
    nbformat.validate(nb)
    return nb


def _report_outputs(mark, points):
    report = safe_text(mark.report)
    if not 0 <= mark.score <= points:
        raise ValueError(f"{mark.cell}: a score of {mark.score} with {points} points")
    if mark.score == 0:
        first, *_ = report.splitlines() or [""]
        return [
            new_output("error", ename="CheckFailed", evalue=first, traceback=report.splitlines())
        ]
    shown = [new_output("stream", name="stdout", text=report + "\n")]
    if mark.score < points:
        shown.append(
            new_output("execute_result", {"text/plain": repr(float(mark.score))}, execution_count=1)
        )
    return shown


def notebook_text(nb) -> str:
    """The notebook as a file's text; half a surrogate pair, which no file can hold, becomes a
    question mark.
    """
    return nbformat.writes(nb).encode("utf-8", "replace").decode()


def write_pages(unit: str, root: Path = ROOT, workers: int = 1) -> None:
    """Write feedback/<learner>/<unit>/<part>.html of every learner, by nbgrader, with nothing in it
    that could run.

    As many processes as `workers` make the pages, each those of one learner after the other.

    Raises: CourseError with the end of nbgrader's log if some learner's pages could not be made;
    the others' are there.
    """
    _, directory = course_folders(root)
    folders = glob.glob(directory.format_path(directory.autograded_directory, "*", unit))
    logs = {}
    with ProcessPoolExecutor(workers, multiprocessing.get_context("fork")) as pool:
        jobs = {
            pool.submit(_write_pages_of, name, unit, root): name
            for name in (Path(f).parent.name for f in folders)
        }
        for job in tqdm(
            as_completed(jobs), f"feedback {unit}", len(jobs), file=sys.stdout, bar_format=BAR
        ):
            if log := job.result():
                logs[jobs[job]] = log
    if logs:
        first = min(logs)
        tail = "\n  ".join(logs[first].splitlines()[-8:])
        raise CourseError(
            f"nbgrader could not make the feedback of {unit} for {', '.join(sorted(logs))}; the end of its log for "
            f"{first}:\n  {tail}"
        )


def _write_pages_of(learner, unit, root):
    """What nbgrader logged if it could not make this learner's pages, or ""."""
    config, directory = course_folders(root)
    config.HTMLExporter.sanitize_html = True
    config.HTMLExporter.filters = FILTERS
    directory.assignment_id, directory.student_id = unit, glob.escape(learner)
    done = utils.capture_log(GenerateFeedback(coursedir=directory, config=config, force=True))
    return "" if done["success"] else done.get("log", done["error"])
