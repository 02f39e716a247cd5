"""Count what a training does to feed itself: files, pixels, processes.

Counts what the code does, however it is written, also in forked workers. Times nothing; usage.py
knows CPU seconds and memory.
"""

import contextlib
import multiprocessing
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from unittest import mock

from PIL import ImageFile


class LoadCounts:
    """Numbers of what happened, by name: `counts["files opened"]`.

    Inside `with counts:` files that PIL opens, pixels that it decodes and processes that are
    started count by themselves, those of workers that are forked meanwhile too. For the rest there
    are `watch` and `add`.
    """

    NAMES = (
        "files opened",
        "pixels decoded",
        "pixels augmented",
        "processes started",
        "batches",
        "bytes handed over",
        "validation images read",
    )

    def __init__(self):
        self._numbers = multiprocessing.Array("q", len(self.NAMES))  # shared with forked processes
        self._patches = contextlib.ExitStack()

    def __getitem__(self, name: str) -> int:
        return self._numbers[self.NAMES.index(name)]

    def add(self, name: str, n: int = 1) -> None:
        """Count `n` more of `name`, one of NAMES."""
        with self._numbers.get_lock():
            self._numbers[self.NAMES.index(name)] += n

    def watch(self, transform: Callable) -> Callable:
        """Return `transform` with a count of pixels augmented.

        Args:
            transform: a function of a PIL image or of a tensor (3, H, W).
        """

        def watched(picture):
            sides = picture.shape[-2:] if hasattr(picture, "shape") else picture.size
            self.add("pixels augmented", sides[0] * sides[1])
            return transform(picture)

        return watched

    def __enter__(self) -> "LoadCounts":
        opens = ImageFile.ImageFile.__init__
        decodes = ImageFile.ImageFile.load
        starts = BaseProcess.start

        def opened(image, *args, **kwargs):
            self.add("files opened")
            return opens(image, *args, **kwargs)

        def decoded(image):
            if image.tile:  # a second load has nothing to decode
                self.add("pixels decoded", image.size[0] * image.size[1])
            return decodes(image)

        def started(process):
            self.add("processes started")
            return starts(process)

        self._patches.enter_context(mock.patch.object(ImageFile.ImageFile, "__init__", opened))
        self._patches.enter_context(mock.patch.object(ImageFile.ImageFile, "load", decoded))
        self._patches.enter_context(mock.patch.object(BaseProcess, "start", started))
        return self

    def __exit__(self, *error: object) -> None:
        self._patches.close()
