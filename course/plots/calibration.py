"""How good the learner's predictions were, as a figure: course.learner.calibration -> Figure."""

from collections.abc import Sequence

from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator

from course.learner import calibration as kept
from course.learner.kept_predictions import Prediction
from course.learner.verdicts import FACTOR
from course.plots.style import BLUE, GREY, axes, label_point, plain_log
from course.text import counted

LEAST_ROOM = 1.6  # factor between the outermost points and the frame
ROOM_SHARE = 0.1  # of the length of an axis
LONG_RANGE = 200


def calibration(place: str) -> Figure | None:
    """Print all predictions of a unit or part, the worst first; return their figure.

    Args:
        place: such as "01" or "01/2".

    Returns: the figure of `predicted_over_measured`, None without a number to draw.
    Raises: CourseError if there is no such unit, or the file of its predictions is damaged.
    """
    predictions = kept.of_place(place)
    print(kept.text(place, predictions))
    return predicted_over_measured(predictions)


def predicted_over_measured(predictions: Sequence[Prediction]) -> Figure | None:
    """Draw predicted against measured numbers, with the band of a factor of two; None if no number.

    A level line is the interval of a measurement. Points that are wrong in size or direction have
    the numbers of the printed list, counted from 1. Only predictions that count and positive
    numbers are drawn.
    """
    drawn = [(number, one) for number, one in enumerate(predictions, 1) if _is_drawn(one)]
    if not drawn:
        return None
    figure, ax = axes(4.6, 4.2)
    ends = _limits([one for _, one in drawn])
    above = [end * FACTOR for end in ends]
    below = [end / FACTOR for end in ends]
    ax.fill_between(ends, below, above, color=GREY, alpha=0.15, lw=0)
    ax.plot(ends, ends, color=GREY, lw=1)
    for number, one in drawn:
        _draw_point(ax, one, str(number))
    ax.set(xscale="log", yscale="log", xlim=ends, ylim=ends, aspect="equal")
    ax.set(xlabel="measured", ylabel="predicted")
    for axis in (ax.xaxis, ax.yaxis):
        _ticks(axis, ends)
    near = sum(one.near for _, one in drawn)
    title = f"{near} of the {counted(len(drawn), 'point')} within a factor of two"
    ax.set_title(title, fontsize=10)
    style = dict(transform=ax.transAxes, fontsize=8, color=GREY)
    ax.text(0.03, 0.97, "predicted too high", ha="left", va="top", **style)
    ax.text(0.97, 0.03, "predicted too low", ha="right", va="bottom", **style)
    return figure


def _is_drawn(one):
    return one.counts and one.estimate is not None and one.estimate > 0 and one.first > 0


def _draw_point(ax, one, label):
    """Draw a hollow point with its interval; `label` it if the prediction is wrong."""
    if one.low is not None and one.low > 0:
        ax.plot([one.low, one.high], [one.first, one.first], color=BLUE, lw=1)
    ax.plot(one.estimate, one.first, "o", mfc="white", mec=BLUE, zorder=3)
    if not one.near or one.direction is False:
        label_point(ax, label, (one.estimate, one.first), fontsize=8, color=BLUE)


def _limits(predictions):
    """The ends of both axes, with room around the points."""
    values = []
    for one in predictions:
        values += [one.first, one.estimate]
        if one.low is not None and one.low > 0:
            values += [one.low, one.high]
    low, high = min(values), max(values)
    room = max(LEAST_ROOM, (high / low) ** ROOM_SHARE)
    return low / room, high * room


def _ticks(axis, ends):
    """Put ticks at plain numbers; only at powers of ten over a long range."""
    if ends[1] < LONG_RANGE * ends[0]:
        plain_log(axis)
        return
    axis.set_major_locator(LogLocator(base=10, numticks=8))
    axis.set_major_formatter("{x:,g}")
    axis.set_minor_locator(NullLocator())
