# %% [markdown]
# # Data parallel, part 6: Take DataParallel apart
#
# **Why does torch advise against the wrapper that takes one line?**
#
# `nn.DataParallel` spreads a model over all GPUs of a machine, in one process and one line. Torch's documentation
# recommends DDP instead. You see what DataParallel does in a step, so that you can decide whether to replace it.
#
# **You will be able to**
#
# - say what `nn.DataParallel` does on your machine, which may be nothing;
# - name what it sends in each step, and what else slows it down;
# - build it, and find the batch size from which two devices pay (extra sections).
#
# **Minutes** 7 core · 54 in all · session 2
#
# **Needs** nothing; part 1 helps (what a rank is)

# %% locked="setup"
import copy
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import nn
from torch.nn import functional as F

import course
from course.checks import data_parallel as check
from course.datasets import fashion
from course.parallel import distributed
from course.plots import data_parallel as plots
from course.training import data_parallel_ways as ways
from course.training.models import FashionCNN

print(course.machine())
sizes = course.sizes("02_data_parallel")

data = fashion.load(sizes.dataset)
images = fashion.floats(data.train_images)
labels = data.train_labels

# %% [markdown]
# ## What does DataParallel do in a step?
#
# ```python
# model = nn.DataParallel(model, device_ids=[0, 1])   # GPUs 0 and 1
# outputs = model(batch)                              # as before
# ```
#
# One process owns the batch, the model and the loss. With N samples and M devices, forward has four steps:
#
# 1. *scatter*: each device gets about N / M samples;
# 2. *replicate*: each device gets a copy of the model, a *replica*;
# 3. *parallel_apply*: each replica computes in its own thread;
# 4. *gather*: the outputs return to the first device.
#
# In backward, the first device scatters the gradient of the outputs, all replicas compute, and the first device sums
# their gradients. The optimizer changes only the weights of the first model. So the replicas are thrown away, and the
# next step sends the model again.

# %%
plots.data_parallel_steps()

# %% [markdown]
# **Predict**: a batch of 16 images goes through the wrapped model on this machine. How many images does one call of the
# model's own forward see? It is 8 with two devices. How many devices does DataParallel use here?

# %%
predicted_images = None

# %% tags=["experiment"]
calls = []  # (images, device) of each call of the model


def note_call(module, inputs):
    batch = inputs[0]
    calls.append((len(batch), str(batch.device)))


model = FashionCNN(dropout=0.0, norm=None).to(course.device())
model.register_forward_pre_hook(note_call)
wrapped = nn.DataParallel(model)
with torch.no_grad():
    wrapped(images[:16].to(course.device()))

print(f"devices that it uses: {wrapped.device_ids}")
print(f"calls of the model (images, device): {calls}")
n_seen = calls[0][0]
print(course.score("02/6", "images per call of the model", predicted_images, n_seen, null=None))

# %% [markdown]
# **Known**: with fewer than two GPUs it makes no replicas and passes the whole batch to your model
# (`torch/nn/parallel/data_parallel.py`). So a "DataParallel benchmark" on a CPU measures the model alone.
#
# Why is it usually slower than DDP? **Known** ([PyTorch's DDP
# tutorial](https://docs.pytorch.org/tutorials/intermediate/ddp_tutorial.html)):
#
# - All replicas compute in threads of one process, which share Python's global interpreter lock (GIL).
# - The model is copied in every step. DDP keeps its models.
# - Inputs are scattered and outputs gathered in every step.
#
# **Takeaway** DataParallel sends its model in every step, DDP its gradients (and buffers). On fewer than two GPUs,
# DataParallel makes no replicas, so look at `device_ids` before you time it.

# %% [markdown]
# ## How does one process compute on many devices? · extra
#
# You build DataParallel, so that you can count every message. The list of devices may hold the same device several
# times, so we number its *places*. Place 0 is the first device.
#
# All data goes through `transfers = distributed.Transfers(devices)`, which logs messages.
#
# `transfers.send(tensors, source, target)` sends a list of tensors from one place to another as one message and
# returns the copies. Gradients flow back through the copies. Place 0 sends messages to itself, too.

# %% [markdown]
# ### Exercise 1 · Scatter a batch
#
# Cut a batch into shards, and send each shard to its device. A batch is a tensor or a container of tensors; the given
# `walk` calls a function on each of them. On 4 devices, 5 rows become 3 shards of 2, 2 and 1 rows, as `torch.chunk`
# cuts them.
#
# **Points** 3 · **Extra** · **Difficulty** ●●○ · **Minutes** 15 · **Lines** 8
#
# **Must**
#
# - cut each tensor along dimension 0 by `torch.chunk`, for `len(transfers.devices)` devices
# - send shard k from place 0 to place k, all its tensors in one message; shard 0, too
#
# **You may assume** that all tensors of a batch have the same length.
#
# **Not allowed** `torch.nn.parallel` and `torch.nn.DataParallel`.
#
# **Source** PyTorch's documentation, `torch.chunk` and `torch.nn.DataParallel`.
#
# <details><summary>Hint 1</summary>
#
# If you call `send` where you meet a tensor, how many messages does a pair of images and labels cost?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# First collect the tensors of the batch in a list. Then cut them all, and send the k-th piece of each as one
# message. Then put the copies where the tensors stood. 5 rows on 4 devices are 3 shards: how many pieces does
# `chunk` give?
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# `walk(batch, tensors.append)` collects. With `arrived = iter(transfers.send(...))`, `walk(batch, lambda tensor:
# next(arrived))` puts back.
#
# </details>


# %% solution="scatter"
def scatter(batch, transfers):
    """The shards of a batch, shard k on device number k of `transfers`.

    Args:
        batch: tensor (N, ...), or a tuple, namedtuple, list or dict of such tensors, of further containers, and of
            anything else; on place 0. At least one tensor is in it, and N is at least 1.
        transfers: distributed.Transfers.

    Returns: list of shards in the order of places, each like the batch in form; as many as `torch.chunk` makes.
    """

    def walk(value, use):
        """`value` with use(tensor) for each tensor."""
        if isinstance(value, torch.Tensor):
            return use(value)
        if isinstance(value, dict):
            return {key: walk(item, use) for key, item in value.items()}
        if isinstance(value, tuple) and hasattr(value, "_fields"):  # a namedtuple
            return type(value)(*[walk(item, use) for item in value])
        if isinstance(value, (list, tuple)):
            return type(value)([walk(item, use) for item in value])
        return value

    ### BEGIN SOLUTION
    def part(pieces, place):
        arrived = iter(transfers.send(pieces, 0, place))
        return walk(batch, lambda tensor: next(arrived))

    tensors = []
    walk(batch, tensors.append)
    cuts = [tensor.chunk(len(transfers.devices)) for tensor in tensors]
    return [part([cut[place] for cut in cuts], place) for place in range(len(cuts[0]))]
    ### END SOLUTION


# %% test="scatter-visible" points=1
check.scatter(scatter)

# %% test="scatter-hidden" points=2
### BEGIN HIDDEN TESTS
check.scatter(scatter, seed=205)
### END HIDDEN TESTS

# %% [markdown]
# Two steps are given. `replicate` makes modules whose parameters are *copies*, through which gradients reach the
# originals. `parallel_apply` runs each replica in its own thread.


# %% locked="replicate"
def replicate(module, transfers, n):
    """Copies of a module on the first n devices, through which gradients flow back to the module."""
    originals = [*module.parameters(), *module.buffers()]  # each once, also a tied one
    replicas = []
    for place in range(n):
        copies = transfers.send(originals, 0, place)
        memo = {}  # deepcopy takes what is in here instead of copying it
        for original, copied in zip(originals, copies, strict=True):
            memo[id(original)] = copied
        replicas.append(copy.deepcopy(module, memo))
    return replicas


def parallel_apply(replicas, parts):
    """The outputs replica(part) of all replicas, each computed in its own thread."""
    grad_enabled = torch.is_grad_enabled()  # a new thread would start with torch's default

    def run(replica, part):
        with torch.set_grad_enabled(grad_enabled):
            return replica(part)

    with ThreadPoolExecutor(len(replicas)) as pool:
        outputs = pool.map(run, replicas, parts)
        return list(outputs)


# %% [markdown]
# ### Exercise 2 · Gather the outputs
#
# Collect the outputs of all devices at place 0, as one tensor. Outputs of shapes (2, 10) and (1, 10) become (3, 10);
# four losses without dimensions become a vector of 4.
#
# **Points** 2 · **Extra** · **Difficulty** ●○○ · **Minutes** 8 · **Lines** 4
#
# **Must**
#
# - send output k from place k to place 0, one message each, also from place 0 itself
# - put the copies together along dimension 0, and let gradients flow back to the outputs
#
# **Not allowed** `torch.nn.parallel` and `torch.nn.DataParallel`.
#
# **Source** PyTorch's documentation, `torch.nn.DataParallel` and `torch.cat`.
#
# <details><summary>Hint 1</summary>
#
# Does `torch.cat` put the losses of four devices together? What does it ask of its tensors?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `torch.atleast_1d(output)` makes a vector of a tensor without dimensions, and returns any other as it is. Cut nothing
# off from autograd on the way: no `detach`, no `item`.
#
# </details>


# %% solution="gather"
def gather(outputs, transfers):
    """The outputs of all devices on place 0, concatenated along dimension 0.

    Args:
        outputs: list of tensors, number k on device number k: all (n_k, ...), alike but for n_k, or all without
            dimensions; one or more, at most as many as there are devices.
        transfers: distributed.Transfers.

    Returns: tensor (sum of the n_k, ...), for outputs without dimensions (number of outputs,).
    """
    ### BEGIN SOLUTION
    arrived = []
    for place, output in enumerate(outputs):
        arrived += transfers.send([output], place, 0)
    return torch.cat([torch.atleast_1d(output) for output in arrived])
    ### END SOLUTION


# %% test="gather-visible" points=1
check.gather(gather)

# %% test="gather-hidden" points=1
### BEGIN HIDDEN TESTS
check.gather(gather, seed=306)
### END HIDDEN TESTS

# %% [markdown]
# ### Exercise 3 · Data parallel
#
# Compute `module(batch)` on all devices: scatter, replicate, apply, gather.
#
# **Points** 3 · **Extra** · **Difficulty** ●●○ · **Minutes** 8 · **Lines** 3
#
# **Must**
#
# - return `module(batch)`, and leave the same gradients after backward
# - send three messages for each place that has a shard: its shard, all parameters and buffers, its outputs
# - send nothing to a place without a shard
# - let the replicas run at the same time, as `parallel_apply` does
#
# **You may assume** a module whose rows do not depend on each other.
#
# **Not allowed** `torch.nn.parallel` and `torch.nn.DataParallel`.
#
# **Source** PyTorch's documentation, `torch.nn.DataParallel`.
#
# <details><summary>Hint 1</summary>
#
# Which of the four steps knows how many devices will get a shard?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Scatter; replicate for `len(parts)` places; apply; gather.
#
# </details>


# %% solution="data_parallel"
def data_parallel(module, batch, transfers):
    """What `module(batch)` returns, computed part by part on the devices of `transfers`.

    Args:
        module: nn.Module on place 0, whose outputs are a tensor (N, ...), or (for a loss) without dimensions.
        batch: tensor (N, ...), or tuple, list or dict of such tensors and of anything else, on place 0.
        transfers: distributed.Transfers.

    Returns: the outputs on place 0, tensor (N, ...); of a module that returns a loss, one number for each part.
    """
    ### BEGIN SOLUTION
    parts = scatter(batch, transfers)
    replicas = replicate(module, transfers, len(parts))
    return gather(parallel_apply(replicas, parts), transfers)
    ### END SOLUTION


# %% test="data_parallel-visible" points=1
check.data_parallel(data_parallel)

# %% test="data_parallel-hidden" points=2
### BEGIN HIDDEN TESTS
check.data_parallel(data_parallel, seed=406)
### END HIDDEN TESTS

# %% [markdown]
# ### What does it send?
#
# **Predict**: one forward runs on 4 places (or on your GPUs, if you have several), with a small batch of images. What
# percentage of the bytes that go from one place to another are copies of the model?

# %%
predicted_percent = None  # 0 to 100

# %% tags=["experiment"]
data_parallel_now = course.solved(check.data_parallel)
places = ways.places()
first_place = places[0]
n_images = len(places) * (sizes.batch_size // len(places))
batch = images[:n_images].to(first_place)
targets = labels[:n_images].to(first_place)

model = FashionCNN(dropout=0.0, norm=None).to(first_place).eval()
transfers = distributed.Transfers(places)
outputs = data_parallel_now(model, batch, transfers)
difference = (outputs - model(batch)).abs().max().item()

devices = ", ".join(map(str, dict.fromkeys(places)))
print(f"{len(places)} places: {devices}; to the model alone: {difference:.1e}")
n_messages = len(transfers.log)
n_crossing = len(transfers.crossing)
print(f"messages of the forward: {n_messages}, of them from one place to another: {n_crossing}")

# %% tags=["experiment"]
model_bytes = sum(parameter.nbytes for parameter in model.parameters())
crossing_bytes = sum(n_bytes for source, target, n_bytes in transfers.crossing)
model_share = (len(places) - 1) * model_bytes / crossing_bytes
F.cross_entropy(outputs, targets).backward()
n_returned = len(transfers.returned)
n_returned_crossing = sum(source != target for source, target, _ in transfers.returned)

what = "percentage of the bytes that is copies of the model"
print(course.score("02/6", what, predicted_percent, 100 * model_share, null=None))
print(
    f"messages of the backward: {n_returned},",
    f"of them from one place to another: {n_returned_crossing}",
)
course.claim(
    "the forward of your DataParallel sends three messages for each device",
    n_messages == 3 * len(places),
    f"{n_messages} messages",
)
is_nearly_all = model_share > 0.9
course.claim(
    "more than nine tenths of the bytes that cross are copies of the model",
    is_nearly_all,
    f"{model_share:.3f}",
    otherwise="Compare the bytes of your batch with those of the model.",
)

# %% [markdown]
# **Shown** by the log: with a small batch, nearly all bytes of the forward are copies of the model. They must arrive
# before forward starts. DDP's all-reduce overlaps with backward (part 2).
#
# **Takeaway** Count what a step sends, and ask what could compute meanwhile.

# %% [markdown]
# ## From which batch size do two devices pay? · extra
#
# Should you replace DataParallel in a training that uses it? "Empirically distributed data parallel tends to be 2-3
# times faster than data parallel", says DTU's course 02476 (module "Distributed training"), without a model, a batch
# size or a number of GPUs. But the copies of model and gradients have the same size for every batch, while computing
# grows with the batch. So the factor need not be a constant.
#
# The cell after your prediction computes one batch in three ways: by the model alone, by your DataParallel with two
# threads, and by DDP with two processes of one thread (or GPU) each. On a CPU this cannot confirm the factor for GPUs.
# Two variants of the forward look for the causes:
#
# - *replicas kept* copies the model once, before the clock starts. That is correct only while nobody changes the
#   weights.
# - *two processes* computes half of the batch in each process, and sends nothing.
#
# With fewer than two GPUs, `nn.DataParallel` has no line, because it is the model alone.
#
# **Predict** for the smallest batch: how many times as fast as your DataParallel is a step of DDP? The quotation says 2
# to 3. Perhaps less, because with a small batch both spend most of the step on messages.

# %%
predicted_ddp_over_by_hand = None  # 2 = DDP is twice as fast

# %% tags=["experiment"]
by_hand = ways.ByHand(
    course.solved(check.scatter),
    replicate,
    parallel_apply,
    course.solved(check.gather),
    course.solved(check.data_parallel),
)
batch_sizes = [n for n in sizes.batches if n >= 4][:4]

compared = ways.compared(by_hand, images, labels, batch_sizes, 2 * sizes.seconds)
smallest = compared[batch_sizes[0]]
largest = compared[batch_sizes[-1]]
ddp_over_by_hand = smallest.ratio(ways.STEP_DDP, to=ways.STEP_BY_HAND)

what = "DDP over DataParallel by hand, smallest batch"
print(course.score("02/6", what, predicted_ddp_over_by_hand, ddp_over_by_hand))

# %% tags=["experiment"]
course.claim(
    "with the smallest batch, a step of DDP is at least twice as fast as one of your DataParallel",
    ddp_over_by_hand,
    above=2.0,
    otherwise="For few images, both ways send as many bytes of the model or its gradients as for many.",
)
course.claim(
    "with the largest batch, a step of DDP is at least 10 % faster than one of your DataParallel",
    largest.ratio(ways.STEP_DDP, to=ways.STEP_BY_HAND),
    above=1.1,
)
course.claim(
    "with the smallest batch, the forward of your DataParallel is at least 10 % faster with kept replicas",
    smallest.ratio(ways.FORWARD_KEPT, to=ways.FORWARD_BY_HAND),
    above=1.1,
)
course.claim(
    "with the largest batch, the forward of your DataParallel is at least 10 % faster than the model alone",
    largest.ratio(ways.FORWARD_BY_HAND, to=ways.FORWARD),
    above=1.1,
)
panels, controls, title = ways.panels(compared)
plots.against_alone(batch_sizes, panels, controls, title)

# %% [markdown]
# Ideally, two devices need half the time.
#
# - "Replicas kept" differs from "DataParallel by hand" only in making the replicas. So the distance between these lines
#   is what the replicas cost.
# - "Replicas kept" and "two processes" compute the same halves. The first also scatters, gathers and starts threads,
#   and its threads share the GIL. **We think** that the GIL and the threads cost most of the distance. To test it, time
#   scatter and gather alone: they must take much less.
#
# **Takeaway** Two devices pay only if they save more computing than copies and messages cost. Time *your* batch size,
# against the model alone.

# %% [markdown]
# ## The unit on one page
#
# | symptom | what to measure | fix |
# |---|---|---|
# | nothing happens, no error | which rank waits in which line (parts 1, 3) | same calls, same order, on all ranks |
# | a hang costs ten minutes or more | seconds until the error (part 3) | a time limit for the group, checkpoints |
# | N ranks are not N times as fast | a step at 1/N of the batch (part 5) | a larger batch per rank, overlap |
# | the step waits for messages | bytes per rank, bandwidth (parts 1, 2) | buckets, overlap |
# | the model is bad, without an error | the weights of two ranks (part 3) | average gradients, broadcast at the start |
# | each epoch has the same order | the first indices of the sampler (part 3) | `sampler.set_epoch(epoch)` |
# | the mean is a little wrong | the same batch on one process (part 3) | weight each rank by its samples or tokens |
# | the model does not fit | bytes per rank (part 7) | `fully_shard` |
#
# Find out what bounds a step on one rank before you add ranks: part 5 does it with `course.checkup`.
