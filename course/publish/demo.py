"""Grade a solved and an untouched submission of every unit with nbgrader: `make demo`.

Works in build/demo, a course folder of its own, so that no gradebook or submission of an instructor is touched.
Exit code 1 unless every solved submission scores all points and every untouched one none.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
from tqdm import tqdm

from course.datasets import fashion, lfw, movielens, regression
from course.errors import CourseError, command
from course.files import write_text
from course.publish.build import ROOT, build, release_notebook, solved_notebook, text_of
from course.units import units

DEMO = ROOT / "build" / "demo"


def nbgrader(action, unit, course=DEMO):
    """Run an nbgrader command on `unit` in the course folder `course`; its words go to <course>/nbgrader.log.

    Raises: CourseError with the end of the log if it fails.
    """
    call = [sys.executable, "-m", "nbgrader", action, unit, "--force", f"--CourseDirectory.root={course}"]
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))  # nbgrader starts `alembic`
    log = course / "nbgrader.log"
    with log.open("a") as file:
        streams = dict(stdout=file, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
        done = subprocess.run(call, cwd=ROOT, env=os.environ | {"PATH": path}, **streams)
    if done.returncode:
        tail = "\n  ".join(log.read_text(errors="replace").splitlines()[-8:])
        raise CourseError(f"nbgrader {action} {unit} failed (exit code {done.returncode}); the end of {log}:\n  {tail}")


def scores(unit, course=DEMO):
    """{learner: {grade cell: (score, points)}} of `unit` in the gradebook of `course`, cells in notebook order.

    Cells that a person grades are left out until somebody has.
    """
    from nbgrader.api import Gradebook

    table = {}
    with Gradebook(f"sqlite:///{course / 'gradebook.db'}") as book:
        for submission in book.assignment_submissions(unit):
            (notebook,) = submission.notebooks
            grades = {grade.name: grade for grade in notebook.grades if not grade.needs_manual_grade}
            table[submission.student.id] = {name: (g.score, g.max_score) for name, g in grades.items()}
    return table


def show(unit, table):
    """Print the points of each exercise of `unit`, one column a learner; returns each total in per cent."""
    learners = list(table)
    print(f"\n{unit:<28}{'points':>8}" + "".join(f"{name:>12}" for name in learners))
    exercises = {}
    for name in table[learners[0]]:
        exercises.setdefault(name.removesuffix("-visible").removesuffix("-hidden"), []).append(name)
    for exercise, cells in exercises.items():
        points = sum(table[learners[0]][cell][1] for cell in cells)
        earned = [sum(table[learner][cell][0] for cell in cells) for learner in learners]
        print(f"  {exercise:<26}{points:>8g}" + "".join(f"{score:>12g}" for score in earned))
    totals = {who: [sum(column) for column in zip(*table[who].values(), strict=True)] for who in learners}
    percent = {who: 100 * score / points for who, (score, points) in totals.items()}
    print(f"  {'total':<26}{totals[learners[0]][1]:>8g}" + "".join(f"{percent[who]:>10.0f} %" for who in learners))
    return percent


@command
def main():
    shutil.rmtree(DEMO, ignore_errors=True)
    print("embedded data")
    lfw.folder("tiny")
    movielens.load("tiny")
    fashion.load("tiny")
    regression.load(rows=2000, columns=64)
    print("notebooks")
    for unit in units():
        print(build(unit)[1])
        source, _ = build(unit, root=DEMO)
        for learner, nb in (("solved", solved_notebook(source)), ("untouched", release_notebook(source))):
            write_text(DEMO / "submitted" / learner / unit / f"{unit}.ipynb", text_of(nbformat.from_dict(nb)))
    print("grading with nbgrader: a solved and an untouched submission of every unit")
    steps = [(action, unit) for unit in units() for action in ("generate_assignment", "autograde", "generate_feedback")]
    with tqdm(steps, file=sys.stdout, bar_format="{percentage:3.0f} %|{bar:20}| {elapsed} {desc}") as bar:
        for action, unit in bar:
            bar.set_description_str(f"{action} {unit}")
            nbgrader(action, unit)
    percents = [show(unit, scores(unit)) for unit in units()]
    print("\n(questions in free text are graded by hand, in nbgrader's formgrader)")
    if any(percent != {"solved": 100, "untouched": 0} for percent in percents):
        raise CourseError(
            "expected 100 % for every solved and 0 % for every untouched submission; see build/demo/nbgrader.log."
        )
    print(f"\nFeedback that learners get:  {DEMO.relative_to(ROOT)}/feedback/solved/{units()[0]}/{units()[0]}.html")
    print("Next: `make lab` opens the notebooks, `make test` runs every test.")


if __name__ == "__main__":
    main()
