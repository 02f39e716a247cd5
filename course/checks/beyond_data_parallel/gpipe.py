"""Probe of exercise gpipe."""

import torch

from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.values import type_names
from course.parallel.pipeline import drawing


@exercise(returns_no_number=True)
def gpipe(answer: Answer, device: torch.device, seed: int) -> Facts:
    """The GPipe schedule as a picture, at several sizes."""
    small = answer(2, 3)
    yield "returns a list of tuples", type_names(small)
    kinds = set()
    for each in small:
        kinds.add(tuple(type(item).__name__ for item in each))
    yield "each tuple is (rank, time, kind, micro-batch)", sorted(kinds)
    yield "2 ranks, 3 micro-batches", drawing(small)
    yield "2 ranks, 3 micro-batches: how many passes", len(small)
    sizes = [(4, 4), (1, 3), (3, 1), (2 + seed % 4, 7), (3 + seed % 3, 5)]
    for ranks, micro_batches in sizes:
        schedule = answer(ranks, micro_batches)
        setting = f"{ranks} ranks, {micro_batches} micro-batches"
        yield setting, drawing(schedule)
        yield f"{setting}: how many passes", len(schedule)
