"""What processes read and hold, as Linux counts it, seen from outside of them.

    before = Usage(numbers); ...; before.until(Usage(numbers))     # {"read": bytes, "memory": bytes}

Bytes are those of read calls, from wherever: rchar of /proc/<number>/io.  What a process has read is its parent's once
it has been waited for.  Memory is the growth of the process that grew most, at its highest.
"""

import os
import re
from collections.abc import Iterable
from pathlib import Path

MEGA = 1e6
# An answer may read MORE times what a right one does and READ bytes (such as modules that it imports), and hold MEMORY
# bytes more.  Right answers were seen to read as much, but to hold up to 42 MB more after a whole notebook: pages of
# libraries come and go, and what malloc keeps depends on what ran before.
MORE, READ, MEMORY = 1.5, 4e6, 128 * 2**20


class Usage:
    """What the processes with these `numbers` have read and hold now; those that are gone are left out.

    From now on their high-water marks of memory count anew, where Linux permits that.
    """

    def __init__(self, numbers: Iterable[int | str]):
        self.read, self.held, self.highest = 0, {}, {}
        for number in numbers:
            try:
                self.read += _value(Path(f"/proc/{number}/io").read_text(), "rchar")
                status = Path(f"/proc/{number}/status").read_text(errors="replace")
                self.held[number] = _value(status, "VmRSS") * 1024
                self.highest[number] = _value(status, "VmHWM") * 1024
                Path(f"/proc/{number}/clear_refs").write_text("5")
            except OSError:
                pass

    def until(self, later: "Usage") -> dict[str, int]:
        """{"read": bytes, "memory": bytes} that were taken between this Usage and the one `later`.

        A process that is new is held against the one that held most: it may be a fork of that one.
        """
        most = max(self.held.values(), default=0)
        grown = [highest - self.held.get(number, most) for number, highest in later.highest.items()]
        return {"read": later.read - self.read, "memory": max([0, *grown])}


def _value(text, name):
    """The number in the line `name`; 0 if there is none: a process that has ended holds nothing."""
    found = re.search(rf"^{name}:\s*(\d+)", text, re.M)  # at its beginning: a process chooses its own name
    return int(found[1]) if found else 0


def violation(taken: dict, takes: dict) -> str | None:
    """Return an error message if usage exceeds the reference's by far, else None; it does not say what that takes."""
    if taken["read"] > MORE * takes["read"] + READ:
        did = f"read {taken['read'] / MEGA:.0f} MB"
    elif taken["memory"] > takes["memory"] + MEMORY:
        did = f"held {taken['memory'] / MEGA:.0f} MB more than before"
    else:
        return None
    return f"seen from outside, your code {did} in this check, far more than it needs."


def memory_inside(numbers: list[str], folders: Iterable[str], limit: int) -> int:
    """Bytes of the processes `numbers` and of the files in `folders`: what they share with the zygote does not count.

    To read which pages are shared takes 10 ms per process, so it is done where the sum with them exceeds `limit`.
    """
    files = sum(map(_used, folders))

    def total(file, own, shared):
        found = [_kilobytes(f"/proc/{number}/{file}", own, shared) for number in numbers]
        own, shared = (sum(each) * 1024 for each in zip((0, 0), *found, strict=True))
        return own + max(shared, files)  # files that are mapped count in both

    quick = total("status", "RssAnon:", "RssShmem:")
    return quick if quick < limit else total("smaps_rollup", "Pss_Anon:", "Pss_Shmem:")


def processes_in(namespace: str) -> list[str]:
    """The numbers of all processes that live in a process namespace, as /proc/<number>/ns/pid names it."""
    return [number for number in os.listdir("/proc") if number.isdecimal() and _namespace(number) == namespace]


def _namespace(number):
    try:
        return os.readlink(f"/proc/{number}/ns/pid")
    except OSError:  # gone, or of another user
        return None


def _used(folder):
    try:
        space = os.statvfs(folder)
    except OSError:
        return 0
    return (space.f_blocks - space.f_bfree) * space.f_frsize


def _kilobytes(path, *fields):
    """The number in the line of each field; 0 where there is none."""
    try:
        with open(path, errors="replace") as lines:  # a process chooses its own name
            found = {line.split()[0]: int(line.split()[1]) for line in lines if line.startswith(fields)}
    except OSError:
        found = {}
    return [found.get(field, 0) for field in fields]
