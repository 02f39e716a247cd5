"""Known mistakes of exercise ragged_loss, and right answers in other styles."""

import torch

from course.engine.known_answers import alternative

MISTAKES = {
    "own_mean": (
        "That is the mean over this batch's own tokens, so a token of a batch with few counts more. Divide by `total`.",
        ("losses[mask].sum() * world_size / total", "losses[mask].sum() / mask.sum()"),
    ),
    "cells_counted": (
        "That is the mean over all cells of the batch, padding included. Divide the sum over the tokens by `total`.",
        ("losses[mask].sum() * world_size / total", "losses.mean()"),
    ),
    "padding_counts": (
        "The losses of the padding are added, too. Keep those where the mask is True.",
        ("losses[mask]", "losses"),
    ),
    "sequences_count_alike": (
        "Each sequence counts the same, so a token of a short sequence counts more. Add up all tokens, then divide.",
        (
            "losses[mask].sum() * world_size / total",
            "((losses * mask).sum(1) / mask.sum(1)).sum() * world_size / len(losses)",
        ),
    ),
    "ranks_forgotten": (
        "DDP divides the gradients by world_size, so yours end up world_size times too small. Multiply by it.",
        (" * world_size", ""),
    ),
    "divided_twice": (
        "The loss is divided by world_size, which DDP does already. Multiply instead.",
        ("* world_size", "/ world_size"),
    ),
    "plain_sum": (
        "The losses are not divided by the number of tokens: the step grows with the batch.",
        (" / total", ""),
    ),
    "not_added_up": (
        "The losses are weighted, but there is still one per cell. Add them up.",
        ("losses[mask].sum()", "(losses * mask)"),
    ),
    "python_number": (
        "`.item()` and `float()` give a number that has no backward. Keep the tensor.",
        ("sum()", "sum().item()"),
    ),
    "zero_without_graph": (
        "A new 0 is not part of the graph, so backward fails on this rank and the others wait. Return the sum of no "
        "losses: it is 0, too.",
        (
            "    return",
            "    if not mask.any():\n        return torch.tensor(0.0, device=losses.device)\n    return",
        ),
    ),
}


@alternative
def tokens_first(losses, mask, total, world_size):
    return losses[mask].div(total).sum() * float(world_size)


@alternative
def times_the_mask(losses, mask, total, world_size):
    return (losses * mask).sum() * world_size / total


@alternative
def weighted_mean(losses, mask, total, world_size):
    tokens = losses.masked_fill(~mask, 0)
    weight = torch.full_like(losses, world_size / total)
    return (tokens * weight).sum()
