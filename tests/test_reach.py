"""No name, public or private, that a learner can import from course.checks answers an exercise."""

import functools
import importlib
import inspect
import os
import sys
import time
import types

import pytest
import torch
from exercises import EXERCISES, starts_processes

from course.checks.engine import Exercise
from course.checks.limits import Limits

CPU = torch.device("cpu")
PATIENCE, PACE = 0.2, 3  # seconds, and times what the reference takes: a trial may take that together


def modules(exercise):
    """The modules of probes: those of its unit and those of no unit; where trials take seconds, the one of its own."""
    unit = f"course.checks.{exercise.unit[3:]}."
    places = (f"{unit}{exercise.name}",) if starts_processes(exercise) else (unit, "course.checks.probing.")
    return [sys.modules[name] for name in sorted(sys.modules) if name.startswith(places)]


def reachable(exercise):
    """{dotted name: object} of what these modules and their classes hold, of what the package made each object once."""
    found = {}
    for module in modules(exercise):
        for name, value in list(vars(module).items()):
            home = str(getattr(value, "__module__", module.__name__))
            if isinstance(value, (types.ModuleType, Exercise)) or name.startswith("__") or home[:6] != "course":
                continue
            found.setdefault(id(value), (f"{module.__name__}.{name}", value))
            for inner in [f for f in vars(value).values() if inspect.isfunction(f)] if inspect.isclass(value) else []:
                found.setdefault(id(inner), (f"{module.__name__}.{name}.{inner.__name__}", inner))
    return dict(found.values())


def as_answers(exercise):
    """(name, answer) of what may answer `exercise`; of a quiz also every value, as what it gives."""
    reference = exercise.reference()
    for name, value in reachable(exercise).items():
        if (
            callable(value)
            and inspect.isclass(value) == inspect.isclass(reference)
            and takes_the_same(value, reference)
        ):
            yield name, value
        elif exercise.quiz and not callable(value):
            yield name, functools.partial(constant, value)


def constant(value, *args, **kwargs):
    return value


def takes_the_same(candidate, reference):
    """True if the reference's required arguments, by place, can be those of `candidate`."""
    try:
        asked = [p for p in inspect.signature(reference).parameters.values() if p.default is p.empty]
        inspect.signature(candidate).bind(*[p for p in asked if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)])
    except (TypeError, ValueError):
        return False
    return True


def right_answers(exercise, file):
    """The names of what answers `exercise`, tried in a fork that writes them to `file`: a trial may break its process.

    Each is asked no further than to its first wrong fact.
    """
    child = os.fork()
    if not child:
        try:
            begun, expected = time.monotonic(), exercise.outcome(exercise.reference(), CPU, 0)
            limits = Limits(PATIENCE + PACE * (time.monotonic() - begun))
            for name, answer in as_answers(exercise):
                if exercise.outcome(answer, CPU, 0, limits, like=expected).same(expected):
                    file.write_text(file.read_text() + name + "\n")
            file.write_text(file.read_text() + "all were tried")
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    *names, last = file.read_text().splitlines() or [""]
    assert last == "all were tried", "a trial ended its process"
    return names


@pytest.fixture
def file(tmp_path):
    (tmp_path / "right").touch()
    return tmp_path / "right"


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize("exercise", EXERCISES, ids=lambda e: e.name)
def test_no_name_that_a_learner_can_import_answers_an_exercise(exercise, file):
    assert right_answers(exercise, file) == []


@pytest.mark.parametrize("exercise, planted", [("row_stride", None), ("judge", "dict")])
def test_an_answer_or_what_a_quiz_expects_is_found_in_a_module_of_probes(exercise, planted, file, monkeypatch):
    (exercise,) = [one for one in EXERCISES if one.name == exercise]
    answer = exercise.alternatives()[0]
    place = importlib.import_module(f"course.checks.{exercise.unit[3:]}.{exercise.name}")
    monkeypatch.setattr(answer, "__module__", place.__name__)
    monkeypatch.setattr(place, "_planted", answer() if planted else answer, raising=False)
    assert right_answers(exercise, file) == [f"{place.__name__}._planted"]
