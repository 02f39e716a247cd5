"""Figures of unit 01; they compute nothing that an exercise asks for."""

import matplotlib.pyplot as plt
import torch
from matplotlib.figure import Figure

from course.plots.style import (
    COLORS,
    GREY,
    arrow,
    axes,
    box,
    canvas,
    legend_beside,
    middle_and_reach,
    rows,
    ticks_at,
)
from course.text import counted


def batch_grid(images: torch.Tensor, titles: list[str] | None = None, columns: int = 8) -> Figure:
    """A batch of images, float (n, 3, H, W), in rows of `columns`, each with its title, if there
    are any.
    """
    rows = -(-len(images) // columns)
    figure, axes_ = plt.subplots(
        rows, columns, squeeze=False, figsize=(1.5 * columns, 1.75 * rows), dpi=78
    )
    for ax in axes_.flat:
        ax.axis("off")
    for k, picture in enumerate(
        images.cpu().clamp(0, 1).permute(0, 2, 3, 1).numpy()
    ):  # (n, H, W, 3)
        axes_.flat[k].imshow(picture)
        axes_.flat[k].set_title(titles[k] if titles else "", fontsize="small")
    plt.close(figure)
    return figure


def worker_plot(workers: list[int], seconds: torch.Tensor) -> Figure:
    """Seconds of a pass against the number of workers: each pass a point, medians joined, a level
    line without workers.

    Args:
        seconds: (len(workers), passes).
    """
    figure, ax = axes(6.0)
    middle = seconds.quantile(0.5, dim=1)
    places = torch.tensor(workers)[:, None].expand_as(seconds)
    ax.plot(places.flatten(), seconds.flatten(), ".", color=GREY, ms=5)
    ax.plot(workers, middle, "_", color=COLORS[0], ms=22, mew=2.5)
    ax.set(xlabel="number of workers", ylabel="time per pass, s", xticks=workers, ylim=(0, None))
    label = dict(textcoords="offset points", fontsize=8, color=COLORS[0])
    ax.annotate("median", (workers[-1], middle[-1]), (15, -3), **label)
    if workers[0] == 0:
        ax.axhline(middle[0], color=COLORS[0], ls="--", lw=1)
        best = int(middle.argmin())
        least = f"Fastest with {counted(workers[best], 'worker')}, {middle[0] / middle[best]:.2f} times as fast as none"
        ax.set_title("No number of workers beats none" if best == 0 else least, fontsize=10)
    return figure


def cpu(logical: int, physical: int) -> Figure:
    """A processor with `physical` cores (at most 8 are drawn), their hardware threads and caches,
    and memory.
    """
    figure, ax = canvas(7.4, 2.9, 10, 4.3)
    shown, each = min(physical, 8), max(1, logical // physical)
    box(ax, 5, 2.7, "", "#dddddd", 9.6, 2.9)
    step = 9.2 / shown
    for i in range(shown):
        x = 0.4 + step * (i + 0.5)
        box(ax, x, 2.95, "", "#ffffff", step - 0.2, 2.0)
        for thread in range(each):
            width = (step - 0.4) / each
            number = (
                f"{each * i + thread}" if shown * each > 8 else f"logical core {each * i + thread}"
            )
            box(
                ax, x + (thread - (each - 1) / 2) * width, 3.35, number, COLORS[0], width - 0.1, 0.7
            )
        box(ax, x, 2.4, "L1, L2", COLORS[5], step - 0.5, 0.45)
    box(ax, 5, 1.55, "L3 cache, shared", COLORS[2], 9.0, 0.35)
    box(ax, 5, 0.45, "memory: slow, large, shared by all cores and processes", GREY, 9.6, 0.55)
    more = f" ({shown} drawn)" if shown < physical else ""
    threads = (
        "one hardware thread each"
        if each == 1
        else f"{each} hardware threads each, which share its caches"
    )
    ax.set_title(f"{physical} cores{more}, {threads}", fontsize=10)
    return figure


def loader_diagram(num_workers: int = 4, batch_size: int = 8) -> Figure:
    """Main process and workers: index lists go out, messages come back, pixels lie in shared
    memory.
    """
    figure, ax = canvas(8.6, 1.2 + 0.55 * num_workers, 12, num_workers + 0.8)
    middle = num_workers / 2 + 0.6
    box(ax, 1.6, middle, "main process\n\ntraining loop\nsampler", GREY, 2.5, 2.2)
    box(ax, 10.6, middle, "shared memory\n\nthe pixels of\nthe batches", COLORS[2], 2.3, 2.2)
    for worker in range(num_workers):
        y = num_workers - worker + 0.1
        first = worker * batch_size
        box(ax, 6.4, y, f"worker {worker}: builds batch {worker}", COLORS[0], 3.4, 0.5)
        ends = (2.95, middle + (y - middle) * 0.4), (4.6, y)
        arrow(ax, *ends)
        arrow(ax, *ends[::-1])
        arrow(ax, (8.2, y), (9.4, middle + (y - middle) * 0.4), COLORS[2])
        text = f"indices {first} … {first + batch_size - 1}"
        label = dict(
            fontsize=7,
            color=GREY,
            ha="center",
            va="center",
            bbox=dict(fc="white", ec="none", pad=0.6),
        )
        ax.text(3.78, (middle + (y - middle) * 0.4 + y) / 2, text, **label)
    ax.set_title(
        "Indices go out; what comes back says where the batch is, not its pixels", fontsize=10
    )
    ax.plot([10.6, 10.6, 1.6, 1.6], [middle - 1.2, 0.1, 0.1, middle - 1.3], color=COLORS[2], lw=1)
    arrow(ax, (1.6, 0.1), (1.6, middle - 1.15), COLORS[2])
    label = dict(fontsize=8, color=COLORS[2], ha="center", va="bottom")
    ax.text(6.1, 0.16, "the main process maps the memory of the batch: no copy", **label)
    return figure


def streams() -> Figure:
    """Three queues over time: what the processor queues, copies on one stream, steps on another,
    events between.
    """
    figure, ax = canvas(9.2, 2.6, 13, 3.9)
    lanes = ("processor", 3.2), ("side stream", 2.0), ("computing stream", 0.8)
    for name, y in lanes:
        ax.text(0.1, y, name, va="center", fontsize=9)
        ax.plot([2.6, 12.9], [y, y], color=GREY, lw=0.6, zorder=0)
    for k in range(4):
        x = 3.4 + 2.4 * k
        box(ax, x, 3.2, f"queue copy {k},\nstep {k - 1}" if k else "queue copy 0", GREY, 1.5, 0.62)
        box(ax, x + 0.75, 2.0, f"copy {k}", COLORS[2], 1.3, 0.5)
        if k:
            box(ax, x + 0.75, 0.8, f"step {k - 1}", COLORS[1], 2.1, 0.5)
            arrow(ax, (x - 1.0, 1.7), (x - 0.25, 1.1), COLORS[2])
    ax.text(
        3.9, 1.35, "event: copy 0\nhas ended", ha="right", va="center", fontsize=8, color=COLORS[2]
    )
    ax.set_title(
        "Copy 1 runs during step 0; an arrow is an event that a step waits for", fontsize=10
    )
    return figure


def timeline(spans: list[tuple[str, int, float, float]], title: str) -> Figure:
    """Who did what when: one row and colour per process, a bar for each batch that is built.

    Args:
        spans: list of (row label, batch number, start, end), in seconds from the start of the pass.
    """
    names = sorted({row for row, *_ in spans}, reverse=True)
    figure, ax = axes(8.2, 0.9 + 0.42 * len(names))
    for row, batch, start, end in spans:
        y, color = names.index(row), COLORS[names.index(row) % len(COLORS)]
        ax.barh(
            y, 1000 * (end - start), left=1000 * start, height=0.62, color=color, ec="white", lw=1.5
        )
        ax.text(
            500 * (start + end), y, str(batch), ha="center", va="center", color="white", fontsize=7
        )
    ax.set_yticks(range(len(names)), names)
    ax.set(xlabel="time, ms (a number is a batch)", title=title, xlim=(0, None))
    ax.grid(axis="y", visible=False)
    return figure


def rates(curves: dict[str, tuple], n_images: int | list[int], cores: int, title: str) -> Figure:
    """Images per second against workers, median and range over passes; level lines without workers.

    Args:
        curves: {label: (workers, seconds)}; seconds is a tensor (len(workers), passes).
        n_images: images in a pass, one number, or one for each curve.
    """
    figure, ax = axes(7.6)
    n_images = n_images if isinstance(n_images, list) else [n_images] * len(curves)
    styles = zip(curves.items(), n_images, COLORS, "os^DvP", strict=False)
    for (label, (workers, seconds)), n, color, marker in styles:
        middle, reach = middle_and_reach(n / seconds)
        first = int(workers[0] == 0)
        ax.errorbar(workers[first:], middle[first:], reach[:, first:], fmt=f"-{marker}", color=color, capsize=4,
                    label=label)  # fmt: skip
        if first:
            ax.axhline(middle[0], color=color, ls="--", lw=1, label=f"{label}, without workers")
    ax.axvline(cores, color=GREY, ls=":", lw=1, label=f"{cores} logical cores")
    ax.set(
        xlabel="number of workers", ylabel="images/s (median, range)", title=title, ylim=(0, None)
    )
    ax.set_xticks(sorted({w for workers, _ in curves.values() for w in workers if w}))
    legend_beside(ax, 9)
    return figure


def predicted_workers(cases: dict[tuple, tuple], workers: list[int]) -> Figure:
    """Time per batch against workers: lines predicted from one worker, points measured, level lines
    without workers.

    Args:
        cases: {(label, batch size): (costs, predicted ms for 1 and `workers`, measured ms for 0 and
            `workers`)}, the latter two tensors (1 + len(workers), rounds).
    """
    figure, *panels = axes(1.2 + 3.6 * len(cases), 3.4, columns=len(cases))
    for ax, ((label, size), (_, predicted, measured)) in zip(panels, cases.items(), strict=True):
        middle, reach = middle_and_reach(measured)
        worst = (measured[1:] / predicted[1:] - 1).quantile(0.5, dim=1).abs().max()
        ax.plot(
            [1, *workers],
            predicted.quantile(0.5, dim=1),
            "-",
            color=COLORS[0],
            label="predicted from one worker",
        )
        ax.errorbar(
            workers, middle[1:], reach[:, 1:], fmt="o", color=COLORS[1], capsize=4, label="measured"
        )
        ax.axhline(middle[0], color=COLORS[1], ls=":", lw=1.5, label="measured without workers")
        ax.set(xlabel="number of workers", ylabel=f"time per batch of {size}, ms", ylim=(0, None))
        ax.set_title(f"{label}: predicted within {worst:.0%}", fontsize=10)
        ax.set_xscale("log", base=2)
        ticks_at(ax, [1, *workers])
    legend_beside(panels[-1])
    return figure


def bars(values: dict, xlabel: str, title: str, form: str = "{:,.0f}") -> Figure:
    """One horizontal bar for each of {label: samples}: the median, with the range as a whisker and
    a number beside.
    """
    figure, ax = axes(7.6, 0.9 + 0.36 * len(values))
    for y, of_row in enumerate(values.values()):
        samples = torch.as_tensor(of_row, dtype=torch.float64).reshape(1, -1)
        middle, reach = middle_and_reach(samples)
        ax.barh(y, middle, xerr=reach, color=COLORS[0], ecolor=GREY, capsize=3, height=0.6)
        end = (samples.max(), y)
        ax.annotate(
            form.format(middle.item()),
            end,
            (6, 0),
            textcoords="offset points",
            va="center",
            fontsize=9,
        )
    rows(ax, values)
    ax.margins(x=0.12)
    ax.set(xlabel=f"{xlabel} (median, lowest to highest)", title=title, xlim=(0, None))
    return figure


def stages(parts: dict[str, dict[str, float]], title: str) -> Figure:
    """What an image costs, stage by stage: one stacked bar for each of {label: {stage:
    microseconds}}.
    """
    figure, ax = axes(8.2, 1.4 + 0.5 * len(parts))
    names = list(dict.fromkeys(stage for of in parts.values() for stage in of))
    left = torch.zeros(len(parts))
    for name, color in zip(names, (*COLORS, GREY, "#aaaaaa"), strict=False):
        widths = torch.tensor([of.get(name, 0.0) for of in parts.values()])
        ax.barh(range(len(parts)), widths, left=left, color=color, label=name, height=0.6)
        left += widths
    rows(ax, parts)
    ax.set(xlabel="µs per image", title=title)
    figure.legend(frameon=False, fontsize=8, ncols=4, loc="outside lower center")
    return figure


def strips(runs: dict[str, list[tuple]], title: str = "") -> Figure:
    """Where time goes in each of {title: [(label, number, start, end)]}: one strip each on a common
    scale.

    A bar is an event, its colour says its label; times are in seconds.
    """
    labels = list(dict.fromkeys(label for spans in runs.values() for label, *_ in spans))
    figure, ax = axes(8.6, 1.3 + 0.5 * len(runs))
    for y, spans in enumerate(runs.values()):
        for label, color in zip(labels, COLORS, strict=False):
            places = [
                (1000 * start, 1000 * (end - start))
                for name, _, start, end in spans
                if name == label
            ]
            ax.broken_barh(places, (y - 0.3, 0.6), color=color, ec="white", lw=0.3)
    for label, color in zip(labels, COLORS, strict=False):
        ax.barh(0, 0, color=color, label=label)  # for the legend
    rows(ax, runs)
    ax.set(xlabel="time, ms", title=title)
    figure.legend(frameon=False, fontsize=8, ncols=len(labels), loc="outside lower center")
    return figure


def queue(depths: dict[str, tuple[list, list]]) -> Figure:
    """Batches that the loop could take, over time: one panel for each of {title: (moments in s,
    batches)}.

    Shaded where there are none.
    """
    figure, *panels = axes(8.6, 2.8, columns=len(depths))
    most = max(max(batches) for _, batches in depths.values())
    last = 1000 * max(moments[-1] for moments, _ in depths.values())
    for ax, (title, (moments, batches)), color in zip(panels, depths.items(), COLORS, strict=False):
        ms = [1000 * moment for moment in moments]
        ax.step(ms, batches, where="post", color=color, lw=1)
        for begin, end, depth in zip(ms, ms[1:], batches, strict=False):
            if not depth:
                ax.axvspan(begin, end, color=GREY, alpha=0.3, lw=0)
        ax.set(title=title, xlabel="time, ms", ylabel="batches ready for the loop",
               xlim=(0, last), ylim=(-0.2, most + 0.5))  # fmt: skip
    return figure
