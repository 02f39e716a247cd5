"""Figures of unit 05."""

import torch
from matplotlib.ticker import LogLocator

from course.plots.style import COLORS, GREY, axes

TOKEN, PADDING = COLORS[0], "#dddddd"


def padding_cells(batches):
    """Batches drawn cell by cell: a row per sequence, real tokens blue, padding grey.

    Args:
        batches: {title: lengths}, int64 tensors (n,), or lists of such tensors for batches that are cut into groups.
    """
    figure, *panels = axes(4.1 * len(batches), 3.2, columns=len(batches))
    for ax, (title, groups) in zip(panels, batches.items(), strict=True):
        groups = groups if isinstance(groups, list) else [groups]
        y = cells = 0
        for lengths in groups:
            longest = int(lengths.max())
            for length in lengths.tolist():
                ax.barh(y, longest, height=0.82, color=PADDING, lw=0)
                ax.barh(y, length, height=0.82, color=TOKEN, lw=0)
                y += 1
            cells += len(lengths) * longest
            y += 0.6  # a gap between groups
        tokens = sum(int(lengths.sum()) for lengths in groups)
        ax.set(title=f"{title}: {cells / tokens:.1f} cells per token", xlabel="place in the row", yticks=[])
        ax.set_ylabel("sequences")
        ax.invert_yaxis()
        ax.grid(False)
    return figure


def waste_against_batch(batch_sizes, curves):
    """Padded tokens per real token against batch size, one line per data set."""
    figure, ax = axes(6.6, 3.4)
    for color, (name, waste) in zip(COLORS, curves.items(), strict=False):
        ax.plot(batch_sizes, waste, "o-", color=color, ms=4, label=name)
        ax.annotate(f"{waste[-1]:.1f}", (batch_sizes[-1], waste[-1]), xytext=(5, -3), textcoords="offset points")
    ax.axhline(1, color=GREY, lw=1, ls=":")
    ax.set(xscale="log", yscale="log", xlabel="sequences per batch", ylabel="padded tokens per real token",
           title="Larger batches waste more")  # fmt: skip
    ax.set_xticks(batch_sizes, [str(b) for b in batch_sizes])
    ax.set_yticks([1, 2, 4, 8, 16, 32], ["1", "2", "4", "8", "16", "32"])
    ax.minorticks_off()
    ax.legend(frameon=False)
    return figure


def cost_against_length(lengths, costs):
    """Saved bytes and seconds against padded length, both relative to the shortest, with slopes of one and two.

    Args:
        costs: {model: {"seconds": [...], "bytes": [...]}}, one value per length.
    """
    figure, *panels = axes(8.4, 3.4, columns=2)
    x = torch.tensor(lengths, dtype=torch.float64) / lengths[0]
    for ax, what, title in zip(panels, ("bytes", "seconds"), ("saved for backward", "time of a step"), strict=True):
        for power, style in ((1, ":"), (2, "--")):
            ax.plot(lengths, x**power, style, color=GREY, lw=1)
            ax.annotate(f"length{'²' if power == 2 else ''}", (lengths[-1], x[-1] ** power), color=GREY, ha="right")
        for color, (name, found) in zip(COLORS, costs.items(), strict=False):
            values = torch.tensor(found[what], dtype=torch.float64)
            ax.plot(lengths, values / values[0], "o-", color=color, ms=4, label=name)
        ax.set(xscale="log", yscale="log", xlabel="padded length", ylabel=f"times that of length {lengths[0]}",
               title=title)  # fmt: skip
        ax.set_xticks(lengths, [str(n) for n in lengths])
        ax.minorticks_off()
    panels[0].legend(frameon=False)
    return figure


def speedups(timed, base, xlabel):
    """How many times as fast as `base` each way is, one group of bars per setting, with the spread of paired rounds.

    Args:
        timed: {setting: {way: seconds of each round}}, rounds of one setting taken in turns.
    """
    figure, ax = axes(7.0, 3.4)
    ways = [way for way in next(iter(timed.values())) if way != base]
    for number, way in enumerate(ways):
        for place, seconds in enumerate(timed.values()):
            pairs = torch.tensor(seconds[base]) / torch.tensor(seconds[way])
            middle = pairs.median().item()
            x = place + (number - (len(ways) - 1) / 2) * 0.36
            ax.bar(x, middle, 0.34, color=COLORS[number], label=way if place == 0 else None)
            ax.plot([x, x], [pairs.min(), pairs.max()], color="black", lw=1)
            ax.annotate(f"{middle:.1f}", (x, pairs.max()), xytext=(0, 3), textcoords="offset points", ha="center")
    ax.axhline(1, color=GREY, lw=1, ls=":")
    ax.annotate(base, (-0.45, 1), xytext=(0, 3), textcoords="offset points", color=GREY, fontsize=8)
    ax.set(yscale="log", ylabel="times as fast", xlabel=xlabel, title=f"Speed against {base}")
    ax.set_xticks(range(len(timed)), [str(setting) for setting in timed])
    ax.set_yticks([0.5, 1, 2, 5, 10, 20, 50], ["0.5", "1", "2", "5", "10", "20", "50"])
    ax.minorticks_off()
    ax.legend(frameon=False)
    return figure


def time_against_groups(seconds, predicted, fixed_by):
    """Measured and predicted time against the number of groups; the points that fixed the model are filled."""
    figure, ax = axes(6.6, 3.4)
    counts = list(seconds)
    ax.plot(counts, [1000 * predicted[n] for n in counts], "--", color=GREY, label="a · groups + b · padded tokens")
    for n in counts:
        fixed = n in fixed_by
        label = {True: "measured, fixes a and b", False: "measured, not used"}[fixed]
        ax.plot(n, 1000 * seconds[n], "o", color=COLORS[0], mfc=COLORS[0] if fixed else "white",
                label=label if n in (counts[0], counts[1]) else None)  # fmt: skip
    best = min(seconds, key=seconds.get)
    ax.annotate("fastest", (best, 1000 * seconds[best]), xytext=(0, -16), textcoords="offset points", ha="center")
    ax.set(xscale="log", yscale="log", xlabel="groups", ylabel="ms per step", title="Time against groups")
    ax.yaxis.set_major_locator(LogLocator(base=10, subs=(1, 2, 5)))
    ax.yaxis.set_major_formatter("{x:g}")
    ax.set_xticks(counts, [str(n) for n in counts])
    ax.minorticks_off()
    ax.legend(frameon=False)
    return figure


def waste_of_windows(windows, waste, levels):
    """Padded tokens per real token against the window, with level lines of other ways."""
    figure, ax = axes(6.6, 3.4)
    ax.plot(windows, waste, "o-", color=COLORS[0], ms=5, label="sorted in windows")
    for number, (name, level) in enumerate(levels.items()):
        ax.axhline(level, color=COLORS[number + 1], lw=1.2, ls="--", label=f"{name}: {level:.2f}")
    ax.set(xscale="log", yscale="log", xlabel="batches per window", ylabel="padded tokens per real token",
           title="Larger windows waste less", ylim=(None, 14))  # fmt: skip
    ax.set_xticks(windows, [str(w) for w in windows])
    ax.set_yticks([1, 1.5, 2, 3, 5, 8], ["1", "1.5", "2", "3", "5", "8"])
    ax.minorticks_off()
    ax.legend(frameon=False)
    return figure


def losses(tasks, ylabel):
    """Loss after each epoch: a panel per task, a line per seed, a colour per order.

    Args:
        tasks: {task: {order: [losses after each epoch of one seed, ...]}}.
    """
    figure, *panels = axes(4.2 * len(tasks), 3.3, columns=len(tasks))
    for ax, (task, runs) in zip(panels, tasks.items(), strict=True):
        for color, (name, found) in zip(COLORS, runs.items(), strict=False):
            for number, run in enumerate(found):
                label = name if number == 0 else None
                ax.plot(range(1, len(run) + 1), run, "o-", color=color, ms=3, lw=1.2, label=label)
        ax.set(xlabel="epoch", ylabel=ylabel, title=task, yscale="log")
        ax.yaxis.set_major_locator(LogLocator(base=10, subs=(1, 2, 5)))
        ax.yaxis.set_major_formatter("{x:g}")
        ax.tick_params(which="minor", labelleft=False)
        ax.xaxis.get_major_locator().set_params(integer=True)
    panels[0].legend(frameon=False)
    return figure


def waiting(shares, spent):
    """Share of the ranks' time that is spent waiting, and time per real token with it: a bar per way to batch."""
    figure, left, right = axes(8.4, 2.5, columns=2)
    for ax, values, unit in ((left, {n: 100 * s for n, s in shares.items()}, " %"), (right, spent, "")):
        for place, value in enumerate(values.values()):
            ax.barh(place, value, color=COLORS[place], height=0.6)
            ax.annotate(f"{value:.3g}{unit}", (value, place), xytext=(4, -3), textcoords="offset points")
        ax.set_yticks(range(len(values)), list(values))
        ax.margins(x=0.15)
        ax.invert_yaxis()
    left.set(xlabel="per cent of the time of four ranks", title="Waiting for the longest batch")
    right.set(xlabel="time of so many padded tokens per real one", title="Computing and waiting")
    return figure


def time_and_memory(table):
    """Each method as a point: milliseconds of a step (with the spread of its rounds) against saved megabytes.

    Args:
        table: {method: (seconds of each round, bytes)}.
    """
    figure, ax = axes(6.6, 3.6)
    for color, (name, (seconds, nbytes)) in zip(COLORS, table.items(), strict=False):
        ms = 1000 * torch.tensor(seconds)
        ax.plot([ms.min(), ms.max()], [nbytes / 1e6] * 2, color=color, lw=1.2)
        ax.plot(ms.median(), nbytes / 1e6, "o", color=color, ms=8, label=name)
    ax.set(xscale="log", yscale="log", xlabel="ms per step", ylabel="MB saved for backward",
           title="Left and low is better")  # fmt: skip
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(LogLocator(base=10, subs=(1, 2, 5)))
        axis.set_major_formatter("{x:g}")
    ax.minorticks_off()
    ax.legend(frameon=False)
    return figure
