"""Figures of unit 07.

A colour is what a device holds: weights, gradients, optimizer or activations; or a way to plan; or
what a rank does: compute (forward), backward, gather.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from torch import Tensor

from course.parallel.pipeline import Pass, Schedule
from course.plots.style import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PINK,
    RED,
    SKY_BLUE,
    arrow,
    axes,
    canvas,
    legend_beside,
    plain_log,
    rows,
    ticks_at,
)

HELD_COLORS = {"weights": BLUE, "gradients": GREEN, "optimizer": ORANGE, "activations": GREY}
WAY_STYLES = {"data ranks alone": (SKY_BLUE, "o", 9), "your pick": (PINK, "D", 5)}
GB = 1e9
RANK_COLORS = (PINK, SKY_BLUE)
IN_A_BOX: dict[str, Any] = {"ha": "center", "va": "center", "color": "white", "fontsize": 8}


def held(plans: Mapping[str, Mapping[str, float]], memory: float, title: str) -> Figure:
    """Bars of what a device holds under each plan, next to the memory that it has.

    Args:
        plans: {plan: {key of HELD_COLORS: bytes}}.
        memory: bytes of the device.
    """
    figure, ax = axes(7.4, 0.8 + 0.36 * len(plans))
    for row, parts in enumerate(plans.values()):
        left = 0.0
        for name, n_bytes in parts.items():
            label = name if row == 0 else None
            ax.barh(row, n_bytes / GB, left=left, color=HELD_COLORS[name], label=label)
            left += n_bytes / GB
    ax.axvline(memory / GB, color=RED, lw=1.5, label=f"{memory / GB:.0f} GB")
    rows(ax, plans)
    ax.set(xlabel="GB per device", title=title)
    legend_beside(ax)
    return figure


def over_best(jobs: Sequence[str], slower: Mapping[str, Mapping[str, float]], title: str) -> Figure:
    """Dots of how many times as long as the best plan each way takes, a row per job.

    Args:
        slower: {key of WAY_STYLES: {job: ratio}}; a job that is missing there has no such plan.
    """
    figure, ax = axes(7.4, 1.0 + 0.3 * len(jobs))
    for way, ratios in slower.items():
        where = [jobs.index(job) for job in ratios]
        color, mark, size = WAY_STYLES[way]
        ax.plot(list(ratios.values()), where, mark, color=color, markersize=size, label=way)
    for row, job in enumerate(jobs):
        if not any(job in ratios for ratios in slower.values()):
            ax.text(
                1.05, row, "impossible with data ranks alone", va="center", fontsize=8, color=GREY
            )
    ax.axvline(1, color=GREY, lw=1.2)
    ax.set(xscale="log", xlabel="times the seconds of the best plan (log scale)", title=title)
    ax.set_xlim(left=0.9)
    plain_log(ax.xaxis)
    rows(ax, jobs)
    ax.set_ylim(len(jobs) - 0.5, -0.5)
    legend_beside(ax)
    return figure


# ---- layers that are gathered


def gather_lanes(ways: Mapping[str, Sequence[tuple[str, int, float, float]]], title: str) -> Figure:
    """Draw when each layer is gathered and computed: two lanes per way, a number per layer.

    Args:
        ways: {name: [("gather" or "compute", layer, start, end)]}, in milliseconds.
    """
    figure, ax = axes(8.6, 0.9 + 0.75 * len(ways))
    names = []
    for way, bars in ways.items():
        for lane, color in (("gather", ORANGE), ("compute", BLUE)):
            row = len(names)
            names.append(f"{way}: {lane}")
            for of_lane, layer, start, end in bars:
                if of_lane == lane:
                    ax.barh(row, end - start, 0.75, left=start, color=color, ec="white")
                    ax.text((start + end) / 2, row, str(layer), **IN_A_BOX)
    rows(ax, names, 8)
    ax.set(xlabel="ms on the virtual clock (numbers: layers)", title=title)
    ax.grid(visible=False)
    return figure


# ---- a layer on several ranks


def split_mlp(ranks: int = 2) -> Figure:
    """Draw how the two matrices of an MLP are cut over ranks, a colour per rank, and the sum."""
    colors = RANK_COLORS[:ranks]
    figure, ax = canvas(8.6, 2.6, 12.6, 4.2)
    _matrix(ax, 0.2, "x", 1.0, 1.6, [GREY])
    ax.text(1.55, 2.0, "×", ha="center", va="center", fontsize=12)
    _matrix(ax, 1.9, "first layer,\nby columns", 2.4, 1.0, colors)
    arrow(ax, (4.5, 2.0), (5.0, 2.0))
    _matrix(ax, 5.2, "hidden units,\nafter the GELU", 2.4, 1.6, colors)
    ax.text(7.95, 2.0, "×", ha="center", va="center", fontsize=12)
    _matrix(ax, 8.3, "second layer,\nby rows", 1.0, 2.4, colors, down=True)
    arrow(ax, (9.5, 2.0), (10.9, 2.0))
    ax.text(10.2, 2.25, "sum over\nranks", ha="center", fontsize=8)
    _matrix(ax, 11.2, "output", 1.0, 1.6, [GREY])
    for rank in range(ranks):
        ax.text(2.5 + 1.2 * rank, 3.75, f"rank {rank}", color=colors[rank], ha="center", fontsize=8)
    ax.set_title("The cuts meet at the hidden units: one sum for two layers")
    return figure


def _matrix(
    ax: Axes,
    x: float,
    name: str,
    width: float,
    height: float,
    colors: Sequence[str],
    down: bool = False,
) -> None:
    """Draw a matrix at `x` whose equal parts have `colors`, from left to right or `down`."""
    top = 2.0 + height / 2
    for place, color in enumerate(colors):
        part = 1 / len(colors)
        if down:
            corner = (x, top - (place + 1) * part * height)
            ax.add_patch(Rectangle(corner, width, part * height, fc=color, ec="white"))
        else:
            corner = (x + place * part * width, top - height)
            ax.add_patch(Rectangle(corner, part * width, height, fc=color, ec="white"))
    ax.text(x + width / 2, 0.35, name, ha="center", va="center", fontsize=8)


def seed_losses(losses: Mapping[str, Sequence[float]], title: str) -> Figure:
    """Draw the final loss of each training of some pairs, a colour per way."""
    figure, ax = axes(7.0, 2.8)
    for (way, of_way), color in zip(losses.items(), (RED, BLUE), strict=True):
        ax.plot(range(1, len(of_way) + 1), of_way, "o", color=color, label=way)
    ax.set(xlabel="pair of trainings", ylabel="loss", title=title)
    ax.set_xticks(range(1, len(losses["one seed"]) + 1))
    highest = max(max(of_way) for of_way in losses.values())
    ax.set_ylim(0, 1.1 * highest)
    legend_beside(ax)
    return figure


# ---- a pipeline

PASS_COLORS = {"F": BLUE, "B": GREEN}


def pipeline(schedules: Mapping[str, Schedule], lasts: Mapping[str, float], title: str) -> Figure:
    """Draw each schedule: a row per rank, a box per pass with the number of its micro-batch.

    Args:
        lasts: how long a pass takes, by kind.
    """
    ranks = 1 + max(each[0] for schedule in schedules.values() for each in schedule)
    high = 0.8 + 0.3 * (ranks + 1) * len(schedules)
    figure, *all_axes = axes(8.6, high, lines=len(schedules), sharex=True)
    for ax, (name, schedule) in zip(all_axes, schedules.items(), strict=True):
        for each in [Pass(*one) for one in schedule]:
            long = lasts[each.kind]
            color = PASS_COLORS[each.kind]
            ax.barh(each.rank, long, 0.85, left=each.time, color=color, ec="white")
            ax.text(each.time + long / 2, each.rank, str(each.micro_batch), **IN_A_BOX)
        rows(ax, [f"rank {rank}" for rank in range(ranks)], 8)
        ax.set_ylabel(name)
        ax.grid(visible=False)
    all_axes[0].set_title(title)
    all_axes[-1].set_xlabel("time in forward passes (blue: forward, green: backward)")
    return figure


# ---- a sequence on several ranks


def work_per_rank(work: Mapping[str, Tensor], title: str) -> Figure:
    """Draw the work of each rank, a panel per way to cut the sequence, and the mean of the ranks.

    Args:
        work: {way: (ranks,) pairs of a query and a key}.
    """
    ranks = max(len(of_way) for of_way in work.values())
    figure, *all_axes = axes(8.6, 1.1 + 0.3 * ranks, len(work), sharex=True)
    for ax, (way, of_way) in zip(all_axes, work.items(), strict=True):
        millions = of_way.double() / 1e6
        ax.barh(range(ranks), millions.tolist(), color=BLUE)
        ax.axvline(millions.mean().item(), color=RED, lw=1.5)
        rows(ax, [f"rank {rank}" for rank in range(ranks)], 8)
        ax.set(title=way, xlabel="million pairs (line: mean)")
    figure.suptitle(title)
    return figure


# ---- failures


def save_intervals(
    expected: Mapping[float, float], simulated: Mapping[float, float], title: str
) -> Figure:
    """Draw how long a run takes with each interval between saves: the formula, and simulated runs.

    Args:
        expected, simulated: {interval over Daly's: seconds over those of the work alone}.
    """
    figure, ax = axes(7.0, 3.0)
    ax.plot(list(expected), list(expected.values()), color=GREY, label="formula")
    ax.plot(list(simulated), list(simulated.values()), "o", color=BLUE, label="simulated")
    ax.set(xscale="log", xlabel="interval between saves, over Daly's", title=title)
    ax.set_ylabel("time over the work alone")
    ticks_at(ax, simulated, "{:g}")
    ax.set_ylim(bottom=1)
    legend_beside(ax)
    return figure
