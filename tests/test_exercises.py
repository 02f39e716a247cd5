"""Laws for every exercise: what its check must accept, what it must reject, and with which words."""

import contextlib
import inspect
from functools import partial

import pytest
import torch
import wrong_answers
from equivalent_mutants import EQUIVALENT
from exercises import EXERCISES
from mutation import hidden_seed, mutants, survives
from wrong_answers import with_results

from course.checks.engine import CheckFailed, Exercise
from course.checks.expected import exercise_parts, load_answers, load_definitions
from course.checks.solved import solved

WITH_PROCESSES = {"02_data_parallel", "write_records"}  # a unit or an exercise
GIVEN_A_MODULE_ALONE = {"replicate", "lightning_fit"}  # its parameters are compared by a fact
MOST_SURVIVORS = 0.05  # of all mutants of an exercise set, each with a reason

every_exercise = pytest.mark.parametrize("exercise", EXERCISES, ids=lambda e: e.name)
MISTAKES = [(e, wrong, advice) for e in EXERCISES for wrong, advice in e.mistakes()]
ALTERNATIVES = [(e, right) for e in EXERCISES for right in e.alternatives()]


def seeds(exercise):
    """Visible, hidden, and two that no author tried; checks that start processes have to do with the hidden one."""
    known = [0, hidden_seed(exercise.unit, exercise.name)]
    return known[1:] if {exercise.unit, exercise.name} & WITH_PROCESSES else [*known, 98765, 31]


@pytest.fixture
def no_diagnosis(monkeypatch):
    """No known mistake is looked for: that runs each of them, which test_mistake_is_told_in_its_own_words does."""
    monkeypatch.setattr(Exercise, "mistakes", lambda exercise: [])


def failure(exercise, answer, **options):
    """The message of the check, which must fail and must fit the screen."""
    with pytest.raises(CheckFailed) as info:
        exercise(answer, **options)
    message = str(info.value)
    assert max(map(len, message.splitlines())) <= 80, message
    return message


@every_exercise
def test_reference_passes(exercise, device, capfd):
    copy = load_definitions(exercise_parts(exercise.unit)[exercise.name])
    for seed in seeds(exercise):
        exercise(getattr(copy, exercise.name), seed=seed, device=device)
    out, err = capfd.readouterr()
    assert "correct" in out and err == ""


@pytest.mark.parametrize("exercise, right", ALTERNATIVES, ids=lambda x: getattr(x, "__name__", ""))
def test_alternative_passes(exercise, right, device):
    for seed in seeds(exercise):
        exercise(right, seed=seed, device=device)


@pytest.mark.parametrize("exercise, wrong, advice", MISTAKES, ids=lambda x: getattr(x, "__name__", ""))
def test_mistake_is_told_in_its_own_words(exercise, wrong, advice, device):
    for seed in seeds(exercise)[:2]:
        assert exercise.refusal(wrong, exercise.asks_for_class(device, seed)) is None
        seen = exercise._kept_outcome(wrong, device, seed)  # run once: the diagnosis of every mistake needs it, too
        verdict = exercise.verdict(seen, device, seed)
        assert not verdict.correct and max(map(len, verdict.report)) <= 80, verdict.report
        assert " ".join(advice.split()) in " ".join("\n".join(verdict.report).split()), verdict.report


@every_exercise
def test_has_mistakes_and_alternatives(exercise):
    assert len(exercise.mistakes()) >= 3, f"{exercise.name} needs three mistakes"
    assert len(exercise.alternatives()) >= 2, f"{exercise.name} needs two alternatives"


@every_exercise
def test_every_mistake_and_alternative_belongs_to_its_exercise(exercise):
    for answer in vars(load_answers(exercise.unit, exercise.name)).values():
        for mark in ("mistake_of", "alternative_of"):
            assert getattr(answer, mark, exercise.name) == exercise.name


@every_exercise
def test_stub_is_told_that_nothing_is_there(exercise, device):
    def stub(*args, **kwargs):
        raise NotImplementedError()

    class Stub:
        def __init__(self, *args, **kwargs):
            raise NotImplementedError()

    answer = Stub if isinstance(exercise.reference(), type) else stub
    assert "Nothing here yet" in failure(exercise, answer, device=device)


@every_exercise
@pytest.mark.parametrize("answer", [None, 3, "text", torch.ones(2)], ids=str)
def test_what_cannot_be_called_is_named(exercise, answer, device):
    assert "expected a function or a class" in failure(exercise, answer, device=device)


@every_exercise
def test_reference_object_is_refused(exercise, device):
    assert "reference itself" in failure(exercise, exercise.reference(), device=device)


@pytest.mark.parametrize("exercise", [e for e in EXERCISES if inspect.isfunction(e.reference())], ids=lambda e: e.name)
@pytest.mark.usefixtures("no_diagnosis")
def test_none_is_refused(exercise, device):
    message = failure(exercise, lambda *args, **kwargs: None, device=device)
    assert exercise.changes_inputs or "returned None" in message


@pytest.mark.parametrize("exercise", [e for e in EXERCISES if inspect.isclass(e.reference())], ids=lambda e: e.name)
@pytest.mark.usefixtures("no_diagnosis")
def test_methods_that_return_none_are_refused(exercise, device):
    if reason := wrong_answers.inapplicable(exercise, "methods"):
        pytest.skip(reason)
    answer = wrong_answers.wrapped(exercise.reference(), lambda method: lambda *args, **kwargs: None)
    assert " NO  " in failure(exercise, answer, device=device)


@every_exercise
def test_a_reference_that_is_called_through_others_passes(exercise, device):
    if reason := wrong_answers.inapplicable(exercise, "through"):
        pytest.skip(reason)
    with wrong_answers.Notes() as notes:
        exercise(wrong_answers.with_results(exercise.reference(), lambda leaf: leaf, notes), device=device)
        assert notes.read() == (0, [])


def refused(exercise, kind, make, device):
    """The message to a wrong answer of `kind`, made by make(notes): the change was made, and a fact refuses it.

    None where the kind does not apply: nothing is changed then, else the table is out of date.
    """
    reason = wrong_answers.inapplicable(exercise, kind)
    with wrong_answers.Notes() as notes:
        answer = make(notes)
        if reason:
            with contextlib.suppress(CheckFailed):
                exercise(answer, device=device)
            changes, broken = notes.read()
            assert exercise.changes_inputs or (changes, broken) == (0, []), f"take {exercise.name} off: {reason}"
            return None
        message = failure(exercise, answer, device=device)
        changes, broken = notes.read()
    assert broken == [], "wrong_answers.py broke"
    assert changes, "nothing was changed: mend wrong_answers.py, or list there why this kind does not apply"
    assert " NO  " in message, message
    return message


@every_exercise
@pytest.mark.usefixtures("no_diagnosis")
def test_nan_is_refused(exercise, device):
    def make(notes):
        if exercise.changes_inputs:
            return wrong_answers.with_written(exercise.reference(), wrong_answers.nan, notes, only_changed=True)
        return wrong_answers.with_results(exercise.reference(), wrong_answers.nan, notes)

    refused(exercise, "nan", make, device)


@every_exercise
@pytest.mark.usefixtures("no_diagnosis")
def test_wrong_shape_is_refused(exercise, device):
    refused(exercise, "shape", partial(with_results, exercise.reference(), wrong_answers.other_shape), device)


@every_exercise
@pytest.mark.usefixtures("no_diagnosis")
def test_wrong_device_is_refused(exercise, device):
    refused(exercise, "device", partial(with_results, exercise.reference(), wrong_answers.other_device), device)


@every_exercise
@pytest.mark.usefixtures("no_diagnosis")
def test_results_on_the_cpu_are_refused_on_a_gpu(exercise, device):
    if device.type == "cpu":
        pytest.skip("the CPU is the right device here")
    with wrong_answers.Notes() as notes:  # seconds, for one, belong on the CPU: then nothing is changed
        answer = with_results(exercise.reference(), wrong_answers.on_the_cpu, notes)
        with contextlib.suppress(CheckFailed):
            exercise(answer, device=device)
            assert notes.read() == (0, [])


@every_exercise
@pytest.mark.usefixtures("no_diagnosis")
def test_changed_input_is_named(exercise, device):
    make = partial(wrong_answers.with_written, exercise.reference(), wrong_answers.plus_one)
    message = refused(exercise, "input", make, device)
    if message and not exercise.changes_inputs and inspect.isfunction(exercise.reference()):
        is_module_alone = exercise.name in GIVEN_A_MODULE_ALONE
        assert is_module_alone or "Copy it first" in " ".join(message.split())


@every_exercise
@pytest.mark.usefixtures("no_diagnosis")
def test_solved_hands_on_the_learners_answer_or_says_that_it_does_not(exercise, capsys):
    right = exercise.alternatives()[0]
    exercise(right, device="cpu")
    assert solved(exercise) is right
    failure(exercise, lambda *args, **kwargs: None, device="cpu")
    capsys.readouterr()
    assert solved(exercise) is exercise.reference()
    assert capsys.readouterr().out == f"{exercise.name}: not solved yet; the reference answer goes on from here.\n"


@every_exercise
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # a mutant stopped in a finalizer
def test_mutants_are_rejected(exercise):
    alive = set()
    for text, answer in mutants(exercise.unit, exercise.name):
        if survives(exercise, answer, patience=10 if text in EQUIVALENT else 1):  # the same, on a busy machine too
            alive.add(text)
    listed = {text for text in EQUIVALENT if text.startswith(f"{exercise.name}: ")}
    assert alive - listed == set(), "the check accepts these: sharpen the probe, or say in equivalent_mutants.py why"
    assert listed - alive == set(), "these are rejected or gone: take them off equivalent_mutants.py"


def test_mutation_score_is_high():
    total = sum(1 for e in EXERCISES for _ in mutants(e.unit, e.name))
    assert len(EQUIVALENT) <= MOST_SURVIVORS * total, f"{len(EQUIVALENT)} of {total} mutants survive"
    assert all(len(reason) > 15 for reason in EQUIVALENT.values()), "every survivor needs its reason"
