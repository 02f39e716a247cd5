# %% [markdown]
# # Data parallel, part 2: Sum over all ranks
#
# **How do N ranks all get the sum of their tensors, without one of them sending N times as much as the others?**
#
# The all-reduce is what data parallel training needs of its gradients after each step. You write it as a ring, count
# what each rank sends, and run your own code on a virtual network of 64 ranks, where it shows when a ring is the best
# way and when it is the worst.
#
# **You will be able to**
#
# - write the all-reduce that data parallel training is known for
# - say what each rank sends, and check it
# - predict from latency and bandwidth which all-reduce is fastest, and say why clusters sum inside a machine first
#
# **Minutes** 0 core · 120 in all
#
# **Needs** part 1 (`send`, `recv`, `isend`; the measurements run your answers of part 1)

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
from course.parallel.network import Network, Nodes
from course.parallel.slow_wire import slow_messages
from course.plots import data_parallel as plots

print(course.machine())
sizes = course.sizes("02_data_parallel")

# %% [markdown]
# ## A ring
#
# **The busiest rank of any all-reduce must send 2 (N - 1) / N of its tensor: once for two ranks, almost twice for many.
# On a ring every rank sends exactly that.**
#
# *All-reduce* is a reduce after which every rank holds the sum. A reduce to rank 0 and a broadcast from there would do,
# but with trees rank 0 receives the whole tensor log2(N) times and sends it as often, while a leaf sends it once and
# has nothing else to do.
#
# The way out: cut the tensor into N pieces, and let each piece have a root of its own. The ranks form a *ring*: each
# sends to the next rank only and receives from the one before. There are two phases of N - 1 steps.
#
# - *Reduce-scatter*: in each step every rank sends one piece on, and adds what it receives to its own copy of that
#   piece. After N - 1 steps each rank holds one piece of the sum.
# - *All-gather*: the finished pieces go round once more, and now replace what they meet.
#
# Read the figure from left to right. Rank 0 holds a, rank 1 holds b and so on, in pieces 0, 1, 2; a frame marks the
# piece that has just arrived.

# %%
plots.ring(3)

# %% [markdown]
# In each step every rank sends a piece of 1/N of the tensor; together `2 (N - 1) / N` of the tensor. With N = 2 that is
# the tensor once, with many ranks nearly twice. No all-reduce gets along with less at its busiest rank (Patarasuk and
# Yuan 2009). The cost is the number of steps: 2 (N - 1) messages come one after the other, where two trees have
# 2 log2(N).
#
# Each piece is added up once, in one order on its way round the ring, and copied from there, so all ranks hold the
# same bits. If every rank added the N tensors itself, in an order of its own, rounding would make the models drift
# apart.
#
# Blocking calls are not enough, because on a ring everybody sends first. `exchange` starts both messages, then waits.


# %% locked="exchange"
def exchange(outgoing, to, incoming, source):
    """Send `outgoing` to rank `to` while receiving into `incoming` from rank `source`; both contiguous."""
    requests = dist.isend(outgoing, to), dist.irecv(incoming, source)
    for request in requests:
        request.wait()


# %% [markdown]
# ### Exercise 1 · All-reduce on a ring
#
# Complete the ring: the first phase is given, write the second.
#
# **Points** 4 · **Extra** · **Difficulty** ●●○ · **Minutes** 25 · **Lines** 4
#
# **Must**
#
# - leave the sum over all ranks in `tensor` of every rank, in place
# - send N - 1 more pieces per rank, to rank `following` alone
# - write the sum back where `tensor` is not contiguous: `flat` is a copy then
#
# **You may assume** the same shape, dtype and layout on all ranks, on the CPU. The given phase ends with rank r holding
# the finished piece r + 1 (modulo N). `exchange` sends empty pieces, too.
#
# **Not allowed** The collectives of torch.distributed: `broadcast`, `reduce`, `all_reduce`, `gather`, `all_gather`,
# `scatter`, `reduce_scatter`, `all_to_all`.
#
# **Source** Patarasuk and Yuan 2009, "Bandwidth optimal all-reduce algorithms for clusters of workstations".
#
# <details><summary>Hint 1</summary>
#
# Which piece is finished in rank r? It is the first that r sends in the second phase. Which one does it send next?
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
# At the end `tensor.copy_(flat.view(tensor.shape))`, which does no harm if `flat` is the tensor's own memory.
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
    tensor.copy_(flat.view(tensor.shape))
    ### END SOLUTION


# %% test="ring_all_reduce-visible" points=2
check.ring_all_reduce(ring_all_reduce)

# %% test="ring_all_reduce-hidden" points=2
### BEGIN HIDDEN TESTS
check.ring_all_reduce(ring_all_reduce, seed=505)
### END HIDDEN TESTS

# %% [markdown]
# ### Counted by the kernel
#
# **The operating system has counted the same bytes as the formula.**
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
# These are the bytes of the TCP connections of each process, headers of gloo included. The share grows towards 2 and no
# further, so the time for the bytes hardly depends on the number of ranks. The number of messages does.

# %% [markdown]
# ### Exercise 2 · Bytes in a ring
#
# Predict what every rank of a ring sends, to the byte.
#
# **Points** 2 · **Extra** · **Difficulty** ●●○ · **Minutes** 15 · **Lines** 3
#
# **Must** return a list with one whole number (int) per rank.
#
# **You may assume**
#
# - piece i, from 0, has `n_elements // world_size` elements, and one more if `i < n_elements % world_size`
# - rank r sends piece r first, and then in every step the piece that it received in the step before
# - headers do not count
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
# ## Few steps and few bytes
#
# **Recursive halving and doubling sends as few bytes as a ring, in 2 log2(N) steps instead of 2 (N - 1).**
#
# A tree has few steps and long messages, a ring short messages and many steps. One can have both. In the first step
# each rank exchanges *half* of its tensor with the rank N/2 away: one of the two keeps the lower half and adds to it
# what arrives, the other keeps the upper half. Then each half splits again, with the rank N/4 away, and so on: after
# log2(N) steps each rank holds 1/N of the sum. The same exchanges in reverse order put the pieces together again.

# %%
plots.halving(4)

# %% [markdown]
# ### Exercise 3 · Halve, then double
#
# Write the all-reduce of Rabenseifner.
#
# **Points** 5 · **Extra** · **Difficulty** ●●● · **Minutes** 35 · **Lines** 14
#
# **Must**
#
# - leave the sum over all ranks in `tensor` of every rank
# - exchange with the rank N/2 away first, then N/4, down to 1; then 1, 2, up to N/2
# - let every rank send 2 log2(N) messages, which together are `2 (N - 1) / N` of the tensor
#
# **You may assume** N is a power of two that divides the length of `tensor`, which is one-dimensional and contiguous.
# `exchange` is at hand.
#
# **Not allowed** The collectives of torch.distributed: `broadcast`, `reduce`, `all_reduce`, `gather`, `all_gather`,
# `scatter`, `reduce_scatter`, `all_to_all`.
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
# Keep a range `low, high` of the tensor, at first all of it. Per step: `middle = (low + high) // 2`; whoever has
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
# ## A virtual network
#
# **Run on logical clocks, your own four all-reduces show where each of them is fastest, for 64 ranks on a laptop.**
#
# With `network=Network(latency, bandwidth)` `run_ranks` starts no processes. Ranks are threads, and each has a clock
# that only messages move: a message starts when both ends have come to it, and moves both clocks to `start + latency +
# bytes / bandwidth` (Lamport 1978). `network.simulate` also returns the seconds. Computing takes no time on such a
# network.
#
# Predict: 64 ranks, 20 µs of latency, 10 GB/s. A tree has fewer steps, a ring sends fewer bytes. From how many bytes
# on is the ring faster?

# %%
predicted_overtakes = None  # bytes of the tensor

# %% [markdown]
# ### Exercise 4 · Which is fastest when?
#
# Predict how long an all-reduce takes in each of the four ways.
#
# **Points** 3 · **Extra** · **Difficulty** ●●○ · **Minutes** 12 · **Lines** 7
#
# **Must** return a dict with the seconds of
#
# - "naive": `reduce_naive`, then `broadcast_naive`
# - "tree": `reduce_tree`, then `broadcast_tree`
# - "ring": `ring_all_reduce`, with pieces of exactly `n_bytes / world_size` bytes
# - "doubling": `halving_doubling`
#
# **You may assume** a message of b bytes takes `latency + b / bandwidth` seconds; a rank sends one message at a time
# and receives one at a time, and can do both at once; adding takes no time. `world_size` is a power of two; a single
# rank takes 0 seconds.
#
# **Source** Thakur, Rabenseifner and Gropp 2005, section 3 (they call latency alpha, seconds per byte beta).
#
# <details><summary>Hint 1</summary>
#
# How many messages come one after the other in each way, and how long is each of them? How many there are altogether
# does not matter.
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
# Now your functions run on 64 virtual ranks. Their tensors are of the device "meta": they have a size and no values, so
# a gigabyte costs nothing. Lines are your formulas, dots what the clocks of your functions showed.


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
plots.crossover(found, predicted, f"{n_ranks} virtual ranks, 20 µs, 10 GB/s")

# %% [markdown]
# For a small tensor the latency is all that counts, and the ring with its many steps is as slow as the naive way. For a
# large one the bytes count: ring and doubling take 2 (N - 1) / N times the time of one message, the tree 2 log2(N)
# times. Where the two meet depends on latency times bandwidth. On a network of equal links, and if N is a
# power of two, doubling is never behind.
#
# ## Two nodes and a slow link
#
# **Links are not equal: where the ranks of a machine share one link to the outside, what counts is how much crosses
# it.**
#
# Eight ranks live on two nodes, four on each. Inside a node all is as above; the link between them is ten times slower
# and carries one message at a time in each direction. The first exchange of doubling is with the rank N/2 away, so
# with ranks 0 to 3 on one node all eight ranks send half of their tensor through that link at once. Put even ranks on
# one node and odd ones on the other, and the large exchanges stay inside: only pieces of 1/N cross. For the ring it is
# the other way round.
#
# Predict: 100 MB; how many times the tensor crosses from node 0 to node 1, for doubling with neighbours together?

# %%
predicted_crossing = None  # a factor


# %% tags=["experiment"]
def on_two_nodes(of, all_reduce, n_bytes):
    """(virtual seconds, tensors that cross from node 0 to node 1) of an all-reduce on eight ranks."""
    wires = Network(20e-6, 10e9, Nodes(of, latency=50e-6, bandwidth=1e9))
    run = network.simulate(all_reduced, 8, wires, all_reduce, n_bytes)
    crossed = sum(m.n_bytes for m in run.messages if (of[m.source], of[m.target]) == (0, 1))
    return run.seconds, crossed / n_bytes


n_bytes = 100 * 2**20
layouts = {"neighbours together": (0, 0, 0, 0, 1, 1, 1, 1), "neighbours apart": (0, 1, 0, 1, 0, 1, 0, 1)}
two_nodes = {
    name: {layout: on_two_nodes(of, all_reduce, n_bytes) for layout, of in layouts.items()}
    for name, all_reduce in variants.items()
}
for name, of_layout in two_nodes.items():
    print(f"{name:>9}: " + "; ".join(f"{layout} {s:.2f} s, {c:.2f} tensors cross"
                                      for layout, (s, c) in of_layout.items()))  # fmt: skip
print("doubling, neighbours together:", f"{two_nodes['doubling']['neighbours together'][1]:.2f} tensors cross"
      + reveal(predicted_crossing))  # fmt: skip
together, apart = (two_nodes["doubling"][layout][0] for layout in layouts)
ring_together = two_nodes["ring"]["neighbours together"][0]
course.claim(
    "recursive doubling that crosses the slow link with its smallest pieces beats the ring, and doubling that "
    "crosses with its largest",
    apart < min(together, ring_together),
    f"{together / apart:.1f} and {ring_together / apart:.1f} times as fast",
    otherwise="With small tensors the number of messages across the link counts, not their bytes, and a tree between "
    "the nodes sends the fewest.",
)
plots.two_nodes(two_nodes, "100 MB, eight ranks on two nodes")

# %% [markdown]
# For each way of summing the bars follow the bytes that cross. Between two ways it also counts whether the link carries
# them in both directions at once: naive, tree and doubling with neighbours together all send four tensors across, and
# doubling needs half the time. Doubling with neighbours apart is a *hierarchy*: reduce inside the node first, cross
# with what is left (each rank 1/N of the sum), spread it inside again. Libraries arrange their rings and trees over the
# links of a cluster for that reason.
#
# ## Real ranks, real time
#
# **On a wire that is slow because it sleeps, real ranks take the time of the virtual ones.**
#
# `slow_messages` makes each message of a real rank sleep for `latency + bytes / bandwidth`. That is slow enough for
# two cores to keep up with.


# %% tags=["experiment"]
def slowly(rank, world_size, functions, wires, length, repeats):
    """Median seconds of each function on a wire that sleeps."""
    seconds = []
    for f in functions:
        taken = []
        for _ in range(repeats):
            x = torch.ones(length)
            with slow_messages(wires):
                dist.barrier()
                start = time.perf_counter()
                f(x)
                taken.append(time.perf_counter() - start)
        seconds.append(statistics.median(taken))
    return seconds


slow_wires, length = Network(latency=0.03, bandwidth=10e6), 2**16
ratios = []
for n in (2, 3, 4):
    three = {name: variants[name] for name in ("tree", "ring", "doubling") if n != 3 or name != "doubling"}
    virtual = [network.simulate(all_reduced, n, slow_wires, f, 4 * length).seconds for f in three.values()]
    of_ranks = run_ranks(slowly, n, list(three.values()), slow_wires, length, sizes.slow_repeats, backend="gloo")
    for name, expected, real in zip(three, virtual, map(max, zip(*of_ranks, strict=True)), strict=True):
        ratios.append(real / expected)
        print(f"{n} ranks, {name:>8}: virtual {1e3 * expected:6.1f} ms, real {1e3 * real:6.1f} ms")
course.claim(
    "real ranks on a delayed wire take the virtual time within 25 %",
    max(abs(math.log(r)) for r in ratios) < math.log(1.25),
    f"{min(ratios):.2f} to {max(ratios):.2f} times",
    otherwise="Other programs used the cores: a rank that cannot run does not send.",
)

# %% [markdown]
# ### Without the delay
#
# Last, this machine as it is. Two numbers, measured between two ranks, stand for its wire: the time of a message of
# four bytes, and the bandwidth of a large one. Dashed lines are your formulas with these two numbers.


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


def collectives(rank, world_size, functions, sizes, rounds):
    """(seconds (rounds, variants, sizes) of all-reduces of `sizes` bytes, seconds of a short and a long message)."""
    torch.set_num_threads(1)
    messages = [message_seconds(rank, n, 5 * rounds) for n in (4, sizes[-1])]
    tensors = [torch.ones(n // 4) for n in sizes]
    rows = [distributed.timed_rounds([lambda f=f, x=x: f(x) for f in functions], rounds) for x in tensors]
    return torch.stack(rows, 2), messages


real = {"gloo": dist.all_reduce, **variants}
arguments = list(real.values()), sizes.bytes, sizes.rounds
all_reduces, (short, long) = run_ranks(collectives, 4, *arguments, backend="gloo", timeout=300)[0]
largest = sizes.bytes[-1]
curves = {name: all_reduces[:, i].T for i, name in enumerate(real)}
expected = [predict_seconds(n, 4, short, largest / long) for n in sizes.bytes]
medians = all_reduces[:, :, -1].median(0).values.tolist()
print(f"a message: {1e6 * short:.0f} µs, {largest / long / 1e6:.0f} MB/s; {largest:,} bytes: "
      + ", ".join(f"{name} {t / medians[0]:.1f}" for name, t in zip(real, medians, strict=True))
      + " times as long as gloo")  # fmt: skip
course.claim(
    "4 ranks on this machine take longer with the naive all-reduce than with the ring for the largest tensor",
    medians[1] > medians[3],
    f"{medians[1] / medians[3]:.2f} times",
    otherwise="On few cores messages hardly overlap, and overlap is what trees and rings gain from.",
)
plots.bandwidth(sizes.bytes, curves, expected, f"all-reduce, 4 ranks on {cores()} cores")

# %% [markdown]
# Dots above their dashed line took longer than predicted. The formula assumes a core for each rank and a wire for each
# pair; here four ranks share the cores, and each step needs all of them to be woken. A model is as good as its
# assumptions. (With few cores even the order may turn: a tree may take longer than the naive way.)
