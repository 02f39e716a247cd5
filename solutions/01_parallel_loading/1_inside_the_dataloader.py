# %% [markdown]
# # Parallel loading, part 1: Look inside the DataLoader
#
# **Who builds which batch, and in which process?**
#
# Labeled Faces in the Wild (LFW) is a folder of 13,233 JPEG files. Imagine that the images do not fit into memory. You
# write the dataset that reads them one by one and the loader that makes batches of them. Then you write down what a
# `DataLoader` with several workers will do, and ask the workers whether you are right.
#
# **You will be able to**
#
# - write a map-style dataset and set up a `DataLoader` for training;
# - say which worker builds which batch, and when it arrives;
# - find out by a small experiment in which process a piece of code runs.
#
# **Minutes** 41 core · 42 in all
#
# **Needs** nothing

# %% [markdown]
# ### How it works
#
# Run the cells from the top. Where a cell says `None`, write down what you expect before you continue. Each exercise is
# followed by a check that tells you the first thing that is wrong. Once it passes, later cells use *your* answer (as
# `x_now`). Ignore the empty cell after each check: it is for grading.
#
# **Windows and macOS.** These notebooks ask for *forked* workers, because only those know the classes of a notebook
# cell (part 3). Windows cannot fork: use WSL 2 or a container. On macOS a cell may hang: restart the kernel and set
# `num_workers=0` there. Cells that read `/proc` or `/dev/shm` need Linux.

# %% locked="setup"
import os
import time
import warnings

import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset, get_worker_info
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
# ## How much can your processor do simultaneously?
#
# If loading takes longer than the forward and backward pass, your accelerator waits, and a faster one only waits
# longer. Loading runs on the processor, so look at the processor first.

# %% tags=["experiment"]
print(f"logical cores of this machine: {os.cpu_count()}, usable by this process: {loaders.cores()}")
plots.cpu(loaders.cores(), physical_cores())

# %% [markdown]
# `os.cpu_count()` counts *hardware threads* (logical cores), so it already includes hyper-threading: don't double it.
# Your process may get fewer, because of a scheduler or a container quota; `loaders.cores()` tells you how many.
#
# Threads of one process share a global lock in most builds of Python, so only one of them runs Python code at a time.
# Each process has its own lock, so several run Python in parallel. That is why loaders use processes.
#
# **Takeaway** Count the cores that your process may use, not the machine's.

# %% [markdown]
# ## When is a file read?
#
# LFW holds photographs of 5,749 people, JPEG files of 250 × 250 pixels: `<Person>/<Person>_0001.jpg`. All of them
# decoded to float32 would be ten gigabytes; the files are less than two hundred megabytes. So a `Dataset` keeps paths,
# and `dataset[i]` opens file i, decodes it and applies the transform. (A dataset with `dataset[i]` is called
# *map-style*; part 3 has the other kind.)
#
# **Predict**: you keep a list of twenty images, each from `Image.open`. How many files are open? And if each is from
# `Image.open(...).convert("RGB")`?

# %%
predicted_open_unread, predicted_open_converted = None, None  # your numbers

# %% [markdown]
# ### Exercise 1 · A dataset of faces
#
# Write the dataset: it keeps paths, and reads an image when you ask for it.
#
# **Must**
# - keep `self.paths = loaders.image_paths(folder)` and `self.transform`, by default `transforms.ToTensor()`;
# - apply the transform to a PIL image in mode RGB, whatever the file's mode;
# - leave no file open when `dataset[i]` returns.
#
# **Points** 4 · **Core** · **Difficulty** ●○○ · **Minutes** 5 · **Lines** 5
#
# **Source** Huang, Ramesh, Berg and Learned-Miller 2007, "Labeled Faces in the Wild", report 07-49; Pillow's
# documentation, "File handling in Pillow".
#
# <details><summary>Hint 1</summary>
#
# When does PIL read the pixels: at `Image.open`, at `convert`, or in the transform? Which of these may come after the
# file was closed?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# In `__getitem__`: `with Image.open(self.paths[i]) as file:`, and inside it `image = file.convert("RGB")`, which
# decodes the pixels and copies them. After that only `image` is needed.
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
        """Image i after the transform."""
        ### BEGIN SOLUTION
        with Image.open(self.paths[i]) as file:
            image = file.convert("RGB")  # decodes: from here on the file is not needed
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
# `Image.open` reads only the header and keeps the file open. `convert` loads the pixels, and that closes it. `with` is
# still worth its line: it closes the file even if decoding fails.
#
# **Takeaway** PIL reads a file when you first need its pixels, not when you open it.
#
# ### Exercise 2 · A loader for training
#
# Make the call that every training script has.
#
# **Must**
# - return a `DataLoader` of `dataset` with batches of `batch_size`, built by `num_workers` workers;
# - take the items in a new random order in every epoch;
# - leave out a last batch that is not full.
#
# **Points** 2 · **Core** · **Difficulty** ●○○ · **Minutes** 3 · **Lines** 1
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
# Look at a batch of your loader: swapped axes, or a transform that cuts off the faces, would show here.

# %% tags=["experiment"]
training_loader_now = course.solved(check.training_loader)
file_bytes = sum(os.path.getsize(path) for path in plain.paths) / len(plain)
print(f"{len(plain):,} images, {file_bytes / 1e3:.1f} kB per file, {plain[0].nbytes / 1e3:.0f} kB as floats")
torch.manual_seed(0)
plots.batch_grid(next(iter(training_loader_now(plain, 6))), columns=6)

# %% [markdown]
# ## Which worker builds which batch?
#
# With `num_workers=0` your notebook's process does everything itself: it reads the images of a batch one after the
# other, stacks them, trains, and only then reads the next. With `num_workers=4` four *worker processes* start, each
# with its copy of the dataset.
#
# Some pages say that the loader cuts a batch up: of eight images, each of four workers builds two. Is that so?
#
# **Predict**: 24 items, batches of four, three workers. Batches count from 0. Which workers build batch 4?

# %%
predicted_workers_of_batch_4 = None  # a list of numbers from 0 to 2

# %% [markdown]
# PyTorch does not cut batches up:
#
# 1. The indices of one *whole* batch go to one worker, the next batch's indices to the next worker, in a circle.
# 2. The worker calls `dataset[i]` for each index and *collates* the images: a function, the `collate_fn`, makes one
#    batch of them. By default it stacks them in memory that both processes can see.
# 3. It sends back where the batch is, not the pixels.
#
# Each worker gets `prefetch_factor` batches ahead, two by default. The loop receives batches in order: one that is
# ready early waits for those before it.

# %%
plots.loader_diagram(num_workers=4, batch_size=8)

# %% [markdown]
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
# **Convention** With `num_workers=0` the worker is None. With `drop_last`, leave out a last batch that is not full.
#
# **Points** 2 · **Core** · **Difficulty** ●○○ · **Minutes** 8 · **Lines** 6
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
    batches = [list(range(start, min(start + batch_size, stop))) for start in range(0, stop, batch_size)]
    return [(k % num_workers if num_workers else None, batch) for k, batch in enumerate(batches)]
    ### END SOLUTION


# %% test="batch_plan-visible" points=1
check.batch_plan(batch_plan)

# %% test="batch_plan-hidden" points=1
### BEGIN HIDDEN TESTS
check.batch_plan(batch_plan, seed=512)
### END HIDDEN TESTS

# %% [markdown]
# ### Exercise 4 · A witness in every worker
#
# Do not believe the plan: ask. Write a dataset whose items say who made them.
#
# **Must** return, as item i, the int64 tensor [i, worker, process]
# - with the id of the worker that makes the item, -1 in the main process;
# - with the id of the process in the operating system.
#
# **Points** 2 · **Core** · **Difficulty** ●○○ · **Minutes** 5 · **Lines** 2
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
# `get_worker_info()` is None in the main process and an object with an `id` in a worker. The first worker has id 0; is
# `if info.id` true for it?
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
batch_plan_now = course.solved(check.batch_plan)
WorkerWitness_now = course.solved(check.WorkerWitness)
plan = batch_plan_now(24, 4, 3)
seen = list(DataLoader(WorkerWitness_now(24), 4, num_workers=3, multiprocessing_context="fork"))
planned = []
for k, ((worker, indices), batch) in enumerate(zip(plan, seen, strict=True)):
    index, seen_worker, _ = batch.T.tolist()
    planned.append((set(seen_worker), index) == ({worker}, indices))
    print(f"batch {k}: worker {seen_worker[0]} built {index}, {'as planned' if planned[-1] else 'NOT as planned'}")

# %% tags=["experiment"]
print(f"batch 4 was built by {sorted(set(seen[4][:, 1].tolist()))}" + reveal(predicted_workers_of_batch_4))
course.claim(
    "every batch was built by the one worker that the plan names", all(planned), f"{sum(planned)} of {len(planned)}"
)
course.claim("three processes built the batches", len({batch[0, 2].item() for batch in seen}) == 3)

# %% [markdown]
# **Takeaway** One worker builds a whole batch: batch $k$ comes from worker $k \bmod w$, and batches arrive in order.

# %% [markdown]
# ## Does a second worker make a batch faster?
#
# The next cell stamps each batch in the process that builds it: when its first image was started, and when the batch
# was done.
#
# **Predict**: with two workers, is one batch built faster than by the main process alone?

# %%
predicted_faster_batch = None  # True or False


# %% tags=["experiment"]
def stamped(items):
    """A collate function: the batch, who built it, when it was started and done."""
    info = get_worker_info()
    worker = "no workers: main process" if info is None else f"two workers: worker {info.id}"
    return torch.stack([image for image, _ in items]), worker, items[0][1], time.perf_counter()


class Stamped(Dataset):
    """The items of `data`, each with the moment at which it was asked for."""

    def __init__(self, data):
        self.data = data

    def __len__(self):
        return len(self.data)

    def __getitem__(self, i):
        asked = time.perf_counter()
        return self.data[i], asked


spans = []
for num_workers in (0, 2):
    data = Stamped(loaders.evenly_spaced(LFWDataset_now(folder), 12 * sizes.batch_size))
    fork = dict(multiprocessing_context="fork") if num_workers else {}
    batches = DataLoader(data, sizes.batch_size, num_workers=num_workers, collate_fn=stamped, **fork)
    begin = time.perf_counter()
    for k, (_, worker, start, end) in enumerate(batches):
        spans.append((worker, k, start - begin, end - begin))
in_main = [end - start for worker, _, start, end in spans if "main" in worker]
in_workers = [end - start for worker, _, start, end in spans if "main" not in worker]
ratio = torch.tensor(in_workers).quantile(0.5) / torch.tensor(in_main).quantile(0.5)
print(
    f"a worker takes {ratio:.2f} times as long for a batch as the main process alone" + reveal(predicted_faster_batch)
)
course.claim(
    "a single batch is built no faster by a worker than by the main process",
    ratio > 0.9,
    f"{ratio:.2f}",
    otherwise="Run the cell again on a quiet machine.",
)
plots.timeline(spans, "One batch at a time without workers, two at a time with two")

# %% [markdown]
# Each row is a process; white lines separate batches. The two workers work simultaneously, each on every other batch.
# Yet no single batch is built faster; here a worker even took longer than the main process. Whether the *stream* of
# batches gets faster is a different question, which part 2 measures.
#
# **Takeaway** Workers do not make a batch faster; they build several batches simultaneously.
