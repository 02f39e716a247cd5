"""What an item of the script's dataset costs: reading, transform, collate."""

import contextlib
import functools
import itertools
import time
from collections.abc import Callable, Iterator
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
    order = _order(loader)  # which takes its own time: that of a permutation of millions, too
    with _timed_transform(loader.dataset, spent) as has_transform:
        begin = time.perf_counter()
        busy_begin = _busy_seconds()
        got = _some_items(loader.dataset, order, begin + seconds)
        asking = time.perf_counter() - begin
        busy = _busy_seconds() - busy_begin
    if not got:
        return None
    makes_batches = loader.batch_sampler is not None
    begin = time.perf_counter()
    loader.collate_fn(got if makes_batches else got[0])
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
        self.is_inside = False


def _order(loader: DataLoader) -> list[Any]:
    """The indices of the items of a batch, or of as many without batches."""
    if loader.batch_sampler is not None:
        indices: list[Any] = []
        for batch in itertools.islice(loader.batch_sampler, ITEMS_MIN):
            indices += batch
            if len(indices) >= ITEMS_MIN:
                break
        return indices
    return list(itertools.islice(loader.sampler, ITEMS_MIN))


def _some_items(dataset: Any, order: list[Any], until: float) -> list[Any]:
    """The items of these indices, or as many as there is time for; at least ITEMS_MIN."""
    if hasattr(dataset, "__getitems__"):  # it gives a list of items, as the loader asks for them
        return dataset.__getitems__(order)
    got: list[Any] = []
    for index in order:
        got.append(dataset[index])
        if len(got) >= ITEMS_MIN and time.perf_counter() > until:
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
