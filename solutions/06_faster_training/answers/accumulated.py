"""Known mistakes of exercise accumulated, and right answers in other styles."""

import torch
from torch.nn import functional as F

from course.checks.engine import alternative, mistake


def _parts(images, labels, micro_batch):
    return list(zip(images.split(micro_batch), labels.split(micro_batch), strict=True))


@mistake(
    "accumulated", "Gradients of the micro-batches' means are added up: that is a sum, not the mean over the batch."
)
def sum_of_means(model, images, labels, micro_batch):
    total = torch.zeros((), device=images.device)
    for x, y in _parts(images, labels, micro_batch):
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        total += loss.detach() * len(y) / len(labels)
    return total


@mistake(
    "accumulated", "That is the sum over the samples, not their mean. Divide by the number of samples of the batch."
)
def sum_over_samples(model, images, labels, micro_batch):
    total = torch.zeros((), device=images.device)
    for x, y in _parts(images, labels, micro_batch):
        loss = F.cross_entropy(model(x), y, reduction="sum")
        loss.backward()
        total += loss.detach()
    return total


@mistake(
    "accumulated",
    "Each micro-batch counts alike, so a sample in the small last one counts more than the others. Weigh every loss "
    "with its share of the batch's samples.",
)
def mean_of_means(model, images, labels, micro_batch):
    parts, total = _parts(images, labels, micro_batch), torch.zeros((), device=images.device)
    for x, y in parts:
        loss = F.cross_entropy(model(x), y) / len(parts)
        loss.backward()
        total += loss.detach()
    return total


@mistake(
    "accumulated",
    "All forward passes come before the first backward, so every graph is in memory at once. Call backward after each.",
)
def one_backward(model, images, labels, micro_batch):
    losses = [F.cross_entropy(model(x), y, reduction="sum") for x, y in _parts(images, labels, micro_batch)]
    loss = sum(losses) / len(labels)
    loss.backward()
    return loss.detach()


@mistake("accumulated", "The gradients are cleared between micro-batches, so only the last one counts.")
def cleared_between(model, images, labels, micro_batch):
    total = torch.zeros((), device=images.device)
    for x, y in _parts(images, labels, micro_batch):
        model.zero_grad()
        loss = F.cross_entropy(model(x), y, reduction="sum") / len(labels)
        loss.backward()
        total += loss.detach()
    return total


@mistake("accumulated", "The gradients are right; the loss is that of the last micro-batch. Add up all their shares.")
def loss_of_the_last(model, images, labels, micro_batch):
    for x, y in _parts(images, labels, micro_batch):
        loss = F.cross_entropy(model(x), y, reduction="sum") / len(labels)
        loss.backward()
    return F.cross_entropy(model.map(x), y).detach() if hasattr(model, "map") else loss.detach()


@mistake("accumulated", "What is returned is the share of the last micro-batch. Add up the shares of all of them.")
def share_of_the_last(model, images, labels, micro_batch):
    for x, y in _parts(images, labels, micro_batch):
        loss = F.cross_entropy(model(x), y, reduction="sum") / len(labels)
        loss.backward()
    return loss.detach()


@mistake("accumulated", "The rows that do not fill a micro-batch are left out. The last micro-batch may be smaller.")
def rest_is_dropped(model, images, labels, micro_batch):
    total, n = torch.zeros((), device=images.device), max(1, len(labels) // micro_batch) * micro_batch
    for x, y in _parts(images[:n], labels[:n], micro_batch):
        loss = F.cross_entropy(model(x), y, reduction="sum") / len(labels[:n])
        loss.backward()
        total += loss.detach()
    return total


@alternative("accumulated")
def shares_of_means(model, images, labels, micro_batch):
    total = 0.0
    for x, y in _parts(images, labels, micro_batch):
        share = F.cross_entropy(model(x), y) * (len(y) / len(labels))
        share.backward()
        total = total + share.detach()
    return total


@alternative("accumulated")
def by_first_rows(model, images, labels, micro_batch):
    total = torch.zeros((), device=images.device)
    for first in range(0, len(labels), micro_batch):
        rows = slice(first, first + micro_batch)
        losses = F.cross_entropy(model(images[rows]), labels[rows], reduction="none")
        torch.autograd.backward(losses, torch.full_like(losses, 1 / len(labels)))
        total += losses.detach().sum()
    return total / len(labels)
