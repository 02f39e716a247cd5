"""Figures of unit 06."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from course.measure.comparison import (
    FASTER,
    NOT_DECIDED,
    NOT_MEASURED,
    SAME,
    SLOWER,
    Comparison,
    Interval,
)
from course.plots.style import (
    BLUE,
    COLORS,
    GREEN,
    GREY,
    RED,
    axes,
    label_point,
    middle_and_reach,
    plain_log,
    rows,
    ticks_at,
)
from course.text import counted

VERDICT_COLORS = {
    FASTER: GREEN,
    SLOWER: RED,
    SAME: BLUE,
    NOT_DECIDED: "#999999",
    NOT_MEASURED: GREY,
}
MISSED = 1.02  # times as long, above which a whole interval says that advice helped
BOARD_ENTRIES_MAX = 12

# a run of training.speedrun (name, seed, seconds, accuracies), which a figure does not import
Run = Any


# ---- part 1, find out what is slow


def phase_shares(shares: Mapping[str, Mapping[str, float]]) -> Figure:
    """Draw a group of bars per phase, one for each training, with its share at the end.

    Args:
        shares: {training: {phase: share, ..., "other": share}}.
    """
    figure, ax = axes(7.4, 3.6)
    phases = list(next(iter(shares.values())))
    for k, (name, measured) in enumerate(shares.items()):
        places = np.arange(len(phases)) + 0.38 * (k - 0.5)
        color = COLORS[k]
        ax.barh(places, measured.values(), height=0.36, color=color)
        for y, share in zip(places, measured.values(), strict=True):
            label_point(ax, f"{100 * share:.1f} %", (share, y), (4, 0), fontsize=8, color=color)
        name_y = 0.06 + 0.09 * (1 - k)
        ax.text(0.98, name_y, name, color=color, transform=ax.transAxes, ha="right")
    rows(ax, phases)
    data = " and ".join(f"{100 * measured['data']:.0f} %" for measured in shares.values())
    ax.set(xlabel="share of the time", title=f"Getting the data takes {data} of the time")
    ax.margins(x=0.12)
    return figure


def advice_ratios(compared: Mapping[str, Comparison | str], xlabel: str) -> Figure:
    """Draw a row per advice or rung: how many times as fast as a dot, the interval as a line.

    The colour is that of the verdict; the thin grey line below is the control.

    Args:
        compared: {name: a Comparison of two ways, or why nothing was measured}.
    """
    figure, ax = axes(8.0, 1.0 + 0.27 * len(compared))
    verdicts = []
    for y, found in enumerate(compared.values()):
        if isinstance(found, str):
            label_point(ax, NOT_MEASURED, (1, y), color=VERDICT_COLORS[NOT_MEASURED])
            continue
        _, way = found.seconds
        ratio = found.ratio(way)
        verdicts.append(found.verdict(way))
        color = VERDICT_COLORS[verdicts[-1]]
        ax.plot([ratio.low, ratio.high], [y, y], color=color, lw=2)
        ax.plot(ratio.estimate, y, "o", color=color, ms=5)
        control = found.control
        ax.plot([control.low, control.high], [y + 0.25, y + 0.25], color=GREY, lw=0.8)
    for verdict in (FASTER, SLOWER, SAME, NOT_DECIDED):
        ax.plot([], [], "o-", color=VERDICT_COLORS[verdict], label=verdict)
    ax.plot([], [], color=GREY, lw=0.8, label="control")
    ax.axvline(1, color=GREY, lw=1, ls=":")
    ax.set(yticks=range(len(compared)), yticklabels=compared, xscale="log", xlabel=xlabel)
    low, high = ax.get_xlim()
    ticks = np.array([0.5, 0.7, 0.8, 0.9, 1, 1.2, 1.4, 1.7, 2, 3, 5, 10, 20])
    ticks_at(ax, ticks[(low <= ticks) & (ticks <= high)], "{:g}")
    ax.set_ylim(len(compared) - 0.5, -0.5)
    ax.legend(ncols=5, frameon=False, loc="lower center", bbox_to_anchor=(0.4, 1.0), fontsize=8)
    faster = f"{verdicts.count(FASTER)} of {len(verdicts)} are faster"
    figure.suptitle(f"{faster}, {verdicts.count(SLOWER)} slower")
    return figure


def loss_curves(curves: Mapping[str, Tensor], ylabel: str, top: float = 3.5) -> Figure:
    """Draw loss against step, a line per setting through the mean of the seeds.

    Its name stands where it ends or leaves the figure.

    Args:
        curves: {setting: tensor (seeds, steps)}.
        top: highest loss that is drawn.
    """
    figure, ax = axes(7.4, 3.6)
    ends = {}  # {setting: mean loss of its last steps}
    colors = dict(zip(curves, COLORS, strict=False))
    diverged = []
    outside = dict(fontsize=9, annotation_clip=False)
    for name, color in colors.items():
        runs = curves[name]
        mean = runs.mean(0)
        n_steps = runs.shape[1]
        steps = range(1, n_steps + 1)
        ax.plot(steps, mean.clamp(max=2 * top), color=color, lw=1.6, alpha=0.9)
        if mean[-1] < top:
            ends[name] = mean[-max(1, n_steps // 5) :].mean().item()
        else:  # above the figure, or NaN
            diverged.append(name)
            edge = dict(xycoords=("axes fraction", "data"), color=color, fontsize=9)
            label_point(ax, f"{name}: diverges", (1, top), (5, -4), **edge)
    ends = dict(sorted(ends.items(), key=lambda end: (end[1], end[0])))
    height = -1.0
    for name, loss in ends.items():
        height = max(loss, height + top / 18)  # names do not cover each other
        label_point(ax, name, (n_steps, height), (5, 0), color=colors[name], **outside)
    least = min(ends.values(), default=0.0)
    lowest = " and ".join(name for name, loss in ends.items() if loss < 1.1 * least)
    title = f"Lowest loss at the end: {lowest}; diverged: {', '.join(diverged) or 'none'}"
    ax.set(xlabel="step", ylabel=ylabel, ylim=(0, top), title=title)
    return figure


# ---- part 2, fewer steps


def loss_against_lr(
    lrs: Sequence[float], losses: Sequence[float], choice: float, grid: Mapping[float, float]
) -> Figure:
    """Draw the losses of a range test with the choice marked, and trainings.

    Args:
        lrs, losses: of the range test, smoothed.
        choice: the learning rate that was read from it.
        grid: {learning rate: validation accuracy of a training}.
    """
    figure, left, right = axes(8.4, 3.4, columns=2, sharex=True)
    left.plot(lrs, losses, color=BLUE)
    left.set(xscale="log", xlabel="learning rate", ylabel="smoothed loss", title="Range test")
    right.plot(list(grid), list(grid.values()), "o-", color=BLUE, ms=4)
    right.set(
        xlabel="learning rate, constant", ylabel="validation accuracy", title="Whole trainings"
    )
    for ax in (left, right):
        ax.axvline(choice, color=RED, ls="--")
    point = (choice, max(losses))
    label_point(left, "choice", point, (-4, 0), va="baseline", ha="right", color=RED)
    best = max(grid, key=grid.get)
    lowest = lrs[losses.index(min(losses))]
    figure.suptitle(
        f"The loss is lowest at {lowest:.2g}, the best of five learning rates is {best:.2g}"
    )
    return figure


def schedules(shapes: Mapping[str, Sequence[float]]) -> Figure:
    """Draw the learning rate of each step; in the inset the last tenth of the steps, logarithmic.

    Args:
        shapes: {name: learning rates}.
    """
    figure, ax = axes(7.4, 3.6)
    inset = ax.inset_axes([1.14, 0.06, 0.34, 0.4])
    steps = max(map(len, shapes.values()))
    last = range(steps - max(2, steps // 10), steps)
    for k, (color, (name, values)) in enumerate(zip(COLORS, shapes.items(), strict=False)):
        ax.plot(values, color=color, lw=1.6)
        inset.plot(last, [values[step] for step in last], color=color, lw=1.4)
        y = 0.98 - 0.08 * k
        ax.text(1.12, y, name, color=color, transform=ax.transAxes, va="top", fontsize=9)
    ax.set(
        xlabel="step",
        ylabel="learning rate",
        title="One cycle and cosine end near zero, the others do not",
    )
    inset.set_yscale("log")
    inset.set_title("last tenth, logarithmic", fontsize=8)
    inset.tick_params(labelsize=7)
    inset.locator_params(axis="x", nbins=3)
    return figure


def accuracies(results: Mapping[str, Sequence[float]]) -> Figure:
    """Draw validation accuracies per contestant: a point per seed and a bar at their mean."""
    figure, ax = axes(7.6, 0.36 * len(results) + 1.2)
    means = {}
    for place, (name, values) in enumerate(results.items()):
        mean = sum(values) / len(values)
        means[name] = mean
        ax.plot(values, [place] * len(values), "o", color=BLUE, ms=5, alpha=0.7)
        ax.plot([mean, mean], [place - 0.3, place + 0.3], color=BLUE, lw=2)
    rows(ax, results)
    ax.set(
        xlabel="validation accuracy (a dot per seed, a bar at the mean)",
        title=f"Ends highest: {max(means, key=means.get)}",
    )
    return figure


def over_decay(decays: Sequence[float], results: Mapping[str, Sequence[Sequence[float]]]) -> Figure:
    """Draw validation accuracy against decay, a line through the means and a point per seed.

    Args:
        results: {name: accuracies of the seeds at each decay}.
    """
    figure, ax = axes(6.6, 3.4)
    places = range(len(decays))
    best = []
    for k, (color, (name, table)) in enumerate(zip(COLORS, results.items(), strict=False)):
        means = [sum(row) / len(row) for row in table]
        ax.plot(places, means, "-", color=color)
        for place, row in zip(places, table, strict=True):
            ax.plot([place] * len(row), row, "o", color=color, ms=4, alpha=0.6)
        end = (places[-1], means[-1])
        style = dict(va="baseline", color=color, annotation_clip=False)
        label_point(ax, name, end, (6, 4 - 8 * k), **style)
        sums = [sum(row) for row in table]
        best.append(f"{name} at {decays[sums.index(max(sums))]:g}")
    ax.set_xticks(places, [f"{decay:g}" for decay in decays])
    ax.set(
        xlabel="weight decay",
        ylabel="validation accuracy",
        title=f"Highest mean: {', '.join(best)}",
    )
    return figure


def spikes(losses: Mapping[str, Sequence[float]]) -> Figure:
    """Draw the loss of each step (logarithmic) in a panel per setting.

    Args:
        losses: of "clean", "clean, clipped", "broken batch", "broken batch, clipped", in this
            order.
    """
    figure, *panels = axes(8.4, 3.0, columns=len(losses), sharey=True)
    last_quarters = []
    for ax, (name, values) in zip(panels, losses.items(), strict=True):
        ax.plot(values, color=RED if "broken" in name else BLUE, lw=1)
        ax.set_yscale("log")
        ax.set_title(name, fontsize=9)
        ax.set_xlabel("step")
        last_quarters.append(sum(values[len(values) * 3 // 4 :]))
    panels[0].set_ylabel("training loss")
    clean, _, broken, clipped = last_quarters
    title = f"Last quarter after a broken batch: {broken / clean:.1f} times the clean loss"
    title += f", with clipping {clipped / clean:.1f} times (first seed)"
    figure.suptitle(title, fontsize=10)
    return figure


def to_target(
    reached: Mapping[str, Mapping[int, Sequence[tuple[float, float]]]], target: float
) -> Figure:
    """Draw steps and seconds until `target` against batch size.

    A line goes through the medians, a dot is a run.

    Args:
        reached: {"scaled", "unscaled": {batch size: [(steps, seconds) of each seed]}}, infinite if
            never reached.
    """
    figure, *panels = axes(8.8, 3.6, columns=2, sharex=True)
    for column, (ax, what) in enumerate(zip(panels, ("steps", "seconds"), strict=True)):
        batches = set()
        for color, (name, by_batch) in zip(COLORS, reached.items(), strict=False):
            _draw_until_target(ax, name, by_batch, column, color)
            batches.update(by_batch)
        ax.set(xscale="log", yscale="log", xlabel="batch size", ylabel=f"{what} to {target:.3f}")
        ax.margins(x=0.2)
        plain_log(ax.yaxis)
        ticks_at(ax, sorted(batches))
    fewest = _least(_medians(reached["scaled"], 0))
    fastest = _least(_medians(reached["scaled"], 1))
    figure.suptitle(
        f"Learning rate scaled: {fewest} needs the fewest steps, {fastest} the least time"
    )
    return figure


def _draw_until_target(
    ax: Axes,
    name: str,
    by_batch: Mapping[int, Sequence[tuple[float, float]]],
    column: int,
    color: str,
) -> None:
    """Draw one line of `to_target`, named at its end: column 0 is steps, column 1 seconds."""
    medians = _medians(by_batch, column)
    shown = {batch: value for batch, value in medians.items() if value < math.inf}
    ax.plot(list(shown), list(shown.values()), "-", color=color)
    for batch, runs in by_batch.items():
        finite = [run[column] for run in runs if run[column] < math.inf]
        ax.plot([batch] * len(finite), finite, "o", color=color, ms=4)
    if shown:
        last = max(shown)
        late = "" if last == max(medians) else f"\nnever above {last}"
        end = (last, shown[last])
        label_point(ax, f"{name}{late}", end, color=color, fontsize=9, annotation_clip=False)


def _medians(
    by_batch: Mapping[int, Sequence[tuple[float, float]]], column: int
) -> dict[int, float]:
    """{batch size: the upper median of a column of its runs}."""
    medians = {}
    for batch, runs in by_batch.items():
        values = sorted(run[column] for run in runs)
        medians[batch] = values[len(values) // 2]
    return medians


def _least(medians: Mapping[int, float]) -> str:
    """The batch sizes whose median is within 10 % of the least, joined by "and"."""
    least = min(medians.values())
    return " and ".join(str(batch) for batch, value in medians.items() if value <= 1.1 * least)


# ---- part 4, memory for time, and the race


def memory_and_time(
    peaks: Mapping[int, float],
    predicted: Mapping[int, float],
    plain: float,
    longer: Mapping[int, Interval],
    predicted_time: float,
) -> Figure:
    """Draw bytes kept and time of a step against the number of segments, measured and predicted.

    Args:
        peaks, predicted: {segments: most bytes kept simultaneously}.
        plain: bytes that the model keeps without checkpointing.
        longer: {segments: how many times as long as a plain step a step takes}.
        predicted_time: the same, predicted.
    """
    figure, left, right = axes(8.4, 3.3, columns=2)
    counts = list(peaks)
    expected = [predicted[k] / 1e6 for k in counts]
    left.plot(counts, expected, "--", color=GREY, label="predicted from one block")
    measured = [peaks[k] / 1e6 for k in counts]
    left.plot(counts, measured, "o", color=BLUE, label="measured")
    left.axhline(plain / 1e6, color=RED, lw=1)
    label_point(left, "plain", (counts[-1], plain / 1e6), (0, -12), va="baseline", ha="right")
    best = min(peaks, key=peaks.get)
    left.set(xlabel="segments", ylabel="MB kept for backward", ylim=(0, None))
    left.set_title(f"{best} segments keep {peaks[best] / plain:.0%} of the bytes")
    left.legend(frameon=False, loc="lower left")

    again = "predicted: one more forward pass"
    right.axhline(predicted_time, color=GREY, ls="--", lw=1, label=again)
    middle, reach = middle_and_reach([longer[k] for k in counts])
    right.errorbar(counts, middle, reach, fmt="o", color=BLUE, ecolor="black", elinewidth=1)
    right.axhline(1, color=RED, lw=1, label="plain")
    right.legend(frameon=False, loc="lower left")
    right.set(xlabel="segments", ylabel="times as long as a plain step", ylim=(0, None))
    right.set_title(f"A step takes {middle.quantile(0.5):.2f} times as long")
    for ax in (left, right):
        ax.set_xscale("log", base=2)
        ticks_at(ax, counts)
    return figure


def accumulation(
    micro_batches: Sequence[int], differences: Mapping[str | None, Sequence[float]]
) -> Figure:
    """Draw how far the accumulated gradient is from that of the whole batch, one line per norm.

    Args:
        differences: {norm, None for no norm: relative difference at each micro-batch}.
    """
    figure, ax = axes(6.6, 3.3)
    labels = {"batch": "BatchNorm", "group": "GroupNorm", None: "no norm"}
    for color, (norm, values) in zip(COLORS, differences.items(), strict=False):
        ax.plot(micro_batches, values, "o-", color=color, ms=4, label=labels[norm])
    off = f"{100 * differences['batch'][-1]:.0f} % off"
    ax.set(
        xscale="log",
        yscale="log",
        xlabel="rows per micro-batch",
        ylabel="relative difference",
        title=f"Gradient with BatchNorm: {off} with {micro_batches[-1]} rows per micro-batch",
    )
    ticks_at(ax, micro_batches)
    ax.legend(frameon=False)
    return figure


def race(runs: Sequence[Run], target: float) -> Figure:
    """Draw validation accuracy near `target` as it was known at each second.

    It changes at an evaluation. A colour per name, a line style per seed; a dot where a run reaches
    the target, a cross where it does not.
    """
    figure, ax = axes(7.4, 3.8)
    names = list(dict.fromkeys(run.name for run in runs))
    seeds = list(dict.fromkeys(run.seed for run in runs))
    colors = dict(zip(names, COLORS, strict=False))
    best = dict.fromkeys(names, math.inf)  # seconds
    for run in runs:
        color = colors[run.name]
        style = ("-", "--", ":")[seeds.index(run.seed) % 3]
        seconds = [0.0]
        accuracies = [0.1]  # of ten classes, before the first evaluation
        for _, at, accuracy in run.accuracies:
            seconds.append(at)
            accuracies.append(accuracy)
        end = "o" if accuracies[-1] >= target else "x"
        ax.step(seconds, accuracies, style, where="post", color=color, lw=1.2)
        ax.plot(seconds[1:-1], accuracies[1:-1], ".", color=color)
        ax.plot(seconds[-1], accuracies[-1], end, color=color, ms=6)
        best[run.name] = min(best[run.name], run.seconds)
    ax.axhline(target, color=GREY, lw=1, ls=":")
    label_point(ax, "target", (0, target), (2, 3), va="baseline", color=GREY, fontsize=8)
    for k, (name, color) in enumerate(colors.items()):
        ax.text(0.02, 0.06 + 0.07 * k, name, color=color, transform=ax.transAxes, fontsize=9)
    first = min(best, key=best.get)
    others = ", ".join(f"{name} after {best[name]:.1f} s" for name in names if name != first)
    title = f"{first} reaches {100 * target:g} % after {best[first]:.1f} s, {others} (best seeds)"
    ax.set(xlabel="seconds (a line style per seed)", ylabel="validation accuracy", title=title)
    ax.set(ylim=(target - 0.15, None))
    ax.margins(x=0.1, y=0.1)
    ax.set_xlim(left=0)
    return figure


def left_out(worth: Mapping[str, Interval]) -> Figure:
    """Draw how many times as long the race takes without each piece of advice; largest on top.

    Args:
        worth: {name: the times as an Interval over the seeds, infinite without the target}.
    """
    figure, ax = axes(7.0, 0.5 + 0.34 * len(worth))
    values = [getattr(times, part) for times in worth.values() for part in ("estimate", "high")]
    most = 1.1 * max((value for value in values if math.isfinite(value)), default=2.0)
    names = sorted(worth, key=lambda name: worth[name].estimate)
    missed = []
    for place, name in enumerate(names):
        times = worth[name]
        is_missed = times.low > MISSED
        if is_missed:
            missed.insert(0, name.removeprefix("without "))
        color = BLUE if is_missed else GREY
        ax.barh(place, min(times.estimate, most) - 1, left=1, color=color, height=0.6)
        end = min(times.estimate, most)
        if times.low > 0:  # else the interval is unknown
            end = min(times.high, most)
            ax.plot([min(times.low, most), end], [place, place], color="black", lw=1)
        text = f"{times.estimate:.2f}" if times.estimate < math.inf else "target not reached"
        label_point(ax, text, (max(end, 1), place), (4, -3), va="baseline")
    ax.axvline(1, color="black", lw=1)
    ax.set_yticks(range(len(worth)), names)
    shown = ", ".join(missed) if len(missed) < 4 else f"{len(missed)} pieces"
    title = f"Takes longer without: {shown or 'no piece is proven to help'}"
    ax.set(xlabel="times as long as with everything", title=title, xlim=(None, 1.15 * most))
    return figure


def leaderboard(entries: Iterable[tuple[str, float, int]]) -> Figure:
    """Draw a bar at the median time of each entry, fastest on top, at most BOARD_ENTRIES_MAX.

    Args:
        entries: (name, median seconds, runs), fastest first; infinite seconds if the target was not
            reached.
    """
    best = [entry for entry in entries if math.isfinite(entry[1])][:BOARD_ENTRIES_MAX]
    figure, ax = axes(7.0, 0.9 + 0.3 * max(1, len(best)))
    for place, (name, seconds, runs) in enumerate(best):
        color = GREEN if name.startswith("mine") else BLUE
        ax.barh(place, seconds, height=0.6, color=color)
        text = f"{seconds:.2f} s, {counted(runs, 'run')}"
        label_point(ax, text, (seconds, place), (6, -3), va="baseline", fontsize=8)
    rows(ax, [name for name, *_ in best])
    ax.margins(x=0.2)
    title = "Nobody has reached the target"
    if best:
        leader, seconds, _ = best[0]
        title = f"{leader} leads with {seconds:.2f} s"
    ax.set(xlabel="seconds to the target, median of the runs", title=title)
    return figure
