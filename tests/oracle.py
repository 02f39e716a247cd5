"""Record what every check says of every answer that the course knows; `diff` shows what a change moved.

    python tests/oracle.py record FILE [EXERCISE ...]

Each line is "unit/exercise answer seed: [correct, first wrong fact, mistake that is named]".  Answers are the
reference, alternatives, known mistakes and the wrong answers of wrong_answers.py, on seeds 0 and 3, judged in the
process that runs them.
"""

import json
import os
import sys
from pathlib import Path

import conftest  # noqa: F401  the smallest scale, answers not kept
import torch
import wrong_answers
from exercises import EXERCISES

from course.checks.compare import differs
from course.checks.expected import exercise_parts, load_definitions

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
    expected = exercise.expected(CPU, seed)
    seen = exercise._kept_outcome(answer, CPU, seed)
    verdict = exercise.verdict(seen, CPU, seed)
    first = next((f for f in expected.facts if f not in seen.facts or differs(seen.facts[f], expected.facts[f])), None)
    return [verdict.correct, None if verdict.correct else seen.refused or first, verdict.mistake]


def record(path, names):
    """Write the record of the exercises named (default: all)."""
    found = {}
    for exercise in EXERCISES:
        if names and exercise.name not in names and exercise.unit not in names:
            continue
        for name, answer in answers(exercise):
            found |= lines(exercise, name, answer)
        for kind in KINDS:
            with wrong_answers.Notes() as notes:
                of_kind = lines(exercise, f"wrong {kind}", wrong_answers.made(exercise, kind, notes))
                found |= of_kind if notes.read()[0] else {}  # nothing was changed: it is the reference
        print(f"{exercise.unit}/{exercise.name}", flush=True)
    Path(path).write_text("".join(f"{key}: {json.dumps(value)}\n" for key, value in found.items()))


if __name__ == "__main__":
    record(sys.argv[2], sys.argv[3:])
    sys.stdout.flush()
    os._exit(0)  # a known mistake may have left threads that wait for ever
