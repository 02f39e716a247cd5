# %% [markdown]
# # Batch grouping, part 4: Compute without any padding
#
# **Does a batch have to be a rectangle?**
#
# Most layers treat every token by itself: embeddings, linear maps, activations. They can run on a *flat* batch, which
# holds the tokens of all sequences one after the other. Only what combines the tokens of a sequence (a maximum,
# attention, a recurrence) must know where a sequence ends. You write these for flat batches, compare them with
# PyTorch's nested tensors and packed sequences, and end with one table of all methods of this unit: time, memory, and
# when to use which.
#
# **You will be able to**
#
# - run a model on flat batches, with maxima and attention that stay inside each sequence;
# - say what nested tensors and packed sequences do for you, and what they do not;
# - choose a method for ragged data from measurements of your own.
#
# **Minutes** 15 core · 120 in all
#
# **Needs** answers of parts 1 to 3 (`pad_batch`, `padded_forward`, `run_grouped`, `best_thresholds`,
# `BucketBatchSampler`) are taken over if you solved them


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
from course.learner.predictions import reveal
from course.plots import batch_grouping as plots
from course.training import grouping
from course.training.token_models import TokenAttention, TokenPool

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
# **The tokens one after the other, and where each sequence begins: nothing else is needed.**
#
# ### Exercise 1 · Flatten a batch
#
# Remove the padding of a padded batch.
#
# **Must** return the tokens row by row, and n + 1 offsets: where each sequence begins, and the end.
#
# **Points** 2 · **Extra** · **Difficulty** ●○○ · **Minutes** 8 · **Lines** 3
#
# **Convention** offsets[0] is 0, offsets[n] the number of tokens; int64. Tokens stand at the beginning of a row.
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
    """The tokens of a padded batch, one sequence after the other.

    Args:
        x: tensor (n, longest, ...).
        mask: bool tensor (n, longest), True at tokens.

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
# - return, per sequence, the maximum of each feature over its tokens; gradients flow to the tokens;
# - take as many operations for many sequences as for few;
# - build no padded batch: where lengths differ, no tensor may be as large as that.
#
# **You may assume** that no length is 0.
#
# **Points** 3 · **Core** · **Difficulty** ●●○ · **Minutes** 12 · **Lines** 4
#
# **Convention** How equal maxima share a gradient is left to you.
#
# **Source** The segmented scans of Blelloch 1990, "Prefix sums and their applications".
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

# %% tags=["experiment"]
pad_now, forward_now = course.solved(check.pad_batch), course.solved(check.padded_forward)
flatten_now, segment_now = course.solved(check.flatten_batch), course.solved(check.segment_max)
back_again, offsets = flatten_now(*pad_now(values, lengths))
course.claim("flattening the padded batch restores the flat one",
             bool((back_again == values).all()) and bool((offsets.diff() == lengths).all()),
             f"{len(values):,} tokens, {len(lengths) * int(lengths.max()):,} cells")  # fmt: skip
model = TokenPool(sequences.VOCABULARY, size.u_dim, size.u_dim).to(device)
with torch.no_grad():
    flat_scores = model.score(segment_now(model.features(values), lengths))
    off = (flat_scores - forward_now(model, *pad_now(values, lengths))).abs().max().item()
course.claim("the flat model gives the scores of the padded one", off < 1e-5, f"largest difference {off:.1e}")
plots.flat_and_blocks(torch.tensor([2, 7, 1, 4, 3]))

# %% [markdown]
# Left: what the layers compute for a padded batch, and what is needed of it. Middle: the same tokens, flat. Right: the
# pairs of tokens that attention computes on a flat batch under a mask. The section on attention comes back to them.

# %% [markdown]
# ### Exercise 3 · Its gradient by hand
#
# Write what autograd does for exercise 2: give each maximum's gradient to the token that it came from.
#
# **Must** return the gradient of the values; equal maxima of a sequence may share it in any way that adds up.
#
# **Points** 3 · **Extra** · **Difficulty** ●●○ · **Minutes** 15 · **Lines** 5
#
# **Convention** `maxima` are those of `values`. A token that equals the maximum of *another* sequence gets no share of
# that maximum's gradient.
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

# %% tags=["experiment"]
backward_now = course.solved(check.segment_max_backward)
features = torch.randn(len(values), 4, device=device).requires_grad_()
maxima = segment_now(features, lengths)
grad = torch.randn_like(maxima)
(by_autograd,) = torch.autograd.grad(maxima, features, grad)
with torch.no_grad():
    by_hand = backward_now(grad, features, maxima, lengths)
off = (by_hand - by_autograd).abs().max().item()
course.claim("your backward gives autograd's gradient of your forward", off < 1e-6, f"largest difference {off:.1e}")
share = float((by_autograd != 0).float().mean())
print(f"{100 * share:.0f} % of the entries are not 0; sequences per token: {100 * len(lengths) / len(values):.0f} %")

# %% [markdown]
# Random values have no equal maxima, so every sequence passes its gradient to one token per feature. Where values are
# equal, a function of your own may share differently from autograd; both are right.

# %% [markdown]
# ## Attention inside a sequence
#
# **On a flat batch, attention needs a block mask or a kernel that knows the lengths.**
#
# ### Exercise 4 · A block mask
#
# Return which tokens may attend to which: only those of the same sequence, with `causal` only itself and earlier ones.
#
# **Must** return a bool tensor (total, total), True where the query (row) may look at the key (column).
#
# **Points** 2 · **Extra** · **Difficulty** ●○○ · **Minutes** 10 · **Lines** 5
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
# Compute scaled dot-product attention inside each sequence of a flat batch. The block mask is the simple way and has
# (all tokens)² entries; a nested tensor leaves the lengths to PyTorch.
#
# **Must** return what attention gives for each token, flat, with gradients.
#
# **Points** 3 · **Extra** · **Difficulty** ●●○ · **Minutes** 15 · **Lines** 5
#
# **Convention** Every token attends to all tokens of its own sequence, also to later ones. Scores are divided by √d,
# where d is the width of a head.
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

# %% [markdown]
# **Predict**: a flat batch of 64 sequences (16 at `smoke`). How many per cent of its block mask are True?

# %%
my_guess_of_the_share = None  # per cent

# %% tags=["experiment"]
attention_now, mask_now = course.solved(check.flat_attention), course.solved(check.block_mask)


def block_attention(q, k, v, lengths):
    """Attention under your block mask, heads first in between: the simple way, however you solved exercise 5."""
    q, k, v = (part.transpose(0, 1) for part in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask_now(lengths)).transpose(0, 1)


def nested_attention(q, k, v, lengths):
    """The same by nested tensors: PyTorch keeps the lengths, and chooses a kernel that knows them where it has one."""
    offsets = F.pad(lengths.cumsum(0), (1, 0))
    flat = (part.contiguous() for part in (q, k, v))
    q, k, v = (torch.nested.nested_tensor_from_jagged(part, offsets).transpose(1, 2) for part in flat)
    return F.scaled_dot_product_attention(q, k, v).transpose(1, 2).values()


few = lengths[: size.attention_rows]
few_values = values[: int(few.sum())]
attention_model = TokenAttention(sequences.VOCABULARY, size.attention_dim).to(device)
q, k, v = (part.transpose(0, 1) for part in attention_model.queries_keys_values(few_values))
yours = attention_now(q, k, v, few)
off = max((way(q, k, v, few) - yours).abs().max().item() for way in (nested_attention, block_attention))
course.claim("nested tensors and your block mask give what your flat attention gives", off < 1e-5,
             f"largest difference {off:.1e}")  # fmt: skip
mask = mask_now(few)
needed, rectangle = int(mask.sum()), len(few) * int(few.max()) ** 2
print(f"pairs of tokens: needed {needed:,}, block mask {mask.numel():,}, one rectangle {rectangle:,}")
course.claim("most of the block mask is False", needed < mask.numel() / 2,
             f"{100 * needed / mask.numel():.0f} % of it is True" + reveal(my_guess_of_the_share, "{} %"),
             otherwise="One or two sequences hold most of the tokens.")  # fmt: skip

# %% [markdown]
# Under a block mask, attention computes (all tokens)² pairs and throws away those from different sequences. One
# rectangle computes n · longest² pairs, which is more only as long as there are fewer than (longest / mean)² sequences.
# The pairs of both are printed.

# %% [markdown]
# ### Exercise 6 · The order of packed sequences
#
# `pack_padded_sequence` is the oldest way around padding: an RNN reads token t of all sequences at once, and sequences
# that have ended drop out. Rebuild the order that it stores.
#
# **Must**
# - return `(data, batch_sizes)`: `data` holds the first token of every sequence, then all second tokens, and so on;
#   each time, longer sequences come before shorter ones;
# - `batch_sizes[t]` says how many sequences have a token t, counted from 0.
#
# **Not allowed** `pack_padded_sequence`, `pack_sequence`, `PackedSequence`
#
# **Points** 2 · **Extra** · **Difficulty** ●●○ · **Minutes** 15 · **Lines** 6
#
# **Convention** Sequences of equal length keep their order; batch_sizes is int64.
#
# **Source** PyTorch's documentation of `PackedSequence`.
#
# <details><summary>Hint 1</summary>
#
# If you had the padded batch with the longest sequence on top, in which order would you read its tokens?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Sort the sequences by falling length (stable), build places `starts[:, None] + arange(longest)` and the mask, and read
# both *column by column*: index the transposed places with the transposed mask.
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
    starts, t = (lengths.cumsum(0) - lengths)[order], torch.arange(int(lengths.max()), device=values.device)
    mask = t[:, None] < lengths[order]
    return values[(starts + t[:, None])[mask]], mask.sum(1)
    ### END SOLUTION


# %% test="packed_order-visible" points=1
check.packed_order(packed_order)

# %% test="packed_order-hidden" points=1
### BEGIN HIDDEN TESTS
check.packed_order(packed_order, seed=12)
### END HIDDEN TESTS

# %% tags=["experiment"]
order_now = course.solved(check.packed_order)
pack = functools.partial(torch.nn.utils.rnn.pack_padded_sequence, batch_first=True, enforce_sorted=False)
padded = torch.nn.utils.rnn.pad_sequence(values.split(lengths.tolist()), batch_first=True)
theirs = pack(padded, lengths.cpu())
data, batch_sizes = order_now(values, lengths)
course.claim("your batch_sizes are those of pack_padded_sequence", bool((batch_sizes.cpu() == theirs[1]).all()),
             f"{len(batch_sizes)} columns")  # fmt: skip
course.claim("a packed sequence stores tokens and no padding", len(theirs.data) == len(values) == len(data),
             f"{len(theirs.data):,} of {padded.numel():,} cells")  # fmt: skip

# %% [markdown]
# The tokens are the same; sequences of equal length may stand in another order, which PyTorch leaves open.

# %% [markdown]
# ## All methods, one table
#
# **Equal results first, then time and memory, then the choice.**
#
# Three models read the same sequences: the model of maxima, a layer of attention, and a recurrence (GRU). Each is
# computed in every way of this unit that fits it. A training step is not taken: forward and backward are timed, in
# turns.
#
# **Predict**: the model of maxima. How many times as fast as one rectangle are four groups, and how many the flat
# batch? And attention: is the block mask faster or slower than the rectangle?

# %%
my_guess_for_groups, my_guess_for_flat, my_guess_for_blocks = None, None, None

# %% tags=["experiment"]
grouped_now, best_now = course.solved(check.run_grouped), course.solved(check.best_thresholds)


def nested_of(flat_values, own_lengths):
    """A nested tensor of a flat batch."""
    return torch.nested.nested_tensor_from_jagged(flat_values, F.pad(own_lengths.cumsum(0), (1, 0)))


def seconds_of(run):
    """Seconds of forward and backward."""
    if device.type == "cuda":
        torch.cuda.synchronize()
    begin = time.perf_counter()
    run().sum().backward()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - begin


def peak_bytes(run):
    """Most bytes that are allocated on CUDA at a time during forward and backward; None elsewhere."""
    if device.type != "cuda":
        run().sum().backward()  # the first backward warms up
        return None
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    run().sum().backward()
    return torch.cuda.max_memory_allocated() - before


def compare(ways, known):
    """{way: largest difference to the first way, saved bytes, peak bytes on CUDA, seconds of each round}."""
    expected, found = next(iter(ways.values()))().detach(), {}
    for name, run in ways.items():
        off = (run().detach() - expected).abs().max().item()
        found[name] = {
            "off": off,
            "bytes": grouping.bytes_for_backward(run, known),
            "peak": peak_bytes(run),
            "seconds": [],
        }
    for _ in range(size.rounds):
        for name, run in ways.items():
            found[name]["seconds"].append(seconds_of(run))
    return found


# %% [markdown]
# Each way gives one number per sequence. First the model of maxima:

# %% tags=["experiment"]
limits = best_now(lengths.cpu(), 4)
sampler = course.solved(check.BucketBatchSampler)(lengths.cpu(), size.batch_size, 10**6)  # one window over all
pieces = [torch.tensor(batch) for batch in sampler]
parts = [sequences.collate([drawn[i] for i in piece.tolist()]) for piece in pieces]
parts = [(part_values.to(device), part_lengths.to(device)) for part_values, part_lengths, _ in parts]
back = torch.cat(pieces).argsort().to(device)
pool_ways = {
    "one rectangle": lambda: forward_now(model, *pad_now(values, lengths)),
    "four groups": lambda: grouped_now(functools.partial(forward_now, model), values, lengths, limits),
    "bucketed batches": lambda: torch.cat([forward_now(model, *pad_now(*part)) for part in parts])[back],
    "flat": lambda: model.score(segment_now(model.features(values), lengths)),
}
if device.type == "cuda" or course.scale() == "smoke":  # on the CPU, a nested maximum at full size takes seconds
    pool_ways["nested"] = lambda: model.score(model.features(nested_of(values, lengths)).amax(dim=1))
maxima_table = compare(pool_ways, tuple(model.parameters()))

# %% [markdown]
# Then attention, followed by the mean over the tokens of a sequence, on fewer sequences:

# %% tags=["experiment"]
few_limits, heads = best_now(few.cpu(), 4), attention_model.heads


def attend_padded(x, mask):
    """One number per sequence of a padded batch: attention under a mask of keys."""
    q, k, v = attention_model.queries_keys_values(x)  # (n, heads, longest, d)
    attended = F.scaled_dot_product_attention(q, k, v, attn_mask=mask[:, None, None])
    return (attention_model.scores_of_tokens(attended) * mask).sum(1) / mask.sum(1)


def attend_flat(attention):
    """The same on a flat batch, by `attention` (q, k, v, lengths)."""
    q, k, v = (part.transpose(0, 1) for part in attention_model.queries_keys_values(few_values))  # (total, heads, d)
    scores = attention_model.scores_of_tokens(attention(q, k, v, few).transpose(0, 1))
    owner = torch.arange(len(few), device=device).repeat_interleave(few)
    return torch.zeros(len(few), device=device).index_add(0, owner, scores) / few


def varlen_attention(q, k, v, lengths):
    """The same by PyTorch's kernel for sequences of variable length: on CUDA, in half precision."""
    from torch.nn.attention.varlen import varlen_attn

    offsets = F.pad(lengths.cumsum(0), (1, 0)).int()
    longest = int(lengths.max())
    half = (part.to(torch.bfloat16).contiguous() for part in (q, k, v))
    return varlen_attn(*half, offsets, offsets, longest, longest).to(q.dtype)


attention_ways = {
    "one rectangle": lambda: attend_padded(*pad_now(few_values, few)),
    "four groups": lambda: grouped_now(attend_padded, few_values, few, few_limits),
    "block mask": lambda: attend_flat(block_attention),
    "nested": lambda: attend_flat(nested_attention),
}
try:
    if device.type != "cuda":
        raise RuntimeError("it runs on CUDA only")
    attend_flat(varlen_attention).sum().backward()
    attention_ways["varlen"] = lambda: attend_flat(varlen_attention)
except (ImportError, RuntimeError, TypeError, ValueError) as why:
    print(f"left out: varlen_attn ({str(why).splitlines()[0]})")
attention_table = compare(attention_ways, tuple(attention_model.parameters()))

# %% [markdown]
# And a recurrence, whose last state is read:

# %% tags=["experiment"]
embedding = torch.nn.Embedding(sequences.VOCABULARY, size.attention_dim).to(device)
gru = torch.nn.GRU(size.attention_dim, size.attention_dim, batch_first=True).to(device)


def read_padded(x, mask):
    """The state after the last token of each row, summed: one number per sequence."""
    states = gru(embedding(x))[0]
    return states[torch.arange(len(x), device=device), mask.sum(1) - 1].sum(1)


def read_packed():
    """The same, packed."""
    return gru(pack(embedding(pad_now(few_values, few)[0]), few.cpu()))[1][0].sum(1)


gru_ways = {
    "one rectangle": lambda: read_padded(*pad_now(few_values, few)),
    "four groups": lambda: grouped_now(read_padded, few_values, few, few_limits),
    "packed": read_packed,
}
gru_table = compare(gru_ways, (*embedding.parameters(), *gru.parameters()))
tables = {"maxima": maxima_table, "attention": attention_table, "GRU": gru_table}
plots.time_and_memory(tables)

# %% [markdown]
# ### Which one when
#
# Every line is a claim, computed on this machine.

# %% tags=["experiment"]
speed, saved = {}, {}
print(f"{'model':<10} {'way':<17} {'times as fast':>22} {'saved MB':>9} {'peak MB':>8} {'difference':>11}")
for kind, table in tables.items():
    base = table["one rectangle"]
    for name, line in table.items():
        pairs = [a / b for a, b in zip(base["seconds"], line["seconds"], strict=True)]
        speed[kind, name], saved[kind, name] = statistics.median(pairs), line["bytes"] / base["bytes"]
        peak = f"{line['peak'] / 1e6:.1f}" if line["peak"] is not None else "-"
        print(f"{kind:<10} {name:<17} {speed[kind, name]:7.1f} ({min(pairs):5.1f} to {max(pairs):5.1f})"
              f" {line['bytes'] / 1e6:9.1f} {peak:>8} {line['off']:11.1e}")  # fmt: skip
said = {"four groups": my_guess_for_groups, "flat": my_guess_for_flat}
print(*(f"{name}: {speed['maxima', name]:.1f} times" + reveal(guess) for name, guess in said.items()), sep="; ")
print(f"block mask: {speed['attention', 'block mask']:.1f} times" + reveal(my_guess_for_blocks))


def gain(kind, *names):
    """Times as fast and share of the saved bytes, for a claim."""
    return "; ".join(
        f"{n}: {speed[kind, n]:.1f} times as fast, {100 * saved[kind, n]:.0f} % of the bytes" for n in names
    )


off = max(line["off"] for table in tables.values() for name, line in table.items() if name != "varlen")
course.claim("all ways give the same results", off < 1e-4, f"largest difference {off:.1e}")
even = torch.full((len(few),), int(lengths.float().mean()), device=device)  # all of one length: no padding
even_values = values[: int(even.sum())]
even_ways = {
    "one rectangle": lambda: forward_now(model, *pad_now(even_values, even)),
    "flat": lambda: model.score(segment_now(model.features(even_values), even)),
}
even_table = compare(even_ways, tuple(model.parameters()))
pairs = [a / b for a, b in zip(*(line["seconds"] for line in even_table.values()), strict=True)]
otherwise = (
    "Choose by your numbers. At smoke, batches are so small that the overhead of an operation counts more than its "
    "cells."
)
course.claim("if all lengths are equal, flat is less than 1.5 times as fast as one rectangle",
             statistics.median(pairs) < 1.5, f"{statistics.median(pairs):.2f} times", otherwise=otherwise)  # fmt: skip
cells_per_token = len(lengths) * int(lengths.max()) / int(lengths.sum())
course.claim("for a given batch, groups win back at least half of what the padding costs",
             speed["maxima", "four groups"] > cells_per_token / 2,
             f"{gain('maxima', 'four groups')}; {cells_per_token:.1f} cells per token",
             otherwise=otherwise)  # fmt: skip
course.claim("if you choose the batch, bucketed batches are faster than one rectangle, with fewer bytes",
             speed["maxima", "bucketed batches"] > 1 > saved["maxima", "bucketed batches"],
             gain("maxima", "bucketed batches"), otherwise=otherwise)  # fmt: skip
course.claim("if layers treat tokens independently, flat needs the tokens' share of the bytes, within 10 %",
             0.9 < saved["maxima", "flat"] * cells_per_token < 1.1,
             f"{gain('maxima', 'flat')}; {100 / cells_per_token:.0f} % of the cells", otherwise=otherwise)  # fmt: skip
course.claim("flat is the fastest for maxima", speed["maxima", "flat"] == max(speed["maxima", n] for n in pool_ways),
             gain("maxima", "flat", "four groups", "bucketed batches"), otherwise=otherwise)  # fmt: skip
course.claim("groups are faster for attention than the block mask, with fewer bytes",
             speed["attention", "four groups"] > speed["attention", "block mask"]
             and saved["attention", "four groups"] < saved["attention", "block mask"],
             gain("attention", "four groups", "block mask"), otherwise=otherwise)  # fmt: skip
course.claim("nested tensors need fewer bytes for attention than the block mask",
             saved["attention", "nested"] < saved["attention", "block mask"],
             gain("attention", "nested", "block mask"), otherwise=otherwise)  # fmt: skip
if device.type == "cuda":
    course.claim("nested tensors are faster for attention on CUDA than the block mask",
                 speed["attention", "nested"] > speed["attention", "block mask"],
                 gain("attention", "nested"), otherwise=otherwise)  # fmt: skip
else:
    course.claim("nested tensors are slower for attention on the CPU than one rectangle",
                 speed["attention", "nested"] < 1,
                 gain("attention", "nested"), otherwise=otherwise)  # fmt: skip
if "varlen" in attention_table:
    course.claim("varlen is the fastest attention on CUDA, equal within half precision",
                 speed["attention", "varlen"] == max(speed["attention", n] for n in attention_ways)
                 and attention_table["varlen"]["off"] < 0.02, gain("attention", "varlen"),
                 otherwise=otherwise)  # fmt: skip
course.claim("packed sequences run a recurrence faster than one rectangle, with fewer bytes",
             speed["GRU", "packed"] > 1 > saved["GRU", "packed"], gain("GRU", "packed", "four groups"),
             otherwise=otherwise)  # fmt: skip

# %% [markdown]
# | method | take it when | what it costs |
# |---|---|---|
# | one rectangle | lengths are nearly equal | the waste |
# | groups | the batch must stay as it is, or the model takes only rectangles | some overhead per group |
# | bucketed batches | you may choose what is in a batch | batches are less random, ranks may wait |
# | flat | layers treat tokens alone | maxima, sums and attention must be rewritten |
# | nested, varlen | attention on CUDA; on the CPU, groups | operations they lack |
# | packed | a recurrence | the sequences are sorted inside, and only recurrences read the order |

# %% [markdown]
# ### Question · Your data
#
# Think of ragged data that you work with, or would like to work with. Which method would you take for training, and
# which for inference? Give the numbers that you would compute first, what you expect of them, and which claims of this
# unit you would have to test again. (10 to 15 sentences, about 20 minutes, extra.)

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
# - Layers that treat tokens alone need no rectangle: they take time and memory for tokens only.
# - Maxima, sums and attention per sequence exist for flat batches; a block mask gives the right attention, but computes
#   every pair of tokens.
# - Equal results first, then time and memory, then the choice.
#
# ## References
#
# - asym, batch grouping for PyTorch: github.com/daeseoklee/asym
# - Krell et al. 2021, "Efficient sequence packing without cross-contamination", arXiv:2107.02027
# - Galil and Park 1992, "Dynamic programming with convexity, concavity and sparsity", Theoretical Computer Science 92
# - Vaswani et al. 2017, "Attention is all you need", arXiv:1706.03762
