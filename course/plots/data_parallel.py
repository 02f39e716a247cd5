"""Figures of unit 02."""

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from course.measure.comparison import Comparison, Interval
from course.parallel.lives import Life
from course.plots.style import (
    BLUE,
    COLORS,
    GREEN,
    GREY,
    ORANGE,
    PINK,
    RED,
    SKY_BLUE,
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

OF_ONE_RANK = "#999999"  # a piece that nothing has been added to


# ---- trainings that should be equal


def against_undisturbed(
    undisturbed: Sequence[float],
    curves: Mapping[str, Sequence[float]],
    title: str,
    base: str = "undisturbed",
) -> Figure:
    """Draw loss curves, and below them how far each is from the undisturbed one.

    Args:
        undisturbed: loss per step of the training that the others should equal.
        curves: {name: losses of the same steps}.
        base: the name of the undisturbed training.
    """
    figure, upper, lower = axes(8.6, 4.0, lines=2, sharex=True)
    steps = range(1, len(undisturbed) + 1)
    upper.plot(steps, undisturbed, color=GREY, lw=4, alpha=0.5, label=base)
    lower.axhline(0, color=GREY, lw=4, alpha=0.5)
    for (name, losses), color in zip(curves.items(), COLORS, strict=False):
        upper.plot(steps, losses, color=color, lw=1, label=name)
        gaps = [loss - right for loss, right in zip(losses, undisturbed, strict=True)]
        lower.plot(steps, gaps, color=color, lw=1)
    upper.set(ylabel="loss", title=title)
    lower.set(xlabel="step", ylabel=f"difference\nfrom {base}")
    legend_beside(upper)
    return figure


def lives_of_ranks(
    undisturbed: Sequence[float],
    losses: Sequence[float],
    lives: Sequence[Life],
    save_every: int,
    title: str,
) -> Figure:
    """Draw a training that was killed and resumed: its losses above, a row per life below.

    Args:
        undisturbed: loss per step of one process that nobody kills.
        losses: of the training that was killed, as its last checkpoint holds them.
        save_every: steps between two checkpoints; a life that ends as planned writes one, too. Each
            that was written is a dotted line.
    """
    figure, upper, lower = axes(8.6, 4.2, lines=2, sharex=True)
    steps = range(1, len(undisturbed) + 1)
    upper.plot(steps, undisturbed, color=GREY, lw=5, alpha=0.5, label="one process, undisturbed")
    upper.plot(range(1, len(losses) + 1), losses, color=RED, lw=1, label="killed and resumed")
    upper.set(ylabel="loss", title=title)
    legend_beside(upper)
    names = []
    for row, life in enumerate(lives):
        first, last = life.steps[0] + 1, life.steps[-1] + 1
        color = BLUE if life.ranks == 2 else GREEN
        for rank in range(life.ranks):
            height = 0.8 / life.ranks
            middle = row - 0.4 + (rank + 0.5) * height
            lower.barh(middle, last - first + 1, 0.8 * height, left=first - 0.5, color=color)
        if life.was_killed:
            killed = row + 0.4 - 0.4 / life.ranks  # the last rank
            lower.plot(last + 0.5, killed, "x", color=RED, ms=9, mew=3, clip_on=False)
        names.append(f"life {row + 1}: {life.ranks} rank{'s' * (life.ranks > 1)}")
    for step in _checkpoints(lives, save_every):
        lower.axvline(step + 0.5, color=GREY, lw=1, ls=":")
    rows(lower, names, 8)
    lower.set_xlabel(
        f"step (a bar per rank, x: SIGKILL, dotted: checkpoint after each {save_every}th step, "
        "and at a planned end)"
    )
    lower.grid(visible=False)
    return figure


def _checkpoints(lives: Sequence[Life], save_every: int) -> list[int]:
    """After how many steps a checkpoint was written, in order."""
    written = set()
    for life in lives:
        done = [step + 1 for step in life.steps]
        if life.was_killed:
            done.pop()  # it was killed in this step
        else:
            written.add(done[-1])
        written.update(step for step in done if step % save_every == 0)
    return sorted(written)


# ---- diagrams of a step


class Stage(NamedTuple):
    """What each device or rank holds at one time, and the messages from the stage before."""

    title: str
    texts: list[str]  # of each device
    color: str
    messages: list[tuple[int, int]] = []  # (source, target), drawn as arrows


def _numbered(text: str, n: int) -> list[str]:
    return [f"{text} {number}" for number in range(n)]


def _lanes(
    ax: Axes, base: float, devices: int, stages: Sequence[Stage], row: str = "device"
) -> None:
    """Draw `stages` from left to right, one `row` per device, the last of them at `base` + 1."""
    gap = 0.75
    step = 10.6 / len(stages)
    for device in range(devices):
        y = base + devices - device
        ax.text(0.1, y, f"{row} {device}", va="center", fontsize=8, color=GREY)
    top = base + devices + 0.75
    for column, stage in enumerate(stages):
        x = 1.4 + step * (column + 0.5)
        ax.text(x, top, stage.title, ha="center", va="center", fontsize=8, color=GREY)
        for device, text in enumerate(stage.texts):
            box(ax, x, base + devices - device, text, stage.color, step - gap, 0.5)
        left = x - step / 2 - gap / 2 + 0.05
        right = x - step / 2 + gap / 2 - 0.05
        for source, target in stage.messages:
            start = (left, base + devices - source)
            end = (right, base + devices - target)
            arrow(ax, start, end, stage.color)


def data_parallel_steps() -> Figure:
    """Draw what each device holds after each step of DataParallel's forward and backward.

    An arrow is a message.
    """
    devices = 3
    figure, ax = canvas(8.6, 1.5 + 0.75 * devices, 12, 2 * devices + 3.4)
    out = [(0, device) for device in range(devices)]
    back = [(device, 0) for device in range(devices)]
    forward = (
        Stage("", ["batch, model"], GREY),
        Stage(
            "scatter: batch / M, replicate: model",
            _numbered("shard and replica", devices),
            BLUE,
            out,
        ),
        Stage("compute in parallel", _numbered("output", devices), BLUE),
        Stage("gather: outputs / M", ["all outputs"], GREEN, back),
    )
    backward = (
        Stage("", ["loss"], GREY),
        Stage("gradient of the outputs", ["all rows"], RED),
        Stage("scatter: outputs / M", _numbered("rows of", devices), RED, out),
        Stage("backward", _numbered("gradients", devices), RED),
        Stage("reduce: model", ["sum"], GREEN, back),
    )
    halves = (
        (devices + 1.7, "forward", forward),
        (0, "backward; then the replicas are gone", backward),
    )
    for base, name, stages in halves:
        ax.text(0.1, base + devices + 1.25, name, va="center", fontsize=9, weight="bold")
        _lanes(ax, base, devices, stages)
    ax.set_title("Every step sends the whole model out and its gradients back")
    meanings = {
        "before": Patch(fc=GREY),
        "forward": Patch(fc=BLUE),
        "gradients": Patch(fc=RED),
        "back on device 0": Patch(fc=GREEN),
    }
    _legend_below(ax, meanings)
    return figure


def ddp_steps() -> Figure:
    """Draw what each rank holds after each stage of a step of DistributedDataParallel."""
    ranks = 3
    figure, ax = canvas(8.6, 1.0 + 0.4 * ranks, 12, ranks + 1.3)
    messages = list(itertools.permutations(range(ranks), 2))
    stages = (
        Stage("own batch", _numbered("batch", ranks), BLUE),
        Stage("forward, backward", _numbered("gradients", ranks), BLUE),
        Stage("all-reduce (mean)", ["mean gradients"] * ranks, GREEN, messages),
        Stage("own optimizer step", ["same weights"] * ranks, GREY),
    )
    _lanes(ax, 0, ranks, stages, row="rank")
    ax.set_title("In a step, ranks exchange gradients and send no weights")
    return figure


def shards(
    dealt: Mapping[str, Sequence[Sequence[int]]], classes: Sequence[int], title: str
) -> Figure:
    """Draw which rank uses which sample: a row per way, a column per sample, a colour per rank.

    Args:
        dealt: {title: [indices of each rank]}.
        classes: class of each sample; the border between two classes is drawn.
    """
    figure, ax = axes(8.6, 0.7 + 0.3 * len(dealt))
    for row, ranks in enumerate(dealt.values()):
        for rank, indices in enumerate(ranks):
            label = f"rank {rank}" if row == 0 else None
            ax.bar(indices, 0.7, 0.85, bottom=row - 0.35, color=COLORS[rank], label=label)
    for i in range(1, len(classes)):
        if classes[i] != classes[i - 1]:
            ax.axvline(i - 0.5, color="black", lw=1)
    rows(ax, dealt, 8)
    ax.set(
        xlabel="sample, sorted by class (lines: borders of classes)",
        title=title,
    )
    legend_beside(ax)
    ax.grid(visible=False)
    return figure


def broadcast_tree(ranks: int) -> Figure:
    """Draw the binomial tree of a broadcast from rank 0: an arrow per message, a row per round."""
    rounds = math.ceil(math.log2(ranks))
    figure, ax = canvas(6.4, 0.7 + 0.6 * rounds, ranks, rounds + 1.2)
    for done in range(rounds + 1):
        level = rounds - done
        holders = 2**done
        for rank in range(ranks):
            color = BLUE if rank < holders else "#cccccc"
            box(ax, rank + 0.5, level + 0.5, str(rank), color, 0.45, 0.4)
        targets = range(holders, min(2 * holders, ranks)) if done < rounds else ()
        for target in targets:
            source = target - holders
            arrow(ax, (source + 0.5, level + 0.22), (target + 0.5, level - 0.22), RED)
        when = f"after round {done - 1}" if done else "before round 0"
        ax.text(-0.1, level + 0.5, when, ha="right", va="center", fontsize=8)
    ax.set_title(
        f"After {rounds} rounds, all {ranks} ranks hold the values (blue; grey does not yet)"
    )
    return figure


# ---- all-reduces, piece by piece


class Round(NamedTuple):
    """The messages of all ranks at one time."""

    title: str
    adds: bool  # what arrives is added to what the target holds; else it replaces that
    messages: list[tuple[int, int, int]]  # (source, target, piece)


class Held(NamedTuple):
    """What the ranks hold after a Round."""

    title: str
    sums: list[list[set[int]]]  # [rank][piece]: the ranks whose values the piece sums
    arrived: set[tuple[int, int]]  # (rank, piece) of what has just arrived


def ring(ranks: int) -> Figure:
    """Draw what each rank holds before and after each step of a ring all-reduce, piece by piece.

    What the colours mean is written below it.
    """
    rounds = []
    for step in range(2 * (ranks - 1)):
        adds = step < ranks - 1
        phase = "reduce-scatter" if adds else "all-gather"
        messages = []
        for rank in range(ranks):
            messages.append((rank, (rank + 1) % ranks, (rank - step) % ranks))
        rounds.append(Round(f"step {step}\n{phase}", adds, messages))
    finding = f"One piece per rank and step: after {len(rounds)} steps all hold the sum"
    return _held_pieces(_after_each(rounds, ranks), finding)


def halving(ranks: int) -> Figure:
    """Draw what each rank holds before and after each step of recursive halving and doubling."""
    distances = [ranks >> k for k in range(1, ranks.bit_length())]
    rounds = []
    for step, distance in enumerate([*distances, *reversed(distances)]):
        adds = step < len(distances)
        phase = "halve" if adds else "double"
        messages = []
        for rank in range(ranks):
            partner = rank ^ distance
            first = (rank if adds else partner) // distance * distance
            messages += [(partner, rank, piece) for piece in range(first, first + distance)]
        rounds.append(Round(f"step {step}, distance {distance}\n{phase}", adds, messages))
    finding = f"Half, then a quarter: after {len(rounds)} steps all hold the sum"
    return _held_pieces(_after_each(rounds, ranks), finding)


def _after_each(rounds: Sequence[Round], ranks: int) -> list[Held]:
    """What the ranks hold at the start, each its own values, and after each of `rounds`."""
    before = [[{rank} for _ in range(ranks)] for rank in range(ranks)]
    states = [Held("at the start", before, set())]
    for title, adds, messages in rounds:
        after = [list(pieces) for pieces in before]
        arrived = set()
        for source, target, piece in messages:
            after[target][piece] = before[source][piece]
            if adds:
                after[target][piece] = before[source][piece] | before[target][piece]
            arrived.add((target, piece))
        states.append(Held(title, after, arrived))
        before = after
    return states


def _held_pieces(states: Sequence[Held], finding: str) -> Figure:
    """Draw the pieces of each rank, a column for each of `states`."""
    ranks = len(states[0].sums)
    width = 1 / (ranks + 0.35)
    figure, ax = canvas(8.6, 1.3 + 0.42 * ranks, len(states) + 0.45, ranks + 1.3)
    ax.set_title(finding)
    _name_colors(ax)
    centred = dict(ha="center", va="center", fontsize=8)
    for column, (title, sums, arrived) in enumerate(states):
        ax.text(column + 0.9, ranks + 0.75, title, color=GREY, **centred)
        for rank, pieces in enumerate(sums):
            for piece, summed in enumerate(pieces):
                x = column + 0.9 + (piece - (ranks - 1) / 2) * width
                y = ranks - rank - 0.4
                is_new = (rank, piece) in arrived
                rectangle = Rectangle(
                    (x - width / 2, y - 0.3),
                    width,
                    0.6,
                    fc=_color_of_sum(len(summed), ranks),
                    ec="black" if is_new else "white",
                    lw=1.2,
                    zorder=int(is_new),
                )
                ax.add_patch(rectangle)
                ax.text(x, y, _text_of_sum(summed), color="white", zorder=3, **centred)
    for rank in range(ranks):
        y = ranks - rank - 0.4
        ax.text(0.3, y, f"rank {rank}", ha="right", va="center", fontsize=8, color=GREY)
    return figure


def _name_colors(ax: Axes) -> None:
    """Write below the pieces what their colours and frames mean."""
    meanings = {
        "one rank's values": Patch(fc=OF_ONE_RANK),
        "sum of some ranks": Patch(fc=BLUE),
        "sum of all ranks": Patch(fc=GREEN),
        "has just arrived": Patch(fc="white", ec="black", lw=1.2),
    }
    _legend_below(ax, meanings)


def _legend_below(ax: Axes, meanings: Mapping[str, Patch]) -> None:
    """Draw what each patch means in one line below the axes of a diagram."""
    ax.legend(
        list(meanings.values()),
        list(meanings),
        frameon=False,
        fontsize=8,
        ncols=len(meanings),
        loc="upper center",
        bbox_to_anchor=(0.5, 0.02),
    )


def _color_of_sum(summed: int, ranks: int) -> str:
    """The colour of a piece that sums the values of so many of `ranks`."""
    if summed == ranks:
        return GREEN
    return BLUE if summed > 1 else OF_ONE_RANK


def _text_of_sum(summed: set[int]) -> str:
    if len(summed) > 3:
        return "all"
    return "+".join("abcdefgh"[rank] for rank in sorted(summed))


# ---- measurements


def crossover(
    measured: Mapping[int, Mapping[str, float]],
    predicted: Mapping[int, Mapping[str, float]],
    title: str,
) -> Figure:
    """Draw seconds of each all-reduce over the bytes: formulas as lines, virtual times as dots.

    Each line has its name at both ends; ways with the same time there share one label.

    Args:
        measured: {bytes: {way: seconds}} of the ways that ran; may lack some.
        predicted: {bytes: {way: seconds}} of all ways.
    """
    figure, ax = axes(7.4, 3.6)
    ways = next(iter(predicted.values()))
    for name, color in zip(ways, COLORS, strict=False):
        line = [1e3 * seconds[name] for seconds in predicted.values()]
        ax.plot(list(predicted), line, color=color, lw=1.3)
        ran = {n: 1e3 * seconds[name] for n, seconds in measured.items() if name in seconds}
        ax.plot(list(ran), list(ran.values()), "o", color=color, ms=4)
    colors = dict(zip(ways, COLORS, strict=False))
    for n_bytes, offset, align in ((min(predicted), -6, "right"), (max(predicted), 6, "left")):
        for names in _together(predicted[n_bytes]):
            point = (n_bytes, 1e3 * predicted[n_bytes][names[0]])
            style = dict(color=colors[names[0]], fontsize=8, ha=align)
            label_point(ax, ", ".join(names), point, (offset, 0), **style)
    ax.margins(x=0.22)
    ax.set(xscale="log", yscale="log", xlabel="bytes of the tensor", ylabel="ms", title=title)
    return figure


SAME_PLACE = 1.25  # times the other; labels of closer points would overlap on the logarithmic axis


def _together(seconds: Mapping[str, float]) -> list[list[str]]:
    """The names in groups whose seconds are too close to label one by one, fastest first."""
    groups = []
    last = -math.inf
    for name in sorted(seconds, key=seconds.get):
        if seconds[name] <= SAME_PLACE * last:
            groups[-1].append(name)
        else:
            groups.append([name])
        last = seconds[name]
    return groups


def _band(ax: Axes, x: Sequence[float], values: Sequence[Interval], **style: Any) -> None:
    """Draw an Interval per point."""
    middle, reach = middle_and_reach(values)
    ax.errorbar(x, middle, reach, capsize=2, marker="o", ms=4, lw=1.4, **style)


def _scaled(values: Sequence[Interval], factors: Sequence[float]) -> list[Interval]:
    """The values, each times the factor of its point."""
    return [value.scaled(factor) for value, factor in zip(values, factors, strict=True)]


def against_alone(
    batch_sizes: Sequence[int],
    panels: Mapping[str, Mapping[str, Sequence[Interval]]],
    control: Sequence[Interval],
    title: str,
) -> Figure:
    """Draw how many times as long as the model alone each way takes, over the batch size.

    Args:
        panels: {title of a panel: {way: its ratio per batch size}}; a way has one colour.
        control: the model alone against itself, drawn as a grey band in each panel.
    """
    figure, *grid = axes(8.6, 3.2, columns=len(panels), sharex=True, sharey=True)
    names = list(dict.fromkeys(name for ways in panels.values() for name in ways))
    low = [interval.low for interval in control]
    high = [interval.high for interval in control]
    for ax, (panel, ways) in zip(grid, panels.items(), strict=True):
        ax.fill_between(batch_sizes, low, high, color=GREY, alpha=0.25, label="the model alone")
        ax.axhline(1, color=GREY, lw=1, ls=":")
        for name, ratios in ways.items():
            _band(ax, batch_sizes, ratios, label=name, color=COLORS[names.index(name)])
        ax.set_xscale("log", base=2)
        ticks_at(ax, batch_sizes)
        ax.set_yscale("log", base=2)
        ax.yaxis.set_major_formatter("{x:g}×")
        ax.set(title=panel, xlabel="batch size")
        ax.legend(frameon=False, fontsize=8)
    grid[0].set_ylabel("time / that of the model alone")
    figure.suptitle(title, fontsize=10)
    return figure


def formula_and_ranks(
    sizes: Sequence[int],
    predicted: Sequence[Mapping[str, float]],
    curves: Mapping[str, Sequence[Interval]],
) -> Figure:
    """Draw milliseconds of all-reduces over the bytes of the tensor: by a formula, and measured.

    The panels share their axes, and a way has one colour.

    Args:
        predicted: {way: seconds} for each size.
        curves: {way: measured seconds per size}.
    """
    figure, by_formula, measured = axes(8.6, 3.2, columns=2, sharex=True, sharey=True)
    colors = dict(zip(predicted[0], COLORS, strict=False))
    for name, color in colors.items():
        ms = [1e3 * of_size[name] for of_size in predicted]
        by_formula.plot(sizes, ms, "o-", color=color, ms=3, lw=1.4)
    for name, seconds in curves.items():
        in_ms = _scaled(seconds, [1e3] * len(sizes))
        _band(measured, sizes, in_ms, label=name, color=colors[name])
    for ax, title in ((by_formula, "formula, fitted to one pair"), (measured, "measured")):
        ax.set(xscale="log", yscale="log", title=title, xlabel="bytes of the tensor")
    by_formula.set_ylabel("ms")
    legend_beside(measured)
    figure.suptitle(_order(curves), fontsize=10)
    return figure


def _order(curves: Mapping[str, Sequence[Interval]]) -> str:
    """Who was fastest with the smallest and with the largest tensor, as the title of a figure."""
    small = min(curves, key=lambda name: curves[name][0].estimate)
    large = min(curves, key=lambda name: curves[name][-1].estimate)
    return f"Fastest here: {small} with the smallest tensor, {large} with the largest"


def step_ratios(compared: Comparison, title: str) -> Figure:
    """Draw how many times as long as the base a step of each way takes, with its interval."""
    names = [name for name in compared.seconds if name != compared.base]
    figure, ax = axes(7.0, 0.9 + 0.42 * len(names))
    for place, name in enumerate(names):
        longer = compared.ratio(compared.base, to=name)
        color = COLORS[place % len(COLORS)]
        ax.plot([longer.low, longer.high], [place, place], color=color, lw=2)
        ax.plot(longer.estimate, place, "o", color=color)
        text = f"{longer.estimate:.2f}"
        label_point(ax, text, (longer.estimate, place), (0, 9), fontsize=8, ha="center")
    ax.axvline(1, color=GREY, lw=1, ls=":")
    ax.set_yticks(range(len(names)), names)
    ax.set(xlabel=f"step time / that of {compared.base}", title=title)
    ax.set_ylim(-0.5, len(names) - 0.2)
    ax.grid(axis="y", visible=False)
    return figure


NUMBERED_SHARE_MIN = 0.025  # of the time axis: a shorter bar has no room for its number


def overlap_lanes(runs: Mapping[str, Mapping[str, Sequence]], title: str) -> Figure:
    """Draw what a wrapper did in one backward, as lanes over time.

    The lanes are hooks and launches, messages on the wire, and waits. The label of a run tells when
    it was done, and how long until then no message was on the wire. Messages are numbered in the
    order of their launches, where the bar has room for it.

    Args:
        runs: {wrapper: {"hooks": [(parameter, seconds)], "sent": [(launched, started, ended,
            waited)]}}, times in seconds from the start of backward.
        title: of the figure; one run of each decides nothing.
    """
    figure, ax = axes(8.6, 0.8 + 1.15 * len(runs))
    lanes = ("backward: hooks | launches ▾", "on the wire", "waiting")
    longest = max(_end_in_ms(run) for run in runs.values())
    places = []
    for number, (wrapper, run) in enumerate(runs.items()):
        top = 4 * number
        _lanes_of_run(ax, top, run, NUMBERED_SHARE_MIN * longest)
        end = _end_in_ms(run)
        text = f" {wrapper}: done after {end:.0f} ms, wire idle for {_idle_in_ms(run):.0f} ms"
        ax.text(0, top - 0.42, text, fontsize=9, weight="bold", va="bottom")
        places += [top, top + 1, top + 2]
    ax.set_yticks(places, lanes * len(runs), fontsize=8)
    ax.set_title(title, fontsize=10)
    ax.set(xlabel="ms from the start of backward", ylim=(4 * len(runs) - 1.4, -1.1))
    ax.grid(axis="y", visible=False)
    return figure


def _end_in_ms(run: Mapping[str, Sequence]) -> float:
    """When the last gradient of a run is ready and its last message has ended."""
    last_hook = max(seconds for _, seconds in run["hooks"])
    last_message = max((ended for _, _, ended, _ in run["sent"]), default=0.0)
    return 1e3 * max(last_hook, last_message)


def _idle_in_ms(run: Mapping[str, Sequence]) -> float:
    """How long no message of a run is on the wire, until its end; messages may overlap."""
    busy = 0.0
    reached = 0.0  # by the messages so far
    for _, started, ended, _ in sorted(run["sent"], key=lambda message: message[1]):
        busy += max(0.0, ended - max(started, reached))
        reached = max(reached, ended)
    return _end_in_ms(run) - 1e3 * busy


def _lanes_of_run(ax: Axes, top: int, run: Mapping[str, Sequence], numbered_ms_min: float) -> None:
    """Draw one run of `overlap_lanes` in the three rows from `top` on."""
    hooks = 1e3 * np.array([seconds for _, seconds in run["hooks"]])
    sent = 1e3 * torch.tensor(run["sent"])  # (messages, 4)
    launches = [1e3 * message[0] for message in run["sent"]]
    backward = max(hooks)
    ax.barh(top, backward, height=0.5, color=BLUE, alpha=0.35)
    ax.plot(hooks, [top] * len(hooks), "|", color=BLUE, ms=13)
    ax.plot(launches, [top] * len(launches), "v", color=RED, ms=5)
    end = 0.0
    number = dict(ha="center", va="center", fontsize=8, color="black")
    for i, (_, started, ended, waited) in enumerate(sent.tolist()):
        alpha = 0.9 - 0.4 * (i % 2)
        ax.barh(top + 1, ended - started, left=started, height=0.5, color=RED, alpha=alpha)
        if ended - started >= numbered_ms_min:
            ax.text((started + ended) / 2, top + 1, str(i), **number)
        wait_start = max(waited, end)  # one wait begins when the one before has ended
        ax.barh(top + 2, max(0.0, ended - wait_start), left=wait_start, height=0.5, color=GREY)
        end = max(end, ended)


def overlap_sweep(
    blocks: Sequence[int],
    computed: Mapping[str, Sequence[float]],
    measured: Mapping[str, Sequence[Interval]],
    flat: Mapping[str, float],
    needs: Mapping[str, float],
) -> Figure:
    """Draw the time until all gradients are averaged over the blocks per bucket, a panel per wire.

    All times are in multiples of backward.

    Args:
        blocks: of layers per bucket.
        computed, measured: {name of the wire: a value per bucket size}.
        flat: {the same: with one message after backward}.
        needs: {the same: time on the wire}.
    """
    figure, *grid = axes(8.6, 3.2, columns=len(needs))
    highest = 0.0
    for wire in needs:
        middle, reach = middle_and_reach(measured[wire])
        highest = max(highest, 1 + needs[wire], flat[wire], float((middle + reach[1]).max()))
    for ax, wire in zip(grid, needs, strict=True):
        _band(ax, blocks, measured[wire], label="measured", color=BLUE)
        ax.plot(blocks, computed[wire], "x--", color=RED, lw=1, label="computed")
        ax.axhline(flat[wire], color=GREY, lw=1.2, label="one message after backward")
        bound = max(1, needs[wire])
        label = "the longer of backward and wire"
        ax.axhline(bound, color=GREEN, lw=1, ls=":", label=label)
        ax.set_xscale("log", base=2)
        ticks_at(ax, blocks)
        ax.set_title(f"{wire} wire: W = {needs[wire]:.2f} B", fontsize=9)
        ax.set(xlabel="blocks per bucket", ylim=(0, 1.05 * highest))
    grid[0].set_ylabel("time / backward alone")
    grid[-1].legend(frameon=False, fontsize=7, loc="lower left")
    title = "Until all gradients are averaged (B: backward alone, W: all gradients on the wire)"
    figure.suptitle(title, fontsize=10)
    return figure


def step_shares(
    shares: Mapping[str, Sequence[Mapping[str, float]]], lengths: Mapping[str, Interval]
) -> Figure:
    """Draw what each rank does in a step: a bar per rank, a group per way.

    Args:
        shares: {way: of each rank {what it does: share of the step}}.
        lengths: {way: length of its step}, in steps on time.
    """
    rows = [(way, rank) for way in shares for rank in range(len(shares[way]))]
    figure, ax = axes(7.6, 1.0 + 0.36 * len(rows))
    for place, (way, rank) in enumerate(rows):
        left = 0.0
        colors = (PINK, BLUE, GREY, RED)
        for color, (name, share) in zip(colors, shares[way][rank].items(), strict=True):
            label = name if place == 0 else None
            length = share * lengths[way].estimate
            ax.barh(place, length, 0.7, left=left, color=color, label=label)
            left += length
    ax.set_yticks(range(len(rows)), [f"{way}: rank {rank}" for way, rank in rows], fontsize=8)
    idle = max((part["waiting"], way, rank) for way, rank in rows for part in [shares[way][rank]])
    ax.set_title(f"{idle[1]}: rank {idle[2]} waits {idle[0]:.0%} of the step", fontsize=10)
    ax.set(xlabel="time / step on time", ylim=(len(rows) - 0.4, -1.3))
    ax.legend(frameon=False, fontsize=8, ncols=4, loc="upper left")
    ax.grid(axis="y", visible=False)
    return figure


def scaling(
    ranks: Sequence[int],
    strong: Sequence[Interval],
    weak: Sequence[Interval],
    most_ranks: int,
    lost: Mapping[int, Mapping[str, Interval]],
) -> Figure:
    """Draw the speed-up of N ranks, and what a step on N ranks is made of.

    Args:
        strong, weak: how many times as fast as on one rank a step is, with one shared batch, and
            with a batch per rank.
        most_ranks: how many ranks have their own core or GPU.
        lost: {N: {cause: what it adds to a step on N ranks, in steps of one rank}}. With 1/N, the
            ideal, the causes add up to the step.
    """
    figure, left, right = axes(8.6, 3.4, columns=2)
    _band(left, ranks, strong, label="one batch, shared", color=GREEN)
    _band(left, ranks, _scaled(weak, ranks), label="a batch per rank", color=PINK)
    left.plot(ranks, ranks, color=GREY, ls="--", lw=1, label="N times")
    label = f"own core or GPU: up to {most_ranks} ranks"
    left.axvline(most_ranks, color=GREY, lw=1, ls=":", label=label)
    left.set(xlabel="ranks", ylabel="samples per second / those of one rank", xticks=ranks)
    title = f"{ranks[1]} ranks: {strong[1].estimate:.2f} times as fast with one batch"
    left.set_title(title, fontsize=10)
    left.legend(frameon=False, fontsize=8)
    measured = {n: 1 / speedup.estimate for n, speedup in zip(ranks, strong, strict=True)}
    _stairs(right, lost, measured)
    return figure


def _stairs(
    ax: Axes, lost: Mapping[int, Mapping[str, Interval]], measured: Mapping[int, float]
) -> None:
    """Draw 1/N and what is `lost`, see `scaling`: one bar after the other, a group for each N.

    A black line is the `measured` step on N ranks.
    """
    colors = (BLUE, SKY_BLUE, ORANGE, RED)
    for row, (n, causes) in enumerate(lost.items()):
        shares = {"1/N": 1 / n}
        for cause, share in causes.items():
            shares[cause] = share.estimate
        end = 0.0
        for k, ((name, share), color) in enumerate(zip(shares.items(), colors, strict=False)):
            y = row + 0.19 * (k - 1.5)
            label = name if row == 0 else None
            ax.barh(y, share, left=end, height=0.18, color=color, label=label)
            end += share
        ax.plot([measured[n]] * 2, [row - 0.4, row + 0.4], color="black", lw=1.2)
    ax.set_yticks(range(len(lost)), [f"N = {n}" for n in lost])
    ax.set(xlabel="step / step on one rank (black: measured)", ylim=(len(lost) - 0.5, -1.1))
    ax.set_title("where a step goes (intervals: printed above)", fontsize=10)
    ax.legend(
        frameon=False, fontsize=7, ncols=4, loc="upper center", columnspacing=0.8, handlelength=1
    )


def sharded_memory(
    counted: Mapping[int, Mapping[str, float]], predicted: Mapping[int, Mapping[str, float]]
) -> Figure:
    """Draw what a rank keeps and sends in each stage: counted as bars, predicted as outlines.

    Args:
        counted, predicted: {stage: {"parameters", "gradients", "optimizer" and "sent": bytes}}.
    """
    figure, left, right = axes(8.6, 3.2, columns=2)
    names = ["DDP", "stage 1", "stage 2", "stage 3"]
    kept = ("parameters", "gradients", "optimizer")
    outline = dict(fill=False, ec="black", ls="--")

    base = np.zeros(len(counted))  # MB
    for what, color in zip(kept, COLORS, strict=False):
        heights = _megabytes(counted, what)
        left.bar(names, heights, 0.6, bottom=base, color=color, label=what)
        base = base + heights
    expected = sum(_megabytes(predicted, what) for what in kept)
    left.bar(names, expected, 0.72, label="predicted", **outline)
    left.set_ylabel("MB per rank")
    left.set_title(f"kept: {base[0] / base[-1]:.1f} times fewer in stage 3", fontsize=10)

    right.bar(names, _megabytes(counted, "sent"), 0.6, color=PINK, label="counted")
    right.bar(names, _megabytes(predicted, "sent"), 0.72, **outline)
    more = counted[3]["sent"] / counted[0]["sent"]
    right.set_ylabel("MB per rank")
    right.set_title(f"sent in one step: {more:.1f} times as many in stage 3", fontsize=10)
    for ax in (left, right):
        ax.grid(axis="x", visible=False)
    left.legend(frameon=False, fontsize=8)
    return figure


def _megabytes(stages: Mapping[int, Mapping[str, float]], what: str) -> np.ndarray:
    """MB of one thing in each stage, float64 (stages,)."""
    return np.array([of_stage[what] / 1e6 for of_stage in stages.values()])
