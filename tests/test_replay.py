"""Facts that every learner has are no answer: those of another seed, given again, and one value for every call.

A grade cell has a seed that nobody knows (instructor/grading/seeds.py), which helps where facts depend on it.
"""

import copy
import inspect

import pytest
import torch
from exercises import EXERCISES

from course.engine.run import all_tensors

CPU = torch.device("cpu")
OURS, THEIRS = 98768, 31  # the grader's seed, and one whose facts are known: no remainder by 2 to 7 is the same
QUICK = "scaled_lr", "padding_waste", "speedup_bound", "gather"  # of the shorter tiers, one each of four units


def is_asked(exercise):
    """Whether the answer is a function of something; one of nothing gives what it knows, the answer itself."""
    return inspect.isfunction(exercise.reference()) and inspect.signature(exercise.reference()).parameters


functions = [exercise for exercise in EXERCISES if is_asked(exercise)]


def tiered(exercises):
    marks = {True: (), False: pytest.mark.all}
    return [pytest.param(e, marks=marks[e.name in QUICK], id=e.name) for e in exercises]


def copied(value):
    try:
        return copy.deepcopy(value)
    except Exception:  # a process, a graph: handed on as it is
        return value


def calls_of(exercise, seed):
    """[(what the reference gave or raised, the tensors of its arguments after that)] of each call of the probe."""
    right, calls = exercise.reference(), []

    def noted(*args, **kwargs):
        try:
            value = right(*args, **kwargs)
        except Exception as error:
            calls.append((error, []))
            raise
        calls.append((copied(value), [t.detach().clone() for t in all_tensors([args, kwargs])]))
        return value

    exercise.at(CPU, seed).run(noted)
    return calls


def given_again(exercise, calls):
    """An answer that gives `calls` one after the other, into its arguments too where that is the task."""
    left = iter(calls)

    def answer(*args, **kwargs):
        value, written = next(left, (RuntimeError("no more calls are known"), []))
        if isinstance(value, Exception):
            raise value
        if exercise.changes_inputs:
            with torch.no_grad():
                for tensor, after in zip(all_tensors([args, kwargs]), written, strict=False):
                    if tensor.shape == after.shape:
                        tensor.copy_(after)
        return copied(value)

    return answer


@pytest.mark.parametrize("exercise", tiered(EXERCISES))
def test_facts_depend_on_the_seed(exercise):
    ours, theirs = exercise.at(CPU, OURS).expected(), exercise.at(CPU, THEIRS).expected()
    assert ours.same(theirs) == exercise.same_facts_at_all_seeds


@pytest.mark.parametrize("exercise", tiered(functions))
def test_what_another_seed_gave_is_refused(exercise):
    answer = given_again(exercise, calls_of(exercise, THEIRS))
    assert not exercise.judge(answer, OURS, CPU, diagnose=False).correct


@pytest.mark.parametrize("exercise", tiered(functions))
def test_one_value_for_every_call_is_refused(exercise):
    first = calls_of(exercise, OURS)[:1]
    assert not exercise.judge(given_again(exercise, first * 10_000), OURS, CPU, diagnose=False).correct
