"""Figures of unit 05. In a part each colour has one meaning: tokens are dark grey and padding is
light grey.
"""

import torch
from matplotlib.patches import Patch, Rectangle

from course.plots.style import COLORS, GREY, axes, plain_log, ticks_at

TOKEN, PADDING = "#4d4d4d", "#dddddd"
METHOD_COLORS = {
    "one rectangle": GREY,
    "sample by sample": COLORS[1],
    "your groups": COLORS[2],
    "four groups": COLORS[2],
    "bucketed batches": COLORS[3],
    "flat": COLORS[4],
    "nested": COLORS[5],
}


def padding_cells(batches, finding=None):
    """Draw batches cell by cell: a row per sequence, tokens dark, padding light.

    Args:
        batches: {title: lengths}, int64 tensors (n,), or lists of such tensors for batches that are
            cut into groups.
        finding: title above all panels.
    """
    figure, *panels = axes(4.1 * len(batches), 3.4, columns=len(batches))
    figure.suptitle(finding)
    for ax, (title, groups) in zip(panels, batches.items(), strict=True):
        groups = groups if isinstance(groups, list) else [groups]
        # between groups, not between single sequences
        gap = 0.6 if max(map(len, groups)) > 1 else 0
        y = cells = 0
        for lengths in groups:
            longest = int(lengths.max())
            for length in lengths.tolist():
                ax.barh(y, longest, height=0.82, color=PADDING, lw=0)
                ax.barh(y, length, height=0.82, color=TOKEN, lw=0)
                y += 1
            cells += len(lengths) * longest
            y += gap
        tokens = sum(int(lengths.sum()) for lengths in groups)
        ax.set(
            title=f"{title}: {cells / tokens:.1f} cells per token",
            xlabel="column",
            yticks=[],
            ylabel="sequences",
        )
        ax.invert_yaxis()
        ax.grid(False)
        ax.xaxis.get_major_locator().set_params(integer=True)
    handles = [Patch(color=TOKEN, label="token"), Patch(color=PADDING, label="padding")]
    figure.legend(handles=handles, loc="outside lower center", ncols=2, frameon=False)
    return figure


def waste_against_batch(batch_sizes, curves):
    """Cells per token against batch size, one line per data set."""
    figure, ax = axes(6.6, 3.4)
    for color, (name, waste) in zip(COLORS, curves.items(), strict=False):
        ax.plot(batch_sizes, waste, "o-", color=color, ms=4)
        _name_end(ax, batch_sizes[-1], waste[-1], f"{name} {waste[-1]:.1f}", color)
    ax.axhline(1, color=GREY, lw=1, ls=":")
    _name_end(ax, batch_sizes[-1], 1.2, "no padding", GREY)
    ax.set(xscale="log", yscale="log", xlabel="sequences per batch", ylabel="cells per token",
           title="Larger batches waste more", xlim=(0.9, batch_sizes[-1] * 3))  # fmt: skip
    ax.set_yticks([1, 2, 4, 8, 16, 32], ["1", "2", "4", "8", "16", "32"])
    ticks_at(ax, batch_sizes)
    return figure


def _name_end(ax, x, y, text, color):
    """Write `text` to the right of a line's last point."""
    ax.annotate(
        text,
        (x, y),
        xytext=(6, 0),
        textcoords="offset points",
        va="center",
        color=color,
        fontsize=9,
    )


def cost_against_length(lengths, costs):
    """Saved bytes and seconds against padded length, both relative to the shortest, with slopes of
    one and two.

    Args:
        costs: {model: {"bytes": [...], "seconds": [...]}}, one value per length.
    """
    figure, *panels = axes(8.4, 3.4, columns=2)
    x = torch.tensor(lengths, dtype=torch.float64) / lengths[0]
    for ax, what in zip(panels, ("bytes", "seconds"), strict=True):
        for power, style in ((1, ":"), (2, "--")):
            ax.plot(lengths, x**power, style, color=GREY, lw=1)
            _name_end(ax, lengths[-1], x[-1] ** power, "length²" if power == 2 else "length", GREY)
        grown = {}
        for color, (name, cost) in zip(COLORS[3:], costs.items(), strict=False):
            values = torch.tensor(cost[what], dtype=torch.float64)
            ax.plot(lengths, values / values[0], "o-", color=color, ms=4, label=name)
            grown[name] = float(values[-1] / values[0])
        ax.set(xscale="log", yscale="log", xlabel="padded length", xlim=(lengths[0] * 0.9, lengths[-1] * 1.7),
               title=f"{x[-1]:.0f}× the width: {what} " + ", ".join(f"{t:.0f}×" for t in grown.values()))  # fmt: skip
        plain_log(ax.yaxis)
        ticks_at(ax, lengths)
    panels[0].set_ylabel(f"times that of length {lengths[0]}")
    lows, highs = zip(*(ax.get_ylim() for ax in panels), strict=True)
    for ax in panels:
        ax.set_ylim(min(lows), max(highs))
    panels[0].legend(frameon=False)
    return figure


def speedups(timed, base, xlabel):
    """How many times as fast as `base` each way is, one group of bars per setting, with the spread
    of paired rounds.

    Args:
        timed: {setting: {way: seconds of each round}}, rounds of one setting taken in turns.
    """
    figure, ax = axes(7.0, 3.4)
    ways = [way for way in next(iter(timed.values())) if way != base]
    for number, way in enumerate(ways):
        for place, seconds in enumerate(timed.values()):
            pairs = torch.tensor(seconds[base]) / torch.tensor(seconds[way])
            middle = pairs.median().item()
            x = place + (number - (len(ways) - 1) / 2) * 0.24
            ax.plot([x, x], [pairs.min(), pairs.max()], color=METHOD_COLORS[way], lw=1.5)
            ax.plot(
                x, middle, "o", color=METHOD_COLORS[way], ms=8, label=way if place == 0 else None
            )
            ax.annotate(
                f"{middle:.1f}", (x, middle), xytext=(7, 0), textcoords="offset points", va="center"
            )
    ax.axhline(1, color=GREY, lw=1, ls=":", label=base)
    (small, *_, large), way = timed, ways[-1]
    gains = [
        (torch.tensor(timed[n][base]) / torch.tensor(timed[n][way])).median().item()
        for n in (small, large)
    ]
    ax.set(
        yscale="log",
        ylabel="times as fast, lowest to highest round",
        xlabel=xlabel,
        title=f"{way.capitalize()}: {gains[0]:.1f} times as fast at size {small}, {gains[1]:.1f} at {large}",
    )
    ax.set_xticks(range(len(timed)), [str(setting) for setting in timed])
    ax.margins(x=0.15, y=0.15)
    plain_log(ax.yaxis)
    figure.legend(loc="outside right upper", frameon=False)
    return figure


def time_against_groups(seconds, predicted, fixed_by):
    """Measured and predicted time against the number of groups; the points that fixed the model are
    filled.
    """
    figure, ax = axes(6.6, 3.4)
    counts = list(seconds)
    ax.plot(
        counts,
        [1000 * predicted[n] for n in counts],
        "--",
        color=GREY,
        label="a · groups + b · cells",
    )
    for n in counts:
        fixed = n in fixed_by
        label = (
            "measured, gives a and b"
            if n == fixed_by[0]
            else "measured"
            if n == counts[0]
            else None
        )
        ax.plot(n, 1000 * seconds[n], "o", color=METHOD_COLORS["your groups"],
                mfc=METHOD_COLORS["your groups"] if fixed else "white", label=label)  # fmt: skip
    ax.margins(y=0.2)
    best = min(seconds, key=seconds.get)
    ax.annotate(
        "fastest",
        (best, 1000 * seconds[best]),
        xytext=(0, -16),
        textcoords="offset points",
        ha="center",
    )
    ax.set(xscale="log", yscale="log", xlabel="groups", ylabel="ms forward and backward",
           title=f"{best} groups are fastest: {seconds[1] / seconds[best]:.1f} times as fast as one")  # fmt: skip
    plain_log(ax.yaxis)
    ticks_at(ax, counts)
    ax.legend(frameon=False)
    return figure


def search_results(results):
    """How far each search for thresholds misses the least cost, against its time.

    Args:
        results: {search: (seconds, per cent above the least cost)}.
    """
    figure, ax = axes(6.6, 3.0)
    for name, (seconds, miss) in results.items():
        color = COLORS[0] if name.startswith("exact") else COLORS[4]
        ax.plot(1000 * seconds, miss, "o", color=color, ms=7)
        ax.annotate(
            name,
            (1000 * seconds, miss),
            xytext=(0, 7),
            textcoords="offset points",
            ha="center",
            fontsize=8,
        )
    ax.set(
        xscale="log",
        xlabel="ms per search",
        ylabel="per cent above the least cost",
        title=f"Chance comes within {max(miss for _, miss in results.values()):.1f} % of the least cost",
    )
    ax.margins(x=0.2, y=0.3)
    plain_log(ax.xaxis)
    ax.set_ylim(bottom=-0.1 * max(miss for _, miss in results.values()))
    ax.set_yticks([tick for tick in ax.get_yticks() if tick >= 0])
    return figure


def waste_of_windows(windows, waste, levels):
    """Cells per token against the window, with level lines of other ways, named as in
    `of_levels`.
    """
    of_levels = {
        "random batches": "one rectangle",
        "four groups in random batches": "four groups",
        "all sorted": "bucketed batches",
    }
    figure, ax = axes(6.6, 3.4)
    color = METHOD_COLORS["bucketed batches"]
    ax.plot(windows, waste, "o-", color=color, ms=5, label="bucketed: sorted in windows")
    for name, level in levels.items():
        ax.axhline(
            level,
            color=METHOD_COLORS[of_levels[name]],
            lw=1.2,
            ls="--",
            label=f"{name}: {level:.2f}",
        )
    ax.set(xscale="log", yscale="log", xlabel="batches per window", ylabel="cells per token",
           title="Wider windows waste less", ylim=(None, 16))  # fmt: skip
    ax.set_yticks([1, 1.5, 2, 3, 5, 8], ["1", "1.5", "2", "3", "5", "8"])
    ticks_at(ax, windows)
    ax.legend(frameon=False)
    return figure


ORDER_COLORS = {
    "shuffled": METHOD_COLORS["one rectangle"],
    "drawn once": COLORS[4],
    "windows": METHOD_COLORS["bucketed batches"],
    "sorted, shuffled batches": COLORS[0],
    "sorted, shuffled once": COLORS[5],
    "sorted": COLORS[1],
}


def losses(tasks, ylabel):
    """Loss after each epoch: a panel per task, a line per seed, a colour per order (those of
    ORDER_COLORS).

    Args:
        tasks: {task: {order: [losses after each epoch of one seed, ...]}}.
    """
    figure, *panels = axes(4.2 * len(tasks), 3.5, columns=len(tasks))
    for ax, (task, runs) in zip(panels, tasks.items(), strict=True):
        for name, seeds in runs.items():
            for number, run in enumerate(seeds):
                label = name if number == 0 else None
                ax.plot(
                    range(1, len(run) + 1),
                    run,
                    "o-",
                    color=ORDER_COLORS[name],
                    ms=3,
                    lw=1.2,
                    label=label,
                )
        others = [name for name in runs if name != "shuffled"]
        worst = max(others, key=lambda name: sum(run[-1] for run in runs[name]))
        times = sum(run[-1] for run in runs[worst]) / sum(run[-1] for run in runs["shuffled"])
        ax.set(xlabel="epoch", ylabel=ylabel)
        ax.set_title(
            f"{task}: {worst} ends\nat {times:.2f} times the loss of shuffled", fontsize=10
        )
        ax.set_ylim(bottom=0)
        ax.xaxis.get_major_locator().set_params(integer=True)
    figure.legend(
        *panels[-1].get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False
    )
    return figure


def waiting(shares, spent):
    """Time per token of each way to batch, cut into computing and waiting, in one stacked chart.

    Args:
        shares: {way: share of the ranks' time that is spent waiting}.
        spent: {way: cells per token, waiting included}.
    """
    figure, ax = axes(6.6, 2.6)
    for place, (name, total) in enumerate(spent.items()):
        waited = shares[name] * total
        ax.barh(
            place, total - waited, color=GREY, height=0.6, label="computing" if place == 0 else None
        )
        ax.barh(place, waited, left=total - waited, color=COLORS[1], height=0.6,
                label="waiting" if place == 0 else None)  # fmt: skip
        text = f"{total:.1f}, {100 * shares[name]:.0f} % of it waiting"
        ax.annotate(text, (total, place), xytext=(4, 0), textcoords="offset points", va="center")
    ax.set_yticks(range(len(spent)), list(spent))
    ax.margins(x=0.35)
    ax.invert_yaxis()
    longest, least = max(shares, key=shares.get), min(spent, key=spent.get)
    ax.set(
        xlabel="time of four ranks, as cells per token",
        title=f"{longest} waits longest, {least} takes least time",
    )
    ax.legend(loc="lower right", frameon=False)
    return figure


WAY_COLORS = METHOD_COLORS | {
    "block mask": COLORS[0],
    "packed rows": "#8c564b",
    "packed sequence": COLORS[1],
    "varlen": "black",
    "FlexAttention": "#b8860b",
}


def flat_and_blocks(lengths):
    """A small batch three times: padded, flat, and the pairs of tokens that flat attention computes
    under a block mask.

    Args:
        lengths: int64 tensor (n,), small.
    """
    figure, *panels = axes(11.4, 3.4, columns=3)
    total, longest = int(lengths.sum()), int(lengths.max())
    owner = torch.arange(len(lengths)).repeat_interleave(lengths)
    cells = {
        f"padded: {len(lengths) * longest} cells": (
            torch.arange(longest) < lengths[:, None],
            "column",
            "sequence",
        ),
        f"flat: {total} cells": (torch.ones(1, total, dtype=torch.bool), "token", ""),
        f"flat attention: {total**2} pairs": (owner[:, None] == owner, "key", "query"),
    }
    for ax, (title, (needed, xlabel, ylabel)) in zip(panels, cells.items(), strict=True):
        for y, x in torch.cartesian_prod(*map(torch.arange, needed.shape)).tolist():
            ax.add_patch(Rectangle((x, y), 0.88, 0.88, fc=TOKEN if needed[y, x] else PADDING))
        for start in (lengths.cumsum(0) - lengths)[1:].tolist() if needed.shape[0] == 1 else ():
            ax.plot([start - 0.06] * 2, [-0.6, 1.5], color="black", lw=1)  # where a sequence begins
        ax.set(title=title, xlim=(-0.5, needed.shape[1] + 0.5), ylim=(max(needed.shape[0], 5) + 0.5, -0.7),
               xlabel=xlabel, ylabel=ylabel, xticks=[], yticks=[], aspect="equal")  # fmt: skip
        ax.spines[:].set_visible(False)
        ax.grid(False)
    handles = [
        Patch(color=TOKEN, label="needed"),
        Patch(color=PADDING, label="computed and thrown away"),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=2, frameon=False)
    return figure


def time_and_memory(tables):
    """Each way as a point: milliseconds forward and backward (with the spread of its rounds)
    against saved megabytes.

    A dashed line joins the ways that no other one beats in both.

    Args:
        tables: {model: {way: {"seconds": of each round, "bytes": number}}}, a panel per model; ways
            as in WAY_COLORS.
    """
    figure, *panels = axes(3.9 * len(tables), 3.7, columns=len(tables))
    handles = {}
    for ax, (kind, table) in zip(panels, tables.items(), strict=True):
        points = []
        for name, line in table.items():
            ms, mb = 1000 * torch.tensor(line["seconds"]), line["bytes"] / 1e6
            ax.plot([ms.min(), ms.max()], [mb, mb], color=WAY_COLORS[name], lw=1.2)
            (handles[name],) = ax.plot(ms.median(), mb, "o", color=WAY_COLORS[name], ms=8)
            points.append((ms.median().item(), mb))
        front = sorted(
            p for p in points if not any(q[0] <= p[0] and q[1] <= p[1] and q != p for q in points)
        )
        if len(front) > 1:
            (handles["not beaten in both"],) = ax.plot(
                *zip(*front, strict=True), "--", color="black", lw=0.8, zorder=0
            )
        ax.margins(0.12)
        seconds = {name: torch.tensor(line["seconds"]) for name, line in table.items()}
        best = min(seconds, key=lambda name: seconds[name].median())
        is_clear = all(seconds[name].min() > seconds[best].max() for name in table if name != best)
        title = f"{kind}, fastest: {best}" if is_clear else f"{kind}: the fastest ranges overlap"
        ax.set(xscale="log", yscale="log", xlabel="ms forward and backward", title=title)
        for axis in (ax.xaxis, ax.yaxis):
            plain_log(axis)
    panels[0].set_ylabel("MB saved for backward")
    figure.legend(handles.values(), handles, loc="outside lower center", ncols=5, frameon=False)
    return figure
