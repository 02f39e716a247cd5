# %% [markdown]
# # Parallel loading, part 7: Rescue a starved run
#
# **Where does a starved training spend its time, and how fast can it be?**
#
# A script trains a small network on faces, correctly and slowly. It contains six loading faults. You guess where its
# time goes, profile it, and rewrite its three functions. The score is images per second. Then counts of files, pixels,
# processes and bytes tell you which faults are gone.
#
# **You will be able to**
#
# - read from a profile where the time of a training goes;
# - confirm a fix by a count, not by a feeling;
# - decode, downscale and augment no more pixels than the network gets.
#
# **Minutes** 43 core · 43 in all · session 2
#
# **Needs** part 1

# %% locked="setup"
import os
import time
import warnings

os.environ.setdefault("KINETO_LOG_LEVEL", "6")  # the profiler would write about missing GPUs to the terminal

import numpy as np
import torch
from PIL import Image
from torch.profiler import ProfilerActivity, profile, record_function
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2

import course
from course.checks import parallel_loading as check
from course.datasets import data_folder, lfw
from course.learner.predictions import reveal
from course.loading import loaders
from course.measure import comparison
from course.measure.load_counts import LoadCounts
from course.plots import parallel_loading as plots

warnings.filterwarnings("ignore", "This DataLoader will create")  # more workers than cores, on a small machine
warnings.filterwarnings("ignore", ".*use of fork\\(\\) may lead to deadlocks", DeprecationWarning)  # part 3 explains
warnings.filterwarnings("ignore", "Creating a tensor from a list of numpy")  # as in many a script: read it some time
print(course.machine())

# %% [markdown]
# ## Where does a starved training spend its time?
#
# The network learns by how many quarter turns an image was rotated, which needs no labels (Gidaris, Singh and Komodakis
# 2018, "Unsupervised representation learning by predicting image rotations"). It takes images of 60 × 60 pixels, and
# has no fault itself. How many of the six faults do you see? The lines with `record_function` only name pieces of the
# work for the profiler.

# %% locked="starved"
SIDE = 60  # pixels of an image, as the network takes it


class StarvedFaces(Dataset):
    """Faces of side x side pixels, uint8 (3, side, side), augmented; as found."""

    def __init__(self, paths, side, augment=None):
        self.paths, self.side, self.augment = paths, side, augment

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, i):
        with record_function("1 check the file"), Image.open(self.paths[i]) as file:
            file.load()  # raises if the file is broken
        with record_function("2 decode"), Image.open(self.paths[i]) as file:
            picture = file.convert("RGB")
        with record_function("3 augment"):
            picture = self.augment(picture) if self.augment else picture
        with record_function("4 downscale"):
            picture = picture.resize((self.side, self.side))
        return v2.functional.pil_to_tensor(picture)


def as_floats(pictures):
    """Batch of floats from 0 to 1, (n, 3, side, side); as found."""
    with record_function("5 collate"):
        return torch.tensor([np.asarray(picture) / 255 for picture in pictures]).float()


def starved_loader(dataset, batch_size, num_workers, pin_memory=False):
    """DataLoader of shuffled, full batches; as found."""
    return DataLoader(dataset, batch_size, shuffle=True, drop_last=True, collate_fn=as_floats, pin_memory=pin_memory)


def starved_training(loader, validation, step, accuracy, epochs):
    """Train for some epochs; return the accuracy on the validation images after each, a list; as found."""
    reached = []
    for _ in range(epochs):
        for batch in loader:
            step(batch)
        with record_function("6 validation images"):
            images = torch.stack([validation[i] for i in range(len(validation))])
        reached.append(accuracy(images))
    return reached


# %% [markdown]
# The next cell defines the network, its step and its accuracy. They take images as bytes or as floats from 0 to 1.


# %% tags=["experiment"]
torch.set_num_threads(1)  # the network is small, and the workers need the cores
sizes = course.sizes("01_parallel_loading")
device = course.device()
paths = loaders.image_paths(lfw.folder(sizes.dataset))
paths = paths[:: max(1, len(paths) // sizes.starved_images)][: sizes.starved_images]
train_paths, validation_paths = [p for k, p in enumerate(paths) if k % 4], paths[::4]
augment = v2.Compose(
    [v2.RandomAffine(5, (0.1, 0.1)), v2.RandomHorizontalFlip(), v2.ColorJitter(0.3, 0.3, 0.3)]
)  # takes PIL images and tensors


def turned(images):
    """(floats (n, 3, side, side) on the device, each quarter of them turned by another angle; the angles 0 to 3)."""
    images = images.to(device, non_blocking=True)
    images = images.float() / 255 if images.dtype == torch.uint8 else images
    parts = images.chunk(4)
    angles = torch.cat([torch.full((len(part),), k, device=device) for k, part in enumerate(parts)])
    return torch.cat([part.rot90(k, (2, 3)) for k, part in enumerate(parts)]), angles


class Learner:
    """A new network, its training step and its accuracy."""

    def __init__(self, waits=False):
        self.waits = waits and device.type == "cuda"  # for the profiler: a step ends when the GPU has computed it
        torch.manual_seed(0)
        self.net = torch.nn.Sequential(
            torch.nn.Conv2d(3, 8, 5, 2), torch.nn.ReLU(), torch.nn.Conv2d(8, 16, 3, 2), torch.nn.ReLU(),
            torch.nn.Conv2d(16, 32, 3, 2), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(2), torch.nn.Flatten(),
            torch.nn.Linear(128, 4),
        ).to(device)  # fmt: skip
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=0.003)

    def step(self, batch):
        """Train on one batch."""
        with record_function("the network"):
            images, angles = turned(batch)
            self.optimizer.zero_grad()
            torch.nn.functional.cross_entropy(self.net(images - 0.5), angles).backward()
            self.optimizer.step()
            if self.waits:
                torch.cuda.synchronize()

    @torch.no_grad()
    def accuracy(self, images):
        """Share of the images whose angle the network names; by chance 0.25."""
        with record_function("the network"):
            images, angles = turned(images)
            return (self.net(images - 0.5).argmax(1) == angles).float().mean().item()


print(f"{len(train_paths):,} images to train on, {len(validation_paths):,} to validate, batches of {sizes.batch_size}")

# %% [markdown]
# **Predict**: an epoch of the script, cut to four batches. Which share of its time does the network compute? And which
# of the six labelled pieces takes longest? (Not every piece is a fault, and one fault is in none of the pieces.)

# %%
predicted_share_of_the_network, predicted_longest_piece = None, None  # from 0 to 1; 1 to 6

# %% tags=["experiment"]
workers = max(2, min(4, loaders.cores()))
PIECES = ("1 check the file", "2 decode", "3 augment", "4 downscale", "5 collate", "6 validation images")


def run(faces, make_loader, training, epochs, n=None):
    """Train a new network with the three functions given, on n images at most; return its accuracies, a list."""
    learner = Learner(waits=n is not None)
    data, validation = faces(train_paths[:n], SIDE, augment), faces(validation_paths[: n and n // 3], SIDE)
    loader = make_loader(data, sizes.batch_size, workers, device.type == "cuda")
    return training(loader, validation, learner.step, learner.accuracy, epochs)


def profiled(name, *functions):
    """Events of a profiled epoch, a list; its trace goes to traces/<name>.json in the data folder."""
    Learner().step(torch.zeros(8, 3, SIDE, SIDE))  # whatever is done once only
    with profile(activities=[ProfilerActivity.CPU]) as found:
        run(*functions, 1, 4 * sizes.batch_size)
    place = data_folder() / "traces"
    place.mkdir(parents=True, exist_ok=True)
    found.export_chrome_trace(str(place / f"{name}.json"))
    print(f"traces/{name}.json in your data folder: {(place / f'{name}.json').stat().st_size / 1e6:.1f} MB")
    return found.events()


def spans_of(events):
    """[(row, number, start, end)] of what the main process waits for, validates with and computes, in seconds."""
    rows = {"6 validation images": "validation images", "the network": "the network"}
    found = [
        (e.time_range.start, e.time_range.end, "waits for the loader" if "DataLoader" in e.name else rows[e.name])
        for e in events
        if "DataLoader" in e.name or e.name in rows
    ]
    first = min(found)[0]
    return [(row, k, (a - first) / 1e6, (b - first) / 1e6) for k, (a, b, row) in enumerate(sorted(found))]


starved = StarvedFaces, starved_loader, starved_training
events = profiled("starved", *starved)
spans = spans_of(events)
validating = [(start, end) for row, _, start, end in spans if row == "validation images"]
begin = min(e.time_range.start for e in events if "DataLoader" in e.name)
ms = dict.fromkeys(PIECES, 0.0)
for event in events:
    at = (event.time_range.start - begin) / 1e6
    if event.name in ms and (event.name == PIECES[-1] or not any(a <= at <= b for a, b in validating)):
        ms[event.name] += (event.time_range.end - event.time_range.start) / 1000
total = 1000 * max(end for *_, end in spans)
network = 1000 * sum(end - start for row, _, start, end in spans if row == "the network") / total
longest = max(ms, key=ms.get)
print(f"the network computes for {network:.0%} of the epoch" + reveal(predicted_share_of_the_network, "{:.0%}"))
print(f"longest: {longest}, {ms[longest] / total:.0%} of the epoch" + reveal(predicted_longest_piece))
course.claim("the script leaves the network idle for more than two thirds of the time", network < 1 / 3,
             f"it computes for {network:.0%}",
             otherwise="On your machine the network takes a larger share.")  # fmt: skip
arrays = [np.asarray(item) / 255 for item in (StarvedFaces(train_paths, SIDE)[k] for k in range(8))]
makers = {"list": lambda: torch.tensor(arrays), "stacked": lambda: torch.tensor(np.stack(arrays))}
made = comparison.compare(makers, seconds=sizes.pass_seconds)
course.claim("torch.tensor of one stacked array is more than ten times as fast as of a list of arrays",
             made.ratio("stacked"), above=10)  # fmt: skip
plots.stages({"as found": {name: 1000 * value / (4 * sizes.batch_size) for name, value in ms.items()}},
             f"As found: {longest[2:]} takes longest; the network computes for {network:.0%} of the epoch")  # fmt: skip

# %% [markdown]
# A profile shows Python code only where you label it; the rest of the loading hides in `__next__`. Open the trace in
# ui.perfetto.dev to see the pieces in their order. Did you spot piece 5? Stack the arrays before you call
# `torch.tensor`. PyTorch warns of a list of arrays, but the script silences the warning.
#
# **Takeaway** Label the pieces and profile an epoch before you change anything.
#
# ## How few pixels can you decode?
#
# A JPEG file holds blocks of 8 × 8 pixels as frequencies. A decoder that leaves out the high ones gives the picture at
# 1/2, 1/4 or 1/8 of its size for less work. `file.draft("RGB", (side, side))`, called before the pixels are loaded,
# lets PIL take the smallest of these sizes that is not below `side`.

# %% [markdown]
# ### Exercise 1 · The images
#
# Rewrite the dataset without its three faults.
#
# **Must**
# - give item i as a uint8 tensor (3, side, side): file i in RGB, decoded as a draft, then brought to size by `resize`;
# - open each file once per item, and leave it closed;
# - if there is an `augment`, apply it to the item's pixels only, again for each item.
#
# **Raises** OSError for a file that is cut off.
#
# **You may assume** square JPEG files, 1 to 16 times as wide as the item.
#
# **Points** 4 · **Core** · **Difficulty** ●●○ · **Minutes** 10 · **Lines** 7
#
# **Source** Pillow's documentation, `Image.draft`; Wallace 1991, "The JPEG still picture compression standard".
#
# <details><summary>Hint 1</summary>
#
# Does anybody need to look whether the file is broken, if decoding it raises an error anyway?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `draft` only promises a size near the one you ask for. What has to come after it, and what should come after that?
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# In a `with Image.open(...) as file`: `file.draft("RGB", (self.side, self.side))` and `picture = file.convert("RGB")`.
# Then `resize`, then `augment` if there is one, then `v2.functional.pil_to_tensor`.
#
# </details>


# %% solution="LeanFaces"
class LeanFaces(Dataset):
    """Faces of side x side pixels, uint8 (3, side, side), augmented.

    Args:
        paths: list of JPEG files.
        side: pixels of an item, across and down.
        augment: function of a PIL image or a uint8 tensor that gives the same, changed at random; None for none.
    """

    def __init__(self, paths, side, augment=None):
        self.paths, self.side, self.augment = paths, side, augment

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, i):
        """Item i.  Raises: OSError for a file that is cut off."""
        ### BEGIN SOLUTION
        with Image.open(self.paths[i]) as file:
            file.draft("RGB", (self.side, self.side))  # decodes 1/64, 1/16, 1/4 of the pixels, or all
            picture = file.convert("RGB")  # raises OSError if the file is broken
        picture = picture.resize((self.side, self.side))
        if self.augment is not None:
            picture = self.augment(picture)
        return v2.functional.pil_to_tensor(picture)
        ### END SOLUTION


# %% test="LeanFaces-visible" points=2
check.LeanFaces(LeanFaces)

# %% test="LeanFaces-hidden" points=2
### BEGIN HIDDEN TESTS
check.LeanFaces(LeanFaces, seed=1991)
### END HIDDEN TESTS

# %% [markdown]
# Are these still the same images? Above from the script, below from yours.

# %% tags=["experiment"]
LeanFaces_now = course.solved(check.LeanFaces)
shown = []
for faces in (StarvedFaces, LeanFaces_now):
    torch.manual_seed(1)
    data = faces(train_paths, SIDE, augment), faces(train_paths, SIDE)
    shown += [data[k % 2][(k // 2) * len(train_paths) // 3] / 255 for k in range(6)]
apart = [(a - b).abs().mean().item() for a, b in zip(shown[1:6:2], shown[7::2], strict=True)]
course.claim("without augmentation the script's dataset and yours yield nearly the same images", max(apart) < 0.03,
             f"on average {255 * max(apart):.1f} of 255 apart")  # fmt: skip
plots.batch_grid(torch.stack(shown), [f"{w}{a}" for w in ("script", "yours") for a in (", augmented", "") * 3], 6)

# %% [markdown]
# **Takeaway** Work on the pixels that the network gets, not on the file's.

# %% [markdown]
# ## What is wrong with the loader and the loop?
#
# ### Exercise 2 · The loader
#
# Rewrite the loader. It has two faults.
#
# **Must** return a `DataLoader` of shuffled, full batches
# - of uint8, like the items: no item becomes a list, an array or a float on its way;
# - built by `num_workers` forked processes that start once for all epochs, and pinned if `pin_memory`.
#
# **You may assume** nothing about `num_workers`: it may be 0.
#
# **Points** 3 · **Core** · **Difficulty** ●○○ · **Minutes** 5 · **Lines** 6
#
# **Source** PyTorch documentation of `torch.utils.data.DataLoader`.
#
# <details><summary>Hint 1</summary>
#
# Which `collate_fn` stacks uint8 tensors into a uint8 batch?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `persistent_workers=True` starts them once. It and `multiprocessing_context="fork"` are refused if there are no
# workers.
#
# </details>


# %% solution="lean_loader"
def lean_loader(dataset, batch_size, num_workers, pin_memory=False):
    """DataLoader of shuffled, full batches of bytes.

    Args:
        dataset: item i is a uint8 tensor (3, side, side).
        batch_size: items per batch.
        num_workers: processes that build batches, for all epochs; 0 builds them in the main process.
        pin_memory: whether batches come in pinned memory.

    Returns: torch.utils.data.DataLoader.
    """
    ### BEGIN SOLUTION
    workers = {"persistent_workers": True, "multiprocessing_context": "fork"} if num_workers else {}
    return DataLoader(
        dataset, batch_size, shuffle=True, drop_last=True, num_workers=num_workers, pin_memory=pin_memory, **workers
    )
    ### END SOLUTION


# %% test="lean_loader-visible" points=1
check.lean_loader(lean_loader)

# %% test="lean_loader-hidden" points=2
### BEGIN HIDDEN TESTS
check.lean_loader(lean_loader, seed=35)
### END HIDDEN TESTS

# %% [markdown]
# ### Exercise 3 · The training
#
# Rewrite the loop. The last fault is here: what is the same in every epoch?
#
# **Must**
# - in each of `epochs` epochs call `step(batch)` for every batch of a pass over `loader`, then `accuracy(images)`;
# - read each validation image once in the whole training, and stack them in their order: these are the `images`;
# - return the accuracies of all epochs, a list of floats.
#
# **You may assume** that validation images are not augmented and fit into memory.
#
# **Points** 3 · **Core** · **Difficulty** ●○○ · **Minutes** 5 · **Lines** 7
#
# **Source** The task is ours.
#
# <details><summary>Hint 1</summary>
#
# Which line of the script gives the same result in every epoch?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Move it in front of the loop over epochs. Iterating over `loader` again makes a new pass, in a new order.
#
# </details>


# %% solution="lean_training"
def lean_training(loader, validation, step, accuracy, epochs):
    """Train for some epochs.

    Args:
        loader: batches; each pass over it is an epoch.
        validation: dataset of uint8 tensors (3, side, side), always the same.
        step: function of a batch that trains on it.
        accuracy: function of images (n, 3, side, side) that gives a float.
        epochs: how many.

    Returns: the accuracy on the validation images after each epoch, a list.
    """
    ### BEGIN SOLUTION
    images = torch.stack([validation[i] for i in range(len(validation))])
    reached = []
    for _ in range(epochs):
        for batch in loader:
            step(batch)
        reached.append(accuracy(images))
    return reached
    ### END SOLUTION


# %% test="lean_training-visible" points=1
check.lean_training(lean_training)

# %% test="lean_training-hidden" points=2
### BEGIN HIDDEN TESTS
check.lean_training(lean_training, seed=60)
### END HIDDEN TESTS

# %% [markdown]
# ## How fast is it now?
#
# We time a training of a few epochs, start of the workers included: as found, then with your dataset, your loader and
# your training added one after the other.
#
# **Predict**: how many times as fast is the training with all three?

# %%
predicted_times_as_fast = None  # your number

# %% tags=["experiment"]
lean_loader_now, lean_training_now = course.solved(check.lean_loader), course.solved(check.lean_training)
ladder = {
    "as found": starved,
    "your dataset": (LeanFaces_now, starved_loader, starved_training),
    "and your loader": (LeanFaces_now, lean_loader_now, starved_training),
    "and your training": (LeanFaces_now, lean_loader_now, lean_training_now),
}
drawn = sizes.starved_epochs * (len(train_paths) // sizes.batch_size) * sizes.batch_size
reached = {}


def seconds_of(name):
    """Seconds of a whole training."""
    begin = time.perf_counter()
    reached[name] = run(*ladder[name], sizes.starved_epochs)
    return time.perf_counter() - begin


trainings = comparison.compare_measured(list(ladder), seconds_of, rounds=sizes.starved_rounds, progress=True)
print(trainings)
print("accuracy: " + ", ".join(f"{name} {reached[name][-1]:.2f}" for name in ladder))
times, by_dataset = (trainings.ratio(name) for name in ("and your training", "your dataset"))
by_loader = comparison.ratio_interval(trainings.seconds["your dataset"], trainings.seconds["and your loader"])
print(f"{times} times as fast" + reveal(predicted_times_as_fast))
course.claim("the training is at least three times as fast as found", times, above=3)
course.claim("your dataset makes the training at least 1.2 times as fast", by_dataset, above=1.2)
course.claim("your loader makes the training at least 1.2 times as fast", by_loader, above=1.2)
chance = 0.25 + 2 * (0.25 * 0.75 / len(validation_paths)) ** 0.5  # two standard errors above
course.claim("the fixed training still learns: its accuracy is well above the 0.25 of chance",
             reached["and your training"][-1] > chance,
             f"{reached['and your training'][-1]:.2f}; as found {reached['as found'][-1]:.2f}",
             otherwise="Raise the number of epochs.")  # fmt: skip
plots.ratios(trainings, "A training as found, and with your three functions added one after the other")

# %% [markdown]
# **Takeaway** A starved training gets faster without touching the network: less work per item first, then workers.

# %% [markdown]
# ## Are all six faults gone?
#
# A gain may be luck. So count what the two trainings do, as found and now.


# %% tags=["experiment"]
class Noted(Dataset):
    """The items of `data`, each counted as a validation image."""

    def __init__(self, data, counts):
        self.data, self.counts = data, counts

    def __len__(self):
        return len(self.data)

    def __getitem__(self, i):
        item = self.data[i]
        self.counts.add("validation images read")
        return item


def counted(faces, make_loader, training):
    """LoadCounts of a training."""
    counts, learner = LoadCounts(), Learner()

    def step(batch):
        counts.add("batches")
        counts.add("bytes handed over", batch.nbytes)
        learner.step(batch)

    with counts:
        data, validation = faces(train_paths, SIDE, counts.watch(augment)), Noted(faces(validation_paths, SIDE), counts)
        loader = make_loader(data, sizes.batch_size, workers)
        training(loader, validation, step, learner.accuracy, sizes.starved_epochs)
    return counts


counts_of = {name: counted(*ladder[name]) for name in ("as found", "and your training")}
per_image = {
    name: {
        "1 files opened per image": c["files opened"] / (drawn + c["validation images read"]),
        "2 pixels decoded per image": c["pixels decoded"] / (drawn + c["validation images read"]),
        "3 pixels augmented per image": c["pixels augmented"] / drawn,
        "4 processes started": c["processes started"],
        "5 bytes handed over per image": c["bytes handed over"] / drawn,
        "6 readings of a validation image": c["validation images read"] / len(validation_paths),
    }
    for name, c in counts_of.items()
}
due = [1, 6 * SIDE * SIDE, SIDE * SIDE, workers, 3 * SIDE * SIDE, 1]
print(f"{'':<34}{'as found':>10}{'now':>10}{'due':>10}")
gone = []
for (what, before), now, most in zip(per_image["as found"].items(), per_image["and your training"].values(), due,
                                     strict=True):  # fmt: skip
    gone.append(now == workers if what[0] == "4" else now <= most)
    print(f"{what:<34}{before:>10,.0f}{now:>10,.0f}{most:>10,.0f}  {'gone' if gone[-1] else 'STILL THERE'}")
course.claim("all six faults are gone", all(gone), f"{sum(gone)} of 6")

# %% [markdown]
# **Takeaway** Counting tells you whether the fault is gone. Timing tells you what the fix was worth.

# %% [markdown]
# ## The unit on one page
#
# | symptom | measure | fix |
# |---|---|---|
# | the device waits | share of the epoch that the loop waits (7); the pieces in a profile | the slowest piece first |
# | workers do not help | cores busy, CPU time per image (2) | fewer workers, fewer bytes to send |
# | how many workers? | $a$, $c$, $n$ of one worker, and $T(0)$ (4) | the fewest that are nearly the best |
# | all cores are full | the pieces in a profile (7) | `draft`, another decoder, threads (6, 7) |
# | a cold or remote disk | waiting against computing (4) | more workers; large files, such as tar shards |
# | sending a batch takes long | ms per MB (3) | `uint8` until the batch has arrived |
# | each epoch starts late | time to the first batch (3) | `persistent_workers=True` |
# | the queue runs empty now and then | batches ready (3) | a larger `prefetch_factor` |
# | copies stall the GPU | the copy and compute streams (5) | `pin_memory`, `non_blocking`, a second stream |
# | augmentations repeat | different numbers per epoch (3) | `worker_init_fn`, or a seed per image |

# %% [markdown]
# ## On your own training
#
# **Is your own loader fast enough?**
#
# `course.checkup` watches a training and says where its time goes and what to change first. Here it watches the rescued
# run. Replace `my_loader` and `my_step` by yours. Without `only_watch` it also tries what might help.

# %% tags=["experiment"]
my_loader = lean_loader_now(LeanFaces_now(train_paths, SIDE, augment), sizes.batch_size, workers)
my_step = Learner().step
print(course.checkup(my_loader, my_step, steps=20, only_watch=True))

# %% [markdown]
# **Takeaway** A loader is fast enough when the training does not wait for data. The rescued run still waits.
