# %% [markdown]
# # Parallel loading, part 6: Build a loader yourself
#
# **What does a loader with worker processes have to get right, and can you match torch's?**
#
# You write the three pieces of a loader: the worker, the order, and the main process that notices failures. Then you
# write a loader of threads, and race both against torch's. All exercises of this part are extra.
#
# **You will be able to**
#
# - say what travels between the main process and a worker;
# - bring results back into order without waiting longer than necessary;
# - write a loader of threads, and say when it beats processes.
#
# **Minutes** 0 core · 98 in all
#
# **Needs** parts 1 and 2: your `LFWDataset` and `seconds_per_pass` are used if you solved them

# %% locked="setup"
import functools
import multiprocessing
import os
import pickle
import random
import signal
import time
import traceback
import warnings
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from multiprocessing.connection import wait

import numpy as np
import torch
import torch.multiprocessing as mp
from torch.utils.data import DataLoader, Dataset

import course
from course.checks import parallel_loading as check
from course.datasets import lfw
from course.learner.predictions import reveal
from course.loading import loader_passes, loaders
from course.measure import comparison
from course.plots import parallel_loading as plots

warnings.filterwarnings("ignore", "This process .* is multi-threaded")  # we fork on purpose, as part 3 explains
print(course.machine())

# %% [markdown]
# ## What does a worker send back? · extra
#
# Before any process starts, the main process makes a tensor `buffers` in *shared memory*: pages that several processes
# see. It has a few *slots*, each for one batch. Batch number $k$ uses slot $k$ modulo the number of slots.
#
# Each worker has a *pipe*, a channel for Python objects. The main process sends a *task* through it: the number of a
# batch and the indices of its items. The worker writes the items into the slot, and sends the number back.
#
# **Predict**: a batch of 32 float images of 250 × 250 has 24 MB. How many bytes does the worker send back?

# %%
predicted_bytes = None  # your number

# %% [markdown]
# ### Exercise 1 · The worker's loop
#
# Write the loop that each worker process runs. For the task `(3, [7, 9])` and 4 slots, `dataset[7]` goes to
# `buffers[3, 0]` and `dataset[9]` to `buffers[3, 1]`. Then the worker sends `(3, None)`. Seeds and threads are given.
#
# **Must**
# - receive tasks until the task is None, then return;
# - write each item directly into its row of slot `number % len(buffers)`;
# - then send `(number, None)`, or `(number, text of the traceback)` if an item raises an Exception, and take the next
#   task.
#
# **Points** 3 · **Extra** · **Difficulty** ●●○ · **Minutes** 12 · **Lines** 8
#
# **Source** `torch/utils/data/_utils/worker.py` in PyTorch, whose loop has the same steps.
#
# <details><summary>Hint 1</summary>
#
# `iter(pipe.recv, None)` gives what `pipe.recv()` returns until that is None.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `batch[row] = item` copies an item into shared memory. `traceback.format_exc()` is the text of the exception that is
# being handled.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# For each task: `batch, error = buffers[number % len(buffers)], None`; in a `try`, `for row, index in
# enumerate(indices): batch[row] = dataset[index]`; `except Exception: error = traceback.format_exc()`; after both,
# `pipe.send((number, error))`.
#
# </details>


# %% solution="worker_loop"
def worker_loop(dataset, seed, pipe, buffers):
    """Build the batches that arrive as tasks, until the task is None.

    Args:
        dataset: dataset[i] is a tensor like `buffers[0, 0]`.
        seed: int, 0 <= seed < 2**63, of this worker in this epoch.
        pipe: its recv() waits for the next task, (number, list of indices) or None; its send(x) sends x back.
        buffers: tensor (slots, batch size, ...) in shared memory.
    """
    torch.set_num_threads(1)  # else each worker uses all cores
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed % 2**32)
    ### BEGIN SOLUTION
    for number, indices in iter(pipe.recv, None):
        batch, error = buffers[number % len(buffers)], None
        try:
            for row, index in enumerate(indices):
                batch[row] = dataset[index]
        except Exception:
            error = traceback.format_exc()
        pipe.send((number, error))
    ### END SOLUTION


# %% test="worker_loop-visible" points=1
check.worker_loop(worker_loop)

# %% test="worker_loop-hidden" points=2
### BEGIN HIDDEN TESTS
check.worker_loop(worker_loop, seed=6)
### END HIDDEN TESTS

# %% [markdown]
# The pipe of the next cell only counts bytes, and the worker's loop runs here in the notebook.


# %% tags=["experiment"]
class CountedPipe:
    """The worker's end of a pipe: `tasks` come out, what is sent is counted in pickled bytes."""

    def __init__(self, tasks):
        self.tasks, self.sent = [*tasks, None], []

    def recv(self):
        return self.tasks.pop(0)

    def send(self, message):
        self.sent.append(len(pickle.dumps(message)))


sizes = course.sizes("01_parallel_loading")
threads_before, random_before = torch.get_num_threads(), torch.get_rng_state()
worker_loop_now = course.solved(check.worker_loop)
LFWDataset_now = course.solved(check.LFWDataset)
folder = lfw.folder(sizes.dataset)
light = loaders.evenly_spaced(LFWDataset_now(folder), sizes.images)
few = torch.empty(2, sizes.batch_size, *light[0].shape).share_memory_()
pipe = CountedPipe([(k, list(range(sizes.batch_size))) for k in range(3)])
worker_loop_now(light, 0, pipe, few)
torch.set_num_threads(threads_before)
torch.set_rng_state(random_before)
print(f"a batch has {few[0].nbytes:,} bytes, a message {max(pipe.sent)}{reveal(predicted_bytes)}")
course.claim("a worker sends back less than a thousandth of the bytes of its batch",
             1000 * max(pipe.sent) < few[0].nbytes,
             f"{max(pipe.sent)} of {few[0].nbytes:,} bytes")  # fmt: skip

# %% [markdown]
# The worker writes each item into its slot, where the main process reads it. But a batch is valid only until you ask
# for the next one, so `clone()` what you keep. torch makes fresh shared memory for each batch, so its batches are
# yours.
#
# **Takeaway** Send numbers between processes, and leave the pixels where they were written.

# %% [markdown]
# ## How do batches get back into order? · extra
#
# A batch with a large file may take longer than the next one. If the loop got batches as they finish, a second run
# could train in another order. So what arrives early waits its turn.
#
# ### Exercise 2 · Back into order
#
# Results arrive as pairs (number, thing), numbers from 0 on, each once. Write the generator that yields the things in
# the order of their numbers.
#
# ```python
# >>> list(in_order([(1, "b"), (0, "a"), (2, "c")]))
# ['a', 'b', 'c']
# ```
#
# **Must**
# - yield thing k as soon as the things 0 to k have arrived, and take no further pair before that;
# - yield any thing, None too.
#
# **Raises** RuntimeError if `arrivals` ends while a number is missing.
#
# **Points** 2 · **Extra** · **Difficulty** ●○○ · **Minutes** 10 · **Lines** 8
#
# **Source** The receiving side of TCP, RFC 9293, section 3.10.7.4: segments that come early are kept until the gap is
# filled.
#
# <details><summary>Hint 1</summary>
#
# Which number is due next? What do you do with a pair that has another one?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Keep early things in a dictionary by their numbers. After each arrival, yield while the number that is due is in
# it: one arrival can free several.
#
# </details>


# %% solution="in_order"
def in_order(arrivals):
    """Yields the things of `arrivals` in the order of their numbers, each as soon as those before it have come.

    Args:
        arrivals: iterable of pairs (number, thing); the numbers are 0, 1, 2, ... in any order.

    Raises: RuntimeError if a number is missing at the end.
    """
    ### BEGIN SOLUTION
    early, due = {}, 0
    for number, thing in arrivals:
        early[number] = thing
        while due in early:
            yield early.pop(due)
            due += 1
    if early:
        raise RuntimeError(f"number {due} never arrived, but {sorted(early)} did")
    ### END SOLUTION


# %% test="in_order-visible" points=1
check.in_order(in_order)

# %% test="in_order-hidden" points=1
### BEGIN HIDDEN TESTS
check.in_order(in_order, seed=9)
### END HIDDEN TESTS

# %% [markdown]
# ## How far can one worker run ahead? · extra
#
# The main process starts the workers, sends them tasks, and reads from whichever pipe has something.
#
# **Predict**: each of two workers builds every other batch. Batch 0 takes as long as five others. There are 4 slots, so
# only batches 0 to 3 may begin before batch 0 is yielded. How many finished ones wait when it arrives?

# %%
predicted_waiting = None  # your number

# %% [markdown]
# ### Exercise 3 · The loader
#
# Write the main side. `start()` and `end(workers)` are given: a worker is a pair (process, pipe).
# `multiprocessing.connection.wait(pipes)` blocks until a pipe has something, and returns those that have. The pipe of a
# dead worker counts too: its `recv` raises EOFError or an OSError, and its `send` an OSError.
#
# **Must**
# - send batch k to worker k % num_workers: one task per slot first, then one more whenever the next batch is asked for;
# - pass what arrives through `self.order`, and yield the rows of the slot that hold the batch;
# - call `self.end(workers)` whenever a pass ends, also by an error or a `break`.
#
# **Raises** RuntimeError with the worker's traceback, when that batch is due; RuntimeError if a worker dies.
#
# **Points** 6 · **Extra** · **Difficulty** ●●● · **Minutes** 30 · **Lines** 22
#
# **Source** `_MultiProcessingDataLoaderIter` in `torch/utils/data/dataloader.py`.
#
# <details><summary>Hint 1</summary>
#
# Write `__iter__` as a generator with `try` and `finally`. When does the `finally` run if the caller leaves its loop
# with `break`?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# A second generator yields `pipe.recv()` of every pipe that is ready until as many results have come as there are
# batches.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# `for number, error in enumerate(self.order(self.arrivals(...)))`: raise if there is an error, else yield
# `self.buffers[number % slots, :len(batches[number])]`. The line after the yield runs when the next batch is asked for,
# so the slot is free: send task number + slots there.
#
# </details>


# %% solution="WorkerLoader"
class WorkerLoader:
    """Batches built by worker processes in shared memory; a batch is valid until the next one is asked for.

    Args:
        dataset: dataset[i] is a tensor, of one shape and dtype for all i.
        batches: list of lists of indices, at least one.
        num_workers: int, 1 or more.
        loop: what a worker runs, loop(dataset, seed, pipe, buffers).
        order: pairs (number, thing) in any order -> things in order.
        slots: int, batches that exist at a time, including the one that the caller has.
    """

    def __init__(self, dataset, batches, num_workers, loop, order, slots=4):
        self.dataset, self.batches, self.num_workers = dataset, batches, num_workers
        self.loop, self.order = loop, order
        item, largest = dataset[0], max(map(len, batches))
        self.buffers = torch.empty(slots, largest, *item.shape, dtype=item.dtype).share_memory_()

    def __len__(self):
        """Number of batches in a pass."""
        return len(self.batches)

    def start(self):
        """Start the workers of a pass; return the process and the pipe of each, a list of pairs."""
        base, context, workers = torch.empty((), dtype=torch.int64).random_().item(), mp.get_context("fork"), []
        for w in range(self.num_workers):
            mine, theirs = context.Pipe()
            args = self.dataset, base + w, theirs, self.buffers
            process = context.Process(target=self.loop, args=args, daemon=True)
            process.start()
            theirs.close()  # else the end of the process would not close the pipe
            workers.append((process, mine))
        return workers

    def end(self, workers):
        """Tell the workers to end, terminate those that still run a second later, and wait for all."""
        for _, pipe in workers:
            with suppress(OSError):
                pipe.send(None)
        for process, _ in workers:
            process.join(1)
            process.terminate()
            process.join()

    def __iter__(self):
        """A new pass: yields tensors (n, ...) in shared memory; passes do not overlap."""
        ### BEGIN SOLUTION
        batches, slots, workers = self.batches, len(self.buffers), self.start()

        def send(number):
            if number < len(batches):
                with suppress(OSError):  # of a dead worker: `arrivals` says so
                    workers[number % self.num_workers][1].send((number, batches[number]))

        try:
            for number in range(slots):
                send(number)
            for number, error in enumerate(self.order(self.arrivals(workers))):
                if error:
                    raise RuntimeError(f"in a worker, for batch {number}:\n{error}")
                yield self.buffers[number % slots, : len(batches[number])]
                send(number + slots)
        finally:
            self.end(workers)

    def arrivals(self, workers):
        n = len(self.batches)
        while n:
            for pipe in wait([pipe for _, pipe in workers]):
                try:
                    arrival = pipe.recv()
                except (EOFError, OSError):
                    raise RuntimeError("a worker died before its batches arrived") from None
                yield arrival
                n -= 1
        ### END SOLUTION


# %% test="WorkerLoader-visible" points=3
check.WorkerLoader(WorkerLoader)

# %% test="WorkerLoader-hidden" points=3
### BEGIN HIDDEN TESTS
check.WorkerLoader(WorkerLoader, seed=3)
### END HIDDEN TESTS

# %% [markdown]
# torch too draws one base seed per pass, seeds worker $w$ with base + $w$, and sends batch $k$ to worker $k$ modulo
# their number. So after the same `torch.manual_seed`, both should draw the same random augmentations.

# %% tags=["experiment"]
in_order_now, WorkerLoader_now = course.solved(check.in_order), course.solved(check.WorkerLoader)
heavy = loaders.evenly_spaced(LFWDataset_now(folder, lfw.heavy_transform()), sizes.images)
shuffled = torch.randperm(len(light), generator=torch.Generator().manual_seed(1)).split(sizes.batch_size)
batches = [batch.tolist() for batch in shuffled]


def of_torch(dataset, batches, **options):
    """torch's DataLoader over the same batches."""
    forks = {"multiprocessing_context": "fork"} if options.get("num_workers") else {}
    return DataLoader(dataset, batch_sampler=batches, **forks, **options)


def ours(dataset, batches, num_workers=2, **options):
    """Your loader, with your worker's loop and your order."""
    return WorkerLoader_now(dataset, batches, num_workers, worker_loop_now, in_order_now, **options)


passes = []
for loader in (of_torch(heavy, batches[:6], num_workers=2), ours(heavy, batches[:6])):
    seen, places = [], []
    torch.manual_seed(7)
    for batch in loader:
        seen.append(batch.clone())
        places.append(batch.data_ptr())
    passes.append((seen, places))
(theirs, _), (mine, my_places) = passes
same = all(torch.equal(a, b) for a, b in zip(theirs, mine, strict=True))
course.claim(
    "your loader gives torch's batches to the bit, random augmentation included",
    same,
    f"{len(mine)} batches",
    otherwise="Compare the seeds of the workers, and which worker built each batch.",
)
course.claim("all your batches are in the slots that were made once", len({*my_places}) <= 4,
             f"{len({*my_places})} places for {len(mine)} batches")  # fmt: skip


# %% tags=["experiment"]
class Slow(Dataset):
    """Items are [start, end] of their making, in seconds; the first item takes as long as five others."""

    def __len__(self):
        return 16

    def __getitem__(self, i):
        start = time.monotonic()
        time.sleep(0.1 if i == 0 else 0.02)
        return torch.tensor([start, time.monotonic()], dtype=torch.float64)


arrived = []


def watched_order(arrivals):
    """`in_order`, with a note of the numbers as they arrive."""

    def noted():
        for number, thing in arrivals:
            arrived.append(number)
            yield number, thing

    return in_order_now(noted())


slow = WorkerLoader_now(Slow(), [[i] for i in range(16)], 2, worker_loop_now, watched_order)
begin, spans, handed = time.monotonic(), [], []
for k, batch in enumerate(slow):
    (start, end), now = (batch[0] - begin).tolist(), time.monotonic() - begin
    time.sleep(0.008)  # the loop's work
    spans += [(f"worker {k % 2}", k, start, end), ("the loop", k, now, now + 0.008)]
    handed.append(k)
waited = arrived.index(0)
plots.timeline(spans, f"Batches that arrive before the slow batch 0, and wait for it: {waited}")

# %% tags=["experiment"]
print(f"arrived:    {arrived}\nhanded out: {handed}\nbefore batch 0: {waited} batches{reveal(predicted_waiting)}")
course.claim("batches arrive out of order and are handed out in order", arrived != handed and handed == sorted(handed),
             f"{waited} came before batch 0",
             otherwise="Look at the figure: when did each worker start?")  # fmt: skip

# %% [markdown]
# Worker 1 builds batches 1 and 3 and then has no task: batch 5 needs the slot of batch 1, which waits behind batch 0.
# In torch's loader, `prefetch_factor` sets such a bound.
#
# **Takeaway** The number of slots bounds both the memory and how far one worker runs ahead of another.

# %% [markdown]
# ## What happens when something breaks? · extra
#
# Item 5 of the next dataset raises an error, and item 9 kills its process, as Linux does when memory runs out.
#
# **Predict**: how many seconds until your loader reports the killed worker?

# %%
predicted_report_seconds = None  # your number


# %% tags=["experiment"]
class Breaks(Slow):
    """Item 5 raises, item 9 ends its process from outside, as Linux does when memory runs out."""

    def __getitem__(self, i):
        if i == 5:
            raise ValueError("item 5 cannot be read")
        if i == 9:
            os.kill(os.getpid(), signal.SIGKILL)
        return torch.tensor([i])


before = set(multiprocessing.active_children())
for what, indices in (("an error in a worker", [0, 1, 5, 2]), ("a killed worker", [0, 1, 9, 2])):
    begin, words = time.monotonic(), "nothing was raised"
    try:
        for _ in ours(Breaks(), [[i] for i in indices]):
            pass
    except RuntimeError as error:
        words = str(error).strip()
    left = set(multiprocessing.active_children()) - before
    seconds = time.monotonic() - begin
    print(f"{what}, after {seconds:.2f} s:\n{words}\n")
    course.claim(f"{what} is reported and leaves no process", "nothing" not in words and not left, f"{len(left)} left")
print(f"the killed worker was reported after {seconds:.2f} s" + reveal(predicted_report_seconds))
for _ in ours(light, batches):
    break
left = set(multiprocessing.active_children()) - before
course.claim("a loop that is left by break leaves no process", not left, f"{len(left)} left")

# %% [markdown]
# The traceback names the line in the *worker*, which is the one to fix.
#
# **Takeaway** If you start processes, notice their death by the closed pipe, and end them in `finally`.

# %% [markdown]
# ## Can threads replace processes? · extra
#
# Python usually runs one thread at a time, because each needs the interpreter's lock. Code in C can release the lock
# while it works: torchvision's JPEG decoder does, and so does NumPy on large arrays. Then threads decode in
# parallel, in the memory of one process. `loaders.JpegDecoder(paths)` is given: `decoder(index, out)` writes one image
# into `out`.
#
# ### Exercise 4 · The loader of threads
#
# Write the generator `run`, in which the threads of `pool` write items into slots that are used again and again. Batch
# k goes to the first rows of slot k % slots, each item by `load_into(index, row)`.
#
# **Must**
# - divide the items of each batch among the threads, and yield the batch when all are written;
# - while the caller has a batch, fill all other slots;
# - start the batch that needs a slot again only when the next batch is asked for.
#
# **Raises** what `load_into` raises, when that batch is due.
#
# **Points** 4 · **Extra** · **Difficulty** ●●○ · **Minutes** 20 · **Lines** 14
#
# **Source** Reused buffers as in FFCV, Leclerc et al. 2023, arXiv:2306.12517.
#
# <details><summary>Hint 1</summary>
#
# Which of the three pieces from before do threads still need: pipes, order, slots?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `pool.submit(f, x)` returns a future immediately; `future.result()` waits, and raises what `f` raised. Keep a `deque`
# of batches that are being built, oldest first.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# For each batch: submit one task per thread, and append (rows, futures) to the deque. Once the deque is as long as
# there are slots, take the oldest, wait for its futures and yield its rows. After the loop, the rest likewise.
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
        self.load_into, self.batches, self.buffers, self.threads = load_into, batches, buffers, threads

    def __len__(self):
        """Number of batches in a pass."""
        return len(self.batches)

    def __iter__(self):
        """A new pass: yields tensors (n, ...), the first rows of a slot; passes do not overlap."""
        with ThreadPoolExecutor(self.threads) as pool:  # its threads end with the pass, however that ends
            yield from self.run(pool)

    def run(self, pool):
        """Yield the batches of a pass, whose items the threads of `pool` write."""
        ### BEGIN SOLUTION
        running = deque()
        for number, indices in enumerate(self.batches):
            rows = self.buffers[number % len(self.buffers), : len(indices)]
            running.append((rows, [pool.submit(self.fill, rows, indices, first) for first in range(self.threads)]))
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
# Now the race. All contestants yield equal float batches. For each decoder one has no workers. torch's workers live on,
# while yours start again in each pass.
#
# **Predict**: how many times as fast as PIL + ToTensor without workers is your loader of two threads? And how many
# times as fast as torch's DataLoader is your loader of processes, both with PIL?

# %%
predicted_times_threads, predicted_times_processes = None, None  # your numbers

# %% tags=["experiment"]
torch.set_num_threads(1)  # as in a worker: one image is too little work for several threads
ThreadedLoader_now = course.solved(check.ThreadedLoader)
buffers = loaders.jpeg_buffers(light.paths, 3, sizes.batch_size)
decoder = loaders.JpegDecoder(light.paths)


class Decoded(Dataset):
    """The same items, by torchvision's decoder."""

    def __len__(self):
        return len(light)

    def __getitem__(self, i):
        image = torch.empty(buffers.shape[2:])
        decoder(i, image)
        return image


many = (batches * comparison.STEADY_BATCHES)[: comparison.steady_batches(2)]  # images come again
contestants = {
    "PIL, no workers": of_torch(light, many),
    "PIL, torch's DataLoader, 2 workers": of_torch(light, many, num_workers=2, persistent_workers=True),
    "PIL, your WorkerLoader, 2 workers": ours(light, many),
    "torchvision, no workers": of_torch(Decoded(), many),
    "torchvision, your WorkerLoader, 2 workers": ours(Decoded(), many),
    "torchvision, your ThreadedLoader, 1 thread": ThreadedLoader_now(decoder, many, buffers, 1),
    "torchvision, your ThreadedLoader, 2 threads": ThreadedLoader_now(decoder, many, buffers, 2),
}
first = contestants["PIL, no workers"]
for contestant in contestants.values():
    assert all(torch.equal(a, b) for a, b in zip(contestant, first, strict=True))
compared = functools.partial(loader_passes.compare_loaders, seconds_per_pass=course.solved(check.seconds_per_pass),
                             rounds=sizes.pass_rounds, seconds=sizes.pass_seconds)  # fmt: skip
race = compared(contestants, len(many))
print(race)
plots.ratios(race, "Equal batches, by seven loaders")


# %% tags=["experiment"]
def times_as_fast(one, other):
    """How many times as fast as the contestant `other` the one `one` is, an Interval."""
    return comparison.ratio_interval(race.seconds[other], race.seconds[one])


processes, threads = "torchvision, your WorkerLoader, 2 workers", "torchvision, your ThreadedLoader, 2 threads"
against = times_as_fast("PIL, your WorkerLoader, 2 workers", "PIL, torch's DataLoader, 2 workers")
gain = race.controlled(threads)
print(f"threads: {gain} times{reveal(predicted_times_threads)}")
print(f"processes: {against} times torch's{reveal(predicted_times_processes)}")
course.claim("your loader of processes reaches 0.9 of the speed of torch's", against, above=0.9)
course.claim("your loader of threads is at least twice as fast as PIL + ToTensor without workers", gain, above=2)
course.claim("threads are at least 10 % faster than processes that start in each pass and use the same decoder",
             times_as_fast(threads, processes), above=1.1)  # fmt: skip

# %% [markdown]
# The last cell changes only what `load_into` does: it decodes, or it computes in Python, which keeps the lock.
#
# **Predict**: with work in Python, how many times as fast are two threads as one?

# %%
predicted_python_threads = None  # your number


# %% tags=["experiment"]
def in_python(index, out):
    """Take a while, in Python."""
    sum(k * k for k in range(10_000))


few = batches[:8]
pairs = {"decodes": decoder, "computes in Python": in_python}
gains = {}
for what, work in pairs.items():
    both = {f"{what}, {threads}": ThreadedLoader_now(work, few, buffers, threads) for threads in (1, 2)}
    passes = compared(both, len(few))
    print(passes)
    gains[what] = passes.controlled(f"{what}, 2")
python = gains["computes in Python"]
print(f"two threads against one, computing in Python: {python} times as fast" + reveal(predicted_python_threads))
course.claim("a second thread gains at least 10 % more if the threads decode than if they compute in Python",
             comparison.quotient(gains["decodes"], python), above=1.1,
             otherwise="Look at the number of cores that the first cell prints, at `sys._is_gil_enabled()` in "
                       "Python 3.13 or later, and at what else runs.")  # fmt: skip

# %% [markdown]
# For the race on all images, run `course bench lfw paths --batch-size 64`.
#
# torch's loader does more than yours: it collates any structure, pins batches in a thread, reads streams, and has a
# `timeout`.
#
# **Takeaway** Threads share memory and need no start; they pay if the work releases Python's lock.
