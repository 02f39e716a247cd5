"""Data for record files whose rows are their own numbers, for tests and the processes that they start."""

import errno
import os
import resource
from pathlib import Path

import numpy as np

ROWS, COLUMNS = 10_000, 100
SMALL = 1 << 20  # bytes that a process may write when the disk is "full"


class Numbered:
    """Rows that hold their own number everywhere, plus `shift`: a row of which a part is missing is seen.

    Args:
        pids: folder in which each process that reads leaves its number, or None.
        full: what a read of the last rows does: nothing, "raise" as a full disk does, or "limit" what may be written.
    """

    def __init__(self, shift, rows=ROWS, columns=COLUMNS, pids=None, full=None):
        self.rows, self.columns, self.seed, self.shift, self.pids, self.full = rows, columns, shift, shift, pids, full

    @property
    def x(self):
        return _Sliced(self)

    @property
    def y(self):
        return np.arange(self.rows, dtype=np.float32) + self.shift


class _Sliced:
    def __init__(self, source):
        self.source = source

    def __getitem__(self, part):
        if self.source.pids:
            Path(self.source.pids, str(os.getpid())).touch()
        if part.stop == self.source.rows and self.source.full == "raise":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if part.stop == self.source.rows and self.source.full == "limit":
            resource.setrlimit(resource.RLIMIT_FSIZE, (SMALL, SMALL))
        return np.repeat(self.source.y[part, None], self.source.columns, axis=1)
