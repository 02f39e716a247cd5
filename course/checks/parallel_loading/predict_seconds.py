"""Probe of exercise predict_seconds."""

import math

import torch

from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.tensors import form_or_type


@exercise()
def predict_seconds(answer: Answer, device: torch.device, seed: int) -> Facts:
    """A pipeline whose slowest stage sets the pace."""
    a = 0.3 + 0.01 * (seed % 7)  # seconds of a worker per batch
    c = 0.02 + 0.001 * (seed % 5)  # seconds of the main process per batch
    workers = [1, 2, 3, 5, 8, 64]
    plenty = math.inf
    form = form_or_type(answer(workers, a, c, 4))
    yield "returns a float64 tensor, one value per number of workers", form
    yield "one worker, plenty of cores: its own time", answer([1], a, c, plenty)
    yield "workers share the building, plenty of cores", answer([2, 3, 5], a, c, plenty)
    yield "never faster than the main process", answer([64], a, c, plenty)
    yield "a main process slower than a worker", answer([1, 2], c, a, plenty)
    yield "two cores are full: all the work, divided by them", answer([2, 8], a, c, 2)
    yield "one core: nothing runs in parallel", answer(workers, a, c, 1)
    yield "four cores", answer(workers, a, c, 4)
    yield "a step that takes longest", answer(workers, a, c, 4, 10.0)
    yield "a step that is longer than some", answer(workers, a, c, plenty, a / 4)
    # were the step to take a core, two of them would be full
    yield "a step by name, on two cores: it needs none", answer(workers, a, c, 2, step=0.6 * a)
    for dtype in (torch.int64, torch.float32):
        given = torch.tensor(workers[::-1], dtype=dtype, device=device)
        yield f"a tensor, {str(dtype)[6:]}, in another order", answer(given, a, c, 4)
