"""Probe of exercise quasi_random_order."""

import itertools
import statistics

import torch

from course.checks.fast_loading.orders import (
    account,
    first_bad_size,
    follows_the_file,
    form,
    pairs_with_one_order,
)
from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.counting import runs_at_most
from course.engine.probing.laws import tried
from course.engine.probing.randomness import random_state


class _Case:
    """Orders that the answer gives for a file of `full` full pages; a call may give other sizes."""

    def __init__(self, answer: Answer, seed: int) -> None:
        self.answer = answer
        self.seed = seed
        self.page_rows = 6 + seed % 3
        self.window_pages = 4
        self.full = 180 + 2 * (seed % 7) + 1  # pages; no multiple of four
        self.rows = self.full * self.page_rows
        self.sizes = [self.page_rows, self.full]  # what laws are tried on

    def order(
        self, epoch: int = 2, seed: int | None = None, window_pages: int | None = None
    ) -> torch.Tensor:
        """The order of an epoch."""
        seed = self.seed if seed is None else seed
        window_pages = window_pages or self.window_pages
        return self.answer(self.rows, self.page_rows, window_pages, seed, epoch)

    def windows(self, order: torch.Tensor) -> list[tuple[int, ...]]:
        """The sorted numbers of the pages found in each window, if all but the last are full."""
        windows = []
        for rows in order.split(self.page_rows * self.window_pages):
            pages = {row // self.page_rows for row in rows.tolist()}
            windows.append(tuple(sorted(pages)))
        return windows


@exercise()
def quasi_random_order(answer: Answer, device: torch.device, seed: int) -> Facts:
    """Pages and windows, recognised from the row numbers."""
    case = _Case(answer, seed)
    before = random_state()
    mixed = case.order()
    untouched = before == random_state()
    yield from _windows_of_pages(case, mixed)
    yield from _rows_of_a_window(case, mixed)
    yield from _other_epochs_and_seeds(case, mixed)
    yield from _short_page(case, seed)
    yield "sizes for which not every row comes once", first_bad_size(answer, seed)
    yield "the global random numbers stay as they were", tried(untouched, case.sizes)
    many = 100_000
    few = runs_at_most(many // 10, lambda: answer(many, many // 100, 10, seed, 0))
    yield "no Python loop goes over the rows", tried(few, case.sizes)


def _windows_of_pages(case: _Case, mixed: torch.Tensor) -> Facts:
    yield "returns an int64 tensor with one axis, on the CPU", form(mixed)
    yield "only full pages: every row comes once", account(case.rows, mixed)
    yield (
        "the same call again gives the same order",
        tried(torch.equal(mixed, case.order()), case.sizes),
    )
    *windows, last = case.windows(mixed)
    counts = {"all but the last": sorted(set(map(len, windows))), "the last": len(last)}
    yield "the number of pages in a window", counts
    # the gap between the second and the third of four pages; three neighbours and a page from
    # elsewhere have none
    gaps = []
    for pages in windows:
        gaps.append(statistics.median_high(pages) - statistics.median_low(pages))
    # 0.2 on average
    from_all_over = statistics.mean(gaps) > 0.1 * case.full
    fact = "the pages of a window come from all over the file"
    yield fact, tried(from_all_over, case.sizes)
    rows = case.order(window_pages=1).tolist()
    alone = [page for page, _ in itertools.groupby(rows, lambda row: row // case.page_rows)]
    yield "windows of one page: every page stays together", sorted(alone) == list(range(case.full))
    are_mixed = not follows_the_file(alone)
    yield "the pages do not follow the order of the file", tried(are_mixed, case.sizes)


def _rows_of_a_window(case: _Case, mixed: torch.Tensor) -> Facts:
    # of two neighbours in a random window about 1 in 4 are of one page, and half of these ascend;
    # if the rows of each page stay together, 5 in 6 are, and if the pages take turns, none
    page_rows = case.page_rows
    patterns = set()
    pairs = 0
    siblings = 0  # pairs of rows of one page
    ascending_siblings = 0
    windows = mixed.split(page_rows * case.window_pages)
    for window in windows:
        rows = window.tolist()
        patterns.add(tuple(row % page_rows for row in rows))
        for row, following in itertools.pairwise(rows):
            pairs += 1
            if row // page_rows == following // page_rows:
                siblings += 1
                ascending_siblings += row < following
    share = siblings / pairs
    ascending = ascending_siblings / max(1, siblings)
    page_by_page = share > 0.5 and ascending > 0.7
    are_mixed = not page_by_page
    yield "the rows of a window are not page by page in file order", tried(are_mixed, case.sizes)
    yield "the pages of a window do not take turns", tried(share > 0.02, case.sizes)
    yield "each window is shuffled differently", len(patterns) == len(windows)
    are_mixed = 0.1 < share < 0.4
    yield "rows are shuffled across the pages of a window", tried(are_mixed, case.sizes)
    are_mixed = 0.35 < ascending < 0.65
    yield "and so are the rows of a page among themselves", tried(are_mixed, case.sizes)


def _other_epochs_and_seeds(case: _Case, mixed: torch.Tensor) -> Facts:
    later = case.order(3)
    other = case.order(seed=case.seed + 1)
    is_other = not torch.equal(mixed, later)
    yield "another epoch has another order", tried(is_other, case.sizes)
    is_other = not torch.equal(mixed, other)
    yield "another seed has another order", tried(is_other, case.sizes)
    windows = set(case.windows(mixed))
    few_in_common = []
    for order in (later, other):
        few_in_common.append(len(windows & set(case.windows(order))) < 5)
    fact = "in another epoch, or with another seed, other pages are together"
    yield fact, tried(few_in_common, case.sizes)
    pairs = pairs_with_one_order(case.answer, 48, 6, 2)
    yield "two pairs (seed, epoch) with the same order", tried(pairs, case.sizes)


def _short_page(case: _Case, seed: int) -> Facts:
    rest = 1 + seed % (case.page_rows - 1)
    case.rows += rest  # from here on the last page is short
    counts = account(case.rows, case.order())
    yield f"a last page of {rest} of {case.page_rows} rows: every row once", counts
    short_page = list(range(case.rows - rest, case.rows))
    at_end = True
    for epoch in range(5):
        rows = case.order(epoch, window_pages=1).tolist()
        at_end = at_end and sorted(rows[-rest:]) == short_page
    yield "with windows of one page the short page is the last", tried(at_end, case.sizes)
    mixed = 0
    for epoch in range(20):
        rows = case.order(epoch).tolist()
        mixed += sorted(rows[-rest:]) != short_page
    fact = "its rows are mixed with the others of the last window"
    yield fact, tried(mixed > 5, case.sizes)
