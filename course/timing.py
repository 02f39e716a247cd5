"""Time loaders and functions in turn: contestants -> *seconds* -> plots.

What a pass over a loader is, and in which order contestants take turns, are exercises of unit 01 (seconds_per_pass,
sweep); their answers are arguments here.
"""

import sys
import time
from collections.abc import Callable, Iterable, Sequence

import torch
from tqdm import tqdm


def time_in_turn(
    loaders: Iterable,
    rounds: int,
    seconds_per_pass: Callable,
    sweep: Callable,
    n_batches: int | None = None,
    progress: bool = True,
) -> torch.Tensor:
    """Seconds of passes over each of `loaders`, measured in turn after one pass each that is not counted.

    The pass before starts persistent workers and fills the disk cache.

    Args:
        loaders: iterable of loaders that have a length.
        rounds: passes that count for each loader.
        seconds_per_pass, sweep: answers to the exercises of these names.
        n_batches: batches per pass (default: all of each loader).
        progress: whether to draw a bar to standard output.

    Returns: float64 tensor (number of loaders, rounds).
    """
    loaders = list(loaders)
    total, hidden = len(loaders) * (rounds + 1), not progress
    turns = tqdm(total=total, file=sys.stdout, leave=False, mininterval=1, desc="passes", disable=hidden)

    def measure(i):
        turns.update()
        return seconds_per_pass(loaders[i], n_batches or len(loaders[i]), repeats=1, warmup=0).item()

    with turns:
        for i in range(len(loaders)):
            measure(i)
        return sweep(measure, list(range(len(loaders))), rounds)


def speedup(seconds: torch.Tensor, i: int, base: int = 0) -> str:
    """Text "median (lowest to highest)": how many times as fast as row `base` row `i` of `seconds` was, by rounds."""
    ratios = seconds[base] / seconds[i]
    return f"{ratios.quantile(0.5):.2f} ({ratios.min():.2f} to {ratios.max():.2f})"


def microseconds(function: Callable, inputs: Sequence) -> tuple[float, list]:
    """(mean µs per input of calling `function` on each of `inputs`, list of its results)."""
    begin = time.perf_counter()
    results = [function(x) for x in inputs]
    return 1e6 * (time.perf_counter() - begin) / len(inputs), results
