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
import itertools
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

warnings.filterwarnings(
    "ignore", "This DataLoader will create"
)  # more workers than cores: we try that on purpose
warnings.filterwarnings(
    "ignore", ".*use of fork\\(\\) may lead to deadlocks", DeprecationWarning
)  # see below
print(course.machine())

# %% tags=["experiment"]
torch.set_num_threads(1)  # as in a worker: one image is too little work for several threads
sizes = course.sizes("01_parallel_loading")
LFWDataset_now = course.solved(check.LFWDataset)
seconds_per_pass_now = course.solved(check.seconds_per_pass)
limits = dict(rounds=sizes.pass_rounds, seconds=sizes.pass_seconds)  # of each comparison
folder = lfw.folder(sizes.dataset)
forks = dict(
    multiprocessing_context="fork"
)  # classes from a notebook cell exist only in forked workers

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
print(starts)
spawn = starts.ratio("fork", to="spawn")
print(
    course.score("01/8", "spawn takes as many times as long as fork", predicted_spawn_times, spawn)
)
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
plots.seconds(
    starts,
    f"With two workers, spawn takes {spawn.estimate:.0f} times as long as fork to the first batch",
)

# %% [markdown]
# **Shown**: importing torch is what makes forkserver slow, because the preloading server differs only in what it has
# imported. Without preloading, the helper has no torch, so every worker that it forks imports torch again. To preload
# it, write at the top of a script, before any worker starts:
#
# ```python
# import multiprocessing
# multiprocessing.set_forkserver_preload(["__main__", "torch", "torch.utils.data", "my_dataset"])
# ```
#
# Your list replaces Python's own, which is `["__main__"]`.
#
# **Takeaway** Starting a worker costs its imports. Let a forkserver preload them, or pay only once with
# `persistent_workers=True`.

# %% [markdown]
# ## What does a worker inherit? · extra
#
# A script that runs with one start method may fail, hang or ignore your settings with another. What a worker inherits
# explains why. The next cell starts a worker by each method. The worker looks at the dataset's generator, at attributes
# that the main process changes later, at the names of your notebook, and at a lock that another thread holds.

# %% tags=["experiment"]
has = {method: inherited.inherited(method, "sizes") for method in worker_costs.METHODS}
print(f"{'a worker':<46}" + "".join(f"{method:>12}" for method in has))
for what in has["fork"]:
    print(
        f"{what:<46}"
        + "".join(f"{'yes' if of_worker[what] else 'no':>12}" for of_worker in has.values())
    )
generator, shared, plain, module, notebook, held = has["fork"]
course.claim(
    "workers repeat the numbers of the dataset's generator under every start method",
    all(of_worker[generator] for of_worker in has.values()),
)
course.claim(
    "only a forked worker has the names that a notebook defines",
    [method for method in has if has[method][notebook]] == ["fork"],
)
course.claim(
    "a lock that was held at the start stays locked in a forked worker and in no other",
    [method for method in has if has[method][held]] == ["fork"],
)
course.claim(
    "under every start method a worker sees changes of shared memory, and not of a plain attribute",
    all(of_worker[shared] and not of_worker[plain] for of_worker in has.values()),
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
# **Takeaway** Every start method copies the dataset, its generator included. Only fork also copies your notebook.

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
grown = {
    "a list of str": worker_costs.grown_megabytes(worker_costs.Named(names), 2),
    "one array": worker_costs.grown_megabytes(worker_costs.Named(array), 2),
    "a list that nobody reads": worker_costs.grown_megabytes(
        worker_costs.Named(names, reads=False), 2
    ),
}
of_list, of_array, unread = grown.values()
of_names = worker_costs.megabytes_of(names)
print(
    f"{len(names):,} names, {of_names:.0f} MB as a list of str, {array.nbytes / 1e6:.0f} MB as an array"
)
for what, mb in grown.items():
    print(
        f"{what}: {'no /proc here' if mb is None else ', '.join(f'{more:.1f} MB' for more in mb)} more, by epoch"
    )

# %% tags=["experiment"]
after = of_list and of_list[0]
print(
    course.score(
        "01/8",
        "MB more after an epoch with the list",
        predicted_grown,
        after,
        null=None,
        form="{:.1f}",
    )
)
course.claim(
    "workers that read a list of str copy at least half of its size, beyond workers that do not read it",
    worker_costs.copied_share(of_list, unread, of_names),
    above=0.5,
)
course.claim(
    "workers that read one array copy less than half of its size, beyond workers that read nothing",
    worker_costs.copied_share(of_array, unread, array.nbytes / 1e6),
    below=0.5,
)

# %% [markdown]
# **Shown**: reading the list is what copies it, because the null differs only in that nobody reads. (The claims give
# shares of the size of the list or array, with the range over the epochs.) In an epoch, only one of the workers reads a
# name, but the system copies whole pages, which hold dozens of names. Once all pages are copied, the growth ends. If
# your memory keeps growing, look for another leak.
#
# **Known**: Python keeps the number of references to an object inside the object. So reading a `str` writes to its
# page, which is then copied. Many users report this ([pytorch issue
# 13246](https://github.com/pytorch/pytorch/issues/13246)). The array holds the same names in one block. Reading an item
# makes a new object, so nothing is written to the block. With spawn and forkserver, each worker has the whole list from
# the start.
#
# Your `LFWDataset` keeps a list of paths. That is fine for thousands of files, but not for millions.
#
# **Takeaway** Keep paths and labels in one array or tensor, not in lists of Python objects.

# %% [markdown]
# ## What fills /dev/shm? · extra
#
# If the shared memory of a container is full, a training stops with `Bus error` or `unable to write to file`. How many
# batches are in there at a time?


# %% tags=["experiment"]
class Same(Dataset):
    """The same item again and again."""

    def __init__(self, item, n):
        self.item, self.n = item, n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        return self.item


# %% tags=["experiment"]
image = torch.zeros(3, 250, 250, dtype=torch.uint8)
found = {w: worker_costs.batches_in_shared_memory(Same(image.float(), 640), 32, w) for w in (1, 2)}
print({w: "no /dev/shm here" if n is None else f"{n:.2f} batches" for w, n in found.items()})
course.claim(
    "the shared memory holds workers x prefetch_factor batches, and the one that the loop has",
    None if None in found.values() else [round(n) for n in found.values()] == [3, 5],
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
in_workers = {
    n
    for batch in DataLoader(worker_costs.Threads(), 2, num_workers=2, **forks)
    for n in batch.tolist()
}
course.claim(
    "torch computes with one thread in a worker",
    in_workers == {1},
    f"{in_workers}, in this process {in_main}",
)
torch.set_num_threads(1)
print(worker_costs.shared_cores(loaders.cores(), 1, 2, 1))

# %% tags=["experiment", "nbval-check-output"]
for cores, ranks, workers, threads in ((64, 8, 8, 8), (64, 8, 7, 1), (8, 1, 8, 8)):
    print(worker_costs.shared_cores(cores, ranks, workers, threads))

# %% [markdown]
# torch gives each worker one thread. Other libraries do not know that they run in a worker, so each worker may start as
# many threads as there are cores. For OpenCV, call `cv2.setNumThreads(0)`. For NumPy, set the environment variable
# `OMP_NUM_THREADS=1`, which limits torch in your own process, too.
#
# **Takeaway** Ranks × (1 + workers) processes share the cores of a host. Divide the cores by the ranks first.

# %% [markdown]
# ## Do persistent workers notice a new epoch? · extra
#
# If you seed workers, an image gets another augmentation when you change the number of workers. A seed for each image
# avoids that. The next cell makes such a seed from three numbers: run, epoch and index.
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
        self.data, self.epoch = data, torch.zeros(1, dtype=torch.int64)
        if shared:
            self.epoch.share_memory_()

    def set_epoch(self, epoch):
        """Choose the augmentations of the next epoch."""
        self.epoch[0] = epoch

    def __len__(self):
        return 12

    def __getitem__(self, i):
        with torch.random.fork_rng(
            devices=()
        ):  # with 0 workers, the training keeps its random numbers
            torch.default_generator.manual_seed(sample_seed(0, int(self.epoch), i))
            return self.data[i].mean()


# %% tags=["experiment"]
def two_epochs(data, num_workers):
    """The 12 means of epochs 0 and 1, lists, from one loader."""
    batches, epochs = loaders.forked(data, 4, num_workers), []
    for epoch in range(2):
        data.set_epoch(epoch)
        epochs.append(torch.cat(list(batches)).tolist())
    return epochs


# %% tags=["experiment"]
heavy = loaders.evenly_spaced(LFWDataset_now(folder, lfw.heavy_transform()), sizes.images)
means = {n: two_epochs(Augmented(heavy, shared=True), n) for n in (0, 1, 3)}
course.claim(
    "with a seed per image, the augmentation of an image does not depend on the number of workers",
    means[0] == means[1] == means[3],
    f"image 9: {means[0][0][9]:.4f} with 0, 1 and 3 workers",
)
plain_epochs = two_epochs(Augmented(heavy, shared=False), 2)
course.claim(
    "persistent workers repeat their augmentation if they do not see the epoch",
    plain_epochs[0] == plain_epochs[1],
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
        self.n, self.sharded = n, sharded

    def __iter__(self):
        info = get_worker_info()
        first, step = (info.id, info.num_workers) if info and self.sharded else (0, 1)
        return iter(range(first, self.n, step))


# %% tags=["experiment"]
arrived = {
    s: [int(i) for b in DataLoader(Stream(8, s), 2, num_workers=2, **forks) for i in b]
    for s in (False, True)
}
print(f"as it is: {arrived[False]}, {len(arrived[False])} numbers")
print(f"sharded:  {arrived[True]}")
course.claim(
    "each worker yields the whole stream unless the dataset divides it", len(arrived[False]) == 16
)
course.claim(
    "with the stream sharded by worker, each number arrives once",
    sorted(arrived[True]) == list(range(8)),
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
    return batch.is_shared(), len(ForkingPickler.dumps(batch))


# %% tags=["experiment"]
seen = {
    n: next(iter(DataLoader(Same(image, n), n, num_workers=1, collate_fn=examined, **forks)))
    for n in (8, 64)
}
course.claim("a worker collates into shared memory", all(shared for shared, _ in seen.values()))
is_as_short = seen[64][1] < seen[8][1] + 100
course.claim("the message is as short for 64 images as for 8", is_as_short, f"{seen[64][1]} bytes")

# %% tags=["experiment"]
n_batches = sizes.handed_over
items = {
    "floats from a worker, 24 MB": image.float(),
    "bytes from a worker, 6 MB": image,
    "bytes of larger images, 24 MB": torch.zeros(3, 500, 500, dtype=torch.uint8),
}
# %% tags=["experiment"]
ways = {label: loaders.forked(Same(item, 32 * n_batches), 32, 1) for label, item in items.items()}
floats, collate = Same(image.float(), 32 * n_batches), loader_passes.collate_as_a_worker
ways["no worker, used memory"] = DataLoader(floats, 32)
ways["no worker, new shared memory"] = DataLoader(floats, 32, collate_fn=collate)
sent = loader_passes.compare_loaders(ways, n_batches, seconds_per_pass_now, **limits)
print(sent)
course.claim(
    "sending floats takes as long as sending the same number of bytes of another type, within 20 %",
    sent.ratio("bytes of larger images, 24 MB"),
    within=(0.8, 1.2),
)
course.claim(
    "sending images as bytes is at least twice as fast as sending them as floats",
    sent.ratio("bytes from a worker, 6 MB"),
    above=2,
)
faster = sent.ratio("bytes from a worker, 6 MB")
plots.ratios(sent, f"From a worker, bytes arrive {faster} times as fast as floats")

# %% [markdown]
# **Shown**: the two rows without a worker differ because of new shared memory, since nothing else changes between them.
# Both send nothing. One stacks a batch in memory that an earlier batch used, the other in new shared memory, as a
# worker does. (Larger batches get new memory in any case, see part 2.)
#
# Do not subtract the time of a pass without a worker from one with a worker. With a worker, two processes share the
# work: the worker builds a batch while your process drops another. So the time of a pass can hide what sending costs.
# The CPU time, which part 2 counts, shows it.
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
        time.sleep(0.04 if i % 45 == 44 else 0.001)
        return time.perf_counter()


# %% tags=["experiment"]
def queue_depth(factor):
    """(moments in s, batches that the loop could take at each of them), two lists."""
    loader = loaders.forked(Uneven(), 5, 2, prefetch_factor=factor)
    begin, changes, ready = time.perf_counter(), [], 0
    for batch in loader:
        ready = max(
            ready, batch.max().item() - begin
        )  # batches come in order: it waits for those before it
        changes += [(ready, 1), (time.perf_counter() - begin, -1)]
        time.sleep(0.006)
    moments = [moment for moment, _ in sorted(changes)]
    return moments, list(itertools.accumulate(change for _, change in sorted(changes)))


# %% tags=["experiment"]
def empty_share(moments, depths):
    """Share of the time in which nothing is ready."""
    gaps = [b - a for a, b in itertools.pairwise(moments)]
    return sum(gap for gap, depth in zip(gaps, depths[:-1], strict=True) if not depth) / sum(gaps)


# %% tags=["experiment"]
queues = {}


def seconds_of(way):
    """Seconds of the queue of a pass, which is kept for the figure."""
    queues[way] = queue_depth(int(way[-1]))
    return queues[way][0][-1]


whole = comparison.compare_measured(
    ["prefetch_factor=1", "prefetch_factor=4"], seconds_of, **limits
)
print(whole)
course.claim(
    "with uneven work, prefetch_factor=4 is at least 5 % faster than 1",
    whole.ratio("prefetch_factor=4"),
    above=1.05,
)
plots.queue(
    {
        f"{way}: empty {empty_share(*queues[way]):.0%} of the time": queues[way]
        for way in sorted(queues)
    }
)

# %% [markdown]
# In the grey bands nothing is ready, and the loop waits. One slow item empties the short queue. The titles say for what
# share of the time each queue is empty after the first batch.
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
# look-up per batch in part 3, if the look-ups take most of the time. Hardly faster, if the stacking does.

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
        return list(
            self.data[indices]
        )  # taken apart into a list of items, which the loader collates


# %% tags=["experiment"]
n_batches = comparison.steady_batches(0)
table = torch.randn(256 * n_batches, 32)
one_by_one, together = (DataLoader(data(table), 256, shuffle=True) for data in (Rows, RowsTogether))
ways = {"__getitem__ per row": one_by_one, "__getitems__ per batch": together}
by_rows = loader_passes.compare_loaders(ways, n_batches, seconds_per_pass_now, **limits)
print(by_rows)
faster = by_rows.ratio("__getitems__ per batch")
print(
    course.score("01/8", "__getitems__ over one look-up per row", predicted_times_as_fast, faster)
)
course.claim(
    "asking a dataset in memory by __getitems__ is less than twice as fast as asking it row by row",
    faster,
    below=2,
)

# %% tags=["experiment"]
batch, rows = table[:256], list(table[:256])
two = {"collate": lambda: default_collate(rows), "take apart": lambda: list(batch)}
pieces = comparison.compare(two, seconds=sizes.pass_seconds)
course.claim(
    "taking a batch apart into 256 rows takes longer than collating them",
    pieces.ratio("take apart"),
    below=1,
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
# over the items of a batch, the collation of many small tensors, and, with workers, one message and one more copy
# through shared memory for each batch. Workers divide the first two and add the last two, and sixteen of them also
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
