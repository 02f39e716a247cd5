# %% [markdown]
# # Data parallel, part 7: Shard the training
#
# **If every rank ends a step with the same weights, why does each of them keep the whole state of the optimizer?**
#
# Under DistributedDataParallel, N ranks hold N copies of weights, gradients and optimizer state. With sharding, each
# rank keeps 1/N of some of them, so larger models fit. You write the all-gather, the optimizer's step and the gradient
# that make this work.
#
# **You will be able to**
#
# - say what a rank keeps and sends, in bytes, under DDP and under each stage of ZeRO
# - write an optimizer that keeps 1/N of its state on each rank
# - tell whether a model fits, and use `fully_shard`
#
# **Minutes** 0 core · 70 in all
#
# **Needs** part 1 (the ring) and a look at part 2 (what DDP keeps equal)

# %% locked="setup"
import inspect

import torch
import torch.distributed as dist
from torch import nn

import course
from course.checks import data_parallel as check
from course.parallel import sharded_training
from course.parallel.distributed import run_ranks
from course.plots import data_parallel as plots

print(course.machine())
sizes = course.sizes("02_data_parallel")

# %% [markdown]
# ## Does it fit? · extra
#
# **How many bytes does one parameter need?**
#
# You train a model of 7 billion parameters with Adam in mixed precision: forward and backward in 16 bits, the update
# in float32. Rajbhandari et al. (2020, arXiv:1910.02054, section 3.1) count the bytes per parameter:
#
# | what | bytes | why |
# |---|---|---|
# | weights | 2 | 16 bits, for forward and backward |
# | gradients | 2 | 16 bits |
# | optimizer | 12 | float32: a copy of the weights, Adam's mean and its mean of squares, 4 each |
#
# *ZeRO* ("zero redundancy optimizer") shards in stages. In stage 1, each of N ranks keeps 1/N of the optimizer's state;
# in stage 2, also 1/N of the gradients; in stage 3, also 1/N of the weights. Stage 0 is DDP.
#
# **Predict**: which is the first stage in which the model fits on 8 GPUs with 80 GB each? Leave 25 GB for activations.

# %%
predicted_stage = None  # 0, 1, 2 or 3

# %% tags=["experiment"]
n_gpus = 8
parameters = 7e9
room = (80 - 25) * 1e9  # bytes per GPU without activations

bytes_per_parameter = {  # of each stage
    0: 2 + 2 + 12,
    1: 2 + 2 + 12 / n_gpus,
    2: 2 + (2 + 12) / n_gpus,
    3: (2 + 2 + 12) / n_gpus,
}
fitting = []
for stage, n_bytes in bytes_per_parameter.items():
    needed = parameters * n_bytes
    verdict = "too large"
    if needed < room:
        verdict = "fits"
        fitting.append(stage)
    print(
        f"stage {stage}: {n_bytes:5.2f} bytes per parameter,",
        f"{needed / 1e9:5.1f} GB per GPU: {verdict}",
    )
first = min(fitting)
print(course.score("02/7", "the first stage that fits", predicted_stage, first, null=None))

# %% [markdown]
# **Known** (Rajbhandari et al. 2020, section 3.2): activations come on top, and checkpointing them saves most of their
# memory (unit 06). The three stages do not shrink them.
#
# **Takeaway** Of these 16 bytes per parameter, 12 belong to the optimizer. Shard that first.

# %% [markdown]
# ## What is half an all-reduce? · extra
#
# Sharding needs the two halves of an all-reduce one by one: the *reduce-scatter* and the *all-gather*. `reduce_scatter`
# below is the first phase of a ring as a function. The ring of part 1 left piece r + 1 of the sum on rank r. This one
# starts one piece earlier and leaves piece r on rank r, so that the pieces are in the order of ranks. Such pieces, 1/N
# of a vector, are called *shards*.


# %% locked="reduce_scatter"
def exchange(outgoing, incoming):
    """Send `outgoing` to the next rank of the ring while receiving into `incoming` from the one before."""
    rank = dist.get_rank()
    world_size = dist.get_world_size()
    sending = dist.isend(outgoing, (rank + 1) % world_size)
    receiving = dist.irecv(incoming, (rank - 1) % world_size)
    sending.wait()
    receiving.wait()


def reduce_scatter(flat):
    """Piece r, for rank r, of the sum over all ranks of the vector `flat`, whose length N divides."""
    rank = dist.get_rank()
    world_size = dist.get_world_size()
    pieces = flat.clone().chunk(world_size)
    for step in range(1, world_size):
        outgoing = pieces[(rank - step) % world_size]
        target = pieces[(rank - step - 1) % world_size]
        incoming = torch.empty_like(target)
        exchange(outgoing, incoming)
        target.add_(incoming)
    return pieces[rank].clone()


# %% [markdown]
# ### Exercise 1 · All-gather
#
# Write the other half. On 3 ranks with shards [1, 2], [3, 4] and [5, 6], all return [1, 2, 3, 4, 5, 6].
#
# **Points** 2 · **Extra** · **Difficulty** ●○○ · **Minutes** 10 · **Lines** 6
#
# **Must**
#
# - return a new vector: the shards of all ranks, in the order of ranks
# - leave `shard` as it is
# - send N - 1 messages of one shard per rank, to the next rank of the ring
#
# **You may assume** a contiguous vector of one length and dtype on all ranks. You can use `exchange`.
#
# **Not allowed** Any collective: use only point-to-point calls.
#
# **Source** Patarasuk and Yuan 2009, as the ring of part 1.
#
# <details><summary>Hint 1</summary>
#
# Which shard does a rank have at the start, and at which place of the result? What it receives, it sends next.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `pieces = shard.repeat(world_size).chunk(world_size)` are N views of the result. In step s, from 0, send piece
# `(rank - s) % N` and receive into piece `(rank - s - 1) % N`; at the end `torch.cat(pieces)`.
#
# </details>


# %% solution="all_gather"
def all_gather(shard):
    """The shards of all ranks in one new vector, in the order of ranks; like `shard`, N times as long."""
    ### BEGIN SOLUTION
    rank = dist.get_rank()
    world_size = dist.get_world_size()
    pieces = shard.repeat(world_size).chunk(world_size)  # this rank's piece is right already
    for step in range(world_size - 1):
        exchange(pieces[(rank - step) % world_size], pieces[(rank - step - 1) % world_size])
    return torch.cat(pieces)
    ### END SOLUTION


# %% test="all_gather-visible" points=1
check.all_gather(all_gather)

# %% test="all_gather-hidden" points=1
### BEGIN HIDDEN TESTS
check.all_gather(all_gather, seed=252)
### END HIDDEN TESTS

# %% [markdown]
# ## Why does every rank update all weights? · extra
#
# Under DDP every rank holds the mean gradient, so N ranks compute the same update. In stage 1 of ZeRO, rank r gets
# shard r of the mean gradient and updates shard r of the weights. Then an all-gather copies all weights to all ranks.
#
# `Flat` puts all parameters of a module into one vector and their gradients into another. It pads both, so that N
# divides their length:

# %%
print(inspect.getsource(sharded_training.Flat))

# %% [markdown]
# ### Exercise 2 · A sharded optimizer
#
# Write the step of ZeRO stage 1. Suppose that 2 ranks use SGD with a learning rate of 1 and have the gradients [2, 0]
# and [4, 6]. Then the weights [0, 0] become [-3, -3] on both.
#
# **Points** 3 · **Extra** · **Difficulty** ●●○ · **Minutes** 15 · **Lines** 3
#
# **Must**
#
# - give `self.shard` its part of the *mean* gradient over the ranks, and let `self.optimizer` take its step
# - write the new weights of all ranks into `self.weights`
# - call `self.reduce_scatter` and `self.all_gather` once each
#
# **You may assume** `self.grads` holds this rank's gradients when `step` is called, at least one number per rank
# (`Flat` pads). `self.shard` shares its memory with its part of `self.weights`.
#
# **Source** Rajbhandari et al. 2020, arXiv:1910.02054, section 5.1.
#
# <details><summary>Hint 1</summary>
#
# Which of the two collectives comes before the update, and which after it? What makes a sum a mean?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `self.shard.grad = self.reduce_scatter(self.grads) / dist.get_world_size()`, then the optimizer's step, then
# `self.weights.copy_(...)` with the gathered shards; `self.shard.detach()` has no graph.
#
# </details>


# %% solution="ShardedOptimizer"
class ShardedOptimizer:
    """An optimizer that updates one shard of the weights per rank: ZeRO stage 1.

    Args:
        weights, grads: vectors of all weights and of this rank's gradients; N divides their length.
        make_optimizer: function of a list of parameters.
        reduce_scatter, all_gather: the halves of an all-reduce.
    """

    def __init__(self, weights, grads, make_optimizer, reduce_scatter, all_gather):
        self.weights, self.grads = weights, grads
        self.reduce_scatter, self.all_gather = reduce_scatter, all_gather
        self.shard = nn.Parameter(weights.chunk(dist.get_world_size())[dist.get_rank()])
        self.optimizer = make_optimizer([self.shard])

    def step(self):
        """None; afterwards `weights` of every rank holds the updated weights."""
        ### BEGIN SOLUTION
        self.shard.grad = self.reduce_scatter(self.grads) / dist.get_world_size()
        self.optimizer.step()
        self.weights.copy_(self.all_gather(self.shard.detach()))
        ### END SOLUTION


# %% test="ShardedOptimizer-visible" points=1
check.ShardedOptimizer(ShardedOptimizer)

# %% test="ShardedOptimizer-hidden" points=2
### BEGIN HIDDEN TESTS
check.ShardedOptimizer(ShardedOptimizer, seed=363)
### END HIDDEN TESTS

# %% [markdown]
# ## Can the weights be shards, too? · extra
#
# If the weights alone do not fit, you can shard them, too. Stage 2 shards the gradients, and stage 3 also the weights.
# Each layer then gathers its weights when it needs them. One fact makes the code short: the gradient of "gather the
# shards" is "reduce-scatter the gradients".
#
# ### Exercise 3 · Gather, and scatter back
#
# Write the forward and the backward of an autograd function. Forward gathers shards, and backward returns the gradient
# of this rank's shard.
#
# **Points** 3 · **Extra** · **Difficulty** ●●○ · **Minutes** 15 · **Lines** 2
#
# **Must**
#
# - return all shards, one vector, as `all_gather` gives them
# - give `shard` its part of the *mean* gradient over the ranks in backward
# - call `all_gather` once in forward and `reduce_scatter` once in backward
#
# **You may assume** all ranks run the same layers in the same order.
#
# **Source** Zhao et al. 2023, "PyTorch FSDP: experiences on scaling fully sharded data parallel", arXiv:2304.11277,
# section 3.
#
# <details><summary>Hint 1</summary>
#
# `grad` has the length of what `forward` returned. Which of the two functions makes a shard of it, over all ranks?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `backward` sees the arguments of `gathered`, as `forward` does: `reduce_scatter(grad) / dist.get_world_size()`.
#
# </details>


# %% solution="gathered"
def gathered(shard, reduce_scatter, all_gather):
    """The shards of all ranks, a vector with a graph: backward gives `shard` its part of the mean gradient."""

    class Gather(torch.autograd.Function):
        @staticmethod
        def forward(ctx, shard):
            """The shards of all ranks."""
            ### BEGIN SOLUTION
            return all_gather(shard)
            ### END SOLUTION

        @staticmethod
        def backward(ctx, grad):
            """The gradient of `shard`; `grad` is that of all shards, on this rank."""
            ### BEGIN SOLUTION
            return reduce_scatter(grad) / dist.get_world_size()
            ### END SOLUTION

    return Gather.apply(shard)


# %% test="gathered-visible" points=1
check.gathered(gathered)

# %% test="gathered-hidden" points=2
### BEGIN HIDDEN TESTS
check.gathered(gathered, seed=474)
### END HIDDEN TESTS

# %% [markdown]
# The rest is given:

# %%
print(inspect.getsource(sharded_training.ShardedUnit))

# %% [markdown]
# In stage 3, *we* free the gathered weights with torch's `checkpoint`. It throws away all that the layer saved,
# including these weights, and runs the layer's forward again before its backward. So the weights are gathered twice,
# and forward is computed twice.
#
# Torch's `fully_shard(layer)` can also free the gathered weights after forward and gather them again for backward. But
# it keeps the activations, so it does **not** compute twice.

# %% [markdown]
# ## What does a rank keep, and what does it send? · extra
#
# **Predict** for four ranks with Adam, in float32: how many times fewer bytes does a rank keep in stage 1 than with
# DDP? And how many times as many bytes does it send in stage 3?

# %%
predicted_saving = None  # a factor
predicted_sending = None  # a factor

# %% [markdown]
# ### Exercise 4 · The bytes of a stage
#
# Compute the bytes that one rank keeps of "parameters", "gradients" and "optimizer" (its state), and the bytes "sent"
# in one step, with rings. Stage 0 is DDP. The optimizer is sharded from stage 1 on, gradients from stage 2 on, and
# parameters in stage 3. Stage 3 gathers them before forward and again before backward.
#
# ```python
# >>> sharded_bytes(100, world_size=4, stage=1)
# {'parameters': 400, 'gradients': 400, 'optimizer': 200.0, 'sent': 600.0}
# ```
#
# **Points** 2 · **Extra** · **Difficulty** ●○○ · **Minutes** 12 · **Lines** 9
#
# **Must** return a dict of the four numbers.
#
# **You may assume** float32, and Adam with two numbers per parameter. Gathered weights, headers, and what lives only
# inside the optimizer's step do not count.
#
# **Source** Rajbhandari et al. 2020, sections 5 (memory) and 7 (communication).
#
# <details><summary>Hint 1</summary>
#
# How many halves of an all-reduce does each stage run, and how many bytes does a rank send in one of them?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# A half sends `(N - 1) / N` of `4 * n_parameters` bytes. DDP, stage 1 and stage 2: two halves; stage 3: three.
#
# </details>


# %% solution="sharded_bytes"
def sharded_bytes(n_parameters, world_size, stage):
    """Bytes of one rank, a dict with the keys "parameters", "gradients", "optimizer" and "sent" (in one step).

    Args:
        n_parameters: parameters of the model.
        world_size: number of ranks, which divides them.
        stage: 0 (DDP), 1, 2 or 3.
    """
    ### BEGIN SOLUTION
    whole = 4 * n_parameters
    shard = whole / world_size
    return {
        "parameters": shard if stage >= 3 else whole,
        "gradients": shard if stage >= 2 else whole,
        "optimizer": 2 * (shard if stage >= 1 else whole),
        "sent": (3 if stage == 3 else 2) * (whole - shard),
    }
    ### END SOLUTION


# %% test="sharded_bytes-visible" points=1
check.sharded_bytes(sharded_bytes)

# %% test="sharded_bytes-hidden" points=1
### BEGIN HIDDEN TESTS
check.sharded_bytes(sharded_bytes, seed=585)
### END HIDDEN TESTS

# %% [markdown]
# Now the same training runs in all stages, on four ranks of the virtual network, which counts every message. Memory is
# read from the tensors that a rank holds: weights after forward, gradients and the optimizer's state after the step. In
# stage 1, only `step` needs the shard of the mean gradient, so the training frees it there.

# %% tags=["experiment"]
answers = sharded_training.Answers(
    reduce_scatter,
    course.solved(check.all_gather),
    course.solved(check.ShardedOptimizer),
    course.solved(check.gathered),
)
sharded_bytes_now = course.solved(check.sharded_bytes)
n_ranks = 4
n_parameters = sharded_training.n_parameters()

counted = {}  # {stage: {"parameters", "gradients", "optimizer", "sent": bytes of a rank}}
predicted = {}
for stage in sharded_training.STAGES:
    counted[stage] = sharded_training.counted_stage(n_ranks, stage, answers)
    predicted[stage] = sharded_bytes_now(n_parameters, n_ranks, stage)


# %% tags=["experiment"]
kept_by_ddp = sharded_training.kept_bytes(counted[0])
kept_in_stage_1 = sharded_training.kept_bytes(counted[1])
sent_over_ddp = [counted[stage]["sent"] / counted[0]["sent"] for stage in (1, 2, 3)]
saving = kept_by_ddp / kept_in_stage_1
off = sharded_training.relative_errors(counted, predicted)
del off[2, "parameters"]  # the first layer's gathered weights are freed before backward
is_as_predicted = max(off.values()) < 0.005

print(course.score("02/7", "bytes kept by DDP over stage 1", predicted_saving, saving))
print(course.score("02/7", "bytes sent by stage 3 over DDP", predicted_sending, sent_over_ddp[2]))
print(
    f"stage 1 cuts what a rank keeps from {kept_by_ddp / 1e3:.0f}",
    f"to {kept_in_stage_1 / 1e3:.0f} kB",
)
course.claim(
    "stages 1 and 2 send as many bytes as DDP, stage 3 sends 1.5 times as many",
    [round(ratio, 2) for ratio in sent_over_ddp] == [1, 1, 1.5],
    "{:.3f}, {:.3f}, {:.3f}".format(*sent_over_ddp),
)
course.claim(
    "kept and sent bytes are those predicted, within 0.5 %, the gathered weights of stage 2 aside",
    is_as_predicted,
    f"{n_parameters:,} parameters",
)
plots.sharded_memory(counted, predicted)

# %% [markdown]
# Stage 1 sends as much as DDP, because both run a reduce-scatter and an all-gather. Stage 2 keeps less than predicted:
# the first layer's gathered weights are freed early, because backward does not need them.
#
# Bytes are not time. DDP's all-reduce overlaps with backward, but stage 1's all-gather waits for the update.
#
# **Takeaway** Sharding the optimizer saves memory and sends no extra bytes. Sharding the weights costs one more
# all-gather per step.

# %% [markdown]
# ## Does torch's `fully_shard` do the same? · extra
#
# Two real ranks train with torch's DDP, in all four stages by hand, and with `fully_shard` (FSDP2). `fully_shard`
# replaces each parameter of a layer by a shard and gathers it around the layer's forward and backward. The code is
# short: call `fully_shard(layer)` for each layer, then for the model.

# %% tags=["experiment"]
steps = sizes.shard_steps

of_ranks = run_ranks(sharded_training.differences_to_ddp, 2, steps, answers, backend="gloo")
differences, shard_bytes = of_ranks[0]
moved = differences.pop("start")
largest = max(differences.values())

each = ", ".join(f"{way} {difference:.1e}" for way, difference in differences.items())
print(
    f"after {steps} steps weights have moved by up to {moved:.1e};",
    f"the largest difference to DDP: {each}",
)
ddp_bytes = 4 * n_parameters
print(f"bytes of weights on a rank: DDP {ddp_bytes:,}, fully_shard {shard_bytes:,}")
course.claim(
    "all stages and fully_shard reach the weights of DistributedDataParallel to 1e-5",
    round(largest, 5) == 0,
    f"{largest:.1e}",
    otherwise="Compare the difference with how far the weights have moved.",
)

# %% [markdown]
# | with `fully_shard` | what it does |
# |---|---|
# | `reshard_after_forward=False` | keeps gathered weights until backward, as our stage 2 does |
# | `mp_policy=MixedPrecisionPolicy(...)` | gathers and computes in bfloat16, for example; the shards keep their dtype |
# | `offload_policy=CPUOffloadPolicy()` | keeps the shards in the memory of the CPU |
# | `layer.set_modules_to_forward_prefetch([...])` | starts to gather these layers before this one computes |
# | `torch.distributed.checkpoint` | saves each rank's shards, and can load them on another number of ranks |
#
# **Takeaway** `fully_shard(layer)` for each layer, then for the model, replaces DDP. It trained to the same weights
# here, and each rank keeps a shard of them.
