"""Judge a loader by what it delivers: *any loader* -> how random, what from the disk, how fast.

The loader may be anything that can be iterated. Three questions, each with its null:

- How far are the batches from random ones? The variance of the batch means over that of random
  batches (`batch_bias` of unit 04), which is 1 for a random order, whatever the values are.
- What comes from the disk per epoch? The system counts the bytes of this process and its workers.
- How long does the step wait? Measured *inside* the step, because a loader that is timed alone
  finds the memory of its last batch warm; compared with copying the same bytes there, by equally
  many threads.

`course loader-report` prints the answers (commands/loader_report.py).
"""

import itertools
import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, IterableDataset

from course.errors import CourseError
from course.loading import batch_fields
from course.measure.comparison import Comparison, compare_measured
from course.measure.usage import disk_bytes

STEP_BATCHES = 40  # of a round, unless they take too long
ROUNDS = (7, 31)
RUNS_PER_ROUND = 4  # loader, the same again, memcpy, and batches that are not counted
COPIED_MAX = 400_000_000  # bytes of the memory that memcpy copies from
SHORTEST = 1e-7  # seconds: a wait of less is called this long
PLACE = "place in the dataset"
NORMAL = 1.959964  # the quantile of the normal distribution that an interval of 95 % takes
RARE = 3.719016  # that one in 10,000 is above
COPY, LOADER = "memcpy", "the loader"

ENDED = object()

Step = Callable[[Any], object]


@dataclass
class Seen:
    """What the batches of one epoch held, as far as it was looked at."""

    batches: int = 0
    batch_size: int = 0  # of the first batch
    samples: int = 0
    nbytes: int = 0
    from_disk: float = 0.0  # bytes; NaN where nobody counts
    is_whole: bool = False  # whether the loader ended
    described: str = ""
    seconds_to_first: float = 0.0
    values: dict[str, list] = field(default_factory=lambda: defaultdict(list))

    @property
    def full(self) -> int:
        """The samples of the full batches at the beginning: all but those of a short last one."""
        return self.samples // self.batch_size * self.batch_size if self.batch_size else 0

    @property
    def distinct(self) -> int:
        """How many samples differ from all others, in a value of any field."""
        return len(set(zip(*self.values.values(), strict=True))) if self.values else 0


@dataclass(frozen=True)
class Bias:
    """How many times as large as of random batches the variance of batch means is, per field.

    Of random batches it lies between `low` and `high`, 19 times in 20, with all fields. Above
    `alarm` it is about once in 10,000.
    """

    of_fields: dict[str, float]
    low: float
    high: float
    alarm: float

    @property
    def worst(self) -> str:
        """The field that is furthest above 1."""
        return max(self.of_fields, key=self.of_fields.get)


# ---- what the batches hold


def look(
    loader: Iterable[Any],
    seconds: float = math.inf,
    most: int | None = None,
    step: Step | None = None,
) -> Seen:
    """Iterate over `loader` once and keep a value per sample and field.

    Args:
        seconds: after which no further batch is asked for.
        most: batches at most.
        step: is called with each batch, as a training would.

    Raises: CourseError if there is no batch, or none that holds samples.
    """
    seen = Seen()
    before = disk_bytes()
    start = time.monotonic()
    for batch in itertools.islice(loader, most):
        if not seen.batches:
            seen.seconds_to_first = time.monotonic() - start
        add(seen, batch)
        if step is not None:
            step(batch)
        if time.monotonic() - start > seconds:
            break
    else:
        seen.is_whole = most is None or seen.batches < most
    seen.from_disk = disk_bytes() - before
    if not seen.batches:
        raise CourseError(
            "the loader gave no batch; is its dataset empty, or its iterator used up?"
        )
    return seen


def add(seen: Seen, batch: Any) -> None:
    """Add a batch to what was `seen`."""
    columns = batch_fields.columns(batch)
    if not columns:
        raise CourseError(
            f"batch {seen.batches}, of type {type(batch).__name__}, holds no tensor and no list of "
            "samples; return a tensor, a dict or a tuple with an entry per sample."
        )
    size = len(next(iter(columns.values())))
    if not seen.batches:
        seen.batch_size = size
        seen.described = batch_fields.described(batch)
        for name in columns:
            seen.values[name] = []
    seen.batches += 1
    seen.samples += size
    seen.nbytes += batch_fields.n_bytes(batch)
    for name, kept in seen.values.items():
        column = columns.get(name)
        kept += [math.nan] * size if column is None else batch_fields.values(column)


# ---- how random they are


def bias_of(seen: Seen, places: Sequence[int] = (), in_a_row: int = 1) -> Bias | None:
    """The Bias of what was seen; None with fewer than two full batches, or if nothing varies.

    Args:
        places: of the samples in the dataset, in the order of an epoch; see `places_of`.
        in_a_row: consecutive batches whose mean is judged. The order of the batches shows from 2 on
            only: a file in its order and its shuffled shards have equal batches.
    """
    ratios = {}
    size = in_a_row * seen.batch_size
    for name, kept in (*seen.values.items(), (PLACE, places)):
        numbers = as_numbers(kept)[: seen.full]
        ratio = variance_ratio(numbers[: len(numbers) // max(size, 1) * size], size)
        if ratio is not None:
            ratios[name] = ratio
    if not ratios:
        return None
    low, high = range_of_random(seen.samples // size, len(ratios))
    _, alarm = range_of_random(seen.samples // size, len(ratios), RARE)
    return Bias(ratios, low, high, alarm)


def as_numbers(kept: Sequence[float] | Sequence[str]) -> np.ndarray:
    """The values of a field as float64; texts by their place in the sorted list of all texts."""
    if len(kept) and isinstance(kept[0], str):
        return np.unique(np.array(kept, dtype=str), return_inverse=True)[1].astype(float)
    return np.asarray(kept, dtype=float)


def variance_ratio(numbers: np.ndarray, batch: int) -> float | None:
    """The variance of the means of batches over that of random ones; None if that is unknown.

    Args:
        numbers: a value per sample in the order of delivery, full batches only.
    """
    n = len(numbers)
    if n < 2 * batch or batch < 1 or not np.isfinite(numbers).all():
        return None
    centred = numbers - numbers.mean()
    spread = np.mean(centred**2)
    if spread <= 1e-18 * max(1.0, np.mean(numbers**2)):
        return None
    sums = np.add.reduceat(centred, np.arange(0, n, batch))
    by_chance = spread * batch * (n - batch) / (n - 1)
    return float(np.mean(sums**2) / by_chance)


def range_of_random(batches: int, fields: int = 1, normal: float = NORMAL) -> tuple[float, float]:
    """What the variance ratio of random batches lies between, for all `fields`, 19 times in 20.

    `normal` is the quantile of the normal distribution that says how often: 1.96 for 19 in 20.

    The ratio of k batches is nearly chi-square with k - 1 degrees over k - 1; this is Wilson and
    Hilferty's approximation of 1931, and the quantile grows with the number of fields that are
    compared (roughly as Bonferroni's).
    """
    free = max(batches - 1, 1)
    quantile = math.sqrt(normal**2 + 2 * math.log(fields))
    width = quantile * math.sqrt(2 / (9 * free))
    middle = 1 - 2 / (9 * free)
    return max(0.0, middle - width) ** 3, (middle + width) ** 3


def places_of(loader: Any, most: int) -> list[int]:
    """The row numbers of an epoch of a DataLoader over a dataset with indices; else an empty list.

    They are asked of its sampler, `most` of them at most.
    """
    if not isinstance(loader, DataLoader) or isinstance(loader.dataset, IterableDataset):
        return []
    drawn = loader.sampler if loader.batch_sampler is None else loader.batch_sampler
    places = []
    for item in drawn:
        flat = torch.as_tensor(item).flatten().tolist() if _is_number(item) else []
        places += flat
        if not flat or len(places) >= most:
            break
    return places


def _is_number(item: Any) -> bool:
    """Whether an index, or each of a list of them, is a number."""
    first = item[0] if isinstance(item, list | tuple) and item else item
    return isinstance(first, int | np.integer | torch.Tensor | np.ndarray)


# ---- how long the step waits


class Feed:
    """The batches of a loader, epoch after epoch, and how long each was waited for.

    The first batch of an epoch, which starts workers, is kept apart, in `starts`.
    """

    def __init__(self, loader: Iterable[Any]):
        self.loader = loader
        self.starts: list[float] = []
        self.last: Any = None  # the latest batch
        self._iterator: Iterator[Any] = iter(())

    def wait(self) -> float:
        """Take the next batch; return the seconds that it took.

        Of an epoch with a single batch it is the first one.
        """
        taken = self._take()
        if taken is None:
            begin = time.perf_counter()
            self._iterator = iter(self.loader)
            first = self._take()
            if first is None:
                raise CourseError(
                    "the loader gave batches in its first epoch and none in a later one; "
                    "make_loader() must return something that can be iterated again."
                )
            self.starts.append(time.perf_counter() - begin)
            taken = self._take()
        return self.starts[-1] if taken is None else taken

    def _take(self) -> float | None:
        """Seconds of the next batch; None at the end of an epoch."""
        begin = time.perf_counter()
        batch = next(self._iterator, ENDED)
        if batch is ENDED:
            return None
        self.last = batch
        return time.perf_counter() - begin


@dataclass(frozen=True)
class Waiting:
    """How long a step waits for a batch, compared with copying its bytes in the same place."""

    compared: Comparison  # of rounds: the loader, and memcpy
    batches: int  # of a round
    of_step: float  # the share of the time of loader and step that is waiting
    start: float  # seconds until the first batch of an epoch, the median
    threads: int  # that memcpy has

    @property
    def seconds(self) -> float:
        """Seconds that the step waits per batch."""
        return self.compared.median(LOADER) / self.batches

    def times_memcpy(self):
        """The Interval of how many times as long as memcpy the step waits."""
        return self.compared.ratio(COPY)


def waiting(
    loader: Iterable[Any],
    step: Step = batch_fields.read_all,
    threads: int = 1,
    ahead: int = 2,
    seconds: float = 20.0,
) -> Waiting:
    """The Waiting of a loader inside `step`.

    Both ways take batches by turns. For memcpy the step gets the loader's latest batch again, so
    both find the caches as the step left them.

    Args:
        step: is called with each batch.
        threads: that memcpy uses: as many as the loader.
        ahead: batches that the loader may prepare while memcpy runs; they are not counted.
        seconds: that it takes, about.
    """
    feed = Feed(loader)
    feed.wait()
    pace = _pace(feed, step)
    count = int(seconds / ROUNDS[0] / RUNS_PER_ROUND / max(pace, SHORTEST))
    count = max(1, min(STEP_BATCHES, count))
    copy = _copier(batch_fields.n_bytes(feed.last), threads)
    stepping = []

    def measure(way: str) -> float:
        if way == LOADER:
            for _ in range(ahead):
                feed.wait()
                step(feed.last)
        total = 0.0
        for _ in range(count):
            total += feed.wait() if way == LOADER else copy()
            begin = time.perf_counter()
            step(feed.last)
            _synchronize()
            stepping.append(time.perf_counter() - begin)
        return max(total, SHORTEST * count)

    compared = compare_measured([LOADER, COPY], measure, rounds=ROUNDS, seconds=seconds)
    waited = compared.median(LOADER) / count
    of_step = waited / (waited + float(np.median(stepping)))
    return Waiting(compared, count, of_step, float(np.median(feed.starts)), threads)


def _pace(feed: Feed, step: Step) -> float:
    """Seconds of a batch and its step, of three of them."""
    begin = time.perf_counter()
    for _ in range(3):
        feed.wait()
        step(feed.last)
    _synchronize()
    return (time.perf_counter() - begin) / 3


def _copier(nbytes: int, threads: int) -> Callable[[], float]:
    """A function that copies `nbytes` from the next place of a large memory: seconds."""
    n = max(1, nbytes // 4)
    source = torch.ones(max(1, min(STEP_BATCHES, COPIED_MAX // (4 * n))), n)
    target = torch.zeros_like(source)
    rows = itertools.cycle(range(len(source)))

    def copy() -> float:
        row = next(rows)
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        begin = time.perf_counter()
        target[row].copy_(source[row])
        taken = time.perf_counter() - begin
        torch.set_num_threads(before)
        return taken

    return copy


def prefetched(loader: Any) -> int:
    """Batches that a loader's workers may have ready; 2 where it is not a DataLoader."""
    workers = getattr(loader, "num_workers", None)
    if not isinstance(loader, DataLoader) or workers is None:
        return 2
    return workers * (loader.prefetch_factor or 0)


def loading_threads(loader: Any) -> int:
    """How many threads a loader may use: its workers, or those of torch where it has none."""
    workers = getattr(loader, "num_workers", 0)
    if isinstance(workers, int) and workers > 0:
        return workers
    return torch.get_num_threads()


def _synchronize() -> None:
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.synchronize()
