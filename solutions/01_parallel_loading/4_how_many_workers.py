# %% [markdown]
# # Parallel loading, part 4: Choose the number of workers
#
# **How many workers, before you have tried them all?**
#
# Trying every number of workers is slow. You measure *one* worker and what your cores can really do in
# parallel, and predict the rest. Then you check the prediction.
#
# **You will be able to**
#
# - derive which stage of a loader sets the pace, and whether more workers can change that;
# - predict the speed of many workers from a measurement of one;
# - choose the fewest workers that are nearly the best.
#
# **Minutes** 23 core · 40 in all · session 2
#
# **Needs** parts 1 and 2: your `LFWDataset` and `seconds_per_pass` are used if you solved them

# %% locked="setup"
import functools
import math
import statistics
import time
import warnings

import torch
from torch.utils.data import Dataset

import course
from course import figures
from course.checks import parallel_loading as check
from course.datasets import lfw
from course.learner.predictions import reveal
from course.loading import loader_passes, loaders
from course.measure import comparison
from course.plots import parallel_loading as plots

warnings.filterwarnings("ignore", "This DataLoader will create")  # more workers than cores: we try that on purpose
print(course.machine())

# %% [markdown]
# ## How long does a pipeline take?
#
# Start with a loader in which nothing computes. A worker sleeps 20 ms per batch, the training loop sleeps 10 ms.
#
# **Predict**: how many ms does a batch take with one worker, and with two?

# %%
predicted_ms_one, predicted_ms_two = None, None  # your numbers


# %% tags=["experiment"]
def loop_of_10_ms(batch):
    """What stands for a training step."""
    time.sleep(0.01)


sizes = course.sizes("01_parallel_loading")
seconds_per_pass_now = course.solved(check.seconds_per_pass)
limits = dict(rounds=sizes.pass_rounds, seconds=sizes.pass_seconds)  # of each comparison
n_batches = loader_passes.batches_for([1, 2, 4])
sleeping = loader_passes.Sleeping(n_batches, 0.02)
slept = loader_passes.compare_workers(sleeping, 1, [0, 1, 2, 4], seconds_per_pass_now, step=loop_of_10_ms, **limits)
print(slept)
said = {1: predicted_ms_one, 2: predicted_ms_two}
for w in (0, 1, 2, 4):
    ms = 1000 * slept.passes.median(loader_passes.way_of(w)) / n_batches
    print(f"{loader_passes.way_of(w)}: {ms:.1f} ms per batch" + (reveal(said[w]) if w in said else ""))
course.claim("one worker takes the longer of the two stages' times, 20 of 30 ms, within 10 %",
             slept.ratio(1), within=(30 / 22, 30 / 18))  # fmt: skip

# %% [markdown]
# The loop sleeps while the worker builds the next batch, so the two overlap. With two workers, a batch is ready every
# 10 ms, and the loop takes just as long. So four have nothing to gain.
#
# **Takeaway** A pipeline takes as long as its slowest stage, not as long as the sum.

# %% [markdown]
# ## What is the time with w workers?
#
# Call the time per batch $T(w)$, for $w \ge 1$ workers:
#
# - a worker computes for $a$ seconds to build a batch, and the workers share the batches;
# - the main process needs $c$ seconds per batch: it unpacks the message, maps the shared memory and runs your loop;
# - a device may train on the batch for *step* seconds, without a core;
# - workers and main process share $n$ cores, which do at most $n$ seconds of work per second.
#
# All of them work simultaneously, on different batches. Each gives a time that a batch takes *at least*. What are the
# four times, and what is $T(w)$?
#
# ### Exercise 1 · The pipeline's time
#
# Compute $T(w)$ for several numbers of workers.
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
# Which of the four times does another worker make shorter? In the example, why 0.2 with two workers and with four?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# $T(w) = \max(a / w,\; c,\; (a + c) / n,\; \text{step})$: however many processes share it, each batch is $a + c$
# seconds of work for the cores.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# `torch.as_tensor(workers, dtype=torch.float64)` takes lists and tensors; `tensor.clamp(min=number)` is the larger of
# the two, and Python's `max` takes three numbers.
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

# %% [markdown]
# ## Can one worker predict the others?
#
# `loaders.OneWorker` runs a loader with one worker and reads from the system how much CPU time the worker ($a$) and the
# main process ($c$) used per batch. And $n$? Two cores that compute simultaneously may do less than twice the work of
# one. `loaders.effective_cores` measures that without a loader: it makes items in one process, then in as many as there
# are cores. The ratio of the two speeds is $n$.
#
# Then come whole passes with other numbers of workers. A machine's speed drifts, so each round measures one worker and
# $n$ first, and compares its passes with what *this* round predicts.
#
# **Predict**: how many times as fast as one worker will the formula say that two are, with the heavy transform?

# %%
predicted_speedup_heavy = None  # your number


# %% tags=["experiment"]
torch.set_num_threads(1)  # as in a worker: one image is too little work for several threads
LFWDataset_now = course.solved(check.LFWDataset)
predict_now = course.solved(check.predict_seconds)
folder = lfw.folder(sizes.dataset)
plain = loaders.evenly_spaced(LFWDataset_now(folder), sizes.images)
heavy = LFWDataset_now(folder, lfw.heavy_transform())
heavy.paths = plain.paths[::2]  # half of them: each takes longer
held_out = sorted({2, 4, loaders.cores(), 2 * loaders.cores()} - {1})


def middle(values):
    """The median over the rounds, which are the last axis of a tensor."""
    return values.quantile(0.5, dim=-1)


def predicted_ms(workers, costs, n_cores):
    """ms per batch that the pipeline takes, by the costs and the n of each round: tensor (len(workers), rounds)."""
    rounds = zip(costs, n_cores, strict=True)
    return 1000 * torch.stack([predict_now(workers, c.cpu, c.main, n) for c, n in rounds], dim=1)


def furthest(intervals):
    """The Interval of a ratio that is furthest from 1."""
    return max(intervals, key=lambda interval: abs(math.log(interval.estimate)))


def drawn(one, line, missed):
    """(predicted, measured) ms per batch, as the figure takes them: they differ by the ratios that are printed."""
    measured = [one.interval_ms(w) for w in (0, *missed)]
    ms = [interval.estimate / missed[w].estimate for w, interval in zip(missed, measured[1:], strict=True)]
    return [line[0].item(), *ms], measured


measure = functools.partial(loader_passes.forecast, seconds_per_pass=seconds_per_pass_now,
                            cores_seconds=sizes.cores_seconds, **limits)  # fmt: skip
cases, found, worst, lines = {}, {}, {}, {}
for label, data in (("ToTensor", plain), ("heavy", heavy)):
    found[label] = one = measure(data, sizes.pass_batch, [0, *held_out], computed=data)
    predicted = predicted_ms([1, *held_out], one.costs, one.cores)
    a, _, c = 1000 * middle(torch.tensor(one.costs).T)
    print(f"{label}: a = {a:.1f} ms, c = {c:.1f} ms, n = {min(one.cores):.2f} to {max(one.cores):.2f}; "
          f"other programs used {one.others:.1f} cores; {one.passes.rounds} rounds, {one.passes.stopped}, "
          f"control {one.passes.control}")  # fmt: skip
    missed = {w: one.measured_over(ms, w) for w, ms in zip(held_out, predicted[1:], strict=True)}
    print("    measured over predicted: " + ", ".join(f"{w} workers {ratio}" for w, ratio in missed.items()))
    worst[label] = furthest(missed.values())
    lines[label] = middle(predicted)
    cases[label, sizes.pass_batch] = drawn(one, lines[label], missed)
course.claim("one worker predicts the time with every other number of workers within 15 %, with ToTensor",
             worst["ToTensor"], within=(1 / 1.15, 1.15))  # fmt: skip
course.claim("one worker predicts the time with every other number of workers within 15 %, with the heavy transform",
             worst["heavy"], within=(1 / 1.15, 1.15))  # fmt: skip
ratio = comparison.ratio_interval(predicted[0], predicted[1 + held_out.index(2)])
print(f"predicted speed-up of two workers over one, heavy: {ratio}" + reveal(predicted_speedup_heavy))
plots.predicted_workers(cases, held_out)

# %% [markdown]
# Look where each line goes flat: from there on, the formula says, the cores are full. The formula does not know $T(0)$,
# the dotted line: measure it.
#
# **We think** that batches take longer than predicted where workers stack them into new shared memory, because $n$ was
# measured on items that are not stacked. To test it, return 8 × 8 pixels per image, as part 2 does.
#
# **Takeaway** Measure one worker and your cores, predict the rest, and check the prediction at one number of workers.

# %% [markdown]
# ## What does the formula leave out? · extra
#
# The formula describes an endless pass. The figure draws a pass batch by batch, with the times that your machine takes
# to build batches with the heavy transform. A step of the loop takes a third of their mean time, and each worker
# computes on a core that it shares with nobody.
#
# **With how many workers does the waiting vanish? And with a step of 0 ms, why do 10 batches with 4 workers take nearly
# as long as 12?**

# %% tags=["experiment"]
load_ms = []
for batch in torch.arange(len(heavy)).split(sizes.batch_size):
    begin = time.perf_counter()
    torch.stack([heavy[i][0] for i in batch.tolist()])
    load_ms.append(1000 * (time.perf_counter() - begin))
step_ms = statistics.mean(load_ms) / 3
figures.pipeline(load_ms, step_ms, workers=1, batches=20)

# %% [markdown]
# Each worker builds every fourth batch. Of ten batches two workers build three, and so do all four of twelve. The first
# batch is always waited for, however many workers there are.
#
# **Takeaway** Waiting vanishes once the workers together keep up with the loop, except for the first batch. A short
# pass ends with the worker that has one batch more.

# %% [markdown]
# ## Which number do you take? · extra
#
# Each worker is a process with batches under way, so one that gains 1 % is not worth its memory.
#
# ### Exercise 2 · Choose
#
# Return the fewest workers that are nearly as good as the best.
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
# Smallest seconds, smallest number: which of the two minima comes first?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# The minimum of the dictionary's values gives the limit, the minimum of the keys within it the answer.
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

# %% [markdown]
# ### Is the choice any good?

# %% tags=["experiment"]
choose_now = course.solved(check.choose_workers)
losses = []
for label, line in lines.items():
    known = dict(zip([0, 1, *held_out], [middle(found[label].ms(0)).item(), *line.tolist()], strict=True))
    chosen = choose_now(known)
    seen = {w: middle(found[label].ms(w)).item() for w in (0, 1, *held_out)}
    fastest = min(seen, key=seen.get)
    losses.append(comparison.ratio_interval(found[label].ms(chosen), found[label].ms(fastest)))
    print(f"{label}: take {chosen}; fastest measured {fastest}; the choice takes {losses[-1]} times as long")
course.claim("the number chosen from the prediction takes at most 15 % longer than the fastest one measured",
             furthest(losses), below=1.15)  # fmt: skip

# %% [markdown]
# **Takeaway** Take the fewest workers that are nearly the best, zero included.

# %% [markdown]
# ## How many workers, if each image is waited for? · extra
#
# Now 5 ms of sleep per image stand for a remote disk. Workers can wait without a core. So the cell calls your formula
# twice and takes the longer time: once with the seconds by the clock and `cores=math.inf`, once with the CPU seconds
# and the effective cores.
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


slow, small = SlowDisk(plain), max(sizes.pass_batch // 4, 1)
many = sorted({2, 4, 8, 16, *held_out})
one = measure(slow, small, [0, *many], computed=plain)
by_the_clock = [seconds._replace(cpu=seconds.wall) for seconds in one.costs]
predicted = torch.maximum(predicted_ms([1, *many], by_the_clock, [math.inf] * len(one.costs)),
                          predicted_ms([1, *many], one.costs, one.cores))  # fmt: skip
best = min(many, key=lambda w: one.interval_ms(w).estimate)
print(f"fastest with {best} of {many} workers, on {loaders.cores()} cores" + reveal(predicted_best_workers_io))
course.claim("for images that are waited for, twice as many workers as cores are at least 10 % faster than as many",
             comparison.ratio_interval(one.ms(loaders.cores()), one.ms(2 * loaders.cores())), above=1.1)  # fmt: skip
missed = {w: one.measured_over(ms, w) for w, ms in zip(many, predicted[1:], strict=True)}
for w, ratio in missed.items():
    print(f"{w} workers: measured over predicted {ratio}")
plots.predicted_workers({("5 ms of waiting", small): drawn(one, middle(predicted), missed)}, many)

# %% [markdown]
# **Takeaway** A worker that waits needs no core, so waiting pays for more workers than cores.

# %% [markdown]
# ## From the command line
#
# This unit's measurements are also a program. It uses your answers if you name the folder of your notebooks:
#
# ```
# python -m course.lfw_dataset -visualize_batch
# python -m course.lfw_dataset -get_timing -num_workers 0 1 2 4 -heavy
# python -m course.lfw_dataset -get_timing -answers notebooks/01_parallel_loading
# ```
#
# ## To read on
#
# - I. Svogor et al., Profiling and Improving the PyTorch Dataloader for high-latency Storage, 2022
#   ([arXiv:2211.04908](https://arxiv.org/abs/2211.04908)): the loader measured where images come over a network.
