# %% [markdown]
# # Large batches, part 4: Half the bits, part of the batch
#
# **A large batch does not fit into memory: what do smaller pieces cost, and what do smaller numbers?**
#
# Two remedies save memory. Gradient accumulation takes the batch in pieces and still makes the same update. Mixed
# precision computes in 16 bits where 16 bits suffice. You measure each cost.
#
# **You will be able to**
#
# - make the update of a large batch from small pieces, and count the bytes that this saves;
# - choose between bf16 and fp16, and say when a loss scale is needed;
# - write a training step under `torch.amp`, and a dynamic loss scaler.
#
# **Minutes** 32 core · 94 in all · session 2
#
# **Needs** part 3 (its answers are used if you solved it)

# %% locked="setup"
import functools
import math
import statistics

import torch
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

import course
from course.checks import large_batch as check
from course.learner.predictions import reveal
from course.measure.comparison import compare
from course.plots import large_batch as plots
from course.training import recommender_loop
from course.training.half_precision import bf16_instructions, bf16_step, lost_in_fp16
from course.training.recommender import Experiment, print_run

print(course.machine())
device = course.device()

# %% [markdown]
# ## What if the batch does not fit?
#
# The gradient of a mean is a weighted mean of gradients, so a batch can be processed in pieces: `backward()` *adds* to
# `grad`. Weight each piece by its share of the rows, and let the optimizer step after the last one. (Batch norm, which
# NeuMF does not use, would see only the pieces.)

# %% [markdown]
# ### Exercise 1 · Accumulated step
#
# Make one training step on the whole batch, in as few pieces of at most `micro_batch` rows as possible.
#
# **Must**
# - give every row the same weight in the mean, whatever the sizes of the pieces;
# - run each piece's backward pass before the next piece's forward pass, so that only one piece is in memory;
# - call `optimizer.step()` once, and return the mean loss of the whole batch, detached.
#
# ```python
# >>> model = torch.nn.Embedding(2, 1)
# >>> _ = torch.nn.init.zeros_(model.weight)
# >>> users, labels = torch.tensor([0, 1, 1]), torch.tensor([0.0, 1.0, 1.0])
# >>> optimizer = torch.optim.SGD(model.parameters(), lr=6.0)
# >>> loss = accumulated_step(lambda u, i: model(u)[:, 0], users, users, labels, optimizer, micro_batch=2)
# >>> round(loss.item(), 4), model.weight.flatten().tolist()
# (0.6931, [-1.0, 2.0])
# ```
#
# **Points** 4 · **Core** · **Difficulty** ●●○ · **Minutes** 12 · **Lines** 8
#
# **Source** Goyal et al. 2017, arXiv:1706.02677, section 3: the loss is normalised by the size of the whole minibatch.
#
# <details><summary>Hint 1</summary>
#
# 10 rows in pieces of 4, 4 and 2: by what must the mean losses of the three be multiplied, so that their sum is the
# mean of the ten?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# A slice may end past the end of a tensor, so the smaller last piece needs no special case. With
# `reduction="sum"` you need one division, by the same number for every piece.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# In the loop over `range(0, len(labels), micro_batch)`, with `rows = slice(start, start + micro_batch)`: the sum of
# the losses of these rows divided by `len(labels)`, its `backward()`, and the running total of `loss.detach()`.
#
# </details>


# %% solution="accumulated_step"
def accumulated_step(model, users, items, labels, optimizer, micro_batch):
    """Make the training step of the whole batch from parts of at most `micro_batch` rows; return the mean loss.

    Args:
        model: called with (users, items), gives logits.
        users, items: int64 tensors (n,).  labels: float32 tensor (n,) of zeros and ones, on the same device.
        optimizer: holds the parameters of `model`; steps once.
        micro_batch: most rows of one forward pass, at least 1.

    Returns: float32 tensor of shape (), detached.
    """
    optimizer.zero_grad()
    ### BEGIN SOLUTION
    total = 0.0
    for start in range(0, len(labels), micro_batch):
        rows = slice(start, start + micro_batch)
        loss = F.binary_cross_entropy_with_logits(model(users[rows], items[rows]), labels[rows], reduction="sum")
        loss = loss / len(labels)  # of the whole batch: every row weighs the same
        loss.backward()
        total += loss.detach()
    optimizer.step()
    return total
    ### END SOLUTION


# %% test="accumulated_step-visible" points=2
check.accumulated_step(accumulated_step)

# %% test="accumulated_step-hidden" points=2
### BEGIN HIDDEN TESTS
check.accumulated_step(accumulated_step, seed=14)
### END HIDDEN TESTS

# %% [markdown]
# From here on, "the large model" is NeuMF in the sizes that NVIDIA trains (reference 3).
#
# **Predict** for the large model at 192 times the batch: how many times the bytes of its weights does autograd keep for
# the backward pass? By what factor do micro-batches of 16 times the base batch reduce that? And by what factor does the
# time of an update change?

# %%
predicted_kept = None  # your number: bytes kept over bytes of the weights
predicted_savings = None  # your number: bytes of the whole batch over bytes with micro-batches
predicted_seconds = None  # your number: seconds with micro-batches over seconds of the whole batch

# %% tags=["experiment"]
sizes = course.sizes("03_large_batch")
experiment = Experiment(sizes)
batches = experiment.batches
print(experiment)


class Kept:
    """Bytes that autograd keeps for backward, now and at most; a storage counts once, those in `owned` do not."""

    def __init__(self, owned):
        self.owned, self.users, self.now, self.most = {t.untyped_storage().data_ptr() for t in owned}, {}, 0, 0

    def pack(self, tensor):
        return _Holder(self, tensor)

    def count(self, storage, change):
        place = storage.data_ptr()
        if place in self.owned:
            return
        before = self.users.get(place, 0)
        self.users[place] = before + change
        if not before or not self.users[place]:  # the first to keep it, or the last to let it go
            self.now += change * storage.nbytes()
            self.most = max(self.most, self.now)


class _Holder:
    """A tensor kept for backward, which leaves the count when autograd drops it."""

    def __init__(self, kept, tensor):
        self.kept, self.tensor = kept, tensor
        kept.count(tensor.untyped_storage(), 1)

    def __del__(self):
        self.kept.count(self.tensor.untyped_storage(), -1)


def most_kept(step, batch_size):
    """(most bytes kept at one time, most bytes allocated on CUDA or NaN) during the second of two steps."""
    model = experiment.fresh_model("nvidia")
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    batch = [t.clone() for t in experiment.first_batch(batch_size)]  # a slice would keep all of its epoch
    step(model, *batch, optimizer)
    kept, allocated = Kept(model.parameters()), math.nan
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
    with torch.autograd.graph.saved_tensors_hooks(kept.pack, lambda holder: holder.tensor):
        step(model, *batch, optimizer)
    if device.type == "cuda":
        allocated = torch.cuda.max_memory_allocated() - before
    return kept.most, allocated


# %% tags=["experiment"]
fp32_step = recommender_loop.training_step
accumulated = functools.partial(course.solved(check.accumulated_step), micro_batch=batches[1])
memory_batches = [sizes.base_batch * times for times in (4, 16, 64, 192)]
WHOLE, PIECES, IN_BF16 = "the whole batch", f"micro-batches of {batches[1]:,}", "the whole batch in bf16"
steps = {WHOLE: fp32_step, PIECES: accumulated, IN_BF16: bf16_step}
measured = {name: [most_kept(step, batch) for batch in memory_batches] for name, step in steps.items()}
kept = {name: [most for most, _ in pairs] for name, pairs in measured.items()}
weights = sum(p.numel() * p.element_size() for p in experiment.fresh_model("nvidia").parameters())
for name, values in kept.items():
    print(f"{name:<28}" + "".join(f"{value / 1e6:>9.1f} MB" for value in values))
    if device.type == "cuda":
        print(f"{'  allocated by CUDA':<28}" + "".join(f"{value / 1e6:>9.1f} MB" for _, value in measured[name]))


def updates(step, batch_size):
    """A function that makes a few updates of NVIDIA's sizes with `step`."""
    model = experiment.fresh_model("nvidia")
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    batch = experiment.first_batch(batch_size)

    def run():
        for _ in range(sizes.amp_steps):
            step(model, *batch, optimizer)

    return run


whole, in_pieces, in_bf16 = (kept[name][-1] for name in (WHOLE, PIECES, IN_BF16))
ways = {name: updates(steps[name], batches[2]) for name in (WHOLE, PIECES)}
compared = compare(ways, device=device, seconds=sizes.seconds, progress=False)
print(f"at 192 times the batch: {whole / weights:.1f} times the weights" + reveal(predicted_kept), end="; ")
print(f"pieces save {whole / in_pieces:.2f} times" + reveal(predicted_savings), end="; ")
print(f"bf16 saves {whole / in_bf16:.2f} times\n{compared}")
longer = compared.ratio(WHOLE, to=PIECES)
print(f"seconds in pieces over seconds of the whole batch: {longer}" + reveal(predicted_seconds))
of_pieces = kept[PIECES][1:]  # of batches that are one micro-batch or several
course.claim("with micro-batches, a batch of 12 of them keeps at most a tenth more bytes than a batch of one",
             max(of_pieces) < 1.1 * of_pieces[0], ", ".join(f"{b / 1e6:.1f}" for b in of_pieces) + " MB")  # fmt: skip
course.claim("autocast to bf16 keeps at most three quarters of the bytes that fp32 keeps for backward",
             in_bf16 < 0.75 * whole, f"{in_bf16 / whole:.2f} of them")  # fmt: skip
course.claim("an update in 12 pieces takes at most 10 % longer than the whole batch", longer, below=1.1,
             otherwise="Your device is not full with a micro-batch.")  # fmt: skip
title = f"At {memory_batches[-1]:,} samples, micro-batches keep {whole / in_pieces:.1f} times fewer bytes"
plots.memory(memory_batches, kept, weights, title)

# %% [markdown]
# In bf16, what is kept for backward shrinks by less than half: weights and what stays in fp32 do not change. Both
# remedies can be combined.
#
# **Takeaway** With micro-batches the bytes follow the micro-batch, not the batch, and the update stays the same. They
# cost time only where a micro-batch does not fill the device.
#
# So one small machine can show what a large batch does to accuracy.

# %% [markdown]
# ## What do 16 bits keep?
#
# The other remedy is smaller numbers: 16 bits take half the memory and bandwidth of 32. What is lost depends on how the
# bits are divided. The exponent sets the range, and the fraction sets the spacing.
#
# | format | exponent bits | largest | smallest normal | smallest above 0 | spacing at 1 |
# |---|---|---|---|---|---|
# | fp32 | 8 | 3.4e38 | 1.2e-38 | 1.4e-45 | 1.2e-7 |
# | fp16 | 5 | 65504 | 6.1e-5 (2^-14) | 6.0e-8 (2^-24) | 9.8e-4 |
# | bf16 | 8 | 3.4e38 | 1.2e-38 | 9.2e-41 | 7.8e-3 |
#
# `torch.amp.autocast` runs some operations, above all matrix products, in 16 bits. Weights, optimizer and `p.grad`
# stay in fp32, but in the backward pass the gradients of activations are 16-bit. With a mean loss they shrink as the
# batch grows, because each row contributes one part in $B$. A gradient that becomes zero trains nothing.
#
# The fix uses the other end of the range. Multiply the loss by a constant, the **loss scale**, before the backward
# pass, and divide the gradients by it, in fp32, before the update.
#
# **Predict**: at 192 times the batch, what share of the non-zero gradient values of activations is below 2^-14, where
# fp16 has fewer digits? And what share becomes zero?

# %%
predicted_subnormal = None  # your number: percent below 2^-14
predicted_lost = None  # your number: percent that become zero


# %% tags=["experiment"]
class WatchedLinear(TorchFunctionMode):
    """While active, keep the gradient of every result of F.linear in `gradients` when backward reaches it."""

    def __init__(self):
        super().__init__()
        self.gradients = []

    def __torch_function__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        if function is F.linear:
            result.register_hook(lambda gradient: self.gradients.append(gradient.detach()))
        return result


def watched_backward(batch_size, dtype, loss_scale=1.0):
    """(gradients of activations, of parameters) of one backward pass, the forward pass in `dtype`, two lists."""
    model = experiment.fresh_model("nvidia")
    users, items, labels = experiment.first_batch(batch_size)
    with WatchedLinear() as watched, torch.amp.autocast(device.type, dtype, enabled=dtype != torch.float32):
        logits = model(users, items)
    (loss_scale * F.binary_cross_entropy_with_logits(logits.float(), labels)).backward()
    return watched.gradients, [p.grad for p in model.parameters()]


def below_normal(tensors):
    """Percent of the non-zero values whose magnitude is below 2**-14."""
    values = torch.cat([t.flatten() for t in tensors]).abs()
    return 100 * ((values > 0) & (values < 2.0**-14)).sum().item() / max(1, values.count_nonzero().item())


small, lost = [], []
for batch in batches:
    activations, parameters = watched_backward(batch, torch.float32)
    small.append(below_normal(activations))
    lost.append(lost_in_fp16(activations))
    print(f"batch {batch:>7,}: of the activations' gradients {small[-1]:5.1f} % below 2^-14, {lost[-1]:5.2f} % zero")
print(f"at 192 times the batch: {small[-1]:.1f} % below 2^-14" + reveal(predicted_subnormal)
      + f", {lost[-1]:.2f} % zero" + reveal(predicted_lost))  # fmt: skip
in_half, grads = watched_backward(batches[2], torch.float16)
course.claim("under autocast the backward pass is 16-bit and p.grad is fp32",
             {g.dtype for g in in_half} == {torch.float16} and {g.dtype for g in grads} == {torch.float32})  # fmt: skip
course.claim("the larger the batch, the more of the activations' gradients is below 2^-14", small == sorted(small),
             ", ".join(f"{share:.1f} %" for share in small))  # fmt: skip
course.claim("without a loss scale, less than 5 % of the gradients is lost here", lost[2] < 5, f"{lost[2]:.2f} %")
peaks = [max(g.abs().max().item() for g in tensors) for tensors in (activations, parameters)]
course.claim(
    "p.grad has larger values than the activations' gradients, so it limits the loss scale", peaks[1] > peaks[0]
)
safe = 2.0 ** math.floor(math.log2(65504 / (2 * max(peaks))))  # leaves a factor of two of headroom
print(
    f"a safe loss scale for this batch: 2^{math.log2(safe):.0f}; "
    f"zero there: {lost_in_fp16([safe * g for g in activations]):.2f} %"
)
below = f"{below_normal([safe * g for g in activations]):.0f} % of activations' gradients below 2^-14"
title = f"With a loss scale of 2^{math.log2(safe):.0f}, {below}; without, {small[-1]:.0f} %"
plots.gradient_histogram({"gradients of activations": activations, "p.grad": parameters}, safe, title)

# %% [markdown]
# **Takeaway** The larger the batch, the smaller the gradients of activations. Below fp16's normal range they lose
# digits long before they become zero.
#
# `p.grad` has the largest values, so it limits the scale: the backward pass computes it in fp16 before autograd casts
# it. This scale suits the untrained model; later updates may need another.

# %% [markdown]
# ## Is it faster here?
#
# For 16 bits, take bf16 on NVIDIA GPUs since Ampere (2020) and on CPUs that multiply bf16 in hardware, and fp16 with a
# loss scale on older GPUs. But does 16-bit arithmetic save time on *your* machine? The cell times an update of the
# large model, and for comparison one matrix product alone.
#
# **Predict** how many times as fast the update is in bf16.

# %%
predicted_speedup = None  # your number: seconds in fp32 over seconds in bf16


# %% tags=["experiment"]
def products(dtype):
    """A function that multiplies two square matrices in `dtype`."""
    matrix = torch.randn(512, 512, device=device).to(dtype)
    return lambda: [matrix @ matrix for _ in range(sizes.amp_steps)]


FP32, BF16 = "fp32", "bf16"
ways = {FP32: updates(fp32_step, batches[1]), BF16: updates(bf16_step, batches[1])}
update = compare(ways, device=device, seconds=sizes.seconds, progress=False)
ways = {FP32: products(torch.float32), BF16: products(torch.bfloat16)}
product = compare(ways, device=device, seconds=sizes.seconds, progress=False)
print(f"an update\n{update}{reveal(predicted_speedup)}\na product alone\n{product}\n{course.machine()}")
if device.type == "cpu":
    print("instructions of this CPU for products of bf16:", ", ".join(bf16_instructions()) or "none")
course.claim("bf16 makes a product of two matrices at least 10 % faster than fp32", product.ratio(BF16), above=1.1,
             otherwise="Without such instructions, or without tensor cores, bf16 is converted first.")  # fmt: skip
course.claim("bf16 makes an update of NVIDIA's NeuMF at least 10 % faster than fp32", update.ratio(BF16), above=1.1,
             otherwise="Conversions, or operations other than products, take much of the update.")  # fmt: skip

# %% [markdown]
# If the line of instructions above names none, your CPU has no unit for bf16. **We think** that torch then converts
# each value to fp32 before it multiplies, so 16 bits cost time. The test is a CPU with `avx512_bf16` or `amx_bf16`, or
# a GPU: there the product should win, and the update by less, because only its products are faster.
#
# **Takeaway** 16 bits save memory everywhere, and time only where the hardware multiplies them. Measure before you
# switch.

# %% [markdown]
# ## Can you keep small gradients alive? · extra
#
# You write the three pieces of mixed precision in fp16: a measure of what it loses, the training step, and a loss
# scaler.

# %% [markdown]
# ### Exercise 2 · What fp16 loses
#
# Compute the share of non-zero gradient values that become exactly zero in fp16.
#
# **Must**
# - multiply by `loss_scale` in float32, then cast;
# - count all values of all tensors together, but not those that were 0 before;
# - return 0.0 if no value is different from 0.
#
# ```python
# >>> flushed_share([torch.tensor([1.0, 0.0, 1e-9]), torch.tensor([2e-9, 1e-3])])
# 0.5
# ```
#
# **Points** 2 · **Extra** · **Difficulty** ●○○ · **Minutes** 8 · **Lines** 4
#
# **Source** Micikevicius et al. 2018, "Mixed Precision Training", arXiv:1710.03740, section 3.2.
#
# <details><summary>Hint 1</summary>
#
# Which values belong in the denominator? Should a tensor with ten values count as much as one with a million?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Do not compare with a limit from the table: rounding decides at the edge. Cast with `.half()` and count the zeros.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# `g = torch.cat([...flatten()...])`, `alive = g[g != 0]`, then the zeros of `(alive * loss_scale).half()` over
# `len(alive)`, with a case of its own for an empty `alive`.
#
# </details>


# %% solution="flushed_share"
def flushed_share(gradients, loss_scale=1.0):
    """Share of the non-zero values that become exactly zero when multiplied by `loss_scale` and cast to fp16.

    Args:
        gradients: list of float32 tensors of any shapes, all on one device.
        loss_scale: factor by which the values are multiplied in float32 before the cast.

    Returns: a float from 0.0 to 1.0; 0.0 if every value is zero.
    """
    ### BEGIN SOLUTION
    values = torch.cat([g.flatten() for g in gradients])
    alive = values[values != 0]
    flushed = (alive * loss_scale).half() == 0
    return flushed.sum().item() / max(len(alive), 1)
    ### END SOLUTION


# %% test="flushed_share-visible" points=1
check.flushed_share(flushed_share)

# %% test="flushed_share-hidden" points=1
### BEGIN HIDDEN TESTS
check.flushed_share(flushed_share, seed=10)
### END HIDDEN TESTS

# %% [markdown]
# ### Exercise 3 · The training step under autocast
#
# Write the training step in mixed precision, with a loss scaler or without.
#
# **Must**
# - run `model(users, items)` under `torch.amp.autocast` (device type of `labels`, `dtype`), all else outside, with the
#   loss from float32 logits;
# - without a scaler call `loss.backward()` and `optimizer.step()`;
# - with one, run backward on the loss that `scaler.scale` returns, then call `scaler.step(optimizer)` and
#   `scaler.update()`.
#
# **Points** 4 · **Extra** · **Difficulty** ●●○ · **Minutes** 10 · **Lines** 10
#
# **Source** PyTorch documentation, "Automatic Mixed Precision examples"; `torch.cuda.amp` is its deprecated name.
#
# <details><summary>Hint 1</summary>
#
# Which of the five things that a training step does (clear gradients, forward, loss, backward, update) run under
# autocast, and which of them does a scaler take over?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# The scaler has three calls: one makes a larger loss for the backward pass, one stands in place of `optimizer.step()`,
# and one comes last.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# Clear with `optimizer.zero_grad()`, which sets to None; `with torch.amp.autocast(labels.device.type, dtype):` around
# the model only; the loss from `logits.float()`; then `scaler.scale(loss).backward()`, `scaler.step(optimizer)`,
# `scaler.update()`, or the two plain calls.
#
# </details>


# %% solution="amp_step"
def amp_step(model, users, items, labels, optimizer, scaler=None, dtype=torch.bfloat16):
    """Make one training step in mixed precision and return the mean loss of the batch.

    Args:
        model: called with (users, items), gives logits (n,).
        users, items: int64 tensors (n,).  labels: float32 tensor (n,) of zeros and ones, on the same device.
        optimizer: holds the parameters of `model`.
        scaler: None, or a loss scaler for fp16.
        dtype: 16-bit type of the forward pass.

    Returns: float32 tensor of shape (), detached and unscaled.
    """
    optimizer.zero_grad()  # sets to None: what the model does not use is left alone
    ### BEGIN SOLUTION
    with torch.amp.autocast(labels.device.type, dtype):
        logits = model(users, items)
    loss = F.binary_cross_entropy_with_logits(logits.float(), labels)
    if scaler is None:
        loss.backward()
        optimizer.step()
    else:
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    return loss.detach()
    ### END SOLUTION


# %% test="amp_step-visible" points=2
check.amp_step(amp_step)

# %% test="amp_step-hidden" points=2
### BEGIN HIDDEN TESTS
check.amp_step(amp_step, seed=13)
### END HIDDEN TESTS

# %% [markdown]
# ### Exercise 4 · A loss scaler that finds its scale
#
# A dynamic scaler starts high, skips a step whose gradients overflow and lowers the scale, and raises it after many
# good steps in a row. Its state is given; write its methods, for one optimizer.
#
# **Must**
# - `unscale_`: divide every gradient by the scale in place, once per update, and note whether one was `inf` or `nan`;
# - `step`: unscale if that was not done, and call `optimizer.step()` unless there was an overflow (return whether);
# - `update`: multiply the scale by `backoff` after an overflow, by `growth` after `growth_interval` good ones in a row.
#
# **Not allowed** `torch.amp.GradScaler`
#
# ```python
# >>> w = torch.nn.Parameter(torch.ones(1))
# >>> scaler, optimizer = LossScaler(init_scale=4.0), torch.optim.SGD([w], lr=1.0)
# >>> w.grad = torch.tensor([float("inf")])
# >>> scaler.step(optimizer), scaler.update(), scaler.scale(1.0), w.item()
# (False, None, 2.0, 1.0)
# ```
#
# **Points** 6 · **Extra** · **Difficulty** ●●● · **Minutes** 28 · **Lines** 20
#
# **Source** Micikevicius et al. 2018, section 3.2; `torch.amp.GradScaler`, whose defaults these are.
#
# <details><summary>Hint 1</summary>
#
# What must the object remember from `unscale_` to `step`, from `step` to `update`, and from one update to the next?
# Can one attribute say both "not unscaled yet" and "unscaled, all finite"?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Clipping by value turns an `inf` into an ordinary number. When must the scaler look, so that it does not miss the
# overflow?
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# Keep `self.overflow = None` until `unscale_` has run. In `unscale_`: return if it is not None; collect the gradients
# of all groups; `div_` each; `self.overflow = not all(...isfinite()...)`. `step` calls `unscale_` and looks at it,
# `update` looks at it and sets it back to None.
#
# </details>


# %% solution="LossScaler"
class LossScaler:
    """A dynamic loss scale for fp16, for one optimizer: starts high, backs off on overflow, grows after good steps.

    Args:
        init_scale: the scale before the first update.
        growth: factor after `growth_interval` good steps in a row.
        backoff: factor after a step whose gradients held inf or nan.
        growth_interval: number of good steps in a row after which the scale grows.
    """

    def __init__(self, init_scale=2.0**16, growth=2.0, backoff=0.5, growth_interval=2000):
        self.factor = init_scale
        self.growth, self.backoff, self.growth_interval = growth, backoff, growth_interval
        self.good_steps = 0
        self.overflow = None  # None until unscale_ has run, then whether a gradient was inf or nan

    def scale(self, loss):
        """`loss` times the current scale, differentiable."""
        ### BEGIN SOLUTION
        return loss * self.factor
        ### END SOLUTION

    def unscale_(self, optimizer):
        """Divide the gradients of `optimizer` by the scale in place, once per update, and note inf and nan."""
        ### BEGIN SOLUTION
        if self.overflow is not None:
            return
        params = [p for group in optimizer.param_groups for p in group["params"]]
        gradients = [p.grad for p in params if p.grad is not None]
        for g in gradients:
            g.div_(self.factor)
        self.overflow = not all(g.isfinite().all() for g in gradients)  # the sync point: Python has to know
        ### END SOLUTION

    def step(self, optimizer):
        """Step with unscaled gradients and return True; if they hold inf or nan, skip the step and return False."""
        ### BEGIN SOLUTION
        self.unscale_(optimizer)
        if not self.overflow:
            optimizer.step()
        return not self.overflow
        ### END SOLUTION

    def update(self):
        """Change the scale according to the step that was just made, and allow the next unscale_."""
        ### BEGIN SOLUTION
        self.good_steps += 1
        if self.overflow:
            self.factor *= self.backoff
            self.good_steps = 0
        elif self.good_steps == self.growth_interval:
            self.factor *= self.growth
            self.good_steps = 0
        self.overflow = None
        ### END SOLUTION


# %% test="LossScaler-visible" points=3
check.LossScaler(LossScaler)

# %% test="LossScaler-hidden" points=3
### BEGIN HIDDEN TESTS
check.LossScaler(LossScaler, seed=12)
### END HIDDEN TESTS

# %% [markdown]
# Five ways to train with Adam at 192 times the batch:
#
# - fp32 and bf16, with three seeds each;
# - fp16 alone;
# - fp16 with your scaler, which starts at $2^{24}$, too high, so that you see it look for its scale;
# - fp16 with a loss divided by $2^{14}$, as if the gradients were that much smaller. They are multiplied back before
#   the update, so whatever this run loses, it loses to 16 bits.
#
# **Predict**: by how much does HR@10 in bf16 differ from fp32? And how far does the first MLP layer move when the
# gradients are $2^{14}$ times smaller?

# %%
predicted_change = None  # your number: HR@10 in bf16 minus HR@10 in fp32
predicted_moved = None  # your number: distance moved over the layer's norm

# %% tags=["experiment"]
Scaler = course.solved(check.LossScaler)
flushed, amp_step_now = course.solved(check.flushed_share), course.solved(check.amp_step)
half = functools.partial(amp_step_now, dtype=torch.float16)
scaler = Scaler(init_scale=2.0**24)
scale_seen, skipped = [], []


def step_with_scaler(model, users, items, labels, optimizer):
    """One step in fp16 with the scaler above; notes its scale and the updates that it skipped."""
    scale_seen.append(float(scaler.scale(torch.ones((), device=device))))
    before = next(model.parameters()).detach().clone()
    loss = half(model, users, items, labels, optimizer, scaler=scaler)
    if torch.equal(before, next(model.parameters())):
        skipped.append(len(scale_seen) - 1)
    return loss


fixed_scaler = torch.amp.GradScaler(device.type, init_scale=2.0**-14, growth_interval=10**9)  # never changes


def train_in(label, step, seed=0):
    """(HR@10, how far the first MLP weight moved over its norm) of Adam at 192 times the batch; prints the run."""
    model = experiment.fresh_model(seed=seed)
    weight = model.mlp[0].weight
    before, optimizer = weight.detach().clone(), torch.optim.Adam(model.parameters(), lr=sizes.adam_lr[1])
    history = experiment.train(model, optimizer, batches[2], max(1, sizes.epochs // 2), step=step, seed=seed)
    print_run(label, history)
    return history.hit_rate[-1], ((weight.detach() - before).norm() / before.norm()).item()


fp32 = [train_in("fp32", None, seed) for seed in range(sizes.seeds)]
bf16 = [train_in("bf16", amp_step_now, seed) for seed in range(sizes.seeds)]
alone = train_in("fp16 alone", half)
with_scaler = train_in("fp16, your scaler", step_with_scaler)
tiny = train_in("fp16, loss / 2^14", functools.partial(half, scaler=fixed_scaler))

# %% tags=["experiment"]
difference = statistics.mean(hit for hit, _ in bf16) - statistics.mean(hit for hit, _ in fp32)
print(f"bf16 minus fp32: {difference:+.3f}" + reveal(predicted_change))
print(f"with gradients 2^14 times smaller, {100 * flushed(activations, 2.0**-14):.0f} % of the large model's are zero")
print(f"with gradients 2^14 times smaller, the first MLP layer moved by {tiny[1]:.3f} of its norm"
      + reveal(predicted_moved) + f"; in fp32 by {fp32[0][1]:.2f}")  # fmt: skip
otherwise = "The training is too short: at smoke, the skipped updates are a third of all."
course.claim("the mean HR@10 in bf16 is within 0.03 of fp32", abs(difference) < 0.03, f"{difference:+.3f}",
             otherwise=otherwise)  # fmt: skip
course.claim("with gradients 2^14 times smaller, fp16 alone leaves the first MLP layer as it was, which fp32 changes",
             tiny[1] < 0.01 < 0.1 < fp32[0][1], f"moved by {tiny[1]:.3f} and {fp32[0][1]:.2f} of its norm")  # fmt: skip
course.claim("the scaler skips a few updates until its scale fits, and trains on",
             0 < len(skipped) < len(scale_seen) / 2, f"{len(skipped)} of {len(scale_seen)} skipped",
             otherwise=otherwise)  # fmt: skip
plots.loss_scale(scale_seen, skipped)

# %% [markdown]
# Compare HR@10 of the five lines above with the spread of fp32's seeds. A layer that never moves need not cost accuracy
# in a training this short, and a scaler that starts too high loses its first updates. One seed per way in fp16 decides
# nothing about their ranks.
#
# **Takeaway** fp16 needs care: gradients that are too small leave a layer as it was, without an error. bf16 has the
# range of fp32 and needs no scale.

# %% [markdown]
# ## What else can we do? · extra
#
# ### Exercise 5 · What else can we do?
#
# You get four times the hardware and are asked for a shorter training time at the same HR@10. Name at least three
# methods that this unit has not used. Say for each what it changes, what limits it, and which measurement would
# convince you. Refer to at least one number or plot of *your* runs, from any part. About 200 words.
#
# **Points** 4, graded by hand · **Extra** · **Minutes** 20

# %% [markdown] answer="what_else" points=4
# <!-- BEGIN SOLUTION -->
# My critical batch is about 25,000 samples (part 3), so four times the rows per update help only below it.
#
# *Data parallelism* (unit 02): each of four ranks takes a quarter of the batch. The limit is the all-reduce. I would
# measure samples/s with 1, 2 and 4 ranks at a fixed batch per rank.
#
# *A growing batch* (Smith et al. 2018) instead of a falling learning rate: the limit is the critical batch late in the
# training. I would compare seconds to the same HR@10 with three seeds and the learning rate tuned again.
#
# *Cheaper steps*: a fused optimizer and `torch.compile` save kernel launches, which count as long as the batch is
# small. A profile of ten steps tells how much.
#
# === BEGIN MARK SCHEME ===
# **1 point** for at least three methods that the unit did not use, each with what it changes. Warm-up, LARS, AMP or
# accumulation under another name do not count.
#
# **1 point** for the limits: at least two of the methods with a cause that ends them, not just "may not work".
#
# **1 point** for a number or plot of the learner's own run, used as an argument; half if it is only quoted.
#
# **1 point** for a measurement that could fail: what is compared, what is held fixed, to what target, repeated.
#
# Take off 1 point for a speed-up that is claimed as measured but was not.
# === END MARK SCHEME ===
# <!-- END SOLUTION -->

# %% [markdown]
# ## The unit on one page
#
# | symptom | measurement | fix |
# |---|---|---|
# | score too good | HR@10 of a constant model (part 1) | strict comparison |
# | large batch learns less | loss after equal updates (part 2) | scaled learning rate |
# | units never train | silent units (part 2) | output bias, Adam |
# | loss blows up | update-to-weight ratios (part 3) | LARS, Adam |
# | how large a batch? | noise scale (part 3) | critical batch |
# | memory is full | bytes kept (part 4) | accumulation |
# | gradients become zero | share of zeros (part 4) | bf16, loss scale |

# %% [markdown]
# ## On your own training
#
# **How large may your own batch be?**
#
# `course.checkup` watches a training and estimates its noise scale from plain gradient norms, with your `noise_scale`
# of part 3. Replace `loader` and `step` with your own.

# %% tags=["experiment"]
model = experiment.fresh_model()
optimizer = torch.optim.Adam(model.parameters(), lr=sizes.adam_lr[0])
loader = list(recommender_loop.epoch_batches(experiment.data, batches[1], experiment.sample_negatives))


def step(batch):
    """Train on one batch."""
    recommender_loop.training_step(model, *batch, optimizer)


report = course.checkup(loader, step, steps=40, only_watch=True)
print(report)

# %% [markdown]
# **Takeaway** Measure the noise scale of your own training before you make its batch larger.

# %% [markdown]
# ## References
#
# 1. P. Goyal et al., Accurate, Large Minibatch SGD: Training ImageNet in 1 Hour, 2017.
#    [arXiv:1706.02677](https://arxiv.org/abs/1706.02677)
# 2. P. Micikevicius et al., Mixed Precision Training, ICLR 2018. [arXiv:1710.03740](https://arxiv.org/abs/1710.03740)
# 3. NVIDIA, Deep Learning Examples: Neural Collaborative Filtering for PyTorch.
#    [Recommendation/NCF](https://github.com/NVIDIA/DeepLearningExamples/tree/master/PyTorch/Recommendation/NCF)
# 4. S. L. Smith, P.-J. Kindermans, C. Ying, Q. V. Le, Don't Decay the Learning Rate, Increase the Batch Size,
#    ICLR 2018. [arXiv:1711.00489](https://arxiv.org/abs/1711.00489)
