# %% [markdown]
# # Parallel loading, part 2: Measure a loader honestly
#
# **How much faster are two workers, and why not twice as fast?**
#
# You write a timer that covers a whole pass over a loader and nothing else, measure all settings in turn, and draw what
# comes out with its spread. With them you compare a cheap transform with an expensive one, find out stage by stage what
# an image costs, and explain a speed-up as a product of two measured factors. At the end you prove two bugs of a
# published timing script.
#
# **You will be able to**
#
# - time a loader so that start-up, warm-up and queued GPU work are counted where they belong;
# - compare settings without favouring the one that was measured first;
# - tell from two numbers why a speed-up falls short.
#
# **Minutes** 50 core · 120 in all
#
# **Needs** part 1: its `LFWDataset` and `batch_grid` are taken over if you solved them

# %% locked="setup"
import functools
import itertools
import math
import random
import time
import warnings

import matplotlib.pyplot as plt
import torch
from torch.utils.data import default_collate
from torchvision import transforms

import course
from course import loaders, timing, usage
from course.checks import parallel_loading as check
from course.datasets import lfw
from course.plots import parallel_loading as plots
from course.predictions import reveal

warnings.filterwarnings("ignore", "This DataLoader will create")  # more workers than cores: we try that on purpose
print(course.machine())

# %% [markdown]
# ## An honest timer
#
# **A time is worth something when it covers all of the work and nothing else, when it was taken more than once, and
# when every setting was measured under the same conditions.**
#
# What belongs to a pass over a loader? Asking it for an iterator starts the workers; the first batch then takes longer
# than the others, because nothing is ready yet. All this is paid again in every epoch, so it belongs to the pass. With
# `persistent_workers=True` the workers live on, and only the first pass starts them: a pass to warm up keeps this cost
# out of the result, else it would be in one of five passes. The warm-up also fills the disk cache, which would
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
# ### Exercise 1 · Seconds per pass
#
# Measure how long `repeats` passes over the first `n_batches` batches of a loader take, after `warmup` passes that are
# not counted.
#
# **Points** 4 · **Core** · **Difficulty** ●●○ · **Minutes** 30 · **Lines** 15
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
                f"asked for {n_batches} batches per pass, found {found}: ask for fewer, or a larger dataset."
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
# ### Exercise 2 · Sweep in rounds
#
# Measure every setting `rounds` times: round by round, each round in a newly shuffled order.
#
# **Points** 2 · **Extra** · **Difficulty** ●○○ · **Minutes** 15 · **Lines** 7
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
# ### Exercise 3 · Time against workers
#
# Draw the mean time of a pass against the number of workers, with an error bar for the spread over the passes.
#
# **Points** 3 · **Extra** · **Difficulty** ●○○ · **Minutes** 20 · **Lines** 6
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
        seconds: float64 tensor (len(workers), repeats) on the CPU, at least two passes per row.

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
# (`persistent_workers=True`, and a pass to warm up); part 3 measures what their start costs.
#
# How many times as fast as the main process alone are two workers, on your machine? 2 would be perfect.

# %%
predicted_speedup_plain = None  # your number: 2 = twice as fast as no workers

# %% tags=["experiment"]
torch.set_num_threads(1)  # as in a worker: one image is too little work for several threads
sizes = course.sizes("01_parallel_loading")
LFWDataset_now = course.solved(check.LFWDataset)
seconds_per_pass_now = course.solved(check.seconds_per_pass)
worker_plot_now = course.solved(check.worker_plot)
time_all = functools.partial(  # the loaders given, in turn, whole passes
    timing.time_in_turn, seconds_per_pass=seconds_per_pass_now, sweep=course.solved(check.sweep)
)
folder = lfw.folder(sizes.dataset)
plain = loaders.evenly_spaced(LFWDataset_now(folder), sizes.images)
counts = loaders.worker_counts(len(plain) // sizes.batch_size)
plain_seconds = time_all([loaders.forked(plain, sizes.batch_size, w) for w in counts], sizes.rounds)
print(f"2 workers are {timing.speedup(plain_seconds, counts.index(2))} times as fast" + reveal(predicted_speedup_plain))
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
    pairs = time_all([loaders.forked(plain, batch_size, w) for w in (0, 1, 2)], max(2, sizes.rounds - 2))
    batch_curves[f"batch {batch_size}"] = (0, 1, 2), pairs
plots.rates(batch_curves, len(plain), loaders.cores(), "ToTensor: workers and batch size")

# %% [markdown]
# With workers the size of the batch changes little. What a batch costs in messages is less than a millisecond (part 3
# measures it), against half a millisecond or more for each of its images, so there is little to save.
#
# Look at 0 workers instead. The largest batch is the *slowest*, and that has nothing to do with loading: at the
# scale `laptop` its 128 float images are a block of 96 MB, and the C library of Linux gives blocks above 32 MB back
# to the system as soon as they are free. Each new batch then gets fresh pages, which the system clears one by one.
# A smaller block is kept and used again. Workers pay for fresh pages at every size, because the shared memory of
# each batch is new. Whoever compares with 0 workers at a large batch only, finds workers better than they are.

# %% [markdown]
# ## More work per image
#
# **Augmentation runs in the worker, image by image: the more of it, the more there is to divide.**
#
# The chain below turns, shifts and zooms an image, mirrors it now and then, and changes its colours. It is there to
# cost something, and it costs what real training pipelines cost.

# %% [markdown]
# ### Exercise 4 · A heavy transform
#
# Build an augmentation that costs more than the decoding of the JPEG: a random rotation, shift and zoom, a random
# mirror image, random colours, and a tensor at the end.
#
# **Points** 2 · **Core** · **Difficulty** ●○○ · **Minutes** 10 · **Lines** 10
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
batch_grid_now = course.solved(check.batch_grid)
heavy_transform_now = course.solved(check.heavy_transform)
heavy = loaders.evenly_spaced(LFWDataset_now(folder, heavy_transform_now()), sizes.images)
shown = range(0, len(plain), len(plain) // 6)[:6]
torch.manual_seed(0)
variants = [shown[2]] * 3 + [shown[4]] * 3
batch_grid_now(torch.stack([heavy[i] for i in variants]), [heavy.name(i) for i in variants])

# %% [markdown]
# ### What an image costs, stage by stage
#
# Before the sweep, the costs in one process without a loader: the mean over the images.


# %% tags=["experiment"]
raw = LFWDataset_now(folder, transform=lambda picture: picture)  # item i is the decoded PIL image
raw.paths = plain.paths[:: max(1, len(plain) // sizes.probe)]
to_tensor, heavy_chain = transforms.ToTensor(), heavy_transform_now()
costs = {}
costs["read the file"], _ = timing.microseconds(lambda path: path.read_bytes(), raw.paths)
with_reading, pictures = timing.microseconds(raw.__getitem__, range(len(raw)))
costs["decode (PIL)"] = with_reading - costs["read the file"]
costs["ToTensor"], tensors = timing.microseconds(to_tensor, pictures)
with_tensor, _ = timing.microseconds(heavy_chain, pictures)
groups = [tensors[i : i + sizes.batch_size] for i in range(0, len(tensors), sizes.batch_size)]
per_batch, _ = timing.microseconds(default_collate, groups)
collating = {"collate": per_batch * len(groups) / len(tensors)}
parts = {"light": costs | collating, "heavy": costs | {"augment": with_tensor - costs["ToTensor"]} | collating}
for label, stages in parts.items():
    each = ", ".join(f"{name} {us:.0f}" for name, us in stages.items())
    print(f"{label}: {each}, sum {sum(stages.values()):.0f} µs")
plots.stages(parts, "What an image costs in one process")

# %% [markdown]
# The file is read from the page cache, so reading is nearly free; on a cold disk it would not be. (The cell keeps
# all results of a stage before the next one begins, so that each writes into fresh memory: the sum is more than an
# image costs in a loop.) Decoding is not the largest part of the light transform's cost: turning bytes into floats
# and putting the floats together into a batch take longer. The heavy transform multiplies the work on one image, and
# not the number of bytes that have to be handed over. So will two workers help more, or less?

# %%
predicted_speedup_heavy = None  # your number: how many times as fast as no workers are two, with the heavy transform?

# %% tags=["experiment"]
heavy_seconds = time_all([loaders.forked(heavy, sizes.batch_size, w) for w in counts], sizes.rounds)
print(f"2 workers are {timing.speedup(heavy_seconds, counts.index(2))} times as fast" + reveal(predicted_speedup_heavy))
both = {"ToTensor": (counts, plain_seconds), "heavy": (counts, heavy_seconds)}
plots.rates(both, len(plain), loaders.cores(), "Light and heavy transform")

# %% [markdown]
# ### Why not twice as fast?
#
# The system counts how many seconds of CPU each process has used. `usage.cpu_seconds()` adds up this process and
# its workers. The speed-up is then a product of two factors: how many cores are busy on average, and how much CPU
# time an image costs now compared with an image in the main process alone.


# %% tags=["experiment"]
def cpu_per_image(data, num_workers, passes=3):
    """CPU ms per image in the main process and in all workers, and the number of cores busy on average."""
    batches = loaders.forked(data, sizes.batch_size, num_workers)
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
    alone, _, busy_alone = cpu_per_image(data, 0)
    main, in_workers, busy = cpu_per_image(data, 2)
    factor = alone / (main + in_workers)
    print(f"{label:<9} 0 workers: {alone:.2f} ms CPU per image, {busy_alone:.2f} cores busy")
    print(f"{'':<9} 2 workers: {in_workers:.2f} ms in workers, {main:.2f} ms in main, {busy:.2f} cores busy")
    print(f"{'':<9} speed-up = {busy:.2f} / {busy_alone:.2f} cores x {factor:.2f} (CPU per image, before / now)")

# %% [markdown]
# Two factors and their product. The first says whether the cores had work: it falls short of 2 where workers wait
# for the main process, at the beginning of a pass, and whenever another job took a core. The second says what an
# image costs now compared with before. It is below 1 because processes do what a single one need not: write the
# batch into fresh shared memory, page by page, which the system clears first; map it into the main process; send and
# receive. These costs are the same for light and heavy images: large compared with little work, small compared with
# much. Two cores that share a cache and the memory's bandwidth are also not quite two cores.

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
# ### Exercise 5 · Show it
#
# Read `published_timing`, then prove what you think. Write a function that says for *any* timing function how many
# batches it really draws when it is asked for `n_batches`. It must acquit your `seconds_per_pass`.
#
# **Points** 2 · **Extra** · **Difficulty** ●●○ · **Minutes** 20 · **Lines** 10
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
# ### Exercise 6 · Mend the report
#
# The last line of `published_timing` prints the same on every machine. Write the line that it was meant to print, and
# add what makes two runs comparable: images per second.
#
# **Points** 2 · **Extra** · **Difficulty** ●○○ · **Minutes** 10 · **Lines** 4
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
print(f"published_timing draws {batches_drawn_now(published_timing, 100)}" + reveal(predicted_batches_published))
print(f"seconds_per_pass draws {batches_drawn_now(seconds_per_pass_now, 100)}")
n_batches = math.ceil(len(plain) / sizes.batch_size)
line = timing_line_now(plain_seconds[counts.index(2)], n_batches, sizes.batch_size)
print(f"2 workers, ToTensor: {line}")

# %% [markdown]
# ## What to take with you
#
# 1. Measure in turn, with a warm-up, more than once, and say the spread. Draw exactly as many batches as you divide by.
# 2. Two numbers explain a disappointing speed-up: how many cores were busy, and what an image costs now.
#
# Part 3 looks at what many processes change: random numbers, copies of bytes, start-up and memory.
