"""Loaders over a record file, made of answers to unit 04.

`answers` holds them (writing and opening the file, orders, filling a buffer, reading ahead): a
notebook passes the learner's, benchmarks/loading.py the reference's.
"""

from pathlib import Path

from course.loading.loaders import Loader, aligned_buffers

PAGE, WINDOW = 1 << 18, 1 << 23  # bytes of a page and, at least one batch, of a window


class RecordFile:
    """The record file of a regression problem, with the sizes of its pages and windows.

    Args:
        answers: has the answers to unit 04 that are used: write_records (unless the file is there)
            and Records; for `loader` also read_ahead, gather or PageReader, random_order or
            quasi_random_order.
        source: a `course.datasets.regression.Regression`; the file is `records` in its folder,
            written if missing.
        batch: rows of a batch.
        page, window: bytes of a page and of a window; a window holds one batch or several.

    `records` is what answers.Records made; `stride` bytes per row; `page_rows` and `window_rows` in
    rows.
    """

    def __init__(self, answers, source, batch: int, page: int = PAGE, window: int = WINDOW):
        self.answers, self.batch, self.path = answers, batch, Path(source.folder) / "records"
        if not self.path.exists():
            answers.write_records(self.path, source)
        self.records = answers.Records(self.path)
        self.stride = 4 * self.records.table.shape[1]
        # a power of two, as the batch is
        self.page_rows = 1 << max(0, (page // self.stride).bit_length() - 1)
        self.window_rows = batch * max(1, window // (batch * self.stride))

    def loader(self, order="random", rows=None, batch=None, buffers=1, threads=None, direct=False):
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
        rows, batch, answers = rows or self.records.rows, batch or self.batch, self.answers
        page_rows, windows = self.page_rows, self.window_rows // self.page_rows
        orders = {
            "random": lambda epoch: answers.random_order(rows, 0, epoch),
            "quasi-random": lambda epoch: answers.quasi_random_order(
                rows, page_rows, windows, 0, epoch
            ),
        }
        if threads:
            fill = answers.PageReader(
                self.path, rows, self.stride, page_rows, threads=threads, direct=direct
            ).fill
        else:
            fill = lambda index, out: answers.gather(self.records.table[:rows], index, out)  # noqa: E731
        held = aligned_buffers(buffers, self.window_rows if threads else batch, self.stride // 4)
        return Loader(orders[order], fill, answers.read_ahead, held, self.records.columns, batch)
