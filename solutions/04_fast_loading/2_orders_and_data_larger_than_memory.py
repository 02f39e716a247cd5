# %% [markdown]
# # Fast loading, part 2: Orders, and data larger than memory
#
# **Which shuffles keep batches nearly random and disk reads large?**
#
# SGD wants rows in random order, a disk wants long reads. This part writes both extremes and the order of FFCV
# between them, which shuffles large pages and then the rows within a window of pages. One number says how far its
# batches are from random ones, and how large a window must be. Then it reads such windows from a file that may be
# larger than the memory: page by page, straight into the rows of a batch, with several threads and nothing mapped.
#
# **You will be able to**
#
# - share a random order among ranks, the same in every run and new in every epoch
# - shuffle in pages and windows, and say what the window costs and buys
# - read pages past the mapping, into the rows of a buffer
# - predict what happens when the memory runs out
#
# **Minutes** 65 core · 245 in all
#
# **Needs** part 1 (its answers are taken over if you solved it)

# %% [markdown]
# How it works: write down what you expect (a cell with `None`), solve the exercise, run its check, look at the
# measurement. Later cells use your answer if its check passed (`x_now` is your `x`) and fall back on the reference
# solution if your copy of the course includes it. Run the cells from the top. Leave the empty cell after each check
# alone: your instructor's tests go there.

# %% locked="setup"
import math
import os
import weakref
from concurrent.futures import ThreadPoolExecutor, wait
from types import SimpleNamespace

import numpy as np
import torch

import course
from course.checks import fast_loading as check
from course.datasets import regression
from course.plots import fast_loading as plots
from course.predictions import reveal
from course.record_files import RecordFile

print(course.machine())
sizes = course.sizes("04_fast_loading")

# %% [markdown]
# ## Orders: sequential, random, and almost random
#
# **A random order is the best for SGD and the worst for a disk; shuffling large pages, and then rows within a
# window of pages, gives nearly both, and costs memory.**
#
# SGD takes the gradient of a batch for that of all data. That is right on average if the batch is a random draw.
# Rows of a file mostly are not in random order: they were written day by day, person by person, class by class, so
# that neighbours are alike. Read *sequentially*, such a file gives batches that each know one day or one class.
# Each step then pulls the weights towards what just came by, away from what came before, and the last rows of an
# epoch have the last word.
#
# A *random* order, a new one in every epoch, has none of that. But every row now comes from another place. In
# memory that is a cache line that nobody fetched ahead; on a disk it is a request of its own, and a disk fetches
# far more than the row for it. If the file is larger than memory, the operating system cannot keep what it fetched
# until the neighbours are asked for.
#
# Between the two lies the *quasi-random* order of FFCV. A page, in this unit, is `page_rows` consecutive rows of
# the file: page p holds the rows from p · `page_rows` up to, and without, min((p + 1) · `page_rows`, rows). (The
# 4096 bytes of the operating system we call memory pages.) The pages are shuffled; the next `window_pages` of them,
# the *window*, are read whole into memory; and their rows are shuffled together. The disk sees long reads only. A
# batch is drawn from `window_pages` places of the file instead of from one.
#
# What does the size of the window buy? Take the worst file, in which the rows of a page are all alike, and many
# pages of many rows. If a batch of B rows is a page or a part of it, it is one single draw in disguise. If it is
# drawn from a window of W pages, the mean of a batch varies for two reasons: which rows of the window came, like s²
# / B, and which pages are in the window, like s² / W. Together this is 1 + B / W times what a random batch has. So
# count the window in batch sizes: with as many pages as a batch has rows the variance of a batch mean is twice that
# of a random batch, with eight times as many it is an eighth above it. The price is memory: W pages of `page_rows`
# rows must lie there at once, twice that if the next window is read meanwhile. FFCV takes W = 2 B with pages of 8
# MB: 32 GB for batches of 2048. Small pages make the same window cheap; they must only be large enough to keep the
# disk busy.

# %% [markdown]
# ### Exercise 1 · A random order
#
# Write the order that all others are measured by: the row numbers that one rank reads in one epoch.
#
# **Points** 3 · **Core** · **Difficulty** ●○○ · **Minutes** 10 · **Lines** 2
#
# **Convention** Rows, ranks and epochs count from 0. Seed and epoch fix a random permutation of all rows, the same
# on every rank and at every call. Rank r takes the places r, r + `world_size`, r + 2 `world_size` and so on of it.
# Nothing is repeated and nothing left out: ranks may differ by one row, and a rank may have none.
# (`DistributedSampler` makes them equal, as training in step needs it; here a row is read once.) Seed and epoch are
# whole numbers from 0 to a million; any two pairs (seed, epoch) give orders that have nothing to do with each
# other, so (0, 1) and (1, 0) too. The global random numbers of torch, NumPy and Python are neither used nor
# changed. The result is on the CPU.
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
# A generator of your own leaves the global one alone: `torch.Generator` or `np.random.default_rng`. The first one
# keeps 32 bits of its seed on the CPU, too few for all pairs; the second can be seeded with several whole numbers,
# which it mixes well.
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
# ### Exercise 2 · A quasi-random order
#
# Write the order that reads whole pages, and still mixes them: pages shuffled, cut into windows, rows shuffled
# within a window.
#
# **Points** 6 · **Core** · **Difficulty** ●●○ · **Minutes** 45 · **Lines** 10
#
# **Convention** Pages are those of the text above; only the last page of the file may be short. Seed and epoch (and
# the number of pages) fix a random permutation of all pages, the short one among them; `window_pages` and the ranks
# have no part in it. Rank r takes the pages at the places r, r + `world_size`, r + 2 `world_size` and so on. If the
# short page is among them, it is moved behind them, so that all windows but the last are full; the others keep
# their order. The pages of the rank are then cut into windows of `window_pages`, of which the last may have fewer.
# The rows of a window, also of one that is not full, stand together, and in random order: across its pages, and in
# another way in each window of each rank, epoch and seed. A rank without pages has an empty order. Seed, epoch and
# the global random numbers: as in `random_order`. The check counts executed lines, not seconds: a Python loop over
# windows or pages is welcome, one over rows is not.
#
# **Source** Leclerc et al. 2023, "FFCV: Accelerating Training by Removing Data Bottlenecks", CVPR (quasi-random
# sampling); the same idea, with a theory of it: Xu et al. 2022, "In-Database Machine Learning with CorgiPile",
# SIGMOD.
#
# <details><summary>Hint 1</summary>
#
# How many pages has a file of 10 rows, with 4 rows a page? Which rows would its last page have if it were full, and
# how could you drop just those?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# The pages of the rank are a slice of a permutation. `pages[:, None] * page_rows + np.arange(page_rows)` are the
# rows of all of them, a page a row of the table; flattened, a window is a slice of it. Only the page number `rows
# // page_rows` can be short, and it exists only if it is.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# With `rng = np.random.default_rng((seed, epoch))`: draw `rng.permutation(math.ceil(rows / page_rows))`, take every
# `world_size`-th, put the short page behind the others (`np.concatenate` of two selections), make the table of
# rows, flatten it, keep those below `rows`. A slice of an array is a view, so `rng.shuffle(order[start : start +
# n])`, with n the rows of a window, shuffles it in place. For that each rank takes a generator of its own:
# `rng.spawn(world_size)[rank]`.
#
# </details>


# %% solution="quasi_random_order"
def quasi_random_order(rows, page_rows, window_pages, seed, epoch, rank=0, world_size=1):
    """The row numbers that one rank reads in one epoch, random within windows of pages: an int64 tensor (n,), CPU.

    Args:
        rows: number of rows of the file, 1 or more.
        page_rows: rows of a page, 1 or more, also more than rows.
        window_pages: pages of a window, 1 or more, also more than there are.
        seed: int from 0 to a million, the same on all ranks.
        epoch: int from 0 to a million; each has an order of its own.
        rank: which rank this is, from 0 to world_size - 1.
        world_size: number of ranks, 1 or more, also more than there are pages.

    The ranks share one permutation of all pages; each row is read by one of them, once.
    """
    ### BEGIN SOLUTION
    rng = np.random.default_rng((seed, epoch))
    pages = rng.permutation(math.ceil(rows / page_rows))[rank::world_size]
    short = pages == rows // page_rows  # nowhere if all pages are full
    pages = np.concatenate([pages[~short], pages[short]])
    order = (pages[:, None] * page_rows + np.arange(page_rows)).ravel()
    order = order[order < rows]
    window = window_pages * page_rows  # in rows
    rng = rng.spawn(world_size)[rank]  # from here on each rank goes its own way
    for start in range(0, len(order), window):
        rng.shuffle(order[start : start + window])  # in place: a slice is a view
    return torch.from_numpy(order)
    ### END SOLUTION


# %% test="quasi_random_order-visible" points=3
check.quasi_random_order(quasi_random_order)

# %% test="quasi_random_order-hidden" points=3
### BEGIN HIDDEN TESTS
check.quasi_random_order(quasi_random_order, seed=947)
### END HIDDEN TESTS

# %% [markdown]
# A small file of 256 rows in pages of 16, windows of 4 pages, batches of 32: each square is a row, coloured by the
# page that it lies in.

# %% tags=["experiment"]
random_order_now = course.solved(check.random_order)
quasi_random_order_now = course.solved(check.quasi_random_order)
plots.windows(quasi_random_order_now(256, 16, 4, seed=0, epoch=0), 16, 32)

# %% [markdown]
# Two batches share a window and its four colours; no page is needed again later. In a random order every batch would
# hold nearly every colour.

# %% [markdown]
# ### Exercise 3 · How random are the batches?
#
# Say with one number how far the batches of an order are from random ones.
#
# **Points** 4 · **Extra** · **Difficulty** ●●○ · **Minutes** 25 · **Lines** 9
#
# **Convention** Take one value of each row. `order[:batch]` are the rows of the first batch, the next `batch` those
# of the second; a short last batch does not count. The answer is V / V₀. V is the variance of the batch means
# around m, the mean of all N values: the mean of (batch mean - m)² over the batches. V₀ is what V would be on
# average if the batches were drawn at random, without replacement: s² / `batch` · (N - `batch`) / (N - 1), with s²
# the mean of (value - m)² over all N values. The values become float64 first, and m is subtracted before anything
# is squared: values may be as large as Unix times. A ValueError is raised if there is not one full batch, if a
# batch holds all N rows (then V and V₀ are 0), and if all values are the same (compare the values: their variance
# may be a hair above 0, by rounding).
#
# 1 means as good as random, 0 that all batches are alike. If the values are sorted along the file and pages go
# whole into batches, it is near `page_rows`. In statistics it is the *design effect*: a sample drawn in clumps is
# worth as much as a random one that is smaller by this factor.
#
# **Source** Kish 1965, "Survey Sampling" (design effect); Cochran 1977, "Sampling Techniques", chapter 2 (the
# variance of the mean of a random draw).
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
# belong to full batches? The rest is cut off before `view`.
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
# How large must a window be? The worst case is a file whose values are sorted: then neighbours are alike. Predict the
# bias for sorted values if a window holds just as many rows as a batch, so that a batch consists of whole pages: how
# many times the variance of random batches?

# %%
predicted_bias = None

# %% tags=["experiment"]
batch_bias_now = course.solved(check.batch_bias)
data = regression.load(sizes.rows, sizes.columns)
answers = SimpleNamespace(write_records=course.solved(check.write_records), Records=course.solved(check.Records))
file = RecordFile(answers, data, sizes.batch_size, sizes.page, sizes.window)  # of part 1; written if it is not there
stride, page_rows = file.stride, file.page_rows
bias_rows = sizes.bias_rows // sizes.batch_size * sizes.batch_size
smooth = torch.sin(torch.arange(bias_rows) / bias_rows * 40)  # drifts along the file, as a log of measurements does
shuffled = torch.randn(bias_rows)
kinds = {"values sorted": torch.arange(bias_rows), "values that drift": smooth, "values in no order": shuffled}
window_pages = [n for n in (1, 4, 16, 64, 256, 1024) if n * page_rows <= bias_rows]
bias_curves = {}
for name, values in kinds.items():
    biases = []
    for pages in window_pages:
        orders = [quasi_random_order_now(bias_rows, page_rows, pages, 0, epoch) for epoch in range(5)]
        biases.append(np.mean([batch_bias_now(values, order, sizes.batch_size) for order in orders]))
    bias_curves[name] = ([pages * page_rows * stride for pages in window_pages], biases)
sequential = {name: batch_bias_now(values, torch.arange(bias_rows), sizes.batch_size) for name, values in kinds.items()}
print("in the order of the file:", ", ".join(f"{name} {bias:.1f}" for name, bias in sequential.items()))
batch_pages = sizes.batch_size // page_rows
at_batch = batch_bias_now(
    kinds["values sorted"], quasi_random_order_now(bias_rows, page_rows, batch_pages, 0, 0), sizes.batch_size
)
print(f"sorted values, a window of as many rows as a batch: {at_batch:.1f}" + reveal(predicted_bias))
plots.bias(bias_curves, chosen=file.window_rows * stride)

# %% [markdown]
# Look at the sorted values first. A batch made of whole pages is a *cluster sample*: it holds `batch / page_rows`
# independent draws instead of `batch`, so its mean scatters about `page_rows` times as much. A window of several
# batches spreads each page over them, and the bias falls. Where the file is in no order, pages cost nothing:
# **shuffle the rows once when the file is written**, and a small window is as good as a random order.

# %% [markdown]
# ## Data larger than memory
#
# **What does not fit is read window by window, each page once, and nothing is mapped.**
#
# When `table` is a mapped file, its memory pages come from the disk at the first touch, by page faults.
# That is the shortest way as long as the file fits into RAM. When it does not, mapping is a poor way to read: the
# system guesses from the touched addresses what comes next, each guess that fails is a page fault that waits for
# the disk, and the thread that touched the address can do nothing else meanwhile. It is better to say what is
# wanted. One *read call* names a place in the file and a length; a page of 64 rows is one such call, and while one
# thread waits for its page, another one reads the next. That is what the quasi-random order is for: all rows of a
# page are wanted at about the same time.
#
# A read call copies from the system's page cache into memory of yours. With a buffer of one page, from which the
# rows are then copied to their places in the batch, every byte would be copied twice. But a call can take a *list*
# of buffers: `os.preadv(file, buffers, offset)` reads consecutive bytes of the file and fills one buffer after the
# other. If the buffers are the rows of `out` in shuffled order, reading shuffles. The call lets go of Python's
# global lock, so threads read at the same time. (At most 1,024 buffers a call, on Linux and macOS.)
#
# The page cache itself is a detour, too, for a file that is much larger than RAM: what was read stays in it until
# it is thrown out unused. A file opened with the flag `O_DIRECT` is read past the cache, by the disk straight into
# your buffer. Disks work in blocks, so places in the file, lengths and addresses in memory must then be multiples
# of the block, at most 4096 bytes: hence the stride of a file with long rows, and
# `course.loaders.aligned_buffers(count, rows, columns)`, which makes buffers that begin on the border of a memory
# page.

# %% [markdown]
# ### Exercise 4 · Read pages
#
# Write the reader for a file that is larger than the memory. It is given the rows of one window of the quasi-random
# order, which are all rows of some pages, shuffled, and a buffer for them; it reads each page once.
#
# **Points** 8 · **Extra** · **Difficulty** ●●● · **Minutes** 110 · **Lines** 44
#
# **Convention** The rows begin at byte 4096 of the file, one every `stride` bytes; page p holds rows p * page_rows
# up to min((p + 1) * page_rows, rows). The constructor opens the file and reads nothing; `rows` and `stride` are
# given, so it has no need of the header.
#
# *What is read.* `fill` reads the pages of its index and nothing else, each once, with at most two read calls for a
# page of up to 1,024 rows, into memory of at most two pages a thread beside `out`. The file is not mapped
# (`np.memmap`), and file objects of Python are unbuffered, because others read more than they are asked for. With
# `threads=2` two pages are read at once. The threads live as long as the reader: there are never more than
# `threads`, some of them are alive between two calls, none after `close()`. A reader that nobody holds any more has
# closed its file and ended its threads, too: a loader may keep nothing but its `fill`. A loader passes the same few
# buffers again and again, in turn: what is costly to make for an `out` may be kept until `close()`, and is of use
# for that one only.
#
# *Errors.* If a page comes back shorter than it should be, because the file was cut off, `fill` raises an OSError
# or EOFError whose message holds the path and the number of the page; when it raises, no thread writes into `out`
# any more. An index that is not all rows of some pages, each once, raises ValueError, because the rest of a page
# would have to be read again later; so does a row that the file has not, an `out` with too few rows or rows of
# another length, and a `fill` after `close()`. A second `close()` does nothing.
#
# *Direct.* `direct=True` opens the file with `os.O_DIRECT`. The constructor raises ValueError if `stride` is no
# multiple of 4096, ValueError or OSError if `os` has no name O_DIRECT (as on macOS) or the file system refuses, and
# leaves no file open; `fill` raises ValueError if `out` does not begin at a multiple of 4096 bytes
# (`out.data_ptr()`).
#
# **Source** Python's documentation of `os.preadv`; the Linux manual, readv(2) and open(2), "O_DIRECT"; the pages of
# FFCV's quasi-random order, Leclerc et al. 2023, arXiv:2306.12517.
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
# compare. The buffers: `memory = memoryview(out.numpy()).cast("B")` are the bytes of `out`, a slice of it is a row.
# Cutting all of them takes as long as reading: do it once for an `out`, and keep the list in a dict.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# `ThreadPoolExecutor(threads)` in the constructor. Thread t gets every `threads`-th pair (page, slots), and for
# each pair calls `os.preadv(self.file, [views[s] for s in part], 4096 + first * stride)`, where `part` are at most
# 1024 of the slots, and `first` is the row at which they begin. It returns the number of bytes: compare it. `for
# task in wait(tasks).done: task.result()` raises what a thread raised, after all have ended: before that, they
# write into `out`. `weakref.finalize(self, os.close, self.file)` is a function that closes the file when it is
# called or when nobody holds the reader any more, whichever is first, and only once.
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
        ### BEGIN SOLUTION
        if direct and stride % 4096:
            raise ValueError(f"O_DIRECT reads blocks of 4096 bytes, and rows of {stride} bytes are not whole blocks.")
        if direct and not hasattr(os, "O_DIRECT"):
            raise ValueError("this system has no O_DIRECT; read with direct=False.")
        self.path, self.rows, self.stride, self.page_rows = path, rows, stride, page_rows
        self.threads, self.direct, self.views = threads, direct, {}
        self.file = os.open(path, os.O_RDONLY | os.O_DIRECT if direct else os.O_RDONLY)
        self.release = weakref.finalize(self, os.close, self.file)  # at the latest when nobody holds the reader
        self.pool = ThreadPoolExecutor(threads)  # which ends its threads then
        ### END SOLUTION

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()

    def close(self):
        """None; threads have ended, the file is closed, and nothing keeps an `out`.  May be called again."""
        ### BEGIN SOLUTION
        self.pool.shutdown()
        self.release()
        self.views.clear()
        ### END SOLUTION

    def fill(self, index, out):
        """The first n rows of `out`, a view, which now hold the rows `index` of the file.

        Args:
            index: int64 tensor (n,) on the CPU, all rows of some pages, each once, in any order; n may be 0.
            out: contiguous float32 tensor (B, stride // 4) on the CPU, B at least n and at least 1; with `direct` it
                begins at a multiple of 4096 bytes.

        Raises: ValueError if one of these does not hold, or the reader is closed; OSError or EOFError, with the path
            and the page, if the file is shorter than it should be.
        """
        ### BEGIN SOLUTION
        n = len(index)
        if not self.release.alive:
            raise ValueError(f"the reader of {self.path} is closed; make another one.")
        if len(out) < n or out.shape[1:] != (self.stride // 4,):
            raise ValueError(f"{n} rows of {self.stride // 4} floats do not fit into {tuple(out.shape)}.")
        if self.direct and out.data_ptr() % 4096:
            raise ValueError("O_DIRECT needs an `out` at a multiple of 4096 bytes; course.loaders.aligned_buffers is.")
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
        try:
            self._read(mine, views)  # this thread reads too: one less to wake
        finally:
            wait(tasks)  # after an error too, so that nobody writes into `out` any more
        for task in tasks:
            task.result()
        return out[:n]

    def _rows_of(self, out):
        """An array of memoryviews, the rows of `out`; kept, because cutting them takes as long as reading."""
        key = out.data_ptr(), len(out)
        if key not in self.views:
            memory = memoryview(out.numpy()).cast("B")
            rows = (memory[i : i + self.stride] for i in range(0, len(memory), self.stride))
            self.views[key] = np.fromiter(rows, object)
        return self.views[key]

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
# The race of part 3 runs on this reader.

# %% [markdown]
# ## When memory runs out
#
# **What is held by your process is its problem when memory runs out; what is held by the page cache is not.**
#
# A file that is read or mapped passes through the *page cache*: memory of the system in which it keeps memory pages
# of files for whoever asks next. They can be dropped at any time, since the file has them too, and are dropped,
# roughly the longest unused first, when memory is needed. So a loader on top of the cache has no limit at which it
# fails; it has one above which the disk is read again. The memory of a tensor has no file behind it. It can be
# moved to the swap space, if there is one, or the process must end. A single piece that is larger than all memory is
# refused at once; smaller pieces are promised, and the promise breaks when they are written.

# %% [markdown]
# ### Exercise 5 · True or false
#
# Judge each statement. All are about Linux with its default settings and without swap space.
#
# - **A** To allocate memory can succeed although it is not there. When the memory pages are written and none is
#   left, the kernel ends a process with SIGKILL, which no `except` sees.
# - **B** A loader that maps a file larger than the memory raises a MemoryError once the memory is full.
# - **C** With `os_cache=True` FFCV maps its file and leaves the data to the page cache: if the memory is too small
#   for it, training goes on without an error, but slower.
# - **D** The memory pages of a mapped file that were read stay in the page cache when the process has ended; and
#   processes that map the same file share them.
# - **E** A file twice as large as the free memory is mapped and read in random order. The first epoch brings it
#   into the cache, so the second reads hardly anything from the disk.
# - **F** If the file fits into memory, bypassing the cache (`O_DIRECT`) makes the second epoch faster, since
#   the system has less to do.
# - **G** With the quasi-random order of this unit each page is read once an epoch, as a whole, and the rows that
#   must be in memory at a time are those of the windows in use, however large the file is.
# - **H** In the quasi-random order every order of the rows is possible, as in a random permutation.
# - **I** Pinned memory makes reading from the disk faster.
# - **J** When `tensor.to("cuda", non_blocking=True)` has returned, the source may be refilled, also if it is
#   pinned.
# - **K** A read through the page cache copies the bytes once more, from the cache to your buffer. `O_DIRECT` leaves
#   that copy out, and asks for a buffer, an offset and a length at multiples of a block's size.
# - **L** An iteration of `ridge_by_cg` reads the data once, as an epoch of SGD does, and needs no learning rate.
#
# **Points** 3 · **Extra** · **Difficulty** ●●○ · **Minutes** 25 · **Lines** 1
#
# **Convention** `loading_facts()` takes nothing and returns a dictionary from the letters `"A"` to `"L"` to `True`
# or `False`. A statement is true only if all of it is. The check names the first verdict that does not agree with
# ours.
#
# **Source** Linux manual pages `open(2)` (O_DIRECT), `mmap(2)` and `proc(5)` (overcommit_memory); FFCV's
# performance guide (`os_cache`, `QUASI_RANDOM`); "CUDA semantics" in the PyTorch documentation. (FFCV's guide to
# linear regression says of the first loader that it ends in a segmentation fault when memory runs out.)
#
# <details><summary>Hint 1</summary>
#
# For A to F: who owns the memory, and does a file hold the same bytes? For E, which memory pages are dropped when
# the last part of the file is read, and how often is one of those asked for again?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# For H: can two rows of one page be the first and the last of an epoch? For J: what does `wait()` of a copy wait
# for?
#
# </details>


# %% solution="loading_facts"
def loading_facts():
    """The verdict on each statement of the text above: a dictionary from the letters "A" to "L" to True or False."""
    ### BEGIN SOLUTION
    return {letter: letter in "ACDGKL" for letter in "ABCDEFGHIJKL"}
    ### END SOLUTION


# %% test="loading_facts-visible" points=1
check.loading_facts(loading_facts)

# %% test="loading_facts-hidden" points=2
### BEGIN HIDDEN TESTS
check.loading_facts(loading_facts, seed=12)
### END HIDDEN TESTS

# %% [markdown]
# ### Question · When the memory runs out
#
# **Points** 4, by hand
#
# The data are 40 GB, the machine has 32 GB of memory and no swap space, and reads 2 GB/s from its disk in large
# pieces (of small ones you know nothing: give bounds). What happens in the first epoch, and what in the second:
# with a `TensorDataset` (X copied into one tensor); with a mapped file read in random order; with the quasi-random
# order and the cache bypassed? Which of your answers are you least sure of, and what would you measure to settle
# it? About fifteen lines.

# %% [markdown] answer="when_ram_runs_out" points=4
# <!-- BEGIN SOLUTION -->
# *TensorDataset.* There is no first epoch. The tensor must be in memory as a whole, and has no file behind it.
# Asked for in one piece of 40 GB, it is refused at once, since that is more than all memory there is: an error that
# Python can show. Made in pieces, or next to a copy (`torch.tensor` of an array copies), each piece is promised,
# and the kernel's OOM killer ends a process with SIGKILL while the memory pages are written, probably this one. In
# a container with a limit the same happens at the limit. With swap space it would go on, with most of its time
# spent on swapping. It is no segmentation fault.
#
# *Mapped, random order.* No error: memory pages of the file are dropped when others are needed. In the first epoch
# each memory page is read from the disk when it is first touched, in pieces of the size of a row, with a wait each,
# unless more than one thread asks; read-ahead brings neighbours that nobody wants yet. At its end the cache holds
# about 30 of the 40 GB. In the second epoch at best three rows of four are found there. It will be fewer: the
# memory pages that were not used for longest, which are dropped first, are those that this epoch has yet to ask
# for. (Simulated with strict LRU it is two of five.) So it is faster than the first, but at least 10 GB come from
# the disk, 5 s at full speed, and small random reads do not reach full speed. The third epoch is like the second. A
# row smaller than a memory page costs a whole one.
#
# *Quasi-random, bypassed.* Each page is read once an epoch, in one large read: 40 GB at 2 GB/s are 20 s, in the
# first epoch and in every later one, since nothing is kept. The memory is some windows, whatever the size of the
# file. The order is less random: rows of a page stay within a window.
#
# So the last is steady and the second has a chance to beat it from the second epoch on, if random reads are fast. I
# am least sure of that. I would measure, on a file larger than the memory (or in a cgroup with a small limit):
# seconds of epochs 1, 2 and 3 for both, the cache dropped before the first; bytes that came from the disk
# (`read_bytes` in `/proc/self/io`, or iostat), major page faults; and the disk's own speed for the same sizes of
# reads, as the bound.
#
# === BEGIN MARK SCHEME ===
# **1 point** TensorDataset: the data must be in memory as a whole and cannot be dropped, so no epoch is finished;
# refused allocation or OOM killer (SIGKILL), or swapping where there is swap. "Segmentation fault" or "just slower"
# without swap earns nothing.
#
# **1 point** mapped file: no error, memory pages are dropped; the second epoch finds a part of them (at most about
# three quarters) and reads the rest again. Half if only the absence of the error or only the slowness is explained.
#
# **1 point** quasi-random, bypassed: both epochs cost one sequential-like reading of the whole file, about 20 s
# from the numbers given, little memory; and its price, the order or the missing cache.
#
# **1 point** a measurement that could prove the learner wrong: what is compared, in which state of the cache, and
# at least one counter (bytes from the disk, major faults, resident memory) besides seconds.
#
# Take off 1 point for a number that is claimed as measured but was not.
# === END MARK SCHEME ===
# <!-- END SOLUTION -->

# %% [markdown]
# ## What to take home
#
# - A random order costs a disk one request per row; a window of pages costs memory instead.
# - What does not fit is read in pages and shuffled in windows. Shuffle the file once, and small windows are enough.
# - What your process holds is its problem when memory runs out; what the page cache holds is not.
