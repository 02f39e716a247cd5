"""Updates to a validation HR@10 against batch size, with the learning rate tuned for each batch.

For each optimizer and batch the learning rate is searched on a grid of factors of two: it starts at
what suited the batch before and moves on until both neighbours of the best are worse. The best is
the one whose slowest seed needs the
fewest updates: one that suits a single seed is often at the edge of what another survives. Every
run is kept in a file at once, so an interrupted search continues where it was. Source of the
design: Shallue et al. 2019, arXiv:1811.03600, section 4.
"""

import json
import math
import statistics

import torch

from course import sizes
from course.datasets import data_folder
from course.device import machine, scale
from course.notebook.solutions import load_solutions
from course.training.recommender import Experiment

UNIT = "03_large_batch"
KEPT = "critical-batch-bench.jsonl"
MOST_SAMPLES = 15  # epochs that a run may take
RESOLUTION = 40  # evaluations on the way to the target, as long as it is for the batch before
# learning rate with which the search begins at its first batch
START = {
    "sgd": 8.0,
    "adam": 1 / 64,
    "lars": 8.0,
}


def optimizer_of(name, parameters, lr, answers):
    """SGD with momentum 0.9, Adam or LARS (with a trust ratio for all tensors) as
    torch.optim.Optimizer.
    """
    if name == "lars":
        return answers.LARS(parameters, lr=lr, momentum=0.9, exclude_1d=False)
    if name == "adam":
        return torch.optim.Adam(parameters, lr=lr, fused=True)
    return torch.optim.SGD(parameters, lr=lr, momentum=0.9)


class Search:
    """The runs to a target: made, or read from the file of kept ones."""

    def __init__(self, target, file):
        self.answers, self.target, self.file = load_solutions(UNIT), target, file
        names = ("leave_one_out", "sample_negatives", "rank_metrics")
        self.experiment = Experiment(
            sizes(UNIT), **{name: getattr(self.answers, name) for name in names}
        )
        self.kept = {}
        if self.file.exists():
            for line in self.file.read_text().splitlines():
                key, updates = json.loads(line)
                self.kept[tuple(key)] = updates

    def updates(self, name, batch, lr, seed, every):
        """Updates until the validation HR@10 reaches the target, evaluated after each `every`; inf
        if it does not.
        """
        key = (name, batch, lr, seed, every, self.target, scale())
        if key not in self.kept:
            per_epoch = math.ceil(5 * len(self.experiment.data.train_users) / batch)
            history = self.experiment.train_fresh(
                lambda parameters: optimizer_of(name, parameters, lr, self.answers),
                batch, seed, epochs=MOST_SAMPLES, target=self.target, evaluate_every=every / per_epoch,
            )  # fmt: skip
            self.kept[key] = history.updates_to_target or math.inf
            with open(self.file, "a") as stream:
                stream.write(json.dumps([key, self.kept[key]]) + "\n")
        return self.kept[key]

    def slowest(self, name, batch, lr, seeds, every):
        """Most updates of any seed below `seeds`; inf, and no more runs, as soon as one does not
        reach the target.
        """
        most = 0
        for seed in range(seeds):
            most = max(most, self.updates(name, batch, lr, seed, every))
            if most == math.inf:
                break
        return most

    def best(self, name, batch, lr, seeds, every):
        """(learning rate, updates of its slowest seed) that is best on the grid lr * 2**k.

        From the best found so far the search goes one step up and one down, until neither is
        better.
        """
        slowest = {k: self.slowest(name, batch, lr * 2.0**k, seeds, every) for k in (0, 1, -1)}
        while True:
            best = min(slowest, key=slowest.get)
            new = [k for k in (best - 1, best + 1) if k not in slowest and abs(k) < 8]
            if not new:
                return lr * 2.0**best, slowest[best]
            slowest |= {k: self.slowest(name, batch, lr * 2.0**k, seeds, every) for k in new}


def run(optimizers, batches, seeds, target):
    """Search what the data folder does not hold yet, and print a table per optimizer.

    Args:
        optimizers: of "sgd", "adam", "lars".   batches: int, in rising order.
        seeds: runs with each learning rate.
    """
    search = Search(target, data_folder() / KEPT)
    print(
        f"{search.experiment}\ntarget: validation HR@10 {target}; popularity {search.experiment.popularity:.3f}"
    )
    for name in optimizers:
        print(
            f"\n| {name}: batch | learning rate | updates of {seeds} seeds | median | evaluated every |"
        )
        print("|---|---|---|---|---|")
        lr, expected = START[name], 1_000_000 / batches[0]
        for batch in batches:
            every = max(1, round(expected / RESOLUTION))
            best, updates = search.best(name, batch, lr, seeds, every)
            runs = [search.updates(name, batch, best, seed, every) for seed in range(seeds)]
            print(
                f"| {batch:,} | {best:g} | {runs} | {statistics.median(runs):g} | {every} |",
                flush=True,
            )
            if updates < math.inf:
                lr, expected = best, updates / 2
    print(machine())
