"""Laws for every exercise: what its check must accept, what it must reject, and with which words."""

import inspect

import overlay
import pytest
import torch
import wrong_answers
from exercises import EXERCISES, stub, verdict
from mutation import hidden_seed

from course.engine.exercise import CheckFailed
from course.learner import carry
from course.learner.solved import solved
from course.notebook.cells import read_cells
from course.notebook.solutions import exercise_parts, load_definitions

OTHER_SEEDS = (98765, 31)  # that no author tried
CHECK, ALL = pytest.mark.check, pytest.mark.all

every_exercise = pytest.mark.parametrize("exercise", EXERCISES, ids=lambda e: e.name)


def at_every_seed(exercise, *answer, first=0):
    """pytest.params (exercise, *answer, seed): with the seed `first` in each tier, with the others in the last one."""
    name = "-".join([exercise.name, *(getattr(a, "__name__", None) or a.name for a in answer)])
    for seed in (0, hidden_seed(exercise.unit, exercise.name), *OTHER_SEEDS):
        marks = ALL if seed != first else () if seed or exercise.starts_processes else CHECK
        yield pytest.param(exercise, *answer, seed, marks=marks, id=f"{name}-{seed}")


def alternatives():
    """The first alternative of an exercise as its reference; others first with the hidden seed."""
    for exercise in EXERCISES:
        for number, right in enumerate(exercise.alternatives()):
            first = hidden_seed(exercise.unit, exercise.name) if number else 0
            yield from at_every_seed(exercise, right, first=first)


def mistakes():
    """Every known mistake with the visible seed; in the last tier with the hidden one as well."""
    for exercise in EXERCISES:
        for known in exercise.mistakes():
            for seed, marks in ((0, ()), (hidden_seed(exercise.unit, exercise.name), ALL)):
                yield pytest.param(exercise, known, seed, marks=marks, id=f"{exercise.name}-{known.name}-{seed}")


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
    name, advice, wrong = known
    judge = exercise.at(device, seed)
    assert exercise.refusal(wrong, judge.asks_for_class()) is None
    seen = judge.run_once(wrong)  # once: the diagnosis of every mistake needs it, too
    lacks_a_name = seen.raised is not None and seen.raised.kind == "NameError"
    assert not lacks_a_name, f"{name} would be said of every answer that lacks an import: import what the edit uses"
    verdict = judge.verdict(seen)
    assert not verdict.correct, f"the probe accepts the mistake {name}: yield a fact in which it differs"
    assert max(map(len, verdict.report)) <= 80, verdict.report
    assert " ".join(advice.split()) in " ".join("\n".join(verdict.report).split()), verdict.report
    if seed and exercise.name not in overlay.ALLOWED:  # once: it asks the reference at two more seeds
        told = f"{name} is wrong only in facts that everybody knows: let one of them depend on the seed"
        assert not overlay.scores_in_full(seen, exercise, seed, device), told


def test_few_mistakes_may_score_by_facts_that_everybody_knows():
    allowed = [known for exercise in EXERCISES if exercise.name in overlay.ALLOWED for known in exercise.mistakes()]
    assert 0 < len(allowed) <= overlay.MOST


@every_exercise
def test_has_mistakes_and_alternatives(exercise):
    assert len(exercise.mistakes()) >= 3, f"{exercise.name} needs three mistakes"
    assert len(exercise.alternatives()) >= 2, f"{exercise.name} needs two alternatives"


@every_exercise
def test_a_stub_is_not_begun(exercise, device):
    assert not verdict(exercise, stub(exercise), device).begun


@every_exercise
def test_none_is_refused(exercise, device):
    if exercise.calls_no_method:
        pytest.skip("it is asked for attributes, not for what methods return")
    answer = wrong_answers.wrapped(exercise.reference(), lambda function: lambda *args, **kwargs: None)
    message = "\n".join(verdict(exercise, answer, device).report)
    assert " NO  " in message and (exercise.changes_inputs or inspect.isclass(answer) or "returned None" in message)


ON_A_GPU = ["cpu"] * torch.cuda.is_available()  # without one, test_pretend_cuda.py tries results on the CPU


@pytest.mark.parametrize("kind", ["nan", "shape", "input", *ON_A_GPU])
@every_exercise
def test_a_wrong_answer_is_refused(exercise, kind, device):
    message = wrong_answers.refusal(exercise, kind, device)
    assert message or kind != "nan" or exercise.returns_no_number, (
        "nothing was changed: say @exercise(returns_no_number=True), or mend wrong_answers.py"
    )
    if message and kind == "input" and not exercise.changes_inputs and inspect.isfunction(exercise.reference()):
        assert exercise.given_modules_only or "Copy it first" in message


@pytest.mark.parametrize("exercise", [e for e in EXERCISES if e.name in ("gather", "ShardSampler")])
def test_solved_hands_on_the_learners_answer_or_says_that_it_does_not(exercise, capsys):
    right = exercise.alternatives()[0]
    exercise(right, device="cpu")
    assert solved(exercise) is right
    with pytest.raises(CheckFailed):
        exercise(stub(exercise), device="cpu")
    capsys.readouterr()
    assert solved(exercise) is exercise.reference()
    assert "not solved yet" in capsys.readouterr().out
