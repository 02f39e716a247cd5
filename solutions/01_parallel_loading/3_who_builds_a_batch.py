# %% [markdown]
# # Parallel loading, part 3: Say who builds a batch, and seed the workers
#
# **Which process does what, and what must you tell it?**
#
# A loader with workers is several processes, and some of its errors raise no exception. For example, augmentations
# repeat. In this part you ask the processes who builds which batch, and write down the plan of an epoch. Then you seed
# the workers, so that each draws other numbers and a second run repeats them.
#
# **You will be able to**
#
# - say which worker builds which batch;
# - seed workers so that they differ, and so that a second run repeats them;
# - recognise data that a loader should look up in whole batches.
#
# **Minutes** 32 core · 38 in all
#
# **Needs** `LFWDataset` of part 1 and `seconds_per_pass` of part 2

# %% locked="setup"
import os
import warnings

import numpy as np
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    RandomSampler,
    TensorDataset,
    get_worker_info,
)

import course
from course.checks import parallel_loading as check
from course.datasets import lfw
from course.loading import loader_passes, loaders, one_batch
from course.measure import comparison
from course.plots import parallel_loading as plots

# more workers than cores: we try that on purpose
warnings.filterwarnings("ignore", "This DataLoader will create")
# part 8 explains
warnings.filterwarnings("ignore", ".*use of fork\\(\\) may lead to deadlocks", DeprecationWarning)
print(course.machine())

# %% tags=["experiment"]
torch.set_num_threads(1)  # as in a worker: one image is too little work for several threads
sizes = course.sizes("01_parallel_loading")
LFWDataset_now = course.solved(check.LFWDataset)
limits = {"rounds": sizes.pass_rounds, "seconds": sizes.pass_seconds}  # of each comparison
# classes from a notebook cell exist only in forked workers
forks = {"multiprocessing_context": "fork"}

# %% [markdown]
# ## Who builds batch 4?
#
# With `num_workers=0` your process does everything. It reads the images of a batch, stacks them, trains, and only then
# reads the next batch. With `num_workers=3`, three *worker processes* load for you. How they divide the work decides
# what they can speed up.
#
# **Predict**: 24 items in batches of four, three workers. Batches count from 0. Which workers build batch 4?
#
# - All of them: the loader splits each batch, and each worker makes its share of the images.
# - One of them: the worker that is free first.
# - One of them, known in advance: batches are dealt like cards.

# %%
predicted_workers_of_batch_4 = None  # a set of numbers from 0 to 2

# %% [markdown]
# ### Exercise 1 · A witness in every worker
#
# To find out, ask the workers. Write a dataset whose items say who made them. In a worker, `get_worker_info()` returns
# an object with the worker's `id`. In the main process it returns None.
#
# **Must** return, as item i, the int64 tensor [i, worker, process]
# - with the id of the worker that makes the item, or -1 in the main process;
# - with the operating system's id of that process.
#
# **Points** 2 · **Core** · **Difficulty** ●○○ · **Minutes** 4 · **Lines** 2
#
# **Source** PyTorch documentation of `torch.utils.data.get_worker_info`; Python's of `os.getpid`.
#
# <details><summary>Hint 1</summary>
#
# In which process does `__init__` run, and in which `__getitem__`?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# The first worker has id 0; is `if info.id` true for it?
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# In `__getitem__`: `info = get_worker_info()`, `worker = -1 if info is None else info.id`, and
# `torch.tensor([i, worker, os.getpid()])`.
#
# </details>


# %% solution="WorkerWitness"
class WorkerWitness(Dataset):
    """A dataset of n items; item i is the int64 tensor [i, worker id or -1 in the main process, process id].

    Args:
        n: number of items.
    """

    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        ### BEGIN SOLUTION
        info = get_worker_info()
        return torch.tensor([i, -1 if info is None else info.id, os.getpid()])
        ### END SOLUTION


# %% test="WorkerWitness-visible" points=1
check.WorkerWitness(WorkerWitness)

# %% test="WorkerWitness-hidden" points=1
### BEGIN HIDDEN TESTS
check.WorkerWitness(WorkerWitness, seed=41)
### END HIDDEN TESTS

# %% tags=["experiment", "nbval-check-output"]
WorkerWitness_now = course.solved(check.WorkerWitness)
seen = list(DataLoader(WorkerWitness_now(24), 4, num_workers=3, **forks))

for k, batch in enumerate(seen):
    items = batch[:, 0].tolist()
    workers = batch[:, 1].unique().tolist()
    print(f"batch {k}: items {items}, workers {workers}")

# %% tags=["experiment"]
of_batch_4 = set(seen[4][:, 1].tolist())
workers_of_each = [len(batch[:, 1].unique()) for batch in seen]
processes = {batch[0, 2].item() for batch in seen}

print(
    course.score(
        "01/3", "ids of the workers that build batch 4", predicted_workers_of_batch_4, of_batch_4
    )
)
course.claim("each batch is built by one worker alone", set(workers_of_each) == {1})
course.claim("three processes built the batches", len(processes) == 3)

# %%
plots.loader_diagram(num_workers=4, batch_size=8)

# %% [markdown]
# The loader does not split a batch among workers:
#
# 1. The main process sends the indices of one *whole* batch to one worker, and those of the next batch to the next
#    worker, round robin.
# 2. The worker calls `dataset[i]` for each index and *collates*: the `collate_fn` turns the items into one batch. By
#    default it stacks them in memory that both processes can see.
# 3. The worker sends back a message that says where the batch is. The pixels stay where they are.
#
# The loader gives each worker the indices of `prefetch_factor` batches ahead, two by default. The loop receives batches
# in order, so a batch that is ready early waits until its turn comes. (With `in_order=False` it does not wait. An
# `IterableDataset` has no indices to send, so each worker reads its own stream.)
#
# **Takeaway** One worker builds and collates a whole batch.

# %% [markdown]
# ## What is the plan of an epoch?
#
# ### Exercise 2 · The plan of an epoch
#
# If one batch is late or broken, which worker do you suspect? You can tell in advance, because the plan of an epoch
# follows from a few numbers. Write the function that computes it.
#
# **Must** return a pair (worker, indices) for each batch, in the order in which the loop receives them.
#
# ```python
# >>> batch_plan(5, 2, 2)
# [(0, [0, 1]), (1, [2, 3]), (0, [4])]
# ```
#
# **Convention** With `num_workers=0` the worker is None. With `drop_last`, leave out the last batch if it is not full.
#
# **Points** 2 · **Core** · **Difficulty** ●○○ · **Minutes** 6 · **Lines** 6
#
# **Source** PyTorch documentation of `torch.utils.data`, "Single- and Multi-process Data Loading".
#
# <details><summary>Hint 1</summary>
#
# How would you deal a pack of cards to four players? What is a card here: an image, or a batch?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `range(0, stop, batch_size)` are the first items of all batches. What must `stop` be with `drop_last`? The last batch
# ends at `stop`, not at `start + batch_size`.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# With `drop_last`, `stop = n_items - n_items % batch_size`. Batch k holds `range(start, min(start + batch_size,
# stop))`, and its worker is `k % num_workers` with `k` from `enumerate`.
#
# </details>


# %% solution="batch_plan"
def batch_plan(n_items, batch_size, num_workers, drop_last=False):
    """The batches of one epoch, in the order in which the loop receives them, and who builds each.

    Args:
        n_items: length of the dataset, 0 or more; its items are taken in order.
        batch_size: items in a batch, 1 or more.
        num_workers: worker processes of the loader; 0 means that the main process builds all batches.
        drop_last: True leaves out a last batch that is not full.

    Returns: list of pairs (worker, indices): the id of the worker, an int from 0, or None for the main process, and the
        list of the item numbers of the batch.
    """
    ### BEGIN SOLUTION
    stop = n_items - n_items % batch_size if drop_last else n_items
    batches = [
        list(range(start, min(start + batch_size, stop))) for start in range(0, stop, batch_size)
    ]
    return [(k % num_workers if num_workers else None, batch) for k, batch in enumerate(batches)]
    ### END SOLUTION


# %% test="batch_plan-visible" points=1
check.batch_plan(batch_plan)

# %% test="batch_plan-hidden" points=1
### BEGIN HIDDEN TESTS
check.batch_plan(batch_plan, seed=512)
### END HIDDEN TESTS

# %% tags=["experiment"]
batch_plan_now = course.solved(check.batch_plan)
cases = [(24, 3, False), (22, 2, False), (22, 2, True), (9, 4, False)]

as_planned = []
for n_items, workers, drop_last in cases:
    plan = batch_plan_now(n_items, 4, workers, drop_last)
    items = WorkerWitness_now(n_items)
    batches = DataLoader(items, 4, num_workers=workers, drop_last=drop_last, **forks)
    for (worker, indices), batch in zip(plan, batches, strict=True):
        expected = [[i, worker] for i in indices]
        as_planned.append(batch[:, :2].tolist() == expected)

course.claim(
    "each batch of four loaders was built by the one worker that the plan names",
    all(as_planned),
    f"{sum(as_planned)} of {len(as_planned)}",
)

# %% [markdown]
# **Takeaway** By default, worker $k \bmod w$ builds batch $k$ of a map-style dataset, and batches arrive in order.

# %% [markdown]
# ## What do the processes send each other? · extra
#
# The next cell counts what the main process sends and receives for six batches of one or four tensors.

# %% tags=["experiment"]
one_each = []
one_per_tensor = []
for workers in (1, 2, 3):
    for tensors in (1, 4):
        counts = one_batch.messages(WorkerWitness_now(24), 4, workers, tensors)
        print(f"workers: {workers}, tensors per batch: {tensors}, {counts}")
        one_each.append(counts["sent"] == counts["received"] == 6)
        one_per_tensor.append(counts["connections"] == 6 * tensors)

course.claim(
    "through its queues the main process sends one message per batch and receives one, with any number of "
    "workers and tensors",
    all(one_each),
    "6 and 6 for 6 batches",
)
is_per_tensor = all(one_per_tensor)
note = "6 for 6 batches of 1 tensor, 24 for 6 of 4"
if torch.multiprocessing.get_sharing_strategy() != "file_descriptor":  # the default on Linux
    is_per_tensor = None
    note = "memory is not passed as a file"
course.claim(
    "the main process also opens one connection to a worker for each tensor of each batch",
    is_per_tensor,
    note,
)

# %% [markdown]
# On Linux, the memory of a tensor is a file that the worker keeps open. To get this file, your process opens a
# connection to the worker. **Shown** by the counts: with the same number of workers, only the number of tensors changes
# the connections.
#
# **Known**: the documentation of `torch.multiprocessing` describes this strategy, `file_descriptor`. With the strategy
# `file_system`, the message holds the name of a file, and your process needs no connection.
#
# **Takeaway** A batch costs two messages in queues, and on Linux, by default, a connection for each of its tensors.

# %% [markdown]
# ## Does a second worker make a batch faster? · extra
#
# If two workers build different batches, is each batch ready sooner? The next cell times each batch in the process that
# builds it, from its first image to the collated batch. It does so in the main process, in a single worker, and in one
# of two workers.

# %% tags=["experiment"]
faces = loaders.evenly_spaced(LFWDataset_now(lfw.folder(sizes.dataset)), sizes.images)
images = loader_passes.Repeated(faces, comparison.steady_batches(2) * sizes.pass_batch)
ways = {
    "main process": one_batch.stamped(images, sizes.pass_batch, 0),
    "the only worker": one_batch.stamped(images, sizes.pass_batch, 1),
    "one of two workers": one_batch.stamped(images, sizes.pass_batch, 2),
}


def seconds_to_build(way):
    return one_batch.seconds_to_build(ways[way])


building = comparison.compare_measured(list(ways), seconds_to_build, progress=True, **limits)
against_one = building.ratio("one of two workers", to="the only worker")

print(building)
print(f"one of two workers against the only worker: {against_one}")
course.claim(
    "one of two workers builds a batch no more than 10 % faster than the main process alone",
    building.ratio("one of two workers"),
    below=1.1,
)

# %% tags=["experiment"]
drawn = one_batch.builds(ways["main process"])[:12]
drawn += one_batch.builds(ways["one of two workers"])[:12]
title = "One batch at a time without workers, two at a time with two"
plots.timeline(drawn, title, main=one_batch.MAIN)

# %% [markdown]
# Each row is a process, and each box is a batch. Two workers build two batches at a time. If the loop only loads, they
# can win only if a batch takes them less than twice as long as the main process. The figure shows the start of one
# pass, so take the speeds from the printed lines.
#
# **We think** that a worker takes longer mainly because it writes the batch into new shared memory. To test this, give
# `one_batch.stamped` a dataset that returns 8 × 8 pixels per image.
#
# **Takeaway** Workers do not build a batch faster. They build several batches at the same time.

# %% [markdown]
# ## Do the workers draw different numbers?
#
# If augmentations repeat, your network sees less variety than you think, and nothing warns you. This dataset draws its
# items from a generator that it keeps, as an augmentation may do:


# %% tags=["experiment"]
class Dice(Dataset):
    """Throws of a die with 1,000 faces, from a Generator that was made when the dataset was."""

    def __init__(self):
        self.rng = np.random.default_rng(0)

    def __len__(self):
        return 12

    def __getitem__(self, i):
        return int(self.rng.integers(1000))


# %% [markdown]
# **Predict**: two workers make an epoch of these 12 items. How many different numbers are among the 12? All of them, if
# the workers share the generator or have their own seeds. Half of them, if each worker has a copy.

# %%
predicted_different = None  # your number


# %% tags=["experiment", "nbval-check-output"]
def throws(init=None):
    """The batches of two epochs, lists of numbers, thrown by two workers; print them."""
    seeded = torch.Generator().manual_seed(0)
    loader = DataLoader(Dice(), 3, num_workers=2, worker_init_fn=init, generator=seeded, **forks)
    epochs = []
    for epoch in range(2):
        batches = [batch.tolist() for batch in loader]
        print(f"epoch {epoch}: " + "  ".join(map(str, batches)))
        epochs.append(batches)
    return epochs


copied = throws()

# %% tags=["experiment"]
different = len(torch.tensor(copied[0]).unique())
print(course.score("01/3", "different numbers of 12", predicted_different, different, null=None))
course.claim(
    "two workers draw the same numbers from a generator that the dataset keeps", different == 6
)
course.claim("the second epoch repeats the first one", copied[0] == copied[1])

# %% [markdown]
# Worker 0 builds batches 0 and 2, and worker 1 builds the others. Both draw the same numbers, and the next epoch
# repeats them.
#
# PyTorch seeds some generators for you. When workers start, the loader draws a *base seed*, from its `generator` if
# there is one. Worker $w$ seeds torch and Python's `random` with base seed + $w$, and `np.random` with a hash of both
# numbers (**Known**: `torch/utils/data/_utils/worker.py`). But a generator that *you* keep in the dataset stays a copy.
#
# A `worker_init_fn` can replace that copy. The loader calls this function in each worker when the worker starts. There,
# `get_worker_info()` has what you need: `seed`, which is base seed + $w$, and `dataset`, which is this worker's copy.
#
# ### Exercise 3 · Seed the workers
#
# Write the `worker_init_fn` that gives each worker's dataset a new generator.
#
# **Must**
# - replace `rng` of the worker's dataset by a new `numpy.random.Generator`, which differs in each worker and each
#   epoch;
# - follow the loader's seed: the same `generator=torch.Generator().manual_seed(s)` gives the same numbers again;
# - in the main process, do nothing and draw nothing.
#
# ```python
# >>> seed_worker(0) is None  # here in the main process
# True
# ```
#
# **Points** 3 · **Core** · **Difficulty** ●○○ · **Minutes** 6 · **Lines** 3
#
# **Source** PyTorch documentation,
# [Randomness in multi-process data loading](https://pytorch.org/docs/stable/data.html#data-loading-randomness).
#
# <details><summary>Hint 1</summary>
#
# Which number is different in each worker *and* in each epoch *and* the same in a second run? Is the worker's id?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# In the main process `get_worker_info()` is None. In a worker, its `dataset` is the copy whose `rng` you replace.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# `info = get_worker_info()`; if it is not None, `info.dataset.rng` becomes `np.random.default_rng(info.seed)`.
#
# </details>


# %% solution="seed_worker"
def seed_worker(worker_id):
    """Replace the `rng` of this worker's dataset by a Generator that follows from the worker's seed.

    Args:
        worker_id: number of the worker, from 0; the loader calls `worker_init_fn` with it in every new worker.
    """
    ### BEGIN SOLUTION
    # info.seed is the base seed of these workers + worker_id
    info = get_worker_info()
    if info is not None:
        info.dataset.rng = np.random.default_rng(info.seed)
    ### END SOLUTION


# %% test="seed_worker-visible" points=1
check.seed_worker(seed_worker)

# %% test="seed_worker-hidden" points=2
### BEGIN HIDDEN TESTS
check.seed_worker(seed_worker, seed=19)
### END HIDDEN TESTS

# %% tags=["experiment", "nbval-check-output"]
seeded = throws(course.solved(check.seed_worker))

# %% tags=["experiment"]
count = len(torch.tensor(seeded).unique())
is_fresh = count > 20  # a few of 24 draws from 1,000 may be equal by chance
course.claim(
    "with seed_worker no worker and no epoch repeats the numbers of another",
    is_fresh,
    f"{count} different numbers of 24",
)

# %% [markdown]
# If you call `throws(seed_worker)` again, it prints the same 24 numbers. With `persistent_workers=True`, the loader
# calls the function only once, when the workers start. In the second epoch, the same generators continue.
#
# <details><summary>If you train with several ranks</summary>
#
# If all ranks seed torch alike, their loaders may draw the same base seed. Then worker 0 of each rank draws the same
# numbers. Give each rank's loader a `generator` with its own seed.
#
# </details>
#
# **Takeaway** Each worker gets a copy of a generator in the dataset. Seed it there, from `get_worker_info().seed`.

# %% [markdown]
# ## When do workers lose?
#
# Do workers help if an item costs almost nothing? The next cell loads rows of a tensor in memory, so `dataset[i]` is
# only a look-up.
#
# **Predict**: how many times as fast as no workers are two workers? More than 1, if dividing the look-ups helps. Less
# than 1, if a batch costs more to send than to look up.

# %%
predicted_times_as_fast = None  # your number

# %% tags=["experiment"]
n_batches = comparison.steady_batches(4)
rows = TensorDataset(torch.randn(n_batches * 256, 32))
ways = {}
for workers in (0, 2, 4):
    ways[f"{workers} workers"] = loaders.forked(rows, 256, workers, shuffle=True)
by_batch = BatchSampler(RandomSampler(rows), 256, drop_last=True)
look_up = "0 workers, one look-up per batch"
ways[look_up] = DataLoader(rows, sampler=by_batch, batch_size=None)

lost = loader_passes.compare_loaders(
    ways, n_batches, course.solved(check.seconds_per_pass), **limits
)
two = lost.ratio("2 workers")
one_look_up = lost.ratio(look_up)

print(lost)
said = "two workers against none, items in memory"
print(course.score("01/3", said, predicted_times_as_fast, two))
course.claim(
    "one look-up per batch of rows in memory is more than three times as fast as one per row",
    one_look_up,
    above=3,
)
title = (
    f"Rows in memory: 2 workers {two.estimate:.2f} times as fast as none, "
    f"one look-up per batch {one_look_up.estimate:.1f} times"
)
plots.ratios(lost, title)

# %% [markdown]
# Workers divide the look-ups and the stacking, but each batch must then be sent. If an item costs almost nothing, there
# is little to divide. One look-up per batch removes the work instead. With `batch_size=None` and a `BatchSampler` as
# the sampler, the loader calls `dataset[indices]` once and collates nothing.
#
# So no fixed number of workers fits all data. Part 4 computes the number from what one worker costs.
#
# **Takeaway** If an item is only a look-up, do not divide the work among workers. Remove it.
