"""Probe of exercise one_f_one_b."""

import torch

from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.values import type_names
from course.parallel.pipeline import order_drawing


def _drawn(answer: Answer, ranks: int, micro_batches: int) -> str:
    """The picture of the timetable of all ranks."""
    return order_drawing([answer(rank, ranks, micro_batches) for rank in range(ranks)])


@exercise(returns_no_number=True)
def one_f_one_b(answer: Answer, device: torch.device, seed: int) -> Facts:
    """The passes of each rank under 1F1B, as a picture of all ranks, at several sizes."""
    last = answer(1, 2, 3)
    yield "returns a list of tuples", type_names(last)
    yield (
        "each tuple is (kind, micro-batch)",
        [[type(item).__name__ for item in each] for each in last[:1]],
    )
    sizes = [(2, 3), (4, 6), (1, 3), (3, 1)]
    sizes += [(4 + seed % 3, 2), (2 + seed % 4, 7), (3 + seed % 3, 5)]
    for ranks, micro_batches in sizes:
        setting = f"{ranks} ranks, {micro_batches} micro-batches"
        yield setting, _drawn(answer, ranks, micro_batches)
    rank = seed % 3
    micro_batches = 4 + seed % 5
    setting = f"the passes of rank {rank} of 3, {micro_batches} micro-batches"
    yield setting, answer(rank, 3, micro_batches)
