# %% [markdown]
# # Large batches, part 2: Bigger batch, bigger step
#
# **How much faster is a larger batch, and which learning rate keeps its accuracy?**
#
# A processor with thousands of arithmetic units wants thousands of samples at once. Stochastic gradient descent wants
# many small steps. You enlarge the batch of a recommender 16 and 192 times, and try the first two remedies in the order
# in which they were found: a learning rate that grows with the batch, and a warm-up. The loss of every update, the
# movement of every layer and the Hessian show what each remedy can do, and what it cannot.
#
# **You will be able to**
#
# - predict how throughput grows with the batch size, and say where it stops growing;
# - read the training loss of every update beside the accuracy;
# - scale the learning rate with the batch, ranks and accumulation counted in, and warm it up;
# - compute the top eigenvalue of a loss's Hessian, and say which learning rate it allows;
# - say what a warm-up changes and what it cannot change.
#
# **Minutes** 44 core · 85 in all
#
# **Needs** the section on Neural Collaborative Filtering of part 1; answers of part 1 are used if you solved it.

# %% locked="setup"
import math
import statistics

import torch

import course
from course.checks import large_batch as check
from course.learner.predictions import reveal
from course.plots import large_batch as plots
from course.training.recommender import CONSTANT_LOSS, Experiment, dissect, mlp_is_silent, print_log, print_run

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
# Make one step of SGD with momentum and weight decay on lists of tensors, in place, as `torch.optim.SGD` does. The
# autopsy at the end trains with it.
#
# **Must**
# - compute $v \leftarrow m v + (g + \lambda w)$, then $w \leftarrow w - \alpha v$ with the *new* velocity;
# - change the tensors themselves, also parameters that require a gradient; leave gradients alone; record nothing for
#   autograd.
#
# **You may assume** lists of equal length, equal shapes at equal places; velocities start at zero.
#
# **Points** 4 · **Extra** · **Difficulty** ●●○ · **Minutes** 15 · **Lines** 4
#
# **Source** `torch.optim.SGD`, without dampening and Nesterov. Goyal et al. (section 3) describe the variant with the
# learning rate inside the velocity, and its correction.
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
# ## The small batch
#
# **Before anything grows: what the small batch reaches, epoch by epoch, and what a ranking without a model reaches.**
#
# The next cell prepares the experiments: ratings, split, candidates and negatives as in part 1, and three batches: 1×,
# 16× and 192×. A sample is a pair of user and film, labelled 1 if the user took it. For each such pair four others are
# drawn in each epoch, labelled 0, so one sample in five is a positive. Runs are judged by HR@10 on **validation**: one
# held-out choice of each user, ranked among 100 films that the user never took. The latest choice of each user is the
# test and plays no part here. The learning rates were chosen on validation, at the laptop scale on the stand-in, by the
# score of the last epoch: SGD at the small batch from 0.5, 1 and 2; Adam at 16× from 0.003, 0.01 and 0.03, at 192× from
# 0.003, 0.01, 0.02, 0.03 and 0.05. Those of other scales were not tuned.
#
# The model has the sizes of the paper (8 factors). Its embeddings start with a deviation of 0.1 instead of the paper's
# 0.01: from there plain SGD needs longer to leave the saddle at zero, where a product of two tiny vectors has almost no
# gradient.

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
print(f"HR@10 of guessing 0.099, of the most popular films {experiment.popularity:.3f}")
print(f"loss of the best constant prediction {CONSTANT_LOSS:.4f}, of the untrained model about {math.log(2):.3f}")

# %% [markdown]
# **Predict**: what HR@10 does the small batch reach in its first epoch, and at the end?

# %%
predicted_first_epoch = None  # your number: HR@10 after one epoch
predicted_last_epoch = None  # your number: HR@10 after the last one

# %% tags=["experiment"]
small_model = experiment.fresh_model()
optimizer = torch.optim.SGD(small_model.parameters(), lr=sizes.base_lr, momentum=0.9)
baseline = experiment.train(small_model, optimizer, batches[0])
runs = {"1×": baseline}
print_log(baseline)
print(f"first epoch {baseline.hit_rate[0]:.3f}" + reveal(predicted_first_epoch), end="; ")
print(f"last epoch {baseline.hit_rate[-1]:.3f}" + reveal(predicted_last_epoch))
course.claim("the small batch ends above the most popular films", baseline.hit_rate[-1] > experiment.popularity,
             f"HR@10 {baseline.hit_rate[-1]:.3f} against {experiment.popularity:.3f}",
             otherwise="The training is too short for SGD: smoke makes a few hundred updates.")  # fmt: skip
plots.accuracy(runs, "The small batch", popularity=experiment.popularity, constant=CONSTANT_LOSS)

# %% [markdown]
# Left, the loss of every update (means of neighbours where there are thousands); right, HR@10. The two dashed lines are
# what a model must beat: the best constant prediction, and the most popular films. Every figure below of the loss or
# of HR@10 has the one that belongs to it.

# %% [markdown]
# ## Size matters: throughput
#
# **A larger batch gives the machine more to do at once, so it trains more samples per second, until all its arithmetic
# units are busy.**
#
# The terms of the sum do not depend on each other. They can run on thousands of GPU threads, on the cores of a
# processor, or on many machines of which each takes a share. Some costs occur once *per update*, whatever the batch
# size: starting kernels, reading and writing every weight in the optimizer, exchanging gradients between machines. With
# $c$ seconds per update and $s$ seconds per sample, throughput at batch size $B$ is $B / (c + sB)$: it grows in
# proportion as long as $sB \ll c$ and then levels off at $1/s$. How many times the throughput of the small batch will
# 16× and 192× have?

# %%
predicted_speedup_16 = None  # your number: how many times the samples/s of the 1x batch at 16x
predicted_speedup_192 = None  # your number: the same at 192x

# %% [markdown]
# The timed updates run on batches that were made beforehand, so drawing negatives and shuffling are in none of them.
# $c$ and $s$ are computed from the smallest and the largest batch alone; the three between test the formula.

# %% tags=["experiment"]
timed_batches = [sizes.base_batch * k for k in (1, 4, 16, 64, 192)]
throughputs = []
for batch_size in timed_batches:
    timed = experiment.train_sgd(batch_size, 1e-3, mode="perf", max_steps=sizes.perf_steps)
    throughputs.append(timed.throughput)
seconds = [batch / statistics.median(times) for batch, times in zip(timed_batches, throughputs, strict=True)]
per_sample = (seconds[-1] - seconds[0]) / (timed_batches[-1] - timed_batches[0])
per_update = seconds[0] - per_sample * timed_batches[0]
print("   batch    samples/s   B / (c + sB)")
errors = []
for batch, took in zip(timed_batches, seconds, strict=True):
    modelled = batch / (per_update + per_sample * batch)
    errors.append(abs(modelled * took / batch - 1))
    print(f"{batch:8,} {batch / took:12,.0f} {modelled:14,.0f}")
speedup = {k: seconds[0] / took * k for k, took in zip((1, 4, 16, 64, 192), seconds, strict=True)}
print(f"16×: {speedup[16]:.1f} times the samples/s" + reveal(predicted_speedup_16), end="; ")
print(f"192×: {speedup[192]:.1f} times" + reveal(predicted_speedup_192))
print(f"c = {1e3 * per_update:.2f} ms per update, s = {1e6 * per_sample:.3f} µs per sample, c / s = "
      f"{per_update / per_sample:,.0f} samples; {course.machine()}")  # fmt: skip
course.claim("16 times the batch has more than twice the samples/s", speedup[16] > 2, f"{speedup[16]:.1f} times")
course.claim("from 16× to 192× throughput grows by less than a third of the factor 12",
             speedup[192] / speedup[16] < 4, f"{speedup[192] / speedup[16]:.1f} times",
             otherwise="Your device is still not full at 192×.")  # fmt: skip
course.claim("B / (c + sB) is within 30 % of the three batches that it was not fitted to", max(errors[1:-1]) < 0.3,
             f"off by at most {100 * max(errors[1:-1]):.0f} %",
             otherwise="The cost per sample changes with the batch size, perhaps because this NeuMF multiplies each "
                       "row of its tables once if the batch has more than twice as many rows as the "
                       "tables.")  # fmt: skip
guesses = {16: predicted_speedup_16, 192: predicted_speedup_192}
guesses = {sizes.base_batch * k: guess and guess * timed_batches[0] / seconds[0] for k, guess in guesses.items()}
plots.throughput(timed_batches, throughputs, guesses, (per_update, per_sample))

# %% [markdown]
# The two grey lines cross at $B = c / s$: there an update costs as much for its samples as for being an update. Far
# below, a larger batch is nearly free; far above, it takes more memory and saves no time. A GPU has a much smaller $s$,
# so its crossing lies at a larger batch than that of two cores.

# %% [markdown]
# ## What a larger batch costs: accuracy
#
# **At the same number of epochs and the same learning rate, a larger batch makes fewer updates, and the accuracy
# falls.**
#
# Others have measured what large batches do to accuracy:
#
# - Keskar and colleagues trained small networks with a batch of a tenth of the training data. Test accuracy came out
#   lower than with a small batch by up to about five points although the training loss was just as low: a loss of
#   *generalisation* (arXiv:1609.04836, section 2).
# - Goyal and colleagues trained ResNet-50 on ImageNet. From a batch of 256 up to about 8,000 they kept the validation
#   error near 23.6 %, with the remedies below; beyond that it rises steeply (figure 1). With a batch of 8,192 and the
#   learning rate of the small batch it was 41.7 % after the same number of epochs (arXiv:1706.02677, section 5).
#
# Two different effects add up here. One is trivial: with 16 times the batch an epoch has a sixteenth of the updates, so
# training moves a sixteenth as far. The other is not: even if the training loss gets as low, weights found with little
# gradient noise may do worse on unseen data. Which of them do you expect in the next figure, and how large?

# %%
predicted_hit_rate_16 = None  # your number: final HR@10 of 16x with the same learning rate
predicted_cause = None  # your answer: "too few updates" or "poor generalisation"

# %% tags=["experiment"]
same = experiment.train_sgd(batches[1], sizes.base_lr)
runs["16×, same learning rate"] = same
for label, history in runs.items():
    print_run(label, history)
drop = baseline.hit_rate[-1] - same.hit_rate[-1]
print(f"\nHR@10 of 16×: {same.hit_rate[-1]:.3f}" + reveal(predicted_hit_rate_16) + f"; lost: {drop:.3f}")


def loss_near(history, update, width=50):
    """Mean training loss of the updates around number `update`."""
    return statistics.mean(history.losses[max(0, update - width) : update + width])


as_far, so_far = loss_near(baseline, same.updates), statistics.mean(same.losses[-50:])
print(f"loss after {same.updates:,} updates: 1× {as_far:.3f}, 16× {so_far:.3f}" + reveal(predicted_cause))
otherwise = (
    "The small batch has updates to spare: the data set is large or the training long, so a sixteenth of the updates "
    "is enough."
)
course.claim("16 times the batch with the same learning rate ranks worse than popularity",
             same.hit_rate[-1] < experiment.popularity, f"HR@10 {same.hit_rate[-1]:.3f}",
             otherwise=otherwise)  # fmt: skip
course.claim("with 16 times the batch the training loss ends above the small batch's, for want of updates",
             so_far > baseline.loss[-1] + 0.05, f"{so_far:.3f} against {baseline.loss[-1]:.3f}",
             otherwise=otherwise)  # fmt: skip
course.claim("after as many updates the small batch is no further than 16 times the batch", as_far > so_far - 0.03,
             f"its loss is {as_far:.3f}, that of 16× {so_far:.3f}", otherwise=otherwise)  # fmt: skip
plots.accuracy(runs, "Same learning rate, 16 times the batch", popularity=experiment.popularity, constant=CONSTANT_LOSS)

# %% [markdown]
# The loss decides between the two causes. Poor generalisation would be a training loss as low as that of the small
# batch and a worse HR@10. Here the training loss itself is far higher. On the stand-in it stays on the dashed line of
# the best constant: the model knows that one sample in five is a positive and nothing else, and its HR@10 is that of
# guessing. On MovieLens 100K it comes part of the way. Count updates instead of epochs: after as many, the small batch
# was no further.

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
# The picture shows both sides on the smallest example, a parabola, flat and steep: four blue steps, one orange step.
# With curvature $\lambda$, a step multiplies the distance to the minimum by $1 - \alpha\lambda$. Beyond
# $\alpha\lambda = 1$ it runs past the minimum, beyond 2 it ends farther away than it began.

# %%
plots.many_small_steps_or_one_large()

# %% [markdown]
# ### Exercise 2 · The learning rate that fits the batch
#
# Compute the learning rate for a batch by the linear scaling rule, from one that is known to work with another batch.
#
# **Must** count all samples of one *update*: `accumulation` micro-steps of `batch` samples on each of `ranks`
# processes, against the `base_batch` samples of the known recipe.
#
# **You may assume** that the loss of an update is the *mean* over its samples. With the sum, the gradient itself would
# grow with the batch.
#
# **Points** 2 · **Core** · **Difficulty** ●○○ · **Minutes** 5 · **Lines** 1
#
# **Source** Goyal et al. 2017, arXiv:1706.02677, sections 2.1 (the rule) and 3 (the mean over all workers). Krizhevsky
# 2014, arXiv:1404.5997, used it before.
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
# instead of 0.1) to an error of 23.7 %, against 23.6 % with the small batch; without the warm-up to 24.8 %. The
# unchanged learning rate gave 41.7 %, one multiplied by $\sqrt{32}$, which keeps the variance of the update instead of
# its mean, 26.2 %.
#
# How much of the accuracy that the 16× batch lost does the rule restore here? And Adam, which divides every gradient by
# its own recent size, at the same batch?

# %%
predicted_share_won_back_16 = None  # your number: 0 = nothing of the lost HR@10, 1 = all of it
predicted_adam_16 = None  # your number: the same for Adam

# %% tags=["experiment"]
scaled_lr_now = course.solved(check.scaled_lr)
lr_16 = scaled_lr_now(sizes.base_lr, batches[0], batches[1])
runs["16×, linear rule"] = experiment.train_sgd(batches[1], lr_16)
runs["16×, Adam"] = experiment.train_adam(batches[1], sizes.adam_lr[0])
for label in ("16×, linear rule", "16×, Adam"):
    print_run(label, runs[label])
won, won_by_adam = (
    (runs[label].hit_rate[-1] - same.hit_rate[-1]) / drop for label in ("16×, linear rule", "16×, Adam")
)
print(f"share of the lost HR@10 restored: rule {won:.2f}" + reveal(predicted_share_won_back_16), end="; ")
print(f"Adam {won_by_adam:.2f}" + reveal(predicted_adam_16))
course.claim(
    "the linear rule restores at least nine tenths of the lost HR@10",
    won > 0.9,
    f"{won:.2f} of it",
    otherwise="Either hardly any accuracy was lost, so that the share is noise, or the rule's learning "
    "rate is too large for the batch: the gradient changes too much over 16 small "
    "steps.",
)
highest = max(runs["16×, linear rule"].losses[: same.steps_per_epoch])
course.claim("the linear rule drives the loss of the first epoch above the untrained model's",
             highest > 1.5 * math.log(2), f"up to {highest:.2f}")  # fmt: skip
plots.accuracy(runs, "16 times the batch, with and without the rule", popularity=experiment.popularity,
               constant=CONSTANT_LOSS)  # fmt: skip

# %% tags=["experiment"]
plots.accuracy_seconds({label: runs[label] for label in ("1×", "16×, linear rule", "16×, Adam")}, experiment.popularity)

# %% [markdown]
# Second figure: with the rule the large batch gets where the small one gets, in a fraction of the seconds. Accuracy
# dropped because training moved too little; a larger learning rate restores it. First figure, left: its first updates
# are not harmless. The loss shoots up before it falls, which HR@10, computed once per epoch, cannot show.

# %% [markdown]
# Now 192 times the batch, and 192 times the learning rate. What will the loss do, and when?

# %%
predicted_loss_192 = (
    None  # your answer: "falls", "stays at the constant's", "rises at once" or "rises after some epochs"
)

# %% tags=["experiment"]
lr_192 = scaled_lr_now(sizes.base_lr, batches[0], batches[2])
runs_192 = {"192×, linear rule": experiment.train_sgd(batches[2], lr_192)}
print_run(f"192×, learning rate {lr_192:g}", runs_192["192×, linear rule"])
losses = runs_192["192×, linear rule"].losses
print("loss of the first updates:", " ".join(f"{loss:.3g}" for loss in losses[:6]) + reveal(predicted_loss_192))
course.claim("at 192× with the linear rule, a single update makes the loss more than ten times the untrained model's",
             losses[1] > 10 * losses[0], f"{losses[0]:.3f}, then {losses[1]:.3g}")  # fmt: skip

# %% [markdown]
# The first step alone does it; by the time HR@10 is computed, at the end of the epoch, everything has happened. The
# rule holds only while the gradient hardly changes over the steps that one large step replaces.
#
# Out of memory? Take a smaller `base_batch` in `course/device.py`, or accumulate gradients as in part 4.

# %% [markdown]
# ## Warm-up
#
# **If the rule fails because the gradient changes fastest at the start, a learning rate that starts small and grows
# should save it. That is a claim; you test it.**
#
# Goyal et al. found that a learning rate of $k\alpha$ from the first step on hurts because the network changes rapidly
# at first, and cured it by a warm-up (24.8 % error without, 23.7 % with; a constant small learning rate for five
# epochs, followed by a jump, 25.9 %: table 1). The workshop that this unit is based on puts it in four sentences:
#
# 1. The rule breaks down while the network changes rapidly.
# 2. The update can then be larger than the weights, and the run diverges.
# 3. Training depends strongly on the initial weights and the initial learning rate.
# 4. A warm-up combats this.
#
# Two shapes are common: **exponential**, multiplied by the same factor at each update, from 1 % of the learning rate on
# (in that workshop over a tenth of an epoch); and **linear**, from the small batch's learning rate (Goyal et al.: over
# five epochs). The length is given in epochs and counted in updates; at 192× a tenth of an epoch is about one update.

# %% [markdown]
# ### Exercise 3 · Exponential warm-up
#
# Compute the learning rate of a step: it grows by the same factor at each step, then stays constant.
#
# **Must**
# - let the warm-up last `warmup_epochs * steps_per_epoch` steps, which may be a fraction: do not round. With a length
#   of 0 every step has `lr`;
# - give step 0 the learning rate `start * lr`, and every step at or past the end of the warm-up exactly `lr`. `step` is
#   0 at the start of the training and does not start again with an epoch.
#
# **Points** 3 · **Core** · **Difficulty** ●●○ · **Minutes** 10 · **Lines** 4
#
# **Source** The workshop notebook on which this unit is based, with its numbers. The idea: Goyal et al. 2017, section
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
# The other shape: the learning rate grows by equal amounts from the small batch's to the large batch's, then stays.
#
# **Must**
# - give step 0 exactly `base_lr`, and step `warmup_epochs * steps_per_epoch`, which may be a fraction, and all later
#   ones exactly `lr`;
# - lie on the straight line in between.
#
# **Points** 2 · **Extra** · **Difficulty** ●○○ · **Minutes** 5 · **Lines** 4
#
# **Source** Goyal et al. 2017, arXiv:1706.02677, section 2.2. Conventions differ: Hugging Face's transformers start at
# 0; nanoGPT counts from 1 and divides by the length plus 1.
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
# Both shapes over two epochs of ten updates. Your function also drives torch's own scheduler: `LambdaLR` multiplies the
# optimizer's learning rate by what a function of the step returns.

# %% tags=["experiment"]
exponential = course.solved(check.exponential_warmup)
linear = course.solved(check.linear_warmup)
optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=lr_192)
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: exponential(step, 10, 1.0, 2))
from_torch = []
for _ in range(25):
    from_torch += scheduler.get_last_lr()
    optimizer.step()
    scheduler.step()
ramp_lrs = {
    "exponential, 2 epochs": [exponential(step, 10, lr_192, 2) for step in range(25)],
    "linear, 2 epochs": [linear(step, 10, sizes.base_lr, lr_192, 2) for step in range(25)],
}
course.claim("LambdaLR with your function gives the same learning rates",
             torch.allclose(torch.tensor(from_torch), torch.tensor(ramp_lrs["exponential, 2 epochs"])))  # fmt: skip
plots.learning_rates(ramp_lrs, "Two ramps to the learning rate of the rule")

# %% [markdown]
# Now 192 times the batch again, with three ramps before the learning rate of the rule: exponential over one epoch,
# linear over one, exponential over three. Beside them Adam, without a ramp. What comes of each?

# %%
predicted_survivors = None  # your number: of three ramps, over 1, 1 and 3 epochs, how many keep the loss finite
predicted_adam_192 = None  # your number: final HR@10 of Adam at 192x

# %% tags=["experiment"]
ramps = {
    "192×, exponential, 1 epoch": lambda step, n: exponential(step, n, lr_192, 1),
    "192×, linear, 1 epoch": lambda step, n: linear(step, n, sizes.base_lr, lr_192, 1),
    "192×, 3 epochs of ramp": lambda step, n: exponential(step, n, lr_192, 3),
}
for label, ramp in ramps.items():
    runs_192[label] = experiment.train_sgd(batches[2], lr_192, schedule=ramp)
adam_model = experiment.fresh_model()
optimizer = torch.optim.Adam(adam_model.parameters(), lr=sizes.adam_lr[1])
runs_192["192×, Adam"] = experiment.train(adam_model, optimizer, batches[2])
for label, history in runs_192.items():
    above = next((i for i, loss in enumerate(history.losses) if i and not loss < 2 * math.log(2)), None)
    print_run(label, history)
    print(f"{'':31}loss above twice the untrained model's: " + (f"from update {above} on" if above else "never"))
print(f"ramps that kept the loss finite: {sum(not runs_192[label].diverged for label in ramps)} of 3"
      + reveal(predicted_survivors))  # fmt: skip
adam_192 = runs_192["192×, Adam"].hit_rate[-1]
print(f"Adam at 192×: HR@10 {adam_192:.3f}" + reveal(predicted_adam_192))
tops = {
    label: max((loss for loss in runs_192[label].losses if math.isfinite(loss)), default=math.inf) for label in ramps
}
course.claim("at 192× with the linear rule, no ramp keeps the loss below twice the untrained model's",
             all(runs_192[label].diverged or tops[label] > 2 * math.log(2) for label in ramps))  # fmt: skip
other_starts = [experiment.train_sgd(batches[2], lr_192, epochs=1, seed=seed).losses[1] for seed in (1, 2, 3)]
course.claim("at 192× without a ramp, the first step at least doubles the loss from three other initial weights too",
             all(not loss < 2 * math.log(2) for loss in other_starts),
             ", ".join(f"{loss:.3g}" for loss in other_starts))  # fmt: skip
course.claim("at 192×, Adam without a ramp ends within 0.05 of the small batch's HR@10",
             adam_192 > baseline.hit_rate[-1] - 0.05,
             f"{adam_192:.3f} against {baseline.hit_rate[-1]:.3f}")  # fmt: skip
ramp_model = experiment.fresh_model()
optimizer = torch.optim.SGD(ramp_model.parameters(), lr=lr_16, momentum=0.9)
ramp_16 = experiment.train(ramp_model, optimizer, batches[1], schedule=lambda step, n: exponential(step, n, lr_16, 1))
with_ramp = max(ramp_16.losses[: ramp_16.steps_per_epoch])
course.claim("at 16×, the highest loss of the first epoch is lower with a ramp than without", with_ramp < highest,
             f"at most {with_ramp:.2f} against {highest:.2f}")  # fmt: skip
runs_192 = {"1×": baseline} | runs_192
plots.accuracy(runs_192, "192 times the batch", popularity=experiment.popularity, constant=CONSTANT_LOSS)

# %% [markdown]
# Left: a ramp delays the jump of the loss; it comes while the learning rate grows, or soon after. Right, the same runs
# do not show it: two are evaluated for five epochs and more, and their HR@10 even rises for a while. At 16× the same
# ramp does what Goyal et al. promise: the loss no longer jumps at the start. A warm-up helps one batch and not the
# other, so "the network changes rapidly at first" is not the whole reason.
#
# How long a diverging run lasts depends on chance: another seed, even another number of threads, gives another picture.
# Where Adam falls behind, its learning rate, tuned on the stand-in, does not suit the data. (A cross at 0: the run
# diverged before it was evaluated once.)

# %% [markdown]
# ## Autopsy: how sharp is the loss?
#
# **Gradient descent is stable along a direction only while its learning rate is below a limit that the curvature sets.
# The curvature can be measured.**
#
# On a parabola with curvature $\lambda$, steps with momentum $m$ converge as long as
#
# $$\lambda < \frac{2\,(1 + m)}{\alpha}, \qquad\text{otherwise each step ends farther away than it began.}$$
#
# A network has one curvature per direction: the eigenvalues of its Hessian $H$, the matrix of second derivatives. The
# largest is the first to cross the limit. With a hundred thousand weights $H$ has ten billion entries, but its product
# with a vector costs about two gradients (Pearlmutter 1994), since $H v = \nabla (\nabla f \cdot v)$. Multiply any
# vector by $H$ again and again, and it turns into the eigenvector of the largest eigenvalue.

# %% [markdown]
# ### Exercise 5 · The top eigenvalue
#
# Compute the eigenvalue of largest magnitude of a loss's Hessian by power iteration.
#
# **Must**
# - treat all parameters as one vector: one norm, one inner product over all tensors;
# - start from `start`; in each of `products` rounds scale the direction to norm 1, which gives $v$, and compute $Hv$,
#   the direction of the next round;
# - return (eigenvalue, direction), both of the last round: $v \cdot Hv$ as a float, which may be negative, and $v$, a
#   list of tensors;
# - leave `start` and the parameters' `grad` as they are.
#
# **You may assume** a loss that can be differentiated twice in every parameter, and at least one product.
#
# **Points** 4 · **Extra** · **Difficulty** ●●○ · **Minutes** 15 · **Lines** 7
#
# **Source** Pearlmutter 1994, "Fast exact multiplication by the Hessian".
#
# <details><summary>Hint 1</summary>
#
# `torch.autograd.grad` gives the gradient as a tuple of tensors. What must be true of them if you want to differentiate
# them once more?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `create_graph=True` keeps the gradient's own graph. `torch.autograd.grad(gradient, params, v, retain_graph=True)`
# differentiates the sum of the inner products of `gradient` and `v`: that is $Hv$, as a tuple.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# The joint norm: `torch.stack([part.norm() for part in product]).norm()`. Divide every part by it, that is $v$; replace
# `product` by $Hv$. After the loop, sum `(a * b).sum()` over the pairs of $v$ and $Hv$.
#
# </details>


# %% solution="top_eigenvalue"
def top_eigenvalue(loss, params, start, products=20):
    """The largest eigenvalue, by magnitude, of the Hessian of `loss`, and its direction.

    Args:
        loss: scalar tensor with its graph, a twice differentiable function of every parameter.
        params: list of float tensors that require a gradient.
        start: list of tensors like `params`, not all zero: the direction to begin with, of any length.
        products: Hessian-vector products, at least 1.

    Returns: (eigenvalue, direction): v·Hv of the last product as a float, and v, a list of tensors of joint norm 1.
    """
    ### BEGIN SOLUTION
    gradient = torch.autograd.grad(loss, params, create_graph=True)
    product = start
    for _ in range(products):
        norm = torch.stack([part.norm() for part in product]).norm()
        direction = [part / norm for part in product]
        product = torch.autograd.grad(gradient, params, direction, retain_graph=True)
    eigenvalue = sum((v * hv).sum() for v, hv in zip(direction, product, strict=True))
    return eigenvalue.item(), direction
    ### END SOLUTION


# %% test="top_eigenvalue-visible" points=2
check.top_eigenvalue(top_eigenvalue)

# %% test="top_eigenvalue-hidden" points=2
### BEGIN HIDDEN TESTS
check.top_eigenvalue(top_eigenvalue, seed=1994)
### END HIDDEN TESTS

# %% [markdown]
# `dissect`, in `course/training/recommender.py`, trains with your `sgd_step` and notes at every update: the loss; your
# eigenvalue on a fixed set of samples; the limit $2 (1 + m) / \alpha$ of that moment; how far each tensor moves
# relative to its own norm; and whether the MLP half still gets a gradient. It continues from the last direction, so six
# products per update are enough. What do you expect?

# %%
predicted_order = None  # your answer: does the eigenvalue cross the limit "before" or "after" the loss jumps
predicted_longest = None  # your number: how many times as long as its tensor is the longest update of 16x
predicted_sharpest = None  # your answer: where is 16x sharpest after an epoch: "tables", "layers" or "output bias"

# %% tags=["experiment"]
answers = dict(sgd_step=course.solved(check.sgd_step), top_eigenvalue=course.solved(check.top_eigenvalue))
answers["rows"] = sizes.sharpness_rows
cases = {
    "16×, linear rule": dissect(experiment, batches[1], lambda step, n: lr_16, 1, **answers),
    "192×, linear rule": dissect(experiment, batches[2], lambda step, n: lr_192, 1, **answers),
    "192×, exponential, 1 epoch": dissect(experiment, batches[2], ramps["192×, exponential, 1 epoch"], 2, **answers),
}
twice = 2 * math.log(2)  # the loss of the untrained model


def first(updates, condition):
    """The number of the first update that fulfils the condition, or infinity."""
    return next((update.number for update in updates if condition(update)), math.inf)


for label, updates in cases.items():
    crossing = first(updates, lambda update: abs(update.eigenvalue) > update.limit)
    jump = first(updates, lambda update: update.loss > twice)
    course.claim(f"{label}: the eigenvalue crosses the limit before the loss jumps", crossing < jump,
                 f"at update {crossing}; the loss is above {twice:.2f} from update {jump} on",
                 otherwise="The loss never jumped, or the tracked direction had not yet turned into the "
                           "eigenvector.")  # fmt: skip
if predicted_order:
    print(f"you said: {predicted_order}")
plots.autopsy(cases, CONSTANT_LOSS)

# %% [markdown]
# Look at the third column: as the learning rate grows, the black limit falls until it meets the eigenvalue, and in the
# updates right after that the loss jumps. In the second column the eigenvalue is far above the limit from the first
# update on. In the first it begins above the limit and the loss jumps too, but then the eigenvalue falls to the limit
# and below, and the run goes on. (The figure shows magnitudes. After a jump the eigenvalue says little, because the
# model is somewhere else.)

# %% [markdown]
# Sentence 2 of the list blames updates that are larger than the weights. The same records decide.

# %% tags=["experiment"]
survivor = cases["16×, linear rule"]
largest = {name: max(update.ratios[name] for update in survivor) for name in survivor[0].ratios}
longest = max(largest, key=largest.get)
print(f"longest update of 16×: {largest[longest]:.0f} times {longest}" + reveal(predicted_longest))
course.claim("at 16×, which trains, some updates are longer than the tensors that they change",
             largest[longest] > 1 and not runs["16×, linear rule"].diverged,
             f"{sum(ratio > 1 for ratio in largest.values())} of {len(largest)} tensors")  # fmt: skip
silent_from = {label: 1 + max((update.number for update in updates if not update.mlp_silent), default=-1)
               for label, updates in cases.items()}  # fmt: skip
for label, number in silent_from.items():
    print(f"{label}: " + (f"the MLP half gets no gradient from update {number} on" if number < len(cases[label])
                          else "the MLP half still gets gradients at the end"))  # fmt: skip
course.claim("the first epoch of 16× kills the MLP branch: the ReLUs of its last layer output 0 for all samples",
             survivor[-1].mlp_silent, f"from update {silent_from['16×, linear rule']} on",
             otherwise="The first jump was small enough for some units to survive it.")  # fmt: skip
sharpest = max(survivor[-1].shares, key=survivor[-1].shares.get)
print(f"sharpest direction of 16× after its first epoch: {sharpest}" + reveal(predicted_sharpest))
left = survivor[-1].shares["output.bias"]
course.claim(
    "at the end of the first epoch of 16×, the sharpest direction is the output bias",
    left > 0.9,
    f"{100 * left:.0f} % of it",
)
off = mlp_is_silent(experiment, small_model, sizes.sharpness_rows)
print("the 1× run, after its last update: the MLP half is " + ("off" if off else "on"))
plots.ratios_over_time({label: cases[label] for label in ("16×, linear rule", "192×, exponential, 1 epoch")})

# %% [markdown]
# An update longer than its tensor does not tell the two runs apart: it happens in the run that trains, too, to biases,
# which start near zero, and to some weights. The straight lines that fall on the left are tensors without any
# gradient: only their velocity moves them still, and momentum shrinks it by a tenth per update. Soon after the first
# jump of these two every ReLU of the MLP's last layer gives zero for every sample, so nothing passes that half,
# forward or backward, and at the end of the epoch that is still so. With that half its curvature is gone, and the run
# goes on; its HR@10 is that of the other half, the product of embeddings. HR@10 alone would never have told. The jump
# is not the only cause: the last line says whether the small batch, which has no jump, kept that half.

# %% [markdown]
# ## What a warm-up can change, and what it cannot
#
# **A warm-up keeps the loss from jumping at the start. Curvature that stays sets the largest learning rate, however
# slow the ramp.**
#
# Gilmer et al. (2021) report that a warm-up moves training into flatter regions, which then bear a larger learning
# rate; Cohen et al. (2021) that curvature settles near the limit. Two ramps to the learning rate of 16×, one at 16× and
# a slower one at 192×, show what stays here. Then the formula of the autopsy, $\alpha < 2\,(1 + m) / \lambda$ with the
# top eigenvalue $\lambda$ of the loss's Hessian, says, without any further run, which learning rate is the largest.

# %%
predicted_mlp = None  # your answer: at 16x with a ramp over one epoch, is the MLP half "on" or "off" at the end
predicted_largest_lr = None  # your number: the largest learning rate that 192x bears after a ramp of three epochs

# %% tags=["experiment"]
off = mlp_is_silent(experiment, ramp_model, sizes.sharpness_rows)
print("16× with a ramp of one epoch, after its last update: the MLP half is " + ("off" if off else "on")
      + reveal(predicted_mlp))  # fmt: skip
course.claim("with a ramp the loss of 16× never jumps, yet its MLP branch dies as well",
             off and max(ramp_16.losses) < twice, f"loss at most {max(ramp_16.losses):.2f}")  # fmt: skip
slow_ramp = dissect(experiment, batches[2], lambda step, n: exponential(step, n, lr_16, 3), max(4, sizes.epochs // 2),
                    **answers)  # fmt: skip
settled = slow_ramp[-1]
sharpest = sorted(settled.shares, key=settled.shares.get, reverse=True)[:3]
direction = ", ".join(f"{name} {100 * settled.shares[name]:.0f} %" for name in sharpest)
print(f"192×, slow ramp, last update: eigenvalue {settled.eigenvalue:.3f}; its direction: {direction}")
limits = {momentum: 2 * (1 + momentum) / abs(settled.eigenvalue) for momentum in (0.9, 0.0)}
print(f"predicted limit with momentum 0.9: {limits[0.9]:.1f}" + reveal(predicted_largest_lr)
      + f"; without: {limits[0.0]:.1f}; the rule asks for {lr_16:g} at 16× and {lr_192:g} at 192×")  # fmt: skip
print(f"at its first update {slow_ramp[0].eigenvalue:.3f}; the MLP half "
      + ("is off at the end" if settled.mlp_silent else "is on at the end"))  # fmt: skip
crossing = first(slow_ramp, lambda update: abs(update.eigenvalue) > update.limit)
course.claim("on the slow ramp the curvature falls before the limit does: the eigenvalue never crosses it",
             crossing == math.inf, f"of {len(slow_ramp)} updates")  # fmt: skip
course.claim("on the slow ramp, the sharpest direction is the output bias alone", settled.shares["output.bias"] > 0.9,
             f"{100 * settled.shares['output.bias']:.0f} % of it")  # fmt: skip
course.claim("the curvature along the output bias is p (1 - p) with p = 1/5, within a quarter",
             abs(settled.eigenvalue / 0.16 - 1) < 0.25,
             f"{settled.eigenvalue:.3f}")  # fmt: skip
course.claim("the limit lies between the learning rates of 16× and 192×", lr_16 < limits[0.9] < lr_192,
             f"{limits[0.9]:.1f}")  # fmt: skip


# %% tags=["experiment"]
def sharpness(model):
    """(top eigenvalue, mean of p (1 - p)) of a model, on the samples of the autopsy."""
    users, items, labels = experiment.first_batch(sizes.sharpness_rows)
    params = list(model.parameters())
    generator = torch.Generator().manual_seed(0)
    start = [torch.randn(p.shape, generator=generator).to(p.device) for p in params]
    logits = model(users, items)
    loss = torch.nn.functional.binary_cross_entropy_with_logits(logits, labels)
    p = logits.detach().sigmoid()
    return answers["top_eigenvalue"](loss, params, start, 40)[0], (p * (1 - p)).mean().item()


trained = {"1×, SGD": sharpness(small_model), "192×, Adam": sharpness(adam_model)}
for (label, (eigenvalue, spread)), model in zip(trained.items(), (small_model, adam_model), strict=True):
    off = "off" if mlp_is_silent(experiment, model, sizes.sharpness_rows) else "on"
    print(
        f"{label:<11} after its last update: eigenvalue {eigenvalue:.2f}, mean p (1 - p) {spread:.3f}, MLP half {off}"
    )
course.claim("a trained model is less sharp along the output bias: its mean p (1 - p) is below 0.12",
             trained["1×, SGD"][1] < 0.12, f"{trained['1×, SGD'][1]:.3f}")  # fmt: skip
course.claim("with the MLP branch alive, the loss is more than five times as sharp", trained["192×, Adam"][0]
             > 5 * abs(settled.eigenvalue), f"{trained['192×, Adam'][0]:.2f}")  # fmt: skip

# %% [markdown]
# On the slow ramp the curvature falls first, while the learning rate is still small: that is the flatter region. What
# is left at its end is the curvature of one number of some hundred thousand. The output bias shifts all logits alike,
# and the second derivative of the loss in it is the mean of $p\,(1 - p)$ over the samples: 0.16 for a model that says
# one fifth to every pair. It falls only as the model learns to tell films apart, and at 192× that takes more updates
# than there are.
#
# Adam ends elsewhere: with the MLP half in use the loss is many times as sharp, and SGD with momentum 0.9 would have to
# stay below $3.8 / \lambda$ there, far below 16. So the flatter region, reached with a ramp or without, costs SGD half
# of its model.
#
# Now the test of the prediction: four runs with a ramp of three epochs, at 0.7 and 1.4 times the predicted limit, with
# and without momentum. And a fifth: if one number sets the limit, a run that holds back this number alone must bear
# more.


# %% tags=["experiment"]
def ramp_to(lr):
    """Schedule with an exponential ramp of three epochs to `lr`."""
    return lambda step, n: exponential(step, n, lr, min(3, sizes.epochs - 1))


def late_loss(history):
    """Largest loss of the last two epochs."""
    late = history.losses[-2 * history.steps_per_epoch :]
    return max(loss if math.isfinite(loss) else math.inf for loss in late)


for momentum, limit in limits.items():
    for share in (0.7, 1.4):
        lr = share * limit
        worst = late_loss(experiment.train_sgd(batches[2], lr, momentum, schedule=ramp_to(lr)))
        outcome = "stable" if share < 1 else "unstable"
        course.claim(f"with momentum {momentum:g}, {share:g} times the limit is {outcome}",
                     (worst < 1.1 * CONSTANT_LOSS) == (share < 1),
                     f"learning rate {lr:.1f}, largest late loss {worst:.3g}")  # fmt: skip
lr = 2.5 * limits[0.9]
held = experiment.fresh_model()
held.output.bias.register_hook(lambda gradient: gradient * sizes.base_lr / lr)  # its learning rate: that of 1×
optimizer = torch.optim.SGD(held.parameters(), lr=lr, momentum=0.9)
worst = late_loss(experiment.train(held, optimizer, batches[2], schedule=ramp_to(lr)))
course.claim("2.5 times the limit is stable, too, if the output bias alone keeps the learning rate of the small batch",
             worst < 1.1 * CONSTANT_LOSS, f"learning rate {lr:.1f}, largest late loss {worst:.3g}")  # fmt: skip
memory = 1 / (1 - 0.9)
for label, history in (("1×", baseline), ("16×", same), ("192×", runs_192["192×, Adam"])):
    n = history.steps_per_epoch
    print(f"{label:<5}{n:>6,} updates per epoch; momentum remembers about {memory:.0f}, {100 * memory / n:.1f} % of an "
          f"epoch; gradients older than an epoch have {100 * 0.9**n:.0f} % of the weight")  # fmt: skip

# %% [markdown]
# Momentum 0.9 makes the long-run step ten times as long, $\alpha / (1 - m)$, and yet raises the limit of $\alpha$, from
# $2 / \lambda$ to $3.8 / \lambda$: along the sharp direction, where gradients change their sign at every step, the
# velocity cancels them. Its memory is counted in updates: at 1× it forgets within a small part of an epoch, at 192× it
# still gives a third of the weight to gradients that are older than an epoch.
#
# Where a verdict differs, the eigenvalue had not settled (`smoke` has some twenty updates), the training was too short
# to learn, or in one of the runs the MLP half is on and sharper than the bias. Behind the bias the next direction
# waits: when the fifth run was tried with the learning rate of the rule, it diverged, too.

# %% [markdown]
# If the dense layers and their biases set the limit, and not the tables, which hold nearly all weights, then it must
# help to leave the layers alone: the learning rate of the rule for the four tables only, and that of the small batch
# for the layers. No ramp, nothing tuned. What will HR@10 be?

# %%
predicted_two_lrs = None  # your number: HR@10 at 192x with the rule for the tables only


# %% tags=["experiment"]
def two_learning_rates(params):
    """SGD with the learning rate of the rule for the tables, and with that of the small batch for the layers."""
    params = list(params)  # the four tables come first, as the model was written
    return torch.optim.SGD(
        [dict(params=params[:4], lr=lr_192), dict(params=params[4:], lr=sizes.base_lr)], momentum=0.9
    )


assert all("user" in name or "item" in name for name, _ in list(experiment.fresh_model().named_parameters())[:4])
split = experiment.train_fresh(two_learning_rates, batches[2])
same_192 = experiment.train_sgd(batches[2], sizes.base_lr)
print_run("192×, the rule for the tables", split)
print_run("192×, same learning rate", same_192)
print(f"HR@10 {split.hit_rate[-1]:.3f}" + reveal(predicted_two_lrs))
highest = max(split.losses)
otherwise = (
    "An epoch has many more updates than here (at gpu scale more than a hundred), so even a safe learning rate moves "
    "far enough."
)
course.claim("with the rule for the tables only, the loss of 192× never exceeds 1.5 times the untrained model's",
             not split.diverged and highest < 1.5 * math.log(2), f"at most {highest:.2f}",
             otherwise=otherwise)  # fmt: skip
course.claim("with the rule for the tables only, HR@10 of 192× ends above the most popular films",
             split.hit_rate[-1] > experiment.popularity,
             f"{split.hit_rate[-1]:.3f} against {experiment.popularity:.3f}", otherwise=otherwise)  # fmt: skip
final = {
    "same learning rate": {batches[0]: baseline, batches[1]: same, batches[2]: same_192},
    "linear rule": {
        batches[0]: baseline,
        batches[1]: runs["16×, linear rule"],
        batches[2]: runs_192["192×, linear rule"],
    },
    "Adam": {batches[1]: runs["16×, Adam"], batches[2]: runs_192["192×, Adam"]},
    "rule for the tables only": {batches[2]: split},
}
plots.final_accuracy({recipe: {batch: history.hit_rate[-1] for batch, history in of.items()}
                      for recipe, of in final.items()}, experiment.popularity)  # fmt: skip

# %% [markdown]
# What became of the four sentences:
#
# 1. *The rule breaks down while the network changes rapidly.* The loss jumps where the learning rate exceeds $2 (1 +
#    m)$ over the curvature, and the run is lost if the curvature does not fall below that. At the start the curvature
#    is higher than later, so that is often the place.
# 2. *The update is larger than the weights.* That also happens in the run that trains.
# 3. *It depends on the initial weights and the initial learning rate.* On the learning rate, by the formula. Other
#    initial weights changed how high the loss jumped, not whether.
# 4. *A warm-up combats this.* At 16× it keeps the loss from jumping; the MLP half goes off with it and without it. At
#    192× it only delays the jump: what remains after the ramp is sharper than the learning rate of the rule allows.
#
# One learning rate for all tensors must suit the sharpest of them, and the tables then move too little in the few
# updates of a large batch. Part 3 gives every tensor a learning rate of its own, without naming them by hand.

# %% [markdown]
# ## References
#
# 1. P. Goyal et al., Accurate, Large Minibatch SGD: Training ImageNet in 1 Hour, 2017.
#    [arXiv:1706.02677](https://arxiv.org/abs/1706.02677)
# 2. N. S. Keskar, D. Mudigere, J. Nocedal, M. Smelyanskiy, P. T. P. Tang, On Large-Batch Training for Deep Learning:
#    Generalization Gap and Sharp Minima, ICLR 2017. [arXiv:1609.04836](https://arxiv.org/abs/1609.04836)
# 3. B. A. Pearlmutter, Fast Exact Multiplication by the Hessian, Neural Computation 6, 1994.
# 4. J. M. Cohen, S. Kaur, Y. Li, J. Z. Kolter, A. Talwalkar, Gradient Descent on Neural Networks Typically Occurs at
#    the Edge of Stability, ICLR 2021. [arXiv:2103.00065](https://arxiv.org/abs/2103.00065)
# 5. J. Gilmer et al., A Loss Curvature Perspective on Training Instability in Deep Learning, 2021.
#    [arXiv:2110.04369](https://arxiv.org/abs/2110.04369)
