"""Figures of unit 06."""

import math
from collections.abc import Mapping, Sequence
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
    verdict_on,
)
from course.plots.style import (
    BLUE,
    GREEN,
    GREY,
    RED,
    SKY_BLUE,
    axes,
    label_point,
    middle_and_reach,
    plain_log,
    rows,
    ticks_at,
)
from course.text import counted

# A colour of a verdict means nothing else in this unit; whatever else differs takes one of SERIES.
VERDICT_COLORS = {
    FASTER: GREEN,
    SLOWER: RED,
    SAME: BLUE,
    NOT_DECIDED: "#999999",
    NOT_MEASURED: GREY,
}
# colour-blind safe, after Paul Tol's "muted": dark, pale, and none that a verdict has
INDIGO, PURPLE, BROWN, SAND, PALE_GREY = "#332288", "#aa4499", "#7a4f1d", "#d9c36a", "#c4c4c4"
SERIES = (INDIGO, SKY_BLUE, PURPLE, BROWN, SAND, GREY)
WHITE_ON = (INDIGO, PURPLE, BROWN, GREY)  # a number on another colour is black
PHASE_COLORS = {
    "data": SAND,
    "transfer": BROWN,
    "forward": INDIGO,
    "backward": SKY_BLUE,
    "optimizer": PURPLE,
}
SCHEDULE_COLORS = {
    "constant": GREY,
    "cyclic": BROWN,
    "cosine": SKY_BLUE,
    "linear": PURPLE,
    "one cycle": INDIGO,
}
KIND_COLORS = {  # of operations
    "convolutions": INDIGO,
    "matrix products": SKY_BLUE,
    "attention": BROWN,
    "norms": SAND,
    "pooling": GREY,
    "optimizer": PURPLE,
    "other": PALE_GREY,
}
MARK = dict(color="black", ls="--")  # a value that was chosen or published
BOARD_ENTRIES_MAX = 12
NAMED = 4  # operations of a roofline, those that take longest
LOSS_DRAWN_MAX = 3.5
FINE_TICKS = (0.5, 0.7, 0.8, 0.9, 1, 1.2, 1.4, 1.7, 2, 3, 5)  # of times as fast
COARSE_TICKS = (0.5, 1, 2, 3, 5, 10, 20)

# of training.race and measure.roofline, which a figure does not import
Run = Any
Worth = Any
Roof = Any
Operation = Any
REPEATED = "everything again"
CONTESTANTS = {"plain": GREY, "everything": INDIGO, REPEATED: SKY_BLUE}


# ---- part 1, find out what is slow


def phase_shares(shares: Mapping[str, Mapping[str, float]]) -> Figure:
    """Draw a group of bars per phase, one for each training, with its share at the end.

    The bars of the second training are pale.

    Args:
        shares: {training: {phase: share of a step, ..., "other": share}}.
    """
    figure, ax = axes(7.4, 3.6)
    phases = list(next(iter(shares.values())))
    for k, measured in enumerate(shares.values()):
        places = np.arange(len(phases)) + 0.38 * (k - 0.5)
        colors = [PHASE_COLORS.get(phase, PALE_GREY) for phase in phases]
        strength = 1 if k == 0 else 0.4
        ax.barh(places, measured.values(), height=0.36, color=colors, alpha=strength)
        for y, share in zip(places, measured.values(), strict=True):
            label_point(ax, f"{100 * share:.1f} %", (share, y), (4, 0), fontsize=8)
    rows(ax, phases)
    strong, pale = shares
    legend = f"upper bar: {strong}\nlower, pale: {pale}"
    ax.text(0.98, 0.06, legend, transform=ax.transAxes, ha="right", fontsize=9)
    data = " and ".join(f"{100 * measured['data']:.0f} %" for measured in shares.values())
    ax.set(xlabel="share of a typical step", title=f"Getting the data takes {data} of a step")
    ax.margins(x=0.12)
    return figure


def roofline(roof: Roof, found: Mapping[str, Sequence[Operation]]) -> Figure:
    """Draw the roof, and each operation of a model's step as a dot whose area is its time.

    Args:
        roof: of measure.roofline.
        found: {model: its Operations, slowest first}; the first NAMED have their names.
    """
    figure, *panels = axes(9.4, 3.9, columns=len(found), sharex=True, sharey=True)
    reach = np.geomspace(1e-2, 1e3, 100)
    top = max(operation.rate for operations in found.values() for operation in operations)
    for ax, (model, operations) in zip(panels, found.items(), strict=True):
        ax.plot(reach, [roof.at(x) / 1e9 for x in reach], color="black", lw=1.2)
        whole = sum(operation.seconds for operation in operations)
        for operation in operations:
            point = (operation.intensity, operation.rate / 1e9)
            area = math.sqrt(operation.seconds / whole)
            ax.plot(*point, "o", color=INDIGO, ms=28 * area, alpha=0.5)
        _name_operations(ax, operations[:NAMED], roof.ridge)
        left = sum(each.seconds for each in operations if each.intensity < roof.ridge)
        ax.axvline(roof.ridge, color=GREY, lw=1, ls=":")
        ax.set_title(f"{model}: {left / whole:.0%} of the time left of the ridge", fontsize=9.5)
        ax.set(xscale="log", yscale="log", xlabel="FLOPs per byte")
        ax.set_ylim(2e-4 * roof.flops / 1e9, 2 * max(top, roof.flops) / 1e9)
        ax.set_xlim(reach[0], reach[-1])
    panels[0].set_ylabel("GFLOP/s")
    figure.suptitle(f"Here arithmetic is the limit from {roof.ridge:.2g} FLOPs per byte on")
    return figure


def _name_operations(ax: Axes, operations: Sequence[Operation], ridge: float) -> None:
    """Write the names in a column below the roof, with a line to each dot.

    Dots right of the ridge come first, the leftmost on top, then those left of it, the highest on
    top. A line starts at the side of the name where its dot is, so it crosses no name.
    """
    right = [each for each in operations if each.intensity > ridge]
    right.sort(key=lambda each: each.intensity)
    left = [each for each in operations if each.intensity <= ridge]
    left.sort(key=lambda each: -each.rate)
    for place, each in enumerate([*right, *left]):
        side = 1 if each.intensity > ridge else 0
        line = dict(arrowstyle="-", color=GREY, lw=0.6, relpos=(side, 0.5))
        column = dict(xytext=(0.64, 0.5 - 0.09 * place), textcoords="axes fraction")
        point = each.intensity, each.rate / 1e9
        style = dict(ha="right", va="center", fontsize=7.5, arrowprops=line)
        ax.annotate(_short_name(each.name), point, **column, **style)


def _short_name(operation: str) -> str:
    """The name of an operation, that of attention without its kernel."""
    if "attention" in operation:
        return "attention, backward" if operation.endswith("backward") else "attention"
    return operation.strip("_")


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
    ticks = np.array(COARSE_TICKS if high / low > 5 else FINE_TICKS)
    ticks_at(ax, ticks[(low <= ticks) & (ticks <= high)], "{:g}")
    ax.set_ylim(len(compared) - 0.5, -0.5)
    ax.legend(ncols=5, frameon=False, loc="lower center", bbox_to_anchor=(0.4, 1.0), fontsize=8)
    faster = f"{verdicts.count(FASTER)} of {len(verdicts)} are faster"
    figure.suptitle(f"{faster}, {verdicts.count(SLOWER)} slower")
    return figure


def loss_curves(curves: Mapping[str, Tensor], ylabel: str) -> Figure:
    """Draw loss against step, a line per setting through the mean of the seeds.

    Its name stands where it ends or leaves the figure.

    Args:
        curves: {setting: tensor (seeds, steps)}.
    """
    figure, ax = axes(7.4, 3.6)
    top = LOSS_DRAWN_MAX
    ends = {}  # {setting: mean loss of its last steps}
    colors = dict(zip(curves, SERIES, strict=False))
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
    title = f"Lowest loss at the end: {lowest}"
    if diverged:
        title += f"; diverged: “{'”, “'.join(diverged)}”"
    ax.set(xlabel="step", ylabel=ylabel, ylim=(0, top), title=title)
    ax.xaxis.get_major_locator().set_params(integer=True)
    return figure


# ---- part 2, fewer steps


def loss_against_lr(
    lrs: Sequence[float],
    losses: Sequence[float],
    choice: float,
    tried: Mapping[float, Sequence[float]],
) -> Figure:
    """Draw the losses of a range test with the choice marked, and trainings.

    Args:
        lrs, losses: of the range test, smoothed.
        choice: the learning rate that was read from it, one of `tried`.
        tried: {learning rate: validation accuracies, one per seed}.
    """
    figure, left, right = axes(8.4, 3.4, columns=2, sharex=True)
    left.plot(lrs, losses, color=INDIGO)
    left.set(xscale="log", xlabel="learning rate", ylabel="smoothed loss", title="Range test")
    means = {lr: sum(found) / len(found) for lr, found in sorted(tried.items())}
    right.plot(list(means), list(means.values()), "-", color=INDIGO, lw=1)
    for lr, found in tried.items():
        color = MARK["color"] if lr == choice else INDIGO
        right.plot([lr] * len(found), found, "o", color=color, ms=4)
    right.set(
        xlabel="learning rate, falling to zero",
        ylabel="validation accuracy",
        title="Whole trainings",
    )
    for ax in (left, right):
        ax.axvline(choice, **MARK)
    point = (choice, max(losses))
    label_point(left, "choice", point, (-4, 0), va="baseline", ha="right")
    label_point(right, "choice", (choice, min(map(min, tried.values()))), (-4, 0), ha="right")
    best = max(means, key=means.get)
    lowest = lrs[losses.index(min(losses))]
    figure.suptitle(
        f"The loss is lowest at {lowest:.2g}, the choice is {choice:.2g}, the best tried {best:.2g}"
    )
    return figure


def schedules(shapes: Mapping[str, Sequence[float]]) -> Figure:
    """Draw the learning rate of each step.

    Args:
        shapes: {name: learning rates}.
    """
    figure, ax = axes(7.4, 3.6)
    for k, (name, values) in enumerate(shapes.items()):
        own = name in SCHEDULE_COLORS
        style = dict(color=SCHEDULE_COLORS.get(name, INDIGO), ls="-" if own else ":")
        ax.plot(values, lw=1.6, **style)
        label = name if own else f"{name} (dotted)"
        place = dict(transform=ax.transAxes, va="top", fontsize=9)
        ax.text(1.02, 0.98 - 0.08 * k, label, color=style["color"], **place)
    high = [name for name, values in shapes.items() if values[-1] > 0.05 * max(values)]
    title = "All learning rates end near zero"
    if high:
        title += f" but those of {' and '.join(high)}"
    ax.set(xlabel="step", ylabel="learning rate", title=title)
    return figure


def contest(
    peaks: Sequence[float], found: Mapping[str, Tensor], ahead: Mapping[str, Interval]
) -> Figure:
    """Draw mean accuracies against the peak, and by how much each schedule is ahead of another.

    Args:
        peaks: tried by all schedules.
        found: {schedule: accuracies (seeds, peaks)}.
        ahead: {schedule: points by which it is ahead of the one that is missing here}.
    """
    figure, left, right = axes(8.8, 3.4, columns=2)
    for name, table in found.items():
        style = dict(color=SCHEDULE_COLORS[name], ms=4, lw=1.4)
        left.plot(peaks, table.mean(0), "o-", label=name, **style)
    left.set(xscale="log", xlabel="peak", ylabel="validation accuracy, mean of the seeds")
    best = {name: peaks[int(table.mean(0).argmax())] for name, table in found.items()}
    peaks_of_best = counted(len(set(best.values())), "peak")
    left.set_title(f"The {len(found)} schedules are best at {peaks_of_best}", fontsize=10)
    ticks_at(left, peaks, "{:g}")
    left.legend(frameon=False, fontsize=8, loc="lower left")
    for y, (name, interval) in enumerate(ahead.items()):
        _draw_points(right, y, interval, SCHEDULE_COLORS[name])
    rows(right, ahead)
    right.axvline(0, color=GREY, lw=1, ls=":")
    right.set_ylim(len(ahead) - 0.5, -0.5)
    (other,) = set(found) - set(ahead)
    right.set_xlabel(f"points ahead of {other}, paired by seed")
    decided = [name for name, interval in ahead.items() if interval.excludes(0)]
    right.set_title(f"These differ from {other}: {', '.join(decided) or 'none'}", fontsize=10)
    return figure


def _draw_points(ax: Axes, y: float, interval: Interval, color: str) -> None:
    """Draw a difference as a dot and, if it is known, its interval as a line."""
    if math.isfinite(interval.low) and math.isfinite(interval.high):
        ax.plot([interval.low, interval.high], [y, y], color=color, lw=2)
    ax.plot(interval.estimate, y, "o", color=color, ms=5)


def small_studies(gains: Sequence[float], whole: Interval, published: float) -> Figure:
    """Draw what all small studies found, with the interval of all seeds and one that was published.

    Args:
        gains: points by which one schedule is ahead, one per study.
        whole: the same from all seeds, at the same peaks.
    """
    figure, ax = axes(7.4, 3.2)
    ax.hist(gains, bins=40, color=INDIGO, alpha=0.7)
    ax.axvline(whole.estimate, color=GREY, label="all seeds")
    if math.isfinite(whole.low) and math.isfinite(whole.high):
        ax.axvspan(whole.low, whole.high, color=GREY, alpha=0.25, lw=0, label="its interval")
    ax.axvline(published, label="published", **MARK)
    ax.legend(frameon=False, fontsize=8)
    beyond = sum(gain >= published for gain in gains) / len(gains)
    ax.set(
        xlabel="points by which one cycle is ahead of cosine, in a study of three seeds",
        ylabel="studies",
        title=f"{beyond:.0%} of the small studies find what was published, or more",
    )
    return figure


def over_length(
    lengths: Sequence[int], ends: Mapping[str, Mapping[int, Sequence[float]]]
) -> Figure:
    """Draw accuracy against the length of a training, a line through the means of the seeds.

    Args:
        ends: {schedule: {steps: accuracies, one per seed}}.
    """
    figure, ax = axes(7.0, 3.3)
    means = {}  # {schedule: mean accuracy per length}
    for k, (name, by_length) in enumerate(ends.items()):
        color = SCHEDULE_COLORS[name]
        shift = 1 + 0.015 * (k - 1)  # dots of two schedules stand side by side
        means[name] = [sum(by_length[n]) / len(by_length[n]) for n in lengths]
        ax.plot(lengths, means[name], "-", color=color)
        for n in lengths:
            ax.plot(
                [n * shift] * len(by_length[n]), by_length[n], "o", color=color, ms=3, alpha=0.5
            )
        ax.plot([], [], "o-", color=color, ms=3, label=name)
    ax.legend(frameon=False, fontsize=9, loc="lower right")
    level, short = means["constant"][-1], means["linear"][1]
    ax.axhline(level, color=SCHEDULE_COLORS["constant"], lw=1, ls=":")
    ax.set(xscale="log", xlabel="steps of the training", ylabel="validation accuracy")
    ax.set_title(
        f"Linear with {lengths[1]} steps: {short:.3f}; constant with {lengths[-1]}: {level:.3f}"
    )
    ticks_at(ax, lengths)
    return figure


def over_decay(grid: Mapping[tuple[str, float, float], Sequence[float]]) -> Figure:
    """Draw accuracies against decay, a panel per optimizer: a dot per seed, a dash at the mean.

    Args:
        grid: {(optimizer, peak, decay): accuracies, one per seed}.
    """
    names = list(dict.fromkeys(name for name, _, _ in grid))
    peaks = list(dict.fromkeys(peak for _, peak, _ in grid))
    decays = list(dict.fromkeys(decay for _, _, decay in grid))
    figure, *panels = axes(8.4, 3.3, columns=len(names), sharey=True)
    best = {}
    for (name, peak, decay), found in grid.items():
        ax = panels[names.index(name)]
        color = SERIES[peaks.index(peak)]
        place = decays.index(decay) + 0.24 * (peaks.index(peak) - 0.5)
        mean = sum(found) / len(found)
        ax.plot([place] * len(found), found, "o", color=color, ms=4, alpha=0.6)
        ax.plot([place - 0.1, place + 0.1], [mean, mean], color=color, lw=2)
        best[name] = max(best.get(name, (0, "")), (mean, f"decay {decay:g}, peak {peak:g}"))
    for ax, name in zip(panels, names, strict=True):
        ax.set_xticks(range(len(decays)), [f"{decay:g}" for decay in decays])
        ax.set_xlabel("weight decay, one group each")
        mean, where = best[name]
        ax.set_title(f"{name}: best {mean:.3f} at {where}", fontsize=10)
    panels[0].set_ylabel("validation accuracy")
    for color, peak in zip(SERIES, peaks, strict=False):
        panels[-1].plot([], [], "o", color=color, ms=4, label=f"peak {peak:g}")
    panels[-1].legend(frameon=False, fontsize=8)
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
        ax.plot(values, color=INDIGO, lw=1)
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
        for color, (name, by_batch) in zip((INDIGO, BROWN), reached.items(), strict=True):
            _draw_until_target(ax, name, by_batch, column, color)
            batches.update(by_batch)
        ax.set(xscale="log", yscale="log", xlabel="batch size", ylabel=f"{what} to {target:.3f}")
        ax.margins(x=0.2)
        plain_log(ax.yaxis)
        ticks_at(ax, sorted(batches))
    fewest = _least(_medians(reached["scaled"], 0))
    figure.suptitle(f"Learning rate scaled: batches of {fewest} need the fewest steps (medians)")
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
        # both lines meet at the base batch, so the dots of the first are rings around the others'
        hollow = dict(mfc="none", ms=8) if name == "scaled" else dict(ms=4)
        ax.plot([batch] * len(finite), finite, "o", color=color, **hollow)
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


# ---- part 3, cheaper steps


def step_shares(shares: Mapping[str, Mapping[str, float]]) -> Figure:
    """Draw what a step spends its time on: a bar per network, cut into kinds of operations.

    Args:
        shares: {network: {kind: share}}.
    """
    figure, ax = axes(8.4, 1.3 + 0.5 * len(shares))
    kinds = list(dict.fromkeys(kind for of in shares.values() for kind in of))
    for y, of in enumerate(shares.values()):
        left = 0.0
        for kind in kinds:
            share = of.get(kind, 0.0)
            color = KIND_COLORS[kind]
            ax.barh(y, share, left=left, height=0.6, color=color)
            if share > 0.04:
                written = dict(ha="center", va="center", color="black")
                if color in WHITE_ON:
                    written["color"] = "white"
                ax.text(left + share / 2, y, f"{share:.0%}", **written)
            left += share
    rows(ax, shares)
    for kind in kinds:
        ax.barh(0, 0, color=KIND_COLORS[kind], label=kind)
    ax.legend(
        frameon=False, fontsize=8, ncols=len(kinds), loc="lower center", bbox_to_anchor=(0.4, 1)
    )
    ax.set(xlabel="share of a step of the baseline", xlim=(0, 1))
    largest = [f"{name}: {max(of, key=of.get)}" for name, of in shares.items()]
    figure.suptitle(f"The largest share: {'; '.join(largest)}", fontsize=11)
    return figure


def ladders(
    found: Mapping[str, Mapping[str, Comparison | str]],
    bounds: Mapping[str, Mapping[str, float | None]],
) -> Figure:
    """Draw the ladder of each network: how many times as fast each rung is as the one before.

    A dot is a ratio, a line its interval, a colour the verdict, a black dash the bound by the
    profile, the thin grey line the control.

    Args:
        found: {network: {rung: its Comparison with the rung before, or why there is none}}.
        bounds: {network: {rung: bound, None if there is none}}.
    """
    height = 1.4 + 0.34 * max(map(len, found.values()))
    figure, *panels = axes(9.6, height, columns=len(found), sharex=True)
    titles = []
    for ax, (network, of) in zip(panels, found.items(), strict=True):
        faster = 0
        for y, (rung, comparison) in enumerate(of.items()):
            if isinstance(comparison, str):
                label_point(ax, NOT_MEASURED, (1, y), color=GREY, fontsize=8)
                continue
            ratio, verdict = comparison.ratio(rung), comparison.verdict(rung)
            faster += verdict == FASTER
            _draw_ratio(ax, y, ratio, verdict)
            low, high = comparison.control.low, comparison.control.high
            ax.plot([low, high], [y + 0.25, y + 0.25], color=GREY, lw=0.8)
            bound = bounds[network].get(rung)
            if bound:
                ax.plot(min(bound, 6), y, marker=9 if bound > 6 else "|", color="black", ms=9)
        rows(ax, of)
        ax.set_ylim(len(of) - 0.5, -0.5)
        ax.set_xscale("log")
        ax.axvline(1, color=GREY, lw=1, ls=":")
        ax.set_title(network, fontsize=10)
        titles.append(f"{faster} on the {network}")
        ax.set_xlabel("times as fast as the rung before")
    for ax in panels:
        plain_log(ax.xaxis)
    ax = panels[0]
    handles = []
    for verdict in (FASTER, SLOWER, SAME, NOT_DECIDED):
        handles += ax.plot([], [], "o-", color=VERDICT_COLORS[verdict], label=verdict)
    handles += ax.plot([], [], color=GREY, lw=0.8, label="control")
    handles += ax.plot([], [], "|", color="black", ms=9, label="bound by the profile")
    figure.legend(handles=handles, ncols=6, frameon=False, loc="outside lower center", fontsize=8)
    figure.suptitle(f"Rungs that are faster: {', '.join(titles)}", fontsize=11)
    return figure


# ---- part 4, memory for time, and the race


def memory_and_time(
    peaks: Mapping[int, float],
    predicted: Mapping[int, float],
    plain: float,
    longer: Mapping[int, Interval],
    predicted_time: Interval,
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
    left.plot(counts, measured, "o", color=INDIGO, label="measured")
    left.axhline(plain / 1e6, color=CONTESTANTS["plain"], lw=1)
    label_point(left, "plain", (counts[-1], plain / 1e6), (0, -12), va="baseline", ha="right")
    best = min(peaks, key=peaks.get)
    left.set(xlabel="segments", ylabel="MB kept for backward", ylim=(0, None))
    left.set_title(f"{best} segments keep {peaks[best] / plain:.0%} of the bytes", fontsize=10)
    left.legend(frameon=False, loc="lower left")

    again = "predicted: one more forward pass"
    right.axhspan(predicted_time.low, predicted_time.high, color=GREY, alpha=0.2, lw=0)
    right.axhline(predicted_time.estimate, color=GREY, ls="--", lw=1, label=again)
    middle, reach = middle_and_reach([longer[k] for k in counts])
    right.errorbar(counts, middle, reach, fmt="o", color=INDIGO, ecolor="black", elinewidth=1)
    right.axhline(1, color=CONTESTANTS["plain"], lw=1, label="plain")
    right.legend(frameon=False, loc="lower left")
    right.set(xlabel="segments", ylabel="times as long as a plain step", ylim=(0, None))
    right.set_title(f"{best} segments: {longer[best]} times as long", fontsize=10)
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
    styles = dict(zip(labels, ("o-", "s--", "x:"), strict=True))
    for color, (norm, values) in zip(SERIES, differences.items(), strict=False):
        percent = [100 * value for value in values]
        ax.plot(micro_batches, percent, styles[norm], color=color, ms=4, label=labels[norm])
    off = f"{100 * differences['batch'][-1]:.0f} % off"
    worst = max(differences["group"] + differences[None])
    title = (
        f"{micro_batches[-1]} rows: {off} with BatchNorm, the others at most {100 * worst:.0e} %"
    )
    ax.set(
        xscale="log",
        xlabel="rows per micro-batch",
        ylabel="difference of the gradients in %",
        title=title,
    )
    ticks_at(ax, micro_batches)
    ax.legend(frameon=False)
    return figure


def race(runs: Sequence[Run], target: float, images: Interval, seconds: Interval) -> Figure:
    """Draw validation accuracy near `target` against images and against seconds, a line per run.

    A dot marks where a run crosses the target, between two looks.

    Args:
        runs: of training.race; colours are those of CONTESTANTS.
        images, seconds: how many times as many plain needs as everything.
    """
    figure, *panels = axes(8.8, 3.6, columns=2, sharey=True)
    for run in runs:
        color = CONTESTANTS.get(run.name, PURPLE)
        style = "--" if run.name == REPEATED else "-"
        ends = (run.images, run.seconds)
        for column, (ax, end) in enumerate(zip(panels, ends, strict=True)):
            places = [look[column] for look in run.looks]
            accuracies = [look[2] for look in run.looks]
            ax.plot(places, accuracies, style, color=color, lw=1, alpha=0.6)
            if end < math.inf:
                ax.plot(end, target, "o", color=color, ms=4)
    for ax, what, ratio in zip(panels, ("images", "seconds"), (images, seconds), strict=True):
        ax.axhline(target, color=GREY, lw=1, ls=":")
        ax.set(xlabel=f"{what} of training", ylim=(target - 0.25, target + 0.03))
        ax.set_xlim(left=0)
        ax.set_title(f"plain needs {ratio} times the {what}", fontsize=9.5)
    panels[0].set_ylabel("validation accuracy")
    label_point(panels[0], "target", (0, target), (2, 3), va="baseline", color=GREY, fontsize=8)
    for name in dict.fromkeys(run.name for run in runs):
        style = "--" if name == REPEATED else "-"
        panels[1].plot([], [], style, color=CONTESTANTS.get(name, PURPLE), label=name)
    panels[1].legend(frameon=False, loc="lower right", fontsize=9)
    return figure


def factors(
    rows_: Sequence[Worth], xlabel: str, title: str, words: Mapping[str, str] | None = None
) -> Figure:
    """Draw what changes are worth: in images, in time per image, and together, on one axis.

    A dot is a ratio, a line its interval, a colour the verdict; the thin grey line is the control,
    and a ring a number of images that cannot change.

    Args:
        rows_: of training.race.
        xlabel: what the ratios are.
        words: {verdict: what the legend says}, where it is not the verdict itself.
    """
    figure, *panels = axes(9.6, 1.5 + 0.32 * len(rows_), columns=3, sharey=True, sharex=True)
    names = ("images", "time per image", "together: time to the target")
    for ax, name in zip(panels, names, strict=True):
        ax.axvline(1, color=GREY, lw=1, ls=":")
        ax.set_title(name, fontsize=10)
        ax.set_xscale("log")
    for y, row in enumerate(rows_):
        images, cost, together = panels
        if row.by_design:
            images.plot(1, y, "o", color=GREY, mfc="none", ms=5)
        else:
            _draw_ratio(images, y, row.images, verdict_on(row.images))
        _draw_ratio(cost, y, row.cost, verdict_on(row.cost))
        low, high = row.control.low, row.control.high
        cost.plot([low, high], [y + 0.25, y + 0.25], color=GREY, lw=0.8)
        _draw_ratio(together, y, row.total, row.verdict)
    rows(panels[0], [row.name for row in rows_])
    panels[0].set_ylim(len(rows_) - 0.4, -0.6)
    for ax in panels:
        plain_log(ax.xaxis)
        ax.tick_params(axis="x", labelsize=8)
    panels[1].set_xlabel(xlabel)
    figure.suptitle(title, fontsize=11)
    handles = []
    for verdict in (FASTER, SLOWER, SAME, NOT_DECIDED):
        label = (words or {}).get(verdict, verdict)
        handles += panels[1].plot([], [], "o-", color=VERDICT_COLORS[verdict], label=label)
    handles += panels[1].plot([], [], color=GREY, lw=0.8, label="control")
    ring = dict(color=GREY, mfc="none", ms=5)
    handles += panels[0].plot([], [], "o", **ring, label="images cannot change")
    figure.legend(handles=handles, ncols=6, frameon=False, loc="outside lower center", fontsize=8)
    return figure


def _draw_ratio(ax: Axes, y: float, ratio: Interval, verdict: str) -> None:
    """Draw an interval and its estimate in the colour of the verdict; unknown ends are left out."""
    color = VERDICT_COLORS[verdict]
    if 0 < ratio.low and ratio.high < math.inf:
        ax.plot([ratio.low, ratio.high], [y, y], color=color, lw=2)
    if 0 < ratio.estimate < math.inf:
        ax.plot(ratio.estimate, y, "o", color=color, ms=5)


def left_out(rows_: Sequence[Worth]) -> Figure:
    """Draw the `factors` of each piece of advice that was left out, the largest on top."""
    ranked = sorted(rows_, key=lambda row: -row.total.estimate)
    verdicts = [row.verdict for row in rows_]
    title = f"{verdicts.count(FASTER)} of {len(rows_)} pieces save time, "
    title += f"{verdicts.count(SLOWER)} cost time; the others do neither, or are not decided"
    words = {FASTER: "the piece helps", SLOWER: "the piece costs"}
    return factors(ranked, "without this piece you need so many times as much", title, words)


def leaderboard(rows_: Sequence[Worth]) -> Figure:
    """Draw the `factors` of the best entries, at most BOARD_ENTRIES_MAX, and of the control.

    Args:
        rows_: best first; the last is everything against itself.
    """
    shown = [*rows_[:-1][:BOARD_ENTRIES_MAX], *rows_[-1:]]
    first = shown[0]
    title = f"{first.name}: {first.total} times as fast as everything, {first.verdict}"
    return factors(shown, "everything needs so many times as much as the entry", title)
