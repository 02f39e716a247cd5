# %% [markdown]
# # Parallel loading, part 6: Build a loader yourself
#
# **What does a loader with worker processes have to get right, and can you match the speed of torch's?**
#
# A `DataLoader` with workers gives batches in order although they finish out of order, repeats its random numbers,
# moves megabytes between processes without copying them, and leaves no process behind when something breaks. You write
# each of these in about a hundred lines, race your loader against torch's, and then write the loader that wins: threads
# that decode into memory that is used again.
#
# All exercises of this part are extra.
#
# **You will be able to**
#
# - say what travels between the main process and a worker, and what does not;
# - bring results back into order without waiting longer than necessary;
# - start, feed, watch and end worker processes;
# - write a loader of threads, and say when it beats processes.
#
# **Minutes** 0 core · 135 in all
#
# **Needs** parts 1 and 2: `LFWDataset`, `heavy_transform`, `seconds_per_pass` and `sweep` are taken over if you
# solved them

# %% locked="setup"
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
from course.loading import loaders
from course.measure import timing
from course.plots import parallel_loading as plots

warnings.filterwarnings("ignore", "This process .* is multi-threaded")  # we fork on purpose, as part 3 explains
print(course.machine())

# %% [markdown]
# ## The worker
#
# **A worker gets numbers and returns a number; the pixels never travel.**
#
# The design has three pieces. Before any process starts, the main process makes a tensor `buffers` of a few batches in
# *shared memory*: pages that several processes map, so that what one writes the others read. Each batch-sized row of
# `buffers` is a *slot*; batch number k uses slot k modulo the number of slots. Each worker has a *pipe*, a channel with
# two ends through which Python objects travel as pickles. The main process sends a *task*, the number of a batch and
# the indices of its items. The worker writes the items into the slot and sends back the number.
#
# torch's `DataLoader` makes fresh shared memory for each batch and sends where it is, so a batch is yours to keep. Ours
# is overwritten when its slot is needed again: use it before you ask for the next one, or `clone()` it.
#
# **Predict**: at 32 float images of 250 × 250 a batch has 24 MB. How many bytes does the worker send back per batch?

# %%
predicted_bytes = None

# %% [markdown]
# ### Exercise 1 · The worker's loop
#
# Write the function that each worker process runs.
#
# **Must**
# - first call `torch.set_num_threads(1)`, and seed `torch` and `random` with `seed`, `np.random` with `seed % 2**32`;
# - receive tasks `(number, indices)` until the task is None, then return;
# - write `dataset[index]` for each index, in order, into the first rows of slot `number % len(buffers)`, without making
#   the batch anywhere else;
# - then send `(number, None)`; if an item raises an Exception, send `(number, text of its traceback)` and go on.
#
# **You may assume** that every item fits into its row.
#
# **Points** 3 · **Extra** · **Difficulty** ●●○ · **Minutes** 22 · **Lines** 13
#
# **Source** `torch/utils/data/_utils/worker.py` in PyTorch, whose loop has the same steps.
#
# <details><summary>Hint 1</summary>
#
# Why one thread? Every worker is a process with as many threads as there are cores, unless you say otherwise.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `iter(pipe.recv, None)` gives what `pipe.recv()` returns until that is None. `batch[row] = item` copies an item into
# shared memory. `traceback.format_exc()` is the text of the exception that is being handled.
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
    ### BEGIN SOLUTION
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed % 2**32)
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
# A loop without processes: the pipe below only counts, and the worker's loop runs here in the notebook.


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
# Each pixel is written once into the batch, by the process that made it, and read where it lies. Where a batch is a few
# numbers, the message is as large as the batch, and a worker is worth its pipe only if its numbers take long to make.

# %% [markdown]
# ## The order
#
# **Batches finish in any order, and training must not depend on it.**
#
# A batch with a large file takes longer than the next one. If the loop got batches as they finish, a second run would
# train on another order, and no result could be repeated. So what arrives early waits until its turn.
#
# **Predict**: two workers, each builds every other batch; batch 0 takes as long as five others. There are 4 slots, so
# only the batches 0 to 3 may be begun before batch 0 is handed out. How many finished ones wait when it arrives?

# %%
predicted_waiting = None

# %% [markdown]
# ### Exercise 2 · Back into order
#
# Results arrive as pairs (number, thing), numbers from 0 on, each once. Write the generator that yields the things in
# the order of their numbers.
#
# **Must**
# - yield thing k as soon as the things 0 to k have arrived: take no further pair from `arrivals` before that;
# - hand on any thing, None too.
#
# **Raises** RuntimeError if `arrivals` ends while a number is missing and later ones have come.
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
# Keep early things in a dictionary by their numbers. After each arrival, hand out while the number that is due is in
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
# ## The main process
#
# **It hands out tasks, waits for whoever reports first, and ends what it has started.**
#
# `context = mp.get_context("fork")` gives `context.Pipe()`, two connected ends, and `context.Process(target=function,
# args=(...), daemon=True)`, which `start()` runs in a copy of this process; a daemon ends when the main process does.
# `multiprocessing.connection.wait` takes a list of pipes, blocks until one has something to read, and returns those
# that have. A pipe whose other end is closed counts as well: when its process has died, for whatever reason, `recv`
# raises EOFError or an OSError, if the main process has closed its own copy of that end. (On Windows and macOS
# processes start by *spawn*: dataset and `loop` then have to stand in a module that the new process can import, not in
# a notebook.)
#
# `batches` may be a batch sampler, which gives other batches in each pass. `__init__` may iterate it, too, to find the
# largest batch; no later one is larger.
#
# ### Exercise 3 · The loader
#
# Write the main side, which gives batches of worker processes in order.
#
# **Must**
# - in `__init__`, make `slots` batches in shared memory, sized for the largest, with shape and dtype of `dataset[0]`;
# - in each pass, iterate `batches` anew; draw `base = torch.empty((), dtype=torch.int64).random_().item()`; start
#   `num_workers` daemons that run `loop(dataset, base + w, pipe, buffers)`;
# - send batch k to worker k % num_workers: `slots` tasks at once, one more when the next batch is asked for;
# - pass what arrives through `order`;
# - whenever a pass ends: send None, terminate who still runs a second later, join all.
#
# **Raises** RuntimeError holding the worker's traceback, when that batch is due; RuntimeError if a worker dies.
#
# **Points** 6 · **Extra** · **Difficulty** ●●● · **Minutes** 50 · **Lines** 40
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
# Three small methods beside `__iter__`: one starts a worker and closes the worker's end of the pipe here, one yields
# `pipe.recv()` of every pipe that is ready until as many results have come as there are batches, one ends everything.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# `for number, error in enumerate(self.order(self.arrivals(...)))`: raise if there is an error, else yield
# `self.buffers[number % slots, :len(batches[number])]`. The line after the yield runs when the next batch is asked for,
# so the slot is free: send task number + slots there. The pipe of a dead worker raises an OSError on send.
#
# </details>


# %% solution="WorkerLoader"
class WorkerLoader:
    """Batches built by worker processes in shared memory; a batch is valid until the next one is asked for.

    Args:
        dataset: dataset[i] is a tensor, of one shape and dtype for all i.
        batches: list of lists of indices, at least one, or a batch sampler: gives them anew for each pass.
        num_workers: int, 1 or more.
        loop: what a worker runs, loop(dataset, seed, pipe, buffers).
        order: pairs (number, thing) in any order -> things in order.
        slots: int, batches that exist at a time, the one that the caller has included.
    """

    def __init__(self, dataset, batches, num_workers, loop, order, slots=4):
        ### BEGIN SOLUTION
        self.dataset, self.batches, self.num_workers = dataset, batches, num_workers
        self.loop, self.order = loop, order
        item, largest = dataset[0], max(map(len, batches))
        self.buffers = torch.empty(slots, largest, *item.shape, dtype=item.dtype).share_memory_()
        ### END SOLUTION

    def __len__(self):
        """Number of batches in a pass."""
        ### BEGIN SOLUTION
        return len(self.batches)
        ### END SOLUTION

    def __iter__(self):
        """A new pass: yields tensors (n, ...) in shared memory; passes do not overlap."""
        ### BEGIN SOLUTION
        batches, slots, workers = list(self.batches), len(self.buffers), []

        def send(number):
            if number < len(batches):
                with suppress(OSError):  # of a dead worker: `arrivals` says so
                    workers[number % self.num_workers][1].send((number, batches[number]))

        try:
            base = torch.empty((), dtype=torch.int64).random_().item()
            for w in range(self.num_workers):
                workers.append(self.started(base + w))
            for number in range(slots):
                send(number)
            for number, error in enumerate(self.order(self.arrivals(workers, len(batches)))):
                if error:
                    raise RuntimeError(f"in a worker, for batch {number}:\n{error}")
                yield self.buffers[number % slots, : len(batches[number])]
                send(number + slots)
        finally:
            self.end(workers)

    def started(self, seed):
        context = mp.get_context("fork")
        mine, theirs = context.Pipe()
        process = context.Process(target=self.loop, args=(self.dataset, seed, theirs, self.buffers), daemon=True)
        process.start()
        theirs.close()  # else the end of the process would not close the pipe
        return process, mine

    def arrivals(self, workers, n):
        pipes = [pipe for _, pipe in workers]
        while n:
            for pipe in wait(pipes):
                try:
                    arrival = pipe.recv()
                except (EOFError, OSError):
                    raise RuntimeError("a worker died before its batches arrived") from None
                yield arrival
                n -= 1

    def end(self, workers):
        for _, pipe in workers:
            with suppress(OSError):
                pipe.send(None)
        for process, _ in workers:
            process.join(1)
            process.terminate()
            process.join()
        ### END SOLUTION


# %% test="WorkerLoader-visible" points=3
check.WorkerLoader(WorkerLoader)

# %% test="WorkerLoader-hidden" points=3
### BEGIN HIDDEN TESTS
check.WorkerLoader(WorkerLoader, seed=3)
### END HIDDEN TESTS

# %% [markdown]
# ### Does it give what torch's loader gives?
#
# torch too draws one base seed per pass, seeds worker w with base + w, and sends batch k to worker k modulo the number
# of workers. So after the same `torch.manual_seed` both should draw the same random augmentations.

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
    otherwise="Compare the seeds: yours start from another base, or another worker built the batch.",
)
course.claim("all your batches lie in the slots that were made once", len({*my_places}) <= 4,
             f"{len({*my_places})} places for {len(mine)} batches")  # fmt: skip

# %% [markdown]
# A torch batch is yours for good: keep it, and the next one lies elsewhere. Yours is overwritten, so this cell cloned
# each.

# %% [markdown]
# ### Who waits for whom?


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
    time.sleep(0.006)  # the loop's work
    spans += [(f"worker {k % 2}", k, start, end), ("the loop", k, now, now + 0.006)]
    handed.append(k)
plots.timeline(spans, "Two workers, 4 slots; batch 0 takes five times as long, the loop 6 ms per batch")

# %% tags=["experiment"]
waited = arrived.index(0)
print(f"arrived:    {arrived}\nhanded out: {handed}\nbefore batch 0: {waited} batches{reveal(predicted_waiting)}")
course.claim("batches arrive out of order and are handed out in order", arrived != handed and handed == sorted(handed),
             f"{waited} came before batch 0",
             otherwise="The machine was so busy that worker 1 started late.")  # fmt: skip

# %% [markdown]
# Worker 1 builds batches 1 and 3 and then has no task: batch 5 needs the slot of batch 1, which waits behind batch 0.
# The slots bound the memory and, with it, how far one worker can run ahead of the other. More slots bridge longer gaps;
# `prefetch_factor` of torch's loader is the same bound.

# %% [markdown]
# ### What happens when something breaks?


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
    print(f"{what}, after {time.monotonic() - begin:.2f} s:\n{words}\n")
    course.claim(f"{what} is reported and leaves no process", "nothing" not in words and not left, f"{len(left)} left")
for _ in ours(light, batches):
    break
left = set(multiprocessing.active_children()) - before
course.claim("a loop that is left by break leaves no process", not left, f"{len(left)} left")

# %% [markdown]
# The traceback names the line in the *worker*, which is the one to mend. A killed worker can report nothing; that its
# pipe is closed reports it. A loader that keeps the worker's end open in the main process would wait for ever.

# %% [markdown]
# ## Threads instead of processes
#
# **Where decoding releases Python's lock, threads need no pipe, no start and no shared memory.**
#
# Python runs one thread at a time, because a thread needs the interpreter's lock. Code in C can release it while it
# works: torchvision's JPEG decoder does, and NumPy's arithmetic on large arrays. Then threads decode in parallel, all
# of them in the memory of the main process. `loaders.JpegDecoder(paths)` is given: `decoder(index, out)` writes one
# image into `out`.
#
# ### Exercise 4 · The loader of threads
#
# Write a loader whose threads write items into slots that are used in turn.
#
# **Must**
# - build batch k in the first rows of slot k % slots, each item by `load_into(index, row)`;
# - while the caller has a batch, fill all other slots (with one slot, none);
# - yield each batch when all its items are written, in order, not a copy;
# - begin the batch that needs a slot again only when the next batch is asked for;
# - divide the items of each batch among `threads` threads, which end with the pass, however it ends.
#
# **Raises** what `load_into` raises, when that batch is due.
#
# **Points** 4 · **Extra** · **Difficulty** ●●○ · **Minutes** 25 · **Lines** 20
#
# **Source** Reused buffers as in FFCV, Leclerc et al. 2023, arXiv:2306.12517.
#
# <details><summary>Hint 1</summary>
#
# Which of the three pieces from before do threads still need: seeds, pipes, order, slots?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `ThreadPoolExecutor.submit(f, x)` returns a future at once; `future.result()` waits and raises what `f` raised. Keep a
# `deque` of batches that are being built, oldest first.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# For each batch: submit its tasks and append (rows, futures) to the deque; once the deque is as long as there are
# slots, take the oldest, wait for its futures and yield its rows. After the loop, the rest likewise. `finally:
# pool.shutdown(cancel_futures=True)`. Several items per task cost less than one.
#
# </details>


# %% solution="ThreadedLoader"
class ThreadedLoader:
    """Batches that threads write into reused memory; a batch is valid until the next one is asked for.

    Args:
        load_into: load_into(index, out) writes item `index` into the tensor `out`.
        batches: list of lists of indices, or a batch sampler.
        buffers: tensor (slots, batch size, ...).
        threads: int, 1 or more.
    """

    def __init__(self, load_into, batches, buffers, threads):
        ### BEGIN SOLUTION
        self.load_into, self.batches, self.buffers, self.threads = load_into, batches, buffers, threads
        ### END SOLUTION

    def __len__(self):
        """Number of batches in a pass."""
        ### BEGIN SOLUTION
        return len(self.batches)
        ### END SOLUTION

    def __iter__(self):
        """A new pass: yields tensors (n, ...), the first rows of a slot; passes do not overlap."""
        ### BEGIN SOLUTION
        pool, running = ThreadPoolExecutor(self.threads), deque()
        try:
            for number, indices in enumerate(self.batches):
                rows = self.buffers[number % len(self.buffers), : len(indices)]
                starts = range(self.threads)
                running.append((rows, [pool.submit(self.fill, rows, indices, start) for start in starts]))
                if len(running) == len(self.buffers):
                    yield self.finished(*running.popleft())
            while running:
                yield self.finished(*running.popleft())
        finally:
            pool.shutdown(cancel_futures=True)

    def fill(self, rows, indices, start):
        for row in range(start, len(indices), self.threads):
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
# ## The race
#
# **What a loader leaves out decides, not how many processes it starts.**
#
# All contestants give the same float batches, from PIL and ToTensor or from torchvision's decoder. With each decoder
# there is a line without workers, so that you can tell what the decoder is worth from what the loader is worth. Every
# loader with workers starts them anew in each pass.
#
# **Predict**: how many times as fast as PIL + ToTensor without workers is your loader of threads? And how many times
# as fast as torch's DataLoader is your loader of processes, both with PIL?

# %%
predicted_times_threads, predicted_times_processes = None, None

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


contestants = {
    "PIL, no workers": of_torch(light, batches),
    "PIL, torch's DataLoader, 2 workers": of_torch(light, batches, num_workers=2),
    "PIL, your WorkerLoader, 2 workers": ours(light, batches),
    "torchvision, no workers": of_torch(Decoded(), batches),
    "torchvision, your WorkerLoader, 2 workers": ours(Decoded(), batches),
    "torchvision, your ThreadedLoader, 1 thread": ThreadedLoader_now(decoder, batches, buffers, 1),
    "torchvision, your ThreadedLoader, 2 threads": ThreadedLoader_now(decoder, batches, buffers, 2),
}
first = contestants["PIL, no workers"]
for contestant in contestants.values():
    assert all(torch.equal(a, b) for a, b in zip(contestant, first, strict=True))
seconds = timing.time_in_turn(
    contestants.values(),
    sizes.rounds,
    seconds_per_pass=course.solved(check.seconds_per_pass),
)
for i, name in enumerate(contestants):
    print(f"{name:<44} {timing.speedup(seconds, i)} times the first line")
rates = dict(zip(contestants, len(light) / seconds, strict=True))
plots.bars(rates, "images/s", f"Seven ways to equal batches of {sizes.batch_size}")


# %% tags=["experiment"]
def times_as_fast(one, other):
    """How many times as fast as the contestant number `other` the one number `one` is, the median of the rounds."""
    return (seconds[other] / seconds[one]).quantile(0.5).item()


against, gain = times_as_fast(2, 1), times_as_fast(6, 0)
print(f"threads: {gain:.2f} times{reveal(predicted_times_threads)}")
print(f"processes: {against:.2f} times torch's{reveal(predicted_times_processes)}")
otherwise = "Look at the spread first: another program used the cores, or there is only one."
course.claim(
    "your loader of processes reaches 0.9 of the speed of torch's",
    against >= 0.9,
    f"{against:.2f} times",
    otherwise=otherwise,
)
course.claim("your loader of threads is at least twice as fast as PIL + ToTensor without workers", gain >= 2,
             f"{gain:.2f} times",
             otherwise="Look at the spread first: another program used the cores, or there is only one, and threads "
                       "gain only what they leave out.")  # fmt: skip
course.claim("torchvision's decoder alone makes loading at least 1.2 times as fast", times_as_fast(3, 0) > 1.2,
             f"{times_as_fast(3, 0):.2f} times, without workers",
             otherwise="This gain is small and noisy: on one machine it varied from 1.04 to 1.34 times. The lines "
                       "below show what reused memory and threads add.")  # fmt: skip
course.claim("threads beat processes that use the same decoder", times_as_fast(6, 4) > 1,
             f"{times_as_fast(6, 4):.2f} times as fast", otherwise=otherwise)  # fmt: skip

# %% [markdown]
# torch's loader makes new shared memory for each batch, and the operating system clears every page of it before use
# (part 3 counts them); your slots are made once. With so light a transform two processes may even be slower than none
# (part 4). A part of what the loader of threads gains is the decoder, which leaves out PIL's copies on the way to a
# tensor; the lines that share the decoder show what reused memory and the second thread add. Threads need no start and
# no pipe, which counts in a short pass and hardly in a long one; and `Decoded` makes each image in memory of its own,
# from which it is copied into the slot, while a thread decodes into the slot. Transforms written in Python hold the
# lock while they run, so processes are the right choice there. `course bench lfw paths --batch-size 64` runs the race
# on all images.

# %% [markdown]
# ## What torch's loader does besides
#
# - It keeps workers over epochs (`persistent_workers`), pins batches in a thread (`pin_memory`), collates any structure
#   of tensors, and reads iterable datasets.
# - Its workers look every few seconds whether the main process still lives; yours are daemons, which end with it unless
#   it is killed.
# - It calls your `worker_init_fn` in each worker, waits at most `timeout`, and warns of more workers than cores.
#
# ## What to take with you
#
# - Send numbers between processes and leave the data where it is.
# - The number of slots bounds both memory and how far workers run ahead.
# - Whoever starts processes has to notice their death and has to end them: a closed pipe, `finally`, `join`.
# - Before you add processes, ask whether the work releases the lock: then threads do it for less.
