"""Loaders over a record file, made of answers to unit 04.

`answers` holds them (orders, filling a buffer): a notebook passes the learner's,
instructor/bench/loading.py the reference's.
"""

from pathlib import Path
from typing import Any

from course.datasets.regression import RECORDS, Regression
from course.loading.loaders import Loader, aligned_buffers
from course.loading.page_reader import PageReader
from course.loading.reading_ahead import read_ahead
from course.loading.records import Records, write_records

PAGE_BYTES = 1 << 18
WINDOW_BYTES = 1 << 23  # a window is at least one batch


class RecordFile:
    """The record file of a regression problem, with the sizes of its pages and windows.

    Args:
        answers: has the answers to unit 04 that `loader` uses: random_order or
            quasi_random_order, and gather unless pages are read.
        source: its problem; the file is `records` in its folder, written if missing.
        batch: rows of a batch.
        page, window: bytes of a page and of a window; a window holds one batch or several.

    `records` is the open file, a Records; `stride` in bytes per row; `page_rows` and `window_rows`
    in rows.
    """

    def __init__(
        self,
        answers: Any,
        source: Regression,
        batch: int,
        page: int = PAGE_BYTES,
        window: int = WINDOW_BYTES,
    ):
        self.answers = answers
        self.batch = batch
        self.path = Path(source.folder) / RECORDS
        if not self.path.exists():
            write_records(self.path, source)
        self.records = Records(self.path)
        self.stride = 4 * self.records.table.shape[1]
        # a power of two, as the batch is
        self.page_rows = 1 << max(0, (page // self.stride).bit_length() - 1)
        self.window_rows = batch * max(1, window // (batch * self.stride))

    def loader(
        self,
        order: str = "random",
        rows: int | None = None,
        batch: int | None = None,
        buffers: int = 1,
        threads: int | None = None,
        direct: bool = False,
    ) -> Loader:
        """A Loader over the file.

        Args:
            order: "random" or "quasi-random".
            rows: the first rows of the file (default: all of them).
            batch: rows of a batch (default: the file's).
            buffers: more than one reads ahead.
            threads: None gathers from the mapped file; a number reads pages with so many threads,
                nothing is mapped.
            direct: reads past the page cache.
        """
        rows = rows or self.records.rows
        batch = batch or self.batch
        if threads:
            reader = PageReader(
                self.path, rows, self.stride, self.page_rows, threads=threads, direct=direct
            )
            fill = reader.fill
            buffer_rows = self.window_rows
        else:
            fill = self._gather_from(rows)
            buffer_rows = batch
        held = aligned_buffers(buffers, buffer_rows, self.stride // 4)
        columns = self.records.columns
        return Loader(self._order(order, rows), fill, read_ahead, held, columns, batch)

    def _order(self, name, rows):
        """The function (epoch) -> row numbers that a Loader takes."""
        windows = self.window_rows // self.page_rows

        def random(epoch):
            return self.answers.random_order(rows, 0, epoch)

        def quasi_random(epoch):
            return self.answers.quasi_random_order(rows, self.page_rows, windows, 0, epoch)

        return {"random": random, "quasi-random": quasi_random}[name]

    def _gather_from(self, rows):
        """The function (index, out) -> rows that a Loader takes, reading from the mapped file."""
        table = self.records.table[:rows]

        def fill(index, out):
            return self.answers.gather(table, index, out)

        return fill
