# %% [markdown]
# # Data parallel, part 1: Send from rank to rank
#
# **How do processes that train together talk to each other?**
#
# A *rank* is a process that trains together with others. What ranks know of each other they know from messages. You
# start ranks from the notebook and by hand, send tensors between them, and write two collectives, broadcast and reduce,
# first one message after the other and then along a tree.
#
# **You will be able to**
#
# - start N processes that talk through `torch.distributed`, and read where they stand if they hang
# - write a collective from `send` and `recv`, without a deadlock
# - say how many messages must come one after the other, in a loop and in a tree
#
# **Minutes** 25 core · 95 in all
#
# **Needs** nothing

# %% locked="setup"
import math
import os
import subprocess
import sys
import tempfile
from pathlib import Path

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
# **The unit.** What do DataParallel and DistributedDataParallel do, and what do they cost? Its parts take both apart
# and build them again. The core is one session of two hours, in four parts: 1 how ranks talk, 3 build
# DistributedDataParallel (DDP), 5 run it under torchrun, 8 what DataParallel loses. Do their core exercises first, in
# this order. The other parts are extra: 2 sums over all ranks, 4 where the mean goes wrong, 6 the speed-up, 7 sharding.
# Nothing depends on extra exercises.
#
# **How it works.** Write down what you expect (a cell with `None`), solve the exercise, run its check, look at the
# measurement. A check names the first thing that is wrong; if ranks hang, it says where each of them waits. Later
# cells use your answers whose checks passed, and fall back on the reference solution if your copy of the course
# includes it. The last hint of an exercise is nearly its solution. Leave the empty cell after each check alone: your
# instructor's tests go there. Sentences about measurements describe two CPU cores at the scale `laptop`; `smoke` is
# too small to show them.
#
# **Where the ranks run.** In experiments ranks are processes. On a CPU they talk through gloo, over TCP, and share the
# cores. With several GPUs the experiments use NCCL; with one, those with several ranks stay on the CPU. The checks of
# this part run your code on a virtual network inside of one process: they ask who sends what to whom, and that is the
# same everywhere. Which algorithm a library picks, how numbers are rounded and how long it takes is not.

# %% [markdown]
# ## Why more than one device
#
# **Some models would train for years on one device; splitting the batch is the simplest way to use many.**
#
# AlphaFold 2 was trained for about eleven days on 128 TPU v3 cores (Jumper et al. 2021, supplementary information):
# eleven days times 128 are nearly four years on one core, if the model fitted. Three ways to use many devices:
#
# - **Data parallel** (DP): one process; every step copies the model to all devices and splits the batch.
# - **Distributed data parallel** (DDP): one process per device, each with a model of its own; only gradients are
#   shared.
# - **Sharded** training (ZeRO, FSDP): as DDP, but each rank keeps only a part of parameters, gradients and
#   optimizer state, and asks the others when it needs the rest (Rajbhandari et al. 2020, arXiv:1910.02054). It
#   saves memory; part 7 builds it.

# %% [markdown]
# The *rank* is also the number of a process, from 0; the *world size* is how many there are. `run_ranks(fn, n)` calls
# `fn(rank, n)` in n processes and returns their answers as a list in the order of ranks. What they print appears with
# the rank in front. They end with the call. They talk through a *backend*: gloo on CPUs, NCCL on NVIDIA's GPUs.
# `dist.all_reduce(x)` replaces x by the sum of the x of all ranks; `dist.barrier()` waits until all of them have come
# to it.


# %% tags=["experiment"]
def hello(rank, world_size):
    x = torch.full((3,), float(rank), device="cuda" if dist.get_backend() == "nccl" else "cpu")
    dist.all_reduce(x)  # in place: the sum over all ranks
    print(f"process {os.getpid()}, backend {dist.get_backend()}, I hold {x.tolist()}")
    return x


run_ranks(hello, 2)

# %% [markdown]
# If one of them does not come, the others would wait for ever. `run_ranks` has a time limit and says who is where:


# %% tags=["experiment"]
def forgetful(rank, world_size):
    if rank != 1:
        dist.barrier()


try:
    run_ranks(forgetful, 3, backend="gloo", timeout=2)
except distributed.RankError as error:
    print(error)

# %% [markdown]
# Rank 1 has returned, so nobody will ever join the two that wait. Look in such a report for the rank that is not where
# the others are.
#
# ### The same by hand
#
# `run_ranks` hides two things that every such program needs: somebody starts the processes, and they find each other.
# Here is a whole script with nothing of the course in it. `spawn` starts two Python processes that call `work(rank,
# ...)`. `init_process_group` is where they meet: each says its rank and how many there are, at an address that all of
# them know, here a file; on several machines it is that of rank 0. It returns when all have come. (In part 5 torchrun
# starts the processes.)

# %% tags=["experiment"]
SCRIPT = """
import sys, torch, torch.distributed as dist, torch.multiprocessing as mp

def work(rank, world_size, address):
    dist.init_process_group("gloo", init_method=address, rank=rank, world_size=world_size)
    x = torch.full((3,), float(rank))
    dist.all_reduce(x)
    print(f"rank {rank} of {world_size}, I hold {x.tolist()}\\n", end="", flush=True)  # line and end in one write
    dist.destroy_process_group()

if __name__ == "__main__":  # the processes import this file too, and must not start others
    mp.spawn(work, args=(2, sys.argv[1]), nprocs=2)
"""
with tempfile.TemporaryDirectory() as folder:
    script = Path(folder, "by_hand.py")
    script.write_text(SCRIPT)
    command = [sys.executable, str(script), f"file://{folder}/meeting"]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | distributed.ONE_MACHINE)
print(done.stdout if done.returncode == 0 else done.stderr[-2000:])

# %% [markdown]
# ## What all ranks need
#
# **Data parallel training asks for one operation: N ranks have a vector each, and all of them need the sum.**
#
# With DistributedDataParallel every rank is a process with a model of its own, which stays. Each rank takes its own
# batch, computes its own gradients, and then all ranks agree on the mean. Equal weights and equal gradients give equal
# weights: no model is ever sent again.

# %%
plots.ddp_steps()

# %% [markdown]
# The third column is that operation: the sum, divided by N. This part and part 2 build it from messages.

# %% [markdown]
# ## Messages
#
# **`send` returns when the other side has taken the message, so two ranks that both send first wait for ever.**
#
# Each rank is a process with variables of its own, and all run the same function. `dist.get_rank()` differs, and with
# `if rank == ...` one program plays all the parts. A message has two ends: `dist.send(tensor, dst=1)` in rank 0 and
# `dist.recv(tensor, src=0)` in rank 1. `recv` writes into a tensor that is there already, of the same shape and dtype.
# Between two ranks messages keep their order.
#
# Both calls *block*. `recv` returns when the values are there, `send` when the tensor may be overwritten, and with gloo
# that is when the other side receives. So this is a *deadlock*:
#
# ```python
# dist.send(mine, (rank + 1) % world_size)    # everybody sends: nobody has come to the next line
# dist.recv(theirs, (rank - 1) % world_size)
# ```
#
# A library that buffers small messages hides it until the tensors grow. `dist.isend` and `dist.irecv` only start a
# message and return a request; `request.wait()` blocks until the message is through. Before that the tensor belongs to
# the message: do not write into what is being sent, do not read what is being received.
#
# A *collective* is a function that all ranks call together. *Broadcast* gives all ranks the values of one (the weights,
# at the start), *reduce* gives one rank the sum over all (the gradients). They change their argument in place, like
# those of `torch.distributed`: the caller holds on to its tensor, and `tensor = other` inside a function only gives a
# local name a new meaning. (A published course has `tensor = torch.max(tensor, buff)` in its reduce, and its test does
# not notice that nothing comes out, because it counts messages and looks at no value.)
#
# To try a function before you check it:
#
# ```python
# def mine(rank, world_size):
#     tensor = torch.tensor([float(rank)])
#     broadcast_naive(tensor, src=0)
#     return tensor.tolist()
#
#
# run_ranks(mine, 4, network=Network(latency=0, bandwidth=1e9))  # or without `network`: processes
# ```
#
# If no rank can go on, the check says where each one stands:
#
# - "rank 2 waits in recv, line 9 of the cell": nobody sends that message. "waits in send": nobody takes it. With
#   "waits in wait" the line shows which request.
# - "rank 0 waits in barrier": it has come out of your function and waits for the others. What did it not send them?
# - "received data size doesn't match expected size": the tensors at the two ends of a message differ in length.

# %% [markdown]
# ### Exercise 1 · Broadcast, one after the other
#
# The source sends its tensor to every other rank in turn.
#
# **Points** 2 · **Core** · **Difficulty** ●○○ · **Minutes** 10 · **Lines** 7
#
# **Must**
#
# - leave the values of `src` in `tensor` of every rank, the very object that was passed
# - send `world_size - 1` messages, each the whole tensor, all from `src`
# - use `send` and `recv`, or `isend` and `irecv`; then wait for every request that they return
#
# **You may assume** contiguous tensors of one shape and dtype on the CPU, and the same `src`, any rank, everywhere.
#
# **Not allowed** The collectives of torch.distributed: `broadcast`, `reduce`, `all_reduce`, `gather`, `all_gather`,
# `scatter`, `reduce_scatter`, `all_to_all`.
#
# **Source** PyTorch documentation of `torch.distributed`, "Point-to-point communication"; Thakur, Rabenseifner and
# Gropp 2005, "Optimization of collective communication operations in MPICH", for the names.
#
# <details><summary>Hint 1</summary>
#
# All ranks run the same lines. What does the source do, what does everybody else do, and who must not send to
# itself?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `if dist.get_rank() == src:` a loop over all ranks but `src`, with `dist.send(tensor, other)`; `else` one
# `dist.recv(tensor, src)`, which writes into the tensor of the caller.
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
# ### Exercise 2 · Reduce, one after the other
#
# Now the other way: every rank sends its tensor to `dst`, which adds them up. (The rest of this part is extra.)
#
# **Points** 2 · **Extra** · **Difficulty** ●○○ · **Minutes** 8 · **Lines** 8
#
# **Must**
#
# - leave the sum over all ranks, its own values among them, in `tensor` of `dst`; other ranks keep their values
# - send `world_size - 1` messages, each the whole tensor and straight to `dst`
# - wait for every request of `isend` and `irecv`, if you use them
#
# **You may assume** contiguous tensors of one shape and dtype on the CPU, and the same `dst`, any rank, everywhere;
# sums may be taken in any order.
#
# **Not allowed** The collectives of torch.distributed: `broadcast`, `reduce`, `all_reduce`, `gather`, `all_gather`,
# `scatter`, `reduce_scatter`, `all_to_all`.
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
# ## Trees
#
# **A rank that has received can send: the number of ranks that hold the values doubles every round, so log2(N) rounds
# are enough.**
#
# In the naive broadcast `world_size - 1` messages go *one after the other*, while most ranks have nothing to do. In a
# *binomial tree* the source sends to one rank in round 0; in round 1 both send, to two others; then four do. N ranks
# need log2(N) rounds, rounded up: 10 for a thousand ranks instead of 999. The number of messages stays N - 1; what
# shrinks is the *depth*, the number of messages that come one after the other.
#
# With the source at rank 0, rank r sends to `r + 1` in round 0, to `r + 2` in round 1, to `r + 4` in round 2, if it
# holds the values already and if there is such a rank:
#
# ```
# round 0      0 -> 1
# round 1      0 -> 2    1 -> 3
# round 2      0 -> 4    1 -> 5    2 -> 6    3 -> 7
# ```
#
# For another source count from there: the *place* of a rank is `(rank - src) % world_size`. Ranks are of type int:
# `world_size / 2` is a float, and a rank of 2.0 is refused.
#
# A reduce is the same picture with time and arrows reversed: the last round comes first, and who sent now receives and
# adds. A rank that has sent is done.

# %%
plots.broadcast_tree(6)

# %% [markdown]
# ### Exercise 3 · Broadcast along a tree
#
# Write the broadcast that doubles.
#
# **Points** 4 · **Extra** · **Difficulty** ●●○ · **Minutes** 30 · **Lines** 8
#
# **Must**
#
# - leave the values of `src` in `tensor` of every rank
# - send `world_size - 1` messages, each the whole tensor
# - need ceil(log2(world_size)) rounds, for any number of ranks and any `src`; in one round a rank sends one message,
#   receives one, or does neither
# - wait for every request of `isend` and `irecv`, if you use them
#
# **You may assume** what `broadcast_naive` may. Any tree with these rounds is right.
#
# **Not allowed** The collectives of torch.distributed: `broadcast`, `reduce`, `all_reduce`, `gather`, `all_gather`,
# `scatter`, `reduce_scatter`, `all_to_all`.
#
# **Source** Thakur, Rabenseifner and Gropp 2005, on broadcast (binomial tree).
#
# <details><summary>Hint 1</summary>
#
# Which places hold the values before round k, counted from the source, and which get them in it?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# With `distance = 2**k`: places below `distance` send to the place `distance` further on, if there is one; places
# from `distance` to below `2 * distance` receive. Everybody else does nothing in this round.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# `place = (rank - src) % world_size`. A distance between places is a distance between ranks: the sender's message
# goes to `(rank + distance) % world_size`, the receiver's comes from `(rank - distance) % world_size`. The place
# decides *whether*: `place < distance and place + distance < world_size`.
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
# Turn the tree round: sums travel from the leaves to `dst`.
#
# **Points** 4 · **Extra** · **Difficulty** ●●○ · **Minutes** 20 · **Lines** 11
#
# **Must**
#
# - leave the sum in `tensor` of `dst`; other ranks keep their values, although sums pass through some of them
# - send `world_size - 1` messages, each the whole tensor
# - need ceil(log2(world_size)) rounds, for any number of ranks and any `dst`; in one round a rank sends one message,
#   receives one, or does neither
# - wait for every request of `isend` and `irecv`, if you use them
#
# **You may assume** what `reduce_naive` may.
#
# **Not allowed** The collectives of torch.distributed: `broadcast`, `reduce`, `all_reduce`, `gather`, `all_gather`,
# `scatter`, `reduce_scatter`, `all_to_all`.
#
# **Source** Thakur, Rabenseifner and Gropp 2005, on reduce (binomial tree).
#
# <details><summary>Hint 1</summary>
#
# What does a rank in the middle of the tree send on: its own tensor, or something else? And where may it keep that?
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
# ## How deep are they?
#
# **On a virtual network where each message takes one second, the seconds are the depth.**
#
# `network.simulate` runs your code on logical clocks: a message moves the clocks of both its ends, computing moves none
# (part 2 says more). With a latency of 1 and no other cost, the last clock counts messages that had to wait for each
# other.
#
# Predict: how many seconds do naive and tree take for a reduce and a broadcast on 64 ranks?

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
# The trees send exactly as many messages as the naive way, but at the same time. The clocks do not depend on your
# machine. Real ranks do: with fewer cores than ranks messages hardly overlap, and a tree gains little or nothing (part
# 2 measures it). And a long tensor takes as long at each level of the tree: part 2 cuts it into pieces.
