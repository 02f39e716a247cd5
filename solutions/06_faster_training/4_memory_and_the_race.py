# %% [markdown]
# # Faster training, part 4: Win the race, and trade memory for time
#
# **Which of all this makes your training reach its accuracy sooner?**
#
# Parts 1 to 3 measured the number of steps and the time of a step. Now one number counts both: the seconds until the
# validation accuracy reaches a target. You race against a plain script, against a script that follows all advice, and
# against yourself.
#
# **You will be able to**
#
# - measure a whole training by the time to an accuracy, and judge a piece of advice by leaving it out;
# - write your own recipe, and say which of its changes paid;
# - say what a training step keeps in memory, and what checkpointing and accumulation change about it;
# - choose the measurement that tells which remedy fits a symptom.
#
# **Minutes** 16 core · 102 in all · session 2
#
# **Needs** nothing from the other parts
#
# Run all cells; sections marked "extra" can be read later.


# %% locked="setup"
import math
import statistics
from dataclasses import replace

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

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
# ## Which advice wins the race?
#
# All contestants train FashionCNN on the same images and are judged on the same validation images. The clock counts
# everything after the files are read: conversion, training and every evaluation. The network stays the same, except for
# a bias without effect. The test images wait until the race is over.
#
# The *plain* script reads single images from a Dataset, trains with Adam at 1e-3 in batches of 64 in float32, and
# evaluates after each epoch. *Everything* follows all nine pieces of advice. `course/training/speedrun.py` holds the
# loop; a `Recipe` has a field for each piece.
#
# | advice | field | what changes |
# |---|---|---|
# | data in memory | `in_memory` | batches are cut out of one tensor |
# | batch of 128 | `batch_size` | half the steps per epoch, twice the learning rate |
# | one cycle | `one_cycle`, `epochs` | the learning rate rises and falls once; its peak is 2.5 times as high |
# | bfloat16 | `bf16` | forward pass and evaluation run under autocast |
# | channels_last | `channels_last` | another order of the numbers in memory |
# | fused Adam | `fused` | one kernel updates all weights |
# | no useless bias | `useless_bias` | convolutions before BatchNorm have no bias |
# | label smoothing | `label_smoothing` | the loss asks for 0.91 for the right class |
# | late evaluation | `late_evaluation` | evaluate only near the end of a cycle |

# %% tags=["experiment"]
everything = speedrun.recipe(*speedrun.ADVICE)
left_out = size.race_left_out or list(speedrun.ADVICE)
print("left out in this run, one at a time:", ", ".join(left_out))

# %% [markdown]
# **Predict**: how many times as fast is everything as plain? Of the pieces left out: which is worth most?

# %%
predicted_race = None
predicted_most = None  # one of the names printed above

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
for run in first:
    print(f"{run.name:<11} seed {run.seed}: {run.seconds:6.2f} s, {run.epochs:.2f} epochs, validation "
          f"{run.accuracies[-1][2]:.3f}, test {speedrun.test_accuracy(run, track):.3f}")  # fmt: skip
worth = speedrun.worth(runs, "everything")
median, lowest, highest = worth.pop("plain")
print(f"everything against plain: {median:.1f} times as fast, {lowest:.1f} to {highest:.1f}" + reveal(predicted_race))
course.claim("following all advice reaches the target sooner than the plain script, with every seed", lowest > 1,
             f"{median:.1f} times as fast, {lowest:.1f} to {highest:.1f}",
             otherwise="Compare the epochs: a cycle that ends below the target costs a second one.")  # fmt: skip
seconds = {(run.name, run.seed): run.seconds for run in first}
earliest = {run.seed: run.accuracies[-2][1] if len(run.accuracies) > 1 else 0.0 for run in first if run.name == "plain"}
least = min(earliest[seed] / seconds["everything", seed] for seed in earliest)
course.claim("all advice wins even if the plain script is timed at its last evaluation below the target", least > 1,
             f"at least {least:.1f} times as fast",
             otherwise="The truth lies between this factor and the one above.")  # fmt: skip
plots.left_out(worth)


# %% tags=["experiment"]
def pace(name):
    """Epochs that the runs of `name` needed, and the milliseconds per 1,000 images, evaluations included."""
    own = [run for run in runs if run.name == name][-size.race_seeds :]  # the latest race
    epochs = statistics.median(run.epochs for run in own)
    speed = statistics.median(1e6 * run.accuracies[-1][1] / (run.epochs * len(track.labels)) for run in own)
    return f"{epochs:.2f} epochs of {speed:.0f} ms per 1,000 images"


verdicts = {}
for name, (median, lowest, highest) in sorted(worth.items(), key=lambda item: -item[1][0]):
    verdict = "helped" if lowest > 1.02 else "slower" if highest < 0.98 else "not decided"
    verdicts[name.removeprefix("without ")] = verdict
    longer = f"{median:5.2f} times as long ({lowest:.2f} to {highest:.2f})"
    print(f"{name:<24} {longer}; the advice: {verdict}; " + pace(name))
print(f"{'everything':<24} " + pace("everything"))
medians = {name.removeprefix("without "): triple[0] for name, triple in worth.items()}
spread = max((high - low for _, low, high in worth.values() if math.isfinite(high)), default=0.0)  # over the seeds
print("worth most: " + reveal_leader(predicted_most, leaders(medians, spread, most=True)))
helped = [name for name, verdict in verdicts.items() if verdict == "helped"]
course.claim("not every piece of advice that is left out helps with every seed", len(helped) < len(verdicts),
             f"{len(helped)} of {len(verdicts)} do; {len(speedrun.ADVICE) - len(verdicts)} were not left out",
             otherwise="Leave out the others, too: course bench speedrun.")  # fmt: skip

# %% [markdown]
# **Takeaway** All advice together reached 83.5 % 2.8 times as fast as plain. Of the two pieces left out, only data in
# memory helped with every seed.

# %% [markdown]
# ## Can you beat it?
#
# Write a recipe that reaches the target sooner. Change any field of the table, or `lr` and `epochs`:
# `print(everything)` shows their values. The cell races your entry with every seed, and draws the leaderboard of all
# your runs on this machine.
#
# Change one thing at a time, and predict first: does the change save epochs, or time per image? Stop after two entries,
# or when you lead. Everything runs again, interleaved with your entry.
#
# **Predict**: how many times as fast is your entry as everything?

# %%
predicted_entry = None

# %% tags=["experiment"]
entry = replace(everything, label_smoothing=0.0)  # change this line
mine = speedrun.next_name(speedrun.kept())
for seed in range(size.race_seeds):
    for name, recipe in ((mine, entry), ("everything", everything)):
        runs.append(speedrun.race(name, recipe, track, seed, device, size.race_epochs))
        speedrun.keep(runs[-1])
times, lowest, highest = speedrun.worth(runs, mine)["everything"]
print(f"{mine}: {times:.2f} times as fast as everything ({lowest:.2f} to {highest:.2f}), " + pace(mine)
      + reveal(predicted_entry))  # fmt: skip
print(f"everything: {pace('everything')}")
standings = speedrun.standings(speedrun.kept() or runs, track)
for place, (name, seconds_taken, n_runs) in enumerate(standings, 1):
    print(f"{place:2}. {name:<24} {seconds_taken:6.2f} s, median of {n_runs}")
plots.leaderboard(standings)

# %% [markdown]
# **Takeaway** Seconds are epochs times time per image. Our entry kept the epochs; over the seeds it was 0.81 to 1.26
# times as fast as everything, which decides nothing.
#
# Trust this ratio: the leaderboard also counts the first race, in which the entry did not run.
#
# ### Question · The advice that did not help
#
# Which advice of this unit did not help you, in this race or in parts 1 to 3? Say what it promises, and what you
# measured, with its spread. Did it save steps, make them cheaper, or neither? Name a machine, model or data set on
# which you would expect it to help, and the measurement that would prove you wrong. (8 to 12 sentences, about 15
# minutes, extra, 4 points.)

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
# ## On your own training
#
# **What would you change first in your own training?**
#
# | you see | measure | then try | part |
# |---|---|---|---|
# | the device waits between steps | the share of "data" in a profile | workers, data in memory | 1, unit 01 |
# | twice the batch takes the same time | steps with two batch sizes | larger batch, fused update, compiling | 2, 3 |
# | the time grows with the batch | the ladder, with a control | 16 bits, channels last, compiling | 3 |
# | out of memory | bytes kept per image | 16 bits, checkpointing, accumulation | this part |
# | the loss explodes or is NaN | the norm of the gradients | lower learning rate, clipping, scaler for fp16 | 2, 3 |
# | the loss falls slowly | the range test | another learning rate, one cycle | 2 |
#
# `course.checkup` watches a training and says where its time goes. Replace `loader` and `step` with your own. Without
# `only_watch=True` it also tries what might help.

# %% tags=["experiment"]
network = FashionCNN().to(device)
optimizer = torch.optim.Adam(network.parameters())
loader = DataLoader(TensorDataset(fashion.floats(track.images[:512]), track.labels[:512]), 16, shuffle=True)


def step(batch):
    """Train on one batch."""
    images, labels = (part.to(device) for part in batch)
    optimizer.zero_grad()
    F.cross_entropy(network(images), labels).backward()
    optimizer.step()


report = course.checkup(loader, step, steps=20, only_watch=True)
print(report)

# %% [markdown]
# **Takeaway** Measure, change one thing, measure again with a control. Keep what helped *here*.

# %% [markdown]
# ## What does a step keep in memory? · extra
#
# Autograd keeps results of the forward pass until the backward pass needs them.
#
# **Predict**: FashionCNN has 1.5 million parameters. At which batch size does a step keep more bytes for backward than
# the parameters take? And which share of these bytes does it keep under 16-bit autocast?

# %%
predicted_batch = None
predicted_half = None

# %% [markdown]
# ### Exercise 1 · Count the bytes
#
# Count what autograd keeps while `call` runs, without the parameters and buffers of `module`, which stay in memory in
# any case.
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
    owned = {tensor.untyped_storage().data_ptr() for tensor in (*module.parameters(), *module.buffers())}
    return sum(storage.nbytes() for place, storage in storages.items() if place not in owned)
    ### END SOLUTION


# %% test="saved_bytes-visible" points=1
check.saved_bytes(saved_bytes)

# %% test="saved_bytes-hidden" points=1
### BEGIN HIDDEN TESTS
check.saved_bytes(saved_bytes, seed=11)
### END HIDDEN TESTS

# %% tags=["experiment"]
saved_now = course.solved(check.saved_bytes)
network = FashionCNN().to(device)
weights = sum(p.numel() * p.element_size() for p in network.parameters())


def kept_at(n, half=False):
    """Bytes that a forward pass with n images keeps for backward, in float32 or under autocast."""
    images = torch.randn(n, 1, 28, 28, device=device)

    def call():
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=half):
            network(images).sum()

    return saved_now(call, network)


batches = [4, 8, 16, 32, 64, 128]
kept = [kept_at(n) for n in batches]
per_image = (kept[-1] - kept[0]) / (batches[-1] - batches[0])
for n, total in zip(batches, kept, strict=True):
    print(f"batch {n:3}: {total / 1e6:6.2f} MB kept, parameters {weights / 1e6:.2f} MB")
even = math.ceil(weights / per_image)
print(f"{per_image / 1e3:.0f} kB per image: more than the parameters from a batch of {even}" + reveal(predicted_batch))
small, large = (kept_at(n, half=True) for n in (batches[-1], 2 * batches[-1]))
half_share = (large - small) / batches[-1] / per_image  # per image, so without the copies of the weights
print(f"under autocast: {half_share:.0%} of the bytes per image" + reveal(predicted_half)
      + f", and {(2 * small - large) / 1e6:.1f} MB for the whole batch")  # fmt: skip
growth, factor = kept[-1] / kept[0], batches[-1] / batches[0]
course.claim("the bytes kept for backward grow in proportion to the batch", abs(growth / factor - 1) < 0.05,
             f"{growth:.1f} times the bytes for {factor:.0f} times the batch")  # fmt: skip
course.claim("autocast to 16 bits saves less than half of the bytes kept per image, but more than a tenth",
             0.5 <= half_share < 0.9, f"{half_share:.0%} stay",
             otherwise="Your version of torch keeps other tensors under autocast.")  # fmt: skip

# %% [markdown]
# **Takeaway** From a batch of 16 on, a step keeps more bytes than the parameters take. Autocast keeps 59 % of them per
# image, not half.

# %% [markdown]
# ## What if a block runs twice? · extra
#
# A checkpointed block keeps only its inputs. When backward reaches it, it runs a second time. The second run must give
# what the first one gave, but dropout draws a new mask.
#
# **Predict**: suppose the second run drops other values (a tenth of them). By how much, relative to its norm, is the
# gradient wrong?

# %%
predicted_error = None

# %% [markdown]
# ### Exercise 2 · Checkpoint a block
#
# Write `checkpoint(block, *inputs)` with a `torch.autograd.Function`.
#
# **Must**
# - return what `block(*inputs)` returns; in forward build no graph inside the block, and save only the inputs;
# - in backward run the block again with a graph and the same random numbers, and leave all other random numbers alone.
#
# **Gradients** Inputs and parameters that require one and are used get theirs, the others None. Parameters get theirs
# even if no input requires one.
#
# **You may assume** that inputs and the one output are tensors, and that `block` is an nn.Module.
#
# **Points** 5 · **Extra** · **Difficulty** ●●● · **Minutes** 30 · **Lines** 20
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

# %% tags=["experiment"]
checkpoint_now = course.solved(check.checkpoint)
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
print(f"error of the gradient with another mask: {100 * wrong:.0f} %" + reveal(predicted_error))

# %% tags=["experiment"]
normed = nn.Sequential(nn.Linear(width, width), nn.BatchNorm1d(width)).to(device)
checkpoint_now(normed, torch.randn(64, width, device=device)).sum().backward()
updates = int(normed[1].num_batches_tracked)
course.claim("BatchNorm in a checkpointed block updates its running statistics twice per step", updates == 2, updates)

# %% [markdown]
# **Takeaway** A second run with another dropout mask gives another gradient, 125 % of its norm away, and raises no
# error.

# %% [markdown]
# ## How many segments? · extra
#
# A model of n equal blocks is cut into k segments. At the peak of backward, one segment has run again and each of the
# others keeps its input. That makes (k − 1) · (bytes of an input) + ⌈n / k⌉ · (bytes of a block).
#
# **Predict**: sixteen blocks (at the `laptop` scale). Which number of checkpointed segments keeps the fewest bytes, and
# what share of the plain model's? And how many times as long does a checkpointed step take as a plain step?

# %%
predicted_segments = None
predicted_share = None
predicted_longer = None

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
expected = {k: (k - 1) * input_bytes + math.ceil(size.blocks / k) * block_bytes for k in counts}
timed = seconds_in_turn(
    {"plain": step_of(None), "forward": forward_only} | {k: step_of(k) for k in counts}, size.rounds + 2
)
longer = {k: timed[k] / timed["plain"] for k in counts}
expected_time = 1 + float((timed["forward"] / timed["plain"]).median())
plots.memory_and_time(peaks, expected, plain_bytes, longer, expected_time)

# %% tags=["experiment"]
best = min(expected, key=expected.get)
off_bytes = max(abs(peaks[k] / expected[k] - 1) for k in counts)
times = {k: float(longer[k].median()) for k in counts}
off_time = statistics.median(abs(times[k] / expected_time - 1) for k in counts)
for k in counts:
    print(f"{k:2} segments: {peaks[k] / 1e6:7.2f} MB (predicted {expected[k] / 1e6:7.2f}), {times[k]:.2f} times as "
          f"long (rounds {longer[k].min():.2f} to {longer[k].max():.2f}; predicted {expected_time:.2f})")  # fmt: skip
print(f"best: {best} segments, {expected[best] / plain_bytes:.0%} of the plain model's bytes"
      + reveal(predicted_segments) + reveal(predicted_share))  # fmt: skip
middle_time = statistics.median(times.values())
print(f"a checkpointed step takes {middle_time:.2f} times as long as a plain one" + reveal(predicted_longer))
course.claim("the bytes kept can be predicted from one block, within 15 %", off_bytes < 0.15,
             f"at most {off_bytes:.1%} off")  # fmt: skip
course.claim(
    "checkpointing with one segment saves nothing",
    peaks[1] >= plain_bytes,
    f"{peaks[1] / plain_bytes:.2f} of the plain bytes",
)
course.claim("a checkpointed step takes one more forward pass, within 15 %", off_time < 0.15,
             f"{middle_time:.2f} times as long, predicted {expected_time:.2f}",
             otherwise="Compare the rounds above.")  # fmt: skip

# %% [markdown]
# **Takeaway** Eight segments kept 23 % of the bytes. A checkpointed step took 1.63 times as long, where one more
# forward pass predicted 1.65 times.

# %% [markdown]
# ## Does accumulation equal the large batch? · extra
#
# **Predict**: FashionCNN with BatchNorm, a batch of 256 (at the `laptop` scale) in micro-batches of 8. By how many
# percent does the accumulated gradient differ from the gradient of the whole batch?

# %%
predicted_off = None

# %% [markdown]
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
    "without BatchNorm the accumulated gradient equals the gradient of the whole batch",
    worst < 1e-4,
    f"at most {worst:.1e} off",
)
course.claim(
    "with BatchNorm the accumulated gradient differs from the gradient of the whole batch",
    differences["batch"][-1] > 0.02,
    f"{100 * differences['batch'][-1]:.0f} % off at {micro_batches[-1]} rows",
)
course.claim(
    "with BatchNorm, the smaller the micro-batch, the further its gradient is from the whole batch's",
    differences["batch"] == sorted(differences["batch"]),
    " ".join(f"{d:.2f}" for d in differences["batch"]),
)
print(f"off with BatchNorm: {100 * differences['batch'][-1]:.0f} %" + reveal(predicted_off))
course.claim(
    "BatchNorm's running statistics are updated once per micro-batch", counted == whole // micro_batches[-1], counted
)

# %% [markdown]
# **Takeaway** Accumulation equals the large batch, except with BatchNorm: micro-batches of 8 gave a gradient that was
# 17 % off.
#
# ## References
#
# 1. T. Chen, B. Xu, C. Zhang, C. Guestrin, Training Deep Nets with Sublinear Memory Cost, 2016.
#    [arXiv:1604.06174](https://arxiv.org/abs/1604.06174)
# 2. C. Coleman et al., DAWNBench: An End-to-End Deep Learning Benchmark and Competition, 2017: time to accuracy.
# 3. H. Xiao, K. Rasul, R. Vollgraf, Fashion-MNIST, 2017. [arXiv:1708.07747](https://arxiv.org/abs/1708.07747)
