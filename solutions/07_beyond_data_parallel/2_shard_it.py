# %% [markdown]
# # Beyond data parallel, part 2: Shard it
#
# **How can a rank compute with weights that it does not keep, without waiting for them?**
#
# You write the core of fully sharded data parallel (FSDP), which gathers weights one layer ahead. As an extra, you
# write its backward pass, which scatters gradients.
#
# **You will be able to**
#
# - gather the next layer while this one computes, with at most two whole layers in memory
# - say how many bytes a sharded step sends, and when its gathers cost no time
# - say what `fully_shard` does with each layer
#
# **Minutes** 17 core · 38 in all
#
# **Needs** nothing; 02/7 builds the stages of ZeRO that lead here

# %% locked="setup"
import torch
import torch.distributed as dist

import course
from course.checks import beyond_data_parallel as check
from course.parallel import sharded_layers
from course.parallel.collectives import simulate_collectives
from course.parallel.distributed import run_ranks
from course.parallel.network import Network
from course.plots import beyond_data_parallel as plots

print(course.machine())

# %% [markdown]
# ## Can the next layer's weights travel while this one computes?
#
# With DDP, every rank keeps the whole model, so the model must fit on one device. With FSDP, each of N ranks keeps only
# a *shard* of every layer, 1/N of its numbers. As with DDP, each rank has its own batch.
#
# Before a layer computes, its shards are *gathered*: every rank gets the whole layer. After computing, each rank frees
# it.
#
# `start_gather(shard)` returns a handle without waiting. `handle.wait()` returns the whole layer once it has arrived.
# So the next layer can travel while this one computes.
#
# **Predict**: a model has 8 layers. A layer takes 1 ms to gather and 1 ms to compute, so forward takes 16 ms without
# overlap. What share of that time does forward take if each gather starts one layer ahead? Perhaps 1/2, because gathers
# cost nothing then. Perhaps a little more.

# %%
predicted_share = None  # a number from 0 to 1

# %% [markdown]
# ### Exercise 1 · Gather one layer ahead
#
# Write a generator that yields the whole layers in order. Between two `yield`s, the caller computes with a layer and
# then drops it. With shards a, b and c, the order is:
#
# ```
# start a, wait a, start b, yield a, wait b, start c, yield b, wait c, yield c
# ```
#
# **Points** 4 · **Core** · **Difficulty** ●●○ · **Minutes** 8 · **Lines** 6
#
# **Must**
#
# - yield what the gather of each shard returns, in the order of `shards`
# - start the next gather before the layer is yielded, and no gather earlier than that
# - hold at most two layers, counting the one that is on its way
#
# **You may assume** at least one shard.
#
# **Source** Zhao et al. 2023, "PyTorch FSDP", arXiv:2304.11277, section 3.3 (forward prefetching).
#
# <details><summary>Hint 1</summary>
#
# The first gather has no layer before it. What is left to do for the last layer?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Keep one handle. For each shard: `whole = handle.wait()`, then `handle = start_gather(...)` of the next shard if there
# is one, then `yield whole`. A list of all layers would keep them alive.
#
# </details>


# %% solution="gathered_ahead"
def gathered_ahead(shards, start_gather):
    """Yield the whole layer of each shard, while the next one is already on its way.

    Args:
        shards: this rank's shard of each layer, a list.
        start_gather: function of a shard; starts to gather it and returns a handle, whose `wait()` returns the whole.
    """
    ### BEGIN SOLUTION
    handle = start_gather(shards[0])
    for following in range(1, len(shards) + 1):
        whole = handle.wait()
        if following < len(shards):
            handle = start_gather(shards[following])
        yield whole
    ### END SOLUTION


# %% test="gathered_ahead-visible" points=2
check.gathered_ahead(gathered_ahead)

# %% test="gathered_ahead-hidden" points=2
### BEGIN HIDDEN TESTS
check.gathered_ahead(gathered_ahead, seed=2304)
### END HIDDEN TESTS

# %% [markdown]
# Four ranks run 8 layers forward, once with your generator and once with a loop that waits for each gather. They run on
# a *virtual network*: ranks are threads, and each has a simulated clock. On this clock, gathering a layer takes as long
# as computing it.

# %% tags=["experiment"]
gathered_ahead_now = course.solved(check.gathered_ahead)
ways = {
    "one after the other": sharded_layers.gathered_when_needed,
    "one layer ahead": gathered_ahead_now,
}

lanes = {}
live_bytes = {}
milliseconds = {}
for way, gathered in ways.items():
    run = simulate_collectives(
        sharded_layers.timed_forward, 4, sharded_layers.BALANCED, gathered, 8
    )
    lanes[way], live_bytes[way] = run.results[0]
    milliseconds[way] = run.seconds  # a second of this clock stands for a millisecond

share = milliseconds["one layer ahead"] / milliseconds["one after the other"]
print(
    course.score("07/2", "forward one layer ahead over one after the other", predicted_share, share)
)
course.claim(
    "8 layers that are gathered one ahead take 9/16 of the time of one after the other",
    round(16 * share, 6) == 9,
    f"{share:g}",
)
course.claim(
    "a rank that gathers one layer ahead never holds more than two whole layers",
    live_bytes["one layer ahead"] == 2 * sharded_layers.LAYER_BYTES,
    f"{live_bytes['one layer ahead']:,} bytes",
)
plots.gather_lanes(
    lanes, f"One layer ahead takes {share:.2f} of the time: only the first gather is waited for"
)

# %% [markdown]
# **Shown** by the clock: a rank computes 8 layers and waits for *one* gather instead of 8.
#
# **Takeaway** Gather one layer ahead. If computing a layer takes at least as long as gathering the next one, only the
# first gather costs time.

# %% [markdown]
# ## How do gradients get back to their shards? · extra
#
# In backward, each rank computes the gradient of a whole layer for its own batch. A *reduce-scatter* sums the gradients
# of all ranks, and each rank receives its piece of the sum. The layer before computes while the gradient travels.
#
# ### Exercise 2 · Backward of one layer
#
# Write the backward pass of one layer, in three steps:
#
# 1. Compute the layer again from `whole` and from `x`, its input in forward. Do it inside `torch.enable_grad()`,
#    because gradients may be switched off.
# 2. Get both gradients from `torch.autograd.grad(output, [whole, x], grad)`.
# 3. Start to scatter the gradient of `whole`, and do not wait. Return the handle, and the gradient of `x`, which the
#    layer before needs.
#
# **Points** 4 · **Extra** · **Difficulty** ●●○ · **Minutes** 7 · **Lines** 5
#
# **Must**
#
# - return the gradient of `x`, and the handle that `start_scatter` returns
# - make `handle.wait()` return this rank's piece of the *mean* gradient of `whole` over the `dist.get_world_size()`
#   ranks
# - call `start_scatter` once, and do not wait
#
# **You may assume** `compute(whole, x)` is differentiable; neither tensor requires a gradient.
#
# **Source** Zhao et al. 2023, section 3.
#
# <details><summary>Hint 1</summary>
#
# `torch.autograd.grad(output, [a, b], grad)` returns the gradients of a and b, and writes no `.grad`. What must `whole`
# and `x` be for that?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `whole = whole.detach().requires_grad_()`, and `x` in the same way. Then
# `start_scatter(of_whole / dist.get_world_size())`.
#
# </details>


# %% solution="layer_backward"
def layer_backward(compute, whole, x, grad, start_scatter):
    """(gradient of `x`, handle of this rank's piece of the mean gradient of `whole`).

    Args:
        compute: function of `whole` and `x`; what the layer does.
        whole, x: all numbers of the layer, a vector, and its input.
        grad: gradient of what `compute` returned.
        start_scatter: function of a vector; starts to sum it over the ranks and returns a handle of one piece.
    """
    ### BEGIN SOLUTION
    whole = whole.detach().requires_grad_()
    x = x.detach().requires_grad_()
    with torch.enable_grad():
        output = compute(whole, x)
    of_whole, of_x = torch.autograd.grad(output, [whole, x], grad)
    return of_x, start_scatter(of_whole / dist.get_world_size())
    ### END SOLUTION


# %% test="layer_backward-visible" points=2
check.layer_backward(layer_backward)

# %% test="layer_backward-hidden" points=2
### BEGIN HIDDEN TESTS
check.layer_backward(layer_backward, seed=11277)
### END HIDDEN TESTS

# %% [markdown]
# ## What does a sharded step send?
#
# Backward gathers each layer again, from the last to the first. Then a *reduce-scatter* sums the gradients of all
# ranks, and each rank receives its piece of the sum. So a sharded step has two gathers and one reduce-scatter per
# layer.
#
# In a ring, DDP's all-reduce is a reduce-scatter and then an all-gather. In each of these operations, a rank
# sends (N - 1) / N of the layer.
#
# **Predict**: all numbers have 32 bits. How many times DDP's bytes does a sharded step send?

# %%
predicted_bytes = None  # a factor

# %% [markdown]
# Four virtual ranks train a model with your generator and a backward pass, the extra exercise `layer_backward`. One
# process trains the same model with the mean gradient, as DDP does. "Moved" is its largest change of a weight.

# %% tags=["experiment"]
layer_backward_now = course.solved(check.layer_backward)
answers = sharded_layers.Answers(gathered_ahead_now, layer_backward_now)
training = sharded_layers.trained_on_virtual_ranks(4, answers, steps=3)
factor = training.sent / sharded_layers.ddp_bytes(4)

print(
    f"{training.sent:,.0f} bytes per step and rank; "
    f"weights differ from DDP's by {training.difference:.1e}; "
    f"DDP moved them by up to {training.moved:.1e}"
)
print(course.score("07/2", "bytes of a sharded step over DDP's", predicted_bytes, factor))
course.claim("sharded layers reach the weights of DDP to 1e-6", round(training.difference, 6) == 0)
course.claim(
    "a sharded step sends 1.5 times the bytes of DDP's ring", factor == 1.5, f"{factor:g} times"
)

# %% [markdown]
# **Shown** by the count: a sharded step sends three halves of an all-reduce, and DDP sends two. We compute DDP's bytes
# with the formula of a ring.
#
# **Takeaway** A sharded step that frees its layers after forward gathers once more than DDP's all-reduce. So it sends
# 1.5 times the bytes.

# %% [markdown]
# ## Does torch's fully_shard compute the same?
#
# In your own training, call
# [`fully_shard`](https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html) on each layer, then on the
# model:
#
# ```python
# for layer in model:
#     fully_shard(layer)
# fully_shard(model)
# ```
#
# Two real ranks train the same model in three ways: with the functions of the last section, with
# `DistributedDataParallel`, and with `fully_shard`. We compare their weights, and count those that a rank of
# `fully_shard` keeps.

# %% tags=["experiment"]
of_ranks = run_ranks(sharded_layers.compared_with_torch, 2, answers, 3, backend="gloo")
compared = of_ranks[0]
for way, difference in compared.differences.items():
    print(f"{way:<14} largest difference to DistributedDataParallel {difference:.1e}")
print(f"under fully_shard, each of two ranks keeps {compared.kept:.0%} of the weights")
largest = max(compared.differences.values())
course.claim(
    "the answers of this part and fully_shard reach the weights of DistributedDataParallel to 1e-6",
    round(largest, 6) == 0,
)

# %% [markdown]
# **Known**: on a GPU, `fully_shard` gathers on a separate stream, so the next layer travels while this one computes
# (PyTorch tutorial "Getting Started with FSDP2"). With `reshard_after_forward=False`, ranks keep whole layers until
# backward. This saves the second gather but takes more memory (documentation of `fully_shard`).
#
# **Takeaway** Up to rounding, `fully_shard` reaches the weights of DDP, and each rank keeps about 1/N of them.

# %% [markdown]
# ## What is lost in 16 bits? · extra
#
# Sending bfloat16 halves the bytes of a gather, so two gathers send as much as one in float32. But bfloat16 has 8
# significant bits: 1 - 0.001 rounds to 1, so small steps would be lost. Therefore the rank keeps its shard in float32,
# the *master*, and sends a rounded copy.
#
# ### Exercise 3 · Send 16 bits, keep 32
#
# Write a shard that has a master and takes its own steps of SGD.
#
# **Points** 3 · **Extra** · **Difficulty** ●○○ · **Minutes** 5 · **Lines** 3
#
# **Must**
#
# - keep `values` as `master`, a float32 copy
# - return the current master in bfloat16 from `to_send`
# - subtract `lr` times `grad` from the master in `step`, all in float32
#
# **Source** Micikevicius et al. 2018, "Mixed precision training", arXiv:1710.03740, section 3.1.
#
# <details><summary>Hint 1</summary>
#
# Which of the two copies does a step change, and when is the other one made from it?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `values.float().clone()`; `self.master.bfloat16()`; `self.master -= lr * grad.float()`.
#
# </details>


# %% solution="MasterShard"
class MasterShard:
    """A shard that is sent in bfloat16 and trained in float32 by SGD; `master` is the float32 vector.

    Args:
        values: a vector, copied.
    """

    def __init__(self, values):
        ### BEGIN SOLUTION
        self.master = values.detach().float().clone()
        ### END SOLUTION

    def to_send(self):
        """The shard in bfloat16."""
        ### BEGIN SOLUTION
        return self.master.bfloat16()
        ### END SOLUTION

    def step(self, grad, lr):
        """Take a step of SGD on the master. `grad` may have 16 bits."""
        ### BEGIN SOLUTION
        self.master -= lr * grad.float()
        ### END SOLUTION


# %% test="MasterShard-visible" points=1
check.MasterShard(MasterShard)

# %% test="MasterShard-hidden" points=2
### BEGIN HIDDEN TESTS
check.MasterShard(MasterShard, seed=1710)
### END HIDDEN TESTS

# %% [markdown]
# In both trainings below, ranks gather weights in 16 bits and scatter gradients in 32. One training has your masters,
# and the other keeps only the rounded numbers. "Moved" is again DDP's largest move. The cell also counts the weights
# that the first step leaves as they are.

# %% tags=["experiment"]
shard_of = {
    "your masters": course.solved(check.MasterShard),
    "16 bits alone": sharded_layers.RoundedShard,
}

for name, shard in shard_of.items():
    in_16_bits = sharded_layers.Answers(gathered_ahead_now, layer_backward_now, shard)
    training = sharded_layers.trained_on_virtual_ranks(4, in_16_bits, steps=3)
    factor = training.sent / sharded_layers.ddp_bytes(4)
    print(
        f"{name:<14} {factor:g} times DDP's bytes in 32 bits; "
        f"weights differ from DDP's by {training.difference:.1e}; "
        f"DDP moved them by up to {training.moved:.1e}"
    )
for dtype in (torch.float32, torch.bfloat16):
    unchanged = sharded_layers.unchanged_share(dtype)
    print(f"{dtype}: the first step leaves {unchanged:.0%} of the weights as they are")

# %% [markdown]
# **Shown**: the two trainings differ only in the master. With it, the weights end closer to DDP's, because no step is
# rounded away. A small difference remains, because layers compute with rounded weights.
#
# **Known**: `MixedPrecisionPolicy(param_dtype=torch.bfloat16)` of `fully_shard` keeps such masters. It also scatters
# gradients in bfloat16, unless `reduce_dtype` says otherwise (its documentation).
#
# **Takeaway** Send rounded weights, but let the optimizer change the exact ones.

# %% [markdown]
# ## When do gathers cost no time? · extra
#
# Overlap hides the gathers as long as the network keeps up. A formula says how fast the network must be.
#
# ### Exercise 4 · The seconds of a forward pass
#
# Compute the seconds of a forward pass of equal layers in two cases: a rank waits for each gather, or it gathers one
# layer ahead. With 8 layers that take 1 second to gather and 1 to compute, "waiting" takes 16 and "ahead" 9 seconds.
#
# **Points** 2 · **Extra** · **Difficulty** ●●○ · **Minutes** 6 · **Lines** 4
#
# **Must** return a dict of the seconds "waiting" and "ahead".
#
# **You may assume** at least one layer. A gather starts when the layer before begins to compute, and one gather travels
# at a time.
#
# **Source** Zhao et al. 2023, section 3.3.
#
# <details><summary>Hint 1</summary>
#
# Which gather is never hidden, and which layer computes while nothing travels?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `gather + (n_layers - 1) * max(gather, compute) + compute`.
#
# </details>


# %% solution="forward_seconds"
def forward_seconds(n_layers, gather, compute):
    """Seconds of a forward pass, {"waiting", "ahead": float}.

    Args:
        n_layers: number of equal layers.
        gather, compute: seconds of one layer.
    """
    ### BEGIN SOLUTION
    return {
        "waiting": n_layers * (gather + compute),
        "ahead": gather + (n_layers - 1) * max(gather, compute) + compute,
    }
    ### END SOLUTION


# %% test="forward_seconds-visible" points=1
check.forward_seconds(forward_seconds)

# %% test="forward_seconds-hidden" points=1
### BEGIN HIDDEN TESTS
check.forward_seconds(forward_seconds, seed=33)
### END HIDDEN TESTS

# %% tags=["experiment"]
forward_seconds_now = course.solved(check.forward_seconds)
predicted_ms = []
clock_ms = []
for factor in (0.25, 1.0, 4.0):
    network = Network(0.0, sharded_layers.BALANCED.bandwidth * factor)
    run = simulate_collectives(sharded_layers.timed_forward, 4, network, gathered_ahead_now, 8)
    clock = round(run.seconds, 9)
    ahead = forward_seconds_now(8, 1 / factor, 1.0)["ahead"]
    clock_ms.append(clock)
    predicted_ms.append(ahead)
    print(f"network {factor:g} times as fast as computing: {clock:g} ms, predicted {ahead:g} ms")
course.claim(
    "the clock of gathers one layer ahead shows exactly the predicted time",
    predicted_ms == clock_ms,
)

# %% [markdown]
# **Shown** by the clock: gathering sets the time on a slow network, and computing sets it on a fast one.
#
# **Takeaway** With overlap, each layer but one costs the longer of gather and compute. Add the first gather and the
# last computation.
