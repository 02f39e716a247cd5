# %% [markdown]
# # Fast loading, part 4: Steps in place
#
# **What does a step cost when the loader is no longer in its way?**
#
# Once loading is fast, FFCV's guide says, optimise the loop: normalise and update in place. You follow this advice
# and find out why it helps. Then you compare your step with `torch.compile`, and fix the guide's loop.
#
# **You will be able to**
#
# - write a step that makes no tensor of the size of a batch
# - say which share of an epoch is computing
# - find out why a training loop reports a wrong time, loss and intercept
# - choose a method by how many passes over the data you can afford
#
# **Minutes** 39 core · 123 in all · session 2
#
# **Needs** parts 1 to 3 (their answers are used if you solved them)

# %% locked="setup"
import itertools
import time
from types import SimpleNamespace

import torch
from torch.utils.data import DataLoader, TensorDataset

import course
from course.checks import fast_loading as check
from course.datasets import regression
from course.loading.copies import DeviceCopies
from course.loading.record_files import RecordFile
from course.measure.comparison import compare, ratio_interval
from course.measure.compiling import compiled
from course.measure.traffic import Traffic
from course.measure.usage import page_faults_of
from course.measure.yardsticks import rows_in_memory, show_rates, yardsticks
from course.plots import fast_loading as plots
from course.training import ridge
from course.training.linear_steps import step_in_own_buffers
from course.training.recommender_loop import keep_freed_memory

device = course.device()
print(course.machine())
sizes = course.sizes("04_fast_loading")
data = regression.prepare(sizes.rows, sizes.columns)
asked = (check.gather, check.random_order)
answers = SimpleNamespace(**{exercise.name: course.solved(exercise) for exercise in asked})
file = RecordFile(
    answers, data, sizes.batch_size, sizes.page, sizes.window
)  # of part 1; written if it is not there
loader, n_rows, lr, x_bytes = file.loader(), file.records.rows, 0.05, 4 * data.rows * data.columns
copy_ahead_now, two_passes_now = course.solved(check.copy_ahead), course.solved(check.sgd_step_)


def on_device(batches):
    """The batches of a loader on the device: as they are on a CPU, else copied ahead."""
    return (
        iter(batches)
        if device.type == "cpu"
        else copy_ahead_now(iter(batches), DeviceCopies(device))
    )


def zeros(*shape):
    return torch.zeros(*shape, device=device)


mean, std = course.solved(check.mean_and_std)(on_device(loader))

# %% [markdown]
# ## What do new tensors cost?
#
# Once batches come fast, you wait for the step. Many steps make tensors as large as their batch. What do these
# tensors cost?
#
# The guide's step is an example. With $z = (x - \text{mean}) / \text{std}$ the model predicts $z w + b$. Its residual
# is $r = z w + b - y$, and the gradients of half the mean of $r^2$ are $z^T r / n$ and the mean of $r$. The guide
# writes these formulas line by line:


# %% locked="guide_step"
def guide_step(x, y, w, b):
    """(w, b) after a step of SGD, new tensors."""
    z = (x - mean) / std
    residual = z @ w + b - y
    return w - lr * (z.T @ residual) / len(x), b - lr * residual.mean()


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
# Five steps run over the same loader, with batches of `sizes.step_rows` rows:
#
# - *new tensors*: the guide's step;
# - *own buffers*: the guide's step, but its two large results go into two buffers;
# - *in place*: your step;
# - *two passes*: a step that normalises the weights instead of the data (you can write it in an extra section below);
# - *torch.compile*: the guide's step, compiled.
#
# The claims decide what working in place gains, what fewer passes gain, and whether the compiler does as well.

# %% tags=["experiment"]
step_in_place_now = course.solved(check.step_in_place)
wide = file.loader(
    batch=sizes.step_rows
)  # batches of over 32 MiB: their tensors are always returned (part 1)
x, y = (part.clone() for part in next(on_device(wide)))
compiled_step = compiled(guide_step, x, y, zeros(sizes.columns), zeros(1))
scratch = {
    "residual": zeros(len(x)),
    "scaled": zeros(sizes.columns),
    "gradient": zeros(sizes.columns),
}


def epoch_anew(batches, step=guide_step):
    w, b = zeros(sizes.columns), zeros(1)
    for x, y in on_device(batches):
        w, b = step(x, y, w, b)


def epoch_in_place(batches, w, b):
    return sum(step_in_place_now(x, y, w, b, mean, std, lr) for x, y in on_device(batches)) / n_rows


# %% tags=["experiment"]
def epoch_in_two_passes(batches, w, b):
    for batch in on_device(batches):
        two_passes_now([batch], w, b, mean, std, lr, scratch)


NEW, PLACE, COMPILED = "new tensors", "in place", "torch.compile"
TWO, OWN = "two passes", "own buffers"
buffered_step = step_in_own_buffers(mean, std, lr, len(x))
loops = {
    NEW: epoch_anew,
    OWN: lambda batches: epoch_anew(batches, buffered_step),
    PLACE: lambda batches: epoch_in_place(batches, zeros(sizes.columns), zeros(1)),
    TWO: lambda batches: epoch_in_two_passes(batches, zeros(sizes.columns), zeros(1)),
}
if compiled_step.call:
    loops[COMPILED] = lambda batches: epoch_anew(batches, compiled_step.call)
print(compiled_step.reason or f"compiling took {compiled_step.seconds:.0f} s")

# %% tags=["experiment"]
ways = {way: lambda loop=loop: loop(wide) for way, loop in loops.items()}
epoch = compare(
    ways | yardsticks(file.path, x_bytes), device=device, seconds=2 * sizes.seconds, progress=False
)
show_rates(epoch, x_bytes)
print(f"{epoch.rounds} rounds; control: {NEW} against itself {epoch.control}")
twenty = [(x.clone(), y)] * 20  # the same batch, which a step in place changes again and again
faults = {way: page_faults_of(lambda loop=loop: loop(twenty)) / 20 for way, loop in loops.items()}
print("page faults per step:", ", ".join(f"{way} {n:,.0f}" for way, n in faults.items()))
print(course.score("04/4", "an epoch in place", predicted_in_place, epoch.ratio(PLACE)))
gain = epoch.ratio(PLACE).estimate
plots.epoch_times(
    epoch,
    x_bytes,
    f"In place, an epoch is {gain:.1f} times as fast as with new tensors, same loader",
)

# %% tags=["experiment"]
course.claim(
    "an epoch in place is at least 10 % faster than one with new tensors",
    epoch.ratio(PLACE),
    above=1.1,
    otherwise="A GPU keeps freed memory for the next tensor, so new ones cost little there.",
)
course.claim(
    "an epoch with new tensors takes at least 1.3 times as long as one in two passes",
    epoch.ratio(TWO),
    above=1.3,
    otherwise="The batch is small enough for the cache, or the loader takes most of the epoch.",
)
course.claim(
    "an epoch of six passes in place takes at least 1.1 times as long as one of two passes",
    epoch.ratio(TWO, to=PLACE),
    above=1.1,
)
has_compiled = COMPILED in loops
course.claim(
    "torch.compile makes the guide's step at least 10 % faster",
    epoch.ratio(COMPILED) if has_compiled else None,
    above=1.1,
)
course.claim(
    "the step in place is at least 10 % faster than the guide's step through torch.compile",
    epoch.ratio(PLACE, to=COMPILED) if has_compiled else None,
    above=1.1,
    otherwise="The compiler normalises inside the two products, so its step has fewer passes.",
)

# %% [markdown]
# Are page faults the reason? The next cell makes the C library keep freed memory for the next tensor, and leaves all
# steps as they are. If page faults are the only reason, new tensors are now as fast as in place.

# %% tags=["experiment"]
is_kept = keep_freed_memory()
kept = compare(
    {way: ways[way] for way in (NEW, PLACE, OWN)},
    device=device,
    seconds=sizes.seconds,
    progress=False,
)
after = page_faults_of(lambda: loops[NEW]([(x, y)] * 20)) / 20
print(
    f"freed memory is kept: {is_kept}; page faults per step with new tensors {after:,.0f}, before {faults[NEW]:,.0f}"
)
print(kept)
course.claim(
    "if the C library keeps freed memory, an epoch in place is at most 15 % faster than one with new tensors",
    kept.ratio(PLACE),
    below=1.15,
    otherwise="Then other memory costs time too. We think that it takes room in the cache.",
)
course.claim(
    "an epoch in place is at least 10 % faster than one that writes into two other buffers",
    kept.ratio(PLACE, to=OWN),
    above=1.1,
    otherwise="The cache of your machine has room for all of these.",
)

# %% [markdown]
# **Shown** Only the setting of the C library changed. So page faults cost the part of the gain that went away, and
# the rest has another reason. The step with own buffers needs no new memory, and makes the same six passes as the
# step in place. They differ only in where they write.
#
# **We think** that this reason is the cache. A processor fetches memory before it writes to it, and other memory
# takes room in the cache. To test it, take batches so small that they fit into the cache with both buffers.
#
# **Known** The code that `torch.compile` writes makes no large tensor, because both products normalise each value as
# they read it. So it has two passes and hardly any page faults. (`TORCH_LOGS=output_code` prints this code.)
#
# Does your own step pay for page faults? This depends on the size of its tensors, and on what the process has freed
# before (part 1). So count them. From here on, this notebook keeps freed memory.
#
# **Takeaway** Equal arithmetic need not take equal time: new memory and passes cost, too. Change one of them at a
# time.

# %% [markdown]
# ## Does the step learn? · extra
#
# A fast step is worth nothing if it learns something else. The cell trains as the guide does, and prints the mean
# squared residual after each epoch. At the end, it converts w and b so that both fit x as it is.


# %% tags=["experiment"]
def losses_of(mean, std, lr, epochs):
    """Mean squared residual of each epoch of SGD, and the weights."""
    w, b, losses = zeros(sizes.columns), zeros(1), []
    for _ in range(epochs):
        total = sum(step_in_place_now(*batch, w, b, mean, std, lr) for batch in on_device(loader))
        losses.append(total.item() / n_rows)
    return losses, w, b


# %% tags=["experiment"]
losses, w, b = losses_of(mean, std, lr, sizes.epochs)
true_w, noise, found_w = (
    torch.from_numpy(data.w).to(device),
    regression.NOISE,
    w / std,
)  # for x as it is
found_b = (b - mean @ found_w).item()
print("loss per epoch", " ".join(f"{loss:.3f}" for loss in losses))
print(
    f"distance to the true weights {(found_w - true_w).norm():.3f} of {true_w.norm():.2f}; intercept {found_b:.2f}, "
    f"true {data.b:.2f}"
)
few = "There are too few epochs, or too few rows for so many columns."
is_at_noise = abs(losses[-1] / noise**2 - 1) < 0.05
course.claim(
    "the loss of SGD ends within 5 % of the variance of the noise",
    is_at_noise,
    f"{losses[-1]:.3f}",
    otherwise=few,
)
of_intercept = noise * ((1 + 3 * sizes.columns) / n_rows) ** 0.5
is_right = abs(found_b - data.b) < 3 * of_intercept
course.claim(
    "the intercept of SGD is off by at most three times what the noise alone leaves",
    is_right,
    f"{abs(found_b - data.b):.2f}",
    otherwise=few,
)

# %% [markdown]
# **Takeaway** Test a fast step on data whose answer you know: compare its loss with the noise, and its weights with
# the true ones.

# %% [markdown]
# ## How busy is the step?
#
# Should you now improve the loader or the step? Look at the *utilisation*, the share of an epoch in which the step
# computes. It is the time of the steps alone, on a batch that is there already, over the time of the epoch. A faster
# loader can gain the rest at most. The step here is the one in two passes.

# %% tags=["experiment"]
rows, labels = rows_in_memory(data)
STANDARD, OURS, ALONE = "TensorDataset", "our loader", "the step alone"
dataset = DataLoader(TensorDataset(rows, labels), sizes.batch_size, shuffle=True)
one_batch = [part.clone() for part in next(on_device(loader))]
batches = {STANDARD: dataset, OURS: loader, ALONE: [one_batch] * len(loader)}
busy = compare(
    {way: lambda given=given: loops[TWO](given) for way, given in batches.items()},
    device=device,
    seconds=sizes.seconds,
    progress=False,
)
busy.seconds[STANDARD].mul_(data.rows / len(rows))
show_rates(busy, x_bytes)

# %% tags=["experiment"]
print(f"control: {STANDARD} against itself {busy.control}")
for way in (STANDARD, OURS):
    print(f"utilisation with {way}: {busy.ratio(way, to=ALONE)}")
course.claim(
    "an epoch with TensorDataset and the same step takes at least six times as long as one of our loader",
    busy.ratio(OURS, to=STANDARD),
    above=6,
    otherwise="Long rows and a slow step leave less for a loader to win.",
)
course.claim(
    "with TensorDataset, the step computes for less than a quarter of the epoch",
    busy.ratio(STANDARD, to=ALONE),
    below=0.25,
)

# %% [markdown]
# To judge a loader, compare the epoch with the step *without* a loader. Do not time the loader alone, because without
# a step it has the cache and all cores for itself.
#
# **Takeaway** If utilisation is low, work on the loader. If it is high, work on the step.

# %% [markdown]
# ## What is wrong with a published example?
#
# A loop can be fast and still report wrong numbers. The function below resembles FFCV's guide. It runs, and its loss
# falls, but it has six faults. Can you find them from their symptoms?


# %% locked="published_fit"
def published_fit(x, y, epochs, batch_size, lr, clock=time.perf_counter, synchronize=lambda: None):
    """SGD on normalised columns, as found in the wild.  Do not use it."""
    loader = DataLoader(TensorDataset(x, y), drop_last=True)
    mean = sum(rows.sum(0) for rows, _ in loader) / len(x)
    std = (sum(rows.square().sum(0) for rows, _ in loader) / len(x) - mean.square()).sqrt()
    w, b = torch.zeros_like(mean), torch.zeros(1, device=x.device)
    losses, seconds = [], []
    for _ in range(epochs):
        begin, loss = clock(), 0.0
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
# 1. With a `batch_size` of 1 or 2048, the time and the result are the same.
# 2. Once symptom 1 is fixed, some rows are never used.
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
# A falling loss shows none of these faults, except for the NaN of symptom 4. Tests on data that you can compute by
# hand show them.
#
# **Takeaway** A training loop can run, and its loss can fall, while the time, the loss and the intercept that it
# reports are wrong.

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
batch_bytes, traffic = x.nbytes, {}
for way in (NEW, PLACE, TWO):
    batch = x.clone(), y
    with Traffic() as seen:
        loops[way]([batch])
    traffic[way] = [
        o for o in seen.operations if max(o.read, o.written) >= batch_bytes and o.name != "clone"
    ]
plots.traffic(traffic, batch_bytes)

# %% tags=["experiment"]
passes = {}
for way, found in traffic.items():
    passes[way] = sum(
        (moved.read >= batch_bytes) + (moved.written >= batch_bytes) for moved in found
    )
is_a_third = passes[TWO] == 2 and passes[NEW] == passes[PLACE] == 6
course.claim(
    "the step in two passes moves a third of the bytes of the other two steps",
    is_a_third,
    f"{passes[TWO]} passes against {passes[NEW]}",
)
allocating, reading = (
    epoch.seconds[NEW] / epoch.seconds[PLACE],
    epoch.seconds[PLACE] / epoch.seconds[TWO],
)
course.claim(
    "new tensors cost more than the four passes that two passes save",
    ratio_interval(allocating, reading),
    above=1,
)

# %% [markdown]
# Each block of the figure is one pass over the batch.
#
# **Takeaway** A third of the bytes need not take a third of the time. Measure what passes cost, and what new memory
# costs.

# %% [markdown]
# ## Why normalise at all? · extra
#
# The guide normalises "for stability". What would happen without? SGD on a squared loss is stable while the learning
# rate stays below $2 / \lambda$, where $\lambda$ is the largest eigenvalue of $\frac1n X^T X$. Normalised columns
# that do not depend on each other have all eigenvalues near 1.
#
# Our raw columns are uniform between 0 and 1, so they share the mean 1/2. Therefore the vector of equal weights has
# $\lambda \approx D / 4$, while the eigenvalues of all other directions are near $1 / 12$.
#
# **Predict** What is the largest stable learning rate for the raw columns? D is `sizes.columns`.

# %%
predicted_stable_lr = None  # learning rate

# %% tags=["experiment"]
nothing, ones = (
    zeros(sizes.columns),
    zeros(sizes.columns) + 1,
)  # with these, a step leaves x as it is
gram = (x.T @ x).double() / len(x)  # of one batch
limit = 2 / torch.linalg.eigvalsh(gram.cpu())[-1].item()
asked = "largest stable learning rate, raw columns"
print(course.score("04/4", asked, predicted_stable_lr, limit, null=None, form="{:.2g}"))
raw = {factor: losses_of(nothing, ones, factor * limit, sizes.epochs)[0] for factor in (0.5, 2)}
for factor, found in raw.items():
    print(
        f"raw columns, {factor} of the limit: loss per epoch",
        " ".join(f"{loss:.3g}" for loss in found),
    )

# %% tags=["experiment"]
is_wild = not raw[2][-1] < 1e3 * raw[0.5][-1]  # NaN, too
course.claim(
    "with twice the limit, SGD on the raw columns diverges; with half of it, it does not",
    is_wild,
    f"loss {raw[2][-1]:.3g} against {raw[0.5][-1]:.3g}",
)
print(f"after {sizes.epochs} epochs: raw columns {raw[0.5][-1]:.3f}, normalised {losses[-1]:.3f}")

# %% [markdown]
# **Shown** Only the learning rate differs between the two raw runs. But even the stable run is slow. In the other
# directions the eigenvalues are 3 D times smaller, so the weights hardly move. Normalising makes all directions
# alike.
#
# **Takeaway** Normalise so that one learning rate suits all directions.

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
hard = 10_000 + 0.1 * torch.randn(4096, 1, generator=torch.Generator().manual_seed(0))
parts, merged_now = [(part, None) for part in hard.split(512)], course.solved(check.mean_and_std)
of_squares = sum(x.square().sum() for x, _ in parts) / hard.numel()
of_rows = sum(x.sum() for x, _ in parts) / hard.numel()
textbook, yours = (of_squares - of_rows.square()).sqrt().item(), merged_now(parts)[1][0].item()
print(f"standard deviation 0.1: textbook {textbook:.3f}, yours {yours:.4f}")
is_off, is_found = not abs(textbook / 0.1 - 1) < 0.5, abs(yours / 0.1 - 1) < 0.02
course.claim(
    "in float32 the textbook formula misses the standard deviation by more than half",
    is_off,
    f"{textbook:.3f} instead of 0.1",
)
course.claim("merging batches finds the standard deviation to 2 %", is_found, f"{yours:.4f}")

# %% [markdown]
# **Known** The squares are about 10⁸. There, neighbouring float32 numbers lie 8 apart (IEEE 754: 24 bits), but the
# variance is 0.01. So rounding decides the difference. It may be negative, and then its root is `nan`.
#
# **Takeaway** For a standard deviation in one pass, merge means and squared deviations. Do not subtract squares.

# %% [markdown]
# ## How few passes are enough? · extra
#
# If the data do not fit into memory, every pass reads them from the disk again. Which method needs the fewest passes?
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
# | *conjugate gradients* (CG) | grows with $\sqrt\kappa$ and the digits | a few vectors | nothing |
# | SGD | few for a rough answer, then it meets a floor | one vector | a learning rate, its decay |
# | *variance-reduced* (SVRG) | grows with the digits, if there are many rows | three vectors | a learning rate |
#
# Forming A takes D² multiplications per row, as many as D / 2 passes of CG. With 10,000 columns A takes 400 MB. So if
# the disk is slow, one pass is the right answer.
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
    """The weights after each round of two passes, without end."""
    rng, w = torch.Generator().manual_seed(0), torch.zeros(problem.x.shape[1])
    while True:
        anchor = w
        whole = (
            problem.x.T @ (problem.x @ anchor - problem.y) / len(problem.y)
            + problem.strength * anchor
        )
        for index in torch.randperm(len(problem.y), generator=rng).split(batch_size):
            x, moved = problem.x[index], w - anchor
            w = w - lr * (
                x.T @ (x @ moved) / len(x) + problem.strength * moved + whole
            )  # for least squares
        yield w


# %% [markdown]
# The next cells solve six problems with many rows and six with few, each to a rough and to a tight target. SGD and
# SVRG each count with the best of three learning rates. The passes of the other two are not counted. SGD's learning
# rate falls to zero, over the number of passes that suits it best. After 32 passes we stop.
#
# **Predict** Which of CG, SGD and SVRG needs the fewest passes to the *tight* target, with many rows?
#
# - CG makes one step per pass, however many rows there are.
# - SGD has its floor.
# - SVRG makes a step for every 20 rows in each second pass.

# %%
predicted_method = None  # "CG", "SGD" or "SVRG"

# %% tags=["experiment"]
cg_now, rates, batch, tight = course.solved(check.ridge_by_cg), (0.05, 0.1, 0.3), 20, 1e-6


def passes_needed(problem, target):
    """{method: passes until the objective is within `target` of the best, as a share of its start}."""

    def solve(most):
        def parts():
            return zip(problem.x.split(500), problem.y.split(500), strict=True)

        return cg_now(parts, problem.x.shape[1], problem.strength, tolerance=0.0, most=most)[0]

    by_svrg = [ridge.passes_of_stream(problem, svrg(problem, lr, batch), 2, target) for lr in rates]
    by_sgd = [
        ridge.passes_of_length(problem, ridge.last_of_sgd(problem, lr, batch), target)
        for lr in rates
    ]
    return {
        "CG": ridge.passes_of_length(problem, solve, target),
        "SGD": min(by_sgd),
        "SVRG": min(by_svrg),
    }


problems = {
    f"{n:,} rows": [
        ridge.ridge(seed, n, sizes.ridge_columns, 0.01) for seed in range(sizes.ridge_seeds)
    ]
    for n in sizes.ridge_rows
}
print(f"condition number {problems[f'{sizes.ridge_rows[-1]:,} rows'][0].condition:.0f}")

# %% tags=["experiment"]
needed = {}
for (size, of_size), (goal, target) in itertools.product(
    problems.items(), {"rough": 1e-2, "tight": tight}.items()
):
    found = [passes_needed(problem, target) for problem in of_size]
    needed[size, goal] = {method: [by[method] for by in found] for method in found[0]}
    print(f"{size}, {goal}: passes per problem (normal equations: 1)", needed[size, goal])
few, many = problems
by_method = needed[many, "tight"]
fewest = min(by_method, key=lambda method: sum(by_method[method]))
print(course.score("04/4", "fewest passes, tight, many rows", predicted_method, fewest))
plots.passes_needed(needed, ridge.MOST_PASSES)

# %% tags=["experiment"]
rough, cg, by_svrg = needed[many, "rough"], by_method["CG"], by_method["SVRG"]
course.claim(
    "with many rows and a tight target, CG needs at least 1.5 times the passes of SVRG",
    ridge.times_as_many(cg, by_svrg),
    above=1.5,
)
course.claim(
    "with many rows and a rough target, CG needs at least 1.5 times the passes of SGD",
    ridge.times_as_many(rough["CG"], rough["SGD"]),
    above=1.5,
)
course.claim(
    "with many rows and a tight target, SGD needs more passes than CG",
    ridge.times_as_many(by_method["SGD"], cg),
    above=1,
)
with_few = needed[few, "tight"]
course.claim(
    "with few rows and a tight target, SVRG needs more passes than CG",
    ridge.times_as_many(with_few["SVRG"], with_few["CG"]),
    above=1,
)

# %% [markdown]
# **Known** The passes that CG needs for a digit grow with $\sqrt\kappa$ (Hestenes and Stiefel 1952). The passes of
# SVRG do not depend on $\kappa$ once there are far more rows than $\kappa$ (Johnson and Zhang 2013).
#
# **Shown** Between the two halves of the figure only the number of rows changes. CG needs about as many passes as
# before, while SVRG needs far fewer with many rows. (Hollow dots were stopped.)
#
# CG needs no learning rate, while SVRG and SGD may need several trainings to find a good one.
#
# **Takeaway** If a D × D matrix fits, take normal equations. Else take SGD for a rough answer, CG for a tight one, or
# SVRG if rows are many.

# %% [markdown]
# ## What to measure, what to change · extra
#
# | symptom | measurement | fix | part |
# |---|---|---|---|
# | an epoch takes many times `memcpy` of its bytes | seconds per epoch | one copy per batch, into one buffer | 1 |
# | large batches load at fewer GB/s than small ones | page faults per batch | reuse buffers | 1 |
# | a shuffled epoch reads many times the file | bytes from the disk per row | random order of pages, in a window | 2 |
# | the loss stalls with a cheap order | variance of batch means | a wider window, or shuffle the file once | 2 |
# | reading and computing add up | seconds of fills and steps | a second buffer and a thread | 3 |
# | the step is slower than its two products | page faults per step | write in place | 4 |
# | too many epochs | passes to a target | one pass, CG, SVRG, or a falling learning rate | 4 |
