"""Ranks that take local steps and meet every H steps, as DiLoCo does: *an outer step* -> weights.

Ranks are replicas in one process, because only what they compute matters here. The outer step is a
task of unit 07, part 5; torch's DDP, on real ranks, is the witness for H = 1.

Source: Douillard et al. 2023, "DiLoCo", arXiv:2311.08105, Algorithm 1.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from course.measure.comparison import Interval, ratio_interval

INPUTS = 16
HIDDEN = 32
ROWS = 32  # of the batch of a rank
NOISE = 0.1  # of the targets
TEST_ROWS = 1024  # of each rank's inputs
TEST_RANKS = 4  # a training has at most as many ranks
INNER_LR = 0.1
# (start, ends, velocity, lr, momentum) -> (weights, velocity)
OuterStep = Callable[[Tensor, Tensor, Tensor, float, float], tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class Outer:
    """How often ranks meet, and the SGD with Nesterov momentum that they take then."""

    local_steps: int
    lr: float
    momentum: float


def network(seed: int) -> nn.Module:
    """A small network in float64, the same on all ranks."""
    torch.manual_seed(seed)
    layers = nn.Sequential(nn.Linear(INPUTS, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, 1))
    return layers.double()


def batch(
    place: Sequence[int], rows: int = ROWS, shift: Tensor | float = 0.0
) -> tuple[Tensor, Tensor]:
    """Inputs and noisy outputs of a fixed teacher.

    Args:
        place: (seed, rank, step).
        shift: (INPUTS,) or a number, added to each input.
    """
    seed, rank, step = place
    rng = torch.Generator().manual_seed(1_000_003 * seed + 1009 * step + rank)
    x = torch.randn(rows, INPUTS, generator=rng, dtype=torch.float64)
    x += shift
    directions = torch.linspace(-1, 1, INPUTS, dtype=torch.float64)
    y = torch.sin(2 * x @ directions / INPUTS**0.5)[:, None]
    return x, y + NOISE * torch.randn(rows, 1, generator=rng, dtype=torch.float64)


def rank_shifts(distance: float, alike: bool) -> Tensor:
    """(TEST_RANKS, INPUTS): a shift per rank, in directions that are drawn, or all in one.

    Args:
        distance: length of each shift; an input has a standard deviation of 1.
        alike: whether all ranks have the shift of rank 0.
    """
    rng = torch.Generator().manual_seed(0)
    directions = torch.randn(TEST_RANKS, INPUTS, generator=rng, dtype=torch.float64)
    of_ranks = distance * directions / directions.norm(dim=1, keepdim=True)
    return of_ranks[:1].expand_as(of_ranks) if alike else of_ranks


NO_SHIFTS = rank_shifts(0.0, alike=True)


def weights_of(model: nn.Module) -> Tensor:
    """All weights of `model`, flat and without a graph."""
    return parameters_to_vector(model.parameters()).detach()


def trained(
    outer_step: OuterStep,
    outer: Outer,
    ranks: int,
    steps: int,
    seed: int = 0,
    shifts: Tensor = NO_SHIFTS,
) -> Tensor:
    """The weights after `steps` steps of SGD on each of `ranks` ranks, and the outer steps.

    Args:
        shifts: (TEST_RANKS, INPUTS), of each rank's inputs.
    """
    replica = network(seed)
    weights = weights_of(replica)
    velocity = torch.zeros_like(weights)
    for first in range(0, steps, outer.local_steps):
        ends = []
        for rank in range(ranks):
            vector_to_parameters(weights.clone(), replica.parameters())
            for step in range(first, first + outer.local_steps):
                _take_step(replica, batch((seed, rank, step), shift=shifts[rank]))
            ends.append(weights_of(replica))
        weights, velocity = outer_step(
            weights, torch.stack(ends), velocity, outer.lr, outer.momentum
        )
    return weights


def _take_step(model: nn.Module, of_rank: tuple[Tensor, Tensor]) -> None:
    """One step of SGD."""
    inputs, targets = of_rank
    model.zero_grad()
    F.mse_loss(model(inputs), targets).backward()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.grad is not None:
                parameter -= INNER_LR * parameter.grad


def by_ddp(rank: int, ranks: int, steps: int, seed: int = 0) -> Tensor:
    """The weights after `steps` steps of torch's DDP; call it in a rank."""
    model = DistributedDataParallel(network(seed))
    for step in range(steps):
        _take_step(model, batch((seed, rank, step)))
    return weights_of(model)


def test_loss(weights: Tensor, seed: int, shifts: Tensor = NO_SHIFTS) -> float:
    """The mean squared error on rows that no rank has seen, equally many of each rank's inputs."""
    model = network(seed)
    vector_to_parameters(weights, model.parameters())
    of_ranks = []
    for rank in range(TEST_RANKS):
        inputs, targets = batch((seed, rank, -1), TEST_ROWS, shifts[rank])
        with torch.no_grad():
            of_ranks.append(F.mse_loss(model(inputs), targets).item())
    return sum(of_ranks) / TEST_RANKS


def losses(
    outer_step: OuterStep,
    outer: Outer,
    ranks: int,
    steps: int,
    seeds: Sequence[int],
    shifts: Tensor = NO_SHIFTS,
) -> Tensor:
    """(seeds,): the loss of a training per seed."""
    found = []
    for seed in seeds:
        weights = trained(outer_step, outer, ranks, steps, seed, shifts)
        found.append(test_loss(weights, seed, shifts))
    return torch.tensor(found, dtype=torch.float64)


def loss_ratio(losses_of: Tensor, others: Tensor) -> Interval:
    """How many times as high the losses are as `others`, paired by seed."""
    return ratio_interval(losses_of, others)
