# %% [markdown]
# # Parallel loading, part 1: Look inside the DataLoader
#
# **Who builds which batch, and in which process?**
#
# Labeled Faces in the Wild (LFW) is a folder of 13,233 JPEG files. Imagine that its images do not fit into memory. You
# write the dataset that reads them one by one and the loader that makes batches of them. Then you write down what a
# `DataLoader` with several worker processes will do, and ask the workers whether it is so. Published explanations get
# some of it wrong.
#
# **You will be able to**
#
# - write a map-style dataset that names broken files, closes what it opens and works in every kind of worker;
# - set up a `DataLoader` for training;
# - say which worker builds which batch, and when it arrives;
# - find out by a small experiment in which process a piece of code runs.
#
# **Minutes** 55 core · 75 in all
#
# **Needs** nothing

# %% [markdown]
# ### How it works
#
# Write down what you expect (a cell with `None`), solve the exercise, run its check, then look at the measurement. A
# check names the first thing that is not right. Later cells use your answer, as `x_now`, if its check passed; else
# they fall back on the reference solution, if your copy of the course includes it. Leave the empty cell after each
# check alone: your instructor's tests go there. Run the cells from the top.
#
# **Windows and macOS.** Loaders in these notebooks ask for workers that are *forked*, because only those know the
# classes of a notebook cell. Windows cannot fork: use WSL, a container, or a hosted notebook. macOS can, but its own
# libraries are not always safe after a fork: if a cell hangs, restart the kernel and set `num_workers=0` there. In a
# script, put the dataset into a module and the training under `if __name__ == "__main__":`, then every start method
# works on every system. What is read from `/proc` or `/dev/shm` exists on Linux only.

# %% locked="setup"
import os
import time
import warnings

import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset, default_collate, get_worker_info
from torchvision import transforms

import course
from course.checks import parallel_loading as check
from course.datasets import lfw
from course.device import physical_cores
from course.learner.predictions import reveal
from course.loading import loaders
from course.plots import parallel_loading as plots

warnings.filterwarnings("ignore", "This DataLoader will create")  # more workers than cores: we try that on purpose
print(course.machine())

# %% [markdown]
# ## What runs at once
#
# **The slowest part of a pipeline sets the speed of the whole; it should be the part that trains.**
#
# If loading is slower than the forward and backward pass, an accelerator that is paid by the hour waits, and a faster
# one only waits longer. Loading runs on the processor, so first look at what that can do at once.
#
# A processor has several *cores*, and a core may run two *hardware threads*, which share its arithmetic units and its
# first caches. What the system calls a CPU, and `os.cpu_count()` counts, is such a thread, a *logical core*: some pages
# double this number for hyper-threading, which it includes already. A process may not be allowed to use all of them: a
# scheduler may have bound it to a few, a container may have a quota. `loaders.cores()` respects both.

# %% tags=["experiment"]
print(f"logical cores of this machine: {os.cpu_count()}, usable by this process: {loaders.cores()}")
plots.cpu(loaders.cores(), physical_cores())

# %% [markdown]
# Processes do not share variables: each has its own memory and its own Python interpreter. Threads of one process share
# everything, in most builds of Python a global lock too: only one of them runs Python code at a time. C code may let
# the lock go while it computes, as decoders and numpy do; part 6 builds a loader on that.

# %% [markdown]
# ## From files to tensors
#
# **A dataset is a list of files and a way to read one of them; an image is read when it is asked for.**
#
# LFW holds 13,233 photographs of 5,749 people, JPEG files of 250 × 250 pixels: `<Person>/<Person>_0001.jpg`. All of
# them decoded to float32 would be ten gigabytes; the files are less than two hundred megabytes. So a `Dataset` keeps
# paths, and `dataset[i]` opens file i, decodes it and hands it to the transform. (A dataset with `dataset[i]` is called
# *map-style*; part 3 has the other kind.) That is the work which workers can share, because no image needs another.
#
# **Predict**: a list of 20 images, each from `Image.open`; and 20 images, each from `Image.open(...).convert("RGB")`.
# How many files are open afterwards?

# %%
predicted_open_unread, predicted_open_converted = None, None  # your numbers

# %% [markdown]
# ### Exercise 1 · A dataset of faces
#
# Write a dataset whose items are read when they are asked for.
#
# **Must**
# - keep `self.paths = loaders.image_paths(folder)` and `self.transform`; without one, use `transforms.ToTensor()`;
# - return what the transform makes of a PIL image in mode RGB, whatever the file's mode;
# - leave no file open after `dataset[i]`, also after an error;
# - take an int as a list does: -1 is the last item, one outside raises IndexError;
# - be picklable: no lambda.
#
# **Raises** OSError, with the path, for a file that cannot be opened or decoded; errors of the transform stay as they
# are.
#
# **Points** 4 · **Core** · **Difficulty** ●●○ · **Minutes** 20 · **Lines** 9
#
# **Source** Huang, Ramesh, Berg and Learned-Miller 2007, "Labeled Faces in the Wild", report 07-49; Pillow's
# documentation, "File handling in Pillow".
#
# <details><summary>Hint 1</summary>
#
# When does PIL read the pixels: at `Image.open`, at `convert`, or in the transform? And which of these may come after
# the file was closed?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `with Image.open(path) as file:` closes the file, also after an error. A transform written as `lambda` cannot be
# pickled, an object of torchvision can.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# In `__getitem__`: inside `try` and `with Image.open(path) as file`, take `image = file.convert("RGB")`, which decodes
# the pixels and copies them. `except OSError as error: raise OSError(f"{path} ...: {error}") from error`. Apply the
# transform after the `with`, where only `image` is needed.
#
# </details>


# %% solution="LFWDataset"
class LFWDataset(Dataset):
    """The images below a folder, one folder per person, each read when it is asked for.

    Args:
        folder: str or Path of the folder that holds `<Person>/<name>.jpg`.
        transform: what is done to every image, a callable on PIL images in mode RGB; None stands for
            `transforms.ToTensor()`, which gives a float32 tensor (3, H, W) of values from 0 to 1.

    `paths` is the sorted list of the Paths of all images, `transform` the transform.

    Raises: FileNotFoundError, by `loaders.image_paths`, if there is no such image.
    """

    def __init__(self, folder, transform=None):
        ### BEGIN SOLUTION
        self.paths = loaders.image_paths(folder)
        self.transform = transforms.ToTensor() if transform is None else transform
        ### END SOLUTION

    def __len__(self):
        """The number of images."""
        return len(self.paths)

    def __getitem__(self, i):
        """Image i after the transform.  Raises: IndexError as a list does, OSError with the path if it is broken."""
        ### BEGIN SOLUTION
        path = self.paths[i]
        try:
            with Image.open(path) as file:
                image = file.convert("RGB")  # decodes: from here on the file is not needed
        except OSError as error:
            raise OSError(f"{path} cannot be decoded: {error}") from error
        return self.transform(image)
        ### END SOLUTION

    def name(self, i):
        """The name of the person on image i, that of the folder with spaces for underscores, a str."""
        return self.paths[i].parent.name.replace("_", " ")


# %% test="LFWDataset-visible" points=2
check.LFWDataset(LFWDataset)

# %% test="LFWDataset-hidden" points=2
### BEGIN HIDDEN TESTS
check.LFWDataset(LFWDataset, seed=749)
### END HIDDEN TESTS

# %% tags=["experiment"]
torch.set_num_threads(1)  # as in a worker: one image is too little work for several threads
sizes = course.sizes("01_parallel_loading")
LFWDataset_now = course.solved(check.LFWDataset)
folder = lfw.folder(sizes.dataset)
plain = loaders.evenly_spaced(LFWDataset_now(folder), sizes.images)


def open_files():
    """How many descriptors this process has open."""
    return len(os.listdir("/dev/fd"))


def opened_by(read):
    """How many descriptors stay open while 20 images are kept that `read(path)` gives."""
    before = open_files()
    kept = [read(path) for path in plain.paths[:20]]
    return (open_files() - before) * 20 // len(kept)


unread = opened_by(Image.open)
converted = opened_by(lambda path: Image.open(path).convert("RGB"))
yours = opened_by(lambda path: plain[plain.paths.index(path)])
print(f"opened and not read: {unread}" + reveal(predicted_open_unread))
print(f"opened and converted: {converted}" + reveal(predicted_open_converted))
course.claim("an image that is kept and never read holds its file open", unread == 20, f"{unread} of 20")
course.claim("an image whose pixels were loaded holds no file open", converted == 0, f"{converted} of 20")
course.claim("LFWDataset holds no file open", yours == 0, f"{yours} of 20")

# %% [markdown]
# PIL reads lazily: `Image.open` reads only the header and keeps the file open. `convert` loads the pixels, and that
# closes it. `with` is still worth its line: it closes the file also if decoding fails, and at once on every kind of
# Python.
#
# ### Exercise 2 · A loader for training
#
# Make the call that every training script has.
#
# **Must** return a `DataLoader` of `dataset`
# - with batches of `batch_size`, built by `num_workers` workers;
# - in a new random order in every epoch;
# - without a last batch that is not full, so that every step averages over as many images.
#
# **Points** 2 · **Core** · **Difficulty** ●○○ · **Minutes** 4 · **Lines** 1
#
# **Source** `torch.utils.data.DataLoader`, PyTorch documentation.
#
# <details><summary>Hint 1</summary>
#
# Which arguments of `DataLoader` are named in its documentation for these three?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `shuffle=True` and `drop_last=True`; neither is the default.
#
# </details>


# %% solution="training_loader"
def training_loader(dataset, batch_size, num_workers=0):
    """A DataLoader of shuffled, full batches.

    Args:
        dataset: map-style dataset.
        batch_size: items per batch.
        num_workers: worker processes; 0 loads in the main process.

    Returns: torch.utils.data.DataLoader.
    """
    ### BEGIN SOLUTION
    return DataLoader(dataset, batch_size, shuffle=True, drop_last=True, num_workers=num_workers)
    ### END SOLUTION


# %% test="training_loader-visible" points=1
check.training_loader(training_loader)

# %% test="training_loader-hidden" points=1
### BEGIN HIDDEN TESTS
check.training_loader(training_loader, seed=26)
### END HIDDEN TESTS

# %% [markdown]
# Look at a batch of your loader. Many a mistake of a pipeline, from swapped axes to a transform that cuts off the
# faces, is seen here first.

# %% tags=["experiment"]
training_loader_now = course.solved(check.training_loader)
file_bytes = sum(os.path.getsize(path) for path in plain.paths) / len(plain)
print(f"{len(plain):,} images, {file_bytes / 1e3:.1f} kB per file, {plain[0].nbytes / 1e3:.0f} kB as floats")
torch.manual_seed(0)
plots.batch_grid(next(iter(training_loader_now(plain, 6))), columns=6)

# %% [markdown]
# A file of about 14 kB becomes 187,500 numbers: thirteen times as many bytes while each number is a byte, as decoders
# give it, and more than fifty times as many as floats. Whatever happens to an image after decoding moves these.

# %% [markdown]
# ## Who builds which batch
#
# **Workers are processes, and which of them builds what is known before the epoch begins.**
#
# With `num_workers=0` the process of your notebook does everything in turn: it reads the images of a batch one after
# the other, stacks them, trains, and only then reads the next. With `num_workers=4` four more *processes* are started,
# each with a copy of the dataset. They share neither variables nor Python's lock with the notebook, and that is why
# they can decode at the same time.
#
# You may have read that the loader cuts a batch up: eight images, four workers, two images for each.
#
# **Predict**: 24 items, batches of 4, three workers. Which of them build the items 16 to 19, which are batch 4?

# %%
predicted_workers_of_batch_4 = None  # a list of numbers from 0 to 2

# %% [markdown]
# PyTorch does not cut batches up:
#
# 1. The indices of one *whole* batch go to one worker, those of the next batch to the next worker, in a circle.
# 2. The worker calls `dataset[i]` for each index and *collates* the images: a function, the `collate_fn`, makes one
#    batch of them, by default a stack, in memory that both processes can see.
# 3. It sends back where the batch lies. So a batch takes one message each way, whatever its size. On Linux each tensor
#    in it also takes a short connection that hands over a file descriptor (part 3 looks at them).
#
# What more workers change is how many batches are being built at once (`prefetch_factor`, by default two per worker).
# The loop gets its batches in order: one that is ready early waits for those before it.
#
# ### Exercise 3 · The plan of an epoch
#
# Write down, before it happens, which worker builds which batch.
#
# **Must** return a pair (worker, indices) for each batch, in the order in which the loop receives them.
#
# ```python
# >>> batch_plan(5, 2, 2)
# [(0, [0, 1]), (1, [2, 3]), (0, [4])]
# ```
#
# **You may assume** a loader that keeps the order and does not shuffle.
#
# **Points** 2 · **Core** · **Difficulty** ●○○ · **Minutes** 10 · **Lines** 6
#
# **Convention** Everything counts from 0. With `num_workers=0` the worker is None. A last batch that is not full is
# built like any other; with `drop_last` it is left out, so there may be no batch at all.
#
# **Source** PyTorch documentation of `torch.utils.data`, "Single- and Multi-process Data Loading". (The page of DTU's
# course from which this unit descends gives each worker a part of every batch: exercise 4 shows who is right.)
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
    batches = [list(range(start, min(start + batch_size, stop))) for start in range(0, stop, batch_size)]
    return [(k % num_workers if num_workers else None, batch) for k, batch in enumerate(batches)]
    ### END SOLUTION


# %% test="batch_plan-visible" points=1
check.batch_plan(batch_plan)

# %% test="batch_plan-hidden" points=1
### BEGIN HIDDEN TESTS
check.batch_plan(batch_plan, seed=512)
### END HIDDEN TESTS

# %%
plots.loader_diagram(num_workers=4, batch_size=8)

# %% [markdown]
# ### Exercise 4 · A witness in every worker
#
# Do not believe the plan: ask. Write a dataset whose items say who made them; its length is given.
#
# **Must** return, as item i, an int64 tensor of three numbers
# - i;
# - the id of the worker that makes the item, -1 in the main process, which is no worker;
# - the id of the process in the operating system.
#
# **You may assume** indices from 0 to n - 1.
#
# **Points** 2 · **Core** · **Difficulty** ●○○ · **Minutes** 8 · **Lines** 2
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
# `get_worker_info()` is None in the main process and an object with an `id` in a worker. The first worker has id 0;
# what does `if info.id` say of it?
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

# %% tags=["experiment"]
batch_plan_now = course.solved(check.batch_plan)
WorkerWitness_now = course.solved(check.WorkerWitness)
plan = batch_plan_now(24, 4, 3)
seen = list(DataLoader(WorkerWitness_now(24), 4, num_workers=3, multiprocessing_context="fork"))
planned = []
for k, ((worker, indices), batch) in enumerate(zip(plan, seen, strict=True)):
    index, seen_worker, _ = batch.T.tolist()
    planned.append((set(seen_worker), index) == ({worker}, indices))
    print(f"batch {k}: worker {seen_worker[0]} built {index}, {'as planned' if planned[-1] else 'NOT as planned'}")
print(f"batch 4 was built by {sorted(set(seen[4][:, 1].tolist()))}" + reveal(predicted_workers_of_batch_4))
course.claim(
    "every batch was built by the one worker that the plan names", all(planned), f"{sum(planned)} of {len(planned)}"
)
course.claim("three processes built the batches", len({batch[0, 2].item() for batch in seen}) == 3)

# %% [markdown]
# The same thing in time. The cell stamps each batch in the process that builds it: the moment its first image was
# begun and the moment its last one was done.
#
# **Predict**: with two workers, is one batch built faster than by the main process alone?

# %%
predicted_faster_batch = None  # True or False


# %% tags=["experiment"]
def stamped(items):
    """A collate function: the batch, who built it, when it was begun and done, and the seconds of stacking it."""
    info = get_worker_info()
    worker = "main process" if info is None else f"worker {info.id}"
    decoded = time.perf_counter()
    batch = default_collate([image for image, _ in items])
    done = time.perf_counter()
    return batch, worker, items[0][1], done, done - decoded


class Stamped(Dataset):
    """The items of `data`, each with the moment at which it was asked for."""

    def __init__(self, data):
        self.data = data

    def __len__(self):
        return len(self.data)

    def __getitem__(self, i):
        asked = time.perf_counter()
        return self.data[i], asked


spans, stacking = [], {0: [], 2: []}
for num_workers in (0, 2):
    data = Stamped(loaders.evenly_spaced(LFWDataset_now(folder), 12 * sizes.batch_size))
    fork = dict(multiprocessing_context="fork") if num_workers else {}
    batches = DataLoader(data, sizes.batch_size, num_workers=num_workers, collate_fn=stamped, **fork)
    begin = time.perf_counter()
    for k, (_, worker, start, end, seconds) in enumerate(batches):
        spans.append((worker, k, start - begin, end - begin))
        stacking[num_workers].append(1000 * seconds)
in_main = [end - start for worker, _, start, end in spans if worker == "main process"]
in_workers = [end - start for worker, _, start, end in spans if worker != "main process"]
ratio = torch.tensor(in_workers).quantile(0.5) / torch.tensor(in_main).quantile(0.5)
print(
    f"a worker takes {ratio:.2f} times as long for a batch as the main process alone" + reveal(predicted_faster_batch)
)
course.claim(
    "a single batch is built no faster by a worker than by the main process",
    ratio > 0.9,
    f"{ratio:.2f}",
    otherwise="Another program used the core while the main process built its batch. Run the cell "
    "again on a quiet machine.",
)
stack_ms = {w: torch.tensor(ms).quantile(0.5).item() for w, ms in stacking.items()}
course.claim("a worker takes more than twice as long as the main process to stack a batch",
             stack_ms[2] > 2 * stack_ms[0],
             f"{stack_ms[2]:.1f} against {stack_ms[0]:.1f} ms",
             otherwise="The main process got fresh memory for each batch, too: a batch is larger than 32 MB, or your C "
                       "library returned the freed memory to the system (part 2 counts the pages).")  # fmt: skip
plots.timeline(spans, "The same batches without workers (top row) and with two")

# %% [markdown]
# Read it row by row: a colour is a process, and white lines mark where a batch begins and ends. Without workers one
# batch follows the other. With two, each worker builds every second batch, at the same time as the other one, but no
# single batch takes less time. It may take longer: a worker stacks the images of each batch into new shared memory, the
# main process uses the memory of earlier batches again (parts 2 and 3 count the pages), and the processes share cores.
# The gap at the beginning is the start of the processes. A pass of few batches never reaches the speed of a long one,
# because at its beginning and at its end a worker has nothing to do.
#
# ## What each arrow carries
#
# **To know what workers cost, you must know what each arrow of the diagram carries.**
#
# Who sends, who receives, what is in it and how often? The answers are in two files that can be read in an evening,
# `torch/utils/data/dataloader.py` and `torch/utils/data/_utils/worker.py`; part 6 builds the same in a hundred lines.
#
# Five statements about a `DataLoader` with a map-style dataset, the default sampler and the default `collate_fn`:
#
# - **A** What a worker's `__getitem__` keeps in a list of the dataset, `self.cache`, is then there for the other
#   workers and for the main process too.
# - **B** With `batch_size=8` and `num_workers=4`, each worker builds two of the eight samples of every batch.
# - **C** The message that brings a batch of images back to the main process has the same length for 64 images as for 8,
#   to within 100 bytes.
# - **D** `pin_memory=True` helps only if the whole dataset fits into the memory of the GPU.
# - **E** With `num_workers=4` and `prefetch_factor=3`, up to 12 batches are being built or wait for the main process,
#   beside the one that it has taken. With batches of 100 MB, these 12 take up to 1.2 GB.

# %% [markdown]
# ### Exercise 5 · True or false
#
# Judge each of the five statements above.
#
# **Must** return a dictionary from the letters `"A"` to `"E"` to `True` or `False`; true only if all of it is.
#
# **Points** 4 · **Extra** · **Difficulty** ●●○ · **Minutes** 12 · **Lines** 1
#
# **Source** PyTorch 2.13, `torch/utils/data/dataloader.py`, `_utils/worker.py` and `_utils/collate.py`; documentation
# of `torch.utils.data`, "Multi-process data loading" and "Memory Pinning".
#
# <details><summary>Hint 1</summary>
#
# Which statements can you settle with a dataset of ten lines and a `print`?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# For A and B return the process number from `__getitem__`. For C read `collate_tensor_fn`, for E `_reset`. D is about
# how bytes get to the GPU, not about how many there are.
#
# </details>


# %% solution="judge"
def judge():
    """The verdict on each statement of the text above: a dictionary from the letters "A" to "E" to True or False."""
    ### BEGIN SOLUTION
    return {"A": False, "B": False, "C": True, "D": False, "E": True}
    ### END SOLUTION


# %% test="judge-visible" points=2
check.judge(judge)

# %% test="judge-hidden" points=2
### BEGIN HIDDEN TESTS
check.judge(judge, seed=8)
### END HIDDEN TESTS

# %% [markdown]
# ## What to take with you
#
# A worker is a process. It builds whole batches, batch $k$ in worker $k \bmod w$, and they arrive in order.
#
# Part 2 measures when this pays.
