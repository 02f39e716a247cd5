# %% [markdown]
# # Batch grouping, part 3: Choose which sequences form a batch
#
# **What if the sequences of a batch are alike from the start?**
#
# Part 2 left the batches as they were. Here you choose them: sequences of similar length go into one batch, and
# nothing needs to be grouped. Much training code does so. It has a price: batches are no longer random
# samples, they differ in tokens, and ranks of a parallel training get unequal work. You build the sampler, and then
# measure both sides.
#
# **You will be able to**
#
# - build a batch sampler that wastes little, shuffles, and divides the work among ranks;
# - fill batches up to a budget of tokens instead of a number of sequences;
# - weigh losses so that unequal batches give the gradient of the whole;
# - tell how much time ranks lose by waiting for the longest batch.
#
# **Minutes** 25 core · 75 in all
#
# **Needs** `padding_waste` and `best_thresholds` are taken over from parts 1 and 2 if you solved them


# %% locked="setup"
import itertools
import statistics

import torch
from torch.utils.data import Sampler

import course
from course.checks import batch_grouping as check
from course.datasets import sequences
from course.plots import batch_grouping as plots
from course.token_models import TokenPool

print(course.machine())
size, device = course.sizes("05_batch_grouping"), course.device()
drawn = sequences.load("lognormal", rows=size.rows_of_training)
print(f"{len(drawn):,} sequences of 1 to {int(drawn.lengths.max())} tokens")

# %% [markdown]
# ## Batches of similar length
#
# **Sorting inside a window keeps most of the randomness and loses most of the padding.**
#
# If the whole set is sorted by length, there is next to no padding, but batches never change, and short sequences come
# before long ones in every epoch. The usual compromise: shuffle, cut the order into windows of some batches, sort
# inside each window, cut it into batches, and shuffle the batches.
#
# **Predict**: batches of 64 (at the `laptop` scale), windows of 50 batches. How many padded tokens are left per real
# one?

# %%
my_guess_of_waste = None

# %% [markdown]
# ### Exercise 1 · The sampler
#
# Write a batch sampler. A `DataLoader` takes it as `batch_sampler`.
#
# **Must**
# - yield lists of indices: every index once per epoch, `batch_size` per batch; one batch may be smaller;
# - shuffle, sort inside windows of `window` batches by length, shuffle the batches;
# - `set_epoch(e)`: the order depends on (seed, epoch) alone; torch's global random numbers stay as they were;
# - every rank gets equally many batches; use every batch, repeat as few as needed;
# - `len()` is the number of batches of this rank.
#
# **Points** 5 · **Core** · **Difficulty** ●●● · **Minutes** 20 · **Lines** 22
#
# **Convention** Every rank has the same seed, so all compute the same list of batches. Before set_epoch it is epoch 0.
#
# **Source** Sutskever, Vinyals and Le 2014, section 3.4: batches of roughly the same length; `DistributedSampler`.
#
# <details><summary>Hint 1</summary>
#
# Which steps are the same on all ranks? At which step does the rank matter for the first time?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# A `torch.Generator` seeded from (seed, epoch) gives `randperm` for the order and for the batches. Split the order into
# pieces of window · batch_size, sort each by `lengths[piece]`, split it into batches.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# To deal out, repeat the list of batches from its beginning until world_size divides its length (with very few batches,
# more than once); rank r takes every world_size-th batch from number r on.
#
# </details>


# %% solution="BucketBatchSampler"
class BucketBatchSampler(Sampler):
    """Batches of similar length, shuffled.

    Args:
        lengths: int64 tensor (n,), tokens per sequence.
        batch_size: sequences per batch.
        window: batches that are sorted together.
        seed: of the order.
        rank, world_size: which share of the batches this sampler gives.
    """

    ### BEGIN SOLUTION
    def __init__(self, lengths, batch_size, window, seed=0, rank=0, world_size=1):
        self.lengths, self.batch_size, self.window, self.seed = lengths, batch_size, window, seed
        self.rank, self.world_size, self.epoch = rank, world_size, 0

    def set_epoch(self, epoch):
        """Choose the order of the next iteration."""
        self.epoch = epoch

    def __len__(self):
        batches = -(-len(self.lengths) // self.batch_size)
        return -(-batches // self.world_size)

    def __iter__(self):
        rng = torch.Generator().manual_seed(1_000_003 * self.seed + self.epoch)
        order, batches = torch.randperm(len(self.lengths), generator=rng), []
        for piece in order.split(self.window * self.batch_size):
            piece = piece[self.lengths[piece].argsort()]
            batches += piece.split(self.batch_size)
        batches = [batches[i].tolist() for i in torch.randperm(len(batches), generator=rng).tolist()]
        dealt = itertools.islice(itertools.cycle(batches), self.rank, len(self) * self.world_size, self.world_size)
        return iter(list(dealt))

    ### END SOLUTION


# %% test="BucketBatchSampler-visible" points=3
check.BucketBatchSampler(BucketBatchSampler)

# %% test="BucketBatchSampler-hidden" points=2
### BEGIN HIDDEN TESTS
check.BucketBatchSampler(BucketBatchSampler, seed=14)
### END HIDDEN TESTS

# %% tags=["experiment"]
sampler_now, waste_now = course.solved(check.BucketBatchSampler), course.solved(check.padding_waste)
best_now = course.solved(check.best_thresholds)
batch_size = size.batch_size


def waste_of(sampler, lengths):
    """Padded tokens per real token of the batches that `sampler` gives."""
    cells = tokens = 0
    for batch in sampler:
        own = lengths[torch.as_tensor(batch)]
        cells += len(own) * int(own.max())
        tokens += int(own.sum())
    return cells / tokens


many = sequences.load("lognormal", rows=size.rows_of_waste).lengths
windows = [1, 2, 5, 10, 20, 50, 100]
bucketed = [waste_of(sampler_now(many, batch_size, window), many) for window in windows]
limits = torch.tensor(best_now(many, 4))
in_groups = 0
for batch in many.split(batch_size):
    for group in torch.bucketize(batch, limits).unique().tolist():
        own = batch[torch.bucketize(batch, limits) == group]
        in_groups += len(own) * int(own.max())
four_groups = in_groups / int(many.sum())
levels = {
    "random batches": waste_now(many, batch_size),
    "random batches, four groups": four_groups,
    "all sorted": waste_now(many, batch_size, many.argsort()),
}
plots.waste_of_windows(windows, bucketed, levels)

# %% tags=["experiment"]
at_50 = bucketed[windows.index(50)]
print(f"windows of 50 batches: {at_50:.3f}; four groups: {four_groups:.3f}; you guessed {my_guess_of_waste}")
course.claim("sorting in windows of 50 batches wastes less than four groups in random batches", at_50 < four_groups,
             f"{at_50:.2f} against {four_groups:.2f}")  # fmt: skip

# %% [markdown]
# A window of one batch sorts inside the batch, which changes nothing. Here it takes about 20 batches per window to
# match four groups. Where it does not hold that windows beat groups, the set has hardly more batches than one window:
# its few longest sequences then share a batch with far shorter ones.

# %% [markdown]
# ## A budget of tokens
#
# **A batch of long sequences and one of short ones should cost the same memory.**
#
# ### Exercise 2 · Batches by budget
#
# Fill each batch until its rectangle would exceed a budget of padded tokens. Translation systems size their batches
# this way, and it bounds memory.
#
# **Must**
# - go through `order` and put each sequence into the current batch, unless (sequences × longest) would exceed `budget`;
#   then begin the next batch with it;
# - return a list of lists of indices.
#
# **Raises** ValueError if a sequence alone exceeds the budget.
#
# **Points** 3 · **Extra** · **Difficulty** ●●○ · **Minutes** 12 · **Lines** 14
#
# **Convention** A budget that is met exactly is not exceeded.
#
# **Source** `batch_by_size` of fairseq (Ott et al. 2019), with required_batch_size_multiple = 1.
#
# <details><summary>Hint 1</summary>
#
# When a sequence joins, which two numbers of the rectangle change?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Keep the longest of the current batch. Joining makes `(len(batch) + 1) * max(longest, length)` cells.
#
# </details>


# %% solution="token_budget_batches"
def token_budget_batches(lengths, budget, order=None):
    """Batches of at most `budget` padded tokens, filled in order.

    Args:
        lengths: int64 tensor (n,), tokens per sequence.
        budget: int, cells of a batch's rectangle.
        order: int64 tensor (n,), which sequence comes when; None for the order of the set.

    Returns: list of lists of int.
    Raises: ValueError if a sequence is longer than the budget.
    """
    ### BEGIN SOLUTION
    if int(lengths.max()) > budget:
        raise ValueError(f"a sequence of {int(lengths.max())} tokens does not fit into a budget of {budget}")
    batches, longest = [[]], 0
    for index in range(len(lengths)) if order is None else order.tolist():
        length = int(lengths[index])
        if (len(batches[-1]) + 1) * max(longest, length) > budget:
            batches.append([])
            longest = 0
        batches[-1].append(index)
        longest = max(longest, length)
    return batches
    ### END SOLUTION


# %% test="token_budget_batches-visible" points=2
check.token_budget_batches(token_budget_batches)

# %% test="token_budget_batches-hidden" points=1
### BEGIN HIDDEN TESTS
check.token_budget_batches(token_budget_batches, seed=32)
### END HIDDEN TESTS

# %% [markdown]
# ## What unequal batches do to the gradient
#
# **The mean of means is not the mean.**
#
# ### Exercise 3 · The loss of a ragged step
#
# Batches of a budget differ in size. DistributedDataParallel averages the *gradients* of the ranks, each of which is
# the gradient of that rank's loss. Return the loss to call backward on, so that the average is the gradient of the mean
# over all samples of the step.
#
# **Must** return a scalar tensor through which gradients flow; a rank without a sample returns 0.
#
# **You may assume** that every rank knows `total`, the number of samples of all ranks in this step.
#
# **Points** 2 · **Extra** · **Difficulty** ●●○ · **Minutes** 8 · **Lines** 1
#
# **Convention** `losses` are per sample, of this rank alone.
#
# **Source** Unit 02, `shard_scale`: the same weight for a shard of a batch.
#
# <details><summary>Hint 1</summary>
#
# What do the ranks' losses have to add up to, before the division by the number of ranks?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# The sum of this rank's losses, divided by `total`, is its share of the mean. DDP divides by `world_size` once more.
#
# </details>


# %% solution="ragged_loss"
def ragged_loss(losses, total, world_size):
    """The loss of one rank, such that the ranks' average is the mean over all samples.

    Args:
        losses: float tensor (n,), one loss per sample of this rank; n may be 0.
        total: samples of all ranks together.
        world_size: number of ranks.

    Returns: scalar tensor.
    """
    ### BEGIN SOLUTION
    return losses.sum() * world_size / total
    ### END SOLUTION


# %% test="ragged_loss-visible" points=1
check.ragged_loss(ragged_loss)

# %% test="ragged_loss-hidden" points=1
### BEGIN HIDDEN TESTS
check.ragged_loss(ragged_loss, seed=5)
### END HIDDEN TESTS

# %% [markdown]
# ## What it does to training
#
# **Whether sorting does harm depends on what the label has to do with the length.**
#
# Two tasks on the same sequences. In the first, a label says whether a marker token occurs, at every length alike. In
# the second it says whether the sequence is longer than the median.
#
# **Predict**: the same model and number of samples, three orders: shuffled, windows of 20 batches, all sorted by
# length. Which order ends worst in the first task, which in the second, and does it matter?

# %%
my_guess_for_marker, my_guess_for_length = None, None

# %% tags=["experiment"]
forward_now, pad_now = course.solved(check.padded_forward), course.solved(check.pad_batch)
tasks = {"label: marker": drawn.labels, "label: length": (drawn.lengths > drawn.lengths.median()).float()}
loss_of = torch.nn.functional.binary_cross_entropy_with_logits


def scores_of(model, batch):
    """The model's scores of the sequences in `batch`."""
    values, lengths, _ = (part.to(device) for part in sequences.collate([drawn[i] for i in batch.tolist()]))
    return forward_now(model, *pad_now(values, lengths))


def batches_of(order, epoch, seed):
    """The batches of an epoch, by the name of the order."""
    if order.startswith("sorted"):
        batches = drawn.lengths.argsort(stable=True).split(size.training_batch)
        rng = torch.Generator().manual_seed(1_000_003 * seed + epoch)
        turn = range(len(batches)) if order == "sorted" else torch.randperm(len(batches), generator=rng).tolist()
        return [batches[i] for i in turn]
    sampler = sampler_now(drawn.lengths, size.training_batch, 1 if order == "shuffled" else 20, seed=seed)
    sampler.set_epoch(epoch)
    return [torch.tensor(batch) for batch in sampler]


def losses_of(labels, order, seed):
    """Mean loss over the whole set after each epoch."""
    torch.manual_seed(seed)
    model = TokenPool(sequences.VOCABULARY, 32, 32).to(device)
    optimizer, found = torch.optim.SGD(model.parameters(), lr=0.05), []
    for epoch in range(size.training_epochs):
        for batch in batches_of(order, epoch, seed):
            optimizer.zero_grad()
            loss_of(scores_of(model, batch), labels[batch].to(device)).backward()
            optimizer.step()
        with torch.no_grad():
            whole = [loss_of(scores_of(model, b), labels[b].to(device), reduction="sum")
                     for b in torch.arange(len(drawn)).split(256)]  # fmt: skip
        found.append(float(sum(whole)) / len(drawn))
    return found


orders = ("shuffled", "windows", "sorted, shuffled batches", "sorted")
runs = {task: {order: [losses_of(labels, order, seed) for seed in range(size.seeds)] for order in orders}
        for task, labels in tasks.items()}  # fmt: skip
plots.losses(runs, "loss over the whole set")

# %% tags=["experiment"]
ends = {task: {order: [run[-1] for run in found[order]] for order in orders} for task, found in runs.items()}
for task, found in ends.items():
    for order, values in found.items():
        print(f"{task:<15} {order:<25} {statistics.mean(values):.3f} ({min(values):.3f} to {max(values):.3f})")
marker, length = ends["label: marker"], ends["label: length"]
course.claim("where the label follows the length, sorted batches end worse than shuffled ones, for every seed",
             min(length["sorted"]) > max(length["shuffled"]),
             f"{min(length['sorted']):.2f} at best against {max(length['shuffled']):.2f} at worst")  # fmt: skip
middle = statistics.mean(length["windows"])
course.claim("windows end between the two", statistics.mean(length["shuffled"]) < middle < min(length["sorted"]),
             f"{middle:.2f}")  # fmt: skip
mixed = statistics.mean(length["sorted, shuffled batches"])
course.claim("most of the harm is done by the fixed order of the sorted batches, not by sorting",
             mixed < (statistics.mean(length["shuffled"]) + statistics.mean(length["sorted"])) / 2,
             f"sorted batches in shuffled order end at {mixed:.2f}")  # fmt: skip
shift = {task: statistics.mean(f["sorted"]) / statistics.mean(f["shuffled"]) for task, f in ends.items()}
course.claim("where the label has nothing to do with the length, the order matters far less",
             abs(shift["label: marker"] - 1) < abs(shift["label: length"] - 1) / 2,
             f"sorted over shuffled {shift['label: marker']:.2f}, against {shift['label: length']:.2f}")  # fmt: skip

# %% [markdown]
# In the second task the first half of a sorted epoch is one class and the second half the other. Shuffling the sorted
# batches takes most of that harm away; what is left is that each batch holds nearly one class, and windows share it. In
# the first task every batch holds both classes. Where it does not hold on your data, look at how the label depends on
# the length before you look at the sampler.

# %% [markdown]
# ## Ranks that wait
#
# **A parallel step takes as long as its longest batch.**
#
# ### Exercise 4 · Time lost by waiting
#
# Compute which share of all ranks' time is spent waiting, if time follows the padded tokens.
#
# **Must** return waiting time over total time, over all steps together, as a Python float.
#
# **Points** 2 · **Extra** · **Difficulty** ●○○ · **Minutes** 8 · **Lines** 2
#
# **Convention** In each step every rank waits for the slowest one; total time is ranks × the sum of the steps' longest.
#
# **Source** One minus the load balance efficiency of the POP metrics (co-design.pop-coe.eu), mean over maximum.
#
# <details><summary>Hint 1</summary>
#
# How long does a step last for all ranks together? How much of it do they work?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# 1 − tokens.sum() / (ranks · tokens.max(dim=1).values.sum()).
#
# </details>


# %% solution="stragglers"
def stragglers(tokens):
    """Share of the ranks' time that is spent waiting.

    Args:
        tokens: int64 tensor (steps, ranks), padded tokens of each rank in each step.

    Returns: a Python float from 0 (no one waits) to 1.
    """
    ### BEGIN SOLUTION
    longest = tokens.amax(1).sum()
    return 1 - float(tokens.sum() / (tokens.shape[1] * longest))
    ### END SOLUTION


# %% test="stragglers-visible" points=1
check.stragglers(stragglers)

# %% test="stragglers-hidden" points=1
### BEGIN HIDDEN TESTS
check.stragglers(stragglers, seed=40)
### END HIDDEN TESTS

# %% [markdown]
# **Predict**: four ranks. Who waits longer: ranks with random batches of 64, with bucketed batches of 64, or with
# batches of a token budget?

# %%
my_guess_of_waiting = None

# %% tags=["experiment"]
stragglers_now, budget_now = course.solved(check.stragglers), course.solved(check.token_budget_batches)
ranks = 4


def cells_of(batches):
    """Padded tokens of each batch."""
    return [len(batch) * int(many[torch.as_tensor(batch)].max()) for batch in batches]


def dealt(batches):
    """(steps, ranks): the padded tokens of batches that are dealt out in turn."""
    cells = torch.tensor(cells_of(batches))
    return cells[: len(cells) // ranks * ranks].view(-1, ranks)


shuffled = torch.randperm(len(many), generator=torch.Generator().manual_seed(2))
budget = max(batch_size * int(many.float().mean()), int(many.max()))
by_budget = budget_now(many, budget, many.argsort())
turn = torch.randperm(len(by_budget), generator=torch.Generator().manual_seed(3)).tolist()
ways = {"random": shuffled.split(batch_size), "bucketed": list(sampler_now(many, batch_size, 20)),
        "token budget": [by_budget[i] for i in turn]}  # fmt: skip
waiting = {name: stragglers_now(dealt(batches)) for name, batches in ways.items()}
spent = {name: float(dealt(batches).amax(1).sum() * ranks / many.sum()) for name, batches in ways.items()}
plots.waiting(waiting, spent)

# %% tags=["experiment"]
for name, share in waiting.items():
    print(f"{name:<13} waits {100 * share:2.0f} % of the time; in all {spent[name]:5.2f} tokens' time per real token")
course.claim("bucketed batches make ranks wait longer than random ones", waiting["bucketed"] > waiting["random"],
             f"{100 * waiting['bucketed']:.0f} % against {100 * waiting['random']:.0f} %")  # fmt: skip
course.claim("they still take less time than random ones, waiting included", spent["bucketed"] < spent["random"],
             f"{spent['bucketed']:.1f} against {spent['random']:.1f}")  # fmt: skip
course.claim("a token budget makes ranks wait least", waiting["token budget"] == min(waiting.values()),
             f"{100 * waiting['token budget']:.0f} %")  # fmt: skip

# %% [markdown]
# Random batches differ less in width than bucketed ones, but their ranks still wait, and they compute padding besides.
# Bucketed batches differ by their length, so the rank with the short one waits. A token budget gives all ranks about
# the same rectangle. Where it does not hold that it waits least, single sequences fill the whole budget.

# %% [markdown]
# ## What to take with you
#
# - Sorting in windows of shuffled data removes most of the padding; where the label follows the length, it costs
#   accuracy.
# - Batches of unequal size need weights: the sum over samples, divided by all samples of the step.
# - Under data parallelism, balance tokens, not sequences.
#
# Part 4 leaves the rectangle altogether.
