"""What a program and its worker processes use: the system's books -> *seconds of CPU, bytes of memory*.

Linux only (/proc); elsewhere the answer is NaN, so that a figure stays empty instead of wrong.
"""

import contextlib
import math
import multiprocessing
import os


def cpu_seconds():
    """CPU seconds, user and system, that this process and its living multiprocessing children have used so far."""
    return _sum(_cpu_seconds)


def memory_bytes():
    """Bytes of memory of this process and its living multiprocessing children; what they share is counted once.

    Source: the proportional set size (Pss) of proc_pid_smaps(5): a page that n processes map counts 1/n in each.
    """
    return _sum(_pss)


def private_bytes():
    """Bytes of memory of this process and its living multiprocessing children that are no pages of a file.

    What a loader holds beyond the file that it maps.  Source: RssAnon and RssShmem of proc_pid_status(5); memory that
    processes share is counted in each.
    """
    return _sum(_private)


def busy_seconds():
    """Seconds of processor time that all that runs on this machine has used since it was started."""
    try:
        with open("/proc/stat") as file:
            user, nice, system, _, _, *others = (int(field) for field in file.readline().split()[1:])
    except FileNotFoundError:  # no /proc
        return math.nan
    return (user + nice + system + sum(others[:3])) / os.sysconf("SC_CLK_TCK")


def _sum(of):
    try:
        total = of(os.getpid())
    except FileNotFoundError:  # no /proc
        return math.nan
    for child in multiprocessing.active_children():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
            total += of(child.pid)
    return total


def _cpu_seconds(pid):
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()  # after the name, which may hold anything
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _pss(pid):
    with open(f"/proc/{pid}/smaps_rollup") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("Pss:"))


def _private(pid):
    with open(f"/proc/{pid}/status") as file:
        return sum(int(line.split()[1]) * 1024 for line in file if line.startswith(("RssAnon:", "RssShmem:")))
