"""Probe of exercise worker_plot."""

import re

import matplotlib.pyplot as plt
import torch
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure

from course.checks.engine import exercise


@exercise()
def worker_plot(answer, device, seed):
    """An error bar for each number of workers, read back from the figure."""
    rng = torch.Generator().manual_seed(seed)
    workers = [0, 1, 2, 3 + seed % 2, 8, 16 + seed % 5]
    seconds = 3.0 + torch.rand(len(workers), 5 + seed % 3, generator=rng, dtype=torch.float64)
    seconds += torch.arange(len(workers)).flip(0)[:, None]

    theirs, opened = plt.figure(), plt.get_fignums()
    try:
        figure = answer(list(workers), seconds)
        left = plt.get_fignums()
    finally:
        for number in plt.get_fignums():
            if number not in opened[:-1]:
                plt.close(number)
    yield "returns a matplotlib Figure", "Figure" if isinstance(figure, Figure) else type(figure).__name__
    yield "it is a new one, and one that others have open stays empty", figure is not theirs and not theirs.axes
    yield "the new one is closed in pyplot", not set(left) - set(opened)
    yield "those of others stay open", set(opened) <= set(left)
    yield "there is one pair of axes", len(figure.axes)
    found = _errorbars(figure.axes[0])
    yield "drawn by one call of errorbar", len(found)
    shown = _read(found[0])
    yield "x is the number of workers", shown["x"]
    yield "and the axes are linear", {"x axis": figure.axes[0].get_xscale(), "y axis": figure.axes[0].get_yscale()}
    named = [f"{w} workers" for w in workers]
    yield "y is the mean over the passes", dict(zip(named, shown["y"], strict=False))
    yield "there are bars", len(shown["bars"])
    ends = [{"lower end": low, "upper end": high} for low, high in shown["bars"]]
    yield "bars reach one sample standard deviation (n - 1) down and up", dict(zip(named, ends, strict=False))
    yield "the bars have caps", bool(shown["caps"])
    ax = figure.axes[0]
    yield "the x label contains the word workers", "workers" in ax.get_xlabel().lower()
    words = set(re.findall(r"[a-zµ]+", ax.get_ylabel().lower()))
    units = {"s", "sec", "secs", "second", "seconds"}
    yield "the y label names the unit, s", bool(words & units)
    yield "the y label says what is measured, too", bool(words - units)
    yield "the y axis starts at 0", float(ax.get_ylim()[0])
    yield "the y axis shows the bars to their ends", bool(ax.get_ylim()[1] >= max(high for _, high in shown["bars"]))
    yield "the x axis has ticks at the numbers of workers and nowhere else", sorted(map(float, ax.get_xticks()))

    wide = torch.tensor([[0.1, 0.2, 3.0], [0.4, 0.5, 0.9]], dtype=torch.float64)
    figure = answer([4, 1], wide)
    plt.close(figure)
    ax = figure.axes[0]
    shown = _read(_errorbars(ax)[0])
    yield "three passes, workers in another order: the ends of the bars", [list(pair) for pair in shown["bars"]]
    yield "and a y axis from 0, though a bar reaches below", float(ax.get_ylim()[0])


def _errorbars(ax):
    return [c for c in ax.containers if isinstance(c, ErrorbarContainer)]


def _read(container):
    """What a drawn errorbar says: x, y, [(lower end, upper end)] of its bars, how many lines of caps."""
    line, caps, collections = container
    bars = [[tuple(map(float, point)) for point in segment] for c in collections[:1] for segment in c.get_segments()]
    x, y = (line.get_xdata(orig=False), line.get_ydata(orig=False)) if line else _middles(bars)
    ends = [(low[1], high[1]) for low, high in bars]
    return {"x": list(map(float, x)), "y": list(map(float, y)), "bars": ends, "caps": len(caps)}


def _middles(bars):
    """Where the points lie if errorbar was told to draw none."""
    return [low[0] for low, _ in bars], [(low[1] + high[1]) / 2 for low, high in bars]
