"""Grade a solved and an untouched submission of every unit: `course demo`.

nbgrader itself grades one unit while `course grade` grades the others. All of it happens in
build/demo, a course folder of its own, so that no gradebook or submission of an instructor is
touched. Fails unless every solved submission scores all points and every untouched one none.
"""

import os
import re
import shutil
import subprocess
import sys
import time
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
NBGRADED = (
    "03_large_batch"  # the unit that nbgrader grades: its answers need no ranks and no workers
)
STEPS = ("generate_assignment", "autograde", "generate_feedback")
NBGRADER = [sys.executable, "-m", "nbgrader"]
BAR = re.compile(r" *\d+ %\|")  # a line of a progress bar of `course grade`


def demo() -> None:
    """Build, submit, grade and show. Raises: CourseError if a step fails or a score is not as
    expected.
    """
    started = time.monotonic()
    shutil.rmtree(DEMO, ignore_errors=True)
    os.environ["COURSE_ANSWERS"] = (
        "off"  # what somebody solved on this machine is no part of a submission
    )
    prepare_data()
    by_nbgrader = NBGRADED if NBGRADED in units() else units()[0]
    folders = {unit: DEMO / "nbgrader" if unit == by_nbgrader else DEMO for unit in units()}
    others = [unit for unit in units() if unit != by_nbgrader]
    submit(by_nbgrader, folders[by_nbgrader])
    with ThreadPoolExecutor(1) as pool:
        beside = pool.submit(
            lambda: [nbgrader(step, by_nbgrader, folders[by_nbgrader]) for step in STEPS]
        )
        for unit in others:
            submit(unit, folders[unit])
        print(
            f"grading: {by_nbgrader} by nbgrader, {', '.join(others)} by course grade", flush=True
        )
        if others:
            grade(others)
        print(f"waiting for nbgrader, which grades {by_nbgrader}", flush=True)
        beside.result()
    percents = [show(unit, scores(unit, folder)) for unit, folder in folders.items()]
    print("(free texts are graded by hand, in nbgrader's formgrader)")
    if any(percent != {"solved": 100, "untouched": 0} for percent in percents):
        raise CourseError(
            "expected 100 % for every solved, 0 % for every untouched submission; see build/demo/*.log."
        )
    pages = folders[by_nbgrader] / "feedback" / "solved" / by_nbgrader
    print(
        f"\nall as expected, in {time.monotonic() - started:.0f} s.  Feedback that learners get: {_short(pages)}"
    )
    print("Next: `make lab` opens the notebooks, `make check` runs the quick tests.")


def prepare_data() -> None:
    """Make the smallest embedded data sets, so that no grader waits for them."""
    print("embedded data", flush=True)
    lfw.folder("tiny")
    movielens.load("tiny")
    fashion.load("tiny")
    regression.prepare(rows=2000, columns=64)


def submit(unit: str, course: Path) -> None:
    """Build `unit` and put a solved and an untouched submission of all its parts into the course
    folder `course`.
    """
    for part in parts(unit):
        source, _ = build(unit, part)
        write_text(course / "build" / "source" / unit / f"{part}.ipynb", text_of(source))
        for learner, nb in (
            ("solved", solved_notebook(source)),
            ("untouched", release_notebook(source)),
        ):
            path = course / "submitted" / learner / unit / f"{part}.ipynb"
            write_text(path, text_of(nbformat.from_dict(nb)))
    print(f"{unit}: {len(parts(unit))} parts built and submitted", flush=True)


def grade(names: list[str], course: Path = DEMO) -> None:
    """Grade the submissions of the units `names` with `course grade`; its bars are shown, its words
    go to grade.log.

    Raises: CourseError with the end of the log if it fails.
    """
    call = [
        sys.executable,
        "-m",
        "course.cli",
        "grade",
        str(course / "submitted"),
        "--course",
        str(course),
    ]
    call += [word for name in names for word in ("--unit", name)] + ["--workers", str(cores())]
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


def _shown(call, log):
    """The exit code of a command; its progress bars are shown, all else goes to the file `log`."""
    # a bar ends in a carriage return: a line
    how = dict(cwd=ROOT, stdout=subprocess.PIPE, text=True, errors="replace")
    with log.open("w") as file, subprocess.Popen(call, stderr=file, **how) as process:
        for line in process.stdout:
            if BAR.match(line):
                print("\r" + line.rstrip("\n")[:79].ljust(79), end="", flush=True)
            else:
                print(line, end="", file=file, flush=True)
    print()
    return process.returncode


def nbgrader(action: str, unit: str, course: Path = DEMO) -> None:
    """Run an nbgrader command on `unit` in the course folder `course`; its words go to
    <course>/nbgrader.log.

    Raises: CourseError with the end of the log if it fails.
    """
    call = [*NBGRADER, action, unit, "--force", f"--CourseDirectory.root={course}"]
    # nbgrader starts `alembic`
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))
    log = course / "nbgrader.log"
    with log.open("a") as file:
        streams = dict(stdout=file, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
        env = os.environ | {"PATH": path, "COURSE_ANSWERS": "off"}
        code = subprocess.run(call, cwd=ROOT, env=env, **streams).returncode
    if code:
        raise CourseError(
            f"nbgrader {action} {unit} failed (exit code {code}); the end of {_tail(log)}"
        )


def show(unit: str, table: dict[str, dict[str, tuple[float, float]]]) -> dict[str, float]:
    """Print the points of `unit`, and each cell that is not as expected; returns {learner: per
    cent}.
    """
    percent = {}
    for learner, cells in sorted(
        table.items(), reverse=True
    ):  # the solved one last: its free texts do not count yet
        score, points = (sum(column) for column in zip(*cells.values(), strict=True))
        percent[learner] = 100 * score / points
        for name, (got, most) in cells.items():
            if got != (most if learner == "solved" else 0):
                print(f"  {unit}, {learner}: {name} scored {got:g} of {most:g}")
    shown = "".join(f"{learner:>12} {value:5.1f} %" for learner, value in sorted(percent.items()))
    print(f"{unit:<24}{points:>5g} points{shown}")
    return percent


def _tail(log):
    return f"{_short(log)}:\n  " + "\n  ".join(log.read_text(errors="replace").splitlines()[-8:])


def _short(path):
    return path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
