"""Figures of unit 02."""

import math

import torch
from matplotlib.patches import Rectangle

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
)

BLUE, RED, GREEN = COLORS[:3]


def pictures(images, titles):
    """Draw a row of grey-scale images, uint8 tensors (height, width), each under its title."""
    figure, *grid = axes(8.6, 1.35, columns=len(images))
    figure.suptitle(f"One image of each of the {len(images)} classes", fontsize=10)
    for ax, image, title in zip(grid, images, titles, strict=True):
        ax.imshow(255 - image, cmap="gray")
        ax.set_title(title, fontsize=7)
        ax.axis("off")
    return figure


def _lanes(ax, base, devices, stages, gap=0.35, row="device"):
    """Draw `stages`, tuples (title, text of each device, color, ways), from left to right, one
    `row` per device.

    `ways`, which may be missing, are the messages (source, target) from the stage before, drawn as
    arrows.
    """
    step = 10.6 / len(stages)
    for device in range(devices):
        ax.text(
            0.1, base + devices - device, f"{row} {device}", va="center", fontsize=8, color=GREY
        )
    for column, (title, texts, color, *ways) in enumerate(stages):
        x = 1.4 + step * (column + 0.5)
        ax.text(x, base + devices + 0.75, title, ha="center", va="center", fontsize=8, color=GREY)
        for device, text in enumerate(texts):
            box(ax, x, base + devices - device, text, color, step - gap, 0.5)
        for source, target in ways[0] if ways else ():
            start, end = x - step / 2 - gap / 2 + 0.05, x - step / 2 + gap / 2 - 0.05
            arrow(ax, (start, base + devices - source), (end, base + devices - target), color)


def data_parallel_steps():
    """Draw what each device holds after each step of DataParallel's forward and backward; an arrow
    is a message.
    """
    devices = 3
    figure, ax = canvas(8.6, 1.2 + 0.75 * devices, 12, 2 * devices + 3.4)
    each = range(devices)
    out, back = [(0, d) for d in each], [(d, 0) for d in each]
    forward = (
        ("", ["batch, model"], GREY),
        (
            "scatter: batch / N, replicate: model",
            [f"shard and replica {d}" for d in each],
            BLUE,
            out,
        ),
        ("compute in parallel", [f"output {d}" for d in each], BLUE),
        ("gather: outputs / N", ["all outputs"], GREEN, back),
    )
    backward = (
        ("", ["loss"], GREY),
        ("gradient of the outputs", ["all rows"], RED),
        ("scatter: outputs / N", [f"rows of {d}" for d in each], RED, out),
        ("backward", [f"gradients {d}" for d in each], RED),
        ("reduce: model", ["sum"], GREEN, back),
    )
    halves = (
        (devices + 1.7, "forward", forward),
        (0, "backward; then the replicas are gone", backward),
    )
    for base, name, stages in halves:
        ax.text(0.1, base + devices + 1.25, name, va="center", fontsize=9, weight="bold")
        _lanes(ax, base, devices, stages, gap=0.75)
    ax.set_title("Every step sends the whole model out and its gradients back")
    return figure


def ddp_steps(ranks=3):
    """Draw what each rank holds after each stage of a step of DistributedDataParallel."""
    figure, ax = canvas(8.6, 1.0 + 0.4 * ranks, 12, ranks + 1.3)
    each = range(ranks)
    stages = (
        ("own batch", [f"batch {r}" for r in each], BLUE),
        ("forward, backward", [f"gradients {r}" for r in each], BLUE),
        (
            "all-reduce (mean)",
            ["mean gradients"] * ranks,
            GREEN,
            [(a, b) for a in each for b in each if a != b],
        ),
        ("own optimizer step", ["same weights"] * ranks, GREY),
    )
    _lanes(ax, 0, ranks, stages, gap=0.75, row="rank")
    ax.set_title("Only gradients travel, once per step")
    return figure


def shards(dealt, classes):
    """Draw which rank uses which sample: a row per epoch, a column per sample, a colour per rank.

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
        title="A block holds few of the classes",
    )
    legend_beside(ax)
    ax.grid(visible=False)
    return figure


def broadcast_tree(ranks=8):
    """Draw the binomial tree of a broadcast from rank 0: an arrow per message, a row per round."""
    rounds = math.ceil(math.log2(ranks))
    figure, ax = canvas(6.4, 0.7 + 0.6 * rounds, ranks, rounds + 1.2)
    for r in range(rounds + 1):
        for rank in range(ranks):
            has = rank < 2**r
            box(ax, rank + 0.5, rounds - r + 0.5, str(rank), BLUE if has else "#cccccc", 0.45, 0.4)
        for rank in range(min(2**r, ranks) if r < rounds else 0):
            if rank + 2**r < ranks:
                arrow(
                    ax, (rank + 0.5, rounds - r + 0.22), (rank + 2**r + 0.5, rounds - r - 0.22), RED
                )
        ax.text(
            -0.1,
            rounds - r + 0.5,
            f"after round {r - 1}" if r else "start",
            ha="right",
            va="center",
            fontsize=8,
        )
    ax.set_title(f"After {rounds} rounds, all {ranks} ranks hold the values")
    return figure


def ring(ranks):
    """Draw what each rank holds before and after each step of a ring all-reduce, piece by piece."""
    steps = []
    for step in range(2 * (ranks - 1)):
        adds = step < ranks - 1
        messages = [(rank, (rank + 1) % ranks, (rank - step) % ranks) for rank in range(ranks)]
        steps.append((f"step {step}\n{'reduce-scatter' if adds else 'all-gather'}", adds, messages))
    return _held_pieces(
        _sent(ranks, steps),
        f"One piece per rank and step: after {len(steps)} steps all hold the sum",
    )


def halving(ranks):
    """Draw what each rank holds before and after each step of recursive halving and doubling."""
    steps, distances = [], [ranks >> k for k in range(1, ranks.bit_length())]
    for step, distance in enumerate([*distances, *reversed(distances)]):
        adds, messages = step < len(distances), []
        for rank in range(ranks):
            partner = rank ^ distance
            first = (rank if adds else partner) // distance * distance
            messages += [(partner, rank, piece) for piece in range(first, first + distance)]
        steps.append(
            (f"step {step}, distance {distance}\n{'halve' if adds else 'double'}", adds, messages)
        )
    return _held_pieces(
        _sent(ranks, steps), f"Half, then a quarter: after {len(steps)} steps all hold the sum"
    )


def _sent(ranks, steps):
    """The columns of `_held_pieces` for `steps`: (title, whether arrivals are added, [(source,
    target, piece)]).
    """
    holds = [[{rank} for _ in range(ranks)] for rank in range(ranks)]
    columns = [("at the start", holds, set())]
    for title, adds, messages in steps:
        before, holds = holds, [list(row) for row in holds]
        for source, target, piece in messages:
            holds[target][piece] = before[source][piece] | (
                before[target][piece] if adds else set()
            )
        columns.append((title, holds, {(target, piece) for _, target, piece in messages}))
    return columns


def _held_pieces(columns, finding):
    """Draw columns (title, [rank][piece] -> set of ranks whose values it sums, {(rank, piece) that
    just arrived}).
    """
    ranks, wide = len(columns[0][1]), 1 / (len(columns[0][1]) + 0.35)
    figure, ax = canvas(8.6, 1.0 + 0.42 * ranks, len(columns) + 0.45, ranks + 1.3)
    ax.set_title(finding)
    for column, (title, holds, arrived) in enumerate(columns):
        ax.text(column + 0.9, ranks + 0.75, title, ha="center", va="center", fontsize=8, color=GREY)
        for rank, row in enumerate(holds):
            for piece, values in enumerate(row):
                color = GREEN if len(values) == ranks else BLUE if len(values) > 1 else "#999999"
                x, y = column + 0.9 + (piece - (ranks - 1) / 2) * wide, ranks - rank - 0.4
                new = (rank, piece) in arrived
                frame = dict(fc=color, ec="black" if new else "white", lw=1.2, zorder=int(new))
                ax.add_patch(Rectangle((x - wide / 2, y - 0.3), wide, 0.6, **frame))
                text = "all" if len(values) > 3 else "+".join("abcdefgh"[v] for v in sorted(values))
                ax.text(x, y, text, ha="center", va="center", fontsize=8, color="white", zorder=3)
    for rank in range(ranks):
        ax.text(
            0.3, ranks - rank - 0.4, f"rank {rank}", ha="right", va="center", fontsize=8, color=GREY
        )
    return figure


def crossover(measured, predicted, title):
    """Draw seconds of each all-reduce over the bytes: predictions as lines, virtual times as dots.

    Args:
        measured, predicted: {bytes: {variant: seconds}}.
    """
    figure, ax = axes(7.0, 3.6)
    for size, name, color in zip((9, 7, 5, 3), next(iter(measured.values())), COLORS, strict=False):
        ax.plot(
            list(predicted),
            [1e3 * s[name] for s in predicted.values()],
            color=color,
            lw=1.3,
            label=name,
        )
        dots = [1e3 * s[name] for s in measured.values()]  # the smaller on top: some coincide
        ax.plot(list(measured), dots, "o", color=color, ms=size)
    ax.set(xscale="log", yscale="log", xlabel="bytes of the tensor", ylabel="ms",
           title=title)  # fmt: skip
    ax.legend(frameon=False, title="lines: formulas, dots: clocks", alignment="left")
    return figure


def _band(ax, x, seconds, label, color, scale=1.0, **style):
    """Draw the median of each row of `seconds` (points, rounds), with the lowest and highest value
    as bars.
    """
    middle, reach = middle_and_reach(seconds * scale)
    ax.errorbar(
        x, middle, reach, label=label, color=color, capsize=2, marker="o", ms=4, lw=1.4, **style
    )


def per_image(batch_sizes, curves, title):
    """Draw microseconds per image over the batch size; `curves` is {label: seconds (batch sizes,
    rounds)}.
    """
    figure, ax = axes(8.6, 3.4)
    for (label, seconds), color in zip(curves.items(), COLORS, strict=False):
        _band(ax, batch_sizes, seconds / torch.tensor(batch_sizes)[:, None], label, color, 1e6)
    ax.set_xscale("log", base=2)
    ax.set_yscale("log")
    ax.set(xlabel="batch size", ylabel="µs per image", title=title)
    legend_beside(ax)
    return figure


def busiest_bytes(devices, data_parallel, ring, model_bytes):
    """Draw the bytes of a step at the busiest device over the number of devices, for a star and a
    ring.

    Args:
        devices: numbers of devices.
        data_parallel, ring: bytes sent and received at the busiest of so many.
        model_bytes: bytes of the model, the unit of the axis.
    """
    figure, ax = axes(7.0, 3.2)
    curves = ("a star, its centre", data_parallel, RED), ("a ring, each rank", ring, BLUE)
    for name, counts, color in curves:
        ax.plot(
            devices, [count / model_bytes for count in counts], "o-", color=color, ms=4, label=name
        )
    ax.axhline(4, color=GREY, lw=1, ls=":", label="4 times the model")
    ax.set_xscale("log", base=2)
    ax.set_yscale("log", base=2)
    ax.yaxis.set_major_formatter("{x:g}×")
    ax.set_xticks(devices, [str(n) for n in devices])
    ax.set(xlabel="devices", ylabel="bytes per step / model",
           title="The centre of a star carries more with every device")  # fmt: skip
    ax.legend(frameon=False, fontsize=8)
    return figure


def bandwidth(sizes, curves, predicted, title):
    """Draw milliseconds of collectives over the bytes of the tensor, a panel each; what is
    predicted is dashed.

    Args:
        curves: {label: seconds (sizes, rounds)}.
        predicted: {label: seconds} for each size.
    """
    figure, *grid = axes(8.6, 2.6, columns=len(curves), sharex=True, sharey=True)
    for ax, (label, seconds) in zip(grid, curves.items(), strict=True):
        _band(ax, sizes, seconds, label, BLUE, 1e3)
        if label in predicted[0]:
            ax.plot(sizes, [1e3 * of[label] for of in predicted], color=RED, ls="--", lw=1)
        ax.set(xscale="log", yscale="log", title=label)
    grid[0].set_ylabel("ms")
    figure.supxlabel("bytes of the tensor", fontsize=9)
    figure.suptitle(title, fontsize=10)
    return figure


def step_ratios(names, seconds, title):
    """Draw step times relative to the last variant's in the same round: a dot per round, the median
    as a line.

    Args:
        seconds: float64 tensor (rounds, variants).
    """
    ratios = seconds / seconds[:, -1:]
    figure, ax = axes(7.0, 0.9 + 0.42 * len(names))
    for i in range(len(names)):
        ax.plot(
            ratios[:, i], [i] * len(ratios), "o", ms=4, alpha=0.6, color=COLORS[i % len(COLORS)]
        )
        middle = ratios[:, i].median().item()
        ax.plot([middle, middle], [i - 0.32, i + 0.32], color="black", lw=1.6)
        ax.text(middle, i - 0.34, f"{middle:.2f}", fontsize=8, ha="center", va="top")
    ax.set_yticks(range(len(names)), names)
    ax.set(xlabel=f"step time / that of {names[-1]}", title=title, ylim=(-0.8, len(names) - 0.5))
    ax.grid(axis="y", visible=False)
    return figure


def overlap_lanes(runs):
    """Draw what a wrapper did in one backward: hooks and launches, messages on the wire, and waits,
    as lanes over time.

    Args:
        runs: {title: {"hooks": [(parameter, seconds)], "sent": [(launched, started, ended,
            waited)]}}, times in seconds from the start of backward.
    """
    figure, ax = axes(8.6, 0.8 + 1.15 * len(runs))
    top, names, ends = 0, [], []
    for title, run in runs.items():
        last = 1e3 * max(t for _, t in run["hooks"])
        ax.barh(top, last, height=0.5, color=BLUE, alpha=0.35)
        ax.plot(
            [1e3 * t for _, t in run["hooks"]], [top] * len(run["hooks"]), "|", color=BLUE, ms=13
        )
        ax.plot([1e3 * m[0] for m in run["sent"]], [top] * len(run["sent"]), "v", color=RED, ms=5)
        end = 0.0
        for i, (_, started, ended, waited) in enumerate(1e3 * torch.tensor(run["sent"])):
            start, idle = max(waited, end), max(0.0, ended - max(waited, end))
            ax.barh(
                top + 1,
                ended - started,
                left=started,
                height=0.5,
                color=RED,
                alpha=0.9 - 0.3 * (i % 2),
            )
            ax.text(
                (started + ended) / 2,
                top + 1,
                str(i),
                ha="center",
                va="center",
                fontsize=7,
                color="white",
            )
            ax.barh(top + 2, idle, left=start, height=0.5, color=GREY)
            end = max(end, ended)
        ends.append(max(end, last))
        ax.text(
            0,
            top - 0.42,
            f" {title}: done after {ends[-1]:.0f} ms",
            fontsize=9,
            weight="bold",
            va="bottom",
        )
        names += [
            (top, "backward: hooks | launches ▾"),
            (top + 1, "on the wire"),
            (top + 2, "waiting"),
        ]
        top += 4
    ax.set_yticks([row for row, _ in names], [name for _, name in names], fontsize=8)
    first, *_, last = ends
    ax.set_title(
        f"{list(runs)[-1].capitalize()}: done in {last / first:.2f} of the time", fontsize=10
    )
    ax.set(xlabel="ms from the start of backward", ylim=(top - 1.4, -1.1))
    ax.grid(axis="y", visible=False)
    return figure


def overlap_sweep(layers, predicted, measured, flat, needs):
    """Draw the time until all gradients are averaged over the layers per bucket, one panel per
    wire.

    Args:
        layers: layers per bucket.
        predicted: {name of the wire: list, one value per bucket size}, in multiples of backward.
        measured: {the same: tensor (bucket sizes, rounds)}.
        flat: {the same: one message after backward}.
        needs: {the same: time on the wire}.
    """
    figure, *grid = axes(8.6, 3.2, columns=len(predicted))
    saved = {}
    highest = max(
        max(1 + needs[wire], flat[wire], float(measured[wire].max())) for wire in predicted
    )
    for ax, wire in zip(grid, predicted, strict=True):
        _band(ax, layers, measured[wire], "measured", BLUE)
        ax.plot(layers, predicted[wire], "x--", color=RED, lw=1, label="predicted")
        ax.axhline(flat[wire], color=GREY, lw=1.2, label="one message after backward")
        ax.axhline(max(1, needs[wire]), color=GREEN, lw=1, ls=":", label="the longer of the two")
        ax.set_xscale("log", base=2)
        ax.set_xticks(layers, [str(n) for n in layers])
        middle = measured[wire].median(1).values
        # of the time with one bucket, which cannot overlap
        saved[wire] = 1 - float(middle.min() / middle[-1])
        ax.set_title(f"{wire} wire ({needs[wire]:.1f} B): saves {saved[wire]:.0%}", fontsize=9)
        ax.set(xlabel="layers per bucket", ylim=(0, 1.05 * highest))
    grid[0].set_ylabel("time / backward alone")
    grid[-1].legend(frameon=False, fontsize=7, loc="lower left")
    figure.suptitle(
        f"Overlap saves most on the {max(saved, key=saved.get)} wire (B: backward)", fontsize=10
    )
    return figure


def scaling(ranks, strong, weak, cores, causes):
    """Draw the speed-up of N ranks, and what a step on N ranks is made of.

    Args:
        strong, weak: seconds of a step with one shared batch, and with a batch per rank, tensors
            (len(ranks), rounds).
        cores: how many ranks have a core or a GPU of their own.
        causes: {name: shares of the step on one rank, tensor (len(ranks) - 1,)}, which add up to
            the step on N ranks.
    """
    figure, left, right = axes(8.6, 3.4, columns=2)
    _band(left, ranks, strong[0].median() / strong, "one batch, shared", BLUE)
    _band(
        left,
        ranks,
        torch.tensor(ranks)[:, None] * weak[0].median() / weak,
        "a batch per rank",
        GREEN,
    )
    left.plot(ranks, ranks, color=GREY, ls="--", lw=1, label="N times")
    left.axvline(cores, color=GREY, lw=1, ls=":", label=f"as many ranks as cores: {cores}")
    left.set(xlabel="ranks", ylabel="images per second / those of one rank", xticks=ranks)
    left.set_title(
        f"{ranks[1]} ranks: {strong[0].median() / strong[1].median():.2f} times as fast with one batch",
        fontsize=10,
    )
    left.legend(frameon=False, fontsize=8)
    end, places = torch.zeros(len(ranks) - 1, dtype=torch.float64), torch.arange(len(ranks) - 1)
    for k, ((name, shares), color) in enumerate(
        zip(causes.items(), (GREY, *COLORS[:3]), strict=False)
    ):
        right.barh(
            places + 0.19 * (k - 1.5), shares, left=end, height=0.18, color=color, label=name
        )
        end = end + shares
    for row, total in zip(places.tolist(), end.tolist(), strict=True):
        right.plot([total, total], [row - 0.4, row + 0.4], color="black", lw=1.2)
    right.set_yticks(places, [f"N = {n}" for n in ranks[1:]])
    right.set(xlabel="step / step on one rank (black: all)", ylim=(len(places) - 0.5, -1.1))
    lost = {name: shares[0] for name, shares in causes.items() if name != "1/N"}
    right.set_title(f"largest loss on {ranks[1]} ranks: {max(lost, key=lost.get)}", fontsize=10)
    right.legend(
        frameon=False, fontsize=7, ncols=4, loc="upper center", columnspacing=0.8, handlelength=1
    )
    return figure


def sharded_memory(counted, predicted):
    """Draw what a rank keeps and sends in each stage: counted as bars, predicted as outlines.

    Args:
        counted, predicted: {stage: {"parameters", "gradients", "optimizer" and "sent": bytes}}.
    """
    figure, left, right = axes(8.6, 3.2, columns=2)
    names = ["DDP", *(f"stage {stage}" for stage in (1, 2, 3))]
    base = torch.zeros(len(counted), dtype=torch.float64)
    for what, color in zip(("parameters", "gradients", "optimizer"), COLORS, strict=False):
        heights = torch.tensor([counted[s][what] / 1e6 for s in counted], dtype=torch.float64)
        left.bar(names, heights, 0.6, bottom=base, color=color, label=what)
        base += heights
    megabytes = [sum(v for k, v in predicted[s].items() if k != "sent") / 1e6 for s in predicted]
    left.bar(names, megabytes, 0.72, fill=False, ec="black", ls="--", label="predicted")
    totals = base.tolist()
    left.set_ylabel("MB per rank")
    left.set_title(f"kept: {totals[0] / totals[-1]:.1f} times fewer in stage 3", fontsize=10)
    right.bar(
        names, [counted[s]["sent"] / 1e6 for s in counted], 0.6, color=COLORS[3], label="counted"
    )
    right.bar(
        names,
        [predicted[s]["sent"] / 1e6 for s in predicted],
        0.72,
        fill=False,
        ec="black",
        ls="--",
    )
    more = counted[3]["sent"] / counted[0]["sent"]
    right.set_ylabel("MB per rank")
    right.set_title(f"sent in one step: {more:.1f} times as many in stage 3", fontsize=10)
    for ax in (left, right):
        ax.grid(axis="x", visible=False)
    left.legend(frameon=False, fontsize=8)
    return figure
