# %% [markdown]
# # Beyond data parallel, part 1: Say whether it fits
#
# **Will this model train on these devices, and what would it take?**
#
# You write formulas for what a training computes and keeps, and counters confirm them exactly. Then you pick plans for
# ten clusters.
#
# **You will be able to**
#
# - say how many FLOPs a training step of a GPT takes;
# - say what a device keeps under a plan: DDP, ZeRO, tensor and pipeline parallel, checkpointing;
# - pick a plan for a model and a cluster, and say what it waits for.
#
# **Minutes** 34 core · 52 in all
#
# **Needs** nothing

# %% locked="setup"
import functools

import torch
from torch.utils.checkpoint import checkpoint

import course
from course.checks import beyond_data_parallel as check
from course.measure.saved_tensors import peak_bytes_saved
from course.plots import beyond_data_parallel as plots
from course.training import plans
from course.training.plans import JOBS, Gpt, Plan

print(course.machine())

# %% [markdown]
# **The unit** trains models that do not fit on one device. Part 1 counts, part 2 shards the weights, part 3 splits a
# layer, part 4 splits the depth.
#
# Write your prediction into each cell with `None`. A check names the first thing that is wrong. Later cells use your
# answer if its check passed, else the reference solution, if your copy of the course includes it. Leave the empty cell
# after each check alone: your instructor's tests go there.

# %% [markdown]
# ## How much does a step compute?
#
# The arithmetic of a step gives a lower bound for its time. Nearly all of it is in products of matrices. A product of
# (n, k) and (k, m) takes n · m · k multiplications and as many additions: 2 n m k *FLOPs* (floating-point operations).
#
# ### Exercise 1 · The FLOPs of a step
#
# Count the FLOPs of one training step, forward and backward. A block of width d has four linear layers, whose weights
# have 3d², d², 4d² and 4d² numbers. Attention multiplies queries with keys, and then the attention weights with the
# values. The causal mask saves nothing here: each token looks at all `columns` tokens of its sequence. After the last
# block, a linear layer computes the scores of the vocabulary. Looking up an embedding takes no FLOPs.
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
# - count each product of the forward pass with 2 n m k FLOPs
# - count two products in backward for each in forward, one per gradient
# - leave out everything else: norms, GELU, softmax, the update.
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
# Torch can count FLOPs: `FlopCounterMode` adds up the products of a run. On the *meta* device, tensors have a shape and
# no memory, so a model of 7 billion parameters runs on any machine.
#
# **Predict**: how many FLOPs per parameter and token does a step of this model take?

# %%
predicted_flops = None  # per parameter and token

# %% tags=["experiment"]
step_flops_now = course.solved(check.step_flops)
gpt = Gpt(vocabulary=32_000, width=4096, layers=32, heads=32, columns=2048)
model = gpt.model("meta")
parameters = sum(weights.numel() for weights in model.parameters())
computed = plans.counted_flops(lambda: gpt.loss(model, 1).backward())
per_token = computed / parameters / gpt.columns
print(f"{parameters / 1e9:.2f} billion parameters; {computed:.4g} FLOPs per sequence of {gpt.columns} tokens")
print(course.score("07/1", "FLOPs per parameter and token", predicted_flops, per_token, null=None))
course.claim("the closed form of the FLOPs equals torch's count", step_flops_now(gpt, 1) == computed, f"{computed:,}")

# %% [markdown]
# **Known**: per parameter and token, forward takes two FLOPs and backward four (Kaplan et al. 2020). Attention adds
# some. The embedding is looked up, so it takes none.
#
# **Takeaway** A training step takes about 6 FLOPs per parameter and token, and long sequences add attention.

# %% [markdown]
# ## What does a device keep between two steps?
#
# Training keeps much more than the weights. A *plan* says how devices share all of it. The sizes of its three axes
# multiply to the number of devices:
#
# - **data** ranks compute different sequences, with the same weights;
# - **tensor** ranks share every layer: each keeps a part of its weights (part 3);
# - **pipeline** ranks each keep some of the layers (part 4).
#
# In the mixed precision of the ZeRO paper, a parameter takes 16 bytes: 2 for the weight in 16 bits, 2 for its gradient,
# and 12 for Adam, which keeps a float32 copy of the weight and two moments. (Frameworks differ: Megatron Core keeps
# gradients in float32 for bfloat16 weights, which makes 18.) In float32, and with `torch.autocast`, a parameter takes
# 4 + 4 + 8.
#
# *ZeRO* lets the N data ranks share these bytes. In stage 1, a rank keeps 1/N of the optimizer's bytes. In stage 2, it
# also keeps only 1/N of the gradients, and in stage 3 only 1/N of the weights. Stage 0 is DDP.
#
# ### Exercise 2 · The bytes of the state
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
# - return the bytes per device of "weights", "gradients" and "optimizer"
# - divide all three by the tensor and by the pipeline ranks; divide what the stage shards by the data ranks, too.
#
# **Source** Rajbhandari et al. 2020, "ZeRO", arXiv:1910.02054, sections 3 and 5.
#
# <details><summary>Hint 1</summary>
#
# Which ranks hold different weights, and which hold copies that a stage can cut?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `here = parameters / (plan.tensor * plan.pipeline)`, and a shard is `here / plan.data`. The optimizer is a shard if
# `plan.stage >= 1`, the gradients if it is 2 or more, the weights in stage 3.
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
# The cell adds up the bytes of a small model's tensors, in float32, after one step of Adam.

# %% tags=["experiment"]
state_bytes_now = course.solved(check.state_bytes)
small = Gpt(vocabulary=96, width=64, layers=4, heads=4, columns=48)
little = small.model("cpu")
adam = torch.optim.Adam(little.parameters())
small.loss(little, 2).backward()
adam.step()
moments = [state[name] for state in adam.state.values() for name in ("exp_avg", "exp_avg_sq")]
kept = {"weights": list(little.parameters()), "optimizer": moments}
kept["gradients"] = [weights.grad for weights in little.parameters()]
found = {name: sum(tensor.nbytes for tensor in tensors) for name, tensors in kept.items()}
print(found)
course.claim("the closed form of the state equals the bytes of the tensors after a step of Adam",
             state_bytes_now(small.parameters, Plan(), mixed=False) == found, f"{sum(found.values()):,}")  # fmt: skip

# %% [markdown]
# **Takeaway** The optimizer keeps 12 of the 16 bytes per parameter, so shard the optimizer first.

# %% [markdown]
# ## What does a device keep during a step?
#
# Long sequences can fill a device even if the state fits, because the forward pass saves *activations* for the backward
# pass. With fused attention, a block of width d saves these numbers per token. Tensor ranks cut attention and the MLP,
# but not the norms.
#
# | saved | numbers per token | on each of t tensor ranks |
# |---|---|---|
# | inputs and outputs of the two norms | 4 d | 4 d |
# | mean and deviation of each norm | 4 | 4 |
# | queries, keys, values; what attention returns | 4 d | 4 d / t |
# | the logarithm of each softmax's sum, per head | heads | heads / t |
# | the MLP before and after GELU | 8 d | 8 d / t |
#
# A data rank computes its rows in *micro-batches*, one after the other, and adds up their gradients. In a pipeline of P
# ranks with the schedule 1F1B (part 4), the first rank holds the activations of P micro-batches, or of all if there are
# fewer.
#
# *Checkpointing* keeps only the input of each block, d numbers per token. The backward pass computes the blocks again,
# one at a time. So at the peak, one block has all its activations.
#
# **Predict**: a model of 32 blocks of width 4096 computes one sequence of 2,048 tokens in bfloat16, without
# checkpointing. How many GB do its blocks save?

# %%
predicted_gigabytes = None  # GB

# %% [markdown]
# ### Exercise 3 · The bytes of activations
#
# Count what the first pipeline rank saves. In the example, 2 tokens save 16 · 2 + 4 + 1 = 37 numbers each.
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
# - count the tokens of one micro-batch of one data rank, in the rank's own blocks
# - count as many micro-batches as the rank holds (they are *in flight*)
# - with checkpointing, count the inputs of the rank's blocks for each micro-batch in flight, and add once what a block
#   saves besides its input.
#
# **You may assume** all divisions leave no remainder. Embedding and scores are left out.
#
# **Source** Korthikanti et al. 2022, arXiv:2205.05198, section 4, for another block; Narayanan et al. 2021,
# arXiv:2104.04473, section 2.2.
#
# <details><summary>Hint 1</summary>
#
# How many tokens has a micro-batch, how many blocks has a rank, and how many micro-batches does it hold?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `tokens = rows / plan.data / plan.micro_batches * gpt.columns`. A block saves `tokens * (4 d + 4 + (12 d + heads) /
# t)` numbers. In flight are `min(plan.pipeline, plan.micro_batches)`.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# With checkpointing: in flight · blocks · `tokens * d`, and once the block without its input, `block - tokens * d`.
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
# The cell runs the four blocks of the small model in float32, with checkpointing and without. Hooks count the bytes
# that autograd saves.

# %% tags=["experiment"]
activation_bytes_now = course.solved(check.activation_bytes)


def run_blocks(checkpointing):
    x = torch.randn(2, small.columns, small.width, requires_grad=True)
    for block in little.blocks:
        x = checkpoint(block, x, None, use_reentrant=True) if checkpointing else block(x, None)
    x.sum().backward()


saved = {}
for each in (False, True):
    saved[each] = peak_bytes_saved(functools.partial(run_blocks, each), little.parameters())
formula = {each: activation_bytes_now(small, 2, Plan(checkpointing=each), size=4) for each in saved}
print(f"bytes saved: {saved[False]:,}; with checkpointing {saved[True]:,}")
gigabytes = activation_bytes_now(gpt, 1, Plan()) / 1e9
print(course.score("07/1", "GB that the blocks save of one sequence", predicted_gigabytes, gigabytes))
course.claim("the closed form of the activations equals the bytes that hooks count, with checkpointing and without",
             formula == saved, f"{saved[False]:,} and {saved[True]:,}")  # fmt: skip

# %% [markdown]
# **Known**: dropout saves masks as well (Korthikanti et al. 2022), and attention that is not fused saves heads ·
# columns weights per token. The scores of a large vocabulary can save more than several blocks; they are not counted
# here.
#
# **Takeaway** Sharding the state does not shrink activations. Smaller micro-batches, tensor ranks and checkpointing do.

# %% [markdown]
# ## What does a plan send? · extra
#
# Messages cost time. A ring's all-reduce has two halves, a reduce-scatter and an all-gather. In each half, a rank sends
# (N - 1) / N of the tensor (02/1). All tensors below are in 16 bits.
#
# | axis | which tensor | how often |
# |---|---|---|
# | data, stages 0 and 1 | the rank's gradients, then weights | an all-reduce, or its two halves, per step |
# | data, stage 2 | the rank's gradients, then weights | a reduce-scatter per micro-batch, a gather per step |
# | data, stage 3 | the rank's weights, then gradients | two gathers and a reduce-scatter per micro-batch |
# | tensor | a block's activations, tokens · d | two all-reduces in forward and two in backward, per block |
# | pipeline | a block's activations, tokens · d | to the next rank in forward, their gradient back |
#
# With DDP, more micro-batches send no more bytes, because gradients add up on the rank. In stages 2 and 3 no rank has
# room for all gradients, so they are sent after each micro-batch. With checkpointing, the second forward pass repeats
# the two all-reduces of a block.
#
# ### Exercise 4 · The bytes that a device sends
#
# The example has 118 parameters: 4 data ranks of DDP send 2 · 3/4 of 236 bytes.
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
# - count the rank's own share of weights, rows and layers
# - return 0 for an axis of one rank.
#
# **Source** Rajbhandari et al. 2020, section 7; Shoeybi et al. 2019, "Megatron-LM", arXiv:1909.08053, section 3.
#
# <details><summary>Hint 1</summary>
#
# For each axis: which tensor is sent, and in how many halves of an all-reduce?
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
# A block's activations of a step have `2 * rows / plan.data * gpt.columns * gpt.width` bytes, however many
# micro-batches there are. Tensor ranks all-reduce them 4 times per block of the rank, 6 times with checkpointing.
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
# Part 2 counts the messages of data ranks, part 3 those of tensor ranks.
#
# ### Exercise 5 · The best plan
#
# Write the function that chooses among `plans`. The last section uses it.
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
# Collect what is left in a list, then `min(left, key=lambda plan: (seconds(job, plan), n_bytes(job, plan)))`.
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
        if job.gpt.heads % plan.tensor or job.gpt.layers % plan.pipeline or job.rows % (plan.data * plan.micro_batches):
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
# Often several plans fit, and one is much faster than the others. `plans.Costs` converts FLOPs and bytes to seconds. It
# assumes:
#
# - Products run at half of the peak. Checkpointing computes a third more.
# - Tensor ranks send the activations of every block, pipeline ranks the activations of one block. Ranks wait for both.
#   P pipeline ranks with M micro-batches also wait (P - 1) / M of the busy time (part 4).
# - Data ranks send gradients and weights during passes (see `Costs.lost`). They wait only if the messages take longer
#   than the passes.
#
# A plan can run if it uses all devices, with tensor ranks in one node. Tensor ranks must divide the heads, pipeline
# ranks the layers, and data ranks · micro-batches the rows. We leave out stages 2 and 3 with a pipeline, because they
# would send the gradients of every micro-batch.
#
# The cell prints ten jobs and their clusters. GB is the memory that a device may fill. GB/s is how fast it sends within
# its node, and to other nodes.

# %%
for name, job in JOBS.items():
    print(f"{name:<32} {job.gpt.parameters / 1e9:6.1f}B, {job.rows:>4} × {job.gpt.columns:>6} tokens; "
          f"{job.devices:>4} devices in nodes of {job.per_node}, {job.memory / 1e9:.0f} GB, "
          f"{job.flops / 1e12:.0f} TFLOP/s, {job.inside / 1e9:g} and {job.between / 1e9:g} GB/s")  # fmt: skip

# %% [markdown]
# **Pick** plans for as many jobs as you like; two are picked as examples. `Plan` takes `data`, `tensor`, `pipeline`,
# `stage`, `micro_batches` and `checkpointing`. What you leave out is 1, 0 or False. If a plan does not fit or cannot
# run, the output below says so.
#
# **Predict**: in how many of the ten clusters are data ranks alone, with any stage, within 5 % of the best plan?

# %%
predicted_clusters = None  # of ten
picked = dict.fromkeys(JOBS)
picked["0.2B on one desktop card"] = Plan(micro_batches=4)
picked["1B on eight A100"] = Plan(data=8, micro_batches=4)

# %% tags=["experiment"]
best_plan_now, sent_bytes_now = course.solved(check.best_plan), course.solved(check.sent_bytes)
costs = plans.Costs(step_flops_now, state_bytes_now, activation_bytes_now, sent_bytes_now)


def best(job, candidates):
    try:
        return best_plan_now(job, candidates, costs.n_bytes, costs.seconds)
    except ValueError:
        return None


best_of = {name: best(job, list(plans.cuts(job))) for name, job in JOBS.items()}
data_alone = {name: best(job, [p for p in plans.cuts(job) if p.data == job.devices]) for name, job in JOBS.items()}
yours = {name: best(JOBS[name], [plan]) if plan else None for name, plan in picked.items()}

# %% tags=["experiment"]
for name, job in JOBS.items():
    mfu = step_flops_now(job.gpt, job.rows) / costs.seconds(job, best_of[name]) / job.devices / job.flops
    print(f"{name}: {best_of[name]}; MFU {mfu:.0%}, {costs.main_loss(job, best_of[name])}")
    if picked[name] and not yours[name]:
        needs = costs.n_bytes(job, picked[name])
        print(f"  yours needs {needs / 1e9:,.0f} GB of {job.memory / 1e9:.0f}, or cannot run")
ways = {"data ranks alone": data_alone, "your pick": yours}
slower = {way: {name: costs.seconds(JOBS[name], plan) / costs.seconds(JOBS[name], best_of[name])
                for name, plan in of_way.items() if plan} for way, of_way in ways.items()}  # fmt: skip
enough = sum(ratio <= 1.05 for ratio in slower["data ranks alone"].values())
print(course.score("07/1", "clusters in which data ranks alone are enough", predicted_clusters, enough, null=None))
plots.over_best(list(JOBS), slower, f"Data ranks alone are enough on {enough} of {len(JOBS)} clusters")

# %% [markdown]
# *MFU*, model FLOPs utilization, is the share of the peak that the model's own arithmetic reaches. We assume at most
# half, and waiting and recomputing lower it. If plans are equally fast, the cell prints the one that needs the least
# memory. For 1B, DDP is just as fast.
#
# **Known** from practice: split layers within a node, put a pipeline between nodes, and add data ranks for speed
# (Narayanan et al. 2021, section 3). **We think** the best plans depend on our assumptions. To test it, change
# `plans.REACHED` and see which plans change.

# %% tags=["experiment"]
job = JOBS["7B on eight A100"]
stages = {f"ZeRO-{stage}": Plan(data=8, stage=stage, micro_batches=8) for stage in range(4)}
stages["ZeRO-1, checkpointing"] = Plan(data=8, stage=1, micro_batches=8, checkpointing=True)
held = {name: costs.held(job, plan) for name, plan in stages.items()}
fits = [name for name in stages if sum(held[name].values()) <= job.memory]
plots.held(held, job.memory, f"7 billion parameters on 8 devices of 75 GB: {fits[0]} is the first that fits")

# %% [markdown]
# **Takeaway** Memory decides which plans are possible, and the network which of them is fast. Put the axis that sends
# most on the fastest links.

# %% [markdown]
# ## What to take home
#
# - A step takes about 6 FLOPs per parameter and token. In mixed precision, the state takes about 16 bytes per
#   parameter. ZeRO-1 shards 12 of them and sends no more bytes than DDP.
# - Activations grow with tokens and layers; micro-batches, tensor ranks and checkpointing cut them.
# - `course checkup --plan 8xH100@450GB/s train.py` counts the bytes of your own training and compares plans for it.
