"""What all figures share: colours, empty figures, and the boxes and arrows of diagrams."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import matplotlib.pyplot as plt
import torch
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch
from matplotlib.ticker import LogLocator, NullLocator

from course.measure.comparison import Interval

# Okabe and Ito: colour-blind safe
BLUE = "#0072b2"
RED = "#d55e00"
GREEN = "#009e73"
PINK = "#cc79a7"
ORANGE = "#e69f00"
SKY_BLUE = "#56b4e9"
YELLOW = "#f0e442"
COLORS = (BLUE, RED, GREEN, PINK, ORANGE, SKY_BLUE)
GREY = "#666666"
DOTS_PER_INCH = 78

Point = tuple[float, float]


def axes(
    width: float = 7.0, height: float = 3.4, columns: int = 1, lines: int = 1, **options: Any
) -> tuple:
    """(Figure, Axes, Axes, ...) with axes in `lines` of `columns`, row by row.

    They have a faint grid and no frame at the top and right.

    Args:
        width, height: of the figure, in inches.
        options: of matplotlib.pyplot.subplots.
    """
    figure, grid = plt.subplots(
        lines,
        columns,
        figsize=(width, height),
        dpi=DOTS_PER_INCH,
        layout="constrained",
        squeeze=False,
        **options,
    )
    for ax in grid.flat:
        ax.spines[["top", "right"]].set_visible(False)
        ax.grid(alpha=0.25)
    # else Jupyter would show it twice: as the cell's result and as an open figure
    plt.close(figure)
    return figure, *grid.flat


def plain_log(axis: Axis) -> None:
    """Ticks at 1, 2, 5, 10, 20, ... in plain numbers, for an `axis` that is logarithmic.

    More of them over a short range.
    """
    low, high = axis.get_view_interval()
    steps = (1, 2, 5) if high > 5 * low else (1, 1.2, 1.5, 2, 3, 4, 5, 6, 8)
    axis.set_major_locator(LogLocator(base=10, subs=steps))
    axis.set_major_formatter("{x:g}")
    axis.set_minor_locator(NullLocator())


def ticks_at(ax: Axes, values: Iterable[float], form: str = "{}") -> None:
    """Put a tick at each of `values` and no other on the x axis of `ax`, which is logarithmic."""
    values = list(values)
    ax.set_xticks(values, [form.format(value) for value in values])
    ax.minorticks_off()


def integer_ticks(axis: Axis) -> None:
    """Put ticks of an `axis` at whole numbers only."""
    axis.get_major_locator().set_params(integer=True)


def rows(ax: Axes, names: Iterable[str], fontsize: float | None = None) -> None:
    """Name the rows 0, 1, ... of `ax`, the first on top, and draw no lines between them."""
    names = list(names)
    ax.set_yticks(range(len(names)), names, fontsize=fontsize)
    ax.invert_yaxis()
    ax.grid(axis="y", visible=False)


def label_point(
    ax: Axes, text: str, point: Point, offset: Point = (6, 0), va: str = "center", **style: Any
) -> None:
    """Write `text` at a distance of `offset` (right, up) from a `point` of the data.

    Args:
        offset: in typographical points.
    """
    ax.annotate(text, point, xytext=offset, textcoords="offset points", va=va, **style)


def legend_beside(ax: Axes, fontsize: float = 8, **options: Any) -> None:
    """Draw the legend of `ax` to the right of it."""
    ax.legend(
        frameon=False, fontsize=fontsize, loc="center left", bbox_to_anchor=(1, 0.5), **options
    )


class Band(NamedTuple):
    """What an error bar shows of n rows."""

    middle: torch.Tensor  # (n,)
    reach: torch.Tensor  # (2, n): distances from there to the lower and the upper end


def middle_and_reach(values: torch.Tensor | Sequence[Interval]) -> Band:
    """The Band of n Intervals, or of the rows of a tensor (n, samples): median and range."""
    if isinstance(values, torch.Tensor):
        middle = values.quantile(0.5, dim=1)
        return Band(middle, torch.stack([middle - values.amin(1), values.amax(1) - middle]))
    ends = [(value.estimate, value.low, value.high) for value in values]
    middle, low, high = torch.tensor(ends, dtype=torch.float64).T
    return Band(middle, torch.stack([middle - low, high - middle]))


def canvas(width: float, height: float, x: float, y: float) -> tuple[Figure, Axes]:
    """A figure and its axes to draw a diagram on: no frame, coordinates up to `x` and `y`.

    Args:
        width, height: of the figure, in inches.
    """
    figure, ax = axes(width, height)
    ax.grid(False)
    ax.axis("off")
    ax.set(xlim=(0, x), ylim=(0, y))
    return figure, ax


def box(
    ax: Axes, x: float, y: float, text: str, color: str, width: float = 1.9, height: float = 0.6
) -> None:
    """Draw a rounded box centred at (x, y), with `text` in white."""
    corner = (x - width / 2, y - height / 2)
    rounded = FancyBboxPatch(corner, width, height, boxstyle="round,pad=0.04", fc=color, ec="none")
    ax.add_patch(rounded)
    ax.text(x, y, text, ha="center", va="center", fontsize=9, color="white")


def arrow(ax: Axes, start: Point, end: Point, color: str = GREY, **style: Any) -> None:
    """Draw an arrow from the point `start` to the point `end`, (x, y) each."""
    line = FancyArrowPatch(
        start,
        end,
        arrowstyle="-|>",
        mutation_scale=9,
        color=color,
        shrinkA=0,
        shrinkB=0,
        **style,
    )
    ax.add_patch(line)
