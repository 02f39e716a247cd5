"""What all figures share: colours, empty figures, and the boxes and arrows of diagrams."""

import matplotlib.pyplot as plt
import torch
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch
from matplotlib.ticker import LogLocator, NullLocator

# Okabe and Ito: colour-blind safe
COLORS = (
    "#0072b2",
    "#d55e00",
    "#009e73",
    "#cc79a7",
    "#e69f00",
    "#56b4e9",
)
GREY = "#666666"


def axes(
    width: float = 7.0, height: float = 3.4, columns: int = 1, lines: int = 1, **options
) -> tuple:
    """A figure and its axes in `lines` of `columns`, with a faint grid and no frame at the top and
    right.

    Args:
        width, height: of the figure, in inches.
    """
    figure, grid = plt.subplots(lines, columns, figsize=(width, height), dpi=78, layout="constrained", squeeze=False,
                                **options)  # fmt: skip
    for ax in grid.flat:
        ax.spines[["top", "right"]].set_visible(False)
        ax.grid(alpha=0.25)
    # else Jupyter would show it twice: as the cell's result and as an open figure
    plt.close(figure)
    return figure, *grid.flat


def plain_log(axis) -> None:
    """Ticks at 1, 2, 5, 10, 20, ... in plain numbers, more over a short range, for an `axis` that
    is logarithmic.
    """
    low, high = axis.get_view_interval()
    axis.set_major_locator(
        LogLocator(base=10, subs=(1, 2, 5) if high > 5 * low else (1, 1.2, 1.5, 2, 3, 4, 5, 6, 8))
    )
    axis.set_major_formatter("{x:g}")
    axis.set_minor_locator(NullLocator())


def ticks_at(ax, values, form="{}") -> None:
    """Put a tick at each of `values` on the x axis of `ax`, which is logarithmic already, and no
    other.
    """
    ax.set_xticks(values, [form.format(value) for value in values])
    ax.minorticks_off()


def rows(ax, names, fontsize=None) -> None:
    """Name the rows 0, 1, ... of `ax`, the first on top, and draw no lines between them."""
    ax.set_yticks(range(len(names)), names, fontsize=fontsize)
    ax.invert_yaxis()
    ax.grid(axis="y", visible=False)


def legend_beside(ax, fontsize=8, **options) -> None:
    """Draw the legend of `ax` to the right of it."""
    ax.legend(
        frameon=False, fontsize=fontsize, loc="center left", bbox_to_anchor=(1, 0.5), **options
    )


def middle_and_reach(values) -> tuple:
    """(medians, distances to lowest and highest value, shape (2, n)) of the rows of a tensor (n,
    samples).
    """
    middle = values.quantile(0.5, dim=1)
    return middle, torch.stack([middle - values.amin(1), values.amax(1) - middle])


def canvas(width: float, height: float, x: float, y: float) -> tuple:
    """A figure and its axes to draw a diagram on: no frame, coordinates from 0 to `x` and 0 to
    `y`.
    """
    figure, ax = axes(width, height)
    ax.grid(False)
    ax.axis("off")
    ax.set(xlim=(0, x), ylim=(0, y))
    return figure, ax


def box(ax, x, y, text, color, width=1.9, height=0.6) -> None:
    """Draw a rounded box centred at (x, y), with `text` in white."""
    corner = (x - width / 2, y - height / 2)
    ax.add_patch(
        FancyBboxPatch(corner, width, height, boxstyle="round,pad=0.04", fc=color, ec="none")
    )
    ax.text(x, y, text, ha="center", va="center", fontsize=9, color="white")


def arrow(ax, start, end, color=GREY, **style) -> None:
    """Draw an arrow from the point `start` to the point `end`, (x, y) each."""
    ax.add_patch(
        FancyArrowPatch(
            start,
            end,
            arrowstyle="-|>",
            mutation_scale=9,
            color=color,
            shrinkA=0,
            shrinkB=0,
            **style,
        )
    )
