"""Known mistakes of exercise WorkerWitness, and right answers in other styles."""

import os
import threading

import numpy
import torch
from torch.utils.data import Dataset, get_worker_info

from course.checks.engine import alternative, mistake


class _Witness(Dataset):
    """A right witness in pieces."""

    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def worker(self):
        info = get_worker_info()
        return -1 if info is None else info.id

    def process(self):
        return os.getpid()

    def __getitem__(self, i):
        return torch.tensor([i, self.worker(), self.process()])


@mistake(
    "WorkerWitness",
    "The worker is asked for in __init__, which runs in the main process. Call get_worker_info() in __getitem__.",
)
class WorkerAskedTooEarly(_Witness):
    def __init__(self, n):
        super().__init__(n)
        self.early = super().worker()

    def worker(self):
        return self.early


@mistake(
    "WorkerWitness",
    "The process is asked for in __init__, and each worker gets a copy of that. Call os.getpid() in __getitem__.",
)
class ProcessAskedTooEarly(_Witness):
    def __init__(self, n):
        super().__init__(n)
        self.pid = os.getpid()

    def process(self):
        return self.pid


@mistake(
    "WorkerWitness", "Worker 0 is taken for the main process, because 0 counts as False. Compare with None: `is None`."
)
class ZeroIsFalse(_Witness):
    def worker(self):
        info = get_worker_info()
        return info.id if info and info.id else -1


@mistake(
    "WorkerWitness", "That is the number of a thread, the same in every fork. Workers are processes: use os.getpid()."
)
class ThreadNotProcess(_Witness):
    def process(self):
        return threading.get_ident() if get_worker_info() else os.getpid()


@mistake("WorkerWitness", "The numbers are floats, which round large ones. Make an int64 tensor of whole numbers.")
class Floats(_Witness):
    def __getitem__(self, i):
        return super().__getitem__(i).float()


@mistake("WorkerWitness", "In the main process there is no worker: get_worker_info() is None there. Give -1.")
class NoneNotExpected(_Witness):
    def worker(self):
        return get_worker_info().id


@alternative("WorkerWitness")
class FilledInPlace(Dataset):
    def __init__(self, n):
        self.items = range(n)

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        item = torch.full((3,), -1, dtype=torch.long)
        item[0], item[2] = self.items[i], torch.multiprocessing.current_process().pid
        if (info := get_worker_info()) is not None:
            item[1] = info.id
        return item


@alternative("WorkerWitness")
class NumberOfTheWorkerByDefault(Dataset):
    def __init__(self, n):
        self.n = n

    __len__ = lambda self: self.n  # noqa: E731

    def __getitem__(self, i):
        return torch.from_numpy(numpy.array([i, getattr(get_worker_info(), "id", -1), os.getpid()], dtype="int64"))
