# %% [markdown]
# # Fast loading, part 1: A file and a fast batch
#
# **How close to the speed of memory can you put a batch together?**
#
# You write one call of torch that puts a batch together, and compare it with `memcpy` of the same bytes. As an extra
# you write a file from which the same call reads. Later parts shuffle its rows, read them ahead and compute on them.
#
# **You will be able to**
#
# - say how far a loader is from copying the same bytes
# - gather a random batch in one copy, and count what fresh memory costs
# - write a file of rows with several processes, and open it without reading it
#
# **Minutes** 25 core · 83 in all
#
# **Needs** nothing

# %% [markdown]
# Write down what you expect (a cell with `None`), solve the exercise, run its check, look at the measurement. Later
# cells use your answer if its check passed: `gather_now` is your `gather`.

# %% locked="setup"
import dataclasses
import itertools
import json
import mmap
import os
import resource
import sys
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset

import course
from course.checks import fast_loading as check
from course.datasets import regression
from course.learner.predictions import reveal
from course.loading.loaders import forked
from course.measure import usage
from course.measure.comparison import compare
from course.measure.yardsticks import (
    ALL_THREADS,
    GIGA,
    MEMCPY,
    memcpy_of,
    one_pass,
    read_file,
    rows_in_memory,
    show_rates,
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
# ## How much does one call per batch gain?
#
# Linear regression computes little, so it is a hard test for a loader. FFCV's guide (Leclerc et al. 2023,
# arXiv:2306.12517) fits a million rows of 10,000 float32 values, 40 GB, in batches of 2,048 rows. On an A100 with eight
# cores it reports 16 seconds per epoch with `TensorDataset` and 6 with FFCV, which is 2.5 and 6.7 GB/s. You work with
# data of the same kind at your scale: y = X w + b + noise.
#
# The yardstick is `memcpy`, which reads and writes each byte once.
#
# A `DataLoader` over a `TensorDataset` fetches rows one by one, `dataset[i]` for each i, and stacks them. With *batched
# indexing* it passes all row numbers of a batch to the dataset in one call: `sampler=BatchSampler(...)` and
# `batch_size=None`. If you name no batch size at all, each batch is one row.
#
# **Predict**: how many times as fast does an epoch become with two workers? And with batched indexing?

# %%
predicted_workers = None  # times as fast
predicted_batched = None

# %% tags=["experiment"]
x, y = rows_in_memory(data, share=1 / 4)
table = torch.cat([x, y[:, None]], 1)  # a row holds x, then y
x, y = table[:, :-1], table[:, -1]
dataset, few = TensorDataset(x, y), TensorDataset(x[: sizes.one_by_one], y[: sizes.one_by_one])
batches = BatchSampler(RandomSampler(dataset), sizes.batch_size, False)
ONE_ROW, WORKERS = "TensorDataset, batches of one row (scaled up)", "TensorDataset, 2 workers"
BY_ROW, BATCHED = "TensorDataset, 0 workers", "TensorDataset, batched indexing"
loaders = {
    BY_ROW: DataLoader(dataset, sizes.batch_size, shuffle=True),
    WORKERS: forked(dataset, sizes.batch_size, 2, shuffle=True),  # they are started before the clock
    BATCHED: DataLoader(dataset, sampler=batches, batch_size=None),
    ONE_ROW: DataLoader(few, shuffle=True),
}
print(f"{len(table):,} rows of {data.columns:,} values x and one y, {table.nbytes / GIGA:.3f} GB")
copies = {MEMCPY: memcpy_of(table.nbytes), ALL_THREADS: memcpy_of(table.nbytes, None)}
standard = compare(
    {name: one_pass(loader) for name, loader in loaders.items()} | copies, seconds=sizes.seconds, progress=False
)
standard.seconds[ONE_ROW].mul_(len(dataset) / len(few))
show_rates(standard, table.nbytes)
print(f"{standard.rounds} rounds; control: {BY_ROW} against itself {standard.control}")
print(f"two workers: {standard.ratio(WORKERS)} times as fast as none" + reveal(predicted_workers))
print(f"batched indexing: {standard.ratio(BATCHED)} times as fast" + reveal(predicted_batched))
course.claim("two workers make an epoch of TensorDataset less than 1.5 times as fast", standard.ratio(WORKERS),
             below=1.5, otherwise="Workers help more on your machine than on ours. Try four of them.")  # fmt: skip
course.claim("batched indexing is at least twice as fast as fetching rows one by one", standard.ratio(BATCHED),
             above=2)  # fmt: skip
course.claim("without a batch size, TensorDataset takes at least twice as long", standard.ratio(BY_ROW, to=ONE_ROW),
             above=2)  # fmt: skip
del loaders[WORKERS], loaders[ONE_ROW]  # and the processes of the workers

# %% [markdown]
# Row by row, Python makes a call per row and torch copies each row twice, out of the table and into the batch. Workers
# do the same with more processes. One call per batch removes the calls.
#
# **Takeaway** Ask the dataset for a whole batch in one call before you add workers.

# %% [markdown]
# ## What does fresh memory cost?
#
# The rows of a random batch lie anywhere in `table`, so they must be copied to one place. `table[index]` copies them
# into a new tensor. For a large tensor the system only *promises* memory. The first write to each memory page of 4,096
# bytes stops the program until the system has found a free page and filled it with zeros. This is a *page fault*.
#
# The alternative is a buffer that you make once and fill again for each batch.
#
# ### Exercise 1 · Gather a batch
#
# Copy the rows of a batch into a buffer that exists already. The given lines refuse a buffer that does not fit.
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
# - return the first rows of `out` as a view;
# - copy each row once, straight into `out`, without a call per row.
#
# **Raises** any exception for a number below 0 or above N - 1.
#
# **Points** 3 · **Core** · **Difficulty** ●○○ · **Minutes** 10 · **Lines** 1
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
        raise ValueError(f"{n} rows of {table.shape[1]} {table.dtype} do not fit into {tuple(out.shape)} {out.dtype}.")
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
# **Predict**: how many times as fast is a gather into one buffer as `table[list]`, for batches of 8 MiB and of 34 MiB?
# (Each call gathers other rows.)

# %%
predicted_gather = None  # 8 MiB
predicted_gather_large = None  # 34 MiB

# %% tags=["experiment"]
gather_now = course.solved(check.gather)
BATCHES = 8  # that a way gathers per run
LIST, NEW, INTO = "table[list]", "index_select into a new tensor", "gather into a buffer"


def ways_of(n_rows):
    """{name: function} of ways to put `n_rows` random rows together, other rows in each call."""
    drawn = itertools.cycle([torch.randint(len(table), (n_rows,)) for _ in range(BATCHES)])
    lists, buffer = itertools.cycle([next(drawn).tolist() for _ in range(BATCHES)]), torch.empty(n_rows, table.shape[1])
    return {
        LIST: lambda: table[next(lists)],
        "table[tensor]": lambda: table[next(drawn)],
        "torch.stack of single rows": lambda: torch.stack([table[i] for i in next(lists)]),
        NEW: lambda: torch.index_select(table, 0, next(drawn)),
        INTO: lambda: gather_now(table, next(drawn), buffer),
    }


def repeated(call):
    """A function that calls `call` BATCHES times: so long that what another way left in the caches hardly counts."""
    return lambda: [call() for _ in range(BATCHES)]


def page_faults(call, times=10):
    """Page faults per call, which the system counts for the whole process; the first calls do not count."""
    call(), call()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(times):
        call()
    return (resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) / times


gathered, faults, pages = [], [], []
for n_bytes in sizes.gathered:
    n_rows = n_bytes // (4 * table.shape[1])
    ways = ways_of(n_rows)
    runs = {name: repeated(call) for name, call in ways.items()}
    gathered.append(compare(runs, seconds=sizes.seconds / 2, progress=False))
    print(
        f"{BATCHES} batches of {n_rows:,} rows, {n_bytes / 1e6:.1f} MB, {n_bytes // mmap.PAGESIZE:,} memory pages each"
    )
    show_rates(gathered[-1], BATCHES * n_rows * 4 * table.shape[1])
    print(f"{gathered[-1].rounds} rounds; control: {LIST} against itself {gathered[-1].control}")
    faults.append({name: page_faults(ways[name]) for name in (NEW, INTO)})
    print("page faults per batch:", ", ".join(f"{name} {count:,.0f}" for name, count in faults[-1].items()) + "\n")
    pages.append(n_bytes / mmap.PAGESIZE)
small, large = gathered
print(f"gather over table[list]: {small.ratio(INTO)} times as fast" + reveal(predicted_gather)
      + f", large batches {large.ratio(INTO)}" + reveal(predicted_gather_large))  # fmt: skip

# %% tags=["experiment"]
course.claim("gathering a small batch into a buffer is at least 10 % faster than table[list]", small.ratio(INTO),
             above=1.1)  # fmt: skip
course.claim("gathering a large batch into a buffer is at least twice as fast as table[list]", large.ratio(INTO),
             above=2)  # fmt: skip
otherwise = "Allocators differ in the size from which on they ask the system for new pages. Try other batch sizes."
course.claim("a new tensor for each small batch costs hardly any page faults", faults[0][NEW] < 0.1 * pages[0],
             f"{faults[0][NEW]:.0f} for {pages[0]:.0f} memory pages", otherwise=otherwise)  # fmt: skip
course.claim("a new tensor for each large batch costs a page fault per memory page", faults[1][NEW] > 0.9 * pages[1],
             f"{faults[1][NEW]:.0f} for {pages[1]:.0f} memory pages", otherwise=otherwise)  # fmt: skip
course.claim("for large batches, a buffer makes index_select at least 1.5 times as fast as a new tensor",
             large.ratio(INTO, to=NEW), above=1.5, otherwise="Compare the page faults of the two.")  # fmt: skip
course.claim("for small batches, a buffer makes index_select at most 10 % faster or slower than a new tensor",
             small.ratio(INTO, to=NEW), within=(0.9, 1.1))  # fmt: skip

# %% [markdown]
# **Shown**: the new tensor and the buffer differ only in where the rows go. Where the new tensor costs page faults, it
# also costs time. **Known**: glibc keeps freed blocks up to a size that it adapts, 32 MiB at most, and gives larger
# ones back to the system at each `free` (`man 3 mallopt`, `M_MMAP_THRESHOLD`), so the next batch needs new pages again.
#
# **Takeaway** Gather large batches into a buffer that you already own.

# %% [markdown]
# ## Does the gain last for a whole epoch?

# %% tags=["experiment"]
buffer, OURS = torch.empty(sizes.batch_size, table.shape[1]), "ours: gather into one buffer"


def gather_epoch(rows):
    """Gather all batches of an epoch over `rows`, in random order."""
    for index in torch.randperm(len(rows)).split(sizes.batch_size):
        gather_now(rows, index, buffer)


epoch = compare(
    copies | {name: one_pass(loader) for name, loader in loaders.items()} | {OURS: lambda: gather_epoch(table)},
    seconds=sizes.seconds,
    progress=False,
)
show_rates(epoch, table.nbytes)
print(f"{epoch.rounds} rounds; control: {MEMCPY} against itself {epoch.control}")
gain, of_copy = epoch.ratio(OURS, to=BY_ROW), epoch.ratio(OURS, to=ALL_THREADS)
course.claim("an epoch of gathers is at least five times as fast as TensorDataset's", gain, above=5)
course.claim("an epoch of gathers reaches at least 0.8 of the speed of memcpy with as many threads", of_copy, above=0.8,
             otherwise="Try a file with more columns: it has fewer jumps per byte.")  # fmt: skip
plots.epoch_times(epoch, table.nbytes,
                  f"The gather is {gain.estimate:.0f} times as fast as TensorDataset, and {of_copy.estimate:.2f} times "
                  "as fast as memcpy with all threads")  # fmt: skip

# %% [markdown]
# The gather uses all threads, so `memcpy` with all threads is its yardstick. It may even pass `memcpy` with one thread:
# it has more threads, and it writes into one buffer that stays in the cache, where `memcpy` writes to memory.
#
# **Takeaway** Compare a loader with `memcpy` of the same bytes *with the same number of threads*.

# %% [markdown]
# ## How long does it take to open a file of rows? · extra
#
# Data that outlives the program needs a file, and a loader that shuffles must know where row i begins. In a *record
# file* that is one multiplication. A header of 4,096 bytes comes first, JSON and padding. Then come N rows of S bytes:
# D little-endian float32 values x, one value y, and zeros up to the *stride* S. (The pages in the figure are groups of
# rows that part 2 reads together.)

# %%
plots.record_file()

# %% [markdown]
# We choose the stride so that no short row straddles two memory pages. The price is padding: 1,023 columns fill one
# page exactly, and 1,024 need two.

# %%
plots.record_rows()

# %% [markdown]
# ### Exercise 2 · Bytes from row to row
#
# Compute the stride of a record file, an int.
#
# ```python
# >>> [row_stride(columns) for columns in (3, 20, 1023, 1024, 2500)]
# [16, 128, 4096, 8192, 12288]
# ```
#
# **Must**
# - count `columns` values x and one value y, of 4 bytes each;
# - for a row of up to 4,096 bytes: return the smallest power of two with room for it;
# - for a longer row: return the smallest multiple of 4,096 with room for it.
#
# **Raises** ValueError if `columns` is below 1.
#
# **Points** 2 · **Extra** · **Difficulty** ●○○ · **Minutes** 10 · **Lines** 5
#
# **Source** Leclerc et al. 2023, section 3 (rows in pages); `man 2 mmap` (a mapping consists of whole pages).
#
# <details><summary>Hint 1</summary>
#
# With whole numbers there is nothing to round: `-(-a // b)` is a / b rounded up. `1 << (n - 1).bit_length()` is the
# smallest power of two that is at least n. Why the - 1?
#
# </details>
#
# <details><summary>Hint 2</summary>
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
# A file that takes minutes to write may be cut off by Ctrl-C or a full disk. So the given lines below write it under
# another name, and rename it when it is whole.
#
# ### Exercise 3 · Write the rows
#
# Write the rows of a record file with several processes. `run_ranks` starts them and calls `write_range` in each, with
# its number, from 0, and the number of processes.
#
# **Must**
# - share the rows out: each is read and written once, by one process;
# - read them in slices of `source.x` and `source.y`: at most `CHUNK` bytes of x, or one row;
# - put row i at byte `PAGE` + i · `stride`: x, y, zeros, in float32.
#
# **Points** 6 · **Extra** · **Difficulty** ●●○ · **Minutes** 20 · **Lines** 9
#
# **Source** `man 2 rename` (the new name appears atomically), `man 2 fsync`.
#
# <details><summary>Hint 1</summary>
#
# Rank r of n may take the rows from `rows * r // n` up to `rows * (r + 1) // n`. A file opened with mode `"rb+"` keeps
# what is in it; `seek` goes to a place, `write` takes a NumPy array.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# For each chunk from `start` to `end`: `values = np.zeros((end - start, stride // 4), "<f4")`, then
# `values[:, :columns] = source.x[start:end]`, `values[:, columns] = source.y[start:end]`, and write it. A chunk has
# `max(1, CHUNK // stride)` rows.
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
    path, columns = Path(path), source.columns
    stride = min(4 << columns.bit_length(), -(-4 * (columns + 1) // PAGE) * PAGE)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")  # same folder: the last step is a rename

    def write_range(rank, world_size):
        """Write this rank's rows into `temporary`, which has its header and its full length already."""
        ### BEGIN SOLUTION
        first, last = (source.rows * r // world_size for r in (rank, rank + 1))
        step = max(1, CHUNK // stride)
        with open(temporary, "rb+") as file:
            file.seek(PAGE + first * stride)
            for start in range(first, last, step):
                chunk = slice(start, min(start + step, last))
                values = np.zeros((chunk.stop - start, stride // 4), "<f4")
                values[:, :columns], values[:, columns] = source.x[chunk], source.y[chunk]
                file.write(values)
        ### END SOLUTION

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


# %% test="write_records-visible" points=3
check.write_records(write_records)

# %% test="write_records-hidden" points=3
### BEGIN HIDDEN TESTS
check.write_records(write_records, seed=274)
### END HIDDEN TESTS

# %% [markdown]
# You read the file through a *mapping*: it gets a range of addresses, and the system fetches a memory page from the
# disk when a program touches it. The pages stay in the *page cache* while there is room, for all processes. The mapping
# here is *private*, so what you write into it does not change the file. Linux may refuse a private mapping that is
# larger than memory, unless the flag `NORESERVE` is given.
#
# ### Exercise 4 · Open it without reading it
#
# Write the reader of a record file. The given method `_checked` reads the header and refuses a file that does not fit.
#
# **Must**
# - map the file privately, with `NORESERVE`;
# - copy nothing: `table` (N, S // 4), `x` (N, D) and `y` (N,) are float32 tensors on the mapping.
#
# **Points** 6 · **Extra** · **Difficulty** ●●○ · **Minutes** 15 · **Lines** 3
#
# **Source** `man 2 mmap`; Linux, "Overcommit Accounting"; `torch.frombuffer`.
#
# <details><summary>Hint 1</summary>
#
# Which calls of torch make a tensor of memory that exists already, and which copy it?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `mmap.mmap(file.fileno(), 0, flags=mmap.MAP_PRIVATE | NORESERVE)` maps the whole file, for reading and writing.
# `torch.frombuffer(mapping, dtype=torch.float32, offset=PAGE)` makes one long tensor of it.
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
        with open(path, "rb") as file:
            self.rows, self.columns, self.seed = self._checked(path, file)
            ### BEGIN SOLUTION
            mapping = mmap.mmap(file.fileno(), 0, flags=mmap.MAP_PRIVATE | NORESERVE)
        self.table = torch.frombuffer(mapping, dtype=torch.float32, offset=PAGE).view(self.rows, -1)
        self.x, self.y = self.table[:, : self.columns], self.table[:, self.columns]
        ### END SOLUTION

    def _checked(self, path, file):
        """(rows, columns, seed) of the header, which fits the file.  Raises: ValueError."""
        try:
            header = json.loads(file.read(PAGE))
            rows, columns, seed = (header[key] for key in ("rows", "columns", "seed"))
            found = {key: header[key] for key in ("format", "dtype", "stride")}
        except KeyError as error:
            raise ValueError(f"the header of {path} has no key {error}.") from None
        except (ValueError, TypeError):  # not JSON, or not in braces
            raise ValueError(f"{path} is not a record file: it does not begin with a header in JSON.") from None
        stride = min(4 << columns.bit_length(), -(-4 * (columns + 1) // PAGE) * PAGE)
        for key, asked in (("format", FORMAT), ("dtype", "float32"), ("stride", stride)):
            if found[key] != asked:
                raise ValueError(f"the {key} of {path} is {found[key]!r}, and should be {asked!r}.")
        size, asked = os.fstat(file.fileno()).st_size, PAGE + rows * stride
        if size != asked:
            raise ValueError(f"{path} has {size} bytes, its header asks for {asked}; write it again.")
        return rows, columns, seed

    def __len__(self):
        """The number of rows."""
        return self.rows


# %% test="Records-visible" points=3
check.Records(Records)

# %% test="Records-hidden" points=3
### BEGIN HIDDEN TESTS
check.Records(Records, seed=883)
### END HIDDEN TESTS

# %% [markdown]
# **Predict**: how many milliseconds does it take to open the whole file? And how many times as fast are two writers
# as one? (Writers are timed on some of the rows.)

# %%
predicted_open = None  # milliseconds
predicted_writers = None  # times

# %% tags=["experiment"]
write_records_now, Records_now = course.solved(check.write_records), course.solved(check.Records)
part = dataclasses.replace(data, rows=min(data.rows, sizes.rows_written))
sample, path = data.folder / "sample", data.folder / regression.RECORDS
ONE, TWO, READ, OPEN = "one writer", "two writers", "read the file", "open the file"
ways = {name: lambda n=n: write_records_now(sample, part, n) for n, name in ((1, ONE), (2, TWO))}
writing = compare(ways, seconds=sizes.seconds, progress=False)
part_bytes = sample.stat().st_size
sample.unlink()
show_rates(writing, part_bytes)
print(f"{writing.rounds} rounds; control: one writer against itself {writing.control}")
print(f"two writers: {writing.ratio(TWO)} times as fast" + reveal(predicted_writers))
course.claim("two writers are less than 1.8 times as fast as one", writing.ratio(TWO), below=1.8,
             otherwise="Your disk takes more than one writer gives.")  # fmt: skip
if not path.exists():
    write_records_now(path, data)
before = usage.private_bytes()
records = Records_now(path)
held = (usage.private_bytes() - before) / 1e6
ways = {READ: lambda: read_file(path, path.stat().st_size), OPEN: lambda: Records_now(path)}
opening = compare(ways, seconds=sizes.seconds / 4, progress=False)
print(f"opened in {1000 * opening.time(OPEN).estimate:.1f} ms" + reveal(predicted_open),
      f"for {records.table.nbytes / GIGA:.2f} GB; memory beyond the file: {held:.1f} MB")  # fmt: skip
last = records.rows - 1
print("the last row is the source's:", np.array_equal(records.x[last], data.x[last]), float(records.y[last]))
course.claim("opening the file is at least ten times as fast as reading it from the page cache", opening.ratio(OPEN),
             above=10, otherwise="Opening takes as long for a small file as for a large one.")  # fmt: skip

# %% [markdown]
# Opening takes as long for a file of any size, because it reads the header only.
#
# **Takeaway** Rows of equal size need no index and no parsing: opening reads the header, and touching a row reads it.

# %% [markdown]
# ## What to take home
#
# - Compare a loader with `memcpy` of the same bytes.
# - Copy a batch once, in one call, into memory that you already own.
# - A file of equal rows needs no index. Write it under another name and rename it when it is whole.
