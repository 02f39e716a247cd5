"""Figures of unit 07.

A colour is what a device holds: weights, gradients, optimizer or activations; or a way to plan.
"""

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure

from course.plots.style import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PINK,
    RED,
    SKY_BLUE,
    axes,
    legend_beside,
    plain_log,
    rows,
)

HELD_COLORS = {"weights": BLUE, "gradients": GREEN, "optimizer": ORANGE, "activations": GREY}
WAY_STYLES = {"data ranks alone": (SKY_BLUE, "o", 9), "your pick": (PINK, "D", 5)}
GB = 1e9


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
            ax.text(1.05, row, "none of them runs and fits", va="center", fontsize=8, color=GREY)
    ax.axvline(1, color=GREY, lw=1.2)
    ax.set(xscale="log", xlabel="times the seconds of the best plan", title=title)
    ax.set_xlim(left=0.9)
    plain_log(ax.xaxis)
    rows(ax, jobs)
    ax.set_ylim(len(jobs) - 0.5, -0.5)
    legend_beside(ax)
    return figure
