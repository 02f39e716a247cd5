"""Scores leave the gradebook in the forms that learning platforms take."""

import csv
import json
import shutil

import pytest
from click.testing import CliRunner
from nbgrader.api import Gradebook
from submissions import UNIT, enter, graded, part_of

from course.errors import CourseError
from instructor.grading import command, gradebook
from instructor.grading.export import export


@pytest.fixture(scope="module")
def course(prepared, tmp_path_factory):
    """A course folder with two learners: ann has all automatic points, =bob half of them."""
    root = tmp_path_factory.mktemp("course")
    shutil.copy(prepared / "gradebook.db", root)
    enter(root, graded("ann", text="my answer"))
    enter(root, graded("bob", share=lambda number: number % 2))
    return root


def rows(course, form):
    path = course / "build" / "grading" / "export" / f"{form}.csv"
    return list(csv.reader(path.read_text().splitlines()))


def expected(course):
    with Gradebook(f"sqlite:///{course / 'gradebook.db'}") as book:
        return {one.student_id: one.score for one in book.assignment_submissions(UNIT)}


def test_moodle_gets_a_row_per_learner_and_is_told_what_waits_for_a_person(course):
    said = export("moodle", course)
    header, *learners = rows(course, "moodle")
    assert header == ["username", UNIT]
    assert {name: float(score) for name, score in learners} == expected(course)
    assert "wait for a person" in said


def test_canvas_gets_its_columns_and_the_points(course):
    export("canvas", course, [UNIT])
    header, possible, *learners = rows(course, "canvas")
    assert header == ["Student", "ID", "SIS User ID", "SIS Login ID", "Section", UNIT]
    assert possible[0].strip() == "Points Possible" and float(possible[5]) > max(expected(course).values())
    assert [row[3] for row in learners] == ["ann", "bob"]


def test_gradescope_gets_a_test_per_grade_cell(course):
    export("gradescope", course)
    path = course / "build" / "grading" / "export" / "gradescope" / "ann" / UNIT / "results.json"
    content = json.loads(path.read_text())
    assert content["score"] == expected(course)["ann"]
    assert sum(test["score"] for test in content["tests"]) == content["score"]
    assert f"{part_of('scaled_lr')}: scaled_lr-hidden" in [test["name"] for test in content["tests"]]


def test_scores_given_by_hand_count_and_late_penalties_are_subtracted(course):
    with Gradebook(f"sqlite:///{course / 'gradebook.db'}") as book:
        one = book.find_submission(UNIT, "ann")
        text = next(grade for part in one.notebooks for grade in part.grades if grade.auto_score is None)
        text.manual_score = text.max_score
        one.notebooks[0].late_submission_penalty = 1.0
        book.db.commit()
    export("moodle", course)
    assert {name: float(score) for name, score in rows(course, "moodle")[1:]}["ann"] == expected(course)["ann"] - 1
    assert dict((row[0], row[2]) for row in gradebook.totals(course))["ann"] == expected(course)["ann"] - 1


def test_nothing_to_export_and_nothing_to_grade_are_a_sentence_each(course, tmp_path):
    with pytest.raises(CourseError, match="has no scores of 05_batch_grouping; grade an inbox first"):
        export("moodle", course, ["05_batch_grouping"])
    done = CliRunner().invoke(command.grade, [])
    assert done.exit_code == 1 and "name an inbox" in done.output
    done = CliRunner().invoke(command.grade, ["--export", "canvas", "--course", str(course)])
    assert done.exit_code == 0 and "canvas.csv" in done.output
