# %% [markdown]
# # Parallel loading, part 3: Give workers random numbers, bytes and a start
#
# **What changes when many processes build the batches?**
#
# A worker begins as a copy of your process or as a new one. Both have consequences: copied random number generators
# repeat each other, every batch has to travel between processes, and processes must be started, kept and fed with
# memory. You write the functions that make workers behave, and measure what handing over, starting and prefetching
# cost.
#
# **You will be able to**
#
# - give every worker, or every image, random numbers of its own that a second run repeats;
# - tell workers that live on which epoch it is, and streams which worker they are in;
# - say what travels between the processes, and what runs out: shared memory, descriptors, copied pages;
# - choose start method, persistent workers and prefetching for a task.
#
# **Minutes** 15 core · 80 in all
#
# **Needs** parts 1 and 2: `LFWDataset`, `heavy_transform`, `seconds_per_pass` and `sweep` are taken over if you
# solved them

# %% locked="setup"
import functools
import itertools
import multiprocessing
import os
import resource
import shutil
import threading
import time
import warnings
from multiprocessing.reduction import ForkingPickler
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset, default_collate, get_worker_info

import course
from course.checks import parallel_loading as check
from course.datasets import lfw
from course.learner.predictions import reveal
from course.loading import loaders
from course.measure import timing, usage
from course.plots import parallel_loading as plots

warnings.filterwarnings("ignore", "This DataLoader will create")  # more workers than cores: we try that on purpose
warnings.filterwarnings("ignore", ".*use of fork\\(\\) may lead to deadlocks", DeprecationWarning)  # see below
print(course.machine())

# %% tags=["experiment"]
torch.set_num_threads(1)  # as in a worker: one image is too little work for several threads
sizes = course.sizes("01_parallel_loading")
LFWDataset_now = course.solved(check.LFWDataset)
time_all = functools.partial(  # the loaders given, in turn, whole passes
    timing.time_in_turn, seconds_per_pass=course.solved(check.seconds_per_pass)
)
folder = lfw.folder(sizes.dataset)
forks = dict(multiprocessing_context="fork")  # classes from a notebook cell exist only in forked workers

# %% [markdown]
# ## Random numbers in many processes
#
# **A worker starts as a copy of the main process, the generators of random numbers included.**
#
# Under Linux a worker was a *fork* until Python 3.13: a copy of the process with everything in its memory. (Since
# Python 3.14 `forkserver` is the default there; macOS and Windows use `spawn`. Both send a pickle of the dataset, and
# with it the state of any generator that the dataset keeps.) This is the classic mistake:
#
# ```python
# class Noisy(Dataset):
#     def __init__(self, images):
#         self.images, self.rng = images, np.random.default_rng(0)
#
#     def __getitem__(self, i):
#         return self.images[i] + self.rng.normal()
# ```
#
# **Predict**: an epoch of 12 items, two workers, each item a number from 0 to 999 drawn from such a generator. How many
# different numbers are among the 12?

# %%
predicted_different = None  # your number

# %% [markdown]
# PyTorch draws a *base seed* whenever it starts workers, from the loader's `generator` if it has one. Worker w seeds
# torch's global random numbers and Python's `random` with base seed + w and, since PyTorch 1.9, `np.random` with a hash
# of the two. Transforms of torchvision draw from torch's numbers and are safe. Generators that *you* keep in the
# dataset stay copies, unless a `worker_init_fn` replaces them: the loader calls it once in each worker as it starts.
#
# ### Exercise 1 · Seed the workers
#
# Write the `worker_init_fn` that gives the dataset of every worker a generator of its own.
#
# **Must**
# - replace `rng` of the worker's dataset by a new `numpy.random.Generator`;
# - let the workers of an epoch draw different numbers, and no epoch repeat another;
# - follow the loader's seed: the same `generator=torch.Generator().manual_seed(s)` gives the same numbers again;
# - in the main process, do nothing and draw nothing.
#
# **Points** 3 · **Core** · **Difficulty** ●●○ · **Minutes** 10 · **Lines** 3
#
# **Source** PyTorch documentation of `torch.utils.data`, "Randomness in multi-process data loading".
#
# <details><summary>Hint 1</summary>
#
# Which number is different in each worker *and* in each epoch *and* the same in a second run? Is the worker's id?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `get_worker_info()` has, besides `id`, the `seed` of this worker in this epoch and the worker's own copy of the
# `dataset`. In the main process it is None.
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
    info = get_worker_info()
    if info is not None:
        info.dataset.rng = np.random.default_rng(info.seed)  # the base seed of these workers + worker_id
    ### END SOLUTION


# %% test="seed_worker-visible" points=1
check.seed_worker(seed_worker)

# %% test="seed_worker-hidden" points=2
### BEGIN HIDDEN TESTS
check.seed_worker(seed_worker, seed=19)
### END HIDDEN TESTS

# %% [markdown]
# A dataset of dice, 2 workers, 2 epochs, batches of 3. What is printed is the same on every machine.


# %% tags=["experiment", "nbval-check-output"]
class Dice(Dataset):
    """Throws of a die with 1,000 faces, from a Generator that was made when the dataset was."""

    def __init__(self):
        self.rng = np.random.default_rng(0)

    def __len__(self):
        return 12

    def __getitem__(self, i):
        return int(self.rng.integers(1000))


seed_worker_now, different = course.solved(check.seed_worker), {}
for label, init in (("nothing done", None), ("seed_worker", seed_worker_now)):
    generator = torch.Generator().manual_seed(0)
    dice = DataLoader(
        Dice(), 3, num_workers=2, multiprocessing_context="fork", worker_init_fn=init, generator=generator
    )
    print(label)
    thrown = [[batch.tolist() for batch in dice] for _ in range(2)]
    for epoch, batches in enumerate(thrown):
        print(f"  epoch {epoch}: " + "  ".join(map(str, batches)))
    different[label] = len({number for batch in thrown[0] for number in batch})
    print(f"  {different[label]} different numbers in epoch 0; epoch 1 repeats it: {thrown[0] == thrown[1]}")

# %% tags=["experiment"]
print(f"nothing done: {different['nothing done']} different numbers of 12" + reveal(predicted_different))

# %% [markdown]
# Worker 0 builds batches 0 and 2, worker 1 the others. With nothing done, both draw the same numbers. When the epoch
# ends, the workers end, and those of the next epoch begin with copies of the same unchanged generator, so the second
# epoch repeats the first. Nothing fails, but the training sees a fraction of the variety. With `seed_worker` all
# numbers are different, and a second run of the cell still gives the same ones.
#
# ## A seed for each image
#
# **An augmentation that depends on (run, epoch, image) alone is the same with any number of workers.**
#
# With seeded workers an image still gets another augmentation when the number of workers changes, because another
# worker draws for it, after other images. The remedy is a seed per image.

# %% [markdown]
# ### Exercise 2 · Hash three numbers
#
# Make one seed of three numbers.
#
# **Must**
# - return a Python int from 0 to 2⁶³ - 1, the same in every process and every run;
# - give different triples different results, but for coincidence;
# - if one of the three numbers grows by one, let each of the 63 bits of the result flip in about half of all cases;
# - leave torch's, numpy's and Python's global random numbers alone, and not use them.
#
# Any function that keeps these laws is right.
#
# **Points** 2 · **Extra** · **Difficulty** ●●○ · **Minutes** 12 · **Lines** 1
#
# **Source** NumPy documentation of `numpy.random.SeedSequence`; Salmon, Moraes, Dror and Shaw 2011, "Parallel random
# numbers: as easy as 1, 2, 3", SC11 (random numbers as a function of a key).
#
# <details><summary>Hint 1</summary>
#
# With `seed + epoch + index`, which image of epoch 1 gets the augmentation that image 5 had in epoch 0?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# You need a good hash of three numbers. Python's `hash` of a string is another in each process. `hashlib` is one way;
# NumPy has one inside of `default_rng`, which takes a sequence of numbers as its seed.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# `np.random.default_rng((seed, epoch, index))` is a new generator for this triple. Its first draw with
# `integers(2**63)` is the seed; make it an `int`.
#
# </details>


# %% solution="sample_seed"
def sample_seed(seed, epoch, index):
    """The seed of one image's augmentation in one epoch, an int with 0 <= s < 2**63.

    Args:
        seed: seed of the run, 0 <= seed < 2**32.
        epoch: number of the epoch, 0 <= epoch < 2**32.
        index: number of the image in the dataset, 0 <= index < 2**32.
    """
    ### BEGIN SOLUTION
    return int(np.random.default_rng((seed, epoch, index)).integers(2**63))
    ### END SOLUTION


# %% test="sample_seed-visible" points=1
check.sample_seed(sample_seed)

# %% test="sample_seed-hidden" points=1
### BEGIN HIDDEN TESTS
check.sample_seed(sample_seed, seed=123)
### END HIDDEN TESTS

# %% [markdown]
# ### Tell persistent workers the epoch
#
# The dataset below keeps the number of the epoch, and the main process sets it before each epoch.
#
# **Predict**: persistent workers, the epoch a plain attribute. Are the augmentations of epochs 0 and 1 equal?

# %%
predicted_repeats = None  # True or False

# %% tags=["experiment"]
heavy = loaders.evenly_spaced(LFWDataset_now(folder, lfw.heavy_transform()), sizes.images)
sample_seed_now = course.solved(check.sample_seed)


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
        with torch.random.fork_rng(devices=()):  # the training process keeps its random numbers
            torch.default_generator.manual_seed(sample_seed_now(0, int(self.epoch), i))
            return self.data[i].mean()


def two_epochs(data, num_workers):
    """The 12 means of epochs 0 and 1, lists, from one loader."""
    batches, epochs = loaders.forked(data, 4, num_workers), []
    for epoch in range(2):
        data.set_epoch(epoch)
        epochs.append(torch.cat(list(batches)).tolist())
    return epochs


means = {n: two_epochs(Augmented(heavy, shared=True), n) for n in (0, 1, 3)}
course.claim("the augmentation of an image does not depend on the number of workers",
             means[0] == means[1] == means[3], f"image 9: {means[0][0][9]:.4f} with 0, 1 and 3 workers")  # fmt: skip
plain_epochs = two_epochs(Augmented(heavy, shared=False), 2)
print(f"epoch as a plain attribute: epoch 1 repeats epoch 0: {plain_epochs[0] == plain_epochs[1]}"
      + reveal(predicted_repeats))  # fmt: skip
course.claim(
    "persistent workers repeat their augmentation if they do not see the epoch", plain_epochs[0] == plain_epochs[1]
)
course.claim(
    "persistent workers do not repeat their augmentation if the epoch is in shared memory", means[3][0] != means[3][1]
)
torch.manual_seed(1)
due = torch.rand(1)
torch.manual_seed(1)
Augmented(heavy, shared=True)[0]
course.claim("an image seeded in the main process leaves the training's random numbers alone", torch.rand(1) == due)

# %% [markdown]
# Persistent workers keep the copy of the dataset that they started with, so they never learn what the main process sets
# later. Shared memory is seen by all processes. `DistributedSampler.set_epoch` needs none: samplers run in the main
# process.
#
# Seeding inside `__getitem__` has a second trap: with 0 workers it seeds the *training* process, and dropout draws the
# same numbers after each image. `torch.random.fork_rng` puts the old state back, and seeding the `default_generator` of
# the CPU leaves those of GPUs alone, which `torch.manual_seed` would seed too.
#
# ## What travels
#
# **The pixels of a batch do not travel: a worker writes them into shared memory, and sends where they are.**

# %%
plots.bytes_path()

# %% [markdown]
# The default collate function of a worker allocates the batch in shared memory and stacks the images straight into it
# (torch/utils/data/_utils/collate.py). The message holds no pixels; for each tensor it names a file descriptor, which
# the main process fetches over a connection of its own. The next cell looks at a batch inside of the worker, after it
# was collated and before it is sent.


# %% tags=["experiment"]
class Same(Dataset):
    """The same item again and again."""

    def __init__(self, item, n):
        self.item, self.n = item, n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        return self.item


def page_faults():
    """How often the system has given this process a page of memory."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def examined(samples):
    """(whether the collated batch lies in shared memory, its bytes, those of the message about it, page faults)."""
    before = page_faults()
    batch = default_collate(samples)
    faults = page_faults() - before
    return batch.is_shared(), batch.nbytes, len(ForkingPickler.dumps(batch)), faults


image = torch.zeros(3, 250, 250, dtype=torch.uint8)
seen = {
    n: list(DataLoader(Same(image, 4 * n), n, num_workers=1, collate_fn=examined, **forks))[-1]  # the fourth batch
    for n in (8, 64)
}
for n, (shared, size, message, faults) in seen.items():
    print(f"batch of {n}: {size / 1e6:.1f} MB, in shared memory: {shared}, message: {message} bytes, {faults} faults")
course.claim("a worker's default collate has written into shared memory before anything is sent",
             all(shared for shared, *_ in seen.values()))  # fmt: skip
course.claim("the message is as short for 64 images as for 8", seen[64][2] < seen[8][2] + 100)
anew = seen[64][3] * resource.getpagesize() / seen[64][1]
course.claim("a worker's fourth batch still lies in fresh memory pages", anew > 0.9,
             f"page faults for {anew:.0%} of its bytes",
             otherwise="Your system hands out larger pages, so there are fewer page faults.")  # fmt: skip

# %% [markdown]
# So what costs is not the message but the memory: fresh shared pages for each batch, which the system clears, the
# worker fills and the main process maps. If that is so, time follows the number of bytes, and floats cost as much as
# the same number of bytes of any other type.
#
# **Predict**: one worker, nothing to compute. How many ms per batch of 64 float images, 48 MB?

# %%
predicted_handover_ms = None  # your number

# %% tags=["experiment"]
n_batches = sizes.handed_over
larger = torch.zeros(3, 500, 500, dtype=torch.uint8)
items = {
    "64 numbers": 0.0,
    "64 images, bytes, 12 MB": image,
    "64 larger images, bytes, 48 MB": larger,
    "64 images, floats, 48 MB": image.float(),
}
ways = {label: loaders.forked(Same(item, 64 * n_batches), 64, 1) for label, item in items.items()}
ways["the same without a worker"] = DataLoader(Same(image.float(), 64 * n_batches), 64)
handover = dict(zip(ways, 1000 * time_all(ways.values(), sizes.rounds) / n_batches, strict=True))
middle = {label: ms.quantile(0.5).item() for label, ms in handover.items()}
print(f"48 MB of floats: {middle['64 images, floats, 48 MB']:.1f} ms per batch" + reveal(predicted_handover_ms))
ratio = middle["64 images, floats, 48 MB"] / middle["64 larger images, bytes, 48 MB"]
otherwise = "Another program used the memory bandwidth or the cores: look at the whiskers of the figure."
course.claim("sending floats takes as long as sending the same number of bytes of another type", 2 / 3 < ratio < 1.5,
             f"{ratio:.2f} times", otherwise=otherwise)  # fmt: skip
ratio = middle["64 images, floats, 48 MB"] / middle["64 images, bytes, 12 MB"]
course.claim(
    "sending images as floats takes more than twice as long as sending them as bytes",
    ratio > 2,
    f"{ratio:.1f} times",
    otherwise=otherwise,
)
plots.bars(handover, "ms per batch", "Collate and hand over, nothing else", "{:.2f}")

# %% [markdown]
# The last bar shows that 48 MB have to be collated without a worker too. The lesson is not "no workers" but "hand over
# bytes": keep uint8 until the batch has arrived, and turn it into floats on the device that computes.
#
# ## Options of a loader
#
# **A loader's options are about processes: how they start, how long they live, how far they run ahead.**
#
# **fork** copies the running process, so a dataset from a notebook cell exists in it. But it copies only the thread
# that forks: a lock that another thread held stays locked in the copy. And a copy cannot use the GPU of its parent. A
# dataset that reads files and returns CPU tensors uses no GPU, so it works in forked workers beside a training on CUDA;
# one that touches CUDA does not. **spawn** starts Python anew and **forkserver** forks a clean helper process: both are
# safe, and both get the dataset as a pickle, which names classes by their module. In a script, put the dataset into a
# module of its own and leave the start method alone; in a notebook, ask for fork by name.

# %% tags=["experiment"]
lock = threading.Lock()


class Locked(Dataset):
    """One item: whether this process gets the lock, which the main process has let go of long before."""

    def __len__(self):
        return 1

    def __getitem__(self, i):
        time.sleep(0.3)
        return lock.acquire(timeout=0.3)


class OnTheGpu(Dataset):
    """One item: what a worker says that uses CUDA."""

    def __len__(self):
        return 1

    def __getitem__(self, i):
        try:
            torch.zeros(1, device="cuda")
        except RuntimeError as error:
            return str(error).splitlines()[0]
        return "it works"


with lock:
    batches = iter(DataLoader(Locked(), num_workers=1, **forks))  # forks here
course.claim("a lock that was held at the fork stays locked in the worker", not next(batches).item())
if course.device().type == "cuda":
    print("a forked worker uses CUDA:", *next(iter(DataLoader(OnTheGpu(), num_workers=1, **forks))))
else:
    print("no GPU here: what a forked worker says about CUDA cannot be shown")

# %% [markdown]
# ### Exercise 3 · Options of the loader
#
# Return the keyword arguments of a `DataLoader` for a number of workers and a device. `python -m course.lfw_dataset`
# uses them.
#
# **Must**
# - set `num_workers`, and `pin_memory`: True for a CUDA device only, whether this machine has one or not;
# - with workers, set `persistent_workers` to True, `prefetch_factor` as given, `multiprocessing_context` to "fork";
# - without workers, leave these three at torch's defaults, False and twice None: torch refuses other values;
# - return no other options. One of the five whose value is torch's default may be left out.
#
# **You may assume** that the dataset returns CPU tensors.
#
# **Points** 2 · **Extra** · **Difficulty** ●○○ · **Minutes** 12 · **Lines** 8
#
# **Source** `torch.utils.data.DataLoader`, PyTorch documentation.
#
# <details><summary>Hint 1</summary>
#
# What does `DataLoader(dataset, num_workers=0, prefetch_factor=2)` say? And which value of `prefetch_factor` stands
# for "not set"?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# The device may be `"cuda"`, `"cuda:1"` or a `torch.device`. `torch.device(device)` takes all of them, and its `.type`
# is the word without the number. No GPU is needed for that.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# `prefetch_factor` and `multiprocessing_context` are not set if they are None, `persistent_workers` if it is False:
# with `workers = num_workers > 0`, say `prefetch_factor if workers else None`.
#
# </details>


# %% solution="loader_options"
def loader_options(num_workers, device, prefetch_factor=2):
    """Keyword arguments of a DataLoader for `num_workers` worker processes and batches that go to `device`.

    Args:
        num_workers: 0 or more; 0 loads in the main process.
        device: torch.device or its name, such as "cpu" or "cuda:1"; it need not be there.
        prefetch_factor: batches that each worker keeps ready, 1 or more.

    Returns: dictionary with the keys "num_workers", "pin_memory", "persistent_workers", "prefetch_factor" and
        "multiprocessing_context"; a key may be missing where torch's default is meant.
    """
    ### BEGIN SOLUTION
    workers = num_workers > 0
    return {
        "num_workers": num_workers,
        "pin_memory": torch.device(device).type == "cuda",
        "persistent_workers": workers,
        "prefetch_factor": prefetch_factor if workers else None,
        "multiprocessing_context": "fork" if workers else None,
    }
    ### END SOLUTION


# %% test="loader_options-visible" points=1
check.loader_options(loader_options)

# %% test="loader_options-hidden" points=1
### BEGIN HIDDEN TESTS
check.loader_options(loader_options, seed=3)
### END HIDDEN TESTS

# %% [markdown]
# ### What starting costs
#
# The time until the first batch of a tiny dataset has arrived from two workers. The helper process of forkserver is
# told to import torch before it forks anything (`set_forkserver_preload`), and is started before the clock.

# %% tags=["experiment"]
served = multiprocessing.get_context("forkserver")
served.set_forkserver_preload(["torch.utils.data"])
tiny = TensorDataset(torch.zeros(8, 1))


def seconds_to_first_batch(context):
    begin = time.perf_counter()
    batches = iter(DataLoader(tiny, 4, num_workers=2, multiprocessing_context=context))
    next(batches)
    return time.perf_counter() - begin


seconds_to_first_batch(served)
contexts = {"fork": "fork", "forkserver, torch preloaded": served, "spawn": "spawn"}
starts = {label: [] for label in contexts}
for _ in range(sizes.starts):
    for label, context in contexts.items():
        starts[label].append(seconds_to_first_batch(context))
fastest = {label: min(seconds) for label, seconds in starts.items()}
course.claim("spawned workers take more than five times as long to start as forked ones",
             fastest["spawn"] > 5 * fastest["fork"],
             f"{fastest['spawn']:.2f} s against {fastest['fork']:.2f} s")  # fmt: skip
course.claim("a forkserver that has imported torch starts workers in less than half the time of spawn",
             fastest["forkserver, torch preloaded"] < fastest["spawn"] / 2,
             f"{fastest['forkserver, torch preloaded']:.2f} s")  # fmt: skip
plots.bars(starts, "seconds to the first batch", "Starting two workers", "{:.2f}")

# %% [markdown]
# With `persistent_workers=True` the start is paid once instead of once per epoch. If so, a training of n epochs pays
# one n-th of it per epoch. The next cell measures epochs of two batches one after the other and draws that prediction
# beside them: the start of forked workers from above over n, plus an epoch of workers that run already.

# %% tags=["experiment"]
short = loaders.evenly_spaced(LFWDataset_now(folder), 2 * sizes.batch_size)
EPOCHS = 5


def mean_ms(persistent):
    """ms per epoch after 1, 2, ... EPOCHS epochs with new workers, a tensor, and those of each epoch alone."""
    loader, seconds = loaders.forked(short, sizes.batch_size, 2, persistent_workers=persistent), []
    for _ in range(EPOCHS):
        begin = time.perf_counter()
        for _ in loader:
            pass
        seconds.append(time.perf_counter() - begin)
    alone = 1000 * torch.tensor(seconds, dtype=torch.float64)
    return alone.cumsum(0) / torch.arange(1, EPOCHS + 1), alone


runs = {"workers started in each epoch": [], "persistent workers": []}
for _ in range(sizes.rounds):
    for label, found in runs.items():
        found.append(mean_ms(persistent="persistent" in label))
means = {label: torch.stack([mean for mean, _ in found]) for label, found in runs.items()}  # (rounds, epochs)
running = torch.stack([alone[1:] for _, alone in runs["persistent workers"]]).quantile(0.5)
expected = running + 1000 * fastest["fork"] / torch.arange(1, EPOCHS + 1)
last = {label: mean[:, -1].quantile(0.5).item() for label, mean in means.items()}
otherwise = "Other programs used the cores in some of these epochs: look at the range in the figure."
course.claim(f"after {EPOCHS} epochs, persistent workers have cost less time per epoch than workers started in each "
             "epoch",
             last["persistent workers"] < last["workers started in each epoch"],
             ", ".join(f"{ms:.0f} ms" for ms in last.values()), otherwise=otherwise)  # fmt: skip
off = abs(last["persistent workers"] / expected[-1].item() - 1)
course.claim(f"one start divided by {EPOCHS} epochs predicts the time of persistent workers within 25 %", off < 0.25,
             f"{off:.0%} apart", otherwise=otherwise)  # fmt: skip
first = {label: mean[:, 0].quantile(0.5).item() for label, mean in means.items()}
course.claim("an epoch that starts and ends its workers takes longer than the first epoch of persistent workers",
             first["workers started in each epoch"] > first["persistent workers"],
             ", ".join(f"{ms:.0f} ms" for ms in first.values()), otherwise=otherwise)  # fmt: skip
plots.amortised(means, expected)

# %% [markdown]
# Look at n = 1 first: both have started workers there, and what lies between them is their end. A loader whose workers
# do not stay waits at the end of each epoch until they have ended. In a training with long epochs nobody notices; with
# a validation after each short epoch, and spawned workers, start and end can be the larger part.
#
# ### How far ahead?
#
# **Predict**: two workers, `prefetch_factor=1`, the loop has taken one batch and waits. How many batches more have been
# built?

# %%
predicted_ahead = None  # your number


# %% tags=["experiment"]
class Counted(Dataset):
    """Items that are counted in shared memory, by worker."""

    def __init__(self):
        self.built = torch.zeros(2, dtype=torch.int64).share_memory_()

    def __len__(self):
        return 100

    def __getitem__(self, i):
        self.built[get_worker_info().id] += 1
        return i


def built_ahead(factor):
    """Batches of one item that two workers build before the second one is asked for."""
    data = Counted()
    batches = iter(loaders.forked(data, 1, 2, prefetch_factor=factor))
    next(batches)
    before, now = -1, 0
    while now > before:  # until nothing is built any more
        time.sleep(0.3)
        before, now = now, int(data.built.sum())
    return now - 1


found = {factor: built_ahead(factor) for factor in (1, 2, 4)}
print(f"two workers, prefetch_factor=1: {found[1]} batches ahead" + reveal(predicted_ahead))
course.claim(
    "the loader builds workers x prefetch_factor batches ahead", found == {f: 2 * f for f in found}, f"{found}"
)

# %% [markdown]
# Each takes memory, and they help where the work is uneven. The dataset below is quick but for every 45th item,
# which takes 40 ms (a file on a slow disk, a long recording); the loop takes 6 ms per batch, as if a GPU were busy.


# %% tags=["experiment"]
class Uneven(Dataset):
    """Items that take 1 ms of waiting, every 45th takes 40 ms."""

    def __len__(self):
        return sizes.uneven

    def __getitem__(self, i):
        time.sleep(0.04 if i % 45 == 44 else 0.001)
        return i


class Busy:
    """The batches of `data`, with `seconds` of computing, here a sleep, after each."""

    def __init__(self, data, seconds=0.006):
        self.data, self.seconds = data, seconds

    def __len__(self):
        return len(self.data)

    def __iter__(self):
        for batch in self.data:
            yield batch
            time.sleep(self.seconds)


ahead = {f"prefetch_factor={f}": Busy(loaders.forked(Uneven(), 5, 2, prefetch_factor=f)) for f in (1, 2, 4)}
ahead_seconds = dict(zip(ahead, time_all(ahead.values(), 2, progress=False), strict=True))
gain = (ahead_seconds["prefetch_factor=1"] / ahead_seconds["prefetch_factor=4"]).quantile(0.5)
course.claim("more batches ahead hide the slow items: prefetch_factor=4 is faster than 1", gain > 1.02,
             f"{gain:.2f} times as fast")  # fmt: skip
plots.bars(ahead_seconds, "seconds per pass", "Uneven work: batches built ahead", "{:.2f}")

# %% [markdown]
# The reason shows in the queue: how many batches the loop could take at once, moment by moment. Each batch brings the
# time at which its last item was made, and the loop notes when it takes it. A batch that is finished before an earlier
# one cannot be taken yet, since batches come in order: it counts from the moment at which the earlier one is finished.


# %% tags=["experiment"]
class Stamped(Uneven):
    """The moments at which the items of Uneven are made."""

    def __getitem__(self, i):
        super().__getitem__(i)
        return time.perf_counter()


def queue_depth(factor):
    """(moments in s, batches that the loop could take at once from each of them on), two lists."""
    loader, begin, changes, ready = loaders.forked(Stamped(), 5, 2, prefetch_factor=factor), time.perf_counter(), [], 0
    for batch in Busy(loader):
        ready = max(ready, batch.max().item() - begin)  # finished, and all batches before it, too
        changes += [(ready, 1), (time.perf_counter() - begin, -1)]
    depth, depths = 0, []
    for _, change in sorted(changes):
        depth += change
        depths.append(depth)
    return [moment for moment, _ in sorted(changes)], depths


def empty_share(moments, depths):
    """Share of the time in which nothing is ready."""
    gaps = [b - a for a, b in itertools.pairwise(moments)]
    return sum(gap for gap, depth in zip(gaps, depths[:-1], strict=True) if not depth) / sum(gaps)


queues = {factor: queue_depth(factor) for factor in (1, 4)}
empty = {factor: empty_share(*queue) for factor, queue in queues.items()}
course.claim("the queue is empty for a smaller share of the time with prefetch_factor=4 than with 1",
             empty[4] < empty[1], f"{empty[4]:.0%} against {empty[1]:.0%}",
             otherwise="Your machine was so busy that a sleep of 1 ms took far longer.")  # fmt: skip
plots.queue({f"prefetch_factor={factor}": queue for factor, queue in queues.items()})

# %% [markdown]
# Wherever the line is at 0, the loop waits or computes on the last batch that was ready. A slow item empties a short
# queue; a long one lasts until the item is done, and is filled again while the loop computes.
#
# As many as bridge the longest gap are enough; more is only memory: workers x prefetch_factor x bytes of a batch.
#
# ## What runs out
#
# **Workers use shared memory, file descriptors and copied pages, and each of the three can run out.**
#
# *Shared memory.* Batches lie in `/dev/shm`. A Docker container has 64 MB of it unless it is started with `--shm-size`
# or `--ipc=host`. A worker that finds it full raises "unable to allocate shared memory"; older versions of PyTorch died
# with "Bus error". *Descriptors.* Each tensor that came from a worker holds one as long as it lives. If you keep many
# batches, for instance the targets of an epoch in a list, you reach `ulimit -n`, often 1,024: "Too many open files".
# Keep a `clone()`, or call `torch.multiprocessing.set_sharing_strategy("file_system")`.
#
# *Copied pages.* A forked worker shares the memory of its parent until one of them writes to a page. Reading a Python
# object writes: its reference count. So a list of a million paths is copied into each worker, page by page.

# %% tags=["experiment"]
needed = (2 * 2 + 1) * 48e6
shared_memory = Path("/dev") / "shm"
if shared_memory.exists():
    room = shutil.disk_usage(shared_memory).free
    print(f"shared memory: {room / 1e6:,.0f} MB free; 2 workers x 2 batches of 48 MB, and the one in use: "
          f"{needed / 1e6:.0f} MB")  # fmt: skip


def descriptors_kept(keep, n=16):
    """How many descriptors this process closes when it lets go of n batches that it kept as `keep` makes them."""
    kept = [keep(batch) for (batch,) in DataLoader(TensorDataset(torch.zeros(4 * n, 1)), 4, num_workers=2, **forks)]
    held = len(os.listdir("/dev/fd"))
    kept.clear()
    return held - len(os.listdir("/dev/fd"))


as_they_are, cloned = descriptors_kept(lambda batch: batch), descriptors_kept(torch.Tensor.clone)
course.claim("each batch that is kept holds a file descriptor", as_they_are >= 16, f"{as_they_are} for 16 batches")
course.claim("a clone of a batch holds no file descriptor", cloned < 4, f"{cloned} for 16 batches")


class Names(Dataset):
    """One item: the MB of memory that a worker stops sharing when it reads all `names` once."""

    def __init__(self, names):
        self.names = names

    def __len__(self):
        return 1

    def __getitem__(self, i):
        before = usage.unshared_bytes()
        for name in self.names:
            len(name)
        return (usage.unshared_bytes() - before) / 1e6


names = [f"faces/Person_{i:07d}/Person_{i:07d}_0001.jpg" for i in range(sizes.names)]
print(f"np.array of Path objects: dtype {np.array([Path('a'), Path('b')]).dtype}; of str: {np.array(names[:2]).dtype}")
stores = {"list": names, "array of objects": np.array(names, dtype=object), "fixed-width array": np.array(names)}
copied = {label: next(iter(DataLoader(Names(s), num_workers=1, **forks))).item() for label, s in stores.items()}
for label, megabytes in copied.items():
    print(f"{len(names):,} names, {label:<18} {megabytes:6.1f} MB copied by a worker that reads them")
course.claim(
    "forked workers copy an array of objects as they copy a list", copied["array of objects"] > copied["list"] / 2
)
course.claim("forked workers do not copy a fixed-width array", copied["fixed-width array"] < copied["list"] / 10)

# %% [markdown]
# A numpy array of `Path` objects has dtype object, and every path in it a reference count: it helps no more than the
# list. Text of fixed width, `np.array([str(path) for path in paths])`, has none. For the 13,233 paths of LFW the list
# of exercise 1 in part 1 is fine; for ten million it is not.
#
# ## A stream in several workers
#
# **An `IterableDataset` has no indices, so the loader cannot divide it among the workers.**
#
# **Predict**: a stream of 8 numbers, two workers. How many numbers arrive?

# %%
predicted_arrive = None  # your number


# %% tags=["experiment"]
class Stream(IterableDataset):
    """The numbers 0 to n - 1; with `sharded`, each worker gives every num_workers-th one."""

    def __init__(self, n, sharded):
        self.n, self.sharded = n, sharded

    def __iter__(self):
        info = get_worker_info()
        first, step = (info.id, info.num_workers) if info and self.sharded else (0, 1)
        return iter(range(first, self.n, step))


arrived = {s: [int(i) for b in DataLoader(Stream(8, s), 2, num_workers=2, **forks) for i in b] for s in (False, True)}
print(f"as it is: {arrived[False]}, {len(arrived[False])} numbers" + reveal(predicted_arrive))
print(f"sharded:  {arrived[True]}")
course.claim("each worker yields the whole stream unless the dataset divides it", len(arrived[False]) == 16)
course.claim("with the stream sharded by worker, each number arrives once", sorted(arrived[True]) == list(range(8)))

# %% [markdown]
# Each worker runs the whole stream, unless the stream asks which worker it is in and gives a part of itself.
# With several ranks it is divided by rank too: `first = rank * num_workers + info.id`, in steps of
# `world_size * num_workers`. With files rather than numbers, divide the files.
#
# ## What to take with you
#
# 1. Seed what a fork has copied, and put into shared memory what persistent workers must learn.
# 2. A message takes about a millisecond, and each megabyte nearly another: hand over uint8.
# 3. workers x prefetch_factor batches are built ahead: limit them, and what you keep of them.
#
# Part 4 asks how many workers to take, part 5 how to feed a GPU.
