"""The script's loader with other settings."""

import functools
import multiprocessing
from collections.abc import Callable, Iterator
from typing import Any

from torch.utils.data import DataLoader, IterableDataset

from course.checkup.facts import NUM_WORKERS

KEPT = ("num_workers", "collate_fn", "pin_memory", "worker_init_fn")  # settings, unless changed
WORKERS = (0, 1, 2, 4)  # numbers that are tried, and one per core
WORKERS_MAX = 8


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
    """Batches of `loader`, pass after pass."""
    while True:
        yield from loader


def loader_ways(loader: DataLoader, cores: int) -> dict[str, DataLoader]:
    """{name: DataLoader} with other numbers of workers."""
    numbers = {*WORKERS, min(cores, WORKERS_MAX)} - {loader.num_workers}
    return {f"{NUM_WORKERS}{n}": other_loader(loader, num_workers=n) for n in sorted(numbers)}


def loops(
    loaders: dict[str, DataLoader], step: Callable[[], Any], batches: int
) -> dict[str, Callable[[], None]]:
    """{name: function that takes `batches` of a loader and calls `step` for each}.

    The iterators stay open. `batches` must be more than workers have ready, which the call that
    does not count takes away.
    """

    def loop(iterator: Iterator[Any]) -> None:
        for _ in range(batches):
            next(iterator)
            step()

    return {name: functools.partial(loop, endless(one)) for name, one in loaders.items()}
