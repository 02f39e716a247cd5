"""Probe of exercise device_of."""

import re

import torch

from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.errors import outcome


@exercise(returns_no_number=True)
def device_of(answer: Answer, device: torch.device, seed: int) -> Facts:
    """Devices of machines with no, one and several GPUs."""
    count = 2 + seed % 47
    kind = type(answer(0, 1))
    yield "returns a torch.device", f"{kind.__module__}.{kind.__qualname__}"
    yield "the first process, one GPU", answer(0, 1)
    yield f"each of {count} processes, {count} GPUs", [answer(rank, count) for rank in range(count)]
    yield "fewer processes than GPUs", answer(1 + seed % 5, 8)
    yield "no GPU: the CPU", answer(0, 0)
    yield "no GPU, and many processes", [answer(rank, 0) for rank in (1, count, 40)]
    for rank, text in ((count, "one process too many"), (count + 6, "many processes too many")):
        result, message = outcome(lambda rank=rank: answer(rank, count))
        yield f"{text}: ValueError", result
        yield (
            f"{text}: the message holds both numbers",
            {str(rank), str(count)} <= set(re.findall(r"\d+", message)),
        )
