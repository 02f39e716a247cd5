# %% [markdown]
# # Data parallel, part 9: Count what DataParallel sends
#
# **What does DataParallel cost, and what does it lose against DistributedDataParallel?**
#
# DataParallel copies the model to every device in every step, and everything begins and ends at one of them. You
# count the messages and bytes of a step, measure from which batch size on two devices pay, do a step's backward by
# hand, and put the bytes beside those of a ring.
#
# **You will be able to**
#
# - say what a step of DataParallel sends, and which share of it crosses between devices
# - say why its sending grows with the number of devices while that of DDP does not
#
# **Minutes** 14 core · 75 in all
#
# **Needs** part 8 or the reference answer to its `data_parallel`; parts 2 and 3 for the comparison

# %% locked="setup"
import copy
import math

import torch
from torch import nn

import course
from course import distributed
from course.checks import data_parallel as check
from course.datasets import fashion
from course.distributed import run_ranks
from course.models import FashionCNN
from course.plots import data_parallel as plots
from course.predictions import reveal

print(course.machine())
sizes = course.sizes("02_data_parallel")

data = fashion.load(sizes.dataset)
images = fashion.floats(data.train_images)
gpus = torch.cuda.device_count() if course.device().type == "cuda" else 0

# %% [markdown]
# ## One step, message by message
#
# **One process owns batch, model and loss; in every step it lends parts of the batch and copies of the model to the
# other devices.**
#
# The forward has four steps. *Scatter* cuts the batch and sends a part to each device. *Replicate* sends the model to
# each of them. *Parallel apply* computes the outputs of all parts at the same time. *Gather* brings the outputs back
# to the first device, where loss, gradients and optimizer live. After the step the copies are thrown away.
#
# `distributed.Transfers(devices)` is the only way from device to device, and counts: `transfers.send(tensors, source,
# target)` takes a list of tensors from one *place* (a number in the list of devices) to another, as one message.
# `transfers.log` holds all messages, `transfers.crossing` those from one place to another. One device may stand in the
# list several times and then plays several: who sends how much stays the same, and the speed says little.

# %%
plots.data_parallel_steps()

# %% [markdown]
# Predict: one forward pass on 4 devices, the model counted as one message. How many messages in all, the first
# device's own share included, and how many of them lead from one device to another?

# %%
predicted_messages = None  # a number
predicted_crossing = None

# %% [markdown]
# Now count. `Transfers` has kept a list of every message.

# %% tags=["experiment"]
data_parallel_now = course.solved(check.data_parallel)
places = [f"cuda:{i}" for i in range(gpus)] if gpus > 1 else [course.device()] * 4
transfers = distributed.Transfers(places)
model = FashionCNN(dropout=0.0, norm=None).to(places[0]).eval()
batch = images[: sizes.batch_size].to(places[0])
with torch.no_grad():
    difference = (data_parallel_now(model, batch, transfers) - model(batch)).abs().max().item()
print(f"{len(places)} places: {', '.join(map(str, dict.fromkeys(places)))}")
print(f"largest difference to the model alone: {difference:.1e}")
print(f"messages: {len(transfers.log)}" + reveal(predicted_messages))
print(f"of them from one place to another: {len(transfers.crossing)}" + reveal(predicted_crossing))
model_bytes = sum(w.nbytes for w in model.parameters())
sent = sum(size for _, _, size in transfers.crossing)
print(f"bytes that crossed: {sent:,}, of which {(len(places) - 1) * model_bytes:,} are the weights")

# %% [markdown]
# The usual count of three messages a device (part, model, output) counts those that the first device sends to
# itself; these cost next to nothing. And it counts calls: what hurts is the weights. Nearly all bytes are copies of
# the model, made for one batch and thrown away after it. `nn.DataParallel` does the same, with the weights packed
# into few buffers.
#
# ### Does it pay?
#
# Predict: two places, inference only. From which batch size on is DataParallel faster than the model alone?

# %%
predicted_batch_from = None  # images


# %% tags=["experiment"]
def inference(rank, world_size, data_parallel, model, batches, places, rounds):
    """Seconds of the model alone, DataParallel by hand, and nn.DataParallel where there are GPUs."""
    torch.set_num_threads(1)  # a place of a CPU is one thread
    model = model.to(places[0]).eval()
    seconds = []
    with torch.no_grad():
        for batch in batches:
            batch = batch.to(places[0])
            variants = [lambda batch=batch: model(batch)]
            variants += [lambda batch=batch: data_parallel(model, batch, distributed.Transfers(places))]
            if len(set(places)) > 1:
                variants += [lambda batch=batch: nn.DataParallel(model)(batch)]
            seconds.append(distributed.timed_rounds(variants, rounds))
    return torch.stack(seconds, 2)  # (rounds, variants, batch sizes)


two_places = places if gpus > 1 else [course.device()] * 2
many = images.repeat(math.ceil(max(sizes.batches) / len(images)), 1, 1, 1)
batches = [many[:n] for n in sizes.batches]
(dp_seconds,) = run_ranks(inference, 1, data_parallel_now, model, batches, two_places, sizes.rounds, timeout=300)
names = ["the model alone", "DataParallel by hand", "nn.DataParallel"][: dp_seconds.shape[1]]
faster = (dp_seconds[:, 0] / dp_seconds[:, 1]).median(0).values
for n, ratio in zip(sizes.batches, faster.tolist(), strict=True):
    print(f"batch {n:>5}: {ratio:.2f} times as fast as the model alone")
print(course.machine() + reveal(predicted_batch_from, "from {} on"))
curves = {name: dp_seconds[:, i].T for i, name in enumerate(names)}
plots.inference(sizes.batches, curves, f"inference, {len(two_places)} places")

# %% [markdown]
# Where do the lines cross? Below it, halving the work cannot pay for a copy of all weights to each place, a thread
# for each, and the wait for both. With a few hundred images it can. At the right end two places may even be *more*
# than twice as fast: look at the curve of the model alone, which rises again there. Half a batch also fits better
# into the caches. On GPUs the shape is the same and the crossing lies elsewhere: computing is faster, and so is the
# way.

# %% [markdown]
# ## The way back
#
# **The loss and its gradient arise on place 0; they go out to the devices, and the gradients of the parameters come
# back and are summed there.**
#
# `loss.backward()` undoes the forward step by step. The outputs were gathered on place 0, so the loss is computed
# there, with targets that never left it, and so is its gradient with respect to the outputs. Undoing *gather* cuts
# that gradient into the parts of the outputs and sends each to its device. There the replica's own backward makes
# of it the gradients of the replica's parameters. Undoing *replicate* sends them to place 0, and because every copy
# stems from the same parameter, its gradients add up. That is a sum, not a mean: if the loss is the mean over the
# whole batch, one over the size of the whole batch is already in the gradient that went out. Then the replicas are
# thrown away, with their parameters and their gradients. Only place 0 has a `grad`, an optimizer and something to
# step, and the other devices wait.
#
# So a device costs five messages a step. Two carry the whole model, once as parameters and once as gradients, and
# do not become smaller when the batch is shared by more devices. All five begin or end at place 0, so the number of
# bytes through its one connection grows with the number of devices.

# %% [markdown]
# ### Exercise 1 · The backward by hand
#
# Do a whole step without autograd between devices: forward, loss, backward, sum.
#
# **Points** 5 · **Extra** · **Difficulty** ●●● · **Minutes** 50 · **Lines** 18
#
# **Convention** Five steps, each with one message a device, and the messages in this order, in each step from the
# lowest place to the highest: the parts of the batch out, cut as `torch.chunk` does (if they are fewer than
# devices, the other places take no part); all parameters and buffers of the module out, each once; the outputs back
# to place 0; the parts of the gradient of the loss with respect to the outputs out; the gradients of the parameters
# back, where place 0 sums them. No graph of autograd crosses from place to place: `torch.autograd.grad` works on
# place 0 for the loss, and in each replica for itself. Only the parameters that require a gradient are asked for
# one, and are in the result; each of them has a part in every output. `loss_fn` is called once, on all outputs and
# targets. The module keeps its parameters, buffers and whatever is in their `grad`. The replicas may run one after
# the other: no thread is asked for.
#
# **Not allowed** `torch.nn.parallel` and `torch.nn.DataParallel`: they are what you write here.
#
# **Source** PyTorch's documentation, `torch.autograd.grad` (its argument `grad_outputs`); the steps are those of
# `torch.nn.DataParallel`.
#
# <details><summary>Hint 1</summary>
#
# A replica's output is not a number. What must `torch.autograd.grad` be told besides outputs and inputs?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `outputs.detach()` has no history. On place 0, `requires_grad_()` makes the gathered outputs a leaf, and
# `torch.autograd.grad(loss, outputs)` ends there. Likewise the copies that a replica holds are leaves here, not, as
# in `replicate`, a step of a graph. Which of them need `requires_grad_()`?
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# Keep `own`, each replica's output with its graph, and send `output.detach()`. The gradient of the gathered outputs
# is cut with `split([len(output) for output in own])`; after it arrived, `torch.autograd.grad(own[k], inputs,
# part)`, with the trained parameters of replica k as inputs, gives one gradient a parameter. Number i of the result
# is the sum of number i of all lists that came back.
#
# </details>


# %% solution="data_parallel_gradients"
def data_parallel_gradients(module, batch, targets, loss_fn, transfers):
    """The loss of a batch and the gradients of a module's parameters, computed on the devices of `transfers`.

    Args:
        module: nn.Module on place 0 that maps (n, ...) to one tensor (n, ...), row by row.
        batch: tensor (N, ...) on place 0, N at least 1.
        targets: tensor (N, ...) on place 0; it stays there.
        loss_fn: function of outputs (N, ...) and targets, returns a tensor without dimensions.
        transfers: distributed.Transfers.

    Returns: (loss, gradients): a tensor without dimensions and without history, and a dict from the names of
        `module.named_parameters()` that require a gradient to their gradients, both on place 0.
    """
    ### BEGIN SOLUTION
    names = [name for name, parameter in module.named_parameters() if parameter.requires_grad]
    tensors = [*module.parameters(), *module.buffers()]
    parts = [transfers.send([part], 0, k)[0] for k, part in enumerate(batch.chunk(len(transfers.devices)))]
    replicas = []
    for k in range(len(parts)):
        copies = transfers.send([tensor.detach() for tensor in tensors], 0, k)
        memo = {id(tensor): copies[i].requires_grad_(tensor.requires_grad) for i, tensor in enumerate(tensors)}
        replicas.append(copy.deepcopy(module, memo))
    own = [replicas[k](part) for k, part in enumerate(parts)]  # each with a graph on its own device

    gathered = [transfers.send([output.detach()], k, 0)[0] for k, output in enumerate(own)]
    outputs = torch.cat(gathered).requires_grad_()
    loss = loss_fn(outputs, targets)
    (gradient,) = torch.autograd.grad(loss, outputs)

    cut = gradient.split([len(output) for output in own])
    scattered = [transfers.send([part], 0, k)[0] for k, part in enumerate(cut)]
    arrived = []
    for k, replica in enumerate(replicas):
        inputs = [p for p in replica.parameters() if p.requires_grad]
        arrived.append(transfers.send(list(torch.autograd.grad(own[k], inputs, scattered[k])), k, 0))
    return loss.detach(), {name: sum(gradients[i] for gradients in arrived) for i, name in enumerate(names)}
    ### END SOLUTION


# %% test="data_parallel_gradients-visible" points=1
check.data_parallel_gradients(data_parallel_gradients)

# %% test="data_parallel_gradients-hidden" points=4
### BEGIN HIDDEN TESTS
check.data_parallel_gradients(data_parallel_gradients, seed=519)
### END HIDDEN TESTS

# %% [markdown]
# ### Exercise 2 · What a step sends
#
# Say before the step how many messages and bytes it sends, and how many of them leave their device.
#
# **Points** 2 · **Core** · **Difficulty** ●○○ · **Minutes** 12 · **Lines** 8
#
# **Convention** M devices, all different, take part; their parts are equal: `batch_bytes` and `output_bytes` are
# multiples of M. The module has no buffers and nothing frozen. The forward is that of `data_parallel`, three
# messages a device; the usual count, 3 M, holds for all of them. The backward has the last two steps of
# `data_parallel_gradients`. A message *crosses* if it leaves its device: those from place 0 to place 0 do not.
# Bytes are counted of crossing messages only. The keys of the dict are `forward_messages`, `forward_crossing`,
# `forward_bytes`, `backward_messages`, `backward_crossing`, `backward_bytes`; all values are int.
#
# **Source** DTU 02476, its module on distributed training (the count 3 × M); what crosses is counted by ourselves.
#
# <details><summary>Hint 1</summary>
#
# Which of the five messages a device become smaller with more devices, and which do not?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# M - 1 devices are not place 0. To each of them goes one M-th of the batch and the whole of the parameters, and
# from it comes one M-th of the outputs. The gradient of something is as large as the thing itself. Divide with
# `//`.
#
# </details>


# %% solution="data_parallel_messages"
def data_parallel_messages(n_devices, parameter_bytes, batch_bytes, output_bytes):
    """The messages and bytes of one step of data parallel training on M = `n_devices` devices, forward and backward.

    Args:
        n_devices: M, 1 or more.
        parameter_bytes: bytes of all parameters of the module.
        batch_bytes: bytes of the whole batch without its targets, a multiple of M.
        output_bytes: bytes of the outputs for the whole batch, a multiple of M.

    Returns: dict of int; "forward_messages", "forward_crossing" (how many of them leave their device) and
        "forward_bytes" (bytes of those that do), and the same three of the backward.
    """
    ### BEGIN SOLUTION
    others = n_devices - 1
    part, output = batch_bytes // n_devices, output_bytes // n_devices
    return {
        "forward_messages": 3 * n_devices,
        "forward_crossing": 3 * others,
        "forward_bytes": (part + parameter_bytes + output) * others,
        "backward_messages": 2 * n_devices,
        "backward_crossing": 2 * others,
        "backward_bytes": (output + parameter_bytes) * others,
    }
    ### END SOLUTION


# %% test="data_parallel_messages-visible" points=1
check.data_parallel_messages(data_parallel_messages)

# %% test="data_parallel_messages-hidden" points=1
### BEGIN HIDDEN TESTS
check.data_parallel_messages(data_parallel_messages, seed=313)
### END HIDDEN TESTS

# %% [markdown]
# ## Beside DistributedDataParallel
#
# **Through the first device of DataParallel pass all bytes of all devices; on a ring every rank has the same share,
# which stays below four times the model.**
#
# For each number of devices the next cell adds up what one training step sends and receives at its busiest place. Each
# device has 64 images. DDP, as it runs on a ring, sends gradients and nothing else.
#
# Predict: with 8 devices, how many times as much passes through the first device of DataParallel as through a rank of
# the ring?

# %%
predicted_ratio = None  # a factor

# %% tags=["experiment"]
count_messages = course.solved(check.data_parallel_messages)
count_ring = course.solved(check.ring_bytes)
n_weights = sum(w.numel() for w in FashionCNN().parameters())
busiest = {}
for n in (2, 4, 8, 64):
    counts = count_messages(n, 4 * n_weights, n * 64 * images[0].nbytes, n * 64 * 10 * 4)
    first = counts["forward_bytes"] + counts["backward_bytes"]  # every message begins or ends at the first device
    rank = 2 * max(count_ring(n_weights, 4, n))  # it receives what the rank before it sends
    busiest[n] = first / rank
    print(f"{n:>2} devices: DataParallel {first / 1e6:8.1f} MB, a rank of the ring {rank / 1e6:5.1f} MB, "
          f"ratio {busiest[n]:.1f}" + reveal(predicted_ratio) * (n == 8))  # fmt: skip
course.claim("64 devices: the first device of DataParallel moves over ten times the bytes of a rank", busiest[64] > 10,
             f"{busiest[64]:.0f} times")  # fmt: skip

# %% [markdown]
# With two devices the difference is small: the model goes one way and its gradients the other, as on the ring. With
# every further device the first one of DataParallel has another model to send and another set of gradients to receive,
# while a rank of the ring never moves more than four times the model. This is arithmetic and holds on every machine.
# Where it does not hold, one of the two answers above counts something else.

# %% [markdown]
# ## What to take with you
#
# 1. DataParallel copies the model to every device in every step; that is nearly all that it sends.
# 2. DDP sends each gradient once, in `backward`; equal gradients keep equal weights equal.
# 3. A ring sends 2(N - 1)/N of the tensor from each rank, whatever N; a tree needs fewer steps and suits small ones.
# 4. Buckets save calls, overlap hides what is left behind the rest of backward.
# 5. The mean of means is the mean only for equal parts. BatchNorm sees one part only.
# 6. All ranks must make the same calls in the same order. If one does not, the others wait.
# 7. `set_epoch`, rank 0 writes the checkpoint, whole or not at all, everyone resumes from it.
# 8. Say of a speed-up what was fixed: the batch (strong) or the batch of a rank (weak).
#
# ## To read on
#
# - S. Li et al., PyTorch Distributed: Experiences on Accelerating Data Parallel Training, VLDB 2020
#   ([arXiv:2006.15704](https://arxiv.org/abs/2006.15704)): how DDP is built, and why.
# - P. Patarasuk and X. Yuan, Bandwidth Optimal All-reduce Algorithms for Clusters of Workstations, 2009: the ring.
# - P. Goyal et al., Accurate, Large Minibatch SGD, 2017 ([arXiv:1706.02677](https://arxiv.org/abs/1706.02677)): section
#   3 lists what goes wrong when gradients are averaged. Unit 03 goes on there.
# - S. Rajbhandari et al., ZeRO, 2020 ([arXiv:1910.02054](https://arxiv.org/abs/1910.02054)): what comes after DDP.
