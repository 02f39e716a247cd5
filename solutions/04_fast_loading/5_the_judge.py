# %% [markdown]
# # Fast loading, part 5: The judge
#
# **Which common loader shuffles well, reads little and is fast?**
#
# Parts 1 to 4 built a loader. Many trainings use one that somebody else wrote, for a mapped token file, a folder of
# JPEGs, or tar shards with a shuffle buffer. You write such a buffer, judge all these formats by the same three
# numbers, and then judge your own loader.
#
# **You will be able to**
#
# - shuffle a stream with a buffer, and say beforehand how random its batches are;
# - choose a format by its shuffle, the bytes that it reads and its distance from `memcpy`;
# - judge your own loader in your own training step with `course loader-report`.
#
# **Minutes** 25 core · 25 in all · session 2
#
# **Needs** `quasi_random_order` and `batch_bias` of part 2

# %% locked="setup"
import shutil
import tempfile
from pathlib import Path

import numpy as np
import torch

import course
from course.checks import fast_loading as check
from course.loading import judge, own_loader, planted_loader, real_formats
from course.loading.shuffles import buffer_rule, shard_order
from course.measure.comparison import furthest, quotient, ratio_interval
from course.measure.page_cache import read_around
from course.plots import fast_loading as plots
from course.system.folders import data_folder

print(course.machine())
data_folder().mkdir(parents=True, exist_ok=True)
sizes = course.sizes("04_fast_loading")
samples = sizes.judged_samples
shard = sizes.judged_shard  # samples
batch = sizes.judged_batch
print(f"{samples:,} samples in shards of {shard}; batches of {batch}")

# %% [markdown]
# ## What does a shuffle buffer do?
#
# Large data sets often lie in *shards*, files of many samples. A loader that streams them reads a shard from beginning
# to end, so it cannot jump to a random sample. How can it shuffle? WebDataset's `shuffle(1000)` and Hugging Face's
# `IterableDataset.shuffle(buffer_size=1000)` pass the samples through a buffer.
#
# ### Exercise 1 · A shuffle buffer
#
# Write a generator that first fills a buffer with `size` items. Then, for each further item of the stream, a random
# item leaves the buffer, and the new one takes its place. When the stream ends, the rest of the buffer leaves in
# random order.
#
# ```python
# >>> import numpy as np
# >>> mixed = list(shuffle_buffer(range(1000), 10, np.random.default_rng(0)))
# >>> sorted(mixed) == list(range(1000)), max(mixed[:50]) < 60
# (True, True)
# ```
#
# **Must**
# - hold `size` items while the stream lasts, and yield each item once;
# - draw the leaving item from the full buffer, before the new one comes in;
# - take all random numbers from `rng`.
#
# **Points** 3 · **Core** · **Difficulty** ●○○ · **Minutes** 10 · **Lines** 9
#
# **Source** Hugging Face datasets, "Stream": shuffle with a buffer.
#
# <details><summary>Hint 1</summary>
#
# What happens to an item of the stream while the buffer is not full? And afterwards?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `i = rng.integers(size)` draws a place. Yield `buffer[i]` first, then write the new item there. `rng.shuffle(buffer)`
# shuffles the rest in place, and `yield from buffer` yields it.
#
# </details>


# %% solution="shuffle_buffer"
def shuffle_buffer(stream, size, rng):
    """Yield the items of `stream`, shuffled by a buffer.

    Args:
        stream: iterable of any items, read once.
        size: items in the buffer, 1 or more, also more than the stream has.
        rng: generator of NumPy, as `np.random.default_rng(0)` makes it.
    """
    ### BEGIN SOLUTION
    buffer = []
    for item in stream:
        if len(buffer) < size:
            buffer.append(item)
            continue
        i = rng.integers(size)
        yield buffer[i]
        buffer[i] = item
    rng.shuffle(buffer)
    yield from buffer
    ### END SOLUTION


# %% test="shuffle_buffer-visible" points=1
check.shuffle_buffer(shuffle_buffer)

# %% test="shuffle_buffer-hidden" points=2
### BEGIN HIDDEN TESTS
check.shuffle_buffer(shuffle_buffer, seed=811)
### END HIDDEN TESTS

# %% [markdown]
# ## How random are the batches of a buffer?
#
# A buffer of a thousand samples looks like a good shuffle. Is it one? Try it on sorted samples, as in part 2, where
# windows of W pages gave 1 + B / W times the variance of random batches. Here shards take the place of pages. Three
# ways hold the same K samples in memory:
#
# | way | how |
# |---|---|
# | buffer, file order | your buffer over the shards in the order of the file |
# | buffer, shuffled shards | your buffer over the shards in random order |
# | windows | K / S shards in memory, all their samples shuffled (part 2); S is the samples of a shard |
#
# **Predict** In file order, a buffer holds an eighth of all samples. How many times the variance of random batches do
# its batch means have?
#
# - If the buffer mixes like a window, it is about 1 + B / W with W = K / S.
# - If the buffer holds only neighbours, it is nearly as much as without any shuffle, which is about B.
#
# Then hold a sixteenth of the samples in memory. Random batches have the ratio 1, so call what is above 1 the
# *excess*. Divide the excess of windows by the excess of the buffer over shuffled shards. What do you get?
#
# - If memory decides, the quotient is 1.
# - If it matters how long a sample stays, it is not 1. A window is emptied before the next one is filled, but a buffer
#   keeps some samples for long.

# %%
predicted_in_order = None  # times the variance of random batches
predicted_excess = None  # excess of windows over excess of the buffer

# %% tags=["experiment"]
SEEDS = 8
buffer_now = course.solved(check.shuffle_buffer)
bias_now = course.solved(check.batch_bias)
windows_now = course.solved(check.quasi_random_order)
half = samples // 2  # of the samples are enough here
memory_sizes = [half // 64, half // 32, half // 16, half // 8]  # in samples
file_order = torch.arange(half)


def biases(size, seed):
    """V / V₀ of the three ways with `size` samples in memory."""
    rng = np.random.default_rng(seed)
    shuffled_shards = shard_order(half, shard, rng).tolist()
    in_order = torch.tensor(list(buffer_now(range(half), size, rng)))
    shuffled = torch.tensor(list(buffer_now(shuffled_shards, size, rng)))
    windows = windows_now(half, shard, size // shard, seed, epoch=0)
    return [bias_now(file_order, order, batch) for order in (in_order, shuffled, windows)]


found = []
for size in memory_sizes:
    found.append([biases(size, seed) for seed in range(SEEDS)])
found = torch.tensor(found, dtype=torch.float64)  # (sizes, seeds, ways)
plots.buffer_bias(memory_sizes, found, batch, shard)

# %% tags=["experiment"]
in_order, shuffled, windows = found.unbind(2)  # each (sizes, seeds)
times_random = ratio_interval(in_order[-1], torch.ones(SEEDS))
no_shuffle = torch.full((SEEDS,), bias_now(file_order, file_order, batch))
excess = ratio_interval(windows[-2] - 1, shuffled[-2] - 1)
measured_over_rule = []
for i in (-2, -1):
    rule = torch.full((SEEDS,), buffer_rule(batch, shard, memory_sizes[i]))
    measured_over_rule.append(ratio_interval(shuffled[i], rule))

print(course.score("04/5", "variance of a buffer in file order", predicted_in_order, times_random))
print(course.score("04/5", "excess of windows over a buffer", predicted_excess, excess))
course.claim(
    "in file order, a buffer with an eighth of a sorted file leaves at least half of the variance of no "
    "shuffle",
    ratio_interval(in_order[-1], no_shuffle),
    above=0.5,
)
course.claim(
    "with shuffled shards and equal memory, windows have at least 1.5 times the excess variance of a buffer",
    excess,
    above=1.5,
)
course.claim(
    "with a sixteenth or an eighth of the file in a buffer, 1 + BS / 2K is within a third of its variance",
    furthest(measured_over_rule),
    within=(2 / 3, 4 / 3),
)

# %% [markdown]
# **Shown** Only the order of the shards differs between the first two ways, and it decides. In file order, most of
# what is in the buffer comes from one stretch of the file, so each batch does, too.
#
# With shuffled shards, the ratio is about 1 + BS / 2K. With windows it is about 1 + BS / K. Both are smaller if the
# memory is a large part of the file.
#
# <details><summary>Where does 1 + BS / 2K come from?</summary>
#
# In each step, a sample leaves the buffer with probability 1 / K. So of the samples that came t steps ago, the share
# exp(-t / K) is still there, and the buffer holds much of the latest shards and little of older ones. Shards with
# unequal shares w mix like 1 / Σw² shards with equal shares. This is 2K / S while a shard is small compared with the
# buffer. A window has only K / S.
#
# </details>
#
# **Takeaway** Shuffle the shards first. Then a buffer of several shards mixes like a window of twice its size.

# %% [markdown]
# ## Which format shuffles well, reads little and is fast?
#
# You choose the format of your data once, and then every epoch pays for it. The cell writes a token file and its
# shards, a folder of JPEGs and tar shards of them. Then it judges each loader by three numbers:
#
# - **× random**: the variance of its batch means, over that of random batches;
# - **× files**: bytes from the disk per epoch, over the bytes of its files, with room for a quarter of the files in
#   memory;
# - **× memcpy**: how long a step waits for a batch, over the time of a copy of the same bytes. Both use one thread,
#   and both are measured *in a step that reads the batch*.
#
# These loaders are compared:
#
# - *token file*: in order; random, sample by sample; random, one call per batch;
# - *token shards*: windows of part 2; Streaming's `py1e`, which moves each sample of a shuffled shard by a random
#   distance; Hugging Face's buffer over shuffled shards;
# - *JPEGs*: a folder in random order; tar shards in order, with your buffer; tar shards shuffled, with your buffer.
#
# If a library is not installed, our own code makes its shuffle, and its name says "its algorithm". Windows and buffer
# hold the same K samples, and `py1e` spreads a shard over about K samples.
#
# Before you run the cell, choose the loader that you would take.

# %% tags=["experiment"]
torch.set_num_threads(1)
folder = tempfile.TemporaryDirectory(dir=data_folder(), ignore_cleanup_errors=True)
place = Path(folder.name)
token_formats = real_formats.token_formats(place, sizes, windows_now, buffer_now)
picture_formats = real_formats.picture_formats(place, sizes, buffer_now)
read_ahead_kb = read_around(place) / 1024
print(
    f"K = {sizes.judged_buffer:,} samples in memory, shards of {shard}; "
    f"{samples // batch:,} batches of {batch} token samples; read_ahead_kb {read_ahead_kb:,.0f}"
)

# %% tags=["experiment"]
judged = {}
for loader in token_formats + picture_formats:
    judged[loader.name] = real_formats.judged(loader, bias_now, batch, sizes.judged_seconds)
    print(judged[loader.name])
folder.cleanup()
plots.judged_formats(list(judged.values()))

# %% tags=["experiment"]
one_by_one = judged["token file, random"]
one_call = judged[real_formats.ONE_CALL]
shards = judged["token shards, windows of part 2"]
jpegs = judged["JPEG folder, random"]
is_frugal = one_by_one.bytes_read > 2 and shards.bytes_read < 1.5
course.claim(
    "with room for a quarter of a mapped file, random samples read it at least twice per epoch, windows of "
    "shards less than 1.5 times",
    is_frugal,
    f"{one_by_one.times_read} and {shards.times_read} times",
    otherwise="A value of nan means that your system does not count bytes.",
)
course.claim(
    "gathering a random batch of tokens in one call is at least twice as fast as sample by sample",
    quotient(one_by_one.memcpy, one_call.memcpy),
    above=2,
)
course.claim(
    "a batch from a folder of JPEGs takes at least 20 times as long as a copy of its pixels",
    jpegs.memcpy,
    above=20,
)

# %% [markdown]
# The two rows of random tokens read the same file in the same order. The first slices an `np.memmap` per sample, as
# nanoGPT does. The second gathers the tokens of a batch in one call. **We think** that slicing the memmap costs more
# than the number of calls. To test it, slice `np.asarray(memmap)`, a plain array of the same memory.
#
# **Known** A fault in a mapped file brings up to `read_ahead_kb` from the disk (part 3), so a random sample brings
# its neighbours. Many of them leave memory before they are used, so the file is read again and again. Our emulation
# drops files only between batches, so a batch reads the token file once at most. Each JPEG is a separate file, so it
# brings only the rest of its last memory page.
#
# For × memcpy, all files lie in the page cache. So **we think** that the folder of JPEGs is slow because it decodes. To
# test it, decode all pictures beforehand.
#
# <details><summary>Which numbers of × files come from our emulation?</summary>
#
# A loader that has read four times its files is stopped, and the rest of its epoch is extrapolated. Our emulation also
# drops what was read ahead. Without that, the token file in order would be read once.
#
# </details>
#
# **Takeaway** Windows of shards read little but shuffle less. Random samples of a mapped file shuffle well but read
# much if the file does not fit into memory. JPEGs are slowest.

# %% [markdown]
# ## What would the judge say about your loader?
#
# The command `course loader-report module:make_loader` prints these numbers for your own loader. It also prints "ten
# in a row", which judges the order of the batches (part 2). It uses as many threads as torch does. With `--step` you
# name your training step, and the judge waits for batches *inside* it.
#
# The next cell judges a small loader with two workers over shards that are sorted by label. **Which faults does it
# have, and which lines tell?**

# %% tags=["experiment"]
file = data_folder() / "planted_loader.py"
if not file.exists():
    shutil.copy(planted_loader.__file__, file)
own_loader.print_report(file, "make_loader")

# %% tags=["experiment"]
own_loader.print_report(file, "make_repaired")
faulty = judge.look(planted_loader.make_loader())
repaired = judge.look(planted_loader.make_repaired())
course.claim(
    "two workers that do not share the shards deliver every sample twice",
    faulty.samples == 2 * faulty.distinct and repaired.samples == repaired.distinct,
    f"{faulty.samples:,} samples, {faulty.distinct:,} distinct",
)

# %% [markdown]
# The first loader has four faults:
#
# - It delivers each sample twice (line "samples").
# - It has the same order in each epoch ("next epoch").
# - It reads the shards in the order of the file ("ten in a row", far larger than in the second report).
# - It does not mix the samples of a shard with others ("how random").
#
# In the second report only the last fault is left, so "how random" is as large as before. This fault also keeps "ten in
# a row" above chance, because neighbouring batches come from the same shards.
#
# The file `planted_loader.py` lies in your data folder. Pass its samples through your `shuffle_buffer`, and judge it
# again. Then judge your own loader:
#
# ```sh
# course loader-report train.py:make_loader --step train.py:step --data path/of/your/data
# ```
#
# **Takeaway** Before you trust a loader, count its samples and bytes, and look at its batch means. A falling loss
# shows none of them.

# %% [markdown]
# ## What to take home
#
# - A buffer over shards in file order hardly shuffles. Over shuffled shards it follows about 1 + BS / 2K.
# - If a mapped file does not fit into memory and each fault brings neighbours, random samples read it many times over.
#   Read whole shards, or shuffle the file once.
# - `course loader-report` asks your own loader these questions, in your own step.
