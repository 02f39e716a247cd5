# %% [markdown]
# # Fast loading, part 4: Steps in place
#
# **What does a step cost when the loader is no longer in its way?**
#
# Once loading is fast, FFCV's guide advises to normalise and update in place. You follow this advice and find out why
# it helps. Then you compare your step with `torch.compile`, and fix a loop that resembles the guide's.
#
# **You will be able to**
#
# - write a step that makes no tensor of the size of a batch
# - say which share of an epoch is computing
# - find out why a training loop reports a wrong time, loss and intercept
# - choose a method by how many passes over the data you can afford
#
# **Minutes** 41 core · 125 in all · session 2
#
# **Needs** parts 1 to 3 (their answers are used if you solved them)

# %% locked="setup"
import time
from functools import partial
from types import SimpleNamespace

import torch
from torch.utils.data import DataLoader, TensorDataset

import course
from course.checks import fast_loading as check
from course.datasets import regression
from course.loading.copies import DeviceCopies
from course.loading.record_files import RecordFile
from course.measure.comparison import compare, quotient
from course.measure.compiling import compiled
from course.measure.traffic import Traffic
from course.measure.usage import page_faults_of
from course.measure.yardsticks import ALL_THREADS, memcpy_of, rows_in_memory, show_rates
from course.plots import fast_loading as plots
from course.training import ridge
from course.training.linear_steps import (
    COMPILED,
    IN_PLACE,
    NEW_TENSORS,
    OWN_BUFFERS,
    TWO_PASSES,
    step_in_own_buffers,
)
from course.training.recommender_loop import keep_freed_memory

device = course.device()
print(course.machine())
sizes = course.sizes("04_fast_loading")
data = regression.prepare(sizes.rows, sizes.columns)
x_bytes = 4 * data.rows * data.columns
answers = SimpleNamespace(
    gather=course.solved(check.gather),
    random_order=course.solved(check.random_order),
)
# a file of these rows, which is written if it is not there
file = RecordFile(answers, data, sizes.batch_size, sizes.page, sizes.window)
n_rows = file.records.rows
loader = file.loader()
lr = 0.05
copy_ahead_now = course.solved(check.copy_ahead)
sgd_step_now = course.solved(check.sgd_step_)


def on_device(batches):
    """An iterator over the batches on the device; to a GPU they are copied ahead."""
    if device.type == "cpu":
        return iter(batches)
    return copy_ahead_now(iter(batches), DeviceCopies(device))


def zeros(*shape):
    return torch.zeros(*shape, device=device)


mean_and_std_now = course.solved(check.mean_and_std)
mean, std = mean_and_std_now(on_device(loader))

# %% [markdown]
# ## What do new tensors cost?
#
# Once batches come fast, you wait for the step. What does it cost if the step makes tensors as large as its batch?
#
# In the guide's step, the model predicts $z w + b$, with $z = (x - \text{mean}) / \text{std}$. Its residual is
# $r = z w + b - y$, and the gradients of half the mean of $r^2$ are $z^T r / n$ and the mean of $r$. The guide writes
# these formulas line by line:


# %% locked="guide_step"
def guide_step(x, y, w, b):
    """Return w and b after a step of SGD; each result is a new tensor."""
    z = (x - mean) / std
    residual = z @ w + b - y
    new_w = w - lr * (z.T @ residual) / len(x)
    new_b = b - lr * residual.mean()
    return new_w, new_b


# %% [markdown]
# This step goes through the batch six times. It reads x, writes $x - \text{mean}$, reads that, writes $z$, and reads
# $z$ for two products. A step in place makes as many passes, but it writes where x lies. This is safe, because the
# loader refills this buffer anyway.
#
# **Predict** How many times as fast is an epoch in place? If arithmetic and passes decide, it is about 1. If each new
# tensor needs memory that the system has to find and clear, as in part 1, it is clearly more.

# %%
predicted_in_place = None  # times as fast as with new tensors

# %% [markdown]
# ### Exercise 1 · A step in place
#
# Write one step of SGD on the squared loss that normalises x where it lies.
#
# ```python
# >>> x, y, w, b = torch.tensor([[1.0], [3.0]]), torch.tensor([2.0, 6.0]), torch.zeros(1), torch.zeros(1)
# >>> loss = step_in_place(x, y, w, b, mean=torch.tensor([2.0]), std=torch.ones(1), lr=0.5)
# >>> loss.item(), x.tolist(), w.item(), b.item()
# (40.0, [[-1.0], [1.0]], 1.0, 2.0)
# ```
#
# **Must**
# - normalise `x` where it lies, change `w` and `b` in place, and leave `y`, `mean` and `std` as they are;
# - make no new tensor that is longer than a row or a column of x;
# - return the sum of squared residuals before the step as a tensor, without waiting for the device (`.item()`).
#
# **Points** 3 · **Core** · **Difficulty** ●○○ · **Minutes** 6 · **Lines** 5
#
# **Source** FFCV's guide "Large-Scale Linear Regression", section "More speed, less memory".
#
# <details><summary>Hint 1</summary>
#
# Which of the operations of `guide_step` make a tensor as large as x? Which make a small one?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Methods that end in an underscore write into their tensor: `x.sub_(mean).div_(std)`, `w.sub_(gradient, alpha=lr)`.
#
# </details>


# %% solution="step_in_place"
def step_in_place(x, y, w, b, mean, std, lr):
    """The sum of squared residuals before the step, a tensor; x is normalised, and `w` and `b` make one step of SGD.

    Args:
        x: float32 (n, D), a view of a buffer that is refilled after the step.
        y: float32 (n,), maybe a view of the same buffer.
        w: float32 (D,), the weights of the normalised columns.
        b: float32 (1,), the intercept.
        mean: float32 (D,) of the columns.
        std: float32 (D,) likewise, above 0.
        lr: the learning rate, a float.
    """
    ### BEGIN SOLUTION
    x.sub_(mean).div_(std)
    residual = (x @ w).add_(b).sub_(y)
    w.sub_(x.T @ residual, alpha=lr / len(x))
    b.sub_(residual.mean(), alpha=lr)
    return residual.dot(residual)
    ### END SOLUTION


# %% test="step_in_place-visible" points=2
check.step_in_place(step_in_place)

# %% test="step_in_place-hidden" points=1
### BEGIN HIDDEN TESTS
check.step_in_place(step_in_place, seed=77)
### END HIDDEN TESTS

# %% [markdown]
# Four steps run over the same loader, with batches of `sizes.step_rows` rows:
#
# - *new tensors*: the guide's step;
# - *own buffers*: the guide's step, which writes $x - \text{mean}$ and $z$ into two buffers;
# - *in place*: your step;
# - *torch.compile*: the guide's step, compiled.

# %% tags=["experiment"]
# batches of over 32 MiB: glibc returns such memory when it is freed (part 1)
large_batches = file.loader(batch=sizes.step_rows)
x, y = [part.clone() for part in next(on_device(large_batches))]
buffered_step = step_in_own_buffers(mean, std, lr, len(x))
compiled_step = compiled(guide_step, x, y, zeros(sizes.columns), zeros(1))


def epoch_of(step, batches):
    """Run an epoch of a step that returns the new weights."""
    w = zeros(sizes.columns)
    b = zeros(1)
    for x, y in on_device(batches):
        w, b = step(x, y, w, b)


# %% tags=["experiment"]
step_in_place_now = course.solved(check.step_in_place)


def epoch_in_place(batches):
    w = zeros(sizes.columns)
    b = zeros(1)
    for x, y in on_device(batches):
        step_in_place_now(x, y, w, b, mean, std, lr)


loops = {
    NEW_TENSORS: partial(epoch_of, guide_step),
    OWN_BUFFERS: partial(epoch_of, buffered_step),
    IN_PLACE: epoch_in_place,
}
if compiled_step.call:
    loops[COMPILED] = partial(epoch_of, compiled_step.call)
    print(f"compiling took {compiled_step.seconds:.0f} s")
else:
    print(compiled_step.reason)

# %% tags=["experiment"]
STEPS = 20
epochs = {way: partial(loop, large_batches) for way, loop in loops.items()}
yardstick = {ALL_THREADS: memcpy_of(x_bytes, threads=None)}

compared = compare(epochs | yardstick, device=device, seconds=2 * sizes.seconds, progress=False)
same_batch = [(x.clone(), y)] * STEPS  # a step in place changes it again and again
page_faults = {}
for way, loop in loops.items():
    page_faults[way] = page_faults_of(partial(loop, same_batch)) / STEPS

show_rates(compared, x_bytes)
print(f"{compared.rounds} rounds; control: {NEW_TENSORS} against itself {compared.control}")
shown_faults = ", ".join(f"{way} {count:,.0f}" for way, count in page_faults.items())
print("page faults per step:", shown_faults)
gain = compared.ratio(IN_PLACE)
print(course.score("04/4", "an epoch in place", predicted_in_place, gain))
plots.epoch_times(
    compared,
    x_bytes,
    f"In place, an epoch is {gain.estimate:.1f} times as fast as with new tensors, same loader",
)

# %% tags=["experiment"]
course.claim(
    "an epoch in place is at least 10 % faster than one with new tensors",
    compared.ratio(IN_PLACE),
    above=1.1,
    otherwise="On a GPU, torch keeps freed memory for the next tensor, so new ones cost little there.",
)
compiled_gain = None  # not measured without a compiler
if COMPILED in loops:
    compiled_gain = compared.ratio(COMPILED)
course.claim(
    "torch.compile makes the guide's step at least 10 % faster",
    compiled_gain,
    above=1.1,
)

# %% [markdown]
# The compiled step makes no large tensor either.
#
# <details><summary>How does the compiled step do without large tensors?</summary>
#
# **Known** `torch.compile` turns each product into a multiplication and a sum (`mv` in
# torch/_decomp/decompositions.py). It then normalises each value where the product reads it. So its step has two
# passes. (`TORCH_LOGS=output_code` prints the code.)
#
# </details>
#
# **Takeaway** If a step makes tensors as large as its batch, count its page faults.

# %% [markdown]
# ## Are page faults the only reason?
#
# The next cell makes the C library keep freed memory for the next tensor, and leaves all steps as they are. If page
# faults are the only reason, new tensors are now as fast as in place.

# %% tags=["experiment"]
is_kept = keep_freed_memory()
epochs_again = {way: epochs[way] for way in (NEW_TENSORS, IN_PLACE, OWN_BUFFERS)}

kept = compare(epochs_again, device=device, seconds=sizes.seconds, progress=False)
faults_now = page_faults_of(partial(loops[NEW_TENSORS], [(x, y)] * STEPS)) / STEPS

print(
    f"freed memory is kept: {is_kept}; page faults per step with new tensors {faults_now:,.0f}, "
    f"before {page_faults[NEW_TENSORS]:,.0f}"
)
print(kept)
course.claim(
    "a step in place gains at least 10 % more if the C library returns freed memory than if it keeps it",
    quotient(gain, kept.ratio(IN_PLACE)),
    above=1.1,
    otherwise="Compare the page faults per step: did the new tensors cost any?",
)
course.claim(
    "an epoch in place is at least 10 % faster than one that writes into two other buffers",
    kept.ratio(IN_PLACE, to=OWN_BUFFERS),
    above=1.1,
    otherwise="The cache of your machine has room for all of these.",
)

# %% [markdown]
# **Shown** Only the setting of the C library changed. So the part of the gain that went away was the price of new
# memory. The rest has another reason. The step with own buffers needs no new memory, and makes the same six passes as
# the step in place. The two differ only in where they write.
#
# **We think** that this reason is the cache. A processor fetches memory before it writes to it, and other memory takes
# room in the cache. To test it, take batches so small that they fit into the cache with both buffers.
#
# From here on, this notebook keeps freed memory.
#
# **Takeaway** New memory costs time even if the arithmetic stays the same. Change one thing at a time to see its price.

# %% [markdown]
# ## Does the step learn?
#
# A fast step is worth nothing if it learns something else. The cell trains with the guide's settings, and prints the
# mean squared residual of each epoch. At the end, it converts w and b so that both fit x as it is.


# %% tags=["experiment"]
def losses_of(mean, std, lr, epochs):
    """Mean squared residual of each epoch of SGD, and w and b after the last one."""
    w = zeros(sizes.columns)
    b = zeros(1)
    losses = []
    for _ in range(epochs):
        squares = 0
        for x, y in on_device(loader):
            squares += step_in_place_now(x, y, w, b, mean, std, lr)
        losses.append(squares.item() / n_rows)
    return losses, w, b


# %% tags=["experiment"]
losses, w, b = losses_of(mean, std, lr, sizes.epochs)
found_w = w / std  # for x as it is
found_b = (b - mean @ found_w).item()

true_w = torch.from_numpy(data.w).to(device)
distance = (found_w - true_w).norm()
is_at_noise = abs(losses[-1] / regression.NOISE**2 - 1) < 0.05

print("loss per epoch", " ".join(f"{loss:.3f}" for loss in losses))
print(
    f"distance to the true weights {distance:.3f} of {true_w.norm():.2f}; "
    f"intercept {found_b:.2f}, true {data.b:.2f}"
)
course.claim(
    "the loss of SGD ends within 5 % of the variance of the noise",
    is_at_noise,
    f"{losses[-1]:.3f}",
    otherwise="There are too few epochs, or too few rows for so many columns.",
)

# %% [markdown]
# **Takeaway** Test a fast step on data whose answer you know: compare its loss with the noise, and its weights with
# the true ones.

# %% [markdown]
# ## How busy is the step?
#
# Should you now improve the loader or the step? Look at the *utilisation*: the time of the steps alone, on batches that
# are already in memory, over the time of the epoch. A faster loader can gain the rest at most.
#
# The step here normalises the weights instead of the data, so its batches stay as they are. (You can write it in an
# extra section below.)

# %% tags=["experiment"]
scratch = {
    "residual": zeros(len(x)),
    "scaled": zeros(sizes.columns),
    "gradient": zeros(sizes.columns),
}
rows, labels = rows_in_memory(data)
row_parts = rows.to(device).split(sizes.batch_size)
label_parts = labels.to(device).split(sizes.batch_size)
standard_loader = DataLoader(TensorDataset(rows, labels), sizes.batch_size, shuffle=True)
our_loader = file.loader(rows=len(rows))


def epoch_in_two_passes(batches):
    w = zeros(sizes.columns)
    b = zeros(1)
    for batch in batches:
        sgd_step_now([batch], w, b, mean, std, lr, scratch)


def with_tensor_dataset():
    epoch_in_two_passes(on_device(standard_loader))


def with_our_loader():
    epoch_in_two_passes(on_device(our_loader))


def without_loader():
    epoch_in_two_passes(zip(row_parts, label_parts, strict=True))


# %% tags=["experiment"]
STANDARD = "TensorDataset"
OURS = "our loader"
ALONE = "the steps alone"
ways = {STANDARD: with_tensor_dataset, OURS: with_our_loader, ALONE: without_loader}
busy = compare(ways, device=device, seconds=sizes.seconds, progress=False)

show_rates(busy, rows.nbytes)
print(f"control: {STANDARD} against itself {busy.control}")
for way in (STANDARD, OURS):
    print(f"utilisation with {way}: {busy.ratio(way, to=ALONE)}")
course.claim(
    "with TensorDataset, the step computes for less than a quarter of the epoch",
    busy.ratio(STANDARD, to=ALONE),
    below=0.25,
)

# %% [markdown]
# **Takeaway** If utilisation is low, work on the loader. If it is high, work on the step.

# %% [markdown]
# ## What is wrong with a published example?
#
# A loop can be fast and still report wrong numbers. The function below resembles the loop of FFCV's guide. It runs, but
# it has six faults, three of them the guide's. Can you find them from their symptoms?


# %% locked="published_fit"
def published_fit(x, y, epochs, batch_size, lr, clock=time.perf_counter, synchronize=lambda: None):
    """SGD on normalised columns, with six faults. Do not use it."""
    loader = DataLoader(TensorDataset(x, y), drop_last=True)
    mean = sum(rows.sum(0) for rows, _ in loader) / len(x)
    mean_of_squares = sum(rows.square().sum(0) for rows, _ in loader) / len(x)
    std = (mean_of_squares - mean.square()).sqrt()
    w = torch.zeros_like(mean)
    b = torch.zeros(1, device=x.device)
    losses = []
    seconds = []
    for _ in range(epochs):
        begin = clock()
        loss = 0.0
        for rows, targets in loader:
            z = (rows - mean) / std
            residual = z @ w + b - targets
            w -= lr * (z.T @ residual) / len(z)
            b -= lr * residual.mean()
            loss += residual.square().sum()
        losses.append((loss / len(loader)).item())
        seconds.append(clock() - begin)
    return {"w": w, "b": b, "losses": losses, "seconds": seconds, "total_seconds": clock() - begin}


# %% [markdown]
# These are the symptoms. One or two lines cause each of them:
#
# 1. With a `batch_size` of 1 or 2048, the result is the same, and takes as long.
# 2. Once symptom 1 is fixed, the rows after the last full batch are never used.
# 3. Once symptom 1 is fixed, the reported loss grows with the batch size.
# 4. A column of temperatures near 300 kelvin that differ by hundredths makes all weights NaN or wrong.
# 5. `x @ w + b` with the returned weights is far from y, although the loss is small.
# 6. The total of ten epochs is the time of the last one. On a GPU, the first epoch also takes the time of the
#    statistics, which are still queued when it begins.
#
# ### Exercise 2 · Fix the training
#
# Copy the body of `published_fit` into the cell below and change it until every symptom is gone. The check tests them
# one by one.
#
# ```python
# >>> x, y = torch.tensor([[1.0], [3.0]]), torch.tensor([2.0, 6.0])  # z is -1 and 1, y is 2 x
# >>> found = fit(x, y, epochs=1, batch_size=2, lr=1.0)
# >>> found["w"].item(), found["b"].item(), found["losses"]
# (2.0, 0.0, [20.0])
# ```
#
# **Must**
# - normalise by mean and standard deviation (divided by n) of all rows, and use all rows in order in every epoch;
# - report as loss of an epoch the mean of r² over all rows, and return w and b for x as it is, from
#   $z w + b = x\,(w / \text{std}) + (b - \text{mean} \cdot (w / \text{std}))$;
# - read the time with `clock()`, right after `synchronize()`, and start the total before the statistics.
#
# **Points** 5 · **Core** · **Difficulty** ●●○ · **Minutes** 18 · **Lines** 24
#
# **Source** FFCV's guide "Large-Scale Linear Regression", section "Basic code template". The guide has the faults of
# symptoms 1, 4 and 6. The fault of symptom 2 is the default of FFCV's `Loader`.
#
# <details><summary>Hint 1</summary>
#
# Take the symptoms one by one. Which line decides how many rows are in a batch? By what is each sum divided? What does
# `begin` hold when the total is computed?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `DataLoader(dataset, batch_size)` keeps a short last batch. `torch.std_mean(x, 0, correction=0)` is stable. Two
# clocks need two variables: `begin` is set once, `start` in every epoch.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# The weights for x are `w = w / std`, then `b = b - mean.dot(w)`. Divide the loss by `len(x)`.
#
# </details>


# %% solution="fit"
def fit(x, y, epochs, batch_size, lr, clock=time.perf_counter, synchronize=lambda: None):
    """What a training of a linear model by SGD found, and what it took: a dict.

    Args:
        x: float32 (n, D), not normalised, no column constant.
        y: float32 (n,), on the device of x.
        epochs: passes over all rows, 1 or more.
        batch_size: rows of a step, 1 or more, also more than n.
        lr: the learning rate, a float.
        clock: function without arguments that gives the time in seconds.
        synchronize: function without arguments that waits until everything queued on the device is computed.

    Returns: {"w": float32 tensor (D,), "b": float32 tensor (1,), "losses": list of floats, "seconds": list of floats,
        "total_seconds": float}.
    """
    ### BEGIN SOLUTION
    loader = DataLoader(TensorDataset(x, y), batch_size)
    synchronize()
    begin = clock()
    std, mean = torch.std_mean(x, 0, correction=0)
    w, b = torch.zeros_like(mean), torch.zeros(1, device=x.device)
    losses, seconds = [], []
    for _ in range(epochs):
        synchronize()
        start, loss = clock(), 0.0
        for rows, targets in loader:
            z = (rows - mean) / std
            residual = z @ w + b - targets
            w -= lr * (z.T @ residual) / len(z)
            b -= lr * residual.mean()
            loss += residual.square().sum()
        losses.append((loss / len(x)).item())
        synchronize()
        seconds.append(clock() - start)
    w = w / std
    b = b - mean.dot(w)
    synchronize()
    return {"w": w, "b": b, "losses": losses, "seconds": seconds, "total_seconds": clock() - begin}
    ### END SOLUTION


# %% test="fit-visible" points=2
check.fit(fit)

# %% test="fit-hidden" points=3
### BEGIN HIDDEN TESTS
check.fit(fit, seed=36)
### END HIDDEN TESTS

# %% [markdown]
# **Takeaway** A training loop can run, and its loss can fall, while its time, loss and intercept are wrong. Test it on
# data that you can compute by hand.

# %% [markdown]
# ## Can a step read its batch only twice? · extra
#
# A step needs fewer than six passes over its batch, if you normalise the weights instead of the data:
#
# $$z w + b = x \frac{w}{\text{std}} + \left(b - \text{mean} \cdot \frac{w}{\text{std}}\right), \qquad
# z^T r = \frac{x^T r - \text{mean} \sum r}{\text{std}}.$$
#
# Only the two products with x remain, so there are two passes, and the loader's buffer stays as it is. A batch may
# also come in blocks of rows, because the gradients of blocks add up.
#
# ### Exercise 3 · A step in two passes
#
# Write one step of SGD on the squared loss without a copy of x. The loop and its buffers are given: `scaled` is
# $w / \text{std}$, `shift` is the bracket above, and `gradient` is filled with zeros. Write the body of the loop, and
# what follows it.
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
# **Points** 6 · **Extra** · **Difficulty** ●●● · **Minutes** 25 · **Lines** 8
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
    n = 0  # rows
    total = torch.zeros_like(b)  # sum of r
    loss = torch.zeros_like(b)  # sum of r squared
    for x, y in blocks:
        n += len(x)
        residual = scratch["residual"][: len(x)]
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
sgd_step_now = course.solved(check.sgd_step_)  # yours, now that you have written it
loops[TWO_PASSES] = epoch_in_two_passes
batch_bytes = x.nbytes
traffic = {}
for way in (NEW_TENSORS, IN_PLACE, TWO_PASSES):
    batch = (x.clone(), y)
    with Traffic() as seen:
        loops[way]([batch])
    traffic[way] = seen.operations
plots.traffic(traffic, batch_bytes)

# %% tags=["experiment"]
passes = {}
for way, operations in traffic.items():
    reads = sum(moved.read >= batch_bytes for moved in operations)
    writes = sum(moved.written >= batch_bytes for moved in operations)
    passes[way] = reads + writes
is_a_third = passes[TWO_PASSES] == 2 and passes[NEW_TENSORS] == passes[IN_PLACE] == 6


def epoch_from_the_loader():
    epoch_in_two_passes(on_device(large_batches))


by_passes = compare(
    {IN_PLACE: epochs[IN_PLACE], TWO_PASSES: epoch_from_the_loader},
    device=device,
    seconds=sizes.seconds,
    progress=False,
)
print(f"epochs over the loader\n{by_passes}")
course.claim(
    "the step in two passes moves a third of the bytes of the other two steps",
    is_a_third,
    f"{passes[TWO_PASSES]} passes against {passes[NEW_TENSORS]}",
)
course.claim(
    "an epoch of six passes in place takes at least 1.1 times as long as one of two passes",
    by_passes.ratio(TWO_PASSES),
    above=1.1,
)

# %% [markdown]
# Each block of the figure is one pass over the batch. The epochs also contain the loader, which takes the same time
# with both steps.
#
# **Takeaway** A third of the bytes need not take a third of the time. Measure what passes cost.

# %% [markdown]
# ## Why normalise at all? · extra
#
# The guide normalises "for stability". What would happen without? With our gradients, descent over all rows is stable
# while the learning rate stays below $2 / \lambda$, where $\lambda$ is the largest eigenvalue of $\frac1n X^T X$. If
# rows are many, normalised columns that do not depend on each other have all eigenvalues near 1.
#
# Our raw columns are uniform between 0 and 1, so they share the mean 1/2. Therefore the vector of equal weights has
# $\lambda \approx D / 4$, while the eigenvalues of all other directions are near $1 / 12$.
#
# **Predict** What is the largest stable learning rate for the raw columns? D is `sizes.columns`.

# %%
predicted_stable_lr = None  # learning rate

# %% tags=["experiment"]
no_mean = zeros(sizes.columns)  # with these two, a step leaves x as it is
no_std = zeros(sizes.columns) + 1
gram = (x.T @ x).double() / len(x)  # of one batch
largest_eigenvalue = torch.linalg.eigvalsh(gram.cpu())[-1].item()
limit = 2 / largest_eigenvalue
asked = "largest stable learning rate, raw columns"
print(course.score("04/4", asked, predicted_stable_lr, limit, null=None, form="{:.2g}"))

raw_losses = {}
for factor in (0.5, 2):
    raw_losses[factor], _, _ = losses_of(no_mean, no_std, factor * limit, sizes.epochs)
    shown = " ".join(f"{loss:.3g}" for loss in raw_losses[factor])
    print(f"raw columns, {factor} of the limit: loss per epoch", shown)

# %% tags=["experiment"]
stable_loss = raw_losses[0.5][-1]
wild_loss = raw_losses[2][-1]
is_wild = not wild_loss < 1e3 * stable_loss  # NaN, too
course.claim(
    "with twice the limit, SGD on the raw columns diverges; with half of it, it does not",
    is_wild,
    f"loss {wild_loss:.3g} against {stable_loss:.3g}",
)
print(f"after {sizes.epochs} epochs: raw columns {stable_loss:.3f}, normalised {losses[-1]:.3f}")

# %% [markdown]
# **Shown** Only the learning rate differs between the two raw runs. But even the stable run is slow. In the other
# directions the eigenvalues are 3 D times smaller, so the weights hardly move.
#
# **Takeaway** Normalise independent columns, so that one learning rate suits all directions.

# %% [markdown]
# ## Can one pass find the standard deviation? · extra
#
# The step needs the mean and the standard deviation of each column, and every pass over a large file takes time. The
# textbook formula gets the variance in one pass as $E[x^2] - E[x]^2$. But if the mean is far larger than the standard
# deviation, it subtracts two large numbers that are nearly equal.
#
# Another way is to merge batches by their means and sums of squared deviations. Let $n$ rows have the mean $m$ and the
# sum of squared deviations $S$, and $k$ more rows have $m'$ and $S'$. With $\delta = m' - m$, all rows together have
#
# $$\text{mean} = m + \delta \frac{k}{n + k}, \qquad
# \text{sum of squared deviations} = S + S' + \delta^2 \frac{n k}{n + k}.$$
#
# ### Exercise 4 · Mean and standard deviation in one pass
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
# - keep no rows of a batch, because it is refilled when the next is asked for;
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
noise = torch.randn(4096, 1, generator=torch.Generator().manual_seed(0))
column = 10_000 + 0.1 * noise
parts = [(part, None) for part in column.split(512)]
mean_and_std_now = course.solved(check.mean_and_std)

mean_of_squares = sum(x.square().sum() for x, _ in parts) / column.numel()
mean_of_rows = sum(x.sum() for x, _ in parts) / column.numel()
textbook = (mean_of_squares - mean_of_rows.square()).sqrt().item()
_, merged_std = mean_and_std_now(parts)
yours = merged_std[0].item()
is_off = not abs(textbook / 0.1 - 1) < 0.5  # NaN, too
is_found = abs(yours / 0.1 - 1) < 0.02

print(f"standard deviation 0.1: textbook {textbook:.3f}, yours {yours:.4f}")
course.claim(
    "in float32 the textbook formula misses the standard deviation by more than half",
    is_off,
    f"{textbook:.3f} instead of 0.1",
)
course.claim(
    "merging batches finds the standard deviation to 2 %",
    is_found,
    f"{yours:.4f}",
)

# %% [markdown]
# **Known** The squares are about 10⁸. There, neighbouring float32 numbers lie 8 apart (IEEE 754: 24 bits), but the
# variance is 0.01. So rounding decides the difference. It may be negative, and then its root is `nan`.
#
# **Takeaway** For a standard deviation in one pass, merge means and squared deviations. Do not subtract squares.

# %% [markdown]
# ## How few passes are enough? · extra
#
# If the data are far larger than memory, every pass reads them from the disk. Which method needs the fewest passes?
# Take a *regularised* regression, with the objective
#
# $$\frac{1}{2n} |Xw - y|^2 + \frac\lambda2 |w|^2.$$
#
# Where its gradient is zero, $A w = c$ holds with $A = \frac1n X^\top X + \lambda I$ and $c = \frac1n X^\top y$. The
# *condition number* $\kappa$ is the largest eigenvalue of A over the smallest.
#
# | method | passes | memory, D columns | you choose |
# |---|---|---|---|
# | *normal equations*: form A, solve | 1 | D² numbers | nothing |
# | *conjugate gradients* (CG) | a bound grows with $\sqrt\kappa$ and the digits | a few vectors | nothing |
# | SGD | few for a rough answer if rows are many, then it meets a floor | one vector | a learning rate, its decay |
# | *variance-reduced* (SVRG) | grows with the digits, if there are many rows | three vectors | a learning rate |
#
# Forming A takes D² multiplications per row, as many as D / 2 passes of CG. With 10,000 columns A takes 400 MB. If
# reading takes longer than this arithmetic, one pass is fastest.
#
# CG never forms A, because it needs only products of A with one vector. $X^\top X v$ is $X^\top (X v)$, a sum over
# batches of $x^\top (x v)$, so a product takes one pass.
#
# CG starts from $w = 0$, with the residual $r = c$ and the direction $p = c$. An iteration is
#
# $$\alpha = \frac{r \cdot r}{p \cdot A p}, \quad w \leftarrow w + \alpha p, \quad r' = r - \alpha A p, \quad
# p \leftarrow r' + \frac{r' \cdot r'}{r \cdot r} p.$$
#
# ### Exercise 5 · Conjugate gradients on a stream
#
# Solve $A w = c$ with $\lambda$ = `strength` and without an intercept.
#
# ```python
# >>> x, y = torch.tensor([[1.0, 0.0], [0.0, 2.0]]), torch.tensor([1.0, 4.0])
# >>> w, passes, residuals = ridge_by_cg(lambda: [(x, y)], columns=2, strength=0.0)
# >>> [round(value, 4) for value in w.tolist()], passes
# ([1.0, 2.0], 3)
# ```
#
# **Must**
# - use the first pass for $c$ and the number of rows, and each later pass for one product with $A$;
# - start from $w = 0$, and end once |residual| ≤ `tolerance` · |c|, or after `most` passes;
# - make no tensor larger than a batch.
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
# new direction is `residual + new / old * direction`. Loop while `square > tolerance**2 * start`.
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
# With a fixed learning rate, SGD meets a floor, because its batches keep their noise. SVRG removes this floor in
# rounds of two passes:
#
# - The first pass computes the whole gradient at an *anchor*, the weights of that moment.
# - The second makes small steps like SGD. From the gradient of each batch, it subtracts the batch's gradient at the
#   anchor, and it adds the whole one.
#
# Near the solution, both gradients of a batch are nearly equal. So the noise vanishes, and the learning rate need not
# fall.


# %% locked="svrg"
def svrg(problem, lr, batch_size):
    """Yield the weights after each round of two passes, without end."""
    rng = torch.Generator().manual_seed(0)
    n = len(problem.y)
    w = torch.zeros(problem.x.shape[1])
    while True:
        anchor = w
        residual = problem.x @ anchor - problem.y
        whole = problem.x.T @ residual / n + problem.strength * anchor
        for index in torch.randperm(n, generator=rng).split(batch_size):
            x = problem.x[index]
            moved = w - anchor
            # the batch's gradient at w less the one at the anchor, for least squares
            difference = x.T @ (x @ moved) / len(x) + problem.strength * moved
            w = w - lr * (difference + whole)
        yield w


# %% [markdown]
# The next cells solve six problems with many rows and six with few, each to a rough and to a tight target. SGD and
# SVRG try three learning rates, and only the passes with the best rate count. SGD's rate falls to zero at its last
# pass. We stop each method after 32 passes.
#
# **Predict** Which of CG, SGD and SVRG needs the fewest passes to the *tight* target, with many rows?
#
# - CG makes one step per pass, however many rows there are.
# - SGD has noise in its batches, so its learning rate has to fall.
# - SVRG makes a step for every 20 rows in each second pass.

# %%
predicted_method = None  # "CG", "SGD" or "SVRG"

# %% tags=["experiment"]
LEARNING_RATES = (0.05, 0.1, 0.3)
BATCH = 20
ridge_by_cg_now = course.solved(check.ridge_by_cg)


def passes_of_cg(problem, target):
    """Passes until the excess of the objective is at most `target`, as a share of its start."""

    def parts():
        return zip(problem.x.split(500), problem.y.split(500), strict=True)

    def weights_after(passes):
        columns = problem.x.shape[1]
        w, _, _ = ridge_by_cg_now(parts, columns, problem.strength, tolerance=0.0, most=passes)
        return w

    return ridge.passes_of_length(problem, weights_after, target)


# %% tags=["experiment"]
def passes_of_sgd(problem, target):
    """The same of SGD, with the best of the learning rates."""
    counts = []
    for lr in LEARNING_RATES:
        weights_after = ridge.last_of_sgd(problem, lr, BATCH)
        counts.append(ridge.passes_of_length(problem, weights_after, target))
    return min(counts)


def passes_of_svrg(problem, target):
    """The same of SVRG, with the best of the learning rates."""
    counts = []
    for lr in LEARNING_RATES:
        weights = svrg(problem, lr, BATCH)
        counts.append(ridge.passes_of_stream(problem, weights, 2, target))
    return min(counts)


# %% tags=["experiment"]
problems = {}
for n in sizes.ridge_rows:
    problems[f"{n:,} rows"] = [
        ridge.ridge(seed, n, sizes.ridge_columns, 0.01) for seed in range(sizes.ridge_seeds)
    ]
few_rows, many_rows = problems
for size, of_size in problems.items():
    print(f"{size}: condition number {of_size[0].condition:.0f}")

# %% tags=["experiment"]
METHODS = {"CG": passes_of_cg, "SGD": passes_of_sgd, "SVRG": passes_of_svrg}
TARGETS = {"rough": 1e-2, "tight": 1e-6}

needed = {}
for size, of_size in problems.items():
    for goal, target in TARGETS.items():
        counts = {}
        for method, passes_of in METHODS.items():
            counts[method] = [passes_of(problem, target) for problem in of_size]
        needed[size, goal] = counts

totals = {method: sum(counts) for method, counts in needed[many_rows, "tight"].items()}
fewest = min(totals, key=totals.get)
print(course.score("04/4", "fewest passes, tight, many rows", predicted_method, fewest))
plots.passes_needed(needed, ridge.MOST_PASSES)

# %% tags=["experiment"]
rough = needed[many_rows, "rough"]
tight = needed[many_rows, "tight"]
with_few_rows = needed[few_rows, "tight"]
course.claim(
    "with many rows and a tight target, CG needs at least 1.5 times the passes of SVRG",
    ridge.times_as_many(tight["CG"], tight["SVRG"]),
    above=1.5,
)
course.claim(
    "with many rows and a rough target, CG needs at least 1.5 times the passes of SGD",
    ridge.times_as_many(rough["CG"], rough["SGD"]),
    above=1.5,
)
course.claim(
    "with many rows and a tight target, SGD needs more passes than CG",
    ridge.times_as_many(tight["SGD"], tight["CG"]),
    above=1,
)
course.claim(
    "with few rows and a tight target, SVRG needs more passes than CG",
    ridge.times_as_many(with_few_rows["SVRG"], with_few_rows["CG"]),
    above=1,
)

# %% [markdown]
# **Known** The passes that CG needs per digit have a bound that grows with $\sqrt\kappa$ (Shewchuk 1994, "An
# Introduction to the Conjugate Gradient Method Without the Agonizing Pain", section 9). The passes of SVRG hardly
# depend on $\kappa$ once there are far more rows than $\kappa$ (Johnson and Zhang 2013).
#
# **Shown** Between the two halves of the figure, the number of rows changes and $\kappa$ stays nearly the same. CG
# needs about as many passes as before, while SVRG needs far fewer with many rows. (Hollow dots were stopped.)
#
# **Takeaway** Normal equations take one pass, if a D × D matrix fits. Else take CG for few rows, and for many SGD
# (a rough answer) or SVRG (a tight one).

# %% [markdown]
# ## What to measure, what to change · extra
#
# | symptom | measurement | fix | part |
# |---|---|---|---|
# | an epoch takes many times `memcpy` of its bytes | seconds per epoch | one copy per batch, into one buffer | 1 |
# | large batches load at fewer GB/s than small ones | page faults per batch | reuse buffers | 1 |
# | a shuffled epoch reads many times the file | bytes from the disk per row | random order of pages, in a window | 2 |
# | the loss stalls with a cheap order | V / V₀ of ten batches | a wider window, or shuffle the file once | 2 |
# | reading and computing add up | seconds of fills and steps | a second buffer and a thread | 3 |
# | the step is slower than its two products | page faults per step | write in place | 4 |
# | too many epochs | passes to a target | one pass, CG, SVRG, or a falling learning rate | 4 |
