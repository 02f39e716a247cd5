# %% [markdown]
# # Data parallel, part 1: Count what is sent
#
# **How do eight GPUs agree on one gradient, in every step?**
#
# Before each update, the GPUs of a data-parallel training agree on one gradient. You count what they send for that. You
# start several processes from this notebook, watch two of them wait for each other, and write a ring all-reduce.
#
# **You will be able to**
#
# - send messages between ranks without a deadlock;
# - write a ring all-reduce, and count what each rank sends;
# - say when the number of messages matters, and when the number of bytes (extra).
#
# **Minutes** 36 core · 58 in all
#
# **Needs** nothing

# %% locked="setup"
import inspect
import math

import torch
import torch.distributed as dist

import course
from course.checks import data_parallel as check
from course.parallel import counting, distributed, message_times
from course.parallel.distributed import run_ranks
from course.parallel.messages import exchange
from course.parallel.network import Network
from course.plots import data_parallel as plots

print(course.machine())
sizes = course.sizes("02_data_parallel")

# %% [markdown]
# **The unit** is about training one model on many devices. In session 1 (parts 1 to 3) you count messages, build
# DistributedDataParallel and find the faults of five trainings. In session 2 (parts 4 to 6) you move to
# `torchrun`, learn why two devices are not twice as fast, and see what DataParallel does. Parts 7 and 8 are extra.
#
# Replace each `None` by your prediction before you run the next cell. Later cells use your answer if it passed its
# check, or else the reference solution if your copy of the course has it. Leave the empty cell after each check alone:
# your instructor's tests go there.

# %% [markdown]
# ## What must eight GPUs send each other?
#
# You train a language model with 7 billion parameters on 8 GPUs. Each GPU computes gradients from its own batch: 14 GB
# in bfloat16. If each GPU stepped with its own gradients, you would get eight different models. So all of them must
# step with the *mean* gradient.
#
# One GPU could collect the gradients and return their mean. But then 7 × 14 GB would enter it and 7 × 14 GB would leave
# it in every step. In this part you find a way in which each GPU sends less.
#
# *DistributedDataParallel* (DDP) runs one process per device, called a *rank*, with its own copy of the model and its
# own batch. Rank 0 sends its weights to all ranks once. From then on all ranks step with the same gradients, so their
# weights stay equal.

# %%
plots.ddp_steps()

# %% [markdown]
# The third column shows an *all-reduce*: every rank gets the sum of all ranks' tensors. Dividing by the number of ranks
# gives the mean. An operation that all ranks call together is a *collective*. Torch has `dist.all_reduce(x)`. You build
# your own, so that you can count its messages.
#
# <details><summary>Ways to train on several devices</summary>
#
# - **Data parallel** (DP): one process. Every step copies the model to all devices and splits the batch (part 6).
# - **Distributed data parallel** (DDP): one process per device, each with a copy of the model. The ranks average their
#   gradients (part 2).
# - **Sharded** training (ZeRO, FSDP): like DDP, but each rank keeps only a part of the optimizer state, and in higher
#   stages also of the gradients and parameters (Rajbhandari et al. 2020, arXiv:1910.02054; part 7).
# - **Tensor parallel**: each device keeps a part of every layer. **Pipeline parallel**: each device keeps some of the
#   layers.
#
# </details>

# %% [markdown]
# ## What happens when two ranks send to each other?
#
# You will build an all-reduce from messages between pairs of ranks, so start with one pair. Ranks are numbered from 0.
# The *world size* is the number of ranks. `run_ranks(fn, n)` starts n processes, calls `fn(rank, n)` in each and
# returns the results as a list. The processes send through a *backend*. This course uses gloo on CPUs and NCCL on
# NVIDIA GPUs.
#
# A message has two ends. Rank 0 calls `dist.send(tensor, dst=1)`. Rank 1 calls `dist.recv(tensor, src=0)`, which writes
# into its tensor of the same shape and dtype. In `swap`, each of two ranks sends its number to the other.
#
# **Predict**: how many ranks reach the end of `swap`? Perhaps 2, because each sends what the other one receives.
# Perhaps fewer, because of the order of the calls.

# %%
predicted_returned = None  # ranks


# %% tags=["experiment"]
def swap(rank, world_size):
    mine = torch.tensor([float(rank)])
    theirs = torch.empty(1)
    dist.send(mine, 1 - rank)
    dist.recv(theirs, 1 - rank)
    return theirs.item()


try:
    results = run_ranks(swap, 2, backend="gloo", timeout=2)
    returned = len(results)
except distributed.RankError as error:
    print(error)
    returned = 0

what = "ranks that return when both send first"
print(course.score("02/1", what, predicted_returned, returned, null=None))

# %% [markdown]
# This is a *deadlock*. With gloo, `send` *blocks*: it returns only when the other side receives. Both ranks send first,
# so neither reaches its `recv`. `run_ranks` stopped them after its time limit.
#
# Two functions fix it:
#
# - In `one_sends_first`, one rank sends while the other receives.
# - In `start_both`, `isend` and `irecv` only *start* a message and return a request. With gloo, `wait()` blocks until
#   the message is complete. Until then, do not write into the outgoing tensor, and do not read the incoming one.


# %% tags=["experiment"]
def one_sends_first(rank, world_size):
    mine = torch.tensor([float(rank)])
    theirs = torch.empty(1)
    if rank == 0:
        dist.send(mine, 1)
        dist.recv(theirs, 1)
    else:
        dist.recv(theirs, 0)
        dist.send(mine, 0)
    return theirs.item()


# %% tags=["experiment"]
def start_both(rank, world_size):
    mine = torch.tensor([float(rank)])
    theirs = torch.empty(1)
    sending = dist.isend(mine, 1 - rank)
    receiving = dist.irecv(theirs, 1 - rank)
    sending.wait()
    receiving.wait()
    return theirs.item()


for fixed_swap in (one_sends_first, start_both):
    received = run_ranks(fixed_swap, 2, backend="gloo")
    print(f"{fixed_swap.__name__}: {received}")

# %% [markdown]
# **Shown**: one function changes only the order, the other only when a call returns. Either change is enough.
#
# **Known**: NCCL must get both messages as a group, by `dist.batch_isend_irecv`. Otherwise the ranks may wait for each
# other on the GPU ([NCCL](https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/usage/p2p.html)).
#
# **Takeaway** If sending blocks and every rank sends first, nobody receives. Start both directions, then wait.

# %% [markdown]
# ## How does one rank reach all others?
#
# A *broadcast* copies one rank's values to all other ranks. DDP uses it for the weights, before the first step.
#
# All ranks run the same function. `dist.get_rank()` returns a rank's number, and `dist.get_world_size()` the number of
# ranks. A broadcast writes into the tensor that it gets. An assignment `tensor = other` would change nothing for the
# caller.

# %% [markdown]
# ### Exercise 1 · Broadcast, one after the other
#
# The source sends its tensor to the other ranks, one after the other. On 3 ranks that hold 0, 1 and 2:
#
# ```
# broadcast_naive(tensor, src=1)      rank 1 sends to 0, then to 2; all hold 1
# ```
#
# **Points** 2 · **Core** · **Difficulty** ●○○ · **Minutes** 7 · **Lines** 6
#
# **Must**
#
# - write the values of `src` into `tensor` of every rank
# - send `world_size - 1` messages, each the whole tensor, all from `src`
# - wait for every request, if you use `isend` or `irecv`
#
# **You may assume** contiguous tensors of one shape and dtype on the CPU.
#
# **Not allowed** Any collective: use only point-to-point calls.
#
# **Source** PyTorch documentation of `torch.distributed`, "Point-to-point communication".
#
# <details><summary>Hint 1</summary>
#
# What does the source do, what do the others do, and who must not send to itself?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `if dist.get_rank() == src:` a loop over `range(dist.get_world_size())` without `src`, with `dist.send(tensor,
# other)`; `else` one `dist.recv(tensor, src)`, which writes into the tensor of the caller.
#
# </details>
#
# <details><summary>How to try it, and what the check reports if it hangs</summary>
#
# ```python
# def mine(rank, world_size):
#     tensor = torch.tensor([float(rank)])
#     broadcast_naive(tensor, src=0)
#     return tensor.tolist()
#
# run_ranks(mine, 4, network=Network(latency=0, bandwidth=1e9))  # or without `network`: processes
# ```
#
# The check runs your code on a *virtual network*, whose ranks are threads of one process.
#
# - "rank 2 waits in recv, line 9 of the cell": nobody sends that message. "waits in send": nobody receives it.
# - "rank 0 waits in barrier": it has left your function and waits for the other ranks. What did it not send them?
# - "received data size doesn't match expected size": sender and receiver use tensors of different lengths.
#
# </details>


# %% solution="broadcast_naive"
def broadcast_naive(tensor, src):
    """None; afterwards `tensor` of every rank holds the values of rank `src`, which sends to one rank after the other.

    Args:
        tensor: contiguous tensor on the CPU, of one shape and dtype in all ranks; changed in place.
        src: rank of the source, an int from 0.
    """
    ### BEGIN SOLUTION
    if dist.get_rank() == src:
        for other in range(dist.get_world_size()):
            if other != src:
                dist.send(tensor, other)
    else:
        dist.recv(tensor, src)
    ### END SOLUTION


# %% test="broadcast_naive-visible" points=1
check.broadcast_naive(broadcast_naive)

# %% test="broadcast_naive-hidden" points=1
### BEGIN HIDDEN TESTS
check.broadcast_naive(broadcast_naive, seed=161)
### END HIDDEN TESTS

# %% [markdown]
# ## How can every rank carry the same load?
#
# In your broadcast, the source sends every message. A *ring* shares the work. It cuts the tensor into N pieces. In each
# step, every rank sends one piece to the next rank and receives one from the rank before it.
#
# - *Reduce-scatter*, N - 1 steps: each rank adds the incoming piece to its own, and sends that sum in the next step. At
#   the end each rank holds one finished piece.
# - *All-gather*, N - 1 steps: the finished pieces travel round the ring once more and replace the unfinished ones.
#
# Rank 0 starts with a, rank 1 with b, rank 2 with c:

# %%
plots.ring(3)

# %% [markdown]
# Each piece is summed once and then copied, so all ranks end with the same bits. In each step every rank sends and
# receives. If all called a blocking `send` first, they would deadlock. `exchange` starts both messages, then waits:

# %%
print(inspect.getsource(exchange))  # 9 lines to read

# %% [markdown]
# ### Exercise 2 · All-reduce on a ring
#
# Write the first phase, the reduce-scatter; the all-gather is given. In step 0 rank r sends piece r, as in the figure.
# The all-gather starts by sending piece `(r + 1) % N`, so rank r must have completed this piece after N - 1 steps. Add
# in place with `+=`: the pieces are views of `flat`, so a sum in a new tensor is lost. Pieces may differ in length by
# one element, so receive into `part[: len(piece)]`, the beginning of the buffer `part`.
#
# **Points** 4 · **Core** · **Difficulty** ●●○ · **Minutes** 15 · **Lines** 5
#
# **Must**
#
# - leave the sum over all ranks in `tensor` of every rank
# - send N - 1 pieces per rank in the first phase, all to rank `following`
#
# **You may assume** the same shape and dtype on all ranks, on the CPU. A tensor may have fewer elements than there are
# ranks: `exchange` can send empty pieces.
#
# **Not allowed** Any collective: use only point-to-point calls.
#
# **Source** Patarasuk and Yuan 2009, "Bandwidth optimal all-reduce algorithms for clusters of workstations".
#
# <details><summary>Hint 1</summary>
#
# Follow rank 0 in the figure. Which piece does it send in each step, and to which one does it add what arrives?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# In step s rank r sends piece `(r - s) % N`, and receives piece `(r - s - 1) % N`: what it receives in one step, it
# sends in the next.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# What arrives must not overwrite the rank's own piece. Receive into `part[: len(incoming)]`, then
# `incoming += part[: len(incoming)]`.
#
# </details>


# %% solution="ring_all_reduce"
def ring_all_reduce(tensor):
    """None; afterwards `tensor` of every rank holds the sum over all ranks, bit for bit the same.

    Each rank sends 2 (N - 1) pieces of about 1/N of the tensor to the next rank, and nothing to any other.

    Args:
        tensor: tensor on the CPU, of one shape and dtype in all ranks, contiguous or not; changed in place.
    """
    rank = dist.get_rank()
    world_size = dist.get_world_size()
    following = (rank + 1) % world_size
    previous = (rank - 1) % world_size
    flat = tensor.contiguous().view(-1)  # the tensor's own memory, if that is contiguous
    pieces = list(flat.tensor_split(world_size))  # N views of flat
    part = torch.empty_like(pieces[0])  # piece 0 is never shorter than another one
    ### BEGIN SOLUTION
    for step in range(world_size - 1):  # reduce-scatter
        outgoing = pieces[(rank - step) % world_size]
        incoming = pieces[(rank - step - 1) % world_size]
        exchange(outgoing, following, part[: len(incoming)], previous)
        incoming += part[: len(incoming)]
    ### END SOLUTION
    for step in range(world_size - 1):  # all-gather
        outgoing = pieces[(rank + 1 - step) % world_size]
        incoming = pieces[(rank - step) % world_size]
        exchange(outgoing, following, incoming, previous)
    # a tensor that is not contiguous has a copy in flat
    tensor.copy_(flat.view(tensor.shape))


# %% test="ring_all_reduce-visible" points=2
check.ring_all_reduce(ring_all_reduce)

# %% test="ring_all_reduce-hidden" points=2
### BEGIN HIDDEN TESTS
check.ring_all_reduce(ring_all_reduce, seed=505)
### END HIDDEN TESTS

# %% [markdown]
# ## How much does each rank send?
#
# gloo sends through TCP, and Linux counts the bytes of every TCP connection. On Linux, the cell after your prediction
# reads these counts for your ring and for torch's own all-reduce.
#
# **Predict**: four ranks all-reduce a tensor with your ring. How many times its size does each rank send? Perhaps 3,
# because each of the three others needs what this rank has. Perhaps less, because neighbours add on the way.

# %%
predicted_share = None  # a factor

# %% tags=["experiment"]
all_reduces = [dist.all_reduce, course.solved(check.ring_all_reduce)]

for world_size in (2, 4):
    shares_of_ranks = run_ranks(counting.sent_shares, world_size, all_reduces, backend="gloo")
    gloo_share = max(shares[0] for shares in shares_of_ranks)
    ring_share = max(shares[1] for shares in shares_of_ranks)
    derived_share = 2 * (world_size - 1) / world_size
    print(
        f"{world_size} ranks: gloo sends {gloo_share:.3f}, your ring {ring_share:.3f}, "
        f"2(N-1)/N = {derived_share:.3f}"
    )

what = "bytes that each of 4 ranks sends, over bytes of the tensor"
print(course.score("02/1", what, predicted_share, ring_share, null=3))

is_as_derived = abs(ring_share / derived_share - 1) < 0.05  # a header per message counts, too
course.claim(
    "a rank of the ring sends 2(N-1)/N of its tensor, counted by Linux",
    is_as_derived,
    f"{ring_share:.3f} times with 4 ranks",
    otherwise="This course reads the count on Linux alone; elsewhere the value is nan.",
)

# %% [markdown]
# **Shown** by arithmetic and by the count: a rank sends 1/N of the tensor in each of 2 (N - 1) steps. That is
# 2 (N - 1) / N of the tensor, less than twice its size. On a ring of 8 GPUs, each sends and receives 24.5 GB per step.
# One GPU that collects would send and receive 98 GB.
#
# **Takeaway** On a ring each rank sends less than twice its tensor, however many ranks there are.

# %% [markdown]
# ## Few messages or few bytes? · extra
#
# In the alpha-beta model, a message of b bytes takes `latency + b / bandwidth` seconds. So two things matter: how many
# messages must wait for each other, and how long they are.
#
# Here are four ways to all-reduce on N ranks, where N is a power of two:
#
# - *Naive*: all ranks send their tensors to rank 0, one after the other. Then rank 0 sends the sum back, to one rank
#   after the other.
# - *Tree*: pairs of ranks add, then pairs of pairs, until one rank has the sum. The sum returns the same way. Messages
#   of one round travel at the same time, and each is a whole tensor.
# - *Ring*: as you wrote it, with N - 1 steps per phase.
# - *Halving and doubling*: each rank exchanges *half* of its tensor with the rank N/2 away, and adds. Then it exchanges
#   half of the half that it kept with the rank N/4 away, and so on. The same exchanges in reverse order put the
#   finished pieces together.
#
# **Predict** for 64 ranks, 20 µs of latency and 10 GB/s: which of "naive", "tree", "ring" and "doubling" is the fastest
# for at least one size from 1 kB to 1 GB? Perhaps the tree and then the ring, because the tree has few messages and the
# ring few bytes.

# %%
predicted_fastest = None  # a set of names, such as {"tree", "ring"}

# %% [markdown]
# ### Exercise 3 · Which is fastest when?
#
# Compute the time of an all-reduce in each of the four ways. With a latency of 1 second, no bytes and 4 ranks, "naive"
# takes 6, "tree" 4, "ring" 6 and "doubling" 4 seconds.
#
# **Points** 3 · **Extra** · **Difficulty** ●●○ · **Minutes** 12 · **Lines** 7
#
# **Must** return a dict with the seconds of "naive", "tree", "ring" and "doubling".
#
# **You may assume** that a rank can send and receive at the same time, one message each. Adding takes no time, and a
# piece of the ring has exactly `n_bytes / world_size` bytes.
#
# **Source** Thakur, Rabenseifner and Gropp 2005, section 3 (they call latency alpha, seconds per byte beta).
#
# <details><summary>Hint 1</summary>
#
# How many messages come one after the other in each way, and how long is each? The total number of messages does not
# matter.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# One after the other: `2 * (N - 1)` whole tensors; `2 * log2(N)` whole tensors; `2 * (N - 1)` pieces; twice 1/2, 1/4,
# ..., 1/N of the tensor, which together are `2 * (N - 1) / N` of it, in `2 * log2(N)` messages.
#
# </details>


# %% solution="all_reduce_seconds"
def all_reduce_seconds(n_bytes, world_size, latency, bandwidth):
    """Predicted seconds of one all-reduce, a dict of floats with the keys "naive", "tree", "ring" and "doubling".

    Args:
        n_bytes: bytes of the tensor, 0 or more.
        world_size: number of ranks, a power of two.
        latency: seconds that a message takes, however short.
        bandwidth: bytes per second.
    """
    ### BEGIN SOLUTION
    rounds = math.log2(world_size)
    whole = n_bytes / bandwidth
    # what a rank sends of a tensor that is cut into pieces
    shares = 2 * (world_size - 1) / world_size * whole
    return {
        "naive": 2 * (world_size - 1) * (latency + whole),
        "tree": 2 * rounds * (latency + whole),
        "ring": 2 * (world_size - 1) * latency + shares,
        "doubling": 2 * rounds * latency + shares,
    }
    ### END SOLUTION


# %% test="all_reduce_seconds-visible" points=1
check.all_reduce_seconds(all_reduce_seconds)

# %% test="all_reduce_seconds-hidden" points=2
### BEGIN HIDDEN TESTS
check.all_reduce_seconds(all_reduce_seconds, seed=727)
### END HIDDEN TESTS

# %% [markdown]
# The next cells draw your formulas and run your ring on virtual ranks. Their tensors have a size but no values, so a
# gigabyte takes no memory.

# %% tags=["experiment"]
wires = Network(latency=20e-6, bandwidth=10e9)
world_size = sizes.virtual_ranks
predict_seconds = course.solved(check.all_reduce_seconds)
ways = {"ring": course.solved(check.ring_all_reduce)}

predicted = {}  # {bytes: {way: seconds}}
simulated = {}
for n_bytes in sizes.virtual_bytes:
    predicted[n_bytes] = predict_seconds(n_bytes, world_size, wires.latency, wires.bandwidth)
    simulated[n_bytes] = message_times.virtual_seconds(ways, world_size, wires, n_bytes)

# %% tags=["experiment"]
fastest_ways = set()
for n_bytes, seconds in predicted.items():
    fastest = min(seconds, key=seconds.get)
    fastest_ways.add(fastest)
    print(f"{n_bytes:>13,} bytes: {fastest} is the fastest, {1e3 * seconds[fastest]:.3f} ms")

what = "the ways that are the fastest at some size"
print(course.score("02/1", what, predicted_fastest, fastest_ways))
title = f"{world_size} virtual ranks: doubling is the fastest at every size (dots: your ring)"
plots.crossover(simulated, predicted, title)

# %% [markdown]
# **Shown** by your formulas: the naive way and the ring wait for many messages, and the naive way and the tree send
# whole tensors. Doubling has few messages *and* few bytes, so it is the fastest at every size in this model.
#
# **Takeaway** For small tensors, count the messages that wait for each other. For large tensors, count bytes.
#
# <details><summary>Why does NCCL use rings and trees instead?</summary>
#
# **Known**: NCCL estimates the time of each choice for each size and takes the fastest: "a flat ring (high latency,
# best bandwidth) and a tree (low latency, ok bandwidth)" (NVIDIA's answers in
# [nccl#471](https://github.com/NVIDIA/nccl/issues/471) and [#457](https://github.com/NVIDIA/nccl/issues/457)). Our
# model leaves out three things:
#
# - *Shared links.* The model gives each pair of ranks its own wire. In a cluster, ranks may share links. Part 8
#   compares doubling and a ring there.
# - *Any number of ranks.* Doubling needs a power of two, or extra steps (Thakur et al. 2005, section 4.5).
# - *Pipelines.* NCCL's trees pass the tensor on in chunks. So a rank sends about twice its tensor in all (nccl#457),
#   not a whole tensor in each round.
#
# </details>
