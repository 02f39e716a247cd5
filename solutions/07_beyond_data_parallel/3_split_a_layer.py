# %% [markdown]
# # Beyond data parallel, part 3: Split a layer
#
# **How do four GPUs compute one layer together, and what must they send each other?**
#
# You split an MLP over ranks and write the two functions that make its gradients right. Then you meet a bug that made a
# team restart a large training.
#
# **You will be able to**
#
# - cut an MLP and attention so that one sum per direction suffices
# - say which gradients are wrong if a sum is missing
# - say why ranks must not draw the same weights
#
# **Minutes** 24 core · 47 in all
#
# **Needs** nothing; it helps to know what an all-reduce is (02/1)

# %% locked="setup"
import dataclasses
import inspect

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

import course
from course.checks import beyond_data_parallel as check
from course.measure.comparison import ratio_interval
from course.parallel.collectives import simulate_collectives
from course.parallel.distributed import run_ranks
from course.parallel.network import Network
from course.plots import beyond_data_parallel as plots
from course.training import tensor_parallel

print(course.machine())
sizes = course.sizes("07_beyond_data_parallel")

# %% [markdown]
# ## How can ranks share one matrix?
#
# With FSDP, a rank still computes with whole layers. With *tensor parallel*, each of N ranks keeps 1/N of a weight
# matrix and does 1/N of its work. All ranks get the same batch.
#
# A linear layer can be cut in two ways:
#
# - **by columns**: each rank computes some of the *outputs*. In forward, it needs the whole input, and no sum over
#   ranks.
# - **by rows**: each rank uses some of the *inputs*. It computes one term of every output, so the ranks must sum their
#   terms.
#
# An MLP has two linear layers with a GELU between them. Cut the first layer by columns. Each rank then computes some
# hidden units, and applies the GELU to them. Cut the second layer by rows. Each rank then needs exactly the hidden
# units that it has.

# %%
plots.split_mlp()

# %% [markdown]
# Columns and rows are those of the matrix A in x A. Torch stores A transposed: `nn.Linear(in, out).weight` has the
# shape `(out, in)`, so "by columns" cuts its dimension 0.

# %% [markdown]
# ### Exercise 1 · Sum over ranks
#
# Write the sum after the second layer, as an autograd function. All ranks compute the same loss from the sum, so all
# have the same gradient of the sum. An addition passes this gradient to each of its terms unchanged.
#
# Two ranks with the parts [1] and [4] both get [5]. If the gradient of [5] is [2] on both ranks, the gradient of each
# part is [2] as well.
#
# **Points** 2 · **Core** · **Difficulty** ●○○ · **Minutes** 3 · **Lines** 4
#
# **Must**
#
# - return the sum of all ranks' `part`, a new tensor
# - give `part` the gradient of the sum, unchanged
# - call one `all_reduce`
#
# **Source** Shoeybi et al. 2019, "Megatron-LM", arXiv:1909.08053, section 3 (their function g).
#
# <details><summary>Hint 1</summary>
#
# `dist.all_reduce` writes into its argument. May it be the caller's tensor?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Forward: `total = part.clone()`, `dist.all_reduce(total)`, return `total`. Backward: return `grad`.
#
# </details>


# %% solution="sum_over_ranks"
def sum_over_ranks(part):
    """The sum of `part` over all ranks; backward gives `part` the gradient of the sum."""

    class Sum(torch.autograd.Function):
        @staticmethod
        def forward(ctx, part):
            ### BEGIN SOLUTION
            total = part.clone()
            dist.all_reduce(total)
            return total
            ### END SOLUTION

        @staticmethod
        def backward(ctx, grad):
            ### BEGIN SOLUTION
            return grad
            ### END SOLUTION

    return Sum.apply(part)


# %% test="sum_over_ranks-visible" points=1
check.sum_over_ranks(sum_over_ranks)

# %% test="sum_over_ranks-hidden" points=1
### BEGIN HIDDEN TESTS
check.sum_over_ranks(sum_over_ranks, seed=1909)
### END HIDDEN TESTS

# %% [markdown]
# ### Exercise 2 · Copy to ranks
#
# The mirror image of exercise 1 stands before the first layer. Forward sends nothing, because every rank has `x`. But
# each rank uses `x` only for its own hidden units, so it computes only a part of the gradient of `x`. Backward must sum
# these parts.
#
# Two ranks compute 2x and 3x of the same x. Without this function, the gradient of x is 2 on one rank and 3 on the
# other. With it, the gradient is 5 on both.
#
# **Points** 2 · **Core** · **Difficulty** ●○○ · **Minutes** 3 · **Lines** 4
#
# **Must**
#
# - return the values of `x`, and send nothing in forward
# - give `x` the sum of all ranks' gradients in backward, with one `all_reduce`
# - do not change the gradient that `backward` gets
#
# **Source** Shoeybi et al. 2019, section 3 (their function f).
#
# <details><summary>Hint 1</summary>
#
# Exercise 1 has both halves. Which of them goes where?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Forward: return `x.view_as(x)`. Backward: sum a clone of `grad`.
#
# </details>


# %% solution="copy_to_ranks"
def copy_to_ranks(x):
    """`x`, the same on all ranks; backward gives `x` the sum of its gradients over all ranks."""

    class Copy(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ### BEGIN SOLUTION
            return x.view_as(x)
            ### END SOLUTION

        @staticmethod
        def backward(ctx, grad):
            ### BEGIN SOLUTION
            total = grad.clone()
            dist.all_reduce(total)
            return total
            ### END SOLUTION

    return Copy.apply(x)


# %% test="copy_to_ranks-visible" points=1
check.copy_to_ranks(copy_to_ranks)

# %% test="copy_to_ranks-hidden" points=1
### BEGIN HIDDEN TESTS
check.copy_to_ranks(copy_to_ranks, seed=853)
### END HIDDEN TESTS

# %% [markdown]
# ### Exercise 3 · An MLP on N ranks
#
# Cut the two layers, `wide` by columns and `narrow` by rows, and use the two functions where they belong. With hidden
# units 0 to 7 and 4 ranks, rank 1 keeps units 2 and 3.
#
# **Points** 4 · **Core** · **Difficulty** ●●○ · **Minutes** 7 · **Lines** 7
#
# **Must**
#
# - keep this rank's part as the parameters `wide_weight`, `wide_bias`, `narrow_weight` and `narrow_bias`
# - keep no memory of the other ranks' parts
# - return what the whole `mlp` would, and give the input and all parameters the gradients of the whole
#
# **You may assume** `mlp` is the same on all ranks: `nn.Sequential(nn.Linear, nn.GELU, nn.Linear)`. N divides the
# hidden units.
#
# **Source** Shoeybi et al. 2019, section 3, figure 3a.
#
# <details><summary>Hint 1</summary>
#
# N ranks sum their outputs. How often is the last bias added, if each of them adds it?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `wide.weight.chunk(world_size)[rank]` is a view, which keeps the whole weight alive: `.clone()` it. The second layer's
# weight is cut along `dim=1`.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# `hidden = F.gelu(F.linear(self.copy_to_ranks(x), self.wide_weight,
# self.wide_bias))`, and then `self.sum_over_ranks(F.linear(hidden, self.narrow_weight)) + self.narrow_bias`.
#
# </details>


# %% solution="SplitMLP"
class SplitMLP(nn.Module):
    """One rank's part of an MLP. All ranks together return what the whole one does, on every rank.

    Args:
        mlp: nn.Sequential(nn.Linear(dim, hidden), nn.GELU(), nn.Linear(hidden, dim)).
        copy_to_ranks, sum_over_ranks: functions of a tensor.
    """

    def __init__(self, mlp, copy_to_ranks, sum_over_ranks):
        super().__init__()
        self.copy_to_ranks = copy_to_ranks
        self.sum_over_ranks = sum_over_ranks
        rank = dist.get_rank()
        world_size = dist.get_world_size()
        wide, _, narrow = mlp
        ### BEGIN SOLUTION
        self.wide_weight = nn.Parameter(wide.weight.detach().chunk(world_size)[rank].clone())
        self.wide_bias = nn.Parameter(wide.bias.detach().chunk(world_size)[rank].clone())
        self.narrow_weight = nn.Parameter(
            narrow.weight.detach().chunk(world_size, dim=1)[rank].clone()
        )
        self.narrow_bias = nn.Parameter(narrow.bias.detach().clone())  # whole on every rank
        ### END SOLUTION

    def forward(self, x):
        """What `mlp` returns for `x`, (..., dim), the same on all ranks."""
        ### BEGIN SOLUTION
        hidden = F.gelu(F.linear(self.copy_to_ranks(x), self.wide_weight, self.wide_bias))
        part = F.linear(hidden, self.narrow_weight)
        return self.sum_over_ranks(part) + self.narrow_bias
        ### END SOLUTION


# %% test="SplitMLP-visible" points=2
check.SplitMLP(SplitMLP)

# %% test="SplitMLP-hidden" points=2
### BEGIN HIDDEN TESTS
check.SplitMLP(SplitMLP, seed=3072)
### END HIDDEN TESTS

# %% [markdown]
# ## Which heads does a rank keep? · extra
#
# Attention can be cut like the MLP, because each head computes alone: each rank takes some of the heads. The weights
# make this harder, because `qkv` is one linear layer. Its outputs are the queries of all heads, then all keys, then all
# values.
#
# ### Exercise 4 · Attention by heads
#
# Return the rows of `qkv.weight` that a rank keeps. With dim 4 and 2 heads, each head has two rows of q, two of k and
# two of v:
#
# ```python
# >>> head_rows(4, n_heads=2, rank=1, world_size=2)
# [2, 3, 6, 7, 10, 11]
# ```
#
# **Points** 2 · **Extra** · **Difficulty** ●●○ · **Minutes** 4 · **Lines** 2
#
# **Must** return the rows as a list of ints: queries, keys and values of the rank's heads, in this order.
#
# **You may assume** `n_heads` divides `dim`, and `world_size` divides `n_heads`. Rank r keeps the r-th group of heads.
#
# **Source** Shoeybi et al. 2019, section 3, figure 3b.
#
# <details><summary>Hint 1</summary>
#
# Which rows would rank 0 get if you cut the `3 * dim` rows into two halves? Would it have values?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `torch.arange(3 * dim).view(3, n_heads, -1)` numbers the rows by q, k or v and by head. Cut its dimension 1.
#
# </details>


# %% solution="head_rows"
def head_rows(dim, n_heads, rank, world_size):
    """The rows of `qkv.weight`, (3 * dim, dim), that `rank` keeps: a list of ints, those of q, then k, then v."""
    ### BEGIN SOLUTION
    rows = torch.arange(3 * dim).view(3, n_heads, -1)  # (q, k or v; head; row of the head)
    return rows.chunk(world_size, dim=1)[rank].flatten().tolist()
    ### END SOLUTION


# %% test="head_rows-visible" points=1
check.head_rows(head_rows)

# %% test="head_rows-hidden" points=1
### BEGIN HIDDEN TESTS
check.head_rows(head_rows, seed=96)
### END HIDDEN TESTS

# %% [markdown]
# ## How many all-reduces does a block need?
#
# All ranks wait at each all-reduce, so a block should have few of them. A transformer block has four linear layers: one
# for queries, keys and values, one for the output of attention, and two in the MLP. Heads do not mix before the output
# layer, so each rank takes some heads, and the output layer is cut by rows. Every rank has the whole LayerNorms,
# because they are small and need all numbers of a token.
#
# **Predict**: how many all-reduces does one block need, forward and backward together? Perhaps 8, one per layer and
# direction. Perhaps fewer, because two layers share one.

# %%
predicted_all_reduces = None  # per block and step

# %% [markdown]
# Four real ranks share a block with 8 heads, built from the functions of this part. We compare its output and gradients
# with those of the whole block.

# %% tags=["experiment"]
answers = tensor_parallel.Answers(
    copy_to_ranks=course.solved(check.copy_to_ranks),
    sum_over_ranks=course.solved(check.sum_over_ranks),
    split_mlp=course.solved(check.SplitMLP),
    head_rows=course.solved(check.head_rows),
)

of_ranks = run_ranks(tensor_parallel.compared_block, 4, answers, sizes.split_rows, backend="gloo")
split_block = of_ranks[0]
in_forward = split_block.in_forward.calls("all_reduce")
in_backward = split_block.in_backward.calls("all_reduce")
largest = max(split_block.differences.values())

for what, difference in split_block.differences.items():
    print(f"{what:<20} largest difference to the whole block {difference:.1e}")
print(
    course.score(
        "07/3",
        "all-reduces of a block, forward and backward",
        predicted_all_reduces,
        in_forward + in_backward,
        null=8,
    )
)
course.claim(
    "four ranks that share a block return the output and all gradients of the whole block to 1e-6",
    round(largest, 6) == 0,
    f"{largest:.1e}",
)
course.claim(
    "a split block calls two all-reduces in forward and two in backward",
    in_forward == in_backward == 2,
    f"{in_forward} and {in_backward}; each rank keeps {split_block.kept:.1%} of the block",
)

# %% [markdown]
# **Shown** by the count: two layers share one sum in forward, and one in backward. Each sum has `dim` numbers per
# token, however many hidden units there are.
#
# What happens if you forget the sum in `copy_to_ranks`? The cell runs the same block without it:

# %% tags=["experiment"]
NETWORK = Network(0.0, 1e9)


def copy_without_sum(x):
    return x


without_sum = dataclasses.replace(answers, copy_to_ranks=copy_without_sum)
run = simulate_collectives(
    tensor_parallel.compared_block, 4, NETWORK, without_sum, sizes.split_rows
)
wrong_block = run.results[0]

for what, difference in wrong_block.differences.items():
    print(f"{what:<20} largest difference to the whole block {difference:.1e}")

# %% [markdown]
# **Shown**: the output stays right, but gradients are wrong, and no error is raised. Each rank passes back only its own
# part of the gradient to what lies before the split layer.
#
# **Takeaway** Cut the first layer by columns and the second by rows. Then each pair of layers needs one all-reduce per
# direction.

# %% [markdown]
# ## What if all ranks draw the same random numbers?
#
# If a model is too large for one device, each rank can draw the initial weights of its own part. Suppose that all 4
# ranks first call `torch.manual_seed(0)`. An MLP has 256 hidden units, a quarter of them on each rank.
#
# **Predict**: after 20 steps of training, how many different units are there among the 256? Perhaps 256, because
# training makes them differ. Perhaps fewer.

# %%
predicted_units = None  # of 256

# %% tags=["experiment"]
ONE_SEED = (0, 0, 0, 0)
OWN_SEEDS = (0, 1, 2, 3)

n_different = {}
are_equal = {}
for seeds in (ONE_SEED, OWN_SEEDS):
    run = simulate_collectives(tensor_parallel.trained_shards, 4, NETWORK, answers, seeds)
    parts = run.results  # of each rank, a row of weights per hidden unit
    units = torch.cat(parts)
    n_different[seeds] = len(units.unique(dim=0))
    are_equal[seeds] = all(torch.equal(part, parts[0]) for part in parts)
    print(f"ranks with the seeds {seeds}: {n_different[seeds]} different units of {len(units)}")

print(
    course.score(
        "07/3",
        "different hidden units if all ranks have one seed",
        predicted_units,
        n_different[ONE_SEED],
        null=256,
    )
)
course.claim(
    "hidden units that were drawn with the same seed are equal after training, to the last bit",
    are_equal[ONE_SEED],
    f"{n_different[ONE_SEED]} different units of {len(units)}",
)

# %% [markdown]
# **Shown**: only the seeds differ between the two runs. Units with equal incoming and equal outgoing weights get equal
# gradients, so they stay equal. No error is raised.
#
# **Known**: the training of SmolLM3 was restarted after a trillion tokens, because all its tensor-parallel ranks had
# the same seed (Hugging Face 2025, "The Smol Training Playbook").
#
# **Takeaway** Ranks that draw different parts of a layer must draw different numbers. One seed for all is wrong, and
# raises no error.

# %% [markdown]
# ## Which seeds does a rank need, and what does one seed cost? · extra
#
# A different seed on each rank is wrong, too. Ranks that hold the same position embedding must draw the same weights
# for it. Ranks that hold the same activation must drop the same numbers of it.
#
# ### Exercise 5 · A seed for each purpose
#
# Ranks form a grid: `data_rank` says which batch a rank gets, and `tensor_rank` says which part of each layer it keeps.
# Before a rank draws numbers, it sets a seed for their purpose:
#
# - `"whole parameters"`: weights that all tensor ranks hold;
# - `"split parameters"`: weights of which each tensor rank holds a part;
# - `"whole dropout"`: dropout of an activation that all tensor ranks hold;
# - `"split dropout"`: dropout of an activation of which each tensor rank holds a part.
#
# Ranks with different batches hold the same weights, but drop different numbers. Two purposes may share a seed.
#
# **Points** 3 · **Extra** · **Difficulty** ●●○ · **Minutes** 5 · **Lines** 5
#
# **Must**
#
# - return a dict of four ints, one per purpose
# - give two ranks equal seeds for a purpose if they must draw equal numbers, and different seeds otherwise
# - change the seeds of all purposes if `seed` changes
#
# **You may assume** `seed` is an int from 0, the ranks count from 0, and there are `tensor_size` tensor ranks.
#
# **Source** Shoeybi et al. 2019, section 3 and appendix B.2.
#
# <details><summary>Hint 1</summary>
#
# Does each of the four seeds depend on `data_rank`? Does it depend on `tensor_rank`?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `data_rank + tensor_rank` is 1 on two ranks. `data_rank * tensor_size + tensor_rank` is another number on each rank.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# In this order of purposes: `seed`, `seed + tensor_rank`, `seed + data_rank`,
# `seed + data_rank * tensor_size + tensor_rank`. (Megatron adds a constant to some.)
#
# </details>


# %% solution="rank_seeds"
def rank_seeds(seed, data_rank, tensor_rank, tensor_size):
    """The seeds of a rank, {"whole parameters", "split parameters", "whole dropout", "split dropout": int}."""
    ### BEGIN SOLUTION
    return {
        "whole parameters": seed,
        "split parameters": seed + tensor_rank,
        "whole dropout": seed + data_rank,
        "split dropout": seed + data_rank * tensor_size + tensor_rank,
    }
    ### END SOLUTION


# %% test="rank_seeds-visible" points=1
check.rank_seeds(rank_seeds)

# %% test="rank_seeds-hidden" points=2
### BEGIN HIDDEN TESTS
check.rank_seeds(rank_seeds, seed=3000)
### END HIDDEN TESTS

# %% [markdown]
# What does one seed cost? An MLP of 256 hidden units learns to imitate another MLP, once with your seeds and once with
# one seed for all ranks. The two trainings of a pair share their data. One process suffices, because a split MLP
# computes what the whole one does.

# %% tags=["experiment"]
rank_seeds_now = course.solved(check.rank_seeds)


def your_seeds(seed):
    """The seed with which each of 4 ranks draws its part."""
    seeds = []
    for tensor_rank in range(4):
        of_rank = rank_seeds_now(seed, 0, tensor_rank, 4)
        seeds.append(of_rank["split parameters"])
    return seeds


losses = {"one seed": [], "your seeds": []}
for pair in range(sizes.seed_pairs):
    seed = 100 * pair
    steps = sizes.imitation_steps
    losses["one seed"].append(tensor_parallel.imitation_loss([seed] * 4, pair, steps))
    losses["your seeds"].append(tensor_parallel.imitation_loss(your_seeds(seed), pair, steps))

one_seed = torch.tensor(losses["one seed"], dtype=torch.float64)
own_seeds = torch.tensor(losses["your seeds"], dtype=torch.float64)
ratio = ratio_interval(one_seed, own_seeds)
course.claim(
    "an MLP on four ranks ends with a loss at least 10 % higher if all ranks draw with one seed",
    ratio,
    above=1.1,
)
plots.seed_losses(
    losses, f"With one seed for all ranks the loss is {ratio.estimate:.1f} times as high"
)

# %% [markdown]
# **Shown**: only the seeds differ between the two trainings of a pair. Test for the mistake before the first step: no
# two ranks may hold equal parts of a random weight matrix.
#
# **Takeaway** Ranks that hold parts draw different numbers, and ranks that hold copies draw equal ones.

# %% [markdown]
# ## Does tensor parallel send more than data parallel? · extra
#
# Data parallel sums gradients over the ranks: one number per weight, however large the batch is. Tensor parallel sums
# activations, so more tokens need more bytes. Which of them sends more depends on the batch.
#
# ### Exercise 6 · The bytes of a split block
#
# Predict what each rank sends in one step of a model of transformer blocks. In a ring, an all-reduce of b bytes sends 2
# (N - 1) / N × b. A block has 12 dim² weights; leave out its biases and norms.
#
# ```python
# >>> split_bytes(tokens=10, dim=4, blocks=1, world_size=2)
# {'tensor': 640.0, 'data': 768.0, 'equal at': 12.0}
# ```
#
# **Points** 2 · **Extra** · **Difficulty** ●○○ · **Minutes** 6 · **Lines** 5
#
# **Must** return a dict: bytes per rank with "tensor" and with "data" parallel, and "equal at" how many tokens both
# send the same.
#
# **You may assume** float32. Each rank has a batch of `tokens` tokens: with data parallel its own, with tensor parallel
# the one that all share.
#
# **Source** Shoeybi et al. 2019, section 3; the ring of 02/1.
#
# <details><summary>Hint 1</summary>
#
# How many all-reduces per block did you count above, and how many numbers does one of them have?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Tensor: 4 all-reduces of `4 * tokens * dim` bytes per block. Data: one of `4 * 12 * dim**2`. They are equal at
# `3 * dim` tokens.
#
# </details>


# %% solution="split_bytes"
def split_bytes(tokens, dim, blocks, world_size):
    """Bytes that a rank sends in a step, {"tensor", "data": bytes, "equal at": tokens}; floats.

    Args:
        tokens: tokens of the batch of one rank.
        dim: numbers per token between the blocks.
        blocks: transformer blocks of the model.
        world_size: number of ranks.
    """
    ### BEGIN SOLUTION
    ring = 2 * (world_size - 1) / world_size
    activation = 4 * tokens * dim
    gradients = 4 * 12 * dim**2
    return {
        "tensor": ring * blocks * 4 * activation,
        "data": ring * blocks * gradients,
        "equal at": 3.0 * dim,
    }
    ### END SOLUTION


# %% test="split_bytes-visible" points=1
check.split_bytes(split_bytes)

# %% test="split_bytes-hidden" points=1
### BEGIN HIDDEN TESTS
check.split_bytes(split_bytes, seed=12288)
### END HIDDEN TESTS

# %% [markdown]
# The virtual network counts the messages of the split block on 2, 4 and 8 ranks. The block has float64 numbers, so we
# compare how many numbers a rank sends:

# %% tags=["experiment"]
split_bytes_now = course.solved(check.split_bytes)
tokens = sizes.split_rows * tensor_parallel.COLUMNS

counted = {}
predicted = {}
for ranks in (2, 4, 8):
    run = simulate_collectives(
        tensor_parallel.compared_block, ranks, NETWORK, answers, sizes.split_rows
    )
    in_float64 = sum(message.n_bytes for message in run.messages) / ranks
    in_float32 = split_bytes_now(tokens, tensor_parallel.DIM, 1, ranks)["tensor"]
    counted[ranks] = in_float64 / 8  # numbers
    predicted[ranks] = in_float32 / 4
    print(
        f"{ranks} ranks: a rank sends {counted[ranks]:,.0f} numbers, "
        f"predicted {predicted[ranks]:,.0f}"
    )
course.claim(
    "a split block sends exactly the bytes of four ring all-reduces of its activations",
    counted == predicted,
    f"{counted[8]:,.0f} numbers on each of 8 ranks",
)

# %% [markdown]
# With fewer than 3 × dim tokens in a batch, a tensor rank sends less than a data rank. But in one step, N tensor ranks
# compute one batch, and N data ranks compute N batches.
#
# Tensor ranks must wait for each sum, because the next layer needs it. Data ranks can send during backward. **Known**:
# so keep tensor ranks within a machine, whose GPUs have fast links (Narayanan et al. 2021, arXiv:2104.04473, section
# 3.2).
#
# **Takeaway** Data parallel sends gradients, and tensor parallel sends activations. The next layer cannot start without
# the activations.

# %% [markdown]
# ## Does torch do the same? · extra
#
# In torch, `parallelize_module(model, mesh, plan)` cuts the parameters and adds the all-reduces. The plan names a style
# per layer. This function splits a block with one layer each for q, k and v:

# %%
print(inspect.getsource(tensor_parallel.split_by_torch))  # 6 lines to read

# %% tags=["experiment"]
ranks_of_torch = run_ranks(
    tensor_parallel.with_parallelize_module, 2, sizes.split_rows, backend="gloo"
)
ranks_of_answers = run_ranks(
    tensor_parallel.compared_block, 2, answers, sizes.split_rows, backend="gloo"
)
by_torch = ranks_of_torch[0]
by_answers = ranks_of_answers[0].differences

for what, difference in by_torch.items():
    print(
        f"{what:<20} difference to the whole block: torch {difference:.1e}, "
        f"your answers {by_answers[what]:.1e}"
    )
largest = max(*by_torch.values(), *by_answers.values())
course.claim(
    "parallelize_module and the answers of this part compute the same block on two ranks to 1e-6",
    round(largest, 6) == 0,
    f"{largest:.1e}",
)

# %% [markdown]
# **Shown**: up to rounding, torch and your answers compute the same numbers. If you use `ColwiseParallel`, give q, k
# and v a layer each. It would cut the rows of our `qkv` layer into N blocks, so a rank would get queries without their
# keys.
#
# **Takeaway** A plan of `ColwiseParallel` and `RowwiseParallel` does what your SplitMLP does. In attention, each rank
# must get the queries, keys and values of the same heads.
