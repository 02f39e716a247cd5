# %% [markdown]
# # Parallel loading, part 2: Measure a loader honestly
#
# **How much faster are two workers, and why not twice as fast?**
#
# You write a timer that covers a whole pass over a loader and nothing else, and measure all settings in turn. With it
# you compare a cheap transform with an expensive one, find out stage by stage what an image costs, and explain a
# speed-up as a product of two measured factors. At the end you prove a bug of a published timing script.
#
# **You will be able to**
#
# - time a loader so that start-up, warm-up and queued GPU work are counted where they belong;
# - compare settings without favouring the one that was measured first;
# - tell from two numbers why a speed-up falls short.
#
# **Minutes** 30 core · 85 in all
#
# **Needs** part 1: its `LFWDataset` is taken over if you solved it

# %% locked="setup"
import functools
import io
import itertools
import math
import random
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
print(course.machine())

# %% [markdown]
# ## An honest timer
#
# **A time is worth something when it covers all of the work and nothing else, when it was taken more than once, and
# when every setting was measured under the same conditions.**
#
# Asking a loader for an iterator starts the workers, and the first batch takes longer than the others, because nothing
# is ready yet. All this is paid again in every epoch, so it belongs to the pass. With `persistent_workers=True` only
# the first pass starts them: a pass to warm up keeps this out of the result, and fills the disk cache, which would
# otherwise be held against whichever setting comes first.
#
# Three things are easily counted by accident. *Work that was only queued*: a call on the GPU returns before its kernel
# has run, so synchronise before you read the clock. *A batch too many*: a loop that asks "was that enough?" after it
# was handed a batch has paid for that batch already. *A clock that jumps*: `time.time` is set by others,
# `time.perf_counter` by nobody.
#
# Then the comparison. If all passes with 0 workers come first and those with 8 workers last, whatever changed in
# between (a warm processor, another job) looks like an effect of the workers. Go through all settings in rounds, each
# in an order of its own.

# %% [markdown]
# ### Exercise 1 · Seconds per pass
#
# Measure `repeats` passes over the first `n_batches` batches of a loader, after `warmup` passes that do not count.
#
# **Must**
# - make each pass, a warm-up too, in this order: read `now()`, make a fresh iterator, draw exactly `n_batches` batches,
#   read `now()`;
# - return the seconds of the passes that count, a float64 tensor.
#
# **You may assume** nothing about the loader except that it can be iterated: it may have no `len`.
#
# **Raises** ValueError, with the number asked for and the number found, if a pass (a warm-up too) gives fewer batches;
# the second `now()` of that pass may be left out.
#
# **Points** 4 · **Core** · **Difficulty** ●●○ · **Minutes** 20 · **Lines** 10
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
# ### Exercise 2 · Sweep in rounds
#
# Measure every setting `rounds` times: round by round, each round in a newly shuffled order.
#
# **Must**
# - in each round call `measure(settings[i])` once for every index `i` of `settings`;
# - return a float64 tensor: row `i` belongs to `settings[i]`, column `r` to round `r`;
# - draw all orders from `seed`: each equally likely, the same seed the same orders, another seed others;
# - leave global random numbers (Python's, NumPy's, torch's) and the list `settings` as they were.
#
# **You may assume** nothing about the settings: some may be equal, some cannot be keys of a dictionary.
#
# **Points** 2 · **Extra** · **Difficulty** ●○○ · **Minutes** 12 · **Lines** 7
#
# **Source** Mytkowicz, Diwan, Hauswirth and Sweeney 2009, "Producing wrong data without doing anything obviously
# wrong!", ASPLOS.
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
# ### How many workers for a cheap transform?
#
# `ToTensor` is all that is done to an image after decoding. Workers start before the clock does and stay
# (`persistent_workers=True`, and a pass to warm up).
#
# **Predict**: how many times as fast as the main process alone are two workers, on your machine? 2 would be perfect.

# %%
predicted_speedup_plain = None  # your number: 2 = twice as fast as no workers

# %% tags=["experiment"]
torch.set_num_threads(1)  # as in a worker: one image is too little work for several threads
sizes = course.sizes("01_parallel_loading")
LFWDataset_now = course.solved(check.LFWDataset)
time_all = functools.partial(  # the loaders given, in turn, whole passes
    timing.time_in_turn,
    seconds_per_pass=course.solved(check.seconds_per_pass),
    sweep=course.solved(check.sweep),
)
folder = lfw.folder(sizes.dataset)
plain = loaders.evenly_spaced(LFWDataset_now(folder), sizes.images)
counts = loaders.worker_counts(len(plain) // sizes.batch_size)
plain_seconds = time_all([loaders.forked(plain, sizes.batch_size, w) for w in counts], sizes.rounds)
print(f"2 workers are {timing.speedup(plain_seconds, counts.index(2))} times as fast" + reveal(predicted_speedup_plain))
one = (plain_seconds[0] / plain_seconds[counts.index(1)]).quantile(0.5)
course.claim(
    "num_workers=1 is slower than num_workers=0",
    one < 1,
    f"{one:.2f} times as fast",
    otherwise="Transferring a batch takes so little time compared with building it that noise hides the difference.",
)
print(course.machine())
plots.worker_plot(counts, plain_seconds)

# %% [markdown]
# Look at one worker first. It does the work of the main process in another process, and the batch has to come back; in
# return the main process receives one batch while the next is built, which gains little where the loop does nothing
# with a batch. Each point is a pass: their spread says how much a single pass would have told you.
#
# The page from which this unit descends advises a larger batch if you see no improvement, since loading is parallel
# per batch. The next cell takes four times the batch. It also counts *page faults*: how often the system had to give
# the process a fresh, cleared page of memory (4 kB).

# %% tags=["experiment"]
usual, large, tried = sizes.batch_size, 4 * sizes.batch_size, (0, 1, 2)
by_batch = {
    usual: plain_seconds[[counts.index(w) for w in tried]],  # from above
    large: time_all([loaders.forked(plain, large, w) for w in tried], sizes.rounds),
}
gains = {batch_size: (seconds[0] / seconds[2]).quantile(0.5).item() for batch_size, seconds in by_batch.items()}
print("two workers against none: " + ", ".join(f"batch {b}: {g:.2f} times as fast" for b, g in gains.items()))
otherwise = (
    "Other programs used the cores, or a batch takes so little time to build that a worker costs more than it saves."
)
course.claim(
    "two workers are faster than none with the large batch",
    gains[large] > 1,
    f"{gains[large]:.2f} times as fast",
    otherwise=otherwise,
)
course.claim("two workers gain more with the large batch than with a quarter of it", gains[large] > gains[usual],
             f"{gains[large]:.2f} against {gains[usual]:.2f}", otherwise=otherwise)  # fmt: skip


def faults_per_batch(n, batches=8):
    """Page faults of this process per batch of n images that is stacked and let go of, the first 16 left out."""
    images = [torch.zeros(3, 250, 250) for _ in range(n)]
    for k in range(16 + batches):
        if k == 16:
            before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        torch.stack(images)
    return (resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) / batches


faults = {n: faults_per_batch(n) for n in (16, 128)}
for n, count in faults.items():
    print(f"batch of {n}, {n * 0.75:.0f} MB as floats: {count:,.0f} page faults per batch")
course.claim("without workers, a batch of 12 MB reuses memory and one of 96 MB gets fresh memory pages",
             faults[16] < 100 and faults[128] > 1000,
             f"{faults[16]:,.0f} and {faults[128]:,.0f} page faults",
             otherwise="Your C library is not glibc, or the system hands out pages of 2 MB (transparent huge pages), "
                       "so there are fewer page faults.")  # fmt: skip
batch_curves = {f"batch {batch_size}": (tried, seconds) for batch_size, seconds in by_batch.items()}
plots.rates(batch_curves, len(plain), loaders.cores(), "ToTensor: workers and batch size")

# %% [markdown]
# Whether two workers beat none can depend on the batch size. The C library of Linux gets a block above a threshold
# straight from the system and gives it back as soon as it is free. The threshold begins at 128 kB and rises to the
# largest block of this kind that was freed, up to 32 MB (mallopt(3), M_MMAP_THRESHOLD). So without workers, a process
# that has built some ten batches uses their memory again, but batches above 32 MB come in fresh pages each time.
# Workers pay for fresh pages at every size, because the shared memory of each batch is new (part 3). A comparison at
# one batch size says little about another.

# %% [markdown]
# ## More work per image
#
# **Augmentation runs in the worker, image by image: the more of it, the more there is to divide.**
#
# ### Exercise 3 · A heavy transform
#
# Build an augmentation that costs more than decoding, as real training pipelines have.
#
# **Must** return a callable that can be pickled and does to a PIL image, in this order
# - `RandomAffine`: turn by up to 5 degrees either way, shift by up to a tenth of width and height either way,
#   zoom by 0.5 to 2, bilinear, black outside;
# - `RandomHorizontalFlip` with probability a half;
# - `ColorJitter`: brightness, contrast and saturation, each changed by up to 0.3;
# - conversion to a float32 tensor (3, H, W) of values from 0 to 1.
#
# **Points** 2 · **Extra** · **Difficulty** ●○○ · **Minutes** 8 · **Lines** 10
#
# **Convention** Random numbers as torchvision draws them, in `transforms` or `v2`.
#
# **Source** torchvision documentation of `torchvision.transforms.v2`; the affine map is that of DTU course 02476.
#
# <details><summary>Hint 1</summary>
#
# Which interpolation does `RandomAffine` use if you do not say? How would you see it in a picture?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `v2.Compose` makes one callable of a list. `v2.InterpolationMode.BILINEAR` is the interpolation.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# `v2.RandomAffine(degrees=5, translate=(0.1, 0.1), scale=(0.5, 2.0), interpolation=...)`, then
# `v2.RandomHorizontalFlip()`, `v2.ColorJitter(brightness=0.3, contrast=0.3, saturation=0.3)`, and for the tensor
# `v2.ToImage()`, `v2.ToDtype(torch.float32, scale=True)`, `v2.ToPureTensor()`.
#
# </details>


# %% solution="heavy_transform"
def heavy_transform():
    """A callable: PIL image in mode RGB -> randomly moved, mirrored and coloured float32 tensor (3, H, W).

    Returns: a callable that can be pickled. It takes a PIL image of width W and height H and gives a float32 tensor
        (3, H, W) of values from 0 to 1. All its randomness comes from torch's global random numbers.
    """
    ### BEGIN SOLUTION
    return v2.Compose(
        [
            v2.RandomAffine(
                degrees=5, translate=(0.1, 0.1), scale=(0.5, 2.0), interpolation=v2.InterpolationMode.BILINEAR
            ),
            v2.RandomHorizontalFlip(),
            v2.ColorJitter(brightness=0.3, contrast=0.3, saturation=0.3),
            v2.ToImage(),
            v2.ToDtype(torch.float32, scale=True),
            v2.ToPureTensor(),
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
heavy = LFWDataset_now(folder, heavy_transform_now())
heavy.paths = plain.paths[::2]  # half of them: each takes longer
torch.manual_seed(0)
places = len(heavy) // 3, 2 * len(heavy) // 3
shown = [image for k in places for image in (plain[2 * k], heavy[k], heavy[k], heavy[k])]
plots.batch_grid(torch.stack(shown), ["original", *["augmented"] * 3] * 2, columns=4)

# %% [markdown]
# ### What an image costs, stage by stage
#
# The stages are timed inside one loop that lets go of every batch, as a training does. (If each stage ran over all
# images before the next one began, all its results would be kept, each in fresh memory, and the shares would be other
# ones.)
#
# **Predict**: with the light transform, which share of the time is reading and decoding?

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
for label, transform in (("light", transforms.ToTensor()), ("heavy", heavy_transform_now())):
    _, *runs = [stage_costs(plain.paths[: 2 * sizes.probe], transform, sizes.batch_size) for _ in range(3)]  # warm now
    costs[label] = {stage: min(run[stage] for run in runs) for stage in runs[0]}
    each = ", ".join(f"{name} {us:.0f}" for name, us in costs[label].items())
    print(f"{label}: {each}, sum {sum(costs[label].values()):.0f} µs")
share = {label: (stages["read"] + stages["decode"]) / sum(stages.values()) for label, stages in costs.items()}
print(
    f"reading and decoding take {share['light']:.0%} of the time, light transform"
    + reveal(predicted_decoding_share, "{:.0%}")
)
course.claim("with the light transform, reading and decoding take the largest part of the time",
             share["light"] > max(costs["light"][s] / sum(costs["light"].values()) for s in ("transform", "collate")),
             f"{share['light']:.0%}")  # fmt: skip
course.claim("the heavy transform takes longer than decoding", costs["heavy"]["transform"] > costs["heavy"]["decode"])
plots.stages(costs, "What an image costs in one process, in a loop")

# %% [markdown]
# The files come from the page cache, so reading is nearly free; on a cold disk it would not be. If reading and decoding
# take longer beside the heavy transform, fresh memory is not the reason (a count found no page faults in these two
# stages); the caches, which the transform uses in between, may be, which is not tested here. The heavy transform
# multiplies the work on one image, and not the number of bytes that have to be handed over. So will two workers help
# more, or less?

# %%
predicted_speedup_heavy = None  # your number: how many times as fast as no workers are two, with the heavy transform?

# %% tags=["experiment"]
few = sorted({0, 1, 2, counts[-1]})
heavy_seconds = time_all([loaders.forked(heavy, sizes.batch_size, w) for w in few], sizes.rounds)
print(f"2 workers are {timing.speedup(heavy_seconds, few.index(2))} times as fast" + reveal(predicted_speedup_heavy))
both = {"ToTensor": (counts, plain_seconds), "heavy": (few, heavy_seconds)}
ratios = {name: (seconds[0] / seconds[tried.index(2)]).quantile(0.5).item() for name, (tried, seconds) in both.items()}
course.claim("two workers gain more with the heavy transform than with the light one",
             ratios["heavy"] > ratios["ToTensor"],
             f"{ratios['heavy']:.2f} against {ratios['ToTensor']:.2f} times")  # fmt: skip
plots.rates(both, [len(plain), len(heavy)], loaders.cores(), "Light and heavy transform")

# %% [markdown]
# ### Add transforms and see
#
# Put transforms of `v2` into the list, cheap or expensive ones, predict what two workers gain, and run the cells.

# %%
more_transforms = [v2.GaussianBlur(5)]
predicted_speedup_more = None  # your number

# %% tags=["experiment"]
chain = v2.Compose([*more_transforms, heavy_transform_now()])
longer = loaders.evenly_spaced(LFWDataset_now(folder, chain), max(4 * sizes.batch_size, sizes.images // 4))
pairs = time_all([loaders.forked(longer, sizes.batch_size, w) for w in (0, 2)], 2)
print(f"2 workers are {timing.speedup(pairs, 1)} times as fast" + reveal(predicted_speedup_more))

# %% [markdown]
# ### Why not twice as fast?
#
# The system counts how many seconds of CPU each process has used. The speed-up is a product of two factors: how many
# cores are busy on average, and how much CPU time an image costs now compared with one in the main process alone.


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
             ", ".join(f"{label}: {1 / factor:.2f} times" for label, factor in factors.items()))  # fmt: skip
course.claim(
    "workers raise the CPU time per image by a larger factor with the light transform",
    factors["ToTensor"] < factors["heavy"],
)

# %% [markdown]
# The first factor says whether the cores had work: it falls short of 2 where workers wait, at the beginning of a pass,
# and whenever another job took a core. The second says what an image costs now. Handing a batch over adds CPU time,
# most of it for the fresh shared memory of the batch (part 3 measures it), and no more for a heavy image than for a
# light one: that is much compared with little work, and little compared with much. And two cores that compute at once
# may each be slower than one alone (part 4 measures by how much), which makes all of the work dearer. Each number is a
# median over the rounds; where the product is far from the speed-up above, the machine was faster in one of the two:
# other programs ran, here or beside it on the same host.

# %% [markdown]
# ## A bug in the wild
#
# **A timer that runs and prints looks right; whether it timed what it says can only be seen from the side of the
# loader.**
#
# The course from which this unit descends (DTU 02476, `exercise_files/lfw_dataset.py` of its module on distributed data
# loading) hands out a script that times a loader. It offers "100 batches" as an option, but LFW has 13,233 images and a
# batch 512: the loader ends after 26 batches, and nobody is told. Nothing is warmed up, and `time.time` can jump. Its
# loop and its last line have two faults more. The function below has both, rebuilt in our own lines.


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
# The last line prints the same on every machine: it lacks the `f` before the string. The other fault is in the loop.
#
# **Predict**: how many batches does `published_timing` draw in its five passes of "100"?

# %%
predicted_batches_published = None  # your number

# %% [markdown]
# ### Exercise 4 · Show it
#
# Write a function that says for *any* timing function how many batches it draws when it is asked for `n_batches`. The
# experiment below applies it to the published function and to your `seconds_per_pass`.
#
# **Must**
# - call `timing(loader, n_batches)` once, with a loader of your own that can be iterated as often as `timing` likes and
#   never comes to an end;
# - count every batch that the loader hands out, over all passes;
# - let an exception of `timing` through.
#
# **You may assume** that `timing` does not look into a batch.
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

# %% tags=["experiment"]
batches_drawn_now = course.solved(check.batches_drawn)
seconds_per_pass_now = course.solved(check.seconds_per_pass)
published, ours = (batches_drawn_now(f, 100) for f in (published_timing, seconds_per_pass_now))
print(f"published_timing draws {published}" + reveal(predicted_batches_published))
course.claim("the published loop draws two batches too many per pass", published == 5 * 102, f"{published} for 500")
course.claim("seconds_per_pass draws what it is asked for, with one pass to warm up", ours == 600, f"{ours}")
n_batches = math.ceil(len(plain) / sizes.batch_size)
print("2 workers, ToTensor:", timing.timing_line(plain_seconds[counts.index(2)], n_batches, sizes.batch_size))

# %% [markdown]
# ## What to take with you
#
# 1. Measure in turn, with a warm-up, more than once, and say the spread. Draw exactly as many batches as you divide by.
# 2. Two numbers explain a disappointing speed-up: how many cores were busy, and what an image costs now.
#
# Part 3 looks at what many processes change: random numbers, copies of bytes, start-up and memory.
