"""Updates to a validation HR@10 against batch size, with the learning rate tuned for each batch.

For each optimizer and batch the learning rate is searched on a grid of factors of two: it starts at
what suited the batch before and moves on until both neighbours of the best are worse. The best is
the one whose slowest seed needs the fewest updates: one that suits a single seed is often at the
edge of what another survives. Every run is written to a file immediately, so an interrupted search
continues where it was. Source of the design: Shallue et al. 2019, arXiv:1811.03600, section 4.
"""

import json
import math
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import torch

from course import sizes
from course.datasets import data_folder
from course.device import machine, scale
from course.notebook.solutions import load_solutions
from course.training.recommender import SAMPLES_PER_POSITIVE, Experiment
from course.training.recommender_loop import History

UNIT = "03_large_batch"
KEPT = "critical-batch-bench.jsonl"
EPOCHS_MAX = 15  # of a run
RESOLUTION = 40  # evaluations on the way to the target, as long as it is for the batch before
STEPS_MAX = 7  # on the grid of learning rates, up or down from where a search begins
# learning rate with which the search begins at its first batch
START = {
    "sgd": 8.0,
    "adam": 1 / 64,
    "lars": 8.0,
}


class Best(NamedTuple):
    """The best learning rate of a batch size, and the updates that its slowest seed needs."""

    lr: float
    updates: float  # inf if no learning rate reaches the target


def optimizer_of(
    name: str, parameters: Iterable[torch.Tensor], lr: float, answers: SimpleNamespace
) -> torch.optim.Optimizer:
    """SGD with momentum 0.9, Adam, or LARS (with a trust ratio for all tensors)."""
    if name == "lars":
        return answers.LARS(parameters, lr=lr, momentum=0.9, exclude_1d=False)
    if name == "adam":
        return torch.optim.Adam(parameters, lr=lr, fused=True)
    return torch.optim.SGD(parameters, lr=lr, momentum=0.9)


class Search:
    """The runs to a target: made, or read from the file of kept ones."""

    def __init__(self, target: float, file: Path) -> None:
        self.answers = load_solutions(UNIT)
        self.target = target
        self.file = file
        self.experiment = Experiment(
            sizes(UNIT),
            leave_one_out=self.answers.leave_one_out,
            sample_negatives=self.answers.sample_negatives,
            rank_metrics=self.answers.rank_metrics,
        )
        self.kept = {}
        if file.exists():
            for line in file.read_text().splitlines():
                key, updates = json.loads(line)
                self.kept[tuple(key)] = updates

    def updates(self, name: str, batch: int, lr: float, seed: int, every: int) -> float:
        """Updates until the validation HR@10 reaches the target; inf if it does not.

        Args:
            every: updates between two evaluations.
        """
        key = (name, batch, lr, seed, every, self.target, scale())
        if key not in self.kept:
            history = self._train(name, batch, lr, seed, every)
            self.kept[key] = history.updates_to_target or math.inf
            with open(self.file, "a") as stream:
                stream.write(json.dumps([key, self.kept[key]]) + "\n")
        return self.kept[key]

    def _train(self, name: str, batch: int, lr: float, seed: int, every: int) -> History:
        n_samples = SAMPLES_PER_POSITIVE * len(self.experiment.data.train_users)
        steps_per_epoch = math.ceil(n_samples / batch)
        return self.experiment.train_fresh(
            lambda parameters: optimizer_of(name, parameters, lr, self.answers),
            batch,
            seed,
            epochs=EPOCHS_MAX,
            target=self.target,
            evaluate_every=every / steps_per_epoch,
        )

    def slowest(self, name: str, batch: int, lr: float, seeds: int, every: int) -> float:
        """Most updates of any seed below `seeds`.

        It is inf, and no more runs are made, as soon as one does not reach the target.
        """
        most = 0
        for seed in range(seeds):
            most = max(most, self.updates(name, batch, lr, seed, every))
            if most == math.inf:
                break
        return most

    def best(self, name: str, batch: int, lr: float, seeds: int, every: int) -> Best:
        """The Best on the grid lr * 2**k.

        From the best found so far the search goes one step up and one down, until neither is
        better.
        """
        slowest = {}
        new = [0, 1, -1]
        while new:
            for k in new:
                slowest[k] = self.slowest(name, batch, lr * 2.0**k, seeds, every)
            best = min(slowest, key=slowest.get)
            neighbours = (best - 1, best + 1)
            new = [k for k in neighbours if k not in slowest and abs(k) <= STEPS_MAX]
        return Best(lr * 2.0**best, slowest[best])


def run(optimizers: Sequence[str], batches: Sequence[int], seeds: int, target: float) -> None:
    """Search what the data folder does not hold yet, and print a table per optimizer.

    Args:
        optimizers: of "sgd", "adam", "lars".
        batches: batch sizes, rising.
        seeds: runs with each learning rate.
        target: validation HR@10.
    """
    search = Search(target, data_folder() / KEPT)
    print(search.experiment)
    popularity = search.experiment.popularity
    print(f"target: validation HR@10 {target}; popularity {popularity:.3f}")
    for name in optimizers:
        _print_table(search, name, batches, seeds)
    print(machine())


def _print_table(search: Search, name: str, batches: Sequence[int], seeds: int) -> None:
    columns = f"learning rate | updates of {seeds} seeds | median | evaluated every"
    print(f"\n| {name}: batch | {columns} |")
    print("|---|---|---|---|---|")
    lr = START[name]
    expected = 1_000_000 / batches[0]  # updates
    for batch in batches:
        every = max(1, round(expected / RESOLUTION))
        best = search.best(name, batch, lr, seeds, every)
        runs = [search.updates(name, batch, best.lr, seed, every) for seed in range(seeds)]
        median = f"{statistics.median(runs):g}"
        print(f"| {batch:,} | {best.lr:g} | {runs} | {median} | {every} |", flush=True)
        if best.updates < math.inf:
            lr = best.lr
            expected = best.updates / 2
