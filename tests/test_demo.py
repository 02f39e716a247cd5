"""The demo fails loudly unless solved submissions score everything and untouched ones nothing."""

import os
import sys

import pytest

from course.errors import CourseError
from instructor.grading import demo

RIGHT = {"solved": {"f-visible": (1, 1), "f-hidden": (2, 2)}, "untouched": {"f-visible": (0, 1), "f-hidden": (0, 2)}}


@pytest.fixture
def dry(tmp_path, monkeypatch):
    """A demo whose steps are only noted: the list of them."""
    steps = []

    monkeypatch.setattr(demo, "DEMO", tmp_path)
    monkeypatch.setattr(demo, "prepare_data", lambda: None)
    monkeypatch.setattr(demo, "units", lambda: ["01_a", demo.NBGRADED])
    monkeypatch.setattr(demo, "submit", lambda unit, course: steps.append((unit, course)))
    monkeypatch.setattr(demo, "STEPS", ["autograde"])
    monkeypatch.setattr(demo, "nbgrader", lambda step, unit, course: steps.append((step, unit, course)))
    monkeypatch.setattr(demo, "grade", lambda units: steps.append(("course grade", *units)))
    monkeypatch.setattr(demo, "scores", lambda unit, course: RIGHT)
    monkeypatch.setenv("COURSE_ANSWERS", "somewhere")
    return steps


def test_nbgrader_grades_one_unit_and_course_grade_the_others(dry, tmp_path, capsys):
    demo.demo()
    theirs = (demo.NBGRADED, tmp_path / "nbgrader")
    assert [step for step in dry if demo.NBGRADED in step] == [theirs, ("autograde", *theirs)]
    assert [step for step in dry if "01_a" in step] == [("01_a", tmp_path), ("course grade", "01_a")]
    assert os.environ["COURSE_ANSWERS"] == "off"
    assert "all as expected" in capsys.readouterr().out


@pytest.mark.parametrize("learner, got", [("solved", (1, 2)), ("untouched", (1, 2))])
def test_any_other_score_is_an_error_and_its_cell_is_named(learner, got, dry, monkeypatch, capsys):
    wrong = {who: dict(cells) for who, cells in RIGHT.items()}
    wrong[learner]["f-hidden"] = got
    monkeypatch.setattr(demo, "scores", lambda unit, course: wrong)
    with pytest.raises(CourseError, match="expected 100 % for every solved, 0 % for every untouched submission"):
        demo.demo()
    assert f"01_a, {learner}: f-hidden scored 1 of 2" in capsys.readouterr().out


def test_a_submission_without_a_score_is_an_error(dry, monkeypatch):
    monkeypatch.setattr(demo, "scores", lambda unit, course: {"solved": RIGHT["solved"]})
    with pytest.raises(CourseError, match="expected 100 %"):
        demo.demo()


SCRIPT = """
import sys
print(" 50 %|#####     | right answers", end="\\r")
print("100 %|##########| right answers")
print("a table, said to nobody")
{ending}
"""


def fake(tmp_path, monkeypatch, ending):
    script = tmp_path / "fake.py"
    script.write_text(SCRIPT.format(ending=ending))
    popen = demo.subprocess.Popen
    monkeypatch.setattr(demo.subprocess, "Popen", lambda call, **how: popen([sys.executable, script, *call], **how))


def test_bars_of_course_grade_are_shown_and_its_words_go_to_a_log(tmp_path, monkeypatch, capsys):
    fake(tmp_path, monkeypatch, "")
    demo.grade(["01_a"], tmp_path)
    shown = capsys.readouterr().out
    assert "100 %|##########| right answers" in shown and "said to nobody" not in shown
    assert "a table, said to nobody" in (tmp_path / "grade.log").read_text()


def test_course_grade_that_fails_is_an_error_with_the_end_of_its_log(tmp_path, monkeypatch):
    fake(tmp_path, monkeypatch, "sys.exit('error: a disk is full.')")
    with pytest.raises(CourseError, match=r"course grade failed \(exit code 1\).*(.|\n)*a disk is full"):
        demo.grade(["01_a"], tmp_path)


def test_without_bubblewrap_the_demo_grades_without_walls(tmp_path, monkeypatch, capsys):
    fake(tmp_path, monkeypatch, "'--unsafe' in sys.argv or sys.exit('error: needs bubblewrap.')")
    demo.grade(["01_a"], tmp_path)
    assert "graded without walls" in capsys.readouterr().out
