"""Figures of unit 07.

A colour is what a device holds: weights, gradients, optimizer or activations.
"""

from collections.abc import Mapping

from matplotlib.figure import Figure

from course.plots.style import BLUE, GREEN, GREY, ORANGE, RED, axes, legend_beside, rows

HELD_COLORS = {"weights": BLUE, "gradients": GREEN, "optimizer": ORANGE, "activations": GREY}
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
