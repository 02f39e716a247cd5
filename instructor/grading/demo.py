"""Grade a solved and an untouched submission of every unit: `course demo`.

nbgrader itself grades one unit while `course grade` grades the others. All of it happens in
build/demo, a separate course folder, so the demo touches no gradebook or submission of an
instructor. Fails unless every solved submission scores all points and every untouched one none.
"""

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import nbformat

from course.datasets import fashion, lfw, movielens, regression
from course.device import cores
from course.errors import CourseError
from course.notebook.registry import parts, units
from course.system.files import write_text
from course.system.folders import ROOT
from instructor.authoring.build import build
from instructor.authoring.masters import release_notebook, solved_notebook, text_of
from instructor.grading.gradebook import scores

DEMO = ROOT / "build" / "demo"
# the unit that nbgrader grades: its answers need no ranks and no workers
NBGRADED = "03_large_batch"
STEPS = ("generate_assignment", "autograde", "generate_feedback")
NBGRADER = [sys.executable, "-m", "nbgrader"]
BAR = re.compile(r" *\d+ %\|")  # a line of a progress bar of `course grade`
BAR_COLUMNS = 79
LOG_LINES = 8  # the last of a log, that an error repeats
DUE = {"solved": 100, "untouched": 0}  # per cent of the points

Cells = dict[str, tuple[float, float]]  # grade cell -> score, points


def demo() -> None:
    """Build, submit, grade and show.

    Raises: CourseError if a step fails or a score is not as expected.
    """
    started = time.monotonic()
    shutil.rmtree(DEMO, ignore_errors=True)
    # what somebody solved on this machine does not belong to a submission
    os.environ["COURSE_ANSWERS"] = "off"
    prepare_data()
    by_nbgrader = NBGRADED if NBGRADED in units() else units()[0]
    others = [unit for unit in units() if unit != by_nbgrader]
    nbgraders_folder = DEMO / "nbgrader"
    submit(by_nbgrader, nbgraders_folder)
    with ThreadPoolExecutor(1) as pool:
        nbgraders = pool.submit(_grade_by_nbgrader, by_nbgrader, nbgraders_folder)
        for unit in others:
            submit(unit, DEMO)
        named = ", ".join(others)
        print(f"grading: {by_nbgrader} by nbgrader, {named} by course grade", flush=True)
        if others:
            grade(others)
        print(f"waiting for nbgrader, which grades {by_nbgrader}", flush=True)
        nbgraders.result()
    percents = []
    for unit in units():
        folder = nbgraders_folder if unit == by_nbgrader else DEMO
        percents.append(show(unit, scores(unit, folder)))
    print("(free texts are graded by hand, in nbgrader's formgrader)")
    if any(percent != DUE for percent in percents):
        raise CourseError(
            "expected 100 % for every solved, 0 % for every untouched submission; see "
            "build/demo/*.log."
        )
    pages = nbgraders_folder / "feedback" / "solved" / by_nbgrader
    seconds = time.monotonic() - started
    print(f"\nall as expected, in {seconds:.0f} s.  Feedback that learners get: {_short(pages)}")
    print("Next: `make lab` opens the notebooks, `make check` runs the quick tests.")


def _grade_by_nbgrader(unit: str, course: Path) -> None:
    for step in STEPS:
        nbgrader(step, unit, course)


def prepare_data() -> None:
    """Make the smallest embedded data sets, so that no grader waits for them."""
    print("embedded data", flush=True)
    lfw.folder("tiny")
    movielens.load("tiny")
    fashion.load("tiny")
    regression.prepare(rows=2000, columns=64)


def submit(unit: str, course: Path) -> None:
    """Build `unit`; put a solved and an untouched submission of it into the folder `course`."""
    for part in parts(unit):
        source, _ = build(unit, part)
        write_text(course / "build" / "source" / unit / f"{part}.ipynb", text_of(source))
        handed_in = {"solved": solved_notebook(source), "untouched": release_notebook(source)}
        for learner, notebook in handed_in.items():
            path = course / "submitted" / learner / unit / f"{part}.ipynb"
            write_text(path, text_of(nbformat.from_dict(notebook)))
    print(f"{unit}: {len(parts(unit))} parts built and submitted", flush=True)


def grade(names: list[str], course: Path = DEMO) -> None:
    """Grade the submissions of the units `names` with `course grade`.

    Its progress bars are shown, its words go to grade.log.
    Raises: CourseError with the end of the log if it fails.
    """
    command = [sys.executable, "-m", "course.cli", "grade"]
    call = [*command, str(course / "submitted"), "--course", str(course)]
    for name in names:
        call += ["--unit", name]
    call += ["--workers", str(cores())]
    log = course / "grade.log"
    code = _shown(call, log)
    if code and "bubblewrap" in log.read_text(errors="replace"):
        print(
            "bubblewrap does not work here; the demo's own submissions are graded without walls",
            flush=True,
        )
        code = _shown([*call, "--unsafe"], log)
    if code:
        raise CourseError(f"course grade failed (exit code {code}); the end of {_tail(log)}")


def _shown(call: Sequence[str], log: Path) -> int:
    """The exit code of a command; its progress bars are shown, all else goes to the file `log`."""
    with log.open("w") as file:
        # as text, a carriage return ends a line: so does a bar
        process = subprocess.Popen(
            call, cwd=ROOT, stdout=subprocess.PIPE, stderr=file, text=True, errors="replace"
        )
        with process:
            for line in process.stdout or ():
                if BAR.match(line):
                    shown = line.rstrip("\n")[:BAR_COLUMNS].ljust(BAR_COLUMNS)
                    print("\r" + shown, end="", flush=True)
                else:
                    print(line, end="", file=file, flush=True)
    print()
    return process.returncode


def nbgrader(action: str, unit: str, course: Path = DEMO) -> None:
    """Run an nbgrader command on `unit` in the course folder `course`.

    Its words go to <course>/nbgrader.log.
    Raises: CourseError with the end of the log if it fails.
    """
    call = [*NBGRADER, action, unit, "--force", f"--CourseDirectory.root={course}"]
    # nbgrader starts `alembic`
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))
    log = course / "nbgrader.log"
    with log.open("a") as file:
        done = subprocess.run(
            call,
            cwd=ROOT,
            env=os.environ | {"PATH": path, "COURSE_ANSWERS": "off"},
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
        )
    if done.returncode:
        raise CourseError(
            f"nbgrader {action} {unit} failed (exit code {done.returncode}); the end of "
            f"{_tail(log)}"
        )


def show(unit: str, table: dict[str, Cells]) -> dict[str, float]:
    """Print the points of `unit`, and each cell that is not as expected.

    Returns: {learner: per cent of the points}.
    """
    percent = {}
    # the solved one last: its free texts do not count yet
    for learner, cells in sorted(table.items(), reverse=True):
        score = points = 0.0
        for name, (got, most) in cells.items():
            score += got
            points += most
            if got != (most if learner == "solved" else 0):
                print(f"  {unit}, {learner}: {name} scored {got:g} of {most:g}")
        percent[learner] = 100 * score / points
    shown = "".join(f"{learner:>12} {value:5.1f} %" for learner, value in sorted(percent.items()))
    print(f"{unit:<24}{points:>5g} points{shown}")
    return percent


def _tail(log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines()[-LOG_LINES:]
    return f"{_short(log)}:\n  " + "\n  ".join(lines)


def _short(path: Path) -> Path:
    return path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
