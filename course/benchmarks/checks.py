"""How long a learner waits for the check of each exercise, with right and with wrong answers.

The first call of a check in a process also computes the reference's facts, so a right answer is timed twice: first, and
again.  Of wrong answers the slowest known mistake counts, with the comparison that names it; what takes seconds there
waits for something that never comes.  Imports are not counted, neither torch's and torchvision's lazy ones nor those of
the server from which ranks are forked, which the first ranks of a session start.
"""

import contextlib
import importlib
import io
import statistics
import subprocess
import sys
import time

import torch

from course.checks.engine import CheckFailed, Exercise
from course.device import machine
from course.parallel.distributed import run_ranks
from course.units import units


def seconds(exercise, answer):
    """Seconds that the visible check of `exercise` takes to judge `answer`."""
    started = time.perf_counter()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(CheckFailed):
        exercise(answer)
    return time.perf_counter() - started


def import_seconds(code):
    """Seconds that `code` takes in a fresh interpreter that has imported torch, median of 5."""
    timed = f"import torch, time; t = time.perf_counter(); {code}; print(time.perf_counter() - t)"
    runs = [subprocess.run([sys.executable, "-c", timed], capture_output=True, text=True, check=True) for _ in range(5)]
    return statistics.median(float(run.stdout) for run in runs)


def run():
    """Print the seconds of every exercise, with a right answer and with its slowest known mistake."""
    torch.optim.SGD([torch.zeros(1)], lr=0.1)  # torch imports its compiler with the first optimizer
    importlib.import_module("torchvision.io")  # as the first JPEG does
    found, modules = [], [importlib.import_module(f"course.checks.{unit[3:]}") for unit in units()]
    started = time.perf_counter()
    run_ranks(max, 1, backend="gloo")  # a rank's two arguments are numbers
    print(f"first ranks, forked from a server that imports torch first: {time.perf_counter() - started:.3f} s")
    for module in modules:
        for exercise in vars(module).values():
            if isinstance(exercise, Exercise):
                right = exercise.alternatives()[0]
                found.append((seconds(exercise, right), seconds(exercise, right),
                              max(seconds(exercise, known.answer) for known in exercise.mistakes())))  # fmt: skip
                print("{:<24} right {:6.3f} s   again {:6.3f} s   slowest wrong {:6.3f} s".format(
                    exercise.name, *found[-1]), flush=True)  # fmt: skip
    for what, times in zip(("right", "again", "slowest wrong"), zip(*found, strict=True), strict=True):
        print(f"{what}: median {statistics.median(times):.3f} s, above 2 s {sum(t > 2 for t in times)} "
              f"of {len(times)}, slowest {max(times):.3f} s")  # fmt: skip
    print(f"import course, after torch: {import_seconds('import course'):.3f} s")
    print(machine())
