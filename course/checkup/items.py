"""What an item of the script's dataset costs: reading, transform, collate."""

import contextlib
import itertools
import time
from collections.abc import Callable, Iterator
from typing import Any

from torch.utils.data import DataLoader, IterableDataset, default_collate, default_convert

from course.checkup.facts import Items
from course.checkup.item_watch import LOOKS_MIN, ItemWatch

SECONDS_MAX = 0.3  # of asking for items
LOOK_SECONDS = 0.1  # in which lines are looked at
ITEMS_MIN = 2
ITEMS_MAX = 1000


def items_of(loader: DataLoader, seconds: float = SECONDS_MAX) -> Items | None:
    """The Items of a loader, read in this process; None if items cannot be asked for."""
    if isinstance(loader.dataset, IterableDataset):
        return None
    indices = _indices(loader)
    spent = Spent()
    with _timed_transform(loader.dataset, spent) as has_transform:
        busy_begin = _busy_seconds()
        begin = time.perf_counter()
        with ItemWatch() as watch:
            batch, n_items = _read(loader, indices, begin, seconds, watch)
        asking = time.perf_counter() - begin
        busy = _busy_seconds() - busy_begin
    if not batch:
        return None
    begin = time.perf_counter()
    loader.collate_fn(batch if loader.batch_sampler is not None else batch[0])
    collate = (time.perf_counter() - begin) / len(batch)
    item = asking / n_items
    if has_transform:
        transform = spent.seconds / n_items
        parts = {"read": item - transform, "transform": transform}
    else:
        parts = {"item": item}
    parts["collate"] = collate
    total = item + collate
    return Items(
        seconds=total,
        busy=min(1.0, busy / max(asking, 1e-9)),
        own_collate=loader.collate_fn not in (default_collate, default_convert),
        shares={name: part / total for name, part in parts.items()},
        line=watch.line,
        line_share=watch.line_share,
        opened=watch.opened(n_items),
    )


class Spent:
    """Seconds that calls of a function took."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def timed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """`function`, whose seconds are added."""

        def timed(*args: Any, **kwargs: Any) -> Any:
            begin = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                self.seconds += time.perf_counter() - begin

        return timed


def _indices(loader: DataLoader) -> list[Any]:
    """The first indices that the sampler draws, before a clock counts; [] if it draws batches."""
    try:
        return list(itertools.islice(iter(loader.sampler), ITEMS_MAX))
    except TypeError:
        return []


def _read(
    loader: DataLoader, indices: list[Any], begin: float, seconds: float, watch: ItemWatch
) -> tuple[list[Any], int]:
    """The items of one batch, and how many were read to see lines for a while.

    Fewer if there is no time for them; none if they cannot be asked for.
    """
    wanted = max(ITEMS_MIN, loader.batch_size or 1)
    batch: list[Any] = []
    n_items = 0
    for index in indices:
        spent = time.perf_counter() - begin
        has_looked = spent >= LOOK_SECONDS and watch.looks >= LOOKS_MIN
        if spent >= seconds or (n_items >= wanted and has_looked):
            break
        try:
            item = loader.dataset[index]
        except TypeError:  # a dataset that takes batches of indices
            break
        n_items += 1
        if len(batch) < wanted:
            batch.append(item)
    return batch, n_items


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
    # torchvision's datasets call one or the other: dataset.transform, or its StandardTransform's
    owners = []
    for owner in (dataset, getattr(dataset, "transforms", None)):
        if "transform" in vars_of(owner) and callable(owner.transform):
            owners.append((owner, owner.transform))
    for owner, original in owners:
        owner.transform = spent.timed(original)
    try:
        yield bool(owners)
    finally:
        for owner, original in owners:
            owner.transform = original


def vars_of(value: Any) -> dict[str, Any]:
    """The attributes of an object; {} without __dict__."""
    return getattr(value, "__dict__", {})
