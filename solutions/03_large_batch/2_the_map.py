# %% [markdown]
# # Large batches, part 2: Bigger batch, bigger step
#
# **How much faster is a larger batch, and which learning rate keeps its accuracy?**
#
# Hardware is fast when one operation has thousands of samples. Stochastic gradient descent learns from many small
# steps. You make the batch of a recommender 16 and 192 times as large and watch the accuracy fall. Then you try the two
# classic remedies, a learning rate that grows with the batch and a warm-up, and compare them with Adam.
#
# **You will be able to**
#
# - predict how throughput grows with the batch size, and say where it stops growing;
# - scale the learning rate with the batch, over ranks and accumulation, and warm it up;
# - see from silent units that a part of a network has stopped training.
#
# **Minutes** 48 core · 73 in all
#
# **Needs** the model of part 1

# %% locked="setup"
import math
import statistics

import torch

import course
from course import figures
from course.checks import large_batch as check
from course.learner.predictions import reveal
from course.measure.comparison import compare
from course.plots import large_batch as plots
from course.training import recommender_loop
from course.training.recommender import CONSTANT_LOSS, Experiment, print_run

print(course.machine())

# %% [markdown]
# ## How much faster is a larger batch?
#
# Training minimises the mean loss of all samples over the weights $w$. Stochastic gradient descent estimates its
# gradient by the mean over a batch $B_k$, and steps with learning rate $\alpha$:
#
# $$w_{k+1} = w_k - \alpha\, \frac{1}{|B_k|} \sum_{i \in B_k} \nabla f_i(w_k)$$
#
# Batch size controls how accurate that mean is; the learning rate controls how far we step. The terms of the sum do not
# depend on each other, so they can run in parallel. Other costs occur once *per update*, whatever the batch size:
# starting kernels, and reading and writing every weight in the optimizer. With $c$ seconds per update and $s$ seconds
# per sample, throughput at batch size $B$ is $B / (c + sB)$.
#
# **Predict** by what factor the throughput grows with 16 times the batch, and with 192 times.

# %%
predicted_speedup_16 = None  # your number: how many times the samples/s of the 1x batch at 16x
predicted_speedup_192 = None  # your number: the same at 192x

# %% [markdown]
# The next cell prepares the experiments as in part 1, with three batches: 1×, 16× and 192×. It times updates on batches
# made beforehand. $c$ and $s$ are computed from the smallest and the largest batch alone; the three between test the
# formula.

# %% tags=["experiment"]
sizes = course.sizes("03_large_batch")
experiment = Experiment(sizes)
batches = experiment.batches
print(experiment)

recommender_loop.keep_freed_memory()


def updates(batch_size):
    """A function that makes a few updates on one batch, made beforehand."""
    model, batch = experiment.fresh_model(), experiment.first_batch(batch_size)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)

    def run():
        for _ in range(sizes.perf_steps):
            recommender_loop.training_step(model, *batch, optimizer)

    return run


timed_batches = {k: sizes.base_batch * k for k in (1, 4, 16, 64, 192)}
ways = {k: updates(batch) for k, batch in timed_batches.items()}
compared = compare(ways, device=course.device(), seconds=sizes.seconds, progress=False)
seconds = {k: compared.time(k).estimate / sizes.perf_steps for k in ways}
per_sample = (seconds[192] - seconds[1]) / (timed_batches[192] - timed_batches[1])
per_update = seconds[1] - per_sample * timed_batches[1]
throughputs = {k: compared.rate(k, sizes.perf_steps * batch) for k, batch in timed_batches.items()}
print("   batch    samples/s   B / (c + sB)")
for k, batch in timed_batches.items():
    print(f"{batch:8,} {throughputs[k].estimate:12,.0f} {batch / (per_update + per_sample * batch):14,.0f}")
speedup = {k: compared.ratio(k).scaled(k) for k in ways}
print(f"16×: {speedup[16]} times the samples/s" + reveal(predicted_speedup_16), end="; ")
print(f"192×: {speedup[192]} times" + reveal(predicted_speedup_192))
print(f"c = {1e3 * per_update:.2f} ms per update, s = {1e6 * per_sample:.3f} µs per sample")
print(f"{compared.rounds} rounds, {compared.stopped}; the 1× batch against itself: {compared.control}")
course.claim("16 times the batch trains more than twice the samples/s", speedup[16], above=2)
course.claim("from 16× to 192×, 12 times the batch, throughput grows by less than 4 times",
             compared.ratio(192, to=16).scaled(12), below=4,
             otherwise="Your device is still not full at 192×.")  # fmt: skip
computed = per_update + per_sample * timed_batches[16]
alone = (per_sample * timed_batches[16], seconds[1])  # two nulls: no c, or no s
print(f"16×: {1e3 * seconds[16]:.2f} ms per update, computed {1e3 * computed:.2f}; "
      f"from s alone {1e3 * alone[0]:.2f}, as long as 1× {1e3 * alone[1]:.2f}")  # fmt: skip
course.claim("c + sB, fitted to the 1× and the 192× batch, is within 25 % of an update of the 16× batch",
             compared.time(16).scaled(1 / sizes.perf_steps / computed), within=(0.8, 1.25),
             otherwise="The cost per sample changes with the batch size, as where a cache is full.")  # fmt: skip
guesses = {16: predicted_speedup_16, 192: predicted_speedup_192}
guesses = {sizes.base_batch * k: guess and guess * throughputs[1].estimate for k, guess in guesses.items()}
plots.throughput(list(timed_batches.values()), list(throughputs.values()), guesses, (per_update, per_sample))

# %% [markdown]
# At *B* = c / s, the fixed cost of an update equals the cost of its samples. Beyond that, throughput at most doubles.
#
# **Takeaway** A batch is large enough when the fixed cost of an update equals the cost of its samples.

# %% [markdown]
# ## Can you write the step? · extra
#
# Momentum keeps a decaying sum of past gradients, the velocity $v$, and steps along it.

# %% [markdown]
# ### Exercise 1 · SGD with momentum
#
# Make one step of SGD with momentum and weight decay on lists of tensors, in place, as `torch.optim.SGD` does.
# Velocities start at zero.
#
# **Must**
# - compute $v \leftarrow m v + (g + \lambda w)$, then $w \leftarrow w - \alpha v$ with the *new* velocity;
# - change parameters and velocities themselves, also parameters that require a gradient;
# - leave the gradients alone, and record nothing for autograd.
#
# ```python
# >>> w, v = torch.tensor([1.0]), torch.tensor([4.0])
# >>> sgd_step([w], [torch.tensor([2.0])], [v], lr=0.5, momentum=0.5)
# >>> w, v
# (tensor([-1.]), tensor([4.]))
# ```
#
# **Points** 4 · **Extra** · **Difficulty** ●●○ · **Minutes** 15 · **Lines** 4
#
# **Source** `torch.optim.SGD`, without dampening and Nesterov.
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

# %%
sgd_step_now = course.solved(check.sgd_step)
torch.manual_seed(0)
theirs, yours = torch.nn.Linear(8, 1), torch.nn.Linear(8, 1)
yours.load_state_dict(theirs.state_dict())
sgd_of_torch = torch.optim.SGD(theirs.parameters(), lr=0.1, momentum=0.9)
velocities = [torch.zeros_like(p) for p in yours.parameters()]
rows = torch.randn(64, 8)
for _ in range(20):
    for layer in (theirs, yours):
        layer.zero_grad()
        (layer(rows) - rows.sum(1, keepdim=True)).square().mean().backward()
    sgd_of_torch.step()
    sgd_step_now(list(yours.parameters()), [p.grad for p in yours.parameters()], velocities, lr=0.1)
course.claim("20 of your steps lead to the same weights as torch.optim.SGD",
             all(map(torch.allclose, theirs.parameters(), yours.parameters())))  # fmt: skip

# %% [markdown]
# ## Does the small batch train the whole model?
#
# HR@10 on validation does not show *what* trains. So look at the silent units, too: for each of the three MLP layers,
# the share of units that output 0 for all of 8,192 samples.
#
# NeuMF as published starts with an output bias near 0, so the untrained model says "one half" to every pair. Ours
# starts at the log odds of a positive. Does that matter? The first six runs below train half an epoch with SGD at twice
# the learning rate of the small batch. They differ in the output bias and in the seed only. The last run trains the
# small batch to the end, with one seed because it makes so many updates. This unit compares everything with it.
#
# **Predict**: what share of the last MLP layer is silent after half an epoch if the bias starts at 0? And which HR@10
# does the small batch reach at the end?

# %%
predicted_silent = None  # your number from 0 to 1: silent units of the last layer, bias started at 0
predicted_last_epoch = None  # your number: HR@10 of the small batch after the last epoch


# %% tags=["experiment"]
def each_seed(label, make_optimizer, batch, output_bias=None, seeds=None, **options):
    """The Histories of runs that differ in the seed alone, printed."""
    histories = []
    for seed in range(seeds or sizes.seeds):
        model = experiment.fresh_model(seed=seed, **({} if output_bias is None else {"output_bias": output_bias}))
        histories.append(experiment.train(model, make_optimizer(model.parameters()), batch, seed=seed, **options))
        print_run(label, histories[-1])
    return histories


def sgd(lr):
    """A function that makes SGD with momentum 0.9 for parameters."""
    return lambda parameters: torch.optim.SGD(parameters, lr=lr, momentum=0.9)


def final(histories):
    """The last HR@10 of each run, 0 for one that diverged."""
    return [0.0 if history.diverged else history.hit_rate[-1] for history in histories]


def said(values):
    """The values of all seeds as text."""
    return ", ".join(f"{value:.3f}" for value in values)


def last_layer(histories):
    """Silent share of the last MLP layer of each run, 1 for one that diverged."""
    return [1.0 if history.diverged else history.silent[-1] for history in histories]


first_epoch = {
    bias: each_seed(f"1×, bias from {bias}", sgd(2 * sizes.base_lr), batches[0], start, epochs=0.5)
    for bias, start in (("0", 0.0), ("the log odds", None))
}
runs = {"1×": each_seed("1×", sgd(sizes.base_lr), batches[0], seeds=1)}

# %% tags=["experiment"]
small = statistics.mean(final(runs["1×"]))
from_0, from_odds = (last_layer(histories) for histories in first_epoch.values())
print(f"silent in the last layer, bias from 0: {said(from_0)}" + reveal(predicted_silent))
print(f"the small batch: HR@10 {small:.3f}" + reveal(predicted_last_epoch))
otherwise = "The training is too short, or your data suits another learning rate."
course.claim("with the output bias started at 0, half an epoch silences the whole last MLP layer with every seed",
             min(from_0) == 1, said(from_0), otherwise=otherwise)  # fmt: skip
course.claim("with the output bias started at the log odds, units of the last MLP layer stay alive with every seed",
             max(from_odds) < 1, f"silent: {said(from_odds)}", otherwise=otherwise)  # fmt: skip
course.claim("the small batch ends above the most popular films",
             min(final(runs["1×"])) > experiment.popularity,
             f"HR@10 {said(final(runs['1×']))} against {experiment.popularity:.3f}", otherwise=otherwise)  # fmt: skip
course.claim("after the small batch, units of the last MLP layer are alive",
             max(last_layer(runs["1×"])) < 1, f"silent: {said(last_layer(runs['1×']))}",
             otherwise=otherwise)  # fmt: skip
title = f"The small batch ends at HR@10 {small:.2f}, popularity is {experiment.popularity:.2f} (seed 0)"
plots.accuracy({"1×": runs["1×"][0]}, title, popularity=experiment.popularity, constant=CONSTANT_LOSS)

# %% [markdown]
# **Takeaway** The small batch leaves every MLP unit alive. At twice its learning rate, an output bias started at 0
# silences the whole last layer in half an epoch.
#
# Started at the log odds, it leaves units alive, although one of the three runs still ranks like guessing. With a
# silent last layer, only GMF can learn, so read the silent units of every run.

# %% [markdown]
# ## What does a larger batch cost?
#
# Keskar et al. found that large batches fit the training data as well as small ones, but lose up to five points of test
# accuracy, a loss of *generalisation*. Goyal et al. trained ResNet-50 with 32 times the batch, for the same number of
# epochs at the same learning rate: the error rose from 23.6 % to 41.7 %.
#
# With 16 times the batch, an epoch has a sixteenth of the updates. So there are two suspects: too few updates, or
# weights that fit the training data and nothing else. **Predict** the HR@10 of 16× with the same learning rate and the
# same number of epochs. And which suspect is it?

# %%
predicted_hit_rate_16 = None  # your number: final HR@10 of 16x with the same learning rate
predicted_cause = None  # your answer: "too few updates" or "poor generalisation"

# %% tags=["experiment"]
same = runs["16×, same learning rate"] = each_seed("16×, same learning rate", sgd(sizes.base_lr), batches[1])
lost = small - statistics.mean(final(same))
print(f"HR@10 of 16×: {said(final(same))}" + reveal(predicted_hit_rate_16) + f"; lost: {lost:.3f}")


def loss_near(history, update, width=50):
    """Mean training loss of the updates around number `update`."""
    return statistics.mean(history.losses[max(0, update - width) : update + width])


updates = same[0].updates
as_far = [loss_near(history, updates) for history in runs["1×"]]
so_far = [statistics.mean(history.losses[-50:]) for history in same]
print(f"training loss after {updates:,} updates: 1× {said(as_far)}; 16× {said(so_far)}" + reveal(predicted_cause))
otherwise = "The small batch has updates to spare: your data set is large, or the training is long or very short."
course.claim("16 times the batch with the same learning rate loses more than 0.1 of HR@10", lost > 0.1, f"{lost:.3f}",
             otherwise=otherwise)  # fmt: skip
course.claim("its training loss, too, ends above the small batch's with every seed",
             min(so_far) > max(history.loss[-1] for history in runs["1×"]),
             f"{said(so_far)} against {said([history.loss[-1] for history in runs['1×']])}",
             otherwise=otherwise)  # fmt: skip
course.claim("after as many updates, the small batch is no further than 16 times the batch",
             statistics.mean(as_far) > statistics.mean(so_far) - 0.01, f"loss {said(as_far)} against {said(so_far)}",
             otherwise=otherwise)  # fmt: skip
title = f"16 times the batch ends {final(runs['1×'])[0] - final(same)[0]:.2f} of HR@10 lower (seed 0)"
first_seed = {label: histories[0] for label, histories in runs.items()}
plots.accuracy(first_seed, title, popularity=experiment.popularity, constant=CONSTANT_LOSS)

# %% [markdown]
# **Takeaway** At the same learning rate, 16 times the batch ranks like popularity. It makes too few updates: after as
# many, the small batch's loss is no lower.
#
# It is not overfitting, because the training loss is high, too. The last MLP layer is alive: at most 38 % of its units
# are silent.

# %% [markdown]
# ## Which learning rate wins it back?
#
# Follow the weights through $k$ small steps, with batches of $n$ samples and learning rate $\alpha$, and through one
# step on all these $kn$ samples with learning rate $\hat\alpha$:
#
# $$w_{k} = w_0 - \alpha\, \frac{1}{n} \sum_{j < k} \sum_{i \in B_j} \nabla f_i(w_{\color{red}{j}}), \qquad
# \hat w_{1} = w_0 - \hat\alpha\, \frac{1}{kn} \sum_{j < k} \sum_{i \in B_j} \nabla f_i(w_{\color{red}{0}})$$
#
# They differ in where the gradients are taken, marked red. If the gradient hardly changes over $k$ small steps, both
# end at the same weights for $\hat\alpha = k \alpha$: the **linear scaling rule**. On a parabola with curvature
# $\lambda$, a step multiplies the distance to the minimum by $1 - \alpha\lambda$, so the rule suits a flat one and
# overshoots on a steep one:

# %%
plots.many_small_steps_or_one_large()

# %% [markdown]
# ### Exercise 2 · The learning rate that fits the batch
#
# Compute the learning rate for a batch by the linear scaling rule, from one that works with another batch. The loss of
# an update is the *mean* over its samples.
#
# **Must** count all samples of one *update*: `accumulation` micro-steps of `batch` samples on each of `ranks`
# processes, against the `base_batch` samples of the known recipe.
#
# ```python
# >>> scaled_lr(0.5, 256, 1024, accumulation=2, ranks=4)
# 16.0
# ```
#
# **Points** 2 · **Core** · **Difficulty** ●○○ · **Minutes** 5 · **Lines** 1
#
# **Source** Goyal et al. 2017, arXiv:1706.02677, sections 2.1 (the rule) and 3 (the mean over all workers).
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
# **Predict**: how much of the lost HR@10 does the rule restore at 16×, and what share of the last MLP layer is then
# silent? How much does Adam restore? It divides each coordinate of the gradient by its own recent size, and its
# learning rate was tuned.

# %%
predicted_restored = None  # your number: 0 = nothing of the lost HR@10, 1 = all of it
predicted_adam_16 = None  # your number: the same for Adam
predicted_silent_16 = None  # your number from 0 to 1: silent units of the last layer with the rule

# %% tags=["experiment"]
scaled_lr_now = course.solved(check.scaled_lr)
lr_16, lr_192 = (scaled_lr_now(sizes.base_lr, batches[0], batch) for batch in batches[1:])
rule = runs["16×, linear rule"] = each_seed("16×, linear rule", sgd(lr_16), batches[1])
adam = runs["16×, Adam"] = each_seed(
    "16×, Adam", lambda parameters: torch.optim.Adam(parameters, lr=sizes.adam_lr[0]), batches[1]
)

# %% tags=["experiment"]
won, by_adam = ((statistics.mean(final(histories)) - small + lost) / lost for histories in (rule, adam))
print(f"share of the lost HR@10 restored: rule {won:.2f}" + reveal(predicted_restored), end="; ")
print(f"Adam {by_adam:.2f}" + reveal(predicted_adam_16))
print(f"silent in the last layer: rule {said(last_layer(rule))}" + reveal(predicted_silent_16)
      + f"; Adam {said(last_layer(adam))}")  # fmt: skip
otherwise = "Hardly any accuracy was lost, so the share is noise, or your data suits another learning rate."
course.claim("the linear rule restores more than a third of the lost HR@10", won > 1 / 3, f"{won:.2f} of it",
             otherwise=otherwise)  # fmt: skip
course.claim("with the linear rule at 16×, the whole last MLP layer is silent with every seed",
             min(last_layer(rule)) == 1, said(last_layer(rule)), otherwise=otherwise)  # fmt: skip
course.claim("Adam restores at least nine tenths and leaves units of the last layer alive with every seed",
             by_adam > 0.9 and max(last_layer(adam)) < 1, f"{by_adam:.2f}; silent {said(last_layer(adam))}",
             otherwise=otherwise)  # fmt: skip
gap = small - statistics.mean(final(adam))
course.claim("no gap of generalisation: Adam at 16× reaches at most the small batch's training loss, and an HR@10 at "
             "most 0.02 lower", gap < 0.02 and statistics.mean(h.loss[-1] for h in adam)
             <= statistics.mean(h.loss[-1] for h in runs["1×"]), f"HR@10 {-gap:+.3f}", otherwise=otherwise)  # fmt: skip
plots.recipes(runs, experiment.popularity)

# %% [markdown]
# **Takeaway** The linear rule restores two thirds of the lost HR@10, with the last MLP layer silent in all three runs.
# Adam restores all of it, with the layer alive.
#
# The three hollow dots are far above popularity, so the score alone would not have shown the silent layer.
#
# A large batch need not rank worse: with 16 times the batch, Adam's training loss is lower than the small batch's, and
# its score is higher.

# %% [markdown]
# ## Does a warm-up save the rule at 192 times the batch?
#
# With 32 times the batch and $k\alpha$ from the first step, the error of Goyal et al. was 24.8 %. The network changes
# too rapidly at first, they say. A *warm-up*, a learning rate that starts small and grows, brought the error to 23.7 %,
# close to the small batch's 23.6 %. You write one with an exponential ramp for 192×.

# %% [markdown]
# ### Exercise 3 · Exponential warm-up
#
# Compute the learning rate of a step: it grows by the same factor at each step, then stays constant. `step` counts from
# 0 over the whole training.
#
# **Must**
# - let the warm-up last `warmup_epochs * steps_per_epoch` steps, which may be a fraction or 0: do not round;
# - give step 0 the learning rate `start * lr`;
# - give every step at or past the end of the warm-up exactly `lr`.
#
# ```python
# >>> [exponential_warmup(step, 10, 8.0, warmup_epochs=0.2, start=0.01) for step in range(4)]
# [0.08, 0.8, 8.0, 8.0]
# ```
#
# **Points** 3 · **Core** · **Difficulty** ●●○ · **Minutes** 10 · **Lines** 4
#
# **Source** The idea: Goyal et al. 2017, with a linear ramp.
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
# **Predict**: with 192 times the batch and 192 times the learning rate, how many of three ways rank better than
# popularity in the end: no ramp, a ramp over one epoch, and a ramp over half of the training? And which HR@10 does Adam
# reach without a ramp?

# %%
predicted_survivors = None  # your number from 0 to 3: ways that end above popularity at 192x
predicted_adam_192 = None  # your number: final HR@10 of Adam at 192x

# %% tags=["experiment"]
ramp = course.solved(check.exponential_warmup)
long = sizes.epochs // 2
runs_192 = {}
ways = {
    "192×, linear rule": None,
    "192×, ramp of 1 epoch": lambda step, n: ramp(step, n, lr_192, 1),
    f"192×, ramp of {long} epochs": lambda step, n: ramp(step, n, lr_192, long),
}
for label, schedule in ways.items():
    runs_192[label] = each_seed(label, sgd(lr_192), batches[2], schedule=schedule)
adam_192 = runs_192["192×, Adam"] = each_seed(
    "192×, Adam", lambda parameters: torch.optim.Adam(parameters, lr=sizes.adam_lr[1]), batches[2]
)

# %% tags=["experiment"]
survivors = [label for label in ways if min(final(runs_192[label])) > experiment.popularity]
print(f"at 192×, ways that end above popularity: {len(survivors)} of {len(ways)}" + reveal(predicted_survivors))
print(f"Adam at 192×: HR@10 {said(final(adam_192))}" + reveal(predicted_adam_192))
highest = {label: [max((loss for loss in history.losses if math.isfinite(loss)), default=math.inf)
                   for history in runs_192[label]] for label in ways}  # fmt: skip
otherwise = "The training is too short, or your data suits another learning rate."
course.claim("at 192× with the linear rule, the loss exceeds twice the untrained model's with every seed, with a ramp "
             "and without", min(min(values) for values in highest.values()) > 2 * CONSTANT_LOSS,
             f"at least {min(min(values) for values in highest.values()):.3g}", otherwise=otherwise)  # fmt: skip
course.claim("at 192× with the linear rule, no seed ends above popularity, with a ramp or without",
             max(max(final(runs_192[label])) for label in ways) < experiment.popularity,
             otherwise=otherwise)  # fmt: skip
course.claim("at 192×, Adam without a ramp ends within 0.03 of the small batch's HR@10, with units alive",
             statistics.mean(final(adam_192)) > small - 0.03 and max(last_layer(adam_192)) < 1,
             f"{said(final(adam_192))} against {small:.3f}", otherwise=otherwise)  # fmt: skip
above = [label.removeprefix("192×, ") for label, of in runs_192.items() if final(of)[0] > experiment.popularity]
title = f"192× above popularity: {', '.join(above) or 'none'} (seed 0)"
first_seed = {"1×": runs["1×"][0]} | {label: of[0] for label, of in runs_192.items()}
plots.accuracy(first_seed, title, popularity=experiment.popularity, constant=CONSTANT_LOSS)

# %% [markdown]
# **Takeaway** At 192 times the batch, the linear rule blows up the loss with and without a ramp. Adam needs no ramp and
# ends at HR@10 0.70, above the small batch.
#
# Part 3 asks why Adam works.

# %% [markdown]
# ## How far does a scaling rule lead? · extra
#
# The linear rule multiplies the learning rate by the factor of the batch, its power 1. Krizhevsky (2014) derives the
# square root, a power of 0.5, which keeps the variance of a step the same. The cell trains plain SGD with larger
# batches and learning rates up to 256 times the small batch's, for as many epochs as above. Runs that you already have
# stand for themselves; all others have one seed. A run that diverged scores 0.
#
# **Which power keeps the line on the darkest squares? Does any power reach the small batch's score at 192 times the
# batch?**

# %% tags=["experiment"]
batch_sizes = [sizes.base_batch * times for times in sizes.map_times]
rates = [sizes.base_lr * times for times in (1, 4, 16, 64, 256)]
done = {(batches[0], rates[0]): runs["1×"], (batches[1], rates[0]): same, (batches[1], rates[2]): rule}
scores = []
for batch in batch_sizes:
    scores.append([])
    for lr in rates:
        if batch > batches[0] and (batch, lr) not in done:
            done[batch, lr] = [experiment.train_sgd(batch, lr)]
        scores[-1].append(statistics.mean(final(done[batch, lr])) if (batch, lr) in done else None)
figures.rate_map(batch_sizes, rates, scores, rate=rates[0], name="HR@10")

# %% [markdown]
# **Takeaway** A scaling rule is a line on this map. It helps as far as the best learning rates follow it, and no power
# helps where every learning rate is bad.

# %% [markdown]
# ## Which other ramp is common? · extra
#
# The other common shape is linear.

# %% [markdown]
# ### Exercise 4 · Linear warm-up
#
# Let the learning rate grow by equal amounts from the small batch's to the large batch's, then stay. The length may be
# a fraction of a step, as in exercise 3.
#
# **Must**
# - give step 0 exactly `base_lr`, and lie on the straight line in the warm-up;
# - give step `warmup_epochs * steps_per_epoch` and all later ones exactly `lr`.
#
# ```python
# >>> [linear_warmup(step, 2, base_lr=1.0, lr=9.0, warmup_epochs=2) for step in range(6)]
# [1.0, 3.0, 5.0, 7.0, 9.0, 9.0]
# ```
#
# **Points** 2 · **Extra** · **Difficulty** ●○○ · **Minutes** 5 · **Lines** 4
#
# **Source** Goyal et al. 2017, arXiv:1706.02677, section 2.2.
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

# %%
exponential, linear = course.solved(check.exponential_warmup), course.solved(check.linear_warmup)
optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=100.0)
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: linear(step, 10, 1.0, 100.0, 2) / 100.0)
from_torch = []
for _ in range(25):
    from_torch += scheduler.get_last_lr()
    optimizer.step()
    scheduler.step()
ramp_lrs = {
    "exponential, 2 epochs": [exponential(step, 10, 100.0, 2) for step in range(25)],
    "linear, 2 epochs": [linear(step, 10, 1.0, 100.0, 2) for step in range(25)],
}
course.claim("torch's LambdaLR with your function gives the same learning rates",
             torch.allclose(torch.tensor(from_torch), torch.tensor(ramp_lrs["linear, 2 epochs"])))  # fmt: skip
slow, fast = (values[10] for values in ramp_lrs.values())
plots.learning_rates(ramp_lrs, f"Halfway, the linear ramp is {fast / slow:.0f} times as high as the exponential one")

# %% [markdown]
# ## References
#
# 1. P. Goyal et al., Accurate, Large Minibatch SGD: Training ImageNet in 1 Hour, 2017.
#    [arXiv:1706.02677](https://arxiv.org/abs/1706.02677)
# 2. N. S. Keskar, D. Mudigere, J. Nocedal, M. Smelyanskiy, P. T. P. Tang, On Large-Batch Training for Deep Learning:
#    Generalization Gap and Sharp Minima, ICLR 2017. [arXiv:1609.04836](https://arxiv.org/abs/1609.04836)
# 3. A. Krizhevsky, One weird trick for parallelizing convolutional neural networks, 2014.
#    [arXiv:1404.5997](https://arxiv.org/abs/1404.5997)
