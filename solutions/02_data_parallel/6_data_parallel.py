# %% [markdown]
# # Data parallel, part 6: Compare DataParallel with DDP
#
# **What does nn.DataParallel send that DistributedDataParallel need not, and from which batch on do two ranks pay?**
#
# `nn.DataParallel` came first: one process, one line, all devices. Torch's documentation recommends DDP instead, but
# much code still uses it. You compare both, and may build DataParallel afterwards.
#
# **You will be able to**
#
# - say what `nn.DataParallel` does on your machine, which may be nothing
# - compare a star with a ring, in bytes at the busiest device
# - time a step against the model alone, with small and large batches
#
# **Minutes** 15 core · 58 in all · session 2
#
# **Needs** part 8, exercise 1 (the ring)

# %% locked="setup"
import copy
import inspect
import os
from concurrent.futures import ThreadPoolExecutor

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import comm
from torch.utils.data import DataLoader, TensorDataset

import course
from course.checks import data_parallel as check
from course.datasets import fashion
from course.learner.predictions import reveal
from course.parallel import distributed
from course.parallel.distributed import run_ranks
from course.plots import data_parallel as plots
from course.training.models import FashionCNN
from course.training.recommender_loop import keep_freed_memory

print(course.machine())
sizes = course.sizes("02_data_parallel")

data = fashion.load(sizes.dataset)
images, labels = fashion.floats(data.train_images), data.train_labels
gpus = torch.cuda.device_count() if course.device().type == "cuda" else 0

# %% [markdown]
# ## What does one line do on this machine?
#
# `nn.DataParallel(model)` divides each batch among the GPUs of its process.
#
# Predict: a batch of 16 images goes through the wrapped model on this machine. How many images does one call of the
# model's own forward see?

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

# %% [markdown]
# With fewer than two GPUs it passes the whole batch to your model and copies nothing. So a "DataParallel benchmark" on
# a CPU measures the bare model.
#
# **Takeaway** Below two GPUs, `nn.DataParallel` silently does nothing. Look at `device_ids` before you time it.

# %% [markdown]
# ## How much passes through the first device?
#
# One process owns batch, model and loss. In every step it *scatters* shards of the batch to the other devices,
# *replicates* the model there, and *gathers* the outputs. Backward goes the same way in reverse and adds the
# gradients of all *replicas* to the original model's. Then the replicas are thrown away, so the next step sends the
# whole model again.

# %%
plots.data_parallel_steps()

# %% [markdown]
# If the first device sends each message itself, this is a *star*. Compare it with DDP on a ring (part 8), where a rank
# sends 2 (N - 1) / N of the gradients and receives as much. Each device has 64 images.
#
# Predict: with 8 devices, how many times as much passes through the centre of the star as through a rank of the ring?

# %%
predicted_ratio = None  # a factor

# %% tags=["experiment"]
model_bytes = sum(w.nbytes for w in FashionCNN(norm=None).parameters())
devices, busiest = (2, 4, 8, 16, 32, 64), {}
for n in devices:
    shard_and_outputs = 64 * images[0].nbytes + 2 * 64 * 10 * 4  # out, back, and the gradient of the outputs
    first = (n - 1) * (2 * model_bytes + shard_and_outputs)  # the model out, its gradients back
    busiest[n] = first, 4 * (n - 1) / n * model_bytes  # a rank sends 2 (N - 1) / N of it and receives as much
    print(f"{n:>2} devices: the star {first / 1e6:8.1f} MB, a rank of the ring {busiest[n][1] / 1e6:5.1f} MB, "
          f"ratio {first / busiest[n][1]:.1f}" + reveal(predicted_ratio) * (n == 8))  # fmt: skip
ratio = busiest[64][0] / busiest[64][1]
course.claim("with 64 devices, the first device of a star moves over ten times the bytes of a rank of the ring",
             ratio > 10,
             f"{ratio:.0f} times")  # fmt: skip
plots.busiest_bytes(devices, *zip(*busiest.values(), strict=True), model_bytes)

# %% [markdown]
# Is `nn.DataParallel` a star? On GPUs with NCCL, its source calls two collectives:

# %% tags=["experiment"]
for function, call in ((comm.broadcast_coalesced, "torch._C._broadcast_coalesced"), (comm.reduce_add, "nccl.reduce(")):
    lines, first = inspect.getsourcelines(function)
    for number, line in enumerate(lines, first):
        if call in line:
            print(f"torch/nn/parallel/comm.py, {function.__name__}, line {number}: {line.strip()}")

# %% [markdown]
# The weights go out in a broadcast and the gradients come back in a reduce. NCCL decides how to route these, so the
# first GPU need not send N models.
#
# **Takeaway** DataParallel moves model and gradients in every step, DDP only gradients. As a star, its first device
# carries about N/2 times as much as a rank of the ring.

# %% [markdown]
# ## And in seconds?
#
# The model alone, `nn.DataParallel` and DDP with two ranks compute the same batch, interleaved, with one core (or GPU)
# per rank. Below two GPUs `nn.DataParallel` is the model alone, so its curve is a second control.
#
# Predict, for the smallest and the largest batch: how long is a step of DDP, in steps of the model alone?

# %%
predicted_smallest = None
predicted_largest = None


# %% tags=["experiment"]
STEP, WRAPPED_STEP, DDP_STEP = "step, the model alone", "step, nn.DataParallel", "step, DDP"
FORWARD, WRAPPED_FORWARD = "forward, the model alone", "forward, nn.DataParallel"


def side_by_side(rank, world_size, wrap, images, labels, batches, seconds):
    """A Comparison for each of `batches`: forward alone and wrapped; step alone, wrapped and with DDP."""
    on_gpus = dist.get_backend() == "nccl"
    if not on_gpus:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""  # or nn.DataParallel takes the only GPU
    device = torch.device("cuda", rank) if on_gpus else torch.device("cpu")
    devices = [f"cuda:{i}" for i in range(world_size)] if on_gpus else ["cpu"] * world_size
    torch.set_num_threads(1)
    keep_freed_memory()
    found = []
    for n in batches:
        whole = images[:n].to(device), labels[:n].to(device)
        shard = [t.chunk(world_size)[rank] for t in whole]
        alone, dp, ddp = (FashionCNN(dropout=0.0, norm=None).to(device) for _ in range(3))
        wrapped = wrap(dp, devices)
        ways = {STEP: distributed.sgd_step(alone, whole), WRAPPED_STEP: distributed.sgd_step(wrapped, whole)}
        for name, m in ((FORWARD, alone), (WRAPPED_FORWARD, wrapped)):
            ways[name] = torch.no_grad()(lambda m=m, x=whole[0]: m(x))
        if rank:  # it takes part in DDP only
            ways = dict.fromkeys(ways, lambda: None)
        ways[DDP_STEP] = distributed.sgd_step(nn.parallel.DistributedDataParallel(ddp), shard)
        found.append(distributed.compare_on_ranks(ways, seconds=seconds / len(batches)))
    return found


def compared(wrap):
    """The Comparisons of `side_by_side`, printed: how many times as long as the model alone the others take."""
    found = run_ranks(side_by_side, 2, wrap, images, labels, batches, sizes.seconds, timeout=300)[0]
    for n, of_batch in zip(batches, found, strict=True):
        print(f"batch {n:>5}, in times of the model alone: DataParallel forward "
              f"{of_batch.ratio(FORWARD, to=WRAPPED_FORWARD)}, step {of_batch.ratio(STEP, to=WRAPPED_STEP)}; DDP step "
              f"{of_batch.ratio(STEP, to=DDP_STEP)}; the model against itself {of_batch.control}")  # fmt: skip
    return found


def ready_made(module, devices):
    return nn.DataParallel(module, None if "cpu" in devices else devices)


batches = [n for n in sizes.batches if n >= 4][:4]
found = compared(ready_made)
smallest, largest = (found[i].ratio(STEP, to=DDP_STEP) for i in (0, -1))
print(f"DDP: smallest {smallest}" + reveal(predicted_smallest) + f", largest {largest}" + reveal(predicted_largest))
course.claim("with the largest batch, a step of DDP on two ranks is at least 1.3 times as fast as the model alone",
             found[-1].ratio(DDP_STEP, to=STEP), above=1.3,
             otherwise="Look in the figure for a batch at which two ranks are faster.")  # fmt: skip
course.claim("with the smallest batch, a step of DDP on two ranks takes at least 1.3 times as long as the model alone",
             smallest, above=1.3, otherwise="On your machine even this batch gains from two ranks.")  # fmt: skip
print(course.machine())
names = [FORWARD, WRAPPED_FORWARD, STEP, WRAPPED_STEP, DDP_STEP]
curves = {name: [of_batch.time(name) for of_batch in found] for name in names}
title = (f"In steps of the model alone, DDP takes {smallest.estimate:.2f} at batch {batches[0]} and "
         f"{largest.estimate:.2f} at {batches[-1]}")  # fmt: skip
plots.per_image(batches, curves, title)

# %% [markdown]
# Two ranks need half the time at best. They send the same gradients whatever the batch is, so a small batch pays the
# same message for less work.
#
# **Takeaway** Two ranks pay from the batch on whose computing outweighs its messages. Time DDP at *your* batch size.

# %% [markdown]
# ## Appendix: how does one process compute on many devices? · extra
#
# You build the star. We call its devices *places*, because the list may hold the same device several times. All data
# goes through `transfers = distributed.Transfers(devices)`, which counts messages. `transfers.send(tensors, source,
# target)` sends a list of tensors from one place to another as one message and returns the copies. Gradients flow back
# through the copies. Place 0, the first device, sends to itself, too.

# %% [markdown]
# ### Exercise 1 · Scatter a batch
#
# Cut a batch into shards, and send each to its device. A batch is a tensor or a container of tensors; `walk`, which is
# given, calls a function on each of them. On 4 devices, 5 rows become 3 shards of 2, 2 and 1 rows, as `torch.chunk`
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
# Two steps are given. `replicate` makes modules whose parameters are *copies*, through which gradients reach the
# originals. `parallel_apply` runs each replica in its own thread.


# %% locked="replicate"
def replicate(module, transfers, n):
    """Copies of a module on the first n devices, through which gradients flow back to the module."""
    tensors = [*module.parameters(), *module.buffers()]  # each once, also a tied one
    replicas = []
    for place in range(n):
        copies = transfers.send(tensors, 0, place)
        memo = {id(tensor): copied for tensor, copied in zip(tensors, copies, strict=True)}
        replicas.append(copy.deepcopy(module, memo))  # what the memo holds takes the place of the tensors
    return replicas


def parallel_apply(replicas, parts):
    """The outputs replica(part) of all replicas, each computed in its own thread."""
    grad = torch.is_grad_enabled()  # a setting of the thread: a new one starts with torch's own

    def run(replica, part):
        with torch.set_grad_enabled(grad):
            return replica(part)

    with ThreadPoolExecutor(len(replicas)) as pool:
        return list(pool.map(run, replicas, parts))


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
# Predict: one forward on 4 devices, a small batch of images. Of the bytes that go from one device to another, what
# percentage is copies of the model?

# %%
predicted_percent = None  # 0 to 100

# %% tags=["experiment"]
places = [f"cuda:{i}" for i in range(gpus)] if gpus > 1 else [course.device()] * 4
model = FashionCNN(dropout=0.0, norm=None).to(places[0]).eval()
n_images = len(places) * (sizes.batch_size // len(places))
batch, targets = images[:n_images].to(places[0]), labels[:n_images].to(places[0])
data_parallel_now = course.solved(check.data_parallel)
transfers = distributed.Transfers(places)
outputs = data_parallel_now(model, batch, transfers)
difference = (outputs - model(batch)).abs().max().item()
print(f"{len(places)} places: {', '.join(map(str, dict.fromkeys(places)))}")
print(f"largest difference to the model alone: {difference:.1e}")
print(f"messages of the forward: {len(transfers.log)}, of them from one place to another: {len(transfers.crossing)}")
model_bytes = sum(w.nbytes for w in model.parameters())
sent = sum(size for _, _, size in transfers.crossing)
share = (len(places) - 1) * model_bytes / sent
print(f"copies of the model: {100 * share:.1f} % of {sent:,} bytes that cross" + reveal(predicted_percent))
F.cross_entropy(outputs, targets).backward()
back = [size for source, target, size in transfers.returned if source != target]
print(f"messages of the backward: {len(transfers.returned)}, of them from one place to another: {len(back)}")
course.claim(
    "more than nine tenths of the bytes that cross are copies of the model",
    share > 0.9,
    f"{share:.3f}",
    otherwise="Compare the bytes of your batch with those of the model.",
)

# %% [markdown]
# Is yours faster than the model alone, with two threads?


# %% tags=["experiment"]
class Star(nn.Module):
    """`data_parallel_now` around a module."""

    def __init__(self, module, devices):
        super().__init__()
        self.module, self.devices = module, devices

    def forward(self, x):
        return data_parallel_now(self.module, x, distributed.Transfers(self.devices))


found = compared(Star)
course.claim("with the largest batch, the forward of your DataParallel is at least 10 % faster than the model alone",
             found[-1].ratio(WRAPPED_FORWARD, to=FORWARD), above=1.1,
             otherwise="Look for a batch at which two threads are faster.")  # fmt: skip
course.claim("with the largest batch, a step of DDP is at least 10 % faster than one of your DataParallel",
             found[-1].ratio(DDP_STEP, to=WRAPPED_STEP), above=1.1)  # fmt: skip

# %% [markdown]
# Find the batch from which on your forward wins. Below it, copying the model costs more than a second thread gains.
#
# **Takeaway** Of the bytes that a forward sends between places, 99 % are copies of the model.

# %% [markdown]
# ## The unit on one page
#
# | symptom | measurement | fix |
# |---|---|---|
# | nothing happens, no error | which rank waits in which line (part 1) | same calls, same order, on all ranks |
# | a hang costs ten minutes or more | seconds until the error (part 4) | a time limit for the group, checkpoints |
# | N ranks are not N times as fast | a step at 1/N of the batch (part 5) | a larger batch per rank, overlap |
# | the step waits for messages | bytes per rank, bandwidth (parts 8, 2) | buckets, overlap |
# | no error, the model is bad | the weights of two ranks (part 2) | average gradients, broadcast at the start |
# | each epoch has the same order | the first indices of the sampler (part 4) | `sampler.set_epoch(epoch)` |
# | the mean is a little wrong | the same batch on one process (part 3) | weight each rank by its samples |
# | the model does not fit | bytes per rank (part 7) | `fully_shard` |

# %% [markdown]
# ## On your own training
#
# **How much would more ranks help?**
#
# `course.checkup` watches your training. From the bytes of your gradients and your step it predicts how efficient DDP
# would be on more ranks (if you have solved `all_reduce_seconds` in part 8). Replace `loader` and `step` with your own.
# Where several ranks train already, `torchrun --nproc-per-node 2 -m course.checkup train.py` names the rank that all
# others wait for.

# %% tags=["experiment"]
network = FashionCNN().to(course.device())
optimizer = torch.optim.SGD(network.parameters(), lr=0.05)
loader = DataLoader(TensorDataset(images[:512], labels[:512]), 16, shuffle=True)


def step(batch):
    """Train on one batch."""
    images, labels = (part.to(course.device()) for part in batch)
    optimizer.zero_grad()
    F.cross_entropy(network(images), labels).backward()
    optimizer.step()


print(course.checkup(loader, step, steps=20, only_watch=True))

# %% [markdown]
# **Takeaway** Ask what the messages would cost *before* you rent a second GPU.
