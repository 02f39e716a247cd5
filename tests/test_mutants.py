"""Mutants of every reference: each is rejected by the check, or listed with the reason why it is right."""

import ast

import mutant_records
import pytest
from equivalent_mutants import EQUIVALENT
from exercises import EXERCISES
from mutant_records import digest, is_current, key, survivors, unexplained

MOST_SURVIVORS = 0.05  # of all mutants, each with a reason
every_exercise = pytest.mark.parametrize("exercise", EXERCISES, ids=key)


@every_exercise
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # a mutant stopped in a finalizer
def test_mutants_are_rejected(exercise, tier):
    """Those of an exercise that is as it was recorded run in the last tier alone."""
    records = mutant_records.load()
    if tier != "all" and is_current(exercise, records):
        alive = records[key(exercise)]["survivors"]
    else:
        _, alive = survivors(exercise)
    new, gone = unexplained(exercise, alive)
    assert new == [], "the check accepts these: sharpen the probe, or say in equivalent_mutants.py why"
    assert gone == [], "these are rejected or gone: take them off equivalent_mutants.py"


@pytest.mark.check
@every_exercise
def test_every_exercise_has_a_record(exercise):
    record = mutant_records.load().get(key(exercise))
    assert record, f"say make mutants NAMES={exercise.name}"
    assert record["mutants"] > 0


def test_no_record_is_of_an_exercise_that_is_gone():
    assert mutant_records.load().keys() <= {key(exercise) for exercise in EXERCISES}


def test_few_mutants_survive_and_every_survivor_has_a_reason():
    total = sum(record["mutants"] for record in mutant_records.load().values())
    assert len(EQUIVALENT) <= MOST_SURVIVORS * total, f"{len(EQUIVALENT)} of {total} mutants survive"
    assert all(len(reason) > 15 for reason in EQUIVALENT.values()), "every survivor needs its reason"


def test_a_digest_changes_with_what_is_computed_and_not_with_what_is_said():
    code = "def f(x: int) -> int:\n    'Says much.'\n    import os\n    return x + 1  # and more\n"
    same = "def f(x):\n    return x + 1\n"
    other = "def f(x):\n    return x + 2\n"
    bare = [mutant_records._bare(ast.parse(text).body) for text in (code, same, other)]
    assert bare[0] == bare[1] != bare[2]


def test_exercises_have_digests_of_their_own():
    assert len({digest(exercise) for exercise in EXERCISES}) == len(EXERCISES)
