"""Known mistakes of exercise quasi_random_order, and right answers in other styles."""

import random

import numpy as np
import torch

from course.checks.engine import alternative, mistake


class Quasi:
    """A right order of windows in pieces, so that each mistake can spoil one of them."""

    def __init__(self, rows, page_rows, window_pages, seed, epoch):
        self.rows, self.page_rows, self.window_pages = rows, page_rows, window_pages
        self.seed, self.epoch, self.full = seed, epoch, rows // page_rows
        self.generator = self.rng()

    def rng(self):
        return np.random.default_rng((self.seed, self.epoch))

    def full_pages(self):
        return self.generator.permutation(self.full)

    def pages(self):
        """All page numbers in their order, a short page last."""
        return np.concatenate([self.full_pages(), np.arange(self.full, -(-self.rows // self.page_rows))])

    def rows_of(self, pages):
        """Table (pages, page_rows) with -1 for rows that are not there."""
        table = pages[:, None] * self.page_rows + np.arange(self.page_rows)
        return np.where(table < self.rows, table, -1)

    def shuffled(self, window):
        """The rows of a window, in random order."""
        return self.generator.permutation(window[window >= 0])

    def windows(self):
        pages = self.pages()
        cuts = range(self.window_pages, len(pages), self.window_pages)
        return [self.shuffled(self.rows_of(window)) for window in np.split(pages, cuts)]

    def order(self):
        return torch.from_numpy(np.concatenate(self.windows()))


def quasi(advice):
    """A decorator: class with one piece spoilt -> mistake; its name is that of the class."""

    def make(spoilt):
        def answer(rows, page_rows, window_pages, seed, epoch):
            return spoilt(rows, page_rows, window_pages, seed, epoch).order()

        answer.__name__ = spoilt.__name__
        return mistake("quasi_random_order", advice)(answer)

    return make


@quasi(
    "The pages are shuffled, their rows are not: within a page the file's order stays. Shuffle all rows of a window "
    "together."
)
class RowsInFileOrder(Quasi):
    def shuffled(self, window):
        return window[window >= 0]


@quasi(
    "The rows are shuffled page by page, so a batch still comes from one page or two. Put the rows of all pages of the "
    "window together first, and shuffle those."
)
class PageByPage(Quasi):
    def shuffled(self, window):
        return np.concatenate([self.generator.permutation(page[page >= 0]) for page in window])


@quasi(
    "The pages of a window take turns, a row of each in the order of the file. That is no random order: shuffle the "
    "rows of the window."
)
class InTurns(Quasi):
    def shuffled(self, window):
        turns = window.T.ravel()
        return turns[turns >= 0]


@quasi(
    "A window is a run of pages as they lie in the file; only the windows are shuffled. Shuffle the pages first, then "
    "cut the windows."
)
class AdjacentPages(Quasi):
    def full_pages(self):
        windows = np.split(np.arange(self.full), range(self.window_pages, self.full, self.window_pages))
        return np.concatenate([windows[i] for i in self.generator.permutation(len(windows))])


@quasi("The pages keep the order of the file, rows only move within a window. Shuffle the pages before you cut them.")
class PagesInFileOrder(Quasi):
    def full_pages(self):
        return np.arange(self.full)


@quasi(
    "The rows of the short last page are lost: rows // page_rows counts the full pages only. Put the rows from there "
    "on behind the others."
)
class ShortPageLost(Quasi):
    def pages(self):
        return self.full_pages()


@quasi("The short last page gets row numbers beyond the end of the file. Keep those that are below `rows`.")
class BeyondTheEnd(Quasi):
    def rows_of(self, pages):
        return pages[:, None] * self.page_rows + np.arange(self.page_rows)


@quasi(
    "The short page stays where the shuffle put it, so the windows after it are not whole pages. Draw an order of the "
    "full pages, and put the short one behind them."
)
class ShortInTheMiddle(Quasi):
    def pages(self):
        return self.generator.permutation(-(-self.rows // self.page_rows))


@quasi("Every epoch has the same order, and so the same batches. Let the generator depend on epoch.")
class OneOrderForEver(Quasi):
    def rng(self):
        return np.random.default_rng(self.seed)


@quasi(
    "The pages are shuffled alike in every epoch, only the rows of the windows anew: the same pages stand together for "
    "ever. Shuffle the pages with the epoch too."
)
class SamePagesTogether(Quasi):
    def full_pages(self):
        return np.random.default_rng(self.seed).permutation(self.full)


@quasi(
    "seed + epoch is one number for many pairs: epoch 1 of seed 0 is epoch 0 of seed 1, so two runs share their "
    "orders. Mix the two numbers: np.random.default_rng((seed, epoch))."
)
class SeedPlusEpoch(Quasi):
    def rng(self):
        return np.random.default_rng(self.seed + self.epoch)


@quasi(
    "seed times a prime plus epoch is another number for each pair, but torch's generator keeps its last 32 bits only: "
    "pairs share orders. Mix the two numbers: np.random.default_rng((seed, epoch))."
)
class TimesAPrime(Quasi):
    def rng(self):
        return np.random.default_rng((self.seed * 1_000_003 + self.epoch) % 2**32)


@quasi(
    "The rows of a window are shuffled by the global random numbers, so no order can be had again. Take a generator "
    "that seed and epoch decide."
)
class RowsByTheGlobal(Quasi):
    def shuffled(self, window):
        rows = window[window >= 0]
        return rows[torch.randperm(len(rows)).numpy()]


@quasi(
    "All windows are shuffled by one and the same permutation. Let the generator go on from window to window: make it "
    "once, not anew for each."
)
class ShuffledAlike(Quasi):
    def shuffled(self, window):
        return self.rng().permutation(window[window >= 0])


@quasi(
    "np.random.seed sets the random numbers of the whole program back. Make a generator of your own: "
    "np.random.default_rng((seed, epoch))."
)
class SeedsTheProgram(Quasi):
    def rng(self):
        np.random.seed((self.seed, self.epoch))
        return np.random


@quasi(
    "Windows are ignored: all rows are shuffled together, so every row is a read of its own. Cut the pages "
    "into windows, and shuffle within each."
)
class OneGreatWindow(Quasi):
    def windows(self):
        return [self.shuffled(self.rows_of(self.pages()))]


@quasi(
    "A window is cut at window_pages rows, not pages. In rows it is window_pages * page_rows long, for the rows of all "
    "its pages are shuffled together."
)
class WindowOfRows(Quasi):
    def windows(self):
        order = self.rows_of(self.pages()).ravel()
        cuts = range(self.window_pages, len(order), self.window_pages)
        return [self.shuffled(window) for window in np.split(order, cuts)]


@quasi(
    "A Python loop goes over all rows (random.shuffle is one, too), which takes longer than many an epoch. Shuffle "
    "with NumPy or torch: rng.shuffle, rng.permutation, torch.randperm."
)
class LoopOverRows(Quasi):
    def shuffled(self, window):
        rows = window[window >= 0].tolist()
        random.Random(str((self.seed, self.epoch, rows[:1]))).shuffle(rows)
        return np.array(rows, np.int64)


@alternative("quasi_random_order")
def page_lists_of_torch(rows, page_rows, window_pages, seed, epoch):
    rng = torch.Generator().manual_seed(int(np.random.SeedSequence((seed, epoch)).generate_state(1)[0]))
    *full, last = torch.arange(rows).split(page_rows)
    if len(last) == page_rows:
        full, last = [*full, last], torch.arange(0)
    pages = [full[page] for page in torch.randperm(len(full), generator=rng).tolist()] + [last] * (len(last) > 0)
    windows = [torch.cat(pages[i : i + window_pages]) for i in range(0, len(pages), window_pages)]
    return torch.cat([window[torch.randperm(len(window), generator=rng)] for window in windows])


@alternative("quasi_random_order")
def sorted_by_window_and_key(rows, page_rows, window_pages, seed, epoch):
    rng = np.random.Generator(np.random.Philox(np.random.SeedSequence([seed, epoch])))
    place = np.append(rng.permutation(rows // page_rows), rows // page_rows)  # of each page, the short one last
    window = (place // window_pages).repeat(page_rows)[:rows]
    return torch.as_tensor(np.lexsort((rng.random(rows), window)))


@alternative("quasi_random_order")
def streams_for_pages_and_rows(rows, page_rows, window_pages, seed, epoch):
    for_pages, for_rows = (np.random.default_rng(s) for s in np.random.SeedSequence((seed, epoch)).spawn(2))
    starts = np.append(for_pages.permutation(rows // page_rows), rows // page_rows) * page_rows
    order = np.concatenate([np.arange(s, min(s + page_rows, rows)) for s in starts])
    cuts = np.arange(window_pages * page_rows, len(order), window_pages * page_rows)
    return torch.from_numpy(np.concatenate([for_rows.permutation(part) for part in np.split(order, cuts)]))
