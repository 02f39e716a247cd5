# %% [markdown]
# # Data parallel
#
# **What do DataParallel and DistributedDataParallel do, and what do they cost?**
#
# This unit takes both apart and builds them again. You write the four steps of `DataParallel` and its backward pass,
# the collectives that ranks talk with (a tree, a ring), a distributed sampler, and `DistributedDataParallel` three
# times: naive, bucketed, overlapped. You count what is sent, and measure what it costs. At the end you complete a
# training script that runs under torchrun, survives the death of a rank, and runs on more than one machine.
#
# The ranks are real processes everywhere. **On a CPU** they talk through gloo, over TCP, and share the cores: what
# is sent, when, and who waits for whom is the same as on GPUs, and so are all results; how much faster two devices
# are is not, because two ranks here get one core each of those that a single process had all to itself. **With one
# GPU** a single rank trains on it; more ranks would share it, so the measurements with several ranks stay on the
# CPU. **With several GPUs** the experiments use NCCL. The checks of exercises with ranks run on the CPU everywhere:
# what they ask is who gets what.
#
# How it works: you first write down what you expect (a cell with `None`), then solve the exercise, check it, and look
# at the measurement. A check names the first thing that is not right; if a rank hangs, it says where each rank waits.
# If you skip an exercise, the later cells say so and go on with the reference answer, where your folder holds it: that
# of a class may not. In the experiments `x_now` is your `x` if its check passed, else the reference. The last hint of
# an exercise is nearly its solution. The cells after the checks that hold nothing are for tests that only your
# instructor sees. What the text says about measurements was seen on two cores without a GPU, at the scale `laptop`;
# `smoke` is too small to show it.

# %% locked="setup"
import contextlib
import copy
import itertools
import math
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import cloudpickle
import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, Sampler

import course
from course import distributed, loaders
from course.checks import data_parallel as check
from course.datasets import fashion
from course.distributed import run_ranks
from course.models import FashionCNN
from course.plots import data_parallel as plots

print(course.machine())
sizes = course.sizes("02_data_parallel")


def told(prediction, form="{}"):
    """What the learner predicted, in brackets, or nothing."""
    return "" if prediction is None else f"   (you said {form.format(prediction)})"


# %% [markdown]
# ## Why more than one device
#
# **Some models would train for years on one device; splitting the batch is the simplest way to use many.**
#
# AlphaFold 2 was trained for about eleven days on 128 TPU v3 cores (Jumper et al. 2021, supplementary methods
# 1.11.3): three to four years on one of them, if it fitted. Three ways to use many devices build on each other:
#
# - **Data parallel** (DP): one process; every step copies the model to all devices and splits the batch.
# - **Distributed data parallel** (DDP): one process a device, each with a model of its own; only gradients are shared.
# - **Sharded** training (ZeRO, FSDP): as DDP, but each rank keeps only a part of parameters, gradients and optimizer
#   state, and asks the others when it needs the rest (Rajbhandari et al. 2020, arXiv:1910.02054). It saves memory and
#   sends more. It is not part of this unit; what you write here is what it is made of.

# %% [markdown]
# A *rank* is the number of a process, from 0, and the *world size* their number. `run_ranks(fn, n)` calls `fn(rank,
# n)` in n processes, and returns their answers as a list in the order of ranks. What they print appears with the
# rank in front. They end with the call, whatever happens in them. In them they can talk through a *backend*: gloo
# on CPUs, NCCL on NVIDIA's GPUs. `dist.all_reduce(x)` replaces x by the sum of the x of all ranks; `dist.barrier()`
# waits until all of them have come to it.


# %% tags=["experiment"]
def hello(rank, world_size):
    x = torch.full((3,), float(rank))
    dist.all_reduce(x)  # in place: the sum over all ranks
    print(f"process {os.getpid()}, backend {dist.get_backend()}, I hold {x.tolist()}")
    return x


run_ranks(hello, 2)

# %% [markdown]
# If one of them does not come, the others would wait for ever. `run_ranks` has a time limit and says who is where:


# %% tags=["experiment"]
def forgetful(rank, world_size):
    if rank != 1:
        dist.barrier()


try:
    run_ranks(forgetful, 3, backend="gloo", timeout=2)
except distributed.RankError as error:
    print(error)

# %% [markdown]
# Read such a report from the end: rank 1 has returned, so nobody will ever join the other two.
#
# The model of this unit is a small convolutional network for Fashion-MNIST, and the data is the real one if it lies
# in the data folder, else ten drawn kinds of garment in the same format.

# %% tags=["experiment"]
data = fashion.load(sizes.dataset)
images, labels = fashion.floats(data.train_images), data.train_labels
weights = list(FashionCNN().parameters())
print(f"{len(images):,} images; {sum(w.numel() for w in weights):,} weights in {len(weights)} tensors, "
      f"{sum(w.nbytes for w in weights) / 1e6:.1f} MB")  # fmt: skip
plots.pictures([data.train_images[labels == k][0] for k in range(10)], fashion.CLASSES)

# %% [markdown]
# # Part 1: DataParallel, one process with many devices
#
# DataParallel is one line, `model = nn.DataParallel(model, device_ids=[0, 1])`, and generally seen as obsolete. It is
# worth taking apart because everything that it does has to be done somewhere in every other way.

# %%
plots.data_parallel_steps()

# %% [markdown]
# Predict: one forward pass on 4 devices, the model counted as one message. How many messages in all, the first
# device's own share included, and how many of them lead from one device to another?

# %%
predicted_messages = None  # a number
predicted_crossing = None

# %% [markdown]
# ## One process, several devices
#
# **One process owns batch, model and loss; at every step it lends parts of the batch and copies of the model to the
# other devices.**
#
# `torch.nn.DataParallel(model)(batch)` looks like `model(batch)`, and takes four steps. The batch is cut along its
# first dimension, and each part is sent to a device (*scatter*). The model is copied to each of these devices
# (*replicate*). Each copy, a *replica*, computes the outputs of its part, all at the same time (*parallel apply*).
# The outputs are sent back to the first device and put together (*gather*). `torch.nn.parallel` has these steps as
# functions, `scatter`, `replicate`, `parallel_apply` and `gather`; you rebuild them under the same names, and
# `DataParallel` out of them.
#
# The replicas live for one step. The parameters that count are those of the model on the first device: there lies
# the loss, there the gradients are added up, and there the optimizer changes them. After that every replica holds
# old numbers, so the next step sends the whole model anew, to every device, however small the batch is. A replica
# is not a model of its own, then, but part of the computation: its parameters are *copies of* the parameters, and a
# gradient that arrives at a copy must go on to the original.
#
# Who moves what is counted. `distributed.Transfers(devices)`, called `transfers` below, is the only way from device
# to device: `transfers.send(tensors, source, target)` takes a list of tensors from one *place* to another, as one
# message, and returns their copies there. A place is a number in the list `transfers.devices`; place 0 is the first
# device, with batch, model, outputs and loss. Every message is noted in `transfers.log`, also one from place 0 to
# place 0: all devices are served alike, and `transfers.crossing` lists the messages from one place to another.
# Sending is a step of autograd like any other: gradients flow back through it, but what
# autograd carries back by itself is not noted.
#
# One device may stand in the list several times, and then plays several. That shows who sends how much to whom, and
# that the results are those of the model alone: your code cannot tell the difference. It says little about speed: on
# one GPU the parts share the same arithmetic units, on a CPU each has a core only as long as there are some, and a
# copy within one memory is not one over a cable.
# With several GPUs, put them into the list; the rest stays as it is.

# %% [markdown]
# ### Exercise 1 · Scatter a batch
#
# Cut a batch into one part for each device, and send each part there.
#
# **Points** 3 · **Difficulty** ●●○ · **Minutes** 20 · **Lines** 14
#
# **Convention** A batch is a tensor, or a tuple, list or dict whose items are batches or anything else, to any
# depth. Each tensor is cut along dimension 0 as `torch.chunk` does, into as many pieces as there are devices or, if
# it is too short, fewer; then there are fewer parts. All tensors of a batch have the same length along dimension 0.
# A part looks like the batch, with pieces for tensors; what is no tensor and holds none (a number, a string, None)
# stands in every part as it is. Part k is sent from place 0 to place k, all its tensors in one message, in any
# order; that holds for place 0 too. Gradients flow back to the batch.
#
# **Not allowed** `torch.nn.parallel` and `torch.nn.DataParallel`: they are what you write here.
#
# **Source** PyTorch's documentation, `torch.chunk` and `torch.nn.DataParallel`; the latter lets the tensors of a
# batch have different lengths, and so can lose rows without a word.
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
# message. Then put the copies where the tensors stood. 5 rows on 4 devices are 3 parts: how many pieces does
# `chunk` give?
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# Collecting and putting back are the same walk: `walk(value, use)` returns `use(value)` for a tensor, a container
# of the same type with `walk(item, use)` for its items, and anything else as it is. With `tensors.append` for `use`
# it collects. With `arrived = iter(transfers.send(...))` and `lambda tensor: next(arrived)` it puts back.
#
# </details>


# %% solution="scatter"
def scatter(batch, transfers):
    """The parts of a batch, part k on device number k of `transfers`.

    Args:
        batch: tensor (N, ...), or a tuple, list or dict of such tensors, of further tuples, lists and dicts, and of
            anything else; on place 0. At least one tensor is in it, and N is at least 1.
        transfers: distributed.Transfers.

    Returns: list of parts in the order of places, each like the batch in form; as many as `torch.chunk` makes.
    """

    ### BEGIN SOLUTION
    def walk(value, use):
        """`value` with use(tensor) for each tensor."""
        if isinstance(value, torch.Tensor):
            return use(value)
        if isinstance(value, dict):
            return {key: walk(item, use) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return type(value)([walk(item, use) for item in value])
        return value

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
# ### Exercise 2 · Replicate a module
#
# Copy a module to the devices so that the gradients of all copies find their way back.
#
# **Points** 4 · **Difficulty** ●●● · **Minutes** 30 · **Lines** 6
#
# **Convention** A replica is a module of the same class with submodules of its own. Under the name of every
# parameter and buffer of the module (`replica.layer.weight`) it has the copy that `transfers.send` returned; one
# message a replica, from place 0, holds all parameters and buffers of the module, in any order, each once.
# Parameters that are one in the module, tied under several names, are one in a replica. Gradients flow through the
# copies back to the parameters of the module, so a copy is no leaf, and so no `nn.Parameter`; whether
# `replica.parameters()` lists it is left open (torch's replicas list nothing). A frozen parameter stays frozen.
# Every submodule is in the mode, train or eval, of its original. The module keeps its own parameters, buffers and
# gradients, and a replica that changes its buffers, as BatchNorm does, changes no other and not the module. (In
# torch, place 0 shares its buffers with the module, so BatchNorm's statistics of the first part are kept; here none
# are.)
#
# **Not allowed** `torch.nn.parallel` and `torch.nn.DataParallel`: they are what you write here.
#
# **Source** PyTorch's documentation, `torch.nn.DataParallel` (the warning on replication) and `torch.nn.parallel`;
# Python's, `copy.deepcopy` and its `memo`.
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
# would compute with what another has just put in. So every device needs module objects of its own. `deepcopy` makes
# them, and asks a dictionary, its `memo`, whether it has copied an object already.
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
# ## Threads
#
# **Threads of one process take turns with Python, but what torch computes they can compute at the same time.**
#
# The interpreter has a lock, the *GIL*, and a thread runs Python code only while it holds it. The operations of
# torch give it back while they compute, and on a GPU they hardly compute at all: they put work into the queue of
# their device and return. So one process can keep several devices busy from several threads, as long as the Python
# part, the forward functions of all modules on all devices, is small beside the arithmetic. That part does not
# shrink with the number of devices: it is done for every replica, and in turns. DistributedDataParallel starts a
# process for each device, and thereby leaves the common lock behind.
#
# A new thread begins with torch's own settings, not with those of the thread that started it. Whether gradients are
# recorded (`torch.no_grad`) and in which precision operations run (`torch.autocast`) are such settings of a thread,
# and who starts threads must carry them over. An exception ends its own thread alone: unless somebody catches it
# and brings it over, the caller never hears of it. The backward pass needs no threads of yours. Autograd has one
# for every GPU; what lies on the CPU it computes in the thread that calls `backward`, one part after the other.

# %% [markdown]
# ### Exercise 3 · Apply in parallel
#
# Run each replica on its part, all at the same time.
#
# **Points** 4 · **Difficulty** ●●● · **Minutes** 30 · **Lines** 16
#
# **Convention** Replica k gets part k as its only argument, whatever the part is, in a thread of its own; no
# replica waits for another to end. In the threads hold the caller's grad mode (`torch.is_grad_enabled()`) and, for
# the CPU and for CUDA, its autocast: on or off, and the dtype. If forward functions raise, the exception of the
# lowest place comes out, with its own type; the words `place k`, with the number for k, stand in its message or in
# a note (`add_note`). When the function is left, by a return or by an exception, all replicas have ended and no
# thread is left. (torch's own function also makes a replica's GPU the current one in its thread, and carries over
# the caller's stream; leave that out.)
#
# **Not allowed** `torch.nn.parallel` and `torch.nn.DataParallel`: they are what you write here.
#
# **Source** PyTorch's documentation, "Autograd mechanics", section "Multithreaded Autograd", and "Automatic Mixed
# Precision examples", on several GPUs in one process; Python's, `concurrent.futures`.
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
# **Points** 2 · **Difficulty** ●○○ · **Minutes** 10 · **Lines** 4
#
# **Convention** Output k is sent from place k to place 0, one message each, also from place 0 itself; what comes
# back is the copies, one behind the other along dimension 0. Outputs without dimensions, such as the loss of each
# part, become a vector of that many numbers. Gradients flow back to the outputs. (torch's own function takes nested
# outputs too.)
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
# **Points** 3 · **Difficulty** ●●○ · **Minutes** 10 · **Lines** 4
#
# **Convention** As the four exercises above have it: three messages for each device that takes part, one with its
# part of the batch, one with all parameters and buffers of the module, one with its outputs. The module is sent
# only to places that have a part. `module` maps a batch to one tensor, row by row: then the result equals
# `module(batch)`, and `backward` leaves the same gradients in the parameters of the module. With BatchNorm in train
# mode it does not, because each replica sees the mean of its own part, and with dropout the random numbers are
# others. A single device takes the same steps. The module keeps its parameters and buffers.
#
# **Not allowed** `torch.nn.parallel` and `torch.nn.DataParallel`: they are what you write here.
#
# **Source** PyTorch's documentation, `torch.nn.DataParallel`; Li et al. 2020, "PyTorch Distributed: Experiences on
# Accelerating Data Parallel Training", VLDB 13(12), arXiv:2006.15704 (what came after it, and why).
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
# Now count. `Transfers` has kept a list of every message.

# %% tags=["experiment"]
data_parallel_now = course.solved(check.data_parallel)
gpus = torch.cuda.device_count() if course.device().type == "cuda" else 0
places = [f"cuda:{i}" for i in range(gpus)] if gpus > 1 else [course.device()] * 4
transfers = distributed.Transfers(places)
model = FashionCNN(dropout=0.0, norm=None).to(places[0]).eval()
batch = images[: sizes.batch_size].to(places[0])
with torch.no_grad():
    difference = (data_parallel_now(model, batch, transfers) - model(batch)).abs().max().item()
print(f"{len(places)} places: {', '.join(map(str, dict.fromkeys(places)))}")
print(f"largest difference to the model alone: {difference:.1e}")
print(f"messages: {len(transfers.log)}" + told(predicted_messages))
print(f"of them from one place to another: {len(transfers.crossing)}" + told(predicted_crossing))
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
print(course.machine() + told(predicted_batch_from, "from {} on"))
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
# ### Exercise 6 · The backward by hand
#
# Do a whole step without autograd between devices: forward, loss, backward, sum.
#
# **Points** 5 · **Difficulty** ●●● · **Minutes** 35 · **Lines** 18
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
# ### Exercise 7 · What a step sends
#
# Say before the step how many messages and bytes it sends, and how many of them leave their device.
#
# **Points** 2 · **Difficulty** ●○○ · **Minutes** 10 · **Lines** 8
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
# # Part 2: Many processes, and how they talk
#
# DistributedDataParallel turns the picture around. Every rank is a process with a model of its own, which stays.
# Each takes its own part of the data from page-locked memory (*pinned*, so that the copy to the GPU can run by
# itself), computes its own gradients, and then all ranks agree on the mean of them. Equal weights and equal
# gradients give equal weights: no model is ever sent again.

# %%
plots.ddp_steps()

# %% [markdown]
# So everything hangs on one operation: N ranks have a vector each, and all of them need the sum. "Everybody sends
# everything to everybody" would do. Better ways are the subject of the next exercises.

# %% [markdown]
# ## Messages
#
# **A rank has what it computed and what it was sent; `send` returns when the other side has taken the message, and
# two ranks that both send first wait for ever.**
#
# Ranks are processes: each has variables of its own, and all run the same function. What differs is the number that
# `dist.get_rank()` gives; with `if rank == ...` one program plays all the parts. A value gets from one rank to
# another by a message and in no other way. A message has two ends, and the program of one rank must send where the
# program of the other receives: `dist.send(tensor, dst=1)` in rank 0, `dist.recv(tensor, src=0)` in rank 1. `recv`
# writes into a tensor that is there already, of the same shape and dtype. Between two ranks messages keep their
# order.
#
# Both calls *block*. `recv` returns when the values are there. `send` returns when the tensor may be overwritten,
# and with gloo that is when the other side receives. So this stands still:
#
# ```python
# dist.send(mine, (rank + 1) % world_size)    # everybody sends: nobody has come to the next line
# dist.recv(theirs, (rank - 1) % world_size)
# ```
#
# Such a standstill is called a *deadlock*. A library that buffers small messages hides it until the tensors grow.
# `dist.isend` and `dist.irecv` only start a message and return at once, with a request. `request.wait()` blocks
# until the message is through. Before that, the tensor belongs to the message: do not write into what is being
# sent, do not read what is being received, and keep the request.
#
# A *collective* is a function that all ranks call together. The two simplest are the two halves of what data
# parallel training needs: *broadcast* gives all ranks the values of one (the weights, at the start), *reduce* gives
# one rank the sum over all (the gradients). Here you write them from messages. They change their argument in place,
# like those of `torch.distributed`: the caller holds on to its tensor, and the line `tensor = other` in a function
# only gives a name inside of it a new meaning. A published course on this matter has
# `tensor = torch.max(tensor, buff)` in its reduce, and its test does not notice that nothing comes out of it,
# because it counts messages and looks at no value.
#
# To try a function before you check it:
#
# ```python
# def mine(rank, world_size):
#     tensor = torch.tensor([float(rank)])
#     broadcast_naive(tensor, src=0)
#     return tensor.tolist()
#
#
# distributed.run_ranks(mine, 4, backend="gloo", timeout=5)
# ```
#
# If ranks wait for each other, `run_ranks` ends them after `timeout` seconds and says where each stands; a check
# does the same after eight seconds (the first one also has to start the processes). So read it:
#
# - "rank 2 waits in recv, line 9 of the cell" waits for a message that nobody sends; "waits in send", for somebody
#   to take its message. In a `wait`, the line shows which request it is.
# - "rank 0 waits in barrier, line ... of data_parallel.py" has come out of your function and waits for the others.
#   What did it not send them, or what do they expect too much?
# - "rank 0 has returned" has done the same, in all the cases of the check.
#
# A rank that does not exist is not refused by gloo, which waits for it; a check tells you.
#
# If a rank dies with `Received data size doesn't match expected size`, the tensor at one end of a message was
# longer than that at the other.

# %% [markdown]
# ### Exercise 8 · Broadcast, one after the other
#
# The source sends its tensor to every other rank in turn.
#
# **Points** 2 · **Difficulty** ●○○ · **Minutes** 10 · **Lines** 7
#
# **Convention** All ranks call the function, with tensors of one shape and dtype, contiguous and on the CPU, and
# with the same `src`, which may be any rank. Afterwards the tensor of every rank, the very object that was passed,
# holds the values of `src`. There are `world_size - 1` messages, each the whole tensor, all sent by `src`; nothing
# but `send`, `recv`, `isend` and `irecv` of `torch.distributed` is used, and every request is waited for. What the
# function returns does not matter.
#
# **Not allowed** The collectives of torch.distributed: `broadcast`, `reduce`, `all_reduce`, `gather`, `all_gather`,
# `scatter`, `reduce_scatter`, `all_to_all`.
#
# **Source** PyTorch documentation of `torch.distributed`, "Point-to-point communication"; Thakur, Rabenseifner and
# Gropp 2005, "Optimization of collective communication operations in MPICH", section 2, for the names.
#
# <details><summary>Hint 1</summary>
#
# All ranks run the same lines. What does the source do, what does everybody else do, and who must not send to
# itself?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `if dist.get_rank() == src:` a loop over all ranks but `src`, with `dist.send(tensor, other)`; `else` one
# `dist.recv(tensor, src)`, which writes into the tensor of the caller.
#
# </details>


# %% solution="broadcast_naive"
def broadcast_naive(tensor, src):
    """None; afterwards `tensor` of every rank holds the values of rank `src`, which sends to each other rank in turn.

    Args:
        tensor: contiguous tensor on the CPU, of one shape and dtype in all ranks; changed in place.
        src: rank of the source, an int from 0.
    """
    ### BEGIN SOLUTION
    if dist.get_rank() == src:
        for other in range(dist.get_world_size()):
            if other != src:
                dist.send(tensor, other)
    else:
        dist.recv(tensor, src)
    ### END SOLUTION


# %% test="broadcast_naive-visible" points=1
check.broadcast_naive(broadcast_naive)

# %% test="broadcast_naive-hidden" points=1
### BEGIN HIDDEN TESTS
check.broadcast_naive(broadcast_naive, seed=161)
### END HIDDEN TESTS

# %% [markdown]
# ### Exercise 9 · Reduce, one after the other
#
# Now the other way: every rank sends its tensor to `dst`, which adds them up.
#
# **Points** 2 · **Difficulty** ●○○ · **Minutes** 10 · **Lines** 8
#
# **Convention** As for the broadcast: contiguous tensors of one shape and dtype on the CPU, `dst` any rank,
# messages point to point, `world_size - 1` of them, each the whole tensor and straight to `dst`, every request
# waited for. Afterwards the tensor of `dst`, the very object that was passed, holds the sum over all ranks, its own
# values among them; the tensor of every other rank keeps its values. Floating point sums may be taken in any order.
#
# **Not allowed** The collectives of torch.distributed: `broadcast`, `reduce`, `all_reduce`, `gather`, `all_gather`,
# `scatter`, `reduce_scatter`, `all_to_all`.
#
# **Source** As for the broadcast.
#
# <details><summary>Hint 1</summary>
#
# `dst` must keep its own values while it receives those of another rank. Where do they go?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Receive into a second tensor, `part = torch.empty_like(tensor)`, and add it with `tensor += part`, which writes
# into the tensor of the caller; `tensor = tensor + part` would make a new one that nobody sees.
#
# </details>


# %% solution="reduce_naive"
def reduce_naive(tensor, dst):
    """None; afterwards `tensor` of rank `dst` holds the sum over all ranks, that of every other rank what it held.

    Args:
        tensor: contiguous tensor on the CPU, of one shape and dtype in all ranks; changed in place in rank `dst`.
        dst: rank that gets the sum, an int from 0.
    """
    ### BEGIN SOLUTION
    if dist.get_rank() != dst:
        dist.send(tensor, dst)
    else:
        part = torch.empty_like(tensor)
        for other in range(dist.get_world_size()):
            if other != dst:
                dist.recv(part, other)
                tensor += part
    ### END SOLUTION


# %% test="reduce_naive-visible" points=1
check.reduce_naive(reduce_naive)

# %% test="reduce_naive-hidden" points=1
### BEGIN HIDDEN TESTS
check.reduce_naive(reduce_naive, seed=272)
### END HIDDEN TESTS

# %% [markdown]
# ## Trees
#
# **Who has received can send: the number of ranks that hold the values doubles every round, so log2 of the ranks
# are enough.**
#
# The naive broadcast takes `world_size - 1` messages *one after the other*, while all ranks but two have nothing to
# do. A rank that has its values could help. In round 0 the source sends to one rank; in round 1 both send, to two
# others; then four do. After k rounds `2**k` ranks hold the values, so N ranks need log2(N) rounds, rounded up: 10
# for a thousand ranks, and not 999. Who sent to whom forms a *binomial tree*. The number of messages stays the
# same, N - 1; what shrinks is the *depth*, the number of messages that must come one after the other.
#
# With the source at rank 0, rank r sends to `r + 1` in round 0, to `r + 2` in round 1, to `r + 4` in round 2, if it
# holds the values already and if there is such a rank:
#
# ```
# round 0      0 -> 1
# round 1      0 -> 2    1 -> 3
# round 2      0 -> 4    1 -> 5    2 -> 6    3 -> 7
# ```
#
# For another source count from there: the *place* of a rank is `(rank - src) % world_size`. Ranks are whole
# numbers: `world_size / 2` is a float, and a rank of 2.0 is refused.
#
# A reduce is the same picture with time and arrows turned round: the last round comes first, and who sent now
# receives and adds. A rank that has sent is done.

# %%
plots.broadcast_tree(6)

# %% [markdown]
# ### Exercise 10 · Broadcast along a tree
#
# Write the broadcast that doubles.
#
# **Points** 4 · **Difficulty** ●●○ · **Minutes** 20 · **Lines** 8
#
# **Convention** Values, tensors, messages and requests as for `broadcast_naive`; again `world_size - 1` messages,
# each the whole tensor. But they take ceil(log2(world_size)) rounds for any number of ranks, not only a power of
# two, and for any `src`. Rounds are counted like this: in one round a rank takes part in at most one message, as
# sender or receiver, and its messages come in the order in which its code starts them. Any tree that gets along
# with these rounds is right, not only the one that is drawn above.
#
# **Not allowed** The collectives of torch.distributed: `broadcast`, `reduce`, `all_reduce`, `gather`, `all_gather`,
# `scatter`, `reduce_scatter`, `all_to_all`.
#
# **Source** Thakur, Rabenseifner and Gropp 2005, section 4.3 (binomial tree).
#
# <details><summary>Hint 1</summary>
#
# Which places hold the values before round k, counted from the source, and which get them in it?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# With `distance = 2**k`: places below `distance` send to the place `distance` further on, if there is one; places
# from `distance` to below `2 * distance` receive. Everybody else does nothing in this round.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# `place = (rank - src) % world_size`. A distance between places is a distance between ranks: the sender's message
# goes to `(rank + distance) % world_size`, the receiver's comes from `(rank - distance) % world_size`. The place
# decides *whether*: `place < distance and place + distance < world_size`.
#
# </details>


# %% solution="broadcast_tree"
def broadcast_tree(tensor, src):
    """None; afterwards `tensor` of every rank holds the values of rank `src`, after ceil(log2(world_size)) rounds.

    Args:
        tensor: contiguous tensor on the CPU, of one shape and dtype in all ranks; changed in place.
        src: rank of the source, an int from 0.
    """
    ### BEGIN SOLUTION
    rank, world_size = dist.get_rank(), dist.get_world_size()
    place = (rank - src) % world_size  # counted from the source
    for k in range(math.ceil(math.log2(world_size))):
        distance = 2**k
        if place < distance and place + distance < world_size:
            dist.send(tensor, (rank + distance) % world_size)
        elif distance <= place < 2 * distance:
            dist.recv(tensor, (rank - distance) % world_size)
    ### END SOLUTION


# %% test="broadcast_tree-visible" points=2
check.broadcast_tree(broadcast_tree)

# %% test="broadcast_tree-hidden" points=2
### BEGIN HIDDEN TESTS
check.broadcast_tree(broadcast_tree, seed=383)
### END HIDDEN TESTS

# %% [markdown]
# ### Exercise 11 · Reduce along a tree
#
# Turn the tree round: sums travel from the leaves to `dst`.
#
# **Points** 4 · **Difficulty** ●●○ · **Minutes** 15 · **Lines** 11
#
# **Convention** Values, tensors, messages and requests as for `reduce_naive`: the sum in `dst`, every other rank's
# tensor keeps its values, although sums pass through some of these ranks. `world_size - 1` messages, each the whole
# tensor, in ceil(log2(world_size)) rounds, counted as for `broadcast_tree`, for any number of ranks and any `dst`.
#
# **Not allowed** The collectives of torch.distributed: `broadcast`, `reduce`, `all_reduce`, `gather`, `all_gather`,
# `scatter`, `reduce_scatter`, `all_to_all`.
#
# **Source** Thakur, Rabenseifner and Gropp 2005, section 4.4 (binomial tree).
#
# <details><summary>Hint 1</summary>
#
# What does a rank in the middle of the tree send on: its own tensor, or something else? And where may it keep that?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `total = tensor.clone()` is what a rank adds to and sends; `part = torch.empty_like(tensor)` is what it receives
# into. The rounds are those of `broadcast_tree`, from the last to the first.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# For k from the largest to 0, with `distance = 2**k`: places from `distance` to below `2 * distance` send `total`
# to `(rank - distance) % world_size`; places below `distance` receive from `(rank + distance) % world_size`, if
# that place is there, and add. At the end `if rank == dst: tensor.copy_(total)`.
#
# </details>


# %% solution="reduce_tree"
def reduce_tree(tensor, dst):
    """None; afterwards `tensor` of rank `dst` holds the sum over all ranks, after ceil(log2(world_size)) rounds.

    Args:
        tensor: contiguous tensor on the CPU, of one shape and dtype in all ranks; changed in place in rank `dst` alone.
        dst: rank that gets the sum, an int from 0.
    """
    ### BEGIN SOLUTION
    rank, world_size = dist.get_rank(), dist.get_world_size()
    place = (rank - dst) % world_size  # counted from the root
    total, part = tensor.clone(), torch.empty_like(tensor)
    for k in reversed(range(math.ceil(math.log2(world_size)))):
        distance = 2**k
        if place < distance and place + distance < world_size:
            dist.recv(part, (rank + distance) % world_size)
            total += part
        elif distance <= place < 2 * distance:
            dist.send(total, (rank - distance) % world_size)
    if rank == dst:
        tensor.copy_(total)
    ### END SOLUTION


# %% test="reduce_tree-visible" points=2
check.reduce_tree(reduce_tree)

# %% test="reduce_tree-hidden" points=2
### BEGIN HIDDEN TESTS
check.reduce_tree(reduce_tree, seed=494)
### END HIDDEN TESTS

# %% [markdown]
# ## A ring
#
# **If every rank is to have the sum, each must send almost two tensors' worth of bytes, and a ring sends no more,
# however many ranks there are.**
#
# *All-reduce* is a reduce after which every rank holds the sum: what training needs of its gradients, after each
# step. A reduce to rank 0 and a broadcast from there would do. But the link of rank 0 then carries the whole tensor
# many times over, log2(N) times in each direction with trees, while the last leaf sends it once. Nor does
# "everybody sends to everybody", as one reads, describe what is done: that is N (N - 1) whole tensors.
#
# The way out is to cut the tensor into N pieces and to make every rank the root of one of them. The ranks form a
# *ring*: each sends to the next one only and receives from the one before. There are two phases of N - 1 steps.
#
# - *Reduce-scatter*: in each step every rank sends one piece on and adds what it receives to its own. A piece that
#   has gone all the way round has been added to by everybody. After N - 1 steps each rank holds one piece of the
#   sum.
# - *All-gather*: the finished pieces go round once more, and are now copied instead of added.
#
# In each step all links of the ring are busy at once, with a piece of 1/N of the tensor; together a rank sends
# `2(N-1)/N` of the tensor. No algorithm gets along with less if the pieces are equal (Patarasuk and Yuan 2009). The
# price is the number of steps: 2(N-1) messages come one after the other, each with its latency, where two trees have
# 2 log2(N). And it shows why blocking calls are not enough: on a ring everybody sends first. Start the sending
# (`isend`), receive, then wait for both.
#
# That each piece is summed in one place, and copied from there, has a second use: all ranks hold the same bits. If
# every rank added the N tensors itself, in an order of its own, rounding would make the copies of the model drift
# apart.

# %% [markdown]
# ### Exercise 12 · All-reduce on a ring
#
# Write the all-reduce that data parallel training is known for.
#
# **Points** 6 · **Difficulty** ●●● · **Minutes** 45 · **Lines** 16
#
# **Convention** All ranks call the function with tensors of one shape, dtype and layout on the CPU: any shape, also
# (), any dtype that can be added, contiguous or not. Afterwards the tensor of each rank, the very object that was
# passed, holds the sum over all ranks, to the last bit the same everywhere; memory between the numbers of a tensor
# that is not contiguous stays as it was. The pieces are those of `torch.tensor_split`: N of them in the order of
# the numbers, the first ones longer by one where N does not divide the length, some empty if it is shorter than N.
# Which piece a rank begins with is your choice. Each rank sends 2 (N - 1) messages of one piece each (N being the
# world size), all of them to rank `(rank + 1) % N`; empty pieces may be sent or left out. Messages are sent point
# to point, and every request is waited for. A single rank sends nothing.
#
# **Not allowed** The collectives of torch.distributed: `broadcast`, `reduce`, `all_reduce`, `gather`, `all_gather`,
# `scatter`, `reduce_scatter`, `all_to_all`.
#
# **Source** Patarasuk and Yuan 2009, "Bandwidth optimal all-reduce algorithms for clusters of workstations",
# Journal of Parallel and Distributed Computing 69 (2).
#
# <details><summary>Hint 1</summary>
#
# Draw it for three ranks: if rank r sends piece r in step 0, which piece arrives at rank r, and which one can it
# send in step 1? Who holds a finished piece after two steps, and which?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# In step s rank r sends piece `(r - s) % N` and receives piece `(r - s - 1) % N`: what it receives in one step, it
# sends in the next. The formula goes on to hold in the second phase; only "add" becomes "copy". `isend` wants
# contiguous memory: work on `flat = tensor.contiguous().view(-1)`. When is that the tensor itself, when a copy?
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# Steps from 0 to below `2 * (N - 1)`, with `pieces = flat.tensor_split(N)`, which are views of `flat`:
# `request = dist.isend(outgoing, following)`, `dist.recv(part, previous)` into a new `part`, `request.wait()`, then
# `incoming += part` in the first N - 1 steps, and `incoming.copy_(part)` after them. At the end
# `tensor.copy_(flat.view(tensor.shape))`, which does no harm if `flat` is the tensor's own memory.
#
# </details>


# %% solution="ring_all_reduce"
def ring_all_reduce(tensor):
    """None; afterwards `tensor` of every rank holds the sum over all ranks, bit for bit the same.

    Each rank sends 2 (N - 1) pieces of 1/N of the tensor to the next rank, and nothing to any other.

    Args:
        tensor: tensor on the CPU, of one shape and dtype in all ranks, contiguous or not; changed in place.
    """
    ### BEGIN SOLUTION
    rank, world_size = dist.get_rank(), dist.get_world_size()
    following, previous = (rank + 1) % world_size, (rank - 1) % world_size
    flat = tensor.contiguous().view(-1)  # the tensor's own memory, if that is contiguous
    pieces = flat.tensor_split(world_size)
    for step in range(2 * (world_size - 1)):
        outgoing, incoming = pieces[(rank - step) % world_size], pieces[(rank - step - 1) % world_size]
        part = torch.empty_like(incoming)
        requests = dist.isend(outgoing, following), dist.irecv(part, previous)
        for request in requests:
            request.wait()
        if step < world_size - 1:
            incoming += part  # reduce-scatter
        else:
            incoming.copy_(part)  # all-gather
    tensor.copy_(flat.view(tensor.shape))
    ### END SOLUTION


# %% test="ring_all_reduce-visible" points=3
check.ring_all_reduce(ring_all_reduce)

# %% test="ring_all_reduce-hidden" points=3
### BEGIN HIDDEN TESTS
check.ring_all_reduce(ring_all_reduce, seed=505)
### END HIDDEN TESTS

# %% [markdown]
# One way to walk the ring, for four ranks; a number is a piece.

# %%
plots.ring(4)

# %% [markdown]
# ### Exercise 13 · Bytes in a ring
#
# Predict what every rank of a ring sends, to the byte. `distributed.counted()` will tell whether you were right.
#
# **Points** 2 · **Difficulty** ●●○ · **Minutes** 15 · **Lines** 3
#
# **Convention** The ring of the exercise before, with the pieces of `torch.tensor_split`: piece i, from 0, has
# `n_elements // world_size` elements, and one more if `i < n_elements % world_size`. Rank r sends piece r first,
# and then in every step the piece that it has received in the step before. A single rank sends 0 bytes. The bytes
# are those of the tensors, without headers, as whole numbers (int).
#
# **Source** Patarasuk and Yuan 2009, for equal pieces: 2 (N - 1) / N of the tensor.
#
# <details><summary>Hint 1</summary>
#
# A rank sends N - 1 of the N pieces in each phase. Which one does it not send in the first phase, and which one in
# the second?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# In the first phase rank r sends the pieces r, r - 1, ..., r - N + 2 (modulo N): all but piece r + 1. The second
# phase goes on from there, with the pieces r + 1, r, ..., r - N + 3: all but r + 2.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# So it is `2 * n_elements - pieces[(r + 1) % N] - pieces[(r + 2) % N]` elements, where `pieces` is the list of
# lengths.
#
# </details>


# %% solution="ring_bytes"
def ring_bytes(n_elements, element_size, world_size):
    """Bytes that each rank sends in one ring all-reduce, a list of `world_size` whole numbers.

    Args:
        n_elements: elements of the tensor, 0 or more.
        element_size: bytes of an element.
        world_size: number of ranks, 1 or more.
    """
    ### BEGIN SOLUTION
    pieces = [n_elements // world_size + (i < n_elements % world_size) for i in range(world_size)]
    not_sent = [pieces[(r + 1) % world_size] + pieces[(r + 2) % world_size] for r in range(world_size)]  # one a phase
    return [element_size * (2 * n_elements - n) for n in not_sent]
    ### END SOLUTION


# %% test="ring_bytes-visible" points=1
check.ring_bytes(ring_bytes)

# %% test="ring_bytes-hidden" points=1
### BEGIN HIDDEN TESTS
check.ring_bytes(ring_bytes, seed=616)
### END HIDDEN TESTS

# %% [markdown]
# ### Exercise 14 · Which is fastest when?
#
# Put a price on a message, and predict how long an all-reduce takes in each of the three ways.
#
# **Points** 3 · **Difficulty** ●●○ · **Minutes** 15 · **Lines** 7
#
# **Convention** A message of b bytes takes `latency + b / bandwidth` seconds, between any two ranks. A rank sends
# at most one message at a time and receives at most one at a time; it can do both at once. Messages that different
# ranks send to different ranks at the same time do not slow each other down. Adding takes no time. "naive" is the
# time of `reduce_naive` and then `broadcast_naive`, "tree" that of `reduce_tree` and then `broadcast_tree`, "ring"
# that of `ring_all_reduce` with pieces of exactly `n_bytes / world_size` bytes, also where that is a fraction; in
# each step of the ring a rank waits for its message before it starts the next. A single rank takes 0 seconds.
#
# **Source** The model and the tree: Thakur, Rabenseifner and Gropp 2005, section 3 (they call latency alpha,
# seconds a byte beta). The ring: Patarasuk and Yuan 2009.
#
# <details><summary>Hint 1</summary>
#
# How many messages come one after the other in each of the three, and how long is one of them? How many there are
# altogether does not matter.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# One after the other: `2 * (N - 1)` whole tensors; twice the depth of the tree, whole tensors; `2 * (N - 1)`
# pieces. The depth is log2(N) rounded up, `math.ceil(math.log2(N))`.
#
# </details>


# %% solution="all_reduce_seconds"
def all_reduce_seconds(n_bytes, world_size, latency, bandwidth):
    """Predicted seconds of one all-reduce, a dict with the keys "naive", "tree" and "ring" and floats as values.

    Args:
        n_bytes: bytes of the tensor, 0 or more.
        world_size: number of ranks, 1 or more.
        latency: seconds that a message takes, however short.
        bandwidth: bytes a second.
    """
    ### BEGIN SOLUTION
    whole, piece = (latency + n / bandwidth for n in (n_bytes, n_bytes / world_size))
    depth = math.ceil(math.log2(world_size))
    return {"naive": 2 * (world_size - 1) * whole, "tree": 2 * depth * whole, "ring": 2 * (world_size - 1) * piece}
    ### END SOLUTION


# %% test="all_reduce_seconds-visible" points=1
check.all_reduce_seconds(all_reduce_seconds)

# %% test="all_reduce_seconds-hidden" points=2
### BEGIN HIDDEN TESTS
check.all_reduce_seconds(all_reduce_seconds, seed=727)
### END HIDDEN TESTS

# %% [markdown]
# Compare the formulas before you measure. A tree has few messages, each as long as the tensor; a ring has many,
# each short. For a small tensor the latency is all that counts, and the tree is ahead; for a large one the bytes
# are, and the ring takes 2 (N - 1) / N times the time of one message, whatever N is, where the tree takes 2 log2(N)
# times.

# %% [markdown]
# ### Counted by the kernel
#
# Predict: four ranks all-reduce a tensor of 4 MB. How many times its size does each rank send?

# %%
predicted_share = None  # a factor


# %% tags=["experiment"]
def sent_share(rank, world_size, all_reduce):
    """Bytes sent through this rank's connections over bytes of the tensor: asked of the operating system."""
    x = torch.ones(1_000_000)
    dist.barrier()
    before = distributed.wire_bytes()
    all_reduce(x)
    after = distributed.wire_bytes()
    dist.barrier()
    return (after - before) / x.nbytes if before is not None else float("nan")


ring_all_reduce_now = course.solved(check.ring_all_reduce)
for n in (2, 3, 4):
    theirs = max(run_ranks(sent_share, n, dist.all_reduce, backend="gloo"))
    ours = max(run_ranks(sent_share, n, ring_all_reduce_now, backend="gloo"))
    print(f"{n} ranks: gloo sends {theirs:.3f}, the ring by hand {ours:.3f}, 2(N-1)/N = {2 * (n - 1) / n:.3f}"
          + told(predicted_share) * (n == 4))  # fmt: skip

# %% [markdown]
# These are bytes that Linux has counted in the TCP connections of each process, headers of gloo included. The
# library does what you wrote. The share grows towards 2 and no further: the time for the bytes hardly depends on
# the number of ranks. The number of messages does, 2(N - 1) for each rank, and so does the waiting.
#
# ### Bandwidth against size


# %% tags=["experiment"]
def collectives(rank, world_size, variants, sizes, rounds):
    """Seconds (rounds, variants, sizes) of all-reduces of tensors of `sizes` bytes."""
    torch.set_num_threads(1)
    tensors = [torch.ones(n // 4) for n in sizes]
    return torch.stack(
        [distributed.timed_rounds([lambda f=f, x=x: f(x) for f in variants], rounds) for x in tensors], 2
    )


by_hand = [
    course.solved(e) for e in (check.reduce_naive, check.broadcast_naive, check.reduce_tree, check.broadcast_tree)
]
reduce_naive_now, broadcast_naive_now, reduce_tree_now, broadcast_tree_now = by_hand
variants = {
    "gloo": dist.all_reduce,
    "ring by hand": ring_all_reduce_now,
    "trees by hand": lambda x: (reduce_tree_now(x, 0), broadcast_tree_now(x, 0)),
    "naive": lambda x: (reduce_naive_now(x, 0), broadcast_naive_now(x, 0)),
}
arguments = list(variants.values()), sizes.bytes, sizes.rounds
all_reduces = run_ranks(collectives, 4, *arguments, backend="gloo", timeout=300)[0]
curves = {name: all_reduces[:, i].T for i, name in enumerate(variants)}
largest = all_reduces[:, :, -1].median(0).values
print(", ".join(f"{name} {t / largest[0]:.1f}" for name, t in zip(variants, largest.tolist(), strict=True))
      + f": time for {sizes.bytes[-1]:,} bytes, over that of gloo")  # fmt: skip
plots.bandwidth(sizes.bytes, curves, f"all-reduce, 4 ranks on {loaders.cores()} cores")

# %% [markdown]
# On the left it is not bytes that count, but how often processes have to be woken: in a ring all four ranks take
# part in each of six steps, 24 messages in all, where the naive way and the trees send six. And the four share two
# cores, so that hardly anything happens at the same time, which is what trees and rings live on: here a tree wins
# nothing over the plain way. On the right the bytes begin to count, and the ring of the library comes first.
# `all_reduce_seconds` assumed a wire for each pair and a core for each rank: a model is as good as its assumptions.
# On a machine with a core a rank, or over a network, run this cell again.

# %% [markdown]
# ## Who gets which sample
#
# **Every rank draws the same permutation and takes its own places of it; no message is needed for that.**
#
# In an epoch every sample is to be used once, by one of the ranks. Nobody hands out samples: ranks with the same
# seed draw the same permutation, and each takes every `world_size`-th place of it, beginning with its own rank. A
# rank needs to know three numbers: how many items there are, how many ranks, and which of them it is.
#
# You may have seen it explained in another way: the data set cut into contiguous blocks, one a rank, and each rank
# choosing from its block at random. The guide to distributed training of Lambda Labs draws it like that. It is not
# what torch does, and the difference can be seen: a rank's samples come from the whole data set, and in the next
# epoch they are others. With blocks, a data set that is sorted by class would show each rank some classes only, for
# ever.
#
# All ranks must get equally many samples, because each step waits for all of them: a rank that has one batch more
# than the others waits in it for ever. So either some samples are used twice (padding, the default) or some are
# left out (`drop_last`). In training neither hurts. In evaluation padding counts some samples twice; we come back
# to that.
#
# Nothing tells the sampler that an epoch is over. The permutation is drawn from `seed + epoch`, and `epoch` changes
# only when the training loop calls `set_epoch`. Where the call is forgotten, every epoch has the same order and so
# the same batches. No error comes, and the loss falls all the same; look for the call in every loop that you read.

# %% [markdown]
# ### Exercise 15 · The shard of a rank
#
# Write the sampler by hand. Its lists must be those of `torch.utils.data.DistributedSampler`, in every case.
#
# **Points** 4 · **Difficulty** ●●○ · **Minutes** 20 · **Lines** 12
#
# **Convention** It takes the number of items, not the dataset. Ranks and epochs count from 0. The order of an epoch
# is 0, 1, 2, ... or, with `shuffle`, `torch.randperm(n_items, generator=rng)`, where `rng` is a `torch.Generator`
# of the CPU seeded with `seed + epoch`. Its length is then made a multiple of `world_size`, at the smallest cost:
# without `drop_last` the order is repeated behind its end, from its start, and several times if need be (2 items on
# 5 ranks are 0 1 0 1 0); with `drop_last` its last places are left out. Rank r takes the places r, r +
# `world_size`, r + 2 `world_size` and so on. Indices are of type int. The length of the sampler is the number of
# indices of a rank, the same for all ranks; no items, or fewer than ranks with `drop_last`, give length 0. The
# epoch is 0 until `set_epoch` is called. Two iterations in the same epoch give the same order. Torch's global
# random numbers are neither used nor changed. A rank outside of 0 to `world_size` - 1 is a ValueError. It is a
# `Sampler`, and does not inherit from `DistributedSampler`.
#
# **Not allowed** `torch.utils.data.DistributedSampler`, inherited from or asked for its lists.
#
# **Source** PyTorch documentation of `torch.utils.data.distributed.DistributedSampler`. (Lambda Labs, "Distributed
# training guide", chapter 2, shows blocks and random choice; you will see that it is a permutation and strides.)
#
# <details><summary>Hint 1</summary>
#
# What must all ranks have in common so that no sample is drawn by two of them? And what happens to that if the seed
# holds the rank?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# The length comes first: `n_items` divided by `world_size`, rounded down with `drop_last`, else up. The length
# times `world_size` is how many places the order has after padding or cutting. Draw the order in `__iter__`, with a
# generator that is made there: then it depends on `seed` and `epoch` alone.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# `itertools.cycle(order)` repeats from the start for ever, and `itertools.islice(it, start, stop, step)` takes
# places of it. With `stop = len(self) * self.world_size` this pads, and cuts too.
#
# </details>


# %% solution="ShardSampler"
class ShardSampler(Sampler):
    """The indices that one rank uses in an epoch, as an iterable of int.

    Args:
        n_items: length of the dataset, 0 or more.
        world_size: number of ranks.
        rank: which of them this is, from 0 to world_size - 1.
        shuffle: whether the order is a permutation drawn from `seed` + epoch; else it is 0, 1, 2, ...
        seed: int, the same on all ranks.
        drop_last: leave out the last places, instead of repeating the first ones, to give all ranks equally many.

    Raises: ValueError if there is no such rank.
    """

    def __init__(self, n_items, world_size, rank, shuffle=True, seed=0, drop_last=False):
        ### BEGIN SOLUTION
        if not 0 <= rank < world_size:
            raise ValueError(f"ranks go from 0 to {world_size - 1}, found {rank}; pass the rank of this process.")
        self.n_items, self.world_size, self.rank = n_items, world_size, rank
        self.shuffle, self.seed, self.drop_last, self.epoch = shuffle, seed, drop_last, 0
        ### END SOLUTION

    def __len__(self):
        """The number of indices of a rank, an int, the same for every rank."""
        ### BEGIN SOLUTION
        share = self.n_items / self.world_size
        return math.floor(share) if self.drop_last else math.ceil(share)
        ### END SOLUTION

    def __iter__(self):
        """An iterator over this rank's indices in the current epoch."""
        ### BEGIN SOLUTION
        order = range(self.n_items)
        if self.shuffle:
            rng = torch.Generator().manual_seed(self.seed + self.epoch)
            order = torch.randperm(self.n_items, generator=rng).tolist()
        return itertools.islice(itertools.cycle(order), self.rank, len(self) * self.world_size, self.world_size)
        ### END SOLUTION

    def set_epoch(self, epoch):
        """None; iterations that begin from now on are those of epoch number `epoch`, an int from 0."""
        ### BEGIN SOLUTION
        self.epoch = epoch
        ### END SOLUTION


# %% test="ShardSampler-visible" points=2
check.ShardSampler(ShardSampler)

# %% test="ShardSampler-hidden" points=2
### BEGIN HIDDEN TESTS
check.ShardSampler(ShardSampler, seed=283)
### END HIDDEN TESTS

# %% [markdown]
# # Part 3: DistributedDataParallel, three times
#
# What `DistributedDataParallel` sends is known before it runs: at construction the weights, in every step the
# gradients, once. Predict for two ranks and this model: how many megabytes does each rank send in a step?

# %%
predicted_megabytes = None


# %% tags=["experiment"]
def ddp_traffic(rank, world_size):
    torch.manual_seed(rank)
    with distributed.counted() as traffic:
        model = nn.parallel.DistributedDataParallel(FashionCNN(dropout=0.0, norm=None))
        made = list(traffic)
        model(torch.randn(8, 1, 28, 28)).sum().backward()
        first = list(traffic[len(made) :])
        before = distributed.wire_bytes() or math.nan
        done = len(traffic)
        model(torch.randn(8, 1, 28, 28)).sum().backward()
        dist.barrier()
        sent = (distributed.wire_bytes() or math.nan) - before
    return made, first, traffic[done:-1], sent


made, first, second, sent = run_ranks(ddp_traffic, 2, backend="gloo")[0]
print("at construction:", made)
print("first backward: ", first)
print("second backward:", second)
print(f"sent by rank 0 in the second step: {sent / 1e6:.2f} MB" + told(predicted_megabytes))

# %% [markdown]
# One all-reduce a *bucket*, not one in all, and not one a tensor. The first backward shows one bucket: torch first
# learns in which order gradients arrive, then plans again, tells the plan to all (the two short broadcasts, once),
# and from the second step on there are more. The other short messages compare the shapes of the models. Nothing is
# sent by `optimizer.step()`, though some texts say so: when `backward` returns, the gradients are equal everywhere.

# %% [markdown]
# ## Replicas that stay equal
#
# **Equal weights and equal gradients give equal weights: one broadcast at the start and one average per step are
# all that data parallel training needs.**
#
# Each rank holds a whole copy of the model, a *replica*, and computes with its own part of the batch. Nothing ties
# the copies together but arithmetic. If they start with the same weights, and every optimizer takes its step with
# the same gradients, they are the same after the step, to the last bit. So weights need never be sent again. The
# optimizer is not told about any of it: momentum and other state are equal for the same reason.
#
# The gradient of a mean over the whole batch is the mean of the gradients of its parts, if the parts are equally
# large. A loss is mostly such a mean. An all-reduce, however, gives the *sum* over all ranks unless it is asked for
# something else. Who forgets to divide trains with a learning rate that is `world_size` times too large, which a
# small model may well survive without a word.
#
# Three things break the equality. Weights that are drawn on each rank from a seed of its own: they are sent from
# rank 0 when the wrapper is made, and so are *buffers*, the tensors that belong to the model and are not trained
# (running means, tables, masks). Weights that are *tied*, one parameter under two names: it is sent once, not once
# a name. And parameters that some rank did not use in a step: there `grad` is None on this rank and a tensor on
# another. A rank that leaves out an all-reduce does not skip it for the others: its next call, for another
# parameter, is taken for the one that they wait for. All ranks must make the same calls in the same order.

# %% [markdown]
# ### Exercise 16 · The naive version
#
# Write the wrapper with two plain loops: one broadcast per tensor when it is made, one all-reduce per parameter
# after backward. The training loop has to call it: `loss.backward()`, `model.average_gradients()`,
# `optimizer.step()`.
#
# **Points** 4 · **Difficulty** ●●○ · **Minutes** 20 · **Lines** 11
#
# **Convention** `wrapper.module` is the module that was given. The constructor gives all its parameters, frozen
# ones too, and all its buffers, those with `persistent=False` too, the values of rank 0, in place; after that
# nothing but gradients is ever sent. The call of the wrapper is that of the module, with all its arguments. After
# `average_gradients()` the `grad` of each trainable parameter is the mean over all ranks of what `grad` was,
# whether it came from one backward or has piled up over several: one `all_reduce` for each of them and nothing
# else, a tied parameter counting once. Trainable is what has `requires_grad` when `average_gradients` is called;
# the `grad` of all others stays None. Where `grad` is None on some ranks, it counts as zeros there, so that all
# ranks make the same calls; where it is None on all of them, it is zeros afterwards. (PyTorch's own wrapper with
# `find_unused_parameters=True` does the same, but leaves a gradient that no rank has at None; to know that costs
# one more message.) Parameters and gradients are contiguous and dense.
#
# **Not allowed** `torch.nn.parallel.DistributedDataParallel`, also as a base class.
#
# **Source** Li et al. 2020, "PyTorch Distributed: Experiences on Accelerating Data Parallel Training", VLDB 13(12),
# arXiv:2006.15704, section 3.2.1; Goyal et al. 2017, "Accurate, Large Minibatch SGD", arXiv:1706.02677, section 3
# (what is averaged over what).
#
# <details><summary>Hint 1</summary>
#
# What does the rank with `grad` None do while the others wait in `all_reduce`?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `module.parameters()` gives a tied parameter once, `module.buffers()` every buffer; `module.state_dict()` gives
# tied parameters twice and leaves some buffers out. `tensor.detach()` shares its memory with the parameter, and
# autograd has nothing against writing into it.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# For every parameter with `requires_grad`: if its `grad` is None, set it to `torch.zeros_like(p)`; then
# `dist.all_reduce(p.grad)`, which sums in place, and `p.grad /= dist.get_world_size()`.
#
# </details>


# %% solution="NaiveDDP"
class NaiveDDP(nn.Module):
    """A module whose replicas stay equal: gradients are averaged over all ranks, one parameter after the other.

    Args:
        module: nn.Module, of the same architecture on every rank; it is wrapped, not copied.

    `module` is the module, from now on with the parameters and buffers of rank 0.
    """

    def __init__(self, module):
        ### BEGIN SOLUTION
        super().__init__()
        self.module = module
        for tensor in itertools.chain(module.parameters(), module.buffers()):
            dist.broadcast(tensor.detach(), src=0)
        ### END SOLUTION

    def forward(self, *args, **kwargs):
        """What the module returns for these arguments."""
        ### BEGIN SOLUTION
        return self.module(*args, **kwargs)
        ### END SOLUTION

    def average_gradients(self):
        """None; the `grad` of each trainable parameter becomes its mean over all ranks, None counting as zeros."""
        ### BEGIN SOLUTION
        for p in self.module.parameters():
            if p.requires_grad:
                if p.grad is None:
                    p.grad = torch.zeros_like(p)
                dist.all_reduce(p.grad)
                p.grad /= dist.get_world_size()
        ### END SOLUTION


# %% test="NaiveDDP-visible" points=2
check.NaiveDDP(NaiveDDP)

# %% test="NaiveDDP-hidden" points=2
### BEGIN HIDDEN TESTS
check.NaiveDDP(NaiveDDP, seed=2006)
### END HIDDEN TESTS

# %% [markdown]
# ## Averaging while backward runs
#
# **The gradient of the last layer is finished long before that of the first: sent at once, it travels while the
# rest is still being computed.**
#
# The naive version wastes time twice. It sends nothing while backward runs, and computes nothing while it sends.
# And it sends many small messages: each all-reduce costs some fixed time, however little is in it, and most
# parameters of a network are small (a bias has a few hundred bytes).
#
# Backward begins at the loss, so gradients come in about the reverse of the order in which the layers were used,
# which is mostly the order in which they were registered. PyTorch's wrapper therefore cuts the parameters, last one
# first, into *buckets* of some size. As soon as the last gradient of a bucket is there, it starts one all-reduce
# for the whole bucket and does not wait for it: backward goes on meanwhile. At the end it waits for all of them.
# Large buckets cost less per byte, small ones start earlier: the size is a compromise. PyTorch takes 1 MiB for the
# first bucket and 25 MiB for the others; a model of 1.5 million parameters, 6 MB, would hardly be cut by that, so
# our default is 1 MiB.
#
# How does the wrapper learn that a gradient is there? `p.register_post_accumulate_grad_hook(f)` calls `f(p)`, with
# the *parameter*, each time that a backward has added to `p.grad`, once per backward, also if `p` was used several
# times. And how does it learn that backward ends? From inside such a hook,
# `torch.autograd.Variable._execution_engine.queue_callback(f)` has `f()` called once, at the end of the backward
# that is running. The underscore says that it is not public; FSDP, which is part of PyTorch, uses it for the same
# purpose.
#
# Buckets that are full may still have to wait. If one rank launches bucket 1 before bucket 0, as it may when
# branches of a model come in another order there, gradients of different parameters are added up. So every rank
# launches bucket 0 first, then bucket 1, and so on, whatever is ready.

# %% [markdown]
# ### Exercise 17 · Cut the parameters into buckets
#
# Say which parameters travel together.
#
# **Points** 2 · **Difficulty** ●○○ · **Minutes** 10 · **Lines** 7
#
# **Convention** A parameter is named by its place in `sizes`, the order of registration, from 0. Go through them
# from the last to the first. The current bucket is filled until the next parameter would make its sum exceed `cap`
# bytes; that one opens a new bucket (a sum of exactly `cap` is allowed). Earlier buckets are not looked at again,
# even if there is room. A parameter larger than `cap` has a bucket of its own. Buckets, and the parameters in each,
# stand in the order in which they were filled. No bucket is empty; no parameters, no buckets. `sizes` stays as it
# is. (PyTorch closes a bucket once it has reached its cap, so that it may hold more.)
#
# **Source** Li et al. 2020, arXiv:2006.15704, section 3.2.2 (buckets in reverse order of registration).
#
# <details><summary>Hint 1</summary>
#
# Which single number must you carry from one parameter to the next to know whether it still fits?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Keep the room that is left, in bytes. Where a size exceeds it, append an empty list to the buckets and set the
# room to `cap`; then append the index to the last bucket and subtract. With a room of 0 at the start, the first
# parameter opens the first bucket. What happens to the room behind a parameter larger than `cap`?
#
# </details>


# %% solution="plan_buckets"
def plan_buckets(sizes, cap):
    """Which gradients are sent together: a list of buckets, the first to be sent first.

    Args:
        sizes: list of int, bytes of each parameter in the order of registration, each at least 1.
        cap: int, at least 1; bytes that a bucket of several parameters may hold.

    Returns: list of lists of int, places in `sizes`, each place once, from the last to the first.
    """
    ### BEGIN SOLUTION
    buckets, room = [], 0
    for i in reversed(range(len(sizes))):
        if sizes[i] > room:
            buckets.append([])
            room = cap
        buckets[-1].append(i)
        room -= sizes[i]
    return buckets
    ### END SOLUTION


# %% test="plan_buckets-visible" points=1
check.plan_buckets(plan_buckets)

# %% test="plan_buckets-hidden" points=1
### BEGIN HIDDEN TESTS
check.plan_buckets(plan_buckets, seed=25)
### END HIDDEN TESTS

# %% [markdown]
# ### Exercise 18 · The overlapped version
#
# Now the wrapper whose training loop looks like that of one process: `loss.backward()` leaves the averaged
# gradients behind, sent in buckets while it ran. Inside of `with model.no_sync():` a backward sends nothing, so
# that the gradients of several small batches pile up on each rank and are sent once.
#
# **Points** 6 · **Difficulty** ●●● · **Minutes** 60 · **Lines** 42
#
# **Convention** Constructor and call are as in the naive version. Trainable is what has `requires_grad` when the
# wrapper is made: one parameter or more, all of one dtype and on one device. Buckets are those of the exercise
# before, made once, with `bucket_bytes` as the cap, from the trainable parameters in the order of
# `module.parameters()`, `p.nbytes` each. A backward outside of `no_sync()` makes one `dist.all_reduce` for each
# bucket, of exactly the bytes of its gradients, and nothing else. A bucket is launched, with `async_op=True`, as
# soon as its last gradient is there and the buckets before it are launched, on every rank in the same order. When
# `backward()` returns, also if another rank was late, the `grad` of every trainable parameter is the mean over all
# ranks of what it would be without the wrapper, whatever it held before; a `grad` that is None counts as zeros, and
# if it is None on all ranks, it is zeros afterwards. The `grad` of others stays None. Every rank uses at least one
# trainable parameter in each backward. `no_sync()` counts where `backward()` is called, wherever forward was
# (PyTorch's own wants both inside); it may be nested, and an exception that leaves it leaves no trace. (What comes
# of the wrapper after a backward that raised outside of it is left open; PyTorch's can go on.) A backward after it
# sends the sum of all that has piled up. Whether `zero_grad` sets gradients to None or to zero makes no difference.
# Several wrappers in one process, even in one backward, do not meet. Only the result and the calls are checked:
# methods beyond `forward` and `no_sync` are yours to change.
#
# It should be fast as well. A gradient that is copied into a flat buffer, and back after the all-reduce, is moved
# twice: let `p.grad` be a *view* of the buffer, and the way back costs nothing. With `set_to_none=True`, the
# default, `zero_grad` drops the views; then autograd puts a new tensor there, and a copy is due again.
#
# **Not allowed** `torch.nn.parallel.DistributedDataParallel`, also as a base class.
#
# **Source** Li et al. 2020, arXiv:2006.15704, sections 3.2.2 to 3.2.4 and 3.3.
#
# <details><summary>Hint 1</summary>
#
# Which gradients of a bucket can be missing when backward ends, and who launches that bucket then? And which hook
# call is the one that should queue the callback?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# For each bucket keep the flat buffer and one view per parameter: `flat.split([p.numel() for p in group])`, each
# part `.view_as(p)`. Keep two states during a backward: how many gradients are missing in each bucket, and the list
# of works that `all_reduce` returned; the number of works is the number of the next bucket. Both are made anew for
# each backward.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# `arrived` returns at once under `no_sync`. The first call of a backward finds `self.missing` None, counts the
# members of each bucket and queues `self.finish`. Every call subtracts 1 for its bucket, then launches while the
# next bucket in turn misses nothing. `launch` writes each gradient into its view, `torch.div(p.grad, world_size,
# out=view)` (right also if `p.grad` is this view) or zeros for None, and sets `p.grad = view`. `finish` launches
# what is left, waits for all works and forgets both states. `no_sync` remembers `self.sending`, sets it to False,
# and puts it back in a `finally`.
#
# </details>


# %% solution="OverlappedDDP"
class OverlappedDDP(nn.Module):
    """A module whose gradients are averaged over all ranks during backward, in buckets.

    Args:
        module: nn.Module, of the same architecture on every rank; it is wrapped, not copied.
        bucket_bytes: int, bytes that a bucket of several gradients may hold, 1 MiB by default.

    `module` is the module, from now on with the parameters and buffers of rank 0.
    """

    def __init__(self, module, bucket_bytes=2**20):
        ### BEGIN SOLUTION
        super().__init__()
        self.module, self.sending = module, True
        self.missing, self.works = None, []  # of the backward that runs: gradients that each bucket misses, all-reduces
        for tensor in itertools.chain(module.parameters(), module.buffers()):
            dist.broadcast(tensor.detach(), src=0)
        groups, room = [], bucket_bytes
        for p in reversed([p for p in module.parameters() if p.requires_grad]):
            if not groups or p.nbytes > room:
                groups.append([])
                room = bucket_bytes
            groups[-1].append(p)
            room -= p.nbytes
        self.buckets = []  # (flat buffer, [(parameter, its view of the buffer)])
        for k, group in enumerate(groups):
            flat = torch.cat([p.detach().flatten() for p in group])
            parts = iter(flat.split([p.numel() for p in group]))
            self.buckets.append((flat, [(p, next(parts).view_as(p)) for p in group]))
            for p in group:
                p.register_post_accumulate_grad_hook(lambda p, k=k: self.arrived(k))
        ### END SOLUTION

    def forward(self, *args, **kwargs):
        """What the module returns for these arguments."""
        ### BEGIN SOLUTION
        return self.module(*args, **kwargs)
        ### END SOLUTION

    def arrived(self, k):
        """None; called by a hook for each gradient that backward has finished, one of bucket `k`."""
        ### BEGIN SOLUTION
        if not self.sending:
            return
        if self.missing is None:  # the first gradient of this backward
            self.missing = [len(members) for _, members in self.buckets]
            torch.autograd.Variable._execution_engine.queue_callback(self.finish)
        self.missing[k] -= 1
        while len(self.works) < len(self.buckets) and not self.missing[len(self.works)]:
            self.launch()
        ### END SOLUTION

    def launch(self):
        """None; the gradients of the next bucket lie in its buffer, which is on its way."""
        ### BEGIN SOLUTION
        flat, members = self.buckets[len(self.works)]
        for p, view in members:
            if p.grad is None:
                view.zero_()
            else:
                torch.div(p.grad, dist.get_world_size(), out=view)
            p.grad = view
        self.works.append(dist.all_reduce(flat, async_op=True))
        ### END SOLUTION

    def finish(self):
        """None; called at the end of backward: every bucket has been sent and has come back."""
        ### BEGIN SOLUTION
        while len(self.works) < len(self.buckets):
            self.launch()
        for work in self.works:
            work.wait()
        self.missing, self.works = None, []
        ### END SOLUTION

    @contextlib.contextmanager
    def no_sync(self):
        """A context in which backward sends nothing; how the block is left makes no difference."""
        ### BEGIN SOLUTION
        before, self.sending = self.sending, False
        try:
            yield
        finally:
            self.sending = before
        ### END SOLUTION


# %% test="OverlappedDDP-visible" points=3
check.OverlappedDDP(OverlappedDDP)

# %% test="OverlappedDDP-hidden" points=3
### BEGIN HIDDEN TESTS
check.OverlappedDDP(OverlappedDDP, seed=13)
### END HIDDEN TESTS

# %% [markdown]
# ## A bug in the wild
#
# **Replicas that drift apart still train: the loss falls, no error is raised, and only a look at the weights of two
# ranks shows it.**
#
# A public teaching code for parallel training (picotron, by Hugging Face) has a naive data parallel class, kept, as
# it says, for explanation and not for use. Its idea is short: every parameter gets a hook that averages its
# gradient over all ranks the moment it is there, and nothing else is needed. The function below is that hook,
# rebuilt in our own lines. To find the fault, read once more what such a hook is given. (The class has a second
# one, which the checks above asked you about: its `no_sync` has no `finally`.)


# %% locked="published_hook"
def published_hook(gradient):
    """A hook that is to average a gradient over all ranks, as found in the wild.  Do not use it."""
    dist.all_reduce(gradient)
    gradient.div_(dist.get_world_size())


# %% [markdown]
# Here it is at work on two ranks, each of which has one number to fit: 1 on rank 0, 5 on rank 1. Both start with
# the weight 0, so that the mean of their gradients leads both to 3. What do you expect in the column "after
# backward"?


# %% tags=["experiment"]
def weights_of(rank, world_size, hook):
    """The weight of this rank before backward, after backward and after the step, for each of four SGD steps."""
    weight = nn.Parameter(torch.zeros(1))
    weight.register_post_accumulate_grad_hook(hook)
    optimizer = torch.optim.SGD([weight], lr=0.25)
    rows = []
    for _ in range(4):
        optimizer.zero_grad()
        row = [weight.item()]
        (weight - (1 + 4 * rank)).square().sum().backward()
        row.append(weight.item())
        optimizer.step()
        rows.append([*row, weight.item()])
    return rows


def show_weights(hook):
    """None; prints what `weights_of` found on two ranks."""
    print("step  rank  before backward  after backward  after step")
    for step, ranks in enumerate(zip(*run_ranks(weights_of, 2, hook, backend="gloo"), strict=True)):
        for rank, (before, after, stepped) in enumerate(ranks):
            print(f"{step:4}  {rank:4}  {before:15.3f}  {after:14.3f}  {stepped:10.3f}")


show_weights(published_hook)

# %% [markdown]
# The weights change *before* the optimizer's step: backward must not touch them, and here it does. The hook is
# given the parameter, takes it for the gradient, and averages the weights. The gradient itself is never sent: after
# each step every rank stands somewhere else, and the next backward pulls them together again. On average the ranks
# do go towards 3, so the loss falls; but each gradient was computed at other weights than those that it is
# subtracted from, the optimizers' momentum differs, and what is saved at the end is the model of one rank.

# %% [markdown]
# ### Exercise 19 · Mend the hook
#
# Write the hook so that it does what it was meant to do.
#
# **Points** 2 · **Difficulty** ●○○ · **Minutes** 5 · **Lines** 2
#
# **Convention** Used as `p.register_post_accumulate_grad_hook(average_hook)` on every trainable parameter of
# replicas that are equal, where each rank uses the same parameters in the same order. After `backward()` each
# `grad` is the mean over all ranks of what it would be without the hook, whatever it held before; the parameters
# are untouched. One `all_reduce` per call and nothing else; returns None.
#
# **Source** github.com/huggingface/picotron, class `DataParallelNaive`, since commit d0efdcc of February 2025
# (before, it used `register_hook`, whose argument is the gradient); PyTorch's documentation of
# `Tensor.register_post_accumulate_grad_hook`.
#
# <details><summary>Hint 1</summary>
#
# What has an optimizer to do with a hook that averages gradients, and which of the two may change `parameter`?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# The gradient is `parameter.grad`, and it is already there: "post accumulate". Sum it over the ranks in place, then
# divide it in place.
#
# </details>


# %% solution="average_hook"
def average_hook(parameter):
    """None; `parameter.grad` becomes its mean over all ranks.

    Args:
        parameter: a leaf tensor whose gradient has just been added to `parameter.grad`; it stays as it is.
    """
    ### BEGIN SOLUTION
    dist.all_reduce(parameter.grad)
    parameter.grad /= dist.get_world_size()
    ### END SOLUTION


# %% test="average_hook-visible" points=1
check.average_hook(average_hook)

# %% test="average_hook-hidden" points=1
### BEGIN HIDDEN TESTS
check.average_hook(average_hook, seed=58)
### END HIDDEN TESTS

# %% [markdown]
# The same experiment with your hook: equal weights in every row, the same before and after backward, on the way to
# 3.

# %% tags=["experiment"]
show_weights(course.solved(check.average_hook))

# %% [markdown]
# ### What each of them is worth
#
# Two ranks, the same model and batch, four ways to average the gradients, in one run and in turn. *Flat* stands
# between naive and overlapped: all gradients in one buffer, sent when backward is over.

# %%
predicted_naive = None  # step time of NaiveDDP over that of torch's DDP


# %% tags=["experiment"]
class FlatDDP(nn.Module):
    """One all-reduce after backward: bucketed as far as can be, overlapped not at all."""

    def __init__(self, module):
        super().__init__()
        self.module, self.parts = module, list(module.parameters())

    def forward(self, x):
        return self.module(x)

    def average_gradients(self):
        flat = torch.cat([p.grad.flatten() for p in self.parts])
        dist.all_reduce(flat)
        flat /= dist.get_world_size()
        for p, part in zip(self.parts, flat.split([p.numel() for p in self.parts]), strict=True):
            p.grad.copy_(part.view_as(p))


def train_step(model, batch, lr=0.01):
    """A function without arguments that does one step of SGD with `model`, whatever wrapper it is in."""
    images, labels = batch
    optimizer = torch.optim.SGD(model.parameters(), lr)

    def step():
        optimizer.zero_grad()
        F.cross_entropy(model(images), labels).backward()
        getattr(model, "average_gradients", lambda: None)()
        optimizer.step()

    return step


def step_seconds(rank, world_size, wrappers, batch, rounds):
    """Seconds (rounds, wrappers) of a step on a device of this rank's own, or on one core."""
    device = torch.device("cuda", rank) if dist.get_backend() == "nccl" else torch.device("cpu")
    torch.set_num_threads(1)
    batch = [t.to(device) for t in batch]
    models = [wrap(FashionCNN(dropout=0.0, norm=None).to(device)) for wrap in wrappers]
    return distributed.timed_rounds([train_step(model, batch) for model in models], rounds)


wrappers = {
    "naive": course.solved(check.NaiveDDP),
    "flat": FlatDDP,
    "overlapped": course.solved(check.OverlappedDDP),
    "torch": nn.parallel.DistributedDataParallel,
}
batch = images[: sizes.batch_size], labels[: sizes.batch_size]
ddp_seconds = run_ranks(step_seconds, 2, list(wrappers.values()), batch, 3 * sizes.rounds, timeout=300)[0]
ratio = (ddp_seconds[:, 0] / ddp_seconds[:, -1]).median().item()
print(f"naive: {ratio:.2f} of the step time of torch's DDP" + told(predicted_naive))
print(course.machine())
plots.step_ratios(list(wrappers), ddp_seconds, f"one step, 2 ranks, batch {sizes.batch_size} each")

# %% [markdown]
# A dot is one pair of steps. The naive version is slower: it waits for a message for each tensor, one after the
# other. The other three cannot be told apart here. That is no surprise: overlap needs somebody who sends while you
# compute. On GPUs that is the network card and a few multiprocessors; here the core that sends is the core that
# computes. What the overlapped version costs in bookkeeping, on the other hand, would show: it costs nothing that
# could be seen.

# %% [markdown]
# ## Fewer messages: accumulate, then send
#
# **Gradients of several micro-batches can be added up before they are sent: one message and one update for all of
# them, if somebody tells DDP to wait.**
#
# A *micro-batch* is what goes through the model at once. `backward()` adds to `grad`, so the gradients of several
# micro-batches, each weighted with its share of the samples, add up to that of one large batch. On one process this
# saves memory. On many it can also save messages, because what is not used yet need not be sent. DDP cannot know
# that: in every backward pass it averages the gradients over the ranks. Inside its `no_sync()` it only adds them
# up, and the first backward pass after it sends the sum.
#
# DDP decides at the *forward* pass whether the backward pass that belongs to it will send. So both stand inside of
# `no_sync()`, or neither does: with PyTorch's wrapper, where forward decides, unlike in yours.
#
# First the plan: after which micro-batches does the optimizer step?

# %% [markdown]
# ### Exercise 20 · When the optimizer steps
#
# Say for each micro-batch of an epoch whether an update follows it.
#
# **Points** 2 · **Difficulty** ●○○ · **Minutes** 5 · **Lines** 1
#
# **Convention** An update follows every `every`-th micro-batch, for the first time when `every` of them are
# through, and the last micro-batch of the epoch, also when its group is short. An epoch without micro-batches has
# no updates: an empty list.
#
# **Source** PyTorch documentation of `DistributedDataParallel.no_sync` (what the plan is for); the rule is ours.
#
# <details><summary>Hint 1</summary>
#
# With `every=4`, after which of the micro-batches 0 to 9 are four of them through? Which one is the last?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# After micro-batch i there are i + 1 through. So `(i + 1) % every == 0`, or `i + 1 == n_batches`.
#
# </details>


# %% solution="update_plan"
def update_plan(n_batches, every):
    """Whether the optimizer steps after each micro-batch, a list of `n_batches` bools.

    Args:
        n_batches: micro-batches of the epoch, 0 or more.
        every: micro-batches of one update, 1 or more.
    """
    ### BEGIN SOLUTION
    return [done % every == 0 or done == n_batches for done in range(1, n_batches + 1)]
    ### END SOLUTION


# %% test="update_plan-visible" points=1
check.update_plan(update_plan)

# %% test="update_plan-hidden" points=1
### BEGIN HIDDEN TESTS
check.update_plan(update_plan, seed=43)
### END HIDDEN TESTS

# %% [markdown]
# Here is a loop that says it accumulates. One like it stands in a published guide to distributed training (Lambda),
# a near relative in NVIDIA's example of NCF. Read it, and count: which updates does it make, and how long are their
# gradients?


# %% locked="published_accumulation"
def published_accumulation(model, batches, loss_fn, optimizer, every):
    """The number of updates of one epoch that is said to accumulate the gradients of `every` micro-batches."""
    updates = 0
    optimizer.zero_grad()
    for i, (inputs, targets) in enumerate(batches):
        loss = loss_fn(model(inputs), targets)
        loss.backward()
        if i % every == 0:
            optimizer.step()
            optimizer.zero_grad()
            updates += 1
    return updates


# %% [markdown]
# There are ten micro-batches and `every` is 4. How many micro-batches does each of its updates use? Which
# micro-batches are in no update at all? And how many times too long is the gradient of its second update?

# %%
predicted_first_update = None  # your number: micro-batches in the gradient of its first update
predicted_unused = None  # your number: micro-batches whose gradient is never used
predicted_ratio = None  # your number: length of the gradient of its second update / length of the mean over its samples

# %% [markdown]
# ### Exercise 21 · Accumulate
#
# Mend the loop, and let it send once an update.
#
# **Points** 5 · **Difficulty** ●●● · **Minutes** 25 · **Lines** 11
#
# **Convention** A group is `every` micro-batches in a row; the last group may be short. After each group follows
# one update. Its gradient is the mean over all *samples* of the group: micro-batches differ in size, and a sample
# of a small one weighs as much as any other. `loss_fn(outputs, targets)` is the mean over the samples of its
# micro-batch, their number is `len(targets)`. What lies in `grad` at the start does not count. The backward pass of
# a micro-batch runs before the forward pass of the next; else the activations of all of them are in memory at once.
# Forward and backward of all micro-batches but the last of each group run inside `no_sync()`, those of the last one
# outside. With DDP every rank has as many samples in a group as the others; then the mean that DDP takes over the
# ranks is the mean over the samples of all ranks.
#
# **Source** PyTorch documentation of `DistributedDataParallel.no_sync`; Goyal et al. 2017, "Accurate, Large
# Minibatch SGD", arXiv:1706.02677, section 3 (the mean is over all samples of an update).
#
# <details><summary>Hint 1</summary>
#
# Micro-batches of 8, 8 and 4 samples: by what must each mean loss be multiplied, so that the sum is the mean of the
# twenty? Can you know that before the third one has come?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Take the group out of the list first: `group = batches[start : start + every]` for `start` in steps of `every`.
# The last slice is short by itself. `samples = sum(len(targets) for _, targets in group)`.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# Per group: `zero_grad`, the loop over its micro-batches, `step`. In that loop
# `with contextlib.nullcontext() if last else no_sync():`, and inside of it the forward pass, the loss times
# `len(targets) / samples`, its `backward()`.
#
# </details>


# %% solution="accumulate"
def accumulate(model, batches, loss_fn, optimizer, every, no_sync):
    """The number of updates of one epoch in which each update uses the gradients of `every` micro-batches.

    Args:
        model: module, or DDP around one; called with inputs.
        batches: list of micro-batches (inputs, targets), tensors (n, ...) of which n may differ; it may be empty.
        loss_fn: (outputs, targets) -> tensor of shape (), the mean over the micro-batch.
        optimizer: holds the parameters of `model`; steps once a group.
        every: micro-batches of one update, 1 or more.
        no_sync: function without arguments -> context manager inside of which gradients stay on their rank:
            `model.no_sync` of DDP, `contextlib.nullcontext` on one process.
    """
    ### BEGIN SOLUTION
    groups = [batches[start : start + every] for start in range(0, len(batches), every)]
    for group in groups:
        samples = sum(len(targets) for _, targets in group)
        optimizer.zero_grad()
        for through, (inputs, targets) in enumerate(group, start=1):
            with contextlib.nullcontext() if through == len(group) else no_sync():
                loss = loss_fn(model(inputs), targets) * len(targets) / samples
                loss.backward()
        optimizer.step()
    return len(groups)
    ### END SOLUTION


# %% test="accumulate-visible" points=2
check.accumulate(accumulate)

# %% test="accumulate-hidden" points=3
### BEGIN HIDDEN TESTS
check.accumulate(accumulate, seed=27)
### END HIDDEN TESTS

# %% [markdown]
# Both loops on one process, with a rate of 0, so that the weights stay and the gradients can be compared. For each
# update: the micro-batches that went into it, and the length of its gradient divided by that of the mean over the
# samples of these micro-batches. In an honest loop the ratio is 1.

# %% tags=["experiment"]
accumulate_now = course.solved(check.accumulate)
every, generator = 4, torch.Generator().manual_seed(0)
micro_batches = [(torch.randn(8, 20, generator=generator), torch.arange(8) % 3) for _ in range(10)]


def told_updates(loop):
    """None; prints which micro-batches each update of `loop(model, optimizer)` uses, and the ratio of lengths."""
    torch.manual_seed(0)
    model, seen, used = nn.Linear(20, 3), [], set()
    model.register_forward_hook(lambda module, inputs, output: seen.append(inputs[0]))
    number = {id(inputs): i for i, (inputs, _) in enumerate(micro_batches)}

    def look(optimizer, *_):
        places = [number[id(inputs)] for inputs in seen]
        inputs, targets = (torch.cat(part) for part in zip(*(micro_batches[i] for i in places), strict=True))
        outputs = F.linear(inputs, model.weight, model.bias)
        right = torch.autograd.grad(F.cross_entropy(outputs, targets), model.weight)[0]
        print(f"   micro-batches {places}, gradient {model.weight.grad.norm() / right.norm():.2f} times as long")
        used.update(places)
        seen.clear()

    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    optimizer.register_step_pre_hook(look)
    print(f"   {loop(model, optimizer)} updates, unused: {sorted(set(range(10)) - used)}")


print("published_accumulation")
told_updates(lambda model, optimizer: published_accumulation(model, micro_batches, F.cross_entropy, optimizer, every))
print("accumulate")
told_updates(
    lambda model, optimizer: accumulate_now(
        model, micro_batches, F.cross_entropy, optimizer, every, contextlib.nullcontext
    )
)
print(f"your predictions: {predicted_first_update}, {predicted_unused}, {predicted_ratio}")

# %% [markdown]
# Three faults in three lines. The test `i % every == 0` holds for the first micro-batch, so the first update has a
# gradient of one. Nothing divides by the number of micro-batches: the gradients of all further updates are four
# times too long. With plain SGD that is a learning rate four times as large, which nobody wrote down. And after the
# last update the rest of the epoch is computed and thrown away. None of this raises an error, and the loss goes
# down.

# %% [markdown]
# # Part 4: What changes with the number of ranks
#
# With the weights synchronised, N ranks should be one process with an N times larger batch. Two things break that
# without a word: statistics of a batch, and parts of unequal size.

# %% [markdown]
# ## What normalisation sees
#
# **With DDP a BatchNorm layer normalises each shard by the shard's own statistics: N ranks are not one process with
# N times the batch.**
#
# The mean of the gradients of N shards is the gradient of the whole batch as long as the loss of a sample does not
# depend on what else is in its batch. BatchNorm is made of this dependence. In training each rank takes mean and
# variance of its own samples, of 8 if the batch is 256 on 32 ranks, and these are noisier than those of 256.
#
# The running statistics, which the model uses when it is evaluated, go apart too: each rank updates its own. DDP
# does not average them. Before a forward pass it sends the buffers of rank 0 to the others
# (`broadcast_buffers=True`, the default), so that what the others had added is lost, and the statistics in a saved
# model are those of the shards of rank 0. If these are like the others, that is merely noisy; if rank 0 reads
# another kind of data, it is wrong.
#
# `nn.SyncBatchNorm` (for GPUs; `convert_sync_batchnorm` exchanges all layers of a model) takes the moments of all
# ranks: it pays for that with communication in every such layer, forward and backward. Layers which normalise each
# sample by itself, LayerNorm and GroupNorm, have no such question.
#
# How are moments of parts put together? The mean of means is right only for parts of one size. The mean of
# variances is wrong even then: it lacks how far the means of the parts lie from each other. And the formula that
# needs one pass only, the mean of the squares less the square of the mean, takes the difference of two large
# numbers: at a mean of 10,000 they are 100,000,000, and the spacing of float32 there is 8. (In float64 it is a way
# out, at twice the bytes, and on many GPUs at a small part of the speed.)

# %% [markdown]
# ### Exercise 22 · Moments of all ranks
#
# Compute mean and variance of each channel over the samples of all ranks, as a synchronised BatchNorm needs them.
#
# **Points** 4 · **Difficulty** ●●● · **Minutes** 25 · **Lines** 8
#
# **Convention** Channels are axis 1 of `x`; the moments are over all other axes and over all ranks, each value with
# the same weight. The variance is biased: divided by the number of values. Ranks may have different `n_local`, some
# of them 0, but not all. Every rank gets the same two tensors of shape (C,), with the dtype of `x`, float32 or
# float64. A rank may ask
# the group for at most 2 operations of `torch.distributed`, and what it sends does not grow with the number of
# samples. With a mean of 1e4 and a standard deviation of 1, in float32, the variance must be right to 1e-3 and the
# mean to 1e-2. Gradients need not flow through it.
#
# **Source** Chan, Golub and LeVeque 1979, "Updating formulae and a pairwise algorithm for computing sample
# variances", Stanford STAN-CS-79-773; Ioffe and Szegedy 2015, arXiv:1502.03167, Algorithm 1; PyTorch documentation
# of `torch.nn.SyncBatchNorm`.
#
# <details><summary>Hint 1</summary>
#
# Which sums over a shard can simply be added, whatever the sizes of the shards? And can the squares be taken before
# the mean of all ranks is known?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Two passes: first the sums and the count, then the sums of the squared distances from the mean *of all ranks*.
# Sums and count fit into one tensor of C + 1 numbers, so that one `dist.all_reduce` carries both. The sum of no
# samples is 0, their mean is nan: stay with sums.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# `values = x.movedim(1, -1).reshape(-1, x.shape[1])` has one row a value, in both cases. All-reduce
# `torch.cat([values.sum(0), values.new_tensor([len(values)])])`; its last place is the count n. Then all-reduce
# `(values - mean).square().sum(0)` and divide by n.
#
# </details>


# %% solution="global_moments"
def global_moments(x):
    """(mean, variance) of every channel over the samples of all ranks: two tensors of shape (C,), of the dtype of `x`.

    Args:
        x: this rank's samples, a float tensor (n_local, C) or (n_local, C, H, W); n_local may differ between ranks,
            and be 0 on some.
    """
    ### BEGIN SOLUTION
    values = x.movedim(1, -1).reshape(-1, x.shape[1])  # (n_local * H * W, C)
    sums = torch.cat([values.sum(0), values.new_tensor([len(values)])])
    dist.all_reduce(sums)
    mean, n = sums[:-1] / sums[-1], sums[-1]
    squares = (values - mean).square().sum(0)
    dist.all_reduce(squares)
    return mean, squares / n
    ### END SOLUTION


# %% test="global_moments-visible" points=2
check.global_moments(global_moments)

# %% test="global_moments-hidden" points=2
### BEGIN HIDDEN TESTS
check.global_moments(global_moments, seed=1979)
### END HIDDEN TESTS

# %% [markdown]
# What DDP itself does with the running statistics is statement G near the end of this unit, with an experiment.

# %% [markdown]
# ## The mean of means
#
# **DDP takes the mean of the ranks' gradients; it is the gradient of the mean over all samples only where every
# rank had equally many.**
#
# A loss is the mean over the samples of a rank, and DDP gives each rank the same weight, one over the number of
# ranks. If one rank has 2 samples and another 8, each of the 2 counts four times as much as each of the 8. Nothing
# stops and nothing warns.
#
# Uneven shards are more common than it seems. The last batch of an epoch is short on some ranks if the sampler does
# not pad. Ragged data, graphs or point clouds, are batched by size and not by number. And in language models the
# ranks have equally many sequences, but a mean over *tokens* is taken, and the padding does not count: a token
# counts more on the rank whose sequences are short.
#
# The cure is a factor on the local loss. The number of all samples must be known for it: one `all_reduce` of one
# number before the backward pass. A rank that has no samples at all must run the backward pass too, because the
# others wait for it there; the mean of nothing is nan, also times 0, so such a rank takes `output.sum()` for its
# loss, which is 0.
#
# The same trap waits in evaluation. The accuracy of a data set is not the mean of the accuracies of its shards,
# unless these have one size. `DistributedSampler` makes them so by padding, and then some samples count twice.
# Better take shards of different sizes, `range(rank, n_items, world_size)`, without DDP around the model (its
# forward pass may send buffers, and would wait for the longest shard), and put the shards together with their
# weights.

# %% [markdown]
# ### Exercise 23 · The weight of a shard
#
# Give the factor by which a rank multiplies its local mean loss, so that DDP's mean of gradients is the gradient of
# the mean over all samples.
#
# **Points** 2 · **Difficulty** ●○○ · **Minutes** 10 · **Lines** 1
#
# **Convention** DDP adds up the gradients of all ranks and divides by `world_size`. `n_total` is the sum of
# `n_local` over the ranks, and above 0; `n_local` may be 0. The factor is a Python float.
#
# **Source** Goyal et al. 2017, arXiv:1706.02677, section 3, on distributed SGD; PyTorch documentation of
# `torch.nn.parallel.DistributedDataParallel`.
#
# <details><summary>Hint 1</summary>
#
# What must the factor be if all ranks have equally many samples? What is the sum of the factors of all ranks?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# The mean over all samples is the sum over ranks of n_local / n_total times the local mean. DDP forms the sum over
# ranks of 1 / world_size times what a rank hands in.
#
# </details>


# %% solution="shard_scale"
def shard_scale(n_local, n_total, world_size):
    """The factor on a rank's local mean loss that makes DDP's gradient that of the mean over all samples, a float.

    Args:
        n_local: number of samples (or tokens) of this rank, an int from 0.
        n_total: number of samples of all ranks, an int above 0.
        world_size: number of ranks.
    """
    ### BEGIN SOLUTION
    return n_local * world_size / n_total
    ### END SOLUTION


# %% test="shard_scale-visible" points=1
check.shard_scale(shard_scale)

# %% test="shard_scale-hidden" points=1
### BEGIN HIDDEN TESTS
check.shard_scale(shard_scale, seed=58)
### END HIDDEN TESTS

# %% [markdown]
# ### Exercise 24 · A metric of all ranks
#
# Put the local means of all ranks together to the mean over everything, each with its weight.
#
# **Points** 3 · **Difficulty** ●●○ · **Minutes** 15 · **Lines** 6
#
# **Convention** The result is the sum of value times weight over all ranks, divided by the sum of the weights;
# every rank gets it, as a Python float. A weight is 0 or more; where it is 0, the value may be nan (the mean of no
# samples) and must not spoil the result. If all weights are 0 there is no mean: nan. At most 2 operations of
# `torch.distributed` a rank. Send float64: a count above 16,777,216 is not exact in float32.
#
# **Source** PyTorch documentation, "Distributed communication package", `all_reduce`.
#
# <details><summary>Hint 1</summary>
#
# Which two numbers of a rank can be added over the ranks so that the result follows from the two sums?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Send both in one tensor: `dist.all_reduce` changes it in place, on every rank. `value * weight` is nan where the
# value is nan, also for weight 0. And a tensor with one number becomes a float by `.item()`.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# `sums = torch.stack([value.double() * weight, torch.full_like(value, weight, dtype=torch.float64)])`, all zeros if
# the weight is 0. After the all-reduce `total, weights = sums.tolist()`. Python raises an error on 0.0 / 0.0: say
# `math.nan`.
#
# </details>


# %% solution="weighted_mean"
def weighted_mean(value, weight):
    """The mean of all ranks' values with the ranks' weights, a float, the same on every rank; nan if all weights are 0.

    Args:
        value: this rank's mean, a float tensor of shape () on the device that the process group uses; it may be nan if
            `weight` is 0.
        weight: how much it counts, a Python number from 0: of how many samples it is the mean.
    """
    ### BEGIN SOLUTION
    sums = value.new_zeros(2, dtype=torch.float64)
    if weight > 0:  # the mean of no samples is nan, and so is nan * 0
        sums[0], sums[1] = value.double() * weight, weight
    dist.all_reduce(sums)
    total, weights = sums.tolist()
    return total / weights if weights else math.nan
    ### END SOLUTION


# %% test="weighted_mean-visible" points=1
check.weighted_mean(weighted_mean)

# %% test="weighted_mean-hidden" points=2
### BEGIN HIDDEN TESTS
check.weighted_mean(weighted_mean, seed=316)
### END HIDDEN TESTS

# %% [markdown]
# ## The device of a process
#
# **A process computes on the GPU with the number of its local rank; its rank among all machines is another
# number.**
#
# A launcher such as `torchrun` starts one process a GPU on each machine and tells each of them two numbers. `RANK`
# counts all processes of the training, over all machines; samplers and the process group need it. `LOCAL_RANK`
# counts the processes of one machine, and CUDA counts the GPUs of one machine in the same way.
#
# | two machines, two GPUs each | first | first | second | second |
# |---|---|---|---|---|
# | `RANK` | 0 | 1 | 2 | 3 |
# | `LOCAL_RANK` | 0 | 1 | 0 | 1 |
# | GPU of this machine | `cuda:0` | `cuda:1` | `cuda:0` | `cuda:1` |
#
# A published example for DDP gets the device in the following way (in our words). There are two bugs in it: one
# stops it everywhere, and one would stop it on the second machine only. Find them before you go on.


# %% locked="published_setup"
def published_setup(model, rank):
    """The model on the device of process `rank`; `rank` is the RANK that the launcher gave."""
    device = torch.cuda.device(rank)
    return model.to(device)


# %% tags=["experiment"]
try:
    published_setup(nn.Linear(2, 2), rank=0)
except TypeError as error:
    print("TypeError:", str(error).splitlines()[0][:90])
print("torch.cuda.device:", torch.cuda.device.__doc__.strip().splitlines()[0])
print("an object of it is a torch.device:", isinstance(torch.cuda.device(0), torch.device))

# %% [markdown]
# `torch.cuda.device` is no device. It is a context manager: inside of `with torch.cuda.device(1):` the GPU 1 is the
# current one. `model.to` refuses it, with a GPU and without. What the author meant is `torch.device`. Then the
# second bug shows: on the second of two machines with two GPUs, process 2 asks for `cuda:2`, and there is none.

# %% [markdown]
# ### Exercise 25 · The device of this process
#
# Mend both bugs: write the function that says on which device a process computes.
#
# **Points** 2 · **Difficulty** ●○○ · **Minutes** 10 · **Lines** 5
#
# **Convention** Local ranks count from 0. Without a GPU every process computes on the CPU, however many there are.
# With GPUs a process has one of its own, the one with its local rank, and the device holds this number: `cuda:0`,
# not `cuda`. If there is no GPU with that number, that is a ValueError whose message holds both numbers,
# `local_rank` and `device_count`; two processes never share a GPU quietly. The function asks nobody: it knows what
# it is given.
#
# **Source** DTU, course on machine learning operations, `distributed_example.py` (the bugs, rebuilt); PyTorch
# documentation of `torch.device`, `torch.cuda.device` and of torchrun, "Environment Variables".
#
# <details><summary>Hint 1</summary>
#
# Of what type is the thing that `model.to` takes? And which ranks exist with `device_count` GPUs, if they count
# from 0?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `torch.device("cuda", 1)` and `torch.device("cuda:1")` are the same, and can be made without a GPU. Ask for a
# `device_count` of 0 first, then whether `local_rank` is too large.
#
# </details>


# %% solution="device_of"
def device_of(local_rank, device_count):
    """The torch.device on which this process computes: the GPU with its local rank, the CPU where there are no GPUs.

    Args:
        local_rank: number of this process on its machine, an int from 0; the launcher's LOCAL_RANK.
        device_count: number of GPUs of this machine, an int from 0; in a program `torch.cuda.device_count()`.

    Raises: ValueError if there are GPUs, but none with this number; the message holds both numbers.
    """
    ### BEGIN SOLUTION
    if device_count == 0:
        return torch.device("cpu")
    if local_rank >= device_count:
        raise ValueError(f"local rank {local_rank} has no GPU: there are {device_count}; start fewer processes.")
    return torch.device("cuda", local_rank)
    ### END SOLUTION


# %% test="device_of-visible" points=1
check.device_of(device_of)

# %% test="device_of-hidden" points=1
### BEGIN HIDDEN TESTS
check.device_of(device_of, seed=11)
### END HIDDEN TESTS

# %% [markdown]
# # Part 5: Launchers
#
# In practice a launcher starts one process a device and tells each who it is.

# %% [markdown]
# ## Who tells a process which rank it is
#
# **A rank is an ordinary process; that it is rank 3 of 8 it reads from its environment, where a launcher wrote
# it.**
#
# Until now `run_ranks` has started the ranks. For training on many machines a *launcher* does it: the same command
# is given on every machine, and the launcher starts one process for each GPU of it. All of them run the same
# script. What makes them differ is a handful of environment variables, which `dist.init_process_group` reads if it
# is told nothing else (`init_method="env://"`, the default).
#
# Two of them say where to meet: `MASTER_ADDR` and `MASTER_PORT` are address and port of a small store on the
# machine of rank 0, kept by the launcher, or by rank 0 if nobody else does. So they are the same on every machine.
# `WORLD_SIZE` and `RANK` say how many processes there are in all and which of them this is. The rest is about one
# machine: `LOCAL_RANK` picks the GPU, and `LOCAL_WORLD_SIZE` tells how many processes share the cores. torchrun
# calls a group of processes on one machine, a node, a group, and so the number of the machine is `GROUP_RANK`.
#
# A published course page (DTU 02476, distributed training) starts its example by a shell script that sets
# `WORLD_SIZE` and not `MASTER_ADDR`, and names a file that is not there. Its launcher, `torch.distributed.launch`,
# has been replaced by torchrun.

# %% [markdown]
# ### Exercise 26 · What the launcher says
#
# Write the environment of one process, as torchrun gives it.
#
# **Points** 2 · **Difficulty** ●○○ · **Minutes** 8 · **Lines** 9
#
# **Convention** Nodes, processes of a node and ranks count from 0. Every node has as many processes. Ranks are
# dealt node by node: the first `per_node` ranks are those of node 0. Names and values are `str`, because nothing
# else fits into an environment. The dict holds these seven names and no other: `MASTER_ADDR`, `MASTER_PORT`,
# `WORLD_SIZE`, `RANK`, `LOCAL_RANK`, `LOCAL_WORLD_SIZE`, `GROUP_RANK`. The function sets nothing, it returns.
#
# **Source** PyTorch documentation, "torchrun (Elastic Launch)", section "Environment Variables".
#
# <details><summary>Hint 1</summary>
#
# Three nodes of four processes each: which rank does the first process of the last node have?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# In front of this process stand all processes of the nodes before, `node * per_node` of them, and `local_rank` of
# its own node. All in all there are `nodes * per_node`.
#
# </details>


# %% solution="rank_environment"
def rank_environment(node, local_rank, nodes, per_node, address, port):
    """The environment variables that a launcher gives to process `local_rank` of node `node`, a dict of str to str.

    Args:
        node: number of the machine, from 0 to nodes - 1.
        local_rank: number of the process on its machine, from 0 to per_node - 1.
        nodes, per_node: how many machines there are, and how many processes on each of them.
        address, port: of the store in which the ranks find each other, a str and an int.
    """
    ### BEGIN SOLUTION
    numbers = {
        "MASTER_PORT": port,
        "WORLD_SIZE": nodes * per_node,
        "RANK": node * per_node + local_rank,
        "LOCAL_RANK": local_rank,
        "LOCAL_WORLD_SIZE": per_node,
        "GROUP_RANK": node,
    }
    return {"MASTER_ADDR": address} | {name: str(number) for name, number in numbers.items()}
    ### END SOLUTION


# %% test="rank_environment-visible" points=1
check.rank_environment(rank_environment)

# %% test="rank_environment-hidden" points=1
### BEGIN HIDDEN TESTS
check.rank_environment(rank_environment, seed=29)
### END HIDDEN TESTS

# %% [markdown]
# ## A script for torchrun
#
# **A training that is to run for long must be able to stop at any step and go on: as the same training, in a new
# process, perhaps on another machine.**
#
# `run_ranks` starts processes from a notebook, which is good for looking at them. What is to run for days is a
# script, and `torchrun` starts it: `torchrun --nproc-per-node 2 script.py` runs two processes of the script and
# watches them. It tells each who it is by environment variables. `RANK` counts all processes, from 0 to
# `WORLD_SIZE` - 1. `LOCAL_RANK` counts those of one machine and chooses the GPU. `MASTER_ADDR` and `MASTER_PORT`
# say where the processes meet; `dist.init_process_group` reads them by itself. On two machines with four GPUs each,
# `LOCAL_RANK` 0 exists twice, `RANK` 0 once: what the whole job does once, such as writing a file, belongs to
# `RANK` 0.
#
# If one process dies, the others cannot go on: they would wait for its gradients for ever. So torchrun ends them
# all and, with `--max-restarts 1`, starts all of them once more, from the first line of the script. Nothing is left
# of the memory of the first life. What the second one knows of it, it reads from a file: the *checkpoint*.
#
# Two things make a checkpoint worth its name. It is complete: weights, the buffers of the normalisation, the state
# of the optimizer (momentum is a memory of many steps) and the number of the step. Random numbers need no place in
# it if every step sets them anew from what is known anyway: the seed, the step, the rank. And it is whole: a
# process may die while it writes. So one writes another file beside it and renames that one at the end, which a
# file system does in one step: whoever opens the checkpoint gets the old one or the new one, never half of one.

# %% [markdown]
# ### Exercise 27 · Train, stop, and go on
#
# Complete the function that `scripts/train_ddp.py` runs in every process that torchrun starts. Lines that stand
# there already may be changed, if the facts below stay true.
#
# **Points** 8 · **Difficulty** ●●● · **Minutes** 60 · **Lines** 26
#
# **Convention** `torch.manual_seed(options.seed)` comes just before `options.make_model()`, on every rank. A step
# takes `options.batch_size` samples, an equal share on each rank; the last batch of an epoch may be smaller. The
# loss is the mean cross-entropy, the optimizer SGD with momentum 0.9. Every epoch has an order of its own, which
# depends on the seed and the epoch alone. Random numbers inside a step, such as those of dropout, differ from rank
# to rank and from step to step; they depend on seed, step and rank alone. Rank 0, and no other, writes the
# checkpoint: after every `save_every`-th step, counted from the start of the training, and after every epoch; a
# dict with "model" (the state of the model itself, without the prefix of a wrapper), "optimizer" and "step"
# (updates done), saved by `torch.save` so that `torch.load` reads it with `weights_only=True`. Whoever opens
# `options.checkpoint` at any time finds a whole file, and nothing else is left beside it. If there is a checkpoint
# at the start, the training goes on after its step, and ends with the very weights of one that was never stopped;
# if it was finished, nothing is trained. At the end of an epoch rank 0 calls `options.report(epoch, loss)`, `epoch`
# counted from 0; the loss is the mean over the samples of all ranks in this epoch (of those since the start, if it
# began in the middle). The process group is gone when the function is left, also by an error.
#
# **Source** PyTorch's documentation, "torchrun (Elastic Launch)" and "Distributed Data Parallel"; POSIX.1-2017,
# `rename()` (the old file or the new one, at any time).
#
# <details><summary>Hint 1</summary>
#
# How many processes of two machines find `LOCAL_RANK` 0? What does the second life repeat, if the sampler does not
# know its epoch? And what would SGD with momentum do in its first step, if it had forgotten all steps before?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `DistributedSampler(options.dataset, seed=options.seed)` knows rank and world size from the process group;
# `set_epoch` must be called before the loader is iterated. Give the loader the share of one rank as its batch size.
# Keep the model in a variable of its own before you wrap it: its `state_dict` is what belongs in the file. The sum
# of losses over all ranks is `dist.all_reduce(total)`; every rank must call it, not only rank 0.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# The checkpoint: `if rank == 0 and (step % options.save_every == 0 or step % len(loader) == 0):`, then
# `torch.save({"model": bare.state_dict(), ...}, beside)` with `beside = f"{options.checkpoint}.part"`, then
# `os.replace(beside, options.checkpoint)`. Random numbers of a step: `torch.manual_seed(hash((options.seed, step,
# rank)))`, before the model is called.
#
# </details>


# %% solution="train_ddp"
def train_ddp(options):
    """Mean losses of the epochs that this call has trained, a list of floats, the same on every rank.

    Runs in every process that torchrun starts, trains one model on all of them, and goes on from a checkpoint.

    Args:
        options: has the attributes
            dataset: torch Dataset of (image, label).   make_model: function without arguments that gives a new model.
            device: "cpu" (backend gloo) or "cuda" (NCCL, a GPU for each process of a machine).
            epochs, batch_size (samples a step, all ranks together), lr, seed.
            checkpoint: path of the file, on a disk that all ranks see.   save_every: steps between two checkpoints.
            report: function (epoch, loss), to be called by rank 0 after each epoch.
    """
    ### BEGIN SOLUTION
    rank, local_rank, world_size = (int(os.environ[name]) for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE"))
    ### END SOLUTION
    device = torch.device("cuda", local_rank) if options.device == "cuda" else torch.device("cpu")
    if device.type == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    try:
        ### BEGIN SOLUTION
        torch.manual_seed(options.seed)
        bare = options.make_model().to(device)
        model = DistributedDataParallel(bare)
        sampler = DistributedSampler(options.dataset, seed=options.seed)
        loader = DataLoader(options.dataset, options.batch_size // world_size, sampler=sampler)
        ### END SOLUTION
        optimizer = torch.optim.SGD(model.parameters(), lr=options.lr, momentum=0.9)
        step, losses = 0, []  # updates so far, also those of earlier lives
        if os.path.exists(options.checkpoint):
            ### BEGIN SOLUTION
            saved = torch.load(options.checkpoint, map_location=device)
            bare.load_state_dict(saved["model"])
            optimizer.load_state_dict(saved["optimizer"])
            step = saved["step"]
            ### END SOLUTION
        for epoch in range(step // len(loader), options.epochs):
            total, count = 0, 0  # loss summed over samples, samples: of this rank
            ### BEGIN SOLUTION
            sampler.set_epoch(epoch)
            ### END SOLUTION
            for images, labels in itertools.islice(loader, step % len(loader), None):  # without those that are done
                ### BEGIN SOLUTION
                torch.manual_seed(hash((options.seed, step, rank)))
                loss = F.cross_entropy(model(images.to(device)), labels.to(device))
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                ### END SOLUTION
                step += 1
                total += loss.detach() * len(labels)
                count += len(labels)
                ### BEGIN SOLUTION
                if rank == 0 and (step % options.save_every == 0 or step % len(loader) == 0):
                    state = {"model": bare.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
                    beside = f"{options.checkpoint}.part"
                    torch.save(state, beside)
                    os.replace(beside, options.checkpoint)
                ### END SOLUTION
            ### BEGIN SOLUTION
            dist.all_reduce(total)
            losses.append(total.item() / (count * world_size))
            if rank == 0:
                options.report(epoch, losses[-1])
            ### END SOLUTION
        return losses
    finally:
        ### BEGIN SOLUTION
        dist.destroy_process_group()
        ### END SOLUTION


# %% test="train_ddp-visible" points=4
check.train_ddp(train_ddp)

# %% test="train_ddp-hidden" points=4
### BEGIN HIDDEN TESTS
check.train_ddp(train_ddp, seed=613)
### END HIDDEN TESTS

# %% [markdown]
# ### Run it
#
# Your function in a real torchrun, on two ranks; the reference if its check has not passed.

# %% tags=["experiment"]
script = Path(course.__file__).parents[1] / "scripts" / "train_ddp.py"
work = tempfile.TemporaryDirectory()
Path(work.name, "function").write_bytes(cloudpickle.dumps(course.solved(check.train_ddp)))


def torchrun(*options, ranks=2):
    """Runs the script under torchrun in a folder of its own, and shows what it printed."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    call = [*launcher, str(script), "--function", "function", *map(str, options)]
    quiet = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(call, cwd=work.name, env=quiet, capture_output=True, text=True, timeout=300)
    print(done.stdout)
    if done.returncode:
        raise RuntimeError(f"torchrun ended with {done.returncode}:\n{done.stderr[:4000]}")


# %% tags=["experiment"]
print("one epoch, then stop:")
torchrun("--dataset", "tiny", "--epochs", 1, "--checkpoint", "stopped.pt")
print("the same command with more epochs goes on from its checkpoint:")
torchrun("--dataset", "tiny", "--epochs", sizes.epochs + 1, "--checkpoint", "stopped.pt")
print("never stopped:")
torchrun("--dataset", "tiny", "--epochs", sizes.epochs + 1, "--checkpoint", "whole.pt")
weights = [torch.load(Path(work.name) / f"{name}.pt") for name in ("stopped", "whole")]
same = all(torch.equal(a, b) for a, b in zip(*(w["model"].values() for w in weights), strict=True))
print(f"same weights, to the bit: {same}")

# %% [markdown]
# A rank that is killed in the middle is the same case: torchrun starts all ranks anew, and they go on from the last
# checkpoint. What is lost is the work since then. Try it in a terminal, and kill one of the two ranks (not torchrun);
# save the notebook first, if it is your function that should train:
#
# ```
# export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1
# torchrun --standalone --nproc-per-node 2 --max-restarts 1 scripts/train_ddp.py --epochs 5 --checkpoint run.pt \
#     --answers notebooks/02_data_parallel/02_data_parallel.ipynb
# ```
#
# Tracebacks of the ranks that lost their partner come first; then the epochs go on. (The script says why that
# variable is needed.) The tests of this course do the same, in `tests/test_nodes.py`.

# %% [markdown]
# ## The same with Lightning
#
# **A framework writes the loop for you; what it does with the ranks, the sampler and the group you still have to
# know.**
#
# PyTorch Lightning asks for a module with two methods, `training_step` (batch → loss) and `configure_optimizers`,
# and a `Trainer` that is told where to compute. The Trainer wraps the module into DDP, calls `zero_grad`,
# `backward` and `step`, and puts a `DistributedSampler` in the place of the loader's own sampler, one that shuffles
# if the loader does. It also tells that sampler the epoch.
#
# Where do the ranks come from? If the environment has no `LOCAL_RANK`, Lightning starts the other processes itself,
# by calling your script again. If there is one, as under torchrun and in `run_ranks`, somebody else has started
# them: Lightning takes the ranks as they are, and a process group that exists already. So every rank makes the same
# Trainer.
#
# The course page named above tells to change two arguments of the Trainer, `accelerator` and `gpus`. The second is
# gone since Lightning 2: now `accelerator` names the kind of device, `devices` how many a node has, and `strategy`
# the way they work together ("auto", the default, takes DDP for more than one).

# %% [markdown]
# ### Exercise 28 · Let Lightning do it
#
# Train a classifier with Lightning, on ranks that are there already.
#
# **Points** 4 · **Difficulty** ●●○ · **Minutes** 25 · **Lines** 17
#
# **Convention** The function is called on every rank of `run_ranks` with equal arguments. `loader` goes over the
# whole data set; each rank trains on its share, as Lightning's `DistributedSampler` deals it
# (`use_distributed_sampler`, on by default). Import `pytorch_lightning` *inside* the function: it takes seconds,
# and only who trains with it should wait. On the CPU (`accelerator="cpu"`), also where there is a GPU; as many
# devices as the group has ranks. Cross-entropy, plain SGD, `epochs` epochs, and `model` itself is trained. No
# logger, no checkpoint, no progress bar: nothing is printed and no file is made in the current folder. Returned are
# the losses of this rank's own batches, not averaged over the ranks, one a step, through all epochs.
#
# **Source** Documentation of Lightning 2, "LightningModule", "Trainer" (its arguments) and "Run on an on-prem
# cluster" (what `LOCAL_RANK` means).
#
# <details><summary>Hint 1</summary>
#
# Which of the lines of a training loop are yours, and which will the Trainer run for you? Where can you note the
# loss?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# A class inside of a function sees the function's arguments. In `__init__`, after `super().__init__()`, keep
# `self.model = model`, so that the parameters of the model are those of the module, and a list of losses. In
# `training_step(self, batch, batch_idx)` append `loss.item()` and return `loss`.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# `pl.Trainer(accelerator="cpu", devices=dist.get_world_size(), max_epochs=epochs, logger=False,
# enable_checkpointing=False, enable_progress_bar=False).fit(module, loader)`
#
# </details>


# %% solution="lightning_fit"
def lightning_fit(model, loader, lr, epochs):
    """The losses of all steps of this rank while Lightning trains `model` on all ranks, a list of floats.

    Args:
        model: module on the CPU, inputs -> logits (n, classes), the same on every rank; its weights are changed.
        loader: DataLoader over the whole data set, of batches (inputs, labels).
        lr: learning rate of SGD.
        epochs: passes over the data, 1 or more.
    """
    ### BEGIN SOLUTION
    import pytorch_lightning as pl

    class Classifier(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.model, self.losses = model, []

        def training_step(self, batch, batch_idx):
            inputs, labels = batch
            loss = F.cross_entropy(self.model(inputs), labels)
            self.losses.append(loss.item())
            return loss

        def configure_optimizers(self):
            return torch.optim.SGD(self.model.parameters(), lr)

    module = Classifier()
    ranks = dist.get_world_size()
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    pl.Trainer(accelerator="cpu", devices=ranks, max_epochs=epochs, **quiet).fit(module, loader)
    return module.losses
    ### END SOLUTION


# %% test="lightning_fit-visible" points=2
check.lightning_fit(lightning_fit)

# %% test="lightning_fit-hidden" points=2
### BEGIN HIDDEN TESTS
check.lightning_fit(lightning_fit, seed=9)
### END HIDDEN TESTS

# %% [markdown]
# # Part 6: Speed-up
#
# **Strong scaling** shares one batch among N ranks: the step should take 1/N of the time. **Weak scaling** gives
# every rank the same batch: the step should take as long as with one. Both fall short, for reasons that can be told
# apart.

# %% [markdown]
# ## Why two are not twice as fast
#
# **What every rank must do alone does not get shorter with more ranks; a fit of two numbers says how much that
# is.**
#
# Let training take $t_1$ seconds on one rank and $t_N$ on N. The *speed-up* is $t_1 / t_N$, and the *parallel
# efficiency* is the share of the ideal that was reached. What is ideal depends on the question. *Strong scaling*:
# the same work on more ranks, ideally in $t_1 / N$. *Weak scaling*: the work grows with the ranks, each has as much
# as one alone had, and ideally the time stays $t_1$. A strong-scaling table that keeps the batch *of each rank* is
# neither: more ranks then mean larger batches and fewer updates, and the epoch is not the same training.
#
# Amdahl (1967) split the work in two: a share $s$ that does not divide, and the rest that does.
#
# $$t_N = t_1 \left(s + \frac{1 - s}{N}\right)$$
#
# However many ranks there are, the speed-up stays below $1 / s$: a twentieth of serial work, and a thousand GPUs
# are not twenty times as fast. Gustafson (1988) answered that nobody buys a thousand processors for the problem of
# one: the work that divides grows with the machine, the serial part hardly does. Weak scaling is his view.
#
# The share is one number for several causes:
#
# - *serial work*: the start, the evaluation on rank 0, checkpoints, a Python loop that every rank runs alike;
# - *communication*: gradients are as many bytes on 2 ranks as on 64, however few samples a rank has. The last
#   bucket is sent when there is nothing left to compute behind which it could hide;
# - *stragglers*: an all-reduce ends when the slowest rank has come, in every step;
# - *what ranks share*: on one machine memory bandwidth, caches, the disk, and the cores that decode images. A
#   second process that waits for the same memory adds little;
# - *small batches*: the part of a batch that a rank gets may be too little to keep it busy. Half the batch then
#   takes more than half the time, without a single message.
#
# Some of these grow with N, and then the formula is too friendly. It fits well over a few doublings, and says
# little about numbers of ranks far from those that were measured.

# %% [markdown]
# ### Exercise 29 · Parallel efficiency
#
# Say what share of the ideal was reached.
#
# **Points** 2 · **Difficulty** ●○○ · **Minutes** 8 · **Lines** 4
#
# **Convention** Strong scaling: $t_1 / (N t_N)$. Weak scaling: $t_1 / t_N$. $t_1$ is the measurement on one rank,
# wherever in the list it stands; it occurs once. Without one there is no efficiency: a ValueError. Values above 1
# (it happens: the share of a rank fits into a cache) stay as they are.
#
# **Source** Amdahl 1967, "Validity of the single processor approach to achieving large scale computing
# capabilities", AFIPS; Gustafson 1988, "Reevaluating Amdahl's law", Communications of the ACM 31 (what is held
# constant).
#
# <details><summary>Hint 1</summary>
#
# Four ranks need 30 s for what one did in 60 s. How fast would be ideal? And if each of them had done as much as
# one did before?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `ranks.index(1)` is the place of the measurement on one rank, and raises a ValueError if there is none. The
# efficiencies are `seconds[place] / seconds`, in strong scaling divided by the tensor of `ranks`.
#
# </details>


# %% solution="efficiency"
def efficiency(ranks, seconds, weak=False):
    """The parallel efficiency of each measurement, a float64 tensor (n,).

    Args:
        ranks: list of n different whole numbers of at least 1, in any order.
        seconds: float tensor (n,) on the CPU, the time on so many ranks, all above 0.
        weak: True if the work grew with the ranks, False if it was the same.

    Raises: ValueError if no measurement is on one rank.
    """
    ### BEGIN SOLUTION
    seconds = seconds.double()
    speedup = seconds[ranks.index(1)] / seconds
    return speedup if weak else speedup / torch.tensor(ranks)
    ### END SOLUTION


# %% test="efficiency-visible" points=1
check.efficiency(efficiency)

# %% test="efficiency-hidden" points=1
### BEGIN HIDDEN TESTS
check.efficiency(efficiency, seed=1988)
### END HIDDEN TESTS

# %% [markdown]
# ### Exercise 30 · The serial share
#
# Find Amdahl's two numbers from measured times.
#
# **Points** 4 · **Difficulty** ●●● · **Minutes** 25 · **Lines** 5
#
# **Convention** $t_1 > 0$ and $0 \le s \le 1$ are the numbers for which the sum of squared differences between $t_1
# (s + (1 - s) / N)$ and the seconds is the smallest. Times are noisy: the best line may ask for an $s$ outside of
# [0, 1]. The smallest sum *inside* is then at the nearer end, 0 or 1, and has a $t_1$ of its own. $t_1$ is a fitted
# number; it need not be the time measured on one rank, and there may be no such measurement. Compute in float64.
#
# **Source** Amdahl 1967 (the law; in this form it is found in every textbook); the fit with bounds is the smallest
# case of Lawson and Hanson 1974, "Solving Least Squares Problems", chapter 23.
#
# <details><summary>Hint 1</summary>
#
# The formula is a straight line. In which variable? What are its slope and its intercept in terms of $t_1$ and $s$?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# With $x = 1/N$ the intercept is $a = t_1 s$ and the slope $b = t_1 (1 - s)$, so $s = a / (a + b)$. What does a
# negative $a$ say about $s$, and what a negative $b$? They cannot both be negative, because the times are not.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# Put what is negative to 0, then $s = a / (a + b)$. For this $s$ the model is $t_1 u$ with the known vector
# $u = s + (1 - s) x$; the best $t_1$ is $u \cdot y / u \cdot u$. If nothing was negative, it is $a + b$ again.
#
# </details>


# %% solution="fit_serial_share"
def fit_serial_share(ranks, seconds):
    """(t1, s) of Amdahl's law t1 * (s + (1 - s) / N) that fits the measured seconds best, two Python floats.

    Args:
        ranks: list of n whole numbers of at least 1, in any order; at least two of them differ.
        seconds: float tensor (n,) on the CPU, the time on so many ranks, all above 0.
    """
    ### BEGIN SOLUTION
    x, y = 1 / np.array(ranks), seconds.double().numpy()
    b, a = np.polyfit(x, y, 1).clip(0)
    s = a / (a + b)
    u = s + (1 - s) * x  # the course of the times if t1 were 1
    return float(u @ y / (u @ u)), float(s)
    ### END SOLUTION


# %% test="fit_serial_share-visible" points=2
check.fit_serial_share(fit_serial_share)

# %% test="fit_serial_share-hidden" points=2
### BEGIN HIDDEN TESTS
check.fit_serial_share(fit_serial_share, seed=1967)
### END HIDDEN TESTS

# %% [markdown]
# ### Measure
#
# Predict: the same batch on 2 ranks instead of 1, each on a core (or GPU) of its own. How many times as fast?

# %%
predicted_speedup = None


# %% tags=["experiment"]
def scaling_seconds(rank, world_size, batch, ranks, rounds):
    """Seconds (3, len(ranks), rounds) of a step: the batch shared by n ranks, a batch on each, shared but not sent."""
    device = torch.device("cuda", rank) if dist.get_backend() == "nccl" else torch.device("cpu")
    torch.set_num_threads(1)
    batch = [t.to(device) for t in batch]
    shared, whole, silent = [], [], []
    for n in ranks:
        group = dist.new_group(list(range(n)))
        if rank >= n:  # looks on
            for variants in (shared, whole, silent):
                variants.append(lambda: None)
            continue
        models = [FashionCNN(dropout=0.0, norm=None).to(device) for _ in range(3)]
        if n > 1:
            models = [nn.parallel.DistributedDataParallel(m, process_group=group) for m in models]
        part = [t[: len(t) // n] for t in batch]
        shared.append(train_step(models[0], part))
        whole.append(train_step(models[1], batch))
        silent.append(without_sync(models[2], train_step(models[2], part)))
    seconds = distributed.timed_rounds(shared + whole + silent, rounds)
    return seconds.view(rounds, 3, len(ranks)).permute(1, 2, 0)  # (3, len(ranks), rounds)


def without_sync(model, step):
    """`step` under the model's no_sync, if it has one."""

    def quiet_step():
        with getattr(model, "no_sync", contextlib.nullcontext)():
            step()

    return quiet_step


ranks = [n for n in (1, 2, 4) if not gpus > 1 or n <= gpus]
own = gpus if gpus > 1 else max(2, loaders.cores())  # so many ranks have a device, or a core, of their own
big = [t[: 2 * sizes.batch_size] for t in (images, labels)]
strong, weak, silent = run_ranks(scaling_seconds, ranks[-1], big, ranks, sizes.rounds, timeout=300)[0]
medians, fitted = strong.median(1).values, [n for n in ranks if n <= own]
t1, serial = course.solved(check.fit_serial_share)(fitted, medians[: len(fitted)])
efficiency_now = course.solved(check.efficiency)
strong_efficiency = efficiency_now(ranks, medians)
weak_efficiency = efficiency_now(ranks, weak.median(1).values, weak=True)
for i, n in enumerate(ranks):
    share = max(0.0, (1 - silent[i] / strong[i]).median().item())
    talk = f", {100 * share:.0f} % of a step is communication" if n > 1 else ""
    print(f"ranks: {n}, {medians[0] / medians[i]:.2f} times as fast{talk}, "
          f"efficiency strong {strong_efficiency[i]:.2f}, weak {weak_efficiency[i]:.2f}"
          + told(predicted_speedup) * (n == 2))  # fmt: skip
limit = f"at most {1 / serial:.1f} times as fast with any number" if serial > 0 else "no limit in sight"
print(f"serial share fitted to {fitted} ranks: {serial:.2f}, {limit}")
print(course.machine())
plots.scaling(ranks, strong, weak, own, t1, serial)

# %% [markdown]
# Where a step is long enough, two ranks with a core each are faster than one, but not twice as fast. Part of it is
# communication: the share that the cell prints is what a step saves when nothing is sent (`no_sync`). The rest is work
# that every rank does in full, such as the optimizer's step on all weights, and that both cores draw on one memory.
# Four ranks take turns on two cores and are no faster than two: the fit, made with the ranks that have a core of their
# own, promises more on 4. Amdahl's law knows nothing of cores that are not there.

# %% [markdown]
# ## What DDP does, and what it does not
#
# **DDP makes the ranks alike once, at the start; after that it does one thing, the mean of the gradients, and all
# else follows.**
#
# Equal weights, equal gradients and equal optimizers give equal weights again. That is the whole of it: nobody
# sends weights, and nobody waits anywhere but in the operations that all ranks have in common. Such an operation
# ends on a rank only when all have come to it, and the operations of the ranks are matched by their order: the
# third of one rank with the third of another. So nothing gets mixed up if one rank is late, and nothing goes on if
# one stays away.
#
# About all that surrounds it, the sampler, the barrier, the environment variables, much is said that is half true.
# The fourteen statements below are about it.

# %% [markdown]
# ### Exercise 31 · True or false
#
# Judge each statement. All are about `DistributedDataParallel` (DDP) with its default settings, one process a rank,
# and `torch.utils.data.DistributedSampler`, in the version installed here.
#
# - **A** Wrapping a model in DDP sends the parameters and buffers of rank 0 to all ranks: they start alike,
#   whatever seed each of them had.
# - **B** DDP cuts the batch that a rank passes to the model into `world_size` parts and sends every rank its part.
# - **C** The ranks exchange their gradients while `loss.backward()` runs; `optimizer.step()` of an ordinary
#   optimizer sends nothing.
# - **D** After the backward pass, `p.grad` of a parameter is the mean of the ranks' own gradients, on every rank.
# - **E** Each rank has an optimizer with its own state, such as momentum; nobody sends these states, and they stay
#   equal all the same.
# - **F** In `loss = criterion(model(x), y)`, with a model in DDP, the loss is the mean over the samples of all
#   ranks.
# - **G** DDP averages the running statistics of BatchNorm layers over the ranks after each step.
# - **H** `dist.barrier()` is necessary before a batch is passed to the model; without it a fast rank could average
#   its gradients with those that a slow rank has from the step before.
# - **I** If rank 0 alone downloads the data set, a `dist.barrier()` between the download and the opening of the
#   files keeps the other ranks from opening what is not there yet.
# - **J** With `shuffle=True` each rank's DistributedSampler shuffles for itself. So, even if the number of samples
#   is a multiple of `world_size`, a sample may come up on two ranks in one epoch.
# - **K** If the number of samples is no multiple of `world_size`, DistributedSampler gives some of them out more than
#   once in an epoch, and an accuracy that is taken over its indices counts them as often.
# - **L** If one rank has one batch fewer than the others, DDP takes the mean over the remaining ranks in the last
#   step.
# - **M** `torchrun` with 4 processes on each of two machines sets `WORLD_SIZE` to 8, `RANK` to 0 to 7, each once,
#   and `LOCAL_RANK` to 0 to 3 on each machine.
# - **N** The process at `MASTER_ADDR` and `MASTER_PORT` receives the gradients of all ranks, takes the mean and
#   sends it back.
#
# **Points** 4 · **Difficulty** ●●○ · **Minutes** 25 · **Lines** 1
#
# **Convention** `ddp_facts()` takes nothing and returns a dictionary from the letters `"A"` to `"N"` to `True` or
# `False`. A statement is true only if all of it is. The check names the first verdict that does not agree with
# ours.
#
# **Source** PyTorch documentation of `DistributedDataParallel`, of `DistributedSampler` and of torchrun,
# "Environment Variables"; PyTorch 2.13, `torch/nn/parallel/distributed.py`. (A page of DTU's course asks why the
# barrier of H is necessary; Lambda's guide says in its chapter 2 that the optimizer's step synchronises the
# gradients.)
#
# <details><summary>Hint 1</summary>
#
# Which statements can you settle with `run_ranks` and a model of one layer? The experiments below do so for most of
# them: run them before you answer, if you like, but write down first what you expect.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# For A to F ask of every tensor: who made it, and is there an operation between the ranks in which it takes part?
# For H, I and L: when does an all-reduce end on a rank? For N: what must a process know of another before it can
# send it anything?
#
# </details>


# %% solution="ddp_facts"
def ddp_facts():
    """The verdict on each statement of the text above: a dictionary from the letters "A" to "N" to True or False."""
    ### BEGIN SOLUTION
    return {letter: letter in "ACDEIKM" for letter in "ABCDEFGHIJKLMN"}
    ### END SOLUTION


# %% test="ddp_facts-visible" points=2
check.ddp_facts(ddp_facts)

# %% test="ddp_facts-hidden" points=2
### BEGIN HIDDEN TESTS
check.ddp_facts(ddp_facts, seed=14)
### END HIDDEN TESTS

# %% [markdown]
# **A to F, and H.** Two ranks, one step, no barrier; rank 1 comes half a second late. Every rank notes what it
# sees.


# %% tags=["experiment"]
def one_step(rank, world_size):
    """What a rank sees in one step of a model with two weights: a dictionary from a text to numbers."""
    torch.manual_seed(rank)
    model, x = nn.Linear(2, 1, bias=False), torch.randn(4, 2)
    seen = {"A weights, as drawn by the rank": model.weight.flatten().tolist()}
    with distributed.counted() as traffic:
        ddp = DistributedDataParallel(model)
        seen["A weights, once wrapped"] = model.weight.flatten().tolist()
        alone, optimizer = copy.deepcopy(model), torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        time.sleep(0.5 * rank)
        traffic.clear()
        output = ddp(x)
        seen["B samples in, results out"] = [len(x), len(output)]
        loss = output.square().mean()
        calls = [traffic.calls()]
        loss.backward()
        calls.append(traffic.calls() - sum(calls))
        seen["D own gradient, without DDP"] = torch.autograd.grad(alone(x).square().mean(), alone.weight)[0][0].tolist()
        seen["D gradient after DDP's backward"] = model.weight.grad[0].tolist()
        optimizer.step()
        seen["C operations in forward, backward, step"] = [*calls, traffic.calls() - sum(calls)]
        seen["E momentum"] = optimizer.state[model.weight]["momentum_buffer"][0].tolist()
        seen["F loss"] = [loss.item()]
    return seen


steps = run_ranks(one_step, 2, backend="gloo")
for label in sorted(steps[0]):
    print(f"{label:<40}", *(f"rank {r}:" + "".join(f"{v:8.3g}" for v in step[label]) for r, step in enumerate(steps)))

# %% [markdown]
# Look at the two columns of each line: what is equal in both, and from when on? Rank 1 was late, and the gradient
# is the mean all the same: the all-reduce waited for it. The barrier of H would have made rank 0 wait a little
# earlier, for nothing. The losses of line F stay different; whoever wants the loss of all ranks must ask for it, as
# `weighted_mean` does.
#
# **G.** A BatchNorm layer behind DDP, and shards whose means are 0 on rank 0 and 10 on rank 1.


# %% tags=["experiment"]
def running_means(rank, world_size):
    """The running mean of a rank after each of four passes, and one pass more after which only rank 0's counts."""
    torch.manual_seed(rank)
    ddp = DistributedDataParallel(nn.Sequential(nn.BatchNorm1d(1), nn.Linear(1, 1)))
    means = []
    for _ in range(4):
        ddp(torch.randn(64, 1) + 10 * rank).mean().backward()
        means.append(ddp.module[0].running_mean.item())
    return means


for rank, means in enumerate(run_ranks(running_means, 2, backend="gloo")):
    print(f"rank {rank}: running mean after each pass " + "".join(f"{m:8.3f}" for m in means))

# %% [markdown]
# Over all samples the running mean would go towards 5. On rank 0 it stays near 0. On rank 1 it is near 1 after each
# pass: it begins each time with the value of rank 0, takes one step of 0.1 towards 10, and loses it again.
#
# **J and K.** Ten samples on four ranks, as DistributedSampler gives them out.

# %% tags=["experiment"]
for rank in range(4):
    print(f"rank {rank}: in order", *DistributedSampler(range(10), 4, rank, shuffle=False), end="")
    print(", shuffled", *DistributedSampler(range(10), 4, rank))

# %% [markdown]
# Count the samples: two come twice, which two depends on the order; none is missing.
#
# **L.** Rank 1 has two batches, rank 0 has three. This takes as long as its time limit, some seconds.


# %% tags=["experiment"]
def uneven_batches(rank, world_size):
    ddp = DistributedDataParallel(nn.Linear(2, 1))
    for _ in range(3 - rank):
        ddp(torch.ones(4, 2)).sum().backward()


try:
    run_ranks(uneven_batches, 2, backend="gloo", timeout=5)
except distributed.RankError as error:
    print(error)

# %% [markdown]
# Rank 0 waits in its third backward pass for gradients that will never come. Outside of this notebook it would do
# so until the time limit of the process group ends it, after minutes. That is why samplers make all shards equally
# long; where they cannot be, `ddp.join()`, a context manager around the loop, lets a rank that is done take part
# with zeros.
#
# **M and N.** `run_ranks` sets the variables of a launcher on one machine. There is no `MASTER_ADDR` among them.


# %% tags=["experiment"]
def variables(rank, world_size):
    return {name: os.environ.get(name) for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")}


for found in run_ranks(variables, 2, backend="gloo"):
    print(", ".join(f"{name} {value}" for name, value in found.items()))

# %% [markdown]
# The ranks must meet somewhere to tell each other their addresses. Those of this notebook meet in a file; with
# torchrun they meet at `MASTER_ADDR`, port `MASTER_PORT`. After that they are connected with each other, and the
# gradients take the way of the all-reduce, on which no rank does more than any other.

# %% [markdown]
# ### Why not two?
#
# A colleague moves a training from one GPU to two in the same machine. The global batch stays 64, the model has 100
# million parameters, images are decoded by four loader workers a rank, and every 200 steps rank 0 evaluates while
# the other waits. An epoch takes 600 s instead of 750 s. Write, in about ten lines: what speed-up and what
# efficiency that is, and which serial share it would mean; why it is not 2, with the causes that are likely *here*;
# how to find out which of them it is; what to change first.

# %% [markdown] answer="why-not-twice" points=4
# <!-- BEGIN SOLUTION -->
# The speed-up is 750 / 600 = 1.25, the efficiency 0.625 (strong scaling: the same epoch, the same global batch).
# With Amdahl's law 600 = 750 (s + (1 - s) / 2), so s = 0.6, and no number of GPUs would give more than 1 / 0.6 =
# 1.7. Two measurements fix two numbers exactly, so this is a description and not yet an explanation.
#
# Likely here: each rank has only 32 samples a step, which may not fill a GPU, so the computing takes more than half
# as long. The gradients are 400 MB in every step, whatever the batch; over PCIe that takes tens of milliseconds, of
# which only a part is hidden behind the backward pass. The evaluation runs on one rank. And eight workers may now
# share the cores that four had, so the loading is no faster than before.
#
# To find out, one change at a time, a few hundred steps each, after a warm-up: the step on one GPU with a batch of
# 32 (if that already takes more than half of the time with 64, it is the batch); two ranks with the same batch
# again and again in memory (if this is much faster, it is the loading); the same inside `no_sync()` (the difference
# is the communication that is not hidden); an epoch without evaluation.
#
# First I would give each rank 64 samples, with the learning rate and warm-up that belong to a batch of 128: half as
# many messages an epoch, and fuller GPUs. (Where the batch must stay: accumulation does not help, since there would
# be less in each micro-batch.) Then let both ranks evaluate a half each, and count the cores that the workers need.
#
# === BEGIN MARK SCHEME ===
# **1 point** speed-up 1.25, efficiency 0.625 and serial share 0.6 (or the bound 1.67). Half for two of the three.
#
# **1 point** two causes or more that belong to this case (32 samples a rank, 400 MB a step, evaluation on one rank,
# workers and cores), each with how it acts. A list of general causes earns half. "Python's lock" earns nothing:
# ranks are processes.
#
# **1 point** a measurement that would separate two of the causes, with what each outcome would mean.
#
# **1 point** a change that follows from the case, with its price: a larger global batch is another training
# (learning rate, warm-up); a shared evaluation needs a sum over ranks; fewer bytes (half precision, compression)
# change the gradients.
#
# Take off 1 point for a number that is claimed as measured but was not.
# === END MARK SCHEME ===
# <!-- END SOLUTION -->

# %% [markdown]
# ## More machines
#
# Nothing in the script knows how many machines there are: the launcher says who is who.
# [docs/more-machines.md](../../docs/more-machines.md) is the chapter on it, with launch scripts for torchrun on
# several nodes and for Slurm, what a restart after the death of a rank loses, and how to find a hang.
#
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
