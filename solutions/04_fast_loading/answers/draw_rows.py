"""Known mistakes of exercise draw_rows, and right answers in other styles."""

import numpy as np
import torch

from course.engine.known_answers import alternative

X = "rng.random((rows, len(w)), dtype=np.float32)"
NOISE = "rng.standard_normal(rows, dtype=np.float32)"
MISTAKES = {
    "without_intercept": (
        "y lacks the intercept, as in the guide's own lines. Add b.",
        (" + b", ""),
    ),
    "normal_inputs": (
        "x is normal, or from [-1, 1). The guide draws it uniformly from [0, 1): rng.random.",
        (X, "rng.standard_normal((rows, len(w)), dtype=np.float32)"),
    ),
    "one_noise_for_all": (
        "All rows have the same noise, so it only shifts the intercept. Draw one number per row.",
        (NOISE, "rng.standard_normal(dtype=np.float32)"),
    ),
    "uniform_noise": (
        "The noise is uniform, and not around 0. Draw it from the standard normal distribution.",
        (NOISE, "rng.random(rows, dtype=np.float32)"),
    ),
    "global_generator": (
        "x or the noise comes from NumPy's global generator, so the same seed gives other rows. Draw from `rng`.",
        (X, "np.random.rand(rows, len(w)).astype(np.float32)"),
    ),
    "generator_of_its_own": (
        "A generator with a fixed seed is made in each call, so all parts of the file hold the same rows. Draw from "
        "`rng`.",
        ("    x =", "    rng = np.random.default_rng(0)\n    x ="),
    ),
    "in_float64": (
        "The rows are float64, twice as many bytes. Ask the generator for dtype=np.float32.",
        (X, "rng.random((rows, len(w)))"),
    ),
    "y_first": ("y is the first column. Put it after x.", ("[x, y]", "[y, x]")),
}


@alternative
def into_one_table(rows, w, b, rng):
    table = np.empty((rows, len(w) + 1), np.float32)
    table[:, -1] = rng.normal(b, 1, rows)
    table[:, :-1] = rng.random((rows, len(w)), np.float32)
    table[:, -1] += table[:, :-1] @ w
    return table


@alternative
def by_torch(rows, w, b, rng):
    draw = torch.Generator().manual_seed(int(rng.integers(2**62)))
    x = torch.rand(rows, len(w), generator=draw)
    y = x @ torch.from_numpy(w.copy()) + b + torch.randn(rows, generator=draw)
    return torch.cat([x, y[:, None]], 1).numpy()
