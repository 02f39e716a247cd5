"""Figures of unit 04.  Figures of time show the yardsticks, too: memcpy and reading."""

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


def record_rows(columns=(1000, 1023, 1024, 2500)):
    """One row of a record file per number of columns: x, y and padding in bytes, a tick at each 4,096."""
    figure, ax = axes(8.6, 0.9 + 0.42 * len(columns))
    for place, n in enumerate(columns):
        stride = -(-4 * (n + 1) // 4096) * 4096
        parts = {"x": (0, 4 * n, BLUE), "y": (4 * n, 4, ORANGE), "padding": (4 * n + 4, stride - 4 * n - 4, GREY)}
        for name, (start, length, color) in parts.items():
            ax.barh(place, max(length, 60 * (name == "y")), left=start, color=color, height=0.6,
                    alpha=0.35 if name == "padding" else 1, label=name if not place else None)  # fmt: skip
        lost = (stride - 4 * n - 4) / stride
        ax.text(stride + 100, place, f"{stride:,} bytes, {lost:.0%} padding", va="center", fontsize=8)
    ax.set_yticks(range(len(columns)), [f"{n:,} columns" for n in columns], fontsize=8)
    ax.set(xlabel="byte of the row (ticks: borders of memory pages)", xticks=range(0, 12289, 4096), xlim=(0, 15500))
    ax.invert_yaxis()
    ax.grid(axis="y", visible=False)
    ax.legend(frameon=False, fontsize=8, ncols=3, loc="lower center", bbox_to_anchor=(0.45, 1))
    return figure


def orders(drawn, page_rows, batch):
    """The rows of several orders, {name: order}, side by side: a line per batch, squares coloured by page."""
    figure, *panels = axes(4.3 * len(drawn), 0.9 + 0.26 * max(-(-len(order) // batch) for order in drawn.values()),
                           columns=len(drawn))  # fmt: skip
    for ax, (name, order) in zip(panels, drawn.items(), strict=True):
        n, pages = len(order), (order // page_rows).tolist()
        lines, places = [i // batch for i in range(n)], [i % batch for i in range(n)]
        points = ax.scatter(places, lines, c=pages, cmap="turbo", marker="s", s=max(4, 2600 / batch**1.3))
        ax.invert_yaxis()
        ax.grid(False)
        ax.set_title(name, fontsize=9)
        ax.set(xlabel="place in the batch", ylabel="batch", yticks=range(max(lines) + 1))
    figure.colorbar(points, ax=panels, label="page in the file", fraction=0.02)
    return figure


def bias(pages, curves, batch, predicted="1 + B / W"):
    """Bias of the batches against the pages held, {name: biases}, beside 1 + B / W, with the batch marked."""
    figure, ax = axes(7.4, 3.4)
    for (name, values), color in zip(curves.items(), COLORS, strict=False):
        ax.loglog(pages, values, "o-", color=color, label=name, ms=4)
    ax.loglog(pages, [1 + batch / n for n in pages], "--", color="black", lw=1, label=predicted)
    _mark_batch(ax, batch)
    ax.axhline(1, color=GREY, ls=":", lw=1)
    ax.set(xlabel="pages held in memory, W", ylabel="variance of batch means\nover that of random batches")
    ax.legend(frameon=False, fontsize=8)
    return figure


def _mark_batch(ax, batch):
    """Mark W = B on the x-axis of `ax`."""
    ax.axvline(batch, color=GREY, ls="--", lw=1)
    ax.annotate("W = B", (batch, 1), (3, -4), xycoords=("data", "axes fraction"), textcoords="offset points",
                va="top", fontsize=8, color=GREY)  # fmt: skip


def order_against_learning(curves, batch):
    """Excess loss of each order, {name: (batches, seconds, losses)}, against epochs' worth of rows and against seconds.

    Args:
        batch: rows of a batch, for the axis of rows.
    """
    figure, left, right = axes(10.5, 3.8, columns=2)
    for (name, (batches, seconds, losses)), color in zip(curves.items(), (*COLORS, "black", GREY), strict=False):
        left.semilogy([n * batch for n in batches], losses, color=color, lw=1.2, label=name)
        right.loglog(seconds, losses, color=color, lw=1.2)
    left.set(xlabel="rows", ylabel="excess loss")
    right.set(xlabel="seconds, from the disk")
    figure.legend(frameon=False, fontsize=8, ncols=4, loc="outside upper center")
    return figure


def knee(pages, curves, batch):
    """Excess loss over that of a random order against pages held, {name: ratios}, beside 1 + B / W."""
    figure, ax = axes(7.4, 3.4)
    for (name, ratios), color in zip(curves.items(), COLORS, strict=False):
        ax.loglog(pages, ratios, "o-", color=color, label=name, ms=4)
    ax.loglog(pages, [1 + batch / n for n in pages], "--", color="black", lw=1, label="1 + B / W")
    _mark_batch(ax, batch)
    ax.axhline(1, color=GREY, ls=":", lw=1)
    ax.set(xlabel="pages held in memory, W", ylabel="excess loss over\nthat of a random order")
    ax.legend(frameon=False, fontsize=8)
    return figure


def _draw_yardsticks(ax, values, vertical):
    """Draw each of `values`, {name: value}, as a dashed line across `ax` with its name."""
    for (name, value), color in zip(values.items(), (GREY, "black", RED), strict=False):
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
