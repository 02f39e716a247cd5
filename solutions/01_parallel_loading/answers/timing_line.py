"""Known mistakes of exercise timing_line, and right answers in other styles."""

import statistics
from decimal import Decimal

from course.checks.engine import alternative, mistake


def line_of(mean, spread, n_batches, rate):
    return f"{mean:.3f} ± {spread:.3f} s for {n_batches} batches, {rate:,.0f} images/s"


def without_spread(seconds, n_batches, batch_size):
    mean = seconds.mean().item()
    return f"{mean:.3f} s for {n_batches} batches, {n_batches * batch_size / mean:,.0f} images/s"


@mistake("timing_line", "The braces stand in the line as they are: the string needs an f before its quotes.")
def no_f(seconds, n_batches, batch_size):
    return "{mean:.3f} ± {std:.3f} s for {n_batches} batches, {rate:,.0f} images/s"


@mistake(
    "timing_line",
    "The deviation is divided by n, too small for a few passes. Divide by n - 1: torch.std, or numpy's ddof=1.",
)
def deviation_of_numpy(seconds, n_batches, batch_size):
    if len(seconds) == 1:
        return without_spread(seconds, n_batches, batch_size)
    mean = seconds.mean().item()
    return line_of(mean, seconds.numpy().std(), n_batches, n_batches * batch_size / mean)


@mistake(
    "timing_line",
    "The rates of the passes are averaged, which favours the fast ones. Divide images by the mean seconds.",
)
def mean_of_the_rates(seconds, n_batches, batch_size):
    if len(seconds) == 1:
        return without_spread(seconds, n_batches, batch_size)
    rate = (n_batches * batch_size / seconds).mean().item()
    return line_of(seconds.mean().item(), seconds.std().item(), n_batches, rate)


@mistake("timing_line", "The rate is in batches per second. A batch has batch_size images.")
def batches_a_second(seconds, n_batches, batch_size):
    return timing_line_with_rate(seconds, n_batches, n_batches / seconds.mean().item())


@mistake(
    "timing_line",
    "The images of one pass are divided by the seconds of all passes. Divide by the mean seconds.",
)
def seconds_of_all_passes(seconds, n_batches, batch_size):
    return timing_line_with_rate(seconds, n_batches, n_batches * batch_size / seconds.sum().item())


@mistake(
    "timing_line", "The images of all passes are divided by the seconds of one. A pass has n_batches * batch_size."
)
def images_of_all_passes(seconds, n_batches, batch_size):
    return timing_line_with_rate(seconds, n_batches, len(seconds) * n_batches * batch_size / seconds.mean().item())


def timing_line_with_rate(seconds, n_batches, rate):
    mean = seconds.mean().item()
    if len(seconds) == 1:
        return f"{mean:.3f} s for {n_batches} batches, {rate:,.0f} images/s"
    return line_of(mean, seconds.std().item(), n_batches, rate)


@mistake("timing_line", "One pass has no spread, and n - 1 is 0: the line says nan. Leave out the ± part.")
def nan_for_one_pass(seconds, n_batches, batch_size):
    mean = seconds.mean().item()
    spread = seconds.std(correction=min(1, len(seconds) - 1)).item() if len(seconds) > 1 else float("nan")
    return line_of(mean, spread, n_batches, n_batches * batch_size / mean)


@mistake("timing_line", "One pass has no spread at all, so ± 0.000 claims too much. Leave out the ± part.")
def zero_for_one_pass(seconds, n_batches, batch_size):
    mean = seconds.mean().item()
    spread = seconds.std().item() if len(seconds) > 1 else 0.0
    return line_of(mean, spread, n_batches, n_batches * batch_size / mean)


@mistake("timing_line", "The rate has no comma between thousands. The format of the number is ,.0f.")
def no_commas(seconds, n_batches, batch_size):
    if len(seconds) == 1:
        return without_spread(seconds, n_batches, batch_size).replace(",", "").replace("batches", "batches,")
    mean = seconds.mean().item()
    rate = n_batches * batch_size / mean
    return f"{mean:.3f} ± {seconds.std().item():.3f} s for {n_batches} batches, {rate:.0f} images/s"


@alternative("timing_line")
def statistics_and_format(seconds, n_batches, batch_size):
    times = seconds.tolist()
    mean = statistics.mean(times)
    parts = [f"{mean:.3f}"]
    if len(times) > 1:
        parts += ["±", str(round(Decimal(statistics.stdev(times)), 3))]
    parts += ["s for", str(n_batches), "batches,", format(n_batches * batch_size / mean, ",.0f"), "images/s"]
    return " ".join(parts)


@alternative("timing_line")
def two_lines_of_numpy(seconds, n_batches, batch_size):
    t = seconds.numpy()
    rate = n_batches / t.mean() * batch_size
    tail = f"s for {n_batches} batches, {round(rate):,} images/s"
    if t.size == 1:
        return f"{t[0]:.3f} {tail}"
    return f"{t.mean():.3f} ± {t.std(ddof=1):.3f} {tail}"
