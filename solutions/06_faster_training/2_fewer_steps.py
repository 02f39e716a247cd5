# %% [markdown]
# # Faster training, part 2: Reach the target in fewer steps
#
# **Which learning rate and schedule reach the same accuracy in fewer steps, and how many seeds does it take to know?**
#
# A training ends sooner if it needs fewer steps, and checklists promise this from a schedule, an optimizer or a larger
# batch. Such a gain may be smaller than the difference between two seeds. So you test a result that we published
# ourselves, with more seeds and fairer tuning, and learn what it takes to see a small difference.
#
# **You will be able to**
#
# - find a learning rate in a hundred steps;
# - compare schedules fairly, and say how many seeds a difference needs;
# - measure how many steps a schedule saves;
# - say when a larger batch, AdamW or clipping pays.
#
# **Minutes** 43 core · 132 in all
#
# **Needs** nothing; unit 03 explains linear scaling and warm-up
#
# Run the cells in order. Where a cell says None, write your number before you run the next cell. Sections marked
# "extra" can wait.

# %% locked="setup"
import copy
import math
import statistics

import torch
from torch import nn
from torch.nn import functional as F

import course
from course.checks import faster_training as check
from course.datasets import fashion
from course.learner.predictions import leaders
from course.measure.comparison import compare, largest_difference, product, ratio_interval
from course.plots import faster_training as plots
from course.training import contest
from course.training.short_run import AdamBy, ShortRuns, sgd

print(course.machine())
size = course.sizes("06_faster_training")
device = course.device()
parts = fashion.with_validation(fashion.load(size.dataset))
images, labels, held_images, held_labels = [part.to(device) for part in parts]
images = images[: size.few_images]
labels = labels[: size.few_images]

lab = ShortRuns(images, labels, held_images, held_labels, size.few_width, size.few_batch)
network = lab.network
batches_of = lab.batches_of
train = lab.train
steps_per_epoch = len(labels) // size.few_batch
n_steps = size.few_epochs * steps_per_epoch
seeds = range(1, 1 + size.few_seeds)
few_seeds = range(1, 1 + size.few_extra_seeds)
print(
    f"{len(labels):,} training images, {len(held_labels):,} for validation; "
    f"{n_steps} steps are a training"
)

# %% [markdown]
# The network has three convolutions with BatchNorm and a linear layer. It is so small that you can afford hundreds of
# trainings. They are compared by their validation accuracy. A *schedule* is a list with the learning rate and the
# momentum of each step, so its length is the number of steps.
#
# The cells use four functions of `course/training/short_run.py`:
#
# - `network(seed)` makes the network; `sgd(model)` its optimizer;
# - `batches_of(batch_size, seed)` yields batches without end;
# - `train(schedule, seed)` trains a new network and returns its validation accuracy.

# %% [markdown]
# ## Which learning rate?
#
# Every schedule needs a learning rate, and a search over whole trainings is expensive. The *learning rate range test*
# (Smith 2017, section 3.3) needs one short run. You write fastai's variant: it multiplies the learning rate by a
# constant factor per step and plots the loss.
# %% [markdown]
# ### Exercise 1 · The range test
#
# Run the test on a model. Afterwards, model and optimizer must be as before it; only gradients may differ.
#
# **Must**
# - make step $i$ with learning rate `lowest * (highest / lowest) ** (i / (steps - 1))`, and note its loss $\ell_i$
#   before the update;
# - return the learning rates and the smoothed losses $a_i / (1 - s^{i+1})$, where $a_i = s\,a_{i-1} + (1 - s)\,\ell_i$
#   and $a_{-1} = 0$;
# - stop as soon as a smoothed loss is not finite, or exceeds `stop` times the lowest one before it, and leave that step
#   out: no update, no entry.
#
# **You may assume** that `batches` does not end.
#
# **Points** 5 · **Core** · **Difficulty** ●●● · **Minutes** 22 · **Lines** 18
#
# **Source** fastai's learning rate finder, after Smith 2017, arXiv:1506.01186.
#
# <details><summary>Hint 1</summary>
#
# `model.state_dict()` returns the model's own tensors, not copies. What is in them after the test?
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
def lr_range_test(
    model,
    optimizer,
    batches,
    loss_fn,
    lowest=1e-3,
    highest=10.0,
    steps=100,
    smoothing=0.9,
    stop=4.0,
):
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
    saved_model = copy.deepcopy(model.state_dict())
    saved_optimizer = copy.deepcopy(optimizer.state_dict())
    lrs = []
    losses = []
    average = 0.0
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
# A learning rate that a few steps survive may be too large for a whole training. So the cell takes a quarter of the
# learning rate at the lowest loss. To judge this choice, it also trains from five fixed learning rates. In all these
# trainings the learning rate falls on a straight line to zero.

# %% tags=["experiment"]
range_test_now = course.solved(check.lr_range_test)  # yours if it is right, else ours
model = network(0)
batches = batches_of(size.few_batch, 0)
lrs, losses = range_test_now(model, sgd(model), batches, F.cross_entropy, steps=size.few_range)
lr_at_lowest = lrs[losses.index(min(losses))]
choice = lr_at_lowest / 4

accuracies = {}  # {learning rate: one accuracy per seed}
for lr in (*size.few_rates, choice):
    schedule = contest.linear(lr, n_steps)
    accuracies[lr] = [train(schedule, seed) for seed in few_seeds]
plots.loss_against_lr(lrs, losses, choice, accuracies)

# %% tags=["experiment"]
print(
    f"lowest loss at {lr_at_lowest:.3g}, choice {choice:.3g}; "
    f"the test ended after {len(lrs)} steps at {lrs[-1]:.3g}"
)
means = {}
for lr, found in sorted(accuracies.items()):
    means[lr] = statistics.mean(found)
    print(f"from a learning rate of {lr:7.4f}: validation accuracy {means[lr]:.3f}")

best = max(size.few_rates, key=means.get)
ends_of_grid = (size.few_rates[0], size.few_rates[-1])
better_end = max(ends_of_grid, key=means.get)
course.claim(
    "the range test's choice ends at most three points below the best of five fixed learning rates",
    contest.points_ahead(accuracies[choice], accuracies[best]),
    above=-3,
    otherwise="Look at the curve: does the loss have a minimum well before its end?",
)
course.claim(
    "the range test's choice is better than both ends of the grid",
    contest.points_ahead(accuracies[choice], accuracies[better_end]),
    above=0,
)

# %% [markdown]
# **Takeaway** One short run finds the order of magnitude of a good learning rate; a grid around it finds the rest.

# %% [markdown]
# ## Is one cycle better than plain decay?
#
# The checklist promises a massive speed-up from *one cycle*: the learning rate rises to a peak, falls back in as many
# steps, and then falls much further in the few that remain. With a very high peak, some networks reached the accuracy
# of a usual training in a fraction of its steps (Smith and Topin 2018, arXiv:1708.07120).
#
# An earlier edition of this notebook agreed: "One cycle ended 1.1 points above cosine decay, with every seed." It had
# three seeds and two peaks. Does this hold with more seeds and five peaks?
#
# <details><summary>How to make this cycle with PyTorch</summary>
#
# Smith (2018) starts at a tenth of the range test's value and ends several orders of magnitude lower.
# `torch.optim.lr_scheduler.OneCycleLR` builds this cycle with `three_phase=True`, `anneal_strategy="linear"`,
# `pct_start=0.45` and `div_factor=10`. It also lowers the momentum while the learning rate is high; our other schedules
# keep 0.9. With its defaults, `OneCycleLR` builds another schedule: a rise over 30 % of the steps, then one fall, both
# along a cosine.
#
# </details>
#
# The contest compares five schedules. The figure shows them with the same peak.

# %% tags=["experiment"]
lrs_of = {}  # schedule: the learning rate of each step
for name, make_schedule in contest.SCHEDULES.items():
    schedule = make_schedule(size.few_peaks[-1], n_steps)
    lrs_of[name] = [lr for lr, momentum in schedule]
plots.schedules(lrs_of)

# %% [markdown]
# Some schedules have more numbers to choose than others:
#
# | schedule | numbers to choose besides its length |
# |---|---|
# | constant | the learning rate |
# | linear, cosine | the peak |
# | cyclic, as in `CyclicLR` | peak, base, length of a triangle, how it shrinks |
# | one cycle | peak, start, end, share of the rise, two momenta |
#
# A schedule that is tried with more settings wins more often by luck. So all are trained with the same five peaks, and
# each is judged at its own best peak.
#
# **Predict**: by how many points is one cycle ahead of cosine now? Say about 1 if the rise pays. Say about 0 if only
# the decay at the end pays, because cosine decays, too. Say less than 0 if the rise wastes steps.

# %%
predicted_gain = None  # points of validation accuracy

# %% tags=["experiment"]
whole = contest.contest(train, contest.SCHEDULES, size.few_peaks, seeds, n_steps)
ahead_of_cosine = {}
for name in whole.accuracies:
    if name != "cosine":
        ahead_of_cosine[name] = whole.ahead(name, "cosine")
plots.contest(whole.peaks, whole.accuracies, ahead_of_cosine)

# %% tags=["experiment"]
for name in whole.accuracies:
    mean = statistics.mean(whole.at_best(name))
    print(f"{name:<10} best peak {whole.best_peak(name):5.3f}: {mean:.3f}")

published = 1.1  # points by which one cycle was ahead of cosine
two_peaks = whole.part(range(len(seeds)), (1, 3))  # those of the study that we published
three_seeds = two_peaks.part(range(3), (0, 1))  # and its seeds
cycles = three_seeds.at_best("one cycle")
cosines = three_seeds.at_best("cosine")
differences = []
for cycle, cosine in zip(cycles, cosines, strict=True):
    differences.append(f"{100 * (cycle - cosine):+.1f}")
print(
    f"published: {published:+.1f} points; the same three seeds and two peaks here:",
    " ".join(differences),
)

# %% tags=["experiment"]
gap = whole.ahead("one cycle", "cosine")
print(course.score("06/2", "one cycle over cosine, points", predicted_gain, gap, null=0))
course.claim(
    "one cycle and cosine decay, each at its best of five peaks, differ by less than a point",
    gap,
    within=(-1, 1),
)
course.claim(
    "linear decay ends above cosine decay, each at its best of five peaks",
    whole.ahead("linear", "cosine"),
    above=0,
)
cycles_at_highest = whole.accuracies["one cycle"][:, -1].tolist()
cosines_at_highest = whole.accuracies["cosine"][:, -1].tolist()
course.claim(
    "at the highest of five peaks, one cycle ends at least two points above cosine decay",
    contest.points_ahead(cycles_at_highest, cosines_at_highest),
    above=2,
)
course.claim(
    "cosine decay ends above a constant learning rate, in the mean of the seeds",
    whole.ahead("cosine", "constant"),
    above=0,
)
course.claim(
    "cosine decay ends above the cyclic schedule, in the mean of the seeds",
    whole.ahead("cosine", "cyclic"),
    above=0,
)

# %% [markdown]
# The number of a claim is a centre of the differences between pairs of runs. One extreme seed hardly moves it, so it
# may differ from the difference of the printed means.
#
# Which part of a schedule pays, its rise or its end? The next cell changes only the end. It takes the constant learning
# rate at its best peak, and lets it fall to zero in the last fifth of the steps. *WSD* (warm-up, stable, decay) ends
# like this.

# %% tags=["experiment"]
schedule = contest.stable_then_decay(whole.best_peak("constant"), n_steps)
falling = [train(schedule, seed) for seed in seeds]
lifted = contest.points_ahead(falling, whole.at_best("constant"))
print(f"a fall in the last fifth alone: {lifted} points")
course.claim(
    "a fall to zero in the last fifth alone lifts a constant learning rate by at least a point",
    lifted,
    above=1,
)

# %% [markdown]
# **Shown** The two trainings are equal for four fifths of their steps, so the fall alone explains the difference.
#
# **We think** that the rise helps at the highest peak. One cycle stays there only for a moment, after a warm-up and
# with less momentum. To tell the causes apart, give cosine a warm-up, or one cycle a fixed momentum.
#
# **Known** Linear decay to zero was at least as good as other schedules on many tasks when each was tuned (Defazio et
# al. 2023, arXiv:2310.07831; for language models Bergsma et al. 2025, arXiv:2502.15938).
#
# <details><summary>Does the rise help to leave saddle points? And why do people use WSD?</summary>
#
# The checklist says that a larger learning rate may help to leave saddle points, where gradients are small (Dauphin et
# al. 2014, arXiv:1406.2572). **We think** that saddle points matter little here: the cyclic schedule rises most often
# and is not the best, and linear decay never rises. To test it, let the cyclic schedule end with the same fall.
#
# WSD (Hu et al. 2024, arXiv:2404.06395) holds its learning rate, so you may decide late when it falls and the training
# stops.
#
# </details>
#
# **Takeaway** Try linear decay to zero first. A fancier schedule has to beat linear decay with as much tuning.

# %% [markdown]
# ## How many seeds does it take?
#
# Our old result rested on three seeds. What can three seeds tell? If two schedules are equal, each seed is a coin toss.
#
# The contest contains many such studies: take any three of its seeds, and the two peaks that we tried then. The cells
# make all of them. They share seeds, so they are not independent, but they show how much a study of three seeds varies.
#
# **Predict**: in which share of these studies is the same schedule ahead with every seed? If the schedules are equal,
# three coins decide. If they differ much, the share is larger.

# %%
predicted_share = None  # between 0 and 1

# %% tags=["experiment"]
studies = contest.small_studies(two_peaks, "one cycle", "cosine")
gap_at_two = two_peaks.ahead("one cycle", "cosine")
plots.small_studies(studies.gains, gap_at_two, published)

# %% tags=["experiment"]
print(
    f"{len(studies.gains):,} studies: one cycle ahead with every seed in {studies.first_wins:,}, "
    f"cosine in {studies.second_wins:,}"
)
print(f"all seeds: one cycle ahead by {gap_at_two} points at these two peaks, by {gap} at all five")
share = None  # of few studies it says nothing
if len(studies.gains) >= contest.STUDIES_MIN:
    share = studies.share_of_wins
what = "share of studies with one sign"
print(course.score("06/2", what, predicted_share, share, null=None, form="{:.2f}"))

# %% tags=["experiment"]
cycles = whole.at_best("one cycle")
cosines = whole.at_best("cosine")
spread = contest.paired_spread(cycles, cosines)
unpaired = 100 * math.hypot(statistics.stdev(cycles), statistics.stdev(cosines))
print(
    f"standard deviation of a difference: {spread:.1f} points with equal seeds, "
    f"{unpaired:.1f} with different ones"
)
for points in (1, 0.5, 0.25):
    enough = contest.seeds_to_see(points, spread)
    print(f"to see a difference of {points:g} points: about {enough:,} seeds")

room = 1 - abs(gap.estimate)
if room > 0:
    enough = contest.seeds_to_see(room, spread)
    print(
        f"to show that a gap of {gap.estimate:.1f} points is less than one: about {enough:,} seeds"
    )

# %% [markdown]
# The band is the interval of all seeds at the same two peaks. If the published number lies inside, our old study was
# not wrong. But its three seeds could not tell this number from a much smaller one.
#
# **Known** Three coins agree in a quarter of all cases, equally often on each side.
#
# How many seeds do you need? Let s be the standard deviation of the paired differences. The interval of n seeds reaches
# about 2 s / √n to each side, so half the difference takes four times the seeds. Equal seeds can make s smaller,
# because both trainings share their initial weights and batches.
#
# With (2 s / difference)² seeds you see the difference about every second time. To see it four times in five, take
# twice as many (**Known**: the power of a test, Cohen 1988).
#
# <details><summary>Two limits of this rule</summary>
#
# Fewer than six seeds are never enough here: our intervals rank the differences (signed-rank test), and five ranks
# cannot give 95 %. More seeds also do not make the validation set larger. With m images, an accuracy p has a standard
# error of √(p (1 − p) / m).
#
# </details>
#
# **Takeaway** Compute the seeds before you compare: at least (2 × spread / difference)². If you cannot afford them, you
# cannot make the claim.

# %% [markdown]
# ## Does a schedule reach the same accuracy in fewer steps?
#
# We wanted fewer steps, so count them. A schedule that falls to zero has to know its length, so a single curve does not
# show how many steps it needs. The cell trains with several lengths, at the best peak of the contest.

# %% tags=["experiment"]
lengths = (n_steps // 2, n_steps, 2 * n_steps)
ends = {}  # {schedule: {steps: one accuracy per seed}}
for name in ("constant", "linear"):
    make_schedule = contest.SCHEDULES[name]
    peak = whole.best_peak(name)
    ends[name] = {n_steps: whole.at_best(name)}  # trained in the contest
    for length in (n_steps // 2, 2 * n_steps):
        schedule = make_schedule(peak, length)
        ends[name][length] = [train(schedule, seed) for seed in seeds]
plots.over_length(lengths, ends)

# %% tags=["experiment"]
for name, by_length in ends.items():
    shown = [f"{length} steps {statistics.mean(by_length[length]):.3f}" for length in lengths]
    print(f"{name:<10}", "  ".join(shown))

twice_as_long = ends["constant"][2 * n_steps]
course.claim(
    "one cycle ends above a constant learning rate with twice the steps, in the mean of the seeds",
    contest.points_ahead(whole.at_best("one cycle"), twice_as_long),
    above=0,
)
course.claim(
    "linear decay ends at most two points below a constant learning rate with twice the steps",
    contest.points_ahead(ends["linear"][n_steps], twice_as_long),
    above=-2,
)

linear_means = {length: statistics.mean(ends["linear"][length]) for length in lengths}
needed = contest.steps_needed(linear_means, statistics.mean(twice_as_long))
print(
    f"linear decay needs about {needed:.0f} steps for what the constant learning rate has "
    f"after {2 * n_steps}"
)

# %% [markdown]
# **Known** With a constant learning rate the weights move around a minimum, at a distance that depends on the noise of
# the gradient. Late in a training more steps hardly bring them closer, but a smaller learning rate does (Bottou, Curtis
# and Nocedal 2018, arXiv:1606.04838, section 4.2). Our trainings are short: look at the figure, do more steps still
# help your constant learning rate?
#
# **Takeaway** A decay to zero can replace steps of a constant learning rate. Decide the length first.

# %% [markdown]
# ## What does one cycle look like, written out? · extra
#
# If you write the schedule once by hand, you see what a scheduler sets at each step, and which bug it invites.
#
# ### Exercise 2 · One cycle
#
# Write the cycle of Smith (2018) as a function of the step. Steps count from 0, so a rise of $h$ steps ends at step
# $h - 1$.
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
# **Points** 4 · **Extra** · **Difficulty** ●●○ · **Minutes** 16 · **Lines** 10
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
def one_cycle(
    step, epochs, steps_per_epoch, max_lr, cycle=0.9, start=10.0, final=1e4, momenta=(0.85, 0.95)
):
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
    points = [
        (0, base, high),
        (half - 1, max_lr, low),
        (2 * half - 2, base, high),
        (total - 1, base / final, high),
    ]
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
# The first cell compares your schedule with PyTorch's, and draws PyTorch's defaults next to yours. The second cell
# trains with the classic bug: the program calls the scheduler once per epoch, not once per step.

# %% tags=["experiment"]
one_cycle_now = course.solved(check.one_cycle)
peak = whole.best_peak("one cycle")
mine = []
for step in range(n_steps):
    mine.append(one_cycle_now(step, size.few_epochs, steps_per_epoch, peak))

difference = largest_difference(mine, contest.one_cycle(peak, n_steps))
is_equal = difference < 1e-12
course.claim(
    "your one cycle equals torch's OneCycleLR up to rounding",
    is_equal,
    f"{difference:.1e} at most apart",
)

defaults = contest.torch_default(peak, n_steps)
plots.schedules(
    {
        "one cycle": [lr for lr, momentum in mine],
        "OneCycleLR's defaults": [lr for lr, momentum in defaults],
    }
)

# %% tags=["experiment"]
per_epoch = [mine[step // steps_per_epoch] for step in range(n_steps)]
buggy = [train(per_epoch, seed) for seed in seeds]
course.claim(
    "one cycle ends higher if it is set per step than if per epoch",
    contest.points_ahead(whole.at_best("one cycle"), buggy),
    above=0,
)

# %% [markdown]
# **Takeaway** If you count a schedule's length in steps, call the scheduler once per step. Called once per epoch, it
# stays near its start, and no error says so.

# %% [markdown]
# ## Is the largest batch the fastest? · extra
#
# Checklists say that you should take the largest batch that fits. The exercise finds out what fits into the memory. The
# cells after it measure which batch reaches the target first.
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
# Keep `good`, the largest that fits, and `bad`, the smallest that does not, or `limit + 1`. Double `good`, at most to
# `limit`, until that fails or reaches the limit. Then halve the gap while `bad - good > 1`.
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
# The first cell sets a budget: a step that saves more activations raises CUDA's error. The later cells train to the
# same accuracy with three batch sizes. The learning rate stays, or grows in proportion to the batch (unit 03).
#
# **Predict**: which batch size reaches the target in the least time, with the learning rate scaled? Say the base if the
# time of a step grows in proportion to its batch. Say the largest if a small step leaves the device idle.

# %%
predicted_fastest = None  # "the base", "four times the base" or "the largest"

# %% tags=["experiment"]
largest_now = course.solved(check.largest_batch)
model = network(0)


def step_within_budget(n):
    """Make a step with a batch of n; raise OutOfMemoryError when it keeps more than the budget."""
    with contest.activation_budget(size.few_megabytes * 2**20):
        loss = F.cross_entropy(model(images[:n]), labels[:n])
        loss.backward()


largest = largest_now(step_within_budget, limit=len(labels))
print(f"{size.few_megabytes} MB: a batch of {largest:,} fits, {largest + 1:,} does not")


# %% tags=["experiment"]
def most_steps(batch_size):
    """Steps after which a training gives up."""
    most_images = size.few_target_epochs * len(labels)
    return max(size.few_target_steps, most_images // batch_size)


target = statistics.mean(ends["constant"][n_steps]) - 0.05
batch_sizes = {
    "the base": size.few_batch,
    "four times the base": 4 * size.few_batch,
    "the largest": largest,
}
steps = {name: lab.step_of(batch, size.few_lr) for name, batch in batch_sizes.items()}
timed = compare(steps, device=device, seconds=size.few_step_seconds)

# %% tags=["experiment"]
reached = {"scaled": {}, "unscaled": {}}  # {batch size: (steps, seconds) of each seed}
for how, by_batch in reached.items():
    for name, batch in batch_sizes.items():
        lr = size.few_lr
        if how == "scaled":
            lr *= batch / size.few_batch
        seconds_per_step = timed.time(name).estimate
        by_batch[batch] = []
        for seed in few_seeds:
            n = lab.steps_to(target, batch, lr, seed, most_steps(batch))
            by_batch[batch].append((n, n * seconds_per_step))
plots.to_target(reached, target)


# %% tags=["experiment"]
def steps_made(how, batch):
    """Steps per seed as a tensor; a seed that never arrived counts with all steps it had."""
    return torch.tensor([float(min(n, most_steps(batch))) for n, _ in reached[how][batch]])


for how in reached:
    for name, batch in batch_sizes.items():
        milliseconds = 1000 * timed.time(name).estimate
        print(
            f"{how:<9} {name:<20} {batch:>6,}: {steps_made(how, batch).quantile(0.5):4.0f} steps "
            f"of {milliseconds:4.1f} ms (at most {most_steps(batch)} steps)"
        )

seconds_needed = {}
for name, batch in batch_sizes.items():
    seconds_needed[name] = statistics.median(seconds for _, seconds in reached["scaled"][batch])
fastest = leaders(seconds_needed, 0.1 * min(seconds_needed.values()))
print(course.score("06/2", "the fastest batch", predicted_fastest, fastest, null=None))

# %% tags=["experiment"]
base = steps_made("scaled", size.few_batch)
scaled = steps_made("scaled", largest)
unscaled = steps_made("unscaled", largest)
fewer_steps = ratio_interval(scaled, base)
longer_step = timed.ratio("the base", to="the largest")
course.claim(
    "the largest batch that fits needs fewer steps than the base batch",
    fewer_steps,
    below=1,
)
course.claim(
    "the largest batch that fits takes longer to the target than the base batch",
    product(fewer_steps, longer_step),
    above=1,
)
course.claim(
    "with the learning rate unscaled, the largest batch needs more steps, or never arrives",
    ratio_interval(unscaled, scaled),
    above=1,
)

# %% [markdown]
# The claim about time depends on the machine, so read what the other machines recorded. Compare the printed
# milliseconds with the batch sizes: if a larger step takes as long as a small one, fewer steps take less time.
#
# **Known** Far above the *critical batch*, more samples per step save hardly any steps (McCandlish and colleagues 2018,
# arXiv:1812.06162). Large batches may also generalise worse; unit 03 tests it.
#
# **Takeaway** Multiply the steps by the time of one step, on the machine that you train on.

# %% [markdown]
# ## What does AdamW change in Adam? · extra
#
# May you keep your weight decay when you change from Adam to AdamW? Adam divides the gradient by its usual size, and
# with an L2 penalty it also divides the penalty's gradient $\lambda w$. AdamW applies this decay separately.
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
    params,
    grads,
    means,
    squares,
    step,
    lr,
    betas=(0.9, 0.999),
    eps=1e-8,
    weight_decay=0.01,
    decoupled=True,
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
# The first cell moves two groups of 1,000 weights that start at 1. Their gradients are noise around 0, with a standard
# deviation of 10 in one group and 0.1 in the other. The later cells train on few images. Both optimizers try the same
# peaks and decays, and each is judged at its own best pair.

# %% tags=["experiment"]
adamw_now = course.solved(check.adamw_step)


def pulled(decoupled):
    """Return the mean weight of each group after 500 steps on noise."""
    rng = torch.Generator().manual_seed(5)
    deviations = torch.tensor([10.0, 0.1])
    weights = torch.ones(1000, 2)
    mean = torch.zeros(1000, 2)
    square = torch.zeros(1000, 2)
    for step in range(1, 501):
        noise = torch.randn(1000, 2, generator=rng) * deviations
        state = ([weights], [noise], [mean], [square])
        adamw_now(*state, step, lr=0.001, weight_decay=1.0, decoupled=decoupled)
    return weights.mean(0).tolist()


# %% tags=["experiment"]
large, small = pulled(decoupled=True)
are_alike = abs(large - small) < 0.05
course.claim(
    "AdamW pulls weights with large and with small gradients alike",
    are_alike,
    f"{large:.2f} and {small:.2f}",
)
l2_large, l2_small = pulled(decoupled=False)
is_less = l2_large > l2_small + 0.1
course.claim(
    "Adam with L2 pulls weights with large gradients less",
    is_less,
    f"{l2_large:.2f} against {l2_small:.2f}",
)

# %% tags=["experiment"]
decays = (0.0, 0.1, 1.0)
adam_peaks = (0.01, 0.03)
ways = {"AdamW": True, "Adam with L2": False}  # whether the decay is decoupled


def trained(schedule, decay, decoupled):
    """Validation accuracies of trainings on few images, one per seed."""

    def make_optimizer(model):
        return AdamBy(adamw_now, model.parameters(), decay, decoupled)

    among = len(labels) // 8
    return [train(schedule, seed, make_optimizer, among) for seed in few_seeds]


grid = {}  # {(optimizer, peak, decay): one accuracy per seed}
for name, decoupled in ways.items():
    for peak in adam_peaks:
        schedule = contest.one_cycle(peak, size.few_decay_steps)
        for decay in decays:
            grid[name, peak, decay] = trained(schedule, decay, decoupled)
plots.over_decay(grid)


# %% tags=["experiment"]
def mean_accuracy(key):
    """Mean accuracy of an optimizer at a peak and a decay."""
    return statistics.mean(grid[key])


best_key = {}  # {optimizer: (its name, peak, decay)}
at_decay_1 = {}  # {optimizer: its accuracies at the better peak}
for name in ways:
    keys = [key for key in grid if key[0] == name]
    best_key[name] = max(keys, key=mean_accuracy)
    _, peak, decay = best_key[name]
    print(f"{name:<13} best at peak {peak:g}, decay {decay:g}: {mean_accuracy(best_key[name]):.3f}")
    at_decay_1[name] = max([grid[name, peak, 1.0] for peak in adam_peaks], key=sum)

adamw = grid[best_key["AdamW"]]
course.claim(
    "each at its own best peak and decay, AdamW and Adam with L2 differ by less than three points",
    contest.points_ahead(adamw, grid[best_key["Adam with L2"]]),
    within=(-3, 3),
)
course.claim(
    "a decay of 1 costs Adam with L2 more than AdamW",
    contest.points_ahead(at_decay_1["AdamW"], at_decay_1["Adam with L2"]),
    above=0,
)

# %% tags=["experiment"]
_, _, decay = best_key["AdamW"]
at_constant = []
for lr in adam_peaks:
    schedule = contest.constant(lr, size.few_decay_steps)
    at_constant.append(trained(schedule, decay, decoupled=True))
course.claim(
    "for AdamW the better of two one-cycle peaks ends above the better of two constant learning rates",
    contest.points_ahead(adamw, max(at_constant, key=sum)),
    above=0,
)

# %% [markdown]
# **Known** Equal decays do not act equally: L2 passes through Adam's division, AdamW's decay does not (Loshchilov and
# Hutter 2019). With a decay of 0 the two are the same algorithm. Remember this when a checklist says "AdamW
# consistently beats Adam".
#
# **Takeaway** In Adam, L2 pulls weights with large gradients less. Tune the decay for each optimizer, and do not copy
# it from one to the other.

# %% [markdown]
# ## What does clipping protect from? · extra
#
# One broken batch may undo much training. Clipping limits the gradient of each step, and is said to protect from this.
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
# **You may assume** that `max_norm` and a norm that is not 0 are far above 1e-6, which torch's own function adds to the
# norm.
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
# The cells train a network without BatchNorm. Halfway, the images of one batch are multiplied by 30. From then on,
# gradients are clipped or not. The limit is the largest norm of the quarter before, so clipping hardly acts on healthy
# batches. The claims state a centre of the paired differences, which one extreme seed hardly moves.

# %%
clip_now = course.solved(check.clip_grad_norm)


# %%
def train_with_spike(spike, clip, seed):
    """(losses of all steps, validation accuracy) of a network without BatchNorm."""
    model = network(seed, norm=nn.Identity)
    optimizer = torch.optim.SGD(model.parameters(), lr=size.few_lr, momentum=contest.MOMENTUM)
    batches = batches_of(size.few_batch, seed)
    halfway = n_steps // 2
    losses = []
    norms = []
    limit = math.inf
    for step in range(n_steps):
        x, y = next(batches)
        if spike and step == halfway:
            x = 30 * x
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        if clip and step == halfway:
            limit = torch.stack(norms[n_steps // 4 :]).max().item()
        norms.append(clip_now(list(model.parameters()), limit))
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses).tolist(), lab.accuracy_of(model)


# %% tags=["experiment"]
settings = {  # whether a batch is broken, and whether gradients are clipped
    "clean": (False, False),
    "clean, clipped": (False, True),
    "broken batch": (True, False),
    "broken batch, clipped": (True, True),
}
first_losses = {}  # of the first seed
accuracies = {}  # one per seed
for name, (spike, clip) in settings.items():
    runs = [train_with_spike(spike, clip, seed) for seed in few_seeds]
    first_losses[name] = runs[0][0]
    accuracies[name] = [accuracy for _, accuracy in runs]
plots.spikes(first_losses)

# %% tags=["experiment"]
for name, found in accuracies.items():
    print(f"{name:<22} {statistics.mean(found):.3f} ({min(found):.3f} to {max(found):.3f})")

clean, clipped, broken, saved = accuracies.values()
course.claim(
    "one broken batch costs accuracy that half a training does not win back",
    contest.points_ahead(clean, broken),
    above=0,
)
a_third = []  # of what the broken batch costs without clipping
cost_with_clipping = []
for clean_one, broken_one, saved_one in zip(clean, broken, saved, strict=True):
    a_third.append((clean_one - broken_one) / 3)
    cost_with_clipping.append(clean_one - saved_one)
course.claim(
    "with clipping, a broken batch costs less than a third of the accuracy that it costs without",
    contest.points_ahead(a_third, cost_with_clipping),
    above=0,
)
course.claim(
    "without a broken batch, clipping changes accuracy by less than two points",
    contest.points_ahead(clipped, clean),
    within=(-2, 2),
)

# %% [markdown]
# **Shown** The four trainings share their seeds, and differ by the broken batch and by the clipping alone.
#
# **Takeaway** Clipping with a limit above the usual norms is insurance: it changes little until a broken batch arrives,
# and then it limits the loss of accuracy.
#
# Under a `GradScaler` gradients are scaled, so they have to be divided before they are clipped; part 3 shows the call.
#
# ## References
#
# 1. L. N. Smith, Cyclical Learning Rates for Training Neural Networks, WACV 2017.
#    [arXiv:1506.01186](https://arxiv.org/abs/1506.01186)
# 2. L. N. Smith, N. Topin, Super-Convergence: Very Fast Training of Neural Networks Using Large Learning Rates, 2018.
#    [arXiv:1708.07120](https://arxiv.org/abs/1708.07120)
# 3. L. N. Smith, A disciplined approach to neural network hyper-parameters, part 1, 2018.
#    [arXiv:1803.09820](https://arxiv.org/abs/1803.09820)
# 4. A. Defazio, A. Cutkosky, H. Mehta, K. Mishchenko, Optimal Linear Decay Learning Rate Schedules and Further
#    Refinements, 2023. [arXiv:2310.07831](https://arxiv.org/abs/2310.07831)
# 5. S. Bergsma et al., Straight to Zero: Why Linearly Decaying the Learning Rate to Zero Works Best for LLMs, 2025.
#    [arXiv:2502.15938](https://arxiv.org/abs/2502.15938)
# 6. S. Hu et al., MiniCPM, 2024: warm-up, stable, decay. [arXiv:2404.06395](https://arxiv.org/abs/2404.06395)
# 7. Y. Dauphin et al., Identifying and Attacking the Saddle Point Problem in High-Dimensional Non-Convex Optimization,
#    2014. [arXiv:1406.2572](https://arxiv.org/abs/1406.2572)
# 8. L. Bottou, F. Curtis, J. Nocedal, Optimization Methods for Large-Scale Machine Learning, 2018.
#    [arXiv:1606.04838](https://arxiv.org/abs/1606.04838)
# 9. I. Loshchilov, F. Hutter, Decoupled Weight Decay Regularization, ICLR 2019.
#    [arXiv:1711.05101](https://arxiv.org/abs/1711.05101)
# 10. S. McCandlish, J. Kaplan, D. Amodei et al., An Empirical Model of Large-Batch Training, 2018.
#     [arXiv:1812.06162](https://arxiv.org/abs/1812.06162)
