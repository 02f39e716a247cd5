"""Laws for every exercise: what its check must accept, what it must reject, and with which words."""

import contextlib
import inspect
from functools import partial

import pytest
import torch
import wrong_answers
from exercises import EXERCISES, starts_processes
from mutation import hidden_seed
from wrong_answers import with_results

from course.checks.engine import CheckFailed, Exercise
from course.checks.expected import exercise_parts, load_definitions
from course.checks.solved import solved
from course.learner import carry
from course.units import read_cells

GIVEN_A_MODULE_ALONE = {
    "lr_range_test",
    "replicate",
    "lightning_fit",
    "useless_bias",
    "fold_batchnorm",
    "saved_bytes",
}  # its parameters are compared by a fact
OTHER_SEEDS = (98765, 31)  # that no author tried
CHECK, ALL = pytest.mark.check, pytest.mark.all

every_exercise = pytest.mark.parametrize("exercise", EXERCISES, ids=lambda e: e.name)


def at_every_seed(*values):
    """pytest.params of (exercise, ...) with each seed: the visible one in every tier, others in longer ones.

    Checks that start processes are looked at with the hidden seed, and with the visible one in the last tier.
    """
    exercise = values[0]
    name = "-".join([exercise.name, *(getattr(a, "__name__", None) or a.name for a in values[1:])])
    hidden = hidden_seed(exercise.unit, exercise.name)
    if starts_processes(exercise):
        tiers = {hidden: (), 0: ALL}
    else:
        tiers = {0: CHECK, hidden: ()} | dict.fromkeys(OTHER_SEEDS, ALL)
    for seed, marks in tiers.items():
        yield pytest.param(*values, seed, marks=marks, id=f"{name}-{seed}")


def only_later(param, mark=ALL):
    """The param of a longer tier."""
    return pytest.param(*param.values, marks=[*(m for m in param.marks if m.name != "check"), mark], id=param.id)


def alternatives():
    """The first alternative of an exercise as its reference; others with one seed, processes in the last tier."""
    for exercise in EXERCISES:
        first, *others = exercise.alternatives()
        yield from at_every_seed(exercise, first)
        for right in others:
            for param in at_every_seed(exercise, right):
                is_hidden = param.values[-1] == hidden_seed(exercise.unit, exercise.name)
                yield param if is_hidden and not starts_processes(exercise) else only_later(param)


def mistakes():
    """Every known mistake with one seed; with the hidden one too in the last tier."""
    for exercise in EXERCISES:
        for known in exercise.mistakes():
            one, other, *_ = at_every_seed(exercise, known)
            yield from (pytest.param(*one.values, id=one.id), only_later(other))


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


def carried_reference(exercise):
    """The reference as `course.solved` hands it on after all cells of its part have run."""
    path = exercise_parts(exercise.unit)[exercise.name]
    cells = [cell.source for cell in read_cells(path) if cell.kind == "code" and "test" not in cell.marks]
    notebook = vars(load_definitions(path))
    script, name = carry.script_of(notebook[exercise.name], exercise.name, notebook, cells)
    return carry.load_script(script, name, f"<carried {exercise.name}>")


@pytest.mark.parametrize("exercise, seed", [param for e in EXERCISES for param in at_every_seed(e)])
def test_reference_passes_in_another_notebook(exercise, seed, device, capfd):
    exercise(carried_reference(exercise), seed=seed, device=device)
    out, err = capfd.readouterr()
    assert "correct" in out and err == ""


@pytest.mark.parametrize("exercise, right, seed", list(alternatives()))
def test_alternative_passes(exercise, right, seed, device):
    exercise(right, seed=seed, device=device)


@pytest.mark.parametrize("exercise, known, seed", list(mistakes()))
def test_mistake_is_told_in_its_own_words(exercise, known, seed, device):
    _, advice, wrong = known
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
def test_a_reference_that_is_called_through_others_passes(exercise, device, tier):
    only_in_the_last_tier(exercise, tier)
    if reason := wrong_answers.inapplicable(exercise, "through"):
        pytest.skip(reason)
    with wrong_answers.Notes() as notes:
        exercise(wrong_answers.with_results(exercise.reference(), lambda leaf: leaf, notes), device=device)
        assert notes.read() == (0, [])


def only_in_the_last_tier(exercise, tier):
    """Skip what is about the tests themselves, where it takes seconds."""
    if tier != "all" and starts_processes(exercise):
        pytest.skip("starts processes: make test-all")


def refused(exercise, kind, make, device, tier):
    """The message to a wrong answer of `kind`, made by make(notes): the change was made, and a fact refuses it.

    None where the kind does not apply: nothing is changed then, else the table is out of date.
    """
    reason = wrong_answers.inapplicable(exercise, kind)
    with wrong_answers.Notes() as notes:
        answer = make(notes)
        if reason:
            only_in_the_last_tier(exercise, tier)
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
def test_nan_is_refused(exercise, device, tier):
    def make(notes):
        if exercise.changes_inputs:
            return wrong_answers.with_written(exercise.reference(), wrong_answers.nan, notes, only_changed=True)
        return wrong_answers.with_results(exercise.reference(), wrong_answers.nan, notes)

    refused(exercise, "nan", make, device, tier)


@every_exercise
@pytest.mark.usefixtures("no_diagnosis")
def test_wrong_shape_is_refused(exercise, device, tier):
    refused(exercise, "shape", partial(with_results, exercise.reference(), wrong_answers.other_shape), device, tier)


@every_exercise
@pytest.mark.usefixtures("no_diagnosis")
def test_wrong_device_is_refused(exercise, device, tier):
    refused(exercise, "device", partial(with_results, exercise.reference(), wrong_answers.other_device), device, tier)


if torch.cuda.is_available():  # without a GPU, test_pretend_cuda.py does it

    @every_exercise
    @pytest.mark.usefixtures("no_diagnosis")
    def test_results_on_the_cpu_are_refused_on_a_gpu(exercise):
        with wrong_answers.Notes() as notes:  # seconds, for one, belong on the CPU: then nothing is changed
            answer = with_results(exercise.reference(), wrong_answers.on_the_cpu, notes)
            with contextlib.suppress(CheckFailed):
                exercise(answer, device=torch.device("cuda"))
                assert notes.read() == (0, [])


@every_exercise
@pytest.mark.usefixtures("no_diagnosis")
def test_changed_input_is_named(exercise, device, tier):
    make = partial(wrong_answers.with_written, exercise.reference(), wrong_answers.plus_one)
    message = refused(exercise, "input", make, device, tier)
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
