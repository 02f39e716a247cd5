# %% [markdown]
# # Parallel loading, part 4: Choose the number of workers
#
# **How many workers, and is there a way without them?**
#
# Loading can be bound by decoding, by computing or by waiting, and each asks for another number of workers. You
# write a model of three numbers, fit it to measured times, and let it choose. Then you compare decoders and
# transforms, and meet a loader that beats all the others without a single worker.
#
# All exercises of this part are extra. Whoever follows the core runs the measurements and reads what they show.
#
# **You will be able to**
#
# - say what bounds a loader, and from that how many workers it can use;
# - fit and question a model of loading time against workers;
# - look for a step to leave out before adding a process.
#
# **Minutes** 0 core · 85 in all
#
# **Needs** parts 1 and 2: `LFWDataset`, `heavy_transform`, `seconds_per_pass` and `sweep` are taken over if you
# solved them

# %% locked="setup"
import functools
import math
import time
import warnings

import numpy as np
import torch
from torch.utils.data import Dataset
from torchvision import transforms
from torchvision.io import ImageReadMode, decode_jpeg, read_file
from torchvision.transforms import v2

import course
from course import loaders, timing
from course.checks import parallel_loading as check
from course.datasets import lfw
from course.plots import parallel_loading as plots
from course.predictions import reveal

warnings.filterwarnings("ignore", "This DataLoader will create")  # more workers than cores: we try that on purpose
print(course.machine())

# %% [markdown]
# ## Bound by what?
#
# **Workers that compute need cores; workers that only wait do not.**
#
# Three kinds of loading: *decode-bound* (`ToTensor` alone, the light transform), *transform-bound* (the heavy one),
# and *IO-bound*, where an image is waited for. We make the third with a sleep of 5 ms before each image, about what
# a network disk or an object store takes to answer. Up to how many workers does it gain?

# %%
predicted_best_workers_io = None  # your number


# %% tags=["experiment"]
torch.set_num_threads(1)  # as in a worker: one image is too little work for several threads
sizes = course.sizes("01_parallel_loading")
LFWDataset_now = course.solved(check.LFWDataset)
heavy_transform_now = course.solved(check.heavy_transform)
sweep_now = course.solved(check.sweep)
time_all = functools.partial(  # the loaders given, in turn, whole passes
    timing.time_in_turn, seconds_per_pass=course.solved(check.seconds_per_pass), sweep=sweep_now
)
folder = lfw.folder(sizes.dataset)
plain = loaders.evenly_spaced(LFWDataset_now(folder), sizes.images)
heavy = loaders.evenly_spaced(LFWDataset_now(folder, heavy_transform_now()), sizes.images)
counts = loaders.worker_counts(len(plain) // sizes.batch_size)


class SlowDisk(Dataset):
    """The items of `data`, each after a wait of 5 ms."""

    def __init__(self, data):
        self.data = data

    def __len__(self):
        return len(self.data)

    def __getitem__(self, i):
        time.sleep(0.005)
        return self.data[i]


curves = {}
for label, data in (("ToTensor", plain), ("heavy", heavy)):
    curves[label] = counts, time_all([loaders.forked(data, sizes.batch_size, w) for w in counts], sizes.rounds)
slow = SlowDisk(loaders.evenly_spaced(LFWDataset_now(folder), max(1, sizes.images // 2)))
small, io_counts = sizes.batch_size // 4, sorted({*counts, 2 * counts[-1]})
io_seconds = time_all([loaders.forked(slow, small, w) for w in io_counts], max(2, sizes.rounds - 2))
curves["5 ms of waiting"] = io_counts, io_seconds
best = io_counts[int(io_seconds.mean(1).argmin())]
print(f"waiting: fastest with {best} of {io_counts} workers" + reveal(predicted_best_workers_io))
plots.rates(curves, [len(plain), len(heavy), len(slow)], loaders.cores(), "Decoding, computing, waiting")

# %% [markdown]
# Three curves, three answers. The light transform is fastest *without* workers, on two cores: what a worker saves
# is less than what handing over costs. The heavy one gains up to the number of cores. Where images are waited for,
# the gain goes on far beyond, because a process that sleeps needs no core: the answer to "how many workers" is then
# not in the number of cores but in the time to wait. `os.cpu_count()` is a rule of thumb for the second kind only.

# %% [markdown]
# ## How many workers?
#
# **Workers share the work of building batches; what the main process does once per batch remains, and so does the
# training step.**
#
# Building a batch costs one worker $a$ seconds of work. $w$ workers build $w$ batches in that time, so that one is
# ready every $a / w$ seconds. To this comes what does not divide: handing the batch over, unpacking it, the loop of
# the main process, together $c$ seconds per batch. The sum falls with every worker, but ever more slowly, and stays
# above $c$.
#
# Then there is a floor $f$. The training step may take longer than the loading; or all cores are busy, and further
# workers only take turns. However many workers there are, a batch does not come faster than every $f$ seconds:
#
# $$T(w) = \max\left(f,\; \frac{a}{w} + c\right), \qquad w \ge 1$$
#
# Plotted against $1/w$ the second term is a straight line of slope $a$, and the floor is level. Three numbers describe
# a whole curve. They can be fitted to a handful of measured times, and they tell how many workers are worth having.
#
# The model starts at one worker. With 0 workers the main process builds the batches itself: nothing is handed over, and
# nothing happens at the same time. This time has to be measured, and can be the best of all.

# %% [markdown]
# ### Exercise 1 · The model
#
# Compute $T(w)$ for several numbers of workers at once.
#
# **Points** 2 · **Extra** · **Difficulty** ●○○ · **Minutes** 5 · **Lines** 2
#
# **Convention** The formula above: the overhead is paid once per batch, whatever `w`, and the floor is compared with
# the sum of both terms. Computed in float64, also for whole numbers and float32.
#
# **Source** Amdahl 1967, "Validity of the single processor approach to achieving large scale computing capabilities",
# AFIPS (work that divides and work that does not); the floor is ours.
#
# <details><summary>Hint 1</summary>
#
# Which of the three numbers does a further worker make smaller?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `torch.as_tensor(workers, dtype=torch.float64)` takes lists and tensors; `clamp(min=floor)` is the maximum with a
# number.
#
# </details>


# %% solution="predict_seconds"
def predict_seconds(workers, floor, work, overhead):
    """Seconds per batch that the model predicts for each number of workers: max(floor, work / w + overhead).

    Args:
        workers: list of whole numbers or tensor (n,) of any dtype; every value is at least 1.
        floor, work, overhead: seconds, Python floats.

    Returns: float64 tensor (n,), on the device of `workers` if that is a tensor, else on the CPU.
    """
    ### BEGIN SOLUTION
    workers = torch.as_tensor(workers, dtype=torch.float64)
    return (work / workers + overhead).clamp(min=floor)
    ### END SOLUTION


# %% test="predict_seconds-visible" points=1
check.predict_seconds(predict_seconds)

# %% test="predict_seconds-hidden" points=1
### BEGIN HIDDEN TESTS
check.predict_seconds(predict_seconds, seed=1967)
### END HIDDEN TESTS

# %% [markdown]
# ### Exercise 2 · Fit the model
#
# Find floor, work and overhead from measured seconds per batch. Nobody says which of the points lie on the floor; try
# every split and keep the best.
#
# **Points** 4 · **Extra** · **Difficulty** ●●● · **Minutes** 50 · **Lines** 9
#
# **Convention** For each $k = 0, 1, \dots, n - 2$ the last $k$ points (the most workers) are taken to lie on the floor:
#
# - `floor` is the mean of their seconds; for $k = 0$ it is 0.0;
# - `work` and `overhead` are slope and intercept of the ordinary least-squares line of seconds against $1/w$ through
#   the other $n - k$ points, two at least;
# - the error of $k$ is the sum of squared differences between $T(w)$ and the seconds over *all* $n$ points. Here $T$ is
#   the model with its maximum: it need not follow the split.
#
# The result belongs to the smallest $k$ whose error is at most the smallest error plus $10^{-12}$ times the sum of the
# squared seconds. This allowance is for rounding: times that lie exactly on a line are fitted perfectly by $k = 0$ and
# by $k = 1$, and then no floor is the simpler claim. Nothing is clipped. A negative overhead (or work) is returned as
# it is: it says that the model does not hold here, or that the times are too noisy. Compute in float64.
#
# **Source** Quandt 1958, "The estimation of the parameters of a linear regression system obeying two separate regimes",
# Journal of the American Statistical Association 53 (try every split, keep the one that fits best).
#
# <details><summary>Hint 1</summary>
#
# With two points left for the line, the line always goes through both. Which points must the error look at, so that
# this does not win every time?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Keep the error and the model of every $k$ in a list, and choose afterwards. `y[:n - k]` and `y[n - k:]` are right
# for $k = 0$ too; `y[:-k]` is empty there. The mean of no values is NaN, so $k = 0$ needs its own floor.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# With NumPy arrays `x` (of 1 / w) and `y`, the line is `work, overhead = np.polyfit(x[:n - k], y[:n - k], 1)` and the
# error `((np.maximum(floor, work * x + overhead) - y) ** 2).sum()`. At the end take the first model whose error is at
# most the smallest error `+ 1e-12 * (y**2).sum()`.
#
# </details>


# %% solution="fit_workers"
def fit_workers(workers, seconds):
    """(floor, work, overhead) of the model max(floor, work / w + overhead) that fits the measured seconds best.

    Args:
        workers: list of n different whole numbers of at least 1, ascending; n is at least 3.
        seconds: float tensor (n,) on the CPU, mean seconds per batch, all above 0.

    Returns: three Python floats, in seconds.
    """
    ### BEGIN SOLUTION
    x, y = 1 / np.array(workers), seconds.double().numpy()
    n, fits = len(y), []
    for k in range(n - 1):  # points on the floor
        work, overhead = np.polyfit(x[: n - k], y[: n - k], 1)
        floor = y[n - k :].mean() if k else 0.0
        error = ((np.maximum(floor, work * x + overhead) - y) ** 2).sum()
        fits.append((error, (float(floor), float(work), float(overhead))))
    limit = min(error for error, _ in fits) + 1e-12 * (y**2).sum()
    return next(model for error, model in fits if error <= limit)
    ### END SOLUTION


# %% test="fit_workers-visible" points=2
check.fit_workers(fit_workers)

# %% test="fit_workers-hidden" points=2
### BEGIN HIDDEN TESTS
check.fit_workers(fit_workers, seed=1958)
### END HIDDEN TESTS

# %% [markdown]
# ### Exercise 3 · Choose
#
# Say how many workers to use: the fewest that are nearly as good as the best. Each worker is a process with a copy of
# the dataset and batches under way, so that one which gains a per cent is not worth its memory.
#
# **Points** 2 · **Extra** · **Difficulty** ●○○ · **Minutes** 12 · **Lines** 6
#
# **Convention** The prediction for 0 workers is `in_main`, for $w \ge 1$ it is $T(w)$. The answer is the smallest
# candidate whose prediction is at most (1 + `slack`) times the smallest prediction among the candidates. What is not a
# candidate is neither chosen nor compared with: without 0 in the list, `in_main` plays no part. Candidates stand in any
# order. No candidates: a `ValueError` whose message contains the word "candidates"; that of `min` says nothing.
#
# **Source** The rule is ours; it is kin to the one-standard-error rule of Breiman, Friedman, Olshen and Stone 1984,
# "Classification and Regression Trees", section 3.4.3 (of all models nearly as good as the best, the smallest).
#
# <details><summary>Hint 1</summary>
#
# Smallest prediction, smallest number: which of the two minima comes first?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# A dictionary from candidate to prediction holds all you need: the minimum of its values gives the limit, the minimum
# of the keys within it the answer.
#
# </details>


# %% solution="choose_workers"
def choose_workers(model, in_main, candidates, slack=0.05):
    """The fewest workers that are nearly the best.

    Args:
        model: (floor, work, overhead), seconds per batch, as `fit_workers` gives them.
        in_main: measured seconds per batch with 0 workers.
        candidates: list of whole numbers, 0 or more, in any order.
        slack: how much slower than the best is near enough, as a share of the best, at least 0.

    Returns: one of the candidates, an int.
    Raises: ValueError if there are no candidates.
    """
    ### BEGIN SOLUTION
    if not candidates:
        raise ValueError("asked for the best of no candidates; give at least one number of workers.")
    floor, work, overhead = model
    seconds = {w: max(floor, work / w + overhead) if w else in_main for w in candidates}
    limit = (1 + slack) * min(seconds.values())
    return min(w for w in candidates if seconds[w] <= limit)
    ### END SOLUTION


# %% test="choose_workers-visible" points=1
check.choose_workers(choose_workers)

# %% test="choose_workers-hidden" points=1
### BEGIN HIDDEN TESTS
check.choose_workers(choose_workers, seed=1984)
### END HIDDEN TESTS

# %% [markdown]
# ### The model meets the sweeps
#
# Fit the model to each of the three sweeps above, let it choose, and compare with the fastest that was
# measured.

# %% tags=["experiment"]
predict_seconds_now = course.solved(check.predict_seconds)
fit_workers_now = course.solved(check.fit_workers)
choose_workers_now = course.solved(check.choose_workers)
for label, (tried, seconds) in curves.items():
    n = math.ceil(len(slow) / small if label == "5 ms of waiting" else len(plain) / sizes.batch_size)
    ms = 1000 * seconds / n
    middle = ms.quantile(0.5, dim=1)
    model = fit_workers_now(tried[1:], middle[1:])
    chosen = choose_workers_now(model, middle[0].item(), tried)
    fastest = tried[int(middle.argmin())]
    loss = (middle[tried.index(chosen)] / middle.min() - 1).item()
    print(f"{label}: T(w) = max({model[0]:.1f}, {model[1]:.1f} / w {model[2]:+.1f}) ms; T(0) = {middle[0]:.1f} ms")
    print(f"    the model takes {chosen}, fastest measured {fastest}; {100 * loss:.0f} % slower than the fastest")
heavy_batch = curves["heavy"][1] / math.ceil(len(heavy) / sizes.batch_size)
floor, work, overhead = fit_workers_now(counts[1:], heavy_batch[1:].quantile(0.5, dim=1))
in_main = heavy_batch[0].quantile(0.5).item()
between = torch.linspace(1, counts[-1], 200)
lines = {
    "work / w + overhead": (between, predict_seconds_now(between, 0.0, work, overhead)),
    "T(w)": (between, predict_seconds_now(between, floor, work, overhead)),
}
chosen = choose_workers_now((floor, work, overhead), in_main, counts)
plots.worker_model(counts[1:], heavy_batch[1:], lines, in_main, chosen)

# %% [markdown]
# Look at the three results printed before the plot. The number that is fitted to "overhead" is what no worker takes
# off you; if it is as large as the time of a batch in the main process, workers cannot help, and the model says 0.
# For the transform-bound sweep the work divides until the floor is met, which on a machine without other work is the
# number of cores. For the sweep that waits, a floor that lies at its last point says only where the sweep ends: more
# workers might gain still.
#
# A fit with three numbers on a handful of points is no law of nature. Where two settings lie within the spread of the
# measurement, the model takes the smaller one, and that is what you want: a worker costs memory.

# %% [markdown]
# ### Is there a cheaper way to the same tensor?
#
# Before adding processes, look at what one of them costs. Top: an image from file to float tensor, with PIL and with
# torchvision's own decoder. Bottom: only the affine part of the heavy transform, bilinear, in the first version of
# `torchvision.transforms` on a PIL image and in `v2` on PIL images, on uint8 tensors and on float tensors.


# %% tags=["experiment"]
def tv_decoded(path):
    return decode_jpeg(read_file(str(path)), mode=ImageReadMode.RGB)


def per_image(functions):
    """µs per image for each of {label: (function, inputs)}, `rounds` samples each, in turn."""

    def measure(label):
        return timing.microseconds(*functions[label])[0]

    torch.manual_seed(0)
    return dict(zip(functions, sweep_now(measure, list(functions), sizes.rounds), strict=True))


affine = dict(degrees=5, translate=(0.1, 0.1), scale=(0.5, 2.0), interpolation=transforms.InterpolationMode.BILINEAR)
some = plain.paths[:: max(1, len(plain) // sizes.probe)]
raw = LFWDataset_now(folder, transform=lambda picture: picture)  # item i is the decoded PIL image
raw.paths, to_tensor = some, transforms.ToTensor()
pictures, octets = [raw[i] for i in range(len(some))], [tv_decoded(path) for path in some]
tensors = [to_tensor(picture) for picture in pictures]
decoders = per_image(
    {
        "PIL, ToTensor": (lambda i: to_tensor(raw[i]), range(len(some))),
        "torchvision, v2.ToDtype": (lambda path: v2.functional.to_dtype(tv_decoded(path), torch.float32, True), some),
        "torchvision, bytes only": (tv_decoded, some),
    }
)
affines = per_image(
    {
        "affine, v1, PIL": (transforms.RandomAffine(**affine), pictures),
        "affine, v2, PIL": (v2.RandomAffine(**affine), pictures),
        "affine, v2, uint8 tensor": (v2.RandomAffine(**affine), octets),
        "affine, v2, float tensor": (v2.RandomAffine(**affine), tensors),
    }
)
same = all(torch.equal(tensor, octet / 255) for tensor, octet in zip(tensors, octets, strict=True))
print(f"PIL and torchvision decode to the same pixels: {same}")
plots.bars(decoders | affines, "µs per image", "Decoders and transforms, one core")

# %% [markdown]
# Decoders first. The same library, libjpeg-turbo, does the work in both, and PIL's way to a float tensor is longer:
# decode, convert, copy out of PIL, change the order of the axes, turn into floats. Then the transforms: little
# difference, the arithmetic of bilinear interpolation is the same for all. Which way is best depends on the
# processor, so measure. A step that is left out is worth as much as a second core, and costs no memory.

# %% [markdown]
# ## The fastest way
#
# **Threads that decode into buffers which are used again have nothing to start, nothing to hand over, and no fresh
# memory to ask for.**
#
# Look back at the costs in part 2. An image costs little decoding and much handling: PIL's copies, a float tensor
# per image, a collated batch, fresh shared memory per batch, a second mapping in the main process.
# `course.loaders.ThreadedJpegs` (80 lines, read them) does without: torchvision's decoder lets go of Python's lock,
# so that *threads* decode at the same time; each writes its floats straight into its place in a batch buffer; there
# are three buffers, used in turn. The pixels are the same to the bit.
#
# How many times as fast as PIL + ToTensor without workers?

# %%
predicted_speedup_threads = None  # your number


# %% tags=["experiment"]
class AsFloats:
    """Batches of bytes, turned into floats where they arrive."""

    def __init__(self, batches):
        self.batches = batches

    def __len__(self):
        return len(self.batches)

    def __iter__(self):
        return (batch.float().div_(255) for batch in self.batches)


class Octets(Dataset):
    """Images as torchvision decodes them: uint8 tensors."""

    def __len__(self):
        return len(plain)

    def __getitem__(self, i):
        return tv_decoded(plain.paths[i])


ways = {
    "PIL + ToTensor, 0 workers": loaders.forked(plain, sizes.batch_size, 0),
    "PIL + ToTensor, 2 workers": loaders.forked(plain, sizes.batch_size, 2),
    "torchvision's bytes, 0 workers": AsFloats(loaders.forked(Octets(), sizes.batch_size, 0)),
    "torchvision's bytes, 2 workers": AsFloats(loaders.forked(Octets(), sizes.batch_size, 2)),
    "1 thread, reused buffers": loaders.ThreadedJpegs(plain.paths, sizes.batch_size, threads=1),
    "threads, reused buffers": loaders.ThreadedJpegs(plain.paths, sizes.batch_size),
}
for way in ways.values():
    assert all(torch.equal(a, b) for a, b in zip(way, ways["PIL + ToTensor, 0 workers"], strict=True))
way_seconds = time_all(ways.values(), sizes.rounds)
for i, label in enumerate(ways):
    prediction = predicted_speedup_threads if label == "threads, reused buffers" else None
    print(f"{label:<32} {timing.speedup(way_seconds, i)}" + reveal(prediction))
print(course.machine())
plots.bars(dict(zip(ways, len(plain) / way_seconds, strict=True)), "images/s", "Equal pixels, six ways")

# %% [markdown]
# Read the bars as what each way leaves out. Workers that hand over bytes move a quarter of what floats are;
# torchvision's decoder without workers does without the handing over; threads do without it *and* use all cores. (A
# larger batch, in a block above 32 MB, makes the first bar shorter and leaves the last as it is: `python -m
# course.benchmarks.lfw paths --batch-size 64` against 32.)


# %% [markdown]
# ## From the command line
#
# All of this is also a program, with the flags of the script from which the unit descends. It uses the reference
# solutions, or with `-answers` yours: name the folder that holds your notebooks of this unit.
#
# ```
# python -m course.lfw_dataset
# python -m course.lfw_dataset -visualize_batch
# python -m course.lfw_dataset -get_timing -num_workers 0 1 2 4 -heavy
# python -m course.lfw_dataset -get_timing -answers notebooks/01_parallel_loading
# ```
#
# ## What to take with you
#
# 1. Workers pay when an image takes much work, or much waiting, compared with handing it over. For cheap items they
#    cost.
# 2. Fit $T(w) = \max(\text{floor}, \text{work} / w + \text{overhead})$, and take the fewest workers that are nearly
#    the best.
# 3. Before adding processes, look at what one of them costs. Leaving out a copy beats dividing it.
#
# ## To read on
#
# - I. Svogor et al., Profiling and Improving the PyTorch Dataloader for high-latency Storage, 2022
#   ([arXiv:2211.04908](https://arxiv.org/abs/2211.04908)): the loader measured where images come over a network.
# - G. Leclerc et al., FFCV: Accelerating Training by Removing Data Bottlenecks, 2023
#   ([arXiv:2306.12517](https://arxiv.org/abs/2306.12517)): reused buffers, compiled pipelines, a file format of its
#   own.
