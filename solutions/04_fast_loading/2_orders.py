# %% [markdown]
# # Fast loading, part 2: Orders
#
# **Which shuffle gives nearly random batches and still reads the disk in large pieces?**
#
# SGD needs batches that resemble the whole file, but a disk is fastest in long reads. If the file is far larger than
# RAM, nearly every row of a random order is a separate request to the disk. You write a random order, and an order that
# shuffles windows of pages. Then you measure what both cost in seconds, bytes and loss.
#
# **You will be able to**
#
# - make a random order that ranks share and that differs in every epoch
# - shuffle in windows of pages
# - judge any shuffle by the variance of its batch means, and predict it by 1 + B / W
# - choose an order for a file that does not fit into memory
#
# **Minutes** 50 core · 50 in all
#
# **Needs** nothing; what you solved in part 1 is not used here

# %% [markdown]
# First write down what you expect, in the cell that says `None`. Then solve the exercise, run its check, and look at
# the measurement. Once your check has passed, later cells use your answer under a name that ends in `_now`:
# `random_order_now` is your `random_order`.

# %% locked="setup"
import tempfile
from pathlib import Path

import numpy as np
import torch

import course
from course.checks import fast_loading as check
from course.datasets import data_folder
from course.loading import sorted_file
from course.measure.comparison import compare, furthest, ratio_interval
from course.plots import fast_loading as plots

print(course.machine())
sizes = course.sizes("04_fast_loading")
# of a file that is sorted
rows = sizes.sorted_rows
page_rows = sizes.sorted_page_rows
batch = sizes.sorted_batch
in_file_order = torch.arange(rows)
# in pages; two windows or more
window_sizes = [n for n in (1, 2, 4, 8, 16, 32, 64, 128) if 2 * n * page_rows <= rows]
print(f"a file of {rows // page_rows} pages of {page_rows} rows; batches of B = {batch} rows")

# %% [markdown]
# ## Which orders can a disk read in long runs?
#
# SGD uses the gradient of a batch in place of the gradient of all data. On average that is right, if the batch is a
# random draw. But files are often written day by day or class by class. If you read such a file from beginning to
# end, a batch may see only one day or one class.
#
# A *random* order avoids this, but the disk gets one request per row. You compare all other orders with it.
#
# ### Exercise 1 · A random order
#
# Write the row numbers that one process reads in one epoch, in random order. If several processes train together,
# each is called a *rank*, and they share the rows. Seed NumPy's generator with the pair of
# seed and epoch: `np.random.default_rng((seed, epoch))`.
#
# ```python
# >>> whole = random_order(6, seed=0, epoch=3)
# >>> torch.equal(random_order(6, seed=0, epoch=3, rank=1, world_size=2), whole[1::2])
# True
# ```
#
# **Must**
# - permute all rows, in a way that depends on seed and epoch alone;
# - give rank r the places r, r + `world_size`, r + 2 `world_size` and so on;
# - give unrelated orders for any two pairs (seed, epoch).
#
# **Points** 3 · **Core** · **Difficulty** ●○○ · **Minutes** 5 · **Lines** 2
#
# **Source** NumPy documentation, "Parallel random number generation", section "Sequence of integer seeds".
#
# <details><summary>How does torch's DistributedSampler differ?</summary>
#
# `DistributedSampler` and FFCV's `RANDOM` use `seed + epoch`. Then epoch 1 of seed 0 has the order of epoch 0 of seed
# 1, so runs with neighbouring seeds share most of their orders.
#
# Your ranks may differ by one row. In DDP (`DistributedDataParallel`), every rank waits for the others, so
# `DistributedSampler` gives all ranks the same number. By default it repeats some rows for that.
#
# </details>
#
# <details><summary>Hint 1</summary>
#
# What must the ranks have in common, so that no row is drawn by two of them?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `np.random.default_rng((seed, epoch)).permutation(rows)` is the order of all ranks, an array of int64.
# `torch.from_numpy` makes a tensor of it, and a slice with a step is the share of a rank.
#
# </details>


# %% solution="random_order"
def random_order(rows, seed, epoch, rank=0, world_size=1):
    """The row numbers that one rank reads in one epoch, in random order: an int64 tensor (n,) on the CPU.

    Args:
        rows: number of rows of the file, 1 or more.
        seed: int from 0 to a million, the same on all ranks.
        epoch: int from 0 to a million; each has an order of its own.
        rank: which rank this is, from 0 to world_size - 1.
        world_size: number of ranks, 1 or more, also more than rows.

    The ranks share one permutation of all rows; each row is read by one of them, once.
    """
    ### BEGIN SOLUTION
    order = np.random.default_rng((seed, epoch)).permutation(rows)
    return torch.from_numpy(order)[rank::world_size]
    ### END SOLUTION


# %% test="random_order-visible" points=1
check.random_order(random_order)

# %% test="random_order-hidden" points=2
### BEGIN HIDDEN TESTS
check.random_order(random_order, seed=613)
### END HIDDEN TESTS

# %% [markdown]
# Can an order mix the rows and still read many of them per request? In this part, a *page* is `page_rows` consecutive
# rows of the file, which one request reads. CorgiPile (Xu et al. 2022) shuffles the pages and cuts them into
# *windows* of W pages. Then it reads one window after the other into memory, and shuffles the rows of each.
#
# ### Exercise 2 · An order of windows
#
# Write this order for one rank. Each page is read once per epoch. (FFCV calls a similar order `QUASI_RANDOM`.)
#
# ```python
# >>> order = quasi_random_order(6, page_rows=2, window_pages=1, seed=0, epoch=0)
# >>> [sorted(page) for page in order.view(3, 2).tolist()]
# [[4, 5], [0, 1], [2, 3]]
# ```
#
# **Must**
# - draw a random order of the full pages, and append a short last page;
# - cut the pages into windows of `window_pages`, of which the last may have fewer;
# - shuffle the rows of each window together, with the same generator as in `random_order`.
#
# **Not allowed**: a Python loop over rows. A loop over windows is fine.
#
# **Points** 5 · **Core** · **Difficulty** ●●○ · **Minutes** 14 · **Lines** 8
#
# **Source** Xu et al. 2022, "In-Database Machine Learning with CorgiPile", SIGMOD.
#
# <details><summary>Hint 1</summary>
#
# In which order do you need these: cut into windows, shuffle the pages, shuffle the rows? What is a window once pages
# have been written out as row numbers?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `pages[:, None] * page_rows + np.arange(page_rows)` is a table of row numbers, a page per line. `.ravel()` makes the
# order of it; `rows // page_rows` is the number of full pages, and the rows from there on are the short page.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# With `rng = np.random.default_rng((seed, epoch))`: `rng.permutation(rows // page_rows)` are the full pages. Append
# `np.arange(len(order), rows)` by `np.concatenate`. A slice of an array is a view, so
# `rng.shuffle(order[start : start + n])`, with n the rows of a window, shuffles it in place.
#
# </details>


# %% solution="quasi_random_order"
def quasi_random_order(rows, page_rows, window_pages, seed, epoch):
    """Row numbers of one epoch, random within windows of pages: an int64 tensor (rows,) on the CPU.

    Args:
        rows: number of rows of the file, 1 or more.
        page_rows: rows of a page, 1 or more, also more than rows.
        window_pages: pages of a window, 1 or more, also more than there are.
        seed, epoch: ints from 0 to a million.
    """
    ### BEGIN SOLUTION
    rng = np.random.default_rng((seed, epoch))
    pages = rng.permutation(rows // page_rows)
    order = (pages[:, None] * page_rows + np.arange(page_rows)).ravel()
    order = np.concatenate([order, np.arange(len(order), rows)])  # a short last page
    window = window_pages * page_rows  # in rows
    for start in range(0, rows, window):
        rng.shuffle(order[start : start + window])  # in place: a slice is a view
    return torch.from_numpy(order)
    ### END SOLUTION


# %% test="quasi_random_order-visible" points=2
check.quasi_random_order(quasi_random_order)

# %% test="quasi_random_order-hidden" points=3
### BEGIN HIDDEN TESTS
check.quasi_random_order(quasi_random_order, seed=947)
### END HIDDEN TESTS

# %% [markdown]
# The cell draws two orders of a small file. It has 256 rows in pages of 16 rows, batches have 32 rows, and windows
# have 4 pages. Each square is a row, and its colour is its page.
#
# **Predict** With windows, from how many different pages do the rows of the first batch come?

# %%
predicted_pages = None

# %% tags=["experiment"]
WINDOWS = "windows of 4 pages"
RANDOM = "random"
random_order_now = course.solved(check.random_order)
quasi_random_order_now = course.solved(check.quasi_random_order)
drawn_orders = {
    WINDOWS: quasi_random_order_now(256, page_rows=16, window_pages=4, seed=0, epoch=0),
    RANDOM: random_order_now(256, seed=0, epoch=0),
}

n_pages = {}  # of the first batch
for name, order in drawn_orders.items():
    pages = order[:32] // 16
    n_pages[name] = len(pages.unique())

asked = "pages in the first batch of windows"
print(course.score("04/2", asked, predicted_pages, n_pages[WINDOWS], null=None))
plots.orders(
    drawn_orders,
    page_rows=16,
    batch=32,
    title=f"A batch of 32 rows holds {n_pages[WINDOWS]} pages with windows, "
    f"{n_pages[RANDOM]} in random order",
)

# %% [markdown]
# A window of 4 pages has as many rows as two batches, so the colours change after every second batch. In random order,
# every batch holds most of the colours.
#
# **Takeaway** Shuffle the pages first, then the rows of each window. The disk reads whole pages, and a batch mixes the
# rows of W pages.

# %% [markdown]
# ## How random are the batches?
#
# Can you tell before a training whether an order is random enough? The gradient of a batch is a mean over its rows,
# so look at batch means. The more they vary from batch to batch, the less a batch represents the file. You compare the
# means of one value per row.
#
# ### Exercise 3 · The bias of batches
#
# Compute V / V₀: the variance V of an order's batch means, over the variance V₀ of the means of random batches. Part
# 5 judges real loaders by this ratio.
#
# In the example the batch means are 0.5 and 2.5, each 1 away from the mean, so V = 1. All values have s² = 1.25, so
# V₀ is `1.25 / 2 · 2 / 3`.
#
# ```python
# >>> round(batch_bias(torch.tensor([0.0, 1.0, 2.0, 3.0]), torch.arange(4), 2), 6)
# 2.4
# ```
#
# **Must**
# - V: the mean of (batch mean - m)² over the full batches of `order`, with m the mean of all N values;
# - V₀: s² / `batch` · (N - `batch`) / (N - 1), where s² is the mean of (value - m)²;
# - compute in float64, and subtract m before you square.
#
# **Points** 4 · **Core** · **Difficulty** ●●○ · **Minutes** 8 · **Lines** 4
#
# **Source** Kish 1965, "Survey Sampling" (design effect); Cochran 1977, "Sampling Techniques", chapter 2.
#
# <details><summary>Hint 1</summary>
#
# How many values belong to full batches? Which shape makes the batch means one call?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `off = values - values.mean()` in float64; `off[order][: n // batch * batch].view(-1, batch).mean(1)` are the batch
# means; `off.square().mean()` is s². `.item()` makes a float of the ratio.
#
# </details>


# %% solution="batch_bias"
def batch_bias(values, order, batch):
    """The variance of an order's batch means over that of random batches, a float: 1 is as good as random.

    Args:
        values: tensor (N,) of any real dtype, one value of each row of the file.
        order: int64 tensor (N,), a permutation of the row numbers, on the device of `values`.
        batch: rows of a batch, 1 or more.

    Raises: ValueError if there is no full batch, if one batch holds all rows, or if all values are the same.
    """
    n = len(order)
    if batch >= n:
        raise ValueError(f"batches of {batch} of {n} rows have no variance; make them smaller.")
    if values.min() == values.max():
        raise ValueError(
            "all values are the same, and so are all batches; take values that differ."
        )
    ### BEGIN SOLUTION
    off = values.double() - values.double().mean()
    means = off[order][: n // batch * batch].view(-1, batch).mean(1)
    by_chance = off.square().mean() / batch * (n - batch) / (n - 1)
    return (means.square().mean() / by_chance).item()
    ### END SOLUTION


# %% test="batch_bias-visible" points=2
check.batch_bias(batch_bias)

# %% test="batch_bias-hidden" points=2
### BEGIN HIDDEN TESTS
check.batch_bias(batch_bias, seed=358)
### END HIDDEN TESTS

# %% [markdown]
# How large should a window be? Take a sorted file, in which the rows of a page are nearly alike. Let W be the pages of
# a window, and B the rows of a batch. With windows, chance decides twice:
#
# - A batch draws B random rows from its window.
# - The window itself is a draw of W random pages.
#
# **Predict** With windows of *one* page, how many times the variance of random batches do the batch means have? (The
# first cell printed B.)
#
# What happens as W grows? If the share of the file in memory decides, a second page changes hardly anything. If B / W
# decides, twice as many pages nearly halve the variance.

# %%
predicted_at_one = None  # times

# %% tags=["experiment"]
EPOCHS = 40
batch_bias_now = course.solved(check.batch_bias)


def biases(files, window_pages):
    """V / V₀ of windows in each of `files`, each in another epoch: a tensor (files,)."""
    found = []
    for epoch, values in enumerate(files):
        order = quasi_random_order_now(rows, page_rows, window_pages, 0, epoch)
        found.append(batch_bias_now(values, order, batch))
    return torch.tensor(found)


biases_sorted = {n: biases([in_file_order] * EPOCHS, n) for n in window_sizes}
shuffled_files = []  # each was shuffled once, when it was written
for seed in range(EPOCHS):
    generator = torch.Generator().manual_seed(seed)
    shuffled_files.append(torch.randperm(rows, generator=generator))
biases_shuffled = biases(shuffled_files, window_pages=1)

# %% tags=["experiment"]
random_batches = torch.ones(EPOCHS)  # their V / V₀
times_random = {n: ratio_interval(found, random_batches) for n, found in biases_sorted.items()}
shuffled_once = ratio_interval(biases_shuffled, random_batches)
rule_over_measured = []
for n in window_sizes:
    if 8 * n * page_rows <= rows:
        rule = torch.full((EPOCHS,), 1 + batch / n)
        rule_over_measured.append(ratio_interval(rule, biases_sorted[n]))

asked = "variance of batch means, windows of one page"
print(course.score("04/2", asked, predicted_at_one, times_random[1]))
print(f"windows of {batch} pages, batches of {batch} rows: {times_random[batch]} times")
print(f"files whose rows were shuffled once, windows of one page: {shuffled_once} times")
course.claim(
    "with windows of up to an eighth of the file, 1 + B / W is within a third of the measured variance",
    furthest(rule_over_measured),
    within=(2 / 3, 4 / 3),
    otherwise="The file has too few pages.",
)
course.claim(
    "in a file shuffled once, batches of one-page windows vary as random ones do, within 10 %",
    shuffled_once,
    within=(0.9, 1.1),
    otherwise="Your file is small: its shuffles differ more.",
)
plots.bias(window_sizes, [found.estimate for found in times_random.values()], batch)

# %% [markdown]
# Let s² be the variance of all values. Together, the two draws have a variance of about s² / B + s² / W. Random
# batches have s² / B, so windows have about **1 + B / W** times as much. The size of the file does not matter while a
# window is a small part of it.
#
# The rule assumes that the rows of a page are alike. **Shown** If the rows were shuffled once, when the file was
# written, each page is itself a random draw. Then batches of one-page windows vary as random ones do.
#
# **Takeaway** In a sorted file, windows of B pages about double the variance of a batch mean. In a file
# shuffled once, windows of one page do not change it.

# %% [markdown]
# ## What does an order cost in seconds, and in loss?
#
# How much loss does a fast order cost? You train a regression on a file whose rows are sorted by y. Each row has 128
# bytes. Before a batch reads what does not continue the last read, the file is dropped from the page cache, as if it
# were much larger than RAM.
#
# The reader ([page_pool.py](../../course/loading/page_pool.py)) makes one request per page, and holds the page until
# its last row is used. In random order, it requests single rows. For each of them the disk gives at least a memory
# page of 4,096 bytes.
#
# **Predict** How many times does an epoch in random order read the file?

# %%
predicted_times_read = None

# %% tags=["experiment"]
IN_ORDER = "order of the file"
ONE_PAGE = "windows, W = 1"
B_PAGES = f"windows, W = {batch}"


def file_order(seed, epoch):
    return in_file_order


def windows_of_one_page(seed, epoch):
    return quasi_random_order_now(rows, page_rows, 1, seed, epoch)


def windows_of_b_pages(seed, epoch):
    return quasi_random_order_now(rows, page_rows, batch, seed, epoch)


def random_rows(seed, epoch):
    return random_order_now(rows, seed, epoch)


orders = {
    B_PAGES: windows_of_b_pages,
    ONE_PAGE: windows_of_one_page,
    IN_ORDER: file_order,
    RANDOM: random_rows,
}
# rows that one request brings
request_rows = {B_PAGES: page_rows, ONE_PAGE: page_rows, IN_ORDER: page_rows, RANDOM: 1}

# %% [markdown]
# The next cells print a table of the orders. Its columns are:
#
# - *times the file*: bytes from the disk per epoch, over the bytes of the file;
# - *V / V₀* of one batch, and *of ten* in a row, because SGD averages about ten batches here (its learning rate is
#   1 / 10);
# - *excess loss*: the mean loss in the second epoch, minus the loss of the true weights.

# %% tags=["experiment"]
torch.set_num_threads(1)  # else small copies wait for a second thread, which a busy machine delays
data_folder().mkdir(parents=True, exist_ok=True)
folder = tempfile.TemporaryDirectory(dir=data_folder())
file = sorted_file.SortedFile(Path(folder.name) / "sorted", rows, batch)
in_memory = {name: f"{name}, file in memory" for name in (B_PAGES, RANDOM)}

ways = {}
for name, order in orders.items():
    ways[name] = file.eighth(order(0, 0), request_rows[name])
for name, warm_name in in_memory.items():
    ways[warm_name] = file.eighth(orders[name](0, 0), request_rows[name], cold=False)

compared = compare(ways, seconds=sizes.seconds)
seconds = {way: 8 * compared.time(way).estimate for way in ways}
print(f"{file.table.nbytes / 1e6:.1f} MB; can be dropped from the page cache: {file.is_cold}")
print(
    f"seconds are 8 times those of an eighth; control: {B_PAGES} against itself {compared.control}"
)

# %% tags=["experiment"]
excess = {}  # of each seed
times_read = {}
for name, order in orders.items():
    excess[name] = torch.tensor([file.excess(order, seed) for seed in range(7)])
    times_read[name] = file.times_read(order(0, 0), request_rows[name])
bias_of_one = sorted_file.typical_bias(batch_bias_now, orders, batch, EPOCHS)
bias_of_ten = sorted_file.typical_bias(batch_bias_now, orders, 10 * batch, EPOCHS)
folder.cleanup()
sorted_file.show_costs(seconds, times_read, bias_of_one, bias_of_ten, excess)

# %% tags=["experiment"]
faster = compared.ratio(B_PAGES, to=RANDOM)
faster_in_memory = compared.ratio(in_memory[B_PAGES], to=in_memory[RANDOM])
is_read_more = times_read[RANDOM] > 10 and times_read[B_PAGES] < 3

asked = "times the file that a random epoch reads"
print(course.score("04/2", asked, predicted_times_read, times_read[RANDOM]))
course.claim(
    "per epoch, a random order reads at least ten times the bytes of the file from the disk, windows of B "
    "pages less than three times",
    is_read_more,
    f"{times_read[RANDOM]:.0f} and {times_read[B_PAGES]:.1f} times",
    otherwise="A value of nan or 0 means that your system does not count what the disk reads.",
)
course.claim(
    "from a cold file, windows of B pages are at least three times as fast as a random order",
    faster,
    above=3,
    otherwise="Look at the column of bytes: did they come from the disk?",
)
course.claim(
    "from a file in memory, windows of B pages are at least three times as fast as a random order",
    faster_in_memory,
    above=3,
    otherwise="A request costs little on your system.",
)

# %% tags=["experiment"]
more_loss = ratio_interval(excess[B_PAGES], excess[RANDOM])
bias_ratio_of_one = bias_of_one[IN_ORDER] / bias_of_one[ONE_PAGE]
bias_ratio_of_ten = bias_of_ten[IN_ORDER] / bias_of_ten[ONE_PAGE]
is_seen_by_ten = bias_ratio_of_one < 1.5 and bias_ratio_of_ten > 3

course.claim(
    "windows of B pages leave less than 2.5 times the excess loss of a random order",
    more_loss,
    below=2.5,
)
course.claim(
    "the order of the file leaves at least four times the excess loss of windows of one page",
    ratio_interval(excess[IN_ORDER], excess[ONE_PAGE]),
    above=4,
    otherwise="With a short file, less has been forgotten at its end.",
)
course.claim(
    "for one batch, the variance in the order of the file is less than 1.5 times that of windows of one page; "
    "for ten in a row it is more than three times",
    is_seen_by_ten,
    f"{bias_ratio_of_one:.1f} and {bias_ratio_of_ten:.1f} times",
)
plots.order_against_learning(
    {name: seconds[name] for name in orders},
    {name: of_seeds.median().item() for name, of_seeds in excess.items()},
    B_PAGES,
    f"A random order takes {faster.estimate:.0f} times as long as windows of B pages, which "
    f"leave {more_loss.estimate:.1f} times its excess loss",
)

# %% [markdown]
# Each row of a random order is a request. Each request brings a memory page, and most of it is thrown away. All other
# orders read each page once, with one request.
#
# With the file in memory, the random order can still be slower. **We think** that our reader's call per row takes the
# time. To test it, gather the rows from a mapping, which makes no calls.
#
# **Shown** Windows of one page and the order of the file have batches of the same variance, but very different
# losses. They differ in the order of the batches: in file order neighbouring batches are alike, while windows read the
# pages in random order. V / V₀ of ten batches in a row tells the two apart.
#
# **Takeaway** Read windows of pages: few, large requests. To compare how orders learn, take V / V₀ of as many batches
# as your SGD averages, here ten.

# %% [markdown]
# ## What to take home
#
# - In random order, a disk gets one request per row, and reads a memory page for each. Windows of pages avoid both.
# - On a sorted file, windows of W pages multiply the variance of a batch mean by about 1 + B / W, while a window is a
#   small part of the file.
# - Shuffle a file once, when you write it. Then windows of one page give batches that vary as random ones do.
# - V / V₀ of single batches does not see in which order the batches come. V / V₀ of ten in a row does.
# - `DataLoader(dataset, batch_size, sampler=order.tolist())` takes any order that you write. Make a new one for each
#   epoch.
