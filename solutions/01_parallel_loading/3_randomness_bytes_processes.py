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
# - say how often the bytes of a batch are copied on their way, and write a collate function that copies them once;
# - choose start method, persistent workers and prefetching for a task.
#
# **Minutes** 20 core · 100 in all
#
# **Needs** parts 1 and 2: `LFWDataset`, `heavy_transform`, `seconds_per_pass` and `sweep` are taken over if you
# solved them

# %% locked="setup"
import functools
import time
import warnings

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset, get_worker_info

import course
from course import loaders, timing, usage
from course.checks import parallel_loading as check
from course.datasets import lfw
from course.plots import parallel_loading as plots
from course.predictions import reveal

warnings.filterwarnings("ignore", "This DataLoader will create")  # more workers than cores: we try that on purpose
print(course.machine())

# %% tags=["experiment"]
torch.set_num_threads(1)  # as in a worker: one image is too little work for several threads
sizes = course.sizes("01_parallel_loading")
LFWDataset_now = course.solved(check.LFWDataset)
heavy_transform_now = course.solved(check.heavy_transform)
time_all = functools.partial(  # the loaders given, in turn, whole passes
    timing.time_in_turn, seconds_per_pass=course.solved(check.seconds_per_pass), sweep=course.solved(check.sweep)
)
folder = lfw.folder(sizes.dataset)

# %% [markdown]
# ## Random numbers in many processes
#
# **A worker starts as a copy of the main process, and a copied generator draws the same numbers as the original.**
#
# Augmentation draws random numbers, and now several processes draw. Under Linux a worker usually begins as a *fork*:
# an exact copy of the process with everything in its memory, every random number generator in its present state
# included. (From Python 3.14 on `forkserver` is the default there; macOS and Windows use `spawn`. Both send a pickle of
# the dataset instead, and with it the state of any generator that the dataset keeps.) This is the classic:
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
# In one process it works. With four workers there are four copies of `self.rng` in one state: the first image of each
# worker gets the same noise, so does the second, and so on. When the epoch ends the workers end with all that they
# drew. The main process has drawn nothing, and the workers of the next epoch are copies of it again: every epoch
# repeats the noise of the first. Nothing fails; the training merely sees a fraction of the variety that it was
# promised.
#
# What does PyTorch do about it? Each time the loader starts workers it draws a *base seed*, from its `generator` if
# it has one: in each epoch, or once if the workers are persistent, who then go on drawing. Worker w seeds three
# things with base seed + w, or what is made from both: torch's global random numbers, those of Python's `random`,
# and since PyTorch 1.9 those of `np.random` (before, all workers drew the same there, and code full of advice
# against that is still about). Transforms of torchvision draw from torch's global numbers: they are safe.
# Generators that *you* make and keep in the dataset are not known to the loader, and stay copies. The remedy is a
# function that the loader calls once in each worker as it starts, `worker_init_fn`.
#
# One thing is left. With seeded workers an image still gets another augmentation as soon as the number of workers
# changes, because another worker draws for it, after other images. A run that must not depend on that needs a seed
# for each image, made from what identifies it: the seed of the run, the epoch, the index.

# %% [markdown]
# ### Exercise 1 · Seed the workers
#
# Write the `worker_init_fn` that gives the dataset of every worker a generator of its own.
#
# **Points** 3 · **Core** · **Difficulty** ●●○ · **Minutes** 15 · **Lines** 3
#
# **Convention** The dataset keeps its `numpy.random.Generator` as the attribute `rng`. The function replaces it by a
# new one, so that the workers of an epoch draw different numbers, no epoch repeats another, and a loader with
# `generator=torch.Generator().manual_seed(s)` gives the same numbers for the same s and others for another. In the
# main process, where there is no worker to seed, it does nothing and draws nothing. It returns nothing.
#
# **Source** PyTorch documentation of `torch.utils.data`, "Randomness in multi-process data loading" (the seed of a
# worker); NumPy documentation of `numpy.random.default_rng`.
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
    """None: the `rng` of this worker's dataset is replaced by a Generator that follows from the worker's seed.

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
# What the next cell prints is the same on every machine: a dataset of dice, 2 workers, 2 epochs, batches of 3.


# %% tags=["experiment", "nbval-check-output"]
class Dice(Dataset):
    """Eight throws of a die with 1,000 faces, from a Generator that was made when the dataset was."""

    def __init__(self):
        self.rng = np.random.default_rng(0)

    def __len__(self):
        return 12

    def __getitem__(self, i):
        return int(self.rng.integers(1000))


seed_worker_now = course.solved(check.seed_worker)
for label, init in (("nothing done", None), ("seed_worker", seed_worker_now)):
    generator = torch.Generator().manual_seed(0)
    dice = DataLoader(
        Dice(), 3, num_workers=2, multiprocessing_context="fork", worker_init_fn=init, generator=generator
    )
    print(label)
    for epoch in range(2):
        print(f"  epoch {epoch}: " + "  ".join(str(batch.tolist()) for batch in dice))

# %% [markdown]
# Compare the batches of the two workers (worker 0 builds batches 0 and 2, worker 1 the others): with nothing done,
# both throw the same dice, and the second epoch throws those of the first again. A network would see each "random"
# variant several times, and no loss curve would show it. With `seed_worker` all are different, and a second run of
# the whole cell still gives the same numbers.

# %% [markdown]
# ### Exercise 2 · A seed for each image
#
# Make one seed of three numbers, so that the augmentation of an image depends neither on the number of workers nor on
# who builds its batch.
#
# **Points** 2 · **Extra** · **Difficulty** ●●○ · **Minutes** 15 · **Lines** 1
#
# **Convention** `seed`, `epoch` and `index` are whole numbers from 0 to 2³² - 1. The result is a Python int from 0 to
# 2⁶³ - 1, the same in every process, on every machine and in every run. Different triples give different results,
# but for coincidence: all 63 bits are used, and from a triple to its neighbour (one of the three numbers grows by one)
# each bit changes in about half of all cases. torch's, numpy's and Python's global random numbers are neither used nor
# changed. Any function that keeps these laws is right.
#
# **Source** NumPy documentation of `numpy.random.SeedSequence` and "Parallel random number generation"; Salmon, Moraes,
# Dror and Shaw 2011, "Parallel random numbers: as easy as 1, 2, 3", SC11 (random numbers as a function of a key).
#
# <details><summary>Hint 1</summary>
#
# With `seed + epoch + index`, which image of epoch 1 gets the augmentation that image 5 had in epoch 0?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# What you need is a good hash of three numbers. Python's `hash` of a string is another in each process. `hashlib` is
# one way; NumPy has one inside of `default_rng`, which takes a sequence of numbers as its seed.
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
# The same image, augmented by the main process, by one worker, and by one of three. Twice the torch seed is the same at
# the start; only in the second line each image has its own seed besides.

# %% tags=["experiment"]
heavy = loaders.evenly_spaced(LFWDataset_now(folder, heavy_transform_now()), sizes.images)
sample_seed_now = course.solved(check.sample_seed)


class Augmented(Dataset):
    """The first images of `data`; with `seeded`, the augmentation of each depends on its index alone."""

    def __init__(self, data, seeded):
        self.data, self.seeded = data, seeded

    def __len__(self):
        return 12

    def __getitem__(self, i):
        if self.seeded:
            torch.manual_seed(sample_seed_now(0, 0, i))
        return self.data[i].mean()


for seeded in (False, True):
    means = []
    for num_workers in (0, 1, 3):
        torch.manual_seed(0)
        fork = dict(multiprocessing_context="fork") if num_workers else {}
        batches = DataLoader(Augmented(heavy, seeded), 4, num_workers=num_workers, **fork)
        means.append(f"{torch.cat(list(batches))[9]:.6f}")
    print("seed for each image:" if seeded else "torch's own seeds:  ", "mean of image 9:", *means)

# %% [markdown]
# ## What happens to a batch on its way
#
# **Between the file and the GPU a picture is copied several times, and most of these copies can be saved: keep pixels
# as bytes, and write them where they are needed next.**
#
# Follow the pictures of one batch. The decoder turns a JPEG file into pixels, one byte for each of the three colours.
# If these become floats in [0, 1], they take four times as much memory from here on. The batch is put together: every
# picture is copied into one large tensor. If a worker process did this, the batch must get to the main process:
# worker and main process do not see each other's memory, so that torch copies the batch into *shared memory*, which
# both see, and sends a handle to it. For a GPU it may be copied once more, into pinned memory (part 5), and then
# over the bus.
#
# Each of these copies of 64 pictures of 250×250 takes 64 · 3 · 250 · 250 = 12 MB as bytes and 48 MB as floats. Two
# habits avoid most of it. Pixels stay bytes until they are on the device that computes; the conversion to floats
# becomes the first step of the computation. And a worker puts its batch together *in* shared memory, so that
# handing it over copies nothing: sending a tensor that is in shared memory already sends the handle alone.
#
# The rest is a question of how the `DataLoader` is set up: who starts the workers, how long they live, and how many
# batches wait ready. A worker that is started by *fork* is a copy of the running process and knows all that the
# notebook has defined. A worker that is started by *spawn* or *forkserver* begins with an empty Python and gets the
# `Dataset` sent as bytes, by pickle. Pickle writes down a class by the name of its module, so that a class from a
# notebook cell cannot be found on the other side. The default is spawn on macOS, and on Linux forkserver since Python
# 3.14; so this notebook asks for fork by name. Forked workers must leave CUDA alone: a copied process cannot use the
# GPU of its parent.

# %% [markdown]
# ### Exercise 3 · A batch of bytes
#
# Write the `collate_fn` of a `DataLoader` that copies each pixel once, as a byte: from its image into the batch. In a
# worker process the batch lies in shared memory from the start.
#
# **Points** 3 · **Extra** · **Difficulty** ●●○ · **Minutes** 40 · **Lines** 5
#
# **Convention** All images of a list have one shape; they may be views with any strides, as `permute` makes them of
# an image (H, W, 3). A process is a worker where `get_worker_info()` is not None; elsewhere the batch lies in ordinary
# memory. No pixel becomes a float on the way and the memory of the batch is written once. Counted are the bytes that
# torch operations write; asking for memory without writing to it costs nothing. `share_memory_()` moves a tensor by
# copying all its memory, whether anything has been written to it or not. The labels are few and may lie anywhere.
#
# **Source** `torch.utils.data.default_collate`, PyTorch, file torch/utils/data/_utils/collate.py, which does the same
# for tensors of any type: read how it gets at its shared memory, then write it your own way.
#
# <details><summary>Hint 1</summary>
#
# `torch.stack(images)` asks for memory itself and fills it. When could you still decide where this memory lies?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `torch.stack(images, out=batch)` writes into a tensor that you made before; `out=None` is the same as without.
# `torch.UntypedStorage._new_shared(n_bytes)` is shared memory that nothing was written to. (The underscore says that
# torch may change it; torch's own loader rests on it.)
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# In a worker: `storage` of as many bytes as the images have values together; then
# `torch.tensor([], dtype=torch.uint8).set_(storage)` is a tensor on this memory, one byte per value, and
# `.view(len(images), *images[0].shape)` gives it the shape of the batch. Elsewhere leave `batch` None.
#
# </details>


# %% solution="collate_bytes"
def collate_bytes(samples):
    """The batch of `samples`: images and labels, each pixel copied once, in shared memory if this process is a worker.

    Args:
        samples: list of n pairs (image, label), n at least 1: uint8 tensors (3, H, W) of one shape and any strides,
            not changed, and Python ints.

    Returns: (images, labels): uint8 tensor (n, 3, H, W) and int64 tensor (n,). In a worker process `images` is in
        shared memory and was written there straight away.
    """
    ### BEGIN SOLUTION
    images = [image for image, _ in samples]
    batch = None
    if get_worker_info() is not None:
        storage = torch.UntypedStorage._new_shared(sum(image.numel() for image in images))  # share_memory_ would copy
        batch = torch.tensor([], dtype=torch.uint8).set_(storage).view(len(images), *images[0].shape)
    return torch.stack(images, out=batch), torch.tensor([label for _, label in samples])
    ### END SOLUTION


# %% test="collate_bytes-visible" points=1
check.collate_bytes(collate_bytes)

# %% test="collate_bytes-hidden" points=2
### BEGIN HIDDEN TESTS
check.collate_bytes(collate_bytes, seed=250)
### END HIDDEN TESTS

# %% [markdown]
# ### What handing over costs
#
# A dataset that has everything in memory already, one worker, and batches of three sizes: nothing is computed, so
# what remains is the way from one process to the other. How long does a batch of 64 float images take, 48 MB?

# %%
predicted_handover_ms = None  # your number, in milliseconds per batch


# %% tags=["experiment"]
class InMemory(Dataset):
    """The same item again and again."""

    def __init__(self, item, n):
        self.item, self.n = item, n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        return self.item


collate_bytes_now = course.solved(check.collate_bytes)
n_batches = 12
pixels = torch.zeros(3, 250, 250, dtype=torch.uint8)
one = dict(batch_size=64, num_workers=1, multiprocessing_context="fork", persistent_workers=True)
ways = {
    "64 numbers": DataLoader(InMemory(0.0, 64 * n_batches), **one),
    "64 images, bytes, 12 MB": DataLoader(InMemory((pixels, 0), 64 * n_batches), collate_fn=collate_bytes_now, **one),
    "64 images, floats, 48 MB": DataLoader(InMemory((pixels.float(), 0), 64 * n_batches), **one),
    "the same without a worker": DataLoader(InMemory((pixels.float(), 0), 64 * n_batches), 64),
}
handover = dict(zip(ways, 1000 * time_all(ways.values(), sizes.rounds) / n_batches, strict=True))
print(f"48 MB: {handover['64 images, floats, 48 MB'].median():.1f} ms per batch" + reveal(predicted_handover_ms))
plots.bars(handover, "ms per batch", "Collate and hand over, nothing else", "{:.2f}")

# %% [markdown]
# A message with 64 numbers costs a fraction of a millisecond: that is what the two messages cost, there
# and back. The bytes are what is expensive. The same images as floats take about four times as long as bytes, because
# every byte is written once more into fresh shared memory. And the last bar shows that even without a worker 48 MB
# have to be collated. The lesson is not "no workers" but "hand over bytes": keep uint8 until the batch
# has arrived, and turn it into floats there, on the GPU if there is one.

# %% [markdown]
# ### Exercise 4 · Options of the loader
#
# Return the keyword arguments of a `DataLoader` that are right for a number of workers and a device. Part 5
# uses them where there is a GPU, and `python -m course.lfw_dataset` always does: `DataLoader(faces, batch_size=64,
# **loader_options(2, "cuda"))`.
#
# **Points** 2 · **Extra** · **Difficulty** ●○○ · **Minutes** 12 · **Lines** 8
#
# **Convention** Five options, no others: `num_workers`; `pin_memory`, on for a CUDA device and off for every other
# one; where there are workers, `persistent_workers` (they outlive the epoch), `prefetch_factor` as given and
# `multiprocessing_context` "fork", by name. Without workers the last three must not be set: torch refuses them. An
# option may be left out where torch's default says the same. What counts is the device that is asked for, not whether
# this machine has one. `prefetch_factor` batches for each worker are asked for in advance.
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
# ### What starting costs, and what stays
#
# Three ways to make a process: **fork** copies the running process, memory and all, and is ready at once; but a
# copy of a process with threads or with an open GPU is a copy of half of it. **forkserver** asks a clean helper
# process to fork. **spawn** starts Python anew. The last two must import torch and unpickle the dataset. Below, the
# time until the first batch of a tiny dataset has arrived from two workers.

# %% tags=["experiment"]
tiny = TensorDataset(torch.zeros(8, 1))


def seconds_to_first_batch(method):
    begin = time.perf_counter()
    batches = iter(DataLoader(tiny, 4, num_workers=2, multiprocessing_context=method))
    next(batches)
    return time.perf_counter() - begin


starts = {method: [seconds_to_first_batch(method) for _ in range(sizes.starts)] for method in ("fork", "forkserver")}
plots.bars(starts, "seconds to the first batch", "Starting two workers", "{:.2f}")

# %% tags=["experiment"]
short = loaders.evenly_spaced(LFWDataset_now(folder), max(4, sizes.images // 4))
kept = {
    "workers started in each epoch": loaders.forked(short, sizes.batch_size, 2, persistent_workers=False),
    "persistent workers": loaders.forked(short, sizes.batch_size, 2),
}
kept_seconds = dict(zip(kept, 1000 * time_all(kept.values(), sizes.rounds), strict=True))
plots.bars(kept_seconds, f"ms per epoch of {len(short)} images", "Short epochs")

# %% [markdown]
# A fork is there within hundredths of a second. A forkserver pays for importing torch in each new worker; with
# `spawn` it would be the same and more. Both are safe where fork is not, with threads and with CUDA already in use,
# and Python 3.14 made forkserver its default on Linux. With `persistent_workers=True` it is paid once instead of once
# per epoch. In a training with long epochs nobody notices; in one with a validation after each short epoch it can be
# the larger part.
#
# `prefetch_factor` is how many batches each worker may build ahead: with 2 workers and a factor of 2, four batches
# are under way, and each takes memory. It costs nothing else and pays where the work is uneven. The dataset below
# is quick but for every 45th item, which takes 40 ms (a file on a slow disk, a long recording); the loop takes 6
# ms per batch, as if a GPU were busy.


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


ahead = {f"prefetch_factor={f}": Busy(loaders.forked(Uneven(), 5, 2, prefetch_factor=f)) for f in (1, 2, 4, 8)}
ahead_seconds = dict(zip(ahead, time_all(ahead.values(), 2), strict=True))
plots.bars(ahead_seconds, "seconds per pass", "Uneven work: batches built ahead", "{:.2f}")

# %% [markdown]
# With one batch ahead a slow item stops the loop each time. With more, there is a store that bridges the gap. More
# than the gap is useless, and each batch ahead is memory: workers x prefetch_factor x bytes of a batch.

# %% [markdown]
# ### Memory over epochs
#
# The last experiment draws how much memory all processes together use beyond what the notebook held before.


# %% tags=["experiment"]
def memory_over_epochs(make, epochs=6):
    """(batches drawn, bytes that all processes use more than before), four times per epoch."""
    before, batches = usage.memory_bytes(), make()
    drawn, used = [], []
    for epoch in range(epochs):
        for k, _ in enumerate(batches, 1):
            if k % (len(batches) // 4) == 0:
                drawn.append(epoch * len(batches) + k)
                used.append(usage.memory_bytes() - before)
    return drawn, used


del ways, kept, ahead  # their workers end, their memory is given back
plain = loaders.evenly_spaced(LFWDataset_now(folder), sizes.images)
memory_curves = {}
for label, make in {
    "0 workers": lambda: loaders.forked(plain, sizes.batch_size, 0),
    "2 workers, prefetch_factor=2": lambda: loaders.forked(plain, sizes.batch_size, 2),
    "2 workers, prefetch_factor=8": lambda: loaders.forked(plain, sizes.batch_size, 2, prefetch_factor=8),
}.items():
    memory_curves[label] = memory_over_epochs(make)
    _, used = memory_curves[label]
    half = len(used) // 2
    first, second = max(used[:half]) / 1e6, max(used[half:]) / 1e6
    print(f"{label:<28} most in the first half {first:5.0f} MB, in the second {second:5.0f} MB")
plots.memory(memory_curves)

# %% [markdown]
# 0 means that the loader uses pages which the process had kept. The curves must not rise from epoch to epoch; those
# of the workers go up and down with the number of batches that are under way at that moment. A curve that rises
# epoch after epoch is the sign of something that is kept: a list of batches, a computation graph, or, in workers, a
# large Python list in the dataset, whose pages are copied one by one as soon as a worker touches a reference count.
# For the last reason keep a list of a million paths in a numpy array.

# %% [markdown]
# ## What to take with you
#
# Seed what a fork has copied. Hand over bytes, not floats. Limit what is built ahead.
#
# Part 4 asks how many workers to take, part 5 how to feed a GPU.
