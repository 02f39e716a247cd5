"""Every exercise of every unit, for tests that go over all of them."""

import copy

from course.checks import exercises
from course.notebook.registry import units

EXERCISES = [exercise for unit in units() for exercise in exercises(unit)]


def with_probe(exercise, probe):
    """A copy of `exercise` that looks at answers with another probe."""
    exercise = copy.copy(exercise)
    exercise.probe = probe
    return exercise


# Checks that start processes, for seconds each: the shorter tiers look at less of them.
WITH_PROCESSES = set(
    """
    WorkerLoader seed_worker
    lightning_fit train_ddp write_records
    """.split()
)


def starts_processes(exercise):
    """Whether a check of `exercise` takes seconds, because it starts processes."""
    return exercise.name in WITH_PROCESSES


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
    like = exercise.expected(device, 0)
    seen = exercise.outcome(answer, device, 0, is_class=isinstance(exercise.reference(), type), like=like)
    return exercise.verdict(seen, device, 0, diagnose=False)
