"""Threads of an answer: which are there, which have ended, and who waits."""

import threading
import time

END = object()  # what `next(stream, END)` gives at the end of a stream; no answer yields it


def has_ended(thread, patience=1.0):
    """True if a thread has ended; one that is about to end gets `patience` seconds."""
    thread.join(patience)
    return not thread.is_alive()


def new_threads(before, patience=1.0):
    """How many threads run that are not in the set `before`; those about to end get `patience` seconds."""
    until = time.monotonic() + patience
    while (new := len(set(threading.enumerate()) - before)) and time.monotonic() < until:
        time.sleep(0.01)
    return new
