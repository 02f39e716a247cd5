# %% [markdown]
# # Batch grouping, part 1: See what padding costs
#
# **How much of your batches is padding, and what does it cost?**
#
# Sentences, purchases, protein chains and sensor logs come in every length. A tensor is a rectangle, so you pad short
# sequences to the longest one in their batch. The model computes on the padding, and autograd stores it, as if it were
# data. In the first set below, most of a batch is padding.
#
# Predict first (fill in the cells with `None`), then solve, check, measure. Later cells use your answers once their
# checks pass, and ours otherwise.
#
# **You will be able to**
#
# - compute how much padding your own data will need, before you train on it;
# - measure what padding costs a model in memory and time;
# - notice when a training changes no parameter.
#
# **Minutes** 37 core · 53 in all
#
# **Needs** nothing


# %% locked="setup"
import functools
from pathlib import Path

import torch

import course
from course.checks import batch_grouping as check
from course.datasets import sequences
from course.learner.predictions import reveal
from course.measure.comparison import compare
from course.plots import batch_grouping as plots
from course.training import grouping
from course.training.token_models import TokenAttention, TokenPool, attention_written_out

print(course.machine())
size, device = course.sizes("05_batch_grouping"), course.device()

# %% [markdown]
# ## How much of your batches is padding?
#
# Start with your own lengths: a list, or a text file with one length per line. If you have none now, leave `None`; then
# you work with `demo`.

# %%
my_lengths = None  # [12, 5, 230, ...] or "lengths.txt"

# %% [markdown]
# `demo` has lengths 1, 4, 16 and 64, and the longer ones are rarer. In `lognormal` the logarithm of the length is
# normally distributed. `histories` holds the films that each MovieLens user rated, or invented ratings with similar
# lengths.
#
# (`demo`, our small model and the idea of this unit come from [asym](https://github.com/daeseoklee/asym), an open
# package with a clear demonstration. We thank its author: half of our questions began there.)

# %%
sets = {name: sequences.load(name) for name in sequences.NAMES}
if my_lengths is not None:
    given = Path(my_lengths).read_text().split() if isinstance(my_lengths, str) else my_lengths
    sets = {"mine": sequences.with_lengths("mine", torch.tensor([int(n) for n in given]), 0)} | sets
for name, found in sets.items():
    low, middle, high = (int(found.lengths.float().quantile(q)) for q in (0, 0.5, 1))
    print(f"{name:<10} {len(found):>6,} sequences, {len(found.values):>8,} tokens, length {low} / {middle} / {high}")
first = next(iter(sets))
tokens, label = sets["lognormal"][0]
print(f"a sample of lognormal: tokens {tokens.tolist()}, label {label:.0f}")

# %% tags=["experiment"]
some = sets[first].lengths[:24]
plots.padding_cells({"before padding": list(some.split(1)), "padded": some})

# %% [markdown]
# A *cell* is a position in the padded rectangle. A *token* is a cell that holds data. The *waste* of a batch is its
# cells per token: 1.0 means no padding.
#
# **Predict** How much waste do batches of 256 have, in the order of the first set?

# %%
my_guess_of_waste = None  # cells per token, e.g. 3.0

# %% [markdown]
# ### Exercise 1 · Pad a batch
#
# Build the rectangle from a flat batch: the tokens of all sequences, one after the other, and their lengths.
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
# **Points** 3 · **Core** · **Difficulty** ●●○ · **Minutes** 14 · **Lines** 4
#
# **Convention** Token 0 exists, so only the mask tells it from padding.
#
# **Source** The collate function of most code for sequences, without its loop over samples.
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
# **Points** 2 · **Core** · **Difficulty** ●○○ · **Minutes** 8 · **Lines** 3
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
print(f"{first}, batches of 256: {waste_now(sets[first].lengths, 256):.1f} cells per token" + reveal(my_guess_of_waste))

# %% [markdown]
# **Takeaway** The lengths alone tell you the waste, before you train: 17.8 cells per token for `demo`.

# %% [markdown]
# ## Does a larger batch waste more?
#
# **Predict** For which set does the waste change most with the batch size: "demo", "lognormal" or "histories"?

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
        otherwise="Then padding costs this data little, whatever the batch size.",
    )
print("the waste changes most for", max(growth, key=growth.get) + reveal(my_guess_of_change))
bound = {name: float(s.lengths.max() / s.lengths.float().mean()) for name, s in sets.items()}
worst = max(curve[-1] / bound[name] for name, curve in curves.items())
course.claim("no batch size wastes more than longest / mean length", worst <= 1.0001, f"at most {worst:.3f} of it")

# %% [markdown]
# From batches of 4 to batches of 256, the waste of `demo` grew 6.6 times, but the waste of `histories` only 3.6 times.
# If you merge two batches, every row gets the width of the wider one.
#
# **Takeaway** Larger batches waste more, up to longest / mean length.

# %% [markdown]
# ## What does padding cost in memory and time?
#
# The model of this unit, `TokenPool`, is small: embedding → linear map → maximum over the sequence → a score. It fills
# the padding with −∞ before the maximum, so that each sequence gets the score that it would get alone. A second model
# has a layer of self-attention instead of the maximum.
#
# Every sequence below has four tokens; only the width of the rectangle grows. `grouping.bytes_for_backward` counts
# what autograd keeps, on any device.
#
# **Predict** The rectangle becomes twice as wide. By which factor do the saved bytes of each model grow?

# %%
my_guess_for_maximum, my_guess_for_attention = None, None

# %% tags=["experiment"]
pool = TokenPool(sequences.VOCABULARY, size.emb_dim, size.emb_dim).to(device)
attention = TokenAttention(sequences.VOCABULARY, size.attention_dim).to(device)


def attention_forward(model, x, mask):
    """Mean over the tokens of a row, after attention written out."""
    q, k, v = model.queries_keys_values(x)
    scores = model.scores_of_tokens(attention_written_out(q, k, v, mask[:, None, None, :]))
    return (scores * mask).sum(1) / mask.sum(1)


weights = [*pool.parameters(), *attention.parameters()]
runs = {"maximum": pool, "attention": functools.partial(attention_forward, attention)}
costs = {name: {"seconds": [], "bytes": []} for name in runs}
calls = {name: {} for name in runs}
for longest in size.padded_lengths:
    x = torch.zeros(size.rows_of_cost, longest, dtype=torch.int64, device=device)
    mask = torch.arange(longest, device=device) < torch.full((size.rows_of_cost, 1), 4, device=device)
    for name, run in runs.items():
        nbytes = grouping.bytes_for_backward(lambda: run(x, mask), weights)  # noqa: B023
        costs[name]["bytes"].append(nbytes)
        calls[name][str(longest)] = lambda run=run, x=x, mask=mask: run(x, mask).sum().backward()
for name, by_length in calls.items():
    result = compare(by_length, device=device, seconds=20)
    costs[name]["seconds"] = [result.time(length).estimate for length in by_length]
plots.cost_against_length(size.padded_lengths, costs)

# %% tags=["experiment"]
doubled = {name: found["bytes"][-1] / found["bytes"][-2] for name, found in costs.items()}
slower = {name: found["seconds"][-1] / found["seconds"][0] for name, found in costs.items()}
times = size.padded_lengths[-1] / size.padded_lengths[0]
for name in runs:
    guess = my_guess_for_maximum if name == "maximum" else my_guess_for_attention
    print(f"{name:<10} twice the width: saved bytes x {doubled[name]:.2f}" + reveal(guess))
    print(f"{'':<10} {times:.0f} times the width: seconds x {slower[name]:.1f}")
course.claim("the maximum model keeps bytes for backward in proportion to the padded length",
             abs(doubled["maximum"] - 2) < 0.1,
             f"{doubled['maximum']:.2f} times for twice the length")  # fmt: skip
course.claim("attention written out keeps more bytes than in proportion to the padded length",
             doubled["attention"] > 2.2,
             f"{doubled['attention']:.2f} times for twice the length")  # fmt: skip
course.claim("padding costs the maximum model time", slower["maximum"] > times / 4,
             f"{slower['maximum']:.1f} times the seconds for {times:.0f} times the length",
             otherwise="Then padding costs little time on your device at this size. Try more rows.")  # fmt: skip

# %% [markdown]
# With twice the width, autograd kept 2.00 times the bytes for the maximum, and 3.23 times for attention, which writes
# out a matrix of length × length per head. Eight times the width took 7.0 and 22.4 times as long.
#
# **Takeaway** Padding alone costs memory and time: nearly in proportion to the length for the maximum, and more for
# attention written out.

# %% [markdown]
# ## Does nvidia-smi show what padding costs? · extra
#
# PyTorch *allocates* bytes for tensors that exist now, and *reserves* memory that it keeps for later ones. `nvidia-smi`
# shows what is reserved, plus the CUDA context and all other processes. The cell runs a wide batch, then a narrow one.

# %% tags=["experiment"]
if device.type == "cuda":
    wide = torch.zeros(size.rows_of_cost, size.padded_lengths[-1], dtype=torch.int64, device=device)
    memory = {}
    for name, batch in (("wide", wide), ("narrow", wide[:, :4])):
        torch.cuda.reset_peak_memory_stats()
        pool(batch, torch.ones_like(batch, dtype=torch.bool)).sum().backward()
        free, total = torch.cuda.mem_get_info()
        memory[name] = [torch.cuda.max_memory_allocated(), torch.cuda.memory_reserved(), total - free]
        peak, reserved, driver = (n / 2**20 for n in memory[name])
        print(f"{name:<7} peak allocated {peak:.0f} MiB, reserved {reserved:.0f}, seen by the driver {driver:.0f}")
    (peak, reserved, _), (small_peak, small_reserved, _) = memory.values()
    course.claim("the peak of allocated memory falls with the padding", small_peak < peak,
                 f"{small_peak / 2**20:.0f} of {peak / 2**20:.0f} MiB")  # fmt: skip
    course.claim("reserved memory does not fall with the padding", small_reserved >= reserved,
                 f"{small_reserved / 2**20:.0f} of {reserved / 2**20:.0f} MiB",
                 otherwise="Did a cell call torch.cuda.empty_cache()?")  # fmt: skip
else:
    print("these three numbers exist on CUDA only; nothing was measured here")

# %% [markdown]
# **Takeaway** To compare memory, read `torch.cuda.max_memory_allocated()`. In a published comparison, `nvidia-smi` read
# 4,353 MiB with and without padding.

# %% [markdown]
# ## Why does the second training learn nothing? · extra
#
# A script trains `model` on padded batches, then trains `new_model` to compare. It runs without an error.


# %% locked="published_order"
def published_order(batches, model, new_model):
    """Train `model`, then train `new_model`; written after a published notebook."""
    for trained in (model, new_model):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        for x, mask, labels in batches:
            optimizer.zero_grad()
            loss = (trained(x, mask) - labels).square().mean()
            loss.backward()
            optimizer.step()


# %% [markdown]
# **Predict** `new_model` has five parameters. How many does its training change?

# %%
my_guess_of_changed = None

# %% [markdown]
# ### Exercise 3 · Show it
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
# **Source** The bug is published; the function is ours.
#
# <details><summary>Hint 1</summary>
#
# A training changes parameters in place. What must you keep from before, so that it does not change too?
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
untouched_now, pad_now, demo = course.solved(check.untouched), course.solved(check.pad_batch), sets["demo"]
padded_batches = []
for begin in range(0, size.demo_rows, 256):
    values, lengths, labels = sequences.collate([demo[i] for i in range(begin, begin + 256)])
    padded_batches.append((*pad_now(values.to(device), lengths.to(device)), labels.to(device)))
old, new = (TokenPool(sequences.VOCABULARY, 32, 32).to(device) for _ in range(2))
names = untouched_now(lambda: published_order(padded_batches, old, new), new)
count = len(list(new.parameters()))
print("unchanged:", ", ".join(names) + reveal(my_guess_of_changed, "{} change"))
course.claim("the second training changes no parameter", len(names) == count, f"{len(names)} of {count} stayed")
once = new.proj.bias.grad.abs().item()
for _ in range(3):
    published_order(padded_batches, old, new)
piled = new.proj.bias.grad.abs().item()
course.claim("the gradients of the second training pile up", piled > 2 * once,
             f"{piled / once:.1f} times as large after four epochs")  # fmt: skip
names = untouched_now(lambda: published_order(padded_batches, new, new), new)
course.claim("an optimizer that holds the model in training changes every parameter", not names,
             f"{len(names)} unchanged")  # fmt: skip

# %% [markdown]
# The optimizer holds the parameters of `model`, and `step()` and `zero_grad()` work on nothing else. So `new_model`
# keeps its weights, and its gradients add up.
#
# **Takeaway** After the first epoch of a new training, check that every parameter has changed.
#
# Part 2 removes most of the padding from a batch and keeps its sequences.
