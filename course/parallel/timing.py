"""Time variants of a training step on all ranks together.

`compare_on_ranks` runs inside a rank; `sgd_step` makes the functions that it compares. Where a run
measures its own seconds, `compare_measured_on_ranks` takes them. How they compare is in
measure/comparison.py.
"""

import random
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist

from course.measure.comparison import (
    FEWEST_ROUNDS,
    HALF_WIDTH,
    MOST_ROUNDS,
    Comparison,
    compare_measured,
)

LR = 0.01  # of a step that is timed


def compare_on_ranks(
    ways: Mapping[str, Callable[[], object]],
    *,
    half_width: float = HALF_WIDTH,
    fewest_rounds: int = FEWEST_ROUNDS,
    most_rounds: int = MOST_ROUNDS,
    seconds: float = 60.0,
) -> Comparison:
    """The Comparison of `ways`, the same on every rank; a collective of all ranks.

    Every run begins after a barrier; see `compare_measured_on_ranks`.

    Args:
        ways: functions without arguments under the same names on every rank. The first is the base.
            A rank that takes no part in a way gives a function that does nothing.
        half_width, fewest_rounds, most_rounds, seconds: see `compare`.
    """

    def measure(way: str) -> float:
        dist.barrier()
        started = time.perf_counter()
        ways[way]()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        return time.perf_counter() - started

    return compare_measured_on_ranks(
        list(ways),
        measure,
        half_width=half_width,
        rounds=(fewest_rounds, most_rounds),
        seconds=seconds,
    )


def compare_measured_on_ranks(
    ways: Sequence[str],
    measure: Callable[[str], float],
    *,
    half_width: float = HALF_WIDTH,
    rounds: tuple[int, int] = (FEWEST_ROUNDS, MOST_ROUNDS),
    seconds: float = 60.0,
) -> Comparison:
    """The Comparison of `ways` by `measure(way)`, the same on every rank; a collective.

    The seconds of a run are those of the slowest rank. All ranks take the order that rank 0 draws,
    and rank 0's clock says when `seconds` are over, so that all stop after the same round.

    Args:
        measure: returns the seconds of one run on this rank.
        half_width, rounds, seconds: see `measure.comparison.compare_measured`.
    """

    def slowest(way: str) -> float:
        return _of_ranks(measure(way), dist.ReduceOp.MAX)

    def clock() -> float:
        is_first = dist.get_rank() == 0
        return _of_ranks(time.monotonic() if is_first else 0.0, dist.ReduceOp.SUM)

    return compare_measured(
        ways,
        slowest,
        half_width=half_width,
        rounds=rounds,
        seconds=seconds,
        clock=clock,
        shuffler=random.Random(clock()),
    )


def _of_ranks(value: float, reduction: Any) -> float:
    """The reduction of a number of each rank, in float64."""
    # NCCL reduces tensors on the GPU only
    device = "cuda" if dist.get_backend() == "nccl" else "cpu"
    number = torch.tensor(value, dtype=torch.float64, device=device)
    dist.all_reduce(number, reduction)
    return number.item()


def loss_of_images(
    model: torch.nn.Module, batch: tuple[torch.Tensor, torch.Tensor]
) -> torch.Tensor:
    """The mean cross entropy of images with labels, a scalar with a graph."""
    images, labels = batch
    return torch.nn.functional.cross_entropy(model(images), labels)


def sgd_step(
    model: torch.nn.Module,
    batch: Any,
    loss_of: Callable[[torch.nn.Module, Any], torch.Tensor] = loss_of_images,
) -> Callable[[], None]:
    """A function without arguments that takes one step of SGD with `model`.

    Args:
        model: a module, or a wrapper of one. If it has a method `average_gradients`, that is called
            after backward.
        batch: what `loss_of` takes, on the model's device; by default images and labels.
    """
    optimizer = torch.optim.SGD(model.parameters(), LR)

    def step() -> None:
        optimizer.zero_grad()
        loss_of(model, batch).backward()
        if hasattr(model, "average_gradients"):
            model.average_gradients()
        optimizer.step()

    return step
