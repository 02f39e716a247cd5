"""Where the time of an item goes: the line of the script, and files that are opened again."""

import builtins
import collections
import io
import sys
from collections.abc import Callable
from typing import Any

from course.checkup.failures import Failures
from course.checkup.lines import Sampler
from course.checkup.patches import Patches

SAMPLE_SECONDS = 0.0005  # between two looks
LOOKS_MIN = 8  # fewer tell no line
# A dataset that calls torch for microseconds releases Python's lock for these, and takes it again
# before the looking thread wakes.  That thread may insist only after this long without a release.
SWITCH_SECONDS = 0.0001
AGAIN_MIN = 0.9  # times per item that one file is opened


class ItemWatch:
    """In the block, lines and files of the thread are looked at."""

    def __init__(self) -> None:
        self._opened: collections.Counter[str] = collections.Counter()
        self._patches = Patches()

    def __enter__(self) -> "ItemWatch":
        self._sampler = Sampler(lambda: "item", Failures(), SAMPLE_SECONDS)
        self._patches.undo.callback(self._sampler.end)
        self._patches.undo.callback(sys.setswitchinterval, sys.getswitchinterval())
        sys.setswitchinterval(SWITCH_SECONDS)
        self._patches.replace(builtins, "open", self._noted)
        self._patches.replace(io, "open", self._noted)
        self._sampler.look(True)
        return self

    def __exit__(self, *error: object) -> None:
        self._patches.close()

    @property
    def looks(self) -> int:
        """How often the thread was looked at."""
        return self._sampler.looks

    @property
    def line(self) -> str:
        """The line in which the thread was longest; "" if it was looked at too seldom."""
        return self._most()[0]

    @property
    def line_share(self) -> float:
        """The share of the time that it was there."""
        return self._most()[1]

    def opened(self, items: int) -> str:
        """The name of a file that was opened about once per item, or ""."""
        for name, times in self._opened.most_common(1):
            if items > 1 and times >= AGAIN_MIN * items:
                return name
        return ""

    def _most(self) -> tuple[str, float]:
        if self.looks < LOOKS_MIN:
            return "", 0.0
        (_, line), seconds = self._sampler.found.most_common(1)[0]
        return line, seconds / self._sampler.found.total()

    def _noted(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def opened(file: Any, *args: Any, **kwargs: Any) -> Any:
            self._opened[str(file)] += 1
            return original(file, *args, **kwargs)

        return opened
