"""Time that other work of the machine does not change: what this thread computes, and what it sleeps.

Threads that help it and processes that it waits for do not count.
"""

import os
import time
from types import ModuleType

from course.checkup import lines


class ThreadTime:
    """Stands for the module `time` in code that runs in one thread.

    To sleep takes no real time, unless `sleeps`: then a look at the running line finds it, too.
    """

    def __init__(self, sleeps=False):
        self.slept = 0.0
        self._sleep = time.sleep if sleeps else lambda seconds: None

    def perf_counter(self):
        return time.thread_time() + self.slept

    def sleep(self, seconds):
        self.slept += seconds
        self._sleep(seconds)

    def __getattr__(self, name):
        return getattr(time, name)


def install(monkeypatch, *modules: ModuleType, sleeps: bool = False) -> None:
    """Let these modules read the time of this thread, and all code sleep in it, until the test ends."""
    stand_in = ThreadTime(sleeps)
    libraries = (*lines._LIBRARIES, os.path.realpath(__file__))  # a line that sleeps is the script's
    monkeypatch.setattr(lines, "_LIBRARIES", libraries)
    for module in modules:
        monkeypatch.setattr(module, "time", stand_in)
    monkeypatch.setattr(time, "sleep", stand_in.sleep)
