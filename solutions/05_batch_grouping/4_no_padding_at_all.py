# %% [markdown]
# # Batch grouping, part 4: Pack sequences, and compute without padding
#
# **Does a batch have to be a rectangle?**
#
# Embeddings and linear maps treat every token by itself. So they can run on a *flat* batch, which is the tokens of all
# sequences in a row, without padding. Layers that combine tokens must know where a sequence ends.
#
# Libraries for language models call such batches *packed* or *padding-free*. You pack a batch, test that the model
# computes the same, and measure whether packing saves time and memory.
#
# **You will be able to**
#
# - pack sequences, so that neither attention nor positions cross a border;
# - test that a packed model has the loss and the gradients of the padded one;
# - choose a way to batch sequences by model, device and spread of lengths.
#
# **Minutes** 38 core · 106 in all · session 2
#
# **Needs** `BucketBatchSampler` of part 3 and `pad_batch` of part 1


# %% locked="setup"
import math
from functools import partial

import torch
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence

import course
from course.checks import batch_grouping as check
from course.datasets import sequences
from course.measure.comparison import compare
from course.plots import batch_grouping as plots
from course.training import attention_ways, grouping
from course.training import ragged_transformer as ragged
from course.training.epoch_in_four_ways import EpochInFourWays
from course.training.recommender_loop import keep_freed_memory
from course.training.token_models import TokenPool

attention_ways.hide_prototype_warnings()
# else each step of the rectangle waits for new memory pages: it would look slower than it is
keep_freed_memory()
print(course.machine())
size = course.sizes("05_batch_grouping")
device = course.device()
texts = sequences.text(size.text_rows, 0)
print(f"{len(texts):,} texts of 1 to {int(texts.lengths.max())} tokens")

# %% [markdown]
# ## What must a flat batch know?
#
# A flat batch has no padding, but its tokens alone do not show where a sequence ends. The figure shows five sequences,
# padded and flat. On the right are all pairs of tokens of the flat batch. Attention needs only the dark pairs, and a
# causal model only the dark pairs on the diagonal or below it.

# %%
plots.flat_and_blocks(torch.tensor([2, 7, 1, 4, 3]))

# %% [markdown]
# This flat batch has fewer cells but more pairs than the padded one, because all its tokens are in one row. A mask
# hides the pairs of different sequences.
#
# ### Exercise 1 · Pack
#
# Join the sequences of a batch. The model adds a code of its position to each token, so positions must start again in
# each sequence. Kernels for variable lengths take the *cumulative sequence lengths*, called `cu_seqlens` in
# flash-attn.
#
# ```python
# >>> [part.tolist() for part in pack([torch.tensor([5, 3, 4]), torch.tensor([7])])]
# [[5, 3, 4, 7], [0, 1, 2, 0], [0, 3, 4]]
# ```
#
# **Must**
#
# - return `(tokens, positions, cu_seqlens)`, with the tokens in the given order and the position of each token in its
#   sequence;
# - make `cu_seqlens` n + 1 numbers as int32, which say where each sequence begins and where the last one ends.
#
# **Points** 3 · **Core** · **Difficulty** ●●○ · **Minutes** 12 · **Lines** 5
#
# **You may assume** at least one sequence, and at least one token in each.
#
# **Source** The arguments of `flash_attn_varlen_func` (library flash-attn, version 2) and of
# `torch.nn.attention.varlen.varlen_attn`.
#
# <details><summary>Hint 1</summary>
#
# What are the positions of one sequence of n tokens? How do you join those of several?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `torch.cat` joins the tokens. It also joins one `torch.arange(n)` per sequence to the positions. The borders are
# `torch.tensor([0, *lengths]).cumsum(0)`, and `.int()` makes them int32.
#
# </details>


# %% solution="pack"
def pack(sequences):
    """A flat batch.

    Args:
        sequences: list of int64 tensors (length,), all on one device.

    Returns: (tokens int64 (total,), positions int64 (total,), cu_seqlens int32 (n + 1,)).
    """
    ### BEGIN SOLUTION
    tokens = torch.cat(list(sequences))
    lengths = torch.tensor([len(sequence) for sequence in sequences], device=tokens.device)
    ends = lengths.cumsum(0)
    begins = (ends - lengths).repeat_interleave(lengths)
    positions = torch.arange(len(tokens), device=tokens.device) - begins
    return tokens, positions, F.pad(ends, (1, 0)).int()
    ### END SOLUTION


# %% test="pack-visible" points=2
check.pack(pack)

# %% test="pack-hidden" points=1
### BEGIN HIDDEN TESTS
check.pack(pack, seed=17)
### END HIDDEN TESTS

# %% [markdown]
# ### Exercise 2 · A block mask
#
# A token may attend only to tokens of its own sequence. With `causal`, it may attend only to itself and earlier ones.
# Build this mask of all pairs from the lengths, without a loop over sequences. `torch.repeat_interleave` gives each
# token the number of its sequence.
#
# ```python
# >>> block_mask(torch.tensor([1, 2]), causal=True).int().tolist()
# [[1, 0, 0], [0, 1, 0], [0, 1, 1]]
# ```
#
# **Must** return a bool tensor (total, total), True where the query (row) may look at the key (column).
#
# **Points** 2 · **Core** · **Difficulty** ●○○ · **Minutes** 10 · **Lines** 5
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
# **Takeaway** On a flat batch, this transformer must know two things about each token: its position, and which tokens
# belong to the same sequence.

# %% [markdown]
# ## Is it still the same model?
#
# A mistake in packing may raise no error, so you need a test. One model computes the same texts twice in float64,
# padded and packed into a single row. You compare the sum of all losses, and its gradient. Then you try two mistakes:
#
# - `positions` run on through the row;
# - `borders` are open, so attention looks back into earlier sequences.

# %% tags=["experiment"]
pack_now = course.solved(check.pack)
mask_now = course.solved(check.block_mask)
torch.manual_seed(0)
exact = ragged.RaggedTransformer(texts.vocabulary, size.training_dim, size.training_layers)
exact = exact.double().to(device)
members = [texts[i][0].to(device) for i in range(16)]
padded_sum = ragged.padded_losses(exact, members)[0].sum()

packed, positions, cu_seqlens = pack_now(members)
lengths_in_row = cu_seqlens.diff().long()
targets = ragged.targets_of(packed, lengths_in_row)
closed_borders = mask_now(lengths_in_row, causal=True)
open_borders = torch.ones_like(closed_borders).tril()
run_on = torch.arange(len(packed), device=device)


def sum_of_row(positions, mask):
    """The sum of all losses of the packed row."""
    scores = exact(packed[None], positions, mask[None])
    return ragged.losses_of(scores, targets[None]).sum()


# %% tags=["experiment"]
sums = {
    "yours": sum_of_row(positions, closed_borders),
    "positions": sum_of_row(run_on, closed_borders),
    "borders": sum_of_row(positions, open_borders),
}
off = {}  # relative difference from the padded batch
for name, loss in sums.items():
    off[name] = ((loss - padded_sum).abs() / padded_sum).item()
gradient = ragged.gradient_of(exact, sums["yours"])
expected = ragged.gradient_of(exact, padded_sum)
off_gradient = ((gradient - expected).norm() / expected.norm()).item()

is_same = off["yours"] < 1e-12
is_same_gradient = off_gradient < 1e-10
is_other = min(off["positions"], off["borders"]) > 1e-6
course.claim(
    "your packed row has the loss of the padded batch, to twelve digits",
    is_same,
    f"{off['yours']:.0e} off",
)
course.claim(
    "your packed row has the gradient of the padded batch, to ten digits",
    is_same_gradient,
    f"{off_gradient:.0e} off",
)
course.claim(
    "a packed row whose positions run on, or whose borders are open, has another loss",
    is_other,
    f"{off['positions']:.0e} and {off['borders']:.0e} off",
)

# %% [markdown]
# **Shown** Either mistake alone changes the loss, and no error is raised. Only the padded loss next to it shows it.
#
# **Takeaway** Before you train a packed model, compare its loss and gradient with those of a padded batch, in float64.
#
# <details><summary>What changes with rotary positions?</summary>
#
# **Known** Rotary position embeddings (Su et al. 2021, arXiv:2104.09864) tell attention only the distance between two
# positions. So positions may run on, but borders must still be closed.
#
# </details>

# %% [markdown]
# ## Is packing faster than bucketing?
#
# Your sampler of part 3 removes most of the padding, too. So you compare four ways to compute all texts of an epoch,
# forward and backward. First you count their cells and pairs.
#
# | way | what it computes |
# |---|---|
# | random batches | a rectangle per batch of shuffled texts |
# | bucketed batches | a rectangle per batch of your sampler, with windows of 50 |
# | flat | each random batch as one long row, under your block mask |
# | packed rows | each random batch in short rows of one length, filled with whole texts, under their block masks |

# %% tags=["experiment"]
make_sampler = course.solved(check.BucketBatchSampler)
epoch = EpochInFourWays(texts, make_sampler, pack_now, mask_now, size, device)
n_tokens = int(texts.lengths.sum())
cells = {}  # per token
pairs = {}
for way in epoch.ways:
    cells[way] = epoch.cells(way) / n_tokens
    pairs[way] = epoch.pairs(way) / n_tokens
    print(f"{way:<17} {cells[way]:4.2f} cells and {pairs[way]:4.0f} pairs per token")

# %% [markdown]
# Linear maps compute every cell. Attention under a dense mask computes every pair of cells in a row, hidden ones
# included. A padded batch needs no such mask, and its causal kernel skips blocks of pairs with later tokens (**Known**:
# Dao 2023, arXiv:2307.08691, section 3.1). So the cell above counts about half of the pairs there.
#
# **Predict** How many times as fast as bucketed batches are packed rows? Does the time follow the cells printed above?
# Does it follow the pairs? Or does it lie between the two?

# %%
my_guess_for_packed_rows = None  # times as fast as bucketed batches

# %% [markdown]
# The shuffle decides which texts share a batch. So each round of the comparison computes a whole epoch in each way,
# with another shuffle.

# %% tags=["experiment"]
model = ragged.RaggedTransformer(texts.vocabulary, size.text_dim, size.text_layers).to(device)
largest = {}  # bytes for backward of the batch that keeps most
gradients = {}
for way in epoch.ways:
    largest[way] = epoch.bytes_of_largest(way, model)
    gradients[way] = partial(epoch.backward, way, model)
timed = compare(gradients, device=device, before_round=epoch.shuffle, seconds=12 * size.seconds)
plots.time_and_memory({"transformer": (timed, largest)})

# %% tags=["experiment"]
print(timed)

over_bucketed = timed.ratio("packed rows", to="bucketed batches")
by_cells = cells["bucketed batches"] / cells["packed rows"]
by_pairs = pairs["bucketed batches"] / pairs["packed rows"]
what = "packed rows over bucketed batches"
print(f"{what}: {by_cells:.2f} by cells, {by_pairs:.2f} by pairs, {over_bucketed} by time")
print(course.score("05/4", what, my_guess_for_packed_rows, over_bucketed))

course.claim(
    "packed rows are at least twice as fast as random padded batches",
    timed.ratio("packed rows"),
    above=2,
    otherwise="Packed rows have fewer cells, but also hidden pairs and masks.",
)
course.claim(
    "packed rows are at least 10 % faster than the bucketed batches of your sampler",
    over_bucketed,
    above=1.1,
    otherwise="Both leave little padding, and packed rows have more pairs.",
)
course.claim(
    "packed rows are at least 10 % faster than one flat row under a block mask",
    timed.ratio("packed rows", to="flat"),
    above=1.1,
)

# %% [markdown]
# The memory is what the largest batch keeps for the backward pass. A bucket of long texts can be as large as a random
# batch, so bucketing need not lower this maximum.
#
# Bucketed batches leave little padding, too. They have fewer pairs and no dense mask, so packed rows need not be
# faster. But a packed batch stays a random sample, because it holds the texts of a random batch. So its updates are
# those of random batches, not those of windows in part 3.
#
# **Takeaway** Packing removes padding without choosing which texts meet. Under a dense mask, compare short rows with
# one long row.
#
# <details><summary>When may a row be long?</summary>
#
# Where the flat row is slower than short rows, **we think** that its hidden pairs are the reason. To test this, pack
# twice as many texts into as many rows of twice the length, and compare the tokens per second.
#
# **Known** Kernels for variable lengths skip the pairs of different sequences (`flash_attn_varlen_func` of the library
# flash-attn). With such a kernel a row may be long. An extra section tries the one of PyTorch.
#
# </details>
#
# You can read the extra sections in any order, except that the one on masked pairs continues the one on kernels. If
# you have time for one only, count your own data in "How much could your own data save?".

# %% [markdown]
# ## Do maxima need a rectangle? · extra
#
# ### Exercise 3 · The maximum of each sequence
#
# `TokenPool` has no attention, so it needs no mask of pairs. Only its maximum must know where a sequence ends. Take
# the maximum over the tokens of each sequence of a flat batch, for each feature. `Tensor.scatter_reduce` takes maxima
# by an index, and `torch.segment_reduce` by lengths.
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
# **Points** 3 · **Extra** · **Difficulty** ●●○ · **Minutes** 12 · **Lines** 5
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
# `torch.arange(n).repeat_interleave(lengths)` gives each token the number of its sequence. `scatter_reduce(0, index,
# values, "amax")` on a tensor of −∞ takes maxima by an index of the values' shape. `torch.segment_reduce(values,
# "max", lengths=lengths)` needs no index.
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
    numbers = torch.arange(len(lengths), device=values.device)
    owner = numbers.repeat_interleave(lengths, output_size=len(values))
    shape = (len(lengths), values.shape[1])
    lowest = torch.full(shape, -math.inf, dtype=values.dtype, device=values.device)
    return lowest.scatter_reduce(0, owner[:, None].expand_as(values), values, "amax")
    ### END SOLUTION


# %% test="segment_max-visible" points=2
check.segment_max(segment_max)

# %% test="segment_max-hidden" points=1
### BEGIN HIDDEN TESTS
check.segment_max(segment_max, seed=1990)
### END HIDDEN TESTS

# %% tags=["experiment"]
drawn = sequences.load("lognormal", rows=size.rows_of_groups)
values, lengths, _ = sequences.collate(list(drawn), device)
pad_now = course.solved(check.pad_batch)
segment_now = course.solved(check.segment_max)
pool = TokenPool(sequences.VOCABULARY, size.u_dim, size.u_dim).to(device)


def on_rectangle():
    """Scores of the padded batch."""
    return pool(*pad_now(values, lengths))


def on_flat():
    """Scores of the flat batch."""
    return pool.score(segment_now(pool.features(values), lengths))


# %% tags=["experiment"]
off_maxima = (on_flat() - on_rectangle()).abs().max().item()
kept_flat = grouping.bytes_for_backward(on_flat, pool.parameters())
kept_padded = grouping.bytes_for_backward(on_rectangle, pool.parameters())
share = kept_flat / kept_padded
tokens_share = int(lengths.sum()) / (len(lengths) * int(lengths.max()))
is_equal = off_maxima < 1e-5
is_share = abs(share / tokens_share - 1) < 0.1
course.claim(
    "the flat model gives the scores of the padded one",
    is_equal,
    f"largest difference {off_maxima:.1e}",
)
course.claim(
    "flat maxima need the tokens' share of the rectangle's bytes, within 10 %",
    is_share,
    f"{100 * share:.0f} % of the bytes, {100 * tokens_share:.0f} % of the cells",
)


# %% tags=["experiment"]
def backward_of_scores(scores):
    """Compute the gradient of the sum of `scores()`."""
    scores().sum().backward()


ways = {
    "one rectangle": partial(backward_of_scores, on_rectangle),
    "flat": partial(backward_of_scores, on_flat),
}
maxima = compare(ways, device=device, seconds=2 * size.seconds)
course.claim(
    "flat maxima are at least twice as fast as those of one rectangle",
    maxima.ratio("flat"),
    above=2,
)

# %% [markdown]
# Recurrent layers can pack, too. With `pack_padded_sequence`, each sequence leaves the computation where it ends.

# %% tags=["experiment"]
gru = torch.nn.GRU(16, 16, batch_first=True).to(device)
steps_in = torch.randn(len(lengths), int(lengths.max()), 16, device=device)
on_cpu = lengths.cpu()
thresholds = grouping.greedy_thresholds(on_cpu, 4)
groups = grouping.split_by_length([torch.arange(len(on_cpu))], on_cpu, thresholds)


def as_packed_sequence():
    """Run the layer without padding."""
    gru(pack_padded_sequence(steps_in, on_cpu, batch_first=True, enforce_sorted=False))


def in_groups():
    """Run the layer on a rectangle per group."""
    return [gru(steps_in[group, : int(on_cpu[group].max())]) for group in groups]


kept_packed = grouping.bytes_for_backward(as_packed_sequence, gru.parameters())
kept_groups = grouping.bytes_for_backward(in_groups, gru.parameters())
is_fewer = kept_packed < kept_groups
course.claim(
    "for a recurrence a packed sequence needs fewer bytes than four groups",
    is_fewer,
    f"{kept_packed / 1e6:.1f} against {kept_groups / 1e6:.1f} MB",
)

# %% [markdown]
# The claim compares bytes, not times, and only with four groups.
#
# **Takeaway** A maximum needs no rectangle. It only needs to know to which sequence each token belongs.

# %% [markdown]
# ## Does attention on a flat batch get a fast kernel? · extra
#
# You write attention on flat batches, then compare which kernels `F.scaled_dot_product_attention` chooses for it. It
# accepts q, k and v as (batch, heads, tokens, d) or (heads, tokens, d).
#
# ### Exercise 4 · Attention on flat batches
#
# Compute attention inside each sequence of a flat batch, with `F.scaled_dot_product_attention` and a mask, or with
# nested tensors.
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
# In which order does `F.scaled_dot_product_attention` expect heads and tokens?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Make one batch with the heads first, `transpose(0, 1)[None]`, pass your block mask as `attn_mask`, and undo the
# transpose afterwards. Or `torch.nested.nested_tensor_from_jagged(q.contiguous(), offsets).transpose(1, 2)` for each
# of the three, and afterwards `.transpose(1, 2).values()`.
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
    return F.scaled_dot_product_attention(q, k, v, attn_mask=owner[:, None] == owner)[0].transpose(
        0, 1
    )
    ### END SOLUTION


# %% test="flat_attention-visible" points=2
check.flat_attention(flat_attention)

# %% test="flat_attention-hidden" points=1
### BEGIN HIDDEN TESTS
check.flat_attention(flat_attention, seed=8)
### END HIDDEN TESTS

# %% tags=["experiment"]
flat_now = course.solved(check.flat_attention)
block_now = course.solved(check.block_mask)
few = sequences.load("lognormal", rows=size.attention_rows).lengths.to(device)
offsets = F.pad(few.cumsum(0), (1, 0))
qkv = attention_ways.drawn(int(few.sum()), 4, size.attention_dim // 4, device)
seen = block_now(few)
under_mask = attention_ways.masked(seen)
on_nested = attention_ways.nested(offsets)

tokens_first = [part[0].transpose(0, 1) for part in qkv]  # (total, heads, d)
yours = flat_now(*tokens_first, few).transpose(0, 1)[None]
off_kernels = 0.0
for attention in (under_mask, on_nested):
    difference = (attention(*qkv) - yours).abs().max().item()
    off_kernels = max(off_kernels, difference)
is_equal = off_kernels < 1e-3
is_sparse = int(seen.sum()) < seen.numel() / 2
course.claim(
    "nested tensors and your block mask give what your flat attention gives",
    is_equal,
    f"largest difference {off_kernels:.1e}",
)
course.claim(
    "most of the block mask is False",
    is_sparse,
    f"{100 * float(seen.float().mean()):.0f} % of it is True",
)

# %% tags=["experiment"]
three = [part[0].detach().requires_grad_() for part in qkv]  # (heads, total, d)
by_dimensions = {
    "three": attention_ways.backward_of(under_mask, three),
    "four": attention_ways.backward_of(under_mask, qkv),
    "nested": attention_ways.backward_of(on_nested, qkv),
}
by_shape = compare(by_dimensions, device=device, seconds=2 * size.seconds)
chosen = {name: attention_ways.kernel_of(run) for name, run in by_dimensions.items()}
print(chosen)
course.claim(
    "the same attention is faster with four dimensions than with three",
    by_shape.ratio("four"),
    above=1,
)
course.claim(
    "attention on nested tensors is faster than under the block mask",
    by_shape.ratio("nested", to="four"),
    above=1,
    otherwise="Without a fused kernel for nested tensors, attention is written out.",
)

# %% [markdown]
# The cell prints which implementation PyTorch chose for each. `attention_math` means that attention was written out.
#
# **Shown** The calls with three and four dimensions differ only in the shape of their arguments. **Known** For nested
# tensors on a CPU, PyTorch splits the batch into its sequences and takes the `math` path
# (`torch/nested/_internal/sdpa.py`).
#
# **Takeaway** The shape of the arguments can decide which kernel runs. Print its name, and time it on your device.

# %% [markdown]
# ## Can a kernel skip the pairs that are masked? · extra
#
# Most of a block mask is False, so a kernel that skips these pairs could save most of the work. FlexAttention (Dong et
# al. 2024, arXiv:2412.05496) divides the mask into blocks of 128 × 128 and skips blocks that are False throughout.
#
# The next cell runs it uncompiled and forward only, which shows its result but not its speed. On CUDA the cell after
# it times the block mask, FlexAttention and PyTorch's kernel for variable lengths. That kernel takes cumulative
# lengths like your `cu_seqlens`. It needs half precision, so all three get the same tensors in bfloat16.

# %% tags=["experiment"]
owner = torch.arange(len(few), device=device).repeat_interleave(few)
result = attention_ways.flexible_forward(owner, qkv)
if isinstance(result, str):
    print(f"FlexAttention does not run here ({result})")
else:
    off_flex = (result - under_mask(*qkv)).abs().max().item()
    is_equal = off_flex < 1e-3
    course.claim(
        "FlexAttention gives what the block mask gives",
        is_equal,
        f"largest difference {off_flex:.1e}",
    )
skipped = attention_ways.blocks_of(owner).sparsity()
is_half = skipped > 50
course.claim("FlexAttention can skip more than half of the blocks", is_half, f"{skipped:.0f} %")

# %% tags=["experiment"]
halves = attention_ways.in_bfloat16(qkv)
kernels = attention_ways.fast_kernels(halves, offsets)
missing = {name: why for name, why in kernels.items() if isinstance(why, str)}
print(missing or "both kernels run here")

ways = {"block mask": attention_ways.backward_of(under_mask, halves)}
for name, run in kernels.items():
    if name not in missing:
        ways[name] = run
times_as_fast = {"varlen": None, "FlexAttention": None}
if len(ways) > 1:
    compared = compare(ways, device=device)
    for name in ways.keys() - {"block mask"}:
        times_as_fast[name] = compared.ratio(name)

course.claim(
    "in bfloat16 varlen is faster than the block mask",
    times_as_fast["varlen"],
    above=1,
)
course.claim(
    "in bfloat16 FlexAttention is faster than the block mask",
    times_as_fast["FlexAttention"],
    above=1,
)

# %% [markdown]
# **Takeaway** The mask tells you how many blocks a kernel can skip, but not how much time that saves. Time the kernel
# on your GPU, with batches of your size.

# %% [markdown]
# ## How often does the compiler start again? · extra
#
# `torch.compile` compiles a graph for the shapes that it sees, which takes time, and padded batches have many widths.
# The argument `dynamic` decides what happens at a new width:
#
# - with `False`, each new width gets another graph;
# - with `None`, the default, a size that has changed becomes dynamic;
# - with `True`, sizes are dynamic from the start.
#
# Where shapes must be static, as in CUDA graphs, you can pad each batch to the next of k *edges*. The cell counts the
# graphs of the forward pass, but does not compile them to machine code. It raises the limit of graphs after which
# PyTorch stops compiling.
#
# **How many graphs does the default make for all batches of an epoch?**

# %% tags=["experiment"]
sampler = make_sampler(texts.lengths, size.training_batch, 50)
widths = []
for batch in sampler:
    if len(batch) == size.training_batch:
        widths.append(int(texts.lengths[batch].max()))
edges = torch.tensor(grouping.greedy_thresholds(texts.lengths, 8))
widths_at_edges = edges[torch.bucketize(torch.tensor(widths), edges)].tolist()
choices = {
    "False": (widths, False),
    "None": (widths, None),
    "True": (widths, True),
    "False, 8 edges": (widths_at_edges, False),
}

small = ragged.RaggedTransformer(texts.vocabulary, 8, 1)
graphs = {}
for name, (columns, dynamic) in choices.items():
    inputs = [(torch.zeros(2, n, dtype=torch.int64), torch.arange(n)) for n in columns]
    graphs[name] = ragged.graphs_compiled(small, inputs, dynamic)
    times_the_cells = sum(columns) / sum(widths)
    counted = f"{graphs[name]} graphs for {len(columns)} batches"
    print(f"dynamic={name:<15} {counted}, {times_the_cells:.2f} times the cells")
is_small = graphs["None"] <= 3 < graphs["False"]
course.claim(
    "by default torch.compile makes at most three graphs for all widths of an epoch",
    is_small,
    f"{graphs['None']} graphs; {graphs['False']} with dynamic=False",
)

# %% [markdown]
# Packed batches have several shapes, too, because they differ in their number of rows.
#
# **Takeaway** Count your graphs before you change `dynamic`. Where shapes must be static, a few edges bound their
# number.

# %% [markdown]
# ## How much could your own data save? · extra
#
# Replace `my_lengths` with the lengths of your own data set. Take the whole set, because a few batches cannot show
# what windows of many batches save. The cell fills packed rows of twice the longest length from the whole set.

# %% tags=["experiment"]
my_lengths = texts.lengths
my_batch_size = 32

for window in (1, 50):
    waste = grouping.waste_of(make_sampler(my_lengths, my_batch_size, window), my_lengths)
    print(f"windows of {window:>2}: {waste:.2f} cells per token")
row_length = 2 * int(my_lengths.max())
rows = grouping.best_fit(my_lengths, row_length)
waste_of_rows = row_length * len(rows) / int(my_lengths.sum())
print(f"packed rows of twice the longest: {waste_of_rows:.2f} cells per token")

# %% [markdown]
# **Takeaway** Count cells for your lengths before you build anything.
#
# ### Question · Your data
#
# Think of sequences of varying length that you would like to work with. How would you batch them for training, and how
# for inference? Which numbers would you compute first, and which claims of this unit would you test again? (10 to 15
# sentences, about 20 minutes, extra.)

# %% [markdown] answer="your_data" points=4
# ### BEGIN SOLUTION
# A good answer names the data and its lengths (median, longest, their ratio), computes the waste for the intended
# batch size first, and argues from it. It separates training from inference: bucketing changes which samples meet in a
# batch and so may change training, while inference may sort freely. It asks whether the model mixes tokens, and
# whether kernels for lengths exist on the device. It names claims that depend on the machine (overhead per group,
# speed of scattered maxima) and on the data (label related to length), and says how to measure them: paired, warmed
# up, synchronised.
#
# One point each: waste computed from lengths · method argued from model and data · training against inference · what
# must be measured again.
# ### END SOLUTION

# %% [markdown]
# ## Which way fits your data?
#
# A quoted claim is the evidence for its line. Its numbers are above, or in the part that is named. A line without a
# claim rests on what you counted and measured in that part.
#
# - **Nearly equal lengths**: pad. Count cells per token first (part 1).
# - **A transformer, on CUDA with a kernel for variable lengths**: pack, and pass `cu_seqlens`. In Hugging Face
#   transformers, `DataCollatorWithFlattening` makes such batches. "in bfloat16 varlen is faster than the block mask",
#   for attention alone. If that claim shows no number, run it on a GPU first.
# - **A transformer, without such a kernel**: bucketed batches, or short packed rows if texts should meet at random.
#   "packed rows are at least twice as fast as random padded batches". Take buckets unless this claim holds on your
#   device: "packed rows are at least 10 % faster than the bucketed batches of your sampler".
# - **A maximum over tokens**: flat. "flat maxima are at least twice as fast as those of one rectangle". Groups and
#   buckets were not compared here.
# - **A recurrence that needs too much memory**: a packed sequence. "for a recurrence a packed sequence needs fewer
#   bytes than four groups".
# - **A fixed batch where the saved cells cost more than the added calls**: a few groups (part 2).
# - **A target that follows the length**: pack, or accumulate over buckets. "after equally many updates, accumulated
#   windows end below plain windows" (part 3).
# - **Several ranks**: balance cells, or use a budget. "with a budget ranks wait for a smaller share of their time than
#   with random or bucketed batches" (part 3).

# %% [markdown]
# ## How good was your intuition?
#
# The list has the predictions of the parts that you have run.

# %%
course.calibration("05")
