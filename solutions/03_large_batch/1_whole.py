# %% [markdown]
# # Large batches
#
# **How large can the batch get before accuracy drops, and what wins it back?**
#
# A processor with thousands of arithmetic units wants thousands of samples at once. Stochastic gradient descent wants
# many small steps. This unit lets the two pull against each other on a recommender, Neural Collaborative Filtering,
# and goes through the remedies in the order in which they were found: a rate that grows with the batch, a warm-up, a
# rate of its own for every layer (LARS), and arithmetic in half precision.
#
# At the end you will have written every part of a large-batch trainer that decides about its accuracy, from the split
# of the ratings to the loss scaler, and you will have measured what each is worth on your machine: samples per
# second, accuracy against epoch for three batch sizes, and the batch size beyond which more samples per step buy
# nothing.
#
# How it works: you first write down what you expect (a cell with `None`), then solve the exercise, check it, and look
# at the measurement. A check names the first thing that is not right. If you skip an exercise, or have not run its
# check, the later cells say so and go on with the reference answer, where your folder holds it: that of a class may
# not. Run the cells from the top: the experiments build on each other. What the text says about them holds at the
# scales `laptop` and `gpu`; `smoke` is too short to learn much.


# %% locked="setup"
import functools
import math

import torch
from torch.nn import functional as F

import course
from course import metrics, models, training
from course.checks import large_batch as check
from course.datasets import movielens
from course.plots import large_batch as plots

print(course.machine())

# %% [markdown]
# ## What people chose, and what they did not
#
# **Implicit feedback turns ratings into yes or not-yet: the data say what a user took, never what a user dislikes.**
#
# MovieLens holds ratings: user, film, stars, time. What we want to predict is not the stars but which film a user will
# pick next, so that every rating becomes a 1, "this user chose this film", and the stars are dropped. This is called
# *implicit feedback*. Two questions follow from it.
#
# - **What to test on?** A row taken at random would let the model learn from a user's future. The usual protocol keeps
#   the *latest* interaction of every user for the test and trains on all that came before: leave-one-out.
# - **Where do the zeros come from?** The data have none. So we draw them: for every positive of an epoch, four items
#   that the user has not touched, new ones in each epoch. Such a *negative* is a guess; some are films that the user
#   would have liked. A negative that is one of the user's positives, however, is a plain error in the labels.

# %% [markdown]
# ### Exercise 1 · Leave one out
#
# Split interactions into training and test: each user's latest interaction is the test, all others are for training.
# Return two masks over the rows, not the rows themselves.
#
# **Points** 3 · **Difficulty** ●●○ · **Minutes** 15 · **Lines** 6
#
# **Convention** A row is one interaction; rows stand in any order. User numbers are 0 or more and may have gaps;
# times are whole seconds since 1970 and may be negative. If several rows of a user share the latest time, the one
# that stands last in the file is the test row. A user with a single row has it in the test and nothing in training.
# No Python loop over users is needed, and with 20 million rows none is welcome.
#
# **Source** He, Liao, Zhang, Nie, Hu and Chua 2017, "Neural Collaborative Filtering", WWW 2017, arXiv:1708.05031,
# section 4.1 (the protocol; the rule for equal times is ours).
#
# <details><summary>Hint 1</summary>
#
# If you knew the latest time of every user, which rows would still be in question?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `zeros.scatter_reduce(0, users, values, "amax")` is a maximum for each user, without a loop. Beware of what the zeros
# that you start from do to negative times: `include_self=False` leaves them out.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# Twice the same move. First `latest`, for each user the maximum of the times. Then `last`, the maximum of the places
# in the file, counted from 1, where a row that is not at its user's latest time counts as 0: `place * (timestamps ==
# latest[users])`. The test rows are those with `last[users] == place`. Or sort: by time, then by user, both stably;
# the last row of each run of one user is the test.
#
# </details>


# %% solution="leave_one_out"
def leave_one_out(users, timestamps):
    """Each user's latest interaction for the test, all others for training.

    Args:
        users: int64 tensor (n,), user numbers of 0 or more, possibly with gaps; n is at least 1.
        timestamps: int64 tensor (n,), seconds since 1970.

    Returns: (train, test), two bool tensors (n,): every row is in exactly one; `test` has one row a user. Of a user's
        rows with the same latest timestamp, the one that stands last is the test row.
    """
    ### BEGIN SOLUTION
    per_user = torch.zeros_like(torch.bincount(users))
    latest = per_user.scatter_reduce(0, users, timestamps, "amax", include_self=False)
    place = torch.ones_like(users).cumsum(0)  # 1, 2, 3, ... in the file
    last = per_user.scatter_reduce(0, users, place * (timestamps == latest[users]), "amax")
    test = last[users] == place
    return ~test, test
    ### END SOLUTION


# %% test="leave_one_out-visible" points=1
check.leave_one_out(leave_one_out)

# %% test="leave_one_out-hidden" points=2
### BEGIN HIDDEN TESTS
check.leave_one_out(leave_one_out, seed=1708)
### END HIDDEN TESTS

# %% [markdown]
# ### Exercise 2 · Negatives
#
# Draw one negative for each row of a batch: an item that the row's user has never seen, every such item with the same
# probability. Rows are independent: the same user in two rows gets two draws.
#
# **Points** 4 · **Difficulty** ●●○ · **Minutes** 20 · **Lines** 7
#
# **Convention** Users and items count from 0; `seen[u, i]` is True where user `u` has interacted with item `i`. Every
# user of the batch has at least one unseen item. With a generator, all randomness comes from it and torch's global
# random numbers stay as they were; without one, the global ones are used. The batch may be empty.
#
# **Source** He et al. 2017, arXiv:1708.05031, sections 3.1 and 4.1 (uniform negatives, four to one positive). Some
# fast public implementations draw from all items and accept that some negatives are positives; we do not.
#
# <details><summary>Hint 1</summary>
#
# A user has seen a few per cent of all items. If you drew from all items, how many rows of a batch would be wrong?
# And how many of those after a second draw?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Draw all at once with `torch.randint`, look up which rows hit a seen item with `seen[users, items]`, and draw those
# rows again. Moving a hit to the next free item is *not* the same: an item behind a long run of seen ones would come
# up far too often.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# `again = seen[users, items].nonzero().squeeze(1)` are the rows to repeat. While there are any: give `items[again]`
# new draws, then keep of `again` only the rows that still hit. Hand `generator=generator` and `device=users.device`
# to every `torch.randint`.
#
# </details>


# %% solution="sample_negatives"
def sample_negatives(users, seen, generator=None):
    """One item for each row of `users` that this user has never seen, uniform over all such items.

    Args:
        users: int64 tensor (n,), values 0 <= u < n_users; n may be 0.
        seen: bool tensor (n_users, n_items), True where the user has interacted with the item.
        generator: torch.Generator on the device of `seen`, or None for torch's global random numbers; the same state
            gives the same items.

    Returns: int64 tensor (n,) of items, 0 <= i < n_items, on the device of `users`.
    """
    ### BEGIN SOLUTION
    n_items = seen.shape[1]
    items = torch.empty_like(users).random_(n_items, generator=generator)
    again = seen[users, items].nonzero().squeeze(1)
    while len(again):  # each round leaves a few per cent of the one before
        items[again] = torch.empty_like(again).random_(n_items, generator=generator)
        again = again[seen[users[again], items[again]]]
    return items
    ### END SOLUTION


# %% test="sample_negatives-visible" points=2
check.sample_negatives(sample_negatives)

# %% test="sample_negatives-hidden" points=2
### BEGIN HIDDEN TESTS
check.sample_negatives(sample_negatives, seed=5031)
### END HIDDEN TESTS

# %% [markdown]
# ## Neural Collaborative Filtering
#
# **NeuMF scores a pair of user and item twice, by a product of embeddings and by a small network, and lets one last
# layer weigh the two.**

# %%
plots.neumf_diagram()

# %% [markdown]
# Read the figure from the bottom. A user $u$ and an item $i$ are numbers; four tables turn them into vectors, two for
# each half of the model:
#
# - **GMF**, generalised matrix factorisation, on the left: the elementwise product of $p_u$ and $q_i$. If the last
#   layer only summed it up, this would be the dot product of classical matrix factorisation.
# - **MLP**, on the right: other vectors $p'_u$ and $q'_i$ are put end to end and go through linear layers that become
#   narrower, each followed by a ReLU. It can express interactions that a product cannot.
#
# $$h_0 = \begin{bmatrix} p'_u \\ q'_i \end{bmatrix}, \qquad
# h_l = \max(0,\; W_l\, h_{l-1} + b_l), \qquad
# \hat y_{ui} = w^\top \begin{bmatrix} p_u \odot q_i \\ h_L \end{bmatrix} + b$$
#
# $\hat y_{ui}$ is a *logit*: the probability that $u$ takes $i$ is $\sigma(\hat y_{ui})$. The loss is the binary cross
# entropy between this probability and the label, 1 for a positive and 0 for a drawn negative. It is computed from the
# logit itself, because $\log \sigma(y)$ of a very negative $y$ would be the logarithm of a rounded zero.
#
# Almost all parameters lie in the four tables, and a batch touches only the rows of its own users and items. A single
# large batch touches nearly all of them. Remember this when we compare batch sizes.

# %% [markdown]
# ### Exercise 3 · NeuMF forward
#
# Compute the logits of a batch of pairs from the weights alone: a pure function, no module, no state. Gradients must
# flow to every weight.
#
# **Points** 4 · **Difficulty** ●●○ · **Minutes** 20 · **Lines** 6
#
# **Convention** `weights` is a dictionary; with $F$ factors and MLP layers of widths $d_0, d_1, \dots, d_L$ it holds
#
# | key | what | shape |
# |---|---|---|
# | `"gmf_user"`, `"gmf_item"` | tables of the GMF half | (n_users, F), (n_items, F) |
# | `"mlp_user"`, `"mlp_item"` | tables of the MLP half | (n_users, d₀/2), (n_items, d₀/2) |
# | `"mlp"` | list of pairs (W, b), one a layer | W (dₗ, dₗ₋₁), b (dₗ,) |
# | `"output"` | one pair (W, b) | W (1, F + d_L), b (1,) |
#
# W is stored as in `torch.nn.Linear`, outputs first. The user's vector stands before the item's, the GMF half before
# the MLP half. A ReLU follows every layer of the MLP, the last one included; no sigmoid at the end. Users and items
# count from 0. A batch of one pair gives a tensor of shape (1,).
#
# **Not allowed** `course.models.NeuMF`, which computes the same in a module.
#
# **Source** He et al. 2017, arXiv:1708.05031, sections 3.2 to 3.4 (equations 8 to 12).
#
# <details><summary>Hint 1</summary>
#
# Which shape has each half just before they are put together, and along which axis must that happen?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# A table is read by indexing: `weights["gmf_user"][users]` is (n, F). `F.linear(x, W, b)` is one layer. The output
# layer gives shape (n, 1); `squeeze()` without an axis would also swallow the n of a batch of one.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# `gmf` is the product of the two GMF rows. `hidden` starts as `torch.cat([user rows, item rows], dim=1)` of the MLP
# tables; for each pair of `weights["mlp"]` it becomes `F.relu(F.linear(hidden, weight, bias))`. Then one `F.linear`
# on `torch.cat([gmf, hidden], dim=1)`, and `squeeze(1)`.
#
# </details>


# %% solution="neumf_forward"
def neumf_forward(weights, users, items):
    """The logits of pairs (user, item) under NeuMF.

    Args:
        weights: dictionary of float tensors, all of one dtype: "gmf_user" (n_users, F), "gmf_item" (n_items, F),
            "mlp_user" (n_users, d0 / 2), "mlp_item" (n_items, d0 / 2), "mlp" a list of one or more pairs (W, b) of
            shapes (d_out, d_in) and (d_out,), "output" a pair (W, b) of shapes (1, F + d_L) and (1,).
        users, items: int64 tensors (n,); n is at least 1.

    Returns: float tensor (n,) of logits, in the dtype of the weights and differentiable with respect to all of them.
    """
    ### BEGIN SOLUTION
    gmf = weights["gmf_user"][users] * weights["gmf_item"][items]  # (n, F)
    hidden = torch.cat([weights["mlp_user"][users], weights["mlp_item"][items]], dim=1)  # (n, d0)
    for weight, bias in weights["mlp"]:
        hidden = F.relu(F.linear(hidden, weight, bias))
    weight, bias = weights["output"]
    return F.linear(torch.cat([gmf, hidden], dim=1), weight, bias).squeeze(1)
    ### END SOLUTION


# %% test="neumf_forward-visible" points=2
check.neumf_forward(neumf_forward)

# %% test="neumf_forward-hidden" points=2
### BEGIN HIDDEN TESTS
check.neumf_forward(neumf_forward, seed=2017)
### END HIDDEN TESTS

# %% [markdown]
# ## Is it any good?
#
# **The model ranks the film that the user took next among films never taken; the hit rate counts how often it comes
# among the first ten, NDCG also how early.**
#
# The held-out film of a user is ranked among 100 items that the user has never seen. **HR@10** is the share of users
# whose film is among the ten best scores. **NDCG@10** gives a hit at 0-based rank $r$ the value $1 / \log_2(r + 2)$:
# 1 on top, 0.63 in second place, 0.29 in tenth, nothing below. A model that guesses reaches HR@10 ≈ 10 / 101 ≈ 0.1.
#
# Three traps lie here, and each flatters the model. If the 100 negatives are drawn with repetition, a repeated item
# must count once. If scores are *equal*, the film must not win the tie: a model that says 0 of everything would have
# hit rate 1. And a training that diverges gives NaN, which compares False with everything: with the wrong comparison
# the worst run of this notebook is reported as its best.

# %% [markdown]
# ### Exercise 4 · Hit rate and NDCG
#
# Compute both metrics from a matrix of scores, one row a user, the held-out item in column 0.
#
# **Points** 3 · **Difficulty** ●●○ · **Minutes** 15 · **Lines** 5
#
# **Convention** Ranks count from 0. A candidate stands before the positive unless its score is *smaller*: an equal
# score and NaN on either side count against the model. Candidates marked as duplicates do not count at all; column 0
# is never marked. A hit is a rank below `k`; a rank of `k` or more gives NDCG 0. Both results are means over users.
#
# **Source** He et al. 2017, arXiv:1708.05031, section 4.1 (protocol and metrics); Järvelin and Kekäläinen 2002,
# "Cumulated gain-based evaluation of IR techniques", section 2.2 (the discount). The rules for ties and NaN are ours.
#
# <details><summary>Hint 1</summary>
#
# Do you need to sort? What has to be true of a candidate to stand before column 0, and how does that give the rank?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `scores[:, 1:]` against `scores[:, :1]` compares all candidates with their positive at once. What does `a >= b` say
# if one of them is NaN, and what does `~(a < b)` say?
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# `ahead = ~(scores[:, 1:] < scores[:, :1]) & ~duplicate[:, 1:]`; its sum along axis 1 is the rank. With `hit = rank <
# k`, the gain of a user is `hit / torch.log2(rank + 2)`. Return the two means as Python floats, `.item()`.
#
# </details>


# %% solution="rank_metrics"
def rank_metrics(scores, duplicate, k=10):
    """Mean hit rate and NDCG at `k` of the positive in column 0.

    Args:
        scores: float tensor (n_users, n_candidates); column 0 is the user's held-out item, the rest are negatives.
        duplicate: bool tensor of the same shape; True where a candidate repeats an earlier one and must not count.
            Column 0 is never True.
        k: length of the list that a user is shown.

    Returns: (hit_rate, ndcg), two Python floats. A candidate stands before the positive unless its score is smaller, so
        that a constant model and one that says NaN earn nothing. NDCG of one relevant item at 0-based rank r is
        1 / log2(r + 2) if r < k, else 0.
    """
    ### BEGIN SOLUTION
    ahead = ~(scores[:, 1:] < scores[:, :1]) & ~duplicate[:, 1:]
    rank = ahead.sum(1)
    hit = rank < k
    gain = hit / torch.log2(rank + 2)
    return hit.float().mean().item(), gain.mean().item()
    ### END SOLUTION


# %% test="rank_metrics-visible" points=1
check.rank_metrics(rank_metrics)

# %% test="rank_metrics-hidden" points=2
### BEGIN HIDDEN TESTS
check.rank_metrics(rank_metrics, seed=7)
### END HIDDEN TESTS

# %% [markdown]
# ## One step of stochastic gradient descent
#
# **A step moves the weights against the mean gradient of a batch; the batch decides how exact this mean is, the rate
# how far the step goes.**
#
# Training minimises the mean of the losses of all $M$ samples over the weights $w$:
#
# $$\min_{w}\; f(w) = \frac{1}{M} \sum_{i=1}^{M} f_i(w)$$
#
# One gradient of this sum costs a pass over all data. Stochastic gradient descent takes the mean over a batch $B_k$, a
# random subset of the samples, for the whole and makes a step of rate $\alpha_k$:
#
# $$w_{k+1} = w_k - \alpha_k\, \frac{1}{|B_k|} \sum_{i \in B_k} \nabla f_i(w_k)$$
#
# The mean over the batch is right on average; its variance falls as $1 / |B_k|$. The momentum that nearly everybody
# adds keeps a decaying sum of past gradients, the velocity $v$, and steps along it: where gradients agree from step
# to step it grows to $1 / (1 - m)$ times one gradient, where they contradict each other they cancel.

# %% [markdown]
# ### Exercise 5 · SGD with momentum
#
# Make one step of SGD with momentum and weight decay on lists of tensors, in place, as `torch.optim.SGD` makes it.
#
# **Points** 4 · **Difficulty** ●●○ · **Minutes** 20 · **Lines** 4
#
# **Convention** PyTorch's: $v \leftarrow m v + (g + \lambda w)$, then $w \leftarrow w - \alpha v$, with the *new*
# velocity. The rate is not part of the velocity; the paper on linear scaling writes it inside, which differs as soon
# as the rate changes (its section 3, "momentum correction"). Velocities are zero before the first step; the caller
# keeps them. The tensors themselves change, also those of parameters that require a gradient; gradients stay as they
# are and nothing is recorded for autograd. The entries at one place of the three lists have one shape. A list that is
# too short is an error (any exception will do): a parameter that is silently left out is never trained.
#
# **Source** `torch.optim.SGD`, PyTorch documentation (algorithm with dampening 0, without Nesterov); Sutskever,
# Martens, Dahl and Hinton 2013, "On the importance of initialization and momentum in deep learning", section 2.
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
    """None: `params` and `velocities` are changed in place by one step of SGD with momentum.

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
# ## Size matters: throughput
#
# **A larger batch gives the machine more to do at once, so that samples per second rise, until every unit is busy.**
#
# Look at the formula of the step again: the terms of the sum do not depend on each other. They can run on thousands
# of GPU threads, on the cores of a processor, or on many machines of which each takes a share. What does not get
# cheaper is all that happens once *per step*: starting kernels, reading and writing every weight in the optimizer,
# exchanging gradients between machines. With $c$ seconds per step and $s$ seconds per sample, throughput at batch
# size $B$ is $B / (c + sB)$: it grows in proportion as long as $sB \ll c$ and then levels off at $1/s$.
#
# We measure three batches: 1×, the one that the accuracy is tuned for; 16×; and 192×. How many samples per second
# will the larger ones make, as a multiple of the smallest?

# %%
predicted_speedup_16 = None  # your number: how many times the samples/s of the 1x batch at 16x
predicted_speedup_192 = None  # your number: the same at 192x

# %% [markdown]
# The next cell sets the stage for all experiments: ratings, split, test candidates, and two short functions that
# train a fresh model. It uses your answers where their checks passed. Sizes follow `COURSE_SCALE`; they stand in
# `course/device.py`.
#
# The model has the sizes of the paper (8 factors). Embeddings start with a deviation of 0.1 instead of the paper's
# 0.01: plain SGD would need several epochs more to leave the saddle at zero, where a product of two tiny vectors
# has almost no gradient. Adam hides this; SGD shows what a rate does.

# %% tags=["experiment"]
sizes = course.sizes("03_large_batch")
leave_one_out_now = course.solved(check.leave_one_out)
sample_negatives_now = course.solved(check.sample_negatives)
rank_metrics_now = course.solved(check.rank_metrics)

ratings = movielens.load(sizes.dataset)
is_train, is_test = leave_one_out_now(ratings.users, ratings.timestamps)
held_out = torch.zeros(ratings.n_users, dtype=torch.int64).index_put((ratings.users[is_test],), ratings.items[is_test])
seen = torch.zeros(ratings.n_users, ratings.n_items, dtype=torch.bool)
seen[ratings.users, ratings.items] = True
test_negatives = metrics.draw_test_negatives(
    torch.arange(ratings.n_users), seen, 100, sample_negatives_now, torch.Generator().manual_seed(1)
)
data = training.Interactions.from_split(
    ratings.users[is_train], ratings.items[is_train], held_out, test_negatives, ratings.n_users, ratings.n_items,
    device=course.device(),
)  # fmt: skip
batches = [sizes.base_batch * k for k in (1, 16, 192)]
samples_per_epoch = 5 * len(data.train_users)
print(f"{len(data.train_users):,} positives, {samples_per_epoch:,} samples an epoch")
print("updates an epoch:", ", ".join(f"{math.ceil(samples_per_epoch / b):,} at batch {b:,}" for b in batches))


def told(prediction):
    """What the learner predicted, to stand behind what was measured; empty without a prediction."""
    return "" if prediction is None else f"; you said {prediction}"


def fresh_model(size="paper"):
    """A new NeuMF with the same initial values at every call."""
    torch.manual_seed(0)
    return models.NeuMF(data.n_users, data.n_items, **models.NEUMF_SIZES[size], std=0.1).to(course.device())


def run(model, optimizer, batch_size, epochs=None, **options):
    """The History of training on the unit's data; `options` go to course.training.train."""
    return training.train(
        model, optimizer, data, batch_size=batch_size, epochs=epochs or sizes.epochs, progress=False,
        sample_negatives=sample_negatives_now, rank_metrics=rank_metrics_now, **options,
    )  # fmt: skip


def run_sgd(batch_size, lr, **options):
    """The History of training a fresh model by SGD with momentum 0.9."""
    model = fresh_model()
    return run(model, torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9), batch_size, **options)


def summary(label, history):
    """One line for a run."""
    end = "diverged" if history.diverged else f"HR@10 {history.hit_rate[-1]:.3f}, NDCG@10 {history.ndcg[-1]:.3f}"
    print(f"{label:<31}{end:<28}{history.updates:>7,} updates{sum(history.seconds_train):>6.1f} s")


# %% [markdown]
# How far do the points stay on the dashed line, which a step of constant length would follow? And is a difference
# larger than the spread of its repetitions, the bars?

# %% tags=["experiment"]
rates = []
for batch_size in batches:
    model = fresh_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    rates.append(run(model, optimizer, batch_size, mode="perf", max_steps=sizes.perf_steps).throughput)
    print(f"batch {batch_size:>9,}: {sorted(rates[-1])[len(rates[-1]) // 2]:>12,.0f} samples/s")
print(course.machine())
small = sorted(rates[0])[len(rates[0]) // 2]
guesses = [None] + [times and times * small for times in (predicted_speedup_16, predicted_speedup_192)]
plots.throughput(batches, rates, guesses)

# %% [markdown]
# A step has a fixed price: Python, dispatch of some forty operations, the optimizer's walk over every parameter,
# whether the batch holds a hundred samples or a hundred thousand. A larger batch spreads this price over more
# samples, so throughput rises; but every sample has its own arithmetic, so the points fall behind the dashed line,
# and once the arithmetic fills the processor they stop rising. On a GPU, with thousands of arithmetic units to fill,
# that comes later than on two cores. From there on a larger batch buys no speed at all, only memory.

# %% [markdown]
# ## The price: accuracy
#
# **At the same number of epochs and the same rate, a larger batch makes fewer steps, and the accuracy falls.**
#
# Throughput is not the goal; a trained model is. Others have paid the price before us:
#
# - Keskar and colleagues trained small networks, fully connected and convolutional, with a batch of a tenth of the
#   training data. Test accuracy came out lower than with a small batch by up to about five points although the
#   training loss was just as low: a loss of *generalisation* (arXiv:1609.04836, section 2).
# - Goyal and colleagues trained ResNet-50 on ImageNet. From a batch of 256 up to about 8,000 they could keep the
#   validation error near 23.6 %, with the remedies that follow below; beyond that it rises steeply whatever they did
#   (figure 1). With a batch of 8,192 and the unchanged rate of the small batch it was 41.7 % after the same number of
#   epochs (arXiv:1706.02677, section 5).
#
# Two different things fall together here. One is trivial: with 16 times the batch, an epoch has a sixteenth of the
# steps, and steps of the same length lead a sixteenth as far. The other is not: even if the training loss arrives,
# the weights found with little gradient noise may do worse on unseen data. Which of them do you expect in the next
# figure, and how large?

# %%
predicted_hit_rate_drop_16 = None  # your number: by how much HR@10 after the last epoch falls from 1x to 16x, same rate
predicted_cause = None  # your answer: "too few steps" or "poor generalisation"

# %% tags=["experiment"]
runs = {"1×": run_sgd(batches[0], sizes.base_lr), "16×, same rate": run_sgd(batches[1], sizes.base_lr)}
for label, history in runs.items():
    summary(label, history)
drop = runs["1×"].hit_rate[-1] - runs["16×, same rate"].hit_rate[-1]
print(f"\nHR@10 lost: {drop:.3f}" + told(predicted_hit_rate_drop_16))
print(f"updates: {runs['1×'].updates:,} and {runs['16×, same rate'].updates:,}" + told(predicted_cause))
plots.accuracy(runs, "Same rate, 16 times the batch")

# %% [markdown]
# Count updates instead of epochs: all epochs of the large batch together have fewer updates than the small batch
# makes in its first (see the numbers printed above), so compare its last point with the first one of the small
# batch. The large batch has not been led astray, it has hardly left. That is the first cause, too few steps. Poor
# generalisation would look different: a training loss as low as that of the small batch, and a worse HR@10. The
# dotted line is what guessing earns.

# %% [markdown]
# ## The linear scaling rule
#
# **If the batch is multiplied by $k$, multiply the rate by $k$: one large step then goes as far as $k$ small ones.**
#
# Follow the weights through $k$ small steps, with batches $B_0, \dots, B_{k-1}$ of $n$ samples and rate $\alpha$, and
# through one step on all these $kn$ samples with rate $\hat\alpha$:
#
# $$w_{k} = w_0 - \alpha\, \frac{1}{n} \sum_{j < k} \sum_{i \in B_j} \nabla f_i(w_{\color{red}{j}}), \qquad
# \hat w_{1} = w_0 - \hat\alpha\, \frac{1}{kn} \sum_{j < k} \sum_{i \in B_j} \nabla f_i(w_{\color{red}{0}})$$
#
# They differ in where the gradients are taken, marked red. If the gradient hardly changes over $k$ small steps,
# $\nabla f_i(w_j) \approx \nabla f_i(w_0)$, the two sums are the same, and the weights are the same if
# $\hat\alpha = k \alpha$. This is all there is to the rule, and its condition is where it will break.
#
# The next cell shows both sides on the smallest example, $f(w) = w^2 / 2$ with gradient $w$, from $w = 1$. Compare
# the two columns: they agree while $k\alpha$ is small. Beyond 1 the large step runs past the minimum, beyond 2 it
# ends farther away than it began.

# %%
print("   k   k * rate   k small steps   one large step")
for k in (1, 4, 16, 64, 192):
    print(f"{k:4d} {0.02 * k:10.2f} {(1 - 0.02) ** k:15.3f} {1 - 0.02 * k:16.3f}")

# %% [markdown]
# The same in a picture, on a flat and on a steep parabola: follow the four blue steps and the one orange step.

# %%
plots.many_small_steps_or_one_large()

# %% [markdown]
# ### Exercise 6 · The rate that fits the batch
#
# Compute the learning rate by the linear scaling rule from a rate that is known to work with some batch.
#
# **Points** 2 · **Difficulty** ●○○ · **Minutes** 5 · **Lines** 1
#
# **Convention** `base_batch` is the number of samples in one *update* of the known recipe. `batch` is what one rank
# reads in one micro-step; `accumulation` micro-steps on each of `ranks` processes make one update. What counts is the
# number of samples that contribute to one update. The loss of the update is the *mean* over these samples. If it were
# the sum, the gradient would grow with the batch by itself, and scaling the rate too would do it twice.
#
# **Source** Goyal et al. 2017, "Accurate, Large Minibatch SGD: Training ImageNet in 1 Hour", arXiv:1706.02677,
# section 2.1 (the rule) and section 3, "gradient aggregation" (the mean over all workers). Krizhevsky 2014, "One weird
# trick for parallelizing convolutional neural networks", arXiv:1404.5997, used it before.
#
# <details><summary>Hint 1</summary>
#
# With 4 ranks, 2 micro-steps and a batch of 1,024 each: over how many samples is the gradient of one update averaged?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# $k$ is the number of samples per update over `base_batch`; it need not be a whole number. The rate is `base_lr` times
# `batch * accumulation * ranks / base_batch`.
#
# </details>


# %% solution="scaled_lr"
def scaled_lr(base_lr, base_batch, batch, accumulation=1, ranks=1):
    """The learning rate for a larger batch by the linear scaling rule, a float.

    Args:
        base_lr: rate that works with `base_batch` samples per update.
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
# In the paper's own experiment the rule brought the batch of 8,192 (32 times 256, rate 3.2 in place of 0.1) to an
# error of 23.7 %, against 23.6 % of the small batch. The unchanged rate had given 41.7 %, and a rate times
# $\sqrt{32}$, which keeps the variance of the update instead of its mean, 26.2 %.
#
# How much of the accuracy that the 16× batch lost does the rule win back in our case?

# %%
predicted_share_won_back_16 = None  # your number: 0 = nothing of the lost HR@10, 1 = all of it

# %% tags=["experiment"]
scaled_lr_now = course.solved(check.scaled_lr)
lr_16 = scaled_lr_now(sizes.base_lr, batches[0], batches[1])
runs["16×, linear rule"] = run_sgd(batches[1], lr_16)
summary(f"16×, rate {lr_16:g}", runs["16×, linear rule"])
won = (runs["16×, linear rule"].hit_rate[-1] - runs["16×, same rate"].hit_rate[-1]) / drop
print(f"share of the loss won back: {won:.2f}" + told(predicted_share_won_back_16))
plots.accuracy(runs, "16 times the batch, with and without the rule")

# %% [markdown]
# Lay the two upper curves over each other: with the rule the large batch follows the small one epoch for epoch, and
# look at the seconds it took. What was lost at 16 times the batch was the length of the walk, and a longer step
# gives it back.

# %% [markdown]
# Now 192 times the batch, and 192 times the rate. What will the curve of HR@10 do?

# %%
predicted_curve_192 = None  # your answer: "as the small batch", "slower", "stuck at chance" or "diverges"

# %% tags=["experiment"]
lr_192 = scaled_lr_now(sizes.base_lr, batches[0], batches[2])
runs_192 = {"1×": runs["1×"], "192×, linear rule": run_sgd(batches[2], lr_192)}
summary(f"192×, rate {lr_192:g}", runs_192["192×, linear rule"])
if predicted_curve_192:
    print(f"you said: {predicted_curve_192}")
plots.accuracy(runs_192, "192 times the batch, 192 times the rate")

# %% [markdown]
# A cross marks where a loss was no longer finite. Whether a run dies in its first steps or rises for some epochs
# before, it is useless: the rule promises that one long step ends where many short ones would, and with 192 steps in
# one the gradient at the start says nothing any more about the gradient at the end.
#
# Out of memory? Take a smaller `base_batch` in `course/device.py`, or accumulate gradients, the matter of exercise 14.

# %% [markdown]
# ## Warm-up
#
# **At the start the gradient changes fastest and the rule holds least, so the first steps get a smaller rate that
# grows to the full one.**
#
# The rule asks that the gradient stay nearly the same over $k$ small steps. Late in training it does; in the first
# epoch the network changes rapidly, and it does not. A rate of $k\alpha$ then does what the little table above showed
# in its last rows: the step $k\alpha\,\lVert \nabla f(w) \rVert$ is as long as the weights or longer, and what the
# network was started with is overwritten. Whether such a run recovers hangs on the initial weights and on the rate in
# a way that is hard to foresee: it may diverge, it may end in a region that it never leaves, it may get away with it.
# In the ImageNet experiment the batch of 8,192 without warm-up ended at 24.8 % instead of 23.7 %; a small constant
# rate for five epochs and then a jump did worse still, with 25.9 % (arXiv:1706.02677, table 1).
#
# The remedy: begin with a rate that is safe and let it grow. Two shapes are common, and you write both.
#
# - **Exponential**: the rate is multiplied by the same factor at each step, from 1 % of the target to the target. It
#   stays low for long and makes its largest jumps at the end. In the workshop from which this unit descends it takes
#   a tenth of an epoch.
# - **Linear**: the rate rises by the same amount at each step, from the small batch's rate to the large batch's. Goyal
#   et al. take five epochs.
#
# The length is given in epochs and counted in steps. A large batch has few steps in an epoch, so a tenth of an epoch
# may well be 4.5 steps, or less than one.

# %% [markdown]
# ### Exercise 7 · Exponential warm-up
#
# Compute the rate of a step: a ramp that grows by the same factor at each step, then the constant rate.
#
# **Points** 3 · **Difficulty** ●●○ · **Minutes** 10 · **Lines** 4
#
# **Convention** Steps count from 0 over the whole training, not from each epoch. The warm-up is `warmup_epochs *
# steps_per_epoch` steps long, which may be a fraction; do not round it. Step 0 has the rate `start * lr`; a step at
# or past the end has exactly `lr`. With a length of 0 every step has `lr`.
#
# **Source** The workshop notebook from which this unit descends, with its numbers: a tenth of an
# epoch, from a hundredth of the rate. The idea of raising the rate gradually: Goyal et al. 2017, arXiv:1706.02677,
# section 2.2.
#
# <details><summary>Hint 1</summary>
#
# If the rate is `0.01 * lr` at the start and `lr` at the end, and grows by equal factors, what is it halfway?
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
        lr: rate after the warm-up.
        warmup_epochs: length of the ramp in epochs, 0 or more; times `steps_per_epoch` it may be a fraction of a step.
        start: rate of step 0 as a share of `lr`.
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
# ### Exercise 8 · Linear warm-up
#
# Compute the rate of a step: from the small batch's rate by equal amounts to the large batch's, then constant.
#
# **Points** 2 · **Difficulty** ●○○ · **Minutes** 10 · **Lines** 4
#
# **Convention** Steps count from 0 over the whole training. Step 0 has exactly `base_lr`; step `warmup_epochs *
# steps_per_epoch`, which may be a fraction, and all after it have exactly `lr`; in between the rate lies on the
# straight line. Beware when you compare with other code: well-known sources use three conventions. The paper starts
# at the small batch's rate, as we do. The schedule of Hugging Face's transformers starts at 0, so that its first step
# changes nothing. nanoGPT (today) counts the step from 1 and divides by the length plus 1, so that neither 0 nor the
# full rate is part of the ramp.
#
# **Source** Goyal et al. 2017, arXiv:1706.02677, section 2.2, "gradual warmup" (five epochs).
#
# <details><summary>Hint 1</summary>
#
# How many equal amounts lie between `base_lr` and `lr` if the first rate belongs to step 0 and the last to step 10?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# As in exercise 7, first deal with steps at or past the end. On the ramp the rate is
# `base_lr + (lr - base_lr) * step / warmup_steps`.
#
# </details>


# %% solution="linear_warmup"
def linear_warmup(step, steps_per_epoch, base_lr, lr, warmup_epochs=5):
    """The learning rate of step `step`, a float: a straight line from `base_lr` to `lr`, then `lr`.

    Args:
        step: number of updates made before this one, from 0, over the whole training.
        steps_per_epoch: updates in an epoch.
        base_lr: rate of the small batch, which step 0 has.
        lr: rate after the warm-up.
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
# Side by side, over the same two epochs of five steps and up to the same rate of 1: look at the step in which each
# ramp passes half of the rate. The exponential one gets there late; it spends most of its steps near the bottom.

# %%
exponential_ramp = course.solved(check.exponential_warmup)
linear_ramp = course.solved(check.linear_warmup)
print("step   exponential   linear")
for step in range(12):
    print(f"{step:4d} {exponential_ramp(step, 5, 1.0, 2):13.3f} {linear_ramp(step, 5, 0.05, 1.0, 2):8.3f}")

# %% [markdown]
# With 192 times the batch, the rate of the linear rule, and the exponential ramp before it: what remains of the
# distance to the small batch?

# %%
predicted_hit_rate_192_warmup = None  # your number: the best HR@10 that any of three ramps reaches
predicted_survivors = None  # your number: how many of the three (exponential 0.1 and 1 epoch, linear 1 epoch) survive

# %% tags=["experiment"]
exponential = course.solved(check.exponential_warmup)
linear = course.solved(check.linear_warmup)
ramps = {
    "192×, exponential, 0.1 epochs": lambda step, n: exponential(step, n, lr_192, 0.1),
    "192×, exponential, 1 epoch": lambda step, n: exponential(step, n, lr_192, 1),
    "192×, linear, 1 epoch": lambda step, n: linear(step, n, sizes.base_lr, lr_192, 1),
}
for label, ramp in ramps.items():
    runs_192[label] = run_sgd(batches[2], lr_192, schedule=ramp)
    summary(label, runs_192[label])
best = max((rate for label in ramps for rate in runs_192[label].hit_rate if not math.isnan(rate)), default=math.nan)
print(f"best HR@10 on the way: {best:.3f}" + told(predicted_hit_rate_192_warmup))
print(f"runs that survived: {sum(not runs_192[label].diverged for label in ramps)} of 3" + told(predicted_survivors))
plots.accuracy(runs_192, "192 times the batch: warm-up")

# %% [markdown]
# Look for where each curve ends, and what it did just before. None of them survives, and those that live for some
# epochs die soon after HR@10 began to rise. So the wild part is not at the start here, as it was for Goyal et al.,
# whose warm-up won back what was lost; a ramp of one epoch is over when the trouble begins. A likely reason: while
# the embeddings are small the landscape is flat, and as the model learns they grow, until the full rate is too
# large for what the landscape has become. How long a run lives is also chance: another seed, even another number of
# threads, gives another picture, so do not rank the ramps by it. (A cross at 0: that run died before it was evaluated
# once.)

# %% [markdown]
# ## LARS: every layer its own rate
#
# **One learning rate for the whole network is a rate for its most sensitive layer; LARS gives each layer the rate that
# moves it by the same share of its own length.**
#
# The linear rule and the warm-up treat all parameters alike. At 192 times the batch that is where they end: the
# rate is now so large that for some layer a single update is as long as the weights themselves. Such a layer
# forgets what it has learned in one step, and the layers behind it see noise.
#
# What decides is the **update-to-weight ratio** of a layer, $\alpha\,\lVert g\rVert / \lVert w\rVert$: the length
# of its step over its own length. With one $\alpha$ for all, the ratio is as uneven as $\lVert g\rVert / \lVert
# w\rVert$. You, Gitman and Ginsburg looked at AlexNet after its first iteration and found that $\lVert w\rVert /
# \lVert g\rVert$ of its layers differs more than a hundredfold, the first convolution at the low end and a fully
# connected layer at the high one (arXiv:1708.03888, section 4). A rate that is safe for the one hardly moves the
# other.
#
# Before you look at NeuMF: take $\lVert g\rVert / \lVert w\rVert$ of every weight matrix at the start of training. By
# what factor do the largest and the smallest differ?

# %%
predicted_ratio_spread = None  # your number: largest ||g|| / ||w|| of a layer over the smallest


# %% tags=["experiment"]
def update_ratios(make_optimizer):
    """{parameter: norm of the first update / norm of the weights} on one large batch, for parameters that are not 0."""
    model = fresh_model()
    optimizer = make_optimizer(model.parameters())
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    generator = torch.Generator(course.device()).manual_seed(0)
    batch = next(training.epoch_batches(data, batches[2], sample_negatives_now, generator=generator))
    training.training_step(model, *batch, optimizer)
    moved = {name: (p.detach() - before[name]).norm() / before[name].norm() for name, p in model.named_parameters()}
    return {name: ratio.item() for name, ratio in moved.items() if 0 < ratio < math.inf}


ratios = {f"SGD, rate {lr_192:g}": update_ratios(lambda params: torch.optim.SGD(params, lr=lr_192))}
weights_only = [ratio / lr_192 for name, ratio in ratios[f"SGD, rate {lr_192:g}"].items() if "weight" in name]
spread = max(weights_only) / min(weights_only)
print(f"||g|| / ||w||: largest over smallest {spread:,.0f}" + told(predicted_ratio_spread))
plots.layer_ratios(ratios)

# %% [markdown]
# Every mark right of 1 (10⁰) is a tensor that its first update throws farther than it is long. One rate for all
# layers has to be small enough for the rightmost mark and leaves the leftmost almost where it was.

# %% [markdown]
# LARS (layer-wise adaptive rate scaling) multiplies the rate of each layer $l$ with a local rate, made from the two
# norms that it finds at this step. With trust coefficient $\eta$, weight decay $\beta$ and momentum $m$:
#
# $$\lambda^l = \eta\,\frac{\lVert w^l\rVert}{\lVert g^l\rVert + \beta\,\lVert w^l\rVert}, \qquad
# v^l \leftarrow m\,v^l + \alpha\,\lambda^l\,(g^l + \beta\,w^l), \qquad w^l \leftarrow w^l - v^l$$
#
# Leave out momentum and decay and work out the update-to-weight ratio: it is $\alpha\,\eta$ in every layer, whatever
# the gradient. Three things follow.
#
# - $\eta$ is small, 0.001 say, because it *is* the share by which a layer moves at rate 1. A rate tuned for SGD does
#   not carry over.
# - The length of the gradient no longer counts, only its direction. A gradient ten times too long does no harm, and a
#   gradient that fades away does not slow the layer down; the schedule has to do that.
# - Decay must stand in the denominator too. Otherwise the decayed update is longer than the trusted one.
#
# The authors report AlexNet with batches up to 8,192 and ResNet-50 up to 32,768 without losing accuracy against the
# small batch. They train with a polynomial decay of the rate and with warm-up: LARS does not replace either. What it
# does here, with embeddings in place of convolutions, the experiment below has to show.

# %% [markdown]
# ### Exercise 9 · LARS
#
# Write the update of LARS. The constructor and the handling of a closure are given: what is missing is the body of the
# loop over parameter groups. A group is a dictionary, `group["params"]` holds its parameters, and every setting of the
# constructor lies beside them under its own name.
#
# **Points** 6 · **Difficulty** ●●● · **Minutes** 30 · **Lines** 14
#
# **Convention** The norm is the Euclidean norm of one whole parameter tensor. The rate is *inside* the velocity: `v
# = momentum * v + lr * local * (g + weight_decay * w)`, then `w = w - v`, with `v = 0` before the first step; so a
# new `lr` holds for what is added from now on, not for what the velocity already carries (`torch.optim.SGD` does it
# the other way). Where the norm of `w` or of `g` is 0, the local rate is 1, so that a parameter that starts at zero
# still moves. With `exclude_1d=True` a parameter with `ndim <= 1` (bias, scale of a norm, scalar) gets plain
# momentum SGD: local rate 1 and no weight decay, the velocity as above. All settings are read from the group at
# every step. Parameters whose `grad` is None are left alone, gradients are not changed, and the velocity lies in
# `self.state[w]`, so that `state_dict` and `load_state_dict` carry it. Nothing has to wait for the
# GPU: do without `.item()` and `if` on a norm (good practice; the check does not count it).
#
# **Source** You, Gitman, Ginsburg 2017, "Large Batch Training of Convolutional Networks", arXiv:1708.03888, Algorithm
# 1. Leaving out the 1-D parameters is later practice and the guard against zero norms is ours; Algorithm 1 has
# neither.
#
# <details><summary>Hint 1</summary>
#
# What is the local rate of a bias that starts at zero, by the formula alone? How far will it ever get?
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
        lr: global rate; read from `param_groups` at every step, so that schedules work.
        momentum, weight_decay: as in SGD, except that the velocity holds the rate (see the convention).
        trust: share of its own norm by which a layer moves at lr = 1.
        exclude_1d: if True, parameters with ndim <= 1 get neither trust ratio nor weight decay.
    """

    def __init__(self, params, lr, momentum=0.9, weight_decay=0.0, trust=0.001, exclude_1d=True):
        settings = dict(lr=lr, momentum=momentum, weight_decay=weight_decay, trust=trust, exclude_1d=exclude_1d)
        super().__init__(params, settings)

    @torch.no_grad()
    def step(self, closure=None):
        """The loss that `closure` returns, or None; moves every parameter that has a gradient."""
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
# and with warm-up that you have seen?

# %%
predicted_lars_hit_rate = None  # your number: HR@10 at 192 times the batch with LARS and warm-up

# %% tags=["experiment"]
Lars = course.solved(check.LARS)


def warm_up_and_decay(lr):
    """Exponential warm-up to `lr` over one epoch, times a quadratic decay to zero at the end, as You et al. train."""
    return lambda step, n: exponential(step, n, lr, 1) * (1 - step / (sizes.epochs * n)) ** 2


def run_lars(**options):
    """The History of a fresh model under LARS; biases get a trust ratio too, at these rates they need one."""
    model = fresh_model()
    optimizer = Lars(model.parameters(), lr=sizes.lars_lr, momentum=0.9, exclude_1d=False)
    return run(model, optimizer, batches[2], schedule=warm_up_and_decay(sizes.lars_lr), **options)


runs_192["192×, warm-up and decay"] = run_sgd(batches[2], lr_192, schedule=warm_up_and_decay(lr_192))
runs_192["192×, LARS"] = run_lars()
compared = ("1×", "192×, exponential, 1 epoch", "192×, warm-up and decay", "192×, LARS")
shown = {label: runs_192[label] for label in compared}
for label, history in shown.items():
    summary(label, history)
print(f"HR@10 with LARS {runs_192['192×, LARS'].hit_rate[-1]:.3f}" + told(predicted_lars_hit_rate))
plots.accuracy(shown, "192 times the batch: LARS")

# %% tags=["experiment"]
ratios[f"LARS, rate {sizes.lars_lr:g}"] = update_ratios(lambda p: Lars(p, lr=sizes.lars_lr, exclude_1d=False))
plots.layer_ratios(ratios, "The first update: SGD and LARS")

# %% [markdown]
# In the second figure all marks of LARS stand on one vertical line: every tensor moves by the same share of its own
# length, rate times trust. (A tensor that starts at zero is not drawn.) In the first figure LARS leads after one epoch
# of eleven updates, where the small batch has made almost two thousand: the embeddings are small at first and so are
# their gradients, which hold SGD back and do not count for LARS.
#
# Two things to be fair about. The rate of LARS does not follow from the linear rule; it is the best of 20, 40, 80,
# 120 and 192 on the stand-in data. And part of the gain is the decay, which plain SGD can have as well: that is the
# third curve, with the best of the rates 12, 24, 48, 96 and 192. What is left between it and LARS is what the
# layer-wise rate is worth here.

# %% [markdown]
# ## Mixed precision: half the bits where they suffice
#
# **Sixteen bits halve the bytes and feed the matrix units, and fp16 pays for it with range: small gradients turn to
# zero unless the loss is scaled first.**
#
# A 16-bit number takes half the memory and half the bandwidth of a 32-bit one, and the matrix units of recent GPUs
# multiply it several times as fast. So with the same memory the batch can be larger, and a step that is bound by
# multiplying or by moving activations gets shorter. A step bound by small kernels, by Python or by the loader does
# not. For the model of this unit NVIDIA reports 22.6 million samples a second with fp32 weights on one A100 (products
# in TF32) and 34.1 million in mixed precision, a factor of 1.51 (reference 1; its table prints the ratio upside down).
#
# What is given up depends on how the 16 bits are dealt out. The exponent decides on the range, the fraction on the
# spacing:
#
# | format | exponent / fraction bits | largest | smallest normal | smallest above 0 | spacing at 1 |
# |---|---|---|---|---|---|
# | fp32 | 8 / 23 | 3.4e38 | 1.2e-38 | 1.4e-45 | 1.2e-7 |
# | fp16 | 5 / 10 | 65504 | 6.1e-5 | 6.0e-8 | 9.8e-4 |
# | bf16 | 8 / 7 | 3.4e38 | 1.2e-38 | 9.2e-41 | 7.8e-3 |
#
# bf16 is fp32 with its lower half cut off: the range stays, two to three decimal digits are left. fp16 keeps one
# digit more and loses the range. A gradient of 1e-8, nothing unusual with a mean over a large batch, is exactly 0 in
# fp16, and what is 0 trains nothing. Micikevicius et al. report that of the activation gradients of one detection
# network (Multibox SSD) 31 % of the values became zero in fp16, while most of the upper range of fp16 lay unused, and
# that the network diverged.
#
# The cure uses the unused range: multiply the loss by a constant before the backward pass. By the chain rule every
# gradient is multiplied by it; the optimizer divides it out again in fp32, where there is room. Too small a constant
# leaves zeros, too large a one overflows to `inf`.

# %% [markdown]
# ### Exercise 10 · What fp16 loses
#
# Say which share of the gradient values that are not zero becomes exactly zero in fp16, after they were multiplied by
# the loss scale in float32.
#
# **Points** 2 · **Difficulty** ●○○ · **Minutes** 10 · **Lines** 4
#
# **Convention** All values of all tensors are counted together, so a large tensor weighs more than a small one.
# Values that were 0 before do not count at all. A value that is kept with fewer bits (a subnormal) or that overflows
# to `inf` is not flushed. If no value is different from 0, the share is 0.0.
#
# **Source** Micikevicius et al. 2018, "Mixed Precision Training", arXiv:1710.03740, section 3.2 and figure 3.
#
# <details><summary>Hint 1</summary>
#
# Which values are the whole of which you want a share? Is a tensor with ten values worth as much as one with a
# million?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Do not compare with a limit from the table: rounding decides at the edge. Cast with `.half()` and look what is zero.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# `g = torch.cat([...flatten()...])`, `alive = g[g != 0]`, then the zeros of `(alive * loss_scale).half()` over
# `len(alive)`, with the case of an empty `alive` held apart.
#
# </details>


# %% solution="flushed_share"
def flushed_share(gradients, loss_scale=1.0):
    """Share of the non-zero values that become exactly zero when multiplied by `loss_scale` and cast to fp16.

    Args:
        gradients: list of float32 tensors of any shapes, all on one device.
        loss_scale: factor by which the values are multiplied in float32 before the cast.

    Returns: a float from 0.0 to 1.0; 0.0 if every value is zero.
    """
    ### BEGIN SOLUTION
    values = torch.cat([g.flatten() for g in gradients])
    alive = values[values != 0]
    flushed = (alive * loss_scale).half() == 0
    return flushed.sum().item() / max(len(alive), 1)
    ### END SOLUTION


# %% test="flushed_share-visible" points=1
check.flushed_share(flushed_share)

# %% test="flushed_share-hidden" points=1
### BEGIN HIDDEN TESTS
check.flushed_share(flushed_share, seed=10)
### END HIDDEN TESTS

# %% [markdown]
# ### Exercise 11 · The loss scale that saves them
#
# The larger the scale, the fewer zeros; the limit is the largest gradient, which must not overflow. Find the largest
# power of two that still leaves headroom.
#
# **Points** 2 · **Difficulty** ●○○ · **Minutes** 10 · **Lines** 4
#
# **Convention** The result is the largest $s = 2^k$, $k$ a whole number of either sign, with
# $\max\lvert g\rvert \cdot s \cdot \mathrm{headroom} \le 65504$, equality allowed. Powers of two, because multiplying
# by one and dividing by it again changes no digit. If all gradients are zero, every scale is safe: return 1.0.
#
# **Source** Micikevicius et al. 2018, arXiv:1710.03740, section 3.2: choose a factor such that its product with the
# largest gradient stays below 65504.
#
# <details><summary>Hint 1</summary>
#
# Solve the inequality for $s$. Of the powers of two below that number, which one is the largest, and which function of
# `math` gives its exponent?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# The largest *magnitude* may belong to a negative value, in any of the tensors. And the exponent may be negative.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# `2.0 ** math.floor(math.log2(65504 / (peak * headroom)))`, after the case `peak == 0`.
#
# </details>


# %% solution="largest_safe_scale"
def largest_safe_scale(gradients, headroom=2.0):
    """The largest power of two by which the gradients can be multiplied without overflow in fp16.

    Args:
        gradients: list of finite float32 tensors of any shapes.
        headroom: factor by which the gradients may still grow before they overflow.

    Returns: a float s = 2**k with max|g| * s * headroom <= 65504; 1.0 if every gradient is zero.
    """
    ### BEGIN SOLUTION
    peak = max(g.abs().max().item() for g in gradients)
    if peak == 0:
        return 1.0
    return 2.0 ** math.floor(math.log2(65504 / (peak * headroom)))
    ### END SOLUTION


# %% test="largest_safe_scale-visible" points=1
check.largest_safe_scale(largest_safe_scale)

# %% test="largest_safe_scale-hidden" points=1
### BEGIN HIDDEN TESTS
check.largest_safe_scale(largest_safe_scale, seed=11)
### END HIDDEN TESTS

# %% [markdown]
# Look at the gradients of NeuMF with a large batch. Which share of them would fp16 flush to zero without scaling, and
# from which scale on would less than one in a thousand be lost?

# %%
predicted_share = None  # your number: share of NeuMF's gradient values that fp16 flushes, unscaled
predicted_scale = None  # your number: the scale that saves all but one in a thousand, such as 2**5

# %% tags=["experiment"]
flushed_share_now = course.solved(check.flushed_share)
largest_safe_scale_now = course.solved(check.largest_safe_scale)
model = fresh_model("nvidia")
optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
generator = torch.Generator(course.device()).manual_seed(0)
batch = next(training.epoch_batches(data, batches[1], sample_negatives_now, generator=generator))
training.training_step(model, *batch, optimizer)
gradients = [p.grad for p in model.parameters()]
unscaled = flushed_share_now(gradients)
saves = next((2.0**e for e in range(40) if flushed_share_now(gradients, 2.0**e) < 0.001), math.inf)
safe = largest_safe_scale_now(gradients)
print(f"flushed to zero without scaling: {100 * unscaled:.1f} %" + told(predicted_share))
print(f"fewer than one in a thousand from scale 2^{math.log2(saves):.0f} = {saves:g} on" + told(predicted_scale))
print(f"largest safe scale: 2^{math.log2(safe):.0f}, flushed there: {100 * flushed_share_now(gradients, safe):.3f} %")
plots.gradient_histogram(gradients, safe)

# %% [markdown]
# Look at what lies left of the first boundary: these values are zero in fp16, and between the boundaries they keep
# only some of their digits. The weights behind them learn from rounding errors or not at all. Multiplying the loss
# by a power of two shifts the histogram to the right without changing its shape, as far as the dashed line allows.
# Most of a recommender's gradient survives unscaled; in the detector that the paper examined nearly a third did
# not.

# %% [markdown]
# ### Exercise 12 · A loss scaler that finds its scale
#
# Nobody wants to look at histograms in every run, and gradients shrink during training. A dynamic scaler tries: it
# starts high, and when a gradient overflows it throws that step away and halves the scale. When a long run of steps
# went well, it doubles the scale again. One training step then reads
#
# ```python
# scaler.scale(loss).backward()
# scaler.unscale_(optimizer)                # only needed if something looks at the gradients, such as clipping
# torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
# stepped = scaler.step(optimizer)
# scaler.update()
# ```
#
# Write its four methods. They are those of `torch.amp.GradScaler`, for one optimizer, so that you know afterwards what
# that class does for you.
#
# **Points** 6 · **Difficulty** ●●● · **Minutes** 30 · **Lines** 24
#
# **Convention** `unscale_` divides every gradient by the scale, in place, and notes whether any is `inf` or `nan`.
# Between two calls of `update` gradients are divided once: a second `unscale_` either does nothing or raises a
# RuntimeError as torch does, as you like, and `step` divides only if `unscale_` was not called. `step` returns True
# if it called `optimizer.step()`, and False, without calling it, if an overflow was noted. `update` is called once
# after each `step`: after a bad one the scale is multiplied by `backoff` and the count of good steps starts at 0;
# with the `growth_interval`-th good step in a row it is multiplied by `growth` and the count starts at 0 again.
#
# **Not allowed** `torch.amp.GradScaler`, under any of its names.
#
# **Source** Micikevicius et al. 2018, arXiv:1710.03740, section 3.2, last paragraphs; the documentation of
# `torch.amp.GradScaler`, from which the defaults come.
#
# <details><summary>Hint 1</summary>
#
# What must the object remember from `unscale_` to `step`, from `step` to `update`, and from one update to the next?
# Can one attribute say both "not unscaled yet" and "unscaled, all finite"?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Clipping by value turns an `inf` into a harmless-looking number. When must the scaler look, so as not to be fooled?
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# Keep `self.overflow = None` until `unscale_` has run. In `unscale_`: return if it is not None; collect the gradients
# of all groups; `div_` each; `self.overflow = not all(...isfinite()...)`. `step` calls `unscale_` and looks at it,
# `update` looks at it and sets it back to None.
#
# </details>


# %% solution="LossScaler"
class LossScaler:
    """A dynamic loss scale for fp16, for one optimizer: starts high, backs off on overflow, grows after good steps.

    Args:
        init_scale: the scale before the first update.
        growth: factor after `growth_interval` good steps in a row.
        backoff: factor after a step whose gradients held inf or nan.
        growth_interval: number of good steps in a row after which the scale grows.
    """

    def __init__(self, init_scale=2.0**16, growth=2.0, backoff=0.5, growth_interval=2000):
        ### BEGIN SOLUTION
        self.factor = init_scale
        self.growth, self.backoff, self.growth_interval = growth, backoff, growth_interval
        self.good_steps = 0
        self.overflow = None  # None until unscale_ has run, then whether a gradient was inf or nan
        ### END SOLUTION

    def scale(self, loss):
        """`loss` times the current scale, differentiable."""
        ### BEGIN SOLUTION
        return loss * self.factor
        ### END SOLUTION

    def unscale_(self, optimizer):
        """None; divides the gradients of `optimizer` by the scale in place, once per update, and notes inf and nan."""
        ### BEGIN SOLUTION
        if self.overflow is not None:
            return
        params = [p for group in optimizer.param_groups for p in group["params"]]
        gradients = [p.grad for p in params if p.grad is not None]
        for g in gradients:
            g.div_(self.factor)
        self.overflow = not all(g.isfinite().all() for g in gradients)  # the sync point: Python has to know
        ### END SOLUTION

    def step(self, optimizer):
        """True if `optimizer` stepped with unscaled gradients, False if the step was skipped because of inf or nan."""
        ### BEGIN SOLUTION
        self.unscale_(optimizer)
        if not self.overflow:
            optimizer.step()
        return not self.overflow
        ### END SOLUTION

    def update(self):
        """None; changes the scale according to the step that was just made, and allows the next unscale_."""
        ### BEGIN SOLUTION
        self.good_steps += 1
        if self.overflow:
            self.factor *= self.backoff
            self.good_steps = 0
        elif self.good_steps == self.growth_interval:
            self.factor *= self.growth
            self.good_steps = 0
        self.overflow = None
        ### END SOLUTION


# %% test="LossScaler-visible" points=3
check.LossScaler(LossScaler)

# %% test="LossScaler-hidden" points=3
### BEGIN HIDDEN TESTS
check.LossScaler(LossScaler, seed=12)
### END HIDDEN TESTS

# %% [markdown]
# ### Exercise 13 · The training step under autocast
#
# You know now what happens inside; `torch.amp` brings it ready-made. `autocast` chooses for every operation of the
# forward pass whether it runs in 16 bits (matrix products) or in 32 (sums, logarithms); the weights stay in fp32.
# Write the training step with it.
#
# **Points** 4 · **Difficulty** ●●○ · **Minutes** 15 · **Lines** 7
#
# **Convention** The device type is that of `labels`. The 16-bit type is fp16 on CUDA and bf16 on the CPU, which are
# `autocast`'s own defaults. `model(users, items)` gives logits of shape `(n,)`; it runs under autocast, the backward
# pass does not, and the loss is computed from the logits in float32. `scaler` is a `torch.amp.GradScaler`, disabled
# on the CPU: then it hands everything through, so the same lines serve both. Gradients of an earlier batch must not
# count, and are set to None rather than to 0. Returned is the unscaled mean loss, detached. Take `torch.amp`, not the
# older `torch.cuda.amp`, which is deprecated.
#
# **Source** PyTorch documentation, "Automatic Mixed Precision examples", typical training; Micikevicius et al. 2018,
# arXiv:1710.03740.
#
# <details><summary>Hint 1</summary>
#
# Which of the five things that a training step does (clear gradients, forward, loss, backward, update) run under
# autocast, and which of them does the scaler take over?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# The scaler has three calls: one makes a larger loss for the backward pass, one stands in place of `optimizer.step()`,
# and one comes last.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# Clear with `optimizer.zero_grad()`, which sets to None; `with torch.amp.autocast(labels.device.type):` around the
# model only; the loss from `logits.float()`; `scaler.scale(loss).backward()`, `scaler.step(optimizer)`,
# `scaler.update()`.
#
# </details>


# %% solution="amp_step"
def amp_step(model, users, items, labels, optimizer, scaler):
    """Mean loss of the batch; makes one training step in mixed precision.

    Args:
        model: called with (users, items), gives logits (n,).
        users, items: int64 tensors (n,).  labels: float32 tensor (n,) of zeros and ones, on the same device.
        optimizer: holds the parameters of `model`.
        scaler: torch.amp.GradScaler, enabled on CUDA and disabled on the CPU.

    Returns: float32 tensor of shape (), detached and unscaled.
    """
    ### BEGIN SOLUTION
    optimizer.zero_grad()  # sets to None: what the model does not use is left alone
    with torch.amp.autocast(labels.device.type):
        logits = model(users, items)
    loss = F.binary_cross_entropy_with_logits(logits.float(), labels)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    return loss.detach()
    ### END SOLUTION


# %% test="amp_step-visible" points=2
check.amp_step(amp_step)

# %% test="amp_step-hidden" points=2
### BEGIN HIDDEN TESTS
check.amp_step(amp_step, seed=13)
### END HIDDEN TESTS

# %% [markdown]
# Your step fits the training loop as `functools.partial(amp_step, scaler=...)`. How much faster will the large
# batch train with it on the machine you sit at, and what will it cost in HR@10? On a CPU the answer depends on
# whether it has instructions for bf16.

# %%
predicted_amp_speedup = None  # your number: samples/s with autocast over samples/s in fp32
predicted_amp_change = None  # your number: HR@10 with autocast minus HR@10 in fp32

# %% tags=["experiment"]
amp_step_now = course.solved(check.amp_step)
on_cuda = course.device().type == "cuda"


def with_amp():
    """A step for training.train that runs under autocast, with a scaler of its own."""
    return functools.partial(amp_step_now, scaler=torch.amp.GradScaler(course.device().type, enabled=on_cuda))


runs_192["192×, LARS, autocast"] = run_lars(step=with_amp())
for label in ("192×, LARS", "192×, LARS, autocast"):
    summary(label, runs_192[label])
change = runs_192["192×, LARS, autocast"].hit_rate[-1] - runs_192["192×, LARS"].hit_rate[-1]
print(f"change of HR@10: {change:+.3f}" + told(predicted_amp_change))
print("\nthroughput of NeuMF with NVIDIA's sizes (64 factors, tower 256-256-128-64), runs in turn:")
ratios_amp = []
for _ in range(sizes.amp_pairs):
    pair = []
    for step in (None, with_amp()):
        model = fresh_model("nvidia")
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
        timed = run(model, optimizer, batches[1], mode="perf", max_steps=sizes.amp_steps, repeats=1, step=step)
        pair += timed.throughput
    ratios_amp.append(pair[1] / pair[0])
    print(f"  fp32 {pair[0]:>12,.0f}   autocast {pair[1]:>12,.0f} samples/s   ratio {ratios_amp[-1]:.2f}")
middle = sorted(ratios_amp)[len(ratios_amp) // 2]
print(f"median ratio {middle:.2f}" + told(predicted_amp_speedup), f"({course.machine()})")
shown = {label: runs_192[label] for label in ("1×", "192×, LARS", "192×, LARS, autocast")}
plots.accuracy(shown, "192 times the batch: autocast")

# %% [markdown]
# Two questions, two answers. *Accuracy*: bf16 keeps eight bits of a number, fp16 eleven. Weights and optimizer stay
# in fp32, only products are rounded. The two runs do not take the same path, because rounding is noise too; judge the
# difference of their ends by what chance alone does: with 943 test users a hit rate of 0.7 has a standard error of
# 0.015. *Speed* depends on the machine: where the processor has units for half precision (tensor cores on a GPU,
# AVX-512-BF16 or AMX on a CPU) large layers gain; where it has none, the conversions cost more than they save and the
# ratio is below 1.

# %% [markdown]
# ## Gradient accumulation: the large batch that does not fit
#
# **The gradient of a mean is a weighted mean of gradients, so a batch of any size can be had in pieces: the same
# update, at the price of time.**
#
# If memory holds only a part of the batch, take its gradient part by part. `backward()` *adds* to `grad`, so only two
# things need care: each part is weighted with its share of the rows, and the optimizer waits for the last one. The
# result is the large batch's update, to rounding. (A layer that looks at the whole batch, such as batch norm, sees
# the parts; NeuMF has none. Dropout draws other random numbers, as it does in every step.) It saves activations, not
# time: the multiplications stay the same, in smaller pieces. To find out what a batch *would* do to accuracy, before
# anybody pays for the hardware, it is just right.

# %% [markdown]
# ### Exercise 14 · Accumulated step
#
# Make one training step on the whole batch, with never more than `micro_batch` rows in a forward pass.
#
# **Points** 4 · **Difficulty** ●●○ · **Minutes** 15 · **Lines** 10
#
# **Convention** The parts are as few as possible; the last one may be smaller, and every row has the same weight in
# the mean. Each part's backward pass runs before the next part's forward pass, otherwise the activations of all parts
# lie in memory together and nothing is saved. One `optimizer.step()` at the end. Gradients of an earlier batch must
# not count, and are set to None rather than to 0. Returned is the mean loss of the whole batch, as a detached tensor.
#
# **Source** Goyal et al. 2017, "Accurate, Large Minibatch SGD", arXiv:1706.02677, section 3: the loss is a mean over
# the whole minibatch, so the normalisation belongs to the whole size and not to the part's.
#
# <details><summary>Hint 1</summary>
#
# 10 rows in parts of 4, 4 and 2: by what must the mean losses of the three parts be multiplied, so that their sum is
# the mean of the ten?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# A slice may end behind the end of a tensor, so the smaller last part needs no case of its own. With `reduction="sum"`
# you need one division, by the same number for every part.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# In the loop over `range(0, len(labels), micro_batch)`, with `rows = slice(start, start + micro_batch)`: the sum of
# the losses of these rows divided by `len(labels)`, its `backward()`, and the running total of `loss.detach()`.
#
# </details>


# %% solution="accumulated_step"
def accumulated_step(model, users, items, labels, optimizer, micro_batch):
    """Mean loss of the batch; makes the training step of the whole batch from parts of at most `micro_batch` rows.

    Args:
        model: called with (users, items), gives logits.
        users, items: int64 tensors (n,).  labels: float32 tensor (n,) of zeros and ones, on the same device.
        optimizer: holds the parameters of `model`; steps once.
        micro_batch: most rows of one forward pass, at least 1.

    Returns: float32 tensor of shape (), detached.
    """
    ### BEGIN SOLUTION
    optimizer.zero_grad()
    total = 0.0
    for start in range(0, len(labels), micro_batch):
        rows = slice(start, start + micro_batch)
        loss = F.binary_cross_entropy_with_logits(model(users[rows], items[rows]), labels[rows], reduction="sum")
        loss = loss / len(labels)  # of the whole batch: every row weighs the same
        loss.backward()
        total += loss.detach()
    optimizer.step()
    return total
    ### END SOLUTION


# %% test="accumulated_step-visible" points=2
check.accumulated_step(accumulated_step)

# %% test="accumulated_step-hidden" points=2
### BEGIN HIDDEN TESTS
check.accumulated_step(accumulated_step, seed=14)
### END HIDDEN TESTS

# %% [markdown]
# ## The critical batch: where more stops helping
#
# **Up to some batch size, twice the batch means half the updates; far beyond it, twice the batch only means twice the
# work.**
#
# A small batch gives a noisy gradient, and averaging over more rows makes it better. Once the mean stands clear of
# the noise, more rows say what is known already. Shallue et al. (arXiv:1811.03600) measured the number of updates to
# a fixed quality over many tasks and found the same three regions each time: perfect scaling, diminishing returns, a
# plateau. McCandlish et al. (arXiv:1812.06162) predict the bend from the ratio of the gradient's variance to its
# squared length, and observe that it grows during training. So there are two answers to "how large": by *updates*,
# the bend; by *seconds*, the batch at which a step begins to take longer. The second depends on the machine, the
# first does not.
#
# From which batch size on will doubling save clearly less than half of the updates to the target?

# %%
predicted_critical_batch = None  # your number: batch size at which doubling stops saving half of the updates

# %% tags=["experiment"]
sweep = [sizes.base_batch * k for k in (1, 4, 16, 64, 192)]
updates_to_target, seconds_to_target = [], []
for batch_size in sweep:
    best = None
    for share in (1, 0.5, 0.25):  # every batch with the rate that suits it best: the rule's, a half, a quarter
        rate = share * scaled_lr_now(sizes.base_lr, sizes.base_batch, batch_size)
        history = run_sgd(
            batch_size, rate, epochs=sizes.target_epochs, target=sizes.target, evaluate_every=0.5,
            schedule=lambda step, n, rate=rate: exponential(step, n, rate, 0.5),
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
print(f"largest batch with less than twice the least work: {critical:,}" + told(predicted_critical_batch))
print(course.machine())
plots.critical_batch(sweep, updates_to_target, seconds_to_target)

# %% [markdown]
# Left: as long as the points follow the dashed line, a batch twice as large needs half the updates and nothing is
# lost. Where they leave it lies the critical batch. Right: what this means in time. The seconds fall as long as the
# batch is below critical *and* a larger batch still has the higher throughput; after that every further sample in
# the batch is paid for and buys nothing. The grid of rates is coarse (three for each batch), so read the bend, not
# the third digit.

# %% [markdown]
# ## A bug in the wild
#
# **An optimizer can run, lower the loss, and still never train a part of the network: only an experiment aimed at
# that part shows it.**
#
# The workshop from which this unit descends lists a public implementation of LARS (reference 6). The class below
# behaves as that code did when this course was written, rebuilt in our own lines. It holds several faults. Two of them
# you are to find, show and mend: one keeps parameters from moving, the other sits in the schedule.


# %% locked="wild_lars"
def wild_decay(step, max_steps, lr):
    """The rate at `step`, as found in the wild."""
    return lr * (1 - step / max_steps) ** 2


class WildLARS(torch.optim.Optimizer):
    """LARS as found in the wild, schedule inside.  Do not use it."""

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
# ### Exercise 15a · Show it
#
# A claim about a bug is worth an experiment that anyone can run. Write one that says, for any optimizer class,
# whether a bias that starts at zero and always gets a gradient never moves. It must accuse `WildLARS` and acquit your
# `LARS`.
#
# **Points** 3 · **Difficulty** ●●○ · **Minutes** 15 · **Lines** 6
#
# **Convention** The bias is a one-dimensional float32 parameter. It is made as `optimizer_class([bias], lr=...)` or
# as part of a model that you choose; no other setting is passed. Give the optimizer ten steps, some begin slowly,
# with a gradient that is not zero. Any change from zero counts as moving, however small. True means "it never moves".
#
# **Source** The fault was found by running noahgolmant/pytorch-lars on GitHub (reference 6) on a zero-initialised
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
# `optimizer.step()`; at the end ask whether any element of `bias` differs from 0, and mind which way round the answer
# goes.
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
# ### Exercise 15b · Mend the schedule
#
# Draw `wild_decay(step, 5, 1.0)` for steps 0 to 15, or compute it at step 14. The counter that `WildLARS` calls an
# epoch goes up by one with every *step*, so any real training runs past the end of the schedule, and there the rate
# does something nobody asked for. Write the decay so that it is right everywhere.
#
# **Points** 2 · **Difficulty** ●○○ · **Minutes** 5 · **Lines** 1
#
# **Convention** `step` counts from 0 in optimizer steps: step 0 has the full rate `lr`, `max_steps` and every later
# step has exactly 0.0. In between the rate is `lr * (1 - step / max_steps) ** power`, with any `power > 0`, also 0.5
# or 3. It never rises.
#
# **Source** You, Gitman, Ginsburg 2017, arXiv:1708.03888, the experiments (polynomial decay with power 2); the
# fault is that of noahgolmant/pytorch-lars (reference 6).
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
        lr: rate at step 0.  power: any number above 0.

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
# ## Is it the right model?
#
# **The largest speed-up can be a simpler model: before scaling one, measure what a plain baseline reaches with the
# same care.**
#
# NeuMF came with the claim that a network learns a better match of user and item than their dot product. Rendle,
# Krichene, Zhang and Anderson (arXiv:2005.09683) tuned the dot product with the same effort and report that it wins
# on the same data and splits. It is also cheaper to train and to serve. That is a claim about their tuning and their
# data; what holds here, the next plot shows.

# %%
predicted_dot_product = None  # your number: HR@10 of the plain dot product minus HR@10 of NeuMF

# %% tags=["experiment"]
contest = {}
for label, make, lr in (
    ("NeuMF, 8 factors", lambda: fresh_model(), 1e-2),
    ("dot product, 16 factors", lambda: models.DotProduct(data.n_users, data.n_items, 16).to(course.device()), 3e-3),
):
    torch.manual_seed(0)
    model = make()
    contest[label] = run(model, torch.optim.Adam(model.parameters(), lr=lr), batches[1])
    summary(label, contest[label])
gain = contest["dot product, 16 factors"].hit_rate[-1] - contest["NeuMF, 8 factors"].hit_rate[-1]
print(f"dot product minus NeuMF: {gain:+.3f}" + told(predicted_dot_product))
plots.accuracy(contest, "NeuMF and the plain dot product, Adam")

# %% [markdown]
# The dot product has 17 numbers a user, NeuMF 40. One run each, one seed, each with the best of the rates 0.001, 0.003
# and 0.01 (by the last epoch, on the stand-in). Look at the best point of each curve and not only at the last: the one
# that learns faster also begins earlier to fit what does not repeat. Differences of a hundredth mean nothing, and the
# stand-in is *made* from low-dimensional tastes, so that a dot product finds them again is no surprise. Real data are
# the better judge.
# MovieLens 1M with the published split, Adam, 20 epochs, HR@10 / NDCG@10 of the last one (`docs/results.md` has the
# commands, the tuning and the doubts):
#
# | | 8 factors | 32 factors | 64 factors |
# |---|---|---|---|
# | NeuMF | 0.685 / 0.410 | 0.704 / 0.431 | not run |
# | dot product | 0.641 / 0.377 | 0.709 / 0.434 | 0.722 / 0.446 |
#
# The claim holds there if the dot product may have its factors: with 64 of them it keeps 65 numbers a user, fewer
# than half of the 160 of NeuMF with 32. With 8 factors each NeuMF is ahead.

# %% [markdown]
# ## What else can we do?
#
# **Scaling the batch is one lever of several; which one is next depends on what the measurements above say is the
# limit.**
#
# ### Exercise 16 · What else can we do?
#
# Somebody gives you four times the hardware and asks for a shorter training time at the same HR@10. Name at least
# three measures that this unit has not used. Say for each what it changes, what limits it, and which measurement
# would convince you. Refer to at least one number or plot of *your* run. About 200 words.
#
# **Points** 4, graded by hand.

# %% [markdown] answer="what_else" points=4
# <!-- BEGIN SOLUTION -->
# The curve of updates against batch size bends at the critical batch; beyond it a larger batch costs samples and
# saves hardly any updates. So first I would read off where my run stands.
#
# *Below the bend: more rows at a time, on more devices.* With data parallelism (unit 02) each of four ranks takes a
# quarter of the batch and the gradients are averaged. The limit is the all-reduce: embedding tables are large, and
# only the rows of the batch have gradients. I would measure samples/s with 1, 2 and 4 ranks at a fixed batch per rank
# and look at the gap to the straight line. If the network is slow, post-local SGD (Lin et al. 2020) averages the
# weights every few steps only.
#
# *Around the bend: move it.* The gradient noise grows as the loss falls (McCandlish et al. 2018), so a batch that is
# too large at the start can be right later: raise the batch where one would lower the rate (Smith et al. 2018). LAMB
# (You et al. 2020) puts LARS's ratio on top of Adam, which suits embeddings with rare rows. I would compare epochs
# and seconds to the same HR@10, with each method's rate tuned anew and three seeds.
#
# *Beyond it: make each step cheaper.* A fused or foreach optimizer and `torch.compile` save kernel launches, which
# count when the batch is small; a faster loader or data that already lie on the device (unit 04) count when the
# device waits. A profile of ten steps tells which. Label smoothing or tuned negatives may reach the target in fewer
# epochs, and the dot product reaches its HR@10 with a fraction of the work: the cheapest step is the one that is not
# needed.
#
# === BEGIN MARK SCHEME ===
# **1 point** for at least three measures that the unit did not use, each with what it changes. Examples:
# data-parallel ranks, batch-size schedule, LAMB or another layer-wise method, post-local SGD, label smoothing,
# better loader, `torch.compile`, fused optimizer, larger learning rate with longer warm-up *and* a reason, sampled
# or sparse embedding gradients, a cheaper model. Warm-up, LARS, AMP or accumulation under another name do not
# count.
#
# **1 point** for the limits: at least two of the measures with a cause that ends them (communication, critical batch,
# noise, memory, launch overhead, retuning), not just "may not work".
#
# **1 point** for a number or plot of the learner's own run, used as an argument: e.g. "my critical batch is at 16
# times, so more rows will not help". A number that is only quoted earns half.
#
# **1 point** for a measurement that could fail: what is compared, what is held fixed, to what target (time *to the
# same quality*, not samples/s alone), repeated.
#
# Take off 1 point for a speed-up that is claimed as measured but was not. No points for length or for the number of
# papers.
# === END MARK SCHEME ===
# <!-- END SOLUTION -->

# %% [markdown]
# ## References
#
# 1. NVIDIA, Deep Learning Examples: Neural Collaborative Filtering for PyTorch.
#    [Recommendation/NCF](https://github.com/NVIDIA/DeepLearningExamples/tree/master/PyTorch/Recommendation/NCF)
# 2. P. Micikevicius et al., Mixed Precision Training, ICLR 2018. [arXiv:1710.03740](https://arxiv.org/abs/1710.03740)
# 3. Y. You, I. Gitman, B. Ginsburg, Large Batch Training of Convolutional Networks, 2017.
#    [arXiv:1708.03888](https://arxiv.org/abs/1708.03888)
# 4. S. L. Smith, P.-J. Kindermans, C. Ying, Q. V. Le, Don't Decay the Learning Rate, Increase the Batch Size,
#    ICLR 2018. [arXiv:1711.00489](https://arxiv.org/abs/1711.00489)
# 5. P. Goyal et al., Accurate, Large Minibatch SGD: Training ImageNet in 1 Hour, 2017.
#    [arXiv:1706.02677](https://arxiv.org/abs/1706.02677)
# 6. N. Golmant, pytorch-lars. [github.com/noahgolmant/pytorch-lars](https://github.com/noahgolmant/pytorch-lars)
# 7. X. He et al., Neural Collaborative Filtering, WWW 2017. [arXiv:1708.05031](https://arxiv.org/abs/1708.05031)
# 8. S. Rendle, W. Krichene, L. Zhang, J. Anderson, Neural Collaborative Filtering vs. Matrix Factorization Revisited,
#    RecSys 2020. [arXiv:2005.09683](https://arxiv.org/abs/2005.09683)
# 9. C. J. Shallue et al., Measuring the Effects of Data Parallelism on Neural Network Training, JMLR 2019.
#    [arXiv:1811.03600](https://arxiv.org/abs/1811.03600)
# 10. S. McCandlish, J. Kaplan, D. Amodei et al., An Empirical Model of Large-Batch Training, 2018.
#     [arXiv:1812.06162](https://arxiv.org/abs/1812.06162)
# 11. Y. You et al., Large Batch Optimization for Deep Learning: Training BERT in 76 minutes, ICLR 2020.
#     [arXiv:1904.00962](https://arxiv.org/abs/1904.00962)
# 12. T. Lin, S. U. Stich, K. K. Patel, M. Jaggi, Don't Use Large Mini-Batches, Use Local SGD, ICLR 2020.
#     [arXiv:1808.07217](https://arxiv.org/abs/1808.07217)
