# %% [markdown]
# # Data parallel, part 4: Keep the mean right
#
# **When are N ranks not one process with an N times larger batch, although all weights agree?**
#
# Nothing in this part raises an error where it goes wrong, and the loss falls all the same: shards that repeat or lose
# samples, micro-batches that are added up with wrong weights, normalisation that sees one shard, means of unequal
# parts. You write each of them right and see what the published versions do.
#
# **You will be able to**
#
# - deal a data set to ranks as `DistributedSampler` does
# - accumulate gradients over micro-batches, and send once per update
# - give each rank's loss, moments and metrics their weight
#
# **Minutes** 0 core · 120 in all
#
# **Needs** part 1 (`run_ranks`); parts 2 and 3 help, and nothing of them is used

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
from course.parallel.distributed import run_ranks
from course.plots import data_parallel as plots

print(course.machine())

# %% [markdown]
# ## Who gets which sample
#
# **Every rank draws the same permutation and takes its own positions of it; no message is needed for that.**
#
# In an epoch every sample is to be used once, by one of the ranks. Nobody hands out samples: ranks with the same
# seed draw the same permutation, and each takes every `world_size`-th position of it, beginning with its own rank. A
# rank needs to know three numbers: how many items there are, how many ranks, and which of them it is.
#
# You may have seen it explained in another way: the data set cut into contiguous blocks, one per rank, and each rank
# choosing from its block at random. The guide to distributed training of Lambda Labs draws it like that. It is not
# what torch does, and the difference can be seen: a rank's samples come from the whole data set, and in the next
# epoch they are others. With blocks, a data set that is sorted by class would show each rank some classes only, for
# ever.
#
# All ranks must get equally many samples, because each step waits for all of them: a rank that has one batch more
# than the others waits there until the process group's time limit. So either some samples are used twice (padding, the
# default) or some are left out (`drop_last`). In training neither hurts. In evaluation padding counts some samples
# twice; we come back to that at the end of this part.
#
# Nothing tells the sampler that an epoch is over. The permutation is drawn from `seed + epoch`, and `epoch` changes
# only when the training loop calls `set_epoch`. Where the call is forgotten, every epoch has the same order and so
# the same batches. No error comes, and the loss falls all the same; look for the call in every loop that you read.

# %% [markdown]
# ### Exercise 1 · The shard of a rank
#
# Write by hand what `torch.utils.data.DistributedSampler` does.
#
# **Points** 4 · **Extra** · **Difficulty** ●●○ · **Minutes** 25 · **Lines** 12
#
# **Must**
# - order: 0, 1, 2, ... or, with `shuffle`, `torch.randperm` with a new CPU generator seeded with `seed + epoch`;
# - make its length a multiple of `world_size`: repeat it from its start (2 items on 5 ranks: 0 1 0 1 0), or with
#   `drop_last` cut its end (2 items on 5 ranks: nothing is left);
# - rank r takes the positions r, r + `world_size`, ..., as ints; `len()` is their number;
# - epochs count from 0; `set_epoch` changes the number.
#
# **Raises** ValueError for a rank outside 0 to `world_size` - 1.
#
# **Not allowed** `torch.utils.data.DistributedSampler`, inherited from or asked for its lists.
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
# `itertools.cycle(order)` repeats from the start for ever, and `itertools.islice(it, start, stop, step)` takes
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
# Your sampler on a data set that is sorted by class, 4 classes of 6 samples, for two ranks in two epochs. Below it
# blocks, as in the guide: each rank shuffles the half that is its own.

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
# Rows are epochs, columns the samples in the order of the data set, colours the ranks that use them. Gradients of all
# ranks are averaged, so the *sum* over ranks sees all classes with blocks too. What a rank sees alone matters where it
# computes something by itself: the statistics of BatchNorm, further down.

# %% [markdown]
# ## Fewer messages: accumulate, then send
#
# **Gradients of several micro-batches can be added up before they are sent: one message and one update for all of
# them, if somebody tells DDP to wait.**
#
# A *micro-batch* is what goes through the model at once. `backward()` adds to `grad`, so the gradients of several
# micro-batches, each weighted with its share of the samples, add up to that of one large batch. On one process this
# saves memory. On many it can also save messages, because what is not used yet need not be sent. DDP cannot know
# that: in every backward pass it averages the gradients over the ranks. Inside its `no_sync()` it only adds them
# up, and the first backward pass after it sends the sum.
#
# PyTorch's wrapper decides in the *forward* pass whether the backward pass that belongs to it will send. So forward and
# backward both stand inside `no_sync()`, or neither does. (The wrapper of part 3 decides in backward.)

# %% [markdown]
# Here is a loop that says it accumulates. One like it stands in a published guide to distributed training (Lambda),
# a near relative in NVIDIA's example of NCF. Read it, and count: which updates does it make, and how long are their
# gradients?


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
# There are ten micro-batches and `every` is 4. How many micro-batches does each of its updates use? Which
# micro-batches are in no update at all? And how many times too long is the gradient of its second update?

# %%
predicted_first_update = None  # your number: micro-batches in the gradient of its first update
predicted_unused = None  # your number: micro-batches whose gradient is never used
predicted_ratio = None  # your number: length of the gradient of its second update / length of the mean over its samples

# %% [markdown]
# ### Exercise 2 · Accumulate
#
# Mend the loop, and let it send once per update. A group is `every` micro-batches in a row; the last may be short.
#
# **Points** 5 · **Extra** · **Difficulty** ●●● · **Minutes** 30 · **Lines** 11
#
# **Must**
# - update once per group, and return the number of updates;
# - use the gradient of the mean loss over all *samples* of the group; what lay in `grad` before does not count;
# - run the backward of a micro-batch before the next one's forward;
# - run forward and backward inside `no_sync()`, except for each group's last micro-batch.
#
# **You may assume** that `loss_fn` is the mean over `len(targets)` samples, and that every rank has as many samples in
# a group as the others.
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
# `with contextlib.nullcontext() if last else no_sync():`, and inside of it the forward pass, the loss times
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
# Both loops on one process, with a learning rate of 0, so that the weights stay and the gradients can be compared.
# For each update: the micro-batches that went into it, and the length of its gradient divided by that of the mean
# over the samples of these micro-batches. In an honest loop the ratio is 1.

# %% tags=["experiment"]
accumulate_now = course.solved(check.accumulate)
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
print("accumulate")
show_updates(
    lambda model, optimizer: accumulate_now(
        model, micro_batches, F.cross_entropy, optimizer, every, contextlib.nullcontext
    )
)
said = predicted_first_update, predicted_unused, predicted_ratio
if any(number is not None for number in said):
    print("you said of published_accumulation: micro-batches in the first update {}, unused {}, ratio {}".format(*said))

# %% [markdown]
# Three faults in three lines. The test `i % every == 0` holds for the first micro-batch, so the first update has a
# gradient of one. Nothing divides by the number of micro-batches: the gradients of all further updates are four
# times too long. With plain SGD that is a learning rate four times as large, which nobody wrote down. And after the
# last update the rest of the epoch is computed and thrown away. None of this raises an error, and the loss goes
# down.

# %% [markdown]
# ## What normalisation sees
#
# **With DDP a BatchNorm layer normalises each shard by the shard's own statistics: N ranks are not one process with
# N times the batch.**
#
# The mean of the gradients of N shards is the gradient of the whole batch as long as the loss of a sample does not
# depend on what else is in its batch. BatchNorm is made of this dependence. In training each rank takes mean and
# variance of its own samples, of 8 if the batch is 256 on 32 ranks, and these are noisier than those of 256.
#
# The running statistics, which the model uses when it is evaluated, go apart too: each rank updates its own. What DDP
# does about that is statement G of the quiz in part 6, with an experiment.
#
# `nn.SyncBatchNorm` (for GPUs; `convert_sync_batchnorm` exchanges all layers of a model) takes the moments of all
# ranks: it pays for that with communication in every such layer, forward and backward. Layers which normalise each
# sample by itself, LayerNorm and GroupNorm, have no such question.
#
# How are moments of shards put together? The mean of means is right only for shards of one size. The mean of
# variances is wrong even then: it lacks how far the means of the shards lie from each other. And the formula that
# needs one pass only, the mean of the squares less the square of the mean, takes the difference of two large
# numbers: at a mean of 10,000 they are 100,000,000, and the spacing of float32 there is 8. (In float64 it is a way
# out, at twice the bytes, and on many GPUs at a small part of the speed.)

# %% [markdown]
# ### Exercise 3 · Moments of all ranks
#
# Compute mean and variance of each channel over the samples of all ranks.
#
# **Points** 4 · **Extra** · **Difficulty** ●●● · **Minutes** 25 · **Lines** 9
#
# **Must**
# - take them over all axes but axis 1 and all ranks, with equal weights; the variance is biased;
# - return the same two tensors (C,), of the dtype of `x`, on every rank;
# - call at most 2 operations of `torch.distributed`; bytes sent do not depend on the number of samples;
# - be right in float32 at mean 1e4, deviation 1 (variance to 1e-3, mean to 1e-2), and in float16, where numbers end at
#   65,504.
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
# images has that many values per channel soon.
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

# %% [markdown]
# ## The mean of means
#
# **DDP takes the mean of the ranks' gradients; it is the gradient of the mean over all samples only where every
# rank had equally many.**
#
# A loss is the mean over the samples of a rank, and DDP gives each rank the same weight, one over the number of
# ranks. If one rank has 2 samples and another 8, each of the 2 counts four times as much as each of the 8. Nothing
# stops and nothing warns.
#
# Uneven shards are more common than it seems. The last batch of an epoch is short on some ranks if the sampler does
# not pad. Ragged data, graphs or point clouds, are batched by size and not by number. And in language models the
# ranks have equally many sequences, but a mean over *tokens* is taken, and the padding does not count: a token
# counts more on the rank whose sequences are short.
#
# The cure is a factor on the local loss. The number of all samples must be known for it: one `all_reduce` of one
# number before the backward pass. A rank that has no samples at all must run the backward pass too, because the
# others wait for it there; the mean of nothing is nan, also times 0, so such a rank takes `output.sum()` for its
# loss, which is 0.
#
# The same trap waits in evaluation. The accuracy of a data set is not the mean of the accuracies of its shards,
# unless these have one size. `DistributedSampler` makes them so by padding, and then some samples count twice.
# Better take shards of different sizes, `range(rank, n_items, world_size)`, without DDP around the model (its
# forward pass may send buffers, and would wait for the longest shard), and put the shards together with their
# weights.

# %% [markdown]
# ### Exercise 4 · The weight of a shard
#
# Give the factor by which a rank multiplies its local mean loss, so that DDP's mean of gradients is the gradient of
# the mean over all samples.
#
# **Points** 2 · **Extra** · **Difficulty** ●○○ · **Minutes** 8 · **Lines** 1
#
# **Must** return a Python float.
#
# **You may assume** that `n_total` is the sum of `n_local` over the ranks, and above 0; `n_local` may be 0.
#
# **Convention** DDP adds up the gradients of all ranks and divides by `world_size`.
#
# **Source** Goyal et al. 2017, arXiv:1706.02677, section 3, on distributed SGD; PyTorch documentation of
# `torch.nn.parallel.DistributedDataParallel`.
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
# Two ranks with 2 and 8 samples: the gradient that DDP would give, with the plain mean losses and with your factors,
# beside that of all ten samples in one process.

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
course.claim("without factors the average of the ranks' gradients is off by more than a tenth of its norm",
             (plain - whole).norm() > 0.1 * whole.norm(), ((plain - whole).norm() / whole.norm()).item())  # fmt: skip
course.claim("with your factors the average is the gradient of all samples", torch.allclose(scaled, whole, atol=1e-6))

# %% [markdown]
# ### Exercise 5 · A metric of all ranks
#
# Put the local means of all ranks together to the mean over everything, each with its weight.
#
# **Points** 3 · **Extra** · **Difficulty** ●●○ · **Minutes** 15 · **Lines** 6
#
# **Must**
# - return on every rank a Python float: the sum over all ranks of value times weight, over the sum of weights; nan if
#   all weights are 0;
# - ignore the value of a rank whose weight is 0: it may be nan, the mean of no samples;
# - call at most 2 operations of `torch.distributed`;
# - send float64: a count above 16,777,216 is not exact in float32.
#
# **Source** PyTorch documentation, "Distributed communication package", `all_reduce`.
#
# <details><summary>Hint 1</summary>
#
# Which two numbers of a rank can be added over the ranks so that the result follows from the two sums?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Send both in one tensor: `dist.all_reduce` changes it in place, on every rank. `value * weight` is nan where the
# value is nan, also for weight 0. And a tensor with one number becomes a float by `.item()`.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# `sums = torch.stack([value.double() * weight, torch.full_like(value, weight, dtype=torch.float64)])`, all zeros if
# the weight is 0. After the all-reduce `total, weights = sums.tolist()`. Python raises an error on 0.0 / 0.0: say
# `math.nan`.
#
# </details>


# %% solution="weighted_mean"
def weighted_mean(value, weight):
    """The mean of all ranks' values with the ranks' weights, a float, the same on every rank; nan if all weights are 0.

    Args:
        value: this rank's mean, a float tensor of shape () on the device that the process group uses; it may be nan if
            `weight` is 0.
        weight: how much it counts, a Python number from 0: of how many samples it is the mean.
    """
    ### BEGIN SOLUTION
    sums = value.new_zeros(2, dtype=torch.float64)
    if weight > 0:  # the mean of no samples is nan, and so is nan * 0
        sums[0], sums[1] = value.double() * weight, weight
    dist.all_reduce(sums)
    total, weights = sums.tolist()
    return total / weights if weights else math.nan
    ### END SOLUTION


# %% test="weighted_mean-visible" points=1
check.weighted_mean(weighted_mean)

# %% test="weighted_mean-hidden" points=2
### BEGIN HIDDEN TESTS
check.weighted_mean(weighted_mean, seed=316)
### END HIDDEN TESTS

# %% [markdown]
# Both answers at work on two ranks, the first with 90 samples, the second with 10 that come from elsewhere.


# %% tags=["experiment"]
def seen_by_rank(rank, world_size, moments, mean, samples, cut):
    """What a rank finds: (own mean, own variance, moments of all ranks, weighted mean of the ranks' means)."""
    x = samples[:cut] if rank == 0 else samples[cut:]
    own = x.mean().item(), x.var(correction=0).item()
    return *own, [value.item() for value in moments(x)], mean(x.mean(), len(x))


drawn = torch.randn(100, 1, generator=torch.Generator().manual_seed(1))
drawn[90:] += 10
answers = course.solved(check.global_moments), course.solved(check.weighted_mean)
ranks = run_ranks(seen_by_rank, 2, *answers, drawn, 90, backend="gloo")
for rank, (mean, variance, moments, weighted) in enumerate(ranks):
    print(f"rank {rank}: own mean {mean:6.3f}, own variance {variance:6.3f}; global_moments {moments[0]:.3f}, "
          f"{moments[1]:.3f}; weighted_mean {weighted:.3f}")  # fmt: skip
right = drawn.mean().item(), drawn.var(correction=0).item()
mean_of_means, mean_of_variances = (sum(rank[i] for rank in ranks) / 2 for i in (0, 1))
print(f"all samples: mean {right[0]:.3f}, variance {right[1]:.3f}; "
      f"mean of means {mean_of_means:.3f}, mean of variances {mean_of_variances:.3f}")  # fmt: skip
found = torch.tensor([[*moments, weighted] for *_, moments, weighted in ranks])
course.claim("your moments and your mean are those of all samples, on both ranks",
             torch.allclose(found, torch.tensor([*right, right[0]]), atol=1e-3))  # fmt: skip
course.claim("the mean of the means is off by more than the deviation inside a rank",
             abs(mean_of_means - right[0]) > ranks[0][1] ** 0.5, f"{abs(mean_of_means - right[0]):.2f}")  # fmt: skip

# %% [markdown]
# Each rank's BatchNorm would normalise with its own mean and variance: what tells the two kinds of data apart, the
# distance of 10, would be gone on both. The moments of all ranks keep it, and so does the weighted mean.
