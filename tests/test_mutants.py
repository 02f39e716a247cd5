"""Mutants of every reference: each is rejected by the check, or listed with the reason why it is right."""

import ast

import mutant_records
import pytest
from equivalent_mutants import EQUIVALENT
from exercises import EXERCISES
from mutant_records import is_current, key, survivors, unexplained

MOST_SURVIVORS = 0.05  # of all mutants, each with a reason


@pytest.mark.parametrize("exercise", EXERCISES, ids=key)
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
def test_every_exercise_has_a_record_and_nothing_else():
    records = mutant_records.load()
    assert records.keys() == {key(exercise) for exercise in EXERCISES}, "say make mutants"
    assert all(record["mutants"] > 0 for record in records.values())


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


@pytest.mark.check
def test_a_function_or_module_that_is_renamed_does_not_drop_out_of_the_digest_unseen():
    mutant_records.refuse_unknown_modules()
    assert mutant_records.digest(EXERCISES[0])
    run = mutant_records.ROOT / "course" / "engine" / "run.py"
    with pytest.raises(LookupError, match="has no no_such_function; mend JUDGES"):
        mutant_records._of_file(run, ("run_probe", "no_such_function"))
