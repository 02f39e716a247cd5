"""How much a call holds, reads and runs: bytes, read calls, lines of Python, counted and never
timed.
"""

import contextlib
import os
import sys
import tracemalloc


@contextlib.contextmanager
def peak_bytes():
    """A list that holds, after the block, the most bytes of Python and NumPy that were alive at
    once in it.

    Memory from before the block does not count, nor does torch's, which NewTensors of `tensors`
    counts.
    """
    started = not tracemalloc.is_tracing()  # a notebook may trace already
    if started:
        tracemalloc.start()
    try:
        tracemalloc.reset_peak()
        before, peak = tracemalloc.get_traced_memory()[0], []
        yield peak
        peak.append(tracemalloc.get_traced_memory()[1] - before)
    finally:
        if started:
            tracemalloc.stop()


def peak_bytes_of(call, *args):
    """The most bytes of Python and NumPy that were alive at once in `call(*args)`, as `peak_bytes`
    counts them.
    """
    with peak_bytes() as peak:
        call(*args)
    return peak[0]


def runs_at_most(lines, call):
    """True if `call()` executes at most `lines` lines of Python, in whatever file they stand."""
    count = 0

    def trace(frame, event, arg):
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


def bytes_and_calls_read(run):
    """[bytes, calls] that `run()` reads by read calls, as Linux counts them; None where the system
    does not tell.

    The whole process is counted, and a notebook's own threads read a few bytes now and then: the
    least of three runs.
    """
    found = []
    for _ in range(3):
        before = read_so_far()
        if before is None:
            return None
        run()
        after = read_so_far()
        # less the count before itself
        found.append([after[0] - before[0] - before[2], after[1] - before[1] - 1])
    return [min(column) for column in zip(*found, strict=True)]


def read_so_far():
    """(bytes read by this process, its read calls, bytes of this very read), or None where the
    system does not tell.
    """
    try:
        file = os.open("/proc/self/io", os.O_RDONLY)
    except OSError:
        return None
    try:
        text = os.read(file, 4096)
    finally:
        os.close(file)
    counts = dict(line.split(b": ") for line in text.splitlines())
    return int(counts[b"rchar"]), int(counts[b"syscr"]), len(text)
