"""Figures of unit 04.  Figures of time show the yardsticks, too: memcpy and reading."""

import math
import statistics

from course.plots.style import COLORS, GREY, arrow, axes, box, canvas, rows

BLUE, RED, GREEN, _, ORANGE, _ = COLORS


def record_file():
    """The record file: a header, then rows of equal stride in pages."""
    pages, rows_of_page = 3, 4
    figure, ax = canvas(8.6, 1.9, 12.2, 3.2)
    figure.suptitle("Row i begins at byte 4096 + i · stride", fontsize=10)
    box(ax, 0.9, 1.6, "header", GREY, 1.5, 0.7)
    ax.text(0.9, 0.85, "4096 bytes", ha="center", fontsize=8, color=GREY)
    for page in range(pages):
        start = 2.0 + 3.4 * page
        for row in range(rows_of_page):
            number = page * rows_of_page + row
            box(
                ax,
                start + 0.4 + 0.8 * row,
                1.6,
                f"row {number}",
                (BLUE, GREEN, ORANGE)[page % 3],
                0.68,
                0.7,
            )
        ax.text(start + 1.6, 2.5, f"page {page}", ha="center", fontsize=9)
    arrow(ax, (2.4, 0.9), (3.2, 0.9))
    ax.text(2.8, 0.35, "stride", ha="center", fontsize=8, color=GREY)
    ax.text(
        7.4,
        0.35,
        "a row: D values of x, one of y, zeros up to the stride",
        ha="center",
        fontsize=8,
        color=GREY,
    )
    return figure


def record_rows():
    """One row of a record file per number of columns: x, y and padding in bytes, a tick at each
    4,096.
    """
    columns = 1000, 1023, 1024, 2500
    figure, ax = axes(8.6, 1.2 + 0.42 * len(columns))
    figure.suptitle("One column more than 1,023 doubles the row", fontsize=10)
    for place, n in enumerate(columns):
        stride = -(-4 * (n + 1) // 4096) * 4096
        parts = {
            "x": (0, 4 * n, BLUE),
            "y": (4 * n, 4, ORANGE),
            "padding": (4 * n + 4, stride - 4 * n - 4, GREY),
        }
        for name, (start, length, color) in parts.items():
            ax.barh(place, max(length, 60 * (name == "y")), left=start, color=color, height=0.6,
                    alpha=0.35 if name == "padding" else 1, label=name if not place else None)  # fmt: skip
        lost = (stride - 4 * n - 4) / stride
        ax.text(
            stride + 100, place, f"{stride:,} bytes, {lost:.0%} padding", va="center", fontsize=8
        )
    rows(ax, [f"{n:,} columns" for n in columns], 8)
    ax.set(
        xlabel="byte of the row (ticks: borders of memory pages)",
        xticks=range(0, 12289, 4096),
        xlim=(0, 15500),
    )
    ax.legend(frameon=False, fontsize=8, ncols=3, loc="lower center", bbox_to_anchor=(0.45, 1))
    return figure


def orders(drawn, page_rows, batch, title):
    """The rows of several orders, {name: order}, side by side: a line per batch, squares coloured
    by page.
    """
    figure, *panels = axes(4.3 * len(drawn), 0.9 + 0.26 * max(-(-len(order) // batch) for order in drawn.values()),
                           columns=len(drawn))  # fmt: skip
    figure.suptitle(title, fontsize=10)
    for ax, (name, order) in zip(panels, drawn.items(), strict=True):
        n, pages = len(order), (order // page_rows).tolist()
        lines, places = [i // batch for i in range(n)], [i % batch for i in range(n)]
        points = ax.scatter(
            places, lines, c=pages, cmap="viridis", marker="s", s=max(4, 2600 / batch**1.3)
        )
        ax.invert_yaxis()
        ax.grid(False)
        ax.set_title(name, fontsize=9)
        ax.set(xlabel="place in the batch", ylabel="batch", yticks=range(max(lines) + 1))
    figure.colorbar(
        points,
        ax=panels,
        label="page in the file",
        fraction=0.02,
        ticks=range(0, max(pages) + 1, 5),
    )
    return figure


def bias(pages, biases, batch):
    """Bias of the batches against the pages held, next to 1 + B / W, with the batch marked."""
    figure, ax = axes(7.4, 3.4)
    times = biases[pages.index(batch)]
    figure.suptitle(
        f"W = B pages: {times:.1f} times the variance of random batches; the rule says 2",
        fontsize=10,
    )
    ax.loglog(pages, biases, "o-", color=BLUE, label="windows", ms=4)
    ax.loglog(pages, [1 + batch / n for n in pages], "--", color="black", lw=1, label="1 + B / W")
    ax.axvline(batch, color=GREY, ls="--", lw=1)
    ax.annotate("W = B", (batch, 1), (3, -4), xycoords=("data", "axes fraction"), textcoords="offset points",
                va="top", fontsize=8, color=GREY)  # fmt: skip
    ax.axhline(1, color=GREY, ls=":", lw=1)
    ax.set(
        xlabel="pages held in memory, W",
        ylabel="variance of batch means\nover that of random batches",
    )
    ax.legend(frameon=False, fontsize=8)
    return figure


def order_against_learning(seconds, excess, best, title):
    """A dot per order, {name: seconds per epoch} and {name: excess loss}; `best` names the one to
    point out.
    """
    figure, ax = axes(7.8, 3.4)
    figure.suptitle(title, fontsize=10)
    for name in seconds:
        ax.loglog(seconds[name], excess[name], "o", color=GREEN if name == best else BLUE, ms=7)
        level = [s / seconds[name] for s, e in zip(seconds.values(), excess.values(), strict=True)
                 if abs(math.log(e / excess[name])) < 0.3]  # fmt: skip
        place = (
            dict(xytext=(-8, -3), ha="right")
            if any(1 < ratio < 4 for ratio in level)
            else dict(xytext=(8, -3))
        )
        ax.annotate(
            name, (seconds[name], excess[name]), textcoords="offset points", fontsize=8, **place
        )
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_formatter("{x:g}")
        axis.set_minor_formatter("")
    ax.set(xlabel="seconds per epoch, from the disk", ylabel="excess loss in epoch 2")
    ax.margins(x=0.35, y=0.12)
    return figure


def epoch_times(seconds, nbytes, yardsticks, title=""):
    """GB/s of each loader as a bar, the range of its rounds as a line, the yardsticks dashed.

    Args:
        seconds: {name: tensor of seconds per epoch}.
        nbytes: bytes per epoch.
        yardsticks: {name: seconds}.
        title: the finding.
    """
    figure, ax = axes(8.6, 1.4 + 0.32 * len(seconds))
    figure.suptitle(title, fontsize=10)
    for place, (name, own) in enumerate(seconds.items()):
        rates = sorted(nbytes / s / 1e9 for s in own.tolist())
        middle = statistics.median(rates)
        ax.barh(place, middle, color=GREEN if "ours" in name else BLUE, height=0.7)
        ax.plot([rates[0], rates[-1]], [place, place], color="black", lw=1)
        ax.text(rates[-1], place, f"  {middle:.1f}", va="center", fontsize=8)
    for (name, duration), color in zip(yardsticks.items(), (GREY, "black", RED), strict=False):
        ax.axvline(nbytes / duration / 1e9, color=color, ls="--", lw=1, label=name, zorder=1)
    rows(ax, seconds, 8)
    ax.set(xlabel="GB/s per epoch: median, and the range of all rounds as a line")
    ax.legend(frameon=False, fontsize=8, loc="upper center", bbox_to_anchor=(0.5, 1.2), ncols=3)
    return figure


def memory(nbytes, of_data):
    """Memory of each loader besides mapped files, {name: bytes}, as dots on a log axis; the size of
    the data dashed.
    """
    figure, ax = axes(8.6, 1.4 + 0.32 * len(nbytes))
    ours = max(value for name, value in nbytes.items() if "ours" in name)
    figure.suptitle(
        f"Our loaders hold at most {ours / 1e6:.0f} MB of {of_data / 1e6:,.0f} MB of data",
        fontsize=10,
    )
    for place, (name, value) in enumerate(nbytes.items()):
        shown = max(value, 1e5) / 1e6
        ax.plot(shown, place, "o", color=GREEN if "ours" in name else BLUE, ms=7)
        ax.annotate(
            f"{value / 1e6:,.1f}", (shown, place), (8, -3), textcoords="offset points", fontsize=8
        )
    ax.axvline(of_data / 1e6, color=GREY, ls="--", lw=1, label="size of the data", zorder=1)
    ax.set_yticks(range(len(nbytes)), nbytes, fontsize=8)
    ax.set_xscale("log")
    ax.invert_yaxis()
    ax.margins(x=0.15, y=0.15)
    ax.set(xlabel="most MB held during an epoch, mapped files not counted")
    ax.legend(frameon=False, fontsize=8, loc="upper center", bbox_to_anchor=(0.5, 1.25))
    return figure


def timelines(runs):
    """Recorded events as bars in lanes, one panel per run; `runs` is {title: list of (lane, start,
    end) in seconds}.
    """
    figure, ax = axes(8.6, 1.2 + 0.75 * len(runs))
    figure.suptitle("With three buffers, reading and computing overlap", fontsize=10)
    ticks, names = [], []
    for place, (title, events) in enumerate(runs.items()):
        for row, (lane, color) in enumerate({"read": ORANGE, "compute": BLUE}.items()):
            y = 2.6 * place + row
            spans = [
                (1e3 * start, 1e3 * (end - start)) for name, start, end in events if name == lane
            ]
            ax.broken_barh(spans, (y - 0.4, 0.8), color=color, ec="white", lw=0.5)
            ticks.append(y)
            names.append(f"{title}: {lane}")
    ax.set_yticks(ticks, names, fontsize=8)
    ax.invert_yaxis()
    ax.grid(axis="y", visible=False)
    ax.set(xlabel="ms since the start of the epoch", xlim=(0, None))
    return figure


def pipeline_gain(shares, gains, predicted):
    """The gain of reading ahead against the length of a step.

    Args:
        shares: list of seconds of steps over seconds of fills.
        gains: list of sorted lists, the measured gain of each round.
        predicted: list of predicted gains.
    """
    figure, ax = axes(7.4, 3.2)
    order = sorted(range(len(shares)), key=shares.__getitem__)
    ax.plot(
        [shares[i] for i in order],
        [predicted[i] for i in order],
        "--",
        color=RED,
        lw=1.5,
        label="predicted",
    )
    middle = [statistics.median(values) for values in gains]
    best = middle.index(max(middle))
    figure.suptitle(f"Reading ahead gains most, {middle[best]:.2f} times, where a step takes {shares[best]:.2f} fills",
                    fontsize=10)  # fmt: skip
    ax.vlines(
        shares,
        [values[0] for values in gains],
        [values[-1] for values in gains],
        color="black",
        lw=1,
    )
    ax.plot(shares, middle, "o", color=GREEN, label="measured: median and range of the rounds")
    ax.axhline(1, color=GREY, lw=0.8)
    ax.set_xscale("log", base=2)
    ax.xaxis.set_major_formatter("{x:g}")
    ax.set(
        xlabel="seconds of a step over those of a fill", ylabel="times as fast\nas with one buffer"
    )
    figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=8)
    return figure


def cold_race(
    results, title="Without room for the file, random rows from a mapping read it again and again"
):
    """Bytes from the disk over those of the file, and seconds, of one epoch: {(room, name):
    (seconds, share)}.
    """
    rooms, names = (list(dict.fromkeys(key[i] for key in results)) for i in (0, 1))
    figure, *both = axes(9.6, 1.4 + 0.55 * len(names), columns=2)
    figure.suptitle(title, fontsize=10)
    for (room, name), (seconds, share) in results.items():
        y = names.index(name) + 0.4 * rooms.index(room) - 0.2
        for ax, value in zip(both, (share, seconds), strict=True):
            ax.barh(
                y,
                value,
                0.38,
                color=(BLUE, ORANGE)[rooms.index(room)],
                label=room if name == names[0] else None,
            )
            ax.text(value, y, f" {value:.2g}", va="center", fontsize=8)
    for ax, label in zip(
        both, ("bytes from the disk over those of the file", "seconds"), strict=True
    ):
        rows(ax, names if ax is both[0] else [""] * len(names), 8)
        ax.margins(x=0.12)
        ax.set_xlabel(f"{label}, epoch 2")
    both[0].legend(frameon=False, fontsize=8, loc="lower right")
    return figure


def traffic(ways, batch_bytes):
    """Passes over a batch as blocks in the order of the operations: reads and writes of each way to
    write a step.

    Args:
        ways: {name: list of course.measure.traffic.Moved that read or write at least a batch}.
        batch_bytes: bytes of x of the batch.
    """
    figure, ax = axes(8.6, 0.9 + 0.6 * len(ways))
    moved = []
    for place, operations in enumerate(ways.values()):
        at = 0
        for operation in operations:
            for kind, n, color in (
                ("read", operation.read, BLUE),
                ("write", operation.written, ORANGE),
            ):
                if n >= batch_bytes:
                    hatch = "//" if kind == "write" and operation.new else None
                    ax.barh(
                        place,
                        batch_bytes / 1e6,
                        left=at,
                        color=color,
                        ec="white",
                        height=0.7,
                        hatch=hatch,
                    )
                    if not hatch:
                        ax.text(at + batch_bytes / 2e6, place, f"{operation.name}\n{kind}", ha="center", va="center",
                                fontsize=7, color="white" if kind == "read" else "black")  # fmt: skip
                    at += batch_bytes / 1e6
        moved.append(at)
    rows(ax, ways, 8)
    figure.suptitle(
        f"The best step moves {min(moved):.0f} MB, the worst {max(moved):.0f} MB", fontsize=10
    )
    ax.set(xlabel="MB moved per step (hatched: written into a new tensor)")
    return figure


def loss(curves, floor):
    """Excess losses against passes over the data.

    Args:
        curves: {name: (passes, losses)}, two lists each.
        floor: loss of the true weights.
    """
    figure, ax = axes(7.8, 3.8)
    for (name, (passes, losses)), color in zip(curves.items(), COLORS, strict=False):
        # 0: no difference left in float32
        shown = [value if value > 0 else math.nan for value in losses]
        ax.semilogy(passes, shown, "o-", color=color, label=name, ms=3)
    ax.axhline(floor, color=GREY, ls=":", lw=1, label="true weights")
    best = min(curves, key=lambda name: curves[name][1][-1])
    ax.set(xlabel="passes over the data", ylabel="mean squared residual\nabove the best weights'", xlim=(0, None),
           title=f"{best} ends nearest to the best weights")  # fmt: skip
    ax.xaxis.get_major_locator().set_params(integer=True)
    ax.legend(frameon=False, fontsize=8)
    return figure
