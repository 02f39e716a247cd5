# %% [markdown]
# # Data parallel, part 5: Explain a speed-up
#
# **Why are two ranks not twice as fast as one?**
#
# Ask this before you pay for a second GPU, or when one has brought less than you hoped. You find out where the time of
# a step is lost and judge fourteen statements about DDP. Then you estimate what a second GPU would do for your own
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
from course.parallel import counting, ddp_evidence, distributed
from course.parallel.distributed import run_ranks
from course.plots import data_parallel as plots
from course.training import scaling, small_gpt

print(course.machine())
sizes = course.sizes("02_data_parallel")

# %% [markdown]
# ## How many times as fast are two ranks?
#
# What a second rank should bring depends on what you keep fixed. A step on one rank takes $t_1$.
#
# - *Strong scaling* shares one batch among N ranks. Ideally a step takes $t_1 / N$.
# - *Weak scaling* gives every rank a whole batch. Ideally a step takes $t_1$.
#
# The *parallel efficiency* is the share of the ideal that you reach.
#
# <details><summary>Amdahl's law</summary>
#
# Suppose that a share $s$ of the work is serial and N ranks divide the rest. Then $t_N = t_1 (s + (1 - s) / N)$, so the
# speed-up stays below $1 / s$ (after Amdahl 1967). Gustafson (1988) answered that the work grows with the machine,
# which is weak scaling.
#
# </details>

# %% [markdown]
# ### Exercise 1 · Parallel efficiency
#
# Compute the share of the ideal that was reached. If 4 ranks share the batch of 1 rank and take half as long, it is
# 0.5. If each of the 4 has a whole batch and they take twice as long, it is 0.5, too.
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
# Four ranks share the work of one. How long would they ideally take? How long if each of them did as much work as the
# one did alone?
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
# The small GPT trains on one rank, on two, and on four if you have at least four cores (or GPUs). Each rank computes in
# one thread (or on one GPU). In the next cell, `SHARED` is strong scaling and `EACH` is weak scaling.
#
# **Predict**: the same batch on two ranks instead of one. How many times as fast?

# %%
predicted_speedup = None  # your number

# %% tags=["experiment"]
most_ranks = scaling.ranks_with_own_device()
ranks = [n for n in (1, 2, 4) if n <= most_ranks]
sequences = 2 * sizes.sequences  # of a whole batch

of_ranks = run_ranks(
    scaling.compared_steps, ranks[-1], sequences, ranks, 2 * sizes.seconds, timeout=300
)
compared = of_ranks[0]
strong = scaling.speedups(compared, ranks, scaling.SHARED)
weak = scaling.speedups(compared, ranks, scaling.EACH)

what = "one batch on two ranks, times as fast as on one"
print(course.score("02/5", what, predicted_speedup, strong[1]))
print(f"{compared.rounds} rounds, {compared.stopped}; one rank against itself: {compared.control}")
course.claim(
    "two ranks train a shared batch at least 1.1 times as fast as one rank does",
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
# Your `efficiency` turns the times into shares of the ideal:

# %% tags=["experiment"]
efficiency_now = course.solved(check.efficiency)
strong_times = torch.tensor([1 / speedup.estimate for speedup in strong])  # in steps of one rank
weak_times = torch.tensor([1 / speedup.estimate for speedup in weak])

strong_efficiency = efficiency_now(ranks, strong_times)
weak_efficiency = efficiency_now(ranks, weak_times, weak=True)
for i, n in enumerate(ranks):
    print(f"ranks: {n}, strong {strong_efficiency[i]:.2f}, weak {weak_efficiency[i]:.2f}")

# %% [markdown]
# **Takeaway** Before you judge a speed-up, ask what was kept fixed: the whole batch, or the batch of each rank.

# %% [markdown]
# ## Where is the rest of the step lost?
#
# Ideally, one batch on N ranks takes 1/N of a step on one rank. Everything above that is lost. The comparison above
# also timed two steps with something switched off, *alone* and *silent*:
#
# | step | rank 0 | other ranks | gradients sent |
# |---|---|---|---|
# | alone | 1/N of a batch | nothing | no (without DDP) |
# | silent | 1/N of a batch | 1/N of a batch | no (DDP under `no_sync`) |
# | shared | 1/N of a batch | 1/N of a batch | yes |
#
# The differences between the rows say what each addition costs, in steps of one rank:

# %% tags=["experiment"]
lost = {n: scaling.lost_shares(compared, n) for n in ranks[1:]}
for n, causes in lost.items():
    shares = "; ".join(f"{cause} {share}" for cause, share in causes.items())
    print(f"{n} ranks: 1/N {1 / n:.2f}; {shares}")
course.claim(
    "on two ranks, the part of sending that backward does not hide takes at least 2 % of a step on one rank",
    lost[2]["sending"],
    above=0.02,
)
plots.scaling(ranks, strong, weak, most_ranks, lost)

# %% [markdown]
# - *A small batch* (alone minus 1/N): the optimizer's work does not shrink with the batch, and a small batch may not
#   fill a GPU. A larger batch per rank makes this share smaller.
# - *Others compute too* (silent minus alone): a step lasts as long as the slowest rank needs. On a CPU, ranks also
#   share memory and caches.
# - *Sending* (shared minus silent): messages that backward does not hide (part 2), and copies into buckets. Fewer
#   bytes, a larger batch per rank or a faster wire can help.
#
# **Takeaway** Switch off one cause after the other. Then work on the largest one that you can change.

# %% [markdown]
# ## What does a late rank cost?
#
# So far all ranks had the same amount of work. In practice one rank may be late, a *straggler*: its batch is longer,
# its loader stalls, or its GPU is throttled. The cell after your prediction delays batches in two ways, with the same
# mean delay:
#
# - *Both late*: each of two ranks gets its batch late, by about the time of one step.
# - *One late*: rank 1 alone gets its batch late, by about the time of two steps.
#
# **Predict** for *one late*: how many times as long as a step on time does a step take?

# %%
predicted_straggler = None  # your number

# %% tags=["experiment"]
delays = {  # of ranks 0 and 1, in steps without delay
    "on time": [0.0, 0.0],
    "both late": [1.0, 1.0],
    "one late": [0.0, 2.0],
}

of_ranks = run_ranks(
    scaling.compared_delays, 2, sizes.sequences, delays, sizes.seconds, timeout=300
)
delayed, _ = of_ranks[0]
longer = {way: delayed.ratio("on time", to=way) for way in delays}

print("times as long as a step on time, with delays of about so many steps:")
print(f"both late by one: {longer['both late']}; one late by two: {longer['one late']}")
what = "step with one late rank over a step on time"
print(course.score("02/5", what, predicted_straggler, longer["one late"]))
course.claim(
    "a step takes at least 20 % longer if one of two ranks is late than if both are late by half as much",
    delayed.ratio("both late", to="one late"),
    above=1.2,
)
plots.step_shares(scaling.shares_of_ways(of_ranks), longer)

# %% [markdown]
# In the figure, *batch late* is the wait for a rank's batch. *Computing* is a step that sends nothing. *Waiting* is for
# the slowest rank, and *sending* is the rest.
#
# **Shown**: the mean delay is the same in both delayed cases, but with one late rank the other one waits for it.
#
# A profile of rank 0 can show this wait as a long all-reduce, as if the network were slow. So compare the ranks first:
# `torchrun --nproc-per-node 2 -m course.checkup train.py` names the rank that the others wait for. If samples differ in
# length, give each rank equal work, not equally many samples (unit 05).
#
# **Takeaway** A step takes at least as long as its slowest rank. To the other ranks, that wait can look like slow
# communication.

# %% [markdown]
# ## What is true of DDP?
#
# A wrong belief about DDP can cost you a barrier per step, or a wrong mean. Judge fourteen statements about DDP, with
# its default settings. A statement is true only if all of it is true.
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
# - **I** Only rank 0 downloads the data set, to a disk that all ranks see. Then a `dist.barrier()` between the download
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
# Each statement has an experiment in the two extra sections below. You may run these first, and look at what differs
# between the ranks.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# For A to F ask of every tensor: who made it, and is there an operation between the ranks in which it takes part?
# For H and L: when does an all-reduce end on a rank? For N: what must a process know of another before it can send it
# anything?
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
# As soon as your answers pass, the next cell gives the reasons. If you doubt one, look for its experiment in the two
# extra sections below.

# %%
check.ddp_facts.reasons(ddp_facts)

# %% [markdown]
# ## A to I: what do two ranks see in one step? · extra
#
# The next cell runs one step without a barrier, and rank 1 comes half a second late. Compare the two ranks in each line
# from A to F: what is equal, and from when on? For H, see line D: is the mean right although rank 1 came late?

# %% tags=["experiment"]
seen = run_ranks(ddp_evidence.one_step, 2, backend="gloo")

print(ddp_evidence.side_by_side(seen))

# %% [markdown]
# For G, each rank has a layer of batch normalization. In each step, its running mean moves a tenth of the way to the
# mean of the batch: 0 on rank 0, and 10 on rank 1. For I, rank 0 takes half a second to make a file. Which ranks find
# it?

# %% tags=["experiment"]
running_means = run_ranks(ddp_evidence.running_means, 2, backend="gloo")
file_found = ddp_evidence.found_with_and_without_barrier()

for rank, (first, second) in enumerate(running_means):
    print(f"running mean on rank {rank} after each of two steps: {first:.2f} {second:.2f}")
for how, found in file_found.items():
    print(f"{how}: rank 0 finds the file: {found[0]}, rank 1: {found[1]}")

# %% [markdown]
# For G: if rank 1 used only its own batches, its mean would move twice. If DDP averaged, both ranks would have the same
# mean.
#
# **Takeaway** To test a statement about DDP, print what each rank sees in one step.

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
    in_order = DistributedSampler(range(10), num_replicas=4, rank=rank, shuffle=False)
    shuffled = DistributedSampler(range(10), num_replicas=4, rank=rank)
    print(f"rank {rank}: in order", *in_order, end="")
    print(", shuffled", *shuffled)

try:
    run_ranks(uneven_batches, 2, backend="gloo", timeout=5)
except distributed.RankError as error:
    print(error)

# %% [markdown]
# For M, the next cell prints what torchrun sets with four processes on each of two machines. Both launchers run on this
# machine, each with its own `--node-rank`. For N, it prints how many times the tensor's bytes each of four ranks sends
# in an all-reduce (nan unless on Linux). What would the numbers be if rank 0 added up for all?

# %% tags=["experiment"]
variables = ddp_evidence.launched_variables()
shares_of_ranks = run_ranks(counting.sent_shares, 4, [torch.distributed.all_reduce], backend="gloo")

print(*ddp_evidence.VARIABLES)
for values in variables:
    print(*values, sep="  ")
print("sent, in multiples of the tensor:", *(f"{share:.2f}" for (share,) in shares_of_ranks))

# %% [markdown]
# **Takeaway** All ranks must make the same collective calls: one missing call makes the others wait.

# %% [markdown]
# ## Would a second GPU help your training?
#
# `course.checkup` watches a training, here the small GPT on one rank. It measures a step, its backward, and the bytes
# of the gradients. From these, the next cells compute a step on two ranks with torch's buckets (part 2), as if the
# model had ten equal layers.
#
# Put your own loader and step here. Or run `course checkup --json report.json train.py` in a terminal, and read its
# file with `layers_of_checkup(json.load(open("report.json")))`.

# %% tags=["experiment"]
torch.set_num_threads(1)  # as in each rank here
device = course.device()
my_model = small_gpt.small_gpt().to(device)
my_loader = []
for seed in range(8):
    my_loader.append(small_gpt.random_tokens(sizes.sequences, seed=seed).to(device))
optimizer = torch.optim.SGD(my_model.parameters(), lr=0.01)


def my_step(batch):
    """Train on one batch."""
    optimizer.zero_grad()
    small_gpt.next_token_loss(my_model, batch).backward()
    optimizer.step()


report = course.checkup(my_loader, my_step, steps=20, minutes=0.5, only_watch=True)

# %% tags=["experiment"]
wires = {"1 Gbit Ethernet": 1, "25 Gbit Ethernet": 25, "PCIe 4.0 x16": 256}  # Gbit per second

layers = figures.layers_of_checkup(report.data)
step_ms = 1000 * report.data["seconds"]["median"]
backward_ms = sum(layer.backward_ms for layer in layers)

for wire, gbit in wires.items():
    _, averaged_ms = schedule(layers, gbit=gbit, latency_ms=0.02, **TORCH_BUCKETS)
    wait_ms = averaged_ms - backward_ms
    gain = 2 * step_ms / (step_ms + wait_ms)
    print(f"two ranks over {wire}: {gain:.2f} times the samples per second")
figures.step_timeline(layers, gbit=25, latency_ms=0.02, **TORCH_BUCKETS)

# %% [markdown]
# The prediction is for weak scaling: each rank computes as long as before, and the global batch doubles (unit 03). It
# assumes that ranks never wait for each other's work, share nothing, and send without using computing time.
#
# You measured weak scaling above, with larger batches: "a batch per rank" in the first figure. If that gain is below
# the prediction for a fast wire, one of these assumptions fails on your machine.
#
# `print(report)` shows all that the check-up found. Its line "DDP" predicts the efficiency on more ranks, if
# you solved `all_reduce_seconds` (part 1).
#
# **Takeaway** *Before* you rent a second GPU, compare bytes of gradients over bandwidth with the time of backward.

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
