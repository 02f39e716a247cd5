"""Known mistakes of exercise fit, and right answers in other styles."""

import math
import time

import torch
from torch.utils.data import DataLoader, TensorDataset

from course.engine.known_answers import alternative

MISTAKES = {
    "batches_of_one": (
        "Every batch has one row, whatever batch_size says. Pass batch_size on: a DataLoader without it takes 1.",
        ("TensorDataset(x, y), batch_size)", "TensorDataset(x, y))"),
    ),
    "weights_of_normalised_columns": (
        "w and b belong to the normalised columns, and do not fit x. Divide w by std, and subtract mean . (w / std) "
        "from b.",
        ("    w = w / std\n", ""),
        ("    b = b - mean.dot(w)\n", ""),
    ),
    "weights_alone_of_normalised_columns": (
        "w still belongs to the normalised columns, b does not. For x as it is, divide w by std, too.",
        ("    w = w / std\n", ""),
        ("mean.dot(w)", "mean.dot(w / std)"),
    ),
    "intercept_of_normalised_columns": (
        "b still belongs to the normalised columns. For x as it is, subtract mean . (w / std).",
        ("    b = b - mean.dot(w)\n", ""),
    ),
    "intercept_from_the_weights_of_normalised_columns": (
        "b is moved by mean . w with the w of the normalised columns. Divide w by std first.",
        ("    w = w / std\n", ""),
        ("    b = b - mean.dot(w)\n", "    b = b - mean.dot(w)\n    w = w / std\n"),
    ),
    "divided_by_n_minus_one": (
        "The standard deviation divides by n - 1. Divide by the number of rows: correction=0.",
        (", correction=0", ""),
    ),
    "twice_the_step": (
        "The step is twice as long: it follows the squared residual. The gradient is z^T r / k, without a 2.",
        ("w -= lr", "w -= 2 * lr"),
        ("b -= lr", "b -= 2 * lr"),
    ),
    "loss_by_batches": (
        "The sum of squares is divided by the number of batches, so the loss grows with the batch. Divide by all rows.",
        ("loss / len(x)", "loss / len(loader)"),
    ),
    "mean_of_batch_losses": (
        "The mean losses of the batches are averaged, so the rows of a short batch weigh more. Divide sums by rows.",
        (".square().sum()", ".square().mean()"),
        ("loss / len(x)", "loss / len(loader)"),
    ),
    "short_batch_dropped": (
        "The short batch at the end is dropped: its rows teach nothing. Keep it (drop_last=False).",
        ("TensorDataset(x, y), batch_size)", "TensorDataset(x, y), batch_size, drop_last=True)"),
        ("(loss / len(x)).item()", "float(loss / len(x))"),
    ),
    "small_spread_lost": (
        "The variance is computed as E[x^2] - E[x]^2, which loses a small spread around a large mean. Average the "
        "squared deviations from the mean: torch.std_mean.",
        (
            "std, mean = torch.std_mean(x, 0, correction=0)",
            "std, mean = x.square().mean(0), x.mean(0)\n    std = (std - mean.square()).sqrt()",
        ),
    ),
    "never_synchronized": (
        "The clock is read while the device may still be computing. Call synchronize() before each reading.",
        ("    synchronize()\n    begin", "    begin"),
        ("        synchronize()\n        start", "        start"),
        ("        synchronize()\n        seconds", "        seconds"),
        ("    synchronize()\n    return", "    return"),
    ),
    "synchronized_at_the_end_only": (
        "synchronize() is called before the clock stops, not before it starts: work queued earlier is counted too. "
        "Call it there, too.",
        ("    synchronize()\n    begin", "    begin"),
        ("        synchronize()\n        start", "        start"),
    ),
    "synchronized_at_the_start_only": (
        "synchronize() is not called before the clock stops, so work that is still queued is not counted. Call it "
        "there, too.",
        ("        synchronize()\n        seconds", "        seconds"),
        ("    synchronize()\n    return", "    return"),
    ),
    "total_restarted": (
        "The start of the total is reset in every epoch, so the total covers only the last one. Use two variables.",
        ("start, loss = clock()", "begin, loss = clock()"),
        ("clock() - start", "clock() - begin"),
    ),
    "epochs_from_the_start": (
        "The seconds of each epoch count from the start of the first epoch. Read the clock when each epoch begins.",
        ("clock() - start", "clock() - begin"),
    ),
    "statistics_not_timed": (
        "The total starts after the statistics, which are a pass over the data too. Read the clock before them.",
        ("    losses, seconds", "    begin = clock()\n    losses, seconds"),
    ),
    "loss_after_the_steps": (
        "The loss of an epoch is computed after its last step, in another pass. Add up the squares during the epoch.",
        ("(loss / len(x)).item()", "((x - mean) / std @ w + b - y).square().mean().item()"),
    ),
    "statistics_of_the_first_batch": (
        "Mean and standard deviation are those of the first batch. Take them over all rows.",
        ("torch.std_mean(x, 0", "torch.std_mean(x[: max(2, batch_size)], 0"),
    ),
    "shuffled": (
        "The rows are shuffled. Here all epochs use them in order, so that the result can be compared.",
        ("TensorDataset(x, y), batch_size", "TensorDataset(x, y), batch_size, shuffle=True"),
    ),
}


@alternative
def with_a_data_loader(
    x, y, epochs, batch_size, lr, clock=time.perf_counter, synchronize=lambda: None
):
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


@alternative
def normalised_once(
    x, y, epochs, batch_size, lr, clock=time.perf_counter, synchronize=lambda: None
):
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
