"""Figure of a graded batch: which exercises were solved, and the mistake that was made most often
in each.
"""

from collections.abc import Sequence

from matplotlib.figure import Figure

from course.plots.style import COLORS, GREY, axes
from instructor.grading.analysis import Item


def shares(items: Sequence[Item], title: str) -> Figure:
    """One bar per exercise: the share that solved it, the share with part of the points.

    The mistakes made most often stand next to the bar.

    Args:
        title: what the figure is about, e.g. the unit and how many handed it in.
    """
    figure, ax = axes(10.0, 1.2 + 0.27 * len(items))
    solved = [item.solved for item in items]
    partly = [item.partly for item in items]
    rows = range(len(items))
    ax.barh(rows, solved, color=COLORS[0], height=0.7, label="solved")
    ax.barh(rows, partly, left=solved, color=COLORS[5], height=0.7, label="part of the points")
    for row, item in enumerate(items):
        percent = f"{100 * item.solved:.0f} %"
        if item.solved > 0.08:  # there is room in the bar
            place = {"x": item.solved - 0.01, "ha": "right", "color": "white"}
        else:
            place = {"x": 0.01, "ha": "left", "color": "black"}
        ax.text(y=row, s=percent, va="center", fontsize=7, **place)
        named = ",  ".join(f"{made.learners} × {made.mistake}" for made in item.mistakes[:2])
        ax.text(1.02, row, named, va="center", fontsize=8, color=GREY)
    ax.set_yticks(rows, [item.exercise for item in items], fontsize=8)
    ax.set(xlim=(0, 1), ylim=(len(items) - 0.4, -0.6))
    ax.set_xlabel("share of those who handed it in", fontsize=8)
    ax.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0", "25 %", "50 %", "75 %", "100 %"], fontsize=8)
    ax.grid(axis="y", visible=False)
    ax.set_title(title, fontsize=10, loc="left", pad=20)
    ax.text(1.02, -0.8, "mistakes recognised most often", fontsize=8, color=GREY, va="bottom")
    ax.legend(
        frameon=False,
        fontsize=8,
        ncols=2,
        loc="lower left",
        bbox_to_anchor=(-0.02, 0.99),
        borderpad=0.2,
    )
    return figure
