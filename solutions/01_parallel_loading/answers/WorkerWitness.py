"""Known mistakes of exercise WorkerWitness, and right answers in other styles."""

import os

import numpy
import torch
from torch.utils.data import Dataset, get_worker_info

from course.engine.known_answers import alternative

MISTAKES = {
    "WorkerAskedTooEarly": (
        "The worker is asked for in __init__, which runs in the main process. Call get_worker_info() in __getitem__.",
        ("info = get_worker_info()", "info = self.info"),
        ("self.n = n", "self.n, self.info = n, get_worker_info()"),
    ),
    "ProcessAskedTooEarly": (
        "The process is asked for in __init__, and each worker gets a copy of that. Call os.getpid() in __getitem__.",
        ("os.getpid()", "self.pid"),
        ("self.n = n", "self.n, self.pid = n, os.getpid()"),
    ),
    "BothAskedTooEarly": (
        "Worker and process are asked for in __init__, which runs in the main process. Ask for both in __getitem__.",
        ("os.getpid()", "self.pid"),
        ("info = get_worker_info()", "info = self.info"),
        ("self.n = n", "self.n, self.info, self.pid = n, get_worker_info(), os.getpid()"),
    ),
    "ZeroIsFalse": (
        "Worker 0 is taken for the main process, because 0 counts as False. Compare with None: `is None`.",
        ("-1 if info is None else info.id", "info.id if info and info.id else -1"),
    ),
    "ThreadNotProcess": (
        "That is the number of a thread, the same in every fork. Workers are processes: use os.getpid().",
        ("os.getpid()", '__import__("threading").get_ident() if info else os.getpid()'),
    ),
    "Floats": (
        "The numbers are floats, and floats round large numbers. Make an int64 tensor.",
        ("os.getpid()])", "os.getpid()]).float()"),
    ),
    "NoneNotExpected": (
        "In the main process there is no worker: get_worker_info() is None there. Return -1.",
        ("-1 if info is None else info.id", "info.id"),
    ),
}


@alternative
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


@alternative
class NumberOfTheWorkerByDefault(Dataset):
    def __init__(self, n):
        self.n = n

    __len__ = lambda self: self.n  # noqa: E731

    def __getitem__(self, i):
        return torch.from_numpy(
            numpy.array([i, getattr(get_worker_info(), "id", -1), os.getpid()], dtype="int64")
        )
