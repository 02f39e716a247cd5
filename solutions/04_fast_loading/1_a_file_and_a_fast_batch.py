# %% [markdown]
# # Fast loading, part 1: A file and a fast batch
#
# **How close to the memory's own speed can a batch be put together?**
#
# A linear regression computes next to nothing: two products with the data, and the data is gone. So it shows what
# loading costs. This unit takes the data of a published example, FFCV's large-scale linear regression (Leclerc et al.
# 2023, arXiv:2306.12517), and builds what that library does from torch, NumPy and Python's own library. This part makes
# a file in which every row is found by one multiplication, and puts a random batch together in one copy.
#
# **You will be able to**
#
# - say how far a loader is from copying and from reading the same bytes, and why `TensorDataset` is where it is
# - write a file of rows whole or not at all, and open it without reading it
# - gather a random batch in one copy, and count what fresh memory costs
#
# **Minutes** 20 core · 130 in all
#
# **Needs** nothing

# %% [markdown]
# How it works: write down what you expect (a cell with `None`), solve the exercise, run its check, look at the
# measurement. Later cells use your answer if its check passed (`x_now` is your `x`) and fall back on the reference
# solution if your copy of the course includes it. Run the cells from the top. Leave the empty cell after each check
# alone: your instructor's tests go there.

# %% locked="setup"
import dataclasses
import itertools
import json
import mmap
import os
import resource
import sys
import time
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset

import course
from course.checks import fast_loading as check
from course.datasets import regression
from course.errors import counted
from course.learner.predictions import reveal
from course.loading.loaders import forked
from course.measure import usage
from course.measure.page_cache import drop_cached
from course.measure.yardsticks import (
    ALL_THREADS,
    GIGA,
    MEMCPY,
    READING,
    iterate,
    memcpy_of,
    one_pass,
    read_file,
    rows_in_memory,
    seconds_in_turn,
    show_rates,
    without_yardsticks,
)
from course.parallel.distributed import run_ranks
from course.plots import fast_loading as plots

PAGE = 4096  # bytes of the header of a record file, and of a memory page
CHUNK = 1 << 24  # bytes of rows that a writer reads at a time
FORMAT = "course-records-1"
HOUR = 3600  # seconds
NORESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000 if sys.platform == "linux" else 0)  # Python has it from 3.13 on
print(course.machine())
sizes = course.sizes("04_fast_loading")
data = regression.prepare(sizes.rows, sizes.columns)  # says what it needs; fewer rows if the disk is too small

# %% [markdown]
# ## The problem
#
# **With `x @ w` there is nothing to wait for but the data.**
#
# FFCV's data: a million rows of 10,000 float32 values, 40 GB; true weights `w` and an intercept `b`; responses
# `y = X w + b + noise`. The task is to find `w` and `b` by SGD in batches of 2,048 rows. Its guide reports 16 seconds
# per epoch with PyTorch's `TensorDataset` and 6 with FFCV, on an A100 with eight processor cores: 2.5 and 6.7 GB/s.
# Neither is near what memory can do.
#
# The same data here, at the size of your scale. X is drawn from a seed where it is sliced: `data.x[a:b]`. So the file
# that you are going to write is the only copy on the disk.

# %% tags=["experiment"]
x_bytes = 4 * data.rows * data.columns
print(f"X: {data.rows:,} rows of {data.columns:,}, {x_bytes / GIGA:.3f} GB; y = X w + {data.b:.3f} + noise")

# %% [markdown]
# ## The standard way, and what is wrong with the comparison
#
# **A `DataLoader` over a `TensorDataset` fetches rows one by one; the guide's snippet even makes each its own batch.**
#
# The snippet in FFCV's guide is `DataLoader(TensorDataset(x, y), num_workers=8, shuffle=True)`: without a batch size
# each batch is one row. The script behind it (`examples/docs_examples/linear_regression.py`) says `batch_size=2048`.
# Which of the two took 16 seconds?
#
# The yardstick here is `memcpy`: every byte of a batch is read and written once, so copying as many bytes is a fair
# comparison, by one thread and by all. It is no limit: a loader that writes to one buffer in the processor's cache can
# pass it. All contestants take turns; in each turn the first of two runs does not count.
#
# **Predict**: how many times as long as `memcpy` with one thread does an epoch take, with batches of one row, and with
# a batch size?

# %%
predicted_one_by_one = None  # times memcpy
predicted_tensor_dataset = None

# %% tags=["experiment"]
x, y = rows_in_memory(data)
dataset, few = TensorDataset(x, y), TensorDataset(x[: sizes.one_by_one], y[: sizes.one_by_one])
batches = BatchSampler(RandomSampler(dataset), sizes.batch_size, False)
ONE_ROW = "batches of one row, 2 workers (scaled up)"
loaders = {
    ONE_ROW: forked(few, 1, 2, shuffle=True),  # workers are started before the clock
    "TensorDataset, 0 workers": DataLoader(dataset, sizes.batch_size, shuffle=True),
    "TensorDataset, 2 workers": forked(dataset, sizes.batch_size, 2, shuffle=True),
    "TensorDataset, batched indexing": DataLoader(dataset, sampler=batches, batch_size=None),
}
copies = {MEMCPY: memcpy_of(x_bytes), ALL_THREADS: memcpy_of(x_bytes, None)}
standard = seconds_in_turn(
    copies | {name: one_pass(loader) for name, loader in loaders.items()}, rounds=min(3, sizes.rounds)
)
for name in loaders:
    standard[name] *= data.rows / len(few if name == ONE_ROW else dataset)
show_rates(standard, x_bytes)
one_row, with_batch, batched = (
    (standard[name] / standard[MEMCPY]).median().item() for name in loaders if name != "TensorDataset, 2 workers"
)
print(f"\nin units of memcpy: one row {one_row:.0f}" + reveal(predicted_one_by_one))
print(f"             batches of {sizes.batch_size}, no workers {with_batch:.1f}" + reveal(predicted_tensor_dataset))
begun = time.process_time()  # of the main process, without its workers
iterate(loaders[ONE_ROW])
per_row = 1e6 * (time.process_time() - begun) / len(few)
course.claim("two workers fetch the rows, and the main process alone still computes longer than 16 us per batch of one",
             per_row > 16, f"{per_row:.0f} us",
             otherwise="Your processor is fast enough for 16 us, so this measurement cannot tell which batch size took "
                       "16 seconds.")  # fmt: skip
course.claim("batched indexing is at least twice as fast as fetching rows one by one", with_batch > 2 * batched,
             f"{with_batch / batched:.1f} times as fast")  # fmt: skip
for name in (ONE_ROW, "TensorDataset, 2 workers"):
    del loaders[name]  # and its processes

# %% [markdown]
# A million rows in 16 seconds are 16 µs each. More workers share the fetching, but the main process collects every
# batch by itself. What it computes for a batch of one row, no worker can take from it: so 16 seconds are the script's
# batches of 2,048, not the snippet's of one.
#
# With a batch size the rows are still fetched one by one, `dataset[i]` for each i, then stacked. Workers do it in
# parallel, but what they made goes through shared memory that is fresh for every batch. *Batched indexing* hands the
# sampler's whole list to the dataset: `sampler=BatchSampler(...)`, `batch_size=None`. (A dataset of your own can do the
# same with a method `__getitems__`.) It copies all rows of a batch in one call, into memory that it asks for anew.
# Where it is not twice as fast, the rows are so long that copying them takes longer than finding them.

# %%
plots.record_file()

# %% [markdown]
# ## A file made for reading
#
# **Rows of one size stand at places that can be computed; a file of them needs no index, no parsing and no copy.**
#
# A loader that shuffles must know where row i begins. In a *record file* this is one multiplication. (The figure above
# shows one. Its *pages* are groups of rows, which part 2 reads as a whole; they are not the memory pages below, and
# the file does not know them.) The file begins with a header of 4,096 bytes: one JSON object in ASCII, then spaces,
# and a newline as the last byte.
#
# ```
# {"format": "course-records-1", "rows": N, "columns": D, "stride": S, "dtype": "float32", "seed": seed}
# ```
#
# N and D are ints from 1, the seed is an int from 0 (6.0 and `true` are no ints). A header lacks no key; a reader may
# ignore other keys or refuse them.
#
# From byte 4096 on stand N rows of S bytes: D little-endian float32 values x, one float32 value y, and zeros up to
# S. So one copy brings x and y. The *stride* S is chosen by the system's unit of reading, the *memory page* of 4,096
# bytes. It has a price: 1,023 columns fill a memory page, 1,024 take two.

# %%
plots.record_rows()

# %% [markdown]
# The file is read through a *mapping*: the system gives it a range of addresses, and fetches a memory page from the
# disk when somebody touches it. What was fetched stays in the *page cache* while there is room, and all processes that
# map the file share it. The mapping here is *private*: what you write into it changes neither the file nor what others
# see. Linux counts it as if all of it were going to be written to, and refuses one that is larger than memory, unless
# the flag `NORESERVE` is given. (`torch.from_file` maps a file, too, but only from its first byte on.)
#
# A file that takes minutes to write will now and then be cut off: by Ctrl-C, a full disk, a machine that is taken
# away. So it is written under another name, and gets its own in one step when it is whole: `os.replace` is *atomic*,
# everybody sees the old file or the new one.

# %% [markdown]
# ### Exercise 1 · Bytes from row to row
#
# Compute the stride of a record file, an int.
#
# **Must**
# - hold `columns` values x and one value y, of 4 bytes each;
# - up to 4,096 bytes: the smallest power of two with room for the row, so that no row crosses a border of memory pages;
# - longer rows: the smallest multiple of 4,096 with room for the row.
#
# **Raises** ValueError if `columns` is below 1.
#
# **Points** 2 · **Extra** · **Difficulty** ●○○ · **Minutes** 10 · **Lines** 5
#
# **Source** Leclerc et al. 2023, section 3 (rows in pages); `man 2 mmap` (a mapping consists of whole pages).
#
# <details><summary>Hint 1</summary>
#
# What is the stride of 1023 columns, of 1024, and of 3?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# With whole numbers there is nothing to round: `-(-a // b)` is a / b rounded up. `1 << (n - 1).bit_length()` is the
# smallest power of two that is at least n. Why the - 1?
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# With `row = 4 * (columns + 1)`: `1 << (row - 1).bit_length()` if `row` is at most 4096, else
# `-(-row // 4096) * 4096`.
#
# </details>


# %% solution="row_stride"
def row_stride(columns):
    """Bytes from one row of a record file to the next, an int.

    Args:
        columns: values x of a row, an int; one value y comes after them, 4 bytes each.

    Raises: ValueError if `columns` is below 1.
    """
    ### BEGIN SOLUTION
    if columns < 1:
        raise ValueError(f"asked for {columns} columns; a row has at least 1.")
    row = 4 * (columns + 1)
    return min(4 << columns.bit_length(), -(-row // PAGE) * PAGE)  # the power of two is the larger one above PAGE
    ### END SOLUTION


# %% test="row_stride-visible" points=1
check.row_stride(row_stride)

# %% test="row_stride-hidden" points=1
### BEGIN HIDDEN TESTS
check.row_stride(row_stride, seed=611)
### END HIDDEN TESTS

# %% [markdown]
# `run_ranks(fn, n, ...)` of `course.parallel.distributed` starts n processes, the ranks, and calls `fn(rank, n)` in
# each. `fn` may be a closure; what it refers to is sent along.
#
# ### Exercise 2 · Write whole or not at all
#
# Write a record file with several processes.
#
# **Must**
# - make a temporary file beside `path`, of full length before a writer starts; its name begins with a dot and holds the
#   process id;
# - share the rows out among ranks: `run_ranks(fn, writers, backend="gloo", timeout=HOUR)`;
# - read each row once, in slices of `source.x` and `source.y`: at most `CHUNK` bytes of x, or one row;
# - call `os.fsync` on the file, rename it to `path` in one step, return `path`;
# - if anything fails, Ctrl-C included: leave `path` as it was, no temporary file.
#
# **You may assume** that `source` is cheap to send (its `x` and `y` are not).
#
# **Points** 6 · **Extra** · **Difficulty** ●●● · **Minutes** 50 · **Lines** 25
#
# **Source** `man 2 rename` (the new name appears atomically), `man 2 fsync`.
#
# <details><summary>Hint 1</summary>
#
# Where in the file does row i begin? Is there a byte that two writers both write? What do you do in which order,
# and which of these steps can fail?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `json.dumps(header).encode().ljust(4095) + b"\n"` is the header, `file.truncate(length)` gives a file its length.
# Rank r of n may take the rows from `rows * r // n` up to `rows * (r + 1) // n`. A file opened with mode `"rb+"`
# keeps what is in it; `seek` goes to a place, `write` takes a NumPy array. A function inside of yours that a rank
# calls takes along the variables that it uses. `finally` is for what must happen in any case.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# In a rank, for each chunk from `start` to `end`: `values = np.zeros((end - start, stride // 4), "<f4")`, then
# `values[:, :columns] = source.x[start:end]`, `values[:, columns] = source.y[start:end]`, and write it; a chunk has
# `max(1, 2**24 // stride)` rows. In your own process: `try:` make the file, `run_ranks`, `os.fsync`, `os.replace`;
# `finally:` `temporary.unlink(missing_ok=True)`, which finds nothing to remove where all went well.
#
# </details>


# %% solution="write_records"
def write_records(path, source, writers=2):
    """Path of the record file of `source`, written by `writers` processes, whole or not at all.

    Args:
        path: str or Path of the file, in a folder that is there; a file that is there is replaced.
        source: has rows, columns and seed, ints of 1 or more (seed of 0 or more), and x (rows, columns) and
            y (rows,), array-likes to slice; a `course.datasets.regression.Regression` is one.
        writers: number of ranks, 1 or more, also more than rows.

    Returns: `path` as a Path.  Raises: what a step or a writer raises; `path` is then what it was before.
    """
    ### BEGIN SOLUTION
    path, columns = Path(path), source.columns
    stride = min(4 << columns.bit_length(), -(-4 * (columns + 1) // PAGE) * PAGE)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")  # same folder: the last step is a rename

    def write_range(rank, world_size):
        first, last = (source.rows * r // world_size for r in (rank, rank + 1))
        step = max(1, CHUNK // stride)
        with open(temporary, "rb+") as file:
            file.seek(PAGE + first * stride)
            for start in range(first, last, step):
                chunk = slice(start, min(start + step, last))
                values = np.zeros((chunk.stop - start, stride // 4), "<f4")
                values[:, :columns], values[:, columns] = source.x[chunk], source.y[chunk]
                file.write(values)

    header = {"format": FORMAT, "rows": source.rows, "columns": columns, "stride": stride}
    header |= {"dtype": "float32", "seed": source.seed}
    try:
        with open(temporary, "wb") as file:
            file.write(json.dumps(header).encode().ljust(PAGE - 1) + b"\n")
            file.truncate(PAGE + source.rows * stride)
        run_ranks(write_range, writers, backend="gloo", timeout=HOUR)
        with open(temporary, "rb") as file:
            os.fsync(file.fileno())  # before the rename: else a power cut could leave the name without the rows
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    return path
    ### END SOLUTION


# %% test="write_records-visible" points=3
check.write_records(write_records)

# %% test="write_records-hidden" points=3
### BEGIN HIDDEN TESTS
check.write_records(write_records, seed=274)
### END HIDDEN TESTS

# %% [markdown]
# ### Exercise 3 · Open it without reading it
#
# Write the reader of a record file.
#
# **Must**
# - map the file privately, with `NORESERVE`, and copy nothing: `table` (N, S // 4), `x` (N, D) and `y` (N,) are float32
#   tensors on the mapping;
# - have `rows`, `columns`, `seed`; `len()` is `rows`.
#
# **Raises** FileNotFoundError as `open` does; ValueError with the path if the file is no record file, and if
# - a key is missing, or format, dtype or stride is wrong: with key and value;
# - it has not 4096 + N S bytes, even if cut off in its header: with both lengths.
#
# **Points** 6 · **Extra** · **Difficulty** ●●○ · **Minutes** 45 · **Lines** 25
#
# **Source** `man 2 mmap`; Linux, "Overcommit Accounting"; `torch.frombuffer`.
#
# <details><summary>Hint 1</summary>
#
# Which calls of NumPy and torch make a tensor of memory that is there already, and which copy it? Which exceptions
# come out of `json.loads` and of `header["rows"]`, and do they name the file?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `mmap.mmap(file.fileno(), 0, flags=mmap.MAP_PRIVATE | NORESERVE)` maps the whole file, to be read and written, and
# the file may be closed then. A JSONDecodeError is a ValueError, so `except ValueError` catches it, but it does not
# know the path. A file that is cut off within its header may hold the whole JSON object nevertheless.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# `torch.frombuffer(mapping, dtype=torch.float32, offset=4096)` are the rows as one long tensor; `.view(rows, -1)`
# makes the table of it, `table[:, :columns]` is x. Before: take each key out of the header in a `try` with `except
# KeyError as error`, compare the stride with that of its columns, and `4096 + rows * stride` with
# `os.fstat(file.fileno()).st_size`.
#
# </details>


# %% solution="Records"
class Records:
    """A record file as tensors, mapped and not copied.

    Args:
        path: str or Path of the file.

    `rows`, `columns` and `seed` are ints.  `table` is a float32 tensor (rows, stride // 4) on the mapped file; `x`
    (rows, columns) and `y` (rows,) are views of it.  Writing into them does not change the file.

    Raises: FileNotFoundError if there is no file; ValueError with the path and what is wrong if it is no whole record
        file.
    """

    def __init__(self, path):
        ### BEGIN SOLUTION
        with open(path, "rb") as file:
            self.rows, self.columns, self.seed = self._checked(path, file)
            mapping = mmap.mmap(file.fileno(), 0, flags=mmap.MAP_PRIVATE | NORESERVE)
        self.table = torch.frombuffer(mapping, dtype=torch.float32, offset=PAGE).view(self.rows, -1)
        self.x, self.y = self.table[:, : self.columns], self.table[:, self.columns]

    def _checked(self, path, file):
        """(rows, columns, seed) of the header, which fits the file.  Raises: ValueError."""
        try:
            header = json.loads(file.read(PAGE))
            rows, columns, seed = (header[key] for key in ("rows", "columns", "seed"))
            found = {key: header[key] for key in ("format", "dtype", "stride")}
        except KeyError as error:
            raise ValueError(f"the header of {path} has no key {error}.") from None
        except (ValueError, TypeError):  # no JSON, or none in braces
            raise ValueError(f"{path} is no record file: it does not begin with a header in JSON.") from None
        stride = min(4 << columns.bit_length(), -(-4 * (columns + 1) // PAGE) * PAGE)
        for key, asked in (("format", FORMAT), ("dtype", "float32"), ("stride", stride)):
            if found[key] != asked:
                raise ValueError(f"the {key} of {path} is {found[key]!r}, and should be {asked!r}.")
        size, asked = os.fstat(file.fileno()).st_size, PAGE + rows * stride
        if size != asked:
            raise ValueError(f"{path} has {size} bytes, its header asks for {asked}; write it anew.")
        return rows, columns, seed
        ### END SOLUTION

    def __len__(self):
        """The number of rows."""
        ### BEGIN SOLUTION
        return self.rows
        ### END SOLUTION


# %% test="Records-visible" points=3
check.Records(Records)

# %% test="Records-hidden" points=3
### BEGIN HIDDEN TESTS
check.Records(Records, seed=883)
### END HIDDEN TESTS

# %% [markdown]
# **Predict**: how many milliseconds does it take to open the whole file? And how many times as fast as one writer are
# two? (A writer draws its rows, converts them and writes them.) Writers are timed on a part of the rows.

# %%
predicted_open = None  # milliseconds
predicted_writers = None  # times

# %% tags=["experiment"]
write_records_now, Records_now = course.solved(check.write_records), course.solved(check.Records)
part = dataclasses.replace(data, rows=min(data.rows, sizes.rows_written))
sample, path = data.folder / "sample", data.folder / regression.RECORDS
writing = seconds_in_turn(
    {n: lambda n=n: write_records_now(sample, part, n) for n in (1, 2)}, rounds=min(3, sizes.rounds)
)
part_bytes = sample.stat().st_size
sample.unlink()
for n, taken in writing.items():
    low, middle, high = (part_bytes / GIGA / taken.quantile(q).item() for q in (1, 0.5, 0))
    print(f"{counted(n, 'writer')}: {middle:.3g} GB/s ({low:.3g} to {high:.3g})")
faster = (writing[1] / writing[2]).median().item()
course.claim("two writers are faster than one, but not twice as fast", 1 < faster < 2,
             f"{faster:.2f} times" + reveal(predicted_writers),
             otherwise="Waiting for the disk, or starting the ranks, takes most of the time.")  # fmt: skip
if not path.exists():
    write_records_now(path, data)
before = usage.private_bytes()
start = time.perf_counter()
records = Records_now(path)
milliseconds = 1000 * (time.perf_counter() - start)
print(f"opened in {milliseconds:.1f} ms" + reveal(predicted_open), f"for {records.table.nbytes / GIGA:.2f} GB;",
      f"memory beyond the file: {(usage.private_bytes() - before) / 1e6:.1f} MB")  # fmt: skip
last = records.rows - 1
print("the last row is the source's:", np.array_equal(records.x[last], data.x[last]), float(records.y[last]))
course.claim("opening the file takes less than a tenth of the time of reading it at 10 GB/s",
             milliseconds < 1000 * path.stat().st_size / 10 / GIGA / 10, f"{milliseconds:.2f} ms",
             otherwise="The file is so small that reading it takes hardly longer than opening it.")  # fmt: skip

# %% [markdown]
# Opening reads one page of header, however long the file is; rows are read when they are touched. A second writer helps
# with what costs processor time (drawing, converting, copying into the page cache); both wait for the same disk in
# `fsync`, and for one start of the ranks.
#
# Where a file lies decides how fast it is read. Reading it twice shows the page cache; between two readings
# `drop_cached` takes it out of the cache, which needs no special rights (`posix_fadvise`).

# %% tags=["experiment"]
some_bytes = min(path.stat().st_size, 10**9)


def from_disk():
    drop_cached(path)
    read_file(path, some_bytes)


DISK = "reading the file, disk"
reading = seconds_in_turn(
    {MEMCPY: memcpy_of(some_bytes), ALL_THREADS: memcpy_of(some_bytes, None)}
    | {READING: lambda: read_file(path, some_bytes), DISK: from_disk},
    rounds=min(2, sizes.rounds),
)  # fmt: skip
show_rates(reading, some_bytes)
cold = (reading[DISK] / reading[READING]).median().item()
course.claim("reading the file from the disk takes at least twice as long as from the page cache", cold > 2,
             f"{cold:.1f} times as long",
             otherwise="The system cannot drop a file from its cache, or the disk is as fast as the "
                       "cache.")  # fmt: skip

# %% [markdown]
# These are the four yardsticks of the unit. All that follows in this part reads from the page cache; part 3 starts from
# the disk.

# %% [markdown]
# ## A batch without a detour
#
# **A batch is written once, by one call, into memory that is already there.**
#
# The rows of a random batch lie anywhere in `table`; somebody has to copy them together. `table[index]` does it, but
# first asks for a new tensor. Large blocks of memory come from the system, which hands out a promise: the first write
# to each memory page stops the program until the system has found a free page and filled it with zeros. That is a *page
# fault*. Small blocks are reused by the allocator. Which of the two happens to a batch is counted below.
#
# A buffer that is made once has another use: a GPU copies from main memory by itself only if the memory is *pinned*,
# which is too slow to do for each batch. Part 3 uses that.

# %% [markdown]
# ### Exercise 4 · Gather a batch
#
# Copy the rows of a batch into a buffer that exists already.
#
# **Must**
# - put row `index[i]` of `table` into `out[i]`, leave further rows as they are;
# - return the first rows of `out` as a view;
# - copy each row once, straight into `out`; make no call per row.
#
# **You may assume** that all tensors are on the CPU. An index may hold a number several times, or none.
#
# **Raises** ValueError if `out` has too few rows, or another row length or dtype than `table`; `out` is then unchanged.
# Any exception for a number below 0 or above N - 1; rows of `out` may then have changed.
#
# **Points** 3 · **Core** · **Difficulty** ●○○ · **Minutes** 15 · **Lines** 4
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
# `torch.index_select(table, 0, index, out=...)` copies whole rows straight into `out`, in a loop of torch's own.
# But if `out` has not exactly the shape of the result, torch *resizes* it and only warns: a smaller one gets other
# memory than the buffer of the loader, a larger one shrinks. Which shape must you pass?
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# Check `len(out)`, `out.shape[1:]` and `out.dtype` first. Then `return torch.index_select(table, 0, index,
# out=out[:n])`: it returns what it was given as `out`.
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
    ### BEGIN SOLUTION
    n = len(index)
    if len(out) < n or out.shape[1:] != table.shape[1:] or out.dtype != table.dtype:
        raise ValueError(f"{n} rows of {table.shape[1]} {table.dtype} do not fit into {tuple(out.shape)} {out.dtype}.")
    return torch.index_select(table, 0, index, out=out[:n])
    ### END SOLUTION


# %% test="gather-visible" points=1
check.gather(gather)

# %% test="gather-hidden" points=2
### BEGIN HIDDEN TESTS
check.gather(gather, seed=418)
### END HIDDEN TESTS

# %% [markdown]
# **Predict**: how many times as fast as `table[list]` is a gather into the same buffer, for batches of 8 MiB and of 34
# MiB? Each call gathers other rows.

# %%
predicted_gather = None  # 8 MiB
predicted_gather_large = None  # 34 MiB

# %% tags=["experiment"]
gather_now = course.solved(check.gather)
table = records.table
LIST, NEW, INTO = "table[list]", "index_select into a new tensor", "gather into a buffer"


def ways_of(n_rows, count=8):
    """{name: function} of ways to put `n_rows` random rows together, other rows in each call."""
    drawn = itertools.cycle([torch.randint(len(table), (n_rows,)) for _ in range(count)])
    lists, buffer = itertools.cycle([next(drawn).tolist() for _ in range(count)]), torch.empty(n_rows, table.shape[1])
    return {
        LIST: lambda: table[next(lists)],
        "table[tensor]": lambda: table[next(drawn)],
        "torch.stack of single rows": lambda: torch.stack([table[i] for i in next(lists)]),
        NEW: lambda: torch.index_select(table, 0, next(drawn)),
        INTO: lambda: gather_now(table, next(drawn), buffer),
    }


def page_faults(call, times=10):
    """Page faults per call, which the system counts for the whole process; the first calls do not count."""
    call(), call()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(times):
        call()
    return (resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) / times


gains, of_buffer, faults, pages = [], [], [], []
for n_bytes in sizes.gathered:
    n_rows = n_bytes // (4 * table.shape[1])
    ways = ways_of(n_rows)
    taken = seconds_in_turn(ways, rounds=10 * min(3, sizes.rounds))
    print(f"batches of {n_rows:,} rows, {n_bytes / 1e6:.1f} MB, {n_bytes // mmap.PAGESIZE:,} memory pages")
    show_rates(taken, n_rows * 4 * table.shape[1])
    faults.append({name: page_faults(ways[name]) for name in (NEW, INTO)})
    print("page faults per batch:", ", ".join(f"{name} {count:,.0f}" for name, count in faults[-1].items()) + "\n")
    gains.append((taken[LIST] / taken[INTO]).median().item())
    of_buffer.append((taken[NEW] / taken[INTO]).median().item())
    pages.append(n_bytes / mmap.PAGESIZE)
print(f"gather over table[list]: {gains[0]:.1f} times as fast" + reveal(predicted_gather)
      + f", large batches {gains[1]:.1f}" + reveal(predicted_gather_large))  # fmt: skip

# %% tags=["experiment"]
course.claim("gathering into a buffer is faster than table[list], at both batch sizes", min(gains) > 1,
             f"{gains[0]:.2f} and {gains[1]:.2f} times",
             otherwise="The batch is so small that the fixed cost of a call dominates.")  # fmt: skip
otherwise = "Your allocator has another limit, or the system hands out pages of 2 MB."
course.claim("a new tensor for each small batch costs next to no page faults", faults[0][NEW] < 0.1 * pages[0],
             f"{faults[0][NEW]:.0f} for {pages[0]:.0f} memory pages", otherwise=otherwise)  # fmt: skip
course.claim("a new tensor for each large batch costs a page fault per memory page", faults[1][NEW] > 0.9 * pages[1],
             f"{faults[1][NEW]:.0f} for {pages[1]:.0f} memory pages", otherwise=otherwise)  # fmt: skip
course.claim("for small batches the gain over table[list] is index_select's, not the buffer's",
             of_buffer[0] < gains[0] ** 0.5, f"{of_buffer[0]:.2f} of {gains[0]:.2f} times")  # fmt: skip
course.claim("for large batches the buffer itself is worth more than for small ones", of_buffer[1] > of_buffer[0],
             f"{of_buffer[1]:.2f} against {of_buffer[0]:.2f} times")  # fmt: skip

# %% [markdown]
# `table[list]` turns the list into a tensor and takes torch's general indexing; `index_select` copies whole rows and
# nothing else. For a few megabytes that is the whole gain: the allocator hands out the memory of the last batch again,
# without a page fault. From 32 MiB on (in glibc, the usual allocator of Linux) memory goes back to the system each
# time, and a new tensor pays for every page of it; then the buffer gains too.

# %% [markdown]
# ## An epoch
#
# **The same epoch, before and after: rows in random order from a `DataLoader`, and gathered from the mapped file.**
#
# **Predict**: how many times as fast as `TensorDataset` without workers is an epoch of your gather over the file?

# %%
predicted_epoch = None

# %% tags=["experiment"]
buffer = torch.empty(sizes.batch_size, table.shape[1])


def gather_epoch():
    for index in torch.randperm(len(table)).split(sizes.batch_size):
        gather_now(table, index, buffer)


OURS = "ours: gather from the mapped file"
epoch = seconds_in_turn(
    copies | {name: one_pass(loader) for name, loader in loaders.items()} | {OURS: gather_epoch},
    rounds=sizes.rounds,
)
for name in loaders:
    epoch[name] *= data.rows / len(dataset)
show_rates(epoch, x_bytes)
gain = (epoch["TensorDataset, 0 workers"] / epoch[OURS]).median().item()
of_all = (epoch[ALL_THREADS] / epoch[OURS]).median().item()
print(f"over TensorDataset: {gain:.1f} times as fast" + reveal(predicted_epoch))
course.claim("an epoch gathered from the mapped file is at least five times as fast as TensorDataset's", gain > 5,
             f"{gain:.1f} times",
             otherwise="The rows are so long that TensorDataset spends its time copying, too.")  # fmt: skip
course.claim(
    "the gather reaches at least half the speed of memcpy with all threads",
    of_all > 0.5,
    f"{of_all:.2f} of it",
    otherwise="The file is not in the page cache, or the rows are so short that each of them waits for memory.",
)
plots.epoch_times(*(lambda others, yards: (others, x_bytes, yards))(*without_yardsticks(epoch)))

# %% [markdown]
# The gather comes close to the yardsticks, and may pass them: a buffer of a few megabytes partly stays in the
# processor's cache, while `memcpy` of the whole data writes to memory.

# %% [markdown]
# ## What to take home
#
# - Measure the yardsticks first: `memcpy` by one and by all threads, the page cache, the disk. None is a limit.
# - A file of equal rows needs no index: a place is one multiplication away, and a mapping opens it without a copy.
# - A file is written under another name and renamed when it is whole; a reader refuses what is not.
# - Rows are copied once, by one call for the whole batch; memory that exists already pays for large batches.
