"""Seconds to a validation accuracy on Fashion-MNIST: plain, all advice, each piece left out once.

The protocol is that of course/training/race.py: all are looked at after the same numbers of images,
and everything runs twice per seed, so that one row shows the noise of the clock. Contestants take
turns within each seed. Every finished run is written to a file immediately, so an interrupted
benchmark continues where it was; a changed recipe, target, data set or machine is measured again.
Test accuracy is computed after the clock has stopped, and shown when all runs are done.
"""

import dataclasses
import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

from course.datasets import data_folder, fashion
from course.device import device, machine
from course.measure.comparison import Interval
from course.training import race, speedrun
from course.training.leaderboard import append_line, read_lines
from course.training.race import AGAIN, EVERYTHING, Run
from course.training.speedrun import Recipe, Track
from instructor.bench import spread
from instructor.bench.tables import Table

EPOCHS_MAX = 12  # of a run
LOOK_EVERY = 2560  # images, 20 looks in an epoch
KEPT = "speedrun-bench.jsonl"
COLUMNS = ("seconds", "images", f"times as long as {EVERYTHING}", "test accuracy")


@dataclass(frozen=True)
class Result:
    """What one contestant did in all seeds; the tensors are float64 (seeds,)."""

    name: str
    seconds: torch.Tensor
    images: torch.Tensor
    test_accuracy: torch.Tensor
    longer: Interval | None  # times as long as EVERYTHING; None for EVERYTHING itself

    def cells(self) -> list[str]:
        """The texts of COLUMNS."""
        return [
            spread(self.seconds, ".1f"),
            f"{statistics.median(self.images.tolist()):,.0f}",
            "1" if self.longer is None else str(self.longer),
            spread(self.test_accuracy, ".4f"),
        ]


def run(
    seeds: int = 6,
    target: float = 0.9,
    images: int | None = None,
    file: Path | str | None = None,
    dataset: str = "fashion",
) -> list[Table]:
    """Run what `file` does not hold yet, print the table and return it.

    Args:
        seeds: with fewer than six, the interval of a ratio is unknown.
        images: train on so many alone (default: all but the validation images).
        file: where runs are kept (default: in the data folder).
        dataset: "fashion", or "tiny" to see whether it runs.
    """
    track = speedrun.track(fashion.load(dataset), target, images, LOOK_EVERY)
    runs = []
    for finished in races(track, seeds, file):
        print_run(finished)
        runs.append(finished)
    table = results_table(results(runs), seeds)
    table.note = f"{track.name}, {len(track.validation_labels):,} for validation"
    print(table)
    print(machine())
    return [table]


def races(track: Track, seeds: int, file: Path | str | None = None) -> Iterator[Run]:
    """Yield the Run of each contestant and seed, from `file` or run now and added to it."""
    file = Path(file or data_folder() / KEPT)
    contestants = speedrun.contestants()
    contestants[AGAIN] = contestants[EVERYTHING]
    print(f"{track.name}, {len(track.validation_labels):,} for validation; kept in {file}")
    race.warm_up(contestants.values(), track, device())
    for seed in range(seeds):
        for name, recipe in contestants.items():
            finished = _recorded(file, name, recipe, seed, track)
            if finished is None:
                finished = _raced(file, name, recipe, seed, track)
            yield finished


def _recorded(file: Path, name: str, recipe: Recipe, seed: int, track: Track) -> Run | None:
    """The latest kept Run of this recipe and seed on this track and machine, or None."""
    wanted = (name, seed, dataclasses.asdict(recipe), track.name, track.target, machine())
    latest = None
    for _, facts in read_lines(file):
        try:
            kept = Run(**facts)
        except TypeError:  # not a run, or one of an earlier version
            continue
        found = (kept.name, kept.seed, kept.recipe, kept.track, kept.target, kept.machine)
        if found == wanted:
            latest = kept
    return latest


def _raced(file: Path, name: str, recipe: Recipe, seed: int, track: Track) -> Run:
    """A new Run, with its test accuracy, that is kept in `file`."""
    raced = race.race(name, recipe, track, seed, device(), EPOCHS_MAX)
    raced.test_accuracy = raced.racer.test_accuracy()
    raced.racer = None
    facts = vars(raced) | {}
    del facts["racer"]
    append_line(file, facts)
    return raced


def results(runs: list[Run]) -> list[Result]:
    """The Result of each contestant of `runs`, in the order in which they first ran."""
    of_name = {}
    for finished in runs:
        of_name.setdefault(finished.name, []).append(finished)
    found = []
    for name, own in of_name.items():
        seconds = [finished.seconds for finished in own]
        images = [finished.images for finished in own]
        accuracies = [finished.test_accuracy for finished in own]
        columns = [torch.tensor(c, dtype=torch.float64) for c in (seconds, images, accuracies)]
        longer = None
        if name != EVERYTHING:
            longer = race.times_as_fast(runs, EVERYTHING, name)
        found.append(Result(name, *columns, longer))
    return found


def print_run(finished: Run) -> None:
    """Print a line on one Run."""
    times = f"{finished.seconds:8.1f} s  {finished.images:9,.0f} images"
    print(f"  seed {finished.seed}  {finished.name:<26} {times}", flush=True)


def results_table(found: list[Result], seeds: int) -> Table:
    """The table: a row for each contestant."""
    title = "Seconds to the target on Fashion-MNIST"
    table = Table("speedrun", title, [table_head(seeds), *COLUMNS])
    for result in found:
        table.add(result.name, *result.cells())
    return table


def table_head(seeds: int) -> str:
    """What the table says above the names of the contestants."""
    return f"{seeds} seeds: median (lowest to highest); ratios with an interval of 95 %"
