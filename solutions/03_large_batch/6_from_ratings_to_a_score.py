# %% [markdown]
# # Large batches, part 6: From ratings to an honest score
#
# **When does a score say that a recommender is good?**
#
# The other parts of this unit take a recommender and its score as given. But a score can be wrong, and then the
# comparisons are, too. Here you build the model, its score and its data. All of this part is extra. Its experiments run
# without the exercises, because the library has its own versions.
#
# **You will be able to**
#
# - explain NeuMF, and write its forward pass;
# - compute HR@10 and NDCG@10 that ties, duplicates and NaN cannot distort;
# - say what a score among 100 sampled films leaves out;
# - compare two recommenders with a baseline and over several seeds;
# - split ratings by time and draw negatives that are never positives.
#
# **Minutes** 0 core · 90 in all
#
# **Needs** nothing

# %% locked="setup"
import math
import statistics

import torch
from torch.nn import functional as F

import course
from course.checks import large_batch as check
from course.measure.comparison import difference_interval, signed_rank_interval
from course.plots import large_batch as plots
from course.training.metrics import hit_rate_interval
from course.training.recommender import Experiment, listed

print(course.machine())
sizes = course.sizes("03_large_batch")
experiment = Experiment(sizes)
data = experiment.data

# %% [markdown]
# ## How does NeuMF match a user with a film? · extra
#
# A recommender has to predict which film a user picks next. MovieLens is a list of ratings: user, film, stars, time. We
# ignore the stars, so each rating becomes a 1. This is *implicit feedback*: it says what a user chose, and not what a
# user dislikes. So the zeros are drawn: for each positive of an epoch, four films outside this user's positives.

# %%
plots.neumf_diagram()

# %% [markdown]
# Read the figure from the bottom. A user $u$ and an item $i$ are numbers, and four tables turn them into vectors:
#
# - **GMF**, generalised matrix factorisation, multiplies $p_u$ and $q_i$ element by element. Summed up, this is the dot
#   product of classical matrix factorisation.
# - **MLP** concatenates two other vectors, $p'_u$ and $q'_i$, and passes them through linear layers, each followed by a
#   ReLU. It can express what a product cannot.
#
# $$h_0 = \begin{bmatrix} p'_u \\ q'_i \end{bmatrix}, \qquad
# h_l = \max(0,\; W_l\, h_{l-1} + b_l), \qquad
# \hat y_{ui} = w^\top \begin{bmatrix} p_u \odot q_i \\ h_L \end{bmatrix} + b$$
#
# $\hat y_{ui}$ is a *logit*: the probability that $u$ takes $i$ is $\sigma(\hat y_{ui})$. The loss is the binary cross
# entropy between this probability and the label.
#
# The MLP has a weak point, silent ReLUs, which part 1 measures.

# %% [markdown]
# ## Can you write its forward pass? · extra
#
# You understand a model when you can write its forward pass, and this one takes six lines. With $F$ factors and MLP
# layers of widths $d_0, d_1, \dots, d_L$, its weights are a dictionary:
#
# | key | what | shape |
# |---|---|---|
# | `"gmf_user"`, `"gmf_item"` | tables of the GMF half | (n_users, F), (n_items, F) |
# | `"mlp_user"`, `"mlp_item"` | tables of the MLP half | (n_users, d₀/2), (n_items, d₀/2) |
# | `"mlp"` | list of pairs (W, b), one per layer | W (dₗ, dₗ₋₁), b (dₗ,) |
# | `"output"` | one pair (W, b) | W (1, F + d_L), b (1,) |
#
# W is stored as in `torch.nn.Linear`, outputs first.

# %% [markdown]
# ### Exercise 1 · NeuMF forward
#
# Compute the logits of a batch of pairs from the dictionary `weights` alone: a pure function, no module, no state.
#
# **Must**
# - put the user's vector before the item's, and the GMF half before the MLP half;
# - apply a ReLU after every layer of the MLP, the last one included, and no sigmoid at the end;
# - return shape (n,), also for one pair, and let gradients flow to every weight.
#
# **Not allowed** `course.training.models.NeuMF`, the given module.
#
# ```python
# >>> one = torch.ones(1, 1)
# >>> weights = {"gmf_user": 2 * one, "gmf_item": 3 * one, "mlp_user": one, "mlp_item": -one}
# >>> weights["mlp"] = [(torch.ones(1, 2), torch.tensor([4.0]))]
# >>> weights["output"] = (torch.ones(1, 2), torch.tensor([0.5]))
# >>> neumf_forward(weights, torch.tensor([0]), torch.tensor([0])).tolist()
# [10.5]
# ```
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

# %%
forward_now = course.solved(check.neumf_forward)
model = experiment.fresh_model()
weights = {}
for name in ("gmf_user", "gmf_item", "mlp_user", "mlp_item"):
    weights[name] = getattr(model, name).weight
weights["mlp"] = [(layer.weight, layer.bias) for layer in model.mlp]
weights["output"] = (model.output.weight, model.output.bias)

users, items, _ = experiment.first_batch(sizes.base_batch)
with torch.no_grad():
    logits = forward_now(weights, users, items)
    of_module = model(users, items)
is_same = torch.allclose(logits, of_module, atol=1e-3)
difference = (logits - of_module).abs().max().item()
course.claim(
    "your forward pass returns the logits of the module", is_same, f"{difference:.0e} apart at most"
)

# %% [markdown]
# ## How can a broken model get a perfect score? · extra
#
# To score a model, each user's held-out film is ranked among 100 films that the user has never seen. **HR@10** is the
# share of users whose film has one of the ten best scores. **NDCG@10** gives a hit at 0-based rank $r$ the value
# $1 / \log_2(r + 2)$, and a miss nothing.
#
# Three things distort these scores. The 100 films are drawn with repetition, so one film may count twice. Scores may be
# *equal*, so that films tie. And a training that diverges gives NaN. With NaN, `<`, `>` and `==` are False, so no film
# seems to precede the held-out one.

# %% [markdown]
# ### Exercise 2 · Hit rate and NDCG
#
# Compute both metrics from scores: one row per user, the held-out item in column 0. That column is never marked as a
# duplicate.
#
# **Must**
# - take as rank the number of candidates that precede the held-out item: all but those whose score is *smaller* (equal
#   scores and NaN count against the model);
# - leave out candidates marked as duplicates;
# - count a rank below `k` as a hit, with gain $1 / \log_2(r + 2)$, and return the means of hits and gains over users.
#
# ```python
# >>> scores = torch.tensor([[0.9, 0.1, 0.3], [0.5, 0.7, 0.5]])
# >>> rank_metrics(scores, torch.zeros(2, 3, dtype=torch.bool), k=2)
# (0.5, 0.5)
# ```
#
# **Points** 3 · **Extra** · **Difficulty** ●●○ · **Minutes** 20 · **Lines** 5
#
# **Source** He et al. 2017, section 4.1. The rules for ties and NaN are ours.
#
# <details><summary>Hint 1</summary>
#
# Do you need to sort? What has to be true of a candidate to precede column 0, and how does that give the rank?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `scores[:, 1:]` against `scores[:, :1]` compares all candidates with their positive in one operation. What does
# `a >= b` say if one of them is NaN, and what does `~(a < b)` say?
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# `ahead = ~(scores[:, 1:] < scores[:, :1]) & ~duplicate[:, 1:]`; its sum along axis 1 is the rank. With
# `hit = rank < k`, the gain of a user is `hit / torch.log2(rank + 2)`. Return the two means as Python floats,
# `.item()`.
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
# Two models know nothing: one says 0 for every pair, one says NaN. **Predict** the HR@10 of the first if a candidate
# precedes the film only when its score is *larger*, which is the obvious comparison. Among equal scores, does the film
# come first or last?

# %%
predicted_hit_rate_of_a_constant = None  # your number: HR@10 of the model that says 0, with >

# %% tags=["experiment"]
rank_metrics_now = course.solved(check.rank_metrics)
no_duplicates = torch.zeros(1000, 101, dtype=torch.bool)
scores_of = {"0": torch.zeros(1000, 101), "NaN": torch.full((1000, 101), math.nan)}

first_idea = {}
strict = {}
for says, scores in scores_of.items():
    ahead = scores[:, 1:] > scores[:, :1]
    hit = ahead.sum(1) < 10
    first_idea[says] = hit.float().mean().item()
    strict[says], _ = rank_metrics_now(scores, no_duplicates)

what = "HR@10 of a constant model, with >"
print(course.score("03/6", what, predicted_hit_rate_of_a_constant, first_idea["0"], null=None))
course.claim(
    "a model that always says 0 earns nothing",
    strict["0"] == 0,
    f"{strict['0']:.3f} instead of {first_idea['0']:.3f}",
)
course.claim(
    "a model that always says NaN earns nothing",
    strict["NaN"] == 0,
    f"{strict['NaN']:.3f} instead of {first_idea['NaN']:.3f}",
)

# %% [markdown]
# **Takeaway** With `>`, a model that always says 0, or NaN, has a hit rate of 1. Count every candidate that is not
# smaller.

# %% [markdown]
# ## Which score must a model beat? · extra
#
# A score means little until you know what a model without learning reaches. The setup has held out two choices of each
# user: the latest for the **test**, and the latest of the rest for **validation**. We choose settings, such as a
# learning rate, on validation. The test is for the end, because a score that decided a choice contains the luck of that
# choice.
#
# Before you train a model, rank the 101 candidates by how many users took them, in the same order for everybody. A
# model that guesses has an HR@10 of about 10/101. **How much better is popularity?**

# %% tags=["experiment"]
print(experiment)
popularity = hit_rate_interval(experiment.popularity, data.n_users)
print(f"HR@10 of guessing {10 / 101:.3f}, of the most popular films {popularity}")
course.claim(
    "popularity alone ranks better than guessing",
    popularity,
    above=10 / 101,
)

# %% [markdown]
# The interval says how much the score would vary with other users of the same kind.
#
# **Takeaway** Rank by popularity before you train: it is the score to beat.

# %% [markdown]
# ## Is NeuMF the right model, and is this the right score? · extra
#
# NeuMF came with the claim that a network matches user and item better than a dot product does. Rendle, Krichene, Zhang
# and Anderson (2020) tuned the dot product, and report that it wins on the same data. You train both with Adam and
# pairs of seeds.
#
# The score is in doubt, too. HR@10 among 100 sampled films is a **sampled metric**. Krichene and Rendle (2020) show
# that it can rank two models in another order than the same metric over all films does, even in expectation. So the
# cell also ranks each test film among *all* films that its user never took.
#
# **Predict** NeuMF's HR@10 if all films compete. A model that guesses has 10 of 101 places in one ranking, and 10 of
# all films in the other. Does NeuMF lose by the same factor? Or less, because it leaves most films behind in both?

# %%
predicted_full = None  # your number: NeuMF's HR@10 among all films


# %% tags=["experiment"]
def make_neumf(seed):
    return experiment.fresh_model(seed=seed)


def make_dot_product(seed):
    return experiment.fresh_dot_product(16, seed)


NEUMF = "NeuMF, 8 factors"
DOT = "dot product, 16 factors"

# %% tags=["experiment"]
above_popularity = []  # on validation
sampled = {}  # HR@10 among 100 films, per seed
full = {}  # among all films
for label, make_model in {NEUMF: make_neumf, DOT: make_dot_product}.items():
    sampled[label] = []
    full[label] = []
    for seed in range(sizes.pairs):
        model = make_model(seed)
        optimizer = torch.optim.Adam(model.parameters(), lr=sizes.adam_lr[0])
        run = experiment.train(model, optimizer, experiment.batches[1], seed=seed)
        above_popularity.append(run.hit_rate[-1] - experiment.popularity)
        hit_rate, _ = experiment.test(model)
        sampled[label].append(hit_rate)
        full[label].append(experiment.test_among_all(model))
    print(
        f"{label}: test HR@10 among 100 films {listed(sampled[label])}, "
        f"among all films {listed(full[label])}"
    )

# %% tags=["experiment"]
remaining = []  # share of the sampled HR@10
for label in (NEUMF, DOT):
    for in_full, in_sample in zip(full[label], sampled[label], strict=True):
        remaining.append(in_full / in_sample)

mean_full = statistics.mean(full[NEUMF])
print(course.score("03/6", "NeuMF's HR@10 among all films", predicted_full, mean_full, null=None))
course.claim(
    "NeuMF and the dot product both end above popularity",
    signed_rank_interval(above_popularity),
    above=0,
)
course.claim(
    "the dot product and NeuMF differ by less than 0.03 of HR@10",
    difference_interval(sampled[DOT], sampled[NEUMF]),
    within=(-0.03, 0.03),
    otherwise="The models do differ, on this data and with this tuning.",
)
course.claim(
    "ranked among all films, both models keep less than half of their sampled HR@10",
    signed_rank_interval(remaining),
    below=0.5,
    otherwise="Your data has few films, so 100 of them are nearly all.",
)

# %% [markdown]
# Read the comparison with care. Both models use the learning rate that was tuned for NeuMF, so the dot product is not
# tuned. And all seeds are judged on the same users, so the interval says nothing about other users.
#
# Without MovieLens, you train on invented ratings. They were drawn with a dot product of tastes and genres, which may
# favour the dot product there. Real ratings give it no such help.
#
# **Takeaway** Name the candidates when you quote a score, and pair the seeds when you compare two models.

# %% [markdown]
# ## How many negatives are wrong? · extra
#
# Two functions prepared the data above, and a mistake in either would not raise an error. The first chooses the test.
# If the test row were drawn at random, the model would learn from its user's future. So we hold out the *latest* choice
# of each user.
#
# The second function draws the zeros. A drawn film may be one that the user would have liked, and we accept that. But a
# negative that is one of the user's positives has the wrong label.

# %% [markdown]
# ### Exercise 3 · Leave one out
#
# Split interactions in two: each user's latest, held out, and all others. The rows are not sorted. You need no loop
# over users: `zeros.scatter_reduce(0, users, values, "amax")` is a maximum for each user. The last cells call your
# function for the test, and once more on the rest for validation.
#
# **Must**
# - return two masks over the rows, (rest, latest), with every row in exactly one;
# - hold out one row per user: the one with the latest time;
# - choose the last row in the tensors among several at that time.
#
# ```python
# >>> rest, latest = leave_one_out(torch.tensor([0, 0, 1, 0]), torch.tensor([5, 9, 7, 9]))
# >>> latest.tolist()
# [False, False, True, True]
# ```
#
# **Points** 3 · **Extra** · **Difficulty** ●●○ · **Minutes** 20 · **Lines** 6
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
# With the maximum of the times you know which rows are in question. Which number per row is largest for the last row?
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# Twice the same move. First `latest`, for each user the maximum of the times. Then `last`, the maximum of the places
# in the tensors, counted from 1, where a row that is not at its user's latest time counts as 0:
# `place * (timestamps == latest[users])`. The held-out rows are those with `last[users] == place`.
#
# </details>


# %% solution="leave_one_out"
def leave_one_out(users, timestamps):
    """Each user's latest interaction, held out, and all others.

    Args:
        users: int64 tensor (n,), user numbers from 0; n is at least 1.
        timestamps: int64 tensor (n,), seconds since 1970, none negative.

    Returns: (rest, latest), two bool tensors (n,): every row is in exactly one; `latest` has one row per user. Of a
        user's rows with the same latest timestamp, the one last in the tensors is held out.
    """
    ### BEGIN SOLUTION
    per_user = torch.zeros_like(torch.bincount(users))
    latest = per_user.scatter_reduce(0, users, timestamps, "amax")
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
# ### Exercise 4 · Negatives
#
# Draw one negative for each row of a batch: an item that the row's user has never seen. Every user of the batch has at
# least one.
#
# **Must**
# - give every unseen item of a user the same probability;
# - draw each row independently of all others, so that two rows of one user may get the same item;
# - take all randomness from `generator` (None means torch's global random numbers, as for torch's own functions).
#
# ```python
# >>> seen = torch.tensor([[True, True, False], [False, True, True]])
# >>> sample_negatives(torch.tensor([0, 1, 1, 0]), seen).tolist()
# [2, 0, 0, 2]
# ```
#
# **Points** 4 · **Extra** · **Difficulty** ●●○ · **Minutes** 20 · **Lines** 7
#
# **Source** He et al. 2017, arXiv:1708.05031, sections 3.1 and 4.1.
#
# <details><summary>Hint 1</summary>
#
# If you drew from all items, what share of the rows would be wrong? A batch has more rows of active users, who have
# seen more. And how many of the wrong rows are still wrong after a second draw?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Draw for all rows with `torch.randint`, look up which rows hit a seen item with `seen[users, items]`, and draw those
# rows again. Moving a hit to the next free item is *not* the same: an item behind a long run of seen ones would come
# up far too often.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# `again = seen[users, items].nonzero().squeeze(1)` are the rows to repeat. While there are any: give `items[again]`
# new draws, then keep of `again` only the rows that still hit. Pass `generator=generator` and `device=users.device`
# to every `torch.randint`.
#
# </details>


# %% solution="sample_negatives"
def sample_negatives(users, seen, generator=None):
    """One item for each row of `users` that this user has never seen, uniform over all such items.

    Args:
        users: int64 tensor (n,), values 0 <= u < n_users; n is at least 1.
        seen: bool tensor (n_users, n_items), True where the user has interacted with the item.
        generator: torch.Generator on the device of `seen`, or None for torch's global random numbers; the same state
            gives the same items.

    Returns: int64 tensor (n,) of items, 0 <= i < n_items, on the device of `users`.
    """
    ### BEGIN SOLUTION
    n_items = seen.shape[1]
    items = torch.empty_like(users).random_(n_items, generator=generator)
    again = seen[users, items].nonzero().squeeze(1)
    while len(again):  # each round leaves a small share of the one before
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
# **Predict** how many percent of the negatives would be the user's own positives if they were drawn from all films. As
# many as the mean user has taken of the films, or more, because active users have more rows?

# %% tags=["experiment"]
print(f"the mean user has taken {data.seen.float().mean():.1%} of the films")

# %%
predicted_wrong_negatives = None  # your number, in percent

# %% tags=["experiment"]
experiment = Experiment(
    sizes,
    leave_one_out=course.solved(check.leave_one_out),
    sample_negatives=course.solved(check.sample_negatives),
)
data = experiment.data
users = data.train_users

generator = torch.Generator().manual_seed(0)
from_all_films = torch.randint(data.n_items, users.shape, generator=generator)
wrong = data.seen.cpu()[users.cpu(), from_all_films].float().mean().item()
of_users = data.seen.float().mean().item()
yours = experiment.sample_negatives(users, data.seen, None)
yours_has_wrong = data.seen[users, yours].any().item()

what = "percent of positives among negatives from all films"
print(course.score("03/6", what, predicted_wrong_negatives, 100 * wrong, null=100 * of_users))
has_wrong = bool(wrong)
course.claim(
    "some of the negatives drawn from all films are positives, and none of yours is",
    has_wrong and not yours_has_wrong,
    f"{100 * wrong:.1f} % of those from all films",
)

# %% [markdown]
# **Shown** The share among rows is larger than the mean user's share, because a row more often belongs to an active
# user.
#
# **Takeaway** A mean over rows is not a mean over users. Look each negative up before you use it.

# %% [markdown]
# ## References
#
# 1. X. He et al., Neural Collaborative Filtering, WWW 2017. [arXiv:1708.05031](https://arxiv.org/abs/1708.05031)
# 2. S. Rendle, W. Krichene, L. Zhang, J. Anderson, Neural Collaborative Filtering vs. Matrix Factorization Revisited,
#    RecSys 2020. [arXiv:2005.09683](https://arxiv.org/abs/2005.09683)
# 3. W. Krichene, S. Rendle, On Sampled Metrics for Item Recommendation, KDD 2020.
#    [doi:10.1145/3394486.3403226](https://doi.org/10.1145/3394486.3403226)
