"""What a program and its worker processes use: CPU seconds and bytes of memory, from /proc.

Linux only; elsewhere every function but `open_after` returns NaN, so that a figure is empty and not
wrong.
"""

import contextlib
import math
import multiprocessing
import os
import resource
from collections.abc import Callable


def cpu_seconds() -> float:
    """CPU seconds, user and system, of this process and its multiprocessing children.

    Children that have ended count too.
    """
    return _sum(_cpu_seconds)


def private_bytes() -> float:
    """Bytes of memory of this process and its living multiprocessing children.

    Pages of mapped files do not count. Memory that processes share is counted in each. Source:
    RssAnon and RssShmem of proc_pid_status(5).
    """
    return _sum(lambda pid: _bytes_of(pid, "status", "RssAnon:", "RssShmem:"))


def disk_bytes() -> float:
    """Bytes that this process and its multiprocessing children have fetched from the disk.

    The system's read-ahead is included, what came from the page cache is not. Children that have
    ended count too. Source: read_bytes of proc_pid_io(5).
    """
    return _sum(_bytes_fetched)


def busy_seconds() -> float:
    """CPU seconds that all processes of this machine have used since it was started."""
    try:
        with open("/proc/stat") as file:
            ticks = [int(field) for field in file.readline().split()[1:]]
    except FileNotFoundError:  # no /proc
        return math.nan
    # user, nice, system; not idle and iowait; irq, softirq, steal
    return (sum(ticks[:3]) + sum(ticks[5:8])) / os.sysconf("SC_CLK_TCK")


def open_after(make: Callable[[int], object], n: int) -> int:
    """How many more files are open while `make(0)`, …, `make(n - 1)` are kept."""
    before = len(os.listdir("/dev/fd"))
    kept = [make(i) for i in range(n)]
    after = len(os.listdir("/dev/fd"))
    del kept
    return after - before


def page_faults_of(call: Callable[[], object]) -> int:
    """Memory pages that the system had to find for this process while `call` ran a second time."""
    call()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    call()
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


def _sum(of):
    children = multiprocessing.active_children()  # this waits for those that have ended
    try:
        total = of(os.getpid())
    except FileNotFoundError:  # no /proc
        return math.nan
    for child in children:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
            total += of(child.pid)
    return total


def _cpu_seconds(pid):
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()  # after the name, which may hold anything
    # its own and that of children it has waited for
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def _bytes_fetched(pid):
    try:
        with open(f"/proc/{pid}/io") as lines:
            return sum(int(line.split()[1]) for line in lines if line.startswith("read_bytes:"))
    except PermissionError:  # a container that hides it
        return math.nan


def _bytes_of(pid, file, *names):
    """The sum of the sizes, in kB there, that /proc/<pid>/<file> gives under `names`."""
    with open(f"/proc/{pid}/{file}") as lines:
        return sum(1024 * int(line.split()[1]) for line in lines if line.startswith(names))
