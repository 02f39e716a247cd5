"""Probe of exercise noise_scale."""

import math

import torch

from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.values import number_kind


@exercise()
def noise_scale(answer: Answer, device: torch.device, seed: int) -> Facts:
    """The noise scale from norms whose answer is known, and from drawn gradients."""
    rng = torch.Generator().manual_seed(seed)
    signal = 0.5 + 0.1 * (seed % 7)  # |G|^2
    noise = 40.0 + seed % 11  # the trace of the covariance

    def norm(batch: int, times: float = 1.0) -> float:
        """The root of the mean squared norm of a gradient of `batch` samples, times a factor."""
        return times * math.sqrt(signal + noise / batch)

    def tensor(*values: float) -> torch.Tensor:
        return torch.tensor(values, device=device)

    def norms(n: int, batch: int) -> torch.Tensor:
        """Norms of `n` drawn gradients of 30 components, with mean and covariance as above."""
        mean = math.sqrt(signal / 30)
        spread = math.sqrt(noise / 30 / batch)
        return (mean + spread * torch.randn(n, 30, generator=rng)).norm(dim=1).to(device)

    first = answer(tensor(norm(16)), tensor(norm(512)), 16, 512)
    yield "returns a number, no tensor", number_kind(first)
    yield "one norm of each batch size", first
    yield "batch sizes 1 and 2", answer(tensor(norm(1)), tensor(norm(2)), 1, 2)
    longer = answer(tensor(norm(16, 10.0)), tensor(norm(512, 10.0)), 16, 512)
    yield "norms ten times as large: the same noise scale", longer
    factors = (0.6, 1.0, 1.4)
    small = tensor(*(norm(16, factor) for factor in factors))
    large = tensor(*(norm(512, factor) for factor in factors))
    yield "three norms of each size that differ", answer(small, large, 16, 512)
    small = norms(40 + seed % 9, 8)
    large = norms(12, 256)
    yield "fifty drawn gradients, more small batches than large ones", answer(small, large, 8, 256)
    yield "the order of the norms does not count", answer(small.flip(0), large.flip(0), 8, 256)
    yield "a gradient without noise has noise scale 0", answer(tensor(2.0, 2.0), tensor(2.0), 8, 64)
    below = answer(tensor(1.0), tensor(1.2), 4, 256)
    yield "shorter gradients of small batches: the estimate of S is below 0", below
    of_batches = answer(tensor(norm(100)), tensor(norm(25_600)), 100, 25_600)
    yield "batches of batches: 100 and 25,600 samples", of_batches
    of_zero_length = answer(tensor(8.0, 8.0), tensor(1.0), 4, 256)
    yield "the squared length is estimated as 0: infinite", of_zero_length
    yield "it is estimated as less than 0: infinite", answer(tensor(8.0, 8.0), tensor(0.5), 4, 256)
    yield "all gradients are zero: infinite, too", answer(tensor(0.0, 0.0), tensor(0.0), 4, 256)
