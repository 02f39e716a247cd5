"""Contests of learning rate schedules: *accuracies by seed and peak* -> paired differences.

A schedule is a list with the learning rate and the momentum of each step. In a contest all
schedules train with the same seeds and the same peaks, so each can be taken at its own best peak,
and two of them differ seed by seed.
"""

import contextlib
import itertools
import math
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from course.measure.comparison import Interval, difference_interval

MOMENTUM = 0.9
POINTS = 100  # of accuracy, in a share of 1
STUDIES_MIN = 50  # small studies of which a share is worth a comparison

Schedule = list[tuple[float, float]]


# ---- schedules, (peak, steps) -> Schedule


def constant(peak: float, steps: int) -> Schedule:
    """`peak` at every step."""
    return [(peak, MOMENTUM)] * steps


def cyclic(peak: float, steps: int) -> Schedule:
    """Three triangles from a tenth of `peak`, each half as high as the one before.

    Source: Smith 2017, arXiv:1506.01186, "triangular2".
    """
    half = steps / 6
    made = []
    for step in range(steps):
        number, place = divmod(step, 2 * half)
        height = (1 - abs(place / half - 1)) / 2**number
        made.append((peak / 10 + 0.9 * peak * height, MOMENTUM))
    return made


def cosine(peak: float, steps: int) -> Schedule:
    """Half a period of a cosine, from `peak` to almost 0."""
    return [(peak * (1 + math.cos(math.pi * step / steps)) / 2, MOMENTUM) for step in range(steps)]


def linear(peak: float, steps: int) -> Schedule:
    """A straight line from `peak` to almost 0."""
    return [(peak * (1 - step / steps), MOMENTUM) for step in range(steps)]


def stable_then_decay(peak: float, steps: int, share: float = 0.2) -> Schedule:
    """`peak`, and in the last `share` of the steps a straight line to almost 0: WSD, no warm-up."""
    first = round((1 - share) * steps)
    return constant(peak, first) + linear(peak, steps - first)


def one_cycle(peak: float, steps: int) -> Schedule:
    """The cycle of Smith 2018: up, down in as many steps, and far down in the last tenth.

    PyTorch's OneCycleLR with the options that make it this one; its defaults are another schedule.
    """
    return of_scheduler(
        steps,
        max_lr=peak,
        pct_start=0.45,
        anneal_strategy="linear",
        div_factor=10,
        final_div_factor=1e4,
        three_phase=True,
    )


def torch_default(peak: float, steps: int) -> Schedule:
    """OneCycleLR with its defaults: a rise of 30 % and a fall, both along a cosine."""
    return of_scheduler(steps, max_lr=peak)


def of_scheduler(steps: int, **options: object) -> Schedule:
    """What torch.optim.lr_scheduler.OneCycleLR sets, given its `options`."""
    weight = torch.zeros(1, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=1.0, momentum=MOMENTUM)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, total_steps=steps, **options)
    group = optimizer.param_groups[0]
    made = []
    for step in range(steps):
        made.append((group["lr"], group["momentum"]))
        optimizer.step()
        if step < steps - 1:
            scheduler.step()
    return made


SCHEDULES = {
    "constant": constant,
    "cyclic": cyclic,
    "cosine": cosine,
    "linear": linear,
    "one cycle": one_cycle,
}


# ---- contests


@dataclass(frozen=True)
class Contest:
    """Accuracies of each contestant, tensors (seeds, peaks), shares of 1."""

    peaks: tuple[float, ...]
    accuracies: dict[str, Tensor]

    def best_peak(self, name: str) -> float:
        """The peak with the highest mean over the seeds."""
        return self.peaks[int(self.accuracies[name].mean(0).argmax())]

    def at_best(self, name: str) -> list[float]:
        """The accuracies at the best peak, one per seed."""
        return self.accuracies[name][:, self.peaks.index(self.best_peak(name))].tolist()

    def ahead(self, name: str, other: str) -> Interval:
        """By how many points `name` is ahead of `other`, each at its own best peak."""
        return points_ahead(self.at_best(name), self.at_best(other))

    def part(self, seeds: Sequence[int], peaks: Sequence[int]) -> "Contest":
        """The smaller Contest with these rows and columns of the table alone."""
        few = {}
        for name, table in self.accuracies.items():
            few[name] = table[list(seeds)][:, list(peaks)]
        return Contest(tuple(self.peaks[place] for place in peaks), few)


def contest(
    train: Callable[[Schedule, int], float],
    contestants: Mapping[str, Callable[[float, int], Schedule]],
    peaks: Sequence[float],
    seeds: Sequence[int],
    steps: int,
) -> Contest:
    """The Contest of all contestants, each trained with each seed and each peak.

    Args:
        train: called with a Schedule and a seed, gives an accuracy.
    """
    places = list(itertools.product(range(len(seeds)), range(len(peaks)), contestants))
    shape = (len(seeds), len(peaks))
    found = {name: torch.zeros(shape, dtype=torch.float64) for name in contestants}
    for row, column, name in tqdm(places, "trainings", file=sys.stdout, leave=False):
        schedule = contestants[name](peaks[column], steps)
        found[name][row, column] = train(schedule, seeds[row])
    return Contest(tuple(peaks), found)


def points_ahead(scores: Sequence[float], others: Sequence[float]) -> Interval:
    """The Interval of `scores` minus `others`, shares paired by seed, in points."""
    apart = difference_interval(scores, others)
    return Interval(POINTS * apart.estimate, POINTS * apart.low, POINTS * apart.high)


def paired_spread(scores: Sequence[float], others: Sequence[float]) -> float:
    """The standard deviation of `scores` minus `others`, shares paired by seed, in points."""
    return POINTS * statistics.stdev(a - b for a, b in zip(scores, others, strict=True))


# ---- what a small study would have found


@dataclass(frozen=True)
class Studies:
    """What all small studies that a Contest contains would have published about two schedules."""

    gains: list[float]  # points by which the first is ahead, in the mean of the seeds
    first_wins: int  # studies in which it is ahead with every seed
    second_wins: int

    @property
    def share_of_wins(self) -> float:
        """The share of studies in which one of the two is ahead with every seed."""
        return (self.first_wins + self.second_wins) / len(self.gains)


def small_studies(
    whole: Contest, name: str, other: str, n_seeds: int = 3, n_peaks: int = 2
) -> Studies:
    """The Studies that take `n_seeds` of the seeds and `n_peaks` of the peaks of a Contest."""
    table = whole.accuracies[name]
    gains = []
    wins = {1: 0, -1: 0, 0: 0}
    for seeds in itertools.combinations(range(len(table)), min(n_seeds, len(table))):
        for peaks in itertools.combinations(range(len(whole.peaks)), n_peaks):
            few = whole.part(seeds, peaks)
            pairs = zip(few.at_best(name), few.at_best(other), strict=True)
            points = [POINTS * (a - b) for a, b in pairs]
            gains.append(statistics.mean(points))
            wins[_common_sign(points)] += 1
    return Studies(gains, wins[1], wins[-1])


def _common_sign(values):
    """1 if all are positive, -1 if all are negative, else 0."""
    if min(values) > 0:
        return 1
    return -1 if max(values) < 0 else 0


def seeds_to_see(difference: float, spread: float) -> int:
    """About how many seeds make the interval of 95 % reach less than `difference` to each side.

    It reaches two standard errors, 2 spread / √seeds, and needs six seeds to exist.

    Args:
        spread: the standard deviation of the paired differences.
    """
    return max(6, math.ceil((2 * spread / difference) ** 2))


def steps_needed(accuracies: Mapping[int, float], target: float) -> float:
    """Steps at which a line between the neighbours, over the logarithm of steps, has `target`.

    The ends count for what lies beyond them.

    Args:
        accuracies: {length of a training: accuracy at its end}, growing.
    """
    lengths = sorted(accuracies)
    logarithms = [math.log(length) for length in lengths]
    found = np.interp(target, [accuracies[length] for length in lengths], logarithms)
    return math.exp(float(found))


# ---- a budget of memory


@contextlib.contextmanager
def activation_budget(n_bytes: int) -> Iterator[None]:
    """Raise CUDA's OutOfMemoryError inside if a forward pass saves more than `n_bytes`."""
    left = n_bytes

    def keep(tensor: Tensor) -> Tensor:
        nonlocal left
        left -= tensor.numel() * tensor.element_size()
        if left < 0:
            raise torch.OutOfMemoryError(f"out of memory: more than {n_bytes:,} bytes are saved")
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        yield
