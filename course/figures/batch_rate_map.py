"""The map of batch size and learning rate: how far does a scaling rule stay on the ridge?"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.figure import Figure as Picture
from matplotlib.patches import Rectangle

from course.figures.figure import Figure

LINEAR, SQUARE_ROOT, CONSTANT = 1.0, 0.5, 0.0  # powers of the scaling rules
RULES = {"constant": CONSTANT, "square root": SQUARE_ROOT, "linear": LINEAR}
RULE_STYLES = {"constant": ":", "square root": "-.", "linear": "--"}
RECORDED = Path(__file__).parent / "batch_rate_maps.json"  # `course bench rate-maps` writes it


@dataclass(frozen=True)
class RateMap:
    """Scores by batch size and learning rate, each after the same number of epochs."""

    model: str
    optimizer: str
    score: str  # what is scored: larger is better
    data: str
    epochs: float
    seeds: int  # a score is their mean; a run that diverged counts as 0
    batches: Sequence[int]  # growing
    rates: Sequence[float]  # growing, their logarithms evenly spaced
    scores: Sequence[Sequence[float | None]]  # a row per batch size; None: not run

    @property
    def label(self) -> str:
        return f"{self.model}, {self.optimizer}"

    def best(self, batch: int) -> tuple[float, float]:
        """(learning rate, score) of the best square of a batch size."""
        row = self.scores[list(self.batches).index(batch)]
        known = []
        for score, rate in zip(row, self.rates, strict=True):
            if score is not None:
                known.append((score, rate))
        score, rate = max(known)
        return rate, score

    def reach(self, power: float, near: float = 0.9) -> int:
        """Up to which factor of the smallest batch a rule stays near the best of each column.

        Args:
            power: of the batch size in the rule, which begins at the best rate of the smallest
                batch.
            near: share of the column's best score that is near.
        """
        rate, _ = self.best(self.batches[0])
        reached = 1
        for point in along_rule(self.batches, self.rates, self.scores, power, rate):
            _, best = self.best(point.batch)
            if point.score is None or point.score < near * best:
                break
            reached = point.batch // self.batches[0]
        return reached


def recorded_maps() -> dict[str, RateMap]:
    """The recorded maps by their labels."""
    maps = {}
    for fields in json.loads(RECORDED.read_text(encoding="utf-8")):
        one = RateMap(**fields)
        maps[one.label] = one
    return maps


@dataclass(frozen=True)
class RulePoint:
    """The learning rate that a rule asks for at a batch size, and the score of its square."""

    batch: int
    wanted: float
    score: float | None  # None: not run, or outside the map


def along_rule(
    batches: Sequence[int],
    rates: Sequence[float],
    scores: Sequence[Sequence[float | None]],
    power: float,
    rate: float,
) -> list[RulePoint]:
    """The RulePoint of each batch size; `rate` is the learning rate of the first one.

    Args:
        scores: a row per batch size, with a score per learning rate.
        power: the learning rate grows with this power of the batch size: 1 linear, 0.5 square root.
    """
    half = math.log(rates[-1] / rates[0]) / max(len(rates) - 1, 1) / 2
    points = []
    for batch, row in zip(batches, scores, strict=True):
        wanted = rate * (batch / batches[0]) ** power
        distances = [abs(math.log(value / wanted)) for value in rates]
        nearest = distances.index(min(distances))
        inside = distances[nearest] <= half + 1e-9
        points.append(RulePoint(batch, wanted, row[nearest] if inside else None))
    return points


def rate_map(
    batches: Sequence[int],
    rates: Sequence[float],
    scores: Sequence[Sequence[float | None]],
    power: float = LINEAR,
    rate: float | None = None,
    name: str = "score",
) -> Figure:
    """The map, with sliders for the rule's power and the learning rate of the smallest batch.

    Args:
        batches, rates: of the columns and rows, in growing order; the logarithms of `rates` are
            evenly spaced.
        scores: a row per batch size, with a score per learning rate, None where none was run.
        rate: learning rate of the smallest batch (default: the best one there).
        name: of the score, for the text.
    """
    one = RateMap("", "", name, "", 1, 1, batches, rates, scores)
    return _figure({"": one}, "", power, rate, ())


def rate_maps(
    maps: Mapping[str, RateMap],
    shown: str,
    power: float = LINEAR,
    rate: float | None = None,
    here: Sequence[tuple[int, float, float]] = (),
) -> Figure:
    """As `rate_map`, with a switch between `maps`.

    Args:
        shown: the label of the map that is shown at first.
        here: (batch size, learning rate, score) of runs on this machine, framed in that map
            where it has their batch size.
    """
    on_map = [run for run in here if run[0] in maps[shown].batches]
    return _figure(maps, shown, power, rate, on_map)


def _figure(maps, shown, power, rate, here) -> Figure:
    one = maps[shown]
    if rate is None:
        rate = one.best(one.batches[0])[0]
    data = {
        "maps": [_drawn(label, each) for label, each in maps.items()],
        "shown": list(maps).index(shown),
        "power": power,
        "rate": rate,
        "here": [list(run) for run in here],
    }
    points = along_rule(one.batches, one.rates, one.scores, power, rate)
    said = ", ".join(_text(point.score) for point in points)
    caption = f"{one.score} along your rule (power {power:g}), batch by batch: {said}."
    return Figure("batch_rate_map", data, _picture(one, points, here, caption), caption)


def _drawn(label, one):
    return {
        "label": label,
        "batches": list(one.batches),
        "rates": list(one.rates),
        "scores": [list(row) for row in one.scores],
        "name": one.score,
    }


def _text(score):
    return "not run" if score is None else f"{score:.2f}"


def _picture(one, points, here, caption) -> Picture:
    picture = Picture(figsize=(6.5, 3.6), layout="constrained")
    axes = picture.add_subplot()
    columns = []
    for row in one.scores:
        columns.append([math.nan if score is None else score for score in row])
    rows = list(zip(*columns, strict=True))
    image = axes.pcolormesh(rows, cmap="Blues", edgecolors="w")
    picture.colorbar(image, label=one.score)
    middles = [i + 0.5 for i in range(max(len(one.batches), len(one.rates)))]
    axes.set_xticks(middles[: len(one.batches)], [f"{batch:,}" for batch in one.batches])
    axes.set_yticks(middles[: len(one.rates)], [f"{rate:.3g}" for rate in one.rates])
    for x, row in zip(middles, one.scores, strict=False):
        for y, score in zip(middles, row, strict=False):
            if score is not None:
                ink = "white" if image.norm(score) > 0.5 else "0.2"
                axes.text(x, y - 0.4, _text(score), ha="center", fontsize=8, color=ink)
    first = math.log(one.rates[0])
    each = (math.log(one.rates[-1]) - first) / max(len(one.rates) - 1, 1)

    def height(rate):
        return (math.log(rate) - first) / each + 0.5

    wide = middles[: len(points)]
    for rule, power in RULES.items():
        start = points[0]
        heights = [height(start.wanted * (p.batch / start.batch) ** power) for p in points]
        axes.plot(wide, heights, color="C7", lw=1, ls=RULE_STYLES[rule], label=rule)
    heights = [height(p.wanted) for p in points]
    axes.plot(wide, heights, color="C1", lw=2, marker="o", ms=5, label="your rule")
    for batch, rate, _ in here:
        place = (list(one.batches).index(batch), math.floor(height(rate)))
        axes.add_patch(Rectangle(place, 1, 1, fill=False, edgecolor="C3", lw=2))
    axes.set_ylim(0, len(one.rates))
    axes.set_facecolor("0.93")
    axes.set_xlabel("batch size (grey squares: not run)" if None in _flat(one) else "batch size")
    axes.set_ylabel("learning rate")
    axes.set_title(caption, fontsize=10)
    axes.legend(fontsize=7, loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=4)
    return picture


def _flat(one):
    return [score for row in one.scores for score in row]
