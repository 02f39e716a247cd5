# %% [markdown]
# # Large batches, part 3: A learning rate for every layer
#
# **What wins back the accuracy of a batch 192 times as large, and where does a larger batch stop helping?**
#
# In part 2 the linear rule and a warm-up were not enough at 192 times the batch: every run diverged. This part looks at
# single layers instead. LARS gives each its own learning rate. You write it, measure what it wins back and what the
# decay beside it is worth, and find the faults of a published implementation by experiment. Then you measure the
# critical batch: the size beyond which more samples per update save hardly any updates.
#
# **You will be able to**
#
# - measure how far one update moves each layer, and say why one learning rate cannot fit all;
# - write LARS as a `torch.optim.Optimizer`;
# - show by an experiment that an optimizer never trains a parameter, and mend its schedule;
# - find the critical batch of a training.
#
# **Minutes** 60 core · 90 in all
#
# **Needs** part 2 (its answers are taken over if you solved it)

# %% locked="setup"
import math

import torch

import course
from course import training
from course.checks import large_batch as check
from course.plots import large_batch as plots
from course.predictions import reveal
from course.recommender import Experiment, print_run

print(course.machine())

# %% [markdown]
# ## LARS: a learning rate for every layer
#
# **One learning rate for the whole network is limited by its most sensitive layer. LARS gives each layer the learning
# rate that moves it by the same share of its own norm.**
#
# The linear rule and the warm-up of part 2 treat all parameters alike. At 192 times the batch the learning rate is so
# large that in some layer a single update is as long as the weights themselves. Such a layer loses in one step what it
# has learned.
#
# What decides is the **update-to-weight ratio** of a layer, $\alpha\,\lVert g\rVert / \lVert w\rVert$: the length of
# its step over its own length. With one $\alpha$ for all layers, the ratio varies as much as $\lVert g\rVert / \lVert
# w\rVert$ does. You, Gitman and Ginsburg looked at AlexNet after its first iteration and found that $\lVert w\rVert /
# \lVert g\rVert$ of its layers differs more than a hundredfold, the first convolution at the low end and a fully
# connected layer at the high one (arXiv:1708.03888, section 4). A learning rate that is safe for the one hardly moves
# the other.
#
# Consider $\lVert g\rVert / \lVert w\rVert$ of every weight matrix of NeuMF at the start of training. By what factor do
# the largest and the smallest differ?

# %%
predicted_ratio_spread = None  # your number: largest ||g|| / ||w|| of a layer over the smallest


# %% [markdown]
# The next cell prepares the experiments as in part 2. `lr_192` is the learning rate of the linear rule for 192 times
# the batch.

# %% tags=["experiment"]
sizes = course.sizes("03_large_batch")
experiment = Experiment(
    sizes,
    leave_one_out=course.solved(check.leave_one_out),
    sample_negatives=course.solved(check.sample_negatives),
    rank_metrics=course.solved(check.rank_metrics),
)
scaled_lr = course.solved(check.scaled_lr)
exponential = course.solved(check.exponential_warmup)
batches = experiment.batches
lr_192 = scaled_lr(sizes.base_lr, batches[0], batches[2])
print(experiment)


# %% tags=["experiment"]
def update_ratios(make_optimizer):
    """{parameter: norm of the first update / norm of the weights} on one large batch, for parameters that are not 0."""
    model = experiment.fresh_model()
    optimizer = make_optimizer(model.parameters())
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    training.training_step(model, *experiment.first_batch(batches[2]), optimizer)
    moved = {name: (p.detach() - before[name]).norm() / before[name].norm() for name, p in model.named_parameters()}
    return {name: ratio.item() for name, ratio in moved.items() if 0 < ratio < math.inf}


ratios = {f"SGD, learning rate {lr_192:g}": update_ratios(lambda params: torch.optim.SGD(params, lr=lr_192))}
weights_only = [ratio / lr_192 for name, ratio in ratios[f"SGD, learning rate {lr_192:g}"].items() if "weight" in name]
spread = max(weights_only) / min(weights_only)
print(f"||g|| / ||w||: largest over smallest {spread:,.0f}" + reveal(predicted_ratio_spread))
plots.layer_ratios(ratios)

# %% [markdown]
# Every mark to the right of 1 (10⁰) is a tensor whose first update is longer than the tensor itself. The printed factor
# counts weight matrices only; the figure shows biases too, and they spread wider.

# %% [markdown]
# LARS (layer-wise adaptive rate scaling) multiplies the learning rate of each layer $l$ by a trust ratio $\lambda^l$
# (the paper calls it the local rate), computed at every step from two norms. With trust coefficient $\eta$, weight
# decay $\beta$ and momentum $m$:
#
# $$\lambda^l = \eta\,\frac{\lVert w^l\rVert}{\lVert g^l\rVert + \beta\,\lVert w^l\rVert}, \qquad
# v^l \leftarrow m\,v^l + \alpha\,\lambda^l\,(g^l + \beta\,w^l), \qquad w^l \leftarrow w^l - v^l$$
#
# Without momentum and decay the update-to-weight ratio is $\alpha\,\eta$ in every layer, whatever the gradient. Three
# things follow.
#
# - $\eta$ is small, for example 0.001, because it *is* the share of its norm by which a layer moves at learning rate 1.
#   A learning rate tuned for SGD does not carry over.
# - The length of the gradient no longer counts, only its direction. A gradient ten times too long does no harm, and a
#   gradient that shrinks does not slow the layer down; the schedule has to do that.
# - Weight decay must be in the denominator too. Otherwise the update with decay is longer than $\alpha\,\eta\,\lVert
#   w\rVert$.
#
# The authors report AlexNet with batches up to 8,192 and ResNet-50 up to 32,768 without losing accuracy against the
# small batch. They train with a polynomial decay of the learning rate and with warm-up: LARS replaces neither. The
# experiment below shows what it does here, with embeddings instead of convolutions.

# %% [markdown]
# ### Exercise 1 · LARS
#
# Write the update of LARS. The constructor and the handling of a closure are given; write the body of the loop over
# parameter groups. A group is a dictionary: `group["params"]` holds its parameters, and every setting of the
# constructor is there under its own name.
#
# **Points** 6 · **Core** · **Difficulty** ●●● · **Minutes** 45 · **Lines** 14
#
# **Convention** The norm is the Euclidean norm of one whole parameter tensor. The learning rate is *inside* the
# velocity: `v = momentum * v + lr * local * (g + weight_decay * w)`, where `local` is the trust ratio, then `w = w -
# v`, with `v = 0` before the first step; so a new `lr` applies to what is added from now on, not to what is already in
# the velocity (`torch.optim.SGD` does it the other way). Where the norm of `w` or of `g` is 0, the trust ratio is 1, so
# that a parameter that starts at zero still moves. With `exclude_1d=True` a parameter with `ndim <= 1` (bias, scale of
# a norm, scalar) gets plain momentum SGD: trust ratio 1 and no weight decay, the velocity as above. All settings are
# read from the group at every step. Parameters whose `grad` is None are left alone, gradients are not changed, and the
# velocity lies in `self.state[w]`, so that `state_dict` and `load_state_dict` carry it. Avoid `.item()` and `if` on a
# norm, which wait for the GPU (good practice; the check does not count it).
#
# **Source** You, Gitman, Ginsburg 2017, "Large Batch Training of Convolutional Networks", arXiv:1708.03888, Algorithm
# 1. Leaving out the 1-D parameters is later practice and the guard against zero norms is ours; Algorithm 1 has
# neither.
#
# <details><summary>Hint 1</summary>
#
# By the formula alone, what is the trust ratio of a bias that starts at zero? How far will it ever move?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `torch.where(condition, a, b)` chooses on the device. It may compute `0 / 0` on the way, as long as it does not
# choose it.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# For each `w` with a gradient: start from `local, decay = 1.0, 0.0`; if the trust ratio applies to `w`, set `decay
# = group["weight_decay"]` and `local = torch.where((w_norm > 0) & (g_norm > 0), trust * w_norm / (g_norm + decay *
# w_norm), 1.0)`. Keep the velocity as `self.state[w]["velocity"]`, and use `g.add(w, alpha=decay)`, not `add_`.
#
# </details>


# %% solution="LARS"
class LARS(torch.optim.Optimizer):
    """An optimizer with a learning rate of its own for each parameter tensor, after You et al. 2017, Algorithm 1.

    Args:
        params: parameters, or dictionaries of parameter groups with settings of their own.
        lr: global learning rate; read from `param_groups` at every step, so that schedules work.
        momentum, weight_decay: as in SGD, except that the velocity contains the learning rate (see the convention).
        trust: share of its own norm by which a layer moves at lr = 1.
        exclude_1d: if True, parameters with ndim <= 1 get neither trust ratio nor weight decay.
    """

    def __init__(self, params, lr, momentum=0.9, weight_decay=0.0, trust=0.001, exclude_1d=True):
        settings = dict(lr=lr, momentum=momentum, weight_decay=weight_decay, trust=trust, exclude_1d=exclude_1d)
        super().__init__(params, settings)

    @torch.no_grad()
    def step(self, closure=None):
        """Move every parameter that has a gradient; return the loss of `closure`, or None."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            ### BEGIN SOLUTION
            for w in group["params"]:
                if w.grad is None:
                    continue
                local, decay = 1.0, 0.0
                if w.ndim > 1 or not group["exclude_1d"]:
                    decay = group["weight_decay"]
                    w_norm, g_norm = w.norm(), w.grad.norm()
                    ratio = group["trust"] * w_norm / (g_norm + decay * w_norm)
                    local = torch.where((w_norm > 0) & (g_norm > 0), ratio, 1.0)  # on the device: no sync point
                state = self.state[w]
                if "velocity" not in state:
                    state["velocity"] = torch.zeros_like(w)
                update = w.grad.add(w, alpha=decay).mul_(group["lr"] * local)
                w.sub_(state["velocity"].mul_(group["momentum"]).add_(update))
            ### END SOLUTION
        return loss


# %% test="LARS-visible" points=3
check.LARS(LARS)

# %% test="LARS-hidden" points=3
### BEGIN HIDDEN TESTS
check.LARS(LARS, seed=9)
### END HIDDEN TESTS

# %% [markdown]
# Now 192 times the batch with LARS and warm-up. What HR@10 will it reach, beside the runs with the linear rule alone
# and with warm-up that you have seen in part 2?

# %%
predicted_lars_hit_rate = None  # your number: HR@10 at 192 times the batch with LARS and warm-up

# %% tags=["experiment"]
Lars = course.solved(check.LARS)


def warm_up_and_decay(lr):
    """Exponential warm-up to `lr` over one epoch, times a quadratic decay to zero at the end, as You et al. train."""
    return lambda step, n: exponential(step, n, lr, 1) * (1 - step / (sizes.epochs * n)) ** 2


def train_lars():
    """The History of a fresh model under LARS; biases get a trust ratio too: at these learning rates they need one."""
    model = experiment.fresh_model()
    optimizer = Lars(model.parameters(), lr=sizes.lars_lr, momentum=0.9, exclude_1d=False)
    return experiment.train(model, optimizer, batches[2], schedule=warm_up_and_decay(sizes.lars_lr))


warm_up = experiment.train_sgd(batches[2], lr_192, schedule=lambda step, n: exponential(step, n, lr_192, 1))
runs = {
    "1×": experiment.train_sgd(batches[0], sizes.base_lr),
    "192×, exponential, 1 epoch": warm_up,
    "192×, warm-up and decay": experiment.train_sgd(batches[2], lr_192, schedule=warm_up_and_decay(lr_192)),
    "192×, LARS": train_lars(),
}
for label, history in runs.items():
    print_run(label, history)
print(f"HR@10 with LARS {runs['192×, LARS'].hit_rate[-1]:.3f}" + reveal(predicted_lars_hit_rate))
gap = runs["1×"].hit_rate[-1] - runs["192×, LARS"].hit_rate[-1]
course.claim(
    "at 192 times the batch, LARS ends within 0.03 of the small batch's HR@10", gap < 0.03, f"lower by {gap:.3f}"
)
plots.accuracy(runs, "192 times the batch: LARS")

# %% tags=["experiment"]
ratios[f"LARS, learning rate {sizes.lars_lr:g}"] = update_ratios(lambda p: Lars(p, lr=sizes.lars_lr, exclude_1d=False))
plots.layer_ratios(ratios, "The first update: SGD and LARS")

# %% [markdown]
# In the second figure all marks of LARS are on one vertical line: every tensor moves by the same share of its own norm,
# learning rate times trust coefficient. (A tensor that starts at zero is not drawn.) In the first figure LARS leads
# after one epoch of eleven updates, in which the small batch has made almost two thousand (laptop scale): the
# embeddings are small at first and so are their gradients, which slows SGD and does not slow LARS.
#
# Two caveats. The learning rate of LARS does not follow from the linear rule; it is the best of 20, 40, 80, 120 and 192
# on the stand-in data. And part of the gain comes from the decay, which SGD can have as well: that is the third curve,
# with the best of the learning rates 12, 24, 48, 96 and 192. The difference between that curve and LARS is what
# layer-wise learning rates are worth here.
#
# Where it does not hold, the training is too short (at `smoke` it has 27 updates), or the learning rate of LARS, which
# was tuned on the stand-in, does not suit the data.

# %% [markdown]
# ## A bug in the wild
#
# **An optimizer can run, lower the loss, and still never train a part of the network: only an experiment aimed at
# that part shows it.**
#
# The workshop on which this unit is based lists a public implementation of LARS (reference 2). The class below behaves
# as that code did when this course was written, in our own lines. It has several faults. Find, show and fix two of
# them: one keeps parameters from moving, the other is in the schedule.


# %% locked="wild_lars"
def wild_decay(step, max_steps, lr):
    """The learning rate at `step`, as found in the wild."""
    return lr * (1 - step / max_steps) ** 2


class WildLARS(torch.optim.Optimizer):
    """LARS as found in the wild, with its schedule inside.  Do not use it."""

    def __init__(self, params, lr, momentum=0.9, weight_decay=0.0005, trust=0.001, max_epoch=200):
        super().__init__(params, dict(lr=lr, momentum=momentum, weight_decay=weight_decay, trust=trust))
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
# ### Exercise 2 · Show it
#
# A claim about a bug needs an experiment that anyone can run. Write one that says, for any optimizer class, whether a
# bias that starts at zero and always gets a gradient never moves. It must return True for `WildLARS` and False for your
# `LARS`.
#
# **Points** 3 · **Extra** · **Difficulty** ●●○ · **Minutes** 15 · **Lines** 6
#
# **Convention** The bias is a one-dimensional float32 parameter. It is made as `optimizer_class([bias], lr=...)` or as
# part of a model that you choose; no other setting is passed. Give the optimizer ten steps with a gradient that is not
# zero, because some begin slowly. Any change from zero counts as moving, however small. True means "it never moves".
#
# **Source** The fault was found by running noahgolmant/pytorch-lars on GitHub (reference 2) on a zero-initialised
# bias.
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
# ### Exercise 3 · Fix the schedule
#
# Draw `wild_decay(step, 5, 1.0)` for steps 0 to 15, or compute it at step 14. The counter that `WildLARS` calls an
# epoch goes up by one with every *step*, so any real training runs past the end of the schedule, and there the learning
# rate is wrong. Write the decay so that it is right everywhere.
#
# **Points** 2 · **Extra** · **Difficulty** ●○○ · **Minutes** 5 · **Lines** 1
#
# **Convention** `step` counts from 0 in optimizer steps: step 0 has the full learning rate `lr`, `max_steps` and every
# later step has exactly 0.0. In between the learning rate is `lr * (1 - step / max_steps) ** power`, with any `power >
# 0`, also 0.5 or 3. It must never rise.
#
# **Source** You, Gitman, Ginsburg 2017, arXiv:1708.03888, the experiments (polynomial decay with power 2); the
# fault is that of noahgolmant/pytorch-lars (reference 2).
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

# %% [markdown]
# ## The critical batch: where more stops helping
#
# **Up to some batch size, twice the batch halves the updates; far beyond it, twice the batch only doubles the work.**
#
# A small batch gives a noisy gradient, and averaging over more rows makes it more exact. Once the noise is small
# compared with the mean, more rows add little. Shallue et al. (arXiv:1811.03600) measured the number of updates to a
# fixed quality over many tasks and found the same three regions each time: perfect scaling, diminishing returns, a
# plateau. McCandlish et al. (arXiv:1812.06162) predict the bend from the ratio of the gradient's variance to its
# squared length, and observe that it grows during training. So "how large" has two answers: by *updates*, the bend; by
# *seconds*, the batch at which a step begins to take longer. The second depends on the machine. The first does not, but
# it does depend on the optimizer: here it is measured for SGD.
#
# The samples to the target are updates times batch size. What is the largest batch that needs less than twice the
# samples of the most economical one?

# %%
predicted_critical_batch = None  # your number: batch size at which doubling stops saving half of the updates

# %% tags=["experiment"]
sweep = [sizes.base_batch * k for k in (1, 4, 16, 64, 192)]
updates_to_target, seconds_to_target = [], []
for batch_size in sweep:
    best = None
    for share in (1, 0.5, 0.25):  # the rule's learning rate, a half and a quarter of it: the best counts
        lr = share * scaled_lr(sizes.base_lr, sizes.base_batch, batch_size)
        history = experiment.train_sgd(
            batch_size, lr, epochs=sizes.target_epochs, target=sizes.target, evaluate_every=0.5,
            schedule=lambda step, n, lr=lr: exponential(step, n, lr, 0.5),
        )  # fmt: skip
        if history.updates_to_target and (best is None or history.updates_to_target < best.updates_to_target):
            best = history
    updates_to_target.append(best and best.updates_to_target)
    seconds_to_target.append(best and best.seconds_to_target)
    reached = f"after {best.updates_to_target:>7,} updates {best.seconds_to_target:>7.2f} s" if best else "not reached"
    print(f"batch {batch_size:>9,}: HR@10 {sizes.target} {reached}")
work = {
    batch_size: batch_size * updates for batch_size, updates in zip(sweep, updates_to_target, strict=True) if updates
}
critical = max((batch_size for batch_size in work if work[batch_size] < 2 * min(work.values())), default=0)
print(f"largest batch with less than twice the fewest samples: {critical:,}" + reveal(predicted_critical_batch))
print(course.machine())
plots.critical_batch(sweep, updates_to_target, seconds_to_target)

# %% [markdown]
# Left: as long as the points follow the dashed line, a batch twice as large needs half the updates. The critical batch
# is where they leave it. A batch that never reaches the target has no point: there SGD has become unstable, which
# another optimizer need not be. Right: what this means in time. The seconds fall as long as the batch is below critical
# *and* a larger batch still has the higher throughput; after that more samples per batch save no time. The measurement
# is coarse, with three learning rates per batch and an evaluation every half epoch, so read the bend, not the third
# digit.

# %% [markdown]
# ## References
#
# 1. Y. You, I. Gitman, B. Ginsburg, Large Batch Training of Convolutional Networks, 2017.
#    [arXiv:1708.03888](https://arxiv.org/abs/1708.03888)
# 2. N. Golmant, pytorch-lars. [github.com/noahgolmant/pytorch-lars](https://github.com/noahgolmant/pytorch-lars)
# 3. C. J. Shallue et al., Measuring the Effects of Data Parallelism on Neural Network Training, JMLR 2019.
#    [arXiv:1811.03600](https://arxiv.org/abs/1811.03600)
# 4. S. McCandlish, J. Kaplan, D. Amodei et al., An Empirical Model of Large-Batch Training, 2018.
#    [arXiv:1812.06162](https://arxiv.org/abs/1812.06162)
