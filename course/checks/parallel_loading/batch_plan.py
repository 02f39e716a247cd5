"""Probe of exercise batch_plan."""

from typing import Any

import torch

from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.laws import tried
from course.engine.probing.values import type_word


@exercise()
def batch_plan(answer: Answer, device: torch.device, seed: int) -> Facts:
    """The plan for several sizes, with and without workers."""
    workers = 2 + seed % 2
    size = 3 + seed % 31
    size += size % workers == 1  # else k % workers is the number of its first item % workers
    n = size * (workers * (2 + seed % 7) + 1)

    def pairs(*args: Any, **kwargs: Any) -> list[tuple[int | None, list[int]]]:
        return [(worker, list(batch)) for worker, batch in answer(*args, **kwargs)]

    def indices(*args: Any, **kwargs: Any) -> list[list[int]]:
        return [batch for _, batch in pairs(*args, **kwargs)]

    def builders(*args: Any, **kwargs: Any) -> list[int | None]:
        return [worker for worker, _ in pairs(*args, **kwargs)]

    plan = answer(n, size, workers)
    yield "returns a list", type_word(plan)
    lengths = sorted(set(map(len, plan)))
    form = {"lengths": lengths, "first of the pair": type_word(plan[0][0])}
    yield "of pairs (worker, indices)", form
    are_lists = all(isinstance(batch, (list, tuple)) for _, batch in plan)
    yield "the indices of a batch are a list", tried(are_lists, [n, size])
    yield "as many pairs as batches", len(plan)
    yield "the indices of each batch", indices(n, size, workers)
    yield "the worker of each batch", builders(n, size, workers)
    yield "a last batch that is not full", indices(n - 1, size, workers)
    yield "a last batch of a single item: the workers", builders(n - size + 1, size, workers)
    dropped = indices(n - 1, size, workers, drop_last=True)
    yield "drop_last leaves out a last batch that is not full", dropped
    yield "drop_last keeps a last batch that is full", indices(n, size, workers, drop_last=True)
    yield "without workers the main process builds all: None", builders(n, size, 0)
    yield "without workers the batches are the same", indices(n - 1, size, 0, True)
    yield "a single worker", builders(n, size, 1)
    yield "more workers than batches", builders(2 * size, size, 7)
    yield "a batch size of 1", pairs(3, 1, 2)
    yield "fewer items than a batch: one batch", pairs(size - 1, size, workers)
    none = pairs(size - 1, size, workers, drop_last=True)
    yield "fewer items than a batch, drop_last: no batch", none
    yield "an empty dataset: no batch", pairs(0, size, workers)
