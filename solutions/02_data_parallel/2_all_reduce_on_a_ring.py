# %% [markdown]
# # Data parallel, part 2: Sum over all ranks on a ring
#
# **How do N ranks all get the sum of their tensors, without one of them sending N times as much as the others?**
#
# The all-reduce is what data parallel training needs of its gradients after each step. You write it as a ring, work out
# to the byte what each rank sends, compare that with what Linux has counted, and measure it against the library, the
# trees and the plain way.
#
# **You will be able to**
#
# - write the all-reduce that data parallel training is known for
# - say what each rank sends, and check it
# - tell when a tree is faster than a ring, and why this machine may disagree
#
# **Minutes** 62 core · 100 in all
#
# **Needs** part 1 (`send`, `recv`, `isend`; the last measurement runs your answers of part 1)

# %% locked="setup"
import math

import torch
import torch.distributed as dist

import course
from course import distributed
from course.checks import data_parallel as check
from course.device import cores
from course.distributed import run_ranks
from course.plots import data_parallel as plots
from course.predictions import reveal

print(course.machine())
sizes = course.sizes("02_data_parallel")

# %% [markdown]
# ## A ring
#
# **If every rank is to have the sum, each must send almost two tensors' worth of bytes, and a ring sends no more,
# however many ranks there are.**
#
# *All-reduce* is a reduce after which every rank holds the sum: what training needs of its gradients, after each
# step. A reduce to rank 0 and a broadcast from there would do. But the link of rank 0 then carries the whole tensor
# many times over, log2(N) times in each direction with trees, while the last leaf sends it once. Nor does
# "everybody sends to everybody", as one reads, describe what is done: that is N (N - 1) whole tensors.
#
# The way out is to cut the tensor into N pieces and to make every rank the root of one of them. The ranks form a
# *ring*: each sends to the next one only and receives from the one before. There are two phases of N - 1 steps.
#
# - *Reduce-scatter*: in each step every rank sends one piece on and adds what it receives to its own. A piece that
#   has gone all the way round has been added to by everybody. After N - 1 steps each rank holds one piece of the
#   sum.
# - *All-gather*: the finished pieces go round once more, and are now copied instead of added.
#
# In each step all links of the ring are busy at once, with a piece of 1/N of the tensor; together a rank sends
# `2(N-1)/N` of the tensor. No algorithm gets along with less if the pieces are equal (Patarasuk and Yuan 2009). The
# price is the number of steps: 2(N-1) messages come one after the other, each with its latency, where two trees have
# 2 log2(N). And it shows why blocking calls are not enough: on a ring everybody sends first. Start the sending
# (`isend`), receive, then wait for both.
#
# That each piece is summed in one place, and copied from there, has a second use: all ranks hold the same bits. If
# every rank added the N tensors itself, in an order of its own, rounding would make the copies of the model drift
# apart.

# %% [markdown]
# ### Exercise 1 · All-reduce on a ring
#
# Write the all-reduce that data parallel training is known for.
#
# **Points** 6 · **Core** · **Difficulty** ●●● · **Minutes** 60 · **Lines** 16
#
# **Convention** All ranks call the function with tensors of one shape, dtype and layout on the CPU: any shape, also
# (), any dtype that can be added, contiguous or not. Afterwards the tensor of each rank, the very object that was
# passed, holds the sum over all ranks, to the last bit the same everywhere; memory between the numbers of a tensor
# that is not contiguous stays as it was. The pieces are those of `torch.tensor_split`: N of them in the order of
# the numbers, the first ones longer by one where N does not divide the length, some empty if it is shorter than N.
# Which piece a rank begins with is your choice. Each rank sends 2 (N - 1) messages of one piece each (N being the
# world size), all of them to rank `(rank + 1) % N`; empty pieces may be sent or left out. Messages are sent point
# to point, and every request is waited for. A single rank sends nothing.
#
# **Not allowed** The collectives of torch.distributed: `broadcast`, `reduce`, `all_reduce`, `gather`, `all_gather`,
# `scatter`, `reduce_scatter`, `all_to_all`.
#
# **Source** Patarasuk and Yuan 2009, "Bandwidth optimal all-reduce algorithms for clusters of workstations",
# Journal of Parallel and Distributed Computing 69 (2).
#
# <details><summary>Hint 1</summary>
#
# Draw it for three ranks: if rank r sends piece r in step 0, which piece arrives at rank r, and which one can it
# send in step 1? Who holds a finished piece after two steps, and which?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# In step s rank r sends piece `(r - s) % N` and receives piece `(r - s - 1) % N`: what it receives in one step, it
# sends in the next. The formula goes on to hold in the second phase; only "add" becomes "copy". `isend` wants
# contiguous memory: work on `flat = tensor.contiguous().view(-1)`. When is that the tensor itself, when a copy?
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# Steps from 0 to below `2 * (N - 1)`, with `pieces = flat.tensor_split(N)`, which are views of `flat`:
# `request = dist.isend(outgoing, following)`, `dist.recv(part, previous)` into a new `part`, `request.wait()`, then
# `incoming += part` in the first N - 1 steps, and `incoming.copy_(part)` after them. At the end
# `tensor.copy_(flat.view(tensor.shape))`, which does no harm if `flat` is the tensor's own memory.
#
# </details>


# %% solution="ring_all_reduce"
def ring_all_reduce(tensor):
    """None; afterwards `tensor` of every rank holds the sum over all ranks, bit for bit the same.

    Each rank sends 2 (N - 1) pieces of 1/N of the tensor to the next rank, and nothing to any other.

    Args:
        tensor: tensor on the CPU, of one shape and dtype in all ranks, contiguous or not; changed in place.
    """
    ### BEGIN SOLUTION
    rank, world_size = dist.get_rank(), dist.get_world_size()
    following, previous = (rank + 1) % world_size, (rank - 1) % world_size
    flat = tensor.contiguous().view(-1)  # the tensor's own memory, if that is contiguous
    pieces = flat.tensor_split(world_size)
    for step in range(2 * (world_size - 1)):
        outgoing, incoming = pieces[(rank - step) % world_size], pieces[(rank - step - 1) % world_size]
        part = torch.empty_like(incoming)
        requests = dist.isend(outgoing, following), dist.irecv(part, previous)
        for request in requests:
            request.wait()
        if step < world_size - 1:
            incoming += part  # reduce-scatter
        else:
            incoming.copy_(part)  # all-gather
    tensor.copy_(flat.view(tensor.shape))
    ### END SOLUTION


# %% test="ring_all_reduce-visible" points=3
check.ring_all_reduce(ring_all_reduce)

# %% test="ring_all_reduce-hidden" points=3
### BEGIN HIDDEN TESTS
check.ring_all_reduce(ring_all_reduce, seed=505)
### END HIDDEN TESTS

# %% [markdown]
# One way to walk the ring, for four ranks; a number is a piece.

# %%
plots.ring(4)

# %% [markdown]
# ### Exercise 2 · Bytes in a ring
#
# Predict what every rank of a ring sends, to the byte. `distributed.counted()` will tell whether you were right.
#
# **Points** 2 · **Extra** · **Difficulty** ●●○ · **Minutes** 15 · **Lines** 3
#
# **Convention** The ring of the exercise before, with the pieces of `torch.tensor_split`: piece i, from 0, has
# `n_elements // world_size` elements, and one more if `i < n_elements % world_size`. Rank r sends piece r first,
# and then in every step the piece that it has received in the step before. A single rank sends 0 bytes. The bytes
# are those of the tensors, without headers, as whole numbers (int).
#
# **Source** Patarasuk and Yuan 2009, for equal pieces: 2 (N - 1) / N of the tensor.
#
# <details><summary>Hint 1</summary>
#
# A rank sends N - 1 of the N pieces in each phase. Which one does it not send in the first phase, and which one in
# the second?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# In the first phase rank r sends the pieces r, r - 1, ..., r - N + 2 (modulo N): all but piece r + 1. The second
# phase goes on from there, with the pieces r + 1, r, ..., r - N + 3: all but r + 2.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# So it is `2 * n_elements - pieces[(r + 1) % N] - pieces[(r + 2) % N]` elements, where `pieces` is the list of
# lengths.
#
# </details>


# %% solution="ring_bytes"
def ring_bytes(n_elements, element_size, world_size):
    """Bytes that each rank sends in one ring all-reduce, a list of `world_size` whole numbers.

    Args:
        n_elements: elements of the tensor, 0 or more.
        element_size: bytes of an element.
        world_size: number of ranks, 1 or more.
    """
    ### BEGIN SOLUTION
    pieces = [n_elements // world_size + (i < n_elements % world_size) for i in range(world_size)]
    not_sent = [pieces[(r + 1) % world_size] + pieces[(r + 2) % world_size] for r in range(world_size)]  # one a phase
    return [element_size * (2 * n_elements - n) for n in not_sent]
    ### END SOLUTION


# %% test="ring_bytes-visible" points=1
check.ring_bytes(ring_bytes)

# %% test="ring_bytes-hidden" points=1
### BEGIN HIDDEN TESTS
check.ring_bytes(ring_bytes, seed=616)
### END HIDDEN TESTS

# %% [markdown]
# ### Exercise 3 · Which is fastest when?
#
# Put a price on a message, and predict how long an all-reduce takes in each of the three ways.
#
# **Points** 3 · **Extra** · **Difficulty** ●●○ · **Minutes** 12 · **Lines** 7
#
# **Convention** A message of b bytes takes `latency + b / bandwidth` seconds, between any two ranks. A rank sends
# at most one message at a time and receives at most one at a time; it can do both at once. Messages that different
# ranks send to different ranks at the same time do not slow each other down. Adding takes no time. "naive" is the
# time of `reduce_naive` and then `broadcast_naive`, "tree" that of `reduce_tree` and then `broadcast_tree`, "ring"
# that of `ring_all_reduce` with pieces of exactly `n_bytes / world_size` bytes, also where that is a fraction; in
# each step of the ring a rank waits for its message before it starts the next. A single rank takes 0 seconds.
#
# **Source** The model and the tree: Thakur, Rabenseifner and Gropp 2005, section 3 (they call latency alpha,
# seconds a byte beta). The ring: Patarasuk and Yuan 2009.
#
# <details><summary>Hint 1</summary>
#
# How many messages come one after the other in each of the three, and how long is one of them? How many there are
# altogether does not matter.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# One after the other: `2 * (N - 1)` whole tensors; twice the depth of the tree, whole tensors; `2 * (N - 1)`
# pieces. The depth is log2(N) rounded up, `math.ceil(math.log2(N))`.
#
# </details>


# %% solution="all_reduce_seconds"
def all_reduce_seconds(n_bytes, world_size, latency, bandwidth):
    """Predicted seconds of one all-reduce, a dict with the keys "naive", "tree" and "ring" and floats as values.

    Args:
        n_bytes: bytes of the tensor, 0 or more.
        world_size: number of ranks, 1 or more.
        latency: seconds that a message takes, however short.
        bandwidth: bytes a second.
    """
    ### BEGIN SOLUTION
    whole, piece = (latency + n / bandwidth for n in (n_bytes, n_bytes / world_size))
    depth = math.ceil(math.log2(world_size))
    return {"naive": 2 * (world_size - 1) * whole, "tree": 2 * depth * whole, "ring": 2 * (world_size - 1) * piece}
    ### END SOLUTION


# %% test="all_reduce_seconds-visible" points=1
check.all_reduce_seconds(all_reduce_seconds)

# %% test="all_reduce_seconds-hidden" points=2
### BEGIN HIDDEN TESTS
check.all_reduce_seconds(all_reduce_seconds, seed=727)
### END HIDDEN TESTS

# %% [markdown]
# Compare the formulas before you measure. A tree has few messages, each as long as the tensor; a ring has many,
# each short. For a small tensor the latency is all that counts, and the tree is ahead; for a large one the bytes
# are, and the ring takes 2 (N - 1) / N times the time of one message, whatever N is, where the tree takes 2 log2(N)
# times.

# %% [markdown]
# ### Counted by the kernel
#
# Predict: four ranks all-reduce a tensor of 4 MB. How many times its size does each rank send?

# %%
predicted_share = None  # a factor


# %% tags=["experiment"]
def sent_share(rank, world_size, all_reduce):
    """Bytes sent through this rank's connections over bytes of the tensor: asked of the operating system."""
    x = torch.ones(1_000_000)
    dist.barrier()
    before = distributed.wire_bytes()
    all_reduce(x)
    after = distributed.wire_bytes()
    dist.barrier()
    return (after - before) / x.nbytes if before is not None else float("nan")


ring_all_reduce_now = course.solved(check.ring_all_reduce)
for n in (2, 3, 4):
    theirs = max(run_ranks(sent_share, n, dist.all_reduce, backend="gloo"))
    ours = max(run_ranks(sent_share, n, ring_all_reduce_now, backend="gloo"))
    print(f"{n} ranks: gloo sends {theirs:.3f}, the ring by hand {ours:.3f}, 2(N-1)/N = {2 * (n - 1) / n:.3f}"
          + reveal(predicted_share) * (n == 4))  # fmt: skip

# %% [markdown]
# These are bytes that Linux has counted in the TCP connections of each process, headers of gloo included. The
# library does what you wrote. The share grows towards 2 and no further: the time for the bytes hardly depends on
# the number of ranks. The number of messages does, 2(N - 1) for each rank, and so does the waiting.
#
# ### Bandwidth against size


# %% tags=["experiment"]
def collectives(rank, world_size, variants, sizes, rounds):
    """Seconds (rounds, variants, sizes) of all-reduces of tensors of `sizes` bytes."""
    torch.set_num_threads(1)
    tensors = [torch.ones(n // 4) for n in sizes]
    return torch.stack(
        [distributed.timed_rounds([lambda f=f, x=x: f(x) for f in variants], rounds) for x in tensors], 2
    )


by_hand = [
    course.solved(e) for e in (check.reduce_naive, check.broadcast_naive, check.reduce_tree, check.broadcast_tree)
]
reduce_naive_now, broadcast_naive_now, reduce_tree_now, broadcast_tree_now = by_hand
variants = {
    "gloo": dist.all_reduce,
    "ring by hand": ring_all_reduce_now,
    "trees by hand": lambda x: (reduce_tree_now(x, 0), broadcast_tree_now(x, 0)),
    "naive": lambda x: (reduce_naive_now(x, 0), broadcast_naive_now(x, 0)),
}
arguments = list(variants.values()), sizes.bytes, sizes.rounds
all_reduces = run_ranks(collectives, 4, *arguments, backend="gloo", timeout=300)[0]
curves = {name: all_reduces[:, i].T for i, name in enumerate(variants)}
largest = all_reduces[:, :, -1].median(0).values
print(", ".join(f"{name} {t / largest[0]:.1f}" for name, t in zip(variants, largest.tolist(), strict=True))
      + f": time for {sizes.bytes[-1]:,} bytes, over that of gloo")  # fmt: skip
plots.bandwidth(sizes.bytes, curves, f"all-reduce, 4 ranks on {cores()} cores")

# %% [markdown]
# On the left it is not bytes that count, but how often processes have to be woken: in a ring all four ranks take
# part in each of six steps, 24 messages in all, where the naive way and the trees send six. And the four share two
# cores, so that hardly anything happens at the same time, which is what trees and rings live on: here a tree wins
# nothing over the plain way. On the right the bytes begin to count, and the ring of the library comes first.
# `all_reduce_seconds` assumed a wire for each pair and a core for each rank: a model is as good as its assumptions.
# On a machine with a core a rank, or over a network, run this cell again.
