# %% [markdown]
# # Parallel loading, part 1: Look inside the DataLoader
#
# **Who builds which batch, and in which process?**
#
# Labeled Faces in the Wild (LFW) is a folder of 13,233 JPEG files. Imagine that its images do not fit into memory. You
# write the dataset that reads them one by one and look at a batch. Then you write down what a `DataLoader` with several
# worker processes will do, and ask the workers whether it is so. At the end you judge eight statements about loaders;
# published explanations get some of them wrong.
#
# **You will be able to**
#
# - write a map-style dataset that names broken files, closes what it opens and works in every kind of worker;
# - say which worker builds which batch, and when it arrives;
# - find out by a small experiment in which process a piece of code runs.
#
# **Minutes** 80 core · 110 in all
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
# What the text says about measurements was seen on two cores without a GPU. Say to yourself where your machine differs,
# and why.

# %% locked="setup"
import math
import os
import time
import warnings
from pathlib import Path

import matplotlib.pyplot as plt
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset, default_collate, get_worker_info
from torchvision import transforms

import course
from course import loaders
from course.checks import parallel_loading as check
from course.datasets import lfw
from course.plots import parallel_loading as plots
from course.predictions import reveal

warnings.filterwarnings("ignore", "This DataLoader will create")  # more workers than cores: we try that on purpose
print(course.machine())

# %% [markdown]
# ## Who waits for whom
#
# **The slowest part of a pipeline sets the speed of the whole; it should be the part that computes.**
#
# A small model stops improving at some amount of data. A network that grows with its data goes on, along curves
# that have been followed over several powers of ten (Hestness et al. 2017, arXiv:1712.00409). So training sets
# outgrow any memory.

# %%
plots.data_hunger()

# %% [markdown]
# The part that sets the speed is called the *bottleneck*. In training it should be the forward and backward pass.
# If it is the loading, an accelerator that is paid by the hour waits, and a faster one only waits longer.

# %% [markdown]
# ## What runs at once
#
# **A machine runs one instruction stream per logical core.**
#
# A processor has several *cores*, and a core may offer two *hardware threads*, which share its arithmetic units.
# What the system calls a CPU, and `os.cpu_count()` counts, is such a thread: a "logical core". Some pages double
# this number for hyper-threading, which it includes already. A process may not be allowed to use all of them: a
# scheduler may have bound it to a few (`os.sched_getaffinity` knows), a container may have a quota of CPU time
# (`/sys/fs/cgroup/cpu.max`). `loaders.cores()` heeds both.

# %% tags=["experiment"]
print(f"logical cores of this machine: {os.cpu_count()}, usable by this process: {loaders.cores()}")
plots.cpu(loaders.cores())

# %% [markdown]
# Processes do not share variables: each has its own memory and its own Python interpreter, and so its own global
# lock. Threads of one process share everything, that lock included: only one of them runs Python code at a time. C
# code may let the lock go while it computes, as decoders and numpy do. Part 4 comes back to this.

# %% [markdown]
# ## From files to tensors
#
# **A dataset is a list of files and a way to read one of them; an image is read when it is asked for.**
#
# Labeled Faces in the Wild holds 13,233 photographs of 5,749 people, JPEG files of 250 × 250 pixels, in one folder
# per person: `<Person>/<Person>_0001.jpg`. All of them decoded to float32 would be ten gigabytes; the files are
# less than two hundred megabytes. So a `Dataset` keeps paths, and `dataset[i]` opens file i, decodes it and hands it
# to the transform. That is the work which workers can share, because no image needs another.
#
# Three things go wrong here silently. The order in which a file system lists a folder is arbitrary, so an index
# names another image on the next machine. A few files of many collections are grey-scale, and break the first batch
# that one of them falls into. And PIL reads lazily: `Image.open` reads the header and keeps the file open until
# somebody asks for pixels; a loader that forgets the rest runs out of file handles after some thousand images.

# %% [markdown]
# ### Exercise 1 · A dataset of faces
#
# Write the dataset: a list of paths, and an item that is read when it is asked for.
#
# **Points** 4 · **Core** · **Difficulty** ●●○ · **Minutes** 35 · **Lines** 12
#
# **Convention** Images are the files `<folder>/<Person>/<name>.jpg`, the ending in lower case, at exactly this depth;
# files and folders whose name begins with a dot do not count. `self.paths` is the list of them as `Path`, sorted by
# full path; `self.transform` is the transform. The constructor opens no image. If there is none, or no folder, it
# raises a FileNotFoundError whose message holds the folder and the ending `.jpg`. An item is what the transform makes
# of a PIL image in mode RGB, whatever the mode of the file. When `dataset[i]` is left, by a return or by an error, no
# file is open. A file that cannot be decoded raises an OSError whose message holds the path of the file. Indices are
# those of a list: -1 is the last, and an index outside raises IndexError, by which Python knows where a `for` loop
# over the dataset ends. Workers that are not forked get the dataset as a pickle, so it must be possible to pickle
# it, with the default transform at least.
#
# **Source** Huang, Ramesh, Berg and Learned-Miller 2007, "Labeled Faces in the Wild", technical report 07-49,
# University of Massachusetts (the collection and its layout); Pillow's documentation, "File handling in Pillow".
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
# `Path(folder).glob("[!.]*/[!.]*.jpg")` finds the files, and finds none in a folder that is not there.
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

    Raises: FileNotFoundError if there is no such image; its message holds the folder and the ending `.jpg`.
    """

    def __init__(self, folder, transform=None):
        ### BEGIN SOLUTION
        self.paths = sorted(Path(folder).glob("[!.]*/[!.]*.jpg"))
        self.transform = transforms.ToTensor() if transform is None else transform
        if not self.paths:
            raise FileNotFoundError(f"looked in {folder} for <Person>/<name>.jpg, found none; unpack the images there.")
        ### END SOLUTION

    def __len__(self):
        """The number of images."""
        ### BEGIN SOLUTION
        return len(self.paths)
        ### END SOLUTION

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
        ### BEGIN SOLUTION
        return self.paths[i].parent.name.replace("_", " ")
        ### END SOLUTION


# %% test="LFWDataset-visible" points=2
check.LFWDataset(LFWDataset)

# %% test="LFWDataset-hidden" points=2
### BEGIN HIDDEN TESTS
check.LFWDataset(LFWDataset, seed=749)
### END HIDDEN TESTS

# %% [markdown]
# ### Exercise 2 · Look at a batch
#
# Draw a batch as rows of images, each with its title. Many a mistake of a pipeline, from swapped axes to a transform
# that cuts off the faces, is seen here first and nowhere else.
#
# **Points** 2 · **Extra** · **Difficulty** ●○○ · **Minutes** 20 · **Lines** 11
#
# **Convention** Images are in reading order: row by row, `columns` in a row, the last row may be short. Each image
# has axes of its own, without ticks; its title is the title of these axes, in at most 10 points, so that long names
# do not run into each other. Axes without an image are off, or not there. The figure is between 1 and 2.5 inches
# wide per column and as high per row. Values a hair outside of [0, 1], as interpolation makes them, are clamped, so
# that matplotlib has nothing to warn about; nothing else is done to the values. pyplot must not keep the figure:
# what is left open there is drawn twice in a notebook, and never freed.
#
# **Source** matplotlib's documentation of `pyplot.subplots`, `Axes.imshow` and `pyplot.close`.
#
# <details><summary>Hint 1</summary>
#
# Along which axis does matplotlib expect the colours, and does `reshape` bring them there?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `plt.subplots(rows, columns, squeeze=False)` gives a table of axes in every case, also for a single row. How many
# rows do 9 images in rows of 8 need? `axis.axis("off")` hides ticks and frame, and can be said of all axes.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# `pictures = images.cpu().clamp(0, 1).permute(0, 2, 3, 1).numpy()` is what matplotlib wants. Image k belongs on
# `axes.flat[k]`: `imshow` it there and `set_title` with `fontsize="small"`. At the end `plt.close(figure)`: the figure
# itself lives on, and is what you return.
#
# </details>


# %% solution="batch_grid"
def batch_grid(images, titles, columns=8):
    """A matplotlib Figure that shows a batch in rows of `columns` images, each with its title above it.

    Args:
        images: float tensor (n, 3, H, W) of values from 0 to 1, or a hair outside, on any device; n is at least 1.
        titles: n strings.
        columns: images in a row, 1 or more; the last row may be short, also if it is the only one.

    Returns: matplotlib.figure.Figure, closed in pyplot.  Raises: ValueError if there are not n titles.
    """
    ### BEGIN SOLUTION
    if len(titles) != len(images):
        raise ValueError(f"{len(images)} images need as many titles, found {len(titles)}.")
    rows = math.ceil(len(images) / columns)
    figure, axes = plt.subplots(rows, columns, squeeze=False, figsize=(1.5 * columns, 1.75 * rows))
    for axis in axes.flat:
        axis.axis("off")
    pictures = images.cpu().clamp(0, 1).permute(0, 2, 3, 1).numpy()  # (n, H, W, 3)
    for k, picture in enumerate(pictures):
        axes.flat[k].imshow(picture)
        axes.flat[k].set_title(titles[k], fontsize="small")
    plt.close(figure)
    return figure
    ### END SOLUTION


# %% test="batch_grid-visible" points=1
check.batch_grid(batch_grid)

# %% test="batch_grid-hidden" points=1
### BEGIN HIDDEN TESTS
check.batch_grid(batch_grid, seed=250)
### END HIDDEN TESTS

# %% [markdown]
# Now look at the data. The next cell takes an even selection of the images (how many, `COURSE_SCALE` decides; the
# numbers stand in `course/device.py`).

# %% tags=["experiment"]
torch.set_num_threads(1)  # as in a worker: one image is too little work for several threads
sizes = course.sizes("01_parallel_loading")
LFWDataset_now = course.solved(check.LFWDataset)
batch_grid_now = course.solved(check.batch_grid)
folder = lfw.folder(sizes.dataset)
plain = loaders.evenly_spaced(LFWDataset_now(folder), sizes.images)
file_bytes = sum(os.path.getsize(path) for path in plain.paths) / len(plain)
print(f"{len(plain):,} images, {file_bytes / 1e3:.1f} kB per file, {plain[0].nbytes / 1e3:.0f} kB as floats")
shown = range(0, len(plain), len(plain) // 6)[:6]
batch_grid_now(torch.stack([plain[i] for i in shown]), [plain.name(i) for i in shown])

# %% [markdown]
# A file of 13 kB becomes 187,500 numbers of 4 bytes. Whatever happens to an image after decoding moves fifty times
# the bytes that were read. Where does the time go, then?

# %% [markdown]
# ## Who builds which batch
#
# **Workers are processes, and each builds whole batches: batch k comes from worker k modulo their number.**
#
# With `num_workers=0` the process of your notebook does everything in turn: it reads the images of a batch one after
# the other, stacks them, trains, and only then reads the next. With `num_workers=4` four more *processes* are started,
# each with a copy of the dataset. They are not threads: they share neither memory nor Python's lock with the notebook,
# and that is why they can decode at the same time.
#
# You may have read that the loader cuts a batch up: eight images, four workers, two images for each. PyTorch does
# not. The indices of one *whole* batch go to one worker, those of the next batch to the next worker, and so on in a
# circle. The worker calls `dataset[i]` for each index, stacks the images, and puts the finished batch into memory
# that both processes can see. So a batch costs two messages, whatever its size: one list of indices goes out, one
# handle of a batch comes back.
#
# Two things follow. A batch comes no sooner for having more workers; what they change is how many batches are on the
# way at once (`prefetch_factor`, by default two for each worker). And the loop gets its batches in order: one that is
# ready early waits for those before it, and one slow image holds up all that come after.

# %% [markdown]
# ### Exercise 3 · The plan of an epoch
#
# Write down, before it happens, which worker builds which batch.
#
# **Points** 2 · **Core** · **Difficulty** ●○○ · **Minutes** 10 · **Lines** 6
#
# **Convention** What a `DataLoader` does whose sampler is sequential (`shuffle=False`) and which keeps the order
# (`in_order=True`, the default). Items, batches and workers count from 0. With `num_workers=0` there is no worker:
# None. A last batch of less than `batch_size` items is built like any other; with `drop_last` it is left out, and so
# there may be no batch at all.
#
# **Source** PyTorch documentation of `torch.utils.data`, "Single- and Multi-process Data Loading". (The page
# "Distributed Data Loading" of DTU's course on machine learning operations says that each worker gets a part of the
# indices of a batch, and calls the workers threads; here you see what is the case, and the next exercise shows it.)
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
# **Points** 2 · **Core** · **Difficulty** ●○○ · **Minutes** 10 · **Lines** 2
#
# **Convention** Item i is an int64 tensor of three numbers: i, the id of the worker that makes the item (-1 in the main
# process, which is no worker), and the id of the process in the operating system. They are asked for when the item is
# made: a dataset is constructed in the main process, and what it stores then, every worker gets as a copy. Items are
# asked for with indices from 0 to n - 1 only.
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

# %% [markdown]
# Predict the table of the next cell before you run it: 24 items, batches of 4, three workers. Which worker builds
# batch 4, and which indices are in it?

# %%
predicted_worker_of_batch_4 = None  # your number: 0, 1 or 2

# %% tags=["experiment"]
batch_plan_now = course.solved(check.batch_plan)
WorkerWitness_now = course.solved(check.WorkerWitness)
plan = batch_plan_now(24, 4, 3)
seen = list(DataLoader(WorkerWitness_now(24), 4, num_workers=3, multiprocessing_context="fork"))
for k, ((worker, indices), batch) in enumerate(zip(plan, seen, strict=True)):
    index, seen_worker, _ = batch.T.tolist()
    same = "as planned" if (set(seen_worker), index) == ({worker}, indices) else "NOT as planned"
    print(f"batch {k}: worker {seen_worker[0]} built {index}, {same}")
print(f"worker {seen[4][0, 1]} built batch 4" + reveal(predicted_worker_of_batch_4))
print(f"{len({batch[0, 2].item() for batch in seen})} processes built {len(seen)} batches")

# %% [markdown]
# A worker that is slow holds up the batches behind it, even if they are ready: they arrive in order
# (`in_order=True`, the default). In return a run can be repeated.
#
# The same thing in time. The cell stamps each batch in the process that builds it: the moment its first image was
# begun and the moment its last one was done. Above, the main process builds all batches itself; below, two workers
# do.


# %% tags=["experiment"]
def stamped(items):
    """A collate function: the batch, the worker that built it, and when it was begun and done."""
    info = get_worker_info()
    return default_collate([image for image, _ in items]), info and info.id, items[0][1], time.perf_counter()


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
    begin = time.perf_counter()
    for k, (_, worker, start, end) in enumerate(
        DataLoader(data, sizes.batch_size, num_workers=num_workers, collate_fn=stamped, **fork)
    ):
        spans.append(("main process" if worker is None else f"worker {worker}", k, start - begin, end - begin))
plots.timeline(spans, "The same batches without workers (top row) and with two")

# %% [markdown]
# Read it row by row. Without workers one batch follows the other. With two, the rows fill side by side, each worker
# takes every second batch, and the pass begins with a gap: that is the start of the processes. A pass of few batches
# never reaches the speed of a long one, because at its beginning and at its end a worker has nothing to do. Compare
# also the length of one bar above and below: a worker is not faster at its batch than the main process is, there are
# only more of them.

# %% [markdown]
# ## What each arrow carries
#
# **A diagram of a loader has few boxes and few arrows; to know what workers cost, you must know what each arrow
# carries.**
#
# Draw it for yourself: the main process, a worker, the dataset, the queues between them, the GPU. Then ask of every
# arrow who sends, who receives, what is in it and how often it is used. The answers are in two files that can be read
# in an evening, `torch/utils/data/dataloader.py` and `torch/utils/data/_utils/worker.py`; `_try_put_index`,
# `_next_data` and `_worker_loop` are the places to start. What you cannot find there you can try: let `__getitem__`
# return `os.getpid()`, or the `id` of `get_worker_info()`, and look at the batches.
#
# Published explanations, also good ones, get some of this wrong. The eight statements below test these points.

# %% [markdown]
# ### Exercise 5 · True or false
#
# Judge each statement. All are about a `torch.utils.data.DataLoader` with a map-style dataset, the default sampler and
# the default `collate_fn`, in the version installed here.
#
# - **A** The main process, which sends out indices and receives the batches, is the process that runs the training
#   loop; in a notebook, the kernel.
# - **B** What a worker's `__getitem__` keeps in a list of the dataset, `self.cache`, is then there for the other
#   workers and for the main process too.
# - **C** With `batch_size=8` and `num_workers=4`, each worker builds two of the eight samples of every batch.
# - **D** Whatever the batch size, a batch of image tensors takes two messages through the queues between the processes:
#   indices out, and back a handle of the shared memory in which the pixels lie.
# - **E** Workers make every loader faster, also one whose `__getitem__` only looks up a tensor in memory.
# - **F** On a machine with 4 cores that run 2 hardware threads each, `os.cpu_count()` is 8.
# - **G** `pin_memory=True` helps only if the whole dataset fits into the memory of the GPU.
# - **H** With `num_workers=4` and `prefetch_factor=3`, up to 12 batches are being built or wait for the main process,
#   beside the one that it has taken; with batches of 100 MB that is up to 1.2 GB.
#
# **Points** 4 · **Core** · **Difficulty** ●●○ · **Minutes** 20 · **Lines** 1
#
# **Convention** `judge()` takes nothing and returns a dictionary from the letters `"A"` to `"H"` to `True` or `False`.
# A statement is true only if all of it is. The check names the first verdict that does not agree with ours.
#
# **Source** PyTorch 2.13, `torch/utils/data/dataloader.py`, `_utils/worker.py` and `_utils/collate.py`; documentation
# of `torch.utils.data`, "Multi-process data loading" and "Memory Pinning"; Python documentation of `os.cpu_count`.
#
# <details><summary>Hint 1</summary>
#
# Which statements can you settle with a dataset of ten lines and a `print`?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# For B and C return the process number from `__getitem__`. For D read `collate_tensor_fn`, for H `_reset`. For E ask
# what a worker saves in that case, and what it adds. G is about how bytes get to the GPU, not about how many there are.
#
# </details>


# %% solution="judge"
def judge():
    """The verdict on each statement of the text above: a dictionary from the letters "A" to "H" to True or False."""
    ### BEGIN SOLUTION
    return {"A": True, "B": False, "C": False, "D": True, "E": False, "F": True, "G": False, "H": True}
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
