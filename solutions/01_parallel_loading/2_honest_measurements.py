# %% [markdown]
# # Parallel loading, part 2: Measure a loader honestly
#
# **Are two workers faster than none?**
#
# You ask a stopwatch, do not believe it, and write a timer that you can trust. With it you compare a cheap transform
# with an expensive one. At the end two numbers tell you why two workers are not twice as fast.
#
# **You will be able to**
#
# - time a loader so that start-up, warm-up and queued GPU work are counted where they belong;
# - compare settings without favouring the one that was measured first;
# - tell from two numbers why a speed-up falls short.
#
# **Minutes** 23 core · 60 in all
#
# **Needs** part 1: your `LFWDataset` is used if you solved it

# %% locked="setup"
import ctypes
import functools
import io
import itertools
import math
import multiprocessing
import resource
import time
import warnings

import torch
from PIL import Image
from torch.utils.data import default_collate
from torchvision import transforms
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
# **Predict**: how many times as fast as none are two workers? 2 would be perfect.

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
# Two workers, two cores, and 1.24 times the speed. Is that the truth, or the stopwatch? One pass says nothing about
# luck. The second pass includes the start of two processes. And the first one may have read from a cold disk.
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
# Each dot is a pass: look how far a single one could have misled you. Start with one worker. It does the same work in
# another process, then it has to send the batch back, and this loop does nothing with it in the meantime.
#
# **Takeaway** Workers are not free: with ToTensor on our two cores, one was 0.74 times as fast as none, and two were
# 1.29 times as fast.

# %% [markdown]
# ## Do two workers help more if there is more work per image?
#
# Real pipelines augment. `lfw.heavy_transform()` turns, zooms, mirrors and recolours each image, then makes a tensor.
# It runs in the worker, and the batch that is sent back has the same size.

# %% tags=["experiment"]
heavy = LFWDataset_now(folder, lfw.heavy_transform())
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
# **Takeaway** Two workers gain more if an image takes more work: 1.46 times with augmentation, 1.29 times without.

# %% [markdown]
# ## Why not twice as fast?
#
# The system counts how many seconds of CPU each process has used. So you can write the speed-up as a product of two
# factors: how many *cores were busy* on average, and how much *CPU time an image* costs now compared with before.


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
# what the same image costs now: 1.47 times as much with ToTensor, 1.11 times with augmentation. The factor of the cores
# divided by this one is the speed-up.
#
# **Takeaway** Two numbers explain a disappointing speed-up: cores busy, and CPU time per image.

# %% [markdown]
# ## Does the batch size change the answer? · extra
#
# Some pages advise a larger batch if workers do not help. The next cell takes four times the batch.
#
# It also looks at memory. Linux hands out memory in *pages* of 4 kB, cleared, at the first touch: a *page fault*. Below
# 32 MB, C's `malloc` (glibc) reuses the memory of an earlier batch; above, it asks for fresh pages each time. The cell
# stacks a batch of 96 MB with that rule, and with glibc told to keep all memory.

# %% tags=["experiment"]
usual, large = sizes.batch_size, 4 * sizes.batch_size
by_batch = {usual: both["ToTensor"][1]}  # from above
by_batch[large] = time_all([loaders.forked(plain, large, w) for w in few], sizes.rounds)
gains = {batch_size: (seconds[0] / seconds[2]).quantile(0.5).item() for batch_size, seconds in by_batch.items()}
print("two workers against none: " + ", ".join(f"batch {b}: {g:.2f} times as fast" for b, g in gains.items()))
course.claim("two workers gain more with the large batch than with a quarter of it", gains[large] > gains[usual],
             f"{gains[large]:.2f} against {gains[usual]:.2f}",
             otherwise="Run the cell again, and compare the two gains.")  # fmt: skip


def stacking(n, keep, batches=8):
    """(ms, page faults) per batch of n images that is stacked and freed; `keep`: malloc keeps and reuses all memory."""
    if keep:
        libc = ctypes.CDLL(None)
        libc.mallopt(-4, 0)  # M_MMAP_MAX: no block comes straight from the system
        libc.mallopt(-1, 2**31 - 1)  # M_TRIM_THRESHOLD: none goes back
    images = [torch.zeros(3, 250, 250) for _ in range(n)]
    for k in range(16 + batches):
        if k == 16:
            before, begin = resource.getrusage(resource.RUSAGE_SELF).ru_minflt, time.perf_counter()
        torch.stack(images)
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
    return 1000 * (time.perf_counter() - begin) / batches, faults / batches


stacked = {}
for n, keep in ((16, False), (128, False), (128, True)):
    with multiprocessing.get_context("fork").Pool(1) as pool:  # a process each, since mallopt cannot be undone
        stacked[n, keep] = ms, faults = pool.apply(stacking, (n, keep))
    print(f"{n * 0.75:.0f} MB, {'memory kept' if keep else 'as usual':<11} {ms:6.1f} ms, {faults:8,.0f} page faults")
otherwise = "The rule is that of glibc with pages of 4 kB; your system may have another."
course.claim("a batch of 12 MB reuses memory and one of 96 MB gets fresh memory pages",
             stacked[16, False][1] < 100 and stacked[128, False][1] > 1000,
             f"{stacked[16, False][1]:,.0f} and {stacked[128, False][1]:,.0f} page faults",
             otherwise=otherwise)  # fmt: skip
course.claim("fresh memory pages make stacking a batch of 96 MB at least 1.5 times as slow",
             stacked[128, False][0] > 1.5 * stacked[128, True][0],
             f"{stacked[128, False][0]:.0f} against {stacked[128, True][0]:.0f} ms", otherwise=otherwise)  # fmt: skip

# %% [markdown]
# **Takeaway** Compare workers at the batch size that you train with: batches above 32 MB cost the main process more.

# %% [markdown]
# ## Where does the time of an image go? · extra
#
# The stages are timed image by image, in a loop that keeps nothing, as a training does.
#
# **Predict**: with ToTensor, which share of the time is reading and decoding?

# %%
predicted_decoding_share = None  # your number, from 0 to 1


# %% tags=["experiment"]
def stage_costs(paths, transform, batch_size):
    """µs per image of each stage, a dictionary, of a loop in this process that keeps nothing."""
    spent, group = {"read": 0.0, "decode": 0.0, "transform": 0.0, "collate": 0.0}, []
    last = time.perf_counter()

    def record(stage):
        """Add the time since the last call to `stage`."""
        nonlocal last
        now = time.perf_counter()
        spent[stage], last = spent[stage] + now - last, now

    for k, path in enumerate(paths, 1):
        content = path.read_bytes()
        record("read")
        picture = Image.open(io.BytesIO(content)).convert("RGB")
        record("decode")
        group.append(transform(picture))
        record("transform")
        if k % batch_size == 0:
            default_collate(group)
            group.clear()
            record("collate")
    return {stage: 1e6 * seconds / len(paths) for stage, seconds in spent.items()}


costs = {}
for label, transform in (("light", transforms.ToTensor()), ("heavy", lfw.heavy_transform())):
    _, *runs = [stage_costs(plain.paths[: 2 * sizes.probe], transform, sizes.batch_size) for _ in range(3)]  # warm now
    costs[label] = {stage: min(run[stage] for run in runs) for stage in runs[0]}
    each = ", ".join(f"{name} {us:.0f}" for name, us in costs[label].items())
    print(f"{label}: {each}, sum {sum(costs[label].values()):.0f} µs")
share = {label: (stages["read"] + stages["decode"]) / sum(stages.values()) for label, stages in costs.items()}
print(f"reading and decoding take {share['light']:.0%} of the time" + reveal(predicted_decoding_share, "{:.0%}"))
course.claim("with ToTensor, reading and decoding take the largest part of the time",
             share["light"] > max(costs["light"][s] / sum(costs["light"].values()) for s in ("transform", "collate")),
             f"{share['light']:.0%}",
             otherwise="The bars show which stage is longer.")  # fmt: skip
course.claim("the heavy transform takes longer than decoding", costs["heavy"]["transform"] > costs["heavy"]["decode"],
             otherwise="The bars show which stage is longer.")  # fmt: skip
ratio = sum(costs["heavy"].values()) / sum(costs["light"].values())
plots.stages(costs, f"The heavy transform makes an image {ratio:.1f} times as expensive")

# %% [markdown]
# The files come from the page cache, so reading is nearly free here.
#
# **Takeaway** Time the stages before you choose what to speed up.

# %% [markdown]
# ## What if you add your own transforms? · extra
#
# Put transforms of `v2` into the list, cheap or expensive ones, and predict what two workers gain.

# %%
more_transforms = [v2.GaussianBlur(5)]
predicted_speedup_more = None  # your number

# %% tags=["experiment"]
chain = v2.Compose([*more_transforms, lfw.heavy_transform()])
longer = loaders.evenly_spaced(LFWDataset_now(folder, chain), max(4 * sizes.batch_size, sizes.images // 4))
pairs = time_all([loaders.forked(longer, sizes.batch_size, w) for w in (0, 2)], 2)
print(f"2 workers are {timing.speedup(pairs, 1)} times as fast" + reveal(predicted_speedup_more))

# %% [markdown]
# **Takeaway** What workers gain depends on the work per image, so measure again when the transform changes.

# %% [markdown]
# ## Can you trust a published timer? · extra
#
# A published course hands out a script that times a loader. The function below is rebuilt from it in our own lines. Its
# last line prints the same on every machine, because it lacks the `f` before the string. The other fault is in the
# loop.


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
# **Predict**: how many batches does `published_timing` draw in its five passes of "100"?

# %%
predicted_batches_published = None  # your number

# %% [markdown]
# ### Exercise 2 · Show it
#
# Write a function that says for *any* timing function how many batches it draws when it is asked for `n_batches`.
#
# **Must**
# - call `timing(loader, n_batches)` once, with a loader of your own that can be iterated again and never ends;
# - count every batch that the loader yields, over all passes;
# - let an exception of `timing` through.
#
# ```python
# >>> batches_drawn(lambda loader, n: [batch for batch, _ in zip(loader, range(n))], 5)
# 6
# ```
#
# **Points** 2 · **Extra** · **Difficulty** ●●○ · **Minutes** 12 · **Lines** 10
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
# Write a class with `__iter__`, and count before you yield: a generator that counts in the line *after* its `yield`
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

# %% tags=["experiment"]
batches_drawn_now = course.solved(check.batches_drawn)
seconds_per_pass_now = course.solved(check.seconds_per_pass)
published, ours = (batches_drawn_now(f, 100) for f in (published_timing, seconds_per_pass_now))
print(f"published_timing draws {published}" + reveal(predicted_batches_published))
course.claim("the published loop draws two batches too many per pass", published == 5 * 102, f"{published} for 500")
course.claim("seconds_per_pass draws what it is asked for, with one pass to warm up", ours == 600, f"{ours}")

# %% [markdown]
# One line that reports a timing with its spread and its unit:

# %% tags=["experiment"]
n_batches = math.ceil(len(plain) / sizes.batch_size)
print("2 workers, ToTensor:", timing.timing_line(plain_seconds[counts.index(2)], n_batches, sizes.batch_size))

# %% [markdown]
# **Takeaway** A timer that runs and prints looks right; count what it draws before you trust it.
#
# Part 3 looks at what several processes change. Part 4 predicts the time for any number of workers.
