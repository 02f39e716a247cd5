# %% [markdown]
# # Fast loading, part 3: Reading ahead, up to the GPU
#
# **What does it take to prepare the next batch while the model computes on this one?**
#
# A loop that reads a batch and then computes takes the sum of both times; one that reads ahead takes the longer of
# the two. This part writes the thread that reads ahead, the loader in which an order, a way to fill a buffer and that
# thread meet, and the copies to a GPU that run while it computes. Each is a question of who owns a buffer, and until
# when. In between, all loaders of the unit race over the whole file, beside `memcpy`.
#
# **You will be able to**
#
# - read ahead in a thread that never writes into a batch in use, and that ends when its consumer leaves
# - put an order, a way to fill and a way to read ahead together into a loader
# - say what each loader costs in time and in memory, beside `memcpy`
# - copy batches to a GPU while it computes
#
# **Minutes** 10 core · 220 in all
#
# **Needs** parts 1 and 2 (their answers are taken over if you solved them)

# %% [markdown]
# How it works: write down what you expect (a cell with `None`), solve the exercise, run its check, look at the
# measurement. Later cells use your answer if its check passed (`x_now` is your `x`) and fall back on the reference
# solution if your copy of the course includes it. Run the cells from the top. Leave the empty cell after each check
# alone: your instructor's tests go there.

# %% locked="setup"
import contextlib
import math
import threading
from types import SimpleNamespace

import torch
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset

import course
from course import usage
from course.checks import fast_loading as check
from course.copies import DeviceCopies
from course.datasets import regression
from course.distributed import run_ranks
from course.plots import fast_loading as plots
from course.predictions import reveal
from course.record_files import RecordFile
from course.yardsticks import (
    MEMCPY,
    READING,
    iterate,
    one_pass,
    rows_in_memory,
    seconds_in_turn,
    show_rates,
    without_yardsticks,
    yardsticks,
)

device = course.device()
print(course.machine())
sizes = course.sizes("04_fast_loading")

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
# ### Exercise 1 · Read ahead in a thread
#
# Write a generator that fills buffers in a background thread while its consumer computes with one of them.
#
# **Points** 8 · **Extra** · **Difficulty** ●●● · **Minutes** 75 · **Lines** 28
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
# after `close()` it is gone. What that last fill raises is nobody's any more: `close()` does not raise it. Block; do
# not poll: no `sleep`, no timeout. An interpreter that ends must not wait for
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
# ### Exercise 2 · The loader
#
# Put order, filling and reading ahead together into something that a training loop can iterate over.
#
# **Points** 8 · **Extra** · **Difficulty** ●●● · **Minutes** 75 · **Lines** 30
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
# Now all loaders over all rows, in turns with the yardsticks and with `TensorDataset`. Predict: which share of memcpy's
# speed do the three loaders of this unit reach: random order from the mapped file, quasi-random order from the mapped
# file, and quasi-random order read page by page, with nothing mapped?

# %%
predicted_random, predicted_quasi, predicted_read = None, None, None  # 1 is memcpy with one thread

# %% tags=["experiment"]
data = regression.load(sizes.rows, sizes.columns)
x_bytes, x_file = 4 * data.rows * data.columns, data.folder / "x.npy"
asked = (check.write_records, check.Records, check.gather, check.random_order, check.quasi_random_order)
asked += (check.PageReader, check.read_ahead, check.Loader)
answers = SimpleNamespace(**{exercise.name: course.solved(exercise) for exercise in asked})


def record_file():
    """The record file of part 1, opened anew; written if it is not there."""
    return RecordFile(answers, data, sizes.batch_size, sizes.page, sizes.window)


def tensor_dataset():
    """A DataLoader of the rows in memory, which fetches them one by one."""
    return DataLoader(TensorDataset(*rows_in_memory(data)), sizes.batch_size, shuffle=True)


file, standard = record_file(), tensor_dataset()
batches = BatchSampler(RandomSampler(standard.dataset), sizes.batch_size, False)
contestants = {
    "TensorDataset, 0 workers": standard,
    "TensorDataset, batched indexing": DataLoader(standard.dataset, sampler=batches, batch_size=None),
    "ours, random": file.loader(),
    "ours, random, read ahead": file.loader(buffers=2),
    "ours, quasi-random": file.loader("quasi-random"),
    "ours, quasi-random, read by pages": file.loader("quasi-random", threads=2),
}
try:
    past_the_cache = file.loader("quasi-random", threads=2, direct=True)
    iterate(past_the_cache)
    contestants["ours, quasi-random, past the page cache"] = past_the_cache
except (OSError, ValueError) as error:
    print(f"not past the page cache: {error}")
passes = {name: one_pass(loader) for name, loader in contestants.items()}
seconds = seconds_in_turn(yardsticks(x_file, x_bytes) | passes, sizes.rounds)
for name in ("TensorDataset, 0 workers", "TensorDataset, batched indexing"):
    seconds[name] *= data.rows / len(standard.dataset)
show_rates(seconds, x_bytes)
epochs, yards = without_yardsticks(seconds)
for name, said in zip(
    ("ours, random", "ours, quasi-random", "ours, quasi-random, read by pages"),
    (predicted_random, predicted_quasi, predicted_read),
    strict=True,
):
    print(f"{name}: {yards[MEMCPY] / epochs[name].median():.2f} of memcpy" + reveal(said))
plots.epoch_times(epochs, x_bytes, yards)

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


makers = {
    "TensorDataset, 0 workers": tensor_dataset,
    "ours, random": lambda: record_file().loader(),
    "ours, random, read ahead": lambda: record_file().loader(buffers=2),
    "ours, quasi-random": lambda: record_file().loader("quasi-random"),
    "ours, quasi-random, read by pages": lambda: record_file().loader("quasi-random", threads=2),
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
    part = TensorDataset(*standard.dataset[:n])  # at most the rows that are held
    loaders = {
        "TensorDataset, 0 workers": DataLoader(part, sizes.batch_size, shuffle=True),
        "ours, random": file.loader(rows=n),
        "ours, quasi-random, read by pages": file.loader("quasi-random", rows=n, threads=2),
    }
    passes = {name: one_pass(loader) for name, loader in loaders.items()}
    growth[n] = seconds_in_turn(passes | yardsticks(x_file, 4 * n * sizes.columns), min(3, sizes.rounds))
    growth[n]["TensorDataset, 0 workers"] *= n / len(part)
curves = {name: [growth[n][name].median().item() for n in sizes.ladder] for name in growth[sizes.ladder[0]]}
of_yards = {name: curves.pop(name) for name in (MEMCPY, READING)}
plots.time_against_rows(sizes.ladder, curves, of_yards)

# %% [markdown]
# Lines of slope one: time is proportional to the rows, and the distance between two lines is what each loader does
# per row. Where a line bends, something has stopped fitting into a cache. It bends most where the data stops
# fitting into memory, which this unit does not do to your machine; what happens then is a question of part 2.

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
# ### Exercise 3 · Copy ahead
#
# Hand out the batches of a loader on the device; while the consumer computes on one of them, the copy of the next
# is under way.
#
# **Points** 5 · **Extra** · **Difficulty** ●●● · **Minutes** 50 · **Lines** 18
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
    copies, ring = DeviceCopies(device), file.loader(buffers=3)
    host = torch.empty(sizes.batch_size, file.stride // 4, pin_memory=True)
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

    to_gpu = seconds_in_turn(
        {"the bus alone": bus, "a copy for each batch": plain, "copies ahead": ahead}, sizes.rounds
    )
    show_rates(to_gpu, x_bytes)
    for name in ("a copy for each batch", "copies ahead"):
        print(f"{name}: {(to_gpu['the bus alone'] / to_gpu[name]).median():.0%} of the bus")

# %% [markdown]
# ## What to take home
#
# - A buffer belongs to the consumer until it asks for the next batch, and to the thread or the copy after that.
# - Reading ahead pays where the consumer computes elsewhere or the fill waits for a disk, not where both want cores.
# - A loader is small: it knows an order, a way to fill and a way to read ahead, and what it hands out is a view.
