"""Known mistakes of exercise make_data, and right answers in other styles."""

import random

import numpy
import numpy as np
import torch

from course.checks.engine import alternative, mistake


def linear_data(
    rows, columns, seed, wide=False, intercept=True, y_wide=False, rng=None, noise=True, normal=False
):  # fmt: skip
    """Right data, with one idea to get wrong each."""
    rng = rng or np.random.default_rng(seed)
    x = rng.random((rows, columns)).astype(np.float32) if wide else rng.random((rows, columns), dtype=np.float32)
    if normal:
        x = rng.standard_normal((rows, columns), dtype=np.float32)
    w, b = rng.random(columns, dtype=np.float32), rng.random()
    y = x @ w
    if intercept:
        y += b
    if noise:
        y += rng.standard_normal(rows, dtype=np.float32)
    return x, y.astype(np.float64) if y_wide else y, w, b


@mistake("make_data", "The intercept b is drawn and never used: y is x w plus noise. Add b.")
def intercept_unused(rows, columns, seed):
    return linear_data(rows, columns, seed, intercept=False)


@mistake("make_data", "y is float64, because the noise is. Draw the noise as float32.")
def y_in_float64(rows, columns, seed):
    return linear_data(rows, columns, seed, y_wide=True)


@mistake(
    "make_data",
    "x is drawn as float64 and made float32 afterwards: three times its bytes at once. Draw it with dtype=np.float32.",
)
def drawn_as_float64(rows, columns, seed):
    return linear_data(rows, columns, seed, wide=True)


@mistake("make_data", "The seed is not used, so nobody gets the same data twice. Take np.random.default_rng(seed).")
def seed_unused(rows, columns, seed):
    return linear_data(rows, columns, seed, rng=np.random.default_rng())


@mistake(
    "make_data",
    "NumPy's global source is seeded, which changes what others draw. Take a generator: np.random.default_rng(seed).",
)
def global_source_seeded(rows, columns, seed):
    np.random.seed(seed)
    x, y, w, b = linear_data(rows, columns, seed)
    return x, y, w, b


@mistake(
    "make_data",
    "Each part is drawn from a new generator with the same seed, so w is the first row of x. Draw all from one.",
)
def one_generator_each(rows, columns, seed):
    x = np.random.default_rng(seed).random((rows, columns), dtype=np.float32)
    w = np.random.default_rng(seed).random(columns, dtype=np.float32)
    b = np.random.default_rng(seed).random()
    return x, x @ w + b + np.random.default_rng(seed).standard_normal(rows, dtype=np.float32), w, b


@mistake(
    "make_data",
    "The noise comes from a new generator with the same seed, so it is made of the random bits that x is made of. Draw "
    "all from one.",
)
def noise_from_a_twin(rows, columns, seed):
    x, y, w, b = linear_data(rows, columns, seed, noise=False)
    return x, y + np.random.default_rng(seed).standard_normal(rows, dtype=np.float32), w, b


@mistake("make_data", "y has no noise. Add one standard normal number to each row.")
def no_noise(rows, columns, seed):
    return linear_data(rows, columns, seed, noise=False)


@mistake("make_data", "One number of noise is drawn for all rows. Draw one for each: standard_normal(rows).")
def one_noise_for_all(rows, columns, seed):
    rng = np.random.default_rng(seed)
    x, y, w, b = linear_data(rows, columns, seed, noise=False, rng=rng)
    return x, y + rng.standard_normal(dtype=np.float32), w, b


@mistake("make_data", "x is normal. Draw it uniform in [0, 1): Generator.random.")
def normal_x(rows, columns, seed):
    return linear_data(rows, columns, seed, normal=True)


@alternative("make_data")
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


@alternative("make_data")
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


@alternative("make_data")
def drawn_by_torch(rows, columns, seed):
    generator = torch.Generator().manual_seed(seed)
    x, w = (torch.rand(*size, generator=generator) for size in ((rows, columns), (columns,)))
    b = random.Random(seed).random()
    y = torch.randn(rows, generator=generator).add_(b).addmv_(x, w)
    return x.numpy(), y.numpy(), w.numpy(), b
