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

FILE = 2048  # bytes that the system keeps of a file in memory, beside what is in it


class Memory:
    """What the processes and files of one jail hold.

    Args:
        roots: numbers, seen from here, of the processes that all others in the jail descend from.
        folders: where its files lie.
    """

    def __init__(self, roots: list[int], folders: list[str]):
        self.roots, self.folders = roots, folders

    def exceeds(self, limit: int) -> bool:
        """Whether all of it together is more than `limit` bytes.

        Which pages are shared with the zygote takes 10 ms per process to read, so it is read where
        the sum with them is too large.
        """
        numbers = descendants(self.roots)
        return (
            self._sum(numbers, ["status"]) > limit
            and self._sum(numbers, ["smaps_rollup", "status"]) > limit
        )

    def _sum(self, numbers, files):
        own, shared = (
            1024 * sum(each)
            for each in zip((0, 0), *(_held(n, files) for n in numbers), strict=True)
        )
        # files that are mapped count in both
        return own + max(shared, sum(map(_used, self.folders)))


def descendants(numbers: list[int]) -> list[int]:
    """`numbers` of processes and those of all that they have started, also of what may not be
    looked into.
    """
    family = list(numbers)
    for number in family:  # it grows
        for thread in _entries(f"/proc/{number}/task"):
            family += [
                int(child) for child in _text(f"/proc/{number}/task/{thread}/children").split()
            ]
    return family


def _held(number, files):
    """(kB of its own, kB shared) of a process by the first of `files` in /proc that can be read;
    (0, 0) if it ended.
    """
    text = next(filter(None, (_text(f"/proc/{number}/{file}") for file in files)), "")
    kilobytes = {
        line.split()[0]: int(line.split()[1])
        for line in text.splitlines()
        if line.startswith(("Rss", "Pss"))
    }
    own, shared = (
        ("Pss_Anon:", "Pss_Shmem:") if "Pss_Anon:" in kilobytes else ("RssAnon:", "RssShmem:")
    )
    return kilobytes.get(own, 0), kilobytes.get(shared, 0)


def _used(folder):
    """Bytes of the files in a folder that is in memory."""
    try:
        space = os.statvfs(folder)
    except OSError:
        return 0
    return (space.f_blocks - space.f_bfree) * space.f_frsize + (
        space.f_files - space.f_ffree
    ) * FILE


def _entries(folder):
    try:
        return os.listdir(folder)
    except OSError:  # the process has ended
        return []


def _text(path):
    try:
        return Path(path).read_text(errors="replace")  # a process chooses its own name
    except OSError:
        return ""
