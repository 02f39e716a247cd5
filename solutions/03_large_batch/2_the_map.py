# %% [markdown]
# # Large batches, part 2: The map
#
# **Which learning rate does a larger batch need?**
#
# The classic remedy for too few updates multiplies the learning rate by the same factor as the batch. Does this work,
# and up to which batch? A map of a model's final score for each batch size and each learning rate answers both. The
# best squares of its columns form a *ridge*, and a good rule is a line that stays on it.
#
# **You will be able to**
#
# - scale the learning rate with the batch, over ranks and accumulation, and say why it may fail;
# - find a learning rate whose neighbours are both worse, with few runs;
# - read from a map how far a scaling rule stays on the ridge, for other models and optimizers, too.
#
# **Minutes** 33 core · 38 in all
#
# **Needs** the model of part 1

# %% locked="setup"
import functools
import math

import course
from course import figures
from course.checks import large_batch as check
from course.measure.comparison import difference_interval, signed_rank_interval
from course.plots import large_batch as plots
from course.training.rate_maps import adam, ncf_score, sgd
from course.training.recommender import (
    Experiment,
    final_scores,
    listed,
    print_seeds,
    silent_last_layer,
)
from course.training.seeds_at_once import each_seed

print(course.machine())
sizes = course.sizes("03_large_batch")
experiment = Experiment(sizes)
batches = experiment.batches
maps = figures.recorded_maps()

# %% [markdown]
# ## Why should the learning rate grow with the batch?
#
# You have a learning rate that works with a small batch, and you want one for a large batch. So ask when one large step
# does the same as several small ones. Follow the weights through $k$ steps, with batches of $n$ samples and learning
# rate $\alpha$. Compare them with one step on all these $kn$ samples, with learning rate $\hat\alpha$:
#
# $$w_{k} = w_0 - \alpha\, \frac{1}{n} \sum_{j < k} \sum_{i \in B_j} \nabla f_i(w_{\color{red}{j}}), \qquad
# \hat w_{1} = w_0 - \hat\alpha\, \frac{1}{kn} \sum_{j < k} \sum_{i \in B_j} \nabla f_i(w_{\color{red}{0}})$$
#
# The two lines differ in where the gradients are taken, marked red. If the gradient hardly changes over the small
# steps, both end near the same weights for $\hat\alpha = k \alpha$. This is the **linear scaling rule**.
#
# On a parabola you can see when it fails. One step of $k \alpha$ lands well if the parabola is flat, and overshoots if
# it is steep:

# %%
plots.many_small_steps_or_one_large()

# %% [markdown]
# ### Exercise 1 · The learning rate that fits the batch
#
# Compute the learning rate for a batch by the linear scaling rule, given one that works with another batch. The loss of
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
# ## What is a fair learning rate?
#
# "Adam beats SGD" says little if only one of them was tuned. So tune both in the same way, at each batch size. If
# the best value lies at the edge of what you tried, a better one may lie beyond.

# %% [markdown]
# ### Exercise 2 · A sweep
#
# Search a grid of learning rates, `start` times powers of `factor`. `score(lr)` trains once and returns a score, where
# larger is better, or NaN if the run diverged. Trainings take long, so run few. Begin at `start`, which does not
# diverge in the check. Then always try a neighbour of the best learning rate so far, above or below it.
#
# **Must**
# - return the best learning rate once both its neighbours were tried, or after `most` runs;
# - train each learning rate once;
# - count NaN as worse than any number.
#
# ```python
# >>> sweep({0.01: 0.3, 0.04: 0.5, 0.16: 0.6, 0.64: float("nan")}.get, start=0.04)
# 0.16
# ```
#
# **Points** 4 · **Core** · **Difficulty** ●●○ · **Minutes** 12 · **Lines** 12
#
# **Source** Godbole et al. 2023, Deep Learning Tuning Playbook, on search spaces.
#
# <details><summary>Hint 1</summary>
#
# After three runs, how do you know whether you must go up, go down, or stop?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Number the places on the grid: 0 is `start`, 1 the next above, -1 the next below. Keep a dictionary from place to
# score. Learning rates are poor keys, because `lr * factor / factor` need not be `lr`.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# While fewer than `most` places have a score: list those of `best + 1` and `best - 1` without one, and stop if there is
# none. Run the first of the list, store -inf for NaN, and let `best` be `max(scores, key=scores.get)`.
#
# </details>


# %% solution="sweep"
def sweep(score, start, factor=4.0, most=9):
    """The best learning rate of the grid start * factor**k, k a whole number of any sign, as a float.

    Args:
        score: learning rate -> score of one training, larger is better; NaN if it diverged. Called once per
            learning rate.
        start: the first learning rate that is tried.
        factor: from one learning rate of the grid to the next, above 1.
        most: number of trainings, at most.
    """
    ### BEGIN SOLUTION
    scores = {0: score(start)}  # by place on the grid
    best = 0
    while len(scores) < most:
        untried = [place for place in (best + 1, best - 1) if place not in scores]
        if not untried:
            break
        value = score(start * factor ** untried[0])
        scores[untried[0]] = -math.inf if math.isnan(value) else value
        best = max(scores, key=scores.get)
    return start * factor**best
    ### END SOLUTION


# %% test="sweep-visible" points=2
check.sweep(sweep)

# %% test="sweep-hidden" points=2
### BEGIN HIDDEN TESTS
check.sweep(sweep, seed=4)
### END HIDDEN TESTS

# %% [markdown]
# Now sweep SGD and Adam at 16× and at 192×, with one run per learning rate. **Predict** SGD's best learning rate at
# 16×, as a multiple of the small batch's. The linear rule says 16. Krizhevsky's square root, which keeps the variance
# of a step the same, says 4. If the old one stays the best, it is 1.

# %%
predicted_multiple = None  # your number: SGD's best learning rate at 16x over the small batch's

# %% tags=["experiment"]
sweep_now = course.solved(check.sweep)
scaled_lr_now = course.solved(check.scaled_lr)
runs = []  # (optimizer, batch, learning rate, HR@10)


def best_lr(name, make_optimizer, batch, base_lr):
    """The best learning rate of two sweeps: from `base_lr`, and from the linear rule's."""

    @functools.cache  # no training runs twice
    def score(lr):
        hit_rate = ncf_score(experiment, make_optimizer(lr), batch, sizes.long_epochs)
        runs.append((name, batch, lr, hit_rate))
        return hit_rate

    found = []
    for start in (base_lr, scaled_lr_now(base_lr, batches[0], batch)):
        lr = sweep_now(score, start)
        found.append(lr)
        print(
            f"{name} at batch {batch:,}, from {start:g}: "
            f"best learning rate {lr:g}, HR@10 {score(lr):.3f}"
        )
    return max(found, key=score)


# %% tags=["experiment"]
sgd_16 = best_lr("SGD", sgd, batches[1], sizes.base_lr)
sgd_192 = best_lr("SGD", sgd, batches[2], sizes.base_lr)
adam_16 = best_lr("Adam", adam, batches[1], sizes.adam_lr_small)
adam_192 = best_lr("Adam", adam, batches[2], sizes.adam_lr_small)
print(f"{len(runs)} runs; best at 16×: SGD {sgd_16:g}, Adam {adam_16:g}")

what = "best rate of SGD at 16x over the small batch's"
print(course.score("03/2", what, predicted_multiple, sgd_16 / sizes.base_lr))

# %% [markdown]
# Each was swept from two starts: the small batch's learning rate, and the one of the linear rule. If the two results
# are more than a factor of 4 apart, at least one sweep missed the best learning rate. A sweep only goes uphill, so a
# small hill, a lucky seed or a start that diverges can stop it.
#
# **Takeaway** Tune every contestant with the same sweep. A best value between two worse ones may be a small hill, so
# sweep from a second start, too.

# %% [markdown]
# ## How far does the linear rule lead?
#
# A sweep sees one column. The recorded map shows all columns for SGD, with as many epochs as in part 1. Each square is
# one training, with its recorded score. A run that diverged has 0, and guessing has about a tenth. Red frames mark the
# squares nearest to the runs of your sweep.
#
# The orange line is the linear rule, from the best learning rate of the smallest batch. Move the slider "power of the
# batch size" to 0.5 (square root) and to 0 (constant). **Which line stays on dark squares, and up to which batch?**

# %% tags=["experiment"]
here = [(batch, lr, score) for name, batch, lr, score in runs if name == "SGD"]
figures.rate_maps(maps, "NCF, SGD", rate=sizes.map_rate, here=here)

# %% [markdown]
# **Takeaway** A scaling rule is a line on a map, and it helps as far as the ridge follows it.
#
# ## Does the rule hold with other seeds?
#
# Each square of the map is one seed, so two squares may differ by luck. The cell repeats some of them with pairs of
# seeds: three learning rates at 16×, and the best of your sweeps at 192×. Seed 0 chose the latter, so its score there
# may be luck. **How much of the lost HR@10 does the linear rule restore?**
#
# A score does not show which half of the model trains. So the cell also prints the share of **silent** ReLUs in the
# last MLP layer, which output 0 for all of 8,192 samples.

# %% tags=["experiment"]
lr_linear = scaled_lr_now(sizes.base_lr, batches[0], batches[1])
lr_root = math.sqrt(lr_linear * sizes.base_lr)
ways = {
    "SGD, 1×": (sgd(sizes.base_lr), batches[0]),
    "SGD, 16×, unchanged": (sgd(sizes.base_lr), batches[1]),
    "SGD, 16×, linear rule": (sgd(lr_linear), batches[1]),
    "SGD, 16×, square root": (sgd(lr_root), batches[1]),
    "SGD, 192×, swept": (sgd(sgd_192), batches[2]),
    "Adam, 192×, swept": (adam(adam_192), batches[2]),
}
scores = {}
silent = {}
for name, (make_optimizer, batch) in ways.items():
    histories = each_seed(experiment, make_optimizer, batch, sizes.long_epochs, sizes.pairs)
    scores[name] = final_scores(histories)
    silent[name] = silent_last_layer(histories)
    print_seeds(name, histories)
    print(f"{'  silent in the last MLP layer':<34} {listed(silent[name])}")

# %% tags=["experiment"]
small = scores["SGD, 1×"]
unchanged = scores["SGD, 16×, unchanged"]
linear = scores["SGD, 16×, linear rule"]
root = scores["SGD, 16×, square root"]
of_sgd = scores["SGD, 192×, swept"]
of_adam = scores["Adam, 192×, swept"]
restored = []  # share of the lost HR@10, per seed
for of_small, of_unchanged, of_linear in zip(small, unchanged, linear, strict=True):
    restored.append((of_linear - of_unchanged) / (of_small - of_unchanged))

course.claim(
    "the linear rule restores more than a third of the lost HR@10",
    signed_rank_interval(restored),
    above=1 / 3,
)
course.claim(
    "the linear rule at 16× silences more than nine tenths of the last MLP layer",
    signed_rank_interval(silent["SGD, 16×, linear rule"]),
    above=0.9,
)
course.claim(
    "at 16×, the linear rule ends at a higher HR@10 than the square root",
    difference_interval(linear, root),
    above=0,
)
course.claim(
    "at 192×, the best learning rate of the sweep leaves SGD at least 0.1 of HR@10 below the small batch",
    difference_interval(small, of_sgd),
    above=0.1,
)
course.claim(
    "at 192×, each at the best learning rate of its sweeps, Adam beats SGD by more than 0.1 of HR@10",
    difference_interval(of_adam, of_sgd),
    above=0.1,
)

# %% [markdown]
# **Shown** At 16×, the three ways of SGD differ only in the learning rate. Where the whole last MLP layer is silent,
# the GMF half alone makes the logit, however high the score.
#
# <details><summary>Why is the square root so low with some seeds?</summary>
#
# **We think** that this learning rate silences the MLP with these seeds, and is too small for the GMF half. The worst
# seeds above should be the silent ones. To test the rest, give the GMF tables a larger learning rate.
#
# </details>
#
# **Takeaway** Before you trust a rule, train with other seeds and check which layers stay alive.

# %% [markdown]
# ## Does another model have the same ridge?
#
# The switch above the figure shows more maps: NCF with Adam and with LARS, a small transformer on drawn text, and a CNN
# on Fashion-MNIST. The transformer and the CNN train for one epoch. Draw your rule over each map.
#
# Each rule starts at the best square of the smallest batch. **Up to which batch does it reach at least nine tenths of
# each column's best score?** Halfway between two squares, the lower learning rate counts.

# %% tags=["experiment"]
print("times the smallest batch  constant  square root  linear")
for label, one in maps.items():
    print(f"{label:<24}{one.reach(0.0):>9}×{one.reach(0.5):>12}×{one.reach(1.0):>7}×")
figures.rate_maps(maps, "transformer, SGD")

# %% [markdown]
# **Known** Shallue et al. (2019) searched the learning rate for each batch, on many models and data sets. Some followed
# the linear rule, some the square root, some neither. Beyond a batch size that depends on the model, a larger batch
# saves no more updates. For Adam, Malladi et al. (2022) derive the square root.
#
# **Takeaway** A scaling rule is a first guess. Sweep around it.

# %% [markdown]
# ## Does your machine draw the same map? · extra
#
# A map that someone else recorded may not be yours. The cell draws one for SGD on your data, with one seed per square,
# five learning rates and fewer epochs. **Does the ridge lie where it lay?**

# %% tags=["experiment"]
lrs = [sizes.base_lr * times for times in (0.25, 1, 4, 16, 64)]
map_batches = [sizes.base_batch * times for times in sizes.map_times]

table = []  # a row of scores per batch size
for batch in map_batches:
    scores_of_batch = []
    for lr in lrs:
        scores_of_batch.append(ncf_score(experiment, sgd(lr), batch, sizes.map_epochs))
    table.append(scores_of_batch)
figures.rate_map(map_batches, lrs, table, name="HR@10")

# %% [markdown]
# If your ridge lies higher, **we think** that the fewer epochs move it up, because each update has to go further. To
# test it, train your first column for as many epochs as the recorded map, 12. Your data may differ, too: the recorded
# map is from real MovieLens 100K.
#
# **Takeaway** A map belongs to a model, its data and the length of the training.

# %% [markdown]
# ## References
#
# 1. P. Goyal et al., Accurate, Large Minibatch SGD: Training ImageNet in 1 Hour, 2017.
#    [arXiv:1706.02677](https://arxiv.org/abs/1706.02677)
# 2. A. Krizhevsky, One weird trick for parallelizing convolutional neural networks, 2014.
#    [arXiv:1404.5997](https://arxiv.org/abs/1404.5997)
# 3. C. J. Shallue, J. Lee, J. Antognini, J. Sohl-Dickstein, R. Frostig, G. E. Dahl, Measuring the Effects of Data
#    Parallelism on Neural Network Training, JMLR 2019. [arXiv:1811.03600](https://arxiv.org/abs/1811.03600)
# 4. V. Godbole, G. E. Dahl, J. Gilmer, C. J. Shallue, Z. Nado, Deep Learning Tuning Playbook, 2023.
#    [github.com/google-research/tuning_playbook](https://github.com/google-research/tuning_playbook)
# 5. S. Malladi, K. Lyu, A. Panigrahi, S. Arora, On the SDEs and Scaling Rules for Adaptive Gradient Algorithms,
#    NeurIPS 2022. [arXiv:2205.10287](https://arxiv.org/abs/2205.10287)
