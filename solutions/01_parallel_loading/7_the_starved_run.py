# %% [markdown]
# # Parallel loading, part 7: Rescue a starved run
#
# **How close to its ceiling can you bring a starved training?**
#
# The script of part 1 has six faults in its loading. You read it, rewrite its dataset, its loader and its loop, and see
# in the waterfall which bars get shorter. Then you count files, pixels, processes and bytes to see which faults are
# gone.
#
# **You will be able to**
#
# - decode and augment only about as many pixels as the network gets;
# - say what a fix was worth, and how far the ceiling still is;
# - confirm a fix by a count.
#
# **Minutes** 47 core · 47 in all · session 2
#
# **Needs** `Ceiling` of part 1, `seconds_per_pass` of part 2 and `seed_worker` of part 3

# %% locked="setup"
import functools
import inspect
import time
import warnings

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2

import course
from course.checks import parallel_loading as check
from course.datasets import lfw
from course.loading import loaders
from course.measure import comparison, waterfall
from course.plots import parallel_loading as plots
from course.training import keep_source, starved_run, starved_script
from course.training.starved_script import StarvedFaces, starved_loader, starved_training

# more workers than cores, on a small machine
warnings.filterwarnings("ignore", "This DataLoader will create")
# part 8 explains
warnings.filterwarnings("ignore", ".*use of fork\\(\\) may lead to deadlocks", DeprecationWarning)
print(course.machine())

# %% [markdown]
# ## What is wrong with this script?
#
# The network learns to tell by how many quarter turns an image was rotated, which needs no labels (Gidaris, Singh and
# Komodakis 2018, "Unsupervised representation learning by predicting image rotations"). It takes images of 60 × 60
# pixels. The next cell prints the dataset, the loader and the loop. Together they have six faults. How many do you see?

# %%
# 55 lines to read
print(inspect.getsource(starved_script))

# %% [markdown]
# The next cell draws the script's waterfall. As in part 1, a bar is what a step gains if one more stage is replayed
# from memory, and the last bar is the step with data for free. A black frame marks a negative bar.

# %% tags=["experiment"]
torch.set_num_threads(1)  # so that a bar does not depend on how threads share the cores
sizes = course.sizes("01_parallel_loading")
folder = lfw.folder(sizes.dataset)
task = starved_run.task(folder, sizes.starved_images, sizes.batch_size, sizes.starved_epochs)
measure = functools.partial(
    waterfall.measure,
    replay=course.solved(check.Ceiling),
    transfer=starved_run.to_device,
    device=course.device(),
    **sizes.waterfall,
)
learner = starved_run.Learner()
script_faces = task.faces(StarvedFaces)
script_loader = starved_loader(script_faces, task.batch_size, num_workers=0)

as_found = measure(script_loader, learner.step)
share = as_found.share(waterfall.STEP)

print(f"null: {as_found.null.scaled(1000)} ms per step by replaying nothing")
plots.waterfall({"as found": as_found}, f"As found, training takes {share:.0%} of a step")

# %% [markdown]
# One fault happens between the epochs, so no bar shows it. And did you spot the fault behind *collate*? PyTorch warns
# of it, but the script silences the warning. The next cell changes only this call in `as_floats`:

# %% tags=["experiment"]
faces = StarvedFaces(task.train, starved_run.SIDE)
arrays = [np.asarray(faces[k]) / 255 for k in range(8)]


def from_list():
    return torch.tensor(arrays)


def from_stacked_array():
    return torch.tensor(np.stack(arrays))


makers = {"list": from_list, "stacked": from_stacked_array}
made = comparison.compare(makers, seconds=sizes.waterfall["seconds"])

course.claim(
    "torch.tensor of one stacked array is more than ten times as fast as of a list of arrays",
    made.ratio("stacked"),
    above=10,
)

# %% [markdown]
# **Shown**: the list makes it slow, because nothing else differs. **Known**: if `torch.tensor` gets a list of arrays,
# it makes a Python object of every number (`torch/csrc/utils/tensor_new.cpp`). If it gets one array, it copies the
# memory.
#
# **Takeaway** A bar tells you where to look, not what is wrong there. Change one line, then measure that line.

# %% [markdown]
# ## How few pixels can you decode?
#
# The script decodes whole pictures, but the network takes small ones. A JPEG decoder can do less. The file holds blocks
# of 8 × 8 pixels as frequencies. If the decoder leaves out the high frequencies, it gets the picture at 1/2, 1/4 or 1/8
# of its size for less work. Call `file.draft("RGB", (side, side))` before the pixels are loaded, and PIL takes the
# smallest of these sizes that is not below `side`.

# %% [markdown]
# ### Exercise 1 · The images
#
# Rewrite the dataset. It has three faults.
#
# **Must**
# - give item i as a uint8 tensor (3, side, side): file i in RGB, decoded as a draft, then brought to size by PIL's
#   `resize` with its default filter;
# - open each file once per item, and leave no file open;
# - if there is an `augment`, apply it to the downscaled picture, each time that somebody asks for an item.
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
# Do you need to check whether the file is broken, if decoding it raises an error anyway?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `draft` only promises a size near the one you ask for. What has to come after `draft`, and where does `augment` cost
# least?
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
        augment: function that changes a PIL image or a uint8 tensor at random and returns it; optional.
    """

    def __init__(self, paths, side, augment=None):
        self.paths = paths
        self.side = side
        self.augment = augment

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, i):
        """Item i.  Raises: OSError for a file that is cut off."""
        ### BEGIN SOLUTION
        with Image.open(self.paths[i]) as file:
            # decodes 1/64, 1/16, 1/4 of the pixels, or all
            file.draft("RGB", (self.side, self.side))
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
# Are these still the same images? The upper row is from the script's dataset, the lower row from yours.

# %% tags=["experiment"]
LeanFaces_now = course.solved(check.LeanFaces)

examples = [k * len(task.train) // 3 for k in range(3)]

rows = {}
for name, dataset in {"script": StarvedFaces, "yours": LeanFaces_now}.items():
    torch.manual_seed(1)
    plain = dataset(task.train, starved_run.SIDE)
    augmented = task.faces(dataset)
    rows[name] = torch.stack([plain[i] for i in examples]) / 255
    rows[f"{name}, augmented"] = torch.stack([augmented[i] for i in examples]) / 255
distances = (rows["script"] - rows["yours"]).abs().mean(dim=(1, 2, 3))
largest = distances.max().item()
is_near = largest < 0.03  # of 1

course.claim(
    "without augmentation the script's dataset and yours yield nearly the same images",
    is_near,
    f"on average {255 * largest:.1f} of 255 apart",
)
titles = [name for name in rows for _ in examples]
plots.batch_grid(torch.cat(list(rows.values())), titles, columns=6)

# %% [markdown]
# **Takeaway** Work on the pixels that the network gets, not on all pixels of the file.

# %% [markdown]
# ## What is wrong with the loader and the loop?
#
# ### Exercise 2 · The loader
#
# Rewrite the loader. It has two faults.
#
# **Must** return a `DataLoader` of shuffled, full batches
# - of uint8, like the items, so no item becomes a list, an array or a float on its way;
# - built by `num_workers` forked processes that start once for all epochs, and pinned if `pin_memory` is true.
#
# `num_workers` may be 0. (`persistent_workers=True` keeps workers for all epochs, and `multiprocessing_context="fork"`
# forks them. `DataLoader` refuses both if there are no workers.)
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
# Collect the two arguments that need workers in a dictionary, which stays empty if `num_workers` is 0. Then call
# `DataLoader(..., **options)`.
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
        dataset,
        batch_size,
        shuffle=True,
        drop_last=True,
        num_workers=num_workers,
        pin_memory=pin_memory,
        **workers,
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
# Rewrite the loop, which has the last fault. What does it do in every epoch, although the result is always the same?
#
# **Must**
# - in each epoch, call `step(batch)` for every batch of a pass over `loader`, then `accuracy(images)`;
# - read each validation image once in the whole training, and stack all of them in their order, which gives `images`;
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
# ## Which bars are gone?
#
# The next cell draws three waterfalls on one axis: as found, with your dataset in the script's loader, and with your
# dataset and your loader. Only the last one has workers. Remember that a bar shows what a stage adds to the step, not
# how long the stage takes.
#
# **Predict**: after both fixes, which stage has the longest bar? Decoding and transforming take time, but the workers
# do them while the network trains. Collating now stacks bytes. And receiving what workers send costs the main
# process time.

# %%
predicted_longest_bar = None  # "read", "decode", "transform", "collate" or "transfer"

# %% tags=["experiment"]
lean_loader_now = course.solved(check.lean_loader)
workers = starved_run.usual_workers()
lean_faces = task.faces(LeanFaces_now)
half_loader = starved_loader(lean_faces, task.batch_size, num_workers=0)

half_rescued = measure(half_loader, learner.step)
rescued = measure(lean_loader_now(lean_faces, task.batch_size, workers), learner.step)

print(f"null, your dataset:    {half_rescued.null.scaled(1000)} ms per step")
print(f"null, and your loader: {rescued.null.scaled(1000)} ms per step")
said = "the longest bar after the repairs"
print(course.score("01/7", said, predicted_longest_bar, rescued.longest, null=None))
print(f"as found 1 process, rescued {1 + workers} on {loaders.cores()} cores")
title = (
    f"A step takes {1000 * as_found.step:.0f} ms as found, and {1000 * rescued.step:.0f} ms rescued, "
    f"of which training takes {rescued.share(waterfall.STEP):.0%}"
)
found = {"as found": as_found, "your dataset": half_rescued, "and your loader": rescued}
plots.waterfall(found, title)

# %% [markdown]
# **Shown**: between the first two waterfalls only the dataset changes, so your dataset makes the difference. The figure
# does not say how much each of its three fixes did. Your loader changes three things: it has no list of arrays, its
# batches are bytes instead of floats, and it has workers.
#
# If a loading bar is still long, these workers cannot hide its work behind the training. Compare the numbers of
# processes and cores that the cell prints:
#
# - If the cores are full, do less work per item. For example, keep the decoded items in memory, because they are small,
#   and only augment them in each epoch. Or let a GPU that waits augment whole batches.
# - If some cores are idle, more workers may help. They may also help if items wait for a disk (part 4).
#
# **Takeaway** Fix the loading until its bars together are short compared with the step. If cores are idle, add workers.
# If they are full, remove work.

# %% [markdown]
# ## How fast is the whole training now?
#
# A step is not the whole training. The next cell times whole trainings of a few epochs, and includes the start of the
# workers. It begins with the script as found, then adds your dataset, your loader and your training one after the
# other. It repeats each with other seeds.
#
# **Predict**: how many times as fast is the training with all three? The waterfalls tell you what a step gains.
# Starting workers costs time, and reading the validation images only once saves time.

# %%
predicted_times_as_fast = None  # your number

# %% tags=["experiment"]
lean_training_now = course.solved(check.lean_training)
ladder = {
    "the script": (StarvedFaces, starved_loader, starved_training),
    "your dataset": (LeanFaces_now, starved_loader, starved_training),
    "and your loader": (LeanFaces_now, lean_loader_now, starved_training),
    "and your training": (LeanFaces_now, lean_loader_now, lean_training_now),
}
accuracies = {name: [] for name in ladder}


def seconds_of(name):
    """Seconds of a whole training, with the next seed."""
    begin = time.perf_counter()
    by_epoch = task.run(ladder[name], seed=len(accuracies[name]))
    seconds = time.perf_counter() - begin
    accuracies[name].append(by_epoch[-1])
    return seconds


trainings = comparison.compare_measured(
    list(ladder), seconds_of, rounds=sizes.starved_rounds, progress=True
)
print(trainings)

# %% tags=["experiment"]
times = trainings.ratio("and your training")
print(course.score("01/7", "times as fast with all three", predicted_times_as_fast, times))
course.claim("the training is at least three times as fast as found", times, above=3)
course.claim(
    "your dataset makes the training at least 1.2 times as fast",
    trainings.ratio("your dataset"),
    above=1.2,
)
course.claim(
    "your loader makes the training at least 1.2 times as fast",
    trainings.ratio("and your loader", to="your dataset"),
    above=1.2,
)
plots.ratios(trainings, f"With all three: {times} times as fast")

# %% [markdown]
# Does the network still learn as well? Your dataset augments after it downscales, so the network sees slightly
# different images. So compare the accuracies of several seeds.

# %% tags=["experiment"]
n_seeds = min(len(accuracies["and your training"]), len(accuracies["the script"]))
of_rescued = accuracies["and your training"][:n_seeds]
of_script = accuracies["the script"][:n_seeds]
change = comparison.difference_interval(of_rescued, of_script)

print("rescued: accuracies " + ", ".join(f"{accuracy:.2f}" for accuracy in of_rescued))
print("as found: accuracies " + ", ".join(f"{accuracy:.2f}" for accuracy in of_script))
print(
    f"accuracy after {task.epochs} epochs, {n_seeds} seeds: rescued minus as found {change}; by chance 0.25"
)
course.claim("the rescued training is at most 0.1 less accurate than as found", change, above=-0.1)

# %% [markdown]
# If the claim holds, it excludes a broken training, but not a small loss of accuracy. The printed accuracies show how
# much the seed alone changes. A narrower claim would need more seeds and more validation images.
#
# **Takeaway** You can speed up a starved training without touching the network. If you change what the network sees,
# compare accuracies over several seeds.

# %% [markdown]
# ## Are all six faults gone?
#
# A faster run does not prove that each fault is gone. So count what the training does, as found and now. The column
# "due" says what the count must be for the fault to be gone.

# %% tags=["experiment"]
before = starved_run.counted(task, ladder["the script"])
now = starved_run.counted(task, ladder["and your training"])
gone = starved_run.faults_gone(before, now)
course.claim("all six faults are gone", all(gone), f"{sum(gone)} of 6")

# %% [markdown]
# **Takeaway** Counting tells you whether the fault is gone. Timing tells you what the fix was worth.

# %% [markdown]
# ## The unit on one page
#
# | symptom | measure | fix |
# |---|---|---|
# | the device waits | share of waiting, the ceiling, the waterfall (1) | the longest bar first |
# | workers do not help | cores busy, CPU time per image (2) | fewer workers, fewer bytes to send |
# | how many workers? | $a$ and $c$ of one worker, $n$, and $T(0)$ (4) | the fewest that are nearly the best |
# | all cores are full | the waterfall in one process (7) | `draft` (7), another decoder, threads (6) |
# | a cold or remote disk | waiting against computing (4) | more workers; larger files |
# | sending a batch takes long | floats against bytes (8), tensors per batch (3) | `uint8` until the batch has arrived |
# | each epoch starts late | time to the first batch (8) | `persistent_workers=True` |
# | the queue runs empty now and then | batches ready (8) | a larger `prefetch_factor` |
# | copies stall the GPU | the share of time that the bus copies (5) | `pin_memory`, `non_blocking`, a second stream |
# | augmentations repeat | different numbers per epoch (3) | `worker_init_fn`, or a seed per image |

# %% [markdown]
# ## On your own training
#
# **Is your own loader fast enough?**
#
# Replace the first two lines of the next cell by yours: `my_loader` is a `DataLoader`, and `my_step` trains on a batch.
# As it stands, the cell measures the rescued run again. Then `course.checkup` watches the same training. It says where
# time goes, tries changes, and advises what to change first, or says that you are at the ceiling.

# %% tags=["experiment"]
my_loader = lean_loader_now(lean_faces, task.batch_size, workers)
my_step = starved_run.Learner().step

mine = measure(my_loader, my_step, transfer=None)  # my_step moves the batch to the device
report = course.checkup(my_loader, my_step, steps=20, minutes=sizes.checkup_minutes)

print(report.brief)
plots.waterfall({"my training": mine})

# %% [markdown]
# In the report, `cell:n` is line n of the cell whose code runs: the cell of a class, or the one above. `print(report)`
# also lists the facts, and what was tried and is not advised. For a script, run `course checkup train.py` in a
# terminal. If the report advises more threads, remember that this notebook has given torch only one.
#
# The waterfall and the report answer different questions. The report gives the median of single steps, the waterfall
# the mean over a pass. In the report, *data* is only the time that the loop waits. In the waterfall, a replay also
# stops the workers, which gives their cores back to the step.
#
# **Takeaway** A loader is fast enough when the training does not wait for data.

# %% [markdown]
# ## What do you take home?
#
# The next cell saves your `seconds_per_pass`, `Ceiling` and `seed_worker` as a module that needs only torch and NumPy.

# %% tags=["experiment"]
tools = [
    course.solved(check.seconds_per_pass),
    course.solved(check.Ceiling),
    course.solved(check.seed_worker),
]
print(keep_source.saved("loading_tools.py", keep_source.LOADING, tools))

# %% [markdown]
# **Takeaway** Before you tune a loader, time it against data for free.

# %% [markdown]
# ## How good was your intuition?
#
# The list has the predictions of the parts that you have run.

# %%
course.calibration("01")
