"""Seconds to a validation accuracy on Fashion-MNIST: plain, all advice, each piece left out once.

Contestants take turns within each seed. Every finished run is kept in a file at once, so an
interrupted benchmark continues where it was; a changed recipe, target, data set or machine is
measured again. Test accuracy is computed after the clock has stopped, and shown when all runs are
done.
"""

import dataclasses
import statistics
from pathlib import Path

import torch

from course.datasets import data_folder, fashion
from course.device import device, machine
from course.training import speedrun
from instructor.bench import spread

MOST_EPOCHS = 12
KEPT = "speedrun-bench.jsonl"


def run(seeds=3, target=0.9, images=None, file=None, dataset="fashion"):
    """Run what `file` does not hold yet, and print the tables.

    Args:
        images: train on so many alone (default: all but the validation images).
        file: where runs are kept (default: in the data folder).
        dataset: "fashion", or "tiny" to see whether it runs.
    """
    track = speedrun.track(fashion.load(dataset), target, images)
    file = Path(file or data_folder() / KEPT)
    contestants = speedrun.contestants()
    print(f"{track.name}, {len(track.validation_labels):,} for validation; kept in {file}")
    speedrun.warm_up(track, device())
    runs = []
    for seed in range(seeds):
        for name, how in contestants.items():
            recorded = _recorded(file, name, how, seed, track)
            if not recorded:
                recorded = speedrun.race(name, how, track, seed, device(), MOST_EPOCHS)
                recorded.test_accuracy = speedrun.test_accuracy(recorded, track)
                recorded.model = None
                speedrun.keep(recorded, file)
            runs.append(recorded)
            print(
                f"  seed {seed}  {name:<26} {recorded.seconds:8.1f} s  {recorded.epochs:5.2f} epochs",
                flush=True,
            )
    show(runs, contestants)


def _recorded(file, name, how, seed, track):
    """The latest kept Run of this recipe and seed on this track and machine, or None."""
    wanted = name, seed, dataclasses.asdict(how), track.name, track.target, machine()
    same = [
        r
        for r in speedrun.kept(file)
        if (r.name, r.seed, r.recipe, r.track, r.target, r.machine) == wanted
    ]
    return same[-1] if same else None


def show(runs, names):
    """Print the tables of `runs`: each contestant, and what each piece of advice is worth."""
    worth = speedrun.worth(runs, "everything")
    seeds = len({r.seed for r in runs})
    print(
        f"\n| {seeds} seeds: median (lowest to highest) | seconds | epochs | over everything | test accuracy |"
    )
    print("|---|---|---|---|---|")
    for name in names:
        own = [r for r in runs if r.name == name]
        seconds, epochs, test = (torch.tensor([getattr(r, key) for r in own], dtype=torch.float64)
                                 for key in ("seconds", "epochs", "test_accuracy"))  # fmt: skip
        low, high = (f"{value:.2f}" for value in worth[name][1:]) if name in worth else ("", "")
        ratio = f"{worth[name][0]:.2f} ({low} to {high})" if name in worth else "1"
        print(f"| {name} | {spread(seconds, '.1f')} | {statistics.median(epochs.tolist()):.2f} | {ratio} | "
              f"{spread(test, '.4f')} |")  # fmt: skip
    print(machine())
