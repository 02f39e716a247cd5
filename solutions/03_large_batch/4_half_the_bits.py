# %% [markdown]
# # Large batches, part 4: Half the bits
#
# **A large batch does not fit into memory, and it takes long. What do 16 bits change, and what can go wrong?**
#
# Gradient accumulation takes the batch in pieces and adds their gradients. Mixed precision computes part of the model
# in 16 bits. You measure what each saves and costs. Then you see a training fail in 16 bits, and repair it.
#
# **You will be able to**
#
# - make the update of a large batch from small pieces, and count the bytes that this saves;
# - write a training step under `torch.amp`;
# - say why a training in fp16 may need a loss scale, and one in bf16 none;
# - find out whether 16 bits save time on your machine.
#
# **Minutes** 46 core · 110 in all · session 2
#
# **Needs** part 3 (its answers are used if you solved it)

# %% locked="setup"
import functools
import math

import torch
from torch.nn import functional as F

import course
from course.checks import large_batch as check
from course.measure.comparison import (
    compare,
    difference_interval,
    ratio_interval,
    signed_rank_interval,
)
from course.plots import large_batch as plots
from course.training import half_precision, recommender_loop
from course.training.half_precision import (
    below_normal,
    bf16_step,
    constant_scaler,
    largest,
    loss_at_end,
    lost_in_fp16,
    watched_backward,
)
from course.training.optimizer_contest import ramp_and_decay
from course.training.rate_maps import sgd
from course.training.recommender import CONSTANT_LOSS, Experiment, listed

print(course.machine())
device = course.device()
sizes = course.sizes("03_large_batch")
experiment = Experiment(sizes)
batches = experiment.batches
print(experiment)

# %% [markdown]
# ## What if the batch does not fit?
#
# You can make the update of a batch that does not fit into memory, because `backward()` *adds* to `grad`. Process the
# batch in pieces, weight each piece by its share of the rows, and let the optimizer step after the last one.
#
# **Known** In 2024, widely used trainers were found to average the mean losses of pieces with different numbers of
# tokens (reference 5). So the tokens of short pieces weighed too much. Divide the sum over each piece by the count of
# the whole batch instead.
#
# <details><summary>What changes with batch norm, or under DDP?</summary>
#
# Batch norm, which NeuMF does not use, would see only the pieces. Under DDP, the backward pass of each piece would
# start an all-reduce, so run all pieces but the last in `model.no_sync()`.
#
# </details>

# %% [markdown]
# ### Exercise 1 · Accumulated step
#
# Make one training step on the whole batch, in as few pieces of at most `micro_batch` rows as possible. The loss is
# `F.binary_cross_entropy_with_logits` of the model's outputs and `labels`.
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
    """Make the training step of the whole batch in pieces of at most `micro_batch` rows; return the mean loss.

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
        loss = F.binary_cross_entropy_with_logits(
            model(users[rows], items[rows]), labels[rows], reduction="sum"
        )
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
# ## How much memory do pieces and 16 bits save?
#
# Both remedies shrink what autograd keeps between the forward and the backward pass. The cell counts these bytes for
# the whole batch in fp32, for pieces, and under autocast to bf16. The model is NeuMF as large as NVIDIA's (reference
# 3).
#
# **Predict**: by what factor does bf16 reduce these bytes at 192 times the batch?
#
# - By 2, because all numbers have half the bits?
# - By less, because part of what is kept stays in fp32?
# - By 1, because the weights stay in fp32?

# %%
predicted_bf16_saving = None  # your number: bytes kept in fp32 over bytes kept in bf16

# %% tags=["experiment"]
WHOLE = "the whole batch"
PIECES = f"micro-batches of {batches[1]:,}"
IN_BF16 = "the whole batch in bf16"
step_in_pieces = functools.partial(course.solved(check.accumulated_step), micro_batch=batches[1])
steps = {WHOLE: recommender_loop.training_step, PIECES: step_in_pieces, IN_BF16: bf16_step}
memory_batches = [sizes.base_batch * times for times in (4, 16, 64, 192)]

kept = {}  # bytes for the backward pass, per batch size
for way, step in steps.items():
    kept[way] = [half_precision.kept_by_step(experiment, step, batch) for batch in memory_batches]

saved_by_pieces = kept[WHOLE][-1] / kept[PIECES][-1]
saved_by_bf16 = kept[WHOLE][-1] / kept[IN_BF16][-1]
weight_bytes = sum(p.nbytes for p in experiment.fresh_model("nvidia").parameters())
title = (
    f"At {memory_batches[-1]:,} samples, fp32 keeps {saved_by_pieces:.1f} times the bytes of pieces, "
    f"{saved_by_bf16:.1f} times those of bf16"
)
plots.memory(memory_batches, kept, weight_bytes, title)

# %% tags=["experiment"]
what = "bytes kept in fp32 over bytes kept in bf16"
print(course.score("03/4", what, predicted_bf16_saving, saved_by_bf16))

kept_by_pieces = kept[PIECES][1:]  # of batches that are one micro-batch or several
is_flat = max(kept_by_pieces) < 1.1 * kept_by_pieces[0]
is_smaller = kept[IN_BF16][-1] <= 0.75 * kept[WHOLE][-1]
course.claim(
    "with micro-batches, a batch of 12 of them keeps at most a tenth more bytes than a batch of one",
    is_flat,
    ", ".join(f"{n_bytes / 1e6:.1f}" for n_bytes in kept_by_pieces) + " MB",
    otherwise="Look for what grows with the batch and not with the piece.",
)
course.claim(
    "autocast to bf16 keeps at most three quarters of the bytes that fp32 keeps for backward",
    is_smaller,
    f"{1 / saved_by_bf16:.2f} of them",
    otherwise="A small batch keeps mostly 16-bit copies of the weights.",
)

# %% [markdown]
# **Known** Autocast runs matrix products in 16 bits (documentation of `torch.amp`), so autograd keeps their inputs in
# 16 bits. The GMF half multiplies element by element and stays in fp32, so its bytes are not halved.
#
# Do pieces take longer? The cell times an update.


# %% tags=["experiment"]
def large_updates(step, batch_size):
    """A function that trains NVIDIA's NeuMF with `step` for a few updates."""
    return experiment.some_updates(sgd(1e-3), batch_size, sizes.amp_steps, step=step, size="nvidia")


ways = {}
for way in (WHOLE, PIECES):
    ways[way] = large_updates(steps[way], batches[2])
compared = compare(ways, device=device, seconds=sizes.seconds, progress=False)
course.claim(
    "an update in 12 pieces takes at most 10 % longer than the whole batch",
    compared.ratio(WHOLE, to=PIECES),
    below=1.1,
    otherwise="Part 1 names two causes: fixed costs, and the product of table rows.",
)

# %% [markdown]
# Where pieces take longer, **we think** it is for two reasons of part 1. Each piece pays the fixed costs again, and may
# be too small for the shortcut that multiplies each table row once. To tell them apart, set
# `course.training.models.TABLE_PRODUCTS_FROM` to infinity and time both again.
#
# **Takeaway** With micro-batches, the bytes kept for backward follow the micro-batch, not the batch.

# %% [markdown]
# ## What do 16 bits keep?
#
# **Known** When the object detector SSD was trained in fp16, most of the activations' non-zero gradients became zero,
# and the training diverged (reference 6).
#
# The bits of the exponent set the range of a format: outside it, a number becomes zero or infinite. The other bits set
# the spacing: fewer bits, fewer digits.
#
# | format | exponent bits | largest | smallest normal | smallest above 0 | spacing at 1 |
# |---|---|---|---|---|---|
# | fp32 | 8 | 3.4e38 | 1.2e-38 | 1.4e-45 | 1.2e-7 |
# | fp16 | 5 | 65504 | 6.1e-5 (2^-14) | 6.0e-8 (2^-24) | 9.8e-4 |
# | bf16 | 8 | 3.4e38 | 1.2e-38 | 9.2e-41 | 7.8e-3 |
#
# Under `torch.amp.autocast`, weights, optimizer and `p.grad` stay in fp32. The gradients of a linear layer's outputs
# are 16-bit. We call them the activations' gradients. A mean loss weights each row by $1/B$, so they shrink as the
# batch grows. A gradient that becomes zero trains nothing. **How many become zero?**

# %% tags=["experiment"]
small = []  # percent of the non-zero gradients, per batch size
lost = []
for batch in batches:
    activations, parameters = watched_backward(experiment, batch, torch.float32)
    small.append(below_normal(activations))
    lost.append(lost_in_fp16(activations))
    print(
        f"batch {batch:>7,}: of the activations' non-zero gradients "
        f"{small[-1]:5.1f} % below 2^-14, {lost[-1]:5.2f} % zero in fp16"
    )

largest_gradient = max(largest(activations), largest(parameters))
headroom = 2
exponent = math.floor(math.log2(65504 / (headroom * largest_gradient)))
loss_scale = 2.0**exponent
scaled = [loss_scale * gradient for gradient in activations]
print(
    f"with all gradients multiplied by 2^{exponent}: "
    f"{below_normal(scaled):.1f} % below 2^-14, {lost_in_fp16(scaled):.2f} % zero in fp16"
)

title = (
    f"Activations' non-zero gradients below 2^-14: {small[-1]:.0f} % as they are, "
    f"{below_normal(scaled):.0f} % times 2^{exponent}"
)
panels = {"gradients of activations": activations, "p.grad": parameters}
plots.gradient_histogram(panels, loss_scale, title)

# %% tags=["experiment"]
in_half, grads = watched_backward(experiment, batches[2], torch.float16)
is_16_bit = {gradient.dtype for gradient in in_half} == {torch.float16}
is_32_bit = {grad.dtype for grad in grads} == {torch.float32}
few_lost = lost[2] < 5
limits = largest(parameters) > largest(activations)

course.claim(
    "under autocast the backward pass is 16-bit and p.grad is fp32",
    is_16_bit and is_32_bit,
    otherwise="Your version of torch casts elsewhere.",
)
course.claim(
    "the larger the batch, the more of the activations' gradients is below 2^-14",
    small == sorted(small),
    ", ".join(f"{share:.1f} %" for share in small),
)
course.claim(
    "without a loss scale, less than 5 % of the gradients is lost here",
    few_lost,
    f"{lost[2]:.2f} %",
    otherwise="Your batch is larger, so each row's gradient is smaller.",
)
course.claim(
    "p.grad has larger values than the activations' gradients, so it limits the loss scale",
    limits,
)

# %% [markdown]
# The last line of the first output shows the remedy. Before the backward pass, multiply the loss by a constant, the
# **loss scale**. Before the update, divide the gradients by it, in fp32. The scale must not make any gradient
# infinite. Where the last claim holds, weight gradients set this limit: those of linear layers, too, are computed in
# fp16 before the cast to fp32.
#
# **Takeaway** With a mean loss, a larger batch makes the activations' gradients smaller. In fp16 they lose digits
# before they become zero. A constant factor moves them back.

# %% [markdown]
# ## Can you write the step in mixed precision?
#
# The next experiments train in mixed precision. They need this step, and so will you at home.

# %% [markdown]
# ### Exercise 2 · The training step under autocast
#
# Write the training step in mixed precision, with a loss scaler or without. The loss is again
# `F.binary_cross_entropy_with_logits`.
#
# **Must**
# - run `model(users, items)` under `torch.amp.autocast` (device type of `labels`, `dtype`), and the backward pass
#   outside, with the loss from float32 logits;
# - without a scaler call `loss.backward()` and `optimizer.step()`;
# - with one, run backward on the loss that `scaler.scale` returns, then call `scaler.step(optimizer)` and
#   `scaler.update()`.
#
# ```python
# >>> model = torch.nn.Embedding(2, 1)
# >>> _ = torch.nn.init.zeros_(model.weight)
# >>> users, labels = torch.tensor([0, 1]), torch.tensor([0.0, 1.0])
# >>> optimizer = torch.optim.SGD(model.parameters(), lr=4.0)
# >>> loss = amp_step(lambda u, i: model(u)[:, 0], users, users, labels, optimizer)
# >>> round(loss.item(), 4), model.weight.flatten().tolist()
# (0.6931, [-1.0, 1.0])
# ```
#
# **Points** 4 · **Core** · **Difficulty** ●●○ · **Minutes** 10 · **Lines** 10
#
# **Source** PyTorch documentation, "Automatic Mixed Precision examples"; `torch.cuda.amp` is the deprecated name of
# `torch.amp`.
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
# ## When does fp16 fail?
#
# Gradients can vanish in fp16. Does the training then fail? The cell trains a deeper version of NeuMF's MLP half alone.
# There, the gradient of an embedding passes through five layers.
#
# NVIDIA trains NeuMF with batches of $2^{20}$ samples. The cell takes fewer rows, and multiplies the mean loss by a
# factor: the number of rows over $2^{20}$. So each row's gradient is as small as in NVIDIA's batch. Before the update,
# the cell divides the gradients by the same factor. Four ways make the same updates, except for what 16 bits lose:
#
# - *fp32*: without the factor, which would change nothing;
# - *fp16 without a scale*: the factor alone;
# - *fp16 with a scaler*: the factor times a loss scale, which starts at $2^{16}$, torch's default, and adapts;
# - *bf16*: the factor alone.
#
# **Predict** the loss at the end of fp16 without a scale over the loss of fp32.
#
# - Is it 1, because Adam makes up for small gradients?
# - Is it about a third more, the loss of a constant model, because nothing moves?
# - Is it far more, because the few gradients that survive mislead the training?

# %%
predicted_alone = None  # your number: loss of fp16 without a scale over loss of fp32, at the end

# %% tags=["experiment"]
FP32 = "fp32"
ALONE = "fp16 without a scale"
SCALED = "fp16 with a scaler"
BF16 = "bf16"
amp_step_now = course.solved(check.amp_step)
fp16_step = functools.partial(amp_step_now, dtype=torch.float16)
factor = sizes.tower_rows / 2**20


def steps_to_compare():
    """{way: its training step}, each with a new scaler; None is the step in fp32."""
    adapting = torch.amp.GradScaler(device.type, init_scale=2**16 * factor, growth_interval=50)
    return {
        FP32: None,
        ALONE: functools.partial(fp16_step, scaler=constant_scaler(device, factor)),
        SCALED: functools.partial(fp16_step, scaler=adapting),
        BF16: functools.partial(amp_step_now, scaler=constant_scaler(device, factor)),
    }


# %% tags=["experiment"]
losses = {FP32: [], ALONE: [], SCALED: [], BF16: []}  # at the end, per seed
for seed in range(sizes.tower_seeds):
    for way, step in steps_to_compare().items():
        history = half_precision.train_tower(experiment, sizes, step, seed)
        losses[way].append(loss_at_end(history))
for way, of_seeds in losses.items():
    print(f"{way:<22} loss at the end, per seed: {listed(of_seeds)}")
plots.final_losses(losses, CONSTANT_LOSS)

# %% tags=["experiment"]
times_as_high = ratio_interval(torch.tensor(losses[ALONE]), torch.tensor(losses[FP32]))
what = "loss of fp16 without a scale over loss of fp32"
print(course.score("03/4", what, predicted_alone, times_as_high))

course.claim(
    "with gradients as small as at batch 2^20, fp16 without a loss scale is no better than a constant: its loss is "
    "0.49 or more",
    signed_rank_interval(losses[ALONE]),
    above=0.49,
)
course.claim(
    "with a loss scaler the same training in fp16 ends within 0.01 of the loss of fp32",
    difference_interval(losses[SCALED], losses[FP32]),
    within=(-0.01, 0.01),
)
course.claim(
    "in bf16 without a loss scale the same training ends within 0.01 of the loss of fp32",
    difference_interval(losses[BF16], losses[FP32]),
    within=(-0.01, 0.01),
)

# %% [markdown]
# **Shown** The two ways in fp16 differ only in the loss scale. Where the claims hold, the small gradients are the
# reason. Adam cannot make up for a gradient that is zero.
#
# Where a seed ends far above the constant model, **we think** the few gradients that survive mislead it, because Adam
# divides them by their own small size. To test it, train these seeds with SGD.
#
# If you clip gradients, call `scaler.unscale_(optimizer)` first. Until then the gradients carry the scale.
#
# **Takeaway** A training in fp16 can fail because its gradients are too small. A loss scale moves them into the range
# of fp16. The range of bf16 is wider.

# %% [markdown]
# ## Is it faster here?
#
# 16 bits may save time as well, but not on every machine. NVIDIA GPUs since Ampere (2020) and some CPUs multiply bf16
# in hardware. The cell times an update of the large model, and a matrix product alone, on *your* machine.
#
# **Predict** how many times as fast the update is in bf16.
#
# - Is it 2, because half the bytes move?
# - Is it more, because the processor multiplies bf16 in hardware?
# - Is it below 1, because the processor has to convert each number?

# %%
predicted_speedup = None  # your number: seconds in fp32 over seconds in bf16


# %% tags=["experiment"]
def matrix_products(matrix):
    """A function that multiplies `matrix` by itself a few times."""

    def run():
        for _ in range(sizes.amp_steps):
            torch.matmul(matrix, matrix)

    return run


updates = {
    FP32: large_updates(recommender_loop.training_step, batches[1]),
    BF16: large_updates(bf16_step, batches[1]),
}
update = compare(updates, device=device, seconds=sizes.seconds, progress=False)

matrix = torch.randn(512, 512, device=device)
products = {FP32: matrix_products(matrix), BF16: matrix_products(matrix.bfloat16())}
product = compare(products, device=device, seconds=sizes.seconds, progress=False)

print(f"an update\n{update}\na product alone\n{product}")
if device.type == "cpu":
    instructions = ", ".join(half_precision.bf16_instructions()) or "none"
    print("instructions of this CPU for products of bf16:", instructions)

# %% tags=["experiment"]
what = "how many times as fast an update is in bf16"
print(course.score("03/4", what, predicted_speedup, update.ratio(BF16)))

course.claim(
    "bf16 makes a product of two matrices at least 10 % faster than fp32",
    product.ratio(BF16),
    above=1.1,
    otherwise="Your processor may lack instructions for products of bf16.",
)
course.claim(
    "bf16 makes an update of NVIDIA's NeuMF at least 10 % faster than fp32",
    update.ratio(BF16),
    above=1.1,
)

# %% [markdown]
# If your CPU has no instructions for bf16, **we think** that torch converts each value to fp32 before it multiplies.
# To test it, compare two CPUs, one of them with `avx512_bf16` or `amx_bf16` in `lscpu`.
#
# On the recorded GPUs, bf16 makes the products faster and an update of this batch slower. On the H200, an update
# of $2^{20}$ samples is faster in bf16 ([results-gpu.md](../../docs/results-gpu.md)).
#
# **Takeaway** 16 bits can save memory where activations outweigh weights, and time where large products take most of an
# update. Measure before you switch.

# %% [markdown]
# ## Does the whole recipe work?
#
# So far you tested ingredients one by one. Now combine four at 192 times the batch: LARS, the schedule of part 3, mixed
# precision, and weight decay of $10^{-4}$. Then take ingredients out, with the same seeds. The second way has no weight
# decay, the third also no mixed precision. **Does the whole recipe end highest?**

# %% tags=["experiment"]
Lars = course.solved(check.LARS)
exponential_ramp = course.solved(check.exponential_warmup)
schedule = ramp_and_decay(exponential_ramp, sizes.epochs)(sizes.lars_lr)  # as in part 3


def mixed_step():
    """A training step in mixed precision: fp16 with a new scaler on a GPU, bf16 on a CPU."""
    if device.type == "cuda":
        return functools.partial(fp16_step, scaler=torch.amp.GradScaler("cuda"))
    return functools.partial(amp_step_now, dtype=torch.bfloat16)


def hit_rate_of_lars(seed, is_mixed, weight_decay):
    """The HR@10 of LARS with warm-up at 192 times the batch, in mixed precision or in fp32."""
    make_lars = functools.partial(
        Lars, lr=sizes.lars_lr, weight_decay=weight_decay, exclude_1d=False
    )
    step = mixed_step() if is_mixed else None
    history = experiment.train_fresh(
        make_lars,
        batches[2],
        seed,
        schedule=schedule,
        step=step,
        evaluate_every=sizes.epochs,
    )
    return history.hit_rate[-1]


# %% tags=["experiment"]
ALL = "mixed precision, decay"
NO_DECAY = "mixed precision, no decay"
IN_FP32 = "fp32, no decay"
settings = {ALL: (True, 1e-4), NO_DECAY: (True, 0.0), IN_FP32: (False, 0.0)}

hit_rates = {}
for way, (is_mixed, weight_decay) in settings.items():
    hit_rates[way] = []
    for seed in range(sizes.whole_recipe_seeds):
        hit_rates[way].append(hit_rate_of_lars(seed, is_mixed, weight_decay))
    print(f"{way:<26} HR@10 per seed: {listed(hit_rates[way])}")

above_popularity = [hit_rate - experiment.popularity for hit_rate in hit_rates[NO_DECAY]]
course.claim(
    "LARS with warm-up and mixed precision ends at least 0.1 of HR@10 above popularity at 192x",
    signed_rank_interval(above_popularity),
    above=0.1,
    otherwise="Your data may need another peak of the learning rate.",
)
course.claim(
    "without weight decay, mixed precision changes the HR@10 of LARS by less than 0.05",
    difference_interval(hit_rates[NO_DECAY], hit_rates[IN_FP32]),
    within=(-0.05, 0.05),
)
course.claim(
    "under LARS at 192x, weight decay of 1e-4 costs at least 0.1 of HR@10",
    difference_interval(hit_rates[ALL], hit_rates[NO_DECAY]),
    below=-0.1,
)

# %% [markdown]
# **Shown** Each way differs from the one before it in one ingredient, so the difference is the effect of this
# ingredient.
#
# **We think** that the decay costs so much because of the trust ratio. LARS scales $g + \beta w$ to a fixed share of
# $w$. Where $\beta \lVert w \rVert$ exceeds $\lVert g \rVert$, the layer mostly shrinks. To test it, print both norms
# per layer.
#
# **Takeaway** A recipe can do better without one of its ingredients. Take them out one by one before you trust it.

# %% [markdown]
# ## Can you find the scale yourself? · extra
#
# `torch.amp.GradScaler` hides two things that you need when a training in fp16 fails: how much fp16 loses, and how the
# scale is found. You write both.

# %% [markdown]
# ### Exercise 3 · What fp16 loses
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
# `len(alive)`, with a separate case for an empty `alive`.
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
# ### Exercise 4 · A loss scaler that finds its scale
#
# A dynamic scaler starts with a high scale. If gradients overflow, it skips the step and lowers the scale. After many
# good steps in a row, it raises the scale. The state is given. Write the methods, for one optimizer.
#
# **Must**
# - `unscale_`: divide every gradient by the scale in place, once per update, and note whether one was `inf` or `nan`;
# - `step`: unscale if that was not done, and call `optimizer.step()` unless there was an overflow (return whether);
# - `update`: multiply the scale by `backoff` after an overflow, by `growth` after `growth_interval` good ones in
#   a row, and count from 0 after each change.
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
        self.growth = growth
        self.backoff = backoff
        self.growth_interval = growth_interval
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
        # the sync point: Python has to know
        self.overflow = not all(g.isfinite().all() for g in gradients)
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
# Your scaler starts at $2^{24}$, too high on purpose, and trains the MLP from above. **What does it do first?**

# %% tags=["experiment"]
Scaler = course.solved(check.LossScaler)
flushed_share_now = course.solved(check.flushed_share)
scaler = Scaler(init_scale=2.0**24, growth_interval=50)
scales = []  # before each update
skipped = []  # numbers of the updates that were skipped


def step_with_scaler(model, users, items, labels, optimizer):
    """One step in fp16 with the scaler above; note its scale, and whether it skipped the update."""
    scale = scaler.scale(1.0)
    loss = fp16_step(model, users, items, labels, optimizer, scaler=scaler)
    if scaler.scale(1.0) < scale:
        skipped.append(len(scales))
    scales.append(scale)
    return loss


history = half_precision.train_tower(experiment, sizes, step_with_scaler, 0)
plots.loss_scale(scales, skipped)

# %% tags=["experiment"]
print(f"loss at the end {loss_at_end(history):.3f}")
for scale in (1.0, 2.0**16):
    share = flushed_share_now(activations, scale)
    print(
        f"zero in fp16 among the large model's non-zero gradients, times {scale:g}: {100 * share:.1f} %"
    )

skips_a_few = 0 < len(skipped) < len(scales) / 2
course.claim(
    "the scaler skips at least one update, and fewer than half of them",
    skips_a_few,
    f"{len(skipped)} of {len(scales)} skipped",
    otherwise="The training is too short: the skipped updates are most of it.",
)

# %% [markdown]
# **Takeaway** A scaler finds its scale itself, and pays with the updates that it skips. One that starts too low can
# lose gradients until it may grow.

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
# My critical batch is about 20,000 samples (part 5), so four times the rows per update help only below it.
#
# *Data parallelism* (unit 02): each of four ranks takes a quarter of the batch. The limit is the all-reduce. I would
# measure samples/s with 1, 2 and 4 ranks at a fixed batch per rank.
#
# *Fewer negatives*: two per positive instead of four make an epoch 40 % smaller. The limit is the score, because
# fewer zeros say less. I would compare seconds to the same HR@10 with three seeds and the learning rate tuned again.
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
# ## References
#
# 1. P. Goyal et al., Accurate, Large Minibatch SGD: Training ImageNet in 1 Hour, 2017.
#    [arXiv:1706.02677](https://arxiv.org/abs/1706.02677)
# 2. P. Micikevicius et al., Mixed Precision Training, ICLR 2018. [arXiv:1710.03740](https://arxiv.org/abs/1710.03740)
# 3. NVIDIA, Deep Learning Examples: Neural Collaborative Filtering for PyTorch.
#    [Recommendation/NCF](https://github.com/NVIDIA/DeepLearningExamples/tree/master/PyTorch/Recommendation/NCF)
# 4. X. He et al., Neural Collaborative Filtering, WWW 2017. [arXiv:1708.05031](https://arxiv.org/abs/1708.05031)
# 5. D. Han, M. Han, Bug Fixes in LLM Training: Gradient Accumulation, 2024.
#    [unsloth.ai/blog/gradient](https://unsloth.ai/blog/gradient)
# 6. NVIDIA, Train With Mixed Precision, User's Guide.
#    [docs.nvidia.com](https://docs.nvidia.com/deeplearning/performance/mixed-precision-training/index.html)
