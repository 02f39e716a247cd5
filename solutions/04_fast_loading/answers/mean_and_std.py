"""Known mistakes of exercise mean_and_std, and right answers in other styles."""

import torch

from course.checks.engine import alternative, mistake


def merged(batches, skip=True, between=True, weighted=True, correction=0, root=True, complain=True, dtype=None):
    """A right pass over the batches, with one idea to get wrong each."""
    n, mean, squares = 0, 0.0, 0.0
    for x, _ in batches:
        k = len(x)
        if skip and k == 0:
            continue
        x = x.to(dtype or x.dtype)
        center = x.mean(0)
        delta = center - mean
        squares = squares + (x - center).square().sum(0)
        if between:
            squares = squares + delta.square() * ((n * k / (n + k)) if weighted else k)
        n += k
        mean = mean + delta * (k / n)
    if complain and n == 0:
        raise ValueError("no rows")
    variance = squares / (n - correction)
    return [t.float() for t in (mean, variance.sqrt() if root else variance)]


@mistake(
    "mean_and_std",
    "The variance is computed as E[x^2] - E[x]^2: float32 loses a small spread around a large mean. Sum squared "
    "deviations from the mean, and merge them batch by batch.",
)
def difference_of_large_numbers(batches):
    n, total, squares = 0, 0.0, 0.0
    for x, _ in batches:
        n, total, squares = n + len(x), total + x.sum(0), squares + x.square().sum(0)
    if not n:
        raise ValueError("no rows")
    mean = total / n
    return mean, (squares / n - mean.square()).clamp(min=0).sqrt()


@mistake("mean_and_std", "The sum of squares is divided by n - 1. Divide by n: a single row has the std 0, not NaN.")
def divided_by_one_less(batches):
    return merged(batches, correction=1)


@mistake("mean_and_std", "The second result is the variance. Take its root.")
def variance_returned(batches):
    return merged(batches, root=False)


@mistake(
    "mean_and_std",
    "Only deviations from the mean of their own batch are summed. Add what the means differ by: delta^2 n k / (n + k).",
)
def within_batches_only(batches):
    return merged(batches, between=False)


@mistake(
    "mean_and_std",
    "The term between the batches is delta^2 k, as if the old mean were the final one. Weigh it with n k / (n + k).",
)
def first_mean_is_final(batches):
    return merged(batches, weighted=False)


@mistake(
    "mean_and_std",
    "All batches weigh the same in the mean, whatever their size. Weigh each with its number of rows.",
)
def mean_of_means(batches):
    batches = [(len(x), x.mean(0), x.var(0, correction=0)) for x, _ in batches if len(x)]
    if not batches:
        raise ValueError("no rows")
    means, variances = (torch.stack([batch[i] for batch in batches]) for i in (1, 2))
    return means.mean(0), (variances.mean(0) + means.var(0, correction=0)).sqrt()


@mistake(
    "mean_and_std",
    "The standard deviations of the batches are averaged. What the batches differ by among themselves is missing, and "
    "roots do not average: merge sums of squared deviations.",
)
def mean_of_deviations(batches):
    n, total, deviations = 0, 0.0, 0.0
    for x, _ in batches:
        if len(x):
            n, total = n + len(x), total + x.sum(0)
            deviations = deviations + len(x) * x.std(0, correction=0)
    if not n:
        raise ValueError("no rows")
    return total / n, deviations / n


@mistake(
    "mean_and_std",
    "The batches are kept, but their memory is filled anew by the loader. Keep sums, use each batch before the next.",
)
def batches_kept(batches):
    kept = [x for x, _ in batches if len(x)]
    if not kept:
        raise ValueError("no rows")
    std, mean = torch.std_mean(torch.cat(kept), 0, correction=0)
    return mean, std


@mistake(
    "mean_and_std",
    "The first row is kept as a view, and its memory is filled anew by the loader. Copy it: x[0].clone().",
)
def origin_is_a_view(batches):
    n, total, squares, origin = 0, 0.0, 0.0, None
    for x, _ in batches:
        if len(x):
            origin = x[0] if origin is None else origin
            shifted = x - origin
            n, total, squares = n + len(x), total + shifted.sum(0), squares + shifted.square().sum(0)
    if not n:
        raise ValueError("no rows")
    return origin + total / n, (squares / n - (total / n).square()).sqrt()


@mistake(
    "mean_and_std",
    "Copies of all batches are put together: as much memory as the data takes. Keep the sums only.",
)
def copies_kept(batches):
    kept = [x.clone() for x, _ in batches]
    if not sum(map(len, kept)):
        raise ValueError("no rows")
    std, mean = torch.std_mean(torch.cat(kept), 0, correction=0)
    return mean, std


@mistake(
    "mean_and_std",
    "The batches are gone through twice, for the mean and then for the deviations. Do both in one pass.",
)
def two_passes(batches):
    n = total = squares = 0
    for x, _ in batches:
        n, total = n + len(x), total + x.sum(0)
    if not n:
        raise ValueError("no rows")
    for x, _ in batches:
        squares = squares + (x - total / n).square().sum(0)
    return total / n, (squares / n).sqrt()


@mistake(
    "mean_and_std",
    "The sums are float64, for which a GPU has few units. Stay with float32 and sum squared deviations from the mean.",
)
def sums_in_float64(batches):
    return merged(batches, dtype=torch.float64)


@mistake("mean_and_std", "An empty batch makes everything NaN: the mean of no rows is NaN. Skip a batch without rows.")
def empty_batch_is_nan(batches):
    n, mean, squares = 0, 0.0, 0.0
    for x, _ in batches:
        k, center = len(x), x.mean(0)
        delta = center - mean
        squares = squares + (x - center).square().sum(0) + delta.square() * (n * k / max(n + k, 1))
        n += k
        mean = mean + delta * (k / max(n, 1))
    if n == 0:
        raise ValueError("no rows")
    return mean, (squares / n).sqrt()


@mistake("mean_and_std", "Without a single row there is no mean, and nothing says so. Raise a ValueError.")
def silent_without_rows(batches):
    result = [(x, y) for x, y in [(x.clone(), y) for x, y in batches] if len(x)]
    return merged(result) if result else (torch.zeros(1), torch.zeros(1))


@alternative("mean_and_std")
def row_by_row(batches):
    n = 0
    for x, _ in batches:
        for row in x:
            if n == 0:
                mean, squares = torch.zeros_like(row), torch.zeros_like(row)
            n += 1
            off = row - mean
            mean += off / n
            squares += off * (row - mean)
    if not n:
        raise ValueError("no row")
    return mean, torch.sqrt(squares / n)


@alternative("mean_and_std")
def shifted_by_the_first_row(batches):
    n, origin = 0, None
    for x, _ in batches:
        if x.shape[0] == 0:
            continue
        if origin is None:
            origin = x[0].clone()
            first, second = torch.zeros_like(origin), torch.zeros_like(origin)
        shifted = x - origin
        first += shifted.sum(0)
        second += shifted.square_().sum(0)
        n += x.shape[0]
    if origin is None:
        raise ValueError("there are no rows in these batches")
    first /= n
    return origin + first, (second / n - first**2).clamp_(min=0).sqrt_()


@alternative("mean_and_std")
def variances_weighted(batches):
    state = None
    for x, _ in filter(lambda batch: batch[0].numel(), batches):
        new = (x.size(0), *torch.var_mean(x, dim=0, unbiased=False))
        if state is None:
            state = new
            continue
        (n, variance, mean), (k, other, center) = state, new
        p, q = n / (n + k), k / (n + k)
        both = p * variance + q * other + p * q * (center - mean) ** 2
        state = n + k, both, torch.lerp(mean, center, q)
    if state is None:
        raise ValueError
    return [state[2], state[1].sqrt()]
