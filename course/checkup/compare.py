"""Did a change help? Two reports of `--json`, one from before it and one from after it."""

import json
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from course.checkup.formats import duration
from course.checkup.report import SCHEMA
from course.errors import CourseError
from course.measure.comparison import (
    FEWEST_VALUES,
    Interval,
    quotient,
    ratio_interval,
    verdict_on,
)

BLOCKS = 12  # of consecutive steps, whose medians are compared: neighbours are alike
ADVICE_CHARACTERS = 90


@dataclass(frozen=True)
class Compared:
    """Two reports.

    Attributes:
        ratio: how many times as fast per sample the training is after the change.
        phases: {phase: how many times as fast it is}; of those in both reports.
    """

    before: dict[str, Any]
    after: dict[str, Any]
    ratio: Interval
    phases: dict[str, Interval]

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> list[str]:
        steps = [duration(one["seconds"]["median"]) for one in (self.before, self.after)]
        head = f"{self.after['name']} is {self.ratio} times as fast per sample as before"
        lines = [f"{head}: {verdict_on(self.ratio)}.", f"  a step took {steps[0]}, now {steps[1]}"]
        if self.before["machine"] != self.after["machine"]:
            lines.append("  The machines differ, so this says little about the change:")
            lines += [f"    {one['machine']}" for one in (self.before, self.after)]
        for name, ratio in self.phases.items():
            seconds = [
                duration(one["phases"][name]["seconds"]) for one in (self.before, self.after)
            ]
            times = f"{ratio} times as fast"
            lines.append(f"  {name:<14}{seconds[0]:>9} -> {seconds[1]:<9} {times}")
        return lines + self._advice_lines()

    def _advice_lines(self) -> list[str]:
        """What is no longer advised, what still is, and what is new."""
        texts = []
        for one in (self.before, self.after):
            texts.append({advice["name"]: advice["text"] for advice in one["advice"]})
        before, after = texts
        lines = []
        for word, names, of in (
            ("gone", before.keys() - after.keys(), before),
            ("still advised", before.keys() & after.keys(), after),
            ("new", after.keys() - before.keys(), after),
        ):
            for name in sorted(names):
                lines.append(f"  {word}: {of[name][:ADVICE_CHARACTERS]}")
        return lines


def compare_files(before: Path, after: Path) -> Compared:
    """The comparison of two files of `--json`.  Raises: CourseError if one is none."""
    return compare_reports(_read(before), _read(after))


def compare_reports(before: dict[str, Any], after: dict[str, Any]) -> Compared:
    """The comparison of the data of two reports.

    Two runs share no rounds. The steps of each are cut into as many blocks in their order, and
    blocks of the same number are paired: what gets slower in both alike, as a longer text in the
    same order does, then drops out. Where the batches differ in size, it is per sample.
    """
    samples = [one["batch"].get("samples", 1) for one in (before, after)]
    ratio = _ratio(before["seconds"]["each"], after["seconds"]["each"])
    phases = {}
    for name, one in before["phases"].items():
        if name in after["phases"]:
            phases[name] = quotient(_seconds(one), _seconds(after["phases"][name]))
    return Compared(before, after, ratio.scaled(samples[1] / samples[0]), phases)


def _read(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CourseError(f"{path} cannot be read as a report of --json: {error}.") from None
    schema = data.get("schema") if isinstance(data, dict) else None
    if schema != SCHEMA:
        raise CourseError(
            f"{path} has schema {schema}, and this course writes {SCHEMA}; "
            "make both reports with the same version, by course checkup --json FILE."
        )
    if not data["seconds"]["each"]:
        raise CourseError(f"{path} is a report in which no step was timed.")
    return data


def _ratio(before: list[float], after: list[float]) -> Interval:
    n_blocks = min(BLOCKS, len(before), len(after))
    if n_blocks < FEWEST_VALUES:
        estimate = statistics.median(before) / statistics.median(after)
        return Interval(estimate, 0.0, float("inf"))
    return ratio_interval(_medians(before, n_blocks), _medians(after, n_blocks))


def _medians(seconds: list[float], n_blocks: int) -> torch.Tensor:
    """float64 (n_blocks,): the median of each block of consecutive steps."""
    medians = []
    for number in range(n_blocks):
        begin, end = (len(seconds) * edge // n_blocks for edge in (number, number + 1))
        medians.append(statistics.median(seconds[begin:end]))
    return torch.tensor(medians, dtype=torch.float64)


def _seconds(phase: dict[str, float]) -> Interval:
    """The Interval of a phase's seconds, which is as wide as that of its share."""
    per_share = phase["seconds"] / max(1e-12, phase["share"])
    return Interval(phase["seconds"], per_share * phase["low"], per_share * phase["high"])
