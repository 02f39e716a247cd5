# %% [markdown]
# # Faster training, part 3: Make each step cheaper
#
# **Which changes make a single step faster, on which network, and which only look as if they should?**
#
# Part 2 needed fewer steps. This part keeps the number of steps and makes each step cheaper. A profile says which share
# of the step a change is meant for. A measurement then says what the change gains, on a small convolutional network and
# on a small GPT.
#
# **You will be able to**
#
# - bound a change by the share of the step that it touches, before you try it;
# - build a ladder in which each rung is measured against the one before it;
# - say which lines of a training step belong inside autocast, and where to clip under a scaler;
# - explain a gain with a control that changes one cause alone.
#
# **Minutes** 41 core · 87 in all · session 2
#
# **Needs** nothing from parts 1 and 2
#
# Run the cells in order. Where a cell says None, write your number before you run the next cell. Sections marked
# "extra" can wait.

# %% locked="setup"
import copy
import functools
import itertools
import math
import os

# Else the profiler writes about missing GPUs to the terminal.
os.environ.setdefault("KINETO_LOG_LEVEL", "6")

import torch
from torch import nn
from torch.nn import functional as F

import course
from course.checks import faster_training as check
from course.datasets import fashion
from course.measure.comparison import (
    CHANGED,
    FASTER,
    NOT_DECIDED,
    USUAL,
    compare_pairs,
    largest_gains,
    ratio_of_gains,
)
from course.measure.compiling import compiled
from course.plots import faster_training as plots
from course.training import ladder
from course.training.models import FashionCNN
from course.training.ragged_transformer import graphs_compiled

print(course.machine())
size = course.sizes("06_faster_training")
device = course.device()
parts = fashion.with_validation(fashion.load(size.dataset))
images, labels, held_images, held_labels = [part.to(device) for part in parts]
held = (held_images[:1000], held_labels[:1000])
gpt_shape = (size.gpt_columns, size.gpt_dim, size.gpt_layers)

# Large batches are timed, and smaller ones are trained on.
networks = ladder.both(images, labels, held, size.step_batch, size.gpt_rows, gpt_shape)
small = ladder.both(images, labels, held, size.loss_batch, size.loss_rows, gpt_shape)
batches = [(x, y) for (x,), y in networks["convolutional network"].batches]
print(f"steps of {size.step_batch} images, and of {size.gpt_rows} x {size.gpt_columns} tokens")

# %% [markdown]
# ## How much can each change gain?
#
# There are many changes to try. Which are worth it? The baseline is a plain step: float32, the usual layout, Adam with
# its defaults, and attention as the paper writes it. The changes form a *ladder*: each rung keeps the changes of the
# rung before it and adds one (code: `course/training/ladder.py`).
#
# | rung | what it adds | meant to make cheaper |
# |---|---|---|
# | no useless bias | convolutions before BatchNorm lose their bias (CNN) | the convolutions |
# | channels last | the same numbers in another order in memory (CNN) | convolutions, norms, pooling |
# | SDPA | `F.scaled_dot_product_attention`, a fused kernel (GPT) | attention |
# | fused optimizer | Adam's operations are fused into one kernel | the optimizer |
# | TF32 | products round float32 to ten binary digits after the first (NVIDIA) | products, convolutions, attention |
# | 16 bits | the forward pass in bf16 (fp16 on old GPUs) | products, convolutions, attention |
# | compiled model | `torch.compile` | point-wise operations, norms |
# | CUDA graphs | one call starts many recorded kernels (NVIDIA) | the gaps between kernels |
#
# A profile of the rung before gives a bound. What the last column names takes the share $s$ of the step. If the change
# makes this share free and leaves the rest alone, the step is $1 / (1 - s)$ times as fast. A change that also speeds up
# other work may gain more. Each bound comes from a short profile of the rung before, so it is rough. The figure shows
# the baseline.

# %% tags=["experiment"]
rungs = {}  # {network: {change: a training step with it and those before}}
shares = {}  # of a step of the baseline
bounds = {}
for name, network in networks.items():
    rungs[name] = ladder.ladder(network, device)
    shares[name] = ladder.shares(rungs[name][ladder.BASELINE])
    bounds[name] = ladder.bounds(rungs[name])
plots.step_shares(shares)

# %% tags=["experiment"]
for name, network_bounds in bounds.items():
    print(name)
    for rung, bound in network_bounds.items():
        text = "the profile cannot tell"
        if bound:
            text = f"bound: {bound:.2f} times as fast"
        print(f"  {rung:<16} {text}")

# %% [markdown]
# **Takeaway** Before you write a change, profile the step, and look up the share that the change is meant for.

# %% [markdown]
# ## Which rung wins on which network?
#
# A bound is not yet a gain: the new kernel takes time, too, and may even be slower than the old one. So measure. Each
# rung is compared with the last rung before it that runs here, in rounds of random order. The baseline runs twice, and
# the ratio of the two is the control.
#
# **Predict**: which rung gains most on the convolutional network, and which on the small GPT? Use the bounds. For 16
# bits, ask whether your processor has instructions for them (`amx_bf16` or `avx512_bf16` in `lscpu`) or your GPU has
# tensor cores.

# %%
# "no useless bias", "channels last", "fused optimizer", "TF32", "16 bits", ...
predicted_cnn = None
# "SDPA", "fused optimizer", "TF32", "16 bits", "compiled model", ...
predicted_gpt = None

# %% tags=["experiment"]
timed = {}
compared = {}  # {network: {rung: its Comparison with the rung before}}
for name, network_rungs in rungs.items():
    timed[name] = ladder.timed(network_rungs, size.steps_per_turn, size.ladder_seconds)
    compared[name] = ladder.compared(network_rungs, timed[name])
plots.ladders(compared, bounds)

# %% tags=["experiment"]
gains = {}
for name, comparisons in compared.items():
    gains[name] = {}
    milliseconds = 1000 * timed[name].median(ladder.BASELINE)
    print(f"{name}: {milliseconds:.3g} ms per step, control {timed[name].control}")
    left_out = []
    for rung, comparison in comparisons.items():
        if isinstance(comparison, str):  # the reason
            left_out.append(rung)
            continue
        gains[name][rung] = comparison.ratio(rung)
        verdict = comparison.verdict(rung)
        if verdict == NOT_DECIDED:
            verdict += f"; 2 % would take about {comparison.rounds_for(rung, 0.02):,} rounds"
        print(f"  {rung:<16} {gains[name][rung]}  {verdict}")
    print(f"  not measured here: {', '.join(left_out) or 'none'}")

# %% tags=["experiment"]
cnn_gains = gains["convolutional network"]
gpt_gains = gains["small GPT"]
best_cnn = largest_gains(cnn_gains)
best_gpt = largest_gains(gpt_gains)
print(course.score("06/3", "the rung worth most, CNN", predicted_cnn, best_cnn, null=None))
print(course.score("06/3", "the rung worth most, GPT", predicted_gpt, best_gpt, null=None))

last_cnn_rung = list(cnn_gains)[-1]
last_gpt_rung = list(gpt_gains)[-1]
otherwise = "The control says how large a difference this machine finds between equal steps."
course.claim(
    "all changes together make a step of the convolutional network at least 10 % faster",
    timed["convolutional network"].ratio(last_cnn_rung),
    above=1.1,
    otherwise=otherwise,
)
course.claim(
    "all changes together make a step of the small GPT at least 10 % faster",
    timed["small GPT"].ratio(last_gpt_rung),
    above=1.1,
    otherwise=otherwise,
)

# %% tags=["experiment"]
course.claim(
    "channels last makes a step of the convolutional network at least 5 % faster",
    cnn_gains["channels last"],
    above=1.05,
)
course.claim(
    "without the bias before BatchNorm, a step is as fast within 5 %",
    cnn_gains["no useless bias"],
    within=(0.95, 1.05),
)
course.claim(
    "SDPA makes a step of the small GPT at least 5 % faster",
    gpt_gains["SDPA"],
    above=1.05,
    otherwise="Rows here are short: what it saves grows with the square of their length.",
)
if device.type == "cuda":
    course.claim(
        "TF32 makes a step of the small GPT at least 10 % faster",
        gpt_gains.get("TF32"),
        above=1.1,
    )
    course.claim(
        "CUDA graphs make a step of the small GPT at least 10 % faster",
        gpt_gains.get("CUDA graphs"),
        above=1.1,
    )

# %% [markdown]
# Compare the bounds with the gains. A gain may stay far below its bound. If a gain exceeds its bound, the change also
# speeds up work outside its share, or the profile missed the share. For example, 16 bits also halve the bytes of
# point-wise operations between products.
#
# TF32 and CUDA graphs are for NVIDIA's GPUs, so a CPU does not measure them. The convolutional network is compiled at
# GPU scale only, because that takes long.
#
# <details><summary>When do TF32 and CUDA graphs help?</summary>
#
# TF32 multiplies float32 in tensor cores with ten binary digits after the first of each factor (NVIDIA Ampere white
# paper 2020). PyTorch uses TF32 for convolutions by default (our baseline does not), and for matrix products after one
# line, `torch.set_float32_matmul_precision("high")`. Under autocast this line gains little, because the products
# already run in 16 bits.
#
# A CUDA graph replays recorded kernels. This pays where the GPU waits for Python: with small kernels and small batches.
#
# </details>
#
# **Takeaway** Only the ladder says which rung wins, on your network and your machine.

# %% [markdown]
# ## Does a faster step learn as much?
#
# A faster step may learn less. The cell trains every rung that is not compiled, with the same seeds and batches. Then
# it subtracts the baseline's loss seed by seed. The control is the baseline again, from weights that differ by a
# millionth: it shows how much rounding alone may change the loss.

# %% tags=["experiment"]
differences = {}  # {network: {rung: loss minus the baseline's}}
for name in rungs:
    differences[name] = ladder.loss_differences(
        small[name], rungs[name], size.loss_steps, size.loss_seeds, device
    )
    print(f"{name}: loss minus the baseline's after {size.loss_steps} steps")
    for rung, difference in differences[name].items():
        print(f"  {rung:<16} {difference.shown('+.4f')}")

course.claim(
    "with all changes up to 16 bits, the convolutional network has the baseline's loss within 0.1",
    differences["convolutional network"]["16 bits"],
    within=(-0.1, 0.1),
)
course.claim(
    "with all changes up to 16 bits, the small GPT has the baseline's loss within 0.05",
    differences["small GPT"]["16 bits"],
    within=(-0.05, 0.05),
)

# %% [markdown]
# **Shown** The rungs share weights, batches and steps. So if an interval lies outside the control's, the changes up to
# that rung are the cause. If an interval is only wider, the seeds differ more, but the loss need not be higher.
#
# These are few steps. Train longer before you trust a format at the end of a schedule, where updates are small.
#
# **Takeaway** Compare losses in pairs, seed by seed, and next to what rounding alone does.

# %% [markdown]
# ## Which lines belong inside autocast?
#
# If 16 bits are faster, why not store the whole model in 16 bits? bf16 keeps the range of float32 and stores seven
# binary digits after the first. So a weight of 0.1 can only move in steps of 1/2048.
#
# **Predict**: store the weights of FashionCNN in bf16, and add 1e-5 to each. Adam makes such updates at the end of a
# schedule. Which share of the weights stays where it is? Most weights lie between a thousandth and a twentieth. bf16
# keeps an update that is larger than 1/256 of the weight, and loses one that is smaller than 1/512 of it.

# %%
predicted_stuck = None  # between 0 and 1

# %% tags=["experiment"]
torch.manual_seed(0)
model = FashionCNN()
weights = torch.cat([p.detach().flatten() for p in model.parameters() if p.ndim > 1])


def share_that_stays(update, dtype):
    """Share of the weights that stay where they are when `update` is added to each of them."""
    stored = weights.to(dtype)
    return (stored + update == stored).float().mean().item()


for update in (1e-3, 1e-4, 1e-5):  # the smallest last: the next cell uses it
    half_stays = share_that_stays(update, torch.bfloat16)
    full_stays = share_that_stays(update, torch.float32)
    print(
        f"update of {update:g}: {half_stays:4.0%} of the bf16 weights do not move, "
        f"{full_stays:.0%} of the float32 weights"
    )

# %% tags=["experiment"]
what = "share of bf16 weights that stay"
print(course.score("06/3", what, predicted_stuck, half_stays, null=None, form="{:.2f}"))
most_stay = half_stays > 0.5 and full_stays == 0
course.claim(
    "most bf16 weights do not move by an update of 1e-5, and all float32 weights do",
    most_stay,
    f"{half_stays:.0%} stay",
)

# %% tags=["experiment"]
half = ladder.half_dtype(device)
x = torch.ones(8, 8, device=device, dtype=half)
targets = torch.zeros(8, dtype=torch.int64, device=device)
with torch.autocast(device.type, dtype=half):
    results = {
        "matrix product": x @ x,
        "sum": x.sum(),
        "mean": x.mean(),
        "exp": x.exp(),
        "softmax": x.softmax(1),
        "layer norm": F.layer_norm(x, x.shape[1:]),
        "cross entropy": F.cross_entropy(x, targets),
    }

print(f"autocast on {device.type}, 16-bit input:")
for name, result in results.items():
    print(f"  {name:<16} {result.dtype}")
course.claim(
    "inside autocast a matrix product has 16 bits and the cross entropy 32",
    results["matrix product"].dtype == half and results["cross entropy"].dtype == torch.float32,
)
is_half = None  # on a GPU this says nothing
if device.type == "cpu":
    is_half = results["softmax"].dtype == half
course.claim(
    "on a CPU, autocast leaves the softmax of a 16-bit tensor in 16 bits",
    is_half,
    str(results["softmax"].dtype),
    otherwise="Your version of torch computes it in 32 bits.",
)

# %% [markdown]
# So `model.bfloat16()` is not mixed precision: most weights would miss the smallest updates. Autocast keeps float32
# weights, makes a 16-bit copy for products (Micikevicius et al. 2018), and computes the loss in float32. Some other
# functions run in float32 on CUDA only: softmax, layer norm, sums and `exp`.
#
# fp16 has more digits than bf16 but a smaller range, so small gradients become 0. A `torch.amp.GradScaler`, made once
# before the training, multiplies them first, with three calls per step:
#
# ```python
# scaler.scale(loss).backward()  # gradients of the loss, multiplied by a large factor
# scaler.step(optimizer)  # divides them, and skips the update if one overflowed
# scaler.update()  # halves the factor after an overflow, doubles it after a long time without
# ```
#
# If you clip gradients, call `scaler.unscale_(optimizer)` first, because otherwise you clip the scaled gradients. The
# next cells clip a step to length 1, with this call and without it.


# %% tags=["experiment"]
def step_length(unscales):
    """How far the weights move in a step of SGD at learning rate 1, clipped to norm 1.

    The gradients are under a scale of 65,536, which `unscales` removes before they are clipped.
    """
    torch.manual_seed(0)
    layer = nn.Linear(8, 1, bias=False).to(device)
    before = layer.weight.detach().clone()
    optimizer = torch.optim.SGD(layer.parameters(), lr=1.0)
    scaler = torch.amp.GradScaler(device.type, init_scale=65_536.0)
    loss = 10 * layer(torch.ones(4, 8, device=device)).sum()
    scaler.scale(loss).backward()
    if unscales:
        scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(layer.parameters(), 1.0)
    scaler.step(optimizer)
    return (layer.weight - before).norm().item()


# %% tags=["experiment"]
right = step_length(unscales=True)
wrong = step_length(unscales=False)
is_shorter = right > 0.99 and wrong < 1e-4
course.claim(
    "without unscale_, clipping shortens the update by the scale",
    is_shorter,
    f"{right:.2f} and {wrong:.1e}",
)

# %% [markdown]
# ### Exercise 1 · A step under autocast
#
# Write a training step in mixed precision: bfloat16 without a scaler, float16 with one. The weights stay in float32.
# The loss is `F.cross_entropy`, computed inside autocast.
#
# **Must**
# - run the model and the loss inside autocast, the backward pass and the optimizer outside;
# - use the scaler, if there is one, for backward, step and update;
# - drop the gradients of earlier batches (None, not 0), and at the end return the loss, unscaled and detached.
#
# **Points** 4 · **Core** · **Difficulty** ●●○ · **Minutes** 15 · **Lines** 12
#
# **Source** PyTorch documentation, "Automatic Mixed Precision package".
#
# <details><summary>Hint 1</summary>
#
# The update writes the weights that the next step starts from, so it needs all their digits. Which lines compute the
# loss from the images?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `torch.autocast(images.device.type, dtype=...)` is a context manager. The backward pass takes the dtypes of the
# forward pass by itself.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# Inside the block: `loss = F.cross_entropy(model(images), labels)`. After the block, without a scaler:
# `loss.backward()`, `optimizer.step()`; with one: `scaler.scale(loss).backward()`, `scaler.step(optimizer)`,
# `scaler.update()`.
#
# </details>


# %% solution="autocast_region"
def autocast_region(model, images, labels, optimizer, scaler=None):
    """Make one training step in mixed precision and return its loss.

    Args:
        model: with float32 weights; gives logits (n, 10).
        images: float32 tensor (n, ...).  labels: int64 tensor (n,), on the same device.
        optimizer: holds the parameters of `model`.
        scaler: None to compute in bfloat16; a torch.amp.GradScaler to compute in float16.

    Returns: float32 tensor of shape (), detached and unscaled.
    """
    ### BEGIN SOLUTION
    optimizer.zero_grad()
    dtype = torch.bfloat16 if scaler is None else torch.float16
    with torch.autocast(images.device.type, dtype=dtype):
        loss = F.cross_entropy(model(images), labels)
    if scaler is None:
        loss.backward()
        optimizer.step()
    else:
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    return loss.detach()
    ### END SOLUTION


# %% test="autocast_region-visible" points=2
check.autocast_region(autocast_region)

# %% test="autocast_region-hidden" points=2
### BEGIN HIDDEN TESTS
check.autocast_region(autocast_region, seed=17)
### END HIDDEN TESTS

# %% [markdown]
# **Takeaway** Put only forward and loss inside autocast, and keep the weights in float32: stored in bf16, most of them
# miss the small updates at the end of a training.

# %% [markdown]
# ## What explains the ladder?
#
# A rung tells you *whether* a change helps this network. To say whether it will help yours, you have to know *why*. So
# change one suspected cause alone:
#
# - Do 16 bits need large products? The control makes the same step with a sixteenth of the images. Neither step has the
#   ladder's other changes, so the gain may differ from the rung's.
# - How much can a fused optimizer gain at all? The control times the update alone. A claim divides the gain in the step
#   by its bound.
# - Which layer gains from channels last? Each layer runs alone in both layouts.
# - Does SDPA need long sequences? Causal attention runs alone, on rows of two lengths with equally many tokens
#   together. On long rows it also runs without the mask.

# %% tags=["experiment"]
half_step_now = course.solved(check.autocast_region)  # yours if it is right, else ours
scaler = None
if half == torch.float16:
    scaler = torch.amp.GradScaler(device.type)


def full_step(model, images, labels, optimizer):
    """Make one training step in float32."""
    optimizer.zero_grad()
    F.cross_entropy(model(images), labels).backward()
    optimizer.step()


def fresh():
    """A FashionCNN without dropout, with the same weights each time, and its Adam."""
    torch.manual_seed(0)
    model = FashionCNN(dropout=0.0).to(device)
    return model, torch.optim.Adam(model.parameters(), lr=1e-3)


# %% tags=["experiment"]
def steps_with(n):
    """(a step in float32, a step in 16 bits), functions that train new models on n images."""
    x, y = batches[0]
    x = x[:n]
    y = y[:n]
    full_model, full_optimizer = fresh()
    half_model, half_optimizer = fresh()
    in_full = functools.partial(full_step, full_model, x, y, full_optimizer)
    in_half = functools.partial(half_step_now, half_model, x, y, half_optimizer, scaler)
    return in_full, in_half


# %% tags=["experiment"]
all_images = size.step_batch
tokens = size.gpt_rows * size.long_columns
short = size.gpt_columns // 2
long = size.long_columns
model, _ = fresh()
pairs = {  # suspected cause: (without the change, with it)
    "16 bits, all images": steps_with(all_images),
    "16 bits, few images": steps_with(all_images // 16),
    "fused update alone": (ladder.update_alone(model), ladder.update_alone(model, fused=True)),
}
for layer, pair in ladder.layout_pairs(all_images, device).items():
    pairs[f"channels last, {layer}"] = pair
pairs["SDPA, short rows"] = ladder.attention_pair(short, tokens, size.gpt_dim, device)
pairs["SDPA, long rows"] = ladder.attention_pair(long, tokens, size.gpt_dim, device)
no_mask = ladder.attention_pair(long, tokens, size.gpt_dim, device, is_causal=False)
pairs["SDPA, long rows, no mask"] = no_mask

controls = compare_pairs(pairs, device=device, seconds=size.cause_seconds)
plots.advice_ratios(controls, "times as fast with the change")

# %% tags=["experiment"]
ratios = {}
for name, comparison in controls.items():
    ratios[name] = comparison.ratio(CHANGED)

course.claim(
    "a step in 16 bits is faster with many images",
    ratios["16 bits, all images"],
    above=1,
    otherwise="Autocast adds conversions, which pay only if products take much of the step.",
)
course.claim(
    "16 bits gain at least 10 % more with many images than with few",
    ratio_of_gains(controls["16 bits, all images"], controls["16 bits, few images"]),
    above=1.1,
)

# %% tags=["experiment"]
course.claim(
    "the fused update alone is at least 50 % faster than Adam's default update",
    ratios["fused update alone"],
    above=1.5,
)
bound = bounds["convolutional network"]["fused optimizer"]
course.claim(
    "the fused optimizer gains no more in a step than the update's share allows",
    cnn_gains["fused optimizer"].scaled(1 / bound),
    below=1.1,
)
faster = []
for name, comparison in controls.items():
    if name.startswith("channels last, ") and comparison.verdict(CHANGED) == FASTER:
        faster.append(name.removeprefix("channels last, "))
print(f"faster in channels last: {', '.join(faster) or 'no layer'}")
course.claim(
    "max-pooling alone is at least 50 % faster in channels last",
    ratios["channels last, max-pooling"],
    above=1.5,
)
course.claim(
    "SDPA gains at least 10 % more on long rows than on short ones",
    ratio_of_gains(controls["SDPA, long rows"], controls["SDPA, short rows"]),
    above=1.1,
)

# %% [markdown]
# - **16 bits**: **Shown** The two steps differ only in the number of images. **We think** that with few images the
#   products are small, and Adam's update, which stays in 32 bits, takes a larger share. To tell the two apart, leave
#   the update out of both steps.
# - **Channels last**: **Shown** Each layer runs alone in both layouts, so the rows say which layers gain.
# - **SDPA**: **Known** Its fused kernels do not write the table of all scores, which grows with the square of the row
#   (Dao et al. 2022, arXiv:2205.14135). Under a causal mask they also skip the half of the table that is hidden. The
#   row without a mask leaves this cause out.
#
# **Takeaway** To explain a gain, change one suspected cause alone.

# %% [markdown]
# ## When is compiling paid back?
#
# `torch.compile` makes one kernel of several operations, but its first call takes long, so the compiled steps must save
# this time. The compiled code stays on disk, so a second start of the same training is cheaper.
#
# But `torch.compile` compiles for the shapes that it sees. Does a smaller last batch make it compile again? The cell
# counts, for batches of the sizes 16, 12, 8 and 4.

# %% tags=["experiment"]
gpt = networks["small GPT"]
(first_tokens, positions), _ = gpt.batches[0]
inputs = []  # batches of four sizes
for n_rows in (16, 12, 8, 4):
    inputs.append((first_tokens[:1].expand(n_rows, -1).contiguous(), positions))

counted = {}  # {number of batch sizes: graphs}
for n_sizes in (1, 2, 3, 4):
    model = gpt.make().to(device)
    counted[n_sizes] = graphs_compiled(model, inputs[:n_sizes], dynamic=None)
print("graphs compiled after 1, 2, 3 and 4 batch sizes:", *counted.values())
course.claim(
    "a second batch size makes torch.compile compile again",
    counted[2] == counted[1] + 1,
    f"{counted[1]} and {counted[2]} graphs",
)
course.claim(
    "after a second batch size, further sizes do not make torch.compile compile again",
    counted[4] == counted[2],
)

# %% tags=["experiment"]
for name, network_rungs in rungs.items():
    rung = network_rungs["compiled model"]
    if rung.reason:
        print(f"{name}: not measured here: {rung.reason}")
        continue
    seconds_before = timed[name].time("16 bits").estimate
    gain = gains[name]["compiled model"]
    torch.compiler.reset()
    again = ladder.Rung(networks[name], rung.changes, device)
    starts = {"first start": rung.compile_seconds, "from the cache": again.compile_seconds}
    for start, seconds in starts.items():
        when = ladder.paid_back(seconds, seconds_before, gain)
        print(f"{name}, {start}: {seconds:.1f} s, {when}")

# %% [markdown]
# **Known** After a second size, torch.compile makes a graph whose size is a variable, which serves further sizes
# (PyTorch documentation, "Dynamic Shapes").
#
# <details><summary>When does it compile more often?</summary>
#
# Sizes 0 and 1 always get their own graphs. A Python number that changes from call to call may compile again every
# time, up to a limit; `TORCH_LOGS=recompiles` says why. The line "from the cache" was measured in the same process. A
# new process also has to import the compiler.
#
# </details>
#
# **Takeaway** Count the compile time against the steps that you will make. Drop a smaller last batch, or compile once
# more for it.

# %% [markdown]
# ## What does a bias before BatchNorm do? · extra
#
# Checklists tell you to leave out the bias before a BatchNorm, which subtracts the mean of each channel. So what is the
# gradient of such a bias? One backward pass through FashionCNN compares the gradients of biases and weights.

# %% tags=["experiment"]
model, _ = fresh()
x, y = batches[0]
F.cross_entropy(model(x), y).backward()
before_norm = []
others = []
for name, layer in model.named_modules():
    if isinstance(layer, (nn.Conv2d, nn.Linear)):
        ratio = (layer.bias.grad.norm() / layer.weight.grad.norm()).item()
        kind = type(layer).__name__
        print(f"{name:<15} {kind:<7} gradient of the bias / of the weight {ratio:.1e}")
        if kind == "Conv2d":  # here each convolution is followed by BatchNorm
            before_norm.append(ratio)
        else:
            others.append(ratio)
only_these_are_zero = max(before_norm) < 1e-3 < min(others)
course.claim(
    "the biases before BatchNorm have a gradient of zero up to rounding, and no other bias has",
    only_these_are_zero,
    f"{max(before_norm):.0e}, the others from {min(others):.0e}",
)

# %% [markdown]
# **Takeaway** In training, a bias right before BatchNorm has a gradient of zero: BatchNorm subtracts it with the mean.
#
# ### Exercise 2 · Remove it
#
# Return a model without the biases that come right before a BatchNorm. In training mode these biases change no output.
# In evaluation mode BatchNorm subtracts its *running* mean, which includes the bias.
#
# **Must**
# - return a copy, and leave the given model as it is;
# - make the bias None of each `nn.Linear` or `nn.Conv2d` whose next neighbour in the same `nn.Sequential`, at any
#   depth, is an `nn.BatchNorm1d` or `nn.BatchNorm2d`;
# - give the same outputs as before, in training and in evaluation mode.
#
# **You may assume** that every BatchNorm keeps running statistics, and that no layer is used twice.
#
# ```python
# >>> model = torch.nn.Sequential(torch.nn.Conv2d(1, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.Conv2d(4, 2, 3))
# >>> [name for name, _ in useless_bias(model).named_parameters()]
# ['0.weight', '1.weight', '1.bias', '2.weight', '2.bias']
# ```
#
# **Points** 3 · **Extra** · **Difficulty** ●●○ · **Minutes** 14 · **Lines** 9
#
# **Source** Ioffe and Szegedy 2015, "Batch Normalization", section 3.2.
#
# <details><summary>Hint 1</summary>
#
# If the inputs of a BatchNorm get smaller by b, what must happen to the mean that it subtracts?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `model.modules()` gives every nn.Sequential, inner ones too; `itertools.pairwise(part)` gives the neighbours in it.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# For each pair found: `norm.running_mean -= layer.bias.detach()` and `layer.bias = None`, on `copy.deepcopy(model)`.
#
# </details>


# %% solution="useless_bias"
def useless_bias(model):
    """A copy of `model` without the biases that come right before a BatchNorm; it computes the same.

    Args:
        model: nn.Module with nn.Sequential parts.

    Returns: nn.Module of the same class.
    """
    ### BEGIN SOLUTION
    lean = copy.deepcopy(model)
    for part in lean.modules():
        for layer, norm in itertools.pairwise(part) if isinstance(part, nn.Sequential) else []:
            has_bias = isinstance(layer, (nn.Linear, nn.Conv2d)) and layer.bias is not None
            if has_bias and isinstance(norm, (nn.BatchNorm1d, nn.BatchNorm2d)):
                norm.running_mean -= layer.bias.detach()
                layer.bias = None
    return lean
    ### END SOLUTION


# %% test="useless_bias-visible" points=2
check.useless_bias(useless_bias)

# %% test="useless_bias-hidden" points=1
### BEGIN HIDDEN TESTS
check.useless_bias(useless_bias, seed=18)
### END HIDDEN TESTS

# %% tags=["experiment"]
model, optimizer = fresh()
for x, y in batches:
    full_step(model, x, y, optimizer)
lean = course.solved(check.useless_bias)(model)
n_before = sum(p.numel() for p in model.parameters())
n_lean = sum(p.numel() for p in lean.parameters())
model.eval()
lean.eval()
with torch.inference_mode():
    difference = (model(held_images) - lean(held_images)).abs().max().item()
is_same = difference < 1e-4
course.claim(
    "without the biases before BatchNorm, a trained model has the same outputs",
    is_same,
    f"{n_before - n_lean} parameters fewer, outputs at most {difference:.0e} apart",
)

# %% [markdown]
# ## Where does a model lose its layout? · extra
#
# Channels last helps only as long as the layers keep it, and one layer can undo it without an error. By default one
# channel of an image is stored after the other. In the layout `torch.channels_last` the channels of a pixel are
# neighbours, which some convolution kernels prefer. Shape and values stay.
#
# You compare FashionCNN with a second one that calls `.contiguous()` after the first block. How often does the layout
# change on the way through it?
# %% [markdown]
# ### Exercise 3 · Find the layers
#
# Convert the model and the images, run the model, and say which layers return images in channels-last.
#
# **Must**
# - convert `model` to `torch.channels_last` in place, and run it once, in its present mode, on a copy of `images` in
#   that layout;
# - return {name as in `named_modules`: bool}, in the order in which they ran, of all leaf layers whose output has four
#   dimensions;
# - leave no hook behind: `layer.register_forward_hook(hook)` calls `hook(layer, inputs, output)` after each run, and
#   returns a handle with `remove()`.
#
# **You may assume** that each layer runs once and returns one tensor.
#
# ```python
# >>> model = torch.nn.Sequential(torch.nn.Conv2d(2, 4, 3), torch.nn.ReLU(), torch.nn.Flatten())
# >>> channels_last(model, torch.rand(2, 2, 8, 8))
# {'0': True, '1': True}
# ```
#
# **Points** 3 · **Extra** · **Difficulty** ●●○ · **Minutes** 15 · **Lines** 12
#
# **Source** PyTorch tutorial, "Channels Last Memory Format in PyTorch".
#
# <details><summary>Hint 1</summary>
#
# What does `tensor.is_contiguous(memory_format=torch.channels_last)` say, and what do the strides have to do with it?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Leaf layers are those without children. Their hooks note the answer; where do you keep the handles until the run is
# over?
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# A hook that notes `found[name] = ...` needs the name of *its* layer: make it in a function `hook_for(name)`.
#
# </details>


# %% solution="channels_last"
def channels_last(model, images):
    """Convert `model` and `images` to channels-last, run once: {name of a layer: whether its output is channels-last}.

    Args:
        model: nn.Module for images; its weights get the layout torch.channels_last.
        images: float32 tensor (n, channels, height, width); stays as it is.

    Returns: dict of bools, the leaf layers with outputs of four dimensions, in the order in which they ran.
    """
    ### BEGIN SOLUTION
    model.to(memory_format=torch.channels_last)
    found, handles = {}, []

    def hook_for(name):
        def hook(layer, inputs, output):
            if output.ndim == 4:
                found[name] = output.is_contiguous(memory_format=torch.channels_last)

        return hook

    for name, layer in model.named_modules():
        if not list(layer.children()):
            handles.append(layer.register_forward_hook(hook_for(name)))
    with torch.no_grad():
        model(images.to(memory_format=torch.channels_last))
    for handle in handles:
        handle.remove()
    return found
    ### END SOLUTION


# %% test="channels_last-visible" points=2
check.channels_last(channels_last)

# %% test="channels_last-hidden" points=1
### BEGIN HIDDEN TESTS
check.channels_last(channels_last, seed=20)
### END HIDDEN TESTS

# %% tags=["experiment"]
layout_now = course.solved(check.channels_last)


class Copies(nn.Module):
    """Copies images into the usual layout."""

    def forward(self, images):
        """The same images, one channel after the other."""
        return images.contiguous()


# %% tags=["experiment"]
changes = {}
for title in ("FashionCNN", "with a copy"):
    model, _ = fresh()
    if title == "with a copy":
        model.convolutions.insert(4, Copies())
    layouts = list(layout_now(model, images[:4]).values())
    changes[title] = sum(before != after for before, after in itertools.pairwise(layouts))
    marks = ["last" if is_last else "usual" for is_last in layouts]
    print(f"{title}: {' '.join(marks)}: {changes[title]} changes")
course.claim(
    "FashionCNN keeps the layout from its first convolution to its last layer with images, "
    "and the copy costs two conversions",
    changes["FashionCNN"] == 0 and changes["with a copy"] == 2,
    f"{changes['FashionCNN']} and {changes['with a copy']} changes",
)

# %% [markdown]
# **Takeaway** One `.contiguous()` costs two conversions per forward pass, and torch does not warn.

# %% [markdown]
# ## What does a compiler gain on point-wise operations? · extra
#
# Each operation in a chain of point-wise operations reads and writes the whole tensor. A compiler makes one kernel of
# the chain, which reads and writes it once. The example is GELU, $x\,\Phi(x)$, with $\Phi(x) = \frac12 (1 +
# \mathrm{erf}(x / \sqrt 2))$.
# %% [markdown]
# ### Exercise 4 · GELU, written out
#
# Write GELU so that a compiler can fuse it.
#
# **Must**
# - use point-wise operations of torch alone;
# - take the exact formula, and constants to all digits of float64;
# - keep shape and dtype, and let gradients flow.
#
# ```python
# >>> fused_gelu(torch.tensor([0.0, 1.0]))
# tensor([0.0000, 0.8413])
# ```
#
# **Not allowed** `F.gelu` and `nn.GELU`.
#
# **Points** 2 · **Extra** · **Difficulty** ●○○ · **Minutes** 6 · **Lines** 1
#
# **Source** Hendrycks and Gimpel 2016, arXiv:1606.08415, section 2.
#
# <details><summary>Hint 1</summary>
#
# How many digits of the constant does float64 need, and who knows them?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `torch.erf` and `math.sqrt(2)`.
#
# </details>


# %% solution="fused_gelu"
def fused_gelu(x):
    """GELU of each element, in the shape and dtype of `x`."""
    ### BEGIN SOLUTION
    return 0.5 * x * (1 + torch.erf(x / math.sqrt(2)))
    ### END SOLUTION


# %% test="fused_gelu-visible" points=1
check.fused_gelu(fused_gelu)

# %% test="fused_gelu-hidden" points=1
### BEGIN HIDDEN TESTS
check.fused_gelu(fused_gelu, seed=21)
### END HIDDEN TESTS

# %% tags=["experiment"]
gelu_now = course.solved(check.fused_gelu)
generator = torch.Generator().manual_seed(0)
numbers = torch.randn(size.gelu_numbers, generator=generator).to(device)
written_out = functools.partial(gelu_now, numbers)
made = compiled(gelu_now, numbers)
pairs = {
    "compiled": made.reason,
    "F.gelu": (written_out, functools.partial(F.gelu, numbers)),
}
if made.call:
    pairs["compiled"] = (written_out, functools.partial(made.call, numbers))

gelu = compare_pairs(pairs, device=device, seconds=size.cause_seconds)
for name, comparison in gelu.items():
    shown = comparison
    if not isinstance(comparison, str):
        shown = comparison.ratio(CHANGED)
    print(f"{name:<9} times as fast as written out: {shown}")
course.claim(
    "torch's own GELU is at least 50 % faster than the chain of operations",
    gelu["F.gelu"].ratio(CHANGED),
    above=1.5,
)

# %% tags=["experiment"]
if made.call:
    gain = gelu["compiled"].ratio(CHANGED)
    seconds_before = gelu["compiled"].median(USUAL)
    torch.compiler.reset()
    again = compiled(gelu_now, numbers)
    starts = {"first start": made.seconds, "from the cache": again.seconds}
    for start, seconds in starts.items():
        when = ladder.paid_back(seconds, seconds_before, gain, "calls")
        print(f"{start}: {seconds:.2f} s, {when}")
    course.claim(
        "torch.compile makes the chain of operations of GELU at least 50 % faster", gain, above=1.5
    )

# %% [markdown]
# **Takeaway** A compiler fuses what you wrote out, but its compile time has to be paid back. Torch's own operation,
# where there is one, needs no compile time.
#
# Part 4 trades memory for time, and lets you race.
#
# ## References
#
# 1. S. Ioffe, C. Szegedy, Batch Normalization, ICML 2015. [arXiv:1502.03167](https://arxiv.org/abs/1502.03167)
# 2. P. Micikevicius et al., Mixed Precision Training, ICLR 2018. [arXiv:1710.03740](https://arxiv.org/abs/1710.03740)
# 3. T. Dao et al., FlashAttention, 2022. [arXiv:2205.14135](https://arxiv.org/abs/2205.14135)
# 4. NVIDIA A100 Tensor Core GPU Architecture, white paper, 2020: TF32.
# 5. D. Hendrycks, K. Gimpel, Gaussian Error Linear Units, 2016. [arXiv:1606.08415](https://arxiv.org/abs/1606.08415)
