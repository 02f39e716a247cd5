# %% [markdown]
# # Batch grouping, part 2: Remove most of the waste with a few groups
#
# **How few groups remove the padding, and which ones?**
#
# The batch stays as it is, with the same sequences, loss and gradients. You only split its computation into a few
# padded rectangles, one per range of lengths.
#
# As in part 1, a *cell* is a position in a padded rectangle.
#
# **You will be able to**
#
# - run a model of padded batches in groups, with the same outputs and gradients;
# - choose thresholds for a data set;
# - predict how many groups are fastest on your machine.
#
# **Minutes** 49 core · 91 in all
#
# **Needs** `pad_batch` of part 1


# %% locked="setup"
import functools

import torch

import course
from course.checks import batch_grouping as check
from course.datasets import sequences
from course.learner.predictions import reveal
from course.measure.comparison import compare
from course.plots import batch_grouping as plots
from course.training import grouping
from course.training.token_models import TokenPool

print(course.machine())
size, device = course.sizes("05_batch_grouping"), course.device()
demo = sequences.load("demo", rows=size.demo_rows)
ragged_batches = [sequences.collate([demo[i] for i in range(b, b + 256)]) for b in range(0, len(demo), 256)]
values, lengths, labels = (part.to(device) for part in ragged_batches[0])


# %% [markdown]
# ## Can you split a batch without changing its result?
#
# A *group* holds the sequences of a batch up to some length, its *threshold*.

# %% tags=["experiment"]
some = demo.lengths[:24]
plots.padding_cells({"one rectangle": some, "a rectangle per length": [some[some == n] for n in some.unique()]})

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
# - return one int64 tensor of indices per threshold, in the order of the batch.
#
# **Points** 2 · **Core** · **Difficulty** ●○○ · **Minutes** 5 · **Lines** 2
#
# **Source** `torch.bucketize`, whose buckets include their upper boundary.
#
# <details><summary>Hint 1</summary>
#
# Which torch function finds, for many numbers in one call, the sorted boundaries around each?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `torch.bucketize(lengths, boundaries)` gives, for each length, the first boundary that is at least as large. Then one
# `nonzero` per group.
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
# Run each group as a padded batch, and return the results in the order of the batch.
#
# **Must**
# - call `module(x, mask)` once per group that has a sequence, with `x` and `mask` as `pad_batch` makes them for that
#   group;
# - return the outputs in the order of the batch, so that gradients flow through them;
# - loop over groups only, never over sequences.
#
# **Points** 5 · **Core** · **Difficulty** ●●● · **Minutes** 30 · **Lines** 8
#
# **Convention** `module` returns a row per sequence; a row may have any shape.
#
# **Source** The package of part 1 handles samples one by one; you handle a whole group.
#
# <details><summary>Hint 1</summary>
#
# Where in `values` is token number p of sequence i, if it begins at `starts[i]`? Which p exist in a group?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `starts[members][:, None] + torch.arange(longest)` are the places in `values` of all cells of a group. At padding they
# point to the next sequence, or past the end of `values`: clamp them, then set those cells to 0 with the mask.
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
    ### BEGIN SOLUTION
    outputs = []
    for members in groups:
        own = lengths[members]
        column = torch.arange(int(own.max()), device=values.device)
        mask = column < own[:, None]
        place = (starts[members][:, None] + column).clamp(max=len(values) - 1)
        outputs.append(module(values[place].masked_fill(~mask, 0), mask))
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


def score_padded(model, values, lengths):
    """All sequences in one rectangle."""
    return model(*pad_now(values, lengths))


def score_grouped(model, values, lengths, thresholds=(1, 4, 16, 64)):
    """A rectangle per group."""
    return grouped_now(model, values, lengths, list(thresholds))


def score_sample_by_sample(model, values, lengths, thresholds=(1, 4, 16, 64)):
    """The same groups, with a Python loop over samples."""
    return grouping.grouped_sample_by_sample(model, values.split(lengths.tolist()), thresholds)


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
course.claim(
    "gradients of groups equal those of the padded batch", max(apart) < 1e-5, f"largest difference {max(apart):.1e}"
)

# %% [markdown]
# **Takeaway** If a module treats rows independently, groups change its outputs and gradients only by rounding.

# %% [markdown]
# ## How much faster are groups?
#
# You compare three ways to compute the same gradients: one rectangle, groups with a Python loop over samples, and your
# groups. The demo set has four lengths, so four groups leave no padding.
#
# **Predict** How much faster than with one rectangle is an epoch in groups, for the smallest embedding (64 at the scale
# `laptop`) and the largest (256)?

# %%
my_guess_for_small, my_guess_for_large = None, None  # times

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


timed = {}
for dim in size.emb_dims:
    model = TokenPool(sequences.VOCABULARY, dim, dim).to(device)
    calls = {name: functools.partial(epoch, score, model) for name, score in ways.items()}
    timed[dim] = compare(calls, device=device, seconds=20)
plots.speedups(timed, xlabel="embedding size")

# %% tags=["experiment"]
for dim, result in timed.items():
    print(f"embedding {dim}:\n{result}")
    print(reveal({size.emb_dims[0]: my_guess_for_small, size.emb_dims[-1]: my_guess_for_large}.get(dim)))
    course.claim(
        f"at embedding size {dim}, groups are faster than one rectangle", result.ratio("your groups"), above=1.0
    )
    course.claim(
        f"at embedding size {dim}, your groups are faster than a loop over samples",
        result.ratio("your groups", to="sample by sample"),
        above=1.0,
    )

# %% [markdown]
# Here your groups were 3.8 times as fast as one rectangle with the small embedding, and 11.5 times with the large one.
# A loop over samples, with the same groups, reached 1.3 and 4.1 times.
#
# **Takeaway** Groups save the padding, but a Python loop over samples makes them about three times slower.

# %% [markdown]
# ## How many groups are fastest?
#
# With many lengths you must choose thresholds. `thresholds_by_chance` draws some, moves one at a time as long as the
# number of cells falls, and keeps the best of several trials.
#
# Each further group removes padding and adds overhead. A simple model is time = a · groups + b · cells. The
# measurements at 4 and 64 groups determine a and b, and the rest of the curve is a prediction.
#
# **Predict** For 256 log-normal lengths, how many groups are fastest?

# %%
my_guess_of_groups = None

# %% tags=["experiment"]
drawn = sequences.load("lognormal", rows=size.rows_of_overhead)
flat, own, _ = (part.to(device) for part in sequences.collate([drawn[i] for i in range(len(drawn))]))
counts = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64]
limits = {count: grouping.thresholds_by_chance(own.cpu(), count, trials=3) for count in counts}
groups_now = course.solved(check.group_by_length)


def cells_of(lengths, thresholds):
    """Cells of all groups."""
    groups = [lengths[members] for members in groups_now(lengths, thresholds) if len(members)]
    return sum(len(group) * int(group.max()) for group in groups)


cells = {count: cells_of(own.cpu(), limits[count]) for count in counts}
model = TokenPool(sequences.VOCABULARY, size.overhead_dim, size.overhead_dim).to(device)


def in_groups(count):
    """A function that runs forward and backward in `count` groups."""
    return lambda: score_grouped(model, flat, own, limits[count]).sum().backward()


taken = compare({str(n): in_groups(n) for n in counts}, device=device, seconds=20)
seconds = {n: taken.time(str(n)).estimate for n in counts}
b = (64 * seconds[4] - 4 * seconds[64]) / (64 * cells[4] - 4 * cells[64])  # two equations for a and b
a = (seconds[4] - b * cells[4]) / 4
predicted = {count: a * count + b * cells[count] for count in counts}
plots.time_against_groups(seconds, predicted, fixed_by=(4, 64))

# %% tags=["experiment"]
fastest, foretold = min(seconds, key=seconds.get), min(predicted, key=predicted.get)
print(f"overhead {1e6 * a:.0f} µs per group, {1e9 * b:.0f} ns per cell")
alone = (seconds[1] - a) / cells[1]
print(f"one rectangle: {1e3 * seconds[1]:.1f} ms, predicted {1e3 * predicted[1]:.1f}; {1e9 * alone:.0f} ns per cell")
print(f"fastest by the model: {foretold} groups; measured: {fastest}" + reveal(my_guess_of_groups))
slower = seconds[foretold] / seconds[fastest]
course.claim("each group adds a fixed overhead", a > 0, f"{1e6 * a:.0f} µs", otherwise="Run the cell again.")
course.claim(
    "time falls, then rises with the number of groups",
    1 < fastest < 64,
    f"least at {fastest} groups",
    otherwise="Compare the two terms above, a · groups and b · cells.",
)
course.claim("the number of groups that the model predicts is nearly the fastest", slower < 1.3,
             f"{100 * (slower - 1):.0f} % slower",
             otherwise="Compare ns per cell of the rectangle with b.")  # fmt: skip
removed = (cells[1] - cells[4]) / (cells[1] - int(own.sum()))
course.claim("four groups remove most of the padding", removed > 0.75, f"{100 * removed:.0f} % of it")

# %% [markdown]
# Four groups were fastest; the model said six. For one rectangle it said 19.5 ms, and 14.6 ms were measured.
#
# **Takeaway** A few groups are enough, and two measurements tell you roughly how many.

# %% [markdown]
# ## How much do the best thresholds save? · extra
#
# Dynamic programming finds the best of all ways to cut.
#
# ### Exercise 3 · The best thresholds
#
# Sort the different lengths u₁ < … < uₘ. Let *group_cost(i, j)* be the cost of one group that takes uᵢ₊₁ to uⱼ. The
# best way to cut the first j lengths into g groups ends with such a group. The lengths before it must be cut into g − 1
# groups, also in the best way. Fill one row of the table of least costs, for j from 1 to m, from the row before.
#
# **Must**
# - set `least[j]` to the least cost of the first j lengths, in one group more than `before` allows;
# - set `choice[j]` to an i < j that reaches it: the last group takes `lengths[i]` to `lengths[j - 1]`.
#
# **Points** 5 · **Extra** · **Difficulty** ●●○ · **Minutes** 25 · **Lines** 3
#
# **Convention** group_cost(i, j) is `(upto[j] - upto[i]) * costs[j - 1]`.
#
# **Source** Bellman 1961, "On the approximation of curves by line segments using dynamic programming", CACM 4(6).
#
# <details><summary>Hint 1</summary>
#
# How many sequences have one of the lengths after the i-th, up to the j-th? `upto` answers with one subtraction.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# The last group costs group_cost(i, j), and the groups before it cost `before[i]`.
#
# </details>
#
# <details><summary>Hint 3</summary>
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
    lengths, upto = lengths.tolist(), [0, *counts.cumsum(0).tolist()]  # upto[j]: sequences of the first j lengths
    costs, m = [cost(length) for length in lengths], len(lengths)
    before, choices = [0.0] + [float("inf")] * m, []  # no groups: they can hold no length
    for _ in range(min(groups, m)):
        least, choice = [float("inf")] * (m + 1), [0] * (m + 1)
        ### BEGIN SOLUTION
        for j in range(1, m + 1):
            tried = ((before[i] + (upto[j] - upto[i]) * costs[j - 1], i) for i in range(j))
            least[j], choice[j] = min(tried)
        ### END SOLUTION
        before = least
        choices.append(choice)
    thresholds, j = [], m
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

# %% [markdown]
# **Predict** For four groups of 20,000 lengths, how many per cent above the least number of cells is one random trial?

# %%
my_guess_of_miss = None  # per cent

# %% tags=["experiment"]
many = sequences.lognormal_lengths(size.lengths, torch.Generator().manual_seed(1), mean=4.0, std=1.0, longest=1024)
searches = {f"random × {trials}": functools.partial(grouping.thresholds_by_chance, many, 4, trials)
            for trials in size.trials}  # fmt: skip
searches["exact"] = functools.partial(course.solved(check.best_thresholds), many, 4)
cells_by = {name: cells_of(many, search()) for name, search in searches.items()}
searched = compare(searches, fewest_rounds=7, seconds=5)
search_seconds = {name: searched.time(name).estimate for name in searches}
missed = {name: 100 * (found / cells_by["exact"] - 1) for name, found in cells_by.items()}
course.claim("one random trial misses the least number of cells by less than 5 %", missed["random × 1"] < 5,
             f"{missed['random × 1']:.2f} %" + reveal(my_guess_of_miss, "{} %"),
             otherwise="Try more trials: what does the best of ten miss?")  # fmt: skip
by_chance = [miss for name, miss in missed.items() if name.startswith("random")]
course.claim("no random search finds fewer cells than the exact one", min(by_chance) > -1e-9,
             f"{min(by_chance):.2f} to {max(by_chance):.2f} % more")  # fmt: skip
plots.search_results({name: (search_seconds[name], missed[name]) for name in searches})

# %% [markdown]
# One trial missed by 1.18 %, the best of a hundred by 0.24 %. The exact search took less time than a hundred trials.
#
# **Takeaway** Thresholds from one random trial are good enough here: the exact ones save about 1 % of the cells.

# %% [markdown]
# ## What if samples have two lengths? · extra
#
# ### Exercise 4 · Two ragged dimensions
#
# Grids of different height and width are padded to the greatest height and width in the batch. Write the mask.
#
# **Must** return the mask (n, greatest height, greatest width): True at cells within the height *and* the width of
# their grid.
#
# **Points** 2 · **Extra** · **Difficulty** ●○○ · **Minutes** 8 · **Lines** 3
#
# **Source** A published mask combined the two lengths by `any`.
#
# <details><summary>Hint 1</summary>
#
# A grid of height 2 and width 3 is padded to 4 by 4. Is the cell at height 1, width 4 real?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Make two masks, (n, height) and (n, width), as in `pad_batch`; combine them by `&` after `[:, :, None]` and
# `[:, None, :]`.
#
# </details>


# %% solution="pair_mask"
def pair_mask(heights, widths):
    """Where a padded batch of grids has cells that exist.

    Args:
        heights: int64 tensor (n,), height per grid.
        widths: int64 tensor (n,), width per grid.

    Returns: bool tensor (n, largest height, largest width), on the device of `heights`.
    """
    ### BEGIN SOLUTION
    in_height = torch.arange(int(heights.max()), device=heights.device) < heights[:, None]
    in_width = torch.arange(int(widths.max()), device=heights.device) < widths[:, None]
    return in_height[:, :, None] & in_width[:, None, :]
    ### END SOLUTION


# %% test="pair_mask-visible" points=1
check.pair_mask(pair_mask)

# %% test="pair_mask-hidden" points=1
### BEGIN HIDDEN TESTS
check.pair_mask(pair_mask, seed=2)
### END HIDDEN TESTS

# %% [markdown]
# **Predict** Grids with heights and widths from 1 to 16 are padded to 16 by 16. Somebody combines the two masks by
# `any` and takes the mean of each grid under the result. By how many per cent is it off?

# %%
my_guess_of_error = None

# %% tags=["experiment"]
rng = torch.Generator().manual_seed(2)
heights, widths = (torch.randint(1, 17, (256,), generator=rng).to(device) for _ in range(2))
both = course.solved(check.pair_mask)(heights, widths)
lines, columns = both.any(2, keepdim=True), both.any(1, keepdim=True)
either = lines | columns
ones = both.float()  # grids of ones, padded with 0: the mean of each is 1
error = {}
for name, mask in (("all", both), ("any", either)):
    means = (ones * mask).sum((1, 2)) / mask.sum((1, 2))
    error[name] = 100 * (means - 1).abs().mean().item()
    print(f"{name}: {int(mask.sum()):>6,} cells True, mean error of a grid's mean {error[name]:.1f} %")
course.claim("padding changes the mean of a grid if its mask combines with any", error["any"] > 1,
             f"{error['any']:.0f} % off on average" + reveal(my_guess_of_error, "{} %"))  # fmt: skip
course.claim(
    "padding does not change the mean of a grid if its mask combines with all",
    error["all"] < 1e-3,
    f"{error['all']:.1g} % off",
)

# %% [markdown]
# `any` also marks the padding to the right of a grid and below it, and nothing raises an error.
#
# **Takeaway** Compare a padded batch with single samples: that shows a wrong mask.

# %% [markdown]
# ## And if a module returns a value per token? · extra
#
# Tagging and language models do. You put each output back at the place of its token.


# %% tags=["experiment"]
def run_grouped_per_token(module, values, lengths, thresholds):
    """Outputs (total, ...) of `module` for all tokens, in the order of `values`."""
    starts, outputs, places = lengths.cumsum(0) - lengths, [], []
    for members in filter(len, groups_now(lengths, thresholds)):
        column = torch.arange(int(lengths[members].max()), device=values.device)
        mask = column < lengths[members][:, None]
        cells = (starts[members][:, None] + column).clamp(max=len(values) - 1)
        outputs.append(module(values[cells].masked_fill(~mask, 0), mask)[mask])
        places.append(cells[mask])
    outputs = torch.cat(outputs)
    return torch.empty_like(outputs).index_copy(0, torch.cat(places), outputs)


model = TokenPool(sequences.VOCABULARY, 64, 64).to(device)
per_token = run_grouped_per_token(lambda x, mask: model.features(x), values, lengths, [1, 4, 16, 64])
off = (per_token - model.features(values)).abs().max().item()
course.claim("outputs per token in groups equal those without groups", off < 1e-5, f"largest difference {off:.1e}")

# %% [markdown]
# **Takeaway** Groups work for outputs per sequence and per token alike.
#
# Part 3 chooses which sequences form a batch in the first place.
