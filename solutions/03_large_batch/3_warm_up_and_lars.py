# %% [markdown]
# # Large batches, part 3: A learning rate for every layer
#
# **Why does Adam work at 192 times the batch, and what can SGD learn from it?**
#
# In part 2 the linear rule failed at 192 times the batch, even with a warm-up, and Adam did not. You take Adam apart to
# find out which of its pieces matters. You build the same idea into SGD, which gives LARS. Then you test today's recipe
# ingredient by ingredient, and predict from the noise of the gradient where a larger batch stops helping.
#
# **You will be able to**
#
# - say why Adam tolerates a large batch, from an experiment that changes one thing;
# - write an optimizer that moves every layer by the same share of its norm;
# - show that an optimizer never trains a parameter, and fix its schedule;
# - choose a learning rate and a schedule for AdamW, and say what each ingredient is worth;
# - predict the critical batch from gradient norms at two batch sizes.
#
# **Minutes** 59 core · 80 in all · session 2
#
# **Needs** part 2 (its answers are used if you solved it)

# %% locked="setup"
import statistics

import torch

import course
from course.checks import large_batch as check
from course.learner.predictions import reveal
from course.plots import large_batch as plots
from course.training import recommender_loop
from course.training.recommender import Experiment, print_run

print(course.machine())

# %% [markdown]
# ## Why does Adam work where SGD fails?
#
# Adam does two things that plain SGD does not: it averages the gradient over the last updates, as momentum does, and it
# divides each coordinate of the gradient by $\sqrt v$, the root of its mean square. So every coordinate moves by about
# the learning rate, whatever the size of its gradient.
#
# Is that the reason? `Scaled` below is Adam, with one choice: how many coordinates share a scale. With `"coordinate"`
# it is Adam itself. With `"tensor"` all weights of a table or layer share one $v$. With `"model"` the whole network
# shares one, as under SGD, where one learning rate has to suit all. Nothing else changes, and the learning rate stays
# Adam's.
#
# **Predict** the HR@10 of the last two, if Adam itself reaches about 0.7.

# %%
predicted_per_tensor = None  # your number: HR@10 with one scale per tensor
predicted_per_model = None  # your number: HR@10 with one scale for the model

# %% tags=["experiment"]
sizes = course.sizes("03_large_batch")
experiment = Experiment(sizes)
scaled_lr, ramp = course.solved(check.scaled_lr), course.solved(check.exponential_warmup)
batches = experiment.batches
print(experiment)


class Scaled(torch.optim.Optimizer):
    """Adam whose scale is shared: by nobody ("coordinate"), within a tensor ("tensor") or by all weights ("model")."""

    def __init__(self, params, lr, shared, betas=(0.9, 0.999)):
        super().__init__(params, dict(lr=lr))
        self.shared, self.betas, self.steps = shared, betas, 0

    @torch.no_grad()
    def step(self):
        self.steps += 1
        params = self.param_groups[0]["params"]
        squares = [p.grad.square() for p in params]
        if self.shared == "tensor":
            squares = [square.mean() for square in squares]
        elif self.shared == "model":
            squares = [torch.cat([square.flatten() for square in squares]).mean()] * len(params)
        for p, square in zip(params, squares, strict=True):
            state = self.state[p]
            if not state:
                state["m"], state["v"] = torch.zeros_like(p), torch.zeros_like(square)
            m, v = state["m"].lerp_(p.grad, 1 - self.betas[0]), state["v"].lerp_(square, 1 - self.betas[1])
            unbiased = [mean / (1 - beta**self.steps) for mean, beta in zip((m, v), self.betas, strict=True)]
            p.sub_(self.param_groups[0]["lr"] * unbiased[0] / (unbiased[1].sqrt() + 1e-8))


def each_seed(label, make_optimizer, schedule=None, step=None):
    """The Histories of runs at 192 times the batch that differ in the seed alone, printed."""
    histories = []
    for seed in range(sizes.seeds):
        histories.append(experiment.train_fresh(make_optimizer, batches[2], seed, schedule=schedule, step=step))
        print_run(label, histories[-1])
    return histories


def final(histories):
    """The last HR@10 of each run, 0 for one that diverged."""
    return [0.0 if history.diverged else history.hit_rate[-1] for history in histories]


def said(histories):
    """The last HR@10 of all seeds as text."""
    return ", ".join(f"{value:.3f}" for value in final(histories))


lr = sizes.adam_lr[1]
shared = {
    name: each_seed(f"one scale per {name}", lambda p, name=name: Scaled(p, lr, name))
    for name in ("coordinate", "tensor", "model")
}
adam = experiment.train_fresh(lambda p: torch.optim.Adam(p, lr=lr), batches[2], 0)
print_run("torch.optim.Adam", adam)

# %% tags=["experiment"]
_, tensor, model = (statistics.mean(final(histories)) for histories in shared.values())
print(f"one scale per tensor {tensor:.3f}" + reveal(predicted_per_tensor), end="; ")
print(f"one for the model {model:.3f}" + reveal(predicted_per_model))
otherwise = "The training is too short, or your data suits another learning rate."
course.claim("with a scale per coordinate, the class is torch's Adam within 0.03 of HR@10 (seed 0)",
             abs(final(shared["coordinate"])[0] - adam.hit_rate[-1]) < 0.03,
             f"{final(shared['coordinate'])[0] - adam.hit_rate[-1]:+.3f}",
             otherwise=otherwise)  # fmt: skip
course.claim("with one scale for the whole model, no seed ranks better than popularity",
             max(final(shared["model"])) < experiment.popularity, said(shared["model"]),
             otherwise=otherwise)  # fmt: skip
course.claim("with one scale per tensor, every seed ranks better than popularity",
             min(final(shared["tensor"])) > experiment.popularity, said(shared["tensor"]),
             otherwise=otherwise)  # fmt: skip
plots.recipes({f"one scale per {name}": histories for name, histories in shared.items()}, experiment.popularity,
              f"HR@10 {tensor:.2f} with one scale per tensor, {model:.2f} with one for the model")  # fmt: skip

# %% [markdown]
# **Takeaway** Adam's separate scales matter: with one for the whole model, the same optimizer at the same learning rate
# stays at HR@10 0.10.
#
# One scale per tensor already reaches 0.64, one per coordinate 0.69. So most of the gain needs only a learning rate for
# every layer, and SGD can have that, too. (The learning rate was tuned for Adam, not for the shared scales.)

# %% [markdown]
# ## How different are the layers?
#
# Look at the **update-to-weight ratio** of a tensor: the norm of its update over its own norm. Under SGD it is
# $\alpha\,\lVert g\rVert / \lVert w\rVert$. The authors of LARS found that $\lVert w\rVert / \lVert g\rVert$ differs
# more than a hundredfold between the layers of AlexNet (arXiv:1708.03888, section 4).
#
# LARS (layer-wise adaptive rate scaling) makes this ratio the same everywhere. It multiplies the learning rate of each
# layer $l$ by a trust ratio $\lambda^l$. With trust coefficient $\eta$, weight decay $\beta$ and momentum $m$:
#
# $$\lambda^l = \eta\,\frac{\lVert w^l\rVert}{\lVert g^l\rVert + \beta\,\lVert w^l\rVert}, \qquad
# v^l \leftarrow m\,v^l + \alpha\,\lambda^l\,(g^l + \beta\,w^l), \qquad w^l \leftarrow w^l - v^l$$
#
# Without momentum and decay a layer moves by $\alpha\,\eta$ of its own norm. Where a norm is 0 the trust ratio is 1,
# and the decay still acts.

# %% [markdown]
# ### Exercise 1 · LARS
#
# Write the update of one parameter `w`.
#
# **Must**
# - use the Euclidean norms of `w` and `w.grad` for the trust ratio, and 1 where one of them is 0;
# - with `group["exclude_1d"]`, move parameters of at most one dimension with ratio 1 and no weight decay;
# - change `w` and `velocity` in place (not the gradient), with all settings read from `group`.
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

# %% [markdown]
# **Predict**: at the first update, by what factor do the largest and the smallest update-to-weight ratio of NeuMF's
# weight matrices differ under SGD?

# %%
predicted_ratio_spread = None  # your number: largest update / weight ratio of a weight matrix over the smallest

# %% tags=["experiment"]
Lars = course.solved(check.LARS)


def update_ratios(make_optimizer):
    """{parameter: norm of the first update / norm of the weights} at 192 times the batch."""
    model = experiment.fresh_model()
    optimizer = make_optimizer(model.parameters())
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    recommender_loop.training_step(model, *experiment.first_batch(batches[2]), optimizer)
    moved = {name: (p.detach() - before[name]).norm() / before[name].norm() for name, p in model.named_parameters()}
    return {name: ratio.item() for name, ratio in moved.items()}


def spread(of, words=""):
    """Largest over smallest of the ratios whose name contains `words`."""
    values = [ratio for name, ratio in of.items() if words in name]
    return max(values) / min(values)


def lars(parameters):
    """The learner's LARS, with a trust ratio for biases too, which the large learning rates here need."""
    return Lars(parameters, lr=sizes.lars_lr, exclude_1d=False)


lr_192 = scaled_lr(sizes.base_lr, batches[0], batches[2])
ratios = {
    f"SGD, learning rate {lr_192:g}": update_ratios(lambda p: torch.optim.SGD(p, lr=lr_192)),
    f"Adam, learning rate {lr:g}": update_ratios(lambda p: torch.optim.Adam(p, lr=lr)),
    f"LARS, learning rate {sizes.lars_lr:g}": update_ratios(lars),
}
of_sgd, of_adam, of_lars = ratios.values()
print(f"largest over smallest, weight matrices: SGD {spread(of_sgd, 'weight'):,.0f}" + reveal(predicted_ratio_spread)
      + f"; Adam {spread(of_adam, 'weight'):.1f}; LARS {spread(of_lars, 'weight'):.3f}")  # fmt: skip
course.claim("under SGD the update-to-weight ratios of the weight matrices differ more than a hundredfold",
             spread(of_sgd, "weight") > 100, f"{spread(of_sgd, 'weight'):,.0f} times")  # fmt: skip
course.claim("under Adam they differ at least ten times less",
             spread(of_adam, "weight") < spread(of_sgd, "weight") / 10,
             f"{spread(of_adam, 'weight'):.0f} times")  # fmt: skip
course.claim("LARS moves every tensor by the same share of its norm", spread(of_lars) < 1.01,
             f"largest over smallest {spread(of_lars):.3f}")  # fmt: skip
plots.layer_ratios(ratios, f"The first update: SGD's ratios differ {spread(of_sgd, 'weight'):,.0f}-fold")

# %% [markdown]
# **Takeaway** One learning rate means very different steps: SGD's first ratios differ 362-fold between weight matrices,
# Adam's 3-fold, and LARS makes them equal.

# %% [markdown]
# ## Would you notice a parameter that never trains? · extra
#
# A public implementation of LARS (reference 2) had two faults. One keeps parameters from moving, the other is in the
# schedule. The class below has both.


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
# Write an experiment that says, for any optimizer class, whether a bias that starts at zero and always gets a gradient
# never moves.
#
# **Must**
# - make the optimizer as `optimizer_class([bias], lr=...)` with a one-dimensional float32 bias of zeros;
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
# ### Exercise 3 · Fix the schedule
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
print("as found in the wild" + " ".join(f"{wild_decay(step, 5, 1.0):5.2f}" for step in range(0, 11)))
print("fixed               " + " ".join(f"{decay(step, 5, 1.0):5.2f}" for step in range(0, 11)))
optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
scheduler = torch.optim.lr_scheduler.PolynomialLR(optimizer, total_iters=5, power=2)
off = 0.0
for step in range(11):
    off = max(off, abs(optimizer.param_groups[0]["lr"] - decay(step, 5, 1.0)))
    optimizer.step()
    scheduler.step()
course.claim("the fixed decay equals torch.optim.lr_scheduler.PolynomialLR", off < 1e-6, f"at most {off:.0e} apart")

# %% [markdown]
# **Takeaway** Under the public code a bias that starts at zero never moves, and the learning rate climbs back to its
# start after the end of the schedule.

# %% [markdown]
# ## References
#
# 1. Y. You, I. Gitman, B. Ginsburg, Large Batch Training of Convolutional Networks, 2017.
#    [arXiv:1708.03888](https://arxiv.org/abs/1708.03888)
# 2. N. Golmant, pytorch-lars. [github.com/noahgolmant/pytorch-lars](https://github.com/noahgolmant/pytorch-lars)
# 3. S. McCandlish, J. Kaplan, D. Amodei et al., An Empirical Model of Large-Batch Training, 2018.
#    [arXiv:1812.06162](https://arxiv.org/abs/1812.06162)
