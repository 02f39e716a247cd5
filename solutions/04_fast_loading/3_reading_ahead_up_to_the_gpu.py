# %% [markdown]
# # Fast loading, part 3: Reading ahead, up to the GPU
#
# **When is it worth preparing the next batch while the model computes on this one?**
#
# A loop that reads a batch and then computes takes the sum of both times; one that reads ahead takes little more than
# the longer of the two. Here you predict the seconds of such a pipeline, write the thread that reads ahead, and measure
# both where reading takes time: on a file that is not in memory. Then all ways to read such a file race, with room for
# it and without, and all loaders of the unit with the file in memory. The last section does the same for copies to
# a GPU.
#
# **You will be able to**
#
# - predict from recorded times what reading ahead gains, and with how many buffers
# - read ahead in a thread that never writes into a batch in use, and that ends when its consumer leaves
# - say how many bytes each loader reads from the disk, cold, warm, and when the file is larger than memory
# - copy batches to a GPU while it computes
#
# **Minutes** 25 core · 140 in all
#
# **Needs** parts 1 and 2 (their answers are taken over if you solved them)

# %% [markdown]
# How it works: write down what you expect (a cell with `None`), solve the exercise, run its check, look at the
# measurement. Later cells use your answer if its check passed (`x_now` is your `x`) and fall back on the reference
# solution if your copy of the course includes it. Run the cells from the top. Leave the empty cell after each check
# alone: your instructor's tests go there.

# %% locked="setup"
import functools
import math
import mmap
import statistics
import threading
import time
from types import SimpleNamespace

import torch
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset

import course
from course.checks import fast_loading as check
from course.datasets import regression
from course.learner.predictions import reveal
from course.loading.copies import DeviceCopies
from course.loading.record_files import RecordFile
from course.measure import usage
from course.measure.page_cache import drop_cached, limited, map_rows, read_around, reads
from course.measure.yardsticks import (
    MEMCPY,
    iterate,
    one_pass,
    rows_in_memory,
    seconds_in_turn,
    show_rates,
    without_yardsticks,
    yardsticks,
)
from course.parallel.distributed import run_ranks
from course.plots import fast_loading as plots

device = course.device()
print(course.machine())
sizes = course.sizes("04_fast_loading")
data = regression.prepare(sizes.rows, sizes.columns)
x_bytes = 4 * data.rows * data.columns
asked = (check.write_records, check.Records, check.gather, check.random_order, check.quasi_random_order)
asked += (check.PageReader,)
answers = SimpleNamespace(**{exercise.name: course.solved(exercise) for exercise in asked})

# %% [markdown]
# ## A pipeline of two
#
# **One thread reads, the other computes; the buffers between them decide how far the reader may be ahead.**
#
# Reading waits for the disk or copies memory, in C code that releases Python's lock; computing is C code as well. So a
# second thread can read while the first computes. The reader writes into the very memory that the consumer reads:
# nothing is copied once more, but somebody has to say whom a buffer belongs to. In this unit it belongs to the reader
# from the moment the consumer asks for the next batch, and to the consumer from the moment it gets it.
#
# With one buffer the two take turns. With two, batch i + 1 is read while batch i is computed on. More buffers do not
# make either of them faster; they let the reader work on while a batch takes longer than usual.
#
# The given `course.loading.loaders.Loader` joins the pieces: `order(epoch)` gives row numbers, `fill(index, buffer)`
# brings rows, `read_ahead(fill, work, buffers)` does so in a thread if there is more than one buffer. A batch is a view
# of a buffer, so **it is yours only until you ask for the next one**: what you want to keep, clone.

# %% [markdown]
# ### Exercise 1 · Predict the pipeline
#
# Compute how long an epoch takes from the times of its fills and its training steps.
#
# **Must**
# - one thread makes the fills in order; fill i goes into buffer i modulo `buffers`;
# - step i begins when fill i and step i - 1 are over;
# - fill i begins when fill i - 1 is over and its buffer is free, which it is when step i - `buffers` is over;
# - return the seconds from the start of the first fill to the end of the last step.
#
# **You may assume** as many steps as fills, at least one, and at least one buffer.
#
# **Points** 3 · **Core** · **Difficulty** ●●○ · **Minutes** 10 · **Lines** 7
#
# **Source** Bryant and O'Hallaron 2015, "Computer Systems", section 4.4 (pipelining).
#
# <details><summary>Hint 1</summary>
#
# Write two rows of numbers for fills of 2, 2, 2 and steps of 3, 3, 3 seconds and two buffers: when does each end?
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
# ## Read ahead
#
# **One thread and a few buffers are enough; the difficulty is the end.**
#
# With two buffers, one is read from while the other is written. If the thread were one turn too early, the numbers of
# a batch would change while they are computed with, and no error would tell.
#
# A consumer may stop after three batches: by `break`, by an error, by the stop button of the notebook. A thread that
# then waits for a buffer waits for ever, and keeps the memory of all buffers. Python helps: when a generator is closed,
# or nobody holds it any more, it is continued once with the exception `GeneratorExit` at the `yield` where it stands,
# so its `finally` runs.

# %% [markdown]
# ### Exercise 2 · Read ahead in a thread
#
# Write a generator that fills buffers in a thread while its consumer computes.
#
# **Must**
# - yield `fill(item, buffer)` for each item of `work`, in order; use the buffers in turn;
# - start one thread by the first `next()`; refill a buffer only once the next value is asked for;
# - fill as far ahead as that allows; take an item when a buffer is free for it;
# - raise what `fill` or `work` raised, after the values before it;
# - when the generator ends in any way, fill nothing more and wait for the thread;
# - block, do not poll; `daemon=True`, so that an interpreter can end.
#
# **Raises** ValueError for fewer than two buffers.
#
# **Points** 8 · **Extra** · **Difficulty** ●●● · **Minutes** 60 · **Lines** 28
#
# **Source** Dijkstra 1965, "Cooperating sequential processes".
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
# ## What reading ahead is worth
#
# **The gain is largest where reading and computing take equally long.**
#
# Pages are read past the page cache where the file system and the rows allow it, else the file is dropped before each
# epoch: either way they come from the disk. The consumer multiplies each batch with a matrix, once or several times;
# that sets how long a step takes. **Predict**: by which factor is an epoch faster with reading ahead (three buffers) if
# a step takes as long as a fill?

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
shares, gains, predicted = [0.25, 0.5, 1, 2, 4], [], {2: [], 3: []}
measured_shares, repeated, timelines, slowed, from_its_own = [], [], [], [], []
for share in shares:
    repeats = 1 + max(0, round((share * fill - first) / another))
    repeated.append(repeats)
    runs = {1: [], 3: []}
    for _ in range(sizes.rounds):
        for buffers in runs:
            runs[buffers].append(recorded_epoch(buffers, repeats))
    alone, ahead = (sorted(runs[buffers], key=lambda run: run[0])[sizes.rounds // 2] for buffers in (1, 3))
    fills, steps = durations(alone[1], "read"), durations(alone[1], "compute")
    measured_shares.append(sum(steps) / sum(fills))
    gains.append(sorted(one[0] / two[0] for one, two in zip(runs[1], runs[3], strict=True)))
    for buffers in predicted:
        predicted[buffers].append(pipeline_now(fills, steps, 1) / pipeline_now(fills, steps, buffers))
    beside = durations(ahead[1], "read"), durations(ahead[1], "compute")  # while the other lane works, too
    slowed.append([sum(now) / sum(before) for now, before in zip(beside, (fills, steps), strict=True)])
    from_its_own.append(pipeline_now(*beside, 3) / ahead[0])
    timelines.append({"one buffer": alone[1], "three buffers, read ahead": ahead[1]})
    middle = gains[-1][sizes.rounds // 2]
    print(f"a step is {measured_shares[-1]:4.2f} fills: read ahead is {middle:.2f} ({gains[-1][0]:.2f} to "
          f"{gains[-1][-1]:.2f}) times as fast, predicted {predicted[3][-1]:.2f}")  # fmt: skip
middles = [gain[sizes.rounds // 2] for gain in gains]
nearest = min(range(len(shares)), key=lambda row: abs(math.log(measured_shares[row])))  # to a step as long as a fill
print(f"nearest to one fill, a step of {measured_shares[nearest]:.2f}: {middles[nearest]:.2f} times as fast"
      + reveal(predicted_gain))  # fmt: skip
best = middles.index(max(middles))
otherwise = (
    "Reading kept a core busy, so it competed with the step: your file came from memory, the disk is very fast, or "
    "other programs used the cores."
)
course.claim("at the best of these lengths of a step, reading ahead is at least 1.3 times as fast on a cold file",
             middles[best] >= 1.3, f"{middles[best]:.2f} times at {measured_shares[best]:.2f} fills",
             otherwise=otherwise)  # fmt: skip
off = max(abs(gain / due - 1) for gain, due in zip(middles, predicted[3], strict=True))
course.claim("the pipeline's prediction is within a quarter of what was measured, at every length of a step",
             off < 0.25, f"off by at most {off:.0%}", otherwise=otherwise)  # fmt: skip
print("while both lanes work, a fill takes", ", ".join(f"{fill:.2f}" for fill, _ in slowed), "times as long, a step",
      ", ".join(f"{step:.2f}" for _, step in slowed))  # fmt: skip
off = max(abs(share - 1) for share in from_its_own)
course.claim("from the durations measured with reading ahead, the pipeline's prediction is right within a tenth",
             off < 0.1, f"off by at most {off:.0%}", otherwise=otherwise)  # fmt: skip

# %% tags=["experiment"]
plots.timelines(timelines[nearest])

# %% tags=["experiment"]
plots.pipeline_gain(measured_shares, gains, predicted)

# %% [markdown]
# With one buffer each bar begins where the other lane's ends; with three the two lanes overlap. The gain is largest
# where both take equally long: there it would be 2 but for the first fill, which nobody can hide, and with few batches
# that one counts. Where one of them takes most of the time, there is little to hide behind it. Two buffers are enough
# as long as all fills take the same time. (Measured, the largest gain may stand beside that place: a disk's times
# change from epoch to epoch, which is what the ranges show, and no step takes exactly one fill.)
#
# The prediction from one buffer lets both lanes run undisturbed, so it is mostly too good: the lanes share cores and
# memory, and beside the other one most fills and steps take longer (printed above). Given these durations the same
# formula is right.

# %% [markdown]
# ## The cold race
#
# **How rows are asked for decides how many bytes come from the disk, above all when the file is larger than memory.**
#
# What was read stays in the page cache while there is room. A mapping brings a memory page when it is touched, and by
# default its neighbours, too: the system guesses that they come next. `madvise(MADV_RANDOM)` tells it not to. Page
# reads ask for many rows at once; with `O_DIRECT` they pass the page cache, bring nothing else, and keep nothing in it.
#
# Each contestant runs three epochs from a cold start, with the step nearest to a fill above, once with room for the
# whole file, once with room for a quarter of it: there the file is dropped before a fill if more than a quarter of its
# bytes came from the disk since the last time (kinder than a real limit, which would also drop pages within a fill).
# The system counts what came from the disk. Predict, for random rows from a mapping with room for a quarter: how many
# times the bytes of the file come from the disk per epoch?

# %%
predicted_rereads = None  # times the bytes of the file

# %% tags=["experiment"]
ROOM, ways = {"room for all": None, "room for a quarter": 0.25}, {}


def mapped(advice, buffers):
    """A loader of random rows from a mapping of its own, and that mapping."""
    mapping, table = map_rows(file.path, n_cold, file.stride, advice)
    loader = file.loader(rows=n_cold, buffers=buffers)
    loader.fill = functools.partial(answers.gather, table)
    return loader, mapping


def by_pages(direct, buffers):
    """A loader of pages by read calls, and None: nothing is mapped."""
    return cold_pages(buffers, direct), None


def cold_epochs(make, room, epochs=3):
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


for name, make in (
    ("random rows, mapped", functools.partial(mapped, None)),
    ("random rows, mapped, MADV_RANDOM", functools.partial(mapped, getattr(mmap, "MADV_RANDOM", None))),
    ("pages, read calls", functools.partial(by_pages, False)),
    ("pages, O_DIRECT", functools.partial(by_pages, True)),
):
    for buffers in (1, 3):
        ways[name + (", ahead" if buffers > 1 else "")] = functools.partial(make, buffers=buffers)
race = {}
print(f"a fault in a mapping brings up to {read_around(file.path) / 1024:,.0f} KiB (read_ahead_kb of this disk)")
print(f"{n_cold:,} rows, {file_bytes / 1e6:.0f} MB; epochs 1, 2, 3{'seconds':>28}{'of the file, from the disk':>34}"
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
with_ahead = of_file("room for a quarter", "random rows, mapped, ahead", 2)
course.claim("reading ahead reads as many bytes from the disk as reading on demand, within a quarter",
             abs(with_ahead / rereads - 1) < 0.25, f"{with_ahead:.1f} and {rereads:.1f} times the file",
             otherwise=otherwise)  # fmt: skip
course.claim("page reads fetch less than 1.5 times the bytes of the file, with room and without",
             all(of_file(room, "pages, read calls", 1) < 1.5 for room in ROOM),
             ", ".join(f"{of_file(room, 'pages, read calls', 1):.2f}" for room in ROOM) + " times",
             otherwise=otherwise)  # fmt: skip
pages, mapping, single = (
    race["room for a quarter", name][1][0]
    for name in ("pages, read calls", "random rows, mapped", "random rows, mapped, MADV_RANDOM")
)
course.claim("without room, page reads are faster than any random rows from a mapping", pages < min(mapping, single),
             f"{mapping / pages:.1f} times, and {single / pages:.1f} with MADV_RANDOM")  # fmt: skip
ahead_of_pages = max(sum(epoch[0] for epoch in race["room for a quarter", name])
                     / sum(epoch[0] for epoch in race["room for a quarter", name + ", ahead"])
                     for name in ("pages, read calls", "pages, O_DIRECT")
                     if ("room for a quarter", name) in race)  # fmt: skip
course.claim("without room, reading pages ahead is at least 1.3 times as fast as on demand, over three epochs",
             ahead_of_pages >= 1.3, f"at best {ahead_of_pages:.2f} times",
             otherwise="A step is much shorter or longer than a fill, or other programs used the cores.")  # fmt: skip

# %% tags=["experiment"]
plots.cold_race({key: [(seconds, read.disk_bytes / file_bytes) for seconds, read in found]
                 for key, found in race.items()})  # fmt: skip

# %% [markdown]
# With room for all, the neighbours that a mapping brings are wanted soon anyway: few faults bring the whole file (where
# `read_ahead_kb` is 128, Linux's default, a few hundred), and from epoch 2 on nothing comes from the disk. Without
# room, the rows of a batch lie all over the file, so with their neighbours each batch brings a large part of it, or
# all. `MADV_RANDOM` reads what is asked for, a memory page at a time, and waits for each: there the major faults are
# as many as memory pages, and a request's delay counts instead of the disk's speed. Page reads need neither luck nor
# room. `O_DIRECT` keeps nothing in memory: its second epoch comes from the disk like its first, also where there is
# room.
#
# A disk with a cache of its own (a virtual machine's, a network's) answers a second request faster than its first; on a
# file system without `O_DIRECT`, or with rows smaller than 4096 bytes, that contestant is left out. Pages of less than
# what the system reads ahead bring their neighbours, too.

# %% [markdown]
# ## The warm race
#
# **With the file in memory, a loader is a copy, and `memcpy` is its yardstick.**
#
# All loaders over all rows, in turns with the yardsticks. Predict: which share of the speed of memcpy with one
# thread do the three loaders of this unit reach: random rows from the mapped file, quasi-random rows from it, and
# quasi-random rows read page by page?

# %%
predicted_random, predicted_quasi, predicted_read = None, None, None  # 1 is memcpy with one thread


# %% tags=["experiment"]
def record_file():
    """The record file of part 1, opened anew."""
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
seconds = seconds_in_turn(yardsticks(file.path, x_bytes) | passes, sizes.rounds)
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
of_standard = (epochs["TensorDataset, 0 workers"] / epochs["ours, random"]).median().item()
course.claim("the unit's random loader is at least ten times as fast as TensorDataset without workers",
             of_standard >= 10, f"{of_standard:.0f} times; ten epochs take "
             f"{10 * epochs['ours, random'].median():.1f} s instead of "
             f"{10 * epochs['TensorDataset, 0 workers'].median():.1f} s")  # fmt: skip
of_warm = (epochs["ours, random"] / epochs["ours, random, read ahead"]).median().item()
course.claim("without a step to overlap with, reading ahead gains less than 1.3 times",
             of_warm < 1.3, f"{of_warm:.2f} times as fast")  # fmt: skip
plots.epoch_times(epochs, x_bytes, yards)

# %% [markdown]
# `memcpy` is a yardstick and no limit: one thread that writes to main memory can be passed by several that write to one
# buffer again and again. Reading by pages makes a system call per page, and the system copies; that costs more than
# a gather, and needs no room in memory for the file.
#
# Where the factor over TensorDataset is smaller, the rows are longer: it pays per row, in Python. Where reading ahead
# gains more than 1.3, the process has cores to spare.


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
course.claim("loaders of this unit hold less than 64 MB beyond mapped files, whatever the size of the file",
             max(value for name, value in memory.items() if "ours" in name) < 64e6,
             f"at most {max(value for name, value in memory.items() if 'ours' in name) / 1e6:.0f} MB of "
             f"{x_bytes / 1e6:,.0f}",
             otherwise="The window or the batch alone exceeds 64 MB; a loader holds one window per "
                       "buffer.")  # fmt: skip
plots.memory(memory, x_bytes)

# %% [markdown]
# Pages of a mapped file belong to the page cache and go when somebody else needs the memory, so they are not counted.
#
# How does the time per row change with the number of rows?

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
    yards_of_n = yardsticks(file.path, 4 * n * sizes.columns)
    growth[n] = seconds_in_turn(passes | yards_of_n, min(3, sizes.rounds))
    growth[n]["TensorDataset, 0 workers"] *= n / len(part)
per_row = {name: [1e9 * growth[n][name].median().item() / n for n in sizes.ladder] for name in growth[sizes.ladder[0]]}
spread = {name: max(per_row[name]) / min(per_row[name]) for name in loaders}
print("most over least time per row:", ", ".join(f"{name} {value:.2f}" for name, value in spread.items()))
most = max(value for name, value in spread.items() if "ours" in name)
course.claim(f"while the rows grow by a factor of {sizes.ladder[-1] // sizes.ladder[0]}, the time per row of our "
             "loaders changes by less than a factor of two", most < 2, f"{most:.2f}")  # fmt: skip
plots.time_per_row(sizes.ladder, per_row)

# %% [markdown]
# Flat lines mean that the time is proportional to the rows. Where a line of ours rises or falls by more than a factor
# of two, look at what has started or stopped fitting into a cache: short files stay in the processor's, and their rows
# come from there. A line that rises and falls again, as that of TensorDataset may, is no matter of caches. One that
# only rises may be or not: repeat the cell before you explain it.

# %% [markdown]
# ## Copies that nobody waits for
#
# **A GPU can receive a batch while it computes on another, if the copy is started early and its source is left
# alone until the end.**
#
# A copy to a GPU goes over a bus that is slower than the memory on either side, by an engine of its own. It is
# *queued*: the call returns at once, and the bytes are read from the buffer later. Between queuing and the end of the
# copy nobody may write into the buffer, and the loader will, as soon as it is asked for the next batch.
#
# So there are two waits. *The GPU* waits for a copy before it computes on it; the processor only queues that order.
# *The processor* waits for a copy's end before it lets the loader refill the buffer. The given
# `course.loading.copies.DeviceCopies` offers both:
#
# | call | what it does | who waits |
# |---|---|---|
# | `copy = copies.start(tensors)` | queues the copy of a batch, beside what is computed | nobody |
# | `copy.tensors()` | the tensors on the device; work queued after this call begins after the copy's end | the GPU |
# | `copy.wait()` | returns when the copy is over; the source may then be refilled; may be repeated | the processor |
#
# `x` and `y` are views of one buffer, padding between rows included. `start` copies that memory as a whole and makes
# the views again on the device: one transfer, where a matrix with gaps would first be packed by the processor. On the
# CPU `start` makes the copy at once, there is no second device.

# %% [markdown]
# ### Exercise 3 · Copy ahead
#
# Hand out the batches of a loader on the device; while the consumer computes on one, the next is copied.
#
# **Must**
# - yield `tensors()` of each copy, in order; ask for no batch before the first `next()`;
# - `wait()` for each copy before asking for the next batch: the loader may have one buffer;
# - while the consumer has batch i, have started copy i + 1, without its `wait()` or `tensors()`, and keep no other
#   copies than these two;
# - when the generator ends in any way, also by a failing `wait()`: wait for the copy under way, then close the
#   iterator over `batches` if it has a `close()`.
#
# **Points** 5 · **Extra** · **Difficulty** ●●● · **Minutes** 45 · **Lines** 18
#
# **Source** "CUDA semantics" in the PyTorch documentation.
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
        copies: a `course.loading.copies.DeviceCopies`, or what has a `start` like its own.

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

# %% [markdown]
# On a GPU: a step that takes about as long as the copy of a batch, with three ways to get the batch there. The first
# copies the same memory as the others, as a whole and from a pinned buffer, and waits for it.

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

    to_gpu = seconds_in_turn({"copies alone": copied_only, "copy, wait, compute": copied_then_computed,
                              "copies ahead": copied_ahead}, sizes.rounds)  # fmt: skip
    show_rates(to_gpu, x_bytes)
    gain = (to_gpu["copy, wait, compute"] / to_gpu["copies ahead"]).median().item()
    course.claim("copying ahead is faster than copying, waiting and computing in turn", gain > 1, f"{gain:.2f} times")

# %% [markdown]
# ## What to take home
#
# - A buffer belongs to the consumer until it asks for the next batch, and to the thread or the copy after that.
# - Reading ahead takes little more than the longer of reading and computing; it pays where both take similar time and
#   do not want the same cores.
# - How rows are asked for decides what comes from the disk. Without room for the file, pages come once per epoch;
#   single rows from a mapping bring their neighbours every time, or, with `MADV_RANDOM`, wait for one request per
#   memory page.
# - What was read is warm. Drop a file before you time its reading, and count bytes, not only seconds.
