# %% [markdown]
# # Batch grouping, part 1: See what padding costs
#
# **How much of a batch is padding, and what does it cost?**
#
# Sentences, purchases, protein chains and sensor logs come in every length. A tensor is a rectangle, so short
# sequences are padded to the longest of their batch. The model computes on the padding, and autograd stores it, as if
# it were data. In this part you build padded batches, compute their waste, and measure how much time and memory it
# takes. Then you find out why the second training of a published demonstration trains nothing.
#
# Predict first (fill in the cells with `None`), then solve, check, measure. Later cells use your answers once their
# checks pass, and the reference otherwise.
#
# **You will be able to**
#
# - compute the padding waste of any data set, order and batch size before you train on it;
# - write a model whose result does not depend on padding;
# - count the bytes that autograd keeps for backward, on any device;
# - notice when a training changes no parameter, and time one that does.
#
# **Minutes** 36 core · 110 in all
#
# **Needs** nothing


# %% locked="setup"
import json
import statistics
import subprocess
import sys
import time

import torch

import course
from course.checks import batch_grouping as check
from course.datasets import sequences
from course.learner.predictions import reveal
from course.plots import batch_grouping as plots
from course.training import grouping
from course.training.token_models import TokenAttention, TokenPool, attention_written_out

print(course.machine())
size, device = course.sizes("05_batch_grouping"), course.device()

# %% [markdown]
# ## A rectangle around ragged data
#
# **A padded batch has a row per sequence and as many columns as its longest sequence has tokens.**
#
# A *cell* is a place in this rectangle: it holds a token or padding. The *waste* of a batch is its number of cells per
# token; 1.0 means that there is no padding.
#
# We use three sets. `demo` is drawn as in a public demonstration of batch grouping
# ([asym](https://github.com/daeseoklee/asym)): lengths 1, 4, 16 and 64, with frequencies proportional to 1/length. In
# `lognormal` the logarithm of the length is normally distributed: many short sequences and a few long ones.
# `histories` holds the films that each MovieLens user rated (or invented ratings with similar lengths, if the real ones
# are not prepared).

# %%
sets = {name: sequences.load(name) for name in sequences.NAMES}
for name, found in sets.items():
    low, middle, high = (int(found.lengths.float().quantile(q)) for q in (0, 0.5, 1))
    print(f"{name:<10} {len(found):>6,} sequences, {len(found.values):>8,} tokens, length {low} / {middle} / {high}")

# %% tags=["experiment"]
some = sets["lognormal"].lengths[:24]
plots.padding_cells({"before padding": list(some.split(1)), "padded": some})

# %% [markdown]
# On the left each sequence stands alone; on the right they form one batch. One long sequence widens all rows.
#
# **Predict**: take `demo` in batches of 256, in the order of the set. How many cells per token do they have?

# %%
my_guess_of_waste = None  # e.g. 3.0

# %% [markdown]
# ### Exercise 1 · Pad a batch
#
# Build the rectangle from a flat batch: the tokens of all sequences, one after the other, and their lengths.
#
# **Must**
# - return `(x, mask)`, both with a row per sequence and a column per token of the longest sequence;
# - `x` holds the tokens of a sequence from the left, then zeros; `mask` (bool) is True where a token stands;
# - use no loop over sequences, `split` or `pad_sequence`.
#
# **You may assume** valid input: the given line refuses an empty batch and a length of 0.
#
# **Points** 3 · **Core** · **Difficulty** ●●○ · **Minutes** 14 · **Lines** 4
#
# **Convention** Padding is 0, and so is one of the tokens; only the mask tells them apart.
#
# **Source** The collate function of asym's demonstration, without its loop over samples.
#
# <details><summary>Hint 1</summary>
#
# Sequence 3 has 5 tokens. Which columns of row 3 hold them? Can you write that as a comparison?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `torch.arange(longest) < lengths[:, None]` is the mask. Its True places, read row by row, are in the same order as the
# flat tokens.
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
    grouping.check_lengths(lengths)  # refuses an empty batch and a length of 0
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
# Compute the waste of an epoch from the lengths alone. It tells how much padding there will be before you train.
#
# **Must**
# - cut the epoch into batches of `batch_size` in the given order; the last may be smaller;
# - pad each batch to its own longest sequence;
# - return the cells of all batches, divided by all tokens, as a Python float.
#
# **You may assume** valid input: the given line refuses empty sets, lengths of 0, batch sizes below 1.
#
# **Points** 2 · **Core** · **Difficulty** ●○○ · **Minutes** 8 · **Lines** 3
#
# **Convention** A waste of 2.0 means that half of the cells are padding.
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
        order: int64 tensor (n,), which sequence comes when; None for the order of the set.

    Returns: a Python float, at least 1.
    """
    grouping.check_lengths(lengths, batch_size=batch_size)  # refuses an empty set, a length of 0, a batch size of 0
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

# %%
waste_now = course.solved(check.padding_waste)
waste = waste_now(sets["demo"].lengths, 256)
print(f"batches of 256 have {waste:.1f} cells per token" + reveal(my_guess_of_waste))

# %% [markdown]
# **Predict**: for which of the three sets does the waste change most with the batch size: "demo", "lognormal" or
# "histories"?

# %%
my_guess_of_change = None

# %% tags=["experiment"]
batch_sizes = [2**k for k in range(11)]
curves = {name: [waste_now(s.lengths, b) for b in batch_sizes] for name, s in sets.items()}
plots.waste_against_batch(batch_sizes, curves)

# %% tags=["experiment"]
growth = {name: curve[8] / curve[2] for name, curve in curves.items()}
for name, times in growth.items():
    course.claim(
        f"{name}: batches of 256 waste more than batches of 4",
        times > 1,
        f"{times:.2f} times the cells",
        otherwise="The lengths are nearly equal: padding costs this data little.",
    )
print("the waste changes most for", max(growth, key=growth.get) + reveal(my_guess_of_change))
bound = {name: float(s.lengths.max() / s.lengths.float().mean()) for name, s in sets.items()}
worst = max(curve[-1] / bound[name] for name, curve in curves.items())
course.claim("no batch size wastes more than longest / mean length", worst <= 1.0001, f"at most {worst:.3f} of it")

# %% [markdown]
# A larger batch is more likely to hold a long sequence, so the waste grows with the batch size. It cannot exceed the
# longest length of the set divided by the mean length: then every row is as wide as the longest sequence.

# %% [markdown]
# ## What the model does with padding
#
# **A result must not depend on the padding, but time and memory do.**
#
# The model of the demonstration: embedding → linear map → maximum over the sequence → a score. `TokenPool` holds
# the layers: `model.features(tokens)` applies the first two to tokens of any shape; `model.score(pooled)` applies the
# last one to maxima (n, hidden) and gives scores (n,).

# %% [markdown]
# ### Exercise 3 · Forward on a padded batch
#
# Score every row of a padded batch, so that each sequence gets the score that it would get alone.
#
# **Must**
# - return one score per row;
# - take the maximum of each feature over the tokens of the row only, whatever stands in the padding;
# - let gradients reach all weights.
#
# **You may assume** that every row has at least one token.
#
# **Points** 2 · **Extra** · **Difficulty** ●○○ · **Minutes** 8 · **Lines** 3
#
# **Convention** `mask` is True at tokens, False at padding.
#
# **Source** The model of asym's demonstration.
#
# <details><summary>Hint 1</summary>
#
# Which value can never be the maximum? Would 0 do, if all features of a sequence were negative?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `features.masked_fill(~mask[..., None], float("-inf"))`, then `amax` over the columns.
#
# </details>


# %% solution="padded_forward"
def padded_forward(model, x, mask):
    """The scores of a padded batch.

    Args:
        model: a TokenPool.
        x: int64 tensor (n, longest) of tokens.
        mask: bool tensor (n, longest), True at tokens, at least one per row.

    Returns: float32 tensor (n,).
    """
    ### BEGIN SOLUTION
    features = model.features(x)  # (n, longest, hidden)
    features = features.masked_fill(~mask[..., None], float("-inf"))
    return model.score(features.amax(1))
    ### END SOLUTION


# %% test="padded_forward-visible" points=1
check.padded_forward(padded_forward)

# %% test="padded_forward-hidden" points=1
### BEGIN HIDDEN TESTS
check.padded_forward(padded_forward, seed=88)
### END HIDDEN TESTS

# %% [markdown]
# ### Exercise 4 · What autograd keeps
#
# Count the bytes that a forward pass saves for the backward pass. `nvidia-smi` shows what PyTorch has reserved, not
# what is in use. The hooks of `torch.autograd.graph.saved_tensors_hooks` see every tensor that autograd saves.
#
# **Must**
# - call `call()` once, and return the bytes of the storages of all tensors that autograd saves while it runs, even if
#   some are freed before it ends;
# - count a storage once, and whole, however many saved tensors share it;
# - leave out the storages of the tensors in `known` (parameters, for example).
#
# **You may assume** that `call` runs no backward itself.
#
# **Points** 3 · **Extra** · **Difficulty** ●●○ · **Minutes** 25 · **Lines** 9
#
# **Convention** Bytes are `tensor.untyped_storage().nbytes()`; two tensors share a storage if its `data_ptr()` is
# equal.
#
# **Source** PyTorch's tutorial "Hooks for autograd saved tensors".
#
# <details><summary>Hint 1</summary>
#
# What do two saved tensors have in common if one is a view of the other?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# The first hook receives the tensor and returns what is kept in its place; the second gets that back in backward. A
# dictionary from address to storage counts each once, and keeps a storage alive so that its address is not reused.
#
# </details>


# %% solution="saved_bytes"
def saved_bytes(call, known=()):
    """Bytes that autograd saves for backward while `call()` runs.

    Args:
        call: function without arguments; its result is thrown away.
        known: tensors whose storages do not count.

    Returns: int.
    """
    ### BEGIN SOLUTION
    storages = {}

    def pack(tensor):
        storage = tensor.untyped_storage()
        storages[storage.data_ptr()] = storage
        return tensor.detach()  # the tensor itself would be a cycle where it is the result of its own operation

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        call()
    left_out = {tensor.untyped_storage().data_ptr() for tensor in known}
    return sum(storage.nbytes() for address, storage in storages.items() if address not in left_out)
    ### END SOLUTION


# %% test="saved_bytes-visible" points=1
check.saved_bytes(saved_bytes)

# %% test="saved_bytes-hidden" points=2
### BEGIN HIDDEN TESTS
check.saved_bytes(saved_bytes, seed=45)
### END HIDDEN TESTS

# %% [markdown]
# ### Measure time and memory of padding
#
# **Predict**: padding alone doubles the width of the rectangle. By which factor do the saved bytes of the model with
# the maximum grow? And those of self-attention, where every token looks at every other?

# %%
my_guess_for_maximum, my_guess_for_attention = None, None

# %% tags=["experiment"]
forward_now, saved_now = course.solved(check.padded_forward), course.solved(check.saved_bytes)
pool = TokenPool(sequences.VOCABULARY, size.emb_dim, size.emb_dim).to(device)
attention = TokenAttention(sequences.VOCABULARY, size.attention_dim).to(device)


def attention_forward(model, x, mask):
    """Mean over the tokens of a row of what attention written out gives."""
    q, k, v = model.queries_keys_values(x)
    scores = model.scores_of_tokens(attention_written_out(q, k, v, mask[:, None, None, :]))
    return (scores * mask).sum(1) / mask.sum(1)


def synchronize():
    if device.type == "cuda":
        torch.cuda.synchronize()


def seconds_of(call, repeats):
    """Median seconds of `call()`, after one call that does not count."""
    found = []
    for _ in range(repeats + 1):
        synchronize()
        begin = time.perf_counter()
        call()
        synchronize()
        found.append(time.perf_counter() - begin)
    return statistics.median(found[1:])


models = {"maximum": (pool, forward_now), "attention": (attention, attention_forward)}
costs = {name: {"seconds": [], "bytes": []} for name in models}
for longest in size.padded_lengths:
    x = torch.zeros(size.rows_of_cost, longest, dtype=torch.int64, device=device)
    mask = torch.arange(longest, device=device) < torch.full((size.rows_of_cost, 1), 4, device=device)
    for name, (model, run) in models.items():
        seconds = seconds_of(lambda: run(model, x, mask).sum().backward(), size.repeats)  # noqa: B023
        nbytes = saved_now(lambda: run(model, x, mask), known=tuple(model.parameters()))  # noqa: B023
        costs[name]["seconds"].append(seconds)
        costs[name]["bytes"].append(nbytes)
plots.cost_against_length(size.padded_lengths, costs)

# %% tags=["experiment"]
doubled = {name: found["bytes"][-1] / found["bytes"][-2] for name, found in costs.items()}
slower = {name: found["seconds"][-1] / found["seconds"][0] for name, found in costs.items()}
times = size.padded_lengths[-1] / size.padded_lengths[0]
print("four tokens per sequence, whatever the padded length")
for name in models:
    guess = my_guess_for_maximum if name == "maximum" else my_guess_for_attention
    print(f"  {name:<10} twice the width: saved bytes x {doubled[name]:.2f}" + reveal(guess))
    print(f"  {'':<10} {times:.0f} times the width: seconds x {slower[name]:.1f}")
course.claim("the maximum model keeps bytes for backward in proportion to the padded length",
             abs(doubled["maximum"] - 2) < 0.1,
             f"{doubled['maximum']:.2f} times for twice the length")  # fmt: skip
course.claim("attention written out keeps more bytes than in proportion to the padded length",
             doubled["attention"] > 2.2,
             f"{doubled['attention']:.2f} times for twice the length")  # fmt: skip
course.claim("padding costs the maximum model time", slower["maximum"] > times / 4,
             f"{slower['maximum']:.1f} times the seconds for {times:.0f} times the length",
             otherwise="The batch is too small to keep your device busy: launching the operations takes longer than "
                       "computing them, so padding takes hardly any extra time.")  # fmt: skip

# %% [markdown]
# The data stayed the same, yet the bytes grew, and with large batches the seconds, too. The bytes of the maximum model
# are proportional to the number of cells. Attention written out keeps a matrix of length × length per head, so doubling
# the length brings its bytes closer to four times.
#
# ### Three numbers for the memory of a GPU
#
# - *allocated*: bytes of tensors that exist now (`torch.cuda.memory_allocated`), with a peak since the last reset;
# - *reserved*: what PyTorch's allocator has taken from the driver and keeps for later tensors (`memory_reserved`);
# - *seen by the driver*: reserved, plus the CUDA context, plus all other processes; `nvidia-smi` shows the driver's
#   view.
#
# %% tags=["experiment"]
if device.type == "cuda":
    wide = torch.zeros(size.rows_of_cost, size.padded_lengths[-1], dtype=torch.int64, device=device)
    memory = {}
    for name, tokens in (("wide", wide), ("narrow", wide[:, :4])):
        torch.cuda.reset_peak_memory_stats()
        forward_now(pool, tokens, torch.ones_like(tokens, dtype=torch.bool)).sum().backward()
        free, total = torch.cuda.mem_get_info()
        memory[name] = [torch.cuda.max_memory_allocated(), torch.cuda.memory_reserved(), total - free]
        peak, reserved, driver = (n / 2**20 for n in memory[name])
        print(f"{name:<7} peak allocated {peak:.0f} MiB, reserved {reserved:.0f}, seen by the driver {driver:.0f}")
    (peak, reserved, driver), (small_peak, small_reserved, small_driver) = memory.values()
    course.claim(
        "the peak of allocated memory falls with the padding",
        small_peak < peak,
        f"{small_peak / 2**20:.0f} of {peak / 2**20:.0f} MiB",
    )
    course.claim(
        "reserved memory does not fall",
        small_reserved >= reserved,
        f"{small_reserved / 2**20:.0f} of {reserved / 2**20:.0f} MiB",
        otherwise="Something released it, such as torch.cuda.empty_cache().",
    )
else:
    print("these three numbers exist on CUDA only; nothing was measured here")

# %% [markdown]
# Only the peak of allocated memory tells the two batches apart: the allocator keeps what it has reserved, and the
# driver shows that. The demonstration of asym compares `nvidia-smi` before and after grouping, 4,353 MiB both times.
# That number is its high-water mark and says nothing about grouping.

# %% [markdown]
# ## A bug in the wild
#
# **A training loop that runs without an error may train nothing.**
#
# The demonstration trains a model on padded batches, then trains a new model on grouped batches and times both. The
# cell below does the same in our own words. Read it before you run anything: what is wrong?


# %% locked="published_order"
def published_order(forward, batches, model, new_model, epochs=1):
    """Train `model`, then train `new_model`, the way asym's demonstration does."""
    for trained in (model, new_model):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        for _ in range(epochs):
            for x, mask, labels in batches:
                optimizer.zero_grad()
                loss = (forward(trained, x, mask) - labels).square().mean()
                loss.backward()
                optimizer.step()


# %% tags=["experiment"]
pad_now, demo = course.solved(check.pad_batch), sets["demo"]
padded_batches = []
for first in range(0, size.demo_rows, 256):
    values, lengths, labels = sequences.collate([demo[i] for i in range(first, first + 256)])
    padded_batches.append((*pad_now(values.to(device), lengths.to(device)), labels.to(device)))

# %% [markdown]
# ### Exercise 5 · Show it
#
# Find the parameters that a training leaves unchanged. Run such a check after the first epoch of any new training.
#
# **Must**
# - call `train()` once;
# - return the names of the parameters of `model` whose values are exactly the same afterwards.
#
# **You may assume** that no value is NaN.
#
# **Points** 2 · **Extra** · **Difficulty** ●○○ · **Minutes** 8 · **Lines** 3
#
# **Convention** Names and order are those of `model.named_parameters()`; buffers are no parameters. One value that
# changed, however little, is a change.
#
# **Source** The bug: cell 25 of asym's demonstration notebook builds SGD on `model` and trains `new_model`.
#
# <details><summary>Hint 1</summary>
#
# A training changes parameters in place. What must you keep from before, so that it does not change with them?
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
    return [name for name, parameter in model.named_parameters() if torch.equal(parameter, before[name])]
    ### END SOLUTION


# %% test="untouched-visible" points=1
check.untouched(untouched)

# %% test="untouched-hidden" points=1
### BEGIN HIDDEN TESTS
check.untouched(untouched, seed=7)
### END HIDDEN TESTS

# %% tags=["experiment"]
untouched_now = course.solved(check.untouched)
old, new = (TokenPool(sequences.VOCABULARY, 32, 32).to(device) for _ in range(2))
names = untouched_now(lambda: published_order(forward_now, padded_batches, old, new), new)
print("unchanged:", ", ".join(names))
once = new.proj.bias.grad.abs().item()
for _ in range(3):
    published_order(forward_now, padded_batches, old, new)
piled = new.proj.bias.grad.abs().item()
course.claim("the second training of the demonstration trains nothing", len(names) == len(list(new.parameters())),
             f"{len(names)} of {len(list(new.parameters()))} parameters stayed")  # fmt: skip
course.claim(
    "the gradients of the demonstration's second training pile up",
    piled > 2 * once,
    f"{piled / once:.1f} times as large after four epochs",
)

# %% [markdown]
# `optimizer.step()` and `optimizer.zero_grad()` work on the parameters that the optimizer was given: those of the old
# model. The new one keeps its initial weights, and each backward pass adds to its gradients.
#
# ### What else the demonstration does
#
# Its result is "5.8 times as fast" (3.29 s against 0.567 s). The same notebook also
#
# - times its first epoch, which includes the start-up of CUDA; only the padded training pays for that;
# - never synchronizes, so the clock may stop before the GPU has finished;
# - shows the output of `nvidia-smi` as its memory use (above);
# - moves each sample to the GPU by its own `.to(device)` in `collate_fn`: 256 small copies per batch instead of one;
# - trains labels of 0 and 1 on the squared error. Binary cross-entropy is the usual loss; we keep the squared error, so
#   that our numbers compare.

# %% [markdown]
# ### Exercise 6 · Mend it
#
# Write the timed training that the demonstration should have had: its optimizer holds the model that is trained, and
# the clock is read after a warm-up, when the device has finished.
#
# **Must**
# - train `model` with plain SGD, learning rate `lr`, loss mean((model(inputs) − labels)²), one step per batch;
# - clear the gradients for every batch;
# - train `model` for one warm-up epoch without reading the clock, then for `epochs` timed ones;
# - before and after each timed epoch, call `synchronize()`, then `clock()`: two readings per epoch;
# - return the seconds of the timed epochs as a list.
#
# **Points** 3 · **Extra** · **Difficulty** ●●○ · **Minutes** 20 · **Lines** 14
#
# **Convention** `synchronize` and `clock` are functions without arguments; the probe passes its own.
#
# **Source** PyTorch documentation, "CUDA semantics", on asynchronous execution.
#
# <details><summary>Hint 1</summary>
#
# The first operations on a GPU load libraries: should an epoch include that? When has a GPU finished an epoch?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Write an inner function for one epoch. Call it once; then `epochs` times: synchronize, clock, epoch, synchronize,
# clock.
#
# </details>


# %% solution="timed_training"
def timed_training(model, batches, lr, epochs, synchronize, clock=time.perf_counter):
    """Train `model` and time it.

    Args:
        model: an nn.Module, called with the inputs of a batch.
        batches: list of (inputs, labels).
        lr: learning rate of SGD.
        epochs: timed epochs; one more comes first.
        synchronize: function that returns when the device has finished all work.
        clock: function that returns seconds.

    Returns: list of `epochs` seconds.
    """
    ### BEGIN SOLUTION
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)

    def epoch():
        for inputs, labels in batches:
            optimizer.zero_grad()
            (model(inputs) - labels).square().mean().backward()
            optimizer.step()

    epoch()
    seconds = []
    for _ in range(epochs):
        synchronize()
        begin = clock()
        epoch()
        synchronize()
        seconds.append(clock() - begin)
    return seconds
    ### END SOLUTION


# %% test="timed_training-visible" points=2
check.timed_training(timed_training)

# %% test="timed_training-hidden" points=1
### BEGIN HIDDEN TESTS
check.timed_training(timed_training, seed=19)
### END HIDDEN TESTS

# %% tags=["experiment"]
timed_now = course.solved(check.timed_training)


class Padded(torch.nn.Module):
    """A model with `padded_forward` as its forward, for code that calls model(inputs)."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, inputs):
        return forward_now(self.model, *inputs)


mended = Padded(TokenPool(sequences.VOCABULARY, 32, 32).to(device))
pairs = [((x, mask), labels) for x, mask, labels in padded_batches]
left = untouched_now(lambda: timed_now(mended, pairs, 0.05, size.repeats, synchronize), mended)
course.claim("the fixed training changes every parameter", not left, f"{len(left)} unchanged")

# %% [markdown]
# ### What a clock shows without warm-up or synchronization
#
# **Predict**: in a new Python process, how many times as long as a later pass does the first one take?

# %%
my_guess_of_first_pass = None

# %% tags=["experiment"]
new_process = """
import json, time, torch
device = "cuda" if torch.cuda.is_available() else "cpu"
model = torch.nn.Sequential(torch.nn.Embedding(8, 64), torch.nn.Linear(64, 64)).to(device)
tokens, seconds = torch.ones(64, 16, dtype=torch.int64).to(device), []
for _ in range(12):
    begin = time.perf_counter()
    model(tokens).sum().backward()
    if device == "cuda":
        torch.cuda.synchronize()
    seconds.append(time.perf_counter() - begin)
print(json.dumps(seconds))
"""
first, *later = json.loads(subprocess.check_output([sys.executable, "-c", new_process], text=True))
ratio, spread = first / statistics.median(later), (1000 * min(later), 1000 * max(later))
print(f"first pass {1000 * first:.1f} ms, later ones {spread[0]:.2f} to {spread[1]:.2f} ms")
course.claim("the first pass of a new process takes longest", first > max(later),
             f"{ratio:.0f} times the median" + reveal(my_guess_of_first_pass, "{} times"),
             otherwise="Another program used the machine during a later pass.")  # fmt: skip
if device.type == "cuda":
    waited, not_waited = (timed_now(mended, pairs, 0.05, size.repeats, wait) for wait in (synchronize, lambda: None))
    short = statistics.median(not_waited) / statistics.median(waited)
    course.claim(
        "without synchronize() an epoch seems shorter",
        short < 1,
        f"{short:.2f} of its time",
        otherwise="Queueing takes longer than computing.",
    )
else:
    print("a CPU finishes an operation before the call returns, so synchronize() changes nothing here")

# %% [markdown]
# The first pass loads libraries, starts threads and takes its first memory. Whoever is timed first pays for all that,
# as the padded training of the demonstration does. On CUDA a call returns when its work is queued, so a clock that does
# not wait measures the queueing.

# %% [markdown]
# ## What to take with you
#
# - The waste of a data set follows from its lengths, before any training.
# - Larger batches waste more, up to longest / mean length.
# - Time and memory grow with the cells; attention written out keeps bytes that grow with the square of the length.
# - After the first epoch of a new training, check that all parameters have changed.
# - A time needs a warm-up and, on a GPU, a synchronization before each reading of the clock.
#
# Part 2 removes most of the padding from a batch without changing its sequences.
