"""What an order of rows costs on a sorted file: seconds, bytes from the disk, and loss.

A linear regression is trained on rows that lie in the file in the order of y, the worst case for
an order that keeps neighbours together. Inputs are standard normal, so the *excess loss* of weights
over the true ones is known exactly: |w - w₀|² + (b - b₀)².
"""

import itertools
import os
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

import torch
from torch import Tensor

from course.loading.page_pool import batches_from_pages
from course.loading.page_reader import PageReader
from course.loading.records import HEADER
from course.measure.comparison import ratio_interval
from course.measure.page_cache import drop_cached, reads

FLOATS = 32  # of a row: 31 columns and y, 128 bytes
LEARNING_RATE = 0.1
PLACES = 64  # of an epoch at which the loss is computed
Order = Callable[[int, int], Tensor]  # (seed, epoch) -> row numbers


class SortedFile:
    """A file of rows that are sorted by y, and an SGD that reads it.

    Args:
        path: of the file, which is written.
        rows: a multiple of the rows of all pages that are asked for.
        batch: rows of a batch.

    `is_cold` says whether this system can drop the file from its page cache.
    """

    def __init__(self, path: Path | str, rows: int, batch: int):
        self.path = path
        self.rows = rows
        self.batch = batch
        draw = torch.Generator().manual_seed(0)
        columns = FLOATS - 1
        x = torch.randn(rows, columns, generator=draw)
        self.true_w = torch.randn(columns, generator=draw) / columns**0.5
        y = x @ self.true_w + torch.randn(rows, generator=draw)
        self.table = torch.cat([x, y[:, None]], 1)[y.argsort()]
        with open(path, "wb") as file:
            file.write(bytes(HEADER))
            file.write(self.table.numpy())
        self.is_cold = drop_cached(path)

    def train(self, batches: Iterable[Tensor], w: Tensor, b: Tensor) -> list[float]:
        """Train `w` and `b` on batches of rows; return the excess loss at PLACES places."""
        losses = []
        for number, rows in enumerate(batches, 1):
            x = rows[:, :-1]
            residual = x @ w + b - rows[:, -1]
            w.sub_(residual @ x, alpha=LEARNING_RATE / len(rows))
            b.sub_(LEARNING_RATE * residual.mean())
            if number % (self.rows // self.batch // PLACES) == 0:
                excess = (w - self.true_w).square().sum() + b.square()
                losses.append(excess.item())
        return losses

    def excess(self, order: Order, seed: int) -> float:
        """Mean excess loss in the second epoch.

        The rows come from memory, where every order is free.
        """
        w, b = _untrained()
        losses = []
        for epoch in range(2):
            batches = (self.table[index] for index in order(seed, epoch).split(self.batch))
            losses = self.train(batches, w, b)
        return statistics.fmean(losses)

    def eighth(self, order: Tensor, page_rows: int, cold: bool = True) -> Callable[[], None]:
        """A function that trains on the first eighth of an epoch, read from the file.

        Args:
            page_rows: rows that one request to the disk brings.
            cold: whether the file is dropped before a batch reads what does not continue the last
                read.
        """
        count = self.rows // self.batch // 8

        def run():
            batches = self._from_file(order, page_rows, cold)
            self.train(itertools.islice(batches, count), *_untrained())

        return run

    def times_read(self, order: Tensor, page_rows: int) -> float:
        """Bytes that come from the disk in a cold epoch, over the bytes of all rows."""
        before = reads()
        self.train(self._from_file(order, page_rows, cold=True), *_untrained())
        return reads().since(before).disk_bytes / self.table.nbytes

    def _from_file(self, order: Tensor, page_rows: int, cold: bool) -> Iterator[Tensor]:
        """The batches of an epoch, each page read once.

        Where a read continues the one before it, only what lies before it is dropped: what the
        system has read ahead stays.
        """
        stride = FLOATS * 4
        next_row = 0
        with PageReader(self.path, self.rows, stride, page_rows) as reader, open(self.path) as file:

            def fill(index, out):
                nonlocal next_row
                first = index.min().item()
                if cold and self.is_cold:
                    length = HEADER + first * stride if first == next_row else 0  # 0: all of it
                    os.posix_fadvise(file.fileno(), 0, length, os.POSIX_FADV_DONTNEED)
                next_row = index.max().item() + 1
                return reader.fill(index, out)

            yield from batches_from_pages(order, page_rows, self.batch, fill, FLOATS)


def _untrained():
    return torch.zeros(FLOATS - 1), torch.zeros(())


def typical_bias(
    batch_bias: Callable[[Tensor, Tensor, int], float],
    orders: Mapping[str, Order],
    batch: int,
    epochs: int,
) -> dict[str, float]:
    """{name of the order: variance of the means of `batch` rows over that of random ones}.

    The rows of the file are sorted. The estimate is that of the intervals, over `epochs` of seed 0.

    Args:
        batch_bias: the answer to that exercise.
    """
    found = {}
    for name, order in orders.items():
        values = []
        for epoch in range(epochs):
            rows = order(0, epoch)
            values.append(batch_bias(torch.arange(len(rows)), rows, batch))
        found[name] = ratio_interval(torch.tensor(values), torch.ones(epochs)).estimate
    return found


def show_costs(
    seconds: Mapping[str, float],
    times_read: Mapping[str, float],
    bias: Mapping[str, float],
    bias_of_ten: Mapping[str, float],
    excess: Mapping[str, Tensor],
) -> None:
    """Print a line per order: what it costs.

    Args:
        seconds: of an epoch. An order that only this one has is printed with its seconds alone.
        times_read: bytes from the disk over those of the file.
        bias: variance of batch means over that of random batches.
        bias_of_ten: the same of ten batches in a row.
        excess: excess loss per seed, of which the median is printed.
    """
    heads = f"{'s per epoch':>11} {'times the file':>15} {'V / V₀':>8} {'of ten':>8}"
    print(f"{'':30} {heads} {'excess loss':>12}")
    for name, value in seconds.items():
        line = f"{name:30} {value:11.2f}"
        if name in excess:
            line += f" {times_read[name]:15.1f} {bias[name]:8.1f} {bias_of_ten[name]:8.1f}"
            line += f" {excess[name].median().item():12.4f}"
        print(line)
