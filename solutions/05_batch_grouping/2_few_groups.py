# %% [markdown]
# # Batch grouping, part 2: Remove most of the waste with a few groups
#
# **How few groups remove the padding, and which ones?**
#
# The batch stays as it is: same sequences, same order, same loss, same gradients. Only the computation is split into a
# few padded rectangles, one per range of lengths. You write the grouping without a loop over sequences, find the best
# thresholds by dynamic programming, and predict how many groups are worth their overhead.
#
# As in part 1, a *cell* is a place in a padded rectangle, and the *waste* is the number of cells per token.
#
# **You will be able to**
#
# - run a model of padded batches in groups with the same outputs and gradients, if it treats rows independently;
# - find the best thresholds for a data set and a cost function, exactly and fast;
# - predict how many groups are fastest on your machine.
#
# **Minutes** 44 core · 150 in all
#
# **Needs** `pad_batch` and `padded_forward` of part 1 are taken over if you solved them


# %% locked="setup"
import functools
import statistics
import time

import torch
from torch import nn

import course
from course.checks import batch_grouping as check
from course.datasets import sequences
from course.learner.predictions import reveal
from course.plots import batch_grouping as plots
from course.training import grouping
from course.training.token_models import TokenPool

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
# **Sequences of similar length share a rectangle; the results go back to the order of the batch.**

# %% tags=["experiment"]
some = demo.lengths[:24]
groups = [some[some == n] for n in some.unique()]
plots.padding_cells({"one rectangle": some, "a rectangle per length": groups})

# %% [markdown]
# ### Exercise 1 · Assign sequences to groups
#
# Assign the sequences of a batch to groups by thresholds.
#
# **Must**
# - put a sequence into the first group whose threshold is at least its length;
# - return one int64 tensor per threshold with the indices of its sequences, in the order of the batch; it may be empty.
#
# **You may assume** valid input: the given line refuses an empty batch, a length of 0, and thresholds that do not
# ascend or end below the longest length.
#
# **Points** 2 · **Core** · **Difficulty** ●○○ · **Minutes** 6 · **Lines** 2
#
# **Convention** A threshold is the longest length that its group takes: [4, 16] makes groups of 1 to 4 and 5 to 16.
#
# **Source** `LengthThresholdGrouper` of asym.
#
# <details><summary>Hint 1</summary>
#
# Which torch function finds for many numbers at once between which sorted boundaries they lie?
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
    grouping.check_thresholds(lengths, thresholds)  # refuses what does not fit
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
# **Predict**: the demo set has four lengths. With one group per length, how many times as fast is an epoch of training
# with the smallest embedding of the experiment below (64 at the scale `laptop`), and with the largest (256)?

# %%
my_guess_for_small, my_guess_for_large = None, None

# %% [markdown]
# ### Exercise 2 · Run a module in groups
#
# Run each group as a padded batch of its own, and return the results in the order of the batch.
#
# **Must**
# - call `module(x, mask)` once per group that has a sequence, with `x` and `mask` like those of `pad_batch`, as wide as
#   the group's *own* longest sequence;
# - return the outputs in the order of the batch, so that gradients flow through them;
# - loop over groups only: no loop, comprehension or `split` over sequences.
#
# **You may assume** that `module` returns a tensor with a row per sequence, of any further shape.
#
# **Points** 5 · **Core** · **Difficulty** ●●● · **Minutes** 30 · **Lines** 8
#
# **Convention** Groups as in exercise 1; padding is 0.
#
# **Source** asym's `DataCollection.group`, `apply` and `regroup`, which loop over samples.
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
# point to the next sequence, or behind the end of `values`: clamp them, then set those cells to 0 with the mask.
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
forward_now = course.solved(check.padded_forward)


def score_padded(model, values, lengths):
    """All sequences in one rectangle."""
    return forward_now(model, *pad_now(values, lengths))


def score_grouped(model, values, lengths, thresholds=(1, 4, 16, 64)):
    """A rectangle per group."""
    return grouped_now(lambda x, mask: forward_now(model, x, mask), values, lengths, list(thresholds))


def score_sample_by_sample(model, values, lengths, thresholds=(1, 4, 16, 64)):
    """The same groups, with a Python loop over samples."""
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
course.claim(
    "gradients of groups equal those of the padded batch", max(apart) < 1e-5, f"largest difference {max(apart):.1e}"
)

# %% [markdown]
# ### Measure the speed-up
#
# Three ways to the same gradients, timed in turns: one rectangle, groups with a loop over samples (our reconstruction
# of asym), and your groups.

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
    print(f"embedding {dim:>5}: " + ", ".join(f"{name} {ratio:.1f} times as fast" for name, ratio in ratios.items())
          + reveal({size.emb_dims[0]: my_guess_for_small, size.emb_dims[-1]: my_guess_for_large}.get(dim)))  # fmt: skip
    looped, ours = ratios["sample by sample"], ratios["your groups"]
    course.claim(f"at {dim}, groups are faster than one rectangle", ours > 1, f"{ours:.1f} times")
    course.claim(f"at {dim}, your groups are faster than a loop over samples", ours > looped,
                 f"{ours:.1f} against {looped:.1f} times")  # fmt: skip

# %% [markdown]
# With one group per length there is no padding left, so the arithmetic shrinks by the waste that part 1 computed. How
# much of that is gained depends on the embedding: starting the operations of a group takes a fixed time, which counts
# less the longer they take. A loop over samples takes such a time for each sample. The black lines in the figure run
# from the lowest to the highest ratio of a round.
#
# Where groups are not faster, your device computes the whole rectangle in less time than it takes to start four groups.
# Where the loop over samples is as fast, arithmetic takes nearly all of the time.

# %% [markdown]
# ## Which thresholds?
#
# **The thresholds of least cost can be computed exactly; a random search is not needed.**

# %% [markdown]
# ### Exercise 3 · The cost of a grouping
#
# Compute the number that good thresholds make small: every sequence is padded to its group's longest.
#
# **Must** return the sum of (sequences in the group) × `cost`(longest length in the group) over all groups that have a
# sequence.
#
# **You may assume** thresholds as in exercise 1, so a group may be empty.
#
# **Points** 2 · **Extra** · **Difficulty** ●○○ · **Minutes** 8 · **Lines** 2
#
# **Convention** `cost` takes a length (int) and returns a number; by default the length itself, so that the sum is the
# number of cells.
#
# **Source** `cost_fn` as in asym's `find_thresholds`; the sum is ours, asym equalises the costs of the groups.
#
# <details><summary>Hint 1</summary>
#
# Which exercise gives you the groups? What is the cost of a group without a sequence?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Sum `len(members) * cost(int(lengths[members].max()))` over the groups that have a sequence.
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
    groups = [lengths[members] for members in group_by_length(lengths, thresholds) if len(members)]
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
# Sort the different lengths u₁ < … < uₘ. Some best grouping of the first j of them into g groups has a last group from
# uᵢ₊₁ to uⱼ. What lies before it is then a best grouping of the first i lengths into g − 1 groups. So a table of least
# costs over g and j can be filled line by line, each line from the one before.

# %% [markdown]
# ### Exercise 4 · The best thresholds
#
# Fill one line of that table, for each j from 1 to m.
#
# **Must**
# - set `least[j]` to the least cost of the first j lengths, in one group more than `before` allows;
# - set `choice[j]` to an i < j that reaches it: the last group takes `lengths[i]` to `lengths[j - 1]`.
#
# **You may assume** that `cost` does not fall with the length.
#
# **Points** 5 · **Extra** · **Difficulty** ●●○ · **Minutes** 25 · **Lines** 3
#
# **Convention** Cost as in exercise 3; `costs[j - 1]` belongs to `lengths[j - 1]`. Fewer lengths than groups
# cost infinity. Trying all i < j is fine.
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
# The last group costs `(upto[j] - upto[i]) * costs[j - 1]`; what lies before it costs `before[i]`.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# `least[j], choice[j] = min((before[i] + ..., i) for i in range(j))` finds both at once.
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
    grouping.check_lengths(lengths, groups=groups)  # refuses no lengths, a length of 0, no groups
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
# ### Most candidates need not be tried
#
# Write w(i, j) for the cost of a group of the lengths after the i-th, up to the j-th. It obeys the quadrangle
# inequality: w(i, j) + w(i′, j′) ≤ w(i, j′) + w(i′, j) for i ≤ i′ < j ≤ j′. Then the best i never falls when j grows.
# So solve the middle j of a range first: its i is the largest that the left half needs to try, and the smallest for the
# right half.

# %% [markdown]
# ### Exercise 5 · The same in m log m
#
# Cut items 0 … m − 1 into runs of least total weight: fill a range of the table's line by halving it.
#
# **Must**
# - let `fill(low, high, first, last)` set `least[j]` and `choice[j]` for low ≤ j ≤ high, given that the best i < j has
#   first ≤ i ≤ last;
# - call `weight(i, j)`, the weight of items i … j − 1, at most groups · m · (log₂ m + 2) times in all.
#
# **You may assume** 1 ≤ groups ≤ m and the quadrangle inequality.
#
# **Points** 5 · **Extra** · **Difficulty** ●●● · **Minutes** 25 · **Lines** 6
#
# **Convention** A run has at least one item; `last` may be j or more.
#
# **Source** Galil and Park 1992, "Dynamic programming with convexity, concavity and sparsity", a survey.
#
# <details><summary>Hint 1</summary>
#
# When is there nothing to fill? For which j of the range do you try every i that is allowed?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Try i from `first` to `min(last, middle - 1)` for the middle j. Then the left half needs i up to `choice[middle]`, the
# right half i from there on.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# `fill` calls itself twice, for `low … middle − 1` and for `middle + 1 … high`, each with one of the two bounds moved.
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

    def next_line(before, group):
        """Least weights of the first j items in `group` runs, and the best i for each j, from the line before."""
        least, choice = [float("inf")] * (m + 1), [0] * (m + 1)

        def fill(low, high, first, last):
            """Set least[j] and choice[j] for low <= j <= high; their best i lies in first ... last."""
            ### BEGIN SOLUTION
            if low > high:
                return
            j = (low + high) // 2
            least[j], choice[j] = min((before[i] + weight(i, j), i) for i in range(first, min(last, j - 1) + 1))
            fill(low, j - 1, first, choice[j])
            fill(j + 1, high, choice[j], last)
            ### END SOLUTION

        fill(group, m, group - 1, m - 1)
        return least, choice

    least, choices = [0.0] + [weight(0, j) for j in range(1, m + 1)], []
    for group in range(2, groups + 1):
        least, choice = next_line(least, group)
        choices.append(choice)
    cuts = [m]
    for choice in reversed(choices):
        cuts.append(choice[cuts[-1]])
    return cuts[::-1]


# %% test="best_cuts-visible" points=3
check.best_cuts(best_cuts)

# %% test="best_cuts-hidden" points=2
### BEGIN HIDDEN TESTS
check.best_cuts(best_cuts, seed=1992)
### END HIDDEN TESTS

# %% [markdown]
# ### Exact against random search
#
# A random search draws thresholds at random and moves them, one length at a time, as long as that lowers the cost. The
# best of several trials counts.
#
# **Predict**: for four groups of some ten thousand lengths, by how many per cent does the random search miss the least
# cost with one trial? How many times as long as the exact search do its most trials (printed below) take?

# %%
my_guess_of_miss, my_guess_of_time = None, None

# %% tags=["experiment"]
cost_now, best_now = course.solved(check.grouping_cost), course.solved(check.best_thresholds)
cuts_now = course.solved(check.best_cuts)
rng = torch.Generator().manual_seed(1)
many = sequences.lognormal_lengths(size.lengths, rng, mean=4.0, std=1.0, longest=1024)


def exact_and_fast(lengths, groups):
    """Best thresholds by `best_cuts`."""
    occurring, counts = lengths.unique(return_counts=True)
    occurring, upto = occurring.tolist(), [0, *counts.cumsum(0).tolist()]
    cuts = cuts_now(len(occurring), groups, lambda i, j: (upto[j] - upto[i]) * occurring[j - 1])
    return [occurring[cut - 1] for cut in cuts]


searches = {
    f"random search × {trials}": functools.partial(grouping.thresholds_by_chance, many, 4, trials)
    for trials in size.trials
}
searches |= {"exact": lambda: best_now(many, 4), "exact, m log m": lambda: exact_and_fast(many, 4)}
found = {name: search() for name, search in searches.items()}
search_seconds = take_turns(searches, 1)
least = cost_now(many, found["exact"])
missed = {name: 100 * (cost_now(many, thresholds) / least - 1) for name, thresholds in found.items()}
for name, thresholds in found.items():
    ms = 1000 * search_seconds[name][0]
    print(f"{name:<25} {str(thresholds):<22} {missed[name]:5.2f} % above the least cost {ms:9.1f} ms")
plots.search_results({name: (search_seconds[name][0], missed[name]) for name in found})

# %% tags=["experiment"]
longest_search = search_seconds[f"random search × {size.trials[-1]}"][0] / search_seconds["exact, m log m"][0]
halving = search_seconds["exact"][0] / search_seconds["exact, m log m"][0]
by_chance = [miss for name, miss in missed.items() if name.startswith("random")]
course.claim("no random search finds a lower cost than the exact one", min(by_chance) > -1e-9,
             f"{min(by_chance):.2f} to {by_chance[0]:.2f} % above it" + reveal(my_guess_of_miss, "{} %"))  # fmt: skip
course.claim("both exact searches find the same cost", abs(missed["exact, m log m"]) < 1e-9,
             f"{missed['exact, m log m']:.2f} % apart")  # fmt: skip
otherwise = "There are only a few different lengths."
course.claim(
    "halving ranges is faster than trying every i", halving > 1, f"{halving:.0f} times as fast", otherwise=otherwise
)
course.claim(f"{size.trials[-1]} random trials take longer than the exact search", longest_search > 1,
             f"{longest_search:.0f} times as long" + reveal(my_guess_of_time, "{} times"),
             otherwise=otherwise)  # fmt: skip

# %% tags=["experiment"]
few = many[:24]
cut = [few[members] for members in course.solved(check.group_by_length)(few, best_now(few, 4)) if len(members)]
plots.padding_cells({"one rectangle": few, "four groups, best thresholds": cut})

# %% [markdown]
# Enough random trials come close to the least cost, or reach it. The exact search adds certainty in less time, and
# needs no number of trials. asym's own search equalises the costs of neighbouring groups instead of minimising their
# sum: `course bench grouping thresholds` runs it beside these (docs/results.md).

# %% [markdown]
# ## How many groups?
#
# **Each further group removes padding and adds overhead, so there is a best number of groups.**
#
# Model: time = a · groups + b · cells. The measurements at 4 and 64 groups determine a and b; the rest of the curve is
# a prediction.
#
# **Predict**: for log-normal lengths, how many groups are fastest?

# %%
my_guess_of_groups = None

# %% tags=["experiment"]
drawn = sequences.load("lognormal", rows=size.rows_of_overhead)
flat, own, _ = (part.to(device) for part in sequences.collate([drawn[i] for i in range(len(drawn))]))
counts = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64]
limits = {count: best_now(own.cpu(), count) for count in counts}
cells = {count: cost_now(own.cpu(), limits[count]) for count in counts}
model = TokenPool(sequences.VOCABULARY, size.overhead_dim, size.overhead_dim).to(device)


def in_groups(count):
    """A function that runs forward and backward in `count` groups."""
    return lambda: score_grouped(model, flat, own, limits[count]).sum().backward()


taken = take_turns({n: in_groups(n) for n in counts}, 4 * size.rounds)
seconds = {count: statistics.median(found) for count, found in taken.items()}
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
course.claim("each group adds a fixed overhead", a > 0, f"{1e6 * a:.0f} µs")
course.claim("time falls, then rises with the number of groups", 1 < fastest < 64, f"least at {fastest} groups")
course.claim("the number of groups that the model predicts is nearly the fastest", slower < 1.3,
             f"{100 * (slower - 1):.0f} % slower")  # fmt: skip
removed = (cells[1] - cells[4]) / (cells[1] - int(own.sum()))
course.claim("four groups remove most of the padding", removed > 0.75, f"{100 * removed:.0f} % of it")

# %% [markdown]
# The first thresholds remove the most padding; later ones remove little and still add their overhead. The prediction is
# exact at 4 and at 64 groups, which fix it, and rougher far from them. Compare the ns per cell: if one rectangle takes
# fewer than the fit, large rectangles use your machine better than small ones, and the dashed curve runs above the
# point of one group. Where the predicted number of groups is not nearly the fastest, this matters for the choice, too.
# Where time does not fall and rise, one of the two terms is negligible at this size.

# %% [markdown]
# ## Two lengths per sample
#
# **With two ragged dimensions, a cell is real only if it is within both lengths.**
#
# ### Exercise 6 · Two ragged dimensions
#
# Grids of different height and width are padded to the largest of each. The published package calls a cell real if
# *any* of its dimensions is within its length. Write the right mask.
#
# **Must** return the mask (n, largest height, largest width): True at cells within the height and the width of their
# grid.
#
# **Points** 2 · **Extra** · **Difficulty** ●○○ · **Minutes** 8 · **Lines** 3
#
# **Convention** The mask is bool.
#
# **Source** The bug: `data_collection.py` of asym combines the masks of two lengths by `torch.any`.
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
# **Predict**: 256 grids with heights and widths from 1 to 16 are padded to 16 by 16. A mean over the cells that the
# mask calls real should be the mean of the grid. By how many per cent is it off with `any`?

# %%
my_guess_of_error = None

# %% tags=["experiment"]
rng = torch.Generator().manual_seed(2)
heights, widths = (torch.randint(1, 17, (256,), generator=rng).to(device) for _ in range(2))
both = course.solved(check.pair_mask)(heights, widths)
lines, columns = both.any(2, keepdim=True), both.any(1, keepdim=True)
either = lines | columns  # what the published package computes
ones = both.float()  # grids of ones, padded with 0: the mean of each is 1
error = {}
for name, mask in (("all", both), ("any", either)):
    means = (ones * mask).sum((1, 2)) / mask.sum((1, 2))
    error[name] = 100 * (means - 1).abs().mean().item()
    print(f"{name}: {int(mask.sum()):>6,} cells called real, mean error of a grid's mean {error[name]:.1f} %")
course.claim("padding changes the mean of a grid if its mask combines with any", error["any"] > 1,
             f"{error['any']:.0f} % off on average" + reveal(my_guess_of_error, "{} %"))  # fmt: skip
course.claim(
    "padding does not change the mean of a grid if its mask combines with all",
    error["all"] < 1e-3,
    f"{error['all']:.1g} % off",
)

# %% [markdown]
# `any` calls the whole rows of a grid's height and the whole columns of its width real, padding included. No error is
# raised, so only a test against single grids shows it. Another fault of the same package, from reading its code:
# `keys_converted(..., reversed=True)` passes the flag itself where the mapping belongs.

# %% [markdown]
# ## Any module, by its shapes
#
# **A module that treats rows independently can run in groups without knowing it.**
#
# ### Exercise 7 · A wrapper for any module
#
# Write the forward of a wrapper that pads, masks and groups for a module that knows padded batches only.
#
# **Must** run the module once per group that has a sequence, and return
# - for `outputs` "(b)" or "(b, d)": a row per sequence, in the order of the batch;
# - for `outputs` "(b, l_seq)" or "(b, l_seq, d)": the outputs of the tokens only, flat, in the order of `values`.
#
# **You may assume** that the shapes fit. `inputs` is "(b, l_seq)" for `values` (total,), "(b, l_seq, d)" for
# `values` (total, d).
#
# **Points** 5 · **Extra** · **Difficulty** ●●● · **Minutes** 25 · **Lines** 14
#
# **Convention** Groups as in exercise 2, and gradients flow as there; all features of padding are 0.
#
# **Source** asym's `AnnotatedModule` and its shape strings.
#
# <details><summary>Hint 1</summary>
#
# What of exercise 2 changes if a value per token comes back? Where in `values` is the token of each cell?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `place[mask]` are the places in `values` of all tokens of a group; `output[mask]` are their outputs, in the same
# order.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# With features, `x = values[place]` has one dimension more than the mask: `x[~mask] = 0` works for both. To put outputs
# back, concatenate outputs and indices, then `index_copy` or `argsort` as before.
#
# </details>


# %% solution="Annotated"
class Annotated(nn.Module):
    """A module of padded batches that runs in groups of similar length.

    Args:
        module: called with (x, mask).
        inputs: shape of x, e.g. "(b, l_seq)".
        outputs: shape of what it returns, e.g. "(b)" or "(b, l_seq)".
    """

    def __init__(self, module, inputs, outputs):
        super().__init__()
        self.module = module
        self.per_token = grouping.check_shapes(inputs, outputs)  # True if the output has the length l_...

    def forward(self, values, lengths, thresholds):
        """Outputs per sequence, in the order of the batch, or per token, in the order of `values`."""
        groups = [members for members in group_by_length(lengths, thresholds) if len(members)]
        starts = lengths.cumsum(0) - lengths
        ### BEGIN SOLUTION
        outputs, places = [], []
        for members in groups:
            column = torch.arange(int(lengths[members].max()), device=values.device)
            mask = column < lengths[members][:, None]
            place = (starts[members][:, None] + column).clamp(max=len(values) - 1)
            x = values[place]
            x[~mask] = 0
            output = self.module(x, mask)
            outputs.append(output[mask] if self.per_token else output)
            places.append(place[mask] if self.per_token else members)
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
    """The padded model as a module of (x, mask), as in the demonstration."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x, mask):
        return forward_now(self.model, x, mask)


model = TokenPool(sequences.VOCABULARY, 64, 64).to(device)
wrapped = annotated_now(Pool(model), "(b, l_seq)", "(b)")
off = (wrapped(values, lengths, [1, 4, 16, 64]) - score_padded(model, values, lengths)).abs().max().item()
course.claim("the annotated module returns the scores of the padded one", off < 1e-5, f"largest difference {off:.1e}")

# %% [markdown]
# ## What to take with you
#
# - If a module treats rows independently, groups change time and memory, not outputs and gradients.
# - A Python loop over samples can take longer than the padding that it removes.
# - The thresholds of least cost are computed exactly from the different lengths.
# - A few groups remove most of the padding; the overhead per group limits how many are useful.
# - A cell of two ragged dimensions is real if it is within all of its lengths, not any.
#
# Part 3 chooses which sequences form a batch in the first place.
