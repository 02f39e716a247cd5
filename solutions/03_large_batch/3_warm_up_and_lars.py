# %% [markdown]
# # Large batches, part 3: Warm-up and LARS
#
# **When does a training need a warm-up, and when a learning rate for every layer?**
#
# With a larger batch, each update has to go further, and the first ones may go too far. A warm-up makes the first
# updates small. LARS gives every layer its own learning rate. You write both, and find out which training needs
# which.
#
# **You will be able to**
#
# - measure how far one update moves each layer of your own model;
# - write a warm-up, and say which trainings need one;
# - write LARS, and say when it beats SGD with the same schedule;
# - say which part of Adam makes it tolerate a large batch.
#
# **Minutes** 46 core · 90 in all
#
# **Needs** no other part; part 1 explains the recommender and its score HR@10

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
from course.training.optimizer_contest import constant_lr, ramp_and_decay, scored
from course.training.recommender import Experiment
from course.training.shared_scales import SharedScaleAdam
from course.training.tuned import tuned
from course.training.update_ratios import update_ratios

print(course.machine())
sizes = course.sizes("03_large_batch")
experiment = Experiment(sizes)
print(experiment)
seeds = range(sizes.paired_seeds)
otherwise = "At this scale, or with this data, the boundary lies at other learning rates."

# %% [markdown]
# ## Can one update be longer than the weights?
#
# A learning rate alone does not say whether an update is too long. The **update-to-weight ratio** does: it is the
# norm of a tensor's update over the norm of the tensor. Above 1, the update is longer than the tensor itself.
#
# The linear rule of part 2 multiplies the learning rate by 192 for 192 times the batch. The cell makes one update of
# the recommender by this rule, and one with Adam. **Does every tensor move by the same share of its norm?**

# %% tags=["experiment"]
lr_192 = sizes.base_lr * experiment.batches[2] / experiment.batches[0]


def first_update(make_optimizer, seed=0):
    """{parameter: its update-to-weight ratio} in the first update at 192 times the batch."""
    model = experiment.fresh_model(seed=seed)
    optimizer, batch = (
        make_optimizer(model.parameters()),
        experiment.first_batch(experiment.batches[2]),
    )
    return update_ratios(model, lambda: recommender_loop.training_step(model, *batch, optimizer))


makers = {
    f"SGD, learning rate {lr_192:g}": lambda p: torch.optim.SGD(p, lr=lr_192),
    "Adam": lambda p: torch.optim.Adam(p, lr=sizes.adam_lr[1]),
}
ratios = {label: [first_update(make, seed) for seed in seeds] for label, make in makers.items()}

# %% tags=["experiment"]
of_sgd, of_adam = [
    torch.tensor([[ratio for name, ratio in of.items() if "weight" in name] for of in by_seed])
    for by_seed in ratios.values()
]
first, spread = ratios[f"SGD, learning rate {lr_192:g}"], of_sgd.amax(1) / of_sgd.amin(1)
course.claim(
    "by the linear rule at 192 times the batch, SGD's first update is longer than one of the tensors itself",
    signed_rank_interval([max(of.values()) for of in first]),
    above=1,
    otherwise=otherwise,
)
course.claim(
    "under SGD the update-to-weight ratios of the weight matrices differ more than a hundredfold",
    ratio_interval(of_sgd.amax(1), of_sgd.amin(1)),
    above=100,
    otherwise=otherwise,
)
course.claim(
    "under Adam the ratios of the weight matrices differ at least ten times less than under SGD",
    ratio_interval(spread, of_adam.amax(1) / of_adam.amin(1)),
    above=10,
    otherwise=otherwise,
)
longest = max(first[0], key=first[0].get)
title = f"SGD's first update is {first[0][longest]:.1f} times as long as {longest} itself (seed 0)"
plots.layer_ratios({label: by_seed[0] for label, by_seed in ratios.items()}, title)

# %% [markdown]
# Under SGD, one learning rate makes some tensors barely move and others, mostly biases, move far. **Known** You et al.
# found such differences between the layers of AlexNet, too (arXiv:1708.03888, section 4).
#
# **Takeaway** Compare an update with the weights that it changes. The learning rate alone does not say how far a layer
# moves.

# %% [markdown]
# ## When does a warm-up decide?
#
# A *warm-up* makes the first updates small: it starts with a small learning rate and raises it. **Known** Goyal et
# al. trained ResNet-50 with 32 times the batch. Their warm-up lowered the error from 24.8 % to 23.7 %, nearly that of
# the small batch. You write their ramp, a straight line.

# %% [markdown]
# ### Exercise 1 · Linear warm-up
#
# Let the learning rate grow by equal amounts from the small batch's to the large batch's, and then stay. The length
# of the ramp may be a fraction of a step, so do not round it.
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
# A deep network needs small first updates, too, and is quicker to test than a large batch. The cell trains a
# transformer of 12 layers with Adam. Its blocks are *post-norm*: they normalise after each addition, as in Vaswani et
# al. 2017. Two of the ramps grow by equal factors, as in NVIDIA's workshop (exercise 3). **Which of the four
# trainings learn?**
#
# In the figure, a line is the middle seed and a band holds all seeds. The upper dashed line is the loss of a model
# that knows only how frequent each token is. The lower one is the best possible loss: in this text, the last two
# tokens decide how likely each next one is.

# %% tags=["experiment"]
text = warmed_transformers.text_of_pairs(sizes.warm_rows, course.device())
n, peak = text.steps_per_epoch, sizes.warm_lr
line, ramp = course.solved(check.linear_warmup), course.solved(check.exponential_warmup)


def losses(schedule, **changed):
    """(steps, seeds): losses of transformers trained by Adam with `schedule`, step -> learning rate."""
    shape = {"layers": sizes.warm_layers} | changed
    return warmed_transformers.train_seeds(text, schedule, sizes.warm_steps, len(seeds), **shape)


runs = {
    "no ramp": losses(lambda step: peak),
    "equal factors, 0.1 epoch": losses(lambda step: ramp(step, n, peak, 0.1)),
    "equal factors, 0.4 epoch": losses(lambda step: ramp(step, n, peak, 0.4)),
    "straight line, 0.4 epoch": losses(lambda step: line(step, n, peak / 100, peak, 0.4)),
}

# %% tags=["experiment"]
at_end = {label: warmed_transformers.at_end(of) for label, of in runs.items()}
constant = [text.constant] * len(seeds)
without, factors, straight = (
    at_end["no ramp"],
    at_end["equal factors, 0.4 epoch"],
    at_end["straight line, 0.4 epoch"],
)
course.claim(
    "without a ramp, the deep post-norm transformer ends less than 0.1 nats below token frequencies",
    difference_interval(constant, without),
    below=0.1,
    otherwise=otherwise,
)
course.claim(
    "with a ramp of 0.4 epochs, the deep post-norm transformer ends at least 0.3 nats lower than without",
    difference_interval(without, straight),
    above=0.3,
    otherwise=otherwise,
)
course.claim(
    "ramps by equal factors and along a line, both of 0.4 epochs, end within 0.3 nats of each other",
    difference_interval(factors, straight),
    within=(-0.3, 0.3),
    otherwise=otherwise,
)
levels = {"token frequencies": text.constant, "the table itself": text.table}
lowest, highest = min(without), max(straight)
title = f"No ramp: no seed ends below {lowest:.2f}. Straight line: none above {highest:.2f}"
plots.warm_up(runs, levels, title)

# %% [markdown]
# Where the claims hold, the ramp decides whether this network learns, and its shape matters less.
#
# **Takeaway** A warm-up can decide whether a training works, even with a small batch.
#
# ## Why does it fail without a ramp?
#
# The reason says which of your trainings are at risk. There are two explanations.
#
# - *Adam's averages*: at first, Adam's mean square comes from very few gradients, so its steps have the wrong size
#   (Liu et al. 2020, arXiv:1908.03265).
# - *The weights*: the initial weights do not survive steps of that size. In post-norm blocks, gradients near the
#   output start large (Xiong et al. 2020, arXiv:2002.04745).
#
# A wait tells them apart. For a quarter of the steps the learning rate is 0, so Adam's averages fill and the weights
# stay. Then it jumps to its full value, without a ramp. If the averages were at fault, the training now learns.
#
# **Predict**: does the training with both averages full learn or fail?
#
# Two controls run after it. Both keep the mean square of the wait and start the mean gradient from 0 again:
#
# - one applies Adam's bias correction to the new mean, so its first steps have full size;
# - one does not, so its first ten steps are short.

# %%
predicted_waiting = None  # your answer: "learns" or "fails"

# %% tags=["experiment"]
wait = sizes.warm_steps // 4


def gap_after(**changed):
    """Nats below token frequencies of trainings that wait."""
    waited = losses(lambda step: 0.0 if step < wait else peak, **changed)
    return difference_interval(constant, warmed_transformers.at_end(waited))


both, square = gap_after(), gap_after(new_mean_at=wait)  # what is full
fails = None if both.low < 0.1 < both.high else "fails" if both.high <= 0.1 else "learns"
print(
    course.score(
        "03/3", "after waiting for Adam's averages, the training", predicted_waiting, fails
    )
)
course.claim(
    "after waiting until Adam's averages are full, it ends less than 0.1 nats below token frequencies",
    both,
    below=0.1,
    otherwise=otherwise,
)
course.claim(
    "with a full mean square and a new mean gradient, it ends less than 0.1 nats below token frequencies",
    square,
    below=0.1,
    otherwise=otherwise,
)
course.claim(
    "with a full mean square and short first steps, it ends at least 0.2 nats below token frequencies",
    gap_after(new_mean_at=wait, corrects_mean=False),
    above=0.2,
    otherwise=otherwise,
)

# %% [markdown]
# **Shown** Where the first two claims hold, full averages are not enough. The two controls differ only in the size of
# their first steps. So where the third claim holds, too, short first steps were all that was missing.
#
# <details><summary>Liu et al. cured their training by a wait. Why?</summary>
#
# **Known** Their mean gradient stayed 0 meanwhile, so the steps after the wait began short, too.
#
# </details>
#
# **Takeaway** Full averages do not replace a warm-up. The weights have to move slowly at first.
#
# ## Which trainings need no ramp?
#
# Without a ramp, you have one thing less to tune. The cell changes one thing at a time: a quarter of the learning
# rate, a third of the layers, or *pre-norm* blocks, which normalise before attention and MLP. **After which change
# does the ramp still matter?**


# %% tags=["experiment"]
def with_and_without(lr, **changed):
    """The losses without a ramp and with one of 0.4 epochs."""
    return losses(lambda step: lr, **changed), losses(
        lambda step: line(step, n, lr / 100, lr, 0.4), **changed
    )


pairs = {  # changed: (without a ramp, with it)
    "as above": (runs["no ramp"], runs["straight line, 0.4 epoch"]),
    "a quarter of the learning rate": with_and_without(peak / 4),
    "a third of the layers": with_and_without(peak, layers=max(1, sizes.warm_layers // 3)),
    "pre-norm": with_and_without(peak, post_norm=False),
}
same = (-0.2, 0.2)  # nats
ends = {changed: [warmed_transformers.at_end(of) for of in pair] for changed, pair in pairs.items()}
worth = {changed: difference_interval(*pair) for changed, pair in ends.items()}

# %% tags=["experiment"]
for changed, nats in worth.items():
    print(f"changed: {changed:<32} the ramp lowers the loss by {nats} nats")
course.claim(
    "at a quarter of the learning rate, the ramp changes the loss by less than 0.2 nats",
    worth["a quarter of the learning rate"],
    within=same,
    otherwise=otherwise,
)
course.claim(
    "with a third of the layers, the ramp changes the loss by less than 0.2 nats",
    worth["a third of the layers"],
    within=same,
    otherwise=otherwise,
)
course.claim(
    "with pre-norm blocks, the ramp changes the loss by less than 0.2 nats",
    worth["pre-norm"],
    within=same,
    otherwise=otherwise,
)
course.claim(
    "a quarter of the learning rate without a ramp ends below the full learning rate with the ramp",
    difference_interval(ends["as above"][1], ends["a quarter of the learning rate"][0]),
    above=0,
)
rows = {
    f"{changed}, {way}": pair[k]
    for changed, pair in ends.items()
    for k, way in enumerate(("no ramp", "ramp"))
}
saved = [nats.estimate for nats in worth.values()]
title = f"The ramp lowers the loss by {saved[0]:.2f} nats; after one of three changes, by at most {max(saved[1:]):.2f}"
plots.by_seed(rows, levels, "loss, nats per token", title)

# %% [markdown]
# Where the claims hold, each of the three changes replaces the ramp, and may end lower. **Known** A warm-up mainly
# lets a network tolerate a larger learning rate (Kalra and Barkeshli 2024, arXiv:2406.09405). So you need not tune
# the learning rate as carefully (Wortsman et al. 2023, arXiv:2309.14322).
#
# **Takeaway** A warm-up protects against a learning rate that the initial weights cannot take. Where the learning rate
# is safe from the first step, it changes little.

# %% [markdown]
# ## Can SGD have a learning rate for every layer?
#
# A warm-up slows all layers by the same factor, although they may need different ones. LARS (layer-wise adaptive rate
# scaling) makes the update-to-weight ratio the same everywhere. For each layer $l$ with weights $w$ and gradient $g$,
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
# **Source** You, Gitman, Ginsburg 2017, arXiv:1708.03888, Algorithm 1. The exception for 1-D parameters and the guard
# against zero norms came later.
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
        settings = dict(
            lr=lr, momentum=momentum, weight_decay=weight_decay, trust=trust, exclude_1d=exclude_1d
        )
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
            ratio = torch.where(
                (w_norm > 0) & (g_norm > 0), ratio, 1.0
            )  # on the device: no sync point
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
of_lars = torch.tensor(list(first_update(lambda p: Lars(p, lr=100.0, exclude_1d=False)).values()))
course.claim(
    "LARS moves every tensor by the same share of its norm",
    torch.allclose(of_lars, of_lars[:1], rtol=0.01),
    f"largest over smallest {of_lars.max() / of_lars.min():.3f}",
)

# %% [markdown]
# **Takeaway** LARS moves every tensor by the same share of its norm, whatever its gradient.
#
# ## Does LARS beat a tuned SGD?
#
# **Known** You et al. trained ResNet-50 with LARS and a batch of 32,768, without losing accuracy. Later, Nado et al.
# tuned Nesterov's momentum as carefully, and it did as well (arXiv:2102.06356).
#
# So compare fairly. SGD and LARS follow the same schedule, a ramp over one epoch and then quadratic decay. Each tries
# three peaks of the learning rate. Two seeds choose the peak, and other seeds judge it. Two more contestants run with
# them:
#
# - LARS with `exclude_1d=True`, as in later implementations: its biases move as under SGD;
# - Adam, without ramp and decay.
#
# **Predict**: by how many points of HR@10 (a point is 0.01) is LARS, with a trust ratio for all tensors, ahead of SGD
# at 192 times the batch?

# %%
predicted_lars = None  # points of HR@10, 0 if tuning is all that SGD lacked

# %% tags=["experiment"]
contestants = {
    "SGD": (lambda p, lr: torch.optim.SGD(p, lr=lr, momentum=0.9), sizes.sgd_peaks),
    "LARS": (lambda p, lr: Lars(p, lr=lr, exclude_1d=False), sizes.lars_peaks),
    "LARS, biases as in SGD": (lambda p, lr: Lars(p, lr=lr), sizes.bias_peaks),
    "Adam, no ramp": (lambda p, lr: torch.optim.Adam(p, lr=lr), sizes.adam_lrs),
}
rises_and_falls, at_192 = ramp_and_decay(ramp, sizes.epochs), {}
for name, (make, peaks) in contestants.items():
    schedule_of = constant_lr if "no ramp" in name else rises_and_falls
    train = scored(experiment, make, experiment.batches[2], schedule_of)
    at_192[name] = tuned(train, peaks, len(seeds), sizes.tuning_seeds)
    print(f"{name}: {at_192[name]}")

# %% tags=["experiment"]
scores = {name: of.scores for name, of in at_192.items()}
ahead, popular = points_ahead(scores["LARS"], scores["SGD"]), [experiment.popularity] * len(seeds)
print(course.score("03/3", "LARS over SGD at 192x, points", predicted_lars, ahead, null=0))
course.claim(
    "at 192 times the batch, LARS ends at least 20 points of HR@10 above SGD with the same schedule, each at "
    "the best of three peaks",
    ahead,
    above=20,
    otherwise=otherwise,
)
course.claim(
    "at 192 times the batch, SGD with a ramp ends below popularity at the best of three peaks",
    points_ahead(scores["SGD"], popular),
    below=0,
    otherwise=otherwise,
)
course.claim(
    "at 192 times the batch, a trust ratio for biases gains LARS at least 5 points of HR@10",
    points_ahead(scores["LARS"], scores["LARS, biases as in SGD"]),
    above=5,
    otherwise=otherwise,
)
course.claim(
    "at 192 times the batch, Adam ends at least 2 points of HR@10 above LARS, each at the best of three",
    points_ahead(scores["Adam, no ramp"], scores["LARS"]),
    above=2,
    otherwise=otherwise,
)
title = f"LARS is {ahead.estimate:.0f} points of HR@10 ahead of SGD at 192 times the batch"
plots.by_seed(scores, {"popularity": experiment.popularity}, "HR@10", title)

# %% [markdown]
# Two things differ between SGD and LARS: the trust ratio, and the velocity, which contains the learning rate under
# LARS. **We think** that the trust ratio decides. To test it, run `move` with a ratio of 1.
#
# **Takeaway** LARS gives SGD a learning rate for every layer. Compare it with a tuned SGD and a tuned Adam before you
# adopt it.

# %% [markdown]
# ## Where does LARS stop winning? · extra
#
# With smaller batches, SGD makes more updates, so a trust ratio may gain less. The cell compares
# both optimizers at 16 and at 4 times the base batch, with the same schedule as above. At 16 times, each tries three
# peaks. At 4 times, each has one peak, the best of a grid that we searched with two seeds. A seed that diverged has the
# score 0.
#
# These trainings have fewer epochs than those of part 2, so compare scores only within this section.
#
# **What is left of LARS' lead, and what does a trust ratio cost?**

# %% tags=["experiment"]
smaller = {}
for times, peaks in sizes.peaks_of.items():
    found = []
    for name, own_peaks in zip(("SGD", "LARS"), peaks, strict=True):
        train = scored(experiment, contestants[name][0], times * sizes.base_batch, rises_and_falls)
        found.append(tuned(train, own_peaks, len(seeds), sizes.tuning_seeds))
        print(f"{times}x, {name}: {found[-1]}")
    smaller[times] = points_ahead(found[1].scores, found[0].scores)
course.claim(
    "at 16 times the batch, LARS ends at least 5 points of HR@10 above SGD, each at the best of three peaks",
    smaller[16],
    above=5,
    otherwise=otherwise,
)
course.claim(
    "at 4 times the batch, LARS and SGD end within 3 points of HR@10 of each other",
    smaller.get(4),
    within=(-3, 3),
    otherwise=otherwise,
)


# %% tags=["experiment"]
def updates(name, peak=0.01, repeats=5):
    """A function that makes a few updates at the base batch."""
    model = experiment.fresh_model()
    batch, optimizer = (
        experiment.first_batch(experiment.batches[0]),
        contestants[name][0](model.parameters(), peak),
    )

    def run():
        for _ in range(repeats):
            recommender_loop.training_step(model, *batch, optimizer)

    return run


timed = compare(
    {name: updates(name) for name in ("SGD", "LARS")}, device=course.device(), seconds=sizes.seconds
)
print(timed)
course.claim(
    "at the base batch, an update with LARS takes at least 10 % longer than one with SGD",
    timed.ratio("SGD", to="LARS"),
    above=1.1,
    otherwise=otherwise,
)

# %% [markdown]
# For more batch sizes, switch the map of part 2 from SGD to LARS. Its trainings are longer and have no ramp.
#
# **Takeaway** A trust ratio costs time in every update. It pays where SGD finds no good learning rate for the few
# updates that it has.

# %% [markdown]
# ## How many learning rates does Adam need? · extra
#
# At 192 times the batch, what does Adam have that SGD lacks? Like momentum, it averages the gradient over the last
# updates. Unlike SGD, it also divides each coordinate by $\sqrt v$, the root of its mean square, so every coordinate
# moves by about the learning rate.
#
# How finely does this have to be done? `SharedScaleAdam` is Adam with one choice: a mean square $v$ for each
# coordinate, which is Adam itself, for each tensor, or for the whole model. With one $v$ for the model, all coordinates
# keep their proportions, as under SGD. Each variant tries three learning rates. Two seeds choose the best, and other
# seeds judge it.
#
# **Predict** which share of Adam's lead over one scale for the model remains with one scale per tensor. Say 0 if every
# coordinate needs its own learning rate, and 1 if a learning rate for every layer is enough.

# %%
predicted_share = None  # your number from 0 to 1

# %% tags=["experiment"]
scales = {"coordinate": at_192["Adam, no ramp"]}
for scale, lrs in sizes.scale_lrs.items():
    make = functools.partial(SharedScaleAdam, scale=scale)
    train = scored(experiment, make, experiment.batches[2], constant_lr)
    scales[scale] = tuned(train, lrs, len(seeds), sizes.tuning_seeds)
    print(f"one scale per {scale}: {scales[scale]}")

# %% tags=["experiment"]
scores = {scale: of.scores for scale, of in scales.items()}
lead = [sum(scores[scale]) - sum(scores["model"]) for scale in ("tensor", "coordinate")]
share = lead[0] / lead[1] if lead[1] > 0 else None
print(
    course.score(
        "03/3", "share of Adam's lead with one scale per tensor", predicted_share, share, null=None
    )
)
course.claim(
    "one scale per tensor ends at least 20 points of HR@10 above one scale for the model, each at its best",
    points_ahead(scores["tensor"], scores["model"]),
    above=20,
    otherwise=otherwise,
)
course.claim(
    "one scale per coordinate ends at most 5 points of HR@10 above one per tensor, each at its best",
    points_ahead(scores["coordinate"], scores["tensor"]),
    below=5,
    otherwise=otherwise,
)
levels = {"popularity": experiment.popularity}
middle = {scale: statistics.median(of) for scale, of in scores.items()}
title = f"HR@10 {middle['tensor']:.2f} with one scale per tensor, {middle['model']:.2f} with one for the model"
plots.by_seed(
    {f"one scale per {scale}": of for scale, of in scores.items()}, levels, "HR@10", title
)

# %% [markdown]
# **Shown**: the three differ only in how the scale is shared. Where the first claim holds, a scale for each tensor
# makes the difference. Where the second holds, too, a finer scale, such as one for each rare film, adds little.
#
# **Takeaway** Where one scale per tensor does as well as Adam, a learning rate for every layer is most of Adam's gain
# at a large batch.

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
exponential, linear = course.solved(check.exponential_warmup), course.solved(check.linear_warmup)
optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=100.0)
scheduler = torch.optim.lr_scheduler.LambdaLR(
    optimizer, lambda step: linear(step, 10, 1.0, 100.0, 2) / 100.0
)
from_torch = []
for _ in range(25):
    from_torch += scheduler.get_last_lr()
    optimizer.step()
    scheduler.step()
ramp_lrs = {
    "exponential, 2 epochs": [exponential(step, 10, 100.0, 2) for step in range(25)],
    "linear, 2 epochs": [linear(step, 10, 1.0, 100.0, 2) for step in range(25)],
}
course.claim(
    "torch's LambdaLR with your function gives the same learning rates",
    torch.allclose(torch.tensor(from_torch), torch.tensor(ramp_lrs["linear, 2 epochs"])),
)
slow, fast = (values[10] for values in ramp_lrs.values())
plots.learning_rates(
    ramp_lrs, f"Halfway, the linear ramp is {fast / slow:.0f} times as high as the exponential one"
)

# %% [markdown]
# ## Would you notice a parameter that never trains? · extra
#
# An optimizer may leave a parameter where it was and raise no error. A public implementation of LARS (reference 2) did
# so, and had a second fault in its schedule. The class below has both. **How would you notice?**


# %% locked="wild_lars"
def wild_decay(step, max_steps, lr):
    """The learning rate at `step`, as found in the wild."""
    return lr * (1 - step / max_steps) ** 2


class WildLARS(torch.optim.Optimizer):
    """LARS as found in the wild, with its schedule inside.  Do not use it."""

    def __init__(self, params, lr, momentum=0.9, weight_decay=0.0005, trust=0.001, max_epoch=200):
        super().__init__(
            params, dict(lr=lr, momentum=momentum, weight_decay=weight_decay, trust=trust)
        )
        self.epoch, self.max_epoch = 0, max_epoch

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            lr = wild_decay(self.epoch, self.max_epoch, group["lr"])
            for w in group["params"]:
                if w.grad is None:
                    continue
                decay, w_norm, g_norm = group["weight_decay"], w.norm(), w.grad.norm()
                local = group["trust"] * w_norm / (g_norm + decay * w_norm)
                v = self.state[w].setdefault("velocity", torch.zeros_like(w))
                v.mul_(group["momentum"]).add_(lr * local * (w.grad + decay * w))
                w.sub_(v)
        self.epoch += 1


# %% [markdown]
# ### Exercise 4 · Show it
#
# Write an experiment that finds out, for any optimizer class, whether a bias that starts at zero stays there,
# although it always gets a gradient.
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
# **Source** The fault was found by running noahgolmant/pytorch-lars (reference 2) on a zero-initialised bias.
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
is_frozen = course.solved(check.shows_frozen_bias)
for optimizer_class in (WildLARS, course.solved(check.LARS), torch.optim.SGD):
    verdict = "never moves" if is_frozen(optimizer_class) else "moves"
    print(f"{optimizer_class.__name__}: a bias that starts at zero {verdict}")

# %% [markdown]
# ### Exercise 5 · Fix the schedule
#
# Compute `wild_decay(step, 5, 1.0)` for steps 0 to 10. The counter that `WildLARS` calls an epoch goes up with every
# *step*, so a training runs past the end of the schedule. Write the decay so that it is correct past the end, too.
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
print("step                " + " ".join(f"{step:5d}" for step in range(0, 11)))
print(
    "as found in the wild" + " ".join(f"{wild_decay(step, 5, 1.0):5.2f}" for step in range(0, 11))
)
print("fixed               " + " ".join(f"{decay(step, 5, 1.0):5.2f}" for step in range(0, 11)))
optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
scheduler = torch.optim.lr_scheduler.PolynomialLR(optimizer, total_iters=5, power=2)
from_torch = []
for _ in range(11):
    from_torch += scheduler.get_last_lr()
    optimizer.step()
    scheduler.step()
fixed = [decay(step, 5, 1.0) for step in range(11)]
is_same = torch.allclose(torch.tensor(from_torch), torch.tensor(fixed))
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
# 7. M. Wortsman et al., Small-scale proxies for large-scale Transformer training instabilities, 2023.
#    [arXiv:2309.14322](https://arxiv.org/abs/2309.14322)
# 8. Z. Nado et al., A Large Batch Optimizer Reality Check: Traditional, Generic Optimizers Suffice Across Batch Sizes,
#    2021. [arXiv:2102.06356](https://arxiv.org/abs/2102.06356)
