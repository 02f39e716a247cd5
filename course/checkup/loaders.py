"""The script's loader with other settings."""

import itertools
import math
import multiprocessing
import time
from collections.abc import Callable, Iterator
from typing import Any

from torch.utils.data import DataLoader, IterableDataset
from torch.utils.data._utils import worker

from course.checkup.facts import NUM_WORKERS, NoWay
from course.measure.comparison import steady_batches
from course.measure.timing import now

KEPT = ("num_workers", "collate_fn", "pin_memory", "worker_init_fn")  # settings, unless changed
WORKERS = (0, 1, 2, 4)  # numbers that are tried, and one per core
WORKERS_MAX = 8
ROWS = 3  # of an IterableDataset that are read to see whether it asks which ones are its own
BATCHES_MIN = 12  # per turn, where time is short


def other_loader(loader: DataLoader, **changes: Any) -> DataLoader:
    """A DataLoader like `loader`, whose workers stay between passes, with changes."""
    options = {name: getattr(loader, name) for name in KEPT}
    options |= changes
    if options["num_workers"]:
        can_fork = "fork" in multiprocessing.get_all_start_methods()
        own_context = loader.multiprocessing_context
        options["persistent_workers"] = True
        options["multiprocessing_context"] = own_context or ("fork" if can_fork else None)
        options["prefetch_factor"] = loader.prefetch_factor
    if isinstance(loader.dataset, IterableDataset):
        options["batch_size"] = loader.batch_size
        options["drop_last"] = loader.drop_last
    elif loader.batch_sampler is not None:
        options["batch_sampler"] = loader.batch_sampler
    else:
        options["batch_size"] = None
        options["sampler"] = loader.sampler
    return DataLoader(loader.dataset, **options)


def endless(loader: DataLoader) -> Iterator[Any]:
    """Batches of `loader`, pass after pass.  Raises: NoWay after a pass without any."""
    while True:
        n_batches = 0
        for batch in loader:
            n_batches += 1
            yield batch
        if not n_batches:
            raise NoWay("a pass over its data gave no batch: maybe they can be read only once")


def computing_for(seconds: float) -> Callable[[], None]:
    """A function that keeps a core busy for so long."""

    def compute() -> None:
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            pass

    return compute


class _AskedInfo:
    """Stands for the WorkerInfo of a worker, and notes whether it is asked who it is."""

    def __init__(self, dataset: Any) -> None:
        self.asked = False
        self._values = {"id": 0, "num_workers": 2, "seed": 0, "dataset": dataset}

    def __getattr__(self, name: str) -> Any:
        if name in ("id", "num_workers"):
            self.asked = True
        return self._values[name]


def check_sharding(loader: DataLoader) -> None:
    """Raise NoWay unless workers would share out the rows of an IterableDataset.

    Each worker iterates over its own copy of the dataset, so each gives all rows, unless the
    dataset asks `get_worker_info()` which rows are its own.
    """
    dataset = loader.dataset
    if not isinstance(dataset, IterableDataset):
        return
    name = type(dataset).__name__
    if iter(dataset) is iter(dataset):
        raise NoWay(f"{name} can be read only once")
    info = _AskedInfo(dataset)
    worker._worker_info = info  # where get_worker_info() looks
    try:
        for _ in itertools.islice(iter(dataset), ROWS):
            pass
    finally:
        worker._worker_info = None
    if not info.asked:
        raise NoWay(f"{name} does not ask get_worker_info(), so each worker would give all rows")


def loader_ways(loader: DataLoader, cores: int) -> dict[str, DataLoader]:
    """{name: DataLoader} with other numbers of workers."""
    numbers = {*WORKERS, min(cores, WORKERS_MAX)} - {loader.num_workers}
    return {f"{NUM_WORKERS}{n}": other_loader(loader, num_workers=n) for n in sorted(numbers)}


def seconds_per_batch(
    batches: Iterator[Any], step: Callable[[], Any], start_up: int, n_batches: int, device: str
) -> float:
    """Seconds per batch of taking `n_batches` and calling `step` after each.

    Args:
        start_up: batches before the clock counts: what workers have ready from their last turn.
    """
    begin = now(device)
    for number in range(start_up + n_batches):
        if number == start_up:
            begin = now(device)
        next(batches)
        step()
    return (now(device) - begin) / n_batches


def ready_batches(loader: DataLoader) -> int:
    """The batches that the workers of `loader` make ahead, at most."""
    return loader.num_workers * (loader.prefetch_factor or 0)


def batches_that_fit(loader: DataLoader, fitting: int) -> int:
    """The batches of a steady pass, or fewer if only `fitting` fit: a multiple of the workers."""
    each = max(1, loader.num_workers)
    wanted = min(steady_batches(loader.num_workers), max(BATCHES_MIN, fitting))
    return each * math.ceil(wanted / each)
