"""Known mistakes of exercise sliding_order, and right answers in other styles."""

import random

import numpy as np
import torch

from course.checks.engine import alternative, mistake


class Sliding:
    """A right sliding buffer in pieces, so that each mistake can spoil one of them."""

    def __init__(self, rows, page_rows, held_pages, seed, epoch):
        self.rows, self.page_rows, self.held_pages = rows, page_rows, held_pages
        self.seed, self.epoch = seed, epoch
        self.random = self.rng()

    def rng(self):
        return random.Random(f"{self.seed} {self.epoch}")

    def all_pages(self):
        """Lists of the rows of each page, in the order in which pages come."""
        pages = [list(range(i, min(i + self.page_rows, self.rows))) for i in range(0, self.rows, self.page_rows)]
        self.random.shuffle(pages)
        return pages

    def shuffled(self, page):
        self.random.shuffle(page)
        return page

    def refilled(self, held, rest):
        """Pages that are held next, given those that have rows left; takes some from `rest`."""
        while rest and len(held) < self.held_pages:
            held.append(rest.pop())
        return held

    def taken(self, held):
        """The rows that come next; they are taken out of their page."""
        return [held[self.random.randrange(len(held))].pop()]

    def order(self):
        rest, held, order = [self.shuffled(page) for page in self.all_pages()], [], []
        while held or rest:
            held = self.refilled(held, rest)
            order += self.taken(held)
            held = [page for page in held if page]
        return torch.tensor(order)


def sliding(advice):
    """A decorator: class with one piece spoilt -> mistake; its name is that of the class."""

    def make(spoilt):
        def answer(rows, page_rows, held_pages, seed, epoch):
            return spoilt(rows, page_rows, held_pages, seed, epoch).order()

        answer.__name__ = spoilt.__name__
        return mistake("sliding_order", advice)(answer)

    return make


@sliding(
    "All held pages are emptied before the next ones come: these are disjoint windows. Put the next page in as soon as "
    "one is empty."
)
class Windows(Sliding):
    def refilled(self, held, rest):
        return held or super().refilled(held, rest)


@sliding("New pages come only when the buffer is half empty. Take the next page in as soon as one is empty.")
class HalfEmpty(Sliding):
    def refilled(self, held, rest):
        return held if len(held) > self.held_pages // 2 else super().refilled(held, rest)


@sliding("The held pages take turns, a row of each. Pick a page at random for each row.")
class InTurns(Sliding):
    turn = 0

    def taken(self, held):
        self.turn += 1
        return [held[self.turn % len(held)].pop()]


@sliding(
    "The row is picked among all rows that are held, so full pages are picked more often than those that are nearly "
    "empty. Pick the page first, each as likely as the others."
)
class WeightedByRows(Sliding):
    def taken(self, held):
        return [self.random.choices(held, weights=list(map(len, held)))[0].pop()]


@sliding(
    "A pick above the number of held pages takes the last one, which is then likelier than the others. Pick among the "
    "len(held) pages that are there."
)
class LastMoreOften(Sliding):
    def taken(self, held):
        return [held[min(self.random.randrange(self.held_pages), len(held) - 1)].pop()]


@sliding("A page that is picked comes whole. Take one row of it, and pick anew for the next row.")
class WholePages(Sliding):
    def taken(self, held):
        page = held[self.random.randrange(len(held))]
        rows = page[:]
        page.clear()
        return rows


@sliding("The rows of a page come in the order of the file. Shuffle the rows of each page.")
class RowsInFileOrder(Sliding):
    def shuffled(self, page):
        return page[::-1]  # they are taken from the end


@sliding("The pages come in the order of the file. Shuffle the pages before they are taken into the buffer.")
class PagesInFileOrder(Sliding):
    def all_pages(self):
        pages = [list(range(i, min(i + self.page_rows, self.rows))) for i in range(0, self.rows, self.page_rows)]
        return pages[::-1]  # they are taken from the end


@sliding("More pages are held than `held_pages`: all rows of the file are mixed. Take a page in only if there is room.")
class AllPagesHeld(Sliding):
    def refilled(self, held, rest):
        while rest:
            held.append(rest.pop())
        return held


@sliding("The rows that are left in the buffer when no page is left to come are lost. Go on until it is empty.")
class RestOfTheBufferLost(Sliding):
    def order(self):
        rest, held, order = [self.shuffled(page) for page in self.all_pages()], [], []
        while rest:
            held = self.refilled(held, rest)
            order += self.taken(held)
            held = [page for page in held if page]
        return torch.tensor(order)


@sliding("The short last page is left out: rows // page_rows counts full pages only. Round up.")
class ShortPageLost(Sliding):
    def all_pages(self):
        return [page for page in super().all_pages() if len(page) == self.page_rows]


@sliding("Every epoch has the same order, and so the same batches. Let the generator depend on epoch.")
class OneOrderForEver(Sliding):
    def rng(self):
        return random.Random(self.seed)


@sliding(
    "seed + epoch is one number for many pairs: epoch 1 of seed 0 is epoch 0 of seed 1, so two runs share their "
    "orders. Mix the two numbers: np.random.default_rng((seed, epoch))."
)
class SeedPlusEpoch(Sliding):
    def rng(self):
        return random.Random(self.seed + self.epoch)


@sliding(
    "912,300 times the seed plus epoch, cut to 32 bits, is one number for several pairs. Mix the two numbers: "
    "np.random.default_rng((seed, epoch))."
)
class TimesANumber(Sliding):
    def rng(self):
        return random.Random((self.seed * 912_300 + self.epoch) % 2**32)


@sliding(
    "random.seed sets the random numbers of the whole program back. Make a generator of your own: "
    "np.random.default_rng((seed, epoch)) or random.Random."
)
class SeedsTheProgram(Sliding):
    def rng(self):
        random.seed(f"{self.seed} {self.epoch}")
        return random


@alternative("sliding_order")
def one_slot_per_page(rows, page_rows, held_pages, seed, epoch):
    rng = np.random.default_rng(np.random.SeedSequence([seed, epoch]))
    pages = iter(rng.permutation(-(-rows // page_rows)).tolist())
    slots = [None] * held_pages
    order = np.empty(rows, np.int64)
    n = 0
    for slot in range(held_pages):
        slots[slot] = next(pages, None)
    slots = [page for page in slots if page is not None]
    left = {}
    while slots:
        slot = int(rng.integers(len(slots)))
        page = slots[slot]
        mine = left.setdefault(page, rng.permutation(np.arange(page * page_rows, min(rows, (page + 1) * page_rows))))
        order[n], left[page], n = mine[0], mine[1:], n + 1
        if len(mine) == 1:
            following = next(pages, None)
            slots[slot : slot + 1] = [] if following is None else [following]
    return torch.from_numpy(order)


@alternative("sliding_order")
def queue_of_pages(rows, page_rows, held_pages, seed, epoch):
    rng = torch.Generator().manual_seed(int(np.random.SeedSequence((seed, epoch)).generate_state(1)[0]))
    queue = list(torch.arange(rows).split(page_rows))
    queue = [queue[i] for i in torch.randperm(len(queue), generator=rng)]
    queue = [page[torch.randperm(len(page), generator=rng)].tolist() for page in queue]
    held, queue, order = queue[:held_pages], queue[held_pages:], []
    for _ in range(rows):
        k = int(torch.randint(len(held), (), generator=rng))
        order.append(held[k].pop(0))
        if not held[k]:
            held[k : k + 1] = [queue.pop(0)] if queue else []
    return torch.tensor(order, dtype=torch.int64)
