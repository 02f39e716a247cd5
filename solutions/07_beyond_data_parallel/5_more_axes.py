# %% [markdown]
# # Beyond data parallel, part 5: More axes
#
# **What is left to split when weights, layers and depth are split?**
#
# A sequence can be too long for one device, a large job can fail, and a network can be slow. Each section answers one
# such problem with a short exercise. All sections are extra, so pick the ones that your cluster needs. Each stands
# alone, but the second needs the first.
#
# **You will be able to**
#
# - merge the attention of ranks that hold a share of the keys, and balance their causal work;
# - say how often a long run should save, and load its shards on another number of ranks;
# - route tokens to experts on other ranks, and count what is sent and dropped;
# - let ranks take local steps between two meetings.
#
# **Minutes** 0 core · 54 in all
#
# **Needs** nothing

# %% locked="setup"
import math

import torch
from torch.nn import functional as F

import course
from course.checks import beyond_data_parallel as check
from course.measure.comparison import signed_rank_interval
from course.parallel import context, experts, failures
from course.parallel.distributed import run_ranks
from course.parallel.failures import LongRun
from course.parallel.network import Network, simulate
from course.plots import beyond_data_parallel as plots
from course.training import local_steps, resharding
from course.training.local_steps import Outer

print(course.machine())
sizes = course.sizes("07_beyond_data_parallel")

# %% [markdown]
# ## Can ranks share the keys of one attention? · extra
#
# A sequence may be too long for one device. With *context parallel*, each rank keeps some of its positions, with their
# queries, keys and values. But a query needs keys of other ranks, too, and softmax divides by a sum over all of them.
#
# So each rank computes three things for every query, from its own keys:
#
# | part | what it is |
# |---|---|
# | maximum | the largest score that the query has with these keys |
# | numerator | the sum of exp(score - maximum) · value |
# | denominator | the sum of exp(score - maximum) |
#
# Without the maximum, exp can overflow. If a query sees no key of a rank, the maximum is -inf and both sums are 0.
#
# ### Exercise 1 · Merge the parts
#
# Compute the attention to all keys from the parts of all ranks. Here, two ranks have one key each. Both keys have the
# score 0, and their values are 1 and 3, so attention is 2:
#
# ```python
# >>> merge_parts(torch.tensor([[[1.0]], [[3.0]]]), torch.tensor([[1.0], [1.0]]), torch.tensor([[0.0], [0.0]]))
# tensor([[2.]])
# ```
#
# **Points** 3 · **Extra** · **Difficulty** ●●○ · **Minutes** 10 · **Lines** 5
#
# **Must**
#
# - return the attention of each query to the keys of all ranks
# - stay finite for scores of thousands
# - return zeros for a query that sees no key at all
#
# **Source** Liu, Zaharia and Abbeel 2023, "Ring Attention", arXiv:2310.01889, section 3.
#
# <details><summary>Hint 1</summary>
#
# If a rank had used the highest maximum of all ranks, by which factor would its two sums differ?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `scales = torch.exp(maxima - highest)`: multiply numerators and denominators by it, add up over ranks, then divide.
# For a query without a key, `highest` is -inf, and -inf - -inf is NaN: use `.clamp(min=...)`, for the sum as well.
#
# </details>


# %% solution="merge_parts"
def merge_parts(numerators, denominators, maxima):
    """Tensor (queries, dim): the attention to the keys of all ranks.

    Args:
        numerators: (ranks, queries, dim).
        denominators: (ranks, queries).
        maxima: (ranks, queries); -inf where a query sees none of a rank's keys.
    """
    ### BEGIN SOLUTION
    highest = maxima.amax(0).clamp(min=torch.finfo(maxima.dtype).min)
    scales = torch.exp(maxima - highest)
    total = (scales * denominators).sum(0)
    merged = (scales[..., None] * numerators).sum(0)
    return merged / total.clamp(min=1)[:, None]  # 0 without any key, else at least 1
    ### END SOLUTION


# %% test="merge_parts-visible" points=1
check.merge_parts(merge_parts)

# %% test="merge_parts-hidden" points=2
### BEGIN HIDDEN TESTS
check.merge_parts(merge_parts, seed=2310)
### END HIDDEN TESTS

# %% [markdown]
# We compare with torch's attention of the whole sequence. In the first cell, each position lies on one of four ranks,
# at random. In the second, four virtual ranks pass keys and values around a ring, until each rank has seen all of them.

# %% tags=["experiment"]
merge_parts_now = course.solved(check.merge_parts)
head = context.random_head(tokens=64, dim=16)
whole = F.scaled_dot_product_attention(head.q, head.k, head.v, is_causal=True)

largest = 0.0
for seed in range(20):
    shares = context.random_shares(64, 4, seed)
    parts = context.causal_parts(head, shares)
    numerators, denominators, maxima = context.stacked(parts)
    merged = merge_parts_now(numerators, denominators, maxima)
    difference = (merged - whole).abs().max().item()
    largest = max(largest, difference)

course.claim(
    "parts of four ranks in 20 random splits merge to torch's causal attention to 1e-6",
    round(largest, 6) == 0,
    f"{largest:.0e}",
)

# %% tags=["experiment"]
shares = [context.contiguous(rank, 4, 64) for rank in range(4)]
ring = simulate(context.ring_attention, 4, Network(0.0, 1e9), merge_parts_now, head, shares)
attention = torch.cat(ring.results)
difference = (attention - whole).abs().max().item()

sent_bytes = [0] * 4  # by each rank
for message in ring.messages:
    sent_bytes[message.source] += message.n_bytes
all_but_one = 2 * head.k.nbytes * 3 // 4  # keys and values, three of four shares

course.claim(
    "a ring of four ranks gives torch's causal attention to 1e-6",
    round(difference, 6) == 0,
    f"{difference:.0e}",
)
course.claim(
    "around a ring, each rank sends all keys and values but one share",
    sent_bytes == [all_but_one] * 4,
    f"{all_but_one:,} bytes",
)

# %% [markdown]
# **Known**: FlashAttention uses the same rule on one device to compute attention block by block (Dao et al. 2022,
# arXiv:2205.14135).
#
# **Takeaway** Attention can be split over keys: numerators and denominators add up once they are scaled to one maximum.

# %% [markdown]
# ## Which rank has the most work? · extra
#
# With a causal mask, a query sees its own key and the keys before it, so late queries see more keys than early ones. We
# count work in *pairs* of a query and a key that it sees. If each of four ranks gets a quarter of the sequence in
# order, the last rank has the most pairs.
#
# **Predict**: on 4 ranks with a quarter each, how many times the mean work of all ranks does the last rank do?

# %%
predicted_wait = None  # times

# %% [markdown]
# ### Exercise 2 · Zigzag
#
# Cut the sequence into 2 N chunks for N ranks. Rank r gets two of them: chunk r from the start and chunk r from the
# end, both counted from 0.
#
# ```python
# >>> zigzag(0, ranks=2, tokens=8)
# tensor([0, 1, 6, 7])
# ```
#
# **Points** 2 · **Extra** · **Difficulty** ●○○ · **Minutes** 5 · **Lines** 2
#
# **Must** return the positions of the rank's tokens as int64, in order.
#
# **You may assume** that 2 N divides the number of tokens.
#
# **Source** Grattafiori et al. 2024, "The Llama 3 Herd of Models", arXiv:2407.21783, section 3.3.2.
#
# <details><summary>Hint 1</summary>
#
# Chunk 0 has too little work. Which chunk has too much work by the same amount?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `torch.arange(tokens).chunk(2 * ranks)` returns the chunks. The second one is number `2 * ranks - 1 - rank`.
#
# </details>


# %% solution="zigzag"
def zigzag(rank, ranks, tokens):
    """Tensor (tokens / ranks,): int64, the positions of `rank`, in order."""
    ### BEGIN SOLUTION
    chunks = torch.arange(tokens).chunk(2 * ranks)
    return torch.cat([chunks[rank], chunks[2 * ranks - 1 - rank]])
    ### END SOLUTION


# %% test="zigzag-visible" points=1
check.zigzag(zigzag)

# %% test="zigzag-hidden" points=1
### BEGIN HIDDEN TESTS
check.zigzag(zigzag, seed=1889)
### END HIDDEN TESTS

# %% [markdown]
# A round of the ring ends when its slowest rank is done.

# %% tags=["experiment"]
zigzag_now = course.solved(check.zigzag)
share_of = {"contiguous": context.contiguous, "zigzag": zigzag_now}

work = {}
for name, share in share_of.items():
    shares = [share(rank, 4, 4096) for rank in range(4)]
    pairs = context.pairs_per_step(shares)  # (rounds, ranks)
    work[name] = pairs.sum(0)
mean_work = work["contiguous"].double().mean()
over_mean = (work["contiguous"].max() / mean_work).item()

print(
    course.score(
        "07/5",
        "work of the busiest of 4 ranks with a quarter each, over the mean",
        predicted_wait,
        over_mean,
    )
)
plots.work_per_rank(
    work, f"Contiguous: the last rank has {over_mean:.2f} times the mean. Zigzag: all have the mean"
)

# %% tags=["experiment"]
equal_work = []
equal_rounds = []
for ranks in range(1, 9):
    for tokens in (2 * ranks, 6 * ranks, 64 * ranks):
        shares = [zigzag_now(rank, ranks, tokens) for rank in range(ranks)]
        pairs = context.pairs_per_step(shares)
        work_of_rank_0 = pairs[:, :1]
        equal_work.append(len(pairs.sum(0).unique()) == 1)
        equal_rounds.append(torch.equal(pairs, work_of_rank_0.expand_as(pairs)))

course.claim(
    "zigzag gives each of up to 8 ranks exactly the same causal work",
    all(equal_work),
    f"{len(equal_work)} cases",
)
course.claim(
    "zigzag balances each round of the ring exactly",
    all(equal_rounds),
    f"{len(equal_rounds)} cases",
)

# %% [markdown]
# **Shown** by the count: in every round, all ranks have the same work.
#
# **Takeaway** Under a causal mask, equal shares are not equal work, so pair early tokens with late ones.

# %% [markdown]
# ## How often should a run save itself? · extra
#
# Here, a job stops when any of its devices fails, and restarts from its latest checkpoint. Saving often takes time,
# and saving rarely loses more work at each failure. Young (1974) balances both: if the job fails every M seconds on
# average, save after √(2 · saving · M) seconds of work.
#
# **Predict**: a job moves to 4 times as many devices, and a save takes as long as before. How many times as often
# should it save? Perhaps 4 times, because it fails 4 times as often. Perhaps less, because saves cost time as well.

# %%
predicted_saves = None  # times as often

# %% [markdown]
# ### Exercise 3 · Daly's interval
#
# Young ignores failures during saves, and more than one failure between two saves. Daly's interval includes both. With
# s = saving / (2 M):
#
# | saving | seconds of work between two saves |
# |---|---|
# | less than 2 M | √(2 · saving · M) · (1 + √s / 3 + s / 9) - saving |
# | 2 M or more | M |
#
# `between_failures` is the mean time between failures of *one* device.
#
# ```python
# >>> round(save_interval(saving=2, between_failures=40_000, devices=100), 3)
# 38.678
# ```
#
# **Points** 2 · **Extra** · **Difficulty** ●○○ · **Minutes** 8 · **Lines** 5
#
# **Must** return Daly's interval, in seconds.
#
# **Source** Young 1974, "A first order approximation to the optimum checkpoint interval", CACM 17; Daly 2006, "A higher
# order estimate of the optimum checkpoint interval for restart dumps", FGCS 22.
#
# <details><summary>Hint 1</summary>
#
# One device fails every M seconds on average. How often does one of N devices fail?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `between = between_failures / devices` is M. Return it where `saving >= 2 * between`.
#
# </details>


# %% solution="save_interval"
def save_interval(saving, between_failures, devices):
    """Number of seconds to work between two saves.

    Args:
        saving: seconds that a save takes.
        between_failures: seconds between two failures of a device, on average.
        devices: number of devices of the job.
    """
    ### BEGIN SOLUTION
    between = between_failures / devices  # any of them ends the job
    if saving >= 2 * between:
        return between
    share = saving / (2 * between)
    return math.sqrt(2 * saving * between) * (1 + math.sqrt(share) / 3 + share / 9) - saving
    ### END SOLUTION


# %% test="save_interval-visible" points=1
check.save_interval(save_interval)

# %% test="save_interval-hidden" points=1
### BEGIN HIDDEN TESTS
check.save_interval(save_interval, seed=1974)
### END HIDDEN TESTS

# %% [markdown]
# A job has 60 days of work for 4096 devices. On average, each of them fails once in five years. A save takes two
# minutes, and a restart takes ten. Failures are drawn at random, and runs with the same seed have the same failures.
# The line of the figure is the mean time that Daly computes for each interval.

# %% tags=["experiment"]
save_interval_now = course.solved(check.save_interval)
DAY = 24 * 3600
run = LongRun(work=60 * DAY, saving=120, restart=600, between_failures=5 * 365 * DAY, devices=4096)
best = save_interval_now(run.saving, run.between_failures, run.devices)
on_more_devices = save_interval_now(run.saving, run.between_failures, 4 * run.devices)

print(
    course.score(
        "07/5",
        "saves on 4 times as many devices, times as often",
        predicted_saves,
        best / on_more_devices,
    )
)
hours = run.between_failures / run.devices / 3600
print(
    f"on average, one of the {run.devices} devices fails every {hours:.1f} h; "
    f"save after {best / 60:.0f} min of work"
)

# %% tags=["experiment"]
SEEDS = range(20)
simulated = {}
for factor in (0.25, 0.5, 1, 2, 4):
    simulated[factor] = failures.mean_seconds(run, factor * best, SEEDS) / run.work

expected = {}
for step in range(-8, 9):
    factor = 2 ** (step / 4)
    expected[factor] = failures.expected_seconds(run, factor * best) / run.work

too_often = expected[0.25] / expected[1] - 1
too_rarely = expected[4] / expected[1] - 1
plots.save_intervals(
    expected,
    simulated,
    f"Saving four times as often takes {too_often:.0%} longer, four times as rarely {too_rarely:.0%}",
)

# %% tags=["experiment"]
course.claim(
    "simulated runs take the time that Daly's model expects, to 1 %",
    failures.over_expected(run, best, SEEDS),
    within=(0.99, 1.01),
)
course.claim(
    "saving four times as rarely as Daly says takes at least 5 % longer",
    failures.times_as_long(run, 4 * best, best, SEEDS),
    above=1.05,
)
course.claim(
    "saving four times as often as Daly says takes at least 5 % longer",
    failures.times_as_long(run, best / 4, best, SEEDS),
    above=1.05,
)
course.claim(
    "saving 1.5 times as rarely as Daly says takes less than 2 % longer",
    failures.times_as_long(run, 1.5 * best, best, SEEDS),
    below=1.02,
)

# %% [markdown]
# **Shown**: the optimum is flat, so a somewhat longer interval costs little.
#
# **Known**: with `torch.distributed.checkpoint.async_save`, a job waits only until its state is copied. A thread writes
# the copy while training continues (its documentation).
#
# **Takeaway** If a save is short, save after about √(2 · time of a save · time between failures of the job). Near this
# optimum, the exact value matters little.

# %% [markdown]
# ## What if only one expert sees a token? · extra
#
# A *mixture of experts* has many MLPs, the experts, and a router. Here, the router picks one expert for each token. So
# more experts add weights, but a token takes the FLOPs of one expert.
#
# With *expert parallel*, the experts lie on different ranks. Tokens travel to their expert, and the outputs travel
# back. Each way takes one *all-to-all*, in which every rank sends a block to every other rank.
#
# Each expert has `capacity` places for the tokens of a rank, so all blocks have the same size. A token whose expert is
# full is *dropped*: it skips the layer.
#
# **Predict**: 64 tokens, 8 experts, and exactly 8 places for each expert. The router has learned nothing, so its
# choices are random. What share of the tokens is dropped? Perhaps none, because there is a place for each token.
# Perhaps a few in a hundred, or over a tenth, because chance gives some experts more tokens than others.

# %%
predicted_dropped = None  # a number from 0 to 1

# %% [markdown]
# ### Exercise 4 · Route the tokens
#
# Each token wants the expert with its highest score. Place p of expert e is slot `e * capacity + p`. In the example,
# tokens 0 and 2 want expert 1, which has one place:
#
# ```python
# >>> route_tokens(torch.tensor([[0.1, 0.9], [0.8, 0.2], [0.3, 0.7]]), capacity=1)
# tensor([ 1,  0, -1])
# ```
#
# **Points** 3 · **Extra** · **Difficulty** ●●○ · **Minutes** 10 · **Lines** 5
#
# **Must**
#
# - return an int64 slot per token, and -1 for each dropped token
# - fill the places of an expert from 0, in the order of the tokens.
#
# **Source** Fedus, Zoph and Shazeer 2021, "Switch Transformers", arXiv:2101.03961, section 2.2.
#
# <details><summary>Hint 1</summary>
#
# A token's place is the number of tokens before it that want the same expert.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# With `chosen = F.one_hot(expert, scores.shape[1])`, `chosen.cumsum(0)` counts per expert. Look up each token's own
# column: `(chosen.cumsum(0) * chosen).sum(1)`.
#
# </details>


# %% solution="route_tokens"
def route_tokens(scores, capacity):
    """Tensor (tokens,): int64, the slot of each token, -1 for those that are dropped.

    Args:
        scores: (tokens, experts), of the router.
        capacity: number of places per expert.
    """
    ### BEGIN SOLUTION
    expert = scores.argmax(1)
    chosen = F.one_hot(expert, scores.shape[1])
    place = (chosen.cumsum(0) * chosen).sum(1) - 1
    slot = expert * capacity + place
    return slot.where(place < capacity, -1)
    ### END SOLUTION


# %% test="route_tokens-visible" points=1
check.route_tokens(route_tokens)

# %% test="route_tokens-hidden" points=2
### BEGIN HIDDEN TESTS
check.route_tokens(route_tokens, seed=2101)
### END HIDDEN TESTS

# %% [markdown]
# First we count the tokens that random routers drop. Then four virtual ranks with two experts each compute the layer.
# Each rank has 64 tokens of 16 numbers in float64.

# %% tags=["experiment"]
route_tokens_now = course.solved(check.route_tokens)
TOKENS = 64
EXPERTS = 8
CAPACITY = 8

dropped = []
for seed in range(20):
    routed = experts.random_tokens(0, TOKENS, dim=1, experts=EXPERTS, seed=seed)
    slots = route_tokens_now(routed.scores, CAPACITY)
    is_dropped = slots < 0
    dropped.append(is_dropped.double().mean().item())
share = signed_rank_interval(dropped)

print(
    course.score(
        "07/5", "share of tokens that a random router drops", predicted_dropped, share, null=0
    )
)
course.claim(
    "a router that chooses at random drops at least 5 % of the tokens if places and tokens are equally many",
    share,
    above=0.05,
)

# %% tags=["experiment"]
RANKS = 4
DIM = 16
layer = simulate(
    experts.expert_layer,
    RANKS,
    Network(0.0, 1e9),
    route_tokens_now,
    TOKENS,
    DIM,
    EXPERTS,
    CAPACITY,
)

is_conserved = []
differences = []
for rank, (slots, outputs) in enumerate(layer.results):
    given = experts.random_tokens(rank, TOKENS, DIM, EXPERTS)
    is_conserved.append(experts.keeps_as_many_as_fit(given.scores, slots, CAPACITY))
    on_one_device = experts.on_one_device(given, slots)
    differences.append((outputs - on_one_device).abs().max().item())
sent_bytes = sum(message.n_bytes for message in layer.messages)
bytes_of_places = EXPERTS * CAPACITY * DIM * 8  # of one rank, in float64

course.claim(
    "each token has its own place, or is one of those that are too many for its expert",
    all(is_conserved),
)
course.claim(
    "experts on four ranks compute what one device computes to 1e-6",
    round(max(differences), 6) == 0,
)
course.claim(
    "two all-to-alls send (N - 1) / N of all places twice",
    sent_bytes == RANKS * 2 * bytes_of_places * (RANKS - 1) // RANKS,
    f"{sent_bytes:,} bytes",
)

# %% [markdown]
# **Shown** by the count: all places travel, full or empty.
#
# **Known**: a term in the loss rewards a router that spreads its tokens evenly (Fedus et al. 2021).
#
# **Takeaway** More experts add weights, but a token still takes the FLOPs of one. The capacity decides how many bytes
# travel. Capacity and router decide how many tokens are dropped.

# %% [markdown]
# ## Can a checkpoint of six ranks be loaded on four? · extra
#
# Each rank saves its own shard, because the whole model does not fit on one device. After a failure, fewer ranks may be
# left, and each needs a larger shard. So each new rank reads pieces of the old shards.
#
# Here, all parameters are one flat list, whose length is `numbers`. Each of N ranks has ceil(numbers / N) of them, in
# order. Zeros fill up the last shards.
#
# ### Exercise 5 · The pieces to read
#
# Return what a new rank reads as tuples `(old rank, start, end)`. Start and end count in the shard of the old rank, as
# in a slice. With 12 numbers on two ranks, rank 0 has numbers 0 to 5. Of three new ranks, rank 1 needs numbers 4 to 7:
#
# ```python
# >>> pieces_to_read(12, old=2, new=3, rank=1)
# [(0, 4, 6), (1, 0, 2)]
# ```
#
# **Points** 3 · **Extra** · **Difficulty** ●●○ · **Minutes** 10 · **Lines** 11
#
# **Must**
#
# - return the pieces in the order of the numbers
# - read each number once, and no zeros that only fill up a shard
# - leave out empty pieces.
#
# **Source** PyTorch documentation of `torch.distributed.checkpoint`, whose planners do this for tensors of any shape.
#
# <details><summary>Hint 1</summary>
#
# Where does each old shard begin and end in the list of all numbers, and where does the new shard?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Two ranges overlap from `max` of their starts to `min` of their ends. Subtract where the old shard begins.
#
# </details>


# %% solution="pieces_to_read"
def pieces_to_read(numbers, old, new, rank):
    """List of (old rank, start, end) that `rank` of the new ranks reads, in order.

    Args:
        numbers: how many there are, without what fills up the shards.
        old, new: the numbers of ranks.
    """
    ### BEGIN SOLUTION
    old_size = math.ceil(numbers / old)
    new_size = math.ceil(numbers / new)
    begin = rank * new_size
    end = min(begin + new_size, numbers)
    pieces = []
    for owner in range(old):
        offset = owner * old_size
        first = max(begin, offset)
        last = min(end, offset + old_size)
        if first < last:
            pieces.append((owner, first - offset, last - offset))
    return pieces
    ### END SOLUTION


# %% test="pieces_to_read-visible" points=1
check.pieces_to_read(pieces_to_read)

# %% test="pieces_to_read-hidden" points=2
### BEGIN HIDDEN TESTS
check.pieces_to_read(pieces_to_read, seed=2207)
### END HIDDEN TESTS

# %% [markdown]
# First we try every change from up to 8 ranks to up to 8 ranks. Then a small GPT trains with Adam for three steps. Its
# weights and Adam's averages are cut into six shards and loaded as four, and the GPT trains for three more steps.

# %% tags=["experiment"]
pieces_to_read_now = course.solved(check.pieces_to_read)
is_read_once = []
for numbers in (7, 64, 1000):
    for old in range(1, 9):
        for new in range(1, 9):
            once = resharding.reads_each_number_once(numbers, old, new, pieces_to_read_now)
            is_read_once.append(once)
course.claim(
    "from up to 8 ranks to up to 8 others, each number of a checkpoint is read exactly once",
    all(is_read_once),
    f"{len(is_read_once)} cases",
)

# %% tags=["experiment"]
uninterrupted, resumed = resharding.weights_after_a_restart(pieces_to_read_now, old=6, new=4)
course.claim(
    "a training saved on 6 ranks and loaded on 4 continues with exactly the same weights",
    torch.equal(uninterrupted, resumed),
    f"{len(resumed):,} weights",
)

# %% [markdown]
# **Shown**: a new shard is made of ranges of the old shards. The state of the optimizer is cut in the same places.
#
# **Known**: `torch.distributed.checkpoint` does this: you can save on some ranks and load on another number of ranks
# (its documentation).
#
# **Takeaway** Save each number with its place in the whole model, not with its rank. Then any number of ranks can load
# it.

# %% [markdown]
# ## What if ranks meet only now and then? · extra
#
# DDP averages gradients in every step, which can take most of the time on a slow network. With *local steps* (local
# SGD, DiLoCo), each rank takes H steps alone. Then the ranks *meet*: they combine their weights once. There are as many
# weights as gradients, so this sends 1/H of the bytes.
#
# All ranks begin with the weights `start`. When they meet, each rank has other weights, its `end`. The *outer gradient*
# is `start` minus the mean of the ends. An *outer optimizer* takes one step with this gradient. Ours is SGD with
# Nesterov momentum, as in DiLoCo:
#
# | quantity | formula |
# |---|---|
# | velocity | momentum · velocity + gradient |
# | weights | start - lr · (gradient + momentum · velocity), with the new velocity |
#
# ### Exercise 6 · The outer step
#
# Take one step of the outer optimizer. In the example, two ranks began at 1 and ended at 0 and 0.5, so the outer
# gradient is 0.75:
#
# ```python
# >>> outer_step(torch.tensor([1.0]), torch.tensor([[0.0], [0.5]]), torch.tensor([0.0]), lr=1.0, momentum=0.0)
# (tensor([0.2500]), tensor([0.7500]))
# ```
#
# **Points** 2 · **Extra** · **Difficulty** ●○○ · **Minutes** 8 · **Lines** 3
#
# **Must** return new weights and the new velocity; leave the arguments as they are.
#
# **Source** Douillard et al. 2023, "DiLoCo", arXiv:2311.08105, Algorithm 1.
#
# <details><summary>Hint 1</summary>
#
# If each rank takes one step of SGD with learning rate a, what is `start` minus the mean of their ends?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `gradient = start - ends.mean(0)`. Compute the new velocity first, because the weights use it.
#
# </details>


# %% solution="outer_step"
def outer_step(start, ends, velocity, lr, momentum):
    """Tuple (weights, velocity) after a step of SGD with Nesterov momentum, (numbers,) each.

    Args:
        start: (numbers,), weights with which all ranks began.
        ends: (ranks, numbers), weights at the end of their local steps.
        velocity: (numbers,); zeros before the first meeting.
        lr: learning rate of this step.
        momentum: from 0 to 1.
    """
    ### BEGIN SOLUTION
    gradient = start - ends.mean(0)
    velocity = momentum * velocity + gradient
    return start - lr * (gradient + momentum * velocity), velocity
    ### END SOLUTION


# %% test="outer_step-visible" points=1
check.outer_step(outer_step)

# %% test="outer_step-hidden" points=1
### BEGIN HIDDEN TESTS
check.outer_step(outer_step, seed=2311)
### END HIDDEN TESTS

# %% [markdown]
# Our ranks take steps of plain SGD, and the outer optimizer has learning rate 1 and no momentum:
#
# - With H = 1, this must be DDP. The first cell compares it with torch's DDP on two real ranks.
# - In the second cell, four ranks train a small network for 64 steps, with H = 16 and with H = 1. As a control, one
#   rank trains alone.
# - In the third cell, the inputs are shifted by three standard deviations: on all ranks in one direction, as a control,
#   or on each rank in another direction.

# %% tags=["experiment"]
outer_step_now = course.solved(check.outer_step)
every_step = Outer(local_steps=1, lr=1.0, momentum=0.0)

of_ranks = run_ranks(local_steps.by_ddp, 2, 16, backend="gloo")
by_ddp = of_ranks[0]
by_outer_steps = local_steps.trained(outer_step_now, every_step, 2, 16)
difference = (by_outer_steps - by_ddp).abs().max().item()

course.claim(
    "one local step and an outer SGD of learning rate 1 reach the weights of torch's DDP to 1e-6",
    round(difference, 6) == 0,
    f"{difference:.0e}",
)

# %% tags=["experiment"]
every_16_steps = Outer(local_steps=16, lr=1.0, momentum=0.0)
seeds = range(sizes.seed_pairs)
often = local_steps.losses(outer_step_now, every_step, 4, 64, seeds)
rarely = local_steps.losses(outer_step_now, every_16_steps, 4, 64, seeds)
alone = local_steps.losses(outer_step_now, every_step, 1, 64, seeds)

course.claim(
    "a rank that trains alone ends with a loss at least 1 % higher than four ranks that meet in every step",
    local_steps.loss_ratio(alone, often),
    above=1.01,
)
course.claim(
    "ranks that meet every 16 steps end with a loss within 1 % of those that meet in every step",
    local_steps.loss_ratio(rarely, often),
    within=(0.99, 1.01),
)

# %% tags=["experiment"]
ratios = {}
for name, alike in (("one shift for all", True), ("a shift per rank", False)):
    shifts = local_steps.rank_shifts(3.0, alike)
    often = local_steps.losses(outer_step_now, every_step, 4, 64, seeds, shifts)
    rarely = local_steps.losses(outer_step_now, every_16_steps, 4, 64, seeds, shifts)
    ratios[name] = local_steps.loss_ratio(rarely, often)

course.claim(
    "if all ranks shift their inputs alike, meeting every 16 steps changes the loss by less than 5 %",
    ratios["one shift for all"],
    within=(0.95, 1.05),
)
course.claim(
    "if each rank shifts its inputs in another direction, meeting every 16 steps raises the loss by at least 5 %",
    ratios["a shift per rank"],
    above=1.05,
)

# %% [markdown]
# **Shown**: if all ranks draw from one distribution, they lose little when they meet only in every sixteenth step. If
# each rank draws from another one, they lose more. So shuffle the data before you share them out.
#
# **Takeaway** Without momentum, an outer step with learning rate 1 averages weights. After one step of SGD per rank,
# this is DDP. After H steps, it sends 1/H of the bytes.
