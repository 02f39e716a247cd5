# %% [markdown]
# # Batch grouping, part 1: See what padding costs
#
# **How much of your batches is padding, and what does it cost?**
#
# Sentences, purchase histories, protein chains and sensor logs vary in length. A tensor is a rectangle, so you pad
# each sequence to the longest one in its batch. The model then computes on the padding, too. Before you remove
# padding, find out how much you have and what it costs.
#
# Where a section asks for a prediction, replace `None` in its cell before you measure. Later cells use your answer
# once its check passes. Until then they use the reference solution, if your copy of the course includes it.
#
# **You will be able to**
#
# - compute how much padding your own data will need, before you train on it;
# - measure what padding costs a model in memory and time;
# - check that a training changes every parameter that it should (extra).
#
# **Minutes** 33 core · 46 in all
#
# **Needs** nothing


# %% locked="setup"
from functools import partial

import torch

import course
from course.checks import batch_grouping as check
from course.datasets import sequences
from course.measure.comparison import compare
from course.plots import batch_grouping as plots
from course.training import grouping
from course.training.recommender_loop import keep_freed_memory
from course.training.token_models import TokenAttention, TokenPool, attention_written_out

# or the large tensors of the rectangle come from new memory pages in every step
keep_freed_memory()
print(course.machine())
size = course.sizes("05_batch_grouping")
device = course.device()

# %% [markdown]
# ## How much of your batches is padding?
#
# You can compute your padding from the lengths of your sequences, before you choose a model. Start with your own
# lengths: pass a list, or a text file with one length per line. If you have none now, leave `None` and work with
# `demo`.

# %%
my_lengths = None  # [12, 5, 230, ...] or "lengths.txt"

# %% [markdown]
# - `demo` has sequences of 1, 4, 16 and 64 tokens. Longer ones are rarer.
# - `lognormal` has lengths whose logarithm is normally distributed, cut at 256 tokens.
# - `text` has lengths of the same distribution with a larger mean, also cut at 256 tokens. Part 3 trains on such
#   texts.
# - `histories` holds the films that each MovieLens user rated. Without MovieLens, the histories are invented, with
#   similar lengths.
#
# (`demo`, our small model and the idea of this unit come from [asym](https://github.com/daeseoklee/asym), an open
# package with a clear demonstration. We thank its author.)

# %%
sets = {}
if my_lengths is not None:
    sets["mine"] = sequences.from_lengths("mine", my_lengths)
for name in sequences.NAMES:
    sets[name] = sequences.load(name)
for name, data in sets.items():
    print(f"{name:<10} {data.summary()}")
first = next(iter(sets))

# %% tags=["experiment"]
some = sets[first].lengths[:24]
plots.padding_cells({"before padding": list(some.split(1)), "padded": some})

# %% [markdown]
# A *cell* is a position in the padded rectangle, and a *token* is a cell that holds data. The *waste* of a batch is
# its number of cells per token. A waste of 1 means no padding, and a waste of 4 means that three of four cells are
# padding.
#
# **Predict** A cell above printed your sets. Cut the first one into batches of 256, unsorted. How much waste do these
# batches have? Is it the longest length divided by the mean length? Or less, because few batches hold a sequence of
# the longest length?

# %%
predicted_waste = None  # cells per token, e.g. 3.0

# %% [markdown]
# ### Exercise 1 · Pad a batch
#
# Build the rectangle from a flat batch, which is the tokens of all sequences in a row and the length of each sequence.
# An assignment to `x[mask]` fills the True places row by row.
#
# ```python
# >>> x, mask = pad_batch(torch.tensor([5, 3, 7]), torch.tensor([1, 2]))
# >>> x.tolist(), mask.tolist()
# ([[5, 0], [3, 7]], [[True, False], [True, True]])
# ```
#
# **Must**
# - return `(x, mask)`, with a row per sequence and a column per token of the longest sequence;
# - put the tokens at the left of their row and zeros after them, and make the bool `mask` True at tokens only;
# - use no loop over sequences, `split` or `pad_sequence`.
#
# **Points** 3 · **Core** · **Difficulty** ●●○ · **Minutes** 12 · **Lines** 4
#
# **Convention** Token 0 exists, so only the mask tells it from padding.
#
# **Source** The usual collate function for sequences, without its loop over samples.
#
# <details><summary>Hint 1</summary>
#
# Sequence 3 has 5 tokens. Which columns of row 3 hold them? Can you write that as a comparison?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `torch.arange(longest) < lengths[:, None]` is the mask. Its True places, read row by row, are in the same order as
# the flat tokens.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# Make `x` of zeros with the mask's shape and the tokens' dtype and device, then assign `x[mask] = values`. If torch
# reports a shape mismatch there, the mask does not have as many True places as there are tokens.
#
# </details>


# %% solution="pad_batch"
def pad_batch(values, lengths):
    """Flat sequences as a padded rectangle.

    Args:
        values: int64 tensor (total,), the tokens of all sequences, one sequence after the other.
        lengths: int64 tensor (n,), tokens per sequence; their sum is total.

    Returns: (x, mask): x like `values` and mask bool, both (n, longest), on the device of `values`.
    """
    grouping.check_lengths(lengths)
    ### BEGIN SOLUTION
    mask = torch.arange(int(lengths.max()), device=values.device) < lengths[:, None]
    x = torch.zeros(mask.shape, dtype=values.dtype, device=values.device)
    x[mask] = values
    return x, mask
    ### END SOLUTION


# %% test="pad_batch-visible" points=2
check.pad_batch(pad_batch)

# %% test="pad_batch-hidden" points=1
### BEGIN HIDDEN TESTS
check.pad_batch(pad_batch, seed=613)
### END HIDDEN TESTS

# %% [markdown]
# ### Exercise 2 · The waste of an epoch
#
# Compute the waste of an epoch from the lengths alone.
#
# ```python
# >>> padding_waste(torch.tensor([1, 3, 2]), batch_size=2)  # (2 × 3 + 1 × 2) / 6
# 1.3333333333333333
# ```
#
# **Must**
# - cut the epoch into batches of `batch_size` in the given order (the last may be smaller);
# - pad each batch to its own longest sequence;
# - return the cells of all batches, divided by all tokens, as a Python float.
#
# **Points** 2 · **Core** · **Difficulty** ●○○ · **Minutes** 7 · **Lines** 3
#
# **Source** Krell et al. 2021, arXiv:2107.02027: up to 50 % padding in common text data, a waste of 2.0.
#
# <details><summary>Hint 1</summary>
#
# How many cells does one batch have? Which two numbers of the batch do you need?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `lengths[order].split(batch_size)` gives the batches. A batch has rows × longest length cells.
#
# </details>


# %% solution="padding_waste"
def padding_waste(lengths, batch_size, order=None):
    """Cells per token over an epoch of padded batches.

    Args:
        lengths: int64 tensor (n,), tokens per sequence.
        batch_size: sequences per batch.
        order: int64 tensor (n,), which sequence comes when (default: the order of the set).

    Returns: a Python float, at least 1.
    """
    grouping.check_lengths(lengths, batch_size=batch_size)
    ### BEGIN SOLUTION
    ordered = lengths if order is None else lengths[order]
    cells = sum(len(batch) * int(batch.max()) for batch in ordered.split(batch_size))
    return cells / int(lengths.sum())
    ### END SOLUTION


# %% test="padding_waste-visible" points=1
check.padding_waste(padding_waste)

# %% test="padding_waste-hidden" points=1
### BEGIN HIDDEN TESTS
check.padding_waste(padding_waste, seed=271)
### END HIDDEN TESTS

# %% tags=["experiment"]
waste_now = course.solved(check.padding_waste)
wasted = waste_now(sets[first].lengths, 256)
print(f"{first}, batches of 256: {1 - 1 / wasted:.0%} of the cells are padding")
print(f"longest / mean length: {sets[first].longest_over_mean():.1f}")
what = "cells per token in batches of 256"
print(course.score("05/1", what, predicted_waste, wasted, form="{:.1f}"))

# %% [markdown]
# If every batch holds a sequence of the longest length, the waste is exactly the longest length divided by the mean
# length.
#
# **Takeaway** Lengths and batch size tell you the waste, before you train.

# %% [markdown]
# ## Does a larger batch waste more?
#
# Large batches can keep a processor busier. But a larger batch may also have a longer longest sequence.

# %% tags=["experiment"]
batch_sizes = [2**k for k in range(11)]
curves = {}  # cells per token at each batch size
for name, data in sets.items():
    curves[name] = [waste_now(data.lengths, batch_size) for batch_size in batch_sizes]
plots.waste_against_batch(batch_sizes, curves)

# %% tags=["experiment"]
for name, data in sets.items():
    print(f"{name:<10} longest / mean length: {data.longest_over_mean():.1f}")

# %% [markdown]
# A batch is as wide as its longest sequence, and a larger batch more often holds a long one. No row is wider than the
# longest sequence of the set, so the waste is at most longest / mean length. Truncating the longest sequences lowers
# this bound, but loses their last tokens.
#
# **Takeaway** Larger batches waste more, up to longest / mean length.

# %% [markdown]
# ## What does padding cost in memory and time?
#
# What padding costs depends on the layers of your model, so you measure three models:
#
# - the maximum is `TokenPool`, the small model of this unit (embedding → linear map → maximum over the sequence →
#   linear map);
# - fused attention has a layer of self-attention instead of the maximum. It calls `F.scaled_dot_product_attention`,
#   whose fused kernels keep no matrix of length × length;
# - attention written out computes the same steps one by one, and keeps that matrix.
#
# <details><summary>How does TokenPool leave out the padding?</summary>
#
# ```python
# def forward(self, x, mask):  # both (n, longest)
#     features = self.linear(self.emb(x))  # (n, longest, hidden)
#     features = features.masked_fill(~mask[..., None], -math.inf)  # the maximum never takes padding
#     return self.proj(features.amax(1)).squeeze(-1)  # (n,)
# ```
#
# Why −∞ and not 0? If a feature is negative at all tokens of a sequence, a 0 from its padding would be the maximum.
# With −∞ each sequence gets the score that it would get alone.
#
# </details>
#
# Every sequence below has four tokens, and only the width of the rectangle grows. So whatever grows is the cost of
# padding. `grouping.bytes_for_backward` counts the bytes that autograd keeps for the backward pass.
#
# **Predict** The rectangle becomes 8 times as wide. How many times as long does a step with fused attention take? 8
# times, because it keeps 8 times the bytes? 64 times, because there are 64 times as many pairs of tokens? Or the same
# time, because the mask leaves out the padding?

# %%
predicted_time = None  # times as long, e.g. 4

# %%
pool = TokenPool(sequences.VOCABULARY, size.emb_dim, size.emb_dim).to(device)
attention = TokenAttention(sequences.VOCABULARY, size.attention_dim).to(device)
models = {
    "maximum": pool,
    "fused attention": attention,
    "attention written out": partial(attention, attend=attention_written_out),
}
weights = [*pool.parameters(), *attention.parameters()]


def step(model, width, tokens=4):
    """Forward and backward over rows of `tokens` tokens, padded to `width`."""
    for weight in weights:
        weight.grad = None
    cells = torch.arange(size.rows_of_cost * width, device=device)
    x = cells.view(-1, width) % sequences.VOCABULARY
    mask = (torch.arange(width, device=device) < tokens).expand(len(x), width)
    model(x, mask).sum().backward()


# %% tags=["experiment"]
widths = size.padded_lengths
nbytes = {}  # one number per width
seconds = {}  # one interval per width
times_as_long = {}  # the widest rows over the narrowest
for name, model in models.items():
    steps = {str(width): partial(step, model, width) for width in widths}
    nbytes[name] = [grouping.bytes_for_backward(run, weights) for run in steps.values()]
    compared = compare(steps, device=device, seconds=size.seconds)
    seconds[name] = [compared.time(str(width)) for width in widths]
    times_as_long[name] = compared.ratio(str(widths[0]), to=str(widths[-1]))
plots.cost_against_length(widths, nbytes, seconds)

# %% tags=["experiment"]
growth = {}  # from the last width but one to the last, which is twice as large
shown = {}
for name, of_widths in nbytes.items():
    growth[name] = of_widths[-1] / of_widths[-2]
    shown[name] = f"{growth[name]:.2f} times for twice the length"
maximum_is_linear = abs(growth["maximum"] - 2) < 0.1
fused_is_linear = abs(growth["fused attention"] - 2) < 0.1
more_than_linear = growth["attention written out"] > 2.2
course.claim(
    "the maximum model keeps bytes for backward in proportion to the padded length",
    maximum_is_linear,
    shown["maximum"],
)
course.claim(
    "fused attention keeps bytes for backward in proportion to the padded length",
    fused_is_linear,
    shown["fused attention"],
)
course.claim(
    "attention written out keeps more bytes than in proportion to the padded length",
    more_than_linear,
    shown["attention written out"],
)

# %% tags=["experiment"]
what = "times as long with fused attention"
print(course.score("05/1", what, predicted_time, times_as_long["fused attention"]))
course.claim(
    "the time of the maximum grows in proportion to the width, within 30 %",
    times_as_long["maximum"].scaled(widths[0] / widths[-1]),
    within=(0.7, 1.3),
)

# %% [markdown]
# The tokens stayed the same and only the width grew, so the padding alone costs these bytes and this time (**Shown**).
# The time of a step has three parts:
#
# - linear maps compute each cell, and the number of cells grows with the width;
# - attention computes each pair of cells, and the number of pairs grows faster than the width;
# - a call takes some time at any width.
#
# Does the mask save attention any time? The next cell compares rows of four tokens with rows full of tokens, in a
# rectangle of the largest width. If the time of fused attention grew faster than the width, pairs take much of it.
# Then a kernel that left out the masked pairs would be faster.

# %% tags=["experiment"]
widest = widths[-1]
rows = {
    "rows full of tokens": partial(step, attention, widest, widest),
    "rows of four tokens": partial(step, attention, widest, 4),
}
masked = compare(rows, device=device, seconds=size.seconds)
course.claim(
    "fused attention takes as long for rows of padding as for rows of tokens, within 10 %",
    masked.ratio("rows of four tokens"),
    within=(0.9, 1.1),
)

# %% [markdown]
# Only the mask differs between the two ways. If both take the same time, the mask saves none (**Shown**).
#
# **Takeaway** Bytes grow with the width, and faster than the width if attention is written out. A mask hides padding
# but does not make it free.
#
# <details><summary>How can fused attention keep no matrix?</summary>
#
# **Known**: FlashAttention (Dao et al. 2022, arXiv:2205.14135) computes the matrix by blocks without storing it, and
# recomputes it in the backward pass.
#
# </details>

# %% [markdown]
# ## Does nvidia-smi show what padding costs? · extra
#
# After you remove the padding, `nvidia-smi` may show as much memory as before. PyTorch *allocates* bytes for tensors
# that exist now, and *reserves* memory that it keeps for later tensors. `nvidia-smi` shows the reserved memory, plus
# the CUDA context and all other processes (**Known**: PyTorch notes, "CUDA semantics", section "Memory management").
# On CUDA the cell runs a wide batch, then a narrow one.

# %% tags=["experiment"]
falls = None  # these numbers exist on CUDA only
stays = None
peaks = "not measured here"
reserves = "not measured here"
if device.type == "cuda":
    wide = grouping.memory_readings(partial(step, pool, size.padded_lengths[-1]))
    narrow = grouping.memory_readings(partial(step, pool, 4))
    for what, mib in wide.items():
        print(f"{what}: {mib:.0f} MiB with wide rows, {narrow[what]:.0f} MiB with narrow ones")
    falls = narrow["peak allocated"] < wide["peak allocated"]
    stays = narrow["reserved"] >= wide["reserved"]
    peaks = f"{narrow['peak allocated']:.0f} of {wide['peak allocated']:.0f} MiB"
    reserves = f"{narrow['reserved']:.0f} of {wide['reserved']:.0f} MiB"
course.claim("the peak of allocated memory falls with the padding", falls, peaks)
course.claim("reserved memory does not fall with the padding", stays, reserves)

# %% [markdown]
# In asym's notebook, `nvidia-smi` read 4,353 MiB after the training in one rectangle, and the same after the training
# in groups. PyTorch keeps memory that it has reserved, so the second reading does not show what the groups need.
#
# **Takeaway** To compare memory, call `torch.cuda.reset_peak_memory_stats()` before each run, and read
# `torch.cuda.max_memory_allocated()` after it.

# %% [markdown]
# ## Which parameters does the second training change? · extra
#
# A training with a bug can run without an error and look fast. The next cell, rebuilt from a published notebook, is
# meant to train `model` on padded batches, and then `new_model` for comparison.


# %% locked="published_order"
def train(trained, parameters, batches):
    """One epoch of `trained`, by an optimizer that holds `parameters`."""
    optimizer = torch.optim.SGD(parameters, lr=0.05)
    for x, mask, labels in batches:
        optimizer.zero_grad()
        loss = (trained(x, mask) - labels).square().mean()
        loss.backward()
        optimizer.step()


def published_order(batches, model, new_model):
    """Train `model`, then train `new_model`; written after a published notebook."""
    train(model, model.parameters(), batches)
    train(new_model, model.parameters(), batches)


# %% [markdown]
# **Predict** `new_model` has five parameters. How many of them does its training change? All, because each gets a
# gradient? Or fewer?

# %%
predicted_changed = None  # 0 to 5

# %% [markdown]
# ### Exercise 3 · Which parameters stay?
#
# Find the parameters that a training leaves unchanged.
#
# **Must**
# - call `train()` once;
# - return the names of the parameters of `model` whose values are exactly the same afterwards, in the order of
#   `model.named_parameters()`.
#
# **Points** 2 · **Extra** · **Difficulty** ●○○ · **Minutes** 8 · **Lines** 3
#
# **Source** The bug is in the notebook that demonstrates asym. The function is ours.
#
# <details><summary>Hint 1</summary>
#
# A training changes parameters in place. What must you keep from before it, so that your copy does not change?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Copies: `{name: p.detach().clone() for name, p in model.named_parameters()}`. Afterwards compare with `torch.equal`.
#
# </details>


# %% solution="untouched"
def untouched(train, model):
    """Names of the parameters of `model` that `train()` leaves as they were.

    Args:
        train: function without arguments.
        model: an nn.Module.

    Returns: list of str.
    """
    ### BEGIN SOLUTION
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    train()
    return [
        name for name, parameter in model.named_parameters() if torch.equal(parameter, before[name])
    ]
    ### END SOLUTION


# %% test="untouched-visible" points=1
check.untouched(untouched)

# %% test="untouched-hidden" points=1
### BEGIN HIDDEN TESTS
check.untouched(untouched, seed=7)
### END HIDDEN TESTS

# %% tags=["experiment"]
pad_now = course.solved(check.pad_batch)
demo = sets["demo"]
padded_batches = []
for begin in range(0, size.demo_rows, 256):
    samples = [demo[i] for i in range(begin, begin + 256)]
    values, lengths, labels = sequences.collate(samples, device)
    x, mask = pad_now(values, lengths)
    padded_batches.append((x, mask, labels))

# %% tags=["experiment"]
untouched_now = course.solved(check.untouched)
model = TokenPool(sequences.VOCABULARY, 32, 32).to(device)
new_model = TokenPool(sequences.VOCABULARY, 32, 32).to(device)
as_published = partial(published_order, padded_batches, model, new_model)
stayed = untouched_now(as_published, new_model)
count = len(list(new_model.parameters()))
changed = count - len(stayed)
what = "parameters changed"
print(course.score("05/1", what, predicted_changed, changed, null=None, form="{:.0f}"))
course.claim(
    "the second training changes no parameter", changed == 0, f"{len(stayed)} of {count} stayed"
)
repaired = partial(train, new_model, new_model.parameters(), padded_batches)
stayed = untouched_now(repaired, new_model)
course.claim(
    "an optimizer that holds the model in training changes every parameter",
    not stayed,
    f"{len(stayed)} unchanged",
)

# %% [markdown]
# The optimizer holds the parameters of `model`, and its `step()` and `zero_grad()` touch nothing else. So `new_model`
# keeps its weights, and its gradients add up from batch to batch.
#
# **Takeaway** After the first epoch of a new training, check that every parameter that should train has changed.
#
# Part 2 removes most of the padding of a batch but keeps its sequences.
