"""Probe of exercise sliding_order."""

import itertools
import statistics

import torch

from course.checks.engine import exercise
from course.checks.fast_loading.orders import account, first_bad_size, follows_the_file, form, pairs_with_one_order
from course.checks.probing.randomness import random_state


def _begun(order, page_rows, rows):
    """How many pages are begun and not finished after each row of an order, a list of ints."""
    left = {page: min(page_rows, rows - page * page_rows) for page in range(-(-rows // page_rows))}
    full, begun, counts = dict(left), 0, []
    for row in order.tolist():
        page = row // page_rows
        begun += (left[page] == full[page]) - (left[page] == 1)
        left[page] -= 1
        counts.append(begun)
    return counts


@exercise()
def sliding_order(answer, device, seed):
    """Which pages are begun and finished when, recognised from the row numbers."""
    page_rows, held = 8 + seed % 3, 4
    full, more = 240 + seed % 31, 3 + seed % 5
    rows = full * page_rows
    before = random_state()
    order = answer(rows, page_rows, held, seed, 2)
    untouched = before == random_state()
    yield "returns an int64 tensor with one axis, on the CPU", form(order)
    yield "every row comes once", account(rows, order)
    yield "the same call again gives the same order", torch.equal(order, answer(rows, page_rows, held, seed, 2))
    begun = _begun(order, page_rows, rows)
    yield "the most pages that are begun and not finished", max(begun)
    # in 240 pages, four of them there, no page is begun 0 to 2 times; 60 times if all four are emptied before new ones
    # come.  3.56 pages are begun on average, give or take 0.03; 3.2 if new ones come when two are left
    yield "the held pages are not all emptied before the next ones come", begun[: -held * page_rows].count(0) < 20
    usual = statistics.mean(begun[page_rows : -held * page_rows])
    yield "an empty page is replaced before the next pick, not later", usual > 3.38
    yield from _picks(order.tolist(), page_rows)
    first = list(dict.fromkeys(row // page_rows for row in order.tolist()))
    yield "the pages do not follow the order of the file", not follows_the_file(first)
    alone = answer(rows, page_rows, 1, seed, 2).tolist()
    pages = [page for page, _ in itertools.groupby(alone, lambda row: row // page_rows)]
    yield "a buffer of one page: page after page", sorted(pages) == list(range(full))
    whole = answer(rows, page_rows, 10 * full, seed, 2).tolist()
    same_page = sum(a // page_rows == b // page_rows for a, b in itertools.pairwise(whole))
    yield "a buffer larger than the file: rows of all pages mix", same_page < 0.05 * rows
    yield "another epoch has another order", not torch.equal(order, answer(rows, page_rows, held, seed, 3))
    yield "another seed has another order", not torch.equal(order, answer(rows, page_rows, held, seed + 1, 2))
    yield "two pairs (seed, epoch) with the same order", pairs_with_one_order(answer, 24, 4, 2)
    yield "a short last page: every row comes once", account(rows + more, answer(rows + more, page_rows, held, seed, 2))
    yield "sizes for which not every row comes once", first_bad_size(answer, seed)
    yield "the global random numbers stay as they were", untouched


def _picks(numbers, page_rows):
    # a pick from four pages is the last one again 1 time in 4; if the pages take turns never, if they come whole always
    pairs = list(itertools.pairwise(numbers))
    siblings = [(a, b) for a, b in pairs if a // page_rows == b // page_rows]
    share = len(siblings) / len(pairs)
    yield "the held pages do not take turns", share > 0.05
    yield "a new page is picked for each row", share < 0.5
    within, places = {}, {}
    for place, row in enumerate(numbers):
        within.setdefault(row // page_rows, []).append(row)
        places.setdefault(row // page_rows, []).append(place)
    steps = [a < b for page in within.values() for a, b in itertools.pairwise(page)]
    yield "the rows of a page come in random order", 0.35 < sum(steps) / len(steps) < 0.65
    # a page with one row left waits 4 picks on average, as any other, give or take 0.3; far longer if rows are picked
    waits = [page[-1] - page[-2] for page in places.values() if len(page) > 1] or [0]
    yield "a page that is nearly empty is picked as often as others", statistics.mean(waits) < 8
