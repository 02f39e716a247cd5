# %% [markdown]
# # Fast loading, part 2: Orders, and data larger than memory
#
# **Which shuffles keep batches nearly random and disk reads large?**
#
# SGD wants rows in random order, a disk wants long reads. You write a random order and two compromises: windows of
# pages, and the sliding buffer of FFCV. One number says how far their batches are from random ones. Then you train
# on a sorted file, read from the disk in each order, and see what an order costs in seconds and in loss.
#
# **You will be able to**
#
# - make a random order that ranks share and that differs in every epoch
# - shuffle in windows of pages or with a sliding buffer, and predict what they cost by 1 + B / W
# - read whole pages of a file straight into the rows of a buffer
# - choose an order for a file that does not fit into memory
#
# **Minutes** 40 core · 150 in all
#
# **Needs** nothing; what you solved in part 1 is not used here

# %% [markdown]
# How it works: write down what you expect (a cell with `None`), solve the exercise, run its check, look at the
# measurement. Later cells use your answer if its check passed (`x_now` is your `x`) and fall back on the reference
# solution if your copy of the course includes it. Run the cells from the top. Leave the empty cell after each check
# alone: your instructor's tests go there.

# %% locked="setup"
import os
import tempfile
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch

import course
from course.checks import fast_loading as check
from course.learner.predictions import reveal
from course.loading.page_pool import batches_from_pages, pages_in_use
from course.measure.page_cache import drop_cached, reads
from course.plots import fast_loading as plots

print(course.machine())
sizes = course.sizes("04_fast_loading")

# %% [markdown]
# ## Sequential and random
#
# **A random order is the best for SGD and the worst for a disk.**
#
# SGD takes the gradient of a batch for that of all data, which is right on average if the batch is a random draw.
# Rows of a file are seldom in random order: they were written day by day or class by class, so neighbours are alike.
# Read *sequentially*, such a file gives batches that each know one day or one class.
#
# A *random* order, a new one in every epoch, avoids that. But each row then comes from another place of the file. From
# a disk that is one request per row, and the system fetches at least a memory page of 4,096 bytes for it.

# %% [markdown]
# ### Exercise 1 · A random order
#
# Write the order that all others are compared with: the row numbers that one rank reads in one epoch.
#
# **Must**
# - permute all rows, in a way that seed and epoch fix: the same on every rank and at every call;
# - give rank r the places r, r + `world_size`, r + 2 `world_size` and so on; nothing twice, nothing left out;
# - give unrelated orders for any two pairs (seed, epoch): (0, 1) and (1, 0), too;
# - leave the global random numbers of torch, NumPy and Python alone.
#
# **You may assume** that seed and epoch are whole numbers from 0 to a million.
#
# **Points** 3 · **Core** · **Difficulty** ●○○ · **Minutes** 10 · **Lines** 2
#
# **Source** NumPy documentation, "Parallel random number generation", section "Sequence of integer seeds".
#
# <details><summary>Hint 1</summary>
#
# What must the ranks have in common, so that no row is drawn by two of them? And which (seed, epoch) give the same
# order, if you seed with `seed + epoch`?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# A generator of your own leaves the global one alone. torch's keeps 32 bits of its seed on the CPU, so products such as
# `1_000_003 * seed + epoch` run over; NumPy's `default_rng` can be seeded with several whole numbers, which it mixes.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# `np.random.default_rng((seed, epoch)).permutation(rows)` is the order of all ranks, an array of int64;
# `torch.from_numpy` makes a tensor of it, and a slice with a step is the share of a rank.
#
# </details>


# %% solution="random_order"
def random_order(rows, seed, epoch, rank=0, world_size=1):
    """The row numbers that one rank reads in one epoch, in random order: an int64 tensor (n,) on the CPU.

    Args:
        rows: number of rows of the file, 1 or more.
        seed: int from 0 to a million, the same on all ranks.
        epoch: int from 0 to a million; each has an order of its own.
        rank: which rank this is, from 0 to world_size - 1.
        world_size: number of ranks, 1 or more, also more than rows.

    The ranks share one permutation of all rows; each row is read by one of them, once.
    """
    ### BEGIN SOLUTION
    order = np.random.default_rng((seed, epoch)).permutation(rows)
    return torch.from_numpy(order)[rank::world_size]
    ### END SOLUTION


# %% test="random_order-visible" points=1
check.random_order(random_order)

# %% test="random_order-hidden" points=2
### BEGIN HIDDEN TESTS
check.random_order(random_order, seed=613)
### END HIDDEN TESTS

# %% [markdown]
# FFCV's `RANDOM` seeds with `seed + epoch`: epoch 1 of seed 0 has the order of epoch 0 of seed 1, so runs that differ
# in the seed alone share most of their orders. Its `QUASI_RANDOM` takes `912300 * seed + epoch`: such runs meet in
# epoch 912,300.

# %% [markdown]
# ## Windows of pages
#
# **Shuffle large pages, then the rows within a window of pages: the disk sees long reads, the batch sees many places.**
#
# A *page* in this part is `page_rows` consecutive rows of the file: page p holds the rows from p · `page_rows` up to,
# and without, (p + 1) · `page_rows`; only the last page may be short. (The 4,096 bytes of the system are *memory
# pages*.) CorgiPile (Xu et al. 2022) shuffles the pages, cuts them into *windows* of W pages, reads a window into
# memory and shuffles its rows. Each page is read once per epoch, as a whole. The price is memory: W pages at once.

# %% [markdown]
# ### Exercise 2 · An order of windows
#
# Write the order of CorgiPile for one rank.
#
# **Must**
# - draw a random order of the full pages; put a short last page behind them;
# - cut the pages into windows of `window_pages`, of which the last may have fewer;
# - shuffle the rows of each window together, across its pages, each window in a way of its own;
# - depend on (seed, epoch) alone, as in `random_order`, and leave the global random numbers alone.
#
# **Not allowed**: a Python loop over rows. One over windows is welcome.
#
# **Points** 5 · **Core** · **Difficulty** ●●○ · **Minutes** 20 · **Lines** 8
#
# **Source** Xu et al. 2022, "In-Database Machine Learning with CorgiPile", SIGMOD.
#
# <details><summary>Hint 1</summary>
#
# In which order do you need these: cut into windows, shuffle the pages, shuffle the rows? What is a window once pages
# have been written out as row numbers?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `pages[:, None] * page_rows + np.arange(page_rows)` is a table of row numbers, a page per line. `.ravel()` makes the
# order of it; `rows // page_rows` is the number of full pages, and the rows from there on are the short page.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# With `rng = np.random.default_rng((seed, epoch))`: `rng.permutation(rows // page_rows)` are the full pages. Append
# `np.arange(len(order), rows)` by `np.concatenate`. A slice of an array is a view, so `rng.shuffle(order[start : start
# + n])`, with n the rows of a window, shuffles it in place.
#
# </details>


# %% solution="quasi_random_order"
def quasi_random_order(rows, page_rows, window_pages, seed, epoch):
    """Row numbers of one epoch, random within windows of pages: an int64 tensor (rows,) on the CPU.

    Args:
        rows: number of rows of the file, 1 or more.
        page_rows: rows of a page, 1 or more, also more than rows.
        window_pages: pages of a window, 1 or more, also more than there are.
        seed, epoch: ints from 0 to a million.
    """
    ### BEGIN SOLUTION
    rng = np.random.default_rng((seed, epoch))
    pages = rng.permutation(rows // page_rows)
    order = (pages[:, None] * page_rows + np.arange(page_rows)).ravel()
    order = np.concatenate([order, np.arange(len(order), rows)])  # a short last page
    window = window_pages * page_rows  # in rows
    for start in range(0, rows, window):
        rng.shuffle(order[start : start + window])  # in place: a slice is a view
    return torch.from_numpy(order)
    ### END SOLUTION


# %% test="quasi_random_order-visible" points=2
check.quasi_random_order(quasi_random_order)

# %% test="quasi_random_order-hidden" points=3
### BEGIN HIDDEN TESTS
check.quasi_random_order(quasi_random_order, seed=947)
### END HIDDEN TESTS

# %% [markdown]
# ## FFCV's sliding buffer
#
# **FFCV holds 2 B pages and picks one of them at random for each row; a page that is empty makes room for the next.**
#
# With `OrderOption.QUASI_RANDOM` FFCV (Leclerc et al. 2023) never empties a window. For batches of B rows its buffer
# has 2 B places. A page that ran out is replaced at once, so pages begin and end at different times. (Its pages have
# 8 MiB: 4,096 of them are 34 GB for batches of 2,048. With `os_cache=False` FFCV holds them itself, with
# `os_cache=True` the page cache does.)

# %% [markdown]
# ### Exercise 3 · An order of a sliding buffer
#
# Write FFCV's order, with the same arguments as `quasi_random_order`.
#
# **Must**
# - keep `held_pages` pages in the buffer, or all that are left; they come into it in random order;
# - for each row pick one of the held pages at random, each as likely, and take a row of it that was not taken yet; the
#   rows of a page come in random order;
# - when a page is empty, drop it and take in the next page, if there is one, before the next pick;
# - depend on (seed, epoch) alone; leave the global random numbers alone.
#
# **You may assume** that a loop over rows is fast enough: FFCV compiles its own by Numba.
#
# **Points** 4 · **Extra** · **Difficulty** ●●○ · **Minutes** 25 · **Lines** 9
#
# **Source** FFCV 1.0.2, `ffcv/traversal_order/quasi_random.py`.
#
# <details><summary>Hint 1</summary>
#
# What do you have to know of a page that is in the buffer? What must be true of the buffer before each pick?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Let each page be a list of its rows, already shuffled: `pop()` takes one. The buffer is a list of such lists, and so
# are the pages to come.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# `rest = [rng.permutation(np.arange(start, min(start + page_rows, rows))).tolist() for start in
# rng.permutation(np.arange(0, rows, page_rows))]`; for each `pick` of `rng.random(rows)`: fill `held` from `rest`, then
# `k = int(pick * len(held))` is the page, and `del held[k]` if it is empty.
#
# </details>


# %% solution="sliding_order"
def sliding_order(rows, page_rows, held_pages, seed, epoch):
    """Row numbers of one epoch, each of a page picked at random from a buffer: an int64 tensor (rows,) on the CPU.

    Args:
        rows: number of rows of the file, 1 or more.
        page_rows: rows of a page, 1 or more, also more than rows.
        held_pages: pages in the buffer, 1 or more, also more than there are.
        seed, epoch: ints from 0 to a million.
    """
    ### BEGIN SOLUTION
    rng = np.random.default_rng((seed, epoch))
    starts = rng.permutation(np.arange(0, rows, page_rows))
    rest = [rng.permutation(np.arange(start, min(start + page_rows, rows))).tolist() for start in starts]
    held, order = [], []
    for pick in rng.random(rows).tolist():
        while rest and len(held) < held_pages:
            held.append(rest.pop())
        k = int(pick * len(held))
        order.append(held[k].pop())
        if not held[k]:
            del held[k]
    return torch.tensor(order)
    ### END SOLUTION


# %% test="sliding_order-visible" points=2
check.sliding_order(sliding_order)

# %% test="sliding_order-hidden" points=2
### BEGIN HIDDEN TESTS
check.sliding_order(sliding_order, seed=511)
### END HIDDEN TESTS

# %% [markdown]
# Three orders of a file of 256 rows, in pages of 16 and batches of 32, with 4 pages in memory: each square is a row,
# coloured by the page that it lies in. Look for the batch at which new colours come in.

# %% tags=["experiment"]
random_order_now = course.solved(check.random_order)
quasi_random_order_now, sliding_order_now = course.solved(check.quasi_random_order), course.solved(check.sliding_order)
plots.orders({"windows of 4 pages": quasi_random_order_now(256, 16, 4, 0, 0),
              "sliding buffer of 4 pages": sliding_order_now(256, 16, 4, 0, 0),
              "random": random_order_now(256, 0, 0)}, 16, 32)  # fmt: skip

# %% [markdown]
# With windows, all four colours change at once, every second batch. With the sliding buffer they change one by one. In
# the random order every batch holds nearly every colour.

# %% [markdown]
# ## How random are the batches?
#
# **In windows of W pages, the mean of a batch of B rows varies 1 + B / W times as much as that of a random batch.**
#
# Take the worst file, in which the rows of a page are all alike. The mean of a batch from a window varies for two
# reasons: which rows of the window came, like s² / B, and which pages are in the window, like s² / W. Together that is
# 1 + B / W times the s² / B of a random batch. So count the window in batch sizes.
# The sliding buffer has no windows; whether the rule holds for it is measured below.

# %% [markdown]
# ### Exercise 4 · The bias of batches
#
# Compute V / V₀: how far batches of an order are from random.
#
# **Must**
# - V: the mean of (batch mean - m)² over the batches, `batch` rows of `order` each, without a short last one;
#   m is the mean of all N values;
# - V₀, the average of random batches: s² / `batch` · (N - `batch`) / (N - 1), s² the mean of (value - m)²;
# - compute in float64, and subtract m before you square: values may be Unix times.
#
# **Raises** ValueError if there is no full batch, if a batch holds all N rows, or if all values are the same.
#
# **Points** 4 · **Extra** · **Difficulty** ●●○ · **Minutes** 20 · **Lines** 9
#
# **Source** Kish 1965, "Survey Sampling" (design effect); Cochran 1977, "Sampling Techniques", chapter 2.
#
# <details><summary>Hint 1</summary>
#
# By how much does the mean of a single random row vary? And the mean of all N rows? The formula of V₀ knows both.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Subtract the mean of all values once, at the beginning: then both variances are means of squares. How many values
# belong to full batches? The rest is cut off before `view`. Rounding may leave equal values a variance above 0: compare
# the values themselves.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# `off = values - values.mean()` in float64; `off[order][: n // batch * batch].view(-1, batch).mean(1)` are the
# batch means; `off.square().mean()` is s². `.item()` makes a float of the ratio.
#
# </details>


# %% solution="batch_bias"
def batch_bias(values, order, batch):
    """The variance of an order's batch means over that of random batches, a float: 1 is as good as random.

    Args:
        values: tensor (N,) of any real dtype, one value of each row of the file.
        order: int64 tensor (N,), a permutation of the row numbers, on the device of `values`.
        batch: rows of a batch, 1 or more.

    Raises: ValueError if there is no full batch, if one batch holds all rows, or if all values are the same.
    """
    ### BEGIN SOLUTION
    n = len(order)
    if batch >= n:
        raise ValueError(f"batches of {batch} of {n} rows have no variance; make them smaller.")
    if values.min() == values.max():
        raise ValueError("all values are the same, and so are all batches; take values that differ.")
    off = values.double() - values.double().mean()
    means = off[order][: n // batch * batch].view(-1, batch).mean(1)
    by_chance = off.square().mean() / batch * (n - batch) / (n - 1)
    return (means.square().mean() / by_chance).item()
    ### END SOLUTION


# %% test="batch_bias-visible" points=2
check.batch_bias(batch_bias)

# %% test="batch_bias-hidden" points=2
### BEGIN HIDDEN TESTS
check.batch_bias(batch_bias, seed=358)
### END HIDDEN TESTS

# %% [markdown]
# **Predict**: the values of a file are sorted. The rule knows nothing of the length of the file. With windows of B
# pages, an eighth of this file (laptop scale), how many times the variance of random batches is left? And with pages
# read one by one, W = 1?

# %%
predicted_at_batch = None
predicted_at_one = None

# %% tags=["experiment"]
batch_bias_now = course.solved(check.batch_bias)
rows, page_rows, batch = sizes.sorted_rows, sizes.sorted_page_rows, sizes.sorted_batch
held = [n for n in (1, 2, 4, 8, 16, 32, 64, 128) if 2 * n * page_rows <= rows]
schemes = {"windows": quasi_random_order_now, "sliding buffer": sliding_order_now}
in_file_order = torch.arange(rows)  # values of a sorted file
bias = {name: [np.mean([batch_bias_now(in_file_order, scheme(rows, page_rows, n, 0, epoch), batch)
                        for epoch in range(5)]) for n in held] for name, scheme in schemes.items()}  # fmt: skip
shuffled_file = torch.randperm(rows)
in_no_order = batch_bias_now(shuffled_file, quasi_random_order_now(rows, page_rows, 1, 0, 0), batch)
near, one = bias["windows"][held.index(batch)], bias["windows"][0]
print(f"windows of {batch} pages, batches of {batch} rows: {near:.2f} times" + reveal(predicted_at_batch))
print(f"windows of one page: {one:.1f} times" + reveal(predicted_at_one))
print(f"the rows of the file shuffled once, windows of one page: {in_no_order:.2f} times")
off = max(abs(value / (1 + batch / n) - 1) for n, value in zip(held, bias["windows"], strict=True)
          if 8 * n * page_rows <= rows)  # fmt: skip
course.claim("with windows of up to an eighth of the file, 1 + B / W is within a third of the measured variance",
             off < 1 / 3,
             f"at most {off:.0%} off",
             otherwise="The file is too short for so many windows.")  # fmt: skip
slides = max(abs(a / b - 1) for a, b in zip(bias["sliding buffer"], bias["windows"], strict=True))
course.claim("a sliding buffer has the bias of windows of as many pages, within a third", slides < 1 / 3,
             f"at most {slides:.0%} apart")  # fmt: skip
course.claim("in a file without order, windows of one page are as good as random", 0.7 < in_no_order < 1.4,
             f"{in_no_order:.2f} times the variance")  # fmt: skip
plots.bias(held, bias, batch)

# %% [markdown]
# Windows that are a good part of the file are few, so that chance decides, and they share the pages out without
# repeating any: their batches vary less than the rule says. The last number is the cheapest remedy: **shuffle the rows
# once when the file is written**, and pages cost nothing in this statistic. (The same rows still meet in every epoch.)

# %% [markdown]
# ## Data larger than memory
#
# **What does not fit is read page by page, each page once, into memory that is already there.**
#
# A mapped file is read by page faults: the thread that touches an address waits until the disk has brought it. A *read
# call* names a place in the file and a length instead: a whole page is one request, and while one thread waits for its
# page another one reads the next.
#
# A read call copies from the page cache into your memory. With a buffer of one page, from which rows are then copied to
# the batch, each byte would be copied twice. But a call takes a *list* of buffers: `os.preadv(file, buffers, offset)`
# reads consecutive bytes and fills one buffer after the other, at most 1,024 of them per call. They may be given as a
# NumPy array of memoryviews, as `_rows_of` returns. If the buffers are rows of `out` in shuffled order, reading
# shuffles.

# %% [markdown]
# ### Exercise 5 · Read pages
#
# Complete a reader that fills `out` with the rows of whole pages, in the order asked for.
#
# **Must**
# - put row `index[i]` of the file into `out[i]`, and return `out[:n]`;
# - read each page once, with at most two calls per 1,024 rows;
# - share the pages out among the `threads` threads of `self.pool`;
# - copy no page on the way.
#
# **Raises** ValueError if the index is not all rows of some pages, each once; OSError or EOFError, with path and number
# of the page in the file (from 0), if the file ends within a page.
#
# **Points** 8 · **Extra** · **Difficulty** ●●● · **Minutes** 60 · **Lines** 25
#
# **Source** Python's documentation of `os.preadv`; the Linux manual, readv(2) and open(2), "O_DIRECT".
#
# <details><summary>Hint 1</summary>
#
# Sort the index. Where do the rows of one page stand then, and what is the position at which a row stood before?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `slots = index.numpy().argsort()` holds, in the order of the file, the rows of `out` to write to: those of the
# k-th page are `slots[k * page_rows : (k + 1) * page_rows]`, because only the last page of a file can be short, and
# it comes last. To see whether the index is made of whole pages, make the rows of its pages with `np.arange` and
# compare.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# Thread t gets every `threads`-th pair (page, slots), and for each calls `os.preadv(self.file, views[part], 4096 +
# first * stride)`, where `views = self._rows_of(out)`, `part` are at most 1,024 of the slots, and `first` is the row at
# which they begin. It returns the number of bytes: compare it. `for task in tasks: task.result()` waits for the threads
# and raises what one of them raised.
#
# </details>


# %% solution="PageReader"
class PageReader:
    """Reads whole pages of a record file by read calls, past any mapping, rows in the order asked for.

    Args:
        path: str or Path of the record file.
        rows: rows of the file.
        stride: bytes a row, a multiple of 4.
        page_rows: rows a page; the last page of the file may be shorter.
        threads: how many threads read.
        direct: past the system's page cache, by O_DIRECT.

    Raises: OSError if the file cannot be opened (in this way); with `direct`, ValueError if `stride` is no multiple of
        4096, ValueError or OSError if the system has no O_DIRECT.
    """

    def __init__(self, path, rows, stride, page_rows, threads=2, direct=False):
        if direct and stride % 4096:
            raise ValueError(f"O_DIRECT reads blocks of 4096 bytes, and rows of {stride} bytes are not whole blocks.")
        if direct and not hasattr(os, "O_DIRECT"):
            raise ValueError("this system has no O_DIRECT; read with direct=False.")
        self.path, self.rows, self.stride, self.page_rows = path, rows, stride, page_rows
        self.threads, self.direct, self.views = threads, direct, {}
        self.file = os.open(path, os.O_RDONLY | os.O_DIRECT if direct else os.O_RDONLY)
        self.release = weakref.finalize(self, os.close, self.file)  # at the latest when nobody holds the reader
        self.pool = ThreadPoolExecutor(threads)  # which ends its threads then

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()

    def close(self):
        """None; threads have ended, the file is closed, and nothing keeps an `out`.  May be called again."""
        self.pool.shutdown()
        self.release()
        self.views.clear()

    def _rows_of(self, out):
        """An array of memoryviews, the rows of `out`; kept, because cutting them takes as long as reading."""
        key = out.data_ptr(), len(out)
        if key not in self.views:
            memory = memoryview(out.numpy()).cast("B")
            rows = (memory[i : i + self.stride] for i in range(0, len(memory), self.stride))
            self.views[key] = np.fromiter(rows, object)
        return self.views[key]

    def fill(self, index, out):
        """The first n rows of `out`, a view, which now hold the rows `index` of the file.

        Args:
            index: int64 tensor (n,) on the CPU, all rows of some pages, each once, in any order; n may be 0.
            out: contiguous float32 tensor (B, stride // 4) on the CPU, B at least n and at least 1; with `direct` it
                begins at a multiple of 4096 bytes.

        Raises: ValueError if one of these does not hold, or the reader is closed; OSError or EOFError, with the path
            and the page, if the file is shorter than it should be.
        """
        n = len(index)
        if not self.release.alive:
            raise ValueError(f"the reader of {self.path} is closed; make another one.")
        if len(out) < n or out.shape[1:] != (self.stride // 4,):
            raise ValueError(f"{n} rows of {self.stride // 4} floats do not fit into {tuple(out.shape)}.")
        if self.direct and out.data_ptr() % 4096:
            raise ValueError(
                "O_DIRECT needs an `out` at a multiple of 4096 bytes; course.loading.loaders.aligned_buffers is."
            )
        ### BEGIN SOLUTION
        wanted = index.numpy()
        slots = wanted.argsort()  # row slots[k] of `out` is for the k-th of these rows in the file
        pages = np.unique(wanted[slots[:: self.page_rows]] // self.page_rows)
        whole = (pages[:, None] * self.page_rows + np.arange(self.page_rows)).ravel()
        if not np.array_equal(wanted[slots], whole[(0 <= whole) & (whole < self.rows)]):
            raise ValueError(f"the index is not all rows of some pages of {self.path}, each of them once.")
        views = self._rows_of(out)
        work = [(p, slots[k * self.page_rows : (k + 1) * self.page_rows]) for k, p in enumerate(pages.tolist())]
        *shares, mine = [work[t :: self.threads] for t in range(self.threads)]
        tasks = [self.pool.submit(self._read, share, views) for share in shares]
        self._read(mine, views)  # this thread reads too: one less to wake
        for task in tasks:
            task.result()
        return out[:n]

    def _read(self, work, views):
        """Read each (page, slots of its rows) of `work`, straight into `views[slots]`."""
        most = 1024  # buffers that one call takes
        for page, slots in work:
            for start in range(0, len(slots), most):
                buffers = views[slots[start : start + most]]
                found = os.preadv(self.file, buffers, 4096 + (page * self.page_rows + start) * self.stride)
                if found < len(buffers) * self.stride:
                    raise EOFError(f"{self.path}: page {page} is cut off, {found} bytes came back.")
        ### END SOLUTION


# %% test="PageReader-visible" points=1
check.PageReader(PageReader)

# %% test="PageReader-hidden" points=7
### BEGIN HIDDEN TESTS
check.PageReader(PageReader, seed=733)
### END HIDDEN TESTS

# %% [markdown]
# ## Order against learning
#
# **On a sorted file, what an order saves on the disk it may lose in the loss; 1 + B / W tells from which W on it does
# not.** (The rule comes from the section "How random are the batches?": on a sorted file, the mean of a batch of B
# rows from windows of W pages varies about 1 + B / W times as much as that of a random batch.)
#
# A regression of 31 columns whose rows are sorted by y: each row takes 128 bytes, so a random order fetches a memory
# page of 4,096 for each. The file is read through your `PageReader` in every order. Before each batch it is dropped
# from the page cache, as if memory had room for nothing but the pages in use. `batches_from_pages` (given) reads a
# page when its first row is due and drops it after its last one; a random order uses pages of one row. *Times the
# file* says how many bytes come from the disk per epoch, over those of the file; the seconds are those of both epochs.
#
# The inputs are standard normal, so the loss above that of the true weights is known exactly: |w - w₀|² + (b - b₀)².
#
# **Predict**: how many times as long as in windows of B pages does a random epoch take? And how many times the
# excess loss of the random order do windows of B pages leave?

# %%
predicted_seconds = None  # random over windows
predicted_excess = None  # windows over random

# %% tags=["experiment"]
floats, learning_rate = 32, 0.1  # train() takes the same by default
draw = torch.Generator().manual_seed(0)
x, true_w = torch.randn(rows, floats - 1, generator=draw), torch.randn(floats - 1, generator=draw) / (floats - 1) ** 0.5
y = x @ true_w + torch.randn(rows, generator=draw)
sorted_table = torch.cat([x, y[:, None]], 1)[y.argsort()]
folder = tempfile.TemporaryDirectory()
sorted_file = Path(folder.name) / "sorted"
with open(sorted_file, "wb") as file:
    file.write(bytes(4096)), file.write(sorted_table.numpy())
cold = drop_cached(sorted_file)
print(f"{sorted_table.nbytes / 1e6:.1f} MB, {rows // page_rows} pages of {4 * floats * page_rows:,} bytes;",
      "read from the disk" if cold else "this system cannot drop a file: read from the page cache")  # fmt: skip


def train(epochs_of_batches, learning_rate=0.1):
    """(batches, seconds, excess losses, their share across), lists of 64 values per epoch: SGD on rows [x, y].

    Across is what the weights are off by at right angles to the true ones: neither along these nor in the intercept.
    """
    w, b, seconds, trace = torch.zeros(floats - 1), torch.zeros(()), 0.0, ([], [], [], [])
    start = time.perf_counter()
    for number, rows_now in enumerate((each for batches in epochs_of_batches for each in batches), 1):
        x, y = rows_now[:, :-1], rows_now[:, -1]
        residual = x @ w + b - y
        w -= learning_rate / len(y) * (residual @ x)
        b -= learning_rate * residual.mean()
        if number % (rows // batch // 64) == 0:
            seconds = time.perf_counter() - start
            off = w - true_w
            across = off.square().sum() - (off @ true_w) ** 2 / true_w.square().sum()
            for values, value in zip(trace, (number, seconds, off.square().sum() + b**2, across), strict=True):
                values.append(float(value))
    return trace


def from_disk(order, page_rows):
    """Batches of the sorted file, which is dropped from the page cache before each."""
    with PageReader_now(sorted_file, rows, 4 * floats, page_rows) as reader, open(sorted_file) as file:
        for rows_now in batches_from_pages(order, page_rows, batch, reader.fill, floats):
            if cold:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            yield rows_now


PageReader_now = course.solved(check.PageReader)
few = [n for n in (1, 4, 16, 64) if n in held]
of_epoch = {"sequential": lambda epoch: in_file_order}
of_epoch |= {f"windows, W = {n}": lambda epoch, n=n: quasi_random_order_now(rows, page_rows, n, 0, epoch) for n in few}
of_epoch[f"sliding buffer of {batch}"] = lambda epoch: sliding_order_now(rows, page_rows, batch, 0, epoch)
of_epoch["random"] = lambda epoch: random_order_now(rows, 0, epoch)
curves, last_half, brought = {}, {}, {}
print(f"{'':24} {'seconds':>8} {'times the file':>15} {'kB held':>8}  excess loss in the second epoch")
for name, order in of_epoch.items():
    size = 1 if name == "random" else page_rows
    orders = [order(epoch) for epoch in range(2)]
    before = reads()
    curves[name] = train(from_disk(each, size) for each in orders)[:3]
    brought[name] = reads().since(before).disk_bytes / len(orders) / sorted_table.nbytes  # per epoch
    losses = curves[name][2]
    last_half[name] = np.mean(losses[len(losses) // 2 :])
    kept = pages_in_use(orders[0], size, batch)[2] * size * floats * 4
    print(f"{name:24} {curves[name][1][-1]:8.2f} {brought[name]:15.1f} {kept / 1e3:8.0f}  {last_half[name]:.4f}")
plots.order_against_learning(curves, batch)

# %% tags=["experiment"]
middle = f"windows, W = {batch}"
slower = curves["random"][1][-1] / curves[middle][1][-1]
excess = last_half[middle] / last_half["random"]
print(f"a random epoch takes {slower:.1f} times as long as one of windows" + reveal(predicted_seconds))
print(f"windows of {batch} pages leave {excess:.2f} times the excess loss of the random order"
      + reveal(predicted_excess))  # fmt: skip
lost = last_half["sequential"] / last_half["random"]
course.claim("in the order of the file the excess loss is at least ten times that of a random order", lost > 10,
             f"{lost:.0f} times")  # fmt: skip
course.claim("read from the disk, windows of B pages are at least three times as fast as a random order", slower > 3,
             f"{slower:.1f} times",
             otherwise="The file was read from the page cache, or from a disk that answers small requests as fast as "
                       "large ones.")  # fmt: skip
course.claim("per epoch, a random order reads at least ten times the bytes of the file from the disk, windows of B "
             "pages less than three times", brought["random"] > 10 and brought[middle] < 3,
             f"{brought['random']:.0f} and {brought[middle]:.1f} times",
             otherwise="The system does not count the bytes read.")  # fmt: skip
course.claim("windows of B pages leave less than 2.5 times the excess loss of a random order", excess < 2.5,
             f"{excess:.2f} times")  # fmt: skip
slid = last_half[f"sliding buffer of {batch}"] / last_half[middle]
course.claim("the sliding buffer leaves the excess loss of windows of as many pages, within a half",
             1 / 1.5 < slid < 1.5,
             f"{slid:.2f} times their excess loss")  # fmt: skip
folder.cleanup()

# %% [markdown]
# On the left, rows decide: sequential reading swings with the file and ends wherever the last rows pull it; the curves
# of windows lie lower the wider they are. On the right, seconds decide: when the others have finished two epochs, the
# random order has read a small part of its rows. (This regression is learned from few rows, so its loss is low by then
# all the same; training that needs epochs pays in full.) The bytes say why: for each row of 128 bytes a memory page of
# 4,096 comes from the disk, 32 times the file. Nor need reading in the order of the file be the fastest: like windows
# of one page it asks for one page at a time, so that one of the two threads has nothing to do; and what the system
# reads ahead is, with so little room, gone before its turn comes.
#
# Does 1 + B / W predict from which W on an order is good enough? The rule counts a single batch. SGD averages over
# about 1 / learning rate batches, and the batches of one window are wrong in the same direction. So train in memory,
# with two learning rates.


# %% tags=["experiment"]
def excess_losses(order, learning_rate):
    """(mean excess loss, its part across) in the second of two epochs in memory."""
    *_, losses, across = train((sorted_table[order(epoch)].split(batch) for epoch in range(2)), learning_rate)
    return np.mean(losses[len(losses) // 2 :]), np.mean(across[len(across) // 2 :])


tried = sorted({*few, max(held)})  # windows on both sides of B pages
ratios, shrinks, rates = {}, {}, (learning_rate, learning_rate / 5)
at_random = {rate: excess_losses(of_epoch["random"], rate) for rate in rates}
for name, scheme in schemes.items():
    left = {rate: [excess_losses(lambda epoch, n=n, scheme=scheme: scheme(rows, page_rows, n, 0, epoch), rate)
                   for n in tried] for rate in rates}  # fmt: skip
    for rate in rates:
        ratios[f"{name}, learning rate {rate:g}"] = [excess / at_random[rate][0] for excess, _ in left[rate]]
    bias_of = {rate: [excess - at_random[rate][0] for excess, _ in left[rate]] for rate in rates}
    shrinks[name] = [before / after for before, after in zip(*bias_of.values(), strict=True)]
    if name == "windows":
        others = left[learning_rate][0][1] / at_random[learning_rate][1]
fast = ratios[f"windows, learning rate {learning_rate:g}"]
knee = [(ratio, 1 + batch / n) for n, ratio in zip(tried, fast, strict=True) if 4 * n >= batch]
wrong = max(max(ratio / rule, rule / ratio) for ratio, rule in knee)
course.claim("from W = B / 4 on, 1 + B / W predicts the excess loss relative to a random order within a factor of "
             "2.5",
             wrong < 2.5, f"at most a factor of {wrong:.1f}")  # fmt: skip
course.claim("narrow windows, W = 1, cost less than half of what 1 + B / W says", fast[0] < (1 + batch) / 2,
             f"{fast[0]:.1f} instead of {1 + batch}")  # fmt: skip
course.claim("in 30 of 32 directions narrow windows cost nothing: their excess is the random order's, within a "
             "quarter",
             0.75 < others < 1.25, f"{others:.2f} of it")  # fmt: skip
narrow, wide = shrinks["windows"][0], shrinks["windows"][tried.index(batch)]
course.claim("a fifth of the learning rate shrinks the bias of windows of one page at least twice as much as that of B "
             "pages", narrow > 2 * wide > 0, f"{narrow:.1f} and {wide:.1f} times",
             otherwise="The windows are a large part of the file.")  # fmt: skip
plots.knee(tried, ratios, batch)

# %% [markdown]
# So 1 + B / W says where the knee is, not how high the curve stands, for two reasons. The pages of a file sorted by y
# are alike in y only. Their bias pulls at the intercept and along the true weights, two of 32 directions, while the
# noise of single rows acts on all: so narrow windows cost less than the rule says. And SGD averages. A window lasts for
# W times as many batches as a page has; if these are fewer than 1 / learning rate, w averages over several windows, and
# a smaller learning rate shrinks their bias as it shrinks the noise. A wide window outlasts this memory: its bias (the
# excess above the random order's) stays while the noise goes, so in the figure it weighs more. **Choose W of a few B,
# or shuffle the file once.**

# %% [markdown]
# ## FFCV, piece by piece
#
# **What you built does the work of FFCV for rows of numbers; FFCV also does images.**
#
# | FFCV | here |
# |---|---|
# | `DatasetWriter(path, fields)`: a file with an index, written by processes | `write_records`: equal rows, no index |
# | `fields`, such as `NDArrayField` or `RGBImageField`: how a sample is stored | one float32 row |
# | `pipelines`: a decoder and transforms per field, compiled by Numba | a gather, or read calls into rows |
# | `order`: `SEQUENTIAL`, `RANDOM`, `QUASI_RANDOM` (the sliding buffer) | the orders of this part |
# | `os_cache`: the page cache, or pages of 8 MiB that FFCV reads itself | a mapped file, or `PageReader` |
# | `batches_ahead`; `drop_last=True` drops the last batch by default | reading ahead: part 3; every row is read |
#
# `course bench loading epochs`, with FFCV 1.0.2 in the same process on two cores (docs/results.md), measured for files
# of 0.8 and 1.6 GB in the page cache: a gather in random order was 4.1 and 3.0 times as fast as FFCV's `RANDOM`, page
# reads in windows 10.6 and 3.6 times as fast as its `QUASI_RANDOM`; ours held 36 to 61 MB beside the file, FFCV 619 to
# 2,231 MB. It was measured without a GPU, and not for images, for which FFCV was made.

# %% [markdown]
# ## What to take home
#
# - A random order costs a disk one request per row; pages held in memory buy most of it back.
# - Count those pages in batch sizes: 1 + B / W is the variance of a batch mean on a sorted file, and the loss has its
#   knee near W = B, with windows as with a sliding buffer.
# - A file that is shuffled once, when it is written, needs no window.
# - `preadv` reads whole pages into shuffled rows. Part 3 races it against mapped files, cold and warm.
