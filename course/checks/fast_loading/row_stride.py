"""Probe of exercise row_stride."""

import torch

from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.errors import error_name


@exercise()
def row_stride(answer: Answer, device: torch.device, seed: int) -> Facts:
    """Short rows, long rows, and rows that fill their memory exactly."""

    def strides(*columns: int) -> dict[str, int]:
        return {f"{n:,} columns, {4 * (n + 1):,} bytes a row": answer(n) for n in columns}

    yield "returns an int", type(answer(10 + seed % 50)).__name__
    short = strides(5, (20 << seed % 4) + seed % 10, 300 + seed % 100)
    yield "short rows: the next power of two", short
    yield "the value y has room", strides(2, 4, 8, 64, 512)
    yield "a row that fills its power of two", strides(1, 3, 7, 255, 511)
    yield "a row of one memory page", strides(1023)
    long = strides(1024, 2500 + 1009 * (seed % 997), 4000, 10_000)
    yield "longer rows: the next multiple of 4096", long
    yield "a row that fills its memory pages", strides(2047, 3071, 5119)
    errors = {n: error_name(answer, n, none="NoneType") for n in (0, -1, -20)}
    yield "no column, or fewer: ValueError", errors
