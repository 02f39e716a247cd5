# %% [markdown]
# # Parallel loading, part 5: Feed a GPU
#
# **How does the next batch reach the GPU while it computes on this one?**
#
# A batch that has been loaded is not yet where it is needed. You write the function that moves any batch to a
# device, and a prefetcher that queues the next copy on a stream of its own, so that it runs beside the computation.
# A stand-in for `torch.cuda` lets you check the order of the copies without a GPU. Then you measure which share of
# the time a training loop waits for its data, find it in a profile, and advise a colleague.
#
# All exercises of this part are extra.
#
# **You will be able to**
#
# - explain pinned memory, streams and events by what waits for what;
# - overlap copying with computing, without races and without stopping the processor;
# - see in a profile whether a training run is short of data before making anything faster;
# - fetch whole batches where single items cost nothing.
#
# **Minutes** 0 core · 120 in all
#
# **Needs** parts 1 to 3: `LFWDataset`, `heavy_transform`, `seconds_per_pass`, `sweep` and `loader_options` are taken
# over if you solved them

# %% locked="setup"
import math
import os
import tempfile
import time
import warnings

os.environ.setdefault("KINETO_LOG_LEVEL", "6")  # the profiler would write about missing GPUs to the terminal

import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile, record_function
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler, default_collate

import course
from course.checks import parallel_loading as check
from course.datasets import lfw
from course.learner.predictions import reveal
from course.loading import loaders
from course.measure import timing
from course.plots import parallel_loading as plots

warnings.filterwarnings("ignore", "This DataLoader will create")  # more workers than cores: we try that on purpose
print(course.machine())

# %% [markdown]
# ## Copying while computing
#
# **A GPU can copy the next batch while it computes on this one, if the batch lies in pinned memory, the copy is queued
# on a stream of its own, and the computation waits for its own batch only.**
#
# **Pinned memory.** The operating system may move ordinary memory about: it is *pageable*. The copy engine of a GPU
# reads memory without asking the processor, so it needs memory that stays where it is: *pinned*, or page-locked. From
# pinned memory a copy with `non_blocking=True` is only queued, and the call returns at once. From pageable memory the
# driver first copies piece by piece into a pinned buffer of its own, and the call waits for that. `pin_memory=True`
# lets a thread of the `DataLoader` copy each batch into pinned memory. A published course page (DTU 02476) advises it
# where the data set fits into the memory of the GPU; the two are unrelated, because only a few batches are pinned at a
# time, in the memory of the computer.
#
# **Streams.** A stream is a queue of work on the GPU. Within a stream everything runs in order; two streams may run at
# the same time, a copy beside a computation. PyTorch puts all work on the *current* stream, by default one and the
# same. Inside `with torch.cuda.stream(side):` new work goes to `side` instead.
#
# **Events.** What uses the result of another stream must wait for it. `event = side.record_event()` marks the place
# that the queue `side` has reached; `current.wait_event(event)` lets what is queued on `current` from now on wait for
# this place. The GPU waits, not the processor. `current.wait_stream(side)` waits for *all* that has been queued on
# `side` so far, also for a copy that was to run beside the computation.
#
# **Memory.** PyTorch keeps freed GPU memory and hands it out again, for each stream separately. As soon as Python lets
# go of a tensor, its memory is free for the stream on which it was made. If *another* stream still reads it, the next
# copy overwrites what is being read. `tensor.record_stream(stream)` makes the memory wait for what is queued on
# `stream` when the tensor is let go.

# %% [markdown]
# ### Exercise 1 · Move a batch
#
# Move whatever a loader gives to a device.
#
# **Must**
# - move all tensors in it, wherever they are, with `non_blocking=True`; one that is there already is not copied;
# - return containers of the same types and keys: `list`, `tuple`, named tuples, `dict`, in any nesting, possibly empty;
# - hand through every other object, the same object;
# - leave what was given as it is.
#
# **You may assume** that no other subclasses of list, tuple or dict occur.
#
# **Points** 2 · **Extra** · **Difficulty** ●○○ · **Minutes** 12 · **Lines** 8
#
# **Source** `torch.Tensor.to`, PyTorch documentation. Which containers occur is ours, after torch's `default_collate`.
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
# ### What a prefetcher must keep in order
#
# On a CUDA device:
#
# - when batch k is handed out, batch k + 1 has been drawn and its copy queued, and no more;
# - copies are made by `tensor.to(device, non_blocking=True)` on a side stream;
# - the *computing stream*, the one that is current when a batch is asked for, is current again when it is handed out;
# - it waits for the copy of its own batch, not for the next one;
# - every tensor of a batch is marked with `record_stream` for it;
# - the processor waits for nothing: no `synchronize`.
#
# `cuda` is `torch.cuda`, or a stand-in without a GPU by which the check watches the queues. Take streams and events
# from it, never from `torch.cuda` itself: the stand-in has `Stream`, `Event`, `stream`, `current_stream`, and their
# methods under torch's names.

# %% [markdown]
# ### Exercise 2 · Prefetch to the GPU
#
# Write a loader around a loader: the same batches on the device, in the same order, each handed out while the next is
# being copied, as listed above.
#
# **Must**
# - give tuples or lists of tensors, as the loader does; make each `for` a pass of its own, also after one that was
#   broken off;
# - on a device that is not CUDA, where nothing overlaps, touch no stream and move each batch with `.to`;
# - let an exception of the loader through. If drawing batch k + 1 fails, batch k may be lost.
#
# **You may assume** that passes do not overlap.
#
# **Points** 5 · **Extra** · **Difficulty** ●●● · **Minutes** 75 · **Lines** 20
#
# **Source** "CUDA semantics" in the PyTorch documentation, on streams and pinned memory; `torch.Tensor.record_stream`.
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
# ## How long does the loop wait?
#
# **Before you make a loader faster, measure which share of the time the training waits for it.**
#
# Without a GPU there is no second device to overlap with. A sleep stands for its step (the CPU is free while a GPU
# computes), a fifth longer than two workers need for a batch.
#
# **Predict**: which share of the time does the loop wait for data with two workers?

# %%
predicted_waiting_share_2 = None  # your number, from 0 to 1

# %% tags=["experiment"]
torch.set_num_threads(1)  # as in a worker: one image is too little work for several threads
sizes = course.sizes("01_parallel_loading")
LFWDataset_now = course.solved(check.LFWDataset)
to_device_now = course.solved(check.to_device)
Prefetcher_now = course.solved(check.Prefetcher)
device = course.device()
folder = lfw.folder(sizes.dataset)
heavy = loaders.evenly_spaced(LFWDataset_now(folder, lfw.heavy_transform()), 5 * sizes.images // 8)
counts = loaders.worker_counts(len(heavy) // sizes.batch_size)


def waiting_shares(batches, step):
    """Shares of the wall-clock time of a pass in which the loop waits: (for all batches, for the first one)."""
    for _ in batches:
        pass
    waited, begin = [], time.perf_counter()
    source = iter(batches)
    while True:
        asked = time.perf_counter()
        batch = next(source, None)
        waited.append(time.perf_counter() - asked)
        if batch is None:
            whole = time.perf_counter() - begin
            return sum(waited) / whole, waited[0] / whole
        step(batch)


with_two = timing.time_in_turn(
    [loaders.forked(heavy, sizes.batch_size, 2)],
    2,
    seconds_per_pass=course.solved(check.seconds_per_pass),
)
step = 1.2 * with_two.quantile(0.5).item() / math.ceil(len(heavy) / sizes.batch_size)
shares, first = {}, {}
for w in counts:
    batches = loaders.forked(heavy, sizes.batch_size, w)
    passes = [waiting_shares(batches, lambda batch: time.sleep(step)) for _ in range(2)]
    shares[w], first[w] = zip(*passes, strict=True)
    waits = f"the loop waits {min(shares[w]):.0%} of the time, {min(first[w]):.0%} for the first batch"
    print(f"{timing.counted(w, 'worker')}: {waits}")
share = min(shares[2])
print(f"with 2 workers the loop waits {share:.0%} of the time" + reveal(predicted_waiting_share_2, "{:.0%}"))
otherwise = "The first batch is most of a short pass, or other programs used the workers' cores."
course.claim("with two workers the loop waits for less than half the share that it waits without",
             share < min(shares[0]) / 2, f"{share:.0%} against {min(shares[0]):.0%}", otherwise=otherwise)  # fmt: skip
enough = max(w for w in counts if w <= max(1, loaders.cores()))
course.claim("with more workers than cores, the loop waits longer for the first batch than with as many as cores",
             min(first[counts[-1]]) > min(first[enough]) if counts[-1] > loaders.cores() else math.nan,
             f"{min(first[counts[-1]]):.0%} of the time with {counts[-1]} workers, "
             f"{min(first[enough]):.0%} with {enough}", otherwise=otherwise)  # fmt: skip
percent = {timing.counted(w, "worker"): [100 * s for s in values] for w, values in shares.items()}
plots.bars(percent, "% of the time spent waiting", f"A step of {1000 * step:.0f} ms, heavy transform", "{:.0f} %")

# %% [markdown]
# Find the number of workers from which on the share falls no more. There, loading a batch takes less time than the
# step, and more workers are waste. Half or more of what remains is the wait for the first batch, when nothing is ready.
# More workers than cores make it longer: all of them begin a batch at once, and each gets a part of a core.
#
# On a GPU, the next cell trains a small network on the heavy faces, with pinned and with pageable memory, with the copy
# in the loop and with the prefetcher. Both ways hand over batches on the device, and the time is taken around the
# training step alone; whatever else happens meanwhile, copies included, counts as idle for both.


# %% tags=["experiment"]
class InLoop:
    """The batches of `loader`, each moved when it is asked for."""

    def __init__(self, loader, device):
        self.loader, self.device = loader, device

    def __iter__(self):
        return (to_device_now(batch, self.device) for batch in self.loader)


def as_tuple(images):
    """A batch as the prefetcher takes it."""
    return (default_collate(images),)


def gpu_idle_share(batches, step):
    """Share of the wall-clock time of a pass in which no step runs on the GPU."""
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


torch.manual_seed(0)
net = torch.nn.Sequential(
    torch.nn.Conv2d(3, 64, 7, 4), torch.nn.ReLU(), torch.nn.Conv2d(64, 128, 5, 2), torch.nn.ReLU(),
    torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(128, 2),
).to(device)  # fmt: skip


def train(batch):
    """Forward and backward pass on the images of `batch`."""
    net.zero_grad()
    net(batch[0]).square().mean().backward()


figure = None
if device.type == "cuda":
    ways = {}
    for pinned in (False, True):
        batches = loaders.forked(heavy, sizes.batch_size, loaders.cores(), collate_fn=as_tuple, pin_memory=pinned)
        memory = "pinned" if pinned else "pageable"
        ways[f"{memory}, copy in the loop"] = InLoop(batches, device)
        ways[f"{memory}, prefetcher"] = Prefetcher_now(batches, device)
    for way in ways.values():
        gpu_idle_share(way, train)  # starts the workers and the kernels
    idle = timing.sweep(lambda label: gpu_idle_share(ways[label], train), list(ways), sizes.rounds)
    idle = dict(zip(ways, 100 * idle, strict=True))
    best = min(idle, key=lambda label: idle[label].quantile(0.5))
    course.claim("pinned memory with the prefetcher leaves the GPU idle least", best == "pinned, prefetcher", best)
    figure = plots.bars(idle, "% of the time without a step", "The GPU, four ways to feed it", "{:.0f} %")
else:
    print("no GPU here: pinned memory, the copy to the device and its overlap cannot be measured on this machine")
figure  # noqa: B018

# %% [markdown]
# The same as a timeline: what the processor does, when copies run, when the GPU computes. The events are those of
# torch's profiler, on one clock.


# %% tags=["experiment"]
def strips(name, batches):
    """{row of the figure: [(label, number, start, end)]}, in seconds, of six batches that are trained on, or fewer."""
    source, on_gpu = iter(batches), device.type == "cuda"
    train(next(source))
    with profile(activities=[ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * on_gpu) as found:
        for _ in range(min(6, len(heavy) // sizes.batch_size - 1)):
            with record_function("waits for a batch"):
                batch = next(source)
            with record_function("queues the step" if on_gpu else "computes the step"):
                train(batch)
        if on_gpu:
            torch.cuda.synchronize()
    rows = {f"{name}: {row}": [] for row in ("processor", *["copies", "GPU"] * on_gpu)}
    labels = ("waits for a batch", "queues the step", "computes the step")
    start = min(event.time_range.start for event in found.events() if event.name in labels)
    for k, event in enumerate(found.events()):
        span = k, (event.time_range.start - start) / 1e6, (event.time_range.end - start) / 1e6
        if event.device_type == DeviceType.CPU and event.name in labels:
            rows[f"{name}: processor"].append((event.name, *span))
        elif event.device_type == DeviceType.CUDA and event.name.startswith("Memcpy HtoD"):
            rows[f"{name}: copies"].append(("copy to the GPU", *span))
        elif event.device_type == DeviceType.CUDA and event.name not in labels:
            rows[f"{name}: GPU"].append(("kernel", *span))
    return rows


def overlapped(rows):
    """Share of the time of all copies in which a kernel runs; NaN if the profile holds no copy."""
    *_, copies, kernels = ([(start, end) for _, _, start, end in row] for row in rows.values())
    both = sum(max(0, min(b, d) - max(a, c)) for a, b in copies for c, d in kernels)
    return both / sum(b - a for a, b in copies) if copies else math.nan


if device.type == "cuda":
    recorded = {name: strips(name, ways[name]) for name in ("pageable, copy in the loop", "pinned, prefetcher")}
    beside = {name: overlapped(rows) for name, rows in recorded.items()}
    if any(map(math.isnan, beside.values())):
        print("the profile holds no copies to the GPU: torch may not trace it here, so their overlap is unknown")
    course.claim("with the prefetcher more of the copying runs beside kernels than with the copy in the loop",
                 math.nan if any(map(math.isnan, beside.values()))
                 else beside["pinned, prefetcher"] > beside["pageable, copy in the loop"],
                 ", ".join(f"{name}: {share:.0%}" for name, share in beside.items()),
                 otherwise="Batches are so small, or arrive so slowly, that nothing computes while the next one is "
                           "copied. Without a copy in the profile there is no verdict.")  # fmt: skip
else:
    print("no GPU here: the rows of copies and of the GPU are missing, the processor computes the step itself")
    options = dict(collate_fn=as_tuple)
    two_ways = {f"{w} workers": InLoop(loaders.forked(heavy, sizes.batch_size, w, **options), device) for w in (0, 2)}
    recorded = {name: strips(name, way) for name, way in two_ways.items()}
plots.strips({row: spans for rows in recorded.values() for row, spans in rows.items()})

# %% [markdown]
# On a GPU, look whether a copy runs while a kernel does: that is the purpose of pinned memory, a second stream and an
# event. If batches come more slowly than the GPU computes, all four ways wait for the loader, and which of them leaves
# the GPU idle least is chance.
#
# ## Find it in a profile
#
# **A profile shows the waiting under the loader's own name.**
#
# `torch.profiler` records what each line costs, and torch labels every `next` of a `DataLoader`. Your own labels are
# `record_function`. The trace of all events opens in ui.perfetto.dev, row by row on a common clock.
#
# **Predict**: batches a quarter as large and a pause in each step, without workers and with two. Which share of loader
# and step together is the loader's?

# %%
predicted_loader_share_0, predicted_loader_share_2 = None, None  # your numbers, from 0 to 1

# %% tags=["experiment"]
trace_file = None  # a name, such as "loading_trace.json", keeps the trace of the run with two workers


def profiled(num_workers, n_batches=6):
    """(ms in the loader's `next`, ms in training steps, bytes of the trace) over `n_batches` batches."""
    images = loaders.evenly_spaced(LFWDataset_now(folder, lfw.heavy_transform()), 240)
    batches = iter(loaders.forked(images, max(2, sizes.batch_size // 4), num_workers, collate_fn=as_tuple))
    next(batches)
    with profile(activities=[ProfilerActivity.CPU]) as found:
        for _ in range(n_batches):
            batch = to_device_now(next(batches), device)
            with record_function("training step"):
                train(batch)
                time.sleep(step / 4)
    ms = {"loader": 0.0, "step": 0.0}
    for event in found.key_averages():
        if "DataLoader" in event.key or event.key == "training step":
            ms["loader" if "DataLoader" in event.key else "step"] += event.cpu_time_total / 1000
    with tempfile.TemporaryDirectory() as place:
        path = trace_file if trace_file and num_workers else os.path.join(place, "trace.json")
        found.export_chrome_trace(path)
        return ms["loader"], ms["step"], os.path.getsize(path)


found = {w: profiled(w) for w in (0, 2)}
said = {0: predicted_loader_share_0, 2: predicted_loader_share_2}
in_loader = {w: loader_ms / (loader_ms + step_ms) for w, (loader_ms, step_ms, _) in found.items()}
for w, (loader_ms, step_ms, size) in found.items():
    print(f"{w} workers: next {loader_ms:.0f} ms, steps {step_ms:.0f} ms, {in_loader[w]:.0%} in the loader"
          f"{reveal(said[w], '{:.0%}')}; a trace of {size / 1e3:.0f} kB")  # fmt: skip
course.claim("the loader's share of the profile falls with two workers", in_loader[2] < in_loader[0],
             f"from {in_loader[0]:.0%} to {in_loader[2]:.0%}",
             otherwise="Other programs used the workers' cores.")  # fmt: skip

# %% [markdown]
# A large share under `__next__` says that the loop waits for its batches or, without workers, builds them, not why: the
# workers' own time is not in this profile, since they are other processes. Part 2's costs by stage and part 4's $a$ and
# $c$ say why.

# %% [markdown]
# ## Whole batches at once
#
# **Where an item is a look-up, let one look-up make the whole batch, and no worker is needed.**
#
# A `DataLoader` asks `dataset[i]` once per index, and collates. A dataset with `__getitems__(indices)` gets all indices
# of a batch in one call. And with `batch_size=None` and a `BatchSampler` as the sampler, `dataset[indices]` itself *is*
# the batch: nothing is collated.
#
# **Predict**: how many times as fast is one look-up per batch of 256 rows?

# %%
predicted_times_as_fast = None  # your number


# %% tags=["experiment"]
class Rows(Dataset):
    """Rows of a tensor, one by one."""

    def __init__(self, data):
        self.data, self.calls = data, 0

    def __len__(self):
        return len(self.data)

    def __getitem__(self, i):
        self.calls += 1
        return self.data[i]


class RowsAtOnce(Rows):
    """Rows of a tensor, also a list of them at once."""

    def __getitems__(self, indices):
        self.calls += 1
        return list(self.data[indices])  # taken apart into a list of items, which the loader collates


table = torch.randn(256 * 16, 32)
one_by_one, at_once, indexed = Rows(table), RowsAtOnce(table), Rows(table)
by_batch = BatchSampler(RandomSampler(table), 256, drop_last=True)
fetched = {
    "__getitem__ per row": (one_by_one, DataLoader(one_by_one, 256, shuffle=True)),
    "__getitems__ per batch": (at_once, DataLoader(at_once, 256, shuffle=True)),
    "dataset[indices] is the batch": (indexed, DataLoader(indexed, sampler=by_batch, batch_size=None)),
}
row_seconds = timing.time_in_turn(
    [loader for _, loader in fetched.values()],
    max(3, sizes.rounds),
    seconds_per_pass=course.solved(check.seconds_per_pass),
)
for data, loader in fetched.values():
    data.calls = 0
    shape = [tuple(batch.shape) for batch in loader][0]
    assert shape == (256, 32)
calls = {label: data.calls / 16 for label, (data, _) in fetched.items()}
ratio = (row_seconds[0] / row_seconds[2]).quantile(0.5).item()
print(f"one look-up per batch: {ratio:.1f} times as fast" + reveal(predicted_times_as_fast))
course.claim(
    "the three datasets make 256, 1 and 1 look-ups per batch of 256",
    list(calls.values()) == [256, 1, 1],
    f"{list(calls.values())}",
)
course.claim(
    "one look-up per batch is more than twice as fast",
    ratio > 2,
    f"{ratio:.1f} times",
    otherwise="The rows are so long that copying them takes most of the time, or drawing the indices does.",
)
batch, rows = table[:256], list(table[:256])
apart, collated = (min(timing.microseconds(do, [of] * 20)[0] for _ in range(9))
                   for do, of in ((list, batch), (default_collate, rows)))  # fmt: skip
course.claim("taking a batch apart into 256 rows takes longer than collating them", apart > collated,
             f"{apart:.0f} against {collated:.0f} µs",
             otherwise="The rows are so long that copying them costs more than making 256 tensors.")  # fmt: skip
plots.bars(dict(zip(fetched, 1e6 * row_seconds / 16, strict=True)), "µs per batch of 256 rows", "In memory, no workers")

# %% [markdown]
# Compare the second bar with the others: one look-up instead of 256 saves only a small part as long as its result is
# taken apart into 256 rows, each of them a tensor of its own, only for the loader to put them together again. Where the
# look-up gives the batch, both steps are gone.
#
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
# waiting (network, disk); then as many as the prediction of part 4 says, and bytes rather than floats to hand over.
#
# === BEGIN MARK SCHEME ===
# **1 point** why: no work per item, and a named cost that workers add (message, shared memory, start, contention).
# "GIL" as the reason for processes being slow earns nothing.
#
# **1 point** two measurements of the unit (waiting share, costs by stages, sweep with its prediction, hand-over
# cost, cores busy, profile), each with what its outcome would mean.
#
# **1 point** a remedy that removes work: batched indexing, data on the device, bytes instead of floats. "Fewer
# workers" alone earns half.
#
# **1 point** when workers do pay: work or waiting per item is large against the hand-over, with an order of
# magnitude or a number of the learner's own run.
#
# Take off 1 point for a number that is claimed as measured but was not.
# === END MARK SCHEME ===
# <!-- END SOLUTION -->
