"""Figure of a graded batch: which exercises were solved, and the mistake that was made most often
in each.
"""

from course.plots.style import COLORS, GREY, axes


def shares(exercises, title):
    """One bar an exercise: the share that solved it, the share with part of the points, the
    mistakes made most often.

    Args:
        exercises: list of (name, share solved, share with part, [(mistake, number of learners),
            ...]).
        title: what the figure is about, e.g. the unit and how many handed it in.
    """
    figure, ax = axes(10.0, 1.2 + 0.27 * len(exercises))
    solved, partly = ([row[column] for row in exercises] for column in (1, 2))
    places = range(len(exercises))
    ax.barh(places, solved, color=COLORS[0], height=0.7, label="solved")
    ax.barh(places, partly, left=solved, color=COLORS[5], height=0.7, label="part of the points")
    for place, (_, share, _, mistakes) in enumerate(exercises):
        x, side, color = (
            (share - 0.01, "right", "white") if share > 0.08 else (0.01, "left", "black")
        )
        ax.text(x, place, f"{100 * share:.0f} %", va="center", ha=side, fontsize=7, color=color)
        named = ",  ".join(f"{count} × {name}" for name, count in mistakes[:2])
        ax.text(1.02, place, named, va="center", fontsize=8, color=GREY)
    ax.set_yticks(places, [name for name, *_ in exercises], fontsize=8)
    ax.set(xlim=(0, 1), ylim=(len(exercises) - 0.4, -0.6))
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
