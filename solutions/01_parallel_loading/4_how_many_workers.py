# %% [markdown]
# # Parallel loading, part 4: Choose the number of workers
#
# **How many workers, before you have tried them all?**
#
# A loader is a pipeline: workers build batches, the main process receives them, a device computes on them. You write
# down what the slowest stage does to the whole, measure *one* worker and what your cores do at once, and predict the
# time for every other number of workers. Nothing is fitted, so the prediction can fail; the measurements show where it
# does.
#
# **You will be able to**
#
# - say which stage of a loader sets the pace, and what more workers can change about it;
# - predict the speed of many workers from a measurement of one;
# - look for a step to leave out before adding a process.
#
# **Minutes** 18 core · 60 in all
#
# **Needs** parts 1 and 2: `LFWDataset`, `heavy_transform`, `seconds_per_pass` and `sweep` are taken over if you
# solved them

# %% locked="setup"
import math
import time
import warnings

import torch
from torch.utils.data import Dataset
from torchvision import transforms
from torchvision.io import ImageReadMode, decode_jpeg, read_file
from torchvision.transforms import v2

import course
from course.checks import parallel_loading as check
from course.datasets import lfw
from course.learner.predictions import reveal
from course.loading import loaders
from course.measure import timing, usage
from course.plots import parallel_loading as plots

warnings.filterwarnings("ignore", "This DataLoader will create")  # more workers than cores: we try that on purpose
print(course.machine())

# %% [markdown]
# ## The slowest stage
#
# **A loader is a pipeline of stages that work at the same time, on different batches.**
#
# **Predict**: workers that sleep 20 ms per batch, a loop that sleeps 10 ms per batch. How many ms does a batch take
# with one worker, and with two?

# %%
predicted_ms_one, predicted_ms_two = None, None  # your numbers

# %% [markdown]
# Building a batch takes one worker $a$ seconds, so $w$ workers finish one every $a / w$ seconds. The main process
# spends $c$ seconds per batch: it unpacks the message, maps the shared memory, runs your loop, and frees the batch. A
# device needs `step` seconds to train on it. These three work at the same time, on different batches.
#
# What they may share are cores. If workers and main process compute, each batch is $a + c$ seconds of work, and a
# machine with $n$ cores does at most $n$ seconds of work per second. So a batch takes at least
#
# $$T(w) = \max\left(\frac{a}{w},\; c,\; \frac{a + c}{n},\; \text{step}\right), \qquad w \ge 1$$
#
# With 0 workers nothing runs at once: the main process builds, receives and computes in turn. That time is measured.
#
# ### Exercise 1 · The pipeline's time
#
# Compute $T(w)$ for several numbers of workers at once.
#
# **Must**
# - follow the formula above;
# - return a float64 tensor, also for a list of whole numbers and for a float32 tensor;
# - take `cores=math.inf`, which stands for work that needs no core.
#
# **You may assume** that every number of workers is at least 1.
#
# **Points** 2 · **Core** · **Difficulty** ●○○ · **Minutes** 10 · **Lines** 2
#
# **Source** Hennessy and Patterson, "Computer Architecture", the chapter on pipelining: throughput is set by the
# slowest stage. The term for shared cores is ours.
#
# <details><summary>Hint 1</summary>
#
# Which of the four times does another worker make shorter?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `torch.as_tensor(workers, dtype=torch.float64)` takes lists and tensors; `tensor.clamp(min=number)` is the larger of
# the two, and Python's `max` takes three numbers.
#
# </details>


# %% solution="predict_seconds"
def predict_seconds(workers, a, c, cores, step=0.0):
    """Seconds per batch that the pipeline takes with each number of workers.

    Args:
        workers: list of whole numbers or tensor (n,) of any dtype; every value is at least 1.
        a: seconds that one worker needs to build a batch.
        c: seconds that the main process needs per batch.
        cores: cores that they share; math.inf if their work needs no core.
        step: seconds that the device computes per batch.

    Returns: float64 tensor (n,), on the device of `workers` if that is a tensor, else on the CPU.
    """
    ### BEGIN SOLUTION
    workers = torch.as_tensor(workers, dtype=torch.float64)
    return (a / workers).clamp(min=max(c, (a + c) / cores, step))
    ### END SOLUTION


# %% test="predict_seconds-visible" points=1
check.predict_seconds(predict_seconds)

# %% test="predict_seconds-hidden" points=1
### BEGIN HIDDEN TESTS
check.predict_seconds(predict_seconds, seed=1967)
### END HIDDEN TESTS


# %% tags=["experiment"]
class Sleeping(Dataset):
    """Items that take `seconds` of waiting and no computing."""

    def __init__(self, n, seconds):
        self.n, self.seconds = n, seconds

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        time.sleep(self.seconds)
        return i


def ms_per_batch(n_workers, build, loop, n_batches=24):
    """Milliseconds per batch, the wait for the first one left out, of a loop that sleeps `loop` seconds per batch."""
    batches = iter(loaders.forked(Sleeping(n_batches + 1, build), 1, n_workers))
    next(batches)
    begin = time.perf_counter()
    for _ in batches:
        time.sleep(loop)
    return 1000 * (time.perf_counter() - begin) / n_batches


predict_now = course.solved(check.predict_seconds)
build, loop, tried = 0.02, 0.01, [1, 2, 4]
slept = {w: ms_per_batch(w, build, loop) for w in tried}
pipeline = dict(zip(tried, (1000 * predict_now(tried, build, loop, math.inf)).tolist(), strict=True))
added = {w: 1000 * (build / w + loop) for w in tried}
said = {1: predicted_ms_one, 2: predicted_ms_two}
for w in tried:
    terms = f"{slept[w]:.1f} ms; pipeline {pipeline[w]:.1f}, sum {added[w]:.1f}"
    print(f"{timing.counted(w, 'worker')}: {terms}" + reveal(said.get(w)))
course.claim(
    "a batch takes the longest of the times, not their sum",
    all(abs(slept[w] - pipeline[w]) < abs(slept[w] - added[w]) for w in (1, 2)),
    f"{slept[1]:.1f} and {slept[2]:.1f} ms with 1 and 2 workers",
    otherwise="The machine was so busy that a sleep of 10 ms took far longer.",
)

# %% [markdown]
# The loop sleeps while the worker builds the next batch, so one worker delivers every 20 ms, and the second one hides
# behind the loop's 10 ms. From there on more workers change nothing. A model that adds, such as $a / w + c$, would have
# the first worker at 30 ms.

# %% [markdown]
# ## Measure one, predict the others
#
# **Three numbers that are measured without a second worker give the whole curve; the other points are there to refute
# it.**
#
# `loaders.OneWorker` runs a loader with one worker and reads from the system how much CPU time the worker ($a$) and the
# main process ($c$) used per batch. But what is $n$? Two cores that compute at once may do less than twice the work of
# one: hardware threads share a core, and all cores share the memory. So `loaders.effective_cores` uses no loader at
# all: it makes items in one process, then in as many processes at once as there are cores, and $n$ is the ratio of the
# two speeds. Then come numbers of workers that were not measured before, for a light and a heavy transform and for two
# batch sizes. A machine's speed drifts from second to second, so each round measures one worker and $n$ first, and the
# passes that follow are compared with what *this* round predicts.
#
# **Predict**: how many times as fast as one worker will the formula say that two are, with the heavy transform?

# %%
predicted_speedup_heavy = None  # your number


# %% tags=["experiment"]
class Cycle(Dataset):
    """`n` items: those of `data`, again and again."""

    def __init__(self, data, n):
        self.data, self.n = data, n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        return self.data[i % len(self.data)]


torch.set_num_threads(1)  # as in a worker: one image is too little work for several threads
sizes = course.sizes("01_parallel_loading")
LFWDataset_now = course.solved(check.LFWDataset)
heavy_transform_now = course.solved(check.heavy_transform)
seconds_per_pass_now, sweep_now = course.solved(check.seconds_per_pass), course.solved(check.sweep)
folder = lfw.folder(sizes.dataset)
plain = loaders.evenly_spaced(LFWDataset_now(folder), sizes.images)
heavy = loaders.evenly_spaced(LFWDataset_now(folder, heavy_transform_now()), sizes.images)
held_out = [w for w in (2, 4, 8, 16, 32, 64, 128, 256) if w <= 2 * loaders.cores()]


def middle(values):
    """The median over the rounds, which are the last axis of a tensor."""
    return values.quantile(0.5, dim=-1)


def in_rounds(data, batch_size, workers, rounds, computed):
    """(costs of one worker, n; ms per batch and CPU ms per batch), of each round: two lists, tensors (workers, rounds).

    In a round one worker is measured, then n with items of `computed`, then a pass with each number of workers.
    """
    one, costs, n_cores, found = loaders.OneWorker(Cycle(data, 5 * batch_size), batch_size), [], [], []
    n = [max(8, 3 * w) if w else 4 for w in workers]  # batches per pass, at least three for each worker
    many = [loaders.forked(Cycle(data, k * batch_size), batch_size, w) for w, k in zip(workers, n, strict=True)]

    def ms_of_pass(loader, k):
        own = usage.cpu_seconds()
        seconds = seconds_per_pass_now(loader, k, repeats=1, warmup=0).item()
        return 1000 * seconds / k, 1000 * (usage.cpu_seconds() - own) / k

    for loader, k in zip(many, n, strict=True):
        ms_of_pass(loader, k)  # starts the workers
    for _ in range(rounds):
        costs.append(one.costs())
        n_cores.append(loaders.effective_cores(computed, 1, sizes.cores_seconds))
        found.append([ms_of_pass(loader, k) for loader, k in zip(many, n, strict=True)])
    return costs, n_cores, *torch.tensor(found, dtype=torch.float64).permute(2, 1, 0)


def predicted_ms(workers, costs, n_cores):
    """ms per batch that the pipeline takes, by the costs and the n of each round: tensor (len(workers), rounds)."""
    rounds = zip(costs, n_cores, strict=True)
    return 1000 * torch.stack([predict_now(workers, c.cpu, c.main, n) for c, n in rounds], dim=1)


cases, cpu_ms, taken, n_cores = {}, {}, 0.0, {}
for label, data in (("light", plain), ("heavy", heavy)):
    busy, own, begin = usage.busy_seconds(), usage.cpu_seconds(), time.perf_counter()
    for batch_size in (sizes.batch_size // 2, sizes.batch_size):
        case = label, batch_size
        costs, n_cores[case], ms, cpu_ms[case] = in_rounds(data, batch_size, [0, *held_out], sizes.paired_rounds, data)
        others = (usage.busy_seconds() - busy - usage.cpu_seconds() + own) / (time.perf_counter() - begin)
        predicted = predicted_ms([1, *held_out], costs, n_cores[case])
        cases[case], taken = (costs, predicted, ms), max(taken, others)
        a, c = (1000 * middle(torch.tensor(seconds)) for seconds in ([k.cpu for k in costs], [k.main for k in costs]))
        print(f"{label}, batch {batch_size}: a = {a:.1f} ms, c = {c:.1f} ms, n = {min(n_cores[case]):.2f} to "
              f"{max(n_cores[case]):.2f}; other programs used {others:.1f} cores")  # fmt: skip
        error = middle(ms[1:] / predicted[1:] - 1).tolist()
        print("    measured over predicted: " + ", ".join(
            f"{w} workers {100 * e:+.0f} %" for w, e in zip(held_out, error, strict=True)))  # fmt: skip
plots.predicted_workers(cases, held_out)

# %% tags=["experiment"]
worst = {
    label: max(middle(ms[1:] / predicted[1:] - 1).abs().max().item()
               for (name, _), (_, predicted, ms) in cases.items() if name == label)
    for label in ("light", "heavy")
}  # fmt: skip
free = taken < 0.3  # else the formula gives the loader cores that it does not get
for label, error in worst.items():
    course.claim(f"the time with one worker predicts that with every other number of workers within 15 %, {label} "
                 "transform",
                 error < 0.15 if free else math.nan,
                 f"worst {100 * error:.0f} %, other programs used {taken:.1f} cores",
                 otherwise="The verdict needs idle cores. Points above the line: a batch costs more CPU time than with "
                           "one worker, or the cores wait. Points below: the one worker was measured at a slower "
                           "moment. The next cell separates the causes.")  # fmt: skip
_, predicted, _ = cases["heavy", sizes.batch_size]
ratio = middle(predicted[0] / predicted[1]).item()
print(f"predicted speed-up of two workers over one, heavy: {ratio:.2f}" + reveal(predicted_speedup_heavy))
gain = {}
for (label, batch_size), (_, _, ms) in cases.items():
    gain[label, batch_size] = middle(ms[0] / ms[held_out.index(2) + 1]).item()
    print(f"two workers against none, {label}, batch {batch_size}: {gain[label, batch_size]:.2f} times as fast")
course.claim("two workers gain more with the heavy transform than with the light one, at both batch sizes",
             all(gain["heavy", b] > gain["light", b] for b in (sizes.batch_size // 2, sizes.batch_size)))  # fmt: skip
light = [gain["light", b] for b in (sizes.batch_size // 2, sizes.batch_size)]
course.claim("with the light transform two workers are less than 1.5 times as fast as none", max(light) < 1.5,
             f"{light[0]:.2f} and {light[1]:.2f} times")  # fmt: skip

# %% [markdown]
# Look first at the points that lie on the level part of a line: from as many workers as cores on, the cores are nearly
# full. More workers mostly take turns on them; what they may still gain, some per cent, are the moments in which
# another worker waits for the main process. Two workers are less than twice as fast as one where the main process needs
# a part of the same cores, or where two cores do less than twice the work of one.
#
# Whether workers beat *no* workers with a light transform depends on the batch size, the images and the machine. Both
# ways read and decode; workers add messages and fresh shared memory, and a loader without workers gets fresh memory
# for each batch only above 32 MB, on Linux (part 2). Measure T(0) before you trust a rule. Where two workers do not
# gain more with the heavy transform, other programs used the cores during some of the passes.
#
# The next cell takes both factors from the same passes. Their product is the time per batch over the time that perfect
# cores would take; beside it stands what the effective cores explain of it. The rest is the deviation that is printed
# above, but for a few per cent: each number is a median of its own over the rounds.


# %% tags=["experiment"]
full = min(w for w in held_out if w >= loaders.cores())  # workers enough to keep all cores busy
factors = {}
for label in ("light", "heavy"):
    costs, _, ms = cases[label, sizes.batch_size]
    cpu, ms = (tensor[1 + held_out.index(full)] for tensor in (cpu_ms[label, sizes.batch_size], ms))
    whole = middle(loaders.cores() / torch.tensor(n_cores[label, sizes.batch_size])).item()
    more = middle(cpu / torch.tensor([1000 * (seconds.cpu + seconds.main) for seconds in costs])).item()
    idle = middle(loaders.cores() * ms / cpu).item()
    factors[label] = more, idle
    print(f"{label}: {more:.2f} times the CPU time per batch x {idle:.2f} for cores not busy = {more * idle:.2f}; "
          f"effective cores explain {whole:.2f}")  # fmt: skip
course.claim("a batch takes nearly as much CPU time as with one worker: less than 15 % more, also when all cores work",
             max(more for more, _ in factors.values()) < 1.15,
             ", ".join(f"{label}: {more:.2f} times" for label, (more, _) in factors.items()))  # fmt: skip

# %% [markdown]
# If the product is far from what the effective cores explain, look at its factors. If the first is large, $a$ and $c$
# are not those of a busy machine: measure them with as many workers as you will use. If it is below 1, the one worker
# took more CPU time than each of several: run the cells again, with new ones. If the second is large, other programs
# use the cores, or the stages are so short that waiting for each other counts.

# %% [markdown]
# ### Exercise 2 · Choose
#
# Say how many workers to use: the fewest that are nearly as good as the best. Each worker is a process with batches
# under way, so one that gains a per cent is not worth its memory.
#
# **Must**
# - return the smallest number whose seconds are at most (1 + `slack`) times the smallest seconds;
# - treat 0 workers like any other candidate.
#
# **Raises** ValueError, with the word "candidates", if there are none.
#
# **Points** 2 · **Extra** · **Difficulty** ●○○ · **Minutes** 8 · **Lines** 4
#
# **Source** The rule is ours; it is kin to the one-standard-error rule of Breiman, Friedman, Olshen and Stone 1984,
# section 3.4.3.
#
# <details><summary>Hint 1</summary>
#
# Smallest seconds, smallest number: which of the two minima comes first?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# The minimum of the dictionary's values gives the limit, the minimum of the keys within it the answer.
#
# </details>


# %% solution="choose_workers"
def choose_workers(seconds, slack=0.05):
    """The fewest workers that are nearly the best.

    Args:
        seconds: dictionary from a number of workers, 0 or more, to its seconds per batch, in any order.
        slack: how much slower than the best is near enough, as a share of the best, at least 0.

    Returns: one of the keys, an int.
    Raises: ValueError if there are no candidates.
    """
    ### BEGIN SOLUTION
    if not seconds:
        raise ValueError("asked for the best of no candidates; give at least one number of workers.")
    limit = (1 + slack) * min(seconds.values())
    return min(w for w in seconds if seconds[w] <= limit)
    ### END SOLUTION


# %% test="choose_workers-visible" points=1
check.choose_workers(choose_workers)

# %% test="choose_workers-hidden" points=1
### BEGIN HIDDEN TESTS
check.choose_workers(choose_workers, seed=1984)
### END HIDDEN TESTS

# %% tags=["experiment"]
choose_now = course.solved(check.choose_workers)
losses = []
for (label, batch_size), (_, predicted, ms) in cases.items():
    known = dict(zip([0, 1, *held_out], [middle(ms[0]).item(), *middle(predicted).tolist()], strict=True))
    chosen = choose_now(known)
    seen = dict(zip([0, *held_out], middle(ms).tolist(), strict=True))
    fastest = min(seen, key=seen.get)
    losses.append(seen.get(chosen, known[chosen]) / seen[fastest] - 1)
    print(f"{label}, batch {batch_size}: take {chosen}; fastest measured {fastest}; {100 * losses[-1]:.0f} % slower")
course.claim("the number chosen from the prediction is at most 15 % slower than the fastest one measured",
             max(losses) < 0.15 if free else math.nan, f"{100 * max(losses):.0f} % at most",
             otherwise="Other programs used some of the cores while the loaders ran.")  # fmt: skip

# %% [markdown]
# ## Waiting needs no core
#
# **Workers that compute need cores; workers that wait do not.**
#
# Now each image is waited for: 5 ms of sleep, more than a network disk takes to answer and less than most object stores
# do. What divides among workers is the time on the clock; what goes through the cores is still the CPU time. So two
# calls of your formula and the larger of the two: the clock's time with `cores=math.inf`, the CPU's with the effective
# cores.
#
# **Predict**: up to how many workers does it gain?

# %%
predicted_best_workers_io = None  # your number


# %% tags=["experiment"]
class SlowDisk(Dataset):
    """The items of `data`, each after a wait of 5 ms."""

    def __init__(self, data):
        self.data = data

    def __len__(self):
        return len(self.data)

    def __getitem__(self, i):
        time.sleep(0.005)
        return self.data[i]


slow, small = SlowDisk(plain), sizes.batch_size // 4
many = sorted({2, 4, 8, 16, *held_out})
costs, n_of_light, ms, _ = in_rounds(slow, small, [0, *many], (1 + sizes.paired_rounds) // 2, plain)
by_the_clock = [seconds._replace(cpu=seconds.wall) for seconds in costs]
predicted = torch.maximum(predicted_ms([1, *many], by_the_clock, [math.inf] * len(costs)),
                          predicted_ms([1, *many], costs, n_of_light))  # fmt: skip
best = many[int(middle(ms[1:]).argmin())]
print(f"fastest with {best} of {many} workers, on {loaders.cores()} cores" + reveal(predicted_best_workers_io))
of_light = cases["light", sizes.batch_size][0]
waits, computes = (1000 * middle(torch.tensor([seconds.cpu + seconds.main for seconds in found])).item() / n
                   for found, n in ((costs, small), (of_light, sizes.batch_size)))  # fmt: skip
print(f"one worker: a + c = {waits:.2f} ms per image that is waited for, {computes:.2f} ms without a wait")
course.claim(
    "for images that are waited for, more workers than cores still save time",
    best > loaders.cores(),
    f"fastest with {best}",
    otherwise="Your machine has more cores than it needs to hide a wait of 5 ms.",
)
missed = middle(ms[1:] / predicted[1:] - 1)
for w, m in zip(many, missed, strict=True):
    print(f"{w} workers: measured over predicted {100 * m:+.0f} %")
course.claim("no number of workers takes 10 % less time than the bound of the formula",
             missed.min() > -0.1 if free else math.nan, f"{100 * missed.min():+.0f} % at least",
             otherwise="The CPU time measured with one worker was too large, or n was measured at a slower moment. "
                       "Compare the two printed values of a + c.")  # fmt: skip
plots.predicted_workers({("5 ms of waiting", small): (costs, predicted, ms)}, many)

# %% [markdown]
# `os.cpu_count()` is a rule of thumb for work that computes. Where images are waited for, the number that counts is the
# time to wait over the time to compute. Near its bend, where waiting and computing take about as long, points may lie
# above the line: workers that are ready queue for a core, and at other moments the cores have nothing to do. A pipeline
# reaches the bound only where one of its times is much longer than the others.

# %% [markdown]
# ## Is there a cheaper way to the same tensor?
#
# **A step that is left out is worth as much as a second core, and costs no memory.**
#
# Before adding processes, look at what one image costs. Top: from file to pixels as bytes, and from file to a float
# tensor, with PIL and with torchvision's own decoder. Bottom: the affine part of the heavy transform alone, in the
# first version of `torchvision.transforms` and in `v2`, the one that torchvision recommends, on PIL images, on bytes
# and on floats.


# %% tags=["experiment"]
def tv_decoded(path):
    return decode_jpeg(read_file(str(path)), mode=ImageReadMode.RGB)


def per_image(functions):
    """µs of CPU time per image for each of {label: (function, inputs)}, `rounds` samples each, in turn."""

    def measure(label):
        function, inputs = functions[label]
        begin = time.thread_time()  # of this thread alone: other programs disturb it less than a stop-watch
        for item in inputs:
            function(item)  # is not kept: kept results would each take fresh memory (part 2)
        return 1e6 * (time.thread_time() - begin) / len(inputs)

    torch.manual_seed(0)
    return dict(zip(functions, sweep_now(measure, list(functions), sizes.rounds), strict=True))


affine = dict(degrees=5, translate=(0.1, 0.1), scale=(0.5, 2.0), interpolation=v2.InterpolationMode.BILINEAR)
some = plain.paths[:: max(1, len(plain) // sizes.probe)]
raw = LFWDataset_now(folder, transform=lambda picture: picture)  # item i is the decoded PIL image
raw.paths, to_tensor = some, transforms.ToTensor()
pictures, octets = [raw[i] for i in range(len(some))], [tv_decoded(path) for path in some]
tensors = [to_tensor(picture) for picture in pictures]
decoders = per_image(
    {
        "PIL, bytes": (lambda i: raw[i], range(len(some))),
        "torchvision, bytes": (tv_decoded, some),
        "PIL, ToTensor": (lambda i: to_tensor(raw[i]), range(len(some))),
        "torchvision, v2.ToDtype": (lambda path: v2.functional.to_dtype(tv_decoded(path), torch.float32, True), some),
    }
)
affines = per_image(
    {
        "affine, v1, PIL": (transforms.RandomAffine(**affine), pictures),
        "affine, v2, PIL": (v2.RandomAffine(**affine), pictures),
        "affine, v2, uint8 tensor": (v2.RandomAffine(**affine), octets),
        "affine, v2, float tensor": (v2.RandomAffine(**affine), tensors),
    }
)
same = all(torch.equal(tensor, octet / 255) for tensor, octet in zip(tensors, octets, strict=True))
print(f"PIL and torchvision decode to the same pixels: {same}")
pil_bytes, tv_bytes, pil_floats, tv_floats = (us.quantile(0.5).item() for us in decoders.values())
otherwise = "Your build of Pillow or torchvision uses another JPEG library, or another program used the core."
course.claim("from file to floats torchvision takes less time than PIL", tv_floats < pil_floats,
             f"{pil_floats / tv_floats:.2f} times as fast", otherwise=otherwise)  # fmt: skip
saved, decoding = pil_floats - tv_floats, pil_bytes - tv_bytes
course.claim("more than half of what torchvision saves is saved after decoding", decoding < saved / 2,
             f"{saved - decoding:.0f} of {saved:.0f} µs", otherwise=otherwise)  # fmt: skip
plots.bars(decoders, "µs of CPU time per image", "From file to bytes, from file to floats, one core")

# %% tags=["experiment"]
plots.bars(affines, "µs of CPU time per image", "The affine part of the heavy transform, one core")

# %% [markdown]
# Both decoders use libjpeg-turbo and give the same pixels; what differs most is what happens to the pixels afterwards.
# `ToTensor` copies the bytes of a PIL image into an array, copies them into the order of a tensor, and then makes
# floats of them; torchvision's decoder gives a tensor already. Which transform is fastest depends on the processor, so
# measure yours. Part 6 builds the loader that leaves out most.

# %% [markdown]
# ## From the command line
#
# The measurements of this unit are also a program, with the flags of the script from which the unit descends. It uses
# the reference solutions, or with `-answers` yours: name the folder that holds your notebooks of this unit.
#
# ```
# python -m course.lfw_dataset
# python -m course.lfw_dataset -visualize_batch
# python -m course.lfw_dataset -get_timing -num_workers 0 1 2 4 -heavy
# python -m course.lfw_dataset -get_timing -answers notebooks/01_parallel_loading
# ```
#
# ## What to take with you
#
# 1. $T(w) = \max(a / w,\, c,\, (a + c) / n,\, \text{step})$. Measure $a$ and $c$ with one worker, $n$ with processes
#    that share nothing else, and T(0) too.
# 2. Take the fewest workers that are nearly the best. Work that waits can use more of them than there are cores.
# 3. Before adding processes, look at what one of them costs.
#
# ## To read on
#
# - I. Svogor et al., Profiling and Improving the PyTorch Dataloader for high-latency Storage, 2022
#   ([arXiv:2211.04908](https://arxiv.org/abs/2211.04908)): the loader measured where images come over a network.
# - G. Leclerc et al., FFCV: Accelerating Training by Removing Data Bottlenecks, 2023
#   ([arXiv:2306.12517](https://arxiv.org/abs/2306.12517)): reused buffers, compiled pipelines, a file format of its
#   own.
