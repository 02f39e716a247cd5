# %% [markdown]
# # Parallel loading, part 1: Find what starves a training
#
# **How fast would this training be if its data were free?**
#
# A script trains a small network on photographs of faces and spends most of its time waiting for data. You build an
# instrument that shows where the time of a step goes, stage by stage. In part 7 you fix the script.
#
# **You will be able to**
#
# - say, before you change anything, how much faster a training run would be if its data were free;
# - split the time of a step into the stages of loading;
# - write the dataset and the loader that you need to train on a folder of images.
#
# **Minutes** 31 core · 40 in all
#
# **Needs** nothing

# %% [markdown]
# ### How it works
#
# Run the cells from the top. Where a cell says `None`, write down what you expect before you continue. Each exercise is
# followed by a check that names the first mistake. Once it passes, later cells use *your* answer: `LFWDataset_now` is
# your `LFWDataset`. Ignore the empty cell after each check: it is for grading.
#
# <details><summary>On Windows or macOS</summary>
#
# These notebooks ask for *forked* workers, because other workers do not see the classes that a notebook cell defines.
# Windows cannot fork, and on macOS forked workers may hang. Use WSL 2 or a container there. Cells that read `/proc` or
# `/dev/shm` need Linux.
#
# </details>

# %% locked="setup"
import inspect
import itertools
import os

import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms
from torchvision.utils import make_grid

import course
from course.checks import parallel_loading as check
from course.datasets import lfw
from course.device import physical_cores
from course.loading import loaders
from course.measure import usage, waterfall
from course.plots import parallel_loading as plots
from course.training import starved_run, starved_script

print(course.machine())

# %% [markdown]
# ## Does this training wait for its data?
#
# Each step first waits for a batch and then trains on it. The next cell runs the script unchanged and measures both
# times. (The network learns to tell by how many quarter turns an image was rotated.)

# %% tags=["experiment"]
# the network is small, and one image is too little work for several threads
torch.set_num_threads(1)
sizes = course.sizes("01_parallel_loading")
folder = lfw.folder(sizes.dataset)
task = starved_run.task(folder, sizes.starved_images, sizes.batch_size)
faces = task.faces(starved_script.StarvedFaces)
starved = starved_script.starved_loader(faces, task.batch_size, num_workers=0)
learner = starved_run.Learner()

waits = waterfall.waiting(starved, learner.step, course.device())

print(f"share of the time that the training waits for data: {waits}")
course.claim(
    "the starved training waits for its data for at least two thirds of the time",
    waits,
    above=2 / 3,
)

# %% [markdown]
# **Predict**: how many times as fast would this training be if its batches were replayed from memory? If it waits for a
# share $w$ of its time, and only the waiting goes away, the answer is $1 / (1 - w)$. Go higher if you think that
# loading also slows the step down, and lower if you think that a replay costs time.

# %%
predicted_free = None  # your number: 2 = twice as fast

# %% [markdown]
# **Takeaway** Before you speed up a network, measure how long it waits for data.

# %% [markdown]
# ## When is a file read?
#
# Your dataset must not leave files open, because a process may have only so many. So you need to know when PIL opens,
# reads and closes a file.
#
# Labeled Faces in the Wild (LFW) is a folder of 13,233 JPEG files of 250 × 250 pixels, named
# `<Person>/<Person>_0001.jpg`. If the output above says "stand-in", you have drawn faces instead, in files of the same
# kind.
#
# Decoded to float32, all of LFW would take ten gigabytes. So the `Dataset` keeps only paths, and `dataset[i]` opens
# file i, decodes it and applies the transform. (A dataset that you index like this is called *map-style*.)
#
# **Predict**: you keep a list of twenty images, each from `Image.open(path)`. How many files are open? All of them, if
# PIL reads the pixels later. None, if it reads them immediately.

# %%
predicted_open = None  # your number

# %% [markdown]
# ### Exercise 1 · A dataset of faces
#
# Write the dataset. It keeps the paths, and reads an image when you ask for it.
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
# When does PIL read the pixels: at `Image.open`, at `convert`, or in the transform? Which of these may happen after the
# file is closed?
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
        transform: callable that is applied to every image, a PIL image in mode RGB; by default
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
LFWDataset_now = course.solved(check.LFWDataset)
plain = loaders.evenly_spaced(LFWDataset_now(folder), sizes.images)


def opened(i):
    return Image.open(plain.paths[i])


def converted(i):
    image = Image.open(plain.paths[i])
    return image, image.convert("RGB")


unread = usage.open_after(opened, 20)
read = usage.open_after(converted, 20)
yours = usage.open_after(plain.__getitem__, 20)

print(course.score("01/1", "files open for 20 unread images", predicted_open, unread, null=None))
course.claim(
    "an image that is kept and never read holds its file open", unread == 20, f"{unread} of 20"
)
course.claim("an image whose pixels were loaded holds no file open", read == 0, f"{read} of 20")
course.claim("LFWDataset holds no file open", yours == 0, f"{yours} of 20")

# %% [markdown]
# `Image.open` reads only the header and keeps the file open. `convert` loads the pixels, and then PIL closes the file
# of a single image. Use `with` anyway: it closes the file even if decoding fails.
#
# **Takeaway** PIL reads the pixels when you first need them, not when you open the file.

# %% [markdown]
# ## How do you get batches?
#
# ### Exercise 2 · A loader for training
#
# A `DataLoader` makes batches of the dataset's items.
#
# **Must**
# - return a `DataLoader` of `dataset` with batches of `batch_size`, built by `num_workers` workers;
# - take the items in a new random order in every epoch;
# - leave out the last batch if it is not full.
#
# **Points** 2 · **Core** · **Difficulty** ●○○ · **Minutes** 3 · **Lines** 1
#
# **Source** `torch.utils.data.DataLoader`, PyTorch documentation.
#
# <details><summary>Hint 1</summary>
#
# Which arguments of `DataLoader` does its documentation name for these three?
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
# ## What does a batch look like? · extra
#
# ### Exercise 3 · A batch as a picture
#
# If rows and columns of a square image are swapped, or a transform cuts off the faces, training raises no error. A
# picture of a batch shows it.
#
# **Must** return a NumPy array (height, width, 3) for matplotlib's `imshow`: the images in rows of `columns`, as
# `torchvision.utils.make_grid` arranges them. (Its argument `nrow` is the number of images *per row*.)
#
# **Points** 2 · **Extra** · **Difficulty** ●○○ · **Minutes** 4 · **Lines** 2
#
# **Source** torchvision documentation, "Visualization utilities".
#
# <details><summary>Hint 1</summary>
#
# Where does torch keep the channels of an image, and where does matplotlib look for them?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `make_grid(images, nrow=columns)` is a tensor (3, height, width). `permute(1, 2, 0)` moves the channels to the end.
# `numpy()` works only on the CPU.
#
# </details>


# %% solution="batch_picture"
def batch_picture(images, columns):
    """A picture of a batch.

    Args:
        images: float tensor (n, 3, H, W) of values from 0 to 1, on any device.
        columns: images in a row.

    Returns: float32 array (height, width, 3).
    """
    ### BEGIN SOLUTION
    grid = make_grid(images, nrow=columns)
    return grid.permute(1, 2, 0).cpu().numpy()
    ### END SOLUTION


# %% test="batch_picture-visible" points=1
check.batch_picture(batch_picture)

# %% test="batch_picture-hidden" points=1
### BEGIN HIDDEN TESTS
check.batch_picture(batch_picture, seed=2476)
### END HIDDEN TESTS

# %% tags=["experiment"]
training_loader_now = course.solved(check.training_loader)
batch_picture_now = course.solved(check.batch_picture)

file_bytes = sum(os.path.getsize(path) for path in plain.paths) / len(plain)
image_bytes = plain[0].nbytes
torch.manual_seed(0)
batch = next(iter(training_loader_now(plain, 6)))

print(
    f"{len(plain):,} images, {file_bytes / 1e3:.1f} kB per file, {image_bytes / 1e3:.0f} kB as floats"
)
title = f"A batch of {len(batch)} faces, {batch.nbytes / 1e6:.1f} MB as floats"
plots.picture(batch_picture_now(batch, 6), title)

# %% [markdown]
# **Takeaway** Look at a batch before you train on it.

# %% [markdown]
# ## Where does the time go?
#
# Before a step, a batch passes through five stages: files are *read* and *decoded*, pictures are *transformed*,
# *collated* into a batch, and *transferred* to the device. To learn what a stage costs, keep what it produced, and
# replay that from memory. Then this stage and all stages before it are nearly free. How much faster does the step get?
#
# ### Exercise 4 · Data for free
#
# Write a loader that replays batches from memory. If you train with it instead of the real loader, you see the
# *ceiling*: how fast the training is with data for free.
#
# **Must**
# - draw exactly `n` batches from `source`, and keep `stage(batch)` of each, or the batch itself if there is no stage;
# - yield the kept batches in order, again and again, until the pass has as many batches as `source`;
# - start each pass with the first kept batch, wherever other passes have stopped.
#
# ```python
# >>> list(Ceiling(range(5), 2))
# [0, 1, 0, 1, 0]
# ```
#
# **You may assume** that `source` has at least `n` batches, and n ≥ 1.
#
# **Points** 4 · **Core** · **Difficulty** ●●○ · **Minutes** 8 · **Lines** 7
#
# **Source** Mohan, Phanishayee, Raniwala and Chidambaram 2021, "Analyzing and Mitigating Data Stalls in DNN Training"
# ([arXiv:2007.06775](https://arxiv.org/abs/2007.06775)), which replays cached data to tell stalls apart.
#
# <details><summary>Hint 1</summary>
#
# What should happen once, in `__init__`, and what in every pass? When would `stage` run if you called it in
# `__iter__`?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `itertools.islice(source, n)` draws n batches and does not ask for another one. Each call of a function with `yield`
# in it starts from the beginning.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# In `__init__`, keep `len(source)` and a list. In `__iter__`, for each `k` in `range(len(self))`, yield the kept batch
# number `k % len(the list)`.
#
# </details>


# %% solution="Ceiling"
class Ceiling:
    """A loader that replays the first batches of another one.

    Args:
        source: iterable of batches with a length, such as a DataLoader.
        n: batches to keep.
        stage: function that is called once for each of these batches, and whose result is kept instead; optional.
    """

    def __init__(self, source, n, stage=None):
        ### BEGIN SOLUTION
        self.length = len(source)
        self.kept = []
        for batch in itertools.islice(source, n):
            self.kept.append(batch if stage is None else stage(batch))
        ### END SOLUTION

    def __len__(self):
        """The number of batches of `source`."""
        ### BEGIN SOLUTION
        return self.length
        ### END SOLUTION

    def __iter__(self):
        """A fresh pass."""
        ### BEGIN SOLUTION
        for k in range(self.length):
            yield self.kept[k % len(self.kept)]
        ### END SOLUTION


# %% test="Ceiling-visible" points=2
check.Ceiling(Ceiling)

# %% test="Ceiling-hidden" points=2
### BEGIN HIDDEN TESTS
check.Ceiling(Ceiling, seed=2007)
### END HIDDEN TESTS

# %% [markdown]
# `waterfall.measure` times the step with nothing replayed, then with *read* replayed, then with *read* and *decode*,
# and so on. For *read* and *decode*, it replaces `Image.open`. For the later stages it uses your class to replay items
# (transformed pictures), then batches, then batches on the device. This is what the script does to its data:

# %% tags=["experiment"]
# 12 lines to read
print(inspect.getsource(starved_script.StarvedFaces.__getitem__))
print(inspect.getsource(starved_script.as_floats))

# %% [markdown]
# **Predict**: which stage costs most? Decoding computes 250 × 250 pixels. The transform moves, mirrors and recolours
# each picture. Collating is one line that makes a tensor of the pictures.

# %%
predicted_longest_bar = None  # "read", "decode", "transform", "collate" or "transfer"

# %% tags=["experiment"]
Ceiling_now = course.solved(check.Ceiling)
measured_on = {"device": course.device(), **sizes.waterfall}

as_found = waterfall.measure(
    starved, learner.step, Ceiling_now, starved_run.to_device, **measured_on
)

print(as_found)
print(course.score("01/1", "the longest bar", predicted_longest_bar, as_found.longest, null=None))
print(course.score("01/1", "times as fast with free data", predicted_free, as_found.ceiling))
course.claim(
    "with data for free, the starved training would be at least three times as fast",
    as_found.ceiling,
    above=3,
)
plots.waterfall({"as found": as_found})

# %% [markdown]
# Read the figure from the top. The first bar ends on the right at the time of a step as found. Each bar shows how much
# shorter the step gets when one more stage is replayed, so the next bar continues from there. The last bar is the
# training itself. The thin grey line at the end of a bar is its *whisker*: the bar may end anywhere along it (interval
# of 95 %).
#
# The printed *null* compares the unchanged step with itself, so its interval shows the noise. Do not trust a bar that
# lies inside this interval, nor one whose own interval reaches 0 ("may be 0"). A bar with a black frame is negative:
# with this stage replayed, the step took longer.
#
# A bar shows a *stall*: the time that a stage adds to the step. The stage itself may take longer, because workers can
# do its work while the network computes.
#
# The waterfall reads its items once before the clock starts, so it cannot show a cold disk. If your data are larger
# than memory, or on a remote disk, a real epoch may wait longer for *read* than the bar says.
#
# Each bar has its own remedies. This table says where the course teaches them:
#
# | bar | what shortens it | part |
# |---|---|---|
# | read, decode, transform, collate | workers, which load while the network computes | 2, 3, 4 |
# | decode, transform, collate | fewer pixels, fewer bytes | 7 |
# | transfer | pinned memory, and copies that run ahead | 5 |
# | read | larger files, and an order that suits the disk | unit 04 |
# | step | a faster training step | units 02, 03, 06 |
#
# <details><summary>For your own script</summary>
#
# Call `waterfall.measure(loader, step, Ceiling, to_device)`. It needs a `DataLoader` with a batch size and a map-style
# dataset. Its workers, if any, must be forked. If your dataset does not open its files with Pillow, *read*, *decode*
# and *transform* become one bar. The code is in `course/measure/waterfall.py`.
#
# </details>
#
# **Takeaway** Replay a stage from memory, and the step tells you what the stage costs. Start with the longest bar.

# %% [markdown]
# ## Does loading slow the step down? · extra
#
# You now have two ceilings: the replay, and $1 / (1 - w)$ from the first section. They agree only if a step takes as
# long after a replay as after loading. The next cell trains on one kept batch in two ways: alone, or each time after it
# has loaded and dropped another batch. It times only the step.

# %% tags=["experiment"]
slowed = waterfall.step_after_loading(starved, learner.step, Ceiling_now, **measured_on)
step_alone = slowed.ratio(waterfall.KEPT, to=waterfall.AFTER_LOADING)

print(f"times as fast with free data, by replay: {as_found.ceiling}")
print(f"times as fast without waiting, 1/(1-w):  {waterfall.without_waiting(waits)}")
print(f"a step without loading before it is {step_alone} times as fast")
course.claim(
    "the same batch takes a step at least 5 % longer if another batch was loaded before it",
    step_alone,
    above=1.05,
)

# %% [markdown]
# **Shown**: if the interval of the third number lies above 1, loading slows the step down, because nothing else
# differs. The replay saves this time, too, and $1 / (1 - w)$ does not count it.
#
# **Takeaway** A replay can gain twice: the loop no longer waits, and the step itself may run faster.

# %% [markdown]
# ## How many cores can you use? · extra
#
# Loading runs on the processor, so look at yours before you ask for workers.

# %% tags=["experiment"]
print(f"logical cores of this machine: {os.cpu_count()}, usable by this process: {loaders.cores()}")
plots.cpu(loaders.cores(), physical_cores())

# %% [markdown]
# `os.cpu_count()` counts *hardware threads* (logical cores), so hyper-threading is already included. A scheduler or a
# container quota may give your process fewer, and `loaders.cores()` tells you how many. In a virtual machine the figure
# shows what the host reports, which need not be the real chip.
#
# In most builds of Python, threads of one process share a global lock, so only one of them runs Python code at a time.
# Pillow and PyTorch release the lock during much of their work, so threads can load in parallel, too (part 6). A
# `DataLoader` uses processes, which share no lock. The starved script uses one process.
#
# **Takeaway** Count the cores that your process may use, not the machine's.
