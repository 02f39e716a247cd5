# %% [markdown]
# # Faster training, part 3: Make each step cheaper
#
# **Which changes make a single step faster here, and which only look as if they should?**
#
# Part 2 needed fewer steps. This part leaves their number alone and computes the same step with less work: 16-bit
# numbers, a bias that does nothing, another order of the same numbers in memory, one kernel in place of many. Each
# change is first understood, then measured. At the end all of them stand on top of each other, rung by rung, and your
# machine says which rung helped.
#
# **You will be able to**
#
# - say which lines of a training step belong inside autocast, and why the others do not;
# - remove a bias that BatchNorm cancels, and fold BatchNorm into the convolution for inference;
# - see from strides where a model loses the channels-last layout;
# - compile a function, and say after how many steps that is paid back;
# - build a ladder of changes in which each rung is measured against the one before it.
#
# **Minutes** 28 core · 110 in all
#
# **Needs** nothing from parts 1 and 2
#
# Core: the sections "Half the bits", with exercise 1, and "The ladder". Run all cells; the other sections can be read
# later.
#
# Here and in part 1, a change *helped* if the lower quartile of its rounds is above 1.02 and above the noise, where a
# control shows it. It *did not help* if the upper quartile is at most 1.02. In between, the measurement does not
# decide.

# %% locked="setup"
import copy
import itertools
import math
import warnings

import torch
from torch import nn
from torch.nn import functional as F

import course
from course.checks import faster_training as check
from course.datasets import fashion
from course.learner.predictions import reveal
from course.measure.compiling import compiled
from course.measure.timing import MARGIN, Comparison, compare_in_turn, now
from course.plots import faster_training as plots
from course.training.models import FashionCNN

print(course.machine())
size, device = course.sizes("06_faster_training"), course.device()
images, labels, held_images, held_labels = (
    part.to(device) for part in fashion.with_validation(fashion.load(size.dataset))
)
images, labels = images[: 8 * size.step_batch], labels[: 8 * size.step_batch]
held_images, held_labels = held_images[:1000], held_labels[:1000]
batches = list(zip(images.split(size.step_batch), labels.split(size.step_batch), strict=True))
fast_bfloat16 = device.type != "cuda" or torch.cuda.is_bf16_supported(including_emulation=False)
print(f"{len(batches)} batches of {size.step_batch} images")

# %% [markdown]
# ## Half the bits
#
# **Autocast computes in 16 bits and leaves the weights in 32, because an update needs all its digits.**
#
# Two 16-bit formats are in use, and unit 03 compares them. What matters here is which numbers may have them. bf16 keeps
# the range of float32 and eight
# binary digits: next to 0.1 it can only tell numbers apart that differ by 0.0005. A product may be rounded like that.
# A weight may not: an update that is smaller than half this distance is rounded away, and the weight never moves.
#
# **Predict**: the weights of FashionCNN, stored in bf16, get an update of 1e-5 each, as Adam makes it at the end of a
# schedule. Which share of the weights stays where it is?

# %%
my_guess_of_stuck = None

# %% tags=["experiment"]
torch.manual_seed(0)
weights = torch.cat([p.detach().flatten() for p in FashionCNN().parameters() if p.ndim > 1])
stuck = {}
for update in (1e-3, 1e-4, 1e-5):
    share = {kind: (weights.to(kind) + update == weights.to(kind)).float().mean().item()
             for kind in (torch.bfloat16, torch.float32)}  # fmt: skip
    stuck[update] = share
    print(f"update of {update:g}: {share[torch.bfloat16]:4.0%} of the bf16 weights do not move, "
          f"{share[torch.float32]:.0%} of the float32 weights")  # fmt: skip
print("bf16, 1e-5:" + reveal(my_guess_of_stuck))
course.claim("most bf16 weights do not move by an update of 1e-5, and all float32 weights do",
             stuck[1e-5][torch.bfloat16] > 0.5 and stuck[1e-5][torch.float32] == 0,
             f"{stuck[1e-5][torch.bfloat16]:.0%} stay")  # fmt: skip

# %% [markdown]
# So `model.bfloat16()` is not mixed precision. Autocast leaves the weights in float32, makes a 16-bit copy of them
# where an operation gains from it (convolutions, matrix products), and computes in float32 what needs digits or range
# (losses, sums), although it runs inside the autocast block as well.
#
# fp16 has more digits than bf16 and a smaller range: small gradients become 0. A `GradScaler` multiplies the loss, and
# so all gradients, by a large factor before the backward pass, divides the gradients by it before the update, and skips
# the update if they overflowed; its `update()` then adapts the factor.

# %% [markdown]
# ### Exercise 1 · A step under autocast
#
# Write a training step in mixed precision. Without a scaler it computes in bfloat16 (CPU, GPUs from Ampere on); with a
# scaler, in float16.
#
# **Must**
# - run the model inside autocast, the backward pass and the optimizer outside;
# - give the loss as a float32 tensor of shape () (inside autocast it is one), not a Python number;
# - leave the weights in float32;
# - use the scaler, if there is one, for backward, step and update;
# - set the gradients of earlier batches to None first;
# - return the unscaled loss, detached.
#
# **Points** 4 · **Core** · **Difficulty** ●●○ · **Minutes** 17 · **Lines** 12
#
# **Convention** The loss is `F.cross_entropy`. Take `torch.autocast` or `torch.amp`; `torch.cuda.amp` is deprecated.
#
# **Source** PyTorch documentation, "Automatic Mixed Precision package", section on autocasting.
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
# Lists of advice promise that a step gets 2 to 5.5 times as fast, on GPUs with units for it. They also say that only
# CUDA operations can be autocast; by now a CPU can, too.
#
# **Predict**: how many times as fast is a step in bf16 on your machine, or in fp16 on a GPU without bf16?

# %%
my_guess_of_half = None

# %% tags=["experiment"]
half_step_now = course.solved(check.autocast_region)


def full_step(model, images, labels, optimizer):
    """Make one training step in float32."""
    optimizer.zero_grad()
    loss = F.cross_entropy(model(images), labels)
    loss.backward()
    optimizer.step()
    return loss.detach()


def fresh(seed=0):
    """A FashionCNN without dropout, the same for the same seed, and its Adam, as most people write it."""
    torch.manual_seed(seed)
    model = FashionCNN(dropout=0.0).to(device)
    return model, torch.optim.Adam(model.parameters(), lr=1e-3)


def timed(step, *scaler):
    """A function that makes one step of a model of its own."""
    model, optimizer = fresh()
    return lambda: step(model, *batches[0], optimizer, *scaler)


def scaler_or_none():
    """What a step in 16 bits needs on this device."""
    return None if fast_bfloat16 else torch.amp.GradScaler(device.type)


print("dtype of each layer's output under autocast, and of the loss:")
model, _ = fresh()
for name, layer in model.named_modules():
    if name and not list(layer.children()):
        layer.register_forward_hook(lambda layer, given, output, name=name: print(
            f"  {name:<15} {type(layer).__name__:<12} {str(output.dtype).removeprefix('torch.')}"))  # fmt: skip
with torch.no_grad(), torch.autocast(device.type, dtype=torch.bfloat16 if fast_bfloat16 else torch.float16):
    loss = F.cross_entropy(model(batches[0][0]), batches[0][1])
print(f"  {'loss':<15} {'':<12} {str(loss.dtype).removeprefix('torch.')}")
pairs = {"bf16": (timed(full_step), timed(half_step_now, None)),
         "fp16 and a scaler": (timed(full_step), timed(half_step_now, torch.amp.GradScaler("cuda")))
         if device.type == "cuda" else "fp16 is for GPUs"}  # fmt: skip
if not fast_bfloat16:
    pairs["bf16"] = "this GPU is older than Ampere"
found = compare_in_turn(pairs, size.rounds, device, progress=False)
for name, comparison in found.items():
    print(f"{name:<18} {comparison}")
half = found["bf16" if fast_bfloat16 else "fp16 and a scaler"]
print("times as fast as float32" + reveal(my_guess_of_half))
course.claim(
    "16 bits make a step faster",
    half.helped,
    f"{half.ratio:.2f} times",
    otherwise="Your processor has no units for 16-bit products, or the layers are so small that the "
    "casts cost more than the products save.",
)

# %% [markdown]
# The weights and Adam's moments keep their 32 bits, so the update costs what it cost before.

# %% [markdown]
# ## A bias that does nothing
#
# **BatchNorm subtracts the mean of each channel, and with it any bias that was added just before.**
#
# **Predict**: one backward pass through FashionCNN. How large is the gradient of the first convolution's bias, divided
# by the gradient of its weight (norms)?

# %%
my_guess_of_gradient = None

# %% tags=["experiment"]
model, _ = fresh()
F.cross_entropy(model(batches[0][0]), batches[0][1]).backward()
ratios = {}
for name, layer in model.named_modules():
    if isinstance(layer, (nn.Conv2d, nn.Linear)):
        ratios[name] = (layer.bias.grad.norm() / layer.weight.grad.norm()).item()
        print(f"{name:<15} {type(layer).__name__:<7} gradient of the bias / of the weight {ratios[name]:.1e}")
print("the first" + reveal(my_guess_of_gradient))
before_norm = [ratios[name] for name in ("convolutions.0", "convolutions.4")]
others = [ratio for name, ratio in ratios.items() if ratio not in before_norm]
course.claim("the biases before BatchNorm have a gradient of zero up to rounding, and no other has",
             max(before_norm) < 1e-4 < 1e-3 < min(others),
             f"{max(before_norm):.0e}, the others from {min(others):.0e}")  # fmt: skip

# %% [markdown]
# ### Exercise 2 · Remove it
#
# Return a model without the biases that come right before a BatchNorm. In training mode they change no output. In
# evaluation mode BatchNorm subtracts its *running* mean, which was taken with the bias in it.
#
# **Must**
# - return a copy; the given model stays as it is;
# - find each `nn.Linear` or `nn.Conv2d` with a bias whose next neighbour in the same `nn.Sequential`, at any depth, is
#   an `nn.BatchNorm1d` or `nn.BatchNorm2d`;
# - make that bias None;
# - give the same outputs as before, in training and evaluation mode.
#
# **You may assume** that every BatchNorm keeps running statistics, and that no layer is used twice.
#
# **Points** 3 · **Extra** · **Difficulty** ●●○ · **Minutes** 14 · **Lines** 9
#
# **Source** Ioffe and Szegedy 2015, "Batch Normalization", section 3.2: the bias can be ignored.
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

# %% [markdown]
# What that saves is measured on the ladder below. The bias is one addition per output of the convolution, and its
# gradient a sum over all outputs. How much that is beside the products depends on the layer: the first convolution here
# makes nine products per output, the second 288. At inference BatchNorm itself can go, too.

# %% [markdown]
# ### Exercise 3 · Fold BatchNorm into the convolution
#
# In evaluation mode BatchNorm multiplies each channel by a constant and adds another. So does a convolution. Put both
# into one.
#
# **Must**
# - return (weight, bias) of a convolution that computes what `norm(conv(images))` computes in evaluation mode;
# - work for a convolution without a bias;
# - return new tensors without a graph, and leave both layers as they are.
#
# **You may assume** that `norm` has a weight, a bias and running statistics.
#
# **Not allowed** `torch.nn.utils.fusion` with `fuse_conv_bn_eval` and `fuse_conv_bn_weights`.
#
# **Points** 3 · **Extra** · **Difficulty** ●●○ · **Minutes** 12 · **Lines** 5
#
# **Source** Jacob et al. 2018, "Quantization and Training of Neural Networks for Efficient Integer-Arithmetic-Only
# Inference", section 3.2.
#
# <details><summary>Hint 1</summary>
#
# Write what BatchNorm does to a value $v$ of channel $c$ as $s_c v + t_c$. What is $s_c$, what is $t_c$?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# $s_c = \mathrm{weight}_c / \sqrt{\mathrm{var}_c + \mathrm{eps}}$. The convolution's weight has shape (out, in, height,
# width): each of its `out` slices is multiplied by its own $s_c$.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# `conv.weight * scale[:, None, None, None]` and `norm.bias + (conv.bias - norm.running_mean) * scale`.
#
# </details>


# %% solution="fold_batchnorm"
def fold_batchnorm(conv, norm):
    """(weight, bias) of one convolution that does the work of `conv` and `norm` in evaluation mode.

    Args:
        conv: nn.Conv2d, with or without bias.
        norm: nn.BatchNorm2d that takes its output.

    Returns: tensors of the shapes of conv.weight and norm.bias, without gradient.
    """
    ### BEGIN SOLUTION
    scale = (norm.weight / torch.sqrt(norm.running_var + norm.eps)).detach()
    bias = 0 if conv.bias is None else conv.bias.detach()
    return conv.weight.detach() * scale[:, None, None, None], norm.bias.detach() + (bias - norm.running_mean) * scale
    ### END SOLUTION


# %% test="fold_batchnorm-visible" points=2
check.fold_batchnorm(fold_batchnorm)

# %% test="fold_batchnorm-hidden" points=1
### BEGIN HIDDEN TESTS
check.fold_batchnorm(fold_batchnorm, seed=19)
### END HIDDEN TESTS

# %% [markdown]
# **Predict**: how many times as fast is FashionCNN at inference without its two BatchNorms?

# %%
my_guess_of_folding = None

# %% tags=["experiment"]
fold_now, lean_now = course.solved(check.fold_batchnorm), course.solved(check.useless_bias)
model, optimizer = fresh()
for batch in batches:
    full_step(model, *batch, optimizer)
plain = lean_now(model).eval()
folded = copy.deepcopy(plain)
for place in (0, 4):
    conv, norm = folded.convolutions[place : place + 2]
    conv.weight, conv.bias = (nn.Parameter(value) for value in fold_now(conv, norm))
    folded.convolutions[place + 1] = nn.Identity()
with torch.inference_mode():
    outputs = plain(held_images), folded(held_images)


def inference(model):
    """A function that computes the logits of the validation images."""

    def call():
        with torch.inference_mode():
            model(held_images)

    return call


pair = {"folded": (inference(plain), inference(folded))}
folding = compare_in_turn(pair, size.rounds, device, progress=False)["folded"]
print(f"times as fast {folding}" + reveal(my_guess_of_folding))
difference = ((outputs[0] - outputs[1]).abs().max() / outputs[0].abs().max()).item()
course.claim("the folded model gives the same logits", difference < 1e-4, f"largest difference {difference:.0e}")
course.claim("folding makes inference faster", folding.helped, f"{folding.ratio:.2f} times")

# %% [markdown]
# A folded BatchNorm saves one pass over the outputs of the convolution: read, multiply, write. Where it does not help,
# the convolutions themselves take nearly all the time. Folding is for inference only: in training mode the statistics
# belong to the batch.

# %% [markdown]
# ## The order of the numbers in memory
#
# **Channels-last keeps the shape of an image batch and puts the channels of one pixel side by side.**
#
# A batch has the shape (images, channels, height, width). By default one channel is stored after the other; in the
# layout `torch.channels_last` the channels of a pixel are neighbours, which some convolution kernels prefer. Only the
# strides change. A layer passes the layout on, or it copies. A copy costs time, and nothing tells you.
#
# ### Exercise 4 · Where the layout is lost
#
# Convert the model and the images, run the model, and say which layers give images with the channels last.
#
# **Must**
# - convert `model` to `torch.channels_last`, in place, as `model.to` does;
# - run it once, in its present mode, on a copy of `images` in that layout;
# - return a dict {name of the layer: bool}, in the order in which they ran: leaf layers (without children) whose output
#   has four dimensions, named as `named_modules` does;
# - leave no hook behind.
#
# **You may assume** that each layer runs once and gives one tensor.
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

# %% [markdown]
# Two models: FashionCNN, and the same with a layer after the first block that calls `.contiguous()`, as somebody's
# `.view(...)` often forces one to. **Predict**: how often does the layout change on the way, in each of them?

# %%
my_guess_of_changes = {"FashionCNN": None, "with a copy": None}

# %% tags=["experiment"]
layout_now = course.solved(check.channels_last)


class Copies(nn.Module):
    """Copies images into the usual layout."""

    def forward(self, images):
        """The same images, one channel after the other."""
        return images.contiguous()


def with_a_copy():
    """FashionCNN with Copies after the first block."""
    model, optimizer = fresh()
    model.convolutions.insert(4, Copies())
    return model, optimizer


changes = {}
for title, (model, _) in {"FashionCNN": fresh(), "with a copy": with_a_copy()}.items():
    found = layout_now(model, images[:4])
    changes[title] = sum(a != b for a, b in itertools.pairwise(found.values()))
    marks = " ".join("last" if value else "usual" for value in found.values())
    print(f"{title}: {marks}: {changes[title]} changes" + reveal(my_guess_of_changes[title]))
course.claim("FashionCNN keeps the layout from its first convolution to its last layer with images, "
             "and the copy costs two conversions", changes["FashionCNN"] == 0 and changes["with a copy"] == 2,
             f"{changes['FashionCNN']} and {changes['with a copy']} changes")  # fmt: skip

# %% [markdown]
# `Flatten` is not in the list, because its output has two dimensions. It copies, too: the linear layer behind it wants
# its features one channel after the other. Whether all this is worth it, the ladder says.

# %% [markdown]
# ## One kernel for all weights
#
# **An optimizer that updates weight by weight starts several kernels for each of them; foreach and fused start few.**
#
# `torch.optim.Adam` has three implementations that compute the same: a loop over the parameters, `foreach=True` (one
# call per operation for all parameters), `fused=True` (one kernel for everything). Without an argument it takes the
# loop on a CPU and foreach on CUDA.
#
# **Predict**: how many times as fast as the loop are foreach and fused, for FashionCNN (few large tensors) and for a
# stack of small linear layers (many small tensors)?

# %%
my_guess_of_updates = {
    "FashionCNN, foreach": None, "FashionCNN, fused": None, "small layers, foreach": None, "small layers, fused": None
}  # fmt: skip

# %% tags=["experiment"]
stack = nn.Sequential(*(nn.Linear(16, 16) for _ in range(size.small_layers))).to(device)


def update(model, **options):
    """A function that makes one update of a copy of `model` with gradients at hand."""
    model = copy.deepcopy(model)
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    return torch.optim.Adam(model.parameters(), lr=1e-3, **options).step


ways = {"foreach": dict(foreach=True), "fused": dict(fused=True)}
pairs = {f"{title}, {way}": (update(model, foreach=False, fused=False), update(model, **options))
         for title, model in {"FashionCNN": fresh()[0], "small layers": stack}.items()
         for way, options in ways.items()}  # fmt: skip
updates = compare_in_turn(pairs, 3 * size.rounds, device, progress=False)
for name, comparison in updates.items():
    print(f"{name:<22} {comparison}" + reveal(my_guess_of_updates[name]))
for name, comparison in updates.items():
    course.claim(f"{name}: the update is faster than in a loop", comparison.helped,
                 f"{comparison.ratio:.2f} times",
                 otherwise="There are few tensors, so the loop starts few operations and foreach has hardly any to "
                           "save.")  # fmt: skip

# %% [markdown]
# This is the time of the update alone. What it is worth depends on its share of the step, which part 1 measured: an
# update that takes a tenth of the step cannot make the step more than 1.11 times as fast.

# %% [markdown]
# ## Point-wise operations in one pass
#
# **A chain of point-wise operations reads and writes the whole tensor at every link; compiled into one kernel, it does
# so once.**
#
# The old advice is to decorate such a chain with `torch.jit.script`. TorchScript is deprecated: torch warns when it is
# called. `torch.compile` does the same work on ordinary Python.
#
# ### Exercise 5 · GELU, written out
#
# GELU is $x\,\Phi(x)$, with the distribution function of the standard normal distribution,
# $\Phi(x) = \frac12 (1 + \mathrm{erf}(x / \sqrt 2))$.
#
# **Must**
# - use point-wise operations of torch alone, so that a compiler can fuse them;
# - take the exact formula, and constants to all digits of float64;
# - keep shape and dtype, and let gradients flow.
#
# **Not allowed** `F.gelu` and `nn.GELU`.
#
# **Points** 2 · **Extra** · **Difficulty** ●○○ · **Minutes** 6 · **Lines** 1
#
# **Source** Hendrycks and Gimpel 2016, "Gaussian Error Linear Units", section 2.
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

# %% [markdown]
# ### Exercise 6 · When is compiling paid back?
#
# Compiling takes seconds before the first step. Compute after how many steps that time has been won back.
#
# **Must**
# - return `math.inf` if compiled steps are not faster;
# - else return the smallest whole number of steps for which compiling and the compiled steps together take no longer
#   than as many uncompiled steps.
#
# **Convention** Rounding errors of float64 are left to you.
#
# **Points** 2 · **Extra** · **Difficulty** ●○○ · **Minutes** 5 · **Lines** 3
#
# **Source** PyTorch tutorial, "Introduction to torch.compile": the first calls take longer, because they compile.
#
# <details><summary>Hint 1</summary>
#
# How much time does each step win back?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Divide the compile time by the time saved per step, and round up. What if nothing is saved?
#
# </details>


# %% solution="break_even"
def break_even(compile_seconds, before, after):
    """Steps after which the compile time is won back, or math.inf.

    Args:
        compile_seconds: seconds, at least 0.
        before, after: seconds of a step, without and with compiling.
    """
    ### BEGIN SOLUTION
    if after >= before:
        return math.inf
    return math.ceil(compile_seconds / (before - after))
    ### END SOLUTION


# %% test="break_even-visible" points=1
check.break_even(break_even)

# %% test="break_even-hidden" points=1
### BEGIN HIDDEN TESTS
check.break_even(break_even, seed=22)
### END HIDDEN TESTS

# %% [markdown]
# **Predict**: three ways to compute GELU of a few million numbers: written out, compiled, and torch's own `F.gelu`. How
# many times as fast as the first are the other two? How far from the truth is the constant 1.41421, which the lists
# copy?

# %%
my_guess_of_compiled, my_guess_of_own = None, None
my_guess_of_error = None

# %% tags=["experiment"]
gelu_now, break_even_now = course.solved(check.fused_gelu), course.solved(check.break_even)
x = torch.linspace(-6, 6, 100_001, dtype=torch.float64)
exact = gelu_now(x)
error = (x * 0.5 * (1.0 + torch.erf(x / 1.41421)) - exact).abs().max().item()
rounding = (gelu_now(x.float()).double() - exact).abs().max().item()
print(f"largest error of 1.41421: {error:.1e}; float32 itself: {rounding:.1e}" + reveal(my_guess_of_error))
course.claim("in float32 the short constant costs about what rounding costs: no more than twice as much",
             error < 2 * rounding, f"{error:.1e} against {rounding:.1e}")  # fmt: skip
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    torch.jit.script(nn.ReLU())
print("torch.jit.script:", str(caught[0].message).splitlines()[0] if caught else "no warning in this version")

many = torch.randn(size.gelu_numbers, generator=torch.Generator().manual_seed(0)).to(device)
gelu_compiled = compiled(gelu_now, many)
found = compare_in_turn({
    "compiled": (lambda: gelu_now(many), lambda: gelu_compiled.call(many)) if gelu_compiled.call
    else gelu_compiled.reason,
    "F.gelu": (lambda: gelu_now(many), lambda: F.gelu(many)),
}, size.rounds, device, progress=False)  # fmt: skip
for (name, comparison), guess in zip(found.items(), (my_guess_of_compiled, my_guess_of_own), strict=True):
    print(f"{name:<9} times as fast as written out: {comparison}" + reveal(guess))
own = found["F.gelu"]
course.claim("GELU in one kernel is faster than as a chain of operations", own.helped, f"F.gelu {own.ratio:.2f} times")
if gelu_compiled.call:
    before = found["compiled"].seconds[:, 0].median().item()
    after = before / found["compiled"].ratio  # the same statistic as in the table
    steps = break_even_now(gelu_compiled.seconds, before, after)
    torch.compiler.reset()
    again = compiled(gelu_now, many)
    when = f"paid back after {steps:,} calls" if steps < math.inf else "never paid back"
    print(f"compiled in {gelu_compiled.seconds:.1f} s, {when}; "
          f"compiled again from torch's cache: {again.seconds:.2f} s")  # fmt: skip
    course.claim("the compiler turns GELU's chain of operations into a faster kernel", found["compiled"].helped,
                 f"{found['compiled'].ratio:.2f} times")  # fmt: skip

# %% [markdown]
# The short constant is wrong from the seventh digit on. In float32 that hardly shows; in float64 it would.
#
# `F.gelu` is a fused kernel written by hand, so nobody needs the snippet; a compiler is for chains that nobody has
# fused yet. The first compilation of a process includes starting the
# compiler; from the cache it is short, and torch keeps that cache on disk between runs of your own programs.

# %% [markdown]
# ## The ladder
#
# **Each rung keeps the changes of the one before it and adds one; it is compared with the one before it.**
#
# The baseline is the step that most people write: float32, usual layout, Adam as it comes. The rung "nothing changed"
# is the control: the baseline a second time, whose quartiles say how large the noise is. Two rungs compile: the model
# alone, or the whole step, the update included. Both stand on "16 bits" and are compared with it. All rungs take turns,
# on the same batches and from the same weights.
#
# **Predict** for each rung how many times as fast it is as the rung that it is compared with: 1.1 is ten percent
# faster, 0.9 slower.

# %%
my_guesses = {
    "no useless bias": None,
    "channels last": None,
    "fused optimizer": None,
    "16 bits": None,
    "compiled model": None,
    "compiled step": None,
}

# %% tags=["experiment"]
CONTROL = "nothing changed"
rungs = ["baseline", CONTROL, *my_guesses]


class Rung:
    """A training step with the changes of all rungs up to number `height`."""

    def __init__(self, height):
        with_rung = [name for i, name in enumerate(rungs) if i <= height]
        self.model, _ = fresh()
        self.model = lean_now(self.model) if "no useless bias" in with_rung else self.model
        layout = torch.channels_last if "channels last" in with_rung else torch.contiguous_format
        self.model.to(memory_format=layout)
        self.batches = [(x.to(memory_format=layout), y) for x, y in batches]
        fused = True if "fused optimizer" in with_rung else None
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3, fused=fused)
        self.scaler = scaler_or_none() if "16 bits" in with_rung else None
        self.half, self.done, self.reason, self.compile_seconds = "16 bits" in with_rung, 0, "", 0.0
        self.forward, self.whole = self.model, self.plain_step
        if rungs[height].startswith("compiled"):
            self.compile(whole=rungs[height] == "compiled step")

    def plain_step(self, x, y):
        """One training step; the loss."""
        if self.half:
            return half_step_now(self.forward, x, y, self.optimizer, self.scaler)
        return full_step(self.forward, x, y, self.optimizer)

    def compile(self, whole):
        """Compile the model or the whole step; note the reason if that cannot be done."""
        if whole:
            made = compiled(self.plain_step, *self.batches[0])
            self.whole, self.done = made.call, 1  # compiling made a step
        else:
            before = copy.deepcopy(self.model.state_dict())
            with torch.autocast(device.type, dtype=torch.float16 if self.scaler else torch.bfloat16):
                made = compiled(self.model, self.batches[0][0])
            self.model.load_state_dict(before)  # this forward pass moved the running statistics
            self.forward = made.call
        self.reason, self.compile_seconds = made.reason, made.seconds

    def steps(self, n):
        """Make n steps on the batches in their order and return the seconds per step."""
        begin = now(device)
        for _ in range(n):
            self.whole(*self.batches[self.done % len(batches)])
            self.done += 1
        return (now(device) - begin) / n


ladder = {name: Rung(height) for height, name in enumerate(rungs)}
reasons = {name: rung.reason for name, rung in ladder.items() if rung.reason}
measured = [name for name in rungs if name not in reasons]
for name in measured:  # to the end of step 3; a compiled model compiles its backward pass here
    begin = now(device)
    ladder[name].steps(3 - ladder[name].done)
    ladder[name].compile_seconds += now(device) - begin if name.startswith("compiled") else 0
seconds = {name: [] for name in measured}
for number in range(size.rounds):
    for name in measured if number % 2 else reversed(measured):
        seconds[name].append(ladder[name].steps(size.steps_per_turn))
table = {name: torch.tensor(values, dtype=torch.float64) for name, values in seconds.items()}
comparisons, noise = {}, MARGIN
for before, name in itertools.pairwise(rungs):
    if name in reasons:
        comparisons[name] = Comparison(torch.zeros(0, 2), reasons[name])
    else:
        before = "16 bits" if name.startswith("compiled") else before
        comparisons[name] = Comparison(torch.stack([table[before], table[name]], 1), noise=noise)
        noise = comparisons[name].wobble if name == CONTROL else noise
plots.advice_ratios(comparisons, "times as fast as the rung before it (compiled: as 16 bits)", CONTROL, noise)

# %% tags=["experiment"]
print(f"baseline: {1000 * table['baseline'].median():.3g} ms per step")
for name, comparison in comparisons.items():
    text = str(comparison)
    if name == CONTROL:
        text = text.replace(comparison.verdict, f"control: noise {100 * noise:.0f} %")
    print(f"{name:<16} {text}" + reveal(my_guesses.get(name)))
for name, comparison in comparisons.items():
    if name != CONTROL and not comparison.reason:
        standing = "16 bits" if name.startswith("compiled") else "the rung before it"
        course.claim(f"with {name}, a step is faster than with {standing}", comparison.helped,
                     f"{comparison.ratio:.2f} times",
                     otherwise="Leave this change out on this machine. The part of the step that it works on takes "
                               "little time, or its copies and casts cost more than they save.")  # fmt: skip
fastest = min(measured, key=lambda name: table[name].median())
whole = table["baseline"] / table[fastest]
course.claim("the best rung is faster than the baseline in every round", whole.min() > 1,
             f"{fastest}: {whole.median():.2f} times, {whole.min():.2f} to {whole.max():.2f}")  # fmt: skip
print("cudnn.benchmark:", "part 1 measures it" if device.type == "cuda" else "CUDA only, not measured here")

# %% [markdown]
# Figure and table show the same: a dot is the median over the rounds of the ratio within a round, its line goes from
# quartile to quartile. "Cannot be decided" means that the line reaches both sides of what would be a gain: more rounds,
# or a quieter machine, would decide it. Where a rung does not help, look for its share of the step: the changes work on
# different parts of it, and a part that takes no time cannot give any back.
#
# Faster is worth nothing if the step learns less. All rungs started from the same weights and made the same number of
# steps on the same batches. Their losses still differ a little, because every rung rounds differently. How much is a
# little? The baseline is trained again from other initial weights: what another seed changes, nobody would call a loss.

# %% tags=["experiment"]
losses = {}
for name in measured:
    with torch.no_grad():
        model = ladder[name].model.eval()
        losses[name] = F.cross_entropy(model(held_images), held_labels).item()
    paid = ""
    if ladder[name].compile_seconds:
        before = table["16 bits"].median().item()
        after = before / comparisons[name].ratio  # the same statistic as in the table
        steps = break_even_now(ladder[name].compile_seconds, before, after)
        when = f"paid back after {steps:,} steps" if steps < math.inf else "never paid back"
        paid = f"; compiled in {ladder[name].compile_seconds:.0f} s, {when}"
    print(f"{name:<16} validation loss {losses[name]:.4f} after {ladder[name].done} steps{paid}")
by_seed = [losses["baseline"]]
for seed in range(1, size.loss_seeds):
    model, optimizer = fresh(seed)
    for step in range(ladder["baseline"].done):
        full_step(model, *batches[step % len(batches)], optimizer)
    with torch.no_grad():
        by_seed.append(F.cross_entropy(model.eval()(held_images), held_labels).item())
range_of_seeds = max(by_seed) - min(by_seed)
print(f"the baseline from {len(by_seed)} seeds: {min(by_seed):.4f} to {max(by_seed):.4f}")
worst = max(abs(loss - losses["baseline"]) for loss in losses.values())
course.claim("every rung learns as the baseline does: its loss differs by less than the seeds' losses do",
             worst < range_of_seeds, f"by {worst:.4f} at most, the seeds by {range_of_seeds:.4f}")  # fmt: skip

# %% [markdown]
# Where a loss is further off, look at the rung "channels last" first: it only changes the order of sums, so its
# difference shows how far rounding alone moves a training that has just begun.
#
# Where a number of steps was printed, compare it with the steps of your training. Where it says "never paid back", the
# compiled code was no faster than "16 bits": leave it out here. That the GELU above gains does not contradict this: it
# is a chain of point-wise operations alone, and most of a step's time goes into convolutions and products, as the
# profile of part 1 shows. A new shape, such as a smaller last batch, may make torch compile again.

# %% [markdown]
# ## What to take with you
#
# - Inside autocast: forward and loss. Outside: backward and update. bf16 needs no scaler, fp16 does.
# - A bias right before BatchNorm does nothing. At inference BatchNorm can go, too.
# - A change that makes one part of a step faster is worth that part's share. Measure the step, not the part.
# - Compile time is an investment; divide it by what a step saves.
#
# Part 4 trades memory for time, and lets everything that helped race against the plain script.
