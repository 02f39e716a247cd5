"""The script's loader with other settings, and what its items cost."""

import contextlib
import multiprocessing
import time
from collections.abc import Callable

from torch.utils.data import DataLoader, IterableDataset, default_collate, default_convert


def other_loader(loader, **changes) -> DataLoader:
    """A DataLoader like `loader`, whose workers stay between passes, with changes."""
    options = {
        name: getattr(loader, name)
        for name in ("num_workers", "collate_fn", "pin_memory", "worker_init_fn")
    }
    options |= changes
    if options["num_workers"]:
        forks = "fork" in multiprocessing.get_all_start_methods()
        context = loader.multiprocessing_context or ("fork" if forks else None)
        options |= {"persistent_workers": True, "multiprocessing_context": context}
        options["prefetch_factor"] = loader.prefetch_factor
    if isinstance(loader.dataset, IterableDataset):
        return DataLoader(
            loader.dataset, batch_size=loader.batch_size, drop_last=loader.drop_last, **options
        )
    if loader.batch_sampler is not None:
        return DataLoader(loader.dataset, batch_sampler=loader.batch_sampler, **options)
    return DataLoader(loader.dataset, batch_size=None, sampler=loader.sampler, **options)


def endless(loader):
    """Batches of `loader`, pass after pass."""
    while True:
        yield from loader


def loader_ways(loader, cores: int) -> dict:
    """{name: DataLoader} of other numbers of workers; {} if the loader is no DataLoader."""
    if not isinstance(loader, DataLoader):
        return {}
    numbers = sorted({0, 1, 2, 4, min(cores, 8)} - {loader.num_workers})
    return {f"num_workers={n}": other_loader(loader, num_workers=n) for n in numbers}


def loops(loaders: dict, step: Callable, batches: int) -> dict:
    """{name: function that takes `batches` of a loader and calls `step` for each}; their iterators
    stay open.

    `batches` must be more than workers have ready, which the call that does not count takes away.
    """
    iterators = {name: endless(one) for name, one in loaders.items()}

    def loop(iterator):
        for _ in range(batches):
            next(iterator)
            step()

    return {
        name: (lambda iterator=iterator: loop(iterator)) for name, iterator in iterators.items()
    }


def items(loader, seconds: float = 0.3) -> dict:
    """{"seconds", "busy", "shares"} of one item: reading, transform, collate; {} if items cannot be
    asked for.

    `busy` is the share of the time in which this process computed, and did not wait.
    """
    if not isinstance(loader, DataLoader) or isinstance(loader.dataset, IterableDataset):
        return {}
    spent, got, order = {"transform": 0.0}, [], iter(loader.sampler)
    with _timed_transform(loader.dataset, spent) as has_transform:
        begin, busy = time.perf_counter(), _busy_seconds()
        while len(got) < max(2, loader.batch_size or 1) and time.perf_counter() - begin < seconds:
            try:
                got.append(loader.dataset[next(order)])
            except (StopIteration, TypeError):  # a sampler of batches
                break
        total, busy = time.perf_counter() - begin, _busy_seconds() - busy
    if not got:
        return {}
    begin = time.perf_counter()
    loader.collate_fn(got if loader.batch_size else got[0])
    collate = time.perf_counter() - begin
    names = {
        "read": total - spent["transform"],
        "transform": spent["transform"],
        "collate": collate,
    }
    if not has_transform:
        names = {"item": total, "collate": collate}
    whole = total + collate
    own_collate = loader.collate_fn not in (default_collate, default_convert)
    return {"seconds": whole / len(got), "busy": min(1.0, busy / max(total, 1e-9)), "own_collate": own_collate,
            "shares": {name: part / whole for name, part in names.items()}}  # fmt: skip


def _busy_seconds():
    """Seconds in which this thread computed, or would have if it had a core: all but those in which
    it waited.
    """
    try:
        with open("/proc/thread-self/schedstat") as file:
            ran, queued, _ = map(int, file.read().split())
        return (ran + queued) / 1e9
    except (OSError, ValueError):  # no such file outside Linux
        return time.thread_time()


@contextlib.contextmanager
def _timed_transform(dataset, spent):
    """In the block calls of the dataset's transform are timed; yields whether it has one that can
    be seen.
    """
    while not callable(getattr(dataset, "transform", None)) and hasattr(dataset, "dataset"):
        dataset = dataset.dataset  # of a Subset
    owner = getattr(dataset, "transforms", None)
    # torchvision's StandardTransform
    owner = owner if callable(getattr(owner, "transform", None)) else dataset
    original = getattr(owner, "transform", None)
    if not callable(original) or "transform" not in vars(owner):
        yield False
        return

    def timed(*args, **kwargs):
        begin = time.perf_counter()
        try:
            return original(*args, **kwargs)
        finally:
            spent["transform"] += time.perf_counter() - begin

    owner.transform = timed
    try:
        yield True
    finally:
        owner.transform = original
