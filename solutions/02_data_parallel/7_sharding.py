# %% [markdown]
# # Data parallel, part 7: Shard the training in forty lines
#
# **If every rank ends a step with the same weights, why does each of them keep all of the optimizer?**
#
# N ranks of DistributedDataParallel hold N copies of weights, gradients and optimizer state. You write sharded ones.
#
# **You will be able to**
#
# - say what a rank keeps and sends under DDP and under each stage of ZeRO, in bytes
# - write an optimizer that keeps 1/N of its state on each rank
# - use `fully_shard`, and say what it costs in messages
#
# **Minutes** 0 core · 75 in all
#
# **Needs** part 8 (the ring) and a look at part 2 (what DDP keeps equal)

# %% locked="setup"
from collections import Counter
from functools import partial

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.func import functional_call
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

import course
from course.checks import data_parallel as check
from course.learner.predictions import reveal
from course.parallel import network
from course.parallel.distributed import run_ranks
from course.parallel.network import Network
from course.plots import data_parallel as plots

print(course.machine())
sizes = course.sizes("02_data_parallel")

# %% [markdown]
# ## What is half an all-reduce? · extra
#
# A ring's all-reduce is a *reduce-scatter* and then an *all-gather*. `reduce_scatter` is the first phase of your ring
# as a function: it returns piece r of the sum on rank r. Such pieces, 1/N of a vector, are called *shards*.


# %% locked="reduce_scatter"
def exchange(outgoing, incoming):
    """Send `outgoing` to the next rank of the ring while receiving into `incoming` from the one before."""
    rank, world_size = dist.get_rank(), dist.get_world_size()
    requests = dist.isend(outgoing, (rank + 1) % world_size), dist.irecv(incoming, (rank - 1) % world_size)
    for request in requests:
        request.wait()


def reduce_scatter(flat):
    """Piece r, for rank r, of the sum over all ranks of the vector `flat`, whose length N divides."""
    rank, world_size = dist.get_rank(), dist.get_world_size()
    pieces = flat.clone().chunk(world_size)
    for step in range(1, world_size):
        part = torch.empty_like(pieces[0])
        exchange(pieces[(rank - step) % world_size], part)
        pieces[(rank - step - 1) % world_size].add_(part)
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
# **Source** Patarasuk and Yuan 2009, as the ring of part 8.
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
    rank, world_size = dist.get_rank(), dist.get_world_size()
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
# Under DDP every rank holds the mean gradient, so N ranks compute the same update. In stage 1 of ZeRO ("zero redundancy
# optimizer", Rajbhandari et al. 2020), rank r gets shard r of the mean gradient, updates shard r of the weights, and
# the weights are gathered. `Flat` puts all parameters of a module into one vector and their gradients into another,
# both padded to a length that N divides.


# %% locked="flat"
class Flat:
    """Parameters of a module as views of one vector `weights`, gradients as views of `grads`; padded with zeros."""

    def __init__(self, module, world_size):
        length = sum(p.numel() for p in module.parameters())
        self.weights = torch.zeros(-(-length // world_size) * world_size)
        self.grads = torch.zeros_like(self.weights)
        start = 0
        for p in module.parameters():
            part = slice(start, start + p.numel())
            self.weights[part] = p.detach().flatten()
            p.data, p.grad = self.weights[part].view_as(p), self.grads[part].view_as(p)
            start = part.stop


# %% [markdown]
# ### Exercise 2 · A sharded optimizer
#
# Write the step of ZeRO stage 1. With 2 ranks, SGD with a learning rate of 1 and the gradients [2, 0] and [4, 6], the
# weights [0, 0] become [-3, -3] on both.
#
# **Points** 3 · **Extra** · **Difficulty** ●●○ · **Minutes** 15 · **Lines** 3
#
# **Must**
#
# - give `self.shard` its part of the *mean* gradient over the ranks, and let `self.optimizer` take its step
# - write the new weights of all ranks into `self.weights`
# - call `self.reduce_scatter` and `self.all_gather` once each
#
# **You may assume** `self.grads` holds this rank's gradients when `step` is called. `self.shard` shares its memory with
# its part of `self.weights`.
#
# **Source** Rajbhandari et al. 2020, arXiv:1910.02054, section 5.1.
#
# <details><summary>Hint 1</summary>
#
# Which of the two collectives comes before the update, which after it? And what makes a sum a mean?
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
# Stage 2 also shards the gradients, and stage 3 the weights: each layer gathers its weights when it needs them. One
# fact makes the code short: the gradient of "gather the shards" is "reduce-scatter the gradients".
#
# ### Exercise 3 · Gather, and scatter back
#
# Write the two halves of an autograd function that gathers shards and returns to each shard its gradient. What
# `backward` returns becomes the gradient of the shard.
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
# The rest is given. In stage 3, `checkpoint` throws away what the layer saved and runs its forward again before its
# backward, so the weights are gathered twice.


# %% locked="sharded_unit"
class ShardedUnit(nn.Module):
    """A layer of which this rank keeps one shard; `keep` leaves the gathered weights there until backward (stage 2)."""

    def __init__(self, module, keep, gather, halves):
        super().__init__()
        world_size, rank = dist.get_world_size(), dist.get_rank()
        self.shapes = {name: p.shape for name, p in module.named_parameters()}
        self.shard = nn.Parameter(Flat(module, world_size).weights.chunk(world_size)[rank].clone())
        self.keep, self.gather = keep, lambda: gather(self.shard, *halves)
        self.layer = [module.to("meta")]  # in a list: its parameters are not those of this module

    def compute(self, x):
        flat, start, parameters = self.gather(), 0, {}
        for name, shape in self.shapes.items():
            parameters[name] = flat[start : start + shape.numel()].view(shape)
            start += shape.numel()
        return functional_call(self.layer[0], parameters, (x,))

    def forward(self, x):
        if self.keep:
            return self.compute(x)
        return checkpoint(self.compute, x, use_reentrant=False, preserve_rng_state=False)


# %% [markdown]
# ## What does a rank keep, and what does it send? · extra
#
# Predict for four ranks with Adam, in float32: how many times fewer bytes than with DDP does a rank keep in stage 1,
# and how many times as many bytes does it send in stage 3?

# %%
predicted_saving = None  # a factor
predicted_sending = None  # a factor

# %% [markdown]
# ### Exercise 4 · The bytes of a stage
#
# Predict the bytes that one rank keeps of "parameters", "gradients" and "optimizer" (its state), and the bytes that it
# has "sent" after one step, by rings. Stage 0 is DDP. The optimizer is sharded from stage 1 on, gradients from stage 2
# on, parameters in stage 3, which gathers them before forward and again before backward.
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
# **You may assume** float32, and Adam with two numbers per parameter. Gathered weights and headers do not count.
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
# Now the same training in all stages, on four ranks of the virtual network, which counts every message. Memory is read
# from the tensors.

# %% tags=["experiment"]
gather_now, sharded_now = course.solved(check.all_gather), course.solved(check.ShardedOptimizer)
gathered_now, predict_bytes = course.solved(check.gathered), course.solved(check.sharded_bytes)
adam = partial(torch.optim.Adam, lr=1e-3)


def layers():
    """A small model as a list of layers, the same on every rank."""
    torch.manual_seed(0)
    wide = [nn.Sequential(nn.Linear(128, 128), nn.Tanh()) for _ in range(3)]
    return [*wide, nn.Linear(128, 16)]


def batch(rank, step):
    """Inputs and labels of one rank."""
    rng = torch.Generator().manual_seed(1000 * step + rank)
    return torch.randn(32, 128, generator=rng), torch.randint(16, (32,), generator=rng)


def state_bytes(optimizer):
    """Bytes of the vectors that an optimizer keeps."""
    return sum(v.nbytes for state in optimizer.state.values() for v in state.values() if v.dim())


def prepared(stage, alive):
    """(model, optimizer, what to call after backward, function of bytes of weights, of gradients) of this rank."""

    def watched(shard):
        whole = gather_now(shard)
        alive.append(StorageWeakRef(whole.untyped_storage()))
        return whole

    world_size = dist.get_world_size()
    if stage < 2:
        model = nn.Sequential(*layers())
        flat = Flat(model, world_size)
        if stage == 1:
            optimizer = sharded_now(flat.weights, flat.grads, adam, reduce_scatter, gather_now)
            return model, optimizer, lambda: None, lambda: flat.weights.nbytes, lambda: flat.grads.nbytes

        def all_reduce():
            flat.grads.copy_(gather_now(reduce_scatter(flat.grads)) / world_size)

        return model, adam(model.parameters()), all_reduce, lambda: flat.weights.nbytes, lambda: flat.grads.nbytes
    units = [ShardedUnit(layer, stage == 2, gathered_now, (reduce_scatter, watched)) for layer in layers()]
    model = nn.Sequential(*units)

    def weight_bytes():
        kept = zip(units, alive, strict=False) if alive else ((unit, None) for unit in units)
        # while a layer is gathered, its shard is a part of it
        return sum(u.shard.nbytes * (world_size if ref and not ref.expired() else 1) for u, ref in kept)

    return model, adam(model.parameters()), lambda: None, weight_bytes, lambda: sum(u.shard.grad.nbytes for u in units)


def train(rank, world_size, stage, steps):
    """(all weights after some steps, bytes that are kept) of one rank."""
    alive, kept = [], {}
    model, optimizer, after_backward, weight_bytes, grad_bytes = prepared(stage, alive)
    for step in range(steps):
        inputs, labels = batch(rank, step)
        model.zero_grad(set_to_none=stage > 1)  # before stage 2 gradients are views of one vector
        alive.clear()
        loss = F.cross_entropy(model(inputs), labels)
        kept["parameters"] = weight_bytes()
        loss.backward()
        kept["gradients"] = grad_bytes()
        after_backward()
        optimizer.step()
    kept["optimizer"] = state_bytes(getattr(optimizer, "optimizer", optimizer))
    if stage < 2:
        return torch.cat([p.detach().flatten() for p in model.parameters()]), kept
    return torch.cat([gather_now(u.shard.detach()) for u in model]), kept


n_ranks, steps = 4, sizes.shard_steps
n_parameters = sum(p.numel() for layer in layers() for p in layer.parameters())
counted, predicted = {}, {}
for stage in range(4):
    once, more = (
        network.simulate(train, n_ranks, Network(0.0, 1e9), stage, n) for n in (1, 2)
    )  # the difference is one step: the last gathering of the weights does not count
    sent = Counter()
    for run, sign in ((once, -1), (more, 1)):
        for message in run.messages:
            sent[message.source] += sign * message.n_bytes
    counted[stage] = more.results[0][1] | {"sent": max(sent.values())}
    predicted[stage] = predict_bytes(n_parameters, n_ranks, stage)
    print(f"stage {stage}: " + ", ".join(f"{k} {v:,} (predicted {predicted[stage][k]:,.0f})"
                                        for k, v in counted[stage].items()))  # fmt: skip
kept = {stage: sum(v for k, v in of.items() if k != "sent") for stage, of in counted.items()}
saving, sending = kept[0] / kept[1], counted[3]["sent"] / counted[0]["sent"]
print(f"stage 1 keeps {saving:.2f} times fewer bytes than DDP{reveal(predicted_saving)}, "
      f"stage 3 sends {sending:.2f} times as many{reveal(predicted_sending)}")  # fmt: skip
course.claim(
    "stages 1 and 2 send as many bytes as DDP, stage 3 sends 1.5 times as many",
    all(abs(counted[s]["sent"] / counted[0]["sent"] - r) < 0.01 for s, r in ((1, 1), (2, 1), (3, 1.5))),
    ", ".join(f"{counted[s]['sent'] / counted[0]['sent']:.3f}" for s in (1, 2, 3)),
)
others = [(stage, k) for stage in counted for k in counted[stage] if (stage, k) != (2, "parameters")]
course.claim(
    "kept and sent bytes are those predicted, within 1 %, the gathered weights of stage 2 aside",
    all(abs(counted[stage][k] / predicted[stage][k] - 1) < 0.01 for stage, k in others),
    f"{n_parameters:,} parameters",
)
plots.sharded_memory(counted, predicted)

# %% [markdown]
# Stage 1 sends as much as DDP: both run a reduce-scatter and an all-gather. Stage 2 keeps less than predicted: backward
# does not need the first layer's weights.
#
# **Takeaway** A sharded optimizer kept 1.6 times fewer bytes and sent nothing more. Sharded weights kept a quarter of
# everything and sent 1.5 times as much.

# %% [markdown]
# ## Does torch's `fully_shard` do the same? · extra
#
# Two real ranks train with torch's DDP, in all four stages by hand, and with `fully_shard` (FSDP2), which replaces each
# parameter of a layer by a shard and gathers it around the layer's forward and backward.


# %% tags=["experiment"]
def trained(model, rank, steps):
    """`model`, which averages its gradients in backward, after some steps."""
    optimizer = adam(model.parameters())
    for step in range(steps):
        inputs, labels = batch(rank, step)
        optimizer.zero_grad()
        F.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
    return model


def with_fully_shard(world_size, rank, steps):
    """(all weights, bytes of them that this rank keeps) after some steps with torch's own sharding."""
    model, mesh = nn.Sequential(*layers()), init_device_mesh("cpu", (world_size,))
    for layer in model:
        fully_shard(layer, mesh=mesh)
    trained(fully_shard(model, mesh=mesh), rank, steps)
    weights = torch.cat([p.full_tensor().detach().flatten() for p in model.parameters()])
    return weights, sum(p.to_local().nbytes for p in model.parameters())


def compared(rank, world_size, steps):
    """({way: largest difference of any weight to torch's DDP}, bytes of weights that fully_shard keeps)."""
    model = trained(DistributedDataParallel(nn.Sequential(*layers())), rank, steps)
    theirs = torch.cat([p.detach().flatten() for p in model.parameters()])
    started = torch.cat([p.detach().flatten() for layer in layers() for p in layer.parameters()])
    ours = {f"stage {stage}": train(rank, world_size, stage, steps)[0] for stage in range(4)}
    sharded, kept = with_fully_shard(world_size, rank, steps)
    ways = {"start": started, **ours, "fully_shard": sharded}
    return {way: (theirs - weights).abs().max().item() for way, weights in ways.items()}, kept


differences, kept = run_ranks(compared, 2, steps, backend="gloo")[0]
moved = differences.pop("start")
print(f"after {steps} steps weights have moved by up to {moved:.1e}; the largest difference to DDP: "
      + ", ".join(f"{way} {d:.1e}" for way, d in differences.items()))  # fmt: skip
print(f"bytes of weights on a rank: DDP {4 * n_parameters:,}, fully_shard {kept:,}")
course.claim(
    "all stages and fully_shard reach the weights of DistributedDataParallel to 1e-5",
    max(differences.values()) < 1e-5,
    f"{max(differences.values()):.1e}",
    otherwise="Compare the difference with how far the weights have moved.",
)

# %% [markdown]
# After 5 steps all differences to DDP were 0. `reshard_after_forward=False` keeps gathered weights until backward
# (stage 2).
#
# **Takeaway** `fully_shard(layer)` for each layer and then for the model replaces DDP. On two ranks it gave the same
# weights, half of them per rank.
