# %% [markdown]
# # Beyond data parallel, part 1: Say whether it fits
#
# **Will this model train on these devices, and what would it take?**
#
# You count what a training computes, keeps and sends, by formulas that a counter confirms to the last byte.
#
# **You will be able to**
#
# - say how many FLOPs a training step of a GPT takes.
#
# **Minutes** 10 core · 10 in all
#
# **Needs** nothing

# %% locked="setup"
import course
from course.checks import beyond_data_parallel as check
from course.training.plans import Gpt, counted

print(course.machine())

# %% [markdown]
# **The unit** trains models that do not fit on one device. Part 1 counts, part 2 shards the weights, part 3 splits a
# layer, and part 4 splits the depth.
#
# Write your prediction into each cell with `None`. A check names the first thing that is wrong. Later cells use your
# answer if its check passed, else the reference solution, if your copy of the course includes it. Leave the empty cell
# after each check alone: your instructor's tests go there.

# %% [markdown]
# ## How much does a step compute?
#
# Nearly all arithmetic of a GPT is in products of matrices. A product of (n, k) and (k, m) takes n · m · k
# multiplications and as many additions: 2 n m k *FLOPs* (floating-point operations).
#
# ### Exercise 1 · The FLOPs of a step
#
# Count those of one training step, forward and backward. A block of width d has four linear layers, whose weights have
# 3d², d², 4d² and 4d² numbers. Attention multiplies queries with keys, and weights with values. Of `columns` tokens in
# a sequence, each looks at all (the ones that a mask hides are computed too). After the last block come the scores of
# the vocabulary. Looking up an embedding takes no FLOPs.
#
# ```python
# >>> step_flops(Gpt(vocabulary=10, width=2, layers=1, heads=1, columns=4), rows=1)
# 2016
# ```
#
# **Points** 2 · **Core** · **Difficulty** ●○○ · **Minutes** 6 · **Lines** 5
#
# **Must**
#
# - count each product of the forward pass with 2 n m k FLOPs
# - count two products in backward for each in forward, one per gradient
# - leave out all else: norms, GELU, softmax, the update.
#
# **Source** Kaplan et al. 2020, arXiv:2001.08361, section 2.1; Chowdhery et al. 2022, arXiv:2204.02311, appendix B.
#
# <details><summary>Hint 1</summary>
#
# How many numbers do the weights of a block have together? Each is used once per token.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Per token, the linear layers of a block take 2 · 12 d² FLOPs. Attention takes 2 · columns · d for each of its two
# products, however many heads share the width.
#
# </details>


# %% solution="step_flops"
def step_flops(gpt, rows):
    """FLOPs of one training step, forward and backward, of the products of matrices alone: a number.

    Args:
        gpt: a Gpt with vocabulary, width, layers, heads and columns (tokens per sequence).
        rows: sequences in the batch.
    """
    ### BEGIN SOLUTION
    tokens = rows * gpt.columns
    linear = 24 * gpt.width**2  # of a token in a block
    attention = 4 * gpt.columns * gpt.width  # of a token in a block
    scores = 2 * gpt.width * gpt.vocabulary
    return 3 * tokens * (gpt.layers * (linear + attention) + scores)
    ### END SOLUTION


# %% test="step_flops-visible" points=1
check.step_flops(step_flops)

# %% test="step_flops-hidden" points=1
### BEGIN HIDDEN TESTS
check.step_flops(step_flops, seed=417)
### END HIDDEN TESTS

# %% [markdown]
# Torch can count them: `FlopCounterMode` adds up the products that a run makes. On the *meta* device tensors have a
# shape and no memory, so a model of 7 billion parameters runs in a moment, on any machine.
#
# **Predict**: how many FLOPs per parameter and token does a step of that model take?

# %%
predicted_flops = None  # per parameter and token

# %% tags=["experiment"]
step_flops_now = course.solved(check.step_flops)
gpt = Gpt(vocabulary=32_000, width=4096, layers=32, heads=32, columns=2048)
model = gpt.model("meta")
parameters = sum(weights.numel() for weights in model.parameters())
computed = counted(lambda: gpt.loss(model, 1).backward())
per_token = computed / parameters / gpt.columns
print(f"{parameters / 1e9:.2f} billion parameters; {computed:.4g} FLOPs per sequence of {gpt.columns} tokens")
print(course.score("07/1", "FLOPs per parameter and token", predicted_flops, per_token, null=None))
course.claim("the closed form of the FLOPs equals torch's count", step_flops_now(gpt, 1) == computed, f"{computed:,}")

# %% [markdown]
# **Known** Six per parameter and token: a multiplication and an addition, in the forward pass and twice in the
# backward pass (Kaplan et al. 2020). Attention comes on top; the embedding, which is looked up, comes off.
#
# **Takeaway** A training step takes about 6 FLOPs per parameter and token, and long sequences add attention.
