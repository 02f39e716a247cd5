# %% [markdown]
# # Faster training, part 3: Make each step cheaper
#
# **Which changes make a single step faster here, and which only look as if they should?**
#
# Part 2 needed fewer steps. This part keeps their number and makes each step cheaper. You measure five changes from the
# checklists (four at the `laptop` scale), then look for the reasons.
#
# **You will be able to**
#
# - build a ladder of changes in which each rung is measured against the one before it;
# - say which lines of a training step belong inside autocast, and why the others do not;
# - explain a gain with a control that changes one cause alone;
# - remove a bias that BatchNorm cancels, and see where a model loses the channels-last layout.
#
# **Minutes** 32 core · 78 in all · session 2
#
# **Needs** nothing from parts 1 and 2
#
# Run all cells; sections marked "extra" can be read later.

# %% locked="setup"
import copy
import itertools
import math

import torch
from torch import nn
from torch.nn import functional as F

import course
from course.checks import faster_training as check
from course.datasets import fashion
from course.learner.predictions import reveal, reveal_leader
from course.measure.comparison import CHANGED, FASTER, SLOWER, USUAL, compare_pairs, ratio_interval
from course.measure.compiling import compiled
from course.plots import faster_training as plots
from course.training import ladder
from course.training.models import FashionCNN

print(course.machine())
size, device = course.sizes("06_faster_training"), course.device()
images, labels, held_images, held_labels = (
    part.to(device) for part in fashion.with_validation(fashion.load(size.dataset))
)
images, labels = images[: 8 * size.step_batch], labels[: 8 * size.step_batch]
held_images, held_labels = held_images[:1000], held_labels[:1000]
batches = list(zip(images.split(size.step_batch), labels.split(size.step_batch), strict=True))
print(f"{len(batches)} batches of {size.step_batch} images")

# %% [markdown]
# ## Which of five changes makes a step faster?
#
# The baseline is the step that most people write: float32, the usual layout, Adam with its defaults. Each rung of the
# ladder keeps the changes of the rung before it and adds one. The code is in `course/training/ladder.py`.
#
# | rung | what it adds | compared with |
# |---|---|---|
# | no useless bias | convolutions before BatchNorm lose their bias | baseline |
# | channels last | the same numbers in another order in memory | the rung before |
# | fused optimizer | one kernel updates all weights | the rung before |
# | 16 bits | the forward pass in bf16 (fp16 on old GPUs) | the rung before |
# | compiled model | `torch.compile` of the model (`gpu` scale) | the rung before |
#
# All rungs run once in each round, in random order, and the baseline twice: the ratio of the two is the control.
#
# **Predict**: which of the five gains most, and how many of them make the step slower?

# %%
predicted_best = None  # "no useless bias", "channels last", "fused optimizer", "16 bits", "compiled model"
predicted_slower = None

# %% tags=["experiment"]
rungs = ladder.ladder(batches, device)
timed = ladder.timed(rungs, size.steps_per_turn, size.ladder_seconds)
found = ladder.compared(rungs, timed)
plots.advice_ratios(found, "times as fast as the rung that it is compared with")

# %% tags=["experiment"]
print(f"{ladder.BASELINE:<16} {1000 * timed.median(ladder.BASELINE):.3g} ms per step; control {timed.control}")
gains = {}
for name, comparison in found.items():
    if isinstance(comparison, str):
        print(f"{name:<16} not measured here: {comparison}")
        continue
    gains[name] = comparison.ratio(name)
    print(f"{name:<16} {gains[name]}  {comparison.verdict(name)}")
best = max(gains, key=lambda name: gains[name].estimate)
near_best = [name for name, gain in gains.items() if gain.high >= gains[best].low]
verdicts = {name: found[name].verdict(name) for name in gains}
slower = [name for name, verdict in verdicts.items() if verdict == SLOWER]
print("gains most: " + reveal_leader(predicted_best, near_best))
print(f"slower: {len(slower)}" + reveal(predicted_slower))
helped = [name for name, verdict in verdicts.items() if verdict == FASTER]
print(f"faster than the rung before: {', '.join(helped) or 'none'}")
last = list(gains)[-1]
course.claim("all changes together make a step at least 10 % faster", timed.ratio(last), above=1.1,
             otherwise="The control says how large a gain could hide in this machine's unrest.")  # fmt: skip

# %% [markdown]
# A faster step is worth nothing if it learns less. All rungs started from the same weights and made the same steps on
# the same batches. The cell compares their losses with the baseline's losses from other initial weights.


# %% tags=["experiment"]
def held_loss(model):
    """Loss of the validation images."""
    with torch.no_grad():
        return F.cross_entropy(model.eval()(held_images), held_labels).item()


def paid_back(compile_seconds, before, after):
    """After how many calls compiling has paid, as a text."""
    if after >= before:
        return "never paid back"
    return f"paid back after {math.ceil(compile_seconds / (before - after)):,}"


losses = {name: held_loss(rungs[name].model) for name in timed.seconds}
for name, loss in losses.items():
    paid = ""
    if rungs[name].compile_seconds:
        before = timed.time("16 bits").estimate
        after = timed.time(name).estimate
        paid = f"; compiled in {rungs[name].compile_seconds:.0f} s, "
        paid += paid_back(rungs[name].compile_seconds, before, after)
    print(f"{name:<16} validation loss {loss:.4f} after {rungs[name].done} steps{paid}")
by_seed = [losses[ladder.BASELINE]]
for seed in range(1, size.loss_seeds):
    rung = ladder.Rung((), batches, device, seed)
    rung.steps(rungs[ladder.BASELINE].done - rung.done)
    by_seed.append(held_loss(rung.model))
worst = max(abs(loss - losses[ladder.BASELINE]) for loss in losses.values())
apart = max(by_seed) - min(by_seed)
print(f"the baseline from {len(by_seed)} seeds: {min(by_seed):.4f} to {max(by_seed):.4f}")
course.claim("the loss of every rung differs from the baseline's by less than the seeds' losses differ",
             worst < apart, f"by {worst:.4f} at most, the seeds by {apart:.4f}",
             otherwise="These are few steps. Train longer before you trust the faster step.")  # fmt: skip

# %% [markdown]
# **Takeaway** A change of one line is worth a measurement against a control: what it saves depends on the share of the
# step that it touches, and on the machine.
#
# **We think** that channels last gains where the convolutions of your processor or GPU are written for that order: the
# same products are then read without a copy. The last section but one shows where a model leaves it again. Run the
# ladder where you train.

# %% [markdown]
# ## Which lines belong inside autocast?
#
# bf16 keeps the range of float32 and eight binary digits. A weight of 0.1 can only move in steps of 0.0005.
#
# **Predict**: the weights of FashionCNN, stored in bf16, get an update of 1e-5 each, as Adam makes it at the end of a
# schedule. Which share of the weights stays where it is?

# %%
predicted_stuck = None

# %% tags=["experiment"]
torch.manual_seed(0)
weights = torch.cat([p.detach().flatten() for p in FashionCNN().parameters() if p.ndim > 1])
stuck = {}
for update in (1e-3, 1e-4, 1e-5):
    for kind in (torch.bfloat16, torch.float32):
        stuck[update, kind] = (weights.to(kind) + update == weights.to(kind)).float().mean().item()
    print(f"update of {update:g}: {stuck[update, torch.bfloat16]:4.0%} of the bf16 weights do not move, "
          f"{stuck[update, torch.float32]:.0%} of the float32 weights")  # fmt: skip
half_stuck, full_stuck = stuck[1e-5, torch.bfloat16], stuck[1e-5, torch.float32]
print(f"bf16, 1e-5: {half_stuck:.0%}" + reveal(predicted_stuck))
course.claim("most bf16 weights do not move by an update of 1e-5, and all float32 weights do",
             half_stuck > 0.5 and full_stuck == 0, f"{half_stuck:.0%} stay")  # fmt: skip
functions = {
    "matrix product": lambda x: x @ x, "sum": torch.sum, "mean": torch.mean, "exp": torch.exp,
    "softmax": lambda x: x.softmax(1), "layer norm": lambda x: F.layer_norm(x, x.shape[1:]),
    "cross entropy": lambda x: F.cross_entropy(x, torch.zeros(len(x), dtype=torch.int64, device=device)),
}  # fmt: skip
half = ladder.half_dtype(device)
with torch.autocast(device.type, dtype=half):
    kinds = {name: function(torch.ones(8, 8, device=device, dtype=half)).dtype for name, function in functions.items()}
print(f"autocast on {device.type}, 16-bit input:",
      ", ".join(f"{name} {str(kind).removeprefix('torch.')}" for name, kind in kinds.items()))  # fmt: skip
course.claim("inside autocast a matrix product has 16 bits and the cross entropy 32",
             kinds["matrix product"] == half and kinds["cross entropy"] == torch.float32)  # fmt: skip
course.claim("on a CPU, autocast leaves the softmax of a 16-bit tensor in 16 bits",
             kinds["softmax"] == half if device.type == "cpu" else None, str(kinds["softmax"]),
             otherwise="Your version of torch computes it in 32 bits.")  # fmt: skip

# %% [markdown]
# So `model.bfloat16()` is not mixed precision: most weights would miss the smallest updates. Autocast keeps float32
# weights, makes a 16-bit copy for products, and computes the loss in float32. On CUDA it also computes softmax, norms,
# sums and `exp` in float32. On a CPU these keep the dtype of their input, as printed above.
#
# fp16 has more digits than bf16 and a smaller range, in which small gradients become 0. A `GradScaler` multiplies the
# loss by a large factor before the backward pass, divides the gradients before the update, and skips the update if they
# overflowed.
#
# ### Exercise 1 · A step under autocast
#
# Write a training step in mixed precision: bfloat16 without a scaler, float16 with one. The weights stay in float32.
# The loss is `F.cross_entropy`, computed inside autocast.
#
# **Must**
# - run the model and the loss inside autocast, the backward pass and the optimizer outside;
# - use the scaler, if there is one, for backward, step and update;
# - first set the gradients of earlier batches to None, and at the end return the loss, unscaled and detached.
#
# **Points** 4 · **Core** · **Difficulty** ●●○ · **Minutes** 15 · **Lines** 12
#
# **Source** PyTorch documentation, "Automatic Mixed Precision package".
#
# <details><summary>Hint 1</summary>
#
# Of clearing, forward, loss, backward and update: which write numbers that the next step starts from? Those need all
# their digits.
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
    with torch.autocast(images.device.type, dtype=torch.bfloat16 if scaler is None else torch.float16):
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
# **Takeaway** Put only forward and loss inside autocast, and keep the weights in float32: stored in bf16, most of
# them miss the small updates at the end of a training.

# %% [markdown]
# ## What explains the ladder?
#
# A rung tells you *whether* a change helps. To learn *why*, change one suspected cause alone. Two questions, each with
# its control:
#
# - Do 16 bits need large products? The control makes the same step with a sixteenth of the images.
# - How much can a fused optimizer gain at all? The control times the update alone.
#
# **Predict**: how many times as fast is the fused update alone, and how many times as fast is the step with few images
# in 16 bits?

# %%
predicted_fused = None
predicted_few = None

# %% tags=["experiment"]
half_step_now = course.solved(check.autocast_region)


def full_step(model, images, labels, optimizer):
    """Make one training step in float32."""
    optimizer.zero_grad()
    F.cross_entropy(model(images), labels).backward()
    optimizer.step()


def fresh(seed=0):
    """A FashionCNN without dropout, the same for the same seed, and its Adam."""
    torch.manual_seed(seed)
    model = FashionCNN(dropout=0.0).to(device)
    return model, torch.optim.Adam(model.parameters(), lr=1e-3)


def step_with(n, step, *scaler):
    """A function that makes one step of a new model with n images."""
    model, optimizer = fresh()
    return lambda: step(model, batches[0][0][:n], batches[0][1][:n], optimizer, *scaler)


def update(model, **options):
    """A function that makes one update of a copy of `model`, whose gradients are there."""
    model = copy.deepcopy(model)
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    return torch.optim.Adam(model.parameters(), lr=1e-3, **options).step


scaler = None if half == torch.bfloat16 else torch.amp.GradScaler(device.type)
all_images, few = size.step_batch, size.step_batch // 16
model = fresh()[0]
controls = compare_pairs({
    f"16 bits, {all_images} images": (step_with(all_images, full_step), step_with(all_images, half_step_now, scaler)),
    f"16 bits, {few} images": (step_with(few, full_step), step_with(few, half_step_now, scaler)),
    "fused update alone": (update(model), update(model, fused=True)),
}, device=device, seconds=size.pair_seconds)  # fmt: skip
many_images, few_images, alone = controls.values()
share = alone.median(USUAL) / timed.time("channels last").estimate

# %% tags=["experiment"]
for name, comparison in controls.items():
    print(f"{name:<26} {comparison.ratio(CHANGED)}  {comparison.verdict(CHANGED)}")
print(f"fused update alone: {alone.ratio(CHANGED)} times as fast" + reveal(predicted_fused))
print(f"few images in 16 bits: {few_images.ratio(CHANGED)} times as fast" + reveal(predicted_few))
bound = 1 / (1 - min(share, 0.9))
print(f"the update takes {share:.0%} of the step: without it, the step would be {bound:.2f} times as fast")
course.claim("a step in 16 bits is faster with many images", many_images.ratio(CHANGED), above=1,
             otherwise="Look for amx_bf16 or avx512_bf16 in lscpu, or for tensor cores: without them, 16 bits only "
             "save bytes.")  # fmt: skip
rounds = min(many_images.rounds, few_images.rounds)
gain_many, gain_few = ((c.seconds[USUAL] / c.seconds[CHANGED])[:rounds] for c in (many_images, few_images))
more = ratio_interval(gain_many, gain_few)
course.claim("16 bits gain at least 10 % more with many images than with few", more, above=1.1)
course.claim("the fused update alone is at least 50 % faster than the loop over the weights",
             alone.ratio(CHANGED), above=1.5)  # fmt: skip
course.claim("the fused optimizer gains no more in a step than the update's share allows",
             gains["fused optimizer"].scaled(1 / bound), below=1.1)  # fmt: skip

# %% [markdown]
# **Takeaway** Amdahl's law bounds what an update can gain: the rest of the step stays. And 16 bits pay where products
# are large and the machine has units for them.
#
# **Shown** The two steps in 16 bits differ by the number of images alone, so their ratio says what large products are
# worth.

# %% [markdown]
# ## What does a bias before BatchNorm do? · extra
#
# BatchNorm subtracts the mean of each channel.
#
# **Predict**: one backward pass through FashionCNN. How large is the gradient of the first convolution's bias, divided
# by the gradient of its weight (norms)?

# %%
predicted_gradient = None

# %% tags=["experiment"]
F.cross_entropy(model(batches[0][0]), batches[0][1]).backward()
ratios = {}
for name, layer in model.named_modules():
    if isinstance(layer, (nn.Conv2d, nn.Linear)):
        ratios[name] = (layer.bias.grad.norm() / layer.weight.grad.norm()).item()
        print(f"{name:<15} {type(layer).__name__:<7} gradient of the bias / of the weight {ratios[name]:.1e}")
print(f"the first: {ratios['convolutions.0']:.1e}" + reveal(predicted_gradient))
before_norm = [ratios[name] for name in ("convolutions.0", "convolutions.4")]
others = [ratio for name, ratio in ratios.items() if ratio not in before_norm]
course.claim("the biases before BatchNorm have a gradient of zero up to rounding, and no other bias has",
             max(before_norm) < 1e-3 < min(others),
             f"{max(before_norm):.0e}, the others from {min(others):.0e}")  # fmt: skip

# %% [markdown]
# **Takeaway** A bias right before BatchNorm gets no gradient: BatchNorm subtracts it again with the mean.
#
# ### Exercise 2 · Remove it
#
# Return a model without the biases that come right before a BatchNorm. In training mode they change no output. In
# evaluation mode BatchNorm subtracts its *running* mean, which includes the bias.
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
for batch in batches:
    full_step(model, *batch, optimizer)
lean = course.solved(check.useless_bias)(model)
fewer = sum(p.numel() for p in model.parameters()) - sum(p.numel() for p in lean.parameters())
with torch.inference_mode():
    apart = (model.eval()(held_images) - lean.eval()(held_images)).abs().max().item()
course.claim("without the biases before BatchNorm, a trained model has the same outputs", apart < 1e-4,
             f"{fewer} parameters fewer, outputs at most {apart:.0e} apart")  # fmt: skip

# %% [markdown]
# ## Where does a model lose its layout? · extra
#
# A batch has the shape (images, channels, height, width). By default one channel is stored after the other. In the
# layout `torch.channels_last` the channels of a pixel are neighbours, which some convolution kernels prefer. Shape and
# values stay.
#
# You compare FashionCNN with a copy of it that calls `.contiguous()` after the first block.
#
# **Predict**: how often does the layout change on the way through the second model?

# %%
predicted_changes = None

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
# - leave no hook behind.
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
# `layer.register_forward_hook(hook)` calls `hook(layer, inputs, output)` after each run and returns a handle whose
# `remove()` takes it away again.
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


changes = {}
for title in ("FashionCNN", "with a copy"):
    model, _ = fresh()
    if title == "with a copy":
        model.convolutions.insert(4, Copies())
    layouts = layout_now(model, images[:4])
    changes[title] = sum(a != b for a, b in itertools.pairwise(layouts.values()))
    marks = " ".join("last" if value else "usual" for value in layouts.values())
    print(f"{title}: {marks}: {changes[title]} changes")
print(f"with a copy: {changes['with a copy']}" + reveal(predicted_changes))
course.claim("FashionCNN keeps the layout from its first convolution to its last layer with images, "
             "and the copy costs two conversions", changes["FashionCNN"] == 0 and changes["with a copy"] == 2,
             f"{changes['FashionCNN']} and {changes['with a copy']} changes")  # fmt: skip

# %% [markdown]
# **Takeaway** One `.contiguous()` costs two conversions per pass, and torch does not warn.

# %% [markdown]
# ## When is compiling paid back? · extra
#
# A chain of point-wise operations reads and writes the whole tensor at every link. `torch.compile` makes one kernel of
# it. The example is GELU, $x\,\Phi(x)$, with $\Phi(x) = \frac12 (1 + \mathrm{erf}(x / \sqrt 2))$.
#
# **Predict**: how many times as fast is the compiled function as the chain, for a few million numbers? After how many
# calls has compiling paid?

# %%
predicted_compiled = None
predicted_calls = None

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
many = torch.randn(size.gelu_numbers, generator=torch.Generator().manual_seed(0)).to(device)
made = compiled(gelu_now, many)
gelu = compare_pairs({
    "compiled": (lambda: gelu_now(many), lambda: made.call(many)) if made.call else made.reason,
    "F.gelu": (lambda: gelu_now(many), lambda: F.gelu(many)),
}, device=device, seconds=size.pair_seconds)  # fmt: skip
for name, comparison in gelu.items():
    shown = comparison if isinstance(comparison, str) else comparison.ratio(CHANGED)
    print(f"{name:<9} times as fast as written out: {shown}")
course.claim("torch's own GELU is at least 50 % faster than the chain of operations",
             gelu["F.gelu"].ratio(CHANGED), above=1.5)  # fmt: skip
if made.call:
    gain = gelu["compiled"].ratio(CHANGED)
    before = gelu["compiled"].median(USUAL)
    torch.compiler.reset()
    again = compiled(gelu_now, many)
    print(f"compiled: {gain} times as fast" + reveal(predicted_compiled))
    print(f"compiled in {made.seconds:.1f} s, {paid_back(made.seconds, before, before / gain.estimate)} calls"
          + reveal(predicted_calls))  # fmt: skip
    print(f"compiled again from torch's cache: {again.seconds:.2f} s, "
          f"{paid_back(again.seconds, before, before / gain.estimate)} calls")  # fmt: skip
    course.claim("torch.compile makes the chain of operations of GELU at least 50 % faster", gain, above=1.5)

# %% [markdown]
# **Takeaway** A compiler fuses what you wrote out, but use torch's own operation where there is one, and count the
# compile time against your calls.
#
# A new shape, such as a smaller last batch, may make torch compile again. Part 4 trades memory for time, and lets you
# race.
#
# ## References
#
# 1. S. Ioffe, C. Szegedy, Batch Normalization, ICML 2015. [arXiv:1502.03167](https://arxiv.org/abs/1502.03167)
# 2. P. Micikevicius et al., Mixed Precision Training, ICLR 2018. [arXiv:1710.03740](https://arxiv.org/abs/1710.03740)
# 3. D. Hendrycks, K. Gimpel, Gaussian Error Linear Units, 2016. [arXiv:1606.08415](https://arxiv.org/abs/1606.08415)
