# %% [markdown]
# # Fast loading, part 1: A file and a fast batch
#
# **How close to memory speed can you assemble a batch?**
#
# [The guide of FFCV](https://docs.ffcv.io/ffcv_examples/linear_regression.html), a library for fast data loading,
# fits a linear regression to a million rows of 10,000 float32 values. These are 40 GB. On one A100 and eight CPU
# cores, the guide reports 16 seconds per epoch with torch's `TensorDataset`, and 6 with a file in FFCV's format.
#
# Where do the 16 seconds go, and does your own loader lose time in the same places? This part looks at the two ends
# of a loader: how a batch is assembled, and how the rows are stored in a file.
#
# **You will be able to**
#
# - compare a loader with a plain copy of the same bytes
# - gather a random batch in one copy, and say when new memory is expensive
# - write a file of rows, and open it without reading it
#
# **Minutes** 42 core · 42 in all
#
# **Needs** nothing

# %% [markdown]
# First write down what you expect, in the cell that says `None`. Then solve the exercise, run its check, and look at
# the measurement. Once your check has passed, later cells use your answer under a name that ends in `_now`:
# `gather_now` is your `gather`.

# %% locked="setup"
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import DataLoader, TensorDataset

import course
from course.checks import fast_loading as check
from course.loading import batch_ways
from course.loading.batch_ways import INDEXED, INTO, MEMORY_PAGE, MIB, NEW
from course.loading.loaders import forked
from course.measure.comparison import compare, compare_measured
from course.measure.fresh_memory import KEEP_FREED, Allocator, cost_of
from course.measure.yardsticks import (
    ALL_THREADS,
    MEMCPY,
    drawn_table,
    memcpy_of,
    one_pass,
    show_rates,
)
from course.plots import fast_loading as plots

print(course.machine())
sizes = course.sizes("04_fast_loading")

# %% [markdown]
# ## What are the data?
#
# A linear regression does little arithmetic per byte, so loading can take most of an epoch. The data are generated as
# in the guide: x is uniform in [0, 1), and y = x w + b + noise. The training has to recover w and b.
#
# ### Exercise 1 · Draw the rows
#
# Draw `rows` rows of such data. A row holds its x values, followed by its y.
#
# ```python
# >>> draw_rows(3, np.ones(2, dtype=np.float32), 5.0, np.random.default_rng(0)).shape
# (3, 3)
# ```
#
# **Must**
# - draw x uniformly from [0, 1), and the noise of each y from the standard normal distribution;
# - draw everything from `rng`;
# - return float32.
#
# **Points** 2 · **Core** · **Difficulty** ●○○ · **Minutes** 4 · **Lines** 3
#
# **Source** FFCV's guide "Large-Scale Linear Regression", section "Generating a fake dataset".
#
# <details><summary>Hint 1</summary>
#
# `rng.random(shape, dtype=np.float32)` is uniform, `rng.standard_normal(shape, dtype=np.float32)` is normal. Which
# shapes do you need?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `x @ w` is one number per row. `np.column_stack([x, y])` appends y as a column.
#
# </details>


# %% solution="draw_rows"
def draw_rows(rows, w, b, rng):
    """Rows of a linear regression, a float32 array (rows, columns + 1): x, then y.

    Args:
        rows: how many, 1 or more.
        w: float32 array (columns,), the true weights.
        b: float, the true intercept.
        rng: a `numpy.random.Generator`.
    """
    ### BEGIN SOLUTION
    x = rng.random((rows, len(w)), dtype=np.float32)
    y = x @ w + b + rng.standard_normal(rows, dtype=np.float32)
    return np.column_stack([x, y])
    ### END SOLUTION


# %% test="draw_rows-visible" points=1
check.draw_rows(draw_rows)

# %% test="draw_rows-hidden" points=1
### BEGIN HIDDEN TESTS
check.draw_rows(draw_rows, seed=257)
### END HIDDEN TESTS

# %% [markdown]
# ## How much faster is one call per batch?
#
# By default, a `DataLoader` fetches a batch row by row: it calls `dataset[i]` for each row, and then it stacks the
# rows. How much time does that cost? You compare three loaders of the same rows:
#
# - `TensorDataset` with batches of `sizes.batch_size` rows;
# - the same with two *workers*: processes that build batches and send them to the training loop;
# - *batched indexing*, which fetches all rows of a batch in one call.
#
# The guide sets no batch size, so each of its batches is one row. A second comparison shows what that costs.
#
# Batched indexing takes a few lines. If a dataset has the method `__getitems__`, a `DataLoader` calls it with the
# list of row numbers:
#
# ```python
# class WholeBatches(TensorDataset):
#     def __getitems__(self, index):
#         return [tensor[index] for tensor in self.tensors]
#
# loader = DataLoader(WholeBatches(x, y), batch_size, shuffle=True, collate_fn=lambda batch: batch)
# ```
#
# The default `collate_fn` stacks rows. Here the batch is already complete, so `collate_fn` returns it unchanged.
#
# **Predict** How many times as fast is an epoch with two workers, and with batched indexing?
#
# - If memory bandwidth is the limit, both gain little.
# - If Python's calls take the time, batched indexing gains most. Two workers nearly double the speed if sending is
#   cheap. They gain nothing if sending costs as much as they save.

# %%
predicted_workers = None  # times as fast as no workers
predicted_batched = None  # times as fast as row by row

# %% tags=["experiment"]
BY_ROW = "TensorDataset, 0 workers"
WORKERS = "TensorDataset, 2 workers"
BATCHED = "batched indexing, __getitems__"
draw_rows_now = course.solved(check.draw_rows)
table = drawn_table(draw_rows_now, sizes.rows, sizes.columns)  # a quarter of the memory at most
x = table[:, :-1]
y = table[:, -1]
dataset = TensorDataset(x, y)
whole = batch_ways.WholeBatches(x, y)
loaders = {
    BY_ROW: DataLoader(dataset, sizes.batch_size, shuffle=True),
    # the workers are started before the clock
    WORKERS: forked(dataset, sizes.batch_size, num_workers=2, shuffle=True),
    BATCHED: DataLoader(whole, sizes.batch_size, shuffle=True, collate_fn=batch_ways.unchanged),
}

# %% tags=["experiment"]
passes = {name: one_pass(loader) for name, loader in loaders.items()}
standard = compare(passes, seconds=sizes.seconds)
del passes, loaders[WORKERS]  # which ends their processes

print(f"{len(table):,} rows of {sizes.columns:,} values x and one y")
show_rates(standard, table.nbytes)
print(f"control: {BY_ROW} against itself {standard.control}")
of_workers = standard.ratio(WORKERS)
print(course.score("04/1", "an epoch with two workers", predicted_workers, of_workers))
of_batched = standard.ratio(BATCHED)
print(course.score("04/1", "an epoch with batched indexing", predicted_batched, of_batched))
course.claim(
    "two workers make an epoch of TensorDataset less than 1.5 times as fast",
    of_workers,
    below=1.5,
    otherwise="Workers help more on your machine than on ours. Try four of them.",
)
course.claim(
    "batched indexing is at least twice as fast as fetching rows one by one",
    of_batched,
    above=2,
    otherwise="Your rows are so long that copying them takes most of the time.",
)

# %% tags=["experiment"]
MANY_ROWS = "batches of many rows"
ONE_ROW = "batches of one row"
few_rows = TensorDataset(x[: sizes.one_by_one], y[: sizes.one_by_one])
by_batch_size = compare(
    {
        MANY_ROWS: one_pass(DataLoader(few_rows, sizes.batch_size, shuffle=True)),
        ONE_ROW: one_pass(DataLoader(few_rows, shuffle=True)),
    },
    seconds=sizes.seconds / 2,
)
rows_per_second = len(few_rows) / by_batch_size.median(ONE_ROW)
of_the_guide = 1_000_000 / 16  # rows and seconds of an epoch

print(f"{ONE_ROW}: {rows_per_second:,.0f} rows per second; the guide: {of_the_guide:,.0f}")
course.claim(
    "without a batch size, TensorDataset takes at least twice as long",
    by_batch_size.ratio(MANY_ROWS, to=ONE_ROW),
    above=2,
    otherwise="Your rows are so long that a call per row hardly counts.",
)

# %% [markdown]
# **Shown** Batched indexing delivers the same bytes without handling single rows. So it saves the overhead per row.
#
# The guide's loader delivers single rows, too. **We think** that its 16 seconds go there. To test it, set a
# `batch_size` in its script.
#
# Two workers share this overhead. If they gain little or nothing, **we think** that sending costs what sharing saves,
# because each batch is written into new shared memory. To test it, let the workers send copies of one ready batch.
#
# **Takeaway** Fetch a whole batch in one call before you add workers.

# %% [markdown]
# ## What does new memory cost?
#
# The rows of a random batch are scattered over `table`, so they must be copied to one place. `table[index]` copies
# them into a new tensor. Is that more expensive than a buffer that you allocate once and refill for each batch?
#
# When a program asks for a large block, the operating system only *promises* the memory. The first write to each
# *memory page*, usually 4,096 bytes, interrupts the program, because the system has to find a free page and fill it
# with zeros. This is a *page fault*.
#
# ### Exercise 2 · Gather a batch
#
# Copy the rows of a batch into an existing buffer. The given lines reject a buffer that does not fit.
#
# ```python
# >>> table, out = torch.tensor([[1, 10], [2, 20], [3, 30]]), torch.zeros(3, 2, dtype=int)
# >>> gather(table, torch.tensor([2, 0]), out)
# tensor([[ 3, 30],
#         [ 1, 10]])
# ```
#
# **Must**
# - put row `index[i]` of `table` into `out[i]`, and leave all other rows of `out` as they are;
# - return the rows that you filled, as a view of `out`;
# - copy each row once, straight into `out`, without a call per row.
#
# **Raises** any exception if a row number is below 0 or above N - 1.
#
# **Points** 3 · **Core** · **Difficulty** ●○○ · **Minutes** 6 · **Lines** 1
#
# **Source** PyTorch's documentation of `torch.index_select` and of its argument `out`.
#
# <details><summary>Hint 1</summary>
#
# `out[:n] = table[index]` leaves the right rows in `out`. How often was each of them copied?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `torch.index_select(table, 0, index, out=...)` copies whole rows straight into `out`. But if `out` does not have
# exactly the shape of the result, torch *resizes* it and only warns. Which part of `out` has the right shape?
#
# </details>


# %% solution="gather"
def gather(table, index, out):
    """The first n rows of `out`, a view, which now hold the rows `table[index]`.

    Args:
        table: float32 tensor (N, S), maybe a memory-mapped file.
        index: int64 tensor (n,), row numbers from 0 to N - 1.
        out: float32 tensor (B, S), B at least n.

    Raises: ValueError if `out` has fewer than n rows, another row length or another dtype than `table`; IndexError or
        another exception if a number is not that of a row.
    """
    n = len(index)
    if len(out) < n or out.shape[1:] != table.shape[1:] or out.dtype != table.dtype:
        raise ValueError(
            f"{n} rows of {table.shape[1]} {table.dtype} do not fit into {tuple(out.shape)} {out.dtype}."
        )
    ### BEGIN SOLUTION
    return torch.index_select(table, 0, index, out=out[:n])
    ### END SOLUTION


# %% test="gather-visible" points=1
check.gather(gather)

# %% test="gather-hidden" points=2
### BEGIN HIDDEN TESTS
check.gather(gather, seed=418)
### END HIDDEN TESTS

# %% [markdown]
# The next cells measure three ways to assemble a batch, for small and for large batches.
#
# **Predict** Batches of 34 MiB are gathered one after the other, each into a new tensor. How many page faults does a
# batch cost? If the C library keeps the memory of the last batch for the next one, there are none. If it returns this
# memory to the system, there is one per memory page.

# %%
predicted_faults = None  # of a batch of 34 MiB

# %% tags=["experiment"]
gather_now = course.solved(check.gather)
row_bytes = 4 * table.shape[1]


def compare_gathers(n_bytes):
    """Compare three ways to gather `n_bytes`; return that and the page faults of a batch."""
    n_rows = n_bytes // row_bytes
    ways = batch_ways.ways_to_gather(table, n_rows, gather_now)  # other rows in each call
    eight_batches = {name: batch_ways.repeated(call) for name, call in ways.items()}

    compared = compare(eight_batches, seconds=sizes.seconds / 2)
    faults = {name: cost_of(ways[name]).faults for name in (NEW, INTO)}
    batch_ways.show_gathers(compared, faults, n_bytes, row_bytes)
    return compared, faults


small_bytes, large_bytes = sizes.gathered
small, small_faults = compare_gathers(small_bytes)
large, large_faults = compare_gathers(large_bytes)

# %% tags=["experiment"]
small_pages = small_bytes / MEMORY_PAGE
large_pages = large_bytes / MEMORY_PAGE
is_kept = small_faults[NEW] < 0.1 * small_pages
is_new = large_faults[NEW] > 0.9 * large_pages
allocators_differ = (
    "Allocators differ in the size from which on they ask the system for new pages. "
    "Huge pages are fewer, too."
)

asked = "page faults of a new batch of 34 MiB"
print(course.score("04/1", asked, predicted_faults, large_faults[NEW], null=None))
course.claim(
    "for small batches, index_select into a new tensor is at least 1.5 times as fast as table[index]",
    small.ratio(NEW, to=INDEXED),
    above=1.5,
)
course.claim(
    "gathering a large batch into a buffer is at least twice as fast as table[index]",
    large.ratio(INTO, to=INDEXED),
    above=2,
    otherwise="New tensors may cost no page faults on your system: the cell above prints them.",
)
course.claim(
    "a new tensor for each small batch costs hardly any page faults",
    is_kept,
    f"{small_faults[NEW]:.0f} for {small_pages:.0f} memory pages",
    otherwise=allocators_differ,
)
course.claim(
    "a new tensor for each large batch costs a page fault per memory page",
    is_new,
    f"{large_faults[NEW]:.0f} for {large_pages:.0f} memory pages",
    otherwise=allocators_differ,
)
course.claim(
    "for large batches, a buffer makes index_select at least 1.5 times as fast as a new tensor",
    large.ratio(INTO, to=NEW),
    above=1.5,
    otherwise="Compare the page faults of the two.",
)
course.claim(
    "for small batches, a buffer makes index_select at most 10 % faster or slower than a new tensor",
    small.ratio(INTO, to=NEW),
    within=(0.9, 1.1),
)

# %% [markdown]
# **Shown** The two variants of `index_select` differ only in where the rows go. Where a new tensor costs page faults,
# the buffer is faster. Small batches cost none, so what `index_select` gains over `table[index]` there comes from the
# function.
#
# **We think** that `index_select` copies each row as one block, and `table[index]` copies one value at a time. To test
# it, compare both on a table with one column.
#
# **Takeaway** Gather whole rows with `index_select`. Reuse a buffer if a new batch would need new memory pages.

# %% [markdown]
# ## From which size on does a tensor need new memory?
#
# When a tensor is freed, the C library either keeps its memory or returns it to the system. If it returns the memory,
# the next batch pays for the page faults again.
#
# **Known** glibc, the C library of most Linux systems, returns a freed block if it is larger than a limit (`man 3
# mallopt`). This limit grows with the blocks that a process frees, up to 32 MiB. Two environment variables fix it,
# even for code that you cannot change:
#
# ```
# MALLOC_MMAP_THRESHOLD_=1073741824 MALLOC_TRIM_THRESHOLD_=1073741824 python train.py
# ```
#
# <details><summary>What do the two variables set?</summary>
#
# A block larger than M_MMAP_THRESHOLD is returned as soon as it is freed. Smaller blocks lie in the heap, and the
# free end of the heap is returned when it exceeds M_TRIM_THRESHOLD, which grows to twice the first limit. Older
# versions of glibc accept at most 32 MiB for the first one. There, set `MALLOC_MMAP_MAX_=0` instead.
#
# </details>
#
# The cell starts two processes, one of them with these variables. Each process copies the same data into one new
# tensor after another.

# %% tags=["experiment"]
AS_IT_IS = "the C library as it is"
KEPT = "told to keep freed memory"
page_faults = {}
with Allocator() as as_it_is, Allocator(KEEP_FREED) as keeping:
    processes = {AS_IT_IS: as_it_is, KEPT: keeping}
    for name, process in processes.items():
        page_faults[name] = [process.new_tensor(size * MIB).faults for size in sizes.fresh_mib]

    def seconds_of_copy(name):
        return processes[name].new_tensor(34 * MIB).seconds

    copies = compare_measured((AS_IT_IS, KEPT), seconds_of_copy, seconds=sizes.seconds)

print(f"a copy into a new tensor of 34 MiB, {copies}")
course.claim(
    "with glibc told to keep freed memory, a copy into a new tensor of 34 MiB is at least 1.5 times as fast",
    copies.ratio(KEPT),
    above=1.5,
    otherwise="Another C library does not read these variables.",
)
plots.page_faults(sizes.fresh_mib, page_faults)

# %% [markdown]
# **Shown** The two processes differ only in these variables. The price is that a process keeps the memory that it has
# freed.
#
# Batches can be this large: 256 images of 224 × 224 pixels take 147 MiB in float32. The variables can help a loader
# without workers, and a step on the CPU. They do not change how torch allocates memory on a GPU.
#
# **Takeaway** If your batches are larger than what the allocator keeps, raise its limit or reuse a buffer.

# %% [markdown]
# ## How far is a whole epoch from a plain copy?
#
# To assemble a random batch, a loader must read and write each byte at least once. `memcpy` does only this, so it is
# our yardstick. The gather may use all of torch's threads, so one of the two copies does, too. The gather runs in
# random order and in the order of the rows.

# %% tags=["experiment"]
OURS = "ours, random order"
IN_ORDER = "ours, rows in order"
buffer = torch.empty(sizes.batch_size, table.shape[1])


def gather_all(order):
    """Gather all batches of an epoch into the buffer."""
    for index in order.split(sizes.batch_size):
        gather_now(table, index, buffer)


def random_epoch():
    gather_all(torch.randperm(len(table)))


def epoch_in_order():
    gather_all(torch.arange(len(table)))


ways = {
    MEMCPY: memcpy_of(table.nbytes),
    ALL_THREADS: memcpy_of(table.nbytes, threads=None),
    BY_ROW: one_pass(loaders[BY_ROW]),
    OURS: random_epoch,
    IN_ORDER: epoch_in_order,
}
epoch = compare(ways, seconds=sizes.seconds)
show_rates(epoch, table.nbytes)
print(f"control: {MEMCPY} against itself {epoch.control}")

# %% tags=["experiment"]
over_dataset = epoch.ratio(OURS, to=BY_ROW)
over_memcpy = epoch.ratio(OURS, to=ALL_THREADS)
course.claim(
    "an epoch of gathers is at least five times as fast as TensorDataset's",
    over_dataset,
    above=5,
    otherwise="Longer rows leave less to gain.",
)
course.claim(
    "gathering an epoch is at least 1.3 times as fast in the order of the rows as in random order",
    epoch.ratio(IN_ORDER, to=OURS),
    above=1.3,
    otherwise="Your rows are so long that a jump hardly counts.",
)
plots.epoch_times(
    epoch,
    table.nbytes,
    f"{over_dataset.estimate:.0f} times as fast as TensorDataset, the gather reaches "
    f"{over_memcpy.estimate:.2f} of memcpy with as many threads",
)

# %% [markdown]
# **Shown** Both epochs gather the same rows by the same calls, and only their order differs. So the difference is the
# price of jumping from row to row.
#
# **Takeaway** Compare a loader with `memcpy` of the same bytes and *with the same number of threads*.

# %% [markdown]
# ## How can you open a file of rows without reading it?
#
# The guide's `TensorDataset` keeps all 40 GB in RAM, and the program dies if there is less. A *mapped* file can be
# larger than RAM, because mapping reads nothing. When the program touches a memory page of the file, the system reads
# it from the disk. Then the page stays in the *page cache* while there is room.
#
# If all rows have the same size, a file needs no index: row i begins at byte i · (bytes per row). But a large
# file takes long to write, and Ctrl-C or a full disk can cut it off. So write it under another name in the same
# folder, and rename it when it is complete.
#
# ### Exercise 3 · Write the rows
#
# Write parts of rows to a file, one after the other, then open the file. `np.memmap(path, np.float32, "c")` maps it
# without reading it. In mode "c" you may write into the array, but nothing of it reaches the file.
#
# ```python
# >>> write_rows("/tmp/rows.f32", [np.zeros((2, 3), "f4"), np.ones((1, 3), "f4")])
# tensor([[0., 0., 0.],
#         [0., 0., 0.],
#         [1., 1., 1.]])
# ```
#
# **Must**
# - write each part as it comes, so that two parts are never needed in memory;
# - leave `path` as it was until the new file is complete;
# - return all rows as a float32 tensor (N, columns) on the mapped file.
#
# **Points** 4 · **Core** · **Difficulty** ●●○ · **Minutes** 9 · **Lines** 6
#
# **Source** `man 2 rename` (the new name appears atomically), `man 2 mmap`; nanoGPT's `train.bin` is such a file of
# token numbers.
#
# <details><summary>Hint 1</summary>
#
# A file opened with mode "wb" has a method `write` that takes an array. `Path(path).with_name(...)` is another name in
# the same folder, and a Path has the method `replace`.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# The mapped array is one long row. `torch.from_numpy` makes a tensor of it without a copy, and `.view(-1, columns)`
# cuts it into rows. How many columns had the last part? Map the file after it is closed: until then its last bytes may
# still be in Python's buffer.
#
# </details>


# %% solution="write_rows"
def write_rows(path, parts):
    """All rows of `parts`, a float32 tensor (N, columns) on the file `path`, which is written whole or not at all.

    Args:
        path: str or Path of the file, in a folder that is there; a file that is there is replaced.
        parts: iterable of 1 or more float32 arrays (n, columns), n at least 1; it may make them one by one.

    Raises: what `parts` raises; `path` is then what it was before.
    """
    ### BEGIN SOLUTION
    unfinished = Path(path).with_name(f".{Path(path).name}")
    with open(unfinished, "wb") as file:
        for part in parts:
            file.write(part)
    unfinished.replace(path)
    return torch.from_numpy(np.memmap(path, np.float32, "c")).view(-1, part.shape[1])
    ### END SOLUTION


# %% test="write_rows-visible" points=2
check.write_rows(write_rows)

# %% test="write_rows-hidden" points=2
### BEGIN HIDDEN TESTS
check.write_rows(write_rows, seed=274)
### END HIDDEN TESTS

# %% tags=["experiment"]
write_rows_now = course.solved(check.write_rows)
first_rows = table[: sizes.rows_written]
parts = (part.numpy() for part in first_rows.split(sizes.batch_size))
index = torch.randperm(len(first_rows))[:9]
with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "rows.f32"
    written = write_rows_now(path, parts)
    n_bytes = path.stat().st_size
    batch = gather_now(written, index, buffer)
    is_same = torch.equal(batch, first_rows[index])

print(f"{len(written):,} rows of {row_bytes:,} bytes are a file of {n_bytes:,} bytes")
print(f"nine rows gathered from the mapped file are those of the table: {is_same}")

# %% [markdown]
# **Known** Opening maps the file and reads none of its rows (`man 2 mmap`). Your `gather` works on the mapped file,
# too.
#
# **Takeaway** Rows of equal size need no index and no parsing. Map the file: touching a row reads it.

# %% [markdown]
# <details><summary>Which pieces of FFCV do these things?</summary>
#
# The guide replaces the `TensorDataset` by a file of FFCV (Leclerc et al. 2023, arXiv:2306.12517). The table says
# what FFCV's pieces do, and where this unit explains them:
#
# | FFCV | what it does | here |
# |---|---|---|
# | `DatasetWriter(path, fields)` | writes `dataset[i]` for each i, with `num_workers` processes | `write_rows` |
# | `NDArrayField` | type and shape of a field, so all rows have one size | float32 |
# | `Loader(path, batch_size, ...)` | `num_workers` threads fill buffers that are made once | `gather`, part 3 |
# | `pipelines={field: [...]}` | `NDArrayDecoder`, then `ToTensor`, `Squeeze` | x and y are views |
# | `ToDevice` in a pipeline | copies to the GPU during the previous step | part 3 |
# | `order=OrderOption...` | `RANDOM` or `QUASI_RANDOM`: which row comes when | part 2 |
# | `os_cache` | True: the page cache holds the file. False: FFCV reads pages and keeps few | parts 2, 3 |
#
# </details>
#
# ## What to take home
#
# - Compare a loader with `memcpy` of the same bytes, on as many threads.
# - Copy a batch once, in one call, into memory that you already own or that the allocator keeps.
# - A file of equal rows needs no index. Write it under another name, and rename it when it is complete.
