"""What happens to one batch of a DataLoader: who builds it, when, what crosses processes for it.

Part 3 of unit 01 asks these questions; the times are taken in the process that builds the batch.
"""

import time
from multiprocessing import resource_sharer
from multiprocessing.context import ForkContext
from typing import Any, NamedTuple
from unittest import mock

import torch
from torch.utils.data import DataLoader, Dataset, default_collate, get_worker_info

from course.loading.loaders import forked

MAIN = "no workers: main process"
SENT, RECEIVED, CONNECTIONS = "sent", "received", "connections"


class Built(NamedTuple):
    """A batch, as the process saw it that built it."""

    process: str
    number: int
    start: float  # seconds, when its first item was asked for
    end: float  # when it was collated


class _Asked(Dataset):
    """The items of `data`, each with the moment at which it was asked for."""

    def __init__(self, data: Dataset):
        self.data = data

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, i: int) -> tuple[Any, float]:
        asked = time.perf_counter()
        return self.data[i], asked


def _stamped(items):
    """The collated batch, and who built it from when to when."""
    batch = default_collate([item for item, _ in items])
    info = get_worker_info()
    process = MAIN
    if info is not None:
        counted = "two workers" if info.num_workers == 2 else f"{info.num_workers} worker(s)"
        process = f"{counted}: worker {info.id}"
    return batch, process, items[0][1], time.perf_counter()


def stamped(data: Dataset, batch_size: int, num_workers: int) -> DataLoader:
    """A loader of `data` for `builds`; its workers, if any, are forked and persistent."""
    return forked(_Asked(data), batch_size, num_workers, collate_fn=_stamped)


def builds(loader: DataLoader) -> list[Built]:
    """What a pass over a loader that `stamped` gives has built; times count from its start."""
    begin = time.perf_counter()
    found = []
    for number, (_, process, start, end) in enumerate(loader):
        found.append(Built(process, number, start - begin, end - begin))
    return found


def seconds_to_build(loader: DataLoader) -> float:
    """The median seconds that a batch of a pass took its process."""
    seconds = [built.end - built.start for built in builds(loader)]
    return torch.tensor(seconds, dtype=torch.float64).quantile(0.5).item()


class _Counted:
    """A queue of multiprocessing that counts what this process puts in and takes out."""

    def __init__(self, queue: Any, counts: dict[str, int]):
        self._queue = queue
        self._counts = counts

    def put(self, message: Any, *args: Any, **kwargs: Any) -> None:
        if message is not None:  # None ends a worker
            self._counts[SENT] += 1
        self._queue.put(message, *args, **kwargs)

    def get(self, *args: Any, **kwargs: Any) -> Any:
        message = self._queue.get(*args, **kwargs)
        self._counts[RECEIVED] += 1
        return message

    def __getattr__(self, name: str) -> Any:
        return getattr(self._queue, name)


class _CountingFork(ForkContext):
    """Fork, with queues that count the messages of the main process."""

    def __init__(self) -> None:
        super().__init__()
        self.counts = {SENT: 0, RECEIVED: 0, CONNECTIONS: 0}

    def Queue(self, maxsize: int = 0) -> _Counted:  # noqa: N802  multiprocessing's name
        return _Counted(super().Queue(maxsize), self.counts)


def _of_tensors(n):
    """A collate_fn whose batch is `n` tensors, each in memory that it shares with nothing."""
    return lambda items: [default_collate(items) for _ in range(n)]


def messages(dataset: Dataset, batch_size: int, num_workers: int, tensors: int) -> dict[str, int]:
    """What the main process does in a pass to get its batches from workers, counted.

    It has SENT messages to the workers through queues and RECEIVED some. Where a worker passes
    memory as an open file (torch's default on Linux), the main process also opens CONNECTIONS to
    the worker, each of which has several short messages, to get the file.

    Args:
        tensors: of which a batch consists, all of them equal.
    """
    context = _CountingFork()
    loader = DataLoader(
        dataset,
        batch_size,
        num_workers=num_workers,
        multiprocessing_context=context,
        collate_fn=_of_tensors(tensors),
    )
    connect = resource_sharer._resource_sharer.get_connection

    def counted(ident: Any) -> Any:
        context.counts[CONNECTIONS] += 1
        return connect(ident)

    with mock.patch.object(resource_sharer._resource_sharer, "get_connection", counted):
        for _ in loader:
            pass
    return context.counts
