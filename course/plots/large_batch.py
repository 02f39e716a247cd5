"""Figures of unit 03: what its experiments measured, and two diagrams.  Every function returns a Figure."""

import math

import torch

from course.plots.style import COLORS, GREY, arrow, axes, box, canvas

SMALLEST, SMALLEST_NORMAL, LARGEST = 2.0**-24, 2.0**-14, 65504.0  # of fp16: subnormal, normal, finite


def neumf_diagram():
    """The architecture of NeuMF: two pairs of embeddings, a product and a tower, one logit."""
    figure, ax = canvas(7.4, 4.0, 10, 6.2)
    gmf, mlp, grey = COLORS[0], COLORS[1], GREY
    for x, who in ((2.9, "user id"), (7.1, "item id")):
        box(ax, x, 0.5, who, grey)
    for x, text, color in (
        (1.2, "GMF user", gmf),
        (3.7, "GMF item", gmf),
        (6.3, "MLP user", mlp),
        (8.8, "MLP item", mlp),
    ):
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


def many_small_steps_or_one_large(k=4, lr=0.12):
    """`k` SGD steps beside one step with `k` times the learning rate: on a flat parabola, and on a steep one."""
    figure, left, right = axes(8.2, 3.3, columns=2)
    for ax, stiffness, reach, title in (
        (left, 0.6, 2.2, "flat: one step with k·lr lands near"),
        (right, 5.2, 3.1, "steep: it overshoots"),
    ):
        w = torch.linspace(-2.2, reach, 200)
        ax.plot(w, stiffness * w**2 / 2, color=GREY, lw=1.2)
        small = [-2.0]
        for _ in range(k):
            small.append(small[-1] * (1 - lr * stiffness))
        large = [-2.0, -2.0 * (1 - k * lr * stiffness)]
        for path, color, label in ((small, COLORS[0], f"{k} steps, lr"), (large, COLORS[1], f"1 step, {k}·lr")):
            path = torch.tensor(path)
            ax.plot(path, stiffness * path**2 / 2, "o-", color=color, label=label, ms=5)
        ax.set(title=title, xlabel="weight w", ylabel="loss")
        ax.legend(frameon=False)
    return figure


def throughput(batch_sizes, throughputs, predicted=()):
    """Samples per second against batch size: median and range of the repetitions, predictions as hollow markers.

    Args:
        throughputs: samples/s of each repetition, one list per batch size.
        predicted: samples/s that the learner expected, or None, per batch size.
    """
    figure, ax = axes()
    repetitions = [torch.tensor(t, dtype=torch.float64) for t in throughputs]
    middle = torch.stack([r.median() for r in repetitions])
    spread = torch.stack([torch.stack((m - r.min(), r.max() - m)) for m, r in zip(middle, repetitions, strict=True)]).T
    ax.errorbar(batch_sizes, middle, spread, fmt="o-", color=COLORS[0], capsize=4, label="measured, min to max")
    proportional = [middle[0] * b / batch_sizes[0] for b in batch_sizes]
    ax.plot(batch_sizes, proportional, "--", color=GREY, lw=1, label="in proportion to the batch")
    guesses = [(b, p) for b, p in zip(batch_sizes, predicted, strict=False) if p]
    if guesses:
        ax.plot(*zip(*guesses, strict=True), "o", mfc="none", ms=11, color=COLORS[1], label="your prediction")
    ax.set_xscale("log", base=2)
    ax.set_yscale("log")
    ax.set(xlabel="batch size", ylabel="samples/s", title="Training throughput")
    ax.set_xticks(batch_sizes, [f"{b:,}" for b in batch_sizes])
    ax.legend(frameon=False, loc="upper left")
    return figure


RECIPES = (  # one colour per recipe, the same in all figures; the first words that a label contains count
    ("same learning rate", COLORS[1]),
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


def accuracy(runs, title="Training loss and accuracy", k=10, popularity=None, constant=None):
    """Training loss of every update (log axis) beside HR@k, both against epoch; `runs` is {label: History}.

    A run whose loss was no longer finite ends in a cross.  The dotted line is what guessing among 101 candidates
    reaches.

    Args:
        popularity: HR@k of the most popular items, a dashed line; None draws none.
        constant: loss of the best constant prediction, a dashed line; None draws none.
    """
    figure, left, right = axes(9.6, 3.6, columns=2)
    for place, ((label, history), marker) in enumerate(zip(runs.items(), "os^DvPX*", strict=False)):
        color, per_epoch = color_of(label, place), max(1, history.steps_per_epoch)
        losses = smoothed(history.losses)
        left.plot([(i + 1) / per_epoch for i in range(len(losses))], losses, color=color, lw=1.2)
        points = [(e, h) for e, h in zip(history.epoch, history.hit_rate, strict=True) if not math.isnan(h)]
        epochs, hit_rates = zip(*points, strict=True) if points else ((), ())
        label += " (diverged)" if history.diverged else ""
        right.plot(epochs, hit_rates, f"-{marker}", color=color, ms=4, lw=1.5, label=label)
        if history.diverged:
            right.plot(history.epoch[-1], hit_rates[-1] if hit_rates else 0, "x", color=color, ms=11, mew=3)
    right.axhline(k / 101, color=GREY, ls=":", lw=1, label="guessing")
    if popularity is not None:
        right.axhline(popularity, color=GREY, ls="--", lw=1, label="most popular films")
    if constant is not None:
        left.axhline(constant, color=GREY, ls="--", lw=1)
        left.text(0.99, constant, "best constant", color=GREY, fontsize=8, ha="right", va="bottom",
                  transform=left.get_yaxis_transform())  # fmt: skip
    left.set_yscale("log")
    left.set(xlabel="epoch", ylabel="training loss per update")
    right.set(xlabel="epoch", ylabel=f"HR@{k}", ylim=(-0.03, None))
    figure.suptitle(title)
    figure.legend(*right.get_legend_handles_labels(), frameon=False, fontsize=9, loc="outside right upper")
    return figure


def smoothed(losses, points=200):
    """The losses, or means of equally many neighbours if there are more than `points`; up to the first not finite."""
    finite = torch.tensor(losses, dtype=torch.float64)
    finite = finite[: int(finite.isfinite().cummin(0).values.sum()) if len(finite) else 0]
    if len(finite) <= points:
        return finite.tolist()
    width = -(-len(finite) // points)
    means = torch.nn.functional.avg_pool1d(finite[None], width, ceil_mode=True)[0]
    return means.repeat_interleave(width)[: len(finite)].tolist()


def gradient_histogram(gradients, loss_scale=1.0):
    """Share of gradient values against magnitude in powers of two, before and after scaling, and the range of fp16."""
    figure, ax = axes(7.6)
    values = torch.cat([g.detach().flatten() for g in gradients]).abs().double().cpu()
    exponents = values[values > 0].log2().floor()
    for scale, color, label in (
        (1.0, COLORS[0], "as they are"),
        (loss_scale, COLORS[2], f"times 2^{math.log2(loss_scale):.0f}"),
    ):
        shifted = exponents + math.log2(scale)
        counts = torch.bincount((shifted + 80).long().clamp(0, 119), minlength=120) / len(values)
        ax.bar(torch.arange(-80, 40), 100 * counts, width=0.9, color=color, alpha=0.65, label=label)
        if loss_scale == 1.0:
            break
    ax.axvspan(-60, math.log2(SMALLEST) - 1.5, color=COLORS[1], alpha=0.12)
    ax.axvspan(math.log2(SMALLEST) - 1.5, math.log2(SMALLEST_NORMAL) - 0.5, color=COLORS[4], alpha=0.15)
    top = ax.get_ylim()[1]
    ax.text(-42, top * 0.97, "zero in fp16", color=COLORS[1], ha="center", va="top")
    ax.text(-19, top * 0.97, "subnormal", color="#8a6200", ha="center", va="top")
    ax.axvline(math.log2(LARGEST), color=GREY, lw=1, ls="--")
    ax.text(math.log2(LARGEST) - 0.5, top * 0.97, "largest", color=GREY, ha="right", va="top")
    zeros = 100 * (values == 0).double().mean()
    ax.set(
        xlim=(-60, 20),
        xlabel="log2 of |gradient|",
        ylabel="values, %",
        title=f"Gradients of one batch ({zeros:.0f} % are exactly 0, not drawn)",
    )
    ax.legend(frameon=False, loc="center left")
    return figure


def layer_ratios(ratios, title="How far one update moves each tensor"):
    """Norm of the update over norm of the weights, on a log axis, per parameter; `ratios` is {label: {name: ratio}}."""
    figure, ax = axes(7.6, 3.8)
    names = list(next(iter(ratios.values())))
    for (label, of), color, marker in zip(ratios.items(), COLORS, "osD^", strict=False):
        ax.plot([of[name] for name in names], range(len(names)), marker, color=color, label=label, ms=7)
    ax.set_xscale("log")
    ax.set_yticks(range(len(names)), names, fontsize=8)
    ax.set(xlabel="norm of the update / norm of the weights", title=title)
    ax.legend(frameon=False)
    return figure


def critical_batch(batch_sizes, updates, seconds):
    """Updates and seconds to a target against batch size, all axes logarithmic; None marks a target not reached."""
    figure, left, right = axes(8.2, 3.4, columns=2)
    for ax, values, label in ((left, updates, "updates to the target"), (right, seconds, "seconds to the target")):
        reached = [(b, v) for b, v in zip(batch_sizes, values, strict=True) if v]
        ax.plot([b for b, _ in reached], [v for _, v in reached], "o-", color=COLORS[0])
        for batch in [b for b, v in zip(batch_sizes, values, strict=True) if not v]:
            ax.axvline(batch, color=COLORS[1], ls=":", label="not reached")
        if ax is left and reached:
            first = reached[0]
            ax.plot(
                batch_sizes,
                [first[0] * first[1] / b for b in batch_sizes],
                "--",
                color=GREY,
                label="twice the batch, half the updates",
            )
        ax.set_xscale("log", base=2)
        ax.set_yscale("log")
        ax.set(xlabel="batch size", ylabel=label)
        handles, labels = ax.get_legend_handles_labels()
        if handles:
            ax.legend(
                *zip(*dict(zip(labels, zip(handles, labels, strict=True), strict=True)).values(), strict=True),
                frameon=False,
                fontsize=8,
            )
    return figure
