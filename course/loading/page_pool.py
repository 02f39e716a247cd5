"""Rows of a file in any order, of which only pages in use are in memory.

A page is read when its first row is due and leaves when its last one was handed out. So any order
of unit 04 can be run on a file larger than memory, and what it has to hold shows in bytes.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor


class PagesInUse(NamedTuple):
    """For each batch of an order the pages that begin and end with it, in file order."""

    begin: list[np.ndarray]
    end: list[np.ndarray]
    most: int  # pages in use at the same time


def pages_in_use(order: Tensor, page_rows: int, batch: int) -> PagesInUse:
    """The PagesInUse of `order`.

    Args:
        order: int64 tensor (n,), a permutation of the row numbers.
        page_rows: rows of a page; n is a multiple of it.
        batch: rows of a batch.
    """
    pages = order.numpy() // page_rows
    n_batches = -(-len(pages) // batch)
    first = np.unique(pages, return_index=True)[1] // batch
    last = (len(pages) - 1 - np.unique(pages[::-1], return_index=True)[1]) // batch
    n_begun = np.bincount(first, minlength=n_batches)
    n_ended = np.bincount(last, minlength=n_batches)
    most = (n_begun.cumsum() - n_ended.cumsum() + n_ended).max()
    return PagesInUse(_by_batch(first, n_begun), _by_batch(last, n_ended), int(most))


def _by_batch(batch_of_page, counts):
    """The page numbers of each batch, in ascending order; `counts` pages each."""
    return np.split(batch_of_page.argsort(kind="stable"), counts.cumsum()[:-1])


def batches_from_pages(
    order: Tensor,
    page_rows: int,
    batch: int,
    fill: Callable[[Tensor, Tensor], Tensor],
    floats: int,
) -> Iterator[Tensor]:
    """Yield float32 tensors (batch, floats), the rows of `order`.

    Each page is read once, and held while it is in use.

    Args:
        order, page_rows, batch: as in pages_in_use.
        fill: function (index, out) that puts the rows `index` of the file, whole pages, into `out`:
            PageReader.fill.
        floats: values of a row.
    """
    begin, end, most = pages_in_use(order, page_rows, batch)
    pool = torch.empty(most, page_rows, floats)
    fresh = torch.empty(max(map(len, begin)) * page_rows, floats)
    free = list(range(most))  # places in the pool
    place_of_page = np.zeros(len(order) // page_rows, np.int64)
    of_page = torch.arange(page_rows)
    for begun, index, ended in zip(begin, order.split(batch), end, strict=True):
        if len(begun):
            place_of_page[begun] = [free.pop() for _ in begun]
            wanted = (torch.from_numpy(begun)[:, None] * page_rows + of_page).flatten()
            pages = fill(wanted, fresh).view(len(begun), page_rows, floats)
            pool[torch.from_numpy(place_of_page[begun])] = pages
        places = torch.from_numpy(place_of_page[index.numpy() // page_rows])
        yield pool.view(-1, floats).index_select(0, places * page_rows + index % page_rows)
        free += place_of_page[ended].tolist()
