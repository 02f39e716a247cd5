"""Known mistakes of exercise fit, and right answers in other styles."""

import math
import time

import torch
from torch.utils.data import DataLoader, TensorDataset

from course.checks.engine import alternative, mistake


def training(
    x, y, epochs, batch_size, lr, clock=time.perf_counter, synchronize=lambda: None,
    stats=lambda x: torch.std_mean(x, 0, correction=0), drop=False, restart=False, sync="both", cumulative=False,
    loss_of="rows", back="both", late=False, factor=1,
):  # fmt: skip
    """A right training, with one idea to get wrong each."""

    def now(stop=True):
        if sync in ("both", "stop" if stop else "start"):
            synchronize()
        return clock()

    begin = now(False)
    std, mean = stats(x)
    if late:
        begin = now(False)
    w, b = torch.zeros_like(mean), mean.new_zeros(1)
    seconds, losses = [], []
    start = now(False)
    for _ in range(epochs):
        if not cumulative:
            start = now(False)
        if restart:
            begin = start
        squares = []
        for rows, targets in zip(x.split(batch_size), y.split(batch_size), strict=True):
            if drop and len(rows) < batch_size:
                break
            z = (rows - mean) / std
            residual = z @ w + b - targets
            squares.append(residual.square().mean() if loss_of == "means" else residual.square().sum())
            w -= factor * lr * (z.T @ residual) / len(z)
            b -= factor * lr * residual.mean()
        seconds.append(now() - start)
        n = len(squares) if loss_of in ("batches", "means") else len(x)
        losses.append(sum(squares) / n)
    total = now() - begin
    if back != "none":
        w = w / std
    if back == "both":
        b = b - mean.dot(w)
    losses = [float(loss) for loss in losses]
    return {"w": w, "b": b, "losses": losses, "seconds": seconds, "total_seconds": total}


def _moments(x):
    mean = x.mean(0)
    return (x.square().mean(0) - mean.square()).sqrt(), mean


@mistake(
    "fit",
    "Every batch has one row, whatever batch_size says. Hand batch_size on: a DataLoader without it takes 1.",
)
def batches_of_one(x, y, epochs, batch_size, lr, **clocks):
    return training(x, y, epochs, 1, lr, **clocks)


@mistake(
    "fit",
    "w and b belong to the normalised columns, and do not fit to x. Divide w by std, and take mean . (w / std) off b.",
)
def weights_of_normalised_columns(*args, **kwargs):
    return training(*args, back="none", **kwargs)


@mistake("fit", "w belongs to the normalised columns still; b does not. For x as it is, divide w by std, too.")
def weights_alone_of_normalised_columns(x, *args, **kwargs):
    std, mean = torch.std_mean(x, 0, correction=0)
    found = training(x, *args, back="none", **kwargs)
    return found | {"b": found["b"] - mean.dot(found["w"] / std)}


@mistake("fit", "b belongs to the normalised columns still. For x as it is, take off mean . (w / std).")
def intercept_of_normalised_columns(*args, **kwargs):
    return training(*args, back="w", **kwargs)


@mistake("fit", "The losses are printed. Whoever calls the function has them in what it returns: leave out the print.")
def prints_the_losses(*args, **kwargs):
    result = training(*args, **kwargs)
    for epoch, loss in enumerate(result["losses"]):
        print(f"epoch {epoch}: loss {loss:.4f}")
    return result


@mistake("fit", "The standard deviation divides by n - 1. Divide by the number of rows: correction=0.")
def divided_by_n_minus_one(*args, **kwargs):
    return training(*args, stats=lambda x: torch.std_mean(x, 0), **kwargs)


@mistake("fit", "The step is twice as long: it follows the squared residual. The gradient is z^T r / k, without a 2.")
def twice_the_step(*args, **kwargs):
    return training(*args, factor=2, **kwargs)


@mistake(
    "fit",
    "The sum of squares is divided by the number of batches, so the loss grows with the batch. Divide by all rows.",
)
def loss_by_batches(*args, **kwargs):
    return training(*args, loss_of="batches", **kwargs)


@mistake(
    "fit", "The mean losses of the batches are averaged, so the rows of a short batch weigh more. Divide sums by rows."
)
def mean_of_batch_losses(*args, **kwargs):
    return training(*args, loss_of="means", **kwargs)


@mistake("fit", "The short batch at the end is dropped: its rows teach nothing. Keep it (drop_last=False).")
def short_batch_dropped(*args, **kwargs):
    return training(*args, drop=True, **kwargs)


@mistake(
    "fit",
    "The variance is computed as E[x^2] - E[x]^2, which loses a small spread around a large mean. Average the squared "
    "deviations from the mean: torch.std_mean.",
)
def small_spread_lost(*args, **kwargs):
    return training(*args, stats=_moments, **kwargs)


@mistake("fit", "The clock is read while the device may still be computing. Call synchronize() before each reading.")
def never_synchronized(*args, **kwargs):
    return training(*args, sync="never", **kwargs)


@mistake(
    "fit",
    "synchronize() is called before the clock stops, not before it starts: work queued earlier is counted too.",
)
def synchronized_at_the_end_only(*args, **kwargs):
    return training(*args, sync="stop", **kwargs)


@mistake(
    "fit",
    "synchronize() is not called before the clock stops: work that is queued still is not counted. Call it there, too.",
)
def synchronized_at_the_start_only(*args, **kwargs):
    return training(*args, sync="start", **kwargs)


@mistake(
    "fit",
    "The start of the total is set anew in every epoch, so the total is that of the last one. Take two variables.",
)
def total_restarted(*args, **kwargs):
    return training(*args, restart=True, **kwargs)


@mistake("fit", "The seconds of an epoch count from the start of the first. Read the clock when each epoch begins.")
def epochs_from_the_start(*args, **kwargs):
    return training(*args, cumulative=True, **kwargs)


@mistake(
    "fit", "The total starts after the statistics, which are a pass over the data too. Read the clock before them."
)
def statistics_not_timed(*args, **kwargs):
    return training(*args, late=True, **kwargs)


@alternative("fit")
def with_a_data_loader(x, y, epochs, batch_size, lr, clock=time.perf_counter, synchronize=lambda: None):
    readings = []

    def tick():
        synchronize()
        readings.append(clock())

    tick()
    mean = x.mean(dim=0)
    std = (x - mean).pow(2).mean(dim=0).sqrt()
    loader = DataLoader(TensorDataset(x, y), batch_size=batch_size)
    model = torch.zeros(len(mean) + 1, device=x.device)
    losses = []
    tick()
    for _ in range(epochs):
        loss = 0
        for rows, targets in loader:
            z = torch.column_stack([(rows - mean) / std, torch.ones_like(targets)])
            residual = z.mv(model) - targets
            loss += residual.dot(residual)
            model = model - lr / len(rows) * residual @ z
        losses.append(loss)
        tick()
    w = model[:-1] / std
    pairs = zip(readings[1:], readings[2:], strict=False)
    return {
        "total_seconds": readings[-1] - readings[0],
        "seconds": [stop - start for start, stop in pairs],
        "losses": (torch.stack(losses) / x.shape[0]).tolist(),
        "b": model[-1:] - (mean * w).sum(),
        "w": w,
    }


@alternative("fit")
def normalised_once(x, y, epochs, batch_size, lr, clock=time.perf_counter, synchronize=lambda: None):
    n, result = len(x), {"losses": [], "seconds": []}
    synchronize()
    first = clock()
    origin = x[:1]
    mean, std = (x - origin).mean(0), (x - origin).std(0, unbiased=False)
    z = (x - origin - mean) / std
    w, b = torch.zeros(x.shape[1], 1, device=x.device), torch.zeros(1, device=x.device)
    for _ in range(epochs):
        synchronize()
        start = clock()
        loss = 0.0
        for i in range(math.ceil(n / batch_size)):
            part = slice(i * batch_size, (i + 1) * batch_size)
            residual = z[part] @ w + b - y[part, None]
            w = torch.sub(w, z[part].T @ residual, alpha=lr / len(residual))
            b = b - lr * residual.mean(0)
            loss += residual.square().sum().item()
        synchronize()
        result["seconds"].append(clock() - start)
        result["losses"].append(loss / n)
    synchronize()
    result["total_seconds"] = clock() - first
    w = w.squeeze(1) / std
    return result | {"w": w, "b": b - (origin[0] + mean) @ w}
