"""Probe of exercise quasi_random_order."""

import itertools
import statistics

import torch

from course.checks.engine import exercise
from course.checks.fast_loading.orders import account, follows_the_file, form, pairs_with_one_order, related
from course.checks.probing.counting import runs_at_most
from course.checks.probing.randomness import random_state


def _pages(order, page_rows):
    """The page numbers of an order of windows of one page each, in their order."""
    return [page for page, _ in itertools.groupby(order.tolist(), lambda row: row // page_rows)]


def _windows(order, page_rows, window_pages):
    """[sorted numbers of the pages found in each window], if the windows but the last are full."""
    return [sorted({row // page_rows for row in part.tolist()}) for part in order.split(page_rows * window_pages)]


def _patterns(order, page_rows, window_pages):
    """How the full windows are shuffled: for each, the places within the pages its rows come from; a set of tuples."""
    rows = page_rows * window_pages
    return {tuple(row % page_rows for row in part.tolist()) for part in order.split(rows) if len(part) == rows}


def _cut(pages, window_pages):
    """A list of pages, cut into windows as _windows returns them."""
    return [sorted(pages[i : i + window_pages]) for i in range(0, len(pages), window_pages)]


def _shared_out(pages, short, ranks):
    """The list of pages of each rank, given an order of all pages."""
    return [sorted(pages[rank::ranks], key=lambda page: page == short) for rank in range(ranks)]  # sorted is stable


class _Case:
    """Orders that the answer gives for a file of `full` full pages; a call may give other sizes."""

    def __init__(self, answer, seed):
        self.answer, self.seed = answer, seed
        self.page_rows, self.window_pages, self.ranks = 6 + seed % 3, 4, 3
        self.full = 180 + 2 * (seed % 7) + 1  # pages; no multiple of four
        self.rows = self.full * self.page_rows

    def order(self, epoch=2, seed=None, rows=None, window_pages=None, **rank):
        seed = self.seed if seed is None else seed
        window_pages = window_pages or self.window_pages
        return self.answer(rows or self.rows, self.page_rows, window_pages, seed, epoch, **rank)

    def pages(self, epoch=2, **options):
        """The page numbers in their order, by an order with windows of one page."""
        return _pages(self.order(epoch, window_pages=1, **options), self.page_rows)

    def windows(self, order):
        return _windows(order, self.page_rows, self.window_pages)

    def patterns(self, order):
        return _patterns(order, self.page_rows, self.window_pages)

    def on_ranks(self, what, **options):
        """What the method `what` gives on each rank."""
        return [what(rank=rank, world_size=self.ranks, **options) for rank in range(self.ranks)]


@exercise()
def quasi_random_order(answer, device, seed):
    """Pages and windows, recognised from the row numbers."""
    case = _Case(answer, seed)
    before = random_state()
    mixed = case.order()
    untouched = before == random_state()
    yield from _windows_of_pages(case, mixed)
    yield from _rows_of_a_window(case, mixed)
    yield from _other_epochs_and_seeds(case, mixed)
    yield from _ranks(case)
    case.rest = 1 + seed % (case.page_rows - 1)
    case.rows += case.rest  # from here on the last page is short
    yield from _short_page(case)
    yield from _ranks_with_a_short_page(case)
    yield from _windows_with_a_short_page(case)
    yield "sizes for which not every row comes once", _first_bad_size(answer, seed)
    whole = answer(case.rows, case.page_rows, 10 * case.full, seed, 0).tolist()
    kept = sum(a // case.page_rows == b // case.page_rows for a, b in itertools.pairwise(whole))
    yield "a window larger than the file is a random order of all rows", kept < 0.05 * case.rows
    yield "the global random numbers stay as they were", untouched
    many = 100_000
    few = runs_at_most(many // 10, lambda: answer(many, many // 100, 10, seed, 0))
    yield "no Python loop goes over the rows", few


def _windows_of_pages(case, mixed):
    full = case.full
    yield "returns an int64 tensor with one axis, on the CPU", form(mixed)
    yield "only full pages: every row comes once", account(case.rows, mixed)
    yield "the same call again gives the same order", torch.equal(mixed, case.order())
    windows = case.windows(mixed)
    counts = sorted({len(window) for window in windows[:-1]})
    yield "the number of pages in a window", {"all but the last": counts, "the last": len(windows[-1])}
    reach = statistics.mean(window[-1] - window[0] for window in windows[:-1])
    yield "the pages of a window come from all over the file", reach > 0.3 * full  # 0.6 on average
    alone = case.pages()
    yield "windows of one page: every page stands together", sorted(alone) == list(range(full))
    yield "the pages do not follow the order of the file", not follows_the_file(alone)
    last = any(case.pages(epoch)[-1] != full - 1 for epoch in range(5))
    yield "the last page of the file is full, and not moved to the end", last


def _rows_of_a_window(case, mixed):
    # of two neighbours in a random window about 1 in 4 are of one page, and half of these ascend; if the rows of each
    # page stay together, 5 in 6 are, and if the pages take turns, none
    page_rows = case.page_rows
    parts = [part.tolist() for part in mixed.split(page_rows * case.window_pages)]
    pairs = [pair for part in parts for pair in itertools.pairwise(part)]
    siblings = [(a, b) for a, b in pairs if a // page_rows == b // page_rows]
    share, ascending = len(siblings) / len(pairs), sum(a < b for a, b in siblings) / max(1, len(siblings))
    yield "the rows of a window are not page by page in file order", not (share > 0.5 and ascending > 0.7)
    yield "the pages of a window do not take turns", share > 0.02
    patterns = {tuple(row % page_rows for row in part) for part in parts}
    yield "each window is shuffled in a way of its own", len(patterns) == len(parts)
    yield "rows are shuffled across the pages of a window", 0.1 < share < 0.4
    yield "and so are the rows of a page among themselves", 0.35 < ascending < 0.65


def _other_epochs_and_seeds(case, mixed):
    answer, alone = case.answer, case.pages()
    later, other = case.order(3), case.order(seed=case.seed + 1)
    yield "another epoch has another order", not torch.equal(mixed, later)
    yield "another seed has another order", not torch.equal(mixed, other)
    together = [set(map(tuple, case.windows(x))) for x in (mixed, later, other)]
    yield "in another epoch other pages stand together", len(together[0] & together[1]) < 5
    yield "with another seed other pages stand together", len(together[0] & together[2]) < 5
    ways = [case.patterns(x) for x in (mixed, later, other)]
    yield "no window is shuffled as one of another epoch", not ways[0] & ways[1]
    yield "no window is shuffled as one of another seed", not ways[0] & ways[2]
    unrelated = not (related(alone, case.pages(3)) or related(alone, case.pages(seed=case.seed + 1)))
    yield "no order of pages is made from that of another epoch or seed", unrelated
    yield "two pairs (seed, epoch) with the same order", pairs_with_one_order(lambda *pair: answer(48, 6, 2, *pair))
    yield "the same in a file of one page", pairs_with_one_order(lambda *pair: answer(40, 40, 1, *pair))
    cut = case.windows(mixed) == _cut(alone, case.window_pages)
    yield "window_pages has no part in the order of the pages", cut


def _ranks(case):
    ranks, page_rows = case.ranks, case.page_rows
    parts = case.on_ranks(case.order)
    yield f"{ranks} ranks: every row is on one rank", account(case.rows, *parts)
    owners = sum(len({row // page_rows for row in part.tolist()}) for part in parts)
    yield f"{ranks} ranks: every page is on one rank", owners == case.full
    yield f"{ranks} ranks: pages of each", [len(part) / page_rows for part in parts]
    dealt = _shared_out(case.pages(), None, ranks)
    found = case.on_ranks(case.pages)
    yield "rank r has the pages at the places r, r + world_size, ... of the order of all", found == dealt
    cut = [case.windows(part) for part in parts]
    yield "the windows of a rank are cut from its own pages", cut == [_cut(own, case.window_pages) for own in dealt]
    ways = [case.patterns(part) for part in parts]
    apart = not any(one & other for one, other in itertools.combinations(ways, 2))
    yield "no window is shuffled as one of another rank", apart


def _short_page(case):
    rest, rows = case.rest, case.rows
    fact = f"a last page of {rest} of {case.page_rows} rows: every row once"
    yield fact, account(rows, case.order())
    yield "the same on all ranks together", account(rows, *case.on_ranks(case.order))
    short = list(range(rows - rest, rows))
    ends = [sorted(case.order(epoch, window_pages=1).tolist()[-rest:]) == short for epoch in range(5)]
    yield "the short page is the last", all(ends)
    owner = []
    for epoch in range(20):
        tails = [order.tolist()[-rest:] for order in case.on_ranks(case.order, epoch=epoch, window_pages=1)]
        owner += [rank for rank, tail in enumerate(tails) if sorted(tail) == short]
    yield "on the rank that has it, it is the last, in each of 20 epochs", len(owner) == 20
    yield "it is not on the same rank in every epoch", len(set(owner)) > 1


def _ranks_with_a_short_page(case):
    full = case.full
    alone = [page for page in case.pages() if page != full]
    found = case.on_ranks(case.pages)
    orders = (alone[:i] + [full] + alone[i:] for i in range(full + 1))  # where the short page may have stood
    one = any(found == _shared_out(all_pages, full, case.ranks) for all_pages in orders)
    yield "all ranks take their pages from one order, the short page in it", one
    kept = case.windows(case.order()) == _cut([*alone, full], case.window_pages)
    yield "the others keep their places, in windows too", kept


def _windows_with_a_short_page(case):
    # the last window has one full page or three besides the short one: 1 time in 7 or less the short one ends it
    short = list(range(case.rows - case.rest, case.rows))
    ends = [case.order(epoch).tolist()[-case.rest :] for epoch in range(20)]
    yield "its rows are mixed with the others of the last window", sum(sorted(end) != short for end in ends) > 5


def _first_bad_size(answer, seed):
    """The first sizes for which the ranks do not share all rows, in words, or "none"."""
    for rows, page_rows, window_pages, world_size in itertools.product((1, 7, 12), (1, 4, 20), (1, 2, 9), (1, 2, 5)):
        sizes = f"{rows=}, {page_rows=}, {window_pages=}, {world_size=}"
        parts = [answer(rows, page_rows, window_pages, seed, 1, rank, world_size) for rank in range(world_size)]
        if any(account(rows, *parts).values()):
            return sizes
        if any(form(part) != form(torch.arange(1)) for part in parts):
            return f"{sizes}: not all are int64 tensors with one axis"
    return "none"
