"""course progress: counts of what is kept, minutes of what is left, the same in a terminal and in a notebook."""

import re
from dataclasses import replace

import pytest

import course
from course.learner import answers
from course.notebook import registry as units

UNIT = "03_large_batch"


@pytest.fixture(autouse=True)
def store(tmp_path, monkeypatch):
    monkeypatch.setenv("COURSE_ANSWERS", str(tmp_path))
    return tmp_path


def solve(*exercises):
    for exercise in exercises:
        answers.record(exercise.unit, exercise.name, True, script="", name=exercise.name)


def row(title, text):
    """The numbers of the row that starts with `title`: solved, tried, of, earned, points, core minutes left."""
    (line,) = [line for line in text.splitlines() if line.strip().startswith(title)]
    return [int(number) for number in re.findall(r"\d+", line)[-6:]]


def test_nothing_solved_is_all_left():
    unit = units.load_unit(UNIT)
    text = str(course.progress("03"))
    count, points = len(unit.exercises), unit.points
    core = sum(part.core_minutes for part in unit.parts if any(e.core for e in part.exercises))
    assert row("03 ", text) == [0, 0, count, 0, points, core]
    for part in unit.parts:
        assert row(f"{part.number} {part.title[:30]}", text)[2] == len(part.exercises)


def test_a_solved_and_a_tried_exercise_count_and_the_next_is_core():
    part = next(p for p in units.load_unit(UNIT).parts if sum(e.core for e in p.exercises) > 1)
    first, second = [e for e in part.exercises if e.core][:2]
    answers.record(UNIT, second.name, False)
    solve(first)
    text = str(course.progress(f"03/{part.number}"))
    left = part.core_minutes - first.minutes
    assert row(f"{part.number} ", text) == [1, 2, len(part.exercises), first.points, part.points, left]
    assert f"next: {second.name} (part {part.number}, {second.minutes} minutes)" in text


def test_solved_core_has_no_minutes_left():
    unit = units.load_unit(UNIT)
    solve(*[e for e in unit.exercises if e.core])
    text = str(course.progress(UNIT))
    assert row("03 ", text)[-1] == 0 and "next: " in text
    solve(*unit.exercises)
    assert "next: " not in str(course.progress(UNIT))


def test_an_answer_that_failed_later_stays_solved():
    exercise = units.load_unit(UNIT).exercises[0]
    solve(exercise)
    answers.record(UNIT, exercise.name, False)
    assert row("03 ", str(course.progress("03")))[:2] == [1, 1]


def test_what_a_class_is_not_asked_does_not_count(monkeypatch):
    part = units.load_unit(UNIT).parts[0]
    given = replace(part, exercises=tuple(replace(e, asked=False) for e in part.exercises[:1]) + part.exercises[1:])
    monkeypatch.setattr(units, "load_part", lambda *_: given)
    assert row(f"{part.number} ", str(course.progress("03/1")))[2] == len(part.exercises) - 1


def test_every_line_fits_80_columns_and_a_notebook_shows_the_same_numbers():
    shown = course.progress()
    assert max(map(len, str(shown).splitlines())) <= 80
    assert [line.strip()[:2] for line in str(shown).splitlines() if re.match(r"\d\d ", line)] == [
        name[:2] for name in units.units()
    ]
    page = shown._repr_html_()
    assert page.count("<tr>") == 1 + len(shown.rows) and repr(shown) == str(shown)
    for number in row("03 ", str(shown))[:3]:
        assert f">{number}<" in page


def test_off_says_so(monkeypatch):
    monkeypatch.setenv("COURSE_ANSWERS", "off")
    assert "COURSE_ANSWERS is off" in str(course.progress("03")) and "COURSE_ANSWERS" in course.progress()._repr_html_()
