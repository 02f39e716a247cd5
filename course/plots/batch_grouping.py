"""Figures of unit 05.

In the figures of a part each colour has one meaning: tokens are dark grey, padding is light grey.
Data sets are told apart by their marks, because colours belong to the ways to compute.
"""

from collections.abc import Iterable, Mapping, Sequence
from statistics import median

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle
from torch import Tensor

from course.measure.comparison import FASTER, Comparison, Interval
from course.plots.style import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PINK,
    RED,
    SKY_BLUE,
    axes,
    integer_ticks,
    label_point,
    plain_log,
    ticks_at,
)

TOKEN = "#4d4d4d"
PADDING = "#dddddd"
METHOD_COLORS = {
    "one rectangle": GREY,
    "random batches": GREY,
    "your groups": GREEN,
    "four groups": GREEN,
    "two groups": "#a6d854",
    "bucketed batches": PINK,
    "flat": ORANGE,
    "nested": SKY_BLUE,
}
WAY_COLORS = METHOD_COLORS | {
    "block mask": BLUE,
    "packed rows": "#8c564b",
    "packed sequence": RED,
    "varlen": "black",
    "FlexAttention": "#b8860b",
}
# colours that no way has, and a mark each, because lines may lie on each other
MODEL_STYLES = {
    "maximum": ("#332288", "o"),
    "fused attention": ("#882255", "s"),
    "attention written out": ("#999933", "^"),
}
SET_MARKS = "osD^v"
# what a rank does; no way has these colours
COMPUTING = "#44aa99"
WAITING = "#ddcc77"
ORDER_COLORS = {
    "random": GREY,
    "windows": PINK,
    "accumulated windows": "#762a83",
}


# ---- parts 1 and 3: padding


def padding_cells(
    batches: Mapping[str, Tensor | Sequence[Tensor]], finding: str | None = None
) -> Figure:
    """Draw batches cell by cell: a row per sequence, tokens dark, padding light.

    Args:
        batches: {title: lengths}, int64 tensors (n,), or lists of such tensors for batches that are
            cut into groups.
        finding: title above all panels.
    """
    figure, *panels = axes(4.1 * len(batches), 3.4, columns=len(batches))
    figure.suptitle(finding)
    for ax, (title, lengths) in zip(panels, batches.items(), strict=True):
        groups = lengths if isinstance(lengths, list) else [lengths]
        cells = _draw_cells(ax, groups)
        tokens = sum(int(of_group.sum()) for of_group in groups)
        ax.set(
            title=f"{title}: {cells / tokens:.1f} cells per token",
            xlabel="column",
            yticks=[],
            ylabel="sequences",
        )
        ax.invert_yaxis()
        ax.grid(False)
        integer_ticks(ax.xaxis)
    handles = [Patch(color=TOKEN, label="token"), Patch(color=PADDING, label="padding")]
    figure.legend(handles=handles, loc="outside lower center", ncols=2, frameon=False)
    return figure


def _draw_cells(ax: Axes, groups: Sequence[Tensor]) -> int:
    """Draw a row per sequence of `groups` of lengths; return the number of cells."""
    # between groups, not between single sequences
    gap = 0.6 if max(map(len, groups)) > 1 else 0
    y = 0
    cells = 0
    for lengths in groups:
        longest = int(lengths.max())
        for length in lengths.tolist():
            ax.barh(y, longest, height=0.82, color=PADDING, lw=0)
            ax.barh(y, length, height=0.82, color=TOKEN, lw=0)
            y += 1
        cells += len(lengths) * longest
        y += gap
    return cells


def waste_against_batch(
    batch_sizes: Sequence[int], curves: Mapping[str, Sequence[float]]
) -> Figure:
    """Draw cells per token against batch size, one line per data set, {name: cells per token}."""
    figure, ax = axes(6.6, 3.4)
    largest = batch_sizes[-1]
    ends = {}
    for mark, (name, waste) in zip(SET_MARKS, curves.items(), strict=False):
        ax.plot(batch_sizes, waste, f"{mark}-", color=TOKEN, mfc="white", ms=5, lw=1.2)
        ends[f"{name} {waste[-1]:.1f}"] = waste[-1]
    least = min(ends.values())
    most = max(ends.values())
    _label_ends(ax, largest, ends)
    ax.axhline(1, color=GREY, lw=1, ls=":")
    label_point(ax, "no padding", (largest, 1.2), color=GREY, fontsize=9)
    ax.set(
        xscale="log",
        yscale="log",
        xlabel="sequences per batch",
        ylabel="cells per token",
        title=f"Batches of {largest:,}: {least:.1f} to {most:.1f} cells per token",
        xlim=(0.9, largest * 1.15),
    )
    ax.set_yticks([1, 2, 4, 8, 16, 32], ["1", "2", "4", "8", "16", "32"])
    ticks_at(ax, batch_sizes)
    return figure


def _label_ends(ax: Axes, x: float, ends: Mapping[str, float]) -> None:
    """Write {text: y} to the right of the last points of lines; neighbours share one label."""
    together = []  # of (texts, their y)
    for text, y in sorted(ends.items(), key=lambda end: end[1]):
        if together and y < 1.3 * together[-1][1][-1]:
            together[-1][0].append(text)
            together[-1][1].append(y)
        else:
            together.append(([text], [y]))
    for texts, heights in together:
        label_point(ax, "\n".join(reversed(texts)), (x, heights[-1]), (8, 0), fontsize=9)


def waste_of_windows(
    windows: Sequence[int], waste: Sequence[float], levels: Mapping[str, float]
) -> Figure:
    """Draw cells per token against the window, with level lines of other ways.

    Args:
        windows: batches per window.
        levels: {way: cells per token}, named as in `colors`.
    """
    colors = {
        "random batches": METHOD_COLORS["one rectangle"],
        "four groups in random batches": METHOD_COLORS["four groups"],
        "all sorted": RED,
    }
    figure, ax = axes(6.6, 3.4)
    color = METHOD_COLORS["bucketed batches"]
    ax.plot(windows, waste, "o-", color=color, ms=5)
    last = windows[-1]
    label_point(ax, f"sorted in windows {waste[-1]:.2f}", (last, waste[-1]), (8, 2), color=color)
    at_the_edge = dict(xycoords=ax.get_yaxis_transform(), ha="right")
    for name, level in levels.items():
        color = colors[name]
        ax.axhline(level, color=color, lw=1.2, ls="--")
        is_lowest = level == min(levels.values())
        offset = (0, -8) if is_lowest else (0, 7)
        label_point(ax, f"{name} {level:.2f}", (1, level), offset, color=color, **at_the_edge)
    groups = levels["four groups in random batches"]
    finding = "No window here wastes less than four groups"
    for window, of_window in zip(windows, waste, strict=True):
        if of_window < groups:
            finding = f"Windows of {window} batches waste less than four groups"
            break
    ax.set(
        xscale="log",
        yscale="log",
        xlabel="batches per window",
        ylabel="cells per token",
        title=finding,
        xlim=(windows[0] * 0.9, last * 8),
        ylim=(0.8, 1.3 * max(levels.values())),
    )
    ax.set_yticks([1, 1.5, 2, 3, 5, 8], ["1", "1.5", "2", "3", "5", "8"])
    ticks_at(ax, windows)
    return figure


# ---- cost and time


def cost_against_length(
    lengths: Sequence[int],
    nbytes: Mapping[str, Sequence[int]],
    seconds: Mapping[str, Sequence[Interval]],
) -> Figure:
    """Draw saved bytes and seconds against padded length, with slopes of one and two.

    All are relative to the shortest length; a line is the interval of a time.

    Args:
        nbytes: {model: bytes kept for backward, one value per length}.
        seconds: {model: Interval of seconds, one per length}.
    """
    figure, *panels = axes(10.4, 3.6, columns=2, sharey=True)
    x = np.array(lengths) / lengths[0]
    last = lengths[-1]
    exact = {name: [Interval(n, n, n) for n in counted] for name, counted in nbytes.items()}
    for ax, (what, found) in zip(panels, (("bytes", exact), ("time", seconds)), strict=True):
        for power, style in ((1, ":"), (2, "--")):
            label = "length" if power == 1 else "length²"
            ax.plot(lengths, x**power, style, color=GREY, lw=1, label=label)
        ends = {}
        for name, intervals in found.items():
            color, mark = MODEL_STYLES[name]
            shown = [interval.scaled(1 / intervals[0].estimate) for interval in intervals]
            middles = [of.estimate for of in shown]
            style = dict(color=color, ms=5, mfc="none")
            ax.plot(lengths, middles, f"{mark}-", **style)
            for length, of in zip(lengths, shown, strict=True):
                ax.plot([length, length], [of.low, of.high], color=color, lw=2, alpha=0.6)
            ends[f"{middles[-1]:.1f}× {name}"] = middles[-1]
        _label_ends(ax, last, ends)
        growth = sorted({f"{end:.1f}" for end in ends.values()}, key=float)
        reach = " to ".join((growth[0], growth[-1])[: len(growth)])
        ax.set(
            xscale="log",
            yscale="log",
            xlabel="padded length",
            xlim=(lengths[0] * 0.9, last * 1.2),
            title=f"{x[-1]:.0f} times the width: {what} × {reach}",
        )
        plain_log(ax.yaxis)
        ticks_at(ax, lengths)
    panels[0].set_ylabel(f"times that of length {lengths[0]}")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2, frameon=False)
    return figure


def speedups(timed: Mapping[object, Comparison], xlabel: str) -> Figure:
    """Draw how many times as fast as the base each way is, one group of points per setting.

    A line is the interval.

    Args:
        timed: {setting: Comparison}, of the same ways.
    """
    figure, ax = axes(7.0, 3.4)
    first = next(iter(timed.values()))
    ways = [way for way in first.seconds if way != first.base]
    gains = []  # of the last way, at each setting
    for number, way in enumerate(ways):
        color = METHOD_COLORS[way]
        shift = (number - (len(ways) - 1) / 2) * 0.24
        gains = []
        for place, compared in enumerate(timed.values()):
            ratio = compared.ratio(way)
            x = place + shift
            label = way if place == 0 else None
            reach = [[ratio.estimate - ratio.low], [ratio.high - ratio.estimate]]
            ax.errorbar(
                x, ratio.estimate, reach, fmt="o", color=color, ms=7, capsize=3, label=label
            )
            label_point(ax, f"{ratio.estimate:.1f}", (x, ratio.estimate), (7, 0))
            gains.append(ratio.estimate)
    ax.axhline(1, color=GREY, lw=1, ls=":")
    settings = list(timed)
    at_the_edge = dict(xycoords=ax.get_yaxis_transform(), ha="right")
    label_point(ax, first.base, (1, 1), (0, 6), "baseline", color=GREY, fontsize=9, **at_the_edge)
    small = f"{gains[0]:.1f} times as fast at {xlabel} {settings[0]}"
    large = f"{gains[-1]:.1f} at {settings[-1]}"
    ax.set(
        yscale="log",
        ylabel="times as fast, with its interval",
        xlabel=xlabel,
        title=f"{ways[-1].capitalize()}: {small}, {large}",
    )
    ax.set_xticks(range(len(settings)), list(map(str, settings)))
    ax.margins(x=0.2, y=0.2)
    plain_log(ax.yaxis)
    if len(ways) > 1:
        figure.legend(loc="outside right upper", frameon=False)
    return figure


def time_against_groups(
    seconds: Mapping[int, Interval], predicted: Mapping[int, float], fixed_by: Sequence[int]
) -> Figure:
    """Draw measured and predicted time against the number of groups; a line is the interval.

    Args:
        seconds: {number of groups: Interval of seconds}.
        predicted: {number of groups: seconds}.
        fixed_by: the numbers whose times fixed the model; their points are filled.
    """
    figure, ax = axes(6.6, 3.4)
    counts = list(seconds)
    line = [1000 * predicted[n] for n in counts]
    ax.plot(counts, line, "--", color=GREY, label="a · groups + b · cells")
    color = METHOD_COLORS["your groups"]
    tested = next(n for n in counts if n not in fixed_by)
    labels = {tested: "measured", fixed_by[0]: "measured, gives a and b"}
    for n in counts:
        ms = seconds[n].scaled(1000)
        face = color if n in fixed_by else "white"
        ax.plot([n, n], [ms.low, ms.high], color=color, lw=2, alpha=0.6)
        ax.plot(n, ms.estimate, "o", color=color, mfc=face, label=labels.get(n))
    ax.margins(y=0.2)
    best = min(counts, key=lambda n: seconds[n].estimate)
    times = seconds[1].estimate / seconds[best].estimate
    ax.set(
        xscale="log",
        yscale="log",
        xlabel="groups",
        ylabel="ms forward and backward",
        title=f"{best} groups took the least time: {times:.1f} times as fast as one",
    )
    plain_log(ax.yaxis)
    ticks_at(ax, counts)
    ax.legend(frameon=False)
    return figure


def search_results(results: Mapping[str, tuple[float, Sequence[float]]]) -> Figure:
    """Draw how far each search for thresholds misses the least cost, against its time.

    A dot is a seed, and a bar the median of the seeds.

    Args:
        results: {search: (seconds, per cent above the least cost of each seed)}; the exact search,
            which has one value, is "exact".
    """
    figure, ax = axes(6.6, 3.0)
    medians = {}
    for name, (seconds, misses) in results.items():
        medians[name] = median(misses)
        ms = 1000 * seconds
        face = TOKEN if name == "exact" else "none"
        ax.plot([ms] * len(misses), misses, "o", color=TOKEN, mfc=face, ms=5, alpha=0.7)
        top = (ms, max(misses))
        if len(misses) == 1:
            label_point(ax, name, top, (-7, 0), ha="right", fontsize=8)
            continue
        ax.plot(ms, medians[name], "_", color="black", ms=22, mew=2)
        label_point(ax, name, top, (0, 7), va="baseline", ha="center", fontsize=8)
    tried = {name: miss for name, miss in medians.items() if name != "exact"}
    worst = max(tried, key=tried.get)
    best = min(tried, key=tried.get)
    ax.set(
        xscale="log",
        xlabel="ms per search",
        ylabel="per cent above the least cost",
        title=f"Medians: {worst} misses by {tried[worst]:.1f} %, {best} by {tried[best]:.1f} %",
    )
    ax.margins(x=0.2, y=0.2)
    plain_log(ax.xaxis)
    highest = max(max(misses) for _, misses in results.values())
    ax.set_ylim(bottom=-0.1 * max(highest, 0.01))
    ticks = ax.get_yticks()
    ax.set_yticks(ticks[ticks >= 0])
    return figure


# ---- orders and ranks


def curves(runs: Mapping[str, Sequence], updates: int, findings: Sequence[str]) -> Figure:
    """Draw validation losses of trainings twice: against updates, and against cells.

    On the left a line is the mean over the seeds, and a band reaches from the least to the largest
    of them. On the right a thin line is a seed. The untrained model is not drawn. The panels share
    the axis of the losses.

    Args:
        runs: {order of ORDER_COLORS: course.training.ragged_training.Curve of each seed}.
        updates: how many the left panel shows.
        findings: titles of the two panels.
    """
    figure, by_updates, by_cells = axes(9.4, 3.8, columns=2, sharey=True)
    most = max(max(curve.cells) for of_order in runs.values() for curve in of_order)
    for name, of_order in runs.items():
        color = ORDER_COLORS[name]
        numbers = [n for n in of_order[0].updates[1:] if n <= updates]
        losses = np.array([[curve.at_update(n) for n in numbers] for curve in of_order])
        by_updates.plot(numbers, losses.mean(0), color=color, lw=1.6, label=name)
        by_updates.fill_between(
            numbers, losses.min(0), losses.max(0), color=color, alpha=0.15, lw=0
        )
        for curve in of_order:
            by_cells.plot(np.array(curve.cells[1:]) / 1000, curve.losses[1:], color=color, lw=0.8)
    by_updates.set(xlabel="updates", ylabel="validation loss")
    integer_ticks(by_updates.xaxis)
    by_cells.set(xlabel="thousand cells, padding included", xlim=(0, most / 1000))
    for ax, finding in zip((by_updates, by_cells), findings, strict=True):
        ax.set_title(finding, fontsize=10)
    handles, labels = by_updates.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False)
    return figure


def waiting(shares: Mapping[str, float], spent: Mapping[str, float]) -> Figure:
    """Draw the cells per token that each way to batch costs the ranks, computing and waiting.

    Args:
        shares: {way: share of the ranks' time that is spent waiting}.
        spent: {way: cells per token, waiting included}.
    """
    figure, ax = axes(6.6, 2.6)
    labels = ("computing", "waiting")  # of the first bars alone
    for place, (name, total) in enumerate(spent.items()):
        of_way = shares[name] * total
        computed = total - of_way
        ax.barh(place, computed, color=COMPUTING, height=0.6, label=labels[0])
        ax.barh(place, of_way, left=computed, color=WAITING, height=0.6, label=labels[1])
        labels = (None, None)
        text = f"{total:.2f}, of which {of_way:.2f} waiting ({100 * shares[name]:.0f} %)"
        label_point(ax, text, (total, place), (4, 0))
    ax.set_yticks(range(len(spent)), list(spent))
    ax.margins(x=0.45)
    ax.invert_yaxis()
    waited = {name: shares[name] * total for name, total in spent.items()}
    longest = max(waited, key=waited.get)
    largest = max(shares, key=shares.get)
    ax.set(
        xlabel="cells per token, computed or waited for",
        title=f"Longest wait: {longest}. Largest share of waiting: {largest}",
    )
    ax.legend(loc="lower right", frameon=False)
    return figure


# ---- part 4: no padding


def flat_and_blocks(lengths: Tensor) -> Figure:
    """Draw a small batch three times: padded, flat, and all pairs of tokens of the flat batch.

    The pairs of one sequence are dark.

    Args:
        lengths: int64 tensor (n,), small.
    """
    figure, padded, flat, pairs = axes(11.4, 3.4, columns=3)
    total = int(lengths.sum())
    longest = int(lengths.max())
    owner = torch.arange(len(lengths)).repeat_interleave(lengths)  # the sequence of each token
    padded.set(title=f"padded: {len(lengths) * longest} cells", xlabel="column", ylabel="sequence")
    _draw_needed(padded, torch.arange(longest) < lengths[:, None])
    flat.set(title=f"flat: {total} cells", xlabel="token", ylabel="")
    _draw_needed(flat, torch.ones(1, total, dtype=torch.bool))
    for begin in (lengths.cumsum(0) - lengths)[1:].tolist():
        flat.plot([begin - 0.06] * 2, [-0.6, 1.5], color="black", lw=1)
    rectangle = len(lengths) * longest**2
    needed = int((lengths**2).sum())
    title = f"pairs of tokens: {needed} needed,\n{total**2} flat, {rectangle} padded"
    pairs.set(title=title, xlabel="key", ylabel="query")
    _draw_needed(pairs, owner[:, None] == owner)
    handles = [
        Patch(color=TOKEN, label="needed"),
        Patch(color=PADDING, label="padding, or a pair of different sequences"),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=2, frameon=False)
    return figure


def _draw_needed(ax: Axes, needed: Tensor) -> None:
    """Draw a square per element of a bool tensor (rows, columns), dark if it is needed."""
    n_rows, n_columns = needed.shape
    for y in range(n_rows):
        for x in range(n_columns):
            ax.add_patch(Rectangle((x, y), 0.88, 0.88, fc=TOKEN if needed[y, x] else PADDING))
    ax.set(xlim=(-0.5, n_columns + 0.5), ylim=(max(n_rows, 5) + 0.5, -0.7))
    ax.set(xticks=[], yticks=[], aspect="equal")
    ax.spines[:].set_visible(False)
    ax.grid(False)


def time_and_memory(tables: Mapping[str, tuple[Comparison, Mapping[str, float]]]) -> Figure:
    """Draw each way as a point: milliseconds forward and backward against saved megabytes.

    A line is the interval of its ratio to the base; a dashed line joins the ways that no other one
    beats in both.

    Args:
        tables: {model: (Comparison of the ways, {way: bytes})}, a panel per model; ways as in
            WAY_COLORS.
    """
    figure, *panels = axes(6.0 * len(tables), 3.6, columns=len(tables))
    fronts = []
    for ax, (kind, (compared, nbytes)) in zip(panels, tables.items(), strict=True):
        points = []
        for name in compared.seconds:
            ms = compared.time(name).scaled(1000)
            mb = nbytes[name] / 1e6
            color = WAY_COLORS[name]
            ax.plot([ms.low, ms.high], [mb, mb], color=color, lw=1.2)
            ax.plot(ms.estimate, mb, "o", color=color, ms=8)
            shown_ms = f"{ms.estimate:,.0f}" if ms.estimate >= 100 else f"{ms.estimate:.3g}"
            text = f"{name}\n{shown_ms} ms, {mb:.3g} MB"
            # above the interval and to the right of the dashed line
            label_point(ax, text, (ms.estimate, mb), (5, 5), va="bottom", fontsize=8)
            points.append((ms.estimate, mb))
        front = sorted(point for point in points if not _is_beaten(point, points))
        if len(front) > 1:
            dashes = dict(color="black", lw=0.8, zorder=0)
            (line,) = ax.plot(*zip(*front, strict=True), "--", **dashes)
            fronts.append(line)
        ax.margins(0.25, 0.25)
        title = f"{kind}{_fastest(compared)}"
        ax.set(xscale="log", yscale="log", xlabel="ms forward and backward", title=title)
        plain_log(ax.xaxis)
        plain_log(ax.yaxis)
    panels[0].set_ylabel("MB saved for backward")
    if fronts:
        label = "no way is better in both"
        figure.legend(fronts[:1], [label], loc="outside lower center", frameon=False)
    return figure


def _is_beaten(point: tuple[float, float], points: Iterable[tuple[float, float]]) -> bool:
    """Whether another of `points` is not larger in either coordinate."""
    x, y = point
    return any(other != point and other[0] <= x and other[1] <= y for other in points)


def _fastest(compared: Comparison) -> str:
    """What a title says of the fastest way: its name, and those that it is not faster than."""
    best = min(compared.seconds, key=lambda way: compared.time(way).estimate)
    near = [
        way for way in compared.seconds if way != best and compared.verdict(best, to=way) != FASTER
    ]
    return f", fastest: {' or '.join([best, *near])}"
