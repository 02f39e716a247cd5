"""Known mistakes of exercise worker_plot, and right answers in other styles."""

import statistics

import matplotlib.pyplot as plt
import torch
from matplotlib.figure import Figure

from course.checks.engine import alternative, mistake


def drawn_plot(workers, mean, spread, ylabel="time per pass, s", bottom=0, close=True, **options):
    """A correct plot of what it is given, unless told otherwise."""
    figure, ax = plt.subplots()
    ax.errorbar(workers, mean, yerr=spread, **{"capsize": 4, **options})
    ax.set(xlabel="number of workers", ylabel=ylabel, xticks=workers)
    if bottom is not None:
        ax.set_ylim(bottom=bottom)
    if close:
        plt.close(figure)
    return figure


@mistake(
    "worker_plot",
    "The deviation is divided by n, too small for a few passes. Divide by n - 1: torch.std, or numpy's ddof=1.",
)
def population_deviation(workers, seconds):
    return drawn_plot(workers, seconds.mean(-1), seconds.numpy().std(-1))


@mistake(
    "worker_plot",
    "The bars show the standard error, how well the mean is known. Asked for is the spread of the passes: do not "
    "divide by the root of n.",
)
def standard_error(workers, seconds):
    return drawn_plot(workers, seconds.mean(-1), seconds.std(-1) / seconds.shape[-1] ** 0.5)


@mistake(
    "worker_plot",
    "The bars reach from the fastest pass to the slowest. Asked for is one standard deviation on each side.",
)
def smallest_and_largest(workers, seconds):
    mean = seconds.mean(-1)
    return drawn_plot(workers, mean, torch.stack([mean - seconds.amin(-1), seconds.amax(-1) - mean]))


@mistake("worker_plot", "The points show the median. Asked for is the mean over the last axis.")
def median(workers, seconds):
    return drawn_plot(workers, seconds.quantile(0.5, -1), seconds.std(-1))


@mistake(
    "worker_plot", "The y axis does not start at 0, which makes small differences look large. Set its lower limit."
)
def axis_not_from_zero(workers, seconds):
    return drawn_plot(workers, seconds.mean(-1), seconds.std(-1), bottom=None)


@mistake("worker_plot", "The bars have no caps: their length is 0 by default. Give errorbar a capsize.")
def no_caps(workers, seconds):
    return drawn_plot(workers, seconds.mean(-1), seconds.std(-1), capsize=0)


@mistake("worker_plot", "The figure is still open, so a notebook shows it twice. plt.close(figure) before the return.")
def plot_left_open(workers, seconds):
    return drawn_plot(workers, seconds.mean(-1), seconds.std(-1), close=False)


@mistake(
    "worker_plot",
    "plt.errorbar draws into the figure that happens to be open. Make one of your own: figure, ax = plt.subplots().",
)
def drawn_into_an_open_figure(workers, seconds):
    plt.errorbar(workers, seconds.mean(-1), yerr=seconds.std(-1), capsize=4)
    plt.xlabel("number of workers")
    plt.ylabel("time per pass, s")
    plt.xticks(workers)
    plt.ylim(bottom=0)
    figure = plt.gcf()
    plt.close(figure)
    return figure


@mistake("worker_plot", 'plt.close("all") closes the figures of others too. Close your own: plt.close(figure).')
def all_figures_closed(workers, seconds):
    figure = drawn_plot(workers, seconds.mean(-1), seconds.std(-1))
    plt.close("all")
    return figure


@mistake("worker_plot", "The y label gives no unit. Say what is measured, then its unit, s.")
def no_unit(workers, seconds):
    return drawn_plot(workers, seconds.mean(-1), seconds.std(-1), ylabel="time per pass")


@mistake(
    "worker_plot",
    "The points stand at 0, 1, 2, ... and the numbers of workers are only labels, so that distances mislead. Use the "
    "numbers themselves as x.",
)
def numbers_as_labels(workers, seconds):
    figure = drawn_plot(range(len(workers)), seconds.mean(-1), seconds.std(-1))
    figure.axes[0].set_xticks(range(len(workers)), list(map(str, workers)))
    return figure


@mistake(
    "worker_plot",
    "The lower limit of the y axis was set before the drawing, which froze the upper one too. Set it afterwards.",
)
def limit_set_first(workers, seconds):
    figure, ax = plt.subplots()
    ax.set_ylim(bottom=0)
    ax.errorbar(workers, seconds.mean(-1), yerr=seconds.std(-1), capsize=4)
    ax.set(xlabel="number of workers", ylabel="time per pass, s", xticks=workers)
    plt.close(figure)
    return figure


@mistake(
    "worker_plot",
    "The ticks are matplotlib's own, some of them where nothing was measured. Set them to `workers`.",
)
def ticks_of_matplotlib(workers, seconds):
    figure, ax = plt.subplots()
    ax.errorbar(workers, seconds.mean(-1), yerr=seconds.std(-1), capsize=4)
    ax.set(xlabel="number of workers", ylabel="time per pass, s")
    ax.set_ylim(bottom=0)
    plt.close(figure)
    return figure


@alternative("worker_plot")
def bars_without_pyplot(workers, seconds):
    figure = Figure(figsize=(5, 3))
    ax = figure.add_subplot()
    mean, spread = map(list, zip(*((statistics.mean(r), statistics.stdev(r)) for r in seconds.tolist()), strict=True))
    ax.errorbar(x=workers, y=mean, yerr=spread, fmt="none", capsize=3)
    ax.set_xlabel("Workers")
    ax.set_ylabel("mean time of a pass (s)")
    ax.set_ylim(0, 1.1 * max(m + s for m, s in zip(mean, spread, strict=True)))
    ax.set_xticks(workers, labels=[str(w) for w in workers])
    return figure


@alternative("worker_plot")
def state_of_pyplot(workers, seconds):
    times = seconds.numpy()
    figure = plt.figure()
    plt.errorbar(workers, times.mean(axis=1), [times.std(axis=1, ddof=1)] * 2, linestyle="--", capsize=5, color="k")
    plt.xlabel("number of workers")
    plt.ylabel("seconds per pass")
    plt.xticks(workers)
    plt.ylim(bottom=0.0)
    plt.close()
    return figure
