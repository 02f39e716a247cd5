# %% [markdown]
# # Data parallel, part 3: Keep the mean right
#
# **When do N ranks train differently from one process with an N times larger batch?**
#
# Here are four ways to get the mean wrong without an error.
#
# **You will be able to**
#
# - deal out a data set to ranks as `DistributedSampler` does
# - accumulate gradients over micro-batches, and send once per update
# - give each rank's loss and moments their weight
#
# **Minutes** 0 core · 100 in all
#
# **Needs** part 1 (`run_ranks`); part 2 helps

# %% locked="setup"
import contextlib
import itertools
import math

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.utils.data import Sampler

import course
from course.checks import data_parallel as check
from course.learner.predictions import reveal
from course.parallel.distributed import run_ranks
from course.plots import data_parallel as plots

print(course.machine())

# %% [markdown]
# ## Who gets which sample? · extra
#
# All ranks draw the same permutation from `seed + epoch`, and each takes every `world_size`-th item of it. This needs
# no communication. All ranks must get equally many samples, because every step waits for all of them. So some samples
# are used twice (padding, the default) or some are left out (`drop_last`).

# %% [markdown]
# ### Exercise 1 · The shard of a rank
#
# Write what `torch.utils.data.DistributedSampler` does. Rank r takes the items at places r, r + `world_size`, ... of
# the common order:
#
# ```python
# >>> [list(ShardSampler(5, world_size=2, rank=rank, shuffle=False)) for rank in range(2)]
# [[0, 2, 4], [1, 3, 0]]
# ```
#
# **Points** 4 · **Extra** · **Difficulty** ●●○ · **Minutes** 25 · **Lines** 12
#
# **Must**
#
# - order the items 0, 1, 2, ... or, with `shuffle`, by `torch.randperm` with a new CPU generator seeded with
#   `seed + epoch`
# - make the length a multiple of `world_size`: repeat the order from its start, as often as needed, or with `drop_last`
#   cut its end
# - yield ints, and return their number from `len()`
#
# **Raises** ValueError for a rank outside 0 to `world_size` - 1.
#
# **Not allowed** `torch.utils.data.DistributedSampler`, also as a base class.
#
# **Source** PyTorch documentation of `torch.utils.data.distributed.DistributedSampler`.
#
# <details><summary>Hint 1</summary>
#
# What must all ranks have in common so that no sample is drawn by two of them? And what happens to that if the seed
# holds the rank?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# The length comes first: `n_items` divided by `world_size`, rounded down with `drop_last`, else up. The length
# times `world_size` is how many positions the order has after padding or cutting. Draw the order in `__iter__`, with a
# generator that is made there: then it depends on `seed` and `epoch` alone.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# `itertools.cycle(order)` repeats from the start, and `itertools.islice(it, start, stop, step)` takes
# positions of it. With `stop = len(self) * self.world_size` this pads, and cuts too.
#
# </details>


# %% solution="ShardSampler"
class ShardSampler(Sampler):
    """The indices that one rank uses in an epoch, as an iterable of int.

    Args:
        n_items: length of the dataset, 0 or more.
        world_size: number of ranks.
        rank: which of them this is, from 0 to world_size - 1.
        shuffle: whether the order is a permutation drawn from `seed` + epoch; else it is 0, 1, 2, ...
        seed: int, the same on all ranks.
        drop_last: leave out the last places, instead of repeating the first ones, to give all ranks equally many.

    Raises: ValueError if there is no such rank.
    """

    def __init__(self, n_items, world_size, rank, shuffle=True, seed=0, drop_last=False):
        ### BEGIN SOLUTION
        if not 0 <= rank < world_size:
            raise ValueError(f"ranks go from 0 to {world_size - 1}, found {rank}; pass the rank of this process.")
        self.n_items, self.world_size, self.rank = n_items, world_size, rank
        self.shuffle, self.seed, self.drop_last, self.epoch = shuffle, seed, drop_last, 0
        ### END SOLUTION

    def __len__(self):
        """The number of indices of a rank, an int, the same for every rank."""
        ### BEGIN SOLUTION
        share = self.n_items / self.world_size
        return math.floor(share) if self.drop_last else math.ceil(share)
        ### END SOLUTION

    def __iter__(self):
        """An iterator over this rank's indices in the current epoch."""
        ### BEGIN SOLUTION
        order = range(self.n_items)
        if self.shuffle:
            rng = torch.Generator().manual_seed(self.seed + self.epoch)
            order = torch.randperm(self.n_items, generator=rng).tolist()
        return itertools.islice(itertools.cycle(order), self.rank, len(self) * self.world_size, self.world_size)
        ### END SOLUTION

    def set_epoch(self, epoch):
        """None; iterations that begin from now on are those of epoch number `epoch`, an int from 0."""
        ### BEGIN SOLUTION
        self.epoch = epoch
        ### END SOLUTION


# %% test="ShardSampler-visible" points=2
check.ShardSampler(ShardSampler)

# %% test="ShardSampler-hidden" points=2
### BEGIN HIDDEN TESTS
check.ShardSampler(ShardSampler, seed=283)
### END HIDDEN TESTS

# %% [markdown]
# Some guides cut the data set into one block per rank instead. Here are both on data that is sorted by class, 4 classes
# of 6 samples, two ranks, two epochs.

# %% tags=["experiment"]
sampler_now = course.solved(check.ShardSampler)
class_of = torch.arange(24) // 6
dealt, drawn = {}, torch.Generator().manual_seed(0)
for epoch in range(2):
    mine = []
    for rank in range(2):
        sampler = sampler_now(24, 2, rank)
        sampler.set_epoch(epoch)
        mine.append(list(sampler))
    dealt[f"permutation, epoch {epoch}"] = mine
for epoch in range(2):
    dealt[f"blocks, epoch {epoch}"] = [(12 * rank + torch.randperm(12, generator=drawn)).tolist() for rank in range(2)]
classes = {name: [len(set(class_of[mine].tolist())) for mine in ranks] for name, ranks in dealt.items()}
for name, numbers in classes.items():
    print(f"{name:<21} classes that rank 0 and rank 1 see: {numbers[0]} and {numbers[1]}")
course.claim("with blocks a rank of sorted data sees half of the classes only, in every epoch",
             all(numbers == [2, 2] for name, numbers in classes.items() if "blocks" in name))  # fmt: skip
course.claim("with a permutation and strides a rank gets other samples in the next epoch",
             set(dealt["permutation, epoch 0"][0]) != set(dealt["permutation, epoch 1"][0]))  # fmt: skip
plots.shards(dealt, class_of.tolist())

# %% [markdown]
# **Takeaway** With a permutation and strides, each rank saw all four classes. With blocks of sorted data, each saw two
# of them in every epoch.

# %% [markdown]
# ## How long are the gradients of this loop? · extra
#
# `backward()` adds to `grad`. So the gradients of several *micro-batches* add up to the gradient of one large batch, if
# each is weighted by its share of the samples. Here is a loop that is meant to accumulate, as in published guides.


# %% locked="published_accumulation"
def published_accumulation(model, batches, loss_fn, optimizer, every):
    """The number of updates of one epoch that is said to accumulate the gradients of `every` micro-batches."""
    updates = 0
    optimizer.zero_grad()
    for i, (inputs, targets) in enumerate(batches):
        loss = loss_fn(model(inputs), targets)
        loss.backward()
        if i % every == 0:
            optimizer.step()
            optimizer.zero_grad()
            updates += 1
    return updates


# %% [markdown]
# Predict, for ten micro-batches and `every=4`: how many micro-batches does its first update use? How many are in no
# update? How many times too long is the gradient of its second update?

# %%
predicted_first_update = None  # your number: micro-batches in the gradient of its first update
predicted_unused = None  # your number: micro-batches whose gradient is never used
predicted_ratio = None  # your number: length of the gradient of its second update / length of the mean over its samples

# %% tags=["experiment"]
every, generator = 4, torch.Generator().manual_seed(0)
micro_batches = [(torch.randn(8, 20, generator=generator), torch.arange(8) % 3) for _ in range(10)]


def show_updates(loop):
    """Print which micro-batches each update of `loop(model, optimizer)` uses, and the ratio of lengths."""
    torch.manual_seed(0)
    model, seen, used = nn.Linear(20, 3), [], set()
    model.register_forward_hook(lambda module, inputs, output: seen.append(inputs[0]))
    number = {id(inputs): i for i, (inputs, _) in enumerate(micro_batches)}

    def look(optimizer, *_):
        places = [number[id(inputs)] for inputs in seen]
        inputs, targets = (torch.cat(part) for part in zip(*(micro_batches[i] for i in places), strict=True))
        outputs = F.linear(inputs, model.weight, model.bias)
        right = torch.autograd.grad(F.cross_entropy(outputs, targets), model.weight)[0]
        print(f"   micro-batches {places}, gradient {model.weight.grad.norm() / right.norm():.2f} times as long")
        used.update(places)
        seen.clear()

    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    optimizer.register_step_pre_hook(look)
    print(f"   {loop(model, optimizer)} updates, unused: {sorted(set(range(10)) - used)}")


print("published_accumulation")
show_updates(lambda model, optimizer: published_accumulation(model, micro_batches, F.cross_entropy, optimizer, every))
said = predicted_first_update, predicted_unused, predicted_ratio
if any(number is not None for number in said):
    print("you said of published_accumulation: micro-batches in the first update {}, unused {}, ratio {}".format(*said))

# %% [markdown]
# The loop has three faults. `i % every == 0` is true for the first micro-batch. Nothing divides by the number of
# micro-batches, which for plain SGD is a learning rate four times as large. And the last micro-batch is thrown away.
#
# On many ranks, accumulation can also save messages. DDP averages in every backward, unless forward and backward are
# both inside `no_sync()`. There it only adds up, and the first backward outside sends the sum.

# %% [markdown]
# ### Exercise 2 · Accumulate
#
# Fix the loop, and let it send once per update. A group is `every` micro-batches in a row; the last may be short. Ten
# micro-batches with `every=4` are groups of 4, 4 and 2, so 3 updates.
#
# **Points** 5 · **Extra** · **Difficulty** ●●● · **Minutes** 25 · **Lines** 11
#
# **Must**
#
# - update once per group, and return the number of updates
# - use the gradient of the mean loss over all *samples* of the group, one backward per micro-batch
# - run forward and backward inside `no_sync()`, except for each group's last micro-batch
#
# **You may assume** that `loss_fn` is the mean over `len(targets)` samples.
#
# **Source** PyTorch documentation of `no_sync`; Goyal et al. 2017, arXiv:1706.02677, section 3.
#
# <details><summary>Hint 1</summary>
#
# Micro-batches of 8, 8 and 4 samples: by what must each mean loss be multiplied, so that the sum is the mean of the
# twenty? Can you know that before the third one has come?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Take the group out of the list first: `group = batches[start : start + every]` for `start` in steps of `every`.
# The last slice is short by itself. `samples = sum(len(targets) for _, targets in group)`.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# Per group: `zero_grad`, the loop over its micro-batches, `step`. In that loop
# `with contextlib.nullcontext() if last else no_sync():`, and in it the forward pass, the loss times
# `len(targets) / samples`, its `backward()`.
#
# </details>


# %% solution="accumulate"
def accumulate(model, batches, loss_fn, optimizer, every, no_sync):
    """The number of updates of one epoch in which each update uses the gradients of `every` micro-batches.

    Args:
        model: module, or DDP around one; called with inputs.
        batches: list of micro-batches (inputs, targets), tensors (n, ...) of which n may differ; it may be empty.
        loss_fn: (outputs, targets) -> tensor of shape (), the mean over the micro-batch.
        optimizer: holds the parameters of `model`; steps once a group.
        every: micro-batches of one update, 1 or more.
        no_sync: function without arguments -> context manager inside of which gradients stay on their rank:
            `model.no_sync` of DDP, `contextlib.nullcontext` on one process.
    """
    ### BEGIN SOLUTION
    groups = [batches[start : start + every] for start in range(0, len(batches), every)]
    for group in groups:
        samples = sum(len(targets) for _, targets in group)
        optimizer.zero_grad()
        for through, (inputs, targets) in enumerate(group, start=1):
            with contextlib.nullcontext() if through == len(group) else no_sync():
                loss = loss_fn(model(inputs), targets) * len(targets) / samples
                loss.backward()
        optimizer.step()
    return len(groups)
    ### END SOLUTION


# %% test="accumulate-visible" points=2
check.accumulate(accumulate)

# %% test="accumulate-hidden" points=3
### BEGIN HIDDEN TESTS
check.accumulate(accumulate, seed=27)
### END HIDDEN TESTS

# %% [markdown]
# The same numbers for your loop:

# %% tags=["experiment"]
accumulate_now = course.solved(check.accumulate)
print("accumulate")
show_updates(
    lambda model, optimizer: accumulate_now(
        model, micro_batches, F.cross_entropy, optimizer, every, contextlib.nullcontext
    )
)

# %% [markdown]
# **Takeaway** Print which samples an update uses and how long its gradient is. The published loop used 1, 4 and 4
# micro-batches, with gradients 1, 4 and 4 times as long.

# %% [markdown]
# ## What does a rank's BatchNorm see? · extra
#
# With DDP, BatchNorm takes mean and variance of the rank's own samples. Say that rank 0 holds 90 samples and rank 1
# holds 10, shifted by 10. What does each rank find, and what is the average of the two?

# %% tags=["experiment"]
drawn = torch.randn(100, 1, generator=torch.Generator().manual_seed(1))
drawn[90:] += 10
own = [(part.mean().item(), part.var(correction=0).item()) for part in (drawn[:90], drawn[90:])]
right = drawn.mean().item(), drawn.var(correction=0).item()
for rank, (mean, variance) in enumerate(own):
    print(f"rank {rank}: own mean {mean:6.3f}, own variance {variance:6.3f}")
mean_of_means, mean_of_variances = (sum(values) / 2 for values in zip(*own, strict=True))
print(f"averaged: mean {mean_of_means:.3f}, variance {mean_of_variances:.3f}; "
      f"all samples: mean {right[0]:.3f}, variance {right[1]:.3f}")  # fmt: skip
course.claim("the mean of the means is off by more than the deviation inside a rank",
             abs(mean_of_means - right[0]) > own[0][1] ** 0.5, f"{abs(mean_of_means - right[0]):.2f}")  # fmt: skip

# %% [markdown]
# The mean of means is right only if all shards have the same size. The mean of variances is wrong even then: it leaves
# out how far apart the means are. `nn.SyncBatchNorm` uses the moments of all ranks, at the cost of communication in
# every such layer.
#
# One trap: the formula "mean of squares minus squared mean" subtracts two nearly equal numbers.

# %% [markdown]
# ### Exercise 3 · Moments of all ranks
#
# Compute mean and (biased) variance of each channel over the samples of all ranks. If rank 0 holds `[[1.], [3.]]` and
# rank 1 `[[8.]]`, both return mean 4 and variance 26/3.
#
# **Points** 4 · **Extra** · **Difficulty** ●●● · **Minutes** 25 · **Lines** 9
#
# **Must**
#
# - return the same two tensors (C,), of the dtype of `x`, on every rank
# - call at most 2 operations of `torch.distributed`, with bytes that do not depend on the number of samples
# - be right at mean 10,000 and deviation 1 in float32, and in float16: compute and send float64
#
# **You may assume** that some rank has a sample; others may have none.
#
# **Source** Chan, Golub and LeVeque 1983, "Algorithms for computing the sample variance", The American Statistician.
#
# <details><summary>Hint 1</summary>
#
# Which sums over a shard can simply be added, whatever the sizes of the shards? And can the squares be taken before
# the mean of all ranks is known?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Two passes: first the sums and the count, then the sums of the squared distances from the mean *of all ranks*.
# Sums and count fit into one tensor of C + 1 numbers, so that one `dist.all_reduce` carries both. The sum of no
# samples is 0, their mean is nan: stay with sums. Send float64: float32 cannot count beyond 16,777,216, and a batch of
# images soon has that many values per channel.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# `values = x.movedim(1, -1).reshape(-1, x.shape[1])` has one row per value, in both cases. All-reduce
# `torch.cat([values.sum(0), values.new_tensor([len(values)])])` with `values` in float64; its last place is the count
# n. Then all-reduce `(values - mean).square().sum(0)`, divide by n, and convert both to the dtype of `x`.
#
# </details>


# %% solution="global_moments"
def global_moments(x):
    """(mean, variance) of every channel over the samples of all ranks: two tensors of shape (C,), of the dtype of `x`.

    Args:
        x: this rank's samples, a float tensor (n_local, C) or (n_local, C, H, W); n_local may differ between ranks,
            and be 0 on some.
    """
    ### BEGIN SOLUTION
    values = x.movedim(1, -1).reshape(-1, x.shape[1]).double()  # (n_local * H * W, C); float32 counts to 2**24 only
    sums = torch.cat([values.sum(0), values.new_tensor([len(values)])])
    dist.all_reduce(sums)
    mean, n = sums[:-1] / sums[-1], sums[-1]
    squares = (values - mean).square().sum(0)
    dist.all_reduce(squares)
    return mean.to(x.dtype), (squares / n).to(x.dtype)
    ### END SOLUTION


# %% test="global_moments-visible" points=2
check.global_moments(global_moments)

# %% test="global_moments-hidden" points=2
### BEGIN HIDDEN TESTS
check.global_moments(global_moments, seed=1979)
### END HIDDEN TESTS


# %% tags=["experiment"]
def moments_of_rank(rank, world_size, moments, samples, cut):
    return [value.item() for value in moments(samples[:cut] if rank == 0 else samples[cut:])]


moments = run_ranks(moments_of_rank, 2, course.solved(check.global_moments), drawn, 90, backend="gloo")
print(f"global_moments on rank 0: mean {moments[0][0]:.3f}, variance {moments[0][1]:.3f}")
course.claim("your moments are those of all samples, on both ranks",
             torch.allclose(torch.tensor(moments), torch.tensor([right, right]), atol=1e-3))  # fmt: skip

# %% [markdown]
# **Takeaway** Averaged, the two ranks report variance 0.94. All samples together have 8.6.

# %% [markdown]
# ## How wrong is the mean of means for gradients? · extra
#
# A loss is the mean over a rank's samples, and DDP gives every rank the same weight. If one rank has 2 samples and
# another 8, each of the 2 counts four times as much. Uneven shards are common: the last batch of an epoch, graphs
# batched by size, or language models, whose loss is a mean over tokens.
#
# Predict: two ranks with 2 and 8 samples. By how many percent of its length is the averaged gradient off?

# %%
predicted_off = None  # percent

# %% [markdown]
# ### Exercise 4 · The weight of a shard
#
# Return the factor by which a rank multiplies its local mean loss, so that DDP's mean of gradients is the gradient of
# the mean over all samples. Equal shards have the factor 1.
#
# **Points** 2 · **Extra** · **Difficulty** ●○○ · **Minutes** 8 · **Lines** 1
#
# **Must** return a Python float.
#
# **You may assume** that `n_total` is the sum of `n_local` over the ranks, and above 0; `n_local` may be 0.
#
# **Convention** DDP adds up the gradients of all ranks and divides by `world_size`.
#
# **Source** Goyal et al. 2017, arXiv:1706.02677, section 3, on distributed SGD.
#
# <details><summary>Hint 1</summary>
#
# What must the factor be if all ranks have equally many samples? What is the sum of the factors of all ranks?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# The mean over all samples is the sum over ranks of n_local / n_total times the local mean. DDP forms the sum over
# ranks of 1 / world_size times what a rank hands in.
#
# </details>


# %% solution="shard_scale"
def shard_scale(n_local, n_total, world_size):
    """The factor on a rank's local mean loss that makes DDP's gradient that of the mean over all samples, a float.

    Args:
        n_local: number of samples (or tokens) of this rank, an int from 0.
        n_total: number of samples of all ranks, an int above 0.
        world_size: number of ranks.
    """
    ### BEGIN SOLUTION
    return n_local * world_size / n_total
    ### END SOLUTION


# %% test="shard_scale-visible" points=1
check.shard_scale(shard_scale)

# %% test="shard_scale-hidden" points=1
### BEGIN HIDDEN TESTS
check.shard_scale(shard_scale, seed=58)
### END HIDDEN TESTS

# %% [markdown]
# The next cell compares the gradient of all ten samples in one process with what DDP would give: first with plain mean
# losses, then with your factors.

# %% tags=["experiment"]
scale_now = course.solved(check.shard_scale)
inputs, targets = torch.randn(10, 20, generator=torch.Generator().manual_seed(0)), torch.arange(10) % 3
torch.manual_seed(0)
model, sizes_of_ranks = nn.Linear(20, 3), [2, 8]


def gradient(loss):
    return torch.autograd.grad(loss, model.weight)[0]


whole = gradient(F.cross_entropy(model(inputs), targets))
shards = zip(inputs.split(sizes_of_ranks), targets.split(sizes_of_ranks), strict=True)
of_ranks = [gradient(F.cross_entropy(model(x), y)) for x, y in shards]
factors = [scale_now(n, 10, 2) for n in sizes_of_ranks]
plain = torch.stack(of_ranks).mean(0)  # what DDP's all-reduce and division give
scaled = torch.stack([factor * g for factor, g in zip(factors, of_ranks, strict=True)]).mean(0)
print(f"factors: {factors}")
for name, found in (("plain means", plain), ("with your factors", scaled)):
    print(f"{name:<18} off by {100 * ((found - whole).norm() / whole.norm()).item():.4f} % of the gradient's length")
print(f"plain means: off by {100 * ((plain - whole).norm() / whole.norm()).item():.0f} %{reveal(predicted_off)}")
course.claim("without factors the average of the ranks' gradients is off by more than a tenth of its norm",
             (plain - whole).norm() > 0.1 * whole.norm(), ((plain - whole).norm() / whole.norm()).item())  # fmt: skip
course.claim("with your factors the average is the gradient of all samples", torch.allclose(scaled, whole, atol=1e-6))

# %% [markdown]
# For the factor, the ranks need the number of all samples: one `all_reduce` of one number.
#
# **Takeaway** With 2 and 8 samples, the average of the ranks' gradients was off by 72 % of its length. One factor per
# rank fixes it.
