# %% [markdown]
# # Data parallel, part 8: Write more collectives
#
# **Which messages suit which network, and how good is yours?**
#
# Choose this part if your ranks are on several machines, or share links. You write trees and an all-reduce that halves
# and doubles, and find out where it loses. Then you compare the formula with real ranks. All sections are extra.
#
# **You will be able to**
#
# - write a broadcast and a reduce in log2(N) rounds, and an all-reduce in 2 log2(N);
# - say which all-reduce suits shared links;
# - read what nccl-tests reports, and select NCCL's algorithm for a test.
#
# **Minutes** 0 core · 112 in all
#
# **Needs** part 1 (`send`, `recv`, `exchange`); your answers of part 1 are used if you solved them

# %% locked="setup"
import math

import torch
import torch.distributed as dist

import course
from course.checks import data_parallel as check
from course.parallel import message_times, network
from course.parallel.distributed import run_ranks
from course.parallel.messages import exchange
from course.parallel.network import Machines, Network
from course.plots import data_parallel as plots

print(course.machine())
sizes = course.sizes("02_data_parallel")

# %% [markdown]
# ## How does one rank get the sum? · extra
#
# Often a single rank needs a result of all ranks: the loss to print, or the accuracy to log. A *reduce* is the opposite
# of a broadcast (part 1): the sum over all ranks ends on one rank.
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
# `dst` must keep its own values while it receives another rank's values. Where do these go?
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
# In the loop of part 1, `world_size - 1` messages go one after the other, while most ranks have nothing to do. But a
# rank that has received can send, so the number of ranks that hold the values can double in every *round*:

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
    rank = dist.get_rank()
    world_size = dist.get_world_size()
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
    rank = dist.get_rank()
    world_size = dist.get_world_size()
    place = (rank - dst) % world_size  # counted from the root
    total = tensor.clone()
    part = torch.empty_like(tensor)
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
# computing takes none. So on any machine, the seconds are the length of the longest chain of messages that wait for
# each other.
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
one_second = Network(latency=1.0, bandwidth=math.inf)

for n in (2, 4, 8, 16, 32, 64):
    naive = network.simulate(there_and_back, n, one_second, *pairs["naive"])
    tree = network.simulate(there_and_back, n, one_second, *pairs["tree"])
    n_messages = len(tree.messages)
    print(
        f"{n:>2} ranks, {n_messages:>3} messages:",
        f"naive {naive.seconds:.0f} s, tree {tree.seconds:.0f} s",
    )

what = "the loop on 64 ranks, seconds"
print(course.score("02/8", what, predicted_naive, naive.seconds, null=None))
what = "the tree on 64 ranks, seconds"
print(course.score("02/8", what, predicted_tree, tree.seconds, null=None))
is_a_tenth = 10 * tree.seconds <= naive.seconds
course.claim(
    "on 64 ranks a tree's longest chain of messages is at most a tenth of the naive one",
    is_a_tenth,
    f"{naive.seconds:.0f} and {tree.seconds:.0f}",
)

# %% [markdown]
# The loop and the tree send N - 1 messages in each direction. **Shown** by the clocks: on 64 ranks, the tree's longest
# chain has 12 messages instead of 126.
#
# **Takeaway** A tree sends as many messages as a loop, but many of them at the same time.

# %% [markdown]
# ## Few steps and few bytes: can we have both? · extra
#
# A tree has few steps and long messages. A ring has short messages and many steps. *Recursive halving and doubling*
# combines few steps with few bytes, if N is a power of two.
#
# - In the first step each rank exchanges *half* of its tensor with its *partner*, the rank N/2 away. The lower rank
#   keeps the lower half and sends the upper one; the higher rank does the opposite. Each adds what arrives to the half
#   that it keeps.
# - Then it splits that half with the rank N/4 away, and so on. After log2(N) steps each rank holds 1/N of the sum.
# - The same partners in reverse order exchange what they hold, until each rank has all pieces.

# %%
plots.halving(4)

# %% [markdown]
# ### Exercise 4 · Halve, then double
#
# Write the all-reduce of the figure. `exchange(outgoing, to, incoming, source)` is the function of part 1.
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
# **Source** Thakur, Rabenseifner and Gropp 2005, on all-reduce ("Rabenseifner's algorithm").
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
    rank = dist.get_rank()
    distance = dist.get_world_size() // 2
    low = 0
    high = len(tensor)
    steps = []
    while distance:
        partner = rank ^ distance
        middle = (low + high) // 2
        kept, given = (low, middle), (middle, high)
        if rank > partner:
            kept, given = given, kept
        part = torch.empty_like(tensor[slice(*kept)])
        exchange(tensor[slice(*given)], partner, part, partner)
        tensor[slice(*kept)] += part
        steps.append((partner, given))
        low, high = kept
        distance = distance // 2
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
# By the formula of part 1, none of the four ways is faster than doubling. There each rank has its own link. Now let 8
# ranks share a machine with a single network card, through which all messages to other machines pass. Inside the
# machine, a pair exchanges 200 GB/s. The card sends 25 GB/s and receives as much.
#
# The functions of parts 1 and 8 run on virtual ranks. A message starts when both ends have reached it, and sets both
# clocks to `start + latency + bytes / bandwidth`.
#
# **Predict**: which way is now the fastest for the largest tensor? Count how often the whole tensor passes through a
# card.

# %%
predicted_shared = None  # a name

# %% tags=["experiment"]
reduce_naive_now = course.solved(check.reduce_naive)
broadcast_naive_now = course.solved(check.broadcast_naive)
reduce_tree_now = course.solved(check.reduce_tree)
broadcast_tree_now = course.solved(check.broadcast_tree)


def naive_all_reduce(tensor):
    reduce_naive_now(tensor, 0)
    broadcast_naive_now(tensor, 0)


def tree_all_reduce(tensor):
    reduce_tree_now(tensor, 0)
    broadcast_tree_now(tensor, 0)


ways = {
    "naive": naive_all_reduce,
    "tree": tree_all_reduce,
    "ring": course.solved(check.ring_all_reduce),
    "doubling": course.solved(check.halving_doubling),
}
all_reduce_seconds_now = course.solved(check.all_reduce_seconds)

# %% tags=["experiment"]
n_ranks = sizes.virtual_ranks
largest_virtual = max(sizes.virtual_bytes)
links = Network(latency=20e-6, bandwidth=10e9)
machines = Machines(
    latency=20e-6, bandwidth=200e9, ranks_per_machine=sizes.ranks_per_machine, card=25e9
)

own_links = message_times.virtual_seconds(ways, n_ranks, links, largest_virtual)
shared = {}  # {bytes of the tensor: {way: seconds}}
for n_bytes in sizes.virtual_bytes:
    shared[n_bytes] = message_times.virtual_seconds(ways, n_ranks, machines, n_bytes)

on_largest = shared[largest_virtual]  # {way: seconds}
print(f"largest tensor, a link per rank:    {message_times.ranked(own_links)}")
print(f"largest tensor, a card per machine: {message_times.ranked(on_largest)}")
fastest_shared = min(on_largest, key=on_largest.get)
is_ring_faster = on_largest["ring"] < on_largest["doubling"]
what = "the fastest way where a card is shared"
print(course.score("02/8", what, predicted_shared, fastest_shared))
course.claim(
    "where the ranks of a machine share its card, the ring is faster than doubling for the largest tensor",
    is_ring_faster,
    f"{on_largest['doubling'] / on_largest['ring']:.1f} times as fast",
)
title = f"{sizes.ranks_per_machine} ranks share a card: the ring passes doubling"
plots.crossover(shared, shared, title)

# %% [markdown]
# **Shown**: only the network changed.
#
# - A ring sends one piece per step through each card, about twice the tensor in all.
# - Doubling begins with the most distant partner. All 8 ranks of a machine send half of their tensors through its card,
#   then a quarter, then an eighth. They send as much again on the way back. With 64 ranks that is 14 times the tensor.
#
# Less would pass through the cards if doubling began with the nearest rank, or if each machine summed its tensors
# first.
#
# **Takeaway** The best all-reduce depends on the size of the tensor and on who shares a link. With large tensors and
# shared cards, the ring beats doubling.

# %% [markdown]
# ## Do real ranks keep to the formula? · extra
#
# The formula needs two numbers. `message_times.all_reduces` measures them between two ranks: the time of a four-byte
# message, and the bandwidth of a large one. Then four ranks of this machine all-reduce in each way, and with gloo.

# %% tags=["experiment"]
all_ways = {"gloo": dist.all_reduce, **ways}
arguments = (all_ways, sizes.bytes, sizes.rounds, sizes.seconds)
smallest_bytes = sizes.bytes[0]
largest_bytes = sizes.bytes[-1]

of_ranks = run_ranks(message_times.all_reduces, 4, *arguments, backend="gloo", timeout=300)
compared, (short_seconds, long_seconds) = of_ranks[0]
bandwidth = largest_bytes / long_seconds
by_formula = {}  # {bytes of the tensor: {way: seconds}}
for n_bytes in sizes.bytes:
    by_formula[n_bytes] = all_reduce_seconds_now(n_bytes, 4, short_seconds, bandwidth)

print(f"a message: {1e6 * short_seconds:.0f} µs, {bandwidth / 1e6:.0f} MB/s")
for n_bytes in (smallest_bytes, largest_bytes):
    measured = {way: compared[n_bytes].time(way).estimate for way in ways}
    print(f"{n_bytes:>10,} bytes, formula   {message_times.ranked(by_formula[n_bytes])}")
    print(f"{n_bytes:>10,} bytes, measured  {message_times.ranked(measured)}")

# %% tags=["experiment"]
smallest = compared[smallest_bytes]
largest = compared[largest_bytes]

course.claim(
    "with the smallest tensor, four real ranks take at least twice as long with the ring as the naive way",
    smallest.ratio("naive", to="ring"),
    above=2.0,
)
course.claim(
    "4 ranks on this machine are at least 10 % faster with doubling than with the naive all-reduce for the smallest "
    "tensor, as the formula says",
    smallest.ratio("doubling", to="naive"),
    above=1.1,
    otherwise="With doubling, all ranks send at the same time.",
)
course.claim(
    "4 ranks on this machine are at least 10 % faster with the ring than with the naive all-reduce for the largest "
    "tensor",
    largest.ratio("ring", to="naive"),
    above=1.1,
)
curves = {}
for way in ways:
    curves[way] = [compared[n_bytes].time(way) for n_bytes in sizes.bytes]
plots.formula_and_ranks(sizes.bytes, list(by_formula.values()), curves)

# %% [markdown]
# With 4 ranks, the naive way and the ring wait for 6 messages, the tree and doubling for 4. So by the formula, the
# naive way is never the fastest. Is it here?
#
# The two numbers of the formula come from one pair, while the other ranks wait. In the naive way, `dst` receives one
# message after the other. In the ring and in doubling, all ranks send and receive at the same time, and in the tree
# several do. **We think** that they wait for a core. To test it, compare the panels on a machine with a core per rank.
# (The ways also differ in their calls: the ring and doubling use `isend` and `irecv`, the other two `send` and `recv`.)
#
# **Takeaway** A formula fitted to one pair can be wrong when all ranks send. Measure with all ranks at work.

# %% [markdown]
# ## How good is a network? · extra
#
# Before the first training on a cluster, measure whether its links give what they promise. The *algorithm bandwidth* of
# an all-reduce is the size of the tensor divided by the time.
#
# NVIDIA's benchmark *nccl-tests* multiplies it by what a rank of a ring sends per byte of the tensor, 2 (N - 1) / N for
# an all-reduce. The product is the *bus bandwidth*. You can compare it with the speed of a link, for any N.

# %% tags=["experiment"]
factor = 2 * (4 - 1) / 4  # for 4 ranks

for n_bytes in sizes.bytes:
    of_ways = []
    for way in ("gloo", "ring"):
        seconds = compared[n_bytes].time(way).estimate
        algorithm = n_bytes / seconds / 1e6  # MB/s
        bus = factor * algorithm
        of_ways.append(f"{way} {algorithm:7.1f} and {bus:7.1f} MB/s")
    print(f"{n_bytes:>10,} bytes, algorithm and bus bandwidth: {', '.join(of_ways)}")
print(f"a message between two ranks that nobody disturbs: {bandwidth / 1e6:.1f} MB/s")

# %% [markdown]
# **Known**: the factors are 2 (N - 1) / N for all-reduce, (N - 1) / N for all-gather and reduce-scatter, and 1 for
# broadcast and reduce
# ([nccl-tests, PERFORMANCE.md](https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md)). With small
# tensors latency decides, so the bus bandwidth says little about the link.
#
# On eight GPUs of a machine, run `all_reduce_perf -b 8 -e 1G -f 2 -g 8`. **Not measured here**: this course has not run
# on two GPUs yet.
#
# **Takeaway** For large tensors, compare bus bandwidth with the slowest link on the way. If it is far below, find out
# why before you look at your training.
#
# <details><summary>Which choices of NCCL can you influence?</summary>
#
# - Its *algorithm* (`NCCL_ALGO`) is for example `Ring`, `Tree`, or `NVLS`, which sums inside the switch.
# - Its *protocol* (`NCCL_PROTO`) is `Simple`, `LL` or `LL128`. `Simple` is made for bandwidth. The other two send a
#   flag with the data, so the receiver need not wait for a separate signal, and small tensors arrive sooner (Hu et al.
#   2025, "Demystifying NCCL", arXiv:2507.04786).
#
# NCCL estimates the time of each combination for each size, and takes the fastest
# ([nccl#457](https://github.com/NVIDIA/nccl/issues/457)). Set the two variables to compare, not to train.
#
# </details>
