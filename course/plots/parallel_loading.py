"""Figures of unit 01; they compute nothing that an exercise asks for."""

import math
from collections.abc import Iterable, Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor

from course.loading.loader_passes import CheckedForecast, WorkerComparison
from course.measure.comparison import FASTER, Comparison
from course.measure.waterfall import (
    COLLATE,
    DECODE,
    ITEMS,
    READ,
    STEP,
    TRANSFER,
    TRANSFORM,
    Waterfall,
    percent,
)
from course.plots.style import (
    BLUE,
    COLORS,
    DOTS_PER_INCH,
    GREEN,
    GREY,
    ORANGE,
    PINK,
    RED,
    SKY_BLUE,
    YELLOW,
    arrow,
    axes,
    box,
    canvas,
    label_point,
    legend_beside,
    middle_and_reach,
    rows,
    ticks_at,
)
from course.text import counted

DRAWN_CORES_MAX = 8
# what a batch passes through, in every figure of the unit
STAGE_COLORS = {
    READ: SKY_BLUE,
    DECODE: ORANGE,
    TRANSFORM: PINK,
    ITEMS: PINK,
    COLLATE: YELLOW,
    TRANSFER: GREEN,
    STEP: RED,
}


def batch_grid(images: Tensor, titles: Sequence[str], columns: int = 8) -> Figure:
    """Draw a batch of images in rows of `columns`.

    Args:
        images: float (n, 3, H, W), from 0 to 1.
        titles: one per image.
    """
    n_rows = -(-len(images) // columns)
    size = (1.5 * columns, 1.75 * n_rows)
    figure, grid = plt.subplots(n_rows, columns, squeeze=False, figsize=size, dpi=DOTS_PER_INCH)
    for ax in grid.flat:
        ax.axis("off")
    pictures = images.cpu().clamp(0, 1).permute(0, 2, 3, 1).numpy()  # (n, H, W, 3)
    for k, picture in enumerate(pictures):
        grid.flat[k].imshow(picture)
        grid.flat[k].set_title(titles[k], fontsize="small")
    plt.close(figure)
    return figure


def picture(pixels: np.ndarray, title: str) -> Figure:
    """Draw an array (height, width, 3) of values from 0 to 1."""
    height, width, _ = pixels.shape
    figure, ax = canvas(9.0, 0.4 + 9.0 * height / width, width, height)
    ax.imshow(pixels, extent=(0, width, 0, height))
    ax.set_title(title, fontsize=10)
    return figure


def worker_plot(workers: Sequence[int], compared: Comparison) -> Figure:
    """Draw seconds of a pass against the number of workers.

    Each pass is a point; a dash is the time by the ratio to the first number, its level a line.

    Args:
        compared: a way per number of workers, in their order.
    """
    figure, ax = axes(6.0)
    times = []
    for number, (way, seconds) in zip(workers, compared.seconds.items(), strict=True):
        ax.plot([number] * len(seconds), seconds, ".", color=GREY, ms=5)
        times.append(compared.time(way).estimate)
    ax.plot(workers, times, "_", color=BLUE, ms=22, mew=2.5)
    ax.set(xlabel="number of workers", ylabel="time per pass, s", xticks=workers, ylim=(0, None))
    label_point(ax, "estimate", (workers[-1], times[-1]), (15, -3), fontsize=8, color=BLUE)
    if workers[0] == 0:
        ax.axhline(times[0], color=BLUE, ls="--", lw=1)
        faster = [way for way in compared.seconds if compared.verdict(way) == FASTER]
        title = "No number of workers is proven to be faster than none"
        if faster:
            best = max(faster, key=lambda way: compared.ratio(way).estimate)
            number = workers[list(compared.seconds).index(best)]
            title = f"{counted(number, 'worker')}: {compared.ratio(best)} times as fast as none"
        ax.set_title(title, fontsize=10)
    return figure


def rounds_of_workers(
    passes: Comparison, batches: Mapping[str, int], workers: int, ms: float
) -> Figure:
    """Draw milliseconds per batch against batches of a pass: by counting, and measured.

    The busiest worker builds ceil(batches / workers) of them. The title has two passes for which
    that is equal, if there are two.

    Args:
        passes: of batches that each take a worker `ms` of waiting.
        batches: {way of `passes`: batches of its pass}.
    """
    figure, ax = axes(7.6)
    most = max(batches.values())
    numbers = range(workers, most + workers + 1)
    expected = [ms * math.ceil(n / workers) / n for n in numbers]
    ax.plot(numbers, expected, color=GREY, lw=1)
    label_point(
        ax,
        "batches of the busiest worker, counted",
        (most + workers, expected[-1]),
        (-4, -14),
        ha="right",
        color=GREY,
    )
    for way, n in batches.items():
        measured = 1000 * passes.time(way).estimate / n
        ax.plot(n, measured, "o", color=BLUE)
        label_point(ax, f"{n}", (n, measured), (0, 9), ha="center", fontsize=8, color=BLUE)
    ax.margins(y=0.15)
    ax.set(xlabel="batches in a pass", ylabel="time per batch, ms", ylim=(0, None))
    ax.set_title(_as_long(passes, batches, workers), fontsize=10)
    return figure


def _as_long(passes, batches, workers):
    """What two passes take in which the busiest worker builds as many batches; else the line."""
    (base, most), *others = batches.items()
    for way, n in others:
        if math.ceil(n / workers) == math.ceil(most / workers):
            took = [f"{1000 * passes.time(each).estimate:.0f} ms" for each in (base, way)]
            return f"With {workers} workers, {most} batches take {took[0]} and {n} take {took[1]}"
    return f"Points: measured with {workers} workers; line: counted"


def waterfall(found: Mapping[str, Waterfall], title: str | None = None) -> Figure:
    """Draw stall waterfalls, a panel each on one axis.

    Each bar begins where the one above it ends, and the last is the step; a bar to the left, framed
    in black, made the step slower when it was replayed. A whisker says where a bar may end.

    Args:
        title: by default the share of training in a step and the ceiling, of the first waterfall.
    """
    if title is None:
        first = next(iter(found.values()))
        title = (
            f"Training takes {first.share(STEP):.0%} of a step; with data for free, "
            f"a step is {first.ceiling.estimate:.1f} times as fast"
        )
    n_rows = [len(one.bars) for one in found.values()]
    shape = {"height_ratios": n_rows, "sharex": True}
    figure, *panels = axes(7.8, 0.7 + 0.3 * sum(n_rows), lines=len(found), **shape)
    longest = 1000 * max(one.step for one in found.values())
    for ax, (label, one) in zip(panels, found.items(), strict=True):
        right = 1000 * one.step
        for y, (stage, bar) in enumerate(one.bars.items()):
            ms = bar.scaled(1000)
            shown = round(ms.estimate, 1) + 0.0  # no "-0.0"
            edge = "none" if shown >= 0 else "black"
            left = right - ms.estimate
            ax.barh(y, ms.estimate, left=left, color=STAGE_COLORS[stage], ec=edge, height=0.7)
            end = max(left, right)
            if math.isfinite(ms.high - ms.low):  # whiskers at the end that the stage decides
                ax.plot([right - ms.high, right - ms.low], [y, y], color=GREY, lw=1)
                end = min(1.1 * longest, max(end, right - ms.low))
            words = f"{shown:.1f} ms, {percent(one.share(stage))}"
            label_point(ax, words, (end, y), fontsize=8)
            right = left
        rows(ax, one.bars, fontsize=8)
        ax.set(xlim=(min(0, right), 1.3 * longest), ylabel=label)
        ax.label_outer()
    panels[-1].set_xlabel("ms per step; grey line: where the bar may end (interval of 95 %)")
    figure.suptitle(title, fontsize=10)
    return figure


def ratios(passes: Comparison, title: str) -> Figure:
    """Draw the ratios of a Comparison and its control, a row each."""
    figure, ax = axes(7.6, 1.2 + 0.36 * len(passes.seconds))
    passes.draw(ax)
    figure.suptitle(title, fontsize=10)
    return figure


def seconds(passes: Comparison, title: str) -> Figure:
    """Draw the seconds of each way of a Comparison on a logarithmic axis, a row each."""
    figure, ax = axes(7.6, 1.2 + 0.36 * len(passes.seconds))
    for y, way in enumerate(passes.seconds):
        ms = passes.time(way).scaled(1000)
        ax.plot([ms.low, ms.high], [y, y], color=BLUE, lw=2)
        ax.plot(ms.estimate, y, "o", color=BLUE)
        words = f"{ms.estimate:,.1f} ms" if ms.estimate < 10 else f"{ms.estimate:,.0f} ms"
        label_point(ax, words, (ms.high, y), fontsize=8)
    rows(ax, passes.seconds)
    longest = 1000 * max(passes.time(way).estimate for way in passes.seconds)
    label = "time, ms, with its interval of 95 %"
    ax.set(xscale="log", xlabel=label, title=title, xlim=(None, 4 * longest))
    return figure


def speedups(cases: Mapping[str, WorkerComparison], workers: int = 2) -> Figure:
    """Draw the ratios of some comparisons of numbers of workers, a panel each, on one axis.

    Args:
        cases: {what the workers do: their comparison}.
        workers: the number whose ratios the title says.
    """
    rows_of = [len(case.passes.seconds) for case in cases.values()]
    shape = {"height_ratios": rows_of, "sharex": True}
    figure, *panels = axes(7.6, 0.9 + 0.4 * sum(rows_of), lines=len(cases), **shape)
    said = []
    for ax, (label, case) in zip(panels, cases.items(), strict=True):
        case.passes.draw(ax)
        ax.margins(y=0.3 / len(case.passes.seconds))
        ax.set_ylabel(label)
        ax.label_outer()
        said.append(f"{case.ratio(workers).estimate:.2f} times as fast as none ({label})")
    title = f"{counted(workers, 'worker')}: {', '.join(said)}"
    figure.suptitle(title, fontsize=10)
    return figure


def cpu(logical: int, physical: int) -> Figure:
    """Draw a processor: cores, their hardware threads and caches, and memory.

    Args:
        logical, physical: numbers of cores; at most DRAWN_CORES_MAX are drawn.
    """
    figure, ax = canvas(7.4, 2.9, 10, 4.3)
    shown = min(physical, DRAWN_CORES_MAX)
    threads_each = max(1, logical // physical)
    box(ax, 5, 2.7, "", "#dddddd", 9.6, 2.9)
    core_width = 9.2 / shown
    thread_width = (core_width - 0.4) / threads_each
    is_narrow = shown * threads_each > 8
    for core in range(shown):
        x = 0.4 + core_width * (core + 0.5)
        box(ax, x, 2.95, "", "#ffffff", core_width - 0.2, 2.0)
        for thread in range(threads_each):
            number = threads_each * core + thread
            text = f"{number}" if is_narrow else f"logical core {number}"
            thread_x = x + (thread - (threads_each - 1) / 2) * thread_width
            box(ax, thread_x, 3.35, text, BLUE, thread_width - 0.1, 0.7)
        box(ax, x, 2.4, "L1, L2", SKY_BLUE, core_width - 0.5, 0.45)
    box(ax, 5, 1.55, "L3 cache, shared", GREEN, 9.0, 0.35)
    box(ax, 5, 0.45, "memory: slow, large, shared by all cores and processes", GREY, 9.6, 0.55)
    threads = "one hardware thread each"
    if threads_each > 1:
        threads = f"{threads_each} hardware threads each, which share its caches"
    more = f" ({shown} drawn)" if shown < physical else ""
    ax.set_title(f"As the system reports it: {physical} cores{more}, {threads}", fontsize=10)
    return figure


def loader_diagram(num_workers: int, batch_size: int) -> Figure:
    """Draw main process and workers.

    Index lists go out, messages come back, pixels lie in shared memory.
    """
    figure, ax = canvas(8.6, 1.2 + 0.55 * num_workers, 12, num_workers + 0.9)
    middle = num_workers / 2 + 0.6
    height = num_workers - 0.1
    box(ax, 1.5, middle, "main process\n\ntraining loop\nsampler", GREY, 2.3, height)
    box(ax, 10.6, middle, "shared memory\n\nthe pixels of\nthe batches", GREEN, 2.3, height)
    small = dict(fontsize=7, color=GREY, ha="center")
    left, right = 2.75, 4.85  # ends of the arrows between the main process and a worker
    for worker in range(num_workers):
        y = num_workers - worker + 0.1
        box(ax, 6.6, y, f"worker {worker}: builds batch {worker}", BLUE, 3.3, 0.5)
        arrow(ax, (left, y + 0.12), (right, y + 0.12))
        arrow(ax, (right, y - 0.12), (left, y - 0.12))
        arrow(ax, (8.35, y), (9.35, y), GREEN)
        first = worker * batch_size
        last = first + batch_size - 1
        centre = (left + right) / 2
        ax.text(centre, y + 0.17, f"indices {first} … {last}", va="bottom", **small)
        ax.text(centre, y - 0.17, f"where batch {worker} is", va="top", **small)
    ax.set_title(
        "Indices go out; what comes back says where the batch is, not its pixels", fontsize=10
    )
    bottom = middle - height / 2 - 0.1
    ax.plot([10.6, 10.6, 1.5, 1.5], [bottom, 0.1, 0.1, bottom - 0.1], color=GREEN, lw=1)
    arrow(ax, (1.5, 0.1), (1.5, bottom + 0.05), GREEN)
    text = "the main process maps the memory of the batch: no copy"
    ax.text(6.1, 0.16, text, fontsize=8, color=GREEN, ha="center", va="bottom")
    return figure


def streams() -> Figure:
    """Draw three queues over time: of the processor, of a stream that copies, of one that steps.

    Arrows are events.
    """
    figure, ax = canvas(9.2, 2.6, 13, 3.9)
    lanes = {"processor": 3.2, "side stream": 2.0, "computing stream": 0.8}
    for name, y in lanes.items():
        ax.text(0.1, y, name, va="center", fontsize=9)
        ax.plot([2.6, 12.9], [y, y], color=GREY, lw=0.6, zorder=0)
    for k in range(4):
        x = 3.4 + 2.4 * k
        queued = f"queue copy {k},\nstep {k - 1}" if k else "queue copy 0"
        box(ax, x, 3.2, queued, GREY, 1.5, 0.62)
        box(ax, x + 0.75, 2.0, f"copy {k}", GREEN, 1.3, 0.5)
        if k:
            box(ax, x + 0.75, 0.8, f"step {k - 1}", RED, 2.1, 0.5)
            arrow(ax, (x - 1.0, 1.7), (x - 0.25, 1.1), GREEN)
    ax.text(11.7, 0.8, "…", va="center", fontsize=12, color=RED)  # step 3, of copy 3
    event = "event: copy 0 has ended"
    ax.text(4.9, 1.4, event, ha="right", va="center", fontsize=8, color=GREEN)
    ax.set_title(
        "Copy 1 runs during step 0; an arrow is an event that a step waits for", fontsize=10
    )
    return figure


def timeline(spans: Sequence[tuple[str, int, float, float]], title: str, main: str) -> Figure:
    """Draw who did what when: one row per process, a bar for each batch that is built.

    Args:
        spans: (row label, batch number, start, end), in seconds from the start of the pass.
        main: the label of the main process, whose bars are grey; those of workers are blue.
    """
    names = sorted({row for row, *_ in spans}, reverse=True)
    figure, ax = axes(8.2, 0.9 + 0.42 * len(names))
    number = dict(ha="center", va="center", color="white", fontsize=7)
    for row, batch, start, end in spans:
        y = names.index(row)
        ms = 1000 * (end - start)
        color = GREY if row == main else BLUE
        ax.barh(y, ms, left=1000 * start, height=0.62, color=color, ec="white", lw=1.5)
        ax.text(500 * (start + end), y, str(batch), **number)
    ax.set_yticks(range(len(names)), names)
    ax.set(xlabel="time, ms (a number is a batch)", title=title, xlim=(0, None))
    ax.grid(axis="y", visible=False)
    return figure


def predicted_workers(cases: Mapping[str, CheckedForecast], batch_size: int) -> Figure:
    """Draw time per batch against workers: predicted from one worker as lines, measured as points.

    Level lines are the times without workers. A title says between which ends of intervals the
    measured times lie, as multiples of the predicted ones.

    Args:
        cases: {label: forecast}, a panel each.
        batch_size: items of a batch.
    """
    figure, *panels = axes(1.2 + 4.3 * len(cases), 3.4, columns=len(cases))
    for ax, (label, case) in zip(panels, cases.items(), strict=True):
        ms = list(case.predicted.values())
        ax.plot(list(case.predicted), ms, color=GREY, label="predicted from one worker")
        workers = [number for number in case.measured if number > 0]
        middle, reach = middle_and_reach([case.measured[number] for number in workers])
        points = dict(fmt="o", color=BLUE, capsize=4, label="measured")
        ax.errorbar(workers, middle, reach, **points)
        without = case.measured[0].estimate
        ax.axhline(without, color=BLUE, ls=":", lw=1.5, label="measured without workers")
        ylabel = f"time per batch of {batch_size}, ms"
        ax.set(xlabel="number of workers", ylabel=ylabel, ylim=(0, None))
        least = min(interval.low for interval in case.missed.values())
        most = max(interval.high for interval in case.missed.values())
        ax.set_title(f"{label}: {least:.2f} to {most:.2f} times the prediction", fontsize=10)
        ax.set_xscale("log", base=2)
        ticks_at(ax, case.predicted)
    legend_beside(panels[-1])
    return figure


def bars(percents: Mapping[str, Sequence[float]], what: str, title: str) -> Figure | None:
    """Draw one horizontal bar for the percents of each way: their median, and their range.

    Args:
        percents: {way: a percent per round}; none of them draws nothing.
        what: the axis is "% of `what`".
    """
    if not percents:
        return None
    figure, ax = axes(7.6, 0.9 + 0.36 * len(percents))
    for y, of_rounds in enumerate(percents.values()):
        samples = torch.tensor(of_rounds, dtype=torch.float64).reshape(1, -1)
        middle, reach = middle_and_reach(samples)
        length = middle.item()
        style = dict(color=BLUE, ecolor=GREY, capsize=3, height=0.6)
        ax.barh(y, length, xerr=reach.tolist(), **style)
        label_point(ax, f"{length:.0f} %", (length + reach[1].item(), y), fontsize=9)
    rows(ax, percents)
    ax.margins(x=0.12)
    ax.set(xlabel=f"% of {what} (median, lowest to highest)", title=title, xlim=(0, None))
    return figure


def strips(
    runs: Mapping[str, Sequence[tuple[str, int, float, float]]],
) -> Figure | None:
    """Draw where time goes in each of {title: [(label, number, start, end)]}, a strip each.

    A bar is an event, its colour says its label; times are in seconds. None if there are no runs.
    """
    if not runs:
        return None
    labels = _in_order(label for spans in runs.values() for label, *_ in spans)
    figure, ax = axes(8.6, 1.3 + 0.5 * len(runs))
    for y, spans in enumerate(runs.values()):
        for label, color in zip(labels, COLORS, strict=False):
            places = []
            for name, _, start, end in spans:
                if name == label:
                    places.append((1000 * start, 1000 * (end - start)))
            ax.broken_barh(places, (y - 0.3, 0.6), color=color, ec="white", lw=0.3)
    for label, color in zip(labels, COLORS, strict=False):
        ax.barh(0, 0, color=color, label=label)  # for the legend
    rows(ax, runs)
    ax.set_xlabel("time, ms")
    figure.legend(frameon=False, fontsize=8, ncols=len(labels), loc="outside lower center")
    return figure


def _in_order(names: Iterable[str]) -> list[str]:
    """Each of `names` once, in the order in which they come first."""
    return list(dict.fromkeys(names))


def queue(depths: Mapping[str, tuple[Sequence[float], Sequence[int]]]) -> Figure:
    """Draw how many batches the loop could take, over time; shaded where there are none.

    Args:
        depths: {title: (moments in s, batches)}, a panel each.
    """
    figure, *panels = axes(8.6, 2.8, columns=len(depths))
    most = max(max(batches) for _, batches in depths.values())
    last = 1000 * max(moments[-1] for moments, _ in depths.values())
    for ax, (title, (moments, batches)) in zip(panels, depths.items(), strict=True):
        ms = [1000 * moment for moment in moments]
        ax.step(ms, batches, where="post", color=BLUE, lw=1)
        for begin, end, depth in zip(ms, ms[1:], batches, strict=False):
            if not depth:
                ax.axvspan(begin, end, color=GREY, alpha=0.3, lw=0)
        ax.set(title=title, xlabel="time, ms", ylabel="batches ready for the loop")
        ax.set(xlim=(0, last), ylim=(-0.2, most + 0.5))
    return figure
