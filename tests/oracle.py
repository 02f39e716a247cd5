"""Record what every check says of every answer that the course knows; `diff` shows what a change moved.

    python tests/oracle.py record FILE [EXERCISE ...]
    python tests/oracle.py seeds N SECONDS [EXERCISE ...]

Each line is "unit/exercise answer seed: [correct, first wrong fact, mistake that is named]".  Answers are the
reference, alternatives, known mistakes and the wrong answers of wrong_answers.py, on seeds 0 and 3, judged in the
process that runs them.

`seeds` looks for known mistakes that the check accepts, and for alternatives that it refuses, at seeds 0 to N - 1, each
exercise in a process of its own for at most about SECONDS.
"""

import json
import os
import sys
import time
from pathlib import Path

import conftest  # noqa: F401  the smallest scale, answers not kept
import torch
import wrong_answers
from exercises import EXERCISES

from course.engine.compare import differs
from course.engine.report import ReportOptions
from course.engine.stops import Stop
from course.notebook.solutions import exercise_parts, load_definitions

CPU, SEEDS = torch.device("cpu"), (0, 3)
KINDS = ("nan", "shape", "input")


def answers(exercise):
    """(name, answer) of what is tried on `exercise` for certain."""
    reference = exercise.reference()
    copy = load_definitions(exercise_parts(exercise.unit)[exercise.name])
    yield "reference", getattr(copy, exercise.name)
    yield from ((f"alternative {answer.__name__}", answer) for answer in exercise.alternatives())
    yield from ((f"mistake {known.name}", known.answer) for known in exercise.mistakes())
    yield "wrong none", wrong_answers.wrapped(reference, lambda method: lambda *args, **kwargs: None)


def lines(exercise, name, answer):
    """{key of the record: what it holds} for each seed."""
    return {f"{exercise.unit}/{exercise.name} {name} {seed}": line(exercise, answer, seed) for seed in SEEDS}


def line(exercise, answer, seed):
    """[correct, first wrong fact, known mistake that is named]."""
    judge = exercise.at(CPU, seed)
    expected = judge.expected()
    seen = judge.run_once(answer)
    verdict = judge.verdict(seen)
    first = next((f for f in expected.facts if f not in seen.facts or differs(seen.facts[f], expected.facts[f])), None)
    return [verdict.correct, None if verdict.correct else seen.refused or first, verdict.mistake]


def chosen(names):
    """The exercises called so, as gather or 04_fast_loading/gather, or of units such as 05, in this order (or all)."""
    spellings = {e: (e.name, f"{e.unit}/{e.name}", e.unit, e.unit[:2]) for e in EXERCISES}
    wanted = [e for name in names for e in EXERCISES if name in spellings[e]]
    if names and not wanted:
        sys.exit(f"no exercise and no unit is called {' or '.join(names)}.")
    return [*dict.fromkeys(wanted)] or EXERCISES


def record(path, *names):
    """Write the record of the exercises named (default: all)."""
    verdicts = {}
    for exercise in chosen(names):
        for name, answer in answers(exercise):
            verdicts |= lines(exercise, name, answer)
        for kind in KINDS:
            with wrong_answers.Notes() as notes:
                of_kind = lines(exercise, f"wrong {kind}", wrong_answers.made(exercise, kind, notes))
                verdicts |= of_kind if notes.read()[0] else {}  # nothing was changed: it is the reference
        print(f"{exercise.unit}/{exercise.name}", flush=True)
    Path(path).write_text("".join(f"{key}: {json.dumps(value)}\n" for key, value in verdicts.items()))


def seeds(number, seconds, *names):
    """Print each exercise with the seeds at which a known mistake passes or an alternative fails."""
    for exercise in chosen(names):
        if child := os.fork():
            os.waitpid(child, 0)
        else:
            _print_seeds(exercise, int(number), float(seconds))
            leave()


def _print_seeds(exercise, number, seconds):
    answers = [(f"mistake {known.name} passes", known.answer, True) for known in exercise.mistakes()]
    answers += [(f"alternative {answer.__name__} fails", answer, False) for answer in exercise.alternatives()]
    flaws, seed, end = {}, 0, time.monotonic() + seconds
    while seed < number and time.monotonic() < end:
        judge = exercise.at(CPU, seed)
        expected = judge.expected()
        for text, answer, is_wrong in [*answers]:
            seen = judge.run(answer, stop_when_differs_from=expected)
            if is_wrong == judge.verdict(seen, ReportOptions(diagnose=False), expected).correct:
                flaws.setdefault(text, []).append(seed)
            if seen.raised and seen.raised.stop is Stop.LIMIT:  # once is enough
                answers.remove((text, answer, is_wrong))
        judge.forget()
        seed += 1
    print(
        f"{exercise.unit}/{exercise.name}: {seed} seeds", *(f"{text} at {at}" for text, at in flaws.items()), sep="; "
    )


def leave():
    """End this process now: a known mistake may have left threads that wait for ever."""
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    {"record": record, "seeds": seeds}[sys.argv[1]](*sys.argv[2:])
    leave()
