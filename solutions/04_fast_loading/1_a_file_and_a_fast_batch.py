# %% [markdown]
# # Fast loading, part 1: A file and a fast batch
#
# **How close to the memory's own speed can a batch be put together?**
#
# A linear regression computes next to nothing: two products with the data, and the data is gone. So it shows what
# loading costs. This unit takes the data of a published example, FFCV's guide to large-scale linear regression
# (Leclerc et al. 2023, arXiv:2306.12517), and builds what that library does from torch, NumPy and Python's own
# library. Each loader is held against two yardsticks: copying the same bytes in memory (`memcpy`) and reading them
# from the file. This part makes a file in which every row can be found by one multiplication, and puts a random batch
# together in one copy.
#
# **You will be able to**
#
# - say how far a loader is from `memcpy`, and why `TensorDataset` is where it is
# - write a file of rows whole or not at all, and open it without reading it
# - gather a random batch in one copy, into memory that is already there
#
# **Minutes** 30 core · 180 in all
#
# **Needs** nothing

# %% [markdown]
# How it works: write down what you expect (a cell with `None`), solve the exercise, run its check, look at the
# measurement. Later cells use your answer if its check passed (`x_now` is your `x`) and fall back on the reference
# solution if your copy of the course includes it. Run the cells from the top. Leave the empty cell after each check
# alone: your instructor's tests go there.

# %% locked="setup"
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
from course import usage
from course.checks import fast_loading as check
from course.datasets import regression
from course.distributed import run_ranks
from course.plots import fast_loading as plots
from course.predictions import reveal
from course.yardsticks import GIGA, MEMCPY, memcpy_of, one_pass, rows_in_memory, seconds_in_turn, show_rates, yardsticks

PAGE = 4096  # bytes of the header of a record file, and of a memory page
CHUNK = 1 << 24  # bytes of rows that a writer reads at a time
FORMAT = "course-records-1"
HOUR = 3600  # seconds
NORESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000 if sys.platform == "linux" else 0)  # Python has it from 3.13 on
print(course.machine())
sizes = course.sizes("04_fast_loading")

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
# ## The yardsticks
#
# **A copy of the same bytes and a reading of the file say what the machine can do; a loader is judged by its distance
# from them.**
#
# A batch of random rows has to be put together somewhere, so every byte is read and written once: that is what
# `memcpy` does. A file is read from the *page cache* if the system still has it in memory, else from the disk. Neither
# is a limit: `memcpy` here is one thread that writes to memory, and a loader that uses several threads and writes to
# one buffer in the processor's cache can pass it. (Reading fills one small buffer again and again, which stays in the
# cache; so with the file in the page cache it can be the faster of the two.)
#
# All contestants of this unit take turns, round after round, and in each turn the first of two runs does not count.

# %% tags=["experiment"]
x_file = data.folder / "x.npy"
show_rates(seconds_in_turn(yardsticks(x_file, x_bytes), sizes.rounds), x_bytes)

# %% [markdown]
# ## The standard way, and what is wrong with the comparison
#
# **`TensorDataset` with a `DataLoader` fetches rows one by one, and the guide's snippet forgets the batch size.**
#
# The guide's loader is `DataLoader(TensorDataset(x, y), num_workers=8, shuffle=True)`. It says nothing of a batch
# size, so each batch is one row, while FFCV's gets 2,048. Predict: how many times as long as one `memcpy` does an
# epoch take, with batches of one row, and with the batch size mended?

# %%
predicted_one_by_one = None  # times memcpy
predicted_tensor_dataset = None

# %% tags=["experiment"]
x, y = rows_in_memory(data)
dataset, few = TensorDataset(x, y), TensorDataset(x[: sizes.one_by_one], y[: sizes.one_by_one])
batches = BatchSampler(RandomSampler(dataset), sizes.batch_size, False)
loaders = {
    "batches of one row (a part of them, scaled up)": DataLoader(few, shuffle=True),
    "TensorDataset, 0 workers": DataLoader(dataset, sizes.batch_size, shuffle=True),
    "TensorDataset, 2 workers": DataLoader(
        dataset, sizes.batch_size, shuffle=True, num_workers=2, multiprocessing_context="fork"
    ),
    "TensorDataset, batched indexing": DataLoader(dataset, sampler=batches, batch_size=None),
}
contestants = {MEMCPY: memcpy_of(x_bytes)} | {name: one_pass(loader) for name, loader in loaders.items()}
standard = seconds_in_turn(contestants, rounds=min(3, sizes.rounds))
for name in loaders:
    standard[name] *= data.rows / len(few if "one row" in name else dataset)
show_rates(standard, x_bytes)
one_row, with_batch = (
    (standard[name] / standard[MEMCPY]).median().item()
    for name in ("batches of one row (a part of them, scaled up)", "TensorDataset, 0 workers")
)
print(f"\nin units of memcpy: one row {one_row:.0f}" + reveal(predicted_one_by_one))
print(f"             batches of {sizes.batch_size}, no workers {with_batch:.1f}" + reveal(predicted_tensor_dataset))

# %% [markdown]
# With batches of one row, Python is all there is. With the batch size mended the rows are still fetched one by one,
# `dataset[i]` for each i, then stacked: two thousand small tensors a batch. Workers do it in parallel, but what
# they made is copied once more, through shared memory that is fresh for every batch. *Batched indexing* hands the
# sampler's whole list to the dataset, which PyTorch has allowed for years and few use: `sampler=BatchSampler(...)`,
# `batch_size=None`. It copies all rows of a batch in one call, into memory that it asks for anew.

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
# **Points** 2 · **Extra** · **Difficulty** ●○○ · **Minutes** 10 · **Lines** 5
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
# **Points** 6 · **Extra** · **Difficulty** ●●● · **Minutes** 75 · **Lines** 25
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
# **Points** 6 · **Extra** · **Difficulty** ●●○ · **Minutes** 60 · **Lines** 25
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
print(f"opened in {milliseconds:.1f} ms" + reveal(predicted_open), f"for {records.table.nbytes / GIGA:.2f} GB;",
      f"memory beyond the file: {(usage.private_bytes() - before) / 1e6:.1f} MB")  # fmt: skip
last = records.rows - 1
print("the last row is the source's:", np.array_equal(records.x[last], data.x[last]), float(records.y[last]))

# %% [markdown]
# Opening reads one page of header. Rows are read when they are touched, and stay in the page cache as long as the
# system has room: a second epoch finds them there, and so does another process. The disk decides the speed of
# writing; a second writer helps where the one was busy drawing, converting or copying, not where the disk is the
# limit.

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
# **Points** 3 · **Core** · **Difficulty** ●○○ · **Minutes** 15 · **Lines** 4
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
    "index_select into a new tensor": lambda: torch.index_select(table, 0, some),
    "gather into a buffer": lambda: gather_now(table, some, buffer),
}
one_batch = seconds_in_turn(ways, rounds=10 * sizes.rounds)
show_rates(one_batch, buffer.nbytes)


def page_faults(call, times=10):
    """Page faults per call of `call`, which the system counts for the whole process."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(times):
        call()
    return (resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) / times


new, reused = (page_faults(ways[name]) for name in ("index_select into a new tensor", "gather into a buffer"))
print(f"page faults per batch: {new:,.0f} with a new tensor, {reused:,.0f} with the buffer "
      f"({buffer.nbytes // mmap.PAGESIZE:,} memory pages a batch)")  # fmt: skip
gain = (one_batch["table[list]"] / one_batch["gather into a buffer"]).median().item()
print(f"gather over table[list]: {gain:.1f} times as fast" + reveal(predicted_gather))
of_buffer = (one_batch["index_select into a new tensor"] / one_batch["gather into a buffer"]).median().item()
course.claim("gathering into a buffer is faster than table[list]", gain > 1, f"{gain:.2f} times as fast")
course.claim(
    "most of that gain comes from index_select, not from the buffer", of_buffer < gain**0.5, f"{of_buffer:.2f} times"
)

# %% [markdown]
# Compare the first line with the last two. `table[list]` turns the list into a tensor and then takes torch's general
# indexing, which handles any index of any shape; `index_select` copies whole rows and nothing else. The buffer adds
# to that what new memory costs, and the page faults say how much that can be: batches of a few megabytes usually get
# the memory that the last batch gave back, larger ones get fresh memory pages from the system.
#
# Where it does not hold that the buffer is faster, the batch is so small that the fixed work of a call decides. Where
# most of the gain comes from the buffer instead, look at the page faults with a new tensor: thousands of them per
# batch mean that the system gave fresh memory each time. In both cases the buffer is needed all the same as soon as
# it has to be pinned for a GPU, or read into by several threads.

# %% [markdown]
# ## What to take home
#
# - Measure the yardsticks first. A loader at half of `memcpy` cannot become three times as fast.
# - A file of equal rows needs no index: a place is one multiplication away, and a mapping opens it without a copy.
# - A file is written under another name and renamed when it is whole; a reader refuses what is not.
# - Rows are copied once, into memory that exists, by one call for the whole batch.
