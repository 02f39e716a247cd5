# %% [markdown]
# # Parallel loading, part 6: Resume a loader, and load with threads
#
# **Where does a run continue after it was stopped, and can threads replace the workers?**
#
# A machine fails in the middle of an epoch. If the checkpoint says nothing about the position in the data, the resumed
# run cannot continue there. In this part you write a loader that resumes at the batch where the run stopped. Then you
# write a loader whose workers are threads, which need not send their batches. All exercises of this part are extra.
#
# **You will be able to**
#
# - save and restore the position of a loader, even if its workers have built batches ahead;
# - write a loader that uses threads, and say when threads beat processes.
#
# **Minutes** 0 core · 65 in all
#
# **Needs** `LFWDataset` of part 1 and `seconds_per_pass` of part 2

# %% locked="setup"
import collections
import functools
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from torch.utils.data import DataLoader

import course
from course.checks import parallel_loading as check
from course.datasets import lfw
from course.loading import loader_passes, loaders, threads
from course.measure import comparison
from course.plots import parallel_loading as plots

# more workers than cores: we try that on purpose
warnings.filterwarnings("ignore", "This DataLoader will create")
# we fork on purpose, as part 8 explains
warnings.filterwarnings("ignore", "This process .* is multi-threaded")
print(course.machine())

# %% tags=["experiment"]
torch.set_num_threads(1)  # as in a worker: one image is too little work for several threads
sizes = course.sizes("01_parallel_loading")
LFWDataset_now = course.solved(check.LFWDataset)
light = loaders.evenly_spaced(LFWDataset_now(lfw.folder(sizes.dataset)), sizes.images)
compare = functools.partial(
    loader_passes.compare_loaders,
    seconds_per_pass=course.solved(check.seconds_per_pass),
    rounds=sizes.pass_rounds,
    seconds=sizes.pass_seconds,
)

# %% [markdown]
# ## How far ahead is the loader? · extra
#
# To resume, you need to know the position. But workers build ahead, so the loader is further along than your loop. How
# much further? The next cell counts the batches whose indices the sampler has given away when your loop has three
# batches.
#
# **Predict**: with two workers and `prefetch_factor=2`, the loop has drawn three of 20 batches. How many has the
# sampler given away? Three, if it moves with the loop. All 20, if the workers get the whole list. Or something in
# between.

# %%
predicted_given_away = None  # your number


# %% tags=["experiment"]
def given_away(num_workers):
    """The batches that the sampler has given away when the loop has three of 20."""
    away = []

    def sampler():
        for k in range(20):
            away.append(k)
            yield [k]

    options = {}
    if num_workers > 0:
        options = {"multiprocessing_context": "fork", "prefetch_factor": 2}
    loader = DataLoader(range(20), batch_sampler=sampler(), num_workers=num_workers, **options)
    batches = iter(loader)
    for _ in range(3):
        next(batches)
    return len(away)


# %% tags=["experiment"]
away = {workers: given_away(workers) for workers in (0, 1, 2, 3)}
expected = {workers: 3 + 2 * workers for workers in away}

print(course.score("01/6", "batches given away", predicted_given_away, away[2], null=None))
course.claim(
    "the sampler is workers x prefetch_factor batches ahead of the loop",
    away == expected,
    f"{away}",
)

# %% [markdown]
# So the sampler is ahead of your loop. If a checkpoint saves the sampler's position, the resumed run never sees the
# batches that were in flight.
#
# **Takeaway** The position of a run is the batch that the loop has, not a batch that a worker is building.

# %% [markdown]
# ## Where does the run continue? · extra
#
# Which batch comes next depends on the number of the epoch, on its order, and on the position in it. If the order
# follows from a seed and the number of the epoch, two numbers are enough: the epoch and the position. The loop asks for
# these numbers while your generator stands at its `yield`.
#
# ### Exercise 1 · A loader that resumes
#
# Write a loader that you can stop at any batch. A second loader, made in the same way, loads the state of the first and
# continues. `order` and `batches` are given.
#
# **Must**
# - continue after the batch that the loop has when it calls `state_dict()`, even if workers have built further ahead;
# - continue with the next epochs in the passes after that;
# - read no item again that comes before that position.
#
# ```python
# >>> loader = ResumingLoader(range(6), 2)
# >>> first = next(iter(loader))
# >>> resumed = ResumingLoader(range(6), 2)
# >>> resumed.load_state_dict(loader.state_dict())
# >>> len(list(resumed))
# 2
# ```
#
# **You may assume** that a state is loaded into a new loader, and that nobody uses the stopped loader again. The state
# may be saved to a file, so use numbers, strings, lists and dictionaries only.
#
# **Points** 4 · **Extra** · **Difficulty** ●●○ · **Minutes** 15 · **Lines** 9
#
# **Source** `StatefulDataLoader` of [torchdata](https://github.com/meta-pytorch/data), whose two methods have these
# names. It also saves the state of datasets and workers.
#
# <details><summary>Hint 1</summary>
#
# The loop calls `state_dict()` while your `__iter__` stands at its `yield`. Which batches must you have counted by
# then?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Keep the number of the epoch, and how many of its batches you have yielded. `self.order(epoch)[done:]` are the batches
# that are left. What happens to both numbers when a pass ends?
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# `for batch in self.batches(self.order(self.epoch)[self.done:])`: add 1 to `self.done`, then `yield batch`. After the
# loop, add 1 to the epoch and set `done` to 0. The state is a new dictionary of both.
#
# </details>


# %% solution="ResumingLoader"
class ResumingLoader:
    """Shuffled batches of a dataset; a pass is an epoch. It can be cut, and another one continues.

    Args:
        dataset: map-style dataset.
        batch_size: items per batch; the last one of an epoch may have fewer.
        num_workers: worker processes.
        seed: int, of the orders of all epochs.
    """

    def __init__(self, dataset, batch_size, num_workers=0, seed=0):
        self.dataset = dataset
        self.batch_size = batch_size
        self.num_workers = num_workers
        self.seed = seed
        # where the next pass begins: the epoch, and how many of its batches are done
        self.epoch = 0
        self.done = 0

    def order(self, epoch):
        """The indices of each batch of an epoch, which follow from the seed and the epoch alone."""
        rng = np.random.default_rng((self.seed, epoch))
        shuffled = rng.permutation(len(self.dataset)).tolist()
        starts = range(0, len(shuffled), self.batch_size)
        return [shuffled[start : start + self.batch_size] for start in starts]

    def batches(self, indices):
        """A DataLoader of the batches that have these indices, a list of lists."""
        forks = {"multiprocessing_context": "fork"} if self.num_workers else {}
        return DataLoader(
            self.dataset, batch_sampler=indices, num_workers=self.num_workers, **forks
        )

    def __iter__(self):
        """Yield the batches of the current epoch that are left."""
        ### BEGIN SOLUTION
        left = self.order(self.epoch)[self.done :]
        for batch in self.batches(left):
            self.done += 1  # before the yield: the caller may ask for the state
            yield batch
        self.epoch += 1
        self.done = 0
        ### END SOLUTION

    def state_dict(self):
        """Where a run is, a dictionary of plain data that does not change any more."""
        ### BEGIN SOLUTION
        return {"epoch": self.epoch, "done": self.done}
        ### END SOLUTION

    def load_state_dict(self, state):
        """Let the next pass begin where `state` says."""
        ### BEGIN SOLUTION
        self.epoch = state["epoch"]
        self.done = state["done"]
        ### END SOLUTION


# %% test="ResumingLoader-visible" points=2
check.ResumingLoader(ResumingLoader)

# %% test="ResumingLoader-hidden" points=2
### BEGIN HIDDEN TESTS
check.ResumingLoader(ResumingLoader, seed=31)
### END HIDDEN TESTS

# %% [markdown]
# A run of two epochs stops after five batches of its second epoch. The next cells resume it in two ways: with your
# state, and with the number of the epoch alone.

# %% tags=["experiment"]
ResumingLoader_now = course.solved(check.ResumingLoader)


def times_seen(num_workers, has_position):
    """How often the second epoch sees each of 60 items: five batches, then those of a resumed loader."""
    loader = ResumingLoader_now(range(60), 6, num_workers)
    list(loader)  # the first epoch
    state = loader.state_dict()  # the epoch alone: no batch of it is done

    batches = iter(loader)
    drawn = [next(batches) for _ in range(5)]
    if has_position:
        state = loader.state_dict()

    resumed = ResumingLoader_now(range(60), 6, num_workers)
    resumed.load_state_dict(state)
    drawn += list(resumed)
    return collections.Counter(torch.cat(drawn).tolist())


# %% tags=["experiment"]
with_epoch = times_seen(num_workers=2, has_position=False)
twice = list(with_epoch.values()).count(2)

with_state = []
for workers in (0, 1, 2, 3):
    times = times_seen(workers, has_position=True)
    with_state.append(set(times.values()))

print(f"only the epoch is saved: {twice} of 60 items come twice")
course.claim(
    "with the epoch alone, every item before the cut comes twice", twice == 30, f"{twice} of 60"
)
course.claim(
    "with its state, the loader gives each item once, with 0 to 3 workers",
    all(times == {1} for times in with_state),
)

# %% [markdown]
# Two things are still missing. The state does not contain the workers' random numbers. If the augmentations must be
# equal, too, seed each image by run, epoch and index (part 8). And a stream has no order of indices, so each worker
# must save how far it has read, as torchdata's loader does.
#
# **Takeaway** Let the order follow from the seed and the epoch. Then two numbers in the checkpoint say where to
# continue.

# %% [markdown]
# ## Can threads replace processes? · extra
#
# Workers pay for each batch that they send (part 2). Threads share the memory of one process, so they send nothing. But
# Python usually runs one thread at a time, because each needs the interpreter's lock. Code in C can release the lock
# while it works. The JPEG decoders of PIL and torchvision do so, and so does NumPy on large arrays. So threads can
# decode in parallel. You are given `decoder = loaders.JpegDecoder(paths)`, and `decoder(index, out)` writes one image
# into `out`.
#
# ### Exercise 2 · The loader of threads
#
# Write the generator `run`. It yields batches whose items the threads of `pool` write into *slots*. A slot is a row of
# `buffers`: memory for one batch, which you use again and again. Batch k goes into the first rows of slot k % slots. To
# write one item, call `load_into(index, row)`. With a single slot, start a batch only when the caller asks for it.
#
# `pool.submit(f, x)` returns a future immediately. `future.result()` waits, and raises what `f` raised. You may add
# methods to the class.
#
# **Must**
# - divide the items of each batch among the threads, and yield the batch when all items are written;
# - fill all other slots while the caller has a batch;
# - reuse the slot of a batch only when the caller asks for the next batch.
#
# **Raises** what `load_into` raises, when that batch is due.
#
# **Points** 4 · **Extra** · **Difficulty** ●●○ · **Minutes** 20 · **Lines** 18
#
# **Source** Reused buffers as in FFCV, Leclerc et al. 2023, arXiv:2306.12517.
#
# <details><summary>Hint 1</summary>
#
# Which batches may the threads write while the caller has batch k? What frees the slot of batch k?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Keep a `deque` of the batches in progress, oldest first. For each, keep its rows and its futures.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# For each batch, submit one task per thread, and append (rows, futures) to the deque. Once the deque has as many
# batches as there are slots, take the oldest, wait for its futures and yield its rows. After the loop, do the same for
# the rest.
#
# </details>


# %% solution="ThreadedLoader"
class ThreadedLoader:
    """Batches that threads write into reused memory; a batch is valid until the next one is asked for.

    Args:
        load_into: load_into(index, out) writes item `index` into the tensor `out`.
        batches: list of lists of indices.
        buffers: tensor (slots, batch size, ...).
        threads: int, 1 or more.
    """

    def __init__(self, load_into, batches, buffers, threads):
        self.load_into = load_into
        self.batches = batches
        self.buffers = buffers
        self.threads = threads

    def __len__(self):
        """Number of batches in a pass."""
        return len(self.batches)

    def __iter__(self):
        """A new pass: yields tensors (n, ...), the first rows of a slot; passes do not overlap."""
        # its threads end with the pass, however that ends
        with ThreadPoolExecutor(self.threads) as pool:
            yield from self.run(pool)

    def run(self, pool):
        """Yield the batches of a pass, whose items the threads of `pool` write."""
        ### BEGIN SOLUTION
        running = collections.deque()
        for number, indices in enumerate(self.batches):
            rows = self.buffers[number % len(self.buffers), : len(indices)]
            tasks = []
            for first in range(self.threads):
                tasks.append(pool.submit(self.fill, rows, indices, first))
            running.append((rows, tasks))
            if len(running) == len(self.buffers):
                yield self.finished(*running.popleft())
        while running:
            yield self.finished(*running.popleft())

    def fill(self, rows, indices, first):
        for row in range(first, len(indices), self.threads):
            self.load_into(indices[row], rows[row])

    def finished(self, rows, tasks):
        for task in tasks:
            task.result()
        return rows
        ### END SOLUTION


# %% test="ThreadedLoader-visible" points=2
check.ThreadedLoader(ThreadedLoader)

# %% test="ThreadedLoader-hidden" points=2
### BEGIN HIDDEN TESTS
check.ThreadedLoader(ThreadedLoader, seed=12)
### END HIDDEN TESTS

# %% [markdown]
# Are threads faster? All loaders in the next cell yield batches of equal floats, and torch's workers stay alive between
# passes. A worker stacks each batch in new memory and sends it. Your threads decode into slots that already exist. The
# slots also have another layout: the colours of a pixel are next to each other, as the decoder writes them.
#
# **Predict**: with the same decoder, how many times as fast as two persistent workers are two threads? More than 1, if
# sending batches costs much. About 1, if only decoding counts. Less than 1, if the lock stops the threads.

# %%
predicted_times_threads = None  # your number

# %% tags=["experiment"]
ThreadedLoader_now = course.solved(check.ThreadedLoader)
decoder = loaders.JpegDecoder(light.paths)
buffers = loaders.jpeg_buffers(light.paths, 3, sizes.pass_batch)
decoded = threads.Decoded(decoder, buffers[0, 0], len(light))
batches = threads.batches_of(len(light), sizes.pass_batch, comparison.steady_batches(2))


def of_torch(dataset, workers):
    """torch's loader of the same batches."""
    options = {}
    if workers > 0:
        options = {"persistent_workers": True, "multiprocessing_context": "fork"}
    return DataLoader(dataset, batch_sampler=batches, num_workers=workers, **options)


two_threads = "torchvision, your ThreadedLoader, 2 threads"
ways = {
    "PIL, no workers": of_torch(light, 0),
    "torchvision, no workers": of_torch(decoded, 0),
    "torchvision, two workers": of_torch(decoded, 2),
    "torchvision, your ThreadedLoader, 1 thread": ThreadedLoader_now(decoder, batches, buffers, 1),
    two_threads: ThreadedLoader_now(decoder, batches, buffers, 2),
}
threads.assert_equal(ways)

# %% tags=["experiment"]
race = compare(ways, len(batches))
over_pil = race.ratio(two_threads)
over_workers = race.ratio(two_threads, to="torchvision, two workers")

print(race)
said = "two threads against two workers, same decoder"
print(course.score("01/6", said, predicted_times_threads, over_workers))
course.claim(
    "your loader of threads is at least twice as fast as PIL + ToTensor without workers",
    over_pil,
    above=2,
)
course.claim(
    "two threads are at least 10 % faster than two persistent workers with the same decoder",
    over_workers,
    above=1.1,
)
plots.ratios(race, f"Your two threads are {over_pil} times as fast as PIL without workers")

# %% [markdown]
# Compare two rows to see what each change gains:
#
# - another decoder: PIL (the line at 1) or torchvision, both without workers;
# - the slots: torchvision without workers, or with one thread. The slots save the stacking and the new memory, and
#   have the decoder's layout;
# - the second thread: one thread, or two.
#
# **We think** that if the workers lose, it is mainly because they send floats. To test this, let both loaders yield
# bytes (part 8).
#
# How much do the threads owe to decoders that release the lock? The last cell changes only what `load_into` does. It
# decodes, or it computes in Python, which keeps the lock.
#
# **Predict**: with work in Python, how many times as fast are two threads as one?

# %%
predicted_python_threads = None  # your number


# %% tags=["experiment"]
def in_python(index, out):
    """Take a while, in Python."""
    sum(k * k for k in range(10_000))


# %% tags=["experiment"]
gains = {}
for what, load_into in {"decodes": decoder, "computes in Python": in_python}.items():
    of_threads = {
        f"{what}, 1": ThreadedLoader_now(load_into, batches, buffers, 1),
        f"{what}, 2": ThreadedLoader_now(load_into, batches, buffers, 2),
    }
    passes = compare(of_threads, len(batches))
    gains[what] = passes.ratio(f"{what}, 2")
    print(passes)

in_python_gain = gains["computes in Python"]
said = "two threads against one, in Python"
print(course.score("01/6", said, predicted_python_threads, in_python_gain))
course.claim(
    "a second thread gains at least 10 % more if the threads decode than if they compute in Python",
    comparison.quotient(gains["decodes"], in_python_gain),
    above=1.1,
    otherwise="Look at the number of cores that the first cell prints, and at `sys._is_gil_enabled()` in "
    "Python 3.13 or later.",
)

# %% [markdown]
# **Shown**: the work of the threads decides what a second thread gains, because the last cell changes nothing else.
# **Known**: Python code holds the interpreter's lock while it runs (Python's documentation of `threading`).
#
# <details><summary>Other loaders with threads</summary>
#
# [SPDL](https://github.com/facebookresearch/spdl) decodes in threads that release the lock. Builds of Python without
# the lock ([PEP 703](https://peps.python.org/pep-0703/)) run even Python code in parallel.
#
# torch's loader does more than yours. It collates any structure, pins batches in a thread, reads streams, and has a
# `timeout`. To compare the loaders on all images, run `course bench lfw paths --batch-size 64`.
#
# </details>
#
# **Takeaway** Threads share memory, so they send nothing. They can pay off if the work releases Python's lock.
