# %% [markdown]
# # Fast loading
#
# **How close to the memory's own speed can a loader come?**
#
# A linear regression computes next to nothing: two products with the data, and the data is gone. So it shows what
# loading costs. This unit takes the data of a published example, FFCV's guide to large-scale linear regression
# (Leclerc et al. 2023, "FFCV: Accelerating Training by Removing Data Bottlenecks", arXiv:2306.12517), and builds what
# that library does from nothing but torch, NumPy and Python's own library: a file made for reading, orders that are
# random and yet kind to a disk, batches gathered without a detour, and a loader that reads ahead. Each part is held
# against two limits that are hard to pass: copying the same bytes in memory (`memcpy`), and reading the file.
# Then the loop itself: statistics that survive float32, a step without temporaries, and two methods that need fewer
# passes than SGD.
#
# How it works: you first write down what you expect (a cell with `None`), then solve the exercise, check it, and look
# at the measurement. A check names the first thing that is not right. If you skip an exercise, or have not run its
# check, the later cells say so and go on with the reference answer, where your folder holds it: that of a class may
# not. Run the cells from the top: the experiments build on each other. In them, `x_now` is your `x` if its check
# passed, else the reference. The cells after the checks that hold nothing are for tests that only your instructor
# sees. What the text says about measurements was seen on two cores without a GPU; say to yourself where your machine
# differs, and why.

# %% locked="setup"
import contextlib
import itertools
import json
import math
import mmap
import os
import sys
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset

import course
from course import loaders, usage
from course.checks import fast_loading as check
from course.checks import parallel_loading as unit_01
from course.copies import DeviceCopies
from course.datasets import regression
from course.distributed import run_ranks
from course.plots import fast_loading as plots

PAGE = 4096  # bytes of the header of a record file, and of a memory page
CHUNK = 1 << 24  # bytes of rows that a writer reads at a time
FORMAT = "course-records-1"
HOUR = 3600  # seconds
NORESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000 if sys.platform == "linux" else 0)  # Python has it from 3.13 on
device = course.device()
print(course.machine())
sizes = course.sizes("04_fast_loading")
GIGA = 1e9

# %% [markdown]
# ## The problem
#
# **With `x @ w` there is nothing to wait for but the data.**
#
# The guide's data: a million rows of 10,000 float32 values drawn uniformly, 40 GB; true weights `w` and an intercept
# `b`; responses `y = X w + b + noise`. The task is to find `w` and `b` by SGD on the squared residual, in batches of
# 2,048 rows, ten epochs. It reports 16 seconds an epoch with PyTorch's `TensorDataset` and 6 with FFCV, on an A100
# with eight processor cores. Forty gigabytes in six seconds are 6.7 GB/s, in sixteen 2.5 GB/s: neither is near what
# memory can do, nor the bus to the GPU. So what does the time go to?
#
# `regression.load` makes this data at any size, drawn in chunks so that it never lies in memory as a whole. X and y
# stay in files; `data.x` is an array that is read from the file where it is touched.

# %% tags=["experiment"]
data = regression.load(sizes.rows, sizes.columns)
x_bytes = 4 * data.rows * data.columns
print(f"X: {data.rows:,} rows of {data.columns:,}, {x_bytes / GIGA:.3f} GB; y = X w + {data.b:.3f} + noise")

# %% [markdown]
# ## The limits
#
# **No loader is much faster than a copy of the same bytes, and none that starts from a cold file is faster than
# reading it.**
#
# A batch of random rows has to be put together somewhere, so every byte is read and written once: that is what
# `memcpy` does, and nothing does it faster in general. A file is read from the *page cache* if the system still has
# it in memory, else from the disk. Both are measured here once and drawn into every figure of time in this unit.
# (Reading fills one small buffer again and again, which stays in the processor's cache; so with the file in the
# page cache it can be the faster of the two.)
#
# All contestants of this unit take turns, round after round, and in each turn the first of two runs does not count.
# `sweep` is from unit 01; if you solved it in this session it is yours, else the reference.


# %% tags=["experiment"]
def told(prediction, form="{}"):
    """What the learner predicted, in brackets, or nothing."""
    return "" if prediction is None else f"   (you said {form.format(prediction)})"


sweep_now = course.solved(unit_01.sweep)


def timed(contestants, rounds=None):
    """{name: seconds of each round} of {name: function}; each time the first of two calls does not count."""

    def seconds(name):
        contestants[name]()  # not timed: the others have taken the caches
        start = time.perf_counter()
        contestants[name]()
        return time.perf_counter() - start

    return dict(zip(contestants, sweep_now(seconds, list(contestants), rounds or sizes.rounds), strict=True))


def show_times(seconds, nbytes=None):
    for name, taken in seconds.items():
        middle = taken.median().item()
        print(f"{name:<46} {1000 * middle:8.1f} ms {(nbytes or x_bytes) / middle / GIGA:7.2f} GB/s")


def read_file(path, n_bytes):
    buffer = bytearray(2**18)  # small enough to stay in the processor's cache
    with open(path, "rb", buffering=0) as file:
        while n_bytes > 0:
            n_bytes -= file.readinto(buffer)


def memcpy_of(n_bytes):
    """A function that copies `n_bytes` in memory, with one thread, at most 400 MB at a time."""
    part = min(n_bytes, 400_000_000) // 4
    source, target = torch.ones(part), torch.zeros(part)

    def copy():
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        for _ in range(round(n_bytes / 4 / part)):
            target.copy_(source)
        torch.set_num_threads(threads)

    return copy


x_file = data.folder / "x.npy"
limits = timed({"memcpy, one thread": memcpy_of(x_bytes), "reading the file": lambda: read_file(x_file, x_bytes)})
show_times(limits)
limits = {name: taken.median().item() for name, taken in limits.items()}

# %% [markdown]
# ## The standard way, and what is wrong with the comparison
#
# **`TensorDataset` with a `DataLoader` fetches rows one by one; half of its bad name comes from a forgotten
# argument.**
#
# The guide's loader is `DataLoader(TensorDataset(x, y), num_workers=8, shuffle=True)`. It says nothing of a batch
# size, so each batch is one row, while FFCV's gets 2,048. Predict: how many times as long as one `memcpy` does an
# epoch take, with batches of one row, and with the batch size mended?

# %%
predicted_one_by_one = None  # times memcpy
predicted_tensor_dataset = None

# %% tags=["experiment"]
memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")  # of this machine
held = min(data.rows, memory // (12 * data.columns))  # rows that TensorDataset gets: a third of the memory at most
if held < data.rows:
    print(f"X has no room in memory: TensorDataset gets {held:,} rows, and its times are scaled up")
x, y = torch.from_numpy(np.array(data.x[:held])), torch.from_numpy(np.array(data.y[:held]))
dataset = TensorDataset(x, y)


def iterate(loader):
    for _ in loader:
        pass


def each(loader):
    return lambda: iterate(loader)


few = TensorDataset(x[: sizes.one_by_one], y[: sizes.one_by_one])
standard = {
    "batches of one row (a part of them, scaled up)": each(DataLoader(few, shuffle=True)),
    "TensorDataset, 0 workers": each(DataLoader(dataset, sizes.batch_size, shuffle=True)),
    "TensorDataset, 2 workers": each(
        DataLoader(dataset, sizes.batch_size, shuffle=True, num_workers=2, multiprocessing_context="fork")
    ),
    "TensorDataset, batched indexing": each(
        DataLoader(dataset, sampler=BatchSampler(RandomSampler(dataset), sizes.batch_size, False), batch_size=None)
    ),
}
standard = timed(standard, rounds=min(3, sizes.rounds))
rows_of = {name: len(few) if "one row" in name else held for name in standard}
standard = {name: taken * data.rows / rows_of[name] for name, taken in standard.items()}
show_times(standard)
in_memcpys = {name: taken.median().item() / limits["memcpy, one thread"] for name, taken in standard.items()}
one_row, with_batch, *_ = in_memcpys.values()
print(f"\nin units of memcpy: one row {one_row:.0f}" + told(predicted_one_by_one))
print(f"             batches of {sizes.batch_size}, no workers {with_batch:.1f}" + told(predicted_tensor_dataset))

# %% [markdown]
# With batches of one row, Python is all there is. With the batch size mended the rows are still fetched one by one,
# `dataset[i]` for each i, then stacked: two thousand small tensors a batch. Workers do it in parallel, but what
# they made is copied once more, through shared memory that is fresh for every batch. *Batched indexing* hands the
# sampler's whole list to the dataset, which PyTorch has allowed for years and few use: `sampler=BatchSampler(...)`,
# `batch_size=None`. It copies all rows of a batch in one call, into memory that it asks for anew.

# %% [markdown]
# # Part 1: The file

# %%
plots.record_file()

# %% [markdown]
# ## A file made for reading
#
# **Rows of one size stand at places that can be computed; a file of them needs no index, no parsing and no copy.**
#
# A loader that shuffles asks for rows in any order, so it must know where row i begins. In a *record file* this is
# one multiplication. The file begins with a header of 4096 bytes: one JSON object in ASCII, then spaces, and a
# newline as the last byte.
#
# ```
# {"format": "course-records-1", "rows": N, "columns": D, "stride": S, "dtype": "float32", "seed": seed}
# ```
#
# From byte 4096 on stand N rows of S bytes: D little-endian float32 values x, one float32 value y, and zeros up to
# S. So x and y of a row lie side by side, and one copy brings both. The *stride* S, the bytes from one row to the
# next, is chosen by the system's unit of reading, the *memory page* of 4096 bytes: a row that crosses the border of
# two memory pages needs both of them in memory. (A "page" alone will mean something else in this unit.)
#
# The file is read through a *mapping*: the system gives it a range of addresses, and fetches a memory page from the
# disk when somebody touches it. What has been fetched stays in the *page cache* while there is room, and all
# processes that map the file share it. No byte is copied to open the file, whatever its size.
#
# A file that takes minutes to write will now and then be cut off: by Ctrl-C, a full disk, a machine that is taken
# away. If half a file under the right name were found later, a training would run on garbage without a word. So it
# is written under another name, and gets its own in one step when it is whole: `os.replace` is *atomic*, everybody
# sees the old file or the new one.

# %% [markdown]
# ### Exercise 1 · Bytes from row to row
#
# Compute the stride of a record file.
#
# **Points** 2 · **Difficulty** ●○○ · **Minutes** 10 · **Lines** 5
#
# **Convention** A row holds `columns` values x and one value y of 4 bytes each. If that is at most 4096 bytes, the
# stride is the smallest power of two that has room for it: powers of two divide 4096, so no row crosses a border of
# memory pages. A longer row has to cross some; its stride is the smallest multiple of 4096 that has room for it.
# The stride is an int. `columns` below 1 raise a ValueError.
#
# **Source** Leclerc et al. 2023, "FFCV: Accelerating Training by Removing Data Bottlenecks", section 3 (rows in
# pages); `man 2 mmap` (a mapping consists of whole pages).
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
# ### Exercise 2 · Write whole or not at all
#
# Write a record file with several processes at once, so that nobody ever sees half of it.
#
# **Points** 6 · **Difficulty** ●●● · **Minutes** 45 · **Lines** 25
#
# **Convention** `source` has `rows`, `columns`, `seed`, and the array-likes `x` (rows, columns) and `y` (rows,),
# which stay on the disk: slice them, and what comes back is a NumPy array. It can be sent to another process
# cheaply; `x` and `y` themselves cannot, they would be sent whole. A slice of `x` has at most 16 MB (2**24 bytes),
# or one row where a row is longer. Values of another type are converted to float32.
#
# You make the temporary file in the folder of `path`, with a name that begins with a dot, and give it its full
# length before a writer starts. The writers are ranks: `run_ranks(fn, n, backend="gloo", timeout=...)` calls
# `fn(rank, n)` in n processes, and `fn` may be a function inside of yours; give them an hour (3600) or more. You may
# call your `row_stride`. The rows are shared out among them, so that each has some, unless there are fewer
# rows than writers. Each row is read by one of them, which writes it at its place in the temporary file. When all
# have ended, you sync the file to the disk with `os.fsync`, and then it becomes `path`. The folder is there.
#
# Whatever fails, in a writer or in your own process, Ctrl-C included: `path` is what it was, no temporary file is
# left, and the error comes out as it is. After a `kill -9`, which lets nobody clean up, only the temporary file may
# be left.
#
# **Source** The header and the rows stand above. `man 2 rename` (the new name appears atomically), `man 2 fsync`.
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
# Write the reader: tensors that are the file, and a clear word for every file that is not one.
#
# **Points** 6 · **Difficulty** ●●○ · **Minutes** 35 · **Lines** 25
#
# **Convention** `rows`, `columns`, `seed` are ints, `len()` is `rows`. `table` (N, S // 4), `x` (N, D) and `y` (N,)
# are float32 tensors on one mapping of the file; nothing of it is copied or read in advance. Who writes into them
# changes neither the file nor what others see of it: the mapping is *private*, a memory page that is written to is
# copied at that moment. Linux counts such a mapping as if all of it were going to be written to, and refuses one
# that is larger than the memory, unless the flag `NORESERVE` of the first cell is given. On Linux it is given here.
#
# A missing file is the FileNotFoundError that `open` raises. Every other file, not a folder, that is no whole record
# file raises a ValueError, whose message holds the path and
#
# - the key, where the header has all but one of the keys;
# - the name of the key and the value found, where the format, the dtype or the stride is another than that of the
#   section above;
# - the bytes that the file has and those that it should have, where it is shorter or longer than its header says.
#
# Rows and columns are whole numbers of 1 or more, the seed is one of 0 or more, the stride is a whole number, also in
# a header that was tampered with: no 6.0, and not JSON's true, which Python takes for 1. The newline is there.
#
# **Source** `man 2 mmap` (MAP_PRIVATE, MAP_NORESERVE); Linux's documentation, "Overcommit Accounting"; PyTorch's
# documentation of `torch.frombuffer`.
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
            content = file.read(PAGE)
            header = json.loads(content)
            rows, columns, seed = sizes = [header[key] for key in ("rows", "columns", "seed")]
            found = {key: header[key] for key in ("format", "dtype", "stride")}
        except KeyError as error:
            raise ValueError(f"the header of {path} has no key {error}.") from None
        except (ValueError, TypeError, RecursionError):  # no JSON, or none in braces, or a page of brackets
            raise ValueError(f"{path} is no record file: it does not begin with a header in JSON.") from None
        if any(type(size) is not int for size in sizes) or rows < 1 or columns < 1 or seed < 0:
            raise ValueError(f"the header of {path} speaks of {rows!r} rows, {columns!r} columns, seed {seed!r}.")
        stride = min(4 << columns.bit_length(), -(-4 * (columns + 1) // PAGE) * PAGE)
        for key, asked in (("format", FORMAT), ("dtype", "float32"), ("stride", stride)):
            if found[key] != asked or type(found[key]) is not type(asked):
                raise ValueError(f"the {key} of {path} is {found[key]!r}, and should be {asked!r}.")
        size, asked = os.fstat(file.fileno()).st_size, PAGE + rows * stride
        if size != asked:
            raise ValueError(f"{path} has {size} bytes, its header asks for {asked}; write it anew.")
        if not content.endswith(b"\n"):
            raise ValueError(f"the header of {path} does not end with a newline.")
        return sizes
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
# Write the file, and look how long it takes to open. Predict: how many milliseconds?

# %%
predicted_open = None  # milliseconds

# %% tags=["experiment"]
write_records_now, Records_now = course.solved(check.write_records), course.solved(check.Records)
path = data.folder / "records"
write_records_now(path, data)  # not timed: the first ranks of a session take seconds to start
for writers in (1, 2):
    start = time.perf_counter()
    write_records_now(path, data, writers)
    seconds = time.perf_counter() - start
    print(f"{writers} writers: {seconds:.2f} s, {path.stat().st_size / seconds / GIGA:.2f} GB/s")
before = usage.private_bytes()
start = time.perf_counter()
records = Records_now(path)
milliseconds = 1000 * (time.perf_counter() - start)
print(f"opened in {milliseconds:.1f} ms" + told(predicted_open), f"for {records.table.nbytes / GIGA:.2f} GB;",
      f"memory beyond the file: {(usage.private_bytes() - before) / 1e6:.1f} MB")  # fmt: skip
last = records.rows - 1
print("the last row is the source's:", np.array_equal(records.x[last], data.x[last]), float(records.y[last]))

# %% [markdown]
# Opening reads one page of header. Rows are read when they are touched, and stay in the page cache as long as the
# system has room: a second epoch finds them there, and so does another process. The disk decides the speed of
# writing; a second writer helps where the one was busy drawing, converting or copying, not where the disk is the
# limit.

# %% [markdown]
# # Part 2: The copy

# %% [markdown]
# ## A batch without a detour
#
# **A batch is written once, into memory that is already there.**
#
# The rows of a random batch lie anywhere in `table`; somebody has to copy them together. `table[index]` does it,
# but first asks for a new tensor. 2,048 rows of 16 KB are 32 MB, which the usual allocator of Linux gets from the
# system and gives back when the batch is dropped, in every step. And what the system gives is a promise. The first
# write to each memory page of 4096 bytes stops the program; the system looks for a free page, fills it with zeros,
# enters it into the tables of the process, and lets the program go on. That is a *page fault*, here up to 8,192 of
# them for each batch, and the zeros are written only to be overwritten by the rows. A buffer that is made once and
# used for every batch has its memory pages after the first one.
#
# With a GPU there is one more reason. The GPU fetches a batch from main memory by itself, while the program goes
# on, but only from memory that the system has promised to leave where it is: *pinned* memory. A batch that lies
# elsewhere is copied to a pinned buffer first, by the processor, and the program may wait for that. Pinning takes a
# call to the system and to the driver; to do it for each batch would cost more than it saves. So one makes a few
# pinned buffers and uses them again and again.

# %% [markdown]
# ### Exercise 4 · Gather a batch
#
# Copy the rows of a batch into a buffer that exists already.
#
# **Points** 3 · **Difficulty** ●○○ · **Minutes** 10 · **Lines** 4
#
# **Convention** All tensors are on the CPU, where the file is. Row `index[i]` of `table` comes to row i of `out`;
# rows of `out` beyond the batch stay as they are. What comes back is the first rows of `out` themselves, as a view.
# No row is copied on the way: all new memory of a call together stays below 64 bytes an index. Torch's operations
# (or NumPy's) are called for the whole batch: their number does not depend on its length. An index may hold a
# number several times, in any order, or none at all. Rows are counted from 0, and a negative number is as wrong as
# one that is too large: both raise an exception of any kind, `IndexError` being what torch raises by itself. An
# `out` with too few rows, with rows of another length, or of another dtype raises ValueError and stays what it was.
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
# What is the buffer worth? Predict: how many times as fast as `table[list]` is a gather into the same buffer?

# %%
predicted_gather = None

# %% tags=["experiment"]
gather_now = course.solved(check.gather)
table, some = records.table, torch.randperm(records.rows)[: sizes.batch_size]
buffer, as_list = torch.empty(sizes.batch_size, table.shape[1]), some.tolist()
ways = {
    "table[list]": lambda: table[as_list],
    "table[tensor]": lambda: table[some],
    "torch.stack of single rows": lambda: torch.stack([table[i] for i in as_list]),
    "gather into a buffer": lambda: gather_now(table, some, buffer),
}
one_batch = timed(ways, rounds=10 * sizes.rounds)
show_times(one_batch, nbytes=buffer.nbytes)
gain = (one_batch["table[list]"] / one_batch["gather into a buffer"]).median().item()
print(f"gather over table[list]: {gain:.1f} times as fast" + told(predicted_gather))

# %% [markdown]
# The copy is the same in all of them. `table[list]` first turns the list into a tensor; all but the last ask the
# system for new memory in each batch, which must be zeroed and mapped page by page before anything can be written
# to it.

# %% [markdown]
# # Part 3: The order

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
# ### Exercise 5 · A random order
#
# Write the order that all others are measured by: the row numbers that one rank reads in one epoch.
#
# **Points** 3 · **Difficulty** ●○○ · **Minutes** 10 · **Lines** 2
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
# ### Exercise 6 · A quasi-random order
#
# Write the order that reads whole pages, and still mixes them: pages shuffled, cut into windows, rows shuffled
# within a window.
#
# **Points** 6 · **Difficulty** ●●○ · **Minutes** 30 · **Lines** 10
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
# ### Exercise 7 · How random are the batches?
#
# Say with one number how far the batches of an order are from random ones.
#
# **Points** 4 · **Difficulty** ●●○ · **Minutes** 20 · **Lines** 9
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
stride = 4 * table.shape[1]
page_rows = 1 << max(0, (sizes.page // stride).bit_length() - 1)  # rows of a page, a power of two as the batch is
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
print(f"sorted values, a window of as many rows as a batch: {at_batch:.1f}" + told(predicted_bias))
window_rows = sizes.batch_size * max(1, sizes.window // (sizes.batch_size * stride))
plots.bias(bias_curves, chosen=window_rows * stride)

# %% [markdown]
# Look at the sorted values first. A batch made of whole pages is a *cluster sample*: it holds `batch / page_rows`
# independent draws instead of `batch`, so its mean scatters about `page_rows` times as much. A window of several
# batches spreads each page over them, and the bias falls. Where the file is in no order, pages cost nothing:
# **shuffle the rows once when the file is written**, and a small window is as good as a random order.

# %% [markdown]
# # Part 4: Data larger than memory
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
# ### Exercise 8 · Read pages
#
# Write the reader for a file that is larger than the memory. It is given the rows of one window of the quasi-random
# order, which are all rows of some pages, shuffled, and a buffer for them; it reads each page once.
#
# **Points** 8 · **Difficulty** ●●● · **Minutes** 50 · **Lines** 44
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
# # Part 5: The loader

# %% [markdown]
# ## Reading ahead
#
# **While a batch is computed with, the next ones can be read: one thread and a few buffers are enough.**
#
# A loop that reads a batch, computes with it, and then reads the next one takes the sum of both times. Reading and
# computing need different things, though: reading waits for the disk or copies memory, in C code that lets Python's
# lock go; computing is C code as well. So a second thread can read while the first computes, and a step takes the
# longer of the two times instead of their sum.
#
# A thread has what a process lacks: it writes into the very memory that the consumer reads, so a batch is handed
# over by its address and nothing is copied once more. And what it has is also its danger. With two buffers, one is
# read from while the other is written; if the thread were ever one turn too early, the numbers of a batch would
# change while they are computed with. No error tells of that. So everything depends on whom a buffer belongs to,
# and when: to the thread from the moment the consumer asks for the next batch, and to the consumer from the moment
# it gets it.
#
# Two buffers let the thread be one fill ahead. More of them do not make it faster on average, but even out fills
# that take longer now and then, as those of a disk do.
#
# The second difficulty is the end. A consumer may stop after three batches, by `break`, by an error, by the stop
# button of the notebook. A thread that then goes on waits for ever for a buffer that nobody gives back, keeps the
# memory of all of them, and reads a file while the next epoch reads it too. Python helps: when a generator is
# closed or no longer needed, it is continued once with the exception `GeneratorExit` at the `yield` where it
# stands, and so its `finally` runs.

# %% [markdown]
# ### Exercise 9 · Read ahead in a thread
#
# Write a generator that fills buffers in a background thread while its consumer computes with one of them.
#
# **Points** 8 · **Difficulty** ●●● · **Minutes** 60 · **Lines** 28
#
# **Convention** The generator yields `fill(item, buffer)` for each item of `work`, in order, whatever it is: None
# is a value too. All fills happen in one thread, which is started by the first `next()`. Buffers are used in turn,
# beginning with the first. What was yielded belongs to the consumer until it asks for the next; from then on its
# buffer may be filled again. The thread goes as far ahead as that allows: while the consumer holds one of k
# buffers, the k - 1 others are filled and none more. It asks `work` for an item only when a buffer is free for it,
# since `work` may be lazy and without an end. An exception of `fill` or of `work` comes out of `next()` after all
# that was filled before it: the exception itself, with its traceback, also one that is no `Exception`, such as
# SystemExit. Nothing is filled after it. (A StopIteration of `fill` is an error as well: Python lets none out of a
# generator, it arrives as a RuntimeError.) However the generator ends, at its end, by an exception, by `close()`,
# or because nobody holds it any more, the thread ends too, after the fill that it is in at most, and is waited for:
# after `close()` it is gone. What that last fill raises is nobody's any more: `close()` does not raise it. Whoever
# waits, waits without looking again and again: no `sleep`, no timeout. An interpreter that ends must not wait for
# the thread: make it a daemon, or take one of concurrent.futures, which ends them itself.
#
# **Source** Dijkstra 1965, "Cooperating sequential processes" (the bounded buffer with two semaphores); Python's
# documentation of `threading.Semaphore` and of `generator.close`.
#
# <details><summary>Hint 1</summary>
#
# There are two things to wait for: the consumer waits for a filled buffer, the thread for a free one. What can
# count each of them? And how many are free when the consumer holds item 0?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Two semaphores, `free` and `filled`, and a list of what `fill` returned. The line after the `yield` is reached
# when the consumer asks for the next: there, and nowhere earlier, a buffer becomes free. The thread must also wake
# when the consumer leaves: a flag that it looks at after every `free.acquire()`, and one more `free.release()`.
# What the thread catches it puts where the consumer finds it. (`queue.SimpleQueue` or `threading.Condition` do as
# well.)
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# The thread: `for k, item in enumerate(work):` append `fill(item, buffers[k % len(buffers)])` to `values`,
# `filled.release()`, `free.acquire()`, and `break` if the flag is set; around it `except BaseException as error:
# errors.append(error)` and `finally: filled.release()`, which stands for the end. `free` begins with one less than
# there are buffers, because the first item does not wait. The consumer: `while filled.acquire() and values:` yield
# `values.pop(0)`, then `free.release()`; in a `finally` set the flag, `free.release()`, `thread.join()`.
#
# </details>


# %% solution="read_ahead"
def read_ahead(fill, work, buffers):
    """Generator of what `fill` returns for each item of `work`, filled by one thread while the consumer computes.

    Args:
        fill: callable (item, buffer) -> value; fills the buffer, the value is usually a view of it.
        work: iterable of items, possibly lazy and without an end.
        buffers: list of 2 or more buffers, whatever `fill` understands; nothing else looks into them.

    A value is the consumer's until it asks for the next one.  `close()` ends the thread.

    Raises: ValueError if there are fewer than 2 buffers, at once or by the first next(); what `fill` and `work` raise.
    """
    ### BEGIN SOLUTION
    if len(buffers) < 2:
        raise ValueError(f"one buffer is held while another is filled: at least 2 are needed, found {len(buffers)}.")
    free, filled = threading.Semaphore(len(buffers) - 1), threading.Semaphore(0)  # less one: item 0 need not wait
    values, errors, left = [], [], threading.Event()

    def run():
        try:
            for k, item in enumerate(work):
                values.append(fill(item, buffers[k % len(buffers)]))
                filled.release()
                free.acquire()  # before the next item is asked for
                if left.is_set():
                    break
        except BaseException as error:
            errors.append(error)
        finally:
            filled.release()  # without a value: the end

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        while filled.acquire() and values:
            yield values.pop(0)
            free.release()
    finally:
        left.set()
        free.release()
        thread.join()
    if errors:
        raise errors.pop()
    ### END SOLUTION


# %% test="read_ahead-visible" points=4
check.read_ahead(read_ahead)

# %% test="read_ahead-hidden" points=4
### BEGIN HIDDEN TESTS
check.read_ahead(read_ahead, seed=337)
### END HIDDEN TESTS

# %% [markdown]
# ## The loader
#
# **A loader is the place where an order, a way to fill a buffer and a way to read ahead meet; it knows none of
# them.**
#
# Everything that is hard has its own place by now. `order(epoch)` knows random numbers: it gives the row numbers of
# an epoch. `fill(index, buffer)` knows where the rows are, in a file, in memory, in another process. `ahead` knows
# threads. So the loader knows neither files nor random numbers nor threads. It cuts the order into pieces, has them
# filled, cuts what was filled into batches, and minds when an epoch begins and ends. Because it is so small it can
# be checked, and with another `order` or `fill` it is another loader.
#
# With several ranks each has a loader of its own. Nothing in it changes: its `order` was given rank and world size,
# and gives the rows of this rank only. All ranks must agree on the epoch, and they do by themselves, because it is
# counted from 0; after a resume `set_epoch` says where to go on. Their orders may differ in length by a row, and
# then even in the number of batches, so a training that waits for all ranks in every step needs orders of one
# length.
#
# One fill may bring more rows than a batch has: a quasi-random order shuffles the rows of a window of pages, and
# the window that is filled at once may hold several batches. The buffers have as many rows as one fill brings.
#
# A batch is made of views: x is the first columns of some rows of a buffer, y the column after them. Nothing is
# copied, and that has a price: **a batch is yours only until you ask for the next one.** `list(loader)` is a list
# of views whose buffers have been filled again since, so the last rows stand in it several times and most rows not
# at all. What you want to keep, clone.

# %% [markdown]
# ### Exercise 10 · The loader
#
# Put order, filling and reading ahead together into something that a training loop can iterate over.
#
# **Points** 8 · **Difficulty** ●●● · **Minutes** 45 · **Lines** 30
#
# **Convention** One fill brings as many rows as a buffer has, R, the last one of an epoch perhaps fewer; R is a
# multiple of `batch`. `fill` is given pieces of the order that are views of it (`Tensor.split`; a loop over rows in
# Python would take longer than reading them), and one of the buffers; where in it the rows lie, what `fill` returns
# says. A batch is a tuple (x, y) of views of what `fill` returned: x (n, columns), y (n,), where n is `batch`, but
# for the last batch of an epoch, which holds what is left. A batch is the caller's until it asks for the next one,
# so nothing is copied. With one buffer `fill` is called when its rows are needed and `ahead` is not; with more, all
# filling goes through `ahead(fill, work, buffers)`, once an epoch. `len()` is the number of batches of an epoch;
# epochs do not differ in it. It asks `order` once at most, fills nothing and begins no epoch.
#
# Every `iter(loader)` begins the next epoch, at once and not with the first batch; the first is 0. `set_epoch(e)`
# makes the next one e. There is one set of buffers, so there is one running epoch: `iter(loader)` first closes what
# is still running (after a `break`, for one), and only then fills. An iterator that was closed so is at its end:
# StopIteration, also if it had not begun. `close()`, or the end of `with loader:`, closes what is running; it may
# be called at any time, and the loader can be iterated again after it. Closing an iterator closes at once the
# generator that `ahead` returned for it, and so ends its thread. What `order`, `fill` or the body of a `with`
# raises comes out, what is running is closed, and the loader can be iterated again.
#
# **Source** PyTorch's documentation of `torch.utils.data.DataLoader` and of `DistributedSampler.set_epoch` (what
# they do is copied here, but for the epoch that counts itself); Leclerc et al. 2023, "FFCV: Accelerating training
# by removing data bottlenecks" (an order, a file and preallocated buffers make a loader).
#
# <details><summary>Hint 1</summary>
#
# Which line of `__iter__` runs when `iter(loader)` is called, if there is a `yield` in it? Where must the line
# stand that closes the old iterator? And what does `list(loader)` hold, if a batch is a view of a buffer?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# A second method is the generator; `__iter__` closes the old one, counts the epoch, keeps the new generator in
# `self` and returns it. A closed generator is at its end by itself. `contextlib.closing` closes what `ahead`
# returned, however the generator is left.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# In the generator: `work = self.order(epoch).split(len(self.buffers[0]))`; with more than one buffer `filled =
# self.ahead(self.fill, work, self.buffers)`, else the generator expression `(self.fill(index, self.buffers[0]) for
# index in work)`. Then `with contextlib.closing(filled):`, for each `rows` in it, for each `part` of
# `rows.split(self.batch)`, yield `part[:, :columns], part[:, columns]`.
#
# </details>


# %% solution="Loader"
class Loader:
    """Batches (x, y) of one epoch after the other, as views of buffers.

    Args:
        order: callable (epoch) -> int64 tensor of the row numbers of that epoch, at least one, on the CPU.
        fill: callable (index, buffer) -> the rows `index` as a view of the buffer, float32 (n, S); index is int64 (n,).
        ahead: callable (fill, work, buffers) -> generator of what `fill` returns for each item of `work`; `read_ahead`
            or anything that keeps its convention.
        buffers: list of 1 or more float32 tensors (R, S), all alike, on one device.
        columns: columns of x, at most S - 1; column number `columns` is y, what comes after it is padding.
        batch: rows of a batch; R is a multiple of it.

    Raises: ValueError if R is not a multiple of `batch`.
    """

    def __init__(self, order, fill, ahead, buffers, columns, batch):
        ### BEGIN SOLUTION
        if len(buffers[0]) % batch:
            raise ValueError(f"buffers of {len(buffers[0])} rows cannot be cut into batches of {batch}.")
        self.order, self.fill, self.ahead, self.buffers = order, fill, ahead, buffers
        self.columns, self.batch = columns, batch
        self.epoch, self.batches, self.running = 0, None, None
        ### END SOLUTION

    def __len__(self):
        """The number of batches of an epoch."""
        ### BEGIN SOLUTION
        if self.batches is None:
            self.batches = math.ceil(len(self.order(self.epoch)) / self.batch)
        return self.batches
        ### END SOLUTION

    def set_epoch(self, epoch):
        """None; the next iter() begins this epoch, an int from 0 on."""
        ### BEGIN SOLUTION
        self.epoch = epoch
        ### END SOLUTION

    def __iter__(self):
        """Iterator of the batches (x, y) of the next epoch: x float32 (n, columns), y float32 (n,)."""
        ### BEGIN SOLUTION
        self.close()
        self.running = self.run(self.epoch)
        self.epoch += 1
        return self.running

    def run(self, epoch):
        """Generator of the batches of `epoch`."""
        work = self.order(epoch).split(len(self.buffers[0]))
        if len(self.buffers) > 1:
            filled = self.ahead(self.fill, work, self.buffers)
        else:
            filled = (self.fill(index, self.buffers[0]) for index in work)
        with contextlib.closing(filled):
            for rows in filled:
                for part in rows.split(self.batch):
                    yield part[:, : self.columns], part[:, self.columns]
        ### END SOLUTION

    def close(self):
        """None; the iterator that is running, if any, is at its end, and so is what reads ahead for it."""
        ### BEGIN SOLUTION
        if self.running is not None:
            self.running.close()
        ### END SOLUTION

    def __enter__(self):
        """The loader itself."""
        return self

    def __exit__(self, *error):
        """None, so that an exception goes on; what is running is closed."""
        self.close()


# %% test="Loader-visible" points=4
check.Loader(Loader)

# %% test="Loader-hidden" points=4
### BEGIN HIDDEN TESTS
check.Loader(Loader, seed=2048)
### END HIDDEN TESTS

# %% [markdown]
# ## The whole race
#
# Now all loaders over all rows, in turns, and the limits. Predict: which share of memcpy's speed do the three
# loaders of this unit reach: random order from the mapped file, quasi-random order from the mapped file, and
# quasi-random order read page by page, with nothing mapped?

# %%
predicted_random, predicted_quasi, predicted_read = None, None, None  # 1 is memcpy with one thread

# %% tags=["experiment"]
PageReader_now, Loader_now = course.solved(check.PageReader), course.solved(check.Loader)
read_ahead_now = course.solved(check.read_ahead)


def our_loader(records, order="random", rows=None, batch=None, buffers=1, threads=None, direct=False):
    """The unit's loader: gathers from the mapped file, or with `threads` reads pages, with `direct` past the cache."""
    rows, batch, floats = rows or records.rows, batch or sizes.batch_size, records.table.shape[1]

    def random(epoch):
        return random_order_now(rows, 0, epoch)

    def quasi_random(epoch):
        return quasi_random_order_now(rows, page_rows, window_rows // page_rows, 0, epoch)

    def gathered(index, out):
        return gather_now(records.table[:rows], index, out)

    fill = gathered
    if threads:
        fill = PageReader_now(path, rows, stride, page_rows, threads=threads, direct=direct).fill
    held = loaders.aligned_buffers(buffers, window_rows if threads else batch, floats)
    order = {"random": random, "quasi-random": quasi_random}[order]
    return Loader_now(order, fill, read_ahead_now, held, records.columns, batch)


contestants = {
    "ours, random": our_loader(records),
    "ours, random, read ahead": our_loader(records, buffers=2),
    "ours, quasi-random": our_loader(records, "quasi-random"),
    "ours, quasi-random, read by pages": our_loader(records, "quasi-random", threads=2),
}
try:
    past_the_cache = our_loader(records, "quasi-random", threads=2, direct=True)
    iterate(past_the_cache)
    contestants["ours, quasi-random, past the page cache"] = past_the_cache
except (OSError, ValueError) as error:
    print(f"not past the page cache: {error}")
epochs = timed({name: each(loader) for name, loader in contestants.items()})
show_times(epochs)
for name, said in zip(
    ("ours, random", "ours, quasi-random", "ours, quasi-random, read by pages"),
    (predicted_random, predicted_quasi, predicted_read),
    strict=True,
):
    print(f"{name}: {limits['memcpy, one thread'] / epochs[name].median():.2f} of memcpy" + told(said))
everything = {name: taken for name, taken in standard.items() if "one row" not in name} | epochs
plots.epoch_times(everything, x_bytes, limits)

# %% [markdown]
# Look first at the two dashed lines, then at who comes near them. The gather reads every byte once and writes it
# once, with all cores, into a buffer that is the same for every batch. A copy of everything has to write to memory,
# the buffer stays in the processor's cache: that is how a loader can stand beside `memcpy`, or pass it.
# Neighbouring rows help too: in quasi-random order a page's rows are read at about the same time. Reading by pages
# needs a system call a page, and the copy is done by the kernel; it costs more, and needs no room in memory for the
# file. What goes past the page cache runs at the disk's speed, in every epoch; that is what a file larger than
# memory costs in any case.
#
# Reading ahead gains nothing here, it even costs: the cores are busy with copying, nobody computes, and more
# buffers need more of the cache. It pays where the consumer computes somewhere else, on a GPU, or where the fill
# waits for a disk. And do not expect more from a third thread: on many machines one core alone can nearly use up
# what the memory delivers. The ratio to `memcpy` says what is left.


# %% tags=["experiment"]
def most_memory(rank, world_size, make):
    """Most bytes beyond mapped files that a loader takes in an epoch, `make` included."""
    before = usage.private_bytes()
    return max(usage.private_bytes() for _ in make()) - before


def fresh_dataset():
    return TensorDataset(torch.from_numpy(np.array(data.x[:held])), torch.from_numpy(np.array(data.y[:held])))


makers = {
    "TensorDataset, 0 workers": lambda: DataLoader(fresh_dataset(), sizes.batch_size, shuffle=True),
    "ours, random": lambda: our_loader(Records_now(path)),
    "ours, random, read ahead": lambda: our_loader(Records_now(path), buffers=2),
    "ours, quasi-random": lambda: our_loader(Records_now(path), "quasi-random"),
    "ours, quasi-random, read by pages": lambda: our_loader(Records_now(path), "quasi-random", threads=2),
}
# each in a new process: memory that another loader gave back would not be counted
memory = {name: run_ranks(most_memory, 1, make, backend="gloo")[0] for name, make in makers.items()}
plots.memory(memory, x_bytes)

# %% [markdown]
# Only the loaders that map the file need the system to have room for it: what is mapped is counted to the page cache,
# and goes when somebody else needs the memory. The one that reads by pages needs its window, whatever the size of the
# file. How does the time grow with the number of rows?

# %% tags=["experiment"]
growth = {}
for n in sizes.ladder:
    part = TensorDataset(x[:n], y[:n])  # at most the rows that are held
    growth[n] = timed(
        {
            "TensorDataset, 0 workers": each(DataLoader(part, sizes.batch_size, shuffle=True)),
            "ours, random": each(our_loader(records, rows=n)),
            "ours, quasi-random, read by pages": each(our_loader(records, "quasi-random", rows=n, threads=2)),
            "memcpy, one thread": memcpy_of(4 * n * sizes.columns),
            "reading the file": lambda n=n: read_file(x_file, 4 * n * sizes.columns),
        },
        rounds=min(3, sizes.rounds),
    )
    growth[n]["TensorDataset, 0 workers"] *= n / len(part)
curves = {name: [growth[n][name].median().item() for n in sizes.ladder] for name in growth[sizes.ladder[0]]}
plots.time_against_rows(
    sizes.ladder, {k: v for k, v in curves.items() if k not in limits}, {k: v for k, v in curves.items() if k in limits}
)

# %% [markdown]
# Lines of slope one: time is proportional to the rows, and the distance between two lines is what each loader does
# per row. Where a line bends, something has stopped fitting into a cache. It bends most where the data stops
# fitting into memory, which this unit does not do to your machine; what happens then is a question at the end.

# %% [markdown]
# # Part 6: To the GPU

# %% [markdown]
# ## Copies that nobody waits for
#
# **A GPU can receive a batch while it computes on another, if the copy is started early and the memory that it
# reads is left alone until its end.**
#
# A loader fills buffers in the computer's memory. A GPU needs a copy of them, over a bus that is slower than the
# memory on either side, and by an engine of its own, beside the cores that compute. A copy is *queued*: the call
# returns at once, and the bytes are read from the buffer later. Unit 01 let PyTorch allocate a fresh batch for each
# step. Here the buffers are used again, and that is a second reason to be careful: between queuing the copy and its
# end nobody may write into the buffer, and the loader will, as soon as it is asked for the next batch.
#
# So there are two waits, and they are different. *The GPU* waits for a copy before it computes on it; the processor
# need not, it only puts that order into the queue. *The processor* waits for a copy's end before it lets the loader
# refill the buffer. The given `course.copies.DeviceCopies` offers both:
#
# | call | what it does | who waits |
# |---|---|---|
# | `copy = copies.start(tensors)` | queues the copy of a batch, beside what is computed | nobody |
# | `copy.tensors()` | the tensors on the device; what is queued after this call begins after the copy's end | the GPU |
# | `copy.wait()` | comes back when the copy is over; the source may then be refilled | the processor |
#
# `x` and `y` are views of one buffer, padding between rows included. `start` copies that memory as a whole and
# makes the views again on the other side: one transfer, where a matrix with gaps would be gathered on the processor
# first. On the CPU `start` makes the copy at once, there is no second device.
#
# What is left is the order of these calls. When copy $i+1$ is started *after* batch $i$ was handed out, computing
# and copying take turns. When it is waited for before batch $i$ is handed out, they take turns as well. And when it
# is not waited for at all, a batch now and then holds rows of the next one, the loss looks fine, and no error is
# raised.

# %% [markdown]
# ### Exercise 11 · Copy ahead
#
# Hand out the batches of a loader on the device; while the consumer computes on one of them, the copy of the next
# is under way.
#
# **Points** 5 · **Difficulty** ●●● · **Minutes** 40 · **Lines** 18
#
# **Convention** A generator of what `tensors()` of each copy returns, in the order of the batches, all of them. It
# holds for a loader with any number of buffers, one included: a batch is refilled as soon as the next one is asked
# for, or the end is met. So each copy has been waited for by `wait()` before the loader is asked again; that
# `tensors()` was called does not mean that a copy is over. While the consumer has batch $i$, copy $i+1$ has been
# started and not been waited for, and `tensors()` of it has not been called: what the consumer computes would wait
# for it too. Then no more than these two copies are kept. Nothing is asked of the loader before the first batch is
# wanted.
#
# However the generator ends, after the last batch, because the consumer leaves early, by an error of anyone: a copy
# that is still under way is waited for, then the iterator over `batches` is closed, if it has a `close()`; it is
# closed also when a `wait` fails. An error of the loader, of `start` or of `wait` reaches the consumer; a batch
# that had been copied by then may be lost. To wait or to close twice does no harm.
#
# **Source** "CUDA semantics" in the PyTorch documentation, sections on streams and on pinned memory; PEP 342 (a
# generator that is left early).
#
# <details><summary>Hint 1</summary>
#
# For a loader with one buffer, write down the calls for three batches in the order in which they may happen: ask 0,
# start 0, ... Before which call must `wait` of copy 0 stand? And that of copy 1, if batch 0 is to be handed out
# meanwhile?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# In the steady state: ask for batch $i+1$, start its copy, hand out batch $i$, and when the consumer comes back,
# wait for copy $i+1$. The consumer who leaves early raises GeneratorExit at your `yield`: what stands in `finally`
# is run then too. `batches` may be any iterable: take its iterator once, by `iter`.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# `ready = running = None`; in `try`, for each batch: `running = copies.start(batch)`; if there is a `ready`, `yield
# ready.tensors()`; `running.wait()`; `ready = running`. After the loop hand out the last `ready`. In `finally`:
# wait for `running` if there is one, in a `try` of its own, since `wait` may fail; in the `finally` of that,
# `getattr(batches, "close", None)`, and call it if it is there.
#
# </details>


# %% solution="copy_ahead"
def copy_ahead(batches, copies):
    """A generator over the batches of `batches` on the device, each handed out while the next is being copied.

    Args:
        batches: iterable of tuples of tensors in the computer's memory; a batch may be refilled as soon as the next
            one is asked for. Its iterator may have a `close()`.
        copies: a `course.copies.DeviceCopies`, or what has a `start` like its own.

    Yields: what `tensors()` of each copy returns.
    """
    ### BEGIN SOLUTION
    batches = iter(batches)
    ready = running = None
    try:
        for batch in batches:
            running = copies.start(batch)
            if ready:
                yield ready.tensors()
            running.wait()  # asked for more, the loader refills what this copy reads
            ready = running
        if ready:
            yield ready.tensors()
    finally:  # also when the consumer leaves early
        try:
            if running:
                running.wait()
        finally:  # also when that fails
            if hasattr(batches, "close"):
                batches.close()
    ### END SOLUTION


# %% test="copy_ahead-visible" points=2
check.copy_ahead(copy_ahead)

# %% test="copy_ahead-hidden" points=3
### BEGIN HIDDEN TESTS
check.copy_ahead(copy_ahead, seed=342)
### END HIDDEN TESTS

# %% tags=["experiment"]
copy_ahead_now = course.solved(check.copy_ahead)
if device.type != "cuda":
    print("no CUDA device: nothing to copy to. On a GPU this cell measures the share of the bus that an epoch reaches.")
else:
    copies, ring = DeviceCopies(device), our_loader(records, buffers=3)
    host = torch.empty(sizes.batch_size, table.shape[1], pin_memory=True)
    on_gpu = torch.empty_like(host, device=device)
    n_batches = len(ring)

    def bus():
        for _ in range(n_batches):
            on_gpu.copy_(host, non_blocking=True)
        torch.cuda.synchronize()

    def plain():
        for bx, by in ring:
            bx.to(device), by.to(device)
        torch.cuda.synchronize()

    def ahead():
        for bx, _ in copy_ahead_now(iter(ring), copies):
            bx.sum()
        torch.cuda.synchronize()

    to_gpu = timed({"the bus alone": bus, "a copy for each batch": plain, "copies ahead": ahead})
    show_times(to_gpu)
    for name in ("a copy for each batch", "copies ahead"):
        print(f"{name}: {(to_gpu['the bus alone'] / to_gpu[name]).median():.0%} of the bus")


def on_device(loader):
    """The batches of a loader on the device: as they are on a CPU, else copied ahead."""
    return iter(loader) if device.type == "cpu" else copy_ahead_now(iter(loader), DeviceCopies(device))


# %% [markdown]
# # Part 7: The loop

# %% [markdown]
# ## Two passes over the data: statistics and the step
#
# **The statistics take one pass over the data, a step takes two over its batch, and neither needs memory that grows
# with them.**
#
# A linear model learns faster by SGD when every column of x has mean 0 and standard deviation 1. So before the
# first step somebody goes through all rows and finds the mean and the standard deviation of each column. Data that
# does not fit is seen batch by batch, and a second pass costs as much as the first. The textbook has a formula for
# one pass: the variance is $E[x^2] - E[x]^2$. In float32 it fails, because it subtracts two large numbers that are
# nearly equal. Take a column with mean 10,000 and standard deviation 0.1. Its squares are about $10^8$, where
# neighbouring float32 numbers lie 8 apart; the variance to be found there is 0.01. What comes out is rounding: 0,
# or 8, or less than 0, of which the root is NaN.
#
# Deviations from the mean are small, and their squares lose little. Say that $n$ rows have the mean $m$ and the sum
# of squared deviations $S$, and $k$ more rows come, with $m'$ and $S'$ of their own. With $\delta = m' - m$, all of
# them together have
#
# $$\text{mean} = m + \delta \frac{k}{n + k}, \qquad
# \text{sum of squared deviations} = S + S' + \delta^2 \frac{n k}{n + k}.$$
#
# The last term is what the batches differ by among themselves. Nothing large is subtracted from anything large, and
# with $k = 1$ this is Welford's update, row by row.

# %% [markdown]
# ### Exercise 12 · Mean and standard deviation in one pass
#
# Go through the batches once and return mean and standard deviation of every column.
#
# **Points** 4 · **Difficulty** ●●○ · **Minutes** 20 · **Lines** 13
#
# **Convention** The standard deviation divides by the number of rows $n$, not by $n - 1$. `batches` is gone through
# once: it may be a generator. Batches differ in size; one may have a single row, one may have none. Their tensors
# may be views of a buffer that is filled anew as soon as the next batch is asked for: do not change them, and keep
# nothing of them but sums. No tensor that is made has more elements than the largest x. All tensors that are made
# are float32, or of whole numbers or bools: a GPU has few units for float64, so float64 sums are no way out here.
# Compute with torch operations only: NumPy cannot reach a tensor on a GPU. In a column with mean 10,000 and
# standard deviation 0.1 the mean is right to 0.01 and the standard deviation to 2 %. In a column of equal values
# the standard deviation is 0, or at most a millionth of the value. The results are on the device of x.
#
# **Source** Chan, Golub and LeVeque 1979, "Updating formulae and a pairwise algorithm for computing sample
# variances", report STAN-CS-79-773, Stanford University; Welford 1962, "Note on a method for calculating corrected
# sums of squares and products", Technometrics 4(3) (the case of one row).
#
# <details><summary>Hint 1</summary>
#
# Two batches have the means 1 and 3, and inside each batch all rows are equal. What is the sum of squared
# deviations of both together, and where in the formula does it come from?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Three things are kept between batches: the number of rows, the mean, the sum of squared deviations. They can start
# as the numbers 0: the first batch, with n = 0, then goes through the same formula. The mean of no rows is NaN.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# Per batch: skip it if `len(x)` is 0. `center = x.mean(0)`, `delta = center - mean`, `squares = squares + (x -
# center).square().sum(0) + delta.square() * (n * k / (n + k))`, then the new mean, then `n += k`.
#
# </details>


# %% solution="mean_and_std"
def mean_and_std(batches):
    """(mean, std) of every column over the rows of all batches, two float32 tensors (D,) on the device of x.

    Args:
        batches: iterable of (x, y), gone through once: x float32 (k, D), k from 0 on and not always the same, y
            float32 (k,), not needed here.  A batch is valid until the next is asked for.

    Raises: ValueError if there is no row at all.
    """
    ### BEGIN SOLUTION
    n, mean, squares = 0, 0.0, 0.0
    for x, _ in batches:
        k = len(x)
        if k == 0:  # its mean would be NaN
            continue
        center = x.mean(0)
        delta = center - mean
        squares = squares + (x - center).square().sum(0) + delta.square() * (n * k / (n + k))
        n += k
        mean = mean + delta * (k / n)
    if n == 0:
        raise ValueError("expected batches with at least one row, found none.")
    return mean, (squares / n).sqrt()
    ### END SOLUTION


# %% test="mean_and_std-visible" points=2
check.mean_and_std(mean_and_std)

# %% test="mean_and_std-hidden" points=2
### BEGIN HIDDEN TESTS
check.mean_and_std(mean_and_std, seed=1979)
### END HIDDEN TESTS

# %% [markdown]
# Now the step. With $z = (x - \text{mean}) / \text{std}$ the model says $z w + b$, its residual $r$ is that less
# $y$, and the gradients of half the mean of $r^2$ are $z^T r / n$ and the mean of $r$. Written like that, line by
# line, a batch of 2048 rows by 1000 columns, 8 MB, is read to make $x - \text{mean}$, which is written; that is
# read to make $z$, which is written; $z$ is read for the residual and read again for the gradient. Six times 8 MB
# go by, and two new tensors of 8 MB are asked for and given back in every step. The loader moves less: it reads and
# writes each row once.
#
# But $z$ is needed nowhere. The normalisation can be moved from the data to the weights, which are small:
#
# $$z w + b = x \frac{w}{\text{std}} + \left(b - \text{mean} \cdot \frac{w}{\text{std}}\right), \qquad
# z^T r = \frac{x^T r - \text{mean} \sum r}{\text{std}}.$$
#
# (The divisions are column by column.) Two products with x as it came from the loader are left: one for the
# residual, one for the gradient. There is a price. Where the mean is many times the standard deviation, both
# formulas subtract large numbers that are nearly equal, as above; for such columns take a fixed number off when the
# file is written.
#
# The two products are two passes over x, since the gradient needs the residuals first. But only those of its own
# rows: gradients of blocks of rows add up. If a block is small enough to stay in the cache of the processor, the
# second pass over it does not go to memory, and one pass is left. That is why the step takes a batch in blocks.
# Usually there is one; but 2048 rows of 4000 columns are 32 MB, which few caches hold, and blocks of 512 rows are 8
# MB.
#
# On a GPU there is one more thing to leave out. `.item()`, `float(t)` and `if t > 0` wait until everything that was
# queued is computed, and meanwhile nothing new is queued. So the loss is returned as a tensor; who wants to print
# it may wait for it.

# %% [markdown]
# ### Exercise 13 · A step in two passes
#
# Write one step of SGD on the squared loss, without a copy of x.
#
# **Points** 6 · **Difficulty** ●●● · **Minutes** 35 · **Lines** 15
#
# **Convention** The blocks together are one batch: the gradients are $z^T r / n$ and the mean of $r$, where $n$ is
# the number of rows of all blocks, known when the last one has come. `w` and `b` are changed in place, once, after
# the last block. Everything else but `scratch` stays as it is. The memory of a block may be filled anew as soon as
# the next block is asked for. `scratch` holds anything at all when the step begins, the numbers of the last step
# for example; no tensor of more than one element is made besides (views are free), and its tensors keep their
# shapes. Each block of x is read at most twice. Nothing waits for the device: no `.item()`, no `float(t)`, no `if
# t`. Torch operations only, no NumPy. None of the tensors requires a gradient. The sum that is returned is a tensor
# of its own: the next step does not change it.
#
# **Source** Leclerc et al. 2023, "FFCV: Accelerating Training by Removing Data Bottlenecks", arXiv:2306.12517, and
# its guide to large-scale linear regression, which advises to normalise and to update in place; to do both without
# z is our step.
#
# <details><summary>Hint 1</summary>
#
# Which of these depend on the block: `w / std`, the number added to every row, `x^T r`, the sum of r, the division
# by std? What does not need to stand in the loop?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Before the loop: `torch.div(w, std, out=scratch["scaled"])`, the shift `b - mean.dot(scaled)`, a gradient of
# zeros. In the loop the residual of the block lies in the first rows of `scratch["residual"]`, a slice, which is a
# view. `torch.mv(x, scaled, out=residual)` writes there, `residual.add_(shift).sub_(y)` needs no memory.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# `gradient.addmv_(x.T, residual)` adds x^T r to what is there. `loss += residual.dot(residual)` is a tensor of one
# element, if it starts as one: `torch.zeros_like(b)`. So is the sum of r. After the loop `gradient.addcmul_(mean,
# total, value=-1).div_(std)`, then `w.sub_(gradient, alpha=lr / n)`, and b likewise.
#
# </details>


# %% solution="sgd_step_"
def sgd_step_(blocks, w, b, mean, std, lr, scratch):
    """The sum of squared residuals before the step, a tensor with one element; `w` and `b` make one step of SGD.

    Args:
        blocks: iterable of (x, y), one batch of at least one row in all: x float32 (k, D), y float32 (k,), k from 1 on
            and not always the same.  Both may be views whose rows lie further apart than they are long.
        w: float32 (D,), the weights of the normalised columns, changed in place.
        b: float32 (1,), the intercept, changed in place.
        mean: float32 (D,) of the columns of x.
        std: float32 (D,) likewise, above 0.
        lr: the learning rate, a float.
        scratch: dict of float32 tensors to compute in: "residual", with as many elements as the largest block has rows,
            or more; "scaled" and "gradient", both (D,).

    All tensors are on one device.
    """
    ### BEGIN SOLUTION
    scaled = torch.div(w, std, out=scratch["scaled"])
    gradient = scratch["gradient"].zero_()
    shift = b - mean.dot(scaled)
    n, total, loss = 0, torch.zeros_like(b), torch.zeros_like(b)
    for x, y in blocks:
        residual = torch.mv(x, scaled, out=scratch["residual"][: len(x)])
        residual.add_(shift).sub_(y)
        gradient.addmv_(x.T, residual)  # x is in the cache still, if the block is small
        total += residual.sum()
        loss += residual.dot(residual)
        n += len(x)
    gradient.addcmul_(mean, total, value=-1).div_(std)
    w.sub_(gradient, alpha=lr / n)
    b.sub_(total, alpha=lr / n)
    return loss
    ### END SOLUTION


# %% test="sgd_step_-visible" points=3
check.sgd_step_(sgd_step_)

# %% test="sgd_step_-hidden" points=3
### BEGIN HIDDEN TESTS
check.sgd_step_(sgd_step_, seed=512)
### END HIDDEN TESTS

# %% [markdown]
# What is the step without temporaries worth? The loop of the guide normalises each batch into a new tensor, and makes
# new weights in every step. Predict: how many times as long does an epoch take with it, on the same loader?

# %%
predicted_naive = None

# %% tags=["experiment"]
mean_and_std_now, sgd_step_now = course.solved(check.mean_and_std), course.solved(check.sgd_step_)
loader = our_loader(records)
mean, std = mean_and_std_now(on_device(loader))
lr = 0.05


def zeros(*shape):
    return torch.zeros(*shape, device=device)


def new_scratch():
    return {"residual": zeros(sizes.batch_size), "scaled": zeros(sizes.columns), "gradient": zeros(sizes.columns)}


def train(loader, w, b, blocks=1):
    """Mean squared residual of an epoch; w and b are trained in place, in steps of `blocks` batches of the loader."""
    scratch, total, rest = new_scratch(), zeros(1), on_device(loader)
    for first in rest:
        batch = itertools.chain([first], itertools.islice(rest, blocks - 1))
        total += sgd_step_now(batch, w, b, mean, std, lr, scratch).reshape(1)
    return total.item() / records.rows


def train_naively(loader, w, b):
    for bx, by in on_device(loader):
        z = (bx - mean) / std
        residual = z @ w + b - by
        w = w - lr * (z.T @ residual / len(by))
        b = b - lr * residual.mean()


def from_zero(loop, *args):
    return lambda: loop(args[0], zeros(sizes.columns), zeros(1), *args[1:])


in_order = [(bx, by) for bx, by in zip(x.split(sizes.batch_size), y.split(sizes.batch_size), strict=True)]
steps = {
    "no loader: rows in memory order": from_zero(train, in_order),
    "ours, in place": from_zero(train, loader),
    "ours, new tensors in every step": from_zero(train_naively, loader),
    "TensorDataset, in place": from_zero(train, DataLoader(dataset, sizes.batch_size, shuffle=True)),
}
if sizes.blocks > 1:
    in_blocks = our_loader(records, batch=sizes.batch_size // sizes.blocks)
    steps[f"ours, in place, in {sizes.blocks} blocks"] = from_zero(train, in_blocks, sizes.blocks)
epoch = timed(steps)
for name in ("no loader: rows in memory order", "TensorDataset, in place"):
    epoch[name] *= data.rows / held
show_times(epoch)
naive = (epoch["ours, new tensors in every step"] / epoch["ours, in place"]).median().item()
print(f"new tensors in every step: {naive:.1f} times as long" + told(predicted_naive))
plots.epoch_times(epoch, x_bytes, limits)

# %% [markdown]
# *No loader* is what the arithmetic costs if the rows lie in memory in the right order. The loader adds the copy.
# The naive loop writes a normalised copy of each batch and reads it twice: the same number of multiplications,
# several times the traffic. In blocks, a block is used for both products while it lies in the cache; where the
# whole batch fits into the cache anyway, blocks only add calls.

# %% tags=["experiment"]
w, b = zeros(sizes.columns), zeros(1)
true_w, true_b = torch.from_numpy(data.w).to(device), data.b
sgd_losses = []
for e in range(sizes.epochs):
    sgd_losses.append(train(loader, w, b))
    off = (w / std - true_w).norm().item()
    print(f"epoch {e + 1:2}: mean squared residual {sgd_losses[-1]:8.3f}, distance to the true weights {off:.3f} "
          f"of {true_w.norm():.2f}")  # fmt: skip
found_b = (b - mean @ (w / std)).item()
noise = regression.NOISE * (sizes.columns * 12 / records.rows) ** 0.5
print(f"intercept {found_b:.2f} (true {true_b:.2f}); the noise alone leaves a distance of about {noise:.3f}")
floor = regression.NOISE**2
plots.loss({"SGD": (list(range(1, sizes.epochs + 1)), sgd_losses)}, floor, limits, label="epochs")

# %% [markdown]
# The mean squared residual falls to the variance of the noise, 1, and stays there: no weights can do better. The
# distance to the true weights stops at about what the noise leaves to any method with this many rows; the constant
# learning rate adds a little. The published loop compares `w / std` with the true weights, and so does this one:
# the weights of normalised inputs are not those of the data. The intercept has to be moved by the means as well,
# which the published one leaves out.

# %% [markdown]
# ## A bug in the wild
#
# **An example that is published, copied and timed can make its data in three times the memory, train with another
# batch size than it says, and print a total that is none.**
#
# This unit descends from a guide to linear regression on data that does not fit, and from the script that belongs
# to it. The two functions below behave as those did when this course was written, rebuilt in our own lines. Between
# them they hold nine faults of the originals and two more that are common elsewhere, and some hide behind others.


# %% locked="published_data"
def published_data(rows, columns):
    """(x, y, w, b): uniform x, w and b, and y with normal noise, as found in the wild.  Do not use it."""
    w, b, x = (np.random.uniform(size=size) for size in (columns, None, (rows, columns)))
    w, x = w.astype(np.float32), x.astype(np.float32)
    return x, x.dot(w) + np.random.standard_normal(rows), w, b


# %% [markdown]
# What its users report: to make data of 40 GB, a machine with 100 GB of memory runs out of it. A training with
# tensors made of these arrays stops at its first gradient, because two dtypes do not go together. Once that is
# mended, it finds the weights, and an intercept near 0 whatever `b` says. And nobody else gets the same data.

# %% [markdown]
# ### Exercise 14 · Mend the data
#
# Make the data of a linear problem so that its parts fit together.
#
# **Points** 3 · **Difficulty** ●○○ · **Minutes** 15 · **Lines** 6
#
# **Convention** The values of x, w and b are uniform in [0, 1), all drawn independently; y is x w + b plus
# independent normal noise of mean 0 and standard deviation 1. All of it is drawn anew for another seed. x, y and w
# are NumPy arrays of float32; b is a number. The same seed gives the same data to the last bit on one machine,
# whatever was drawn before, another seed gives other data. NumPy's global source of random numbers is neither used
# nor seeded. At no time do arrays take more than one and a half times the bytes of x, which the check counts for 64
# columns: there is no second array of the size of x, of any dtype.
#
# **Source** FFCV's guide to large-scale linear regression (docs.ffcv.io), whose data this is; NumPy's documentation
# of `numpy.random.Generator`.
#
# <details><summary>Hint 1</summary>
#
# How many bytes does `np.random.uniform(size=(rows, columns))` take, and how many does its result still hold while
# `astype` makes another array of it?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `rng = np.random.default_rng(seed)` is a source of your own; `rng.random(size, dtype=np.float32)` draws float32 at
# once, and `rng.standard_normal` takes `dtype` too. Make one generator and draw everything from it.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# `y = x @ w + b + noise` is float32 if w and noise are, and b is a Python float or a float32:
# `float(rng.random())`.
#
# </details>


# %% solution="make_data"
def make_data(rows, columns, seed):
    """(x, y, w, b) of a linear problem: arrays float32 (rows, columns), (rows,) and (columns,), and a number.

    Args:
        rows: 1 or more.
        columns: 1 or more.
        seed: whole number from 0 on, from which everything is drawn.
    """
    ### BEGIN SOLUTION
    rng = np.random.default_rng(seed)
    x = rng.random((rows, columns), dtype=np.float32)
    w = rng.random(columns, dtype=np.float32)
    b = float(rng.random())
    y = x @ w + b + rng.standard_normal(rows, dtype=np.float32)
    return x, y, w, b
    ### END SOLUTION


# %% test="make_data-visible" points=1
check.make_data(make_data)

# %% test="make_data-hidden" points=2
### BEGIN HIDDEN TESTS
check.make_data(make_data, seed=40)
### END HIDDEN TESTS

# %% [markdown]
# The second function trains. It runs, its loss falls, and it prints what one wants to know.


# %% locked="published_fit"
def published_fit(x, y, epochs, batch_size, lr):
    """(w, b) after `epochs` of SGD on normalised columns, as found in the wild.  Do not use it."""
    loader = DataLoader(TensorDataset(x, y), drop_last=True)
    mean = sum(rows.sum(0) for rows, _ in loader) / len(x)
    std = (sum(rows.square().sum(0) for rows, _ in loader) / len(x) - mean.square()).sqrt()
    w, b = torch.zeros_like(mean), torch.zeros(1, device=x.device)
    for epoch in range(epochs):
        begin, loss = time.perf_counter(), 0.0
        for rows, targets in loader:
            z = (rows - mean) / std
            residual = z @ w + b - targets
            w -= lr * (z.T @ residual) / len(z)
            b -= lr * residual.mean()
            loss += residual.square().sum()
        print(f"epoch {epoch}: {time.perf_counter() - begin:.3f} s, loss {loss / len(loader):.4f}")
    print(f"in all {time.perf_counter() - begin:.3f} s")
    return w, b


# %% [markdown]
# What its users report:
#
# - `batch_size` may be 1 or 2048: neither the time nor the result changes.
# - Ten epochs take as long "in all" as the last of them.
# - A column of temperatures, 300 kelvin with hundredths that matter, makes all weights NaN or, in luckier cases,
#   wrong.
# - `x @ w + b` with the weights that come back is far from y, although the loss is small.
# - On a GPU the times it prints do not add up to what the clock on the wall says.
# - Somebody mended the first of these. Since then the loss is larger the larger the batch; and if the batch size
#   does not divide the number of rows, the normalised columns do not have mean 0, and some rows teach the model
#   nothing.

# %% [markdown]
# ### Exercise 15 · Mend the training
#
# Write the training so that none of this is true of it.
#
# **Points** 5 · **Difficulty** ●●○ · **Minutes** 30 · **Lines** 22
#
# **Convention** Mean and standard deviation (divided by the number of rows) are those of all rows, and normalise x;
# no column is constant. The mean of a column may be 10,000 times its standard deviation. An epoch goes through all
# rows in their order, `batch_size` at a time; the last batch may be short, and its gradients are means over its own
# rows. What a batch computes with are its own rows: x is not normalised as a whole anew for each of them. The step
# is that of Exercise 13: gradients $z^T r / k$ and the mean of $r$ over the k rows of the batch, w and b
# start at 0 and change once a batch. The loss of an epoch is the mean of $r^2$ over all rows, each taken before the
# step of its batch. What is returned belongs to x as it is: `x @ w + b` predicts y. Time is read with `clock()`
# only, and each time `synchronize()` has been called just before, with no computation in between. The seconds of an
# epoch are those of its own batches. The total goes from before the statistics to after the last epoch. Nothing is
# printed.
#
# **Source** FFCV's guide to large-scale linear regression (docs.ffcv.io) and the script that belongs to it,
# `examples/docs_examples/linear_regression.py` in github.com/libffcv/ffcv.
#
# <details><summary>Hint 1</summary>
#
# Take the symptoms one by one. Which line decides how many rows are in a batch? By what is each sum divided, and
# how many summands has it? What does `begin` hold when the total is printed?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# A slice that reaches beyond the end of x is short, which is what the last batch should be. `torch.std_mean(x, 0,
# correction=0)` is stable. A function inside of yours that first calls `synchronize()` and then returns `clock()`
# cannot be used wrongly.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# From z w + b = x (w / std) + (b - mean . (w / std)) follow the weights for x. Two variables for the two clocks:
# `begin` is set once, before the statistics, `start` in every epoch. Keep the sum of an epoch as a tensor, divide
# it by `len(x)`, and make floats of all of them at the end.
#
# </details>


# %% solution="fit"
def fit(x, y, epochs, batch_size, lr, clock=time.perf_counter, synchronize=lambda: None):
    """What a training of a linear model by SGD found, and what it took: a dict.

    Args:
        x: float32 (n, D), not normalised.
        y: float32 (n,), on the device of x.
        epochs: passes over all rows, 1 or more.
        batch_size: rows of a step, 1 or more, also more than n.
        lr: the learning rate, a float.
        clock: function without arguments that gives the time in seconds.
        synchronize: function without arguments that waits until everything queued on the device is computed.

    Returns: {"w": float32 tensor (D,), "b": float32 tensor (1,), both on the device of x and for x as it is,
        "losses": list of floats, one an epoch, "seconds": list of floats, one an epoch, "total_seconds": float}.
    """

    ### BEGIN SOLUTION
    def now():
        synchronize()
        return clock()

    begin = now()
    std, mean = torch.std_mean(x, 0, correction=0)
    w, b = torch.zeros_like(mean), mean.new_zeros(1)
    seconds, losses = [], []
    for _ in range(epochs):
        start, squares = now(), 0.0
        for first in range(0, len(x), batch_size):
            rows, targets = x[first : first + batch_size], y[first : first + batch_size]
            z = (rows - mean) / std
            residual = z @ w + b - targets
            squares += residual.square().sum()
            w -= lr * (z.T @ residual) / len(z)
            b -= lr * residual.mean()
        seconds.append(now() - start)
        losses.append(squares / len(x))
    total_seconds = now() - begin
    w = w / std
    losses = [loss.item() for loss in losses]
    return {"w": w, "b": b - mean.dot(w), "losses": losses, "seconds": seconds, "total_seconds": total_seconds}
    ### END SOLUTION


# %% test="fit-visible" points=2
check.fit(fit)

# %% test="fit-hidden" points=3
### BEGIN HIDDEN TESTS
check.fit(fit, seed=36)
### END HIDDEN TESTS

# %% [markdown]
# # Part 8: Fewer passes

# %% [markdown]
# ## Better than plain SGD
#
# **When a pass over the data is what costs, ask how much each pass can buy.**
#
# The guide from which this unit descends says it in a note: whoever only wants the weights of a regularised linear
# regression should not take plain gradient descent, but conjugate gradients or a variance-reduced method. Both read
# the file as the loop above does, so everything about loading stays true for them. They differ in what they do with
# a pass.
#
# The objective is $\frac1n |Xw - y|^2 + \lambda |w|^2$. Where its gradient is zero, $A w = c$ holds with $A =
# \frac1n X^\top X + \lambda I$ and $c = \frac1n X^\top y$. With 10,000 columns $A$ has 100 million entries, and
# forming it takes $n$ times as many multiplications. It is not needed: $X^\top X v$ is $X^\top (X v)$, and a sum
# over batches of $x^\top (x v)$. One pass over the rows gives the product of $A$ with one vector, for two products
# of a matrix and a vector a batch, as in SGD.
#
# *Gradient descent* on all rows uses such a product to take one step, and each direction of space shrinks at its
# own rate: to shrink the slowest, the number of passes must grow with the condition number $\kappa$ of $A$, the
# largest eigenvalue over the smallest. *Conjugate gradients* (CG) also take one product a step. But after $k$ of
# them the iterate is the best of all vectors that can be combined from $c, Ac, \ldots, A^{k-1} c$. Two things
# follow. The number of passes grows with $\sqrt\kappa$ at most. And eigenvalues that lie together count as one:
# data whose values are uniform in $[0, 1)$ have one large eigenvalue, about a quarter of the number of columns,
# which belongs to their mean, and all others lie around $\frac1{12}$ (closely, if there are many more rows than
# columns). For CG that is nearly two eigenvalues, however large $\kappa$ is. (In float32 rounding brings back a
# trace of directions that were dealt with, which costs an iteration or two more.) Nor is there a learning rate to
# be tuned. (Normalised columns, as in the measurement below, have lost the large one already.)
#
# *SGD* takes a step with each batch, so hundreds a pass, and early on that is hard to beat. Late it is not: at the
# minimum the mean of the batches' gradients is zero, each single one is not. With a constant rate the weights keep
# jumping about the minimum. SVRG removes that noise: from the gradient of a batch it subtracts the gradient of the
# same batch at a fixed point, the *snapshot*, and adds the gradient of all rows there, which it has from a pass of
# its own. On the average nothing changes, because what is subtracted has the mean that is added. And the closer `w`
# and the snapshot are to the minimum, the smaller is what is left of the noise.

# %% [markdown]
# ### Exercise 16 · Conjugate gradients on a stream
#
# Solve ridge regression by conjugate gradients, with as few passes over the data as that takes.
#
# **Points** 6 · **Difficulty** ●●○ · **Minutes** 40 · **Lines** 17
#
# **Convention** The objective is $\frac1n |Xw - y|^2 + \lambda |w|^2$ with $\lambda$ = `strength` and all $n$ rows;
# there is no intercept. Each call of `read()` is a pass over the data, and counts, whether it is read to its end or
# not. The first pass gives $c = \frac1n X^\top y$ and the number of rows; each one after that gives one product
# with $A = \frac1n X^\top X + \lambda I$. Start from $w = 0$, whose residual is $c$. An iteration takes one pass: a
# step along the direction, the new residual, the new direction. The residual is the one that the recursion carries
# along, not computed anew from $w$, which would take another pass. It ends as soon as $|\text{residual}| \le$
# `tolerance` $\cdot\, |c|$, or when `most` passes (at least 1, the first one included) are used up. If $y$ is zero
# everywhere, $w$ is zero after one pass and no iteration. Batches have different sizes, come in another order in
# each pass, and each is refilled when the next is asked for: keep none of them, and do not write to them. No tensor
# has more values than a batch; so $A$ is never formed. Compute with torch operations only, not with NumPy.
#
# **Source** Hestenes and Stiefel 1952, "Methods of conjugate gradients for solving linear systems", section 3.
#
# <details><summary>Hint 1</summary>
#
# Which quantities of an iteration need the data, and which only vectors with an entry for each column? How many
# passes is that?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Batches differ in size: add up $x^\top (x v)$ over the batches and divide by the number of all rows at the end.
# Mind the brackets: `x.T @ x @ v` forms a matrix first.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# Keep `square = residual @ residual`. An iteration: `product` $= A\,$`direction` by one pass; `step = square /
# (direction @ product)`; `w` moves by `step * direction`, `residual` by `-step * product`; with the new square, the
# new direction is `residual + new / old * direction`. Compare squares: `square > tolerance**2 * start` goes on, and
# is false at once if both are zero.
#
# </details>


# %% solution="ridge_by_cg"
def ridge_by_cg(read, columns, strength, tolerance=1e-5, most=30):
    """The weights of a ridge regression by conjugate gradients on streamed products.

    Args:
        read: called without arguments it starts a pass over the data, an iterator over batches (x, y): x float32
            (n_i, columns), y float32 (n_i,), views of a buffer that is refilled when the next batch is asked for.
        columns: number of columns of the data.
        strength: the factor of |w|^2 in the objective, 0 or more.
        tolerance: ends when the norm of the residual is at most this times that of X^T y / n.
        most: the most passes to take, 1 or more.

    Returns: (w, passes, residuals): w float32 (columns,) on the device of the batches; the number of calls of `read`,
        an int; a list of floats, after each iteration the norm of the residual over that of X^T y / n.
    """
    ### BEGIN SOLUTION
    right, rows = 0, 0
    for x, y in read():
        right, rows = right + x.T @ y, rows + len(y)
    residual = direction = right / rows
    w = residual.new_zeros(columns)
    start = square = residual @ residual
    passes, residuals = 1, []
    while passes < most and square > tolerance**2 * start:
        product = sum(x.T @ (x @ direction) for x, _ in read()) / rows + strength * direction
        step = square / (direction @ product)
        w, residual = w + step * direction, residual - step * product
        before, square = square, residual @ residual
        direction = residual + square / before * direction
        passes += 1
        residuals.append((square / start).sqrt().item())
    return w, passes, residuals
    ### END SOLUTION


# %% test="ridge_by_cg-visible" points=3
check.ridge_by_cg(ridge_by_cg)

# %% test="ridge_by_cg-hidden" points=3
### BEGIN HIDDEN TESTS
check.ridge_by_cg(ridge_by_cg, seed=1952)
### END HIDDEN TESTS

# %% [markdown]
# ### Exercise 17 · SGD without its noise
#
# Write SVRG: SGD whose steps become exact near the minimum.
#
# **Points** 5 · **Difficulty** ●●○ · **Minutes** 30 · **Lines** 9
#
# **Convention** The gradient is that of half the objective: $\frac1n X^\top (Xw - y) + \lambda w$ with $\lambda$ =
# `strength`. An epoch takes two passes. The snapshot is `w` as the epoch begins. The first pass gives the full
# gradient at the snapshot, over all rows and with the term in $\lambda$. The second takes a step with each batch:
# `w -= lr * (g(w) - g(snapshot) + full)`, where `g` is the gradient of that batch, with the term in $\lambda$. The
# last `w` of an epoch is the next snapshot (option I of the paper; the paper draws its samples at random, a pass
# here takes each batch once, in the order of `read`).
#
# The last batch may be smaller. So that the mean of `g` over the $m$ batches of a pass is the full gradient, `g`
# divides by the mean size of a batch, the same number for all: $g_i(w) = \frac{m}{n}\, x_i^\top (x_i w - y_i) +
# \lambda w$. With its own size as the divisor, the rows of the small batch would count for more than the others,
# and SVRG would lose its fixed point on the average.
#
# Each call of `read()` is a pass and counts. Every pass has the same number of batches, but the rows come in
# another order. A batch is refilled when the next is asked for: keep none, write to none; no tensor has more values
# than a batch. Torch operations only, no NumPy. The caller's `w` stays as it is.
#
# **Source** Johnson and Zhang 2013, "Accelerating stochastic gradient descent using predictive variance reduction",
# NIPS, section 2.
#
# <details><summary>Hint 1</summary>
#
# If `w` is the snapshot, what is the step? And if both are the minimum?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# For least squares, $y$ drops out of $g(w) - g(\text{snapshot})$, and what is left depends on the difference $d = w
# - \text{snapshot}$ alone. So one product `x @ d` does instead of two. A snapshot must not be another name of a
# tensor that is changed in place.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# First pass: add up `x.T @ (x @ snapshot - y)`, the rows and the batches; `full = total / rows + strength *
# snapshot`. Second pass, for each batch: `d = w - snapshot`, then `w = w - lr * (x.T @ (x @ d) * batches / rows +
# strength * d + full)`, which makes a new tensor.
#
# </details>


# %% solution="svrg"
def svrg(read, w, lr, strength, epochs):
    """The weights after `epochs` epochs of SVRG on the squared loss with a ridge term.

    Args:
        read: called without arguments it starts a pass over the data, an iterator over batches (x, y): x float32
            (n_i, columns), y float32 (n_i,), views of a buffer that is refilled when the next batch is asked for.
        w: float32 tensor (columns,), the weights to start from; not changed.
        lr: learning rate, constant.
        strength: the factor of w in the gradient, 0 or more.
        epochs: 1 or more, of two passes each.

    Returns: (w, passes): a new float32 tensor (columns,), and the number of calls of `read`, an int.
    """
    ### BEGIN SOLUTION
    for _ in range(epochs):
        snapshot, total, rows, batches = w, 0, 0, 0
        for x, y in read():
            total, rows, batches = total + x.T @ (x @ snapshot - y), rows + len(y), batches + 1
        full = total / rows + strength * snapshot
        for x, _ in read():
            shift = w - snapshot  # what g(w) - g(snapshot) depends on: y drops out
            w = w - lr * (x.T @ (x @ shift) * batches / rows + strength * shift + full)
    return w, 2 * epochs
    ### END SOLUTION


# %% test="svrg-visible" points=2
check.svrg(svrg)

# %% test="svrg-hidden" points=3
### BEGIN HIDDEN TESTS
check.svrg(svrg, seed=2013)
### END HIDDEN TESTS

# %% [markdown]
# Three methods on the same stream. Normalised rows and centred responses, no penalty to speak of. An epoch of SGD
# is one pass, an epoch of SVRG two, an iteration of CG one. The best weights are those with the least loss on these
# rows; the true ones lie a little off, because of the noise. Predict: after how many passes is CG nearer to the
# best than the truth is?

# %%
predicted_passes = None

# %% tags=["experiment"]
ridge_by_cg_now, svrg_now = course.solved(check.ridge_by_cg), course.solved(check.svrg)
y_mean = float(np.mean(data.y, dtype=np.float64))


def normalised():
    """A pass over the rows, each batch normalised where it lies: in the loader's own buffer."""
    for bx, by in on_device(our_loader(records)):
        yield bx.sub_(mean).div_(std), by.sub_(y_mean)


best, *_ = ridge_by_cg_now(normalised, sizes.columns, 0.0, tolerance=1e-9, most=40)  # as exact as float32 allows


def excess(weights):
    """Mean squared residual of `weights` above that of the best ones: the square of Z (w - best)."""
    total = sum((bx @ (weights - best)).square().sum().item() for bx, by in normalised())
    return total / records.rows


curves = {name: ([0], [excess(zeros(sizes.columns))]) for name in ("SGD", "SVRG", "CG")}


def add(name, passes, weights):
    curves[name][0].append(passes)
    curves[name][1].append(excess(weights))


w, b = zeros(sizes.columns), zeros(1).add_(y_mean)
for e in range(sizes.few_epochs):
    train(loader, w, b)
    add("SGD", e + 1, w)
w = zeros(sizes.columns)
for e in range(sizes.few_epochs // 2):
    w, _ = svrg_now(normalised, w, lr, 0.0, 1)
    add("SVRG", 2 * (e + 1), w)
for most in range(2, sizes.few_epochs + 1):
    w, passes, _ = ridge_by_cg_now(normalised, sizes.columns, 0.0, tolerance=0.0, most=most)
    add("CG", passes, w)
of_truth = excess(true_w * std)
enough = next((n for n, value in zip(*curves["CG"], strict=True) if value < of_truth), None)
print(f"CG is nearer to the best weights than the true ones are after {enough} passes" + told(predicted_passes))
plots.loss(curves, of_truth, limits, of="mean squared residual\nabove the best weights'")

# %% [markdown]
# The dotted line is the excess of the true weights: below it a method only fits the noise of these rows more
# closely. SGD is there first and then jitters about its own floor, set by the learning rate. SVRG has no such
# floor: its steps get small as the snapshot gets good. CG falls fastest and needs no learning rate; each of its
# iterations is one pass. The columns of this data are independent, so every direction is equally steep, and all
# three have it easy. With correlated columns the passes of CG grow with the square root of the condition number,
# those of gradient descent with the condition number itself.

# %% tags=["experiment"]
w, passes, residuals = ridge_by_cg_now(normalised, sizes.columns, 1e-3, tolerance=1e-7, most=30)
gram, target = zeros(sizes.columns, sizes.columns).double(), zeros(sizes.columns).double()
for bx, by in normalised():  # the exact solution, for comparison: columns x columns numbers, which CG never needs
    gram += (bx.T @ bx).double()
    target += (bx.T @ by).double()
exact = torch.linalg.solve(gram / records.rows + 1e-3 * torch.eye(sizes.columns, device=device), target / records.rows)
print(f"ridge by CG: {passes} passes, relative error {((w - exact).norm() / exact.norm()).item():.1e}")

# %% [markdown]
# # Part 9: What you know now

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
# ### Exercise 18 · True or false
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
# **Points** 3 · **Difficulty** ●●○ · **Minutes** 20 · **Lines** 1
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
# - Measure the limits first. A loader at half of `memcpy` cannot become three times as fast.
# - Rows are copied once, into memory that exists, by one call for the whole batch.
# - What does not fit is read in pages, and shuffled in windows. Shuffle the file once, and small windows are enough.
# - A file is written under another name and renamed when it is whole; a reader refuses what is not.
# - Variance from E[x²] − E[x]² cancels; update means and squared deviations instead.
# - In the loop, count passes over the data and new tensors. Then ask whether the method needs so many passes.
