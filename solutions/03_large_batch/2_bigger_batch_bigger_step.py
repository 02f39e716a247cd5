# %% [markdown]
# # Large batches, part 2: Bigger batch, bigger step
#
# **How much faster is a larger batch, and which learning rate keeps its accuracy?**
#
# A processor with thousands of arithmetic units wants thousands of samples at once. Stochastic gradient descent wants
# many small steps. This part enlarges the batch of a recommender 16 and 192 times. You measure what that does to
# samples per second and to accuracy, and try the first two remedies in the order in which they were found: a learning
# rate that grows with the batch, and a warm-up. One of them is enough for the smaller of the two batches. The other run
# diverges, and you see where.
#
# **You will be able to**
#
# - predict how throughput grows with the batch size, and say where it stops growing;
# - tell "too few steps" from "poor generalisation";
# - scale the learning rate with the batch, ranks and accumulation counted in;
# - write an exponential and a linear warm-up, and say when they help.
#
# **Minutes** 40 core · 70 in all
#
# **Needs** nothing; answers of part 1 are used if you solved it.

# %% locked="setup"
import math
import statistics

import torch

import course
from course.checks import large_batch as check
from course.plots import large_batch as plots
from course.predictions import reveal
from course.recommender import Experiment, print_run

print(course.machine())

# %% [markdown]
# ## One step of stochastic gradient descent
#
# **A step moves the weights against the mean gradient of a batch. The batch size decides how exact this mean is, the
# learning rate how far the step goes.**
#
# Training minimises the mean of the losses of all $M$ samples over the weights $w$:
#
# $$\min_{w}\; f(w) = \frac{1}{M} \sum_{i=1}^{M} f_i(w)$$
#
# One gradient of this sum costs a pass over all data. Stochastic gradient descent estimates it by the mean over a batch
# $B_k$, a random subset of the samples, and makes a step with learning rate $\alpha_k$:
#
# $$w_{k+1} = w_k - \alpha_k\, \frac{1}{|B_k|} \sum_{i \in B_k} \nabla f_i(w_k)$$
#
# The mean over the batch is right on average; its variance falls as $1 / |B_k|$. The momentum that nearly everybody
# adds keeps a decaying sum of past gradients, the velocity $v$, and steps along it: where gradients agree from step
# to step it grows to $1 / (1 - m)$ times one gradient, where they contradict each other they cancel.

# %% [markdown]
# ### Exercise 1 · SGD with momentum
#
# Make one step of SGD with momentum and weight decay on lists of tensors, in place, as `torch.optim.SGD` makes it.
#
# **Points** 4 · **Extra** · **Difficulty** ●●○ · **Minutes** 15 · **Lines** 4
#
# **Convention** PyTorch's: $v \leftarrow m v + (g + \lambda w)$, then $w \leftarrow w - \alpha v$, with the *new*
# velocity. The learning rate is not part of the velocity; the paper on linear scaling writes it inside, which differs
# as soon as the learning rate changes (its section 3, "momentum correction"). Velocities are zero before the first
# step; the caller keeps them. The tensors themselves change, also those of parameters that require a gradient;
# gradients stay as they are and nothing is recorded for autograd. The entries at one place of the three lists have one
# shape. A list that is too short must raise an exception, whichever: a parameter that is silently skipped would never
# be trained.
#
# **Source** `torch.optim.SGD`, PyTorch documentation (algorithm with dampening 0, without Nesterov); Sutskever,
# Martens, Dahl and Hinton 2013, "On the importance of initialization and momentum in deep learning", section 2.
#
# <details><summary>Hint 1</summary>
#
# After `p = p - lr * v` inside a function, which tensor does the caller still hold, and what is in it?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Methods that end in `_` write into their tensor: `mul_`, `add_`, `sub_`. On a parameter that requires a gradient
# they are allowed only where autograd does not look: `with torch.no_grad():`.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# Under `torch.no_grad()`, for each triple of `zip(params, grads, velocities, strict=True)`:
# `velocity.mul_(momentum)`, add `grad + weight_decay * param` to it with `add_`, then `param.sub_(lr * velocity)`.
#
# </details>


# %% solution="sgd_step"
def sgd_step(params, grads, velocities, lr, momentum=0.9, weight_decay=0.0):
    """Change `params` and `velocities` in place by one step of SGD with momentum.

    Args:
        params: list of float tensors of any shapes, which may be leaves that require a gradient.
        grads: list of their gradients, same shapes; not changed.
        velocities: list of their velocities, same shapes; zeros before the first step.
        lr: learning rate of this step.
        momentum: share of the old velocity that is kept.
        weight_decay: multiple of the parameter that is added to its gradient.
    """
    ### BEGIN SOLUTION
    with torch.no_grad():
        for param, grad, velocity in zip(params, grads, velocities, strict=True):
            velocity.mul_(momentum).add_(grad + weight_decay * param)
            param.sub_(lr * velocity)
    ### END SOLUTION


# %% test="sgd_step-visible" points=2
check.sgd_step(sgd_step)

# %% test="sgd_step-hidden" points=2
### BEGIN HIDDEN TESTS
check.sgd_step(sgd_step, seed=63)
### END HIDDEN TESTS

# %% [markdown]
# ## Size matters: throughput
#
# **A larger batch gives the machine more to do at once, so it trains more samples per second, until all its arithmetic
# units are busy.**
#
# Look at the formula of the step again: the terms of the sum do not depend on each other. They can run on thousands of
# GPU threads, on the cores of a processor, or on many machines of which each takes a share. Some costs occur once *per
# step*, whatever the batch size: starting kernels, reading and writing every weight in the optimizer, exchanging
# gradients between machines. With $c$ seconds per step and $s$ seconds per sample, throughput at batch size $B$ is $B /
# (c + sB)$: it grows in proportion as long as $sB \ll c$ and then levels off at $1/s$.
#
# We measure three batch sizes: 1×, for which the accuracy is tuned; 16×; and 192×. How many times the throughput of the
# smallest will the larger ones have?

# %%
predicted_speedup_16 = None  # your number: how many times the samples/s of the 1x batch at 16x
predicted_speedup_192 = None  # your number: the same at 192x

# %% [markdown]
# The next cell prepares the experiments of this part: ratings, split, test candidates and negatives as in part 1, and
# the three batches. The sizes follow `COURSE_SCALE`; they stand in `course/device.py`.
#
# The model has the sizes of the paper (8 factors). Its embeddings start with a deviation of 0.1 instead of the paper's
# 0.01: plain SGD would need several epochs more to leave the saddle at zero, where a product of two tiny vectors has
# almost no gradient. Adam hides this; SGD shows what a learning rate does.

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

# %% [markdown]
# How far do the points follow the dashed line, on which every step would take the same time? And is a difference larger
# than the spread of its repetitions, shown by the bars?

# %% tags=["experiment"]
throughputs = []
for batch_size in batches:
    model = experiment.fresh_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    timed = experiment.train(model, optimizer, batch_size, mode="perf", max_steps=sizes.perf_steps)
    throughputs.append(timed.throughput)
    print(f"batch {batch_size:>9,}: {statistics.median(throughputs[-1]):>12,.0f} samples/s")
print(course.machine())
small = statistics.median(throughputs[0])
guesses = [None] + [times and times * small for times in (predicted_speedup_16, predicted_speedup_192)]
plots.throughput(batches, throughputs, guesses)

# %% [markdown]
# Every step has a fixed cost, whether the batch has a hundred samples or a hundred thousand: Python, the dispatch of
# some forty operations, the optimizer's update of every parameter. A larger batch spreads this cost over more samples,
# so throughput rises. But each sample also needs its own arithmetic, so the points fall below the dashed line, and once
# the arithmetic fills the processor they stop rising. A GPU has thousands of arithmetic units, so it reaches that point
# at a larger batch than two cores do. Beyond it a larger batch takes more memory and saves no time.

# %% [markdown]
# ## What a larger batch costs: accuracy
#
# **At the same number of epochs and the same learning rate, a larger batch makes fewer steps, and the accuracy falls.**
#
# The goal is a trained model, not throughput. Others have measured what large batches do to accuracy:
#
# - Keskar and colleagues trained small networks, fully connected and convolutional, with a batch of a tenth of the
#   training data. Test accuracy came out lower than with a small batch by up to about five points although the training
#   loss was just as low: a loss of *generalisation* (arXiv:1609.04836, section 2).
# - Goyal and colleagues trained ResNet-50 on ImageNet. From a batch of 256 up to about 8,000 they kept the validation
#   error near 23.6 %, with the remedies below; beyond that it rises steeply whatever they did (figure 1). With a batch
#   of 8,192 and the learning rate of the small batch it was 41.7 % after the same number of epochs (arXiv:1706.02677,
#   section 5).
#
# Two different effects add up here. One is trivial: with 16 times the batch an epoch has a sixteenth of the steps, so
# training moves a sixteenth as far. The other is not: even if the training loss gets as low, weights found with little
# gradient noise may do worse on unseen data. Which of them do you expect in the next figure, and how large?

# %%
predicted_hit_rate_drop_16 = None  # your number: final HR@10 of 1x minus that of 16x with the same learning rate
predicted_cause = None  # your answer: "too few steps" or "poor generalisation"

# %% tags=["experiment"]
runs = {
    "1×": experiment.train_sgd(batches[0], sizes.base_lr),
    "16×, same learning rate": experiment.train_sgd(batches[1], sizes.base_lr),
}
for label, history in runs.items():
    print_run(label, history)
drop = runs["1×"].hit_rate[-1] - runs["16×, same learning rate"].hit_rate[-1]
print(f"\nHR@10 lost: {drop:.3f}" + reveal(predicted_hit_rate_drop_16))
print(f"updates: {runs['1×'].updates:,} and {runs['16×, same learning rate'].updates:,}" + reveal(predicted_cause))
course.claim("16 times the batch with the same learning rate ends at a lower HR@10", drop > 0.03, f"{drop:.3f} lower")
plots.accuracy(runs, "Same learning rate, 16 times the batch")

# %% [markdown]
# Count updates instead of epochs: all epochs of the large batch together have fewer updates than the small batch makes
# in its first (see the numbers printed above), so compare its last point with the first one of the small batch. The
# large batch has made too few steps to learn much. That is the first cause. Poor generalisation would look different: a
# training loss as low as that of the small batch, and a worse HR@10. The dotted line is what guessing reaches.
#
# Where it does not hold, the small batch has steps to spare: the data set is large or the training long, so even a
# sixteenth of the steps is enough.

# %% [markdown]
# ## The linear scaling rule
#
# **If the batch is multiplied by $k$, multiply the learning rate by $k$: one large step then goes as far as $k$ small
# ones.**
#
# Follow the weights through $k$ small steps, with batches $B_0, \dots, B_{k-1}$ of $n$ samples and learning rate
# $\alpha$, and through one step on all these $kn$ samples with learning rate $\hat\alpha$:
#
# $$w_{k} = w_0 - \alpha\, \frac{1}{n} \sum_{j < k} \sum_{i \in B_j} \nabla f_i(w_{\color{red}{j}}), \qquad
# \hat w_{1} = w_0 - \hat\alpha\, \frac{1}{kn} \sum_{j < k} \sum_{i \in B_j} \nabla f_i(w_{\color{red}{0}})$$
#
# They differ in where the gradients are taken, marked red. If the gradient hardly changes over $k$ small steps,
# $\nabla f_i(w_j) \approx \nabla f_i(w_0)$, the two sums are the same, and the weights are the same if
# $\hat\alpha = k \alpha$. This is all there is to the rule, and its condition is where it will break.
#
# The next cell shows both sides on the smallest example, $f(w) = w^2 / 2$ with gradient $w$, from $w = 1$. Compare
# the two columns: they agree while $k\alpha$ is small. Beyond 1 the large step runs past the minimum, beyond 2 it
# ends farther away than it began.

# %%
print("   k     k * lr   k small steps   one large step")
for k in (1, 4, 16, 64, 192):
    print(f"{k:4d} {0.02 * k:10.2f} {(1 - 0.02) ** k:15.3f} {1 - 0.02 * k:16.3f}")

# %% [markdown]
# The same in a picture, on a flat and on a steep parabola: follow the four blue steps and the one orange step.

# %%
plots.many_small_steps_or_one_large()

# %% [markdown]
# ### Exercise 2 · The learning rate that fits the batch
#
# Compute the learning rate for a batch by the linear scaling rule, from a learning rate that is known to work with
# another batch.
#
# **Points** 2 · **Core** · **Difficulty** ●○○ · **Minutes** 5 · **Lines** 1
#
# **Convention** `base_batch` is the number of samples in one *update* of the known recipe. `batch` is what one rank
# reads in one micro-step; `accumulation` micro-steps on each of `ranks` processes make one update. What counts is the
# number of samples that contribute to one update. The loss of the update is the *mean* over these samples. With the
# sum, the gradient itself would grow with the batch, and scaling the learning rate as well would count the batch twice.
#
# **Source** Goyal et al. 2017, "Accurate, Large Minibatch SGD: Training ImageNet in 1 Hour", arXiv:1706.02677,
# section 2.1 (the rule) and section 3, "gradient aggregation" (the mean over all workers). Krizhevsky 2014, "One weird
# trick for parallelizing convolutional neural networks", arXiv:1404.5997, used it before.
#
# <details><summary>Hint 1</summary>
#
# With 4 ranks, 2 micro-steps and a batch of 1,024 each: over how many samples is the gradient of one update averaged?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# $k$ is the number of samples per update over `base_batch`; it need not be a whole number. The learning rate is
# `base_lr` times `batch * accumulation * ranks / base_batch`.
#
# </details>


# %% solution="scaled_lr"
def scaled_lr(base_lr, base_batch, batch, accumulation=1, ranks=1):
    """The learning rate for a larger batch by the linear scaling rule, a float.

    Args:
        base_lr: learning rate that works with `base_batch` samples per update.
        base_batch: samples per update of the known recipe.
        batch: samples that one rank reads in one micro-step.
        accumulation: micro-steps per update.
        ranks: processes whose gradients are averaged.
    """
    ### BEGIN SOLUTION
    return base_lr * batch * accumulation * ranks / base_batch
    ### END SOLUTION


# %% test="scaled_lr-visible" points=1
check.scaled_lr(scaled_lr)

# %% test="scaled_lr-hidden" points=1
### BEGIN HIDDEN TESTS
check.scaled_lr(scaled_lr, seed=256)
### END HIDDEN TESTS

# %% [markdown]
# In the paper's own experiment the rule, with a warm-up, brought the batch of 8,192 (32 times 256, learning rate 3.2
# instead of 0.1) to an error of 23.7 %, against 23.6 % with the small batch. The unchanged learning rate gave 41.7 %. A
# learning rate multiplied by $\sqrt{32}$, which keeps the variance of the update instead of its mean, gave 26.2 %.
#
# How much of the accuracy that the 16× batch lost does the rule restore here?

# %%
predicted_share_won_back_16 = None  # your number: 0 = nothing of the lost HR@10, 1 = all of it

# %% tags=["experiment"]
scaled_lr_now = course.solved(check.scaled_lr)
lr_16 = scaled_lr_now(sizes.base_lr, batches[0], batches[1])
runs["16×, linear rule"] = experiment.train_sgd(batches[1], lr_16)
print_run(f"16×, learning rate {lr_16:g}", runs["16×, linear rule"])
won = (runs["16×, linear rule"].hit_rate[-1] - runs["16×, same learning rate"].hit_rate[-1]) / drop
print(f"share of the lost HR@10 restored: {won:.2f}" + reveal(predicted_share_won_back_16))
course.claim("the linear rule restores at least nine tenths of the lost HR@10", won > 0.9, f"{won:.2f} of it")
plots.accuracy(runs, "16 times the batch, with and without the rule")

# %% [markdown]
# Compare the two upper curves: with the rule the large batch follows the small one epoch for epoch, in a fraction of
# the seconds. Accuracy dropped because training moved too little; a larger learning rate restores it.
#
# Where it does not hold, either hardly anything was lost, so that the share is noise, or the learning rate of the rule
# is already too large for the batch: the gradient changes too much over the 16 small steps.

# %% [markdown]
# Now 192 times the batch, and 192 times the learning rate. What will the curve of HR@10 do?

# %%
predicted_curve_192 = None  # your answer: "as the small batch", "slower", "stuck at chance" or "diverges"

# %% tags=["experiment"]
lr_192 = scaled_lr_now(sizes.base_lr, batches[0], batches[2])
runs_192 = {"1×": runs["1×"], "192×, linear rule": experiment.train_sgd(batches[2], lr_192)}
print_run(f"192×, learning rate {lr_192:g}", runs_192["192×, linear rule"])
if predicted_curve_192:
    print(f"you said: {predicted_curve_192}")
plots.accuracy(runs_192, "192 times the batch, 192 times the learning rate")

# %% [markdown]
# A cross marks where the loss was no longer finite. Whether a run diverges in its first steps or after some epochs, it
# is useless. The rule holds only while the gradient hardly changes over the small steps that one large step replaces,
# and over 192 of them it changes completely.
#
# Out of memory? Take a smaller `base_batch` in `course/device.py`, or accumulate gradients as in part 4.

# %% [markdown]
# ## Warm-up
#
# **At the start of training the gradient changes fastest and the rule is least exact, so the learning rate starts small
# and grows to its full value.**
#
# The rule asks that the gradient stay nearly the same over $k$ small steps. Late in training it does; in the first
# epoch the network changes rapidly, and it does not. A learning rate of $k\alpha$ then does what the last rows of the
# small table above showed: the step $k\alpha\,\lVert \nabla f(w) \rVert$ is as long as the weights or longer, and
# overwrites them. Whether such a run recovers depends on the initial weights and on the learning rate and is hard to
# predict: it may diverge, get stuck, or recover. In the ImageNet experiment the batch of 8,192 ended at 24.8 % without
# a warm-up and at 23.7 % with one. A small constant learning rate for five epochs, followed by a jump, did worse still,
# with 25.9 % (arXiv:1706.02677, table 1).
#
# The remedy: begin with a safe learning rate and let it grow. Two shapes are common.
#
# - **Exponential**: the learning rate is multiplied by the same factor at each step, from 1 % of the target to the
#   target. It stays low for long and takes its largest steps up at the end. In the workshop on which this unit is based
#   it takes a tenth of an epoch.
# - **Linear**: the learning rate rises by the same amount at each step, from the small batch's learning rate to the
#   large batch's. Goyal et al. take five epochs.
#
# The length is given in epochs and counted in steps. A large batch has few steps per epoch, so a tenth of an epoch may
# be 4.5 steps, or less than one.

# %% [markdown]
# ### Exercise 3 · Exponential warm-up
#
# Compute the learning rate of a step: it grows by the same factor at each step, then stays constant.
#
# **Points** 3 · **Core** · **Difficulty** ●●○ · **Minutes** 12 · **Lines** 4
#
# **Convention** Steps count from 0 over the whole training, not from each epoch. The warm-up is `warmup_epochs *
# steps_per_epoch` steps long, which may be a fraction; do not round it. Step 0 has the learning rate `start * lr`; a
# step at or past the end has exactly `lr`. With a length of 0 every step has `lr`.
#
# **Source** The workshop notebook on which this unit is based, with its numbers: a tenth of an epoch, from a hundredth
# of the learning rate. The idea of raising the learning rate gradually: Goyal et al. 2017, arXiv:1706.02677, section
# 2.2.
#
# <details><summary>Hint 1</summary>
#
# If the learning rate is `0.01 * lr` at the start and `lr` at the end, and grows by equal factors, what is it halfway?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `start ** x` runs from `start` at $x = 1$ to 1 at $x = 0$. What is $x$, in terms of the step and the length?
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# With `warmup_steps = warmup_epochs * steps_per_epoch`: return `lr` if `step >= warmup_steps` (this also keeps you
# from dividing by 0), else `lr * start ** (1 - step / warmup_steps)`.
#
# </details>


# %% solution="exponential_warmup"
def exponential_warmup(step, steps_per_epoch, lr, warmup_epochs=0.1, start=0.01):
    """The learning rate of step `step`, a float: an exponential ramp from `start * lr` to `lr`, then `lr`.

    Args:
        step: number of updates made before this one, from 0, over the whole training.
        steps_per_epoch: updates in an epoch.
        lr: learning rate after the warm-up.
        warmup_epochs: length of the ramp in epochs, 0 or more; times `steps_per_epoch` it may be a fraction of a step.
        start: learning rate of step 0 as a share of `lr`.
    """
    ### BEGIN SOLUTION
    warmup_steps = warmup_epochs * steps_per_epoch
    if step >= warmup_steps:
        return lr
    return lr * start ** (1 - step / warmup_steps)
    ### END SOLUTION


# %% test="exponential_warmup-visible" points=1
check.exponential_warmup(exponential_warmup)

# %% test="exponential_warmup-hidden" points=2
### BEGIN HIDDEN TESTS
check.exponential_warmup(exponential_warmup, seed=192)
### END HIDDEN TESTS

# %% [markdown]
# ### Exercise 4 · Linear warm-up
#
# Compute the learning rate of a step: it grows by equal amounts from the small batch's learning rate to the large
# batch's, then stays constant.
#
# **Points** 2 · **Extra** · **Difficulty** ●○○ · **Minutes** 5 · **Lines** 4
#
# **Convention** Steps count from 0 over the whole training. Step 0 has exactly `base_lr`; step `warmup_epochs *
# steps_per_epoch`, which may be a fraction, and all after it have exactly `lr`; in between the learning rate lies on
# the straight line. Well-known sources use three conventions. The paper starts at the small batch's learning rate, as
# we do. The schedule of Hugging Face's transformers starts at 0, so that its first step changes nothing. nanoGPT
# (today) counts the step from 1 and divides by the length plus 1, so the ramp contains neither 0 nor the full learning
# rate.
#
# **Source** Goyal et al. 2017, arXiv:1706.02677, section 2.2, "gradual warmup" (five epochs).
#
# <details><summary>Hint 1</summary>
#
# How many equal amounts lie between `base_lr` and `lr` if the first learning rate belongs to step 0 and the last to
# step 10?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# As in exercise 3, first deal with steps at or past the end. On the ramp the learning rate is
# `base_lr + (lr - base_lr) * step / warmup_steps`.
#
# </details>


# %% solution="linear_warmup"
def linear_warmup(step, steps_per_epoch, base_lr, lr, warmup_epochs=5):
    """The learning rate of step `step`, a float: a straight line from `base_lr` to `lr`, then `lr`.

    Args:
        step: number of updates made before this one, from 0, over the whole training.
        steps_per_epoch: updates in an epoch.
        base_lr: learning rate of the small batch and of step 0.
        lr: learning rate after the warm-up.
        warmup_epochs: length of the ramp in epochs, 0 or more; times `steps_per_epoch` it may be a fraction of a step.
    """
    ### BEGIN SOLUTION
    warmup_steps = warmup_epochs * steps_per_epoch
    if step >= warmup_steps:
        return lr
    return base_lr + (lr - base_lr) * step / warmup_steps
    ### END SOLUTION


# %% test="linear_warmup-visible" points=1
check.linear_warmup(linear_warmup)

# %% test="linear_warmup-hidden" points=1
### BEGIN HIDDEN TESTS
check.linear_warmup(linear_warmup, seed=512)
### END HIDDEN TESTS

# %% [markdown]
# The next table shows both ramps over the same two epochs of five steps, up to a learning rate of 1. Find the step in
# which each ramp passes 0.5: the exponential one gets there late and spends most of its steps near the bottom.

# %%
exponential_ramp = course.solved(check.exponential_warmup)
linear_ramp = course.solved(check.linear_warmup)
print("step   exponential   linear")
for step in range(12):
    print(f"{step:4d} {exponential_ramp(step, 5, 1.0, 2):13.3f} {linear_ramp(step, 5, 0.05, 1.0, 2):8.3f}")

# %% [markdown]
# Now 192 times the batch, with the learning rate of the linear rule and a ramp before it. How close does it come to the
# small batch?

# %%
predicted_hit_rate_192_warmup = None  # your number: the best HR@10 that any of three ramps reaches
predicted_survivors = None  # your number: how many of the three (exponential 0.1 and 1 epoch, linear 1 epoch) survive

# %% tags=["experiment"]
exponential = course.solved(check.exponential_warmup)
linear = course.solved(check.linear_warmup)
ramps = {
    "192×, exponential, 0.1 epochs": lambda step, n: exponential(step, n, lr_192, 0.1),
    "192×, exponential, 1 epoch": lambda step, n: exponential(step, n, lr_192, 1),
    "192×, linear, 1 epoch": lambda step, n: linear(step, n, sizes.base_lr, lr_192, 1),
}
for label, ramp in ramps.items():
    runs_192[label] = experiment.train_sgd(batches[2], lr_192, schedule=ramp)
    print_run(label, runs_192[label])
reached = [hit_rate for label in ramps for hit_rate in runs_192[label].hit_rate if not math.isnan(hit_rate)]
best = max(reached, default=math.nan)
print(f"best HR@10 on the way: {best:.3f}" + reveal(predicted_hit_rate_192_warmup))
print(f"runs that survived: {sum(not runs_192[label].diverged for label in ramps)} of 3" + reveal(predicted_survivors))
plots.accuracy(runs_192, "192 times the batch: warm-up")

# %% [markdown]
# Look where each curve ends, and what it did just before. A warm-up restored the accuracy of Goyal et al.; here, at the
# laptop scale with the stand-in, it only delays the divergence. HR@10 does not show when the trouble begins, because it
# is computed once per epoch; the loss per update would. How long a run lasts also depends on chance: another seed, even
# another number of threads, gives another picture, so do not rank the ramps by it. (A cross at 0: that run diverged
# before it was evaluated once.)

# %% [markdown]
# ## References
#
# 1. P. Goyal et al., Accurate, Large Minibatch SGD: Training ImageNet in 1 Hour, 2017.
#    [arXiv:1706.02677](https://arxiv.org/abs/1706.02677)
# 2. N. S. Keskar, D. Mudigere, J. Nocedal, M. Smelyanskiy, P. T. P. Tang, On Large-Batch Training for Deep Learning:
#    Generalization Gap and Sharp Minima, ICLR 2017. [arXiv:1609.04836](https://arxiv.org/abs/1609.04836)
