# %% [markdown]
# # Fast loading, part 4: Fewer bytes, fewer passes
#
# **How little data must a training step move, and how few passes over the data are enough?**
#
# Every row passes several hops before a step has used it: disk, buffer, bus, and the step itself. This part predicts
# the bytes of each hop and counts them, takes the statistics of all columns in one pass that survives float32, writes
# a step of SGD that never copies its batch, finds eleven faults in a published example, and replaces plain SGD by two
# methods that need fewer passes: conjugate gradients and SVRG.
#
# **You will be able to**
#
# - say how many bytes a row moves at each hop, padding included, and check it by counting
# - compute mean and standard deviation in one pass, without cancellation
# - write a step that reads its batch twice and makes no new tensor of its size
# - find out why a published training loop reports a wrong time, loss and intercept
# - choose a method by what each pass over the data buys
#
# **Minutes** 35 core · 150 in all
#
# **Needs** parts 1 to 3 (their answers are taken over if you solved them)

# %% [markdown]
# How it works: write down what you expect (a cell with `None`), solve the exercise, run its check, look at the
# measurement. Later cells use your answer if its check passed (`x_now` is your `x`) and fall back on the reference
# solution if your copy of the course includes it. Run the cells from the top. Leave the empty cell after each check
# alone: your instructor's tests go there.

# %% locked="setup"
import itertools
import mmap
import resource
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch
from torch.utils.data import DataLoader, TensorDataset

import course
from course.checks import fast_loading as check
from course.datasets import regression
from course.learner.predictions import reveal
from course.loading.copies import DeviceCopies
from course.loading.record_files import RecordFile
from course.measure.page_cache import HEADER, drop_cached, map_rows, reads
from course.measure.traffic import Traffic
from course.measure.yardsticks import rows_in_memory, seconds_in_turn, show_rates, without_yardsticks, yardsticks
from course.plots import fast_loading as plots

device = course.device()
print(course.machine())
sizes = course.sizes("04_fast_loading")

# %% [markdown]
# ## A ledger of bytes
#
# **Count what moves before you time it: the numbers follow from the format of the file and the text of the step.**
#
# A row of D columns has 4 D bytes of x, and lies in a file in which rows are a *stride* apart: a power of two up to
# 4096 bytes, above that a multiple of 4096. A disk is read in whole memory pages of 4096 bytes. A row that is asked for
# alone brings every memory page it touches, one that is read with its neighbours brings its stride. The copy into
# a buffer reads the stride and writes it, the bus to a GPU carries it once, padding included. A step goes through x
# once or several times. Predict: how many bytes come from the disk per row of 1,024 columns, asked for alone?

# %%
predicted_1024 = None  # bytes per row; x alone has 4,096

# %% [markdown]
# ### Exercise 1 · The ledger
#
# Compute how many bytes each hop moves per row.
#
# **Must** return a dict of ints:
# - `"disk"`: the bytes read from a cold file, if a row is asked for `alone`, or else together with all other rows of
#   its memory pages, which then share their bytes;
# - `"buffer"`: the bytes read plus those written by the copy of a row, y and padding included, from the page cache into
#   a buffer;
# - `"bus"`: what a copy of that buffer to a GPU carries;
# - `"step"`: what `passes` passes over x alone read.
#
# **You may assume** that `stride` is a power of two up to 4096, or a multiple of 4096.
#
# **Points** 2 · **Core** · **Difficulty** ●○○ · **Minutes** 10 · **Lines** 5
#
# **Source** Linux's documentation, "Concepts overview", section page cache.
#
# <details><summary>Hint 1</summary>
#
# How many memory pages does a row with a stride of 512 bytes touch? One with a stride of 8,192?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# With strides like these, a row that is asked for alone brings `max(stride, 4096)` bytes.
#
# </details>


# %% solution="bytes_per_row"
def bytes_per_row(columns, stride, alone, passes):
    """Bytes that one row moves at each hop: {"disk": int, "buffer": int, "bus": int, "step": int}.

    Args:
        columns: float32 values of x.
        stride: bytes from one row of the file to the next.
        alone: True if each row is asked for alone, False if rows are read in whole pages of many rows.
        passes: how often a step goes through x.
    """
    ### BEGIN SOLUTION
    return {
        "disk": max(stride, 4096) if alone else stride,
        "buffer": 2 * stride,
        "bus": stride,
        "step": passes * 4 * columns,
    }
    ### END SOLUTION


# %% test="bytes_per_row-visible" points=1
check.bytes_per_row(bytes_per_row)

# %% test="bytes_per_row-hidden" points=1
### BEGIN HIDDEN TESTS
check.bytes_per_row(bytes_per_row, seed=4097)
### END HIDDEN TESTS

# %% [markdown]
# Now count. For rows of four lengths, a file is written, dropped from the page cache, and read: rows alone, far from
# each other, from a mapping that fetches no neighbours; then all of it in order. The system counts what comes from the
# disk. The bytes of torch's operations follow from their shapes (`course.measure.traffic`). The step is that of
# exercise 3 below. Until you have solved it, the next cell says so and counts the reference's.

# %% tags=["experiment"]
data = regression.prepare(sizes.rows, sizes.columns)
asked = (check.write_records, check.Records, check.row_stride, check.gather, check.random_order, check.read_ahead)
answers = SimpleNamespace(**{exercise.name: course.solved(exercise) for exercise in asked})
bytes_per_row_now, copy_ahead_now = course.solved(check.bytes_per_row), course.solved(check.copy_ahead)
sgd_step_now = course.solved(check.sgd_step_)  # asked below: until then the reference's bytes are counted


def from_disk(call, path):
    """Bytes that come from the disk while `call` reads the dropped file."""
    drop_cached(path)
    before = reads()
    call()
    return reads().since(before).disk_bytes


def counted_ledger(columns, stride, folder, rows=1024, few=64):
    """{hop: bytes per row} of a file of zeros, counted; the disk twice, for rows alone and in pages."""
    path = Path(folder) / f"{columns}"
    path.write_bytes(bytes(HEADER + rows * stride))
    some = torch.arange(few) * (rows // few)

    def rows_alone():
        mapping, table = map_rows(path, rows, stride, getattr(mmap, "MADV_RANDOM", None))
        drop_cached(path, mapping)  # opening it has fetched the header, maybe more
        before = reads()
        answers.gather(table, some, torch.empty(few, stride // 4))
        return reads().since(before).disk_bytes / few

    alone = rows_alone()
    in_pages = from_disk(path.read_bytes, path) / rows
    _, table = map_rows(path, rows, stride)
    buffer = torch.empty(few, stride // 4)
    with Traffic() as gathered:
        batch = answers.gather(table, some, buffer)
    with Traffic() as copied:
        DeviceCopies(device).start((batch[:, :columns], batch[:, columns])).tensors()
    w, b, mean, std = torch.zeros(columns), torch.zeros(1), torch.zeros(columns), torch.ones(columns)
    scratch = {"residual": torch.zeros(few), "scaled": torch.zeros(columns), "gradient": torch.zeros(columns)}
    with Traffic() as stepped:
        sgd_step_now([(batch[:, :columns], batch[:, columns])], w, b, mean, std, 0.1, scratch)
    of_x = sum(4 * few * columns for operation in stepped.operations if operation.read >= 4 * few * columns)
    moved = gathered.read + gathered.written - some.nbytes
    return {"disk, alone": alone, "disk, in pages": in_pages, "buffer": moved / few,
            "bus": sum(operation.written for operation in copied.operations) / few, "step": of_x / few}  # fmt: skip


ledgers = {}
with tempfile.TemporaryDirectory(dir=data.folder) as folder:
    for columns in (100, 1000, 1024, 3000):
        stride = answers.row_stride(columns)
        alone, paged = (bytes_per_row_now(columns, stride, how, 2) for how in (True, False))
        due = {"disk, alone": alone["disk"], "disk, in pages": paged["disk"]}
        due |= {hop: paged[hop] for hop in ("buffer", "bus", "step")}
        ledgers[columns] = due, counted_ledger(columns, stride, folder)
print(f"{'bytes per row':<24}" + "".join(f"{hop:>18}" for hop in due))
for columns, (due, counted) in ledgers.items():
    for title, values in (("predicted", due), ("counted", counted)):
        print(f"{columns:>5} columns, {title:<10}" + "".join(f"{value:>18,.0f}" for value in values.values()))
print(f"1,024 columns, alone: {ledgers[1024][1]['disk, alone']:,.0f} bytes" + reveal(predicted_1024))
worst = max(abs(counted[hop] / due[hop] - 1) for due, counted in ledgers.values() for hop in due)
course.claim("at every hop, the bytes counted are within a twentieth of those predicted", worst < 0.05,
             f"off by at most {worst:.1%}",
             otherwise="A file system may read more than was asked for, and one in memory (tmpfs) reads nothing from a "
                       "disk. Where the system does not count, there is no verdict.")  # fmt: skip

# %% tags=["experiment"]
plots.ledger(ledgers)

# %% [markdown]
# With 100 columns a row alone brings ten times its bytes from the disk; in pages, a quarter more. One more column
# than 1,023 doubles a row: y no longer fits into 4096 bytes, and the stride is 8192. The padding is copied and carried
# like the rest; only the step leaves it out.

# %% [markdown]
# ## Two passes over the data: statistics and the step
#
# **The statistics take one pass over the data, a step takes two over its batch, and neither needs memory that grows
# with them.**
#
# A linear model learns faster by SGD when every column of x has mean 0 and standard deviation 1. So before the
# first step somebody goes through all rows and finds the mean and the standard deviation of each column. Data that
# does not fit is seen batch by batch, and a second pass costs as much as the first. The textbook has a formula for
# one pass: the variance is $E[x^2] - E[x]^2$. In float32 it fails, because it subtracts two large numbers that are
# nearly equal. Take a column with mean 10,000 and standard deviation 0.1. Its squares are about $10^8$, where
# neighbouring float32 numbers lie 8 apart; the variance to be found there is 0.01. What comes out is rounding: 0,
# or 8, or less than 0, of which the root is NaN.
#
# Deviations from the mean are small, and their squares lose little. Say that $n$ rows have the mean $m$ and the sum
# of squared deviations $S$, and $k$ more rows come, with $m'$ and $S'$ of their own. With $\delta = m' - m$, all of
# them together have
#
# $$\text{mean} = m + \delta \frac{k}{n + k}, \qquad
# \text{sum of squared deviations} = S + S' + \delta^2 \frac{n k}{n + k}.$$
#
# The last term is what the batches differ by among themselves. Nothing large is subtracted from anything large, and
# with $k = 1$ this is Welford's update, row by row.

# %% [markdown]
# ### Exercise 2 · Mean and standard deviation in one pass
#
# Go through the batches once and return mean and standard deviation of every column.
#
# **Must**
# - go through `batches` once; a batch may have one row or none;
# - divide by the number of rows n, not by n - 1;
# - keep sums only: a batch may be refilled when the next is asked for;
# - make no tensor with more elements than the largest x, and none of float64;
# - for a column with mean 10,000 and standard deviation 0.1, find the mean to 0.01 and the standard deviation to 2 %.
#
# **Raises** ValueError if there is no row.
#
# **Not allowed** NumPy; changing a batch.
#
# **Points** 4 · **Extra** · **Difficulty** ●●○ · **Minutes** 15 · **Lines** 13
#
# **Source** Chan, Golub and LeVeque 1979, report STAN-CS-79-773; Welford 1962, Technometrics 4(3).
#
# <details><summary>Hint 1</summary>
#
# Two batches have the means 1 and 3, and inside each batch all rows are equal. What is the sum of squared
# deviations of both together, and where in the formula does it come from?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Three things are kept between batches: the number of rows, the mean, the sum of squared deviations. They can start
# as the numbers 0: the first batch, with n = 0, then goes through the same formula. The mean of no rows is NaN.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# Per batch: skip it if `len(x)` is 0. `center = x.mean(0)`, `delta = center - mean`, `squares = squares + (x -
# center).square().sum(0) + delta.square() * (n * k / (n + k))`, then the new mean, then `n += k`.
#
# </details>


# %% solution="mean_and_std"
def mean_and_std(batches):
    """(mean, std) of every column over the rows of all batches, two float32 tensors (D,) on the device of x.

    Args:
        batches: iterable of (x, y), gone through once: x float32 (k, D), k from 0 on and not always the same, y
            float32 (k,), not needed here.  A batch is valid until the next is asked for.

    Raises: ValueError if there is no row at all.
    """
    ### BEGIN SOLUTION
    n, mean, squares = 0, 0.0, 0.0
    for x, _ in batches:
        k = len(x)
        if k == 0:  # its mean would be NaN
            continue
        center = x.mean(0)
        delta = center - mean
        squares = squares + (x - center).square().sum(0) + delta.square() * (n * k / (n + k))
        n += k
        mean = mean + delta * (k / n)
    if n == 0:
        raise ValueError("expected batches with at least one row, found none.")
    return mean, (squares / n).sqrt()
    ### END SOLUTION


# %% test="mean_and_std-visible" points=2
check.mean_and_std(mean_and_std)

# %% test="mean_and_std-hidden" points=2
### BEGIN HIDDEN TESTS
check.mean_and_std(mean_and_std, seed=1979)
### END HIDDEN TESTS

# %% [markdown]
# ## A step that reads its batch twice
#
# **Normalise the weights, not the data: then no step makes a tensor of the size of its batch.**
#
# With $z = (x - \text{mean}) / \text{std}$ the model says $z w + b$, its residual $r$ is that less $y$, and the
# gradients of half the mean of $r^2$ are $z^T r / n$ and the mean of $r$. Written line by line, a batch of 2048 rows
# by 1000 columns, 8 MB, is read to make $x - \text{mean}$, which is written; that is read to make $z$, which is
# written; $z$ is read for the residual and again for the gradient. Six times 8 MB go by.
#
# But $z$ is needed nowhere. The normalisation can be moved from the data to the weights, which are small:
#
# $$z w + b = x \frac{w}{\text{std}} + \left(b - \text{mean} \cdot \frac{w}{\text{std}}\right), \qquad
# z^T r = \frac{x^T r - \text{mean} \sum r}{\text{std}}.$$
#
# (The divisions are column by column.) Two products with x as it came from the loader are left. There is a cost: where
# the mean is many times the standard deviation, both formulas subtract large numbers that are nearly equal, as above;
# for such columns subtract a constant when the file is written.
#
# The gradients of blocks of rows add up. If a block is small enough to stay in the processor's cache, the second
# product finds it there. That is why the step takes a batch in blocks, usually one.
#
# On a GPU there is one more thing to leave out. `.item()`, `float(t)` and `if t > 0` wait until everything that was
# queued is computed. So the loss is returned as a tensor.
#
# The first three lines of the step below are given: `scaled` is $w / \text{std}$, the weights for x as it is; `shift`
# is the bracket, the number that is added to each row's product; `gradient` is filled with zeros.

# %% [markdown]
# ### Exercise 3 · A step in two passes
#
# Write one step of SGD on the squared loss, without a copy of x.
#
# **Must**
# - treat all blocks as one batch of n rows, n known after the last;
# - change `w` and `b` in place, once, after the last block;
# - read each block of x at most twice, before the next is asked for;
# - compute in `scratch`, whose values mean nothing at the start: make no new tensor of more than one element (a view is
#   none);
# - not wait for the device; return the sum of squared residuals in a new tensor of one element.
#
# **Not allowed** NumPy.
#
# **Points** 6 · **Core** · **Difficulty** ●●● · **Minutes** 25 · **Lines** 12
#
# **Source** our own; FFCV's guide advises to normalise.
#
# <details><summary>Hint 1</summary>
#
# Which of these depend on the block: `w / std`, the number added to every row, `x^T r`, the sum of r, the division
# by std? What does not need to stand in the loop?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# The residual of the block lies in the first rows of `scratch["residual"]`, a slice, which is a
# view. `torch.mv(x, scaled, out=residual)` writes there, `residual.add_(shift).sub_(y)` needs no memory.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# `gradient.addmv_(x.T, residual)` adds x^T r to what is there. `loss += residual.dot(residual)` is a tensor of one
# element, if it starts as one: `torch.zeros_like(b)`. So is the sum of r. After the loop `gradient.addcmul_(mean,
# total, value=-1).div_(std)`, then `w.sub_(gradient, alpha=lr / n)`, and b likewise.
#
# </details>


# %% solution="sgd_step_"
def sgd_step_(blocks, w, b, mean, std, lr, scratch):
    """The sum of squared residuals before the step, a tensor with one element; `w` and `b` make one step of SGD.

    Args:
        blocks: iterable of (x, y), one batch of at least one row in all: x float32 (k, D), y float32 (k,), k from 1 on
            and not always the same.  Both may be views whose rows lie further apart than they are long.
        w: float32 (D,), the weights of the normalised columns, changed in place.
        b: float32 (1,), the intercept, changed in place.
        mean: float32 (D,) of the columns of x.
        std: float32 (D,) likewise, above 0.
        lr: the learning rate, a float.
        scratch: dict of float32 tensors to compute in: "residual", with as many elements as the largest block has rows,
            or more; "scaled" and "gradient", both (D,).

    All tensors are on one device.
    """
    scaled = torch.div(w, std, out=scratch["scaled"])
    shift = b - mean.dot(scaled)
    gradient = scratch["gradient"].zero_()
    ### BEGIN SOLUTION
    n, total, loss = 0, torch.zeros_like(b), torch.zeros_like(b)
    for x, y in blocks:
        residual = torch.mv(x, scaled, out=scratch["residual"][: len(x)])
        residual.add_(shift).sub_(y)
        gradient.addmv_(x.T, residual)  # x is in the cache still, if the block is small
        total += residual.sum()
        loss += residual.dot(residual)
        n += len(x)
    gradient.addcmul_(mean, total, value=-1).div_(std)
    w.sub_(gradient, alpha=lr / n)
    b.sub_(total, alpha=lr / n)
    return loss
    ### END SOLUTION


# %% test="sgd_step_-visible" points=3
check.sgd_step_(sgd_step_)

# %% test="sgd_step_-hidden" points=3
### BEGIN HIDDEN TESTS
check.sgd_step_(sgd_step_, seed=512)
### END HIDDEN TESTS

# %% [markdown]
# What is it worth? Three ways to write the step: with new tensors, as in the guide; with the same operations in place,
# in the loader's own buffer; and in two passes. Predict: how many times as long as the last does an epoch take with the
# first, on the same loader?

# %%
predicted_naive = None

# %% tags=["experiment"]
x_bytes = 4 * data.rows * data.columns
file = RecordFile(answers, data, sizes.batch_size, sizes.page, sizes.window)  # of part 1; written if it is not there
records, loader = file.records, file.loader()


def on_device(loader):
    """The batches of a loader on the device: as they are on a CPU, else copied ahead."""
    return iter(loader) if device.type == "cpu" else copy_ahead_now(iter(loader), DeviceCopies(device))


mean, std = course.solved(check.mean_and_std)(on_device(loader))
sgd_step_now, lr = course.solved(check.sgd_step_), 0.05  # train() takes the same by default


def zeros(*shape):
    return torch.zeros(*shape, device=device)


def new_scratch():
    return {"residual": zeros(sizes.batch_size), "scaled": zeros(sizes.columns), "gradient": zeros(sizes.columns)}


def train(loader, w, b, blocks=1, lr=0.05):
    """Mean squared residual of an epoch; w and b are trained in place, in steps of `blocks` batches of the loader."""
    scratch, total, rest = new_scratch(), zeros(1), on_device(loader)
    for first in rest:
        batch = itertools.chain([first], itertools.islice(rest, blocks - 1))
        total += sgd_step_now(batch, w, b, mean, std, lr, scratch).reshape(1)
    return total.item() / records.rows


def train_naively(loader, w, b):
    for bx, by in on_device(loader):
        z = (bx - mean) / std
        residual = z @ w + b - by
        w = w - lr * (z.T @ residual / len(by))
        b = b - lr * residual.mean()


made_once = [zeros(sizes.batch_size, sizes.columns) for _ in range(2)]


def train_into_tensors_made_once(loader, w, b):
    for bx, by in on_device(loader):
        centred, z = (tensor[: len(bx)] for tensor in made_once)
        torch.div(torch.sub(bx, mean, out=centred), std, out=z)
        residual = z @ w + b - by
        w = w - lr * (z.T @ residual / len(by))
        b = b - lr * residual.mean()


def train_normalising_in_place(loader, w, b):
    for bx, by in on_device(loader):  # a batch is ours until the next one is asked for
        residual = (bx.sub_(mean).div_(std) @ w).add_(b).sub_(by)
        w.sub_(bx.T @ residual, alpha=lr / len(by))
        b.sub_(residual.mean(), alpha=lr)


def from_zero(loop, *args):
    return lambda: loop(args[0], zeros(sizes.columns), zeros(1), *args[1:])


x, y = rows_in_memory(data)
in_order = [(bx, by) for bx, by in zip(x.split(sizes.batch_size), y.split(sizes.batch_size), strict=True)]
steps = {
    "no loader: rows in memory order": from_zero(train, in_order),
    "ours, two passes": from_zero(train, loader),
    "ours, normalised in place": from_zero(train_normalising_in_place, loader),
    "ours, two tensors made once": from_zero(train_into_tensors_made_once, loader),
    "ours, new tensors in every step": from_zero(train_naively, loader),
    "TensorDataset, two passes": from_zero(train, DataLoader(TensorDataset(x, y), sizes.batch_size, shuffle=True)),
}
if sizes.blocks > 1:
    in_blocks = file.loader(batch=sizes.batch_size // sizes.blocks)
    steps[f"ours, two passes, in {sizes.blocks} blocks"] = from_zero(train, in_blocks, sizes.blocks)
seconds = seconds_in_turn(yardsticks(file.path, x_bytes) | steps, sizes.rounds)
for name in ("no loader: rows in memory order", "TensorDataset, two passes"):
    seconds[name] *= data.rows / len(x)
show_rates(seconds, x_bytes)
epoch, yards = without_yardsticks(seconds)
one_batch = [(x[: sizes.batch_size].to(device), y[: sizes.batch_size].to(device))]
batch_bytes = one_batch[0][0].nbytes
traffic = {}
for name, loop in (
    ("new tensors", train_naively),
    ("normalised in place", train_normalising_in_place),
    ("two passes", train),
):
    with Traffic() as traffic[name]:
        loop([tuple(part.clone() for part in one_batch[0])], zeros(sizes.columns), zeros(1))
    traffic[name] = [o for o in traffic[name].operations if max(o.read, o.written) >= batch_bytes and o.name != "clone"]
passes = {name: sum((o.read >= batch_bytes) + (o.written >= batch_bytes) for o in found)
          for name, found in traffic.items()}  # fmt: skip


def faults_per_step(loop):
    """Page faults of an epoch from zero weights, per step; the first epoch does not count."""
    loop()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    loop()
    return (resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) / len(loader)


slower_ways = "new tensors in every step", "two tensors made once", "normalised in place"
faults = {name: faults_per_step(steps[f"ours, {name}"]) for name in slower_ways}
naive, once, in_place = ((epoch[f"ours, {name}"] / epoch["ours, two passes"]).median().item() for name in slower_ways)
print(f"passes over {batch_bytes / 1e6:.1f} MB:", ", ".join(f"{name} {n}" for name, n in passes.items()))
print("page faults per step:", ", ".join(f"{name} {count:,.0f}" for name, count in faults.items()))
print(f"times as long as two passes: in place {in_place:.1f}, two tensors made once {once:.1f}, new tensors in every "
      f"step {naive:.1f}" + reveal(predicted_naive))  # fmt: skip
of_standard = (epoch["TensorDataset, two passes"] / epoch["ours, two passes"]).median().item()
course.claim("the step in two passes moves a third of the bytes of the other two steps",
             passes["two passes"] == 2 and passes["new tensors"] == passes["normalised in place"] == 6,
             f"{passes['two passes']} passes against {passes['new tensors']}")  # fmt: skip
course.claim("an epoch with new tensors takes at least 1.3 times as long as one in two passes", naive >= 1.3,
             f"{naive:.2f} times")  # fmt: skip
new, *kept = faults.values()
course.claim("new tensors in every step cost page faults, reused tensors and in-place operations almost none",
             new > 2 > max(kept),
             f"{new:,.0f}, {kept[0]:.0f} and {kept[1]:.0f} per step",
             otherwise="The allocator kept the memory from step to step. The extra time of new tensors may then come "
                       "from the third tensor that competes for the cache.")  # fmt: skip
course.claim("the unit's loader saves at least five sixths of an epoch with TensorDataset and the same step",
             of_standard >= 6, f"ten epochs take {10 * epoch['ours, two passes'].median():.1f} s instead of "
             f"{10 * epoch['TensorDataset, two passes'].median():.1f} s")  # fmt: skip
plots.epoch_times(epoch, x_bytes, yards)

# %% tags=["experiment"]
plots.traffic(traffic, batch_bytes)

# %% [markdown]
# Each block of the figure is one pass over the batch. Normalising in place makes no new tensor and still passes over
# the batch six times, so what it takes longer than two passes is traffic. The rest has two possible causes, and the
# contestant between the two tells them apart. Into two tensors that are made once, the same operations write 16 MB
# beside the batch: three batches want the processor's cache instead of one. What new tensors in every step take beyond
# that may have two causes as well. One is new memory: page faults, counted above in an epoch of its own. (Part 1 found
# none for a tensor of 8 MB. Here three live at once, since the last z is held until the next one is made, and a part of
# their memory may go back to the system between two steps, more or less of it from run to run.) The other is that third
# tensor: four batches want the cache.
#
# *No loader* runs the same step on rows that lie in memory in the right order. The loader adds a copy and can be faster
# all the same: the copy leaves the batch in the processor's cache for both products, while rows in order come from main
# memory.
#
# (The allocator of a GPU keeps all.) Where new tensors do not take 1.3 times as long as two passes, the batch lies in
# the processor's cache, where a pass costs little. With shorter rows the gain over TensorDataset is larger, with
# longer ones smaller. Blocks help where a whole batch does not fit into the cache; else they only add calls.

# %% tags=["experiment"]
w, b = zeros(sizes.columns), zeros(1)
true_w, true_b = torch.from_numpy(data.w).to(device), data.b
sgd_losses = []
for e in range(sizes.epochs):
    sgd_losses.append(train(loader, w, b))
    off = (w / std - true_w).norm().item()
    print(f"epoch {e + 1:2}: mean squared residual {sgd_losses[-1]:8.3f}, distance to the true weights {off:.3f} "
          f"of {true_w.norm():.2f}")  # fmt: skip
found_b = (b - mean @ (w / std)).item()
n, d = records.rows, sizes.columns
of_weights, of_intercept = regression.NOISE * (12 * d / n) ** 0.5, regression.NOISE * ((1 + 3 * d) / n) ** 0.5
print(f"intercept {found_b:.2f} (true {true_b:.2f}); the noise alone leaves a distance of the weights of about "
      f"{of_weights:.3f}, and of the intercept of about {of_intercept:.2f}")  # fmt: skip
otherwise = "There are too few epochs for the slowest direction, or too few rows for so many columns."
course.claim("the loss of SGD ends within 5 % of the variance of the noise",
             abs(sgd_losses[-1] / regression.NOISE**2 - 1) < 0.05,
             f"{sgd_losses[-1]:.3f}; least squares on these rows would reach about {1 - d / n:.3f}",
             otherwise=otherwise)  # fmt: skip
course.claim("the intercept of SGD is off by at most three times what the noise alone leaves",
             abs(found_b - true_b) < 3 * of_intercept, f"{abs(found_b - true_b):.2f}", otherwise=otherwise)  # fmt: skip
floor, per_pass = regression.NOISE**2, {"the unit's loader and step": epoch["ours, two passes"].median().item()}
plots.loss({"SGD": (list(range(1, sizes.epochs + 1)), sgd_losses)}, floor, per_pass, label="epochs")

# %% [markdown]
# The mean squared residual falls to about the variance of the noise, which is 1. Weights that fit these rows best lie a
# little below it, by a share of D / n: they fit a part of the noise, too. The published loop compares `w / std` with
# the true weights, and so does this one: the weights of normalised inputs are not those of the data. The intercept has
# to be moved by the means as well, which the published loop leaves out, and so it collects the errors of all weights:
# its standard error is that of D means of about a half, not that of one number.

# %% [markdown]
# ## A bug in the wild
#
# **An example that is published, copied and timed can make its data in three times the memory, train with another
# batch size than it says, and print a total that is none.**
#
# This unit descends from FFCV's guide to linear regression on data that does not fit, and from the script that belongs
# to it. They differ: the script has a batch size of 2,048, an intercept and float32 noise, which the guide's snippets
# leave out; the times that the guide reports fit the script, for a million batches of one row would take longer. The
# two functions below, in our own lines, hold ten faults of the one or of both and one more that is common elsewhere.
# Some hide behind others.


# %% locked="published_data"
def published_data(rows, columns):
    """(x, y, w, b): uniform x, w and b, and y with normal noise, as found in the wild.  Do not use it."""
    w, b, x = (np.random.uniform(size=size) for size in (columns, None, (rows, columns)))
    w, x = w.astype(np.float32), x.astype(np.float32)
    return x, x.dot(w) + np.random.standard_normal(rows), w, b


# %% [markdown]
# What its users report: to make data of 40 GB, a machine with 100 GB of memory runs out of it. A training with
# tensors made of these arrays stops at its first gradient, because two dtypes do not go together. Once that is
# mended, it finds the weights, and an intercept near 0 whatever `b` says. And nobody else gets the same data.

# %% [markdown]
# ### Exercise 4 · Mend the data
#
# Make the data of a linear problem so that its parts fit together.
#
# **Must**
# - draw x, w and b uniformly from [0, 1), independently; y is x w + b plus normal noise of standard deviation 1;
# - return x, y and w as float32 NumPy arrays, b as a number;
# - give the same data to the last bit for the same seed, whatever was drawn before, and other data for another seed;
# - with many columns, take at most 1.5 times the memory of x.
#
# **Not allowed** NumPy's global source of random numbers.
#
# **Points** 3 · **Extra** · **Difficulty** ●○○ · **Minutes** 10 · **Lines** 6
#
# **Source** FFCV's guide to large-scale linear regression (docs.ffcv.io), whose data this is; NumPy's documentation
# of `numpy.random.Generator`.
#
# <details><summary>Hint 1</summary>
#
# How many bytes does `np.random.uniform(size=(rows, columns))` take, and how many does its result still hold while
# `astype` makes another array of it?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `rng = np.random.default_rng(seed)` is a source of your own; `rng.random(size, dtype=np.float32)` draws float32 at
# once, and `rng.standard_normal` takes `dtype` too. Make one generator and draw everything from it.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# `y = x @ w + b + noise` is float32 if w and noise are, and b is a Python float or a float32:
# `float(rng.random())`.
#
# </details>


# %% solution="make_data"
def make_data(rows, columns, seed):
    """(x, y, w, b) of a linear problem: arrays float32 (rows, columns), (rows,) and (columns,), and a number.

    Args:
        rows: 1 or more.
        columns: 1 or more.
        seed: whole number from 0 on, from which everything is drawn.
    """
    ### BEGIN SOLUTION
    rng = np.random.default_rng(seed)
    x = rng.random((rows, columns), dtype=np.float32)
    w = rng.random(columns, dtype=np.float32)
    b = float(rng.random())
    y = x @ w + b + rng.standard_normal(rows, dtype=np.float32)
    return x, y, w, b
    ### END SOLUTION


# %% test="make_data-visible" points=1
check.make_data(make_data)

# %% test="make_data-hidden" points=2
### BEGIN HIDDEN TESTS
check.make_data(make_data, seed=40)
### END HIDDEN TESTS

# %% [markdown]
# The second function trains. It runs, its loss falls, and it prints what one wants to know.


# %% locked="published_fit"
def published_fit(x, y, epochs, batch_size, lr):
    """(w, b) after `epochs` of SGD on normalised columns, as found in the wild.  Do not use it."""
    loader = DataLoader(TensorDataset(x, y), drop_last=True)
    mean = sum(rows.sum(0) for rows, _ in loader) / len(x)
    std = (sum(rows.square().sum(0) for rows, _ in loader) / len(x) - mean.square()).sqrt()
    w, b = torch.zeros_like(mean), torch.zeros(1, device=x.device)
    for epoch in range(epochs):
        begin, loss = time.perf_counter(), 0.0
        for rows, targets in loader:
            z = (rows - mean) / std
            residual = z @ w + b - targets
            w -= lr * (z.T @ residual) / len(z)
            b -= lr * residual.mean()
            loss += residual.square().sum()
        print(f"epoch {epoch}: {time.perf_counter() - begin:.3f} s, loss {loss / len(loader):.4f}")
    print(f"in all {time.perf_counter() - begin:.3f} s")
    return w, b


# %% [markdown]
# What its users report:
#
# - `batch_size` may be 1 or 2048: neither the time nor the result changes.
# - Ten epochs take as long "in all" as the last of them.
# - A column of temperatures, 300 kelvin with hundredths that matter, makes all weights NaN or, in luckier cases,
#   wrong.
# - `x @ w + b` with the weights that come back is far from y, although the loss is small.
# - On a GPU the times it prints do not add up to what the clock on the wall says.
# - Somebody mended the first of these. Since then the loss is larger the larger the batch; and if the batch size
#   does not divide the number of rows, the normalised columns do not have mean 0, and some rows teach the model
#   nothing.

# %% [markdown]
# ### Exercise 5 · Mend the training
#
# Write the training without these faults.
#
# **Must**
# - normalise each batch by mean and standard deviation (divided by n) of all rows of x;
# - start with w and b at 0; in each epoch take all rows in order, `batch_size` per step, the rest in a last one, with
#   gradients as above;
# - report as loss of an epoch the mean of r² over all rows, each r taken before its step;
# - return w and b for x as it is: `x @ w + b` predicts y;
# - read the time with `clock()`, right after `synchronize()`; the total starts before the statistics;
# - print nothing.
#
# **You may assume** that no column is constant.
#
# **Points** 5 · **Extra** · **Difficulty** ●●○ · **Minutes** 35 · **Lines** 22
#
# **Source** `examples/docs_examples/linear_regression.py` in github.com/libffcv/ffcv.
#
# <details><summary>Hint 1</summary>
#
# Take the symptoms one by one. Which line decides how many rows are in a batch? By what is each sum divided, and
# how many summands has it? What does `begin` hold when the total is printed?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# A slice that reaches beyond the end of x is short, which is what the last batch should be. `torch.std_mean(x, 0,
# correction=0)` is stable. A function inside of yours that first calls `synchronize()` and then returns `clock()`
# cannot be used wrongly.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# From z w + b = x (w / std) + (b - mean . (w / std)) follow the weights for x. Two variables for the two clocks:
# `begin` is set once, before the statistics, `start` in every epoch. Keep the sum of an epoch as a tensor, divide
# it by `len(x)`, and make floats of all of them at the end.
#
# </details>


# %% solution="fit"
def fit(x, y, epochs, batch_size, lr, clock=time.perf_counter, synchronize=lambda: None):
    """What a training of a linear model by SGD found, and what it took: a dict.

    Args:
        x: float32 (n, D), not normalised.
        y: float32 (n,), on the device of x.
        epochs: passes over all rows, 1 or more.
        batch_size: rows of a step, 1 or more, also more than n.
        lr: the learning rate, a float.
        clock: function without arguments that gives the time in seconds.
        synchronize: function without arguments that waits until everything queued on the device is computed.

    Returns: {"w": float32 tensor (D,), "b": float32 tensor (1,), both on the device of x and for x as it is,
        "losses": list of floats, one an epoch, "seconds": list of floats, one an epoch, "total_seconds": float}.
    """

    ### BEGIN SOLUTION
    def now():
        synchronize()
        return clock()

    begin = now()
    std, mean = torch.std_mean(x, 0, correction=0)
    w, b = torch.zeros_like(mean), mean.new_zeros(1)
    seconds, losses = [], []
    for _ in range(epochs):
        start, squares = now(), 0.0
        for first in range(0, len(x), batch_size):
            rows, targets = x[first : first + batch_size], y[first : first + batch_size]
            z = (rows - mean) / std
            residual = z @ w + b - targets
            squares += residual.square().sum()
            w -= lr * (z.T @ residual) / len(z)
            b -= lr * residual.mean()
        seconds.append(now() - start)
        losses.append(squares / len(x))
    total_seconds = now() - begin
    w = w / std
    losses = [loss.item() for loss in losses]
    return {"w": w, "b": b - mean.dot(w), "losses": losses, "seconds": seconds, "total_seconds": total_seconds}
    ### END SOLUTION


# %% test="fit-visible" points=2
check.fit(fit)

# %% test="fit-hidden" points=3
### BEGIN HIDDEN TESTS
check.fit(fit, seed=36)
### END HIDDEN TESTS

# %% [markdown]
# Where they come from. From the guide's snippets alone: y without its intercept, float64, a loader without a batch
# size, a total whose clock starts anew in every epoch. From guide and script: x drawn in float64 and converted, which
# takes three times the memory; the variance as $E[x^2] - E[x]^2$; sums divided by all rows although FFCV's loader drops
# the last ones by default; an intercept of normalised columns; a clock that is read before the GPU has finished; no
# seed. Common elsewhere: a sum of squares divided by the number of batches.

# %% [markdown]
# ## Better than plain SGD
#
# **When a pass over the data is what costs, ask how much each pass can buy.**
#
# The guide from which this unit descends says it in a note: whoever only wants the weights of a regularised linear
# regression should not take plain gradient descent, but conjugate gradients or a variance-reduced method. Both read
# the file as the loop above does, so everything about loading stays true for them. They differ in what they do with
# a pass.
#
# The objective is $\frac1n |Xw - y|^2 + \lambda |w|^2$. Where its gradient is zero, $A w = c$ holds with $A =
# \frac1n X^\top X + \lambda I$ and $c = \frac1n X^\top y$. With 10,000 columns $A$ has 100 million entries, and
# forming it takes $n$ times as many multiplications. It is not needed: $X^\top X v$ is $X^\top (X v)$, and a sum
# over batches of $x^\top (x v)$. One pass over the rows gives the product of $A$ with one vector, for two products
# of a matrix and a vector a batch, as in SGD.
#
# *Gradient descent* on all rows uses such a product to take one step, and each direction of space shrinks at its
# own speed: to shrink the slowest, the number of passes must grow with the condition number $\kappa$ of $A$, the
# largest eigenvalue over the smallest. *Conjugate gradients* (CG) also take one product a step. But after $k$ of
# them the iterate is the best of all vectors that can be combined from $c, Ac, \ldots, A^{k-1} c$. Two things
# follow. The number of passes grows with $\sqrt\kappa$ at most. And eigenvalues that lie together count as one:
# data whose values are uniform in $[0, 1)$ have one large eigenvalue, about a quarter of the number of columns,
# which belongs to their mean, and all others lie around $\frac1{12}$ (closely, if there are many more rows than
# columns). For CG that is nearly two eigenvalues, however large $\kappa$ is. (In float32 rounding brings back a
# trace of directions that were dealt with, which costs an iteration or two more.) Nor is there a learning rate to
# be tuned. (Normalised columns, as in the measurement below, have lost the large one already.)
#
# *SGD* takes a step with each batch, so hundreds a pass, and early on that is hard to beat. Late it is not: at the
# minimum the mean of the batches' gradients is zero, each single one is not. With a constant learning rate the weights
# keep jumping about the minimum. SVRG removes that noise: from the gradient of a batch it subtracts the gradient of the
# same batch at a fixed point, the *snapshot*, and adds the gradient of all rows there, which it has from a pass of
# its own. On the average nothing changes, because what is subtracted has the mean that is added. And the closer `w`
# and the snapshot are to the minimum, the smaller is what is left of the noise.
#
# With m batches and n rows in a pass, the gradient of batch i is $g_i(w) = \frac{m}{n}\, x_i^\top (x_i w - y_i) +
# \lambda w$: divided by the mean size of a batch, so that the mean of all $g_i$ is the full gradient also if the last
# is small. (As in $A$ and $c$, the factor 2 of the objective's gradient is left out: $\lambda$ is the factor of $|w|^2$
# in the objective and of $w$ in $g_i$.)

# %% [markdown]
# ### Exercise 6 · Conjugate gradients on a stream
#
# Solve ridge regression by conjugate gradients, with as few passes as that takes.
#
# **Must**
# - solve $A w = c$ of the text above with $\lambda$ = `strength`, without an intercept;
# - use the first pass for $c$ and the number of rows, each later one for one product with $A$; each call of `read()`
#   counts;
# - start from $w = 0$; carry the residual along instead of computing it anew;
# - end once |residual| ≤ `tolerance` · |c|, or after `most` passes; if y is all zeros, after one;
# - make no tensor larger than a batch; keep no batch, write into none.
#
# **Not allowed** NumPy.
#
# **Points** 6 · **Extra** · **Difficulty** ●●○ · **Minutes** 25 · **Lines** 17
#
# **Source** Hestenes and Stiefel 1952, "Methods of conjugate gradients for solving linear systems".
#
# <details><summary>Hint 1</summary>
#
# Which quantities of an iteration need the data, and which only vectors with an entry for each column? How many
# passes is that?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Batches differ in size: add up $x^\top (x v)$ over the batches and divide by the number of all rows at the end.
# Mind the brackets: `x.T @ x @ v` forms a matrix first.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# Keep `square = residual @ residual`. An iteration: `product` $= A\,$`direction` by one pass; `step = square /
# (direction @ product)`; `w` moves by `step * direction`, `residual` by `-step * product`; with the new square, the
# new direction is `residual + new / old * direction`. Compare squares: `square > tolerance**2 * start` goes on, and
# is false at once if both are zero.
#
# </details>


# %% solution="ridge_by_cg"
def ridge_by_cg(read, columns, strength, tolerance=1e-5, most=30):
    """The weights of a ridge regression by conjugate gradients on streamed products.

    Args:
        read: called without arguments it starts a pass over the data, an iterator over batches (x, y): x float32
            (n_i, columns), y float32 (n_i,), views of a buffer that is refilled when the next batch is asked for.
        columns: number of columns of the data.
        strength: the factor of |w|^2 in the objective, 0 or more.
        tolerance: ends when the norm of the residual is at most this times that of X^T y / n.
        most: the most passes to take, 1 or more.

    Returns: (w, passes, residuals): w float32 (columns,) on the device of the batches; the number of calls of `read`,
        an int; a list of floats, after each iteration the norm of the residual over that of X^T y / n.
    """
    ### BEGIN SOLUTION
    right, rows = 0, 0
    for x, y in read():
        right, rows = right + x.T @ y, rows + len(y)
    residual = direction = right / rows
    w = residual.new_zeros(columns)
    start = square = residual @ residual
    passes, residuals = 1, []
    while passes < most and square > tolerance**2 * start:
        product = sum(x.T @ (x @ direction) for x, _ in read()) / rows + strength * direction
        step = square / (direction @ product)
        w, residual = w + step * direction, residual - step * product
        before, square = square, residual @ residual
        direction = residual + square / before * direction
        passes += 1
        residuals.append((square / start).sqrt().item())
    return w, passes, residuals
    ### END SOLUTION


# %% test="ridge_by_cg-visible" points=3
check.ridge_by_cg(ridge_by_cg)

# %% test="ridge_by_cg-hidden" points=3
### BEGIN HIDDEN TESTS
check.ridge_by_cg(ridge_by_cg, seed=1952)
### END HIDDEN TESTS

# %% [markdown]
# ### Exercise 7 · SGD without its noise
#
# Write SVRG: SGD whose steps become exact near the minimum.
#
# **Must**
# - take two passes per epoch; the snapshot is `w` at the beginning of the epoch;
# - first pass: the full gradient at the snapshot, with $\lambda$ = `strength`;
# - second pass, for each batch: `w -= lr * (g(w) - g(snapshot) + full)`, g as above;
# - return the last `w` and the number of calls of `read()`; leave the caller's `w` as it is;
# - make no tensor larger than a batch; keep no batch, write into none.
#
# **Not allowed** NumPy.
#
# **Points** 5 · **Extra** · **Difficulty** ●●○ · **Minutes** 20 · **Lines** 9
#
# **Source** Johnson and Zhang 2013, "Accelerating stochastic gradient descent using predictive variance reduction".
#
# <details><summary>Hint 1</summary>
#
# If `w` is the snapshot, what is the step? And if both are the minimum?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# For least squares, $y$ drops out of $g(w) - g(\text{snapshot})$, and what is left depends on the difference $d = w
# - \text{snapshot}$ alone. So one product `x @ d` does instead of two. A snapshot must not be another name of a
# tensor that is changed in place.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# First pass: add up `x.T @ (x @ snapshot - y)`, the rows and the batches; `full = total / rows + strength *
# snapshot`. Second pass, for each batch: `d = w - snapshot`, then `w = w - lr * (x.T @ (x @ d) * batches / rows +
# strength * d + full)`, which makes a new tensor.
#
# </details>


# %% solution="svrg"
def svrg(read, w, lr, strength, epochs):
    """The weights after `epochs` epochs of SVRG on the squared loss with a ridge term.

    Args:
        read: called without arguments it starts a pass over the data, an iterator over batches (x, y): x float32
            (n_i, columns), y float32 (n_i,), views of a buffer that is refilled when the next batch is asked for.
        w: float32 tensor (columns,), the weights to start from; not changed.
        lr: learning rate, constant.
        strength: the factor of w in the gradient, 0 or more.
        epochs: 1 or more, of two passes each.

    Returns: (w, passes): a new float32 tensor (columns,), and the number of calls of `read`, an int.
    """
    ### BEGIN SOLUTION
    for _ in range(epochs):
        snapshot, total, rows, batches = w, 0, 0, 0
        for x, y in read():
            total, rows, batches = total + x.T @ (x @ snapshot - y), rows + len(y), batches + 1
        full = total / rows + strength * snapshot
        for x, _ in read():
            shift = w - snapshot  # what g(w) - g(snapshot) depends on: y drops out
            w = w - lr * (x.T @ (x @ shift) * batches / rows + strength * shift + full)
    return w, 2 * epochs
    ### END SOLUTION


# %% test="svrg-visible" points=2
check.svrg(svrg)

# %% test="svrg-hidden" points=3
### BEGIN HIDDEN TESTS
check.svrg(svrg, seed=2013)
### END HIDDEN TESTS

# %% [markdown]
# Three methods on the same stream. Normalised rows and centred responses, no penalty to speak of. An epoch of SGD
# is one pass, an epoch of SVRG two, an iteration of CG one. The best weights are those with the least loss on these
# rows; the true ones lie a little off, because of the noise. Predict: after how many passes is CG nearer to the
# best than the truth is?

# %%
predicted_passes = None

# %% tags=["experiment"]
ridge_by_cg_now, svrg_now = course.solved(check.ridge_by_cg), course.solved(check.svrg)
y_mean = float(np.mean(data.y, dtype=np.float64))


def normalised():
    """A pass over the rows, each batch normalised where it lies: in the loader's own buffer."""
    for bx, by in on_device(file.loader()):
        yield bx.sub_(mean).div_(std), by.sub_(y_mean)


gram, target = zeros(sizes.columns, sizes.columns).double(), zeros(sizes.columns).double()
for bx, by in normalised():  # columns x columns numbers, which CG never needs: for the comparison only
    gram += (bx.T @ bx).double()
    target += (bx.T @ by).double()


def solved_directly(strength):
    """The weights of the ridge regression, float32, from the normal equations in float64."""
    penalty = strength * torch.eye(sizes.columns, device=device)
    return torch.linalg.solve(gram / records.rows + penalty, target / records.rows).float()


best = solved_directly(0)


def excess(weights):
    """Mean squared residual of `weights` above that of the best ones: the square of Z (w - best)."""
    total = sum((bx @ (weights - best)).square().sum().item() for bx, by in normalised())
    return total / records.rows


SLOWER = "SGD, a quarter of the learning rate later"
curves = {name: ([0], [excess(zeros(sizes.columns))]) for name in ("SGD", SLOWER, "SVRG", "CG")}


def add(name, passes, weights):
    curves[name][0].append(passes)
    curves[name][1].append(excess(weights))


for name, later in (("SGD", lr), (SLOWER, lr / 4)):
    w, b = zeros(sizes.columns), zeros(1).add_(y_mean)
    for e in range(sizes.few_epochs):
        train(loader, w, b, lr=lr if e < sizes.few_epochs // 2 else later)
        add(name, e + 1, w)
w = zeros(sizes.columns)
for e in range(sizes.few_epochs // 2):
    w, _ = svrg_now(normalised, w, lr, 0.0, 1)
    add("SVRG", 2 * (e + 1), w)
for most in range(2, sizes.few_epochs + 1):
    w, passes, _ = ridge_by_cg_now(normalised, sizes.columns, 0.0, tolerance=0.0, most=most)
    add("CG", passes, w)
of_truth = excess(true_w * std)
enough = next((n for n, value in zip(*curves["CG"], strict=True) if value < of_truth), None)
print(f"CG is nearer to the best weights than the true ones are after {enough} passes" + reveal(predicted_passes))
ends = {name: losses[-1] for name, (_, losses) in curves.items()}
otherwise = "There are too few passes for the methods to reach their floor."
course.claim("a quarter of the learning rate in the second half lowers the floor of SGD to less than half",
             ends[SLOWER] < ends["SGD"] / 2, f"{ends[SLOWER] / ends['SGD']:.2f} of it",
             otherwise=otherwise)  # fmt: skip
course.claim("SVRG and CG pass SGD's floor by a factor of a hundred and more", max(ends["SVRG"], ends["CG"])
             < ends["SGD"] / 100, f"{ends['SGD'] / ends['SVRG']:.0e} and {ends['SGD'] / ends['CG']:.0e}",
             otherwise=otherwise)  # fmt: skip
plots.loss(curves, of_truth, per_pass, of="mean squared residual\nabove the best weights'")

# %% [markdown]
# The dotted line is the excess of the true weights: below it a method only fits the noise of these rows more
# closely. SGD gets near it in the fewest passes and then jitters about a floor that its learning rate sets. SVRG has
# no such floor: its steps get small as the snapshot gets good. CG needs no learning rate, and each of its iterations
# is one pass; where its line turns flat, the weights are as exact as float32 can hold them. The columns of this data
# are independent, so every direction is equally steep, and all three have it easy. With correlated columns the passes
# of CG grow with the square root of the condition number, those of gradient descent with the condition number itself.

# %% tags=["experiment"]
w, passes, residuals = ridge_by_cg_now(normalised, sizes.columns, 1e-3, tolerance=1e-7, most=30)
exact = solved_directly(1e-3)
print(f"ridge by CG: {passes} passes, relative error {((w - exact).norm() / exact.norm()).item():.1e}")

# %% [markdown]
# ## What to take home
#
# - Variance from E[x²] − E[x]² cancels; update means and squared deviations instead.
# - Predict the bytes of each hop, then count them: padding and whole memory pages are in them.
# - In the loop, count passes over the data and new tensors; normalise the weights, not the data.
# - A time without `synchronize`, a loss divided by the wrong number and a forgotten batch size all look like results.
# - Then ask whether the method needs so many passes.
