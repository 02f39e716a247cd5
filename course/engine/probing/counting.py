"""How much a call holds and runs: bytes, lines of Python; counted, not timed."""

import contextlib
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any


@contextlib.contextmanager
def peak_bytes() -> Iterator[list[int]]:
    """Yield a list that holds, after the block, the peak of its bytes in Python and NumPy.

    Memory from before the block does not count, nor does torch's, which NewTensors of `tensors`
    counts.
    """
    started = not tracemalloc.is_tracing()  # a notebook may trace already
    if started:
        tracemalloc.start()
    try:
        tracemalloc.reset_peak()
        before, _ = tracemalloc.get_traced_memory()
        found: list[int] = []
        yield found
        _, peak = tracemalloc.get_traced_memory()
        found.append(peak - before)
    finally:
        if started:
            tracemalloc.stop()


def peak_bytes_of(call: Callable[..., object], *args: Any) -> int:
    """The `peak_bytes` of `call(*args)`."""
    with peak_bytes() as peak:
        call(*args)
    return peak[0]


def runs_at_most(lines: int, call: Callable[[], object]) -> bool:
    """True if `call()` executes at most `lines` lines of Python, in whatever file they stand."""
    count = 0

    def trace(frame: FrameType, event: str, arg: Any) -> Any:
        nonlocal count
        count += 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return count <= lines
