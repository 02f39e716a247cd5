# %% [markdown]
# # Faster training, part 1: Find out what is slow
#
# **What is your training step waiting for: arithmetic, memory, or Python?**
#
# Checklists for faster training go from blog to blog. This unit measures one of them on your machine, L. Kuhn's "Faster
# Deep Learning Training with PyTorch"
# ([efficientdl.com](https://efficientdl.com/faster-deep-learning-in-pytorch-a-guide/)). This part begins with a
# profile, which tells you what a change can gain at best. Then it times the advice that costs a line or two.
#
# **You will be able to**
#
# - read from a profile where the time of a training step goes;
# - compute the largest speed-up that a change can bring before you make it;
# - tell compute-, memory- and overhead-bound operations apart;
# - find lines that make the processor wait for the device, and evaluate without side effects;
# - time two ways of doing the same work, and say when their difference is noise.
#
# **Minutes** 39 core · 84 in all
#
# **Needs** PyTorch: you have written a training loop
#
# Run all cells; sections marked "extra" can be read later.


# %% locked="setup"
import contextlib
import math
import os

os.environ.setdefault("KINETO_LOG_LEVEL", "6")  # the profiler would write about missing GPUs to the terminal
import numpy as np
import torch
import torchvision
from torch import nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from torch.profiler import ProfilerActivity, profile, record_function
from torch.utils.data import DataLoader, Dataset, TensorDataset
from torchvision.transforms import v2

import course
from course.checks import faster_training as check
from course.datasets import data_folder, fashion
from course.learner.predictions import leaders, reveal, reveal_leader
from course.loading.loaders import forked
from course.measure.comparison import CHANGED, FASTER, SAME, SLOWER, compare_pairs
from course.plots import faster_training as plots
from course.training.models import FashionCNN

print(course.machine())
size, device = course.sizes("06_faster_training"), course.device()
data = fashion.load(size.dataset)
images, labels, held_images, held_labels = fashion.with_validation(data)
print(f"{len(labels):,} images to train on, {len(held_labels):,} to validate on")


def new_model():
    """The network of this part, on the device, with the same initial weights each time."""
    torch.manual_seed(0)
    if course.scale() != "gpu":
        return FashionCNN().to(device)
    model = torchvision.models.resnet18(num_classes=10)
    model.conv1 = nn.Conv2d(1, 64, 3, padding=1, bias=False)  # one channel, small images
    return model.to(device)


# %% [markdown]
# ## Where does the time go?
#
# You profile the training that most people write first. Its dataset makes one tensor per image, and a `DataLoader` with
# default options collects them. Each step has five phases: get the *data*, *transfer* it to the device, *forward*,
# *backward*, *optimizer*.
#
# **Predict**: which share of this training does Adam's update take? A number from 0 to 1.

# %%
predicted_optimizer_share = None

# %% [markdown]
# ### Exercise 1 · Shares of a profile
#
# A profiler returns a list of events: what ran, from when to when. Labels such as "forward" are events, and so are the
# operations inside them. Compute the share of each phase and ignore all other events.
#
# **Must**
# - return a dict that maps each phase to its share, 0 if it never ran, and `"other"` to the rest;
# - divide by the total: from the earliest start of a phase to the latest end of a phase.
#
# **You may assume** that phases do not overlap, and that at least one of them ran.
#
# ```python
# >>> where_time_goes([("data", 0, 30), ("forward", 30, 100), ("conv2d", 35, 90)], ("data", "forward"))
# {'data': 0.3, 'forward': 0.7, 'other': 0.0}
# ```
#
# **Points** 3 · **Core** · **Difficulty** ●●○ · **Minutes** 12 · **Lines** 6
#
# **Source** `torch.profiler.record_function` and `profile.events()` in the PyTorch documentation.
#
# <details><summary>Hint 1</summary>
#
# A convolution runs inside "forward". What do the shares add up to if you divide by the sum of all events?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Keep the events whose name is in `phases`. The total is the largest end minus the smallest start of these. "other" is
# 1 minus the sum of the shares.
#
# </details>


# %% solution="where_time_goes"
def where_time_goes(events, phases):
    """Share of the time that each phase takes.

    Args:
        events: list of (name, start, end), times in µs.
        phases: tuple of names.

    Returns: dict {phase: share, ..., "other": share}; shares are floats from 0 to 1 that add up to 1.
    """
    ### BEGIN SOLUTION
    own = [event for event in events if event[0] in phases]
    total = max(end for _, _, end in own) - min(start for _, start, _ in own)
    shares = dict.fromkeys(phases, 0.0)
    for name, start, end in own:
        shares[name] += (end - start) / total
    return shares | {"other": 1 - sum(shares.values())}
    ### END SOLUTION


# %% test="where_time_goes-visible" points=2
check.where_time_goes(where_time_goes)

# %% test="where_time_goes-hidden" points=1
### BEGIN HIDDEN TESTS
check.where_time_goes(where_time_goes, seed=13)
### END HIDDEN TESTS

# %% [markdown]
# The cell profiles two trainings that differ in one thing: the first makes its images one by one, the second cuts rows
# out of one tensor. On CUDA each phase ends with a synchronisation. Otherwise the profile would show when work was
# *queued*, not when it ran.

# %% tags=["experiment"]
PHASES = ("data", "transfer", "forward", "backward", "optimizer")
shares_now = course.solved(check.where_time_goes)
batch_size = size.cheap_batch
few = min(size.cheap_steps * batch_size, len(images))  # of one run


class OneByOne(Dataset):
    """Images that become tensors when they are asked for, as torchvision's FashionMNIST gives them."""

    def __init__(self, pixels, labels):
        self.pixels, self.labels = pixels.numpy(), labels.tolist()
        normalise = v2.Normalize((fashion.MEAN,), (fashion.DEVIATION,))
        self.transform = v2.Compose([v2.ToImage(), v2.ToDtype(torch.float32, scale=True), normalise])

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        return self.transform(self.pixels[i][..., None]), self.labels[i]


in_memory = TensorDataset(images[:few], labels[:few])
one_by_one = OneByOne(data.train_images[:few], data.train_labels[:few])


@contextlib.contextmanager
def phase(name):
    """A labelled part of a profile, which ends when the device has done its work."""
    with record_function(name):
        yield
        if device.type == "cuda":
            torch.cuda.synchronize()


def train_in_phases(loader):
    """Train for one pass of `loader`, with a label around each phase."""
    model = new_model()
    optimizer, batches = torch.optim.Adam(model.parameters()), iter(loader)
    while True:
        with phase("data"):
            batch = next(batches, None)
        if batch is None:
            return
        with phase("transfer"):
            x, y = (part.to(device) for part in batch)
        with phase("forward"):
            loss = F.cross_entropy(model(x), y)
        with phase("backward"):
            loss.backward()
        with phase("optimizer"):
            optimizer.step()
            optimizer.zero_grad()


def profiled(loader):
    """The torch.profiler.profile of a training, after one that warms up."""
    train_in_phases(loader)
    kinds = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * (device.type == "cuda")
    with profile(activities=kinds) as found:
        train_in_phases(loader)
    return found


def plain(found):
    """The events of a profile as a list of (name, start, end) in µs; on CUDA those of the processor alone."""
    own = [e for e in found.events() if e.device_type == torch.autograd.DeviceType.CPU]
    return [(e.name, e.time_range.start, e.time_range.end) for e in own]


profiles = {
    "images one by one": profiled(DataLoader(one_by_one, batch_size, shuffle=True)),
    "tensors in memory": profiled(DataLoader(in_memory, batch_size, shuffle=True)),
}
shares = {name: shares_now(plain(found), PHASES) for name, found in profiles.items()}
plots.phase_shares(shares)

# %% tags=["experiment"]
by_image, by_tensor = shares["images one by one"]["data"], shares["tensors in memory"]["data"]
print(f"Adam's update: {shares['images one by one']['optimizer']:.0%}" + reveal(predicted_optimizer_share, "{:.0%}"))
course.claim("with images made one by one, getting the data takes a larger share than with tensors in memory",
             by_image > by_tensor, f"{100 * by_image:.1f} % against {100 * by_tensor:.1f} %")  # fmt: skip
found = shares["tensors in memory"]
course.claim("Adam's update takes more than a tenth of a small network's step", found["optimizer"] > 0.1,
             f"{100 * found['optimizer']:.0f} %",
             otherwise="Look at the other phases: which of them takes a larger share than here?")  # fmt: skip
operations = [e for e in profiles["tensors in memory"].key_averages() if e.key.startswith("aten::")]
operations.sort(key=lambda e: -e.self_cpu_time_total)
whole = sum(e.self_cpu_time_total for e in operations)
print("operations that take longest:", ", ".join(
    f"{e.key[6:]} {100 * e.self_cpu_time_total / whole:.0f} %" for e in operations[:5]))  # fmt: skip
trace = data_folder() / "traces" / "06_faster_training_1.json.gz"
trace.parent.mkdir(parents=True, exist_ok=True)
profiles["tensors in memory"].export_chrome_trace(str(trace))
print(f"trace: {trace.parent.name}/{trace.name} in the data folder; open it at ui.perfetto.dev")

# %% [markdown]
# **Takeaway** Profile first: the same network spends its time elsewhere when its data come from one tensor.
#
# Open the trace in Perfetto (it stays on your machine) and look for gaps in which nothing runs.

# %% [markdown]
# ## What can a change gain at best?
#
# ### Exercise 2 · The bound
#
# A phase takes `share` of the time, and a change makes it `factor` times as fast. How many times as fast is the whole
# training then? And what is the limit, however large the factor?
#
# **Must** return (overall, best), two floats; `math.inf` where nothing bounds it.
#
# **Raises** ValueError for a share outside 0 to 1, or a factor that is not above 0.
#
# ```python
# >>> speedup_bound(0.5, 2.0)
# (1.3333333333333333, 2.0)
# ```
#
# **Points** 2 · **Core** · **Difficulty** ●○○ · **Minutes** 6 · **Lines** 4
#
# **Source** Amdahl 1967; unit 02, part 6, fits the same law to several processes.
#
# <details><summary>Hint 1</summary>
#
# The time before is 1. What is it afterwards, in two pieces?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# The new time is 1 - share + share / factor; for the best it is 1 - share, which may be 0.
#
# </details>


# %% solution="speedup_bound"
def speedup_bound(share, factor):
    """Speed-up of the whole if a share of its time gets faster by a factor, and the largest one possible.

    Args:
        share: of the time that the change concerns, 0 to 1.
        factor: how many times as fast this part gets, above 0, also `math.inf`.

    Returns: (overall, best), floats.
    Raises: ValueError for another share or factor.
    """
    ### BEGIN SOLUTION
    if not 0 <= share <= 1 or factor <= 0:
        raise ValueError(f"share is {share}, factor is {factor}; expected a share from 0 to 1 and a factor above 0")
    best = 1 / (1 - share) if share < 1 else math.inf
    return 1 / (1 - share + share / factor), best
    ### END SOLUTION


# %% test="speedup_bound-visible" points=1
check.speedup_bound(speedup_bound)

# %% test="speedup_bound-hidden" points=1
### BEGIN HIDDEN TESTS
check.speedup_bound(speedup_bound, seed=4)
### END HIDDEN TESTS

# %% tags=["experiment"]
bound_now = course.solved(check.speedup_bound)
for kind, found in shares.items():
    print(f"{kind}: how many times as fast the training gets if this phase ...")
    for name, advice in [("data", "workers, and all other advice about loading"), ("transfer", "pinned memory"),
                         ("optimizer", "gradients None, fused optimizers")]:  # fmt: skip
        twice, best = bound_now(found[name], 2)
        print(f"    {name:<10} takes half as long: {twice:.3f}   takes no time: {best:.3f}   ({advice})")
best_loading = bound_now(by_tensor, 2)[1]
course.claim("with tensors in memory, no advice about loading can make this training 10 % faster", best_loading < 1.1,
             f"at best {best_loading:.3f} times as fast",
             otherwise="Then loading is worth your time: see unit 01.")  # fmt: skip

# %% [markdown]
# **Takeaway** A share of the time bounds what any advice about it can gain. On a fast device the shares are others, and
# so is the advice: see the recorded line.
#
# Workers and streams run phases at the same time. The bound holds for them too, because the other phases get no
# shorter.

# %% [markdown]
# ## What is an operation waiting for?
#
# A profile names the slow operation, but not what it waits for. Horace He ("Making Deep Learning Go Brrrr From First
# Principles", 2022) names three possibilities. A *compute-bound* operation waits for arithmetic. A *memory-bound* one
# waits for bytes that are read and written. An *overhead-bound* one waits for Python and torch to start it. To find out
# which, change the arithmetic and the bytes separately, and see which of the two the time follows.
#
# **Predict**: how many times as long does a training step take with two images as with one?

# %%
predicted_twice_the_images = None

# %% tags=["experiment"]
numbers, width = size.regime_numbers, size.regime_width


def clamped(n, *limits):
    """A function that compares n numbers with one or two limits, into memory that is already there."""
    x, out = torch.randn(n, device=device), torch.empty(n, device=device)
    return lambda: torch.clamp(x, *limits, out=out)


def product(rows, inner, columns):
    """A function that multiplies two matrices, into memory that is already there."""
    left, right = torch.randn(rows, inner, device=device), torch.randn(inner, columns, device=device)
    out = torch.empty(rows, columns, device=device)
    return lambda: torch.mm(left, right, out=out)


def often(call):
    """A function that makes the same short call 500 times."""
    return lambda: [call() for _ in range(500)]


def step_with(n):
    """A function that makes a training step with n images."""
    model, x, y = new_model(), images[:n].to(device), labels[:n].to(device)
    optimizer = torch.optim.Adam(model.parameters())

    def step():
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()

    return step


once = clamped(numbers, 0.0), product(width, width, width), often(clamped(64, 0.0))
changes = {
    f"{numbers:,} numbers, two limits": (2, 1, clamped(numbers, 0.0, 1.0), once[0]),
    f"{2 * numbers:,} numbers": (2, 2, clamped(2 * numbers, 0.0), once[0]),
    "matrix product, longer rows": (2, 5 / 3, product(width, 2 * width, width), once[1]),
    "matrix product, other shape": (1, 1.75, product(4 * width, width // 4, width), once[1]),
    "64 numbers, two limits": (2, 1, often(clamped(64, 0.0, 1.0)), once[2]),
    "128 numbers": (2, 2, often(clamped(128, 0.0)), once[2]),
    "training step, 2 images for 1": (2, None, step_with(2), step_with(1)),
    "training step, 128 for 64": (2, None, step_with(128), step_with(64)),
}
pairs = {name: pair for name, (_, _, *pair) in changes.items()}
compared = compare_pairs(pairs, device=device, seconds=size.pair_seconds)
longer = {name: found.ratio(CHANGED) for name, found in compared.items()}
print(f"{'change':<32} arithmetic   bytes   time")
for name, (arithmetic, moved, *_) in changes.items():
    moved = f"× {moved:.2f}" if moved else ""
    print(f"{name:<32} × {arithmetic:<8}   {moved:<7} × {longer[name]}")
one_more = longer["training step, 2 images for 1"]
print(f"two images instead of one: {one_more} times as long" + reveal(predicted_twice_the_images))
twice_limits, twice_numbers, longer_rows, other_shape, few_limits, few_numbers, *_ = longer.values()
course.claim("twice the arithmetic on as many numbers takes at most 25 % longer", twice_limits, below=1.25)
course.claim("twice the numbers take at least 50 % longer: comparing many is memory-bound", twice_numbers, above=1.5)
course.claim("twice the arithmetic of a large matrix product takes at least 60 % longer", longer_rows, above=1.6)
course.claim("a matrix product of 1.75 times the bytes takes at most 30 % longer", other_shape, below=1.3)
course.claim("twice the arithmetic on 64 numbers takes at most 25 % longer", few_limits, below=1.25)
course.claim("128 numbers instead of 64 take at most 25 % longer: the call itself costs most", few_numbers, below=1.25)

# %% [markdown]
# **Takeaway** Vary arithmetic and bytes separately: the time follows what bounds the operation.
#
# **Shown** Each pair changes the arithmetic or the bytes and keeps the other, so the time tells which one was waited
# for. A step with two images instead of one is bounded by what does not grow with the images: **we think** the update,
# which touches every weight in any case, and the start of each operation. Compare the row "128 for 64".

# %% [markdown]
# ## Does all the cheap advice help?
#
# Each row compares the work with and without one piece of advice: in each round both run once and the usual way once
# more, in random order. The dot is how many times as fast the advice makes the work, the line its interval of 95 %, and
# the thin grey line the *control*, the usual way against itself.
#
# | verdict | if |
# |---|---|
# | faster, slower | the whole interval is above 1, or below 1, and the control is not |
# | no difference of 5 % | the whole interval lies from 0.95 to 1.05 |
# | not decided here | otherwise |
#
# **Predict**: which row gains most?

# %%
# "2 workers, tensors in memory", "2 workers, images one by one", "slices instead of a DataLoader",
# "as_tensor instead of tensor", "gradients None instead of 0", "no .item() in the steps", "no anomaly detection",
# "no_grad in validation", "validated once, not every 2 steps", and on CUDA "pin_memory" or "cudnn.benchmark"
predicted_best_row = None

# %% tags=["experiment"]
array, targets = images[:few].numpy(), labels[:few].numpy()
chosen = torch.randperm(few, generator=torch.Generator().manual_seed(1)).split(batch_size)
on_device = [(images[rows].to(device), labels[rows].to(device)) for rows in chosen]
held = TensorDataset(held_images[: size.eval_images], held_labels[: size.eval_images])
val_loader = DataLoader(held, 100)
model = new_model()
optimizer = torch.optim.Adam(model.parameters())


def training(batches, to_none=True, each=None, **options):
    """A function that trains for one pass over `batches`; `each` is called with the loss after each step."""

    def run():
        for x, y in batches() if callable(batches) else batches:
            optimizer.zero_grad(set_to_none=to_none)
            loss = F.cross_entropy(model(x.to(device, **options)), y.to(device, **options))
            loss.backward()
            optimizer.step()
            if each:
                each(loss)

    return run


def slices():
    """Batches of rows of the tensors in memory, in a random order."""
    order = torch.randperm(few)
    return ((images[rows], labels[rows]) for rows in order.split(batch_size))


def from_arrays(convert):
    """Batches whose tensors `convert` makes of arrays."""
    starts = range(0, few, batch_size)
    return lambda: ((convert(array[i : i + batch_size]), convert(targets[i : i + batch_size])) for i in starts)


def with_anomaly_detection():
    with torch.autograd.set_detect_anomaly(True, check_nan=True):
        usual()


def validation(context):
    """A function that runs the model over the held images in eval mode, inside a context."""

    def run():
        model.eval()
        with context():
            hits = sum((model(x.to(device)).argmax(1) == y.to(device)).sum() for x, y in val_loader)
        model.train()
        return hits.item()

    return run


def validated_every(n):
    """A function that trains and validates every n steps."""
    seen, validate = [], validation(torch.no_grad)

    def each(loss):
        seen.append(None)
        if len(seen) % n == 0:
            validate()

    return training(on_device, each=each)


def benchmarked(on):
    def run():
        torch.backends.cudnn.benchmark = on
        usual()
        torch.backends.cudnn.benchmark = False

    return run


usual = training(on_device)
from_memory = DataLoader(in_memory, batch_size, shuffle=True)
needs = "needs CUDA; on the CPU it does nothing"
on_cuda = device.type == "cuda"
pinned = DataLoader(in_memory, batch_size, shuffle=True, pin_memory=on_cuda)
there = {"device": device}
pairs = {
    "2 workers, tensors in memory": (training(from_memory), training(forked(in_memory, batch_size, 2, shuffle=True))),
    "2 workers, images one by one": (training(DataLoader(one_by_one, batch_size, shuffle=True)),
                                     training(forked(one_by_one, batch_size, 2, shuffle=True))),
    "slices instead of a DataLoader": (training(from_memory), training(slices)),
    "as_tensor instead of tensor": (training(from_arrays(torch.tensor)), training(from_arrays(torch.as_tensor))),
    "gradients None instead of 0": (training(on_device, to_none=False), usual),
    "no .item() in the steps": (training(on_device, each=lambda loss: loss.item()), usual),
    "no anomaly detection": (with_anomaly_detection, usual),
    "no_grad in validation": (validation(contextlib.nullcontext), validation(torch.no_grad)),
    "validated once, not every 2 steps": (validated_every(2), validated_every(len(on_device))),
    "pin_memory": (training(from_memory), training(pinned)) if on_cuda else needs,
    "pin_memory and non_blocking": (training(from_memory), training(pinned, non_blocking=True)) if on_cuda else needs,
    "created on the device": (lambda: [torch.zeros(batch_size, 1, 28, 28).to(device) for _ in range(100)],
                              lambda: [torch.zeros(batch_size, 1, 28, 28, **there) for _ in range(100)],
                              ) if on_cuda else needs,
    "cudnn.benchmark": (benchmarked(False), benchmarked(True)) if on_cuda else needs,
}  # fmt: skip
compared = compare_pairs(pairs, device=device, seconds=size.pair_seconds)
print(course.machine())
plots.advice_ratios(compared, "speed-up of the work that the advice is about")

# %% tags=["experiment"]
gains = {}
for name, found in compared.items():
    if isinstance(found, str):
        print(f"{name:<34} not measured here: {found}")
        continue
    gains[name] = found.ratio(CHANGED)
    print(f"{name:<34} {gains[name]}  {found.verdict(CHANGED)}")
best = max(gains, key=lambda name: gains[name].estimate)
near_best = [name for name, gain in gains.items() if gain.high >= gains[best].low]
print("gains most: " + reveal_leader(predicted_best_row, near_best))
verdicts = [compared[name].verdict(CHANGED) for name in gains]
print(", ".join(f"{verdicts.count(verdict)} {verdict}" for verdict in (FASTER, SLOWER, SAME)))
workers = gains["2 workers, tensors in memory"]
course.claim("workers make a training with tensors in memory faster", workers, above=1,
             otherwise="They take cores that the training needs, and send batches that were already here.")  # fmt: skip
course.claim("anomaly detection costs at least half of the time", gains["no anomaly detection"], above=1.5)
course.claim("a validation every 2 steps costs at least half of the time",
             gains["validated once, not every 2 steps"], above=1.5)  # fmt: skip
course.claim("slices instead of a DataLoader gain no more than the profile allows",
             gains["slices instead of a DataLoader"].scaled(1 / best_loading), below=1.05)  # fmt: skip

# %% [markdown]
# Anomaly detection and constant validation are debugging habits, so their rows tell what forgetting them costs, not
# what advice is worth. **We think** that two workers lose where there are as few cores as the training uses, and win
# where a GPU computes: the recorded line under the claim is the test.
#
# `torch.tensor` copies an array, `as_tensor` shares its memory. `cudnn.benchmark` needs fixed input shapes, and
# `non_blocking` needs pinned memory. `zero_grad(set_to_none=True)` has been the default since PyTorch 2.0 (**known**:
# its release notes).
#
# **Takeaway** Most cheap advice changes a small share of the step, so its gain is small. Take what your profile says
# is large, and leave debugging tools off.
#
# | the rest of the checklist | where |
# |---|---|
# | range test, one-cycle and cyclic schedules, AdamW, clipping | part 2 |
# | the largest batch, with a scaled learning rate | part 2, unit 03 |
# | mixed precision, fused operations, no bias before BatchNorm | part 3 |
# | activation checkpointing, gradient accumulation | part 4, units 02 and 03 |
# | DistributedDataParallel instead of DataParallel | unit 02 |
# | normalised inputs, BatchNorm | the last section |

# %% [markdown]
# ## Which lines wait for the device? · extra
#
# A GPU works through a queue of operations. The processor runs ahead until a line needs a *number*: then it waits until
# the queue is empty. A CPU has no such queue, but you can count the calls that would wait on a GPU.
#
# **Predict**: how many of the twelve lines in the cell after the exercise would wait for a GPU?

# %%
predicted_waits = None

# %% [markdown]
# ### Exercise 3 · Count hidden waits
#
# Run `call()` once and list the calls in it that need a value of a tensor. Inside a `TorchFunctionMode`, torch reports
# every function and method of a tensor that is called.
#
# **Must**
# - return the names (`func.__name__`) of the calls that are in `waits` (given), in order, as a list;
# - leave what `call` computes as it is, and let its exceptions pass.
#
# **You may assume** that all tensors in `call` are on the device, so that each of these calls waits.
#
# **Points** 4 · **Extra** · **Difficulty** ●●○ · **Minutes** 12 · **Lines** 8
#
# **Source** `torch.overrides.TorchFunctionMode` in the PyTorch documentation, "Extending PyTorch".
#
# <details><summary>Hint 1</summary>
#
# A mode is a class with `__torch_function__(self, func, types, args=(), kwargs=None)`. Besides noting the call, what
# must this method do so that the call still runs?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Inside your function define `class Noting(TorchFunctionMode)`. Its method appends `func.__name__` to a list if it is
# in `waits`, then returns `func(*args, **(kwargs or {}))`. Run `call()` inside `with Noting():`.
#
# </details>


# %% solution="hidden_syncs"
def hidden_syncs(call):
    """Names of the calls inside `call()` that would wait for a GPU.

    Args:
        call: function without arguments; it is called once.

    Returns: list of str, in the order of the calls, each one of `waits`.
    """
    waits = {
        "item", "tolist", "cpu", "numpy", "nonzero",
        "__bool__", "__int__", "__float__", "__index__", "__array__", "__repr__", "__format__",
    }  # fmt: skip
    ### BEGIN SOLUTION
    found = []

    class Noting(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            if func.__name__ in waits:
                found.append(func.__name__)
            return func(*args, **(kwargs or {}))

    with Noting():
        call()
    return found
    ### END SOLUTION


# %% test="hidden_syncs-visible" points=2
check.hidden_syncs(hidden_syncs)

# %% test="hidden_syncs-hidden" points=2
### BEGIN HIDDEN TESTS
check.hidden_syncs(hidden_syncs, seed=21)
### END HIDDEN TESTS

# %% tags=["experiment"]
syncs_now = course.solved(check.hidden_syncs)
x = torch.arange(6.0, device=device).view(2, 3)
loss, total = x.mean(), torch.zeros((), device=device)
calls = {
    "loss.item()": lambda: loss.item(),
    "loss.detach()": lambda: loss.detach(),
    "print(loss)": lambda: str(loss),  # the same without output
    "f'{loss:.3f}'": lambda: f"{loss:.3f}",
    "total = total + loss": lambda: total + loss,
    "if loss > 3: pass": lambda: bool(loss > 3),
    "worse = loss > 3": lambda: loss > 3,
    "x.cpu()": lambda: x.cpu(),
    "x.mean(dim=0)": lambda: x.mean(dim=0),
    "max(loss, total)": lambda: max(loss, total),
    "torch.maximum(loss, total)": lambda: torch.maximum(loss, total),
    "np.asarray(x.cpu())": lambda: np.asarray(x.cpu()),
}
waiting = {line: syncs_now(call) for line, call in calls.items()}
for line, found in waiting.items():
    print(f"{line:<28} {'waits' if found else 'no wait':<8} {', '.join(found)}")
print(f"{sum(map(bool, waiting.values()))} of {len(calls)} lines wait" + reveal(predicted_waits))
course.claim("detach() neither moves nor copies a tensor: its result has the same address",
             loss.detach().data_ptr() == loss.data_ptr() and not syncs_now(lambda: loss.detach()))  # fmt: skip
course.claim("printing a detached tensor waits for the device, exactly as printing the tensor itself",
             len(syncs_now(lambda: str(loss.detach()))) == len(syncs_now(lambda: str(loss))))  # fmt: skip


# %% tags=["experiment"]
def log_each_step(model, optimizer, batches):
    """Train, and log as many published loops do; returns the mean loss."""
    total, best, history, progress = 0.0, float("inf"), [], []
    for x, y in batches:
        logits = model(x)
        loss = F.cross_entropy(logits, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
        history.append((logits.argmax(1) == y).float().mean().cpu().numpy())
        if loss < best:
            best = loss.detach()
        progress.append(f"loss {loss:.3f}, best {best:.3f}")  # as a progress bar shows it
    return total / len(batches)


def log_once(model, optimizer, batches):
    """The same training; all that is logged stays on the device until the end."""
    losses, hits = [], []
    for x, y in batches:
        logits = model(x)
        loss = F.cross_entropy(logits, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())  # detached: else the graph of each step would stay in memory
        hits.append((logits.detach().argmax(1) == y).float().mean())
    best = torch.stack(losses).cummin(0).values
    table = torch.stack([torch.stack(losses), best, torch.stack(hits)]).tolist()  # one wait
    return sum(table[0]) / len(batches)


waits, means = {}, {}
for loop in (log_each_step, log_once):
    model = new_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def run(loop=loop, model=model, optimizer=optimizer):
        means[loop.__name__] = loop(model, optimizer, on_device)

    waits[loop.__name__] = syncs_now(run)
for name, found in waits.items():
    print(f"{name:<14} {len(found):4d} waits in {len(on_device)} steps: {', '.join(sorted(set(found)))}")
course.claim("logging each step waits several times in each step, logging once waits once",
             len(waits["log_each_step"]) > len(on_device) and len(waits["log_once"]) == 1,
             f"{len(waits['log_each_step'])} against {len(waits['log_once'])}")  # fmt: skip
apart = abs(means["log_each_step"] - means["log_once"])
course.claim("a loop that logs once computes the same mean loss as one that logs each step", apart < 1e-3,
             f"they differ by {apart:.1e}")  # fmt: skip

# %% [markdown]
# **Takeaway** Keep detached tensors and ask for their values once, at the end.
#
# The checklist says to use `.detach()` instead of `.item()`, but the two do different things. On CUDA,
# `torch.cuda.set_sync_debug_mode("warn")` reports real waits.

# %% [markdown]
# ## Does your evaluation change your model? · extra
#
# This function collects faults of evaluations that tutorials print; each was found in published code, all of them
# together only here:


# %% locked="wild_evaluate"
def wild_evaluate(model, batches, device):
    """Accuracy in percent, with the faults of several published loops.  Do not use it."""
    outputs_list, correct, total = [], 0.0, 0
    for x, y in batches:
        x, y = x.to(device), y.to(device)
        outputs = model(x)
        outputs_list.append(outputs)
        hits = outputs.argmax(1) == y
        for i in range(100):
            correct += hits[i].item()
            total += 1
    return 100 * correct / total


# %% [markdown]
# It has these faults:
#
# - Two evaluations of the same model give different accuracies.
# - BatchNorm's running means move, although nobody trains.
# - Batches of 64 raise an IndexError, and only 100 images of a batch of 128 count.
# - Its memory grows with the set, and it waits for the device once per image.
#
# ### Exercise 4 · Fix the evaluation
#
# Write an evaluation without these faults. `torch.inference_mode()` does more than `torch.no_grad()`: torch also skips
# some bookkeeping, so outputs can never be saved for a backward pass.
#
# **Must**
# - return the share of samples whose largest logit is at their label, a Python float;
# - run the model in eval mode and in `torch.inference_mode()`, then put it back into its earlier mode;
# - wait for the device once, at the end, and keep no outputs of earlier batches.
#
# **You may assume** that all parts of the model are in the same mode. Batches may differ in size.
#
# **Points** 4 · **Extra** · **Difficulty** ●●○ · **Minutes** 14 · **Lines** 9
#
# **Source** The function is ours.
#
# <details><summary>Hint 1</summary>
#
# Which line would you have to change for each fault?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `training = model.training` before, `model.train(training)` after. In the loop two running numbers are enough: the
# sum of hits, a tensor, and `len(y)`, which is known without the device.
#
# </details>


# %% solution="evaluate_fast"
def evaluate_fast(model, batches, device):
    """Accuracy of `model` over all samples of `batches`.

    Args:
        model: nn.Module that gives logits (n, classes).
        batches: iterable of (x, y), y int64 (n,).
        device: torch.device of the model.

    Returns: a Python float from 0 to 1.
    """
    ### BEGIN SOLUTION
    training = model.training
    model.eval()
    correct, total = 0, 0
    with torch.inference_mode():
        for x, y in batches:
            correct += (model(x.to(device)).argmax(1) == y.to(device)).sum()
            total += len(y)
    model.train(training)
    return correct.item() / total
    ### END SOLUTION


# %% test="evaluate_fast-visible" points=2
check.evaluate_fast(evaluate_fast)

# %% test="evaluate_fast-hidden" points=2
### BEGIN HIDDEN TESTS
check.evaluate_fast(evaluate_fast, seed=100)
### END HIDDEN TESTS

# %% tags=["experiment"]
evaluate_now = course.solved(check.evaluate_fast)
by_100 = DataLoader(held, 100)  # the only batch size that the faulty loop can do
model = new_model()
log_once(model, torch.optim.Adam(model.parameters()), on_device)
norms = [m for m in model.modules() if isinstance(m, nn.BatchNorm2d)]
before = norms[0].running_mean.clone()
repaired = [100 * evaluate_now(model, by_100, device) for _ in range(2)]
kept = torch.equal(before, norms[0].running_mean)
published = [wild_evaluate(model, by_100, device) for _ in range(2)]
moved = (norms[0].running_mean - before).abs().max().item()
print(f"accuracy, twice: faulty {published[0]:.2f} %, {published[1]:.2f} %; "
      f"fixed {repaired[0]:.2f} %, {repaired[1]:.2f} %")  # fmt: skip
course.claim("the faulty evaluation moves the running mean of BatchNorm, the fixed one does not",
             moved > 0 and kept, f"by up to {moved:.2g}")  # fmt: skip
parts = list(by_100)  # a DataLoader asks for a random number of its own, on the processor
n_waits = [len(syncs_now(lambda f=f: f(model, parts, device))) for f in (wild_evaluate, evaluate_now)]
course.claim("the faulty evaluation waits for the device once per image, the fixed one once",
             n_waits[0] >= len(held) and n_waits[1] == 1, f"{n_waits[0]} against {n_waits[1]}")  # fmt: skip
pair = {"fixed": (lambda: wild_evaluate(model, by_100, device), lambda: evaluate_now(model, by_100, device))}
fixed = compare_pairs(pair, device=device, seconds=size.pair_seconds)["fixed"]
course.claim("the fixed evaluation is faster than the loop that asks for each image", fixed.ratio(CHANGED), above=1)

# %% [markdown]
# **Takeaway** Evaluate in eval mode and inference mode, count on the device, and ask for one number at the end.
#
# Such loops often have one more fault, which no function shows: they evaluate on the *test* images every few steps and
# keep the best step, so they tune on the test set.

# %% [markdown]
# ## Do normalised inputs and BatchNorm save steps? · extra
#
# **Predict**: the same training with normalised input or raw pixels from 0 to 255, each with and without BatchNorm.
# Which of the four has the lowest loss after the same number of steps?

# %%
predicted_lowest = None  # "both", "input only", "BatchNorm only", "neither"

# %% tags=["experiment"]
raw = data.train_images.unsqueeze(1).float()
centred = fashion.floats(data.train_images)
lr = 0.02
settings = {
    "both": (centred, "batch", lr), "input only": (centred, None, lr), "BatchNorm only": (raw, "batch", lr),
    "neither": (raw, None, lr), "neither, lr / 100": (raw, None, lr / 100),
}  # fmt: skip


def losses_of(pixels, norm, lr, steps, seed=0):
    """Losses of each step of a short training; once it has diverged they are infinite."""
    torch.manual_seed(seed)
    net, found = FashionCNN(norm=norm).to(device), []
    own = torch.optim.SGD(net.parameters(), lr=lr, momentum=0.9)
    rng = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        rows = torch.randint(len(pixels), (32,), generator=rng)
        loss = F.cross_entropy(net(pixels[rows].to(device)), data.train_labels[rows].to(device))
        own.zero_grad()
        loss.backward()
        own.step()
        found.append(loss.detach())
    return torch.stack(found).cpu().nan_to_num(nan=float("inf"))


curves = {name: torch.stack([losses_of(*setting, size.norm_steps, seed) for seed in range(size.norm_seeds)])
          for name, setting in settings.items()}  # fmt: skip
plots.loss_curves(curves, "training loss, mean of the seeds")

# %% tags=["experiment"]
ends = {name: runs[:, -max(1, size.norm_steps // 5) :].mean(1) for name, runs in curves.items()}  # of each seed
last = {name: own.mean().item() for name, own in ends.items()}
for name, value in sorted(last.items(), key=lambda item: item[1]):
    print(f"{name:<18}", f"{value:.3f} in the last fifth of the steps" if value < float("inf") else "diverged")
spread = max((float(own.max() - own.min()) for own in ends.values() if own.isfinite().all()), default=0.0)
print(f"seeds differ by up to {spread:.2f}")
ranked = {name: last[name] for name in [*settings][:4]}
print("lowest of the four: " + reveal_leader(predicted_lowest, leaders(ranked, spread)))
otherwise = "Compare the difference with the spread of the seeds."
course.claim("BatchNorm lowers the loss after these steps also where the input is normalised",
             last["both"] < last["input only"], f"{last['both']:.2f} against {last['input only']:.2f}",
             otherwise=otherwise)  # fmt: skip
course.claim("with BatchNorm, input that is not normalised ends within the spread of the seeds of normalised input",
             abs(last["BatchNorm only"] - last["both"]) <= spread,
             f"{last['BatchNorm only']:.2f} against {last['both']:.2f}", otherwise=otherwise)  # fmt: skip
course.claim("with neither, a hundredth of the learning rate ends lower than this learning rate",
             last["neither, lr / 100"] < last["neither"],
             f"{last['neither, lr / 100']:.2f} against {last['neither']:.2f}", otherwise=otherwise)  # fmt: skip

# %% [markdown]
# **Takeaway** BatchNorm saved steps: with it, raw pixels ended as low as normalised ones. With neither, this learning
# rate diverged.
#
# Part 2 looks for fewer steps, part 3 for cheaper ones.
