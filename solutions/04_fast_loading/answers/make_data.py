"""Known mistakes of exercise make_data, and right answers in other styles."""

import random

import numpy
import torch

from course.checks.known_answers import alternative

MISTAKES = {
    "intercept_unused": (
        "The intercept b is drawn and never used: y is x w plus noise. Add b.",
        ("x @ w + b", "x @ w"),
    ),
    "y_in_float64": (
        "y is float64, because the noise is. Draw the noise as float32.",
        ("normal(rows, dtype=np.float32)", "normal(rows)"),
    ),
    "drawn_as_float64": (
        "x is drawn as float64 and made float32 afterwards: three times its bytes in memory. Draw it with "
        "dtype=np.float32.",
        ("columns), dtype=np.float32)", "columns)).astype(np.float32)"),
    ),
    "seed_unused": (
        "The seed is not used, so nobody gets the same data twice. Take np.random.default_rng(seed).",
        ("default_rng(seed)", "default_rng()"),
    ),
    "global_source_seeded": (
        "NumPy's global source is seeded, and others draw from it, too. Take a generator: np.random.default_rng(seed).",
        ("    rng =", "    np.random.seed(seed)\n    rng ="),
    ),
    "one_generator_each": (
        "Each part is drawn from a new generator with the same seed, so w is the first row of x. Draw all from one.",
        ("w = rng", "w = np.random.default_rng(seed)"),
        ("float(rng", "float(np.random.default_rng(seed)"),
        ("+ rng", "+ np.random.default_rng(seed)"),
    ),
    "noise_from_a_twin": (
        "The noise comes from a new generator with the same seed, so it is made of the random bits that x is made of. "
        "Draw all from one.",
        ("+ rng", "+ np.random.default_rng(seed)"),
    ),
    "no_noise": (
        "y has no noise. Add one standard normal number to each row.",
        (" + rng.standard_normal(rows, dtype=np.float32)", ""),
    ),
    "one_noise_for_all": (
        "One number of noise is drawn for all rows. Draw one for each: standard_normal(rows).",
        ("normal(rows, ", "normal("),
    ),
    "normal_x": (
        "x is normal. Draw it uniform in [0, 1): Generator.random.",
        ("x = rng.random", "x = rng.standard_normal"),
    ),
}


@alternative
def three_streams(rows, columns, seed):
    streams = map(numpy.random.default_rng, numpy.random.SeedSequence(seed).spawn(3))
    truth, inputs, noise = streams
    w, b = numpy.split(truth.random(columns + 1, dtype="float32"), [columns])
    x = numpy.empty((rows, columns), dtype="float32")
    inputs.random(out=x, dtype="float32")
    y = noise.standard_normal(rows, dtype="float32")
    y += x.dot(w)
    y += b
    return x, y, w, b[0]


@alternative
def drawn_in_chunks(rows, columns, seed):
    rng = numpy.random.RandomState(seed)
    w = rng.uniform(size=columns).astype(numpy.float32)
    b = rng.uniform()
    x, y = numpy.zeros((rows, columns), numpy.float32), numpy.zeros(rows, numpy.float32)
    for start in range(0, rows, 100):
        part = slice(start, start + 100)
        x[part] = rng.randint(2**24, size=x[part].shape) / 2**24
        y[part] = x[part] @ w + b + rng.normal(size=len(y[part]))
    return x, y, w, b


@alternative
def drawn_by_torch(rows, columns, seed):
    generator = torch.Generator().manual_seed(seed)
    x, w = (torch.rand(*size, generator=generator) for size in ((rows, columns), (columns,)))
    b = random.Random(seed).random()
    y = torch.randn(rows, generator=generator).add_(b).addmv_(x, w)
    return x.numpy(), y.numpy(), w.numpy(), b
