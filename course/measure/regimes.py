"""Operations whose arithmetic and bytes can be changed one without the other: *functions to time*.

After H. He, "Making Deep Learning Go Brrrr From First Principles", 2022.
"""

import time
from collections.abc import Callable

import torch

CALLS = 500  # of `often`


def clamped(numbers: int, limits: int, device: torch.device) -> Callable[[], object]:
    """A function that compares `numbers` with one or two `limits`, into memory that is there."""
    x = torch.randn(numbers, device=device)
    out = torch.empty_like(x)
    values = (0.0, 1.0)[:limits]
    return lambda: torch.clamp(x, *values, out=out)


def product(rows: int, inner: int, columns: int, device: torch.device) -> Callable[[], object]:
    """A function that multiplies two matrices, into memory that is there."""
    left = torch.randn(rows, inner, device=device)
    right = torch.randn(inner, columns, device=device)
    out = torch.empty(rows, columns, device=device)
    return lambda: torch.mm(left, right, out=out)


def often(call: Callable[[], object]) -> Callable[[], object]:
    """A function that makes the same short call CALLS times."""

    def calls() -> None:
        for _ in range(CALLS):
            call()

    return calls


def busy(call: Callable[[], object], seconds: float = 0.2) -> float:
    """The share of its threads that the processor spends on `call`, which repeats for `seconds`."""
    call()
    begin = time.perf_counter()
    before = time.process_time()
    while time.perf_counter() - begin < seconds:
        call()
    worked = time.process_time() - before
    return worked / (time.perf_counter() - begin) / torch.get_num_threads()
