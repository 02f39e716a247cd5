"""What a learner can import, tried as the answer to every exercise.

    python tests/attempts.py [EXERCISE ...]        prints what comes near, the nearest first

Functions and classes are tried where the reference could be called in the same way; every other value is tried as the
result of an answer that ignores its arguments.  A trial ends at its first fact if that is wrong already.
"""

import contextlib
import functools
import importlib
import inspect
import io
import os
import pickle
import re
import signal
import sys
import tempfile
import time
import types
import warnings
from dataclasses import dataclass
from pathlib import Path

import torch
from exercises import EXERCISES, starts_processes, with_probe

from course.checks.compare import differs, plain
from course.checks.engine import Exercise
from course.checks.limits import Limits
from course.publish.build import ROOT
from course.publish.release import given_files
from course.units import units

PATIENCE, PACE = 0.2, 3  # seconds, and times what the reference takes: more than that no trial may take
UNIT_OF_PROBES = re.compile("|".join(rf"course\.checks\.{unit[3:]}\." for unit in units()))
HANGS = 30  # seconds of one trial, which its own limit should have ended long before
NEAR = 0.8  # of the facts right: a nearly whole answer


@dataclass(frozen=True)
class Attempt:
    """How far `name`, as the answer to `exercise`, came: the share of its facts that are right."""

    exercise: str
    name: str
    share: float
    seconds: float


def module_names():
    """The names of the modules that a learner's folder holds, in order."""
    files = [Path(name) for name in given_files() if name.endswith(".py") and name != "nbgrader_config.py"]
    return sorted(
        file.stem if file.parts[0] != "course" else ".".join(file.with_suffix("").parts).removesuffix(".__init__")
        for file in files
    )


@functools.cache
def candidates():
    """{name: object} of every attribute of those modules, each object once, those that other packages made left out."""
    importlib.import_module("matplotlib.pyplot")  # what plots import is imported once, not in every fork
    found, seen, modules = {}, set(), module_names()
    ours = {name.partition(".")[0] for name in modules}
    sys.path[:0] = [folder for name in ("scripts", "data_scripts") if (folder := str(ROOT / name)) not in sys.path]
    for module_name in modules:
        module = importlib.import_module(module_name)
        for name, value in list(vars(module).items()):
            is_ours = not isinstance(value, types.ModuleType) and not _is_foreign(value, ours)
            if name.startswith("__") or id(value) in seen or not is_ours:
                continue
            seen.add(id(value))
            found[f"{module_name}.{name}"] = value
            if inspect.isclass(value):
                for part, inner in vars(value).items():
                    if inspect.isfunction(inner) and not part.startswith("__"):
                        found[f"{module_name}.{name}.{part}"] = inner
    return found


def _is_foreign(value, ours):
    home = getattr(value, "__module__", None)
    return (inspect.isclass(value) or callable(value)) and str(home).partition(".")[0] not in ours


def answers(exercise, everywhere=True):
    """(name, answer) of every candidate that might answer `exercise`.

    Args:
        everywhere: False leaves out the probes of other units, and of an exercise that starts processes all but the
            module of its own probe.
    """
    reference, unit = exercise.reference(), f"course.checks.{exercise.unit[3:]}."
    for name, value in candidates().items():
        if starts_processes(exercise):
            is_near = name.startswith(f"{unit}{exercise.name}.")
        else:
            is_near = name.startswith(unit) or not UNIT_OF_PROBES.match(name)
        if not (everywhere or is_near):
            continue
        value = value.probe if isinstance(value, Exercise) else value
        if not callable(value):
            if inspect.isfunction(reference) and exercise.quiz:
                yield name, functools.partial(_constant, value)
        elif inspect.isclass(reference) == inspect.isclass(value) and _takes_the_same(value, reference):
            yield name, value


def _constant(value, *args, **kwargs):
    return value


def _takes_the_same(candidate, reference):
    """True if the reference's required arguments, by place, can be those of `candidate`."""
    try:
        asked = [p for p in inspect.signature(reference).parameters.values() if p.default is p.empty]
        inspect.signature(candidate).bind(*[p for p in asked if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)])
    except (TypeError, ValueError):
        return False
    return True


def attempt(exercise, name, answer, device="cpu", seed=0):
    """The Attempt of `answer` at the visible check of `exercise`."""
    expected, pace = _expected(exercise, device, seed)
    before, right = time.monotonic(), []

    def watched(answer, device, seed):
        for fact, value in exercise.probe(answer, device, seed):
            if fact not in expected or differs(plain(value), expected[fact]):
                if not right:
                    return
            else:
                right.append(fact)
            yield fact, None

    before = time.monotonic()
    with_probe(exercise, watched).outcome(answer, torch.device(device), seed, Limits(PATIENCE + PACE * pace))
    return Attempt(f"{exercise.unit[:2]} {exercise.name}", name, len(right) / len(expected), time.monotonic() - before)


@functools.cache
def _expected(exercise, device, seed):
    """(facts of the reference, seconds that they took)."""
    before = time.monotonic()
    outcome = exercise.outcome(exercise.reference(), torch.device(device), seed)
    assert outcome.raised is None, f"the probe of {exercise.name} fails on the reference: {outcome.raised}"
    return outcome.facts, time.monotonic() - before


def attempts(exercise, everywhere=True):
    """The Attempt of every candidate at `exercise`, in processes apart: what ends its process is no answer."""
    _expected(exercise, "cpu", 0)  # before the processes fork
    waiting, tried = list(answers(exercise, everywhere)), []
    while waiting:
        done = _apart(exercise, waiting)
        tried += done
        waiting = waiting[len(done) :]
        if waiting and not done:
            name, _ = waiting.pop(0)
            tried.append(Attempt(f"{exercise.unit[:2]} {exercise.name}", name, 0.0, 0.0))
    return tried


def _apart(exercise, waiting):
    """The Attempts of a forked process, as far as it came."""
    with tempfile.TemporaryFile() as file:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of threads, which the child does without
            child = os.fork()
        if not child:
            try:
                os.setsid()
                for name, answer in waiting:
                    file.write(pickle.dumps(attempt(exercise, name, answer)))
                    file.flush()
            finally:
                os._exit(0)
        _wait(child, file)
        file.seek(0)
        found = []
        with contextlib.suppress(EOFError, pickle.UnpicklingError):
            while True:
                found.append(pickle.load(file))
        return found


def _wait(child, file):
    """Wait until `child` has ended; end it if nothing more is written to `file` for HANGS seconds."""
    size, since = 0, time.monotonic()
    while os.waitpid(child, os.WNOHANG) == (0, 0):
        now = os.fstat(file.fileno()).st_size
        if now != size:
            size, since = now, time.monotonic()
        if time.monotonic() - since > HANGS:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        time.sleep(0.01)


def main(names):
    found, begun = [], time.monotonic()
    for exercise in [e for e in EXERCISES if e.name in (names or [e.name])]:
        before = time.monotonic()
        with contextlib.redirect_stdout(io.StringIO()):
            tried = attempts(exercise)
        print(f"{exercise.name}: {len(tried)} in {time.monotonic() - before:.1f} s", file=sys.stderr)
        found += tried
    for tried in sorted(found, key=lambda tried: -tried.share):
        if tried.share > NEAR / 2:
            print(f"{tried.exercise}: {tried.share:.0%} of the facts are right for {tried.name}")
    print(f"{len(found)} attempts in {time.monotonic() - begun:.0f} s")


if __name__ == "__main__":
    main(sys.argv[1:])
