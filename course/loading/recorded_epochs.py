"""Epochs whose reading and computing are recorded: loader, step -> *events* -> plots.

A recorded epoch says when each fill of a buffer and each step ran, so that a formula for the whole
can be tested with the times of its parts, alone and next to each other. Cold epochs begin with a
file that is not in the page cache.
"""

import functools
import math
import mmap
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch

from course.loading.loaders import Fill, Loader
from course.loading.record_files import RecordFile
from course.measure.comparison import Comparison, Interval, compare_measured
from course.measure.page_cache import Reads, drop_cached, limited, map_rows, reads

READ, COMPUTE = "read", "compute"  # the lanes of an epoch
MAPPED = "random rows, mapped"
MAPPED_RANDOM = "random rows, mapped, MADV_RANDOM"
PAGES = "pages, read calls"
DIRECT = "pages, O_DIRECT"
WAYS = (MAPPED, MAPPED_RANDOM, PAGES, DIRECT)

Step = Callable[[torch.Tensor], object]


class Event(NamedTuple):
    """One fill or one step, in seconds since the start of the epoch."""

    lane: str  # READ or COMPUTE
    start: float
    end: float


@dataclass(frozen=True)
class Epoch:
    """Seconds of an epoch, and the events in it."""

    seconds: float
    events: list[Event]

    def durations(self, lane: str) -> list[float]:
        """Seconds of each fill or of each step, in their order."""
        return [event.end - event.start for event in self.events if event.lane == lane]

    def median(self, lane: str) -> float:
        """The median of `durations`."""
        return statistics.median(self.durations(lane))


def recorded_epoch(loader: Loader, step: Step, path: Path | str) -> Epoch:
    """The Epoch of a loader that was just made, from a file that is dropped before.

    Threads, and memory pages of the buffers, are made before the clock starts.

    Args:
        step: gets the x of each batch.
        path: of the file that the loader reads.
    """
    events: list[Event] = []
    fill = loader.fill
    for buffer in loader.buffers:
        fill(loader.order(0)[: len(buffer)], buffer)
    drop_cached(path)
    begin = time.perf_counter()

    def record(lane: str, call: Callable, *args: object) -> object:
        start = time.perf_counter()
        result = call(*args)
        events.append(Event(lane, start - begin, time.perf_counter() - begin))
        return result

    loader.fill = functools.partial(record, READ, fill)
    for x, _ in loader:
        record(COMPUTE, step, x)
    return Epoch(time.perf_counter() - begin, events)


def compare_epochs(
    ways: Mapping[str, Callable[[], Epoch]], seconds: float
) -> tuple[Comparison, dict[str, list[Epoch]]]:
    """The Comparison of `ways`, and the epochs that each of them ran, in the order of the rounds.

    The runs that only warm up are left out; those of the control are among the first way's.
    """
    ran: dict[str, list[Epoch]] = {way: [] for way in ways}

    def measure(way: str) -> float:
        epoch = ways[way]()
        ran[way].append(epoch)
        return epoch.seconds

    compared = compare_measured(list(ways), measure, seconds=seconds)
    return compared, {way: epochs[1:] for way, epochs in ran.items()}


def typical(epochs: list[Epoch]) -> Epoch:
    """The Epoch whose seconds are the median."""
    return sorted(epochs, key=lambda epoch: epoch.seconds)[len(epochs) // 2]


def repeats_for(seconds: float, once: float, nine_times: float) -> int:
    """How often a step repeats its product so that it takes about `seconds`.

    Args:
        once, nine_times: seconds of a step that makes the product once, and nine times.
    """
    one_more = max((nine_times - once) / 8, once / 100)
    return 1 + max(0, round((seconds - once) / one_more))


@dataclass(frozen=True)
class Gain:
    """How many times as fast several buffers are as one: measured, and predicted."""

    step_over_fill: float  # seconds of the steps over those of the fills, with one buffer
    measured: Interval
    predicted: float

    @property
    def share_found(self) -> Interval:
        """The share of the predicted gain that was found, on logarithms: 1 is all, 0 none."""
        ends = (self.measured.estimate, self.measured.low, self.measured.high)
        return Interval(*(math.log(end) / math.log(self.predicted) for end in ends))


def gain_of(measured: Interval, alone: Epoch, pipeline: Callable, buffers: int) -> Gain:
    """The Gain of `buffers` buffers over one, predicted from the times of an epoch with one.

    Args:
        alone: that epoch.
        pipeline: the answer: (fills, steps, buffers) -> seconds of an epoch.
    """
    fills = alone.durations(READ)
    steps = alone.durations(COMPUTE)
    predicted = pipeline(fills, steps, buffers=1) / pipeline(fills, steps, buffers=buffers)
    return Gain(sum(steps) / sum(fills), measured, predicted)


def reads_directly(file: RecordFile, rows: int) -> bool:
    """Whether the rows of this file can be read past the page cache; prints if nothing is cold."""
    try:
        loader = file.loader("quasi-random", rows=rows, threads=2, direct=True)
        is_direct = next(iter(loader)) is not None
    except (OSError, ValueError):
        is_direct = False
    if not drop_cached(file.path) and not is_direct:
        print("This system has no posix_fadvise: the file stays in memory and is measured warm.")
    return is_direct


class ColdReading:
    """Epochs of the first rows of a file from a cold start, in several WAYS to read it.

    Args:
        gather: the answer: (table, index, out) -> the rows `index` of `table`, written into `out`.
        step: gets the x of each batch.
    """

    def __init__(self, file: RecordFile, rows: int, gather: Callable, step: Step):
        self.file = file
        self.rows = rows
        self.gather = gather
        self.step = step
        self.file_bytes = rows * file.stride

    def epochs(
        self, way: str, room: float | None = None, n: int = 2
    ) -> list[tuple[float, Reads]] | str:
        """(seconds, Reads) of `n` epochs of a new loader, the first one cold; or why there is none.

        Args:
            room: the share of the file for which there is memory; None for all of it.
        """
        mappings: list[mmap.mmap] = []
        try:
            loader = self._loader(way, mappings)
            if room:
                most = room * self.file_bytes
                loader.fill = limited(loader.fill, most, self.file.path, *mappings)
            drop_cached(self.file.path, *mappings)
            return [self._epoch(loader) for _ in range(n)]
        except (OSError, ValueError) as error:
            return f"{type(error).__name__}: {error}"

    def share_read(self, found: list[tuple[float, Reads]] | str, epoch: int) -> float:
        """The bytes from the disk in an epoch, counted from 1, over those of the file; else NaN."""
        if isinstance(found, str):
            return math.nan
        return found[epoch - 1][1].disk_bytes / self.file_bytes

    def _epoch(self, loader: Loader) -> tuple[float, Reads]:
        before = reads()
        start = time.perf_counter()
        for x, _ in loader:
            self.step(x)
        return time.perf_counter() - start, reads().since(before)

    def _loader(self, way: str, mappings: list[mmap.mmap]) -> Loader:
        """A new loader; the mapping that it reads from is added to `mappings`."""
        if way in (PAGES, DIRECT):
            is_direct = way == DIRECT
            return self.file.loader("quasi-random", rows=self.rows, threads=1, direct=is_direct)
        advice = getattr(mmap, "MADV_RANDOM", None) if way == MAPPED_RANDOM else None
        mapping, table = map_rows(self.file.path, self.rows, self.file.stride, advice)
        mappings.append(mapping)
        loader = self.file.loader(rows=self.rows)
        loader.fill = self._gather_from(table)
        return loader

    def _gather_from(self, table: torch.Tensor) -> Fill:
        def fill(index: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
            return self.gather(table, index, out)

        return fill


def print_cold(cold: ColdReading, race: Mapping[tuple[str, str], object]) -> None:
    """Print what each way reads from the disk in both epochs, and its major faults in the second.

    Args:
        race: {(room, way): what `cold.epochs` returned}.
    """
    batches = math.ceil(cold.rows / cold.file.batch)
    print(f"{cold.rows:,} rows in {batches} batches, {cold.file_bytes / 1e6:.0f} MB")
    heads = f"{'epoch 1':>10}{'epoch 2':>10}{'major faults in epoch 2':>26}"
    print(f"{'times the file, from the disk, in':<38}{heads}")
    shown = None
    for (room, way), found in race.items():
        if room != shown:
            print(room)
            shown = room
        if isinstance(found, str):
            print(f"  {way}: {found}")
            continue
        first = cold.share_read(found, 1)
        second = cold.share_read(found, 2)
        _, reads_of_second = found[1]
        print(f"  {way:<36}{first:10.2f}{second:10.2f}{reads_of_second.major_faults:26,}")
