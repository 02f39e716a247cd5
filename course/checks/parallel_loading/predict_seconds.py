"""Probe of exercise predict_seconds."""

import torch

from course.checks.engine import exercise
from course.checks.probing.tensors import form_or_type


@exercise(isolated=True)
def predict_seconds(answer, device, seed):
    """The model: a line in 1 / w over a floor."""
    work, overhead, floor = 0.3 + 0.01 * (seed % 7), 0.02 + 0.001 * (seed % 5), 0.07
    workers = [1, 2, 3, 5, 8, 16]
    yield (
        "returns a float64 tensor, one value for each number of workers",
        form_or_type(answer(workers, floor, work, overhead)),
    )
    yield "the work alone is divided among the workers", answer(workers, 0.0, work, 0.0)
    yield "the overhead is added, whatever the number of workers", answer(workers, 0.0, work, overhead)
    yield "with a floor", answer(workers, floor, work, overhead)
    yield "a floor above everything", answer(workers, 10.0, work, overhead)
    yield "a single number of workers", answer([4], floor, work, overhead)
    for dtype in (torch.int64, torch.float32):
        given = torch.tensor(workers[::-1], dtype=dtype, device=device)
        yield f"a tensor, {str(dtype)[6:]}, in another order", answer(given, floor, work, overhead)
