"""How long a learner waits for the check of each exercise, with right and with wrong answers.

The first call of a check in a process also computes the reference's facts, so a right answer is
timed twice: first, and again. Of wrong answers the slowest known mistake counts, with the
comparison that names it; what takes seconds there waits for something that never comes. Imports are
not counted, neither torch's and torchvision's lazy ones nor those of the server from which ranks
are forked, which the first ranks of a session start.
"""

import contextlib
import importlib
import io
import statistics
import time
from dataclasses import dataclass

import torch

from course.checks import exercises
from course.device import machine
from course.engine.exercise import Answer, CheckFailed, Exercise
from course.notebook.registry import units
from course.parallel.distributed import run_ranks
from instructor.bench.tables import Table

LONG_SECONDS = 2  # how many checks take longer is printed


@dataclass(frozen=True)
class Waits:
    """Seconds that checks of one exercise take."""

    right: float  # the first check of a right answer
    again: float  # the second
    wrong: float  # the slowest known mistake


def seconds(exercise: Exercise, answer: Answer) -> float:
    """Seconds that the visible check of `exercise` takes to judge `answer`."""
    started = time.perf_counter()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(CheckFailed):
        exercise(answer)
    return time.perf_counter() - started


def waits(exercise: Exercise) -> Waits:
    """The Waits for checks of `exercise`."""
    right = exercise.alternatives()[0]
    first = seconds(exercise, right)
    again = seconds(exercise, right)
    wrong = max(seconds(exercise, known.answer) for known in exercise.mistakes())
    return Waits(first, again, wrong)


def run() -> list[Table]:
    """Print the seconds of every exercise, with a right answer and with its slowest mistake.

    Returns: the table of medians.
    """
    torch.optim.SGD([torch.zeros(1)], lr=0.1)  # torch imports its compiler with the first optimizer
    importlib.import_module("torchvision.io")  # as the first JPEG does
    all_exercises = []
    for unit in units():
        all_exercises += exercises(unit)
    started = time.perf_counter()
    run_ranks(max, 1, backend="gloo")  # a rank's two arguments are numbers
    first_ranks = time.perf_counter() - started
    print(f"first ranks, forked from a server that imports torch first: {first_ranks:.3f} s")
    rows = []
    for exercise in all_exercises:
        row = waits(exercise)
        rows.append(row)
        times = f"right {row.right:6.3f} s   again {row.again:6.3f} s"
        times += f"   slowest wrong {row.wrong:6.3f} s"
        print(f"{exercise.name:<24} {times}", flush=True)
    columns = ["answer", "median, s", f"above {LONG_SECONDS} s", "slowest, s"]
    note = f"{len(rows)} exercises, imports not counted"
    table = Table("checks", "Seconds of a check", columns, note)
    _add_row(table, "right, first call in a process", [row.right for row in rows])
    _add_row(table, "right, called again", [row.again for row in rows])
    _add_row(table, "the slowest known mistake", [row.wrong for row in rows])
    print(table)
    print(machine())
    return [table]


def _add_row(table: Table, what: str, times: list[float]) -> None:
    long = sum(t > LONG_SECONDS for t in times)
    table.add(what, f"{statistics.median(times):.3f}", long, f"{max(times):.3f}")
