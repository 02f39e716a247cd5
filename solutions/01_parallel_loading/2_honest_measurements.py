# %% [markdown]
# # Parallel loading, part 2: Measure a loader honestly
#
# **Are two workers faster than none?**
#
# A stopwatch answers this in a second, and the answer is often wrong. In this part you write a better timer. Then you
# compare loaders in rounds, until you know how sure you are.
#
# **You will be able to**
#
# - time a loader without mixing in its start-up, its warm-up or queued GPU work;
# - compare two settings in rounds, with a control and an interval;
# - say why a speed-up is smaller than the number of workers.
#
# **Minutes** 26 core · 32 in all
#
# **Needs** part 1: your `LFWDataset` is used if you solved it

# %% locked="setup"
import functools
import itertools
import time
import warnings

import torch
from torchvision.transforms import v2

import course
from course.checks import parallel_loading as check
from course.datasets import lfw
from course.loading import loader_passes, loaders
from course.measure import comparison
from course.plots import parallel_loading as plots

warnings.filterwarnings(
    "ignore", "This DataLoader will create"
)  # more workers than cores: we try that on purpose
warnings.filterwarnings(
    "ignore", ".*use of fork\\(\\) may lead to deadlocks", DeprecationWarning
)  # part 8 explains
print(course.machine())

# %% [markdown]
# ## What does a stopwatch say?
#
# This is the comparison that everybody makes first: one pass over the faces without workers, and one with two. Then the
# cell times the loader without workers five more times.

# %% tags=["experiment"]
torch.set_num_threads(1)  # as torch does in a worker: then only the number of processes differs
sizes = course.sizes("01_parallel_loading")
LFWDataset_now = course.solved(check.LFWDataset)
folder = lfw.folder(sizes.dataset)
plain = loaders.evenly_spaced(LFWDataset_now(folder), 40 * sizes.pass_batch)


def stopwatch(workers):
    begin = time.time()
    for _ in loaders.forked(plain, sizes.pass_batch, workers):
        pass
    return time.time() - begin


first, with_two, *again = [stopwatch(workers) for workers in (0, 2, 0, 0, 0, 0, 0)]
print(f"two workers were {first / with_two:.2f} times as fast as none")
print(
    "no workers, again: "
    + ", ".join(f"{first / seconds:.2f}" for seconds in again)
    + " times as fast as no workers"
)

# %% [markdown]
# The last line compares a loader with itself. Such a *control*, or A/A test, shows differences that the setting cannot
# have caused. If its numbers are alike and far from 1, only the very first pass was different. It was *cold*: it may
# have read files from the disk, loaded code or allocated memory. If the numbers rise, several passes were needed to
# warm up. If they scatter, something else disturbed the passes, such as other programs.
#
# The pass with two workers also started the workers and ended them. By default a `DataLoader` does that in every epoch.
# With `persistent_workers=True`, which `loaders.forked` sets, it does so once. So a plain `DataLoader` gives other
# numbers than this course.
#
# **Takeaway** One pass with a stopwatch mixes loading with start-up, order and luck. Time the same thing twice first.

# %% [markdown]
# ## What should the time include?
#
# A timer for loaders can be wrong in three ways that nobody notices:
#
# - *It times work that is only queued.* A call on the GPU returns before its kernel has run. Synchronise before you
#   read the clock.
# - *It draws one batch too many.* `for i, batch in enumerate(loader): if i == n: break` draws n + 1 batches.
# - *Its clock jumps.* The system may adjust `time.time` while you measure. `time.perf_counter` only runs forward.
#
# A warm-up pass does not count. It starts persistent workers and brings the files into memory.

# %% [markdown]
# ### Exercise 1 · Seconds per pass
#
# Write the timer. It measures `repeats` passes over the first `n_batches` batches of a loader, after `warmup` passes
# that do not count.
#
# **Must**
# - make each pass in this order: read `now()`, make a fresh iterator, draw exactly `n_batches` batches, read `now()`;
# - return the seconds of the passes that count, a float64 tensor.
#
# **Raises** ValueError, with the number asked for and the number found, if a pass gives fewer batches.
#
# ```python
# >>> seconds_per_pass(range(5), n_batches=2, repeats=3, warmup=1).shape
# torch.Size([3])
# ```
#
# **Points** 4 · **Core** · **Difficulty** ●●○ · **Minutes** 12 · **Lines** 10
#
# **Source** Five passes, with mean and spread, as in the LFW exercise of DTU course 02476.
#
# <details><summary>Hint 1</summary>
#
# How often does your loop ask the loader for a batch? Count the last time, too.
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
# The function of one pass has three lines: `start = now()`, `found = sum(1 for _ in itertools.islice(loader,
# n_batches))` and `stop = now()`. Compare `found` with `n_batches`, and return `stop - start`. Call the function
# `warmup + repeats` times, and keep the results from place `warmup` on.
#
# </details>


# %% solution="seconds_per_pass"
def seconds_per_pass(
    loader, n_batches, repeats=5, warmup=1, synchronize=None, clock=time.perf_counter
):
    """Seconds of `repeats` fresh passes over the first `n_batches` batches.

    Workers that are not persistent start and end in each pass, which counts.

    Args:
        loader: iterable of batches, iterated afresh `warmup + repeats` times.
        n_batches: batches drawn in each pass, at least 1.
        repeats: passes that count, at least 1.
        warmup: passes before them that do not count, at least 0.
        synchronize: function without arguments that waits for queued work, called before each reading of the clock
            (on CUDA: torch.cuda.synchronize); optional.
        clock: function without arguments that gives the time in seconds.

    Returns: float64 tensor (repeats,) on the CPU, in seconds.
    Raises: ValueError that names asked and found if a pass ends early: a short loader must not look like a fast one.
    """

    def now():
        """The time in seconds, after all queued work."""
        if synchronize is not None:
            synchronize()
        return clock()

    ### BEGIN SOLUTION
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
# ## How many batches make a pass?
#
# At the end of a pass, some workers have nothing left to do. In a short pass this end counts for much, so the time per
# batch is too long. To see how much, the next cell lets four workers sleep 20 ms per batch, so your cores do not
# matter. In a pass of 12 batches, each worker builds three, which takes 60 ms.
#
# **Predict**: how many times as fast is a pass of 10 batches? Perhaps 12/10, because it has fewer batches. Perhaps 1,
# because some workers still build three.

# %%
predicted_ten_batches = None  # your number: 2 = twice as fast as the pass of 12 batches

# %% tags=["experiment"]
seconds_per_pass_now = course.solved(check.seconds_per_pass)
batches = {f"{n} batches": n for n in (12, 6, 8, 10, 14, 26, 28, 40, 42)}
sleeping = {
    way: loaders.forked(loader_passes.Sleeping(n, 0.02), 1, 4) for way, n in batches.items()
}


def seconds_of(way):
    return seconds_per_pass_now(sleeping[way], batches[way], repeats=1, warmup=0).item()


slept = comparison.compare_measured(
    list(batches), seconds_of, rounds=sizes.pass_rounds, seconds=sizes.pass_seconds / 4
)
ratio = slept.ratio("10 batches")
print(
    course.score(
        "01/2", "a pass of 10 batches against one of 12", predicted_ten_batches, ratio, null=12 / 10
    )
)
course.claim(
    "with four workers, 10 batches take as long as 12, within 10 %",
    slept.ratio("10 batches"),
    within=(0.9, 1.1),
)
plots.rounds_of_workers(slept, batches, workers=4, ms=20)

# %% [markdown]
# **Shown**: only the number of batches changes. The points follow the grey line, which counts the batches of the
# busiest worker. In a long pass, one batch more or less hardly matters.
#
# **Known**: the loader assigns batches to workers in advance, so a fast worker takes no batch from a slow one. A batch
# that is ready early waits in the main process until its turn comes (`in_order=True`, the default, in the documentation
# of `DataLoader`).
#
# **Takeaway** Time a loader in its steady state: with running workers, over at least 40 batches, and over a multiple of
# the number of workers.

# %% [markdown]
# ## Are two workers faster than none?
#
# A machine's speed drifts, and other programs come and go. If you time one setting after the other, you also compare
# two moments. So `compare_workers` measures in *rounds*. In each round, every number of workers makes one pass of 40
# batches, in random order. The round times 0 workers twice, as a control.
#
# It adds rounds until every interval of 95 % is as narrow as ±5 %, or until it reaches a limit of rounds or time. The
# output says why it stopped. If the control differs from 1, it widens every interval by as much.
#
# **Predict**: how many times as fast as none are two workers with `ToTensor`? Perhaps 2, because they decode different
# batches at the same time. Perhaps less than 1, because each batch has to be sent to your process.

# %%
predicted_speedup_plain = None  # your number: 2 = twice as fast as no workers

# %% tags=["experiment"]
compare = functools.partial(
    loader_passes.compare_workers,
    seconds_per_pass=seconds_per_pass_now,
    rounds=sizes.pass_rounds,
    seconds=sizes.pass_seconds,
)
light = compare(plain, sizes.pass_batch, [0, 1, 2])
print(light)
print(
    course.score(
        "01/2", "two workers with ToTensor", predicted_speedup_plain, light.ratio(2), null=1
    )
)
course.claim(
    "with ToTensor, one worker is slower than none if the loop only loads", light.ratio(1), below=1
)
course.claim(
    "two workers are less than 1.5 times as fast as none with ToTensor", light.ratio(2), below=1.5
)
enough = {
    difference: light.passes.rounds_for("2 workers", difference) for difference in (0.1, 0.05)
}
print(
    f"on this machine, a difference of 10 % takes about {enough[0.1]} rounds, one of 5 % {enough[0.05]}"
)

# %% [markdown]
# If an interval contains 1, this run has not decided which setting is faster. That is not the same as "no difference".
#
# To prove a difference of 10 %, you need an interval of about ±5 %, and an interval of half the width needs four times
# as many rounds. The last printed line computes that for your machine. An interval also describes only one machine on
# one day, so compare it with the recorded numbers.
#
# **Takeaway** A speed-up is a ratio with an interval. Compare in rounds, with a control. A noisier machine needs more
# rounds.

# %% [markdown]
# ## Do two workers help more if there is more work per image?
#
# Workers divide the work per image, but add a cost per batch. So they should help more if an image takes more work.
# `lfw.heavy_transform()` turns, zooms, mirrors and recolours each image, then makes a tensor. The batch keeps its size.
# So sending it should cost as much as before, which is a smaller share of the time.

# %% tags=["experiment"]
more_transforms = []  # add some of v2, such as v2.GaussianBlur(5)
heavy = LFWDataset_now(folder, v2.Compose([*more_transforms, lfw.heavy_transform()]))
heavy.paths = plain.paths
augmented = compare(heavy, sizes.pass_batch, [0, 2])
print(augmented)
gain = augmented.ratio(2)
course.claim(
    "with the heavy transform, two workers are at least 10 % faster than none", gain, above=1.1
)
course.claim(
    "two workers gain more with the heavy transform than with ToTensor",
    comparison.quotient(gain, light.ratio(2)),
    above=1,
)
plots.speedups({"ToTensor": light, "heavy": augmented})

# %% [markdown]
# **Takeaway** The more work an item takes, the more workers help. Measure them with your own transform.

# %% [markdown]
# ## Where is the missing speed?
#
# Two workers could be twice as fast as none. Two numbers tell you why they are not:
#
# - *parallelism* is the number of busy cores with workers, divided by the number without workers;
# - *overhead* is the CPU time per image with workers, divided by the CPU time without workers.
#
# In each round, the speed-up is parallelism ÷ overhead. `compare_workers` has counted both in the passes above. The
# next cell prints them, and adds a case called "unsent" that removes one cause of overhead. Its workers decode and
# stack the same images, but send only 8 × 8 pixels of each.


# %% tags=["experiment"]
def stack_and_crop(images):
    """A corner of every image; the whole batch stays where it was stacked."""
    return torch.stack(images)[:, :, :8, :8].clone()


unsent = compare(plain, sizes.pass_batch, [0, 2], collate_fn=stack_and_crop)
for label, case in (("ToTensor", light), ("heavy", augmented), ("unsent", unsent)):
    print(f"{label:<9}{case.breakdown(2)}")
course.claim("an image costs more CPU time with workers than without", light.overhead(2), above=1)
course.claim(
    "two workers raise the CPU time per image by at least 10 % more if all pixels are sent than if 8 × 8 are",
    comparison.quotient(light.overhead(2), unsent.overhead(2)),
    above=1.1,
)

# %% [markdown]
# **Shown**: "unsent" decodes and stacks the same images as "ToTensor", but most pixels stay in the worker. So the
# overhead that it saves is the cost of sending pixels, which includes writing them into memory that both processes
# share.
#
# **We think** that the overhead left in "unsent" comes from messages, and from processes that slow each other down, for
# example because they share caches. Part 4 measures the slowdown with processes that send nothing.
#
# **Takeaway** Two numbers explain a disappointing speed-up: how many cores are busy, and how much CPU time an image
# takes.

# %% [markdown]
# ## Is it the message or the memory? · extra
#
# Sending pixels costs CPU time. The main process must see the batch, so a worker stacks it into *new* shared memory and
# sends a message about it. Which of these two steps costs the time? The next cell stacks into new shared memory, too,
# but it has no worker and sends nothing.

# %% tags=["experiment"]
collates = {"usual memory": None, "new shared memory": loader_passes.collate_as_a_worker}
images = loader_passes.Repeated(plain, 40 * sizes.pass_batch)
stacking = {
    way: loaders.forked(images, sizes.pass_batch, collate_fn=collate)
    for way, collate in collates.items()
}
memory = loader_passes.compare_loaders(
    stacking, 40, seconds_per_pass_now, rounds=sizes.pass_rounds, seconds=sizes.pass_seconds / 2
)
seconds = memory.median("new shared memory") - memory.median("usual memory")
print(f"new shared memory: {1000 * seconds / len(images):+.2f} ms per image, without a worker")
course.claim(
    "without workers, stacking into new shared memory makes a pass at least 10 % slower",
    memory.ratio("usual memory", to="new shared memory"),
    above=1.1,
)

# %% [markdown]
# **Shown**: only the memory differs. One way stacks into new shared memory, the other into memory that was used before.
# Compare the printed milliseconds with those of "ToTensor" above. The comparison is rough, because this cell times one
# process, while "ToTensor" counts the CPU time of three.
#
# **Known**: a worker asks for new shared memory for each batch that it sends (PyTorch,
# [collate.py](https://github.com/pytorch/pytorch/blob/main/torch/utils/data/_utils/collate.py)), and the system clears
# new pages first. Without workers, a batch reuses the memory of an earlier one. Only large batches do not (see the
# section on batch size).
#
# **Takeaway** The memory of a batch can cost more than the message about it. Send fewer bytes.

# %% [markdown]
# ## Does a training change the answer? · extra
#
# So far the loop dropped each batch, but your loop trains on it. Without workers, loading and training alternate. With
# one worker they overlap, but they may compete for cores.

# %% tags=["experiment"]
network = torch.nn.Sequential(
    torch.nn.Conv2d(3, 16, 7, stride=4), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(1)
)
network.to(course.device())


def step(batch):
    network.zero_grad()
    network(batch.to(course.device())).square().mean().backward()


wait = torch.cuda.synchronize if course.device().type == "cuda" else None
trained = compare(plain, sizes.pass_batch, [0, 1, 2], step=step, synchronize=wait)
print(trained)
course.claim(
    "with ToTensor, one worker is at least 10 % faster than none if the loop trains on each batch",
    trained.ratio(1),
    above=1.1,
    otherwise="This worker loads more slowly than load + step take.",
)
load, load_and_step = light.passes.median("0 workers"), trained.passes.median("0 workers")
longest = max(load_and_step - load, load / light.ratio(1).estimate)
print(f"arithmetic: {load_and_step / longest:.2f} times as fast with one worker")
plots.speedups({"loads": light, "trains": trained}, workers=1)

# %% [markdown]
# **Known**: while the loop trains on a batch, a worker builds the next one (`prefetch_factor` in the documentation of
# `DataLoader`). If each has its own core, a batch takes as long as the step or as *one worker's* loading, whichever is
# longer. The last printed line divides load + step by the longer of the two. A worker that loads much more slowly than
# the main process pays off only if the step is long.
#
# **Takeaway** A worker helps if load + step takes longer than the worker's own loading. Time the loader inside your
# training.

# %% [markdown]
# ## Does the batch size change the answer? · extra
#
# Some guides advise a larger batch if workers do not help. The next cell tests this with four times the batch size and
# the same number of batches. (If the folder has too few images, a pass reads them again.)

# %% tags=["experiment"]
large = compare(plain, 4 * sizes.pass_batch, [0, 2])
print(large)
course.claim(
    "two workers gain more with the large batch than with a quarter of it",
    comparison.quotient(large.ratio(2), light.ratio(2)),
    above=1,
)
for label, case in ((f"batch {sizes.pass_batch}", light), (f"batch {4 * sizes.pass_batch}", large)):
    print(f"{label:<9}{case.breakdown(2)}")

# %% [markdown]
# If workers gain here, fewer messages per image are not the reason. "Unsent" sends as many messages as "ToTensor", and
# its overhead is much smaller. **We think** that the loader *without* workers gets slower. A batch above 32 MiB takes
# new memory each time, because glibc returns blocks of that size to the system (part 1 of unit 04). To test this, start
# Jupyter with `MALLOC_MMAP_THRESHOLD_=67108864`, which is 64 MiB. (Old versions of glibc ignore it.)
#
# **Takeaway** Compare numbers of workers at the batch size that you train with.

# %% [markdown]
# ## Is a mean with its spread enough? · extra
#
# Reports often show the mean and the standard deviation of five passes for each number of workers. The next cell
# measures them. Draw them with `plt.errorbar` in the empty cell.

# %% tags=["experiment"]
workers = [0, 1, 2, 4]
faces = loader_passes.Repeated(heavy, 40 * sizes.pass_batch)
passes = {
    w: seconds_per_pass_now(loaders.forked(faces, sizes.pass_batch, w), 40, repeats=5)
    for w in workers
}
for w, seconds in passes.items():
    print(f"{w} workers: {seconds.mean():.2f} ± {seconds.std():.2f} s")

# %%
# Your plot: number of workers along x, seconds along y.

# %% [markdown]
# <details><summary>Hint</summary>
#
# ```python
# import matplotlib.pyplot as plt
#
# means = [passes[w].mean() for w in workers]
# spreads = [passes[w].std() for w in workers]
# plt.errorbar(workers, means, spreads, fmt="o", capsize=4)
# ```
#
# </details>
#
# Overlapping error bars decide nothing, because they show the spread of single passes, not the uncertainty of the
# ratio. Also, each setting was timed at another moment, while the machine's speed drifted. Compare these numbers with
# the ratios above, which come from rounds.
#
# **Takeaway** Use the spread of passes to describe a machine. Compare in rounds to choose between settings.
