# %% [markdown]
# # Data parallel, part 1: Send from rank to rank
#
# **How do processes that train together talk to each other?**
#
# They send messages. You start two processes from this notebook that swap their numbers, and see what can go wrong.
#
# **You will be able to**
#
# - start N processes that talk through `torch.distributed`, and see where each one is if they hang
# - write a collective from `send` and `recv` without a deadlock
# - say how many messages must come one after the other, in a loop and in a tree
#
# **Minutes** 18 core · 77 in all
#
# **Needs** nothing

# %% locked="setup"
import math

import torch
import torch.distributed as dist

import course
from course.checks import data_parallel as check
from course.learner.predictions import reveal
from course.parallel import distributed, network
from course.parallel.distributed import run_ranks
from course.parallel.network import Network
from course.plots import data_parallel as plots

print(course.machine())

# %% [markdown]
# **The unit** takes apart how torch trains on many devices, and builds it again. One session covers its core: messages
# (part 1), the ring (8), DistributedDataParallel by hand (2), killing a process and resuming (4), and DataParallel (6).
# Sections marked "extra", and parts 3, 5 and 7, are for afterwards.
#
# Write your prediction into each cell with `None`. A check names the first thing that is wrong. Later cells use your
# answer if its check passed. Otherwise they use the reference solution, if your copy of the course includes it. Leave
# the empty cell after each check alone: your instructor's tests go there. The numbers in the text are from two CPU
# cores at the scale `laptop`.

# %% [markdown]
# ## What happens when two ranks send to each other?
#
# A *rank* is one of the processes that train together, and also its number, counted from 0. The *world size* is how
# many there are. `run_ranks(fn, n)` starts n processes, calls `fn(rank, n)` in each and returns their results as a
# list. They talk through a *backend*: gloo on CPUs, NCCL on NVIDIA's GPUs.
#
# A message has two ends. Rank 0 calls `dist.send(tensor, dst=1)`, and rank 1 calls `dist.recv(tensor, src=0)`, which
# writes into a tensor of the same shape and dtype. Here each of two ranks sends its number to the other.
#
# Predict: how many of the two ranks return?

# %%
predicted_returned = None  # ranks


# %% tags=["experiment"]
def swap(rank, world_size):
    mine, theirs = torch.tensor([float(rank)]), torch.empty(1)
    dist.send(mine, 1 - rank)
    dist.recv(theirs, 1 - rank)
    return theirs.item()


try:
    found = run_ranks(swap, 2, backend="gloo", timeout=2)
    print(f"{len(found)} ranks returned" + reveal(predicted_returned))
except distributed.RankError as error:
    print(error)
    print("0 ranks returned" + reveal(predicted_returned))

# %% [markdown]
# This is a *deadlock*. `send` *blocks*: with gloo it returns when the other side receives. Both ranks send first, so
# neither reaches the line with `recv`. `run_ranks` ended them after its time limit.
#
# There are two fixes. In the first function below, one rank sends while the other receives. In the second, `isend` and
# `irecv` only *start* a message and return a request, and `wait()` blocks until the message is through. Until then,
# neither write into the tensor that is sent nor read the tensor that is received.


# %% tags=["experiment"]
def one_sends_first(rank, world_size):
    mine, theirs = torch.tensor([float(rank)]), torch.empty(1)
    if rank == 0:
        dist.send(mine, 1)
        dist.recv(theirs, 1)
    else:
        dist.recv(theirs, 0)
        dist.send(mine, 0)
    return theirs.item()


def start_both(rank, world_size):
    mine, theirs = torch.tensor([float(rank)]), torch.empty(1)
    requests = dist.isend(mine, 1 - rank), dist.irecv(theirs, 1 - rank)
    for request in requests:
        request.wait()
    return theirs.item()


for fixed in (one_sends_first, start_both):
    print(f"{fixed.__name__}: {run_ranks(fixed, 2, backend='gloo')}")

# %% [markdown]
# **Takeaway** With gloo, `send` waits for its `recv`. If every rank sends first, nobody receives. Start both with
# `isend` and `irecv`, then wait.

# %% [markdown]
# ## What do ranks send each other in a training step?
#
# In *DistributedDataParallel* (DDP) every rank keeps a model and takes its own batch. Each computes gradients, and then
# all ranks agree on the mean. They start with equal weights and step with equal gradients, so their weights stay equal.

# %%
plots.ddp_steps()

# %% [markdown]
# The third column is one operation, *all-reduce*: every rank gets the sum of all ranks' tensors. Divided by the number
# of ranks, it is the mean. Functions that all ranks call together are *collectives*. Torch has `dist.all_reduce(x)`;
# you build it from *point-to-point* messages, in this part and in part 8. First comes *broadcast*, which gives all
# ranks the values of one. DDP uses it for the weights, before the first step.
#
# <details><summary>Why more than one device, and in which ways</summary>
#
# AlphaFold 2 was trained for about eleven days on 128 TPU v3 cores (Jumper et al. 2021, supplementary information). On
# one core that would be nearly four years, if the model fitted.
#
# - **Data parallel** (DP): one process; every step copies the model to all devices and splits the batch (part 6).
# - **Distributed data parallel** (DDP): one process per device, each with a model; only gradients are shared (part 2).
# - **Sharded** training (ZeRO, FSDP): like DDP, but each rank keeps only a part of parameters, gradients and optimizer
#   state (Rajbhandari et al. 2020, arXiv:1910.02054; part 7).
# - **Tensor parallel**: each device keeps a part of every layer. **Pipeline parallel**: each keeps some of the layers.
#
# </details>
#
# All ranks run the same function, and `dist.get_rank()` tells them apart. Collectives write into the tensor that they
# are given. So must you: `tensor = other` inside a function changes nothing for the caller.

# %% [markdown]
# ### Exercise 1 · Broadcast, one after the other
#
# The source sends its tensor to every other rank, one after the other. On 3 ranks that hold 0, 1 and 2:
#
# ```
# broadcast_naive(tensor, src=1)      rank 1 sends to 0, then to 2; all hold 1
# ```
#
# **Points** 2 · **Core** · **Difficulty** ●○○ · **Minutes** 10 · **Lines** 7
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
# `if dist.get_rank() == src:` a loop over all ranks but `src`, with `dist.send(tensor, other)`; `else` one
# `dist.recv(tensor, src)`, which writes into the tensor of the caller.
#
# </details>
#
# <details><summary>To try it, and what the check says of a hang</summary>
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
# - "rank 2 waits in recv, line 9 of the cell": nobody sends that message. "waits in send": nobody takes it.
# - "rank 0 waits in barrier": it has left your function and waits for the others. What did it not send them?
# - "received data size doesn't match expected size": the two ends of a message have tensors of different lengths.
#
# </details>


# %% solution="broadcast_naive"
def broadcast_naive(tensor, src):
    """None; afterwards `tensor` of every rank holds the values of rank `src`, which sends to each other rank in turn.

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
# ## How does one rank get the sum? · extra
#
# A *reduce* is the opposite of a broadcast: messages go to one rank.
#
# ### Exercise 2 · Reduce, one after the other
#
# Every rank sends its tensor to `dst`, which adds them up. If 3 ranks hold 1, 2 and 4, `dst` ends with 7.
#
# **Points** 2 · **Extra** · **Difficulty** ●○○ · **Minutes** 8 · **Lines** 8
#
# **Must**
#
# - leave the sum over all ranks in `tensor` of `dst`; other ranks keep their values
# - send `world_size - 1` messages, each the whole tensor and straight to `dst`
#
# **You may assume** what `broadcast_naive` may; sums may be taken in any order.
#
# **Not allowed** Any collective: use only point-to-point calls.
#
# **Source** As for the broadcast.
#
# <details><summary>Hint 1</summary>
#
# `dst` must keep its own values while it receives those of another rank. Where do they go?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Receive into a second tensor, `part = torch.empty_like(tensor)`, and add it with `tensor += part`, which writes
# into the tensor of the caller; `tensor = tensor + part` would make a new one that nobody sees.
#
# </details>


# %% solution="reduce_naive"
def reduce_naive(tensor, dst):
    """None; afterwards `tensor` of rank `dst` holds the sum over all ranks, that of every other rank what it held.

    Args:
        tensor: contiguous tensor on the CPU, of one shape and dtype in all ranks; changed in place in rank `dst`.
        dst: rank that gets the sum, an int from 0.
    """
    ### BEGIN SOLUTION
    if dist.get_rank() != dst:
        dist.send(tensor, dst)
    else:
        part = torch.empty_like(tensor)
        for other in range(dist.get_world_size()):
            if other != dst:
                dist.recv(part, other)
                tensor += part
    ### END SOLUTION


# %% test="reduce_naive-visible" points=1
check.reduce_naive(reduce_naive)

# %% test="reduce_naive-hidden" points=1
### BEGIN HIDDEN TESTS
check.reduce_naive(reduce_naive, seed=272)
### END HIDDEN TESTS

# %% [markdown]
# ## How many rounds does a broadcast need? · extra
#
# In the loop, `world_size - 1` messages come one after the other, while most ranks have nothing to do. But a rank that
# has received can send, so the number of ranks that hold the values can double in every *round*:

# %%
plots.broadcast_tree(6)

# %% [markdown]
# This *binomial tree* needs log2(N) rounds, rounded up: 10 for a thousand ranks instead of 999. In round k, rank r
# sends to `r + 2**k` if it holds the values already and that rank exists. For a source other than 0, count from there:
# the *place* of a rank is `(rank - src) % world_size`.

# %% [markdown]
# ### Exercise 3 · Broadcast along a tree
#
# Write the broadcast that doubles. With `src=0` and 6 ranks it sends the messages of the figure.
#
# **Points** 4 · **Extra** · **Difficulty** ●●○ · **Minutes** 25 · **Lines** 8
#
# **Must**
#
# - write the values of `src` into `tensor` of every rank, for any `src`
# - send `world_size - 1` messages, each the whole tensor
# - need ceil(log2(world_size)) rounds, in each of which a rank has at most one message
#
# **You may assume** what `broadcast_naive` may.
#
# **Not allowed** Any collective: use only point-to-point calls.
#
# **Source** Thakur, Rabenseifner and Gropp 2005, "Optimization of collective communication operations in MPICH", on
# broadcast.
#
# <details><summary>Hint 1</summary>
#
# Which places hold the values before round k, and which get them in it?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# With `distance = 2**k`: places below `distance` send to the place `distance` further on, if there is one; places
# from `distance` to below `2 * distance` receive. The others do nothing in this round.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# A distance between places is a distance between ranks: the sender's message goes to `(rank + distance) % world_size`,
# the receiver's comes from `(rank - distance) % world_size`. The place decides *whether*:
# `place < distance and place + distance < world_size`.
#
# </details>


# %% solution="broadcast_tree"
def broadcast_tree(tensor, src):
    """None; afterwards `tensor` of every rank holds the values of rank `src`, after ceil(log2(world_size)) rounds.

    Args:
        tensor: contiguous tensor on the CPU, of one shape and dtype in all ranks; changed in place.
        src: rank of the source, an int from 0.
    """
    ### BEGIN SOLUTION
    rank, world_size = dist.get_rank(), dist.get_world_size()
    place = (rank - src) % world_size  # counted from the source
    for k in range(math.ceil(math.log2(world_size))):
        distance = 2**k
        if place < distance and place + distance < world_size:
            dist.send(tensor, (rank + distance) % world_size)
        elif distance <= place < 2 * distance:
            dist.recv(tensor, (rank - distance) % world_size)
    ### END SOLUTION


# %% test="broadcast_tree-visible" points=2
check.broadcast_tree(broadcast_tree)

# %% test="broadcast_tree-hidden" points=2
### BEGIN HIDDEN TESTS
check.broadcast_tree(broadcast_tree, seed=383)
### END HIDDEN TESTS

# %% [markdown]
# ### Exercise 4 · Reduce along a tree
#
# Reverse the tree: sums travel from the leaves to `dst`.
#
# **Points** 4 · **Extra** · **Difficulty** ●●○ · **Minutes** 15 · **Lines** 11
#
# **Must**
#
# - leave the sum in `tensor` of `dst`; other ranks keep their values
# - send as many messages, in as many rounds, as `broadcast_tree`
#
# **You may assume** what `reduce_naive` may.
#
# **Not allowed** Any collective: use only point-to-point calls.
#
# **Source** Thakur, Rabenseifner and Gropp 2005, on reduce.
#
# <details><summary>Hint 1</summary>
#
# What does a rank in the middle of the tree send: its own tensor, or something else? Where may it keep that?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `total = tensor.clone()` is what a rank adds to and sends; `part = torch.empty_like(tensor)` is what it receives
# into. The rounds are those of `broadcast_tree`, from the last to the first.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# For k from the largest to 0, with `distance = 2**k`: places from `distance` to below `2 * distance` send `total`
# to `(rank - distance) % world_size`; places below `distance` receive from `(rank + distance) % world_size`, if
# that place is there, and add. At the end `if rank == dst: tensor.copy_(total)`.
#
# </details>


# %% solution="reduce_tree"
def reduce_tree(tensor, dst):
    """None; afterwards `tensor` of rank `dst` holds the sum over all ranks, after ceil(log2(world_size)) rounds.

    Args:
        tensor: contiguous tensor on the CPU, of one shape and dtype in all ranks; changed in place in rank `dst` alone.
        dst: rank that gets the sum, an int from 0.
    """
    ### BEGIN SOLUTION
    rank, world_size = dist.get_rank(), dist.get_world_size()
    place = (rank - dst) % world_size  # counted from the root
    total, part = tensor.clone(), torch.empty_like(tensor)
    for k in reversed(range(math.ceil(math.log2(world_size)))):
        distance = 2**k
        if place < distance and place + distance < world_size:
            dist.recv(part, (rank + distance) % world_size)
            total += part
        elif distance <= place < 2 * distance:
            dist.send(total, (rank - distance) % world_size)
    if rank == dst:
        tensor.copy_(total)
    ### END SOLUTION


# %% test="reduce_tree-visible" points=2
check.reduce_tree(reduce_tree)

# %% test="reduce_tree-hidden" points=2
### BEGIN HIDDEN TESTS
check.reduce_tree(reduce_tree, seed=494)
### END HIDDEN TESTS

# %% [markdown]
# ### How long is the longest chain of messages?
#
# `network.simulate` runs your code with a logical clock per rank. A message takes one second here and computing takes
# none, so the seconds count the longest chain of messages, on any machine.
#
# Predict: how many seconds do the loop and the tree take for a reduce and a broadcast on 64 ranks?

# %%
predicted_naive = None  # seconds
predicted_tree = None  # seconds


# %% tags=["experiment"]
def there_and_back(rank, world_size, reduce, broadcast):
    tensor = torch.ones(1)
    reduce(tensor, 0)
    broadcast(tensor, 0)
    return tensor.item()


pairs = {
    "naive": (course.solved(check.reduce_naive), course.solved(check.broadcast_naive)),
    "tree": (course.solved(check.reduce_tree), course.solved(check.broadcast_tree)),
}
one_second = Network(latency=1.0, bandwidth=math.inf)
depths = {}
for n in (2, 4, 8, 16, 32, 64):
    runs = {name: network.simulate(there_and_back, n, one_second, *pair) for name, pair in pairs.items()}
    assert all(run.results == [n] * n for run in runs.values())
    depths[n] = {name: run.seconds for name, run in runs.items()}
    print(f"{n:>2} ranks, {len(runs['tree'].messages):>3} messages: "
          + ", ".join(f"{name} {s:.0f} s" for name, s in depths[n].items()))  # fmt: skip
print(f"64 ranks: naive {depths[64]['naive']:.0f}{reveal(predicted_naive)}, "
      f"tree {depths[64]['tree']:.0f}{reveal(predicted_tree)}")  # fmt: skip
course.claim(
    "on 64 ranks a tree's longest chain of messages is at most a tenth of the naive one",
    depths[64]["naive"] > 10 * depths[64]["tree"],
    f"{depths[64]['naive']:.0f} and {depths[64]['tree']:.0f}",
)

# %% [markdown]
# **Takeaway** A tree sends as many messages as the loop, but many of them at the same time. On 64 ranks its longest
# chain is 12 messages instead of 126.
