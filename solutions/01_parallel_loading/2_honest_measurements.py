# %% [markdown]
# # Parallel loading, part 2: Measure a loader honestly
#
# **Are two workers faster than none?**
#
# One pass with a stopwatch can give the wrong answer. In this part you write a better timer. Then you compare loaders
# in rounds, until you know how sure you are.
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
from course.loading import feeding, loader_passes, loaders
from course.measure import comparison
from course.plots import parallel_loading as plots

# more workers than cores: we try that on purpose
warnings.filterwarnings("ignore", "This DataLoader will create")
# part 8 explains
warnings.filterwarnings("ignore", ".*use of fork\\(\\) may lead to deadlocks", DeprecationWarning)
print(course.machine())

# %% [markdown]
# ## What does a stopwatch say?
#
# The next cell times one pass over the faces without workers, and one with two. Then it times the loader without
# workers five more times.

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


first = stopwatch(workers=0)
with_two = stopwatch(workers=2)
again = [stopwatch(workers=0) for _ in range(5)]

print(f"two workers were {first / with_two:.2f} times as fast as none")
ratios = ", ".join(f"{first / seconds:.2f}" for seconds in again)
print(f"no workers, again: {ratios} times as fast as no workers")

# %% [markdown]
# The last line compares a loader with itself. Such a *control*, or A/A test, shows differences that the setting cannot
# have caused. If its numbers agree with each other but not with 1, the very first pass was different. For example, it
# was *cold*: it had to read the files from the disk. If they scatter, something disturbed the passes, such as other
# programs.
#
# The pass with two workers also started the workers and ended them. By default a `DataLoader` does that in every epoch.
# With `persistent_workers=True`, which `loaders.forked` sets, it does so once.
#
# **Takeaway** One pass with a stopwatch mixes loading with start-up, order and luck. Time the same thing twice first.

# %% [markdown]
# ## What should the time include?
#
# Three mistakes in a timer for loaders raise no error:
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
# At the end of a pass, some workers have nothing left to do. To see how much time that costs, the next cell lets four
# workers sleep 20 ms per batch, so your cores do not matter. In a pass of 12 batches, each worker builds three, which
# takes at least 60 ms.
#
# **Predict**: how many times as fast is a pass of 10 batches? Perhaps 12/10, because it has fewer batches. Perhaps 1,
# because some workers still build three.

# %%
predicted_ten_batches = None  # your number: 2 = twice as fast as the pass of 12 batches

# %% tags=["experiment"]
seconds_per_pass_now = course.solved(check.seconds_per_pass)
limits = {"rounds": sizes.pass_rounds, "seconds": sizes.pass_seconds}  # of each comparison
lengths = (12, 6, 8, 10, 14, 26, 28, 40, 42)  # all are compared with the first
batches = {f"{n} batches": n for n in lengths}

slept = loader_passes.compare_lengths(batches, 0.02, 4, seconds_per_pass_now, **limits)
ratio = slept.ratio("10 batches")

said = "a pass of 10 batches against one of 12"
print(course.score("01/2", said, predicted_ten_batches, ratio, null=12 / 10))
course.claim(
    "with four workers, 10 batches take as long as 12, within 10 %", ratio, within=(0.9, 1.1)
)
plots.rounds_of_workers(slept, batches, workers=4, ms=20)

# %% [markdown]
# **Shown**: only the number of batches changes. The grey line follows from counting the batches of the worker that
# builds most; a pass takes somewhat longer than that. The longer the pass, the less one batch more or less matters.
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
# It adds rounds until every interval of 95 % is as narrow as ±5 %, or until a limit of rounds or time. If the control
# differs from 1, it widens every interval by as much.
#
# **Predict**: how many times as fast as none are two workers with `ToTensor`? Perhaps 2, because they decode different
# batches at the same time. Perhaps less than 1, because each batch has to be sent to your process.

# %%
predicted_speedup_plain = None  # your number: 2 = twice as fast as no workers

# %% tags=["experiment"]
compare = functools.partial(
    loader_passes.compare_workers, seconds_per_pass=seconds_per_pass_now, **limits
)
light = compare(plain, sizes.pass_batch, [0, 1, 2])

one = light.ratio(1)
two = light.ratio(2)
rounds = light.passes.rounds_for("2 workers", 0.05)

print(f"batches of {sizes.pass_batch} images")
print(light)
said_of_two = "two workers with ToTensor"
print(course.score("01/2", said_of_two, predicted_speedup_plain, two, null=1))
print(f"on this machine, a difference of 5 % takes about {rounds} rounds")
course.claim("with ToTensor, one worker is slower than none if the loop only loads", one, below=1)
course.claim("two workers are less than 1.5 times as fast as none with ToTensor", two, below=1.5)

# %% [markdown]
# If an interval contains 1, this run has not decided which setting is faster. That is not the same as "no difference".
# The ratio also depends on the size of a batch, which an extra section below changes.
#
# To decide on a difference of 5 %, you need an interval of half that, ±2.5 %. Half the width takes about four times as
# many rounds.
#
# **Takeaway** A speed-up is a ratio with an interval. Compare in rounds, with a control. A noisier machine needs more
# rounds.

# %% [markdown]
# ## Do two workers help more if there is more work per image?
#
# Workers divide the work per image, but each batch has to be sent. So they should help more if an image takes more
# work. `lfw.heavy_transform()` turns, zooms, mirrors and recolours each image, then makes a tensor. A batch has as many
# bytes as before.

# %% tags=["experiment"]
more_transforms = []  # add some of v2, such as v2.GaussianBlur(5)
heavy = LFWDataset_now(folder, v2.Compose([*more_transforms, lfw.heavy_transform()]))
heavy = loaders.evenly_spaced(heavy, 40 * sizes.pass_batch)

augmented = compare(heavy, sizes.pass_batch, [0, 2])
gain = augmented.ratio(2)

print(augmented)
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
# **Takeaway** Workers gain more if an item takes more work. Measure them with your own transform and batch size.

# %% [markdown]
# ## Where is the missing speed?
#
# Two workers could be twice as fast as none. Two numbers tell you why they are not:
#
# - *parallelism* is the number of busy cores with workers, divided by the number without workers;
# - *overhead* is the CPU time per image with workers, divided by the CPU time without workers.
#
# In each round, the speed-up is parallelism ÷ overhead. The next cell prints both for the passes above. It adds a case
# called "unsent", whose workers decode and stack the same images, but send only 8 × 8 pixels of each.

# %% tags=["experiment"]
unsent = compare(plain, sizes.pass_batch, [0, 2], collate_fn=feeding.stack_and_crop)

print(f"ToTensor {light.breakdown(2)}")
print(f"heavy    {augmented.breakdown(2)}")
print(f"unsent   {unsent.breakdown(2)}")
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
# **Takeaway** Two numbers explain a disappointing speed-up: how many cores are busy, and how much CPU time an image
# takes.

# %% [markdown]
# ## Is it the message or the memory? · extra
#
# Sending pixels costs CPU time. The main process must see the batch, so a worker stacks it into *new* shared memory and
# sends a message about it. Which of these two steps costs the time? The next cell stacks into new shared memory, too,
# but it has no worker and sends nothing.

# %% tags=["experiment"]
images = loader_passes.Repeated(plain, 40 * sizes.pass_batch)
stacking = {
    "usual memory": loaders.forked(images, sizes.pass_batch),
    "new shared memory": loaders.forked(
        images, sizes.pass_batch, collate_fn=loader_passes.collate_as_a_worker
    ),
}

memory = loader_passes.compare_loaders(stacking, 40, seconds_per_pass_now, **limits)
more_seconds = memory.median("new shared memory") - memory.median("usual memory")
more_ms = 1000 * more_seconds / len(images)

print(f"new shared memory: {more_ms:+.2f} ms per image, without a worker")
course.claim(
    "without workers, stacking into new shared memory makes a pass at least 10 % slower",
    memory.ratio("usual memory", to="new shared memory"),
    above=1.1,
)

# %% [markdown]
# **Shown**: only the memory differs. Compare the printed milliseconds with those of "ToTensor" above. The comparison is
# rough, because this cell times one process, while "ToTensor" counts the CPU time of three.
#
# **Known**: a worker asks for new shared memory for each batch that it sends (PyTorch,
# [collate.py](https://github.com/pytorch/pytorch/blob/main/torch/utils/data/_utils/collate.py)). The system clears new
# pages before a program gets them. Without workers, a batch may reuse the memory of an earlier one.
#
# **Takeaway** New shared memory for each batch costs time. Send fewer bytes.

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


wait = None
if course.device().type == "cuda":
    wait = torch.cuda.synchronize
trained = compare(plain, sizes.pass_batch, [0, 1], step=step, synchronize=wait)

load = light.passes.median("0 workers")
load_and_step = trained.passes.median("0 workers")
step_alone = load_and_step - load
load_in_worker = load / light.ratio(1).estimate
by_arithmetic = load_and_step / max(step_alone, load_in_worker)

print(trained)
print(f"arithmetic: {by_arithmetic:.2f} times as fast with one worker")
course.claim(
    "with ToTensor, one worker is at least 10 % faster than none if the loop trains on each batch",
    trained.ratio(1),
    above=1.1,
    otherwise="This worker loads more slowly than load + step take.",
)
plots.speedups({"loads": light, "trains": trained}, workers=1)

# %% [markdown]
# **Known**: while the loop trains on a batch, a worker builds the next one (`prefetch_factor` in the documentation of
# `DataLoader`). If each has its own core, a batch takes about as long as the step or as *one worker's* loading,
# whichever is longer. The last printed line divides load + step by the longer one.
#
# **Takeaway** A worker helps if load + step takes longer than the worker's own loading. Time the loader inside your
# training.

# %% [markdown]
# ## Does the batch size change the answer? · extra
#
# The next cell compares the same numbers of workers with four times the batch size and the same number of batches. (If
# the folder has too few images, a pass reads them again.)

# %% tags=["experiment"]
large = compare(plain, 4 * sizes.pass_batch, [0, 2])

print(large)
print(f"batch {sizes.pass_batch} {light.breakdown(2)}")
print(f"batch {4 * sizes.pass_batch} {large.breakdown(2)}")
course.claim(
    "two workers gain more with the large batch than with a quarter of it",
    comparison.quotient(large.ratio(2), light.ratio(2)),
    above=1,
)

# %% [markdown]
# **We think** that the loader *without* workers gets slower if a batch is above 32 MiB. Such a batch takes new memory
# each time, because glibc returns blocks of that size to the system (part 1 of unit 04). To test this, start Jupyter
# with `MALLOC_MMAP_THRESHOLD_=67108864`, which is 64 MiB. (Old versions of glibc ignore it.)
#
# **Takeaway** Compare numbers of workers at the batch size that you train with.

# %% [markdown]
# ## Is a mean with its spread enough? · extra
#
# The next cell measures the mean and the standard deviation of five passes for each number of workers. Draw them with
# `plt.errorbar` in the empty cell.

# %% tags=["experiment"]
workers = [0, 1, 2, 4]
faces = loader_passes.Repeated(heavy, 40 * sizes.pass_batch)

passes = {}
for w in workers:
    loader = loaders.forked(faces, sizes.pass_batch, w)
    passes[w] = seconds_per_pass_now(loader, 40, repeats=5)
    mean = passes[w].mean()
    deviation = passes[w].std()
    print(f"{loader_passes.way_of(w)}: {mean:.2f} ± {deviation:.2f} s")

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
