# %% [markdown]
# # Data parallel, part 3: Build DistributedDataParallel
#
# **What must be sent, and when, so that N models stay one?**
#
# Each rank has a model of its own and its own part of the batch. You write the wrapper that keeps them equal, first
# with one message per parameter, then in buckets that travel while backward still computes. On the way you mend a
# hook that stands in public teaching code, and at the end four wrappers race.
#
# **You will be able to**
#
# - say what DDP sends at construction and in each step
# - write the naive wrapper, and the one with buckets and overlap
# - find out whether replicas have drifted apart
#
# **Minutes** 35 core · 150 in all
#
# **Needs** part 1 (`run_ranks`); exercises of other parts are not used

# %% locked="setup"
import contextlib
import itertools
import math

import torch
import torch.distributed as dist
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
# Predict for two ranks and this model: how many megabytes does each rank send in a step?

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
print(f"sent by rank 0 in the second step: {sent / 1e6:.2f} MB" + reveal(predicted_megabytes))

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
# ### Exercise 1 · The naive version
#
# Write the wrapper with two plain loops: one broadcast per tensor when it is made, one all-reduce per parameter
# after backward. The training loop has to call it: `loss.backward()`, `model.average_gradients()`,
# `optimizer.step()`.
#
# **Points** 4 · **Core** · **Difficulty** ●●○ · **Minutes** 25 · **Lines** 11
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
# ### Exercise 2 · Cut the parameters into buckets
#
# Say which parameters travel together.
#
# **Points** 2 · **Extra** · **Difficulty** ●○○ · **Minutes** 12 · **Lines** 7
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
# ### Exercise 3 · The overlapped version
#
# Now the wrapper whose training loop looks like that of one process: `loss.backward()` leaves the averaged
# gradients behind, sent in buckets while it ran. Inside of `with model.no_sync():` a backward sends nothing, so
# that the gradients of several small batches pile up on each rank and are sent once.
#
# **Points** 6 · **Extra** · **Difficulty** ●●● · **Minutes** 100 · **Lines** 42
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
# ### Exercise 4 · Mend the hook
#
# Write the hook so that it does what it was meant to do.
#
# **Points** 2 · **Core** · **Difficulty** ●○○ · **Minutes** 5 · **Lines** 2
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
print(course.machine())
plots.step_ratios(list(wrappers), ddp_seconds, f"one step, 2 ranks, batch {sizes.batch_size} each")

# %% [markdown]
# A dot is one pair of steps. The naive version is slower: it waits for a message for each tensor, one after the
# other. The other three cannot be told apart here. That is no surprise: overlap needs somebody who sends while you
# compute. On GPUs that is the network card and a few multiprocessors; here the core that sends is the core that
# computes. What the overlapped version costs in bookkeeping, on the other hand, would show: it costs nothing that
# could be seen.
