# %% [markdown]
# # Faster training, part 2: Reach the target in fewer steps
#
# **Which learning rate, schedule and batch reach the same accuracy in fewer steps?**
#
# A training ends sooner if it needs fewer steps. Checklists recommend the one-cycle schedule and the largest batch that
# fits. Here you try both on a small network. Validation images decide every choice; the test images stay untouched.
#
# **You will be able to**
#
# - write the one-cycle schedule, and compare schedules fairly;
# - find a learning rate in a hundred steps;
# - find the largest batch that fits, and decide whether to use it;
# - say how AdamW differs from Adam with L2, and what clipping protects from.
#
# **Minutes** 27 core · 119 in all
#
# **Needs** nothing; unit 03 explains linear scaling and warm-up
#
# Run all cells; sections marked "extra" can be read later.

# %% locked="setup"
import copy
import functools
import itertools
import math
import statistics

import torch
from torch import nn

import course
from course.checks import faster_training as check
from course.datasets import fashion
from course.learner.predictions import leaders, reveal, reveal_leader
from course.measure.comparison import compare
from course.plots import faster_training as plots

print(course.machine())
size, device = course.sizes("06_faster_training"), course.device()
images, labels, held_images, held_labels = fashion.with_validation(fashion.load(size.dataset))
images, labels = images[: size.few_images].to(device), labels[: size.few_images].to(device)
few = size.few_images // 2
held_images, held_labels = held_images[:few].to(device), held_labels[:few].to(device)
loss_of = nn.functional.cross_entropy
steps_per_epoch = len(labels) // size.few_batch
n_steps = size.few_epochs * steps_per_epoch
print(f"{len(labels):,} training images, {len(held_labels):,} for validation; {n_steps} steps are a training")

# %% [markdown]
# The network is small: three convolutions with BatchNorm and one linear layer. `train` calls `set_step(optimizer,
# step)` before each step, and that is where a schedule sets the learning rate.


# %% locked="training"
def network(seed, norm=nn.BatchNorm2d):
    """A small convolutional network with initial weights from `seed`."""
    torch.manual_seed(seed)
    layers, channels = [], [1, size.few_width, 2 * size.few_width, 4 * size.few_width]
    for before, after in itertools.pairwise(channels):
        layers += [nn.Conv2d(before, after, 3, stride=2, padding=1), norm(after), nn.ReLU()]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(channels[-1] * 16, 10)).to(device)


def batches_of(batch_size, seed, among=None):
    """Batches of training images without end, in a new order in each epoch; `among` the first so many images only."""
    rng, n = torch.Generator().manual_seed(seed), among or len(labels)
    while True:
        for rows in torch.randperm(n, generator=rng).to(device).split(batch_size):
            if len(rows) == min(batch_size, n):  # the last batch of an epoch may be smaller: left out
                yield images[rows], labels[rows]


def accuracy_of(model):
    """Share of the validation images that `model` classifies correctly."""
    model.eval()
    with torch.no_grad():
        found = torch.cat([model(part).argmax(1) for part in held_images.split(1000)])
    model.train()
    return (found == held_labels).float().mean().item()


def sgd(model):
    """SGD with momentum; its learning rate is set before each step."""
    return torch.optim.SGD(model.parameters(), lr=0.0, momentum=0.9)


def constant(lr):
    """A function that sets the learning rate `lr` before each step."""

    def set_step(optimizer, step):
        optimizer.param_groups[0]["lr"] = lr

    return set_step


def train(set_step, steps, seed, make_optimizer=sgd, among=None):
    """The validation accuracy of a new network after `steps` steps."""
    model, batches = network(seed), batches_of(size.few_batch, seed, among)
    optimizer = make_optimizer(model)
    for step in range(steps):
        x, y = next(batches)
        set_step(optimizer, step)
        optimizer.zero_grad()
        loss_of(model(x), y).backward()
        optimizer.step()
    return accuracy_of(model)


# %% [markdown]
# ## Which learning rate? · extra
#
# How do you find a learning rate without training again and again? Smith's *learning rate range test* (2017, section
# 3.3) raises the learning rate linearly during one short run and plots the accuracy. You write the variant of fastai,
# which multiplies it by a constant factor per step and plots the loss.
#
# **Predict**: SGD with momentum 0.9, batches of 64 (at the `laptop` scale). At which learning rate is the loss lowest?

# %%
predicted_lowest = None

# %% [markdown]
# ### Exercise 1 · The range test
#
# Run the test. Afterwards, model and optimizer must be as before; only gradients may differ.
#
# **Must**
# - make step $i$ with learning rate `lowest * (highest / lowest) ** (i / (steps - 1))`, and note its loss $\ell_i$
#   before the update;
# - return the learning rates and the smoothed losses $a_i / (1 - s^{i+1})$, where $a_i = s\,a_{i-1} + (1 - s)\,\ell_i$
#   and $a_{-1} = 0$;
# - stop when a smoothed loss is not finite or exceeds `stop` times the lowest so far, without update or entry for that
#   step.
#
# **You may assume** that `batches` does not end.
#
# **Points** 5 · **Extra** · **Difficulty** ●●● · **Minutes** 22 · **Lines** 18
#
# **Source** fastai's learning rate finder, after Smith 2017, arXiv:1506.01186.
#
# <details><summary>Hint 1</summary>
#
# `model.state_dict()` returns the tensors of the model, not copies. What is in them after the test?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Which comparison with NaN is true: `loss > limit`, `loss <= limit`, or neither? And what does training change apart
# from the weights? Count BatchNorm's statistics, the optimizer's momentum, its learning rate.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# `copy.deepcopy` both state dicts first, and load them at the end. In the loop: set `group["lr"]` of every group,
# `zero_grad`, forward, smooth, `break` if `not math.isfinite(smoothed) or (losses and smoothed > stop * min(losses))`,
# append, backward, step.
#
# </details>


# %% solution="lr_range_test"
def lr_range_test(model, optimizer, batches, loss_fn, lowest=1e-3, highest=10.0, steps=100, smoothing=0.9, stop=4.0):
    """Learning rates and smoothed losses of a run whose learning rate grows at each step.

    Args:
        model: called with inputs; in train mode.
        optimizer: of the model's parameters, with one or more groups; all get the same learning rate.
        batches: iterator of (inputs, labels).
        loss_fn: called with (outputs, labels), gives a scalar tensor.
        lowest, highest: learning rates of the first and of the last step.
        steps: at least 2.
        smoothing: s, at least 0 and less than 1.
        stop: multiple of the lowest smoothed loss at which the test ends.

    Returns: (lrs, losses), two lists of float, equally long.
    """
    ### BEGIN SOLUTION
    saved_model, saved_optimizer = copy.deepcopy(model.state_dict()), copy.deepcopy(optimizer.state_dict())
    lrs, losses, average = [], [], 0.0
    for step in range(steps):
        inputs, targets = next(batches)
        lr = lowest * (highest / lowest) ** (step / (steps - 1))
        for group in optimizer.param_groups:
            group["lr"] = lr
        optimizer.zero_grad()
        loss = loss_fn(model(inputs), targets)
        average = smoothing * average + (1 - smoothing) * loss.item()
        smoothed = average / (1 - smoothing ** (step + 1))
        if not math.isfinite(smoothed) or (losses and smoothed > stop * min(losses)):
            break
        lrs.append(lr)
        losses.append(smoothed)
        loss.backward()
        optimizer.step()
    model.load_state_dict(saved_model)
    optimizer.load_state_dict(saved_optimizer)
    return lrs, losses
    ### END SOLUTION


# %% test="lr_range_test-visible" points=3
check.lr_range_test(lr_range_test)

# %% test="lr_range_test-hidden" points=2
### BEGIN HIDDEN TESTS
check.lr_range_test(lr_range_test, seed=21)
### END HIDDEN TESTS

# %% [markdown]
# Rules of thumb choose a third to a tenth of the learning rate at the lowest loss. The cell takes a quarter of it. Then
# it trains with this choice and with four other constant learning rates.

# %% tags=["experiment"]
range_test_now = course.solved(check.lr_range_test)
model = network(0)
lrs, losses = range_test_now(model, sgd(model), batches_of(size.few_batch, 0), loss_of, steps=size.few_range)
at_lowest = lrs[losses.index(min(losses))]
choice = at_lowest / 4
factors = (1 / 16, 1 / 4, 1, 4, 16)
grid = {factor: train(constant(factor * choice), n_steps, seed=0) for factor in factors}
plots.loss_against_lr(lrs, losses, choice, {factor * choice: found for factor, found in grid.items()})

# %% tags=["experiment"]
print(f"lowest loss at {at_lowest:.3g}" + reveal(predicted_lowest))
print(f"choice {choice:.3g}; the test ended after {len(lrs)} steps at {lrs[-1]:.3g}")
for factor, found in grid.items():
    print(f"constant learning rate {factor * choice:8.4f}: validation accuracy {found:.3f}")
best = max(grid, key=grid.get)
otherwise = "Look at the curve: does the loss have a minimum well before `highest`?"
course.claim("the best of five learning rates is the choice of the range test, or its neighbour on the grid",
             best in factors[1:4], f"best at {best:g} times the choice", otherwise=otherwise)  # fmt: skip
course.claim("the range test's choice is better than both ends of the grid",
             grid[1] > max(grid[1 / 16], grid[16]),
             f"{grid[1]:.3f}, at the ends {grid[1 / 16]:.3f} and {grid[16]:.3f}, best {grid[best]:.3f}",
             otherwise=otherwise)  # fmt: skip

# %% [markdown]
# **Takeaway** One short run finds the order of magnitude of a good learning rate; a grid around it finds the rest.

# %% [markdown]
# ## Is one cycle better than plain decay?
#
# Smith and Topin report *superconvergence* (2018, arXiv:1708.07120): with one cycle of a very large learning rate, some
# networks reach the accuracy of a usual training in a fraction of its steps. Steps count from 0, so a rise of $h$ steps
# ends at step $h - 1$.
#
# ### Exercise 2 · One cycle
#
# **Must** return `(lr, momentum)` on straight lines between these points, with $T$ = `epochs * steps_per_epoch`,
# `low, high = momenta` and $h$ = `cycle * T / 2`, not rounded, so points may lie between steps:
#
# | step | learning rate | momentum |
# |---|---|---|
# | $0$ | `max_lr / start` | high |
# | $h - 1$ | `max_lr` | low |
# | $2h - 2$ | `max_lr / start` | high |
# | $T - 1$ | `max_lr / start / final` | high |
#
# **Raises** ValueError for a step outside 0 to $T - 1$.
#
# **You may assume** $h > 2$, `cycle` < 1.
#
# **Points** 4 · **Core** · **Difficulty** ●●○ · **Minutes** 16 · **Lines** 10
#
# **Not allowed** `torch.optim.lr_scheduler`.
#
# **Source** Smith 2018, arXiv:1803.09820, section 4.
#
# <details><summary>Hint 1</summary>
#
# On which of the three lines is the step, and which share of that line has passed?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Go through the three pairs of neighbouring points, and take the first pair whose right end is at or past the step.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# With `share = (step - left) / (right - left)`: `a + share * (b - a)` for the learning rate, and the same with the
# momenta.
#
# </details>


# %% solution="one_cycle"
def one_cycle(step, epochs, steps_per_epoch, max_lr, cycle=0.9, start=10.0, final=1e4, momenta=(0.85, 0.95)):
    """Learning rate and momentum of a step in a training with one cycle.

    Args:
        step: of the whole training, from 0 to epochs * steps_per_epoch - 1.
        epochs, steps_per_epoch: length of the training.
        max_lr: learning rate at the top.
        cycle: share of the training that the way up and down takes.
        start: the learning rate begins at max_lr / start.
        final: it ends at max_lr / start / final.
        momenta: (momentum at the top of the learning rate, momentum at its bottom).

    Returns: (float, float).
    Raises: ValueError for a step outside of the training.
    """
    ### BEGIN SOLUTION
    total = epochs * steps_per_epoch
    if not 0 <= step < total:
        raise ValueError(f"step {step} is not in a training of {total} steps, 0 to {total - 1}")
    half, base, (low, high) = cycle * total / 2, max_lr / start, momenta
    points = [(0, base, high), (half - 1, max_lr, low), (2 * half - 2, base, high), (total - 1, base / final, high)]
    line = sum(step > right for right, *_ in points[1:3])
    (left, lr, momentum), (right, next_lr, next_momentum) = points[line : line + 2]
    share = (step - left) / (right - left)
    return lr + share * (next_lr - lr), momentum + share * (next_momentum - momentum)
    ### END SOLUTION


# %% test="one_cycle-visible" points=2
check.one_cycle(one_cycle)

# %% test="one_cycle-hidden" points=2
### BEGIN HIDDEN TESTS
check.one_cycle(one_cycle, seed=18)
### END HIDDEN TESTS

# %% [markdown]
# You will compare it with four other schedules. "Cyclic" is Smith's earlier schedule of triangles, each half as high as
# the one before. "One cycle, per epoch" has the classic bug: its scheduler is called once per epoch.

# %% tags=["experiment"]
one_cycle_now = course.solved(check.one_cycle)


def triangles(step, half, low, high):
    """Learning rate that rises from `low` and falls back every 2 * half steps; each triangle is half as high."""
    number, place = divmod(step, 2 * half)
    return low + (high - low) * (1 - abs(place / half - 1)) / 2**number


def contestants(peak, steps):
    """{name: step -> (learning rate, momentum)} of schedules with the same highest learning rate."""
    epochs = steps // steps_per_epoch

    def cycle_of(step):
        return one_cycle_now(step, epochs, steps_per_epoch, peak)

    return {
        "constant": lambda step: (peak, 0.9),
        "cyclic": lambda step: (triangles(step, steps / 6, peak / 10, peak), 0.9),
        "cosine": lambda step: (peak * (1 + math.cos(math.pi * step / steps)) / 2, 0.9),
        "one cycle": cycle_of,
        "one cycle, per epoch": lambda step: cycle_of(step // steps_per_epoch),
    }


highest = size.few_peaks[0]
given = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0, momentum=0.9)
theirs = torch.optim.lr_scheduler.OneCycleLR(
    given, max_lr=highest, total_steps=n_steps, pct_start=0.45, anneal_strategy="linear", div_factor=10,
    final_div_factor=1e4, base_momentum=0.85, max_momentum=0.95, three_phase=True,
)  # fmt: skip
apart = 0.0
for step in range(n_steps):
    mine = one_cycle_now(step, size.few_epochs, steps_per_epoch, highest)
    apart = max(apart, abs(given.param_groups[0]["lr"] - mine[0]), abs(given.param_groups[0]["momentum"] - mine[1]))
    given.step()
    theirs.step() if step < n_steps - 1 else None
course.claim("your one cycle equals torch's OneCycleLR up to rounding", apart < 1e-12, f"{apart:.1e} at most apart")
shapes = {name: [of(step) for step in range(n_steps)] for name, of in contestants(highest, n_steps).items()}
plots.schedules({name: [lr for lr, _ in values] for name, values in shapes.items()})

# %% [markdown]
# Each schedule runs with the same three seeds and with two peaks, one four times as high as the other. The better peak
# counts. The bug runs at the peak of one cycle.
#
# **Predict**: by how many points of validation accuracy is one cycle ahead of cosine decay at equal steps?

# %%
predicted_points = None


# %% tags=["experiment"]
def sets(schedule):
    """A function that sets learning rate and momentum of `schedule` before each step."""

    def set_step(optimizer, step):
        group = optimizer.param_groups[0]
        group["lr"], group["momentum"] = schedule(step)

    return set_step


seeds, peaks, results = range(1, 1 + size.few_seeds), {}, {}
for name in shapes:
    tried = [peaks["one cycle"]] if "per epoch" in name else size.few_peaks  # the bug at the right peak
    of = {p: [train(sets(contestants(p, n_steps)[name]), n_steps, seed) for seed in seeds] for p in tried}
    peaks[name] = max(of, key=lambda peak: sum(of[peak]))
    results[name] = of[peaks[name]]
twice, peaks[twice] = "constant, twice the steps", peaks["constant"]
results[twice] = [train(constant(peaks[twice]), 2 * n_steps, seed) for seed in seeds]
plots.accuracies(results)

# %% tags=["experiment"]
middle = {name: statistics.mean(found) for name, found in results.items()}
for name, found in results.items():
    print(f"{name:<26} peak {peaks[name]:6.3f}: {middle[name]:.3f} ({min(found):.3f} to {max(found):.3f})")


def ahead_of(name, other):
    """(points of accuracy by which `name` is ahead of `other`, seed by seed; their mean and themselves as text)."""
    points = [100 * (a - b) for a, b in zip(results[name], results[other], strict=True)]
    return points, f"{statistics.mean(points):+.1f} points; per seed " + " ".join(f"{p:+.1f}" for p in points)


points, text = ahead_of("one cycle", "cosine")
print(f"one cycle against cosine: {text}" + reveal(predicted_points))
otherwise = "Three seeds cannot tell these schedules apart. Look at the points per seed."
course.claim("one cycle is ahead of cosine decay with every seed", min(points) > 0, text,
             otherwise="Here the cycle gains nothing beyond the decay.")  # fmt: skip
for better, worse, claim in (
    (
        "one cycle",
        twice,
        "one cycle ends above a constant learning rate with twice the steps, in the mean of the seeds",
    ),
    ("cosine", "constant", "cosine decay ends above a constant learning rate, in the mean of the seeds"),
    ("cosine", "cyclic", "cosine decay ends above the cyclic schedule, in the mean of the seeds"),
    ("one cycle", "one cycle, per epoch", "one cycle ends higher if it is set per step than if per epoch"),
):
    points, text = ahead_of(better, worse)
    course.claim(claim, statistics.mean(points) > 0, text, otherwise=otherwise)

# %% [markdown]
# Three seeds and two peaks are too few for a sentence about one point: on the recorded machines, one cycle is ahead of
# cosine with every seed here and not there. A schedule that ends low is the larger effect.
#
# **Takeaway** When you test a schedule, include plain decay, tune every contestant equally, and use enough seeds for
# the difference that you want to see.

# %% [markdown]
# ## Is the largest batch the fastest? · extra
#
# How large a batch fits is a question about memory. Which batch reaches the target first is a question about time.
#
# ### Exercise 3 · How large can it get?
#
# `trial(n)` makes a step with a batch of `n`, and raises an error if that does not fit. Find the largest `n` ≤ `limit`
# that fits.
#
# **Must**
# - try 1, 2, 4, … up to `limit`, then bisect between the largest that fits and the smallest that does not, nothing
#   twice;
# - treat only `torch.OutOfMemoryError`, and a RuntimeError that says "out of memory", as not fitting;
# - hold no reference to the error in the next trial: its traceback holds the failed step's tensors.
#
# **Raises** ValueError if not even one sample fits.
#
# **Points** 4 · **Extra** · **Difficulty** ●●○ · **Minutes** 20 · **Lines** 18
#
# **Source** PyTorch FAQ, "My out of memory exception handler can't allocate memory".
#
# <details><summary>Hint 1</summary>
#
# As long as your code is inside `except ... as error:`, who holds the error? What does its traceback lead to?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Write a helper `fits(n)` that returns True or False. When it has returned, the error is gone.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# Keep `good`, the largest that fits, and `bad`, the smallest that does not, or `limit + 1`. Double `good` until that
# fails or passes the limit; then halve the gap while `bad - good > 1`.
#
# </details>


# %% solution="largest_batch"
def largest_batch(trial, limit=65_536):
    """The largest batch that fits, an int: by doubling, then by bisection.

    Args:
        trial: called with a batch size; returns if it fits, raises an out-of-memory error if it does not.
        limit: largest batch size that is tried.

    Raises: ValueError if a batch of one does not fit; whatever else `trial` raises.
    """

    ### BEGIN SOLUTION
    def fits(n):
        try:
            trial(n)
        except RuntimeError as error:  # torch.OutOfMemoryError is one
            if not isinstance(error, torch.OutOfMemoryError) and "out of memory" not in str(error):
                raise
            return False
        return True

    good, bad = 0, limit + 1
    while bad - good > 1:
        n = min(max(1, 2 * good), limit) if bad > limit else (good + bad) // 2
        if fits(n):
            good = n
        else:
            bad = n
    if good == 0:
        raise ValueError("not even a batch of one fits into the memory")
    return good
    ### END SOLUTION


# %% test="largest_batch-visible" points=2
check.largest_batch(largest_batch)

# %% test="largest_batch-hidden" points=2
### BEGIN HIDDEN TESTS
check.largest_batch(largest_batch, seed=7)
### END HIDDEN TESTS

# %% [markdown]
# The first cell sets a budget: a step that saves more activations raises CUDA's error. The second trains to the same
# accuracy with three batch sizes. The learning rate stays, or grows in proportion to the batch (unit 03).
#
# **Predict**: which batch size reaches the target in the least time, with the learning rate scaled?

# %%
predicted_fastest = None

# %% tags=["experiment"]
largest_now = course.solved(check.largest_batch)
model = network(0)


def step_within_budget(n):
    """Make a step with a batch of n; raise OutOfMemoryError when it keeps more than the budget."""
    left = size.few_megabytes * 2**20

    def keep(tensor):
        nonlocal left
        left -= tensor.numel() * tensor.element_size()
        if left < 0:
            raise torch.OutOfMemoryError(f"a batch of {n} exceeds the budget of {size.few_megabytes} MB")
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        loss_of(model(images[:n]), labels[:n]).backward()


most = largest_now(step_within_budget, limit=len(labels))
print(f"{size.few_megabytes} MB: a batch of {most:,} fits, {most + 1:,} does not")


# %% tags=["experiment"]
@functools.cache  # at the base batch, scaled and unscaled are the same
def steps_to(target, batch_size, lr, seed):
    """Steps of a training until the accuracy `target`, infinity if it is not reached."""
    model, batches = network(seed), batches_of(batch_size, seed)
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    every = max(1, len(labels) // (4 * batch_size))  # evaluated four times per epoch
    for step in range(1, 1 + max(size.few_target_steps, size.few_target_epochs * len(labels) // batch_size)):
        x, y = next(batches)
        optimizer.zero_grad()
        loss_of(model(x), y).backward()
        optimizer.step()
        if step % every == 0 and accuracy_of(model) >= target:
            return step
    return math.inf


def step_of(batch_size):
    """A function that makes one step, always with the same batch."""
    model, (x, y) = network(0), next(batches_of(batch_size, 0))
    optimizer = torch.optim.SGD(model.parameters(), lr=size.few_lr, momentum=0.9)

    def step():
        optimizer.zero_grad()
        loss_of(model(x), y).backward()
        optimizer.step()
        if device.type == "cuda":
            torch.cuda.synchronize()

    return step


target = middle["constant"] - 0.05
sizes = sorted({size.few_batch, 4 * size.few_batch, most})
timed = compare({b: step_of(b) for b in sizes}, device=device, seconds=size.pair_seconds)
per_step = {b: timed.time(b).estimate for b in sizes}
reached = {"scaled": {}, "unscaled": {}}
for name, by_batch in reached.items():
    for b in sizes:
        lr = size.few_lr * (b / size.few_batch if name == "scaled" else 1)
        steps = [steps_to(target, b, lr, seed) for seed in seeds]
        by_batch[b] = [(n, n * per_step[b]) for n in steps]
plots.to_target(reached, target)

# %% tags=["experiment"]
middle_of = {name: {b: [statistics.median(column) for column in zip(*runs, strict=True)] for b, runs in rows.items()}
             for name, rows in reached.items()}  # fmt: skip
for name, by_batch in middle_of.items():
    for b, (steps, seconds) in by_batch.items():
        line = f"{steps:4.0f} steps of {1000 * per_step[b]:4.1f} ms, {seconds:.2f} s in all"
        print(f"batch {b:>6,} {name:<9}", line if steps < math.inf else "not reached by most seeds")
scaled = middle_of["scaled"]
of_base = [seconds for _, seconds in reached["scaled"][size.few_batch]]
noise = max(of_base) - min(of_base)
print(f"a batch of {size.few_batch}: the seeds spread over {noise:.2f} s")
fastest = leaders({str(b): seconds for b, (_, seconds) in scaled.items()}, noise)
print("fastest with the learning rate scaled: a batch of " + reveal_leader(predicted_fastest, fastest))
course.claim("the largest batch that fits needs fewer steps than the base batch, but is not faster to the target",
             scaled[most][0] < scaled[size.few_batch][0] and scaled[most][1] >= scaled[size.few_batch][1],
             f"{scaled[most][1]:.2f} s against {scaled[size.few_batch][1]:.2f} s",
             otherwise="Compare the milliseconds per step of the three batches.")  # fmt: skip
course.claim("with the learning rate unscaled, the largest batch needs more steps, or never arrives",
             middle_of["unscaled"][most][0] > scaled[most][0],
             f"{middle_of['unscaled'][most][0]:.0f} against {scaled[most][0]:.0f} (inf: never)",
             otherwise="Compare the two rows of each batch.")  # fmt: skip

# %% [markdown]
# **Takeaway** Fewer steps are not less time: multiply the steps by the time of one, on the machine that you train on.
#
# Far above the *critical batch*, more samples per step save hardly any steps (McCandlish and
# colleagues, arXiv:1812.06162).

# %% [markdown]
# ## What does AdamW change in Adam? · extra
#
# Adam divides the gradient by its usual size. With an L2 penalty, it divides the penalty's gradient $\lambda w$ as
# well. AdamW applies this decay separately.
#
# ### Exercise 4 · One step of AdamW
#
# Change the parameters, their `means` $m$ and their `squares` $v$ in place, by one step. $t$ = `step` counts from 1.
#
# **Must**
# - update $m \leftarrow \beta_1 m + (1 - \beta_1) g$, $v \leftarrow \beta_2 v + (1 - \beta_2) g^2$;
# - move $w$ by $-\alpha\,\hat m / (\sqrt{\hat v} + \epsilon)$, $\hat m = m / (1 - \beta_1^t)$,
#   $\hat v = v / (1 - \beta_2^t)$;
# - if `decoupled`, also move it by $-\alpha\lambda w$ of the old $w$, else use $g + \lambda w$ in place of $g$ without
#   changing the gradients.
#
# **Not allowed** `torch.optim`.
#
# **Points** 4 · **Extra** · **Difficulty** ●●○ · **Minutes** 18 · **Lines** 9
#
# **Source** Loshchilov and Hutter 2019, arXiv:1711.05101, Algorithm 2, as `torch.optim.AdamW` has it.
#
# <details><summary>Hint 1</summary>
#
# Which of `w = w * 0.9` and `w.mul_(0.9)` changes the tensor that the caller holds?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `mean.lerp_(grad, 1 - beta1)` is the first line; `square.mul_(beta2).addcmul_(grad, grad, value=1 - beta2)` the
# second. `w.mul_(1 - lr * weight_decay)` before the move is the decay.
#
# </details>


# %% solution="adamw_step"
def adamw_step(
    params, grads, means, squares, step, lr, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01, decoupled=True
):
    """Change `params`, `means` and `squares` in place by one step of AdamW, or of Adam with an L2 penalty.

    Args:
        params: list of float tensors, which may be leaves that require a gradient.
        grads: list of their gradients, same shapes; not changed.
        means, squares: lists of running means of the gradients and of their squares, same shapes.
        step: number of this step, from 1.
        lr, betas, eps: as in torch.optim.AdamW.
        weight_decay: strength of the decay.
        decoupled: True for AdamW, False for Adam with L2.
    """
    ### BEGIN SOLUTION
    beta1, beta2 = betas
    with torch.no_grad():
        for w, grad, mean, square in zip(params, grads, means, squares, strict=True):
            if decoupled:
                w.mul_(1 - lr * weight_decay)
            else:
                grad = grad + weight_decay * w
            mean.mul_(beta1).add_(grad, alpha=1 - beta1)
            square.mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
            size = (square / (1 - beta2**step)).sqrt() + eps
            w.sub_(lr / (1 - beta1**step) * mean / size)
    ### END SOLUTION


# %% test="adamw_step-visible" points=2
check.adamw_step(adamw_step)

# %% test="adamw_step-hidden" points=2
### BEGIN HIDDEN TESTS
check.adamw_step(adamw_step, seed=9)
### END HIDDEN TESTS

# %% [markdown]
# The first cell moves two groups of 1,000 weights that start at 1. Their gradients are noise around 0, of standard
# deviation 10 and 0.1. The second cell trains on few images, with three decays each.

# %% tags=["experiment"]
adamw_now = course.solved(check.adamw_step)
ends = {}
for name, decoupled in (("AdamW", True), ("Adam with L2", False)):
    rng, scale = torch.Generator().manual_seed(5), torch.tensor([10.0, 0.1])
    weights, mean, square = torch.ones(1000, 2), torch.zeros(1000, 2), torch.zeros(1000, 2)
    for step in range(1, 501):
        noise = torch.randn(1000, 2, generator=rng) * scale
        adamw_now([weights], [noise], [mean], [square], step, lr=0.001, weight_decay=1.0, decoupled=decoupled)
    ends[name] = weights.mean(0).tolist()
for name, (large, small) in ends.items():
    print(f"{name:<13} mean weight with large gradients {large:.2f}, with small ones {small:.2f}")
course.claim("AdamW pulls weights with large and with small gradients alike",
             abs(ends["AdamW"][0] - ends["AdamW"][1]) < 0.05,
             f"{ends['AdamW'][0]:.2f} and {ends['AdamW'][1]:.2f}")  # fmt: skip
course.claim("Adam with L2 pulls weights with large gradients less",
             ends["Adam with L2"][0] > ends["Adam with L2"][1] + 0.1,
             f"{ends['Adam with L2'][0]:.2f} against {ends['Adam with L2'][1]:.2f}")  # fmt: skip


# %% tags=["experiment"]
class Adam(torch.optim.Optimizer):
    """Your step as an optimizer."""

    def __init__(self, params, decay, decoupled):
        super().__init__(params, {"lr": 0.0})
        self.decay, self.decoupled, self.steps = decay, decoupled, 0
        self.weights = self.param_groups[0]["params"]
        self.means, self.squares = ([torch.zeros_like(w) for w in self.weights] for _ in range(2))

    def step(self):
        """Move all weights."""
        self.steps += 1
        adamw_now(self.weights, [w.grad for w in self.weights], self.means, self.squares, self.steps,
                  self.param_groups[0]["lr"], weight_decay=self.decay, decoupled=self.decoupled)  # fmt: skip


def adam(model, decay, decoupled):
    """The optimizer of `model`."""
    return Adam(model.parameters(), decay, decoupled)


decays = (0.0, 0.1, 1.0)


def train_adam(set_step, decay, decoupled):
    """Validation accuracies of trainings on few images, one per seed."""
    make = functools.partial(adam, decay=decay, decoupled=decoupled)
    return [train(set_step, size.few_decay_steps, seed, make, len(labels) // 8) for seed in seeds]


def cycle(peak):
    """A function that sets the learning rate of one cycle up to `peak`."""
    return sets(lambda step: one_cycle_now(step, 1, size.few_decay_steps, peak))


with_cycle = {peak: train_adam(cycle(peak), 0.1, True) for peak in (0.01, 0.03)}
no_cycle = max((train_adam(constant(lr), 0.1, True) for lr in (0.003, 0.01)), key=sum)
peak = max(with_cycle, key=lambda peak: sum(with_cycle[peak]))
by_decay = {name: [train_adam(cycle(peak), decay, decoupled) for decay in decays]
            for name, decoupled in (("AdamW", True), ("Adam with L2", False))}  # fmt: skip
plots.over_decay(decays, by_decay)

# %% tags=["experiment"]
for name, rows in by_decay.items():
    print(f"{name:<13}", "  ".join(f"{d:g}: {statistics.mean(row):.3f}" for d, row in zip(decays, rows, strict=True)))
best_of = {name: max(rows, key=statistics.mean) for name, rows in by_decay.items()}
ahead = 100 * (statistics.mean(best_of["AdamW"]) - statistics.mean(best_of["Adam with L2"]))
spread = 100 * max(max(row) - min(row) for row in best_of.values())
gained = 100 * (statistics.mean(with_cycle[peak]) - statistics.mean(no_cycle))
course.claim("for AdamW the better of two one-cycle peaks ends above the better of two constant learning rates",
             gained > 0, f"{gained:+.1f} points, seeds spread over {spread:.1f}",
             otherwise="Compare the difference with the spread of the seeds.")  # fmt: skip
course.claim("with the best decay of each, AdamW and Adam with L2 differ by less than the spread of the seeds",
             abs(ahead) < spread, f"{ahead:+.1f} points, seeds spread over {spread:.1f}",
             otherwise="Compare the difference with the spread of the seeds.")  # fmt: skip
strong = {name: statistics.mean(rows[2]) for name, rows in by_decay.items()}
course.claim("a decay of 1 costs Adam with L2 more than AdamW", strong["Adam with L2"] < strong["AdamW"],
             f"{strong['Adam with L2']:.3f} against {strong['AdamW']:.3f}")  # fmt: skip

# %% [markdown]
# **Takeaway** The same decay pulls far harder in Adam with L2 than in AdamW: never copy the number, tune it for each.

# %% [markdown]
# ## What does clipping protect from? · extra
#
# ### Exercise 5 · Clip by the joint norm
#
# Scale all gradients of `params` in place by one factor, so that their joint Euclidean norm is at most `max_norm`.
#
# **Must**
# - return the joint norm before clipping, a scalar tensor;
# - leave gradients as they are if that norm is at most `max_norm`, and skip parameters whose `grad` is None;
# - not wait for the device: no `.item()`, no `if` on a tensor.
#
# **Not allowed** `torch.nn.utils`.
#
# **Points** 3 · **Extra** · **Difficulty** ●●○ · **Minutes** 10 · **Lines** 6
#
# **Source** Pascanu, Mikolov and Bengio 2013, arXiv:1211.5063, Algorithm 1.
#
# <details><summary>Hint 1</summary>
#
# Is the norm of all tensors together the sum of their norms, or the root of the sum of their squares?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `factor = (max_norm / norm).clamp(max=1)` is a tensor, and `grad.mul_(factor)` takes one. What is the factor if the
# norm is 0?
#
# </details>


# %% solution="clip_grad_norm"
def clip_grad_norm(params, max_norm):
    """Scale the gradients of `params` in place to a joint norm of at most `max_norm`; return the norm they had.

    Args:
        params: list of tensors, of which some may have no gradient.
        max_norm: float above 0.

    Returns: float tensor of shape (), on the device of the gradients.
    """
    ### BEGIN SOLUTION
    grads = [p.grad for p in params if p.grad is not None]
    norm = torch.stack([grad.norm() for grad in grads]).norm()
    factor = (max_norm / norm).clamp(max=1.0)
    for grad in grads:
        grad.mul_(factor)
    return norm
    ### END SOLUTION


# %% test="clip_grad_norm-visible" points=2
check.clip_grad_norm(clip_grad_norm)

# %% test="clip_grad_norm-hidden" points=1
### BEGIN HIDDEN TESTS
check.clip_grad_norm(clip_grad_norm, seed=6)
### END HIDDEN TESTS

# %% [markdown]
# A network without BatchNorm trains. Halfway, the images of one batch are multiplied by 30. From there on, gradients
# are clipped or not; the limit is the largest norm of the quarter before.
#
# **Predict**: how many points of accuracy does the broken batch cost without clipping?

# %%
predicted_loss_of_points = None

# %% tags=["experiment"]
clip_now = course.solved(check.clip_grad_norm)


def train_with_spike(spike, clip, seed):
    """(losses of all steps, validation accuracy) of a network without BatchNorm."""
    model, batches = network(seed, norm=lambda channels: nn.Identity()), batches_of(size.few_batch, seed)
    optimizer = torch.optim.SGD(model.parameters(), lr=size.few_lr, momentum=0.9)
    found, norms, limit = [], [], math.inf
    for step in range(n_steps):
        x, y = next(batches)
        if spike and step == n_steps // 2:
            x = 30 * x
        optimizer.zero_grad()
        loss = loss_of(model(x), y)
        loss.backward()
        if clip and step == n_steps // 2:
            limit = torch.stack(norms[n_steps // 4 :]).max().item()
        norms.append(clip_now(list(model.parameters()), limit))
        optimizer.step()
        found.append(loss.detach())
    return torch.stack(found).tolist(), accuracy_of(model)


settings = {"clean": (False, False), "clean, clipped": (False, True),
            "broken batch": (True, False), "broken batch, clipped": (True, True)}  # fmt: skip
spiked = {name: [train_with_spike(*setting, seed) for seed in seeds] for name, setting in settings.items()}
plots.spikes({name: found[0][0] for name, found in spiked.items()})

# %% tags=["experiment"]
after = {name: [accuracy for _, accuracy in found] for name, found in spiked.items()}
for name, found in after.items():
    print(f"{name:<22} {statistics.mean(found):.3f} ({min(found):.3f} to {max(found):.3f})")
lost = 100 * (statistics.mean(after["clean"]) - statistics.mean(after["broken batch"]))
print(f"the broken batch costs {lost:.1f} points" + reveal(predicted_loss_of_points))
lost_clipped = 100 * (statistics.mean(after["clean"]) - statistics.mean(after["broken batch, clipped"]))
otherwise = "Look at the curves: when does the accuracy return?"
course.claim("one broken batch costs accuracy that half a training does not win back", lost > 2, f"{lost:.1f} points",
             otherwise=otherwise)  # fmt: skip
course.claim(
    "with clipping, a broken batch costs less than a third of the accuracy that it costs without",
    lost_clipped < lost / 3,
    f"{lost_clipped:.1f} points",
    otherwise=otherwise,
)
change = 100 * (statistics.mean(after["clean, clipped"]) - statistics.mean(after["clean"]))
course.claim("without a broken batch, clipping changes accuracy by less than two points", abs(change) < 2,
             f"{change:+.1f} points")  # fmt: skip

# %% [markdown]
# **Takeaway** Clipping is insurance: it changes little until a broken batch arrives, and then saves the training.
#
# Part 3 makes each step cheaper.
#
# ## References
#
# 1. L. N. Smith, Cyclical Learning Rates for Training Neural Networks, WACV 2017.
#    [arXiv:1506.01186](https://arxiv.org/abs/1506.01186)
# 2. L. N. Smith, N. Topin, Super-Convergence: Very Fast Training of Neural Networks Using Large Learning Rates, 2018.
#    [arXiv:1708.07120](https://arxiv.org/abs/1708.07120)
# 3. L. N. Smith, A disciplined approach to neural network hyper-parameters, part 1, 2018.
#    [arXiv:1803.09820](https://arxiv.org/abs/1803.09820)
# 4. I. Loshchilov, F. Hutter, Decoupled Weight Decay Regularization, ICLR 2019.
#    [arXiv:1711.05101](https://arxiv.org/abs/1711.05101)
# 5. S. McCandlish, J. Kaplan, D. Amodei et al., An Empirical Model of Large-Batch Training, 2018.
#    [arXiv:1812.06162](https://arxiv.org/abs/1812.06162)
