# %% [markdown]
# # Fast loading, part 3: Reading ahead
#
# **When is it worth reading the next batch while the model computes on this one?**
#
# A loop that reads a batch and then computes on it takes the sum of both times. If a thread reads ahead, the shorter
# time can hide behind the longer one. You predict the gain for your own times, measure it, and find out what gets in
# the way.
#
# **You will be able to**
#
# - predict from recorded times what reading ahead gains, and with how many buffers
# - tell whether a loader and a step compete for the same cores
# - say how many bytes a loader reads from the disk, also if the file is larger than memory
# - copy batches to a GPU while it computes
#
# **Minutes** 29 core · 56 in all · session 2
#
# **Needs** parts 1 and 2 (their answers are used if you solved them)

# %% [markdown]
# Once your check has passed, later cells use your answer under a name that ends in `_now`: `pipeline_now` is your
# `pipeline_seconds`.

# %% locked="setup"
import time
from functools import partial
from types import SimpleNamespace

import torch
from torch.utils.data import DataLoader, TensorDataset

import course
from course.checks import fast_loading as check
from course.datasets import regression
from course.loading import recorded_epochs
from course.loading.copies import DeviceCopies
from course.loading.record_files import RecordFile
from course.loading.recorded_epochs import COMPUTE, MAPPED, MAPPED_RANDOM, PAGES, READ
from course.measure import usage
from course.measure.comparison import (
    compare,
    compare_measured,
    ratio_interval,
    signed_rank_interval,
)
from course.measure.page_cache import read_around
from course.measure.yardsticks import rows_in_memory, show_rates
from course.parallel.distributed import run_ranks
from course.plots import fast_loading as plots

device = course.device()
print(course.machine())
sizes = course.sizes("04_fast_loading")
data = regression.prepare(sizes.rows, sizes.columns)
x_bytes = 4 * data.rows * data.columns
answers = SimpleNamespace(
    gather=course.solved(check.gather),
    random_order=course.solved(check.random_order),
    quasi_random_order=course.solved(check.quasi_random_order),
)

# %% [markdown]
# ## How long does an epoch take if a thread reads ahead?
#
# What would a thread that reads ahead gain in your loop? You can compute a first answer from the times of reading and
# computing.
#
# One thread reads, the other computes, and they share buffers. The consumer owns a buffer from the moment it gets a
# batch until it asks for the next one. The rest of the time, the reader owns it. With one buffer, reading and
# computing alternate. With two, batch i + 1 is read while the consumer computes on batch i.
#
# The loader of this part works like this, and it uses your `gather` and your orders. Its batch is a view of a buffer,
# so **it is yours only until you ask for the next one**. Clone what you want to keep.
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
# ## What is reading ahead worth?
#
# Your formula assumes that fills and steps do not slow each other down. Test this with two kinds of step that are about
# equally long. One *computes*: it multiplies the batch by a matrix, again and again. The other only *waits*, as your
# program does while a GPU computes.
#
# The file is *cold*: it is read from the disk in each epoch, not from the page cache. Two threads share each fill,
# and the formula counts them as one reader.
#
# **Predict** A step computes for as long as a fill takes. How many times as fast is an epoch with three buffers as
# with one? Your formula gives an answer for `sizes.cold_rows // sizes.batch_size` batches, which are 8 at the laptop
# scale.
#
# - If passing buffers between threads is what costs, both kinds of step gain less than that, and equally so.
# - If reading and computing need the same cores, the step that computes gains less than the step that waits.

# %%
predicted_gain = None  # times as fast, a step as long as a fill

# %% tags=["experiment"]
pipeline_now = course.solved(check.pipeline_seconds)
n_cold = min(data.rows, sizes.cold_rows)
# with windows of one batch, a fill is a batch
file = RecordFile(answers, data, sizes.batch_size, sizes.page, window=1)
reads_directly = recorded_epochs.reads_directly(file, n_cold)
generator = torch.Generator().manual_seed(0)
weights = torch.randn(sizes.columns, sizes.targets, generator=generator).to(device)


def computing(batch, repeats=1):
    """Multiply a batch by the weights, `repeats` times."""
    x = batch.to(device)
    for _ in range(repeats):
        product = x @ weights
    return product[0, 0].item()  # waits for a GPU


def epoch(buffers, step):
    """A recorded epoch of page reads from the cold file."""
    loader = file.loader(
        "quasi-random", rows=n_cold, buffers=buffers, threads=2, direct=reads_directly
    )
    return recorded_epochs.recorded_epoch(loader, step, file.path)


# %% [markdown]
# The next cells measure steps of about a quarter of a fill, of one fill and of four. Each round runs both kinds of
# step, with one buffer and with three.

# %% tags=["experiment"]
epoch(1, computing)  # not counted: it warms up threads and memory
one_product = epoch(1, computing)
nine_products = epoch(1, partial(computing, repeats=9))
fill_seconds = one_product.median(READ)


def steps_for(share):
    """{kind: step} of steps that take `share` fills."""
    step_seconds = share * fill_seconds
    repeats = recorded_epochs.repeats_for(
        step_seconds, one_product.median(COMPUTE), nine_products.median(COMPUTE)
    )

    def waiting(batch):
        time.sleep(step_seconds)

    return {"computing": partial(computing, repeats=repeats), "waiting": waiting}


# %% tags=["experiment"]
SHARES = (0.25, 1, 4)  # seconds of a step over those of a fill
comparisons = {}
epochs_of = {}
for share in SHARES:
    ways = {}
    for kind, step in steps_for(share).items():
        for buffers in (1, 3):
            ways[kind, buffers] = partial(epoch, buffers, step)
    compared, ran = recorded_epochs.compare_epochs(ways, sizes.seconds)
    comparisons[share] = compared
    epochs_of[share] = ran
    print(f"a step of {share} fills: {compared.rounds} rounds, control {compared.control}")


# %% tags=["experiment"]
def gain_at(share, kind):
    """A Gain: how many times as fast three buffers are as one, and what your formula says."""
    gain = comparisons[share].ratio((kind, 3), to=(kind, 1))
    with_one_buffer = recorded_epochs.typical(epochs_of[share][kind, 1])
    return recorded_epochs.gain_of(gain, with_one_buffer, pipeline_now, buffers=3)


gains = {}
for kind in ("computing", "waiting"):
    gains[kind] = [gain_at(share, kind) for share in SHARES]
plots.pipeline_gain(gains)

# %% tags=["experiment"]
computes = gain_at(1, "computing")
waits = gain_at(1, "waiting")
asked = "reading ahead, a step as long as a fill"
print(course.score("04/3", asked, predicted_gain, computes.measured))
course.claim(
    "on a cold file, where a step takes about as long as a fill, reading ahead is at least 1.2 times as fast",
    computes.measured,
    above=1.2,
)
course.claim(
    "where a step takes about as long as a fill, more than half of the predicted gain of reading ahead is "
    "found, so the formula is nearer than 'no gain'",
    computes.share_found,
    above=0.5,
    otherwise="A step may take longer while the thread reads. A cell below measures it.",
)
course.claim(
    "where a step of the same length only waits, more than half of the predicted gain is found",
    waits.share_found,
    above=0.5,
)
seconds = comparisons[1].seconds  # of a step that takes a fill, in each round
waiting_gains = seconds["waiting", 1] / seconds["waiting", 3]
computing_gains = seconds["computing", 1] / seconds["computing", 3]
course.claim(
    "reading ahead gains at least 10 % more if the step waits than if it computes",
    ratio_interval(waiting_gains, computing_gains),
    above=1.1,
    otherwise="There are cores to spare, or reading itself is what slows down.",
)

# %% [markdown]
# Where does the rest of the gain go? So far your formula got the times that fills and steps take alone. Now give it
# the times that they take *while both run*.

# %% tags=["experiment"]
ran = epochs_of[1]
typical = {key: recorded_epochs.typical(runs) for key, runs in ran.items()}
for kind in gains:
    alone = typical[kind, 1]
    ahead = typical[kind, 3]
    fill_longer = ahead.median(READ) / alone.median(READ)
    step_longer = ahead.median(COMPUTE) / alone.median(COMPUTE)
    print(
        f"{kind}: next to each other, a fill takes {fill_longer:.2f} times as long "
        f"and a step {step_longer:.2f}"
    )

measured_over_formula = []
for seen in ran["computing", 3]:
    by_formula = pipeline_now(seen.durations(READ), seen.durations(COMPUTE), buffers=3)
    measured_over_formula.append(seen.seconds / by_formula)
course.claim(
    "with the times that fills and steps take next to each other, the formula is right within 10 %",
    signed_rank_interval(measured_over_formula),
    within=(0.9, 1.1),
)
plots.timelines(
    {
        "computing, 1 buffer": typical["computing", 1].events,
        "computing, 3 buffers": typical["computing", 3].events,
        "waiting, 3 buffers": typical["waiting", 3].events,
    }
)

# %% [markdown]
# **Shown** Only the step differs between the two kinds: one needs the machine's cores and memory, the other hardly
# does. So if the step that computes gains less, reading and computing compete. Then the formula promises too much from
# times that were measured alone.
#
# **We think** that they compete for cores, because the products use all of them. To test it, call
# `torch.set_num_threads(1)` above the measurement. If you have two cores, this leaves one to the reader.
#
# A `DataLoader` with workers reads ahead, too. Each worker prepares up to `prefetch_factor` batches, two by default.
#
# **Takeaway** Reading ahead hides most of the shorter of two times, as long as reading and computing do not compete.

# %% [markdown]
# ## How many bytes come from the disk?
#
# What if the file is larger than memory? The page cache keeps what was read while there is room. With too little
# memory, a loader still works but gets slow. How slow depends on how you read:
#
# - A *mapping* fetches a memory page when the program touches it. By default it fetches neighbours too, because the
#   system guesses that they come next. `madvise(MADV_RANDOM)` tells it not to.
# - A *page read* asks for many rows in one call. With `O_DIRECT` it bypasses the page cache.
#
# Each way runs two epochs from a cold start, once with room for the whole file and once with room for a quarter. The
# small memory is emulated: before a batch, the cell drops the file from the page cache if a quarter of it has come from
# the disk since the last drop. Within a batch, nothing is dropped. The table begins with the number of batches, and it
# counts *major faults*: touches of a mapped page that waited for the disk.
#
# **Predict** Random rows come from a mapping, with room for a quarter of the file. How many times the bytes of the
# file come from the disk per epoch?
#
# - If only what is missing is read, three quarters of the file come.
# - If each row is read once, the file comes about once.
# - If neighbours are read, and dropped before they are used, it comes several times, about once per batch.

# %%
predicted_rereads = None  # times the bytes of the file

# %% tags=["experiment"]
ROOM = {"room for all": None, "room for a quarter": 0.25}  # share of the file
cold = recorded_epochs.ColdReading(file, n_cold, answers.gather, computing)
most_kib = read_around(file.path) / 1024
print(f"a fault in a mapping brings up to {most_kib:,.0f} KiB (read_ahead_kb of this disk)")

race = {}
share_read = {}  # of the file, in epochs 1 and 2
for room, share in ROOM.items():
    for way in recorded_epochs.WAYS:
        epochs = cold.epochs(way, share)
        race[room, way] = epochs
        share_read[room, way] = [cold.share_read(epochs, 1), cold.share_read(epochs, 2)]
recorded_epochs.print_cold(cold, race)
plots.cold_race({key: second for key, (_, second) in share_read.items()})

# %% tags=["experiment"]
_, mapped_with_room = share_read["room for all", MAPPED]
_, mapped_without_room = share_read["room for a quarter", MAPPED]
by_pages = [share_read[room, PAGES][0] for room in ROOM]
is_read_once = mapped_with_room < 0.01
is_read_again = mapped_without_room > 2
is_little = all(share < 1.5 for share in by_pages)

asked = "times the file from the disk"
print(course.score("04/3", asked, predicted_rereads, mapped_without_room, form="{:.1f}"))
unknown = "A value of nan means that your system does not count the bytes read (/proc/self/io)."
course.claim(
    "a file that fits into memory is read from the disk once: epoch 2 reads less than 1 % of it",
    is_read_once,
    f"{mapped_with_room:.1%} of the file",
    otherwise=unknown,
)
course.claim(
    "without room, random rows from a mapping read more than twice the file per epoch",
    is_read_again,
    f"{mapped_without_room:.1f} times",
    otherwise=f"Your disk may fetch few neighbours. {unknown}",
)
course.claim(
    "page reads fetch less than 1.5 times the bytes of the file in the first epoch, with room and without",
    is_little,
    ", ".join(f"{share:.2f}" for share in by_pages) + " times",
    otherwise=unknown,
)


# %% tags=["experiment"]
def seconds_without_room(way):
    """Seconds of a cold epoch with room for a quarter of the file."""
    seconds, _ = cold.epochs(way, room=0.25, n=1)[0]
    return seconds


without_room = compare_measured(
    [PAGES, MAPPED, MAPPED_RANDOM], seconds_without_room, seconds=sizes.seconds
)
print(f"a cold epoch without room\n{without_room}")
course.claim(
    "without room for the file, page reads are at least twice as fast as random rows from a mapping",
    without_room.ratio(PAGES, to=MAPPED),
    above=2,
    otherwise="Compare the bytes and the major faults of the two rows.",
)

# %% [markdown]
# With room for the file, epoch 2 reads hardly anything from the disk. Only `O_DIRECT` reads the file every time.
# Without room, each fault of a mapping brings neighbours, and many of them are dropped before they are used.
#
# **Shown** `MADV_RANDOM` only turns the neighbours off. A fault then brings one memory page, so fewer bytes come from
# the disk. But the program waits for a fault at every memory page that is not in memory. Page reads ask for
# every page of rows once, in large requests. With `O_DIRECT` nothing else comes from the disk.
#
# **Known** The disk's setting `read_ahead_kb` limits how much a fault brings (Linux,
# Documentation/ABI/stable/sysfs-block). The cell prints yours.
#
# **Takeaway** Count bytes, not only seconds. If the file does not fit into memory, read whole pages of rows, each of
# them once.

# %% [markdown]
# ## How much memory does a loader hold? · extra
#
# How much memory does a loader take from your training? A loader of this unit needs its buffers. A `TensorDataset` of
# tensors in memory holds all rows, and a new tensor for each batch.


# %% tags=["experiment"]
def record_file():
    """The record file of the data, opened again."""
    return RecordFile(answers, data, sizes.batch_size, sizes.page, sizes.window)


def tensor_dataset():
    """A DataLoader of the rows in memory, which fetches them one by one."""
    x, y = rows_in_memory(data)
    return DataLoader(TensorDataset(x, y), sizes.batch_size, shuffle=True)


def gathered():
    return record_file().loader()


def gathered_ahead():
    return record_file().loader(buffers=2)


def read_by_pages():
    return record_file().loader("quasi-random", threads=2)


def most_memory(rank, world_size, make):
    """Most bytes beyond mapped files that a loader takes in an epoch, `make` included."""
    before = usage.private_bytes()
    return max(usage.private_bytes() for _ in make()) - before


# %% tags=["experiment"]
makers = {
    "TensorDataset, 0 workers": tensor_dataset,
    "ours, random": gathered,
    "ours, random, read ahead": gathered_ahead,
    "ours, quasi-random, read by pages": read_by_pages,
}
memory = {}
for name, make in makers.items():
    # a new process each: memory that another loader gave back would not be counted
    memory[name] = run_ranks(most_memory, 1, make, backend="gloo")[0]

most = max(n_bytes for name, n_bytes in memory.items() if "ours" in name)
is_small = most < 64e6
course.claim(
    "loaders of this unit hold less than 64 MB beyond mapped files",
    is_small,
    f"at most {most / 1e6:.0f} MB of {x_bytes / 1e6:,.0f}",
    otherwise="A loader that reads pages holds one window per buffer. How large is yours?",
)
plots.memory(memory, x_bytes)

# %% [markdown]
# **Takeaway** A loader that fills buffers holds its buffers, not the file.

# %% [markdown]
# ## When may you refill a buffer that a GPU reads? · extra
#
# How can a GPU compute while a batch is copied to it? A separate engine of the GPU makes the copies. A copy is
# *queued*: the call returns immediately, and the bytes are read from the buffer later. For this the buffer must be
# *pinned*, which keeps its memory in place.
#
# The loader refills its buffer as soon as you ask for the next batch. So the copy must end before you ask.
# `course.loading.copies.DeviceCopies` starts copies and waits for them:
#
# | call | what it does | who waits |
# |---|---|---|
# | `copy = copies.start(tensors)` | queues the copy of a batch | nobody |
# | `copy.tensors()` | the tensors on the device; work queued after this call begins after the copy's end | the GPU |
# | `copy.wait()` | returns when the copy is over; the source may then be refilled | the CPU |
#
# ### Exercise 2 · Copy ahead
#
# Yield the batches of a loader on the device. While the consumer computes on one batch, the next one is copied. The
# end of the function is given, and it also runs if the consumer leaves early.
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
# **Predict** On a GPU, a step takes about as long as the copy of a batch. How many times as fast is copying ahead as
# copying, waiting and computing one after the other? The copy engine needs none of the GPU's cores.

# %%
predicted_copies = None  # times

# %% tags=["experiment"]
IN_TURN = "copy, wait, compute"
AHEAD = "copies ahead"
copy_ahead_now = course.solved(check.copy_ahead)
copies = DeviceCopies(device)
loader = record_file().loader(buffers=3)
wide = torch.randn(sizes.columns, 4096, device=device)  # a step about as long as a copy


def copied_then_computed():
    for batch in loader:
        copy = copies.start(batch)
        copy.wait()
        x, _ = copy.tensors()
        x @ wide


def copied_ahead():
    for x, _ in copy_ahead_now(iter(loader), copies):
        x @ wide


# %% tags=["experiment"]
copying = None  # without a GPU there is nothing to copy to
if device.type == "cuda":
    ways = {IN_TURN: copied_then_computed, AHEAD: copied_ahead}
    to_gpu = compare(ways, device=device, seconds=sizes.seconds)
    show_rates(to_gpu, x_bytes)
    copying = to_gpu.ratio(AHEAD)
    print(course.score("04/3", "copying ahead over one after the other", predicted_copies, copying))
course.claim(
    "copying ahead is at least 10 % faster than copying, waiting and computing one after the other",
    copying,
    above=1.1,
    otherwise="The copy may be much longer or shorter than the step.",
)

# %% [markdown]
# **Known** A copy to a GPU and a kernel can overlap if they are in different streams and the source is pinned (CUDA
# C++ Programming Guide, "Overlap of Data Transfer and Kernel Execution").
#
# **Takeaway** Wait for the copy before the loader refills its source, and start the next copy before you compute.

# %% [markdown]
# ## What to take home
#
# - A buffer belongs to the consumer until it asks for the next batch, and to the reader after that.
# - Before you blame the formula, record the times of fills and steps while both run, not only alone.
# - Drop a file from the page cache before you time how fast the disk delivers it.
