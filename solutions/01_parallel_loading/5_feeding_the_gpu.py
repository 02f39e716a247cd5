# %% [markdown]
# # Parallel loading, part 5: Feed a GPU
#
# **How does the next batch reach the GPU while it computes on this one?**
#
# A batch that has been loaded is not yet where it is needed. You write the function that moves any batch to a
# device, and a prefetcher that queues the next copy on a stream of its own, so that it runs beside the computation.
# A stand-in for `torch.cuda` lets you check the order of the copies without a GPU. Then you measure which share of
# the time a training loop waits for its data, and advise a colleague.
#
# All exercises of this part are extra.
#
# **You will be able to**
#
# - explain pinned memory, streams and events by what waits for what;
# - overlap copying with computing, without races and without stopping the processor;
# - measure whether a training run is short of data before making anything faster.
#
# **Minutes** 0 core · 115 in all
#
# **Needs** parts 1 to 3: `LFWDataset`, `heavy_transform`, `seconds_per_pass`, `sweep` and `loader_options` are taken
# over if you solved them

# %% locked="setup"
import math
import time
import warnings

import torch
from torch.utils.data import DataLoader, default_collate

import course
from course import loaders, timing
from course.checks import parallel_loading as check
from course.datasets import lfw
from course.plots import parallel_loading as plots
from course.predictions import reveal

warnings.filterwarnings("ignore", "This DataLoader will create")  # more workers than cores: we try that on purpose
print(course.machine())

# %% [markdown]
# ## Copying while computing
#
# **A GPU can copy the next batch while it computes on this one, if the batch lies in pinned memory, the copy is queued
# on a stream of its own, and the computation waits for its own batch only.**
#
# **Pinned memory.** The operating system may move ordinary memory about, or out to the disk: it is *pageable*. The
# copy engine of a GPU reads memory without asking the processor, so it needs memory that stays where it is: *pinned*,
# or page-locked. From pinned memory a copy with `non_blocking=True` is only queued: the call returns at once, the
# engine copies when its turn comes. From pageable memory the driver first copies piece by piece into a pinned buffer
# of its own, and the call waits for that. `pin_memory=True` lets a thread of the `DataLoader` copy each batch into
# pinned memory, one copy more in exchange for one that need not be waited for; without `non_blocking=True` the
# processor waits all the same. A published course page (DTU 02476, data loading) advises pinning where the data set
# fits into the memory of the GPU. The two are unrelated: only a few batches are pinned at a time, in the memory of the
# computer.
#
# **Streams.** A stream is a queue of work on the GPU. Within a stream everything runs in order; two streams may run at
# the same time, a copy beside a computation. PyTorch puts all work on the *current* stream, by default one and the
# same, so that even a copy that the processor does not wait for stands in line with the kernels. Inside
# `with torch.cuda.stream(side):` new work goes to `side` instead.
#
# **Events.** What uses the result of another stream must wait for it. `event = side.record_event()` marks the place
# that the queue `side` has reached; `current.wait_event(event)` lets what is queued on `current` from now on wait for
# this place. The GPU waits, not the processor: both calls return at once. `current.wait_stream(side)` waits for *all*
# that has been queued on `side` so far, also for a copy that was to run beside the computation.
#
# **Memory.** PyTorch keeps freed GPU memory and hands it out again, for each stream separately. As soon as Python lets
# go of a tensor, its memory is free for the stream on which it was made, since the work there runs in order. If
# *another* stream still reads it, the next copy overwrites what is being read. `tensor.record_stream(stream)` makes
# the memory wait for what is queued on `stream` when the tensor is let go.

# %% [markdown]
# ### Exercise 1 · Move a batch
#
# Move whatever a loader gives to a device: all tensors in it, wherever they are, each with `non_blocking=True`.
#
# **Points** 2 · **Extra** · **Difficulty** ●○○ · **Minutes** 12 · **Lines** 8
#
# **Convention** Containers are plain lists, tuples and dictionaries, and named tuples, in any nesting, possibly empty.
# The result has containers of the same types and keys; those that were given stay as they are. Only tensors are moved;
# strings, numbers, None and every other object are handed through, the same object. A tensor that is on the device
# already is not copied.
#
# **Source** `torch.Tensor.to`, PyTorch documentation. Which containers occur is ours, after what `default_collate` of
# torch makes.
#
# <details><summary>Hint 1</summary>
#
# If you could already move everything that lies inside a list, how would you move the list?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# The function calls itself for each item. A tuple is made of a list of items, `tuple(items)`; a named tuple takes its
# fields one by one, `type(batch)(*items)`. It is the tuple that has an attribute `_fields`.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# Four cases: a tensor, `batch.to(device, non_blocking=True)`, which returns the tensor itself if it is there; a `dict`,
# a comprehension over `batch.items()`; a `list` or `tuple`, `items = [to_device(item, device) for item in batch]` and
# `type(batch)(items)` or with the star; all else, `return batch`.
#
# </details>


# %% solution="to_device"
def to_device(batch, device):
    """`batch` with every tensor in it on `device`, moved with non_blocking=True.

    Args:
        batch: a tensor, any other object, or a list, tuple, named tuple or dictionary of such; not changed.
        device: torch.device or its name.

    Returns: the same structure with the same types. What is no tensor and no container is the same object as before,
        and a tensor that was on `device` shares its memory with the one that was given.
    """
    ### BEGIN SOLUTION
    if isinstance(batch, torch.Tensor):
        return batch.to(device, non_blocking=True)
    if isinstance(batch, dict):
        return {key: to_device(value, device) for key, value in batch.items()}
    if isinstance(batch, (list, tuple)):
        items = [to_device(item, device) for item in batch]
        return type(batch)(*items) if hasattr(batch, "_fields") else type(batch)(items)
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
# Write a loader around a loader. It gives the same batches on the device, in the same order; when it hands out a batch,
# the copy of the next one is already queued on a stream of its own and runs while you compute.
#
# **Points** 5 · **Extra** · **Difficulty** ●●● · **Minutes** 75 · **Lines** 20
#
# **Convention** A batch is a tuple or a list of tensors in the computer's memory; the one on the device is of the same
# kind. Each `for` over the prefetcher is a pass over `iter(loader)` of its own, also after a pass that was broken off;
# passes do not overlap. When batch k is handed out, batch k + 1 has been drawn and no more. An exception of the loader
# reaches the caller; a batch that was ready at that moment may be lost.
#
# On a CUDA device: copies are made by `tensor.to(device, non_blocking=True)` on a side stream of that device. The
# *computing stream* is the one that is current on the device when a batch is asked for, and it is current again when
# the batch is handed out. It waits for the copy of its batch, not for the next one, and every tensor of a batch is
# marked with `record_stream` for it. The processor waits for nothing: no `synchronize`. On any other device no stream
# is touched, each batch is moved with `.to`, and the next one may be drawn in advance or not.
#
# `cuda` is `torch.cuda`, or a stand-in without a GPU by which the check watches the queues. Take streams and events
# from it, never from `torch.cuda` itself: the stand-in has `Stream`, `Event`, `stream`, `current_stream`, and their
# methods under torch's names.
#
# **Source** "CUDA semantics" in the PyTorch documentation, sections on streams and on pinned memory;
# `torch.Tensor.record_stream`.
#
# <details><summary>Hint 1</summary>
#
# Write down, for three batches, in which order these happen: draw, queue the copy, let the computing stream wait, hand
# out. At which point must the event of batch 1 be recorded so that waiting for it is not waiting for batch 2?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Keep one batch in hand, together with its event: `with self.cuda.stream(side):` move it, then
# `event = side.record_event()`, before anything else is queued there. What the caller computes must not land on `side`:
# leave the `with` block before you hand anything out, and ask for `self.cuda.current_stream(self.device)` outside.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# Two generators. The first draws a batch, queues its copy, and yields the copy and its event. `__iter__` takes `ready =
# next(copies, None)`; while it is not None: `batch, event = ready`, then `ready = next(copies, None)`, which queues the
# next copy; then `stream.wait_event(event)` and `record_stream` on each tensor, with the current stream; then `yield
# batch`. The loop ends by itself after the last batch, and an empty loader never enters it.
#
# </details>


# %% solution="Prefetcher"
class Prefetcher:
    """The batches of `loader` on `device`, in order, each handed out while the next one is being copied.

    Args:
        loader: has a length and gives, each time it is iterated over, tuples or lists of tensors that are not on
            `device`; best from pinned memory.
        device: torch.device or its name.
        cuda: where streams and events come from.
    """

    def __init__(self, loader, device, cuda=torch.cuda):
        ### BEGIN SOLUTION
        self.loader, self.device, self.cuda = loader, torch.device(device), cuda
        ### END SOLUTION

    def __len__(self):
        """Number of batches in a pass."""
        ### BEGIN SOLUTION
        return len(self.loader)
        ### END SOLUTION

    def __iter__(self):
        """A new pass: an iterator over the batches, tuples or lists of tensors on `device`."""
        ### BEGIN SOLUTION
        if self.device.type != "cuda":
            yield from map(self._moved, self.loader)
            return
        copies = self._copies()
        ready = next(copies, None)
        while ready is not None:
            batch, copied = ready
            ready = next(copies, None)  # the next copy is queued before this batch is handed out
            computing = self.cuda.current_stream(self.device)
            computing.wait_event(copied)  # wait_stream would wait for the next copy too
            for tensor in batch:
                tensor.record_stream(computing)  # else its memory is free for a copy as soon as Python lets go of it
            yield batch

    def _copies(self):
        side = self.cuda.Stream(self.device)
        for batch in self.loader:
            with self.cuda.stream(side):
                copy, copied = self._moved(batch), side.record_event()
            yield copy, copied

    def _moved(self, batch):
        return type(batch)(tensor.to(self.device, non_blocking=True) for tensor in batch)
        ### END SOLUTION


# %% test="Prefetcher-visible" points=2
check.Prefetcher(Prefetcher)

# %% test="Prefetcher-hidden" points=3
### BEGIN HIDDEN TESTS
check.Prefetcher(Prefetcher, seed=8)
### END HIDDEN TESTS

# %% [markdown]
# ### How long does the device wait?
#
# On a GPU, the cell trains a small network on the heavy faces and prints which share of the time the GPU was idle:
# with a plain copy in the loop, and with the prefetcher. Without a GPU there is no second device to overlap with. A
# sleep stands for its step (the CPU is free while a GPU computes), a fifth longer than two workers need for a
# batch, and what is printed is the share of the loop's time in which it waits for data.

# %%
predicted_waiting_share_2 = None  # your number: share of the time that the loop waits for data with 2 workers

# %% tags=["experiment"]
torch.set_num_threads(1)  # as in a worker: one image is too little work for several threads
sizes = course.sizes("01_parallel_loading")
LFWDataset_now = course.solved(check.LFWDataset)
heavy_transform_now = course.solved(check.heavy_transform)
to_device_now = course.solved(check.to_device)
Prefetcher_now = course.solved(check.Prefetcher)
loader_options_now = course.solved(check.loader_options)
device = course.device()
heavy = loaders.evenly_spaced(LFWDataset_now(lfw.folder(sizes.dataset), heavy_transform_now()), sizes.images)
counts = loaders.worker_counts(len(heavy) // sizes.batch_size)


def waiting_share(batches, step):
    """Share of the wall-clock time of a pass in which the loop waits for its next batch."""
    for _ in batches:
        pass
    waited, begin = 0.0, time.perf_counter()
    source = iter(batches)
    while True:
        asked = time.perf_counter()
        batch = next(source, None)
        waited += time.perf_counter() - asked
        if batch is None:
            return waited / (time.perf_counter() - begin)
        step(batch)


def gpu_idle_share(batches, step):
    """Share of the wall-clock time of a pass in which no step runs on the GPU."""
    for batch in batches:
        step(batch)
    torch.cuda.synchronize()
    begin, marks = time.perf_counter(), []
    for batch in batches:
        mark = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        mark[0].record()
        step(batch)
        mark[1].record()
        marks.append(mark)
    torch.cuda.synchronize()
    return 1 - sum(a.elapsed_time(b) for a, b in marks) / 1000 / (time.perf_counter() - begin)


with_two = timing.time_in_turn(
    [loaders.forked(heavy, sizes.batch_size, 2)],
    sizes.rounds,
    seconds_per_pass=course.solved(check.seconds_per_pass),
    sweep=course.solved(check.sweep),
)
step = 1.2 * with_two.quantile(0.5).item() / math.ceil(len(heavy) / sizes.batch_size)
shares = {}
for w in counts:
    shares[f"{w} workers"] = [waiting_share(loaders.forked(heavy, sizes.batch_size, w), lambda batch: time.sleep(step))]
share = shares["2 workers"][0]
print(f"with 2 workers the loop waits {100 * share:.0f} % of the time" + reveal(predicted_waiting_share_2))
if device.type == "cuda":
    net = torch.nn.Sequential(
        torch.nn.Conv2d(3, 64, 7, 4), torch.nn.ReLU(), torch.nn.Conv2d(64, 128, 5, 2), torch.nn.ReLU(),
        torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(128, 2),
    ).to(device)  # fmt: skip

    def train(batch):
        net.zero_grad()
        net(batch[0]).square().mean().backward()

    def as_tuple(images):
        return (default_collate(images),)

    options = loader_options_now(loaders.cores(), device)
    batches = DataLoader(heavy, sizes.batch_size, collate_fn=as_tuple, **options)
    in_loop = gpu_idle_share(batches, lambda batch: train(to_device_now(batch, device)))
    print(f"GPU idle: copy in the loop {100 * in_loop:.0f} %, ", end="")
    print(f"prefetcher {100 * gpu_idle_share(Prefetcher_now(batches, device), train):.0f} %")
else:
    print("no GPU here: the copy to the device and its overlap cannot be measured on this machine")
percent = {label: [100 * s for s in values] for label, values in shares.items()}
plots.bars(percent, "% of the time spent waiting", f"A step of {1000 * step:.0f} ms, heavy transform", "{:.0f} %")

# %% [markdown]
# Find the number of workers from which on the share hardly falls. There, loading a batch takes less time than the
# step, and more workers are waste. A part of what remains is the beginning of the pass, when nothing is ready. This
# is the question to ask of a training run before anything is made faster: what share of the time does the loop wait
# for data?

# %% [markdown]
# ### Question · Would you use workers here?
#
# **Points** 4, by hand
#
# A colleague trains on 200,000 sensor recordings of 2 kB each, all in memory as one tensor of 400 MB. `__getitem__`
# is `return self.data[i]`. The GPU is idle for two thirds of the time, and 16 workers have made it worse. Write, in
# about ten lines: why the workers do not help; which two measurements of this unit to make first, and what each
# outcome would mean; what to do instead; and when you would advise workers after all.

# %% [markdown] answer="advice" points=4
# <!-- BEGIN SOLUTION -->
# There is no work to divide: an item is a lookup of about a microsecond. What takes the time is the Python loop
# over the items of a batch, the collation of many small tensors, and, with workers, one message and one more copy
# through shared memory for each batch. Workers divide the first two and add the last two, and sixteen of them also
# take the cores from the loop that feeds the GPU.
#
# First I would measure the share of the loop that waits for data, with the step and without it. If it does not
# wait, the loader is not the problem (then: is the clock read after a synchronisation, are the kernels tiny?). If
# it does: the costs of one batch, stage by stage, in the main process. I expect lookup and collation of a thousand
# small tensors to be nearly all of it.
#
# Instead: no `__getitem__` for single items. Draw the indices of a whole batch and take the rows at once,
# `data[indices]` (with a DataLoader: a `BatchSampler` as the sampler and `batch_size=None`). With 400 MB, put the
# tensor on the GPU at the start; then nothing is copied at all. If it must stay on the host: pin it and copy with
# `non_blocking=True`, one batch ahead.
#
# Workers after all if an item takes work, from some hundred microseconds on (decoding, filters, resampling), or
# waiting (network, disk); then as many as the fitted model says, and bytes rather than floats to hand over.
#
# === BEGIN MARK SCHEME ===
# **1 point** why: no work an item, and a named cost that workers add (message, shared memory, start, contention).
# "GIL" as the reason for processes being slow earns nothing.
#
# **1 point** two measurements of the unit (waiting share, costs by stages, sweep with the fit, hand-over cost, cores
# busy), each with what its outcome would mean.
#
# **1 point** a remedy that removes work: batched indexing, data on the device, bytes instead of floats. "Fewer
# workers" alone earns half.
#
# **1 point** when workers do pay: work or waiting an item is large against the hand-over, with an order of
# magnitude or a number of the learner's own run.
#
# Take off 1 point for a number that is claimed as measured but was not.
# === END MARK SCHEME ===
# <!-- END SOLUTION -->
