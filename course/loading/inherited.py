"""What a worker process has of the process that started it, asked from inside a worker: part 3 of
unit 01.

In a module because forkserver and spawn send the dataset as a pickle, which names its class by the
module.
"""

import sys
import threading
import time

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

LOCK = threading.Lock()
settings = {"changed": False}  # a global of this module


class Inherited(Dataset):
    """One item: a dictionary from what a worker may have to whether it has it.

    Args:
        name: a name that is defined in a cell of the notebook.
    """

    def __init__(self, name):
        self.name, self.rng, self.plain = name, np.random.default_rng(0), 0
        self.shared = torch.zeros(1, dtype=torch.int64).share_memory_()

    def __len__(self):
        return 1

    def __getitem__(self, i):
        stop = time.monotonic() + 20
        while not self.shared and time.monotonic() < stop:
            time.sleep(0.01)  # until the main process has changed both attributes
        return {
            "draws the numbers of the dataset's generator": self.rng.random()
            == np.random.default_rng(0).random(),
            "sees a change of a shared tensor": bool(self.shared),
            "sees a change of a plain attribute": bool(self.plain),
            "has a global as the main process set it": settings["changed"],
            "has the names of your notebook": hasattr(sys.modules["__main__"], self.name),
            "has a lock that was held, and cannot get it": not LOCK.acquire(timeout=0.2),
        }


def inherited(start_method: str, name: str) -> dict[str, bool]:
    """What a worker started by `start_method` has of this process: the item of an Inherited
    dataset.
    """
    dataset = Inherited(name)
    loader = DataLoader(
        dataset, batch_size=None, num_workers=1, multiprocessing_context=start_method
    )
    settings["changed"] = True
    try:
        with LOCK:
            batches = iter(loader)  # the worker starts here
        dataset.plain = 1
        dataset.shared[0] = 1
        return next(batches)
    finally:
        settings["changed"] = False
