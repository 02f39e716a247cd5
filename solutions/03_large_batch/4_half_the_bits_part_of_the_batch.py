# %% [markdown]
# # Large batches, part 4: Half the bits, part of the batch
#
# **What do 16-bit numbers buy, what do they cost, and what if the batch does not fit at all?**
#
# A large batch is limited by time and by memory. Two remedies are in daily use. Mixed precision computes in 16 bits
# where 16 bits suffice. Gradient accumulation takes a batch of any size in pieces and still makes the same update. You
# write both, measure what they are worth in bytes and in samples per second, and then race: from the plain loop to
# everything this unit knows, in seconds to one accuracy.
#
# **You will be able to**
#
# - choose between bf16 and fp16, and say when a loss scale is needed and what it saves;
# - write a training step under `torch.amp`, and a dynamic loss scaler;
# - make the update of a large batch from small pieces, and count the bytes that this saves;
# - compare whole recipes by seconds to a target.
#
# **Minutes** 23 core · 100 in all
#
# **Needs** part 3 (its answers are taken over if you solved it)

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
from course.measure.timing import compare_in_turn
from course.plots import large_batch as plots
from course.training import recommender_loop
from course.training.recommender import CONSTANT_LOSS, Experiment, print_run

print(course.machine())
device = course.device()

# %% [markdown]
# ## Half the bits where they suffice
#
# **bf16 keeps the range of fp32 and needs nothing else. fp16 keeps more digits, and a loss scale has to keep its small
# gradients from becoming zero.**
#
# A 16-bit number takes half the memory and half the bandwidth of a 32-bit one, and the matrix units of recent GPUs
# multiply it several times as fast. A step that is limited by small kernels, by Python or by the loader gains nothing.
# What is lost depends on how the 16 bits are divided: the exponent sets the range, the fraction the spacing.
#
# | format | exponent / fraction bits | largest | smallest normal | smallest above 0 | spacing at 1 |
# |---|---|---|---|---|---|
# | fp32 | 8 / 23 | 3.4e38 | 1.2e-38 | 1.4e-45 | 1.2e-7 |
# | fp16 | 5 / 10 | 65504 | 6.1e-5 (2^-14) | 6.0e-8 (2^-24) | 9.8e-4 |
# | bf16 | 8 / 7 | 3.4e38 | 1.2e-38 | 9.2e-41 | 7.8e-3 |
#
# **Which one?** On a CPU with bf16 instructions and on NVIDIA GPUs from Ampere on (2020): bf16, without a scaler. On
# older GPUs (V100, T4), which have no units for bf16: fp16, with a scaler.
#
# `torch.amp.autocast` runs operations of a list, above all matrix products, in 16 bits, and others, such as sums and
# logarithms, in 32. Weights, optimizer and `p.grad` stay in fp32. What *is* 16-bit is the backward pass: the gradients
# of activations that flow from layer to layer, and what a matrix product returns for its weight, before autograd casts
# it to fp32 for `p.grad`. With a mean loss the former shrink as the batch grows: each row contributes one part in $B$.
#
# Small gradients that become zero train nothing. The remedy uses the other end of the range: multiply the loss by a
# constant before the backward pass, and divide the gradients by it, in fp32, before the update.

# %% [markdown]
# ### Exercise 1 · What fp16 loses
#
# Compute the share of non-zero gradient values that become exactly zero in fp16.
#
# **Must**
# - multiply by `loss_scale` in float32, then cast;
# - count all values of all tensors together; values that were 0 before do not count at all;
# - return 0.0 if no value is different from 0.
#
# A value that is kept with fewer bits (a subnormal) or overflows to `inf` is not lost; one whose product is already 0
# in float32 is.
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
# **Predict**: in one backward pass at 192 times the batch, which share of the non-zero gradient values of activations
# is below 2^-14, where fp16 has fewer digits? Which share becomes zero?

# %%
predicted_subnormal = None  # your number: percent below 2^-14
predicted_lost = None  # your number: percent that become zero

# %% [markdown]
# The next cells prepare the experiments as in the parts before, and watch one backward pass in fp32 and one under
# autocast: they note the gradient of what each `F.linear` of the model returns.

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


# %% tags=["experiment"]
flushed = course.solved(check.flushed_share)


def below_normal(tensors):
    """Percent of the non-zero values whose magnitude is below 2**-14."""
    values = torch.cat([t.flatten() for t in tensors]).abs()
    return 100 * ((values > 0) & (values < 2.0**-14)).sum().item() / max(1, values.count_nonzero().item())


small, lost = [], []
for batch in batches:
    activations, parameters = watched_backward(batch, torch.float32)
    small.append(below_normal(activations))
    lost.append(100 * flushed(activations))
    print(f"batch {batch:>7,}: of the activations' gradients {small[-1]:5.1f} % below 2^-14, {lost[-1]:5.2f} % zero in "
          f"fp16; of p.grad {below_normal(parameters):5.1f} % and {100 * flushed(parameters):.2f} %")  # fmt: skip
print(f"at 192 times the batch: {small[-1]:.1f} % below 2^-14" + reveal(predicted_subnormal)
      + f", {lost[-1]:.2f} % zero" + reveal(predicted_lost))  # fmt: skip
in_half, grads = watched_backward(batches[2], torch.float16)
of_products = experiment.fresh_model("nvidia").mlp[-1].weight.shape
grad = next(g for g in grads if g.shape == of_products)
course.claim("under autocast the backward pass is 16-bit and p.grad is fp32",
             {g.dtype for g in in_half} == {torch.float16} and {g.dtype for g in grads} == {torch.float32})  # fmt: skip
course.claim("the gradient of a product's weight still holds only numbers that fp16 has",
             torch.equal(grad.half().float(), grad))  # fmt: skip
course.claim("the larger the batch, the more of the activations' gradients is below 2^-14", small == sorted(small),
             ", ".join(f"{share:.1f} %" for share in small))  # fmt: skip
course.claim("without a loss scale, less than 5 % of the gradients is lost here", lost[2] < 5, f"{lost[2]:.2f} %")
peaks = [max(g.abs().max().item() for g in tensors) for tensors in (activations, parameters)]
print("largest magnitude: 2^{:.1f} of the activations' gradients, 2^{:.1f} of p.grad".format(*map(math.log2, peaks)))
course.claim(
    "p.grad has larger values than the activations' gradients, so it limits the loss scale", peaks[1] > peaks[0]
)
safe = 2.0 ** math.floor(math.log2(65504 / (2 * max(peaks))))  # leaves a factor of two of headroom
print(
    f"largest safe scale for this batch: 2^{math.log2(safe):.0f}; zero there: {100 * flushed(activations, safe):.2f} %"
)
plots.gradient_histogram({"gradients of activations": activations, "p.grad": parameters}, safe)

# %% [markdown]
# Values in the left field are zero in fp16, those in the middle field keep only some of their digits. Each factor of
# two in the batch moves the activations' gradients one place to the left. `p.grad` sums over many rows, so its largest
# values are far larger; they overflow first when the loss is scaled. This recommender is not deep, so its gradients
# have not far to shrink, and hardly any become zero. Deeper networks are worse off: Micikevicius et
# al. report a detection network that diverged in fp16 until its loss was scaled by 8 (section 4.2).

# %% [markdown]
# ### Exercise 2 · The training step under autocast
#
# **Must**
# - run `model(users, items)` under `torch.amp.autocast` for the device type of `labels`, in `dtype`; compute the loss
#   from float32 logits, and run backward outside autocast;
# - without a scaler call `loss.backward()` and `optimizer.step()`; with one, run backward on the loss that
#   `scaler.scale` returns, then call `scaler.step(optimizer)` and `scaler.update()`;
# - first set the gradients of an earlier batch to None, not to 0;
# - return the unscaled mean loss, detached.
#
# **You may assume** that `scaler` has the methods of `torch.amp.GradScaler`.
#
# **Points** 4 · **Extra** · **Difficulty** ●●○ · **Minutes** 10 · **Lines** 11
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
    ### BEGIN SOLUTION
    optimizer.zero_grad()  # sets to None: what the model does not use is left alone
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
# ### Exercise 3 · A loss scaler that finds its scale
#
# A dynamic scaler starts high, skips a step whose gradients overflow and lowers the scale, and raises it after many
# good steps in a row. Write its methods, for one optimizer.
#
# **Must**
# - `unscale_`: divide every gradient by the scale in place and note `inf` or `nan`; a second call before `update` does
#   nothing;
# - `step`: unscale if that was not done; after `inf` or `nan` return False, else call `optimizer.step()` and return
#   True;
# - `update`: multiply the scale by `backoff` after a bad step, by `growth` after `growth_interval` good steps in a row;
#   after either, count good steps from 0 again.
#
# **Not allowed** `torch.amp.GradScaler`
#
# **Points** 6 · **Extra** · **Difficulty** ●●● · **Minutes** 35 · **Lines** 24
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
# Five trainings with LARS at 192 times the batch, as in part 3: fp32; bf16; fp16 alone; fp16 with your scaler, which
# starts at $2^{24}$, too high, so that you see it look for its scale; and fp16 with a loss divided by $2^{14}$, as if
# the gradients were that much smaller. A `GradScaler` with the fixed scale $2^{-14}$ does that; before the update it
# multiplies what has become `p.grad` by $2^{14}$, in fp32. In exact numbers that would be the same training, so
# whatever it loses, it loses to 16 bits.
#
# **Predict**: how will HR@10 in bf16 differ from that in fp32? And how many times the samples per second will autocast
# bring on your machine, with the large model of NVIDIA's?

# %%
predicted_change = None  # your number: HR@10 in bf16 minus HR@10 in fp32
predicted_speedup = None  # your number: samples/s in bf16 over samples/s in fp32

# %% tags=["experiment"]
amp_step_now, Scaler, Lars = (course.solved(e) for e in (check.amp_step, check.LossScaler, check.LARS))
exponential, decay = course.solved(check.exponential_warmup), course.solved(check.polynomial_decay)
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


def train_lars(step):
    """(History, how far the first MLP weight moved over its norm) of a fresh model under LARS, largest batch."""
    model = experiment.fresh_model()
    weight = model.mlp[0].weight
    before, optimizer = weight.detach().clone(), Lars(model.parameters(), lr=sizes.lars_lr, exclude_1d=False)
    history = experiment.train(
        model, optimizer, batches[2], step=step,
        schedule=lambda i, n: exponential(i, n, sizes.lars_lr, 1) * decay(i, sizes.epochs * n, 1.0),
    )  # fmt: skip
    return history, ((weight.detach() - before).norm() / before.norm()).item()


steps = {
    "192×, LARS": None,
    "192×, bf16": amp_step_now,
    "192×, fp16 alone": half,
    "192×, fp16, your scaler": step_with_scaler,
    "192×, fp16, loss / 2^14": functools.partial(half, scaler=fixed_scaler),
}
runs, moved = {}, {}
for label, step in steps.items():
    runs[label], moved[label] = train_lars(step)
for label, history in runs.items():
    print_run(label, history)
last = {label: history.hit_rate[-1] for label, history in runs.items()}
fp32 = last["192×, LARS"]
error = math.sqrt(fp32 * (1 - fp32) / len(experiment.data.judged[0]))
print(f"bf16 minus fp32: {last['192×, bf16'] - fp32:+.3f}" + reveal(predicted_change)
      + f"; standard error of a hit rate {error:.3f}")  # fmt: skip
otherwise = "The training is too short: at smoke, the skipped updates are a third of all."
for label in ("bf16", "fp16, your scaler"):
    course.claim(f"HR@10 with {label} is within two standard errors of fp32",
                 abs(last[f"192×, {label}"] - fp32) < 2 * error,
                 f"{last[f'192×, {label}'] - fp32:+.3f}", otherwise=otherwise)  # fmt: skip
print(f"fp16 alone minus fp32: {last['192×, fp16 alone'] - fp32:+.3f}; with a loss / 2^14: "
      f"{last['192×, fp16, loss / 2^14'] - fp32:+.3f}")  # fmt: skip
course.claim("with gradients 2^14 times smaller, fp16 alone leaves the first MLP layer as it was, which fp32 changes",
             moved["192×, fp16, loss / 2^14"] < 0.01 < 0.1 < moved["192×, LARS"],
             f"moved by {moved['192×, fp16, loss / 2^14']:.3f} and {moved['192×, LARS']:.2f} of its norm")  # fmt: skip
course.claim("the scaler skips a few updates until its scale fits, and trains on",
             0 < len(skipped) < len(scale_seen) / 5, f"{len(skipped)} of {len(scale_seen)} skipped",
             otherwise=otherwise)  # fmt: skip
plots.accuracy(runs, "192 times the batch in 16 bits", popularity=experiment.popularity, constant=CONSTANT_LOSS)

# %% tags=["experiment"]
plots.loss_scale(scale_seen, skipped)

# %% [markdown]
# Rounding makes the runs take different paths, so compare their final difference with the standard error. As long as
# the gradients are large enough, fp16 alone does as well as bf16. Once they are not, every gradient that flows through
# a matrix product is zero and the MLP half is not trained at all. HR@10 shows little of it, because the GMF half learns
# on alone: this implementation multiplies it element by element, which autocast leaves in fp32. (With the concatenation
# of part 1 before the output layer, that half would stop too.) So look at what trains, not at the score only. A scaler
# is the insurance; bf16 does not need one.


# %% tags=["experiment"]
def some_updates(step):
    """A function that makes a few updates of NVIDIA's sizes at 16 times the batch with `step`."""
    model = experiment.fresh_model("nvidia")
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    batch = experiment.first_batch(batches[1])

    def run():
        for _ in range(sizes.amp_steps):
            step(model, *batch, optimizer)

    return run


fp32_step = recommender_loop.training_step
pairs = {
    "bf16": (some_updates(fp32_step), some_updates(amp_step_now)),
    "control": (some_updates(fp32_step), some_updates(fp32_step)),
}
timed = compare_in_turn(pairs, 2 * sizes.amp_pairs, device, progress=False, control="control")
print(f"fp32 over bf16, seconds of the same updates: {timed['bf16']}" + reveal(predicted_speedup))
print(f"fp32 over fp32:                              {timed['control']}\n{course.machine()}")
course.claim("bf16 autocast makes the large model's update faster", timed["bf16"].verdict == "helped",
             f"{timed['bf16'].ratio:.2f} times",
             otherwise="Your processor has no units for half precision, or the layers are so small that conversions "
                       "cost more than they save.")  # fmt: skip

# %% [markdown]
# A processor with units for half precision (tensor cores on a GPU, AVX-512-BF16 or AMX on a CPU) gains on large layers.

# %% [markdown]
# ## The large batch that does not fit
#
# **The gradient of a mean is a weighted mean of gradients, so a batch of any size can be processed in pieces: the same
# update in less memory and more time.**
#
# `backward()` *adds* to `grad`, so only two things need care: weight each piece by its share of the rows, and let the
# optimizer step after the last one. A layer that uses the whole batch, such as batch norm, sees only the pieces; NeuMF
# has none.

# %% [markdown]
# ### Exercise 4 · Accumulated step
#
# Make one training step on the whole batch, with at most `micro_batch` rows in a forward pass.
#
# **Must**
# - use as few pieces as possible, equal or not;
# - give every row the same weight in the mean;
# - run each piece's backward pass before the next piece's forward pass: otherwise the activations of all pieces are in
#   memory together and nothing is saved;
# - first set the gradients of an earlier batch to None, not to 0; call `optimizer.step()` once;
# - return the mean loss of the whole batch, detached.
#
# **Points** 4 · **Core** · **Difficulty** ●●○ · **Minutes** 12 · **Lines** 9
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
# A slice may end behind the end of a tensor, so the smaller last piece needs no case of its own. With
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
# **Predict**: NVIDIA's sizes at 192 times the batch. How many times the bytes of the weights does autograd keep for the
# backward pass in fp32? By what factor do bf16 and micro-batches of 16 times the base batch reduce that?

# %%
predicted_kept = None  # your number: bytes kept over bytes of the weights
predicted_savings = None  # your two numbers: (bf16, micro-batches)


# %% tags=["experiment"]
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
accumulated = functools.partial(course.solved(check.accumulated_step), micro_batch=batches[1])


def accumulated_bf16(model, users, items, labels, optimizer):
    """The learner's accumulated step with the model under bf16 autocast."""

    def in_bf16(users, items):
        with torch.amp.autocast(device.type, torch.bfloat16):
            return model(users, items).float()

    return accumulated(in_bf16, users, items, labels, optimizer)


steps = {"fp32": fp32_step, "bf16 autocast": amp_step_now, f"fp32, micro-batches of {batches[1]:,}": accumulated,
         "bf16, micro-batches": accumulated_bf16}  # fmt: skip
memory_batches = [sizes.base_batch * times for times in (4, 16, 64, 192)]
measured = {name: [most_kept(step, batch) for batch in memory_batches] for name, step in steps.items()}
kept = {name: [most for most, _ in pairs] for name, pairs in measured.items()}
weights = sum(p.numel() * p.element_size() for p in experiment.fresh_model("nvidia").parameters())
for name, values in kept.items():
    print(f"{name:<28}" + "".join(f"{value / 1e6:>9.1f} MB" for value in values))
    if device.type == "cuda":
        print(f"{'  allocated by CUDA':<28}" + "".join(f"{value / 1e6:>9.1f} MB" for _, value in measured[name]))
plain, in_bf16, in_pieces, both = (values[-1] for values in kept.values())
print(f"fp32 at 192 times the batch: {plain / weights:.1f} times the weights" + reveal(predicted_kept))
print(
    f"saved: bf16 {plain / in_bf16:.2f} times, micro-batches {plain / in_pieces:.2f} times" + reveal(predicted_savings)
)
course.claim("bf16 autocast keeps fewer bytes than fp32, but more than half", 1 < plain / in_bf16 < 2,
             f"{plain / in_bf16:.2f} times fewer")  # fmt: skip
pieces = kept[f"fp32, micro-batches of {batches[1]:,}"][1:]  # of batches that are one micro-batch or several
course.claim("with micro-batches, a batch of 12 of them keeps at most a tenth more bytes than a batch of one",
             max(pieces) < 1.1 * pieces[0], ", ".join(f"{value / 1e6:.1f}" for value in pieces) + " MB")  # fmt: skip
plots.memory(memory_batches, kept, weights)

# %% [markdown]
# What is kept in fp32 grows with the batch; micro-batches stop that growth at their own size. Autocast stores the
# activations of matrix products in 16 bits. Ids, dropout's masks and what the loss keeps stay as wide as they were, so
# the factor stays below two. On CUDA the allocator's peak is larger than what is kept: temporary results count too.
#
# Accumulation saves memory, not arithmetic. It shows what a batch *would* do to accuracy before anybody pays for the
# hardware.

# %% [markdown]
# ## The race
#
# **Seconds to one accuracy count everything at once: updates, time per update, evaluations.**
#
# All contestants train the same model to a validation HR@10 of 0.55 (laptop scale) and are evaluated every quarter of
# an epoch, which counts. The learning rates are those of part 3. That of the plain loop was searched in the same way:
# of 1, 2, 4, 8 and 16, 4 needs the fewest updates. (Part 2 used 1, which ends with the best score after ten epochs and
# is slower on the way.) Contestants take turns within each seed.
#
# **Predict**: how many times as fast as the plain loop is the fastest? Which single change brings most?

# %%
predicted_race = None  # your number: seconds of the plain loop over those of the fastest
predicted_step = None  # your answer: "batch", "optimizer", "bf16" or "accumulation"

# %% tags=["experiment"]
fp16_scaled = functools.partial(half, scaler=Scaler(growth_interval=200))
sgd, adam = functools.partial(torch.optim.SGD, momentum=0.9), functools.partial(torch.optim.Adam, fused=True)
lars = functools.partial(Lars, exclude_1d=False)
contestants = {  # name: (optimizer, learning rate, times the base batch, step)
    "plain loop: 1×, SGD": (sgd, 4 * sizes.base_lr, 1, None),
    "16×, SGD": (sgd, 16 * sizes.base_lr, 16, None),
    "16×, Adam": (adam, 1 / 32, 16, None),
    "64×, Adam": (adam, 1 / 16, 64, None),
    "64×, your LARS": (lars, 16.0, 64, None),
    "64×, Adam, bf16": (adam, 1 / 16, 64, amp_step_now),
    "64×, Adam, fp16, your scaler": (adam, 1 / 16, 64, fp16_scaled),
    "64×, Adam, in 4 pieces": (
        adam, 1 / 16, 64, functools.partial(course.solved(check.accumulated_step), micro_batch=batches[1])),
}  # fmt: skip
# Your own entry: uncomment, change, run this cell and the next again.
# contestants["mine"] = (adam, 1 / 32, 32, amp_step_now)


# %% tags=["experiment"]
def race(make_optimizer, lr, times, step, seed):
    """The History of one contestant until the target."""
    return experiment.train_fresh(
        lambda p: make_optimizer(p, lr=lr), times * sizes.base_batch, seed, step=step, epochs=sizes.target_epochs,
        target=sizes.target, evaluate_every=0.25,
    )  # fmt: skip


for name in list(contestants)[1:]:  # warm up what torch does once
    make_optimizer, lr, times, step = contestants[name]
    experiment.train(experiment.fresh_model(), make_optimizer(experiment.fresh_model().parameters(), lr=lr),
                     times * sizes.base_batch, epochs=1, target=0.0, evaluate_every=0.05, step=step)  # fmt: skip
finishes = {name: [] for name in contestants}
for seed in range(sizes.race_seeds):
    for name, how in contestants.items():
        finishes[name].append(race(*how, seed))
seconds = {name: [plots.total_seconds(h) if h.updates_to_target else math.inf for h in histories]
           for name, histories in finishes.items()}  # fmt: skip
for name, own in seconds.items():
    updates = [h.updates_to_target or "-" for h in finishes[name]]
    print(f"{name:<30}" + " ".join(f"{s:7.2f} s" for s in own) + f"   updates {updates}")
print(course.machine())
plots.race(finishes, sizes.target)


# %% tags=["experiment"]
def ratios(slow, fast):
    """How many times as long `slow` took, seed by seed; 0 where `fast` did not reach the target."""
    return [a / b if b < math.inf else 0.0 for a, b in zip(seconds[slow], seconds[fast], strict=True)]


def paired(slow, fast, unit="times as fast"):
    """The text "median (lowest to highest)" of the ratios, or who did not reach the target."""
    missed = [name for name in (slow, fast) if math.inf in seconds[name]]
    if missed:
        return f"no ratio: {' and '.join(missed)} did not reach the target with every seed"
    own = ratios(slow, fast)
    return f"{statistics.median(own):.2f} ({min(own):.2f} to {max(own):.2f}) {unit}"


plain = "plain loop: 1×, SGD"
fastest = max(contestants, key=lambda name: statistics.median(ratios(plain, name)))
print(f"fastest: {fastest}; against the plain loop {paired(plain, fastest)}" + reveal(predicted_race))
steps_on_the_way = {"batch, 1× to 16×": (plain, "16×, SGD"), "SGD to Adam": ("16×, SGD", "16×, Adam"),
                    "batch, 16× to 64×": ("16×, Adam", "64×, Adam"), "bf16": ("64×, Adam", "64×, Adam, bf16"),
                    "pieces": ("64×, Adam", "64×, Adam, in 4 pieces")}  # fmt: skip
for change, (before, after) in steps_on_the_way.items():
    print(f"{change:<20}{paired(before, after)}")
largest = max(steps_on_the_way, key=lambda change: statistics.median(ratios(*steps_on_the_way[change])))
print(f"largest step: {largest}" + reveal(predicted_step))
course.claim(
    "the fastest setting beats the plain loop for every seed", min(ratios(plain, fastest)) > 1, paired(plain, fastest)
)
course.claim("Adam beats SGD at 16 times the batch for every seed", min(ratios("16×, SGD", "16×, Adam")) > 1,
             paired("16×, SGD", "16×, Adam"))  # fmt: skip
change = ratios("64×, Adam, bf16", "64×, Adam")
course.claim("with this small model bf16 changes the time by less than a fifth", 0.8 < statistics.median(change) < 1.2,
             "bf16 " + paired("64×, Adam, bf16", "64×, Adam", "times as long"),
             otherwise="Matrix products, or the conversions, take much of the step even with this small "
                       "model.")  # fmt: skip

# %% [markdown]
# The order of the measures is the lesson of the unit: first an optimizer that can use a large batch, and as many
# samples per update as its noise allows; then cheaper updates. Where the range of a step includes 1, as from 16× to 64×
# may be on two cores, it gained nothing sure. What counts depends on the machine: a GPU gains more from the larger
# batch than two cores do, and bf16 pays where matrix products are the limit, as in the large model above.

# %% [markdown]
# ## What else can we do?
#
# **Which measure is next depends on what the measurements say is the limit.**
#
# ### Exercise 5 · What else can we do?
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
