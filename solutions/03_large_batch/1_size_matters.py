# %% [markdown]
# # Large batches, part 1: Size matters
#
# **What does a larger batch gain, and what does it lose?**
#
# A larger batch may train more samples per second, and the model may end up worse. NVIDIA's workshop on scaling shows
# both with a recommender. This unit follows it on smaller data. You measure both, and find out why the model is worse.
#
# **You will be able to**
#
# - predict how throughput grows with the batch size, and say where it levels off;
# - say whether a baseline has converged before you compare anything with it;
# - tell a training that has made too little progress from one that generalises badly.
#
# **Minutes** 16 core · 34 in all
#
# **Needs** PyTorch: you have written a training loop

# %% locked="setup"
import statistics

import torch
from torch.nn import functional as F

import course
from course.checks import large_batch as check
from course.measure.comparison import compare, difference_interval, signed_rank_interval
from course.plots import large_batch as plots
from course.training import time_to_target
from course.training.rate_maps import adam, sgd
from course.training.recommender import (
    CONSTANT_LOSS,
    Experiment,
    final_scores,
    listed,
    print_log,
    print_seeds,
    silent_last_layer,
)
from course.training.seeds_at_once import each_seed

print(course.machine())
sizes = course.sizes("03_large_batch")

# %% [markdown]
# ## What is trained, and how is it judged?
#
# This unit compares scores, so first look at what a score counts. MovieLens is a list of ratings: user, film, stars,
# time. Neural collaborative filtering (NCF) ignores the stars and predicts which film a user picks next. Each rating
# becomes a 1. For each 1, we draw four zeros: films that the user has not rated in the training data.

# %%
plots.neumf_diagram()

# %% [markdown]
# The model is NeuMF. Its GMF half (generalised matrix factorisation) multiplies two vectors element by element. Its MLP
# half is a small network with ReLUs. The loss is the binary cross entropy. Part 6 builds the model and its score.
#
# Each user's latest film is kept for the test, and the one before it for validation. Every score in this part is on
# validation.
#
# To score a model, each user's held-out film is ranked among 100 films that the user never rated. **HR@10 with sampled
# negatives** is the share of users whose film is among the first ten. **NDCG@10** also counts how high the film comes.
# Guessing reaches about a tenth. A ranking by popularity, the same for all users, is harder to beat.

# %% tags=["experiment"]
experiment = Experiment(sizes)
batches = experiment.batches
print(experiment.about)
print(experiment)
print(f"HR@10 of guessing {10 / 101:.3f}, of the most popular films {experiment.popularity:.3f}")

# %% [markdown]
# **Takeaway** A score needs a name, a set of candidates, and something to beat.

# %% [markdown]
# ## Has the small batch converged?
#
# Everything below is compared with the small batch. If its score still rises when you stop, each comparison depends on
# when you stopped. So train the baseline first.
#
# SGD minimises the mean loss over all samples. It estimates the gradient from a batch $\mathcal B_k$ of $B$ samples and
# takes a step with the learning rate $\alpha$:
#
# $$w_{k+1} = w_k - \alpha\, \frac{1}{B} \sum_{i \in \mathcal B_k} \nabla f_i(w_k)$$
#
# The cell trains the small batch, 1×, by SGD with momentum 0.9. It prints a line per epoch, and a star marks the best
# score so far. **When would you stop?**

# %% tags=["experiment"]
baseline = experiment.train_fresh(sgd(sizes.base_lr), batches[0], epochs=sizes.long_epochs)
print_log(baseline)

# %% [markdown]
# **Takeaway** Train a baseline until its score stops rising, then compare.

# %% [markdown]
# ## How much faster is a larger batch?
#
# The terms of the sum above do not depend on each other, so they can run in parallel. Other costs occur once *per
# update*, whatever the batch size: the machine starts kernels, and the optimizer reads and writes every weight.
#
# Say these fixed costs take $c$ seconds per update, and each sample adds $s$ seconds. Then an update takes $c + sB$
# seconds, and the throughput is $B / (c + sB)$.
#
# **Predict** by what factor the throughput grows with 192 times the batch. If $c$ were 0, it would not grow at all. If
# $s$ were 0, it would grow as much as the batch.

# %%
predicted_speedup_192 = None  # your number: how many times the samples/s of the 1x batch at 192x

# %% tags=["experiment"]
factors = (1, 4, 16, 64, 192)
timed_batches = [factor * sizes.base_batch for factor in factors]
ways = {}
for factor, batch in zip(factors, timed_batches, strict=True):
    ways[factor] = experiment.some_updates(sgd(1e-3), batch, sizes.perf_steps)
compared = compare(ways, device=course.device(), seconds=sizes.seconds, progress=False)

# %% [markdown]
# The smallest and the largest batch give $c$ and $s$. A claim tests the formula at 16×.

# %% tags=["experiment"]
update_seconds = {}  # {batch: interval}
throughputs = []
for factor, batch in zip(factors, timed_batches, strict=True):
    update_seconds[batch] = compared.time(factor).scaled(1 / sizes.perf_steps)
    throughputs.append(compared.rate(factor, sizes.perf_steps * batch))
small_batch, large_batch = timed_batches[0], timed_batches[-1]
cost = time_to_target.cost(
    {batch: update_seconds[batch].estimate for batch in (small_batch, large_batch)}
)
speedup_16 = compared.ratio(16).scaled(16)
speedup_192 = compared.ratio(192).scaled(192)

print(course.score("03/1", "samples/s at 192x over 1x", predicted_speedup_192, speedup_192))
print(
    f"c = {1e3 * cost.per_update:.2f} ms per update, s = {1e6 * cost.per_sample:.3f} µs per sample, "
    f"c / s = {cost.samples:,.0f} samples; the 1× batch against itself: {compared.control}"
)
plots.throughput(timed_batches, throughputs, predicted_speedup_192, cost)

# %% tags=["experiment"]
by_formula = cost.per_update + cost.per_sample * batches[1]
course.claim("16 times the batch trains more than twice the samples/s", speedup_16, above=2)
course.claim(
    "from 16× to 192×, 12 times the batch, throughput grows by less than 4 times",
    compared.ratio(192, to=16).scaled(12),
    below=4,
    otherwise="Your device is still not full at 192×.",
)
course.claim(
    "c + sB, fitted to the 1× and the 192× batch, is within 25 % of an update of the 16× batch",
    update_seconds[batches[1]].scaled(1 / by_formula),
    within=(0.8, 1.25),
    otherwise="The cost per sample changes with the batch size: see below.",
)

# %% [markdown]
# At $B = c / s$, the samples of an update cost as much as its fixed costs.
#
# <details><summary>Why may a sample cost less in a large batch?</summary>
#
# **We think** that NeuMF's code is the reason. Once a batch repeats its users and films often enough, the code
# multiplies each table row only once. To test it, set `course.training.models.TABLE_PRODUCTS_FROM` to infinity and
# time the updates again.
#
# </details>
#
# **Takeaway** By the formula, a batch of $c / s$ samples reaches half of the highest throughput.

# %% [markdown]
# ## What does a larger batch lose?
#
# Speed is worth little if the model ends worse. **Known** Published results point to two reasons:
#
# - *Generalisation*: large batches fit the training data as well as small ones, and still lose up to five points of
#   test accuracy (Keskar et al.).
# - *Too few updates*: with 32 times the batch and the same epochs, the error of ResNet-50 rose from 23.6 % to 41.7 %.
#   A larger learning rate removed nearly all of this loss (Goyal et al.).
#
# The cell trains 1× and 16× with the same learning rate, the same number of epochs and the same pairs of seeds.
# **Predict** the culprit. Which numbers would tell the two apart?

# %%
predicted_cause = None  # your answer: "too few updates" or "poor generalisation"

# %% tags=["experiment"]
epochs = sizes.long_epochs
pairs = sizes.pairs
# all seeds train in one update: rounding differs, so seed 0 ends elsewhere than above
small = each_seed(experiment, sgd(sizes.base_lr), batches[0], epochs, pairs)
large = each_seed(experiment, sgd(sizes.base_lr), batches[1], epochs, pairs)
print_seeds("SGD, 1×", small)
print_seeds("SGD, 16×", large)
three_before = -min(4, epochs)  # three epochs before the last one
gains = [run.hit_rate[-1] - run.hit_rate[three_before] for run in small]
course.claim(
    "over its last three epochs, the small batch gains less than 0.03 of HR@10",
    signed_rank_interval(gains),
    below=0.03,
    otherwise="It has not converged: train longer.",
)
course.claim(
    "16 times the batch with the same learning rate loses more than 0.1 of HR@10",
    difference_interval(final_scores(small), final_scores(large)),
    above=0.1,
)

first_seed = {"1×": small[0], "16×, same learning rate": large[0]}
lost = final_scores(small)[0] - final_scores(large)[0]
title = f"HR@10 of 16× is {lost:.2f} lower (seed 0)"
plots.accuracy(first_seed, title, experiment.popularity, CONSTANT_LOSS)

# %% [markdown]
# Now judge with the training loss. If the large batch generalises badly, its training loss ends as low as the small
# batch's. If it makes too few updates, the small batch is no further after equally many. A claim tests each.


# %% tags=["experiment"]
def loss_near(history, update, width=50):
    """Mean training loss of the updates around number `update`."""
    return statistics.mean(history.losses[max(0, update - width) : update + width])


last_loss_small = [run.loss[-1] for run in small]  # mean over the last epoch
last_loss_large = [run.loss[-1] for run in large]
loss_gap = difference_interval(last_loss_large, last_loss_small)

small_after_as_many = [loss_near(run, large[0].updates) for run in small]
large_at_end = [loss_near(run, run.updates) for run in large]
gap_after_as_many = difference_interval(small_after_as_many, large_at_end)

course.claim(
    "16 times the batch ends with a training loss at least 0.02 above the small batch's",
    loss_gap,
    above=0.02,
    otherwise="The large batch fits as well: look at generalisation.",
)
course.claim(
    "after as many updates, the small batch is no further than 16 times the batch",
    gap_after_as_many,
    above=-0.01,
    otherwise="The small batch learns more per update: it is not their number.",
)
cause = None  # not decided
if loss_gap.low > 0.02 and gap_after_as_many.low > -0.01:
    cause = "too few updates"
print(course.score("03/1", "what costs the score", predicted_cause, cause))

# %% [markdown]
# **Shown** The second claim compares both runs after equally many updates at the same learning rate, so only the batch
# differs. Where the claim holds, a larger batch does not learn less per update. It just makes too few updates for this
# learning rate.
#
# **Takeaway** Compare training losses first. A large batch with a higher training loss has trained too little, or at a
# wrong learning rate.

# %% [markdown]
# ## Was it the batch, or the learning rate?
#
# The large batch made too few updates at *this* learning rate. At a larger one, as many might be enough. The cell tries
# this with Adam, which needs about half the epochs: it divides each coordinate of the gradient by its recent size.
#
# Adam trains at 1×, at 16× with the same learning rate, and at 16× with one tuned for it. Both runs at 16× make equally
# many updates. **Does the third run reach the score of the first?**

# %% tags=["experiment"]
half_epochs = max(1, epochs // 2)
adam_small = each_seed(experiment, adam(sizes.adam_lr_small), batches[0], half_epochs, pairs)
adam_same = each_seed(experiment, adam(sizes.adam_lr_small), batches[1], half_epochs, pairs)
adam_tuned = each_seed(experiment, adam(sizes.adam_lr[0]), batches[1], half_epochs, pairs)
print_seeds("Adam, 1×", adam_small)
print_seeds("Adam, 16×, unchanged", adam_same)
print_seeds("Adam, 16×, tuned", adam_tuned)
course.claim(
    "with Adam at an unchanged learning rate, 16 times the batch loses more than 0.03 of HR@10",
    difference_interval(final_scores(adam_small), final_scores(adam_same)),
    above=0.03,
)
course.claim(
    "with a learning rate tuned for Adam, 16 times the batch loses less than 0.03 of HR@10",
    difference_interval(final_scores(adam_small), final_scores(adam_tuned)),
    below=0.03,
)

# %% [markdown]
# **Shown** From the second row to the third, only the learning rate changes. Where both claims hold, the number of
# updates was enough, and each update was too short.
#
# **Takeaway** Before you say what a large batch loses, tune its learning rate.

# %% [markdown]
# ## Can you write the step? · extra
#
# You used momentum above without seeing it. It keeps a decaying sum of past gradients, the velocity $v$, and steps
# along it.

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
theirs = torch.nn.Linear(8, 1)
yours = torch.nn.Linear(8, 1)
yours.load_state_dict(theirs.state_dict())
sgd_of_torch = torch.optim.SGD(theirs.parameters(), lr=0.1, momentum=0.9)
params = list(yours.parameters())
velocities = [torch.zeros_like(param) for param in params]
rows = torch.randn(64, 8)
wanted = rows.sum(1, keepdim=True)

for _ in range(20):
    for layer in (theirs, yours):
        layer.zero_grad()
        loss = F.mse_loss(layer(rows), wanted)
        loss.backward()
    sgd_of_torch.step()
    grads = [param.grad for param in params]
    sgd_step_now(params, grads, velocities, lr=0.1)

is_same = torch.allclose(theirs.weight, yours.weight) and torch.allclose(theirs.bias, yours.bias)
course.claim("20 of your steps lead to the same weights as torch.optim.SGD", is_same)

# %% [markdown]
# ## Does the small batch train the whole model? · extra
#
# A score does not show *what* trains. If the input of a ReLU is negative for every sample, the unit outputs 0 and its
# gradient is 0. Then the weights before it have nothing to learn from. We call a unit of the MLP **silent** if it
# outputs 0 for all of 8,192 samples.
#
# The published NeuMF starts with an output bias near 0, so the untrained model gives every pair about one half. Ours
# starts at the log odds of a positive. **How much of the last layer does each start silence?** The cell trains half an
# epoch with SGD, at twice the learning rate of the small batch.

# %% tags=["experiment"]
twice_the_lr = sgd(2 * sizes.base_lr)
from_0 = each_seed(experiment, twice_the_lr, batches[0], 0.5, pairs, output_bias=0.0)
from_odds = each_seed(experiment, twice_the_lr, batches[0], 0.5, pairs)
print("silent, from bias 0:  ", listed(silent_last_layer(from_0)))
print("silent, from log odds:", listed(silent_last_layer(from_odds)))
course.claim(
    "from the output bias 0, half an epoch silences more than half of the last MLP layer",
    signed_rank_interval(silent_last_layer(from_0)),
    above=0.5,
)
course.claim(
    "at its end, less than half of the small batch's last MLP layer is silent",
    signed_rank_interval(silent_last_layer(small)),
    below=0.5,
    otherwise="Where the whole layer is silent, the GMF half makes the logit alone.",
)

# %% [markdown]
# A model whose last layer is silent can still score well, because its GMF half learns.
#
# **Takeaway** A score does not show a silent layer. Count silent units before you tune.

# %% [markdown]
# ## References
#
# 1. NVIDIA, Neural Collaborative Filtering for PyTorch.
#    [DeepLearningExamples](https://github.com/NVIDIA/DeepLearningExamples/tree/master/PyTorch/Recommendation/NCF)
# 2. X. He et al., Neural Collaborative Filtering, WWW 2017. [arXiv:1708.05031](https://arxiv.org/abs/1708.05031)
# 3. N. S. Keskar, D. Mudigere, J. Nocedal, M. Smelyanskiy, P. T. P. Tang, On Large-Batch Training for Deep Learning:
#    Generalization Gap and Sharp Minima, ICLR 2017. [arXiv:1609.04836](https://arxiv.org/abs/1609.04836)
# 4. P. Goyal et al., Accurate, Large Minibatch SGD: Training ImageNet in 1 Hour, 2017.
#    [arXiv:1706.02677](https://arxiv.org/abs/1706.02677)
