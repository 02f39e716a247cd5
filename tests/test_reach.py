"""No name, public or private, that a learner can import from course.checks answers an exercise.

`python tests/test_reach.py` tries them all; those of each exercise in a fork, because a trial may break its process.
They are not forks of the tests' process: autograd fails in these after a test has used it on a GPU, or a pretended one.
"""

import functools
import inspect
import os
import subprocess
import sys
import time
import traceback
import types

import forks
import torch
from conftest import ROOT
from exercises import EXERCISES

from course.engine.exercise import Exercise
from course.engine.limits import Limits
from course.notebook.registry import package_of

CPU = torch.device("cpu")
PATIENCE, PACE = 0.2, 3  # seconds, and times what the reference takes: a trial may take that together
RIGHT, WRONG = "_right", "_wrong"  # put into each module of probes: the first must be found, the second must not


def modules(exercise):
    """The modules of probes of its unit and of no unit; where trials take seconds, its own one."""
    unit = f"course.checks.{package_of(exercise.unit)}."
    places = (f"{unit}{exercise.name}",) if exercise.starts_processes else (unit, "course.engine.probing.")
    return [sys.modules[name] for name in sorted(sys.modules) if name.startswith(places)]


def reachable(exercise):
    """{dotted name: object} of what the course defines in these modules and their classes, each object once."""
    objects = {}
    for module in modules(exercise):
        for name, value in list(vars(module).items()):
            home = str(getattr(value, "__module__", module.__name__))
            if isinstance(value, (types.ModuleType, Exercise)) or name.startswith("__") or home[:6] != "course":
                continue
            objects.setdefault(id(value), (f"{module.__name__}.{name}", value))
            for inner in [f for f in vars(value).values() if inspect.isfunction(f)] if inspect.isclass(value) else []:
                objects.setdefault(id(inner), (f"{module.__name__}.{name}.{inner.__name__}", inner))
    return dict(objects.values())


def as_answers(exercise):
    """(name, answer) of what may answer `exercise`; of a quiz also every value, as what it returns."""
    reference = exercise.reference()
    for name, value in reachable(exercise).items():
        if callable(value) and inspect.isclass(value) == inspect.isclass(reference):
            if takes_the_same(value, reference):
                yield name, value
        elif exercise.quiz and not callable(value):
            yield name, functools.partial(constant, value)


def constant(value, *args, **kwargs):
    return value


def takes_the_same(candidate, reference):
    """True if the reference's required arguments, by place, can be those of `candidate`."""
    required = [p for p in inspect.signature(reference).parameters.values() if p.default is p.empty]
    try:
        inspect.signature(candidate).bind(*[p for p in required if p.kind <= p.POSITIONAL_OR_KEYWORD])
    except (TypeError, ValueError):
        return False
    return True


def wrong(exercise):
    """What cannot answer `exercise`."""
    if inspect.isclass(exercise.reference()):
        return type("Wrong", (), {"__init__": lambda self, *args, **kwargs: None})
    return lambda *args, **kwargs: None


def right_answers(exercise):
    """The names of what answers `exercise`; each is asked up to its first wrong fact."""
    module = sys.modules[f"course.checks.{package_of(exercise.unit)}.{exercise.name}"]
    for name, answer in ((RIGHT, exercise.alternatives()[0]), (WRONG, wrong(exercise))):
        answer.__module__ = module.__name__
        if inspect.isclass(answer):
            answer.__qualname__ = name  # where pickle looks for it
        setattr(module, name, answer)
    start, expected = time.monotonic(), exercise.at(CPU).expected()
    limits = Limits(PATIENCE + PACE * (time.monotonic() - start))
    for name, answer in sorted(as_answers(exercise), key=lambda pair: not pair[0].endswith((RIGHT, WRONG))):
        patience = None if name.endswith(RIGHT) else limits
        if exercise.at(CPU).run(answer, patience, stop_when_differs_from=expected).same(expected):
            yield name.removeprefix(f"{module.__name__}.")


def test_no_name_that_a_learner_can_import_answers_an_exercise():
    done = subprocess.run([sys.executable, "-W", "ignore", __file__], cwd=ROOT, capture_output=True, text=True)
    lines = [line.split() for line in done.stdout.splitlines()]
    assert [name for name, *_ in lines] == [exercise.name for exercise in EXERCISES], f"a trial broke: {done.stderr}"
    for name, *found in lines:
        assert WRONG not in found, f"{name}: a wrong answer passes, so nothing is known of the others"
        assert found == [RIGHT], f"{name}: the planted right answer, and no other, must be found"


def main(exercises=EXERCISES):
    forks.warm_fork_servers()  # each fork that starts ranks has a server of its own
    for exercise in exercises:
        exercise.reference(), exercise.alternatives()  # imported here, once, and not in each fork
    for exercise in exercises:
        if child := os.fork():
            os.waitpid(child, 0)
            continue
        try:
            print(exercise.name, *right_answers(exercise), flush=True)
        except Exception:
            traceback.print_exc()
        os._exit(0)  # a trial may have left threads that wait forever


if __name__ == "__main__":
    main()
