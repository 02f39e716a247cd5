"""The race of unit 06: images and seconds until the validation accuracy reaches a target.

    seconds = images x seconds per image

`race` measures the left side, and the images: those depend on the seed and not on what else the
machine does. `costs` measures the seconds per image, by the course's one comparison. So a piece of
advice is judged in two factors, and each has its interval.

All contestants are looked at after the same numbers of images, while the clock stands still. The
target is reached between two looks, where a straight line between their accuracies crosses it.
"""

import dataclasses
import math
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import NamedTuple

import torch

from course.device import machine
from course.measure.comparison import (
    Comparison,
    Interval,
    compare,
    product,
    ratio_interval,
    verdict_on,
)
from course.measure.timing import now
from course.training.speedrun import CHANGE_LEARNING, Racer, Recipe, Track

CHANCE = 0.1  # the accuracy before the first image: of ten classes
EVERYTHING, PLAIN = "everything", "plain"
AGAIN = "everything again"  # the same recipe and seed: what differs is the clock
COST_IMAGES = 256  # of a round of `costs`
SAME_IMAGES = Interval(1.0, 1.0, 1.0)


class Look(NamedTuple):
    """What was known of a contestant after training on `images` for `seconds`."""

    images: float
    seconds: float
    accuracy: float  # on the validation images


@dataclass
class Run:
    """What a contestant did with one seed."""

    name: str
    seed: int
    images: float  # until the target; infinite if it was not reached
    seconds: float  # the same
    looks: list[Look]  # read from a file, each is a list of the same three numbers
    recipe: dict
    track: str
    target: float
    machine: str
    at: str  # ISO 8601
    test_accuracy: float | None = None  # after the race, if it was asked for
    racer: Racer | None = field(default=None, repr=False, compare=False)  # not kept in a file

    @property
    def at_least(self) -> float:
        """Images until the target, or all that were trained if that did not suffice."""
        return min(self.images, self.looks[-1][0])


def race(
    name: str,
    how: Recipe,
    track: Track,
    seed: int,
    device: torch.device | str = "cpu",
    most_epochs: float = 10,
    clock: Callable[[torch.device | str], float] = now,
) -> Run:
    """Train until the validation accuracy reaches `track.target`, and return the Run.

    The clock runs while images are converted, trained on, and evaluated as the recipe does; it
    stands still during the looks, which are the same for all. A cycle that ends below the target is
    followed by another one, until `most_epochs` are trained.
    """
    racer = Racer(how, track, seed, device)
    began = clock(device)
    racer.prepare()
    seconds = clock(device) - began
    looks = [Look(0, 0.0, CHANCE)]
    most_images = round(most_epochs * len(track.labels))
    while racer.trained < most_images and looks[-1].accuracy < track.target:
        next_look = (racer.trained // track.look_every + 1) * track.look_every
        began = clock(device)
        racer.train(next_look - racer.trained)
        seconds += clock(device) - began
        looks.append(Look(racer.trained, seconds, racer.accuracy()))
    images, seconds = crossing(looks, track.target)
    return Run(
        name=name,
        seed=seed,
        images=images,
        seconds=seconds,
        looks=looks,
        recipe=dataclasses.asdict(how),
        track=track.name,
        target=track.target,
        machine=machine(),
        at=datetime.now().astimezone().isoformat(timespec="seconds"),
        racer=racer,
    )


def crossing(looks: Sequence[Look], target: float) -> tuple[float, float]:
    """(images, seconds) at which a line through `looks` first reaches `target`; infinite if never.

    Looks are in the order of their images, and the first lies below the target.
    """
    for before, after in zip(looks, looks[1:], strict=False):
        if after.accuracy >= target:
            share = (target - before.accuracy) / (after.accuracy - before.accuracy)
            images = before.images + share * (after.images - before.images)
            return images, before.seconds + share * (after.seconds - before.seconds)
    return math.inf, math.inf


def warm_up(recipes: Iterable[Recipe], track: Track, device: torch.device | str) -> None:
    """Train each recipe for a few steps, so that no contestant pays for what torch does once."""
    for how in recipes:
        racer = Racer(how, track, 0, device)
        racer.prepare()
        racer.train(2 * how.batch_size)
        racer.accuracy()


def race_all(
    recipes: Mapping[str, Recipe],
    track: Track,
    seeds: int,
    device: torch.device | str = "cpu",
    most_epochs: float = 10,
) -> list[Run]:
    """The Run of each of `recipes` with each of the seeds 0, 1, ..., in random order per seed."""
    warm_up(recipes.values(), track, device)
    runs = []
    for seed in range(seeds):
        for name in random.sample(list(recipes), len(recipes)):
            run = race(name, recipes[name], track, seed, device, most_epochs)
            run.racer = None  # its model is not needed any more
            runs.append(run)
    return runs


# ---- what the runs say


def images_of(runs: Iterable[Run], name: str) -> dict[int, float]:
    """{seed: images that `name` needed until the target}."""
    return {run.seed: run.images for run in runs if run.name == name}


def times_as_fast(runs: Iterable[Run], name: str, base: str) -> Interval:
    """How many times as fast as `base` `name` reached the target, paired by seed.

    A pair in which one run missed the target counts as infinite or zero, and one in which both
    missed it is left out.
    """
    runs = list(runs)
    own = {run.seed: run.seconds for run in runs if run.name == name}
    others = {run.seed: run.seconds for run in runs if run.name == base}
    return _paired(others, own)


def times_fewer_images(runs: Iterable[Run], name: str, base: str) -> Interval:
    """How many times as few images as `base` `name` needed until the target, paired by seed.

    A run that missed the target counts with all images that it was trained on, so the truth lies
    further from 1.
    """
    runs = list(runs)
    own = {run.seed: run.at_least for run in runs if run.name == name}
    others = {run.seed: run.at_least for run in runs if run.name == base}
    return _paired(others, own)


def _paired(numerators: Mapping[int, float], denominators: Mapping[int, float]) -> Interval:
    """The Interval of the ratio over the seeds that both have."""
    pairs = []
    for seed, numerator in numerators.items():
        pair = numerator, denominators.get(seed, math.nan)
        if not math.isnan(pair[1]) and any(map(math.isfinite, pair)):
            pairs.append(pair)
    if not pairs:
        return Interval(math.nan, 0.0, math.inf)
    first, second = torch.tensor(pairs, dtype=torch.float64).T
    return ratio_interval(first, second)


# ---- the two factors


def costs(
    recipes: Mapping[str, Recipe],
    track: Track,
    device: torch.device | str = "cpu",
    seconds: float = 60.0,
    n_images: int = COST_IMAGES,
) -> Comparison:
    """Compare the time of training on `n_images`, evaluations of the recipe included.

    Args:
        recipes: of them the first is the base.
        seconds: no round begins later than this.
    """
    ways = {}
    for name, how in recipes.items():
        racer = Racer(how, track, 0, device)
        racer.prepare()
        ways[name] = partial(racer.train, n_images)
    return compare(ways, device=device, seconds=seconds)


@dataclass(frozen=True)
class Worth:
    """What a change of everything is worth: how many times as much it saves, 1 for nothing."""

    name: str
    images: Interval  # how many times as few images
    cost: Interval  # how many times as fast per image
    control: Interval  # of the cost
    by_design: bool = False  # the number of images cannot change

    @property
    def total(self) -> Interval:
        """How many times as fast the target is reached."""
        return product(self.images, self.cost)

    @property
    def verdict(self) -> str:
        """FASTER, SLOWER, SAME or NOT_DECIDED."""
        return verdict_on(self.total)

    def __str__(self) -> str:
        images = "the same" if self.by_design else str(self.images)
        return f"{images:<22}  {self.cost!s:<22}  {self.total!s:<22}  {self.verdict}"


def left_out(runs: Iterable[Run], compared: Comparison) -> list[Worth]:
    """The Worth of each piece of advice that `compared` has a way "without ..." of.

    Args:
        runs: of everything and of everything without the pieces of CHANGE_LEARNING.
        compared: the `costs` of everything and of everything without each piece.
    """
    runs = list(runs)
    control = compared.control.inverted()  # how many times as long, as the rows say it
    found = []
    for way in list(compared.seconds)[1:]:
        piece = way.removeprefix("without ")
        if piece == way:  # another contestant
            continue
        by_design = piece not in CHANGE_LEARNING
        images = SAME_IMAGES if by_design else times_fewer_images(runs, EVERYTHING, way)
        cost = compared.ratio(EVERYTHING, to=way)
        found.append(Worth(piece, images, cost, control, by_design))
    return found
