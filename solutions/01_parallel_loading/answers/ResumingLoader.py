"""Known mistakes of exercise ResumingLoader, and right answers in other styles."""

import itertools

import numpy as np
from torch.utils.data import DataLoader

from course.engine.known_answers import alternative

MISTAKES = {
    "CountsPrefetchedBatches": (
        "The position counts batches that workers get, so batches in flight are lost. Count what you yield.",
        (
            "        for batch in self.batches(left):\n            self.done += 1",
            "        def counted():\n            for indices in left:\n                self.done += 1\n"
            "                yield indices\n\n        for batch in self.batches(counted()):\n            pass",
        ),
    ),
    "CountsAfterTheYield": (
        "While the loop has a batch, your state does not count it, so it comes twice. Count it before the yield.",
        (
            "            self.done += 1  # before the yield: the caller may ask for the state\n",
            "",
        ),
        ("yield batch", "yield batch\n            self.done += 1"),
    ),
    "EpochNotSaved": (
        "The state has no epoch, so the order of epoch 0 comes again. Save the epoch too.",
        ('self.epoch = state["epoch"]', "pass"),
    ),
    "PositionNotSaved": (
        "The epoch starts again from its first batch. Save how many of its batches were yielded, and skip those.",
        ('self.done = state["done"]', "pass"),
    ),
    "ReadsAndSkips": (
        "Batches from before the cut are built again and thrown away. Leave their indices out instead.",
        (
            "left = self.order(self.epoch)[self.done :]",
            "left, skipped = self.order(self.epoch), self.done",
        ),
        ("for batch in self.batches(left):", "for batch in list(self.batches(left))[skipped:]:"),
    ),
    "PositionOfTheLastEpoch": (
        "The position stays at the end of the epoch, so the next one is empty. Set it to 0 when an epoch ends.",
        ("        self.epoch += 1\n        self.done = 0\n", "        self.epoch += 1\n"),
    ),
    "EpochStays": (
        "Every epoch has the order of the first one. Count the epoch up when a pass ends.",
        ("        self.epoch += 1\n", ""),
    ),
    "LiveState": (
        "The state is the loader's own dictionary, which changes while the loader runs. Return a new one.",
        ('return {"epoch": self.epoch, "done": self.done}', "return self.__dict__"),
    ),
}


@alternative
class GlobalNumber:
    def __init__(self, dataset, batch_size, num_workers=0, seed=0):
        self.dataset, self.batch_size, self.num_workers, self.seed = (
            dataset,
            batch_size,
            num_workers,
            seed,
        )
        self.number = 0  # of the next batch, since the start of the training

    def order(self, epoch):
        shuffled = np.random.default_rng((self.seed, epoch)).permutation(len(self.dataset)).tolist()
        return [
            shuffled[first : first + self.batch_size]
            for first in range(0, len(shuffled), self.batch_size)
        ]

    def __iter__(self):
        epoch, done = divmod(self.number, -(-len(self.dataset) // self.batch_size))
        context = "fork" if self.num_workers else None
        left = itertools.islice(self.order(epoch), done, None)
        for batch in DataLoader(
            self.dataset,
            batch_sampler=list(left),
            num_workers=self.num_workers,
            multiprocessing_context=context,
        ):
            self.number += 1
            yield batch

    def state_dict(self):
        return {"number": self.number}

    def load_state_dict(self, state):
        self.number = state["number"]


@alternative
class KeepsTheIndices:
    def __init__(self, dataset, batch_size, num_workers=0, seed=0):
        self.dataset, self.given = dataset, (batch_size, num_workers, seed)
        self.left, self.epoch = None, 0  # indices of the epoch that are still to come

    def __iter__(self):
        size, workers, seed = self.given
        if not self.left:
            if self.left is not None:
                self.epoch += 1
            self.left = (
                np.random.default_rng((seed, self.epoch)).permutation(len(self.dataset)).tolist()
            )
        options = {"multiprocessing_context": "fork"} if workers else {}
        loader = DataLoader(
            self.dataset, size, sampler=list(self.left), num_workers=workers, **options
        )
        return map(self.noted, loader)

    def noted(self, batch):
        self.left = self.left[len(batch) :]
        return batch

    def state_dict(self):
        return {"left": self.left, "epoch": self.epoch}

    def load_state_dict(self, state):
        self.left, self.epoch = state["left"], state["epoch"]
