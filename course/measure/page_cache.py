"""What the system's page cache holds of a file, and what it has to fetch from the disk.

A file that was read is in the page cache, so reading it again measures memory.  `drop_cached` makes
a file cold without root; `Reads` counts what came from the disk since.  `limited` simulates memory
that is smaller than a file, and `read_around` says how much a single fault may bring.
"""

import math
import mmap
import os
import resource
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch

HEADER = 4096  # bytes before the first row of a record file


def drop_cached(path: Path | str, *mappings: mmap.mmap, is_written: bool = False) -> bool:
    """Drop the clean pages of a file from the page cache; pages that another process maps stay.

    Args:
        mappings: mappings of the file by this process, whose pages are given back first (their
            tensors stay valid).
        is_written: whether all of it is on the disk already, so that nobody need wait for that.

    Returns: False where the system offers no such call (macOS, Windows): the file is then as warm
    as before.
    Source: posix_fadvise(2), POSIX_FADV_DONTNEED.
    """
    if not hasattr(os, "posix_fadvise"):
        return False
    for mapping in mappings:
        mapping.madvise(mmap.MADV_DONTNEED)
    file = os.open(path, os.O_RDONLY)
    try:
        if not is_written:
            os.fsync(file)  # pages that are not yet written cannot be dropped
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(file)
    return True


class Reads(NamedTuple):
    """What this process has fetched so far, all of its threads together."""

    disk_bytes: float  # from the disk, read-ahead of the system included; NaN where nobody counts
    major_faults: int  # memory pages of mappings that a thread had to wait for

    def since(self, before: "Reads") -> "Reads":
        """What was fetched between `before` and this."""
        return Reads(self.disk_bytes - before.disk_bytes, self.major_faults - before.major_faults)


def reads() -> Reads:
    """What this process has fetched so far.

    Source: read_bytes of proc_pid_io(5), ru_majflt of getrusage(2).
    """
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_majflt
    try:
        lines = Path("/proc/self/io").read_text().splitlines()
    except OSError:  # no /proc, or a container that hides it
        lines = []
    for line in lines:
        if line.startswith("read_bytes:"):
            return Reads(float(line.split()[1]), faults)
    return Reads(math.nan, faults)


def map_rows(
    path: Path | str, rows: int, stride: int, advice: int | None = None
) -> tuple[mmap.mmap, torch.Tensor]:
    """The mapping of a record file, and its first `rows` rows as a tensor on it.

    The tensor is float32 (rows, stride // 4).

    Args:
        stride: bytes per row.
        advice: for the whole mapping, e.g. mmap.MADV_RANDOM, which fetches single memory pages;
            None for the default, with which a fault brings neighbours, too.
    """
    with open(path, "rb") as file:
        mapping = mmap.mmap(file.fileno(), HEADER + rows * stride, flags=mmap.MAP_PRIVATE)
    if advice is not None:
        mapping.madvise(advice)
    table = torch.frombuffer(mapping, dtype=torch.float32, offset=HEADER).view(rows, stride // 4)
    return mapping, table


def limited(fill: Callable, room: float, path: Path | str, *mappings: mmap.mmap) -> Callable:
    """`fill`, but the file is dropped first if over `room` bytes have come from the disk since.

    Kinder than a machine whose memory has `room` bytes for the file: within a fill nothing is
    dropped. The thread that fills drops the file, because a file whose rows another thread
    touches meanwhile is mapped again immediately and stays.

    Args:
        fill: callable (index, buffer), as a Loader has it.
        mappings: as in `drop_cached`.
    """
    before = reads()

    def limited_fill(index, buffer):
        nonlocal before
        if reads().since(before).disk_bytes > room:
            drop_cached(path, *mappings)
            before = reads()
        return fill(index, buffer)

    return limited_fill


def read_around(path: Path | str) -> float:
    """Bytes that a fault in a mapping of the file brings at most; NaN where unknown.

    The neighbours of what is wanted are included.

    Source: read_ahead_kb of the disk, Linux's Documentation/ABI/stable/sysfs-block.
    """
    number = os.stat(path).st_dev
    disk = Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}")
    for folder in (disk, disk / ".."):  # the second for a partition
        try:
            return 1024 * float((folder / "queue/read_ahead_kb").read_text())
        except (OSError, ValueError):  # not Linux, or a file system without its own disk
            continue
    return math.nan
