# %% [markdown]
# # Parallel loading, part 2: Measure a loader honestly
#
# **Are two workers faster than none?**
#
# You write a timer that you can trust. With it you compare a cheap transform with an expensive one. At the end two
# numbers tell you where the missing speed went.
#
# **You will be able to**
#
# - time a loader so that start-up, warm-up and queued GPU work are counted where they belong;
# - compare settings without favouring the one that was measured first;
# - tell from two numbers where a speed-up falls short.
#
# **Minutes** 25 core · 32 in all
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
from course.learner.predictions import reveal
from course.loading import loaders
from course.measure import timing, usage
from course.plots import parallel_loading as plots

warnings.filterwarnings("ignore", "This DataLoader will create")  # more workers than cores: we try that on purpose
warnings.filterwarnings("ignore", ".*use of fork\\(\\) may lead to deadlocks", DeprecationWarning)  # part 3 explains
print(course.machine())

# %% [markdown]
# ## What does a stopwatch say?
#
# Here is the comparison that everybody makes first: one pass over the faces without workers, one with two.
#
# **Predict**: how many times as fast as none are two workers?

# %%
predicted_speedup_plain = None  # your number: 2 = twice as fast as no workers

# %% tags=["experiment"]
torch.set_num_threads(1)  # as in a worker: one image is too little work for several threads
sizes = course.sizes("01_parallel_loading")
LFWDataset_now = course.solved(check.LFWDataset)
folder = lfw.folder(sizes.dataset)
plain = loaders.evenly_spaced(LFWDataset_now(folder), sizes.images)
stopped = {}
for w in (0, 2):
    begin = time.time()
    for _ in loaders.forked(plain, sizes.batch_size, w):
        pass
    stopped[w] = time.time() - begin
    print(f"num_workers={w}: {stopped[w]:.2f} s")
print(f"two workers: {stopped[0] / stopped[2]:.2f} times as fast" + reveal(predicted_speedup_plain))

# %% [markdown]
# Two workers, two cores, and hardly any gain here. One pass says nothing about luck. The second pass includes the start
# of two processes, and the first one may have read from a cold disk.
#
# **Takeaway** One pass with a stopwatch is an anecdote: it mixes loading with start-up, order and luck.

# %% [markdown]
# ## Is it real?
#
# **A fair timing covers exactly the work in question, is repeated, and interleaves the settings that it compares.**
#
# Three mistakes are easy to make:
#
# - *Timing work that is only queued.* A call on the GPU returns before its kernel has run, so synchronise before you
#   read the clock.
# - *Drawing a batch too many.* A loop that asks "was that enough?" after it received a batch has already paid for it.
# - *Reading a clock that jumps.* The system may adjust `time.time` while you measure; `time.perf_counter` only runs
#   forward.
#
# A warm-up pass, which does not count, starts persistent workers and fills the disk cache.

# %% [markdown]
# ### Exercise 1 · Seconds per pass
#
# Measure `repeats` passes over the first `n_batches` batches of a loader, after `warmup` passes that do not count.
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
# In the function of one pass, `start = now()`, `found = sum(1 for _ in itertools.islice(loader, n_batches))`,
# `stop = now()`. Compare `found` with `n_batches`, return `stop - start`. Call it `warmup + repeats` times and keep the
# results from place `warmup` on.
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
# Now the comparison. If all passes with 0 workers come first and those with 4 last, whatever changed in between (a warm
# processor, another job) looks like an effect of the workers. So `timing.time_in_turn` measures in *rounds*: each round
# times every setting once with your timer, in shuffled order.

# %% tags=["experiment"]
time_all = functools.partial(timing.time_in_turn, seconds_per_pass=course.solved(check.seconds_per_pass))
counts = loaders.worker_counts(len(plain) // sizes.batch_size)
plain_seconds = time_all([loaders.forked(plain, sizes.batch_size, w) for w in counts], sizes.paired_rounds)
print(f"2 workers are {timing.speedup(plain_seconds, counts.index(2))} times as fast" + reveal(predicted_speedup_plain))
one, two = ((plain_seconds[0] / plain_seconds[counts.index(w)]).quantile(0.5).item() for w in (1, 2))
course.claim(
    "num_workers=1 is slower than num_workers=0",
    one < 1,
    f"{one:.2f} times as fast",
    otherwise="Look at the dots: if those of 0 and 1 workers overlap, run the cell again.",
)
course.claim(
    "two workers are less than 1.5 times as fast as none with ToTensor",
    two < 1.5,
    f"{two:.2f} times as fast",
    otherwise="On your machine two workers are worth it even for a cheap transform.",
)
plots.worker_plot(counts, plain_seconds)

# %% [markdown]
# Each dot is a pass: look how far a single one could have misled you.
#
# **Takeaway** Workers are not free: with ToTensor on our two cores, one was 0.64 times as fast as none, and two were
# 1.13 times as fast.

# %% [markdown]
# ## Do two workers help more if there is more work per image?
#
# `lfw.heavy_transform()` turns, zooms, mirrors and recolours each image, then makes a tensor. The batch that is sent
# back keeps its size.

# %% tags=["experiment"]
more_transforms = []  # add some of v2, such as v2.GaussianBlur(5), and run this section again
heavy = LFWDataset_now(folder, v2.Compose([*more_transforms, lfw.heavy_transform()]))
heavy.paths = plain.paths[::2]  # half of them: each takes longer
torch.manual_seed(0)
places = len(heavy) // 3, 2 * len(heavy) // 3
shown = [image for k in places for image in (plain[2 * k], heavy[k], heavy[k], heavy[k])]
plots.batch_grid(torch.stack(shown), ["original", *["augmented"] * 3] * 2, columns=4)

# %% [markdown]
# **Predict**: with this transform, how many times as fast as none are two workers?

# %%
predicted_speedup_heavy = None  # your number

# %% tags=["experiment"]
few = [0, 1, 2]
heavy_seconds = time_all([loaders.forked(heavy, sizes.batch_size, w) for w in few], sizes.rounds)
print(f"2 workers are {timing.speedup(heavy_seconds, 2)} times as fast" + reveal(predicted_speedup_heavy))
both = {"ToTensor": (few, plain_seconds[[counts.index(w) for w in few]]), "heavy": (few, heavy_seconds)}
ratios = {name: (seconds[0] / seconds[2]).quantile(0.5).item() for name, (_, seconds) in both.items()}
course.claim("two workers gain more with the heavy transform than with ToTensor",
             ratios["heavy"] > ratios["ToTensor"],
             f"{ratios['heavy']:.2f} against {ratios['ToTensor']:.2f} times",
             otherwise="Run the cell again, and compare the ranges.")  # fmt: skip
title = ", ".join(f"{ratio:.2f} times as fast ({name})" for name, ratio in ratios.items())
plots.rates(both, [len(plain), len(heavy)], loaders.cores(), f"Two workers: {title}")

# %% [markdown]
# **Takeaway** Two workers gain more if an image takes more work: 1.45 times with augmentation, 1.13 times without. The
# ranges overlap, so part 4 repeats the comparison.

# %% [markdown]
# ## Why not twice as fast?
#
# The system counts how many seconds of CPU each process has used. So you can write the speed-up as a quotient: how many
# times as many *cores were busy*, divided by how many times as much *CPU time an image* costs.


# %% tags=["experiment"]
def cpu_of_pass(batches, n_images):
    """CPU ms per image in the main process and in all workers, and the number of cores busy on average: a tensor."""
    begin, all_begin, main_begin = time.perf_counter(), usage.cpu_seconds(), time.process_time()
    for _ in batches:
        pass
    seconds, everything = time.perf_counter() - begin, usage.cpu_seconds() - all_begin
    main, n = time.process_time() - main_begin, n_images / 1000
    return torch.tensor([main / n, (everything - main) / n, everything / seconds], dtype=torch.float64)


factors = {}
for label, data in (("ToTensor", plain), ("heavy", heavy)):
    contestants = [loaders.forked(data, sizes.batch_size, w) for w in (0, 2)]
    _, *used = [torch.stack([cpu_of_pass(c, len(data)) for c in contestants]) for _ in range(1 + sizes.rounds)]  # warm
    (alone, _, busy_alone), (main, in_workers, busy) = torch.stack(used).quantile(0.5, dim=0).tolist()
    factors[label] = alone / (main + in_workers)
    print(f"{label:<9} 0 workers: {alone:.2f} ms CPU per image, {busy_alone:.2f} cores busy")
    print(f"{'':<9} 2 workers: {in_workers:.2f} ms in workers, {main:.2f} ms in main, {busy:.2f} cores busy")
    print(f"{'':<9} {busy:.2f} / {busy_alone:.2f} cores x {factors[label]:.2f} (CPU per image, before / now) "
          f"= {busy / busy_alone * factors[label]:.2f} times as fast in these passes")  # fmt: skip
course.claim("an image costs more CPU time with workers than without", max(factors.values()) < 1,
             ", ".join(f"{label}: {1 / factor:.2f} times" for label, factor in factors.items()),
             otherwise="Run the cell again.")  # fmt: skip
course.claim(
    "workers raise the CPU time per image by a larger factor with ToTensor than with the heavy transform",
    factors["ToTensor"] < factors["heavy"],
    otherwise="Run the cell again.",
)

# %% [markdown]
# *Cores busy* below 2 means that workers were waiting, or that another program had a core. *CPU time per image* says
# what the same image costs now: 1.46 times as much with ToTensor, 1.03 times with augmentation. The factor of the cores
# divided by this one is the speed-up of these passes.
#
# **Takeaway** Two numbers break down a disappointing speed-up: cores busy, and CPU time per image.

# %% [markdown]
# ## Does the batch size change the answer? · extra
#
# Some pages advise a larger batch if workers do not help. The next cell takes four times the batch; the usual one was
# timed above.

# %% tags=["experiment"]
usual, large = sizes.batch_size, 4 * sizes.batch_size
large_seconds = time_all([loaders.forked(plain, large, w) for w in (0, 2)], sizes.rounds)
gains = {usual: ratios["ToTensor"], large: (large_seconds[0] / large_seconds[1]).quantile(0.5).item()}
print("two workers against none: " + ", ".join(f"batch {b}: {g:.2f} times as fast" for b, g in gains.items()))
course.claim("two workers gain more with the large batch than with a quarter of it", gains[large] > gains[usual],
             f"{gains[large]:.2f} against {gains[usual]:.2f}",
             otherwise="Run the cell again, and compare the two gains.")  # fmt: skip

# %% [markdown]
# **Takeaway** Compare workers at the batch size that you train with: two gained more with 128 images than with 32.
