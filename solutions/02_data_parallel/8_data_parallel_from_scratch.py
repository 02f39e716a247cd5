# %% [markdown]
# # Data parallel, part 8: Build DataParallel
#
# **How does one process compute with many devices?**
#
# `nn.DataParallel` is one line, and generally seen as obsolete. It is worth taking apart because everything that it
# does has to be done somewhere in every other way. You write its four steps, scatter, replicate, parallel apply and
# gather, and put them together. All exercises of this part are extra; what DataParallel costs is the matter of part
# 8, which runs without them.
#
# **You will be able to**
#
# - copy a module so that gradients of the copies reach the original
# - run torch in several threads with the caller's modes
# - write the forward of `nn.DataParallel`
#
# **Minutes** 0 core · 145 in all
#
# **Needs** nothing

# %% locked="setup"
import contextlib
import copy
from concurrent.futures import ThreadPoolExecutor

import torch

import course
from course.checks import data_parallel as check
from course.plots import data_parallel as plots

print(course.machine())

# %%
plots.data_parallel_steps()

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
# **Points** 3 · **Extra** · **Difficulty** ●●○ · **Minutes** 30 · **Lines** 14
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
# **Points** 4 · **Extra** · **Difficulty** ●●● · **Minutes** 45 · **Lines** 6
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
# **Points** 4 · **Extra** · **Difficulty** ●●● · **Minutes** 45 · **Lines** 16
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
# **Points** 2 · **Extra** · **Difficulty** ●○○ · **Minutes** 8 · **Lines** 4
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
# **Points** 3 · **Extra** · **Difficulty** ●●○ · **Minutes** 8 · **Lines** 4
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
