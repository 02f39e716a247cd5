# %% [markdown]
# # Parallel loading, part 5: Feed a GPU
#
# **How does the next batch reach the GPU while it computes on this one?**
#
# You measure how long a training loop waits for its data. Then you write a prefetcher, which lets a GPU copy one batch
# while it computes on another. No GPU is needed: a stand-in for `torch.cuda` checks the order. All exercises of this
# part are extra.
#
# **You will be able to**
#
# - measure which share of the time a training loop waits;
# - overlap copies with computing, without a race and without stopping the processor;
# - fetch a whole batch in one look-up if items cost nothing.
#
# **Minutes** 0 core · 80 in all
#
# **Needs** parts 1 and 2: your `LFWDataset` and `seconds_per_pass` are used if you solved them

# %% locked="setup"
import math
import os
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
from course.loading import loader_passes, loaders
from course.measure import comparison, timing
from course.plots import parallel_loading as plots

warnings.filterwarnings("ignore", "This DataLoader will create")  # more workers than cores: we try that on purpose
print(course.machine())

# %% [markdown]
# ## How long does the loop wait? · extra
#
# Measure this before you make a loader faster. A sleep stands for the GPU's step, because the processor is free while a
# GPU computes. The step takes a fifth longer than two workers need for a batch.
#
# **Predict**: which share of the time does the loop wait for data with two workers?

# %%
predicted_waiting_share_2 = None  # your number, from 0 to 1

# %% tags=["experiment"]
torch.set_num_threads(1)  # as in a worker: one image is too little work for several threads
sizes = course.sizes("01_parallel_loading")
LFWDataset_now = course.solved(check.LFWDataset)
folder = lfw.folder(sizes.dataset)
heavy = loaders.evenly_spaced(LFWDataset_now(folder, lfw.heavy_transform()), 5 * sizes.images // 8)
seconds_per_pass_now = course.solved(check.seconds_per_pass)
limits = dict(rounds=sizes.pass_rounds, seconds=sizes.pass_seconds)  # of each comparison


def waiting_shares(batches, step):
    """Shares of the wall-clock time of a pass in which the loop waits: (for all batches, for the first one)."""
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


counts, n_batches = (0, 1, 2), comparison.steady_batches(2)
steady = loader_passes.Repeated(heavy, n_batches * sizes.pass_batch)
ways = {timing.counted(w, "worker"): loaders.forked(steady, sizes.pass_batch, w) for w in counts}
with_two = seconds_per_pass_now(ways["2 workers"], n_batches)
step = 1.2 * with_two.quantile(0.5).item() / n_batches
list(ways["1 worker"])  # starts the worker
passes = [[waiting_shares(each, lambda batch: time.sleep(step)) for each in ways.values()]
          for _ in range(sizes.pass_rounds[0])]  # fmt: skip
shares = torch.tensor(passes, dtype=torch.float64).permute(2, 1, 0)  # (all batches or the first, workers, round)
share, first = shares.quantile(0.5, dim=2)
for w, way in enumerate(ways):
    print(f"{way}: the loop waits {share[w]:.0%} of the time, {first[w]:.0%} for the first batch")
print(f"with 2 workers the loop waits {share[2]:.0%} of the time" + reveal(predicted_waiting_share_2, "{:.0%}"))
course.claim("two workers lower the share of the time that the loop waits by at least 10 percentage points",
             comparison.difference_interval(shares[0, 0].tolist(), shares[0, 2].tolist()), above=0.1)  # fmt: skip
percent = dict(zip(ways, 100 * shares[0], strict=True))
plots.bars(
    percent, "% of the time spent waiting", f"Two workers: the loop waits {share[2]:.0%} of the time", "{:.0f} %"
)

# %% [markdown]
# **Takeaway** Measure the share of waiting first: a faster loader saves no more than that.

# %% [markdown]
# ## How can a GPU copy and compute at the same time? · extra
#
# The processor does not run a step on a GPU. It *queues* work and returns immediately. A queue is called a *stream*:
# work in one stream runs in order, work in two streams may overlap. So copies go to a side stream, steps to the
# computing stream.
#
# A step must not read a batch that is still being copied. An *event* marks a place in a stream, and another stream can
# wait for that place. The GPU waits, not the processor.

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
# The last line is easily forgotten. PyTorch reuses freed GPU memory, for each stream separately. When Python drops a
# tensor, its memory is free for the side stream, even if the computing stream still reads it.
#
# A copy with `non_blocking=True` overlaps only if it starts from *pinned* memory, which the system cannot move.
# `pin_memory=True` lets a thread of the `DataLoader` put each batch there.
#
# ### Exercise 1 · Move a batch
#
# A batch is often a dictionary or a tuple of tensors. Move whatever a loader gives to a device.
#
# **Must**
# - move every tensor with `.to(device, non_blocking=True)`, however deep it is in lists, tuples and dictionaries;
# - return new containers of the same types and keys;
# - return every other object unchanged.
#
# ```python
# >>> to_device({"images": torch.zeros(2), "names": ["Ada"]}, "cpu")
# {'images': tensor([0., 0.]), 'names': ['Ada']}
# ```
#
# **Points** 2 · **Extra** · **Difficulty** ●○○ · **Minutes** 8 · **Lines** 7
#
# **Source** `torch.Tensor.to`, PyTorch documentation. Which containers occur is ours, after torch's `default_collate`.
#
# <details><summary>Hint 1</summary>
#
# If you could already move everything inside a list, how would you move the list?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# The function calls itself for each item. `type(batch)(...)` makes a list or a tuple, as the batch was.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# Four cases: a tensor; a `dict`, a comprehension over `batch.items()`; a `list` or `tuple`,
# `type(batch)(to_device(item, device) for item in batch)`; all else, `return batch`.
#
# </details>


# %% solution="to_device"
def to_device(batch, device):
    """`batch` with every tensor in it on `device`, moved with non_blocking=True.

    Args:
        batch: a tensor, any other object, or a list, tuple or dictionary of such; not changed.
        device: torch.device or its name.

    Returns: the same structure with the same types; other objects are the same objects as before.
    """
    ### BEGIN SOLUTION
    if isinstance(batch, torch.Tensor):
        return batch.to(device, non_blocking=True)
    if isinstance(batch, dict):
        return {key: to_device(value, device) for key, value in batch.items()}
    if isinstance(batch, (list, tuple)):
        return type(batch)(to_device(item, device) for item in batch)
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
# Write `__iter__` so that calls come in the order of the figure. Take streams from `self.cuda`: it is `torch.cuda`, or
# a stand-in that watches the queues without a GPU.
#
# **Must**
# - before you yield batch $k$, draw batch $k + 1$ and queue its copy on a side stream, and draw no further ahead;
# - let the current stream, in which the caller computes, wait for the copy of batch $k$ and not for that of $k + 1$;
# - call `record_stream` with the current stream on every tensor of a batch.
#
# **Convention** The processor waits for nothing: no `synchronize`.
#
# **Points** 5 · **Extra** · **Difficulty** ●●● · **Minutes** 35 · **Lines** 14
#
# **Source** "CUDA semantics" in the PyTorch documentation, on streams and pinned memory; `torch.Tensor.record_stream`.
#
# <details><summary>Hint 1</summary>
#
# Write down, for three batches, in which order these happen: draw, queue the copy, let the computing stream wait,
# yield. When must the event of batch 1 be recorded so that waiting for it is not waiting for batch 2?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Keep one batch together with its event: `with self.cuda.stream(side):` move it, then `event = side.record_event()`,
# before anything else is queued there. What the caller computes must not land on `side`: leave the `with` block before
# you yield.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# Two generators. The first draws a batch, queues its copy, and yields the copy and its event. `__iter__` takes `ready =
# next(copies, None)`; while it is not None: `batch, event = ready`, then `ready = next(copies, None)`, which queues the
# next copy; then `wait_event(event)` and `record_stream` with the current stream; then `yield batch`.
#
# </details>


# %% solution="Prefetcher"
class Prefetcher:
    """The batches of `loader` on a GPU, in order; while one is in use, the next one is being copied.

    Args:
        loader: has a length and gives, each time it is iterated over, tuples or lists of tensors in pinned memory.
        device: torch.device of a GPU, or its name.
        cuda: where streams and events come from.
    """

    def __init__(self, loader, device, cuda=torch.cuda):
        self.loader, self.device, self.cuda = loader, torch.device(device), cuda

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
            batch, copied = ready
            ready = next(copies, None)  # the next copy is queued before this batch is yielded
            computing = self.cuda.current_stream(self.device)
            computing.wait_event(copied)  # wait_stream would wait for the next copy too
            for tensor in batch:
                tensor.record_stream(computing)  # else its memory is free for a copy as soon as Python drops it
            yield batch

    def copies(self):
        side = self.cuda.Stream(self.device)
        for batch in self.loader:
            with self.cuda.stream(side):
                copy, copied = self._moved(batch), side.record_event()
            yield copy, copied
        ### END SOLUTION


# %% test="Prefetcher-visible" points=2
check.Prefetcher(Prefetcher)

# %% test="Prefetcher-hidden" points=3
### BEGIN HIDDEN TESTS
check.Prefetcher(Prefetcher, seed=8)
### END HIDDEN TESTS

# %% [markdown]
# If you have a GPU, the next cell trains a small network on the heavy faces in four ways: from pinned or ordinary
# (*pageable*) memory, with the copy in the loop or with your prefetcher. The GPU counts as idle when no step runs.
#
# **Predict**: which of the four leaves the GPU idle least?

# %%
predicted_best_way = None  # such as "pageable, prefetcher"

# %% tags=["experiment"]
to_device_now = course.solved(check.to_device)
Prefetcher_now = course.solved(check.Prefetcher)
device = course.device()


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
    rounds = [[100 * gpu_idle_share(way, train) for way in ways.values()] for _ in range(sizes.pass_rounds[0])]
    idle = dict(zip(ways, torch.tensor(rounds, dtype=torch.float64).T, strict=True))
    best = min(idle, key=lambda label: idle[label].quantile(0.5))
    print(f"idle least: {best}" + reveal(predicted_best_way))
    course.claim("with pinned memory, the prefetcher leaves the GPU idle for a smaller share of the time than the copy "
                 "in the loop, by at least 2 percentage points",
                 comparison.difference_interval(idle["pinned, copy in the loop"].tolist(),
                                                idle["pinned, prefetcher"].tolist()), above=2)  # fmt: skip
    figure = plots.bars(idle, "% of the time without a step", "The GPU, four ways to feed it", "{:.0f} %")
else:
    print("no GPU here: pinned memory, the copy to the device and its overlap cannot be measured on this machine")
figure  # noqa: B018

# %% [markdown]
# torch's profiler shows a timeline: what the processor does, when copies run, when the GPU computes.


# %% tags=["experiment"]
def strips(name, batches):
    """{row of the figure: [(label, number, start, end)]}, in seconds, of six batches that are trained on, or fewer."""
    source = iter(batches)
    train(next(source))
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as found:
        for _ in range(min(6, len(heavy) // sizes.batch_size - 1)):
            with record_function("waits for a batch"):
                batch = next(source)
            with record_function("queues the step"):
                train(batch)
        torch.cuda.synchronize()
    rows = {f"{name}: {row}": [] for row in ("processor", "copies", "GPU")}
    labels = ("waits for a batch", "queues the step")
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


figure = None
if device.type == "cuda":
    recorded = {name: strips(name, ways[name]) for name in ("pageable, copy in the loop", "pinned, prefetcher")}
    beside = {name: overlapped(rows) for name, rows in recorded.items()}
    if any(map(math.isnan, beside.values())):
        print("the profile holds no copies to the GPU: torch may not trace it here, so their overlap is unknown")
    course.claim("with the prefetcher more of the copying runs beside kernels than with the copy in the loop",
                 math.nan if any(map(math.isnan, beside.values()))
                 else beside["pinned, prefetcher"] > beside["pageable, copy in the loop"],
                 ", ".join(f"{name}: {share:.0%}" for name, share in beside.items()),
                 otherwise="Look at the copies and kernels in the figure. Without a copy in the profile there is no "
                           "verdict.")  # fmt: skip
    figure = plots.strips({row: spans for rows in recorded.values() for row, spans in rows.items()})
figure  # noqa: B018

# %% [markdown]
# **Takeaway** Pinned memory, a side stream and an event per batch allow copy $k + 1$ to run during step $k$.

# %% [markdown]
# ## What if an item costs nothing? · extra
#
# A `DataLoader` calls `dataset[i]` for each index, and collates. A dataset with `__getitems__(indices)` is asked once
# per batch. With `batch_size=None` and a `BatchSampler` as the sampler, `dataset[indices]` itself *is* the batch, and
# nothing is collated.
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


class RowsTogether(Rows):
    """Rows of a tensor, also a list of them in one call."""

    def __getitems__(self, indices):
        self.calls += 1
        return list(self.data[indices])  # taken apart into a list of items, which the loader collates


table = torch.randn(256 * 16, 32)
one_by_one, together, indexed = Rows(table), RowsTogether(table), Rows(table)
by_batch = BatchSampler(RandomSampler(table), 256, drop_last=True)
fetched = {
    "__getitem__ per row": (one_by_one, DataLoader(one_by_one, 256, shuffle=True)),
    "__getitems__ per batch": (together, DataLoader(together, 256, shuffle=True)),
    "dataset[indices] is the batch": (indexed, DataLoader(indexed, sampler=by_batch, batch_size=None)),
}
by_rows = loader_passes.compare_loaders(
    {label: loader for label, (_, loader) in fetched.items()}, 16, seconds_per_pass_now, **limits
)
for data, loader in fetched.values():
    data.calls = 0
    shape = [tuple(batch.shape) for batch in loader][0]
    assert shape == (256, 32)
calls = {label: data.calls / 16 for label, (data, _) in fetched.items()}
print(by_rows)
faster = by_rows.controlled("dataset[indices] is the batch")
print(f"one look-up per batch: {faster} times as fast" + reveal(predicted_times_as_fast))
course.claim(
    "the three datasets make 256, 1 and 1 look-ups per batch of 256",
    list(calls.values()) == [256, 1, 1],
    f"{list(calls.values())}",
)
course.claim("one look-up per batch is more than twice as fast as one per row", faster, above=2)
batch, rows = table[:256], list(table[:256])
two = {"collate": lambda: default_collate(rows), "take apart": lambda: list(batch)}
pieces = comparison.compare(two, seconds=sizes.pass_seconds)
course.claim("taking a batch apart into 256 rows takes longer than collating them",
             pieces.controlled("take apart"), below=1)  # fmt: skip
plots.ratios(by_rows, "A pass over 16 batches of 256 rows")

# %% [markdown]
# Look at the second line. `__getitems__` replaces 256 look-ups by one, but splits the result into 256 small tensors,
# which the loader stacks again. The last claim compares the splitting with the stacking. If the look-up *is* the batch,
# both steps disappear.
#
# **Takeaway** If an item is only a look-up, fetch the whole batch in one.
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
# First I would measure the share of the loop that waits for data, with the step and without it. If it does not wait,
# the loader is not the problem (then: is the clock read after a synchronisation, are the kernels tiny?). If it does:
# the costs of one batch, stage by stage, in the main process.
#
# Instead: no `__getitem__` for single items. Draw the indices of a whole batch and take the rows in one call,
# `data[indices]` (with a DataLoader: a `BatchSampler` as the sampler and `batch_size=None`). With 400 MB, put the
# tensor on the GPU at the start; then nothing is copied at all.
#
# Workers after all if an item takes work, from some hundred microseconds on (decoding, filters, resampling), or
# waiting (network, disk); then as many as the prediction of part 4 says, and send bytes rather than floats.
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
