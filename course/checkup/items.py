"""What an item of the script's dataset costs: reading, transform, collate."""

import contextlib
import functools
import itertools
import time
from collections.abc import Callable, Iterator
from typing import Any

from torch.utils.data import DataLoader, IterableDataset, default_collate, default_convert

from course.checkup.facts import Items
from course.checkup.item_watch import LOOKS_MIN, ItemWatch
from course.system.core_time import core_time

SECONDS_MAX = 0.3  # of asking for items
LOOK_SECONDS = 0.1  # in which lines are looked at
ITEMS_MIN = 2
ITEMS_MAX = 1000


def items_of(loader: DataLoader, seconds: float = SECONDS_MAX) -> Items | None:
    """The Items of a loader, read in this process; None if items cannot be asked for."""
    if isinstance(loader.dataset, IterableDataset):
        return None
    order = _order(loader)  # which takes its own time: that of a permutation of millions, too
    if not order:
        return None
    spent = Spent()
    with _timed_transform(loader.dataset, spent) as has_transform:
        busy_begin = _busy_seconds()
        begin = time.perf_counter()
        with ItemWatch() as watch:
            batch, n_items = _read(loader, order, begin, seconds, watch)
        asking = time.perf_counter() - begin
        busy = _busy_seconds() - busy_begin
    makes_batches = loader.batch_sampler is not None
    begin = time.perf_counter()
    loader.collate_fn(batch if makes_batches else batch[0])
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
        self.is_inside = False


def _order(loader: DataLoader) -> list[list[Any]]:
    """The indices of some batches, at most about ITEMS_MAX; each alone if there are no batches."""
    order = []
    n_items = 0
    for drawn in loader.sampler if loader.batch_sampler is None else loader.batch_sampler:
        order.append([drawn] if loader.batch_sampler is None else list(drawn))
        n_items += len(order[-1])
        if n_items >= ITEMS_MAX:
            break
    return order


def _read(
    loader: DataLoader, order: list[list[Any]], begin: float, seconds: float, watch: ItemWatch
) -> tuple[list[Any], int]:
    """The items of the first batch, and how many were read to see lines for a while.

    Fewer than a batch if there is no time for it; at least ITEMS_MIN.
    """
    in_batch = len(order[0])
    batch: list[Any] = []
    n_items = 0
    for items in _asked(loader, order):
        batch += items[: in_batch - len(batch)]
        n_items += len(items)
        spent = time.perf_counter() - begin
        has_looked = spent >= LOOK_SECONDS and watch.looks >= LOOKS_MIN
        has_read = len(batch) == in_batch and has_looked
        if n_items >= ITEMS_MIN and (has_read or spent >= seconds):
            break
    return batch, n_items


def _asked(loader: DataLoader, order: list[list[Any]]) -> Iterator[list[Any]]:
    """Items as the loader asks for them: a batch in one call, or one after the other.

    After the last it begins again, because too little time shows no line.
    """
    asks_for_lists = loader.batch_sampler is not None and hasattr(loader.dataset, "__getitems__")
    for indices in itertools.cycle(order):
        if asks_for_lists:
            yield loader.dataset.__getitems__(indices)
            continue
        for index in indices:
            yield [loader.dataset[index]]


def _busy_seconds() -> float:
    """Seconds in which this thread computed, or would have if it had a core.

    That is all time but that in which it waited.
    """
    spent = core_time()
    return time.thread_time() if spent is None else spent.ran + spent.queued


@contextlib.contextmanager
def _timed_transform(dataset: Any, spent: Spent) -> Iterator[bool]:
    """In the block calls of the dataset's transform are timed.

    torchvision's datasets call their `transform`, or that of their `transforms`: both are timed.
    Yields: whether it has one that can be seen.
    """
    while not callable(getattr(dataset, "transform", None)) and hasattr(dataset, "dataset"):
        dataset = dataset.dataset  # of a Subset
    owners = [one for one in (dataset, getattr(dataset, "transforms", None)) if _has_own(one)]
    originals = [owner.transform for owner in owners]
    for owner, original in zip(owners, originals, strict=True):
        owner.transform = _timed(original, spent)
    try:
        yield bool(owners)
    finally:
        for owner, original in zip(owners, originals, strict=True):
            owner.transform = original


def _has_own(owner: Any) -> bool:
    """Whether a transform is an attribute of the object itself, which can be replaced."""
    return hasattr(owner, "__dict__") and callable(vars(owner).get("transform"))


def _timed(transform: Callable[..., Any], spent: Spent) -> Callable[..., Any]:
    @functools.wraps(transform, updated=())
    def timed(*args: Any, **kwargs: Any) -> Any:
        if spent.is_inside:  # one of two calls the other
            return transform(*args, **kwargs)
        spent.is_inside = True
        begin = time.perf_counter()
        try:
            return transform(*args, **kwargs)
        finally:
            spent.is_inside = False
            spent.seconds += time.perf_counter() - begin

    return timed
