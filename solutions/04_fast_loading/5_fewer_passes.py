# %% [markdown]
# # Fast loading, part 5: Fewer passes
#
# **How few passes over the data are enough?**
#
# When the data do not fit into memory, every pass reads them from the disk again. Conjugate gradients read the same
# batches as plain SGD and use them differently. You write them and compare what each pass buys. Then you fix a
# published training loop.
#
# **You will be able to**
#
# - choose a method by what each pass over the data buys
# - solve a regression by a few passes, without a learning rate
# - find out why a published loop reports a wrong time, loss and intercept
#
# **Minutes** 0 core · 68 in all
#
# **Needs** parts 1 to 4 (their answers are used if you solved them)

# %% locked="setup"
import time
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
from course.plots import fast_loading as plots

device = course.device()
print(course.machine())
sizes = course.sizes("04_fast_loading")

# %% [markdown]
# ## Can you solve a regression without forming a matrix? · extra
#
# The objective is $\frac1n |Xw - y|^2 + \lambda |w|^2$. Where its gradient is zero, $A w = c$ holds with $A = \frac1n
# X^\top X + \lambda I$ and $c = \frac1n X^\top y$. With 10,000 columns $A$ has 100 million entries. You do not need to
# store it: $X^\top X v$ is $X^\top (X v)$, a sum over batches of $x^\top (x v)$. So one pass over the rows gives the
# product of $A$ with one vector.
#
# Gradient descent takes one product per step. In theory, the number of its steps grows with the condition number
# $\kappa$ of $A$, the largest eigenvalue over the smallest. *Conjugate gradients* (CG) also take one product per step.
# After $k$ steps they have found the combination of $c, Ac, \ldots, A^{k-1} c$ with the lowest objective. Their number
# of steps grows with $\sqrt\kappa$ at most, and you tune no learning rate.
#
# ### Exercise 1 · Conjugate gradients on a stream
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
# ## How much does each pass buy? · extra
#
# Two methods read the same rows, normalised. An epoch of SGD is one pass, and so is an iteration of CG. The *best*
# weights have the least loss on these rows. The *true* weights, from which y was made, have a slightly higher loss
# here, because y also has noise.
#
# **Predict**: how many passes does CG need until its loss is lower than that of the true weights? And which method
# needs fewer?

# %%
predicted_passes, predicted_method = None, None  # a number; "SGD" or "CG"

# %% tags=["experiment"]
data = regression.prepare(sizes.rows, sizes.columns)
asked = (check.gather, check.random_order, check.read_ahead)
answers = SimpleNamespace(**{exercise.name: course.solved(exercise) for exercise in asked})
copy_ahead_now, sgd_step_now = course.solved(check.copy_ahead), course.solved(check.sgd_step_)
ridge_by_cg_now = course.solved(check.ridge_by_cg)
file = RecordFile(answers, data, sizes.batch_size, sizes.page, sizes.window)  # of part 1; written if it is not there
n_rows, y_mean, lr = file.records.rows, float(np.mean(data.y, dtype=np.float64)), 0.05


def on_device():
    """The batches of the file on the device: as they are on a CPU, else copied ahead."""
    loader = file.loader()
    return iter(loader) if device.type == "cpu" else copy_ahead_now(iter(loader), DeviceCopies(device))


mean, std = course.solved(check.mean_and_std)(on_device())
true_w = torch.from_numpy(data.w).to(device) * std  # of normalised columns


def zeros(*shape):
    return torch.zeros(*shape, device=device)


def normalised():
    """A pass over the rows, each batch normalised where it lies: in the loader's own buffer."""
    for bx, by in on_device():
        yield bx.sub_(mean).div_(std), by.sub_(y_mean)


gram, target = zeros(sizes.columns, sizes.columns).double(), zeros(sizes.columns).double()
for bx, by in normalised():  # columns x columns numbers, which CG never needs: for the comparison only
    gram += (bx.T @ bx).double()
    target += (bx.T @ by).double()
best = torch.linalg.solve(gram / n_rows, target / n_rows).float()


def excess(weights):
    """Mean squared residual of `weights` above that of the best ones."""
    off = (weights - best).double()
    return (off @ gram @ off / n_rows).item()


SLOWER = "SGD, a quarter of the learning rate later"
curves = {name: ([0], [excess(zeros(sizes.columns))]) for name in ("SGD", SLOWER, "CG")}


def add(name, passes, weights):
    curves[name][0].append(passes)
    curves[name][1].append(excess(weights))


scratch = {"residual": zeros(sizes.batch_size), "scaled": zeros(sizes.columns), "gradient": zeros(sizes.columns)}
for name, later in (("SGD", lr), (SLOWER, lr / 4)):
    w, b = zeros(sizes.columns), zeros(1).add_(y_mean)
    for e in range(sizes.few_epochs):
        for batch in on_device():
            sgd_step_now([batch], w, b, mean, std, lr if e < sizes.few_epochs // 2 else later, scratch)
        add(name, e + 1, w)
for most in [n for n in (2, 3, 4, 6, 8, 12) if n <= sizes.few_epochs]:
    w, passes, _ = ridge_by_cg_now(normalised, sizes.columns, 0.0, tolerance=0.0, most=most)
    add("CG", passes, w)
of_truth = excess(true_w)
plots.loss(curves, of_truth)

# %% tags=["experiment"]
near = {name: next((n for n, value in zip(*curve, strict=True) if value < of_truth), None)
        for name, curve in curves.items()}  # fmt: skip
print("passes until a method is nearer to the best weights than the true ones are (None: never):")
print(", ".join(f"{name} {passes}" for name, passes in near.items()))
fewest = min((name for name in near if near[name]), key=near.get, default="none of them")
print(f"CG: {near['CG']}" + reveal(predicted_passes) + f"; fewest passes: {fewest}" + reveal(predicted_method))
ends = {name: losses[-1] for name, (_, losses) in curves.items()}
otherwise = "There are too few passes for the methods to reach their floor."
course.claim("a quarter of the learning rate in the second half lowers the floor of SGD to less than half",
             ends[SLOWER] < ends["SGD"] / 2, f"{ends[SLOWER] / ends['SGD']:.2f} of it",
             otherwise=otherwise)  # fmt: skip
course.claim("CG passes SGD's floor by a factor of a hundred and more", ends["CG"] < ends["SGD"] / 100,
             f"{ends['SGD'] / ends['CG']:.0e}", otherwise=otherwise)  # fmt: skip

# %% [markdown]
# The loss fell below that of the true weights, the dotted line, after 2 passes of SGD and 3 of CG. Then SGD stayed at a
# floor. A quarter of the learning rate in the second half lowered it to 0.08 of that floor. CG went far lower.
#
# **Takeaway** Here CG needed three passes and no learning rate. SGD needed two, but then its learning rate set a floor.

# %% [markdown]
# ## What is wrong with a published example? · extra
#
# This unit builds on FFCV's guide to linear regression and its script. The function below is rewritten. It runs, and
# its loss falls, but it contains faults that we found in one or both.


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
# Users report these symptoms:
#
# 1. With a `batch_size` of 1 or 2048, the time and the result are the same.
# 2. Once symptom 1 is fixed, some rows are never used.
# 3. Once symptom 1 is fixed, the reported loss grows with the batch size.
# 4. A column of temperatures near 300 kelvin that differ by hundredths makes all weights NaN or wrong.
# 5. `x @ w + b` with the returned weights is far from y, although the loss is small.
# 6. The total of ten epochs is the time of the last one. On a GPU, the times do not add up to what a clock on the wall
#    shows.
#
# ### Exercise 2 · Fix the training
#
# Copy the body of `published_fit` into the cell below and change it until every symptom is gone. The check tests them
# one by one.
#
# **Must**
# - normalise by mean and standard deviation (divided by n) of all rows, and use all rows in order in every epoch;
# - report as loss of an epoch the mean of r² over all rows, and return w and b for x as it is;
# - read the time with `clock()`, right after `synchronize()`, and start the total before the statistics.
#
# **Points** 5 · **Extra** · **Difficulty** ●●○ · **Minutes** 30 · **Lines** 24
#
# **Source** `examples/docs_examples/linear_regression.py` in github.com/libffcv/ffcv.
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
# `DataLoader(dataset, batch_size)` keeps a short last batch. `torch.std_mean(x, 0, correction=0)` is stable. Two clocks
# need two variables: `begin` is set once, `start` in every epoch.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# From z w + b = x (w / std) + (b - mean . (w / std)) follow the weights for x: `w = w / std`, then
# `b = b - mean.dot(w)`. Divide the loss by `len(x)`.
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
# **Takeaway** A training loop can run, and its loss can fall, while the time, the loss and the intercept that it
# reports are wrong.
#
# ## What to measure, what to change
#
# | symptom | measurement | fix | part |
# |---|---|---|---|
# | an epoch takes many times `memcpy` of its bytes | seconds per epoch | one copy per batch, into one buffer | 1 |
# | large batches load at fewer GB/s than small ones | page faults per batch | reuse buffers | 1 |
# | a shuffled epoch reads many times the file | bytes from the disk per row | random order of pages, in a window | 2 |
# | the loss stalls with a cheap order | bias of batch means | a wider window, or shuffle the file once | 2 |
# | reading and computing add up | seconds of fills and steps | a second buffer and a thread | 3 |
# | the step is slower than its two products | passes over a batch | normalise the weights | 4 |
# | too many epochs | loss per pass | CG, or a falling learning rate | 5 |
