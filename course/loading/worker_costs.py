"""What a worker process costs: its start, its memory, its threads; and how to count each.

Part 8 of unit 01 measures with it.
"""

import itertools
import multiprocessing
import os
import shutil
import signal
import statistics
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from multiprocessing import forkserver
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset

from course.loading.loaders import forked
from course.measure.comparison import Interval
from course.text import counted

PRELOADED = "forkserver, torch preloaded"
PERSISTENT = "fork, persistent, second epoch on"
METHODS = ("fork", "forkserver", "spawn")


class Starts:
    """Starts of two workers of a tiny dataset, whose first batch is timed.

    Two fork servers live next to each other: one as Python starts it, one that has imported torch
    already. `close` ends both.
    """

    def __init__(self) -> None:
        tiny = TensorDataset(torch.zeros(8, 1))
        self.loaders = {}
        for method in METHODS:
            self.loaders[method] = DataLoader(
                tiny, 4, num_workers=2, multiprocessing_context=method
            )
        self.loaders[PRELOADED] = self.loaders["forkserver"]
        self.loaders[PERSISTENT] = forked(tiny, 4, 2)
        self._servers = {"forkserver": forkserver.ForkServer(), PRELOADED: forkserver.ForkServer()}
        # what multiprocessing.set_forkserver_preload does for the server of the program
        preload = ["__main__", "torch", "torch.utils.data"]
        self._servers[PRELOADED].set_forkserver_preload(preload)

    def seconds(self, way: str) -> float:
        """Seconds from the start of an epoch to its first batch; the rest of it is taken, too."""
        server = self._servers.get(way, forkserver._forkserver)
        connect = server.connect_to_new_process
        with mock.patch.object(forkserver, "connect_to_new_process", connect):
            begin = time.perf_counter()
            batches = iter(self.loaders[way])
            next(batches)
            seconds = time.perf_counter() - begin
            list(batches)
        return seconds

    def close(self) -> None:
        """End the workers that live on, and both fork servers."""
        self.loaders.clear()
        for server in self._servers.values():
            # it would end by itself when nobody holds its pipe, which forked processes inherit
            os.kill(server._forkserver_pid, signal.SIGTERM)
            server._stop()


class Named(Dataset):
    """The lengths of file names, which are kept in `names`: a list of str or an array.

    Without `reads`, no name is touched: each item is 0.
    """

    def __init__(self, names: Sequence[str] | np.ndarray, reads: bool = True):
        self.names = names
        self.reads = reads

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, i: int) -> int:
        return len(self.names[i]) if self.reads else 0


def many_names(n: int) -> list[str]:
    """`n` different paths, as a data set of many files has them."""
    names = []
    for i in range(n):
        person = f"person_{i // 20:06d}"
        names.append(f"/data/faces/{person}/{person}_{i % 20:04d}.jpg")
    return names


def private_megabytes(pid: int) -> float | None:
    """Memory in MB that a process shares with no other. None without /proc."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    of_kinds = [int(line.split()[1]) for line in lines if line.startswith("Private_")]
    return sum(of_kinds) / 1000


def grown_megabytes(data: Dataset, workers: int) -> list[float] | None:
    """MB that the workers have for themselves more than at the start, after each of two epochs.

    A page that a worker inherits is shared until somebody writes to it. What the main process does
    with memory that no worker touches does not count.

    Each epoch reads all items in a new order. The start is when the workers run and have read one
    batch each. None without /proc.
    """
    if private_megabytes(os.getpid()) is None:
        return None
    before = set(multiprocessing.active_children())
    batches = forked(data, 1000, workers, prefetch_factor=1, shuffle=True)
    iterator = iter(batches)
    next(iterator)
    children = set(multiprocessing.active_children()) - before
    start = _private(children)
    grown = []
    for _ in range(2):
        for _ in iterator:
            pass
        grown.append(_private(children) - start)
        iterator = iter(batches)
    return grown


def grown_shown(megabytes: Sequence[float] | None) -> str:
    """What `grown_megabytes` has returned, in words."""
    if megabytes is None:
        return "no /proc here more, by epoch"
    return ", ".join(f"{more:.1f} MB" for more in megabytes) + " more, by epoch"


def _private(children):
    return sum(private_megabytes(child.pid) for child in children)


def batches_in_shared_memory(data: Dataset, batch_size: int, workers: int) -> float | None:
    """How many batches lie in /dev/shm while the loop has the first one; None without /dev/shm.

    Other programs that use it in that second are counted, too.
    """
    if not os.path.isdir("/dev/shm"):
        return None
    used = shutil.disk_usage("/dev/shm").used
    batches = iter(forked(data, batch_size, workers))
    first = next(batches)
    before, now = -1, shutil.disk_usage("/dev/shm").used
    while now > before:  # until the workers have built what they may
        time.sleep(0.5)
        before, now = now, shutil.disk_usage("/dev/shm").used
    return (now - used) / first.nbytes


def held_shown(batches: Mapping[int, float | None]) -> dict[int, str]:
    """{workers: what `batches_in_shared_memory` has returned, in words}."""
    shown = {}
    for workers, n in batches.items():
        shown[workers] = "no /dev/shm here" if n is None else f"{n:.2f} batches"
    return shown


class Threads(Dataset):
    """Items that are the number of threads that torch uses in the process that makes them."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, i: int) -> int:
        return torch.get_num_threads()


def shared_cores(cores: int, ranks: int, workers: int, threads: int) -> str:
    """A line: how many processes and threads `ranks` on one host have, and how many per core.

    Args:
        workers: of the loader of each rank; each computes with one thread.
        threads: of the main process of each rank.
    """
    processes = ranks * (1 + workers)
    computing = ranks * (threads + workers)
    return (
        f"{counted(ranks, 'rank')}, {counted(workers, 'worker')} each, "
        f"{counted(threads, 'thread')} per rank: {processes} processes "
        f"with {counted(computing, 'thread')} on {cores} cores, {computing / cores:.2f} per core"
    )


def megabytes_of(names: Sequence[str]) -> float:
    """The size of a list of str in MB: the list, and its strings."""
    return (sys.getsizeof(names) + sum(sys.getsizeof(name) for name in names)) / 1e6


def copied_share(
    grown: Sequence[float] | None, null: Sequence[float] | None, megabytes: float
) -> Interval | None:
    """How much more `grown` is than `null`, as a share of `megabytes`; None if not counted.

    The interval is the range over the epochs: the smallest difference of any two, and the largest.
    """
    if not grown or not null:
        return None
    middle = statistics.mean(grown) - statistics.mean(null)
    low, high = min(grown) - max(null), max(grown) - min(null)
    return Interval(middle / megabytes, low / megabytes, high / megabytes)


class Queue(NamedTuple):
    """How many batches the loop could take, over a pass."""

    moments: list[float]  # seconds from the start of the pass, at which that number changes
    depths: list[int]  # batches ready from each of these moments on

    def empty_share(self) -> float:
        """The share of the time after the first batch in which nothing is ready, from 0 to 1."""
        empty = 0.0
        for (begin, end), depth in zip(
            itertools.pairwise(self.moments), self.depths[:-1], strict=True
        ):
            if depth == 0:
                empty += end - begin
        return empty / (self.moments[-1] - self.moments[0])


def queue_of(loader: Iterable[torch.Tensor], step_seconds: float) -> Queue:
    """The Queue of a pass over `loader`, in which a step takes `step_seconds` of sleep.

    Args:
        loader: of batches that hold the moments (time.perf_counter) at which their items were made.
    """
    begin = time.perf_counter()
    changes = []
    ready = 0.0
    for batch in loader:
        # batches come in order, so one that is made early waits for those before it
        ready = max(ready, batch.max().item() - begin)
        changes.append((ready, 1))
        changes.append((time.perf_counter() - begin, -1))
        time.sleep(step_seconds)
    changes.sort()
    moments = [moment for moment, _ in changes]
    depths = list(itertools.accumulate(change for _, change in changes))
    return Queue(moments, depths)
