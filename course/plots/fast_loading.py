"""Figures of unit 04. Figures of time show the yardsticks, too: copies in memory."""

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from torch import Tensor

from course.loading.batch_ways import MEMORY_PAGE, MIB
from course.loading.real_formats import Judged
from course.loading.recorded_epochs import Gain
from course.measure.comparison import Comparison
from course.measure.traffic import Moved
from course.measure.yardsticks import ALL_THREADS, GIGA, MEMCPY
from course.plots.style import (
    BLUE,
    COLORS,
    GREEN,
    GREY,
    ORANGE,
    RED,
    axes,
    label_point,
    plain_log,
    rows,
    ticks_at,
)

NEARLY_RANDOM = 1.5  # times the variance of random batches
FRUGAL = 2  # times the files are read
SAME_LOSS = 0.3  # two excess losses whose logarithms differ by less stand at one height
LEGEND_ABOVE = dict(frameon=False, fontsize=8, loc="upper center")


# ---- new memory


def page_faults(mebibytes: Sequence[int], faults: Mapping[str, Sequence[float]]) -> Figure:
    """Draw the share of a new tensor's memory pages that cost a page fault, against its size.

    Args:
        mebibytes: sizes of the tensor, ascending.
        faults: {what the C library was told: page faults per tensor of each size}; the first is
            the C library as it is.
    """
    figure, ax = axes(7.4, 3.0)
    sizes = np.array(mebibytes)
    pages = sizes * MIB / MEMORY_PAGE
    default = next(iter(faults.values()))
    many = sizes[np.array(default) > pages / 2]
    if len(many):
        title = f"From {many[0]} MiB on, a new tensor costs a page fault for each memory page"
    else:
        title = f"New tensors of up to {sizes[-1]} MiB cost hardly any page faults"
    figure.suptitle(title, fontsize=10)
    for (name, counts), color in zip(faults.items(), (BLUE, GREEN), strict=False):
        ax.plot(sizes, np.array(counts) / pages, "o-", color=color, label=name, ms=4)
    ax.set_xscale("log", base=2)
    ax.xaxis.set_major_formatter("{x:g}")
    ax.set(xlabel="MiB of the new tensor", ylabel="page faults\nper memory page", ylim=(-0.05, 1.1))
    figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=8)
    return figure


# ---- orders of rows


def orders(drawn: Mapping[str, Tensor], page_rows: int, batch: int, title: str) -> Figure:
    """Draw the rows of several orders: a line per batch, squares coloured by page.

    Args:
        drawn: {name: row numbers in the order in which they are read}, a panel each.
        page_rows: rows per page.
    """
    n_lines = max(math.ceil(len(order) / batch) for order in drawn.values())
    figure, *panels = axes(4.3 * len(drawn), 0.9 + 0.26 * n_lines, columns=len(drawn))
    figure.suptitle(title, fontsize=10)
    size = max(4, 2600 / batch**1.3)
    n_pages = max(int(order.max()) for order in drawn.values()) // page_rows + 1
    shades = _distinct_colors(n_pages)
    for ax, (name, order) in zip(panels, drawn.items(), strict=True):
        pages = (order // page_rows).tolist()
        lines, places = np.divmod(np.arange(len(order)), batch)
        points = ax.scatter(
            places, lines, c=pages, cmap=shades, vmin=-0.5, vmax=n_pages - 0.5, marker="s", s=size
        )
        ax.invert_yaxis()
        ax.grid(False)
        ax.set_title(name, fontsize=9)
        ax.set(xlabel="place in the batch", ylabel="batch", yticks=range(max(lines) + 1))
    ticks = range(n_pages)
    bar = figure.colorbar(points, ax=panels, label="page in the file", fraction=0.03, ticks=ticks)
    bar.ax.tick_params(labelsize=6)
    return figure


def _distinct_colors(n: int) -> ListedColormap:
    """Colours of which two neighbours are far apart, because a page is a category."""
    colors = colormaps["tab20"].colors
    return ListedColormap([colors[i % len(colors)] for i in range(n)])


def bias(pages: Sequence[int], biases: Sequence[float], batch: int) -> Figure:
    """Draw the bias of the batches against the pages held, and 1 + B / W.

    Args:
        pages: pages held in memory, W.
        biases: variances of batch means over that of random batches.
        batch: rows per batch, B, marked.
    """
    figure, ax = axes(7.4, 3.4)
    times = biases[pages.index(batch)]
    finding = f"W = B pages: {times:.1f} times the variance of random batches; the rule says 2"
    figure.suptitle(finding, fontsize=10)
    ax.loglog(pages, biases, "o-", color=BLUE, label="windows", ms=4)
    rule = 1 + batch / np.array(pages)
    ax.loglog(pages, rule, "--", color="black", lw=1, label="1 + B / W")
    ticks_at(ax, pages)
    plain_log(ax.yaxis)
    ax.axvline(batch, color=GREY, ls="--", lw=1)
    small = dict(va="top", fontsize=8, color=GREY)
    label_point(ax, "W = B", (batch, 1), (3, -4), xycoords=("data", "axes fraction"), **small)
    ax.axhline(1, color=GREY, ls=":", lw=1)
    ax.set(
        xlabel="pages held in memory, W",
        ylabel="variance of batch means\nover that of random batches",
    )
    ax.legend(frameon=False, fontsize=8)
    return figure


def buffer_bias(held: Sequence[int], found: Tensor, batch: int, shard: int) -> Figure:
    """Draw the bias of the batches of two buffers and of windows, and the rules they follow.

    Args:
        held: samples in memory, K.
        found: (len(held), seeds, 3), the biases of a buffer in file order, of one over shuffled
            shards, and of windows.
        batch: samples of a batch, B.
        shard: samples of a shard, S.
    """
    figure, ax = axes(7.4, 3.6)
    middle = found.median(1).values
    last = middle[-1].tolist()
    figure.suptitle(
        f"With {held[-1]:,} samples in memory: {last[0]:.0f} times the variance of random batches "
        f"in file order,\n{last[1]:.1f} with shuffled shards, {last[2]:.1f} with windows",
        fontsize=10,
    )
    names = ("buffer, file order", "buffer, shuffled shards", "windows")
    for way, (name, color) in enumerate(zip(names, (GREY, ORANGE, BLUE), strict=True)):
        ax.loglog(held, middle[:, way], "o-", color=color, ms=4)
        label_point(ax, name, (held[-1], last[way]), (6, 0), color=color, fontsize=8, va="center")
    samples = np.array(held)
    ax.loglog(samples, 1 + batch * shard / (2 * samples), "--", color="black", lw=1)
    ax.loglog(samples, 1 + batch * shard / samples, ":", color="black", lw=1)
    ax.plot([], [], "--", color="black", lw=1, label="1 + BS / 2K")
    ax.plot([], [], ":", color="black", lw=1, label="1 + BS / K = 1 + B / W")
    ax.set(
        xlabel="samples in memory, K",
        ylabel="variance of batch means\nover that of random batches",
        xlim=(held[0] / 1.2, held[-1] * 3),
    )
    ticks_at(ax, held, "{:,}")
    plain_log(ax.yaxis)
    ax.legend(frameon=False, fontsize=8, loc="lower left")
    return figure


def judged_formats(rows: Sequence[Judged]) -> Figure:
    """Draw how random loaders are, how far from memcpy, and how often they read their files."""
    figure, ax = axes(8.2, 4.2)
    best = min(rows, key=lambda row: (row.bias > NEARLY_RANDOM, row.memcpy.estimate))
    figure.suptitle(
        f"The fastest of the random loaders takes {best.memcpy.estimate:.1f} times as long as "
        f"memcpy and reads its files {best.times_read} times",
        fontsize=10,
    )
    for number, row in enumerate(rows):
        color = GREEN if row.bytes_read < FRUGAL else RED
        place = (0, 6) if number % 2 == 0 else (0, -7)  # neighbours must not overlap
        interval = [row.memcpy.low, row.memcpy.high]
        ax.loglog(interval, [row.bias, row.bias], color=color, lw=2, alpha=0.4)
        ax.loglog(row.memcpy.estimate, row.bias, "o", color=color, ms=5)
        text = f"{row.name} ({row.times_read})"
        label_point(ax, text, (row.memcpy.estimate, row.bias), place, fontsize=7, ha="center")
    for color, text in ((GREEN, "files read less than twice"), (RED, "read more often (times)")):
        ax.plot([], [], "o", color=color, label=text)
    ax.axhline(1, color=GREY, ls=":", lw=1)
    ax.set(
        xlabel="times as long as memcpy of the batch, one thread",
        ylabel="variance of batch means\nover that of random batches",
    )
    ax.margins(x=0.2, y=0.12)
    plain_log(ax.xaxis)
    plain_log(ax.yaxis)
    ax.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(0.02, 0.3))
    return figure


def order_against_learning(
    seconds: Mapping[str, float], excess: Mapping[str, float], best: str, title: str
) -> Figure:
    """Draw a dot per order: excess loss against seconds per epoch.

    Args:
        seconds, excess: {name of the order: value}.
        best: the name to point out.
    """
    figure, ax = axes(7.8, 3.4)
    figure.suptitle(title, fontsize=10)
    for name in seconds:
        color = GREEN if name == best else BLUE
        ax.loglog(seconds[name], excess[name], "o", color=color, ms=7)
        point = (seconds[name], excess[name])
        if _has_neighbour(name, seconds, excess):
            label_point(ax, name, point, (-8, -3), va="baseline", ha="right", fontsize=8)
        else:
            label_point(ax, name, point, (8, -3), va="baseline", fontsize=8)
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_formatter("{x:g}")
        axis.set_minor_formatter("")
    ax.set(xlabel="seconds per epoch, from the disk", ylabel="excess loss in epoch 2")
    ax.margins(x=0.35, y=0.12)
    return figure


def _has_neighbour(name: str, seconds: Mapping[str, float], excess: Mapping[str, float]) -> bool:
    """Whether another dot stands a little to the right of the dot of `name`."""
    for other in seconds:
        height = abs(math.log(excess[other] / excess[name]))
        if height < SAME_LOSS and 1 < seconds[other] / seconds[name] < 4:
            return True
    return False


# ---- loaders


def epoch_times(compared: Comparison, nbytes: int, title: str) -> Figure:
    """Draw GB/s of each loader as a bar, the interval as a line, yardsticks dashed.

    Args:
        compared: loaders and yardsticks, by the names of measure.yardsticks.
        nbytes: bytes per epoch.
        title: the finding.
    """
    yardsticks = [name for name in (MEMCPY, ALL_THREADS) if name in compared.seconds]
    loaders = [name for name in compared.seconds if name not in yardsticks]
    figure, ax = axes(8.6, 1.4 + 0.32 * len(loaders))
    figure.suptitle(title, fontsize=10)
    for place, name in enumerate(loaders):
        rate = compared.rate(name, nbytes / GIGA)
        ax.barh(place, rate.estimate, color=_color_of_loader(name), height=0.7)
        ax.plot([rate.low, rate.high], [place, place], color="black", lw=1)
        ax.text(rate.high, place, f"  {rate.estimate:.1f}", va="center", fontsize=8)
    for name, color in zip(yardsticks, (GREY, "black"), strict=False):
        rate = compared.rate(name, nbytes / GIGA)
        ax.axvline(rate.estimate, color=color, ls="--", lw=1, label=name, zorder=1)
    rows(ax, loaders, 8)
    ax.set(xlabel="GB/s; black: the interval of 95 %")
    ax.legend(**LEGEND_ABOVE, bbox_to_anchor=(0.5, 1.2), ncols=3)
    return figure


def _color_of_loader(name: str) -> str:
    return GREEN if "ours" in name else BLUE


def memory(nbytes: Mapping[str, float], of_data: int) -> Figure:
    """Draw the memory of each loader as a dot on a log axis; the size of the data is dashed.

    Args:
        nbytes: {name: bytes}, mapped files not counted.
        of_data: bytes of the data.
    """
    figure, ax = axes(8.6, 1.4 + 0.32 * len(nbytes))
    ours = max(value for name, value in nbytes.items() if "ours" in name)
    finding = f"Our loaders hold at most {ours / 1e6:.0f} MB of {of_data / 1e6:,.0f} MB of data"
    figure.suptitle(finding, fontsize=10)
    for place, (name, value) in enumerate(nbytes.items()):
        megabytes = value / 1e6
        shown = max(value, 1e5) / 1e6
        ax.plot(shown, place, "o", color=_color_of_loader(name), ms=7)
        point = (shown, place)
        label_point(ax, f"{megabytes:,.1f}", point, (8, -3), va="baseline", fontsize=8)
    ax.axvline(of_data / 1e6, color=GREY, ls="--", lw=1, label="size of the data", zorder=1)
    ax.set_yticks(range(len(nbytes)), nbytes, fontsize=8)
    ax.set_xscale("log")
    ax.invert_yaxis()
    ax.margins(x=0.15, y=0.15)
    ax.set(xlabel="most MB held during an epoch, mapped files not counted")
    ax.legend(**LEGEND_ABOVE, bbox_to_anchor=(0.5, 1.25))
    return figure


def timelines(runs: Mapping[str, Sequence[tuple[str, float, float]]]) -> Figure:
    """Draw recorded events as bars in two lanes per run, "read" and "compute".

    Args:
        runs: {title: list of (lane, start, end) in seconds}.
    """
    figure, ax = axes(8.6, 1.2 + 0.75 * len(runs))
    ends = [
        f"{title} {1e3 * max(end for *_, end in events):.0f} ms" for title, events in runs.items()
    ]
    figure.suptitle("An epoch: " + "; ".join(ends), fontsize=10)
    ticks = []
    names = []
    for place, (title, events) in enumerate(runs.items()):
        for row, (lane, color) in enumerate((("read", ORANGE), ("compute", BLUE))):
            y = 2.6 * place + row
            spans = []
            for name, start, end in events:
                if name == lane:
                    spans.append((1e3 * start, 1e3 * (end - start)))
            ax.broken_barh(spans, (y - 0.4, 0.8), color=color, ec="white", lw=0.5)
            ticks.append(y)
            names.append(f"{title}: {lane}")
    ax.set_yticks(ticks, names, fontsize=8)
    ax.invert_yaxis()
    ax.grid(axis="y", visible=False)
    ax.set(xlabel="ms since the start of the epoch", xlim=(0, None))
    return figure


def pipeline_gain(kinds: Mapping[str, Sequence[Gain]]) -> Figure:
    """Draw the gain of reading ahead against the length of a step, per kind of step.

    Args:
        kinds: {kind: the Gain of each length}.
    """
    figure, ax = axes(7.4, 3.4)
    ax.plot([], [], "--", color="black", lw=1, label="your formula, in the colour of the step")
    ax.axhline(1, color=GREY, lw=0.8, label="no gain")
    said = []
    for (kind, gains), color in zip(kinds.items(), (BLUE, GREEN), strict=False):
        gains = sorted(gains, key=lambda gain: gain.step_over_fill)
        lengths = [gain.step_over_fill for gain in gains]
        ax.plot(lengths, [gain.predicted for gain in gains], "--", color=color, lw=1)
        ax.vlines(
            lengths,
            [gain.measured.low for gain in gains],
            [gain.measured.high for gain in gains],
            color=color,
            lw=1,
        )
        middle = [gain.measured.estimate for gain in gains]
        ax.plot(lengths, middle, "o", color=color, label=f"step {kind}")
        nearest = min(gains, key=lambda gain: abs(math.log(gain.step_over_fill)))
        said.append(f"{kind} {nearest.measured.estimate:.2f} (predicted {nearest.predicted:.2f})")
    figure.suptitle("Gain where a step takes about a fill: " + ", ".join(said), fontsize=9)
    ax.set_xscale("log", base=2)
    ax.xaxis.set_major_formatter("{x:g}")
    ax.set(
        xlabel="seconds of a step over those of a fill", ylabel="times as fast\nas with one buffer"
    )
    figure.legend(loc="outside lower center", ncols=4, frameon=False, fontsize=8)
    return figure


def cold_race(times_read: Mapping[tuple[str, str], float]) -> Figure:
    """Draw how many times the bytes of the file each loader reads from the disk in an epoch.

    Args:
        times_read: {(room in memory, name of the loader): value}; NaN is not drawn.
    """
    known = {key: value for key, value in times_read.items() if not math.isnan(value)}
    rooms = list(dict.fromkeys(room for room, _ in times_read))
    names = list(dict.fromkeys(name for _, name in times_read))
    figure, ax = axes(7.4, 1.2 + 0.5 * len(names))
    if known:
        room, name = max(known, key=known.get)
        finding = f'With {room}, "{name}" reads {known[room, name]:.1f} times the file per epoch'
        figure.suptitle(finding, fontsize=10)
    for number, (room, color) in enumerate(zip(rooms, (BLUE, ORANGE), strict=True)):
        ax.plot([], [], "s", color=color, label=room)
        for place, name in enumerate(names):
            value = known.get((room, name))
            if value is not None:
                y = place + 0.4 * number - 0.2
                ax.barh(y, value, 0.38, color=color)
                ax.text(value, y, f" {value:.2g}", va="center", fontsize=8)
    rows(ax, names, 8)
    ax.margins(x=0.12)
    ax.set_xlabel("bytes from the disk in epoch 2, over the bytes of the file")
    ax.legend(frameon=False, fontsize=8, loc="lower right")
    return figure


# ---- bytes and passes


def traffic(ways: Mapping[str, Sequence[Moved]], batch_bytes: float) -> Figure:
    """Draw passes over a batch as blocks in the order of the operations.

    Args:
        ways: {way to write a step: list of measure.traffic.Moved}; what reads or writes less than a
            batch is left out.
        batch_bytes: bytes of x of the batch.
    """
    figure, ax = axes(8.6, 0.9 + 0.6 * len(ways))
    moved = []  # MB
    for y, operations in enumerate(ways.values()):
        moved.append(_blocks(ax, y, operations, batch_bytes))
    rows(ax, ways, 8)
    finding = f"The best step moves {min(moved):.0f} MB, the worst {max(moved):.0f} MB"
    figure.suptitle(finding, fontsize=10)
    ax.set(xlabel="MB moved per step (hatched: written into a new tensor)")
    return figure


def _blocks(ax: Axes, y: int, operations: Iterable[Moved], batch_bytes: float) -> float:
    """Draw the reads and writes of one way in row `y`; return their MB."""
    width = batch_bytes / 1e6
    block = dict(ec="white", height=0.7)
    centred = dict(ha="center", va="center", fontsize=7)
    end = 0.0
    for operation in operations:
        if operation.read >= batch_bytes:
            ax.barh(y, width, left=end, color=BLUE, **block)
            text = f"{operation.name}\nread"
            ax.text(end + width / 2, y, text, color="white", **centred)
            end += width
        if operation.written >= batch_bytes:
            hatch = "//" if operation.new else None
            ax.barh(y, width, left=end, color=ORANGE, hatch=hatch, **block)
            if not hatch:
                text = f"{operation.name}\nwrite"
                ax.text(end + width / 2, y, text, color="black", **centred)
            end += width
    return end


def passes_needed(
    needed: Mapping[tuple[str, str], Mapping[str, Sequence[int]]], most: int
) -> Figure:
    """Draw the passes that each method needs, a dot per problem; the normal equations are a line.

    Args:
        needed: {(rows, target): {method: passes of each problem}}, a panel each.
        most: passes at which a method was stopped, drawn hollow.
    """
    figure, *panels = axes(2.6 * len(needed), 2.9, columns=len(needed))
    for ax, ((size, target), by_method) in zip(panels, needed.items(), strict=True):
        middle = {method: sum(passes) / len(passes) for method, passes in by_method.items()}
        best = min(middle, key=middle.get)
        for place, passes in enumerate(by_method.values()):
            for number, count in enumerate(passes):
                face = "none" if count >= most else COLORS[place]
                x = place + 0.08 * (number - len(passes) / 2)
                ax.plot(x, count, "o", ms=5, mec=COLORS[place], mfc=face)
        ax.axhline(1, color=GREY, ls="--", lw=1)
        ax.set_yscale("log", base=2)
        ax.yaxis.set_major_formatter("{x:g}")
        ax.set_ylim(0.8, 1.4 * most)
        ax.set_xticks(range(len(by_method)), by_method, fontsize=8)
        ax.set_title(f"{size}, {target}: {_winner(by_method, best)}", fontsize=9)
    panels[0].set(ylabel=f"passes (hollow: {most} or more)")
    figure.suptitle(
        "Which of the three needs the fewest passes; the normal equations need one (dashed)",
        fontsize=10,
    )
    return figure


def _winner(by_method: Mapping[str, Sequence[int]], best: str) -> str:
    """`best`, or "a tie" if the passes of another method overlap with those of `best`."""
    worst = max(by_method[best])
    for method, passes in by_method.items():
        if method != best and min(passes) <= worst:
            return "a tie"
    return best
