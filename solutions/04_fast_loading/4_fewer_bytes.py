# %% [markdown]
# # Fast loading, part 4: Fewer bytes
#
# **How few bytes does a training step have to move?**
#
# You count the bytes that a row moves. Then you move fewer.
#
# **You will be able to**
#
# - predict the bytes that a row moves from disk to step, padding included
# - write a step that reads its batch twice and makes no new tensor of its size
# - take mean and standard deviation in one pass
#
# **Minutes** 39 core · 60 in all · session 2
#
# **Needs** parts 1 to 3 (their answers are used if you solved them)

# %% locked="setup"
import itertools
import mmap
import tempfile
from pathlib import Path
from types import SimpleNamespace

import torch
from torch.utils.data import DataLoader, TensorDataset

import course
from course.checks import fast_loading as check
from course.datasets import regression
from course.learner.predictions import reveal
from course.loading.copies import DeviceCopies
from course.loading.record_files import RecordFile
from course.loading.records import row_stride
from course.measure.comparison import compare, ratio_interval
from course.measure.page_cache import HEADER, drop_cached, map_rows, reads
from course.measure.traffic import Traffic
from course.measure.yardsticks import (
    MEMCPY,
    iterate,
    memcpy_of,
    rows_in_memory,
    show_rates,
    yardsticks,
)
from course.plots import fast_loading as plots

device = course.device()
print(course.machine())
sizes = course.sizes("04_fast_loading")

# %% [markdown]
# ## How many bytes does one row move?
#
# Before a step uses a row, the row is read from the disk, copied into a buffer, and perhaps sent to a GPU. A row of D
# columns has 4 D bytes of x, and 4 bytes of y follow. Rows begin a *stride* apart, which is a power of two up to 4096
# bytes or a multiple of 4096. A disk is read in memory pages of 4096 bytes, so a row that is read alone fetches whole
# pages.
#
# **Predict**: how many bytes does the disk deliver per row of 1,024 columns, if each row is read alone?

# %%
predicted_1024 = None  # bytes per row

# %% [markdown]
# ### Exercise 1 · The ledger
#
# Compute how many bytes one row moves at each hop.
#
# ```python
# >>> bytes_per_row(1000, 4096, alone=True, passes=2)
# {'disk': 4096, 'buffer': 8192, 'bus': 4096, 'step': 8000}
# ```
#
# Return a dict of ints.
#
# **Must**
# - `"disk"`: the bytes read from a cold file, padding included, if the row is read `alone`, or with its neighbours;
# - `"buffer"` and `"bus"`, padding included: what a copy of the row into a buffer reads plus what it writes, and what
#   one transfer to a GPU carries;
# - `"step"`: what the step reads of x in `passes` passes, without padding.
#
# **Points** 2 · **Core** · **Difficulty** ●○○ · **Minutes** 8 · **Lines** 5
#
# **Source** Linux's documentation, "Concepts overview", section page cache.
#
# <details><summary>Hint 1</summary>
#
# How many memory pages does a row with a stride of 256 bytes touch? One with a stride of 20,480?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# A row that is read alone fetches `max(stride, 4096)` bytes. Copies take y and padding along: the whole stride.
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
# Now compare with counts. The system reports what the disk delivered. The shapes of the tensors tell what each
# operation of torch read and wrote.

# %% tags=["experiment"]
data = regression.prepare(sizes.rows, sizes.columns)
asked = (check.gather, check.random_order, check.read_ahead)
answers = SimpleNamespace(**{exercise.name: course.solved(exercise) for exercise in asked})
bytes_per_row_now, copy_ahead_now = course.solved(check.bytes_per_row), course.solved(check.copy_ahead)


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
    x, y = batch[:, :columns], batch[:, columns]
    with Traffic() as copied:
        DeviceCopies(device).start((x, y)).tensors()
    with Traffic() as stepped:
        x.T @ (x @ torch.zeros(columns) - y)  # the two sweeps of a step
    of_x = sum(4 * few * columns for operation in stepped.operations if operation.read >= 4 * few * columns)
    moved = gathered.read + gathered.written - some.nbytes
    return {"disk, alone": alone, "disk, in pages": in_pages, "buffer": moved / few,
            "bus": sum(operation.written for operation in copied.operations) / few, "step": of_x / few}  # fmt: skip


ledgers = {}
with tempfile.TemporaryDirectory(dir=data.folder) as folder:
    for columns in (100, 1000, 1024, 3000):
        stride = row_stride(columns)
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

# %% [markdown]
# Read alone, a row of 100 columns fetched 4,096 bytes for its 404; together with its neighbours, 516. A row of 1,024
# columns has 4,100 bytes, so it needs two memory pages, and half of what the disk delivers is padding.
#
# **Takeaway** You can compute the bytes of every hop from stride, columns and passes, before you time anything.

# %% [markdown]
# ## Can one pass find the standard deviation? · extra
#
# The step below normalises columns to mean 0 and standard deviation 1, so it needs both. The textbook formula gets the
# variance in one pass: $E[x^2] - E[x]^2$. Take a column with mean 10,000 and standard deviation 0.1, in float32.
#
# **Predict**: what does the textbook formula give for that standard deviation?

# %%
predicted_std = None

# %% [markdown]
# Another way is to merge batches by their means and sums of squared deviations. Say $n$ rows have the mean $m$ and the
# sum of squared deviations $S$, and $k$ more rows have $m'$ and $S'$. With $\delta = m' - m$, all of them together have
#
# $$\text{mean} = m + \delta \frac{k}{n + k}, \qquad
# \text{sum of squared deviations} = S + S' + \delta^2 \frac{n k}{n + k}.$$
#
# ### Exercise 2 · Mean and standard deviation in one pass
#
# Go through the batches once and return mean and standard deviation of every column.
#
# ```python
# >>> batches = [(torch.tensor([[1.0], [3.0]]), None), (torch.tensor([[5.0]]), None)]
# >>> [part.tolist() for part in mean_and_std(batches)]
# [[3.0], [1.632993221282959]]
# ```
#
# **Must**
# - go through `batches` once, and divide by the number of rows n, not by n - 1;
# - keep sums only, because a batch is refilled when the next is asked for;
# - find, for mean 10,000 and standard deviation 0.1, the mean to 0.01 and the standard deviation to 2 %.
#
# **Not allowed** NumPy; float64.
#
# **Points** 4 · **Extra** · **Difficulty** ●●○ · **Minutes** 15 · **Lines** 9
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
# Keep the number of rows, the mean, and the sum of squared deviations. All can start as the number 0: the first batch,
# with n = 0, then follows the same formula.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# Per batch: `center = x.mean(0)`, `delta = center - mean`, `squares = squares + (x - center).square().sum(0) +
# delta.square() * (n * k / (n + k))`, then the new mean, then `n += k`.
#
# </details>


# %% solution="mean_and_std"
def mean_and_std(batches):
    """(mean, std) of every column over the rows of all batches, two float32 tensors (D,) on the device of x.

    Args:
        batches: iterable of (x, y): x float32 (k, D), k from 1 on and not always the same, y float32 (k,), not needed
            here.  A batch is valid until the next is asked for.
    """
    ### BEGIN SOLUTION
    n, mean, squares = 0, 0.0, 0.0
    for x, _ in batches:
        k = len(x)
        center = x.mean(0)
        delta = center - mean
        squares = squares + (x - center).square().sum(0) + delta.square() * (n * k / (n + k))
        n += k
        mean = mean + delta * (k / n)
    return mean, (squares / n).sqrt()
    ### END SOLUTION


# %% test="mean_and_std-visible" points=2
check.mean_and_std(mean_and_std)

# %% test="mean_and_std-hidden" points=2
### BEGIN HIDDEN TESTS
check.mean_and_std(mean_and_std, seed=1979)
### END HIDDEN TESTS

# %% tags=["experiment"]
merged_now = course.solved(check.mean_and_std)
hard = 10_000 + 0.1 * torch.randn(4096, 1, generator=torch.Generator().manual_seed(0))
parts = [(part, None) for part in hard.split(512)]
textbook = (sum(x.square().sum() for x, _ in parts) / 4096 - (sum(x.sum() for x, _ in parts) / 4096).square()).sqrt()
yours = merged_now(parts)[1].item()
print(f"standard deviation 0.1: textbook {textbook.item():.3f}" + reveal(predicted_std) + f", yours {yours:.4f}")
course.claim("in float32 the textbook formula misses the standard deviation by more than half",
             not abs(textbook.item() / 0.1 - 1) < 0.5, f"{textbook.item():.3f} instead of 0.1")  # fmt: skip
course.claim("merging batches finds the standard deviation to 2 %", abs(yours / 0.1 - 1) < 0.02, f"{yours:.4f}")

# %% [markdown]
# The textbook formula gave `nan`, the root of a negative variance. The squares are about 10⁸, where neighbouring
# float32 numbers lie 8 apart, and the variance is 0.01.
#
# **Takeaway** For a standard deviation in one pass, merge means and squared deviations. Do not subtract squares.

# %% [markdown]
# ## What does a step save by reading its batch twice?
#
# With $z = (x - \text{mean}) / \text{std}$ the model predicts $z w + b$. Its residual is $r = z w + b - y$, and the
# gradients of half the mean of $r^2$ are $z^T r / n$ and the mean of $r$. Written line by line, the step goes through
# the batch six times: it reads x, writes $x - \text{mean}$, reads that, writes $z$, and reads $z$ for two products. But
# you can normalise the weights instead of the data:
#
# $$z w + b = x \frac{w}{\text{std}} + \left(b - \text{mean} \cdot \frac{w}{\text{std}}\right), \qquad
# z^T r = \frac{x^T r - \text{mean} \sum r}{\text{std}}.$$
#
# Two products with x remain, so two passes. A batch may also come in blocks of rows, because their gradients add up.
#
# **Predict**: how much slower is an epoch if every step makes new tensors in six passes, compared with two passes?

# %%
predicted_naive = None  # times

# %% [markdown]
# ### Exercise 3 · A step in two passes
#
# Write one step of SGD on the squared loss without a copy of x. The loop and its buffers are given: `scaled` is
# $w / \text{std}$, `shift` the bracket above, `gradient` is filled with zeros. Write the body of the loop, and what
# follows it.
#
# ```python
# >>> w, b, one = torch.zeros(1), torch.zeros(1), torch.ones(1)
# >>> scratch = {"residual": torch.zeros(2), "scaled": torch.zeros(1), "gradient": torch.zeros(1)}
# >>> batch = (torch.tensor([[1.0], [2.0]]), torch.tensor([1.0, 3.0]))
# >>> sgd_step_([batch], w, b, torch.zeros(1), one, 0.5, scratch).item(), w.item(), b.item()
# (10.0, 1.75, 1.0)
# ```
#
# **Must**
# - change `w` and `b` in place, once, after the last block, as if all blocks were one batch;
# - read each block of x at most twice, and make no new tensor of more than one element;
# - never wait for the device (`.item()`, `float(t)`).
#
# **Convention** `torch.mv(x, v, out=r)`, `g.addmv_(x.T, r)` and `g.addcmul_(t, s, value=-1)` write into tensors that
# exist.
#
# **Points** 6 · **Core** · **Difficulty** ●●● · **Minutes** 14 · **Lines** 8
#
# **Source** our own; FFCV's guide advises normalising.
#
# <details><summary>Hint 1</summary>
#
# Which of these depend on the block: x^T r, the sum of r, the division by std? What can wait until after the loop?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `torch.mv(x, scaled, out=residual)`, then `residual.add_(shift).sub_(y)`. Add x^T r to `gradient`, the sum of r to
# `total`, the sum of its squares to `loss`.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# In the loop: `gradient.addmv_(x.T, residual)`, `total += residual.sum()`, `loss += residual.dot(residual)`. After it:
# `gradient.addcmul_(mean, total, value=-1).div_(std)`, then `w.sub_(gradient, alpha=lr / n)`, and b likewise.
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
    n, total, loss = 0, torch.zeros_like(b), torch.zeros_like(b)  # rows, sum of r, sum of r squared
    for x, y in blocks:
        n, residual = n + len(x), scratch["residual"][: len(x)]
        ### BEGIN SOLUTION
        torch.mv(x, scaled, out=residual).add_(shift).sub_(y)
        gradient.addmv_(x.T, residual)
        total += residual.sum()
        loss += residual.dot(residual)
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

# %% tags=["experiment"]
x_bytes = 4 * data.rows * data.columns
file = RecordFile(answers, data, sizes.batch_size, sizes.page, sizes.window)  # of part 1; written if it is not there
records, loader = file.records, file.loader()


def on_device(loader):
    """The batches of a loader on the device: as they are on a CPU, else copied ahead."""
    return iter(loader) if device.type == "cpu" else copy_ahead_now(iter(loader), DeviceCopies(device))


statistics_now = course.solved(check.mean_and_std)
mean, std = statistics_now(on_device(loader))
sgd_step_now, lr = course.solved(check.sgd_step_), 0.05


def zeros(*shape):
    return torch.zeros(*shape, device=device)


def new_scratch():
    return {"residual": zeros(sizes.batch_size), "scaled": zeros(sizes.columns), "gradient": zeros(sizes.columns)}


def train(loader, w, b, blocks=1):
    """Mean squared residual of an epoch; w and b are trained in place, in steps of `blocks` batches of the loader."""
    scratch, total, rest = new_scratch(), zeros(1), on_device(loader)
    for first in rest:
        batch = itertools.chain([first], itertools.islice(rest, blocks - 1))
        total += sgd_step_now(batch, w, b, mean, std, lr, scratch).reshape(1)
    return total.item() / records.rows


def train_naively(loader, w, b):
    """With new tensors in every step."""
    for bx, by in on_device(loader):
        z = (bx - mean) / std
        residual = z @ w + b - by
        w = w - lr * (z.T @ residual / len(by))
        b = b - lr * residual.mean()


def train_normalising_in_place(loader, w, b):
    """The same operations in the loader's own buffer."""
    for bx, by in on_device(loader):  # a batch is ours until the next one is asked for
        residual = (bx.sub_(mean).div_(std) @ w).add_(b).sub_(by)
        w.sub_(bx.T @ residual, alpha=lr / len(by))
        b.sub_(residual.mean(), alpha=lr)


def from_zero(loop, *args):
    return lambda: loop(args[0], zeros(sizes.columns), zeros(1), *args[1:])


x, y = rows_in_memory(data)
TWO, PLACE, NEW = "ours, two passes", "ours, normalised in place", "ours, new tensors in every step"
STANDARD = "TensorDataset, two passes"
steps = {
    TWO: from_zero(train, loader),
    PLACE: from_zero(train_normalising_in_place, loader),
    NEW: from_zero(train_naively, loader),
    STANDARD: from_zero(train, DataLoader(TensorDataset(x, y), sizes.batch_size, shuffle=True)),
}
epoch = compare(steps | yardsticks(file.path, x_bytes), device=device, seconds=sizes.seconds, progress=False)
epoch.seconds[STANDARD].mul_(data.rows / len(x))
show_rates(epoch, x_bytes)
print(f"{epoch.rounds} rounds; control: {TWO} against itself {epoch.control}")
naive, in_place = (epoch.ratio(TWO, to=way) for way in (NEW, PLACE))
plots.epoch_times(epoch, x_bytes, f"Two passes are {naive.estimate:.1f} times as fast as new tensors in every step, "
                                  f"and {in_place.estimate:.1f} times as fast as six passes in place")  # fmt: skip

# %% tags=["experiment"]
one_batch = (x[: sizes.batch_size].to(device), y[: sizes.batch_size].to(device))
batch_bytes, traffic = one_batch[0].nbytes, {}
loops = {"new tensors": train_naively, "normalised in place": train_normalising_in_place, "two passes": train}
for name, loop in loops.items():
    with Traffic() as seen:
        loop([tuple(part.clone() for part in one_batch)], zeros(sizes.columns), zeros(1))
    traffic[name] = [o for o in seen.operations if max(o.read, o.written) >= batch_bytes and o.name != "clone"]
passes = {name: sum((o.read >= batch_bytes) + (o.written >= batch_bytes) for o in found)
          for name, found in traffic.items()}  # fmt: skip
print(f"passes over {batch_bytes / 1e6:.1f} MB:", ", ".join(f"{name} {n}" for name, n in passes.items()))
print(f"slower than two passes: in place {in_place} times, new tensors {naive} times" + reveal(predicted_naive))
course.claim("the step in two passes moves a third of the bytes of the other two steps",
             passes["two passes"] == 2 and passes["new tensors"] == passes["normalised in place"] == 6,
             f"{passes['two passes']} passes against {passes['new tensors']}")  # fmt: skip
course.claim("an epoch with new tensors takes at least 1.3 times as long as one in two passes", naive, above=1.3,
             otherwise="The batch is small enough for the cache, or the loader takes most of the epoch.")  # fmt: skip
course.claim("an epoch of six passes in place takes at least 1.1 times as long as one of two passes", in_place,
             above=1.1)  # fmt: skip
allocating, reading = (epoch.seconds[way] / epoch.seconds[other] for way, other in ((NEW, PLACE), (PLACE, TWO)))
course.claim("new tensors cost more than the four passes that two passes save", ratio_interval(allocating, reading),
             above=1)  # fmt: skip
course.claim("an epoch with TensorDataset and the same step takes at least six times as long as one of our loader",
             epoch.ratio(TWO, to=STANDARD), above=6,
             otherwise="Long rows and a slow step leave less for a loader to win.")  # fmt: skip
plots.traffic(traffic, batch_bytes)

# %% [markdown]
# Each block of the figure is one pass over the batch. **Shown**: the way in place and the way with new tensors make the
# same six passes, so what lies between them is the cost of fresh memory (part 1). What lies between the way in place
# and the two passes is the cost of four passes. Which of the two is larger on your machine?
#
# Does the step learn? It trains the weights of normalised columns. To compare them with the true ones, the next cell
# divides them by std and moves b by the means.

# %% tags=["experiment"]
w, b = zeros(sizes.columns), zeros(1)
true_w, noise = torch.from_numpy(data.w).to(device), regression.NOISE
losses = [train(loader, w, b) for _ in range(sizes.epochs)]
found_b = (b - mean @ (w / std)).item()
of_intercept = noise * ((1 + 3 * sizes.columns) / records.rows) ** 0.5
print("loss per epoch:", " ".join(f"{loss:.3f}" for loss in losses))
print(f"distance to the true weights {(w / std - true_w).norm():.3f} of {true_w.norm():.2f}; intercept {found_b:.2f}, "
      f"true {data.b:.2f}")  # fmt: skip
otherwise = "There are too few epochs, or too few rows for so many columns."
course.claim("the loss of SGD ends within 5 % of the variance of the noise", abs(losses[-1] / noise**2 - 1) < 0.05,
             f"{losses[-1]:.3f}", otherwise=otherwise)  # fmt: skip
course.claim("the intercept of SGD is off by at most three times what the noise alone leaves",
             abs(found_b - data.b) < 3 * of_intercept, f"{abs(found_b - data.b):.2f}",
             otherwise=otherwise)  # fmt: skip

# %% [markdown]
# **Takeaway** First make no new tensor of the size of a batch. Then normalise the weights, not the data: the step reads
# its batch twice and copies nothing.

# %% [markdown]
# ## On your own training
#
# **How far is your own loader from `memcpy`?**
#
# The cell loads ten batches and trains on them, loads only, trains on one batch that is there already, and copies as
# many bytes. Replace `own_loader` and `own_step`.

# %% tags=["experiment"]
own_loader = DataLoader(TensorDataset(x, y), sizes.batch_size, shuffle=True)
w, b, scratch = zeros(sizes.columns), zeros(1), new_scratch()


def own_step(batch):
    """Train on one batch, and wait for the device."""
    return sgd_step_now([[part.to(device) for part in batch]], w, b, mean, std, lr, scratch).item()


n_bytes = sum(part.nbytes for batch in itertools.islice(own_loader, 10) for part in batch)
ready = next(iter(own_loader))
BOTH, LOADER, STEP = "your loader and step", "your loader", "your step"
own = compare(
    {
        BOTH: lambda: [own_step(batch) for batch in itertools.islice(own_loader, 10)],
        LOADER: lambda: iterate(itertools.islice(own_loader, 10)),
        STEP: lambda: [own_step(ready) for _ in range(10)],
        MEMCPY: memcpy_of(n_bytes),
    },
    device=device,
    seconds=sizes.seconds,
    progress=False,
)
show_rates(own, n_bytes)
print(f"{own.rounds} rounds; control: {BOTH} against itself {own.control}")
alone = own.ratio(BOTH, to=STEP)
print(f"loading takes {own.ratio(MEMCPY, to=LOADER)} times as long as memcpy; without loading, a step takes {alone} of "
      "its time")  # fmt: skip

# %% [markdown]
# The two times need not add up. **We think** that a loader alone finds the memory of its last batch still in the cache,
# and next to a step does not. So judge the loader by what a step takes *without* it.
#
# **Takeaway** If a step without loading takes much less time, and loading many times as long as `memcpy`, change the
# loader first.

# %% [markdown]
# ## What to take home
#
# - Predict the bytes of each hop, padding and whole memory pages included, then count them.
# - Count the passes of a step over its batch, and the new tensors that it makes.
# - Part 5 looks for fewer passes.
