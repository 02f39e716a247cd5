# %% [markdown]
# # Large batches, part 3: Warm-up and LARS
#
# **When does a training need a warm-up, and when a learning rate for every layer?**
#
# With a larger batch, each update has to go further, and the first ones may go too far. A warm-up makes the first
# updates small. LARS gives every layer its own learning rate. You write both, and test where each of them helps.
#
# **You will be able to**
#
# - measure how far one update moves each layer of your own model;
# - write a warm-up, and test whether a training needs one;
# - write LARS, and compare it fairly with SGD and Adam.
#
# **Minutes** 45 core · 90 in all
#
# **Needs** the recommender and its score HR@10, which part 1 explains

# %% locked="setup"
import functools
import statistics

import torch

import course
from course.checks import large_batch as check
from course.measure.comparison import (
    compare,
    difference_interval,
    ratio_interval,
    signed_rank_interval,
)
from course.plots import large_batch as plots
from course.training import recommender_loop, warmed_transformers
from course.training.contest import points_ahead
from course.training.optimizer_contest import (
    constant_lr,
    ramp_and_decay,
    scheduled_lrs,
    scored,
)
from course.training.rate_maps import adam, sgd
from course.training.recommender import Experiment
from course.training.shared_scales import SharedScaleAdam
from course.training.tuned import tuned
from course.training.update_ratios import extremes, update_ratios
from course.training.warmed_transformers import at_end

print(course.machine())
sizes = course.sizes("03_large_batch")
experiment = Experiment(sizes)
print(experiment)
seeds = range(sizes.paired_seeds)

# %% [markdown]
# ## Can one update be longer than the weights?
#
# A learning rate alone does not say how long an update is. The **update-to-weight ratio** is the norm of a tensor's
# update over the norm of the tensor. Above 1, the update is longer than the tensor itself.
#
# The linear rule of part 2 multiplies the learning rate by 192 for 192 times the batch. The cell makes two updates of
# the recommender by this rule, two with the small batch and its learning rate, and two with Adam. **Does every tensor
# move by the same share of its norm?**

# %% tags=["experiment"]
small_batch, _, batch_192 = experiment.batches
lr_192 = sizes.base_lr * batch_192 / small_batch


def first_two_updates(make_optimizer, batch_size, seed=0):
    """{parameter: its update-to-weight ratio}, of the first update and of the second."""
    model = experiment.fresh_model(seed=seed)
    optimizer = make_optimizer(model.parameters())
    ratios = []
    for batch in experiment.first_batches(2, batch_size, seed):
        step = functools.partial(recommender_loop.training_step, model, *batch, optimizer)
        ratios.append(update_ratios(model, step))
    return ratios


by_rule = [first_two_updates(sgd(lr_192), batch_192, seed) for seed in seeds]
by_small_batch = [first_two_updates(sgd(sizes.base_lr), small_batch, seed) for seed in seeds]
by_adam = [first_two_updates(adam(sizes.adam_lr[1]), batch_192, seed) for seed in seeds]

# %% tags=["experiment"]
longest_by_rule = [extremes(ratios).largest for ratios in by_rule]
longest_by_small_batch = [extremes(ratios).largest for ratios in by_small_batch]
course.claim(
    "by the linear rule at 192 times the batch, one of SGD's first two updates is longer than a tensor itself",
    signed_rank_interval(longest_by_rule),
    above=1,
)
course.claim(
    "with the small batch and its learning rate, neither update is a tenth as long as a tensor",
    signed_rank_interval(longest_by_small_batch),
    below=0.1,
)

spread_of_sgd = torch.tensor([extremes(ratios[:1]).spread for ratios in by_rule])
spread_of_adam = torch.tensor([extremes(ratios[:1]).spread for ratios in by_adam])
course.claim(
    "in SGD's first update, the update-to-weight ratios of the tensors differ more than a hundredfold",
    signed_rank_interval(spread_of_sgd.tolist()),
    above=100,
)
course.claim(
    "under Adam the ratios of the tensors differ at least ten times less than under SGD",
    ratio_interval(spread_of_sgd, spread_of_adam),
    above=10,
)
title = (
    f"Ratios differ {spread_of_sgd[0]:,.0f}-fold under SGD, {spread_of_adam[0]:.0f}-fold under Adam"
)
drawn = {f"SGD, learning rate {lr_192:g}": by_rule[0][0], "Adam": by_adam[0][0]}
plots.layer_ratios(drawn, f"{title} (seed 0, first update)")

# %% [markdown]
# **Known** You et al. found that the norms of weights and of their gradients have very different ratios in the layers
# of AlexNet (arXiv:1708.03888, section 4).
#
# **Takeaway** Compare an update with the weights that it changes. The learning rate alone does not say how far a layer
# moves.

# %% [markdown]
# ## When does a training need a warm-up?
#
# A *warm-up* starts with a small learning rate and raises it, so the first updates are small. **Known** Goyal et al.
# trained ResNet-50 with 32 times the batch. A gradual warm-up lowered the error from 24.8 % to 23.7 %, nearly that of
# the small batch. You write their ramp, a straight line.

# %% [markdown]
# ### Exercise 1 · Linear warm-up
#
# Raise the learning rate by the same amount at each step, from the small batch's to the large batch's. Then keep it.
# The ramp may end between two steps, so do not round its length.
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
# **Points** 2 · **Core** · **Difficulty** ●○○ · **Minutes** 5 · **Lines** 4
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
# First deal with steps at or past the end. On the ramp the learning rate is
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
# A warm-up can matter with a small batch, too. The cell trains a deep transformer with Adam: without a ramp, with a
# ramp over an eighth of the training, and over half of it. Its blocks are *post-norm*: they normalise after each
# addition, as in Vaswani et al. 2017. **Which of the three trainings learn?**
#
# In the figure, a line is the middle seed and a band holds all seeds. A point is the mean of a few updates, and the
# title takes the mean of the last twenty. At the upper dashed line, a model knows only how frequent each token is. At
# the lower one, it knows the table from which the text was drawn: the last two tokens decide how likely each next one
# is.

# %% tags=["experiment"]
text = warmed_transformers.text_of_pairs(sizes.warm_rows, course.device())
linear_ramp = course.solved(check.linear_warmup)
peak = sizes.warm_lr


def ramp_over(share, lr):
    """A schedule: a straight line from a hundredth of `lr` to `lr`, over a share of the training."""

    def schedule(step):
        return linear_ramp(step, sizes.warm_steps, lr / 100, lr, share)

    return schedule


def train_transformers(schedule, **changed):
    """(steps, seeds): losses of transformers that Adam trains with a learning rate `schedule`."""
    options = {"layers": sizes.warm_layers} | changed
    return warmed_transformers.train_seeds(text, schedule, sizes.warm_steps, len(seeds), **options)


# %% tags=["experiment"]
runs = {
    "no ramp": train_transformers(ramp_over(0, peak)),
    "ramp over an eighth": train_transformers(ramp_over(1 / 8, peak)),
    "ramp over half": train_transformers(ramp_over(1 / 2, peak)),
}
of_frequencies = [text.constant] * len(seeds)
of_no_ramp = at_end(runs["no ramp"])
of_ramp = at_end(runs["ramp over half"])
course.claim(
    "without a ramp, the deep post-norm transformer ends less than 0.1 nats below token frequencies",
    difference_interval(of_frequencies, of_no_ramp),
    below=0.1,
)
course.claim(
    "with a ramp over half of the training, the deep post-norm transformer ends at least 0.3 nats lower than without",
    difference_interval(of_no_ramp, of_ramp),
    above=0.3,
)

lowest = min(of_no_ramp)
highest = max(of_ramp)
title = f"No ramp: no seed ends below {lowest:.2f}. Ramp over half: none above {highest:.2f}"
levels = {"token frequencies": text.constant, "the table itself": text.table}
plots.warm_up(runs, levels, title)

# %% [markdown]
# If the band of the short ramp reaches up to the token frequencies, that ramp was too short for some seeds.
#
# **Takeaway** A warm-up can decide whether a training works, even with a small batch.
#
# ## Which trainings need no ramp?
#
# Without a ramp, you have one thing less to tune. The cell changes one thing at a time: a quarter of the learning rate,
# a third of the layers, or *pre-norm* blocks, which normalise before attention and MLP. **After which change does the
# ramp still matter?**


# %% tags=["experiment"]
def ends_without_and_with_ramp(lr, **changed):
    """Two lists of losses at the end, one per seed: without a ramp, and with one over half of the training."""
    without = train_transformers(ramp_over(0, lr), **changed)
    with_ramp = train_transformers(ramp_over(1 / 2, lr), **changed)
    return at_end(without), at_end(with_ramp)


a_third = max(1, sizes.warm_layers // 3)
pairs = {
    "as above": (of_no_ramp, of_ramp),
    "a quarter of the learning rate": ends_without_and_with_ramp(peak / 4),
    "a third of the layers": ends_without_and_with_ramp(peak, layers=a_third),
    "pre-norm": ends_without_and_with_ramp(peak, post_norm=False),
}

# %% tags=["experiment"]
same = (-0.2, 0.2)  # nats
ends = {}  # loss per seed
ramp_gains = {}
for changed, (without, with_ramp) in pairs.items():
    ends[f"{changed}, no ramp"] = without
    ends[f"{changed}, ramp"] = with_ramp
    ramp_gains[changed] = difference_interval(without, with_ramp)
    print(f"{changed:<32}the ramp lowers the loss by {ramp_gains[changed]} nats")

course.claim(
    "at a quarter of the learning rate, the ramp changes the loss by less than 0.2 nats",
    ramp_gains["a quarter of the learning rate"],
    within=same,
)
course.claim(
    "with a third of the layers, the ramp changes the loss by less than 0.2 nats",
    ramp_gains["a third of the layers"],
    within=same,
)
course.claim(
    "with pre-norm blocks, the ramp changes the loss by less than 0.2 nats",
    ramp_gains["pre-norm"],
    within=same,
)
course.claim(
    "a quarter of the learning rate without a ramp ends below the full learning rate with the ramp",
    difference_interval(of_ramp, ends["a quarter of the learning rate, no ramp"]),
    above=0,
)
title = f"As above, the ramp lowers the loss by {ramp_gains['as above'].estimate:.2f} nats"
plots.by_seed(ends, levels, "loss, nats per token", title)

# %% [markdown]
# Where the claims hold, each of the three changes replaces the ramp. **Known** A warm-up mainly lets a network tolerate
# a larger learning rate (Kalra and Barkeshli 2024, arXiv:2406.09405).
#
# **Takeaway** A warm-up protects against a learning rate that the initial weights cannot take. A smaller learning rate,
# fewer layers or pre-norm blocks can make it unnecessary.

# %% [markdown]
# ## Can SGD have a learning rate for every layer?
#
# A warm-up slows all layers by the same factor, although they may need different ones. LARS (layer-wise adaptive rate
# scaling) aims at the same update-to-weight ratio everywhere. For each layer $l$ with weights $w$ and gradient $g$,
# it multiplies the learning rate $\alpha$ by a **trust ratio** $\lambda^l$:
#
# $$\lambda^l = \eta\,\frac{\lVert w^l\rVert}{\lVert g^l\rVert + \beta\,\lVert w^l\rVert}, \qquad
# v^l \leftarrow m\,v^l + \alpha\,\lambda^l\,(g^l + \beta\,w^l), \qquad w^l \leftarrow w^l - v^l$$
#
# Here $\eta$ is the trust coefficient, $\beta$ the weight decay, $m$ the momentum and $v$ the velocity. Without
# momentum and decay, a layer moves by $\alpha\,\eta$ of its own norm. Where a norm is 0, the trust ratio is 1, and
# the decay still acts.

# %% [markdown]
# ### Exercise 2 · LARS
#
# Write `move`, the update of one parameter `w`. `step` is given. It calls your `move` where autograd does not record.
#
# **Must**
# - use the Euclidean norms of `w` and `w.grad` for the trust ratio, and 1 where one of them is 0;
# - with `group["exclude_1d"]`, move parameters of at most one dimension with ratio 1 and no weight decay;
# - change `w` and `velocity` in place, take all settings from `group`, and do not change the gradient.
#
# ```python
# >>> w = torch.nn.Parameter(torch.tensor([[3.0, 4.0]]))
# >>> w.grad = torch.tensor([[0.0, 2.0]])
# >>> LARS([w], lr=1.0, momentum=0.0, trust=0.2).step()
# >>> w.data
# tensor([[3., 3.]])
# ```
#
# **Points** 6 · **Core** · **Difficulty** ●●● · **Minutes** 20 · **Lines** 8
#
# **Source** You, Gitman, Ginsburg 2017, arXiv:1708.03888, Algorithm 1, which has neither the exception for 1-D
# parameters nor the guard against zero norms.
#
# <details><summary>Hint 1</summary>
#
# By the formula alone, what is the trust ratio of a bias that starts at zero? How far will it ever move?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `torch.where(condition, a, b)` chooses on the device, without the wait for the GPU that `if` or `.item()` would cost.
# It may compute `0 / 0` on the way, as long as it does not choose it.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# Start from `ratio, decay = 1.0, 0.0`. If the trust ratio applies to `w`: `decay = group["weight_decay"]` and
# `ratio = torch.where((w_norm > 0) & (g_norm > 0), trust * w_norm / (g_norm + decay * w_norm), 1.0)`. Then
# `update = w.grad.add(w, alpha=decay)`, which makes a new tensor, times `lr * ratio`.
#
# </details>


# %% solution="LARS"
class LARS(torch.optim.Optimizer):
    """An optimizer with a separate learning rate for each parameter tensor, after You et al. 2017, Algorithm 1.

    Args:
        params: parameters, or dictionaries of parameter groups with settings of their own.
        lr: global learning rate; read from `param_groups` at every step, so that schedules work.
        momentum, weight_decay: as in SGD, except that the velocity contains the learning rate.
        trust: share of its own norm by which a layer moves at lr = 1.
        exclude_1d: if True, parameters with ndim <= 1 get neither trust ratio nor weight decay.
    """

    def __init__(self, params, lr, momentum=0.9, weight_decay=0.0, trust=0.001, exclude_1d=True):
        settings = {
            "lr": lr,
            "momentum": momentum,
            "weight_decay": weight_decay,
            "trust": trust,
            "exclude_1d": exclude_1d,
        }
        super().__init__(params, settings)

    @torch.no_grad()
    def step(self, closure=None):
        """Move every parameter that has a gradient; return the loss of `closure`, or None."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for w in group["params"]:
                if w.grad is None:
                    continue
                if "velocity" not in self.state[w]:
                    self.state[w]["velocity"] = torch.zeros_like(w)
                self.move(w, self.state[w]["velocity"], group)
        return loss

    def move(self, w, velocity, group):
        """Change the parameter `w` and its `velocity` in place by one step with the settings in `group`, a dict."""
        ### BEGIN SOLUTION
        ratio, decay = 1.0, 0.0
        if w.ndim > 1 or not group["exclude_1d"]:
            decay = group["weight_decay"]
            w_norm, g_norm = w.norm(), w.grad.norm()
            ratio = group["trust"] * w_norm / (g_norm + decay * w_norm)
            # on the device: no sync point
            ratio = torch.where((w_norm > 0) & (g_norm > 0), ratio, 1.0)
        update = w.grad.add(w, alpha=decay).mul_(group["lr"] * ratio)
        w.sub_(velocity.mul_(group["momentum"]).add_(update))
        ### END SOLUTION


# %% test="LARS-visible" points=3
check.LARS(LARS)

# %% test="LARS-hidden" points=3
### BEGIN HIDDEN TESTS
check.LARS(LARS, seed=9)
### END HIDDEN TESTS

# %% tags=["experiment"]
Lars = course.solved(check.LARS)
make_lars = functools.partial(Lars, exclude_1d=False)  # a trust ratio for biases, too
first_of_lars, _ = first_two_updates(functools.partial(make_lars, lr=100.0), batch_192)
of_lars = torch.tensor(list(first_of_lars.values()))
course.claim(
    "LARS moves every tensor by the same share of its norm",
    torch.allclose(of_lars, of_lars[:1], rtol=0.01),
    f"largest over smallest {of_lars.max() / of_lars.min():.3f}",
)

# %% [markdown]
# **Takeaway** Without weight decay, the first update of LARS moves every tensor that has a trust ratio by the same
# share of its norm.
#
# ## Does LARS beat a tuned SGD?
#
# **Known** You et al. trained ResNet-50 with LARS and a batch of 32,768, without losing accuracy. Later, Nado et al.
# tuned Nesterov's momentum as carefully, and it did as well (arXiv:2102.06356).
#
# So SGD and LARS follow the same schedule: a ramp over one epoch, by equal factors, times a quadratic decay. Each tries
# three peaks of the learning rate. Some seeds choose the peak, and others judge it. SGD without the ramp and Adam
# without ramp and decay run, too.
#
# **Predict** the lead of LARS, with a trust ratio for all tensors, over SGD at 192 times the batch. Count in points of
# HR@10 (a point is 0.01).

# %%
predicted_lars = None  # points of HR@10, 0 if tuning is all that SGD lacked

# %% tags=["experiment"]
exponential_ramp = course.solved(check.exponential_warmup)  # exercise 3
make_sgd = functools.partial(torch.optim.SGD, momentum=0.9)
ramp_then_decay = ramp_and_decay(exponential_ramp, sizes.epochs)
only_decay = ramp_and_decay(exponential_ramp, sizes.epochs, ramp_epochs=0)
contestants = {  # optimizer, schedule, peaks of the learning rate
    "SGD, no ramp": (make_sgd, only_decay, sizes.sgd_peaks),
    "SGD": (make_sgd, ramp_then_decay, sizes.sgd_peaks),
    "LARS": (make_lars, ramp_then_decay, sizes.lars_peaks),
    "Adam, no ramp": (torch.optim.Adam, constant_lr, sizes.adam_lrs),
}


def tune(make_optimizer, schedule_of, peaks, batch):
    """Choose the best of `peaks` with some seeds; return the HR@10 of others at it."""
    train = scored(experiment, make_optimizer, batch, schedule_of)
    return tuned(train, peaks, len(seeds), sizes.tuning_seeds)


at_192 = {}
for name, (make_optimizer, schedule_of, peaks) in contestants.items():
    at_192[name] = tune(make_optimizer, schedule_of, peaks, batch_192)
    print(f"{name}: {at_192[name]}")

# %% tags=["experiment"]
scores = {name: contestant.scores for name, contestant in at_192.items()}
lars_ahead = points_ahead(scores["LARS"], scores["SGD"])
popularity = [experiment.popularity] * len(seeds)

print(course.score("03/3", "LARS over SGD at 192x, points", predicted_lars, lars_ahead, null=0))
course.claim(
    "at 192 times the batch, LARS ends at least 20 points of HR@10 above SGD with the same schedule, each at "
    "the best of three peaks",
    lars_ahead,
    above=20,
)
course.claim(
    "at 192 times the batch, a ramp gains SGD less than 10 points of HR@10, each at the best of three peaks",
    points_ahead(scores["SGD"], scores["SGD, no ramp"]),
    below=10,
)
course.claim(
    "at 192 times the batch, SGD with a ramp ends below popularity at the best of three peaks",
    points_ahead(scores["SGD"], popularity),
    below=0,
)
course.claim(
    "at 192 times the batch, Adam ends at least 2 points of HR@10 above LARS, each at the best of three",
    points_ahead(scores["Adam, no ramp"], scores["LARS"]),
    above=2,
)
title = f"LARS is {lars_ahead.estimate:.0f} points of HR@10 ahead of SGD at 192 times the batch"
plots.by_seed(scores, {"popularity": experiment.popularity}, "HR@10", title)

# %% [markdown]
# Where the first two claims hold, a ramp repairs little of what SGD loses here, and LARS much of it. Two things differ
# between SGD and LARS: the trust ratio, and the velocity, which contains the learning rate under LARS. **We think**
# that the trust ratio decides. To test it, run `move` with a ratio of 1.
#
# **Takeaway** LARS gives SGD a learning rate for every layer. Compare it with a tuned SGD and a tuned Adam before you
# adopt it.

# %% [markdown]
# ## Why does it fail without a ramp? · extra
#
# Two papers give different reasons why such a training fails.
#
# - *Adam's averages*: at first, Adam's mean square comes from very few gradients, so its steps have the wrong size
#   (Liu et al. 2020, arXiv:1908.03265).
# - *The weights*: the initial weights do not survive steps of that size. In post-norm blocks, gradients near the output
#   start large (Xiong et al. 2020, arXiv:2002.04745).
#
# A wait tells them apart. For a quarter of the steps the learning rate is 0: Adam collects its averages, and the
# weights stay. Then the learning rate jumps to its full value. If the averages were at fault, the training now learns.
#
# **Predict**: does this training learn or fail?

# %%
predicted_waiting = None  # your answer: "learns" or "fails"

# %% tags=["experiment"]
wait = sizes.warm_steps // 4


def jump_after_wait(step):
    if step < wait:
        return 0.0
    return peak


def gap_after_wait(**changed):
    """Nats by which trainings that wait end below token frequencies."""
    losses = train_transformers(jump_after_wait, **changed)
    return difference_interval(of_frequencies, at_end(losses))


gap = gap_after_wait()
outcome = None  # not decided
if gap.high <= 0.1:
    outcome = "fails"
elif gap.low >= 0.1:
    outcome = "learns"
what = "after waiting for Adam's averages, the training"
print(course.score("03/3", what, predicted_waiting, outcome))
course.claim(
    "after waiting until Adam's averages are full, it ends less than 0.1 nats below token frequencies",
    gap,
    below=0.1,
)

# %% [markdown]
# Adam has two averages: of the gradient and of its square. **Known** Liu et al. repaired a training by a wait in which
# the mean gradient stayed 0. So the next cell starts the mean gradient from 0 after the wait. First, Adam corrects the
# new mean, and its first steps have full size. Then it does not, and they are short.

# %% tags=["experiment"]
course.claim(
    "with a full mean square and a new mean gradient, it ends less than 0.1 nats below token frequencies",
    gap_after_wait(new_mean_at=wait),
    below=0.1,
)
course.claim(
    "with a full mean square and short first steps, it ends at least 0.2 nats below token frequencies",
    gap_after_wait(new_mean_at=wait, corrects_mean=False),
    above=0.2,
)

# %% [markdown]
# **Shown** The last two trainings differ only in the size of their first steps. Where their claims hold, this size
# decides.
#
# **Takeaway** In this network, Adam's averages do not replace a warm-up. Short first steps do.

# %% [markdown]
# ## When is LARS worth less? · extra
#
# LARS may gain less where SGD makes more updates, or where its biases have no trust ratio (`exclude_1d=True`). The
# cells compare LARS and SGD at 16 times the base batch, and try LARS with biases that move as under SGD. A seed that
# diverged has the score 0. **What is left of LARS' lead, and what does a trust ratio cost?**

# %% tags=["experiment"]
sgd_at_16 = tune(make_sgd, ramp_then_decay, sizes.sgd_peaks_16, experiment.batches[1])
lars_at_16 = tune(make_lars, ramp_then_decay, sizes.lars_peaks_16, experiment.batches[1])
print(f"16x, SGD: {sgd_at_16}")
print(f"16x, LARS: {lars_at_16}")
biases_as_in_sgd = tune(Lars, ramp_then_decay, sizes.bias_peaks, batch_192)
print(f"192x, LARS, biases as in SGD: {biases_as_in_sgd}")

course.claim(
    "at 16 times the batch, LARS ends at least 5 points of HR@10 above SGD, each at the best of three peaks",
    points_ahead(lars_at_16.scores, sgd_at_16.scores),
    above=5,
)
course.claim(
    "at 192 times the batch, a trust ratio for biases gains LARS at least 5 points of HR@10",
    points_ahead(scores["LARS"], biases_as_in_sgd.scores),
    above=5,
)

# %% tags=["experiment"]
ways = {}
for name, make_optimizer in {"SGD": make_sgd, "LARS": make_lars}.items():
    make_optimizer = functools.partial(make_optimizer, lr=0.01)
    ways[name] = experiment.some_updates(make_optimizer, experiment.batches[0], 5)
timed = compare(ways, device=course.device(), seconds=sizes.seconds)
print(timed)
course.claim(
    "at the base batch, an update with LARS takes at least 10 % longer than one with SGD",
    timed.ratio("SGD", to="LARS"),
    above=1.1,
)

# %% [markdown]
# **Takeaway** A trust ratio takes time in every update. Measure this time and the gain in accuracy at your own batch
# size.

# %% [markdown]
# ## How many learning rates does Adam need? · extra
#
# At 192 times the batch, what does Adam have that SGD lacks? Both combine the gradients of the last updates. Adam
# also divides each coordinate by $\sqrt v$, the root of its mean square. So a coordinate with small gradients moves
# about as far as one with large gradients.
#
# Does every coordinate need its own $v$? `SharedScaleAdam` keeps one $v$ for each coordinate, which is Adam itself, for
# each tensor, or for the whole model. With one $v$ for the model, all coordinates keep their proportions, as under SGD
# with momentum. Each variant tries three learning rates. Some seeds choose the best, and others judge it.
#
# **Predict** which share of Adam's lead over one scale for the model remains with one scale per tensor. Say 0 if every
# coordinate needs its own scale, and 1 if one per tensor is enough.

# %%
predicted_share = None  # your number from 0 to 1

# %% tags=["experiment"]
scores_of_scale = {"coordinate": at_192["Adam, no ramp"].scores}
for scale, lrs in sizes.scale_lrs.items():
    make_shared = functools.partial(SharedScaleAdam, scale=scale)
    best = tune(make_shared, constant_lr, lrs, batch_192)
    print(f"one scale per {scale}: {best}")
    scores_of_scale[scale] = best.scores

# %% tags=["experiment"]
per_model = scores_of_scale["model"]
per_tensor = scores_of_scale["tensor"]
per_coordinate = scores_of_scale["coordinate"]
lead_of_tensor = sum(per_tensor) - sum(per_model)
lead_of_coordinate = sum(per_coordinate) - sum(per_model)
share = None
if lead_of_coordinate > 0:
    share = lead_of_tensor / lead_of_coordinate

what = "share of Adam's lead with one scale per tensor"
print(course.score("03/3", what, predicted_share, share, null=None))
course.claim(
    "one scale per tensor ends at least 20 points of HR@10 above one scale for the model, each at its best",
    points_ahead(per_tensor, per_model),
    above=20,
)
course.claim(
    "one scale per coordinate ends at most 5 points of HR@10 above one per tensor, each at its best",
    points_ahead(per_coordinate, per_tensor),
    below=5,
)

rows = {f"one scale per {scale}": own for scale, own in scores_of_scale.items()}
title = (
    f"HR@10 {statistics.median(per_tensor):.2f} with one scale per tensor, "
    f"{statistics.median(per_model):.2f} with one for the model"
)
plots.by_seed(rows, {"popularity": experiment.popularity}, "HR@10", title)

# %% [markdown]
# **Shown** The three differ in how the scale is shared, each at its own best learning rate. Where the first claim
# holds, a scale for each tensor gains at least 20 points. Where the second holds, too, a finer one adds at most 5.
#
# **Takeaway** One scale per tensor can give most of what Adam gains over one scale for the model.

# %% [markdown]
# ## Can you write the other ramp? · extra
#
# The ramp of NVIDIA's workshop grows by equal factors. So it stays low for longer than a straight line of the same
# length.

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
# **Points** 3 · **Extra** · **Difficulty** ●●○ · **Minutes** 8 · **Lines** 4
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

# %%
exponential_ramp = course.solved(check.exponential_warmup)
linear_ramp = course.solved(check.linear_warmup)
exponential_lrs = [exponential_ramp(step, 10, 100.0, 2) for step in range(25)]
linear_lrs = [linear_ramp(step, 10, 1.0, 100.0, 2) for step in range(25)]


def share_of_peak(step):
    """What LambdaLR multiplies the optimizer's learning rate with."""
    return linear_ramp(step, 10, 1.0, 100.0, 2) / 100.0


weight = torch.zeros(1, requires_grad=True)
optimizer = torch.optim.SGD([weight], lr=100.0)
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, share_of_peak)
lrs_of_torch = scheduled_lrs(scheduler, 25)
course.claim(
    "torch's LambdaLR with your function gives the same learning rates",
    torch.allclose(torch.tensor(lrs_of_torch), torch.tensor(linear_lrs)),
)

times_as_high = linear_lrs[10] / exponential_lrs[10]
title = f"Halfway, the linear ramp is {times_as_high:.0f} times as high as the exponential one"
ramps = {"exponential, 2 epochs": exponential_lrs, "linear, 2 epochs": linear_lrs}
plots.learning_rates(ramps, title)

# %% [markdown]
# ## Would you notice a parameter that never trains? · extra
#
# An optimizer may leave a parameter where it was and raise no error. A public implementation of LARS (reference 2) does
# so, and has a second fault in its schedule. The class below has both. **How would you notice?**


# %% locked="wild_lars"
def wild_decay(step, max_steps, lr):
    """The learning rate at `step`, as found in the wild."""
    return lr * (1 - step / max_steps) ** 2


class WildLARS(torch.optim.Optimizer):
    """LARS as found in the wild, with its schedule inside.  Do not use it."""

    def __init__(self, params, lr, momentum=0.9, weight_decay=0.0005, trust=0.001, max_epoch=200):
        settings = {"lr": lr, "momentum": momentum, "weight_decay": weight_decay, "trust": trust}
        super().__init__(params, settings)
        self.epoch = 0
        self.max_epoch = max_epoch

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            lr = wild_decay(self.epoch, self.max_epoch, group["lr"])
            for w in group["params"]:
                if w.grad is None:
                    continue
                decay = group["weight_decay"]
                w_norm = w.norm()
                g_norm = w.grad.norm()
                trust_ratio = group["trust"] * w_norm / (g_norm + decay * w_norm)
                velocity = self.state[w].setdefault("velocity", torch.zeros_like(w))
                velocity.mul_(group["momentum"])
                velocity.add_(lr * trust_ratio * (w.grad + decay * w))
                w.sub_(velocity)
        self.epoch += 1


# %% [markdown]
# ### Exercise 4 · Show it
#
# Write an experiment that tests any optimizer class. Does a bias that starts at zero stay there, although it always
# gets a gradient?
#
# **Must**
# - make the optimizer as `optimizer_class(params, lr=...)`, with a one-dimensional float32 bias of zeros in `params`;
# - make ten steps with a gradient that is not zero, because some optimizers begin slowly;
# - return True if the bias is still zero after the tenth step, else False.
#
# ```python
# >>> shows_frozen_bias(torch.optim.SGD)
# False
# ```
#
# **Points** 3 · **Extra** · **Difficulty** ●●○ · **Minutes** 12 · **Lines** 6
#
# **Source** noahgolmant/pytorch-lars (reference 2), whose trust ratio is 0 for a bias of zeros.
#
# <details><summary>Hint 1</summary>
#
# What does `torch.nn.Linear` fill its bias with? Would your experiment see the fault with that bias?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# You need no model and no loss: a parameter's `grad` can simply be assigned before each step. If you do use a loss, is
# its gradient at zero really not zero?
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# `bias = torch.nn.Parameter(torch.zeros(1))`, the optimizer, ten times `bias.grad = torch.ones_like(bias)` and
# `optimizer.step()`; at the end test whether any element of `bias` differs from 0. True means that none does.
#
# </details>


# %% solution="shows_frozen_bias"
def shows_frozen_bias(optimizer_class):
    """True if a bias that starts at zero never moves under this optimizer, although its gradient is not zero.

    Args:
        optimizer_class: called as optimizer_class(params, lr=...), gives a torch.optim.Optimizer.

    Returns: a bool, from an experiment of ten steps.
    """
    ### BEGIN SOLUTION
    bias = torch.nn.Parameter(torch.zeros(1))
    optimizer = optimizer_class([bias], lr=1.0)
    for _ in range(10):
        bias.grad = torch.ones_like(bias)
        optimizer.step()
    return not bias.any().item()
    ### END SOLUTION


# %% test="shows_frozen_bias-visible" points=2
check.shows_frozen_bias(shows_frozen_bias)

# %% test="shows_frozen_bias-hidden" points=1
### BEGIN HIDDEN TESTS
check.shows_frozen_bias(shows_frozen_bias, seed=15)
### END HIDDEN TESTS

# %%
shows_frozen_bias_now = course.solved(check.shows_frozen_bias)
for optimizer_class in (WildLARS, course.solved(check.LARS), torch.optim.SGD):
    is_frozen = shows_frozen_bias_now(optimizer_class)
    verdict = "never moves" if is_frozen else "moves"
    print(f"{optimizer_class.__name__}: a bias that starts at zero {verdict}")

# %% [markdown]
# ### Exercise 5 · Fix the schedule
#
# The counter that `WildLARS` calls an epoch goes up with every *step*, so a training runs past the end of the schedule.
# To see what happens there, compute `wild_decay(step, 5, 1.0)` for steps 0 to 10. Then write a decay that is correct
# past the end, too.
#
# **Must** return `lr * (1 - step / max_steps) ** power` before `max_steps`, and exactly 0.0 from there on, for any
# `power > 0`, also 0.5 or 3.
#
# ```python
# >>> [polynomial_decay(step, 4, 1.0) for step in (0, 2, 4, 6)]
# [1.0, 0.25, 0.0, 0.0]
# ```
#
# **Points** 2 · **Extra** · **Difficulty** ●○○ · **Minutes** 5 · **Lines** 1
#
# **Source** You, Gitman, Ginsburg 2017, arXiv:1708.03888, the experiments (power 2); the fault is that of reference 2.
#
# <details><summary>Hint 1</summary>
#
# What is the sign of `1 - step / max_steps` after the end, and what does an even power make of it? And an odd one,
# and a square root?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Cut off at zero what goes *into* the power, not what comes out.
#
# </details>


# %% solution="polynomial_decay"
def polynomial_decay(step, max_steps, lr, power=2):
    """The learning rate at `step`: falls from `lr` at step 0 to 0.0 at `max_steps`, and stays there.

    Args:
        step: number of optimizer steps made so far, 0 for the first.
        max_steps: length of the schedule in steps, at least 1.
        lr: learning rate at step 0.  power: any number above 0.

    Returns: a float.
    """
    ### BEGIN SOLUTION
    return lr * max(0.0, 1 - step / max_steps) ** power
    ### END SOLUTION


# %% test="polynomial_decay-visible" points=1
check.polynomial_decay(polynomial_decay)

# %% test="polynomial_decay-hidden" points=1
### BEGIN HIDDEN TESTS
check.polynomial_decay(polynomial_decay, seed=16)
### END HIDDEN TESTS

# %%
decay = course.solved(check.polynomial_decay)
steps = range(11)
wild_lrs = [wild_decay(step, 5, 1.0) for step in steps]
fixed_lrs = [decay(step, 5, 1.0) for step in steps]
print("step                " + " ".join(f"{step:5d}" for step in steps))
print("as found in the wild" + " ".join(f"{lr:5.2f}" for lr in wild_lrs))
print("fixed               " + " ".join(f"{lr:5.2f}" for lr in fixed_lrs))

weight = torch.zeros(1, requires_grad=True)
optimizer = torch.optim.SGD([weight], lr=1.0)
scheduler = torch.optim.lr_scheduler.PolynomialLR(optimizer, total_iters=5, power=2)
lrs_of_torch = scheduled_lrs(scheduler, 11)
is_same = torch.allclose(torch.tensor(lrs_of_torch), torch.tensor(fixed_lrs))
course.claim("the fixed decay equals torch.optim.lr_scheduler.PolynomialLR", is_same)

# %% [markdown]
# **Takeaway** Test an optimizer on a parameter that starts at zero, and a schedule past its end.

# %% [markdown]
# ## References
#
# 1. Y. You, I. Gitman, B. Ginsburg, Large Batch Training of Convolutional Networks, 2017.
#    [arXiv:1708.03888](https://arxiv.org/abs/1708.03888)
# 2. N. Golmant, pytorch-lars. [github.com/noahgolmant/pytorch-lars](https://github.com/noahgolmant/pytorch-lars)
# 3. P. Goyal et al., Accurate, Large Minibatch SGD: Training ImageNet in 1 Hour, 2017.
#    [arXiv:1706.02677](https://arxiv.org/abs/1706.02677)
# 4. R. Xiong et al., On Layer Normalization in the Transformer Architecture, ICML 2020.
#    [arXiv:2002.04745](https://arxiv.org/abs/2002.04745)
# 5. L. Liu et al., On the Variance of the Adaptive Learning Rate and Beyond, ICLR 2020.
#    [arXiv:1908.03265](https://arxiv.org/abs/1908.03265)
# 6. D. S. Kalra, M. Barkeshli, Why Warmup the Learning Rate? Underlying Mechanisms and Improvements, 2024.
#    [arXiv:2406.09405](https://arxiv.org/abs/2406.09405)
# 7. Z. Nado et al., A Large Batch Optimizer Reality Check: Traditional, Generic Optimizers Suffice Across Batch Sizes,
#    2021. [arXiv:2102.06356](https://arxiv.org/abs/2102.06356)
