# %% [markdown]
# # Parallel loading, part 3: Seed your workers, and know what they cost
#
# **Do the workers draw different random numbers, and what does a process cost?**
#
# Each worker has a copy of your dataset. You find out which random numbers that copy draws, and write the function that
# seeds it. The other sections measure what processes cost.
#
# **You will be able to**
#
# - seed workers so that they differ, and so that a second run repeats them;
# - say what a worker gets from your process with fork, forkserver and spawn;
# - set the loader options that concern processes.
#
# **Minutes** 15 core · 39 in all
#
# **Needs** parts 1 and 2: your `LFWDataset` and `seconds_per_pass` are used if you solved them

# %% locked="setup"
import itertools
import time
import warnings
from multiprocessing.reduction import ForkingPickler

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset, default_collate, get_worker_info

import course
from course.checks import parallel_loading as check
from course.datasets import lfw
from course.learner.predictions import reveal
from course.loading import inherited, loader_passes, loaders
from course.measure import comparison
from course.plots import parallel_loading as plots

warnings.filterwarnings("ignore", "This DataLoader will create")  # more workers than cores: we try that on purpose
warnings.filterwarnings("ignore", ".*use of fork\\(\\) may lead to deadlocks", DeprecationWarning)  # see below
print(course.machine())

# %% tags=["experiment"]
torch.set_num_threads(1)  # as in a worker: one image is too little work for several threads
sizes = course.sizes("01_parallel_loading")
LFWDataset_now = course.solved(check.LFWDataset)
limits = dict(rounds=sizes.pass_rounds, seconds=sizes.pass_seconds)  # of each comparison
folder = lfw.folder(sizes.dataset)
forks = dict(multiprocessing_context="fork")  # classes from a notebook cell exist only in forked workers

# %% [markdown]
# ## Do the workers draw different numbers?
#
# This dataset adds noise from a generator that it keeps:
#
# ```python
# class Noisy(Dataset):
#     def __init__(self, images):
#         self.images, self.rng = images, np.random.default_rng(0)
#
#     def __getitem__(self, i):
#         return self.images[i] + self.rng.normal()
# ```
#
# **Predict**: an epoch of 12 items, two workers, each item a number from 0 to 999 drawn from such a generator. How many
# different numbers are among the 12?

# %%
predicted_different = None  # your number


# %% tags=["experiment", "nbval-check-output"]
class Dice(Dataset):
    """Throws of a die with 1,000 faces, from a Generator that was made when the dataset was."""

    def __init__(self):
        self.rng = np.random.default_rng(0)

    def __len__(self):
        return 12

    def __getitem__(self, i):
        return int(self.rng.integers(1000))


def throws(init=None):
    """The batches of two epochs, lists of numbers, thrown by two workers; print them."""
    loader = DataLoader(
        Dice(), 3, num_workers=2, worker_init_fn=init, generator=torch.Generator().manual_seed(0), **forks
    )
    thrown = [[batch.tolist() for batch in loader] for _ in range(2)]
    for epoch, batches in enumerate(thrown):
        print(f"epoch {epoch}: " + "  ".join(map(str, batches)))
    return thrown


copied = throws()

# %% tags=["experiment"]
different = len({number for batch in copied[0] for number in batch})
print(f"{different} different numbers of 12" + reveal(predicted_different))
course.claim("two workers draw the same numbers from a generator that the dataset keeps", different == 6)
course.claim("the second epoch repeats the first one", copied[0] == copied[1])

# %% [markdown]
# Worker 0 builds batches 0 and 2, worker 1 the others. Both draw the same numbers, and the next epoch repeats them.
# Nothing fails. The training just sees a fraction of the noise that you paid for.
#
# PyTorch seeds some generators for you. It draws a *base seed* whenever it starts workers, from the loader's
# `generator` if there is one. In worker $w$ it seeds torch, Python's `random` and `np.random` from base seed + $w$, so
# transforms of torchvision are safe. A generator that *you* keep in the dataset stays a copy, unless a `worker_init_fn`
# replaces it. The loader calls that function in each worker as it starts.
#
# ### Exercise 1 · Seed the workers
#
# Write the `worker_init_fn` that gives the dataset of each worker a new generator.
#
# **Must**
# - replace `rng` of the worker's dataset by a new `numpy.random.Generator`, different in each worker and each epoch;
# - follow the loader's seed: the same `generator=torch.Generator().manual_seed(s)` gives the same numbers again;
# - in the main process, do nothing and draw nothing.
#
# ```python
# >>> seed_worker(0) is None  # here in the main process
# True
# ```
#
# **Points** 3 · **Core** · **Difficulty** ●●○ · **Minutes** 10 · **Lines** 3
#
# **Source** PyTorch documentation of `torch.utils.data`, "Randomness in multi-process data loading".
#
# <details><summary>Hint 1</summary>
#
# Which number is different in each worker *and* in each epoch *and* the same in a second run? Is the worker's id?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `get_worker_info()` has, besides `id`, the `seed` of this worker in this epoch and the worker's own copy of the
# `dataset`. In the main process it is None.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# `info = get_worker_info()`; if it is not None, `info.dataset.rng` becomes `np.random.default_rng(info.seed)`.
#
# </details>


# %% solution="seed_worker"
def seed_worker(worker_id):
    """Replace the `rng` of this worker's dataset by a Generator that follows from the worker's seed.

    Args:
        worker_id: number of the worker, from 0; the loader calls `worker_init_fn` with it in every new worker.
    """
    ### BEGIN SOLUTION
    info = get_worker_info()
    if info is not None:
        info.dataset.rng = np.random.default_rng(info.seed)  # the base seed of these workers + worker_id
    ### END SOLUTION


# %% test="seed_worker-visible" points=1
check.seed_worker(seed_worker)

# %% test="seed_worker-hidden" points=2
### BEGIN HIDDEN TESTS
check.seed_worker(seed_worker, seed=19)
### END HIDDEN TESTS

# %% tags=["experiment", "nbval-check-output"]
seeded = throws(course.solved(check.seed_worker))

# %% tags=["experiment"]
numbers = [number for epoch in seeded for batch in epoch for number in batch]
course.claim("with seed_worker no worker and no epoch repeats the numbers of another",
             len(set(numbers)) > 20, f"{len(set(numbers))} different numbers of 24")  # fmt: skip

# %% [markdown]
# Call `throws(seed_worker)` again: it prints the same 24 numbers.
#
# **Takeaway** A generator in the dataset is copied into each worker; seed it there, from `get_worker_info().seed`.

# %% [markdown]
# ## Does another start method help? · extra
#
# These notebooks start workers by *fork*: the worker is a copy of the running process, memory and all. *Spawn* starts a
# new Python, and *forkserver* forks a clean helper process. Both then send the dataset as a pickle. Linux forks by
# default up to Python 3.13 and uses `forkserver` from 3.14 on; macOS and Windows spawn. You choose one with
# `DataLoader(..., multiprocessing_context="spawn")`.
#
# **Predict**: under which of the three do workers repeat the numbers of the dataset's generator?

# %%
predicted_repeating = None  # a set, such as {"fork", "spawn"}

# %% tags=["experiment"]
has = {method: inherited.inherited(method, "Dice") for method in ("fork", "forkserver", "spawn")}
print(f"{'a worker':<46}" + "".join(f"{method:>12}" for method in has))
for what in has["fork"]:
    print(f"{what:<46}" + "".join(f"{'yes' if of_worker[what] else 'no':>12}" for of_worker in has.values()))
generator, shared, plain, module, notebook, held = has["fork"]
print(f"the generator repeats under {', '.join(m for m in has if has[m][generator])}" + reveal(predicted_repeating))
course.claim("workers repeat the numbers of the dataset's generator under every start method",
             all(of_worker[generator] for of_worker in has.values()))  # fmt: skip
course.claim("only a forked worker has the names that a notebook defines",
             [method for method in has if has[method][notebook]] == ["fork"])  # fmt: skip
course.claim("a lock that was held at the start stays locked in a forked worker and in no other",
             [method for method in has if has[method][held]] == ["fork"])  # fmt: skip
course.claim("under every start method a worker sees changes of shared memory, and not of a plain attribute",
             all(of_worker[shared] and not of_worker[plain] for of_worker in has.values()))  # fmt: skip

# %% [markdown]
# So you need `seed_worker` under every start method. The other rows say which one to use:
#
# - In a *notebook*, ask for `multiprocessing_context="fork"`. The others look for your class in a notebook that they do
#   not have, and fail.
# - In a *script*, leave the default alone. Put the dataset into a module, and the start of your program below
#   `if __name__ == "__main__":`. Pass settings through the dataset, since globals that you have set do not arrive.
# - A forked worker may hang on a lock that another thread held, and it cannot use CUDA once your process has. So let
#   the dataset return CPU tensors.
#
# **Takeaway** Every start method copies the dataset, its generator included. Only fork also copies your notebook.

# %% [markdown]
# ## Do persistent workers notice a new epoch? · extra
#
# With seeded workers, an image gets another augmentation when you change the number of workers. A seed for each image
# avoids that. The cell makes it from three numbers: run, epoch and index.
#
# The dataset keeps the number of the epoch, which the main process sets before each epoch. *Persistent* workers live
# for all epochs.
#
# **Predict**: the workers are persistent, and the epoch is a plain attribute of the dataset. Are the augmentations of
# epochs 0 and 1 equal?

# %%
predicted_repeats = None  # True or False

# %% tags=["experiment"]
heavy = loaders.evenly_spaced(LFWDataset_now(folder, lfw.heavy_transform()), sizes.images)


def sample_seed(seed, epoch, index):
    """An int that NumPy hashes from the three numbers: the same in every process and every run."""
    return int(np.random.default_rng((seed, epoch, index)).integers(2**63))


class Augmented(Dataset):
    """The means of the first 12 images of `data`, augmented by (0, epoch, index) alone."""

    def __init__(self, data, shared):
        self.data = data
        self.epoch = torch.zeros(1, dtype=torch.int64)
        if shared:
            self.epoch.share_memory_()

    def set_epoch(self, epoch):
        """Choose the augmentations of the next epoch."""
        self.epoch[0] = epoch

    def __len__(self):
        return 12

    def __getitem__(self, i):
        with torch.random.fork_rng(devices=()):  # with 0 workers, the training keeps its random numbers
            torch.default_generator.manual_seed(sample_seed(0, int(self.epoch), i))
            return self.data[i].mean()


def two_epochs(data, num_workers):
    """The 12 means of epochs 0 and 1, lists, from one loader."""
    batches, epochs = loaders.forked(data, 4, num_workers), []
    for epoch in range(2):
        data.set_epoch(epoch)
        epochs.append(torch.cat(list(batches)).tolist())
    return epochs


means = {n: two_epochs(Augmented(heavy, shared=True), n) for n in (0, 1, 3)}
course.claim("with a seed per image, the augmentation of an image does not depend on the number of workers",
             means[0] == means[1] == means[3], f"image 9: {means[0][0][9]:.4f} with 0, 1 and 3 workers")  # fmt: skip
plain_epochs = two_epochs(Augmented(heavy, shared=False), 2)
print(f"epoch as a plain attribute: epoch 1 repeats epoch 0: {plain_epochs[0] == plain_epochs[1]}"
      + reveal(predicted_repeats))  # fmt: skip
course.claim(
    "persistent workers repeat their augmentation if they do not see the epoch", plain_epochs[0] == plain_epochs[1]
)
course.claim(
    "persistent workers do not repeat their augmentation if the epoch is in shared memory", means[3][0] != means[3][1]
)

# %% [markdown]
# **Takeaway** Persistent workers keep the dataset that they started with: tell them the epoch through shared memory.

# %% [markdown]
# ## How many numbers does a stream give? · extra
#
# An `IterableDataset` has no indices, only an `__iter__`.
#
# **Predict**: a stream of 8 numbers, two workers. How many numbers arrive?

# %%
predicted_arrive = None  # your number


# %% tags=["experiment"]
class Stream(IterableDataset):
    """The numbers 0 to n - 1; with `sharded`, each worker gives every num_workers-th one."""

    def __init__(self, n, sharded):
        self.n, self.sharded = n, sharded

    def __iter__(self):
        info = get_worker_info()
        first, step = (info.id, info.num_workers) if info and self.sharded else (0, 1)
        return iter(range(first, self.n, step))


arrived = {s: [int(i) for b in DataLoader(Stream(8, s), 2, num_workers=2, **forks) for i in b] for s in (False, True)}
print(f"as it is: {arrived[False]}, {len(arrived[False])} numbers" + reveal(predicted_arrive))
print(f"sharded:  {arrived[True]}")
course.claim("each worker yields the whole stream unless the dataset divides it", len(arrived[False]) == 16)
course.claim("with the stream sharded by worker, each number arrives once", sorted(arrived[True]) == list(range(8)))

# %% [markdown]
# With several ranks, divide by rank too: start at `rank * num_workers + info.id`, in steps of `world_size *
# num_workers`.
#
# **Takeaway** A stream arrives once per worker, unless it asks which worker it is in and yields its share.

# %% [markdown]
# ## What does a batch cost on its way? · extra
#
# A worker's `collate_fn` stacks the images into shared memory. The message says only where they are. So does the type
# of the numbers matter, or the number of bytes?
#
# **Predict**: one worker has nothing to compute. How many ms does a batch of 32 float images (24 MB) take?

# %%
predicted_transfer_ms = None  # your number


# %% tags=["experiment"]
class Same(Dataset):
    """The same item again and again."""

    def __init__(self, item, n):
        self.item, self.n = item, n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        return self.item


def examined(samples):
    """(whether the collated batch is in shared memory, the bytes of the message about it)."""
    batch = default_collate(samples)
    return batch.is_shared(), len(ForkingPickler.dumps(batch))


image, n_batches = torch.zeros(3, 250, 250, dtype=torch.uint8), sizes.handed_over
seen = {n: next(iter(DataLoader(Same(image, n), n, num_workers=1, collate_fn=examined, **forks))) for n in (8, 64)}
course.claim("a worker collates into shared memory", all(shared for shared, _ in seen.values()))
course.claim("the message is as short for 64 images as for 8", seen[64][1] < seen[8][1] + 100,
             f"{seen[64][1]} bytes")  # fmt: skip

items = {
    "floats, 24 MB": image.float(),
    "bytes, 6 MB": image,
    "larger images, bytes, 24 MB": torch.zeros(3, 500, 500, dtype=torch.uint8),
}
ways = {label: loaders.forked(Same(item, 32 * n_batches), 32, 1) for label, item in items.items()}
ways["floats, 24 MB, no worker"] = DataLoader(Same(image.float(), 32 * n_batches), 32)
sent = loader_passes.compare_loaders(ways, n_batches, course.solved(check.seconds_per_pass), **limits)
print(sent)
ms = 1000 * sent.median("floats, 24 MB") / n_batches
print(f"24 MB of floats: {ms:.1f} ms per batch" + reveal(predicted_transfer_ms))
course.claim("sending floats takes as long as sending the same number of bytes of another type, within 20 %",
             sent.controlled("larger images, bytes, 24 MB"), within=(0.8, 1.2))  # fmt: skip
course.claim("sending images as bytes is at least twice as fast as sending them as floats",
             sent.controlled("bytes, 6 MB"), above=2)  # fmt: skip
plots.ratios(sent, "A batch of 32 images on its way from one worker")

# %% [markdown]
# The last way stacks the same floats without a worker: what it saves is what sending costs, the stacking aside.
#
# **Takeaway** The number of bytes counts, not their type: send `uint8`, and convert to float on the device that
# computes.

# %% [markdown]
# ## What does a start cost? · extra
#
# The next cell times two workers of a tiny dataset, from the start of an epoch to the first batch.
#
# **Predict**: how many times as long as a forked worker does a spawned one take?

# %%
predicted_spawn_times = None  # your number

# %% tags=["experiment"]
tiny = TensorDataset(torch.zeros(8, 1))
once = loaders.forked(tiny, 4, 2)  # persistent
starting = {method: DataLoader(tiny, 4, num_workers=2, multiprocessing_context=method) for method in has}
starting["fork, persistent, second epoch on"] = once


def seconds_to_first_batch(loader):
    """Seconds from the start of an epoch to its first batch; the rest of it is taken, too."""
    begin = time.perf_counter()
    batches = iter(loader)
    next(batches)
    seconds = time.perf_counter() - begin
    list(batches)
    return seconds


starts = comparison.compare_measured(list(starting), lambda method: seconds_to_first_batch(starting[method]),
                                     rounds=sizes.start_rounds)  # fmt: skip
print(starts)
spawn = comparison.ratio_interval(starts.seconds["spawn"], starts.seconds["fork"])
print(f"spawn takes {spawn} times as long as fork" + reveal(predicted_spawn_times))
course.claim("two workers take more than five times as long to start by spawn as by fork", spawn, above=5)
course.claim("persistent workers give the first batch of a later epoch in less than half the time of forking new ones",
             starts.controlled("fork, persistent, second epoch on"), above=2)  # fmt: skip
plots.ratios(starts, "From the start of an epoch to its first batch, two workers")

# %% [markdown]
# These loader options concern processes:
#
# | option | what it does | set it |
# |---|---|---|
# | `persistent_workers=True` | workers live for all epochs | if you train for several epochs |
# | `prefetch_factor=2` | batches that each worker builds ahead | higher if the work is uneven (next section) |
# | `multiprocessing_context` | the start method | `"fork"` in a notebook |
# | `pin_memory=True` | a thread copies batches to where a GPU can fetch them | with CUDA (part 5) |
#
# **Takeaway** Starting by spawn or forkserver imports torch again in a new process; `persistent_workers=True` pays it
# once.

# %% [markdown]
# ## How many batches wait ready? · extra
#
# **Predict**: two workers, `prefetch_factor=1`, the loop has taken one batch and waits. How many more batches are
# built?

# %%
predicted_ahead = None  # your number


# %% tags=["experiment"]
class Counted(Dataset):
    """Items that are counted in shared memory, by worker."""

    def __init__(self):
        self.built = torch.zeros(2, dtype=torch.int64).share_memory_()

    def __len__(self):
        return 100

    def __getitem__(self, i):
        self.built[get_worker_info().id] += 1
        return i


def built_ahead(factor):
    """Batches of one item that two workers build before the second one is asked for."""
    data = Counted()
    batches = iter(loaders.forked(data, 1, 2, prefetch_factor=factor))
    next(batches)
    before, now = -1, 0
    while now > before:  # until nothing is built any more
        time.sleep(0.3)
        before, now = now, int(data.built.sum())
    return now - 1


found = {factor: built_ahead(factor) for factor in (1, 2, 4)}
print(f"two workers, prefetch_factor=1: {found[1]} batches ahead" + reveal(predicted_ahead))
course.claim(
    "the loader builds workers x prefetch_factor batches ahead", found == {f: 2 * f for f in found}, f"{found}"
)

# %% [markdown]
# In the next dataset an item takes 1 ms, but every 45th takes 40 ms (a slow disk, a long recording). The loop takes 6
# ms per batch, as if a GPU were busy. The figure shows how many batches the loop could take at any moment.


# %% tags=["experiment"]
class Uneven(Dataset):
    """Items that take 1 ms of waiting, every 45th takes 40 ms; each is the moment at which it was made."""

    def __len__(self):
        return sizes.uneven

    def __getitem__(self, i):
        time.sleep(0.04 if i % 45 == 44 else 0.001)
        return time.perf_counter()


def queue_depth(factor):
    """(moments in s, batches that the loop could take at each of them), two lists."""
    loader, begin, changes, ready = loaders.forked(Uneven(), 5, 2, prefetch_factor=factor), time.perf_counter(), [], 0
    for batch in loader:
        ready = max(ready, batch.max().item() - begin)  # batches come in order: it waits for those before it
        changes += [(ready, 1), (time.perf_counter() - begin, -1)]
        time.sleep(0.006)
    moments = [moment for moment, _ in sorted(changes)]
    return moments, list(itertools.accumulate(change for _, change in sorted(changes)))


def empty_share(moments, depths):
    """Share of the time in which nothing is ready."""
    gaps = [b - a for a, b in itertools.pairwise(moments)]
    return sum(gap for gap, depth in zip(gaps, depths[:-1], strict=True) if not depth) / sum(gaps)


queues = {}


def seconds_of(way):
    """Seconds of the queue of a pass, which is kept for the figure."""
    queues[way] = queue_depth(int(way[-1]))
    return queues[way][0][-1]


whole = comparison.compare_measured(["prefetch_factor=1", "prefetch_factor=4"], seconds_of, **limits)
print(whole)
course.claim("with uneven work, prefetch_factor=4 is at least 5 % faster than 1",
             whole.controlled("prefetch_factor=4"), above=1.05)  # fmt: skip
plots.queue({f"{way}: empty {empty_share(*queues[way]):.0%}": queues[way] for way in sorted(queues)})

# %% [markdown]
# A slow item empties the short queue. Once filled, the long one outlasts it.
#
# **Takeaway** workers × `prefetch_factor` batches are built ahead. Choose just enough to bridge the longest gap.
