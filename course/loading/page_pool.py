"""Rows of a file in any order, of which only pages in use are in memory.

A page is read when its first row is due and leaves when its last one was handed out. So any order
of unit 04 can be run on a file larger than memory, and what it has to hold shows in bytes.
"""

from collections.abc import Callable, Iterator

import numpy as np
import torch


def pages_in_use(
    order: torch.Tensor, page_rows: int, batch: int
) -> tuple[list[np.ndarray], list[np.ndarray], int]:
    """For each batch of `order`: the pages that begin, those that end, both in file order; and the
    most in use at once.

    Args:
        order: int64 tensor (n,), a permutation of the row numbers.
        page_rows: rows of a page; n is a multiple of it.
        batch: rows of a batch.
    """
    pages = order.numpy() // page_rows
    n_batches = -(-len(pages) // batch)
    first = np.unique(pages, return_index=True)[1] // batch
    last = (len(pages) - 1 - np.unique(pages[::-1], return_index=True)[1]) // batch
    begun, ended = np.bincount(first, minlength=n_batches), np.bincount(last, minlength=n_batches)
    most = (begun.cumsum() - ended.cumsum() + ended).max()
    begin, end = (
        np.split(of.argsort(kind="stable"), counts.cumsum()[:-1])
        for of, counts in ((first, begun), (last, ended))
    )
    return begin, end, int(most)


def batches_from_pages(
    order: torch.Tensor, page_rows: int, batch: int, fill: Callable, floats: int
) -> Iterator[torch.Tensor]:
    """Yield float32 tensors (batch, floats), the rows of `order`; each page is read once, and held
    while in use.

    Args:
        order, page_rows, batch: as in pages_in_use.
        fill: function (index, out) that puts the rows `index` of the file, whole pages, into `out`:
            PageReader.fill.
        floats: values of a row.
    """
    begin, end, most = pages_in_use(order, page_rows, batch)
    pool = torch.empty(most, page_rows, floats)
    fresh = torch.empty(max(map(len, begin)) * page_rows, floats)
    free, place = list(range(most)), np.zeros(len(order) // page_rows, np.int64)
    of_page, rows = torch.arange(page_rows), order.split(batch)
    for begun, index, ended in zip(begin, rows, end, strict=True):
        if len(begun):
            place[begun] = [free.pop() for _ in begun]
            wanted = (torch.from_numpy(begun)[:, None] * page_rows + of_page).flatten()
            pool[torch.from_numpy(place[begun])] = fill(wanted, fresh).view(
                len(begun), page_rows, floats
            )
        slots = torch.from_numpy(place[index.numpy() // page_rows]) * page_rows + index % page_rows
        yield pool.view(-1, floats).index_select(0, slots)
        free += place[ended].tolist()
