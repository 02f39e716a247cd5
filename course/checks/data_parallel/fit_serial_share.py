"""Probe of exercise fit_serial_share."""

import torch

from course.checks.engine import exercise
from course.checks.probing.values import type_names


@exercise(isolated=True)
def fit_serial_share(answer, device, seed):
    """Times on the curve, beside it, and so that the best line leaves [0, 1]."""
    rng = torch.Generator().manual_seed(seed)
    ranks = [1, 2, 3, 4, 6, 8 + seed % 5]
    x = 1 / torch.tensor(ranks, dtype=torch.float64)
    t1, share = 50.0 + seed % 17, 0.15 + 0.1 * (seed % 3)

    def fitted(ranks, seconds):
        return torch.tensor(answer(ranks, seconds), dtype=torch.float64)

    exact = t1 * (share + (1 - share) * x)
    found = answer(ranks, exact)
    yield "returns two Python floats", [type(found).__name__, len(found), *type_names(list(found))]
    yield "times exactly on the curve", fitted(ranks, exact)
    yield "times in another order", fitted(ranks[::-1], exact.flip(0))
    noisy = exact * (1 + 0.03 * torch.randn(len(ranks), generator=rng))
    yield "noisy times", fitted(ranks, noisy)
    yield "no measurement on one rank", fitted(ranks[1:], noisy[1:])
    yield "two measurements", fitted([2, 8], torch.tensor([30.0, 12.0], dtype=torch.float64))
    yield "a number of ranks measured twice", fitted([1, 2, 2, 4], noisy[[0, 1, 2, 3]])
    yield "float32 times, computed in float64", fitted(ranks, noisy.float())
    tilted = t1 * (x - 0.04 + 0.01 * torch.rand(len(ranks), generator=rng))
    yield "better than ideal: s is 0", fitted(ranks, tilted)[1]
    yield "better than ideal: its t1", fitted(ranks, tilted)
    slower = t1 * (1.5 - 0.4 * x + 0.05 * torch.rand(len(ranks), generator=rng))
    yield "slower with more ranks: s is 1", fitted(ranks, slower)[1]
    yield "slower with more ranks: its t1", fitted(ranks, slower)
    yield "a hundred times slower with more ranks", fitted([1, 2, 4, 8], torch.tensor([1.0, 4.0, 20.0, 100.0]))
    yield "times that do not change", fitted([1, 2, 4], torch.tensor([7.0, 7.0, 7.0]))
    yield "ideal times", fitted([1, 2, 4], torch.tensor([8.0, 4.0, 2.0]))
