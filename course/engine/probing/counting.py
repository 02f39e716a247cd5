"""How much a call holds, reads and runs: bytes, read calls, lines of Python; counted, not timed."""

import contextlib
import os
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, NamedTuple

REPEATS = 3  # the least of so many runs counts: a notebook's own threads read now and then


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


class ReadSoFar(NamedTuple):
    """What a process has read by read calls, as Linux counts it."""

    bytes: int
    calls: int
    bytes_of_count: int  # of the read of this very count


def bytes_and_calls_read(run: Callable[[], object]) -> list[int] | None:
    """[bytes, calls] that `run()` reads by read calls; None where the system does not tell.

    The whole process is counted, so the least of REPEATS runs is taken.
    """
    found = []
    for _ in range(REPEATS):
        before = read_so_far()
        if before is None:
            return None
        run()
        after = read_so_far()
        if after is None:
            return None
        # less the count before itself
        bytes_read = after.bytes - before.bytes - before.bytes_of_count
        found.append((bytes_read, after.calls - before.calls - 1))
    return [min(column) for column in zip(*found, strict=True)]


def read_so_far() -> ReadSoFar | None:
    """What this process has read so far; None where the system does not tell."""
    try:
        file = os.open("/proc/self/io", os.O_RDONLY)
    except OSError:
        return None
    try:
        text = os.read(file, 4096)
    finally:
        os.close(file)
    counts = dict(line.split(b": ") for line in text.splitlines())
    return ReadSoFar(int(counts[b"rchar"]), int(counts[b"syscr"]), len(text))
