"""A real nbgrader round trip: release, submit, autograde, feedback; full marks, none, and part of them."""

import re
import shutil
import subprocess
import sys

import nbformat
import pytest
from conftest import ROOT
from exercises import EXERCISES

from course.checks.engine import alternative
from course.checks.expected import solutions_folder
from course.publish import build, demo

NOISE = """import functools, logging, os, sys, warnings
logging.basicConfig(stream=sys.stderr)
def noisy(answer):
    @functools.wraps(answer)
    def call(*args, **kwargs):
        print("print"); warnings.warn("warn"); logging.warning("log"); os.write(2, b"descriptor\\n")
        return answer(*args, **kwargs)
    return call
"""


every_unit = pytest.mark.parametrize("unit", build.units())
SLOW = ("write_records",)  # to say what is wrong runs the known mistakes, in ranks
SILENT = ("lightning_fit", "fit")  # exercises whose task asks that nothing is printed


def answered_by(kind, source):
    """Names of the exercises of a notebook whose answer is a "def" or a "class"."""
    names = [build.grade_id(c) for c in source.cells if c.metadata.get("nbgrader", {}).get("solution")]
    return [n for n in names if n and any(re.match(rf"{kind} {n}\b", c.source) for c in source.cells)]


def used_by_no_other(names, source):
    """Those of `names` that no answer but their own mentions."""
    answers = {build.grade_id(c): c.source for c in source.cells if c.metadata.get("nbgrader", {}).get("solution")}
    return [n for n in names if not any(n != other and re.search(rf"\b{n}\(", text) for other, text in answers.items())]


def share(cells):
    return sum(score for score, _ in cells.values()) / sum(points for _, points in cells.values())


def alternatives_source(unit):
    """The file of a unit's alternatives as a learner may have it in a cell."""
    text = (solutions_folder() / "alternatives" / f"{unit[3:]}.py").read_text()
    return text.replace(f"from {alternative.__module__} import alternative", "alternative = lambda name: lambda f: f")


def alternative_notebook(unit, release, noisy):
    """The release with the first alternative of each exercise, all of them in one cell; those in `noisy` print."""
    first = {e.name: e.alternatives()[0].__name__ for e in EXERCISES if e.unit == unit}
    nb = nbformat.from_dict(release)
    answers = [cell for cell in nb.cells if build.grade_id(cell) in first]
    for cell in answers:
        name = build.grade_id(cell)
        cell.source = f"{name} = noisy({first[name]})" if name in noisy else f"{name} = {first[name]}"
    answers[0].source = f"{alternatives_source(unit)}\n{NOISE}\n{answers[0].source}"
    return nb


def graded_here(inbox, unit, root):
    """{learner: {grade cell: (score, points)}} by `make grade`."""
    call = [sys.executable, "-m", "course.grading.grade", str(inbox), "--unit", unit, "--course", str(root)]
    done = subprocess.run(call, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return demo.scores(unit, root)


@every_unit
def test_a_class_is_graded(unit, tmp_path):
    """One round for all, since nbgrader takes seconds to start: a solved, an untouched, a begun and broken notebook.

    Then the last two, and right answers in other styles, by `make grade`.  Right answers print and warn in both.
    """
    source, _ = build.build(unit, root=tmp_path)
    solved, release = demo.solved_notebook(source), build.release_notebook(source)
    functions = answered_by("def", source)
    noisy = [name for name in functions if name not in SILENT]
    for cell in solved.cells:
        if (name := build.grade_id(cell)) in noisy:
            cell.source += f"\n{NOISE}\n{name} = noisy({name})"
    names = [build.grade_id(c) for c in release.cells if c.metadata.get("nbgrader", {}).get("solution")]
    half = names[: len(names) // 2]
    breakable = used_by_no_other([name for name in functions if name in half and name not in SLOW], source)
    no_python, ends_the_process, empty = broken = breakable[:3]
    begun, answers = nbformat.from_dict(release), {build.grade_id(c): c.source for c in source.cells}
    answers[no_python] = "def this is not Python"
    answers[ends_the_process] = f"def {ends_the_process}(*args, **kwargs):\n    raise SystemExit"
    answers[empty] = ""
    for cell in begun.cells:
        if (name := build.grade_id(cell)) in half:
            cell.source = answers[name]
    for learner, nb in (("solved", solved), ("untouched", release), ("begun", begun)):
        build.write_text(tmp_path / "submitted" / learner / unit / f"{unit}.ipynb", build.text_of(nb))
    for action in ("generate_assignment", "autograde", "generate_feedback"):
        demo.nbgrader(action, unit, tmp_path)
    scores = demo.scores(unit, tmp_path)

    # output of an answer costs no points, a broken or missing one its own only
    assert {who: share(scores[who]) for who in ("solved", "untouched")} == {"solved": 1, "untouched": 0}
    full = {cell.rsplit("-", 1)[0] for cell, (score, points) in scores["begun"].items() if score == points}
    graded = {cell.rsplit("-", 1)[0] for cell in scores["begun"]}
    assert full == graded.intersection(half) - {*broken}

    html = {who: (tmp_path / "feedback" / who / unit / f"{unit}.html").read_text() for who in scores}
    assert "Nothing here yet" in html["untouched"]
    assert "SystemExit" in html["begun"]

    other = alternative_notebook(unit, release, noisy)
    build.write_text(tmp_path / "submitted" / "other" / unit / f"{unit}.ipynb", build.text_of(other))
    shutil.rmtree(tmp_path / "submitted" / "solved")  # its points are those of the alternatives
    ours = graded_here(tmp_path / "submitted", unit, tmp_path / "ours")
    checked = {cell: found for cell, found in ours.pop("other").items() if cell.endswith(("-visible", "-hidden"))}
    assert share(checked) == 1, "right answers in other styles keep full marks"
    assert ours == {who: scores[who] for who in ("untouched", "begun")}, "the verdicts of make grade are nbgrader's"

    nb = nbformat.read(tmp_path / "autograded" / "solved" / unit / f"{unit}.ipynb", as_version=4)
    experiments = [cell for cell in nb.cells if "experiment" in cell.metadata.get("tags", [])]
    assert experiments and all(not cell.outputs for cell in experiments), "experiments are not run when grading"


def test_validate_of_nbgrader_agrees(tmp_path):
    """One unit, since units differ in what they ask, not in how a check speaks to nbgrader."""
    solved = demo.solved_notebook(build.source_notebook("03_large_batch"))
    solved.cells = [c for c in solved.cells if "experiment" not in c.metadata.get("tags", [])]  # nbval runs those
    (tmp_path / "solved.ipynb").write_text(build.text_of(solved))
    call = [sys.executable, "-m", "nbgrader", "validate", str(tmp_path / "solved.ipynb")]
    done = subprocess.run(call, cwd=ROOT, capture_output=True, text=True)
    assert re.search(r"Success! Your notebook passes all the tests", done.stdout + done.stderr), done.stdout[-2000:]


def test_failed_command_is_one_sentence_with_the_end_of_the_log(tmp_path):
    from course.errors import CourseError

    with pytest.raises(CourseError, match=r"nbgrader autograde 99_none failed \(exit code 1\)"):
        demo.nbgrader("autograde", "99_none", tmp_path)
