# %% [markdown]
# # Batch grouping, part 3: Choose which sequences form a batch
#
# **What if the sequences of a batch are alike from the start?**
#
# Part 2 left the batches as they were. Here you choose them: sequences of similar length go into one batch, and
# nothing needs to be grouped. Much training code does so. It has disadvantages: batches are no longer random
# samples, they differ in tokens, and the ranks of a parallel training get unequal work. You build the sampler, and then
# measure what it gains and what it loses.
#
# **You will be able to**
#
# - build a batch sampler that wastes little, shuffles, and gives the same order again for the same seed and epoch;
# - fill batches up to a budget of cells instead of a number of sequences;
# - weight losses so that unequal batches give the gradient of the whole;
# - compute how much time ranks lose by waiting for the longest batch.
#
# **Minutes** 25 core · 95 in all
#
# **Needs** `padding_waste` and `best_thresholds` are taken over from parts 1 and 2 if you solved them
#
# As before, a *cell* is a place of the padded rectangle, with a token or with padding, and *waste* is cells per token.


# %% locked="setup"
import statistics

import torch
from torch.utils.data import Sampler

import course
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
# ## Batches of similar length
#
# **Sorting inside windows removes most of the padding, and every epoch still has other batches.**
#
# If the whole set is sorted by length, there is hardly any padding, but the same sequences meet in every epoch. The
# usual compromise is *bucketing*: shuffle, cut the order into windows of some batches, sort inside each window, cut it
# into batches, and shuffle the batches.
#
# **Predict**: random batches of this set waste several cells per token, as part 1 showed. How many cells per token are
# left with windows of 50 batches?

# %%
my_guess_of_waste = None  # cells per token

# %% [markdown]
# ### Exercise 1 · The sampler
#
# Complete a batch sampler, as a `DataLoader` takes it for `batch_sampler`: write `__len__` and `__iter__`.
#
# **Must**
# - `__iter__` yields batches, lists of indices: every index once per epoch, `batch_size` per batch; one batch,
#   anywhere, may be smaller;
# - shuffle the set, sort inside windows of `window` batches by length, shuffle the batches;
# - the order depends on seed and epoch alone; another seed or another epoch gives another order;
# - torch's global random numbers stay as they were;
# - `len()` is the number of batches.
#
# **You may assume** that each length is at least 1.
#
# **Points** 4 · **Core** · **Difficulty** ●●○ · **Minutes** 20 · **Lines** 10
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
# A new `torch.Generator().manual_seed(...)` in each `__iter__`, seeded from both numbers (say 1,000,003 · seed +
# epoch), gives `randperm` for the order and for the batches. `order.split(n)` cuts a tensor into pieces of n.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# For each `piece` of `order.split(window * batch_size)`: `piece[lengths[piece].argsort()].split(batch_size)` are its
# batches. Gather them in a list, and give them in the order of `torch.randperm(len(batches), generator=rng)`.
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
        rng = torch.Generator().manual_seed(1_000_003 * self.seed + self.epoch)
        order, batches = torch.randperm(len(self.lengths), generator=rng), []
        for piece in order.split(self.window * self.batch_size):
            piece = piece[self.lengths[piece].argsort()]
            batches += piece.split(self.batch_size)
        for i in torch.randperm(len(batches), generator=rng).tolist():
            yield batches[i].tolist()

    ### END SOLUTION


# %% test="BucketBatchSampler-visible" points=2
check.BucketBatchSampler(BucketBatchSampler)

# %% test="BucketBatchSampler-hidden" points=2
### BEGIN HIDDEN TESTS
check.BucketBatchSampler(BucketBatchSampler, seed=14)
### END HIDDEN TESTS

# %% [markdown]
# First the sampler at work on 24 sequences, in batches of six: a gap separates the batches.

# %% tags=["experiment"]
sampler_now = course.solved(check.BucketBatchSampler)
few = sequences.lognormal_lengths(24, torch.Generator().manual_seed(1), mean=1.8, std=0.7, longest=20)
windows_drawn = {"windows of 1 batch": 1, "windows of 2": 2, "one window over all 4": 4}
plots.padding_cells({title: [few[batch] for batch in sampler_now(few, 6, window)]
                     for title, window in windows_drawn.items()})  # fmt: skip

# %% tags=["experiment"]
waste_now, best_now = course.solved(check.padding_waste), course.solved(check.best_thresholds)
batch_size = size.batch_size


def cells_of(batches):
    """Cells of each batch of indices into `many`."""
    return [len(batch) * int(many[torch.as_tensor(batch)].max()) for batch in batches]


windows = [1, 2, 5, 10, 20, 50, 100]
bucketed = [sum(cells_of(sampler_now(many, batch_size, window))) / int(many.sum()) for window in windows]
limits = torch.tensor(best_now(many, 4))
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
n_batches = -(-len(many) // batch_size)
enough = [window for window, waste in zip(windows, bucketed, strict=True) if waste < four_groups]
print(
    f"windows of 50 of {n_batches} batches: {at_50:.3f}"
    + reveal(my_guess_of_waste)
    + f"; four groups: {four_groups:.3f}"
)
otherwise = "The set has hardly more batches than one window, so its widest batch is a large part of all."
course.claim("windows of 50 batches remove at least nine tenths of the padding of random batches",
             at_50 - 1 < 0.1 * (bucketed[0] - 1), f"waste {at_50:.2f} instead of {bucketed[0]:.2f}",
             otherwise=otherwise)  # fmt: skip
padding = sorted((len(batch) * int(many[batch].max()) - int(many[batch].sum())
                  for batch in map(torch.tensor, sampler_now(many, batch_size, 50))), reverse=True)  # fmt: skip
in_few = sum(padding[: -(-n_batches // 50)]) / sum(padding)
course.claim("more than half of the padding that is left is in a few batches, no more than there are windows",
             in_few > 0.5, f"{100 * in_few:.0f} % in {-(-n_batches // 50)} of {n_batches} batches",
             otherwise=otherwise)  # fmt: skip
course.claim("windows of 50 batches waste less than four groups in random batches", at_50 < four_groups,
             f"{at_50:.2f} against {four_groups:.2f}; windows from {enough[0] if enough else 'no'} on do",
             otherwise=otherwise)  # fmt: skip

# %% [markdown]
# A window of one batch sorts inside the batch, which changes nothing. The wider the window, the closer are the lengths
# of neighbours in it. Most of the padding that is left is in the widest batch of each window, which joins the few
# longest sequences with shorter ones.

# %% [markdown]
# ## A budget of cells
#
# **A batch of long sequences and one of short ones should take the same memory.**
#
# ### Exercise 2 · Batches by budget
#
# Fill each batch until its rectangle would exceed a budget of cells. Translation systems size their batches this way.
#
# **Must**
# - go through `order` and put each sequence into the current batch, unless (sequences × longest) would exceed `budget`;
#   then begin the next batch with it;
# - return a list of lists of indices.
#
# **Raises** ValueError if a sequence alone exceeds the budget.
#
# **You may assume** that `order` holds every index once.
#
# **Points** 3 · **Extra** · **Difficulty** ●●○ · **Minutes** 15 · **Lines** 12
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
             otherwise="The budget had to be raised to the longest sequence.")  # fmt: skip
print(f"by number: {len(by_number)} batches of {batch_size}; by budget: {len(by_budget)} batches of "
      f"{min(map(len, by_budget))} to {max(map(len, by_budget))} sequences, at most {budget:,} cells")  # fmt: skip
in_order = few.argsort()
plots.padding_cells({"six sequences each": [few[batch] for batch in in_order.split(6)],
                     "at most 48 cells each": [few[batch] for batch in budget_now(few, 48, in_order)]})  # fmt: skip

# %% [markdown]
# The sequences are the same, in the same order, and nearly the same padding is left. A budget puts many short sequences
# into one batch and few long ones into another, so that no batch is much larger than the others.

# %% [markdown]
# ## What unequal batches do to the gradient
#
# **The mean of means is not the mean.**
#
# ### Exercise 3 · The loss of a rank
#
# Batches of a budget differ in their number of sequences. DistributedDataParallel averages the *gradients* of the
# ranks, each of which is the gradient of that rank's loss. Return the loss to call backward on, so that the average is
# the gradient of the mean over all samples of the training step.
#
# **Must** return a scalar tensor through which gradients flow. A rank without a sample returns 0 and can call backward
# on it, too.
#
# **You may assume** that every rank knows `total`, the number of samples of all ranks in this training step.
#
# **Points** 2 · **Extra** · **Difficulty** ●●○ · **Minutes** 10 · **Lines** 1
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
# **Predict**: four ranks get four batches of the budget, from short to long. By how many per cent is the gradient off
# if every rank takes the mean of its own losses?

# %%
my_guess_of_the_error = None  # per cent of the gradient's norm

# %% tags=["experiment"]
forward_now, pad_now = course.solved(check.padded_forward), course.solved(check.pad_batch)
ragged_now = course.solved(check.ragged_loss)
loss_of = torch.nn.functional.binary_cross_entropy_with_logits


def scores_of(model, batch):
    """The model's scores of the sequences in `batch`."""
    values, lengths, _ = (part.to(device) for part in sequences.collate([drawn[i] for i in batch.tolist()]))
    return forward_now(model, *pad_now(values, lengths))


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
# If each rank takes its own mean, a sample on the rank with few long sequences counts many times as much as one on the
# rank with many short ones. Where all ranks have equally many sequences, both losses are the same.

# %% [markdown]
# ## What it does to training
#
# **Whether sorting does harm depends on what the label has to do with the length.**
#
# Two tasks on the same sequences. In the first, the label says whether a marker token occurs, at every length alike. In
# the second it says whether the sequence is longer than the median.
#
# **Predict**: the same model and number of samples, four orders: shuffled; windows of 20 batches; all sorted by length,
# from short to long in every epoch; the batches of the sorted order, shuffled. By what factor is the loss after the
# last epoch larger in the sorted order than in the shuffled one, in the first task and in the second?

# %%
my_guess_for_marker, my_guess_for_length = None, None  # 1 if equal

# %% tags=["experiment"]
tasks = {"label: marker": drawn.labels, "label: length": (drawn.lengths > drawn.lengths.median()).float()}


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
mean = {task: {order: statistics.mean(values) for order, values in found.items()} for task, found in ends.items()}
length, marker = mean["label: length"], mean["label: marker"]
otherwise = "The training is so short that seeds differ more than orders."
course.claim("where the label follows the length, the sorted order ends worse than the shuffled one, for every seed",
             min(ends["label: length"]["sorted"]) > max(ends["label: length"]["shuffled"]),
             f"{length['sorted'] / length['shuffled']:.1f} times the loss"
             + reveal(my_guess_for_length, "{} times"), otherwise=otherwise)  # fmt: skip
course.claim("windows end between the shuffled and the sorted order, on average",
             length["shuffled"] < length["windows"] < length["sorted"], f"{length['windows']:.2f}",
             otherwise=otherwise)  # fmt: skip
course.claim("most of the harm of the sorted order comes from repeating it in every epoch",
             length["sorted, shuffled batches"] < (length["shuffled"] + length["sorted"]) / 2,
             f"the same batches in shuffled order end at {length['sorted, shuffled batches']:.2f}",
             otherwise=otherwise)  # fmt: skip
pure = {order: statistics.mean(max(x, 1 - x) for x in
                               (tasks["label: length"][batch].mean().item() for batch in batches_of(order, 0, 0)))
        for order in orders}  # fmt: skip
course.claim("batches of windows hold nearly one class, those of the shuffled order do not",
             pure["windows"] > 0.85 > pure["shuffled"],
             f"{100 * pure['windows']:.0f} % and {100 * pure['shuffled']:.0f} % of a batch have one label")  # fmt: skip
shift = {"marker": marker["sorted"] / marker["shuffled"], "length": length["sorted"] / length["shuffled"]}
course.claim("where the label has nothing to do with the length, the order matters far less",
             abs(shift["marker"] - 1) < abs(shift["length"] - 1) / 2,
             f"sorted over shuffled {shift['marker']:.2f}, against {shift['length']:.2f}"
             + reveal(my_guess_for_marker, "{} times"), otherwise=otherwise)  # fmt: skip

# %% [markdown]
# In the second task, the first half of a sorted epoch is one class and the second half the other: the model learns the
# one and forgets it again. With the batches in shuffled order both classes come in turns, and most of the harm is gone.
# But each batch still holds nearly one class, as it does with windows, and both end worse than the shuffled order.
# Which of these two ends worse, a few seeds of one set do not settle: compare them in your run, and try both on your
# data. In the first task every batch holds both classes, whatever its lengths. Before you choose a sampler for your
# data, look at how the label depends on the length.

# %% [markdown]
# ## Ranks that wait
#
# **A parallel training step takes as long as its slowest rank.**
#
# ### Exercise 4 · Batches for the ranks
#
# Choose the batches of one rank. All ranks have the same list, since their samplers have the same seed and epoch.
#
# **Must**
# - return a list; every rank gets equally many batches, and every batch goes to some rank;
# - repeat as few batches as needed;
# - leave the list `batches` as it is.
#
# **You may assume** that there are at least `world_size` batches.
#
# **Points** 2 · **Extra** · **Difficulty** ●○○ · **Minutes** 10 · **Lines** 2
#
# **Convention** It is left to you which rank gets which batch and which are repeated; a rank may get a batch twice.
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
# Compute which share of all ranks' time is spent waiting, if time follows the cells.
#
# **Must** return waiting time over total time, over all training steps together, as a Python float.
#
# **You may assume** that some rank has a cell.
#
# **Points** 2 · **Extra** · **Difficulty** ●○○ · **Minutes** 10 · **Lines** 2
#
# **Convention** In each training step every rank waits for the slowest one; total time is ranks × the sum of the steps'
# longest.
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
# **Predict**: four ranks, four ways to make and deal out batches. Random batches; bucketed batches; bucketed batches
# *balanced*, which means that batches of nearly as many cells form a training step; batches of a budget. In which do
# ranks wait longest, and in which does the epoch take the least time?

# %%
my_guess_of_longest_wait, my_guess_of_least_time = None, None  # "random", "bucketed", "balanced", "budget"

# %% tags=["experiment"]
stragglers_now, shard_now = course.solved(check.stragglers), course.solved(check.shard_batches)
ranks = 4


def shuffled(items, seed):
    """The items as a list, in random order."""
    return [items[i] for i in torch.randperm(len(items), generator=torch.Generator().manual_seed(seed)).tolist()]


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
    "budget": shuffled(by_budget, 3),
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
print("least time:", min(spent, key=spent.get) + reveal(my_guess_of_least_time))
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
             otherwise="Some sequences fill the whole budget alone.")  # fmt: skip

# %% [markdown]
# Random batches are nearly all wide, so they differ less than bucketed ones; but their ranks wait, too, and they
# compute padding besides. Bucketed batches are as wide as their own sequences, so the rank with the short ones waits.
# Two things help: to deal out batches of nearly as many cells together, or to make all batches of nearly as many cells.

# %% [markdown]
# ## What to take with you
#
# - Sorting in windows of shuffled data removes most of the padding; where the label follows the length, it raises the
#   loss.
# - Batches of unequal size need weights: the sum over samples, divided by all samples of the training step.
# - Under data parallelism, balance cells, not sequences.
#
# Part 4 leaves the rectangle altogether.
