"""Probe of exercise make_data."""

import numpy as np

from course.checks.engine import exercise
from course.checks.probing.counting import peak_bytes_of
from course.checks.probing.randomness import random_state, seed_others
from course.checks.probing.tensors import kind_and_device


@exercise()
def make_data(answer, device, seed):
    """Laws of the data for several seeds; memory as tracemalloc counts it."""
    rows, columns = 3000 + seed % 97, 5 + seed % 4
    x, *rest = result = answer(rows, columns, seed)
    yield "returns (x, y, w, b)", isinstance(result, (tuple, list)) and len(result) == 4
    y, w, b = rest
    yield "x is an array of float32 (rows, columns)", kind_and_device(x)
    yield "w is an array of float32 (columns,)", kind_and_device(w)
    yield "y is an array of float32 (rows,)", kind_and_device(y)
    yield "b is a number", np.ndim(b) == 0 and 0 <= float(b) < 1

    problems = [answer(rows, columns, some) for some in range(seed, seed + 4)]
    x, _, w, b = (np.array([problem[i] for problem in problems]).astype(float) for i in range(4))
    noise = np.array([_noise(*problem) for problem in problems])
    yield "x is uniform in [0, 1)", _uniform(x)
    yield "w is uniform in [0, 1)", _uniform(w)
    yield "each seed draws its own b from [0, 1)", bool((0 <= b).all() and (b < 1).all() and len({*b}) == 4)
    yield "y - x w - b has the mean 0", bool((abs(noise.mean(1)) < 0.1).all())
    yield "y - x w - b has the standard deviation 1", bool((abs(noise.std(1) - 1) < 0.1).all())
    yield "each seed draws its own w", len({p[2].tobytes() for p in problems}) == 4
    yield "b is drawn by itself: it is none of the values of w", not (w == b[:, None]).any()
    kurtosis = (noise**4).mean() / (noise**2).mean() ** 2
    yield "y - x w - b is normal", abs(kurtosis - 3) < 0.5
    yield "x and w are drawn independently", not any(np.isin(p[2], p[0]).all() for p in problems)
    correlation = np.corrcoef(np.concatenate([x[0].T, noise[:1]]))
    yield (
        "columns of x and the noise are drawn independently",
        bool((abs(correlation - np.eye(columns + 1)) < 0.1).all()),
    )

    alike = np.corrcoef(noise) - np.eye(4)
    yield "each seed draws its own noise", bool((abs(alike) < 0.1).all())
    small = [answer(40, columns, some) for some in range(seed, seed + 20)]
    sizes = [abs(_noise(*p)) for p in small]
    single = [p[0].flat[:40] for p in small]  # float32 noise would take the bits of these numbers,
    double = [8.0 * p[0].flat[1:80:2] % 1 for p in small]  # float64 noise those of two at a time, but the top three
    alike = [_mean_correlation(part, sizes) for part in (single, double)]
    yield "x and the noise are not made of the same random bits", max(alike) < 0.3

    seed_others(seed + 1)
    before = random_state()[2]
    again = answer(rows, columns, seed)
    yield "the same seed gives the same data, whatever was drawn before", all(map(np.array_equal, again, result))
    yield "another seed gives other data", len({p[0].tobytes() for p in problems}) == 4
    yield "leaves NumPy's global source of random numbers alone", random_state()[2] == before

    rows, columns = 4000, 64
    peak = peak_bytes_of(answer, rows, columns, seed)
    yield "takes at most 1.5 times the bytes of x", peak <= 1.5 * 4 * rows * columns


def _mean_correlation(some, others):
    return float(np.mean([np.corrcoef(*pair)[0, 1] for pair in zip(some, others, strict=True)]))


def _noise(x, y, w, b):
    return y.astype(float) - x.astype(float) @ w.astype(float) - float(b)


def _uniform(values):
    """True if values lie in [0, 1) with the mean and mean square of uniform ones, to five standard errors."""
    off = 5 * np.sqrt([1 / 12, 4 / 45]) / values.size**0.5
    found = np.array([values.mean(), (values**2).mean()]) - [1 / 2, 1 / 3]
    return bool(values.min() >= 0 and values.max() < 1 and (abs(found) < off).all())
