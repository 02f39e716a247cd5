"""Known mistakes of exercise svrg, and right answers in other styles."""

import math

import torch

from course.checks.known_answers import alternative

MISTAKES = {
    "nothing_subtracted": (
        "The step has the gradient of the batch and the full one, but the batch's gradient at the snapshot is not "
        "taken off, so the noise stays. Subtract it.",
        ("for x, _ in", "for x, y in"),
        ("(x @ shift)", "(x @ w - y)"),
        ("* shift", "* w"),
    ),
    "plain_sgd": (
        "This is plain SGD: the full gradient at the snapshot is not used. A step is g(w) - g(snapshot) + full.",
        ("for x, _ in", "for x, y in"),
        ("(x @ shift)", "(x @ w - y)"),
        ("* shift + full", "* w"),
    ),
    "moving_snapshot": (
        "The snapshot moves along with w: both are names of one tensor that is changed in place, so every step of an "
        "epoch is the full gradient. Clone one of them.",
        ("    for _ in range", "    w = w.clone()\n    for _ in range"),
        ("w = w - lr", "w -= lr"),
    ),
    "snapshot_returned": (
        "The snapshot of the last epoch is returned, without what that epoch taught. Return the last w.",
        ("return w", "return snapshot.clone()"),
    ),
    "one_snapshot": (
        "The snapshot and its full gradient are taken once, before the first epoch. Take them in each epoch: the "
        "nearer the snapshot is, the less noise is left.",
        ("    for _ in range", "    snapshot = w\n    for _ in range"),
        ("snapshot, total, rows, batches = w, 0,", "total, rows, batches = 0,"),
    ),
    "own_size": (
        "The gradient of a batch is divided by the batch's own size, so the rows of the smaller last one count for "
        "more. Divide by the mean size, rows / batches, in every batch.",
        ("* batches / rows", "/ len(x)"),
    ),
    "ridge_at_the_snapshot": (
        "The correction leaves out the ridge: g(w) - g(snapshot) has the term strength * (w - snapshot) as well.",
        (" + strength * shift", ""),
    ),
    "full_without_ridge": (
        "The full gradient lacks the ridge: add strength * snapshot to the mean over the rows.",
        (" + strength * snapshot", ""),
    ),
    "full_of_means": (
        "The full gradient is the mean of the batches' means, so the rows of the smaller last batch count for more. "
        "Add up sums and divide once by the number of all rows.",
        ("snapshot - y)", "snapshot - y) / len(y)"),
        ("total / rows", "total / batches"),
    ),
    "gradients_kept": (
        "The batches' gradients at the snapshot are kept from the first pass. In the second pass the rows come in "
        "another order, so batch i is another one: compute its gradient at the snapshot again, by one product with "
        "w - snapshot.",
        ("        snapshot, total", "        kept = []\n        snapshot, total"),
        ("            total,", "            kept.append(x.T @ (x @ snapshot - y))\n            total,"),
        ("for x, _ in read()", "for (x, y), old in zip(read(), kept)"),
        ("x.T @ (x @ shift)", "(x.T @ (x @ w - y) - old)"),
    ),
    "rows_and_batches_in_a_pass": (
        "An epoch takes more than two passes. Count rows and batches in the pass that adds up the full gradient.",
        ("        snapshot, total", "        sizes = [len(y) for _, y in read()]\n        snapshot, total"),
        ("batches / rows", "len(sizes) / sum(sizes)"),
        ("2 * epochs", "3 * epochs"),
    ),
    "steps_uphill": ("Your steps go uphill: subtract the gradient.", ("w - lr", "w + lr")),
    "twice_the_ridge": (
        "The ridge has a factor of 2 that the data do not have. The gradient is that of half the objective: "
        "strength * w.",
        ("strength * snapshot", "2 * strength * snapshot"),
        ("strength * shift", "2 * strength * shift"),
    ),
}


@alternative
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


@alternative
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
