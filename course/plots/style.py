"""What all figures share: colours, an empty figure, boxes and arrows of diagrams."""

import matplotlib.pyplot as plt
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")  # Okabe and Ito, told apart by most eyes
GREY = "#666666"


def axes(width=7.0, height=3.4, columns=1):
    """(Figure, Axes, ...) without frame on top and right, with a faint grid, closed in pyplot.

    Returns: the figure and its `columns` axes; `width` and `height` are in inches.
    """
    figure, grid = plt.subplots(1, columns, figsize=(width, height), dpi=78, layout="constrained", squeeze=False)
    for ax in grid[0]:
        ax.spines[["top", "right"]].set_visible(False)
        ax.grid(alpha=0.25)
    plt.close(figure)  # shown because the cell returns it, not twice because it is open
    return figure, *grid[0]


def canvas(width, height, x, y):
    """(Figure, Axes) to draw a diagram on: no frame, coordinates from 0 to `x` and 0 to `y`."""
    figure, ax = axes(width, height)
    ax.grid(False)
    ax.axis("off")
    ax.set(xlim=(0, x), ylim=(0, y))
    return figure, ax


def box(ax, x, y, text, color, width=1.9, height=0.6):
    """None; draws a rounded box with its middle at (x, y) and `text` in white."""
    corner = (x - width / 2, y - height / 2)
    ax.add_patch(FancyBboxPatch(corner, width, height, boxstyle="round,pad=0.04", fc=color, ec="none"))
    ax.text(x, y, text, ha="center", va="center", fontsize=9, color="white")


def arrow(ax, start, end, color=GREY, **style):
    """None; draws an arrow from `start` to `end`, points (x, y)."""
    ax.add_patch(
        FancyArrowPatch(start, end, arrowstyle="-|>", mutation_scale=9, color=color, shrinkA=0, shrinkB=0, **style)
    )
