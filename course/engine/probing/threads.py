"""Threads of an answer: which are there, which have ended, and who waits.

What never comes is told early where Linux helps: a thread that waits has state S, and whatever
wakes it adds to its voluntary switches. Other programs change neither: a thread that could continue
but has no processor has state R. On other systems only the time limit ends a wait.
"""

import re
import sys
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Protocol

END = object()  # what `next(stream, END)` gives at the end of a stream; no answer yields it
NAP_SECONDS = 0.005  # between two looks
STILL_LOOKS = 50  # in a row in which no thread has moved: nothing will come
MEET = 3.0  # seconds that threads wait for each other


class _Process(Protocol):
    """A process of multiprocessing, of any start method."""

    @property
    def pid(self) -> int | None: ...


def wait_until(
    happened: Callable[[], bool],
    threads: Callable[[], Iterable[threading.Thread | _Process]],
    patience: float,
    still: int = STILL_LOOKS,
) -> bool:
    """Wait for `happened()` and return it.

    It is False once all threads that could bring it about wait, or after `patience`.

    Args:
        threads: returns the threads and processes that could; it is called again for each look.
            The caller's thread does not count.
        patience: seconds; naps are counted, so that a machine that stands still does not shorten
            it.
        still: looks in a row in which all threads must wait.
    """
    looks = 0
    before: set[object] | None = None
    for _ in range(round(patience / NAP_SECONDS)):
        if happened() or looks == still:
            break
        others = [thread for thread in threads() if thread is not threading.current_thread()]
        now = {_rest(thread) for thread in others}
        looks = looks + 1 if now == before and None not in now else 0
        before = now
        time.sleep(NAP_SECONDS)
    return happened()


def _rest(thread: threading.Thread | _Process) -> object:
    """What stays equal as long as a thread, or process, waits.

    None if it does not wait, or nobody can tell.
    """
    number = thread.native_id if isinstance(thread, threading.Thread) else thread.pid
    try:
        status = Path(f"/proc/{number}/status").read_text()
    except OSError:
        return None
    waits = re.search(r"^State:\tS.*^voluntary_ctxt_switches:\t(\d+)", status, re.M | re.S)
    if not waits:
        return None
    # the signals of a time limit wake the main thread; then it continues to wait there
    if thread is threading.main_thread():
        frame = sys._current_frames()[threading.main_thread().ident or 0]
        return number, id(frame), frame.f_lasti
    return number, waits[1]


def acting(before: set[threading.Thread]) -> set[threading.Thread]:
    """The main thread, and those that are not in `before`."""
    return set(threading.enumerate()) - before | {threading.main_thread()}


def new_threads(before: set[threading.Thread], patience: float = 1.0) -> int:
    """How many threads run that are not in `before`; those about to end get `patience` seconds."""

    def new() -> set[threading.Thread]:
        return set(threading.enumerate()) - before

    wait_until(lambda: not new(), new, patience)
    return len(new())


def running() -> list[int | None]:
    """The numbers of all threads that run."""
    return [thread.ident for thread in threading.enumerate()]


def new_since(numbers: Iterable[int | None]) -> int:
    """How many threads run that had none of these `numbers`; those about to end get a second."""
    numbers = set(numbers)
    return new_threads({thread for thread in threading.enumerate() if thread.ident in numbers})


def has_ended(thread: threading.Thread, patience: float = 1.0) -> bool:
    """True if a thread has ended; one that is about to end gets `patience` seconds."""
    return wait_until(lambda: not thread.is_alive(), lambda: [thread], patience)


class Meeting:
    """A place where `n` threads wait for each other.

    Attributes:
        met: whether all came; None until that is known.

    Args:
        before: the threads that never come (default: all that run now).
    """

    def __init__(self, n: int, before: set[threading.Thread] | None = None) -> None:
        self.n = n
        self.here: set[int] = set()
        self.met: bool | None = None
        self.before = set(threading.enumerate()) if before is None else before

    def wait(self) -> bool:
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
