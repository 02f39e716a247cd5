"""Limits that hold for every script, even if it swallows exceptions or hangs.

A thread looks at the clock. When time is over it raises Enough in the thread that is watched. If
that does not end within `GRACE_SECONDS`, because it waits in C or a bare `except` swallows Enough
again and again, the last resort is called, which reports what is known and ends the process.
"""

import ctypes
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

GRACE_SECONDS = 30.0  # between the first Enough and the last resort
LOOK_SECONDS = 0.1  # between two looks at the clock
RAISE_EVERY = 5.0  # seconds, while the thread runs on
TIMES = 2.0  # times the minutes that a part may take, before it is ended from outside


def raise_in(thread: int, exception: type[BaseException]) -> None:
    """Raise an exception in another thread, at its next line of Python."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(exception))


class _Dropped(BaseException):
    """Takes the place of an exception that has not reached its thread."""


def drop_raised() -> None:
    """Take back what was raised in this thread and has not reached it.

    Another exception takes its place and is caught here. If there were none in its place, Python
    3.11 would look for it endlessly, and no function would begin any more under `sys.settrace`.
    """
    try:
        raise_in(threading.get_ident(), _Dropped)
        while True:  # until it is here
            pass
    except _Dropped:
        return


class Watchdog:
    """A thread that raises `exception` in the thread that made it, when `limit()` is over.

    Args:
        limit: returns the time.monotonic() when time is over, or None if it has not begun.
        last_resort: called in the watchdog's thread if raising did not help.
    """

    def __init__(
        self,
        exception: type[BaseException],
        limit: Callable[[], float | None],
        last_resort: Callable[[], None] | None = None,
    ) -> None:
        self.has_raised = False
        self._exception = exception
        self._limit = limit
        self._last_resort = last_resort
        self._watched = threading.get_ident()
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, daemon=True, name="check-up limit")
        self._thread.start()

    def __enter__(self) -> "Watchdog":
        return self

    def __exit__(self, *error: object) -> None:
        self.end()

    def end(self) -> None:
        """End the thread: it raises nothing any more."""
        with self._lock:
            self._ended.set()
            if self.has_raised and threading.get_ident() == self._watched:
                drop_raised()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _run(self) -> None:
        first = None
        while not self._ended.wait(LOOK_SECONDS):
            limit = self._limit()
            now = time.monotonic()
            if limit is None or now < limit:
                continue
            first = first or now
            if self._last_resort and now - first > GRACE_SECONDS:
                self._last_resort()
                return
            with self._lock:
                if self._ended.is_set():
                    return
                self.has_raised = True
                raise_in(self._watched, self._exception)
            self._ended.wait(RAISE_EVERY)


def raise_in_every_line(
    exception: type[BaseException], is_of_script: Callable[[str], bool]
) -> None:
    """Raise an exception in the next line of each function of the script that runs now.

    So a bare `except` around a step ends in its first line, and the next step does not begin.
    """

    def raising(frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line":
            raise exception
        return raising

    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if is_of_script(frame.f_code.co_filename):
            frame.f_trace = raising
        frame = frame.f_back
    sys.settrace(lambda frame, event, argument: None)
