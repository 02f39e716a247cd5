# %% [markdown]
# # Data parallel, part 5: Explain a speed-up
#
# **Why are two ranks not twice as fast as one?**
#
# You switch off one cause after the other. Then you judge fourteen common statements about DDP.
#
# **You will be able to**
#
# - say what a speed-up held fixed, and how far it is from the ideal
# - split the loss into small batches, other ranks that compute, and communication
# - tell what DDP does from what people say about it
#
# **Minutes** 0 core · 75 in all
#
# **Needs** part 1 (`run_ranks`); part 2 helps (what DDP sends)

# %% locked="setup"
import copy
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DistributedSampler

import course
from course.checks import data_parallel as check
from course.datasets import fashion
from course.device import cores
from course.learner.predictions import reveal
from course.measure.comparison import difference_interval, ratio_interval
from course.parallel import distributed
from course.parallel.distributed import run_ranks
from course.plots import data_parallel as plots
from course.training.models import FashionCNN

print(course.machine())
sizes = course.sizes("02_data_parallel")

data = fashion.load(sizes.dataset)
images, labels = fashion.floats(data.train_images), data.train_labels

# %% [markdown]
# ## How many times as fast are two ranks? · extra
#
# *Strong scaling* shares one batch among N ranks: ideally a step takes $t_1 / N$. *Weak scaling* gives every rank the
# same batch: ideally a step takes $t_1$. The *parallel efficiency* is the share of the ideal that was reached.
#
# Amdahl (1967) split the work into a serial share $s$ and the rest: $t_N = t_1 (s + (1 - s) / N)$, so the speed-up
# stays below $1 / s$. Gustafson (1988) answered that the work grows with the machine, which is weak scaling. The
# formula does not say what the serial share is. So we switch the causes off, one after the other.

# %% [markdown]
# ### Exercise 1 · Parallel efficiency
#
# Say what share of the ideal was reached. If 1 rank takes 60 s and 4 ranks 30 s, that is 0.5 in strong scaling and 2.0
# in weak scaling.
#
# **Points** 2 · **Extra** · **Difficulty** ●○○ · **Minutes** 8 · **Lines** 4
#
# **Must**
#
# - return $t_1 / (N t_N)$ for each measurement, or $t_1 / t_N$ if `weak`, in float64
# - take the measurement on one rank for $t_1$, wherever in the list it is
#
# **Raises** ValueError if no measurement is on one rank.
#
# **Source** Amdahl 1967, "Validity of the single processor approach to achieving large scale computing
# capabilities", AFIPS; Gustafson 1988, "Reevaluating Amdahl's law", Communications of the ACM 31.
#
# <details><summary>Hint 1</summary>
#
# Four ranks need 30 s for what one did in 60 s. How fast would be ideal? And if each of them had done as much as
# one did before?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `ranks.index(1)` is the index of the measurement on one rank, and raises a ValueError if there is none. The
# efficiencies are `seconds[index] / seconds`, in strong scaling divided by the tensor of `ranks`.
#
# </details>


# %% solution="efficiency"
def efficiency(ranks, seconds, weak=False):
    """The parallel efficiency of each measurement, a float64 tensor (n,).

    Args:
        ranks: list of n different whole numbers of at least 1, in any order.
        seconds: float tensor (n,) on the CPU, the time on so many ranks, all above 0.
        weak: True if the work grew with the ranks, False if it was the same.

    Raises: ValueError if no measurement is on one rank.
    """
    ### BEGIN SOLUTION
    seconds = seconds.double()
    speedup = seconds[ranks.index(1)] / seconds
    return speedup if weak else speedup / torch.tensor(ranks)
    ### END SOLUTION


# %% test="efficiency-visible" points=1
check.efficiency(efficiency)

# %% test="efficiency-hidden" points=1
### BEGIN HIDDEN TESTS
check.efficiency(efficiency, seed=1988)
### END HIDDEN TESTS

# %% [markdown]
# ### Measure
#
# We measure four variants of a step on N ranks and a step with the whole batch on one rank, interleaved:
#
# | variant | rank 0 | other ranks | gradients sent | what it adds to the step |
# |---|---|---|---|---|
# | alone | 1/N of a batch | nothing | no | a small batch: is half of it half the time? |
# | silent | 1/N of a batch | 1/N of a batch | no | the others compute too, under the DDP wrapper |
# | shared (strong scaling) | 1/N of a batch | 1/N of a batch | yes | communication |
# | each (weak scaling) | a whole batch | a whole batch | yes | |
#
# Predict: the same batch on 2 ranks instead of 1, each on its own core (or GPU). How many times as fast?

# %%
predicted_speedup = None


# %% tags=["experiment"]
ONE, VARIANTS = "a whole batch on one rank", ("alone", "silent", "shared", "each")


def scaling_steps(rank, world_size, batch, ranks, seconds):
    """The Comparison of a step on ONE rank with those of (n, variant), n the other numbers of `ranks`."""
    device = torch.device("cuda", rank) if dist.get_backend() == "nccl" else torch.device("cpu")
    torch.set_num_threads(1)
    batch = [t.to(device) for t in batch]
    steps = {}
    for n in ranks:
        group = dist.new_group(list(range(n)))
        for variant in VARIANTS if n > 1 else [ONE]:
            wrapped, whole = variant in ("silent", "shared", "each"), variant in ("each", ONE)
            steps[n, variant] = lambda: None  # this rank looks on
            if rank < (n if wrapped else 1):
                model = FashionCNN(dropout=0.0, norm=None).to(device)
                model = DistributedDataParallel(model, process_group=group) if wrapped else model
                step = distributed.sgd_step(model, batch if whole else [t[: len(t) // n] for t in batch])
                steps[n, variant] = without_sync(model, step) if variant == "silent" else step
    return distributed.compare_on_ranks(steps, seconds=seconds)


def without_sync(model, step):
    """`step` under the no_sync of DistributedDataParallel."""

    def quiet_step():
        with model.no_sync():
            step()

    return quiet_step


gpus = torch.cuda.device_count() if course.device().type == "cuda" else 0
ranks = [n for n in (1, 2, 4) if not gpus > 1 or n <= gpus]
own = gpus if gpus > 1 else max(2, cores())  # so many ranks have a device, or a core, of their own
big = [t[: 2 * sizes.batch_size] for t in (images, labels)]
compared = run_ranks(scaling_steps, ranks[-1], big, ranks, sizes.seconds, timeout=300)[0]


def speedups(variant):
    """How many times as fast as the whole batch on one rank a step of `variant` is, an Interval for each of `ranks`."""
    return [compared.ratio((n, variant if n > 1 else ONE)) for n in ranks]


strong, weak = (torch.tensor([1 / s.estimate for s in speedups(name)]) for name in ("shared", "each"))  # in steps
efficiency_now = course.solved(check.efficiency)
strong_efficiency, weak_efficiency = efficiency_now(ranks, strong), efficiency_now(ranks, weak, weak=True)
for i, n in enumerate(ranks):
    print(f"ranks: {n}, {speedups('shared')[i]} times as fast, efficiency strong {strong_efficiency[i]:.2f}, "
          f"weak {weak_efficiency[i]:.2f}" + reveal(predicted_speedup) * (n == 2))  # fmt: skip
print(f"{compared.rounds} rounds, {compared.stopped}; one rank against itself: {compared.control}")
two = compared.ratio((2, "shared"))
course.claim("two ranks finish a batch at least 10 % sooner than one rank does", two, above=1.1,
             otherwise="Which row of the table below is largest?")  # fmt: skip
course.claim("two ranks are less than 1.9 times as fast as one", two, below=1.9,
             otherwise="Look at the row of the small batch in the table below.")  # fmt: skip

# %% [markdown]
# The same times taken apart: each line adds up to the step on N ranks, in steps of one rank.


# %% tags=["experiment"]
def shares_lost(n):
    """{cause: Interval} of what a step shared by n ranks takes, in steps of one rank."""
    alone, silent, shared = (compared.seconds[n, name] for name in VARIANTS[:3])
    one = compared.seconds[compared.base]
    return {
        "a small batch": difference_interval((alone / one).tolist(), [1 / n] * len(one)),
        "others compute too": difference_interval((silent / one).tolist(), (alone / one).tolist()),
        "communication": difference_interval((shared / one).tolist(), (silent / one).tolist()),
    }


several = ranks[1:]
lost = {n: shares_lost(n) for n in several}
causes = {"1/N": torch.tensor([1 / n for n in several], dtype=torch.float64)}
causes |= {name: torch.tensor([lost[n][name].estimate for n in several], dtype=torch.float64) for name in lost[2]}
for n in several:
    print(f"{n} ranks: 1/N {1 / n:.2f}; " + "; ".join(f"{name} {share}" for name, share in lost[n].items()))
silent, alone, shared = (compared.seconds[2, name] for name in ("silent", "alone", "shared"))
course.claim("on two ranks, sending the gradients takes at least 2 % of a step on one rank that backward does not hide",
             lost[2]["communication"], above=0.02)  # fmt: skip
course.claim("on two ranks, the other rank's computing costs more than sending the gradients",
             ratio_interval(silent / alone, shared / silent), above=1,
             otherwise="With a device and a memory per rank, others that compute cost nothing.")  # fmt: skip
print(course.machine())
plots.scaling(ranks, speedups("shared"), speedups("each"), own, causes)

# %% [markdown]
# A row can be negative: half a batch may take less than half the time. **We think** that a rank that computes costs its
# neighbour time where both share memory, caches or the two threads of a core. Two GPUs share none of these, so there
# the first of the two costs should vanish; what is left is communication, which you can change (parts 2 and 6).
#
# **Takeaway** Switch off one cause after the other. Then work on the largest that you can change.

# %% [markdown]
# ## What is true of DDP? · extra
#
# Judge the statements before you run the experiments below. A statement is true only if all of it is.
#
# - **A** Wrapping a model in DDP sends the parameters and buffers of rank 0 to all ranks.
# - **B** DDP cuts the batch that a rank passes to the model into `world_size` shards and sends every rank its shard.
# - **C** The ranks exchange their gradients while `loss.backward()` runs; `optimizer.step()` sends nothing.
# - **D** After backward, `p.grad` is the mean of the ranks' own gradients, on every rank.
# - **E** Each rank has its own optimizer state; nobody sends these states, and they stay equal.
# - **F** With a criterion that takes the mean, the loss is the mean over the samples of all ranks.
# - **G** DDP averages the running statistics of BatchNorm layers over the ranks after each step.
# - **H** `dist.barrier()` is necessary before a batch is passed to the model; without it a fast rank could average its
#   gradients with those that a slow rank has from the step before.
# - **I** If rank 0 alone downloads the data set to a disk that all see, a `dist.barrier()` between the download and the
#   opening of the files keeps the other ranks from opening what is not there yet.
# - **J** With `shuffle=True` each rank's DistributedSampler shuffles for itself. So a sample may come up on two ranks
#   in one epoch, even if the number of samples is a multiple of `world_size`.
# - **K** If it is not a multiple, DistributedSampler uses some samples more than once in an epoch, and an accuracy
#   taken over its indices counts them as often.
# - **L** If one rank has one batch fewer than the others, DDP takes the mean over the remaining ranks in the last step.
# - **M** `torchrun` with 4 processes on each of two machines sets `WORLD_SIZE` to 8, `RANK` to 0 to 7, and `LOCAL_RANK`
#   to 0 to 3 on each machine.
# - **N** The process at `MASTER_ADDR` and `MASTER_PORT` receives the gradients of all ranks, takes the mean and sends
#   it back.

# %% [markdown]
# ### Exercise 2 · True or false
#
# Judge each statement. If only A were true, the answer would be `{"A": True, "B": False, ...}`.
#
# **Points** 4 · **Extra** · **Difficulty** ●●○ · **Minutes** 25 · **Lines** 1
#
# **Must** return a dictionary from the letters `"A"` to `"N"` to `True` or `False`.
#
# **Source** PyTorch documentation of `DistributedDataParallel`, of `DistributedSampler` and of torchrun.
#
# <details><summary>Hint 1</summary>
#
# Which statements can you settle with `run_ranks` and a model of one layer? The experiments below do so for most of
# them: run them before you answer, if you like, but write down first what you expect.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# For A to F ask of every tensor: who made it, and is there an operation between the ranks in which it takes part?
# For H, I and L: when does an all-reduce end on a rank? For N: what must a process know of another before it can
# send it anything?
#
# </details>


# %% solution="ddp_facts"
def ddp_facts():
    """The verdict on each statement of the text above: a dictionary from the letters "A" to "N" to True or False."""
    ### BEGIN SOLUTION
    return {letter: letter in "ACDEIKM" for letter in "ABCDEFGHIJKLMN"}
    ### END SOLUTION


# %% test="ddp_facts-visible" points=2
check.ddp_facts(ddp_facts)

# %% test="ddp_facts-hidden" points=2
### BEGIN HIDDEN TESTS
check.ddp_facts(ddp_facts, seed=14)
### END HIDDEN TESTS

# %% [markdown]
# ## A to F and H: what do two ranks see in one step? · extra
#
# One step, no barrier; rank 1 comes half a second late. Every rank notes what it sees.


# %% tags=["experiment"]
def one_step(rank, world_size):
    """What a rank sees in one step of a model with two weights: a dictionary from a text to numbers."""
    torch.manual_seed(rank)
    model, x = nn.Linear(2, 1, bias=False), torch.randn(4, 2)
    seen = {"A weights, as drawn by the rank": model.weight.flatten().tolist()}
    with distributed.counted() as traffic:
        ddp = DistributedDataParallel(model)
        seen["A weights, once wrapped"] = model.weight.flatten().tolist()
        alone, optimizer = copy.deepcopy(model), torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        time.sleep(0.5 * rank)
        traffic.clear()
        output = ddp(x)
        seen["B samples in, results out"] = [len(x), len(output)]
        loss = output.square().mean()
        calls = [traffic.calls()]
        loss.backward()
        calls.append(traffic.calls() - sum(calls))
        seen["D own gradient, without DDP"] = torch.autograd.grad(alone(x).square().mean(), alone.weight)[0][0].tolist()
        seen["D gradient after DDP's backward"] = model.weight.grad[0].tolist()
        optimizer.step()
        seen["C operations in forward, backward, step"] = [*calls, traffic.calls() - sum(calls)]
        seen["E momentum"] = optimizer.state[model.weight]["momentum_buffer"][0].tolist()
        seen["F loss"] = [loss.item()]
    return seen


steps = run_ranks(one_step, 2, backend="gloo")
for label in sorted(steps[0]):
    print(f"{label:<40}", *(f"rank {r}:" + "".join(f"{v:8.3g}" for v in step[label]) for r, step in enumerate(steps)))

# %% [markdown]
# Compare the two ranks in each line: what is equal, and from when on? Rank 1 was late, and the gradient is the mean
# anyway, so H is false. The losses of line F stay different.
#
# **Takeaway** Print what each rank sees in one step: most statements about DDP can be tried in twenty lines.

# %% [markdown]
# ## J to N: who gets which samples, and who waits? · extra
#
# Ten samples on four ranks, as DistributedSampler deals them out (J, K).

# %% tags=["experiment"]
for rank in range(4):
    print(f"rank {rank}: in order", *DistributedSampler(range(10), 4, rank, shuffle=False), end="")
    print(", shuffled", *DistributedSampler(range(10), 4, rank))

# %% [markdown]
# For L, rank 1 has two batches and rank 0 has three. `run_ranks` keeps rank 1's process alive, so the cell runs until
# its time limit.


# %% tags=["experiment"]
def uneven_batches(rank, world_size):
    ddp = DistributedDataParallel(nn.Linear(2, 1))
    for _ in range(3 - rank):
        ddp(torch.ones(4, 2)).sum().backward()


try:
    run_ranks(uneven_batches, 2, backend="gloo", timeout=5)
except distributed.RankError as error:
    print(error)

# %% [markdown]
# Rank 0 waits in its third backward. That is why samplers make all shards equally long. If they cannot be, `ddp.join()`
# lets a rank that is done take part with zeros.
#
# For M and N, the variables that a launcher sets. `run_ranks` starts these ranks without one, on one machine:


# %% tags=["experiment"]
def variables(rank, world_size):
    return {name: os.environ.get(name) for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR")}


for found in run_ranks(variables, 2, backend="gloo"):
    print(", ".join(f"{name} {value}" for name, value in found.items()))

# %% [markdown]
# The ranks of this notebook meet in a file, so `MASTER_ADDR` is not set. Those of torchrun meet there. After that they
# are connected to each other, and the gradients travel by all-reduce.
#
# **Takeaway** All ranks must make equally many calls: one missing call makes the others wait.

# %% [markdown]
# ## Can you explain one? · extra
#
# ### Exercise 3 · Why not two?
#
# A colleague moves a training from one GPU to two in the same machine. The global batch stays 64, the model has 100
# million parameters, images are decoded by four loader workers per rank, and every 200 steps rank 0 evaluates while
# the other waits. An epoch takes 600 s instead of 750 s. Write about ten lines:
#
# - Which speed-up and efficiency is that, and which serial share would it mean?
# - Why is it not 2? Name the causes that are likely *here*.
# - How do you find out which of them it is?
# - What do you change first?
#
# **Points** 4, graded by hand · **Extra** · **Minutes** 20

# %% [markdown] answer="why-not-twice" points=4
# <!-- BEGIN SOLUTION -->
# The speed-up is 750 / 600 = 1.25, the efficiency 0.625.
# With Amdahl's law 600 = 750 (s + (1 - s) / 2), so s = 0.6.
#
# Likely here: each rank has only 32 samples per step, which may not fill a GPU. The gradients are 400 MB in every step,
# whatever the batch. The evaluation runs on one rank. And eight workers may now share the cores that four had.
#
# To find out, one change at a time: the step on one GPU with a batch of 32; two ranks with the same batch again and
# again in memory (if this is much faster, it is the loading); the same inside `no_sync()` (the difference is the
# communication that is not hidden); an epoch without evaluation.
#
# First I would give each rank 64 samples, with the learning rate and warm-up that belong to a batch of 128.
#
# === BEGIN MARK SCHEME ===
# **1 point** speed-up 1.25, efficiency 0.625 and serial share 0.6 (or the bound 1.67). Half for two of the three.
#
# **1 point** two causes or more that belong to this case, each with how it acts. A list of general causes earns half.
#
# **1 point** a measurement that would separate two of the causes, with what each outcome would mean.
#
# **1 point** a change that follows from the case, with its price.
# === END MARK SCHEME ===
# <!-- END SOLUTION -->
