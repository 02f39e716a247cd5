# %% [markdown]
# # Large batches, part 3: A learning rate for every layer
#
# **What wins back the accuracy of a batch 192 times as large, and where does a larger batch stop helping?**
#
# In part 2 the linear rule and a warm-up were not enough at 192 times the batch. This part looks at single layers: LARS
# gives each its own learning rate. You write its update, measure what it wins back beside SGD and Adam, and find the
# faults of a published implementation. Then you predict the critical batch from the noise of the gradient, and test the
# prediction with three optimizers.
#
# **You will be able to**
#
# - measure how far one update moves each layer, and write the optimizer that makes this the same for all;
# - show by an experiment that an optimizer never trains a parameter, and mend its schedule;
# - predict the critical batch from gradient norms at two batch sizes;
# - tell the limit that the noise sets from the limit that the optimizer sets.
#
# **Minutes** 45 core · 65 in all
#
# **Needs** part 2 (its answers are taken over if you solved it)

# %% locked="setup"
import itertools
import math
import statistics

import torch

import course
from course.checks import large_batch as check
from course.learner.predictions import reveal
from course.plots import large_batch as plots
from course.training import recommender_loop
from course.training.recommender import CONSTANT_LOSS, Experiment, mlp_is_silent, print_run

print(course.machine())

# %% [markdown]
# ## LARS: a learning rate for every layer
#
# **Under SGD a layer moves as far as its gradient is long. Under LARS it moves by a fixed share of its own norm.**
#
# The linear rule and the warm-up of part 2 treat all parameters alike. Look at the **update-to-weight ratio** of a
# layer instead, $\alpha\,\lVert g\rVert / \lVert w\rVert$: the length of its step over its own length. With one
# $\alpha$ for all layers it varies as much as $\lVert g\rVert / \lVert w\rVert$ does. You, Gitman and Ginsburg found
# that $\lVert w\rVert / \lVert g\rVert$ differs more than a hundredfold between the layers of AlexNet after its first
# iteration (arXiv:1708.03888, section 4).
#
# **Predict**: by what factor do the largest and the smallest $\lVert g\rVert / \lVert w\rVert$ of NeuMF's weight
# matrices differ at the start of training?

# %%
predicted_ratio_spread = None  # your number: largest ||g|| / ||w|| of a weight matrix over the smallest

# %% [markdown]
# The next cell prepares the experiments as in part 2. `lr_192` is the learning rate of the linear rule for 192 times
# the batch. All runs are evaluated on each user's validation item; what is tuned is tuned on these.

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
lr_16, lr_192 = (scaled_lr(sizes.base_lr, batches[0], batch) for batch in batches[1:])
print(experiment)


# %% tags=["experiment"]
def update_ratios(make_optimizer, batch_size):
    """{parameter: norm of the first update / norm of the weights} on one batch, for parameters that are not 0."""
    model = experiment.fresh_model()
    optimizer = make_optimizer(model.parameters())
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    recommender_loop.training_step(model, *experiment.first_batch(batch_size), optimizer)
    moved = {name: (p.detach() - before[name]).norm() / before[name].norm() for name, p in model.named_parameters()}
    return {name: ratio.item() for name, ratio in moved.items() if 0 < ratio < math.inf}


def spread(of, words=""):
    """Largest over smallest of the ratios whose name contains `words`."""
    values = [ratio for name, ratio in of.items() if words in name]
    return max(values) / min(values)


ratios = {
    f"SGD, 16×, learning rate {lr_16:g}": update_ratios(lambda p: torch.optim.SGD(p, lr=lr_16), batches[1]),
    f"SGD, 192×, learning rate {lr_192:g}": update_ratios(lambda p: torch.optim.SGD(p, lr=lr_192), batches[2]),
}
at_16, at_192 = ratios.values()
print(f"largest over smallest at 192×: weights {spread(at_192, 'weight'):,.0f}" + reveal(predicted_ratio_spread))
print(f"                               weights and biases {spread(at_192):,.0f}")
longest = max(at_16, key=at_16.get)
course.claim("at 16 times the batch, where SGD still reaches its HR@10, the first update of some tensor is longer than "
             "the tensor itself", at_16[longest] > 1, f"{longest}: {at_16[longest]:.0f} times its norm",
             otherwise="The learning rate of the base batch is small.")  # fmt: skip
plots.layer_ratios(ratios)

# %% [markdown]
# Marks to the right of the dashed line are tensors whose first update is longer than they are. That alone is no
# catastrophe: SGD at 16 times the batch still reaches the HR@10 of the small batch, though with its MLP half off, as
# part 2 showed. What the figure adds is that one learning rate means very different steps, from about a thousandth of a
# tensor to many times its length.
#
# LARS (layer-wise adaptive rate scaling) multiplies the learning rate of each layer $l$ by a trust ratio $\lambda^l$,
# computed at every step from two norms. With trust coefficient $\eta$, weight decay $\beta$ and momentum $m$:
#
# $$\lambda^l = \eta\,\frac{\lVert w^l\rVert}{\lVert g^l\rVert + \beta\,\lVert w^l\rVert}, \qquad
# v^l \leftarrow m\,v^l + \alpha\,\lambda^l\,(g^l + \beta\,w^l), \qquad w^l \leftarrow w^l - v^l$$
#
# Without momentum and decay the update-to-weight ratio is $\alpha\,\eta$ in every layer. So the length of the gradient
# no longer counts, only its direction: one ten times too long does no harm, and one that shrinks does not slow the
# layer down; the schedule has to do that. Weight decay must be in the denominator too, else the update can be longer
# than $\alpha\,\eta\,\lVert w\rVert$. The authors train with polynomial decay and warm-up: LARS replaces neither.

# %% [markdown]
# ### Exercise 1 · LARS
#
# Write the update of one parameter `w`.
#
# **Must**
# - use the Euclidean norms of `w` and `w.grad`; where one is 0 the trust ratio is 1, and the weight decay still acts;
# - compute `v = momentum * v + lr * ratio * (g + weight_decay * w)`, then `w = w - v` (`torch.optim.SGD` has `lr` in
#   the second step);
# - with `group["exclude_1d"]`, move parameters of at most one dimension with ratio 1 and no weight decay;
# - read all settings from `group`; leave the gradient as it is; change `w` and `velocity` in place.
#
# **Points** 6 · **Core** · **Difficulty** ●●● · **Minutes** 20 · **Lines** 8
#
# **Source** You, Gitman, Ginsburg 2017, arXiv:1708.03888, Algorithm 1. The exception for 1-D parameters and
# the guard against zero norms came later.
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
    """An optimizer with a learning rate of its own for each parameter tensor, after You et al. 2017, Algorithm 1.

    Args:
        params: parameters, or dictionaries of parameter groups with settings of their own.
        lr: global learning rate; read from `param_groups` at every step, so that schedules work.
        momentum, weight_decay: as in SGD, except that the velocity contains the learning rate.
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
            ratio = torch.where((w_norm > 0) & (g_norm > 0), ratio, 1.0)  # on the device: no sync point
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


def lars(parameters, **settings):
    """LARS for this model: biases get a trust ratio too, because at its learning rates they need one."""
    return Lars(parameters, lr=sizes.lars_lr, exclude_1d=False, **settings)


ratios[f"LARS, 192×, learning rate {sizes.lars_lr:g}"] = of_lars = update_ratios(lars, batches[2])
course.claim("LARS moves every tensor that is not zero by the same share of its norm", spread(of_lars) < 1.01,
             f"largest over smallest {spread(of_lars):.3f}")  # fmt: skip
plots.layer_ratios(ratios, "The first update: SGD and LARS")

# %% [markdown]
# ## A bug in the wild
#
# **An optimizer can run, lower the loss, and still never train a part of the network: only an experiment aimed at
# that part shows it.**
#
# The workshop on which this unit is based lists a public implementation of LARS (reference 2). The class below behaves
# as that code did when this course was written, in our own lines. It has several faults. Two of them are yours: one
# keeps parameters from moving, the other is in the schedule, and the runs after it need that one mended.


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
# bias that starts at zero and always gets a gradient never moves.
#
# **Must**
# - make the optimizer as `optimizer_class([bias], lr=...)`, or with the parameters of a model of yours whose bias you
#   set to zero; pass no other setting;
# - use a one-dimensional float32 bias of zeros, and ten steps with a gradient that is not zero: some optimizers begin
#   slowly;
# - return True if the bias is still zero after the tenth step, else False.
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
# ### Exercise 3 · Fix the schedule
#
# Compute `wild_decay(step, 5, 1.0)` for steps 0 to 15. The counter that `WildLARS` calls an epoch goes up with every
# *step*, so a training runs past the end of the schedule, where the learning rate is wrong. Write the decay so that it
# is right everywhere. The next experiment trains with it.
#
# **Must** return `lr * (1 - step / max_steps) ** power` before `max_steps`, and exactly 0.0 from there on, for any
# `power > 0`, also 0.5 or 3.
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
print("as found in the wild" + " ".join(f"{wild_decay(step, 5, 1.0):5.2f}" for step in range(0, 11)))
print("mended              " + " ".join(f"{decay(step, 5, 1.0):5.2f}" for step in range(0, 11)))
optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
scheduler = torch.optim.lr_scheduler.PolynomialLR(optimizer, total_iters=5, power=2)
off = 0.0
for step in range(11):
    off = max(off, abs(optimizer.param_groups[0]["lr"] - decay(step, 5, 1.0)))
    optimizer.step()
    scheduler.step()
course.claim("the fixed decay equals torch.optim.lr_scheduler.PolynomialLR", off < 1e-6, f"at most {off:.0e} apart")

# %% [markdown]
# ## What wins back 192 times the batch
#
# **At 192 times the batch an epoch has about ten updates. What they achieve depends on the optimizer.**
#
# Five ways to train with 192 times the batch, beside SGD with 16 times, which part 2 found as good as the small batch:
# SGD with warm-up and decay; Adam with a constant learning rate and nothing else; LARS with warm-up and decay, without
# the decay, and with a weight decay of $10^{-4}$. Their learning rates (`course/device.py`) were tuned on validation
# items of the stand-in, with two seeds, on grids of factors of two; the run with weight decay has that of LARS without.
# Here a learning rate off by a factor of two can cost more than another optimizer wins, so a comparison without tuning
# says nothing.
#
# **Predict**: which HR@10 will the best of the five reach, if 16 times the batch reaches about 0.68 (laptop scale)?
# Part 2 has shown Adam; does LARS do better?

# %%
predicted_best_hit_rate = None  # your number: HR@10 of the best run at 192 times the batch
predicted_best_optimizer = None  # "SGD", "Adam" or "LARS"


# %% tags=["experiment"]
def warm_up(lr, decays=True):
    """Exponential warm-up to `lr` over one epoch, times a quadratic decay to zero at the end if `decays`."""
    return lambda step, n: exponential(step, n, lr, 1) * (decay(step, sizes.epochs * n, 1.0) if decays else 1.0)


ways = {  # label: (function that makes the optimizer, batch, schedule)
    "16×, SGD": (lambda p: torch.optim.SGD(p, lr=lr_16, momentum=0.9), batches[1], None),
    "192×, SGD, warm-up and decay": (
        lambda p: torch.optim.SGD(p, lr=1.0, momentum=0.9), batches[2], warm_up(sizes.sgd_lr_192)),
    "192×, Adam": (lambda p: torch.optim.Adam(p, lr=sizes.adam_lr[1]), batches[2], None),
    "192×, LARS": (lars, batches[2], warm_up(sizes.lars_lr)),
    "192×, LARS, constant": (lars, batches[2], warm_up(sizes.lars_lr_constant, decays=False)),
    "192×, LARS, weight decay": (lambda p: lars(p, weight_decay=1e-4), batches[2], warm_up(sizes.lars_lr)),
}  # fmt: skip
runs, models = {}, {}
for label, (make_optimizer, batch_size, schedule) in ways.items():
    models[label] = experiment.fresh_model()
    optimizer = make_optimizer(models[label].parameters())
    runs[label] = experiment.train(models[label], optimizer, batch_size, schedule=schedule)
    print_run(label, runs[label])
plots.accuracy(runs, "192 times the batch", popularity=experiment.popularity, constant=CONSTANT_LOSS)

# %% tags=["experiment"]
last = {label: history.hit_rate[-1] for label, history in runs.items()}  # NaN if it diverged
best = max((label for label in last if label != "16×, SGD" and last[label] >= 0), key=last.get)
print(
    f"best of the five: {best}, HR@10 {last[best]:.3f}"
    + reveal(predicted_best_hit_rate)
    + reveal(predicted_best_optimizer)
)
users, small = len(experiment.data.judged[0]), last["16×, SGD"]
print(f"standard error of one hit rate, from the number of users alone: {math.sqrt(small * (1 - small) / users):.3f}")
otherwise = (
    "The training is too short (smoke makes some twenty updates), or the learning rates, tuned on the synthetic data, "
    "do not suit yours."
)
for name in ("Adam", "LARS"):
    gap = small - last[f"192×, {name}"]
    course.claim(
        f"at 192 times the batch, {name} ends within 0.03 of SGD at 16 times",
        math.nan if math.isnan(gap) else gap < 0.03,
        f"{-gap:+.3f}",
        otherwise=otherwise,
    )
gap = small - last["192×, SGD, warm-up and decay"]
gap = math.inf if math.isnan(last["192×, SGD, warm-up and decay"]) else gap  # it diverged
course.claim(
    "at 192 times the batch, SGD with warm-up and decay ends more than 0.03 below SGD at 16 times",
    gap > 0.03,
    f"{-gap:+.3f}",
    otherwise=otherwise,
)
lost = last["192×, LARS"] - last["192×, LARS, weight decay"]
course.claim(
    "a weight decay of 1e-4 costs LARS more than 0.1 of HR@10 here",
    lost > 0.1,
    f"{lost:.3f} lower",
    otherwise=otherwise,
)
model = experiment.fresh_model()
recommender_loop.training_step(model, *experiment.first_batch(batches[2]), torch.optim.SGD(model.parameters(), lr=0.0))
pull = {name: 1e-4 * (p.norm() / p.grad.norm()).item() for name, p in model.named_parameters() if p.ndim > 1}
name = max(pull, key=pull.get)
print(f"weight decay over gradient in the first update, length by length: {name} {pull[name]:.2f}")
off = [label for label, model in models.items() if mlp_is_silent(experiment, model, sizes.sharpness_rows)]
print("the MLP half is off at the end of: " + (", ".join(off) or "no run"))
course.claim("Adam and LARS at 192 times the batch keep the MLP branch alive, which SGD at 16 times kills",
             "16×, SGD" in off and not {"192×, Adam", "192×, LARS"} & {*off}, otherwise=otherwise)  # fmt: skip
on_test = {label: experiment.test(models[label])[0] for label in ("16×, SGD", "192×, Adam", "192×, LARS")}
print("on the test items, looked at once: " + ", ".join(f"{label} {value:.3f}" for label, value in on_test.items()))

# %% [markdown]
# Look at the loss beside the accuracy. LARS needs few updates, and so does Adam, which divides every coordinate by its
# own scale and needs neither warm-up nor decay. In both, no single sharp direction dictates the learning rate of all
# others; part 2 showed which one does so under SGD. The line about the MLP half tells the runs apart where HR@10 does
# not: SGD at 16 times the batch gets its score from the product of embeddings alone.
#
# LARS never slows down by itself, because only the direction of the gradient counts. Without the decay it needs a
# learning rate eight times smaller to end well, and its loss stays higher. And it makes a weight decay that looks tiny
# strong: the step has a fixed length, and what counts is the share of the decay in its direction, which the line about
# weight decay shows.
#
# ## The critical batch, predicted
#
# **Noise in the gradient is what a larger batch removes. Once little noise is left, a larger batch saves no updates.**
#
# The gradient $g_B$ of a batch of $B$ samples is the true gradient $G$ plus noise, whose variance falls with $B$.
# With $S$ for the sum of the variances of one sample's gradient over all parameters, on average
#
# $$\lVert g_B \rVert^2 = \lVert G \rVert^2 + S / B .$$
#
# Signal and noise are equal at $B = S / \lVert G \rVert^2$. McCandlish et al. (arXiv:1812.06162) call this the simple
# **gradient noise scale**: simple, because it takes the curvature to be the same in all directions. They predict with
# it the *critical batch* $B_c$, in
#
# $$\text{updates to the target} = u_\infty\,(1 + B_c / B).$$
#
# Far below $B_c$ twice the batch halves the updates; at $B_c$ a run needs twice the fewest updates $u_\infty$ and twice
# the fewest samples; far above, updates stay at $u_\infty$.
#
# ### Exercise 4 · The gradient noise scale
#
# Two mean squared norms give two equations for $\lVert G \rVert^2$ and $S$. Solve them.
#
# **Must**
# - take the mean of the *squared* norms of each batch size first, then estimate $S$ and $\lVert G \rVert^2$ from the
#   two means, and divide one by the other at the end: a mean of ratios of noisy numbers is wrong;
# - return $S / \lVert G \rVert^2$ as a float, in samples;
# - return `math.inf` if the estimate of $\lVert G \rVert^2$ is 0 or less: then noise has drowned the signal.
#
# **You may assume** `small_batch < large_batch` and at least one norm of each.
#
# **Points** 3 · **Core** · **Difficulty** ●●○ · **Minutes** 10 · **Lines** 5
#
# **Source** McCandlish et al. 2018, arXiv:1812.06162, appendix A.1.
#
# <details><summary>Hint 1</summary>
#
# Subtract one equation from the other. What is left, and what is it multiplied by?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# With $a$ and $b$ for the mean squared norms at batch sizes $m < n$: $S = (a - b) / (1/m - 1/n)$, and
# $\lVert G \rVert^2 = (n b - m a) / (n - m)$.
#
# </details>


# %% solution="noise_scale"
def noise_scale(small_norms, large_norms, small_batch, large_batch):
    """The gradient noise scale, in samples.

    Args:
        small_norms: float tensor (n,), norms of gradients of n batches of `small_batch` samples each.
        large_norms: float tensor (m,), norms of gradients of m batches of `large_batch` samples each.

    Returns: a float; math.inf if the squared norm of the true gradient is estimated as 0 or less.
    """
    ### BEGIN SOLUTION
    small, large = small_norms.square().mean(), large_norms.square().mean()
    signal = (large_batch * large - small_batch * small) / (large_batch - small_batch)
    noise = (small - large) / (1 / small_batch - 1 / large_batch)
    return (noise / signal).item() if signal > 0 else math.inf
    ### END SOLUTION


# %% test="noise_scale-visible" points=2
check.noise_scale(noise_scale)

# %% test="noise_scale-hidden" points=1
### BEGIN HIDDEN TESTS
check.noise_scale(noise_scale, seed=17)
### END HIDDEN TESTS

# %% [markdown]
# **In which units?** SGD steps along the gradient itself. Adam divides each coordinate of it by $\sqrt v$, the root of
# its mean square: that is plain gradient descent on the weights $w\,v^{1/4}$, whose gradient is $g / v^{1/4}$. LARS
# multiplies the gradient of a layer by $\lVert w \rVert / \lVert g \rVert$. So the next cell takes every norm in the
# units of its optimizer, as $\sqrt{\sum u\,g^2}$ with $u = 1$, $1/\sqrt v$ or $\lVert w \rVert / \lVert g \rVert$.
# McCandlish et al. take $u = 1$ for all; the weights are our extension, and the experiment after it can refute them.
#
# **From one run to all batch sizes.** An update with batch $B$ makes $1 / (1 + \mathcal{B}/B)$ of the progress of one
# without noise, if $\mathcal{B}$ is the noise scale at that time (McCandlish et al., section 2.2). Summed over one run,
# this is its number of noise-free updates $u_\infty$, and the mean of $\mathcal{B}$ with these weights is $B_c$. So one
# run per optimizer predicts the whole curve. It has 16 times the batch and is measured twelve times on its way to the
# target.
#
# **Predict**: how large is Adam's critical batch, and how many times that of SGD?

# %%
predicted_critical_batch = None  # your number: Adam's, in samples
predicted_ratio = None  # your number: Adam's over SGD's

# %% [markdown]
# Learning rates suit one batch and one optimizer only. Those below were searched on the stand-in, on a grid of factors
# of two, with three seeds each, until both neighbours were worse. Chosen is the learning rate whose *slowest* seed
# needs the fewest updates to a validation HR@10 of 0.55; the second number is its median. The command is `course bench
# ncf critical`. Where no seed of SGD reached the target within 15 epochs, its learning rate is that of the batch
# before. No warm-up, no decay, momentum 0.9 for SGD and LARS. At other scales and on other data they may be far off.

# %% tags=["experiment"]
found = {  # optimizer: {times the base batch: (learning rate, updates to the target)}
    "SGD": {4: (16.0, 624), 16: (16.0, 420), 64: (16.0, 329), 192: (16.0, 329), 576: (16.0, 329)},
    "Adam": {4: (1 / 64, 240), 16: (1 / 32, 78), 64: (1 / 16, 31), 192: (1 / 16, 20), 576: (1 / 4, 13)},
    "LARS": {4: (8.0, 384), 16: (16.0, 119), 64: (16.0, 66), 192: (64.0, 25), 576: (64.0, 22)},
}
makers = {
    "SGD": lambda p, lr: torch.optim.SGD(p, lr=lr, momentum=0.9),
    "Adam": lambda p, lr: torch.optim.Adam(p, lr=lr, fused=True),
    "LARS": lambda p, lr: Lars(p, lr=lr, exclude_1d=False),
}
per_epoch = 5 * len(experiment.data.train_users)  # samples


def run_to_target(name, times, seed, step=None):
    """The History of one training until the target, evaluated about twenty times on the way."""
    lr, updates = found[name][times]
    batch = times * sizes.base_batch
    return experiment.train_fresh(
        lambda p: makers[name](p, lr), batch, seed, epochs=sizes.target_epochs, target=sizes.target,
        evaluate_every=max(1, updates // 20) * batch / per_epoch, step=step,
    )  # fmt: skip


# %% tags=["experiment"]
noise_scale_now = course.solved(check.noise_scale)


def fresh_gradients(model, optimizer, batch_size, n, seed):
    """Yield the gradients of `n` batches drawn anew, a list of tensors each; the model stays as it is."""
    generator = torch.Generator(experiment.data.device).manual_seed(seed)
    drawn = recommender_loop.epoch_batches(
        experiment.data, batch_size, experiment.sample_negatives, generator=generator
    )
    for users, items, labels in itertools.islice(drawn, n):
        optimizer.zero_grad()
        torch.nn.functional.binary_cross_entropy_with_logits(model(users, items), labels).backward()
        yield [p.grad.clone() for p in model.parameters()]
    optimizer.zero_grad()


def units(optimizer, parameters, gradients):
    """What the optimizer multiplies each parameter's gradient by, learning rate and momentum aside."""
    if isinstance(optimizer, torch.optim.SGD):
        return [torch.ones_like(p) for p in parameters]
    if isinstance(optimizer, torch.optim.Adam):
        beta, state = optimizer.defaults["betas"][1], optimizer.state
        return [1 / ((state[p]["exp_avg_sq"] / (1 - beta ** state[p]["step"])).sqrt() + 1e-8) for p in parameters]
    return [p.detach().norm() / g.norm() for p, g in zip(parameters, gradients, strict=True)]


def noise_scales_here(model, optimizer):
    """Two noise scales at the model's weights, in the optimizer's units; 0 where chance makes one negative.

    Returns: that of all parameters, and that of all but the output bias.
    """
    small, large = 2 * sizes.base_batch, 128 * sizes.base_batch
    of_large = list(fresh_gradients(model, optimizer, large, 4, seed=1))
    means = [torch.stack(gs).mean(0) for gs in zip(*of_large, strict=True)]
    weights = units(optimizer, list(model.parameters()), means)
    others = [place for place, (name, _) in enumerate(model.named_parameters()) if name != "output.bias"]

    def norms(gradients):
        squares = torch.stack([
            torch.stack([(u * g.square()).sum() for u, g in zip(weights, gs, strict=True)]) for gs in gradients
        ])  # fmt: skip
        return squares.sum(1).sqrt(), squares[:, others].sum(1).sqrt()

    pairs = zip(norms(fresh_gradients(model, optimizer, small, 30, seed=2)), norms(of_large), strict=True)
    return [max(0.0, noise_scale_now(*of_both, small, large)) for of_both in pairs]


def measured_run(name, times, seed):
    """(updates, noise scale, that without the output bias) on the way of one run to the target, and its updates."""
    every, seen = max(1, found[name][times][1] // 12), []

    def step(model, users, items, labels, optimizer):
        nonlocal done
        if done % every == every // 2 and done:  # Adam has no v before its first update
            seen.append((done, *noise_scales_here(model, optimizer)))
        done += 1
        return recommender_loop.training_step(model, users, items, labels, optimizer)

    done = 0
    return seen, run_to_target(name, times, seed, step).updates


scales, predicted, with_bias, without = {}, {}, {}, {}
for name in makers:
    measured = [measured_run(name, 16, seed) for seed in range(sizes.noise_seeds)]
    progress = [[1 / (1 + scale / batches[1]) for _, scale, _ in seen] for seen, _ in measured]
    fewest = statistics.mean(u * statistics.mean(own) for own, (_, u) in zip(progress, measured, strict=True))
    weighted = [(w, s) for own, (seen, _) in zip(progress, measured, strict=True)
                for w, (_, s, _) in zip(own, seen, strict=True) if w]  # fmt: skip
    critical = sum(w * s for w, s in weighted) / sum(w for w, _ in weighted) if weighted else math.nan
    scales[name], predicted[name] = [point[:2] for point in measured[0][0]], (fewest, critical)
    print(f"{name:<5}predicted: critical batch {critical:>7,.0f} samples, fewest updates {fewest:>6.1f}")
    with_bias[name], without[name] = (statistics.median(point[k] for seen, _ in measured for point in seen)
                                      for k in (1, 2))  # fmt: skip
    print(
        f"     median noise scale on the way {with_bias[name]:>9,.0f}, without the output bias {without[name]:>9,.0f}"
    )
course.claim("without the output bias, the noise scale of SGD is more than ten times as large",
             without["SGD"] > 10 * with_bias["SGD"],
             f"{without['SGD']:,.0f} against {with_bias['SGD']:,.0f}")  # fmt: skip
plots.noise_scales(scales, {name: critical for name, (_, critical) in predicted.items()})

# %% [markdown]
# The noise scale tends to grow on the way, with ups and downs, here about fivefold for Adam and more than tenfold for
# LARS and SGD: the better the model, the smaller its gradient against the noise of single samples. (Points are missing
# where the estimate is 0 or less.) So a batch that is too large at the start can be right later, which is the idea
# behind *growing the batch* during training instead of lowering the learning rate (Smith et al., arXiv:1711.00489).
#
# SGD's is small for a reason of its own. Near the limit of part 2 the output bias swings from update to update, and
# this one coordinate makes up nearly all of $\lVert G \rVert^2$. The gradients of all others are as noisy as under
# Adam, or noisier: compare the last number of each line.
#
# ## The critical batch, tested
#
# **A larger batch stops saving updates where little noise is left to remove, or where the optimizer can take no longer
# step.**
#
# Shallue et al. (arXiv:1811.03600) measured updates to a fixed quality against batch size and found the same three
# regions everywhere: perfect scaling, diminishing returns, a plateau. Now the same here: three optimizers, five batch
# sizes, several seeds. The curves are the predictions, from runs at 16 times the batch alone; no point below was used
# for them except that one. In the lists below, `inf` stands for a target that was not reached.

# %% tags=["experiment"]
results = {}
for name in makers:
    results[name] = {}
    for times in sizes.critical_times:
        batch = times * sizes.base_batch
        reached = results[name][batch] = []
        for seed in range(sizes.critical_seeds):
            reached.append(run_to_target(name, times, seed).updates_to_target or math.inf)
            if reached == [math.inf]:
                break  # the first seed did not reach the target within the most epochs: do not wait for the others
        print(f"{name:<5}batch {batch:>7,}, learning rate {found[name][times][0]:<9g}: updates {reached}")
plots.updates_against_batch(results, predicted)


# %% tags=["experiment"]
def fitted(runs):
    """(fewest updates, critical batch) of updates = fewest * (1 + critical / batch) through the medians that exist."""
    points = [(batch, statistics.median(own)) for batch, own in runs.items() if statistics.median(own) < math.inf]
    best = (math.inf, math.nan, math.nan)
    for critical in torch.logspace(1, 7, 601, base=10).tolist():
        logs = [math.log(u / (1 + critical / batch)) for batch, u in points]
        if len(logs) > 2:
            best = min(best, (statistics.pvariance(logs), math.exp(statistics.mean(logs)), critical))
    return best[1:]


measured = {name: fitted(runs) for name, runs in results.items()}
for name, (fewest, critical) in measured.items():
    print(f"{name:<5}measured: critical batch {critical:>7,.0f}, fewest updates {fewest:>6.1f};   "
          f"predicted: {predicted[name][1]:>7,.0f} and {predicted[name][0]:>6.1f}")  # fmt: skip
ratio = measured["Adam"][1] / measured["SGD"][1]
print(f"Adam's over SGD's: {ratio:.1f}" + reveal(predicted_ratio) + reveal(predicted_critical_batch))
off = {name: max(measured[name][1] / predicted[name][1], predicted[name][1] / measured[name][1]) for name in makers
       if predicted[name][1] > 0 and measured[name][1] > 0}  # fmt: skip
for name in makers:
    course.claim(f"the critical batch of {name} is predicted within a factor of two",
                 off[name] < 2 if name in off else math.nan, f"{off.get(name, math.nan):.1f} times off",
                 otherwise="One cause, not tested here: LARS measures in units of the gradient's norm, which noise "
                           "makes longer at small batches. Smoke has too few updates for a verdict, and other data "
                           "need other learning rates.")  # fmt: skip
course.claim("at its best SGD needs more than five times the updates of Adam",
             measured["SGD"][0] > 5 * measured["Adam"][0],
             f"{measured['SGD'][0]:.0f} against {measured['Adam'][0]:.0f}")  # fmt: skip
last = {name: statistics.median(results[name][batches[2]]) for name in makers}
course.claim(f"within {sizes.target_epochs} epochs of 192 times the batch Adam and LARS reach the target, SGD does not",
             last["SGD"] == math.inf and max(last["Adam"], last["LARS"]) < math.inf,
             "updates: " + ", ".join(f"{name} {updates:g}" for name, updates in last.items()))  # fmt: skip
longer = experiment.train_fresh(lambda p: makers["SGD"](p, found["SGD"][192][0]), batches[2], epochs=40,
                                target=sizes.target, evaluate_every=0.5)  # fmt: skip
needed, (fewest, critical) = longer.updates_to_target or math.inf, predicted["SGD"]
curve = fewest * (1 + critical / batches[2])
course.claim("with 40 epochs SGD reaches the target, too, and its updates are within a quarter of the predicted "
             "curve",
             0.8 < needed / curve < 1.25 if curve > 0 else math.nan, f"{needed} against {curve:.0f}")  # fmt: skip

# %% [markdown]
# Read two things off the figure. *How low a curve ends* is the limit of the optimizer. *Where it bends* is where noise
# no longer limits the learning rate. Adam's bends near 20,000 samples (laptop scale): from 4 to 64 times the batch,
# the best learning rate grows fourfold and the updates fall to about an eighth; beyond, they fall more slowly. SGD's
# bends near a thousand, and the table says why: its best learning rate is 16 from 4 times the batch on. It would be
# wrong to conclude that SGD's gradients have no noise left: without the output bias they are nearly all noise.
#
# Is the output bias the reason, then, as in part 2? If so, SGD must be able to use a larger learning rate once this one
# number is held back. Two runs at 64 times the batch, with four times SGD's best learning rate and a ramp over one
# epoch; in the second the output bias alone has the learning rate of the small batch.


# %% tags=["experiment"]
def updates_at_four_times_the_lr(holds_bias, seed):
    """Updates to the target of SGD at 64 times the batch with four times its best learning rate, or infinity."""
    best, updates = found["SGD"][64]
    lr, batch, model = 4 * best, 64 * sizes.base_batch, experiment.fresh_model(seed=seed)
    if holds_bias:
        model.output.bias.register_hook(lambda gradient: gradient * sizes.base_lr / lr)
    history = experiment.train(
        model, makers["SGD"](model.parameters(), lr), batch, sizes.target_epochs, seed=seed, target=sizes.target,
        schedule=lambda step, n: exponential(step, n, lr, 1), evaluate_every=updates // 20 * batch / per_epoch,
    )  # fmt: skip
    return history.updates_to_target or math.inf


large_lr, fewest = {}, measured["SGD"][0]
for label, holds in (("all alike", False), ("output bias held back", True)):
    large_lr[label] = [updates_at_four_times_the_lr(holds, seed) for seed in range(sizes.critical_seeds)]
    print(f"64×, four times the best learning rate of SGD, {label}: updates {large_lr[label]}")
free, held = (statistics.median(own) for own in large_lr.values())
course.claim("with its output bias held back, SGD can use four times its best learning rate, and needs fewer updates "
             "than its own curve allows at any batch", math.nan if math.isnan(fewest) else held < min(fewest, free),
             f"{held:g} against {fewest:.0f}",
             otherwise="The next direction behind the bias is as sharp, or the ramp alone takes more updates than the "
                       "target needs.")  # fmt: skip

# %% [markdown]
# So a large batch that fails under SGD says nothing about the batch. It says that SGD cannot use it, because one
# learning rate must suit the sharpest direction. Optimizers that rescale directions can: Zhang et al.
# (arXiv:1907.04164) report much larger critical batches for Adam than for SGD with momentum, in experiments and on a
# noisy quadratic.
#
# The best learning rates also refute a linear rule for Adam: from 4 to 64 times the batch, 16 times as many samples,
# they grow fourfold, as the square root.
#
# Two relatives that this unit does not measure: LAMB (You et al., arXiv:1904.00962) puts the trust ratio on Adam's
# update, which joins the units of both; local SGD (Lin et al., arXiv:1808.07217) lets each worker make several updates
# between two exchanges, which saves communication, not updates.

# %% [markdown]
# ## References
#
# 1. Y. You, I. Gitman, B. Ginsburg, Large Batch Training of Convolutional Networks, 2017.
#    [arXiv:1708.03888](https://arxiv.org/abs/1708.03888)
# 2. N. Golmant, pytorch-lars. [github.com/noahgolmant/pytorch-lars](https://github.com/noahgolmant/pytorch-lars)
# 3. S. McCandlish, J. Kaplan, D. Amodei et al., An Empirical Model of Large-Batch Training, 2018.
#    [arXiv:1812.06162](https://arxiv.org/abs/1812.06162)
# 4. C. J. Shallue et al., Measuring the Effects of Data Parallelism on Neural Network Training, JMLR 2019.
#    [arXiv:1811.03600](https://arxiv.org/abs/1811.03600)
# 5. S. L. Smith, P.-J. Kindermans, C. Ying, Q. V. Le, Don't Decay the Learning Rate, Increase the Batch Size,
#    ICLR 2018. [arXiv:1711.00489](https://arxiv.org/abs/1711.00489)
# 6. Y. You et al., Large Batch Optimization for Deep Learning: Training BERT in 76 minutes, ICLR 2020.
#    [arXiv:1904.00962](https://arxiv.org/abs/1904.00962)
# 7. T. Lin, S. U. Stich, K. K. Patel, M. Jaggi, Don't Use Large Mini-Batches, Use Local SGD, ICLR 2020.
#    [arXiv:1808.07217](https://arxiv.org/abs/1808.07217)
# 8. G. Zhang et al., Which Algorithmic Choices Matter at Which Batch Sizes? Insights From a Noisy Quadratic Model,
#    NeurIPS 2019. [arXiv:1907.04164](https://arxiv.org/abs/1907.04164)
