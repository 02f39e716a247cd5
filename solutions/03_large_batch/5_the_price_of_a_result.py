# %% [markdown]
# # Large batches, part 5: The price of a result
#
# **Which batch size reaches your target first?**
#
# You pay for the time to a target: seconds per update, times updates. At which batch size is this product smallest? To
# predict it, you need what an update costs, and the gradient noise scale of your training. You write the lines that
# measure it.
#
# **You will be able to**
#
# - measure the gradient noise scale of a training that accumulates micro-batches;
# - predict how many updates, samples and seconds a batch size needs to a target;
# - say which batch is fastest on your machine, and which one needs the fewest samples.
#
# **Minutes** 40 core · 67 in all · session 2
#
# **Needs** part 4

# %% locked="setup"
import math
import statistics

import torch

import course
from course.checks import large_batch as check
from course.checkup import predict
from course.checkup.schedule import COUNTED_STEPS
from course.measure.comparison import difference_interval, furthest, ratio_interval
from course.measure.gradient_noise import gradient_norm
from course.plots import large_batch as plots
from course.training import recommender_loop, time_to_target
from course.training.adamw_recipe import RECIPE, train_recipe
from course.training.recommender import Experiment, listed

print(course.machine())
sizes = course.sizes("03_large_batch")
experiment = Experiment(sizes)
batches = experiment.batches
print(experiment)

# %% [markdown]
# ## Where does a larger batch stop helping?
#
# Twice the batch can halve the updates, or change nothing. The noise of the gradient lets you estimate which. The
# gradient $g_B$ of a batch of $B$ samples is the true gradient $G$ plus noise that falls with $B$. On average
#
# $$\lVert g_B \rVert^2 = \lVert G \rVert^2 + S / B .$$
#
# Here $S$ is the noise of one sample: the sum of the variances of its gradient over all parameters. Signal and noise
# are equal at $B = S / \lVert G \rVert^2$. This batch size is the **gradient noise scale**. McCandlish et al. (2018,
# reference 1) take it as an estimate of the *critical batch* $B_c$ in
#
# $$\text{updates to the target} = u\,(1 + B_c / B).$$
#
# Here $u$ is the fewest updates that any batch needs. By this formula, twice the batch nearly halves the updates far
# below $B_c$. Far above $B_c$, a larger batch saves nearly nothing.

# %% [markdown]
# ### Exercise 1 · The gradient noise scale
#
# The mean squared norms at two batch sizes give two equations for $\lVert G \rVert^2$ and $S$. Solve them.
# `small_batch < large_batch`.
#
# **Must**
# - estimate $S$ and $\lVert G \rVert^2$ from the means of the *squared* norms of each batch size;
# - return $S / \lVert G \rVert^2$ as a float, in samples;
# - return `math.inf` if the estimate of $\lVert G \rVert^2$ is 0 or less: then noise has drowned the signal.
#
# ```python
# >>> noise_scale(torch.tensor([3.0]), torch.tensor([2.0]), small_batch=1, large_batch=6)
# 2.0
# ```
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
# ## Can you measure it while you train?
#
# The formula needs norms at two batch sizes, and a training in micro-batches has both. Each `backward()` adds to
# `grad`. So after the first of an update, `grad` belongs to one micro-batch, and after the last, to the whole batch.
#
# Take the norms in the units in which your optimizer moves. Adam divides each coordinate by $\sqrt{v}$, the root of
# its mean square. So for Adam you measure $\sqrt{\sum g^2 / (\sqrt{v} + \epsilon)}$, with
# $v$ = `exp_avg_sq` / $(1 - \beta_2^t)$.
#
# <details><summary>Why the root of v, and not v?</summary>
#
# Without momentum and with a constant $v$, Adam's step is plain gradient descent on rescaled weights, $w\,v^{1/4}$,
# whose gradient is $g / v^{1/4}$. Reference 1 takes the plain norm, and this is our extension of it.
#
# </details>

# %% [markdown]
# ### Exercise 2 · Noise meter
#
# Write a callback that you can take to other trainings. The training calls it after each `backward()`. Each update
# consists of `pieces` micro-batches of equal size. The loss of each is divided by the rows of the whole batch, as in
# part 4.
#
# **Must**
# - `norm()` returns the norm of all gradients, over all groups (skip parameters without one), in Adam's units where
#   `optimizer.state[p]` has an `exp_avg_sq` (`betas` and `eps` are in the group, `step` in the state);
# - `after_backward()` notes two norms per update: after the first piece, that of the piece's own mean gradient, and
#   after the last, that of the batch's;
# - both are appended to `small` and `large` when the update is complete, and not before.
#
# ```python
# >>> w = torch.nn.Parameter(torch.zeros(2))
# >>> meter = NoiseMeter(torch.optim.SGD([w], lr=0.1), pieces=2)
# >>> w.grad = torch.tensor([1.0, 0.0])
# >>> meter.after_backward()
# >>> w.grad = torch.tensor([3.0, 4.0])
# >>> meter.after_backward()
# >>> meter.small, meter.large
# ([tensor(2.)], [tensor(5.)])
# ```
#
# **Points** 5 · **Core** · **Difficulty** ●●○ · **Minutes** 14 · **Lines** 16
#
# **Source** McCandlish et al. 2018, arXiv:1812.06162, appendix A.1.
#
# <details><summary>Hint 1</summary>
#
# The loss of a piece is divided by the rows of the whole batch. By how much is `grad` after the first piece too short
# to be the gradient of that piece's mean loss?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Count the calls. At the first of an update, keep `self.pieces * self.norm()`. At the last, append both and start to
# count again.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# For a parameter with state: `v = state["exp_avg_sq"] / (1 - group["betas"][1] ** state["step"])`, then
# `(p.grad.square() / (v.sqrt() + group["eps"])).sum()`. Add these sums, and take the root at the end.
#
# </details>


# %% solution="NoiseMeter"
class NoiseMeter:
    """Collects the gradient norms of a training in micro-batches, from which its noise scale is computed.

    Args:
        optimizer: whose parameters are trained; Adam, or one without a mean square, such as SGD.
        pieces: micro-batches per update, at least 1.

    Attributes:
        small: norms of the mean gradient of one micro-batch, a float32 tensor of shape () per update.
        large: norms of the gradient of the whole batch, as many.
    """

    def __init__(self, optimizer, pieces):
        self.optimizer = optimizer
        self.pieces = pieces
        self.small = []
        self.large = []
        self.seen = 0  # backward passes of this update

    @torch.no_grad()
    def norm(self):
        """The norm of the gradients in the optimizer's units, a tensor of shape ()."""
        ### BEGIN SOLUTION
        squares = []
        for group in self.optimizer.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                square, state = p.grad.square(), self.optimizer.state[p]
                if "exp_avg_sq" in state:
                    v = state["exp_avg_sq"] / (1 - group["betas"][1] ** state["step"])
                    square = square / (v.sqrt() + group["eps"])
                squares.append(square.sum())
        return torch.stack(squares).sum().sqrt()
        ### END SOLUTION

    def after_backward(self):
        """Call this after the backward pass of each micro-batch."""
        ### BEGIN SOLUTION
        self.seen += 1
        if self.seen == 1:
            self.first = self.pieces * self.norm()
        if self.seen == self.pieces:
            self.small.append(self.first)
            self.large.append(self.norm())
            self.seen = 0
        ### END SOLUTION


# %% test="NoiseMeter-visible" points=3
check.NoiseMeter(NoiseMeter)

# %% test="NoiseMeter-hidden" points=2
### BEGIN HIDDEN TESTS
check.NoiseMeter(NoiseMeter, seed=11)
### END HIDDEN TESTS

# %% [markdown]
# The cell trains with Adam at 16 times the batch, in four pieces, until HR@10 reaches the target. Two meters watch:
# yours, and one with plain norms. **Do the units matter?** The next section tests which of the two predicts better.

# %% tags=["experiment"]
noise_scale_now = course.solved(check.noise_scale)
Meter = course.solved(check.NoiseMeter)
PIECES = 4
TIMES = 16  # the base batch


def two_meters(optimizer):
    """Your meter for this optimizer, and one that takes it for SGD: plain norms."""
    parameters = optimizer.param_groups[0]["params"]
    as_sgd = torch.optim.SGD(parameters, lr=0.1)
    return [Meter(optimizer, PIECES), Meter(as_sgd, PIECES)]


def noise_of(meter, start=1):
    """The noise scale that a meter saw from update `start` on; in update 0, Adam has no v."""
    small = torch.stack(meter.small[start:])
    large = torch.stack(meter.large[start:])
    return noise_scale_now(small, large, batches[1] // PIECES, batches[1])


# %% tags=["experiment"]
noise_of_adam = []  # samples, per seed
noise_of_plain = []
updates = []
for seed in range(sizes.noise_seeds):
    meters = []
    step = time_to_target.metered_step(PIECES, two_meters, meters)
    run = time_to_target.run_to_target(experiment, sizes, TIMES, seed, step)
    updates.append(run.updates)
    noise_of_adam.append(noise_of(meters[0]))
    noise_of_plain.append(noise_of(meters[1]))

critical = statistics.median(noise_of_adam)
fewest = statistics.median(updates) / (1 + critical / batches[1])
in_adam_units = ", ".join(f"{samples:,.0f}" for samples in noise_of_adam)
by_plain_norms = ", ".join(f"{samples:,.0f}" for samples in noise_of_plain)
print(f"noise scale in Adam's units, per seed: {in_adam_units}")
print(f"noise scale by plain norms, per seed:  {by_plain_norms}")
print(f"predicted: critical batch {critical:,.0f} samples, fewest updates {fewest:.1f}")
course.claim(
    "under Adam, the noise scale in Adam's units is at least three times the one by plain norms",
    ratio_interval(torch.tensor(noise_of_adam), torch.tensor(noise_of_plain)),
    above=3,
)

# %% [markdown]
# **Takeaway** A training in micro-batches or on ranks already has gradients of two batch sizes. Its noise scale depends
# on the units of their norms.

# %% [markdown]
# ## Which batch is fastest?
#
# An update takes $c + s B$ seconds: $c$ for the update, $s$ for each sample (part 1). The updates to the target are
# $u\,(1 + B_c / B)$. The time is the product:
#
# $$T(B) = u\,\Big(1 + \frac{B_c}{B}\Big)(c + s B) = u\,\Big(c + s B_c + s B + \frac{c\,B_c}{B}\Big).$$
#
# The term $s B$ grows with the batch, and $c B_c / B$ falls. So $T$ has a minimum, where the two terms are equal:
#
# $$B^* = \sqrt{\frac{c}{s}\,B_c} .$$
#
# This is the geometric mean of $c / s$ and $B_c$. You have measured $B_c$. The cell times Adam's updates for $c / s$.

# %% tags=["experiment"]
seconds_per_update = time_to_target.seconds_per_update(experiment, sizes)  # {batch: seconds}
cost = time_to_target.cost(seconds_per_update)  # of the smallest and the largest batch alone
print(
    f"c = {1e3 * cost.per_update:.2f} ms, s = {1e6 * cost.per_sample:.3f} µs, "
    f"c / s = {cost.samples:,.0f} samples"
)

# %% [markdown]
# **Predict** from $B_c$ and $c / s$:
#
# - Of 4, 16, 64, 192 and 576 times the base batch, which is fastest?
# - How many times as long does 192 times the batch take as 16 times? Below 1, because it trains more samples per
#   second? Or above 1, because beyond $B_c$ it saves hardly any updates?

# %%
predicted_fastest = None  # your number: the fastest of these batches, in samples
predicted_ratio = None  # your number: seconds at 192 times the batch over those at 16 times

# %% [markdown]
# The test has five batch sizes, each with its own tuned learning rate and several seeds. The seconds to the target are
# the updates that a run made, times the seconds of one such update.

# %% tags=["experiment"]
fastest = cost.fastest(critical)  # the root above


def predicted_seconds(batch):
    """Seconds to the target: one batch size gave u and B_c, two timings gave c and s."""
    updates_needed = fewest * (1 + critical / batch)
    return updates_needed * (cost.per_update + cost.per_sample * batch)


updates_of = {}  # {batch: updates to the target, per seed}
seconds_of = {}
for times in sizes.critical_times:
    batch = times * sizes.base_batch
    updates_of[batch] = []
    for seed in range(sizes.price_seeds):
        run = time_to_target.run_to_target(experiment, sizes, times, seed)
        updates_of[batch].append(run.updates_to_target or math.inf)
    seconds_of[batch] = [own * seconds_per_update[batch] for own in updates_of[batch]]
    print(
        f"batch {batch:>7,}: updates {updates_of[batch]}, "
        f"{statistics.median(seconds_of[batch]):.2f} s, predicted {predicted_seconds(batch):.2f} s"
    )

best = time_to_target.fastest_batch(seconds_of)  # None if the seeds do not decide
finding = f"{best:,} is fastest" if best else "the seeds decide for none"
title = f"Of these batches, {finding}; predicted {fastest:,.0f}"
plots.time_to_target(seconds_of, predicted_seconds, fastest, title)

# %% tags=["experiment"]
fitted = []  # critical batch that fits the updates of a seed
for updates_of_seed in zip(*updates_of.values(), strict=True):
    need = time_to_target.fitted(dict(zip(updates_of, updates_of_seed, strict=True)))
    fitted.append(need.critical)
print(
    f"critical batch: fitted {statistics.median(fitted):,.0f} samples, predicted {critical:,.0f}, "
    f"by plain norms {statistics.median(noise_of_plain):,.0f}"
)

seconds = {batch: torch.tensor(own, dtype=torch.float64) for batch, own in seconds_of.items()}
slower = ratio_interval(seconds[192 * sizes.base_batch], seconds[16 * sizes.base_batch])
print(course.score("03/5", "the fastest batch", predicted_fastest, best, null=None))
print(course.score("03/5", "seconds at 192 times the batch over 16 times", predicted_ratio, slower))
course.claim(
    "192 times the batch takes at least 10 % longer to the target than 16 times the batch",
    slower,
    above=1.1,
)
course.claim(
    "Adam's critical batch is predicted within a factor of two",
    ratio_interval(torch.tensor(fitted), torch.tensor(noise_of_adam)),
    within=(0.5, 2),
)

# %% tags=["experiment"]
errors = []
for batch, measured in seconds.items():
    predicted = torch.full_like(measured, predicted_seconds(batch))
    errors.append(ratio_interval(measured, predicted))
samples = {batch: batch * torch.tensor(own).double() for batch, own in updates_of.items()}

course.claim(
    "u (1 + B_c / B) (c + s B) predicts the seconds of each batch size within a factor of two",
    furthest(errors),
    within=(0.5, 2),
)
course.claim(
    "from the smallest to the largest batch, the samples to the target grow at least twofold",
    ratio_interval(samples[max(samples)], samples[min(samples)]),
    above=2,
)

# %% [markdown]
# You need not hit the best batch exactly. By the formula, half or twice $B^*$ takes at most an eighth longer. **Known**
# How many updates a larger batch saves differs very much between models and data sets (Shallue et al., reference 2).
#
# Where the curve misses the updates, **we think** the reason is that the noise scale grows during a training, and one
# number stands for all of it. To test it, print the meter's value for the first and the last third of the updates.
#
# <details><summary>What changes with more ranks?</summary>
#
# **We think** that more ranks raise $c / s$: $s$ falls with their number, and the all-reduce adds to $c$. To test it,
# time an update on one and on two ranks.
#
# </details>
#
# **Takeaway** By the formula, the fastest batch is the geometric mean of two sizes: $c / s$ of the machine, and the
# critical batch of the training.

# %% [markdown]
# ## Can a growing batch replace a falling learning rate? · extra
#
# Many schedules lower the learning rate towards the end. **Known** In SGD, the noise of the updates depends on the
# learning rate over the batch. So Smith et al. (reference 3) increase the batch instead, and need fewer updates.
#
# Here Adam trains one epoch as before, and continues in one of three ways:
#
# - *falling learning rate*: divided by four, twice;
# - *growing batch*: multiplied by four, twice, by the rule for SGD (for Adam, the square root of reference 4 asks
#   for 16);
# - *neither*.

# %% tags=["experiment"]
FALLING = "falling learning rate"
GROWING = "growing batch"
NEITHER = "neither"
lr = time_to_target.TUNED[16][0]
batch = batches[1]
stages = {  # (epochs, batch, learning rate) of each stage
    FALLING: [(1, batch, lr), (0.5, batch, lr / 4), (0.5, batch, lr / 16)],
    GROWING: [(1, batch, lr), (0.5, 4 * batch, lr), (0.5, 16 * batch, lr)],
    NEITHER: [(2, batch, lr)],
}

hit_rates = {}
updates_made = {}
for way, plan in stages.items():
    hit_rates[way] = []
    for seed in range(sizes.grown_seeds):
        hit_rate, n_updates = time_to_target.train_in_stages(experiment, plan, seed)
        hit_rates[way].append(hit_rate)
    updates_made[way] = n_updates
    print(f"{way:<22} {n_updates:>4} updates, HR@10 {listed(hit_rates[way])}")

# %% tags=["experiment"]
course.claim(
    "a growing batch ends within 0.02 of the HR@10 of a falling learning rate",
    difference_interval(hit_rates[GROWING], hit_rates[FALLING]),
    within=(-0.02, 0.02),
)
course.claim(
    "a falling learning rate ends within 0.02 of the HR@10 of a constant one",
    difference_interval(hit_rates[FALLING], hit_rates[NEITHER]),
    within=(-0.02, 0.02),
    otherwise="Look which of the two is higher.",
)
makes_fewer = updates_made[GROWING] <= 2 / 3 * updates_made[FALLING]
course.claim(
    "the growing batch makes at most two thirds of the updates of the falling learning rate",
    makes_fewer,
    f"{updates_made[GROWING]} of {updates_made[FALLING]}",
    otherwise="The training has too few epochs to grow the batch.",
)

# %% [markdown]
# First compare the falling learning rate with the constant one. If the constant one ends as high or higher, the fall
# did not help. Then the first claim only says that a growing batch loses about as much.
#
# **Takeaway** Late in a training, a larger batch can take the place of a smaller learning rate. Compare both with a
# training that changes neither.

# %% [markdown]
# ## What is today's recipe worth? · extra
#
# Recipes are often copied whole, although few of their ingredients may matter. Ours is AdamW with a short warm-up,
# **cosine** decay to 0 (reference 5), and gradients **clipped** to a joint norm of 1. It also raises the learning rate
# with the **square root** of the batch, which reference 4 derives for Adam.
#
# **Which ingredients matter here?** Each way changes one of them, at 192 times the batch. "No decay" stays at the peak
# after the warm-up. The seeds come in pairs. No way was tuned: the learning rate at 16 times the batch was, and the
# rules say what it becomes.

# %% tags=["experiment"]
lr_same = sizes.adam_lr[0]  # tuned at 16 times the batch
lr_root = lr_same * math.sqrt(batches[2] / batches[1])
lr_linear = lr_same * batches[2] / batches[1]
settings = {
    RECIPE: {"lr": lr_root},
    "same lr": {"lr": lr_same},
    "linear rule": {"lr": lr_linear},
    "no decay": {"lr": lr_root, "decays": False},
    "no weight decay": {"lr": lr_root, "weight_decay": 0.0},
}

clipped = []  # per update of all runs
histories = {}
for way, options in settings.items():
    histories[way] = []
    for seed in range(sizes.recipe_seeds):
        run = train_recipe(experiment, batches[2], seed, clipped=clipped, **options)
        histories[way].append(run)

# %% tags=["experiment"]
hit_rates = {}
for way, runs in histories.items():
    hit_rates[way] = [run.hit_rate[-1] for run in runs]
gains = {}
for way in settings:
    if way != RECIPE:
        gains[way] = difference_interval(hit_rates[way], hit_rates[RECIPE])
        print(f"{way:<16} HR@10 minus the recipe's {gains[way]}")
print(
    "updates whose gradient was longer than 1, so that clipping changed it: "
    f"{sum(clipped)} of {len(clipped)}"
)

lowest = min(gains, key=lambda way: gains[way].estimate)
title = f"Costs most: {lowest} ({gains[lowest].estimate:+.2f})"
plots.recipes(histories, experiment.popularity, title)

# %% tags=["experiment"]
course.claim(
    "at 192x the square-root rule beats the unchanged learning rate by at least 0.05 of HR@10",
    gains["same lr"],
    below=-0.05,
)
course.claim(
    "the linear rule beats the square-root rule under cosine decay",
    gains["linear rule"],
    above=0,
)
course.claim(
    "in so few updates a constant learning rate beats cosine decay with the same peak",
    gains["no decay"],
    above=0,
)
course.claim(
    "weight decay changes HR@10 by less than 0.03",
    gains["no weight decay"],
    within=(-0.03, 0.03),
)

# %% [markdown]
# **We think** that the linear rule and the constant learning rate gain for the same reason: both move further in these
# few updates. To test it, double the epochs and see whether the gains shrink. Where hardly any gradient was longer than
# 1, clipping was not tested.
#
# **Takeaway** A recipe is a starting point. Change one ingredient at a time, the learning rate first.

# %% [markdown]
# ## The unit on one page
#
# Look for the symptom of your own training.
#
# | symptom | measurement | fix | part |
# |---|---|---|---|
# | few samples per second | c / s, the batch whose samples cost as much as the update | a larger batch | 1 |
# | a large batch learns less | training loss after equal updates | a learning rate from a sweep or a map | 1, 2 |
# | the loss blows up early | update-to-weight ratios | a warm-up, LARS, Adam | 3 |
# | memory is full | bytes kept for backward | accumulation, bf16 | 4 |
# | the loss stays constant or rises in fp16 | zeros among the gradients | a loss scale, bf16 | 4 |
# | no idea how large the batch may be | noise scale, c and s | the geometric mean of B_c and c / s | 5 |
# | the score is too good | HR@10 of a constant model | a strict comparison | 6 |

# %% [markdown]
# ## On your own training
#
# **How large may your own batch be?**
#
# Take the measurement home: replace `loader` and `step` with yours. `NoiseMeter` needs nothing from this course. The
# check-up `course.checkup` watches any training, and estimates the noise scale from the gradients of consecutive steps.

# %% tags=["experiment"]
model = experiment.fresh_model()
optimizer = torch.optim.Adam(model.parameters(), lr=sizes.adam_lr[0])
epoch = recommender_loop.epoch_batches(experiment.data, batches[1], experiment.sample_negatives)
loader = list(epoch)[:-1]  # the last batch may be smaller
meters = []
metered = time_to_target.metered_step(PIECES, two_meters, meters)


def step(batch):
    metered(model, *batch, optimizer)


report = course.checkup(loader, step, steps=60, only_watch=True)
by_meter = noise_of(meters[0], -COUNTED_STEPS)  # over the last steps, as the check-up
print(f"your meter: {by_meter:,.0f} samples")
print("the check-up:", predict.noise(report.facts).sentence)
course.claim(
    "the noise meter and the check-up take the same norm of the same gradient",
    torch.isclose(meters[0].norm(), gradient_norm(optimizer)).item(),
    otherwise="Your optimizer keeps a mean square under another name.",
)

# %% [markdown]
# The two may differ several times over, although they take the same norm. **We think** the reason is that a batch far
# below the noise scale holds hardly any signal: $\lVert G \rVert^2$ is a small difference of two large numbers. To test
# it, take more steps, and see whether the check-up's interval becomes narrower.
#
# **Takeaway** Measure the noise scale of your own training before you make its batch larger.

# %% [markdown]
# ## References
#
# 1. S. McCandlish, J. Kaplan, D. Amodei et al., An Empirical Model of Large-Batch Training, 2018.
#    [arXiv:1812.06162](https://arxiv.org/abs/1812.06162)
# 2. C. J. Shallue et al., Measuring the Effects of Data Parallelism on Neural Network Training, JMLR 2019.
#    [arXiv:1811.03600](https://arxiv.org/abs/1811.03600)
# 3. S. L. Smith, P.-J. Kindermans, C. Ying, Q. V. Le, Don't Decay the Learning Rate, Increase the Batch Size,
#    ICLR 2018. [arXiv:1711.00489](https://arxiv.org/abs/1711.00489)
# 4. S. Malladi, K. Lyu, A. Panigrahi, S. Arora, On the SDEs and Scaling Rules for Adaptive Gradient Algorithms,
#    NeurIPS 2022. [arXiv:2205.10287](https://arxiv.org/abs/2205.10287)
# 5. I. Loshchilov, F. Hutter, SGDR: Stochastic Gradient Descent with Warm Restarts, ICLR 2017.
#    [arXiv:1608.03983](https://arxiv.org/abs/1608.03983); Decoupled Weight Decay Regularization, ICLR 2019.
#    [arXiv:1711.05101](https://arxiv.org/abs/1711.05101)
# 6. Google Research, Deep Learning Tuning Playbook, 2023.
#    [tuning_playbook](https://github.com/google-research/tuning_playbook)
