# %% [markdown]
# # Parallel loading, part 4: Choose the number of workers
#
# **How many workers, before you have tried them all?**
#
# If you try a few numbers of workers, you learn which is fastest here. You do not learn why, nor what more cores would
# change. So in this part you measure *one* worker, and how much your cores really do in parallel. From these you
# predict the rest, and then you check the prediction.
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
def loop_of_12_ms(batch):
    """What stands for a training step."""
    time.sleep(0.012)


sizes = course.sizes("01_parallel_loading")
seconds_per_pass_now = course.solved(check.seconds_per_pass)
limits = dict(rounds=sizes.pass_rounds, seconds=sizes.pass_seconds)  # of each comparison
n_batches = loader_passes.batches_for([1, 2, 4])
sleeping = loader_passes.Sleeping(n_batches, 0.036)
slept = loader_passes.compare_workers(
    sleeping, 1, [0, 1, 2, 4], seconds_per_pass_now, step=loop_of_12_ms, **limits
)
passes = slept.passes
print(passes)
ms = {w: passes.time(loader_passes.way_of(w)).scaled(1000 / n_batches) for w in (0, 1, 2, 4)}
print(
    course.score(
        "01/4", "ms per batch with four workers that sleep", predicted_ms_four, ms[4], null=48
    )
)

# %% tags=["experiment"]
course.claim(
    "two workers that sleep take half as long as one, within 10 %",
    passes.ratio("2 workers", to="1 worker"),
    within=(2 / 1.1, 2 * 1.1),
)
course.claim(
    "four workers that sleep take as long as the loop sleeps, within 20 %",
    slept.ratio(4),
    within=(4 / 1.2, 4 * 1.2),
)

# %% [markdown]
# The worker and the loop sleep at the same time, for different batches. So with one worker, a batch takes 36 ms and not
# 48. Two workers alternate, so a batch is ready every 18 ms. With four workers a batch is ready every 9 ms, but the
# loop still takes 12.
#
# **Takeaway** A pipeline takes as long as its slowest stage, not as long as all stages together.

# %% [markdown]
# ## What is the time with w workers?
#
# At some point more workers no longer help, because other things take time, too. Four numbers decide the time per batch
# $T(w)$ with $w \ge 1$ workers:
#
# - One worker needs $a$ seconds to build a batch, and the $w$ workers divide the batches among them.
# - The main process needs $c$ seconds per batch. It unpacks the message, maps the shared memory and runs your loop.
# - A device may train on the batch for *step* seconds, during which it needs no core.
# - The workers and the main process share $n$ cores, which do at most $n$ seconds of work per second. (If a machine
#   trains on several GPUs, $n$ is the share of one GPU.)
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
predicted = 1000 * predict_now([1, 2, 4], a=0.036, c=0.0, cores=float("inf"), step=0.012)
for w, of_w in zip((1, 2, 4), predicted.tolist(), strict=True):
    print(
        f"{loader_passes.way_of(w)} that sleep: predicted {of_w:.1f} ms per batch, measured {ms[w]}"
    )

# %% [markdown]
# **Takeaway** More workers shorten only one of the four times. Ask which of the four is the longest.

# %% [markdown]
# ## Can one worker predict the others?
#
# Workers that sleep need no core, but real workers do. So test the formula on a loader that computes.
# `loaders.OneWorker` runs it with one worker. It asks the system how much CPU time the worker ($a$) and the main
# process ($c$) used per batch.
#
# And $n$? Two cores that compute simultaneously may do less than twice the work of one. `loaders.effective_cores`
# measures this without a loader. It makes items in one process, then in as many processes as there are cores. The ratio
# of the two speeds is $n$.
#
# Then come whole passes with other numbers of workers. Because a machine's speed drifts, each round measures one
# worker, $n$ and all other passes, in random order. The passes are compared with what the costs of *this* round
# predict.
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
heavy.paths = plain.paths[::2]  # half of them: each takes longer
held_out = sorted({2, 4, loaders.cores(), 2 * loaders.cores()} - {1})


def forecast(data, batch_size, workers, computed):
    """One worker's costs, and passes with 0 and `workers`, in the same rounds."""
    return loader_passes.forecast(
        data,
        batch_size,
        [0, *workers],
        seconds_per_pass_now,
        computed,
        sizes.cores_seconds,
        **limits,
    )


# %% tags=["experiment"]
def check_forecast(one, workers, waits=False):
    """({workers: Interval of measured over predicted}, what the figure draws), printed."""
    predicted = one.predicted_ms([1, *workers], predict_now, waits)
    missed = {w: one.measured_over(ms, w) for w, ms in zip(workers, predicted[1:], strict=True)}
    print(
        "    measured over predicted: "
        + ", ".join(f"{w} workers {ratio}" for w, ratio in missed.items())
    )
    line = predicted.quantile(0.5, dim=1).tolist()
    measured = [ratio.scaled(ms) for ratio, ms in zip(missed.values(), line[1:], strict=True)]
    return missed, (line, [one.interval_ms(0), *measured])


# %% tags=["experiment"]
found, missed, drawn = {}, {}, {}
for label, data in (("ToTensor", plain), ("heavy", heavy)):
    found[label] = forecast(data, sizes.pass_batch, held_out, computed=data)
    print(f"{label}: {found[label].costs_shown()}")
    missed[label], drawn[label, sizes.pass_batch] = check_forecast(found[label], held_out)
one, two = found["heavy"].predicted_ms([1, 2], predict_now)
print(
    course.score(
        "01/4",
        "two workers against one by the formula, heavy transform",
        predicted_speedup_heavy,
        comparison.ratio_interval(one, two),
    )
)
plots.predicted_workers(drawn, held_out)

# %% tags=["experiment"]
course.claim(
    "one worker predicts the time with every other number of workers within 15 %, with ToTensor",
    comparison.furthest(missed["ToTensor"].values()),
    within=(1 / 1.15, 1.15),
)
course.claim(
    "one worker predicts the time with every other number of workers within 15 %, with the heavy transform",
    comparison.furthest(missed["heavy"].values()),
    within=(1 / 1.15, 1.15),
)

# %% [markdown]
# Where a line goes flat, more workers no longer help, because all cores or the main process are busy all the time. With
# two cores the line is flat from two workers on, so this section tests the term for the cores. The sleeping workers
# tested $a / w$ and *step*. The formula says nothing about $T(0)$, the dotted line, so measure it.
#
# **We think** that stacking into new shared memory is one reason if passes take longer than predicted, because $n$ was
# measured on items that nobody stacks. To test this, return 8 × 8 pixels per image, as part 2 does.
#
# **Takeaway** Measure one worker and your cores, predict the rest, and check the prediction at one number of workers.

# %% [markdown]
# ## What does the formula leave out? · extra
#
# The formula describes an endless pass, but real passes end. The figure draws a short pass, batch by batch. It uses the
# times that your machine takes to build batches with the heavy transform. A step of the loop takes a third of their
# mean, and each worker has its own core.
#
# Move the figure's sliders. **With how many workers does the waiting vanish? And with a step of 0 ms, why do 10 batches
# with 4 workers take nearly as long as 12?**

# %% tags=["experiment"]
load_ms = []
for batch in torch.arange(len(heavy)).split(sizes.batch_size):
    begin = time.perf_counter()
    torch.stack([heavy[i] for i in batch.tolist()])
    load_ms.append(1000 * (time.perf_counter() - begin))
step_ms = sum(load_ms) / len(load_ms) / 3
figures.pipeline(load_ms, step_ms, workers=1, batches=20)

# %% [markdown]
# Each of four workers builds every fourth batch. Of 10 batches, two workers build three each. Of 12 batches, all four
# do. So both passes take as long as three batches of one worker.
#
# The loop always waits for the first batch. Here all batches take nearly the same time. If a few take much longer, the
# loop waits for those, although the workers keep up on average. Then a longer queue helps (part 8).
#
# **Takeaway** If batches take equal times and the workers keep up, the loop waits only for the first batch.

# %% [markdown]
# ## Which number do you take? · extra
#
# A worker is a process that holds several batches, so it costs memory. A worker that gains 1 % is not worth it.
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

# %% [markdown]
# ### Is the choice any good?

# %% tags=["experiment"]
choose_now = course.solved(check.choose_workers)
losses = []
for label, one in found.items():
    without, (line, _) = one.interval_ms(0).estimate, drawn[label, sizes.pass_batch]
    chosen = choose_now(dict(zip([0, 1, *held_out], [without, *line], strict=True)))
    fastest = min((0, 1, *held_out), key=lambda w: one.interval_ms(w).estimate)
    losses.append(comparison.ratio_interval(one.ms(chosen), one.ms(fastest)))
    print(
        f"{label}: take {chosen}; fastest measured {fastest}; the choice takes {losses[-1]} times as long"
    )
course.claim(
    "the number chosen from the prediction takes at most 15 % longer than the fastest one measured",
    comparison.furthest(losses),
    below=1.15,
)

# %% [markdown]
# On few cores, all numbers on the flat part of the line take nearly the same time, so the claim can hardly fail. On
# many cores it is a real test, because there are more numbers to get wrong.
#
# **Takeaway** Take the fewest workers that are nearly the best, zero included.

# %% [markdown]
# ## How many workers, if the disk is slow? · extra
#
# Your files may be on a remote disk. A sleep of 5 ms per image stands for that. A worker that waits needs no core, so
# the cell calls your formula twice and takes the longer time. One call has the seconds by the clock and
# `cores=math.inf`. The other has the CPU seconds and the effective cores.
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
one = forecast(SlowDisk(plain), small, many, computed=plain)
print(one.costs_shown())
_, drawn_slow = check_forecast(one, many, waits=True)
best = min(many, key=lambda w: one.interval_ms(w).estimate)
print(
    course.score(
        "01/4",
        "workers that are fastest if each image is waited for",
        predicted_best_workers_io,
        best,
        null=loaders.cores(),
    )
)
course.claim(
    "for images that are waited for, twice as many workers as cores are at least 10 % faster than as many",
    comparison.ratio_interval(one.ms(loaders.cores()), one.ms(2 * loaders.cores())),
    above=1.1,
)
plots.predicted_workers({("5 ms of waiting", small): drawn_slow}, many)

# %% [markdown]
# If the fastest number is the largest one tried, more may be faster still, unless the predicted line is flat there.
# Any number of workers can sleep
# simultaneously. But a real disk or network serves only so many requests at a time. Beyond that, workers wait for each
# other, and the line goes flat.
#
# **Takeaway** A worker that waits needs no core. For slow storage, use more workers than cores.

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
