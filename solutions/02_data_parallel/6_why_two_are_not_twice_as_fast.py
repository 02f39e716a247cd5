# %% [markdown]
# # Data parallel, part 6: Explain a speed-up
#
# **Why are two ranks not twice as fast as one?**
#
# *Strong scaling* shares one batch among N ranks: a step should take 1/N of the time. *Weak scaling* gives every rank
# the same batch: a step should take as long as with one. Both fall short. You compute efficiencies, take a step
# on several ranks apart by switching off one cause after the other, and judge fourteen statements about DDP that are
# heard often.
#
# **You will be able to**
#
# - say of a speed-up what was held fixed, and how far it is from the ideal
# - split what is lost into small batches, what the other ranks add by computing, and communication
# - tell what DDP does from what is said about it
#
# **Minutes** 0 core · 85 in all
#
# **Needs** part 1 (`run_ranks`); part 3 helps (what DDP sends)

# %% locked="setup"
import contextlib
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
from course.parallel import distributed
from course.parallel.distributed import run_ranks
from course.plots import data_parallel as plots
from course.training.models import FashionCNN

print(course.machine())
sizes = course.sizes("02_data_parallel")

data = fashion.load(sizes.dataset)
images, labels = fashion.floats(data.train_images), data.train_labels

# %% [markdown]
# ## Why two are not twice as fast
#
# **A step on N ranks takes 1/N of the time, plus what small batches, the computing of other ranks and messages add;
# each of the three can be measured by itself.**
#
# Let training take $t_1$ seconds on one rank and $t_N$ on N. The *speed-up* is $t_1 / t_N$, and the *parallel
# efficiency* is the share of the ideal that was reached. What is ideal depends on the question. *Strong scaling*:
# the same work on more ranks, ideally in $t_1 / N$. *Weak scaling*: the work grows with the ranks, each has as much
# as one alone had, and ideally the time stays $t_1$. A strong-scaling table that keeps the batch *of each rank* is
# neither: more ranks then mean larger batches and fewer updates, and the epoch is not the same training.
#
# Amdahl (1967) split the work in two: a share $s$ that does not divide, and the rest that does.
#
# $$t_N = t_1 \left(s + \frac{1 - s}{N}\right)$$
#
# However many ranks there are, the speed-up stays below $1 / s$: a twentieth of serial work, and a thousand GPUs
# are not twenty times as fast. Gustafson (1988) answered that nobody buys a thousand processors for the problem of
# one: the work that divides grows with the machine, the serial part hardly does. Weak scaling is his view.
#
# The share is one number for several causes:
#
# - *serial work*: the start, the evaluation on rank 0, checkpoints, a Python loop that every rank runs alike;
# - *communication*: gradients are as many bytes on 2 ranks as on 64, however few samples a rank has. The last
#   bucket is sent when there is nothing left to compute behind which it could hide;
# - *stragglers*: an all-reduce ends when the slowest rank has come, in every step;
# - *what ranks share*: on one machine memory bandwidth, caches, the disk, and the cores that decode images. A
#   second process that waits for the same memory adds little;
# - *small batches*: the share of a batch that a rank gets may be too little to keep it busy. Half the batch then
#   takes more than half the time, without a single message.
#
# Some of these grow with N, and then the formula is too friendly. And it has two unknowns: measured on one and on two
# ranks it always fits, whatever the causes are. So we do not fit it. We switch the causes off one after the other.

# %% [markdown]
# ### Exercise 1 · Parallel efficiency
#
# Say what share of the ideal was reached.
#
# **Points** 2 · **Extra** · **Difficulty** ●○○ · **Minutes** 8 · **Lines** 4
#
# **Must**
# - strong scaling: return $t_1 / (N t_N)$ for each measurement; weak scaling: $t_1 / t_N$;
# - take the measurement on one rank for $t_1$, wherever in the list it stands;
# - return float64, and values above 1 as they are (they happen, and are worth a look).
#
# **Raises** ValueError if no measurement is on one rank.
#
# **Source** Amdahl 1967, "Validity of the single processor approach to achieving large scale computing
# capabilities", AFIPS; Gustafson 1988, "Reevaluating Amdahl's law", Communications of the ACM 31 (what is held
# constant).
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
# Predict: the same batch on 2 ranks instead of 1, each on a core (or GPU) of its own. How many times as fast?

# %%
predicted_speedup = None

# %% [markdown]
# Four variants of a step are timed in turn, for each number of ranks N:
#
# - *shared*: the batch is divided among N ranks. This is what strong scaling measures;
# - *each*: every rank has a whole batch, as in weak scaling;
# - *silent*: as shared, but inside `no_sync`, so that nothing is sent;
# - *alone*: rank 0 computes its N-th of the batch, and the others do nothing.
#
# *Alone* over the time on one rank would be 1/N if half a batch took half the time. From *alone* to *silent* the other
# ranks begin to compute too, and the time is that of the slowest: what they share, and a rank that lags, show here.
# From *silent* to *shared* they begin to send.


# %% tags=["experiment"]
def scaling_seconds(rank, world_size, batch, ranks, rounds):
    """Seconds (4, len(ranks), rounds) of a step: shared by n ranks, a batch each, shared but silent, one part alone."""
    device = torch.device("cuda", rank) if dist.get_backend() == "nccl" else torch.device("cpu")
    torch.set_num_threads(1)
    batch = [t.to(device) for t in batch]
    shared, whole, silent, alone = [], [], [], []
    for n in ranks:
        group = dist.new_group(list(range(n)))
        if rank >= n:  # looks on
            for variants in (shared, whole, silent, alone):
                variants.append(lambda: None)
            continue
        models = [FashionCNN(dropout=0.0, norm=None).to(device) for _ in range(3)]
        part = [t[: len(t) // n] for t in batch]
        single = distributed.sgd_step(FashionCNN(dropout=0.0, norm=None).to(device), part)
        alone.append(single if rank == 0 else lambda: None)
        if n > 1:
            models = [nn.parallel.DistributedDataParallel(m, process_group=group) for m in models]
        shared.append(distributed.sgd_step(models[0], part))
        whole.append(distributed.sgd_step(models[1], batch))
        silent.append(without_sync(models[2], distributed.sgd_step(models[2], part)))
    seconds = distributed.timed_rounds(shared + whole + silent + alone, rounds)
    return seconds.view(rounds, 4, len(ranks)).permute(1, 2, 0)  # (4, len(ranks), rounds)


def without_sync(model, step):
    """`step` under the model's no_sync, if it has one."""

    def quiet_step():
        with getattr(model, "no_sync", contextlib.nullcontext)():
            step()

    return quiet_step


gpus = torch.cuda.device_count() if course.device().type == "cuda" else 0
ranks = [n for n in (1, 2, 4) if not gpus > 1 or n <= gpus]
own = gpus if gpus > 1 else max(2, cores())  # so many ranks have a device, or a core, of their own
big = [t[: 2 * sizes.batch_size] for t in (images, labels)]
times = run_ranks(scaling_seconds, ranks[-1], big, ranks, sizes.rounds, timeout=300)[0]
strong, weak, silent, alone = times.median(2).values  # (4, len(ranks))
efficiency_now = course.solved(check.efficiency)
strong_efficiency, weak_efficiency = efficiency_now(ranks, strong), efficiency_now(ranks, weak, weak=True)
for i, n in enumerate(ranks):
    print(f"ranks: {n}, {strong[0] / strong[i]:.2f} times as fast, efficiency strong {strong_efficiency[i]:.2f}, "
          f"weak {weak_efficiency[i]:.2f}" + reveal(predicted_speedup) * (n == 2))  # fmt: skip
course.claim("two ranks finish a batch sooner than one rank does", strong[0] > strong[1],
             f"{strong[0] / strong[1]:.2f} times")  # fmt: skip
course.claim("two ranks are not twice as fast", strong_efficiency[1] < 1, f"efficiency {strong_efficiency[1]:.2f}")

# %% [markdown]
# The same times taken apart: each row adds up to the step on N ranks, in shares of the step on one rank.

# %% tags=["experiment"]
several, ideal = ranks[1:], torch.tensor([1 / n for n in ranks[1:]], dtype=torch.float64)
causes = {
    "1/N": ideal,
    "a small batch": alone[1:] / strong[0] - ideal,
    "others compute too": (silent - alone)[1:] / strong[0],
    "communication": (strong - silent)[1:] / strong[0],
}
print(f"{'ranks':<18}" + "".join(f"{n:>8}" for n in several))
for name, shares in causes.items():
    print(f"{name:<18}" + "".join(f"{share:>8.2f}" for share in shares.tolist()))
lost = {name: shares[0].item() for name, shares in causes.items() if name != "1/N"}
print(f"the largest loss on two ranks: {max(lost, key=lost.get)}")
course.claim("on two ranks sending the gradients takes time that backward does not hide", lost["communication"] > 0,
             f"{lost['communication']:+.2f} of the step on one rank",
             otherwise="Backward hides the communication, or noise exceeds what is left of it.")  # fmt: skip
print(course.machine())
plots.scaling(ranks, times[0], times[1], own, causes)

# %% [markdown]
# Nothing is left over, because the four numbers are differences of neighbours. A row can be negative: half a batch may
# take less than half the time if it needs less memory, and differences of noisy times are noisy.
#
# A change pays where the largest row is. With ranks that draw on one memory or take turns on one core (more ranks than
# the dotted line) that is "others compute too" or "communication", because messages between ranks of one machine are
# copied by the same cores. A rank that is late for another reason is in the row "others compute too", since the time
# is that of the slowest. With a fast GPU and few images it is the small batch. More ranks than cores hardly ever pay.

# %% [markdown]
# ## What DDP does, and what it does not
#
# **Much that is said about DDP, and about the sampler, the barrier and the environment variables around it, is half
# true; a model of one layer on two ranks settles it.**
#
# Judge the fourteen statements below before you go on: the experiments after them give most verdicts away.

# %% [markdown]
# All statements are about `DistributedDataParallel` (DDP) with its default settings, one process per rank, and
# `torch.utils.data.DistributedSampler`, in the version installed here.
#
# - **A** Wrapping a model in DDP sends the parameters and buffers of rank 0 to all ranks: they start alike,
#   whatever seed each of them had.
# - **B** DDP cuts the batch that a rank passes to the model into `world_size` shards and sends every rank its shard.
# - **C** The ranks exchange their gradients while `loss.backward()` runs; `optimizer.step()` of an ordinary
#   optimizer sends nothing.
# - **D** After the backward pass, `p.grad` of a parameter is the mean of the ranks' own gradients, on every rank.
# - **E** Each rank has an optimizer with its own state, such as momentum; nobody sends these states, and they stay
#   equal all the same.
# - **F** In `loss = criterion(model(x), y)`, with a model in DDP and a criterion that takes the mean, the loss is the
#   mean over the samples of all ranks.
# - **G** DDP averages the running statistics of BatchNorm layers over the ranks after each step.
# - **H** `dist.barrier()` is necessary before a batch is passed to the model; without it a fast rank could average
#   its gradients with those that a slow rank has from the step before.
# - **I** If all ranks see the same disk and rank 0 alone downloads the data set, a `dist.barrier()` between the
#   download and the opening of the files keeps the other ranks from opening what is not there yet.
# - **J** With `shuffle=True` each rank's DistributedSampler shuffles for itself. So, even if the number of samples
#   is a multiple of `world_size`, a sample may come up on two ranks in one epoch.
# - **K** If the number of samples is no multiple of `world_size`, DistributedSampler gives some of them out more than
#   once in an epoch, and an accuracy that is taken over its indices counts them as often.
# - **L** If one rank has one batch fewer than the others, DDP takes the mean over the remaining ranks in the last
#   step.
# - **M** `torchrun` with 4 processes on each of two machines sets `WORLD_SIZE` to 8, `RANK` to 0 to 7, each once,
#   and `LOCAL_RANK` to 0 to 3 on each machine.
# - **N** The process at `MASTER_ADDR` and `MASTER_PORT` receives the gradients of all ranks, takes the mean and
#   sends it back.

# %% [markdown]
# ### Exercise 2 · True or false
#
# Judge each statement.
#
# **Points** 4 · **Extra** · **Difficulty** ●●○ · **Minutes** 30 · **Lines** 1
#
# **Must** return a dictionary from the letters `"A"` to `"N"` to `True` or `False`. A statement is true only if all of
# it is. The check names the first verdict that does not agree with ours.
#
# **Source** PyTorch documentation of `DistributedDataParallel`, of `DistributedSampler` and of torchrun,
# "Environment Variables"; PyTorch 2.13, `torch/nn/parallel/distributed.py`. (A page of DTU's course asks why the
# barrier of H is necessary; Lambda's guide says in its chapter 2 that the optimizer's step synchronises the
# gradients.)
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
# **A to F, and H.** Two ranks, one step, no barrier; rank 1 comes half a second late. Every rank notes what it
# sees.


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
# Look at the two columns of each line: what is equal in both, and from when on? Rank 1 was late, and the gradient
# is the mean all the same: an all-reduce ends on a rank only when all have come to it, and operations are matched by
# their order, the third of one rank with the third of another. The barrier of H would have made rank 0 wait a little
# earlier, for nothing. The losses of line F stay different; whoever wants the loss of all ranks must ask for it, as
# `weighted_mean` of part 4 does.
#
# **G.** A BatchNorm layer behind DDP, and shards whose means are 0 on rank 0 and 10 on rank 1.


# %% tags=["experiment"]
def running_means(rank, world_size):
    """The running mean of a rank after each of four passes."""
    torch.manual_seed(rank)
    ddp = DistributedDataParallel(nn.Sequential(nn.BatchNorm1d(1), nn.Linear(1, 1)))
    means = []
    for _ in range(4):
        ddp(torch.randn(64, 1) + 10 * rank).mean().backward()
        means.append(ddp.module[0].running_mean.item())
    return means


for rank, means in enumerate(run_ranks(running_means, 2, backend="gloo")):
    print(f"rank {rank}: running mean after each pass " + "".join(f"{m:8.3f}" for m in means))

# %% [markdown]
# Over all samples the running mean would go towards 5. On rank 0 it stays near 0. On rank 1 it is near 1 after each
# pass: it begins each time with the value of rank 0, takes one step of 0.1 towards 10, and loses it again. DDP does not
# average buffers: before a forward pass it sends those of rank 0 to the others (`forward_sync_buffers=False` turns that
# off; before torch 2.13 the argument was `broadcast_buffers`, now deprecated). So the statistics in a saved model are
# those of the shards of rank 0. If these are like the others, that is merely noisy; if rank 0 reads another kind of
# data, it is wrong.
#
# **J and K.** Ten samples on four ranks, as DistributedSampler gives them out.

# %% tags=["experiment"]
for rank in range(4):
    print(f"rank {rank}: in order", *DistributedSampler(range(10), 4, rank, shuffle=False), end="")
    print(", shuffled", *DistributedSampler(range(10), 4, rank))

# %% [markdown]
# Count the samples: two come twice, which two depends on the order; none is missing.
#
# **L.** Rank 1 has two batches, rank 0 has three. This takes as long as its time limit, some seconds.


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
# Rank 0 waits in its third backward pass for gradients that will never come; rank 1 has returned. Outside of this
# notebook rank 0 would wait until the time limit of the process group, minutes later. That is why samplers make all
# shards equally long; where they cannot be, `ddp.join()`, a context manager around the loop, lets a rank that is done
# take part with zeros.
#
# **M and N.** `run_ranks` sets the variables of a launcher on one machine. There is no `MASTER_ADDR` among them.


# %% tags=["experiment"]
def variables(rank, world_size):
    return {name: os.environ.get(name) for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")}


for found in run_ranks(variables, 2, backend="gloo"):
    print(", ".join(f"{name} {value}" for name, value in found.items()))

# %% [markdown]
# The ranks must meet somewhere to tell each other their addresses. Those of this notebook meet in a file; with
# torchrun they meet at `MASTER_ADDR`, port `MASTER_PORT`. After that they are connected with each other, and the
# gradients take the way of the all-reduce, on which no rank does more than any other.

# %% [markdown]
# ### Exercise 3 · Why not two?
#
# A colleague moves a training from one GPU to two in the same machine. The global batch stays 64, the model has 100
# million parameters, images are decoded by four loader workers per rank, and every 200 steps rank 0 evaluates while
# the other waits. An epoch takes 600 s instead of 750 s. Write, in about ten lines: what speed-up and what
# efficiency that is, and which serial share it would mean; why it is not 2, with the causes that are likely *here*;
# how to find out which of them it is; what to change first.
#
# **Points** 4, graded by hand · **Extra** · **Minutes** 20

# %% [markdown] answer="why-not-twice" points=4
# <!-- BEGIN SOLUTION -->
# The speed-up is 750 / 600 = 1.25, the efficiency 0.625 (strong scaling: the same epoch, the same global batch).
# With Amdahl's law 600 = 750 (s + (1 - s) / 2), so s = 0.6, and no number of GPUs would give more than 1 / 0.6 =
# 1.7. Two measurements fix two numbers exactly, so this is a description and not yet an explanation.
#
# Likely here: each rank has only 32 samples per step, which may not fill a GPU, so the computing takes more than half
# as long. The gradients are 400 MB in every step, whatever the batch; over PCIe that takes tens of milliseconds, of
# which only a part is hidden behind the backward pass. The evaluation runs on one rank. And eight workers may now
# share the cores that four had, so the loading is no faster than before.
#
# To find out, one change at a time, a few hundred steps each, after a warm-up: the step on one GPU with a batch of
# 32 (if that already takes more than half of the time with 64, it is the batch); two ranks with the same batch
# again and again in memory (if this is much faster, it is the loading); the same inside `no_sync()` (the difference
# is the communication that is not hidden); an epoch without evaluation.
#
# First I would give each rank 64 samples, with the learning rate and warm-up that belong to a batch of 128: half as
# many messages per epoch, and fuller GPUs. (Where the batch must stay: accumulation does not help, since there would
# be less in each micro-batch.) Then let both ranks evaluate a half each, and count the cores that the workers need.
#
# === BEGIN MARK SCHEME ===
# **1 point** speed-up 1.25, efficiency 0.625 and serial share 0.6 (or the bound 1.67). Half for two of the three.
#
# **1 point** two causes or more that belong to this case (32 samples per rank, 400 MB per step, evaluation on one rank,
# workers and cores), each with how it acts. A list of general causes earns half. "Python's lock" earns nothing:
# ranks are processes.
#
# **1 point** a measurement that would separate two of the causes, with what each outcome would mean.
#
# **1 point** a change that follows from the case, with its price: a larger global batch is another training
# (learning rate, warm-up); a shared evaluation needs a sum over ranks; fewer bytes (half precision, compression)
# change the gradients.
#
# Take off 1 point for a number that is claimed as measured but was not.
# === END MARK SCHEME ===
# <!-- END SOLUTION -->
