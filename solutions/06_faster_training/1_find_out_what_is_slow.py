# %% [markdown]
# # Faster training, part 1: Find out what is slow
#
# **Which of the well-known speed-ups can help here at all, and which of the cheap ones do?**
#
# Checklists for faster training go from blog to blog: set this option, never call that method. Few of their readers
# measure. This unit takes one such list, L. Kuhn's "Faster Deep Learning Training with PyTorch"
# ([efficientdl.com](https://efficientdl.com/faster-deep-learning-in-pytorch-a-guide/)), and measures all of it, on your
# machine. Below it is "the checklist". In this part you profile a training
# run, compute what each change can gain at best, and then time every piece of advice that costs a line or two of code.
# Parts 2 to 4 take up those that need more: fewer steps, cheaper steps, less memory.
#
# **You will be able to**
#
# - read from a profile where the time of a training step goes;
# - compute the largest speed-up that a change can bring before you make it;
# - find the lines that make the processor wait for the device;
# - evaluate a model without slowing down its training or changing the model;
# - time two ways of doing the same work, and say when their difference is noise.
#
# **Minutes** 36 core · 100 in all
#
# **Needs** PyTorch: you have written a training loop
#
# Core: the sections "Where the time goes" and "What a change can gain at best", with exercises 1 and 2, and the section
# "All the cheap advice, measured". Run all cells; the other sections can be read later.


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
from course.measure.timing import DID_NOT_HELP, HELPED, NOT_DECIDED, compare_in_turn
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
# ## Where the time goes
#
# **A change can only save time where time is spent: profile before you change anything.**
#
# This part profiles the training that most people write first. Its dataset makes a tensor of one image after the other,
# a `DataLoader` with default options collects them, and each step goes through five phases: get the *data*, *transfer*
# it to the device, *forward*, *backward*, *optimizer*.
#
# **Predict**: which share of the time does each phase of this training take on your machine? Numbers from 0 to 1.

# %%
my_guess_of_shares = {"data": None, "transfer": None, "forward": None, "backward": None, "optimizer": None}

# %% [markdown]
# ### Exercise 1 · Shares of a profile
#
# A profiler gives a list of events: what ran, from when to when. Labels such as "forward" are events, too; the
# operations inside are events of their own. Compute the share of each phase.
#
# **Must**
# - return a dict: each phase to its share, 0 if it never ran, and `"other"` to the rest;
# - take shares of the time from the earliest start of a phase to the latest end of one.
#
# **You may assume** that phases do not overlap, and that at least one of them ran.
#
# **Points** 3 · **Core** · **Difficulty** ●●○ · **Minutes** 12 · **Lines** 6
#
# **Convention** Events come in any order; a phase may run many times; what is no phase is ignored.
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
# The cell profiles two trainings that differ in one thing. The first makes its images one by one. The second has all
# of them in memory as one tensor, and its `DataLoader` takes rows of it. On CUDA each phase ends with a
# synchronisation, because a kernel runs long after the line that asked for it; without it, the profile would show when
# work was *ordered*.

# %% tags=["experiment"]
PHASES = ("data", "transfer", "forward", "backward", "optimizer")
shares_now = course.solved(check.where_time_goes)
batch_size = size.cheap_batch
few = size.cheap_steps * batch_size  # images of one run


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
print(f"{'':<10}", "   ".join(shares), "(your guesses: images one by one)")
for name in PHASES:
    row = "   ".join(f"{100 * found[name]:15.1f} %" for found in shares.values())
    print(f"{name:<10} {row}" + reveal(my_guess_of_shares[name], "{:.0%}"))
by_image, by_tensor = shares["images one by one"]["data"], shares["tensors in memory"]["data"]
course.claim("with images made one by one, getting the data takes a larger share than with tensors in memory",
             by_image > by_tensor, f"{100 * by_image:.1f} % against {100 * by_tensor:.1f} %")  # fmt: skip
found = shares["tensors in memory"]
network = found["forward"] + found["backward"]
course.claim("forward and backward together take more than three quarters of the time when the data are in memory",
             network > 0.75, f"{100 * network:.0f} %",
             otherwise="Look at the share of the update: with so small a model Adam takes a large part of the step "
                       "(part 3).")  # fmt: skip
times = found["backward"] / found["forward"]
course.claim(
    "backward takes about twice as long as forward",
    1.5 < times < 2.5,
    f"{times:.2f} times",
    otherwise="Look in the cell's list how much of the time goes to operations other than matrix products.",
)
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
# "Backward takes twice as long as forward" is a rule of thumb: for each product in forward, backward computes two, the
# gradient of the input and that of the weights. The rule counts products only: pooling and BatchNorm are none, and the
# first layer needs no gradient of its input. (Names with "backward" belong to the backward pass; `mm` to both.)
#
# Open the trace in Perfetto (it stays on your machine). Each label is a bar with its operations below it. Look for
# gaps: there nothing runs.

# %% [markdown]
# ## What a change can gain at best
#
# **If a phase takes a share of the time, nothing that you do to this phase makes the whole faster than
# 1 / (1 - share).**
#
# ### Exercise 2 · The bound
#
# A phase takes `share` of the time, and a change makes it `factor` times as fast. Compute how many times as fast the
# whole gets, and how many times at best, whatever the factor.
#
# **Must** return (overall, best), two floats; `math.inf` where nothing bounds it.
#
# **Raises** ValueError for a share outside 0 to 1, or a factor that is not above 0.
#
# **Points** 2 · **Core** · **Difficulty** ●○○ · **Minutes** 6 · **Lines** 4
#
# **Convention** A factor below 1 means that the phase gets slower. An infinite factor never comes with a share of 1.
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

# %% [markdown]
# The best that advice about one phase can do here, computed from your profile before anything is changed:

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
             otherwise="Your device computes so fast that it waits for data: see unit 01.")  # fmt: skip

# %% [markdown]
# The law assumes that phases follow one another. Workers and streams run phases *at the same time*; even then the time
# cannot fall below 1 - share, because the other phases still take as long as before.

# %% [markdown]
# ## What waits for the device
#
# **A line that needs a value on the processor waits until the device has computed it.**
#
# A GPU works through a queue of operations. The processor adds to it and runs ahead, until a line needs a *number*.
# Then the processor waits until the queue is done, and adds nothing meanwhile. On the CPU nothing is queued, so nothing
# waits; but the calls that would wait on a GPU can be counted.
#
# **Predict**: which of these lines would wait for a GPU? `loss` is a tensor of one number, `x` one of many. True or
# False.

# %%
my_guess_of_waits = {
    "loss.item()": None,
    "loss.detach()": None,
    "print(loss)": None,
    "f'{loss:.3f}'": None,
    "total = total + loss": None,
    "if loss > 3: pass": None,
    "worse = loss > 3": None,
    "x.cpu()": None,
    "x.mean(dim=0)": None,
    "max(loss, total)": None,
    "torch.maximum(loss, total)": None,
    "np.asarray(x.cpu())": None,
}

# %% [markdown]
# ### Exercise 3 · Count hidden waits
#
# Run `call()` once and list the calls in it that need a value of a tensor. With a `TorchFunctionMode`, torch tells you
# of every function and method of a tensor that is called.
#
# **Must**
# - return the list of names, in order: every call whose name is in `waits` (given);
# - leave what `call` computes as it is, and let its exceptions pass.
#
# **You may assume** that all tensors in `call` lie on the device, so that each of these calls waits.
#
# **Points** 4 · **Extra** · **Difficulty** ●●○ · **Minutes** 12 · **Lines** 8
#
# **Convention** The name is `func.__name__`. Calls that torch makes inside such a call do not count; the mode does not
# see them.
#
# **Source** `torch.overrides.TorchFunctionMode` in the PyTorch documentation, "Extending PyTorch".
#
# <details><summary>Hint 1</summary>
#
# A mode is a class with `__torch_function__(self, func, types, args=(), kwargs=None)`. What must this method do, apart
# from noting, so that the call goes on as without it?
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

# %% [markdown]
# Your counter answers the prediction. Then it looks at a loop that logs as many loops do, and at the advice of the
# checklist: `.item()` and `.numpy()` are expensive, "use `.detach()` instead".

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
right = 0
for line, guess in my_guess_of_waits.items():
    found = syncs_now(calls[line])
    right += guess is bool(found)
    print(f"{line:<28} {'waits' if found else 'no wait':<8} {', '.join(found):<14}" + reveal(guess))
if any(guess is not None for guess in my_guess_of_waits.values()):
    print(f"{right} of {len(my_guess_of_waits)} predicted right")
course.claim("detach() moves nothing and copies nothing: its result lies where the tensor lies",
             loss.detach().data_ptr() == loss.data_ptr() and not syncs_now(lambda: loss.detach()))  # fmt: skip
course.claim("printing the detached tensor waits for the device, exactly as printing the tensor itself",
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


chosen = torch.randperm(few, generator=torch.Generator().manual_seed(1)).split(batch_size)
on_device = [(images[rows].to(device), labels[rows].to(device)) for rows in chosen]
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
course.claim("both loops compute the same mean loss", apart < 1e-3, f"they differ by {apart:.1e}")

# %% [markdown]
# So the advice is wrong as it stands: `.detach()` cannot replace `.item()`. It returns a tensor in the same memory, on
# the same device, outside the graph. What helps is to ask later: keep detached tensors, and ask once, at the end.
# Without `.detach()`, each loss that you keep also keeps the graph of its step in memory.
#
# The counter sees calls in Python, not waits. It counts too many: after `.cpu()`, `.numpy()` has nothing left to wait
# for. It also misses some, such as the one in `x[mask]`, whose shape depends on values. On CUDA,
# `torch.cuda.set_sync_debug_mode("warn")` reports real waits. The table below measures what `.item()` costs; on the
# CPU, expect nothing.

# %% [markdown]
# ## Evaluation that leaves the training alone
#
# **Evaluate in eval mode, in inference mode, count on the device, and ask for one number at the end.**
#
# `torch.inference_mode()` is `torch.no_grad()` and more: autograd records nothing, and its results can never become
# part of a graph, so torch saves the bookkeeping as well.
#
# The exercise of DTU's course on machine learning operations (`fashion_trainer.py` in its module on scalable
# applications) trains on Fashion-MNIST and evaluates in two loops, every 50 steps and at the end. Rebuilt as one
# function, it does this:


# %% locked="wild_evaluate"
def wild_evaluate(model, batches, device):
    """Accuracy in percent, as found in the wild.  Do not use it."""
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
# What anyone who uses it will see:
#
# - Two evaluations of the same model, one after the other, give different accuracies.
# - After an evaluation the model is another one: BatchNorm's running means have moved, although nobody trained.
# - With batches of 64 it stops with an IndexError; of a batch of 128 it counts only 100 images.
# - Its memory grows with the set, and it waits for the device once per image.
#
# ### Exercise 4 · Mend the evaluation
#
# Write an evaluation without these faults.
#
# **Must**
# - return the share of all samples whose largest logit is at their label, a Python float;
# - run the model in eval mode and in `torch.inference_mode()`, one forward pass per batch;
# - return with the model in the mode that it was in;
# - wait for the device once, at the end, and keep no outputs of earlier batches.
#
# **You may assume** that all parts of the model are in the same mode, and that there is at least one batch.
#
# **Points** 4 · **Extra** · **Difficulty** ●●○ · **Minutes** 14 · **Lines** 9
#
# **Convention** Batches may differ in size, may be a generator, and may be on any device.
#
# **Source** fashion_trainer.py of SkafteNicki/dtu_mlops (after a notebook on Kaggle), whose loops these are.
#
# <details><summary>Hint 1</summary>
#
# Each report has one cause. Which line would you have to change for each of them?
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
held = TensorDataset(held_images[: size.eval_images], held_labels[: size.eval_images])
by_100 = DataLoader(held, 100)  # the only batch size that the published loop can do
model = new_model()
log_once(model, torch.optim.Adam(model.parameters()), on_device)
norms = [m for m in model.modules() if isinstance(m, nn.BatchNorm2d)]
before = norms[0].running_mean.clone()
mended = [100 * evaluate_now(model, by_100, device) for _ in range(2)]
kept = torch.equal(before, norms[0].running_mean)
published = [wild_evaluate(model, by_100, device) for _ in range(2)]
moved = (norms[0].running_mean - before).abs().max().item()
print(f"accuracy, twice: published {published[0]:.2f} %, {published[1]:.2f} %; "
      f"mended {mended[0]:.2f} %, {mended[1]:.2f} %")  # fmt: skip
course.claim("the published evaluation moves the running mean of BatchNorm, the fixed one does not",
             moved > 0 and kept, f"by up to {moved:.2g}")  # fmt: skip
parts = list(by_100)  # a DataLoader asks for a random number of its own, on the processor
n_waits = [len(syncs_now(lambda f=f: f(model, parts, device))) for f in (wild_evaluate, evaluate_now)]
course.claim("the published evaluation waits for the device once per image, the fixed one once",
             n_waits[0] >= len(held) and n_waits[1] == 1, f"{n_waits[0]} against {n_waits[1]}")  # fmt: skip

# %% [markdown]
# The published loop has one more fault: it evaluates on the *test* images, every 50 steps. Picking the best step then
# means tuning on the test set. Here a sixth of the training images is held back to validate on.

# %% [markdown]
# ## What is copied
#
# **A conversion that shares memory costs next to nothing; one that copies reads and writes every value.**
#
# **Predict**: does the result share memory with `a` (an array of float64) or `t` (a tensor of float32)? True or False.

# %%
my_guess_of_sharing = {
    "torch.tensor(a)": None,
    "torch.as_tensor(a)": None,
    "torch.from_numpy(a)": None,
    "torch.as_tensor(a, dtype=torch.float32)": None,
    "t.numpy()": None,
    "t.detach()": None,
    "t.clone()": None,
    "t.to(torch.float32)": None,
    "t.to(torch.float64)": None,
    "t[1:]": None,
    "t.T.contiguous()": None,
}

# %% [markdown]
# ### Exercise 5 · Shared or copied
#
# Find out by experiment whether `convert(source)` shares memory with `source`.
#
# **Must**
# - return a bool: whether a write to the result shows in `source`;
# - call `convert` once, and leave `source` with the values that it had.
#
# **You may assume** that both are NumPy arrays or tensors without gradients, and hold small whole numbers.
#
# **Not allowed** `numpy.shares_memory` and `numpy.may_share_memory`.
#
# **Points** 2 · **Extra** · **Difficulty** ●●○ · **Minutes** 12 · **Lines** 6
#
# **Convention** One shared value is enough, since the result may be a part of `source`. The result may lie on another
# device; then nothing is shared.
#
# **Source** `torch.as_tensor` and `torch.from_numpy` in the PyTorch documentation.
#
# <details><summary>Hint 1</summary>
#
# Why does it not suffice to compare the addresses of the first values?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Keep a copy of `source` (`.copy()` of an array, `.clone()` of a tensor). Change the result in place:
# `made[...] = made + 1`. Compare, then write the copy back with `source[...] = before`.
#
# </details>


# %% solution="shares_memory"
def shares_memory(convert, source):
    """Whether `convert(source)` shares memory with `source`.

    Args:
        convert: function of an array or a tensor that gives an array or a tensor.
        source: NumPy array or tensor; its values are the same afterwards.

    Returns: bool.
    """
    ### BEGIN SOLUTION
    made = convert(source)
    before = source.copy() if isinstance(source, np.ndarray) else source.clone()
    made[...] = made + 1
    shared = bool((source != before).any())
    source[...] = before
    return shared
    ### END SOLUTION


# %% test="shares_memory-visible" points=1
check.shares_memory(shares_memory)

# %% test="shares_memory-hidden" points=1
### BEGIN HIDDEN TESTS
check.shares_memory(shares_memory, seed=6)
### END HIDDEN TESTS

# %% tags=["experiment"]
shares_memory_now = course.solved(check.shares_memory)
a, t = np.arange(6.0).reshape(2, 3), torch.arange(6.0).view(2, 3)
conversions = {
    "torch.tensor(a)": (torch.tensor, a),
    "torch.as_tensor(a)": (torch.as_tensor, a),
    "torch.from_numpy(a)": (torch.from_numpy, a),
    "torch.as_tensor(a, dtype=torch.float32)": (lambda a: torch.as_tensor(a, dtype=torch.float32), a),
    "t.numpy()": (torch.Tensor.numpy, t),
    "t.detach()": (torch.Tensor.detach, t),
    "t.clone()": (torch.clone, t),
    "t.to(torch.float32)": (lambda t: t.to(torch.float32), t),
    "t.to(torch.float64)": (lambda t: t.to(torch.float64), t),
    "t[1:]": (lambda t: t[1:], t),
    "t.T.contiguous()": (lambda t: t.T.contiguous(), t),
}
right = 0
for line, guess in my_guess_of_sharing.items():
    found = shares_memory_now(*conversions[line])
    right += guess is found
    print(f"{line:<42} {'shares' if found else 'copies':<8}" + reveal(guess))
if any(guess is not None for guess in my_guess_of_sharing.values()):
    print(f"{right} of {len(my_guess_of_sharing)} predicted right")

# %% [markdown]
# ## None or zero
#
# **A gradient of None is not a gradient of zero: some optimizers do different things with them.**
#
# The checklist advises `zero_grad(set_to_none=True)`, for speed. It has been the default since PyTorch 2.0. But it can
# change the result.
#
# **Predict**: a parameter had one ordinary step. In the next its gradient is zero. Which of these optimizers move it:
# SGD, SGD with momentum, SGD with weight decay, Adam, AdamW, RMSprop? True or False. And how many of the six move it if
# the gradient is None?

# %%
my_guess_of_movers = {
    "SGD": None, "SGD, momentum": None, "SGD, weight decay": None, "Adam": None, "AdamW": None, "RMSprop": None
}  # fmt: skip
my_guess_of_movers_with_none = None  # a number

# %% [markdown]
# ### Exercise 6 · What the optimizer does with it
#
# Find out by experiment whether an optimizer moves a parameter in a step after its gradient was cleared.
#
# **Must** return `{"zero": bool, "none": bool}`: whether the parameter moves in a step with a gradient of zeros, and in
# one with None. Before that step comes one with an ordinary gradient.
#
# **Points** 3 · **Extra** · **Difficulty** ●●○ · **Minutes** 10 · **Lines** 10
#
# **Convention** `make(parameters)` gives an optimizer. Each case has an optimizer and a parameter of its own.
#
# **Source** `torch.optim.Optimizer.zero_grad` in the PyTorch documentation, which says that the two differ.
#
# <details><summary>Hint 1</summary>
#
# Momentum is nothing before the first step, and weight decay does nothing to a parameter that is 0. What does your
# experiment have to begin with?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# For each case: a `nn.Parameter(torch.ones(1))`, its optimizer, `p.grad = torch.ones(1)`, a step, a copy of its value,
# the new `p.grad`, a step, a comparison.
#
# </details>


# %% solution="cleared"
def cleared(make):
    """Whether an optimizer moves a parameter in a step with a cleared gradient.

    Args:
        make: function of a list of parameters that gives an optimizer.

    Returns: {"zero": bool, "none": bool}.
    """
    ### BEGIN SOLUTION
    moved = {}
    for case, gradient in (("zero", torch.zeros(1)), ("none", None)):
        parameter = nn.Parameter(torch.ones(1))
        optimizer = make([parameter])
        parameter.grad = torch.ones(1)
        optimizer.step()
        before = parameter.detach().clone()
        parameter.grad = gradient
        optimizer.step()
        moved[case] = not torch.equal(parameter.detach(), before)
    return moved
    ### END SOLUTION


# %% test="cleared-visible" points=2
check.cleared(cleared)

# %% test="cleared-hidden" points=1
### BEGIN HIDDEN TESTS
check.cleared(cleared, seed=9)
### END HIDDEN TESTS

# %% tags=["experiment"]
cleared_now = course.solved(check.cleared)
makers = {
    "SGD": lambda p: torch.optim.SGD(p, lr=0.1),
    "SGD, momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "SGD, weight decay": lambda p: torch.optim.SGD(p, lr=0.1, weight_decay=0.01),
    "Adam": lambda p: torch.optim.Adam(p),
    "AdamW": lambda p: torch.optim.AdamW(p),
    "RMSprop": lambda p: torch.optim.RMSprop(p),
}
movers = {name: cleared_now(make) for name, make in makers.items()}
for name, found in movers.items():
    words = {case: "moves" if moves else "stays" for case, moves in found.items()}
    guess = {None: None, True: "moves", False: "stays"}.get(my_guess_of_movers[name], my_guess_of_movers[name])
    print(f"{name:<18} None: {words['none']}   zero: {words['zero']}" + reveal(guess))
n_none = sum(found["none"] for found in movers.values())
print(f"moved by a gradient of None: {n_none} of {len(movers)}" + reveal(my_guess_of_movers_with_none))
course.claim(
    "with grad = None no optimizer here moves the parameter", not any(found["none"] for found in movers.values())
)
course.claim("with a gradient of zero, the optimizers with momentum or weight decay move the parameter, the others "
             "do not",
             [name for name, found in movers.items() if found["zero"]] == [*makers][1:5])  # fmt: skip

# %% [markdown]
# An optimizer skips a parameter whose gradient is None. With a gradient of zero, old momentum or weight decay still
# moves it. In a training where every parameter gets a gradient in every step, the two are the same. They differ where a
# part of the model takes no part in some steps: a head per task, an expert that no token chose, a frozen layer. With
# zeros, Adam pushes such a part on along its old gradients.

# %% [markdown]
# ## All the cheap advice, measured
#
# **A gain counts only if it is larger than the noise of a row in which nothing changed.**
#
# Each row compares the work with and without one piece of advice. Both run in each round, and the one that begins
# alternates. The table gives the median ratio of the rounds, with the quartiles in brackets. The first row, the
# *control*, times the usual training against itself: how far its quartiles are from 1 is the noise of your machine.
#
# - A piece of advice *helped* if the lower quartile of its row is above 1 + noise and above 1.02.
# - It *did not help* if the upper quartile is at most 1.02.
# - In between, this measurement does *not decide*: the noise is larger than the effect could be.
#
# What needs CUDA says so.
#
# **Predict**: how many times as fast does a piece of advice make the work that it is about? 1 for no difference. Choose
# four rows that you would bet on, and leave the others None.

# %%
my_guess_of_ratios = {
    "nothing changed": None,
    "2 workers, tensors in memory": None,
    "2 workers, images one by one": None,
    "slices instead of a DataLoader": None,
    "as_tensor instead of tensor": None,
    "normalised once, not per batch": None,
    "gradients None instead of 0": None,
    "no .item() in the steps": None,
    "no anomaly detection": None,
    "no_grad in validation": None,
    "inference_mode instead of no_grad": None,
    "the published evaluation, mended": None,
    "validated once, not every 2 steps": None,
    "pin_memory": None,
    "pin_memory and non_blocking": None,
    "created on the device": None,
    "cudnn.benchmark": None,
}

# %% tags=["experiment"]
array, targets, flat = images[:few].numpy(), labels[:few].numpy(), data.train_images[:few]
model = new_model()
optimizer = torch.optim.Adam(model.parameters())
val_loader = DataLoader(held, 100)


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


def normalised_per_batch():
    """Batches that are normalised when they are needed."""
    rows = torch.randperm(few).split(batch_size)
    return ((fashion.floats(flat[r]), labels[r]) for r in rows)


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
    seen = []

    def each(loss):
        seen.append(None)
        if len(seen) % n == 0:
            evaluate_now(model, val_loader, device)

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
at_once = {"device": device}
pairs = {
    "nothing changed": (usual, training(on_device)),
    "2 workers, tensors in memory": (training(from_memory), training(forked(in_memory, batch_size, 2, shuffle=True))),
    "2 workers, images one by one": (training(DataLoader(one_by_one, batch_size, shuffle=True)),
                                     training(forked(one_by_one, batch_size, 2, shuffle=True))),
    "slices instead of a DataLoader": (training(from_memory), training(slices)),
    "as_tensor instead of tensor": (training(from_arrays(torch.tensor)), training(from_arrays(torch.as_tensor))),
    "normalised once, not per batch": (training(normalised_per_batch), training(slices)),
    "gradients None instead of 0": (training(on_device, to_none=False), usual),
    "no .item() in the steps": (training(on_device, each=lambda loss: loss.item()), usual),
    "no anomaly detection": (with_anomaly_detection, usual),
    "no_grad in validation": (validation(contextlib.nullcontext), validation(torch.no_grad)),
    "inference_mode instead of no_grad": (validation(torch.no_grad), validation(torch.inference_mode)),
    "the published evaluation, mended": (lambda: wild_evaluate(model, by_100, device),
                                         lambda: evaluate_now(model, by_100, device)),
    "validated once, not every 2 steps": (validated_every(2), validated_every(len(on_device))),
    "pin_memory": (training(from_memory), training(pinned)) if on_cuda else needs,
    "pin_memory and non_blocking": (training(from_memory), training(pinned, non_blocking=True)) if on_cuda else needs,
    "created on the device": (lambda: [torch.zeros(batch_size, 1, 28, 28).to(device) for _ in range(100)],
                              lambda: [torch.zeros(batch_size, 1, 28, 28, **at_once) for _ in range(100)],
                              ) if on_cuda else needs,
    "cudnn.benchmark": (benchmarked(False), benchmarked(True)) if on_cuda else needs,
}  # fmt: skip
compared = compare_in_turn(pairs, size.cheap_rounds, device, control="nothing changed")
print(course.machine())
noise = compared["nothing changed"].noise
plots.advice_ratios(compared, "speed-up of the work that the advice is about", "nothing changed", noise)

# %% tags=["experiment"]
control = compared.pop("nothing changed")
print(f"{'nothing changed':<34} {control}".replace(control.verdict, f"control: noise {100 * control.noise:.0f} %")
      + reveal(my_guess_of_ratios["nothing changed"]))  # fmt: skip
for name, found in compared.items():
    print(f"{name:<34} {found}" + reveal(my_guess_of_ratios[name]))
verdicts = {name: found.verdict for name, found in compared.items()}
course.claim("the table of cheap advice can tell gains of more than 10 % from noise", control.noise < 0.1,
             f"the control lies between {control.spread[0]:.2f} and {control.spread[1]:.2f}")  # fmt: skip
helps = compared["2 workers, tensors in memory"].helped
course.claim("workers do not help where the data are tensors in memory", None if helps is None else not helps,
             f"{compared['2 workers, tensors in memory'].ratio:.2f} times as fast")  # fmt: skip
course.claim("leaving anomaly detection off helps", compared["no anomaly detection"].helped,
             f"{compared['no anomaly detection'].ratio:.2f} times as fast")  # fmt: skip
course.claim("validating once instead of every 2 steps helps",
             compared["validated once, not every 2 steps"].helped,
             f"{compared['validated once, not every 2 steps'].ratio:.2f} times as fast")  # fmt: skip
gained, low = compared["slices instead of a DataLoader"].ratio, compared["slices instead of a DataLoader"].spread[0]
course.claim("slices do not gain more than the bound from the profile, within the noise",
             low <= best_loading * (1 + control.noise),
             f"{gained:.3f}, lower quartile {low:.3f}, against at most {best_loading:.3f}")  # fmt: skip
for verdict in (HELPED, DID_NOT_HELP, NOT_DECIDED):
    print(f"\n{verdict}:", *([name for name in verdicts if verdicts[name] == verdict] or ["none"]), sep="\n- ")

# %% [markdown]
# What did not help is as much a result as what did. "Not decided" is none: on a machine with other work the noise is
# larger than what these changes are worth, and only more rounds or a quieter machine would tell. No number here says
# how a longer training would do: a row is a pass over a few batches.
#
# - **Workers** can at best hide the share that the profile gave to the data. They also cost something: batches travel
#   between processes, and on a CPU the workers use the cores that train. Unit 01 measures when they help.
# - **None instead of 0** is the default since PyTorch 2.0: whatever it gains here, you have it without asking.
# - **`.item()`** has nothing to wait for on a CPU, which finishes each line before it begins the next.
# - **Pinned memory, `non_blocking`, creating tensors on the device, cudnn's benchmark** are about a GPU, and unit 01,
#   part 5, is about the first two.
# - **Anomaly detection** and **validation** are extra work. Do them only when you need them.
#
# The rest of the checklist, and where this course measures it:
#
# | advice | where |
# |---|---|
# | another learning-rate schedule: cyclic, one-cycle; the range test | part 2 |
# | the largest batch; scale the learning rate with it | part 2, unit 03 |
# | AdamW instead of Adam; gradient clipping | part 2 |
# | automatic mixed precision | part 3, unit 03 (part 4) |
# | fuse point-wise operations; no bias before BatchNorm | part 3 |
# | activation checkpointing; gradient accumulation | part 4, unit 03 (part 4), unit 02 (part 4) |
# | DistributedDataParallel instead of DataParallel | unit 02 |
# | workers, pinned memory | this part, unit 01 |
# | normalise inputs and use BatchNorm | the next section |

# %% [markdown]
# ## Normalisation: fewer steps, not faster ones
#
# **Normalised input and BatchNorm are meant to save steps. Neither is meant to make a step cheaper.**
#
# **Predict**: the same training with and without normalised input (else pixels from 0 to 255), with and without
# BatchNorm. Which of the four has the lowest loss after the same number of steps, and which the highest?

# %%
my_guess_of_the_lowest, my_guess_of_the_highest = None, None  # "both", "input only", "BatchNorm only", "neither"

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
        rows = torch.randint(len(pixels), (64,), generator=rng)
        loss = F.cross_entropy(net(pixels[rows].to(device)), data.train_labels[rows].to(device))
        own.zero_grad()
        loss.backward()
        own.step()
        found.append(loss.detach())
    return torch.stack(found).cpu().nan_to_num(nan=float("inf"))


curves = {name: torch.stack([losses_of(*setting, size.norm_steps, seed) for seed in range(size.norm_seeds)])
          for name, setting in settings.items()}  # fmt: skip
per_step = compare_in_turn({"without BatchNorm": (lambda: losses_of(centred, "batch", lr, size.cheap_steps),
                                                  lambda: losses_of(centred, None, lr, size.cheap_steps))},
                           size.cheap_rounds, device, progress=False)["without BatchNorm"]  # fmt: skip
plots.loss_curves(curves, "loss of the training batch")

# %% tags=["experiment"]
last = {name: runs[:, -max(1, size.norm_steps // 5) :].mean().item() for name, runs in curves.items()}
for name, value in sorted(last.items(), key=lambda item: item[1]):
    print(f"{name:<18}", f"{value:.3f} in the last fifth of the steps" if value < float("inf") else "diverged")
four = [*settings][:4]
ends = {name: runs[:, -max(1, size.norm_steps // 5) :].mean(1) for name, runs in curves.items()}  # of each seed
spread = max((float(own.max() - own.min()) for own in ends.values() if own.isfinite().all()), default=0.0)
print(f"seeds differ by up to {spread:.2f}")
ranked = {name: last[name] for name in four}
print("lowest of the four: " + reveal_leader(my_guess_of_the_lowest, leaders(ranked, spread)))
print("highest of the four: " + reveal_leader(my_guess_of_the_highest, leaders(ranked, spread, most=True)))
otherwise = "Compare the difference with the spread of the seeds before you believe it: these are few steps."
course.claim("with normalised input and BatchNorm the loss is lower than with neither", last["both"] < last["neither"],
             f"{last['both']:.2f} against {last['neither']:.2f}", otherwise=otherwise)  # fmt: skip
course.claim("BatchNorm lowers the loss after these steps also where the input is normalised",
             last["both"] < last["input only"], f"{last['both']:.2f} against {last['input only']:.2f}",
             otherwise=otherwise)  # fmt: skip
course.claim("with BatchNorm, input that is not normalised ends within 10 % of normalised input",
             abs(last["BatchNorm only"] / last["both"] - 1) < 0.1,
             f"{last['BatchNorm only']:.2f} against {last['both']:.2f}", otherwise=otherwise)  # fmt: skip
course.claim("with neither, a hundredth of the learning rate ends lower than this learning rate",
             last["neither, lr / 100"] < last["neither"],
             f"{last['neither, lr / 100']:.2f} against {last['neither']:.2f}", otherwise=otherwise)  # fmt: skip
course.claim("a step without BatchNorm is faster", per_step.helped, f"{per_step.ratio:.2f} times as fast")

# %% [markdown]
# BatchNorm divides by the deviation of what it is given, so it takes the scale of the input out of what the next layer
# sees. Without it, raw pixels make the first gradients far larger, and a learning rate that fits normalised input is
# too large for them.

# %% [markdown]
# ## What to take with you
#
# - Profile first. A phase that takes 3 % of the time can save you 3 % at most, whatever the advice says.
# - Ask the device for numbers once, at the end. `.detach()` neither asks for a number nor moves anything.
# - Evaluation has a mode of its own, and should leave no trace in the model.
# - Time pairs, in turns, beside a control in which nothing changes; say "did not help here" when it did not, and
#   "not decided" when the noise is larger than the effect.
#
# Part 2 looks for fewer steps, part 3 for cheaper ones.
