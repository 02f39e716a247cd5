# %% [markdown]
# # Batch grouping, part 3: Choose which sequences form a batch
#
# **What if the sequences of a batch are alike from the start?**
#
# Part 2 removed padding at the price of more calls of the model. A sampler that puts sequences of similar length into
# one batch needs no further calls. But such a batch is not a random sample, so you must find out whether it harms the
# training.
#
# **You will be able to**
#
# - build a batch sampler that wastes little, and shuffles again in each epoch;
# - weight the losses of unequal batches so that every token counts the same;
# - decide from validation curves whether sorted batches harm your training, and reduce the harm.
#
# **Minutes** 50 core · 108 in all · session 2
#
# **Needs** `padding_waste` and `pad_batch` of part 1
#
# As before, *waste* is the number of cells of the padded rectangle per token.


# %% locked="setup"
import numpy as np
import torch
from torch.utils.data import Sampler

import course
from course.checks import batch_grouping as check
from course.datasets import sequences
from course.errors import CourseError
from course.measure.comparison import difference_interval, signed_rank_interval
from course.plots import batch_grouping as plots
from course.system.folders import data_folder
from course.training import grouping, ragged_training, ragged_transformer
from course.training.keep_source import save_batches

print(course.machine())
size = course.sizes("05_batch_grouping")
device = course.device()
many = sequences.load("lognormal", rows=size.rows_of_waste).lengths
texts = sequences.text(size.training_rows, 0)
held_out = sequences.text(size.held_out, 1)
counted = f"{len(many):,} sequences of 1 to {int(many.max())} tokens"
print(f"to count cells: {counted}; to train on: {len(texts):,} texts")

# %% [markdown]
# ## How much padding does sorting remove?
#
# If a sampler sorts the whole set by length, hardly any padding is left. But then much the same sequences meet in
# every epoch. *Bucketing* is a compromise:
#
# 1. Shuffle the set, and cut it into windows of several batches each.
# 2. Sort inside each window, and cut it into batches.
# 3. Shuffle all batches.
#
# **Predict** How many cells per token are left with windows of 50 batches? A sorted window is cut into 50 batches, and
# each is padded to its own longest sequence. The first one holds the shortest 2 % of the lengths. Which one wastes
# most?

# %%
my_guess_of_waste = None  # cells per token

# %% [markdown]
# ### Exercise 1 · The sampler
#
# Complete a sampler that a `DataLoader` accepts as its `batch_sampler`. You write `__len__` and `__iter__`.
#
# **Must**
# - yield lists of indices, every index once per epoch and `batch_size` per batch (one batch may be smaller);
# - shuffle the set, sort windows of `window` batches by length, then shuffle all batches;
# - draw the order of the set, then the order of the batches, from one `np.random.default_rng((seed, epoch))`, which
#   each `__iter__` creates.
#
# **Points** 4 · **Core** · **Difficulty** ●●○ · **Minutes** 18 · **Lines** 11
#
# **Convention** `len()` is the number of batches. The training loop calls `set_epoch` before each epoch.
#
# **Source** Sutskever, Vinyals and Le 2014, section 3.4: batches of roughly the same length. `LengthGroupedSampler` of
# Hugging Face transformers sorts in windows of at most 50 batches.
#
# <details><summary>Hint 1</summary>
#
# Write four steps: the order of the set, its windows, the batches of each window, the order of the batches. Which two
# of them need random numbers?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `rng.permutation(n)` gives the order of the set, and later the order of the batches.
# `torch.from_numpy(order).split(n)` cuts it into pieces of n.
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
        self.lengths = lengths
        self.batch_size = batch_size
        self.window = window
        self.seed = seed
        self.epoch = 0

    def set_epoch(self, epoch):
        """Choose the order of the next iteration."""
        self.epoch = epoch

    ### BEGIN SOLUTION
    def __len__(self):
        return -(-len(self.lengths) // self.batch_size)

    def __iter__(self):
        rng = np.random.default_rng((self.seed, self.epoch))
        order = torch.from_numpy(rng.permutation(len(self.lengths)))
        batches = []
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
make_sampler = course.solved(check.BucketBatchSampler)
generator = torch.Generator().manual_seed(1)
few = sequences.lognormal_lengths(24, generator, mean=1.8, std=0.7, longest=20)
windows_drawn = {"windows of 1 batch": 1, "windows of 2": 2, "one window over all 4": 4}

batches_drawn = {}
for title, window in windows_drawn.items():
    batches = make_sampler(few, 6, window)
    batches_drawn[title] = [few[batch] for batch in batches]
plots.padding_cells(batches_drawn)

# %% [markdown]
# The figure shows your sampler on 24 sequences, in batches of six. The next cell runs it on the whole set.

# %% tags=["experiment"]
waste_now = course.solved(check.padding_waste)
batch_size = size.batch_size
windows = [1, 2, 5, 10, 20, 50, 100]

waste_of_windows = {}
for window in windows:
    batches = make_sampler(many, batch_size, window)
    waste_of_windows[window] = grouping.waste_of(batches, many)

in_order = torch.arange(len(many)).split(batch_size)
groups = grouping.split_by_length(in_order, many, grouping.greedy_thresholds(many, 4))
levels = {
    "random batches": waste_now(many, batch_size),
    "four groups in random batches": grouping.waste_of(groups, many),
    "all sorted": waste_now(many, batch_size, many.argsort()),
}
plots.waste_of_windows(windows, list(waste_of_windows.values()), levels)

# %% tags=["experiment"]
at_random = waste_of_windows[1]
at_50 = waste_of_windows[50]
four_groups = levels["four groups in random batches"]
print(course.score("05/3", "waste with windows of 50 batches", my_guess_of_waste, at_50, null=None))

padding = []  # of each piece of the sorted set
for piece in many.sort().values.chunk(50):
    padding.append(len(piece) * int(piece.max()) - int(piece.sum()))
share = padding[-1] / sum(padding)
print(f"of one window over all, cut into 50 pieces, the last has {share:.0%} of the padding")

is_removed = at_50 - 1 < 0.1 * (at_random - 1)
is_less = at_50 < four_groups
course.claim(
    "windows of 50 batches remove at least nine tenths of the padding of random batches",
    is_removed,
    f"waste {at_50:.2f} instead of {at_random:.2f}",
)
course.claim(
    "windows of 50 batches waste less than four groups in random batches",
    is_less,
    f"{at_50:.2f} against {four_groups:.2f}",
)

# %% [markdown]
# The last of the 50 pieces holds the longest sequences, whose lengths are furthest apart.
#
# **Takeaway** Sorting inside windows of many shuffled batches removes most of the padding.

# %% [markdown]
# ## How large must a window be? · extra
#
# A larger window saves more padding, but makes batches less random.
#
# **You shrink the batch to an eighth of its sequences. To remove the same share of the padding, must a window hold as
# many batches as before, or as many sequences?**


# %% tags=["experiment"]
eighth = batch_size // 8
for n, window in [(batch_size, 50), (eighth, 50), (eighth, 400)]:
    padding_in_windows = grouping.waste_of(make_sampler(many, n, window), many) - 1
    padding_at_random = grouping.waste_of(make_sampler(many, n, 1), many) - 1
    removed = 1 - padding_in_windows / padding_at_random
    setting = f"batches of {n}, windows of {window} batches, {window * n:,} sequences"
    print(f"{setting}: {removed:.0%} of the padding removed")

# %% [markdown]
# Compare the last two lines with the first one. In windows of as many batches, small batches save a little less than
# before. In windows of as many sequences, they save a little more. So the window that you need lies between.
#
# **Takeaway** Choose the size of a window in batches, and take some more if batches are small.

# %% [markdown]
# ## What do you take home?
#
# Choose a batch size and a window in the next cell. It saves your sampler, your `pad_batch` and a function `collate` as
# a module that needs only torch and NumPy. In your own project, use `DataLoader(dataset, batch_sampler=sampler,
# collate_fn=collate)`.

# %% tags=["experiment"]
chosen_batch_size = 64
chosen_window = 50

file = data_folder() / "ragged_batches.py"
try:
    kept = [make_sampler, course.solved(check.pad_batch)]
    save_batches(file, kept, chosen_batch_size, chosen_window)
    print(f"saved: {file.name}, in your data folder")
except CourseError as why:
    print(why)

# %% [markdown]
# **Takeaway** A batch sampler needs only lengths, so yours works for any indexed dataset whose lengths you know.

# %% [markdown]
# ## Does every token count the same?
#
# With your sampler, one batch holds many tokens and the next one few. If each batch averages its own loss, some tokens
# count more than others, and no error is raised.
#
# You test this with a small language model, `RaggedTransformer`, which predicts each next token. Its texts are
# invented. Long texts are mostly of one kind and short texts of the other, like articles and chats.
#
# A training step often takes several batches, in one of two ways:
#
# - Several *ranks*, processes with a copy of the model each, compute one batch each. `DistributedDataParallel`
#   *averages* their gradients.
# - One process computes several *micro-batches* before the update, and *adds* their gradients.
#
# ### Exercise 2 · The loss of a batch
#
# Write the loss of one padded batch. All batches of a step together must give the gradient of the mean over all tokens
# of the step. `total` is the number of these tokens. (Ranks would find it with an `all_reduce`.)
#
# ```python
# >>> losses = torch.tensor([[1.0, 2.0, 9.0]])  # the last cell is padding
# >>> ragged_loss(losses, torch.tensor([[True, True, False]]), total=6, world_size=2)
# tensor(1.)
# ```
#
# **Must**
#
# - give every token of the step the same weight, and padding none;
# - return a scalar tensor on which a rank can call backward, even if its batch has no token.
#
# **Points** 2 · **Core** · **Difficulty** ●●○ · **Minutes** 10 · **Lines** 1
#
# **Convention** Gradients are added over the micro-batches of a rank, and averaged over ranks.
#
# **Source** Hugging Face, "Fixing Gradient Accumulation", October 2024. Until then its trainer had averaged the means
# of micro-batches. Its `num_items_in_batch` is like your `total`.
#
# <details><summary>Hint 1</summary>
#
# What must the losses of all batches add up to, before the ranks are averaged?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# The sum over the tokens of this batch, divided by `total`, is its share of the mean. DDP then divides by
# `world_size`, so multiply by it first.
#
# </details>


# %% solution="ragged_loss"
def ragged_loss(losses, mask, total, world_size):
    """The loss of one batch, such that all tokens of the step count the same.

    Args:
        losses: float tensor (n, longest), one loss per cell; n may be 0.
        mask: bool tensor (n, longest), True where a cell is a token that counts.
        total: tokens of the whole step, all micro-batches and ranks together.
        world_size: number of ranks.

    Returns: scalar tensor.
    """
    ### BEGIN SOLUTION
    return losses[mask].sum() * world_size / total
    ### END SOLUTION


# %% test="ragged_loss-visible" points=1
check.ragged_loss(ragged_loss)

# %% test="ragged_loss-hidden" points=1
### BEGIN HIDDEN TESTS
check.ragged_loss(ragged_loss, seed=5)
### END HIDDEN TESTS

# %% [markdown]
# One process now computes what four ranks would: the gradients of the untrained model on four batches of your sampler.
# For six shuffles, you compare their average with the gradient of all tokens together. Random batches are the control.
#
# **Predict** Every rank takes the mean over its own tokens. By how many per cent of the true gradient's norm is the
# average over the ranks off? Is it little, because short and long texts have similar gradients? Or much, because the
# batches hold unequal numbers of tokens?

# %%
my_guess_of_the_error = None  # per cent of the gradient's norm

# %% tags=["experiment"]
loss_now = course.solved(check.ragged_loss)
world_size = 4
torch.manual_seed(0)
model = ragged_transformer.RaggedTransformer(
    texts.vocabulary, size.training_dim, size.training_layers
).to(device)


def per_cent_off(window, seed):
    """How far the average over the ranks is from the gradient of all tokens, {way: per cent}."""
    sampler = make_sampler(texts.lengths, size.training_batch, window, seed=seed)
    all_texts = []  # of all ranks
    parts = []  # (losses, mask) of each rank
    for batch in list(sampler)[:world_size]:
        texts_of_rank = [texts[i][0].to(device) for i in batch]
        all_texts += texts_of_rank
        parts.append(ragged_transformer.padded_losses(model, texts_of_rank))
    total = sum(int(mask.sum()) for _, mask in parts)
    weighted = [loss_now(losses, mask, total, world_size) for losses, mask in parts]
    means = [losses[mask].mean() for losses, mask in parts]
    ways = {"yours": weighted, "means": means}
    errors = ragged_training.errors_of_gradient(model, all_texts, ways)
    return {way: 100 * error for way, error in errors.items()}


# %% tags=["experiment"]
off_in_windows = [per_cent_off(50, seed) for seed in range(6)]
off_at_random = [per_cent_off(1, seed) for seed in range(6)]

means_in_windows = [off["means"] for off in off_in_windows]
means_at_random = [off["means"] for off in off_at_random]
print("means, your sampler's batches: " + ", ".join(f"{off:.0f} %" for off in means_in_windows))
print("means, random batches:         " + ", ".join(f"{off:.0f} %" for off in means_at_random))
error_of_means = signed_rank_interval(means_in_windows)
what = "per cent off, mean of means"
print(course.score("05/3", what, my_guess_of_the_error, error_of_means, null=0, form="{:.0f}"))

largest_off = max(off["yours"] for off in off_in_windows + off_at_random)
is_equal = largest_off < 0.01
course.claim(
    "with your loss the average over the ranks is the gradient of all tokens",
    is_equal,
    f"off by {largest_off:.0e} % of its norm",
)
course.claim(
    "the mean of the ranks' means misses by 10 % of the norm more with sorted batches than with random ones",
    difference_interval(means_in_windows, means_at_random),
    above=10,
)

# %% [markdown]
# **Shown** The two gradients of a step differ only in how its batches are weighted. With a mean per batch, a token
# weighs more if its batch has few tokens. Sorted batches differ more in their number of tokens, and here also in their
# kind of text.
#
# **Takeaway** If batches have unequal numbers of tokens, do not average their means. Divide sums over tokens by the
# number of tokens of the whole step.

# %% [markdown]
# ## Does sorting harm the training?
#
# A sampler that saves padding may still make the model learn less from each update. So you train the model in three
# orders, with the same learning rate and the same number of texts per update. The curves show the loss on texts that
# the model never trains on.
#
# | order | an update takes |
# |---|---|
# | random | one batch of any lengths |
# | windows | one batch of your sampler, windows of 50 |
# | accumulated windows | four micro-batches, each with a quarter of the texts; a window has as many texts as above |
#
# A batch of your sampler has texts of similar lengths, so many batches are mostly of one kind. That could make each
# update worse. But batches have less padding, so the same number of cells allows more updates, in more epochs.
#
# Each training lasts until it has computed as many cells as the training in random order. You count cells and not
# seconds, so a busy machine does not change the result.
#
# **Predict** Which order has the lowest validation loss after the same *cells*?

# %%
my_guess_of_the_best_order = None  # one of the names in the table

# %% tags=["experiment"]
texts_per_update = size.training_batch


def steps(order, data, seed):
    """The batches of each update."""
    micro_batches = 4 if order == "accumulated windows" else 1
    window = 1 if order == "random" else 50 * micro_batches
    sampler = make_sampler(data.lengths, texts_per_update // micro_batches, window, seed=seed)
    return ragged_training.steps_of(ragged_training.epochs_of(sampler), micro_batches)


updates = size.training_updates  # of the random order
settings = {
    "seeds": size.training_seeds,
    "dim": size.training_dim,
    "layers": size.training_layers,
    "device": device,
    "updates": updates,
    "every": updates // 16,
}
orders = ["random", "windows", "accumulated windows"]
runs = ragged_training.train_each(orders, texts, held_out, steps, to_equal_cells=True, **settings)

# %% tags=["experiment"]
after_updates = ragged_training.by_updates(runs, updates)
after_cells = ragged_training.by_cells(runs, updates)
print(f"loss minus that of {updates} updates in random order:")
for order in orders[1:]:
    same_updates = difference_interval(after_updates[order], after_updates["random"])
    same_cells = difference_interval(after_cells[order], after_cells["random"])
    seconds = ragged_training.seconds_over(runs, order, "random")
    print(f"{order}: after the same updates {same_updates}, after the same cells {same_cells}")
    print(f"{order}: {seconds} times the seconds for the same cells")

# %% tags=["experiment"]
lowest_by_updates = ragged_training.lowest(after_updates)
lowest_by_cells = ragged_training.lowest(after_cells)
titles = [
    f"lowest after the same updates:\n{' or '.join(lowest_by_updates)}",
    f"lowest after the same cells:\n{' or '.join(lowest_by_cells)}",
]
plots.curves(runs, updates, titles)

# %% tags=["experiment"]
what = "the lowest loss after the same cells"
print(course.score("05/3", what, my_guess_of_the_best_order, lowest_by_cells))

costs = difference_interval(after_updates["windows"], after_updates["random"])
course.claim(
    "after equally many updates, windows of 50 batches end more than 0.02 above random batches",
    costs,
    above=0.02,
)
course.claim(
    "after equally many updates, accumulated windows end below plain windows",
    difference_interval(after_updates["accumulated windows"], after_updates["windows"]),
    below=0,
)
course.claim(
    "after the same cells, accumulated windows end below random batches",
    difference_interval(after_cells["accumulated windows"], after_cells["random"]),
    below=0,
)

# %% [markdown]
# If time followed the cells, both printed ratios of seconds would be 1. **We think** that small batches take more time
# per cell, because each batch needs its calls. Short rows take less, because attention has fewer pairs per cell. To
# test this, time batches with different numbers of rows and columns.
#
# **Takeaway** Sorted batches can make each update worse but cheaper. Try to accumulate over several batches, and
# compare orders after equal cells, too.
#
# <details><summary>What would a GPU show?</summary>
#
# **We think** that on a GPU whose launches cost more than the cells, time follows the number of batches. To test this,
# run these cells there.
#
# </details>

# %% [markdown]
# ## Why is the update of a sorted batch worse? · extra
#
# There are two suspects:
#
# - The texts of a batch are alike.
# - Updates differ in their number of *tokens*. Adam moves the weights about as far on few tokens as on many.
#
# The first control, "same tokens", fills each batch with random texts until it has the tokens of a batch of your
# sampler. So its updates differ about as much in tokens, but its texts have all lengths. The gap from random batches to
# this control is the price of unequal updates. The gap from there to windows is the price of texts that are alike.


# %% tags=["experiment"]
def steps_of_control(order, data, seed):
    """The batches of each update."""
    if order == "windows":
        return steps(order, data, seed)
    sampler = make_sampler(data.lengths, texts_per_update, 50, seed=seed)
    batches_of_epoch = ragged_training.with_the_tokens_of(sampler, data.lengths, seed)
    return ragged_training.steps_of(batches_of_epoch)


control = ragged_training.train_each(["same tokens"], texts, held_out, steps_of_control, **settings)
same_tokens = ragged_training.by_updates(control, updates)["same tokens"]
gap_of_size = difference_interval(same_tokens, after_updates["random"])
gap_of_likeness = difference_interval(after_updates["windows"], same_tokens)
print(f"windows minus random: {costs}")
course.claim(
    "random texts with the tokens of sorted batches end above random batches, after equally many updates",
    gap_of_size,
    above=0,
)
course.claim(
    "windows end above random texts with the same tokens per update", gap_of_likeness, above=0
)

# %% [markdown]
# The texts of a sorted batch are alike in length and in kind. In the second control they are alike in length only:
# each text keeps its length but gets its kind at random. Each kind keeps its expected share of the tokens, and in a
# second run its share of the texts. (Both shares cannot stay.)

# %% tags=["experiment"]
alike_in_length = {}  # windows minus random texts with the same tokens, one per seed
for kept in ("tokens", "texts"):
    unrelated = sequences.text(size.training_rows, 0, kinds_keep=kept)
    held_unrelated = sequences.text(size.held_out, 1, kinds_keep=kept)
    mixed_kinds = ragged_training.train_each(
        ["windows", "same tokens"], unrelated, held_unrelated, steps_of_control, **settings
    )
    ends = ragged_training.by_updates(mixed_kinds, updates)
    alike_in_length[kept] = ragged_training.differences(ends["windows"], ends["same tokens"])

alike_in_both = ragged_training.differences(after_updates["windows"], same_tokens)
course.claim(
    "texts that are alike cost less where the kind of a text does not follow its length",
    difference_interval(alike_in_both, alike_in_length["tokens"]),
    above=0,
)
course.claim(
    "texts that are alike cost less where kinds do not follow lengths, but keep their share of the texts",
    difference_interval(alike_in_both, alike_in_length["texts"]),
    above=0,
)

# %% [markdown]
# **Shown** In the first control, texts meet at random. So its gap to random batches comes from the unequal size of its
# updates, in tokens and in texts. The rest comes from texts that are alike. If both claims of the second control hold,
# a part of this rest comes from their kind, whichever share stays.
#
# Your loss of Exercise 2 cannot repair this. It gives all tokens of one step the same weight, but not the tokens of
# different steps.
#
# **Takeaway** Avoid updates of very unequal size, and mix in each update what your target depends on.

# %% [markdown]
# ## How large is the largest batch? · extra
#
# Sorted batches with equally many sequences differ in their cells, and the largest batch decides how much memory you
# need. A *budget* limits the cells of a batch instead of its sequences.
#
# ### Exercise 3 · Batches by budget
#
# Fill each batch until its rectangle would exceed the budget, as fairseq does for translation.
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
# **Points** 3 · **Extra** · **Difficulty** ●●○ · **Minutes** 15 · **Lines** 13
#
# **Source** `batch_by_size` of fairseq (Ott et al. 2019), with required_batch_size_multiple = 1.
#
# <details><summary>Hint 1</summary>
#
# When a sequence joins, which two numbers of the rectangle may change?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Remember the longest length of the current batch. With a new sequence it has `(len(batch) + 1) * max(longest,
# length)` cells.
#
# </details>


# %% solution="token_budget_batches"
def token_budget_batches(lengths, budget, order=None):
    """Batches of at most `budget` cells, filled in order.

    Args:
        lengths: int64 tensor (n,), tokens per sequence.
        budget: int, most cells of a batch.
        order: int64 tensor (n,), which sequence comes when (default: the order of the set).

    Returns: list of lists of int.
    Raises: ValueError if a sequence is longer than the budget.
    """
    grouping.check_lengths(lengths, budget=budget)
    ### BEGIN SOLUTION
    if int(lengths.max()) > budget:
        raise ValueError(
            f"a sequence of {int(lengths.max())} tokens does not fit into a budget of {budget}"
        )
    batches = [[]]
    longest = 0
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
order = grouping.sorted_in_windows(many, 50 * batch_size)
mean_length = int(many.float().mean().ceil())
budget = max(batch_size * mean_length, int(many.max()))
by_number = order.split(batch_size)
by_budget = budget_now(many, budget, order)

for name, batches in {"by number": by_number, "by budget": by_budget}.items():
    counts = [len(batch) for batch in batches]
    largest = max(grouping.cells_of(batches, many))
    sizes = f"{len(batches)} batches of {min(counts)} to {max(counts)} sequences"
    print(f"{name}: {sizes}, the largest of {largest:,} cells")

# %% tags=["experiment"]
shortest_first = few.argsort()
six_each = shortest_first.split(6)
within_budget = budget_now(few, 48, shortest_first)
most = max(grouping.cells_of(six_each, few))
bounded = max(grouping.cells_of(within_budget, few))
drawn = {
    "six sequences each": [few[batch] for batch in six_each],
    "at most 48 cells each": [few[batch] for batch in within_budget],
}
plots.padding_cells(drawn, f"The largest batch has {most} cells by number, {bounded} by budget")

# %% [markdown]
# A budget bounds cells, not sequences. So a model with one label per sequence has updates of very different sizes.
#
# **Takeaway** A budget bounds the cells of every batch. If memory follows the cells, choose the budget to fill it.

# %% [markdown]
# ## How long do ranks wait? · extra
#
# A synchronous training step takes as long as its slowest rank, so unequal batches make the other ranks wait. This
# section continues the one on the largest batch.
#
# ### Exercise 4 · Batches for the ranks
#
# Choose the batches of one rank. All ranks have the same list, because their samplers have the same seed and epoch. In
# each training step the ranks take neighbours in this list. Rank 0 takes the first batch, rank 1 the next, and so on.
#
# **Must**
# - give every rank equally many batches, and every batch to some rank;
# - repeat as few batches as needed, also if there are fewer batches than ranks;
# - leave the list `batches` as it is.
#
# **Points** 2 · **Extra** · **Difficulty** ●○○ · **Minutes** 10 · **Lines** 2
#
# **Example**
#
# ```python
# >>> [shard_batches([[0, 1], [2]], rank, 3) for rank in range(3)]
# [[[0, 1]], [[2]], [[0, 1]]]
# ```
#
# **Source** `torch.utils.data.DistributedSampler` repeats samples in the same way, so that no rank waits for one that
# has finished.
#
# <details><summary>Hint 1</summary>
#
# How many steps does a rank take? Which batch comes after the last one of the list?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Every rank gets `-(-len(batches) // world_size)` batches, rounded up. Rank r takes numbers r, r + world_size, ... of
# the list, which begins again at its end: `batches[i % len(batches)]`.
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
    steps = -(-len(batches) // world_size)
    return [batches[i % len(batches)] for i in range(rank, steps * world_size, world_size)]
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
# Compute the share of their time that the ranks spend waiting, if time is proportional to cells.
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
# **Source** One minus the load balance efficiency of the POP metrics (co-design.pop-coe.eu), which is mean over
# maximum, here per training step.
#
# <details><summary>Hint 1</summary>
#
# How long does a training step last for all ranks together? For how much of it do they work?
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
# You compare four lists of batches for four ranks. Time is counted in cells, as in Exercise 5.
#
# - *random*: batches of any lengths;
# - *bucketed*: batches of sorted windows;
# - *balanced*: the bucketed batches, in an order in which batches of similar size form a step;
# - *budget*: batches from the same windows, filled up to a budget.

# %% tags=["experiment"]
stragglers_now = course.solved(check.stragglers)
shard_now = course.solved(check.shard_batches)
generator = torch.Generator().manual_seed(0)


def shuffled(batches):
    """The batches in a random order."""
    order = torch.randperm(len(batches), generator=generator)
    return [batches[i] for i in order.tolist()]


lists = {
    "random": list(make_sampler(many, batch_size, 1)),
    "bucketed": shuffled(by_number),
    "balanced": grouping.balanced(by_number, many, world_size),
    "budget": shuffled(by_budget),
}

# %% tags=["experiment"]
waiting = {}  # share of the time of the ranks
spent = {}  # cells per token, computed or waited for
for name, batches in lists.items():
    of_ranks = []
    for rank in range(world_size):
        own_batches = shard_now(batches, rank, world_size)
        of_ranks.append(grouping.cells_of(own_batches, many))
    cells = torch.tensor(of_ranks).T  # (training steps, ranks)
    waiting[name] = stragglers_now(cells)
    slowest = cells.amax(1).sum()
    spent[name] = float(slowest * world_size / many.sum())
plots.waiting(waiting, spent)

# %% tags=["experiment"]
shown = {name: f"{100 * share:.0f} %" for name, share in waiting.items()}
is_larger_share = waiting["bucketed"] > waiting["random"]
is_cheaper = spent["bucketed"] < spent["random"]
is_halved = waiting["balanced"] < waiting["bucketed"] / 2
is_least = waiting["budget"] < min(waiting["random"], waiting["bucketed"])
course.claim(
    "ranks wait for a larger share of their time with bucketed batches than with random ones",
    is_larger_share,
    f"{shown['bucketed']} against {shown['random']} of the time",
)
course.claim(
    "computing and waiting cost ranks fewer cells with bucketed batches than with random ones",
    is_cheaper,
    f"{spent['bucketed']:.1f} against {spent['random']:.1f} cells per token",
)
course.claim(
    "balancing bucketed batches at least halves the wait of the ranks",
    is_halved,
    shown["balanced"],
)
course.claim(
    "with a budget ranks wait for a smaller share of their time than with random or bucketed batches",
    is_least,
    shown["budget"],
)

# %% [markdown]
# A share is not an amount. With bucketed batches, the ranks wait for a large share of a small total.
#
# **Takeaway** If time follows the cells, balance cells between the ranks, not sequences.
#
# Part 4 computes without a rectangle.
