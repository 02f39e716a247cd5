# %% [markdown]
# # Faster training, part 4: Win the race, and trade memory for time
#
# **Which of all this makes your training reach its accuracy sooner?**
#
# Parts 1 to 3 measured the number of steps and the time of a step. You wait for their product, the seconds until the
# validation accuracy reaches a target. In this part a script that follows nine pieces of advice races against a plain
# script. You find out which of the pieces pay, and then race against them yourself.
#
# **You will be able to**
#
# - measure a whole training by its time to an accuracy, with a control;
# - tell whether a change saves images or time per image, and measure each with the tool that suits it;
# - choose the measurement that tells which remedy fits a symptom;
# - say what a training step keeps in memory, and what checkpointing and accumulation change about it.
#
# **Minutes** 21 core · 125 in all · session 2
#
# **Needs** nothing from the other parts
#
# Run the cells in order. Where a cell says None, write your number before you run the next cell. Sections marked
# "extra" can wait.


# %% locked="setup"
import functools
import math
from dataclasses import replace

import torch
from torch import nn
from torch.nn import functional as F

import course
from course.checks import faster_training as check
from course.datasets import fashion
from course.measure.comparison import Interval, compare, largest_gains, product, ratio_interval
from course.plots import faster_training as plots
from course.training import leaderboard, race, speedrun
from course.training.models import FashionCNN
from course.training.segments import (
    Stack,
    first_run,
    gradients,
    peak_bytes,
    relative_difference,
)

print(course.machine())
size = course.sizes("06_faster_training")
device = course.device()
data = fashion.load(size.dataset)

# %% [markdown]
# ## How much faster is all advice together?
#
# How much sooner does a training reach its accuracy if it follows all nine pieces of advice? Two contestants train
# FashionCNN on the same images until their accuracy on the same validation images reaches a target. The *plain* script
# reads single images from a Dataset and trains with Adam at 1e-3, in batches of 64, in float32. It evaluates once per
# epoch. *Everything* follows nine pieces of advice, each of which sets fields of a `Recipe`:
#
# | advice | field | what changes |
# |---|---|---|
# | data in memory | `in_memory` | batches are cut out of one tensor |
# | batch of 128 | `batch_size` | half the steps per epoch, twice the learning rate |
# | one cycle | `one_cycle`, `epochs` | the learning rate rises to a higher peak, then falls, both along a cosine |
# | bfloat16 | `bf16` | forward pass and evaluation run under autocast |
# | channels_last | `channels_last` | another order of the numbers in memory |
# | fused Adam | `fused` | Adam's operations are fused into one kernel |
# | no useless bias | `useless_bias` | convolutions before BatchNorm have no bias |
# | label smoothing | `label_smoothing` | the loss asks for a little less than 1 for the right class |
# | late evaluation | `late_evaluation` | no evaluation on the clock, instead of one per epoch |
#
# The race has three rules:
#
# - **Same looks.** All contestants are evaluated after the same numbers of images, because more looks would notice the
#   target earlier. The target is reached where a straight line between two looks crosses it.
# - **The clock** runs while a contestant converts images and trains. It stands still during our looks. A recipe that
#   evaluates once per epoch also pays for its own evaluations.
# - **A control.** Everything runs twice with each seed. Every difference between the two comes from the
#   machine, not from the recipe. If the interval of the control leaves out 1, do not trust a gain of that size.
#
# <details><summary>Details of the cycle and of the race</summary>
#
# The cycle has the shape of `OneCycleLR`'s defaults, with a shorter rise; part 2 tests another cycle. After half an
# epoch, a recipe has paid for half of its evaluation. Ratios are paired by seed. With fewer than six seeds, our
# intervals cannot have 95 %.
#
# </details>
#
# **Predict**: how many times as fast as the plain script does everything reach the target?

# %%
predicted_race = None  # your number

# %% tags=["experiment"]
source = "stand-in"
if data.real:
    source = "real"
target = size.race_target[source]
track = speedrun.track(data, target, size.race_images, size.race_look)
plain = speedrun.PLAIN
everything = speedrun.recipe(*speedrun.ADVICE)
contestants = {"plain": plain, "everything": everything, race.AGAIN: everything}

runs = race.race_all(contestants, track, size.race_seeds, device, size.race_epochs)
times_as_fast = race.times_as_fast(runs, "everything", "plain")
fewer_images = race.times_fewer_images(runs, "everything", "plain")
plots.race(runs, target, fewer_images, times_as_fast)

# %% tags=["experiment"]
control = race.times_as_fast(runs, race.AGAIN, "everything")
print(f"{track.name}, target {target:.1%}, {size.race_seeds} seeds")
print(course.score("06/4", "everything over plain, by the clock", predicted_race, times_as_fast))
print(f"control, everything over itself, by the clock: {control}")
print(f"everything over plain, times as few images: {fewer_images}")
course.claim(
    "all advice together reaches the target at least 1.5 times as fast as the plain script",
    times_as_fast,
    above=1.5,
)
course.claim(
    "all advice together needs as many images as the plain script, within 20 %",
    fewer_images,
    within=(0.8, 1.2),
)
course.claim(
    "by the clock, everything is as fast as itself, within 10 %",
    control,
    within=(0.9, 1.1),
    otherwise="The interval of this control is what your machine adds to every time.",
)
images_once = race.images_of(runs, "everything")
images_again = race.images_of(runs, race.AGAIN)
course.claim(
    "with equal seeds, everything needs the same number of images twice",
    images_once == images_again,
    otherwise="Kernels of your device may add in another order each time.",
)

# %% [markdown]
# **Shown** The control has the same recipe and seeds. Where it needs exactly the same number of images, its whole
# interval by the clock comes from the machine.
#
# **Takeaway** To compare times to an accuracy, look at all contestants equally often, pair their seeds, and run a
# control.

# %% [markdown]
# ## Which of the nine pieces pays?
#
# You may not want all nine pieces, so find out which of them pay. The clock adds the luck of the seed to the noise of
# the machine. So split the time into two factors:
#
# seconds = images trained until the target × seconds per image
#
# - *Images* do not depend on what else the machine does. We count them with and without a piece, with the same seeds.
# - *Seconds per image* do not depend on the seed. `compare` measures them for all nine pieces in interleaved rounds,
#   with everything as the base.
#
# We count images for the pieces that may change what is learned: batch, cycle, bfloat16 and smoothing. We also count
# them for the bias, which BatchNorm subtracts, so compare its row with theirs. The other four change at most rounding
# and what is drawn at random. We do not count images for them, and the table says "the same".
#
# **Predict**: which piece saves the most time when you multiply both factors? Ask what happens without it: slower
# arithmetic (bfloat16), waiting for data (data in memory), or more images (one cycle).

# %%
predicted_piece = None  # a name from the table, such as "one cycle"

# %% tags=["experiment"]
recipes = speedrun.contestants()
learning = {}  # everything without one of the pieces that may change the images
for piece in speedrun.CHANGE_LEARNING:
    name = f"without {piece}"
    learning[name] = recipes[name]
runs += race.race_all(learning, track, size.race_seeds, device, size.race_epochs)

ways = {"everything": everything}  # the base comes first
ways |= recipes
compared = race.costs(ways, track, device, size.race_cost_seconds, size.race_cost_images)
pieces = race.left_out(runs, compared)
plots.left_out(pieces)

# %% tags=["experiment"]
print(f"{'without it, times as much':<26}{'images':<24}{'time per image':<24}together")
for piece in sorted(pieces, key=lambda piece: -piece.total.estimate):
    print(f"{piece.name:<26}{piece}")
print(
    f"control of the time per image: {pieces[0].control}; "
    f"{compared.rounds} rounds, {compared.stopped}"
)

faster_images = compared.ratio("everything", to="plain")
both = product(fewer_images, faster_images)
print(f"everything over plain: images × time per image {both}; by the clock {times_as_fast}")
multiplied = math.prod(piece.total.estimate for piece in pieces)
print(f"the nine ratios multiplied: {multiplied:.2f}")
most = largest_gains({piece.name: piece.total for piece in pieces})
print(course.score("06/4", "the piece worth most", predicted_piece, most, null=None))

# %% tags=["experiment"]
by_name = {piece.name: piece for piece in pieces}
course.claim(
    "bfloat16 makes an image at least 10 % faster",
    by_name["bfloat16"].cost,
    above=1.1,
    otherwise="Your processor may have no instructions for bfloat16.",
)
course.claim(
    "bfloat16 changes the number of images by less than 15 %",
    by_name["bfloat16"].images,
    within=(0.85, 1.15),
)
course.claim(
    "data in memory makes an image at least 10 % faster", by_name["data in memory"].cost, above=1.1
)
course.claim(
    "one cycle saves at least 10 % of the images",
    by_name["one cycle"].images,
    above=1 / 0.9,
    otherwise="An easy target may be reached before the cycle lowers its learning rate.",
)
course.claim(
    "the bias before BatchNorm changes the time per image by less than 5 %",
    by_name["no useless bias"].cost,
    within=(0.95, 1.05),
)

# %% [markdown]
# Read the two columns. If all advice together needs as many images as the plain script, its whole gain is time per
# image. Single pieces may still change the number of images, in opposite directions.
#
# A grey row is a result, too: with these seeds and rounds nobody can say whether that piece helps. A green or orange
# row may be chance, because each of the nine intervals misses the truth once in twenty times. Confirm such a row with
# other seeds before you rely on it.
#
# - **bfloat16**: **Known** It can be fast where the processor has instructions for it (AMX on recent Xeons, AVX-512
#   BF16, tensor cores on GPUs). Elsewhere it is emulated and may lose.
# - **Batch**: **Known** A larger batch makes fewer updates, so it may need more images (unit 03). But it pays the fixed
#   cost of an update less often. The product of the two columns decides.
# - **Bias**: **Known** BatchNorm subtracts the mean, and the bias with it (Ioffe and Szegedy 2015). If this row is
#   green or orange in the column "images", suspect chance first.
#
# <details><summary>Why is the product of the nine ratios not the whole gain?</summary>
#
# Each piece was left out while the other eight stayed. For example, data in memory saves a larger share of a step that
# bfloat16 has made shorter. **We think** that some pieces also need each other. Leaving out either of two such pieces
# costs the gain of both, and multiplying counts this gain twice. To test it for bfloat16 and channels_last, leave out
# both.
#
# </details>
#
# The flip map says on which machine some of these pieces win ([docs/flip-map.md](../../docs/flip-map.md)). The race on
# all images of Fashion-MNIST is in [docs/results.md](../../docs/results.md).
#
# **Takeaway** Seconds are images times seconds per image. Measure each factor by itself, and keep a change if the
# interval of the product lies above 1.

# %% [markdown]
# ## Can you beat it?
#
# Write a recipe that reaches the target sooner. Change any field of the table, or `lr` and `epochs`. Decide first which
# factor your change should reduce. Another peak, cycle or label smoothing may change the number of images, and another
# batch size both factors. The other fields may change the time per image.
#
# Your entry races with the same seeds as everything. The board shows ratios to everything, and an entry leads only if
# its whole interval lies above 1. Try two entries. More are less fair: of forty entries that change nothing, about one
# leads by chance.

# %% tags=["experiment"]
print(everything)
entry = replace(everything, epochs=1.0)  # change this line
mine = leaderboard.enter(
    entry, track, runs, device, size.race_epochs, size.race_entry_seconds, size.race_cost_images
)
entries = leaderboard.kept() or [mine]  # no file is kept if COURSE_ANSWERS is off
board = leaderboard.board(entries, track)
for row in board:
    print(f"{row.name:<18}{row}")
plots.leaderboard(board)

# %% [markdown]
# **Takeaway** A change wins through the factor that it touches. An estimate above 1 whose interval contains 1 has not
# won.
#
# ### Question · The advice that did not help
#
# Which advice of this unit did not help you, in this race or in parts 1 to 3? Say what it promises, and what you
# measured, with its interval. Did it save images, make them cheaper, or neither? Name a machine, model or data set on
# which you would expect it to help, and the measurement that would prove you wrong. (8 to 12 sentences, about 15
# minutes, extra, 4 points.)

# %% [markdown] answer="did_not_help" points=4
# ### BEGIN SOLUTION
# A good answer names one piece of advice and what it promises (fewer steps, cheaper steps, less waiting, less
# memory), and gives the paired ratio with its interval over seeds or rounds. It explains the result by a share: how
# much of a step, or of the steps, the advice could have removed at all (Amdahl), for example the optimizer's share
# for a fused optimizer, or one evaluation in a cycle. It separates "made no difference" from "this measurement cannot
# tell". It then names conditions in which the share is large, and a measurement there that could refute the
# expectation.
#
# One point each: a measured ratio with its interval · the share that explains it · no difference against undecided · a
# condition and a measurement that could refute it.
# ### END SOLUTION

# %% [markdown]
# ## What would you change first in your own training?
#
# You know the symptom of your own training, but not yet its remedy. The table says what to measure in between.
#
# | you see | measure | then try | part |
# |---|---|---|---|
# | the device waits between steps | the share of "data" in a profile | workers, data in memory | 1, unit 01 |
# | a slow step, no wait for data | does twice the batch take as long? | larger batch, fused update, compiling | 2, 3 |
# | a slow step, no wait for data | does twice the batch take longer? | 16 bits, channels last, compiling | 3 |
# | out of memory | bytes kept per image | 16 bits, checkpointing, accumulation | this part |
# | the loss explodes or is NaN | the norm of the gradients | lower learning rate, clipping, scaler for fp16 | 2, 3 |
# | the loss falls slowly | the range test | another learning rate, a decay to zero | 2 |
#
# The command `course checkup train.py` watches your own script, says where its time and memory go, and tries what might
# help, next to a control. In a notebook, `course.checkup(loader, step)` does the same.
#
# **Takeaway** A symptom has several causes, so measure before you choose a remedy.

# %% [markdown]
# ## What does a step keep in memory? · extra
#
# When a training runs out of memory, you need to know what fills it. Autograd keeps results of the forward pass until
# the backward pass needs them. FashionCNN has 1.5 million parameters. At which batch size does a step keep more bytes
# for backward than the parameters take? And does 16-bit autocast halve these bytes?
#
# ### Exercise 1 · Count the bytes
#
# Count what autograd keeps while `call` runs, without the parameters and buffers of `module`, which stay in memory in
# any case. `torch.autograd.graph.saved_tensors_hooks` calls a function of yours with each tensor that autograd saves.
# A tensor's memory is its storage, `tensor.untyped_storage()`; a view shares it.
#
# **Must**
# - run `call()` once, and return the bytes of all storages that autograd saves while it runs, an int;
# - count a storage once and whole, however many views of it are kept, and leave out parameters and buffers;
# - let backward still work afterwards.
#
# **You may assume** that `call` runs no backward itself.
#
# ```python
# >>> x = torch.ones(10, requires_grad=True)
# >>> saved_bytes(lambda: x.exp(), torch.nn.Module())
# 40
# ```
#
# **Points** 2 · **Extra** · **Difficulty** ●●○ · **Minutes** 12 · **Lines** 9
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
    owned = {
        tensor.untyped_storage().data_ptr() for tensor in (*module.parameters(), *module.buffers())
    }
    return sum(storage.nbytes() for place, storage in storages.items() if place not in owned)
    ### END SOLUTION


# %% test="saved_bytes-visible" points=1
check.saved_bytes(saved_bytes)

# %% test="saved_bytes-hidden" points=1
### BEGIN HIDDEN TESTS
check.saved_bytes(saved_bytes, seed=11)
### END HIDDEN TESTS

# %% tags=["experiment"]
saved_now = course.solved(check.saved_bytes)  # yours if it is right, else ours
network = FashionCNN().to(device)
parameter_bytes = sum(p.numel() * p.element_size() for p in network.parameters())


def kept_at(n, half=False):
    """Bytes that a forward pass with n images keeps for backward, in float32 or under autocast."""
    images = torch.randn(n, 1, 28, 28, device=device)

    def forward():
        return network(images).sum()

    with torch.autocast(device.type, dtype=torch.bfloat16, enabled=half):
        return saved_now(forward, network)


kept = {}
for n in (4, 16, 64, 128):
    kept[n] = kept_at(n)
    print(f"batch {n:3}: {kept[n] / 1e6:6.2f} MB kept, parameters {parameter_bytes / 1e6:.2f} MB")

# %% tags=["experiment"]
per_image = (kept[128] - kept[4]) / (128 - 4)
batch = math.ceil(parameter_bytes / per_image)
print(f"{per_image / 1e3:.0f} kB per image: more than the parameters from a batch of {batch}")

half_128 = kept_at(128, half=True)
half_256 = kept_at(256, half=True)
half_per_image = (half_256 - half_128) / 128
half_share = half_per_image / per_image
per_batch = 2 * half_128 - half_256  # 16-bit copies of the weights, whatever the batch
print(
    f"under autocast: {half_share:.0%} of the bytes per image, "
    f"{per_batch / 1e6:.1f} MB for the whole batch"
)

growth = kept[128] / kept[4]
in_proportion = abs(growth / 32 - 1) < 0.05
course.claim(
    "the bytes kept for backward grow in proportion to the batch",
    in_proportion,
    f"{growth:.1f} times the bytes for 32 times the batch",
)
some_are_halved = 0.5 < half_share < 0.9
course.claim(
    "autocast to 16 bits saves less than half of the bytes kept per image, but more than a tenth",
    some_are_halved,
    f"{half_share:.0%} stay",
    otherwise="Your version of torch keeps other tensors under autocast.",
)

# %% [markdown]
# **Known** Autocast runs convolutions and linear maps in 16 bits, and what they pass on is kept in 16 bits, too. Max
# pooling keeps the positions of its maxima as 64-bit numbers in any case (documentation of `torch.amp`, and of
# `max_pool2d`'s `return_indices`). So autocast does not halve these bytes.
#
# **Takeaway** Activations grow with the batch, and weights do not. So a memory limit is a limit on the batch.

# %% [markdown]
# ## What if a block runs twice? · extra
#
# A checkpointed block saves memory: it keeps only its inputs, and runs a second time when backward reaches it. The
# second run must give the result of the first. But dropout would draw a new mask, and outside the autocast of the
# forward pass the second run would compute in float32. How wrong does a gradient get if the mask differs?
#
# ### Exercise 2 · Checkpoint a block
#
# Write `checkpoint(block, *inputs)` with a `torch.autograd.Function`. `torch.get_rng_state`, `torch.random.fork_rng`
# and `torch.get_autocast_dtype` help.
#
# **Must**
# - return what `block(*inputs)` returns; in forward build no graph inside the block, and save only the inputs;
# - in backward run the block again with a graph, under the autocast and with the random numbers of the first run, and
#   leave all other random numbers alone.
#
# **Gradients** Inputs and parameters that require one and are used get theirs, the others None. Parameters get theirs
# even if no input requires one.
#
# **You may assume** that inputs (at least one) and the one output are tensors on one device, and that `block` is an
# nn.Module.
#
# **Points** 5 · **Extra** · **Difficulty** ●●● · **Minutes** 45 · **Lines** 22
#
# **Not allowed** `torch.utils.checkpoint`
#
# **Source** Chen et al. 2016, arXiv:1604.06174.
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
# The state of the random numbers: `torch.get_rng_state()`, and `torch.cuda.get_rng_state(device)` if the inputs are on
# a GPU. Inside `with torch.random.fork_rng([device]):` you may set both, and the old ones are back afterwards.
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
#
# <details><summary>Hint 4</summary>
#
# With `kind = inputs[0].device.type`, keep `torch.is_autocast_enabled(kind)` and `torch.get_autocast_dtype(kind)`;
# `torch.autocast(kind, dtype, enabled)` sets them again.
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
    parameters = tuple(block.parameters())
    device = inputs[0].device
    kind = device.type
    gpus = [device] if kind == "cuda" else []

    class Recompute(torch.autograd.Function):
        @staticmethod
        def forward(ctx, *tensors):
            ctx.save_for_backward(*inputs)
            ctx.states = torch.get_rng_state(), [torch.cuda.get_rng_state(gpu) for gpu in gpus]
            ctx.cast = kind, torch.get_autocast_dtype(kind), torch.is_autocast_enabled(kind)
            return block(*inputs)

        @staticmethod
        def backward(ctx, grad):
            needs = ctx.needs_input_grad[: len(inputs)]
            fresh = []
            for x, need in zip(ctx.saved_tensors, needs, strict=True):
                fresh.append(x.detach().requires_grad_(need))
            with torch.random.fork_rng(gpus), torch.enable_grad(), torch.autocast(*ctx.cast):
                torch.set_rng_state(ctx.states[0])
                for gpu, state in zip(gpus, ctx.states[1], strict=True):
                    torch.cuda.set_rng_state(state, gpu)
                out = block(*fresh)
            tensors = *fresh, *parameters
            wanted = [t for t in tensors if t.requires_grad]
            grads = iter(torch.autograd.grad(out, wanted, grad, allow_unused=True))
            return tuple(next(grads) if t.requires_grad else None for t in tensors)

    return Recompute.apply(*inputs, *parameters)
    ### END SOLUTION


# %% test="checkpoint-visible" points=3
check.checkpoint(checkpoint)

# %% test="checkpoint-hidden" points=2
### BEGIN HIDDEN TESTS
check.checkpoint(checkpoint, seed=9)
### END HIDDEN TESTS

# %% tags=["experiment"]
checkpoint_now = course.solved(check.checkpoint)
width = size.block_width
four = Stack(size.blocks, width, segments=4).to(device)
generator = torch.Generator().manual_seed(1)
x = torch.randn(size.block_rows, width, generator=generator).to(device)

plain_gradient = gradients(four, x, seed=0)
again = gradients(four, x, checkpoint_now, seed=0)
other_mask = gradients(four, x, seed=1)

error = relative_difference(again, plain_gradient)
are_equal = error < 1e-5
course.claim(
    "with dropout, checkpointed blocks have the gradients of plain ones",
    are_equal,
    f"relative difference {error:.1e}",
)
error_of_mask = relative_difference(other_mask, plain_gradient)
is_another = error_of_mask > 0.05
course.claim(
    "another dropout mask would give another gradient",
    is_another,
    f"{100 * error_of_mask:.0f} % of its norm away",
)

# %% tags=["experiment"]
half_plain = gradients(four, x, seed=0, half=True)
half_again = gradients(four, x, checkpoint_now, seed=0, half=True)
error = relative_difference(half_again, half_plain)
are_equal = error < 1e-3
course.claim(
    "under autocast, checkpointed blocks have the gradients of plain ones",
    are_equal,
    f"{error:.1e} off",
    otherwise="The second run computed in another precision.",
)

normed = nn.Sequential(nn.Linear(width, width), nn.BatchNorm1d(width)).to(device)
rows = torch.randn(64, width, device=device)
checkpoint_now(normed, rows).sum().backward()
updates = int(normed[1].num_batches_tracked)
course.claim(
    "BatchNorm in a checkpointed block updates its running statistics twice per step",
    updates == 2,
    updates,
)

# %% [markdown]
# **Shown** The gradients of the two masks lie far apart, and only the mask differs. No error says so.
#
# **Takeaway** A second run must repeat the first one in all that it reads, such as random numbers and precision.

# %% [markdown]
# ## How many segments? · extra
#
# Checkpointing saves memory and costs time, and the number of segments decides how much of each. A model of n equal
# blocks is cut into k segments. At the peak of backward, one segment has run again and each of the others keeps its
# input: (k − 1) · (bytes of an input) + ⌈n / k⌉ · (bytes of a block). Which k keeps the fewest bytes?
#
# **Predict**: how many times as long as a plain step does a checkpointed step take? It makes one more forward pass. If
# backward costs two forward passes, as it does for matrix products, the rule says 4/3. If the forward pass has work
# without a counterpart in backward, such as drawing dropout's random numbers, it is more.

# %%
predicted_longer = None  # your number

# %% tags=["experiment"]
counts = [k for k in range(1, size.blocks + 1) if size.blocks % k == 0]
models = {k: Stack(size.blocks, width, k).to(device) for k in counts}
one_block = Stack(1, width, 1).to(device)
input_bytes = x.numel() * x.element_size()
block_bytes = peak_bytes(one_block, x, checkpoint_now, saved_now)
plain_bytes = saved_now(functools.partial(models[1], x), models[1])

peaks = {}  # {segments: most bytes kept simultaneously}
predicted_peaks = {}
for k in counts:
    peaks[k] = peak_bytes(models[k], x, checkpoint_now, saved_now)
    predicted_peaks[k] = (k - 1) * input_bytes + math.ceil(size.blocks / k) * block_bytes

# %% tags=["experiment"]
ways = {
    "plain": functools.partial(models[1].step, x),
    "forward": functools.partial(first_run, models[1], x),
}
for k in counts:
    ways[f"{k} segments"] = functools.partial(models[k].step, x, checkpoint_now)
timed = compare(ways, device=device, seconds=size.compare_seconds)
longer = {k: timed.ratio("plain", to=f"{k} segments") for k in counts}
forward = timed.ratio("plain", to="forward")  # its share of a plain step
one_more = Interval(1 + forward.estimate, 1 + forward.low, 1 + forward.high)
plots.memory_and_time(peaks, predicted_peaks, plain_bytes, longer, one_more)

# %% tags=["experiment"]
best_k = min(predicted_peaks, key=predicted_peaks.get)
for k in counts:
    megabytes = peaks[k] / 1e6
    predicted_megabytes = predicted_peaks[k] / 1e6
    print(
        f"{k:2} segments: {megabytes:7.2f} MB (formula {predicted_megabytes:7.2f}), "
        f"{longer[k]} times as long"
    )
best_share = predicted_peaks[best_k] / plain_bytes
print(f"{best_k} segments keep {best_share:.0%} of the plain model's bytes")
print(f"predicted from the forward pass alone: {one_more}; rule 1.33; control {timed.control}")
print(
    course.score("06/4", "a checkpointed step over a plain one", predicted_longer, longer[best_k])
)

error = max(abs(peaks[k] / predicted_peaks[k] - 1) for k in counts)
is_predicted = error < 0.15
course.claim(
    "the bytes kept can be predicted from one block, within 15 %",
    is_predicted,
    f"{error:.1%} off",
)
saves_nothing = peaks[1] >= plain_bytes
course.claim(
    "checkpointing with one segment saves nothing",
    saves_nothing,
    f"{peaks[1] / plain_bytes:.2f} of the plain bytes",
)

# %% tags=["experiment"]
bare = Stack(size.blocks, width, 1, dropout=0.0).to(device)
ways = {
    "step": functools.partial(models[1].step, x),
    "forward": functools.partial(models[1], x),
    "step without dropout": functools.partial(bare.step, x),
    "forward without dropout": functools.partial(bare, x),
}
with_graph = compare(ways, device=device, seconds=size.compare_seconds)
share = with_graph.ratio("step", to="forward")
share_without = with_graph.ratio("step without dropout", to="forward without dropout")
print(f"forward pass, share of a step: with dropout {share}, without {share_without}; rule 0.33")

plain_and_forward = timed.seconds["plain"] + timed.seconds["forward"]
course.claim(
    "with one segment, a checkpointed step takes one more forward pass, within 10 %",
    ratio_interval(timed.seconds["1 segments"], plain_and_forward),
    within=(0.9, 1.1),
)
course.claim(
    "a checkpointed step takes longer than the 4/3 of the rule", longer[best_k], above=4 / 3
)

# %% [markdown]
# **Shown** The last cell removes dropout alone. Compare both shares with the rule's third. If the share falls towards
# the third without dropout, dropout's work in the forward pass makes the difference: the backward pass draws no random
# numbers.
#
# **Known** The sum above is least at k = √(n · bytes of a block / bytes of its input). This is √n only if block and
# input have equally many bytes (Chen et al. 2016).
#
# **Takeaway** Choose the segments by the bytes of a block and of its input. Checkpointing costs one more forward pass,
# which may be more than a third of a plain step.

# %% [markdown]
# ## Does accumulation equal the large batch? · extra
#
# You want the gradient of a large batch, but only a small batch fits. The gradient of a mean is the mean of
# gradients, so you can add up micro-batches. Is the sum the gradient of the large batch, whatever the model?
#
# ### Exercise 3 · Accumulate
#
# Compute the gradients of a batch's mean loss from micro-batches, so that only one micro-batch's graph is in memory at
# a time.
#
# **Must**
# - split the batch in order into micro-batches of `micro_batch` rows, of which the last may be smaller, and call
#   backward after each forward pass;
# - leave in `.grad` the gradient of the mean cross-entropy over *all* samples;
# - return that mean loss as a detached scalar tensor.
#
# **You may assume** that no parameter has a gradient yet. The optimizer steps elsewhere.
#
# **Points** 3 · **Extra** · **Difficulty** ●●○ · **Minutes** 10 · **Lines** 6
#
# **Source** Unit 03, `accumulated_step`: the same idea with an optimizer.
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

# %% tags=["experiment"]
accumulated_now = course.solved(check.accumulated)
whole = size.accumulated_batch
pixels = fashion.floats(data.train_images[:whole]).to(device)
answers = data.train_labels[:whole].to(device)
micro_batches = [whole // 2, whole // 4, whole // 8, whole // 16, whole // 32]


def gradient(norm, micro_batch):
    """(the gradient of all parameters of a new network as one vector, its buffers)."""
    torch.manual_seed(0)
    model = FashionCNN(dropout=0.0, norm=norm).to(device)
    accumulated_now(model, pixels, answers, micro_batch)
    flat = torch.cat([p.grad.flatten() for p in model.parameters()])
    return flat, dict(model.named_buffers())


# %% tags=["experiment"]
differences = {}  # {norm: relative difference at each micro-batch}
for norm in ("batch", "group", None):
    truth, _ = gradient(norm, whole)
    differences[norm] = []
    for micro_batch in micro_batches:
        found, buffers = gradient(norm, micro_batch)
        differences[norm].append(relative_difference(found, truth))
        if norm == "batch":
            updates = int(buffers["convolutions.1.num_batches_tracked"])
plots.accumulation(micro_batches, differences)

# %% tags=["experiment"]
with_batchnorm = differences["batch"]
largest_without = max(differences["group"] + differences[None])
is_equal = largest_without < 1e-4
course.claim(
    "without BatchNorm the accumulated gradient equals the gradient of the whole batch",
    is_equal,
    f"at most {largest_without:.1e} off",
)
differs = with_batchnorm[-1] > 0.02
course.claim(
    "with BatchNorm the accumulated gradient differs from the gradient of the whole batch",
    differs,
    f"{100 * with_batchnorm[-1]:.0f} % off at {micro_batches[-1]} rows",
)
course.claim(
    "with BatchNorm, the smaller the micro-batch, the further its gradient is from the whole batch's",
    with_batchnorm == sorted(with_batchnorm),
    " ".join(f"{difference:.2f}" for difference in with_batchnorm),
)
course.claim(
    "BatchNorm's running statistics are updated once per micro-batch",
    updates == whole // micro_batches[-1],
    updates,
)

# %% [markdown]
# **Shown** The three networks differ in their normalisation alone. BatchNorm normalises with the mean of the
# micro-batch. So the loss of an image depends on its neighbours, and so does the gradient.
#
# **Takeaway** Accumulation equals the large batch if each image's loss depends on that image alone. BatchNorm breaks
# this.
#
# ## References
#
# 1. T. Chen, B. Xu, C. Zhang, C. Guestrin, Training Deep Nets with Sublinear Memory Cost, 2016.
#    [arXiv:1604.06174](https://arxiv.org/abs/1604.06174)
# 2. C. Coleman et al., DAWNBench: An End-to-End Deep Learning Benchmark and Competition, 2017: time to accuracy.
# 3. H. Xiao, K. Rasul, R. Vollgraf, Fashion-MNIST, 2017. [arXiv:1708.07747](https://arxiv.org/abs/1708.07747)
# 4. S. Ioffe, C. Szegedy, Batch Normalization, 2015, section 3.2. [arXiv:1502.03167](https://arxiv.org/abs/1502.03167)
# 5. G. Y. Zou, A. Donner, Construction of Confidence Limits about Effect Measures: A General Approach, Statistics in
#    Medicine 27, 2008: the interval of a product of two ratios.
