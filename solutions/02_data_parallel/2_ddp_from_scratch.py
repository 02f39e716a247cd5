# %% [markdown]
# # Data parallel, part 2: Build DistributedDataParallel
#
# **What must be sent, and when, so that N models stay equal?**
#
# You look at what torch's wrapper sends and write one that keeps the models equal.
#
# **You will be able to**
#
# - say what DDP sends at construction and in each step
# - write the wrapper, with a message per parameter or with buckets
# - find out whether replicas have drifted apart
#
# **Minutes** 26 core · 95 in all · session 2
#
# **Needs** part 1 (`run_ranks`); exercises of other parts are not used

# %% locked="setup"
import contextlib
import itertools
import math
import statistics
import time

import torch
import torch.distributed as dist
from torch import nn

import course
from course import figures
from course.checks import data_parallel as check
from course.datasets import fashion
from course.learner.predictions import reveal
from course.parallel import distributed
from course.parallel.distributed import run_ranks
from course.parallel.slow_wire import slow_wire
from course.plots import data_parallel as plots
from course.training.models import FashionCNN

print(course.machine())
sizes = course.sizes("02_data_parallel")

# %% [markdown]
# ## What does a step send?
#
# The model of this unit is a small convolutional network for Fashion-MNIST. If you have not downloaded the data, we use
# ten kinds of synthetic garment in the same format.

# %% tags=["experiment"]
data = fashion.load(sizes.dataset)
images, labels = fashion.floats(data.train_images), data.train_labels
weights = list(FashionCNN().parameters())
print(f"{len(images):,} images; {sum(w.numel() for w in weights):,} weights in {len(weights)} tensors, "
      f"{sum(w.nbytes for w in weights) / 1e6:.1f} MB")  # fmt: skip
plots.pictures([data.train_images[labels == k][0] for k in range(10)], fashion.CLASSES)

# %% [markdown]
# `DistributedDataParallel(model)` wraps the model on each rank, here without its normalization: ten tensors.
# `counted()` lists every collective that a rank calls, with its bytes.
#
# Predict: how many all-reduces does the second backward of this model start?

# %%
predicted_all_reduces = None  # a number


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
started = sum(operation == "all_reduce" for operation, _ in second)
print(f"all-reduces of the second backward: {started}" + reveal(predicted_all_reduces))
print(f"sent by rank 0 in it: {sent / 1e6:.2f} MB, counted by Linux")

# %% [markdown]
# At construction DDP sends the weights, once: 5.9 MB. In every step it sends the gradients, once. The first backward
# sends one message and learns in which order gradients arrive. Then torch cuts *buckets*, here two, and rank 0 tells
# the others how, in 44 and 8 bytes. `optimizer.step()` sends nothing (part 5 counts it).
#
# **Takeaway** DDP sends the weights once and the gradients in every step.

# %% [markdown]
# ## What keeps the replicas equal?
#
# Each rank holds a *replica* of the model. If they start with the same weights, and every optimizer steps with the same
# gradients, they are equal after the step, to the last bit. So are the optimizers' states.
#
# - Weights drawn from a different seed on each rank break this. So the wrapper sends rank 0's parameters when it is
#   made, and its *buffers*: tensors that belong to the model and are not trained, such as running means.
# - An all-reduce gives the *sum*, and you want the mean. Without the division, SGD's steps are `world_size` times too
#   long.
# - If one rank did not use a parameter, its `grad` is None there. That rank must call `all_reduce` anyway: all ranks
#   must make the same calls in the same order. Otherwise one parameter's gradient may be added to another's.

# %% [markdown]
# ### Exercise 1 · The naive version
#
# Write the wrapper with two plain loops. The training loop calls `loss.backward()`, `model.average_gradients()`,
# `optimizer.step()`. If a `grad` is 1 on rank 0 and None on rank 1, it becomes 0.5 on both.
#
# **Points** 4 · **Core** · **Difficulty** ●●○ · **Minutes** 20 · **Lines** 11
#
# **Must**
#
# - keep the module as `module`, and give all its parameters and buffers the values of rank 0, in place
# - pass all arguments of `forward` on, and send nothing there
# - in `average_gradients`, turn each `grad` into the mean over all ranks by one `all_reduce` per trainable parameter,
#   where None counts as zeros
#
# **You may assume** contiguous, dense tensors.
#
# **Not allowed** `torch.nn.parallel.DistributedDataParallel`, also as a base class.
#
# **Source** Li et al. 2020, "PyTorch Distributed", VLDB 13(12), arXiv:2006.15704, section 3.2.1.
#
# <details><summary>Hint 1</summary>
#
# What does the rank with `grad` None do while the others wait in `all_reduce`?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `module.parameters()` gives a tied parameter once, `module.buffers()` every buffer; `module.state_dict()` gives tied
# parameters twice and leaves some buffers out. `tensor.detach()` shares its memory with the parameter, and autograd
# lets you write into it.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# For every parameter with `requires_grad`: if its `grad` is None, set it to `torch.zeros_like(p)`; then
# `dist.all_reduce(p.grad)`, which sums in place, and `p.grad /= dist.get_world_size()`. (PyTorch's wrapper with
# `find_unused_parameters=True` leaves a gradient that no rank has at None, which costs one more message.)
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
        return self.module(*args, **kwargs)

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
# ## Can messages travel while backward computes? · extra
#
# The naive version sends nothing while backward runs and computes nothing while it sends. But backward runs from the
# last layer to the first, so the last layer's gradient is ready long before backward ends. DDP uses that:
#
# - It fills buckets with parameters, last first. Ours close *before* they exceed `bucket_bytes`, torch's *after*, so
#   one large tensor can make a bucket that is larger than its cap.
# - A hook runs for each gradient that is ready: `p.register_post_accumulate_grad_hook(f)` calls `f(p)`.
# - When all gradients of a bucket are ready, DDP starts one asynchronous all-reduce for it and continues.
# - At the end of backward it waits for all of them (`queue_callback`).
#
# Every rank sends its buckets in the order 0, 1, 2, …, even if its gradients arrive in another order. Otherwise the
# ranks would add up different buckets.

# %% [markdown]
# ### Exercise 2 · The overlapped version
#
# Write what happens during backward; the rest is given. `arrived(k)` is called once for each gradient of bucket k. With
# two buckets of two gradients that arrive in the order 1, 1, 0, 0, nothing can leave until the last call, which
# launches both.
#
# **Points** 6 · **Extra** · **Difficulty** ●●● · **Minutes** 30 · **Lines** 11
#
# **Must**
#
# - in `arrived`, launch every bucket that is complete, in order
# - in `launch`, write the gradients of the next bucket into its buffer, divided by the world size, with zeros for None
# - let each `p.grad` be its view of the buffer, and start one asynchronous `all_reduce` per bucket
#
# **You may assume** one dtype and device; each backward uses some parameter.
#
# **Not allowed** `torch.nn.parallel.DistributedDataParallel`.
#
# **Source** Li et al. 2020, arXiv:2006.15704, sections 3.2.2 to 3.3.
#
# <details><summary>Hint 1</summary>
#
# `self.works` has one entry per launched bucket. So which number does the next bucket have?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `self.missing[k]` counts the gradients that bucket k still misses. Every call subtracts 1 for its bucket, then
# launches *while* the next bucket misses nothing.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# `launch` writes each gradient into its view, `torch.div(p.grad, world_size, out=view)`, or `view.zero_()` for None,
# and sets `p.grad = view`, so the mean need not be copied back. Then
# `self.works.append(dist.all_reduce(flat, async_op=True))`.
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

    def forward(self, *args, **kwargs):
        """What the module returns for these arguments."""
        return self.module(*args, **kwargs)

    def arrived(self, k):
        """None; called by a hook for each gradient that backward has finished, one of bucket `k`."""
        if not self.sending:
            return
        if self.missing is None:  # the first gradient of this backward
            self.missing = [len(members) for _, members in self.buckets]
            torch.autograd.Variable._execution_engine.queue_callback(self.finish)
        ### BEGIN SOLUTION
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
        while len(self.works) < len(self.buckets):
            self.launch()
        for work in self.works:
            work.wait()
        self.missing, self.works = None, []

    @contextlib.contextmanager
    def no_sync(self):
        """A context in which backward sends nothing; how the block is left makes no difference."""
        before, self.sending = self.sending, False
        try:
            yield
        finally:
            self.sending = before


# %% test="OverlappedDDP-visible" points=3
check.OverlappedDDP(OverlappedDDP)

# %% test="OverlappedDDP-hidden" points=3
### BEGIN HIDDEN TESTS
check.OverlappedDDP(OverlappedDDP, seed=13)
### END HIDDEN TESTS

# %% [markdown]
# ### How much does overlap save?
#
# `slow_wire` gives each rank a simulated network card. It sends one message after the other, once both ranks have
# started it, in at least `bytes / bandwidth` seconds. The model here has eight equal layers, so backward, which takes a
# time *B*, finishes a layer about every *B*/8. Suppose that the card also needs *B* for all gradients together. Then
# one message after backward ends at 2 *B*.
#
# Predict: which share of 2 *B* is left with the best bucket size: 1, 2, 4 or 8 layers?

# %%
predicted_share = None  # overlapped / one message after backward, a number from 0 to 1


# %% tags=["experiment"]
class FlatDDP(nn.Module):
    """One all-reduce after backward: bucketed as far as can be, overlapped not at all."""

    def __init__(self, module):
        super().__init__()
        self.module, self.trained = module, list(module.parameters())

    def forward(self, x):
        return self.module(x)

    def average_gradients(self):
        flat = torch.cat([p.grad.flatten() for p in self.trained])
        dist.all_reduce(flat)
        flat /= dist.get_world_size()
        for p, piece in zip(self.trained, flat.split([p.numel() for p in self.trained]), strict=True):
            p.grad.copy_(piece.view_as(p))


LAYERS = 8
PLAIN, FLAT = "no wrapper", "one message after backward"  # and the buckets, by their bytes


def backward_on_the_wire(wrap, width, wire):
    """A function without arguments: one backward, recorded, of a model of LAYERS layers under `wrap` on a Wire."""
    torch.manual_seed(0)
    module = nn.Sequential(*(m for _ in range(LAYERS) for m in (nn.Linear(width, width), nn.ReLU())))
    x, hooks = torch.randn(width, width), []
    for i, p in enumerate(module.parameters()):  # before the hooks of the wrapper
        p.register_post_accumulate_grad_hook(lambda p, i=i: hooks.append((i, time.perf_counter())))
    model = wrap(module)

    def run():
        model.zero_grad()
        loss = model(x).square().mean()
        dist.barrier()
        hooks.clear()
        wire.messages.clear()
        start = time.perf_counter()
        loss.backward()
        getattr(model, "average_gradients", lambda: None)()
        seconds = time.perf_counter() - start
        sent = [[m.launched, m.started, m.ended, m.waited or m.ended] for m in wire.messages]
        return {"seconds": seconds, "hooks": [(i, t - start) for i, t in hooks],
                "sent": torch.tensor(sent, dtype=torch.float64).sub(start).tolist(),
                "bytes": [m.bytes for m in wire.messages]}  # fmt: skip

    return run


def overlap_in_rank(rank, world_size, overlapped, width, caps, loads, seconds):
    """Per load (bandwidth, Comparison, {way: records of its runs}) of the ways PLAIN, FLAT and each of `caps`."""
    torch.set_num_threads(1)
    with slow_wire() as wire:
        wraps = {PLAIN: lambda m: m, FLAT: FlatDDP}
        wraps |= {cap: lambda m, cap=cap: overlapped(m, bucket_bytes=cap) for cap in caps}
        runs = {way: backward_on_the_wire(wrap, width, wire) for way, wrap in wraps.items()}
        alone = torch.tensor([runs[PLAIN]()["seconds"] for _ in range(4)][1:]).median()
        dist.all_reduce(alone, dist.ReduceOp.MAX)
        found = []
        for load in loads:
            wire.bandwidth = 4 * LAYERS * (width + 1) * width / (load * alone.item())
            records = {way: [] for way in runs}

            def measure(way, records=records):
                records[way].append(runs[way]())
                return records[way][-1]["seconds"]

            compared = distributed.compare_measured_on_ranks(list(runs), measure, seconds=seconds)
            found.append((wire.bandwidth, compared, records))
        return found


layer_bytes = 4 * (sizes.overlap_width + 1) * sizes.overlap_width
layers_per_bucket, loads = [1, 2, 4, 8], {"fast": 0.25, "medium": 1.0, "slow": 4.0}
caps = [n * layer_bytes for n in layers_per_bucket]
overlapped_now = course.solved(check.OverlappedDDP)
found = run_ranks(overlap_in_rank, 2, overlapped_now, sizes.overlap_width, caps, list(loads.values()),
                  sizes.seconds / 3, backend="gloo", timeout=300)  # fmt: skip
_, _, records = found[0][1]
plots.overlap_lanes({FLAT: records[FLAT][-1], "a bucket per layer": records[caps[0]][-1]})

# %% [markdown]
# This is one round. A tick is a hook: a gradient is ready. A bar on the wire is a message; the bar below it shows when
# the wrapper only waits. In the upper half the wire is idle while backward runs. In the lower half both work. Does
# backward take longer there?
#
# From such times you can compute when the last message ends. Buckets leave in order, each when its last gradient is
# there.


# %% locked="last_message_ends"
def last_message_ends(ready, seconds):
    """Seconds after which the last message is back.

    Args:
        ready: when each bucket is complete, in seconds from the start of backward, in the order of launches.
        seconds: how long the card needs for each.
    """
    end = 0.0
    for launched, duration in zip(ready, seconds, strict=True):
        end = max(end, launched) + duration  # it waits for its gradients, and for the message before
    return end


# %% tags=["experiment"]
def median_hooks(rounds_of_plain):
    """When the gradient of each parameter is there without a wrapper, and when backward ends: medians, in seconds."""
    hooks = torch.tensor([[t for _, t in sorted(run["hooks"])] for run in rounds_of_plain], dtype=torch.float64)
    return hooks.median(0).values, statistics.median(run["seconds"] for run in rounds_of_plain)


predicted, measured, flat, needs = {}, {}, {}, {}
for wire, (bandwidth, compared, records) in zip(loads, found[0], strict=True):
    hooks, backward_ends = median_hooks(records[PLAIN])
    needs[wire] = LAYERS * layer_bytes / bandwidth / backward_ends
    predicted[wire] = []
    for n in layers_per_bucket:
        first_layers = range(LAYERS - n, -1, -n)  # of each bucket, the last bucket of layers first
        ready = [hooks[2 * first : 2 * (first + n)].max().item() for first in first_layers]
        predicted[wire].append(last_message_ends(ready, [n * layer_bytes / bandwidth] * len(ready)) / backward_ends)
    measured[wire] = [compared.ratio(PLAIN, to=cap) for cap in caps]  # in backwards
    flat[wire] = compared.ratio(PLAIN, to=FLAT).estimate
    one, best = measured[wire][-1].estimate, min(interval.estimate for interval in measured[wire])
    print(f"{wire} wire, needs {needs[wire]:.1f} B: one bucket {one:.2f} B, overlapped at best {best:.2f} B, "
          f"{best / one:.2f} of it (computed: {min(predicted[wire]) / predicted[wire][-1]:.2f}); "
          f"{compared.rounds} rounds, no wrapper against itself {compared.control}"
          + reveal(predicted_share) * (wire == "medium"))  # fmt: skip
plots.overlap_sweep(layers_per_bucket, predicted, measured, flat, needs)

# %% [markdown]
# Which is nearer to the truth: the computed time, or the assumption that nothing overlaps, *B* + *W*? The next cell
# divides each measured time with a bucket per layer by the number halfway between the two (their geometric mean).
# Below 1, the computed time is nearer.

# %% tags=["experiment"]
nearness = {}
for wire in loads:
    halfway = (predicted[wire][0] * (1 + needs[wire])) ** 0.5
    nearness[wire] = measured[wire][0].scaled(1 / halfway)
    print(f"{wire} wire, a bucket per layer: {measured[wire][0]} B, computed {predicted[wire][0]:.2f} B, "
          f"without overlap {1 + needs[wire]:.2f} B")  # fmt: skip
otherwise = "Backward itself takes longer while messages travel."
course.claim("on the slow wire, the time computed for a bucket per layer is nearer to the measured one than the time "
             "without overlap", nearness["slow"], below=1, otherwise=otherwise)  # fmt: skip
course.claim("on the medium wire, the time computed for a bucket per layer is nearer to the measured one than the time "
             "without overlap", nearness["medium"], below=1, otherwise=otherwise)  # fmt: skip
course.claim("on the fast wire, the time computed for a bucket per layer is nearer to the measured one than the time "
             "without overlap", nearness["fast"], below=1, otherwise=otherwise)  # fmt: skip
compared = found[0][1][1]
course.claim("on the medium wire, a bucket per layer is at least 10 % faster than one bucket of all layers",
             compared.ratio(caps[0], to=caps[-1]), above=1.1)  # fmt: skip

# %% [markdown]
# With a bucket per layer and a wire that needs *W*, overlapping should leave *B* + *W*/8 on a fast wire and *B*/8 + *W*
# on a slow one. So it should save most where *W* equals *B*.
#
# Where the measured times lie above the computed ones, look at the two lanes above: the formula takes backward's time
# from a run without messages. **We think** that backward slows down while messages travel because our simulated card
# copies and adds with the same cores. A real card would not; with a spare core per rank the gap should close.
#
# **Takeaway** Overlap can hide the shorter of backward and messages, so it saves at most half, where both are equal.

# %% [markdown]
# ## Which bucket size hides the messages? · extra
#
# The figure computes the timeline of a step from your measurements: when each layer's gradient was ready without a
# wrapper, and the bandwidth of the medium wire. A bucket is sent as soon as it holds so many megabytes.
#
# **Which bucket size leaves the shortest wait? And how much must a message cost, whatever its size, until one message
# for all layers is as good?**

# %% tags=["experiment"]
bandwidth, _, records = found[0][1]  # of the medium wire
hooks, _ = median_hooks(records[PLAIN])
activation_mb = 4 * sizes.overlap_width**2 / 1e6  # what the layer keeps of its input
layers = []
before = 0.0
for number in reversed(range(LAYERS)):
    ready = 1000 * hooks[2 * number : 2 * number + 2].max().item()  # weight and bias
    layers.append(figures.Layer(f"layer {number}", ready - before, layer_bytes / 1e6, activation_mb))
    before = ready
figures.step_timeline(layers, bucket_mb=LAYERS * layer_bytes / 1e6, gbit=8 * bandwidth / 1e9, latency_ms=0.0)

# %% [markdown]
# While backward frees activations, gradients take their place. So the bucket size changes the time, but not the memory.
#
# **Takeaway** Small buckets start early, and each pays for one more message. The best size is the smallest at which
# these costs stay hidden behind backward.

# %% [markdown]
# ## How do you notice that replicas drift apart? · extra
#
# Replicas that drift apart raise no error. Here is a hook from a public teaching code, rebuilt in our own lines. It is
# meant to average each gradient over all ranks as soon as it is there.


# %% locked="published_hook"
def published_hook(gradient):
    """A hook that is to average a gradient over all ranks, as found in the wild.  Do not use it."""
    dist.all_reduce(gradient)
    gradient.div_(dist.get_world_size())


# %% [markdown]
# Two ranks each fit one number, 1 on rank 0 and 5 on rank 1. Both start with the weight 0, so the mean gradient leads
# both to 3. What do you expect in the column "after backward"?


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
    """Print what `weights_of` found on two ranks."""
    print("step  rank  before backward  after backward  after step")
    for step, ranks in enumerate(zip(*run_ranks(weights_of, 2, hook, backend="gloo"), strict=True)):
        for rank, (before, after, stepped) in enumerate(ranks):
            print(f"{step:4}  {rank:4}  {before:15.3f}  {after:14.3f}  {stepped:10.3f}")


show_weights(published_hook)

# %% [markdown]
# Backward must not touch the weights, and here it does. The hook is given the *parameter*, takes it for the gradient
# and averages the weights. No gradient is ever sent, so after every step the ranks differ.

# %% [markdown]
# ### Exercise 3 · Fix the hook
#
# Write the hook so that it does what it was meant to do. A `grad` of 2 on rank 0 and 4 on rank 1 becomes 3 on both.
#
# **Points** 2 · **Extra** · **Difficulty** ●○○ · **Minutes** 5 · **Lines** 2
#
# **Must**
#
# - leave in `parameter.grad` its mean over all ranks, by one `all_reduce`
# - leave the parameter as it is, and return None
#
# **You may assume** that it is registered on every trainable parameter of equal replicas.
#
# **Source** github.com/huggingface/picotron, class `DataParallelNaive`, since commit d0efdcc; PyTorch's documentation
# of `Tensor.register_post_accumulate_grad_hook`.
#
# <details><summary>Hint 1</summary>
#
# Who may change the parameter, the hook or the optimizer? And where does autograd keep its gradient?
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
# The same experiment with your hook:

# %% tags=["experiment"]
show_weights(course.solved(check.average_hook))

# %% [markdown]
# **Takeaway** Compare the weights of two ranks now and then: replicas that drift apart raise no error, and you save the
# model of one of them.

# %% [markdown]
# ## How fast is each wrapper? · extra
#
# We time four ways to average the gradients, interleaved, with the same model and batch on two ranks. *Flat* sends all
# gradients in one buffer after backward. No wire is delayed here.
#
# Predict: by what factor is a step slower with the naive wrapper than with torch's DDP?

# %%
predicted_naive = None  # step time of NaiveDDP over that of torch's DDP


# %% tags=["experiment"]
def step_seconds(rank, world_size, wrappers, batch, seconds):
    """The Comparison of a step with each of `wrappers`, on a device of this rank's own, or on one core."""
    device = torch.device("cuda", rank) if dist.get_backend() == "nccl" else torch.device("cpu")
    torch.set_num_threads(1)
    batch = [t.to(device) for t in batch]
    models = {name: wrap(FashionCNN(dropout=0.0, norm=None).to(device)) for name, wrap in wrappers.items()}
    steps = {name: distributed.sgd_step(model, batch) for name, model in models.items()}
    return distributed.compare_on_ranks(steps, seconds=seconds)


wrappers = {
    "torch": nn.parallel.DistributedDataParallel,
    "naive": course.solved(check.NaiveDDP),
    "flat": FlatDDP,
    "overlapped": course.solved(check.OverlappedDDP),
}
batch = images[: sizes.batch_size], labels[: sizes.batch_size]
compared = run_ranks(step_seconds, 2, wrappers, batch, sizes.seconds, timeout=300)[0]
print(compared)
longer = {name: compared.ratio("torch", to=name) for name in wrappers if name != "torch"}
print(f"naive: {longer['naive']} of the step time of torch's DDP" + reveal(predicted_naive))
course.claim("a message per parameter makes a step at least 5 % longer than torch's buckets do", longer["naive"],
             above=1.05)  # fmt: skip
course.claim("one message for all gradients makes a step at most 5 % longer or shorter than torch's buckets do",
             longer["flat"], within=(0.95, 1.05))  # fmt: skip
largest = max(p.nbytes for p in FashionCNN(norm=None).parameters())
share = largest / sum(p.nbytes for p in FashionCNN(norm=None).parameters())
print(f"the largest tensor holds {share:.0%} of the model's bytes\n{course.machine()}")
title = (
    f"Naive takes {longer['naive'].estimate:.2f} times as long as torch's DDP (2 ranks, batch {sizes.batch_size} each)"
)
plots.step_ratios(compared, title)

# %% [markdown]
# A message per parameter pays the fixed cost of a message many times. The others send the same bytes in few messages,
# and most of them in one, because one tensor holds most of the model. **We think** that overlapping gains little
# without a slow wire because a message is then work for the cores that compute. The section on the slow wire is the
# test.
#
# **Takeaway** Send few messages. Overlap pays where messages take time and not your cores.
#
# <details><summary>What torch's wrapper calls these things</summary>
#
# | argument or method | what it does | default |
# |---|---|---|
# | `bucket_cap_mb` | MiB after which a bucket is closed | 25, the first bucket 1 |
# | `gradient_as_bucket_view` | `grad` is a view of the bucket: no second copy of all gradients | False |
# | `find_unused_parameters` | looks, in each forward, for parameters that backward will not reach | False |
# | `static_graph` | promises that each step uses the same parameters, so that one look is enough | False |
# | `forward_sync_buffers` | sends rank 0's buffers before a forward (`broadcast_buffers` before torch 2.13) | True |
# | `register_comm_hook(state, hook)` | sends something else, e.g. the bucket in half precision | all-reduce, mean |
# | `no_sync()` | a context in which nothing is sent | |
# | `join()` | a context in which a rank that is done takes part with zeros | |
#
# Without `find_unused_parameters`, an unused parameter leaves its bucket incomplete, and the next forward raises an
# error that says so.
#
# </details>
