# %% [markdown]
# # Faster training, part 4: Trade memory for time, and win the race
#
# **Which of all this makes your training reach its accuracy sooner?**
#
# Two pieces of advice trade memory for time: checkpointing and gradient accumulation. You predict what they save and
# cost, and measure it; whoever has the time writes both. Then comes the race: how many seconds until the validation
# accuracy reaches a target? A plain script runs against one that follows all advice. Then pieces of advice are left
# out, one at a time, which shows what they are worth on your machine.
#
# **You will be able to**
#
# - say what a training step keeps in memory, and what checkpointing and accumulation change about it;
# - predict the memory and the time of a checkpointed model;
# - measure a whole training by the time to an accuracy, and judge a piece of advice by leaving it out.
#
# **Minutes** 26 core · 120 in all
#
# **Needs** nothing of the other parts
#
# Core: the section "The race" with exercise 5. Run all cells; the other sections and the question at the end can be
# done later.


# %% locked="setup"
import math
import statistics
from dataclasses import replace  # noqa: F401 (for your own entry)

import torch
from torch import nn
from torch.nn import functional as F

import course
from course.checks import faster_training as check
from course.datasets import fashion
from course.learner.predictions import leaders, reveal, reveal_leader
from course.measure.yardsticks import seconds_in_turn
from course.plots import faster_training as plots
from course.training import speedrun
from course.training.models import FashionCNN

print(course.machine())
size, device = course.sizes("06_faster_training"), course.device()
data = fashion.load(size.dataset)

# %% [markdown]
# ## What a step keeps
#
# **Autograd keeps results of the forward pass for the backward pass. They, not the weights, limit the batch.**
#
# ### Exercise 1 · Count the bytes
#
# Count what autograd keeps while `call` runs, without the parameters and buffers of `module`, which stay in memory in
# any case.
#
# **Must**
# - run `call()` once, and return an int: bytes of all storages that autograd saves while it runs;
# - count a storage once and whole, however many views of it are kept;
# - leave the storages of the module's parameters and buffers out;
# - let backward still work afterwards.
#
# **Points** 2 · **Extra** · **Difficulty** ●●○ · **Minutes** 12 · **Lines** 9
#
# **You may assume** that `call` runs no backward itself. If you wrote `saved_bytes` in unit 05, adapt it.
#
# **Source** `torch.autograd.graph.saved_tensors_hooks`.
#
# <details><summary>Hint 1</summary>
#
# The hooks see every tensor that is kept. What do two views of one storage have in common?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Keep `tensor.untyped_storage()` under its `data_ptr()` in a dict; it has `nbytes()`. The dict also keeps the storage
# alive, so that its address is not used again.
#
# </details>


# %% solution="saved_bytes"
def saved_bytes(call, module):
    """Bytes that autograd keeps for backward while `call` runs.

    Args:
        call: function without arguments, called once.
        module: nn.Module whose parameters and buffers do not count.

    Returns: int.
    """
    ### BEGIN SOLUTION
    storages = {}

    def pack(tensor):
        storage = tensor.untyped_storage()
        storages[storage.data_ptr()] = storage
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        call()
    owned = {tensor.untyped_storage().data_ptr() for tensor in (*module.parameters(), *module.buffers())}
    return sum(storage.nbytes() for place, storage in storages.items() if place not in owned)
    ### END SOLUTION


# %% test="saved_bytes-visible" points=1
check.saved_bytes(saved_bytes)

# %% test="saved_bytes-hidden" points=1
### BEGIN HIDDEN TESTS
check.saved_bytes(saved_bytes, seed=11)
### END HIDDEN TESTS

# %% [markdown]
# **Predict**: FashionCNN has 1.5 million parameters, 6 MB. At which batch size does its training step keep more bytes
# for backward than the parameters take?

# %%
my_guess_of_batch = None

# %% tags=["experiment"]
saved_now = course.solved(check.saved_bytes)
network = FashionCNN().to(device)
weights = sum(p.numel() * p.element_size() for p in network.parameters())
batches = [4, 8, 16, 32, 64, 128]
kept = []
for n in batches:
    images = torch.randn(n, 1, 28, 28, device=device)
    kept.append(saved_now(lambda images=images: network(images).sum(), network))
per_image = (kept[-1] - kept[0]) / (batches[-1] - batches[0])
for n, total in zip(batches, kept, strict=True):
    print(f"batch {n:3}: {total / 1e6:6.2f} MB kept, parameters {weights / 1e6:.2f} MB")
even = math.ceil(weights / per_image)
print(f"{per_image / 1e3:.0f} kB per image: more than the parameters from a batch of {even}"
      + reveal(my_guess_of_batch))  # fmt: skip
growth, factor = kept[-1] / kept[0], batches[-1] / batches[0]
course.claim("the bytes kept for backward grow in proportion to the batch", abs(growth / factor - 1) < 0.05,
             f"{growth:.1f} times the bytes for {factor:.0f} times the batch")  # fmt: skip

# %% [markdown]
# ## Keep the inputs, compute the rest again
#
# **A checkpointed block keeps its inputs alone. When backward reaches it, it runs a second time.**
#
# The second run must give what the first one gave. Linear maps do that. Dropout does not: it draws a new mask.
#
# **Predict**: suppose the second run drops other values (a tenth of them). By how much, relative to its norm, is the
# gradient wrong?

# %%
my_guess_of_error = None

# %% [markdown]
# ### Exercise 2 · Checkpoint a block
#
# Write `checkpoint(block, *inputs)` with a `torch.autograd.Function`.
#
# **Must**
# - return what `block(*inputs)` returns; in forward build no graph inside the block, and save only the inputs;
# - in backward run the block again, with a graph, on the same random numbers as before;
# - leave the random numbers of the rest of the program as if there were no second run;
# - give gradients to inputs and parameters that require one and are used, None to the others; parameters get theirs
#   even if no input requires one.
#
# **You may assume** that inputs and the one output are tensors, and that `block` is an nn.Module.
#
# **Points** 5 · **Extra** · **Difficulty** ●●● · **Minutes** 30 · **Lines** 20
#
# **Not allowed** `torch.utils.checkpoint`
#
# **Source** Chen, Xu, Zhang and Guestrin 2016, "Training deep nets with sublinear memory cost".
#
# <details><summary>Hint 1</summary>
#
# `Function.apply` decides from its arguments whether the result needs a gradient. Which tensors besides the inputs must
# be among them?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# The state of the random numbers: `torch.get_rng_state()`, and `torch.cuda.get_rng_state_all()` for all GPUs. Inside
# `with torch.random.fork_rng(devices):` you may set it, and the old one is back afterwards.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# In backward: detach each saved input and give it `requires_grad_(...)` from `ctx.needs_input_grad`, run the block
# inside `torch.enable_grad()`, and ask `torch.autograd.grad(out, tensors that need one, grad)`. Return one gradient, or
# None, for every argument of `apply`.
#
# </details>


# %% solution="checkpoint"
def checkpoint(block, *inputs):
    """What `block(*inputs)` returns; for backward, only `inputs` are kept and `block` runs again.

    Args:
        block: nn.Module; it may draw random numbers.
        inputs: tensors.

    Returns: the output tensor, part of the graph of the inputs and the parameters.
    """
    ### BEGIN SOLUTION
    parameters, gpus = tuple(block.parameters()), range(torch.cuda.device_count())

    class Recompute(torch.autograd.Function):
        @staticmethod
        def forward(ctx, *tensors):
            ctx.save_for_backward(*inputs)
            ctx.states = torch.get_rng_state(), torch.cuda.get_rng_state_all()
            return block(*inputs)

        @staticmethod
        def backward(ctx, grad):
            needs = ctx.needs_input_grad[: len(inputs)]
            fresh = [x.detach().requires_grad_(need) for x, need in zip(ctx.saved_tensors, needs, strict=True)]
            with torch.random.fork_rng(gpus), torch.enable_grad():
                torch.set_rng_state(ctx.states[0])
                torch.cuda.set_rng_state_all(ctx.states[1])
                out = block(*fresh)
            tensors = *fresh, *parameters
            grads = iter(torch.autograd.grad(out, [t for t in tensors if t.requires_grad], grad, allow_unused=True))
            return tuple(next(grads) if t.requires_grad else None for t in tensors)

    return Recompute.apply(*inputs, *parameters)
    ### END SOLUTION


# %% test="checkpoint-visible" points=3
check.checkpoint(checkpoint)

# %% test="checkpoint-hidden" points=2
### BEGIN HIDDEN TESTS
check.checkpoint(checkpoint, seed=9)
### END HIDDEN TESTS

# %% [markdown]
# ### Exercise 3 · How many segments
#
# A model of `n_blocks` equal blocks is cut into k segments, as even as possible, each of them checkpointed. Which k
# keeps the fewest bytes at the worst moment of backward?
#
# At that moment the longest segment has been run again: each of its blocks keeps `block_bytes`, its input included.
# Every other segment still keeps its own input.
#
# **Must** return (k, bytes): the fewest bytes any k from 1 to `n_blocks` needs; of equally good ones the smallest k.
#
# **Points** 2 · **Extra** · **Difficulty** ●●○ · **Minutes** 8 · **Lines** 3
#
# **Source** Chen et al. 2016, section 4.1: for equal costs the best k is about the square root of n.
#
# <details><summary>Hint 1</summary>
#
# How many blocks has the longest segment? How many segments are not it?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# (k − 1) · input_bytes + ceil(n_blocks / k) · block_bytes. Try every k.
#
# </details>


# %% solution="segments"
def segments(n_blocks, input_bytes, block_bytes):
    """The number of segments that keeps the fewest bytes, and how many that are.

    Args:
        n_blocks: int, at least 1.
        input_bytes: int, of the input of a block.
        block_bytes: int, what one block keeps for backward, its input included.

    Returns: (k, bytes), two int.
    """
    ### BEGIN SOLUTION
    kept = {k: (k - 1) * input_bytes + math.ceil(n_blocks / k) * block_bytes for k in range(1, n_blocks + 1)}
    best = min(kept, key=kept.get)  # the first of equal ones
    return best, kept[best]
    ### END SOLUTION


# %% test="segments-visible" points=1
check.segments(segments)

# %% test="segments-hidden" points=1
### BEGIN HIDDEN TESTS
check.segments(segments, seed=3)
### END HIDDEN TESTS

# %% tags=["experiment"]
checkpoint_now, segments_now = course.solved(check.checkpoint), course.solved(check.segments)
width, rows = size.block_width, size.block_rows


class Segment(nn.Sequential):
    """Blocks in a row; notes what autograd keeps of them whenever they run with a graph and `watched` is set."""

    watched, noted = False, []

    def forward(self, x):
        if not (Segment.watched and torch.is_grad_enabled()):
            return super().forward(x)
        out = []
        Segment.noted.append(saved_now(lambda: out.append(super(Segment, self).forward(x)), self))
        return out[0]


def stack(k, n_blocks=None):
    """`n_blocks` equal blocks of a linear map, LayerNorm, GELU and dropout, cut into `k` segments."""
    n_blocks = n_blocks or size.blocks
    torch.manual_seed(0)
    blocks = [nn.Sequential(nn.Linear(width, width), nn.LayerNorm(width), nn.GELU(), nn.Dropout(0.1))
              for _ in range(n_blocks)]  # fmt: skip
    pieces = torch.arange(n_blocks).tensor_split(k)
    return nn.ModuleList(Segment(*(blocks[i] for i in piece)) for piece in pieces).to(device)


def forward_of(model, x, checkpointed):
    """The mean of what all segments in a row return, in place of a loss."""
    for segment in model:
        x = checkpoint_now(segment, x) if checkpointed else segment(x)
    return x.mean()  # keeps nothing itself


def gradients_of(checkpointed, seed, k=4):
    """All gradients of one step as one vector."""
    model, x = stack(k), torch.randn(64, width, generator=torch.Generator().manual_seed(1)).to(device)
    torch.manual_seed(seed)
    forward_of(model, x, checkpointed).backward()
    return torch.cat([p.grad.flatten() for p in model.parameters()])


plain, again, other_mask = gradients_of(False, 0), gradients_of(True, 0), gradients_of(False, 1)
error = float((again - plain).norm() / plain.norm())
wrong = float((other_mask - plain).norm() / plain.norm())
cosine = float(other_mask @ plain / (other_mask.norm() * plain.norm()))
course.claim(
    "with dropout, checkpointed blocks have the gradients of plain ones",
    error < 1e-5,
    f"relative difference {error:.1e}",
)
course.claim("another dropout mask would give another gradient", wrong > 0.05,
             f"{100 * wrong:.0f} % of its norm away, cosine {cosine:.2f}")  # fmt: skip
print(f"error of the gradient with another mask: {100 * wrong:.0f} %" + reveal(my_guess_of_error))

# %% [markdown]
# Two gradients of equal length at right angles (cosine 0) differ by 141 % of that length. Every block drops a tenth of
# its values, so the errors add up over the blocks, and the cosine says how little the two gradients have left in
# common. A wrong mask raises no error: only a comparison with the plain gradient shows it. Dropout's random numbers are
# not the only state of a block. BatchNorm updates its running statistics in every forward pass.

# %% tags=["experiment"]
normed = nn.Sequential(nn.Linear(width, width), nn.BatchNorm1d(width)).to(device)
checkpoint_now(normed, torch.randn(64, width, device=device)).sum().backward()
updates = int(normed[1].num_batches_tracked)
course.claim("BatchNorm in a checkpointed block updates its running statistics twice per step", updates == 2, updates)

# %% [markdown]
# ## Memory against time
#
# **What a checkpointed model keeps and how long it takes can be computed beforehand, from one block and one step.**
#
# **Predict**: sixteen blocks (at the `laptop` scale). Which number of segments keeps the fewest bytes, and what share
# of the plain model's? And how many times as long as a plain step does a checkpointed step take?

# %%
my_guess_of_segments, my_guess_of_share = None, None
my_guess_of_time = None

# %% tags=["experiment"]
x = torch.randn(rows, width, generator=torch.Generator().manual_seed(2)).to(device)
one, input_bytes = stack(1, 1), x.numel() * x.element_size()
block_bytes = saved_now(lambda: one[0](x.clone().requires_grad_()), one)
counts = [k for k in range(1, size.blocks + 1) if size.blocks % k == 0]
models = {k: stack(k) for k in counts}


def peak_of(k):
    """Most bytes kept at once: what the forward pass leaves, and what the first segment of backward adds."""
    Segment.noted.clear()
    left = []
    forward_kept = saved_now(lambda: left.append(forward_of(models[k], x, True)), models[k])
    Segment.watched = True
    left[0].backward()
    Segment.watched = False
    return forward_kept + Segment.noted[0] - input_bytes  # its input was among what forward left


def step_of(k):
    """A function that makes one training step without the optimizer; k None: plain."""
    model = models[k or 1]

    def step():
        model.zero_grad()
        forward_of(model, x, k is not None).backward()
        if device.type == "cuda":
            torch.cuda.synchronize()

    return step


def forward_only():
    """The forward pass that a checkpointed step makes a second time."""
    forward_of(models[1], x, False)
    if device.type == "cuda":
        torch.cuda.synchronize()


plain_bytes = saved_now(lambda: forward_of(models[1], x, False), models[1])
peaks = {k: peak_of(k) for k in counts}
predicted = {k: (k - 1) * input_bytes + math.ceil(size.blocks / k) * block_bytes for k in counts}
timed = seconds_in_turn(
    {"plain": step_of(None), "forward": forward_only} | {k: step_of(k) for k in counts}, size.rounds + 2
)
longer = {k: timed[k] / timed["plain"] for k in counts}
predicted_time = 1 + float((timed["forward"] / timed["plain"]).median())
plots.memory_and_time(peaks, predicted, plain_bytes, longer, predicted_time)

# %% tags=["experiment"]
best, fewest = segments_now(size.blocks, input_bytes, block_bytes)
off_bytes = max(abs(peaks[k] / predicted[k] - 1) for k in counts)
times = {k: float(longer[k].median()) for k in counts}
off_time = statistics.median(abs(times[k] / predicted_time - 1) for k in counts)
for k in counts:
    print(f"{k:2} segments: {peaks[k] / 1e6:7.2f} MB (predicted {predicted[k] / 1e6:7.2f}), {times[k]:.2f} times as "
          f"long (rounds {longer[k].min():.2f} to {longer[k].max():.2f}; predicted {predicted_time:.2f})")  # fmt: skip
print(f"best: {best} segments, {fewest / plain_bytes:.0%} of the plain model's bytes"
      + reveal(my_guess_of_segments) + reveal(my_guess_of_share))  # fmt: skip
middle_time = statistics.median(times.values())
print(f"a checkpointed step takes {middle_time:.2f} times as long as a plain one" + reveal(my_guess_of_time))
course.claim(
    "the bytes kept are as predicted from one block, within 15 %", off_bytes < 0.15, f"at most {off_bytes:.1%} off"
)
course.claim(
    "checkpointing with one segment saves nothing",
    peaks[1] >= plain_bytes,
    f"{peaks[1] / plain_bytes:.2f} of the plain bytes",
)
course.claim("a checkpointed step takes one more forward pass, within 15 %", off_time < 0.15,
             f"{middle_time:.2f} times as long, predicted {predicted_time:.2f}",
             otherwise="The overhead of a segment is not small compared with its arithmetic.")  # fmt: skip

# %% [markdown]
# The number of segments changes the bytes. It should hardly change the time, because every block runs twice, however
# they are grouped. With one segment all blocks are run again at once and keep what they would have kept. With a segment
# per block all inputs are kept. In between lies the minimum. Times printed and drawn are medians of the ratios within a
# round; the lines in the figure go from quartile to quartile.

# %% [markdown]
# **Predict**: under a fixed budget of bytes, how many times as large a batch does checkpointing allow?

# %%
my_guess_of_larger = None

# %% tags=["experiment"]
budgeted = {"plain": stack(1), "checkpointed": stack(best)}


def peak_at(n, way):
    """Bytes kept at once at a batch of `n` rows."""
    batch = torch.randn(n, width, device=device)
    if way == "plain":
        return saved_now(lambda: forward_of(budgeted[way], batch, False), budgeted[way])
    Segment.noted.clear()
    left = []
    forward_kept = saved_now(lambda: left.append(forward_of(budgeted[way], batch, True)), budgeted[way])
    Segment.watched = True
    left[0].backward()
    Segment.watched = False
    return forward_kept + Segment.noted[0] - batch.numel() * batch.element_size()


def largest(way, step=8):
    """The most rows, a multiple of `step`, that keep at most the budget: doubling, then bisection."""
    low, high = 0, step
    while peak_at(high, way) <= size.kept_budget:
        low, high = high, 2 * high
    while high - low > step:
        middle = (low + high) // (2 * step) * step
        low, high = (middle, high) if peak_at(middle, way) <= size.kept_budget else (low, middle)
    return low


fitting = {way: largest(way) for way in budgeted}
gain, expected = fitting["checkpointed"] / fitting["plain"], plain_bytes / fewest
print(
    f"under {size.kept_budget / 1e6:.1f} MB: {fitting['plain']:,} rows plain, {fitting['checkpointed']:,} checkpointed"
)
course.claim("the batch grows as much as the bytes per row shrink, within 15 %", abs(gain / expected - 1) < 0.15,
             f"{gain:.2f} times, predicted {expected:.2f}{reveal(my_guess_of_larger)}")  # fmt: skip

# %% [markdown]
# What is counted here are bytes for backward. Parameters, their gradients and the optimizer's state come on top and do
# not shrink. A larger batch is worth something only if it trains faster: part 2 and unit 03 measure that.

# %% [markdown]
# ## A large batch in small pieces
#
# **Accumulated gradients are those of the large batch, unless a layer looks at the batch.**
#
# ### Exercise 4 · Accumulate
#
# Compute the gradients of a batch's mean loss from micro-batches, so that only one micro-batch's graph is in memory at
# a time.
#
# **Must**
# - split the batch in order into micro-batches of `micro_batch` rows; the last may be smaller;
# - leave in `.grad` the gradient of the mean cross-entropy over *all* samples;
# - call backward after each forward pass, before the next one;
# - return that mean loss as a detached scalar tensor.
#
# **You may assume** that no parameter has a gradient yet. The optimizer steps elsewhere.
#
# **Points** 3 · **Extra** · **Difficulty** ●●○ · **Minutes** 10 · **Lines** 6
#
# **Source** Unit 03, `accumulated_step`: the same idea with an optimizer, for rows that do not meet.
#
# <details><summary>Hint 1</summary>
#
# backward adds to `.grad`. What has each micro-batch's loss to be divided by, so that the sum is a mean over samples?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `F.cross_entropy(..., reduction="sum") / len(labels)` with the labels of the whole batch.
#
# </details>


# %% solution="accumulated"
def accumulated(model, images, labels, micro_batch):
    """Leave the gradient of the batch's mean loss in `.grad`, from micro-batches, and return that loss.

    Args:
        model: nn.Module, images -> logits.
        images: tensor (n, ...).
        labels: int64 tensor (n,).
        micro_batch: int, rows per forward pass.

    Returns: detached scalar tensor.
    """
    ### BEGIN SOLUTION
    total = torch.zeros((), device=images.device)
    for x, y in zip(images.split(micro_batch), labels.split(micro_batch), strict=True):
        loss = F.cross_entropy(model(x), y, reduction="sum") / len(labels)
        loss.backward()
        total += loss.detach()
    return total
    ### END SOLUTION


# %% test="accumulated-visible" points=2
check.accumulated(accumulated)

# %% test="accumulated-hidden" points=1
### BEGIN HIDDEN TESTS
check.accumulated(accumulated, seed=5)
### END HIDDEN TESTS

# %% [markdown]
# **Predict**: FashionCNN with BatchNorm, GroupNorm or no norm, a batch of 256 (at the `laptop` scale) in micro-batches
# of 16. In which of them does the gradient differ from that of the whole batch, and by how many percent?

# %%
my_guess_of_norms = None

# %% tags=["experiment"]
accumulated_now = course.solved(check.accumulated)
whole = size.accumulated_batch
pixels, answers = fashion.floats(data.train_images[:whole]).to(device), data.train_labels[:whole].to(device)
micro_batches = [whole // 2**i for i in range(6)]


def gradient(norm, micro):
    """(the gradient of all parameters of a new network as one vector, updates of running statistics)."""
    torch.manual_seed(0)
    model = FashionCNN(dropout=0.0, norm=norm).to(device)
    accumulated_now(model, pixels, answers, micro)
    counters = [int(b) for name, b in model.named_buffers() if name.endswith("num_batches_tracked")]
    return torch.cat([p.grad.flatten() for p in model.parameters()]), counters


differences = {}
for norm in ("batch", "group", None):
    truth, _ = gradient(norm, whole)
    found = {micro: gradient(norm, micro) for micro in micro_batches[1:]}
    differences[norm] = [float((found[micro][0] - truth).norm() / truth.norm()) for micro in micro_batches[1:]]
    if norm == "batch":
        counted = found[micro_batches[-1]][1][0]
plots.accumulation(micro_batches[1:], differences)

# %% tags=["experiment"]
worst = max(differences["group"] + differences[None])
course.claim(
    "without BatchNorm the accumulated gradient is that of the whole batch", worst < 1e-4, f"at most {worst:.1e} off"
)
course.claim(
    "with BatchNorm the accumulated gradient is not that of the whole batch",
    differences["batch"][-1] > 0.02,
    f"{100 * differences['batch'][-1]:.0f} % off at {micro_batches[-1]} rows" + reveal(my_guess_of_norms),
)
course.claim(
    "with BatchNorm, the smaller the micro-batch, the further its gradient is from the whole batch's",
    differences["batch"] == sorted(differences["batch"]),
    " ".join(f"{d:.2f}" for d in differences["batch"]),
)
course.claim(
    "BatchNorm's running statistics are updated once per micro-batch", counted == whole // micro_batches[-1], counted
)

# %% [markdown]
# BatchNorm takes mean and variance from the rows that it sees: those of a micro-batch. Its gradient is not wrong, it is
# that of another function. So accumulation is exact where rows do not meet, and with BatchNorm it is a batch of its own
# kind. It saves memory, not arithmetic: the same rows go through the model, in smaller pieces.

# %% [markdown]
# ## The race
#
# **Seconds until the validation accuracy reaches a target: the one number that counts steps and their cost together.**
#
# The rules: all train FashionCNN on the same images, judged on the same validation images. The clock counts everything
# after the files are read: conversion, training, every evaluation. Data path, batch, learning rate, schedule,
# precision, memory format and optimizer may change. The network may not, except for a bias without effect. Nothing is
# chosen by the test images, which are looked at once, at the end.
#
# The plain script: a Dataset of single images with transforms, Adam at 1e-3, batches of 64, float32, an evaluation per
# epoch. `course/training/speedrun.py` holds the loop. The advice, with the field of a `Recipe` that follows it:
#
# | advice | what changes |
# |---|---|
# | data in memory (`in_memory`) | all images are one tensor; a batch is cut out of it and normalised at once |
# | batch of 128 (`batch_size`) | half the steps per epoch; the learning rate doubles |
# | one cycle (`one_cycle`) | the learning rate rises and falls once in 1.5 epochs; its peak is 2.5 times as high |
# | bfloat16 (`bf16`) | forward pass and evaluation run under autocast |
# | channels_last (`channels_last`) | another order of the numbers in memory (part 3) |
# | fused Adam (`fused`) | one kernel updates all weights (part 3) |
# | no useless bias (`useless_bias=False`) | convolutions before BatchNorm have no bias (part 3) |
# | label smoothing (`label_smoothing`) | the loss asks for 0.91 for the right class, 0.01 for each other |
# | late evaluation (`late_evaluation`) | evaluate after 80, 90 and 100 % of each cycle only |

# %% tags=["experiment"]
everything = speedrun.recipe(*speedrun.ADVICE)
left_out = size.race_left_out or list(speedrun.ADVICE)
print(f"everything: all nine, so a peak learning rate of {everything.lr:g} in a cycle of {everything.epochs:g} epochs")
print("left out once each in this run:", ", ".join(left_out))

# %% [markdown]
# **Predict**: how many times as fast as plain is everything? Of the pieces of advice named above as left out in this
# run: which is worth most, and which least?

# %%
my_guess_of_race, my_guess_of_most, my_guess_of_least = None, None, None

# %% [markdown]
# ### Exercise 5 · What a piece of advice is worth
#
# A piece of advice is left out. How many times as long as with all advice does the race take then?
#
# **Must**
# - return {name: (median, lowest, highest)} of seconds of that name over seconds of `base`, paired by seed;
# - use only seeds that both have; leave out `base` itself and names that share no seed with it;
# - take the latest run where a name and seed occur again.
#
# **You may assume** that runs of the base reached the target. Seconds are `math.inf` for a run that did not.
#
# **Points** 3 · **Core** · **Difficulty** ●○○ · **Minutes** 13 · **Lines** 7
#
# **Source** An ablation, as in Girshick et al. 2014, "Rich feature hierarchies", section 3.2, counted in time.
#
# <details><summary>Hint 1</summary>
#
# Seeds differ in how lucky they are. Which two runs share their luck?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# A dict with the key (name, seed): a later run overwrites an earlier one. Collect the ratios of a name in a list.
#
# </details>


# %% solution="advice_worth"
def advice_worth(runs, base):
    """How many times as long as `base` each name takes, paired by seed.

    Args:
        runs: list of (name, seed, seconds), in the order of time.
        base: name of the runs that follow all advice.

    Returns: {name: (median, lowest, highest)}, floats.
    """
    ### BEGIN SOLUTION
    latest = {(name, seed): seconds for name, seed, seconds in runs}
    ratios = {}
    for (name, seed), seconds in latest.items():
        if name != base and (base, seed) in latest:
            ratios.setdefault(name, []).append(seconds / latest[base, seed])
    return {name: (statistics.median(own), min(own), max(own)) for name, own in ratios.items()}
    ### END SOLUTION


# %% test="advice_worth-visible" points=2
check.advice_worth(advice_worth)

# %% test="advice_worth-hidden" points=1
### BEGIN HIDDEN TESTS
check.advice_worth(advice_worth, seed=7)
### END HIDDEN TESTS

# %% tags=["experiment"]
target = size.race_target["real" if data.real else "stand-in"]
track = speedrun.track(data, target, size.race_images)
print(f"{track.name}, {len(track.validation_labels):,} for validation; target {100 * target:g} %")
speedrun.warm_up(track, device)
runs = []
for seed in range(size.race_seeds):
    for name, recipe in speedrun.contestants(left_out).items():
        runs.append(speedrun.race(name, recipe, track, seed, device, size.race_epochs))
        speedrun.keep(runs[-1])
first = [run for run in runs if run.name in ("plain", "everything")]
plots.race(first, target)

# %% tags=["experiment"]
worth_now = course.solved(check.advice_worth)
worth = worth_now([(run.name, run.seed, run.seconds) for run in runs], "everything")
told = {(run.name, run.seed): speedrun.test_accuracy(run, track) for run in first}
for run in first:
    print(f"{run.name:<11} seed {run.seed}: {run.seconds:6.2f} s, {run.epochs:.2f} epochs, validation "
          f"{run.accuracies[-1][2]:.3f}, test {told[run.name, run.seed]:.3f}")  # fmt: skip
median, lowest, highest = worth.pop("plain")
below = [f"{run.name} with seed {run.seed}" for run in first if run.seconds == math.inf]
faster = f"{median:.1f} times as fast, {lowest:.1f} to {highest:.1f}"
if below:
    faster = f"after {size.race_epochs} epochs below the target: {', '.join(below)}"
print("everything against plain: " + faster + reveal(my_guess_of_race))
course.claim("following all advice reaches the target sooner than the plain script, for every seed", lowest > 1, faster)
seconds = {(run.name, run.seed): run.seconds for run in first}
earliest = {run.seed: run.accuracies[-2][1] if len(run.accuracies) > 1 else 0.0 for run in first if run.name == "plain"}
least = min(earliest[seed] / seconds["everything", seed] for seed in earliest)
course.claim("following all advice wins even if the plain script passed the target right after its last evaluation "
             "but one", least > 1,
             f"at least {least:.1f} times as fast")  # fmt: skip
plots.left_out(worth)


# %% tags=["experiment"]
def pace(name):
    """Epochs that the runs of `name` needed, and the milliseconds per 1,000 images, evaluations included."""
    own = [run for run in runs if run.name == name]
    epochs = statistics.median(run.epochs for run in own)
    speed = statistics.median(1e6 * run.accuracies[-1][1] / (run.epochs * len(track.labels)) for run in own)
    return f"{epochs:.2f} epochs of {speed:.0f} ms per 1,000 images"


verdicts = {}
for name, (median, lowest, highest) in sorted(worth.items(), key=lambda item: -item[1][0]):
    verdict = "helped here" if lowest > 1.02 else "did not help here" if highest < 1.02 else "not decided here"
    verdicts[name.removeprefix("without ")] = verdict
    longer = f"{median:5.2f} times as long ({lowest:.2f} to {highest:.2f})"
    if not math.isfinite(highest):
        longer = "did not reach the target with every seed"
    print(f"{name:<30} {longer}  {verdict}; " + pace(name))
print(f"{'everything':<58} " + pace("everything"))
medians = {name.removeprefix("without "): triple[0] for name, triple in worth.items()}
spread = max((high - low for _, low, high in worth.values() if math.isfinite(high)), default=0.0)  # over the seeds
print("worth most: " + reveal_leader(my_guess_of_most, leaders(medians, spread, most=True)))
print("worth least: " + reveal_leader(my_guess_of_least, leaders(medians, spread)))
helped = [name for name, verdict in verdicts.items() if verdict == "helped here"]
course.claim(
    "not every piece of advice that was left out helps with every seed",
    len(helped) < len(verdicts),
    f"{len(helped)} of {len(verdicts)} do; {len(speedrun.ADVICE) - len(verdicts)} were not left out",
)

# %% [markdown]
# A time is epochs times time per image. The epochs of a seed hardly depend on the machine, the time per image does.
# Compare both with those of "everything": they say whether a piece of advice saved steps or made them cheaper. Where
# following everything does not win, look at the epochs: a cycle that ends below the target costs a second one.
#
# The race ends at the target, so the accuracies at the end do not say which model is better. Plain is evaluated once
# per epoch: it may pass the target early in an epoch, and trains on to its end. A part of its time is therefore only
# coarse evaluation. The second claim counts plain up to its last evaluation but one, at which it was below the target;
# the true factor lies between the two.
#
# A ratio of 1.3 says: leave out this alone, and the race takes 1.3 times as long. Ratios need not multiply up to the
# whole, because one piece of advice can make room for another: with the images in memory the arithmetic is a larger
# share of the time. Where a range crosses 1, these seeds do not decide: a run may reach the target one evaluation
# sooner or later by luck alone. Where every piece left out helped, that is no verdict on the others, of which
# "everything" has them all: `course bench speedrun` leaves out all nine, on all images. Another machine, another
# network or more images can change every line of this list.

# %% [markdown]
# ## Your own entry
#
# **Beat your own best time.** Write a recipe, run the cell again. Every run is kept with your answers and drawn below.

# %% tags=["experiment"]
mine = None  # replace(speedrun.recipe(*speedrun.ADVICE), batch_size=256, lr=8e-3)
if mine is not None:
    number = 1 + len([run for run in speedrun.kept() if run.name.startswith("mine")])
    runs.append(speedrun.race(f"mine {number}", mine, track, 0, device, size.race_epochs))
    speedrun.keep(runs[-1])
board = [run for run in speedrun.kept() or runs if (run.track, run.target) == (track.name, track.target)]
plots.leaderboard(board)

# %% [markdown]
# ### Question · The advice that did not help
#
# Which advice of this unit did not help you, in this race or in parts 1 to 3? (If all of it helped, take the piece with
# the smallest gain.) Say what it promises, what you measured,
# with its spread, and why it did not help here. Name a machine, model or data set on which you would expect it to help,
# and the measurement that would prove you wrong. (8 to 12 sentences, about 15 minutes, extra, 4 points.)

# %% [markdown] answer="did_not_help" points=4
# ### BEGIN SOLUTION
# A good answer names one piece of advice and what it promises (fewer steps, cheaper steps, less waiting, less
# memory), and gives the paired ratio with its spread over seeds or rounds. It explains the result by a share: how
# much of a step, or of the steps, the advice could have removed at all (Amdahl), for example the optimizer's share
# for a fused optimizer, or one evaluation in a cycle. It separates "made no difference" from "this measurement cannot
# tell". It then names conditions in which the share is large, and a measurement there that could refute the
# expectation.
#
# One point each: a measured ratio with spread · the share that explains it · no difference against undecided · a
# condition and a measurement that could refute it.
# ### END SOLUTION

# %% [markdown]
# ## What to take with you
#
# - Checkpointing keeps inputs alone: about the square root of the memory, for one more forward pass. Restore the random
#   numbers.
# - Accumulation equals the large batch where rows do not meet. BatchNorm makes them meet.
# - Judge a speed-up by the time to an accuracy, over seeds, with each piece of advice left out once. Keep what helped
#   *here*.
#
# ## References
#
# - Chen, Xu, Zhang and Guestrin 2016, "Training deep nets with sublinear memory cost", arXiv:1604.06174
# - Coleman et al. 2017, "DAWNBench: an end-to-end deep learning benchmark and competition": time to accuracy
# - Smith and Topin 2018, "Super-convergence", arXiv:1708.07120
# - Xiao, Rasul and Vollgraf 2017, "Fashion-MNIST", arXiv:1708.07747
