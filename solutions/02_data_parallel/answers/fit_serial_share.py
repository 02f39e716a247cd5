"""Known mistakes of exercise fit_serial_share, and right answers in other styles."""

import numpy as np
import torch

from course.checks.engine import alternative, mistake


def line(ranks, seconds):
    """(intercept, slope) of the seconds against 1 / N."""
    slope, intercept = np.polyfit(1 / np.array(ranks), seconds.double().numpy(), 1)
    return float(intercept), float(slope)


@mistake("fit_serial_share", "s is not kept inside of [0, 1]. What is the best fit among those that may be?")
def unbounded(ranks, seconds):
    a, b = line(ranks, seconds)
    return a + b, a / (a + b)


@mistake(
    "fit_serial_share",
    "s is clipped and t1 stays that of the line outside. For the clipped s another t1 fits best: fit it anew.",
)
def clipped_afterwards(ranks, seconds):
    a, b = line(ranks, seconds)
    return a + b, max(a, 0.0) / (max(a, 0.0) + max(b, 0.0))


@mistake(
    "fit_serial_share",
    "a / (a + b) is clipped, but a + b is negative where the line is below 0 at N = 1. Look at the signs of a and b.",
)
def clipped_ratio(ranks, seconds):
    a, b = line(ranks, seconds)
    s = min(max(a / (a + b), 0.0), 1.0)
    x, y = 1 / np.array(ranks), seconds.double().numpy()
    u = s + (1 - s) * x
    return float(u @ y / (u @ u)), s


@mistake(
    "fit_serial_share",
    "A negative intercept or slope is put to 0 and the other stays. The other one has to be fitted anew.",
)
def other_one_stays(ranks, seconds):
    a, b = (max(c, 0.0) for c in line(ranks, seconds))
    return a + b, a / (a + b)


@mistake("fit_serial_share", "This is the share that divides. s is the serial one, the intercept's: a / (a + b).")
def parallel_share(ranks, seconds):
    a, b = (max(c, 0.0) for c in line(ranks, seconds))
    s = a / (a + b)
    x, y = 1 / np.array(ranks), seconds.double().numpy()
    u = s + (1 - s) * x
    return float(u @ y / (u @ u)), 1 - s


@mistake(
    "fit_serial_share",
    "t1 is the smallest number of ranks' time as it was measured. It is noisy like all: fit it with the others.",
)
def measured_t1(ranks, seconds):
    y, x = seconds.double().numpy(), 1 / np.array(ranks)
    t1 = y[ranks.index(min(ranks))]
    s = ((y / t1 - x) @ (1 - x)) / ((1 - x) @ (1 - x))
    return float(t1), float(min(max(s, 0.0), 1.0))


@mistake("fit_serial_share", "The line is fitted against N. Amdahl's law is a straight line in 1 / N.")
def line_in_n(ranks, seconds):
    b, a = np.polyfit(np.array(ranks), seconds.double().numpy(), 1)
    a, b = max(float(a), 0.0), max(float(b), 0.0)
    return a + b, a / (a + b)


@mistake(
    "fit_serial_share", "It computes in float32, where a fit loses half of its digits. Take seconds.double() first."
)
def float32_fit(ranks, seconds):
    x, y = 1 / torch.tensor(ranks, dtype=torch.float32), seconds.float()
    dx = x - x.mean()
    b = ((dx * y).sum() / (dx * dx).sum()).clamp(min=0)
    a = (y.mean() - b * x.mean()).clamp(min=0)
    u = a / (a + b) + b / (a + b) * x
    return (u @ y / (u @ u)).item(), (a / (a + b)).item()


@alternative("fit_serial_share")
def bounds_one_after_the_other(ranks, seconds):
    y = seconds.to(torch.float64)
    x = torch.tensor([1 / n for n in ranks], dtype=torch.float64)
    dx = x - x.mean()
    slope = ((dx * y).sum() / (dx * dx).sum()).item()
    intercept = (y.mean() - slope * x.mean()).item()
    if slope <= 0:
        return y.mean().item(), 1.0
    if intercept <= 0:
        return ((x @ y) / (x @ x)).item(), 0.0
    return intercept + slope, intercept / (intercept + slope)


@alternative("fit_serial_share")
def best_of_three_candidates(ranks, seconds):
    y = np.asarray(seconds.tolist())
    columns = np.stack([np.ones(len(y)), 1 / np.asarray(ranks, dtype=float)])
    found = []
    for used in ([0, 1], [0], [1]):
        part = np.linalg.lstsq(columns[used].T, y, rcond=None)[0]
        a, b = (dict(zip(used, part.tolist(), strict=True)).get(i, 0.0) for i in (0, 1))
        if a >= 0 and b >= 0:
            found.append((((a * columns[0] + b * columns[1] - y) ** 2).sum(), a + b, a / (a + b)))
    return min(found)[1:]
