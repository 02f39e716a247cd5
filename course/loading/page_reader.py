"""Read whole pages of a record file straight into shuffled rows of a tensor.

A *page* is a run of rows. `os.preadv(file, buffers, offset)` reads consecutive bytes and fills a
list of buffers one after the other: one request to the disk per page. The buffers are rows of the
result in shuffled order, so reading shuffles, and no row is copied a second time.
"""

import os
import weakref
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch

from course.loading.records import HEADER

BUFFERS_MAX = 1024  # that one call takes (IOV_MAX of Linux)


class PageReader:
    """Reads pages of a record file by read calls, without a mapping, rows in the order asked for.

    Args:
        path: of the record file.
        rows: rows of the file.
        stride: bytes per row, a multiple of 4.
        page_rows: rows per page; the last page of the file may be shorter.
        threads: how many threads read.
        direct: past the system's page cache, by O_DIRECT.

    Raises: OSError if the file cannot be opened (in this way); with `direct`, ValueError if
        `stride` is not a multiple of 4096, or the system has no O_DIRECT.
    """

    def __init__(
        self,
        path: Path | str,
        rows: int,
        stride: int,
        page_rows: int,
        threads: int = 2,
        direct: bool = False,
    ):
        if direct and stride % HEADER:
            raise ValueError(
                f"O_DIRECT reads blocks of 4096 bytes; rows of {stride} bytes are not whole blocks."
            )
        if direct and not hasattr(os, "O_DIRECT"):
            raise ValueError("this system has no O_DIRECT; read with direct=False.")
        self.path = path
        self.rows = rows
        self.stride = stride
        self.page_rows = page_rows
        self.threads = threads
        self.direct = direct
        self._views = {}
        self._file = os.open(path, os.O_RDONLY | os.O_DIRECT if direct else os.O_RDONLY)
        self._release = weakref.finalize(self, os.close, self._file)  # if nobody calls close()
        self._pool = ThreadPoolExecutor(threads)

    def __enter__(self) -> "PageReader":
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()

    def close(self) -> None:
        """End the threads and close the file; may be called again."""
        self._pool.shutdown()
        self._release()
        self._views.clear()

    def fill(self, index: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        """Read the rows `index` of the file into the first rows of `out`; return these, a view.

        Args:
            index: int64 tensor (n,) on the CPU: all rows of some pages, each once, in any order.
            out: contiguous float32 tensor (B, stride // 4) on the CPU, B at least n; with `direct`
                it begins at a multiple of 4096 bytes.

        Raises: ValueError if one of these does not hold, or the reader is closed; EOFError if the
            file is shorter than it should be.
        """
        self._check(index, out)
        wanted = index.numpy()
        slots = wanted.argsort()  # row slots[k] of `out` is for the k-th of these rows in the file
        pages = self._pages_of(wanted[slots])
        views = self._rows_of(out)
        work = []
        for number, page in enumerate(pages.tolist()):
            start = number * self.page_rows
            work.append((page, slots[start : start + self.page_rows]))
        shares = [work[thread :: self.threads] for thread in range(min(self.threads, len(work)))]
        tasks = [self._pool.submit(self._read, share, views) for share in shares[1:]]
        for share in shares[:1]:
            self._read(share, views)  # this thread reads, too: one less to wake
        for task in tasks:
            task.result()
        return out[: len(index)]

    def _read(self, work: Iterable, views: np.ndarray) -> None:
        """Read each (page, slots of its rows) of `work` straight into `views[slots]`."""
        for page, slots in work:
            for start in range(0, len(slots), BUFFERS_MAX):
                buffers = views[slots[start : start + BUFFERS_MAX]]
                first = page * self.page_rows + start
                found = os.preadv(self._file, buffers, HEADER + first * self.stride)
                if found < len(buffers) * self.stride:
                    raise EOFError(f"{self.path}: page {page} is cut off, {found} bytes came back.")

    def _rows_of(self, out: torch.Tensor) -> np.ndarray:
        """The rows of `out` as memoryviews; kept, because cutting them takes as long as reading."""
        key = out.data_ptr(), len(out)
        if key not in self._views:
            memory = memoryview(out.numpy()).cast("B")
            rows = (memory[i : i + self.stride] for i in range(0, len(memory), self.stride))
            self._views[key] = np.fromiter(rows, object)
        return self._views[key]

    def _check(self, index: torch.Tensor, out: torch.Tensor) -> None:
        """Refuse a buffer that does not fit, and a closed reader.  Raises: ValueError."""
        if not self._release.alive:
            raise ValueError(f"the reader of {self.path} is closed; make another one.")
        floats = self.stride // 4
        if len(out) < len(index) or out.shape[1:] != (floats,):
            shape = tuple(out.shape)
            raise ValueError(f"{len(index)} rows of {floats} floats do not fit into {shape}.")
        if self.direct and out.data_ptr() % HEADER:
            raise ValueError(
                "O_DIRECT needs an `out` at a multiple of 4096 bytes: "
                "course.loading.loaders.aligned_buffers makes some."
            )

    def _pages_of(self, in_order: np.ndarray) -> np.ndarray:
        """The numbers of the pages that consist of the sorted rows `in_order`.

        Raises: ValueError if these are not whole pages.
        """
        pages = np.unique(in_order[:: self.page_rows] // self.page_rows)
        whole = (pages[:, None] * self.page_rows + np.arange(self.page_rows)).ravel()
        whole = whole[(0 <= whole) & (whole < self.rows)]
        if not np.array_equal(in_order, whole):
            raise ValueError(f"the index is not all rows of some pages of {self.path}, each once.")
        return pages
