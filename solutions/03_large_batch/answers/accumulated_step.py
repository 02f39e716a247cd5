"""Known mistakes of exercise accumulated_step, and right answers in other styles."""

import torch
from torch.nn import functional as F

from course.checks.engine import alternative, mistake


def _loss(logits, labels):
    return F.binary_cross_entropy_with_logits(logits, labels)


def _parts(micro_batch, *tensors):
    return zip(*(t.split(micro_batch) for t in tensors), strict=True)


@mistake(
    "accumulated_step",
    "The mean losses of the parts are added without weights, so the gradient is too long. Divide by the batch size.",
)
def sum_of_means(model, users, items, labels, optimizer, micro_batch):
    optimizer.zero_grad()
    total = 0.0
    for u, i, y in _parts(micro_batch, users, items, labels):
        loss = _loss(model(u, i), y)
        loss.backward()
        total += loss.detach()
    optimizer.step()
    return total


@mistake(
    "accumulated_step",
    "The losses of all rows are added and never divided. The loss is a mean: divide by the rows of the whole batch.",
)
def sum_not_divided(model, users, items, labels, optimizer, micro_batch):
    optimizer.zero_grad()
    total = 0.0
    for u, i, y in _parts(micro_batch, users, items, labels):
        loss = F.binary_cross_entropy_with_logits(model(u, i), y, reduction="sum")
        loss.backward()
        total += loss.detach()
    optimizer.step()
    return total


@mistake(
    "accumulated_step",
    "Gradients of the previous batch add to the new ones. Call optimizer.zero_grad() once, before the loop.",
)
def never_cleared(model, users, items, labels, optimizer, micro_batch):
    total = 0.0
    for u, i, y in _parts(micro_batch, users, items, labels):
        loss = _loss(model(u, i), y) * len(y) / len(labels)
        loss.backward()
        total += loss.detach()
    optimizer.step()
    return total


@mistake(
    "accumulated_step",
    "Every part has the same weight, the smaller last one too. Weight it by its rows: len(part) / len(batch).",
)
def mean_of_means(model, users, items, labels, optimizer, micro_batch):
    optimizer.zero_grad()
    total, parts = 0.0, list(_parts(micro_batch, users, items, labels))
    for u, i, y in parts:
        loss = _loss(model(u, i), y) / len(parts)
        loss.backward()
        total += loss.detach()
    optimizer.step()
    return total


@mistake(
    "accumulated_step",
    "The optimizer steps after every part, so these are small batches again. Step once, after the loop.",
)
def step_for_each_part(model, users, items, labels, optimizer, micro_batch):
    optimizer.zero_grad()
    total = 0.0
    for u, i, y in _parts(micro_batch, users, items, labels):
        loss = _loss(model(u, i), y) * len(y) / len(labels)
        loss.backward()
        optimizer.step()
        total += loss.detach()
    return total


@mistake(
    "accumulated_step",
    "Gradients are cleared before every part, so only the last one counts. Clear them once, before the loop.",
)
def clears_each_part(model, users, items, labels, optimizer, micro_batch):
    total = 0.0
    for u, i, y in _parts(micro_batch, users, items, labels):
        optimizer.zero_grad()
        loss = _loss(model(u, i), y) * len(y) / len(labels)
        loss.backward()
        total += loss.detach()
    optimizer.step()
    return total


@mistake(
    "accumulated_step",
    "One backward pass at the end keeps the activations of all parts in memory. Call backward() for each part.",
)
def one_backward(model, users, items, labels, optimizer, micro_batch):
    optimizer.zero_grad()
    total = 0.0
    for u, i, y in _parts(micro_batch, users, items, labels):
        total = total + _loss(model(u, i), y) * len(y) / len(labels)
    total.backward()
    optimizer.step()
    return total.detach()


@mistake(
    "accumulated_step",
    "The last part is left out when it is smaller, and its rows are lost. Take it with its own number of rows.",
)
def drops_the_rest(model, users, items, labels, optimizer, micro_batch):
    optimizer.zero_grad()
    total = torch.zeros((), device=labels.device)
    for n in range(len(labels) // micro_batch):
        rows = slice(n * micro_batch, (n + 1) * micro_batch)
        loss = _loss(model(users[rows], items[rows]), labels[rows]) * micro_batch / len(labels)
        loss.backward()
        total += loss.detach()
    optimizer.step()
    return total


@mistake(
    "accumulated_step",
    "The number of parts is rounded down, so parts can exceed micro_batch. Use split(micro_batch).",
)
def number_of_parts_rounded_down(model, users, items, labels, optimizer, micro_batch):
    optimizer.zero_grad()
    total, parts = 0.0, max(1, len(labels) // micro_batch)
    for u, i, y in zip(*(t.chunk(parts) for t in (users, items, labels)), strict=True):
        loss = _loss(model(u, i), y) * len(y) / len(labels)
        loss.backward()
        total += loss.detach()
    optimizer.step()
    return total


@mistake("accumulated_step", "The loss of the last part alone is returned. Add up the weighted losses of all parts.")
def loss_of_the_last_part(model, users, items, labels, optimizer, micro_batch):
    optimizer.zero_grad()
    for u, i, y in _parts(micro_batch, users, items, labels):
        loss = _loss(model(u, i), y) * len(y) / len(labels)
        loss.backward()
    optimizer.step()
    return loss.detach()


@mistake(
    "accumulated_step",
    "The sum of each part is divided by micro_batch, not by the rows of the whole batch: len(labels).",
)
def divided_by_the_part(model, users, items, labels, optimizer, micro_batch):
    optimizer.zero_grad()
    total = 0.0
    for u, i, y in _parts(micro_batch, users, items, labels):
        loss = F.binary_cross_entropy_with_logits(model(u, i), y, reduction="sum") / micro_batch
        loss.backward()
        total += loss.detach()
    optimizer.step()
    return total


@mistake(
    "accumulated_step",
    "Gradients are cleared after the step only, so what an earlier batch left counts. Clear them before the loop.",
)
def cleared_afterwards(model, users, items, labels, optimizer, micro_batch):
    loss = never_cleared(model, users, items, labels, optimizer, micro_batch)
    optimizer.zero_grad()
    return loss


@mistake(
    "accumulated_step",
    "The returned loss is weighted, but backward() runs on each part's own mean. Weight the loss before backward().",
)
def weighted_after_backward(model, users, items, labels, optimizer, micro_batch):
    optimizer.zero_grad()
    total = 0.0
    for u, i, y in _parts(micro_batch, users, items, labels):
        loss = _loss(model(u, i), y)
        loss.backward()
        total += loss.detach() * len(y) / len(labels)
    optimizer.step()
    return total


@alternative("accumulated_step")
def even_parts(model, users, items, labels, optimizer, micro_batch):
    optimizer.zero_grad()
    n, losses = -(-len(labels) // micro_batch), []
    for u, i, y in zip(*(t.tensor_split(n) for t in (users, items, labels)), strict=True):
        losses.append(_loss(model(u, i), y) * len(y) / len(labels))
        losses[-1].backward()
    optimizer.step()
    return sum(loss.detach() for loss in losses)


@alternative("accumulated_step")
def weighted_means(model, users, items, labels, optimizer, micro_batch):
    optimizer.zero_grad(set_to_none=True)
    losses = []
    for u, i, y in zip(users.split(micro_batch), items.split(micro_batch), labels.split(micro_batch), strict=True):
        loss = F.binary_cross_entropy_with_logits(model(u, i), y) * (len(y) / len(labels))
        loss.backward()
        losses.append(loss.detach())
    optimizer.step()
    return torch.stack(losses).sum()


@alternative("accumulated_step")
def scaled_at_the_end(model, users, items, labels, optimizer, micro_batch):
    model.zero_grad()
    n, total = len(users), torch.zeros((), device=users.device)
    for rows in torch.arange(n, device=users.device).split(micro_batch):
        loss = F.binary_cross_entropy_with_logits(model(users[rows], items[rows]), labels[rows], reduction="none").sum()
        loss.backward()
        total += loss.detach()
    for p in model.parameters():
        if p.grad is not None:
            p.grad /= n
    optimizer.step()
    return total / n
