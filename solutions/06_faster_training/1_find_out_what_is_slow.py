# %% [markdown]
# # Faster training, part 1: Find out what is slow
#
# **What is your training step waiting for, and which advice could change that?**
#
# Checklists for faster training seldom name the machine on which their advice was measured, and some advice that wins
# on one machine loses on another. So you first learn to measure: where a step spends its time, how much a change can
# gain at best, and whether a difference is more than noise. Then you test the advice of one checklist, L. Kuhn's
# "Faster Deep Learning Training with PyTorch"
# ([efficientdl.com](https://efficientdl.com/faster-deep-learning-in-pytorch-a-guide/)).
#
# **You will be able to**
#
# - read from a profile where the time of a step goes, and compute what a change can gain at best;
# - test your own comparison on two equal things before you believe it;
# - say whether an operation waits for arithmetic, for bytes or for its start;
# - judge a piece of advice by its bound, its interval, and the machines on which it flips.
#
# **Minutes** 44 core · 90 in all
#
# **Needs** PyTorch: you have written a training loop
#
# Run the cells in order. Where a cell says None, write your number before you run the next cell. Sections marked
# "extra" can wait. Numbers after "Recorded" come from the machines that they name.


# %% locked="setup"
import contextlib
import functools
import math
import os
import statistics
import warnings

os.environ.setdefault(
    "KINETO_LOG_LEVEL", "6"
)  # the profiler would write about missing GPUs to the terminal
import torch
from torch import nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from torch.utils.data import DataLoader, TensorDataset

import course
from course.checks import faster_training as check
from course.datasets import data_folder, fashion
from course.device import machine_name
from course.learner.claims import claimed
from course.learner.flip_map import flip_map
from course.loading.loaders import forked
from course.measure import comparison, regimes, roofline, step_profile
from course.measure.comparison import CHANGED, FASTER, SLOWER, USUAL, compare, compare_pairs
from course.plots import faster_training as plots
from course.plots import flip_map as map_plots
from course.training import cheap_advice
from course.training.models import FashionCNN

warnings.filterwarnings(
    "ignore", "This DataLoader will create"
)  # more workers than cores: we try that on purpose
print(course.machine())
size, device = course.sizes("06_faster_training"), course.device()
data = fashion.load(size.dataset)
images, labels, held_images, held_labels = fashion.with_validation(data)
batch_size = size.cheap_batch
print(f"{len(labels):,} images to train on, {len(held_labels):,} to validate on")
new_model = functools.partial(cheap_advice.new_model, device)  # the same initial weights each time


# %% [markdown]
# ## What does a check-up find?
#
# Before you change a training, find out what is worth changing. The training below is the one that most people write
# first: a Dataset that makes one image at a time, a `DataLoader` with default options, and Adam. `course.checkup`
# watches it, reports where its time goes, and tries what might help.
#
# **Predict**: which share of the time does Adam's update take, from 0 to 1? Say a small one if operations count: the
# update makes a dozen per weight, but forward and backward use each weight for all images. Say a larger one if bytes
# count: the update reads and writes each weight and its two moments.

# %%
predicted_optimizer_share = None  # your number

# %% tags=["experiment"]
one_by_one = cheap_advice.OneByOne(data.train_images, data.train_labels)
loader = DataLoader(one_by_one, batch_size, shuffle=True)
model = new_model()
optimizer = torch.optim.Adam(model.parameters())


def step(batch):
    """Train on one batch."""
    x, y = (part.to(device) for part in batch)
    optimizer.zero_grad()
    F.cross_entropy(model(x), y).backward()
    optimizer.step()


report = course.checkup(loader, step, steps=size.checkup_steps, minutes=size.checkup_minutes)
print(report)

# %% tags=["experiment"]
seen = report.facts.phases
print(
    course.score(
        "06/1",
        "share of Adam's update",
        predicted_optimizer_share,
        seen["optimizer"].share,
        null=None,
    )
)

# %% [markdown]
# For each change that it advises, the report says what it can gain at best, what it gained here, and whether its
# interval of 95 % allows a verdict. You now build these three numbers yourself, so that you can use them where no
# check-up looks.
#
# **Takeaway** Look at the whole step before you change a line of it.

# %% [markdown]
# ## Can you trust a difference?
#
# Time the same step twice, and you get two different numbers. How large must a difference be before it means something?
# To find out, compare a step with itself: in such an *A/A test* every difference is noise.
#
# The cell makes many of these tests. It judges each by one run of each side, as people do by hand, and by several
# rounds of `compare`, which this course uses everywhere. How often does each way find a difference where there is none?

# %% tags=["experiment"]
fixed = next(iter(loader))
same = {
    f"A/A {number}": (lambda: step(fixed), lambda: step(fixed)) for number in range(size.same_pairs)
}
compared = compare_pairs(same, device=device, seconds=0).values()
by_hand = [float(found.seconds[USUAL][0] / found.seconds[CHANGED][0]) for found in compared]
fooled = sum(abs(ratio - 1) > 0.02 for ratio in by_hand)
judged = sum(found.verdict(CHANGED) in (FASTER, SLOWER) for found in compared)
rounds = statistics.median(found.rounds_for(CHANGED, 0.02) for found in compared)
print(f"of {len(same)} comparisons of a step with itself, a difference was found")
print(
    f"    by one run of each, if 2 % counts: {fooled} times, from {min(by_hand):.2f} to {max(by_hand):.2f}"
)
print(f"    by intervals of {next(iter(compared)).rounds} rounds: {judged} times")
print(f"rounds to see a gain of 2 % here: about {rounds:.0f}")
usual, changed = (torch.cat([found.seconds[way] for found in compared]) for way in (USUAL, CHANGED))
course.claim(
    "over all rounds, a step is as fast as itself within 2 %",
    comparison.ratio_interval(usual, changed),
    within=(0.98, 1.02),
    otherwise="Your machine does other work, so small gains cannot be seen.",
)

# %% [markdown]
# **Known** One interval of 95 % in twenty misses the truth. For half its width you need four times the rounds.
#
# **Takeaway** First compare a thing with itself. A gain must be larger than the difference that you find there.

# %% [markdown]
# ## Where does the time go?
#
# Speeding up a phase gains little if the phase takes little time. A step has five phases: get the *data*, *transfer* it
# to the device, *forward*, *backward*, *optimizer*. A profile shows the time of each.

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
# Keep the events whose name is in `phases`. The total is their largest end minus their smallest start. "other" is 1
# minus the sum of the shares.
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
# How much time does it take to get the data? You profile two trainings: the first makes its images one by one, and the
# second cuts rows out of one tensor. Your function computes the shares, and the bars show a typical step of each
# training. In the last figure, a dark bar is an operation of torch; in the gaps no operation runs.
#
# <details><summary>Why does each phase wait for the GPU at its end?</summary>
#
# Without this wait, the profile would show when work was *queued* on CUDA, not when it ran.
#
# </details>

# %%
PHASES = ("data", "transfer", "forward", "backward", "optimizer")


def train_in_phases(loader, steps):
    """Train for `steps`, with a label around each phase."""
    model, batches = new_model(), iter(loader)
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(steps):
        with step_profile.phase("data", device):
            batch = next(batches)
        with step_profile.phase("transfer", device):
            x, y = (part.to(device) for part in batch)
        with step_profile.phase("forward", device):
            loss = F.cross_entropy(model(x), y)
        with step_profile.phase("backward", device):
            loss.backward()
        with step_profile.phase("optimizer", device):
            optimizer.step()
            optimizer.zero_grad()


# %% tags=["experiment"]
shares_now = course.solved(check.where_time_goes)
in_tensors = TensorDataset(images, labels)
sets = {"images one by one": one_by_one, "tensors in memory": in_tensors}
profiles, shares, steps_of = {}, {}, {}
for name, dataset in sets.items():
    from_set = DataLoader(dataset, batch_size, shuffle=True)
    profiles[name] = step_profile.profiled(
        lambda data=from_set: train_in_phases(data, size.profile_steps), device
    )
    events = step_profile.events_of(profiles[name])
    steps_of[name] = [shares_now(found, PHASES) for found in step_profile.per_step(events, "data")]
    shares[name] = step_profile.typical_shares(steps_of[name])
plots.phase_shares(shares)


# %% tags=["experiment"]
def interval_of(name, phase):
    """The Interval of a phase's share, over the steps of a training."""
    return comparison.signed_rank_interval([found[phase] for found in steps_of[name]])


waited = [[found["data"] for found in steps] for steps in steps_of.values()]
print(
    f"data and optimizer, by the check-up: {seen['data'].share:.1%}, {seen['optimizer'].share:.1%}; "
    f"by your function: {shares['images one by one']['data']:.1%}, "
    f"{shares['images one by one']['optimizer']:.1%}"
)
course.claim(
    "with images made one by one, getting the data takes a larger share than with tensors in memory",
    comparison.difference_interval(*waited),
    above=0,
)
course.claim(
    "Adam's update takes more than a tenth of a small network's step",
    interval_of("tensors in memory", "optimizer"),
    above=0.1,
    otherwise="Look at the other phases: which of them takes the largest share?",
)
slowest = step_profile.slowest_operations(profiles["tensors in memory"], 5)
print(
    "operations that take longest:",
    ", ".join(f"{name} {share:.0%}" for name, share in slowest.items()),
)

# %% tags=["experiment"]
cut = {}
for name, found in profiles.items():
    cut[name] = step_profile.typical_pair(
        step_profile.per_step(step_profile.events_of(found), "data")
    )
trace = data_folder() / "traces" / "06_faster_training_1.json.gz"
trace.parent.mkdir(parents=True, exist_ok=True)
profiles["tensors in memory"].export_chrome_trace(str(trace))
print(
    f"the whole trace: {trace.parent.name}/{trace.name} in the data folder; open it at ui.perfetto.dev"
)
plots.step_traces(cut, PHASES)

# %% [markdown]
# Profile and check-up may disagree about a share, because the profiler slows down work of many short operations, such
# as making one image.
#
# **Takeaway** Profile your own training: the same network has other shares when its data come from one tensor.

# %% [markdown]
# ## What can a change gain at best?
#
# Before you spend a day on a change, compute what it can gain at best. If that is little, skip the change.
#
# ### Exercise 2 · The bound
#
# A phase takes `share` of the time, and a change makes the phase `factor` times as fast. How many times as fast is the
# whole training then? And what is the limit, however large the factor?
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
# **Source** Amdahl 1967; unit 02, part 5, applies the same law to several processes.
#
# <details><summary>Hint 1</summary>
#
# The time before is 1. What is it afterwards, in two pieces?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# The new time is 1 - share + share / factor. At best it is 1 - share, which may be 0.
#
# </details>


# %% solution="speedup_bound"
def speedup_bound(share, factor):
    """Speed-up of the whole if a share of its time gets faster by a factor, and the largest one possible.

    Args:
        share: of the time that the change concerns, 0 to 1.
        factor: how many times as fast this part gets, above 0; `math.inf` only where `share` is below 1.

    Returns: (overall, best), floats.
    Raises: ValueError for another share or factor.
    """
    ### BEGIN SOLUTION
    if not 0 <= share <= 1 or factor <= 0:
        raise ValueError(
            f"share is {share}, factor is {factor}; expected a share from 0 to 1 and a factor above 0"
        )
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
    for name, advice in [
        ("data", "workers, and all other advice about loading"),
        ("transfer", "pinned memory"),
        ("optimizer", "gradients None, fused optimizers"),
    ]:
        twice, best = bound_now(found[name], 2)
        print(
            f"    {name:<10} takes half as long: {twice:.3f}   takes no time: {best:.3f}   ({advice})"
        )
by_step = [bound_now(found["data"], 2)[1] for found in steps_of["tensors in memory"]]
best_loading = comparison.signed_rank_interval(by_step)
course.claim(
    "with tensors in memory, no advice about loading can make this training 10 % faster",
    best_loading,
    below=1.1,
    otherwise="Then loading is worth your time: see unit 01.",
)

# %% [markdown]
# The bound also holds for workers and streams, which run phases at the same time, because the other phases get no
# shorter. Compare the recorded machines: a fast device spends a larger share on getting the data, so there advice about
# loading can gain more.
#
# **Takeaway** The share of a phase bounds what any advice about it can gain, and shares differ between machines.

# %% [markdown]
# ## What is an operation waiting for?
#
# A profile names the slow operation, but the remedy depends on what this operation waits for. Horace He ("Making Deep
# Learning Go Brrrr From First Principles", 2022) names three cases:
#
# - A *compute-bound* operation waits for arithmetic.
# - A *memory-bound* operation waits until its bytes are read and written.
# - An *overhead-bound* operation waits for Python and torch to start it (on a GPU: to *launch its kernel*).
#
# To tell them apart, change the arithmetic and the bytes separately, and see which of the two the time follows. The
# cells do so for a product of two matrices and for `clamp`, which compares each number with one limit or with two.
#
# **Predict**: how many times as long does a training step take with two images as with one? Say 2 if the step waits for
# arithmetic on the images. Say 1 if it waits for the update and for the start of each operation, which do not grow with
# the images.

# %%
predicted_twice_the_images = None  # your number

# %% tags=["experiment"]
n, width = size.regime_numbers, size.regime_width
clamped, product = (
    functools.partial(make, device=device) for make in (regimes.clamped, regimes.product)
)
large, square, small = clamped(n, 1), product(width, width, width), regimes.often(clamped(64, 1))
patients = {
    k: cheap_advice.Patient(new_model(), images[:k], labels[:k], k) for k in (1, 2, 64, 128)
}
steps = {k: patient.train(patient.on_device()) for k, patient in patients.items()}
pairs = {  # change: (as before, changed), and how many times the arithmetic and the bytes
    "many numbers, two limits  arithmetic × 2, bytes × 1": (large, clamped(n, 2)),
    "twice as many numbers     arithmetic × 2, bytes × 2": (large, clamped(2 * n, 1)),
    "matrix, longer rows    arithmetic × 2, bytes × 1.67": (
        square,
        product(width, 2 * width, width),
    ),
    "matrix, other shape    arithmetic × 1, bytes × 1.75": (
        square,
        product(4 * width, width // 4, width),
    ),
    "64 numbers, two limits    arithmetic × 2, bytes × 1": (small, regimes.often(clamped(64, 2))),
    "128 numbers               arithmetic × 2, bytes × 2": (small, regimes.often(clamped(128, 1))),
    "step, 2 images for 1": (steps[1], steps[2]),
    "step, 128 images for 64": (steps[64], steps[128]),
}

# %% tags=["experiment"]
compared = compare_pairs(pairs, device=device, seconds=size.advice_seconds)
longer = {name: found.ratio(USUAL, to=CHANGED) for name, found in compared.items()}
for name, ratio in longer.items():
    print(f"{name:<52}  time × {ratio}")
limits, numbers, longer_rows, other_shape, few_limits, few_numbers, one_more, _ = longer.values()
print(
    course.score(
        "06/1", "two images instead of one, times as long", predicted_twice_the_images, one_more
    )
)
course.claim(
    "twice the arithmetic on as many numbers takes at most 25 % longer", limits, below=1.25
)
course.claim(
    "twice the numbers take at least 50 % longer: comparing many is memory-bound",
    numbers,
    above=1.5,
)
course.claim(
    "twice the arithmetic of a large matrix product takes at least 60 % longer",
    longer_rows,
    above=1.6,
)
course.claim(
    "a matrix product of 1.75 times the bytes takes at most 30 % longer", other_shape, below=1.3
)
course.claim("twice the arithmetic on 64 numbers takes at most 25 % longer", few_limits, below=1.25)
course.claim(
    "128 numbers instead of 64 take at most 25 % longer: the call itself costs most",
    few_numbers,
    below=1.25,
)

# %% [markdown]
# **Shown** Some rows change almost only the arithmetic, others almost only the bytes. The operation waits for the one
# whose change also changes the time. If the time stays although both double, most of it is the call itself.
#
# **We think** that a step of one image waits mostly for the update and for the start of each operation. To test it,
# leave the update out.
#
# <details><summary>Why may twice the images take more than twice the time?</summary>
#
# **We think** that each step with the larger batch gets new pages of memory from the system. To test it, count page
# faults (`resource.getrusage`).
#
# </details>
#
# **Takeaway** Vary arithmetic and bytes separately: the time follows what bounds the operation.

# %% [markdown]
# ## Does the cheap advice help here?
#
# You can now test the cheap items of the checklist, each with and without. A dot says how many times as fast the item
# makes the work, the thick line is its interval, and the thin grey line is the control.
#
# `as_tensor` and gradients set to None appear twice: in a step of the network, where they touch little, and in work of
# which they touch much. The
# checklist also says to take four workers per GPU. You have one device, so the cell compares four with two.

# %% tags=["experiment"]
few = size.cheap_steps * batch_size
patient, many = (
    cheap_advice.Patient(new_model(), images[:k], labels[:k], batch_size)
    for k in (few, size.worker_steps * batch_size)
)
single = cheap_advice.OneByOne(
    data.train_images[: len(many.images)], data.train_labels[: len(many.images)]
)
in_memory = compare(
    {f"{n} workers": many.train(many.loader(n)) for n in (0, 2)},
    device=device,
    seconds=size.worker_seconds,
)
by_image = compare(
    {f"{n} workers": many.train(forked(single, batch_size, n, shuffle=True)) for n in (0, 2, 4)},
    device=device,
    seconds=size.worker_seconds,
)
workers = {
    "2 workers, tensors in memory": in_memory,
    "2 workers, images one by one": by_image.pair("0 workers", "2 workers"),
    "4 workers, the rule, not 2": by_image.pair("2 workers", "4 workers"),
}

# %% tags=["experiment"]
on_device, train = patient.on_device(), patient.train
usual, as_array = train(on_device), patient.from_arrays
graph, no_graph = (patient.validate(context) for context in (contextlib.nullcontext, torch.no_grad))
pairs = {  # advice: (without, with)
    "slices, no DataLoader": (train(patient.loader()), train(patient.slices)),
    "as_tensor, a network": (train(as_array(torch.tensor)), train(as_array(torch.as_tensor))),
    "as_tensor, a linear model": cheap_advice.linear_steps(size.linear_rows, device),
    "gradients None, a network": (train(on_device, to_none=False), usual),
    "gradients None, few rows": cheap_advice.few_rows(size.few_rows_width, device),
    "no .item() in the steps": (train(on_device, each=torch.Tensor.item), usual),
    "no_grad in validation": (graph, no_graph),
    "no anomaly detection": (cheap_advice.inside(cheap_advice.anomaly_detection, usual), usual),
}
compared = workers | compare_pairs(pairs, device=device, seconds=size.advice_seconds)
plots.advice_ratios(compared, "times as fast: the work that the advice is about")

# %% tags=["experiment"]
gains = {name: found.ratio([*found.seconds][-1]) for name, found in compared.items()}
for name, found in compared.items():
    print(f"{name:<30} {gains[name]}  {found.verdict([*found.seconds][-1])}")

# %% [markdown]
# Four claims decide whether you should work on the loader.

# %% tags=["experiment"]
course.claim(
    "workers make a training with tensors in memory faster",
    gains["2 workers, tensors in memory"],
    above=1,
    otherwise="The items are there already, and workers have to send them.",
)
course.claim(
    "two workers make a training faster whose images are made one by one",
    gains["2 workers, images one by one"],
    above=1,
    otherwise="The workers need cores that the training uses.",
)
course.claim(
    "four workers, the rule for one device, are faster than two",
    gains["4 workers, the rule, not 2"],
    above=1,
    otherwise="The rule knows neither your cores nor what an image costs.",
)
course.claim(
    "slices instead of a DataLoader gain no more than the profile allows",
    gains["slices, no DataLoader"].scaled(1 / best_loading.estimate),
    below=1.05,
)

# %% [markdown]
# Six claims decide whether it pays to skip a copy, a write of zeros or a graph.

# %% tags=["experiment"]
course.claim(
    "as_tensor instead of tensor makes a step of the network faster",
    gains["as_tensor, a network"],
    above=1,
)
course.claim(
    "as_tensor instead of tensor makes a step of a linear model faster",
    gains["as_tensor, a linear model"],
    above=1,
)
course.claim(
    "gradients None instead of 0 make a step of the network faster",
    gains["gradients None, a network"],
    above=1,
)
course.claim(
    "gradients None instead of 0 make a backward pass of few rows faster",
    gains["gradients None, few rows"],
    above=1,
)
course.claim("no_grad makes a validation faster", gains["no_grad in validation"], above=1)
kept, kept_without = cheap_advice.bytes_kept(graph), cheap_advice.bytes_kept(no_graph)
keeps_nothing = kept_without == 0
course.claim(
    "no_grad keeps no activation of a validation batch",
    keeps_nothing,
    f"{kept_without} B, not {kept / 1e6:.1f} MB",
)

# %% [markdown]
# Seven claims decide which lines and settings to look for in your script. The last five need a GPU.

# %% tags=["experiment"]
course.claim(
    "a step without .item() is faster",
    gains["no .item() in the steps"],
    above=1,
    otherwise="A CPU has no queue of work that the value must wait for.",
)
course.claim("without anomaly detection a step is faster", gains["no anomaly detection"], above=1)

# %% tags=["experiment"]
on_gpu = {}
if device.type == "cuda":
    compared = compare_pairs(
        cheap_advice.on_cuda(patient), device=device, seconds=size.advice_seconds
    )
    on_gpu = {name: found.ratio(CHANGED) for name, found in compared.items()}
    on_gpu["first step"] = cheap_advice.first_step_of_a_shape(patient)
course.claim(
    "pin_memory makes a training with tensors in memory faster", on_gpu.get("pin_memory"), above=1
)
course.claim(
    "pin_memory with non_blocking makes a training with tensors in memory faster",
    on_gpu.get("pin_memory and non_blocking"),
    above=1,
)
course.claim(
    "tensors made on the device come faster than tensors moved there",
    on_gpu.get("device="),
    above=1,
)
course.claim("cudnn.benchmark makes a step faster", on_gpu.get("cudnn.benchmark"), above=1)
course.claim(
    "with cudnn.benchmark, the first step of a batch size takes at most twice as long as the next",
    on_gpu.get("first step"),
    above=0.5,
)

# %% [markdown]
# A row is "faster", and its claim holds, if the whole interval lies at least half a percent above 1. Advice about a
# small share of the step can gain little.
#
# **We think** that workers lose where they take cores from the training, and win where a GPU computes. To test it,
# compare the recorded machines. How many you need follows from the time of an image, the time of a step and your cores
# (unit 01, part 4).
#
# <details><summary>What to know about gradients None, cudnn.benchmark, pinned memory and anomaly detection</summary>
#
# - **Known** `zero_grad(set_to_none=True)` has been the default since PyTorch 2.0 (its release notes), so the two rows
#   about gradients say what going back to zeros would cost.
# - `cudnn.benchmark` tries several algorithms at the first step of each shape (PyTorch documentation), so it needs
#   fixed shapes.
# - `non_blocking` needs pinned memory.
# - Anomaly detection is a debugging tool. Our row measures only its tracebacks. By default it also looks for NaN, which
#   costs more.
#
# </details>
#
# **Takeaway** A row that is not decided proves neither a gain nor its absence. Start with the largest share of your
# profile.

# %% [markdown]
# ## On which machine does advice flip?
#
# Most advice was measured on one machine, and that was not yours. The *flip map* has a row per piece of advice and a
# column per machine. Your own results are entered in cells with a frame, which the text calls "here". Extra
# sections of this part, parts 2 to 4 and unit 02 measure the other rows.
#
# To guess which advice flips, ask which part of the step it changes, and how large that part is on the other machine. A
# GPU needs little time for arithmetic, so data and the start of each operation take a larger share there.

# %% tags=["experiment"]
flips = flip_map(claimed(), machine_name())
print(
    "measured on more than one machine:",
    "; ".join(row.advice.name for row in flips.rows if row.n_measured > 1),
)

# %% [markdown]
# **Predict**: which of these win on one machine and lose on another?

# %%
predicted_flips = (
    None  # a set of names, such as {"gradient accumulation", "torch's own GELU, not a chain"}
)

# %% tags=["experiment"]
print(course.score("06/1", "advice that flips", predicted_flips, set(flips.flipping), null=None))
print(flips.sentences())
map_plots.flip_map(flips)

# %% [markdown]
# Treat a flip as a question, because the machines trained networks of different sizes, and another day's run may lie
# outside an interval. The reason in its row is a guess, unless its part shows it.
#
# <details><summary>How to read the colours of the map</summary>
#
# A pale cell comes from an older record without an interval, so a ratio has a colour there only from a tenth on. A
# difference in accuracy is the mean of a few seeds, so it stays grey there. Results of smoke scale are not entered.
#
# </details>
#
# The next cell lists the whole checklist: what each item promises, where it wins, and why. The same map is in
# [docs/flip-map.md](../../docs/flip-map.md).

# %% tags=["experiment"]
flips.checklist()

# %% [markdown]
# **Takeaway** Advice is a claim about a machine. Ask which share it changes, and measure on yours.

# %% [markdown]
# ## What should you change in your own training?
#
# Put your own `loader` and `step` into the cell, or run `course checkup train.py` in a terminal, which watches any
# script as it is. Then look at its first advice in the map: on which machine did that advice win?

# %% tags=["experiment"]
own_loader, own_step = DataLoader(in_tensors, batch_size, shuffle=True), step  # your own
print(course.checkup(own_loader, own_step, steps=size.checkup_steps, minutes=size.checkup_minutes))

# %% [markdown]
# **Takeaway** Find the largest share, try what reduces it next to a control, and keep it only if the interval says so.

# %% [markdown]
# ## How much of your machine does a model use? · extra
#
# Your model may use most of your machine, or a tenth of it. A *roofline* shows which, with one dot per operation of a
# step. The x axis is arithmetic per byte, and the y axis is arithmetic per second, both in floating-point operations
# (FLOPs). The area of a dot is the time of all calls.
#
# The roof is measured: its flat part is the best of three matrix products, its slope a large addition. The models are
# this part's network and a small GPT.

# %% tags=["experiment"]
patient = cheap_advice.Patient(new_model(), images[:batch_size], labels[:batch_size], batch_size)
models = {"CNN": patient.train(patient.on_device()), "GPT": cheap_advice.gpt_step(size.gpt, device)}
roof = roofline.roof(size.regime_width, size.regime_numbers, device)
found = {name: roofline.operations(step, device) for name, step in models.items()}
plots.roofline(roof, found)

# %% [markdown]
# The dotted line is the *ridge*. Dots near the slope, left of the ridge, are memory-bound, so faster arithmetic does
# not help them. A dot above the slope reads its numbers from a cache. A dot above the flat part is faster than the
# product that measured the roof, or does less arithmetic than is counted. Dots far below the roof wait for something
# else, often for their own start.
#
# *Model FLOPs utilisation* (MFU) is one number for the whole step: the arithmetic of the model's products, divided by
# what the machine could have computed in that time. Papers take the machine's speed from its data sheet. Here it is the
# speed of a large matrix product, so our shares are higher.
#
# The last column is the load: what `top` calls %CPU, divided by your cores. On a GPU it says nothing about the GPU.

# %% tags=["experiment"]
width = size.regime_width
ways = {"matrix product": product(width, width, width)} | models | {"comparing numbers": large}
timed = compare(ways, device=device, seconds=size.worker_seconds)
arithmetic = {name: roofline.product_flops(operations) for name, operations in found.items()}
arithmetic["comparing numbers"] = size.regime_numbers
mfu = {name: timed.ratio(name).scaled(count / (2 * width**3)) for name, count in arithmetic.items()}
if course.scale() == "smoke":
    print("at smoke scale the product is too small to reach the peak, so a share may exceed 1")
for name, share in mfu.items():
    print(f"{name:<20} MFU {share}   load of the processor {regimes.busy(ways[name]):.0%}")
course.claim(
    "a training step of the small GPT reaches at least a fifth of the peak", mfu["GPT"], above=0.2
)
course.claim(
    "comparing many numbers reaches at most a tenth of the peak",
    mfu["comparing numbers"],
    below=0.1,
)

# %% [markdown]
# **Shown** On a CPU, comparing numbers loads the processor as the models do, and computes almost nothing, because it
# waits for bytes. **Known** The "GPU-Util" of `nvidia-smi` is the share of the time in which *some* kernel ran (NVML's
# documentation). So 100 % there says no more than the load in this row.
#
# **Takeaway** A busy processor need not be a fast one. MFU says which share of its speed your model uses.

# %% [markdown]
# ## Which lines wait for the device? · extra
#
# One line that prints a loss can make a GPU wait. The processor runs ahead and fills the GPU's queue of operations.
# When a line needs a *number*, the processor waits until the queue is empty, and then the GPU has nothing to do. A CPU
# has no such queue, but you can count the calls that would wait on a GPU: which of the twelve lines in the cell after
# the exercise would?

# %% [markdown]
# ### Exercise 3 · Count hidden waits
#
# Run `call()` once and list the calls in it that need a value of a tensor. Inside a `TorchFunctionMode`, torch does not
# run a function or a method of a tensor itself. It calls the mode's method `__torch_function__(self, func, types,
# args=(), kwargs=None)` instead.
#
# **Must**
# - return the names (`func.__name__`) of the calls that are in `waits` (given), in order, as a list;
# - leave what `call` computes as it is, and let its exceptions pass.
#
# Your function looks at names alone, so it lists both calls of `x.cpu().numpy()`, although the second waits for
# nothing. In the loops below, each listed call is a wait.
#
# **Points** 4 · **Extra** · **Difficulty** ●●○ · **Minutes** 12 · **Lines** 8
#
# **Source** `torch.overrides.TorchFunctionMode` in the PyTorch documentation, "Extending PyTorch".
#
# <details><summary>Hint 1</summary>
#
# Torch calls your method in place of the function. Besides noting the call, what must it do so that the call still
# runs?
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
    """Names of the calls inside `call()` that would wait for a GPU, if their tensors were on it.

    Args:
        call: function without arguments; it is called once.

    Returns: list of str, in the order of the calls, each one of `waits`.
    """
    waits = {
        "item",
        "tolist",
        "cpu",
        "numpy",
        "nonzero",
        "__bool__",
        "__int__",
        "__float__",
        "__index__",
        "__array__",
        "__repr__",
        "__format__",
    }
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
    "loss.item()": loss.item,
    "loss.detach()": loss.detach,
    "x.tolist()": x.tolist,
    "print(loss)": lambda: str(loss),  # the same without output
    "f'{loss:.3f}'": lambda: f"{loss:.3f}",
    "total = total + loss": lambda: total + loss,
    "if loss > 3: pass": lambda: bool(loss > 3),
    "worse = loss > 3": lambda: loss > 3,
    "x.cpu()": x.cpu,
    "x.mean(dim=0)": lambda: x.mean(dim=0),
    "max(loss, total)": lambda: max(loss, total),
    "torch.maximum(loss, total)": lambda: torch.maximum(loss, total),
}

# %% tags=["experiment"]
waiting = {line: syncs_now(call) for line, call in calls.items()}
for line, found in waiting.items():
    print(f"{line:<28} {'waits' if found else 'no wait':<8} {', '.join(found)}")
print(f"{sum(map(bool, waiting.values()))} of {len(calls)} lines wait")
course.claim(
    "detach() neither moves nor copies a tensor: its result has the same address",
    loss.detach().data_ptr() == loss.data_ptr() and not syncs_now(loss.detach),
)
course.claim(
    "printing a detached tensor waits for the device, exactly as printing the tensor itself",
    len(syncs_now(lambda: str(loss.detach()))) == len(syncs_now(lambda: str(loss))),
)


# %%
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
        history.append((logits.argmax(1) == y).float().mean().cpu())
        if loss < best:
            best = loss.detach()
        progress.append(f"loss {loss:.3f}, best {best:.3f}")  # as a progress bar shows it
    return total / len(batches)


# %%
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


# %% tags=["experiment"]
batches = cheap_advice.Patient(new_model(), images[:few], labels[:few], batch_size).on_device()
waits, means = {}, {}
for loop in (log_each_step, log_once):
    model = new_model()
    train = functools.partial(loop, model, torch.optim.SGD(model.parameters(), lr=0.01), batches)
    waits[loop.__name__] = syncs_now(
        lambda name=loop.__name__, train=train: means.update({name: train()})
    )
for name, found in waits.items():
    print(
        f"{name:<14} {len(found):4d} waits in {len(batches)} steps: {', '.join(sorted(set(found)))}"
    )
each, once = (len(waits[name]) for name in waits)
waits_more, apart = each > len(batches), abs(means["log_each_step"] - means["log_once"])
course.claim(
    "logging each step waits several times in each step, logging once waits once",
    waits_more and once == 1,
    f"{each} against {once}",
)
is_equal = apart < 1e-3
course.claim(
    "a loop that logs once computes the same mean loss as one that logs each step",
    is_equal,
    f"they differ by {apart:.1e}",
)

# %% [markdown]
# **Takeaway** Keep detached tensors and ask for their values once, at the end.
#
# The checklist says to use `.detach()` instead of `.item()`, but the two do different things: `.detach()` leaves the
# graph, `.item()` asks for a number. On CUDA, `torch.cuda.set_sync_debug_mode("warn")` reports real waits.

# %% [markdown]
# ## Does your evaluation change your model? · extra
#
# An evaluation may be wrong and slow without an error. We wrote the function below, and gave it faults that evaluations
# often have:


# %% locked="wild_evaluate"
def wild_evaluate(model, batches, device):
    """Accuracy in percent, with four faults.  Do not use it."""
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
# You can see four symptoms:
#
# - Two evaluations of the same model give different accuracies, because dropout still draws.
# - BatchNorm's running means move, although nobody trains.
# - Batches of 64 raise an IndexError, and only 100 images of a batch of 128 count.
# - Memory grows with the set, and each image waits for the device.
#
# ### Exercise 4 · Fix the evaluation
#
# Write an evaluation without these symptoms. `torch.inference_mode()` goes further than `torch.no_grad()`: it also
# skips some bookkeeping, so its outputs can never be saved for a backward pass.
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
# Which line would you have to change for each symptom?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `training = model.training` before, `model.train(training)` after. In the loop two running numbers are enough: the sum
# of hits, a tensor, and `len(y)`, which is known without the device.
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
held = TensorDataset(held_images[: size.eval_images], held_labels[: size.eval_images])
by_100 = list(DataLoader(held, 100))  # the only batch size that the faulty loop can do
model = new_model()
log_once(model, torch.optim.Adam(model.parameters()), batches)
norm = next(m for m in model.modules() if isinstance(m, nn.BatchNorm2d))
before = norm.running_mean.clone()
repaired = [100 * evaluate_now(model, by_100, device) for _ in range(2)]
kept = torch.equal(before, norm.running_mean)
faulty = [wild_evaluate(model, by_100, device) for _ in range(2)]
moved = (norm.running_mean - before).abs().max().item()
print(
    f"accuracy, twice: faulty {faulty[0]:.2f} %, {faulty[1]:.2f} %; "
    f"fixed {repaired[0]:.2f} %, {repaired[1]:.2f} %"
)

# %% tags=["experiment"]
moves = moved > 0 and kept
course.claim(
    "the faulty evaluation moves the running mean of BatchNorm, the fixed one does not",
    moves,
    f"by up to {moved:.2g}",
)
n_waits = [
    len(syncs_now(lambda f=f: f(model, by_100, device))) for f in (wild_evaluate, evaluate_now)
]
per_image = n_waits[0] >= len(held) and n_waits[1] == 1
course.claim(
    "the faulty evaluation waits for the device once per image, the fixed one once",
    per_image,
    f"{n_waits[0]} against {n_waits[1]}",
)
pair = {
    "fixed": (
        lambda: wild_evaluate(model, by_100, device),
        lambda: evaluate_now(model, by_100, device),
    )
}
fixed = compare_pairs(pair, device=device, seconds=size.advice_seconds)["fixed"]
course.claim(
    "the fixed evaluation is faster than the loop that asks for each image",
    fixed.ratio(CHANGED),
    above=1,
)

# %% [markdown]
# The last ratio says what all faults of this function cost together, not what other people's code costs.
#
# **Takeaway** Evaluate in eval mode and inference mode, count on the device, and ask for one number at the end.
#
# Such loops often have one more fault, which no function shows: they evaluate on the *test* images every few steps and
# keep the best step, so they tune on the test set.

# %% [markdown]
# ## Do you need both normalised inputs and BatchNorm? · extra
#
# The checklist advises both. The cells make the same training with normalised inputs or with raw pixels from 0 to 255,
# each with and without BatchNorm. Raw pixels without BatchNorm run at two learning rates. Which training has the lowest
# loss after the same number of steps?

# %%
raw = data.train_images.unsqueeze(1).float()
centred = fashion.floats(data.train_images)
lr = 0.02


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


def all_seeds(pixels, norm, lr):
    """Losses of a training per seed: a tensor (seeds, steps)."""
    return torch.stack(
        [losses_of(pixels, norm, lr, size.norm_steps, seed) for seed in range(size.norm_seeds)]
    )


def end_of(runs):
    """The mean loss of each run (seeds,) in the last fifth of its steps."""
    return runs[:, -max(1, size.norm_steps // 5) :].mean(1)


# %% tags=["experiment"]
four = (lr / 4, lr, 4 * lr, 16 * lr)
settings = {  # pixels, norm, and the learning rates of which the best counts
    "both": (centred, "batch", four),
    "input only": (centred, None, four),
    "BatchNorm only": (raw, "batch", four),
    "neither": (raw, None, [lr]),
    "neither, lr / 100": (raw, None, [lr / 100]),
}
curves, best_lr = {}, {}
for name, (pixels, norm, rates) in settings.items():
    by_lr = {rate: all_seeds(pixels, norm, rate) for rate in rates}
    best_lr[name] = min(by_lr, key=lambda rate: end_of(by_lr[rate]).mean())
    curves[name] = by_lr[best_lr[name]]
plots.loss_curves(curves, "training loss, mean of the seeds")

# %% tags=["experiment"]
ends = {name: end_of(runs).tolist() for name, runs in curves.items()}
for name, losses in sorted(ends.items(), key=lambda item: sum(item[1])):
    mean = statistics.mean(losses)
    found = f"{mean:.3f} in the last fifth of the steps" if mean < float("inf") else "diverged"
    print(f"{name:<18} lr {best_lr[name]:<7g} {found}")
by_norm = comparison.difference_interval(ends["input only"], ends["both"])
by_input = comparison.difference_interval(ends["BatchNorm only"], ends["both"])
course.claim("with normalised input, BatchNorm ends with less loss than no norm", by_norm, above=0)
course.claim(
    "with BatchNorm, normalised input ends with less loss than raw pixels", by_input, above=0
)
diverged = sum(loss == float("inf") for loss in ends["neither"])
slower = max(ends["neither, lr / 100"])
some_diverge, is_finite = diverged > 0, slower != float("inf")
course.claim(
    "with neither, trainings diverge at this learning rate, and none at a hundredth of it",
    some_diverge and is_finite,
    f"{diverged} of {len(ends['neither'])} diverge",
)

# %% [markdown]
# Three of the five trainings use the best of four learning rates, because one rate may suit one training better than
# another.
#
# **We think** that BatchNorm after the first convolution does what normalised input does, because it subtracts and
# divides as well. To test it, move the first BatchNorm behind the second convolution.
#
# <details><summary>Why may raw pixels win without BatchNorm?</summary>
#
# **We think** that the initial weights shrink what each layer passes on, so large pixels help. To test it, multiply the
# normalised input by ten.
#
# </details>
#
# **Takeaway** With BatchNorm, raw and normalised pixels end nearly alike here. Without it, the scale of the input
# decides which learning rates work.
#
# Part 2 looks for fewer steps, part 3 for cheaper ones.
