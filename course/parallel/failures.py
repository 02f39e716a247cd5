"""A long run on devices that fail, simulated: *an interval between saves* -> seconds until it ends.

Failures come at random, equally often at any time, so the time between two is exponential.
How often to save is a task of unit 07, part 5.

Source: Daly 2006, "A higher order estimate of the optimum checkpoint interval for restart dumps",
Future Generation Computer Systems 22.
"""

import math
import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from course.measure.comparison import Interval, ratio_interval


@dataclass(frozen=True)
class LongRun:
    """A job that any failure of one of its devices ends; it restarts from its latest save.

    All times are in seconds.
    """

    work: float  # without saves and failures
    saving: float  # one save, during which nothing is computed
    restart: float
    between_failures: float  # of one device, on average
    devices: int


def simulated_seconds(run: LongRun, interval: float, seed: int) -> float:
    """Seconds until all work is saved, which it is after every `interval` seconds of work.

    Runs with the same seed have the same failures. A failure during a save or a restart counts.
    """
    rng = random.Random(seed)
    failures_per_second = run.devices / run.between_failures
    clock = 0.0
    done = 0.0
    starting = 0.0  # what comes before the work: a restart, after a failure
    failure = rng.expovariate(failures_per_second)
    while done < run.work:
        piece = min(interval, run.work - done)
        end = clock + starting + piece + run.saving
        if end <= failure:
            clock = end
            done += piece
            starting = 0.0
        else:
            clock = failure
            failure += rng.expovariate(failures_per_second)
            starting = run.restart
    return clock


def expected_seconds(run: LongRun, interval: float) -> float:
    """The mean of `simulated_seconds` over all failures, if `interval` divides the work.

    Source: Daly 2006, the complete model.
    """
    between = run.between_failures / run.devices
    once = math.exp(run.restart / between) * math.expm1((interval + run.saving) / between)
    return between * once * run.work / interval


def mean_seconds(run: LongRun, interval: float, seeds: Sequence[int]) -> float:
    """The mean of `simulated_seconds` over `seeds`."""
    return statistics.fmean(simulated_seconds(run, interval, seed) for seed in seeds)


def times_as_long(run: LongRun, interval: float, other: float, seeds: Sequence[int]) -> Interval:
    """How many times as long `run` takes with `interval` as with `other`, paired by seed."""
    with_interval = [simulated_seconds(run, interval, seed) for seed in seeds]
    with_other = [simulated_seconds(run, other, seed) for seed in seeds]
    return ratio_interval(torch.tensor(with_interval), torch.tensor(with_other))


def over_expected(run: LongRun, interval: float, seeds: Sequence[int]) -> Interval:
    """How many times as long simulated runs take as `expected_seconds` says."""
    simulated = torch.tensor([simulated_seconds(run, interval, seed) for seed in seeds])
    return ratio_interval(simulated, torch.full_like(simulated, expected_seconds(run, interval)))
