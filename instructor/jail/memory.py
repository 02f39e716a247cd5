"""The memory of a jail: that of its processes, and of its files, which lie in memory.

    memory = Memory(roots, folders)
    memory.exceeds(limit)                   # asked ten times per second, from outside

What belongs to neither is not counted: shared mappings whose pages no process looks at, and what
sockets hold. Where that fills the machine, Linux ends the jail's processes first
(isolation.prefer_for_oom), and with them it is gone.
Sources: proc_pid_status(5), proc_pid_smaps(5), proc_tid_children(5).
"""

import os
from pathlib import Path
from typing import NamedTuple

FILE_OVERHEAD_BYTES = 2048  # that Linux keeps in memory per file, in addition to its content


class _Held(NamedTuple):
    """The memory of a process, in kB."""

    own: int
    shared: int


class Memory:
    """What the processes and files of one jail hold.

    Args:
        roots: numbers, seen from here, of the processes that all others in the jail descend from.
        folders: where its files lie.
    """

    def __init__(self, roots: list[int], folders: list[str]) -> None:
        self.roots = roots
        self.folders = folders

    def exceeds(self, limit: int) -> bool:
        """Whether all of it together is more than `limit` bytes.

        Which pages are shared with the zygote takes 10 ms per process to read, so it is read where
        the sum with them is too large.
        """
        numbers = descendants(self.roots)
        if self._sum(numbers, ["status"]) <= limit:
            return False
        return self._sum(numbers, ["smaps_rollup", "status"]) > limit

    def _sum(self, numbers: list[int], files: list[str]) -> int:
        """Bytes of these processes by the first of `files` that can be read, and of all files."""
        own = shared = 0
        for number in numbers:
            held = _held(number, files)
            own += 1024 * held.own
            shared += 1024 * held.shared
        on_disk = sum(map(_used, self.folders))
        return own + max(shared, on_disk)  # files that are mapped count in both


def descendants(numbers: list[int]) -> list[int]:
    """`numbers` of processes and those of all that they have started.

    Also of those that this user may not look into.
    """
    family = list(numbers)
    for number in family:  # it grows
        for thread in _entries(f"/proc/{number}/task"):
            children = _text(f"/proc/{number}/task/{thread}/children")
            family += map(int, children.split())
    return family


def _held(number: int, files: list[str]) -> _Held:
    """The memory of a process by the first of `files` in /proc that can be read; 0 if it ended."""
    kilobytes = {}
    for line in _first_text(number, files).splitlines():
        if line.startswith(("Rss", "Pss")):
            name, amount, *_ = line.split()
            kilobytes[name] = int(amount)
    own, shared = ("Pss_Anon:", "Pss_Shmem:")
    if own not in kilobytes:
        own, shared = ("RssAnon:", "RssShmem:")
    return _Held(kilobytes.get(own, 0), kilobytes.get(shared, 0))


def _first_text(number: int, files: list[str]) -> str:
    for file in files:
        if text := _text(f"/proc/{number}/{file}"):
            return text
    return ""


def _used(folder: str) -> int:
    """Bytes of the files in a folder that is in memory."""
    try:
        space = os.statvfs(folder)
    except OSError:
        return 0
    blocks = space.f_blocks - space.f_bfree
    files = space.f_files - space.f_ffree
    return blocks * space.f_frsize + files * FILE_OVERHEAD_BYTES


def _entries(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:  # the process has ended
        return []


def _text(path: str) -> str:
    try:
        return Path(path).read_text(errors="replace")  # a process chooses its own name
    except OSError:
        return ""
