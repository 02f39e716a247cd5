# %% [markdown]
# # Data parallel, part 2: Build DistributedDataParallel
#
# **What must be sent, and when, so that N models stay equal?**
#
# You count what torch's wrapper sends, write your own wrapper, and watch messages travel while backward computes.
#
# **You will be able to**
#
# - say what DDP sends at construction, before a forward and in a backward
# - write a wrapper that keeps N models equal
# - tell when overlapping messages with backward pays
#
# **Minutes** 31 core · 84 in all
#
# **Needs** part 1 (`run_ranks`); exercises of other parts are not used

# %% locked="setup"
import contextlib
import itertools
from functools import partial

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel

import course
from course import figures
from course.checks import data_parallel as check
from course.parallel import distributed
from course.parallel.distributed import run_ranks
from course.plots import data_parallel as plots
from course.training import overlap, scaling, small_gpt
from course.training.models import FashionCNN

print(course.machine())
sizes = course.sizes("02_data_parallel")

# %% [markdown]
# ## What does DDP send, and when?
#
# Before you write a wrapper, count what torch's wrapper sends. `DistributedDataParallel(model)` wraps the model on each
# rank. It collects gradients in *buckets*, the last layers first, and calls one all-reduce per bucket. A bucket closes
# as soon as it holds *at least* its cap. By default the cap is 1 MiB for the first bucket and 25 MiB for the others.
#
# The model is a small GPT of eight equal blocks. Its gradients have this size:

# %%
gradient_bytes = [p.nbytes for p in small_gpt.small_gpt().parameters()]
total_mib = sum(gradient_bytes) / 2**20
largest_mib = max(gradient_bytes) / 2**20
print(f"{len(gradient_bytes)} tensors, {total_mib:.1f} MiB, the largest {largest_mib:.2f} MiB")

# %% [markdown]
# **Predict**: how many all-reduces does the GPT's second backward start, with the default caps? (In the first backward,
# DDP still learns the order of the gradients.)

# %%
predicted_all_reduces = None  # your number

# %% [markdown]
# The next cells count. `counted()` lists every collective that a rank calls, with its bytes. A second model is a
# convolutional network (CNN) with batch normalization. It has *buffers*: tensors that are not trained, here the running
# statistics.


# %% tags=["experiment"]
def traffic_of_steps(rank, world_size, make_model, inputs, options):
    """{phase: [(operation, bytes)]} that this rank called in two steps under torch's DDP."""
    traffic = {}
    with distributed.counted() as log:
        model = DistributedDataParallel(make_model(), **options)
        traffic["construction"] = list(log)
        for step in ("first", "second"):
            log.clear()
            loss = model(*inputs).sum()
            traffic[f"{step} forward"] = list(log)
            log.clear()
            loss.backward()
            traffic[f"{step} backward"] = list(log)
    return traffic


# %% tags=["experiment"]
tokens = small_gpt.random_tokens(2)[:, 1:]
positions = torch.arange(small_gpt.COLUMNS)
gpt_inputs = (tokens, positions)
cnn_inputs = (torch.randn(8, 1, 28, 28),)

gpt = run_ranks(traffic_of_steps, 2, small_gpt.small_gpt, gpt_inputs, {}, backend="gloo")[0]
cnn = run_ranks(traffic_of_steps, 2, FashionCNN, cnn_inputs, {}, backend="gloo")[0]

for phase in gpt:
    print(f"{phase:<16} GPT {distributed.in_words(gpt[phase])}")
    print(f"{'':<16} CNN {distributed.in_words(cnn[phase])}")

# %% tags=["experiment"]
sent_bytes = distributed.bytes_of_each(gpt["second backward"], "all_reduce")
what = "all-reduces of the second backward"
print(course.score("02/2", what, predicted_all_reduces, len(sent_bytes), null=None))

gpt_forward_bytes = sum(distributed.bytes_of_each(gpt["first forward"]))
cnn_forward_bytes = sum(distributed.bytes_of_each(cnn["first forward"]))
buffer_bytes = sum(buffer.nbytes for buffer in FashionCNN().buffers())

course.claim(
    "the second backward of torch's DDP sends each gradient once",
    sum(sent_bytes) == sum(gradient_bytes),
    f"{sum(sent_bytes):,} bytes",
)
course.claim(
    "torch's DDP sends the buffers before the first forward, and nothing if there are none",
    gpt_forward_bytes == 0 and cnn_forward_bytes == buffer_bytes,
    f"GPT {gpt_forward_bytes} bytes, CNN {cnn_forward_bytes} bytes",
)

# %% [markdown]
# - **Construction**: rank 0 sends its parameters and buffers.
# - **Forward**: rank 0 sends its buffers, if the model has any.
# - **Backward**: every gradient travels once.
# - **Step**: `optimizer.step()` sends nothing (part 5 counts it).
#
# Buffers travel in `eval()` mode, too. So rank 0 must not evaluate the wrapper alone: it may call a broadcast that no
# other rank joins. Let it evaluate `model.module`.
#
# **Takeaway** By default, DDP sends parameters once, buffers before each forward, and gradients in each backward.
#
# <details><summary>Why does the first step look different?</summary>
#
# The first backward sends one message and records the order in which gradients are ready. Before the second forward,
# rank 0 sends the others the new buckets, in two short broadcasts. The all-gather at construction compares the number
# of parameters, and a short broadcast after it their shapes.
#
# </details>

# %% [markdown]
# ## Can a bucket be larger than its cap?
#
# The next cell caps all buckets at 1 MiB, and prints the sizes of the GPT's buckets.

# %% tags=["experiment"]
options = {"bucket_cap_mb": 1}
of_ranks = run_ranks(traffic_of_steps, 2, small_gpt.small_gpt, gpt_inputs, options, backend="gloo")
bucket_bytes = distributed.bytes_of_each(of_ranks[0]["second backward"], "all_reduce")
print("MiB of each bucket:", *(f"{n_bytes / 2**20:.2f}" for n_bytes in bucket_bytes))

is_cap_reached = min(bucket_bytes[:-1]) >= 2**20
course.claim(
    "all buckets of torch's DDP but the last hold at least their cap",
    is_cap_reached,
    f"{len(bucket_bytes)} buckets",
)

# %% [markdown]
# **Takeaway** A bucket can be larger than its cap, because it closes only when it holds the cap or more.

# %% [markdown]
# ## What keeps the replicas equal?
#
# Each rank holds a *replica* of the model, and DDP never compares the replicas' weights. Two rules keep them equal to
# the last bit: all replicas start with the same weights, and equal optimizers step with the same gradients. For this,
# your wrapper needs three things:
#
# - *The same start.* Each rank may draw its weights from another seed. `dist.broadcast(tensor, src=0)` writes rank 0's
#   values into the `tensor` of every rank. For a parameter `p`, pass `p.detach()`, which shares its memory.
# - *The mean.* An all-reduce gives the sum, so divide by `world_size`.
# - *The same calls.* If a rank did not use a parameter, its `grad` is None there. That rank must call `all_reduce`
#   anyway. Calls are matched by their order, so one parameter's gradient could be added to another's.

# %% [markdown]
# ### Exercise 1 · The naive version
#
# Write the wrapper with two plain loops. The training loop calls `loss.backward()`, `model.average_gradients()`,
# `optimizer.step()`. If a `grad` is 1 on rank 0 and None on rank 1, it becomes 0.5 on both.
#
# **Points** 4 · **Core** · **Difficulty** ●●○ · **Minutes** 15 · **Lines** 11
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
# Torch's DDP divides before the all-reduce, because in float16 a sum can be too large although the mean is not.
#
# **Takeaway** Equal weights at the start and equal gradients in every step keep the weights equal.

# %% [markdown]
# ## What does a message per parameter cost?
#
# Your wrapper sends one message per tensor. Does that cost time if the bytes are the same? Compare it with `FlatDDP`:
# after backward it copies all gradients into one vector and sends a single message.


# %% locked="FlatDDP"
class FlatDDP(nn.Module):
    """One all-reduce after backward; for equal replicas whose gradients are all there."""

    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, *args):
        return self.module(*args)

    def average_gradients(self):
        gradients = [p.grad for p in self.module.parameters()]
        flat = torch.cat([gradient.flatten() for gradient in gradients])
        flat = flat / dist.get_world_size()
        dist.all_reduce(flat)
        start = 0
        for gradient in gradients:
            end = start + gradient.numel()
            mean = flat[start:end]
            gradient.copy_(mean.view_as(gradient))
            start = end


# %% [markdown]
# **Predict** for two ranks: by which factor is a step with a message per parameter longer than a step of torch's DDP?
# Perhaps 1, because both send the same bytes. Perhaps more, because each message costs time, too.

# %%
predicted_naive = None  # your number


# %% tags=["experiment"]
def compared_wrappers(rank, world_size, wrappers, rows, seconds):
    """The Comparison of a step under each of `wrappers`, on this rank's GPU, or on one core."""
    device = scaling.own_device()
    torch.set_num_threads(1)
    tokens = small_gpt.random_tokens(rows, seed=rank).to(device)
    steps = {}
    for name, wrap in wrappers.items():
        model = wrap(small_gpt.small_gpt().to(device))
        steps[name] = small_gpt.gpt_step(model, tokens)
    return distributed.compare_on_ranks(steps, seconds=seconds)


# %% tags=["experiment"]
wrappers = {
    "torch": DistributedDataParallel,
    "naive": course.solved(check.NaiveDDP),
    "flat": FlatDDP,
}

compared = run_ranks(compared_wrappers, 2, wrappers, sizes.sequences, sizes.seconds, timeout=300)[0]
naive_over_torch = compared.ratio("torch", to="naive")
flat_over_naive = compared.ratio("naive", to="flat")

print(compared)
what = "step of the naive wrapper over torch's DDP"
print(course.score("02/2", what, predicted_naive, naive_over_torch))

course.claim(
    "a message per parameter makes a step at least 5 % longer than torch's buckets do",
    naive_over_torch,
    above=1.05,
)
course.claim(
    "one message for all gradients makes a step at least 5 % shorter than a message per parameter does",
    flat_over_naive,
    below=0.95,
)
title = f"Naive takes {naive_over_torch.estimate:.2f} times as long as torch's DDP (2 ranks)"
plots.step_ratios(compared, title)

# %% [markdown]
# Naive and flat send the same bytes after backward, so the number of messages makes the difference. Every message has a
# fixed cost: the call, waking another process or, on a GPU, launching a kernel.
#
# **Takeaway** Send few messages, because each costs time however small it is.

# %% [markdown]
# ## Can messages travel while backward computes?
#
# Naive and flat compute nothing while they send. But backward runs from the last layer to the first, so the last
# layer's gradient is ready long before backward ends. DDP starts to send a bucket when its gradients are ready and all
# buckets before it have started. Backward continues meanwhile.
#
# To see this, each rank sends through a simulated network card:
#
# - The card sends one message after the other, each in at least `bytes / bandwidth` seconds.
# - A message cannot end before the other rank has started the same message.
# - Backward alone takes a time *B*. We set the bandwidth so that all gradients together take *B* on the card, too.
#
# So one message after backward ends after about 2 *B*, or later.
#
# **Predict**: torch's DDP, with a cap of 1 MiB, sends the buckets printed above. How long does it take, as a share of
# the time with one message after backward?

# %%
predicted_share = None  # a number from 0 to 1

# %% tags=["experiment"]
FLAT = "one message after backward"
TORCH = "torch's DDP, 1 MiB buckets"
wraps = {FLAT: FlatDDP, TORCH: partial(DistributedDataParallel, bucket_cap_mb=1)}
load = 1.0  # the wire needs as long as one backward
seconds = sizes.seconds / 2

of_ranks = run_ranks(
    overlap.over_wires, 2, wraps, [load], sizes.sequences, seconds, backend="gloo", timeout=300
)
(on_wire,) = of_ranks[0]
share = on_wire.compared.ratio(FLAT, to=TORCH)

print(on_wire.compared)
print(course.score("02/2", "overlapped over one message after backward", predicted_share, share))
course.claim(
    "on a wire that needs as long as backward, torch's buckets end at least 10 % sooner than one message",
    share,
    below=0.9,
    otherwise="Backward itself takes longer while messages travel.",
)

typical_rounds = {way: overlap.typical(on_wire.records[way]) for way in wraps}
title = f"torch's buckets take {share} of the time of one message after backward"
plots.overlap_lanes(typical_rounds, title)

# %% [markdown]
# A tick marks a gradient that is ready, an orange bar is a message, and the grey bar shows when the wrapper only waits.
# A bar that is longer than its bytes need also holds a wait: for the other rank, or for the transfer itself.
#
# With one message, the wire is idle while backward runs and while the gradients are copied into one vector. With
# buckets, messages travel while backward runs. (The drawing shows one typical round; the title compares all rounds.)
#
# How small could the share be? The card cannot start before the first bucket is ready, and this bucket holds more than
# a sixth of the bytes. If backward takes equally long for each byte, the card starts after about *B*/6. Then it sends
# for a time *B*. So buckets need 7/6 *B* instead of 2 *B*, a share of 0.58.
#
# In the lower half, backward includes the copies into buckets. If it takes much longer there, **we think** that the
# simulated card also uses the cores that compute. A spare core per rank would test that.
#
# **Takeaway** Overlap hides at most the shorter of backward and messages. The card must wait for the first bucket, and
# the step for the last message.

# %% [markdown]
# ## Which bucket size hides the messages of your model? · extra
#
# Smaller buckets leave earlier, but need more messages. Which size is best depends on your model and wire.
# `figures.backward_layers` measures when each layer's gradients are ready, and the figure computes the timeline of a
# step from that.
#
# **At which bucket size does the step on your wire end first?** Move the sliders. Then put your own model and loss into
# the cell.


# %% tags=["experiment"]
torch.set_num_threads(1)  # as in each rank here
my_model = small_gpt.small_gpt()
my_tokens = small_gpt.random_tokens(sizes.sequences)


def my_loss():
    return small_gpt.next_token_loss(my_model, my_tokens)


layers = figures.backward_layers(my_model, my_loss)
figures.step_timeline(layers, bucket_mb=1.0, gbit=1.0, latency_ms=0.1)

# %% [markdown]
# With one bucket for all gradients, nothing overlaps. If the wire needs much longer than backward, no bucket size hides
# it. Then send fewer bytes, for example gradients in bfloat16 (`register_comm_hook` with `bf16_compress_hook`), or send
# less often (`no_sync`, part 3).
#
# **Takeaway** Small buckets overlap more but need more messages, so try a few caps with your model. If the wire is the
# bottleneck, send fewer bytes.

# %% [markdown]
# ## How does DDP know when to send? · extra
#
# To send during backward, a wrapper must learn when each gradient is ready:
#
# - It assigns parameters to buckets, the last parameters first. Our buckets below close *before* they exceed
#   `bucket_bytes`, torch's as soon as they reach it.
# - `p.register_post_accumulate_grad_hook(f)` calls `f(p)` as soon as the gradient of `p` is ready.
# - When all gradients of a bucket are ready, the wrapper starts one asynchronous all-reduce for it and continues.
# - At the end of backward it waits for all of them. `queue_callback` tells it when backward ends. That is a private
#   function of torch, which may change with any version.
#
# Every rank must send its buckets in the order 0, 1, 2, …, even if its gradients arrive in another order. Otherwise the
# ranks would add up different buckets.

# %% [markdown]
# ### Exercise 2 · The overlapped version
#
# Write what happens during backward; the rest is given. `arrived(k)` is called once for each gradient of bucket k. Take
# two buckets of two gradients that arrive in the order 1, 1, 0, 0: nothing is sent until the last call, which launches
# both.
#
# **Points** 6 · **Extra** · **Difficulty** ●●● · **Minutes** 40 · **Lines** 11
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
        self.module = module
        self.sending = True
        # of the backward that runs: how many gradients each bucket misses, and the all-reduces
        self.missing = None
        self.works = []
        for tensor in itertools.chain(module.parameters(), module.buffers()):
            dist.broadcast(tensor.detach(), src=0)
        groups = [[]]
        room = bucket_bytes  # that the last group has left
        trainable = [p for p in module.parameters() if p.requires_grad]
        for p in reversed(trainable):
            if groups[-1] and p.nbytes > room:
                groups.append([])
                room = bucket_bytes
            groups[-1].append(p)
            room -= p.nbytes
        self.buckets = []  # (flat buffer, [(parameter, its view of the buffer)])
        for k, group in enumerate(groups):
            flat = torch.cat([p.detach().flatten() for p in group])
            parts = flat.split([p.numel() for p in group])
            members = []
            for p, part in zip(group, parts, strict=True):
                members.append((p, part.view_as(p)))
            self.buckets.append((flat, members))
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
        self.missing = None
        self.works = []

    @contextlib.contextmanager
    def no_sync(self):
        """A context in which backward sends nothing; how the block is left makes no difference."""
        before = self.sending
        self.sending = False
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
# ## Can you compute when the last message ends? · extra
#
# If you can compute the time of a step, you can try buckets and wires without a cluster. The card takes a bucket as
# soon as its last gradient is ready and the bucket before it has been sent. So the time follows from the ready times of
# backward and the bandwidth of the wire:


# %% locked="last_message_ends"
def last_message_ends(ready, seconds):
    """Seconds after which the last message is back.

    Args:
        ready: when each bucket is complete, in seconds from the start of backward, in the order of launches.
        seconds: how long the card needs for each.
    """
    end = 0.0
    for launched, duration in zip(ready, seconds, strict=True):
        start = max(end, launched)  # it waits for its gradients, and for the message before
        end = start + duration
    return end


# %% [markdown]
# The next cells try buckets of 1, 2, 4 and 8 blocks with your wrapper on three wires. Before you look: on which wire
# should overlap save the largest share of the step? On which wire should the computed time be right?

# %% tags=["experiment"]
blocks_per_bucket = [1, 2, 4, 8]
loads = {"fast": 0.25, "medium": 1.0, "slow": 4.0}  # what the wire needs, in backwards
caps = [blocks * overlap.block_bytes() for blocks in blocks_per_bucket]

Overlapped = course.solved(check.OverlappedDDP)
wraps = {FLAT: FlatDDP}
for cap in caps:
    wraps[cap] = partial(Overlapped, bucket_bytes=cap)

seconds = sizes.seconds / 3
runs_of_ranks = run_ranks(
    overlap.over_wires,
    2,
    wraps,
    list(loads.values()),
    sizes.sequences,
    seconds,
    backend="gloo",
    timeout=300,
)

# %% tags=["experiment"]
swept = overlap.sweep(runs_of_ranks, list(loads), caps, FLAT, last_message_ends)

print("in backwards, with a bucket per block:")
for wire in loads:
    print(
        f"{wire} wire: computed {swept.computed[wire][0]:.2f}, measured {swept.measured[wire][0]}"
    )
fast = swept.measured["fast"][0].scaled(1 / swept.computed["fast"][0])
slow = swept.measured["slow"][0].scaled(1 / swept.computed["slow"][0])
course.claim(
    "on the fast wire, a bucket per block takes at most 25 % more or less than computed",
    fast,
    within=(0.8, 1.25),
    otherwise="The text below names two costs that the formula leaves out.",
)
course.claim(
    "on the slow wire, a bucket per block takes at most 25 % more or less than computed",
    slow,
    within=(0.8, 1.25),
    otherwise="The text below names two costs that the formula leaves out.",
)
plots.overlap_sweep(blocks_per_bucket, swept.computed, swept.measured, swept.flat, swept.needs)

# %% [markdown]
# The wire needs *W* for all gradients. One message after backward takes *B* + *W*. A bucket per block should take
#
# - *B* + *W*/8 on a fast wire, where all messages but the last travel while backward runs;
# - *B*/8 + *W* on a slow wire, where the card waits only for the first bucket.
#
# So overlap should save the largest share where *W* equals *B*. On the slow wire, the formula should be nearly right,
# because the simulated card takes most of the time. Where the blue line is above the grey one, overlap costs more than
# it hides.
#
# Where the computed time is too short, **we think** that the formula leaves out two things: copies into buckets, and
# messages that compete for the cores. The grey line shows what the copies cost. It has them, too, but sends nothing
# while backward computes. So compare it with *B* + *W*. (An interval can reach below the dotted bound, which is an
# estimate, too.)
#
# **Takeaway** Compare every prediction and every measurement with a lower bound first: here the longer of backward and
# messages.

# %% [markdown]
# ## What does torch's wrapper offer beyond this? · extra
#
# | argument or method | what it does | default |
# |---|---|---|
# | `bucket_cap_mb` | closes a bucket that holds this many MiB | 25, the first bucket 1 |
# | `gradient_as_bucket_view` | makes `grad` a view of the bucket, which saves a second copy of all gradients | False |
# | `find_unused_parameters` | looks, in each forward, for parameters that backward will not reach | False |
# | `static_graph` | promises that each step uses the same parameters, so that one look is enough | False |
# | `forward_sync_buffers` | sends rank 0's buffers before a forward (`broadcast_buffers` before torch 2.13) | True |
# | `register_comm_hook(state, hook)` | sends something else, e.g. the bucket in bfloat16 | all-reduce, mean |
# | `no_sync()` | a context in which no gradients are sent | |
# | `join()` | a context in which a rank that has run out of batches takes part with zeros | |
#
# Without `find_unused_parameters`, an unused parameter leaves its bucket incomplete, and the next forward raises an
# error that says so.
#
# One line halves the bytes: `model.register_comm_hook(None, default_hooks.bf16_compress_hook)`. How wrong does a
# gradient get?


# %% tags=["experiment"]
def gradient_in_step(rank, world_size, hook):
    """(all gradients of the GPT after one backward under DDP, bytes that were all-reduced)."""
    tokens = small_gpt.random_tokens(2, seed=rank)
    with distributed.counted() as log:
        model = DistributedDataParallel(small_gpt.small_gpt())
        if hook:
            model.register_comm_hook(None, hook)
        small_gpt.next_token_loss(model, tokens).backward()
    gradient = torch.cat([p.grad.flatten() for p in model.parameters()])
    return gradient, log.bytes("all_reduce")


# %% tags=["experiment"]
bf16_hook = default_hooks.bf16_compress_hook
exact, exact_bytes = run_ranks(gradient_in_step, 2, None, backend="gloo")[0]
rounded, rounded_bytes = run_ranks(gradient_in_step, 2, bf16_hook, backend="gloo")[0]

error = (rounded - exact).norm() / exact.norm()
print(
    f"{exact_bytes:,} and {rounded_bytes:,} bytes; "
    f"the gradient differs by {error:.1%} of its length"
)
course.claim(
    "gradients in bfloat16 take half the bytes",
    2 * rounded_bytes == exact_bytes,
    f"{rounded_bytes:,} of {exact_bytes:,}",
)

# %% [markdown]
# bfloat16 keeps 8 significant bits, so one rounding changes a number by up to 0.4 %. **Known**: in a batch smaller than
# the noise scale, the noise of the gradient is larger than the gradient itself (McCandlish et al. 2018,
# arXiv:1812.06162).
#
# **Takeaway** Gradients in bfloat16 halve the bytes and are rounded. Use them where the wire is the bottleneck.
