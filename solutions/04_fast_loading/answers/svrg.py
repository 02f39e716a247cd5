"""Known mistakes of exercise svrg, and right answers in other styles."""

import math

import torch

from course.checks.engine import alternative, mistake


def _gradient(read, w, strength):
    """(full gradient, number of rows, number of batches) at `w`, by one pass."""
    total, rows, batches = 0, 0, 0
    for x, y in read():
        total, rows, batches = total + x.T @ (x @ w - y), rows + len(y), batches + 1
    return total / rows + strength * w, rows, batches


@mistake(
    "svrg",
    "The step has the gradient of the batch and the full one, but the batch's gradient at the snapshot is not taken "
    "off, so the noise stays. Subtract it.",
)
def nothing_subtracted(read, w, lr, strength, epochs):
    for _ in range(epochs):
        full, rows, batches = _gradient(read, w, strength)
        for x, y in read():
            w = w - lr * (x.T @ (x @ w - y) * batches / rows + strength * w + full)
    return w, 2 * epochs


@mistake(
    "svrg",
    "This is plain SGD: the full gradient at the snapshot is not used. A step is g(w) - g(snapshot) + full.",
)
def plain_sgd(read, w, lr, strength, epochs):
    for _ in range(epochs):
        _, rows, batches = _gradient(read, w, strength)
        for x, y in read():
            w = w - lr * (x.T @ (x @ w - y) * batches / rows + strength * w)
    return w, 2 * epochs


@mistake(
    "svrg",
    "The snapshot moves along with w: both are names of one tensor that is changed in place, so every step of an "
    "epoch is the full gradient. Clone one of them.",
)
def moving_snapshot(read, w, lr, strength, epochs):
    for _ in range(epochs):
        full, _, _ = _gradient(read, w, strength)
        for _ in read():
            w = w - lr * full
    return w, 2 * epochs


@mistake("svrg", "The snapshot of the last epoch is returned, without what that epoch taught. Return the last w.")
def snapshot_returned(read, w, lr, strength, epochs):
    for _ in range(epochs):
        snapshot = w
        full, rows, batches = _gradient(read, w, strength)
        for x, _ in read():
            d = w - snapshot
            w = w - lr * (x.T @ (x @ d) * batches / rows + strength * d + full)
    return snapshot.clone(), 2 * epochs


@mistake(
    "svrg",
    "The snapshot and its full gradient are taken once, before the first epoch. Each epoch takes them anew: the "
    "nearer the snapshot is, the less noise is left.",
)
def one_snapshot(read, w, lr, strength, epochs):
    snapshot = w
    for _ in range(epochs):
        full, rows, batches = _gradient(read, snapshot, strength)
        for x, _ in read():
            shift = w - snapshot
            w = w - lr * (x.T @ (x @ shift) * batches / rows + strength * shift + full)
    return w, 2 * epochs


@mistake(
    "svrg",
    "The gradient of a batch is divided by the batch's own size, so the rows of the smaller last one count for more. "
    "Divide by the mean size, rows / batches, in every batch.",
)
def own_size(read, w, lr, strength, epochs):
    for _ in range(epochs):
        snapshot = w
        full, _, _ = _gradient(read, w, strength)
        for x, _ in read():
            shift = w - snapshot
            w = w - lr * (x.T @ (x @ shift) / len(x) + strength * shift + full)
    return w, 2 * epochs


@mistake(
    "svrg",
    "The correction leaves out the ridge: g(w) - g(snapshot) has the term strength * (w - snapshot) as well.",
)
def ridge_at_the_snapshot(read, w, lr, strength, epochs):
    for _ in range(epochs):
        snapshot = w
        full, rows, batches = _gradient(read, w, strength)
        for x, _ in read():
            w = w - lr * (x.T @ (x @ (w - snapshot)) * batches / rows + full)
    return w, 2 * epochs


@mistake(
    "svrg",
    "The full gradient lacks the ridge: add strength * snapshot to the mean over the rows.",
)
def full_without_ridge(read, w, lr, strength, epochs):
    for _ in range(epochs):
        snapshot = w
        full, rows, batches = _gradient(read, w, 0.0)
        for x, _ in read():
            shift = w - snapshot
            w = w - lr * (x.T @ (x @ shift) * batches / rows + strength * shift + full)
    return w, 2 * epochs


@mistake(
    "svrg",
    "The full gradient is the mean of the batches' means, so the rows of the smaller last batch count for more. Add "
    "up sums and divide once by the number of all rows.",
)
def full_of_means(read, w, lr, strength, epochs):
    for _ in range(epochs):
        snapshot, rows = w, 0
        means = []
        for x, y in read():
            means.append(x.T @ (x @ w - y) / len(y))
            rows += len(y)
        full = sum(means) / len(means) + strength * w
        for x, _ in read():
            shift = w - snapshot
            w = w - lr * (x.T @ (x @ shift) * len(means) / rows + strength * shift + full)
    return w, 2 * epochs


@mistake(
    "svrg",
    "The batches' gradients at the snapshot are kept from the first pass. In the second pass the rows come in another "
    "order, so batch i is another one: compute its gradient at the snapshot again, by one product with w - snapshot.",
)
def gradients_kept(read, w, lr, strength, epochs):
    for _ in range(epochs):
        kept, rows = [], 0
        for x, y in read():
            kept.append(x.T @ (x @ w - y))
            rows += len(y)
        snapshot, full = w, sum(kept) / rows + strength * w
        for (x, y), old in zip(read(), kept, strict=True):
            change = (x.T @ (x @ w - y) - old) * len(kept) / rows
            w = w - lr * (change + strength * (w - snapshot) + full)
    return w, 2 * epochs


@mistake(
    "svrg",
    "An epoch takes more than two passes. Count rows and batches in the pass that adds up the full gradient.",
)
def rows_and_batches_in_a_pass(read, w, lr, strength, epochs):
    passes = 0
    for _ in range(epochs):
        sizes = [len(y) for _, y in read()]
        snapshot = w
        full, rows, batches = _gradient(read, w, strength)
        for x, _ in read():
            shift = w - snapshot
            w = w - lr * (x.T @ (x @ shift) * len(sizes) / sum(sizes) + strength * shift + full)
        passes += 3
    return w, passes


@mistake(
    "svrg",
    "The steps go steps_uphill. A step is taken against the gradient: subtract it.",
)
def steps_uphill(read, w, lr, strength, epochs):
    for _ in range(epochs):
        snapshot = w
        full, rows, batches = _gradient(read, w, strength)
        for x, _ in read():
            shift = w - snapshot
            w = w + lr * (x.T @ (x @ shift) * batches / rows + strength * shift + full)
    return w, 2 * epochs


@mistake(
    "svrg",
    "The ridge has a factor of 2 that the data do not have. The gradient is that of half the objective: strength * w.",
)
def twice_the_ridge(read, w, lr, strength, epochs):
    for _ in range(epochs):
        snapshot = w
        full, rows, batches = _gradient(read, w, 2 * strength)
        for x, _ in read():
            shift = w - snapshot
            w = w - lr * (x.T @ (x @ shift) * batches / rows + 2 * strength * shift + full)
    return w, 2 * epochs


@alternative("svrg")
def two_gradients(read, w, lr, strength, epochs):
    w, passes = w.clone(), 0
    for _ in range(epochs):
        snapshot = w.clone()
        sizes, sums = zip(*((len(x), x.T @ (x @ snapshot - y)) for x, y in read()), strict=True)
        full = sum(sums) / sum(sizes) + strength * snapshot
        mean_size = sum(sizes) / len(sizes)
        passes += 1
        for x, y in read():
            here = x.T @ (x @ w - y) / mean_size + strength * w
            there = x.T @ (x @ snapshot - y) / mean_size + strength * snapshot
            w -= lr * (here - there + full)
        passes += 1
    return w, passes


@alternative("svrg")
def weight_decay_first(read, w, lr, strength, epochs):
    for _ in range(epochs):
        target, moments, rows, count = w, torch.zeros_like(w), 0, 0
        for x, y in read():
            moments.addmv_(x.t(), torch.addmv(y, x, w, beta=-1))
            rows, count = rows + x.shape[0], count + 1
        full = torch.add(moments / rows, w, alpha=strength)
        shift = torch.zeros_like(w)
        for x, _ in read():
            # the shift from the snapshot alone is carried along
            shift = (1 - lr * strength) * shift - lr * full - (lr * count / rows) * (x.t() @ (x @ shift))
        w = target + shift
    return w, math.prod((2, epochs))
