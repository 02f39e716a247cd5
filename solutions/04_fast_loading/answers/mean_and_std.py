"""Known mistakes of exercise mean_and_std, and right answers in other styles."""

import torch

from course.engine.known_answers import alternative, mistake

MISTAKES = {
    "difference_of_large_numbers": (
        "The variance is computed as E[x^2] - E[x]^2: float32 loses a small spread around a large mean. Sum squared "
        "deviations from the mean, and merge them batch by batch.",
        ("(x - center).square().sum(0) + delta.square() * (n * k / (n + k))", "x.square().sum(0)"),
        ("(squares / n)", "(squares / n - mean.square()).clamp(min=0)"),
    ),
    "mean_of_batches": (
        "The standard deviations of the batches are averaged, which leaves out how their means differ. Merge sums "
        "of squared deviations.",
        (
            "(x - center).square().sum(0) + delta.square() * (n * k / (n + k))",
            "x.std(0, unbiased=False)",
        ),
        (
            "        n += k\n        mean = mean + delta * (k / n)",
            "        n += 1\n        mean = mean + delta / n",
        ),
        ("(squares / n).sqrt()", "squares / n"),
    ),
    "first_row_kept": (
        "The mean starts as a row of the first batch, whose memory the loader refills. Clone what you keep.",
        ("n, mean, squares = 0, 0.0, 0.0", "n, mean, squares = 0, None, torch.zeros(())"),
        (
            "        k = len(x)\n",
            "        if mean is None:\n            n, mean, x = 1, x[0], x[1:]\n        k = len(x)\n"
            "        if not k:\n            continue\n",
        ),
    ),
    "divided_by_one_less": (
        "The sum of squares is divided by n - 1. Divide by n: a single row has the std 0, not NaN.",
        ("squares / n)", "squares / (n - 1))"),
    ),
    "variance_returned": (
        "The second result is the variance. Take its root.",
        ("(squares / n).sqrt()", "squares / n"),
    ),
    "within_batches_only": (
        "You sum only the deviations from the mean of each batch. Add the difference of the means: "
        "delta^2 n k / (n + k).",
        (" + delta.square() * (n * k / (n + k))", ""),
    ),
    "first_mean_is_final": (
        "The term between the batches is delta^2 k, as if the old mean were the final one. Weigh with n k / (n + k).",
        ("(n * k / (n + k))", "k"),
    ),
    "mean_of_means": (
        "All batches weigh the same in the mean, whatever their size. Weigh each with its number of rows.",
        ("k = len(x)", "k = min(1, len(x))"),
        ("(x - center).square().sum(0)", "(x - center).square().mean(0)"),
    ),
    "mean_of_deviations": (
        "The standard deviations of the batches are averaged. What the batches differ by among themselves is missing, "
        "and roots do not average: merge sums of squared deviations.",
        (
            "(x - center).square().sum(0) + delta.square() * (n * k / (n + k))",
            "k * x.std(0, correction=0)",
        ),
        ("(squares / n).sqrt()", "squares / n"),
    ),
    "batches_kept": (
        "You keep the batches, but the loader refills their memory. Keep sums, and process each batch before you "
        "take the next.",
        ("in batches:", "in [(torch.cat([x for x, _ in batches]), None)]:"),
    ),
    "copies_kept": (
        "Copies of all batches are kept, which take as much memory as the data. Keep only the sums.",
        ("in batches:", "in [(torch.cat([x.clone() for x, _ in batches]), None)]:"),
    ),
    "two_passes": (
        "You go through the batches twice, for the mean and then for the deviations. Do both in one pass.",
        (
            "        squares = squares + (x - center).square().sum(0) + delta.square() * (n * k / (n + k))\n",
            "",
        ),
        (
            "    return mean",
            "    for x, _ in batches:\n        squares += (x - mean).square().sum(0)\n    return mean",
        ),
    ),
    "sums_in_float64": (
        "The sums are float64, which is not allowed. Stay with float32; sum squared deviations from the mean.",
        ("k = len(x)", "k, x = len(x), x.double()"),
        ("mean, (squares / n).sqrt()", "mean.float(), (squares / n).sqrt().float()"),
    ),
    "delta_from_the_new_mean": (
        "delta is taken from the mean that already holds the batch, so it is too short. Update the mean afterwards.",
        ("delta.square() *", "(delta * n / (n + k)).square() *"),
    ),
}


@mistake(
    "The first row is kept as a view, and the loader refills its memory. Copy it: x[0].clone()."
)
def origin_is_a_view(batches):
    n, total, squares, origin = 0, 0.0, 0.0, None
    for x, _ in batches:
        if len(x):
            origin = x[0] if origin is None else origin
            shifted = x - origin
            n, total, squares = (
                n + len(x),
                total + shifted.sum(0),
                squares + shifted.square().sum(0),
            )
    if not n:
        raise ValueError("no rows")
    return origin + total / n, (squares / n - (total / n).square()).sqrt()


@alternative
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


@alternative
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


@alternative
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
