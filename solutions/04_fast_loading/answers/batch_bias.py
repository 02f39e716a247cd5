"""Known mistakes of exercise batch_bias, and right answers in other styles."""

import math
import statistics
from fractions import Fraction

import numpy as np
import torch

from course.checks.engine import alternative, mistake


def full_batches(values, order, batch):
    return values[order][: len(order) // batch * batch].view(-1, batch)


def refuse(values, order, batch):
    if batch >= len(order) or (values == values[0]).all():
        raise ValueError("nothing to compare")


def by_chance(values, batch):
    n = len(values)
    return values.var(correction=0) / batch * (n - batch) / (n - 1)


def estimate(means):
    return means.var().item() if len(means) > 1 else math.nan


@mistake(
    "batch_bias", "s² divides by N - 1, the estimate from a sample; here all values are known. Use var(correction=0)."
)
def estimated_variance(values, order, batch):
    refuse(values, order, batch)
    values, n = values.double(), len(values)
    v = (full_batches(values, order, batch).mean(1) - values.mean()).square().mean()
    return (v / (values.var() / batch * (n - batch) / (n - 1))).item()


@mistake(
    "batch_bias",
    "The batch means are compared with their own mean, so what the last rows leave out is lost. Subtract the mean of "
    "all values, and divide by the number of batches.",
)
def around_their_own_mean(values, order, batch):
    refuse(values, order, batch)
    values = values.double()
    return (full_batches(values, order, batch).mean(1).var(correction=0) / by_chance(values, batch)).item()


@mistake(
    "batch_bias",
    "The variance of the batch means is divided by their number less one. m is the true mean, not an estimate: take "
    "the mean of the squares.",
)
def one_batch_less(values, order, batch):
    refuse(values, order, batch)
    values = values.double()
    off = full_batches(values, order, batch).mean(1) - values.mean()
    return (off.square().sum() / max(1, len(off) - 1) / by_chance(values, batch)).item()


@mistake(
    "batch_bias",
    "var() of the batch means subtracts their own mean and divides by their number less one. V is the mean of (batch "
    "mean - m)².",
)
def var_of_the_means(values, order, batch):
    refuse(values, order, batch)
    values = values.double()
    return estimate(full_batches(values, order, batch).mean(1)) / by_chance(values, batch).item()


@mistake(
    "batch_bias",
    "V0 is that of a draw with replacement. Batches of a file are drawn without: multiply by (N - batch) / (N - 1).",
)
def with_replacement_by_chance(values, order, batch):
    refuse(values, order, batch)
    values = values.double()
    v = (full_batches(values, order, batch).mean(1) - values.mean()).square().mean()
    return (v / (values.var(correction=0) / batch)).item()


@mistake(
    "batch_bias", "The variance of single values is not that of a mean of `batch` values. Divide s² by the batch size."
)
def variance_of_rows(values, order, batch):
    refuse(values, order, batch)
    values = values.double()
    v = (full_batches(values, order, batch).mean(1) - values.mean()).square().mean()
    return (v / by_chance(values, 1)).item()


@mistake("batch_bias", "This is the ratio of the standard deviations. Variances are asked for: take no root.")
def ratio_of_deviations(values, order, batch):
    refuse(values, order, batch)
    values = values.double()
    v = (full_batches(values, order, batch).mean(1) - values.mean()).square().mean()
    return (v / by_chance(values, batch)).sqrt().item()


@mistake("batch_bias", "The ratio is upside down, or infinite. Divide what the order has by what chance has: V / V0.")
def upside_down(values, order, batch):
    refuse(values, order, batch)
    values = values.double()
    v = (full_batches(values, order, batch).mean(1) - values.mean()).square().mean()
    return (by_chance(values, batch) / v).item()


@mistake("batch_bias", "A short last batch is counted as a batch. Its mean varies more: leave it out.")
def short_batch_too(values, order, batch):
    refuse(values, order, batch)
    values = values.double()
    means = torch.stack([part.mean() for part in values[order].split(batch)])
    return ((means - values.mean()).square().mean() / by_chance(values, batch)).item()


@mistake(
    "batch_bias",
    "m and s² are those of the rows in full batches. Both belong to all N values, those of the last rows too.",
)
def full_batches_only(values, order, batch):
    refuse(values, order, batch)
    rows = full_batches(values.double(), order, batch)
    if rows.numel() == batch:
        return 0.0
    return ((rows.mean(1) - rows.mean()).square().mean() / by_chance(rows.flatten(), batch)).item()


@mistake(
    "batch_bias", "The values are taken in the order of the file, not in the order given. Index first: values[order]."
)
def order_ignored(values, order, batch):
    refuse(values, order, batch)
    values = values.double()
    v = (full_batches(values, torch.arange(len(order)), batch).mean(1) - values.mean()).square().mean()
    return (v / by_chance(values, batch)).item()


@mistake(
    "batch_bias", "float32 keeps 24 bits: seconds of Unix times merge, or sums grow too large. Use double() first."
)
def in_float32(values, order, batch):
    refuse(values, order, batch)
    values = values.float()
    v = (full_batches(values, order, batch).mean(1) - values.mean()).square().mean()
    return (v / by_chance(values, batch)).item()


@mistake(
    "batch_bias",
    "The mean of the squares less the square of the mean cancels: of large numbers that are almost equal no digit is "
    "left. Subtract the mean of all values first, then square.",
)
def one_pass(values, order, batch):
    refuse(values, order, batch)
    values, n = values.double(), len(values)
    means = full_batches(values, order, batch).mean(1)
    v = means.square().mean() - 2 * means.mean() * values.mean() + values.mean() ** 2
    s2 = values.square().mean() - values.mean() ** 2
    return (v / (s2 / batch * (n - batch) / (n - 1))).item()


@mistake(
    "batch_bias",
    "The mean of the squared batch means less m² is not the mean of (batch mean - m)²: with rows behind the last full "
    "batch, the batch means have another mean than m. Subtract m first, then square.",
)
def square_of_m_taken_off(values, order, batch):
    refuse(values, order, batch)
    values = values.double()
    v = full_batches(values, order, batch).mean(1).square().mean() - values.mean() ** 2
    return (v / by_chance(values, batch)).item()


@mistake(
    "batch_bias",
    "Both variances are E[x²] - m². That cancels, and with rows behind the last full batch the batch means have "
    "another mean than m. Subtract m first, then square.",
)
def both_as_difference_of_squares(values, order, batch):
    refuse(values, order, batch)
    values, n = values.double(), len(values)
    square = values.mean() ** 2
    v, s2 = full_batches(values, order, batch).mean(1).square().mean() - square, values.square().mean() - square
    return (v / (s2 / batch * (n - batch) / (n - 1))).item()


@mistake(
    "batch_bias",
    "s² is computed as E[x²] - m²: of Unix times, large numbers that are almost equal, few digits are left. Subtract m "
    "first, then square.",
)
def spread_as_difference_of_squares(values, order, batch):
    refuse(values, order, batch)
    values, n = values.double(), len(values)
    m = values.mean()
    v = (full_batches(values, order, batch).mean(1) - m).square().mean()
    return (v / ((values.square().mean() - m**2) / batch * (n - batch) / (n - 1))).item()


@mistake("batch_bias", "The factor for draws without replacement is upside down: it is (N - batch) / (N - 1), below 1.")
def factor_upside_down(values, order, batch):
    refuse(values, order, batch)
    values, n = values.double(), len(values)
    v = (full_batches(values, order, batch).mean(1) - values.mean()).square().mean()
    return (v / (values.var(correction=0) / batch * (n - 1) / (n - batch))).item()


@mistake(
    "batch_bias",
    "The order is applied backwards: row i is put at place order[i]. Row order[i] comes at place i: values[order].",
)
def backwards(values, order, batch):
    refuse(values, order, batch)
    values = values.double()
    v = (full_batches(values, order.argsort(), batch).mean(1) - values.mean()).square().mean()
    return (v / by_chance(values, batch)).item()


@mistake(
    "batch_bias",
    "Batches are taken with a step through the order. A batch is `batch` rows in a run: view(-1, batch), then mean(1).",
)
def with_a_step(values, order, batch):
    refuse(values, order, batch)
    values = values.double()
    rows = values[order][: len(order) // batch * batch].view(batch, -1)
    return ((rows.mean(0) - values.mean()).square().mean() / by_chance(values, batch)).item()


@mistake(
    "batch_bias",
    "Both variances are estimates from samples. Their ratio is right while all batches are full, and wrong with rows "
    "behind them: take the means of the squares, around the mean of all values.",
)
def ratio_of_estimates(values, order, batch):
    refuse(values, order, batch)
    values = values.double()
    return estimate(full_batches(values, order, batch).mean(1)) / (values.var().item() / batch)


@mistake(
    "batch_bias",
    "With one batch of all rows, with none, or with values that are all the same, this is 0 / 0. Raise a ValueError.",
)
def nothing_refused(values, order, batch):
    values = values.double()
    v = (full_batches(values, order, batch).mean(1) - values.mean()).square().mean()
    return (v / by_chance(values, batch)).item()


@mistake(
    "batch_bias",
    "That all values are the same is read off their variance, which rounding may leave a hair above 0. Compare the "
    "values: values.min() == values.max().",
)
def variance_of_zero(values, order, batch):
    values, n = values.double(), len(values)
    s2 = (values - values.sum() / n).square().mean()
    if batch >= n or s2 == 0:
        raise ValueError("nothing to compare")
    v = (full_batches(values, order, batch).mean(1) - values.sum() / n).square().mean()
    return (v / (s2 / batch * (n - batch) / (n - 1))).item()


@mistake("batch_bias", "The answer is a tensor. Make a float of it, by .item() or float().")
def stays_a_tensor(values, order, batch):
    refuse(values, order, batch)
    values = values.double()
    return (full_batches(values, order, batch).mean(1) - values.mean()).square().mean() / by_chance(values, batch)


@alternative("batch_bias")
def batch_after_batch(values, order, batch):
    exact = [Fraction(value) for value in values.tolist()]
    n, mean = len(exact), sum(exact) / len(exact)
    if n <= batch or len(set(exact)) == 1:
        raise ValueError(f"{n} rows, {batch} of them in a batch")
    rows = order.tolist()
    means = [sum(exact[row] for row in rows[i : i + batch]) / batch for i in range(0, n - batch + 1, batch)]
    spread = sum((m - mean) ** 2 for m in means) / len(means)
    chance = sum((x - mean) ** 2 for x in exact) / n / batch * Fraction(n - batch, n - 1)
    return float(spread / chance)


@alternative("batch_bias")
def arrays_of_numpy(values, order, batch):
    x = values.cpu().numpy().astype(np.float64)[order.cpu().numpy()]
    count, rest = divmod(x.size, batch)
    if count == 0 or (count == 1 and rest == 0) or np.ptp(x) == 0:
        raise ValueError
    x = (x - x.mean()) / x.std()
    sums = x[: x.size - rest].reshape(count, batch).sum(axis=1)
    return float(sums @ sums / count / batch * (x.size - 1) / (x.size - batch))


@alternative("batch_bias")
def statistics_of_python(values, order, batch):
    x = values.double()[order].tolist()
    if len(x) <= batch or min(x) == max(x):
        raise ValueError("no batch, or nothing that varies")
    m = statistics.fmean(x)
    means = [statistics.fmean(part) for part in zip(*[iter(x)] * batch, strict=False)]
    wanted = statistics.pvariance(x, m) * (len(x) - batch) / (len(x) - 1) / batch
    return statistics.fmean((mean - m) ** 2 for mean in means) / wanted
