"""The map of batch size and learning rate: how far does a scaling rule stay on the ridge?"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.figure import Figure as Picture

from course.figures.figure import Figure

LINEAR, SQUARE_ROOT, CONSTANT = 1.0, 0.5, 0.0  # powers of the scaling rules


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
    if rate is None:
        known = {}
        for value, score in zip(rates, scores[0], strict=True):
            if score is not None:
                known[value] = score
        rate = max(known, key=known.get)
    points = along_rule(batches, rates, scores, power, rate)
    data = {
        "batches": list(batches),
        "rates": list(rates),
        "scores": [list(row) for row in scores],
        "power": power,
        "rate": rate,
        "name": name,
    }
    said = ", ".join(_text(point.score) for point in points)
    caption = f"{name} along the line of power {power:g}: {said}."
    return Figure("batch_rate_map", data, _picture(data, points, caption), caption)


def _text(score):
    return "not run" if score is None else f"{score:.2f}"


def _picture(data, points, caption) -> Picture:
    picture = Picture(figsize=(6, 3.4))
    axes = picture.add_subplot()
    columns = []
    for row in data["scores"]:
        columns.append([math.nan if score is None else score for score in row])
    rows = list(zip(*columns, strict=True))
    image = axes.pcolormesh(rows, cmap="Blues", edgecolors="w")
    picture.colorbar(image, label=data["name"])
    middles = [i + 0.5 for i in range(max(len(data["batches"]), len(data["rates"])))]
    axes.set_xticks(middles[: len(data["batches"])], [f"{batch:,}" for batch in data["batches"]])
    axes.set_yticks(middles[: len(data["rates"])], [f"{rate:g}" for rate in data["rates"]])
    for x, row in zip(middles, data["scores"], strict=False):
        for y, score in zip(middles, row, strict=False):
            if score is not None:
                ink = "white" if image.norm(score) > 0.5 else "0.2"
                axes.text(x, y - 0.4, _text(score), ha="center", fontsize=8, color=ink)
    first = math.log(data["rates"][0])
    each = (math.log(data["rates"][-1]) - first) / max(len(data["rates"]) - 1, 1)
    heights = [(math.log(point.wanted) - first) / each + 0.5 for point in points]
    axes.plot(middles[: len(points)], heights, color="C1", lw=2, marker="o", ms=5)
    axes.set_ylim(0, len(data["rates"]))
    axes.set_facecolor("0.93")
    axes.set_xlabel("batch size (grey squares: not run)")
    axes.set_ylabel("learning rate")
    axes.set_title(caption, fontsize=10)
    return picture
