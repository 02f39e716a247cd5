# %% [markdown]
# # Data parallel, part 5: Explain a speed-up
#
# **Why are two ranks not twice as fast as one?**
#
# Ask this before you pay for a second GPU, and again if it brings less than you paid for. You find out where the time
# of a step is lost, judge fourteen common statements about DDP, and estimate what a second GPU would do for your own
# training.
#
# **You will be able to**
#
# - say what a speed-up kept fixed, and how far it is from the ideal
# - split a step of several ranks into computing, waiting and sending
# - tell what DDP does from what people say about it
#
# **Minutes** 37 core · 63 in all · session 2
#
# **Needs** part 1 (`run_ranks`); part 2 helps (what DDP sends)

# %% locked="setup"
import torch
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DistributedSampler

import course
from course import figures
from course.checks import data_parallel as check
from course.figures.backward_timeline import TORCH_BUCKETS, schedule
from course.measure.comparison import ratio_interval
from course.parallel import ddp_evidence, distributed
from course.parallel.distributed import run_ranks
from course.plots import data_parallel as plots
from course.training import scaling, small_gpt

print(course.machine())
sizes = course.sizes("02_data_parallel")

# %% [markdown]
# ## How many times as fast are two ranks?
#
# A second GPU doubles the bill. What it should bring depends on what you keep fixed:
#
# - *Strong scaling* shares one batch among N ranks. Ideally a step takes $t_1 / N$.
# - *Weak scaling* gives every rank a whole batch. Ideally a step takes $t_1$.
#
# The *parallel efficiency* is the share of the ideal that you reach.
#
# <details><summary>Amdahl's law</summary>
#
# Amdahl (1967) split the work into a serial share $s$ and the rest: $t_N = t_1 (s + (1 - s) / N)$, so the speed-up
# stays below $1 / s$. Gustafson (1988) answered that the work grows with the machine, which is weak scaling.
#
# </details>

# %% [markdown]
# ### Exercise 1 · Parallel efficiency
#
# Compute the share of the ideal that was reached. If 4 ranks take half as long as 1 rank, it is 0.5 in strong scaling
# and 2.0 in weak scaling.
#
# **Points** 2 · **Core** · **Difficulty** ●○○ · **Minutes** 8 · **Lines** 4
#
# **Must**
#
# - return $t_1 / (N t_N)$ for each measurement, or $t_1 / t_N$ if `weak`, in float64
# - use the measurement on one rank as $t_1$, wherever in the list it is
#
# **Raises** ValueError if no measurement is on one rank.
#
# **Source** Amdahl 1967, "Validity of the single processor approach to achieving large scale computing
# capabilities", AFIPS; Gustafson 1988, "Reevaluating Amdahl's law", Communications of the ACM 31.
#
# <details><summary>Hint 1</summary>
#
# Four ranks share the work of one: how long would they ideally take? And how long if each of them did as much work as
# the one did alone?
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
# ### How fast are two ranks here?
#
# The small GPT trains on one rank and on two, each on its own core (or GPU). In the next cell, `SHARED` is strong
# scaling and `EACH` is weak scaling.
#
# **Predict**: the same batch on two ranks instead of one. How many times as fast?

# %%
predicted_speedup = None  # your number

# %% tags=["experiment"]
own = scaling.ranks_with_own_device()
ranks = [n for n in (1, 2, 4) if n <= max(2, own)]
rows = 2 * sizes.sequences  # sequences of a whole batch
compared = run_ranks(
    scaling.compared_steps, ranks[-1], rows, ranks, 2 * sizes.seconds, timeout=300
)[0]
strong = [compared.ratio((n, scaling.SHARED) if n > 1 else compared.base) for n in ranks]
weak = [compared.ratio((n, scaling.EACH) if n > 1 else compared.base) for n in ranks]
print(
    course.score(
        "02/5", "one batch on two ranks, times as fast as on one", predicted_speedup, strong[1]
    )
)
print(f"{compared.rounds} rounds, {compared.stopped}; one rank against itself: {compared.control}")
course.claim(
    "two ranks finish a batch at least 10 % sooner than one rank does",
    strong[1],
    above=1.1,
    otherwise="Which of the losses printed below is the largest?",
)
course.claim(
    "two ranks are less than 1.9 times as fast as one",
    strong[1],
    below=1.9,
    otherwise="Look at the small batch among the losses printed below.",
)

# %% [markdown]
# Your `efficiency` turns the times into shares of the ideal. The next cell also prints two numbers that compare
# machines:
#
# - *tokens per second* (or images per second);
# - *MFU*, model FLOPs utilization: the model's arithmetic per second over the device's peak. It falls when a rank
#   waits, and GPU-Util does not.
#
# <details><summary>How MFU is computed here</summary>
#
# MFU is defined in Chowdhery et al. 2022, "PaLM", arXiv:2204.02311, appendix B. We count 6 operations per parameter and
# token (Kaplan et al. 2020, arXiv:2001.08361), without attention's products. The peak is the rate of a large matrix
# product, in one thread (or on one GPU).
#
# </details>

# %% tags=["experiment"]
efficiency_now = course.solved(check.efficiency)
in_steps = [
    torch.tensor([1 / speedup.estimate for speedup in speedups]) for speedups in (strong, weak)
]
strong_efficiency = efficiency_now(ranks, in_steps[0])
weak_efficiency = efficiency_now(ranks, in_steps[1], weak=True)
peak = scaling.peak_flops()
per_token = scaling.flops_per_token(small_gpt.small_gpt())
tokens = rows * small_gpt.COLUMNS
for i, n in enumerate(ranks):
    per_second = tokens * strong[i].estimate / compared.median(compared.base)
    print(
        f"{n} rank(s): efficiency strong {strong_efficiency[i]:.2f}, weak {weak_efficiency[i]:.2f}; one batch: "
        f"{per_second:,.0f} tokens/s, MFU {per_token * per_second / (n * peak):.0%}"
    )

# %% [markdown]
# **Takeaway** Before you judge a speed-up, ask what was kept fixed: the whole batch, or the batch of each rank.

# %% [markdown]
# ## Where is the rest of the step lost?
#
# Ideally, one batch on N ranks takes 1/N of a step on one rank. Everything above that is lost. The comparison above
# also timed two steps with something switched off:
#
# | step | rank 0 | other ranks | gradients sent |
# |---|---|---|---|
# | alone | 1/N of a batch | nothing | no |
# | silent | 1/N of a batch | 1/N of a batch | no (under `no_sync`) |
# | shared | 1/N of a batch | 1/N of a batch | yes |
#
# Each row adds one cause to the row above it. So the differences say what each cause costs, in steps of one rank:

# %% tags=["experiment"]
lost = {n: scaling.lost_shares(compared, n) for n in ranks[1:]}
for n, causes in lost.items():
    print(
        f"{n} ranks: 1/N {1 / n:.2f}; "
        + "; ".join(f"{cause} {share}" for cause, share in causes.items())
    )
course.claim(
    "on two ranks, sending the gradients takes at least 2 % of a step on one rank that backward does not hide",
    lost[2]["sending"],
    above=0.02,
)
alone, silent, shared = (
    compared.seconds[2, name] for name in (scaling.ALONE, scaling.SILENT, scaling.SHARED)
)
course.claim(
    "on two ranks, the other rank's computing costs more than sending the gradients",
    ratio_interval(silent / alone, shared / silent),
    above=1,
    otherwise="The number is silent / alone, divided by shared / silent.",
)
bars = {"1/N": torch.tensor([1 / n for n in lost], dtype=torch.float64)}
for cause in lost[2]:
    bars[cause] = torch.tensor(
        [of_n[cause].estimate for of_n in lost.values()], dtype=torch.float64
    )
plots.scaling(ranks, strong, weak, own, bars)

# %% [markdown]
# - *A small batch* (alone minus 1/N): some work, such as the optimizer's, does not shrink with the batch, and half a
#   batch may not fill a GPU. A larger batch per rank helps.
# - *Others compute too* (silent minus alone): a step lasts as long as the slower rank needs. **We think** that ranks
#   also share memory, caches and power. To test that, use two GPUs: little of this loss should remain.
# - *Sending* (shared minus silent): messages that backward does not hide (part 2), and copies into buckets. Fewer
#   bytes, a larger batch per rank or a faster wire helps.
#
# **Takeaway** Switch off one cause after the other. Then work on the largest one that you can change.

# %% [markdown]
# ## What does a late rank cost?
#
# So far both ranks had the same amount of work. Often one rank is late, a *straggler*: its batch is longer, its loader
# stalls, or its GPU is throttled. The next cell delays batches in two ways, with the same mean delay:
#
# - *Both late*: each of two ranks gets its batch late, by about the time of one step.
# - *One late*: rank 1 alone gets its batch late, by about the time of two steps.
#
# **Predict** for *one late*: how many steps without delay does one step last?

# %%
predicted_straggler = None  # your number

# %% tags=["experiment"]
delays = {"on time": [0.0, 0.0], "both late": [1.0, 1.0], "one late": [0.0, 2.0]}
found = run_ranks(scaling.compared_delays, 2, sizes.sequences, delays, sizes.seconds, timeout=300)
late = found[0][0]
longer = {way: late.ratio("on time", to=way) for way in delays}
print(
    f"both late by one step: {longer['both late']} times as long; one late by two steps: {longer['one late']}"
)
print(
    course.score(
        "02/5",
        "step with one late rank over a step on time",
        predicted_straggler,
        longer["one late"],
    )
)
course.claim(
    "a step takes at least 20 % longer if one of two ranks is late than if both are late by half as much",
    late.ratio("both late", to="one late"),
    above=1.2,
)
shares = {}
for way in delays:
    shares[way] = scaling.step_shares(late.median(way), [of_rank[way] for _, of_rank in found])
plots.step_shares(shares, {way: ratio.estimate for way, ratio in longer.items()})

# %% [markdown]
# In the figure, *batch late* is the wait for a rank's batch. *Computing* is forward, and backward without sending.
# *Waiting* is for the slowest rank, and *sending* is the rest.
#
# **Shown**: the two delayed cases differ only in who is late, and a step lasts as long as the slowest rank needs.
#
# A profiler of rank 0 shows the waiting as a long all-reduce, so people often take it for a slow network. Compare the
# ranks before you buy a faster one: `torchrun --nproc-per-node 2 -m course.checkup train.py` names the rank that all
# others wait for, and the line. If the work differs in every step, as with sentences of all lengths, give each rank
# equal work, not equally many samples (unit 05).
#
# **Takeaway** A step is as slow as its slowest rank, and the other ranks report their wait as communication.

# %% [markdown]
# ## What is true of DDP?
#
# A wrong belief about DDP costs you a barrier per step, or a wrong mean. Judge fourteen statements that people make
# about it. A statement is true only if all of it is true.
#
# *Wrapping, and one step*
#
# - **A** When you wrap a model in DDP, rank 0 sends its parameters and buffers to all ranks.
# - **B** DDP cuts the batch that a rank passes to the model into `world_size` shards, and sends each rank its shard.
# - **C** The ranks exchange their gradients while `loss.backward()` runs; `optimizer.step()` sends nothing.
# - **D** After backward, `p.grad` is the mean of the ranks' own gradients, on every rank.
# - **E** Each rank has its own optimizer state. Nobody sends these states, and they stay equal.
# - **F** If the criterion takes the mean, the loss on each rank is the mean over the samples of all ranks.
# - **G** After each step, DDP averages the running statistics of BatchNorm layers over the ranks.
#
# *Barriers*
#
# - **H** Each batch needs a `dist.barrier()` before it is passed to the model. Without it, a fast rank could average
#   its gradients with a slow rank's gradients from the step before.
# - **I** If only rank 0 downloads the data set to a disk that all ranks see, a `dist.barrier()` between the download
#   and the opening of the files keeps the other ranks from opening files that are not there yet.
#
# *Samples*
#
# - **J** With `shuffle=True`, each rank's DistributedSampler draws its own shuffle, so two ranks may get the same
#   sample in one epoch.
# - **K** Suppose that the number of samples is not a multiple of the number of ranks. With `drop_last=False`, the
#   default, a DistributedSampler uses some samples more than once in an epoch, and an accuracy over its indices counts
#   them that often.
# - **L** If one rank has one batch fewer than the others, DDP takes the mean over the remaining ranks in the last step.
#
# *Launcher*
#
# - **M** `torchrun` with 4 processes on each of two machines sets `WORLD_SIZE` to 8, `RANK` to 0 to 7, and `LOCAL_RANK`
#   to 0 to 3 on each machine.
# - **N** The process at `MASTER_ADDR` and `MASTER_PORT` receives the gradients of all ranks, takes their mean and sends
#   it back.

# %% [markdown]
# ### Exercise 2 · True or false
#
# Judge each statement. If only A were true, the answer would be `{"A": True, "B": False, ...}`.
#
# **Points** 4 · **Core** · **Difficulty** ●●○ · **Minutes** 12 · **Lines** 1
#
# **Must** return a dictionary from the letters `"A"` to `"N"` to `True` or `False`.
#
# **Source** PyTorch documentation of `DistributedDataParallel`, of `DistributedSampler` and of torchrun.
#
# <details><summary>Hint 1</summary>
#
# Each statement has an experiment in the next two sections. You may run these first, and look at what differs between
# the ranks.
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
# As soon as your answers pass, the next cell gives the reasons. If you doubt one, the two extra sections below it test
# all fourteen.

# %%
check.ddp_facts.reasons(ddp_facts)

# %% [markdown]
# ## A to I: what do two ranks see in one step? · extra
#
# The next cell runs one step without a barrier, and rank 1 comes half a second late. Compare the two ranks in each line
# from A to F: what is equal, and from when on? For H, see line D: did the fast rank average with an old gradient?

# %% tags=["experiment"]
steps = run_ranks(ddp_evidence.one_step, 2, backend="gloo")
for what in sorted(steps[0]):
    numbers = ["".join(f"{number:8.3g}" for number in step[what]) for step in steps]
    print(f"{what:<40} rank 0:{numbers[0]} rank 1:{numbers[1]}")

# %% [markdown]
# For G, each rank has a layer of batch normalization. In each step, its running mean moves a tenth of the way to the
# mean of the batch: 0 on rank 0, and 10 on rank 1. For I, rank 0 takes half a second to make a file. Which ranks find
# it?

# %% tags=["experiment"]
for rank, seen in enumerate(run_ranks(ddp_evidence.running_means, 2, backend="gloo")):
    print(
        f"running mean on rank {rank} after each of two steps:", *(f"{mean:.2f}" for mean in seen)
    )
for how, found in ddp_evidence.found_with_and_without_barrier().items():
    print(f"{how}: rank 0 finds the file: {found[0]}, rank 1: {found[1]}")

# %% [markdown]
# For G: if rank 1 used only its own batches, its mean would move twice. An average over the ranks would lie between the
# two ranks' means.
#
# **Takeaway** Print what each rank sees in one step. You can test most statements about DDP in twenty lines.

# %% [markdown]
# ## J to N: who gets which samples, who waits, and who is the master? · extra
#
# For J and K, the next cell prints which of ten samples DistributedSampler gives to each of four ranks. For L, rank 1
# has two batches and rank 0 has three, so the cell runs until its time limit.


# %% tags=["experiment"]
def uneven_batches(rank, world_size):
    ddp = DistributedDataParallel(torch.nn.Linear(2, 1))
    for _ in range(3 - rank):
        ddp(torch.ones(4, 2)).sum().backward()


for rank in range(4):
    print(f"rank {rank}: in order", *DistributedSampler(range(10), 4, rank, shuffle=False), end="")
    print(", shuffled", *DistributedSampler(range(10), 4, rank))
try:
    run_ranks(uneven_batches, 2, backend="gloo", timeout=5)
except distributed.RankError as error:
    print(error)

# %% [markdown]
# For M, the next cell prints what torchrun sets with four processes on each of two machines. Both launchers run on this
# machine, each with its own `--node-rank`. For N, it prints how many times the tensor's bytes each of four ranks sends
# in an all-reduce. What would the numbers be if rank 0 added up for all?

# %% tags=["experiment"]
print(*ddp_evidence.VARIABLES)
for values in ddp_evidence.launched_variables():
    print(*values, sep="  ")
sent = run_ranks(ddp_evidence.sent_in_all_reduce, 4, backend="gloo")
print(
    "sent, in multiples of the tensor:",
    *("not counted here" if n is None else f"{n:.2f}" for n in sent),
)

# %% [markdown]
# **Takeaway** All ranks must make the same number of calls: one missing call makes the others wait.

# %% [markdown]
# ## Would a second GPU help your training?
#
# `course.checkup` watches a training, here the small GPT on one rank. From the bytes of the gradients and the time of a
# step, its line "DDP" predicts how efficient DDP would be, once you have solved `all_reduce_seconds` of part 1. The
# figure draws the same step with torch's buckets (part 2), as if the model had ten equal layers.
#
# Put your own `loader` and `step` here. Or run `course checkup --json report.json train.py` in a terminal, and read its
# file with `layers_of_checkup(json.load(open("report.json")))`.

# %% tags=["experiment"]
torch.set_num_threads(1)  # as in each rank here
my_model = small_gpt.small_gpt().to(course.device())
my_loader = [
    small_gpt.random_tokens(sizes.sequences, seed=seed).to(course.device()) for seed in range(8)
]
optimizer = torch.optim.SGD(my_model.parameters(), lr=0.01)


def my_step(batch):
    """Train on one batch."""
    optimizer.zero_grad()
    small_gpt.next_token_loss(my_model, batch).backward()
    optimizer.step()


report = course.checkup(my_loader, my_step, steps=20, minutes=0.5, only_watch=True)
print(report)

# %% tags=["experiment"]
layers = figures.layers_of_checkup(report.data)
step_ms = 1000 * report.data["seconds"]["median"]
backward_ms = sum(layer.backward_ms for layer in layers)
for name, gbit in {"1 Gbit Ethernet": 1, "25 Gbit Ethernet": 25, "PCIe 4.0 x16": 256}.items():
    _, until = schedule(layers, gbit=gbit, latency_ms=0.02, **TORCH_BUCKETS)
    waits = until - backward_ms
    print(
        f"two ranks over {name}: {2 * step_ms / (step_ms + waits):.2f} times the samples per second"
    )
figures.step_timeline(layers, gbit=25, latency_ms=0.02, **TORCH_BUCKETS)

# %% [markdown]
# The prediction assumes weak scaling: each rank computes as long as before, and the global batch doubles (unit 03). It
# also assumes that ranks never wait for each other's work, share nothing, and send without using computing time.
#
# You measured weak scaling above: "a batch per rank" in the first figure, where messages should weigh *less*, because
# each rank had twice as many sequences. If that gain is below the prediction for a fast wire, **we think** that copies
# and messages compete for the cores that compute. A spare core per rank would test that.
#
# **Takeaway** *Before* you rent a second GPU, ask what the messages would cost: bytes of gradients over bandwidth,
# against the time of backward.

# %% [markdown]
# ## Can you explain one? · extra
#
# ### Exercise 3 · Why not two?
#
# A colleague moves a training from one GPU to two in the same machine. The global batch stays 64. The model has 100
# million parameters, four loader workers per rank decode images, and every 200 steps rank 0 evaluates while the other
# rank waits. An epoch takes 600 s instead of 750 s. Write about ten lines:
#
# - What are the speed-up and the efficiency, and which serial share would that mean?
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
