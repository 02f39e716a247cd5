"""Probe of exercise choose_workers."""

import torch

from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.laws import tried
from course.engine.probing.values import type_word

WORKERS = (1, 2, 4, 8, 16)


@exercise()
def choose_workers(answer: Answer, device: torch.device, seed: int) -> Facts:
    """The fewest that are nearly the best; seconds are halves and quarters, so limits are exact."""
    work = 8.0 * (1 + seed % 3)
    n = 1 + seed % 997
    line = {}  # number of workers -> seconds
    flat = {}
    for workers in WORKERS:
        line[workers * n] = work / workers
        flat[workers * n] = max(work / 4, work / workers)
    chosen = answer(flat)
    yield "returns a whole number", type_word(chosen)
    yield "more workers gain nothing: take the fewest that are as good", chosen
    yield "each worker gains: take the most", answer(line)
    yield "by default 0.05: 4 % slower than the fastest is near enough", answer({12: 1.04, 16: 1.0})
    yield "by default 0.05: 6 % slower is not", answer({12: 1.06, 16: 1.0})
    in_milliseconds = {workers: seconds / 1000 for workers, seconds in line.items()}
    yield "slack is a share, not seconds", answer(in_milliseconds)
    yield "in any order", answer({workers * n: flat[workers * n] for workers in (16, 2, 8, 4, 1)})
    yield "a slack of a half", answer({1: work, 2: work / 2, 4: work / 4, 8: work * 3 / 16}, 0.5)
    halves = {8 * n: work, 6 * n: 2 * work, 4 * n: 4 * work}
    yield "exactly at the limit is near enough", answer(halves, 1.0)
    yield "just above the limit is not", answer({8: work, 6: 2 * work, 4: 4 * work}, 0.99)
    nearly = {**flat, 2 * n: work / 4 + 0.001}
    yield "without slack: only equals of the best", answer(nearly, slack=0.0)
    yield "0 workers, where they are the fastest", tried(answer({0: work / 8, **flat}), n)
    none = {4: work / 4, 2: work / 2, 0: work / 4 * 1.03}
    yield "0 workers, where they are nearly as fast", tried(answer(none), n)
