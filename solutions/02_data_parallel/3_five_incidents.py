# %% [markdown]
# # Data parallel, part 3: Find five faults by their symptoms
#
# **A training on two ranks runs without an error, or hangs without a message. What is wrong with it?**
#
# The faults in this part raise no error, so you must know their symptoms. Each of five incidents starts with what
# somebody saw: a loss curve, a list of samples, a training that stands still. Each ends with a fix, and with a test
# that would have found the fault.
#
# Stop after each symptom and guess the cause. Exercises 1 and 4 are core.
#
# **You will be able to**
#
# - give each rank's loss the right weight
# - recognise equal epochs, replicas that drift, a collective that one rank never calls, and an incomplete checkpoint
# - say what breaks without the wrapper, the sampler and each variable of a launcher (extra)
#
# **Minutes** 27 core · 129 in all
#
# **Needs** part 1 (`run_ranks`); part 2 helps

# %% locked="setup"
import contextlib
import itertools
import math

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import constants
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DistributedSampler, Sampler

import course
from course.checks import data_parallel as check
from course.measure.comparison import largest_difference
from course.parallel import lost_peer
from course.parallel.distributed import run_ranks
from course.plots import data_parallel as plots
from course.training import accumulation, gpt_run

print(course.machine())
torch.set_num_threads(1)  # these models are small

# %% [markdown]
# ## Incident 1: why do two ranks not reproduce the loss curve of one?
#
# **Symptom.** A small GPT trains on random texts of 2 to 40 tokens, 16 per step. Two ranks that share the same 16 texts
# give a slightly different loss curve, from the first step on. There is no error, and the loss falls.
#
# In the next cell, one process computes for both ranks.


# %% tags=["experiment"]
def mean_of_means(model, batch):
    """What DDP optimises if each of two ranks computes the mean loss over its tokens."""
    mean_of_rank_0 = gpt_run.token_mean(model, batch[0::2])
    mean_of_rank_1 = gpt_run.token_mean(model, batch[1::2])
    return (mean_of_rank_0 + mean_of_rank_1) / 2


one_process = gpt_run.train(gpt_run.new_run()).losses
two_ranks = gpt_run.train(gpt_run.new_run(), loss_of=mean_of_means).losses

print(f"first loss: {one_process[0]:.6f} on one rank, {two_ranks[0]:.6f} on two")
is_same_curve = largest_difference(two_ranks, one_process) <= 1e-6
course.claim(
    "with a mean loss per rank, two ranks do not have the loss curve of one process",
    not is_same_curve,
)
plots.against_undisturbed(
    one_process,
    {"two ranks, mean per rank": two_ranks},
    "Two ranks learn, too, but not what one process learns",
    "one process",
)

# %% [markdown]
# DDP averages the gradients of all ranks, so every rank has the same weight, however many tokens it holds.
#
# **Predict**: rank 0 holds 2 tokens and rank 1 holds 8. What is the weight of a token of rank 0, divided by the weight
# of a token of rank 1?

# %%
predicted_weight = None  # weight of a token of rank 0 / weight of a token of rank 1

# %% [markdown]
# ### Exercise 1 · The weight of a shard
#
# Return the factor by which a rank multiplies its local mean loss. With it, DDP's mean of gradients must be the
# gradient of the mean over all samples (or tokens). With equal shards the factor is 1.
#
# ```python
# >>> shard_scale(5, n_total=10, world_size=2)
# 1.0
# ```
#
# **Points** 2 · **Core** · **Difficulty** ●○○ · **Minutes** 7 · **Lines** 1
#
# **Must** return a Python float.
#
# **You may assume** that `n_total` is the sum of `n_local` over the ranks, and above 0; `n_local` may be 0.
#
# **Convention** DDP adds up the gradients of all ranks and divides by `world_size`.
#
# **Source** Goyal et al. 2017, arXiv:1706.02677, section 3, "Distributed SGD".
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

# %% tags=["experiment"]
scale_now = course.solved(check.shard_scale)


def scaled_means(model, batch):
    """The mean of two ranks' mean losses, each times its factor."""
    n_total = sum(len(tokens) - 1 for tokens in batch)
    total = 0.0
    for rank in range(2):
        mine = batch[rank::2]
        n_local = sum(len(tokens) - 1 for tokens in mine)
        total += scale_now(n_local, n_total, 2) * gpt_run.token_mean(model, mine)
    return total / 2


# %% tags=["experiment"]
token_losses = torch.ones(10, requires_grad=True)
mean_of_rank_0 = token_losses[:2].mean()
mean_of_rank_1 = token_losses[2:].mean()
((mean_of_rank_0 + mean_of_rank_1) / 2).backward()
weights = token_losses.grad
weight_ratio = (weights[0] / weights[-1]).item()

what = "weight of a token of the rank with 2, over one of the rank with 8"
print(course.score("02/3", what, predicted_weight, weight_ratio, null=None))

# %% tags=["experiment"]
repaired = gpt_run.train(gpt_run.new_run(), loss_of=scaled_means).losses
difference = largest_difference(repaired, one_process)

print(f"with your factors the curves differ by at most {difference:.1e}")
is_same_curve = difference <= 1e-6
course.claim(
    "with your factors, two ranks have the loss curve of one process to 1e-6",
    is_same_curve,
)

# %% [markdown]
# **Shown**: only the factors changed, and what is left of the difference is rounding. A mean of means minimises a
# different loss from the one you wrote.
#
# **The test** is the cell above: one process and N ranks on the same batches must agree to rounding. In a real
# training, the ranks all-reduce their counts to get `n_total`.
#
# **Takeaway** Under DDP, a rank's loss must be its sum of token losses, times the world size, divided by all tokens of
# the step. A mean of means needs equal shards.
#
# <details><summary>Who made this mistake?</summary>
#
# **Known**: until October 2024, Transformers made it with micro-batches of different lengths, when it accumulated
# gradients (Hugging Face, "Fixing Gradient Accumulation", 16 October 2024; fixed by pull request 34191 in
# huggingface/transformers). Ranks are micro-batches that run at the same time.
#
# </details>

# %% [markdown]
# ## Does this loop accumulate correctly? · extra
#
# You can make the same mistake on one device. `backward()` adds to `grad`, so you can add up the gradients of several
# *micro-batches*. Weight the mean loss of each micro-batch by its share of the samples, and the sum is the gradient of
# one large batch.
#
# The loop below has the faults of two published loops. NVIDIA's NCF example (DeepLearningExamples, `ncf.py`) does not
# divide, and skips the last micro-batches. Lambda's distributed training guide steps at `i_step % grad_accum == 0`.


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
# Before you run the next cell, say what this loop does with ten micro-batches and `every=4`. How many does its first
# update use? How many are never used? How many times too long is the gradient of its second update?

# %% tags=["experiment"]
every = 4
generator = torch.Generator().manual_seed(0)
micro_batches = []
for _ in range(10):
    inputs = torch.randn(8, 20, generator=generator)
    labels = torch.arange(8) % 3
    micro_batches.append((inputs, labels))


def published_loop(model, optimizer):
    return published_accumulation(model, micro_batches, F.cross_entropy, optimizer, every)


print("published_accumulation")
accumulation.show_updates(published_loop, micro_batches)

# %% [markdown]
# The loop has three faults:
#
# - `i % every == 0` is true for the first micro-batch.
# - Nothing divides by the number of micro-batches. For plain SGD, an update of four is four times as long as it should
#   be.
# - The last micro-batch is thrown away.
#
# On several ranks, accumulation can also save messages. DDP sends gradients in every backward, unless the *forward* ran
# inside `no_sync()`. Then the gradients only add up on their rank, and the next backward that sends includes them.

# %% [markdown]
# ### Exercise 2 · Accumulate
#
# Fix the loop, and let it send once per update. A group consists of `every` consecutive micro-batches; the last group
# may be shorter. Ten micro-batches with `every=4` are groups of 4, 4 and 2, so 3 updates.
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
        for number, (inputs, targets) in enumerate(group, start=1):
            is_last = number == len(group)
            with contextlib.nullcontext() if is_last else no_sync():
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


def your_loop(model, optimizer):
    no_sync = contextlib.nullcontext  # one process has nothing to send
    return accumulate_now(model, micro_batches, F.cross_entropy, optimizer, every, no_sync)


print("accumulate")
accumulation.show_updates(your_loop, micro_batches)

# %% [markdown]
# **Takeaway** Print which samples an update uses, and compare the length of its gradient with that of one large batch.

# %% [markdown]
# ## Incident 2: why does every epoch begin with the same samples?
#
# **Symptom.** Somebody prints the first sample numbers of each epoch, and they never change.
#
# With `DistributedSampler`, all ranks draw the same permutation from `seed + epoch`, and each takes every
# `world_size`-th item of it. This needs no message. But a sampler does not know the epoch unless the loop calls
# `set_epoch`.
#
# Below, 24 samples are dealt to two ranks for two epochs.


# %% tags=["experiment"]
def shards_of_epoch(epoch, calls_set_epoch):
    """[indices of rank 0, indices of rank 1]"""
    shards = []
    for rank in range(2):
        sampler = DistributedSampler(range(24), num_replicas=2, rank=rank, seed=0)
        if calls_set_epoch:
            sampler.set_epoch(epoch)
        shards.append(list(sampler))
    return shards


# %% tags=["experiment"]
dealt = {}
for epoch in range(2):
    dealt[f"without set_epoch, epoch {epoch}"] = shards_of_epoch(epoch, calls_set_epoch=False)
for epoch in range(2):
    dealt[f"with set_epoch, epoch {epoch}"] = shards_of_epoch(epoch, calls_set_epoch=True)

for name, shards in dealt.items():
    print(f"{name:<26} rank 0 begins with {shards[0][:4]}")

rank_0_first = set(dealt["with set_epoch, epoch 0"][0])
rank_0_second = set(dealt["with set_epoch, epoch 1"][0])
course.claim(
    "without set_epoch, every rank gets the same samples in the same order in each epoch",
    dealt["without set_epoch, epoch 0"] == dealt["without set_epoch, epoch 1"],
)
course.claim(
    "with set_epoch, a rank gets other samples in the next epoch",
    rank_0_first != rank_0_second,
)

# %% [markdown]
# Without `set_epoch`, every epoch repeats the order of the first one, and so its batches. **The test** is one line:
# `assert list(sampler) != order_of_previous_epoch`.
#
# **Takeaway** All ranks need the same seed. Call `set_epoch` before each epoch, so that it gets its own order.

# %% [markdown]
# ## Which rank gets which sample? · extra
#
# All ranks must get equally many samples, because every step waits for all ranks. If the number of samples is not a
# multiple of the ranks, some samples are repeated (padding, the default) or left out (`drop_last`).

# %% [markdown]
# ### Exercise 3 · The shard of a rank
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
# What must all ranks have in common so that no sample is drawn by two of them? And what happens if the seed depends
# on the rank?
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
            raise ValueError(
                f"ranks go from 0 to {world_size - 1}, found {rank}; pass the rank of this process."
            )
        self.n_items = n_items
        self.world_size = world_size
        self.rank = rank
        self.shuffle = shuffle
        self.seed = seed
        self.drop_last = drop_last
        self.epoch = 0
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
        return itertools.islice(
            itertools.cycle(order), self.rank, len(self) * self.world_size, self.world_size
        )
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
# Lambda's distributed training guide describes the shards as contiguous blocks. Here are your shards and such blocks on
# data that is sorted by class: 4 classes of 6 samples. (Blocks of a *shuffled* order would mix the classes, too.)

# %% tags=["experiment"]
class_of_sample = torch.arange(24) // 6
sampler_now = course.solved(check.ShardSampler)

yours = []
for rank in range(2):
    sampler = sampler_now(24, 2, rank)
    sampler.set_epoch(1)
    yours.append(list(sampler))
blocks = [list(range(12)), list(range(12, 24))]
shards_of = {"yours": yours, "blocks": blocks}

n_classes = {}
for name, shards in shards_of.items():
    n_classes[name] = [class_of_sample[shard].unique().numel() for shard in shards]
    on_rank_0, on_rank_1 = n_classes[name]
    print(f"{name:<6} classes that rank 0 and rank 1 see: {on_rank_0} and {on_rank_1}")

title = "A block of sorted data holds few of the classes"
plots.shards(shards_of, class_of_sample.tolist(), title)

# %% [markdown]
# A rank has the same block in every epoch.
#
# **Takeaway** Deal out a shuffled order like cards. A block of sorted data shows each rank few of the classes.

# %% [markdown]
# ## Incident 3: why do two replicas have different weights?
#
# **Symptom.** The loss falls on both ranks. But the model of rank 1 scores differently from the model that rank 0
# saved.
#
# This hook is meant to average each gradient over all ranks as soon as it is ready. We rewrote it from a published one.


# %% locked="published_hook"
def published_hook(gradient):
    """A published hook that is meant to average a gradient over all ranks.  Do not use it."""
    dist.all_reduce(gradient)
    gradient.div_(dist.get_world_size())


# %% [markdown]
# Rank 0 fits the number 1, and rank 1 the number 5. Both start with the weight 0, so the mean gradient leads both to 3.
# Which column shows the fault?


# %% tags=["experiment"]
def weights_of(rank, world_size, hook):
    """The weight of this rank before backward, after backward and after the step, for each of four SGD steps."""
    weight = nn.Parameter(torch.zeros(1))
    weight.register_post_accumulate_grad_hook(hook)
    optimizer = torch.optim.SGD([weight], lr=0.25)
    target = 1 + 4 * rank
    rows = []
    for _ in range(4):
        optimizer.zero_grad()
        before_backward = weight.item()
        (weight - target).square().sum().backward()
        after_backward = weight.item()
        optimizer.step()
        rows.append((before_backward, after_backward, weight.item()))
    return rows


# %% tags=["experiment"]
def show_weights(hook):
    """Print what `weights_of` found on two ranks; True if both have the same weight after each step."""
    rows_of_rank = run_ranks(weights_of, 2, hook, backend="gloo")
    replicas_agree = True
    print("step  rank  before backward  after backward  after step")
    for step in range(4):
        for rank in range(2):
            before, after, stepped = rows_of_rank[rank][step]
            print(f"{step:4}  {rank:4}  {before:15.3f}  {after:14.3f}  {stepped:10.3f}")
        if rows_of_rank[0][step][2] != rows_of_rank[1][step][2]:
            replicas_agree = False
    return replicas_agree


replicas_agree = show_weights(published_hook)
course.claim(
    "with the published hook, two replicas do not have the same weight after a step",
    not replicas_agree,
)

# %% [markdown]
# Backward must not change the weights, and here it does. The hook receives the *parameter*, takes it for the gradient
# and averages the weights. Nobody averages the gradients, so the ranks differ after every step.
#
# **Known**: in picotron, commit d0efdcc replaced `register_hook`, which passes the gradient, by
# `register_post_accumulate_grad_hook`, which passes the parameter.

# %% [markdown]
# ### Exercise 4 · Fix the hook
#
# Write the hook so that it does what it was meant to do. A `grad` of 2 on rank 0 and 4 on rank 1 becomes 3 on both.
#
# **Points** 2 · **Core** · **Difficulty** ●○○ · **Minutes** 5 · **Lines** 2
#
# **Must**
#
# - leave in `parameter.grad` its mean over all ranks, by one `all_reduce`
# - leave the parameter as it is, and return None
#
# **You may assume** that it is registered on every trainable parameter of equal replicas.
#
# **Source** github.com/huggingface/picotron, class `DataParallelNaive`, since commit d0efdcc; PyTorch's documentation
# of `Tensor.register_post_accumulate_grad_hook`.
#
# <details><summary>Hint 1</summary>
#
# Who may change the parameter, the hook or the optimizer? And where does autograd keep its gradient?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# The gradient is `parameter.grad`, and it is already there: "post accumulate". Sum it over the ranks in place, then
# divide it in place.
#
# </details>


# %% solution="average_hook"
def average_hook(parameter):
    """None; `parameter.grad` becomes its mean over all ranks.

    Args:
        parameter: a leaf tensor whose gradient has just been added to `parameter.grad`; it stays as it is.
    """
    ### BEGIN SOLUTION
    dist.all_reduce(parameter.grad)
    parameter.grad /= dist.get_world_size()
    ### END SOLUTION


# %% test="average_hook-visible" points=1
check.average_hook(average_hook)

# %% test="average_hook-hidden" points=1
### BEGIN HIDDEN TESTS
check.average_hook(average_hook, seed=58)
### END HIDDEN TESTS

# %% tags=["experiment"]
replicas_agree = show_weights(course.solved(check.average_hook))
course.claim("with your hook, two replicas have the same weight after each step", replicas_agree)

# %% [markdown]
# **The test**: every thousand steps, all-gather `sum(p.double().sum() for p in model.parameters())`. All ranks must
# have the same number, to the last bit.
#
# **Takeaway** Replicas stay equal only if they start equal and take equal steps. Drift raises no error, so compare the
# ranks' weights now and then.

# %% [markdown]
# ## Incident 4: who waits for whom?
#
# **Symptom.** The training stands still after the first epoch. There is no error and no output, and all processes are
# alive. This is the end of its epoch:


# %% locked="end_of_epoch"
def end_of_epoch(rank, world_size):
    """Report the mean loss of all ranks, then start the next epoch together.  It hangs."""
    loss = torch.tensor(1.0 + rank)
    if rank == 0:
        dist.all_reduce(loss)
        print(f"mean loss {loss.item() / world_size}")
    dist.barrier()


# %% tags=["experiment"]
try:
    run_ranks(end_of_epoch, 2, backend="gloo", timeout=4)
except course.errors.RankError as error:
    report = str(error)
    print(report)

names_rank_0 = "rank 0 waits in all_reduce" in report
names_rank_1 = "rank 1 waits in barrier" in report
course.claim(
    "the report of the hang names two lines: the ranks wait in different collectives",
    names_rank_0 and names_rank_1,
)

# %% [markdown]
# Rank 0 waits in `all_reduce`. Rank 1 never called it, and waits in `barrier`. Every rank must call the same
# collectives in the same order. So the `all_reduce` belongs outside the `if`, and only the `print` inside.
#
# Evaluating the DDP wrapper on rank 0 alone is the same fault if the model has buffers (part 2).


# %% tags=["experiment"]
def end_of_epoch_repaired(rank, world_size):
    loss = torch.tensor(1.0 + rank)
    dist.all_reduce(loss)
    mean_loss = loss.item() / world_size
    if rank == 0:
        print(f"mean loss {mean_loss}")
    return mean_loss


mean_losses = run_ranks(end_of_epoch_repaired, 2, backend="gloo")
course.claim(
    "with the collective outside the if, both ranks know the mean loss",
    mean_losses == [1.5, 1.5],
)

# %% [markdown]
# **The test** is this call of `run_ranks`: run the function of a rank on two ranks, with a short time limit, before you
# rent eight GPUs.
#
# **Takeaway** Every rank must reach every collective. If two ranks wait at different lines, look for the branch that
# led them there.
#
# <details><summary>Which tools give such a report outside a notebook?</summary>
#
# `py-spy dump --pid N` prints where one process waits. With NCCL, the *flight recorder* records the collectives of each
# rank: set `TORCH_FR_BUFFER_SIZE=2000` and `TORCH_NCCL_DUMP_ON_TIMEOUT=1`, and let `torchfrtrace` compare the dumps
# ([docs/more-machines.md](../../docs/more-machines.md)).
#
# </details>

# %% [markdown]
# ## How long does a rank wait for one that has ended? · extra
#
# With gloo, a collective that hangs raises an error at the time limit of the process group. Does a rank that has ended
# cost the limit, too? Two processes all-reduce once. Then rank 1 returns, is killed, or sleeps, and rank 0 calls
# `all_reduce` again. The limit of this group is 5 seconds.
#
# **Predict**: in which cases does rank 0 wait for the time limit? Think of what the operating system does with the
# connections of a process that has ended.

# %%
predicted_waiting = None  # a set of names out of "returned", "killed", "hangs"

# %% tags=["experiment"]
waits = lost_peer.waits()
waits_to_the_limit = set()
for how, wait in waits.items():
    print(f"rank 1 {how:>8}: rank 0 waits {wait.seconds} s, then: {wait.said}")
    if wait.timed_out:
        waits_to_the_limit.add(how)

what = "cases in which rank 0 waits for the time limit"
print(course.score("02/3", what, predicted_waiting, waits_to_the_limit))
course.claim(
    "with gloo, only a rank that lives and does not answer costs the time limit",
    waits_to_the_limit == {"hangs"},
)
gloo_limit = constants.default_pg_timeout
nccl_limit = constants.default_pg_nccl_timeout
print(f"default limits: gloo {gloo_limit}, NCCL {nccl_limit}")

# %% [markdown]
# When a process ends, its operating system closes its connections, and with gloo the other rank gets an error. A
# process that lives but does not answer looks like a slow one, so only the time limit ends the wait.
#
# **Known**: NCCL differs. Its calls return before they are done, and a *watchdog* thread monitors them. When a
# collective exceeds the limit, or NCCL reports an error, the watchdog ends the process
# (`TORCH_NCCL_ASYNC_ERROR_HANDLING`, default 3: PyTorch documentation, "ProcessGroupNCCL Environment Variables"). Under
# torchrun, the agent of the machine then ends the other processes.
#
# **We think** that without torchrun a killed rank can cost the whole limit with NCCL. GPUs of one machine communicate
# through memory, not through a connection that the operating system closes. To test it, kill one of two ranks on two
# GPUs with a limit of one minute.
#
# **Takeaway** With gloo, an ended rank is noticed when its connection closes. A rank that hangs costs the time limit,
# so set one that you can afford.

# %% [markdown]
# ## Incident 5: why is the loss worse after a restart?
#
# **Symptom.** A training is killed after step 20 and resumes from its checkpoint. Its curve continues, mostly higher
# than the curve of a training that was never killed. The checkpoint holds everything but the optimizer's state.

# %% tags=["experiment"]
forgotten = gpt_run.losses_without("optimizer", 20)
complete = gpt_run.losses_without("", 20)

first_step = gpt_run.first_difference(forgotten, one_process)
print(f"first step whose loss differs: {first_step}")

course.claim(
    "a checkpoint without the optimizer changes the losses from the second step after the resume on",
    first_step == 22,
)
course.claim(
    "with the optimizer, the killed training has the losses of the undisturbed one, bit by bit",
    complete == one_process,
)
curves = {"optimizer forgotten": forgotten, "complete checkpoint": complete}
title = "Killed after step 20: without the optimizer's state, the losses differ"
plots.against_undisturbed(one_process, curves, title)

# %% [markdown]
# **Shown**: the two trainings differ only in the optimizer's state. AdamW keeps two running means for each weight, and
# a new optimizer has none. The first loss is right, because weights and batch are right. The update after it is not.
#
# **The test** is the curve "complete checkpoint": stop after k steps, resume, and compare bit by bit with a training
# that was never stopped. Part 4 shows what else a checkpoint must hold.
#
# **Takeaway** A checkpoint is complete if a resumed training is equal to an undisturbed one. A curve that looks fine
# proves nothing.

# %% [markdown]
# ## Which line can be left out? · extra
#
# A published script wraps the model in `DDP`, draws with `DistributedSampler`, and calls `dist.barrier()` before each
# batch. The next cells leave out these three lines one by one.
#
# **Predict**: which of the three can go without changing the final weights?

# %%
predicted_needless = None  # a set of names out of "wrapper", "sampler", "barrier"


# %% tags=["experiment"]
def train_without(rank, world_size, line):
    """(weights, steps) of this rank after an epoch of the script without one `line`."""
    torch.manual_seed(0)
    samples = torch.randn(16, 3)
    model = nn.Linear(3, 1)
    mine = range(16)
    if line != "sampler":
        mine = list(DistributedSampler(samples, seed=0))
    wrapped = model
    if line != "wrapper":
        wrapped = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for i in mine:
        if line != "barrier":
            dist.barrier()
        optimizer.zero_grad()
        wrapped(samples[i]).square().sum().backward()
        optimizer.step()
    return model.weight.flatten().tolist(), len(mine)


# %% tags=["experiment"]
trained = {}
for line in ("no line", "wrapper", "sampler", "barrier"):
    trained[line] = run_ranks(train_without, 2, line, backend="gloo")
complete_weights, _ = trained["no line"][0]

needless = set()
for line, of_ranks in trained.items():
    weights_0, steps = of_ranks[0]
    weights_1, _ = of_ranks[1]
    are_equal = weights_0 == weights_1
    is_unchanged = weights_0 == complete_weights
    print(
        f"{line} left out: {steps} steps; replicas equal: {are_equal};",
        f"weights of the complete script: {is_unchanged}",
    )
    if line != "no line" and is_unchanged:
        needless.add(line)

print(course.score("02/3", "lines that change nothing", predicted_needless, needless))
course.claim("a barrier before each batch changes no bit of the weights", needless == {"barrier"})

# %% [markdown]
# A launcher also sets environment variables. `init_process_group` reads all but `LOCAL_RANK`, and raises an error that
# names a missing one.
#
# | line or variable | what breaks without it |
# |---|---|
# | `DDP(model)` | nothing averages the gradients: each rank trains a model on its shard alone |
# | `DistributedSampler` | all ranks train on the same samples: N ranks take as many steps as one |
# | `dist.barrier()` before a batch | nothing: DDP meets the other ranks in each backward |
# | `MASTER_ADDR`, `MASTER_PORT` | the ranks do not know where to meet |
# | `RANK`, `WORLD_SIZE` | a rank does not know its number, or how many ranks to wait for |
# | `LOCAL_RANK` | a process does not know which GPU of its machine is its own (part 4) |
#
# Use a barrier where ranks depend on each other without a collective, for example if rank 0 writes a file that the
# others read afterwards.
#
# **Takeaway** The wrapper averages gradients, the sampler divides the data, and the variables let ranks meet. Training
# needs no barrier before a batch.

# %% [markdown]
# ## What does a rank's BatchNorm see? · extra
#
# DDP does not average the statistics of BatchNorm: each rank normalises with the mean and variance of its own batch.
# Before each forward, rank 0's running statistics overwrite those of the other ranks, because they are buffers. So the
# running statistics that rank 0 saves come from the samples of rank 0 alone.
#
# Here rank 0 holds 90 samples, and rank 1 holds 10 that are shifted by 10.


# %% tags=["experiment"]
def running_means(rank, world_size, samples, cut):
    """The running means on this rank after each of three forwards, with DDP and without it: two lists."""
    mine = samples[cut:]
    if rank == 0:
        mine = samples[:cut]
    bare = nn.BatchNorm1d(1)
    wrapped = DistributedDataParallel(bare)
    alone = nn.BatchNorm1d(1)
    means_with_ddp = []
    means_alone = []
    for _ in range(3):
        wrapped(mine)
        alone(mine)
        means_with_ddp.append(bare.running_mean.item())
        means_alone.append(alone.running_mean.item())
    return means_with_ddp, means_alone


# %% tags=["experiment"]
samples = torch.randn(100, 1, generator=torch.Generator().manual_seed(1))
samples[90:] += 10
means_of_ranks = run_ranks(running_means, 2, samples, 90, backend="gloo")

for rank, (means_with_ddp, means_alone) in enumerate(means_of_ranks):
    texts = []
    for with_ddp, alone in zip(means_with_ddp, means_alone, strict=True):
        texts.append(f"{with_ddp:.3f} (alone {alone:.3f})")
    print(f"rank {rank}:", ", ".join(texts))

with_ddp_on_rank_0, alone_on_rank_0 = means_of_ranks[0]
course.claim(
    "with DDP, rank 0's running statistics are those of its samples alone",
    with_ddp_on_rank_0 == alone_on_rank_0,
)

# %% [markdown]
# With small shards, these statistics are noisy. On GPUs, `nn.SyncBatchNorm` uses the moments of all ranks instead, and
# sends messages in every such layer. Two shortcuts fail:
#
# - The mean of the ranks' variances leaves out how far apart their means are.
# - "Mean of squares minus squared mean" loses digits if the mean is large: it subtracts two nearly equal numbers.

# %% [markdown]
# ### Exercise 5 · Moments of all ranks
#
# Compute the mean and the (biased) variance of each channel over the samples of all ranks. If rank 0 holds
# `[[1.], [3.]]` and rank 1 `[[8.]]`, both return mean 4 and variance 26/3.
#
# **Points** 4 · **Extra** · **Difficulty** ●●● · **Minutes** 25 · **Lines** 9
#
# **Must**
#
# - return the same two tensors (C,), of the dtype of `x`, on every rank
# - call at most 2 operations of `torch.distributed`, with bytes that do not depend on the number of samples
# - compute and send float64, so that float16 works, and float32 at mean 10,000 and deviation 1
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
    # (n_local * H * W, C); float32 counts to 2**24 only
    values = x.movedim(1, -1).reshape(-1, x.shape[1]).double()
    sums = torch.cat([values.sum(0), values.new_tensor([len(values)])])
    dist.all_reduce(sums)
    n = sums[-1]
    mean = sums[:-1] / n
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
    mine = samples[cut:]
    if rank == 0:
        mine = samples[:cut]
    mean, variance = moments(mine)
    return mean.item(), variance.item()


moments_now = course.solved(check.global_moments)
moments_of_ranks = run_ranks(moments_of_rank, 2, moments_now, samples, 90, backend="gloo")
mean, variance = moments_of_ranks[0]
print(f"global_moments on rank 0: mean {mean:.3f}, variance {variance:.3f}")

expected = (samples.mean().item(), samples.var(correction=0).item())
course.claim(
    "your moments are those of all samples, on both ranks",
    torch.allclose(torch.tensor(moments_of_ranks), torch.tensor([expected, expected]), atol=1e-3),
)

# %% [markdown]
# **Takeaway** Under DDP, BatchNorm sees only the rank's batch, and rank 0 saves its own running statistics. Use
# `SyncBatchNorm` if a rank's batch is small.
