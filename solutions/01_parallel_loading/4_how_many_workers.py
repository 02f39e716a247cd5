# %% [markdown]
# # Parallel loading, part 4: Choose the number of workers
#
# **How many workers, before you have tried them all?**
#
# If you try a few numbers of workers, you learn which is fastest here. You do not learn why, nor what more cores would
# change. So in this part you measure *one* worker, and how much your cores do in parallel. From these you predict the
# rest, and then you check the prediction.
#
# **You will be able to**
#
# - tell which stage of a loader sets the pace, and whether more workers can change that;
# - predict the speed of several workers from measurements of one;
# - choose the fewest workers that are nearly the best.
#
# **Minutes** 23 core · 40 in all · session 2
#
# **Needs** `LFWDataset` of part 1 and `seconds_per_pass` of part 2

# %% locked="setup"
import functools
import time
import warnings

import torch
from torch.utils.data import Dataset

import course
from course import figures
from course.checks import parallel_loading as check
from course.datasets import lfw
from course.loading import loader_passes, loaders
from course.measure import comparison
from course.plots import parallel_loading as plots

# PyTorch warns of more workers than cores; here we try that on purpose
warnings.filterwarnings("ignore", "This DataLoader will create")
print(course.machine())

# %% [markdown]
# ## How long does a pipeline take?
#
# Loading and training form a pipeline, so start with one in which nothing computes. A worker sleeps 36 ms per batch,
# and the training loop sleeps 12 ms. Without workers, one process does both, so a batch takes 48 ms.
#
# **Predict**: how many ms does a batch take with four workers?

# %%
predicted_ms_four = None  # your number

# %% tags=["experiment"]
sizes = course.sizes("01_parallel_loading")
seconds_per_pass_now = course.solved(check.seconds_per_pass)
limits = {"rounds": sizes.pass_rounds, "seconds": sizes.pass_seconds}  # of each comparison
numbers = [0, 1, 2, 4]
n_batches = loader_passes.batches_for(numbers)
sleeping = loader_passes.Sleeping(n_batches, 0.036)


def step(batch):
    """Stand for a training step of 12 ms."""
    time.sleep(0.012)


slept = loader_passes.compare_workers(
    sleeping, 1, numbers, seconds_per_pass_now, step=step, **limits
)
ms = {}
for workers in numbers:
    seconds = slept.passes.time(loader_passes.way_of(workers))
    ms[workers] = seconds.scaled(1000 / n_batches)

print(slept)
said = "ms per batch with four workers that sleep"
print(course.score("01/4", said, predicted_ms_four, ms[4], null=48))

# %% tags=["experiment"]
course.claim(
    "two workers that sleep are twice as fast as one, within 10 %",
    slept.passes.ratio("2 workers", to="1 worker"),
    within=(2 / 1.1, 2 * 1.1),
)
course.claim(
    "with four workers, a batch is four times as fast as without: only the loop's sleep is left, within 20 %",
    slept.ratio(4),
    within=(4 / 1.2, 4 * 1.2),
)

# %% [markdown]
# The worker and the loop sleep at the same time, for different batches. So with one worker, a batch takes 36 ms instead
# of 48 ms. Two workers alternate, so a batch is ready every 18 ms. With four workers a batch is ready every 9 ms, but
# the loop still takes 12. A pass takes somewhat longer, because the loop also waits for the first batch.
#
# **Takeaway** A pipeline takes about as long as its slowest stage, not as long as all stages together.

# %% [markdown]
# ## What is the time with w workers?
#
# Four numbers decide the time per batch $T(w)$ with $w \ge 1$ workers:
#
# - One worker needs $a$ seconds to build a batch, and the $w$ workers divide the batches among them.
# - The main process needs $c$ seconds per batch. It unpacks the message, maps the shared memory and runs your loop.
# - A device may train on the batch for *step* seconds, during which it needs no core.
# - The workers and the main process share $n$ cores, which do at most $n$ seconds of work per second.
#
# All of them work simultaneously, on different batches. Each of the four sets a time that a batch takes *at least*.
# What are these four times, and what is $T(w)$?
#
# ### Exercise 1 · The pipeline's time
#
# Write the function that computes $T(w)$ for several numbers of workers.
#
# **Must**
# - take the longest of the four times per batch;
# - return a float64 tensor, whether `workers` is a list or a tensor;
# - take `cores=math.inf`, which stands for work that needs no core.
#
# ```python
# >>> predict_seconds([1, 2, 4], a=0.3, c=0.1, cores=2)
# tensor([0.3000, 0.2000, 0.2000], dtype=torch.float64)
# ```
#
# **Points** 2 · **Core** · **Difficulty** ●●○ · **Minutes** 10 · **Lines** 2
#
# **Source** Hennessy and Patterson, "Computer Architecture", the chapter on pipelining: throughput is set by the
# slowest stage. The term for shared cores is ours.
#
# <details><summary>Hint 1</summary>
#
# Which of the four times does another worker make shorter? In the example, why is the result 0.2 both with two and with
# four workers?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# $T(w) = \max(a / w,\; c,\; (a + c) / n,\; \text{step})$. Each batch is $a + c$ seconds of work for the cores, however
# many processes share it.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# `torch.as_tensor(workers, dtype=torch.float64)` takes lists and tensors. `tensor.clamp(min=number)` gives the larger
# of the two, and Python's `max` takes three numbers.
#
# </details>


# %% solution="predict_seconds"
def predict_seconds(workers, a, c, cores, step=0.0):
    """Seconds per batch that the pipeline takes with each number of workers.

    Args:
        workers: list of whole numbers or tensor (n,) of any dtype; every value is at least 1.
        a: seconds that one worker needs to build a batch.
        c: seconds that the main process needs per batch.
        cores: cores that they share; math.inf if their work needs no core.
        step: seconds that the device computes per batch.

    Returns: float64 tensor (n,), on the device of `workers` if that is a tensor, else on the CPU.
    """
    ### BEGIN SOLUTION
    workers = torch.as_tensor(workers, dtype=torch.float64)
    return (a / workers).clamp(min=max(c, (a + c) / cores, step))
    ### END SOLUTION


# %% test="predict_seconds-visible" points=1
check.predict_seconds(predict_seconds)

# %% test="predict_seconds-hidden" points=1
### BEGIN HIDDEN TESTS
check.predict_seconds(predict_seconds, seed=1967)
### END HIDDEN TESTS

# %% tags=["experiment"]
predict_now = course.solved(check.predict_seconds)
predicted = predict_now([1, 2, 4], a=0.036, c=0.0, cores=float("inf"), step=0.012)

for workers, seconds in zip((1, 2, 4), predicted.tolist(), strict=True):
    way = loader_passes.way_of(workers)
    print(f"{way}, asleep: predicted {1000 * seconds:.1f} ms per batch, measured {ms[workers]}")

# %% [markdown]
# **Takeaway** More workers shorten only one of the four times. Ask which of the four is the longest.

# %% [markdown]
# ## Can one worker predict the others?
#
# Workers that sleep need no core, but real workers do. So test the formula on a loader that computes. Each round
# measures, in random order:
#
# - $a$ and $c$: the CPU time that one worker and the main process use per batch;
# - $n$: the speed at which one process per core makes items, divided by the speed of a single process (two cores may do
#   less than twice the work of one);
# - passes with other numbers of workers, whose times the formula must predict from $a$, $c$ and $n$ of this round.
#
# **Predict**: how many times as fast as one worker are two, according to the formula, with the heavy transform? Twice
# as fast, if your cores keep up. Less, if the workers and the main process together need more cores than there are.

# %%
predicted_speedup_heavy = None  # your number

# %% tags=["experiment"]
torch.set_num_threads(1)  # as in a worker: one image is too little work for several threads
LFWDataset_now = course.solved(check.LFWDataset)
folder = lfw.folder(sizes.dataset)
plain = loaders.evenly_spaced(LFWDataset_now(folder), sizes.images)
heavy = LFWDataset_now(folder, lfw.heavy_transform())
heavy = loaders.evenly_spaced(heavy, sizes.images // 2)  # fewer: each takes longer
held_out = sorted({2, 4, loaders.cores(), 2 * loaders.cores()} - {1})

# measures one worker, the cores and all passes in the same rounds, then applies your formula
forecast = functools.partial(
    loader_passes.checked_forecast,
    seconds_per_pass=seconds_per_pass_now,
    predict_seconds=predict_now,
    cores_seconds=sizes.cores_seconds,
    **limits,
)

# %% tags=["experiment"]
forecasts = {
    "ToTensor": forecast(plain, sizes.pass_batch, held_out, computed=plain),
    "heavy": forecast(heavy, sizes.pass_batch, held_out, computed=heavy),
}
one_ms, two_ms = forecasts["heavy"].found.predicted_ms([1, 2], predict_now)
by_formula = comparison.ratio_interval(one_ms, two_ms)

for label, of_data in forecasts.items():
    print(f"{label}: {of_data}")
said = "two workers against one by the formula, heavy transform"
print(course.score("01/4", said, predicted_speedup_heavy, by_formula))
plots.predicted_workers(forecasts, sizes.pass_batch)

# %% tags=["experiment"]
course.claim(
    "one worker predicts the time with every other number of workers within 15 %, with ToTensor",
    forecasts["ToTensor"].furthest_miss(),
    within=(1 / 1.15, 1.15),
)
course.claim(
    "one worker predicts the time with every other number of workers within 15 %, with the heavy transform",
    forecasts["heavy"].furthest_miss(),
    within=(1 / 1.15, 1.15),
)

# %% [markdown]
# Where a line goes flat, the formula says that all cores or the main process are busy all the time. With two cores the
# line is flat from two workers on, so this section tests the term for the cores. The sleeping workers tested $a / w$
# and *step*. The formula says nothing about $T(0)$, the dotted line, so measure it.
#
# <details><summary>Why may a pass take longer than predicted?</summary>
#
# **We think** that stacking into new shared memory is one reason, because $n$ was measured on items that nobody stacks.
# To test this, return 8 × 8 pixels per image, as part 2 does.
#
# </details>
#
# **Takeaway** Measure one worker and your cores, predict the rest, and check the prediction at one number of workers.

# %% [markdown]
# ## What does the formula leave out? · extra
#
# The formula describes an endless pass, but real passes end. The figure simulates a short pass. Its batches take as
# long as batches with the heavy transform take on your machine. A step takes a third of their mean, and each worker has
# its own core.
#
# Move the figure's sliders. **With how many workers does the loop wait only for the first batch? And with a step of 0
# ms, why do 10 batches with 4 workers take nearly as long as 12?**

# %% tags=["experiment"]
load_ms = []
for batch in torch.arange(len(heavy)).split(sizes.batch_size):
    begin = time.perf_counter()
    torch.stack([heavy[i] for i in batch.tolist()])
    load_ms.append(1000 * (time.perf_counter() - begin))
mean_ms = sum(load_ms) / len(load_ms)

figures.pipeline(load_ms, mean_ms / 3, workers=1, batches=20)

# %% [markdown]
# A step takes a third of the mean loading time, so three workers can keep up if batches take equal times.
#
# Each of four workers builds every fourth batch. Of 10 batches, two workers build three each. Of 12 batches, all four
# do. So both passes take about as long as three batches of one worker.
#
# If a few batches take much longer than the others, the loop may wait for those, although the workers keep up on
# average. Then a longer queue helps (part 8).
#
# **Takeaway** If batches take equal times and the workers keep up, the loop waits only for the first batch.

# %% [markdown]
# ## Which number do you take? · extra
#
# A worker is a process that holds several batches, so it costs memory.
#
# ### Exercise 2 · Choose
#
# Write the function that returns the fewest workers that are nearly as good as the best number.
#
# **Must**
# - return the smallest number whose seconds are at most (1 + `slack`) times the smallest seconds;
# - treat 0 workers like any other candidate.
#
# ```python
# >>> choose_workers({0: 3.0, 1: 2.0, 2: 1.02, 4: 1.0})
# 2
# ```
#
# **Points** 2 · **Extra** · **Difficulty** ●○○ · **Minutes** 8 · **Lines** 2
#
# **Source** The rule is ours, after the one-standard-error rule of Breiman, Friedman, Olshen and Stone 1984, section
# 3.4.3.
#
# <details><summary>Hint 1</summary>
#
# You need two minima, of the seconds and of the numbers. Which comes first?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# The minimum of the dictionary's values gives the limit. The smallest key within this limit is the answer.
#
# </details>


# %% solution="choose_workers"
def choose_workers(seconds, slack=0.05):
    """The fewest workers that are nearly the best.

    Args:
        seconds: dictionary from a number of workers, 0 or more, to its seconds per batch, in any order; not empty.
        slack: how much slower than the best is near enough, as a share of the best, at least 0.

    Returns: one of the keys, an int.
    """
    ### BEGIN SOLUTION
    limit = (1 + slack) * min(seconds.values())
    return min(w for w in seconds if seconds[w] <= limit)
    ### END SOLUTION


# %% test="choose_workers-visible" points=1
check.choose_workers(choose_workers)

# %% test="choose_workers-hidden" points=1
### BEGIN HIDDEN TESTS
check.choose_workers(choose_workers, seed=1984)
### END HIDDEN TESTS

# %% tags=["experiment"]
choose_now = course.solved(check.choose_workers)

for label, of_data in forecasts.items():
    candidates = {0: of_data.measured[0].estimate, **of_data.predicted}
    chosen = choose_now(candidates)
    fastest = of_data.fastest([0, 1, *held_out])
    print(f"{label}: take {chosen}; fastest measured: {fastest}")

# %% [markdown]
# On two cores, all numbers from two workers on have the same prediction. If workers help at all, any of these numbers
# may be measured as fastest.
#
# **Takeaway** Take the fewest workers that are nearly the best, zero included.

# %% [markdown]
# ## How many workers, if the disk is slow? · extra
#
# Your files may be on a remote disk. Here, a sleep of 5 ms per image stands for the wait. A worker that waits needs no
# core, so the cell predicts two times and takes the longer one:
#
# - by the clock, with the wait and `cores=math.inf`;
# - by the cores, with the CPU seconds and the effective cores.
#
# **Predict**: which number of workers is fastest?

# %%
predicted_best_workers_io = None  # your number


# %% tags=["experiment"]
class SlowDisk(Dataset):
    """The items of `data`, each after a wait of 5 ms."""

    def __init__(self, data):
        self.data = data

    def __len__(self):
        return len(self.data)

    def __getitem__(self, i):
        time.sleep(0.005)
        return self.data[i]


# %% tags=["experiment"]
small = max(sizes.pass_batch // 4, 1)
many = sorted({2, 4, 8, 16, *held_out})
cores = loaders.cores()

of_disk = forecast(SlowDisk(plain), small, many, computed=plain, waits=True)

print(of_disk)
said = "workers that are fastest if each image is waited for"
print(course.score("01/4", said, predicted_best_workers_io, of_disk.fastest(many), null=cores))
course.claim(
    "for images that are waited for, twice as many workers as cores are at least 10 % faster than as many",
    of_disk.times_as_long(cores, 2 * cores),
    above=1.1,
)
plots.predicted_workers({"5 ms of waiting": of_disk}, small)

# %% [markdown]
# If the fastest number is the largest one tried, more may be faster still. Where the predicted line is flat, the
# formula expects no gain. With many workers on few cores, a pass may take clearly longer than predicted. Any number of
# workers can sleep simultaneously. But a real disk or network serves only so many requests at a time.
#
# **Takeaway** A worker that waits needs no core. Slow storage can keep more workers busy than there are cores.

# %% [markdown]
# ## From the command line
#
# You can also show a batch and time loaders from the command line, with your answers:
#
# ```
# python -m course.lfw_dataset -answers notebooks/01_parallel_loading -visualize_batch
# python -m course.lfw_dataset -answers notebooks/01_parallel_loading -get_timing -num_workers 0 1 2 4 -heavy
# ```
#
# ## To read on
#
# - I. Svogor et al., Profiling and Improving the PyTorch Dataloader for high-latency Storage, 2022
#   ([arXiv:2211.04908](https://arxiv.org/abs/2211.04908)): the loader measured where images come over a network.
