"""The leaderboard of unit 06's race: what learners entered, kept next to their answers.

Each entry is compared with everything, in images by the same seeds and in time per image by one
comparison with its control. So entries of different hours can stand on one board: each is a ratio
to the same recipe, measured in the same minutes.
"""

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path

import torch

from course.device import machine
from course.learner import answers
from course.measure.comparison import Interval
from course.training.race import (
    COST_IMAGES,
    EVERYTHING,
    Run,
    Worth,
    costs,
    race_all,
    times_fewer_images,
)
from course.training.speedrun import Recipe, Track

KEPT = "leaderboard.jsonl"


@dataclass(frozen=True)
class Entry:
    """A recipe that a learner entered, and what it is worth over everything."""

    worth: Worth
    recipe: dict
    track: str
    target: float
    machine: str
    at: str  # ISO 8601


def enter(
    how: Recipe,
    track: Track,
    runs: Iterable[Run],
    device: torch.device | str = "cpu",
    most_epochs: float = 10,
    seconds: float = 20.0,
    n_images: int = COST_IMAGES,
) -> Entry:
    """Race `how`, compare its cost with that of everything, and return the Entry, which is kept.

    Args:
        runs: of the race; those of everything give the base, and the seeds.
        seconds, n_images: for the comparison of `costs`.
    """
    base = [run for run in runs if run.name == EVERYTHING]
    everything = Recipe(**base[0].recipe)
    name = next_name(kept())
    own = race_all({name: how}, track, len(base), device, most_epochs)
    compared = costs({EVERYTHING: everything, name: how}, track, device, seconds, n_images)
    images = times_fewer_images([*base, *own], name, EVERYTHING)
    worth = Worth(name, images, compared.ratio(name), compared.control)
    at = datetime.now().astimezone().isoformat(timespec="seconds")
    entry = Entry(worth, asdict(how), track.name, track.target, machine(), at)
    keep(entry)
    return entry


def board(entries: Iterable[Entry], track: Track) -> list[Worth]:
    """The Worth of the entries on this track and machine, the largest estimate first.

    The last row is everything against itself, as the latest entry measured it.
    """
    wanted = (track.name, track.target, machine())
    rows = []
    for entry in entries:
        if (entry.track, entry.target, entry.machine) == wanted:
            rows.append(entry.worth)
    if not rows:
        return []
    control = rows[-1].control
    again = Worth("everything again", Interval(1.0, 1.0, 1.0), control, control, by_design=True)
    return [*sorted(rows, key=lambda worth: -worth.total.estimate), again]


def next_name(entries: Iterable[Entry]) -> str:
    """The name of the learner's next entry: "mine 1", "mine 2", ..."""
    numbers = [0]
    for entry in entries:
        number = entry.worth.name.removeprefix("mine ")
        if number.isdigit():
            numbers.append(int(number))
    return f"mine {max(numbers) + 1}"


def kept_file() -> Path | None:
    """The Path of the file of this learner's entries; None if COURSE_ANSWERS=off: keep nothing."""
    folder = answers.folder()
    return folder and folder / KEPT


def keep(entry: Entry) -> None:
    """Append `entry` to `kept_file()`; print a sentence if that fails."""
    path = kept_file()
    if path is not None:
        append_line(path, asdict(entry))


def kept() -> list[Entry]:
    """All entries in `kept_file()`, oldest first. Damaged lines are skipped and stay there."""
    path = kept_file()
    entries = []
    damaged = []
    for number, facts in read_lines(path) if path else ():
        try:
            worth = facts.pop("worth")
            for factor in ("images", "cost", "control"):
                worth[factor] = Interval(**worth[factor])
            entries.append(Entry(Worth(**worth), **facts))
        except (TypeError, KeyError, AttributeError):
            damaged.append(str(number))
    if damaged:
        places = ", ".join(damaged)
        print(f"{path.name}: the leaderboard leaves out what is not an entry, at line {places}.")
    return entries


def append_line(path: Path, facts: dict) -> None:
    """Append `facts` to the file as a line of JSON; print a sentence if that fails."""
    line = json.dumps(facts).encode() + b"\n"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # one write of one line: two kernels do not mix theirs
        with open(path, "ab+", buffering=0) as stream:
            stream.seek(max(0, stream.seek(0, os.SEEK_END) - 1))
            was_cut_short = stream.read(1) not in (b"", b"\n")  # a program ended while it wrote
            if was_cut_short:
                line = b"\n" + line
            stream.write(line)
    except OSError as error:
        print(f"{path.name} cannot be written ({error.strerror}), so this run is not kept.")


def read_lines(path: Path) -> Iterator[tuple[int, dict | None]]:
    """Yield (number, facts) of each line that is not empty; facts are None if it is not JSON."""
    if not path.exists():
        return
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                yield number, json.loads(line)
            except ValueError:
                yield number, None
