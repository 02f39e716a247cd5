"""What a new tensor costs: page faults, and seconds.

The system only promises the memory of a large new block. The first write to each of its memory
pages is a page fault: the program waits until the system has found a free page and cleared it. A
block that the C library kept when it was freed has its pages already.

`Allocator` measures this in another process, whose C library is told by the environment how much
freed memory it keeps. `python -m course.measure.fresh_memory` is that process.
"""

import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch

from course.errors import CourseError

# glibc's own limits move between 128 KiB and 32 MiB; see mallopt(3)
KEEP_FREED = {"MALLOC_MMAP_THRESHOLD_": str(2**30), "MALLOC_TRIM_THRESHOLD_": str(2**30)}
WARM_UP = 16  # tensors before those that count: free pieces of memory are used up first


class Cost(NamedTuple):
    """What one new tensor costs on average."""

    seconds: float
    faults: float  # page faults


def cost_of(call: Callable[[], object], times: int = 8, warm_up: int = WARM_UP) -> Cost:
    """The Cost of `call`, which makes a tensor and drops it."""
    for _ in range(warm_up):
        call()
    faults = _faults()
    begin = time.perf_counter()
    for _ in range(times):
        call()
    seconds = time.perf_counter() - begin
    return Cost(seconds / times, (_faults() - faults) / times)


def _faults():
    """Page faults of this process so far, all threads together."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


class Allocator:
    """A process that makes tensors, with variables of the environment for its C library.

    Args:
        environment: such as KEEP_FREED; nothing leaves the library as it is.
    """

    def __init__(self, environment: Mapping[str, str] | None = None):
        self._process = subprocess.Popen(
            [sys.executable, "-m", "course.measure.fresh_memory"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | dict(environment or {}),
        )

    def __enter__(self) -> "Allocator":
        return self

    def __exit__(self, *error: Any) -> None:
        """End the process."""
        self._process.communicate()

    def new_tensor(self, n_bytes: int) -> Cost:
        """The Cost of copying `n_bytes` into a new tensor, which is dropped.

        Raises: CourseError if the process has ended.
        """
        self._process.stdin.write(f"{n_bytes}\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline().split()
        if not answer:
            raise CourseError(f"the process that makes tensors of {n_bytes:,} bytes has ended.")
        return Cost(*map(float, answer))


def _serve() -> None:
    """Answer each number of bytes that is read with a Cost, until the input ends."""
    torch.set_num_threads(1)
    source = torch.ones(0)
    for line in sys.stdin:
        floats = int(line) // 4
        if len(source) == floats:
            print(*cost_of(source.clone, warm_up=1), flush=True)
            continue
        del source  # its memory is the first that is free again
        source = torch.ones(floats)
        print(*cost_of(source.clone), flush=True)


if __name__ == "__main__":
    _serve()
