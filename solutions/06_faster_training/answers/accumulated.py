"""Known mistakes of exercise accumulated, and right answers in other styles."""

import torch
from torch.nn import functional as F

from course.engine.known_answers import alternative

MISTAKES = {
    "sum_of_means": (
        "The gradients of the micro-batches' means are added up, so they are too large. Divide each sum of losses by "
        "the size of the whole batch.",
        (', reduction="sum") / len(labels)', ")"),
        ("loss.detach()", "loss.detach() * len(y) / len(labels)"),
    ),
    "sum_over_samples": (
        "That is the sum over the samples, not their mean. Divide by the number of samples of the batch.",
        (" / len(labels)", ""),
    ),
    "mean_of_means": (
        "Each micro-batch counts alike, so a sample in a small last one counts more than the others. Weight every "
        "loss by its share of the batch's samples.",
        (', reduction="sum") / len(labels)', ") / len(labels.split(micro_batch))"),
    ),
    "one_backward": (
        "All forward passes come before the first backward, so all graphs are in memory together. Call backward after "
        "each.",
        (
            "        loss.backward()\n        total += loss.detach()",
            "        total = total + loss\n    total.backward()",
        ),
        ("return total", "return total.detach()"),
    ),
    "cleared_between": (
        "The gradients are cleared between micro-batches, so only the last one counts.",
        ("        loss =", "        model.zero_grad()\n        loss ="),
    ),
    "loss_of_the_last": (
        "The gradients are right, but the loss is only that of the last micro-batch. Add up the shares of all.",
        ("return total", "return loss.detach() * len(labels) / len(y)"),
    ),
    "share_of_the_last": (
        "Only the last micro-batch's share of the loss is returned. Add up the shares of all.",
        ("return total", "return loss.detach()"),
    ),
    "rest_is_dropped": (
        "The rows that do not fill a micro-batch are left out. The last micro-batch may be smaller.",
        (
            "    total =",
            "    labels = labels[: max(1, len(labels) // micro_batch) * micro_batch]\n    total =",
        ),
        ("zip(images.split", "zip(images[: len(labels)].split"),
    ),
}


@alternative
def shares_of_means(model, images, labels, micro_batch):
    total = 0.0
    for x, y in zip(images.split(micro_batch), labels.split(micro_batch), strict=True):
        share = F.cross_entropy(model(x), y) * (len(y) / len(labels))
        share.backward()
        total = total + share.detach()
    return total


@alternative
def by_first_rows(model, images, labels, micro_batch):
    total = torch.zeros((), device=images.device)
    for first in range(0, len(labels), micro_batch):
        rows = slice(first, first + micro_batch)
        losses = F.cross_entropy(model(images[rows]), labels[rows], reduction="none")
        torch.autograd.backward(losses, torch.full_like(losses, 1 / len(labels)))
        total += losses.detach().sum()
    return total / len(labels)
