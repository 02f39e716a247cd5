# %% [markdown]
# # Data parallel, part 8: Sum over all ranks
#
# **How do N ranks all get the sum, without one of them doing most of the work?**
#
# After each step, data parallel training sums the gradients of all ranks. You write this sum as a ring and count what
# each rank sends. As an extra, you find out when a ring is fast and when it is slow.
#
# **You will be able to**
#
# - write an all-reduce in which all ranks send the same amount
# - derive what each rank sends, and let the operating system count it
# - predict from latency and bandwidth which all-reduce is fastest
#
# **Minutes** 27 core · 87 in all
#
# **Needs** part 1 (`send`, `recv`, `isend`)

# %% locked="setup"
import math
import statistics
import time

import torch
import torch.distributed as dist

import course
from course.checks import data_parallel as check
from course.device import cores
from course.learner.predictions import reveal
from course.parallel import distributed, network
from course.parallel.distributed import run_ranks
from course.parallel.network import Network
from course.plots import data_parallel as plots

print(course.machine())
sizes = course.sizes("02_data_parallel")

# %% [markdown]
# ## How can every rank carry the same load?
#
# An *all-reduce* leaves the sum of all ranks' tensors on every rank. You could reduce to rank 0 and broadcast from
# there, but then every whole tensor passes through rank 0's connection while the others wait.
#
# A *ring* shares the load. Cut the tensor into N pieces. Each rank sends only to the next rank and receives only from
# the one before, one piece per step.
#
# - *Reduce-scatter*, N - 1 steps: each rank adds the piece that arrives to its own and sends that sum in the next step.
#   At the end each rank holds one finished piece.
# - *All-gather*, N - 1 steps: the finished pieces go round once more, and now replace what they meet.
#
# Rank 0 starts with a, rank 1 with b, rank 2 with c. A frame marks the piece that has just arrived.

# %%
plots.ring(3)

# %% [markdown]
# Every piece is summed once and then copied, so all ranks hold the same bits.
#
# On a ring everybody sends first, so blocking calls would deadlock. `exchange` starts both messages, then waits.


# %% locked="exchange"
def exchange(outgoing, to, incoming, source):
    """Send `outgoing` to rank `to` while receiving into `incoming` from rank `source`; both contiguous."""
    requests = dist.isend(outgoing, to), dist.irecv(incoming, source)
    for request in requests:
        request.wait()


# %% [markdown]
# ### Exercise 1 · All-reduce on a ring
#
# Complete the ring. The first phase is given; write the second. After the first phase, rank r holds the finished piece
# r + 1 (modulo N): in the figure, rank 0 holds piece 1.
#
# **Points** 4 · **Core** · **Difficulty** ●●○ · **Minutes** 20 · **Lines** 3
#
# **Must**
#
# - leave the sum over all ranks in `flat` of every rank
# - send N - 1 more pieces per rank, all to rank `following`
#
# **You may assume** the same shape and dtype on all ranks, on the CPU. `exchange` sends empty pieces, too.
#
# **Not allowed** Any collective: use only point-to-point calls.
#
# **Source** Patarasuk and Yuan 2009, "Bandwidth optimal all-reduce algorithms for clusters of workstations".
#
# <details><summary>Hint 1</summary>
#
# Which piece is finished on rank r? It is the first that r sends in the second phase. Which one does it send next?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# In step s rank r sends piece `(r + 1 - s) % N` and receives piece `(r - s) % N`: what it receives in one step, it
# sends in the next.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# A finished piece replaces what is there, so it can be received straight into `pieces[(rank - step) % world_size]`.
#
# </details>


# %% solution="ring_all_reduce"
def ring_all_reduce(tensor):
    """None; afterwards `tensor` of every rank holds the sum over all ranks, bit for bit the same.

    Each rank sends 2 (N - 1) pieces of 1/N of the tensor to the next rank, and nothing to any other.

    Args:
        tensor: tensor on the CPU, of one shape and dtype in all ranks, contiguous or not; changed in place.
    """
    rank, world_size = dist.get_rank(), dist.get_world_size()
    following, previous = (rank + 1) % world_size, (rank - 1) % world_size
    flat = tensor.contiguous().view(-1)  # the tensor's own memory, if that is contiguous
    pieces = flat.tensor_split(world_size)  # N views of flat
    part = torch.empty_like(pieces[0])  # piece 0 is never shorter than another one
    for step in range(world_size - 1):  # reduce-scatter
        outgoing, incoming = pieces[(rank - step) % world_size], pieces[(rank - step - 1) % world_size]
        exchange(outgoing, following, part[: len(incoming)], previous)
        incoming += part[: len(incoming)]
    ### BEGIN SOLUTION
    for step in range(world_size - 1):  # all-gather
        outgoing, incoming = pieces[(rank + 1 - step) % world_size], pieces[(rank - step) % world_size]
        exchange(outgoing, following, incoming, previous)
    ### END SOLUTION
    tensor.copy_(flat.view(tensor.shape))  # for a tensor that is not contiguous: flat is a copy then


# %% test="ring_all_reduce-visible" points=2
check.ring_all_reduce(ring_all_reduce)

# %% test="ring_all_reduce-hidden" points=2
### BEGIN HIDDEN TESTS
check.ring_all_reduce(ring_all_reduce, seed=505)
### END HIDDEN TESTS

# %% [markdown]
# ## How much does each rank send?
#
# Linux counts the bytes of every TCP connection, and gloo sends through TCP. So we can ask the system what your ring
# sent, and what torch's own all-reduce sent.
#
# Predict: four ranks all-reduce a tensor of 4 MB. How many times its size does each rank send?

# %%
predicted_share = None  # a factor


# %% tags=["experiment"]
def sent_shares(rank, world_size, functions):
    """Bytes sent through this rank's connections over bytes of the tensor, for each function: asked of Linux."""
    x, shares = torch.ones(1_000_000), []
    for all_reduce in functions:
        dist.barrier()
        before = distributed.wire_bytes()
        all_reduce(x)
        after = distributed.wire_bytes()
        dist.barrier()
        shares.append((after - before) / x.nbytes if before is not None else float("nan"))
    return shares


ring_all_reduce_now = course.solved(check.ring_all_reduce)
for n in (2, 4):
    shares = run_ranks(sent_shares, n, [dist.all_reduce, ring_all_reduce_now], backend="gloo")
    theirs, ours = map(max, zip(*shares, strict=True))
    print(f"{n} ranks: gloo sends {theirs:.3f}, your ring {ours:.3f}, 2(N-1)/N = {2 * (n - 1) / n:.3f}"
          + reveal(predicted_share) * (n == 4))  # fmt: skip
course.claim(
    "a rank of the ring sends 2(N-1)/N of its tensor, counted by Linux",
    abs(ours / 1.5 - 1) < 0.05,
    f"{ours:.3f} times with 4 ranks",
    otherwise="Only Linux counts the bytes of a connection; elsewhere the value is nan.",
)

# %% [markdown]
# Each step sends 1/N of the tensor, and there are 2 (N - 1) steps. So a rank sends 2 (N - 1) / N of the tensor: once
# for two ranks, 1.5 times for four, never more than twice.
#
# **Takeaway** On a ring each rank sends less than twice its tensor, however many ranks there are. What grows with them
# is the number of steps.

# %% [markdown]
# ## Few steps and few bytes: can we have both? · extra
#
# A tree has few steps and long messages; a ring has short messages and many steps. *Recursive halving and doubling*
# combines few steps with few bytes. In the first step each rank exchanges *half* of its tensor with the rank N/2 away:
# one keeps the lower half and adds what arrives, the other keeps the upper half. Then both split the half that they
# kept, each with the rank N/4 away. After log2(N) steps each rank holds 1/N of the sum. The same exchanges in reverse
# order put the pieces together.

# %%
plots.halving(4)

# %% [markdown]
# ### Exercise 2 · Halve, then double
#
# Write the all-reduce of the figure.
#
# **Points** 5 · **Extra** · **Difficulty** ●●● · **Minutes** 35 · **Lines** 14
#
# **Must**
#
# - leave the sum over all ranks in `tensor` of every rank
# - exchange with the rank N/2 away first, then N/4, down to 1; then 1, 2, up to N/2
# - let every rank send 2 log2(N) messages, which together are `2 (N - 1) / N` of the tensor
#
# **You may assume** N is a power of two that divides the length of the 1-D `tensor`. You can use `exchange`.
#
# **Not allowed** Any collective: use only point-to-point calls.
#
# **Source** Thakur, Rabenseifner and Gropp 2005, section 4.5 ("Rabenseifner's algorithm").
#
# <details><summary>Hint 1</summary>
#
# The partner at `distance` is `rank ^ distance`. Which of the two keeps the lower half, and what must you remember of
# a step to undo it?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Keep a range `low, high` of the tensor, at first all of it. Per step: `middle = (low + high) // 2`; the rank with
# `rank < partner` keeps `(low, middle)` and gives `(middle, high)`. Append `(partner, given)` to a list.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# Second phase: `for partner, (start, end) in reversed(steps)`: send `tensor[low:high]`, receive into
# `tensor[start:end]`, then `low, high = min(low, start), max(high, end)`.
#
# </details>


# %% solution="halving_doubling"
def halving_doubling(tensor):
    """None; afterwards `tensor` of every rank holds the sum over all ranks, after 2 log2(N) exchanges.

    Args:
        tensor: contiguous 1-D tensor on the CPU, of one length and dtype in all ranks; changed in place.
    """
    ### BEGIN SOLUTION
    rank, distance = dist.get_rank(), dist.get_world_size() // 2
    low, high, steps = 0, len(tensor), []
    while distance:
        partner, middle = rank ^ distance, (low + high) // 2
        kept, given = (low, middle), (middle, high)
        if rank > partner:
            kept, given = given, kept
        part = torch.empty_like(tensor[slice(*kept)])
        exchange(tensor[slice(*given)], partner, part, partner)
        tensor[slice(*kept)] += part
        steps.append((partner, given))
        (low, high), distance = kept, distance // 2
    for partner, (start, end) in reversed(steps):
        exchange(tensor[low:high], partner, tensor[start:end], partner)
        low, high = min(low, start), max(high, end)
    ### END SOLUTION


# %% test="halving_doubling-visible" points=2
check.halving_doubling(halving_doubling)

# %% test="halving_doubling-hidden" points=3
### BEGIN HIDDEN TESTS
check.halving_doubling(halving_doubling, seed=141)
### END HIDDEN TESTS

# %% [markdown]
# ## Above which size is a ring faster than a tree? · extra
#
# With `network=Network(latency, bandwidth)`, ranks are threads with logical clocks, so a laptop can run your functions
# on 64 ranks. A message starts when both ends have reached it, and sets both clocks to
# `start + latency + bytes / bandwidth` (the alpha-beta model; Lamport 1978 for the clocks). Computing takes no time.
#
# Predict: 64 ranks, 20 µs of latency, 10 GB/s. Above how many bytes is the ring faster than the tree?

# %%
predicted_overtakes = None  # bytes of the tensor

# %% [markdown]
# ### Exercise 3 · Which is fastest when?
#
# Predict the seconds of an all-reduce in four ways: "naive" (`reduce_naive`, then `broadcast_naive`), "tree"
# (`reduce_tree`, then `broadcast_tree`), "ring" (with pieces of exactly `n_bytes / world_size` bytes) and "doubling".
# With a latency of 1 second, no bytes and 4 ranks they take 6, 4, 6 and 4 seconds.
#
# **Points** 3 · **Extra** · **Difficulty** ●●○ · **Minutes** 12 · **Lines** 7
#
# **Must** return a dict with the seconds of "naive", "tree", "ring" and "doubling".
#
# **You may assume** a message of b bytes takes `latency + b / bandwidth` seconds. A rank can send and receive at the
# same time, one message each, and adding takes no time.
#
# **Source** Thakur, Rabenseifner and Gropp 2005, section 3 (they call latency alpha, seconds per byte beta).
#
# <details><summary>Hint 1</summary>
#
# How many messages come one after the other in each way, and how long is each of them? Their total number does not
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
    rounds, whole = math.log2(world_size), n_bytes / bandwidth
    shares = 2 * (world_size - 1) / world_size * whole  # what a rank sends of a tensor that is cut into pieces
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
# Now your functions run on 64 virtual ranks. Their tensors are on the device "meta": they have a size and no values, so
# a gigabyte takes no memory.


# %% tags=["experiment"]
by_hand = [
    course.solved(e) for e in (check.reduce_naive, check.broadcast_naive, check.reduce_tree, check.broadcast_tree)
]
reduce_naive_now, broadcast_naive_now, reduce_tree_now, broadcast_tree_now = by_hand
variants = {
    "naive": lambda x: (reduce_naive_now(x, 0), broadcast_naive_now(x, 0)),
    "tree": lambda x: (reduce_tree_now(x, 0), broadcast_tree_now(x, 0)),
    "ring": ring_all_reduce_now,
    "doubling": course.solved(check.halving_doubling),
}
predict_seconds = course.solved(check.all_reduce_seconds)


def all_reduced(rank, world_size, all_reduce, n_bytes):
    all_reduce(torch.empty(n_bytes // 4, device="meta"))


def virtual_seconds(wires, world_size, n_bytes):
    """Virtual seconds of each variant on a network."""
    return {name: network.simulate(all_reduced, world_size, wires, f, n_bytes).seconds for name, f in variants.items()}


wires, n_ranks = Network(latency=20e-6, bandwidth=10e9), sizes.virtual_ranks
found = {n: virtual_seconds(wires, n_ranks, n) for n in sizes.virtual_bytes}
predicted = {n: predict_seconds(n, n_ranks, wires.latency, wires.bandwidth) for n in found}
for n, seconds in found.items():
    print(f"{n:>13,} bytes: " + ", ".join(f"{name} {1e3 * s:.3f} ms" for name, s in seconds.items())
          + f"; fastest: {min(seconds, key=seconds.get)}")  # fmt: skip
least, most = min(found), max(found)
slower = max(n for n in found if found[n]["ring"] >= found[n]["tree"])
faster = min(n for n in found if n > slower)
print(f"the ring overtakes the tree between {slower:,} and {faster:,} bytes" + reveal(predicted_overtakes, "{:,}"))
worst = max(abs(found[n][k] / predicted[n][k] - 1) for n in found for k in variants)
course.claim("the virtual clocks agree with the formulas within 1 %", worst < 0.01, f"at most {worst:.1e} apart")
course.claim(
    "the ring is slower than the tree for the smallest tensor and faster for the largest",
    found[least]["ring"] > found[least]["tree"] and found[most]["ring"] < found[most]["tree"],
    f"{found[least]['ring'] / found[least]['tree']:.1f} and {found[most]['ring'] / found[most]['tree']:.2f} times",
)
course.claim(
    "on virtual wires, doubling is the fastest of the four at every size",
    all(min(found[n], key=found[n].get) == "doubling" for n in found),
    f"{len(found)} sizes",
)
between = f"between {slower / 1e6:.0f} and {faster / 1e6:.0f} MB"
title = f"{n_ranks} virtual ranks: the ring overtakes the tree {between}"
plots.crossover(found, predicted, title)

# %% [markdown]
# For a small tensor the ring is as slow as the naive way: both send 126 messages one after the other. For a large one
# the bytes decide: the tree sends the whole tensor 12 times in a row, a rank of the ring less than twice.
#
# Doubling has few messages *and* few bytes, so it wins at every size of this model. Why does anybody use a ring? The
# model gives each pair of ranks a wire. In a real cluster distant pairs share links, and a ring talks to its
# neighbours only. **Known**: NCCL uses rings and pipelined trees (its documentation, `NCCL_ALGO`).
#
# **Takeaway** Small tensors need few messages, large ones need few bytes.

# %% [markdown]
# ## Do real ranks keep to the formula? · extra
#
# We measure two numbers between two ranks and put them into the formula: the time of a four-byte message, and the
# bandwidth of a large one.


# %% tags=["experiment"]
def message_seconds(rank, n_bytes, repeats):
    """Median seconds of a message between ranks 0 and 1, there and back again halved."""
    x, taken = torch.ones(n_bytes // 4), []
    for _ in range(repeats):
        dist.barrier()
        start = time.perf_counter()
        if rank == 0:
            dist.send(x, 1)
            dist.recv(x, 1)
        elif rank == 1:
            dist.recv(x, 0)
            dist.send(x, 0)
        taken.append((time.perf_counter() - start) / 2)
    return statistics.median(taken)


def collectives(rank, world_size, functions, sizes, rounds, seconds):
    """({bytes: Comparison of all-reduces}, seconds of a short and a long message)."""
    torch.set_num_threads(1)
    messages = [message_seconds(rank, n, 5 * rounds) for n in (4, sizes[-1])]
    compared = {}
    for n in sizes:
        tensors = {name: torch.ones(n // 4) for name in functions}
        ways = {name: lambda f=f, x=tensors[name]: f(x) for name, f in functions.items()}
        compared[n] = distributed.compare_on_ranks(ways, seconds=seconds / len(sizes))
    return compared, messages


real = {"gloo": dist.all_reduce, **variants}
arguments = real, sizes.bytes, sizes.rounds, sizes.seconds
compared, (short, long) = run_ranks(collectives, 4, *arguments, backend="gloo", timeout=300)[0]
least, largest = sizes.bytes[0], sizes.bytes[-1]
expected = [predict_seconds(n, 4, short, largest / long) for n in sizes.bytes]
print(f"a message: {1e6 * short:.0f} µs, {largest / long / 1e6:.0f} MB/s")
for n, formula in ((least, expected[0]), (largest, expected[-1])):
    took = {name: compared[n].time(name).estimate for name in variants}
    for source, seconds in (("formula", formula), ("measured", took)):
        ranked = ", ".join(f"{name} {1e3 * seconds[name]:.2f} ms" for name in sorted(variants, key=seconds.get))
        print(f"{n:>10,} bytes, {source:<9} {ranked}")
print(compared[largest])
course.claim(
    "4 ranks on this machine are at least 10 % faster with the ring than with the naive all-reduce for the largest "
    "tensor",
    compared[largest].ratio("ring", to="naive"),
    above=1.1,
)
course.claim(
    "4 ranks on this machine are at least 10 % faster with doubling than with the naive all-reduce for the smallest "
    "tensor, as the formula says",
    compared[least].ratio("doubling", to="naive"),
    otherwise="The formula lets all pairs send at the same time; here they share the cores.",
    above=1.1,
)
late = compared[largest].time("ring").estimate / expected[-1]["ring"]
title = f"4 ranks on {cores()} cores: a ring with the largest tensor takes {late:.1f} times its formula (dashed)"
curves = {name: [compared[n].time(name) for n in sizes.bytes] for name in real}
plots.bandwidth(sizes.bytes, curves, expected, title)

# %% [markdown]
# Compare the two orders: does the formula rank the variants as your machine does? The formula comes from one pair of
# ranks and assumes that pairs do not disturb each other. In the naive way only one pair sends at a time, so nothing
# contradicts that. **We think** that four ranks on fewer cores wait for each other in the other three; with a core per
# rank their order should be that of the formula.
#
# **Takeaway** A formula of messages and bytes ranks all-reduces only where messages do not compete. Measure with as
# many ranks at work as you will have.
