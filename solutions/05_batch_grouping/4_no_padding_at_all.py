# %% [markdown]
# # Batch grouping, part 4: Compute without any padding
#
# **Does a batch have to be a rectangle?**
#
# Embeddings, linear maps and activations treat every token by itself, so they can run on a *flat* batch: the tokens of
# all sequences, one after the other. Only layers that combine tokens, such as a maximum or attention, must know where a
# sequence ends. You write a maximum for flat batches, then compare all ways of this unit.
#
# **You will be able to**
#
# - run a model on flat batches, with maxima that stay inside each sequence;
# - choose a way to batch ragged data by measuring;
# - find out what your own batches could gain.
#
# **Minutes** 29 core · 106 in all · session 2
#
# **Needs** the core exercises of parts 1 to 3


# %% locked="setup"
import functools
import itertools
import logging
import math
import statistics
import time
import warnings

import torch
from torch.nn import functional as F
from torch.nn.attention import flex_attention as flex
from torch.utils._python_dispatch import TorchDispatchMode

import course
from course.checks import batch_grouping as check
from course.checkup.facts import padding_of
from course.datasets import sequences
from course.learner.predictions import reveal
from course.plots import batch_grouping as plots
from course.training import grouping
from course.training.recommender_loop import keep_freed_memory
from course.training.token_models import TokenAttention, TokenPool

warnings.filterwarnings("ignore", "The PyTorch API of nested tensors is in prototype stage")
warnings.filterwarnings("ignore", "flex_attention called without torch.compile")
logging.getLogger("torch.fx._symbolic_trace").setLevel(logging.ERROR)  # what nested tensors log at their first use
keep_freed_memory()  # or the large tensors of the rectangle come from new memory pages in every step
print(course.machine())
size, device = course.sizes("05_batch_grouping"), course.device()
drawn = sequences.load("lognormal", rows=size.rows_of_groups)
values, lengths, labels = (part.to(device) for part in sequences.collate([drawn[i] for i in range(len(drawn))]))
few = lengths[: size.attention_rows]
few_values = values[: int(few.sum())]
print(f"one batch: {len(lengths)} sequences, {len(values):,} tokens, the longest {int(lengths.max())}")

# %% [markdown]
# ## Can you take maxima without a rectangle?
#
# ### Exercise 1 · The maximum of each sequence
#
# Take the maximum over the tokens of each sequence of a flat batch, for each feature.
#
# ```python
# >>> segment_max(torch.tensor([[1.0], [5.0], [2.0]]), torch.tensor([2, 1])).tolist()
# [[5.0], [2.0]]
# ```
#
# **Must**
# - let gradients flow to the tokens;
# - use no loop over sequences and no padded batch.
#
# **Points** 3 · **Core** · **Difficulty** ●●○ · **Minutes** 12 · **Lines** 4
#
# **Source** The segmented scans of Blelloch 1990, "Prefix sums and their applications".
#
# <details><summary>Hint 1</summary>
#
# To which sequence does each token belong? Which operation takes the maximum by such a number?
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
pad_now, segment_now = course.solved(check.pad_batch), course.solved(check.segment_max)
model = TokenPool(sequences.VOCABULARY, size.u_dim, size.u_dim).to(device)
with torch.no_grad():
    flat_scores = model.score(segment_now(model.features(values), lengths))
    off = (flat_scores - model(*pad_now(values, lengths))).abs().max().item()
course.claim("the flat model gives the scores of the padded one", off < 1e-5, f"largest difference {off:.1e}")
plots.flat_and_blocks(torch.tensor([2, 7, 1, 4, 3]))

# %% [markdown]
# On the right are all pairs of tokens that attention computes on a flat batch. A mask keeps the dark ones.
#
# **Takeaway** A maximum needs no rectangle, only the number of the sequence that each token belongs to.

# %% [markdown]
# ## Which way is fastest?
#
# Three models run forward and backward, each in some of the ways below: a maximum over tokens, a layer of attention,
# and a recurrence (GRU).
#
# | way | what it computes |
# |---|---|
# | one rectangle | all sequences, padded to the longest (part 1) |
# | four groups | one rectangle per range of lengths (part 2) |
# | bucketed batches | one rectangle per batch of similar lengths (part 3) |
# | flat | the tokens only |
# | packed rows | attention on rows filled with whole sequences, other sequences masked |
# | nested | a PyTorch tensor that knows the lengths |
# | packed sequence | a recurrence whose finished sequences drop out |
#
# **Predict** For the maximum, how much faster than one rectangle are four groups and the flat batch?

# %%
my_guess_for_groups, my_guess_for_flat = None, None  # times

# %% [markdown]
# The maxima first:

# %% tags=["experiment"]
grouped_now = course.solved(check.run_grouped)


def synchronize():
    """Wait until the device has finished."""
    if device.type == "cuda":
        torch.cuda.synchronize()


def seconds_of(run):
    """Seconds of forward and backward."""
    synchronize()
    begin = time.perf_counter()
    run().sum().backward()
    synchronize()
    return time.perf_counter() - begin


def compare(ways, known):
    """{way: largest difference to the first way, saved bytes, seconds of each round}."""
    expected, found = next(iter(ways.values()))().detach(), {}
    for name, run in ways.items():
        found[name] = {
            "off": (run().detach() - expected).abs().max().item(),
            "bytes": grouping.bytes_for_backward(run, known),
            "seconds": [],
        }
        seconds_of(run)  # the first backward warms up
    for _ in range(size.rounds):
        for name, run in ways.items():
            found[name]["seconds"].append(seconds_of(run))
    return found


def nested_of(flat_values, own_lengths):
    """A nested tensor of a flat batch; without its longest length, it pads each sequence to the sum of all."""
    shortest, longest = own_lengths.aminmax()
    offsets = F.pad(own_lengths.cumsum(0), (1, 0))
    return torch.nested.nested_tensor_from_jagged(flat_values, offsets, None, 1, int(shortest), int(longest))


limits = grouping.greedy_thresholds(lengths.cpu(), 4)
sampler = course.solved(check.BucketBatchSampler)(lengths.cpu(), size.batch_size, 10**6)  # one window over all
pieces = [torch.tensor(batch) for batch in sampler]
parts = [sequences.collate([drawn[i] for i in piece.tolist()]) for piece in pieces]
parts = [(part_values.to(device), part_lengths.to(device)) for part_values, part_lengths, _ in parts]
back = torch.cat(pieces).argsort().to(device)
pool_ways = {
    "one rectangle": lambda: model(*pad_now(values, lengths)),
    "four groups": lambda: grouped_now(model, values, lengths, limits),
    "bucketed batches": lambda: torch.cat([model(*pad_now(*part)) for part in parts])[back],
    "flat": lambda: model.score(segment_now(model.features(values), lengths)),
    "nested": lambda: model.score(model.features(nested_of(values, lengths)).amax(dim=1)),
}
maxima_table = compare(pool_ways, tuple(model.parameters()))

# %% [markdown]
# Now attention on fewer sequences, followed by the mean over the tokens of each sequence:

# %% tags=["experiment"]
attention_model = TokenAttention(sequences.VOCABULARY, size.attention_dim).to(device)
few_limits = grouping.greedy_thresholds(few.cpu(), 4)
owner = torch.arange(len(few), device=device).repeat_interleave(few)  # the sequence of each token
few_offsets = F.pad(few.cumsum(0), (1, 0))


def attend_padded(x, mask):
    """One number per sequence of a padded batch: attention under a mask of keys."""
    attended = F.scaled_dot_product_attention(*attention_model.queries_keys_values(x), attn_mask=mask[:, None, None])
    return (attention_model.scores_of_tokens(attended) * mask).sum(1) / mask.sum(1)


def attend_flat(attention):
    """The same on a flat batch, by `attention` (q, k, v), each (1, heads, total, d)."""
    attended = attention(*(part[None] for part in attention_model.queries_keys_values(few_values)))
    scores = attention_model.scores_of_tokens(attended[0])
    return torch.zeros(len(few), device=device).index_add(0, owner, scores) / few


def nested_attention(q, k, v):
    """With nested tensors."""
    flat = (part[0].transpose(0, 1).contiguous() for part in (q, k, v))
    nested = (torch.nested.nested_tensor_from_jagged(part, few_offsets).transpose(1, 2) for part in flat)
    return F.scaled_dot_product_attention(*nested).transpose(1, 2).values().transpose(0, 1)[None]


def packed_rows(lengths, budget):
    """The row and the first column of each sequence, longest first into the fullest row with room for it."""
    free, row, column = [], torch.empty_like(lengths), torch.empty_like(lengths)
    for i in lengths.argsort(descending=True).tolist():
        fits = [r for r, room in enumerate(free) if room >= lengths[i]]
        r = min(fits, key=free.__getitem__) if fits else len(free)
        free += [budget] * (r == len(free))
        row[i], column[i] = r, budget - free[r]
        free[r] -= int(lengths[i])
    return row, column


row, column = (part.to(device) for part in packed_rows(few.cpu(), int(few.max())))
token_row = row.repeat_interleave(few)
token_column = torch.arange(len(few_values), device=device) + (column - few_offsets[:-1]).repeat_interleave(few)
documents = torch.full((int(row.max()) + 1, int(few.max())), -1, device=device)  # -1: an empty cell
documents[token_row, token_column] = owner
same_document = documents[:, None, :, None] == documents[:, None, None, :]


def attend_packed():
    """The same on packed rows: a mask keeps the documents of a row apart."""
    x = torch.zeros_like(documents)
    x[token_row, token_column] = few_values
    attended = F.scaled_dot_product_attention(*attention_model.queries_keys_values(x), attn_mask=same_document)
    scores = attention_model.scores_of_tokens(attended)[token_row, token_column]
    return torch.zeros(len(few), device=device).index_add(0, owner, scores) / few


attention_ways = {
    "one rectangle": lambda: attend_padded(*pad_now(few_values, few)),
    "four groups": lambda: grouped_now(attend_padded, few_values, few, few_limits),
    "packed rows": attend_packed,
    "nested": lambda: attend_flat(nested_attention),
}
attention_table = compare(attention_ways, tuple(attention_model.parameters()))

# %% [markdown]
# And a GRU, of which you use the last state:

# %% tags=["experiment"]
embedding = torch.nn.Embedding(sequences.VOCABULARY, size.attention_dim).to(device)
gru = torch.nn.GRU(size.attention_dim, size.attention_dim, batch_first=True).to(device)
pack = functools.partial(torch.nn.utils.rnn.pack_padded_sequence, batch_first=True, enforce_sorted=False)


def read_padded(x, mask):
    """The state after the last token of each row, summed: one number per sequence."""
    states = gru(embedding(x))[0]
    return states[torch.arange(len(x), device=device), mask.sum(1) - 1].sum(1)


gru_ways = {
    "one rectangle": lambda: read_padded(*pad_now(few_values, few)),
    "four groups": lambda: grouped_now(read_padded, few_values, few, few_limits),
    "packed sequence": lambda: gru(pack(embedding(pad_now(few_values, few)[0]), few.cpu()))[1][0].sum(1),
}
gru_table = compare(gru_ways, (*embedding.parameters(), *gru.parameters()))
tables = {"maxima": maxima_table, "attention": attention_table, "GRU": gru_table}
plots.time_and_memory(tables)

# %% tags=["experiment"]
speed, saved = {}, {}
print(f"{'model':<10} {'way':<17} {'times as fast':>22} {'saved MB':>9} {'difference':>11}")
for kind, table in tables.items():
    base = table["one rectangle"]
    for name, line in table.items():
        pairs = [a / b for a, b in zip(base["seconds"], line["seconds"], strict=True)]
        speed[kind, name], saved[kind, name] = statistics.median(pairs), line["bytes"] / base["bytes"]
        print(f"{kind:<10} {name:<17} {speed[kind, name]:7.1f} ({min(pairs):5.1f} to {max(pairs):5.1f})"
              f" {line['bytes'] / 1e6:9.1f} {line['off']:11.1e}")  # fmt: skip
cells_per_token = len(lengths) * int(lengths.max()) / int(lengths.sum())
print(f"one rectangle of the maxima: {cells_per_token:.1f} cells per token")
said = {"four groups": my_guess_for_groups, "flat": my_guess_for_flat}
print(*(f"{name}: {speed['maxima', name]:.1f} times" + reveal(guess) for name, guess in said.items()), sep="; ")


def gain(kind, *names):
    """Times as fast and share of the saved bytes, for a claim."""
    found = (f"{n}: {speed[kind, n]:.1f} times as fast, {100 * saved[kind, n]:.0f} % of the bytes" for n in names)
    return "; ".join(found)


off = max(line["off"] for table in tables.values() for line in table.values())
course.claim("all ways give the same results", off < 1e-3, f"largest difference {off:.1e}")
otherwise = "Choose by your numbers: this machine, its load and the size of the batch change them."
in_groups = min(speed[kind, "four groups"] for kind in ("maxima", "attention"))
course.claim("for maxima and attention, four groups are at least twice as fast as one rectangle", in_groups > 2,
             f"{gain('maxima', 'four groups')}; {gain('attention', 'four groups')}", otherwise=otherwise)  # fmt: skip
course.claim("flat maxima need the tokens' share of the rectangle's bytes, within 10 %",
             0.9 < saved["maxima", "flat"] * cells_per_token < 1.1,
             f"{gain('maxima', 'flat')}; {100 / cells_per_token:.0f} % of the cells", otherwise=otherwise)  # fmt: skip
course.claim("for attention, packed rows are at least twice as fast as one rectangle, with fewer bytes",
             speed["attention", "packed rows"] > 2 and saved["attention", "packed rows"] < 1,
             gain("attention", "packed rows"), otherwise=otherwise)  # fmt: skip
course.claim("for a recurrence a packed sequence needs fewer bytes than four groups",
             saved["GRU", "packed sequence"] < saved["GRU", "four groups"],
             gain("GRU", "packed sequence", "four groups"), otherwise=otherwise)  # fmt: skip

# %% [markdown]
# Flat maxima were 10.2 times as fast as one rectangle, which has 11.6 cells per token. Four groups were 4.8 times as
# fast, bucketed batches 3.6 times and nested tensors 1.9 times. For attention, packed rows were 8.4 times as fast and
# four groups 5.2 times, but nested tensors only 0.2 times. The GRU was 1.2 times as fast in four groups, and 1.1 times
# as a packed sequence, which needed the fewest bytes.
#
# **Takeaway** Measure your own batch: here flat won for maxima, packed rows for attention, and the GRU gained least.

# %% [markdown]
# ## How do you get from a padded batch to a flat one? · extra
#
# ### Exercise 2 · Flatten a batch
#
# Remove the padding of a batch.
#
# ```python
# >>> x, mask = torch.tensor([[5, 0], [3, 7]]), torch.tensor([[True, False], [True, True]])
# >>> [part.tolist() for part in flatten_batch(x, mask)]
# [[5, 3, 7], [0, 1, 3]]
# ```
#
# **Must** return the tokens row by row, and n + 1 int64 offsets: where each sequence begins, and the end.
#
# **Points** 2 · **Extra** · **Difficulty** ●○○ · **Minutes** 8 · **Lines** 3
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
# The lengths are `mask.sum(1)`. Offsets are their cumulative sum with a leading 0.
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
# ## Which tokens get the gradient of a maximum? · extra
#
# **Predict** How many per cent of the features get a gradient other than 0?

# %%
my_guess_of_nonzero = None  # per cent

# %% [markdown]
# ### Exercise 3 · Its gradient by hand
#
# Do what autograd does for exercise 1: pass the gradient of each maximum to the token that it came from.
#
# ```python
# >>> values, maxima = torch.tensor([[1.0], [5.0], [2.0]]), torch.tensor([[5.0], [2.0]])
# >>> segment_max_backward(torch.tensor([[10.0], [20.0]]), values, maxima, torch.tensor([2, 1])).int().tolist()
# [[0], [10], [20]]
# ```
#
# **Must** return the gradient of the values. Equal maxima of a sequence may share it in any way that adds up.
#
# **Points** 3 · **Extra** · **Difficulty** ●●○ · **Minutes** 15 · **Lines** 5
#
# **Source** The chain rule; compare `torch.autograd.gradcheck`.
#
# <details><summary>Hint 1</summary>
#
# What does each token compare itself with? A token may equal the maximum of *another* sequence.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `maxima.repeat_interleave(lengths, 0)` copies each maximum to the tokens of its sequence. Do the same with the
# gradient, and with the number of tokens that reach the maximum.
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
share = 100 * float((by_autograd != 0).float().mean())
print(f"{share:.0f} % of the gradient is not 0" + reveal(my_guess_of_nonzero, "{} %"))
print(f"sequences per token: {100 * len(lengths) / len(values):.0f} %")

# %% [markdown]
# **Takeaway** Without ties, a maximum passes its gradient to one token per sequence and feature. Others get 0.

# %% [markdown]
# ## Does attention on a flat batch get a fast kernel? · extra
#
# On a flat batch, a *block mask* hides all other sequences from a token. `F.scaled_dot_product_attention` takes q, k
# and v with three or four dimensions, and chooses a kernel itself.
#
# **Predict** How many per cent of the block mask of the flat batch above is True? With how many dimensions is the same
# call faster?

# %%
my_guess_of_the_share, my_guess_of_dimensions = None, None  # per cent; 3, 4 or "equal"

# %% [markdown]
# ### Exercise 4 · A block mask
#
# A token may attend only to tokens of its sequence. With `causal`, it sees only itself and earlier ones.
#
# ```python
# >>> block_mask(torch.tensor([1, 2]), causal=True).int().tolist()
# [[1, 0, 0], [0, 1, 0], [0, 1, 1]]
# ```
#
# **Must** return a bool tensor (total, total), True where the query (row) may look at the key (column).
#
# **Points** 2 · **Extra** · **Difficulty** ●○○ · **Minutes** 10 · **Lines** 5
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
# `owner[:, None] == owner[None]`. With `causal` also use `tril()`.
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
# Compute attention inside each sequence of a flat batch.
#
# ```python
# >>> q = k = torch.ones(3, 1, 1)
# >>> flat_attention(q, k, torch.tensor([[[1.0]], [[2.0]], [[4.0]]]), torch.tensor([1, 2])).flatten().tolist()
# [1.0, 3.0, 3.0]
# ```
#
# **Must** return the result for each token, flat, with gradients.
#
# **Convention** A token also attends to later tokens of its sequence. Scores are divided by √d, where d is the width of
# a head.
#
# **Points** 3 · **Extra** · **Difficulty** ●●○ · **Minutes** 15 · **Lines** 5
#
# **Source** Vaswani et al. 2017, arXiv:1706.03762, section 3.2.1.
#
# <details><summary>Hint 1</summary>
#
# In which order of dimensions does `F.scaled_dot_product_attention` want heads and tokens?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# One batch, heads first: `transpose(0, 1)[None]`, then the mask of exercise 4 as `attn_mask`, then back. Or
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
    q, k, v = (part.transpose(0, 1)[None] for part in (q, k, v))  # one batch, heads first
    return F.scaled_dot_product_attention(q, k, v, attn_mask=owner[:, None] == owner)[0].transpose(0, 1)
    ### END SOLUTION


# %% test="flat_attention-visible" points=2
check.flat_attention(flat_attention)

# %% test="flat_attention-hidden" points=1
### BEGIN HIDDEN TESTS
check.flat_attention(flat_attention, seed=8)
### END HIDDEN TESTS

# %% tags=["experiment"]
attention_now, mask_now = course.solved(check.flat_attention), course.solved(check.block_mask)
four = [part[None].detach().requires_grad_() for part in attention_model.queries_keys_values(few_values)]
three = [part[0].detach().requires_grad_() for part in four]


def block_attention(q, k, v):
    """Under a block mask."""
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask_now(few))


class Operations(TorchDispatchMode):
    """Inside `with`: `names`, the operations of torch that run."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        self.names.append(func.overloadpacket.__name__)
        return result


def kernel_of(run):
    """The attention that torch chose for `run()`; else its matrix products."""
    with Operations() as seen:
        run()
    return next((name for name in seen.names if "attention" in name or name.endswith("mm")), seen.names[-1])


mask = mask_now(few)
yours = attention_now(*(part.transpose(0, 1) for part in three), few).transpose(0, 1)
off = max((way(*four)[0] - yours).abs().max().item() for way in (nested_attention, block_attention))
course.claim("nested tensors and your block mask give what your flat attention gives", off < 1e-3,
             f"largest difference {off:.1e}")  # fmt: skip
needed, rectangle = int(mask.sum()), len(few) * int(few.max()) ** 2
print(f"pairs of tokens: needed {needed:,}, block mask {mask.numel():,}, one rectangle {rectangle:,}")
course.claim("most of the block mask is False", needed < mask.numel() / 2,
             f"{100 * needed / mask.numel():.0f} % of it is True" + reveal(my_guess_of_the_share, "{} %"),
             otherwise="Which sequences hold most of the tokens?")  # fmt: skip
by_dimensions = {
    "four": lambda: F.scaled_dot_product_attention(*four, attn_mask=mask),
    "three": lambda: F.scaled_dot_product_attention(*three, attn_mask=mask)[None],
}
dimensions = compare(by_dimensions, ())
for name, line in dimensions.items():
    ms, kernel = 1000 * statistics.median(line["seconds"]), kernel_of(by_dimensions[name])
    print(f"{name:<6} dimensions: {ms:6.1f} ms, {line['bytes'] / 1e6:5.1f} MB saved, {kernel}")
pairs = [b / a for a, b in zip(*(line["seconds"] for line in dimensions.values()), strict=True)]
course.claim("the same attention is faster with four dimensions than with three", statistics.median(pairs) > 1,
             f"{statistics.median(pairs):.1f} times" + reveal(my_guess_of_dimensions, "{}"),
             otherwise="Compare the kernels that are printed above.")  # fmt: skip

block_table = compare({
    "block mask": lambda: attend_flat(block_attention),
    "one rectangle": attention_ways["one rectangle"],
    "packed rows": attend_packed,
}, tuple(attention_model.parameters()))  # fmt: skip
masked = block_table.pop("block mask")
for name, line in block_table.items():
    times = statistics.median(a / b for a, b in zip(line["seconds"], masked["seconds"], strict=True))
    print(f"block mask: {times:.1f} times as fast as {name}, {masked['bytes'] / line['bytes']:.1f} times its bytes")

# %% [markdown]
# With three dimensions, PyTorch chose another kernel for the same numbers and the same mask. It took 2.3 times as long
# and saved 3.6 times the bytes for the backward pass. Only 5 % of the mask was True. With the block mask, attention was
# 2.0 times as fast as with one rectangle, but only 0.3 times as fast as with packed rows.
#
# **Takeaway** Pass four dimensions to `F.scaled_dot_product_attention`, and look at the kernel that you got.

# %% [markdown]
# ## Can a kernel skip the pairs that are masked? · extra
#
# FlexAttention (Dong et al. 2024, arXiv:2412.05496) divides the mask into blocks of 128 × 128 and skips those that are
# False throughout. Without CUDA it runs here uncompiled and forward only, which shows the result but not the speed. On
# CUDA the cell also times PyTorch's kernel for variable lengths.
#
# **Predict** How many per cent of the blocks can it skip for the flat batch above?

# %%
my_guess_of_skipped = None  # per cent


# %% tags=["experiment"]
def varlen_attention(q, k, v):
    """With PyTorch's kernel for variable lengths, in half precision."""
    from torch.nn.attention.varlen import varlen_attn

    half, ends, longest = torch.bfloat16, few_offsets.int(), int(few.max())
    flat = (part[0].transpose(0, 1).to(half).contiguous() for part in (q, k, v))
    return varlen_attn(*flat, ends, ends, longest, longest).to(q.dtype).transpose(0, 1)[None]


def in_blocks(owner):
    """The block mask of a flat batch as FlexAttention wants it; `owner` is the sequence of each token."""
    total = len(owner)
    return flex.create_block_mask(lambda b, h, i, j: owner[i] == owner[j], None, None, total, total, device)


on_blocks = in_blocks(owner)
try:
    with torch.no_grad():
        plain = [part.detach() for part in four]
        off = (flex.flex_attention(*plain, block_mask=on_blocks) - block_attention(*plain)).abs().max().item()
    course.claim("FlexAttention gives what the block mask gives", off < 1e-3, f"largest difference {off:.1e}")
except Exception as why:  # it needs torch.compile, which some versions of Python lack
    print(f"FlexAttention does not run here ({str(why).splitlines()[0]})")
skipped = on_blocks.sparsity()
course.claim("FlexAttention can skip more than half of the blocks", skipped > 50,
             f"{skipped:.0f} %" + reveal(my_guess_of_skipped, "{} %"),
             otherwise="How many blocks long is the flat batch?")  # fmt: skip
if device.type == "cuda":
    compiled = torch.compile(flex.flex_attention)
    asked = {"varlen": varlen_attention, "FlexAttention": lambda q, k, v: compiled(q, k, v, block_mask=on_blocks)}
    kernels = {"block mask": functools.partial(attend_flat, block_attention)}
    for name, attention in asked.items():
        try:
            attend_flat(attention).sum().backward()
            kernels[name] = functools.partial(attend_flat, attention)
        except Exception as why:  # no Triton, an older GPU, torch before 2.10: the compiler raises errors of its own
            print(f"left out: {name} ({str(why).splitlines()[0]})")
    timed = compare(kernels, tuple(attention_model.parameters()))
    masked = timed.pop("block mask")
    for name, line in timed.items():
        times = statistics.median(a / b for a, b in zip(masked["seconds"], line["seconds"], strict=True))
        course.claim(f"{name} is faster than the block mask", times > 1, f"{times:.1f} times", otherwise=otherwise)

# %% [markdown]
# **Takeaway** FlexAttention can skip 75 % of the blocks of this batch. Time it on a GPU to see what that saves.

# %% [markdown]
# ## On your own training
#
# **How much of your own batches is padding?**
#
# The cell looks for padding in a few batches, as `course checkup` does. Replace `my_loader` with your own loader. Its
# batches may be tuples with a mask, or rows that end in padding.
#
# **Predict** How many cells per token would batches of similar lengths have?

# %%
my_guess_of_bucketed = None

# %% tags=["experiment"]
my_loader = [
    pad_now(*sequences.collate([drawn[i] for i in batch.tolist()])[:2])
    for batch in torch.arange(len(drawn)).split(size.batch_size)
]
found = padding_of(itertools.islice(my_loader, 32))
if found:
    print(f"{found['sequences']} sequences: {found['waste']:.1f} cells per token, {found['bucketed']:.2f} if similar"
          " lengths were batched" + reveal(my_guess_of_bucketed))  # fmt: skip
else:
    print("no padding was found in these batches")

# %% [markdown]
# `course checkup train.py` does this and more for a whole training script.
#
# **Takeaway** A few batches of your own loader show how many cells you could save.
#
# ### Question · Your data
#
# Think of ragged data that you would like to work with. Which way would you take for training, and which for inference?
# Which numbers would you compute first, and which claims of this unit would you test again? (10 to 15 sentences, about
# 20 minutes, extra.)

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
# ## What to measure, what to change
#
# | symptom | measurement | fix | part |
# |---|---|---|---|
# | a few batches run out of memory | `padding_waste` of your lengths | batches by a budget of cells | 3 |
# | a fixed batch is mostly padding | cells per token | four groups | 2 |
# | bucketed batches raise the loss | does the label depend on the length? | smaller windows, shuffled batches | 3 |
# | ranks wait for each other | cells per rank and step | balance cells between ranks | 3 |
# | masked attention is slow | the kernel's name | four dimensions, packed rows, groups | 4 |
