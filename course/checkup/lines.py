"""Name the line of the user's code that runs: "train.py:31".

It is never a line of torch, Python or the check-up.
"""

import ast
import collections
import contextlib
import functools
import linecache
import os
import sys
import sysconfig
import threading
import time
from collections.abc import Callable
from types import FrameType

import torch

from course.checkup.failures import Failures

SAMPLE_SECONDS = 0.002  # between two looks at the thread that trains


def _library_folders() -> tuple[str, ...]:
    """The folders of code that is not the user's, each with a separator at its end."""
    paths = sysconfig.get_paths()
    folders = [paths["stdlib"], paths["purelib"], paths["platlib"]]
    folders += [os.path.dirname(torch.__file__), os.path.dirname(__file__)]
    return tuple(os.path.realpath(folder) + os.sep for folder in folders)


_LIBRARIES = _library_folders()


@functools.cache
def is_users(filename: str) -> bool:
    """Whether a file is the user's: no library; of code without a file, only a notebook's cells."""
    if filename.startswith("<"):
        return filename.startswith(("<ipython-input", "<cell"))
    if "site-packages" in filename:
        return False
    return not os.path.realpath(filename).startswith(_LIBRARIES)


def line_of(frame: FrameType | None) -> str:
    """Text "file.py:31" ("cell:31" in a notebook) of the innermost user's frame, or "".

    Frames are looked at from `frame` upwards.
    """
    while frame is not None:
        path = frame.f_code.co_filename
        if is_users(path):
            name = "cell" if "ipykernel_" in path else os.path.basename(path)
            return f"{name}:{frame.f_lineno}"
        frame = frame.f_back
    return ""


def lines_of_loop(path: str, line: str) -> list[str]:
    """The lines of the innermost loop around a line of a file, such as "train.py:31".

    [] if there is no loop, or no source.
    """
    name, _, number = line.rpartition(":")
    with contextlib.suppress(SyntaxError):
        tree = ast.parse("".join(linecache.getlines(path)))
        loops = [node for node in ast.walk(tree) if isinstance(node, ast.For | ast.While)]
        around = [loop for loop in loops if loop.lineno <= int(number) <= loop.end_lineno]
        if around:
            innermost = max(around, key=lambda loop: loop.lineno)
            numbers = range(innermost.lineno, innermost.end_lineno + 1)
            return [f"{name}:{number}" for number in numbers]
    return []


def this_line() -> str:
    """The line of the user's code that called the caller."""
    return line_of(sys._getframe(2))


class Sampler:
    """A thread that looks again and again which line the thread that made it is in.

    Phases are known exactly from hooks; the sampler only says which lines they, and the time
    between them, belong to. A look stands for the time since the look before it, because it may
    have waited for a call that kept Python's lock: `found` holds seconds by (phase, line).
    """

    def __init__(
        self, phase: Callable[[], str], failures: Failures, seconds: float = SAMPLE_SECONDS
    ) -> None:
        self._look = failures.guarded("lines", self._look_at)
        self.found: collections.Counter[tuple[str, str]] = collections.Counter()
        self.looks = 0
        self._phase = phase
        self._seconds = seconds
        self._watched = threading.get_ident()
        self._on = threading.Event()
        self._ended = False
        self._last = time.perf_counter()  # when it looked last
        self._thread = threading.Thread(target=self._run, daemon=True, name="check-up")
        self._thread.start()

    def look(self, on: bool) -> None:
        """Start or stop looking."""
        if on:
            self._last = time.perf_counter()
            self._on.set()
        else:
            self._on.clear()

    def end(self) -> None:
        """End the thread."""
        self._ended = True
        self._on.set()
        self._thread.join()

    def _run(self) -> None:
        pause = threading.Event()
        while True:
            self._on.wait()
            if self._ended:
                return
            self._look()
            pause.wait(self._seconds)

    def _look_at(self) -> None:
        frame = sys._current_frames().get(self._watched)
        now = time.perf_counter()
        self.found[self._phase(), line_of(frame)] += now - self._last
        self.looks += 1
        self._last = now
