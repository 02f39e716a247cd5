# %% [markdown]
# # Parallel loading, part 5: Feed a GPU
#
# **How does the next batch reach the GPU while it computes on this one?**
#
# First you see what `pin_memory` and `non_blocking` do, and when copying matters at all. Then you write a prefetcher,
# which lets a GPU copy one batch while it computes on another.
#
# You can solve all of this without a GPU, because a stand-in for `torch.cuda` checks the order of your calls. A claim
# that needs a GPU then says "no GPU here" and shows what we recorded on one. For the prefetcher we have no record yet.
#
# **You will be able to**
#
# - say what `pin_memory` and `non_blocking` do, and compute whether they can matter;
# - measure what share of its time a training loop waits;
# - overlap copies with computing, without a race and without making the processor wait.
#
# **Minutes** 6 core · 63 in all · session 2
#
# **Needs** parts 1 and 2: your `LFWDataset` and `seconds_per_pass` are used if you solved them

# %% locked="setup"
import os
import warnings

# else the profiler would write about missing GPUs to the terminal
os.environ.setdefault("KINETO_LOG_LEVEL", "6")

import copy
import statistics

import torch

import course
from course.checks import parallel_loading as check
from course.datasets import lfw
from course.learner import recorded
from course.loading import feeding, loader_passes, loaders
from course.measure import comparison
from course.plots import parallel_loading as plots

# more workers than cores: we try that on purpose
warnings.filterwarnings("ignore", "This DataLoader will create")
print(course.machine())

# %% tags=["experiment"]
torch.set_num_threads(1)  # as in a worker: one image is too little work for several threads
sizes = course.sizes("01_parallel_loading")
device = course.device()
LFWDataset_now = course.solved(check.LFWDataset)
heavy = LFWDataset_now(lfw.folder(sizes.dataset), lfw.heavy_transform())
heavy = loaders.evenly_spaced(heavy, sizes.images)

# %% [markdown]
# ## What do `pin_memory` and `non_blocking` do?
#
# Two options decide whether your loop waits for a copy to the GPU. A GPU can fetch a batch from memory by itself, while
# the processor does something else. That works only from *pinned* memory, whose pages the system may not move. Ordinary
# memory is *pageable*. From there, the driver first copies each piece into a pinned buffer, and your program waits for
# that. A GPU takes its work from queues, which are called *streams*. Work in two streams may overlap.
#
# - With `DataLoader(..., pin_memory=True)`, a thread of your process copies each batch into pinned memory. The extra
#   copy still happens, but this thread makes it while your loop runs.
# - `batch.to(device, non_blocking=True)` does not wait for the end of the copy. From pinned memory, it returns as soon
#   as the copy is queued. From pageable memory, it returns only when the driver has taken the data. Until then your
#   loop cannot queue a step.

# %% tags=["experiment"]
batch_bytes = sizes.pass_batch * 3 * 250 * 250 * 4
copies = feeding.compare_copies(batch_bytes, device, sizes.pass_seconds)

print(copies)
course.claim(
    "a batch of images is copied to the GPU at least 1.2 times as fast from pinned memory as from pageable",
    copies.pinned_ratio,
    feeding.NO_GPU,
    above=1.2,
)
course.claim(
    "from pinned memory, a non_blocking copy returns in less than a fifth of its time",
    copies.returns.get(feeding.PINNED),
    feeding.NO_GPU,
    below=0.2,
)
course.claim(
    "from pageable memory, a non_blocking copy keeps the processor for more than half of its time",
    copies.returns.get(feeding.PAGEABLE),
    feeding.NO_GPU,
    above=0.5,
)
print("\nRecorded copies:", recorded.step_lines("copies") or "nothing yet", sep="\n")

# %% [markdown]
# The printed lines come from `course bench gpu copies`, which copies from pinned memory while a matrix product runs in
# another stream. They show that a copy can hide behind computing.
#
# **Known**: PyTorch's tutorial [on pin_memory and
# non_blocking](https://docs.pytorch.org/tutorials/intermediate/pinmem_nonblock.html) measures this on a GPU, and shows
# three surprises:
#
# - `non_blocking=True` can help even without pinned memory if a batch has many small tensors. The loop waits for
#   the GPU once, not after each tensor.
# - `tensor.pin_memory()` in the training loop can be slower than a plain copy, because the loop waits for the pinning.
# - Your program may read a `non_blocking` copy *from* the GPU before it has arrived. Synchronise first.
#
# **Takeaway** To run a copy during a step, copy from pinned memory, with `non_blocking=True`, on another stream.
# Without the other stream, you only free the processor.

# %% [markdown]
# ## When can copying matter?
#
# Is it worth the effort to hide copies behind steps? One division tells you. Divide the bytes per second that you load
# by the bytes per second that the bus can carry. This is the share of the time in which the bus copies, if the memory
# is pinned. A prefetcher hides these copies behind the steps, so it saves at most this share.
#
# **Predict**: a loader yields 2,000 LFW images per second as floats, and the bus of an H200 carries 55 GB/s. For what
# share of the time does the bus copy?

# %%
predicted_bus_share = None  # your number, from 0 to 1

# %% tags=["experiment"]
BUS = 55  # GB/s: an H200 on PCIe 5, see above; PCIe 4 has about half of it
image = 3 * 250 * 250  # bytes as uint8
cases = {
    "LFW as floats, 2,000 images per second": (4 * image, 2_000),
    "LFW as bytes, 2,000 images per second": (image, 2_000),
    "LFW as floats, 20,000 images per second": (4 * image, 20_000),
    "rows of 4,000 floats in memory (unit 04), a million per second": (16_000, 1_000_000),
    "tokens of 8 bytes, a million per second": (8, 1_000_000),
}

for what, (bytes_per_item, items_per_second) in cases.items():
    on_bus = feeding.copy_share(bytes_per_item, items_per_second, BUS)
    print(f"{on_bus:8.3%}  {what}")

said = "share of the time that the bus copies"
share = feeding.copy_share(4 * image, 2_000, BUS)
print(course.score("01/5", said, predicted_bus_share, share, null=None, form="{:.1%}"))

# %% [markdown]
# And pinning? The first claim of this part says $r$: how many times as fast a copy from pinned memory is as one from
# pageable memory. If your loop waits for its copies, pinning saves $r - 1$ times the printed share.
#
# **Takeaway** Hiding copies saves at most the bytes per second divided by the speed of the bus. Compute that before you
# write a prefetcher.

# %% [markdown]
# ## How long does the loop wait? · extra
#
# If a GPU computes the step, a faster loader saves the time that the loop waits, so measure that time. In the next cell
# a sleep stands for the GPU's step, because the processor is free while a GPU computes. The sleep takes 1.5 times as
# long as two workers need for a batch. So with two workers, only the first batch should be late. Does the loop still
# wait?

# %% tags=["experiment"]
n_batches = comparison.steady_batches(2)
steady = loader_passes.Repeated(heavy, n_batches * sizes.pass_batch)
ways = {
    "0 workers": loaders.forked(steady, sizes.pass_batch, 0),
    "1 worker": loaders.forked(steady, sizes.pass_batch, 1),
    "2 workers": loaders.forked(steady, sizes.pass_batch, 2),
}
seconds_per_pass_now = course.solved(check.seconds_per_pass)
passes = seconds_per_pass_now(ways["2 workers"], n_batches)
seconds_per_batch = passes.median().item() / n_batches
pause = feeding.sleeping(1.5 * seconds_per_batch)

waits = feeding.waiting_in_rounds(ways, pause, rounds=sizes.pass_rounds[0])

print(f"2 workers: {waits.first['2 workers']:.3f} s until the first batch")
course.claim(
    "in the steady state, the loop waits for a share that two workers lower by at least 10 percentage points",
    comparison.difference_interval(waits.share["0 workers"], waits.share["2 workers"]),
    above=10,
)
without = statistics.median(waits.share["0 workers"])
with_two = statistics.median(waits.share["2 workers"])
title = f"The loop waits {without:.0f} % of the time without workers, {with_two:.0f} % with two"
plots.bars(waits.share, "the time spent waiting", title)

# %% [markdown]
# The bars leave out the first batch, whose wait the printed line says. They include the time to take a batch that is
# ready: your process reads a message and maps shared memory (part 3). So a bar of two workers above 0 does not prove
# that batches were late.
#
# **Takeaway** Measure the wait for the first batch apart from the rest. The rest is what a long training feels.

# %% [markdown]
# ## How can a GPU copy and compute at the same time? · extra
#
# To hide a copy, you need two streams. The processor does not run a step on a GPU: it queues the work in a stream and
# returns immediately. Work in one stream runs in order, and work in two streams may overlap. So copies go to a side
# stream, and steps go to the computing stream.
#
# A step must not read a batch that is still being copied. An *event* marks a place in a stream, and another stream can
# wait for that place. Then the GPU waits, not the processor. (A loop that reads `loss.item()` after each step makes the
# processor wait for the GPU each time, so it cannot queue anything ahead.)

# %%
plots.streams()

# %% [markdown]
# | to | call |
# |---|---|
# | make a stream, and queue work on it | `side = cuda.Stream(device)`, `with cuda.stream(side):` |
# | get the stream that the caller uses | `cuda.current_stream(device)` |
# | mark the place that a stream has reached | `event = side.record_event()` |
# | let a stream wait for that place only | `stream.wait_event(event)` |
# | keep a tensor's memory until a stream has read it | `tensor.record_stream(stream)` |
#
# The last line prevents a race. PyTorch gives freed GPU memory back to the stream that allocated it. So when Python
# drops a batch, the side stream may copy the next one into the same memory while the computing stream still reads it.
#
# ### Exercise 1 · Move a batch
#
# A batch is often a dictionary or a tuple of tensors. Write a function that moves such a batch to a device.
#
# **Must**
# - move every tensor with `.to(device, non_blocking=True)`, however deeply it is nested;
# - return new containers of the same types and keys;
# - return every other object unchanged.
#
# ```python
# >>> to_device({"images": torch.zeros(2), "names": ["Ada"]}, "cpu")
# {'images': tensor([0., 0.]), 'names': ['Ada']}
# ```
#
# **You may assume** that containers are what torch's `default_collate` makes: lists, tuples, namedtuples, and
# dictionaries, which may be an `OrderedDict` or a `defaultdict`.
#
# **Points** 2 · **Extra** · **Difficulty** ●●○ · **Minutes** 10 · **Lines** 11
#
# **Source** `torch.Tensor.to` and `torch.utils.data.default_collate`, PyTorch documentation.
#
# <details><summary>Hint 1</summary>
#
# If you could already move each item of a list, how would you move the list?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# The function calls itself for each item. `type(batch)(items)` makes a list or a tuple, as the batch was. A namedtuple
# has `_fields`, and takes one argument per field. `copy.copy(batch)` is a new dictionary of the same kind.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# There are five cases. A tensor is moved. For a `dict`, write the moved values into its copy. For a namedtuple, return
# `type(batch)(*items)`. For a `list` or `tuple`, return `type(batch)(items)`. For everything else, return `batch`.
#
# </details>


# %% solution="to_device"
def to_device(batch, device):
    """`batch` with every tensor in it on `device`, moved with non_blocking=True.

    Args:
        batch: a tensor, any other object, or a list, tuple, namedtuple or dictionary of such; not changed.
        device: torch.device or its name.

    Returns: the same structure with the same types; other objects are the same objects as before.
    """
    ### BEGIN SOLUTION
    if isinstance(batch, torch.Tensor):
        return batch.to(device, non_blocking=True)
    if isinstance(batch, dict):
        moved = copy.copy(batch)  # a defaultdict has its factory, too
        for key, value in batch.items():
            moved[key] = to_device(value, device)
        return moved
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):  # a namedtuple
        return type(batch)(*(to_device(item, device) for item in batch))
    if isinstance(batch, (list, tuple)):
        moved = [to_device(item, device) for item in batch]
        return type(batch)(moved)
    return batch
    ### END SOLUTION


# %% test="to_device-visible" points=1
check.to_device(to_device)

# %% test="to_device-hidden" points=1
### BEGIN HIDDEN TESTS
check.to_device(to_device, seed=17)
### END HIDDEN TESTS

# %% [markdown]
# ### Exercise 2 · Prefetch to the GPU
#
# Write `__iter__` so that the calls come in the order of the figure. Use one side stream for the whole pass. Record an
# event right after the copy of a batch, and keep both until you yield the batch. Take streams from `self.cuda`, which
# is `torch.cuda` or a stand-in that watches the queues without a GPU.
#
# **Must**
# - before you yield batch $k$, draw batch $k + 1$ and queue its copy on a side stream, but draw no further ahead;
# - let the current stream, in which the caller computes, wait for the copy of batch $k$ but not for the copy of $k +
#   1$;
# - call `record_stream` with the current stream on every tensor of a batch.
#
# **Convention** The processor waits for nothing, so do not call `synchronize`.
#
# **Points** 5 · **Extra** · **Difficulty** ●●● · **Minutes** 35 · **Lines** 14
#
# **Source** "CUDA semantics" in the PyTorch documentation, on streams and pinned memory; `torch.Tensor.record_stream`.
#
# <details><summary>Hint 1</summary>
#
# Write down for three batches in which order these happen: draw, queue the copy, let the computing stream wait, yield.
# When must you record the event of batch 1, so that waiting for it does not mean waiting for batch 2?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Keep a batch together with its event. Inside `with self.cuda.stream(side):`, move the batch, then call `event =
# side.record_event()` before you queue anything else there. The caller must not compute on `side`, so leave the `with`
# block before you yield.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# Write two generators. The first draws a batch, queues its copy, and yields the copy and its event. `__iter__` begins
# with `ready = next(copies, None)`. While `ready` is not None, it takes `batch, event = ready`, and queues the next
# copy by `ready = next(copies, None)`. Then it calls `wait_event(event)` and `record_stream` with the current stream,
# and yields `batch`.
#
# </details>


# %% solution="Prefetcher"
class Prefetcher:
    """The batches of `loader` on a GPU, in order; while one is in use, the next one is being copied.

    Args:
        loader: has a length and gives plain tuples or lists of tensors in pinned memory, each time it is iterated over.
        device: torch.device of a GPU, or its name.
        cuda: where streams and events come from.
    """

    def __init__(self, loader, device, cuda=torch.cuda):
        self.loader = loader
        self.device = torch.device(device)
        self.cuda = cuda

    def __len__(self):
        """Number of batches in a pass."""
        return len(self.loader)

    def _moved(self, batch):
        """Queue the copy of a batch on the current stream; return the tensors on the device."""
        return type(batch)(tensor.to(self.device, non_blocking=True) for tensor in batch)

    def __iter__(self):
        """A new pass: an iterator over the batches on the device."""
        ### BEGIN SOLUTION
        copies = self.copies()
        ready = next(copies, None)
        while ready is not None:
            batch, is_copied = ready
            ready = next(copies, None)  # the next copy is queued before this batch is yielded
            computing = self.cuda.current_stream(self.device)
            computing.wait_event(is_copied)  # wait_stream would wait for the next copy too
            for tensor in batch:
                # else its memory is free for a copy as soon as Python drops it
                tensor.record_stream(computing)
            yield batch

    def copies(self):
        side = self.cuda.Stream(self.device)
        for batch in self.loader:
            with self.cuda.stream(side):
                moved = self._moved(batch)
                is_copied = side.record_event()
            yield moved, is_copied
        ### END SOLUTION


# %% test="Prefetcher-visible" points=2
check.Prefetcher(Prefetcher)

# %% test="Prefetcher-hidden" points=3
### BEGIN HIDDEN TESTS
check.Prefetcher(Prefetcher, seed=8)
### END HIDDEN TESTS

# %% [markdown]
# What does your prefetcher gain? With a GPU, the next cells train a small network on the heavy faces in four ways: from
# pinned or pageable memory, with the copy in the loop or with your prefetcher. They count the GPU as idle when no step
# runs.
#
# **Predict**: which of the four leaves the GPU idle least?

# %%
predicted_best_way = None  # such as "pageable, prefetcher"

# %% tags=["experiment"]
to_device_now = course.solved(check.to_device)
Prefetcher_now = course.solved(check.Prefetcher)


def move(batch):
    return to_device_now(batch, device)


def prefetch(batches):
    return Prefetcher_now(batches, device)


ways = feeding.ways_to_feed(heavy, sizes.batch_size, device, move, prefetch)

# %% tags=["experiment"]
step = feeding.small_network(device)
idle = feeding.idle_in_rounds(ways, step, rounds=sizes.pass_rounds[0])
best = feeding.least_idle(idle)
gain = feeding.less_idle(idle, "pinned, prefetcher", than="pinned, copy in the loop")

print(course.score("01/5", "idle least", predicted_best_way, best))
course.claim(
    "with pinned memory, the prefetcher leaves the GPU idle for a smaller share of the time than the copy in "
    "the loop, by at least 2 percentage points",
    gain,
    feeding.NO_GPU,
    above=2,
)
plots.bars(idle, "the time without a step", "The GPU, four ways to feed it")

# %% [markdown]
# torch's profiler shows on a timeline when the processor works, when copies run and when the GPU computes. Without a
# GPU, the next cell draws nothing.

# %% tags=["experiment"]
n_steps = min(6, len(heavy) // sizes.batch_size - 1)
strips = {}
for name in ways:
    if name not in ("pageable, copy in the loop", "pinned, prefetcher"):
        continue
    trace = feeding.traced(name, ways[name], step, n_steps)
    overlapped = feeding.overlapped(trace)
    print(f"{name}: {overlapped:.0%} of the copying runs while a kernel does")
    strips.update(trace)

plots.strips(strips)

# %% [markdown]
# **We think** that this small network waits mostly for decoding, which no prefetcher shortens. A prefetcher can even
# hurt, because it draws batch $k + 1$ before it yields batch $k$. If the loader is late, a batch that has already
# arrived must wait. To test this, use images that are tensors in memory already.
#
# **Takeaway** Pinned memory, a side stream and an event per batch allow copy $k + 1$ to run during step $k$.
