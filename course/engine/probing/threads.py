"""Threads of an answer: which are there, which have ended, and who waits.

What never comes is told early where Linux helps: a thread that waits has state S, and whatever
wakes it adds to its voluntary switches. Other programs change neither: a thread that could go on
but has no processor has state R. On other systems only the time limit ends a wait.
"""

import re
import sys
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path

END = object()  # what `next(stream, END)` gives at the end of a stream; no answer yields it
NAP = 0.005  # seconds between two looks
STILL = 50  # looks in a row in which no thread has moved: nothing will come
MEET = 3.0  # seconds that threads wait for each other


def wait_until(
    happened: Callable[[], bool],
    threads: Callable[[], Iterable[threading.Thread]],
    patience: float,
    still: int = STILL,
) -> bool:
    """Wait for `happened()` and return it: False once all threads that could bring it about wait,
    or after `patience`.

    Args:
        threads: gives the threads and processes that could, looked at anew each time; the caller's
            does not count.
        patience: seconds; naps are counted, so that a machine that stands still does not shorten
            it.
        still: looks in a row in which all threads must wait.
    """
    looks, before = 0, None
    for _ in range(round(patience / NAP)):
        if happened() or looks == still:
            break
        now = {_rest(thread) for thread in threads() if thread is not threading.current_thread()}
        looks = looks + 1 if now == before and None not in now else 0
        before = now
        time.sleep(NAP)
    return happened()


def _rest(thread):
    """What stays equal as long as a thread, or process, waits; None if it does not wait, or nobody
    can tell.
    """
    number = thread.native_id if isinstance(thread, threading.Thread) else thread.pid
    try:
        status = Path(f"/proc/{number}/status").read_text()
    except OSError:
        return None
    waits = re.search(r"^State:\tS.*^voluntary_ctxt_switches:\t(\d+)", status, re.M | re.S)
    if (
        waits and thread is threading.main_thread()
    ):  # the signals of a time limit wake it; it goes on waiting there
        frame = sys._current_frames()[thread.ident]
        return number, id(frame), frame.f_lasti
    return waits and (number, waits[1])


def acting(before):
    """The main thread, and those that are not in the set `before`."""
    return set(threading.enumerate()) - before | {threading.main_thread()}


def new_threads(before, patience=1.0):
    """How many threads run that are not in the set `before`; those about to end get `patience`
    seconds.
    """

    def new():
        return set(threading.enumerate()) - before

    wait_until(lambda: not new(), new, patience)
    return len(new())


def running():
    """The numbers of all threads that run."""
    return [thread.ident for thread in threading.enumerate()]


def new_since(numbers):
    """How many threads run that had none of these `numbers`; those about to end get a second."""
    return new_threads({thread for thread in threading.enumerate() if thread.ident in numbers})


def has_ended(thread, patience=1.0):
    """True if a thread has ended; one that is about to end gets `patience` seconds."""
    return wait_until(lambda: not thread.is_alive(), lambda: [thread], patience)


class Meeting:
    """A place where `n` threads wait for each other; `met` says whether they did, None until that
    is known.

    Args:
        before: the threads that never come (default: all that run now).
    """

    def __init__(self, n, before=None):
        self.n, self.here, self.met = n, set(), None
        self.before = set(threading.enumerate()) if before is None else before

    def wait(self):
        """Wait until all are here or nobody comes any more; return whether all were."""
        self.here.add(threading.get_ident())
        wait_until(
            lambda: self.met is not None or len(self.here) >= self.n,
            lambda: acting(self.before),
            MEET,
        )
        if self.met is None:
            self.met = len(self.here) >= self.n
        return self.met
