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

import torch

from course.checks import exercises
from course.device import machine
from course.engine.exercise import CheckFailed
from course.notebook.registry import units
from course.parallel.distributed import run_ranks


def seconds(exercise, answer):
    """Seconds that the visible check of `exercise` takes to judge `answer`."""
    started = time.perf_counter()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(CheckFailed):
        exercise(answer)
    return time.perf_counter() - started


def run():
    """Print the seconds of every exercise, with a right answer and with its slowest known
    mistake.
    """
    torch.optim.SGD([torch.zeros(1)], lr=0.1)  # torch imports its compiler with the first optimizer
    importlib.import_module("torchvision.io")  # as the first JPEG does
    rows, all_exercises = [], [exercise for unit in units() for exercise in exercises(unit)]
    started = time.perf_counter()
    run_ranks(max, 1, backend="gloo")  # a rank's two arguments are numbers
    print(
        f"first ranks, forked from a server that imports torch first: {time.perf_counter() - started:.3f} s"
    )
    for exercise in all_exercises:
        right = exercise.alternatives()[0]
        first, again = seconds(exercise, right), seconds(exercise, right)
        wrong = max(seconds(exercise, known.answer) for known in exercise.mistakes())
        rows.append((first, again, wrong))
        times = f"right {first:6.3f} s   again {again:6.3f} s   slowest wrong {wrong:6.3f} s"
        print(f"{exercise.name:<24} {times}", flush=True)
    for what, times in zip(
        ("right", "again", "slowest wrong"), zip(*rows, strict=True), strict=True
    ):
        print(f"{what}: median {statistics.median(times):.3f} s, above 2 s {sum(t > 2 for t in times)} "
              f"of {len(times)}, slowest {max(times):.3f} s")  # fmt: skip
    print(machine())
