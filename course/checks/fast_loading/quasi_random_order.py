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
from course.engine.probing.randomness import random_state


def _windows(order, page_rows, window_pages):
    """[sorted numbers of the pages found in each window], if the windows but the last are full."""
    return [
        sorted({row // page_rows for row in part.tolist()})
        for part in order.split(page_rows * window_pages)
    ]


class _Case:
    """Orders that the answer gives for a file of `full` full pages; a call may give other sizes."""

    def __init__(self, answer, seed):
        self.answer, self.seed = answer, seed
        self.page_rows, self.window_pages = 6 + seed % 3, 4
        self.full = 180 + 2 * (seed % 7) + 1  # pages; no multiple of four
        self.rows = self.full * self.page_rows

    def order(self, epoch=2, seed=None, window_pages=None):
        seed = self.seed if seed is None else seed
        return self.answer(
            self.rows, self.page_rows, window_pages or self.window_pages, seed, epoch
        )


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
    yield "the global random numbers stay as they were", untouched
    many = 100_000
    few = runs_at_most(many // 10, lambda: answer(many, many // 100, 10, seed, 0))
    yield "no Python loop goes over the rows", few


def _windows_of_pages(case, mixed):
    yield "returns an int64 tensor with one axis, on the CPU", form(mixed)
    yield "only full pages: every row comes once", account(case.rows, mixed)
    yield "the same call again gives the same order", torch.equal(mixed, case.order())
    windows = _windows(mixed, case.page_rows, case.window_pages)
    counts = sorted({len(window) for window in windows[:-1]})
    yield (
        "the number of pages in a window",
        {"all but the last": counts, "the last": len(windows[-1])},
    )
    # the gap between the second and the third of four: a run of three beside a page from elsewhere
    # has none
    gap = statistics.mean(
        statistics.median_high(window) - statistics.median_low(window) for window in windows[:-1]
    )
    # 0.2 on average
    yield (
        "the pages of a window come from all over the file",
        gap > 0.1 * case.full,
    )
    rows = case.order(window_pages=1).tolist()
    alone = [page for page, _ in itertools.groupby(rows, lambda row: row // case.page_rows)]
    yield "windows of one page: every page stays together", sorted(alone) == list(range(case.full))
    yield "the pages do not follow the order of the file", not follows_the_file(alone)


def _rows_of_a_window(case, mixed):
    # of two neighbours in a random window about 1 in 4 are of one page, and half of these ascend;
    # if the rows of each page stay together, 5 in 6 are, and if the pages take turns, none
    page_rows = case.page_rows
    parts = [part.tolist() for part in mixed.split(page_rows * case.window_pages)]
    pairs = [pair for part in parts for pair in itertools.pairwise(part)]
    siblings = [(a, b) for a, b in pairs if a // page_rows == b // page_rows]
    share, ascending = (
        len(siblings) / len(pairs),
        sum(a < b for a, b in siblings) / max(1, len(siblings)),
    )
    yield (
        "the rows of a window are not page by page in file order",
        not (share > 0.5 and ascending > 0.7),
    )
    yield "the pages of a window do not take turns", share > 0.02
    patterns = {tuple(row % page_rows for row in part) for part in parts}
    yield "each window is shuffled differently", len(patterns) == len(parts)
    yield "rows are shuffled across the pages of a window", 0.1 < share < 0.4
    yield "and so are the rows of a page among themselves", 0.35 < ascending < 0.65


def _other_epochs_and_seeds(case, mixed):
    later, other = case.order(3), case.order(seed=case.seed + 1)
    yield "another epoch has another order", not torch.equal(mixed, later)
    yield "another seed has another order", not torch.equal(mixed, other)
    same, *others = [
        set(map(tuple, _windows(x, case.page_rows, case.window_pages)))
        for x in (mixed, later, other)
    ]
    fact = "in another epoch, or with another seed, other pages are together"
    yield fact, [len(same & windows) < 5 for windows in others]
    yield "two pairs (seed, epoch) with the same order", pairs_with_one_order(case.answer, 48, 6, 2)


def _short_page(case, seed):
    rest = 1 + seed % (case.page_rows - 1)
    case.rows += rest  # from here on the last page is short
    yield (
        f"a last page of {rest} of {case.page_rows} rows: every row once",
        account(case.rows, case.order()),
    )
    short = list(range(case.rows - rest, case.rows))
    ends = [
        sorted(case.order(epoch, window_pages=1).tolist()[-rest:]) == short for epoch in range(5)
    ]
    yield "with windows of one page the short page is the last", all(ends)
    ends = [case.order(epoch).tolist()[-rest:] for epoch in range(20)]
    yield (
        "its rows are mixed with the others of the last window",
        sum(sorted(end) != short for end in ends) > 5,
    )
