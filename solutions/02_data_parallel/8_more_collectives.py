# %% [markdown]
# # Data parallel, part 8: Write more collectives
#
# **Which messages suit which network, and how good is yours?**
#
# Choose this part if your ranks are on several machines, or share links. You write trees and the all-reduce with the
# fewest messages, and find out where it loses. Then you compare the formula with real ranks. All sections are extra.
#
# **You will be able to**
#
# - write a broadcast, a reduce and an all-reduce in log2(N) rounds;
# - say which all-reduce suits shared links;
# - read what nccl-tests reports, and select NCCL's algorithm for a test.
#
# **Minutes** 0 core · 120 in all
#
# **Needs** part 1 (`send`, `recv`, `exchange`); your ring and your formulas are used if you solved them

# %% locked="setup"
import math

import torch
import torch.distributed as dist

import course
from course.checks import data_parallel as check
from course.parallel import message_times, network
from course.parallel.distributed import run_ranks
from course.parallel.network import Machines, Network
from course.plots import data_parallel as plots

print(course.machine())
sizes = course.sizes("02_data_parallel")

# %% [markdown]
# ## How does one rank get the sum? · extra
#
# Often a single rank needs a result of all ranks: the loss to print, or the accuracy to log. A *reduce* is the opposite
# of a broadcast (part 1): all messages go to one rank.
#
# ### Exercise 1 · Reduce, one after the other
#
# Every rank sends its tensor to `dst`, which adds the tensors. If 3 ranks hold 1, 2 and 4, `dst` ends with 7.
#
# **Points** 2 · **Extra** · **Difficulty** ●○○ · **Minutes** 8 · **Lines** 8
#
# **Must**
#
# - leave the sum over all ranks in `tensor` of `dst`; other ranks keep their values
# - send `world_size - 1` messages, each the whole tensor and straight to `dst`
#
# **You may assume** the same as for `broadcast_naive`; sums may be taken in any order.
#
# **Not allowed** Any collective: use only point-to-point calls.
#
# **Source** PyTorch documentation of `torch.distributed`, "Point-to-point communication".
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
# sends to `r + 2**k` if it already holds the values and that rank exists. If the source is not rank 0, count from the
# source: the *place* of a rank is `(rank - src) % world_size`.

# %% [markdown]
# ### Exercise 2 · Broadcast along a tree
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
# Which places hold the values before round k, and which places get them in it?
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
# ### Exercise 3 · Reduce along a tree
#
# Reverse the tree, so that sums travel from the leaves to `dst`.
#
# **Points** 4 · **Extra** · **Difficulty** ●●○ · **Minutes** 15 · **Lines** 11
#
# **Must**
#
# - leave the sum in `tensor` of `dst`; other ranks keep their values
# - send as many messages, in as many rounds, as `broadcast_tree`
#
# **You may assume** the same as for `reduce_naive`.
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
# `network.simulate` runs your code with a logical clock per rank (Lamport 1978). Here a message takes one second and
# computing takes none. So the seconds count the longest chain of messages, on any machine.
#
# **Predict**: how many seconds do the loop and the tree take for a reduce and a broadcast on 64 ranks?

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

# %% tags=["experiment"]
one_second, depths = Network(latency=1.0, bandwidth=math.inf), {}
for n in (2, 4, 8, 16, 32, 64):
    runs = {
        name: network.simulate(there_and_back, n, one_second, *pair) for name, pair in pairs.items()
    }
    depths = {name: run.seconds for name, run in runs.items()}
    words = ", ".join(f"{name} {seconds:.0f} s" for name, seconds in depths.items())
    print(f"{n:>2} ranks, {len(runs['tree'].messages):>3} messages: {words}")
print(
    course.score(
        "02/8", "the loop on 64 ranks, seconds", predicted_naive, depths["naive"], null=None
    )
)
print(
    course.score("02/8", "the tree on 64 ranks, seconds", predicted_tree, depths["tree"], null=None)
)
is_a_tenth = 10 * depths["tree"] <= depths["naive"]
course.claim(
    "on 64 ranks a tree's longest chain of messages is at most a tenth of the naive one",
    is_a_tenth,
    f"{depths['naive']:.0f} and {depths['tree']:.0f}",
)

# %% [markdown]
# **Shown** by the count: a tree sends as many messages as the loop. On 64 ranks its longest chain has 12 messages
# instead of 126.
#
# **Takeaway** A tree sends as many messages as a loop, but many of them at the same time.

# %% [markdown]
# ## Few steps and few bytes: can we have both? · extra
#
# A tree has few steps and long messages. A ring has short messages and many steps. *Recursive halving and doubling*
# combines few steps with few bytes.
#
# - In the first step each rank exchanges *half* of its tensor with its *partner*, the rank N/2 away. The lower rank
#   keeps the lower half and sends the upper one; the higher rank does the opposite. Each adds what arrives to the half
#   that it keeps.
# - Then it splits that half with the rank N/4 away, and so on. After log2(N) steps each rank holds 1/N of the sum.
# - The same exchanges in reverse order put the pieces together.

# %%
plots.halving(4)

# %% [markdown]
# `exchange` is the same as in part 1:


# %% locked="exchange"
def exchange(outgoing, to, incoming, source):
    """Send `outgoing` to rank `to` while receiving into `incoming` from rank `source`; both contiguous."""
    requests = dist.isend(outgoing, to), dist.irecv(incoming, source)
    for request in requests:
        request.wait()


# %% [markdown]
# ### Exercise 4 · Halve, then double
#
# Write the all-reduce of the figure.
#
# **Points** 5 · **Extra** · **Difficulty** ●●● · **Minutes** 35 · **Lines** 14
#
# **Must**
#
# - leave the sum over all ranks in `tensor` of every rank
# - exchange with the rank N/2 away first, then N/4, down to 1; then 1, 2, up to N/2
# - let every rank send 2 log2(N) messages, together `2 (N - 1) / N` of the tensor if N divides its length
#
# **You may assume** N is a power of two. The 1-D `tensor` may have any length, also fewer elements than ranks: halves
# then differ by one element or are empty, and `exchange` sends empty ones, too.
#
# **Not allowed** Any collective: use only point-to-point calls.
#
# **Source** Thakur, Rabenseifner and Gropp 2005, section 4.5 ("Rabenseifner's algorithm").
#
# <details><summary>Hint 1</summary>
#
# The partner at `distance` is `rank ^ distance`. What must you remember of a step to undo it?
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
        tensor: contiguous 1-D tensor on the CPU, of one length (0 or more) and dtype in all ranks; changed in place.
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
# ## Is doubling always the fastest? · extra
#
# The formula of part 1 says that doubling always wins. Now the functions of parts 1 and 8 run on virtual ranks. A
# message starts when both ends have reached it, and sets both clocks to `start + latency + bytes / bandwidth`.

# %% tags=["experiment"]
by_hand = [
    course.solved(e)
    for e in (check.reduce_naive, check.broadcast_naive, check.reduce_tree, check.broadcast_tree)
]
reduce_naive_now, broadcast_naive_now, reduce_tree_now, broadcast_tree_now = by_hand
ways = {
    "naive": lambda x: (reduce_naive_now(x, 0), broadcast_naive_now(x, 0)),
    "tree": lambda x: (reduce_tree_now(x, 0), broadcast_tree_now(x, 0)),
    "ring": course.solved(check.ring_all_reduce),
    "doubling": course.solved(check.halving_doubling),
}
predict_seconds = course.solved(check.all_reduce_seconds)


def all_reduced(rank, world_size, all_reduce, n_bytes):
    all_reduce(torch.empty(n_bytes // 4, device="meta"))


# %% tags=["experiment"]
def virtual_seconds(wires, n_bytes):
    runs = {
        name: network.simulate(all_reduced, n_ranks, wires, f, n_bytes) for name, f in ways.items()
    }
    return {name: run.seconds for name, run in runs.items()}


wires, n_ranks = Network(latency=20e-6, bandwidth=10e9), sizes.virtual_ranks
found = {n: virtual_seconds(wires, n) for n in sizes.virtual_bytes}
predicted = {n: predict_seconds(n, n_ranks, wires.latency, wires.bandwidth) for n in found}
worst = max(abs(found[n][k] / predicted[n][k] - 1) for n in found for k in ways)
is_as_predicted = worst < 0.01
course.claim(
    "the virtual clocks agree with the formulas within 1 %",
    is_as_predicted,
    f"at most {worst:.1e} apart",
)
is_always_first = all(min(seconds, key=seconds.get) == "doubling" for seconds in found.values())
course.claim(
    "on virtual wires, doubling is the fastest of the four at every size",
    is_always_first,
    f"{len(found)} sizes",
)
plots.crossover(
    found, predicted, f"A wire per pair: doubling is the fastest of {n_ranks} ranks at every size"
)

# %% [markdown]
# These ranks have a wire for each pair. Now let 8 ranks share a machine with a single network card, through which all
# messages leave. Inside the machine, a pair exchanges 200 GB/s. The card sends 25 GB/s and receives as much.
#
# **Predict**: which way is now the fastest for the largest tensor? Count how often the whole tensor passes through a
# card.

# %%
predicted_shared = None  # a name

# %% tags=["experiment"]
cluster = Machines(
    latency=20e-6, bandwidth=200e9, ranks_per_machine=sizes.ranks_per_machine, card=25e9
)
shared = {n: virtual_seconds(cluster, n) for n in sizes.virtual_bytes}
for n, seconds in shared.items():
    print(
        f"{n:>13,} bytes: " + ", ".join(f"{name} {1e3 * s:.3f} ms" for name, s in seconds.items())
    )
most = shared[max(shared)]
print(
    course.score(
        "02/8", "the fastest way where a card is shared", predicted_shared, min(most, key=most.get)
    )
)
is_ring_faster = most["ring"] < most["doubling"]
course.claim(
    "where the ranks of a machine share its card, the ring is faster than doubling for the largest tensor",
    is_ring_faster,
    f"{most['doubling'] / most['ring']:.1f} times as fast",
)
plots.crossover(
    shared, shared, f"{sizes.ranks_per_machine} ranks share a card: the ring passes doubling"
)

# %% [markdown]
# **Shown**: only the links changed. A card is busy for the latency of each message, so small messages wait for each
# other, too. A ring sends one piece per step through each card, about twice the tensor in all.
# Doubling begins with the most distant partner: all 8 ranks of a machine send half of their tensors through its card,
# then a quarter, then an eighth, and as much again on the way back. That is 14 times the tensor on 8 machines.
#
# Less would pass through the cards if doubling began with the nearest rank, or if each machine summed its tensors
# first. So the order of the partners must fit the cables.
#
# **Takeaway** The best all-reduce depends on the size and on who shares a link. For large tensors a ring is a safe
# choice, because it only sends to neighbours.

# %% [markdown]
# ## Do real ranks keep to the formula? · extra
#
# The formula needs two numbers. `message_times.all_reduces` measures them between two ranks: the time of a four-byte
# message, and the bandwidth of a large one. Then four ranks of this machine all-reduce in each way, and with gloo.

# %% tags=["experiment"]
arguments = {"gloo": dist.all_reduce, **ways}, sizes.bytes, sizes.rounds, sizes.seconds
compared, (short, long) = run_ranks(
    message_times.all_reduces, 4, *arguments, backend="gloo", timeout=300
)[0]
least, largest = sizes.bytes[0], sizes.bytes[-1]
bandwidth = largest / long
expected = [predict_seconds(n, 4, short, bandwidth) for n in sizes.bytes]
print(f"a message: {1e6 * short:.0f} µs, {bandwidth / 1e6:.0f} MB/s")
for n, formula in ((least, expected[0]), (largest, expected[-1])):
    took = {name: compared[n].time(name).estimate for name in ways}
    for source, seconds in (("formula", formula), ("measured", took)):
        ranked = ", ".join(
            f"{name} {1e3 * seconds[name]:.2f} ms" for name in sorted(ways, key=seconds.get)
        )
        print(f"{n:>10,} bytes, {source:<9} {ranked}")

# %% tags=["experiment"]
curves = {name: [compared[n].time(name) for n in sizes.bytes] for name in compared[least].seconds}
course.claim(
    "with the smallest tensor, four real ranks take at least twice as long with the ring as the naive way",
    compared[least].ratio("naive", to="ring"),
    above=2.0,
)
course.claim(
    "4 ranks on this machine are at least 10 % faster with doubling than with the naive all-reduce for the smallest "
    "tensor, as the formula says",
    compared[least].ratio("doubling", to="naive"),
    above=1.1,
    otherwise="All ranks send at once.",
)
course.claim(
    "4 ranks on this machine are at least 10 % faster with the ring than with the naive all-reduce for the largest "
    "tensor",
    compared[largest].ratio("ring", to="naive"),
    above=1.1,
)
plots.formula_and_ranks(sizes.bytes, expected, curves)

# %% [markdown]
# Compare the two panels line by line. With 4 ranks, the naive way and the ring both wait for 6 messages, so the formula
# draws them together for small tensors. Below them are the tree and doubling, with 4 messages each. If your measured
# lines have another *order*, more is wrong than the two numbers.
#
# **We think** that ranks which send at the same time wait for a core. The two numbers come from one pair. In the naive
# way only one pair sends at a time, in the ring all ranks do. To test it, compare the panels on a machine with a core
# per rank. (The ways also differ in their calls: the ring and doubling use `isend` and `irecv`, the other two `send`
# and `recv`.)
#
# **Takeaway** A formula that was fitted to one pair predicts the order only if pairs do not slow each other down.
# Measure with all ranks at work.

# %% [markdown]
# ## How good is a network? · extra
#
# Before you rent a cluster, measure whether its links give what they promise. The *algorithm bandwidth* of an
# all-reduce is the size of the tensor divided by the time. It falls with the number of ranks, because each rank must
# send more.
#
# NVIDIA's benchmark *nccl-tests* multiplies it by what a rank sends per byte of the tensor, 2 (N - 1) / N for an
# all-reduce. The product is the *bus bandwidth*. You can compare it with the speed of a link, for any N.

# %% tags=["experiment"]
factor = 2 * (4 - 1) / 4
for n in sizes.bytes:
    rates = {name: n / compared[n].time(name).estimate for name in ("gloo", "ring")}
    words = ", ".join(
        f"{name} {r / 1e6:7.1f} and {factor * r / 1e6:7.1f} MB/s" for name, r in rates.items()
    )
    print(f"{n:>10,} bytes, algorithm and bus bandwidth: {words}")
print(f"a message between two ranks that nobody disturbs: {bandwidth / 1e6:.1f} MB/s")

# %% [markdown]
# **Known**: the factors are 2 (N - 1) / N for all-reduce, (N - 1) / N for all-gather and reduce-scatter, and 1 for
# broadcast and reduce
# ([nccl-tests, PERFORMANCE.md](https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md)). With
# small tensors latency decides, so the bus bandwidth says nothing about the link.
#
# On GPUs, run `all_reduce_perf -b 8 -e 1G -f 2 -g 8` before the first training. Inside a machine the links are NVLink
# or PCIe. Between machines they are InfiniBand or Ethernet, often ten times slower. **Not measured here**: this course
# has not run on two GPUs yet.
#
# **Takeaway** Compare bus bandwidth with the slowest link on the way. If it is far below, look for the link before you
# look at your training.
#
# <details><summary>Which choices of NCCL can you influence?</summary>
#
# - Its *algorithm* (`NCCL_ALGO`) is `Ring`, `Tree`, or one inside the switch, such as `NVLS`. The ring has the best
#   bandwidth, the tree less latency.
# - Its *protocol* (`NCCL_PROTO`) is `Simple`, `LL` or `LL128`. `Simple` has the full bandwidth. The other two send a
#   flag with the data, so the receiver need not wait for a separate signal, and small tensors arrive sooner (Hu et al.
#   2025, "Demystifying NCCL", arXiv:2507.04786).
#
# NCCL estimates the time of each combination for each size, and takes the fastest
# ([nccl#457](https://github.com/NVIDIA/nccl/issues/457)). Set the two variables to compare, not to train. With
# `NCCL_DEBUG=INFO` it prints the links that it found.
#
# </details>

# %% [markdown]
# ## How do you start several messages together, and compute meanwhile? · extra
#
# Two more calls let you compute while messages travel. `dist.batch_isend_irecv` starts a list of messages together.
# With NCCL this is the safe way to send and receive at the same time. And each collective takes `async_op=True`: it
# starts, returns a *work*, and you compute until `work.wait()`. Until then, do not read or write the tensor.


# %% tags=["experiment"]
def together(rank, world_size):
    mine, theirs, total = torch.tensor([float(rank)]), torch.empty(1), torch.tensor([float(rank)])
    both = [dist.P2POp(dist.isend, mine, 1 - rank), dist.P2POp(dist.irecv, theirs, 1 - rank)]
    for request in dist.batch_isend_irecv(both):
        request.wait()
    work = dist.all_reduce(total, async_op=True)
    meanwhile = mine + theirs  # computes while the all-reduce is on its way
    work.wait()
    return theirs.item(), total.item(), meanwhile.item()


for rank, (theirs, total, meanwhile) in enumerate(run_ranks(together, 2, backend="gloo")):
    print(
        f"rank {rank} received {theirs:.0f}; the all-reduce gave {total:.0f}, the computation {meanwhile:.0f}"
    )

# %% [markdown]
# **Known**: NCCL runs the point-to-point messages of a group together. Without a group, two ranks that both send first
# may wait for each other on the GPU ([NCCL, point-to-point
# communication](https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/usage/p2p.html)). With NCCL, `work.wait()`
# makes the GPU wait, not the process. Part 2 uses `async_op` to send gradients during backward.
#
# **Takeaway** Start all messages, compute, then wait as late as you can.
