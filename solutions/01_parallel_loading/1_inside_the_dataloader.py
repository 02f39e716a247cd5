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
# **Minutes** 18 core · 18 in all
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
import warnings

import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset
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
