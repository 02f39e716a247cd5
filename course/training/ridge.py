"""A regularised regression with badly conditioned columns, and methods that stream its rows.

Unit 04 compares methods by the passes over the data that they need. The objective is
|X w - y|^2 / (2 n) + strength |w|^2 / 2, and its columns are mixtures whose variances fall from 1
to 1 / SPREAD, so without `strength` the condition number is about SPREAD.

Sources: stochastic variance-reduced gradient, Johnson and Zhang 2013, "Accelerating stochastic
gradient descent using predictive variance reduction".
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from course.measure.comparison import Interval, ratio_interval

SPREAD = 1e4
MOST_PASSES = 32  # after which a method counts as one that needs so many


@dataclass(frozen=True)
class Ridge:
    """Rows in memory, and the solution, which only a judge needs.

    `matrix` is X^T X / n + strength I in float64, `best` the weights of least objective.
    """

    x: Tensor
    y: Tensor
    strength: float
    matrix: Tensor
    best: Tensor

    def excess(self, w: Tensor) -> float:
        """The objective of `w` above the least one, over that of w = 0."""
        off = w.double() - self.best
        return (off @ self.matrix @ off / (self.best @ self.matrix @ self.best)).item()

    @property
    def condition(self) -> float:
        """The largest eigenvalue of `matrix` over the smallest."""
        eigenvalues = torch.linalg.eigvalsh(self.matrix)
        return (eigenvalues[-1] / eigenvalues[0]).item()


def ridge(seed: int, rows: int, columns: int, strength: float) -> Ridge:
    """A problem with true weights, mixing and noise from `seed`."""
    rng = torch.Generator().manual_seed(seed)
    mixing, _ = torch.linalg.qr(torch.randn(columns, columns, generator=rng))
    deviations = torch.logspace(0, -0.5, columns, base=SPREAD)
    x = torch.randn(rows, columns, generator=rng) * deviations @ mixing.T
    y = x @ torch.randn(columns, generator=rng) + torch.randn(rows, generator=rng)
    wide = x.double()
    matrix = wide.T @ wide / rows + strength * torch.eye(columns, dtype=torch.float64)
    best = torch.linalg.solve(matrix, wide.T @ y.double() / rows)
    return Ridge(x, y, strength, matrix, best)


def last_of_sgd(problem: Ridge, lr: float, batch_size: int) -> Callable[[int], Tensor]:
    """A function (passes) -> the weights after so many passes of SGD.

    The learning rate falls linearly to zero.
    """

    def train(passes: int) -> Tensor:
        rng = torch.Generator().manual_seed(0)
        w = torch.zeros(problem.x.shape[1])
        steps = passes * math.ceil(len(problem.y) / batch_size)
        done = 0
        for _ in range(passes):
            for index in torch.randperm(len(problem.y), generator=rng).split(batch_size):
                x = problem.x[index]
                residual = x @ w - problem.y[index]
                gradient = x.T @ residual / len(x) + problem.strength * w
                w = w - lr * (1 - done / steps) * gradient
                done += 1
        return w

    return train


def passes_of_stream(
    problem: Ridge, weights: Iterable[Tensor], passes_each: int, target: float
) -> int:
    """How many passes until the excess is at most `target`; MOST_PASSES if it never is.

    Args:
        weights: what a method has after each of its rounds.
        passes_each: passes over the data of a round.
    """
    passes = 0
    for w in weights:
        passes += passes_each
        if problem.excess(w) <= target:
            return passes
        if passes >= MOST_PASSES or not torch.isfinite(w).all():
            break
    return MOST_PASSES


def passes_of_length(problem: Ridge, train: Callable[[int], Tensor], target: float) -> int:
    """The fewest passes for which `train(passes)` reaches `target`; at most MOST_PASSES.

    For methods that get nearer with every pass, or have to know how many there are. Doubles the
    passes until the target is reached, then halves the interval.
    """
    high = 1
    while high < MOST_PASSES and problem.excess(train(high)) > target:
        high = min(2 * high, MOST_PASSES)
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        if problem.excess(train(middle)) <= target:
            high = middle
        else:
            low = middle
    return high


def times_as_many(passes: Sequence[int], others: Sequence[int]) -> Interval:
    """The Interval of how many times as many passes, on the same problems in pairs."""
    pair = [torch.tensor(counts, dtype=torch.float64) for counts in (passes, others)]
    return ratio_interval(*pair)
