# %% [markdown]
# # Large batches, part 1: From ratings to an honest score
#
# **When does a score say that a recommender is good?**
#
# This unit enlarges the batch until accuracy drops, and then wins it back. That needs an accuracy that can be trusted.
# Here you build it for a recommender: choose which ratings the model may see, draw the films that it is told users did
# not choose, and score its ranking. Each step has a typical mistake that makes a bad model look good.
#
# All four exercises are extra. If you came for large batches, read the section on Neural Collaborative Filtering
# without its exercise (it is marked extra because the exercise is), and go to part 2. Later cells fall back on the
# reference solution if your copy of the course includes it.
#
# **You will be able to**
#
# - split interactions by time, so that no model sees its users' future;
# - draw negatives that are never positives in disguise;
# - write the forward pass of NeuMF;
# - compute HR@10 and NDCG@10 that ties, duplicates and NaN cannot flatter;
# - tune on one held-out choice per user and report another;
# - compare two recommenders with a baseline and with the standard error.
#
# **Minutes** 5 core · 105 in all
#
# **Needs** nothing

# %% locked="setup"
import math

import torch
from torch.nn import functional as F

import course
from course.checks import large_batch as check
from course.learner.predictions import reveal
from course.plots import large_batch as plots
from course.training import models
from course.training.recommender import CONSTANT_LOSS, Experiment, print_log, print_run

print(course.machine())

# %% [markdown]
# ## What people chose, and what they did not
#
# **Implicit feedback says what a user chose; it never says what a user dislikes.**
#
# MovieLens holds ratings: user, film, stars, time. We want to predict which film a user will pick next, not the stars.
# So every rating becomes a 1, "this user chose this film", and the stars are dropped. This is called *implicit
# feedback*. Two questions follow from it.
#
# - **What to test on?** A row taken at random would let the model learn from a user's future. The usual protocol keeps
#   the *latest* interaction of every user for the test and trains on all that came before: leave-one-out.
# - **Where do the zeros come from?** The data have none. So we draw them: for every positive of an epoch, four items
#   that the user has not touched, new ones in each epoch. Such a *negative* is a guess; some are films that the user
#   would have liked. A negative that is one of the user's positives, however, is a plain error in the labels.

# %% [markdown]
# ### Exercise 1 · Leave one out
#
# Split interactions in two: each user's latest, held out, and all others. The course calls your function for the test,
# and once more on the rest for validation.
#
# **Must**
# - return two masks over the rows, (rest, latest); every row is in exactly one;
# - hold out one row per user; of several rows at the user's latest time, the one that stands last in the tensors;
# - work without a Python loop over users.
#
# **You may assume** user numbers of 0 or more, possibly with gaps; whole seconds, possibly negative. The rows are not
# sorted.
#
# **Points** 3 · **Extra** · **Difficulty** ●●○ · **Minutes** 25 · **Lines** 6
#
# **Source** He et al. 2017, arXiv:1708.05031, section 4.1 (the rule for equal times is ours).
#
# <details><summary>Hint 1</summary>
#
# If you knew the latest time of every user, which rows would still be in question?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `zeros.scatter_reduce(0, users, values, "amax")` is a maximum for each user, without a loop. The zeros that you start
# from would win against negative times; `include_self=False` leaves them out.
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
    """Each user's latest interaction, held out, and all others.

    Args:
        users: int64 tensor (n,), user numbers of 0 or more, possibly with gaps; n is at least 1.
        timestamps: int64 tensor (n,), seconds since 1970.

    Returns: (rest, latest), two bool tensors (n,): every row is in exactly one; `latest` has one row per user. Of a
        user's rows with the same latest timestamp, the one that stands last is held out.
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
# Draw one negative for each row of a batch: an item that the row's user has never seen.
#
# **Must**
# - give every unseen item of a user the same probability;
# - draw each row independently of all others, so that two rows of one user may get the same item;
# - take all randomness from `generator`; without one, from torch's global random numbers;
# - accept an empty batch.
#
# **You may assume** that every user of the batch has at least one unseen item.
#
# **Points** 4 · **Extra** · **Difficulty** ●●○ · **Minutes** 20 · **Lines** 7
#
# **Source** He et al. 2017, arXiv:1708.05031, sections 3.1 and 4.1. Some fast public implementations draw from all
# items and accept that some negatives are positives.
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
# Read the figure from the bottom. A user $u$ and an item $i$ are numbers. Four tables turn them into vectors, two for
# each half of the model:
#
# - **GMF**, generalised matrix factorisation, on the left: the elementwise product of $p_u$ and $q_i$. If the last
#   layer only summed it up, this would be the dot product of classical matrix factorisation.
# - **MLP**, on the right: other vectors $p'_u$ and $q'_i$ are concatenated and pass through linear layers that become
#   narrower, each followed by a ReLU. It can express interactions that a product cannot.
#
# $$h_0 = \begin{bmatrix} p'_u \\ q'_i \end{bmatrix}, \qquad
# h_l = \max(0,\; W_l\, h_{l-1} + b_l), \qquad
# \hat y_{ui} = w^\top \begin{bmatrix} p_u \odot q_i \\ h_L \end{bmatrix} + b$$
#
# $\hat y_{ui}$ is a *logit*: the probability that $u$ takes $i$ is $\sigma(\hat y_{ui})$. The loss is the binary cross
# entropy between this probability and the label, 1 for a positive and 0 for a drawn negative. It is computed from the
# logit itself, because for a very negative $y$ the probability $\sigma(y)$ rounds to zero, and its logarithm is
# $-\infty$.
#
# Almost all parameters are in the four tables. A batch touches only the rows of its own users and items; a single large
# batch touches nearly all of them. This matters when we compare batch sizes.

# %% [markdown]
# As a dictionary, with $F$ factors and MLP layers of widths $d_0, d_1, \dots, d_L$, the weights are
#
# | key | what | shape |
# |---|---|---|
# | `"gmf_user"`, `"gmf_item"` | tables of the GMF half | (n_users, F), (n_items, F) |
# | `"mlp_user"`, `"mlp_item"` | tables of the MLP half | (n_users, d₀/2), (n_items, d₀/2) |
# | `"mlp"` | list of pairs (W, b), one a layer | W (dₗ, dₗ₋₁), b (dₗ,) |
# | `"output"` | one pair (W, b) | W (1, F + d_L), b (1,) |
#
# W is stored as in `torch.nn.Linear`, outputs first.

# %% [markdown]
# ### Exercise 3 · NeuMF forward
#
# Compute the logits of a batch of pairs from the dictionary `weights` alone: a pure function, no module, no state.
#
# **Must**
# - put the user's vector before the item's, the GMF half before the MLP half;
# - apply a ReLU after every layer of the MLP, the last one included, and no sigmoid at the end;
# - return shape (n,), also for a batch of one pair;
# - let gradients flow to every weight.
#
# **Not allowed** `course.training.models.NeuMF`, the given module.
#
# **Points** 4 · **Extra** · **Difficulty** ●●○ · **Minutes** 20 · **Lines** 6
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
# Three mistakes each make a model look better than it is. If the 100 negatives are drawn with repetition, a repeated
# item must count once. If scores are *equal*, the film must not win the tie. And a training that diverges gives NaN,
# and every comparison with NaN is False: the comparison must count that against the model, too.

# %% [markdown]
# ### Exercise 4 · Hit rate and NDCG
#
# Compute both metrics from scores: one row per user, the held-out item in column 0.
#
# **Must**
# - take as rank the number of candidates that stand before the held-out item: all but those whose score is *smaller*
#   than its own (equal scores and NaN count against the model);
# - leave out candidates marked as duplicates;
# - count a rank below `k` as a hit, with gain $1 / \log_2(r + 2)$; a miss has gain 0;
# - return the two means over users as Python floats.
#
# **You may assume** that column 0 is never marked.
#
# **Points** 3 · **Extra** · **Difficulty** ●●○ · **Minutes** 20 · **Lines** 5
#
# **Source** He et al. 2017, section 4.1; Järvelin and Kekäläinen 2002, section 2.2 (the discount). The rules for ties
# and NaN are ours.
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
# Two models that know nothing: one says 0 for every pair, one says NaN. **Predict** what HR@10 each gets if a candidate
# stands before the film only when its score is *larger*, the comparison that one writes first.

# %%
predicted_hit_rate_of_a_constant = None  # your number: HR@10 of a model that always says 0, with the first comparison

# %%
rank_metrics_now = course.solved(check.rank_metrics)
nobody = torch.zeros(1000, 101, dtype=torch.bool)
for says, scores in (("0", torch.zeros(1000, 101)), ("NaN", torch.full((1000, 101), math.nan))):
    first_idea = ((scores[:, 1:] > scores[:, :1]).sum(1) < 10).float().mean().item()
    strict = rank_metrics_now(scores, nobody)[0]
    print(
        f"a model that always says {says:<4} HR@10 with > {first_idea:.3f}, with your comparison {strict:.3f}"
        + reveal(predicted_hit_rate_of_a_constant if says == "0" else None)
    )
    course.claim(
        f"a model that always says {says} earns nothing", strict == 0, f"{strict:.3f} instead of {first_idea:.3f}"
    )

# %% [markdown]
# ## A score to beat
#
# **Before the first model: how good is a ranking without one, and what does a difference have to exceed?**
#
# The next cell prepares the data: ratings, split, negatives, candidates. It uses your answers where their checks
# passed. The sizes of all experiments follow `COURSE_SCALE`; they stand in `course/device.py`. Two choices of each user
# are held out. The latest is the **test**; the latest of the rest is for **validation**. Whatever we choose by its
# score, a learning rate, a model, an epoch to stop at, we choose on validation. The test is looked at once, at the end:
# the score that a choice was based on is too high, because the choice also picked the luckiest noise.
#
# **Predict**: rank the 101 candidates by how many users took them, the same list for everybody. Which HR@10?

# %%
predicted_popularity = None  # your number: HR@10 of the most popular films; guessing reaches 0.099

# %% tags=["experiment"]
sizes = course.sizes("03_large_batch")
experiment = Experiment(
    sizes,
    leave_one_out=course.solved(check.leave_one_out),
    sample_negatives=course.solved(check.sample_negatives),
    rank_metrics=rank_metrics_now,
)
print(experiment)

# %% tags=["experiment"]
data = experiment.data


def standard_error(hit_rate):
    """The standard error of a hit rate over all users of the data."""
    return math.sqrt(hit_rate * (1 - hit_rate) / data.n_users)


popularity = experiment.popularity
print(f"most popular films: HR@10 {popularity:.3f}" + reveal(predicted_popularity))
print(f"guessing:           HR@10 {10 / 101:.3f}")
print(
    f"standard error of a hit rate near {popularity:.2f} with {data.n_users:,} users: {standard_error(popularity):.3f}"
)
course.claim("popularity alone ranks better than guessing", popularity > 10 / 101 + 3 * standard_error(10 / 101),
             f"HR@10 {popularity:.3f}")  # fmt: skip
everywhere = torch.randint(data.n_items, data.train_users.shape, generator=torch.Generator().manual_seed(0))
wrong = data.seen.cpu()[data.train_users.cpu(), everywhere].float().mean().item()
right = data.seen[data.train_users, experiment.sample_negatives(data.train_users, data.seen, None)].any().item()
course.claim("some of the negatives drawn from all films are positives, and none of yours is", wrong > 0 and not right,
             f"{100 * wrong:.1f} % of those from all films")  # fmt: skip

# %% [markdown]
# Popularity is the number to remember: a trained model that ranks no better has learned nothing about its users. The
# loss has such a baseline, too. One sample in five is a positive, so a model that says "one fifth" to every pair has
# the loss $-\frac15 \ln \frac15 - \frac45 \ln \frac45 = 0.5004$, and one that says "one half" 0.693.
#
# The standard error says how much a hit rate would vary with other users of the same kind: a difference of two
# independent scores below about three times as much says little.

# %% [markdown]
# ## Is it the right model?
#
# **The largest speed-up can be a simpler model: before you scale one, tune a plain baseline as carefully and measure
# it.**
#
# NeuMF came with the claim that a network learns a better match of user and item than their dot product. Rendle,
# Krichene, Zhang and Anderson (arXiv:2005.09683) tuned the dot product with the same effort and report that it wins on
# the same data and splits. It is also cheaper to train and to serve. Their claim is about their tuning and their data;
# the next figure shows what holds here. Each model is trained with three learning rates of Adam; validation chooses.

# %%
predicted_dot_product = None  # your number: HR@10 of the plain dot product minus HR@10 of NeuMF, on the test

# %% tags=["experiment"]
contest, models_of = {}, {
    "NeuMF, 8 factors": (experiment.fresh_model, (3e-3, 1e-2, 3e-2)),
    "dot product, 16 factors": (
        lambda: models.DotProduct(data.n_users, data.n_items, 16).to(course.device()),
        (1e-3, 3e-3, 1e-2),
    ),
}  # fmt: skip
for label, (make, lrs) in models_of.items():
    tried = []
    for lr in lrs:
        torch.manual_seed(0)
        model = make()
        history = experiment.train(model, torch.optim.Adam(model.parameters(), lr=lr), experiment.batches[1])
        print_run(f"{label}, {lr:g}", history)
        tried.append((history.hit_rate[-1], history, experiment.test(model)))
    on_validation, history, (hit_rate, ndcg) = max(tried, key=lambda run: run[0])
    contest[label] = (history, hit_rate, ndcg)
    print(f"  chosen: validation HR@10 {on_validation:.3f}; test HR@10 {hit_rate:.3f}, NDCG@10 {ndcg:.3f}\n")
print_log(contest["NeuMF, 8 factors"][0])

# %% tags=["experiment"]
(neumf_run, neumf, _), (dot_run, dot, _) = contest.values()
worse = min(neumf_run.hit_rate[-1], dot_run.hit_rate[-1])
print(f"dot product minus NeuMF on the test: {dot - neumf:+.3f}" + reveal(predicted_dot_product))
course.claim(
    "the dot product and NeuMF rank better than popularity",
    worse > popularity + 2 * standard_error(popularity),
    f"HR@10 on validation at least {worse:.3f}, popularity {popularity:.3f}",
    otherwise="The training was too short to learn the users.",
)
course.claim("the dot product and NeuMF differ by less than three standard errors",
             abs(dot - neumf) < 3 * standard_error(neumf),
             f"{abs(dot - neumf):.3f}, standard error {standard_error(neumf):.3f}",
             otherwise="The models do differ, on this data and with this tuning.")  # fmt: skip
plots.accuracy({label: history for label, (history, _, _) in contest.items()}, "NeuMF and the plain dot product, Adam",
               popularity=popularity, constant=CONSTANT_LOSS)  # fmt: skip

# %% [markdown]
# Left, the training loss of every update; right, HR@10 on the validation items. Look where the loss of NeuMF rests,
# below the level of the best constant, at about 0.43 (laptop scale): there its HR@10 is that of popularity, so it has
# learned which films are popular and nothing yet about its users. The dot product has 17 numbers per user, NeuMF 40. A
# loss that still falls while HR@10 no longer rises is overfitting.
#
# One run with one seed was made for each setting, and the stand-in is *made* from low-dimensional tastes, which a dot
# product finds easily. Real data decide better: for MovieLens 1M with the published split, several sizes of both
# models, `docs/results.md` has the scores, the commands, the tuning and the doubts.

# %% [markdown]
# The trained module also tests your forward pass of exercise 3: its weights, handed to your function, must give the
# module's logits.

# %% tags=["experiment"]
forward_now = course.solved(check.neumf_forward)
model = experiment.fresh_model()
experiment.train(model, torch.optim.Adam(model.parameters(), lr=1e-2), experiment.batches[1], epochs=1)
weights = {name: getattr(model, name).weight for name in ("gmf_user", "gmf_item", "mlp_user", "mlp_item")}
weights |= {
    "mlp": [(layer.weight, layer.bias) for layer in model.mlp],
    "output": (model.output.weight, model.output.bias),
}
users, items, _ = experiment.first_batch(sizes.base_batch)
with torch.no_grad():
    difference = (forward_now(weights, users, items) - model(users, items)).abs().max().item()
course.claim(
    "your forward pass returns the logits of the module", difference < 1e-3, f"largest difference {difference:.0e}"
)

# %% [markdown]
# ## References
#
# 1. X. He et al., Neural Collaborative Filtering, WWW 2017. [arXiv:1708.05031](https://arxiv.org/abs/1708.05031)
# 2. S. Rendle, W. Krichene, L. Zhang, J. Anderson, Neural Collaborative Filtering vs. Matrix Factorization Revisited,
#    RecSys 2020. [arXiv:2005.09683](https://arxiv.org/abs/2005.09683)
# 3. NVIDIA, Deep Learning Examples: Neural Collaborative Filtering for PyTorch.
#    [Recommendation/NCF](https://github.com/NVIDIA/DeepLearningExamples/tree/master/PyTorch/Recommendation/NCF)
