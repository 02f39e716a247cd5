"""Nothing in a learner's reach holds an answer: no name that can be imported, no body of a function."""

import importlib

import attempts
import leaks
import pytest
from exercises import EXERCISES

from course.checks.expected import exercise_parts

every_exercise = pytest.mark.parametrize("exercise", EXERCISES, ids=lambda e: e.name)


@every_exercise
def test_no_name_that_a_learner_can_import_answers_an_exercise(exercise, tier):
    tried = attempts.attempts(exercise, everywhere=tier == "all")
    assert [f"{one.share:.0%} by {one.name}" for one in tried if one.share >= attempts.NEAR] == []


def test_no_file_of_a_class_release_holds_the_body_of_a_reference():
    assert [str(copy) for copy in leaks.copies()] == []


def plain_function():
    """An exercise whose answer is a function of numbers."""
    return next(exercise for exercise in EXERCISES if exercise.name == "row_stride")


def test_an_answer_in_a_module_of_probes_is_found(monkeypatch):
    exercise = plain_function()
    answer, place = exercise.alternatives()[0], "course.checks.fast_loading.row_stride"
    monkeypatch.setattr(answer, "__module__", place)
    monkeypatch.setattr(importlib.import_module(place), "_planted", answer, raising=False)
    attempts.candidates.cache_clear()
    try:
        found = {one.name: one.share for one in attempts.attempts(exercise, everywhere=False)}
    finally:
        attempts.candidates.cache_clear()
    assert found[f"{place}._planted"] == 1


def test_what_ends_its_process_is_no_answer_and_the_others_are_tried(monkeypatch):
    exercise = plain_function()
    kill, right = (lambda columns: attempts.os._exit(3)), exercise.alternatives()[0]
    monkeypatch.setattr(attempts, "answers", lambda *_: [("a", right), ("kill", kill), ("b", right)])
    assert [(one.name, one.share) for one in attempts.attempts(exercise)] == [("a", 1), ("kill", 0), ("b", 1)]


def test_a_renamed_and_reordered_copy_of_a_reference_is_found():
    source = exercise_parts("04_fast_loading")["svrg"].read_text().split("def svrg(", 1)[1].split("# %%")[0]
    body = source.replace("snapshot", "anchor").replace("total", "sum_of_all").replace("rows", "n")
    copied = f"def _steps({body}".replace("    for _ in range(epochs):", "    print(w)\n    for _ in range(epochs):")
    (found,) = leaks.copies({"course/checks/somewhere.py": copied.encode()})
    assert (found.exercise, found.name, found.share) == ("04 svrg", "_steps", 1)
