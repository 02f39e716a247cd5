"""Probe of exercise device_of."""

import re

import torch

from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.errors import outcome
from course.engine.probing.laws import tried


@exercise(returns_no_number=True)
def device_of(answer: Answer, device: torch.device, seed: int) -> Facts:
    """Devices of machines with no, one and several GPUs."""
    count = 2 + seed % 47
    kind = type(answer(0, 1))
    yield "returns a torch.device", tried(f"{kind.__module__}.{kind.__qualname__}", count)
    yield "the first process, one GPU", answer(0, 1)
    yield f"each of {count} processes, {count} GPUs", [answer(rank, count) for rank in range(count)]
    yield "fewer processes than GPUs", answer(1 + seed % 5, 8)
    yield "no GPU: the CPU", tried(answer(0, 0), count)
    many = [answer(rank, 0) for rank in (1, count, 40)]
    yield "no GPU, and many processes", tried(many, count)
    yield from _too_many("one process too many", answer, count, count)
    yield from _too_many("many processes too many", answer, count + 6, count)


def _too_many(text: str, answer: Answer, rank: int, count: int) -> Facts:
    result, message = outcome(answer, rank, count)
    yield f"{text}: ValueError", tried(result, [rank, count])
    numbers = set(re.findall(r"\d+", message))
    holds_both = {str(rank), str(count)} <= numbers
    yield f"{text}: the message holds both numbers", tried(holds_both, [rank, count])
