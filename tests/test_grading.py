"""A real nbgrader round trip: release, submit, autograde, feedback; full marks, none, and part of them."""

import re
import subprocess
import sys

import nbformat
import pytest
from conftest import ROOT

from course.authoring import build, demo

NOISE = """import logging, os, sys, warnings
logging.basicConfig(stream=sys.stderr)
def noisy(answer):
    def call(*args, **kwargs):
        print("print"); warnings.warn("warn"); logging.warning("log"); os.write(2, b"descriptor\\n")
        return answer(*args, **kwargs)
    return call
"""


@pytest.fixture(scope="module", params=build.units())
def unit(request):
    return request.param


@pytest.fixture(scope="module")
def graded(unit, tmp_path_factory):
    """(course folder, scores) after grading four submissions of `unit`."""
    course = tmp_path_factory.mktemp("course")
    source, _ = build.build(unit, root=course)
    solved, release = demo.solved_notebook(source), build.release_notebook(source)
    noisy, mixed = nbformat.from_dict(solved), nbformat.from_dict(solved)
    names = [build.grade_id(c) for c in source.cells if c.metadata.get("nbgrader", {}).get("solution")]
    functions = [n for n in names if n and any(c.source.startswith(f"def {n}(") for c in source.cells)]
    for cell in noisy.cells:
        if build.grade_id(cell) in functions:
            cell.source += f"\n{NOISE}\n{build.grade_id(cell)} = noisy({build.grade_id(cell)})"
    for cell in mixed.cells:  # the first exercise is not even Python, the second ends the process of whoever calls it
        if build.grade_id(cell) == functions[0]:
            cell.source = "def this is not Python"
        if build.grade_id(cell) == functions[1]:
            cell.source = f"def {functions[1]}(*args, **kwargs):\n    raise SystemExit"
    for learner, nb in (("solved", solved), ("untouched", release), ("noisy", noisy), ("mixed", mixed)):
        path = course / "submitted" / learner / unit / f"{unit}.ipynb"
        build.write_text(path, build.text_of(nb))
    for action in ("generate_assignment", "autograde", "generate_feedback"):
        demo.nbgrader(action, unit, course)
    return course, demo.scores(unit, course), functions


def share(cells):
    return sum(score for score, _ in cells.values()) / sum(points for _, points in cells.values())


def test_solved_submission_has_all_points_and_an_untouched_one_none(graded):
    _, scores, _ = graded
    assert {who: share(scores[who]) for who in ("solved", "untouched")} == {"solved": 1, "untouched": 0}


def test_output_of_an_answer_costs_no_points(graded):
    _, scores, _ = graded
    assert share(scores["noisy"]) == 1


def test_one_broken_answer_costs_its_own_points_only(graded):
    _, scores, functions = graded
    lost = {cell.rsplit("-", 1)[0] for cell, (score, _) in scores["mixed"].items() if score == 0}
    assert lost == set(functions[:2])


def test_feedback_is_written_and_tells_what_is_wrong(graded, unit):
    course, _, _ = graded
    html = {who: course / "feedback" / who / unit / f"{unit}.html" for who in ("solved", "untouched", "mixed")}
    assert all(path.is_file() for path in html.values())
    assert "Nothing here yet" in html["untouched"].read_text()
    assert "SystemExit" in html["mixed"].read_text()


def test_experiments_are_skipped_when_grading(graded, unit):
    course, _, _ = graded
    nb = nbformat.read(course / "autograded" / "solved" / unit / f"{unit}.ipynb", as_version=4)
    experiments = [cell for cell in nb.cells if "experiment" in cell.metadata.get("tags", [])]
    assert experiments and all(not cell.outputs for cell in experiments)


def test_validate_of_nbgrader_agrees(unit, tmp_path):
    source = build.source_notebook(unit)
    (tmp_path / "solved.ipynb").write_text(build.text_of(demo.solved_notebook(source)))
    call = [sys.executable, "-m", "nbgrader", "validate", str(tmp_path / "solved.ipynb")]
    done = subprocess.run(call, cwd=ROOT, capture_output=True, text=True)
    assert re.search(r"Success! Your notebook passes all the tests", done.stdout + done.stderr), done.stdout[-2000:]


def test_failed_command_is_one_sentence_with_the_end_of_the_log(tmp_path):
    from course.errors import CourseError

    with pytest.raises(CourseError, match=r"nbgrader autograde 99_none failed \(exit code 1\)"):
        demo.nbgrader("autograde", "99_none", tmp_path)
