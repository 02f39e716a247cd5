"""Known mistakes of exercise accumulated_step, and right answers in other styles."""

import torch
from torch.nn import functional as F

from course.engine.known_answers import alternative

MISTAKES = {
    "sum_of_means": (
        "The mean losses of the pieces are added without weights. Divide the sum over each piece by the batch size.",
        ("/ len(labels)", "/ len(labels[rows])"),
    ),
    "sum_not_divided": (
        "The losses of all rows are added and never divided. The loss is a mean: divide by the whole batch's rows.",
        ("/ len(labels)", "/ 1"),
    ),
    "never_cleared": (
        "Gradients of the previous batch add to the new ones. Call optimizer.zero_grad() once, before the loop.",
        ("    optimizer.zero_grad()\n", ""),
    ),
    "mean_of_means": (
        "Every piece has the same weight, the smaller last one too. Weight it by its rows: len(piece) / len(batch).",
        ("/ len(labels)", "/ len(labels[rows]) / len(labels.split(micro_batch))"),
    ),
    "step_for_each_part": (
        "The optimizer steps after every piece, so these are small batches again. Step once, after the loop.",
        ("    optimizer.step()\n", "        optimizer.step()\n"),
    ),
    "clears_each_part": (
        "Gradients are cleared before every piece, so only the last one counts. Clear them once, before the loop.",
        ("    optimizer.zero_grad()\n", ""),
        ("        rows =", "        optimizer.zero_grad()\n        rows ="),
    ),
    "one_backward": (
        "One backward pass at the end keeps the activations of all pieces in memory. Call backward() for each piece.",
        (
            "        loss.backward()\n        total += loss.detach()\n",
            "        total = total + loss\n    total.backward()\n",
        ),
        ("return total", "return total.detach()"),
    ),
    "drops_the_rest": (
        "The last piece is left out when it is smaller, and its rows are lost. Take it with its own number of rows.",
        ("range(0, len(labels), ", "range(0, len(labels) - micro_batch + 1, "),
    ),
    "number_of_parts_rounded_down": (
        "The number of pieces is rounded down, so pieces can exceed micro_batch. Use split(micro_batch).",
        (
            "total = 0.0",
            "total, micro_batch = 0.0, -(-len(labels) // max(1, len(labels) // micro_batch))",
        ),
    ),
    "loss_of_the_last_part": (
        "The loss of the last piece alone is returned. Add up the weighted losses of all pieces.",
        ("total += loss", "total = loss"),
    ),
    "divided_by_the_part": (
        "The sum of each piece is divided by micro_batch, not by the rows of the whole batch: len(labels).",
        ("/ len(labels)", "/ micro_batch"),
    ),
    "cleared_afterwards": (
        "Gradients are cleared after the step only, so what an earlier batch left counts. Clear them before the loop.",
        ("    optimizer.zero_grad()\n", ""),
        ("step()\n", "step()\n    optimizer.zero_grad()\n"),
    ),
    "weighted_after_backward": (
        "The returned loss is weighted, but backward() runs on each piece's mean. Weight the loss before backward().",
        ("/ len(labels)", "/ len(labels[rows])"),
        ("loss.detach()", "loss.detach() * len(labels[rows]) / len(labels)"),
    ),
    "means_of_full_parts": (
        "Every mean is weighted as if its piece had micro_batch rows. The weight is len(piece) / len(batch).",
        ("/ len(labels)", "/ len(labels[rows]) * micro_batch / len(labels)"),
    ),
    "full_parts_assumed": (
        "Every piece is divided as if it had micro_batch rows. The last may have fewer: divide by len(labels).",
        ("loss / len(labels)", "loss / (-(-len(labels) // micro_batch) * micro_batch)"),
    ),
}


@alternative
def scaled_at_the_end(model, users, items, labels, optimizer, micro_batch):
    model.zero_grad()
    n, total = len(users), torch.zeros((), device=users.device)
    for rows in torch.arange(n, device=users.device).split(micro_batch):
        loss = F.binary_cross_entropy_with_logits(
            model(users[rows], items[rows]), labels[rows], reduction="none"
        ).sum()
        loss.backward()
        total += loss.detach()
    for p in model.parameters():
        if p.grad is not None:
            p.grad /= n
    optimizer.step()
    return total / n


@alternative
def even_parts(model, users, items, labels, optimizer, micro_batch):
    optimizer.zero_grad(set_to_none=True)
    n, losses = -(-len(labels) // micro_batch), []
    for u, i, y in zip(*(t.tensor_split(n) for t in (users, items, labels)), strict=True):
        losses.append(F.binary_cross_entropy_with_logits(model(u, i), y) * len(y) / len(labels))
        losses[-1].backward()
    optimizer.step()
    return sum(loss.detach() for loss in losses)
