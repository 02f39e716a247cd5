# %% [markdown]
# # Data parallel, part 1: Send from rank to rank
#
# **How do processes that train together talk to each other?**
#
# A *rank* is a process that trains together with others. Everything that ranks know of each other went through a
# message. You start ranks from the notebook, send tensors between them, and write two collectives, broadcast and
# reduce, first in the plain way and then along a tree.
#
# **You will be able to**
#
# - start N processes that talk through `torch.distributed`, and read where they stand if they hang
# - write a collective from `send` and `recv`, without a deadlock
# - say how many messages must come one after the other, in a loop and in a tree
#
# **Minutes** 18 core · 80 in all
#
# **Needs** nothing

# %% locked="setup"
import math
import os

import torch
import torch.distributed as dist

import course
from course import distributed
from course.checks import data_parallel as check
from course.distributed import run_ranks
from course.plots import data_parallel as plots

print(course.machine())

# %% [markdown]
# **The unit.** What do DataParallel and DistributedDataParallel do, and what do they cost? Its eight parts take both
# apart and build them again: 1 and 2 how ranks talk, 3 and 4 DistributedDataParallel, 5 a script for torchrun, 6 the
# speed-up, 8 and 9 DataParallel and what it loses against the other. Solve the core exercises of all parts first; they
# take about two and a half hours. The extra ones can wait, and nothing depends on them.
#
# **How it works.** Write down what you expect (a cell with `None`), solve the exercise, run its check, look at the
# measurement. A check names the first thing that is wrong; if ranks hang, it says where each of them waits. Later
# cells use your answers whose checks passed, and fall back on the reference solution if your copy of the course
# includes it. The last hint of an exercise is nearly its solution. Leave the empty cell after each check alone: your
# instructor's tests go there. Sentences about measurements describe two CPU cores at the scale `laptop`; `smoke` is
# too small to show them.
#
# **Where the ranks run.** They are real processes everywhere. On a CPU they talk through gloo, over TCP, and share the
# cores. With several GPUs the experiments use NCCL; with one, those with several ranks stay on the CPU. The checks of
# exercises with ranks always run on the CPU: they ask who gets what, and that is the same on GPUs. Which algorithm a
# library picks, how numbers are rounded and how long it takes is not.

# %% [markdown]
# ## Why more than one device
#
# **Some models would train for years on one device; splitting the batch is the simplest way to use many.**
#
# AlphaFold 2 was trained for about eleven days on 128 TPU v3 cores (Jumper et al. 2021, supplementary methods
# 1.11.3): three to four years on one of them, if it fitted. Three ways to use many devices build on each other:
#
# - **Data parallel** (DP): one process; every step copies the model to all devices and splits the batch.
# - **Distributed data parallel** (DDP): one process per device, each with a model of its own; only gradients are
#   shared.
# - **Sharded** training (ZeRO, FSDP): as DDP, but each rank keeps only a part of parameters, gradients and
#   optimizer state, and asks the others when it needs the rest (Rajbhandari et al. 2020, arXiv:1910.02054). It
#   saves memory. It is not part of this unit; what you write here is what it is made of.

# %% [markdown]
# A *rank* is the number of a process, from 0, and the *world size* their number. `run_ranks(fn, n)` calls `fn(rank,
# n)` in n processes, and returns their answers as a list in the order of ranks. What they print appears with the
# rank in front. They end with the call, whatever happens in them. In them they can talk through a *backend*: gloo
# on CPUs, NCCL on NVIDIA's GPUs. `dist.all_reduce(x)` replaces x by the sum of the x of all ranks; `dist.barrier()`
# waits until all of them have come to it.


# %% tags=["experiment"]
def hello(rank, world_size):
    x = torch.full((3,), float(rank))
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
# Rank 1 has returned, so nobody will ever join the two that wait. That line decides how to read such a report: look
# for the rank that is not where the others are.

# %% [markdown]
# ## What all ranks need
#
# **Data parallel training asks for one operation: N ranks have a vector each, and all of them need the sum.**
#
# With DistributedDataParallel every rank is a process with a model of its own, which stays. Each takes its own part
# of the data from page-locked memory (*pinned*, so that the copy to the GPU can run by itself), computes its own
# gradients, and then all ranks agree on the mean of them. Equal weights and equal gradients give equal weights: no
# model is ever sent again.

# %%
plots.ddp_steps()

# %% [markdown]
# The third column is that operation. "Everybody sends everything to everybody" would do. Better ways are the subject of
# this part and the next.

# %% [markdown]
# ## Messages
#
# **A rank has what it computed and what it was sent; `send` returns when the other side has taken the message, and
# two ranks that both send first wait for ever.**
#
# Ranks are processes: each has variables of its own, and all run the same function. What differs is the number that
# `dist.get_rank()` gives; with `if rank == ...` one program plays all the parts. A value gets from one rank to
# another by a message and in no other way. A message has two ends, and the program of one rank must send where the
# program of the other receives: `dist.send(tensor, dst=1)` in rank 0, `dist.recv(tensor, src=0)` in rank 1. `recv`
# writes into a tensor that is there already, of the same shape and dtype. Between two ranks messages keep their
# order.
#
# Both calls *block*. `recv` returns when the values are there. `send` returns when the tensor may be overwritten,
# and with gloo that is when the other side receives. So this stands still:
#
# ```python
# dist.send(mine, (rank + 1) % world_size)    # everybody sends: nobody has come to the next line
# dist.recv(theirs, (rank - 1) % world_size)
# ```
#
# Such a standstill is called a *deadlock*. A library that buffers small messages hides it until the tensors grow.
# `dist.isend` and `dist.irecv` only start a message and return at once, with a request. `request.wait()` blocks
# until the message is through. Before that, the tensor belongs to the message: do not write into what is being
# sent, do not read what is being received, and keep the request.
#
# A *collective* is a function that all ranks call together. The two simplest are the two halves of what data
# parallel training needs: *broadcast* gives all ranks the values of one (the weights, at the start), *reduce* gives
# one rank the sum over all (the gradients). Here you write them from messages. They change their argument in place,
# like those of `torch.distributed`: the caller holds on to its tensor, and the line `tensor = other` in a function
# only gives a name inside of it a new meaning. A published course on this matter has
# `tensor = torch.max(tensor, buff)` in its reduce, and its test does not notice that nothing comes out of it,
# because it counts messages and looks at no value.
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
# distributed.run_ranks(mine, 4, backend="gloo", timeout=5)
# ```
#
# If ranks wait for each other, `run_ranks` ends them after `timeout` seconds and says where each stands; a check
# does the same after eight seconds (the first one also has to start the processes). So read it:
#
# - "rank 2 waits in recv, line 9 of the cell" waits for a message that nobody sends; "waits in send", for somebody
#   to take its message. In a `wait`, the line shows which request it is.
# - "rank 0 waits in barrier, line ... of data_parallel.py" has come out of your function and waits for the others.
#   What did it not send them, or what do they expect too much?
# - "rank 0 has returned" has done the same, in all the cases of the check.
#
# A rank that does not exist is not refused by gloo, which waits for it; a check tells you.
#
# If a rank dies with `Received data size doesn't match expected size`, the tensor at one end of a message was
# longer than that at the other.

# %% [markdown]
# ### Exercise 1 · Broadcast, one after the other
#
# The source sends its tensor to every other rank in turn.
#
# **Points** 2 · **Core** · **Difficulty** ●○○ · **Minutes** 10 · **Lines** 7
#
# **Convention** All ranks call the function, with tensors of one shape and dtype, contiguous and on the CPU, and
# with the same `src`, which may be any rank. Afterwards the tensor of every rank, the very object that was passed,
# holds the values of `src`. There are `world_size - 1` messages, each the whole tensor, all sent by `src`; nothing
# but `send`, `recv`, `isend` and `irecv` of `torch.distributed` is used, and every request is waited for. What the
# function returns does not matter.
#
# **Not allowed** The collectives of torch.distributed: `broadcast`, `reduce`, `all_reduce`, `gather`, `all_gather`,
# `scatter`, `reduce_scatter`, `all_to_all`.
#
# **Source** PyTorch documentation of `torch.distributed`, "Point-to-point communication"; Thakur, Rabenseifner and
# Gropp 2005, "Optimization of collective communication operations in MPICH", section 2, for the names.
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
# Now the other way: every rank sends its tensor to `dst`, which adds them up.
#
# **Points** 2 · **Extra** · **Difficulty** ●○○ · **Minutes** 8 · **Lines** 8
#
# **Convention** As for the broadcast: contiguous tensors of one shape and dtype on the CPU, `dst` any rank,
# messages point to point, `world_size - 1` of them, each the whole tensor and straight to `dst`, every request
# waited for. Afterwards the tensor of `dst`, the very object that was passed, holds the sum over all ranks, its own
# values among them; the tensor of every other rank keeps its values. Floating point sums may be taken in any order.
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
# **Who has received can send: the number of ranks that hold the values doubles every round, so log2 of the ranks
# are enough.**
#
# The naive broadcast takes `world_size - 1` messages *one after the other*, while all ranks but two have nothing to
# do. A rank that has its values could help. In round 0 the source sends to one rank; in round 1 both send, to two
# others; then four do. After k rounds `2**k` ranks hold the values, so N ranks need log2(N) rounds, rounded up: 10
# for a thousand ranks, and not 999. Who sent to whom forms a *binomial tree*. The number of messages stays the
# same, N - 1; what shrinks is the *depth*, the number of messages that must come one after the other.
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
# For another source count from there: the *place* of a rank is `(rank - src) % world_size`. Ranks are whole
# numbers: `world_size / 2` is a float, and a rank of 2.0 is refused.
#
# A reduce is the same picture with time and arrows turned round: the last round comes first, and who sent now
# receives and adds. A rank that has sent is done.

# %%
plots.broadcast_tree(6)

# %% [markdown]
# ### Exercise 3 · Broadcast along a tree
#
# Write the broadcast that doubles.
#
# **Points** 4 · **Extra** · **Difficulty** ●●○ · **Minutes** 30 · **Lines** 8
#
# **Convention** Values, tensors, messages and requests as for `broadcast_naive`; again `world_size - 1` messages,
# each the whole tensor. But they take ceil(log2(world_size)) rounds for any number of ranks, not only a power of
# two, and for any `src`. Rounds are counted like this: in one round a rank takes part in at most one message, as
# sender or receiver, and its messages come in the order in which its code starts them. Any tree that gets along
# with these rounds is right, not only the one that is drawn above.
#
# **Not allowed** The collectives of torch.distributed: `broadcast`, `reduce`, `all_reduce`, `gather`, `all_gather`,
# `scatter`, `reduce_scatter`, `all_to_all`.
#
# **Source** Thakur, Rabenseifner and Gropp 2005, section 4.3 (binomial tree).
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
# **Convention** Values, tensors, messages and requests as for `reduce_naive`: the sum in `dst`, every other rank's
# tensor keeps its values, although sums pass through some of these ranks. `world_size - 1` messages, each the whole
# tensor, in ceil(log2(world_size)) rounds, counted as for `broadcast_tree`, for any number of ranks and any `dst`.
#
# **Not allowed** The collectives of torch.distributed: `broadcast`, `reduce`, `all_reduce`, `gather`, `all_gather`,
# `scatter`, `reduce_scatter`, `all_to_all`.
#
# **Source** Thakur, Rabenseifner and Gropp 2005, section 4.4 (binomial tree).
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
