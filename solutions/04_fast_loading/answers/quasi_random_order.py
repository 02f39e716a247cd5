"""Known mistakes of exercise quasi_random_order, and right answers in other styles."""

import random

import numpy as np
import torch

from course.checks.engine import alternative, mistake


class Quasi:
    """A right quasi-random order in pieces, so that each mistake can spoil one of them."""

    def __init__(self, rows, page_rows, window_pages, seed, epoch, rank=0, world_size=1):
        self.rows, self.page_rows, self.window_pages = rows, page_rows, window_pages
        self.seed, self.epoch, self.rank, self.world_size = seed, epoch, rank, world_size
        self.n_pages = -(-rows // page_rows)
        self.generator = self.rng()

    def rng(self):
        return np.random.default_rng((self.seed, self.epoch))

    def of_the_rank(self):
        return self.generator.spawn(self.world_size)[self.rank]

    def all_pages(self):
        return self.generator.permutation(self.n_pages)

    def share(self, pages):
        return pages[self.rank :: self.world_size]

    def pages(self):
        pages = self.share(self.all_pages())
        return pages[np.argsort(self.is_short(pages), kind="stable")]

    def is_short(self, pages):
        return pages == self.rows // self.page_rows

    def rows_of(self, pages):
        """Table (pages, page_rows) with -1 for rows that are not there."""
        table = pages[:, None] * self.page_rows + np.arange(self.page_rows)
        return np.where(table < self.rows, table, -1)

    def shuffled(self, window):
        """The rows of a window, in random order."""
        return self.generator.permutation(window[window >= 0])

    def windows(self):
        pages = self.pages()
        self.generator = self.of_the_rank()
        cuts = range(self.window_pages, len(pages), self.window_pages)
        return [self.shuffled(self.rows_of(window)) for window in np.split(pages, cuts)]

    def order(self):
        return torch.from_numpy(np.concatenate(self.windows()))


def quasi(advice):
    """A decorator: class with one piece spoilt -> mistake; its name is that of the class."""

    def make(spoilt):
        def answer(rows, page_rows, window_pages, seed, epoch, rank=0, world_size=1):
            return spoilt(rows, page_rows, window_pages, seed, epoch, rank, world_size).order()

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
    def all_pages(self):
        windows = np.split(np.arange(self.n_pages), range(self.window_pages, self.n_pages, self.window_pages))
        return np.concatenate([windows[i] for i in self.generator.permutation(len(windows))])


@quasi("The pages keep the order of the file, rows only move within a window. Shuffle the pages before you cut them.")
class PagesInFileOrder(Quasi):
    def all_pages(self):
        return np.arange(self.n_pages)


@quasi(
    "The rows of the short last page are lost: rows // page_rows counts the full pages only. Round up: "
    "math.ceil(rows / page_rows)."
)
class ShortPageLost(Quasi):
    def all_pages(self):
        return self.generator.permutation(self.rows // self.page_rows)


@quasi("The short last page gets row numbers beyond the end of the file. Keep those that are below `rows`.")
class BeyondTheEnd(Quasi):
    def rows_of(self, pages):
        return pages[:, None] * self.page_rows + np.arange(self.page_rows)


@quasi(
    "The short last page is filled up with rows that come elsewhere too. Nothing comes twice: leave out the numbers "
    "from `rows` on."
)
class FilledUp(Quasi):
    def rows_of(self, pages):
        return super().rows_of(pages) % self.rows


@quasi(
    "The short page stays where the shuffle put it, so some window in the middle is not full. Move it behind the other "
    "pages of its rank."
)
class ShortInTheMiddle(Quasi):
    def is_short(self, pages):
        return np.zeros(len(pages))


@quasi(
    "The last page of the file is moved to the end of its rank even if it is full. Only a short page is moved: page "
    "rows // page_rows, which exists only if it is short."
)
class FullPageMoved(Quasi):
    def is_short(self, pages):
        return pages == self.n_pages - 1


@quasi(
    "The short page is set aside before the pages are shared out, so the same rank has it in every epoch. Shuffle it "
    "with the others, and move it behind those of its rank."
)
class ShortSetAside(Quasi):
    def all_pages(self):
        full = self.rows // self.page_rows
        return np.concatenate([self.generator.permutation(full), np.arange(full, self.n_pages)])


@quasi("Every epoch has the same order, and so the same batches. Let the generator depend on epoch.")
class OneOrderForEver(Quasi):
    def rng(self):
        return np.random.default_rng(self.seed)


@quasi(
    "The pages are shuffled alike in every epoch, only the rows of the windows anew: the same pages stand together for "
    "ever. Shuffle the pages with the epoch too."
)
class SamePagesTogether(Quasi):
    def all_pages(self):
        return np.random.default_rng(self.seed).permutation(self.n_pages)


@quasi(
    "seed + epoch is one number for many pairs: epoch 1 of seed 0 is epoch 0 of seed 1, so two runs share their "
    "orders. Mix the two numbers: np.random.default_rng((seed, epoch))."
)
class SeedPlusEpoch(Quasi):
    def rng(self):
        return np.random.default_rng(self.seed + self.epoch)


@quasi(
    "The rows of a window are shuffled by the global random numbers, so no order can be had again. Take a generator "
    "that seed, epoch and rank decide."
)
class RowsByTheGlobal(Quasi):
    def shuffled(self, window):
        rows = window[window >= 0]
        return rows[torch.randperm(len(rows)).numpy()]


@quasi(
    "All ranks shuffle their windows alike: the generator that gave them the same pages gives them the same shuffles. "
    "Take one of its own for each rank: rng.spawn(world_size)[rank]."
)
class RanksShuffleAlike(Quasi):
    def of_the_rank(self):
        return self.generator


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

    def of_the_rank(self):
        np.random.seed((self.seed, self.epoch, 1 + self.rank))
        return np.random


@quasi(
    "Windows are ignored: all rows of the rank are shuffled together, so every row is a read of its own. Cut the pages "
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
    "Every rank reads all pages and keeps every world_size-th row: a file read world_size times. Share out the pages, "
    "not the rows."
)
class RowsSharedOut(Quasi):
    def share(self, pages):
        return pages

    def order(self):
        return super().order()[self.rank :: self.world_size]


@quasi(
    "The windows are cut from the pages of all ranks and then shared out. Share out the pages first: a rank cuts the "
    "windows from its own."
)
class WindowsSharedOut(Quasi):
    def share(self, pages):
        return pages

    def windows(self):
        return [np.zeros(0, np.int64), *super().windows()[self.rank :: self.world_size]]


@quasi(
    "A rank gets a run of the shuffled pages, not every world_size-th. Take a slice with a step: [rank::world_size]."
)
class RunOfPages(Quasi):
    def share(self, pages):
        return np.array_split(pages, self.world_size)[self.rank]


@quasi("Ranks shuffle the pages each in its own way, so some pages are read twice. Leave the rank out of the seed.")
class SeedWithTheRank(Quasi):
    def rng(self):
        return np.random.default_rng((self.seed, self.epoch, self.rank))


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
def page_lists_of_torch(rows, page_rows, window_pages, seed, epoch, rank=0, world_size=1):
    of_pages, *of_ranks = np.random.SeedSequence((seed, epoch)).generate_state(1 + world_size).tolist()
    content = torch.arange(rows).split(page_rows)
    mine = torch.randperm(len(content), generator=torch.Generator().manual_seed(of_pages)).tolist()[rank::world_size]
    rng = torch.Generator().manual_seed(of_ranks[rank])
    mine.sort(key=lambda page: len(content[page]) < page_rows)
    order = [torch.arange(0)]
    for i in range(0, len(mine), window_pages):
        window = torch.cat([content[page] for page in mine[i : i + window_pages]])
        order.append(window[torch.randperm(len(window), generator=rng)])
    return torch.cat(order)


@alternative("quasi_random_order")
def sorted_by_window_and_key(rows, page_rows, window_pages, seed, epoch, rank=0, world_size=1):
    rng = np.random.Generator(np.random.Philox(np.random.SeedSequence([seed, epoch])))
    n_pages = (rows - 1) // page_rows + 1
    pages = [int(page) for page in rng.permutation(n_pages)][rank::world_size]
    if rows % page_rows and n_pages - 1 in pages:
        pages.remove(n_pages - 1)
        pages.append(n_pages - 1)
    window = np.full(n_pages, -1)  # of each page; -1: on another rank
    window[pages] = np.arange(len(pages)) // window_pages
    of_row = window.repeat(page_rows)[:rows]
    order = np.lexsort((rng.random(rows), of_row))
    return torch.as_tensor(order[(of_row < 0).sum() :])


@alternative("quasi_random_order")
def streams_for_pages_and_rows(rows, page_rows, window_pages, seed, epoch, rank=0, world_size=1):
    for_pages, *for_rows = (
        np.random.default_rng(s) for s in np.random.SeedSequence((seed, epoch)).spawn(1 + world_size)
    )
    pages = for_pages.permutation(-(-rows // page_rows))[rank::world_size]
    starts = pages * page_rows
    starts = np.append(starts[starts + page_rows <= rows], starts[starts + page_rows > rows])
    order = np.concatenate([np.empty(0, np.int64), *(np.arange(s, min(s + page_rows, rows)) for s in starts)])
    cuts = np.arange(window_pages * page_rows, len(order), window_pages * page_rows)
    return torch.from_numpy(np.concatenate([for_rows[rank].permutation(part) for part in np.split(order, cuts)]))
