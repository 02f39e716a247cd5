"""Name the line of the user's code that runs: "train.py:31", never one of torch, Python or the
check-up.
"""

import collections
import functools
import os
import sys
import sysconfig
import threading

import torch

_PATHS = sysconfig.get_paths()
_NOT_THEIRS = tuple(
    os.path.realpath(folder) + os.sep
    for folder in (
        _PATHS["stdlib"],
        _PATHS["purelib"],
        _PATHS["platlib"],
        os.path.dirname(torch.__file__),
        os.path.dirname(__file__),
    )
)


@functools.cache
def is_users(filename: str) -> bool:
    """Whether a file is the user's: no library, no code without a file, except the cells of a
    notebook.
    """
    if filename.startswith("<"):
        return filename.startswith(("<ipython-input", "<cell"))
    return (
        not os.path.realpath(filename).startswith(_NOT_THEIRS) and "site-packages" not in filename
    )


def line_of(frame) -> str:
    """Text "file.py:31" ("cell:31" in a notebook) of the innermost user's frame at or above
    `frame`, or "".
    """
    while frame is not None:
        if is_users(frame.f_code.co_filename):
            file = frame.f_code.co_filename
            return f"{'cell' if 'ipykernel_' in file else os.path.basename(file)}:{frame.f_lineno}"
        frame = frame.f_back
    return ""


def this_line() -> str:
    """The line of the user's code that called the caller."""
    return line_of(sys._getframe(2))


class Sampler:
    """A thread that looks every `seconds` which line the thread `watched` is in; `found` counts
    (phase, line).

    Phases are known exactly from hooks; the sampler only says which lines they, and the time
    between them, belong to.
    """

    def __init__(self, phase, seconds: float = 0.002):
        self.found = collections.Counter()
        self._phase, self._seconds, self._watched = phase, seconds, threading.get_ident()
        self._on, self._ended = threading.Event(), False
        self._thread = threading.Thread(target=self._look, daemon=True, name="check-up")
        self._thread.start()

    def look(self, on: bool) -> None:
        """Start or stop looking."""
        (self._on.set if on else self._on.clear)()

    def end(self) -> None:
        """End the thread."""
        self._ended = True
        self._on.set()
        self._thread.join()

    def _look(self):
        pause = threading.Event()
        while True:
            self._on.wait()
            if self._ended:
                return
            frame = sys._current_frames().get(self._watched)
            self.found[self._phase(), line_of(frame)] += 1
            del frame  # it would keep the user's variables alive
            pause.wait(self._seconds)
