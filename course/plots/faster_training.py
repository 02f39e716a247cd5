"""Figures of unit 06."""

import math

from course.measure.timing import DID_NOT_HELP, HELPED, NOT_DECIDED, NOT_MEASURED, SLOWER
from course.plots.style import COLORS, GREY, axes, plain_log, rows, ticks_at

VERDICT_COLORS = {
    HELPED: COLORS[2], SLOWER: COLORS[1], DID_NOT_HELP: COLORS[0], NOT_DECIDED: "#999999", NOT_MEASURED: GREY
}  # fmt: skip
MISSED = 1.02  # times as long, from which part 4 says that advice helped

# part 1, find out what is slow


def phase_shares(shares):
    """A group of bars per phase, one for each training, with its share at the end.

    Args:
        shares: {training: {phase: share, ..., "other": share}}.
    """
    figure, ax = axes(7.4, 3.6)
    phases = list(next(iter(shares.values())))
    for k, (name, measured) in enumerate(shares.items()):
        places = [i + 0.38 * (k - 0.5) for i in range(len(phases))]
        ax.barh(places, measured.values(), height=0.36, color=COLORS[k])
        for y, share in zip(places, measured.values(), strict=True):
            ax.annotate(f"{100 * share:.1f} %", (share, y), xytext=(4, 0), textcoords="offset points", va="center",
                        fontsize=8, color=COLORS[k])  # fmt: skip
        ax.text(
            0.98, 0.06 + 0.09 * (1 - k), name, color=COLORS[k], transform=ax.transAxes, ha="right"
        )
    rows(ax, phases)
    data = " and ".join(f"{100 * measured['data']:.0f} %" for measured in shares.values())
    ax.set(xlabel="share of the time", title=f"Getting the data takes {data} of the time")
    ax.margins(x=0.12)
    return figure


def advice_ratios(compared, xlabel, control, noise):
    """A row per advice or rung: median speed-up as a dot, quartiles of the rounds as a line,
    coloured by the verdict.

    Args:
        compared: {advice: timing.Comparison}.
        control: the row in which nothing changed.
        noise: how far its quartiles are from 1: the grey band.
    """
    figure, ax = axes(8.0, 1.0 + 0.27 * len(compared))
    ax.axvspan(
        1 / (1 + noise), 1 + noise, color=GREY, alpha=0.15, lw=0, label="noise of the control"
    )
    for y, (name, comparison) in enumerate(compared.items()):
        color = "black" if name == control else VERDICT_COLORS[comparison.verdict]
        if comparison.verdict == NOT_MEASURED:
            ax.annotate(
                NOT_MEASURED,
                (1, y),
                xytext=(6, 0),
                textcoords="offset points",
                va="center",
                color=color,
            )
            continue
        ax.plot(comparison.spread, [y, y], color=color, lw=2)
        ax.plot(comparison.ratio, y, "o", color=color, ms=5)
    for verdict in (HELPED, SLOWER, DID_NOT_HELP, NOT_DECIDED):
        ax.plot([], [], "o-", color=VERDICT_COLORS[verdict], label=verdict)
    ax.axvline(1, color=GREY, lw=1, ls=":")
    ax.set(yticks=range(len(compared)), yticklabels=compared, xscale="log", xlabel=xlabel)
    ticks = [0.5, 0.7, 0.8, 0.9, 1, 1.2, 1.4, 1.7, 2, 3, 5, 10, 20]
    low, high = ax.get_xlim()
    shown = [tick for tick in ticks if low <= tick <= high]
    ticks_at(ax, shown, "{:g}")
    ax.set_ylim(len(compared) - 0.5, -0.5)
    ax.legend(ncols=5, frameon=False, loc="lower center", bbox_to_anchor=(0.4, 1.0), fontsize=8)
    verdicts = [
        pair.verdict for name, pair in compared.items() if name != control and not pair.reason
    ]
    figure.suptitle(
        f"{verdicts.count(HELPED)} of {len(verdicts)} helped, {verdicts.count(SLOWER)} made it slower"
    )
    return figure


def loss_curves(curves, ylabel, top=3.5):
    """Loss against step, a line per setting through the mean of the seeds, named where it ends or
    leaves the figure.

    Args:
        curves: {setting: tensor (seeds, steps)}.
        top: highest loss that is drawn.
    """
    figure, ax = axes(7.4, 3.6)
    ends, diverged = [], []
    for color, (name, runs) in zip(COLORS, curves.items(), strict=False):
        mean, steps = runs.mean(0), range(1, runs.shape[1] + 1)
        gone = [step for step, loss in zip(steps, mean.tolist(), strict=True) if not loss < top]
        ax.plot(steps, mean.clamp(max=2 * top), color=color, lw=1.6, alpha=0.9)
        if gone and not mean[-1] < top:
            diverged.append(name)
            ax.annotate(f"{name}: diverges", (1, top), xycoords=("axes fraction", "data"), xytext=(5, -4),
                        textcoords="offset points", va="center", color=color, fontsize=9)  # fmt: skip
        else:
            ends.append((mean[-max(1, len(steps) // 5) :].mean().item(), name, color))
    place = -1.0
    for loss, name, color in sorted(ends):
        place = max(loss, place + top / 18)  # names do not cover each other
        ax.annotate(name, (len(steps), place), xytext=(5, 0), textcoords="offset points", va="center",
                    color=color, fontsize=9, annotation_clip=False)  # fmt: skip
    lowest = " and ".join(name for loss, name, _ in sorted(ends) if loss < 1.1 * min(ends)[0])
    title = f"Lowest loss at the end: {lowest}; diverged: {', '.join(diverged) or 'none'}"
    ax.set(xlabel="step", ylabel=ylabel, ylim=(0, top), title=title)
    return figure


# part 2, fewer steps


def loss_against_lr(lrs, losses, choice, grid):
    """Left the smoothed losses of a range test with the choice marked, right {learning rate:
    accuracy} of trainings.
    """
    figure, left, right = axes(8.4, 3.4, columns=2, sharex=True)
    left.plot(lrs, losses, color=COLORS[0])
    left.set(xscale="log", xlabel="learning rate", ylabel="smoothed loss", title="Range test")
    right.plot(list(grid), list(grid.values()), "o-", color=COLORS[0], ms=4)
    right.set(
        xlabel="learning rate, constant", ylabel="validation accuracy", title="Whole trainings"
    )
    for ax in (left, right):
        ax.axvline(choice, color=COLORS[1], ls="--")
    left.annotate("choice", (choice, max(losses)), xytext=(-4, 0), textcoords="offset points", ha="right",
                  color=COLORS[1])  # fmt: skip
    best, lowest = max(grid, key=grid.get), lrs[losses.index(min(losses))]
    figure.suptitle(
        f"The loss is lowest at {lowest:.2g}, the best of five learning rates is {best:.2g}"
    )
    return figure


def schedules(shapes):
    """Learning rate of each step, {name: learning rates}; in the inset the last tenth of the steps,
    logarithmic.
    """
    figure, ax = axes(7.4, 3.6)
    inset = ax.inset_axes([1.14, 0.06, 0.34, 0.4])
    steps = max(map(len, shapes.values()))
    for k, (color, (name, values)) in enumerate(zip(COLORS, shapes.items(), strict=False)):
        ax.plot(values, color=color, lw=1.6)
        last = range(steps - max(2, steps // 10), steps)
        inset.plot(last, [values[step] for step in last], color=color, lw=1.4)
        ax.text(
            1.12, 0.98 - 0.08 * k, name, color=color, transform=ax.transAxes, va="top", fontsize=9
        )
    ax.set(
        xlabel="step",
        ylabel="learning rate",
        title="One cycle and cosine end near zero, the others do not",
    )
    inset.set_yscale("log")
    inset.set_title("last tenth, logarithmic", fontsize=8)
    inset.tick_params(labelsize=7)
    inset.locator_params(axis="x", nbins=3)
    return figure


def accuracies(results):
    """Validation accuracy per contestant: a point per seed and a bar at their mean, {name:
    accuracies}.
    """
    figure, ax = axes(7.6, 0.36 * len(results) + 1.2)
    means = {name: sum(values) / len(values) for name, values in results.items()}
    for place, (name, values) in enumerate(results.items()):
        ax.plot(values, [place] * len(values), "o", color=COLORS[0], ms=5, alpha=0.7)
        ax.plot(2 * [means[name]], [place - 0.3, place + 0.3], color=COLORS[0], lw=2)
    rows(ax, results)
    ax.set(xlabel="validation accuracy (a dot per seed, a bar at the mean)",
           title=f"Ends highest: {max(means, key=means.get)}")  # fmt: skip
    return figure


def over_decay(decays, results):
    """Validation accuracy against decay, a line through the means and a point per seed, {name:
    [[accuracy]]}.
    """
    figure, ax = axes(6.6, 3.4)
    places = range(len(decays))
    for k, (color, (name, table)) in enumerate(zip(COLORS, results.items(), strict=False)):
        means = [sum(row) / len(row) for row in table]
        ax.plot(places, means, "-", color=color)
        for place, row in zip(places, table, strict=True):
            ax.plot([place] * len(row), row, "o", color=color, ms=4, alpha=0.6)
        ax.annotate(name, (places[-1], means[-1]), xytext=(6, 4 - 8 * k), textcoords="offset points", color=color,
                    annotation_clip=False)  # fmt: skip
    best = {
        name: decays[max(places, key=lambda k: sum(table[k]))] for name, table in results.items()
    }
    ax.set_xticks(places, [f"{decay:g}" for decay in decays])
    ax.set(xlabel="weight decay", ylabel="validation accuracy",
           title="Highest mean: " + ", ".join(f"{name} at {decay:g}" for name, decay in best.items()))  # fmt: skip
    return figure


def spikes(losses):
    """The loss of each step (logarithmic) in a panel per setting, {name: losses}.

    Args:
        losses: of "clean", "clean, clipped", "broken batch", "broken batch, clipped", in this
            order.
    """
    figure, *panels = axes(8.4, 3.0, columns=len(losses), sharey=True)
    for ax, (name, values) in zip(panels, losses.items(), strict=True):
        ax.plot(values, color=COLORS[1] if "broken" in name else COLORS[0], lw=1)
        ax.set_yscale("log")
        ax.set_title(name, fontsize=9)
        ax.set_xlabel("step")
    panels[0].set_ylabel("training loss")
    clean, _, broken, clipped = (sum(values[len(values) * 3 // 4 :]) for values in losses.values())
    title = f"Last quarter after a broken batch: {broken / clean:.1f} times the clean loss, with clipping"
    figure.suptitle(f"{title} {clipped / clean:.1f} times (first seed)", fontsize=10)
    return figure


def to_target(reached, target):
    """Steps and seconds until `target` against batch size, a line through the medians and a dot per
    run.

    Args:
        reached: {"scaled", "unscaled": {batch size: [(steps, seconds) of each seed]}}, infinite if
            never reached.
    """
    figure, *panels = axes(8.8, 3.6, columns=2, sharex=True)
    for ax, column, what in zip(panels, (0, 1), ("steps", "seconds"), strict=True):
        for color, (name, by_batch) in zip(COLORS, reached.items(), strict=False):
            medians = {
                b: sorted(run[column] for run in runs)[len(runs) // 2]
                for b, runs in by_batch.items()
            }
            shown = {b: value for b, value in medians.items() if value < float("inf")}
            ax.plot(list(shown), list(shown.values()), "-", color=color)
            for b, runs in by_batch.items():
                there = [run[column] for run in runs if run[column] < float("inf")]
                ax.plot([b] * len(there), there, "o", color=color, ms=4)
            if shown:
                last = max(shown)
                late = "" if last == max(medians) else f"\nnever above {last}"
                ax.annotate(f"{name}{late}", (last, shown[last]), xytext=(6, 0), textcoords="offset points",
                            color=color, va="center", fontsize=9, annotation_clip=False)  # fmt: skip
        ax.set(xscale="log", yscale="log", xlabel="batch size", ylabel=f"{what} to {target:.3f}")
        ax.margins(x=0.2)
        plain_log(ax.yaxis)
        ticks_at(ax, sorted({b for by_batch in reached.values() for b in by_batch}))
    middle = [
        {b: sorted(run[k] for run in runs)[len(runs) // 2] for b, runs in reached["scaled"].items()}
        for k in (0, 1)
    ]
    fewest, fastest = (
        " and ".join(str(b) for b in of if of[b] <= 1.1 * min(of.values())) for of in middle
    )
    figure.suptitle(
        f"Learning rate scaled: {fewest} needs the fewest steps, {fastest} the least time"
    )
    return figure


# part 4, memory for time, and the race


def memory_and_time(peaks, predicted, plain, longer, predicted_time):
    """Bytes kept and time of a step against the number of segments, measured and predicted.

    Args:
        peaks, predicted: {segments: most bytes kept at once}.
        plain: bytes that the model keeps without checkpointing.
        longer: {segments: tensor of the rounds' seconds over those of a plain step}.
        predicted_time: the same, predicted.
    """
    figure, memory, time = axes(8.4, 3.3, columns=2)
    counts = list(peaks)
    memory.plot(
        counts,
        [predicted[k] / 1e6 for k in counts],
        "--",
        color=GREY,
        label="predicted from one block",
    )
    memory.plot(counts, [peaks[k] / 1e6 for k in counts], "o", color=COLORS[0], label="measured")
    memory.axhline(plain / 1e6, color=COLORS[1], lw=1)
    memory.annotate(
        "plain", (counts[-1], plain / 1e6), xytext=(0, -12), textcoords="offset points", ha="right"
    )
    best = min(peaks, key=peaks.get)
    memory.set(xlabel="segments", ylabel="MB kept for backward", ylim=(0, None),
               title=f"{best} segments keep {peaks[best] / plain:.0%} of the bytes")  # fmt: skip
    memory.legend(frameon=False, loc="lower left")
    time.axhline(
        predicted_time, color=GREY, ls="--", lw=1, label="predicted: one more forward pass"
    )
    for k in counts:
        low, middle, high = (float(longer[k].quantile(q)) for q in (0.25, 0.5, 0.75))
        time.plot([k, k], [low, high], color="black", lw=1)
        time.plot(k, middle, "o", color=COLORS[0])
    time.axhline(1, color=COLORS[1], lw=1, label="plain")
    time.legend(frameon=False, loc="lower left")
    middle = sorted(float(longer[k].median()) for k in counts)[len(counts) // 2]
    time.set(xlabel="segments", ylabel="times as long as a plain step", ylim=(0, None),
             title=f"A step takes {middle:.2f} times as long")  # fmt: skip
    for ax in (memory, time):
        ax.set_xscale("log", base=2)
        ticks_at(ax, counts)
    return figure


def accumulation(micro_batches, differences):
    """How far the accumulated gradient is from that of the whole batch, one line per norm.

    Args:
        differences: {norm, None for no norm: relative difference at each micro-batch}.
    """
    figure, ax = axes(6.6, 3.3)
    labels = {"batch": "BatchNorm", "group": "GroupNorm", None: "no norm"}
    for color, (norm, values) in zip(COLORS, differences.items(), strict=False):
        ax.plot(micro_batches, values, "o-", color=color, ms=4, label=labels[norm])
    ax.set(xscale="log", yscale="log", xlabel="rows per micro-batch", ylabel="relative difference",
           title=f"Gradient with BatchNorm: {100 * differences['batch'][-1]:.0f} % off with "
                 f"{micro_batches[-1]} rows per micro-batch")  # fmt: skip
    ticks_at(ax, micro_batches)
    ax.legend(frameon=False)
    return figure


def race(runs, target):
    """Validation accuracy near `target` as it was known at each second: it changes at an
    evaluation.

    A colour per name, a line style per seed; a dot where a run reaches the target, a cross where it
    does not.
    """
    figure, ax = axes(7.4, 3.8)
    names, seeds = (
        list(dict.fromkeys(run.name for run in runs)),
        list(dict.fromkeys(run.seed for run in runs)),
    )
    for run in runs:
        color = COLORS[names.index(run.name)]
        seconds, accuracies = (
            [0.0, *(s for _, s, _ in run.accuracies)],
            [0.1, *(a for *_, a in run.accuracies)],
        )
        ax.step(
            seconds,
            accuracies,
            ("-", "--", ":")[seeds.index(run.seed) % 3],
            where="post",
            color=color,
            lw=1.2,
        )
        ax.plot(seconds[1:-1], accuracies[1:-1], ".", color=color)
        ax.plot(
            seconds[-1], accuracies[-1], "o" if accuracies[-1] >= target else "x", color=color, ms=6
        )
    ax.axhline(target, color=GREY, lw=1, ls=":")
    ax.annotate(
        "target", (0, target), xytext=(2, 3), textcoords="offset points", color=GREY, fontsize=8
    )
    for k, name in enumerate(names):
        ax.text(0.02, 0.06 + 0.07 * k, name, color=COLORS[k], transform=ax.transAxes, fontsize=9)
    best = {name: min(run.seconds for run in runs if run.name == name) for name in names}
    first = min(best, key=best.get)
    others = ", ".join(f"{name} after {best[name]:.1f} s" for name in names if name != first)
    ax.set(xlabel="seconds (a line style per seed)", ylabel="validation accuracy", ylim=(target - 0.15, None),
           title=f"{first} reaches {100 * target:g} % after {best[first]:.1f} s, {others} (best seeds)")  # fmt: skip
    ax.margins(x=0.1, y=0.1)
    ax.set_xlim(left=0)
    return figure


def left_out(worth):
    """How many times as long the race takes without each piece of advice, with the spread over
    seeds; largest on top.

    Args:
        worth: {name: (median, lowest, highest)}.
    """
    figure, ax = axes(7.0, 0.5 + 0.34 * len(worth))
    finite = [value for triple in worth.values() for value in triple if math.isfinite(value)]
    most = 1.1 * max(finite, default=2.0)
    names = sorted(worth, key=lambda name: worth[name][0])
    for place, triple in enumerate(worth[name] for name in names):
        median, low, high = (min(value, most) for value in triple)
        ax.barh(place, median - 1, left=1, color=COLORS[0] if low > MISSED else GREY, height=0.6)
        ax.plot([low, high], [place, place], color="black", lw=1)
        text = "target not reached" if triple[0] == float("inf") else f"{median:.2f}"
        ax.annotate(text, (max(high, 1), place), xytext=(4, -3), textcoords="offset points")
    ax.axvline(1, color="black", lw=1)
    ax.set_yticks(range(len(worth)), names)
    missed = [name.removeprefix("without ") for name in reversed(names) if worth[name][1] > MISSED]
    shown = ", ".join(missed) if len(missed) < 4 else f"{len(missed)} pieces"
    title = f"Missed with every seed: {shown or 'no piece'}"
    ax.set(xlabel="times as long as with everything", title=title, xlim=(None, 1.15 * most))
    return figure


def leaderboard(entries):
    """A bar at the median time of each entry, fastest on top, at most twelve.

    Args:
        entries: (name, median seconds, runs), fastest first; infinite seconds if the target was not
            reached.
    """
    best = [entry for entry in entries if math.isfinite(entry[1])][:12]
    figure, ax = axes(7.0, 0.9 + 0.3 * max(1, len(best)))
    for place, (name, seconds, runs) in enumerate(best):
        ax.barh(
            place, seconds, height=0.6, color=COLORS[2] if name.startswith("mine") else COLORS[0]
        )
        ax.annotate(f"{seconds:.2f} s, {runs} run{'s' * (runs != 1)}", (seconds, place), xytext=(6, -3),
                    textcoords="offset points", fontsize=8)  # fmt: skip
    rows(ax, [name for name, *_ in best])
    ax.margins(x=0.2)
    title = (
        f"{best[0][0]} leads with {best[0][1]:.2f} s" if best else "Nobody has reached the target"
    )
    ax.set(xlabel="seconds to the target, median of the runs", title=title)
    return figure
