"""Figures of unit 04.  Every figure of time shows both yardsticks too: memcpy, and reading the file."""

import statistics

from course.plots.style import COLORS, GREY, arrow, axes, box, canvas

SMALLEST = 1e-12  # of a loss: what is smaller is rounding

BLUE, RED, GREEN, PINK, ORANGE, _ = COLORS


def record_file(pages=3, rows_of_page=4):
    """The record file: a header, then rows of equal stride, `rows_of_page` of them in a page."""
    figure, ax = canvas(8.6, 1.7, 12.2, 3.2)
    box(ax, 0.9, 1.6, "header", GREY, 1.5, 0.7)
    ax.text(0.9, 0.85, "4096 bytes", ha="center", fontsize=8, color=GREY)
    for page in range(pages):
        start = 2.0 + 3.4 * page
        for row in range(rows_of_page):
            number = page * rows_of_page + row
            box(ax, start + 0.4 + 0.8 * row, 1.6, f"row {number}", (BLUE, GREEN, ORANGE)[page % 3], 0.68, 0.7)
        ax.text(start + 1.6, 2.5, f"page {page}", ha="center", fontsize=9)
    arrow(ax, (2.4, 0.9), (3.2, 0.9))
    ax.text(2.8, 0.35, "stride", ha="center", fontsize=8, color=GREY)
    ax.text(7.4, 0.35, "a row: D values of x, one of y, zeros up to the stride", ha="center", fontsize=8, color=GREY)
    return figure


def windows(order, page_rows, batch):
    """The rows of an order as squares coloured by page, one line per batch."""
    n = len(order)
    figure, ax = axes(8.6, 0.5 + 0.32 * -(-n // batch))
    pages = (order // page_rows).tolist()
    lines, places = [i // batch for i in range(n)], [i % batch for i in range(n)]
    points = ax.scatter(places, lines, c=pages, cmap="turbo", marker="s", s=max(4, 9000 / batch**1.3))
    ax.invert_yaxis()
    ax.grid(False)
    ax.set(xlabel="place in the batch", ylabel="batch", yticks=range(max(lines) + 1))
    figure.colorbar(points, ax=ax, label="page in the file", fraction=0.03)
    return figure


def bias(curves, chosen=None):
    """Bias of the batches against the memory of a window.

    Args:
        curves: {name: (bytes of a window, bias)}, two lists each.
        chosen: bytes of the window that later experiments use.
    """
    figure, ax = axes(7.4, 3.2)
    for (name, (nbytes, values)), color in zip(curves.items(), COLORS, strict=False):
        ax.loglog([n / 1e6 for n in nbytes], values, "o-", color=color, label=name)
    ax.axhline(1, color=GREY, ls=":", lw=1)
    ax.annotate("a random draw", (1, 1), (-4, 3), xycoords=("axes fraction", "data"), textcoords="offset points",
                ha="right", fontsize=8, color=GREY)  # fmt: skip
    if chosen:
        ax.axvline(chosen / 1e6, color=GREY, ls="--", lw=1)
        ax.annotate("used below", (chosen / 1e6, 1), (3, -4), xycoords=("data", "axes fraction"),
                    textcoords="offset points", va="top", fontsize=8, color=GREY)  # fmt: skip
    ax.set(xlabel="memory of a window, MB", ylabel="variance of batch means\nover that of random batches")
    ax.legend(frameon=False, fontsize=8)
    return figure


def _draw_yardsticks(ax, values, vertical):
    """Draw each of `values`, {name: value}, as a dashed line across `ax` with its name."""
    for (name, value), color in zip(values.items(), (GREY, RED), strict=False):
        line = ax.axvline if vertical else ax.axhline
        line(value, color=color, ls="--", lw=1, label=name, zorder=1)


def epoch_times(seconds, nbytes, yardsticks):
    """GB/s of each loader as a bar, the range of its rounds as a line, the yardsticks dashed.

    Args:
        seconds: {name: tensor of seconds per epoch}.
        nbytes: bytes per epoch.
        yardsticks: {name: seconds}.
    """
    figure, ax = axes(8.6, 1.1 + 0.32 * len(seconds))
    for place, (name, taken) in enumerate(seconds.items()):
        rates = sorted(nbytes / s / 1e9 for s in taken.tolist())
        middle = statistics.median(rates)
        ax.barh(place, middle, color=GREEN if "ours" in name else BLUE, height=0.7)
        ax.plot([rates[0], rates[-1]], [place, place], color="black", lw=1)
        ax.text(rates[-1], place, f"  {middle:.1f}", va="center", fontsize=8)
    _draw_yardsticks(ax, {name: nbytes / s / 1e9 for name, s in yardsticks.items()}, vertical=True)
    ax.set_yticks(range(len(seconds)), seconds, fontsize=8)
    ax.invert_yaxis()
    ax.grid(axis="y", visible=False)
    ax.set(xlabel="GB/s per epoch: median, and the range of all rounds as a line")
    ax.legend(frameon=False, fontsize=8, loc="upper center", bbox_to_anchor=(0.5, 1.2), ncols=2)
    return figure


def memory(nbytes, of_data):
    """Memory of each loader besides mapped files, {name: bytes}, as bars; the size of the data dashed."""
    figure, ax = axes(8.6, 1.1 + 0.32 * len(nbytes))
    for place, (name, value) in enumerate(nbytes.items()):
        ax.barh(place, max(value, 1e5) / 1e6, color=GREEN if "ours" in name else BLUE, height=0.7)
        ax.text(max(value, 1e5) / 1e6, place, f"  {value / 1e6:,.1f}", va="center", fontsize=8)
    _draw_yardsticks(ax, {"size of the data": of_data / 1e6}, vertical=True)
    ax.set_yticks(range(len(nbytes)), nbytes, fontsize=8)
    ax.set_xscale("log")
    ax.invert_yaxis()
    ax.grid(axis="y", visible=False)
    ax.set(xlabel="most MB held during an epoch, mapped files not counted")
    ax.legend(frameon=False, fontsize=8, loc="upper center", bbox_to_anchor=(0.5, 1.2))
    return figure


def time_against_rows(rows, seconds, yardsticks):
    """Seconds per epoch against the number of rows.

    Args:
        rows: list of n.
        seconds: {name: list of medians}.
        yardsticks: {name: list of seconds}, dashed.
    """
    figure, ax = axes(7.4, 3.4)
    for (name, values), color in zip(seconds.items(), COLORS, strict=False):
        ax.loglog(rows, values, "o-", color=color, label=name, ms=4)
    for (name, values), color in zip(yardsticks.items(), (GREY, "black"), strict=False):
        ax.loglog(rows, values, "--", color=color, label=name, lw=1)
    ax.set_xticks(rows, [f"{n:,}" for n in rows])
    ax.set_xticks([], minor=True)
    ax.set(xlabel="rows", ylabel="seconds per epoch")
    ax.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))
    return figure


def loss(curves, floor, pass_seconds, label="passes over the data", of="mean squared residual"):
    """Losses against passes, with one more time axis per yardstick.

    Args:
        curves: {name: (passes, losses)}, two lists each.
        floor: loss of the true weights.
        pass_seconds: {yardstick: seconds per pass}.
        label, of: labels of the axes.
    """
    figure, ax = axes(7.8, 3.8)
    for (name, (passes, losses)), color in zip(curves.items(), COLORS, strict=False):
        ax.semilogy(passes, [max(value, SMALLEST) for value in losses], "o-", color=color, label=name, ms=3)
    ax.axhline(floor, color=GREY, ls=":", lw=1, label="true weights")
    ax.set(xlabel=label, ylabel=of, xlim=(0, None))
    for place, (name, seconds) in enumerate(pass_seconds.items()):

        def time(n, s=seconds):
            return n * s

        def count(t, s=seconds):
            return t / s

        top = ax.secondary_xaxis(1 + 0.22 * place, functions=(time, count))
        top.set_xlabel(f"seconds at the speed of {name}", fontsize=8, color=GREY)
        top.tick_params(labelsize=8, colors=GREY)
    ax.legend(frameon=False, fontsize=8)
    return figure
