# %% [markdown]
# # Data parallel, part 8: Compare DataParallel with DDP
#
# **What does nn.DataParallel lose against DistributedDataParallel, in bytes and in seconds?**
#
# `nn.DataParallel` came first: one process, one line, all devices. It is generally seen as obsolete, and still stands
# in much code. You wrap a model in it, count what passes through its busiest device, and run it beside DDP. Whoever
# wants to know how one process computes with many devices builds it, in five extra exercises.
#
# **You will be able to**
#
# - say what a step of DataParallel sends, and predict the bytes at its first device for any number of devices
# - compare it with DDP in bytes and in seconds, and say which part of the difference belongs to this machine
# - copy a module so that gradients of the copies reach the original
#
# **Minutes** 25 core · 145 in all
#
# **Needs** part 3, its first section (what DDP sends)

# %% locked="setup"
import contextlib
import copy
import threading
from concurrent.futures import ThreadPoolExecutor

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

import course
from course.checks import data_parallel as check
from course.datasets import fashion
from course.errors import counted
from course.learner.predictions import reveal
from course.parallel import distributed
from course.parallel.distributed import run_ranks
from course.plots import data_parallel as plots
from course.training.models import FashionCNN

print(course.machine())
sizes = course.sizes("02_data_parallel")

data = fashion.load(sizes.dataset)
images, labels = fashion.floats(data.train_images), data.train_labels
gpus = torch.cuda.device_count() if course.device().type == "cuda" else 0

# %% [markdown]
# ## One line
#
# **`nn.DataParallel(model)` is one line, and what it does depends on the machine.**
#
# **Predict**: a batch of 16 images goes through the wrapped model *on this machine*. How many images does one call of
# the model's own forward see?

# %%
predicted_images = None

# %% tags=["experiment"]
model, seen = FashionCNN(dropout=0.0, norm=None).to(course.device()), []
model.register_forward_pre_hook(lambda module, inputs: seen.append((len(inputs[0]), str(inputs[0].device))))
wrapped = nn.DataParallel(model)
with torch.no_grad():
    wrapped(images[:16].to(course.device()))
print(f"devices that it uses: {wrapped.device_ids}")
print(f"calls of the model (images, device): {seen}" + reveal(predicted_images))
course.claim(
    "nn.DataParallel divides the batch on this machine",
    len(seen) > 1,
    counted(len(seen), "call"),
    otherwise="You have fewer than two GPUs, so nn.DataParallel passes the whole batch to the model "
    "and copies nothing.",
)

# %% [markdown]
# `nn.DataParallel` divides each batch among the GPUs of its process: with two or more there is a call for each, and
# each sees a share. So a timing of `nn.DataParallel` on a CPU times the model alone. To see what it does, this part
# rebuilds it with devices that are *places*: one device may stand in the list several times and then plays several.

# %% [markdown]
# ## One step, message by message
#
# **One process owns batch, model and loss; in every step it lends shards of the batch and replicas of the model to the
# other devices.**

# %% tags=["experiment"]
plots.data_parallel_steps()

# %% [markdown]
# An arrow is a message, and the title above it says how large each of them is. The batch is cut along its first
# dimension, and each *shard* is sent to a device (*scatter*). The model is copied to
# each of them (*replicate*). Each copy, a *replica*, computes the outputs of its shard, all at the same time (*parallel
# apply*). The outputs are sent to the first device (*gather*), where the loss is. Backward goes the same way back. A
# gradient that arrives at a replica's parameter goes on to the original, where those of all replicas are added up: a
# sum, because the loss already is the mean over the whole batch. Then the replicas are thrown away. The optimizer
# changes the originals, so the next step sends the whole model anew, however small the batch is.
#
# `distributed.Transfers(devices)`, called `transfers` below, is the only way from device to device, and it counts the
# messages. `transfers.devices` is the list of devices, so there are `len(transfers.devices)` of them. A *place* is an
# index in this list: place 0 is the first device. `transfers.send(tensors, source, target)` sends a list of tensors
# from place `source` to place `target` as one message and returns the list of their copies there. Gradients flow back
# through the copies. Place 0 sends to itself in the same way, and this counts as a message, too. `transfers.log` lists
# all messages, `transfers.crossing` those between two different places, and `transfers.returned` the gradients that
# autograd has carried back.

# %% [markdown]
# ## Build it
#
# **Replicas are part of the computation: their parameters are copies through which gradients reach the originals.**
#
# The next five exercises are extra. The core goes on at "Count what a step sends", with the reference.

# %% [markdown]
# ### Exercise 1 · Scatter a batch
#
# Cut a batch, a tensor or a container of tensors, into shards, and send each to its device. The stub's `walk` calls a
# function on each tensor.
#
# **Points** 3 · **Extra** · **Difficulty** ●●○ · **Minutes** 15 · **Lines** 8
#
# **Must**
# - cut each tensor along dimension 0 by `torch.chunk` for `len(transfers.devices)` devices; it may give fewer pieces;
# - return the shards: shard k is the batch with the k-th pieces in the place of tensors;
# - send shard k from place 0 to place k, all its tensors in one message; shard 0, too;
# - let gradients flow back to the batch.
#
# **You may assume** that all tensors of a batch have the same length.
#
# **Not allowed** `torch.nn.parallel` and `torch.nn.DataParallel`: they are what you write here.
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
        batch: tensor (N, ...), or a tuple, list or dict of such tensors, of further tuples, lists and dicts, and of
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
# `copy.deepcopy(module)` makes a module of its own, which a thread needs, but it would also copy the parameters. Its
# second argument, a *memo*, prevents that: a dict from `id(object)` to what stands for the object in the copy. What the
# memo holds is not copied but put in the place, everywhere, also under tied names.

# %% [markdown]
# ### Exercise 2 · Replicate a module
#
# Copy a module to the devices so that the gradients of all replicas find their way back.
#
# **Points** 4 · **Extra** · **Difficulty** ●●● · **Minutes** 30 · **Lines** 6
#
# **Must**
# - per replica, send all parameters and buffers from place 0 in one message, each tensor once, even if it is tied (the
#   first replica's go from place 0 to itself);
# - put these copies, as they are, in the place of parameters and buffers: no leaves, no `nn.Parameter`;
# - keep class and mode of every submodule; share no module between replicas;
# - leave the module as it is.
#
# **Not allowed** `torch.nn.parallel` and `torch.nn.DataParallel`: they are what you write here.
#
# **Source** PyTorch's documentation, `torch.nn.DataParallel`; Python's, `copy.deepcopy`.
#
# <details><summary>Hint 1</summary>
#
# After `copy.deepcopy(module)`, whose gradient does `backward` write? And what does torch say when you assign a
# tensor that is no `nn.Parameter` to `layer.weight`?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Why not one module for all, with `torch.func.functional_call` and other parameters for each device? It puts the
# parameters into the module while it runs and takes them out afterwards. Soon several threads run at once: each
# would compute with what another has just put in. So every device needs module objects of its own.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# `tensors = [*module.parameters(), *module.buffers()]` lists each tensor once, also a tied one. Send them, and call
# `copy.deepcopy(module, memo)` with a memo that maps `id(tensor)` to its copy, for each of them: deepcopy takes
# them for its own copies and puts them wherever the module holds the tensor.
#
# </details>


# %% solution="replicate"
def replicate(module, transfers, n=None):
    """Copies of a module, one on each of the first n devices, through which gradients flow back to the module.

    Args:
        module: nn.Module, all of it on place 0; it is not changed.
        transfers: distributed.Transfers.
        n: number of replicas, at places 0 to n - 1; None stands for one on each device.

    Returns: list of n modules.
    """
    ### BEGIN SOLUTION
    tensors = [*module.parameters(), *module.buffers()]
    replicas = []
    for place in range(len(transfers.devices) if n is None else n):
        copies = transfers.send(tensors, 0, place)
        memo = {id(tensor): copies[i] for i, tensor in enumerate(tensors)}
        replicas.append(copy.deepcopy(module, memo))
    return replicas
    ### END SOLUTION


# %% test="replicate-visible" points=1
check.replicate(replicate)

# %% test="replicate-hidden" points=3
### BEGIN HIDDEN TESTS
check.replicate(replicate, seed=118)
### END HIDDEN TESTS

# %% [markdown]
# ### Threads
#
# **Threads of one process take turns with Python, but what torch computes they can compute at the same time.**
#
# The interpreter has a lock, the *GIL*, and a thread runs Python code only while it holds it. The operations of
# torch give it back while they compute, and on a GPU they hardly compute at all: they put work into the queue of
# their device and return. So one process can keep several devices busy from several threads, as long as the Python
# side, the forward functions of all modules on all devices, is small beside the arithmetic. That side does not
# shrink with the number of devices: it is done for every replica, and in turns. DistributedDataParallel starts a
# process for each device, and thereby leaves the common lock behind.
#
# A new thread begins with torch's own settings, not with those of the thread that started it. Whether gradients are
# recorded (`torch.no_grad`) and in which precision operations run (`torch.autocast`) are such settings of a thread,
# and who starts threads must carry them over. An exception ends its own thread alone: unless somebody catches it
# and brings it over, the caller never hears of it. The backward pass needs no threads of yours. Autograd has one
# for every GPU; what lies on the CPU it computes in the thread that calls `backward`, one shard after the other.

# %% [markdown]
# ### Exercise 3 · Apply in parallel
#
# Run each replica on its shard, all at the same time.
#
# **Points** 4 · **Extra** · **Difficulty** ●●● · **Minutes** 45 · **Lines** 16
#
# **Must**
# - call replica k with shard k as its only argument, in a thread of its own, all at the same time;
# - carry over the caller's grad mode and, for "cpu" and "cuda", its autocast and dtype;
# - return or raise only when all replicas have ended and no thread is left.
#
# **Raises** the exception of the lowest place that raised; its message or a note (`add_note`) says which place that is,
# in the form `place 2`. ValueError if shards and replicas differ in number.
#
# **Not allowed** `torch.nn.parallel` and `torch.nn.DataParallel`: they are what you write here.
#
# **Source** PyTorch's documentation, "Autograd mechanics", "Multithreaded Autograd"; Python's, `concurrent.futures`.
#
# <details><summary>Hint 1</summary>
#
# `with torch.no_grad():` stands around the call of your function. In which thread does it hold?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `ThreadPoolExecutor(n)` used in a `with` waits at its end for all that was submitted, and leaves no thread. A
# future keeps what its call returned or raised until you ask for `result()`. Read the caller's modes before: `with
# torch.set_grad_enabled(...)`, and `torch.is_autocast_enabled(kind)` and `torch.get_autocast_dtype(kind)` for the
# kinds "cpu" and "cuda".
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# Inside, `run(replica, part)` enters `torch.set_grad_enabled(grad)` and, by a `contextlib.ExitStack`, a
# `torch.autocast(kind, dtype)` for each kind that was on. Submit all, leave the `with`, then ask the futures in
# order: `except Exception as error: error.add_note(f"at place {place}")`, and `raise`.
#
# </details>


# %% solution="parallel_apply"
def parallel_apply(replicas, parts):
    """The outputs replica(part) of all replicas, computed at the same time in threads.

    Args:
        replicas: list of n modules, or other functions of one argument; n is at least 1.
        parts: list of n parts of a batch, what `scatter` returns.

    Returns: list of n outputs, in the order of the replicas.
    Raises: what a replica raised, with its place; ValueError if there are not as many parts as replicas.
    """
    ### BEGIN SOLUTION
    grad = torch.is_grad_enabled()
    casts = {kind: torch.get_autocast_dtype(kind) for kind in ("cpu", "cuda") if torch.is_autocast_enabled(kind)}

    def run(replica, part):
        with torch.set_grad_enabled(grad), contextlib.ExitStack() as modes:
            for kind, dtype in casts.items():
                modes.enter_context(torch.autocast(kind, dtype))
            return replica(part)

    with ThreadPoolExecutor(len(replicas)) as pool:
        futures = [pool.submit(run, *pair) for pair in zip(replicas, parts, strict=True)]
    outputs = []
    for place, future in enumerate(futures):
        try:
            outputs.append(future.result())
        except Exception as error:
            error.add_note(f"in the replica at place {place}")
            raise
    return outputs
    ### END SOLUTION


# %% test="parallel_apply-visible" points=1
check.parallel_apply(parallel_apply)

# %% test="parallel_apply-hidden" points=3
### BEGIN HIDDEN TESTS
check.parallel_apply(parallel_apply, seed=67)
### END HIDDEN TESTS

# %% [markdown]
# ### Exercise 4 · Gather the outputs
#
# Bring the outputs of all devices to place 0, as one tensor.
#
# **Points** 2 · **Extra** · **Difficulty** ●○○ · **Minutes** 8 · **Lines** 4
#
# **Must**
# - send output k from place k to place 0, one message each, also from place 0 itself;
# - put the copies together along dimension 0; outputs without dimensions, such as losses, become a vector;
# - let gradients flow back to the outputs.
#
# **Not allowed** `torch.nn.parallel` and `torch.nn.DataParallel`: they are what you write here.
#
# **Source** PyTorch's documentation, `torch.nn.DataParallel` (a note on outputs without dimensions) and
# `torch.cat`.
#
# <details><summary>Hint 1</summary>
#
# Four losses of four devices: does `torch.cat` put them together? What does it ask of its tensors?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `torch.atleast_1d(output)` is a vector of one number for a number, and the tensor itself for any other. Cut
# nothing off from autograd on the way: no `detach`, no `item`.
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
    arrived = [copied for place, output in enumerate(outputs) for copied in transfers.send([output], place, 0)]
    return torch.cat([torch.atleast_1d(output) for output in arrived])
    ### END SOLUTION


# %% test="gather-visible" points=1
check.gather(gather)

# %% test="gather-hidden" points=1
### BEGIN HIDDEN TESTS
check.gather(gather, seed=306)
### END HIDDEN TESTS

# %% [markdown]
# The four steps together are the forward of DataParallel. The next cell keeps your functions as far as their checks
# passed; you may use these, or the functions themselves, or write everything anew.

# %%
scatter_now = course.solved(check.scatter)
replicate_now = course.solved(check.replicate)
parallel_apply_now = course.solved(check.parallel_apply)
gather_now = course.solved(check.gather)

# %% [markdown]
# ### Exercise 5 · Data parallel
#
# Compute `module(batch)` on all devices at once: the forward of `torch.nn.DataParallel`.
#
# **Points** 3 · **Extra** · **Difficulty** ●●○ · **Minutes** 8 · **Lines** 4
#
# **Must**
# - send three messages for each place that has a shard: its shard, all parameters and buffers, its outputs;
# - send nothing to a place without a shard; with a single device, send the three messages from place 0 to itself;
# - return `module(batch)`, if the module works row by row, and leave the same gradients after backward;
# - leave the module as it is.
#
# **You may assume** a module in eval mode, or one whose rows do not depend on each other: BatchNorm sees its shard
# only.
#
# **Not allowed** `torch.nn.parallel` and `torch.nn.DataParallel`: they are what you write here.
#
# **Source** PyTorch's documentation, `torch.nn.DataParallel`.
#
# <details><summary>Hint 1</summary>
#
# Which of the four steps knows how many devices will take part?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Scatter; replicate for `len(parts)` places; apply; gather. `replicate_now` takes that number as its third
# argument.
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
# ## Count what a step sends
#
# **The whole model leaves the first device and comes back as gradients, once per other device and step.**
#
# Predict: one forward pass on 4 devices, a small batch of images. Of the bytes that go from one device to another, how
# many percent are copies of the model?

# %%
predicted_percent = None  # 0 to 100

# %% tags=["experiment"]
data_parallel_now = course.solved(check.data_parallel)
places = [f"cuda:{i}" for i in range(gpus)] if gpus > 1 else [course.device()] * 4
model = FashionCNN(dropout=0.0, norm=None).to(places[0]).eval()
n_images = len(places) * (sizes.batch_size // len(places))
batch, targets = images[:n_images].to(places[0]), labels[:n_images].to(places[0])
transfers, in_backward = distributed.Transfers(places), []
watching = model.classifier[0].register_full_backward_hook(lambda *_: in_backward.append(threading.get_ident()))
outputs = data_parallel_now(model, batch, transfers)
watching.remove()  # the replicas keep their copies of the hook
difference = (outputs - model(batch)).abs().max().item()
print(f"{len(places)} places: {', '.join(map(str, dict.fromkeys(places)))}")
print(f"largest difference to the model alone: {difference:.1e}")
print(f"messages of the forward: {len(transfers.log)}, of them from one place to another: {len(transfers.crossing)}")
model_bytes = sum(w.nbytes for w in model.parameters())
sent = sum(size for _, _, size in transfers.crossing)
share = (len(places) - 1) * model_bytes / sent
print(f"copies of the model: {100 * share:.1f} % of {sent:,} bytes that cross" + reveal(predicted_percent))
course.claim(
    "more than nine tenths of the bytes that cross are copies of the model",
    share > 0.9,
    f"{share:.3f}",
    otherwise="The batch is so large that its images weigh as much as the model.",
)

# %% [markdown]
# The usual count of three messages per device (shard, model, outputs) includes those that the first device sends to
# itself, which cost next to nothing. And it counts calls, while the bytes are in the models. `nn.DataParallel` does the
# same, with the weights packed into few buffers.

# %% [markdown]
# ### Exercise 6 · What a step sends
#
# Say before the step how many messages and bytes it sends, and how many of them leave their device.
#
# **Points** 2 · **Core** · **Difficulty** ●○○ · **Minutes** 10 · **Lines** 8
#
# **Must**
# - return a dict of int with the keys `forward_messages`, `forward_crossing`, `forward_bytes`, `backward_messages`,
#   `backward_crossing`, `backward_bytes`;
# - count three messages per device in the forward: its shard, the parameters, its outputs;
# - count two in the backward: the gradient of its outputs goes out, those of the parameters come back;
# - leave out in *crossing* and *bytes*, not in *messages*, what place 0 sends to itself.
#
# **You may assume** equal shards (`batch_bytes` and `output_bytes` are multiples of M), no buffers, nothing frozen.
#
# **Source** DTU 02476, its module on distributed training (the count 3 × M); what crosses is counted by ourselves.
#
# <details><summary>Hint 1</summary>
#
# Which of the five messages per device become smaller with more devices, and which do not?
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
# Your prediction beside the step that was recorded above, with its backward.

# %% tags=["experiment"]
count_messages = course.solved(check.data_parallel_messages)
predicted = count_messages(len(places), model_bytes, batch.nbytes, outputs.nbytes)
F.cross_entropy(outputs, targets).backward()
back = [size for source, target, size in transfers.returned if source != target]
recorded = {"forward": (len(transfers.log), len(transfers.crossing), sent)}
recorded["backward"] = len(transfers.returned), len(back), sum(back)
for way, numbers in recorded.items():
    print(f"{way:>8}: {numbers[0]:3} messages, {numbers[1]:3} cross, {numbers[2]:>12,} bytes")
same = all(numbers == tuple(predicted[f"{way}_{what}"] for what in ("messages", "crossing", "bytes"))
           for way, numbers in recorded.items())  # fmt: skip
course.claim("data_parallel_messages predicts the recorded traffic to the byte", same)
threads = len(set(in_backward))
course.claim("the backward of all shards runs in one thread", threads == 1 < len(in_backward),
             f"{counted(len(in_backward), 'shard')}, {counted(threads, 'thread')}",
             otherwise="You have several GPUs: autograd has a thread for each.")  # fmt: skip

# %% [markdown]
# The last claim is about your kind of device. Autograd has a thread for each *GPU*; what lies on the CPU it computes in
# the thread that calls `backward`, one shard after the other, although the forward had a thread for each.

# %% [markdown]
# ## DP and DDP in bytes
#
# **Through the first device of DataParallel pass all bytes of all devices; on a ring every rank has the same share,
# which stays below four times the model.**
#
# For each number of devices N the next cell adds up what one training step sends and receives at its busiest place.
# Each device has 64 images. DDP sends gradients and nothing else. On a *ring* (part 2) they are cut into N pieces that
# go from rank to rank, so each rank sends 2 (N - 1) / N of the model and receives as much.
#
# Predict: with 8 devices, how many times as much passes through the first device of DataParallel as through a rank of
# the ring?

# %%
predicted_ratio = None  # a factor

# %% tags=["experiment"]
devices, busiest = (2, 4, 8, 16, 32, 64), {}
for n in devices:
    counts = count_messages(n, model_bytes, n * 64 * images[0].nbytes, n * 64 * 10 * 4)
    first = counts["forward_bytes"] + counts["backward_bytes"]  # every message begins or ends at the first device
    busiest[n] = first, 4 * (n - 1) / n * model_bytes  # a rank sends 2 (N - 1) / N of it and receives as much
    print(f"{n:>2} devices: DataParallel {first / 1e6:8.1f} MB, a rank of the ring {busiest[n][1] / 1e6:5.1f} MB, "
          f"ratio {first / busiest[n][1]:.1f}" + reveal(predicted_ratio) * (n == 8))  # fmt: skip
ratio = busiest[64][0] / busiest[64][1]
course.claim("64 devices: the first device of DataParallel moves over ten times the bytes of a rank", ratio > 10,
             f"{ratio:.0f} times")  # fmt: skip
plots.busiest_bytes(devices, *zip(*busiest.values(), strict=True), model_bytes)

# %% [markdown]
# With two devices the difference is small: the model goes one way and its gradients the other, as on the ring. With
# every further device the first one of DataParallel has another model to send and another set of gradients to receive,
# while a rank of the ring never moves more than four times the model (2 (N - 1) / N out, and the same in). This is
# arithmetic and holds on every machine. Seconds are another matter: a library may copy to several devices at once, or
# along a tree.
#
# ## DP and DDP in seconds
#
# **DDP computes forward and backward on all devices at once; what DataParallel computes at once depends on the kind of
# device.**
#
# In turn, in one run: the model alone, DataParallel with two places, and DDP with two ranks, the same batch for all. On
# a CPU a place is a thread and a rank a process, with one core each. Threads share Python's lock (*GIL*), and torch
# gives it back while it computes.
#
# **Predict**, for the largest batch: the step of DataParallel and that of DDP, in multiples of the model alone.

# %%
predicted_dp = None
predicted_ddp = None


# %% tags=["experiment"]
def side_by_side(rank, world_size, data_parallel, images, labels, batches, rounds):
    """Seconds (rounds, variants, batches): forward alone and DataParallel; step alone, DataParallel and DDP."""
    on_gpus = dist.get_backend() == "nccl"
    device = torch.device("cuda", rank) if on_gpus else torch.device("cpu")
    devices = [f"cuda:{i}" for i in range(world_size)] if on_gpus else ["cpu"] * world_size
    torch.set_num_threads(1)

    def parallel(module):
        return lambda x: data_parallel(module, x, distributed.Transfers(devices))

    def stepper(call, module, batch):
        optimizer = torch.optim.SGD(module.parameters(), 0.01)

        def step():
            optimizer.zero_grad()
            F.cross_entropy(call(batch[0]), batch[1]).backward()
            optimizer.step()

        return step

    found = []
    for n in batches:
        whole = images[:n].to(device), labels[:n].to(device)
        shard = [t.chunk(world_size)[rank] for t in whole]
        alone, dp, ddp = (FashionCNN(dropout=0.0, norm=None).to(device) for _ in range(3))
        of_rank_0 = [torch.no_grad()(lambda m=alone, x=whole[0]: m(x)),
                     torch.no_grad()(lambda m=dp, x=whole[0]: parallel(m)(x)),
                     stepper(alone, alone, whole), stepper(parallel(dp), dp, whole)]  # fmt: skip
        if on_gpus:  # the ready-made one, wrapped once
            ready = nn.DataParallel(FashionCNN(dropout=0.0, norm=None).to(device), range(world_size))
            of_rank_0.append(stepper(ready, ready, whole))
        variants = of_rank_0 if rank == 0 else [lambda: None] * len(of_rank_0)
        wrapped = nn.parallel.DistributedDataParallel(ddp)
        found.append(distributed.timed_rounds([*variants, stepper(wrapped, wrapped, shard)], rounds))
    return torch.stack(found, 2)


batches = [n for n in sizes.batches if n >= 4][-4:]
seconds = run_ranks(side_by_side, 2, data_parallel_now, images.repeat(-(-batches[-1] // len(images)), 1, 1, 1),
                    labels.repeat(-(-batches[-1] // len(labels))), batches, sizes.rounds, timeout=300)[0]  # fmt: skip
names = ["forward, the model alone", "forward, DataParallel", "step, the model alone", "step, DataParallel"]
names += ["step, nn.DataParallel"] * (seconds.shape[1] - 5) + ["step, DDP"]
dp, ddp = ((seconds[:, i] / seconds[:, 2]).median(0).values for i in (3, -1))
forward = (seconds[:, 1] / seconds[:, 0]).median(0).values
for n, f, a, b in zip(batches, forward.tolist(), dp.tolist(), ddp.tolist(), strict=True):
    last = n == batches[-1]
    print(f"batch {n:>5}: DataParallel forward {f:.2f}, step {a:.2f}" + reveal(predicted_dp) * last
          + f"; DDP step {b:.2f} of the model alone" + reveal(predicted_ddp) * last)  # fmt: skip
course.claim("with the largest batch the forward of DataParallel is faster than the model alone", forward[-1] < 1,
             f"{forward[-1]:.2f} of it",
             otherwise="Your machine has no two free cores, or the batch is still too small.")  # fmt: skip
course.claim("with the largest batch a step of DDP is faster than one of DataParallel", ddp[-1] < dp[-1],
             f"{(dp[-1] / ddp[-1]).item():.2f} times")  # fmt: skip
course.claim("with the smallest batch a step of DataParallel is slower than the model alone", dp[0] > 1,
             f"{dp[0]:.1f} times")  # fmt: skip
print(course.machine())
curves = {name: seconds[:, i].T for i, name in enumerate(names)}
plots.per_image(batches, curves, "2 places or ranks, one batch shared")

# %% [markdown]
# With a small batch DataParallel pays for two copies of the model, two threads and the wait for both before there is
# anything to gain. With a large one its forward may gain. Its step gains less than DDP's, and on a CPU that has a
# reason of its own, counted above: its backward runs in one thread. On GPUs both backwards run at once, and what is
# left is the copying, the one lock for all forwards, and loss and optimizer on the first device alone. How large that
# is depends on the GPUs and on what connects them; this measurement says nothing about it unless it ran there.

# %% [markdown]
# ## What to take with you
#
# 1. DataParallel copies the model to every device in every step; with usual batches that is nearly all that it sends.
# 2. DDP sends each gradient once, in `backward`; equal gradients keep equal weights equal.
# 3. A ring sends 2(N - 1)/N of the tensor from each rank, in 2(N - 1) steps; halving and doubling send as much in
#    2 log2(N) steps; where links are not equal, what crosses the slow one decides.
# 4. Buckets save calls. Overlap hides messages behind backward, and saves at most the shorter of the two.
# 5. The mean of means is the mean only for equal shards. BatchNorm sees its own shard only.
# 6. All ranks must make the same calls in the same order. If one does not, the others wait.
# 7. Call `set_epoch` in every epoch. Rank 0 alone writes the checkpoint, whole or not at all; every rank reads it.
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
