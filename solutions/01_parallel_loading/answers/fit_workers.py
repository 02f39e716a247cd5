"""Known mistakes of exercise fit_workers, and right answers in other styles."""

import statistics

import numpy as np
import torch

from course.checks.engine import alternative, mistake


def fitted(
    workers,
    seconds,
    last=2,
    level=np.mean,
    line=lambda x, y: np.polyfit(x, y, 1),
    inverse=True,
    error=None,
    allowed=1e-12,
):
    """The best split, with one idea to get wrong each: how many splits, which floor, line, abscissa, error, rest."""
    w, y = np.array(workers, dtype=float), seconds.double().numpy()
    x, n, models, errors = 1 / w if inverse else w, len(y), [], []
    for k in range(n - last + 1):
        work, overhead = map(float, line(x[: n - k], y[: n - k]))
        floor = float(level(y[n - k :])) if k else 0.0
        models.append((floor, work, overhead))
        if error:
            errors.append(error(work * x + overhead, floor, y, k))
        else:
            errors.append(((np.maximum(floor, work * x + overhead) - y) ** 2).sum())
    enough = min(errors) + allowed * (y**2).sum()
    return next(model for model, e in zip(models, errors, strict=True) if e <= enough)


@mistake(
    "fit_workers",
    "The error looks at the points of the line only, and two points always lie on their line. Sum over all points.",
)
def error_of_the_line_only(workers, seconds):
    return fitted(workers, seconds, error=lambda line, floor, y, k: ((line - y)[: len(y) - k] ** 2).sum())


@mistake(
    "fit_workers",
    "Each part of the split is compared with its own half of the model. Compare all points with the maximum of both.",
)
def error_by_the_split(workers, seconds):
    def by_split(line, floor, y, k):
        split = np.where(np.arange(len(y)) < len(y) - k, line, floor)
        return ((split - y) ** 2).sum()

    return fitted(workers, seconds, error=by_split)


@mistake("fit_workers", "The line is fitted against w. The model is a straight line in 1 / w.")
def line_against_w(workers, seconds):
    return fitted(workers, seconds, inverse=False)


@mistake("fit_workers", "The floor is the smallest time of its points. Noise makes that too low: take their mean.")
def floor_of_the_fastest(workers, seconds):
    return fitted(workers, seconds, level=np.min)


@mistake("fit_workers", "The split that leaves two points for the line is never tried. k goes up to n - 2, inclusive.")
def one_split_missing(workers, seconds):
    return fitted(workers, seconds, last=3)


@mistake(
    "fit_workers",
    "Equal errors are decided by rounding. Take the smallest k within 1e-12 times the sum of the squared seconds.",
)
def rounding_decides(workers, seconds):
    return fitted(workers, seconds, allowed=0.0)


@mistake(
    "fit_workers",
    "There is always a floor, even where no point shows one. k = 0, a line through all points, is a split as well.",
)
def always_a_floor(workers, seconds):
    return fitted(workers, seconds, error=lambda line, floor, y, k: (
        ((np.maximum(floor, line) - y) ** 2).sum() if k else np.inf
    ))  # fmt: skip


@mistake("fit_workers", "A negative overhead is set to 0, which hides that the model does not fit. Return it as it is.")
def overhead_clipped(workers, seconds):
    floor, work, overhead = fitted(workers, seconds)
    return floor, work, max(0.0, overhead)


@mistake(
    "fit_workers",
    "The absolute differences are summed, not their squares. Least squares asks for the squares.",
)
def absolute_errors(workers, seconds):
    return fitted(workers, seconds, error=lambda line, floor, y, k: np.abs(np.maximum(floor, line) - y).sum())


@mistake("fit_workers", "For k = 0 the slice [:-k] is empty, not everything. Write [:n - k].")
def empty_slice(workers, seconds):
    x, y = 1 / np.array(workers), seconds.double().numpy()
    return tuple(np.polyfit(x[:-0], y[:-0], 1))


@mistake("fit_workers", "The line is forced through 0, so there is no overhead. Fit slope and intercept.")
def no_intercept(workers, seconds):
    return fitted(workers, seconds, line=lambda x, y: (x @ y / (x @ x), 0.0))


@mistake("fit_workers", "Work and overhead have changed places: slope first, then intercept, as np.polyfit gives them.")
def slope_and_intercept_swapped(workers, seconds):
    floor, work, overhead = fitted(workers, seconds)
    return floor, overhead, work


@alternative("fit_workers")
def least_squares_of_torch(workers, seconds):
    y = seconds.to(torch.float64)
    table = torch.stack([1 / torch.tensor(workers, dtype=torch.float64), torch.ones_like(y)], dim=1)
    fits = []
    for k in range(len(y) - 1):
        line = slice(0, len(y) - k)
        solution = torch.linalg.lstsq(table[line], y[line]).solution
        floor = y[len(y) - k :].mean() if k > 0 else torch.tensor(0.0, dtype=torch.float64)
        error = ((table @ solution).clamp(min=float(floor)) - y).pow(2).sum().item()
        fits.append((error, [float(floor), *solution.tolist()]))
    limit = min(error for error, _ in fits) + 1e-12 * float(y @ y)
    return tuple(next(fit for error, fit in fits if error <= limit))


@alternative("fit_workers")
def sums_by_hand(workers, seconds):
    x, y = [1 / w for w in workers], [float(s) for s in seconds]
    found = {}
    for k in range(len(x) - 1):
        a, b, rest = x[: len(x) - k], y[: len(x) - k], y[len(x) - k :]
        ma, mb = statistics.fmean(a), statistics.fmean(b)
        work = sum((p - ma) * (q - mb) for p, q in zip(a, b, strict=True)) / sum((p - ma) ** 2 for p in a)
        overhead = mb - work * ma
        floor = statistics.fmean(rest) if rest else 0.0
        error = sum((max(floor, work * p + overhead) - q) ** 2 for p, q in zip(x, y, strict=True))
        found[k] = error, (floor, work, overhead)
    allowed = min(error for error, _ in found.values()) + 1e-12 * sum(q * q for q in y)
    return found[min(k for k, (error, _) in found.items() if error <= allowed)][1]
