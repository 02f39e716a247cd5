# %% [markdown]
# # Batch grouping, part 2: Remove most of the waste with a few groups
#
# **How few groups remove the padding, and which ones?**
#
# The batch stays as it is: same sequences, same order, same loss, same gradients. Only the computation is cut into a
# few padded rectangles, one per range of lengths. You write the grouping without a loop over samples, find the
# thresholds that cost least by dynamic programming, and predict how many groups are worth their overhead.
#
# **You will be able to**
#
# - run a model of padded batches in groups, with the same outputs and gradients, if it treats rows independently;
# - find the best thresholds for a data set and a cost, exactly and fast;
# - predict the number of groups at which more of them stop helping on your machine.
#
# **Minutes** 40 core · 150 in all
#
# **Needs** `pad_batch` and `padded_forward` of part 1 are taken over if you solved them


# %% locked="setup"
import functools
import itertools
import statistics
import time

import torch
from torch import nn

import course
from course import grouping
from course.checks import batch_grouping as check
from course.datasets import sequences
from course.plots import batch_grouping as plots
from course.token_models import TokenPool

print(course.machine())
size, device = course.sizes("05_batch_grouping"), course.device()
demo = sequences.load("demo", rows=size.demo_rows)
ragged_batches = [sequences.collate([demo[i] for i in range(b, b + 256)]) for b in range(0, len(demo), 256)]
values, lengths, labels = (part.to(device) for part in ragged_batches[0])


def synchronize():
    """Wait until the device has finished."""
    if device.type == "cuda":
        torch.cuda.synchronize()


# %% [markdown]
# ## Groups inside a batch
#
# **Sequences of similar length share a rectangle; the results go back to where they belong.**

# %% tags=["experiment"]
some = demo.lengths[:24]
groups = [some[some == n] for n in some.unique()]
plots.padding_cells({"one rectangle": some, "a rectangle per length": groups})

# %% [markdown]
# ### Exercise 1 · Who belongs together
#
# Assign the rows of a batch to groups by thresholds. Everything that follows rests on these index lists.
#
# **Must**
# - put a row into the first group whose threshold is not below its length;
# - return one int64 tensor of row numbers per threshold, rows in the order of the batch; a group may be empty.
#
# **Raises** ValueError if the thresholds do not ascend, or if a sequence is longer than the last one.
#
# **Points** 2 · **Core** · **Difficulty** ●○○ · **Minutes** 8 · **Lines** 6
#
# **Convention** A threshold is the longest length that its group takes: [4, 16] makes groups of 1 to 4 and 5 to 16.
#
# **Source** `LengthThresholdGrouper` of asym, where the last threshold is left out.
#
# <details><summary>Hint 1</summary>
#
# Which torch function finds the place of many numbers between sorted borders?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `torch.bucketize(lengths, borders)` gives the first border that is not below each length. Then one
# `nonzero` per group.
#
# </details>


# %% solution="group_by_length"
def group_by_length(lengths, thresholds):
    """Row numbers per group of lengths.

    Args:
        lengths: int64 tensor (n,).
        thresholds: list of ascending int, the longest length of each group.

    Returns: list of int64 tensors, one per threshold, on the device of `lengths`.
    Raises: ValueError if the thresholds do not ascend or do not reach the longest length.
    """
    ### BEGIN SOLUTION
    if any(low >= high for low, high in itertools.pairwise(thresholds)) or int(lengths.max()) > thresholds[-1]:
        raise ValueError(f"thresholds must ascend and reach {int(lengths.max())}, found {thresholds}")
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
# **Predict**: the demo set has four lengths. With one group per length, by which factor does a training step at
# embedding dimension 256 get faster? And at 64?

# %%
my_guess_at_256, my_guess_at_64 = None, None

# %% [markdown]
# ### Exercise 2 · Run a module in groups
#
# Give each group to the module as a padded batch of its own, and put the results back in the order of the batch.
#
# **Must**
# - call `module(x, mask)` once per group that has a row; `x` is padded with 0 to the group's *own* longest sequence;
# - return the outputs in the order of the batch, so that gradients flow through them;
# - use no Python loop over sequences: the number of operations must not grow with their number.
#
# **Points** 5 · **Core** · **Difficulty** ●●● · **Minutes** 25 · **Lines** 12
#
# **Convention** `module` gives a tensor with a row per sequence, of any further shape. Groups as in exercise 1.
#
# **Source** asym's `DataCollection.group`, `apply` and `regroup`, which loop over samples.
#
# <details><summary>Hint 1</summary>
#
# At which place of `values` does row r begin? And its token number p?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `starts = lengths.cumsum(0) - lengths`. For the rows of a group, `starts[rows][:, None] + torch.arange(longest)` are
# the places of all cells; some lie behind the end of a row, or of `values`: clamp, then set to 0 by the mask.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# Concatenate the outputs and the row numbers. `torch.empty_like(outputs).index_copy(0, rows, outputs)` puts them back
# and has a gradient; so has `outputs[rows.argsort()]`.
#
# </details>


# %% solution="run_grouped"
def run_grouped(module, values, lengths, thresholds):
    """What `module` gives for each sequence, computed group by group.

    Args:
        module: called with (x, mask) of a padded batch; gives a tensor with a row per sequence.
        values: int64 tensor (total,), the tokens of all sequences, one sequence after the other.
        lengths: int64 tensor (n,), tokens per sequence.
        thresholds: list of ascending int, the longest length of each group.

    Returns: tensor (n, ...), row i for sequence i.
    """
    ### BEGIN SOLUTION
    starts = lengths.cumsum(0) - lengths
    groups, outputs = [rows for rows in group_by_length(lengths, thresholds) if len(rows)], []
    for rows in groups:
        own = lengths[rows]
        place = torch.arange(int(own.max()), device=values.device)
        mask = place < own[:, None]
        cells = (starts[rows][:, None] + place).clamp(max=len(values) - 1)
        outputs.append(module(values[cells].masked_fill(~mask, 0), mask))
    outputs = torch.cat(outputs)
    return torch.empty_like(outputs).index_copy(0, torch.cat(groups), outputs)
    ### END SOLUTION


# %% test="run_grouped-visible" points=3
check.run_grouped(run_grouped)

# %% test="run_grouped-hidden" points=2
### BEGIN HIDDEN TESTS
check.run_grouped(run_grouped, seed=64)
### END HIDDEN TESTS

# %% tags=["experiment"]
grouped_now, pad_now = course.solved(check.run_grouped), course.solved(check.pad_batch)
forward_now = course.solved(check.padded_forward)


def score_padded(model, values, lengths):
    """All sequences in one rectangle."""
    return forward_now(model, *pad_now(values, lengths))


def score_grouped(model, values, lengths, thresholds=(1, 4, 16, 64)):
    """A rectangle per group."""
    return grouped_now(lambda x, mask: forward_now(model, x, mask), values, lengths, list(thresholds))


def score_sample_by_sample(model, values, lengths, thresholds=(1, 4, 16, 64)):
    """The same groups, with a loop over samples at every step."""
    samples = values.split(lengths.tolist())
    return grouping.grouped_sample_by_sample(lambda x, mask: forward_now(model, x, mask), samples, thresholds)


torch.manual_seed(0)
model = TokenPool(sequences.VOCABULARY, 64, 64).to(device)
gradients = {}
for name, score in (("padded", score_padded), ("grouped", score_grouped)):
    model.zero_grad()
    outputs = score(model, values, lengths)
    (outputs - labels).square().mean().backward()
    gradients[name] = outputs.detach(), [p.grad.clone() for p in model.parameters()]
apart = [(a - b).abs().max().item() for a, b in zip(gradients["padded"][1], gradients["grouped"][1], strict=True)]
off = (gradients["padded"][0] - gradients["grouped"][0]).abs().max().item()
course.claim("outputs of groups equal those of the padded batch", off < 1e-5, f"largest difference {off:.1e}")
course.claim("so do the gradients of all weights", max(apart) < 1e-5, f"largest difference {max(apart):.1e}")

# %% [markdown]
# ### What the groups are worth
#
# Three ways to the same gradients, timed in turns: one rectangle, groups with a loop over samples (our
# reconstruction of how asym works), and your groups.

# %% tags=["experiment"]
ways = {"one rectangle": score_padded, "sample by sample": score_sample_by_sample, "your groups": score_grouped}


def epoch(score, model):
    """One epoch of SGD on the demo set."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for values, lengths, labels in ragged_batches:
        optimizer.zero_grad()
        loss = (score(model, values.to(device), lengths.to(device)) - labels.to(device)).square().mean()
        loss.backward()
        optimizer.step()


def take_turns(calls, rounds):
    """{name: seconds of each round}: in every round each of `calls` runs once; a first round does not count."""
    seconds = {name: [] for name in calls}
    for _ in range(rounds + 1):
        for name, call in calls.items():
            synchronize()
            begin = time.perf_counter()
            call()
            synchronize()
            seconds[name].append(time.perf_counter() - begin)
    return {name: found[1:] for name, found in seconds.items()}


timed = {}
for dim in size.emb_dims:
    model = TokenPool(sequences.VOCABULARY, dim, dim).to(device)
    calls = {name: functools.partial(epoch, score, model) for name, score in ways.items()}
    timed[dim] = take_turns(calls, size.rounds)
plots.speedups(timed, base="one rectangle", xlabel="embedding dimension")

# %% tags=["experiment"]
for dim, seconds in timed.items():
    ratios = {}
    for name in ("sample by sample", "your groups"):
        pairs = [a / b for a, b in zip(seconds["one rectangle"], seconds[name], strict=True)]
        ratios[name] = statistics.median(pairs)
    print(f"embedding {dim:>5}: " + ", ".join(f"{name} {ratio:.1f} times as fast" for name, ratio in ratios.items()))
    looped, ours = ratios["sample by sample"], ratios["your groups"]
    course.claim(f"at {dim}, groups are faster than one rectangle", ours > 1, f"{ours:.1f} times")
    course.claim(f"at {dim}, a loop over samples loses part of that", looped < ours, f"{looped:.1f} against {ours:.1f}")

# %% [markdown]
# Padding multiplies the tokens of this set by the waste that part 1 computed. Grouping can gain more than that where a
# large rectangle costs more per token than small ones. Small embeddings gain less: each group costs a fixed time for
# launching its operations, and a loop over samples costs that per sample. The black lines in the figure run from the
# lowest to the highest ratio of a round. Where it does not hold that groups are faster, your device computes the whole
# rectangle in less time than it takes to launch four groups.

# %% [markdown]
# ## Which thresholds?
#
# **The cheapest thresholds can be computed exactly; no search by chance is needed.**

# %% [markdown]
# ### Exercise 3 · What groups cost
#
# Compute the cost of a grouping: every sequence is padded to its group's longest.
#
# **Must** return the sum over all groups of (sequences in the group) × `cost`(longest length in the group).
#
# **You may assume** thresholds as in exercise 1.
#
# **Points** 2 · **Extra** · **Difficulty** ●○○ · **Minutes** 8 · **Lines** 3
#
# **Convention** `cost` takes a length (int) and returns a number; by default the length itself: padded tokens.
#
# **Source** `cost_fn` is that of asym's `find_thresholds`; the sum is ours.
#
# <details><summary>Hint 1</summary>
#
# Which exercise gives you the groups? What does a group without a sequence cost?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Sum `len(rows) * cost(int(lengths[rows].max()))` over the groups with at least one row.
#
# </details>


# %% solution="grouping_cost"
def grouping_cost(lengths, thresholds, cost=lambda length: length):
    """Cost of computing `lengths` in the groups of `thresholds`.

    Args:
        lengths: int64 tensor (n,).
        thresholds: list of ascending int.
        cost: function from a length (int) to a number.

    Returns: a Python number.
    """
    ### BEGIN SOLUTION
    groups = [lengths[rows] for rows in group_by_length(lengths, thresholds) if len(rows)]
    return sum(len(group) * cost(int(group.max())) for group in groups)
    ### END SOLUTION


# %% test="grouping_cost-visible" points=1
check.grouping_cost(grouping_cost)

# %% test="grouping_cost-hidden" points=1
### BEGIN HIDDEN TESTS
check.grouping_cost(grouping_cost, seed=25)
### END HIDDEN TESTS

# %% [markdown]
# ### One optimum inside another
#
# Sort the different lengths u₁ < … < uₘ. In some best grouping of the first j lengths into g groups, the last group
# takes uᵢ₊₁ to uⱼ, and what lies before it is a best grouping of the first i lengths into g − 1 groups. So a table
# over g and j, filled row by row, holds the answer.

# %% [markdown]
# ### Exercise 4 · The best thresholds
#
# Find thresholds of least cost, with the table above.
#
# **Must**
# - return an ascending list of lengths that occur, one per group, the last one the longest;
# - make `groups` groups, or one per different length where there are fewer;
# - have the least cost of all such lists, for any `cost` that does not fall with the length.
#
# **Points** 5 · **Extra** · **Difficulty** ●●● · **Minutes** 30 · **Lines** 18
#
# **Convention** Cost as in exercise 3. An effort of groups × m² is fine.
#
# **Source** Bellman 1961, "On the approximation of curves by line segments using dynamic programming", CACM 4(6).
#
# <details><summary>Hint 1</summary>
#
# How many sequences have a length from uᵢ₊₁ to uⱼ? A running sum of counts answers with one subtraction.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# least[g][j] = min over i < j of least[g − 1][i] + (count[j] − count[i]) × cost(uⱼ), with least[0][0] = 0. Remember
# for each (g, j) the i that was best.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# Start at j = m in the last row. uⱼ is a threshold; go on at the remembered i one row further up, until i = 0.
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
    ### BEGIN SOLUTION
    occurring, counts = lengths.unique(return_counts=True)
    occurring, upto = occurring.tolist(), [0, *counts.cumsum(0).tolist()]
    prices, m = [cost(length) for length in occurring], len(occurring)
    least, choices = [0.0] + [float("inf")] * m, []
    for _ in range(min(groups, m)):
        row, choice = [float("inf")] * (m + 1), [0] * (m + 1)
        for j in range(1, m + 1):
            tried = ((least[i] + (upto[j] - upto[i]) * prices[j - 1], i) for i in range(j))
            row[j], choice[j] = min(tried)
        least = row
        choices.append(choice)
    thresholds, j = [], m
    for choice in reversed(choices):
        thresholds.append(occurring[j - 1])
        j = choice[j]
    return thresholds[::-1]
    ### END SOLUTION


# %% test="best_thresholds-visible" points=3
check.best_thresholds(best_thresholds)

# %% test="best_thresholds-hidden" points=2
### BEGIN HIDDEN TESTS
check.best_thresholds(best_thresholds, seed=1961)
### END HIDDEN TESTS

# %% [markdown]
# ### Most candidates need not be tried
#
# The best i never moves left when j grows, because the cost of a group obeys the quadrangle inequality. So solve the
# middle j of a range first; its i bounds the search of the left half from above and that of the right half from below.

# %% [markdown]
# ### Exercise 5 · The same in m log m
#
# Cut items 0 … m − 1 into runs of least total weight, by halving ranges as above.
#
# **Must**
# - return where each of the `groups` runs ends, ascending, the last one m;
# - call `weight(i, j)`, the weight of the run of items i … j − 1, at most groups · m · (log₂ m + 2) times.
#
# **You may assume** 1 ≤ groups ≤ m, and the quadrangle inequality.
#
# **Points** 5 · **Extra** · **Difficulty** ●●● · **Minutes** 30 · **Lines** 24
#
# **Convention** `weight` is asked for runs with at least one item: i < j.
#
# **Source** Galil and Park 1992, "Dynamic programming with convexity, concavity and sparsity", section 3.
#
# <details><summary>Hint 1</summary>
#
# Why are two halves cheap? What do the searches of all ranges of one depth add up to?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# A function solve(low, high, first, last) fills row[low..high] knowing that the best i lies in first..last. It looks
# at all i from first to min(last, middle − 1) for the middle j, then calls itself twice.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# In row g only j ≥ g can be reached, and i ≥ g − 1. The first row needs no search: weight(0, j).
#
# </details>


# %% solution="best_cuts"
def best_cuts(m, groups, weight):
    """Where to cut m items into `groups` runs of least total weight.

    Args:
        m: number of items.
        groups: number of runs, 1 <= groups <= m.
        weight: (i, j) -> weight of the run of items i ... j - 1, for 0 <= i < j <= m.

    Returns: ascending list of `groups` int, the ends of the runs; the last one is m.
    """
    ### BEGIN SOLUTION
    row, choices = [0.0] + [weight(0, j) for j in range(1, m + 1)], []
    for group in range(2, groups + 1):
        before, row, choice = row, [float("inf")] * (m + 1), [0] * (m + 1)
        waiting = [(group, m, group - 1, m - 1)]
        while waiting:
            low, high, first, last = waiting.pop()
            if low > high:
                continue
            j = (low + high) // 2
            row[j], choice[j] = min((before[i] + weight(i, j), i) for i in range(first, min(last, j - 1) + 1))
            waiting += [(low, j - 1, first, choice[j]), (j + 1, high, choice[j], last)]
        choices.append(choice)
    cuts = [m]
    for choice in reversed(choices):
        cuts.append(choice[cuts[-1]])
    return cuts[::-1]
    ### END SOLUTION


# %% test="best_cuts-visible" points=3
check.best_cuts(best_cuts)

# %% test="best_cuts-hidden" points=2
### BEGIN HIDDEN TESTS
check.best_cuts(best_cuts, seed=1992)
### END HIDDEN TESTS

# %% [markdown]
# ### Exact against random search
#
# **Predict**: a random search (starts drawn at random, each improved step by step) and your exact search, both for four
# groups of some ten thousand lengths. How much cheaper are the exact thresholds, and how much faster are they found?

# %%
my_guess_of_cost, my_guess_of_speed = None, None

# %% tags=["experiment"]
cost_now, best_now = course.solved(check.grouping_cost), course.solved(check.best_thresholds)
cuts_now = course.solved(check.best_cuts)
rng = torch.Generator().manual_seed(1)
many = sequences.lognormal_lengths(size.lengths, rng, mean=4.0, std=1.0)


def exact_and_fast(lengths, groups):
    """Best thresholds by `best_cuts`."""
    occurring, counts = lengths.unique(return_counts=True)
    occurring, upto = occurring.tolist(), [0, *counts.cumsum(0).tolist()]
    cuts = cuts_now(len(occurring), groups, lambda i, j: (upto[j] - upto[i]) * occurring[j - 1])
    return [occurring[cut - 1] for cut in cuts]


searches = {
    "random search": lambda: grouping.thresholds_by_chance(many, 4, trials=100),
    "exact": lambda: best_now(many, 4),
    "exact, m log m": lambda: exact_and_fast(many, 4),
}
seconds = take_turns(searches, 1)
found = {name: search() for name, search in searches.items()}
for name, thresholds in found.items():
    waste = cost_now(many, thresholds) / int(many.sum())
    print(f"{name:<16} {thresholds}  {waste:.4f} padded tokens per token  {1000 * seconds[name][0]:8.1f} ms")
more = cost_now(many, found["random search"]) / cost_now(many, found["exact"])
slower = seconds["exact"][0] / seconds["exact, m log m"][0]
course.claim("halving ranges beats the full table", slower > 1, f"{slower:.0f} times as fast")

# %% [markdown]
# The table above says how close the random search with 100 starts came, and how long it took. What the exact search
# adds is certainty: no number of trials to choose, and no way to miss. asym's own search balances the costs of
# neighbouring groups instead of minimising their sum; `course bench grouping thresholds` runs it beside these
# (docs/results.md). Where it does not hold that halving is faster, there are only a few different lengths.

# %% [markdown]
# ## How many groups?
#
# **Each group saves padding and costs a fixed overhead, so there is a best number of them.**
#
# Model: time = a · groups + b · padded tokens. The measurements at 4 and 64 groups fix a and b; the rest of the curve
# is a prediction.
#
# **Predict**: for log-normal lengths, how many groups are fastest?

# %%
my_guess_of_groups = None

# %% tags=["experiment"]
drawn = sequences.load("lognormal", rows=size.rows_of_overhead)
flat, own, _ = (part.to(device) for part in sequences.collate([drawn[i] for i in range(len(drawn))]))
counts = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64]
limits = {count: best_now(own.cpu(), count) for count in counts}
tokens = {count: cost_now(own.cpu(), limits[count]) for count in counts}
model = TokenPool(sequences.VOCABULARY, size.overhead_dim, size.overhead_dim).to(device)


def step_of(count):
    """A step's forward and backward in `count` groups."""
    return lambda: score_grouped(model, flat, own, limits[count]).sum().backward()


taken = take_turns({n: step_of(n) for n in counts}, 4 * size.rounds)
seconds = {count: statistics.median(found) for count, found in taken.items()}
b = (64 * seconds[4] - 4 * seconds[64]) / (64 * tokens[4] - 4 * tokens[64])  # two equations for a and b
a = (seconds[4] - b * tokens[4]) / 4
predicted = {count: a * count + b * tokens[count] for count in counts}
plots.time_against_groups(seconds, predicted, fixed_by=(4, 64))

# %% tags=["experiment"]
fastest, foretold = min(seconds, key=seconds.get), min(predicted, key=predicted.get)
print(f"overhead {1e6 * a:.0f} µs per group, {1e9 * b:.0f} ns per padded token")
print(f"fastest measured: {fastest} groups, predicted: {foretold}; you guessed {my_guess_of_groups}")
loss = seconds[foretold] / seconds[fastest]
course.claim("every group costs a fixed overhead", a > 0, f"{1e6 * a:.0f} µs")
course.claim("the number of groups that the model names is nearly as fast as the best", loss < 1.3,
             f"{100 * (loss - 1):.0f} % slower")  # fmt: skip
saved = (tokens[1] - tokens[4]) / (tokens[1] - int(own.sum()))
course.claim("four groups remove most of the padding", saved > 0.75, f"{100 * saved:.0f} % of it")

# %% [markdown]
# The first cut saves the most; where one large rectangle lies above the model's curve, its tokens cost more each than
# those of small ones. After the minimum each further group removes little padding and costs its overhead. Where it does
# not hold that the model's choice is nearly the best, time does not follow the padded tokens on your machine.

# %% [markdown]
# ## Any module, two lengths
#
# ### Exercise 6 · Two ragged dimensions
#
# A batch of pairs (say, rows and columns of tables) has two lengths per sample. Published code marks an entry as real
# if *any* of its dimensions is within its length.
#
# **Must** return the mask (n, most rows, most columns) of the entries that really exist.
#
# **Points** 2 · **Extra** · **Difficulty** ●○○ · **Minutes** 5 · **Lines** 3
#
# **Convention** The mask is bool and as large as the largest number of rows and of columns in the batch.
#
# **Source** The bug: the mask of two length dimensions in asym combines them by `any`.
#
# <details><summary>Hint 1</summary>
#
# A table of 2 rows and 3 columns, padded to 4 by 4: is the entry in row 1, column 4 real?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Two masks (n, rows) and (n, columns), combined by `&` after `[:, :, None]` and `[:, None, :]`.
#
# </details>


# %% solution="pair_mask"
def pair_mask(rows, columns):
    """Where a padded batch of tables has entries.

    Args:
        rows: int64 tensor (n,), rows per table.
        columns: int64 tensor (n,), columns per table.

    Returns: bool tensor (n, most rows, most columns).
    """
    ### BEGIN SOLUTION
    real_rows = torch.arange(int(rows.max()), device=rows.device) < rows[:, None]
    real_columns = torch.arange(int(columns.max()), device=rows.device) < columns[:, None]
    return real_rows[:, :, None] & real_columns[:, None, :]
    ### END SOLUTION


# %% test="pair_mask-visible" points=1
check.pair_mask(pair_mask)

# %% test="pair_mask-hidden" points=1
### BEGIN HIDDEN TESTS
check.pair_mask(pair_mask, seed=2)
### END HIDDEN TESTS

# %% [markdown]
# ### Exercise 7 · Any module, by its shapes
#
# Write asym's wrapper: any module that treats rows independently runs in groups.
#
# **Must**
# - `Annotated(module, inputs, outputs)` is an nn.Module; `forward(values, lengths, thresholds)` runs it in groups;
# - `inputs` such as "(b, l_seq)" or "(b, l_seq, d)": b, one length `l_…`, other dimensions;
# - `outputs` "(b)" or "(b, d)": a row per sequence; "(b, l_seq)": a value per token, returned flat in the order of
#   `values`.
#
# **Raises** ValueError without parentheses or b first, without exactly one length in the input, or with another length
# in the output.
#
# **Points** 5 · **Extra** · **Difficulty** ●●● · **Minutes** 25 · **Lines** 30
#
# **Convention** Groups, padding and order as in exercise 2. Spaces in an annotation do not matter.
#
# **Source** asym's `AnnotatedModule`, which is subclassed there, and its shape strings (our `d` is its `m_d`).
#
# <details><summary>Hint 1</summary>
#
# What of exercise 2 must change if a value per token comes back? Where do the cells of a group go?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Keep `cells[mask]`: the places in `values` of all real cells of a group. Outputs per token are `output[mask]`.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# For values with features, the mask needs as many dimensions as `values[cells]`: reshape it with ones at the end.
#
# </details>


# %% solution="Annotated"
class Annotated(nn.Module):
    """A module of padded batches that runs in groups of similar length.

    Args:
        module: called with (x, mask).
        inputs: shape of x, e.g. "(b, l_seq)".
        outputs: shape of what it gives, e.g. "(b)" or "(b, l_seq)".

    Raises: ValueError if an annotation does not fit.
    """

    ### BEGIN SOLUTION
    def __init__(self, module, inputs, outputs):
        super().__init__()
        given, gives = self._dimensions(inputs), self._dimensions(outputs)
        lengths = [name for name in given if name.startswith("l_")]
        if len(lengths) != 1 or given[1] != lengths[0]:
            raise ValueError(f"the input needs one length after b, found {inputs}")
        if any(name.startswith("l_") and name != lengths[0] for name in gives):
            raise ValueError(f"{outputs} has a length that {inputs} has not")
        self.module, self.per_token = module, gives[1:2] == lengths

    @staticmethod
    def _dimensions(annotation):
        text = annotation.strip()
        names = [name.strip() for name in text[1:-1].split(",")]
        if text[:1] + text[-1:] != "()" or names[0] != "b":
            raise ValueError(f"a shape such as (b, l_seq) was expected, found {annotation}")
        return names

    def forward(self, values, lengths, thresholds):
        """Outputs per sequence, or per token, in the order of the batch."""
        starts, outputs, places = lengths.cumsum(0) - lengths, [], []
        for rows in group_by_length(lengths, thresholds):
            if not len(rows):
                continue
            column = torch.arange(int(lengths[rows].max()), device=values.device)
            mask = column < lengths[rows][:, None]
            cells = (starts[rows][:, None] + column).clamp(max=len(values) - 1)
            x = values[cells]
            output = self.module(x.masked_fill(~mask.reshape(*mask.shape, *[1] * (x.dim() - 2)), 0), mask)
            outputs.append(output[mask] if self.per_token else output)
            places.append(cells[mask] if self.per_token else rows)
        outputs = torch.cat(outputs)
        return torch.empty_like(outputs).index_copy(0, torch.cat(places), outputs)

    ### END SOLUTION


# %% test="Annotated-visible" points=3
check.Annotated(Annotated)

# %% test="Annotated-hidden" points=2
### BEGIN HIDDEN TESTS
check.Annotated(Annotated, seed=9)
### END HIDDEN TESTS

# %% tags=["experiment"]
annotated_now = course.solved(check.Annotated)


class Pool(nn.Module):
    """The padded model as a module of (x, mask), as the demonstration annotates it."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x, mask):
        return forward_now(self.model, x, mask)


model = TokenPool(sequences.VOCABULARY, 64, 64).to(device)
wrapped = annotated_now(Pool(model), "(b, l_seq)", "(b)")
off = (wrapped(values, lengths, [1, 4, 16, 64]) - score_padded(model, values, lengths)).abs().max().item()
course.claim("the annotated module gives what the padded one gives", off < 1e-5, f"largest difference {off:.1e}")

# %% [markdown]
# ## What to take with you
#
# - For a module that treats rows independently, groups change the time and the memory; outputs and gradients stay.
# - A loop over samples can cost more than the padding that it saves.
# - The best thresholds are computed exactly from the different lengths.
# - A few groups remove most of the waste; the overhead per group limits how many are worthwhile.
#
# Part 3 goes one step back and chooses which sequences form a batch.
