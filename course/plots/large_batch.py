"""Figures of unit 03."""

import math
import statistics

import torch

from course.plots.style import (
    COLORS,
    GREY,
    arrow,
    axes,
    box,
    canvas,
    legend_beside,
    middle_and_reach,
    plain_log,
)

# of fp16: subnormal, normal, finite
SMALLEST, SMALLEST_NORMAL, LARGEST = (
    2.0**-24,
    2.0**-14,
    65504.0,
)


def neumf_diagram():
    """The architecture of NeuMF: two pairs of embeddings, a product and a tower, one logit."""
    figure, ax = canvas(7.4, 4.0, 10, 6.2)
    gmf, mlp, grey = COLORS[0], COLORS[1], GREY
    for x, who in ((2.9, "user id"), (7.1, "item id")):
        box(ax, x, 0.5, who, grey)
    tables = (
        (1.2, "GMF user", gmf),
        (3.7, "GMF item", gmf),
        (6.3, "MLP user", mlp),
        (8.8, "MLP item", mlp),
    )
    for x, text, color in tables:
        box(ax, x, 1.8, text, color)
        arrow(ax, (2.9 if "user" in text else 7.1, 0.85), (x, 1.44))
    box(ax, 2.45, 3.4, "element by element: u ⊙ i", gmf, 3.6)
    box(ax, 7.55, 3.0, "concatenate", mlp, 2.6)
    for y, text in ((3.8, "linear, ReLU (dropout)"), (4.6, "narrower and narrower ...")):
        box(ax, 7.55, y, text, mlp, 3.4)
    box(ax, 5.0, 5.6, "linear → logit of “will interact”", grey, 4.2)
    for start, end in (((1.2, 2.14), (2.0, 3.06)), ((3.7, 2.14), (2.9, 3.06)), ((6.3, 2.14), (7.2, 2.66)),
                       ((8.8, 2.14), (7.9, 2.66)), ((7.55, 3.34), (7.55, 3.46)), ((7.55, 4.14), (7.55, 4.26)),
                       ((2.45, 3.74), (4.2, 5.26)), ((7.55, 4.94), (5.8, 5.26))):  # fmt: skip
        arrow(ax, start, end)
    ax.text(0.1, 3.4, "GMF", color=gmf, weight="bold", ha="left", va="center")
    ax.text(9.9, 3.4, "MLP", color=mlp, weight="bold", ha="right", va="center")
    return figure


def many_small_steps_or_one_large():
    """`k` SGD steps beside one step with `k` times the learning rate: on a flat parabola, and on a
    steep one.
    """
    k, lr = 4, 0.12
    figure, left, right = axes(8.2, 3.3, columns=2, sharex=True, sharey=True)
    parabolas = (
        (left, 0.6, 3.1, "flat: one step with k·lr lands near"),
        (right, 5.2, 3.1, "steep: it overshoots"),
    )
    for ax, stiffness, reach, title in parabolas:
        w = torch.linspace(-2.2, reach, 200)
        ax.plot(w, stiffness * w**2 / 2, color=GREY, lw=1.2)
        small = [-2.0]
        for _ in range(k):
            small.append(small[-1] * (1 - lr * stiffness))
        large = [-2.0, -2.0 * (1 - k * lr * stiffness)]
        for path, color, label in (
            (small, COLORS[0], f"{k} steps, lr"),
            (large, COLORS[1], f"1 step, {k}·lr"),
        ):
            path = torch.tensor(path)
            ax.plot(path, stiffness * path**2 / 2, "o-", color=color, label=label, ms=5)
        ax.set(title=title, xlabel="weight w", ylabel="loss")
        ax.legend(frameon=False)
    return figure


def throughput(batch_sizes, throughputs, predicted=(), model=None):
    """Samples per second against batch size: median and range of the repetitions, predictions as
    hollow markers.

    Args:
        throughputs: samples/s of each repetition, one list per batch size.
        predicted: {batch size: samples/s that the learner expected, or None}.
        model: (c, s), seconds per update and per sample; the curve B / (c + sB) is drawn and its
            two limits.
    """
    figure, ax = axes()
    middle, reach = middle_and_reach(torch.tensor(throughputs, dtype=torch.float64))
    ax.errorbar(
        batch_sizes,
        middle,
        reach,
        fmt="o",
        color=COLORS[0],
        capsize=4,
        label="measured, min to max",
    )
    times = f"{batch_sizes[-1] / batch_sizes[0]:.0f} times the batch has {middle[-1] / middle[0]:.0f} times the samples/s"
    if model:
        fixed, each = model
        curve = torch.logspace(
            math.log10(batch_sizes[0]), math.log10(batch_sizes[-1]), 60, dtype=torch.float64
        )
        ax.plot(
            curve,
            curve / (fixed + each * curve),
            "-",
            color=COLORS[0],
            lw=1.2,
            label="B / (c + sB)",
        )
        ax.plot(curve, curve / fixed, ":", color=GREY, lw=1, label="B / c: only the update costs")
        ax.axhline(1 / each, color=GREY, ls="--", lw=1, label="1 / s: only the samples cost")
    guesses = [(batch, guess) for batch, guess in dict(predicted).items() if guess]
    if guesses:
        ax.plot(
            *zip(*guesses, strict=True),
            "o",
            mfc="none",
            ms=11,
            color=COLORS[1],
            label="your prediction",
        )
    ax.set_xscale("log", base=2)
    ax.set_yscale("log")
    ax.set(xlabel="batch size", ylabel="samples/s", title=times)
    ax.set_xticks(batch_sizes, [f"{b:,}" for b in batch_sizes])
    if model:
        ax.set_ylim(middle.min().item() / 1.5, 2.5 / model[1])
    ax.legend(frameon=False, fontsize=8, loc="lower right")
    return figure


def learning_rates(lrs, title="Learning rate of every update"):
    """Learning rate against update, log axis; `lrs` is {label: list of floats}."""
    figure, ax = axes(6.4, 3.0)
    for place, (label, values) in enumerate(lrs.items()):
        ax.plot(range(len(values)), values, ".-", color=color_of(label, place), label=label, lw=1.2)
    ax.set_yscale("log")
    ax.set(xlabel="update", ylabel="learning rate", title=title)
    ax.legend(frameon=False, fontsize=8)
    return figure


# one colour per recipe, the same in all figures; the first words that a label contains count
RECIPES = (
    ("same learning rate", COLORS[1]),
    ("square-root", COLORS[4]),
    ("ramp of 1", COLORS[3]),
    ("ramp of", "#b15928"),
    ("LARS, constant", COLORS[3]),
    ("LARS, weight decay", COLORS[1]),
    ("bf16", COLORS[2]),
    ("fp16 alone", COLORS[0]),
    ("loss / 2^14", COLORS[1]),
    ("your scaler", COLORS[3]),
    ("LARS", "#000000"),
    ("Adam", COLORS[5]),
    ("exponential", COLORS[3]),
    ("linear, ", COLORS[4]),  # a linear warm-up
    ("decay", "#8c6d31"),
    ("linear rule", COLORS[2]),
    ("1×", COLORS[0]),
)


def color_of(label, place=0):
    """The colour of a run: that of its recipe if the label names one, else the one at `place`."""
    return next((color for words, color in RECIPES if words in label), COLORS[place % len(COLORS)])


def accuracy(runs, title, popularity, constant=None):
    """Training loss of every update (log axis) beside HR@10, both against epoch; `runs` is {label:
    History}.

    A run whose loss was no longer finite ends in a cross. The dotted line is what guessing among
    101 candidates reaches.

    Args:
        popularity: HR@10 of the most popular items, a dashed line.
        constant: loss of the best constant prediction, a dashed line; None draws none.
    """
    figure, left, right = axes(9.6, 3.6, columns=2)
    for place, ((label, history), marker) in enumerate(zip(runs.items(), "os^DvPX*", strict=False)):
        color, per_epoch = color_of(label, place), max(1, history.steps_per_epoch)
        losses = smoothed(history.losses)
        left.plot([(i + 1) / per_epoch for i in range(len(losses))], losses, color=color, lw=1.2)
        epochs = [
            e for e, h in zip(history.epoch, history.hit_rate, strict=True) if not math.isnan(h)
        ]
        hit_rates = [h for h in history.hit_rate if not math.isnan(h)]
        label += " (diverged)" if history.diverged else ""
        right.plot(epochs, hit_rates, f"-{marker}", color=color, ms=4, lw=1.5, label=label)
        if history.diverged:
            right.plot(
                history.epoch[-1], hit_rates[-1] if hit_rates else 0, "x", color=color, ms=11, mew=3
            )
    right.axhline(10 / 101, color=GREY, ls=":", lw=1, label="guessing")
    right.axhline(popularity, color=GREY, ls="--", lw=1, label="most popular films")
    if constant is not None:
        left.axhline(constant, color=GREY, ls="--", lw=1)
        left.text(0.99, constant, "best constant", color=GREY, fontsize=8, ha="right", va="bottom",
                  transform=left.get_yaxis_transform())  # fmt: skip
    log_losses(left)
    left.set(xlabel="epoch", ylabel="training loss per update")
    right.set(xlabel="epoch", ylabel="HR@10", ylim=(-0.03, None))
    figure.suptitle(title)
    figure.legend(
        *right.get_legend_handles_labels(), frameon=False, fontsize=9, loc="outside right upper"
    )
    return figure


def log_losses(ax, most=1e3):
    """Give `ax` a log axis for losses, with plain numbers; what is above `most` is left out."""
    ax.set_yscale("log")
    bottom, top = ax.get_ylim()
    ax.set_ylim(bottom, min(top, most))
    if 10 * bottom <= top <= 100 * bottom:  # else one or two ticks would have a number
        plain_log(ax.yaxis)
        return
    ax.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    ax.yaxis.set_minor_formatter(lambda value, _: f"{value:.1f}" if top < 10 * bottom else "")


def recipes(runs, popularity, title=None):
    """Last HR@10 of every run, a line per recipe of `runs` {label: list of History}, a dot per
    seed.

    Without a `title`, it counts the hollow dots. A dot is hollow if the whole last MLP layer was
    silent, a cross at 0 if the run diverged.
    """
    figure, ax = axes(7.4, 1.0 + 0.42 * len(runs))
    silent = 0
    for place, (label, histories) in enumerate(runs.items()):
        color = color_of(label, place)
        for history in histories:
            if history.diverged:
                ax.plot(0, place, "x", color=color, ms=8, mew=2)
                continue
            dead = history.silent[-1] == 1
            silent += dead
            ax.plot(
                history.hit_rate[-1],
                place,
                "o",
                color=color,
                mfc="none" if dead else color,
                ms=7,
                mew=1.6,
            )
    for level, text in ((popularity, "popularity"), (10 / 101, "guessing")):
        ax.axvline(level, color=GREY, ls="--", lw=1)
        ax.text(
            level,
            1.01,
            text,
            color=GREY,
            fontsize=8,
            ha="center",
            va="bottom",
            transform=ax.get_xaxis_transform(),
        )
    ax.set_yticks(range(len(runs)), runs)
    ax.set_ylim(len(runs) - 0.5, -0.5)
    ax.set(xlabel="HR@10 on validation, a dot per seed", xlim=(-0.02, None))
    whole = sum(len(histories) for histories in runs.values())
    title = title or f"{silent} of {whole} runs end with a silent last MLP layer (hollow)"
    ax.set_title(title, fontsize=10, pad=18)
    return figure


def smoothed(losses, points=200):
    """The losses, or means of equally many neighbours if there are more than `points`; up to the
    first not finite.
    """
    finite = torch.tensor(losses, dtype=torch.float64)
    finite = finite[: int(finite.isfinite().cummin(0).values.sum()) if len(finite) else 0]
    if len(finite) <= points:
        return finite.tolist()
    width = -(-len(finite) // points)
    means = torch.nn.functional.avg_pool1d(finite[None], width, ceil_mode=True)[0]
    return means.repeat_interleave(width)[: len(finite)].tolist()


def gradient_histogram(groups, loss_scale, finding):
    """Share of values against magnitude in powers of two, one panel per group of `groups` {title:
    list of tensors}.

    Each is drawn as it is and times `loss_scale`; 2**-24 is the smallest value of fp16, 2**-14 its
    smallest normal one.
    """
    figure, *panels = axes(4.6 * len(groups), 3.5, columns=len(groups))
    for ax, (title, tensors) in zip(panels, groups.items(), strict=True):
        values = torch.cat([t.detach().flatten() for t in tensors]).abs().double().cpu()
        exponents = values[values > 0].log2().floor()
        for scale, color, label in (
            (1.0, COLORS[0], "as they are"),
            (loss_scale, COLORS[2], "times"),
        ):
            shifted = exponents + math.log2(scale)
            counts = torch.bincount((shifted + 80).long().clamp(0, 119), minlength=120) / max(
                len(values), 1
            )
            label += f" 2^{math.log2(scale):.0f}" if scale != 1.0 else ""
            ax.bar(
                torch.arange(-80, 40) + 0.5,
                100 * counts,
                width=0.9,
                color=color,
                alpha=0.65,
                label=label,
            )
        _range_of_fp16(ax)
        ax.set(xlim=(-45, 18), xlabel="log2 of the magnitude", ylabel="values, %")
        ax.set_title(
            f"{title}\n{100 * (values == 0).double().mean():.0f} % are exactly 0, not drawn",
            fontsize=9,
        )
        ax.legend(frameon=False, fontsize=8, loc="center left")
    figure.suptitle(finding, fontsize=10)
    return figure


def _range_of_fp16(ax):
    """Mark what fp16 makes of a magnitude: zero, subnormal, normal, infinite."""
    smallest, normal, largest = (math.log2(edge) for edge in (SMALLEST, SMALLEST_NORMAL, LARGEST))
    # below half of the smallest it is rounded to 0
    ax.axvspan(-60, smallest - 1, color=COLORS[1], alpha=0.12)
    ax.axvspan(smallest - 1, normal, color=COLORS[4], alpha=0.15)
    ax.set_ylim(top=1.3 * ax.get_ylim()[1])
    top = ax.get_ylim()[1]
    for edge, text in ((smallest, "2^-24"), (normal, "2^-14"), (largest, "65504")):
        ax.axvline(edge, color=GREY, lw=0.8, ls="--")
        ax.text(edge - 0.3, 0.86 * top, text, color=GREY, fontsize=7, va="top", ha="right")
    ax.text(-35, 0.98 * top, "zero in fp16", color=COLORS[1], ha="center", va="top", fontsize=8)
    ax.text(
        (smallest + normal) / 2,
        0.98 * top,
        "subnormal",
        color="#8a6200",
        ha="center",
        va="top",
        fontsize=7,
    )


def layer_ratios(ratios, title="How far the first update moves each tensor"):
    """Norm of the update over norm of the weights, on a log axis, per parameter; `ratios` is
    {label: {name: ratio}}.
    """
    figure, ax = axes(8.6, 3.8)
    names = list(next(iter(ratios.values())))
    for (label, of), color, marker in zip(ratios.items(), COLORS, "osD^", strict=False):
        ax.plot(
            [of.get(name, math.nan) for name in names],
            range(len(names)),
            marker,
            color=color,
            label=label,
            ms=7,
        )
    ax.set_xscale("log")
    ax.axvline(1, color=GREY, ls="--", lw=1, label="as long as the tensor itself")
    ax.set_yticks(range(len(names)), names, fontsize=8)
    ax.set(xlabel="norm of the update / norm of the weights", title=title)
    legend_beside(ax)
    return figure


def updates_against_batch(runs, predicted, title):
    """Updates and samples to the target against batch size: median and range over the seeds, and
    the prediction.

    Args:
        runs: {batch: list of updates, math.inf where the target was not reached}.
        predicted: (fewest updates, critical batch) of the curve that is drawn.
    """
    figure, left, right = axes(9.6, 3.8, columns=2)
    reached = {
        batch: [u for u in own if u < math.inf]
        for batch, own in runs.items()
        if min(own) < math.inf
    }
    fewest, critical = predicted
    batches = torch.logspace(math.log2(min(runs)), math.log2(max(runs)), 50, base=2)
    for ax, power, label in (
        (left, 0, "updates to the target"),
        (right, 1, "samples to the target"),
    ):
        ends = [[u * batch**power for u in (min(own), statistics.median(own), max(own))]
                for batch, own in reached.items()]  # fmt: skip
        low, middle, high = torch.tensor(ends, dtype=torch.float64).view(-1, 3).T
        ax.errorbar(list(reached), middle, [middle - low, high - middle], fmt="o", color=COLORS[0], capsize=3, ms=5,
                    label="measured, range of seeds")  # fmt: skip
        ax.plot(
            batches,
            fewest * (1 + critical / batches) * batches**power,
            color=GREY,
            lw=1,
            label="predicted",
        )
        ax.axvline(critical, color=GREY, ls=":", lw=1)
        for place, batch in enumerate(batch for batch, own in runs.items() if max(own) == math.inf):
            ax.plot(batch, 0.97, "o", mfc="none", color=COLORS[0], transform=ax.get_xaxis_transform(),
                    label="" if place else "not reached by all")  # fmt: skip
        ax.set_xscale("log", base=2)
        ax.set_yscale("log")
        ax.set(xlabel="batch size", ylabel=label)
    left.legend(frameon=False, fontsize=8)
    figure.suptitle(title, fontsize=10)
    return figure


def memory(batch_sizes, activations, weights, title):
    """Bytes kept for backward against batch size, a line per way of `activations` {label: list},
    and `weights`.
    """
    figure, ax = axes(7.6)
    for (label, values), color, marker in zip(
        activations.items(), (*COLORS, "#000000"), "os^Dv", strict=False
    ):
        ax.plot(
            batch_sizes, [v / 1e6 for v in values], f"-{marker}", color=color, ms=5, label=label
        )
    ax.axhline(weights / 1e6, color=GREY, ls="--", lw=1, label="the weights")
    ax.set_xscale("log", base=2)
    ax.set_yscale("log")
    ax.set(xlabel="batch size", ylabel="most MB kept for backward", title=title)
    legend_beside(ax)
    return figure


def loss_scale(scales, skipped):
    """The loss scale at every update, with the skipped ones marked; `skipped` holds their numbers,
    from 0.
    """
    figure, ax = axes(7.6, 2.8)
    title = f"The scaler skips {len(skipped)} of {len(scales)} updates and ends at 2^{math.log2(scales[-1]):.0f}"
    ax.step(range(len(scales)), scales, where="post", color=COLORS[0], label="loss scale")
    ax.plot(
        skipped, [scales[i] for i in skipped], "x", color=COLORS[1], ms=8, label="skipped update"
    )
    ax.set_yscale("log", base=2)
    ax.set(xlabel="update", ylabel="loss scale", title=title)
    ax.legend(frameon=False)
    return figure
