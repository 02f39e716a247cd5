"""How long a learner waits for a check: every exercise, right and wrong answers -> *seconds*.

    course bench checks

Each figure is the first call in this process, so that it holds the computation of the reference's facts, and for wrong
answers the comparison with the known mistakes; imports, torch's own lazy ones among them, are not counted.
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
    taken = []
    for unit in units():
        for exercise in vars(importlib.import_module(f"course.checks.{unit[3:]}")).values():
            if isinstance(exercise, Exercise):
                right = seconds(exercise, exercise.alternatives()[0])
                wrong = max(seconds(exercise, answer) for answer, _ in exercise.mistakes())
                taken += [right, wrong]
                print(f"{exercise.name:<24} right {right:6.3f} s   slowest wrong {wrong:6.3f} s")
    print(f"median {statistics.median(taken):.3f} s, slowest {max(taken):.3f} s")
    print(f"import course, after torch: {import_seconds('import course'):.3f} s")
    print(machine())
