# %% [markdown]
# # Faster training, part 1: Find out what is slow
#
# **What is your training step waiting for, and which advice could change that?**
#
# Some advice for faster training wins on one machine and loses on another. So you first learn to measure: where a step
# spends its time, how much a change can gain at best, and whether a difference is more than noise. Then you test the
# advice of one checklist, L. Kuhn's "Faster Deep Learning Training with PyTorch"
# ([efficientdl.com](https://efficientdl.com/faster-deep-learning-in-pytorch-a-guide/)).
#
# **You will be able to**
#
# - read from a profile where the time of a step goes, and compute what a change can gain at best;
# - test your own comparison on two equal things before you believe it;
# - say whether an operation waits for arithmetic, for bytes or for its start;
# - judge a piece of advice by its bound, its interval, and the machines on which it flips.
#
# **Minutes** 46 core · 92 in all
#
# **Needs** PyTorch: you have written a training loop
#
# Run the cells in order. Where a cell says None, write your number before you run the next cell. Sections marked
# "extra" can wait. Numbers after "Recorded" come from the machines that they name.


# %% locked="setup"
import contextlib
import functools
import io
import math
import os
import statistics
import warnings

# Else the profiler writes about missing GPUs to the terminal.
os.environ.setdefault("KINETO_LOG_LEVEL", "6")
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
from course.measure import comparison, regimes, roofline, step_profile
from course.measure.comparison import CHANGED, FASTER, SLOWER, USUAL, compare, compare_pairs
from course.plots import faster_training as plots
from course.plots import flip_map as map_plots
from course.training import cheap_advice, input_scale

# We try more workers than cores on purpose.
warnings.filterwarnings("ignore", "This DataLoader will create")
print(course.machine())
size = course.sizes("06_faster_training")
device = course.device()
data = fashion.load(size.dataset)
images, labels, held_images, held_labels = fashion.with_validation(data)
batch_size = size.cheap_batch
print(f"{len(labels):,} images to train on, {len(held_labels):,} to validate on")


def new_model():
    """Return the network of this part, with the same initial weights each time."""
    return cheap_advice.new_model(device)


# %% [markdown]
# ## What does a check-up find?
#
# Before you change a training, find out what is worth changing. The training below is a common first version: a Dataset
# that makes one image at a time, a `DataLoader` without workers, and Adam. `course.checkup` watches it, reports where
# its time goes, and tries what might help.
#
# **Predict**: which share of the time does Adam's update take, from 0 to 1? Say a small one if the time follows the
# operations: the update makes a dozen per weight, and forward and backward make more. Say a larger one if the time
# follows the bytes: the update reads and writes each weight and its two moments.

# %%
predicted_optimizer_share = None  # your number

# %% tags=["experiment"]
one_by_one = cheap_advice.OneByOne(data.train_images, data.train_labels)
loader = DataLoader(one_by_one, batch_size, shuffle=True)
model = new_model()
optimizer = torch.optim.Adam(model.parameters())


def step(batch):
    """Train on one batch."""
    x, y = batch
    x = x.to(device)
    y = y.to(device)
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()


report = course.checkup(loader, step, steps=size.checkup_steps, minutes=size.checkup_minutes)
print(report.brief)

# %% tags=["experiment"]
phases = report.facts.phases
share = phases["optimizer"].share
print(course.score("06/1", "share of Adam's update", predicted_optimizer_share, share, null=None))

# %% [markdown]
# For each change, the table says how much it can gain at best, and how much it gained here, with an interval of 95 %.
# The next sections show where these numbers come from. `print(report)` shows the whole report.
#
# **Takeaway** Look at the whole step before you change a line of it.

# %% [markdown]
# ## Can you trust a difference?
#
# Time the same step twice, and you get two different numbers. How large must a difference be before it means something?
# To find out, compare a step with itself: in such an *A/A test* every difference is noise.
#
# The cells make many of these tests. They judge each test by one run of each side, and by the interval over several
# rounds. How often does each way find a difference where there is none?

# %% tags=["experiment"]
fixed_batch = next(iter(loader))


def same_step():
    """Make a training step, on the same batch each time."""
    step(fixed_batch)


equal_pairs = {}
for number in range(size.same_pairs):
    equal_pairs[f"A/A {number}"] = (same_step, same_step)
tests = list(compare_pairs(equal_pairs, device=device, seconds=0).values())

# %% tags=["experiment"]
first_ratios = []  # of the first run of each side
found_by_one_run = 0
found_by_interval = 0
rounds_needed = []
for test in tests:
    ratio = float(test.seconds[USUAL][0] / test.seconds[CHANGED][0])
    first_ratios.append(ratio)
    if abs(ratio - 1) > 0.02:
        found_by_one_run += 1
    if test.verdict(CHANGED) in (FASTER, SLOWER):
        found_by_interval += 1
    rounds_needed.append(test.rounds_for(CHANGED, 0.02))

print(f"of {len(tests)} comparisons of a step with itself, a difference was found")
print(
    f"    by one run of each, if 2 % counts: {found_by_one_run} times, "
    f"from {min(first_ratios):.2f} to {max(first_ratios):.2f}"
)
print(
    f"    by intervals of {tests[0].rounds} rounds, if half a percent counts: "
    f"{found_by_interval} times"
)
print(f"rounds to see a gain of 2 % here: about {statistics.median(rounds_needed):.0f}")

# %% tags=["experiment"]
seconds_usual = torch.cat([test.seconds[USUAL] for test in tests])
seconds_changed = torch.cat([test.seconds[CHANGED] for test in tests])
course.claim(
    "over all rounds, a step is as fast as itself within 2 %",
    comparison.ratio_interval(seconds_usual, seconds_changed),
    within=(0.98, 1.02),
    otherwise="Two equal steps differ here, so you cannot see a gain of that size.",
)

# %% [markdown]
# **Known** On average, one interval of 95 % in twenty misses the truth. For half its width you need about four times
# the rounds.
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
# second takes rows of one tensor. Your function computes the shares, and the bars show a typical step of each training.
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
    model = new_model()
    optimizer = torch.optim.Adam(model.parameters())
    batches = iter(loader)
    for _ in range(steps):
        with step_profile.phase("data", device):
            x, y = next(batches)
        with step_profile.phase("transfer", device):
            x = x.to(device)
            y = y.to(device)
        with step_profile.phase("forward", device):
            loss = F.cross_entropy(model(x), y)
        with step_profile.phase("backward", device):
            loss.backward()
        with step_profile.phase("optimizer", device):
            optimizer.step()
            optimizer.zero_grad()


# %% tags=["experiment"]
shares_now = course.solved(check.where_time_goes)  # yours if it is right, else ours
in_tensors = TensorDataset(images, labels)
datasets = {"images one by one": one_by_one, "tensors in memory": in_tensors}

profiles = {}  # of each training
shares_by_step = {}
typical_shares = {}
for name, dataset in datasets.items():
    shuffled = DataLoader(dataset, batch_size, shuffle=True)
    train = functools.partial(train_in_phases, shuffled, size.profile_steps)
    profiles[name] = step_profile.profiled(train, device)
    events = step_profile.events_of(profiles[name])
    steps = step_profile.per_step(events, "data")
    shares_by_step[name] = [shares_now(events_of_step, PHASES) for events_of_step in steps]
    typical_shares[name] = step_profile.typical_shares(shares_by_step[name])
plots.phase_shares(typical_shares)

# %% tags=["experiment"]
slowest = step_profile.slowest_operations(profiles["tensors in memory"], 5)
shown = [f"{name} {share:.0%}" for name, share in slowest.items()]
print("operations that take longest, with tensors in memory:", ", ".join(shown))

# %% tags=["experiment"]
waits_one_by_one = [shares["data"] for shares in shares_by_step["images one by one"]]
waits_in_tensors = [shares["data"] for shares in shares_by_step["tensors in memory"]]
updates = [shares["optimizer"] for shares in shares_by_step["tensors in memory"]]
course.claim(
    "with images made one by one, getting the data takes a larger share than with tensors in memory",
    comparison.difference_interval(waits_one_by_one, waits_in_tensors),
    above=0,
)
course.claim(
    "Adam's update takes more than a tenth of a small network's step",
    comparison.signed_rank_interval(updates),
    above=0.1,
    otherwise="Look at the other phases: which of them takes the largest share?",
)

# %% tags=["experiment"]
trace = data_folder() / "traces" / "06_faster_training_1.json.gz"
trace.parent.mkdir(parents=True, exist_ok=True)
profiles["tensors in memory"].export_chrome_trace(str(trace))
print(f"the whole profile: traces/{trace.name} in the data folder; open it at ui.perfetto.dev")

# %% [markdown]
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
advice_about = {
    "data": "workers, and all other advice about loading",
    "transfer": "pinned memory",
    "optimizer": "fused optimizers",
}
for name, shares in typical_shares.items():
    print(f"{name}: how many times as fast the training gets if this phase ...")
    for phase, advice in advice_about.items():
        twice, best = bound_now(shares[phase], 2)
        print(
            f"    {phase:<10} takes half as long: {twice:.3f}   takes no time: {best:.3f}   "
            f"({advice})"
        )

# %% tags=["experiment"]
bounds_by_step = []
for shares in shares_by_step["tensors in memory"]:
    _, best = bound_now(shares["data"], 2)
    bounds_by_step.append(best)
loading_bound = comparison.signed_rank_interval(bounds_by_step)
course.claim(
    "with tensors in memory, no advice about loading can make this training 10 % faster",
    loading_bound,
    below=1.1,
    otherwise="Then loading is worth your time: see unit 01.",
)

# %% [markdown]
# The bound also holds for workers, which make batches while the model computes: at best, a step waits for no data.
# Compare the recorded machines: the larger the share of the data, the more advice about loading can gain.
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
n = size.regime_numbers
width = size.regime_width
clamped = functools.partial(regimes.clamped, device=device)
product = functools.partial(regimes.product, device=device)

one_limit = clamped(n, 1)
square = product(width, width, width)
longer_rows = product(width, 2 * width, width)
other_shape = product(4 * width, width // 4, width)
few_numbers = regimes.often(clamped(64, 1))
few_two_limits = regimes.often(clamped(64, 2))
few_more_numbers = regimes.often(clamped(128, 1))
changes = {  # change: (times the arithmetic, times the bytes, as before, changed)
    "many numbers, two limits": (2, 1, one_limit, clamped(n, 2)),
    "twice as many numbers": (2, 2, one_limit, clamped(2 * n, 1)),
    "matrix, longer rows": (2, 1.67, square, longer_rows),
    "matrix, other shape": (1, 1.75, square, other_shape),
    "64 numbers, two limits": (2, 1, few_numbers, few_two_limits),
    "128 numbers": (2, 2, few_numbers, few_more_numbers),
}

# %% tags=["experiment"]
steps = {}  # images of a step: a function that makes it
for n_images in (1, 2, 64, 128):
    patient = cheap_advice.Patient(new_model(), images[:n_images], labels[:n_images], n_images)
    steps[n_images] = patient.train(patient.on_device())
pairs = {
    "a step, 2 images for 1": (steps[1], steps[2]),
    "a step, 128 images for 64": (steps[64], steps[128]),
}
for name, (_, _, before, changed) in changes.items():
    pairs[name] = (before, changed)

compared = compare_pairs(pairs, device=device, seconds=size.advice_seconds)
longer = {}  # change: times as long
for name, result in compared.items():
    longer[name] = result.ratio(USUAL, to=CHANGED)

for name, (arithmetic, n_bytes, _, _) in changes.items():
    print(f"{name:<25} arithmetic × {arithmetic}  bytes × {n_bytes:<4}  time × {longer[name]}")
for name in ("a step, 2 images for 1", "a step, 128 images for 64"):
    print(f"{name:<25} time × {longer[name]}")

# %% tags=["experiment"]
what = "two images instead of one, times as long"
print(course.score("06/1", what, predicted_twice_the_images, longer["a step, 2 images for 1"]))
course.claim(
    "twice the arithmetic on as many numbers takes at most 25 % longer",
    longer["many numbers, two limits"],
    below=1.25,
)
course.claim(
    "twice the numbers take at least 50 % longer: comparing many is memory-bound",
    longer["twice as many numbers"],
    above=1.5,
)
course.claim(
    "twice the arithmetic of a large matrix product takes at least 60 % longer",
    longer["matrix, longer rows"],
    above=1.6,
)
course.claim(
    "a matrix product of 1.75 times the bytes takes at most 30 % longer",
    longer["matrix, other shape"],
    below=1.3,
)
course.claim(
    "twice the arithmetic on 64 numbers takes at most 25 % longer",
    longer["64 numbers, two limits"],
    below=1.25,
)
course.claim(
    "128 numbers instead of 64 take at most 25 % longer: the call itself costs most",
    longer["128 numbers"],
    below=1.25,
)

# %% [markdown]
# **Shown** Two rows change only the arithmetic, and one changes only the bytes. If the time grows almost as much, the
# operation waits for what you changed. If arithmetic and bytes double and the time stays, most of it is the call
# itself.
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
# makes the work, and the thick line is its interval. The thin grey line is the control.
#
# `as_tensor` and gradients set to None appear twice: in a step of the network, and in work of which they change a
# larger part. The checklist also says to take four workers per GPU. You have one device, so the cell compares four with
# two.

# %% tags=["experiment"]
n = size.worker_steps * batch_size
many = cheap_advice.Patient(new_model(), images[:n], labels[:n], batch_size)
single = cheap_advice.OneByOne(data.train_images[:n], data.train_labels[:n])
from_memory = compare(many.with_workers((0, 2)), device=device, seconds=size.worker_seconds)
by_image = compare(many.with_workers((0, 2, 4), single), device=device, seconds=size.worker_seconds)
workers = {
    "2 workers, tensors in memory": from_memory,
    "2 workers, images one by one": by_image.pair("0 workers", "2 workers"),
    "4 workers, the rule, not 2": by_image.pair("2 workers", "4 workers"),
}

# %% tags=["experiment"]
few = size.cheap_steps * batch_size
patient = cheap_advice.Patient(new_model(), images[:few], labels[:few], batch_size)
on_device = patient.on_device()
usual = patient.train(on_device)
with_graph = patient.validate(contextlib.nullcontext)
without_graph = patient.validate(torch.no_grad)
pairs = {  # advice: (without, with)
    "slices, no DataLoader": (patient.train(patient.loader()), patient.train(patient.slices)),
    "as_tensor, a network": (
        patient.train(patient.from_arrays(torch.tensor)),
        patient.train(patient.from_arrays(torch.as_tensor)),
    ),
    "as_tensor, a linear model": cheap_advice.linear_steps(size.linear_rows, device),
    "gradients None, a network": (patient.train(on_device, to_none=False), usual),
    "gradients None, few rows": cheap_advice.few_rows(size.few_rows_width, device),
    "no .item() in the steps": (patient.train(on_device, each=torch.Tensor.item), usual),
    "no_grad in validation": (with_graph, without_graph),
    "no anomaly detection": (cheap_advice.inside(cheap_advice.anomaly_detection, usual), usual),
}
compared = workers | compare_pairs(pairs, device=device, seconds=size.advice_seconds)
plots.advice_ratios(compared, "times as fast: the work that the advice is about")

# %% tags=["experiment"]
gains = {}  # advice: times as fast
for name, result in compared.items():
    with_advice = list(result.seconds)[-1]
    gains[name] = result.ratio(with_advice)

# %% [markdown]
# Four claims decide whether you should work on the loader. The last one divides a gain by its bound.

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
    otherwise="Workers pay only while cores are free: see unit 01.",
)
course.claim(
    "four workers, the rule for one device, are faster than two",
    gains["4 workers, the rule, not 2"],
    above=1,
    otherwise="The rule knows neither your cores nor what an image costs.",
)
course.claim(
    "slices instead of a DataLoader gain no more than the profile allows",
    gains["slices, no DataLoader"].scaled(1 / loading_bound.estimate),
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
kept = cheap_advice.bytes_kept(with_graph)
kept_without = cheap_advice.bytes_kept(without_graph)
course.claim(
    "no_grad keeps no activation of a validation batch",
    kept_without == 0,
    f"{kept_without} B, not {kept / 1e6:.1f} MB",
)

# %% [markdown]
# The last claims decide which lines and settings to look for in your script.

# %% tags=["experiment"]
course.claim(
    "a step without .item() is faster",
    gains["no .item() in the steps"],
    above=1,
    otherwise="A CPU has no queue of work that the value must wait for.",
)
course.claim("without anomaly detection a step is faster", gains["no anomaly detection"], above=1)

# %% tags=["experiment"]
if device.type == "cuda":
    on_gpu = cheap_advice.gains_on_cuda(patient, size.advice_seconds)
    course.claim(
        "pin_memory makes a training with tensors in memory faster", on_gpu["pin_memory"], above=1
    )
    course.claim(
        "pin_memory with non_blocking makes a training with tensors in memory faster",
        on_gpu["pin_memory and non_blocking"],
        above=1,
    )
    course.claim(
        "tensors made on the device come faster than tensors moved there",
        on_gpu["device="],
        above=1,
    )
    course.claim("cudnn.benchmark makes a step faster", on_gpu["cudnn.benchmark"], above=1)
    course.claim(
        "with cudnn.benchmark, the first step of a batch size takes at most twice as long as the next",
        on_gpu["first step"],
        above=0.5,
    )
    control = on_gpu["first step without"].inverted()
    print(f"without cudnn.benchmark, the first step takes {control} times as long as the next")
else:
    print("pin_memory, device= and cudnn.benchmark: only a GPU can decide them")

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
# - **Known** `zero_grad(set_to_none=True)` has been the default since PyTorch 2.0 (its release notes). So the two rows
#   about gradients say what going back to zeros would cost.
# - `cudnn.benchmark` tries several algorithms at the first step of each shape (PyTorch documentation), so each new
#   shape costs time.
# - A copy to the GPU with `non_blocking` needs pinned memory to overlap with other work (PyTorch documentation, "CUDA
#   semantics").
# - Anomaly detection is a debugging tool. Our row measures only its tracebacks. By default it also looks for NaN.
#
# </details>
#
# **Takeaway** A grey row proves neither a gain nor its absence. Start with the largest share of your profile.

# %% [markdown]
# ## On which machine does advice flip?
#
# The *flip map* has a row per piece of advice and a column per machine. A cell with a frame holds what this notebook
# has measured, and the text calls it "here". Extra sections of this part and parts 2 to 4 measure most of the other
# rows.
#
# To guess which advice flips, ask which part of the step it changes, and how large that part is on the other machine.
# If a GPU makes the arithmetic shorter, data and the start of each operation take a larger share.

# %% tags=["experiment"]
flips = flip_map(claimed(), machine_name())
measured_twice = [row.advice.name for row in flips.rows if row.n_measured > 1]
print("measured on more than one machine:", "; ".join(measured_twice))

# %% [markdown]
# **Predict**: which of these win on one machine and lose on another?

# %%
# a set of names, such as {"gradient accumulation", "torch's own GELU, not a chain"}
predicted_flips = None

# %% tags=["experiment"]
print(course.score("06/1", "advice that flips", predicted_flips, set(flips.flipping), null=None))
print(flips.sentences())
map_plots.flip_map(flips)

# %% [markdown]
# Treat a flip as a question, because the machines trained networks of different sizes, and another day's run may lie
# outside an interval. The reason that is given is a guess, unless its part shows it.
#
# <details><summary>How to read the colours of the map</summary>
#
# A pale cell comes from an older record without an interval. So a ratio has a colour there only if it differs from 1 by
# a tenth or more. A difference in accuracy is the mean of a few seeds, so it stays grey there. Results of smoke scale
# are not entered.
#
# </details>
#
# The next cell holds the whole checklist and today's list: what each item promises, where it wins, and why. Open it
# when you look for an item. The same map is in [docs/flip-map.md](../../docs/flip-map.md).

# %% tags=["experiment"]
flips.checklist()

# %% [markdown]
# **Takeaway** Advice is a claim about a machine. Ask which share it changes, and measure on yours.

# %% [markdown]
# ## What should you change in your own training?
#
# Put your own `loader` and `step` into the cell, or run `course checkup train.py` in a terminal, which watches a script
# as it is. Then look at its first advice in the map: on which machine did that advice win?

# %% tags=["experiment"]
own_loader = DataLoader(in_tensors, batch_size, shuffle=True)  # your own
own_step = step  # your own
own = course.checkup(own_loader, own_step, steps=size.checkup_steps, minutes=size.checkup_minutes)
print(own.brief)

# %% [markdown]
# **Takeaway** Find the largest share, try what reduces it next to a control, and keep it only if the interval says so.

# %% [markdown]
# ## How much of your machine does a model use? · extra
#
# A *roofline* has one dot per operation of a step. The x axis is arithmetic per byte, and the y axis is arithmetic per
# second, both in floating-point operations (FLOPs). The area of a dot is the time of all calls.
#
# The roof is measured: its flat part is the best of three matrix products, its slope a large addition. The models are
# this part's network and a small GPT.

# %% tags=["experiment"]
patient = cheap_advice.Patient(new_model(), images[:batch_size], labels[:batch_size], batch_size)
models = {
    "CNN": patient.train(patient.on_device()),
    "GPT": cheap_advice.gpt_step(size.gpt, device),
}

roof = roofline.roof(size.regime_width, size.regime_numbers, device)
operations = {}
for name, model_step in models.items():
    operations[name] = roofline.operations(model_step, device)
plots.roofline(roof, operations)

# %% [markdown]
# The dotted line is the *ridge*.
#
# - Dots near the slope, left of the ridge, are memory-bound, so faster arithmetic does not help them.
# - Dots far below the roof wait for something else.
# - A dot above the slope may read its numbers from a cache.
# - A dot above the flat part is faster than the product that measured the roof, or does less arithmetic than is
#   counted.
#
# *Model FLOPs utilisation* (MFU) is one number for the whole step: the arithmetic of the model's products, divided by
# what the machine could have computed in that time. Papers take the machine's speed from its data sheet. Here it is the
# speed of a large matrix product, so our shares are higher. `clamp` has no product, so its comparisons count.
#
# The last column is the load: what `top` calls %CPU, divided by torch's threads. It says nothing about a GPU.

# %% tags=["experiment"]
ways = {"matrix product": square}
ways |= models
ways["comparing numbers"] = one_limit
arithmetic = {name: roofline.product_flops(found) for name, found in operations.items()}
arithmetic["comparing numbers"] = size.regime_numbers
arithmetic_of_product = 2 * width**3

timed = compare(ways, device=device, seconds=size.worker_seconds)
utilisation = {}
for name, flops in arithmetic.items():
    utilisation[name] = timed.ratio(name).scaled(flops / arithmetic_of_product)

if course.scale() == "smoke":
    print("at smoke scale the product is too small to reach the peak, so a share may exceed 1")
for name, share in utilisation.items():
    load = regimes.busy(ways[name])
    print(f"{name:<20} MFU {share}   load of the processor {load:.0%}")

# %% tags=["experiment"]
course.claim(
    "a training step of the small GPT reaches at least a fifth of the peak",
    utilisation["GPT"],
    above=0.2,
)
course.claim(
    "comparing many numbers reaches at most a tenth of the peak",
    utilisation["comparing numbers"],
    below=0.1,
)

# %% [markdown]
# **Shown** On a CPU, comparing numbers loads the processor as the models do, and computes far less. **Known** The
# "GPU-Util" of `nvidia-smi` is the share of the time in which *some* kernel ran (NVML's documentation). So 100 % there
# says no more than the load in this row.
#
# **Takeaway** A busy processor need not be a fast one. MFU says which share of its speed your model uses.

# %% [markdown]
# ## Which lines wait for the device? · extra
#
# One line that prints a loss can make a GPU wait. The processor runs ahead and fills the GPU's queue of operations.
# When a line needs a *number*, the processor waits until the queue is empty. Then the GPU has nothing to do. A CPU has
# no such queue, but you can count the calls that would wait on a GPU. A cell after the exercise has twelve lines: which
# of them would wait?

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
loss = x.mean()
total = torch.zeros((), device=device)
names = {"torch": torch, "x": x, "loss": loss, "total": total}


def waits_in(line):
    """List the calls in a line of code that would wait for a GPU."""
    with contextlib.redirect_stdout(io.StringIO()):  # shows nothing that the line prints
        return syncs_now(functools.partial(exec, line, dict(names)))


lines = [
    "loss.item()",
    "loss.detach()",
    "x.tolist()",
    "print(loss)",
    "f'{loss:.3f}'",
    "total = total + loss",
    "if loss > 3: pass",
    "worse = loss > 3",
    "x.cpu()",
    "x.mean(dim=0)",
    "max(loss, total)",
    "torch.maximum(loss, total)",
]

# %% tags=["experiment"]
n_waiting = 0
for line in lines:
    calls = waits_in(line)
    if calls:
        n_waiting += 1
    verdict = "waits" if calls else "no wait"
    print(f"{line:<28} {verdict:<8} {', '.join(calls)}")
print(f"{n_waiting} of {len(lines)} lines wait")

has_same_address = loss.detach().data_ptr() == loss.data_ptr()
course.claim(
    "detach() neither moves nor copies a tensor: its result has the same address",
    has_same_address and not waits_in("loss.detach()"),
)
course.claim(
    "printing a detached tensor waits for the device, exactly as printing the tensor itself",
    len(waits_in("print(loss.detach())")) == len(waits_in("print(loss)")),
)


# %%
def log_each_step(model, optimizer, batches):
    """Train, and ask for several numbers in each step; returns the mean loss."""
    total = 0.0
    best = float("inf")
    history = []
    progress = []
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
    losses = []
    hits = []
    for x, y in batches:
        logits = model(x)
        loss = F.cross_entropy(logits, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())  # detached: else the graph of each step would stay in memory
        hits.append((logits.detach().argmax(1) == y).float().mean())
    losses = torch.stack(losses)
    best = losses.cummin(0).values
    logged = torch.stack([losses, best, torch.stack(hits)]).tolist()  # one wait
    return sum(logged[0]) / len(batches)


# %% tags=["experiment"]
waits = {}
mean_losses = {}


def train_with(loop):
    """Train a new model with a loop, and keep its mean loss."""
    model = new_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    mean_losses[loop.__name__] = loop(model, optimizer, on_device)


for loop in (log_each_step, log_once):
    name = loop.__name__
    waits[name] = syncs_now(functools.partial(train_with, loop))
    kinds = ", ".join(sorted(set(waits[name])))
    print(f"{name:<14} {len(waits[name]):4d} waits in {len(on_device)} steps: {kinds}")

# %% tags=["experiment"]
n_each = len(waits["log_each_step"])
n_once = len(waits["log_once"])
waits_as_said = n_each > len(on_device) and n_once == 1
course.claim(
    "logging each step waits several times in each step, logging once waits once",
    waits_as_said,
    f"{n_each} against {n_once}",
)
difference = abs(mean_losses["log_each_step"] - mean_losses["log_once"])
is_equal = difference < 1e-3
course.claim(
    "a loop that logs once computes the same mean loss as one that logs each step",
    is_equal,
    f"they differ by {difference:.1e}",
)

# %% [markdown]
# **Takeaway** Keep detached tensors and ask for their values once, at the end.
#
# The checklist says to use `.detach()` instead of `.item()`, but the two do different things: `.detach()` leaves the
# graph, `.item()` asks for a number. On CUDA, `torch.cuda.set_sync_debug_mode("warn")` reports many real waits.

# %% [markdown]
# ## Does your evaluation change your model? · extra
#
# An evaluation may be wrong and slow without an error. We wrote the function below, and put faults into it:


# %% locked="wild_evaluate"
def wild_evaluate(model, batches, device):
    """Accuracy in percent, with faults.  Do not use it."""
    outputs_list = []
    correct = 0.0
    total = 0
    for x, y in batches:
        x = x.to(device)
        y = y.to(device)
        outputs = model(x)
        outputs_list.append(outputs)
        hits = outputs.argmax(1) == y
        for i in range(100):
            correct += hits[i].item()
            total += 1
    return 100 * correct / total


# %% [markdown]
# You can see these symptoms:
#
# - Two evaluations of the same model give different accuracies, because dropout still draws.
# - BatchNorm's running means move, although nobody trains.
# - A batch of 64 raises an IndexError, and of a batch of 128 only 100 images count.
# - Memory grows with the set.
# - Each image waits for the device.
#
# ### Exercise 4 · Fix the evaluation
#
# Write an evaluation without these symptoms. `torch.inference_mode()` goes further than `torch.no_grad()`: it also
# skips some bookkeeping, so autograd cannot save its outputs for a backward pass.
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
log_once(model, torch.optim.Adam(model.parameters()), on_device)
norm = next(layer for layer in model.modules() if isinstance(layer, nn.BatchNorm2d))
mean_before = norm.running_mean.clone()


def wild():
    """Evaluate with the faults, in percent."""
    return wild_evaluate(model, by_100, device)


def fixed():
    """Evaluate with your function, in percent."""
    return 100 * evaluate_now(model, by_100, device)


fixed_accuracies = [fixed(), fixed()]
fixed_keeps = torch.equal(mean_before, norm.running_mean)
wild_accuracies = [wild(), wild()]
moved = (norm.running_mean - mean_before).abs().max().item()
print(
    f"accuracy, twice: faulty {wild_accuracies[0]:.2f} %, {wild_accuracies[1]:.2f} %; "
    f"fixed {fixed_accuracies[0]:.2f} %, {fixed_accuracies[1]:.2f} %"
)

# %% tags=["experiment"]
only_wild_moves = moved > 0 and fixed_keeps
course.claim(
    "the faulty evaluation moves the running mean of BatchNorm, the fixed one does not",
    only_wild_moves,
    f"by up to {moved:.2g}",
)
n_wild = len(syncs_now(wild))
n_fixed = len(syncs_now(fixed))
waits_as_said = n_wild >= len(held) and n_fixed == 1
course.claim(
    "the faulty evaluation waits for the device once per image, the fixed one once",
    waits_as_said,
    f"{n_wild} against {n_fixed}",
)

# %% tags=["experiment"]
evaluations = compare_pairs({"fixed": (wild, fixed)}, device=device, seconds=size.advice_seconds)
course.claim(
    "the fixed evaluation is faster than the loop that asks for each image",
    evaluations["fixed"].ratio(CHANGED),
    above=1,
)

# %% [markdown]
# **Takeaway** Evaluate in eval mode and inference mode, count on the device, and ask for one number at the end.
#
# One more fault is not in the function. If you evaluate on the *test* images every few steps and keep the best step,
# you tune on the test set.

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
four = (lr / 4, lr, 4 * lr, 16 * lr)
settings = {  # pixels, norm, and the learning rates of which the best counts
    "both": (centred, "batch", four),
    "input only": (centred, None, four),
    "BatchNorm only": (raw, "batch", four),
    "neither": (raw, None, [lr]),
    "neither, lr / 100": (raw, None, [lr / 100]),
}

# %% tags=["experiment"]
curves = {}  # of each setting: the losses at its best learning rate, (seeds, steps)
best_lr = {}
for name, (pixels, norm, lrs) in settings.items():
    best_lr[name], curves[name] = input_scale.best_losses(
        pixels,
        data.train_labels,
        norm,
        lrs,
        steps=size.norm_steps,
        seeds=size.norm_seeds,
        device=device,
    )
plots.loss_curves(curves, "training loss, mean of the seeds")

# %% tags=["experiment"]
last_losses = {}
for name, runs in curves.items():
    last_losses[name] = input_scale.last_losses(runs).tolist()
    mean = statistics.mean(last_losses[name])
    text = "diverged"
    if mean < math.inf:
        text = f"{mean:.3f} in the last fifth of the steps"
    print(f"{name:<18} lr {best_lr[name]:<7g} {text}")

# %% tags=["experiment"]
course.claim(
    "with normalised input, BatchNorm ends with less loss than no norm",
    comparison.difference_interval(last_losses["input only"], last_losses["both"]),
    above=0,
)
course.claim(
    "with BatchNorm, normalised input ends with less loss than raw pixels",
    comparison.difference_interval(last_losses["BatchNorm only"], last_losses["both"]),
    above=0,
)
n_diverged = last_losses["neither"].count(math.inf)
all_finite = math.inf not in last_losses["neither, lr / 100"]
diverges_as_said = n_diverged > 0 and all_finite
course.claim(
    "with neither, trainings diverge at this learning rate, and none at a hundredth of it",
    diverges_as_said,
    f"{n_diverged} of {len(last_losses['neither'])} diverge",
)

# %% [markdown]
# Three of the five trainings use the best of four learning rates, because a single one might suit one training better
# than another.
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
# **Takeaway** Without BatchNorm, the scale of the input decides which learning rates work.
#
# Part 2 looks for fewer steps, part 3 for cheaper ones.
