# %% [markdown]
# # Beyond data parallel, part 1: Say whether it fits
#
# **Will this model train on these devices, and what would it take?**
#
# If you guess wrong, the job runs out of memory, or devices wait for each other. A few formulas give the answer before
# you rent anything. You check three of them against exact counts, and pick plans for ten clusters.
#
# **You will be able to**
#
# - say how many FLOPs a training step of a GPT takes;
# - say what each device keeps under DDP, ZeRO, tensor parallel, pipeline parallel and checkpointing;
# - pick a plan for a model and a cluster, and say what the devices wait for.
#
# **Minutes** 34 core · 52 in all
#
# **Needs** nothing

# %% locked="setup"
import torch

import course
from course.checks import beyond_data_parallel as check
from course.plots import beyond_data_parallel as plots
from course.training import plans
from course.training.plans import JOBS, Gpt, Plan

print(course.machine())

# %% [markdown]
# Part 1 counts what a model needs, and parts 2 to 4 split it.
#
# Write your predictions into the cells with `None`. Later cells use your answer once its check has passed. Before that,
# they use the reference solution, if your copy of the course has it. Leave the empty cell after each check alone,
# because your instructor's tests go there.

# %% [markdown]
# ## How much does a step compute?
#
# A step cannot be faster than its arithmetic allows. In a large GPT, nearly all of it is matrix products. The product
# of an (n, k) and a (k, m) matrix takes n · m · k multiplications and about as many additions. So we count 2 n m k
# *FLOPs* (floating-point operations).
#
# ### Exercise 1 · The FLOPs of a step
#
# Count the FLOPs of one training step, forward and backward. The products are:
#
# - **linear layers**: each block of width d has four, with 3d², d², 4d² and 4d² weights;
# - **attention**: each block multiplies queries by keys, and then the attention weights by the values. Ignore the
#   causal mask: each token attends to all `columns` tokens of its sequence;
# - **scores**: after the last block, a linear layer computes a score for each token of the vocabulary.
#
# ```python
# >>> step_flops(Gpt(vocabulary=10, width=2, layers=1, heads=1, columns=4), rows=1)
# 2016
# ```
#
# **Points** 2 · **Core** · **Difficulty** ●○○ · **Minutes** 5 · **Lines** 5
#
# **Must**
#
# - count 2 n m k FLOPs for each product of the forward pass
# - count two products in backward for each product in forward, one per gradient
# - leave out everything else: norms, GELU, softmax, embeddings, the update.
#
# **Source** Kaplan et al. 2020, arXiv:2001.08361, section 2.1; Chowdhery et al. 2022, arXiv:2204.02311, appendix B.
#
# <details><summary>Hint 1</summary>
#
# How many weights does a block have in total? Each token uses each of them once.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Per token, the linear layers of a block take 2 · 12 d² FLOPs. Attention has two products, and each takes 2 · columns ·
# d, however many heads share the width.
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
# To check your formula, torch's `FlopCounterMode` adds up the FLOPs of the matrix products in a run. On the *meta*
# device, tensors have a shape but no memory. So a laptop can count the FLOPs of a model of 7 billion parameters.
#
# **Predict**: how many FLOPs per parameter and token does a training step of this model take?

# %%
predicted_flops = None  # per parameter and token

# %% tags=["experiment"]
step_flops_now = course.solved(check.step_flops)
gpt = Gpt(vocabulary=32_000, width=4096, layers=32, heads=32, columns=2048)
model = gpt.model("meta")


def forward_and_backward():
    loss = gpt.loss(model, rows=1)
    loss.backward()


flops = plans.counted_flops(forward_and_backward)
parameters = sum(weights.numel() for weights in model.parameters())
per_parameter_and_token = flops / parameters / gpt.columns

print(
    f"{parameters / 1e9:.2f} billion parameters; "
    f"{flops:.4g} FLOPs per sequence of {gpt.columns} tokens"
)
print(
    course.score(
        "07/1", "FLOPs per parameter and token", predicted_flops, per_parameter_and_token, null=None
    )
)
course.claim(
    "the closed form of the FLOPs equals torch's count",
    step_flops_now(gpt, 1) == flops,
    f"{flops:,}",
)

# %% [markdown]
# **Known**: forward takes about two FLOPs per parameter and token, and backward takes about four (Kaplan et al. 2020).
# The two products of attention use no parameters, so they come on top.
#
# <details><summary>May I count my own model on its device?</summary>
#
# Count it on the meta device, too. With fused attention, torch counts one more product per block on a GPU, because
# backward computes the scores again. On a CPU, it counts none of attention (torch 2.13, `torch/utils/flop_counter.py`).
#
# </details>
#
# **Takeaway** A training step of a large GPT takes about 6 FLOPs per parameter and token. Attention over long sequences
# adds more.

# %% [markdown]
# ## Which state does a device keep?
#
# The *state* is the weights, their gradients and the optimizer's numbers. A *plan* arranges the devices along three
# axes. The sizes of the axes multiply to the number of devices:
#
# - **data** ranks compute different sequences with the same weights;
# - **tensor** ranks split the layers, so each computes with a part of the weights (part 3);
# - **pipeline** ranks each keep some of the layers (part 4).
#
# The table lists the bytes per parameter:
#
# | | weight | gradient | optimizer (Adam) | in all |
# |---|---|---|---|---|
# | mixed precision | 2 | 2 | 12: a float32 copy of the weight and two moments | 16 |
# | float32 | 4 | 4 | 8: two moments | 16 |
#
# *ZeRO* lets the N data ranks share these bytes, in stages:
#
# - stage 0 is DDP: each rank keeps everything;
# - in stage 1, a rank keeps 1/N of the optimizer's bytes;
# - in stage 2, it also keeps only 1/N of the gradients;
# - in stage 3, it also keeps only 1/N of the weights.
#
# ### Exercise 2 · The bytes of the state
#
# Compute the bytes that one device keeps.
#
# ```python
# >>> state_bytes(80, Plan(data=2, tensor=4, stage=1))
# {'weights': 40.0, 'gradients': 40.0, 'optimizer': 120.0}
# ```
#
# **Points** 2 · **Core** · **Difficulty** ●○○ · **Minutes** 4 · **Lines** 8
#
# **Must**
#
# - return the bytes that one device keeps of "weights", "gradients" and "optimizer"
# - divide all three by the tensor ranks and by the pipeline ranks
# - divide what the stage shards by the data ranks as well.
#
# **Source** Rajbhandari et al. 2020, "ZeRO", arXiv:1910.02054, sections 3 and 5.
#
# <details><summary>Hint 1</summary>
#
# Which ranks hold different weights, and which ranks hold copies that a stage can shard?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `here = parameters / (plan.tensor * plan.pipeline)`, and a shard is `here / plan.data`. The rank keeps a shard of the
# optimizer if `plan.stage >= 1`, of the gradients from stage 2 on, and of the weights in stage 3.
#
# </details>


# %% solution="state_bytes"
def state_bytes(parameters, plan, mixed=True):
    """Bytes that one device keeps: {"weights": ..., "gradients": ..., "optimizer": ...}.

    Args:
        parameters: of the whole model.
        plan: a Plan with data, tensor, pipeline and stage.
        mixed: False if all is in float32.
    """
    ### BEGIN SOLUTION
    weights, gradients, optimizer = (2, 2, 12) if mixed else (4, 4, 8)
    here = parameters / (plan.tensor * plan.pipeline)
    shard = here / plan.data
    return {
        "weights": weights * (shard if plan.stage >= 3 else here),
        "gradients": gradients * (shard if plan.stage >= 2 else here),
        "optimizer": optimizer * (shard if plan.stage >= 1 else here),
    }
    ### END SOLUTION


# %% test="state_bytes-visible" points=1
check.state_bytes(state_bytes)

# %% test="state_bytes-hidden" points=1
### BEGIN HIDDEN TESTS
check.state_bytes(state_bytes, seed=528)
### END HIDDEN TESTS

# %% [markdown]
# The cell trains a small model in float32 for one step of Adam. Then it adds up the bytes of weights, gradients and
# moments, without Adam's step counters.

# %% tags=["experiment"]
state_bytes_now = course.solved(check.state_bytes)
small = Gpt(vocabulary=96, width=64, layers=4, heads=4, columns=48)
small_model = small.model("cpu")
adam = torch.optim.Adam(small_model.parameters())
loss = small.loss(small_model, rows=2)
loss.backward()
adam.step()

kept_bytes = {"weights": 0, "optimizer": 0, "gradients": 0}
for weights in small_model.parameters():
    moments = adam.state[weights]
    kept_bytes["weights"] += weights.nbytes
    kept_bytes["optimizer"] += moments["exp_avg"].nbytes
    kept_bytes["optimizer"] += moments["exp_avg_sq"].nbytes
    kept_bytes["gradients"] += weights.grad.nbytes

print(kept_bytes)
course.claim(
    "the closed form of the state equals the bytes of the tensors after a step of Adam",
    state_bytes_now(small.parameters, Plan(), mixed=False) == kept_bytes,
    f"{sum(kept_bytes.values()):,}",
)

# %% [markdown]
# **Takeaway** In mixed precision, the optimizer keeps 12 of the 16 bytes per parameter, so shard the optimizer first.
#
# <details><summary>Which line of the table is my training?</summary>
#
# The first line is the mixed precision of the ZeRO paper. With `torch.autocast` and float32 weights, the state stays in
# float32. With bfloat16 weights and float32 gradients, Megatron Core keeps 18 bytes (its documentation of the
# distributed optimizer).
#
# </details>

# %% [markdown]
# ## Which activations does a device keep?
#
# A device whose state fits can still run out of memory. The forward pass saves *activations* for the backward pass, and
# long sequences have many. The table lists what a block of width d saves per token, with fused attention. Here, tensor
# ranks cut attention and the MLP, but not the norms.
#
# | saved | numbers per token | on each of t tensor ranks |
# |---|---|---|
# | inputs and outputs of the two norms | 4 d | 4 d |
# | mean and inverse deviation of each norm | 4 | 4 |
# | queries, keys and values; the output of attention | 4 d | 4 d / t |
# | the logarithm of each softmax's sum, per head | heads | heads / t |
# | the MLP before and after GELU | 8 d | 8 d / t |
#
# **Predict**: a model of 32 blocks of width 4096 computes one sequence of 2,048 tokens, with 16 bits per number. How
# many GB do its blocks save?

# %%
predicted_gigabytes = None  # GB

# %% [markdown]
# A plan can save fewer bytes at a time:
#
# - **Micro-batches**: a data rank computes a few of its rows at a time, and adds up the gradients. A micro-batch is *in
#   flight* while the rank holds its activations. Without a pipeline, one is in flight. In a pipeline of P ranks, the
#   first rank has P in flight, or all if there are fewer. (This is the 1F1B schedule of part 4.)
# - **Checkpointing** (`torch.utils.checkpoint`) saves only the input of each block, d numbers per token. The backward
#   pass computes the blocks again, one at a time. So at the peak, one block has all its activations.
#
# ### Exercise 3 · The bytes of activations
#
# Count the bytes that the first pipeline rank saves. In the example, each of 2 tokens saves 16 · 2 + 4 + 1 = 37
# numbers.
#
# ```python
# >>> activation_bytes(Gpt(vocabulary=10, width=2, layers=1, heads=1, columns=2), 1, Plan())
# 148.0
# ```
#
# **Points** 4 · **Core** · **Difficulty** ●●○ · **Minutes** 7 · **Lines** 8
#
# **Must**
#
# - count the tokens of one micro-batch of one data rank, in the blocks of the rank
# - multiply by the number of micro-batches in flight
# - with checkpointing, count only the inputs of these blocks for each micro-batch in flight; then add, once, what one
#   block saves besides its input.
#
# **You may assume** all divisions leave no remainder. Embedding and scores are left out.
#
# **Source** Korthikanti et al. 2022, arXiv:2205.05198, section 4, for another block; Narayanan et al. 2021,
# arXiv:2104.04473, section 2.2.
#
# <details><summary>Hint 1</summary>
#
# How many tokens does a micro-batch have, how many blocks does a rank have, and how many micro-batches does it hold?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `tokens = rows / plan.data / plan.micro_batches * gpt.columns`. A block saves
# `tokens * (4 d + 4 + (12 d + heads) / t)` numbers. There are `min(plan.pipeline, plan.micro_batches)` micro-batches in
# flight.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# With checkpointing, add two terms: in flight · blocks · `tokens * d`, and once the block without its input,
# `block - tokens * d`.
#
# </details>


# %% solution="activation_bytes"
def activation_bytes(gpt, rows, plan, size=2):
    """Bytes that the blocks of the first pipeline rank save at most, a number.

    Args:
        gpt: a Gpt with width, layers, heads and columns (tokens per sequence).
        rows: sequences in the batch of all devices.
        plan: a Plan with data, tensor, pipeline, micro_batches and checkpointing.
        size: bytes per number.
    """
    ### BEGIN SOLUTION
    d = gpt.width
    tokens = rows / plan.data / plan.micro_batches * gpt.columns
    block = tokens * (4 * d + 4 + (12 * d + gpt.heads) / plan.tensor)
    layers = gpt.layers / plan.pipeline
    in_flight = min(plan.pipeline, plan.micro_batches)
    if plan.checkpointing:
        return size * (in_flight * layers * tokens * d + block - tokens * d)
    return size * in_flight * layers * block
    ### END SOLUTION


# %% test="activation_bytes-visible" points=2
check.activation_bytes(activation_bytes)

# %% test="activation_bytes-hidden" points=2
### BEGIN HIDDEN TESTS
check.activation_bytes(activation_bytes, seed=639)
### END HIDDEN TESTS

# %% [markdown]
# The cell runs the four blocks of the small model in float32, with and without checkpointing. Hooks count the bytes
# that autograd saves.

# %% tags=["experiment"]
activation_bytes_now = course.solved(check.activation_bytes)
x = torch.randn(2, small.columns, small.width, requires_grad=True)
saved = plans.saved_by_blocks(small_model, x)
saved_checkpointed = plans.saved_by_blocks(small_model, x, checkpointing=True)
print(f"bytes saved: {saved:,}; with checkpointing {saved_checkpointed:,}")

formula = activation_bytes_now(small, 2, Plan(), size=4)
formula_checkpointed = activation_bytes_now(small, 2, Plan(checkpointing=True), size=4)
gigabytes = activation_bytes_now(gpt, 1, Plan()) / 1e9
print(
    course.score("07/1", "GB that the blocks save of one sequence", predicted_gigabytes, gigabytes)
)
course.claim(
    "the closed form of the activations equals the bytes that hooks count, with checkpointing and without",
    formula == saved and formula_checkpointed == saved_checkpointed,
    f"{saved:,} and {saved_checkpointed:,}",
)

# %% [markdown]
# **Takeaway** Sharding the state does not shrink activations. Smaller micro-batches, tensor ranks and checkpointing do.

# %% [markdown]
# ## What does a plan send? · extra
#
# Messages take time, so a plan that fits can still be slow. A ring's all-reduce has two halves, a reduce-scatter and an
# all-gather. In each half, a rank sends (N - 1) / N of the tensor (02/1). All tensors below have 16 bits per number.
#
# | axis | which tensor | how often |
# |---|---|---|
# | data, stage 0 | the rank's gradients | an all-reduce per step |
# | data, stage 1 | the rank's gradients, then weights | a reduce-scatter and a gather per step |
# | data, stage 2 | the rank's gradients, then weights | a reduce-scatter per micro-batch, a gather per step |
# | data, stage 3 | the rank's weights, then gradients | two gathers and a reduce-scatter per micro-batch |
# | tensor | a block's activations, tokens · d | two all-reduces in forward and two in backward, per block |
# | pipeline | the same, not cut by tensor ranks | to the next rank in forward, their gradient back |
#
# In stages 0 and 1, a rank adds up the gradients of its micro-batches, and sends them once per step. (For this, torch's
# DDP needs `no_sync()`.) In stages 2 and 3, no rank keeps all gradients, so each rank sends them after every
# micro-batch. Checkpointing runs forward twice, so count the two all-reduces of forward twice.
#
# ### Exercise 4 · The bytes that a device sends
#
# Compute what one device sends in a step. The model of the example has 118 parameters, or 236 bytes. Each of 4 DDP
# ranks sends 2 · 3/4 of them.
#
# ```python
# >>> sent_bytes(Gpt(vocabulary=10, width=2, layers=1, heads=1, columns=4), 4, Plan(data=4))
# {'data': 354.0, 'tensor': 0.0, 'pipeline': 0}
# ```
#
# **Points** 4 · **Extra** · **Difficulty** ●●○ · **Minutes** 12 · **Lines** 9
#
# **Must**
#
# - return the bytes per step that a device in the middle of the pipeline sends along each axis
# - count only the rank's own share of weights, rows and layers
# - return 0 for an axis of one rank.
#
# **Source** Rajbhandari et al. 2020, section 7; Shoeybi et al. 2019, "Megatron-LM", arXiv:1909.08053, section 3.
#
# <details><summary>Hint 1</summary>
#
# Which tensor does each axis send, and how many halves of an all-reduce does it take?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# With M micro-batches, the data ranks send 2, 2, M + 1 or 3 M halves of `2 * gpt.parameters / (tensor * pipeline)`
# bytes. `once(n_bytes, ranks)` is one half.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# In a step, the activations of a block take `2 * rows / plan.data * gpt.columns * gpt.width` bytes, however many
# micro-batches there are. Tensor ranks all-reduce them 4 times per block of the rank, or 6 times with checkpointing.
#
# </details>


# %% solution="sent_bytes"
def sent_bytes(gpt, rows, plan):
    """Bytes that one device sends per step: {"data": ..., "tensor": ..., "pipeline": ...}.

    Args:
        gpt: a Gpt with parameters, width, layers and columns (tokens per sequence).
        rows: sequences in the batch of all devices.
        plan: a Plan with data, tensor, pipeline, stage, micro_batches and checkpointing.
    """

    def once(n_bytes, ranks):
        """What a rank sends in one half of an all-reduce of `n_bytes`."""
        return n_bytes * (ranks - 1) / ranks

    ### BEGIN SOLUTION
    m = plan.micro_batches
    weights = 2 * gpt.parameters / (plan.tensor * plan.pipeline)
    activations = 2 * rows / plan.data * gpt.columns * gpt.width
    all_reduces = (6 if plan.checkpointing else 4) * gpt.layers / plan.pipeline
    return {
        "data": (2, 2, m + 1, 3 * m)[plan.stage] * once(weights, plan.data),
        "tensor": all_reduces * 2 * once(activations, plan.tensor),
        "pipeline": 2 * activations if plan.pipeline > 1 else 0,
    }
    ### END SOLUTION


# %% test="sent_bytes-visible" points=2
check.sent_bytes(sent_bytes)

# %% test="sent_bytes-hidden" points=2
### BEGIN HIDDEN TESTS
check.sent_bytes(sent_bytes, seed=741)
### END HIDDEN TESTS

# %% [markdown]
# ### Exercise 5 · The best plan
#
# Write the function that picks the fastest of `plans`. The last section uses it for ten clusters.
#
# **Points** 3 · **Extra** · **Difficulty** ●○○ · **Minutes** 6 · **Lines** 10
#
# **Must**
#
# - leave out plans that cannot run: tensor ranks must divide the heads, pipeline ranks the layers, and data ranks ·
#   micro-batches the rows; also leave out stages 2 and 3 with a pipeline
# - leave out plans with more bytes than `job.memory`; if none is left, raise ValueError
# - return the plan with the fewest seconds; of equally fast plans, the one with the fewest bytes.
#
# **Source** Narayanan et al. 2021, arXiv:2104.04473, section 3; DeepSpeed documentation, "Pipeline parallelism".
#
# <details><summary>Hint 1</summary>
#
# What is the remainder if a rank's share is a whole number?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Collect the plans that are left in a list, then `min(left, key=lambda plan: (seconds(job, plan), n_bytes(job,
# plan)))`.
#
# </details>


# %% solution="best_plan"
def best_plan(job, plans, n_bytes, seconds):
    """The fastest of `plans` that can run and fits, a Plan.

    Args:
        job: a Job with gpt, rows and memory (bytes of a device).
        plans: list of Plan.
        n_bytes, seconds: functions of (job, plan): bytes that a device holds, and seconds of a step.

    Raises: ValueError if no plan runs and fits.
    """
    ### BEGIN SOLUTION
    fitting = []
    for plan in plans:
        if (
            job.gpt.heads % plan.tensor
            or job.gpt.layers % plan.pipeline
            or job.rows % (plan.data * plan.micro_batches)
        ):
            continue
        if plan.stage >= 2 and plan.pipeline > 1:
            continue
        if n_bytes(job, plan) > job.memory:
            continue
        fitting.append(plan)
    if not fitting:
        raise ValueError("no plan runs and fits; take more devices or a smaller model.")
    return min(fitting, key=lambda plan: (seconds(job, plan), n_bytes(job, plan)))
    ### END SOLUTION


# %% test="best_plan-visible" points=1
check.best_plan(best_plan)

# %% test="best_plan-hidden" points=2
### BEGIN HIDDEN TESTS
check.best_plan(best_plan, seed=852)
### END HIDDEN TESTS

# %% [markdown]
# ## Which plan is best?
#
# If several plans fit, take the fastest. `plans.Costs` computes the seconds of a step from five assumptions:
#
# - **computing**: products run at half of the peak, and checkpointing adds a third;
# - **tensor messages**: devices wait for all of them, in every block;
# - **pipeline messages**: devices wait for all of them, once per rank and direction;
# - **the bubble** (part 4): P pipeline ranks with M micro-batches wait for each other, for (P - 1) / M of the busy
#   time;
# - **data messages** travel during all passes (stage 3), all backward passes (stage 2), or the last backward pass
#   (stages 0 and 1). Devices wait for the rest.
#
# A plan can run if it uses all devices, and if:
#
# - tensor ranks lie in one node, and divide the heads;
# - pipeline ranks divide the layers;
# - data ranks · micro-batches divide the rows;
# - a plan with a pipeline has stage 0 or 1, as in DeepSpeed.
#
# The cell prints ten jobs and their clusters. GB is the memory that training may fill on a device. GB/s is how fast a
# device sends within its node, and to other nodes. A node has up to eight devices; each of the 16 desktops has one.

# %%
for name, job in JOBS.items():
    print(f"{name:<32} {job}")

# %% [markdown]
# **Pick** plans for as many jobs as you like, as in the two examples. `Plan` takes `data`, `tensor`, `pipeline`,
# `stage`, `micro_batches` and `checkpointing`.
#
# The next cell prints the best plan of each job, and the main cause of its lost time. *MFU* (model FLOPs utilization)
# is the share of the peak that the model's own arithmetic reaches, here at most half.
#
# **Predict**: in how many of the ten clusters are data ranks alone, with any stage, within 5 % of the best plan?

# %%
predicted_clusters = None  # of ten
picked = {
    "0.2B on one desktop card": Plan(micro_batches=4),
    "1B on eight A100": Plan(data=8, micro_batches=4),
}

# %% tags=["experiment"]
best_plan_now = course.solved(check.best_plan)
sent_bytes_now = course.solved(check.sent_bytes)
costs = plans.Costs(step_flops_now, state_bytes_now, activation_bytes_now, sent_bytes_now)

best_plans = {}
data_plans = {}
for name, job in JOBS.items():
    candidates = list(plans.cuts(job))
    data_alone = [plan for plan in candidates if plan.data == job.devices]
    best_plans[name] = costs.best_of(best_plan_now, job, candidates)
    data_plans[name] = costs.best_of(best_plan_now, job, data_alone)

print(f"{'cluster':<32} MFU  {'most lost to':<18} best plan")
for name, job in JOBS.items():
    plan = best_plans[name]
    print(f"{name:<32} {costs.mfu(job, plan):.0%}  {costs.main_loss(job, plan):<18} {plan}")

# %% tags=["experiment"]
your_plans = {}
for name, plan in picked.items():
    your_plans[name] = costs.best_of(best_plan_now, JOBS[name], [plan])
    if your_plans[name] is None:
        print(f"{name}: {costs.refusal(JOBS[name], plan)}")

times_the_best = {
    "data ranks alone": costs.over_best(JOBS, data_plans, best_plans),
    "your pick": costs.over_best(JOBS, your_plans, best_plans),
}

enough = sum(ratio <= 1.05 for ratio in times_the_best["data ranks alone"].values())
print(
    course.score(
        "07/1",
        "clusters in which data ranks alone are enough",
        predicted_clusters,
        enough,
        null=None,
    )
)
plots.over_best(
    list(JOBS),
    times_the_best,
    f"Data ranks alone are within 5 % of the best plan on {enough} of {len(JOBS)} clusters",
)

# %% [markdown]
# Of equally fast plans, the table shows the one that needs the least memory. So it shows ZeRO-3 for 1B, although the
# DDP plan of the example is as fast. On one device, there is nothing to split. On the last two clusters, data ranks
# alone cannot share the rows of the batch equally.
#
# **Known**: split layers within a node, put a pipeline between nodes, and add data ranks for speed (Narayanan et al.
# 2021, section 3).
#
# The next figure shows what one device keeps for 7B on eight A100: the state, and the activations of the blocks.

# %% tags=["experiment"]
job = JOBS["7B on eight A100"]
compared = {}
for stage in range(4):
    compared[f"ZeRO-{stage}"] = Plan(data=8, stage=stage, micro_batches=8)
compared["ZeRO-1, checkpointing"] = Plan(data=8, stage=1, micro_batches=8, checkpointing=True)

held = {}
fitting = []
for name, plan in compared.items():
    held[name] = costs.held(job, plan)
    if costs.n_bytes(job, plan) <= job.memory:
        fitting.append(name)

plots.held(
    held,
    job.memory,
    f"7 billion parameters on 8 devices of 75 GB: {fitting[0]} is the first that fits",
)

# %% [markdown]
# **Takeaway** Memory, the batch, the heads and the layers decide which plans can run. Waiting for messages, bubbles and
# recomputing decide which of them is fastest.
#
# `course checkup --plan 8xH100@450GB/s train.py` counts the bytes of your own training and compares plans for it.
