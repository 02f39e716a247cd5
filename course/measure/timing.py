"""Time loaders and functions, interleaved.

What a pass over a loader is, is an exercise of unit 01 (seconds_per_pass), whose answer is an
argument here.
"""

import random
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from tqdm import tqdm

from course.text import counted as counted  # what unit 01 calls timing.counted

# verdicts of a Comparison
HELPED = "helped"
DID_NOT_HELP = "did not help here"
SLOWER = "slower here"
NOT_DECIDED = "not decided here"
NOT_MEASURED = "not measured here"
# a change of less than two percent is not worth a line of code, and within what a machine wavers
MARGIN = 0.02


def now(device: torch.device | str = "cpu") -> float:
    """The seconds of a clock, read when all work that was queued on `device` has ended."""
    getattr(torch, torch.device(device).type).synchronize(device)
    return time.perf_counter()


def sweep(
    measure: Callable[[Any], float], settings: Sequence, rounds: int = 5, seed: int = 0
) -> torch.Tensor:
    """Seconds `measure(setting)` of every setting, in each round in another shuffled order.

    Returns: float64 tensor (len(settings), rounds); rows in the order of `settings`.
    Source: Mytkowicz, Diwan, Hauswirth and Sweeney 2009, "Producing wrong data without doing
    anything obviously wrong!"
    """
    shuffler = random.Random(seed)
    order = list(range(len(settings)))
    seconds = torch.empty(len(settings), rounds, dtype=torch.float64)
    for round_ in range(rounds):
        shuffler.shuffle(order)
        for i in order:
            seconds[i, round_] = measure(settings[i])
    return seconds


def time_in_turn(
    loaders: Iterable,
    rounds: int,
    seconds_per_pass: Callable,
    n_batches: int | None = None,
    progress: bool = True,
) -> torch.Tensor:
    """Seconds of interleaved passes over each of `loaders`.

    One pass over each before them is not counted: it starts persistent workers and fills the disk
    cache.

    Args:
        loaders: iterable of loaders that have a length.
        rounds: passes that count for each loader.
        seconds_per_pass: the answer to the exercise of this name.
        n_batches: batches per pass (default: all of each loader).
        progress: whether to draw a bar to standard output.

    Returns: float64 tensor (number of loaders, rounds).
    """
    loaders = list(loaders)

    def measure(i):
        turns.update()
        n = n_batches or len(loaders[i])
        return seconds_per_pass(loaders[i], n, repeats=1, warmup=0).item()

    with _bar("passes", len(loaders) * (rounds + 1), progress) as turns:
        for i in range(len(loaders)):
            measure(i)
        return sweep(measure, list(range(len(loaders))), rounds)


def _bar(name, total, shown):
    """A bar on standard output, which is gone when it ends."""
    return tqdm(
        total=total, file=sys.stdout, leave=False, mininterval=1, desc=name, disable=not shown
    )


def speedup(seconds: torch.Tensor, i: int, base: int = 0) -> str:
    """Text "median (lowest to highest)": how many times as fast as row `base` row `i` was.

    The columns of `seconds` are rounds.
    """
    ratios = seconds[base] / seconds[i]
    return f"{ratios.quantile(0.5):.2f} ({ratios.min():.2f} to {ratios.max():.2f})"


def microseconds(function: Callable, inputs: Sequence) -> tuple[float, list]:
    """(mean µs per input of calling `function` on each of `inputs`, list of its results)."""
    begin = time.perf_counter()
    results = [function(x) for x in inputs]
    return 1e6 * (time.perf_counter() - begin) / len(inputs), results


@dataclass(frozen=True)
class Comparison:
    """The times of a usual and of a changed way, round by round; or why nothing was measured."""

    seconds: torch.Tensor  # float64 (rounds, 2): the usual way, the changed way
    reason: str = ""  # "" if it was measured
    # a gain up to this does not count: two equal ways differed by as much, MARGIN at least
    noise: float = MARGIN

    @property
    def ratios(self) -> torch.Tensor:
        """float64 (rounds,): how many times as fast as the usual way the changed way was."""
        return self.seconds[:, 0] / self.seconds[:, 1]

    @property
    def ratio(self) -> float:
        """The median of `ratios`; NaN if nothing was measured."""
        if not len(self.seconds):
            return float("nan")
        return self.ratios.quantile(0.5).item()

    @property
    def spread(self) -> tuple[float, float]:
        """The lower and the upper quartile of `ratios`.

        Quartiles, because a round that was disturbed says nothing about either way.
        """
        low, high = self.ratios.quantile(torch.tensor([0.25, 0.75], dtype=torch.float64)).tolist()
        return low, high

    @property
    def verdict(self) -> str:
        """HELPED, SLOWER, DID_NOT_HELP, NOT_DECIDED or NOT_MEASURED.

        HELPED if even the lower quartile of `ratios` is over 1 by more than `noise`; SLOWER if even
        the upper one is below 1 by more than that; DID_NOT_HELP if the upper one is no more than
        MARGIN above 1.
        """
        if self.reason:
            return NOT_MEASURED
        low, high = self.spread
        if low > 1 + self.noise:
            return HELPED
        if high < 1 / (1 + self.noise):
            return SLOWER
        if high <= 1 + MARGIN:
            return DID_NOT_HELP
        return NOT_DECIDED

    @property
    def helped(self) -> bool | None:
        """Whether the change helped, as a claim takes it: None if not decided or not measured."""
        return {HELPED: True, DID_NOT_HELP: False, SLOWER: False}.get(self.verdict)

    @property
    def wobble(self) -> float:
        """How far the quartiles of `ratios` are from 1, MARGIN at least.

        It is the noise, if both ways are the same.
        """
        low, high = self.spread
        return max(MARGIN, high - 1, 1 / low - 1)

    def __str__(self) -> str:
        if self.reason:
            return f"{NOT_MEASURED}: {self.reason}"
        low, high = self.spread
        return f"{self.ratio:5.2f} ({low:.2f} to {high:.2f})  {self.verdict}"


def compare_in_turn(
    pairs: dict[str, tuple[Callable[[], Any], Callable[[], Any]] | str],
    rounds: int,
    device: torch.device | str = "cpu",
    progress: bool = True,
    control: str | None = None,
) -> dict[str, Comparison]:
    """{name: Comparison} of pairs of functions, timed interleaved.

    One call of each before is not counted. In each round every pair runs once, both of its
    functions one after the other; which of the two begins changes from round to round, so that a
    machine that gets slower or warmer favours neither.

    Args:
        pairs: {name: (usual way, changed way)}, functions without arguments that do the same work;
            or {name: reason}, a str, for what cannot be measured on this machine.
        rounds: how often each pair is timed; if even, each way begins equally often.
        device: is synchronised before the clock is read.
        progress: whether to draw a bar to standard output.
        control: name of a pair whose two ways are the same. How far the quartiles of its ratios are
            from 1 is the noise that all verdicts are held against (default: MARGIN alone).
    """
    measured = {name: pair for name, pair in pairs.items() if not isinstance(pair, str)}
    seconds = _seconds_of_pairs(measured, rounds, device, progress)
    noise = Comparison(seconds[control]).wobble if control else MARGIN
    comparisons = {}
    for name, pair in pairs.items():
        if isinstance(pair, str):
            nothing = torch.zeros(0, 2, dtype=torch.float64)
            comparisons[name] = Comparison(nothing, reason=pair)
        else:
            comparisons[name] = Comparison(seconds[name], noise=noise)
    return comparisons


def _seconds_of_pairs(pairs, rounds, device, progress):
    """{name: float64 tensor (rounds, 2)} of `pairs`, {name: (usual way, changed way)}."""
    seconds = {name: torch.zeros(rounds, 2, dtype=torch.float64) for name in pairs}
    with _bar("timing", 2 * len(pairs) * (rounds + 1), progress) as turns:
        for k in range(-1, rounds):  # round -1 warms up
            order = (0, 1) if k % 2 else (1, 0)
            for name, pair in pairs.items():
                for way in order:
                    duration = _seconds(pair[way], device)
                    turns.update()
                    if k >= 0:
                        seconds[name][k, way] = duration
    return seconds


def _seconds(call, device):
    """Seconds of `call()`, until `device` has done its work."""
    begin = now(device)
    call()
    return now(device) - begin


def timing_line(seconds: torch.Tensor, n_batches: int, batch_size: int) -> str:
    """Text "2.519 ± 0.042 s for 100 batches, 2,541 images/s".

    The first numbers are the mean and the sample standard deviation of passes.

    Args:
        seconds: float64 tensor (repeats,), of each pass; one alone has no spread.
        n_batches, batch_size: of a pass.
    """
    mean = seconds.mean().item()
    spread = f" ± {seconds.std().item():.3f}" if len(seconds) > 1 else ""
    images_per_second = n_batches * batch_size / mean
    return f"{mean:.3f}{spread} s for {n_batches} batches, {images_per_second:,.0f} images/s"
