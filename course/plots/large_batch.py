"""Figures of unit 03."""

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from course.measure.comparison import Interval
from course.plots.style import (
    BLUE,
    COLORS,
    GREEN,
    GREY,
    ORANGE,
    PINK,
    RED,
    arrow,
    axes,
    box,
    canvas,
    legend_beside,
    middle_and_reach,
    plain_log,
    rows,
)

History = Any  # training.recommender_loop.History: a figure does not import a training loop

# of fp16
SMALLEST_SUBNORMAL = 2.0**-24
SMALLEST_NORMAL = 2.0**-14
LARGEST = 65504.0

GUESSING = 10 / 101  # HR@10 of a random order of 101 candidates
WINDOW = 1.15  # last over first update of those that are a point of a loss curve
DRAWN_LOSS_MAX = 1e3
WARM_UP_STEPS = 5  # whose mean is a point of a loss curve


def neumf_diagram() -> Figure:
    """Draw the architecture of NeuMF: two pairs of embeddings, a product and a tower, one logit."""
    figure, ax = canvas(7.4, 4.5, 10, 7.0)
    users_x = 2.9
    items_x = 7.1
    box(ax, users_x, 0.5, "user id", GREY)
    box(ax, items_x, 0.5, "item id", GREY)
    tables = (
        (1.2, "p: GMF user", BLUE, users_x),
        (3.7, "q: GMF item", BLUE, items_x),
        (6.3, "p': MLP user", RED, users_x),
        (8.8, "q': MLP item", RED, items_x),
    )
    for x, text, color, id_x in tables:
        box(ax, x, 1.8, text, color)
        arrow(ax, (id_x, 0.85), (x, 1.44))
    box(ax, 2.45, 3.4, "element by element: p ⊙ q", BLUE, 3.6)
    box(ax, 7.55, 3.0, "concatenate", RED, 2.6)
    box(ax, 7.55, 3.8, "h: linear, ReLU", RED, 3.4)
    box(ax, 7.55, 4.6, "h: linear, ReLU", RED, 3.4)
    box(ax, 7.55, 5.4, "h: linear, ReLU", RED, 3.4)
    box(ax, 5.0, 6.4, "linear → logit of “will interact”", GREY, 4.2)
    arrows = (
        ((1.2, 2.14), (2.0, 3.06)),
        ((3.7, 2.14), (2.9, 3.06)),
        ((6.3, 2.14), (7.2, 2.66)),
        ((8.8, 2.14), (7.9, 2.66)),
        ((7.55, 3.34), (7.55, 3.46)),
        ((7.55, 4.14), (7.55, 4.26)),
        ((7.55, 4.94), (7.55, 5.06)),
        ((2.45, 3.74), (4.2, 6.06)),
        ((7.55, 5.74), (5.8, 6.06)),
    )
    for start, end in arrows:
        arrow(ax, start, end)
    ax.text(0.1, 3.4, "GMF", color=BLUE, weight="bold", ha="left", va="center")
    ax.text(9.9, 3.4, "MLP", color=RED, weight="bold", ha="right", va="center")
    return figure


def many_small_steps_or_one_large() -> Figure:
    """Draw `k` SGD steps and one step with `k` times the learning rate.

    Left on a flat parabola, right on a steep one.
    """
    k = 4
    lr = 0.12
    figure, left, right = axes(8.2, 3.3, columns=2, sharex=True)
    parabolas = (
        (left, 0.6, f"flat: one step of {k}α lands near {k} of α"),
        (right, 5.2, "steep: it overshoots"),
    )
    for ax, stiffness, title in parabolas:
        w = torch.linspace(-2.2, 3.1, 200)
        ax.plot(w, stiffness * w**2 / 2, color=GREY, lw=1.2)
        small = [-2.0]
        for _ in range(k):
            small.append(small[-1] * (1 - lr * stiffness))
        large = [-2.0, -2.0 * (1 - k * lr * stiffness)]
        ways = ((small, BLUE, f"{k} steps of α"), (large, RED, f"1 step of {k}α"))
        for weights, color, label in ways:
            path = torch.tensor(weights)
            ax.plot(path, stiffness * path**2 / 2, "o-", color=color, label=label, ms=5)
        ax.set(title=title, xlabel="weight w", ylabel="loss")
        ax.legend(frameon=False)
    return figure


def throughput(
    batch_sizes: Sequence[int],
    throughputs: Sequence[Interval] | Sequence[Sequence[float]],
    predicted_speedup: float | None = None,
    model: tuple[float, float] | None = None,
) -> Figure:
    """Draw samples per second against batch size, a prediction hollow.

    Args:
        throughputs: samples/s per batch size; or a list of repetitions each: median and range.
        predicted_speedup: how many times the samples/s of the smallest batch the learner expected
            of the largest one, or None.
        model: (c, s), seconds per update and per sample; the curve B / (c + sB) is drawn and its
            two limits.
    """
    figure, ax = axes()
    label = "measured, with its interval"
    if not isinstance(throughputs[0], Interval):
        throughputs = torch.tensor(throughputs, dtype=torch.float64)
        label = "measured, min to max"
    middle, reach = middle_and_reach(throughputs)
    points = dict(fmt="o", color=BLUE, capsize=4, label=label)
    ax.errorbar(batch_sizes, middle, reach, **points)
    if model:
        _draw_model(ax, batch_sizes[0], batch_sizes[-1], model)
    if predicted_speedup:
        hollow = dict(mfc="none", ms=11, color=RED, label="your prediction")
        ax.plot(batch_sizes[-1], predicted_speedup * middle[0].item(), "o", **hollow)
    ax.set_xscale("log", base=2)
    ax.set_yscale("log")
    larger = f"{batch_sizes[-1] / batch_sizes[0]:.0f} times the batch"
    faster = f"{middle[-1] / middle[0]:.0f} times the samples/s"
    ax.set(xlabel="batch size", ylabel="samples/s", title=f"{larger} has {faster}")
    ax.set_xticks(batch_sizes, [f"{batch:,}" for batch in batch_sizes])
    if model:
        _, per_sample = model
        highest = 2.5 / per_sample if per_sample else 2.5 * middle.max().item()
        ax.set_ylim(middle.min().item() / 1.5, highest)
    ax.legend(frameon=False, fontsize=8, loc="lower right")
    return figure


def _draw_model(ax: Axes, smallest: int, largest: int, model: tuple[float, float]) -> None:
    """Draw samples per second as B / (c + sB) and its two limits."""
    per_update, per_sample = model
    ends = (math.log10(smallest), math.log10(largest))
    batch = torch.logspace(*ends, 60, dtype=torch.float64)
    rate = batch / (per_update + per_sample * batch)
    ax.plot(batch, rate, "-", color=BLUE, lw=1.2, label="B / (c + sB)")
    if per_update:
        limit = batch / per_update
        ax.plot(batch, limit, ":", color=GREY, lw=1, label="B / c: only the update costs")
    if per_sample:
        ax.axhline(1 / per_sample, color=GREY, ls="--", lw=1, label="1 / s: only the samples cost")


def learning_rates(
    lrs: Mapping[str, Sequence[float]], title: str = "Learning rate of every update"
) -> Figure:
    """Draw {label: learning rates} against update, on a log axis."""
    figure, ax = axes(6.4, 3.0)
    for place, (label, values) in enumerate(lrs.items()):
        ax.plot(range(len(values)), values, ".-", color=color_of(label, place), label=label, lw=1.2)
    ax.set_yscale("log")
    ax.set(xlabel="update", ylabel="learning rate", title=title)
    ax.legend(frameon=False, fontsize=8)
    return figure


# one colour per way, the same in all figures; the first words that a label contains count
RECIPES = {
    "same learning rate": RED,
    "exponential": PINK,
    "linear, ": GREEN,  # as "ramp over half" in `warm_up`
    "fp32": BLUE,
    "the whole batch in bf16": GREEN,
    "the whole batch": BLUE,  # in fp32
    "micro-batches": PINK,
    "fp16 with a scaler": ORANGE,
    "fp16": RED,
    "bf16": GREEN,
    "1×": BLUE,
}


def color_of(label: str, place: int = 0) -> str:
    """The colour of a run: that of its recipe if the label names one, else the one at `place`."""
    for words, color in RECIPES.items():
        if words in label:
            return color
    return COLORS[place % len(COLORS)]


def accuracy(runs: Mapping[str, History], title: str, popularity: float, constant: float) -> Figure:
    """Draw training loss and HR@10 of {label: History} against updates, on log axes.

    A run whose loss was no longer finite ends in a cross. The dotted line is what guessing among
    101 candidates reaches.

    Args:
        popularity: HR@10 of the most popular items, a dashed line.
        constant: loss of the best constant prediction, a dashed line.
    """
    figure, left, right = axes(9.6, 3.6, columns=2)
    markers = "os^DvPX*"
    for place, ((label, history), marker) in enumerate(zip(runs.items(), markers, strict=False)):
        color = color_of(label, place)
        left.plot(*smoothed(history.losses), color=color, lw=1.2)
        updates = []
        hit_rates = []
        for epoch, hit_rate in zip(history.epoch, history.hit_rate, strict=True):
            if not math.isnan(hit_rate):
                updates.append(epoch * history.steps_per_epoch)
                hit_rates.append(hit_rate)
        if history.diverged:
            label += " (diverged)"
        right.plot(updates, hit_rates, f"-{marker}", color=color, ms=4, lw=1.5, label=label)
        if history.diverged:
            last = hit_rates[-1] if hit_rates else 0
            right.plot(history.updates, last, "x", color=color, ms=11, mew=3)
    right.axhline(GUESSING, color=GREY, ls=":", lw=1, label="guessing")
    right.axhline(popularity, color=GREY, ls="--", lw=1, label="most popular films")
    left.axhline(constant, color=GREY, ls="--", lw=1)
    small = dict(color=GREY, fontsize=8, ha="right", va="bottom")
    across = left.get_yaxis_transform()
    left.text(0.99, constant, "best constant", transform=across, **small)
    log_losses(left)
    left.set(xscale="log", xlabel="updates", ylabel="training loss, smoothed")
    right.set(xscale="log", xlabel="updates", ylabel="HR@10", ylim=(-0.03, None))
    figure.suptitle(title)
    handles, labels = right.get_legend_handles_labels()
    figure.legend(handles, labels, frameon=False, fontsize=9, loc="outside right upper")
    return figure


def log_losses(ax: Axes, most: float = DRAWN_LOSS_MAX) -> None:
    """Give `ax` a log axis for losses, with plain numbers; what is above `most` is left out."""
    ax.set_yscale("log")
    bottom, top = ax.get_ylim()
    ax.set_ylim(bottom, min(top, most))
    if 10 * bottom <= top <= 100 * bottom:  # else one or two ticks would have a number
        plain_log(ax.yaxis)
        return
    ax.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    ax.yaxis.set_minor_formatter(lambda value, _: f"{value:.1f}" if top < 10 * bottom else "")


def recipes(
    runs: Mapping[str, Sequence[History]], popularity: float, title: str | None = None
) -> Figure:
    """Draw the last HR@10 of {label: Histories}: a row per recipe, a dot per seed.

    Without a `title`, it counts the hollow dots. A dot is hollow if the whole last MLP layer was
    silent, a cross at 0 if the run diverged.
    """
    figure, ax = axes(7.4, 1.0 + 0.42 * len(runs))
    n_silent = 0
    n_runs = 0
    color = BLUE
    for place, histories in enumerate(runs.values()):
        n_runs += len(histories)
        for history in histories:
            if history.diverged:
                ax.plot(0, place, "x", color=color, ms=8, mew=2)
                continue
            is_silent = history.silent[-1] == 1
            n_silent += is_silent
            face = "none" if is_silent else color
            ax.plot(history.hit_rate[-1], place, "o", color=color, mfc=face, ms=7, mew=1.6)
    small = dict(color=GREY, fontsize=8, ha="center", va="bottom")
    for level, text in ((popularity, "popularity"), (GUESSING, "guessing")):
        ax.axvline(level, color=GREY, ls="--", lw=1)
        ax.text(level, 1.01, text, transform=ax.get_xaxis_transform(), **small)
    ax.set_yticks(range(len(runs)), runs)
    ax.set_ylim(len(runs) - 0.5, -0.5)
    ax.set(xlabel="HR@10 on validation, a dot per seed", xlim=(-0.02, None))
    title = title or f"{n_silent} of {n_runs} runs end with a silent last MLP layer (hollow)"
    ax.set_title(title, fontsize=10, pad=18)
    return figure


def smoothed(losses: Sequence[float]) -> tuple[list[float], list[float]]:
    """(updates, means) of the losses up to the first that is not finite.

    Each mean is of the updates between two borders that are WINDOW apart, whatever the length of
    the run: so two runs are smoothed alike where they have made as many updates.
    """
    updates = []
    means = []
    first = 0
    while first < len(losses):
        end = max(first + 1, math.floor((first + 1) * WINDOW) - 1)
        window = losses[first:end]
        if not all(map(math.isfinite, window)):
            break
        updates.append(math.sqrt((first + 1) * (first + len(window))))
        means.append(statistics.mean(window))
        first = end
    return updates, means


def gradient_histogram(
    groups: Mapping[str, Sequence[Tensor]], loss_scale: float, finding: str
) -> Figure:
    """Draw the share of values against magnitude in powers of two, a panel per group.

    Each group is drawn as it is and times `loss_scale`; 2**-24 is the smallest value of fp16,
    2**-14 its smallest normal one.

    Args:
        groups: {title: tensors}.
    """
    figure, *panels = axes(4.6 * len(groups), 3.5, columns=len(groups))
    power = math.log2(loss_scale)
    for ax, (title, tensors) in zip(panels, groups.items(), strict=True):
        flat = [tensor.detach().flatten() for tensor in tensors]
        values = torch.cat(flat).abs().double().cpu()
        exponents = values[values > 0].log2().floor()
        _draw_exponents(ax, exponents, len(values), BLUE, "as they are")
        scaled = f"times 2^{power:.0f}" if loss_scale != 1.0 else "times"
        _draw_exponents(ax, exponents + power, len(values), GREEN, scaled)
        _range_of_fp16(ax)
        ax.set(xlim=(-45, 18), xlabel="log2 of the magnitude", ylabel="values, %")
        zeros = 100 * (values == 0).double().mean()
        ax.set_title(f"{title}\n{zeros:.0f} % are exactly 0, not drawn", fontsize=9)
        ax.legend(frameon=False, fontsize=8, loc="center left")
    figure.suptitle(finding, fontsize=10)
    return figure


def _draw_exponents(ax: Axes, exponents: Tensor, n_values: int, color: str, label: str) -> None:
    """Draw a bar per exponent from -80 to 39: percent of `n_values`."""
    counts = torch.bincount((exponents + 80).long().clamp(0, 119), minlength=120)
    percent = 100 * (counts / max(n_values, 1))
    places = torch.arange(-80, 40) + 0.5
    ax.bar(places, percent, width=0.9, color=color, alpha=0.65, label=label)


def _range_of_fp16(ax: Axes) -> None:
    """Mark what fp16 makes of a magnitude: zero, subnormal, normal, infinite."""
    smallest = math.log2(SMALLEST_SUBNORMAL)
    normal = math.log2(SMALLEST_NORMAL)
    largest = math.log2(LARGEST)
    # below half of the smallest it is rounded to 0
    ax.axvspan(-60, smallest - 1, color=RED, alpha=0.12)
    ax.axvspan(smallest - 1, normal, color=ORANGE, alpha=0.15)
    ax.set_ylim(top=1.3 * ax.get_ylim()[1])
    top = ax.get_ylim()[1]
    for edge, text in ((smallest, "2^-24"), (normal, "2^-14"), (largest, "65504")):
        ax.axvline(edge, color=GREY, lw=0.8, ls="--")
        ax.text(edge - 0.3, 0.86 * top, text, color=GREY, fontsize=7, va="top", ha="right")
    ax.text(-35, 0.98 * top, "zero in fp16", color=RED, ha="center", va="top", fontsize=8)
    middle = (smallest + normal) / 2
    small = dict(color="#8a6200", ha="center", va="top", fontsize=7)
    ax.text(middle, 0.98 * top, "subnormal", **small)


def layer_ratios(
    ratios: Mapping[str, Mapping[str, float]],
    title: str = "How far the first update moves each tensor",
) -> Figure:
    """Draw the norm of the update over the norm of the weights, on a log axis, per parameter.

    Args:
        ratios: {label: {name: ratio}}.
    """
    figure, ax = axes(8.6, 3.8)
    names = list(next(iter(ratios.values())))
    places = range(len(names))
    for (label, of_name), color, marker in zip(ratios.items(), COLORS, "osD^", strict=False):
        values = [of_name.get(name, math.nan) for name in names]
        ax.plot(values, places, marker, color=color, label=label, ms=7)
    ax.set_xscale("log")
    ax.axvline(1, color=GREY, ls="--", lw=1, label="as long as the tensor itself")
    ax.set_yticks(places, names, fontsize=8)
    ax.set(xlabel="norm of the update / norm of the weights", title=title)
    legend_beside(ax)
    return figure


def warm_up(runs: Mapping[str, Tensor], levels: Mapping[str, float], title: str) -> Figure:
    """Draw the losses of {label: (steps, seeds)}: the middle seed as a line, all seeds as a band.

    Args:
        levels: {text: loss}, drawn as dashed lines, with the text where they end.
    """
    figure, ax = axes(8.0, 3.4)
    for (label, losses), color in zip(runs.items(), COLORS, strict=False):
        means = torch.stack([part.mean(0) for part in losses.split(WARM_UP_STEPS)])
        steps = [WARM_UP_STEPS * (k + 0.5) for k in range(len(means))]
        ax.plot(steps, means.median(1).values, color=color, lw=1.6, label=label)
        ax.fill_between(steps, means.amin(1), means.amax(1), color=color, alpha=0.18, lw=0)
    _draw_levels(ax.axhline, levels)
    for text, level in levels.items():
        # outside the axes, where no run crosses it
        where = dict(transform=ax.get_yaxis_transform(), ha="left", va="center")
        ax.text(1.01, level, text, color=GREY, fontsize=8, **where)
    ax.set(xlabel="update", ylabel="loss, nats per token", title=title)
    legend_beside(ax)
    return figure


def by_seed(
    found: Mapping[str, Sequence[float]], levels: Mapping[str, float], xlabel: str, title: str
) -> Figure:
    """Draw {label: one number per seed}, a row of dots per label, its middle as a bar.

    Args:
        levels: {text: number}, drawn as dashed lines.
    """
    figure, ax = axes(7.6, 1.1 + 0.34 * len(found))
    for place, values in enumerate(found.values()):
        ax.plot(values, [place] * len(values), "o", color=BLUE, ms=6, alpha=0.6, mew=0)
        middle = statistics.median(values)
        ax.plot([middle, middle], [place - 0.32, place + 0.32], color=RED, lw=2)
    _draw_levels(ax.axvline, levels)
    for text, level in levels.items():
        where = dict(transform=ax.get_xaxis_transform(), ha="center", va="bottom")
        ax.text(level, 1.01, text, color=GREY, fontsize=8, **where)
    rows(ax, found)
    ax.set_ylim(len(found) - 0.5, -0.5)
    ax.set(xlabel=f"{xlabel}, a dot per seed, a bar for the middle")
    ax.set_title(title, fontsize=10, pad=18)
    return figure


def _draw_levels(line: Callable[..., Any], levels: Mapping[str, float]) -> None:
    """Draw a dashed line at each level."""
    for level in levels.values():
        line(level, color=GREY, ls="--", lw=1)


def memory(
    batch_sizes: Sequence[int],
    activations: Mapping[str, Sequence[int]],
    weights: int,
    title: str,
) -> Figure:
    """Draw bytes kept for backward against batch size, a line per way.

    Args:
        activations: {way: bytes at each batch size}.
        weights: bytes of the weights, a level line.
    """
    figure, ax = axes(7.6)
    styles = zip(activations.items(), "os^Dv", strict=False)
    for place, ((label, values), marker) in enumerate(styles):
        megabytes = [value / 1e6 for value in values]
        color = color_of(label, place)
        ax.plot(batch_sizes, megabytes, f"-{marker}", color=color, ms=5, label=label)
    ax.axhline(weights / 1e6, color=GREY, ls="--", lw=1, label="the weights")
    ax.set_xscale("log", base=2)
    ax.set_yscale("log")
    ax.set(xlabel="batch size", ylabel="most MB kept for backward", title=title)
    legend_beside(ax)
    return figure


def loss_scale(scales: Sequence[float], skipped: Sequence[int]) -> Figure:
    """Draw the loss scale at every update, with the skipped ones marked.

    Args:
        skipped: their numbers, from 0.
    """
    figure, ax = axes(7.6, 2.8)
    ax.step(range(len(scales)), scales, where="post", color=BLUE, label="loss scale")
    at_skipped = [scales[i] for i in skipped]
    ax.plot(skipped, at_skipped, "x", color=RED, ms=8, label="skipped update")
    ax.set_yscale("log", base=2)
    share = f"{len(skipped)} of {len(scales)} updates"
    title = f"The scaler skips {share} and ends at 2^{math.log2(scales[-1]):.0f}"
    ax.set(xlabel="update", ylabel="loss scale", title=title)
    ax.legend(frameon=False)
    return figure


def final_losses(ends: Mapping[str, Sequence[float]], constant: float) -> Figure:
    """Draw the loss at the end of {way: a loss per seed}: a line per way, a dot per seed.

    Args:
        constant: loss of the best constant prediction, a dashed line.
    """
    figure, ax = axes(7.4, 1.0 + 0.42 * len(ends))
    for place, (way, losses) in enumerate(ends.items()):
        finite = [loss for loss in losses if math.isfinite(loss)]
        ax.plot(finite, [place] * len(finite), "o", color=color_of(way, place), ms=7, alpha=0.7)
    ax.axvline(constant, color=GREY, ls="--", lw=1)
    small = dict(color=GREY, fontsize=8, ha="center", va="bottom")
    ax.text(constant, 1.01, "a constant model", transform=ax.get_xaxis_transform(), **small)
    ax.set_xscale("log")
    plain_log(ax.xaxis)
    ax.set_yticks(range(len(ends)), ends)
    ax.set_ylim(len(ends) - 0.5, -0.5)
    learned = []
    for way, losses in ends.items():
        better = sum(loss < constant - 0.01 for loss in losses)
        learned.append(f"{way} {better} of {len(losses)}")
    ax.set_xlabel("training loss at the end, a dot per seed")
    ax.set_title("Runs that learn: " + ", ".join(learned), fontsize=9, pad=18)
    return figure


def time_to_target(
    seconds: Mapping[int, Sequence[float]],
    predicted: Callable[[float], float],
    fastest: float,
    title: str,
) -> Figure:
    """Draw seconds to the target against batch size, measured and predicted.

    Args:
        seconds: {batch: seconds of each seed, math.inf where the target was not reached}.
        predicted: seconds for a batch size; its curve is drawn.
        fastest: batch at the minimum of the curve, a dotted line; 0 or infinity if it has none.
    """
    figure, ax = axes(8.6, 3.6)
    for place, (batch, own) in enumerate(seconds.items()):
        reached = [value for value in own if value < math.inf]
        label = "" if place else "measured, a dot per seed"
        ax.plot([batch] * len(reached), reached, "o", color=BLUE, alpha=0.6, label=label)
    batches = torch.logspace(math.log2(min(seconds)), math.log2(max(seconds)), 60, base=2).tolist()
    curve = [predicted(batch) for batch in batches]
    ax.plot(batches, curve, color=GREY, lw=1.2, label="predicted")
    if 0 < fastest < math.inf:
        ax.axvline(fastest, color=GREY, ls=":", lw=1, label="predicted fastest batch")
    ax.set_xscale("log", base=2)
    ax.set_yscale("log")
    plain_log(ax.yaxis)
    ax.set_xticks(list(seconds), [f"{batch:,}" for batch in seconds], fontsize=8)
    ax.set(xlabel="batch size", ylabel="seconds to the target", title=title)
    legend_beside(ax)
    return figure
