# %% [markdown]
# # Large batches, part 4: Half the bits, part of the batch
#
# **What do 16-bit numbers buy, what do they cost, and what if the batch does not fit at all?**
#
# A large batch is limited by time and by memory. Two remedies are in daily use. Mixed precision computes in 16 bits
# where 16 bits suffice, and has to protect small gradients from turning to zero. Gradient accumulation takes a batch of
# any size in pieces and still makes the same update. You write both, measure the first on your machine, and then argue
# what else could shorten the training.
#
# **You will be able to**
#
# - say which share of a model's gradients fp16 loses, and which loss scale saves them;
# - write a dynamic loss scaler;
# - write a training step under `torch.amp`, and measure what it is worth on your machine;
# - make the update of a large batch from small pieces.
#
# **Minutes** 35 core · 135 in all
#
# **Needs** part 3 (its answers are taken over if you solved it)

# %% locked="setup"
import functools
import math
import statistics

import torch
from torch.nn import functional as F

import course
from course import training
from course.checks import large_batch as check
from course.plots import large_batch as plots
from course.predictions import reveal
from course.recommender import Experiment, print_run

print(course.machine())

# %% [markdown]
# ## Mixed precision: half the bits where they suffice
#
# **Sixteen bits halve the bytes and let the matrix units run, but fp16 has a small range: small gradients turn to zero
# unless the loss is scaled first.**
#
# A 16-bit number takes half the memory and half the bandwidth of a 32-bit one, and the matrix units of recent GPUs
# multiply it several times as fast. So a larger batch fits into the same memory, and a step gets shorter if
# multiplications or moving activations limit it. A step that is limited by small kernels, by Python or by the loader
# does not. For the model of this unit NVIDIA reports 22.6 million samples per second with fp32 weights on one A100
# (products in TF32) and 34.1 million in mixed precision, a factor of 1.51 (reference 1; its table prints the ratio
# upside down).
#
# What is lost depends on how the 16 bits are divided. The exponent sets the range, the fraction the spacing:
#
# | format | exponent / fraction bits | largest | smallest normal | smallest above 0 | spacing at 1 |
# |---|---|---|---|---|---|
# | fp32 | 8 / 23 | 3.4e38 | 1.2e-38 | 1.4e-45 | 1.2e-7 |
# | fp16 | 5 / 10 | 65504 | 6.1e-5 | 6.0e-8 | 9.8e-4 |
# | bf16 | 8 / 7 | 3.4e38 | 1.2e-38 | 9.2e-41 | 7.8e-3 |
#
# bf16 is fp32 with its lower half cut off: it keeps the range and two to three decimal digits. fp16 keeps one digit
# more and loses range. A gradient of 1e-8, which is not unusual for a mean over a large batch, is exactly 0 in fp16,
# and trains nothing. Micikevicius et al. report that of the activation gradients of one detection network (Multibox
# SSD) 31 % of the values became zero in fp16, while most of the upper range of fp16 lay unused, and that the network
# diverged.
#
# The remedy uses the unused range: multiply the loss by a constant before the backward pass. By the chain rule every
# gradient is multiplied by it; before the update it is divided out again in fp32. Too small a constant leaves zeros,
# too large a one overflows to `inf`.

# %% [markdown]
# ### Exercise 1 · What fp16 loses
#
# Compute the share of non-zero gradient values that become exactly zero in fp16, after they were multiplied by the loss
# scale in float32.
#
# **Points** 2 · **Extra** · **Difficulty** ●○○ · **Minutes** 10 · **Lines** 4
#
# **Convention** All values of all tensors are counted together, so a large tensor weighs more than a small one.
# Values that were 0 before do not count at all. A value that is kept with fewer bits (a subnormal) or that overflows
# to `inf` is not flushed. If no value is different from 0, the share is 0.0.
#
# **Source** Micikevicius et al. 2018, "Mixed Precision Training", arXiv:1710.03740, section 3.2 and figure 3.
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
# ### Exercise 2 · The loss scale that saves them
#
# The larger the scale, the fewer zeros, but the largest gradient must not overflow. Find the largest power of two that
# still leaves headroom.
#
# **Points** 2 · **Extra** · **Difficulty** ●○○ · **Minutes** 12 · **Lines** 4
#
# **Convention** The result is the largest $s = 2^k$, $k$ a whole number of either sign, with
# $\max\lvert g\rvert \cdot s \cdot \mathrm{headroom} \le 65504$, equality allowed. Powers of two, because multiplying
# by one and dividing by it again changes no digit. If all gradients are zero, every scale is safe: return 1.0.
#
# **Source** Micikevicius et al. 2018, arXiv:1710.03740, section 3.2: choose a factor such that its product with the
# largest gradient stays below 65504.
#
# <details><summary>Hint 1</summary>
#
# Solve the inequality for $s$. Of the powers of two below that number, which one is the largest, and which function of
# `math` gives its exponent?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# The largest *magnitude* may belong to a negative value, in any of the tensors. And the exponent may be negative.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# `2.0 ** math.floor(math.log2(65504 / (peak * headroom)))`, after the case `peak == 0`.
#
# </details>


# %% solution="largest_safe_scale"
def largest_safe_scale(gradients, headroom=2.0):
    """The largest power of two by which the gradients can be multiplied without overflow in fp16.

    Args:
        gradients: list of finite float32 tensors of any shapes.
        headroom: factor by which the gradients may still grow before they overflow.

    Returns: a float s = 2**k with max|g| * s * headroom <= 65504; 1.0 if every gradient is zero.
    """
    ### BEGIN SOLUTION
    peak = max(g.abs().max().item() for g in gradients)
    if peak == 0:
        return 1.0
    return 2.0 ** math.floor(math.log2(65504 / (peak * headroom)))
    ### END SOLUTION


# %% test="largest_safe_scale-visible" points=1
check.largest_safe_scale(largest_safe_scale)

# %% test="largest_safe_scale-hidden" points=1
### BEGIN HIDDEN TESTS
check.largest_safe_scale(largest_safe_scale, seed=11)
### END HIDDEN TESTS

# %% [markdown]
# Now the gradients of NeuMF with a large batch. Which share of them would fp16 flush to zero without scaling, and from
# which scale on would less than one in a thousand be lost?

# %%
predicted_share = None  # your number: share of NeuMF's gradient values that fp16 flushes, unscaled
predicted_scale = None  # your number: the scale that saves all but one in a thousand, such as 2**5

# %% [markdown]
# The next cell prepares the experiments as in the parts before.

# %% tags=["experiment"]
sizes = course.sizes("03_large_batch")
experiment = Experiment(
    sizes,
    leave_one_out=course.solved(check.leave_one_out),
    sample_negatives=course.solved(check.sample_negatives),
    rank_metrics=course.solved(check.rank_metrics),
)
batches = experiment.batches
print(experiment)

# %% tags=["experiment"]
flushed_share_now = course.solved(check.flushed_share)
largest_safe_scale_now = course.solved(check.largest_safe_scale)
model = experiment.fresh_model("nvidia")
optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
training.training_step(model, *experiment.first_batch(batches[1]), optimizer)
gradients = [p.grad for p in model.parameters()]
unscaled = flushed_share_now(gradients)
saves = next((2.0**e for e in range(40) if flushed_share_now(gradients, 2.0**e) < 0.001), math.inf)
safe = largest_safe_scale_now(gradients)
print(f"flushed to zero without scaling: {100 * unscaled:.1f} %" + reveal(predicted_share))
print(f"fewer than one in a thousand from scale 2^{math.log2(saves):.0f} = {saves:g} on" + reveal(predicted_scale))
print(f"largest safe scale: 2^{math.log2(safe):.0f}, flushed there: {100 * flushed_share_now(gradients, safe):.3f} %")
plots.gradient_histogram(gradients, safe)

# %% [markdown]
# Values to the left of the first boundary are zero in fp16; between the boundaries they keep only some of their digits.
# Multiplying the loss by a power of two shifts the histogram to the right without changing its shape, up to the dashed
# line. Most of this recommender's gradient survives unscaled.

# %% [markdown]
# ### Exercise 3 · A loss scaler that finds its scale
#
# Nobody wants to look at histograms in every run, and gradients shrink during training. A dynamic scaler finds the
# scale by trying: it starts high, and when a gradient overflows it skips that step and halves the scale. After many
# good steps in a row it doubles the scale again. One training step then reads
#
# ```python
# scaler.scale(loss).backward()
# scaler.unscale_(optimizer)                # only needed if something looks at the gradients, such as clipping
# torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
# stepped = scaler.step(optimizer)
# scaler.update()
# ```
#
# Write its four methods. They are those of `torch.amp.GradScaler`, for one optimizer. (There, `step` returns what
# `optimizer.step` returned; here, whether it was called.)
#
# **Points** 6 · **Extra** · **Difficulty** ●●● · **Minutes** 45 · **Lines** 24
#
# **Convention** `unscale_` divides every gradient by the scale, in place, and notes whether any is `inf` or `nan`.
# Between two calls of `update` gradients are divided once: a second `unscale_` either does nothing or raises a
# RuntimeError as torch does, and `step` divides only if `unscale_` was not called. `step` returns True if it called
# `optimizer.step()`, and False, without calling it, if an overflow was noted. `update` is called once after each
# `step`: after a bad one the scale is multiplied by `backoff` and the count of good steps starts at 0; with the
# `growth_interval`-th good step in a row it is multiplied by `growth` and the count starts at 0 again.
#
# **Not allowed** `torch.amp.GradScaler`, under any of its names.
#
# **Source** Micikevicius et al. 2018, arXiv:1710.03740, section 3.2, last paragraphs; the documentation of
# `torch.amp.GradScaler`, from which the defaults come.
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
        ### BEGIN SOLUTION
        self.factor = init_scale
        self.growth, self.backoff, self.growth_interval = growth, backoff, growth_interval
        self.good_steps = 0
        self.overflow = None  # None until unscale_ has run, then whether a gradient was inf or nan
        ### END SOLUTION

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
# ### Exercise 4 · The training step under autocast
#
# `torch.amp` provides a scaler, and `autocast`, which runs listed operations of the forward pass in 16 bits (matrix
# products) and others in 32 (sums, logarithms); the weights stay in fp32. Write the training step with them.
#
# **Points** 4 · **Core** · **Difficulty** ●●○ · **Minutes** 15 · **Lines** 7
#
# **Convention** The device type is that of `labels`. The 16-bit type is fp16 on CUDA and bf16 on the CPU, which are
# `autocast`'s own defaults. `model(users, items)` gives logits of shape `(n,)`; it runs under autocast, the backward
# pass does not, and the loss is computed from the logits in float32. `scaler` is a `torch.amp.GradScaler`, disabled on
# the CPU: then it passes everything through, so the same lines work on both. Gradients of an earlier batch must not
# count, and are set to None rather than to 0. Returned is the unscaled mean loss, detached. Take `torch.amp`, not the
# older `torch.cuda.amp`, which is deprecated.
#
# **Source** PyTorch documentation, "Automatic Mixed Precision examples", typical training; Micikevicius et al. 2018,
# arXiv:1710.03740.
#
# <details><summary>Hint 1</summary>
#
# Which of the five things that a training step does (clear gradients, forward, loss, backward, update) run under
# autocast, and which of them does the scaler take over?
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
# Clear with `optimizer.zero_grad()`, which sets to None; `with torch.amp.autocast(labels.device.type):` around the
# model only; the loss from `logits.float()`; `scaler.scale(loss).backward()`, `scaler.step(optimizer)`,
# `scaler.update()`.
#
# </details>


# %% solution="amp_step"
def amp_step(model, users, items, labels, optimizer, scaler):
    """Make one training step in mixed precision and return the mean loss of the batch.

    Args:
        model: called with (users, items), gives logits (n,).
        users, items: int64 tensors (n,).  labels: float32 tensor (n,) of zeros and ones, on the same device.
        optimizer: holds the parameters of `model`.
        scaler: torch.amp.GradScaler, enabled on CUDA and disabled on the CPU.

    Returns: float32 tensor of shape (), detached and unscaled.
    """
    ### BEGIN SOLUTION
    optimizer.zero_grad()  # sets to None: what the model does not use is left alone
    with torch.amp.autocast(labels.device.type):
        logits = model(users, items)
    loss = F.binary_cross_entropy_with_logits(logits.float(), labels)
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
# Your step fits the training loop as `functools.partial(amp_step, scaler=...)`. How much faster will the large batch
# train with it on your machine, and how will HR@10 change? On a CPU the answer depends on whether it has instructions
# for bf16.

# %%
predicted_amp_speedup = None  # your number: samples/s with autocast over samples/s in fp32
predicted_amp_change = None  # your number: HR@10 with autocast minus HR@10 in fp32

# %% tags=["experiment"]
amp_step_now = course.solved(check.amp_step)
Lars = course.solved(check.LARS)
exponential = course.solved(check.exponential_warmup)
decay = course.solved(check.polynomial_decay)
on_cuda = course.device().type == "cuda"


def with_amp():
    """A step for training.train that runs under autocast, with a scaler of its own."""
    return functools.partial(amp_step_now, scaler=torch.amp.GradScaler(course.device().type, enabled=on_cuda))


def train_lars(step=None):
    """The History of a fresh model under LARS, with the largest batch and the schedule of part 3."""
    model = experiment.fresh_model()
    optimizer = Lars(model.parameters(), lr=sizes.lars_lr, momentum=0.9, exclude_1d=False)

    def schedule(i, n):
        return exponential(i, n, sizes.lars_lr, 1) * decay(i, sizes.epochs * n, 1.0)

    return experiment.train(model, optimizer, batches[2], schedule=schedule, step=step)


runs = {"192×, LARS": train_lars(), "192×, LARS, autocast": train_lars(with_amp())}
for label, history in runs.items():
    print_run(label, history)
change = runs["192×, LARS, autocast"].hit_rate[-1] - runs["192×, LARS"].hit_rate[-1]
print(f"change of HR@10: {change:+.3f}" + reveal(predicted_amp_change))
print("\nthroughput of NeuMF with NVIDIA's sizes (64 factors, tower 256-256-128-64), runs in turn:")
speedups = []
for _ in range(sizes.amp_pairs):
    pair = []
    for step in (None, with_amp()):
        model = experiment.fresh_model("nvidia")
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
        timed = experiment.train(
            model, optimizer, batches[1], mode="perf", max_steps=sizes.amp_steps, repeats=1, step=step
        )
        pair += timed.throughput
    speedups.append(pair[1] / pair[0])
    print(f"  fp32 {pair[0]:>12,.0f}   autocast {pair[1]:>12,.0f} samples/s   ratio {speedups[-1]:.2f}")
print(f"median ratio {statistics.median(speedups):.2f}" + reveal(predicted_amp_speedup), f"({course.machine()})")
plots.accuracy(runs, "192 times the batch: autocast")

# %% [markdown]
# *Accuracy*: bf16 keeps eight bits of a number, fp16 eleven. Weights and optimizer stay in fp32, only products are
# rounded. Rounding makes the two runs take different paths, so compare their final difference with chance alone: with
# 943 test users a hit rate of 0.7 has a standard error of 0.015. *Speed* depends on the machine: a processor with units
# for half precision (tensor cores on a GPU, AVX-512-BF16 or AMX on a CPU) gains on large layers; without them the
# conversions cost more than they save and the ratio is below 1.

# %% [markdown]
# ## Gradient accumulation: the large batch that does not fit
#
# **The gradient of a mean is a weighted mean of gradients, so a batch of any size can be processed in pieces: the same
# update in less memory and more time.**
#
# If memory holds only a part of the batch, compute its gradient part by part. `backward()` *adds* to `grad`, so only
# two things need care: weight each part by its share of the rows, and let the optimizer step after the last one. The
# result is the large batch's update, up to rounding. (A layer that uses the whole batch, such as batch norm, sees only
# the parts; NeuMF has none. Dropout draws other random numbers, as it does in every step.) Accumulation saves memory
# for activations, not time: the multiplications stay the same, in smaller pieces. It shows what a batch *would* do to
# accuracy before anybody pays for the hardware.

# %% [markdown]
# ### Exercise 5 · Accumulated step
#
# Make one training step on the whole batch, with at most `micro_batch` rows in a forward pass.
#
# **Points** 4 · **Core** · **Difficulty** ●●○ · **Minutes** 15 · **Lines** 10
#
# **Convention** The parts are as few as possible; the last one may be smaller, and every row has the same weight in the
# mean. Each part's backward pass runs before the next part's forward pass, otherwise the activations of all parts are
# in memory together and nothing is saved. One `optimizer.step()` at the end. Gradients of an earlier batch must not
# count, and are set to None rather than to 0. Returned is the mean loss of the whole batch, as a detached tensor.
#
# **Source** Goyal et al. 2017, "Accurate, Large Minibatch SGD", arXiv:1706.02677, section 3: the loss is a mean over
# the whole minibatch, so the normalisation belongs to the whole size and not to the part's.
#
# <details><summary>Hint 1</summary>
#
# 10 rows in parts of 4, 4 and 2: by what must the mean losses of the three parts be multiplied, so that their sum is
# the mean of the ten?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# A slice may end behind the end of a tensor, so the smaller last part needs no case of its own. With `reduction="sum"`
# you need one division, by the same number for every part.
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
    ### BEGIN SOLUTION
    optimizer.zero_grad()
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
# ## What else can we do?
#
# **The batch is one of several ways to shorten training; which one is next depends on what the measurements say is the
# limit.**
#
# ### Exercise 6 · What else can we do?
#
# You get four times the hardware and are asked for a shorter training time at the same HR@10. Name at least three
# measures that this unit has not used. Say for each what it changes, what limits it, and which measurement would
# convince you. Refer to at least one number or plot of *your* runs, from any part. About 200 words.
#
# **Points** 4, graded by hand · **Extra** · **Minutes** 20

# %% [markdown] answer="what_else" points=4
# <!-- BEGIN SOLUTION -->
# The curve of updates against batch size bends at the critical batch; beyond it a larger batch costs samples and
# saves hardly any updates. So first I would read off where my run stands.
#
# *Below the bend: more rows at a time, on more devices.* With data parallelism (unit 02) each of four ranks takes a
# quarter of the batch and the gradients are averaged. The limit is the all-reduce: embedding tables are large, and
# only the rows of the batch have gradients. I would measure samples/s with 1, 2 and 4 ranks at a fixed batch per rank
# and look at the gap to the straight line. If the network is slow, post-local SGD (Lin et al. 2020) averages the
# weights every few steps only.
#
# *Around the bend: move it.* The gradient noise grows as the loss falls (McCandlish et al. 2018), so a batch that is
# too large at the start can be right later: raise the batch where one would lower the learning rate (Smith et al.
# 2018). LAMB (You et al. 2020) puts LARS's ratio on top of Adam, which suits embeddings with rare rows. I would compare
# epochs and seconds to the same HR@10, with each method's learning rate tuned anew and three seeds.
#
# *Beyond it: make each step cheaper.* A fused or foreach optimizer and `torch.compile` save kernel launches, which
# count when the batch is small; a faster loader or data that already lie on the device (unit 04) count when the
# device waits. A profile of ten steps tells which. Label smoothing or tuned negatives may reach the target in fewer
# epochs, and the dot product reaches its HR@10 with a fraction of the work: the cheapest step is the one that is not
# needed.
#
# === BEGIN MARK SCHEME ===
# **1 point** for at least three measures that the unit did not use, each with what it changes. Examples:
# data-parallel ranks, batch-size schedule, LAMB or another layer-wise method, post-local SGD, label smoothing,
# better loader, `torch.compile`, fused optimizer, larger learning rate with longer warm-up *and* a reason, sampled
# or sparse embedding gradients, a cheaper model. Warm-up, LARS, AMP or accumulation under another name do not
# count.
#
# **1 point** for the limits: at least two of the measures with a cause that ends them (communication, critical batch,
# noise, memory, launch overhead, retuning), not just "may not work".
#
# **1 point** for a number or plot of the learner's own run, used as an argument: e.g. "my critical batch is at 16
# times, so more rows will not help". A number that is only quoted earns half.
#
# **1 point** for a measurement that could fail: what is compared, what is held fixed, to what target (time *to the
# same quality*, not samples/s alone), repeated.
#
# Take off 1 point for a speed-up that is claimed as measured but was not. No points for length or for the number of
# papers.
# === END MARK SCHEME ===
# <!-- END SOLUTION -->

# %% [markdown]
# ## References
#
# 1. NVIDIA, Deep Learning Examples: Neural Collaborative Filtering for PyTorch.
#    [Recommendation/NCF](https://github.com/NVIDIA/DeepLearningExamples/tree/master/PyTorch/Recommendation/NCF)
# 2. P. Micikevicius et al., Mixed Precision Training, ICLR 2018. [arXiv:1710.03740](https://arxiv.org/abs/1710.03740)
# 3. P. Goyal et al., Accurate, Large Minibatch SGD: Training ImageNet in 1 Hour, 2017.
#    [arXiv:1706.02677](https://arxiv.org/abs/1706.02677)
# 4. S. L. Smith, P.-J. Kindermans, C. Ying, Q. V. Le, Don't Decay the Learning Rate, Increase the Batch Size,
#    ICLR 2018. [arXiv:1711.00489](https://arxiv.org/abs/1711.00489)
# 5. S. McCandlish, J. Kaplan, D. Amodei et al., An Empirical Model of Large-Batch Training, 2018.
#    [arXiv:1812.06162](https://arxiv.org/abs/1812.06162)
# 6. Y. You et al., Large Batch Optimization for Deep Learning: Training BERT in 76 minutes, ICLR 2020.
#    [arXiv:1904.00962](https://arxiv.org/abs/1904.00962)
# 7. T. Lin, S. U. Stich, K. K. Patel, M. Jaggi, Don't Use Large Mini-Batches, Use Local SGD, ICLR 2020.
#    [arXiv:1808.07217](https://arxiv.org/abs/1808.07217)
