"""What a worker has of the process that started it, asked from inside: part 8 of unit 01.

In a module because forkserver and spawn send the dataset as a pickle, which names its class by the
module.
"""

import sys
import threading
import time
from collections.abc import Mapping

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

LOCK = threading.Lock()
LOCK_SECONDS = 0.2  # that a worker waits for a lock that was held
CHANGE_SECONDS = 20  # that it waits at most for changes by the main process
# what a worker may have, as the rows of a table
GENERATOR = "draws the numbers of the dataset's generator"
SHARED = "sees a change of a shared tensor"
PLAIN = "sees a change of a plain attribute"
GLOBAL = "has a global as the main process set it"
NOTEBOOK = "has the names of your notebook"
HELD = "finds a lock held that nobody will release"
settings = {"changed": False}  # a global of this module


class Inherited(Dataset):
    """One item: a dictionary from what a worker may have to whether it has it.

    Args:
        name: a name that is defined in a cell of the notebook.
    """

    def __init__(self, name: str):
        self.name = name
        self.rng = np.random.default_rng(0)
        self.plain = 0
        self.shared = torch.zeros(1, dtype=torch.int64).share_memory_()

    def __len__(self) -> int:
        return 1

    def __getitem__(self, i: int) -> dict[str, bool]:
        stop = time.monotonic() + CHANGE_SECONDS
        while not self.shared and time.monotonic() < stop:
            time.sleep(0.01)  # until the main process has changed both attributes
        fresh = np.random.default_rng(0)
        return {
            GENERATOR: self.rng.random() == fresh.random(),
            SHARED: bool(self.shared),
            PLAIN: bool(self.plain),
            GLOBAL: settings["changed"],
            NOTEBOOK: hasattr(sys.modules["__main__"], self.name),
            HELD: not LOCK.acquire(timeout=LOCK_SECONDS),
        }


def inherited(start_method: str, name: str) -> dict[str, bool]:
    """The item of an Inherited dataset in a worker that `start_method` has started."""
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


def methods_with(has: Mapping[str, Mapping[str, bool]], what: str) -> list[str]:
    """The start methods whose worker has `what`.

    Args:
        has: {start method: what `inherited` returns}.
    """
    return [method for method in has if has[method][what]]


def table(has: Mapping[str, Mapping[str, bool]]) -> str:
    """A line per thing that a worker may have, a column per start method; `has` as above."""
    lines = [f"{'a worker':<46}" + "".join(f"{method:>12}" for method in has)]
    for what in next(iter(has.values())):
        line = f"{what:<46}"
        for of_worker in has.values():
            line += f"{'yes' if of_worker[what] else 'no':>12}"
        lines.append(line)
    return "\n".join(lines)
