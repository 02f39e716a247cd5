# %% [markdown]
# # Fast loading, part 2: Orders, and data larger than memory
#
# **Which shuffles keep batches nearly random and disk reads large?**
#
# SGD learns best from rows in random order, and a disk is fastest in long reads. You write a random order and one that
# shuffles windows of pages. Then you measure how far their batches are from random ones, and what each order costs in
# seconds and in loss.
#
# **You will be able to**
#
# - make a random order that ranks share and that differs in every epoch
# - shuffle in windows of pages, and predict the cost by 1 + B / W
# - read whole pages of a file straight into shuffled rows
# - choose an order for a file that does not fit into memory
#
# **Minutes** 44 core · 90 in all
#
# **Needs** nothing; what you solved in part 1 is not used here

# %% [markdown]
# Write down what you expect (a cell with `None`), solve the exercise, run its check, look at the measurement. Later
# cells use your answer if its check passed: `random_order_now` is your `random_order`.

# %% locked="setup"
import itertools
import os
import tempfile
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch

import course
from course.checks import fast_loading as check
from course.learner.predictions import reveal
from course.loading.page_pool import batches_from_pages, pages_in_use
from course.measure.comparison import compare, ratio_interval
from course.measure.page_cache import drop_cached, reads
from course.plots import fast_loading as plots

print(course.machine())
sizes = course.sizes("04_fast_loading")
rows, page_rows, batch = sizes.sorted_rows, sizes.sorted_page_rows, sizes.sorted_batch  # of a file that is sorted
held = [n for n in (1, 2, 4, 8, 16, 32, 64, 128) if 2 * n * page_rows <= rows]
in_file_order = torch.arange(rows)

# %% [markdown]
# ## Which orders can a disk read in long runs?
#
# SGD uses the gradient of a batch in place of the gradient of all data, which is right on average if the batch is a
# random draw. Rows of a file are seldom in random order: they were written day by day or class by class. Read in the
# order of the file, each batch knows one day or one class.
#
# A *random* order avoids that, but each row then comes from another place of the file. From a disk that is one request
# per row, and the system reads at least a memory page of 4,096 bytes for it.
#
# ### Exercise 1 · A random order
#
# Write the order that all others are compared with: the row numbers that one rank reads in one epoch. Seed a generator
# of NumPy with both numbers, `np.random.default_rng((seed, epoch))`. With `seed + epoch` instead, as in FFCV's
# `RANDOM`, epoch 1 of seed 0 would have the order of epoch 0 of seed 1.
#
# ```python
# >>> whole = random_order(6, seed=0, epoch=3)
# >>> torch.equal(random_order(6, seed=0, epoch=3, rank=1, world_size=2), whole[1::2])
# True
# ```
#
# **Must**
# - permute all rows, in a way that depends on seed and epoch alone;
# - give rank r the places r, r + `world_size`, r + 2 `world_size` and so on;
# - give unrelated orders for any two pairs (seed, epoch).
#
# **Points** 3 · **Core** · **Difficulty** ●○○ · **Minutes** 10 · **Lines** 2
#
# **Source** NumPy documentation, "Parallel random number generation", section "Sequence of integer seeds".
#
# <details><summary>Hint 1</summary>
#
# What must the ranks have in common, so that no row is drawn by two of them?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `np.random.default_rng((seed, epoch)).permutation(rows)` is the order of all ranks, an array of int64.
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
# ### Exercise 2 · An order of windows
#
# A *page* in this part is `page_rows` consecutive rows of the file. CorgiPile (Xu et al. 2022) shuffles the pages, cuts
# them into *windows* of W pages, reads a window into memory and shuffles its rows. (FFCV calls a similar order
# `QUASI_RANDOM`.) Each page is read once per epoch, in one run. Write this order for one rank.
#
# ```python
# >>> order = quasi_random_order(6, page_rows=2, window_pages=1, seed=0, epoch=0)
# >>> [sorted(page) for page in order.view(3, 2).tolist()]
# [[4, 5], [0, 1], [2, 3]]
# ```
#
# **Must**
# - draw a random order of the full pages, and append a short last page;
# - cut the pages into windows of `window_pages`, of which the last may have fewer;
# - shuffle the rows of each window together, with the same generator as in `random_order`.
#
# **Not allowed**: a Python loop over rows. One over windows is welcome.
#
# **Points** 5 · **Core** · **Difficulty** ●●○ · **Minutes** 18 · **Lines** 8
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
# The cell draws two orders of a file of 256 rows, in pages of 16 rows and batches of 32, with 4 pages in memory. Each
# square is a row, coloured by its page.
#
# **Predict**: rows of how many pages are in the first batch of windows? And in the first batch of the random order?

# %%
predicted_pages = None  # windows of 4 pages
predicted_pages_random = None

# %% tags=["experiment"]
random_order_now = course.solved(check.random_order)
quasi_random_order_now = course.solved(check.quasi_random_order)
drawn = {"windows of 4 pages": quasi_random_order_now(256, 16, 4, 0, 0), "random": random_order_now(256, 0, 0)}
first = {name: len(set((order[:32] // 16).tolist())) for name, order in drawn.items()}
print("pages in the first batch: " + ", ".join(f"{name} {count}" for name, count in first.items())
      + reveal(predicted_pages) + reveal(predicted_pages_random))  # fmt: skip
plots.orders(drawn, 16, 32, f"A batch of 32 rows holds {first['windows of 4 pages']} pages with windows, "
                            f"{first['random']} in random order")  # fmt: skip

# %% [markdown]
# With windows, all four colours change every second batch. In the random order every batch holds nearly every colour.
#
# **Takeaway** Shuffle pages first, then rows within a window: the disk reads whole pages, the batch sees W of them.

# %% [markdown]
# ## How random are the batches? · extra
#
# Take the worst file, in which the rows of a page are all alike. Two things vary: which B rows of the window you draw
# (variance s² / B) and which W pages the window holds (variance s² / W). Their sum is **1 + B / W** times the s² / B of
# a random batch.
#
# ### Exercise 3 · The bias of batches
#
# Compute V / V₀, the variance of an order's batch means over that of random batches. The given lines refuse input for
# which it is 0 / 0. In the example the batch means are 0.5 and 2.5, each 1 away from the mean, so V = 1. With s² =
# 1.25, V₀ is 1.25 / 2 · 2 / 3.
#
# ```python
# >>> round(batch_bias(torch.tensor([0.0, 1.0, 2.0, 3.0]), torch.arange(4), 2), 6)
# 2.4
# ```
#
# **Must**
# - V: the mean of (batch mean - m)² over the full batches of `order`, with m the mean of all N values;
# - V₀: s² / `batch` · (N - `batch`) / (N - 1), where s² is the mean of (value - m)²;
# - compute in float64, and subtract m before you square.
#
# **Points** 4 · **Extra** · **Difficulty** ●●○ · **Minutes** 10 · **Lines** 4
#
# **Source** Kish 1965, "Survey Sampling" (design effect); Cochran 1977, "Sampling Techniques", chapter 2.
#
# <details><summary>Hint 1</summary>
#
# How many values belong to full batches? Which shape makes the batch means one call?
#
# </details>
#
# <details><summary>Hint 2</summary>
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
    n = len(order)
    if batch >= n:
        raise ValueError(f"batches of {batch} of {n} rows have no variance; make them smaller.")
    if values.min() == values.max():
        raise ValueError("all values are the same, and so are all batches; take values that differ.")
    ### BEGIN SOLUTION
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
# **Predict**: the values of a file are sorted. How many times as large is the variance of batch means with windows of
# one page as with random batches? And if the rows of the file were shuffled once, when it was written?

# %%
predicted_at_one = None  # times; at the laptop scale batches have 64 rows
predicted_shuffled = None

# %% tags=["experiment"]
batch_bias_now = course.solved(check.batch_bias)
bias = [np.mean([batch_bias_now(in_file_order, quasi_random_order_now(rows, page_rows, n, 0, epoch), batch)
                 for epoch in range(5)]) for n in held]  # fmt: skip
shuffled_file = torch.randperm(rows)
in_no_order = batch_bias_now(shuffled_file, quasi_random_order_now(rows, page_rows, 1, 0, 0), batch)
near, one = bias[held.index(batch)], bias[0]
print(f"windows of one page: {one:.1f} times" + reveal(predicted_at_one))
print(f"windows of {batch} pages, batches of {batch} rows: {near:.2f} times")
print(f"the rows of the file shuffled once, windows of one page: {in_no_order:.2f} times" + reveal(predicted_shuffled))
off = max(abs(value / (1 + batch / n) - 1) for n, value in zip(held, bias, strict=True)
          if 8 * n * page_rows <= rows)  # fmt: skip
course.claim("with windows of up to an eighth of the file, 1 + B / W is within a third of the measured variance",
             off < 1 / 3,
             f"at most {off:.0%} off",
             otherwise="Average over more epochs than five, and look again.")  # fmt: skip
course.claim("in a file without order, windows of one page are as good as random", 0.7 < in_no_order < 1.4,
             f"{in_no_order:.2f} times the variance",
             otherwise="Average over several epochs, and look again.")  # fmt: skip
plots.bias(held, bias, batch)

# %% [markdown]
# Windows of one page have 64 times the variance of random batches, where the rule says 65. Windows of 64 pages have 1.7
# times, where it says 2. If the rows of the file were shuffled once, even one-page windows are as good as random.
#
# **Takeaway** With W = B pages in a window, the variance of a batch mean less than doubled. A file shuffled once needs
# no window.

# %% [markdown]
# ## How do you read a page into shuffled rows? · extra
#
# A *read call* names a place in the file and a length, so a whole page is one request. It takes a *list* of buffers:
# `os.preadv(file, buffers, offset)` reads consecutive bytes and fills the buffers one after the other. If the buffers
# are rows of `out` in shuffled order, reading shuffles, and nothing is copied twice.
#
# ### Exercise 4 · Read pages
#
# Complete a reader that fills `out` with the rows of whole pages, in the order asked for. Threads, refusals and short
# reads are given. You write which row of `out` each row of the file goes to, and the call that reads.
#
# **Must**
# - put row `index[i]` of the file into `out[i]`;
# - copy no page on the way.
#
# **Points** 8 · **Extra** · **Difficulty** ●●○ · **Minutes** 20 · **Lines** 3
#
# **Source** Python's documentation of `os.preadv`; the Linux manual, readv(2) and open(2), "O_DIRECT".
#
# <details><summary>Hint 1</summary>
#
# Sort the index. Where are the rows of one page then, and at which position was each of them before?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `index.numpy().argsort()` holds, in the order of the file, the rows of `out` to write to. `views[slots[start : start +
# most]]` are the memories of at most 1,024 of them. They begin in the file at byte 4096 + (page · `page_rows` +
# `start`) · `stride`.
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

    Raises: OSError if the file cannot be opened (in this way); with `direct`, ValueError if `stride` is not a multiple
        of 4096, ValueError or OSError if the system has no O_DIRECT.
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
        wanted = index.numpy()
        ### BEGIN SOLUTION
        slots = wanted.argsort()  # row slots[k] of `out` is for the k-th of these rows in the file
        ### END SOLUTION
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
                ### BEGIN SOLUTION
                buffers = views[slots[start : start + most]]
                found = os.preadv(self.file, buffers, 4096 + (page * self.page_rows + start) * self.stride)
                ### END SOLUTION
                if found < len(buffers) * self.stride:
                    raise EOFError(f"{self.path}: page {page} is cut off, {found} bytes came back.")


# %% test="PageReader-visible" points=1
check.PageReader(PageReader)

# %% test="PageReader-hidden" points=7
### BEGIN HIDDEN TESTS
check.PageReader(PageReader, seed=733)
### END HIDDEN TESTS

# %% [markdown]
# ## What does an order cost, in seconds and in loss?
#
# You train a regression of 31 columns on a file whose rows are sorted by y, 128 bytes each. Every order reads it
# through `PageReader`. To simulate a small memory, the file is dropped from the page cache before each read. (Where a
# read continues the one before it, the system's read-ahead stays.)
#
# `batches_from_pages` (given) reads a page when its first row is due and drops it after its last one. A random order
# uses pages of one row. *Times the file* are the bytes from the disk per epoch over the bytes of the file. The inputs
# are standard normal, so the *excess loss* over the true weights is known exactly: |w - w₀|² + (b - b₀)².
#
# **Predict**: how much slower is a random epoch than one in windows of B pages, as many as a batch has rows? And by
# what factor do these windows raise its excess loss?

# %%
predicted_seconds = None  # random over windows
predicted_excess = None  # windows over random

# %% tags=["experiment"]
floats, learning_rate = 32, 0.1
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


def train(batches, w, b):
    """Excess losses at 64 places of SGD over one epoch of batches [x, y]; changes `w` and `b`."""
    losses = []
    for number, rows_now in enumerate(batches, 1):
        x, y = rows_now[:, :-1], rows_now[:, -1]
        residual = x @ w + b - y
        w.sub_(residual @ x, alpha=learning_rate / len(y))
        b.sub_(learning_rate * residual.mean())
        if number % (rows // batch // 64) == 0:
            losses.append(((w - true_w).square().sum() + b**2).item())
    return losses


def from_file(order, page_rows, drop=True):
    """Batches of the sorted file, which is dropped from the page cache before each read if `drop`.

    Where a read continues the one before it, only what lies before it is dropped: the system's read-ahead stays.
    """
    next_row = 0
    with PageReader_now(sorted_file, rows, 4 * floats, page_rows) as reader, open(sorted_file) as file:

        def fill(index, out):
            nonlocal next_row
            first, continues = index.min().item(), index.min().item() == next_row
            next_row = index.max().item() + 1
            if drop and cold:  # a length of 0 is the whole file
                length = 4096 + first * 4 * floats if continues else 0
                os.posix_fadvise(file.fileno(), 0, length, os.POSIX_FADV_DONTNEED)
            return reader.fill(index, out)

        yield from batches_from_pages(order, page_rows, batch, fill, floats)


PageReader_now = course.solved(check.PageReader)
few = [n for n in (1, 4, 16, 64) if n in held]
middle = f"windows, W = {batch}"
order_of = {"order of the file": lambda seed, epoch: in_file_order}
order_of |= {
    f"windows, W = {n}": lambda seed, epoch, n=n: quasi_random_order_now(rows, page_rows, n, seed, epoch) for n in few
}
order_of["random"] = lambda seed, epoch: random_order_now(rows, seed, epoch)


def excess_of(order, seed):
    """Mean excess loss in the second epoch. The rows come from memory, where an order costs nothing."""
    w, b = torch.zeros(floats - 1), torch.zeros(())
    for epoch in range(2):
        losses = train((sorted_table[index] for index in order(seed, epoch).split(batch)), w, b)
    return np.mean(losses)


def part_of_epoch(name, drop=True):
    """A function that trains on the first eighth of an epoch, read from the file."""
    order, size, count = order_of[name](0, 0), 1 if name == "random" else page_rows, rows // batch // 8

    def run():
        batches = itertools.islice(from_file(order, size, drop), count)
        train(batches, torch.zeros(floats - 1), torch.zeros(()))

    return run


excess = {name: torch.tensor([excess_of(order, seed) for seed in range(7)]) for name, order in order_of.items()}
WARM = "windows, file in memory", "random, file in memory"
ways = {name: part_of_epoch(name) for name in (middle, *(name for name in order_of if name != middle))}
ways |= {warm: part_of_epoch(name, drop=False) for warm, name in zip(WARM, (middle, "random"), strict=True)}
compared = compare(ways, seconds=sizes.seconds, progress=False)
seconds, brought = {name: 8 * compared.time(name).estimate for name in ways}, {}
print(f"{'':24} {'s per epoch':>11} {'times the file':>15} {'kB held':>8}  excess loss in the second epoch")
for name, order in order_of.items():
    size, before = 1 if name == "random" else page_rows, reads()
    train(from_file(order(0, 0), size), torch.zeros(floats - 1), torch.zeros(()))
    brought[name] = reads().since(before).disk_bytes / sorted_table.nbytes
    kept = pages_in_use(order(0, 0), size, batch)[2] * size * floats * 4
    print(f"{name:24} {seconds[name]:11.2f} {brought[name]:15.1f} {kept / 1e3:8.0f}  {excess[name].median():.4f}")
for name in WARM:
    print(f"{name:24} {seconds[name]:11.2f}")
print(f"{compared.rounds} rounds of an eighth of an epoch; control: {middle} against itself {compared.control}")
folder.cleanup()

# %% tags=["experiment"]
slower, slower_warm = compared.ratio(middle, to="random"), compared.ratio(WARM[0], to=WARM[1])
more, lost = (ratio_interval(excess[name], excess["random"]) for name in (middle, "order of the file"))
print(f"a random epoch takes {slower} times as long as one of windows" + reveal(predicted_seconds))
print(f"with the file in memory it takes {slower_warm} times as long")
print(f"windows of {batch} pages leave {more} times the excess loss of the random order" + reveal(predicted_excess))
course.claim("in the order of the file the excess loss is at least ten times that of a random order", lost, above=10)
course.claim("from a cold file, windows of B pages are at least three times as fast as a random order", slower, above=3,
             otherwise="Look at the column of bytes: did they come from the disk?")  # fmt: skip
course.claim("from a file in memory, windows of B pages are at least three times as fast as a random order",
             slower_warm, above=3)  # fmt: skip
course.claim("per epoch, a random order reads at least ten times the bytes of the file from the disk, windows of B "
             "pages less than three times", brought["random"] > 10 and brought[middle] < 3,
             f"{brought['random']:.0f} and {brought[middle]:.1f} times",
             otherwise="A value of nan means that your system does not count the bytes read.")  # fmt: skip
course.claim("windows of B pages leave less than 2.5 times the excess loss of a random order", more, below=2.5)
plots.order_against_learning({name: seconds[name] for name in order_of},
                             {name: values.median().item() for name, values in excess.items()}, middle,
                             f"A random order takes {slower.estimate:.0f} times as long as windows of B pages, which "
                             f"leave {more.estimate:.1f} times its excess loss")  # fmt: skip

# %% [markdown]
# The random order fetches a memory page of 4,096 bytes for each row of 128, so 32 times the file. But the bytes are not
# all. **Shown**: with the file in memory nothing comes from the disk, and the random order is slower still, because it
# makes a system call per row. Windows save requests *and* bytes.
#
# **Takeaway** Hold as many pages as a batch has rows, or shuffle the file once. Reading single rows costs seconds;
# reading in file order costs loss.

# %% [markdown]
# ## What to take home
#
# - A random order costs a disk one request per row. Windows of pages avoid most of that.
# - On a sorted file, windows of W pages multiply the variance of a batch mean by about 1 + B / W.
# - `preadv` reads whole pages into shuffled rows.
# - `docs/results.md` compares the loaders of this unit with FFCV.
