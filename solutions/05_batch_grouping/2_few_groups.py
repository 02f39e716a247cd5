# %% [markdown]
# # Batch grouping, part 2: Remove most of the padding with a few groups
#
# **How few groups remove the padding, which ones, and when do they pay?**
#
# One long sequence makes every row of its batch long. You compute the batch in a few padded rectangles instead, one
# per range of lengths. That saves padding, but adds calls of the model.
#
# As in part 1, a *cell* is a position in a padded rectangle.
#
# **You will be able to**
#
# - run a model of padded batches in groups, with the same outputs and gradients;
# - find thresholds for the lengths of a data set;
# - tell when groups pay, and how many.
#
# **Minutes** 62 core · 89 in all
#
# **Needs** `pad_batch` of part 1


# %% locked="setup"
from functools import partial

import torch

import course
from course.checks import batch_grouping as check
from course.datasets import sequences
from course.measure.comparison import compare, difference_interval, quotient, signed_rank_interval
from course.plots import batch_grouping as plots
from course.training import grouping
from course.training.ragged_transformer import gradient_of
from course.training.recommender_loop import keep_freed_memory
from course.training.token_models import TokenPool

# or the large tensors of the rectangle come from new memory pages in every step
keep_freed_memory()
print(course.machine())
size = course.sizes("05_batch_grouping")
device = course.device()

# %% [markdown]
# ## Can you split a batch without changing its result?
#
# A faster way to compute a batch must give the model the same gradients. You test this on `demo` with the small model
# of part 1. A sequence has 1, 4, 16 or 64 tokens, and a label of 0 or 1.

# %%
demo_set = sequences.load("demo", rows=size.demo_rows)
demo_lengths = demo_set.lengths
demo = list(demo_set)  # (tokens, label) of each sequence
print(*demo[:4], sep="\n")
values, lengths, labels = sequences.collate(demo[:256], device)  # a batch

# %% [markdown]
# You split a batch into *groups*. A sequence joins the first group whose *threshold* is at least its length.

# %% tags=["experiment"]
some = demo_lengths[:24]
of_equal_length = [some[some == length] for length in some.unique()]
plots.padding_cells({"one rectangle": some, "a rectangle per length": of_equal_length})

# %% [markdown]
# ### Exercise 1 · Assign sequences to groups
#
# Assign the sequences of a batch to groups by thresholds.
#
# ```python
# >>> [members.tolist() for members in group_by_length(torch.tensor([3, 16, 4, 9]), [4, 8, 16])]
# [[0, 2], [], [1, 3]]
# ```
#
# **Must**
# - put a sequence into the first group whose threshold is at least its length;
# - return one int64 tensor per threshold, with its indices in the order of the batch.
#
# **Points** 2 · **Core** · **Difficulty** ●○○ · **Minutes** 5 · **Lines** 2
#
# **Source** `torch.bucketize`, whose buckets include their upper boundary.
#
# <details><summary>Hint 1</summary>
#
# Which torch function finds, for many numbers in one call, between which sorted boundaries each one lies?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `torch.bucketize(lengths, boundaries)` gives, for each length, the index of the first boundary that is at least as
# large. Then you need one `nonzero` per group.
#
# </details>


# %% solution="group_by_length"
def group_by_length(lengths, thresholds):
    """Indices of the sequences of each group.

    Args:
        lengths: int64 tensor (n,), tokens per sequence.
        thresholds: list of ascending int, the longest length that each group takes.

    Returns: list of int64 tensors, one per threshold, on the device of `lengths`.
    """
    grouping.check_thresholds(lengths, thresholds)
    ### BEGIN SOLUTION
    which = torch.bucketize(lengths, torch.tensor(thresholds, device=lengths.device))
    return [(which == group).nonzero().squeeze(1) for group in range(len(thresholds))]
    ### END SOLUTION


# %% test="group_by_length-visible" points=1
check.group_by_length(group_by_length)

# %% test="group_by_length-hidden" points=1
### BEGIN HIDDEN TESTS
check.group_by_length(group_by_length, seed=316)
### END HIDDEN TESTS

# %% [markdown]
# ### Exercise 2 · Run a module in groups
#
# Run each group as a padded batch. The loop below already computes `place`, the index in `values` of each cell's
# token.
#
# At padding, `place` points into a later sequence or past the end of `values`. So clamp `place` to the last token,
# then set padding to 0. After the loop, `index_copy` puts the outputs into the order of the batch and has a gradient.
#
# **Must**
# - call `module(x, mask)` once per group, with `x` and `mask` as `pad_batch` makes them for that group;
# - return the outputs in the order of the batch, and let gradients flow through them;
# - loop over groups only, never over sequences.
#
# **Points** 5 · **Core** · **Difficulty** ●●○ · **Minutes** 18 · **Lines** 5
#
# **Convention** `module` returns a row per sequence; a row may have any shape.
#
# **Source** `DataCollection.apply` and `regroup` of asym, which handle one sample at a time.
#
# <details><summary>Hint 1</summary>
#
# Take a group with lengths 2 and 3. Its `place` has two rows of three columns. Where does the third column of the
# first row point? And if this sequence is the last of the batch?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# The mask is `column < lengths[members][:, None]`. `place.clamp(max=len(values) - 1)` stays inside `values`, and
# `masked_fill(~mask, 0)` sets padding to 0.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# Concatenate the outputs of all groups and the indices of their sequences. With `order = torch.cat(groups)`, row k of
# the outputs belongs to sequence `order[k]`: `torch.empty_like(outputs).index_copy(0, order, outputs)` puts it there
# and has a gradient. So has `outputs[order.argsort()]`.
#
# </details>


# %% solution="run_grouped"
def run_grouped(module, values, lengths, thresholds):
    """Outputs of `module` for all sequences, computed group by group.

    Args:
        module: called with (x, mask) of a padded batch; returns a tensor with a row per sequence.
        values: int64 tensor (total,), the tokens of all sequences, one sequence after the other.
        lengths: int64 tensor (n,), tokens per sequence.
        thresholds: list of ascending int, the longest length that each group takes.

    Returns: tensor (n, ...), row i for sequence i.
    """
    groups = [members for members in group_by_length(lengths, thresholds) if len(members)]
    starts = lengths.cumsum(0) - lengths  # sequence i is values[starts[i] : starts[i] + lengths[i]]
    outputs = []
    for members in groups:
        column = torch.arange(int(lengths[members].max()), device=values.device)
        place = starts[members][:, None] + column  # (sequences of the group, its longest length)
        ### BEGIN SOLUTION
        mask = column < lengths[members][:, None]
        x = values[place.clamp(max=len(values) - 1)].masked_fill(~mask, 0)
        outputs.append(module(x, mask))
    outputs = torch.cat(outputs)
    return torch.empty_like(outputs).index_copy(0, torch.cat(groups), outputs)
    ### END SOLUTION


# %% test="run_grouped-visible" points=3
check.run_grouped(run_grouped)

# %% test="run_grouped-hidden" points=2
### BEGIN HIDDEN TESTS
check.run_grouped(run_grouped, seed=64)
### END HIDDEN TESTS

# %%
grouped_now = course.solved(check.run_grouped)
pad_now = course.solved(check.pad_batch)


def score_padded(model, values, lengths):
    """All sequences in one rectangle."""
    return model(*pad_now(values, lengths))


def score_grouped(model, values, lengths, thresholds=(1, 4, 16, 64)):
    """A rectangle per group, by default one per length of the demo set."""
    return grouped_now(model, values, lengths, list(thresholds))


# %% tags=["experiment"]
torch.manual_seed(0)
model = TokenPool(sequences.VOCABULARY, 64, 64).to(device)
outputs = []
gradients = []
for score in (score_padded, score_grouped):
    scores = score(model, values, lengths)
    loss = (scores - labels).square().mean()
    outputs.append(scores)
    gradients.append(gradient_of(model, loss))

same_outputs = torch.allclose(*outputs, atol=1e-5)
same_gradients = torch.allclose(*gradients, atol=1e-5)
off_outputs = f"largest difference {(outputs[0] - outputs[1]).abs().max():.1e}"
off_gradients = f"largest difference {(gradients[0] - gradients[1]).abs().max():.1e}"
course.claim("outputs of groups equal those of the padded batch", same_outputs, off_outputs)
course.claim("gradients of groups equal those of the padded batch", same_gradients, off_gradients)

# %% [markdown]
# Some modules do not pass this test:
#
# - BatchNorm in training, because it mixes rows and a group has fewer rows than the batch;
# - a mean over all columns, because it counts padding and a group has less of it;
# - dropout, because it draws different random numbers.
#
# **Takeaway** If a module treats rows independently, ignores padding and draws no random numbers, groups change its
# outputs and gradients only by rounding.

# %% [markdown]
# ## What do groups save?
#
# Groups save cells, but call the model four times per batch. To see which matters more, you time an epoch in
# rectangles and an epoch in groups, both in batches of 256. The set has four lengths, so four groups leave no padding.
#
# **Predict** With the largest embedding, how many times as fast as one rectangle are your groups? Is it the ratio of
# their cells, which part 1 counted for `demo`? Is it less, because each group adds calls? Or more, because smaller
# tensors fit into a cache?

# %%
predicted_speedup = None  # times as fast, e.g. 4.0

# %%
ways = {"one rectangle": score_padded, "your groups": score_grouped}


def epoch(score, model, batches):
    """One epoch of SGD over `batches`, lists of (tokens, label)."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    for batch in batches:
        values, lengths, labels = sequences.collate(batch, device)
        loss = (score(model, values, lengths) - labels).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def batches_of(batch_size):
    """The demo set in batches."""
    return [demo[begin : begin + batch_size] for begin in range(0, len(demo), batch_size)]


def step(score, model, values, lengths):
    """Forward and backward of one batch."""
    model.zero_grad()
    score(model, values, lengths).sum().backward()


# %% tags=["experiment"]
timed = {}
for dim in size.emb_dims:
    model = TokenPool(sequences.VOCABULARY, dim, dim).to(device)
    epochs = {}
    for name, score in ways.items():
        epochs[name] = partial(epoch, score, model, batches_of(256))
    timed[dim] = compare(epochs, device=device, seconds=size.seconds)

gains = {dim: compared.ratio("your groups") for dim, compared in timed.items()}
waste = grouping.waste_of(torch.arange(len(demo)).split(256), demo_lengths)
print(f"one rectangle has {waste:.1f} times as many cells as the groups")
what = "groups over one rectangle, largest embedding"
print(course.score("05/2", what, predicted_speedup, gains[size.emb_dims[-1]]))

# %% tags=["experiment"]
kept = {}  # bytes for backward of the last model, which has the largest embedding
for name, score in ways.items():
    one_step = partial(step, score, model, values, lengths)
    kept[name] = grouping.bytes_for_backward(one_step, model.parameters())
a_tenth = 10 * kept["your groups"] < kept["one rectangle"]
course.claim(
    "groups keep less than a tenth of the rectangle's bytes for backward",
    a_tenth,
    f"{kept['your groups'] / kept['one rectangle']:.0%}",
)
course.claim("at embedding size 64, groups are faster than one rectangle", gains.get(64), above=1)
course.claim("at embedding size 256, groups are faster than one rectangle", gains.get(256), above=1)
course.claim(
    "at embedding size 1024, groups are faster than one rectangle", gains.get(1024), above=1
)
course.claim(
    "at embedding size 8192, groups are faster than one rectangle", gains.get(8192), above=1
)

# %% [markdown]
# If the gain is smaller than the printed ratio of cells, something other than cells takes time, too. You will time the
# calls below.
#
# **Takeaway** Groups save the bytes of the padding. Whether they save time depends on the device and the size.

# %% [markdown]
# ## Which thresholds are cheapest?
#
# Real data often has many lengths, and a group for each of them would need many calls. So you look for a few
# thresholds with the least total cost.
#
# Take thresholds among the lengths that occur. Then each sequence is padded to its threshold and costs
# *cost(threshold)*. If the cells of your model dominate, this cost is the threshold. If the pairs of attention
# dominate, it is the square of the threshold.
#
# ### Exercise 3 · The best thresholds
#
# Find the cheapest thresholds by dynamic programming. Take the m different lengths in ascending order. To put the
# first j of them into g groups, choose how many lengths the first g − 1 groups hold:
#
# - these groups hold the first i lengths, at a least cost that you know from the round before;
# - the last group holds lengths i + 1 to j, at a cost of *group_cost(i, j)*.
#
# Try every i, and keep the cheapest.
#
# The outer loop below adds one group per round. Its `before[i]` is the least cost of the first i lengths in g − 1
# groups. You fill `least[j]`, the least cost of the first j lengths in g groups.
#
# ```python
# >>> best_thresholds(torch.tensor([1, 1, 1, 4, 4, 16]), groups=2)  # [4, 16] costs 5 × 4 + 16 = 36, [1, 16] costs 51
# [4, 16]
# ```
#
# **Must**
# - for j from 1 to m, set `least[j]` to the minimum over i < j of `before[i] + group_cost(i, j)`;
# - set `choice[j]` to an i that reaches this minimum.
#
# **Points** 5 · **Core** · **Difficulty** ●●○ · **Minutes** 18 · **Lines** 3
#
# **Convention** `upto[j]` counts the sequences with one of the first j lengths, so group_cost(i, j) is `(upto[j] -
# upto[i]) * costs[j - 1]`.
#
# **Source** Bellman 1961, "On the approximation of curves by line segments using dynamic programming", CACM 4(6).
#
# <details><summary>Hint 1</summary>
#
# How many sequences have a length after the i-th, up to the j-th? One subtraction in `upto` tells you.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `least[j], choice[j] = min((before[i] + ..., i) for i in range(j))` finds both in one pass.
#
# </details>


# %% solution="best_thresholds"
def best_thresholds(lengths, groups, cost=lambda length: length):
    """The thresholds of least cost.

    Args:
        lengths: int64 tensor (n,).
        groups: int, at least 1.
        cost: function from a length (int) to a number; it does not fall with the length.

    Returns: ascending list of min(groups, different lengths) int; the last one is the longest length.
    """
    grouping.check_lengths(lengths, groups=groups)
    lengths, counts = lengths.unique(return_counts=True)  # the different lengths, ascending
    lengths = lengths.tolist()
    upto = [0, *counts.cumsum(0).tolist()]  # upto[j]: sequences of the first j lengths
    costs = [cost(length) for length in lengths]
    m = len(lengths)
    before = [0.0] + [float("inf")] * m  # no groups: they can hold no length
    choices = []
    for _ in range(min(groups, m)):
        least = [float("inf")] * (m + 1)
        choice = [0] * (m + 1)
        ### BEGIN SOLUTION
        for j in range(1, m + 1):
            tried = ((before[i] + (upto[j] - upto[i]) * costs[j - 1], i) for i in range(j))
            least[j], choice[j] = min(tried)
        ### END SOLUTION
        before = least
        choices.append(choice)
    thresholds = []
    j = m
    for choice in reversed(choices):  # from the last group to the first
        thresholds.append(lengths[j - 1])
        j = choice[j]
    return thresholds[::-1]


# %% test="best_thresholds-visible" points=3
check.best_thresholds(best_thresholds)

# %% test="best_thresholds-hidden" points=2
### BEGIN HIDDEN TESTS
check.best_thresholds(best_thresholds, seed=1961)
### END HIDDEN TESTS

# %% tags=["experiment"]
best_now = course.solved(check.best_thresholds)
print("demo:", best_now(demo_lengths, 4))

log_normal = sequences.load("lognormal").lengths
count_cells = grouping.cost_of_groups(log_normal, grouping.cells_of_row)
count_pairs = grouping.cost_of_groups(log_normal, grouping.pairs_of_row)
fewest_cells = best_now(log_normal, 4, grouping.cells_of_row)
fewest_pairs = best_now(log_normal, 4, grouping.pairs_of_row)
for name, thresholds in {"cells": fewest_cells, "pairs": fewest_pairs}.items():
    counted = f"{count_cells(thresholds):,} cells, {count_pairs(thresholds):,} pairs"
    print(f"lognormal, fewest {name}: thresholds {thresholds}, {counted}")
rises = all(high > low for high, low in zip(fewest_pairs[:-1], fewest_cells[:-1], strict=True))
course.claim("the quadratic cost raises each of four thresholds but the last", rises)

# %% [markdown]
# Under the quadratic cost a cell of a long row costs more. So the best thresholds are higher here, which saves padding
# in the long rows.
#
# **Takeaway** Minimise the cost that dominates in your model: cells, or pairs of cells in a row.

# %% [markdown]
# ## How many groups are fastest?
#
# Each further group removes padding, but adds calls. A simple model is *time = a · groups + b · cells*. The times of
# one group and of the most groups give a and b. Does the model choose a good number of groups for this batch?

# %%
few = sequences.load("lognormal", rows=size.rows_of_overhead)
print(f"{few.summary().strip()}; embedding size {size.overhead_dim}")

# %% [markdown]
# **Predict** How many groups are fastest? The cell tries twelve numbers from 1 to 64, but no more groups than different
# lengths. Few, because calls cost much, or many, because cells do?

# %%
predicted_groups = None  # your number

# %% tags=["experiment"]
few_values, few_lengths, _ = sequences.collate(list(few), device)
on_cpu = few_lengths.cpu()
limits = {}  # {number of groups: their thresholds}
for n in (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64):
    thresholds = best_now(on_cpu, n)
    limits[len(thresholds)] = thresholds

model = TokenPool(sequences.VOCABULARY, size.overhead_dim, size.overhead_dim).to(device)
steps = {}
for n, thresholds in limits.items():
    score = partial(score_grouped, thresholds=thresholds)
    steps[str(n)] = partial(step, score, model, few_values, few_lengths)
taken = compare(steps, device=device, seconds=size.overhead_seconds)

# %% tags=["experiment"]
count_cells = grouping.cost_of_groups(on_cpu, grouping.cells_of_row)
cells = {n: count_cells(thresholds) for n, thresholds in limits.items()}
seconds = {n: taken.time(str(n)) for n in limits}
a, b = grouping.cost_of_group_and_cell(seconds, cells)
model_says = {n: a * n + b * cells[n] for n in limits}
plots.time_against_groups(seconds, model_says, fixed_by=(1, max(limits)))

# %% tags=["experiment"]
fastest = min(limits, key=lambda n: seconds[n].estimate)
foretold = min(model_says, key=model_says.get)
print(f"a group costs {1e6 * a:.0f} µs, as much as {a / b:,.0f} cells")
print(f"fastest by the model: {foretold} groups")
what = "groups that are fastest"
print(course.score("05/2", what, predicted_groups, fastest, null=None, form="{:.0f}"))

# %% tags=["experiment"]
removed = (cells[1] - cells[4]) / (cells[1] - int(on_cpu.sum()))
is_most = removed > 0.75
course.claim("four groups remove most of the padding", is_most, f"{removed:.0%} of it")
course.claim("four groups are at least 50 % faster than one", taken.ratio("4"), above=1.5)
others = [taken.ratio(str(n), to=str(foretold)) for n in limits if n != foretold]
best_other = max(others, key=lambda ratio: ratio.high)
course.claim(
    "the number of groups that the model predicts is at most 30 % slower than the fastest",
    best_other,
    below=1.3,
)

# %% [markdown]
# The first groups remove most of the padding. Later groups remove little, but each adds its calls. So the time can
# fall first, then rise. The open points show how far the model is off. It can be off and still choose well.
#
# **Takeaway** Start with a few groups, because each further group adds the same calls but saves fewer cells.
#
# <details><summary>What if the open points lie above the model?</summary>
#
# **We think** that the model then lacks a third cost, which a step pays once for any number of groups. To test this,
# fit *a · groups + b · cells + c* to all times.
#
# </details>

# %% [markdown]
# ## What changes in small batches?
#
# A smaller batch has fewer cells, but needs almost as many groups. You also time two groups, which need fewer calls but
# leave some padding.
#
# **Predict** How many times as fast as one rectangle are groups in batches of 32, with the smallest embedding? Are
# groups faster, because most cells are still padding? Or slower, because each call works on few cells?

# %%
predicted_small = None  # times as fast, e.g. 2.0

# %% tags=["experiment"]
small = batches_of(32)
in_two_groups = partial(score_grouped, thresholds=(4, 64))

small_batches = {}  # by embedding size
for dim in size.losing_dims:
    model = TokenPool(sequences.VOCABULARY, dim, dim).to(device)
    epochs = {
        "one rectangle": partial(epoch, score_padded, model, small),
        "two groups": partial(epoch, in_two_groups, model, small),
        "your groups": partial(epoch, score_grouped, model, small),
    }
    small_batches[dim] = compare(epochs, device=device, seconds=size.seconds)
plots.speedups(small_batches, xlabel="embedding size")

# %% tags=["experiment"]
smallest, *_, largest = size.losing_dims
small_gains = {dim: found.ratio("your groups") for dim, found in small_batches.items()}
what = "groups over one rectangle, batches of 32, smallest embedding"
print(course.score("05/2", what, predicted_small, small_gains[smallest]))
both = None
two_groups = None
if 64 in gains and 64 in small_batches:  # not at smoke scale
    both = quotient(gains[64], small_gains[64])
    two_groups = small_batches[64].ratio("two groups")

course.claim(
    "in batches of 32, groups are slower than one rectangle at the smallest embedding",
    small_gains[smallest],
    below=1,
)
course.claim(
    "in batches of 32, groups are faster than one rectangle at the largest embedding",
    small_gains[largest],
    above=1,
)
course.claim(
    "at embedding size 64, groups gain more in batches of 256 than in batches of 32", both, above=1
)

course.claim(
    "in batches of 32 at embedding size 64, two groups are faster than one rectangle",
    two_groups,
    above=1,
)

# %% [markdown]
# At embedding size 64 only the batch size changed between 256 and 32, so it alone changes the gain (**Shown**). In a
# small batch each call works on fewer cells. It also has less padding per token, as part 1 counted.
#
# Two groups have fewer calls but more padding. So they can be faster than four in small models, and slower in large
# ones.
#
# **Takeaway** Groups pay where the saved cells cost more than the added calls. Large layers and large batches favour
# them.
#
# <details><summary>Why were groups slower on the recorded GPUs at embedding size 64, even in batches of 256?</summary>
#
# **We think** that one reason is that the CPU waits for the GPU at each `nonzero` and each `int(lengths.max())`. To
# test this, compute the groups from a copy of the lengths on the CPU.
#
# </details>
#
# <details><summary>Do you accumulate gradients anyway?</summary>
#
# Sort by length before you cut the micro-batches, and weight their losses as part 3 does. Then groups add no calls,
# and the backward pass of each micro-batch frees its memory. (`run_grouped` keeps all groups until the end.)
#
# </details>

# %% [markdown]
# ## Does a random search come close? · extra
#
# The exact search needs a cost that is a sum over groups. A random search, which asym uses, works for any cost. You
# compare the two on a cost that both can minimise.
#
# ### Exercise 4 · Find thresholds at random
#
# Search at random, with restarts. A trial starts at random thresholds. It moves one of them to the next length, down
# or up, as long as that lowers the cost. The best of several trials wins.
#
# `cost(thresholds)` is the cost, and `grouping.neighbours(thresholds, occurring)` lists all such moves. With a single
# group the list is empty, so `min` needs its argument `default`.
#
# ```python
# >>> find_thresholds(torch.tensor([1, 1, 1, 4, 4, 16]), k=2)  # [4, 16] costs 5 × 4 + 16 = 36, [1, 16] costs 51
# [4, 16]
# ```
#
# **Must**
# - in each of `num_trials` trials, draw `k − 1` different lengths below the longest with `generator` (all of them, if
#   there are fewer);
# - replace the thresholds with a cheaper neighbour, until there is none;
# - return the cheapest thresholds of all trials: ascending ints, the last one the longest length.
#
# **Points** 4 · **Extra** · **Difficulty** ●●○ · **Minutes** 22 · **Lines** 10
#
# **Source** `find_thresholds(lengths, cost_fn, k, num_trials)` of asym. It leaves out the longest length, and equalises
# the costs of neighbouring groups instead of moving to a cheaper neighbour.
#
# <details><summary>Hint 1</summary>
#
# `torch.randperm(n, generator=generator)[:m]` draws m different places out of n. Which place must never be drawn?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `min(grouping.neighbours(thresholds, occurring), key=cost, default=thresholds)` is the cheapest neighbour. When do
# you stop?
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# Draw, sort, append the longest length. `while True:` find the cheapest neighbour, `break` unless it costs less, else
# take it. After the loop append the thresholds to a list; at the end return `min(found, key=cost)`.
#
# </details>


# %% solution="find_thresholds"
def find_thresholds(lengths, k, num_trials=10, cost_fn=lambda length: length, generator=None):
    """Thresholds of `k` groups at a low cost, by a random search with restarts.

    Args:
        lengths: int64 tensor (n,), tokens per sequence, on the CPU.
        k: groups, at least 1.
        num_trials: how often the search starts again.
        cost_fn: function from a length (int) to a number, the cost of a sequence padded to it.
        generator: torch.Generator that draws the starts (default: torch's global one).

    Returns: ascending list of min(k, different lengths) int, the last one the longest length.
    """
    grouping.check_lengths(lengths, k=k, num_trials=num_trials)
    occurring = lengths.unique().tolist()  # ascending: thresholds are lengths that occur
    cost = grouping.cost_of_groups(lengths, cost_fn)
    ### BEGIN SOLUTION
    found = []
    for _ in range(num_trials):
        drawn = torch.randperm(len(occurring) - 1, generator=generator)[: k - 1]
        thresholds = [*sorted(occurring[place] for place in drawn), occurring[-1]]
        while True:
            moved = min(grouping.neighbours(thresholds, occurring), key=cost, default=thresholds)
            if cost(moved) >= cost(thresholds):
                break
            thresholds = moved
        found.append(thresholds)
    return min(found, key=cost)
    ### END SOLUTION


# %% test="find_thresholds-visible" points=2
check.find_thresholds(find_thresholds)

# %% test="find_thresholds-hidden" points=2
### BEGIN HIDDEN TESTS
check.find_thresholds(find_thresholds, seed=419)
### END HIDDEN TESTS

# %% tags=["experiment"]
search_now = course.solved(check.find_thresholds)
generator = torch.Generator().manual_seed(1)
many = sequences.lognormal_lengths(size.lengths, generator, mean=4.0, std=1.0, longest=1024)


def at_random(trials, seed=0):
    """Thresholds of a random search."""
    return search_now(many, 4, trials, generator=torch.Generator().manual_seed(seed))


searches = {"exact": partial(best_now, many, 4)}
for trials in size.trials:
    searches[f"random × {trials}"] = partial(at_random, trials)
searched = compare(searches, seconds=size.seconds)

# %% tags=["experiment"]
count_cells = grouping.cost_of_groups(many, grouping.cells_of_row)
least = count_cells(best_now(many, 4))
misses = {"exact": [0.0]}  # per cent above the least cells, of each seed
for trials in size.trials:
    of_seeds = []
    for seed in range(10):
        cells_found = count_cells(at_random(trials, seed))
        of_seeds.append(100 * (cells_found / least - 1))
    misses[f"random × {trials}"] = of_seeds

results = {}
for name, of_seeds in misses.items():
    results[name] = (searched.time(name).estimate, of_seeds)
plots.search_results(results)

# %% tags=["experiment"]
course.claim(
    "random searches of ten trials miss the fewest cells by less than 5 %, in the centre of ten seeds",
    signed_rank_interval(misses["random × 10"]),
    below=5,
)
course.claim(
    "random searches of ten trials miss less than those of a single trial",
    difference_interval(misses["random × 10"], misses["random × 1"]),
    below=0,
)

# %% [markdown]
# An open dot is a seed, and a bar the median of ten seeds. Where a random trial ends depends on where it starts, so
# single trials scatter. The exact search tries each pair of different lengths once per group, so its time grows with
# the square of their number.
#
# **Takeaway** Search exactly if the cost is a sum over groups and the search takes acceptable time. Otherwise restart a
# random search.
#
# Part 3 chooses which sequences form a batch.
