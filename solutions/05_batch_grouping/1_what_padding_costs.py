# %% [markdown]
# # Batch grouping, part 1: See what padding costs
#
# **How much of a batch is padding, and what does it cost?**
#
# Sentences, purchases, protein chains and sensor logs come in every length. A tensor is a rectangle, so short
# sequences are filled up to the longest of their batch. A model computes on that padding, and autograd stores it,
# as if it were data. In this part you build padded batches, count their waste, and measure what it costs in time and
# memory. You then take apart a published demonstration whose second training trains nothing.
#
# Predict first (fill in the cells with `None`), then solve, check, measure. Later cells use your answers once their
# checks pass, and the reference otherwise.
#
# **You will be able to**
#
# - compute the padding waste of any data set, order and batch size before you train on it;
# - write a model whose result does not depend on padding;
# - count the bytes that autograd keeps for backward, on any device;
# - spot an optimizer that was built for the wrong model.
#
# **Minutes** 40 core · 95 in all
#
# **Needs** nothing


# %% locked="setup"
import statistics
import time

import torch

import course
from course.checks import batch_grouping as check
from course.datasets import sequences
from course.plots import batch_grouping as plots
from course.token_models import TokenAttention, TokenPool, attention_written_out

print(course.machine())
size, device = course.sizes("05_batch_grouping"), course.device()

# %% [markdown]
# ## A rectangle around ragged data
#
# **A batch is as wide as its longest sequence; everything else in the rectangle is padding.**
#
# We use three sets. `demo` is drawn as in a public demonstration of batch grouping
# ([asym](https://github.com/daeseoklee/asym)): lengths 1, 4, 16 and 64, with frequencies proportional to 1/length. The
# logarithms of the lengths in `lognormal` follow a normal distribution: many short sequences and a long tail.
# `histories` are the films that each MovieLens user rated
# (an invented stand-in of the same shape where the real ratings are not prepared).

# %%
sets = {name: sequences.load(name) for name in sequences.NAMES}
for name, found in sets.items():
    low, middle, high = (int(found.lengths.float().quantile(q)) for q in (0, 0.5, 1))
    print(f"{name:<10} {len(found):>6,} sequences, {len(found.values):>8,} tokens, length {low} / {middle} / {high}")

# %% tags=["experiment"]
plots.padding_cells({name: sets[name].lengths[:24] for name in ("demo", "lognormal")})

# %% [markdown]
# Every blue cell is a token, every grey one is padding. One long sequence makes the whole batch wide.
#
# **Predict**: `demo` in batches of 256, in the order of the set. How many tokens does the model see for each real one?

# %%
my_guess_of_waste = None  # e.g. 3.0

# %% [markdown]
# ### Exercise 1 · Pad a batch
#
# Build the rectangle from a flat batch: the tokens of all sequences in a row, and the length of each sequence. Every
# part of this unit needs it.
#
# **Must**
# - return `(x, mask)`, both with a row per sequence and a column per token of the longest sequence;
# - `x` holds the tokens in order, then zeros; `mask` (bool) is True at real tokens;
# - use no Python loop over the sequences.
#
# **You may assume** that `lengths` adds up to the number of tokens.
#
# **Raises** ValueError if a length is 0.
#
# **Points** 3 · **Core** · **Difficulty** ●●○ · **Minutes** 10 · **Lines** 6
#
# **Convention** Padding is 0, which is also a token; only the mask tells them apart.
#
# **Source** The collate function of asym's demonstration, without its loop over samples.
#
# <details><summary>Hint 1</summary>
#
# Which columns of row 3 hold tokens, if sequence 3 has 5 of them? Can you say it as a comparison?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `torch.arange(longest) < lengths[:, None]` is the mask. The True places of a mask, read row by row, come in the same
# order as the flat tokens.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# Make `x` of zeros with the mask's shape and the tokens' dtype and device, then assign `x[mask] = values`.
#
# </details>


# %% solution="pad_batch"
def pad_batch(values, lengths):
    """Flat sequences as a padded rectangle.

    Args:
        values: int64 tensor (total,), the tokens of all sequences, one sequence after the other.
        lengths: int64 tensor (n,), tokens per sequence; their sum is total.

    Returns: (x, mask): x like `values` and mask bool, both (n, longest), on the device of `values`.
    Raises: ValueError if a length is 0.
    """
    ### BEGIN SOLUTION
    if not bool(lengths.all()):
        raise ValueError("every sequence needs at least one token")
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
# Compute how many tokens padded batches hold for each real one, from the lengths alone. This one number tells what
# padding costs before any training starts.
#
# **Must**
# - cut the epoch into batches of `batch_size` in the given order; the last batch may be smaller;
# - pad each batch to its own longest sequence;
# - return padded tokens of the epoch, divided by real tokens, as a Python float.
#
# **Raises** ValueError if there is no sequence, or if `batch_size` is below 1.
#
# **Points** 2 · **Core** · **Difficulty** ●○○ · **Minutes** 10 · **Lines** 7
#
# **Convention** "Padded tokens" are all cells of the rectangles: 1.0 is no waste at all.
#
# **Source** The ratio of the areas in Krell et al. 2021, arXiv:2107.02027, section 1, inverted.
#
# <details><summary>Hint 1</summary>
#
# How many cells does one batch have? Which two numbers of the batch do you need?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `lengths[order].split(batch_size)` gives the batches. The cells of each are its row count times its maximum.
#
# </details>


# %% solution="padding_waste"
def padding_waste(lengths, batch_size, order=None):
    """Padded tokens per real token over an epoch of batches.

    Args:
        lengths: int64 tensor (n,), tokens per sequence.
        batch_size: sequences per batch.
        order: int64 tensor (n,), which sequence comes when; None for the order of the set.

    Returns: a Python float, at least 1.
    Raises: ValueError if n is 0 or `batch_size` is below 1.
    """
    ### BEGIN SOLUTION
    if len(lengths) == 0 or batch_size < 1:
        raise ValueError(f"cannot cut {len(lengths)} sequences into batches of {batch_size}")
    ordered = lengths if order is None else lengths[order]
    padded = sum(len(batch) * int(batch.max()) for batch in ordered.split(batch_size))
    return padded / int(lengths.sum())
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
print(f"you guessed {my_guess_of_waste}; batches of 256 hold {waste:.1f} tokens for each real one")

# %% [markdown]
# **Predict**: does the waste grow or shrink with the batch size? For which of the three sets most?

# %%
my_guess_of_growth = None

# %% tags=["experiment"]
batch_sizes = [2**k for k in range(11)]
curves = {name: [waste_now(s.lengths, b) for b in batch_sizes] for name, s in sets.items()}
plots.waste_against_batch(batch_sizes, curves)

# %% tags=["experiment"]
for name, curve in curves.items():
    growth = curve[8] / curve[2]
    course.claim(f"{name}: batches of 256 waste more than batches of 4", growth > 1, f"{growth:.2f} times the tokens")
bound = {name: float(s.lengths.max() / s.lengths.float().mean()) for name, s in sets.items()}
worst = max(curve[-1] / bound[name] for name, curve in curves.items())
course.claim("no batch size wastes more than longest / mean length", worst <= 1.0001, f"at most {worst:.3f} of it")

# %% [markdown]
# A larger batch is more likely to hold a long sequence, so its waste climbs towards the longest length of the set
# divided by the mean length, and cannot pass it. The waste is largest where one long sequence meets many short ones.
# Where a claim does not hold, the lengths are nearly equal; then this unit has little to offer for that data.

# %% [markdown]
# ## What the model does with padding
#
# **A maximum over a sequence must not see the padding.**
#
# The model of the demonstration: embedding → linear map → maximum over the sequence → a score. `TokenPool` holds
# the layers. `model.features(tokens)` does the first two steps for tokens of any shape, `model.score(pooled)` the
# last one.

# %% [markdown]
# ### Exercise 3 · Forward on a padded batch
#
# Score every row of a padded batch, so that a sequence gets the score that it would get alone.
#
# **Must** return one score per row, whatever tokens stand in the padding.
#
# **You may assume** that every row has at least one real token.
#
# **Points** 2 · **Core** · **Difficulty** ●○○ · **Minutes** 10 · **Lines** 3
#
# **Convention** The maximum is taken per feature, over the real tokens of the row. Gradients reach all weights.
#
# **Source** The model of asym's demonstration.
#
# <details><summary>Hint 1</summary>
#
# Which value can never win a maximum? Would 0 do, if all features of a sequence were negative?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `features.masked_fill(~mask[..., None], -math.inf)`, then `amax` over the columns. `float("-inf")` works as well.
#
# </details>


# %% solution="padded_forward"
def padded_forward(model, x, mask):
    """The scores of a padded batch.

    Args:
        model: a TokenPool.
        x: int64 tensor (n, longest) of tokens.
        mask: bool tensor (n, longest), True at real tokens, at least one per row.

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
# Count the bytes that a forward pass keeps for the backward pass. `nvidia-smi` cannot tell you: it shows what
# PyTorch's allocator has reserved, not what is in use. `torch.autograd.graph.saved_tensors_hooks` is called for
# every tensor that autograd saves, on every device.
#
# **Must**
# - call `call()` once and return the bytes of the storages of all tensors that autograd saves meanwhile;
# - count a storage once, and whole, however many saved tensors share it;
# - leave out storages that a tensor in `known` lies in (parameters are there anyway).
#
# **You may assume** that `call` runs no backward itself.
#
# **Points** 3 · **Extra** · **Difficulty** ●●○ · **Minutes** 20 · **Lines** 9
#
# **Convention** Bytes of `tensor.untyped_storage().nbytes()`; a storage is known by its `data_ptr()`.
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
# ### What a padded token costs
#
# **Predict**: every row gets twice as long, by padding alone. By which factor do time and saved bytes of the model
# with the maximum grow? And with self-attention, where every token looks at every other?

# %%
my_guess_for_maximum, my_guess_for_attention = None, None

# %% tags=["experiment"]
forward_now, saved_now = course.solved(check.padded_forward), course.solved(check.saved_bytes)
pool = TokenPool(sequences.VOCABULARY, size.emb_dim, size.emb_dim).to(device)
attention = TokenAttention(sequences.VOCABULARY, size.attention_dim).to(device)


def attention_forward(model, x, mask):
    """Mean over the real tokens of what attention written out gives."""
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
print("four real tokens per sequence, whatever the padded length")
for name in models:
    print(
        f"  {name:<10} saved bytes x {doubled[name]:.2f} for the last doubling, seconds x {slower[name]:.1f} over all"
    )
course.claim("the maximum saves bytes in proportion to the padded length", abs(doubled["maximum"] - 2) < 0.1,
             f"{doubled['maximum']:.2f} times for twice the length")  # fmt: skip
course.claim("attention written out saves more than in proportion", doubled["attention"] > 2.2,
             f"{doubled['attention']:.2f} times for twice the length")  # fmt: skip
course.claim("padding costs the maximum model time", slower["maximum"] > times / 4,
             f"{slower['maximum']:.1f} times the seconds for {times:.0f} times the length")  # fmt: skip

# %% [markdown]
# Not one token of data was added, yet bytes and seconds grow. For the maximum the bytes follow the number of
# cells, and the seconds grow with it.
# Attention written out keeps a matrix of length × length per head, so its bytes approach a factor of four. Where the
# claim on time does not hold, the batch is too small to keep your device busy: launching the operations costs more
# than computing them, and padding is nearly free.

# %% tags=["experiment"]
if device.type == "cuda":
    padded = torch.zeros(size.rows_of_cost, size.padded_lengths[-1], dtype=torch.int64, device=device)
    for tokens in (padded, padded[:, :4]):
        torch.cuda.reset_peak_memory_stats()
        forward_now(pool, tokens, torch.ones_like(tokens, dtype=torch.bool)).sum().backward()
        used, peak, reserved = (f() / 2**20 for f in (torch.cuda.memory_allocated, torch.cuda.max_memory_allocated,
                                                      torch.cuda.memory_reserved))  # fmt: skip
        free, total = torch.cuda.mem_get_info()
        print(f"allocated {used:.0f} MiB, peak {peak:.0f}, reserved {reserved:.0f}, ", end="")
        print(f"seen by the driver {(total - free) / 2**20:.0f}")
else:
    print("allocated, reserved and seen by nvidia-smi: three numbers that exist on CUDA only; not measured here")

# %% [markdown]
# On a GPU the peak falls with the small batch; the last two numbers do not, because the allocator keeps what it once
# reserved, and `nvidia-smi` shows that reserve. The published demonstration prints 4,353 MiB before *and* after
# grouping and so says nothing about memory.

# %% [markdown]
# ## A bug in the wild
#
# **A training loop that runs without an error may train nothing.**
#
# The demonstration trains a padded model, then makes a new model for the grouped batches and times that. The cell
# below rebuilds the order of events in our own words. Read it before you run anything: what is wrong?


# %% locked="published_order"
def published_order(forward, batches, model, new_model, epochs=1):
    """The demonstration's order of events: an optimizer, one training, a second model, a second training."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for trained in (model, new_model):
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
# Find the parameters that a training leaves as they were. Such a check takes a minute to write and saves days.
#
# **Must** call `train()` once and return the names of the parameters of `model` whose values are the same afterwards.
#
# **Points** 2 · **Extra** · **Difficulty** ●○○ · **Minutes** 8 · **Lines** 3
#
# **Convention** Names as `model.named_parameters()` gives them, in that order. A single value that moved is a change.
#
# **Source** The bug: asym's demonstration notebook, where SGD is built on `model` while `new_model` is trained.
#
# <details><summary>Hint 1</summary>
#
# `parameter` after the training is the same object that you looked at before it. What must you keep, then?
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
print("left as they were:", ", ".join(names))
once = new.proj.bias.grad.abs().item()
for _ in range(3):
    published_order(forward_now, padded_batches, old, new)
piled = new.proj.bias.grad.abs().item()
course.claim("the second training of the demonstration trains nothing", len(names) == len(list(new.parameters())),
             f"{len(names)} of {len(list(new.parameters()))} parameters stayed")  # fmt: skip
course.claim("its gradients pile up", piled > 2 * once, f"{piled / once:.1f} times as large after four epochs")

# %% [markdown]
# `optimizer.step()` and `optimizer.zero_grad()` work on the parameters that the optimizer was given: those of the old
# model. The new one keeps its first weights, and each backward pass adds to its gradients. The demonstration's
# headline, 5.8 times as fast, is no evidence either way: its first timing contains the start-up of CUDA, and neither
# timing waits for the device.

# %% [markdown]
# ### Exercise 6 · Mend it
#
# Write the timed training that the demonstration should have had: on the model that is trained, after a warm-up,
# with a clock that waits for the device.
#
# **Must**
# - train with plain SGD, learning rate `lr`, loss mean((model(inputs) − labels)²), one step per batch;
# - train one warm-up epoch, which is not timed, then `epochs` timed ones;
# - call `synchronize()` before each reading of `clock()`, and read it right before and after each timed epoch;
# - return the seconds of the timed epochs as a list.
#
# **Points** 3 · **Extra** · **Difficulty** ●●○ · **Minutes** 15 · **Lines** 14
#
# **Convention** No gradient is left over from one batch to the next. Each timed epoch has two readings of its own.
#
# **Source** What the notebook's timing lacks: PyTorch's "CUDA semantics", section on asynchronous execution.
#
# <details><summary>Hint 1</summary>
#
# The first call of a GPU loads libraries; does it belong to an epoch? And when has a GPU finished an epoch?
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
course.claim("the mended training moves every parameter", not left, f"{len(left)} stayed")

# %% [markdown]
# ## What to take with you
#
# - The waste is computed from the lengths alone, before any training.
# - A larger batch wastes more, up to longest / mean.
# - Time and memory follow the padded tokens; with attention written out, memory grows with the square of the length.
# - After the first epoch of any new training, ask whether the parameters moved.
#
# Part 2 removes most of the waste from a batch without changing what is in it.
