"""Every exercise of every unit, for tests that go over all of them."""

import dataclasses
import functools

from course.checks import exercises
from course.engine.outcome import Outcome
from course.engine.report import ReportOptions
from course.notebook.registry import units

EXERCISES = [exercise for unit in units() for exercise in exercises(unit)]


def with_probe(exercise, probe):
    """A copy of `exercise` that looks at answers with another probe."""
    return dataclasses.replace(exercise, probe=functools.wraps(exercise.probe)(probe))


def stub(exercise):
    """What a learner is given: it raises NotImplementedError."""

    def function(*args, **kwargs):
        raise NotImplementedError()

    class Class:
        def __init__(self, *args, **kwargs):
            raise NotImplementedError()

    return Class if isinstance(exercise.reference(), type) else function


def verdict(exercise, answer, device):
    """The Verdict on `answer`, which is asked up to its first wrong fact; no known mistake is looked for."""
    judge = exercise.at(device)
    refusal = exercise.refusal(answer, judge.asks_for_class())
    if refusal:
        seen = Outcome(refused=refusal)
    else:
        seen = judge.run(answer, stop_when_differs_from=judge.expected())
    return judge.verdict(seen, ReportOptions(diagnose=False))
