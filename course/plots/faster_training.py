"""Figures of unit 06_faster_training: measurements -> *plots* -> a figure per experiment.  Nothing is computed here."""

from course.plots.style import COLORS, GREY, axes

# part 1, find out what is slow


# part 2, fewer steps


# part 3, cheaper steps


def ladder(milliseconds):
    """Median time of a step on each rung of the ladder, lowest rung on top, with the spread over the rounds.

    Args:
        milliseconds: {rung: tensor (rounds,)}, each rung with the changes of all rungs before it.
    """
    figure, ax = axes(7.2, 0.9 + 0.42 * len(milliseconds))
    for place, values in enumerate(milliseconds.values()):
        middle = values.median().item()
        ax.barh(place, middle, height=0.62, color=GREY if place == 0 else COLORS[0], lw=0)
        ax.plot([values.min(), values.max()], [place, place], color="black", lw=1)
        ax.annotate(f"{middle:.3g} ms", (values.max(), place), xytext=(5, -3), textcoords="offset points")
    ax.axvline(next(iter(milliseconds.values())).median().item(), color=GREY, lw=1, ls=":")
    ax.set_yticks(range(len(milliseconds)), list(milliseconds))
    ax.invert_yaxis()
    ax.grid(axis="y", visible=False)
    ax.margins(x=0.12)
    ax.set(xlabel="ms per step", title="Each rung stands on those above it")
    return figure


# part 4, memory for time, and the race
