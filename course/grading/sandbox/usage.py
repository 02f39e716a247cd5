"""What processes read and hold, as Linux counts it, seen from outside of them.

    before = Usage(numbers); ...; before.until(Usage(numbers))     # {"read": bytes, "memory": bytes}

Bytes are those of read calls, from wherever: rchar of /proc/<number>/io.  What a process has read is its parent's once
it has been waited for.  Memory is the growth of the process that grew most, at its highest.
"""

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
