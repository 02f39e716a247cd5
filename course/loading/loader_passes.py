"""Compare numbers of workers: a dataset -> interleaved passes over its loaders -> ratios, CPU time.

A pass has a multiple of the workers as batches, at least 40, and workers that are running already.
What a pass is, is an exercise of unit 01 (seconds_per_pass), whose answer is an argument here. The
comparison is that of comparison.py; CPU time is counted in the same passes.
"""

import math
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from unittest import mock

import torch
from torch.utils.data import Dataset, default_collate

from course.loading.loaders import OneWorker, WorkerCosts, effective_cores, forked
from course.measure import usage
from course.measure.comparison import (
    Comparison,
    Interval,
    compare_measured,
    difference_interval,
    furthest,
    ratio_interval,
    steady_batches,
)
from course.text import counted

TOO_SHORT = "CPU time unknown (a pass is shorter than a tick of its clock, or there is no /proc)"
SecondsPerPass = Callable[..., torch.Tensor]
PredictSeconds = Callable[..., torch.Tensor]


class Sleeping(Dataset):
    """`n` items that each take `seconds` of waiting and no computing."""

    def __init__(self, n: int, seconds: float):
        self.n = n
        self.seconds = seconds

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, i: int) -> int:
        time.sleep(self.seconds)
        return i


class Repeated(Dataset):
    """The first `n` items of `data`, from the beginning again where it has fewer.

    An item that comes again is made again: nothing is kept but the file's bytes, by the system.
    """

    def __init__(self, data: Dataset, n: int):
        self.data = data
        self.n = n

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, i: int) -> object:
        return self.data[i % len(self.data)]


class Trained:
    """The batches of `loader`, each after `step(batch)`, as a training loop takes them."""

    def __init__(self, loader: Iterable, step: Callable[[object], object]):
        self.loader = loader
        self.step = step

    def __iter__(self) -> Iterator:
        for batch in self.loader:
            self.step(batch)
            yield batch


def collate_as_a_worker(items: Sequence[torch.Tensor]) -> torch.Tensor:
    """The batch of `items` in new shared memory, where a worker's default_collate puts it."""
    with mock.patch("torch.utils.data.get_worker_info", return_value=True):
        return default_collate(items)


@dataclass(frozen=True)
class WorkerComparison:
    """Passes with several numbers of workers, each compared with the first number.

    `cpu_seconds` are those of the main process and its workers, in the passes of `passes.seconds`.
    """

    passes: Comparison
    cpu_seconds: dict[str, torch.Tensor]  # (rounds,) per way
    n_items: int  # of a pass

    def ratio(self, workers: int) -> Interval:
        """How many times as fast as the base a pass with `workers` is."""
        return self.passes.ratio(way_of(workers))

    def overhead(self, workers: int) -> Interval:
        """CPU seconds per item, times those of the base."""
        return ratio_interval(self._cpu(workers), self.cpu_seconds[self.passes.base])

    def parallelism(self, workers: int) -> Interval:
        """Cores busy on average, times those of the base; the speed-up is this / overhead."""
        base = self.passes.base
        busy = self._cpu(workers) / self.passes.seconds[way_of(workers)]
        return ratio_interval(busy, self.cpu_seconds[base] / self.passes.seconds[base])

    def extra_ms(self, workers: int) -> Interval:
        """CPU milliseconds that an item takes more than with the base."""
        per_item = 1000 / self.n_items
        base = self.cpu_seconds[self.passes.base]
        return difference_interval(
            (per_item * self._cpu(workers)).tolist(), (per_item * base).tolist()
        )

    def breakdown(self, workers: int) -> str:
        """A line: speed-up = parallelism ÷ overhead, and the CPU time that an item takes more."""
        extra = self.extra_ms(workers)
        speed_up = f"speed-up {self.ratio(workers).estimate:.2f}"
        parallelism = self.parallelism(workers)
        overhead = self.overhead(workers)
        for factor in (parallelism.estimate, overhead.estimate):
            if not math.isfinite(factor) or factor == 0:
                return f"{speed_up}: {TOO_SHORT}"
        return (
            f"{speed_up} = parallelism {parallelism} ÷ overhead {overhead}, "
            f"{extra.estimate:+.2f} ms of CPU time per image"
        )

    def _cpu(self, workers):
        return self.cpu_seconds[way_of(workers)]

    def __str__(self) -> str:
        return str(self.passes)


def way_of(workers: int) -> str:
    """The name of a number of workers in a comparison: "0 workers", "1 worker"."""
    return counted(workers, "worker")


def batches_for(workers: Sequence[int]) -> int:
    """The batches of a pass that is in its steady state with each of these numbers of workers."""
    return steady_batches(math.lcm(*(max(each, 1) for each in workers)))


def compare_workers(
    data: Dataset,
    batch_size: int,
    workers: Sequence[int],
    seconds_per_pass: SecondsPerPass,
    *,
    step: Callable[[object], object] | None = None,
    synchronize: Callable[[], object] | None = None,
    collate_fn: Callable[[list], object] | None = None,
    **limits: Any,
) -> WorkerComparison:
    """The WorkerComparison of passes over `data`; the first of `workers` is the base.

    All passes have the same batches, `batches_for(workers)`; see Repeated. The pass that does not
    count starts the workers, which are persistent.

    Args:
        seconds_per_pass: the answer to the exercise of this name.
        step: what the loop does with a batch (default: nothing).
        synchronize: waits for the work that `step` queues.
        collate_fn: makes a batch of items (default: that of torch).
        limits: as in compare_loaders.
    """
    n_batches = batches_for(workers)
    repeated = Repeated(data, n_batches * batch_size)
    loaders = {}
    for number in workers:
        loader = forked(repeated, batch_size, number, collate_fn=collate_fn)
        loaders[way_of(number)] = Trained(loader, step) if step else loader
    cpu_of = {}  # (way, seconds) of a pass -> its CPU seconds

    def measure(way: str) -> float:
        before = usage.cpu_seconds()
        taken = seconds_per_pass(
            loaders[way], n_batches, repeats=1, warmup=0, synchronize=synchronize
        )
        cpu_of[way, taken.item()] = usage.cpu_seconds() - before
        return taken.item()

    passes = compare_measured(list(loaders), measure, **{"progress": True} | limits)
    cpu = {}
    for way, of_rounds in passes.seconds.items():
        used = [cpu_of[way, taken] for taken in of_rounds.tolist()]
        cpu[way] = torch.tensor(used, dtype=torch.float64)
    return WorkerComparison(passes, cpu, len(repeated))


def compare_loaders(
    loaders: Mapping[str, Iterable], n_batches: int, seconds_per_pass: SecondsPerPass, **limits: Any
) -> Comparison:
    """The Comparison of passes over the first `n_batches` batches of each of `loaders`.

    Args:
        loaders: {way: loader}; the first one is the base.
        n_batches: at best a multiple of the workers of each, and 40 or more.
        seconds_per_pass: the answer to the exercise of this name.
        limits: half_width, rounds, seconds and progress of compare_measured.
    """

    def measure(way: str) -> float:
        return seconds_per_pass(loaders[way], n_batches, repeats=1, warmup=0).item()

    return compare_measured(list(loaders), measure, **{"progress": True} | limits)


def compare_lengths(
    batches: Mapping[str, int],
    item_seconds: float,
    workers: int,
    seconds_per_pass: SecondsPerPass,
    **limits: Any,
) -> Comparison:
    """The Comparison of passes of different lengths.

    A batch is one item, for which a worker sleeps `item_seconds`.

    Args:
        batches: {way: batches of its pass}; the first way is the base.
        workers: of every loader; they are running before a pass counts.
        seconds_per_pass: the answer to the exercise of this name.
        limits: half_width, rounds, seconds and progress of compare_measured.
    """
    loaders = {way: forked(Sleeping(n, item_seconds), 1, workers) for way, n in batches.items()}

    def measure(way: str) -> float:
        return seconds_per_pass(loaders[way], batches[way], repeats=1, warmup=0).item()

    return compare_measured(list(batches), measure, **limits)


ONE_WORKER = "1 worker"  # the way of a Forecast whose costs are measured


@dataclass(frozen=True)
class Forecast:
    """What one worker costs, and passes with other numbers of workers, in the same rounds."""

    passes: Comparison  # "0 workers", ONE_WORKER and the others
    costs: list[WorkerCosts]  # per round
    cores: list[float]  # effective ones, per round
    n_batches: int  # of a pass
    others: float  # cores that other programs used

    def ms(self, workers: int) -> torch.Tensor:
        """float64 (rounds,): milliseconds per batch of a pass."""
        return 1000 * self.passes.seconds[way_of(workers)] / self.n_batches

    def interval_ms(self, workers: int) -> Interval:
        """Milliseconds per batch; the interval is that of the ratio to no workers."""
        return self.passes.time(way_of(workers)).scaled(1000 / self.n_batches)

    def predicted_ms(
        self, workers: Sequence[int], predict_seconds: PredictSeconds, waits: bool = False
    ) -> torch.Tensor:
        """float64 (len(workers), rounds): milliseconds per batch, by each round's costs and cores.

        Args:
            predict_seconds: the answer to the exercise of this name.
            waits: whether an item is waited for: then its seconds by the clock need no core, its
                CPU seconds do, and the longer time counts.
        """
        of_rounds = []
        for costs, cores in zip(self.costs, self.cores, strict=True):
            seconds = predict_seconds(workers, costs.cpu, costs.main, cores)
            if waits:
                waited = predict_seconds(workers, costs.wall, costs.main, math.inf)
                seconds = torch.maximum(seconds, waited)
            of_rounds.append(1000 * seconds)
        return torch.stack(of_rounds, dim=1)

    def measured_over(self, predicted_ms: torch.Tensor, workers: int) -> Interval:
        """Measured milliseconds per batch, times `predicted_ms`, a tensor (rounds,)."""
        return ratio_interval(self.ms(workers), predicted_ms)

    def costs_shown(self) -> str:
        """A line: the medians of a and c, the range of n, and how quiet the machine was."""
        a = 1000 * statistics.median(costs.cpu for costs in self.costs)
        c = 1000 * statistics.median(costs.main for costs in self.costs)
        return (
            f"a = {a:.1f} ms, c = {c:.1f} ms, n = {min(self.cores):.2f} to {max(self.cores):.2f}; "
            f"other programs used {self.others:.1f} cores; {self.passes.rounds} rounds, "
            f"{self.passes.stopped}, control {self.passes.control}"
        )


def forecast(
    data: Dataset,
    batch_size: int,
    workers: Sequence[int],
    seconds_per_pass: SecondsPerPass,
    computed: Dataset,
    cores_seconds: float,
    **limits: Any,
) -> Forecast:
    """The Forecast of `workers`, none of them 1; 0 comes first.

    In a round, the costs of one worker and the effective cores are measured with the passes.

    Args:
        computed: items whose making says how many effective cores there are.
        cores_seconds: of making them in one process, and in all.
        limits: as in compare_loaders.
    """
    n_batches = batches_for(workers)
    repeated = Repeated(data, n_batches * batch_size)
    one = OneWorker(repeated, batch_size)
    loaders = {way_of(number): forked(repeated, batch_size, number) for number in workers}
    costs_of = {}  # seconds of a pass with one worker -> (its costs, effective cores)

    def measure(way: str) -> float:
        if way != ONE_WORKER:
            return seconds_per_pass(loaders[way], n_batches, repeats=1, warmup=0).item()
        costs = one.costs()
        seconds = costs.wall * n_batches
        costs_of[seconds] = (costs, effective_cores(computed, 1, cores_seconds))
        return seconds

    busy, own, begin = usage.busy_seconds(), usage.cpu_seconds(), time.perf_counter()
    first, *rest = loaders
    passes = compare_measured([first, ONE_WORKER, *rest], measure, **{"progress": True} | limits)
    used = usage.busy_seconds() - busy - usage.cpu_seconds() + own
    others = used / (time.perf_counter() - begin)
    found = [costs_of[seconds] for seconds in passes.seconds[ONE_WORKER].tolist()]
    costs = [costs for costs, _ in found]
    cores = [cores for _, cores in found]
    return Forecast(passes, costs, cores, n_batches, others)


@dataclass(frozen=True)
class CheckedForecast:
    """A Forecast, and what the formula makes of its one worker."""

    found: Forecast
    predicted: dict[int, float]  # number of workers, from 1 on -> ms per batch
    measured: dict[int, Interval]  # 0 and the numbers held out -> ms per batch
    missed: dict[int, Interval]  # the numbers held out -> measured over predicted

    def furthest_miss(self) -> Interval:
        """The measured over the predicted time that is furthest from 1."""
        return furthest(self.missed.values())

    def fastest(self, workers: Sequence[int]) -> int:
        """The one of these numbers of workers that was measured to be fastest."""
        return min(workers, key=lambda number: self.found.interval_ms(number).estimate)

    def times_as_long(self, workers: int, other: int) -> Interval:
        """How many times as long a batch takes with `workers` as with `other`, measured."""
        return ratio_interval(self.found.ms(workers), self.found.ms(other))

    def __str__(self) -> str:
        ratios = ", ".join(f"{way_of(number)} {ratio}" for number, ratio in self.missed.items())
        return f"{self.found.costs_shown()}\n    measured over predicted: {ratios}"


def checked_forecast(
    data: Dataset,
    batch_size: int,
    workers: Sequence[int],
    *,
    seconds_per_pass: SecondsPerPass,
    predict_seconds: PredictSeconds,
    computed: Dataset,
    cores_seconds: float,
    waits: bool = False,
    **limits: Any,
) -> CheckedForecast:
    """The CheckedForecast of the numbers `workers`, each 2 or more.

    Args:
        predict_seconds: the answer to the exercise of this name.
        waits: whether an item is waited for; see Forecast.predicted_ms.
        seconds_per_pass, computed, cores_seconds, limits: see `forecast`.
    """
    found = forecast(
        data, batch_size, [0, *workers], seconds_per_pass, computed, cores_seconds, **limits
    )
    by_round = found.predicted_ms([1, *workers], predict_seconds, waits)
    medians = by_round.quantile(0.5, dim=1).tolist()
    predicted = dict(zip([1, *workers], medians, strict=True))
    missed = {}
    measured = {0: found.interval_ms(0)}
    for number, ms in zip(workers, by_round[1:], strict=True):
        missed[number] = found.measured_over(ms, number)
        measured[number] = missed[number].scaled(predicted[number])
    return CheckedForecast(found, predicted, measured, missed)
