"""What processes read and hold, as Linux counts it, seen from outside of them; and what a right answer takes of both.

    before = Usage(numbers); ...; before.until(Usage(numbers))     # {"read": bytes, "memory": bytes}

Bytes are those of read calls, from wherever: rchar of /proc/<number>/io.  What a process has read is its parent's once
it has been waited for.  Memory is the growth of the process that grew most, at its highest.
"""

import os
import re
import socket
from pathlib import Path

from course.grading.sandbox.remote import Link

MEGA = 1e6
# An answer may read MORE times what a right one does and READ bytes (such as modules that it imports), and hold MEMORY
# bytes more.  Right answers were seen to read as much, but to hold up to 42 MB more after a whole notebook: pages of
# libraries come and go, and what malloc keeps depends on what ran before.
MORE, READ, MEMORY = 1.5, 4e6, 128 * 2**20


class Usage:
    """What the processes with these `numbers` have read and hold now; those that are gone are left out.

    From now on their high-water marks of memory count anew, where Linux permits that.
    """

    def __init__(self, numbers):
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

    def until(self, later):
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


def too_much(taken, takes):
    """A sentence if an answer has `taken` far more than a right one `takes`, which it does not tell, else None."""
    if taken["read"] > MORE * takes["read"] + READ:
        did = f"read {taken['read'] / MEGA:.0f} MB"
    elif taken["memory"] > takes["memory"] + MEMORY:
        did = f"held {taken['memory'] / MEGA:.0f} MB more than before"
    else:
        return None
    return f"seen from outside, your code {did} in this check, far more than it needs."


def right_answer(exercise, device, seed):
    """{"is_class": whether the answer is to be a class, "expected": the facts of a right one, "takes": see `until`}.

    Only a measured exercise has the latter, on the CPU: then the reference runs in a fork of this process, which must
    have no threads.  Raises: whatever the probe raises, which comes out of a fork as a RuntimeError.
    """
    is_class = exercise.asks_for_class(device, seed)  # loads the solutions, which is not to be measured
    if not exercise.measured or device.type != "cpu":
        return {"is_class": is_class, "expected": exercise.expected(device, seed).facts}
    ours, theirs = socket.socketpair()
    with ours, theirs:
        child = os.fork()
        if not child:
            try:
                Link(theirs).send(_measured(exercise, device, seed))
            finally:
                os._exit(0)
        theirs.close()
        try:
            found = Link(ours).receive()
        finally:
            os.waitpid(child, 0)
    if "error" in found:
        raise RuntimeError(found["error"])
    return found | {"is_class": is_class}


def _measured(exercise, device, seed):
    """The facts of the reference and what they took, or {"error": ...}."""
    try:
        before = Usage([os.getpid()])
        facts = exercise.expected(device, seed).facts
        return {"expected": facts, "takes": before.until(Usage([os.getpid()]))}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}
