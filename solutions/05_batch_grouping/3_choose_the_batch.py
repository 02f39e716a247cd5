# %% [markdown]
# # Batch grouping, part 3: Choose which sequences form a batch
#
# **What if the sequences of a batch are alike from the start?**
#
# Part 2 left the batches as they were. Here you put sequences of similar length into one batch. But then a batch is no
# longer a random sample, and the ranks of a parallel training get unequal work. You build the sampler, and measure what
# it gains and what it costs.
#
# **You will be able to**
#
# - build a batch sampler that wastes little, and shuffles again in each epoch;
# - tell from your labels whether such batches harm the training;
# - weight the losses of unequal batches so that the gradient is right, and compute how long ranks wait.
#
# **Minutes** 31 core · 91 in all · session 2
#
# **Needs** `padding_waste` and `pad_batch` of part 1
#
# As before, *waste* is cells of the padded rectangle per token.


# %% locked="setup"
import statistics

import numpy as np
import torch
from torch.utils.data import Sampler

import course
from course import figures
from course.checks import batch_grouping as check
from course.datasets import sequences
from course.learner.predictions import reveal
from course.plots import batch_grouping as plots
from course.training import grouping
from course.training.token_models import TokenPool

print(course.machine())
size, device = course.sizes("05_batch_grouping"), course.device()
drawn = sequences.load("lognormal", rows=size.rows_of_training)
many = sequences.load("lognormal", rows=size.rows_of_waste).lengths
print(f"to train on: {len(drawn):,} sequences; to count cells: {len(many):,}; 1 to {int(many.max())} tokens each")

# %% [markdown]
# ## How much padding does sorting remove?
#
# Sort the whole set by length, and hardly any padding is left, but the same sequences meet in every epoch. *Bucketing*
# is the compromise: shuffle, cut the order into windows of some batches, sort inside each window, cut it into batches,
# and shuffle the batches.
#
# **Predict** Random batches of 64 take several cells per token. How many cells per token are left with windows of 50
# batches?

# %%
my_guess_of_waste = None  # cells per token

# %% [markdown]
# ### Exercise 1 · The sampler
#
# Complete a batch sampler, as a `DataLoader` takes it for `batch_sampler`: write `__len__` and `__iter__`.
#
# **Must**
# - yield lists of indices, every index once per epoch and `batch_size` per batch (one batch may be smaller);
# - shuffle the set, sort inside windows of `window` batches by length, shuffle the batches;
# - let seed and epoch alone determine the order, and leave torch's global random numbers as they are.
#
# **Points** 4 · **Core** · **Difficulty** ●●○ · **Minutes** 18 · **Lines** 10
#
# **Convention** `len()` is the number of batches.
#
# **Source** Sutskever, Vinyals and Le 2014, section 3.4: batches of roughly the same length.
#
# <details><summary>Hint 1</summary>
#
# Write the four steps as four lines: an order, its windows, the batches of each window, the order of the batches.
# Which two of them need random numbers?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `rng = np.random.default_rng((seed, epoch))`, new in each `__iter__`, gives `rng.permutation(n)` for the order and for
# the batches. `torch.from_numpy(order).split(n)` cuts it into pieces of n.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# For each `piece` of `order.split(window * batch_size)`: `piece[lengths[piece].argsort()].split(batch_size)` are its
# batches. Gather them in a list, and give them in the order of `rng.permutation(len(batches))`.
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
    """

    def __init__(self, lengths, batch_size, window, seed=0):
        grouping.check_lengths(lengths, batch_size=batch_size, window=window)
        self.lengths, self.batch_size, self.window = lengths, batch_size, window
        self.seed, self.epoch = seed, 0

    def set_epoch(self, epoch):
        """Choose the order of the next iteration."""
        self.epoch = epoch

    ### BEGIN SOLUTION
    def __len__(self):
        return -(-len(self.lengths) // self.batch_size)

    def __iter__(self):
        rng = np.random.default_rng((self.seed, self.epoch))
        order, batches = torch.from_numpy(rng.permutation(len(self.lengths))), []
        for piece in order.split(self.window * self.batch_size):
            piece = piece[self.lengths[piece].argsort()]
            batches += piece.split(self.batch_size)
        for i in rng.permutation(len(batches)):
            yield batches[i].tolist()

    ### END SOLUTION


# %% test="BucketBatchSampler-visible" points=2
check.BucketBatchSampler(BucketBatchSampler)

# %% test="BucketBatchSampler-hidden" points=2
### BEGIN HIDDEN TESTS
check.BucketBatchSampler(BucketBatchSampler, seed=14)
### END HIDDEN TESTS

# %% tags=["experiment"]
sampler_now = course.solved(check.BucketBatchSampler)
few = sequences.lognormal_lengths(24, torch.Generator().manual_seed(1), mean=1.8, std=0.7, longest=20)
windows_drawn = {"windows of 1 batch": 1, "windows of 2": 2, "one window over all 4": 4}
plots.padding_cells({title: [few[batch] for batch in sampler_now(few, 6, window)]
                     for title, window in windows_drawn.items()})  # fmt: skip

# %% [markdown]
# That was the sampler on 24 sequences, in batches of six. Now the whole set:

# %% tags=["experiment"]
waste_now, batch_size = course.solved(check.padding_waste), size.batch_size


def cells_of(batches):
    """Cells of each batch of indices into `many`."""
    return [len(batch) * int(many[torch.as_tensor(batch)].max()) for batch in batches]


windows = [1, 2, 5, 10, 20, 50, 100]
bucketed = [sum(cells_of(sampler_now(many, batch_size, window))) / int(many.sum()) for window in windows]
limits = torch.tensor(grouping.greedy_thresholds(many, 4))
in_groups = 0
for batch in torch.arange(len(many)).split(batch_size):
    group_of = torch.bucketize(many[batch], limits)
    in_groups += sum(cells_of([batch[group_of == group] for group in group_of.unique()]))
levels = {
    "random batches": waste_now(many, batch_size),
    "four groups in random batches": in_groups / int(many.sum()),
    "all sorted": waste_now(many, batch_size, many.argsort()),
}
plots.waste_of_windows(windows, bucketed, levels)

# %% tags=["experiment"]
at_50, four_groups = bucketed[windows.index(50)], levels["four groups in random batches"]
enough = [window for window, waste in zip(windows, bucketed, strict=True) if waste < four_groups]
print(f"windows of 50 batches: {at_50:.2f} cells per token" + reveal(my_guess_of_waste))
otherwise = "Compare with a larger set: how many windows does yours have?"
course.claim("windows of 50 batches remove at least nine tenths of the padding of random batches",
             at_50 - 1 < 0.1 * (bucketed[0] - 1), f"waste {at_50:.2f} instead of {bucketed[0]:.2f}",
             otherwise=otherwise)  # fmt: skip
course.claim("windows of 50 batches waste less than four groups in random batches", at_50 < four_groups,
             f"{at_50:.2f} against {four_groups:.2f}; windows from {enough[0] if enough else 'no'} on do",
             otherwise=otherwise)  # fmt: skip

# %% [markdown]
# Windows of 50 batches left 1.18 cells per token. Random batches have 6.63, or 1.56 if each is split into four groups.
#
# **Takeaway** Sorting inside windows of shuffled data removes most of the padding.

# %% [markdown]
# ## How large must a window be? · extra
#
# The figure builds batches like your sampler, from 2,000 of the lengths, but leaves them in the order of the windows.
# Grey is what padding costs.
#
# **If you shrink the batch from 64 sequences to 8, must a window hold as many batches or as many sequences as before to
# remove the same share of the padding?**

# %% tags=["experiment"]
figures.padding(many[:2000].tolist(), batch_size=batch_size, window=5)

# %% [markdown]
# Sorting cuts a window into as many pieces as it has batches, and a batch pads only the lengths of its piece.
#
# **Takeaway** What a window removes depends mostly on how many batches it holds: choose it in batches, and no larger
# than you need.

# %% [markdown]
# ## Does sorting harm the training?
#
# You train `TokenPool` on the same sequences for two tasks. In the first, the label says whether a marker token occurs,
# which has nothing to do with the length. In the second, it says whether the sequence is longer than the median.
#
# **Predict** In the second task, how many times as large is the final loss with batches sorted from short to long,
# compared with random ones?

# %%
my_guess_for_length = None  # times; 1 if equal

# %% tags=["experiment"]
pad_now = course.solved(check.pad_batch)
tasks = {"label: marker": drawn.labels, "label: length": (drawn.lengths > drawn.lengths.median()).float()}
loss_of = torch.nn.functional.binary_cross_entropy_with_logits


def scores_of(model, batch):
    """The model's scores of the sequences in `batch`."""
    values, lengths, _ = (part.to(device) for part in sequences.collate([drawn[i] for i in batch.tolist()]))
    return model(*pad_now(values, lengths))


def batches_of(order, epoch, seed):
    """The batches of an epoch, by the name of the order."""
    if order.startswith("sorted"):
        batches = drawn.lengths.argsort(stable=True).split(size.training_batch)
        rng = np.random.default_rng((seed, epoch))
        return [batches[i] for i in (range(len(batches)) if order == "sorted" else rng.permutation(len(batches)))]
    sampler = sampler_now(drawn.lengths, size.training_batch, 20 if order == "windows" else 1, seed=seed)
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
                     for b in drawn.lengths.argsort().split(256)]  # fmt: skip
        found.append(float(sum(whole)) / len(drawn))
    return found


orders = {
    "label: marker": ("shuffled", "windows", "sorted"),
    "label: length": ("shuffled", "windows", "sorted, shuffled batches", "sorted"),
}
runs = {task: {order: [losses_of(labels, order, seed) for seed in range(size.seeds)] for order in orders[task]}
        for task, labels in tasks.items()}  # fmt: skip
plots.losses(runs, "loss over the whole set")

# %% tags=["experiment"]
ends = {task: {order: [run[-1] for run in found[order]] for order in found} for task, found in runs.items()}
for task, found in ends.items():
    for order, values in found.items():
        print(f"{task:<15} {order:<25} {statistics.mean(values):.3f} ({min(values):.3f} to {max(values):.3f})")
mean = {task: {order: statistics.mean(values) for order, values in found.items()} for task, found in ends.items()}
length, marker = mean["label: length"], mean["label: marker"]
otherwise = "Compare the difference with the ranges of the seeds, printed above."
course.claim("where the label follows the length, the sorted order ends worse than the shuffled one, for every seed",
             min(ends["label: length"]["sorted"]) > max(ends["label: length"]["shuffled"]),
             f"{length['sorted'] / length['shuffled']:.1f} times the loss"
             + reveal(my_guess_for_length, "{} times"), otherwise=otherwise)  # fmt: skip
course.claim("sorted batches in shuffled order end better than in sorted order",
             length["sorted, shuffled batches"] < length["sorted"],
             f"loss {length['sorted, shuffled batches']:.2f}, against {length['sorted']:.2f}",
             otherwise=otherwise)  # fmt: skip
course.claim("windows end between the shuffled and the sorted order, on average",
             length["shuffled"] < length["windows"] < length["sorted"], f"loss {length['windows']:.2f}",
             otherwise=otherwise)  # fmt: skip
pure = {order: statistics.mean(max(x, 1 - x) for x in
                               (tasks["label: length"][batch].mean().item() for batch in batches_of(order, 0, 0)))
        for order in ("shuffled", "windows")}  # fmt: skip
course.claim("batches of windows hold nearly one class, batches of the shuffled order do not",
             pure["windows"] > 0.85 > pure["shuffled"],
             f"{100 * pure['windows']:.0f} % and {100 * pure['shuffled']:.0f} % of a batch have one label",
             otherwise="Look at the batches of other epochs, too.")  # fmt: skip
shift = {"marker": marker["sorted"] / marker["shuffled"], "length": length["sorted"] / length["shuffled"]}
course.claim("where the label has nothing to do with the length, the order matters far less",
             abs(shift["marker"] - 1) < abs(shift["length"] - 1) / 2,
             f"sorted over shuffled {shift['marker']:.2f}, against {shift['length']:.2f}",
             otherwise=otherwise)  # fmt: skip

# %% [markdown]
# Where the label has nothing to do with the length, all orders ended at a loss of 0.009. Where it follows the length,
# random batches ended at 0.38, and the order from short to long at 1.34. Windows ended at 0.52; 98 % of such a batch
# has one label. Sorted batches in shuffled order ended at 0.47.
#
# **Takeaway** If the label depends on the length, sorted batches harm the training, most of all from short to long.
# Check your labels before you bucket.

# %% [markdown]
# ## How large is the largest batch? · extra
#
# Sorted batches of a fixed number of sequences differ in their cells, so the largest one decides how much memory you
# need. A *budget* limits the cells of a batch instead.
#
# ### Exercise 2 · Batches by budget
#
# Fill each batch until its rectangle would exceed the budget. Translation systems size their batches this way.
#
# ```python
# >>> token_budget_batches(torch.tensor([1, 2, 5, 2]), budget=6)
# [[0, 1], [2], [3]]
# ```
#
# **Must**
# - go through `order` and put each sequence into the current batch, unless (sequences × longest) would exceed `budget`
#   (then begin the next batch with it);
# - raise ValueError if a sequence alone exceeds the budget.
#
# **Points** 3 · **Extra** · **Difficulty** ●●○ · **Minutes** 15 · **Lines** 12
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
    """Batches of at most `budget` cells, filled in order.

    Args:
        lengths: int64 tensor (n,), tokens per sequence.
        budget: int, most cells of a batch.
        order: int64 tensor (n,), which sequence comes when; None for the order of the set.

    Returns: list of lists of int.
    Raises: ValueError if a sequence is longer than the budget.
    """
    grouping.check_lengths(lengths, budget=budget)
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

# %% tags=["experiment"]
budget_now = course.solved(check.token_budget_batches)
order = many.argsort()
budget = batch_size * int(many.float().mean().ceil())
budget = max(budget, int(many.max()))
by_number, by_budget = order.split(batch_size), budget_now(many, budget, order)
largest = {name: max(cells_of(batches)) for name, batches in (("number", by_number), ("budget", by_budget))}
course.claim("sorted batches of a fixed number of sequences need more memory for the largest than a budget does",
             largest["number"] > largest["budget"],
             f"{largest['number']:,} cells against {largest['budget']:,}",
             otherwise="Compare the budget with the longest sequence.")  # fmt: skip
print(f"by number: {len(by_number)} batches of {batch_size}; by budget: {len(by_budget)} batches of "
      f"{min(map(len, by_budget))} to {max(map(len, by_budget))} sequences, at most {budget:,} cells")  # fmt: skip
in_order = few.argsort()
drawn_batches = {"six sequences each": [few[batch] for batch in in_order.split(6)],
                 "at most 48 cells each": [few[batch] for batch in budget_now(few, 48, in_order)]}  # fmt: skip
most, bounded = (max(len(batch) * int(batch.max()) for batch in batches) for batches in drawn_batches.values())
plots.padding_cells(drawn_batches, f"The largest batch has {most} cells by number, {bounded} by budget")

# %% [markdown]
# By number, the largest of 512 batches had 16,384 cells; by budget, the largest of 505 had 1,344.
#
# **Takeaway** With a budget no batch exceeds a size that you choose, so you can choose it to fill your memory.

# %% [markdown]
# ## What do unequal batches do to the gradient? · extra
#
# ### Exercise 3 · The loss of a rank
#
# Batches of a budget differ in their number of sequences, and DistributedDataParallel averages the gradients of the
# ranks. Return a loss for one rank such that this average is the gradient of the mean over all samples of the step.
#
# **Must** return a scalar tensor on which a rank can call backward, even without a sample.
#
# **Points** 2 · **Extra** · **Difficulty** ●●○ · **Minutes** 10 · **Lines** 1
#
# **Convention** `losses` are per sample, of this rank alone; `total` counts the samples of all ranks.
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
# **Predict** Four ranks get four batches of the budget, from short to long. By how many per cent is the gradient off if
# every rank takes the mean of its own losses?

# %%
my_guess_of_the_error = None  # per cent of the gradient's norm

# %% tags=["experiment"]
ragged_now = course.solved(check.ragged_loss)


def gradient_of(model, loss):
    """The gradient of all parameters as one vector."""
    return torch.cat(
        [part.flatten() for part in torch.autograd.grad(loss, list(model.parameters()), retain_graph=True)]
    )


longest = int(drawn.lengths.max())
made = budget_now(drawn.lengths, max(longest, int(drawn.lengths.sum()) // 8), drawn.lengths.argsort())
of_ranks = [torch.tensor(made[i * (len(made) - 1) // 3]) for i in range(4)]  # from the shortest to the longest batch
together = torch.cat(of_ranks)
torch.manual_seed(0)
model = TokenPool(sequences.VOCABULARY, 32, 32).to(device)
losses = [loss_of(scores_of(model, batch), drawn.labels[batch].to(device), reduction="none") for batch in of_ranks]
whole = gradient_of(model, loss_of(scores_of(model, together), drawn.labels[together].to(device)))
ways = {
    "weighted": [ragged_now(own, len(together), 4) for own in losses],
    "mean of means": [own.mean() for own in losses],
}
error = {name: float((sum(gradient_of(model, loss) for loss in rank_losses) / 4 - whole).norm() / whole.norm())
         for name, rank_losses in ways.items()}  # fmt: skip
print(f"sequences of the ranks: {[len(batch) for batch in of_ranks]}")
course.claim("with your loss the average over the ranks is the gradient of all samples", error["weighted"] < 1e-4,
             f"off by {error['weighted']:.1e} of its norm")  # fmt: skip
course.claim("the mean of the ranks' means differs from the gradient of all samples", error["mean of means"] > 0.01,
             f"off by {100 * error['mean of means']:.0f} %" + reveal(my_guess_of_the_error, "{} %"))  # fmt: skip

# %% [markdown]
# The ranks had 332, 107, 43 and 10 sequences. With a mean per rank, each of the ten counts 33 times as much as each of
# the 332.
#
# **Takeaway** The mean of means is not the mean: divide sums by the samples of all ranks.

# %% [markdown]
# ## How long do ranks wait? · extra
#
# A parallel training step takes as long as its slowest rank, so unequal batches make ranks wait.
#
# ### Exercise 4 · Batches for the ranks
#
# Choose the batches of one rank. All ranks have the same list, because their samplers have the same seed and epoch.
#
# **Must**
# - give every rank equally many batches, and every batch to some rank;
# - repeat as few batches as needed;
# - leave the list `batches` as it is.
#
# **Points** 2 · **Extra** · **Difficulty** ●○○ · **Minutes** 10 · **Lines** 2
#
# **Source** `torch.utils.data.DistributedSampler` repeats samples in the same way.
#
# <details><summary>Hint 1</summary>
#
# How many batches are missing to the next multiple of `world_size`? What is that number if none is missing?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `-len(batches) % world_size` are missing. Append as many from the beginning; rank r takes every world_size-th batch
# from number r on.
#
# </details>


# %% solution="shard_batches"
def shard_batches(batches, rank, world_size):
    """The batches of one rank.

    Args:
        batches: list of lists of int, the same on every rank.
        rank, world_size: which of how many.

    Returns: list of lists of int, equally long for every rank.
    """
    ### BEGIN SOLUTION
    batches = batches + batches[: -len(batches) % world_size]
    return batches[rank::world_size]
    ### END SOLUTION


# %% test="shard_batches-visible" points=1
check.shard_batches(shard_batches)

# %% test="shard_batches-hidden" points=1
### BEGIN HIDDEN TESTS
check.shard_batches(shard_batches, seed=10)
### END HIDDEN TESTS

# %% [markdown]
# ### Exercise 5 · Time lost by waiting
#
# Compute which share of all ranks' time is spent waiting, if time is proportional to cells.
#
# ```python
# >>> round(stragglers(torch.tensor([[4, 2], [1, 1]])), 3)  # of 5 + 5, the second rank waits 2
# 0.2
# ```
#
# **Must** return waiting time over total time, over all training steps together, as a Python float.
#
# **Points** 2 · **Extra** · **Difficulty** ●○○ · **Minutes** 10 · **Lines** 2
#
# **Source** One minus the load balance efficiency of the POP metrics (co-design.pop-coe.eu), mean over maximum.
#
# <details><summary>Hint 1</summary>
#
# How long does a training step last for all ranks together? How much of it do they work?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# 1 − cells.sum() / (ranks · cells.max(dim=1).values.sum()).
#
# </details>


# %% solution="stragglers"
def stragglers(cells):
    """Share of the ranks' time that is spent waiting.

    Args:
        cells: int64 tensor (training steps, ranks), cells of each rank in each training step.

    Returns: a Python float from 0 (no one waits) to 1.
    """
    ### BEGIN SOLUTION
    longest = cells.amax(1).sum()
    return 1 - float(cells.sum() / (cells.shape[1] * longest))
    ### END SOLUTION


# %% test="stragglers-visible" points=1
check.stragglers(stragglers)

# %% test="stragglers-hidden" points=1
### BEGIN HIDDEN TESTS
check.stragglers(stragglers, seed=40)
### END HIDDEN TESTS

# %% [markdown]
# You compare four ways to make batches for four ranks. They are random, bucketed, *balanced* (bucketed, and batches of
# similar size form a step), or filled up to a budget.
#
# **Predict** With which of the four do ranks wait longest?

# %%
my_guess_of_longest_wait = None  # "random", "bucketed", "balanced", "budget"

# %% tags=["experiment"]
stragglers_now, shard_now = course.solved(check.stragglers), course.solved(check.shard_batches)
ranks = 4


def shuffled(items, seed):
    """The items as a list, in random order."""
    return [items[i] for i in np.random.default_rng(seed).permutation(len(items))]


def balanced(batches):
    """Batches in which each run of `ranks` neighbours has similar numbers of cells, the runs shuffled."""
    by_cells = [batches[i] for i in torch.tensor(cells_of(batches)).argsort().tolist()]
    return sum(shuffled([by_cells[i : i + ranks] for i in range(0, len(by_cells), ranks)], 4), [])


def table_of(batches):
    """(training steps, ranks): the cells of the batches that each rank gets."""
    return torch.tensor([cells_of(shard_now(batches, rank, ranks)) for rank in range(ranks)]).T


in_buckets = list(sampler_now(many, batch_size, 20))
lists = {
    "random": [batch.tolist() for batch in torch.tensor(shuffled(range(len(many)), 2)).split(batch_size)],
    "bucketed": in_buckets,
    "balanced": balanced(in_buckets),
    "budget": shuffled(budget_now(many, budget, many.argsort()), 3),
}
waiting = {name: stragglers_now(table_of(batches)) for name, batches in lists.items()}
spent = {name: float(table_of(batches).amax(1).sum() * ranks / many.sum()) for name, batches in lists.items()}
plots.waiting(waiting, spent)

# %% tags=["experiment"]
for name, share in waiting.items():
    print(
        f"{name:<9} waits {100 * share:2.0f} % of the time; computing and waiting: {spent[name]:5.2f} cells per token"
    )
print("longest wait:", max(waiting, key=waiting.get) + reveal(my_guess_of_longest_wait))
course.claim("bucketed batches make ranks wait longer than random ones", waiting["bucketed"] > waiting["random"],
             f"{100 * waiting['bucketed']:.0f} % against {100 * waiting['random']:.0f} % of the time")  # fmt: skip
course.claim("bucketed batches still take less time than random ones, waiting included",
             spent["bucketed"] < spent["random"],
             f"{spent['bucketed']:.1f} against {spent['random']:.1f} cells per token")  # fmt: skip
course.claim("balancing the same bucketed batches at least halves the wait",
             waiting["balanced"] < waiting["bucketed"] / 2,
             f"{100 * waiting['balanced']:.0f} % of the time")  # fmt: skip
course.claim("a budget makes ranks wait less than random or bucketed batches do",
             waiting["budget"] < min(waiting["random"], waiting["bucketed"]),
             f"{100 * waiting['budget']:.0f} % of the time",
             otherwise="How many batches of the budget hold one sequence?")  # fmt: skip

# %% [markdown]
# With bucketed batches the ranks waited 62 % of the time. Waiting included, they took 3.8 cells per token, against 9.7
# with random ones. Balanced batches took 1.5, and a budget 1.0; with either, ranks waited 2 %.
#
# **Takeaway** Balance cells, not sequences, between the ranks.
#
# Part 4 leaves the rectangle altogether.
