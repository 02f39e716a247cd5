# %% [markdown]
# # Data parallel, part 3: Build DistributedDataParallel
#
# **What must be sent, and when, so that N models stay one?**
#
# Each rank has a model of its own and its own shard of the batch. You write the wrapper that keeps them equal, first
# with one message per parameter, then in buckets that travel while backward still computes. A network card that takes
# its time shows what the overlap is worth. At the end you mend a hook of public teaching code, and four wrappers race.
#
# **You will be able to**
#
# - say what DDP sends at construction and in each step
# - write the naive wrapper, and the one with buckets and overlap
# - predict how much overlapping saves, from the times of backward and of the messages
# - find out whether replicas have drifted apart
#
# **Minutes** 45 core · 150 in all
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
# The model of this unit is a small convolutional network for Fashion-MNIST. The data is the real one if it lies in the
# data folder, else ten drawn kinds of garment in the same format.

# %% tags=["experiment"]
data = fashion.load(sizes.dataset)
images, labels = fashion.floats(data.train_images), data.train_labels
weights = list(FashionCNN().parameters())
print(f"{len(images):,} images; {sum(w.numel() for w in weights):,} weights in {len(weights)} tensors, "
      f"{sum(w.nbytes for w in weights) / 1e6:.1f} MB")  # fmt: skip
plots.pictures([data.train_images[labels == k][0] for k in range(10)], fashion.CLASSES)

# %% [markdown]
# ## What a step sends
#
# **At construction DDP sends the weights, and in every step the gradients, once.**
#
# Predict: how many all-reduces does one backward of this model start?

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
# One all-reduce per *bucket*: not one in all, and not one per tensor. The first backward shows one bucket: torch first
# learns in which order gradients arrive, then plans again, tells the plan to all (the two short broadcasts, once),
# and from the second step on there are more. The other short messages compare the shapes of the models (the 0 of
# the all-gather: our counter does not look into its lists). Nothing is sent by `optimizer.step()`, though some texts
# say so: when `backward` returns, the gradients are equal everywhere. This model has no buffers; what happens to those
# is a question of part 6.

# %% [markdown]
# ## Replicas that stay equal
#
# **Equal weights and equal gradients give equal weights: one broadcast at the start and one average per step keep all
# trained weights equal.**
#
# Each rank holds a whole copy of the model, a *replica*, and computes with its own shard of the batch. Nothing ties
# the replicas together but arithmetic. If they start with the same weights, and every optimizer takes its step with
# the same gradients, they are the same after the step, to the last bit. So weights need never be sent again. The
# optimizer is not told about any of it: momentum and other state are equal for the same reason.
#
# The gradient of a mean over the whole batch is the mean of the gradients of its shards, if the shards are equally
# large. A loss is mostly such a mean. An all-reduce, however, gives the *sum* over all ranks unless it is asked for
# something else. Without the division, SGD takes steps that are `world_size` times too long. Adam hides the mistake:
# its step hardly depends on the length of the gradient.
#
# Two things break the equality. Weights that are drawn on each rank from a seed of its own: they are sent from
# rank 0 when the wrapper is made, and so are *buffers*, the tensors that belong to the model and are not trained
# (running means, tables, masks). And parameters that some rank did not use in a step: there `grad` is None on this rank
# and a tensor on another. (Weights that are *tied*, one parameter under two names, do no harm even if they are averaged
# twice, since the mean of equal numbers is that number. The second message is wasted.)
#
# A rank that leaves out an all-reduce does not skip it for the others: its next call, for another parameter, is taken
# for the one that they wait for. All ranks must make the same calls in the same order.

# %% [markdown]
# ### Exercise 1 · The naive version
#
# Write the wrapper with two plain loops. The training loop calls `loss.backward()`, `model.average_gradients()`,
# `optimizer.step()`.
#
# **Points** 4 · **Core** · **Difficulty** ●●○ · **Minutes** 25 · **Lines** 11
#
# **Must**
# - keep the module as `module`; give all its parameters and buffers, frozen and non-persistent too, rank 0's values in
#   place;
# - `forward`: pass all arguments on, send nothing;
# - `average_gradients`: call `all_reduce` once for each parameter whose `requires_grad` is True during this call (once
#   for a tied one), and send nothing else; each `grad` becomes the mean over all ranks, where None counts as zeros.
#
# **You may assume** contiguous, dense tensors.
#
# **Not allowed** `torch.nn.parallel.DistributedDataParallel`, also as a base class.
#
# **Source** Li et al. 2020, "PyTorch Distributed", VLDB 13(12), arXiv:2006.15704, section 3.2.1; Goyal et al. 2017,
# arXiv:1706.02677, section 3 (what is averaged over what).
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
# our default is 1 MiB. The rule: a parameter that would make the bucket exceed the size opens the next bucket. A
# parameter that alone exceeds the size has a bucket to itself, because the one after it opens the next bucket, too.
# (PyTorch closes a bucket once it has reached its size, so it may hold more.)
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
#
# A training loop that accumulates gradients needs backward passes that send nothing: those inside of
# `with model.no_sync():`. They add to the rank's own gradients, and the next backward outside sends the sum. Such
# blocks may be nested. An exception in one is not swallowed, and after it the wrapper sends as it did before the block.
#
# The next exercise builds this and is extra. The core goes on at "See the overlap", with the reference, and ends there.

# %% [markdown]
# ### Exercise 2 · The overlapped version
#
# Now `loss.backward()` leaves the averaged gradients behind, sent in buckets while it ran.
#
# **Points** 6 · **Extra** · **Difficulty** ●●● · **Minutes** 100 · **Lines** 42
#
# **Must**
# - write constructor and `forward` as in exercise 1; the constructor fills the buckets, by the rule above, with the
#   parameters that have `requires_grad` *then*;
# - launch the buckets in order, each by one `all_reduce(..., async_op=True)` once complete;
# - at the end of backward launch the rest, None counting as zeros, and wait: each `grad` is the mean over the ranks of
#   what it would be without the wrapper;
# - `no_sync()` works as described above.
#
# **You may assume** one dtype and device; each backward uses some parameter. You may rename `arrived`, `launch`,
# `finish`.
#
# **Not allowed** `torch.nn.parallel.DistributedDataParallel`.
#
# **Source** Li et al. 2020, arXiv:2006.15704, sections 3.2.2 to 3.3.
#
# <details><summary>What has to be remembered</summary>
#
# Per wrapper: the buckets, each a flat buffer with one view per parameter, and whether it is sending. Per backward: how
# many gradients each bucket still misses, and the works that `all_reduce` returned; the number of works is the number
# of the next bucket. Both are made anew by the first hook call of a backward, which also queues the callback for its
# end.
#
# A gradient that is copied into a flat buffer, and back after the all-reduce, is moved twice. Let `p.grad` be a *view*
# of the buffer, and the way back costs nothing; torch calls it `gradient_as_bucket_view`. After
# `zero_grad(set_to_none=True)`, the default, autograd puts a new tensor there, and it has to be copied again.
#
# </details>
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
# piece `.view_as(p)`. Keep two states during a backward: how many gradients are missing in each bucket, and the list
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
# ## See the overlap
#
# **Overlapping hides messages behind backward, so it saves at most the shorter of the two.**
#
# Between ranks of one machine a message is a copy, made by the cores that compute, and there is nothing to hide it
# behind. `slow_wire` (in `course/parallel/slow_wire.py`) gives each rank a network card: an all-reduce is done for
# real, but its result is handed out only when the card would have had it, `latency + bytes / bandwidth` seconds after
# it became free.
# A card sends one message after the other and uses no core. It records what the wrapper does: when a gradient was there
# (hook), when a bucket was launched, when the card sent it, and when the wrapper waited.
#
# The model of this section has eight equal layers, so backward finishes a gradient every eighth of its time. The card
# needs as long for all gradients together as backward takes, *B*.
#
# **Predict**: after backward alone there is nothing to do but send, so one message at the end takes 2 *B* in all. What
# share of that is left at best, if the layers travel in buckets of 1, 2, 4 or 8 layers?

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


def overlap_in_rank(rank, world_size, overlapped, width, caps, loads, rounds):
    """(bandwidths, records): per load, what happened with no wrapper, FlatDDP, and `overlapped` with each cap."""
    torch.set_num_threads(1)
    with slow_wire() as wire:
        wraps = [lambda m: m, FlatDDP, *(lambda m, cap=cap: overlapped(m, bucket_bytes=cap) for cap in caps)]
        runs = [backward_on_the_wire(wrap, width, wire) for wrap in wraps]
        alone = torch.tensor([[run()["seconds"] for run in runs][0] for _ in range(rounds + 1)][1:]).median()
        dist.all_reduce(alone, dist.ReduceOp.MAX)
        n_bytes = 4 * LAYERS * (width + 1) * width
        records = []
        for load in loads:
            wire.bandwidth = n_bytes / (load * alone.item())
            records.append([[run() for run in runs] for _ in range(rounds + 1)][1:])
        return [n_bytes / (load * alone.item()) for load in loads], records


layer_bytes = 4 * (sizes.overlap_width + 1) * sizes.overlap_width
layers_per_bucket, loads = [1, 2, 4, 8], [0.25, 1.0, 4.0]
caps = [n * layer_bytes for n in layers_per_bucket]
overlapped_now = course.solved(check.OverlappedDDP)
found = run_ranks(overlap_in_rank, 2, overlapped_now, sizes.overlap_width, caps, loads,
                  max(2, sizes.rounds - 2), backend="gloo", timeout=300)  # fmt: skip
bandwidths, records = found[0]
lanes = {"one message after backward": records[1][-1][1], "a bucket per layer": records[1][-1][2]}
plots.overlap_lanes(lanes)

# %% [markdown]
# Read each lane from left to right. A tick is a hook: a gradient is there. A bar on the wire is one message, and the
# bar below it is the time for which the wrapper did nothing but wait. In the upper half the wire is idle while backward
# runs, and then the core is idle. In the lower half both work, and what is still on the wire when backward
# ends has nothing to hide behind: at best the last bucket.
#
# That makes the time predictable. Buckets are launched in order, each when its last gradient is there, and the card
# takes them one after the other:


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


predicted, measured, flat = {}, {}, {}
for load, bandwidth, rounds_done in zip(loads, bandwidths, records, strict=True):
    hooks, backward_ends = median_hooks([runs[0] for runs in rounds_done])
    predicted[load] = []
    for n in layers_per_bucket:
        first_layers = range(LAYERS - n, -1, -n)  # of each bucket, the last bucket of layers first
        ready = [hooks[2 * first : 2 * (first + n)].max().item() for first in first_layers]
        predicted[load].append(last_message_ends(ready, [n * layer_bytes / bandwidth] * len(ready)) / backward_ends)
    seconds = torch.tensor([[run["seconds"] for run in runs] for runs in rounds_done], dtype=torch.float64)
    measured[load] = (seconds[:, 2:] / seconds[:, :1].median()).T  # (caps, rounds), in backwards
    flat[load] = (seconds[:, 1] / seconds[:, 0].median()).median().item()
    best = measured[load].median(1).values.min().item()
    print(f"wire needs {load:>4} of backward: one message after it {flat[load]:.2f}, overlapped at best {best:.2f}: "
          f"{best / flat[load]:.2f} of it (computed: {min(predicted[load]) / (1 + load):.2f})"
          + reveal(predicted_share) * (load == 1))  # fmt: skip
plots.overlap_sweep(layers_per_bucket, predicted, measured, flat)

# %% tags=["experiment"]
medians = {load: times.median(1).values.tolist() for load, times in measured.items()}
errors = [abs(m / p - 1) for load in loads for m, p in zip(medians[load], predicted[load], strict=True)]
saved = {load: 1 - min(medians[load]) / flat[load] for load in loads}
course.claim("the model predicts the step times within 15 %, in the median over wires and bucket sizes",
             statistics.median(errors) < 0.15,
             f"median {100 * statistics.median(errors):.0f} % off, at most {100 * max(errors):.0f} %",
             otherwise="With a fast wire and small buckets the steps take longer than predicted: the model leaves out "
                       "the all-reduce in memory, which the computing cores carry out once per bucket.")  # fmt: skip
course.claim("overlapping saves most where the wire needs as long as backward", saved[1.0] == max(saved.values()),
             ", ".join(f"{load:g} of backward: {100 * share:.0f} %" for load, share in saved.items()))  # fmt: skip
course.claim("one bucket of all layers saves less than a bucket per layer", medians[1.0][-1] > medians[1.0][0],
             f"{medians[1.0][-1]:.2f} against {medians[1.0][0]:.2f} of backward")  # fmt: skip
late = {}  # with a latency of a tenth of backward, if every layer took an eighth of it
for n in layers_per_bucket:
    ready = [(k + 1) * n / LAYERS for k in range(LAYERS // n)]
    late[n] = last_message_ends(ready, [n / LAYERS + 0.1] * len(ready))
print("computed, each message a tenth of backward longer: "
      + ", ".join(f"{n} layers per bucket {t:.2f}" for n, t in late.items()))  # fmt: skip

# %% [markdown]
# With *B* for backward and *W* for the wire, one message after backward ends at *B* + *W*. Overlapped with equal
# buckets, at best the longer of the two is left, and one bucket of the shorter: with *W* = *B* and eight buckets 9/8
# *B* instead of 2 *B*. If the wire is fast, there is little to hide; if it is slow, there is little to hide it behind.
# So overlapping never saves more than half. This card has no latency. With one, every message costs the same time
# more, and the best bucket is neither the smallest nor the largest, as the last line computes.
#
# Where the wire takes no longer than backward and the buckets are small, the measured times lie above the prediction,
# It knows the card and backward, but not the all-reduce in memory below the card, which two ranks with a core each do
# at the cost of backward, once per bucket. So a bucket per layer gains less than computed, with a fast wire it can take
# longer than one message after backward, and larger buckets are best although the card has no latency. Where the wire
# is slow, small buckets are best, as computed. With narrow layers (smoke scale) that, and starting a message, is most
# of what is measured. On GPUs the same lanes are those of a profiler's trace, `ncclDevKernel_AllReduce` beside the
# kernels of backward; this cell always computes on the CPU.

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
    """Print what `weights_of` found on two ranks."""
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
# ### Exercise 3 · Mend the hook
#
# Write the hook so that it does what it was meant to do.
#
# **Points** 2 · **Extra** · **Difficulty** ●○○ · **Minutes** 5 · **Lines** 2
#
# **Must**
# - leave in `parameter.grad` the mean over all ranks of what it would be without the hook, whatever it held before;
# - leave the parameter as it is, and return None; one `all_reduce` per call and nothing else.
#
# **You may assume** that it is registered on every trainable parameter of replicas that are equal, and that each rank
# uses the same parameters in the same order.
#
# **Source** github.com/huggingface/picotron, class `DataParallelNaive`, since commit d0efdcc of February 2025
# (before, it used `register_hook`, whose argument is the gradient); PyTorch's documentation of
# `Tensor.register_post_accumulate_grad_hook`.
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
# The same experiment with your hook: equal weights in every row, the same before and after backward, on the way to
# 3.

# %% tags=["experiment"]
show_weights(course.solved(check.average_hook))

# %% [markdown]
# ### What each of them is worth
#
# Two ranks, the same model and batch, four ways to average the gradients, in one run and in turn. *Flat* stands
# between naive and overlapped: all gradients in one buffer, sent when backward is over. Here nothing is delayed.
# **Predict**: the step of the naive wrapper, in multiples of that of torch's DDP.

# %%
predicted_naive = None  # step time of NaiveDDP over that of torch's DDP


# %% tags=["experiment"]
def step_seconds(rank, world_size, wrappers, batch, rounds):
    """Seconds (rounds, wrappers) of a step on a device of this rank's own, or on one core."""
    device = torch.device("cuda", rank) if dist.get_backend() == "nccl" else torch.device("cpu")
    torch.set_num_threads(1)
    batch = [t.to(device) for t in batch]
    models = [wrap(FashionCNN(dropout=0.0, norm=None).to(device)) for wrap in wrappers]
    return distributed.timed_rounds([distributed.sgd_step(model, batch) for model in models], rounds)


wrappers = {
    "naive": course.solved(check.NaiveDDP),
    "flat": FlatDDP,
    "overlapped": course.solved(check.OverlappedDDP),
    "torch": nn.parallel.DistributedDataParallel,
}
batch = images[: sizes.batch_size], labels[: sizes.batch_size]
ddp_seconds = run_ranks(step_seconds, 2, list(wrappers.values()), batch, 3 * sizes.rounds, timeout=300)[0]
ratio = (ddp_seconds[:, 0] / ddp_seconds[:, -1]).median().item()
print(f"naive: {ratio:.2f} of the step time of torch's DDP" + reveal(predicted_naive))
course.claim(
    "a message per parameter is slower than torch's buckets",
    ratio > 1,
    f"{ratio:.2f} times",
    otherwise="The step computes so long that ten messages do not show.",
)
print(course.machine())
plots.step_ratios(list(wrappers), ddp_seconds, f"one step, 2 ranks, batch {sizes.batch_size} each")

# %% [markdown]
# A dot is one pair of steps. The naive version waits for a message per tensor, one after the other. Between the other
# three there is little to see here, and the delayed wire above says why: a message between two ranks of one machine is
# a copy by the cores that compute, so there is nobody who sends meanwhile. What the bookkeeping of the overlapped
# version costs is measured over many rounds by `course bench data-parallel steps`.
#
# Names that torch's own wrapper has for what you have seen, and for some more:
#
# | argument or method | what it does | default |
# |---|---|---|
# | `bucket_cap_mb` | size of a bucket, in MiB | 25, the first bucket 1 |
# | `gradient_as_bucket_view` | `grad` is a view of the bucket: no second copy of all gradients | False |
# | `find_unused_parameters` | looks, in each forward, for parameters that backward will not reach | False |
# | `static_graph` | promises that each step uses the same parameters, so that one look is enough | False |
# | `forward_sync_buffers` | sends rank 0's buffers before a forward (`broadcast_buffers` before torch 2.13) | True |
# | `register_comm_hook(state, hook)` | sends something else, e.g. the bucket in half precision | all-reduce, mean |
# | `no_sync()` | a context in which nothing is sent | |
# | `join()` | a context in which a rank that is done takes part with zeros | |
#
# Without `find_unused_parameters`, a parameter that is not used leaves its bucket incomplete: nothing is launched for
# it, and the next forward raises an error that says so. Your wrappers count it as zeros.
