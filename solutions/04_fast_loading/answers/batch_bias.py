"""Known mistakes of exercise batch_bias, and right answers in other styles."""

import statistics
from fractions import Fraction

import numpy as np

from course.engine.known_answers import alternative

ESTIMATE = "(means - means.mean()).square().sum() / (len(means) - 1)"  # var(), which warns of a single mean
MISTAKES = {
    "estimated_variance": (
        "s² divides by N - 1, the estimate from a sample; here all values are known. Use var(correction=0).",
        ("off.square().mean()", "off.var()"),
    ),
    "around_their_own_mean": (
        "The batch means are compared with their own mean, which lacks the rows after the last full batch. Subtract "
        "the mean of all values, and divide by the number of batches.",
        ("means.square().mean()", "means.var(correction=0)"),
    ),
    "one_batch_less": (
        "The variance of the batch means is divided by their number less one. m is the true mean, not an estimate: "
        "take the mean of the squares.",
        ("means.square().mean()", "means.square().sum() / max(1, len(means) - 1)"),
    ),
    "var_of_the_means": (
        "var() of the batch means subtracts their own mean and divides by their number less one. V is the mean of "
        "(batch mean - m)².",
        ("means.square().mean()", ESTIMATE),
    ),
    "var_for_both": (
        "Both variances are estimates from a sample. V is the mean of (batch mean - m)², and s² that of "
        "(value - m)²: divide by the number of terms, and take the mean of all values.",
        ("means.square().mean()", ESTIMATE),
        ("off.square().mean()", "off.var()"),
    ),
    "with_replacement_by_chance": (
        "V₀ is the variance of a draw with replacement. The batches of a file are drawn without it: multiply by "
        "(N - batch) / (N - 1).",
        (" * (n - batch) / (n - 1)", ""),
    ),
    "variance_of_rows": (
        "V₀ is the variance of single values, not of a mean of `batch` values. Divide s² by the batch size.",
        (" / batch * (n - batch) / (n - 1)", ""),
    ),
    "ratio_of_deviations": (
        "This is the ratio of the standard deviations. Return the ratio of the variances: take no root.",
        (".item()", ".sqrt().item()"),
    ),
    "upside_down": (
        "The ratio is upside down, or infinite. Divide the variance of the order by the variance of random batches: "
        "V / V₀.",
        ("means.square().mean() / by_chance", "by_chance / means.square().mean()"),
    ),
    "short_batch_too": (
        "A short last batch is counted as a batch. Its mean varies more: leave it out.",
        (
            "off[order][: n // batch * batch].view(-1, batch).mean(1)",
            "torch.stack([part.mean() for part in off[order].split(batch)])",
        ),
    ),
    "full_batches_only": (
        "m and s² are computed from the rows in full batches only. Compute both from all N values.",
        ("    off =", "    n = n // batch * batch\n    values = values[order][:n]\n    off ="),
        ("off[order][: n // batch * batch]", "off"),
    ),
    "order_ignored": (
        "The values are taken in the order of the file, not in the order given. Index first: values[order].",
        ("off[order]", "off"),
    ),
    "in_float32": (
        "float32 keeps 24 bits, so neighbouring Unix times become equal, and sums lose digits. Use double() first.",
        ("values.double() - values.double().mean()", "values.float() - values.float().mean()"),
    ),
    "one_pass": (
        "The mean of the squares less the square of the mean is a difference of large numbers that are almost "
        "equal, so no digit is left. Subtract the mean of all values first, then square.",
        (
            "off = values.double() - values.double().mean()",
            "off, m = values.double(), values.double().mean()",
        ),
        ("off.square().mean()", "(off.square().mean() - m**2)"),
        ("means.square().mean()", "(means.square().mean() - 2 * means.mean() * m + m**2)"),
    ),
    "square_of_m_taken_off": (
        "The mean of the squared batch means less m² is not the mean of (batch mean - m)²: with rows behind the last "
        "full batch, the batch means have another mean than m. Subtract m first, then square.",
        ("means = off", "means = values.double()"),
        ("means.square().mean()", "(means.square().mean() - values.double().mean() ** 2)"),
    ),
    "both_as_difference_of_squares": (
        "Both variances are E[x²] - m². That cancels, and with rows after the last full batch the batch means have "
        "another mean than m. Subtract m first, then square.",
        (
            "off = values.double() - values.double().mean()",
            "off, m = values.double(), values.double().mean()",
        ),
        ("off.square().mean()", "(off.square().mean() - m**2)"),
        ("means.square().mean()", "(means.square().mean() - m**2)"),
    ),
    "spread_as_difference_of_squares": (
        "s² is computed as E[x²] - m²: for Unix times these are large numbers that are almost equal, so few digits "
        "are left. Subtract m first, then square.",
        ("off.square().mean()", "(values.double().square().mean() - values.double().mean() ** 2)"),
    ),
    "factor_upside_down": (
        "The factor for draws without replacement is upside down: it is (N - batch) / (N - 1), below 1.",
        ("(n - batch) / (n - 1)", "(n - 1) / (n - batch)"),
    ),
    "backwards": (
        "The order is applied backwards: row i is put at place order[i]. Row order[i] comes at place i: values[order].",
        ("[order]", "[order.argsort()]"),
    ),
    "with_a_step": (
        "Batches are taken with a step through the order. A batch is `batch` rows in a run: view(-1, batch), then "
        "mean(1).",
        ("view(-1, batch).mean(1)", "view(batch, -1).mean(0)"),
    ),
    "ratio_of_estimates": (
        "Both variances are estimates from samples. Their ratio is right while all batches are full, and wrong with "
        "rows behind them: take the means of the squares, around the mean of all values.",
        ("off.square().mean() / batch * (n - batch) / (n - 1)", "off.var() / batch"),
        ("means.square().mean()", ESTIMATE),
    ),
    "stays_a_tensor": (
        "The answer is a tensor. Make a float of it, by .item() or float().",
        (".item()", ""),
    ),
    "divided_by_n": (
        "The factor for draws without replacement is (N - batch) / N here. It is (N - batch) / (N - 1).",
        ("/ (n - 1)", "/ n"),
    ),
    "mean_of_the_full_batches": (
        "m is the mean of the rows in full batches. It is the mean of all N values.",
        ("values.double().mean()", "values.double()[order][: n // batch * batch].mean()"),
    ),
}


@alternative
def batch_after_batch(values, order, batch):
    exact = [Fraction(value) for value in values.tolist()]
    n, mean = len(exact), sum(exact) / len(exact)
    if n <= batch or len(set(exact)) == 1:
        raise ValueError(f"{n} rows, {batch} of them in a batch")
    rows = order.tolist()
    means = [
        sum(exact[row] for row in rows[i : i + batch]) / batch
        for i in range(0, n - batch + 1, batch)
    ]
    spread = sum((m - mean) ** 2 for m in means) / len(means)
    chance = sum((x - mean) ** 2 for x in exact) / n / batch * Fraction(n - batch, n - 1)
    return float(spread / chance)


@alternative
def arrays_of_numpy(values, order, batch):
    x = values.cpu().numpy().astype(np.float64)[order.cpu().numpy()]
    count, rest = divmod(x.size, batch)
    if count == 0 or (count == 1 and rest == 0) or np.ptp(x) == 0:
        raise ValueError
    x = (x - x.mean()) / x.std()
    sums = x[: x.size - rest].reshape(count, batch).sum(axis=1)
    return float(sums @ sums / count / batch * (x.size - 1) / (x.size - batch))


@alternative
def statistics_of_python(values, order, batch):
    x = values.double()[order].tolist()
    if len(x) <= batch or min(x) == max(x):
        raise ValueError("no batch, or nothing that varies")
    m = statistics.fmean(x)
    means = [statistics.fmean(part) for part in zip(*[iter(x)] * batch, strict=False)]
    wanted = statistics.pvariance(x, m) * (len(x) - batch) / (len(x) - 1) / batch
    return statistics.fmean((mean - m) ** 2 for mean in means) / wanted
