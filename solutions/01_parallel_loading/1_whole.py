# %% [markdown]
# # Parallel loading
#
# **When do loader workers help, and how many?**
#
# This unit takes a folder of JPEG files, Labeled Faces in the Wild (LFW), imagines that it does not fit into
# memory, and loads it with more and more processes. You write the dataset, an honest timer, the pieces that make
# many processes behave (seeds, collation, a copy to the device that overlaps with computing), and a model that
# tells from a few measurements how many workers to take. At the end stands a loader that beats all of them without
# a single worker, and you will know why.
#
# How it works: you first write down what you expect (a cell with `None`), then solve the exercise, check it, and look
# at the measurement. A check names the first thing that is not right. If you skip an exercise, or have not run its
# check, the later cells say so and go on with the reference answer, where your folder holds it: that of a class may
# not. Run the cells from the top: the experiments build on each other. In them, `x_now` is your `x` if its check
# passed, else the reference. The cells after the checks that hold nothing are for tests that only your instructor
# sees. What the text says about measurements was seen on two cores without a GPU; say to yourself where your machine
# differs, and why.


# %% locked="setup"
import itertools
import math
import os
import random
import sys
import time
import warnings
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset, TensorDataset, default_collate, get_worker_info
from torchvision import transforms
from torchvision.io import ImageReadMode, decode_jpeg, read_file
from torchvision.transforms import v2
from tqdm import tqdm

import course
from course import loaders, usage
from course.checks import parallel_loading as check
from course.datasets import lfw
from course.plots import parallel_loading as plots

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
# **As many instruction streams run at the same time as the system has logical cores; it has already counted them.**
#
# A processor has several *cores*, and a core may offer two *hardware threads*, which share its arithmetic units.
# What the system calls a CPU, and `os.cpu_count()` counts, is such a thread: a "logical core". Some pages double
# the number once more for hyper-threading; it is counted already. And a process need not be allowed to use all of
# them: a scheduler may have bound it to a few (`os.sched_getaffinity` knows), a container may have a quota of CPU
# time (`/sys/fs/cgroup/cpu.max`). `loaders.cores()` heeds both.

# %% tags=["experiment"]
print(f"logical cores of this machine: {os.cpu_count()}, usable by this process: {loaders.cores()}")
plots.cpu(loaders.cores())

# %% [markdown]
# Processes do not share variables: each has its own memory and its own Python interpreter, and so its own global
# lock. Threads of one process share everything, that lock included: only one of them runs Python code at a time. C
# code may let the lock go while it computes, as decoders and numpy do. Keep this in mind for the end of the unit.

# %% [markdown]
# ## From files to tensors
#
# **A dataset is a list of files and a way to read one of them; everything that costs time happens when an item is
# asked for.**
#
# Labeled Faces in the Wild holds 13,233 photographs of 5,749 people, JPEG files of 250 × 250 pixels, in one folder a
# person: `<Person>/<Person>_0001.jpg`. All of them decoded to float32 would be ten gigabytes; the files are
# less than two hundred megabytes. So a `Dataset` keeps paths, and `dataset[i]` opens file i, decodes it and hands it
# to the transform. That is the work which workers can share, because no image needs another.
#
# Three things go wrong here without a word. The order in which a file system lists a folder is arbitrary, so an index
# names another image on the next machine. A few files of many collections are grey-scale, and break the first batch
# that one of them falls into. And PIL reads lazily: `Image.open` reads the header and keeps the file open until
# somebody asks for pixels; a loader that forgets the rest runs out of file handles after some thousand images.

# %% [markdown]
# ### Exercise 1 · A dataset of faces
#
# Write the dataset: a list of paths, and an item that is read when it is asked for.
#
# **Points** 4 · **Difficulty** ●●○ · **Minutes** 25 · **Lines** 12
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
    """The images below a folder, one folder a person, each read when it is asked for.

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
# **Points** 2 · **Difficulty** ●○○ · **Minutes** 15 · **Lines** 11
#
# **Convention** Images are in reading order: row by row, `columns` in a row, the last row may be short. Each image has
# axes of its own, without ticks; its title is the title of these axes, in at most 10 points, so that long names do
# not run into each other. Axes without an image are off, or not there. The figure is between 1 and 2.5 inches wide a
# column and high a row. Values a hair outside of [0, 1], as interpolation makes them, are clamped, so that matplotlib
# has nothing to warn about; nothing else is done to the values. pyplot must not keep the figure: what is left open
# there is drawn twice in a notebook, and never freed.
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


def faces(transform=None, n=None):
    """An LFWDataset of `n` images (default: the number of this scale), spread over all of them."""
    data, n = LFWDataset_now(folder, transform), n or sizes.images
    data.paths = data.paths[:: max(1, len(data.paths) // n)][:n]
    return data


plain = faces()
file_bytes = sum(os.path.getsize(path) for path in plain.paths) / len(plain)
print(f"{len(plain):,} images, {file_bytes / 1e3:.1f} kB a file, {plain[0].nbytes / 1e3:.0f} kB as floats")
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
# **Points** 2 · **Difficulty** ●○○ · **Minutes** 10 · **Lines** 6
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
# **Points** 2 · **Difficulty** ●○○ · **Minutes** 10 · **Lines** 2
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


def told(prediction, form="{}"):
    """What the learner predicted, in brackets, or nothing."""
    return "" if prediction is None else f"   (you said {form.format(prediction)})"


plan = batch_plan_now(24, 4, 3)
seen = list(DataLoader(WorkerWitness_now(24), 4, num_workers=3, multiprocessing_context="fork"))
for k, ((worker, indices), batch) in enumerate(zip(plan, seen, strict=True)):
    index, seen_worker, _ = batch.T.tolist()
    same = "as planned" if (set(seen_worker), index) == ({worker}, indices) else "NOT as planned"
    print(f"batch {k}: worker {seen_worker[0]} built {index}, {same}" + told(predicted_worker_of_batch_4) * (k == 4))
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
    data = Stamped(faces(n=12 * sizes.batch_size))
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
# ## An honest timer
#
# **A time is worth something when it covers all of the work and nothing else, when it was taken more than once, and
# when every setting was measured under the same conditions.**
#
# What belongs to a pass over a loader? Asking it for an iterator starts the workers; the first batch then takes longer
# than the others, because nothing is ready yet. All this is paid again in every epoch, so it belongs to the pass. With
# `persistent_workers=True` the workers live on, and only the first pass starts them: a pass to warm up keeps this cost
# out of the result, where it would stand in one pass of five. The warm-up also fills the disk cache, which would
# otherwise be held against whichever setting happens to come first.
#
# The clock is `time.perf_counter`, which nobody sets; `time.time` can jump when the machine corrects its date. Three
# things are easily counted by accident. *Work that was only queued*: a call on the GPU returns before its kernel
# has run, so the clock must not be read before `torch.cuda.synchronize()` has waited. *A batch too many*: a loop that
# asks "was that enough?" after it was handed a batch has paid for that batch already. *The end of the workers*: they
# are stopped when nothing holds the iterator of the loader any more, and a worker in the middle of a batch finishes it
# first. Whether that falls into the time depends on when you let go of it. The persistent workers of our sweeps do not
# end, so for them it is the same.
#
# One effect no timer can remove. Persistent workers that were not asked for all of their batches still hold some; the
# next pass waits until they are done with these. Where you can, let `n_batches` be the length of the loader.
#
# Then the comparison. If all passes with 0 workers come first and those with 8 workers last, whatever changed in
# between (a processor that got warm, files that came into the cache, another job) looks like an effect of the workers.
# Going through all settings in rounds, each round in an order of its own, spreads such a change over all of them.

# %% [markdown]
# ### Exercise 5 · Seconds per pass
#
# Measure how long `repeats` passes over the first `n_batches` batches of a loader take, after `warmup` passes that are
# not counted.
#
# **Points** 4 · **Difficulty** ●●○ · **Minutes** 20 · **Lines** 15
#
# **Convention** A pass is, in this order: call `synchronize` (if there is one), read the clock, make a fresh iterator
# with `iter(loader)`, draw exactly `n_batches` batches, call `synchronize`, read the clock. Its seconds are the
# difference of the two readings, so the start of workers is inside. Passes to warm up are the same passes; only their
# seconds are left out. A pass that gives fewer batches, a warm-up pass too, is a `ValueError` whose message
# contains the number asked for and the number found. The loader can be iterated, and nothing else: it may have no
# `len`. Read time with `clock()` only; the check hands in a clock of its own.
#
# **Source** Five passes, with mean and spread, as in the LFW exercise of DTU course 02476 (module on distributed data
# loading).
#
# <details><summary>Hint 1</summary>
#
# How often does your loop ask the loader for a batch, the last time included?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Write a function for one pass. `itertools.islice(loader, n)` draws n batches and stops without asking again. How do
# you notice that fewer came?
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# In the function of one pass, `start = clock()`, `found = sum(1 for _ in itertools.islice(loader, n_batches))`,
# `stop = clock()`, with `synchronize()` before both readings. Compare `found` with `n_batches`, return `stop - start`.
# Call it `warmup + repeats` times and keep the results from place `warmup` on.
#
# </details>


# %% solution="seconds_per_pass"
def seconds_per_pass(loader, n_batches, repeats=5, warmup=1, synchronize=None, clock=time.perf_counter):
    """Seconds of `repeats` fresh passes over the first `n_batches` batches, worker start-up included.

    Args:
        loader: iterable of batches, iterated afresh `warmup + repeats` times.
        n_batches: batches drawn in each pass, at least 1.
        repeats: passes that count, at least 1.
        warmup: passes before them that do not count, at least 0.
        synchronize: function without arguments that waits for queued work, called before each reading of the clock
            (on CUDA: torch.cuda.synchronize); None if there is nothing to wait for.
        clock: function without arguments that gives the time in seconds.

    Returns: float64 tensor (repeats,) on the CPU, in seconds.
    Raises: ValueError that names asked and found if a pass ends early: a short loader must not look like a fast one.
    """

    ### BEGIN SOLUTION
    def now():
        if synchronize is not None:
            synchronize()
        return clock()

    def one_pass():
        start = now()
        found = sum(1 for _ in itertools.islice(loader, n_batches))
        stop = now()
        if found < n_batches:
            raise ValueError(
                f"asked for {n_batches} batches a pass, found {found}: ask for fewer, or a larger dataset."
            )
        return stop - start

    seconds = [one_pass() for _ in range(warmup + repeats)]
    return torch.tensor(seconds[warmup:], dtype=torch.float64)
    ### END SOLUTION


# %% test="seconds_per_pass-visible" points=2
check.seconds_per_pass(seconds_per_pass)

# %% test="seconds_per_pass-hidden" points=2
### BEGIN HIDDEN TESTS
check.seconds_per_pass(seconds_per_pass, seed=2476)
### END HIDDEN TESTS

# %% [markdown]
# ### Exercise 6 · Sweep in rounds
#
# Measure every setting `rounds` times: round by round, each round in a newly shuffled order.
#
# **Points** 2 · **Difficulty** ●○○ · **Minutes** 10 · **Lines** 7
#
# **Convention** A round calls `measure` once for each place of `settings`. Row `i` of the result belongs to
# `settings[i]`, column `r` to round `r`, whatever the order in which they were measured. All orders come from `seed`:
# the same seed gives the same orders, another seed others; which ones is your choice, as long as every order is equally
# likely. Global random numbers (Python's, NumPy's, torch's) and the list `settings` stay as they were. Settings are any
# objects: some may be equal to each other, some cannot be keys of a dictionary.
#
# **Source** Mytkowicz, Diwan, Hauswirth and Sweeney 2009, "Producing wrong data without doing anything obviously
# wrong!", ASPLOS (the remedy that they call setup randomization).
#
# <details><summary>Hint 1</summary>
#
# If two settings are equal, what still tells them apart?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Shuffle places, not settings. A `random.Random(seed)` of your own leaves the global numbers alone; make it once, or
# every round starts from the same seed.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# `places = list(range(len(settings)))`; in each round `own.shuffle(places)`, then for each `i` of `places`:
# `seconds[i, r] = measure(settings[i])`, into a float64 tensor that was made before.
#
# </details>


# %% solution="sweep"
def sweep(measure, settings, rounds=5, seed=0):
    """Seconds of every setting in every round, each round in an order of its own.

    Args:
        measure: function of one setting that gives seconds, a float.
        settings: list of one or more objects of any kind.
        rounds: how often every setting is measured, at least 1.
        seed: whole number from which the orders of the rounds come.

    Returns: float64 tensor (len(settings), rounds) on the CPU; rows in the order of `settings`.
    """
    ### BEGIN SOLUTION
    order = random.Random(seed)
    places = list(range(len(settings)))
    seconds = torch.empty(len(settings), rounds, dtype=torch.float64)
    for column in range(rounds):
        order.shuffle(places)
        for place in places:
            seconds[place, column] = measure(settings[place])
    return seconds
    ### END SOLUTION


# %% test="sweep-visible" points=1
check.sweep(sweep)

# %% test="sweep-hidden" points=1
### BEGIN HIDDEN TESTS
check.sweep(sweep, seed=2009)
### END HIDDEN TESTS

# %% [markdown]
# ### Exercise 7 · Time against workers
#
# Draw the mean time of a pass against the number of workers, with an error bar for the spread over the passes.
#
# **Points** 3 · **Difficulty** ●○○ · **Minutes** 15 · **Lines** 6
#
# **Convention** One figure with one pair of axes and one call of `errorbar`. x is the number of workers as it is, so
# that 4 and 8 lie twice as far apart as 2 and 4; y is the mean over the last axis. The bar reaches one sample standard
# deviation below and one above the mean: divided by n - 1, for the mean was taken from the same few passes, and
# dividing by n makes five passes look steadier than they are, by a tenth. The bars have caps. The x label contains the
# word "workers"; the y label says what is measured and its unit, s. The y axis starts at exactly 0 and shows every bar
# to its upper end. The x axis has its ticks exactly at `workers`. A new figure, closed in pyplot so that the notebook
# does not show it twice, and returned; figures that others have open stay as they are.
#
# **Source** Matplotlib documentation of `matplotlib.axes.Axes.errorbar`. Published code for this plot takes NumPy's
# `std`, which divides by n.
#
# <details><summary>Hint 1</summary>
#
# What do `torch.std` and `numpy.std` divide by, if you do not tell them?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `figure, ax = plt.subplots()`. The caps have no length unless `errorbar` is given a `capsize`. A limit of the y axis
# that is set before the data are drawn also freezes the other limit.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# `ax.errorbar(workers, seconds.mean(1), yerr=seconds.std(1), capsize=4)`, then
# `ax.set(xlabel=..., ylabel=..., xticks=workers)` and `ax.set_ylim(bottom=0)`; `plt.close(figure)`; return it.
#
# </details>


# %% solution="worker_plot"
def worker_plot(workers, seconds):
    """A matplotlib Figure: mean seconds of a pass against the number of workers, with error bars.

    Args:
        workers: list of different whole numbers, 0 or more.
        seconds: float64 tensor (len(workers), repeats) on the CPU, at least two passes a row.

    Returns: matplotlib.figure.Figure, no longer open in pyplot.
    """
    ### BEGIN SOLUTION
    figure, ax = plt.subplots()
    ax.errorbar(workers, seconds.mean(1), yerr=seconds.std(1), capsize=4)
    ax.set(xlabel="workers", ylabel="time per pass, s", xticks=workers)
    ax.set_ylim(bottom=0)
    plt.close(figure)
    return figure
    ### END SOLUTION


# %% test="worker_plot-visible" points=1
check.worker_plot(worker_plot)

# %% test="worker_plot-hidden" points=2
### BEGIN HIDDEN TESTS
check.worker_plot(worker_plot, seed=58)
### END HIDDEN TESTS

# %% [markdown]
# ### How many workers for a cheap transform?
#
# `ToTensor` is all that is done to an image after decoding. Workers start before the clock does and stay
# (`persistent_workers=True`, and a pass to warm up); what their start costs, we measure by itself later.
#
# How many times as fast as the main process alone are two workers, on your machine? 2 would be perfect.

# %%
predicted_speedup_plain = None  # your number: 2 = twice as fast as no workers

# %% tags=["experiment"]
seconds_per_pass_now = course.solved(check.seconds_per_pass)
sweep_now = course.solved(check.sweep)
worker_plot_now = course.solved(check.worker_plot)
counts = [w for w in loaders.worker_counts() if w <= len(plain) // sizes.batch_size // 2]  # two batches each at least


def loader(data, num_workers, **options):
    """A DataLoader whose workers, if there are any, are forked and persistent."""
    if num_workers:
        options = dict(multiprocessing_context="fork", persistent_workers=True) | options
    return DataLoader(data, **dict(batch_size=sizes.batch_size, num_workers=num_workers) | options)


def time_all(contestants, rounds=None):
    """Seconds of whole passes over each of the `contestants`, float64 (len(contestants), rounds), measured in turn."""
    contestants, rounds = list(contestants), rounds or sizes.rounds
    turns = tqdm(total=len(contestants) * (rounds + 1), file=sys.stdout, leave=False, mininterval=1, desc="passes")

    def measure(i):
        turns.update()
        return seconds_per_pass_now(contestants[i], len(contestants[i]), repeats=1, warmup=0).item()

    with turns:
        for i in range(len(contestants)):
            measure(i)  # starts the workers, fills the disk cache
        return sweep_now(measure, list(range(len(contestants))), rounds)


def speedup(seconds, i, base=0):
    """Median and range of the paired ratios: times as fast as `base`."""
    ratios = seconds[base] / seconds[i]
    return f"{ratios.quantile(0.5):.2f} ({ratios.min():.2f} to {ratios.max():.2f})"


plain_seconds = time_all(loader(plain, w) for w in counts)
print(f"2 workers are {speedup(plain_seconds, counts.index(2))} times as fast" + told(predicted_speedup_plain))
print(course.machine())
worker_plot_now(counts, plain_seconds)

# %% [markdown]
# Look at one worker first. It does the work of the main process in another process, and the batch has to come back:
# one worker is *slower* than none. Only the second one can pay for that, and here it does not quite. Beyond the
# number of cores there is little left to win.
#
# Look at the error bars too. The standard deviation over five passes says how much a single pass would have told
# you.
#
# The advice of the page from which this unit descends: if you see no improvement, take a larger batch, since
# loading is parallel per batch. The next cell takes a quarter of the batch and four times as much.

# %% tags=["experiment"]
batch_curves = {}
batch_sizes = [sizes.batch_size // 4, sizes.batch_size, sizes.batch_size * 4]
for batch_size in batch_sizes:
    pairs = time_all((loader(plain, w, batch_size=batch_size) for w in (0, 1, 2)), max(2, sizes.rounds - 2))
    batch_curves[f"batch {batch_size}"] = (0, 1, 2), pairs
plots.rates(batch_curves, len(plain), loaders.cores(), "ToTensor: workers and batch size")

# %% [markdown]
# With workers the size of the batch changes little. What a batch costs in messages is less than a millisecond (we
# measure it below), against half a millisecond or more for each of its images, so there is little to save.
#
# Look at 0 workers instead. The largest batch is the *slowest*, and that has nothing to do with loading: at the
# scale `laptop` its 128 float images are a block of 96 MB, and the C library of Linux gives blocks above 32 MB back
# to the system as soon as they are free. Each new batch then gets fresh pages, which the system clears one by one.
# A smaller block is kept and used again. Workers pay for fresh pages at every size, because the shared memory of
# each batch is new. Whoever compares with 0 workers at a large batch only, finds workers better than they are.

# %% [markdown]
# ## More work an image
#
# **Augmentation runs in the worker, image by image: the more of it, the more there is to divide.**
#
# The chain below turns, shifts and zooms an image, mirrors it now and then, and changes its colours. It is there to
# cost something, and it costs what real training pipelines cost.

# %% [markdown]
# ### Exercise 8 · A heavy transform
#
# Build an augmentation that costs more than the decoding of the JPEG: a random rotation, shift and zoom, a random
# mirror image, random colours, and a tensor at the end.
#
# **Points** 2 · **Difficulty** ●○○ · **Minutes** 10 · **Lines** 10
#
# **Convention** In this order, applied to PIL images, with the formulas of `torchvision.transforms`: an affine map, by
# up to 5 degrees, shifted by up to a tenth of width and height, zoomed by a factor from 0.5 to 2, with bilinear
# interpolation and black where nothing is; mirrored left to right with probability a half; brightness, contrast and
# saturation each jittered by up to 0.3 in torchvision's random order; a tensor. All random numbers are torch's global
# ones, drawn in the order and number in which torchvision's `RandomAffine`, `RandomHorizontalFlip` and `ColorJitter`
# draw them, so that a torch seed determines the picture. Neither numpy's nor Python's random numbers are touched, nor
# is the image. What is returned can be pickled: no lambda, no function or class from inside another function.
#
# **Source** torchvision documentation of `torchvision.transforms`; the affine map is that of the page "Distributed Data
# Loading" of DTU's course on machine learning operations, exercise 6, the rest is ours.
#
# <details><summary>Hint 1</summary>
#
# Which interpolation does `RandomAffine` use if you do not say? How would you see it in a picture?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `transforms.Compose` makes one callable of a list. `transforms.InterpolationMode.BILINEAR` is the interpolation.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# `transforms.RandomAffine(degrees=5, translate=(0.1, 0.1), scale=(0.5, 2.0), interpolation=...)`, then
# `RandomHorizontalFlip()`, `ColorJitter(brightness=0.3, contrast=0.3, saturation=0.3)` and `ToTensor()`.
#
# </details>


# %% solution="heavy_transform"
def heavy_transform():
    """A callable: PIL image in mode RGB -> randomly moved, mirrored and coloured float32 tensor (3, H, W).

    Returns: a callable that can be pickled. It takes a PIL image of width W and height H and gives a float32 tensor
        (3, H, W) of values from 0 to 1. All its randomness comes from torch's global random numbers.
    """
    ### BEGIN SOLUTION
    return transforms.Compose(
        [
            transforms.RandomAffine(
                degrees=5,
                translate=(0.1, 0.1),
                scale=(0.5, 2.0),
                interpolation=transforms.InterpolationMode.BILINEAR,
            ),
            transforms.RandomHorizontalFlip(),
            transforms.ColorJitter(brightness=0.3, contrast=0.3, saturation=0.3),
            transforms.ToTensor(),
        ]
    )
    ### END SOLUTION


# %% test="heavy_transform-visible" points=1
check.heavy_transform(heavy_transform)

# %% test="heavy_transform-hidden" points=1
### BEGIN HIDDEN TESTS
check.heavy_transform(heavy_transform, seed=1102)
### END HIDDEN TESTS

# %% tags=["experiment"]
heavy_transform_now = course.solved(check.heavy_transform)
heavy = faces(heavy_transform_now())
torch.manual_seed(0)
variants = [shown[2]] * 3 + [shown[4]] * 3
batch_grid_now(torch.stack([heavy[i] for i in variants]), [heavy.name(i) for i in variants])

# %% [markdown]
# ### What an image costs, stage by stage
#
# Before the sweep, the bill: one process, no loader, the mean over the images.


# %% tags=["experiment"]
def microseconds(stage, inputs):
    """Mean µs of `stage` over `inputs`, and what came out."""
    begin = time.perf_counter()
    results = [stage(x) for x in inputs]
    return 1e6 * (time.perf_counter() - begin) / len(inputs), results


def decoded(path):
    with Image.open(path) as image:
        return image.convert("RGB")


some = plain.paths[:: max(1, len(plain) // sizes.probe)]
to_tensor, heavy_chain = transforms.ToTensor(), heavy_transform_now()
bill = {}
bill["read the file"], _ = microseconds(lambda path: path.read_bytes(), some)
with_reading, pictures = microseconds(decoded, some)
bill["decode (PIL)"] = with_reading - bill["read the file"]
bill["ToTensor"], tensors = microseconds(to_tensor, pictures)
with_tensor, _ = microseconds(heavy_chain, pictures)
groups = [tensors[i : i + sizes.batch_size] for i in range(0, len(tensors), sizes.batch_size)]
per_batch, _ = microseconds(default_collate, groups)
collating = {"collate": per_batch * len(groups) / len(tensors)}
parts = {"light": bill | collating, "heavy": bill | {"augment": with_tensor - bill["ToTensor"]} | collating}
for label, stages in parts.items():
    each = ", ".join(f"{name} {us:.0f}" for name, us in stages.items())
    print(f"{label}: {each}, sum {sum(stages.values()):.0f} µs")
plots.stages(parts, "What an image costs in one process")

# %% [markdown]
# The file is read from the page cache, so reading is nearly free; on a cold disk it would not be. (The cell keeps
# all results of a stage before the next one begins, so that each writes into fresh memory: the sum is more than an
# image costs in a loop.) Decoding is not the largest part of the light bill: turning bytes into floats and putting
# the floats together into a batch take longer. The heavy transform multiplies the work on one image, and not the
# number of bytes that have to be handed over. So will two workers help more, or less?

# %%
predicted_speedup_heavy = None  # your number: how many times as fast as no workers are two, with the heavy transform?

# %% tags=["experiment"]
heavy_seconds = time_all(loader(heavy, w) for w in counts)
print(f"2 workers are {speedup(heavy_seconds, counts.index(2))} times as fast" + told(predicted_speedup_heavy))
both = {"ToTensor": (counts, plain_seconds), "heavy": (counts, heavy_seconds)}
plots.rates(both, len(plain), loaders.cores(), "Light and heavy transform")

# %% [markdown]
# ### Where does the rest to 2 go?
#
# The system keeps books: how many seconds of CPU a process has used. `usage.cpu_seconds()` adds up this process and
# its workers. The speed-up is then a product of two factors: how many cores are busy on average, and how much CPU
# time an image costs now compared with an image in the main process alone.


# %% tags=["experiment"]
def books(data, num_workers, passes=3):
    """CPU ms an image in the main process and in all workers, and the number of cores busy on average."""
    batches = loader(data, num_workers)
    for _ in batches:
        pass
    begin, all_begin, main_begin = time.perf_counter(), usage.cpu_seconds(), time.process_time()
    for _ in range(passes):
        for _ in batches:
            pass
    seconds, everything, main = (
        time.perf_counter() - begin,
        usage.cpu_seconds() - all_begin,
        time.process_time() - main_begin,
    )
    n = passes * len(data) / 1000
    return main / n, (everything - main) / n, everything / seconds


for label, data in (("ToTensor", plain), ("heavy", heavy)):
    alone, _, busy_alone = books(data, 0)
    main, in_workers, busy = books(data, 2)
    factor = alone / (main + in_workers)
    print(f"{label:<9} 0 workers: {alone:.2f} ms CPU an image, {busy_alone:.2f} cores busy")
    print(f"{'':<9} 2 workers: {in_workers:.2f} ms in workers, {main:.2f} ms in main, {busy:.2f} cores busy")
    print(f"{'':<9} speed-up = {busy:.2f} / {busy_alone:.2f} cores x {factor:.2f} (CPU an image, before / now)")

# %% [markdown]
# Two factors and their product. The first says whether the cores had work: it falls short of 2 where workers wait for
# the main process, at the beginning of a pass, and whenever another job took a core. The second says what an image
# costs now compared with before. It is below 1 because processes do what a single one need not: write the batch into
# fresh shared memory, page by page, which the system clears first; map it into the main process; send and receive.
# That price is the same for light and heavy images. Divided by little work it eats the gain, divided by much work it
# is a small tax. Two cores that share a cache and the memory's bandwidth are also not quite two cores.

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
# changes, because another worker draws for it, after other images. A run that shall not depend on that needs a seed
# for each image, made from what identifies it: the seed of the run, the epoch, the index.

# %% [markdown]
# ### Exercise 9 · Seed the workers
#
# Write the `worker_init_fn` that gives the dataset of every worker a generator of its own.
#
# **Points** 3 · **Difficulty** ●●○ · **Minutes** 15 · **Lines** 3
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
# ### Exercise 10 · A seed for each image
#
# Make one seed of three numbers, so that the augmentation of an image depends neither on the number of workers nor on
# who builds its batch.
#
# **Points** 2 · **Difficulty** ●●○ · **Minutes** 10 · **Lines** 1
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
# ## The way of a batch
#
# **Between the file and the GPU a picture is copied several times, and most of these copies can be saved: keep pixels
# bytes, and write them where they are needed next.**
#
# Follow the pictures of one batch. The decoder turns a JPEG file into pixels, one byte for each of the three colours.
# If these become floats in [0, 1], they take four times as much memory from here on. The batch is put together: every
# picture is copied into one large tensor. If a worker process did this, the batch must get to the main process:
# worker and main process do not see each other's memory, so that torch copies the batch into *shared memory*, which
# both see, and sends a handle to it. For a GPU it may be copied once more, into pinned memory (next section), and then
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
# ### Exercise 11 · A batch of bytes
#
# Write the `collate_fn` of a `DataLoader` that copies each pixel once, as a byte: from its image into the batch. In a
# worker process the batch lies in shared memory from the start.
#
# **Points** 3 · **Difficulty** ●●○ · **Minutes** 20 · **Lines** 5
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
# `torch.tensor([], dtype=torch.uint8).set_(storage)` is a tensor on this memory, one byte a value, and
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
predicted_handover_ms = None  # your number, in milliseconds a batch


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
handover = dict(zip(ways, 1000 * time_all(ways.values()) / n_batches, strict=True))
print(f"48 MB: {handover['64 images, floats, 48 MB'].median():.1f} ms a batch" + told(predicted_handover_ms))
plots.bars(handover, "ms a batch", "Collate and hand over, nothing else", "{:.2f}")

# %% [markdown]
# A message with 64 numbers costs a fraction of a millisecond: that is what the two arrows themselves cost, the way
# there and back. What is dear is the bytes. The same images as floats take about four times as long as bytes, because
# every byte is written once more into fresh shared memory. And the last bar shows that even without a worker 48 MB
# have to be collated. The lesson of this bill is not "no workers" but "hand over bytes": keep uint8 until the batch
# has arrived, and turn it into floats there, on the GPU if there is one.

# %% [markdown]
# ### Exercise 12 · Options of the loader
#
# Return the keyword arguments of a `DataLoader` that are right for a number of workers and a device. On a GPU a
# later cell hands them on, and `python -m course.lfw_dataset` always: `DataLoader(faces, batch_size=64,
# **loader_options(2, "cuda"))`.
#
# **Points** 2 · **Difficulty** ●○○ · **Minutes** 10 · **Lines** 8
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
short = faces(n=max(4, sizes.images // 4))
kept = {
    "workers started in each epoch": loader(short, 2, persistent_workers=False),
    "persistent workers": loader(short, 2),
}
kept_seconds = dict(zip(kept, 1000 * time_all(kept.values()), strict=True))
plots.bars(kept_seconds, f"ms an epoch of {len(short)} images", "Short epochs")

# %% [markdown]
# A fork is there within hundredths of a second. A forkserver pays for importing torch in each new worker; with
# `spawn` it would be the same and more. Both are safe where fork is not, with threads and with CUDA already in use,
# and Python 3.14 made forkserver its default on Linux. With `persistent_workers=True` it is paid once instead of once
# an epoch. In a training with long epochs nobody notices; in one with a validation after each short epoch it can be
# the larger part.
#
# `prefetch_factor` is how many batches each worker may build ahead: with 2 workers and a factor of 2, four batches
# are under way, and each takes memory. It costs nothing else and pays where the work is uneven. The dataset below
# is quick but for every 45th item, which takes 40 ms (a file on a slow disk, a long recording); the loop takes 6
# ms a batch, as if a GPU were busy.


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


ahead = {f"prefetch_factor={f}": Busy(loader(Uneven(), 2, batch_size=5, prefetch_factor=f)) for f in (1, 2, 4, 8)}
ahead_seconds = dict(zip(ahead, time_all(ahead.values(), 2), strict=True))
plots.bars(ahead_seconds, "seconds a pass", "Uneven work: batches built ahead", "{:.2f}")

# %% [markdown]
# With one batch ahead a slow item stops the loop each time. With more, there is a store that bridges the gap. More
# than the gap is useless, and each batch ahead is memory: workers x prefetch_factor x bytes of a batch.

# %% [markdown]
# ## Bound by what?
#
# **Workers divide work between cores, and waiting between nobody: processes that only wait do not need cores.**
#
# Three kinds of loading: *decode-bound* (our light transform), *transform-bound* (the heavy one), and *IO-bound*,
# where an image is waited for. We make the third with a sleep of 5 ms before each image, about what a network disk
# or an object store takes to answer. Up to how many workers does it gain?

# %%
predicted_best_workers_io = None  # your number


# %% tags=["experiment"]
class SlowDisk(Dataset):
    """The items of `data`, each after a wait of 5 ms."""

    def __init__(self, data):
        self.data = data

    def __len__(self):
        return len(self.data)

    def __getitem__(self, i):
        time.sleep(0.005)
        return self.data[i]


slow, small = SlowDisk(faces(n=max(1, sizes.images // 2))), sizes.batch_size // 4
io_counts = sorted({*counts, 2 * counts[-1]})
io_seconds = time_all((loader(slow, w, batch_size=small) for w in io_counts), max(2, sizes.rounds - 2))
curves = both | {"5 ms of waiting": (io_counts, io_seconds)}
best = io_counts[int(io_seconds.mean(1).argmin())]
print(f"waiting: fastest with {best} of {io_counts} workers" + told(predicted_best_workers_io))
plots.rates(curves, [len(plain), len(heavy), len(slow)], loaders.cores(), "Decoding, computing, waiting")

# %% [markdown]
# Three curves, three answers. The light transform is fastest *without* workers, on two cores: what a worker saves
# is less than what handing over costs. The heavy one gains up to the number of cores. Where images are waited for,
# the gain goes on far beyond, because a process that sleeps needs no core: the answer to "how many workers" is then
# not in the number of cores but in the time to wait. `os.cpu_count()` is a rule of thumb for the second kind only.

# %% [markdown]
# ### Is there a cheaper way to the same tensor?
#
# Before adding processes, look at the bill of one. Top: an image from file to float tensor, with PIL and with
# torchvision's own decoder. Bottom: only the affine part of the heavy transform, bilinear, in the first version of
# `torchvision.transforms` on a PIL image and in `v2` on PIL images, on uint8 tensors and on float tensors.


# %% tags=["experiment"]
def tv_decoded(path):
    return decode_jpeg(read_file(str(path)), mode=ImageReadMode.RGB)


def per_image(functions, inputs):
    """µs an image for each of {label: (function, inputs)}, `rounds` samples each, in turn."""

    def measure(label):
        function, over = functions[label]
        return microseconds(function, over)[0]

    torch.manual_seed(0)
    return dict(zip(functions, sweep_now(measure, list(functions), sizes.rounds), strict=True))


affine = dict(degrees=5, translate=(0.1, 0.1), scale=(0.5, 2.0), interpolation=transforms.InterpolationMode.BILINEAR)
pictures, octets = [decoded(path) for path in some], [tv_decoded(path) for path in some]
decoders = per_image(
    {
        "PIL, ToTensor": (lambda path: to_tensor(decoded(path)), some),
        "torchvision, v2.ToDtype": (lambda path: v2.functional.to_dtype(tv_decoded(path), torch.float32, True), some),
        "torchvision, bytes only": (tv_decoded, some),
    },
    some,
)
affines = per_image(
    {
        "affine, v1, PIL": (transforms.RandomAffine(**affine), pictures),
        "affine, v2, PIL": (v2.RandomAffine(**affine), pictures),
        "affine, v2, uint8 tensor": (v2.RandomAffine(**affine), octets),
        "affine, v2, float tensor": (v2.RandomAffine(**affine), tensors),
    },
    some,
)
same = all(torch.equal(to_tensor(picture), octet / 255) for picture, octet in zip(pictures, octets, strict=True))
print(f"PIL and torchvision decode to the same pixels: {same}")
plots.bars(decoders | affines, "µs an image", "Decoders and transforms, one core")

# %% [markdown]
# Decoders first. The same library, libjpeg-turbo, does the work in both, and PIL's way to a float tensor is longer:
# decode, convert, copy out of PIL, change the order of the axes, turn into floats. Then the transforms: little
# difference, the arithmetic of bilinear interpolation is the same for all. Which way is best depends on the
# processor, so measure. A step that is left out is worth as much as a second core, and costs no memory.

# %% [markdown]
# ## How many workers?
#
# **Workers divide the work, but not what happens once per batch in the main process, and nothing gets faster than
# whatever takes the batches.**
#
# Building a batch costs one worker $a$ seconds of work. $w$ workers build $w$ batches in that time, so that one is
# ready every $a / w$ seconds. To this comes what does not divide: handing the batch over, unpacking it, the loop of
# the main process, together $c$ seconds a batch. The sum falls with every worker, but ever more slowly, and stays
# above $c$.
#
# Then there is a floor $f$. The training step may take longer than the loading; or all cores are busy, and further
# workers only take turns. However many workers there are, a batch does not come faster than every $f$ seconds:
#
# $$T(w) = \max\left(f,\; \frac{a}{w} + c\right), \qquad w \ge 1$$
#
# Plotted against $1/w$ the second term is a straight line of slope $a$, and the floor is level. Three numbers describe
# a whole curve. They can be fitted to a handful of measured times, and they tell how many workers are worth having.
#
# The model starts at one worker. With 0 workers the main process builds the batches itself: nothing is handed over, and
# nothing happens at the same time. This time has to be measured, and can be the best of all.

# %% [markdown]
# ### Exercise 13 · The model
#
# Compute $T(w)$ for several numbers of workers at once.
#
# **Points** 2 · **Difficulty** ●○○ · **Minutes** 5 · **Lines** 2
#
# **Convention** The formula above: the overhead is paid once per batch, whatever `w`, and the floor is compared with
# the sum of both terms. Computed in float64, also for whole numbers and float32.
#
# **Source** Amdahl 1967, "Validity of the single processor approach to achieving large scale computing capabilities",
# AFIPS (work that divides and work that does not); the floor is ours.
#
# <details><summary>Hint 1</summary>
#
# Which of the three numbers does a further worker make smaller?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `torch.as_tensor(workers, dtype=torch.float64)` takes lists and tensors; `clamp(min=floor)` is the maximum with a
# number.
#
# </details>


# %% solution="predict_seconds"
def predict_seconds(workers, floor, work, overhead):
    """Seconds a batch that the model predicts for each number of workers: max(floor, work / w + overhead).

    Args:
        workers: list of whole numbers or tensor (n,) of any dtype; every value is at least 1.
        floor, work, overhead: seconds, Python floats.

    Returns: float64 tensor (n,), on the device of `workers` if that is a tensor, else on the CPU.
    """
    ### BEGIN SOLUTION
    workers = torch.as_tensor(workers, dtype=torch.float64)
    return (work / workers + overhead).clamp(min=floor)
    ### END SOLUTION


# %% test="predict_seconds-visible" points=1
check.predict_seconds(predict_seconds)

# %% test="predict_seconds-hidden" points=1
### BEGIN HIDDEN TESTS
check.predict_seconds(predict_seconds, seed=1967)
### END HIDDEN TESTS

# %% [markdown]
# ### Exercise 14 · Fit the model
#
# Find floor, work and overhead from measured seconds a batch. Nobody says which of the points lie on the floor; try
# every split and keep the best.
#
# **Points** 4 · **Difficulty** ●●● · **Minutes** 30 · **Lines** 9
#
# **Convention** For each $k = 0, 1, \dots, n - 2$ the last $k$ points (the most workers) are taken to lie on the floor:
#
# - `floor` is the mean of their seconds; for $k = 0$ it is 0.0;
# - `work` and `overhead` are slope and intercept of the ordinary least-squares line of seconds against $1/w$ through
#   the other $n - k$ points, two at least;
# - the error of $k$ is the sum of squared differences between $T(w)$ and the seconds over *all* $n$ points. Here $T$ is
#   the model with its maximum: it need not follow the split.
#
# The result belongs to the smallest $k$ whose error is at most the smallest error plus $10^{-12}$ times the sum of the
# squared seconds. This allowance is for rounding: times that lie exactly on a line are fitted perfectly by $k = 0$ and
# by $k = 1$, and then no floor is the simpler claim. Nothing is clipped. A negative overhead (or work) is returned as
# it is: it says that the model does not hold here, or that the times are too noisy. Compute in float64.
#
# **Source** Quandt 1958, "The estimation of the parameters of a linear regression system obeying two separate regimes",
# Journal of the American Statistical Association 53 (try every split, keep the one that fits best).
#
# <details><summary>Hint 1</summary>
#
# With two points left for the line, the line always goes through both. Which points must the error look at, so that
# this does not win every time?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Keep the error and the model of every $k$ in a list, and choose afterwards. `y[:n - k]` and `y[n - k:]` are right
# for $k = 0$ too; `y[:-k]` is empty there. The mean of no values is NaN, so $k = 0$ needs its own floor.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# With NumPy arrays `x` (of 1 / w) and `y`, the line is `work, overhead = np.polyfit(x[:n - k], y[:n - k], 1)` and the
# error `((np.maximum(floor, work * x + overhead) - y) ** 2).sum()`. At the end take the first model whose error is at
# most the smallest error `+ 1e-12 * (y**2).sum()`.
#
# </details>


# %% solution="fit_workers"
def fit_workers(workers, seconds):
    """(floor, work, overhead) of the model max(floor, work / w + overhead) that fits the measured seconds best.

    Args:
        workers: list of n different whole numbers of at least 1, ascending; n is at least 3.
        seconds: float tensor (n,) on the CPU, mean seconds a batch, all above 0.

    Returns: three Python floats, in seconds.
    """
    ### BEGIN SOLUTION
    x, y = 1 / np.array(workers), seconds.double().numpy()
    n, fits = len(y), []
    for k in range(n - 1):  # points on the floor
        work, overhead = np.polyfit(x[: n - k], y[: n - k], 1)
        floor = y[n - k :].mean() if k else 0.0
        error = ((np.maximum(floor, work * x + overhead) - y) ** 2).sum()
        fits.append((error, (float(floor), float(work), float(overhead))))
    limit = min(error for error, _ in fits) + 1e-12 * (y**2).sum()
    return next(model for error, model in fits if error <= limit)
    ### END SOLUTION


# %% test="fit_workers-visible" points=2
check.fit_workers(fit_workers)

# %% test="fit_workers-hidden" points=2
### BEGIN HIDDEN TESTS
check.fit_workers(fit_workers, seed=1958)
### END HIDDEN TESTS

# %% [markdown]
# ### Exercise 15 · Choose
#
# Say how many workers to use: the fewest that are nearly as good as the best. Each worker is a process with a copy of
# the dataset and batches under way, so that one which gains a per cent is not worth its memory.
#
# **Points** 2 · **Difficulty** ●○○ · **Minutes** 10 · **Lines** 6
#
# **Convention** The prediction for 0 workers is `in_main`, for $w \ge 1$ it is $T(w)$. The answer is the smallest
# candidate whose prediction is at most (1 + `slack`) times the smallest prediction among the candidates. What is not a
# candidate is neither chosen nor compared with: without 0 in the list, `in_main` plays no part. Candidates stand in any
# order. No candidates: a `ValueError` whose message contains the word "candidates"; that of `min` says nothing.
#
# **Source** The rule is ours; it is kin to the one-standard-error rule of Breiman, Friedman, Olshen and Stone 1984,
# "Classification and Regression Trees", section 3.4.3 (of all models nearly as good as the best, the smallest).
#
# <details><summary>Hint 1</summary>
#
# Smallest prediction, smallest number: which of the two minima comes first?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# A dictionary from candidate to prediction holds all you need: the minimum of its values gives the limit, the minimum
# of the keys within it the answer.
#
# </details>


# %% solution="choose_workers"
def choose_workers(model, in_main, candidates, slack=0.05):
    """The fewest workers that are nearly the best.

    Args:
        model: (floor, work, overhead), seconds a batch, as `fit_workers` gives them.
        in_main: measured seconds a batch with 0 workers.
        candidates: list of whole numbers, 0 or more, in any order.
        slack: how much slower than the best is near enough, as a share of the best, at least 0.

    Returns: one of the candidates, an int.
    Raises: ValueError if there are no candidates.
    """
    ### BEGIN SOLUTION
    if not candidates:
        raise ValueError("asked for the best of no candidates; give at least one number of workers.")
    floor, work, overhead = model
    seconds = {w: max(floor, work / w + overhead) if w else in_main for w in candidates}
    limit = (1 + slack) * min(seconds.values())
    return min(w for w in candidates if seconds[w] <= limit)
    ### END SOLUTION


# %% test="choose_workers-visible" points=1
check.choose_workers(choose_workers)

# %% test="choose_workers-hidden" points=1
### BEGIN HIDDEN TESTS
check.choose_workers(choose_workers, seed=1984)
### END HIDDEN TESTS

# %% [markdown]
# ### The model meets the sweeps
#
# Three sweeps were measured above. Fit the model to each, let it choose, and compare with the fastest that was
# measured.

# %% tags=["experiment"]
fit_workers_now = course.solved(check.fit_workers)
choose_workers_now = course.solved(check.choose_workers)
for label, (tried, seconds) in curves.items():
    n = math.ceil(len(slow) / small if label == "5 ms of waiting" else len(plain) / sizes.batch_size)
    ms = 1000 * seconds / n
    middle = ms.quantile(0.5, dim=1)
    model = fit_workers_now(tried[1:], middle[1:])
    chosen = choose_workers_now(model, middle[0].item(), tried)
    fastest = tried[int(middle.argmin())]
    price = (middle[tried.index(chosen)] / middle.min() - 1).item()
    print(f"{label}: T(w) = max({model[0]:.1f}, {model[1]:.1f} / w {model[2]:+.1f}) ms; T(0) = {middle[0]:.1f} ms")
    print(f"    the model takes {chosen}, fastest measured {fastest}; {100 * price:.0f} % slower than the fastest")
heavy_batch = heavy_seconds / math.ceil(len(heavy) / sizes.batch_size)
heavy_model = fit_workers_now(counts[1:], heavy_batch[1:].quantile(0.5, dim=1))
in_main = heavy_batch[0].quantile(0.5).item()
plots.worker_model(counts[1:], heavy_batch[1:], heavy_model, in_main, choose_workers_now(heavy_model, in_main, counts))

# %% [markdown]
# Look at the three lines before the plot. The number that is fitted to "overhead" is what no worker takes off you;
# if it is as large as the time of a batch in the main process, workers cannot help, and the model says 0. For the
# transform-bound sweep the work divides until the floor is met, which on a machine without other work is the number
# of cores. For the sweep that waits, a floor that lies at its last point says only where the sweep ends: more
# workers might gain still.
#
# A fit with three numbers on a handful of points is no law of nature. Where two settings lie within the spread of the
# measurement, the model takes the smaller one, and that is what you want: a worker costs memory.

# %% [markdown]
# ## Copying while computing
#
# **A GPU can copy the next batch while it computes on this one, if the batch lies in pinned memory, the copy is queued
# on a stream of its own, and the computation waits for its own batch only.**
#
# **Pinned memory.** The operating system may move ordinary memory about, or out to the disk: it is *pageable*. The
# copy engine of a GPU reads memory without asking the processor, so it needs memory that stays where it is: *pinned*,
# or page-locked. From pinned memory a copy with `non_blocking=True` is only queued: the call returns at once, the
# engine copies when its turn comes. From pageable memory the driver first copies piece by piece into a pinned buffer
# of its own, and the call waits for that. `pin_memory=True` lets a thread of the `DataLoader` copy each batch into
# pinned memory, one copy more in exchange for one that need not be waited for; without `non_blocking=True` the
# processor waits all the same. A published course page (DTU 02476, data loading) advises pinning where the data set
# fits into the memory of the GPU. The one has nothing to do with the other: what is pinned is a few batches at a time,
# and they lie in the memory of the computer.
#
# **Streams.** A stream is a queue of work on the GPU. Within a stream everything runs in order; two streams may run at
# the same time, a copy beside a computation. PyTorch puts all work on the *current* stream, by default one and the
# same, so that even a copy that the processor does not wait for stands in line with the kernels. Inside
# `with torch.cuda.stream(side):` new work goes to `side` instead.
#
# **Events.** What uses the result of another stream must wait for it. `event = side.record_event()` marks the place
# that the queue `side` has reached; `current.wait_event(event)` lets what is queued on `current` from now on wait for
# this place. The GPU waits, not the processor: both calls return at once. `current.wait_stream(side)` waits for *all*
# that has been queued on `side` so far, also for a copy that was to run beside the computation.
#
# **Memory.** PyTorch keeps freed GPU memory and hands it out again, for each stream separately. As soon as Python lets
# go of a tensor, its memory is free for the stream on which it was made, since the work there runs in order. If
# *another* stream still reads it, the next copy overwrites what is being read. `tensor.record_stream(stream)` makes
# the memory wait for what is queued on `stream` when the tensor is let go.

# %% [markdown]
# ### Exercise 16 · Move a batch
#
# Move whatever a loader gives to a device: all tensors in it, wherever they are, each with `non_blocking=True`.
#
# **Points** 2 · **Difficulty** ●○○ · **Minutes** 10 · **Lines** 8
#
# **Convention** Containers are plain lists, tuples and dictionaries, and named tuples, in any nesting, possibly empty.
# The result has containers of the same types and keys; those that were given stay as they are. Only tensors are moved;
# strings, numbers, None and every other object are handed through, the same object. A tensor that is on the device
# already is not copied.
#
# **Source** `torch.Tensor.to`, PyTorch documentation. Which containers occur is ours, after what `default_collate` of
# torch makes.
#
# <details><summary>Hint 1</summary>
#
# If you could already move everything that lies inside a list, how would you move the list?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# The function calls itself for each item. A tuple is made of a list of items, `tuple(items)`; a named tuple takes its
# fields one by one, `type(batch)(*items)`. It is the tuple that has an attribute `_fields`.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# Four cases: a tensor, `batch.to(device, non_blocking=True)`, which returns the tensor itself if it is there; a `dict`,
# a comprehension over `batch.items()`; a `list` or `tuple`, `items = [to_device(item, device) for item in batch]` and
# `type(batch)(items)` or with the star; all else, `return batch`.
#
# </details>


# %% solution="to_device"
def to_device(batch, device):
    """`batch` with every tensor in it on `device`, moved with non_blocking=True.

    Args:
        batch: a tensor, any other object, or a list, tuple, named tuple or dictionary of such; not changed.
        device: torch.device or its name.

    Returns: the same structure with the same types. What is no tensor and no container is the same object as before,
        and a tensor that was on `device` shares its memory with the one that was given.
    """
    ### BEGIN SOLUTION
    if isinstance(batch, torch.Tensor):
        return batch.to(device, non_blocking=True)
    if isinstance(batch, dict):
        return {key: to_device(value, device) for key, value in batch.items()}
    if isinstance(batch, (list, tuple)):
        items = [to_device(item, device) for item in batch]
        return type(batch)(*items) if hasattr(batch, "_fields") else type(batch)(items)
    return batch
    ### END SOLUTION


# %% test="to_device-visible" points=1
check.to_device(to_device)

# %% test="to_device-hidden" points=1
### BEGIN HIDDEN TESTS
check.to_device(to_device, seed=17)
### END HIDDEN TESTS

# %% [markdown]
# ### Exercise 17 · Prefetch to the GPU
#
# Write a loader around a loader. It gives the same batches on the device, in the same order; when it hands out a batch,
# the copy of the next one is already queued on a stream of its own and runs while you compute.
#
# **Points** 5 · **Difficulty** ●●● · **Minutes** 40 · **Lines** 20
#
# **Convention** A batch is a tuple or a list of tensors in the computer's memory; the one on the device is of the same
# kind. Each `for` over the prefetcher is a pass over `iter(loader)` of its own, also after a pass that was broken off;
# passes do not overlap. When batch k is handed out, batch k + 1 has been drawn and no more. An exception of the loader
# reaches the caller; a batch that was ready at that moment may be lost.
#
# On a CUDA device: copies are made by `tensor.to(device, non_blocking=True)` on a side stream of that device. The
# *computing stream* is the one that is current on the device when a batch is asked for, and it is current again when
# the batch is handed out. It waits for the copy of its batch, not for the next one, and every tensor of a batch is
# marked with `record_stream` for it. The processor waits for nothing: no `synchronize`. On any other device no stream
# is touched, each batch is moved with `.to`, and the next one may be drawn in advance or not.
#
# `cuda` is `torch.cuda`, or a stand-in without a GPU by which the check watches the queues. Take streams and events
# from it, never from `torch.cuda` itself: the stand-in has `Stream`, `Event`, `stream`, `current_stream`, and their
# methods under torch's names.
#
# **Source** "CUDA semantics" in the PyTorch documentation, sections on streams and on pinned memory;
# `torch.Tensor.record_stream`.
#
# <details><summary>Hint 1</summary>
#
# Write down, for three batches, in which order these happen: draw, queue the copy, let the computing stream wait, hand
# out. At which point must the event of batch 1 be recorded so that waiting for it is not waiting for batch 2?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Keep one batch in hand, together with its event: `with self.cuda.stream(side):` move it, then
# `event = side.record_event()`, before anything else is queued there. What the caller computes must not land on `side`:
# leave the `with` block before you hand anything out, and ask for `self.cuda.current_stream(self.device)` outside.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# Two generators. The first draws a batch, queues its copy, and yields the copy and its event. `__iter__` takes `ready =
# next(copies, None)`; while it is not None: `batch, event = ready`, then `ready = next(copies, None)`, which queues the
# next copy; then `stream.wait_event(event)` and `record_stream` on each tensor, with the current stream; then `yield
# batch`. The loop ends by itself after the last batch, and an empty loader never enters it.
#
# </details>


# %% solution="Prefetcher"
class Prefetcher:
    """The batches of `loader` on `device`, in order, each handed out while the next one is being copied.

    Args:
        loader: has a length and gives, each time it is iterated over, tuples or lists of tensors that are not on
            `device`; best from pinned memory.
        device: torch.device or its name.
        cuda: where streams and events come from.
    """

    def __init__(self, loader, device, cuda=torch.cuda):
        ### BEGIN SOLUTION
        self.loader, self.device, self.cuda = loader, torch.device(device), cuda
        ### END SOLUTION

    def __len__(self):
        """Number of batches in a pass."""
        ### BEGIN SOLUTION
        return len(self.loader)
        ### END SOLUTION

    def __iter__(self):
        """A new pass: an iterator over the batches, tuples or lists of tensors on `device`."""
        ### BEGIN SOLUTION
        if self.device.type != "cuda":
            yield from map(self._moved, self.loader)
            return
        copies = self._copies()
        ready = next(copies, None)
        while ready is not None:
            batch, copied = ready
            ready = next(copies, None)  # the next copy is queued before this batch is handed out
            computing = self.cuda.current_stream(self.device)
            computing.wait_event(copied)  # wait_stream would wait for the next copy too
            for tensor in batch:
                tensor.record_stream(computing)  # else its memory is free for a copy as soon as Python lets go of it
            yield batch

    def _copies(self):
        side = self.cuda.Stream(self.device)
        for batch in self.loader:
            with self.cuda.stream(side):
                copy, copied = self._moved(batch), side.record_event()
            yield copy, copied

    def _moved(self, batch):
        return type(batch)(tensor.to(self.device, non_blocking=True) for tensor in batch)
        ### END SOLUTION


# %% test="Prefetcher-visible" points=2
check.Prefetcher(Prefetcher)

# %% test="Prefetcher-hidden" points=3
### BEGIN HIDDEN TESTS
check.Prefetcher(Prefetcher, seed=8)
### END HIDDEN TESTS

# %% [markdown]
# ### How long does the device wait?
#
# On a GPU, the cell trains a small network on the heavy faces and prints which share of the time the GPU was idle:
# with a plain copy in the loop, and with the prefetcher. Without a GPU there is no second device to overlap with. A
# sleep stands for its step (the CPU is free while a GPU computes), a fifth longer than two workers need for a
# batch, and what is printed is the share of the loop's time in which it waits for data.

# %%
predicted_waiting_share_2 = None  # your number: share of the time that the loop waits for data with 2 workers

# %% tags=["experiment"]
to_device_now = course.solved(check.to_device)
Prefetcher_now = course.solved(check.Prefetcher)
loader_options_now = course.solved(check.loader_options)
device = course.device()


def waiting_share(batches, step):
    """Share of the wall-clock time of a pass in which the loop waits for its next batch."""
    for _ in batches:
        pass
    waited, begin = 0.0, time.perf_counter()
    source = iter(batches)
    while True:
        asked = time.perf_counter()
        batch = next(source, None)
        waited += time.perf_counter() - asked
        if batch is None:
            return waited / (time.perf_counter() - begin)
        step(batch)


def gpu_idle_share(batches, step):
    """Share of the wall-clock time of a pass in which no step runs on the GPU."""
    for batch in batches:
        step(batch)
    torch.cuda.synchronize()
    begin, marks = time.perf_counter(), []
    for batch in batches:
        mark = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        mark[0].record()
        step(batch)
        mark[1].record()
        marks.append(mark)
    torch.cuda.synchronize()
    return 1 - sum(a.elapsed_time(b) for a, b in marks) / 1000 / (time.perf_counter() - begin)


step = 1.2 * (heavy_seconds[counts.index(2)].quantile(0.5) / math.ceil(len(heavy) / sizes.batch_size)).item()
shares = {}
for w in counts:
    shares[f"{w} workers"] = [waiting_share(loader(heavy, w), lambda batch: time.sleep(step))]
share = shares["2 workers"][0]
print(f"with 2 workers the loop waits {100 * share:.0f} % of the time" + told(predicted_waiting_share_2))
if device.type == "cuda":
    net = torch.nn.Sequential(
        torch.nn.Conv2d(3, 64, 7, 4), torch.nn.ReLU(), torch.nn.Conv2d(64, 128, 5, 2), torch.nn.ReLU(),
        torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(128, 2),
    ).to(device)  # fmt: skip

    def train(batch):
        net.zero_grad()
        net(batch[0]).square().mean().backward()

    def as_tuple(images):
        return (default_collate(images),)

    options = loader_options_now(loaders.cores(), device)
    batches = DataLoader(heavy, sizes.batch_size, collate_fn=as_tuple, **options)
    in_loop = gpu_idle_share(batches, lambda batch: train(to_device_now(batch, device)))
    print(f"GPU idle: copy in the loop {100 * in_loop:.0f} %, ", end="")
    print(f"prefetcher {100 * gpu_idle_share(Prefetcher_now(batches, device), train):.0f} %")
else:
    print("no GPU here: the copy to the device and its overlap cannot be measured on this machine")
percent = {label: [100 * s for s in values] for label, values in shares.items()}
plots.bars(percent, "% of the time spent waiting", f"A step of {1000 * step:.0f} ms, heavy transform", "{:.0f} %")

# %% [markdown]
# Find the number of workers from which on the share hardly falls. There, loading a batch takes less time than the
# step, and more workers are waste. A part of what remains is the beginning of the pass, when nothing is ready. This
# is the question to ask of a training run before anything is made faster: what share of the time does the loop wait
# for data?

# %% [markdown]
# ## A bug in the wild
#
# **A timer that runs and prints looks right; whether it timed what it says can only be seen from the side of the
# loader.**
#
# The course from which this unit descends (DTU 02476, `exercise_files/lfw_dataset.py` of its module on distributed data
# loading) hands out a script that times a loader. It offers "100 batches" as an option, but LFW has 13,233 images and a
# batch 512: the loader ends after 26 batches, nobody is told, and the option, as it stands, changes nothing. Nothing is
# warmed up, and `time.time` is read, a clock that may be set while it runs. And when you read its loop and its last
# line closely, you find two faults more. The function below has both, rebuilt in our own lines.


# %% locked="published_timing"
def published_timing(loader, n_batches):
    """Time five passes over `n_batches` batches and print the result, as found in the wild.  Do not use it."""
    seconds = []
    for _ in range(5):
        start = time.time()
        for number, _ in enumerate(loader):
            if number > n_batches:
                break
        seconds.append(time.time() - start)
    print("{np.mean(seconds):.3f} +- {np.std(seconds):.3f} s")


# %% [markdown]
# ### Exercise 18 · Show it
#
# Read `published_timing`, then prove what you think. Write a function that says for *any* timing function how many
# batches it really draws when it is asked for `n_batches`. It must acquit your `seconds_per_pass`.
#
# **Points** 2 · **Difficulty** ●●○ · **Minutes** 10 · **Lines** 10
#
# **Convention** Call `timing(loader, n_batches)` once, with a loader of your own that can be iterated as often as
# `timing` likes and never comes to an end. Every batch that the loader hands out counts, also one that `timing` does
# not use. The result is the total over all passes that `timing` makes: five exact passes of 100 batches are 500, and
# your `seconds_per_pass`, with the one to warm up, makes six. An exception of `timing` is not caught. What a batch is,
# is your choice; `timing` does not look into it.
#
# **Source** The loop of `exercise_files/lfw_dataset.py`, DTU 02476, github.com/SkafteNicki/dtu_mlops, folder
# `s9_scalable_applications`.
#
# <details><summary>Hint 1</summary>
#
# With a loader of exactly `n_batches` batches, what is the largest number that you could ever count?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Write a class with `__iter__`, and count before you hand out: a generator that counts in the line *after* its `yield`
# gets there only when it is asked for the next batch, so the last one is missed. The last one is what this is about.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# `__iter__` returns `self`; `__next__` adds 1 to `self.drawn` and returns anything. After the call of `timing`, return
# `loader.drawn`.
#
# </details>


# %% solution="batches_drawn"
def batches_drawn(timing, n_batches):
    """How many batches `timing(loader, n_batches)` draws from its loader, over all the passes that it makes.

    Args:
        timing: function of a loader and a number of batches; it iterates the loader once or more.
        n_batches: what it is asked for, at least 1.

    Returns: an int. Raises: whatever `timing` raises.
    """

    ### BEGIN SOLUTION
    class Endless:
        drawn = 0

        def __iter__(self):
            return self

        def __next__(self):
            self.drawn += 1
            return self.drawn

    loader = Endless()
    timing(loader, n_batches)
    return loader.drawn
    ### END SOLUTION


# %% test="batches_drawn-visible" points=1
check.batches_drawn(batches_drawn)

# %% test="batches_drawn-hidden" points=1
### BEGIN HIDDEN TESTS
check.batches_drawn(batches_drawn, seed=102)
### END HIDDEN TESTS

# %% [markdown]
# ### Exercise 19 · Mend the report
#
# The last line of `published_timing` prints the same on every machine. Write the line that it was meant to print, and
# add what makes two runs comparable: images per second.
#
# **Points** 2 · **Difficulty** ●○○ · **Minutes** 10 · **Lines** 4
#
# **Convention** Exactly `2.519 ± 0.042 s for 100 batches, 2,541 images/s`: mean and sample standard deviation (divided
# by n - 1) with three decimals, then the number of batches without commas, then the rate without decimals and with a
# comma between thousands. The rate is `n_batches * batch_size`, the images of a pass, divided by the mean seconds. One
# pass alone has no spread: `2.519 s for 100 batches, 2,541 images/s`. The line is returned, not printed.
#
# **Source** Python documentation, "Format Specification Mini-Language"; the line mended is that of
# `exercise_files/lfw_dataset.py`, DTU 02476.
#
# <details><summary>Hint 1</summary>
#
# What does Python do with `"{1 + 1}"`, and what with `f"{1 + 1}"`?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `f"{x:.3f}"` has three decimals, `f"{x:,.0f}"` none and commas. Make the part with `±` first, as a string that is
# empty for a single pass.
#
# </details>


# %% solution="timing_line"
def timing_line(seconds, n_batches, batch_size):
    """The result of a measurement as one line: mean, spread, what was timed, images per second.

    Args:
        seconds: float64 tensor (repeats,) on the CPU, seconds of each pass, all above 0; one pass or more.
        n_batches: batches of a pass.
        batch_size: images of a batch.

    Returns: a string, "mean ± spread s for n batches, rate images/s"; without "± spread" for one pass.
    """
    ### BEGIN SOLUTION
    mean = seconds.mean().item()
    spread = f" ± {seconds.std().item():.3f}" if len(seconds) > 1 else ""
    rate = n_batches * batch_size / mean
    return f"{mean:.3f}{spread} s for {n_batches} batches, {rate:,.0f} images/s"
    ### END SOLUTION


# %% test="timing_line-visible" points=1
check.timing_line(timing_line)

# %% test="timing_line-hidden" points=1
### BEGIN HIDDEN TESTS
check.timing_line(timing_line, seed=512)
### END HIDDEN TESTS

# %% [markdown]
# Both functions at work: how many batches does `published_timing` draw in its five passes of "100", and how many your
# timer in five passes and one to warm up?

# %%
predicted_batches_published = None  # your number

# %% tags=["experiment"]
batches_drawn_now = course.solved(check.batches_drawn)
timing_line_now = course.solved(check.timing_line)
print(f"published_timing draws {batches_drawn_now(published_timing, 100)}" + told(predicted_batches_published))
print(f"seconds_per_pass draws {batches_drawn_now(seconds_per_pass_now, 100)}")
n_batches = math.ceil(len(plain) / sizes.batch_size)
line = timing_line_now(plain_seconds[counts.index(2)], n_batches, sizes.batch_size)
print(f"2 workers, ToTensor: {line}")

# %% [markdown]
# ## The fastest way
#
# **Threads that decode into buffers which are used again have nothing to start, nothing to hand over, and no fresh
# memory to ask for.**
#
# Look back at the bills. An image costs little decoding and much handling: PIL's copies, a float tensor an image, a
# collated batch, fresh shared memory a batch, a second mapping in the main process. `course.loaders.ThreadedJpegs`
# (80 lines, read them) does without: torchvision's decoder lets go of Python's lock, so that *threads* decode at
# the same time; each writes its floats straight into its place in a batch buffer; there are three buffers, used in
# turn. The pixels are the same to the bit.
#
# How many times as fast as PIL + ToTensor without workers?

# %%
predicted_speedup_threads = None  # your number


# %% tags=["experiment"]
class InTurn:
    """Batches of bytes, turned into floats where they arrive."""

    def __init__(self, batches):
        self.batches = batches

    def __len__(self):
        return len(self.batches)

    def __iter__(self):
        return (batch.float().div_(255) for batch in self.batches)


class Octets(Dataset):
    """Images as torchvision decodes them: uint8 tensors."""

    def __len__(self):
        return len(plain)

    def __getitem__(self, i):
        return tv_decoded(plain.paths[i])


roads = {
    "PIL + ToTensor, 0 workers": loader(plain, 0),
    "PIL + ToTensor, 2 workers": loader(plain, 2),
    "torchvision's bytes, 0 workers": InTurn(loader(Octets(), 0)),
    "torchvision's bytes, 2 workers": InTurn(loader(Octets(), 2)),
    "1 thread, reused buffers": loaders.ThreadedJpegs(plain.paths, sizes.batch_size, threads=1),
    "threads, reused buffers": loaders.ThreadedJpegs(plain.paths, sizes.batch_size),
}
for road in roads.values():
    assert all(torch.equal(a, b) for a, b in zip(road, roads["PIL + ToTensor, 0 workers"], strict=True))
road_seconds = time_all(roads.values())
for i, label in enumerate(roads):
    print(f"{label:<32} {speedup(road_seconds, i)}" + told(predicted_speedup_threads) * (i == len(roads) - 1))
print(course.machine())
plots.bars(dict(zip(roads, len(plain) / road_seconds, strict=True)), "images/s", "Equal pixels, six ways")

# %% [markdown]
# Read the bars as what each way leaves out. Workers that hand over bytes move a quarter of what floats are;
# torchvision's decoder without workers does without the handing over; threads do without it *and* use all cores. (A
# larger batch, in a block above 32 MB, makes the first bar shorter and leaves the last as it is: `python -m
# course.benchmarks.lfw paths --batch-size 64` against 32.)


# %% tags=["experiment"]
def memory_over_epochs(make, epochs=6):
    """(batches drawn, bytes that all processes use more than before), four times an epoch."""
    before, batches = usage.memory_bytes(), make()
    drawn, used = [], []
    for epoch in range(epochs):
        for k, _ in enumerate(batches, 1):
            if k % (len(batches) // 4) == 0:
                drawn.append(epoch * len(batches) + k)
                used.append(usage.memory_bytes() - before)
    return drawn, used


del ways, kept, ahead, roads, road  # their workers end, their buffers are given back
memory_curves = {}
for label, make in {
    "PIL + ToTensor, 0 workers": lambda: loader(plain, 0),
    "PIL + ToTensor, 2 workers": lambda: loader(plain, 2),
    "threads, reused buffers": lambda: loaders.ThreadedJpegs(plain.paths, sizes.batch_size),
}.items():
    memory_curves[label] = memory_over_epochs(make)
    _, used = memory_curves[label]
    half = len(used) // 2
    first, second = max(used[:half]) / 1e6, max(used[half:]) / 1e6
    print(f"{label:<28} most in the first half {first:5.0f} MB, in the second {second:5.0f} MB")
plots.memory(memory_curves)

# %% [markdown]
# What is drawn is the memory beyond what the notebook held before; 0 means that the loader lives on pages which the
# process had kept. The curves must not rise from epoch to epoch; that of the workers goes up and down with the
# number of batches that are under way at that moment. A curve that rises epoch after epoch is the sign of something
# that is kept: a list of batches, a computation graph, or, in workers, a large Python list in the dataset, whose
# pages are copied one by one as soon as a worker touches a reference count. For the last reason keep a list of a
# million paths in a numpy array.

# %% [markdown]
# ## What each arrow costs
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
# ### Exercise 20 · True or false
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
# **Points** 4 · **Difficulty** ●●○ · **Minutes** 20 · **Lines** 1
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
# ### Question · Would you use workers here?
#
# **Points** 4, by hand
#
# A colleague trains on 200,000 sensor recordings of 2 kB each, all in memory as one tensor of 400 MB. `__getitem__`
# is `return self.data[i]`. The GPU is idle for two thirds of the time, and 16 workers have made it worse. Write, in
# about ten lines: why the workers do not help; which two measurements of this unit to make first, and what each
# outcome would mean; what to do instead; and when you would advise workers after all.

# %% [markdown] answer="advice" points=4
# <!-- BEGIN SOLUTION -->
# There is no work to divide: an item is a lookup of about a microsecond. What takes the time is the Python loop
# over the items of a batch, the collation of many small tensors, and, with workers, one message and one more copy
# through shared memory for each batch. Workers divide the first two and add the last two, and sixteen of them also
# take the cores from the loop that feeds the GPU.
#
# First I would measure the share of the loop that waits for data, with the step and without it. If it does not
# wait, the loader is not the problem (then: is the clock read after a synchronisation, are the kernels tiny?). If
# it does: the bill of one batch, stage by stage, in the main process. I expect lookup and collation of a thousand
# small tensors to be nearly all of it.
#
# Instead: no `__getitem__` for single items. Draw the indices of a whole batch and take the rows at once,
# `data[indices]` (with a DataLoader: a `BatchSampler` as the sampler and `batch_size=None`). With 400 MB, put the
# tensor on the GPU at the start; then nothing is copied at all. If it must stay on the host: pin it and copy with
# `non_blocking=True`, one batch ahead.
#
# Workers after all if an item takes work, from some hundred microseconds on (decoding, filters, resampling), or
# waiting (network, disk); then as many as the fitted model says, and bytes rather than floats to hand over.
#
# === BEGIN MARK SCHEME ===
# **1 point** why: no work an item, and a named cost that workers add (message, shared memory, start, contention).
# "GIL" as the reason for processes being slow earns nothing.
#
# **1 point** two measurements of the unit (waiting share, bill by stages, sweep with the fit, hand-over cost, cores
# busy), each with what its outcome would mean.
#
# **1 point** a remedy that removes work: batched indexing, data on the device, bytes instead of floats. "Fewer
# workers" alone earns half.
#
# **1 point** when workers do pay: work or waiting an item is large against the hand-over, with an order of
# magnitude or a number of the learner's own run.
#
# Take off 1 point for a number that is claimed as measured but was not.
# === END MARK SCHEME ===
# <!-- END SOLUTION -->

# %% [markdown]
# ## From the command line
#
# All of this is also a program, with the flags of the script from which the unit descends. It uses the reference
# answers, or those of a notebook: `-answers` and the path of yours.
#
# ```
# python -m course.lfw_dataset
# python -m course.lfw_dataset -visualize_batch
# python -m course.lfw_dataset -get_timing -num_workers 0 1 2 4 -heavy
# python -m course.lfw_dataset -get_timing -answers notebooks/01_parallel_loading/01_parallel_loading.ipynb
# ```
#
# ## What to take with you
#
# 1. A worker is a process. It builds whole batches, batch $k$ in worker $k \bmod w$, and they arrive in order.
# 2. Workers pay when an image takes much work, or much waiting, compared with handing it over. For cheap items they
#    cost.
# 3. Measure in turn, with a warm-up, more than once, and say the spread. Draw exactly as many batches as you divide
#    by.
# 4. Two numbers explain a disappointing speed-up: how many cores were busy, and what an image costs now.
# 5. Fit $T(w) = \max(\text{floor}, \text{work} / w + \text{overhead})$, and take the fewest workers that are nearly
#    the best.
# 6. Seed what a fork has copied. Hand over bytes, not floats. Bound what is built ahead.
# 7. Before adding processes, look at the bill of one. Leaving out a copy beats dividing it.
#
# ## To read on
#
# - I. Svogor et al., Profiling and Improving the PyTorch Dataloader for high-latency Storage, 2022
#   ([arXiv:2211.04908](https://arxiv.org/abs/2211.04908)): the loader measured where images come over a network.
# - G. Leclerc et al., FFCV: Accelerating Training by Removing Data Bottlenecks, 2023
#   ([arXiv:2306.12517](https://arxiv.org/abs/2306.12517)): reused buffers, compiled pipelines, an own file format.
# - G. B. Huang et al., Labeled Faces in the Wild, University of Massachusetts, Technical Report 07-49, 2007: the data.
# - J. Hestness et al., Deep Learning Scaling is Predictable, Empirically, 2017
#   ([arXiv:1712.00409](https://arxiv.org/abs/1712.00409)): error against amount of data.
