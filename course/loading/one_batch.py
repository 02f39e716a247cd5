"""What happens to one batch of a DataLoader: who builds it, when, and how many messages it takes.

Part 3 of unit 01 asks these questions; the times are taken in the process that builds the batch.
"""

import time
from multiprocessing.context import ForkContext
from typing import Any, NamedTuple

import torch
from torch.utils.data import DataLoader, Dataset, default_collate, get_worker_info

from course.loading.loaders import forked

MAIN = "no workers: main process"


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
            self._counts["sent"] += 1
        self._queue.put(message, *args, **kwargs)

    def get(self, *args: Any, **kwargs: Any) -> Any:
        message = self._queue.get(*args, **kwargs)
        self._counts["received"] += 1
        return message

    def __getattr__(self, name: str) -> Any:
        return getattr(self._queue, name)


class _CountingFork(ForkContext):
    """Fork, with queues that count the messages of the main process."""

    def __init__(self) -> None:
        super().__init__()
        self.counts = {"sent": 0, "received": 0}

    def Queue(self, maxsize: int = 0) -> _Counted:  # noqa: N802  multiprocessing's name
        return _Counted(super().Queue(maxsize), self.counts)


def messages(dataset: Dataset, batch_size: int, num_workers: int) -> dict[str, int]:
    """How many messages the main process "sent" to workers and "received" in a pass."""
    context = _CountingFork()
    loader = DataLoader(
        dataset, batch_size, num_workers=num_workers, multiprocessing_context=context
    )
    for _ in loader:
        pass
    return context.counts
