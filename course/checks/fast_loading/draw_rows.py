"""Probe of exercise draw_rows."""

import numpy as np
import torch

from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.randomness import random_state

MANY = 20_000  # rows: the standard deviation of their noise is known to 0.005


class _Case:
    """True weights and an intercept that depend on the seed."""

    def __init__(self, answer: Answer, seed: int) -> None:
        self.answer = answer
        self.seed = seed
        self.columns = 6 + seed % 5
        self.w = np.random.default_rng((seed, 1)).random(self.columns, dtype=np.float32)
        self.b = float(3 + seed % 7)

    def drawn(self, rows: int, state: int = 0) -> np.ndarray:
        """What the answer draws with a generator of this state."""
        return self.answer(rows, self.w, self.b, np.random.default_rng((self.seed, 2, state)))


@exercise()
def draw_rows(answer: Answer, device: torch.device, seed: int) -> Facts:
    """Many rows, whose averages are known, and a few that are compared number by number."""
    before = random_state()
    case = _Case(answer, seed)
    rows = case.drawn(MANY)
    kind = [type(rows).__name__, str(getattr(rows, "dtype", "")), getattr(rows, "shape", None)]
    yield "returns a float32 array with columns + 1 numbers per row", kind
    x = rows[:, :-1].astype(np.float64)
    y = rows[:, -1].astype(np.float64)
    yield from _inputs(x)
    yield from _noise(case, x, y - x @ case.w)
    yield from _generator(case)
    yield "the global random numbers stay as they were", before == random_state()


def _inputs(x: np.ndarray) -> Facts:
    yield "x is in [0, 1)", bool(0 <= x.min() and x.max() < 1)
    yield "the first ten rows of x differ", len(np.unique(x[:10], axis=0)) == 10
    yield "the mean of each column of x, times ten", np.rint(10 * x.mean(0)).tolist()
    deciles = np.bincount((10 * x).astype(int).clip(0, 9).ravel(), minlength=10) / x.size
    yield "each tenth of [0, 1) gets a tenth of x", bool(abs(deciles - 0.1).max() < 0.01)
    alike = np.corrcoef(x.T) - np.eye(x.shape[1])
    yield "columns of x are independent", bool(abs(alike).max() < 0.05)
    yield "rows of x differ", len(np.unique(x, axis=0)) == len(x)


def _noise(case: _Case, x: np.ndarray, off: np.ndarray) -> Facts:
    """The facts of `off`, y without x w: the intercept and the noise."""
    yield "y - x w is the intercept on average", round(off.mean())
    noise = off - case.b
    yield "the standard deviation of the noise, times ten", round(10 * noise.std())
    small = np.mean(abs(noise) < 1)
    yield (
        "68 % of the noise is below 1 in size, as of normal noise",
        bool(abs(small - 0.683) < 0.02),
    )
    after = np.corrcoef(noise[1:], noise[:-1])[0, 1]
    with_x = max(abs(np.corrcoef(noise, column)[0, 1]) for column in x.T)
    yield "each row has separate noise", bool(abs(after) < 0.05 and with_x < 0.05)


def _generator(case: _Case) -> Facts:
    few = case.drawn(5)
    yield "a generator in the same state gives the same rows", np.array_equal(few, case.drawn(5))
    yield "another state gives other rows", not np.array_equal(few, case.drawn(5, 1))
    rng = np.random.default_rng((case.seed, 3))
    parts = [case.answer(4, case.w, case.b, rng) for _ in range(2)]
    overlap = np.isin(parts[0][:, 0], parts[1][:, 0]).any()
    yield "the next call with this generator gives other rows", not overlap
    one = case.answer(1, case.w[:1], case.b, np.random.default_rng(case.seed))
    yield "one row of one column", [np.shape(one), str(one.dtype)]
