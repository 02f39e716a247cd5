"""What an item of the script's dataset costs: reading, transform, collate."""

import contextlib
import time
from collections.abc import Iterator
from typing import Any

from torch.utils.data import DataLoader, IterableDataset, default_collate, default_convert

from course.checkup.facts import Items

SECONDS_MAX = 0.3  # of asking for items
ITEMS_MIN = 2


def items_of(loader: DataLoader, seconds: float = SECONDS_MAX) -> Items | None:
    """The Items of a loader, read in this process; None if items cannot be asked for."""
    if isinstance(loader.dataset, IterableDataset):
        return None
    spent = Spent()
    with _timed_transform(loader.dataset, spent) as has_transform:
        begin = time.perf_counter()
        busy_begin = _busy_seconds()
        got = _some_items(loader, begin + seconds)
        asking = time.perf_counter() - begin
        busy = _busy_seconds() - busy_begin
    if not got:
        return None
    begin = time.perf_counter()
    loader.collate_fn(got if loader.batch_size else got[0])
    collate = time.perf_counter() - begin
    if has_transform:
        parts = {"read": asking - spent.seconds, "transform": spent.seconds}
    else:
        parts = {"item": asking}
    parts["collate"] = collate
    total = asking + collate
    return Items(
        seconds=total / len(got),
        busy=min(1.0, busy / max(asking, 1e-9)),
        own_collate=loader.collate_fn not in (default_collate, default_convert),
        shares={name: part / total for name, part in parts.items()},
    )


class Spent:
    """Seconds that calls of a function took."""

    def __init__(self) -> None:
        self.seconds = 0.0


def _some_items(loader: DataLoader, until: float) -> list[Any]:
    """The items of one batch, or as many as there is time for; [] if none can be asked for."""
    order = iter(loader.sampler)
    wanted = max(ITEMS_MIN, loader.batch_size or 1)
    got: list[Any] = []
    while len(got) < wanted and time.perf_counter() < until:
        try:
            got.append(loader.dataset[next(order)])
        except (StopIteration, TypeError):  # a sampler of batches
            break
    return got


def _busy_seconds() -> float:
    """Seconds in which this thread computed, or would have if it had a core.

    That is all time but that in which it waited.
    """
    try:
        with open("/proc/thread-self/schedstat") as file:
            ran, queued, _ = file.read().split()
        return (int(ran) + int(queued)) / 1e9
    except (OSError, ValueError):  # no such file outside Linux
        return time.thread_time()


@contextlib.contextmanager
def _timed_transform(dataset: Any, spent: Spent) -> Iterator[bool]:
    """In the block calls of the dataset's transform are timed.

    Yields: whether it has one that can be seen.
    """
    while not callable(getattr(dataset, "transform", None)) and hasattr(dataset, "dataset"):
        dataset = dataset.dataset  # of a Subset
    standard = getattr(dataset, "transforms", None)  # torchvision's StandardTransform
    owner = standard if callable(getattr(standard, "transform", None)) else dataset
    original = getattr(owner, "transform", None)
    if not callable(original) or "transform" not in vars(owner):
        yield False
        return

    def timed(*args: Any, **kwargs: Any) -> Any:
        begin = time.perf_counter()
        try:
            return original(*args, **kwargs)
        finally:
            spent.seconds += time.perf_counter() - begin

    owner.transform = timed
    try:
        yield True
    finally:
        owner.transform = original
