# %% [markdown]
# # Fast loading, part 3: Reading ahead, up to the GPU
#
# **When is it worth preparing the next batch while the model computes on this one?**
#
# A loop that reads a batch and then computes takes the sum of both times. Reading ahead in a thread can hide the
# shorter of the two.
#
# **You will be able to**
#
# - predict from recorded times what reading ahead gains, and with how many buffers
# - read ahead in a thread that ends when its consumer leaves
# - say how many bytes a loader reads from the disk, also when the file is larger than memory
# - copy batches to a GPU while it computes
#
# **Minutes** 26 core · 94 in all · session 2
#
# **Needs** parts 1 and 2 (their answers are used if you solved them)

# %% [markdown]
# Write down what you expect (a cell with `None`), solve the exercise, run its check, look at the measurement. Later
# cells use your answer if its check passed: `x_now` is your `x`.

# %% locked="setup"
import functools
import math
import mmap
import statistics
import threading
import time
from types import SimpleNamespace

import torch
from torch.utils.data import DataLoader, TensorDataset

import course
from course.checks import fast_loading as check
from course.datasets import regression
from course.learner.predictions import reveal
from course.loading.copies import DeviceCopies
from course.loading.record_files import RecordFile
from course.measure import usage
from course.measure.comparison import Interval, compare, compare_measured
from course.measure.page_cache import drop_cached, limited, map_rows, read_around, reads
from course.measure.yardsticks import rows_in_memory, show_rates
from course.parallel.distributed import run_ranks
from course.plots import fast_loading as plots

device = course.device()
print(course.machine())
sizes = course.sizes("04_fast_loading")
data = regression.prepare(sizes.rows, sizes.columns)
x_bytes = 4 * data.rows * data.columns
asked = (check.gather, check.random_order, check.quasi_random_order)
answers = SimpleNamespace(**{exercise.name: course.solved(exercise) for exercise in asked})

# %% [markdown]
# ## How long does a pipeline of two take?
#
# One thread reads, the other computes. Both run in C code that releases Python's lock, so they can overlap. A buffer
# belongs to the consumer from the moment it gets a batch until it asks for the next one, and to the reader otherwise.
# With one buffer they take turns. With two, batch i + 1 is read while the consumer computes on batch i.
#
# The given `course.loading.loaders.Loader` joins the pieces: `order(epoch)` gives row numbers, `fill(index, buffer)`
# fetches rows, and `read_ahead(fill, work, buffers)` does so in a thread if there is more than one buffer. A batch is a
# view of a buffer, so **it is yours only until you ask for the next one**. Clone what you want to keep.
#
# ### Exercise 1 · Predict the pipeline
#
# Compute how many seconds an epoch takes, from the start of the first fill to the end of the last step. One thread
# makes the fills in order, and fill i goes into buffer i modulo `buffers`.
#
# ```python
# >>> pipeline_seconds([2, 2, 2], [3, 3, 3], buffers=1), pipeline_seconds([2, 2, 2], [3, 3, 3], buffers=2)
# (15.0, 11.0)
# ```
#
# **Must**
# - begin step i when fill i and step i - 1 are over;
# - begin fill i when fill i - 1 is over and its buffer is free;
# - count the buffer of fill i as free when step i - `buffers` is over.
#
# **Points** 3 · **Core** · **Difficulty** ●●○ · **Minutes** 10 · **Lines** 7
#
# **Source** Bryant and O'Hallaron 2015, "Computer Systems", section 4.4 (pipelining).
#
# <details><summary>Hint 1</summary>
#
# Write two rows of numbers for the example with two buffers: when does each fill end, and each step?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Keep two lists, `filled` and `done`, the ends of all fills and steps so far. Each new end is a `max` of two earlier
# ends, plus a duration.
#
# </details>


# %% solution="pipeline_seconds"
def pipeline_seconds(fills, steps, buffers):
    """Seconds of an epoch in which one thread fills buffers while another computes, a float.

    Args:
        fills: list of seconds, what each fill takes.
        steps: list of seconds, what each step takes, as long as `fills`.
        buffers: 1 or more; with 1, reading and computing take turns.
    """
    ### BEGIN SOLUTION
    filled, done = [0.0], [0.0]
    for i, fill in enumerate(fills):
        free = done[i - buffers + 1] if i >= buffers else 0.0
        filled.append(max(filled[-1], free) + fill)
        done.append(max(filled[-1], done[-1]) + steps[i])
    return done[-1]
    ### END SOLUTION


# %% test="pipeline_seconds-visible" points=1
check.pipeline_seconds(pipeline_seconds)

# %% test="pipeline_seconds-hidden" points=2
### BEGIN HIDDEN TESTS
check.pipeline_seconds(pipeline_seconds, seed=44)
### END HIDDEN TESTS

# %% [markdown]
# ## How does a waiting thread end? · extra
#
# A consumer may stop after three batches: by `break`, by an error, or by the stop button of the notebook. A thread that
# waits for a buffer then hangs, and keeps the memory of all buffers. Python helps: when a generator is closed, or
# nobody refers to it any more, Python raises `GeneratorExit` at its `yield`, so its `finally` runs.
#
# ### Exercise 2 · Read ahead in a thread
#
# Complete a generator that fills buffers in a thread while its consumer computes. The thread is given: it waits for
# `free` before it fills a buffer again, and releases `filled` for each value and once more at the end.
#
# **Must**
# - yield the `values` in order, and free a buffer only when the next value is asked for;
# - when the generator ends in any way, let the thread fill nothing more, and wait for its end;
# - after the last value, raise what the thread caught.
#
# **Points** 8 · **Extra** · **Difficulty** ●●○ · **Minutes** 20 · **Lines** 10
#
# **Source** Dijkstra 1965, "Cooperating sequential processes".
#
# <details><summary>Hint 1</summary>
#
# There are two things to wait for. What does the consumer wait for, and what must it do so that the thread need not
# wait any longer?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `while filled.acquire() and values:` yield `values.pop(0)`, then `free.release()`. The line after the `yield` runs
# when the consumer asks for the next. In a `finally` set the flag, `free.release()`, `thread.join()`.
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

    Raises: ValueError if there are fewer than 2 buffers, now or by the first next(); what `fill` and `work` raise.
    """
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
    ### BEGIN SOLUTION
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
# ## What is reading ahead worth?
#
# Pages are read past the page cache where the file system allows it; elsewhere the file is dropped before each epoch.
# The consumer multiplies each batch by a matrix, once or several times, to vary the step.
#
# **Predict**: a step takes as long as a fill. How many times as fast is an epoch with three buffers as with one?

# %%
predicted_gain = None  # times as fast, a step as long as a fill

# %% tags=["experiment"]
pipeline_now, answers.read_ahead = course.solved(check.pipeline_seconds), course.solved(check.read_ahead)
n_cold = min(data.rows, sizes.cold_rows)
file = RecordFile(answers, data, sizes.batch_size, sizes.page, window=1)  # the file of part 1; a fill is a batch
file_bytes = n_cold * file.stride
weights = torch.randn(sizes.columns, sizes.targets, generator=torch.Generator().manual_seed(0)).to(device)


def compute(batch, repeats=1):
    """Multiply a batch with the weights, `repeats` times."""
    x = batch.to(device)
    for _ in range(repeats):
        product = x @ weights
    return product[0, 0].item()  # waits for a GPU


def cold_pages(buffers=1, direct=False):
    """A loader of pages by read calls; with `direct`, past the page cache."""
    return file.loader("quasi-random", rows=n_cold, buffers=buffers, threads=2, direct=direct)


def reads_directly():
    """True if the rows of this file can be read past the page cache."""
    try:
        return next(iter(cold_pages(direct=True))) is not None
    except (OSError, ValueError):
        return False


def recorded_epoch(buffers, repeats):
    """Seconds of a cold epoch of page reads, and its events: (lane, start, end) of each fill and each step."""
    loader, events = cold_pages(buffers, directly), []
    fill, zero = loader.fill, time.perf_counter()

    def record(lane, call, *args):
        start = time.perf_counter()
        result = call(*args)
        events.append((lane, start - zero, time.perf_counter() - zero))
        return result

    for buffer in loader.buffers:  # threads, and memory pages of the buffers, are made here and not counted
        fill(loader.order(0)[: len(buffer)], buffer)
    loader.fill = functools.partial(record, "read", fill)
    drop_cached(file.path)
    zero = time.perf_counter()
    for x, _ in loader:
        record("compute", compute, x, repeats)
    return time.perf_counter() - zero, events


def durations(events, lane):
    return [end - start for name, start, end in events if name == lane]


directly = reads_directly()
if not drop_cached(file.path) and not directly:
    print("this system has no posix_fadvise: the file stays in the page cache, and what follows is measured warm.")
recorded_epoch(1, 1)  # not counted: it warms up threads and memory
once, nine_times = (recorded_epoch(1, repeats)[1] for repeats in (1, 9))
fill = statistics.median(durations(once, "read"))
first, nine = (statistics.median(durations(events, "compute")) for events in (once, nine_times))
another = max((nine - first) / 8, first / 100)  # seconds of a product more; the first one also loads the batch
ONE, AHEAD = "one buffer", "three buffers, read ahead"
shares, gains, predicted = [0.25, 0.5, 1, 2, 4], [], []
measured_shares, repeated, timelines = [], [], []


def compared_epochs(repeats):
    """(Comparison of cold epochs, {way: recorded events of its median epoch}), steps of `repeats` products."""
    runs = {ONE: [], AHEAD: []}

    def measure(way):
        runs[way].append(recorded_epoch(1 if way == ONE else 3, repeats))
        return runs[way][-1][0]

    compared = compare_measured([ONE, AHEAD], measure, seconds=sizes.seconds / len(shares))
    return compared, {way: sorted(found, key=lambda run: run[0])[len(found) // 2][1] for way, found in runs.items()}


def found_of(gain, due):
    """The share of the predicted gain that was found, on a logarithmic scale: 1 is all of it, 0 is no gain."""
    return Interval(*(math.log(value) / math.log(due) for value in (gain.estimate, gain.low, gain.high)))


for share in shares:
    repeats = 1 + max(0, round((share * fill - first) / another))
    compared, events = compared_epochs(repeats)
    fills, steps = durations(events[ONE], "read"), durations(events[ONE], "compute")
    repeated.append(repeats)
    timelines.append(events)
    measured_shares.append(sum(steps) / sum(fills))
    gains.append(compared.ratio(AHEAD))
    predicted.append(pipeline_now(fills, steps, 1) / pipeline_now(fills, steps, 3))
    part = found_of(gains[-1], predicted[-1])
    nearer = "the formula" if part.low > 0.5 else "no gain" if part.high < 0.5 else "not decided"
    slower = statistics.median(durations(events[AHEAD], "compute")) / statistics.median(steps)
    print(f"a step is {measured_shares[-1]:4.2f} fills: read ahead is {gains[-1]} times as fast, predicted "
          f"{predicted[-1]:.2f}; nearer: {nearer}; a step takes {slower:.2f} times as long; {compared.rounds} rounds, "
          f"one buffer against itself {compared.control}")  # fmt: skip
nearest = min(range(len(shares)), key=lambda row: abs(math.log(measured_shares[row])))  # to a step as long as a fill
print(f"nearest to one fill, a step of {measured_shares[nearest]:.2f}: {gains[nearest]} times as fast"
      + reveal(predicted_gain))  # fmt: skip
course.claim("on a cold file, where a step takes about as long as a fill, reading ahead is at least 1.2 times as fast",
             gains[nearest], above=1.2)  # fmt: skip
course.claim("where a step takes about as long as a fill, more than half of the predicted gain of reading ahead is "
             "found, so the formula is nearer than 'no gain'", found_of(gains[nearest], predicted[nearest]), above=0.5,
             otherwise="While the thread reads, a step itself takes longer.")  # fmt: skip

# %% tags=["experiment"]
plots.timelines(timelines[nearest])

# %% tags=["experiment"]
plots.pipeline_gain(measured_shares, gains, predicted)

# %% [markdown]
# The formula takes the times of fills and steps from runs with one buffer, where only one of the two works. Does a step
# take longer with reading ahead? The lines above say by how much. If so, **we think** that reading threads and
# computing threads share the cores. On a machine with spare cores, or where a GPU computes, the steps should not
# change, and the formula should hold.
#
# **Takeaway** Reading ahead hides at most the shorter of two times, and less where both need the same cores.

# %% [markdown]
# ## How many bytes come from the disk?
#
# The page cache keeps what was read while there is room. A mapping fetches a memory page when it is touched, and by
# default its neighbours too, because the system guesses that they come next. `madvise(MADV_RANDOM)` tells it not to.
# Page reads ask for many rows in one call. With `O_DIRECT` they bypass the page cache.
#
# Each way runs two epochs from a cold start, once with room for the whole file and once with room for a quarter. To
# emulate that limit, we drop the file whenever a quarter of it has been read.
#
# **Predict**: random rows come from a mapping, with room for a quarter of the file. How many times the bytes of the
# file come from the disk per epoch?

# %%
predicted_rereads = None  # times the bytes of the file

# %% tags=["experiment"]
ROOM = {"room for all": None, "room for a quarter": 0.25}


def mapped(advice):
    """A loader of random rows from a mapping of its own, and that mapping."""
    mapping, table = map_rows(file.path, n_cold, file.stride, advice)
    loader = file.loader(rows=n_cold)
    loader.fill = functools.partial(answers.gather, table)
    return loader, mapping


def by_pages(direct):
    """A loader of pages by read calls, and None: nothing is mapped."""
    return cold_pages(direct=direct), None


def cold_epochs(make, room, epochs=2):
    """[(seconds, Reads)] of each epoch of a new loader, the first of them cold."""
    loader, mapping = make()
    maps, found = [mapping] if mapping else [], []
    if room:
        loader.fill = limited(loader.fill, room * file_bytes, file.path, *maps)
    drop_cached(file.path, *maps)
    for _ in range(epochs):
        before, start = reads(), time.perf_counter()
        for x, _ in loader:
            compute(x, repeated[nearest])
        found.append((time.perf_counter() - start, reads().since(before)))
    return found


ways = {
    "random rows, mapped": functools.partial(mapped, None),
    "random rows, mapped, MADV_RANDOM": functools.partial(mapped, getattr(mmap, "MADV_RANDOM", None)),
    "pages, read calls": functools.partial(by_pages, False),
    "pages, O_DIRECT": functools.partial(by_pages, True),
}
race = {}
print(f"a fault in a mapping brings up to {read_around(file.path) / 1024:,.0f} KiB (read_ahead_kb of this disk)")
print(f"{n_cold:,} rows, {file_bytes / 1e6:.0f} MB; epochs 1, 2{'seconds':>28}{'of the file, from the disk':>34}"
      f"{'major faults':>20}")  # fmt: skip
for room, share in ROOM.items():
    print(room)
    for name, make in ways.items():
        try:
            race[room, name] = found = cold_epochs(make, share)
        except (OSError, ValueError) as error:
            print(f"  {name}: {error}")
            continue
        print(f"  {name:<40}" + "".join(f"{seconds:8.2f}" for seconds, _ in found) + " " * 6
              + "".join(f"{read.disk_bytes / file_bytes:8.2f}" for _, read in found) + " " * 4
              + "".join(f"{read.major_faults:8,}" for _, read in found))  # fmt: skip


def of_file(room, name, epoch):
    """The bytes that came from the disk in an epoch, counted from 1, over those of the file."""
    return race[room, name][epoch - 1][1].disk_bytes / file_bytes


rereads = of_file("room for a quarter", "random rows, mapped", 2)
print(f"random rows, mapped, room for a quarter: {rereads:.1f} times the file in epoch 2" + reveal(predicted_rereads))
otherwise = "A value of nan means that your system does not count the bytes read (/proc/self/io)."
course.claim("a file that fits into memory is read from the disk once: epoch 2 reads less than 1 % of it",
             of_file("room for all", "random rows, mapped", 2) < 0.01,
             f"{of_file('room for all', 'random rows, mapped', 2):.1%} of the file", otherwise=otherwise)  # fmt: skip
course.claim("without room, random rows from a mapping read more than twice the file per epoch", rereads > 2,
             f"{rereads:.1f} times", otherwise=otherwise)  # fmt: skip
course.claim("page reads fetch less than 1.5 times the bytes of the file, with room and without",
             all(of_file(room, "pages, read calls", 1) < 1.5 for room in ROOM),
             ", ".join(f"{of_file(room, 'pages, read calls', 1):.2f}" for room in ROOM) + " times",
             otherwise=otherwise)  # fmt: skip
PAGES, MAPPED = "pages, read calls", "random rows, mapped"
without_room = compare_measured(
    [PAGES, MAPPED], lambda name: cold_epochs(ways[name], 0.25, epochs=1)[0][0], seconds=sizes.seconds
)
print(f"a cold epoch without room\n{without_room}")
course.claim("without room for the file, page reads are at least twice as fast as random rows from a mapping",
             without_room.ratio(PAGES, to=MAPPED), above=2,
             otherwise="Compare the bytes and the major faults of the two rows.")  # fmt: skip

# %% tags=["experiment"]
plots.cold_race({key: (found[1][0], found[1][1].disk_bytes / file_bytes) for key, found in race.items()},
                f"Without room, random rows from a mapping read {rereads:.1f} times the file per epoch")  # fmt: skip

# %% [markdown]
# With room for the file, epoch 2 reads nothing from the disk, except with `O_DIRECT`, which reads the file every time.
# Without room, each fault of a mapping brings its neighbours, which are dropped before they are used; how many depends
# on `read_ahead_kb`, printed above. With `MADV_RANDOM` it brings one page, but the program waits for a fault per row.
# Page reads bring every page once, in large requests.
#
# **Takeaway** Count bytes, not only seconds. Without room for the file, read whole pages, each of them once.

# %% [markdown]
# ## How much memory does a loader hold? · extra
#
# A mapped file takes no memory of the program, so a loader needs only its buffers.
#
# **Predict**: how many MB beyond mapped files do the loaders of this unit hold, for a file of 400 MB?

# %%
predicted_memory = None  # MB of our loaders, at most


# %% tags=["experiment"]
def record_file():
    """The record file of part 1, opened again."""
    return RecordFile(answers, data, sizes.batch_size, sizes.page, sizes.window)


def tensor_dataset():
    """A DataLoader of the rows in memory, which fetches them one by one."""
    return DataLoader(TensorDataset(*rows_in_memory(data)), sizes.batch_size, shuffle=True)


file = record_file()


# %% tags=["experiment"]
def most_memory(rank, world_size, make):
    """Most bytes beyond mapped files that a loader takes in an epoch, `make` included."""
    before = usage.private_bytes()
    return max(usage.private_bytes() for _ in make()) - before


makers = {
    "TensorDataset, 0 workers": tensor_dataset,
    "ours, random": lambda: record_file().loader(),
    "ours, random, read ahead": lambda: record_file().loader(buffers=2),
    "ours, quasi-random, read by pages": lambda: record_file().loader("quasi-random", threads=2),
}
# each in a new process: memory that another loader gave back would not be counted
memory = {name: run_ranks(most_memory, 1, make, backend="gloo")[0] for name, make in makers.items()}
course.claim("loaders of this unit hold less than 64 MB beyond mapped files",
             max(value for name, value in memory.items() if "ours" in name) < 64e6,
             f"at most {max(value for name, value in memory.items() if 'ours' in name) / 1e6:.0f} MB of "
             f"{x_bytes / 1e6:,.0f}" + reveal(predicted_memory, "{} MB"),
             otherwise="A loader holds one window per buffer. How large is yours?")  # fmt: skip
plots.memory(memory, x_bytes)

# %% [markdown]
# **Takeaway** A loader that fills buffers holds a few batches, not the file.

# %% [markdown]
# ## When may you refill a buffer that a GPU reads? · extra
#
# A copy to a GPU goes over a bus, by a separate engine. It is *queued*: the call returns immediately, and the bytes are
# read from the buffer later. For that the buffer must be *pinned*. Pin a buffer once and use it for all batches. Nobody
# may write into the buffer before the copy ends, but the loader will, as soon as it is asked for the next batch. The
# given `course.loading.copies.DeviceCopies` offers both waits:
#
# | call | what it does | who waits |
# |---|---|---|
# | `copy = copies.start(tensors)` | queues the copy of a batch | nobody |
# | `copy.tensors()` | the tensors on the device; work queued after this call begins after the copy's end | the GPU |
# | `copy.wait()` | returns when the copy is over; the source may then be refilled | the processor |
#
# `x` and `y` are views of one buffer, padding included. `start` copies it in one transfer and makes the views again on
# the device. On the CPU `start` copies immediately.
#
# ### Exercise 3 · Copy ahead
#
# Yield the batches of a loader on the device. While the consumer computes on one batch, the next is copied. The end is
# given, for a consumer that leaves early.
#
# **Must**
# - yield `tensors()` of each copy, in order;
# - `wait()` for each copy before you ask for the next batch, because the loader may have one buffer;
# - while the consumer has batch i, have started copy i + 1, without its `wait()` or `tensors()`.
#
# **Points** 5 · **Extra** · **Difficulty** ●●○ · **Minutes** 20 · **Lines** 8
#
# **Source** "CUDA semantics" in the PyTorch documentation.
#
# <details><summary>Hint 1</summary>
#
# For a loader with one buffer, write down the calls for three batches in the order in which they may happen: ask 0,
# start 0, ... Before which call must you wait for copy 0? And for copy 1, if batch 0 is to be yielded meanwhile?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# For each batch: `running = copies.start(batch)`; if there is a `ready`, `yield ready.tensors()`; `running.wait()`;
# `ready = running`. After the loop yield the last `ready`.
#
# </details>


# %% solution="copy_ahead"
def copy_ahead(batches, copies):
    """A generator over the batches of `batches` on the device, each yielded while the next is being copied.

    Args:
        batches: iterable of tuples of tensors in the computer's memory; a batch may be refilled as soon as the next
            one is asked for. Its iterator may have a `close()`.
        copies: a `course.loading.copies.DeviceCopies`, or what has a `start` like its own.

    Yields: what `tensors()` of each copy returns.
    """
    batches = iter(batches)
    ready = running = None
    try:
        ### BEGIN SOLUTION
        for batch in batches:
            running = copies.start(batch)
            if ready:
                yield ready.tensors()
            running.wait()  # asked for more, the loader refills what this copy reads
            ready = running
        if ready:
            yield ready.tensors()
        ### END SOLUTION
    finally:  # also when the consumer leaves early
        try:
            if running:
                running.wait()
        finally:  # also when that fails
            if hasattr(batches, "close"):
                batches.close()


# %% test="copy_ahead-visible" points=2
check.copy_ahead(copy_ahead)

# %% test="copy_ahead-hidden" points=3
### BEGIN HIDDEN TESTS
check.copy_ahead(copy_ahead, seed=342)
### END HIDDEN TESTS

# %% [markdown]
# **Predict**: on a GPU, a step takes about as long as the copy of a batch. How many times as fast is copying ahead
# as copying, waiting and computing one after the other?

# %%
predicted_copies = None  # times

# %% tags=["experiment"]
copy_ahead_now = course.solved(check.copy_ahead)
if device.type != "cuda":
    print("no CUDA device, nothing to copy to: on a GPU this cell measures what copying ahead gains")
else:
    copies, ring, big = DeviceCopies(device), file.loader(buffers=3), torch.randn(sizes.columns, 4096, device=device)

    def copied_then_computed():
        for batch in ring:
            copy = copies.start(batch)
            copy.wait()
            copy.tensors()[0] @ big
        torch.cuda.synchronize()

    def copied_ahead():
        for x, _ in copy_ahead_now(iter(ring), copies):
            x @ big
        torch.cuda.synchronize()

    def copied_only():
        for batch in ring:
            copies.start(batch).wait()

    ways = {"copy, wait, compute": copied_then_computed, "copies ahead": copied_ahead, "copies alone": copied_only}
    to_gpu = compare(ways, device=device, seconds=sizes.seconds, progress=False)
    show_rates(to_gpu, x_bytes)
    print(f"copying ahead: {to_gpu.ratio('copies ahead')} times as fast" + reveal(predicted_copies)
          + f"; control: {to_gpu.control}")  # fmt: skip
    course.claim("copying ahead is at least 10 % faster than copying, waiting and computing one after the other",
                 to_gpu.ratio("copies ahead"), above=1.1,
                 otherwise="Compare the first two rows: how long is the copy, and how long the step?")  # fmt: skip

# %% [markdown]
# **Takeaway** Wait for the copy before the loader refills its source, and start the next copy before you compute.

# %% [markdown]
# ## What to take home
#
# - A buffer belongs to the consumer until it asks for the next batch, and to the thread or the copy after that.
# - Record the times of fills and steps, predict the gain, and compare your prediction with "no gain".
# - Drop a file from the cache before you time reading it.
