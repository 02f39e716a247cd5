"""Time variants of a training step on all ranks together.

`timed_rounds` runs inside a rank; `sgd_step` makes the functions that it compares. Timing in one
process is in measure/timing.py.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist


def timed_rounds(variants: Sequence[Callable[[], Any]], rounds: int) -> torch.Tensor:
    """Seconds of each call of each variant, float64 (rounds, variants), the same on every rank.

    Each round calls every variant once, in a random order, each after a barrier; the time is that
    of the slowest rank. One uncounted round warms up.

    Args:
        variants: functions without arguments, the same ones on every rank.
    """
    order = torch.Generator().manual_seed(0)
    seconds = torch.zeros(rounds + 1, len(variants), dtype=torch.float64)
    for row in seconds:
        for i in torch.randperm(len(variants), generator=order).tolist():
            dist.barrier()
            started = time.perf_counter()
            variants[i]()
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            row[i] = time.perf_counter() - started
    # NCCL reduces tensors on the GPU only
    slowest = seconds.cuda() if dist.get_backend() == "nccl" else seconds
    dist.all_reduce(slowest, dist.ReduceOp.MAX)
    return slowest[1:].cpu()


def sgd_step(
    model: torch.nn.Module, batch: tuple[torch.Tensor, torch.Tensor], lr: float = 0.01
) -> Callable[[], None]:
    """A function without arguments that takes one step of SGD with `model`.

    Args:
        model: a module, or a wrapper of one. If it has a method `average_gradients`, that is called
            after backward.
        batch: images and labels, on the model's device.
    """
    images, labels = batch
    optimizer = torch.optim.SGD(model.parameters(), lr)

    def step() -> None:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(images), labels).backward()
        if hasattr(model, "average_gradients"):
            model.average_gradients()
        optimizer.step()

    return step
