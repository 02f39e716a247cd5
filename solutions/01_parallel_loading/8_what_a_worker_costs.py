# %% [markdown]
# # Parallel loading, part 8: Know what a worker costs
#
# **What does a worker process cost, and what does it not know?**
#
# Each section answers one question that people ask about worker processes. Read the sections in any order. All of them
# are extra.
#
# **You will be able to**
#
# - choose a start method, and make workers start quickly on Python 3.14;
# - say why memory grows with workers, and what fills `/dev/shm`;
# - set the loader options that concern processes.
#
# **Minutes** 0 core · 45 in all
#
# **Needs** parts 1 and 2: your `LFWDataset` and `seconds_per_pass` are used if you solved them

# %% locked="setup"
import time
import warnings
from multiprocessing.reduction import ForkingPickler

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, default_collate, get_worker_info

import course
from course.checks import parallel_loading as check
from course.datasets import lfw
from course.loading import inherited, loader_passes, loaders, worker_costs
from course.measure import comparison
from course.plots import parallel_loading as plots

# more workers than cores: we try that on purpose
warnings.filterwarnings("ignore", "This DataLoader will create")
# see below
warnings.filterwarnings("ignore", ".*use of fork\\(\\) may lead to deadlocks", DeprecationWarning)
print(course.machine())

# %% tags=["experiment"]
torch.set_num_threads(1)  # as in a worker: one image is too little work for several threads
sizes = course.sizes("01_parallel_loading")
LFWDataset_now = course.solved(check.LFWDataset)
seconds_per_pass_now = course.solved(check.seconds_per_pass)
limits = {"rounds": sizes.pass_rounds, "seconds": sizes.pass_seconds}  # of each comparison
folder = lfw.folder(sizes.dataset)
# classes from a notebook cell exist only in forked workers
forks = {"multiprocessing_context": "fork"}

# %% [markdown]
# ## What does it cost to start a worker? · extra
#
# By default a `DataLoader` starts its workers again in each epoch, and the start method decides whether you notice.
# *Fork* duplicates the running process. *Spawn* starts a new Python. *Forkserver* starts a clean helper process once,
# which then forks each worker. Linux forks by default up to Python 3.13 and uses forkserver from 3.14 on. macOS and
# Windows spawn. To choose a method, write `DataLoader(..., multiprocessing_context="spawn")`.
#
# **Predict**: how many times as long does the first batch of an epoch take with spawned workers as with forked ones?
# About 1, if a process costs the same either way. Much more, if a new Python must import torch.

# %%
predicted_spawn_times = None  # your number

# %% tags=["experiment"]
starting = worker_costs.Starts()
starts = comparison.compare_measured(
    list(starting.loaders), starting.seconds, rounds=sizes.start_rounds
)
starting.close()
spawn = starts.ratio("fork", to="spawn")

print(starts)
said = "spawn takes as many times as long as fork"
print(course.score("01/8", said, predicted_spawn_times, spawn))
course.claim(
    "two workers take more than five times as long to start by spawn as by fork", spawn, above=5
)
course.claim(
    "a forkserver that has preloaded torch starts two workers at least three times as fast as one without",
    starts.ratio(worker_costs.PRELOADED, "forkserver"),
    above=3,
)
course.claim(
    "persistent workers give the first batch of a later epoch in less than half the time of forking new ones",
    starts.ratio(worker_costs.PERSISTENT),
    above=2,
)
title = (
    f"With two workers, spawn takes {spawn.estimate:.0f} times as long as fork to the first batch"
)
plots.seconds(starts, title)

# %% [markdown]
# **Shown**: imports make forkserver slow, because the preloading server differs only in what it has imported. Without
# preloading, the helper has no torch, so every worker that it forks imports torch again. To preload it, write at the
# top of a script, before any worker starts:
#
# ```python
# import multiprocessing
# multiprocessing.set_forkserver_preload(["__main__", "torch", "torch.utils.data", "my_dataset"])
# ```
#
# Your list replaces Python's own, which is `["__main__"]`.
#
# **Takeaway** A worker that does not inherit your imports repeats them. Let a forkserver preload them, or pay only once
# with `persistent_workers=True`.

# %% [markdown]
# ## What does a worker inherit? · extra
#
# A script that runs with one start method may fail, hang or ignore your settings with another. What a worker inherits
# explains why. The next cell starts a worker by each method. The worker looks at the dataset's generator, at attributes
# that the main process changes later, at the names of your notebook, and at a lock that another thread holds.

# %% tags=["experiment"]
has = {method: inherited.inherited(method, "sizes") for method in worker_costs.METHODS}
every_method = list(has)

print(inherited.table(has))
course.claim(
    "workers repeat the numbers of the dataset's generator under every start method",
    inherited.methods_with(has, inherited.GENERATOR) == every_method,
)
course.claim(
    "only a forked worker has the names that a notebook defines",
    inherited.methods_with(has, inherited.NOTEBOOK) == ["fork"],
)
course.claim(
    "a lock that was held at the start stays locked in a forked worker and in no other",
    inherited.methods_with(has, inherited.HELD) == ["fork"],
)
sees_shared = inherited.methods_with(has, inherited.SHARED)
sees_plain = inherited.methods_with(has, inherited.PLAIN)
course.claim(
    "under every start method a worker sees changes of shared memory, and not of a plain attribute",
    sees_shared == every_method and sees_plain == [],
)

# %% [markdown]
# The first row says that you need `seed_worker` of part 3 under every start method. The other rows tell you which
# method to use:
#
# - In a *notebook*, ask for `multiprocessing_context="fork"`. With the other methods, a worker does not find the
#   classes that you defined in cells, and fails.
# - In a *script*, keep the default. Put the dataset into a module, and start your program below `if __name__ ==
#   "__main__":`. Forkserver and spawn send the dataset to the worker as a pickle, but not the globals that you have
#   set. So pass settings through the dataset.
# - A forked worker may hang on a lock that another thread held. It also cannot use CUDA once your process has used it,
#   so let the dataset return CPU tensors.
#
# **Takeaway** Under every start method, each worker has its own copy of the dataset's generator. Only fork also copies
# your notebook.

# %% [markdown]
# ## Why does memory grow with workers? · extra
#
# A forked worker shares all pages of memory with your process. When one of them writes to a page, it gets its own copy
# of that page. But workers only read the list of file names. So why can a job with 16 workers end up with 16 copies of
# a list that nobody writes to?
#
# In the next cell, two workers read all names in random order, from a list of `str` or from one NumPy array. A third
# run is the null: its workers have the list, but do not read it. The cell adds up the memory that each worker has for
# itself, in pages that it shares with no other process.
#
# **Predict**: how many MB more do the two workers have for themselves after an epoch with the list? About 0, if reading
# copies nothing. The size of the list, if each worker copies the half that it reads. More, if a worker also copies what
# lies next to it.

# %%
predicted_grown = None  # your number

# %% tags=["experiment"]
names = worker_costs.many_names(sizes.names)
array = np.array([name.encode() for name in names])
of_list = worker_costs.grown_megabytes(worker_costs.Named(names), 2)
of_array = worker_costs.grown_megabytes(worker_costs.Named(array), 2)
unread = worker_costs.grown_megabytes(worker_costs.Named(names, reads=False), 2)

list_mb = worker_costs.megabytes_of(names)
array_mb = array.nbytes / 1e6
print(f"{len(names):,} names, {list_mb:.0f} MB as a list of str, {array_mb:.0f} MB as an array")
print(f"a list of str: {worker_costs.grown_shown(of_list)}")
print(f"one array: {worker_costs.grown_shown(of_array)}")
print(f"a list that nobody reads: {worker_costs.grown_shown(unread)}")

# %% tags=["experiment"]
after_an_epoch = None
if of_list is not None:
    after_an_epoch = of_list[0]

said = "MB more after an epoch with the list"
print(course.score("01/8", said, predicted_grown, after_an_epoch, null=None, form="{:.1f}"))
course.claim(
    "workers that read a list of str copy at least half of its size, beyond workers that do not read it",
    worker_costs.copied_share(of_list, unread, list_mb),
    above=0.5,
)
course.claim(
    "workers that read one array copy less than half of its size, beyond workers that read nothing",
    worker_costs.copied_share(of_array, unread, array_mb),
    below=0.5,
)

# %% [markdown]
# **Shown**: reading the list is what copies it, because the null differs only in that nobody reads. In an epoch, each
# name is read by one worker alone. But the system copies whole pages, which hold dozens of names. So each worker soon
# has a copy of nearly the whole list, and then the growth ends. The claims add up the growth of both workers;
# below 0, they grew less than workers that read nothing. If your memory keeps growing, look for another leak.
#
# **Known**: Python keeps the number of references to an object inside the object. So reading a `str` writes to its
# page, which is then copied. Many users report this ([pytorch issue
# 13246](https://github.com/pytorch/pytorch/issues/13246)). The array holds the same names in one block. Reading an item
# makes a new object, so nothing is written to the block. With spawn and forkserver, each worker has the whole list from
# the start.
#
# **Takeaway** If there are many, keep paths and labels in one array or tensor, not in lists of Python objects.

# %% [markdown]
# ## What fills /dev/shm? · extra
#
# If the shared memory of a container is full, a training may stop with `Bus error` or `unable to write to file`. How
# many batches are in there at a time?


# %% tags=["experiment"]
class Same(Dataset):
    """The same item again and again."""

    def __init__(self, item, n):
        self.item = item
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        return self.item


# %% tags=["experiment"]
image = torch.zeros(3, 250, 250, dtype=torch.uint8)
floats = Same(image.float(), 640)
batches_held = {}
for workers in (1, 2):
    batches_held[workers] = worker_costs.batches_in_shared_memory(floats, 32, workers)

print(worker_costs.held_shown(batches_held))
is_as_expected = None
if None not in batches_held.values():
    is_as_expected = [round(n) for n in batches_held.values()] == [3, 5]
course.claim(
    "the shared memory holds workers x prefetch_factor batches, and the one that the loop has",
    is_as_expected,
)

# %% [markdown]
# Docker gives a container 64 MB by default. Raise that with `docker run --shm-size=8g`, or use `--ipc=host`.
#
# **Takeaway** Shared memory needs (workers × `prefetch_factor` + 1) × the bytes of a batch, per rank.

# %% [markdown]
# ## How many processes share the cores? · extra
#
# Eight ranks on one host, each with eight workers: are there enough cores? And does a worker use several of them?

# %% tags=["experiment"]
torch.set_num_threads(2)  # else a forked worker could have its one thread from this process
in_main = torch.get_num_threads()
in_workers = set()
for batch in DataLoader(worker_costs.Threads(), 2, num_workers=2, **forks):
    in_workers.update(batch.tolist())
torch.set_num_threads(1)

course.claim(
    "torch computes with one thread in a worker",
    in_workers == {1},
    f"{in_workers}, in this process {in_main}",
)
print(worker_costs.shared_cores(loaders.cores(), ranks=1, workers=2, threads=1))

# %% tags=["experiment", "nbval-check-output"]
print(worker_costs.shared_cores(64, ranks=8, workers=8, threads=8))
print(worker_costs.shared_cores(64, ranks=8, workers=7, threads=1))
print(worker_costs.shared_cores(8, ranks=1, workers=8, threads=8))

# %% [markdown]
# torch gives each worker one thread. Other libraries do not know that they run in a worker, so each worker may start as
# many threads as there are cores. For OpenCV, call `cv2.setNumThreads(0)`. For NumPy, set the environment variable
# `OMP_NUM_THREADS=1`, which limits torch in your own process, too.
#
# **Takeaway** Ranks × (1 + workers) processes share the cores of a host. Divide the cores by the ranks first.

# %% [markdown]
# ## Do persistent workers notice a new epoch? · extra
#
# If you seed workers, an image may get another augmentation when you change the number of workers. A seed for each
# image avoids that. The next cell makes such a seed from three numbers: run, epoch and index.
#
# The dataset keeps the number of the epoch, and the main process sets it before each epoch. But *persistent* workers
# live for all epochs, with their own copy of the dataset. Do they see the new number?


# %% tags=["experiment"]
def sample_seed(seed, epoch, index):
    """An int that NumPy hashes from the three numbers: the same in every process and every run."""
    return int(np.random.default_rng((seed, epoch, index)).integers(2**63))


# %% tags=["experiment"]
class Augmented(Dataset):
    """The means of the first 12 images of `data`, augmented by (0, epoch, index) alone."""

    def __init__(self, data, shared):
        self.data = data
        self.epoch = torch.zeros(1, dtype=torch.int64)
        if shared:
            self.epoch.share_memory_()

    def set_epoch(self, epoch):
        """Choose the augmentations of the next epoch."""
        self.epoch[0] = epoch

    def __len__(self):
        return 12

    def __getitem__(self, i):
        # so the training keeps its random numbers if there are no workers
        with torch.random.fork_rng(devices=()):
            torch.default_generator.manual_seed(sample_seed(0, int(self.epoch), i))
            return self.data[i].mean()


# %% tags=["experiment"]
def two_epochs(data, num_workers):
    """The 12 means of epochs 0 and 1, lists, from one loader."""
    batches = loaders.forked(data, 4, num_workers)
    epochs = []
    for epoch in range(2):
        data.set_epoch(epoch)
        epochs.append(torch.cat(list(batches)).tolist())
    return epochs


# %% tags=["experiment"]
heavy = LFWDataset_now(folder, lfw.heavy_transform())
heavy = loaders.evenly_spaced(heavy, sizes.images)
means = {}
for workers in (0, 1, 3):
    means[workers] = two_epochs(Augmented(heavy, shared=True), workers)
unshared = two_epochs(Augmented(heavy, shared=False), 2)

course.claim(
    "with a seed per image, the augmentation of an image does not depend on the number of workers",
    means[0] == means[1] == means[3],
    f"image 9: {means[0][0][9]:.4f} with 0, 1 and 3 workers",
)
course.claim(
    "persistent workers repeat their augmentation if they do not see the epoch",
    unshared[0] == unshared[1],
)
course.claim(
    "persistent workers do not repeat their augmentation if the epoch is in shared memory",
    means[3][0] != means[3][1],
)

# %% [markdown]
# **Takeaway** Persistent workers keep the dataset that they started with. Tell them the epoch through shared memory.

# %% [markdown]
# ## How many numbers does a stream give? · extra
#
# An `IterableDataset` has no indices, only an `__iter__`, so the loader cannot divide it among workers. If two workers
# read a stream of 8 numbers, how many numbers arrive?


# %% tags=["experiment"]
class Stream(IterableDataset):
    """The numbers 0 to n - 1; with `sharded`, each worker gives every num_workers-th one."""

    def __init__(self, n, sharded):
        self.n = n
        self.sharded = sharded

    def __iter__(self):
        info = get_worker_info()
        if info is not None and self.sharded:
            return iter(range(info.id, self.n, info.num_workers))
        return iter(range(self.n))


# %% tags=["experiment"]
def arrived(sharded):
    """The numbers that two workers send, in the order in which the loop gets them."""
    batches = DataLoader(Stream(8, sharded), 2, num_workers=2, **forks)
    return torch.cat(list(batches)).tolist()


as_it_is = arrived(sharded=False)
divided = arrived(sharded=True)

print(f"as it is: {as_it_is}, {len(as_it_is)} numbers")
print(f"sharded:  {divided}")
course.claim(
    "each worker yields the whole stream unless the dataset divides it", len(as_it_is) == 16
)
course.claim(
    "with the stream sharded by worker, each number arrives once",
    sorted(divided) == list(range(8)),
)

# %% [markdown]
# With several ranks, divide the stream by rank, too. Start at `rank * num_workers + info.id`, and go in steps of
# `world_size * num_workers`.
#
# **Takeaway** A stream arrives once per worker, unless its dataset asks which worker it is in and yields only that
# share.

# %% [markdown]
# ## What does it cost to send a batch? · extra
#
# Floats are convenient, and bytes are small. Which should a worker send? The worker's `collate_fn` stacks the images
# into shared memory, and the message says only where the batch is (part 3). Does the type of the numbers matter, or
# only the number of bytes?


# %% tags=["experiment"]
def examined(samples):
    """(whether the collated batch is in shared memory, the bytes of the message about it)."""
    batch = default_collate(samples)
    message = ForkingPickler.dumps(batch)
    return batch.is_shared(), len(message)


# %% tags=["experiment"]
shared = []
message_bytes = {}
for n_images in (8, 64):
    batches = DataLoader(
        Same(image, n_images), n_images, num_workers=1, collate_fn=examined, **forks
    )
    is_shared, message_bytes[n_images] = next(iter(batches))
    shared.append(is_shared)

course.claim("a worker collates into shared memory", all(shared))
is_as_short = message_bytes[64] < message_bytes[8] + 100
course.claim(
    "the message is as short for 64 images as for 8", is_as_short, f"{message_bytes[64]} bytes"
)

# %% tags=["experiment"]
n_batches = sizes.handed_over
n_items = 32 * n_batches
floats = Same(image.float(), n_items)
large_image = torch.zeros(3, 500, 500, dtype=torch.uint8)
ways = {
    "floats from a worker, 24 MB": loaders.forked(floats, 32, 1),
    "bytes from a worker, 6 MB": loaders.forked(Same(image, n_items), 32, 1),
    "bytes of larger images, 24 MB": loaders.forked(Same(large_image, n_items), 32, 1),
}

# %% tags=["experiment"]
sent = loader_passes.compare_loaders(ways, n_batches, seconds_per_pass_now, **limits)
as_bytes = sent.ratio("bytes from a worker, 6 MB")

print(sent)
course.claim(
    "sending floats takes as long as sending the same number of bytes of another type, within 20 %",
    sent.ratio("bytes of larger images, 24 MB"),
    within=(0.8, 1.2),
)
course.claim(
    "sending images as bytes is at least twice as fast as sending them as floats",
    as_bytes,
    above=2,
)
plots.ratios(sent, f"From a worker, bytes arrive {as_bytes} times as fast as floats")

# %% [markdown]
# **Shown**: the number of bytes decides, because larger images of bytes take as long as floats if a batch has as many
# bytes. Part 2 shows what sending costs in CPU time.
#
# **Takeaway** The number of bytes counts, not their type. Send `uint8`, and convert to float on the device that
# computes.

# %% [markdown]
# ## How far should a worker build ahead? · extra
#
# Real items take unequal times: a disk is slow now and then, or a recording is long. In the next dataset an item takes
# 1 ms, but every 45th takes 40 ms. The loop takes 6 ms per batch, as if a GPU were busy. The figure shows how many
# batches the loop could take at any moment.


# %% tags=["experiment"]
class Uneven(Dataset):
    """Items that take 1 ms of waiting, every 45th takes 40 ms; each is the moment at which it was made."""

    def __len__(self):
        return sizes.uneven

    def __getitem__(self, i):
        if i % 45 == 44:
            time.sleep(0.04)
        else:
            time.sleep(0.001)
        return time.perf_counter()


# %% tags=["experiment"]
factors = {"prefetch_factor=1": 1, "prefetch_factor=4": 4}
queues = {}


def seconds_of(way):
    """Seconds of a pass, whose queue is kept for the figure."""
    loader = loaders.forked(Uneven(), 5, 2, prefetch_factor=factors[way])
    queues[way] = worker_costs.queue_of(loader, step_seconds=0.006)
    return queues[way].moments[-1]


whole = comparison.compare_measured(list(factors), seconds_of, **limits)

print(whole)
course.claim(
    "with uneven work, prefetch_factor=4 is at least 5 % faster than 1",
    whole.ratio("prefetch_factor=4"),
    above=1.05,
)
drawn = {}
for way in factors:
    queue = queues[way]
    drawn[f"{way}: empty {queue.empty_share():.0%} of the time"] = queue
plots.queue(drawn)

# %% [markdown]
# In the grey bands nothing is ready, and the loop waits. The titles say for what share of the time each queue is empty
# after the first batch.
#
# **Takeaway** Workers build workers × `prefetch_factor` batches ahead. Choose just enough to bridge the longest gap.

# %% [markdown]
# To sum up, these options of a `DataLoader` concern processes:
#
# | option | what it does | set it |
# |---|---|---|
# | `persistent_workers=True` | workers live for all epochs | if you train for several epochs |
# | `prefetch_factor=2` | batches that each worker builds ahead | higher if the work is uneven |
# | `multiprocessing_context` | the start method | `"fork"` in a notebook |
# | `in_order=False` | batches come as they finish | if the work is uneven and the order free |
# | `pin_memory=True` | a thread copies batches to where a GPU can fetch them | with CUDA (part 5) |

# %% [markdown]
# ## What if an item costs nothing? · extra
#
# Part 3 made one look-up per batch and collated nothing. PyTorch has another way: if a dataset has
# `__getitems__(indices)`, an ordinary `DataLoader` calls it once per batch. But it returns a list of items, which the
# loader collates. Is this as fast as looking up the whole batch?
#
# **Predict**: how many times as fast as one look-up per row is `__getitems__`, with batches of 256 rows? As fast as one
# look-up per batch in part 3, if the look-ups take most of the time. Hardly faster, if the time goes into handling 256
# small tensors.

# %%
predicted_times_as_fast = None  # your number


# %% tags=["experiment"]
class Rows(Dataset):
    """Rows of a tensor, one by one."""

    def __init__(self, data):
        self.data = data

    def __len__(self):
        return len(self.data)

    def __getitem__(self, i):
        return self.data[i]


# %% tags=["experiment"]
class RowsTogether(Rows):
    """Rows of a tensor, also a list of them in one call."""

    def __getitems__(self, indices):
        rows = self.data[indices]
        return list(rows)  # items, which the loader collates


# %% tags=["experiment"]
n_batches = comparison.steady_batches(0)
table = torch.randn(256 * n_batches, 32)
ways = {
    "__getitem__ per row": DataLoader(Rows(table), 256, shuffle=True),
    "__getitems__ per batch": DataLoader(RowsTogether(table), 256, shuffle=True),
}
by_rows = loader_passes.compare_loaders(ways, n_batches, seconds_per_pass_now, **limits)
together = by_rows.ratio("__getitems__ per batch")

print(by_rows)
said = "__getitems__ over one look-up per row"
print(course.score("01/8", said, predicted_times_as_fast, together))
course.claim(
    "asking a dataset in memory by __getitems__ is less than twice as fast as asking it row by row",
    together,
    below=2,
)

# %% tags=["experiment"]
batch = table[:256]
rows = list(batch)


def collate():
    return default_collate(rows)


def take_apart():
    return list(batch)


pieces = comparison.compare(
    {"collate": collate, "take apart": take_apart}, seconds=sizes.pass_seconds
)
course.claim(
    "taking a batch apart into 256 rows takes longer than collating them",
    pieces.ratio("collate", to="take apart"),
    above=1,
)

# %% [markdown]
# `__getitems__` replaces 256 look-ups by one, but it splits the result into 256 small tensors, which the loader stacks
# again. The last claim compares the splitting with the stacking. If one look-up returns the whole batch (part 3), both
# disappear.
#
# **Takeaway** If an item is only a look-up, look up the whole batch and return it as it is.
#
# ### Question · Would you use workers here?
#
# **Points** 4, by hand
#
# A colleague trains on 200,000 sensor recordings of 2 kB each, all in memory as one tensor of 400 MB. `__getitem__` is
# `return self.data[i]`. The GPU is idle for two thirds of the time, and 16 workers have made it worse. Answer in about
# ten lines. Why do the workers not help? Which two measurements of this unit should your colleague make first, and what
# would each outcome mean? What should your colleague do instead? And when would you advise workers after all?

# %% [markdown] answer="advice" points=4
# <!-- BEGIN SOLUTION -->
# There is no work to divide: an item is a lookup of about a microsecond. What takes the time is the Python loop
# over the items of a batch, the collation of many small tensors, and, with workers, one message and new shared
# memory for each batch. Workers divide the first two and add the last two, and sixteen of them also
# take the cores from the loop that feeds the GPU.
#
# First I would measure the share of the loop that waits for data, with the step and without it. If it does not wait,
# the loader is not the problem (then: is the clock read after a synchronisation, are the kernels tiny?). If it does:
# the costs of one batch, stage by stage, in the main process.
#
# Instead: no `__getitem__` for single items. Draw the indices of a whole batch and take the rows in one call,
# `data[indices]` (with a DataLoader: a `BatchSampler` as the sampler and `batch_size=None`). With 400 MB, put the
# tensor on the GPU at the start; then nothing is copied at all.
#
# Workers after all if an item takes work, from some hundred microseconds on (decoding, filters, resampling), or
# waiting (network, disk); then as many as the prediction of part 4 says, and send bytes rather than floats.
#
# === BEGIN MARK SCHEME ===
# **1 point** why: no work per item, and a named cost that workers add (message, shared memory, start, contention).
# "GIL" as the reason for processes being slow earns nothing.
#
# **1 point** two measurements of the unit (waiting share, costs by stages, sweep with its prediction, hand-over
# cost, cores busy, profile), each with what its outcome would mean.
#
# **1 point** a remedy that removes work: batched indexing, data on the device, bytes instead of floats. "Fewer
# workers" alone earns half.
#
# **1 point** when workers do pay: work or waiting per item is large against the hand-over, with an order of
# magnitude or a number of the learner's own run.
#
# Take off 1 point for a number that is claimed as measured but was not.
# === END MARK SCHEME ===
# <!-- END SOLUTION -->
