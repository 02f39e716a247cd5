# %% [markdown]
# # Batch grouping, part 4: Compute without any padding
#
# **Does a batch have to be a rectangle?**
#
# Most layers treat every token by itself: embeddings, linear maps, activations. They can run on all tokens of a batch
# in one flat row. Only what combines the tokens of a sequence (a maximum, attention, a recurrence) must know where a
# sequence ends. You write these for flat batches, try PyTorch's nested tensors, and end with one table of all methods
# of this unit: time, memory, and when to use which.
#
# **You will be able to**
#
# - run a model on flat batches, with maxima and attention that stay inside each sequence;
# - say what nested tensors and packed sequences do for you, and what they do not;
# - choose a method for ragged data from measurements of your own.
#
# **Minutes** 15 core · 90 in all
#
# **Needs** `pad_batch`, `padded_forward` and `run_grouped` of parts 1 and 2 are taken over if you solved them


# %% locked="setup"
import functools
import logging
import math
import statistics
import time
import warnings

import torch
from torch.nn import functional as F

import course
from course.checks import batch_grouping as check
from course.datasets import sequences
from course.plots import batch_grouping as plots
from course.token_models import TokenAttention, TokenPool

warnings.filterwarnings("ignore", "The PyTorch API of nested tensors is in prototype stage")
logging.getLogger("torch.fx._symbolic_trace").setLevel(logging.ERROR)  # what nested tensors log at their first use
print(course.machine())
size, device = course.sizes("05_batch_grouping"), course.device()
drawn = sequences.load("lognormal", rows=size.rows_of_groups)
values, lengths, labels = (part.to(device) for part in sequences.collate([drawn[i] for i in range(len(drawn))]))
print(f"one batch: {len(lengths)} sequences, {len(values):,} tokens, the longest {int(lengths.max())}")

# %% [markdown]
# ## Flat batches
#
# **All tokens in one row, and where each sequence begins: nothing else is needed.**
#
# ### Exercise 1 · Flatten a batch
#
# Remove the padding of a padded batch.
#
# **Must** return the real tokens row by row, and n + 1 offsets: where each sequence begins, and the end.
#
# **Points** 2 · **Extra** · **Difficulty** ●○○ · **Minutes** 6 · **Lines** 3
#
# **Convention** offsets[0] is 0, offsets[n] the number of tokens; int64. Real tokens stand at the beginning of a row.
#
# **Source** The layout of `torch.nested` with `layout=torch.jagged`.
#
# <details><summary>Hint 1</summary>
#
# What does `x[mask]` give, and in which order?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# The lengths are `mask.sum(1)`; offsets are their running sum behind a 0.
#
# </details>


# %% solution="flatten_batch"
def flatten_batch(x, mask):
    """The real tokens of a padded batch in one row.

    Args:
        x: tensor (n, longest, ...).
        mask: bool tensor (n, longest), True at real tokens.

    Returns: (values (total, ...), offsets int64 (n + 1,)).
    """
    ### BEGIN SOLUTION
    return x[mask], F.pad(mask.sum(1).cumsum(0), (1, 0))
    ### END SOLUTION


# %% test="flatten_batch-visible" points=1
check.flatten_batch(flatten_batch)

# %% test="flatten_batch-hidden" points=1
### BEGIN HIDDEN TESTS
check.flatten_batch(flatten_batch, seed=17)
### END HIDDEN TESTS

# %% [markdown]
# ### Exercise 2 · The maximum of each sequence
#
# Take maxima over the tokens of each sequence of a flat batch, without a loop over sequences and without a rectangle.
#
# **Must**
# - return a row per sequence, the maximum of each feature over its tokens; gradients flow to the tokens;
# - the number of operations must not depend on the number of sequences; allocate nothing as large as the padded batch.
#
# **You may assume** that no length is 0.
#
# **Points** 3 · **Core** · **Difficulty** ●●○ · **Minutes** 12 · **Lines** 4
#
# **Convention** How equal maxima share a gradient is left to you.
#
# **Source** `torch.segment_reduce`; compare the segmented scans of Blelloch 1990, "Prefix sums and their applications".
#
# <details><summary>Hint 1</summary>
#
# To which sequence does each token belong? Which operation adds, or takes the maximum, by such a number?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `torch.arange(n).repeat_interleave(lengths)` are the sequences' numbers. `scatter_reduce(0, index, values, "amax")`
# on a tensor of −∞ takes maxima by an index of the values' shape. `torch.segment_reduce(values, "max",
# lengths=lengths)` does both.
#
# </details>


# %% solution="segment_max"
def segment_max(values, lengths):
    """Maximum over the tokens of each sequence, per feature.

    Args:
        values: float tensor (total, features).
        lengths: int64 tensor (n,), tokens per sequence, each at least 1.

    Returns: float tensor (n, features).
    """
    ### BEGIN SOLUTION
    owner = torch.arange(len(lengths), device=values.device).repeat_interleave(lengths, output_size=len(values))
    lowest = torch.full((len(lengths), values.shape[1]), -math.inf, dtype=values.dtype, device=values.device)
    return lowest.scatter_reduce(0, owner[:, None].expand_as(values), values, "amax")
    ### END SOLUTION


# %% test="segment_max-visible" points=2
check.segment_max(segment_max)

# %% test="segment_max-hidden" points=1
### BEGIN HIDDEN TESTS
check.segment_max(segment_max, seed=1990)
### END HIDDEN TESTS

# %% [markdown]
# ### Exercise 3 · Its gradient by hand
#
# Write what autograd does for exercise 2: give each maximum's gradient to the token that it came from.
#
# **Must** return the gradient of the values; equal maxima of a sequence may share it in any way that adds up.
#
# **Points** 3 · **Extra** · **Difficulty** ●●○ · **Minutes** 15 · **Lines** 5
#
# **Convention** `maxima` are those of `values`; a token that equals the maximum of *another* sequence gets nothing of
# it.
#
# **Source** The chain rule; compare `torch.autograd.gradcheck`.
#
# <details><summary>Hint 1</summary>
#
# What does each token compare itself with?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `maxima.repeat_interleave(lengths, 0)` brings each maximum to the tokens of its sequence; likewise the gradient, and
# the number of tokens that reach the maximum.
#
# </details>


# %% solution="segment_max_backward"
def segment_max_backward(grad, values, maxima, lengths):
    """Gradient of `values`, given that of their maxima per sequence.

    Args:
        grad: float tensor (n, features), gradient of the maxima.
        values: float tensor (total, features).
        maxima: float tensor (n, features).
        lengths: int64 tensor (n,).

    Returns: float tensor (total, features).
    """
    ### BEGIN SOLUTION
    reached = values == maxima.repeat_interleave(lengths, 0)
    owner = torch.arange(len(lengths), device=values.device).repeat_interleave(lengths)
    times = torch.zeros_like(maxima).index_add(0, owner, reached.to(maxima.dtype))
    return reached * (grad / times)[owner]
    ### END SOLUTION


# %% test="segment_max_backward-visible" points=2
check.segment_max_backward(segment_max_backward)

# %% test="segment_max_backward-hidden" points=1
### BEGIN HIDDEN TESTS
check.segment_max_backward(segment_max_backward, seed=3)
### END HIDDEN TESTS

# %% [markdown]
# ## Attention inside a sequence
#
# **Flat attention needs a mask of blocks, or a variable-length kernel.**
#
# ### Exercise 4 · A mask of blocks
#
# Return which tokens may attend to which: only those of the same sequence, with `causal` only itself and earlier ones.
#
# **Must** return a bool tensor (total, total), True where the query (row) may look at the key (column).
#
# **Points** 2 · **Extra** · **Difficulty** ●○○ · **Minutes** 8 · **Lines** 5
#
# **Convention** With `causal`, a token sees itself and the tokens before it in its sequence.
#
# **Source** Packing as in Krell et al. 2021, arXiv:2107.02027, section 3.2.
#
# <details><summary>Hint 1</summary>
#
# When do two tokens belong to one sequence, if each knows the number of its sequence?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `owner[:, None] == owner[None]`; for causal also compare places, or use `tril()`.
#
# </details>


# %% solution="block_mask"
def block_mask(lengths, causal=False):
    """Which token of a flat batch may look at which.

    Args:
        lengths: int64 tensor (n,), tokens per sequence.
        causal: whether tokens that come later are hidden.

    Returns: bool tensor (total, total).
    """
    ### BEGIN SOLUTION
    owner = torch.arange(len(lengths), device=lengths.device).repeat_interleave(lengths)
    mask = owner[:, None] == owner
    return mask.tril() if causal else mask
    ### END SOLUTION


# %% test="block_mask-visible" points=1
check.block_mask(block_mask)

# %% test="block_mask-hidden" points=1
### BEGIN HIDDEN TESTS
check.block_mask(block_mask, seed=6)
### END HIDDEN TESTS

# %% [markdown]
# ### Exercise 5 · Attention on flat batches
#
# Compute scaled dot-product attention inside each sequence of a flat batch. The mask of blocks is the simple way and
# has (all tokens)² entries; a nested tensor leaves the lengths to PyTorch.
#
# **Must** return what attention gives for each token, flat, with gradients.
#
# **Points** 3 · **Extra** · **Difficulty** ●●○ · **Minutes** 15 · **Lines** 5
#
# **Convention** No mask inside a sequence; scores are divided by √d, d the width of a head.
#
# **Source** PyTorch's tutorial on nested tensors; Vaswani et al. 2017, section 3.2.1.
#
# <details><summary>Hint 1</summary>
#
# In which order of dimensions does `F.scaled_dot_product_attention` want heads and tokens?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Heads first: `transpose(0, 1)`, then the mask of exercise 4 as `attn_mask`, then back. Or
# `torch.nested.nested_tensor_from_jagged(q.contiguous(), offsets).transpose(1, 2)` for each of the three, and
# afterwards `.transpose(1, 2).values()`.
#
# </details>


# %% solution="flat_attention"
def flat_attention(q, k, v, lengths):
    """Attention inside each sequence of a flat batch.

    Args:
        q, k, v: float tensors (total, heads, d).
        lengths: int64 tensor (n,), tokens per sequence.

    Returns: float tensor (total, heads, d).
    """
    ### BEGIN SOLUTION
    owner = torch.arange(len(lengths), device=lengths.device).repeat_interleave(lengths)
    q, k, v = (part.transpose(0, 1) for part in (q, k, v))  # heads first
    return F.scaled_dot_product_attention(q, k, v, attn_mask=owner[:, None] == owner).transpose(0, 1)
    ### END SOLUTION


# %% test="flat_attention-visible" points=2
check.flat_attention(flat_attention)

# %% test="flat_attention-hidden" points=1
### BEGIN HIDDEN TESTS
check.flat_attention(flat_attention, seed=8)
### END HIDDEN TESTS

# %% tags=["experiment"]
attention_now = course.solved(check.flat_attention)


def nested_attention(q, k, v, lengths):
    """The same by nested tensors: PyTorch keeps the lengths, and chooses a kernel that knows them where it has one."""
    offsets = F.pad(lengths.cumsum(0), (1, 0))
    flat = (part.contiguous() for part in (q, k, v))
    q, k, v = (torch.nested.nested_tensor_from_jagged(part, offsets).transpose(1, 2) for part in flat)
    return F.scaled_dot_product_attention(q, k, v).transpose(1, 2).values()


few = lengths[: size.attention_rows]
attention_model = TokenAttention(sequences.VOCABULARY, size.attention_dim).to(device)
q, k, v = (part.transpose(0, 1) for part in attention_model.queries_keys_values(values[: int(few.sum())]))
off = (nested_attention(q, k, v, few) - attention_now(q, k, v, few)).abs().max().item()
course.claim("nested tensors give what your flat attention gives", off < 1e-5, f"largest difference {off:.1e}")
blocks = float((few**2).sum() / few.sum() ** 2)
course.claim("most of the mask of blocks is False", blocks < 0.5, f"{100 * blocks:.0f} % of it is True")

# %% [markdown]
# The mask of blocks computes every pair of tokens and throws most of them away. On CUDA,
# `torch.nn.attention.varlen` and the kernels behind nested tensors compute only the blocks. Where it does not hold that
# most of the mask is False, one or two sequences hold most of the tokens.

# %% [markdown]
# ### Exercise 6 · The order of packed sequences
#
# `pack_padded_sequence` is the oldest way around padding: an RNN takes one time step of all sequences at once, and
# sequences that have ended drop out. Rebuild the order that it stores.
#
# **Must**
# - return `(data, batch_sizes)`: the tokens step by step, in each step the longest sequence first;
# - `batch_sizes[t]` says how many sequences have a token at step t.
#
# **Not allowed** `pack_padded_sequence`, `pack_sequence`, `PackedSequence`
#
# **Points** 2 · **Extra** · **Difficulty** ●●○ · **Minutes** 12 · **Lines** 6
#
# **Convention** Sequences of equal length keep their order; batch_sizes is int64.
#
# **Source** PyTorch's documentation of `PackedSequence`.
#
# <details><summary>Hint 1</summary>
#
# If you had the padded batch with the longest sequence on top, in which order would you read its real tokens?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Sort rows by falling length (stable), build places `starts[:, None] + arange(longest)` and the mask, and read both
# *column by column*: index the transposed places with the transposed mask.
#
# </details>


# %% solution="packed_order"
def packed_order(values, lengths):
    """The tokens of a flat batch in the order of a packed sequence.

    Args:
        values: int64 tensor (total,).
        lengths: int64 tensor (n,).

    Returns: (data (total,), batch_sizes int64 (longest,)).
    """
    ### BEGIN SOLUTION
    order = lengths.argsort(descending=True, stable=True)
    starts, step = (lengths.cumsum(0) - lengths)[order], torch.arange(int(lengths.max()), device=values.device)
    mask = step[:, None] < lengths[order]
    return values[(starts + step[:, None])[mask]], mask.sum(1)
    ### END SOLUTION


# %% test="packed_order-visible" points=1
check.packed_order(packed_order)

# %% test="packed_order-hidden" points=1
### BEGIN HIDDEN TESTS
check.packed_order(packed_order, seed=12)
### END HIDDEN TESTS

# %% [markdown]
# ## All methods, one table
#
# **Predict**: order the methods by time, and by memory: one rectangle, four groups, bucketed batches, flat.

# %%
my_guess_of_order = None

# %% tags=["experiment"]
pad_now, forward_now = course.solved(check.pad_batch), course.solved(check.padded_forward)
grouped_now, best_now = course.solved(check.run_grouped), course.solved(check.best_thresholds)
segment_now, saved_now = course.solved(check.segment_max), course.solved(check.saved_bytes)
limits = best_now(lengths.cpu(), 4)
sampler = course.solved(check.BucketBatchSampler)(lengths.cpu(), size.batch_size, 10**6)  # one window over all
pieces = [torch.tensor(batch) for batch in sampler]
parts = [sequences.collate([drawn[i] for i in piece.tolist()]) for piece in pieces]
parts = [(part_values.to(device), part_lengths.to(device)) for part_values, part_lengths, _ in parts]
back = torch.cat(pieces).argsort().to(device)
model = TokenPool(sequences.VOCABULARY, size.u_dim, size.u_dim).to(device)


def one_rectangle():
    """The padded batch."""
    return forward_now(model, *pad_now(values, lengths))


def four_groups():
    """The same batch in four groups."""
    return grouped_now(functools.partial(forward_now, model), values, lengths, limits)


def bucketed():
    """The same sequences, as small batches of similar length."""
    return torch.cat([forward_now(model, *pad_now(*part)) for part in parts])[back]


def flat():
    """All tokens in a row."""
    return model.score(segment_now(model.features(values), lengths))


methods = {"one rectangle": one_rectangle, "four groups": four_groups, "bucketed batches": bucketed, "flat": flat}
expected = one_rectangle().detach()
table = {
    name: {"seconds": [], "bytes": saved_now(run, known=tuple(model.parameters()))} for name, run in methods.items()
}
for name, run in methods.items():
    off = (run().detach() - expected).abs().max().item()
    course.claim(f"{name}: the same scores", off < 1e-5, f"largest difference {off:.1e}")
for _ in range(size.rounds + 1):
    for name, run in methods.items():
        if device.type == "cuda":
            torch.cuda.synchronize()
        begin = time.perf_counter()
        run().sum().backward()
        if device.type == "cuda":
            torch.cuda.synchronize()
        table[name]["seconds"].append(time.perf_counter() - begin)
plots.time_and_memory({name: (row["seconds"][1:], row["bytes"]) for name, row in table.items()})

# %% tags=["experiment"]
base = table["one rectangle"]
real = int(lengths.sum()) / (len(lengths) * int(lengths.max()))
print(f"real tokens: {100 * real:.0f} % of the rectangle")
ratios = {}
for name, row in table.items():
    pairs = [a / b for a, b in zip(base["seconds"][1:], row["seconds"][1:], strict=True)]
    ratios[name] = statistics.median(pairs)
    print(f"{name:<22} {ratios[name]:5.1f} times as fast ({min(pairs):.1f} to {max(pairs):.1f}), "
          f"{100 * row['bytes'] / base['bytes']:3.0f} % of the saved bytes")  # fmt: skip
course.claim("groups and flat batches gain at least half of what the padding costs",
             min(ratios["four groups"], ratios["flat"]) > 0.5 / real,
             f"{ratios['four groups']:.1f} and {ratios['flat']:.1f} times; {1 / real:.1f} cells per token")  # fmt: skip
shares = {name: row["bytes"] / base["bytes"] for name, row in table.items()}
course.claim("flat saves no more bytes than the share of real tokens plus a tenth", shares["flat"] < real + 0.1,
             f"{100 * shares['flat']:.0f} % for {100 * real:.0f} % real tokens")  # fmt: skip

# %% [markdown]
# ### Which one when
#
# | method | take it when | price |
# |---|---|---|
# | one rectangle | lengths are nearly equal, or batches so small that only launching costs | the waste |
# | groups | batches must stay as they are, and the model only takes rectangles | some overhead per group |
# | bucketed batches | you may choose what is in a batch | batches are less random, ranks may wait |
# | flat, nested | layers work on single tokens, or have kernels for lengths | the rest must be rewritten |
#
# Where it does not hold on your machine that flat is fastest, scattered maxima are slow there; look at which line of
# the table wins instead, and take that.

# %% [markdown]
# ### Question · Your data
#
# Think of ragged data that you work with, or that you would like to. Which method would you take for training, and
# which for inference? Give the numbers that you would compute first, what you expect of them, and which claims of this
# unit you would have to test again. (10 to 15 sentences.)

# %% [markdown] answer="your_data" points=4
# ### BEGIN SOLUTION
# A good answer names the data and its lengths (median, longest, their ratio), computes the waste for the intended batch
# size first, and argues from it. It separates training from inference: bucketing changes which samples meet in a batch
# and so may change training, while inference may sort freely. It asks whether the model mixes tokens, and whether
# kernels for lengths exist on the device. It names claims that depend on the machine (overhead per group, speed of
# scattered maxima) and on the data (label related to length), and says how to measure them: paired, warmed up,
# synchronised.
#
# One point each: waste computed from lengths · method argued from model and data · training against inference · what
# must be measured again.
# ### END SOLUTION

# %% [markdown]
# ## What to take with you
#
# - Layers that treat tokens alone need no rectangle.
# - Maxima, sums and attention per sequence exist for flat batches.
# - Equal results first, then time and memory, then the choice.
#
# ## References
#
# - asym, batch grouping for PyTorch: github.com/daeseoklee/asym
# - Krell et al. 2021, "Efficient sequence packing without cross-contamination", arXiv:2107.02027
# - Galil and Park 1992, "Dynamic programming with convexity, concavity and sparsity", Theoretical Computer Science 92
# - Vaswani et al. 2017, "Attention is all you need", arXiv:1706.03762
